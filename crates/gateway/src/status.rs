//! The built-in tool `operation_status`: did it land?

use crate::context::Context;
use crate::tool::{BadArguments, Body, ReadTool, ToolSettings, ToolSpec};
use crate::view;
use async_trait::async_trait;
use ledger::store::Query;
use ledger::{Ledger, OperationId, ToolResult};
use mcp::json::{Limits, Raw, RawObject};
use serde_json::json;
use std::sync::Arc;

const SCHEMA: &str = r#"{"type":"object","properties":{"id":{"type":"string","description":"An operation id (op_…) from an earlier answer. Leave it out for your most recent operations."},"limit":{"type":"integer","minimum":1,"maximum":50,"description":"How many recent operations to list; 10 if left out."}},"additionalProperties":false}"#;

/// Its canonical id, and its name on the wire.
pub const NAME: &str = "operation_status";

struct Status(Arc<Ledger>);

/// The tool.
#[must_use]
pub fn tool(ledger: Arc<Ledger>) -> (ToolSpec, ToolSettings, Body) {
    let spec = ToolSpec {
            mode: None,
        canonical: NAME.into(),
        name: NAME.into(),
        title: Some("Operation status".into()),
        description: "Tells whether an earlier call that changed something took effect: by operation id, or your most recent operations. Use it after a lost or unclear answer instead of repeating the call.".into(),
        input_schema: Raw::parse(SCHEMA, &Limits::default()).unwrap_or_else(|_| Raw::string("")),
        output_schema: None,
        icons: Vec::new(),
        requires: None,
        annotations: None,
    };
    (spec, ToolSettings::default(), Body::Read(Arc::new(Status(ledger))))
}

#[async_trait]
impl ReadTool for Status {
    async fn read(&self, context: Context, arguments: RawObject) -> Result<ToolResult, BadArguments> {
        let unavailable =
            |_| BadArguments("the ledger can't be read at the moment; ask again a little later".into());
        let body = match arguments.get("id").as_ref().and_then(|v| v.as_string()) {
            Some(id) => {
                let found = match id.parse::<OperationId>() {
                    Ok(id) => self.0.status(&context.principal, id).await.map_err(unavailable)?,
                    Err(_) => None,
                };
                match found {
                    Some(op) => view::status(&op),
                    None => {
                        json!({ "id": id, "state": "unknown", "landed": "not known here: no such operation of yours is kept" })
                    }
                }
            }
            None => {
                let limit =
                    arguments.get("limit").and_then(|v| v.as_str().parse().ok()).unwrap_or(10usize).min(50);
                let query =
                    Query { principal: Some(context.principal.to_string()), limit, ..Query::default() };
                let ops = self.0.list(&query).await.map_err(unavailable)?;
                json!({ "operations": ops.iter().map(view::status).collect::<Vec<_>>() })
            }
        };
        let result = json!({ "content": [{ "type": "text", "text": body.to_string() }], "structuredContent": body, "isError": false });
        Ok(ToolResult { result: result.to_string().into_bytes(), is_error: false })
    }
}
