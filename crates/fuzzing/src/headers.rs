//! Header values that mirror the body, and their Base64 sentinel.

use crate::input::parts;
use crate::tree::{self, Tree};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};
use mcp::headers::{HeaderParams, decode, encode};
use mcp::json::{Limits, Raw, RawObject};

/// A tool whose arguments are mirrored: one of each kind, and one further in.
const SCHEMA: &str = r#"{"type":"object","properties":{
    "s":{"type":"string","x-mcp-header":"S"},
    "n":{"type":"integer","x-mcp-header":"N"},
    "b":{"type":["boolean","null"],"x-mcp-header":"B"},
    "o":{"type":"object","properties":{"s":{"type":"string","x-mcp-header":"O-S"}}}}}"#;

/// A value survives its way through a header; a header is read by the rule and no other; arguments fit the headers that
/// are made of them, and no others.
///
/// # Panics
/// A promise is broken.
pub fn headers(data: &[u8]) {
    let [value, arguments] = parts(data);
    if let Ok(text) = std::str::from_utf8(value) {
        round_trip(text);
    }
    if let Ok(sent) = HeaderValue::from_bytes(value) {
        let wanted = naive(value);
        assert_eq!(decode(&sent).as_deref(), wanted.as_deref());
        if let Some(text) = wanted {
            round_trip(&text);
        }
    }
    mirrored(arguments, value);
    // A schema of anybody: annotations are either good, or the tool is refused.
    if let Ok(raw) = Raw::parse(arguments.to_vec(), &Limits::default())
        && let Ok(params) = HeaderParams::of_schema(&raw)
    {
        assert!(params.is_empty() || raw.as_str().contains("x-mcp-header"));
        assert_eq!(params.check(&HeaderMap::new(), None).map_err(|e| e.code), Ok(()));
    }
}

fn round_trip(text: &str) {
    let carried = encode(text);
    let header = HeaderValue::from_str(&carried).expect("what is encoded can be sent");
    assert!(carried.bytes().all(|b| (0x20..=0x7e).contains(&b)), "{carried:?} is not plain ASCII");
    assert_eq!(carried.trim(), carried, "blanks at an end get lost on the way");
    assert_eq!(decode(&header).as_deref(), Some(text));
}

/// The rule as it is written: plain ASCII as it stands, else the sentinel around standard Base64 with padding.
fn naive(value: &[u8]) -> Option<String> {
    let text: String = value.iter().map(|b| char::from(*b)).collect();
    if value.iter().any(|b| !matches!(b, b' '..=b'~' | b'\t')) {
        return None;
    }
    match text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(text),
        Some(inside) => {
            let bytes = STANDARD.decode(inside).ok()?;
            // One spelling each: what it decodes to is encoded like this and not otherwise.
            assert_eq!(STANDARD.encode(&bytes), inside);
            String::from_utf8(bytes).ok()
        }
    }
}

fn mirrored(arguments: &[u8], other: &[u8]) {
    let schema = Raw::parse(SCHEMA, &Limits::default()).expect("a good schema");
    let params = HeaderParams::of_schema(&schema).expect("good annotations");
    let Ok(object) = RawObject::parse(arguments.to_vec(), &Limits::default()) else { return };
    let tree = tree::read(arguments, 64, true).expect("it was read");
    let made: HeaderMap = params.headers(Some(&object)).into_iter().collect();
    assert_eq!(
        params.check(&made, Some(&object)).map_err(|e| e.message),
        Ok(()),
        "our own headers are refused"
    );
    let inner = tree.get("o").and_then(|o| o.get("s"));
    let values = [("s", tree.get("s")), ("n", tree.get("n")), ("b", tree.get("b")), ("o-s", inner)];
    for (name, value) in values {
        let name = format!("mcp-param-{name}");
        let scalar = matches!(value, Some(Tree::Bool(_) | Tree::Number(_) | Tree::String(_)));
        assert_eq!(made.contains_key(&name), scalar, "{name}");
        let mut less = made.clone();
        if less.remove(&name).is_some() {
            assert!(params.check(&less, Some(&object)).is_err(), "{name} may be missing");
            let mut twice = made.clone();
            twice.append(http::HeaderName::from_bytes(name.as_bytes()).expect("a name"), made[&name].clone());
            assert!(params.check(&twice, Some(&object)).is_err(), "{name} may come twice");
        }
        // Another value in the header: refused, unless it says the same.
        if let (true, Ok(sent), Some(Tree::String(text))) = (scalar, HeaderValue::from_bytes(other), value) {
            let mut changed = made.clone();
            changed.insert(http::HeaderName::from_bytes(name.as_bytes()).expect("a name"), sent);
            let same = naive(other).as_ref() == Some(text);
            assert_eq!(params.check(&changed, Some(&object)).is_ok(), same, "{name} against {other:?}");
        }
        if let None | Some(Tree::Null) = value {
            let mut more = made.clone();
            let name = http::HeaderName::from_bytes(name.as_bytes()).expect("a name");
            more.insert(name, HeaderValue::from_static("x"));
            assert!(params.check(&more, Some(&object)).is_err(), "a header without its argument");
        }
    }
}
