//! Runs tools for the ledger. An operation is resumed under the version it opened with: where its one effect
//! is recorded, the recorded request decides and not what the catalog says today.

use crate::http_tool;
use crate::service::Shared;
use crate::tool::Body;
use async_trait::async_trait;
use ledger::{Attempt, EffectState, Operation, RunError, Runner, ToolResult};
use serde_json::json;
use std::sync::Arc;

pub(crate) struct GatewayRunner(pub Arc<Shared>);

#[async_trait]
impl Runner for GatewayRunner {
    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError> {
        let op = attempt.operation();
        if op.effects.len() == 1 && op.effects[0].name == http_tool::EFFECT {
            return http_tool::resume(attempt, self.0.executor.as_ref()).await;
        }
        let catalog = self.0.catalog();
        match catalog.find(&op.scope.tool).map(|e| &e.body) {
            Some(Body::Mutating(tool)) => tool.run(attempt).await,
            _ => Err(RunError::Tool("the tool is no longer configured here".into())),
        }
    }

    fn account(&self, op: &Operation, why: &str) -> ToolResult {
        let effects: Vec<_> =
            op.effects.iter().map(|e| json!({ "effect": e.summary, "state": e.state.word(), "happened": e.state == EffectState::Applied })).collect();
        let text = format!(
            "The tool did not finish ({why}). What it changed before: {}",
            serde_json::Value::from(effects.clone())
        );
        let body = json!({ "content": [{ "type": "text", "text": text }], "structuredContent": { "effects": effects }, "isError": true });
        ToolResult { result: body.to_string().into_bytes(), is_error: true }
    }
}
