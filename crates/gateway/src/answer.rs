//! Answers that are no results: tool results with `isError: true`, one plain sentence, and an error object that
//! a model or program can act on. They answer a call and are never stored.

use ledger::{CallError, Kind};
use mcp::json::{Limits, Raw};
use serde_json::{Map, Value, json};

/// Where the error object is in `_meta`.
pub const META_ERROR: &str = "dev.counterfoil/error";

/// Arguments that don't fit.
#[must_use]
pub fn bad_arguments(why: &str) -> CallError {
    CallError::plain(
        Kind::BadArguments,
        format!("The arguments don't fit, so nothing ran: {why}."),
        "Correct the arguments and call again.",
    )
}

/// The error object: `{"kind", "operationId", "retryAfterMs", "retryKey", "newKey", "advice"}`.
#[must_use]
pub fn error_object(e: &CallError) -> Value {
    let mut o = Map::new();
    o.insert("kind".into(), json!(e.kind.word()));
    if let Some(id) = e.operation {
        o.insert("operationId".into(), json!(id.to_string()));
    }
    if let Some(d) = e.retry_after {
        o.insert("retryAfterMs".into(), json!(d.0));
    }
    if let Some(k) = &e.retry_key {
        o.insert("retryKey".into(), json!(k));
    }
    if let Some(k) = &e.new_key {
        o.insert("newKey".into(), json!(k));
    }
    o.insert("advice".into(), json!(e.advice));
    Value::Object(o)
}

/// The result object of an error, and its error object for `_meta`. The object is repeated in
/// `structuredContent` where the tool promises no other structure, and the text carries what a model needs
/// where hosts show it nothing else.
#[must_use]
pub fn result(e: &CallError, has_output_schema: bool) -> (Raw, Raw) {
    let object = error_object(e);
    let mut text = format!("{} {}", e.sentence, e.advice);
    if let Some(k) = &e.retry_key {
        text.push_str(&format!(" retryKey: {k}"));
    }
    if let Some(k) = &e.new_key {
        text.push_str(&format!(" newKey: {k}"));
    }
    let mut body = json!({ "content": [{ "type": "text", "text": text }], "isError": true });
    if !has_output_schema {
        body["structuredContent"] = json!({ "error": object });
    }
    (raw(&body), raw(&object))
}

/// JSON text of a value that was made here.
#[must_use]
pub fn raw(value: &Value) -> Raw {
    // What serde_json writes is JSON; the limits are those of what is read, so give it room.
    let limits = Limits { depth: 128, ..Limits::default() };
    Raw::parse(value.to_string(), &limits).unwrap_or_else(|_| Raw::string(""))
}
