//! JSON as text: checked once, sliced without copies, spliced without touching a foreign byte.
//!
//! Promises: a [`Raw`] is one valid JSON value within its limits; a slice of it shares its buffer; members that this
//! crate doesn't interpret keep their bytes. What is refused, and why: text that isn't UTF-8, nesting past the limit,
//! two members of one name (readers would disagree which counts), lone surrogates (no Unicode text holds them).
mod scan;

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde_json::value::RawValue;

pub(crate) use scan::Member;

/// Nesting that a text of trusted origin may have when its members are located; it bounds the stack.
const DEEPEST: usize = 512;

/// What a checked text may be.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Deepest nesting of arrays and objects; at most 512 is sensible, the check uses the stack.
    pub depth: usize,
    /// Whether two members of one name in an object are refused.
    pub unique_members: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { depth: 64, unique_members: true }
    }
}

/// Why a text was refused, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{flaw} (at byte {offset})")]
pub struct JsonError {
    /// What is wrong.
    pub flaw: Flaw,
    /// Offset in bytes from the start of the text.
    pub offset: usize,
}

/// What can be wrong with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Flaw {
    #[error("the text is not valid UTF-8")]
    NotUtf8,
    #[error("this is not JSON")]
    Syntax,
    #[error("the JSON ends too early")]
    Truncated,
    #[error("something follows the JSON value")]
    Trailing,
    #[error("a control character inside a string must be escaped")]
    ControlInString,
    #[error("a \\u escape names half a surrogate pair")]
    LoneSurrogate,
    #[error("an object has two members of this name")]
    Duplicate,
    #[error("the JSON is nested deeper than {0} levels")]
    TooDeep(usize),
    #[error("the text is too long")]
    TooLong,
    #[error("a JSON object is needed here")]
    NotObject,
}

/// The text of one valid JSON value. Cloning shares the buffer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Raw(Bytes);

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Raw {
    /// Checks a text and keeps its value, without the blanks around it.
    ///
    /// # Errors
    /// [`JsonError`] names the flaw and its offset.
    pub fn parse(text: impl Into<Bytes>, limits: &Limits) -> Result<Raw, JsonError> {
        let text = text.into();
        scan::scan(utf8(&text)?, limits, false)?;
        Ok(Raw(trim(&text)))
    }

    /// The JSON string holding `text`.
    pub fn string(text: &str) -> Raw {
        Raw(Bytes::from(quote(text)))
    }

    /// Any serializable value as JSON text; `None` if it can't be written as JSON.
    pub fn of(value: &impl serde::Serialize) -> Option<Raw> {
        serde_json::to_vec(value).ok().map(|text| Raw(text.into()))
    }

    pub(crate) fn trusted(text: impl Into<Bytes>) -> Raw {
        Raw(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Always true by construction; an empty string would be a bug that shows at once.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The text's bytes, sharing the buffer.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The same in a buffer of its own, for what outlives the message that it came in.
    pub fn detached(&self) -> Raw {
        Raw(Bytes::copy_from_slice(&self.0))
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// Whether it is a string.
    pub fn is_string(&self) -> bool {
        self.0.first() == Some(&b'"')
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.0.first() == Some(&b'n')
    }

    /// Whether it is an integer as JSON writes one: no fraction, no exponent.
    pub fn is_integer(&self) -> bool {
        let digits = self.0.strip_prefix(b"-").unwrap_or(&self.0);
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    }

    /// The string's value, escapes resolved; `None` for other kinds.
    pub fn as_string(&self) -> Option<Cow<'_, str>> {
        as_string(self.as_str())
    }

    /// `true` or `false`; `None` for other kinds.
    pub fn as_bool(&self) -> Option<bool> {
        match &self.0[..] {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The members, if it is an object (and nested no deeper than 512 levels).
    pub fn object(&self) -> Option<RawObject> {
        if !self.is_object() {
            return None;
        }
        let limits = Limits { depth: DEEPEST, unique_members: false };
        let [members, ..] = scan::scan(self.as_str(), &limits, false).ok()?;
        Some(RawObject::located(self.0.clone(), members))
    }

    /// The same value without line breaks, to fit one SSE `data:` line. Only blanks between tokens can be line
    /// breaks (inside strings they are escaped), so each becomes one space; anything else keeps its bytes.
    pub fn single_line(&self) -> Raw {
        Raw(single_line(&self.0))
    }

    /// As `serde_json` holds it.
    pub fn to_raw_value(&self) -> Box<RawValue> {
        RawValue::from_string(self.as_str().to_owned()).unwrap_or_default()
    }

    /// Reads it into a type.
    ///
    /// # Errors
    /// As `serde_json::from_str`.
    pub fn read<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_str())
    }
}

impl serde::Serialize for Raw {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: &RawValue = serde_json::from_str(self.as_str()).map_err(serde::ser::Error::custom)?;
        value.serialize(serializer)
    }
}

impl From<Box<RawValue>> for Raw {
    fn from(value: Box<RawValue>) -> Raw {
        Raw(Bytes::from(Box::<str>::from(value).into_string()))
    }
}

/// A JSON object as text with its members located: ordered access without parsing values.
#[derive(Clone)]
pub struct RawObject {
    text: Bytes,
    span: (u32, u32),
    members: Vec<Member>,
}

impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl RawObject {
    /// Checks a text that must be an object.
    ///
    /// # Errors
    /// [`JsonError`] names the flaw and its offset.
    pub fn parse(text: impl Into<Bytes>, limits: &Limits) -> Result<RawObject, JsonError> {
        let text = text.into();
        let [mut members, ..] = scan::scan(utf8(&text)?, limits, false)?;
        let object = trim(&text);
        if object.first() != Some(&b'{') {
            return Err(JsonError { flaw: Flaw::NotObject, offset: 0 });
        }
        let blanks = (object.as_ptr() as usize - text.as_ptr() as usize) as u32;
        if blanks > 0 {
            for member in &mut members {
                member.shift(blanks);
            }
        }
        Ok(RawObject::located(object, members))
    }

    /// An object whose members are known.
    fn located(text: Bytes, members: Vec<Member>) -> RawObject {
        let span = (0, text.len() as u32);
        RawObject { text, span, members }
    }

    /// The empty object.
    pub fn empty() -> RawObject {
        RawObject { text: Bytes::from_static(b"{}"), span: (0, 2), members: Vec::new() }
    }

    fn slice(&self, span: (u32, u32)) -> Raw {
        Raw(self.text.slice(span.0 as usize..span.1 as usize))
    }

    /// The object's own text, borrowed.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[self.span.0 as usize..self.span.1 as usize]).unwrap_or_default()
    }

    /// The object's own text.
    pub fn raw(&self) -> Raw {
        self.slice(self.span)
    }

    fn find(&self, name: &str) -> Option<(u32, u32)> {
        self.members.iter().find(|m| m.is(&self.text, name)).map(|m| m.value)
    }

    /// The value of a member.
    pub fn get(&self, name: &str) -> Option<Raw> {
        self.find(name).map(|span| self.slice(span))
    }

    /// The text of a member's value, borrowed.
    pub fn text(&self, name: &str) -> Option<&str> {
        let (from, to) = self.find(name)?;
        // Always text by construction, as in [`Raw::as_str`].
        std::str::from_utf8(&self.text[from as usize..to as usize]).ok()
    }

    /// The value of a member that is a string, escapes resolved; `None` for other kinds.
    pub fn string(&self, name: &str) -> Option<Cow<'_, str>> {
        as_string(self.text(name)?)
    }

    /// Whether there is such a member.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The members in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'_, str>, Raw)> {
        self.members.iter().map(|m| (m.key(&self.text), self.slice(m.value)))
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The text with some members set: a member that exists keeps its place and gets the new value, others are
    /// appended at the end. No other byte changes. Values must be JSON text.
    pub fn with(&self, set: &[(&str, &str)]) -> Raw {
        let text = &self.text[..];
        let (from, to) = (self.span.0 as usize, self.span.1 as usize);
        let grow: usize = set.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        let mut out = Vec::with_capacity(to - from + grow);
        let mut at = from;
        let mut known = 0;
        for member in &self.members {
            if let Some((_, value)) = set.iter().find(|(name, _)| member.is(text, name)) {
                out.extend_from_slice(&text[at..member.value.0 as usize]);
                out.extend_from_slice(value.as_bytes());
                at = member.value.1 as usize;
                known += 1;
            }
        }
        out.extend_from_slice(&text[at..to - 1]);
        if known < set.len() {
            let mut comma = !self.members.is_empty();
            for (name, value) in set {
                if known > 0 && self.members.iter().any(|m| m.is(text, name)) {
                    continue;
                }
                if comma {
                    out.push(b',');
                }
                comma = true;
                quote_into(&mut out, name);
                out.push(b':');
                out.extend_from_slice(value.as_bytes());
            }
        }
        out.push(b'}');
        Raw(out.into())
    }

    /// The text with members of `_meta` set, as [`RawObject::with`] does, keeping the other members of `_meta`.
    /// A `_meta` that isn't an object is replaced.
    pub fn with_meta(&self, meta: &[(&str, &str)], also: &[(&str, &str)]) -> Raw {
        if meta.is_empty() {
            return self.with(also);
        }
        let inner = self.get("_meta").and_then(|m| m.object()).unwrap_or_else(RawObject::empty).with(meta);
        let mut set = also.to_vec();
        set.push(("_meta", inner.as_str()));
        self.with(&set)
    }
}

/// A checked message body with the members of its envelope located.
pub(crate) struct Envelope {
    pub root: Option<RawObject>,
    pub params: Option<RawObject>,
    pub meta: Option<RawObject>,
    pub arguments: Option<RawObject>,
    /// The kind of the root if it isn't an object: its first byte.
    pub first: u8,
}

/// Checks a body and locates the members of the root, `params`, `params._meta` and `params.arguments`, in one pass.
pub(crate) fn envelope(text: &Bytes, limits: &Limits) -> Result<Envelope, JsonError> {
    let whole = utf8(text)?;
    let limits = Limits { unique_members: true, ..limits.clone() };
    let [root, params, meta, arguments] = scan::scan(whole, &limits, true)?;
    let body = trim(text);
    let first = body.first().copied().unwrap_or_default();
    if first != b'{' {
        return Ok(Envelope { root: None, params: None, meta: None, arguments: None, first });
    }
    let start = (body.as_ptr() as usize - text.as_ptr() as usize) as u32;
    let root = RawObject { text: text.clone(), span: (start, start + body.len() as u32), members: root };
    // The found members belong to the one `params`, since duplicates were refused.
    let open = |parent: &RawObject, name: &str, members: Vec<Member>| {
        let member = parent.members.iter().find(|m| m.is(text, name))?;
        (text[member.value.0 as usize] == b'{').then(|| RawObject {
            text: text.clone(),
            span: member.value,
            members,
        })
    };
    let params = open(&root, "params", params);
    let meta = params.as_ref().and_then(|p| open(p, "_meta", meta));
    let arguments = params.as_ref().and_then(|p| open(p, "arguments", arguments));
    Ok(Envelope { root: Some(root), params, meta, arguments, first })
}

/// The value of a string as JSON writes it.
fn as_string(text: &str) -> Option<Cow<'_, str>> {
    let inside = text.strip_prefix('"')?.strip_suffix('"')?;
    Some(if inside.contains('\\') { Cow::Owned(scan::unescape(inside)) } else { Cow::Borrowed(inside) })
}

/// `text` as a JSON string, quotes included.
pub fn quote(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

fn quote_into(out: &mut Vec<u8>, text: &str) {
    // Writing text into memory can't fail.
    let _ = serde_json::to_writer(out, text);
}

pub(crate) fn single_line(text: &Bytes) -> Bytes {
    // In pieces, each looked at as a whole: a search that may stop at any byte can't take many at a time.
    let breaks = |piece: &[u8]| piece.iter().fold(false, |found, b| found | matches!(b, b'\r' | b'\n'));
    if !text.chunks(64).any(breaks) {
        return text.clone();
    }
    text.iter().map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b }).collect::<Vec<u8>>().into()
}

fn utf8(text: &[u8]) -> Result<&str, JsonError> {
    std::str::from_utf8(text).map_err(|e| JsonError { flaw: Flaw::NotUtf8, offset: e.valid_up_to() })
}

fn trim(text: &Bytes) -> Bytes {
    text.slice_ref(text.trim_ascii())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
