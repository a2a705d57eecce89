//! A recorded request as people read it. Records keep the text around the effect key; here the key, or `{key}`, is
//! put in.

use super::out::pretty;
use serde_json::Value;

/// A text in pieces, the key between them.
fn spliced(pieces: &Value, key: &str) -> Option<String> {
    let pieces: Option<Vec<&str>> = pieces.as_array()?.iter().map(Value::as_str).collect();
    Some(pieces?.join(key))
}

/// The request line, headers and body; the whole record where it is of another form.
pub(super) fn text(intent: &Value, key: &str) -> String {
    text_with(intent, key, &[])
}

/// The same, with what authenticates it, which the record doesn't have: `header` or `query`, and `value`.
pub(super) fn text_with(intent: &Value, key: &str, proof: &[&Value]) -> String {
    plain(intent, key, proof).unwrap_or_else(|| pretty(intent))
}

fn plain(intent: &Value, key: &str, proof: &[&Value]) -> Option<String> {
    let of = |place: &'static str| {
        proof.iter().filter_map(move |one| Some((one[place].as_str()?, one["value"].as_str()?)))
    };
    let mut url = spliced(&intent["url"], key)?;
    for (name, value) in of("query") {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(&format!("{name}={value}"));
    }
    let mut lines = vec![format!("{} {url}", intent["method"].as_str()?)];
    for header in intent["headers"].as_array()? {
        lines.push(format!("{}: {}", header[0].as_str()?, spliced(&header[1], key)?));
    }
    lines.extend(of("header").map(|(name, value)| format!("{name}: {value}")));
    if let Some(body) = intent.get("body") {
        let body = spliced(body, key)?;
        let shown = serde_json::from_str::<Value>(&body).map_or(body, |json| pretty(&json));
        lines.push(String::new());
        lines.push(shown);
    }
    Some(lines.join("\n"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{text, text_with};
    use serde_json::json;

    #[test]
    fn the_key_goes_where_it_goes() {
        let intent = json!({ "method": "POST", "url": ["http://h/v1/r?k=", ""], "headers": [["Idempotency-Key", ["", ""]]], "body": ["{\"a\":1}"] });
        assert_eq!(text(&intent, "K"), "POST http://h/v1/r?k=K\nIdempotency-Key: K\n\n{\n  \"a\": 1\n}");
        let bearer = json!({ "header": "Authorization", "value": "Bearer ****" });
        assert!(text_with(&intent, "K", &[&bearer]).contains("Key: K\nAuthorization: Bearer ****\n\n{"));
        let query = json!({ "query": "api_key", "value": "****" });
        let both = text_with(&intent, "K", &[&query, &bearer]);
        assert!(
            both.starts_with("POST http://h/v1/r?k=K&api_key=****\n") && both.contains("Bearer"),
            "{both}"
        );
        assert_eq!(text(&json!({ "v": 9 }), "K"), "{\n  \"v\": 9\n}");
    }
}
