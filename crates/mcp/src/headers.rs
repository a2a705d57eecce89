//! Header values that mirror the body (spec: Streamable HTTP, "Request Metadata"): encoding, decoding, and the
//! comparison of `Mcp-Param-*` with the arguments that a tool's schema marks with `x-mcp-header`.
use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::constants::header;
use crate::error::{Error, RpcError};
use crate::json::{Raw, RawObject};

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

fn is_wrapped(text: &str) -> bool {
    text.len() >= OPEN.len() + CLOSE.len() && text.starts_with(OPEN) && text.ends_with(CLOSE)
}

/// A value as a header carries it: as it is if plain ASCII, else wrapped as `=?base64?…?=`. Blanks at either end,
/// control characters (tab included) and text that looks wrapped already are wrapped.
pub fn encode(value: &str) -> String {
    let plain =
        value.bytes().all(|b| (0x20..=0x7e).contains(&b)) && value.trim() == value && !is_wrapped(value);
    if plain { value.to_owned() } else { format!("{OPEN}{}{CLOSE}", STANDARD.encode(value)) }
}

/// The value that a header carries; `None` if it holds invalid characters or a broken wrapping.
pub fn decode(value: &HeaderValue) -> Option<Cow<'_, str>> {
    let text = value.to_str().ok()?;
    if !is_wrapped(text) {
        return Some(Cow::Borrowed(text));
    }
    let inside = &text[OPEN.len()..text.len() - CLOSE.len()];
    String::from_utf8(STANDARD.decode(inside).ok()?).ok().map(Cow::Owned)
}

/// The one value of a header.
///
/// # Errors
/// -32020 if it is sent twice: intermediaries and we might read different ones.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, RpcError> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (first, None) => Ok(first),
        _ => Err(RpcError::header_mismatch(format!("{name} is sent more than once"))),
    }
}

/// Requires a header to be there and to carry `expected`.
pub(crate) fn must_equal(
    headers: &HeaderMap,
    name: &str,
    expected: &str,
    wrapped: bool,
) -> Result<(), RpcError> {
    let Some(value) = single(headers, name)? else {
        return Err(RpcError::header_mismatch(format!("the {name} header is required")));
    };
    let found = if wrapped { decode(value) } else { value.to_str().ok().map(Cow::Borrowed) };
    match found {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(RpcError::header_mismatch(format!(
            "{name} header value '{}' does not match body value '{}'",
            shorten(&found),
            shorten(expected)
        ))),
        None => Err(RpcError::header_mismatch(format!("{name} holds invalid characters or broken Base64"))),
    }
}

fn shorten(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(80) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// One annotated argument.
#[derive(Debug, Clone)]
struct Mirrored {
    header: HeaderName,
    /// Chain of `properties` keys from the root of the arguments.
    path: Vec<String>,
}

/// The arguments of one tool that are mirrored into headers. Made once per tool definition.
#[derive(Debug, Clone, Default)]
pub struct HeaderParams(Vec<Mirrored>);

impl HeaderParams {
    /// Reads the `x-mcp-header` annotations of an input schema and checks them against the specification's rules.
    ///
    /// # Errors
    /// [`Error::HeaderAnnotation`] if one breaks a rule; the whole tool is then invalid.
    pub fn of_schema(schema: &Raw) -> Result<HeaderParams, Error> {
        if !schema.as_str().contains("x-mcp-header") {
            return Ok(HeaderParams::default());
        }
        let schema: Value = schema
            .read()
            .map_err(|_| annotation("", "the schema is too deep or holds numbers out of range"))?;
        let mut found = HeaderParams::default();
        walk(&schema, Some(Vec::new()), &mut found.0)?;
        Ok(found)
    }

    /// Whether nothing is mirrored.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Server side: every annotated argument that has a value needs its header with the same value; one without a
    /// value, or `null`, must have none. Numbers are compared by value (`42.0` is `42`). Values of the wrong kind
    /// (arrays, objects) are left to schema validation.
    ///
    /// # Errors
    /// -32020.
    pub fn check(&self, headers: &HeaderMap, arguments: Option<&RawObject>) -> Result<(), RpcError> {
        for mirrored in &self.0 {
            let name = mirrored.header.as_str();
            let sent = single(headers, name)?;
            let value = at_path(arguments, &mirrored.path);
            let (sent, value) = match (sent, value) {
                (None, None) => continue,
                (Some(sent), Some(value)) => (sent, value),
                (None, Some(value)) if text_of(&value).is_none() => continue,
                (None, Some(_)) => {
                    return Err(RpcError::header_mismatch(format!(
                        "the {name} header is required, since argument '{}' has a value; list tools again",
                        mirrored.path.join(".")
                    )));
                }
                (Some(_), None) => {
                    return Err(RpcError::header_mismatch(format!(
                        "{name} is sent, but argument '{}' has no value",
                        mirrored.path.join(".")
                    )));
                }
            };
            let Some(expected) = text_of(&value) else { continue };
            let found = decode(sent).ok_or_else(|| {
                RpcError::header_mismatch(format!("{name} holds invalid characters or broken Base64"))
            })?;
            let numeric = !value.is_string() && value.as_bool().is_none();
            let equal = found == expected
                || numeric && decimal(&found).is_some_and(|d| Some(d) == decimal(&expected));
            if !equal {
                return Err(RpcError::header_mismatch(format!(
                    "{name} does not match argument '{}'",
                    mirrored.path.join(".")
                )));
            }
        }
        Ok(())
    }

    /// Client side: the headers that go with these arguments.
    pub fn headers(&self, arguments: Option<&RawObject>) -> Vec<(HeaderName, HeaderValue)> {
        self.0
            .iter()
            .filter_map(|mirrored| {
                let value = at_path(arguments, &mirrored.path)?;
                let text = encode(&text_of(&value)?);
                Some((mirrored.header.clone(), HeaderValue::from_str(&text).ok()?))
            })
            .collect()
    }
}

fn annotation(path: &str, why: &'static str) -> Error {
    Error::HeaderAnnotation { path: if path.is_empty() { "the root".into() } else { path.into() }, why }
}

/// `path` is the chain of `properties` keys, or `None` once the chain was left.
fn walk(schema: &Value, path: Option<Vec<String>>, found: &mut Vec<Mirrored>) -> Result<(), Error> {
    let Value::Object(members) = schema else { return Ok(()) };
    if let Some(mark) = members.get("x-mcp-header") {
        let Some(path) = path.clone().filter(|p| !p.is_empty()) else {
            return Err(annotation(
                "a subschema",
                "only properties reached through `properties` alone may have it",
            ));
        };
        let shown = path.join(".");
        let name = mark.as_str().ok_or_else(|| annotation(&shown, "it must be a string"))?;
        let header = format!("{}{name}", header::PARAM_PREFIX);
        let header = HeaderName::from_bytes(header.as_bytes())
            .ok()
            .filter(|_| !name.is_empty())
            .ok_or_else(|| annotation(&shown, "it must be a non-empty HTTP token"))?;
        let is_primitive = |t: &Value| matches!(t.as_str(), Some("string" | "integer" | "boolean"));
        let primitive = match members.get("type") {
            Some(Value::Array(types)) => {
                types.iter().any(is_primitive) && types.iter().all(|t| is_primitive(t) || t == "null")
            }
            Some(one) => is_primitive(one),
            None => false,
        };
        if !primitive {
            return Err(annotation(&shown, "the type must be string, integer or boolean"));
        }
        if found.iter().any(|other| other.header == header) {
            return Err(annotation(&shown, "another property has the same name (case does not count)"));
        }
        found.push(Mirrored { header, path });
    }
    for (key, value) in members {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, sub) in properties {
                    let path = path.clone().map(|mut p| {
                        p.push(name.clone());
                        p
                    });
                    walk(sub, path, found)?;
                }
            }
            ("$defs" | "definitions" | "patternProperties" | "dependentSchemas", Value::Object(subs)) => {
                for sub in subs.values() {
                    walk(sub, None, found)?;
                }
            }
            ("enum" | "const" | "default" | "examples", _) => {}
            (_, Value::Array(subs)) => {
                for sub in subs {
                    walk(sub, None, found)?;
                }
            }
            (_, sub) => walk(sub, None, found)?,
        }
    }
    Ok(())
}

/// The value at a path; `null` counts as none.
fn at_path(arguments: Option<&RawObject>, path: &[String]) -> Option<Raw> {
    let (first, rest) = path.split_first()?;
    let mut value = arguments?.get(first)?;
    for key in rest {
        value = value.object()?.get(key)?;
    }
    Some(value).filter(|v| !v.is_null())
}

/// The string form of a string, number or boolean (spec: "Type conversion").
fn text_of(value: &Raw) -> Option<String> {
    match value.bytes().first()? {
        b'"' => value.as_string().map(Cow::into_owned),
        b'{' | b'[' | b'n' => None,
        b't' | b'f' => Some(value.to_string()),
        _ => Some(integral(value.as_str()).unwrap_or_else(|| value.to_string())),
    }
}

/// Decimal digits of a number that is an integer in value, such as `42.0` or `4.2e1`, within reason.
fn integral(text: &str) -> Option<String> {
    let (negative, digits, exponent) = decimal(text)?;
    if !(0..=30).contains(&exponent) {
        return None;
    }
    let zeros = "0".repeat(exponent as usize);
    let sign = if negative { "-" } else { "" };
    Some(if digits.is_empty() { "0".into() } else { format!("{sign}{digits}{zeros}") })
}

/// The exact value of a JSON number: sign, significant digits without zeros at either end, power of ten.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let all = format!("{whole}{fraction}");
    let digits = all.trim_end_matches('0');
    let power = i64::from(exponent) - fraction.len() as i64 + (all.len() - digits.len()) as i64;
    let digits = digits.trim_start_matches('0').to_owned();
    if digits.is_empty() { Some((false, digits, 0)) } else { Some((negative, digits, power)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::json::Limits;

    fn header(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).unwrap()
    }

    #[test]
    fn the_specification_s_encoding_examples() {
        for (value, carried) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("", ""),
            ("a b", "a b"),
            ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ] {
            assert_eq!(encode(value), carried);
            assert_eq!(decode(&header(carried)).unwrap(), value);
        }
        assert!(decode(&header("=?base64?SGVsbG8?=")).is_none(), "padding is required");
        assert!(decode(&header("=?base64?SGVs!!!bG8=?=")).is_none());
        assert!(decode(&HeaderValue::from_bytes(b"\xe9").unwrap()).is_none());
    }

    #[test]
    fn annotations_are_checked_when_the_tool_is_defined() {
        let read =
            |text: &'static str| HeaderParams::of_schema(&Raw::parse(text, &Limits::default()).unwrap());
        let good = r#"{"properties":{"a":{"properties":{"b":{"type":"integer","x-mcp-header":"B"}}},
            "x-mcp-header":{"type":"string"},"c":{"default":{"x-mcp-header":1}}}}"#;
        assert_eq!(read(good).unwrap().0[0].path, ["a", "b"]);
        for bad in [
            r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"a:"}}}"#,
            r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
            r#"{"properties":{"a":{"items":{"type":"string","x-mcp-header":"A"}}}}"#,
            r#"{"allOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#,
            r#"{"$defs":{"a":{"type":"string","x-mcp-header":"A"}}}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn mirrored_arguments_are_compared_by_value() {
        let schema = r#"{"properties":{"s":{"type":"string","x-mcp-header":"S"},"n":{"type":"integer","x-mcp-header":"N"}}}"#;
        let params = HeaderParams::of_schema(&Raw::parse(schema, &Limits::default()).unwrap()).unwrap();
        let check = |args: &'static str, sent: &[(&'static str, &str)]| {
            let args = RawObject::parse(args, &Limits::default()).unwrap();
            let headers = sent.iter().map(|(n, v)| (HeaderName::from_static(n), header(v))).collect();
            params.check(&headers, Some(&args)).map_err(|e| e.code)
        };
        let (s, n) = ("mcp-param-s", "mcp-param-n");
        assert_eq!(check(r#"{"s":"Hello"}"#, &[(s, "=?base64?SGVsbG8=?=")]), Ok(()));
        assert_eq!(check(r#"{"s":"SGVsbG8="}"#, &[(s, "SGVsbG8=")]), Ok(()));
        assert_eq!(check(r#"{"s":"Hello"}"#, &[(s, "=?base64?SGVsbG8?=")]), Err(-32020));
        assert_eq!(check(r#"{"s":"x"}"#, &[]), Err(-32020));
        assert_eq!(check(r#"{}"#, &[(s, "x")]), Err(-32020));
        assert_eq!(check(r#"{"s":null}"#, &[]), Ok(()));
        assert_eq!(check(r#"{"n":42}"#, &[(n, "42.0")]), Ok(()));
        assert_eq!(check(r#"{"n":9007199254740993}"#, &[(n, "9007199254740992")]), Err(-32020));
        assert_eq!(check(r#"{"n":4.2e1}"#, &[(n, "42")]), Ok(()));
        assert_eq!(check(r#"{"n":[]}"#, &[]), Ok(()), "left to schema validation");
        let args = RawObject::parse(r#"{"s":" é","n":-70e-1}"#, &Limits::default()).unwrap();
        let sent: Vec<_> = params.headers(Some(&args)).into_iter().map(|(_, v)| v).collect();
        assert_eq!(sent, [header("=?base64?IMOp?="), header("-7")]);
    }
}
