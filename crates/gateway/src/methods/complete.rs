//! `completion/complete` (spec: server/utilities/completion).

use super::prompts::unknown;
use super::{TIMEOUT, bounded, failed, params, shown, string, strings};
use crate::catalog::MAX_URI;
use crate::resource::{Asked, Completion, Failure};
use crate::service::Shared;
use mcp::error::RpcError;
use mcp::json::{RawObject, quote};
use mcp::server::{Exchange, Notifier, Outcome};

/// The most values of one answer.
const MOST: usize = 100;
/// The longest value that is completed, in bytes.
const MAX_VALUE: usize = 8 << 10;

/// Answers `completion/complete`.
pub(crate) async fn complete(shared: &Shared, exchange: &Exchange, notifier: Notifier) -> Outcome {
    match completed(shared, exchange, notifier).await {
        Ok(c) => shared.result(exchange, text(&c), &[]),
        Err(e) => e.into(),
    }
}

fn text(c: &Completion) -> String {
    let sent = c.values.len().min(MOST);
    let total = c.total.unwrap_or(0).max(c.values.len() as u64);
    let values: Vec<String> = c.values[..sent].iter().map(|v| quote(v)).collect();
    let known = c.total.is_some() || c.values.len() > MOST;
    let told = if known { format!(r#","total":{total}"#) } else { String::new() };
    format!(r#"{{"completion":{{"values":[{}]{told},"hasMore":{}}}}}"#, values.join(","), total > sent as u64)
}

fn object(of: &RawObject, member: &str) -> Result<RawObject, RpcError> {
    of.get(member)
        .and_then(|v| v.object())
        .ok_or_else(|| RpcError::malformed(format!("params.{member} must be an object")))
}

async fn completed(shared: &Shared, exchange: &Exchange, notifier: Notifier) -> Result<Completion, RpcError> {
    let params = params(exchange);
    let reference = object(&params, "ref")?;
    let argument = object(&params, "argument")?;
    let known = match params.get("context") {
        None => None,
        Some(c) => c
            .object()
            .ok_or_else(|| RpcError::malformed("params.context must be an object"))?
            .get("arguments"),
    };
    let asked = Asked {
        argument: string(&argument, "name", "params.argument")?,
        value: string(&argument, "value", "params.argument")?,
        known: strings(known.as_ref(), "params.context.arguments")?,
    };
    if asked.value.len() > MAX_VALUE {
        return Err(RpcError::malformed("params.argument.value has more than 8 KiB"));
    }
    let other = |what: &str, name: &str| {
        RpcError::invalid_params(format!("there is no {what} {} to complete", quote(&shown(name))))
    };
    let catalog = shared.catalog();
    let context = shared.context(exchange, TIMEOUT, notifier);
    match string(&reference, "type", "params.ref")?.as_str() {
        "ref/prompt" => {
            let name = string(&reference, "name", "params.ref")?;
            let (spec, body) = catalog.prompt(&name).ok_or_else(|| unknown(&name))?;
            if spec.arguments.iter().all(|a| a.name != asked.argument) {
                return Err(other("argument", &asked.argument));
            }
            bounded(body.complete(context, asked)).await.map_err(|e| failed(e, || unknown(&name)))
        }
        "ref/resource" => {
            let uri = string(&reference, "uri", "params.ref")?;
            let missing = || {
                let uri: String = uri.chars().take(MAX_URI).collect();
                RpcError::invalid_params(
                    "there is no such template; resources/templates/list tells what there is",
                )
                .with_data(serde_json::json!({ "uri": uri }))
            };
            let (reader, has) = catalog.template(&uri, &asked.argument).ok_or_else(missing)?;
            if !has {
                return Err(other("variable", &asked.argument));
            }
            let done: Result<Completion, Failure> = bounded(reader.complete(context, asked)).await;
            done.map_err(|e| failed(e, missing))
        }
        _ => Err(RpcError::malformed("params.ref.type must be ref/prompt or ref/resource")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Completion, text};

    #[test]
    fn at_most_a_hundred_values_are_sent() {
        let of = |n: usize, total| text(&Completion { values: vec!["v".into(); n], total });
        assert_eq!(of(0, None), r#"{"completion":{"values":[],"hasMore":false}}"#);
        assert_eq!(of(1, Some(7)), r#"{"completion":{"values":["v"],"total":7,"hasMore":true}}"#);
        // A total that can't be is corrected.
        assert!(of(2, Some(1)).ends_with(r#""total":2,"hasMore":false}}"#));
        let many = of(130, None);
        assert_eq!(many.matches(r#""v""#).count(), 100);
        assert!(many.ends_with(r#""total":130,"hasMore":true}}"#), "{many}");
    }
}
