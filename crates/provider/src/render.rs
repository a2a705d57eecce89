//! From a receipt to the result object of a tool call.

use crate::receipt::Receipt;
use base64::Engine as _;
use serde::Serialize;
use serde_json::value::RawValue;

/// A tool's result object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// `{"content": […], "structuredContent"?: …, "isError": …}` on one line.
    pub result: Vec<u8>,
    /// The provider refused.
    pub is_error: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultObject<'a> {
    content: [Content<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a RawValue>,
    is_error: bool,
}

#[derive(Serialize)]
struct Content<'a> {
    r#type: &'static str,
    text: &'a str,
}

/// An operator's word, kept in a receipt's place.
#[derive(serde::Deserialize)]
struct Word {
    operator: String,
    #[serde(default)]
    note: String,
}

/// Renders what the ledger kept: a provider's answer, or an operator's word. Never fails.
#[must_use]
pub fn render(receipt: &[u8]) -> Rendered {
    if let Ok(receipt) = serde_json::from_slice::<Receipt>(receipt) {
        return answer(&receipt);
    }
    let text = match serde_json::from_slice::<Word>(receipt) {
        Ok(Word { operator, note }) if note.is_empty() => format!("{operator} recorded that this was done."),
        Ok(Word { operator, note }) => format!("{operator} recorded that this was done: {note}"),
        Err(_) => String::from_utf8_lossy(receipt).into_owned(),
    };
    object(&text, None, false)
}

fn answer(r: &Receipt) -> Rendered {
    let is_error = r.status >= 400 || r.refused;
    let reason = http::StatusCode::from_u16(r.status).ok().and_then(|s| s.canonical_reason()).unwrap_or("");
    let status = format!("{} {reason}", r.status).trim_end().to_owned();
    let body = r.json.as_deref().map(|raw| single_line(raw.get()));
    let text = match (&body, &r.text, &r.base64) {
        (Some(json), _, _) => json.clone(),
        (None, Some(text), _) => text.clone(),
        (None, None, Some(data)) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(data).map_or(0, |b| b.len());
            format!("{bytes} bytes of {}", r.content_type.as_deref().unwrap_or("an unknown type"))
        }
        (None, None, None) => match &r.note {
            Some(note) => format!("Done ({status}). {note}"),
            None => format!("Done ({status})"),
        },
    };
    // A status that says otherwise would only confuse.
    let status = if r.refused && r.status < 400 { "its answer says so".to_owned() } else { status };
    let text = match (is_error, body.is_none() && r.text.is_none() && r.base64.is_none()) {
        (true, true) => format!("The provider refused: {status}"),
        (true, false) => format!("The provider refused: {status}. {text}"),
        (false, _) => text,
    };
    let structured = body.filter(|b| b.starts_with('{')).and_then(|b| RawValue::from_string(b).ok());
    object(&text, structured.as_deref(), is_error)
}

fn object(text: &str, structured: Option<&RawValue>, is_error: bool) -> Rendered {
    let object = ResultObject {
        content: [Content { r#type: "text", text }],
        structured_content: structured,
        is_error,
    };
    // Only texts: this can't fail.
    Rendered { result: serde_json::to_vec(&object).unwrap_or_default(), is_error }
}

/// The same JSON on one line: a raw line break can only stand between tokens.
fn single_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn show(status: u16, kind: Option<&str>, body: &[u8]) -> (Value, String, bool) {
        let r = render(&Receipt::new(status, kind, body).keep().0);
        let text = String::from_utf8(r.result).unwrap();
        assert!(!text.contains('\n'));
        (serde_json::from_str(&text).unwrap(), text, r.is_error)
    }

    #[test]
    fn a_json_object_is_structured_byte_for_byte() {
        let (v, text, error) =
            show(200, Some("application/json"), b"{\n \"amount\": 5.00e2,\r\n\"big\":9007199254740993}\n");
        assert!(
            text.contains(r#""structuredContent":{  "amount": 5.00e2,  "big":9007199254740993}"#),
            "{text}"
        );
        assert!(!error && v["isError"] == json!(false));
        assert_eq!(v["content"][0]["text"], json!("{  \"amount\": 5.00e2,  \"big\":9007199254740993}"));
    }

    #[test]
    fn other_bodies_are_text() {
        let (v, _, _) = show(200, Some("application/json"), b"[1,2]");
        assert_eq!(v["content"][0]["text"], json!("[1,2]"));
        assert!(v.get("structuredContent").is_none());
        assert_eq!(show(200, Some("text/plain"), b"a\nb").0["content"][0]["text"], json!("a\nb"));
        assert_eq!(show(204, None, b"").0["content"][0]["text"], json!("Done (204 No Content)"));
        assert_eq!(
            show(200, Some("image/png"), &[0xff, 0]).0["content"][0]["text"],
            json!("2 bytes of image/png")
        );
    }

    #[test]
    fn a_refusal_is_an_error_and_keeps_its_body() {
        let (v, _, error) = show(402, Some("application/json"), br#"{"error":{"code":"card_declined"}}"#);
        assert!(error && v["isError"] == json!(true));
        assert_eq!(v["structuredContent"]["error"]["code"], json!("card_declined"));
        assert!(
            v["content"][0]["text"]
                .as_str()
                .unwrap()
                .starts_with("The provider refused: 402 Payment Required. {")
        );
        assert!(show(404, None, b"").2);
    }

    #[test]
    fn an_operators_word_and_anything_else() {
        let v: Value =
            serde_json::from_slice(&render(br#"{"operator":"ada","note":"seen in the dashboard"}"#).result)
                .unwrap();
        assert_eq!(v["content"][0]["text"], json!("ada recorded that this was done: seen in the dashboard"));
        assert!(!render(b"\xff{").result.is_empty());
    }
}
