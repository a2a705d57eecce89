//! Canonical JSON and the fingerprint.
//!
//! The canonical form is RFC 8785 (member order by UTF-16 code units, no white space, minimal escapes) except
//! that numbers keep their exact decimal value: 1.0 = 1, -0 = 0, 2^53+1 differs from 2^53. Duplicate members
//! and lone surrogates are refused; nothing is normalised by Unicode. This is version 1 of the algorithm, and
//! the version is stored with every fingerprint.

use crate::effect::{hex, unhex32};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The version of the algorithm in this module.
pub const VERSION: u8 = 1;
/// The deepest nesting that is read.
pub const MAX_DEPTH: usize = 64;
/// Numbers with a larger exponent than this (as written) are refused: their decimal form has no bound.
const MAX_EXPONENT: i64 = 100_000;

/// Identifies what a call asks: SHA-256 over tool and canonical arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Which algorithm made it.
    pub version: u8,
    /// The hash.
    pub digest: [u8; 32],
}

impl Fingerprint {
    /// The fingerprint of a call of `tool` (its canonical id) with these arguments.
    #[must_use]
    pub fn of(tool: &str, arguments: &Canonical) -> Fingerprint {
        Fingerprint {
            version: VERSION,
            digest: crate::words::digest(
                "counterfoil/fingerprint/1",
                &[tool.as_bytes(), arguments.0.as_bytes()],
            ),
        }
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{}:{}", self.version, hex(&self.digest)))
    }
}
impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = String::deserialize(d)?;
        s.split_once(':')
            .and_then(|(v, h)| Some(Fingerprint { version: v.parse().ok()?, digest: unhex32(h)? }))
            .ok_or_else(|| serde::de::Error::custom("a fingerprint is `version:64 hexadecimal digits`"))
    }
}

/// A JSON text in canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Canonical(String);

impl Canonical {
    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text has no canonical form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// Not JSON.
    #[error("not valid JSON at byte {0}")]
    Syntax(usize),
    /// Nested too deeply.
    #[error("nested more than {MAX_DEPTH} levels deep")]
    Depth,
    /// One object names a member twice.
    #[error("the member {0:?} occurs twice in one object")]
    Duplicate(String),
    /// A string holds half a character.
    #[error("a string holds a lone surrogate (an escape \\uD800 to \\uDFFF without its other half)")]
    Surrogate,
    /// A number whose decimal form has no bound.
    #[error("a number's exponent is beyond {MAX_EXPONENT}")]
    Exponent,
    /// An object was expected at the root.
    #[error("an object was expected")]
    NotAnObject,
}

/// Canonicalises any JSON value.
///
/// # Errors
/// [`CanonicalError`] says what is wrong with the text.
pub fn canonicalise(text: &str) -> Result<Canonical, CanonicalError> {
    let mut r = Reader { b: text.as_bytes(), text, at: 0 };
    let mut out = String::with_capacity(text.len());
    r.space();
    r.value(&mut out, 0)?;
    r.space();
    if r.at == r.b.len() { Ok(Canonical(out)) } else { Err(CanonicalError::Syntax(r.at)) }
}

/// Canonicalises a call's arguments: an object, without the member `leave_out` at its root. Absent arguments
/// (`None`) are `{}`.
///
/// # Errors
/// [`CanonicalError`] says what is wrong with the text.
pub fn canonicalise_arguments(
    text: Option<&str>,
    leave_out: Option<&str>,
) -> Result<Canonical, CanonicalError> {
    let Some(text) = text else { return Ok(Canonical("{}".into())) };
    let mut r = Reader { b: text.as_bytes(), text, at: 0 };
    r.space();
    if r.b.get(r.at) != Some(&b'{') {
        // Tell a wrong type from a broken text.
        canonicalise(text)?;
        return Err(CanonicalError::NotAnObject);
    }
    let mut out = String::with_capacity(text.len());
    r.object(&mut out, 0, leave_out)?;
    r.space();
    if r.at == r.b.len() { Ok(Canonical(out)) } else { Err(CanonicalError::Syntax(r.at)) }
}

struct Reader<'a> {
    b: &'a [u8],
    text: &'a str,
    at: usize,
}

type Res<T> = Result<T, CanonicalError>;

impl Reader<'_> {
    fn space(&mut self) {
        while matches!(self.b.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }
    fn syntax<T>(&self) -> Res<T> {
        Err(CanonicalError::Syntax(self.at))
    }
    fn expect(&mut self, c: u8) -> Res<()> {
        if self.b.get(self.at) == Some(&c) {
            self.at += 1;
            Ok(())
        } else {
            self.syntax()
        }
    }
    fn word(&mut self, w: &str, out: &mut String) -> Res<()> {
        if self.b[self.at..].starts_with(w.as_bytes()) {
            self.at += w.len();
            out.push_str(w);
            Ok(())
        } else {
            self.syntax()
        }
    }
    fn value(&mut self, out: &mut String, depth: usize) -> Res<()> {
        match self.b.get(self.at) {
            Some(b'{') => self.object(out, depth, None),
            Some(b'[') => self.array(out, depth),
            Some(b'"') => {
                let s = self.string()?;
                write_string(&s, out);
                Ok(())
            }
            Some(b't') => self.word("true", out),
            Some(b'f') => self.word("false", out),
            Some(b'n') => self.word("null", out),
            Some(b'-' | b'0'..=b'9') => self.number(out),
            _ => self.syntax(),
        }
    }
    fn array(&mut self, out: &mut String, depth: usize) -> Res<()> {
        if depth >= MAX_DEPTH {
            return Err(CanonicalError::Depth);
        }
        self.expect(b'[')?;
        out.push('[');
        self.space();
        if self.b.get(self.at) == Some(&b']') {
            self.at += 1;
            out.push(']');
            return Ok(());
        }
        loop {
            self.space();
            self.value(out, depth + 1)?;
            self.space();
            match self.b.get(self.at) {
                Some(b',') => {
                    self.at += 1;
                    out.push(',');
                }
                Some(b']') => {
                    self.at += 1;
                    out.push(']');
                    return Ok(());
                }
                _ => return self.syntax(),
            }
        }
    }
    fn object(&mut self, out: &mut String, depth: usize, leave_out: Option<&str>) -> Res<()> {
        if depth >= MAX_DEPTH {
            return Err(CanonicalError::Depth);
        }
        self.expect(b'{')?;
        let mut members: Vec<(String, String)> = Vec::new();
        self.space();
        if self.b.get(self.at) == Some(&b'}') {
            self.at += 1;
        } else {
            loop {
                self.space();
                let name = self.string()?;
                self.space();
                self.expect(b':')?;
                self.space();
                let mut v = String::new();
                self.value(&mut v, depth + 1)?;
                members.push((name, v));
                self.space();
                match self.b.get(self.at) {
                    Some(b',') => self.at += 1,
                    Some(b'}') => {
                        self.at += 1;
                        break;
                    }
                    _ => return self.syntax(),
                }
            }
        }
        // RFC 8785 section 3.2.3: by UTF-16 code units. For plain ASCII that is byte order.
        members.sort_by(|a, b| a.0.encode_utf16().cmp(b.0.encode_utf16()));
        if let Some(w) = members.windows(2).find(|w| w[0].0 == w[1].0) {
            return Err(CanonicalError::Duplicate(w[0].0.clone()));
        }
        out.push('{');
        let mut first = true;
        for (name, v) in members.iter().filter(|(n, _)| leave_out != Some(n.as_str())) {
            if !first {
                out.push(',');
            }
            first = false;
            write_string(name, out);
            out.push(':');
            out.push_str(v);
        }
        out.push('}');
        Ok(())
    }
    fn string(&mut self) -> Res<String> {
        self.expect(b'"')?;
        let mut s = String::new();
        loop {
            let from = self.at;
            while self.b.get(self.at).is_some_and(|c| *c != b'"' && *c != b'\\' && *c >= 0x20) {
                self.at += 1;
            }
            s.push_str(&self.text[from..self.at]);
            match self.b.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(s);
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape(&mut s)?;
                }
                _ => return self.syntax(),
            }
        }
    }
    fn escape(&mut self, s: &mut String) -> Res<()> {
        let c = *self.b.get(self.at).ok_or(CanonicalError::Syntax(self.at))?;
        self.at += 1;
        s.push(match c {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.hex4()?;
                let code = match high {
                    0xD800..=0xDBFF => {
                        if !self.b[self.at..].starts_with(b"\\u") {
                            return Err(CanonicalError::Surrogate);
                        }
                        self.at += 2;
                        let low = self.hex4()?;
                        if !(0xDC00..=0xDFFF).contains(&low) {
                            return Err(CanonicalError::Surrogate);
                        }
                        0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
                    }
                    0xDC00..=0xDFFF => return Err(CanonicalError::Surrogate),
                    c => c,
                };
                char::from_u32(code).ok_or(CanonicalError::Surrogate)?
            }
            _ => {
                self.at -= 1;
                return self.syntax();
            }
        });
        Ok(())
    }
    fn hex4(&mut self) -> Res<u32> {
        let d = self.b.get(self.at..self.at + 4).ok_or(CanonicalError::Syntax(self.at))?;
        let mut v = 0;
        for c in d {
            v = v * 16 + char::from(*c).to_digit(16).ok_or(CanonicalError::Syntax(self.at))?;
        }
        self.at += 4;
        Ok(v)
    }
    fn digits(&mut self) -> Res<std::ops::Range<usize>> {
        let from = self.at;
        while self.b.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == from { self.syntax() } else { Ok(from..self.at) }
    }
    fn number(&mut self, out: &mut String) -> Res<()> {
        let negative = self.b[self.at] == b'-';
        if negative {
            self.at += 1;
        }
        let int = self.digits()?;
        if int.len() > 1 && self.b[int.start] == b'0' {
            self.at = int.start;
            return self.syntax();
        }
        let mut frac = 0..0;
        if self.b.get(self.at) == Some(&b'.') {
            self.at += 1;
            frac = self.digits()?;
        }
        let mut exponent: i64 = 0;
        if matches!(self.b.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            let minus = match self.b.get(self.at) {
                Some(b'-') => true,
                Some(b'+') => false,
                _ => {
                    self.at -= 1;
                    false
                }
            };
            self.at += 1;
            let d = self.digits()?;
            let text = self.text[d].trim_start_matches('0');
            let e: i64 =
                if text.is_empty() { 0 } else { text.parse().map_err(|_| CanonicalError::Exponent)? };
            if e > MAX_EXPONENT {
                return Err(CanonicalError::Exponent);
            }
            exponent = if minus { -e } else { e };
        }
        // digits × 10^scale, without leading or trailing zeros: one spelling per value.
        let digits = [&self.text[int], &self.text[frac.clone()]].concat();
        let scale = exponent - i64::try_from(frac.len()).unwrap_or(0);
        let significant = digits.trim_start_matches('0');
        let trimmed = significant.trim_end_matches('0');
        if trimmed.is_empty() {
            out.push('0');
            return Ok(());
        }
        let scale = scale + i64::try_from(significant.len() - trimmed.len()).unwrap_or(0);
        if negative {
            out.push('-');
        }
        if (0..=20).contains(&scale) {
            out.push_str(trimmed);
            out.extend(std::iter::repeat_n('0', usize::try_from(scale).unwrap_or(0)));
        } else {
            // Everything else in one unambiguous spelling.
            let _ = write!(out, "{trimmed}e{scale}");
        }
        Ok(())
    }
}

/// RFC 8785 section 3.2.2.2.
fn write_string(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn c(s: &str) -> String {
        canonicalise(s).unwrap().0
    }

    #[test]
    fn numbers_keep_their_exact_value() {
        assert_eq!(c("1.0"), c("1"));
        assert_eq!(c("-0"), c("0"));
        assert_eq!(c("-0.0e5"), "0");
        assert_eq!(c("100"), c("1e2"));
        assert_eq!(c("0.5"), c("5e-1"));
        assert_eq!(c("10.50"), c("10.5"));
        assert_ne!(c("9007199254740993"), c("9007199254740992"));
        assert_eq!(c("1e21"), c("1000000000000000000000"));
        assert_ne!(c("1e400"), c("1e401"));
        assert_eq!(canonicalise("1e999999999999999999999"), Err(CanonicalError::Exponent));
        assert!(canonicalise("01").is_err());
        assert!(canonicalise("1.").is_err());
        assert!(canonicalise("+1").is_err());
        assert!(canonicalise("1e").is_err());
        assert!(canonicalise("-").is_err());
    }

    #[test]
    fn members_are_sorted_and_unique() {
        assert_eq!(c(r#" { "b" : 1 , "a" : [ true , null ] } "#), r#"{"a":[true,null],"b":1}"#);
        assert_eq!(canonicalise(r#"{"a":1,"\u0061":2}"#), Err(CanonicalError::Duplicate("a".into())));
        // U+10000 sorts before U+FFFF by UTF-16 code units.
        assert_eq!(c("{\"\u{ffff}\":1,\"\u{10000}\":2}"), "{\"\u{10000}\":2,\"\u{ffff}\":1}");
    }

    #[test]
    fn strings_have_one_spelling() {
        assert_eq!(c(r#""\u0041\/\u00e9\ud83d\ude00\u0007""#), "\"A/é😀\\u0007\"");
        assert_eq!(canonicalise(r#""\ud83d""#), Err(CanonicalError::Surrogate));
        assert_eq!(canonicalise(r#""\ude00""#), Err(CanonicalError::Surrogate));
        assert_eq!(canonicalise("\"a\nb\""), Err(CanonicalError::Syntax(2)));
        // No normalisation: é composed and decomposed differ.
        assert_ne!(c("\"\u{e9}\""), c("\"e\u{301}\""));
    }

    #[test]
    fn arguments_default_to_an_empty_object_and_lose_the_key() {
        let none = canonicalise_arguments(None, None).unwrap();
        assert_eq!(none, canonicalise_arguments(Some("{}"), None).unwrap());
        let a = canonicalise_arguments(Some(r#"{"x":1,"idempotency_key":"k"}"#), Some("idempotency_key"))
            .unwrap();
        assert_eq!(a.as_str(), r#"{"x":1}"#);
        assert_eq!(canonicalise_arguments(Some("[1]"), None), Err(CanonicalError::NotAnObject));
        // Only at the root.
        let nested =
            canonicalise_arguments(Some(r#"{"o":{"idempotency_key":"k"}}"#), Some("idempotency_key"))
                .unwrap();
        assert_eq!(nested.as_str(), r#"{"o":{"idempotency_key":"k"}}"#);
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(canonicalise(&deep), Err(CanonicalError::Depth));
        let ok = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert!(canonicalise(&ok).is_ok());
    }
}
