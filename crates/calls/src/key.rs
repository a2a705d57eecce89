//! The carriers of an idempotency key. All that are present must be equal.
//!
//! Programs use `params.idempotencyKey`, `_meta["dev.counterfoil/idempotency-key"]` or the HTTP header
//! `Idempotency-Key` (an RFC 8941 string, or bare); a model uses the argument `idempotency_key`.

use crate::answer::bad_arguments;
use crate::argument::KEY_ARGUMENT;
use http::HeaderMap;
use ledger::{CallError, CallerKey, Carrier, Key};
use std::borrow::Cow;

/// The key's place in `_meta`.
pub const META_KEY: &str = "dev.counterfoil/idempotency-key";
/// The HTTP header.
pub const HEADER: &str = "idempotency-key";

/// What a member of JSON carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Carried<'a> {
    /// It is not there.
    #[default]
    Absent,
    /// A string.
    Text(Cow<'a, str>),
    /// Anything else.
    Other,
}

/// The places of one call in which its key may be.
pub struct Carriers<'a> {
    /// `params.idempotencyKey`.
    pub params: Carried<'a>,
    /// [`META_KEY`] in `_meta`.
    pub meta: Carried<'a>,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// [`KEY_ARGUMENT`], where this server added it to the tool's schema; [`Carried::Absent`] where it is the tool's own.
    pub argument: Carried<'a>,
}

/// A key that can't be taken: told to whoever can act on it. Nothing ran.
#[derive(Debug)]
pub enum Trouble {
    /// A program's: the request is malformed, in these words.
    Program(String),
    /// A model's: a tool error.
    Model(Box<CallError>),
}

/// Finds the call's key.
///
/// # Errors
/// [`Trouble`]: a carrier is malformed, or two disagree. Nothing ran.
pub fn find(carriers: Carriers<'_>) -> Result<Option<CallerKey>, Trouble> {
    let program = |what: &str, why: &dyn std::fmt::Display| Trouble::Program(format!("{what}: {why}"));
    let mut found: Option<CallerKey> = None;
    let mut take = |what: &str, text: &str| -> Result<(), Trouble> {
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
    for (what, carried) in [("params.idempotencyKey", carriers.params), (META_KEY, carriers.meta)] {
        match carried {
            Carried::Absent => {}
            Carried::Text(text) => take(what, &text)?,
            Carried::Other => return Err(program(what, &"must be a string")),
        }
    }
    for v in carriers.headers.get_all(HEADER) {
        let text = v.to_str().ok().and_then(header_value).ok_or_else(|| {
            program("Idempotency-Key", &"must be one RFC 8941 string, or a bare value of visible ASCII")
        })?;
        take("Idempotency-Key", &text)?;
    }
    let model = |why: String| Trouble::Model(Box::new(bad_arguments(&why)));
    let text = match carriers.argument {
        Carried::Absent => return Ok(found),
        Carried::Text(text) => text,
        Carried::Other => {
            return Err(model(format!(
                "{KEY_ARGUMENT} must be a string; leave it out unless an earlier answer gave you a value"
            )));
        }
    };
    let key = Key::new(&text).map_err(|e| model(format!("{KEY_ARGUMENT}: {e}")))?;
    match &found {
        Some(k) if k.key != key => Err(model(format!(
            "{KEY_ARGUMENT} differs from the idempotency key that came with the request; leave it out"
        ))),
        Some(_) => Ok(found),
        None => Ok(Some(CallerKey { key, carrier: Carrier::Argument })),
    }
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
    use http::HeaderValue;

    #[test]
    fn header_values() {
        assert_eq!(header_value("abc").as_deref(), Some("abc"));
        assert_eq!(header_value("  \"a\\\"b\\\\\"  ").as_deref(), Some("a\"b\\"));
        for bad in ["\"abc", "abc\"", "\"a\"b\"", "\"a\\x\"", "\"a\\\""] {
            assert_eq!(header_value(bad), None, "{bad}");
        }
    }

    fn carriers<'a>(headers: &'a HeaderMap, meta: &'a str, argument: &'a str) -> Carriers<'a> {
        let text = |s: &'a str| if s.is_empty() { Carried::Absent } else { Carried::Text(s.into()) };
        Carriers { params: Carried::Absent, meta: text(meta), headers, argument: text(argument) }
    }

    #[test]
    fn all_that_are_present_must_be_equal_and_a_program_s_counts_as_its_own() {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_static("\"k-1\""));
        let none = HeaderMap::new();
        assert!(find(carriers(&none, "", "")).unwrap().is_none());
        let program = find(carriers(&headers, "k-1", "k-1")).unwrap().unwrap();
        assert_eq!((program.key.as_str(), program.carrier), ("k-1", Carrier::Program));
        let model = find(carriers(&none, "", "k-1")).unwrap().unwrap();
        assert_eq!(model.carrier, Carrier::Argument);
        assert!(matches!(find(carriers(&headers, "k-2", "")), Err(Trouble::Program(_))));
        assert!(matches!(find(carriers(&headers, "", "k-2")), Err(Trouble::Model(_))));
        let odd = Carriers { argument: Carried::Other, ..carriers(&none, "", "") };
        assert!(matches!(find(odd), Err(Trouble::Model(_))));
        let odd = Carriers { meta: Carried::Other, ..carriers(&none, "", "") };
        assert!(matches!(find(odd), Err(Trouble::Program(_))));
    }
}
