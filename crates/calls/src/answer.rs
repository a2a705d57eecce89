//! Answers that are no results: tool results with `isError: true`, one plain sentence, and an error object that
//! a model or program can act on. They answer a call and are never stored. And what a result says of its operation.

use ledger::{CallError, JoinedBy, Kind, Operation, Time};
use serde_json::{Map, Value, json};

/// Where the error object is in `_meta`.
pub const META_ERROR: &str = "dev.counterfoil/error";
/// Where a ledgered result names its operation in `_meta`.
pub const META_OPERATION: &str = "dev.counterfoil/operation";
/// Where deliveries are acknowledged in a request's `_meta`.
pub const META_ACK: &str = "dev.counterfoil/ack";

/// Arguments that don't fit.
#[must_use]
pub fn bad_arguments(why: &str) -> CallError {
    CallError::plain(
        Kind::BadArguments,
        format!("The arguments don't fit, so nothing ran: {why}."),
        "Correct the arguments and call again.",
    )
}

/// What is said under overload: what happened, and what to do.
pub const BUSY: (&str, &str) = (
    "Too many operations are running at the moment, so nothing ran.",
    "Call again a little later; it is safe.",
);

/// The answer under overload.
#[must_use]
pub fn busy() -> CallError {
    CallError {
        retry_after: Some(ledger::Millis::secs(1)),
        ..CallError::plain(Kind::Unavailable, BUSY.0, BUSY.1)
    }
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
pub fn result(e: &CallError, has_output_schema: bool) -> (Value, Value) {
    let object = error_object(e);
    let mut text = format!("{} {}", e.sentence, e.advice);
    if let Some(d) = e.retry_after {
        text.push_str(&format!(" retryAfterMs: {}", d.0));
    }
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
    (body, object)
}

/// `_meta["dev.counterfoil/operation"]`, as JSON text. `nonce` acknowledges this delivery when it is sent back.
#[must_use]
pub fn operation(op: &Operation, replayed: bool, joined_by: Option<JoinedBy>, nonce: &str) -> String {
    let mut o = format!(r#"{{"id":"{}","replayed":{replayed}"#, op.id);
    if let Some(by) = joined_by {
        o.push_str(&format!(r#","joinedBy":"{}""#, by.word()));
    }
    o.push_str(&format!(r#","attempt":{}"#, op.attempt));
    if let Some(t) = op.ended_at {
        o.push_str(&format!(r#","completedAt":"{}""#, rfc3339(t)));
    }
    o.push_str(&format!(r#","ack":"{nonce}"}}"#));
    o
}

/// A time in RFC 3339 with milliseconds, in UTC.
#[must_use]
pub fn rfc3339(t: Time) -> String {
    let nanos = i128::from(t.0) * 1_000_000;
    time::OffsetDateTime::from_unix_timestamp_nanos(nanos)
        .ok()
        .map(|d| {
            format!(
                "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
                d.year(),
                u8::from(d.month()),
                d.day(),
                d.hour(),
                d.minute(),
                d.second(),
                d.millisecond()
            )
        })
        .unwrap_or_else(|| t.0.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_what_the_advice_speaks_of() {
        let e = CallError {
            retry_after: Some(ledger::Millis(1500)),
            retry_key: Some("op_1".into()),
            new_key: Some("new-1".into()),
            ..CallError::plain(Kind::Limited, "It was.", "After `retryAfterMs`, with `retryKey` or `newKey`.")
        };
        let (body, object) = result(&e, true);
        let text = body["content"][0]["text"].as_str().unwrap();
        // Where the tool declares an output schema, hosts show nothing but this.
        assert!(body.get("structuredContent").is_none());
        assert!(text.ends_with("`newKey`. retryAfterMs: 1500 retryKey: op_1 newKey: new-1"), "{text}");
        assert_eq!(object["retryAfterMs"], 1500);
        let (plain, _) = result(&CallError::plain(Kind::Denied, "No.", "Don't."), false);
        assert_eq!(plain["content"][0]["text"], "No. Don't.");
    }
}
