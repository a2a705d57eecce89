//! Methods of HTTP APIs as tools. One that changes something has exactly one effect, so its request is durable
//! in the write that opens its operation, and what is resumed later is that recorded request.

use crate::answer::raw;
use crate::context::Context;
use crate::tool::{BadArguments, Body, ReadTool, Tool, ToolSettings, ToolSpec};
use crate::{safety, turns};
use async_trait::async_trait;
use ledger::{Attempt, Executor, Intent, Recovery, RunError, Stopped, StoreError, ToolResult};
use mcp::json::RawObject;
use provider::{
    ConfigError, HttpExecutor, Method, MethodEffect, Origins, Overrides, OwnAccount, ReadOutcome,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// The name of the one effect of an HTTP tool.
pub(crate) const EFFECT: &str = "request";

/// A method as a tool.
///
/// # Errors
/// [`ConfigError`]: what the operator asked of it can't work; the message says what it lacks.
pub fn tool(
    method: &Method,
    overrides: &Overrides,
    settings: ToolSettings,
    executor: &Arc<HttpExecutor>,
) -> Result<(ToolSpec, ToolSettings, Body), ConfigError> {
    let spec = ToolSpec {
        mode: None,
        canonical: method.canonical_id().into(),
        name: method.wire_name(),
        title: method.title().map(str::to_owned),
        description: method.description().to_owned(),
        input_schema: raw(method.input_schema()),
        output_schema: method.output_schema().map(raw),
        icons: Vec::new(),
        requires: None,
        annotations: None,
    };
    let body = match method.effect() {
        MethodEffect::Read => {
            Body::Read(Arc::new(Reader { method: method.clone(), executor: executor.clone() }))
        }
        MethodEffect::Mutating => {
            let resolved = method.resolve(overrides)?;
            Body::Mutating(Arc::new(Writer {
                method: method.clone(),
                undecided: resolved.is_undecided(),
                recovery: resolved.recovery,
                origins: resolved.origins,
                published: resolved.retention_published,
                executor: executor.clone(),
            }))
        }
    };
    Ok((spec, settings, body))
}

struct Reader {
    method: Method,
    executor: Arc<HttpExecutor>,
}

#[async_trait]
impl ReadTool for Reader {
    async fn read(&self, context: Context, arguments: RawObject) -> Result<ToolResult, BadArguments> {
        let timeout = self.method.read_timeout().min(context.timeout);
        let args = arguments.raw();
        match self.executor.read_as(&self.method, Some(&context.principal), args.as_str(), timeout).await {
            Err(e) => Err(BadArguments(e.to_string())),
            Ok(ReadOutcome::Answered(receipt)) => Ok(rendered(&receipt.keep())),
            Ok(ReadOutcome::Unavailable { why }) => {
                let text = format!(
                    "The provider gave no answer ({why}). Nothing was changed; reading again is safe."
                );
                let body = json!({ "content": [{ "type": "text", "text": text }], "isError": true });
                Ok(ToolResult { result: body.to_string().into_bytes(), is_error: true })
            }
        }
    }

    fn own_account(&self) -> Option<OwnAccount> {
        self.method.own_account()
    }

    fn kept_account(&self) -> Option<OwnAccount> {
        self.method.kept_account()
    }

    fn plan(&self, arguments: &RawObject) -> Result<Option<Value>, BadArguments> {
        let raw = arguments.raw();
        let http = self.method.read_request(raw.as_str()).map_err(|e| BadArguments(e.to_string()))?;
        Ok(Some(json!({ "summary": http.shown(), "request": http })))
    }

    fn masked_credentials(&self) -> &[provider::Masked] {
        self.method.masked_credentials()
    }

    fn safety(&self) -> Value {
        json!({
            "effect": "read",
            "effectFrom": self.method.effect_origin().word(),
            "details": self.method.details(),
            "http": self.method.http(),
            "retry": "safe: it changes nothing",
            "repeat": safety::reading(),
        })
    }
}

struct Writer {
    method: Method,
    recovery: Recovery,
    /// Nobody said how it recovers.
    undecided: bool,
    origins: Origins,
    published: bool,
    executor: Arc<HttpExecutor>,
}

#[async_trait]
impl Tool for Writer {
    fn plan(&self, arguments: &RawObject) -> Result<Option<Intent>, BadArguments> {
        let raw = arguments.raw();
        self.method.intent(raw.as_str(), &self.recovery).map(Some).map_err(|e| BadArguments(e.to_string()))
    }

    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError> {
        resume(attempt, self.executor.as_ref()).await
    }

    fn own_account(&self) -> Option<OwnAccount> {
        self.method.own_account()
    }

    fn kept_account(&self) -> Option<OwnAccount> {
        self.method.kept_account()
    }

    fn masked_credentials(&self) -> &[provider::Masked] {
        self.method.masked_credentials()
    }

    fn safety(&self) -> Value {
        let r = &self.recovery;
        let from = &self.origins;
        json!({
            "effect": "mutating",
            "effectFrom": self.method.effect_origin().word(),
            "details": self.method.details(),
            "http": self.method.http(),
            "account": self.method.account(),
            "recovery": { "value": r.strategy.word(), "from": from.strategy.word() },
            "promise": r.strategy.promise(),
            "retry": safety::retry(r.strategy),
            "repeat": safety::repeat(r.strategy, self.undecided),
            "undecided": self.undecided,
            "keyCarrier": self.method.key_carrier(),
            "keyCarrierFrom": self.method.key_carrier_origin().map(provider::Origin::word),
            "keyScope": self.method.key_scope().map(provider::KeyScope::word),
            "keyCompares": self.method.key_compares(),
            "replayForMs": { "value": r.replay_for.map(|m| m.0), "from": from.replay_for.word(), "published": self.published },
            "sendTimeoutMs": { "value": r.send_timeout.0, "from": from.send_timeout.word() },
            "maxSends": { "value": r.max_sends, "from": from.max_sends.word() },
            "initialBackoffMs": { "value": r.initial_backoff.0, "from": from.initial_backoff.word() },
            "maxBackoffMs": { "value": r.max_backoff.0, "from": from.max_backoff.word() },
            "canLookUp": r.can_look_up,
            "precheck": r.precheck,
            "quarantineMs": (r.strategy == ledger::Strategy::Lookup).then_some(r.processing_bound.0 + r.visibility_lag.0),
        })
    }
}

/// Goes on with the recorded request, or begins it: the same thing.
pub(crate) async fn resume(attempt: &Attempt, executor: &dyn Executor) -> Result<ToolResult, RunError> {
    let op = attempt.operation();
    if op.effects.is_empty() {
        return Err(RunError::Stopped(Stopped::Store(StoreError::Damaged(format!(
            "{} has no recorded request",
            op.id
        )))));
    }
    let effect = &op.effects[0];
    let _turn = turns::take(effect.recovery.strategy, &effect.summary).await;
    let performed = attempt.resume(0, executor).await?;
    Ok(rendered(&performed.receipt))
}

fn rendered(receipt: &ledger::Receipt) -> ToolResult {
    let r = provider::render(&receipt.0);
    ToolResult { result: r.result, is_error: r.is_error }
}
