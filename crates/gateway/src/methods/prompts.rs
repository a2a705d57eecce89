//! `prompts/get` (spec: server/prompts, "Getting a Prompt").

use super::{TIMEOUT, bounded, failed, params, shown, string, strings};
use crate::asks::{Of, Reading};
use crate::prompt::{Made, PromptSpec};
use crate::service::Shared;
use mcp::error::RpcError;
use mcp::input::Asker;
use mcp::json::{Raw, quote};
use mcp::server::{Exchange, Notifier, Outcome};
use std::collections::BTreeMap;

/// Answers `prompts/get`.
pub(crate) async fn get(shared: &Shared, exchange: &Exchange, notifier: Notifier) -> Outcome {
    match made(shared, exchange, notifier).await {
        Ok(Ok(text)) => shared.result(exchange, text, &[]),
        Ok(Err(asked)) => asked,
        Err(e) => e.into(),
    }
}

/// There is no prompt of that name.
pub(super) fn unknown(name: &str) -> RpcError {
    RpcError::invalid_params(format!(
        "unknown prompt {}; prompts/list tells what there is",
        quote(&shown(name))
    ))
}

/// The result object, or what is asked first.
async fn made(
    shared: &Shared,
    exchange: &Exchange,
    notifier: Notifier,
) -> Result<Result<String, Outcome>, RpcError> {
    let params = params(exchange);
    let name = string(&params, "name", "params")?;
    let arguments = strings(params.get("arguments").as_ref(), "params.arguments")?;
    let catalog = shared.catalog();
    let (spec, body) = catalog.prompt(&name).ok_or_else(|| unknown(&name))?;
    check(spec, &arguments)?;
    let given = params.get("arguments").and_then(|a| a.object());
    let of = Of { asker: Asker::PromptsGet, name: &name, arguments: given.as_ref() };
    let (reading, context) = Reading::begin(shared, exchange, of, TIMEOUT, notifier).await?;
    let made = bounded(body.get(context, arguments)).await;
    if let Some(asked) = reading.end(made.is_ok()).await {
        return Ok(Err(asked));
    }
    let Made { description, messages } = made.map_err(|e| failed(e, || unknown(&name)))?;
    if !messages.iter().all(Raw::is_object) {
        tracing::error!(prompt = name, "a prompt made a message that is no object");
        return Err(RpcError::internal("Internal error: the prompt could not be made."));
    }
    let mut text = String::from("{");
    if let Some(d) = description {
        text.push_str(&format!(r#""description":{},"#, quote(&d)));
    }
    let messages: Vec<String> = messages.iter().map(|m| m.single_line().to_string()).collect();
    text.push_str(&format!(r#""messages":[{}]}}"#, messages.join(",")));
    Ok(Ok(text))
}

fn check(spec: &PromptSpec, given: &BTreeMap<String, String>) -> Result<(), RpcError> {
    if let Some(missing) = spec.arguments.iter().find(|a| a.required && !given.contains_key(&a.name)) {
        return Err(RpcError::invalid_params(format!(
            "the prompt needs the argument {}",
            quote(&shown(&missing.name))
        )));
    }
    if let Some(other) = given.keys().find(|name| spec.arguments.iter().all(|a| a.name != **name)) {
        return Err(RpcError::invalid_params(format!(
            "the prompt takes no argument {}; prompts/list tells which it takes",
            quote(&shown(other))
        )));
    }
    Ok(())
}
