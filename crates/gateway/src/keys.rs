//! The carriers of an idempotency key. All that are present must be equal.
//!
//! Programs use `params.idempotencyKey`, `_meta["dev.counterfoil/idempotency-key"]` or the HTTP header
//! `Idempotency-Key` (an RFC 8941 string, or bare); a model uses the argument `idempotency_key`. A tool may
//! derive one from arguments that already name the intent (`key_from`); an explicit key overrides it.

use crate::answer;
use crate::arguments::KEY_ARGUMENT;
use http::HeaderMap;
use ledger::canonical::canonicalise;
use ledger::{CallError, CallerKey, Carrier, Key};
use mcp::error::RpcError;
use mcp::json::RawObject;
use mcp::meta::RequestMeta;

/// The key's place in `_meta`.
pub const META_KEY: &str = "dev.counterfoil/idempotency-key";
/// The HTTP header.
pub const HEADER: &str = "idempotency-key";

/// A key that can't be taken: told to whoever can act on it.
#[derive(Debug)]
pub enum KeyTrouble {
    /// A program's: the request is malformed.
    Program(Box<RpcError>),
    /// A model's: a tool error.
    Model(Box<CallError>),
}

/// Finds the call's key.
///
/// # Errors
/// [`KeyTrouble`]: a carrier is malformed, or two disagree. Nothing ran.
pub fn find(
    headers: &HeaderMap,
    meta: &RequestMeta,
    params: &RawObject,
    arguments: Option<&RawObject>,
    argument_is_ours: bool,
    key_from: &[String],
) -> Result<Option<CallerKey>, KeyTrouble> {
    let program = |what: &str, why: &dyn std::fmt::Display| {
        KeyTrouble::Program(Box::new(RpcError::malformed(format!("{what}: {why}"))))
    };
    let mut found: Option<CallerKey> = None;
    let mut take = |what: &str, text: &str| -> Result<(), KeyTrouble> {
        let key = Key::new(text).map_err(|e| program(what, &e))?;
        match &found {
            Some(k) if k.key != key => Err(program(
                what,
                &"two carriers of the idempotency key disagree; send one, or the same in all",
            )),
            Some(_) => Ok(()),
            None => {
                found = Some(CallerKey { key, carrier: Carrier::Program });
                Ok(())
            }
        }
    };
    if let Some(v) = params.get("idempotencyKey") {
        let text = v.as_string().ok_or_else(|| program("params.idempotencyKey", &"must be a string"))?;
        take("params.idempotencyKey", &text)?;
    }
    if let Some(v) = meta.get(META_KEY) {
        let text = v.as_string().ok_or_else(|| program(META_KEY, &"must be a string"))?;
        take(META_KEY, &text)?;
    }
    for v in headers.get_all(HEADER) {
        let text = v.to_str().ok().and_then(header_value).ok_or_else(|| {
            program("Idempotency-Key", &"must be one RFC 8941 string, or a bare value of visible ASCII")
        })?;
        take("Idempotency-Key", &text)?;
    }
    if argument_is_ours && let Some(v) = arguments.and_then(|a| a.get(KEY_ARGUMENT)) {
        let model = |why: String| KeyTrouble::Model(Box::new(answer::bad_arguments(&why)));
        let text = v.as_string().ok_or_else(|| {
            model(format!(
                "{KEY_ARGUMENT} must be a string; leave it out unless an earlier answer gave you a value"
            ))
        })?;
        let key = Key::new(&text).map_err(|e| model(format!("{KEY_ARGUMENT}: {e}")))?;
        match &found {
            Some(k) if k.key != key => {
                return Err(model(format!(
                    "{KEY_ARGUMENT} differs from the idempotency key that came with the request; leave it out"
                )));
            }
            Some(_) => {}
            None => found = Some(CallerKey { key, carrier: Carrier::Argument }),
        }
    }
    if found.is_none() && !key_from.is_empty() {
        found = derived(arguments, key_from);
    }
    Ok(found)
}

/// A key from the arguments that name the intent; none if one of them is absent or null.
fn derived(arguments: Option<&RawObject>, names: &[String]) -> Option<CallerKey> {
    use sha2::{Digest, Sha256};
    let mut h = Sha256::new();
    for name in names {
        let v = arguments?.get(name).filter(|v| !v.is_null())?;
        let canonical = canonicalise(v.as_str()).ok()?;
        for part in [name.as_bytes(), canonical.as_str().as_bytes()] {
            h.update((part.len() as u64).to_be_bytes());
            h.update(part);
        }
    }
    let hex = ledger::effect::hex(&h.finalize());
    Key::new(&format!("from-{hex}")).ok().map(|key| CallerKey { key, carrier: Carrier::Program })
}

/// RFC 8941 section 3.3.3, or a bare value as most clients send it.
fn header_value(text: &str) -> Option<String> {
    let text = text.trim_matches([' ', '\t']);
    let Some(quoted) = text.strip_prefix('"') else { return (!text.contains('"')).then(|| text.to_owned()) };
    let inner = quoted.strip_suffix('"')?;
    let mut out = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            '"' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn header_values() {
        assert_eq!(header_value("abc").as_deref(), Some("abc"));
        assert_eq!(header_value("  \"a\\\"b\\\\\"  ").as_deref(), Some("a\"b\\"));
        for bad in ["\"abc", "abc\"", "\"a\"b\"", "\"a\\x\"", "\"a\\\""] {
            assert_eq!(header_value(bad), None, "{bad}");
        }
    }

    #[test]
    fn keys_are_derived_from_values_not_spelling() {
        let a = |s: &str| mcp::json::RawObject::parse(s.to_owned(), &mcp::json::Limits::default()).unwrap();
        let names = vec!["order_id".to_owned()];
        let one = derived(Some(&a(r#"{"order_id":1.0,"x":1}"#)), &names).unwrap();
        let same = derived(Some(&a(r#"{"order_id":1,"x":2}"#)), &names).unwrap();
        let other = derived(Some(&a(r#"{"order_id":2}"#)), &names).unwrap();
        assert_eq!(one, same);
        assert_ne!(one, other);
        assert!(derived(Some(&a("{}")), &names).is_none());
        assert!(derived(Some(&a(r#"{"order_id":null}"#)), &names).is_none());
    }
}
