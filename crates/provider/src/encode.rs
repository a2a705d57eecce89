//! Arguments as text on the wire. Numbers keep their value; nothing a caller writes can leave its place.

use crate::error::BadArguments;
use crate::raw::Style;
use crate::request::{MAX_URL, long_url};
use crate::template::Spliced;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::fmt;

/// The most digits that an exponent may stand for.
const MAX_DIGITS: i64 = 400;
/// The deepest nesting that is taken apart.
pub(crate) const MAX_DEPTH: usize = 16;
/// The most that is written as pairs, in bytes: each repeats the names around it, so that a short argument may make a long form.
const MAX_PAIRS: usize = 32 << 20;
/// RFC 3986 unreserved; all else is encoded, so that no argument can end a segment or a pair.
const KEEP: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

type Fields = Vec<(String, Box<RawValue>)>;

/// A JSON object one level deep, in order.
pub(crate) struct Object(pub Fields);
impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Object;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut a: A) -> Result<Object, A::Error> {
                let mut all: Fields = Vec::new();
                let mut seen = std::collections::HashSet::new();
                while let Some(name) = a.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(serde::de::Error::custom("a member occurs twice"));
                    }
                    all.push((name, a.next_value()?));
                }
                Ok(Object(all))
            }
        }
        d.deserialize_map(V)
    }
}

/// Reads arguments: one JSON object without duplicate members.
pub(crate) fn arguments(text: &str) -> Result<Fields, BadArguments> {
    serde_json::from_str::<Object>(text)
        .map(|o| o.0)
        .map_err(|e| BadArguments::new(format!("the arguments must be one JSON object: {e}")))
}

/// A value one level deep.
pub(crate) enum Level {
    Null,
    /// A text, a truth value, or a number as [`number`] writes it.
    Scalar(String),
    Array(Vec<Box<RawValue>>),
    Object(Fields),
}

pub(crate) fn level(raw: &RawValue, name: &str) -> Result<Level, BadArguments> {
    let text = raw.get().trim();
    let bad = |e: serde_json::Error| BadArguments::new(format!("argument `{name}`: {e}"));
    Ok(match text.as_bytes().first() {
        Some(b'n') => Level::Null,
        Some(b'"') => Level::Scalar(serde_json::from_str(text).map_err(bad)?),
        Some(b'[') => Level::Array(serde_json::from_str(text).map_err(bad)?),
        Some(b'{') => Level::Object(serde_json::from_str::<Object>(text).map_err(bad)?.0),
        Some(b'-' | b'0'..=b'9') => Level::Scalar(number(text, name)?),
        _ => Level::Scalar(text.to_owned()),
    })
}

/// A number as it is written outside of JSON: without an exponent, which whoever reads a form or a URL may not know, and take
/// what stands before it for the whole. All others stay as they are.
fn number(text: &str, name: &str) -> Result<String, BadArguments> {
    let Some((mantissa, exponent)) = text.split_once(['e', 'E']) else { return Ok(text.to_owned()) };
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let zeros = digits.len() - digits.trim_start_matches('0').len();
    let digits = &digits[zeros..];
    if digits.is_empty() {
        return Ok("0".into());
    }
    // The value is 0.DIGITS times ten to this power.
    let point = exponent.parse::<i64>().ok().and_then(|e| {
        let before = i64::try_from(whole.len()).ok()? - i64::try_from(zeros).ok()?;
        e.checked_add(before).filter(|point| (1 - MAX_DIGITS..=MAX_DIGITS).contains(point))
    });
    let point = point.ok_or_else(|| {
        BadArguments::new(format!(
            "argument `{name}`: without its exponent the number has more than {MAX_DIGITS} digits"
        ))
    })?;
    let zeros = |n: usize| "0".repeat(n);
    let plain = match usize::try_from(point) {
        Ok(point) if point >= digits.len() => format!("{digits}{}", zeros(point - digits.len())),
        Ok(0) => format!("0.{digits}"),
        Ok(point) => format!("{}.{}", &digits[..point], &digits[point..]),
        Err(_) => format!("0.{}{digits}", zeros(usize::try_from(point.unsigned_abs()).unwrap_or_default())),
    };
    let plain = if plain.contains('.') { plain.trim_end_matches('0').trim_end_matches('.') } else { &plain };
    Ok(format!("{sign}{plain}"))
}

/// A value that must be one text; `None` for null.
pub(crate) fn scalar(raw: &RawValue, name: &str, place: &str) -> Result<Option<String>, BadArguments> {
    match level(raw, name)? {
        Level::Null => Ok(None),
        Level::Scalar(s) => Ok(Some(s)),
        _ => Err(BadArguments::new(format!(
            "argument `{name}` goes into the {place} and must be a text, a number or true/false"
        ))),
    }
}

/// A list or an object as one text: `a,b` or `name,value`, with `write` for each text in it. `None` for null.
pub(crate) fn joined(
    raw: &RawValue,
    name: &str,
    style: Style,
    write: impl Fn(&str) -> String,
) -> Result<Option<String>, BadArguments> {
    let (between, equals) = match style {
        Style::Json => return Ok(Some(write(raw.get()))),
        Style::Space => ("%20", "%20"),
        Style::Pipe => ("%7C", "%7C"),
        Style::Pairs => (",", "="),
        Style::Comma | Style::Members | Style::Repeat | Style::Index | Style::File | Style::Segments => {
            (",", ",")
        }
    };
    let one = |raw: &RawValue| -> Result<String, BadArguments> {
        Ok(scalar(raw, name, "list of one text")?.map(|t| write(&t)).unwrap_or_default())
    };
    Ok(match level(raw, name)? {
        Level::Null => None,
        Level::Scalar(text) => Some(write(&text)),
        Level::Array(items) => {
            let all: Result<Vec<String>, BadArguments> = items.iter().map(|i| one(i)).collect();
            Some(all?.join(between))
        }
        Level::Object(fields) => {
            let all: Result<Vec<String>, BadArguments> =
                fields.iter().map(|(n, v)| Ok(format!("{}{equals}{}", write(n), one(v)?))).collect();
            Some(all?.join(between))
        }
    })
}

pub(crate) fn percent(text: &str) -> String {
    utf8_percent_encode(text, KEEP).to_string()
}

/// A body before it is written: arguments as they came, the effect key, and the objects around them.
pub(crate) enum Node {
    Raw(Box<RawValue>),
    /// Written in a style of its own; in forms only.
    Styled(Box<RawValue>, Style),
    Key,
    /// A text with the key in it.
    Text(Spliced),
    Object(Vec<(String, Node)>),
}

/// The fields of a body, found by their names: a caller may give many.
#[derive(Default)]
pub(crate) struct Body {
    fields: Vec<(String, Node)>,
    at: HashMap<String, usize>,
}

impl Body {
    /// Puts `node` at `path`, making objects on the way. Nothing that is there already is replaced.
    pub(crate) fn insert(&mut self, path: &[String], node: Node) -> Result<(), BadArguments> {
        let found = path.first().and_then(|first| self.at.get(first)).copied();
        let before = self.fields.len();
        insert(&mut self.fields, found, path, node)?;
        if let Some((name, _)) = self.fields.get(before) {
            self.at.insert(name.clone(), before);
        }
        Ok(())
    }

    pub(crate) fn into_fields(self) -> Vec<(String, Node)> {
        self.fields
    }
}

/// See [`Body::insert`]; `found`: where the first part of the path is.
fn insert(
    fields: &mut Vec<(String, Node)>,
    found: Option<usize>,
    path: &[String],
    node: Node,
) -> Result<(), BadArguments> {
    let taken = || {
        BadArguments::new(format!(
            "the field `{}` is given twice, or is filled by the gateway; leave it out",
            path.join(".")
        ))
    };
    let Some((first, rest)) = path.split_first() else { return Err(taken()) };
    if rest.is_empty() {
        if found.is_some() {
            return Err(taken());
        }
        fields.push((first.clone(), node));
        return Ok(());
    }
    let place = match found {
        Some(place) => place,
        None => {
            fields.push((first.clone(), Node::Object(Vec::new())));
            fields.len() - 1
        }
    };
    let slot = &mut fields[place].1;
    if let Node::Raw(raw) = slot {
        *slot = match level(raw, first)? {
            Level::Object(inside) => {
                Node::Object(inside.into_iter().map(|(n, v)| (n, Node::Raw(v))).collect())
            }
            Level::Null => Node::Object(Vec::new()),
            _ => return Err(BadArguments::new(format!("argument `{first}` must be an object"))),
        };
    }
    match slot {
        Node::Object(inside) => {
            let found = inside.iter().position(|(n, _)| rest.first() == Some(n));
            insert(inside, found, rest, node)
        }
        _ => Err(taken()),
    }
}

/// A text as JSON. An escape never reaches over the key.
pub(crate) fn quoted(text: &Spliced) -> Spliced {
    let mut out = Spliced::text("\"");
    out.push(&text.map(|t| {
        let q = serde_json::Value::from(t).to_string();
        q.strip_prefix('"').and_then(|q| q.strip_suffix('"')).unwrap_or_default().to_owned()
    }));
    out.push_str("\"");
    out
}

pub(crate) fn write_json(fields: &[(String, Node)], out: &mut Spliced) {
    out.push_str("{");
    for (i, (name, node)) in fields.iter().enumerate() {
        if i > 0 {
            out.push_str(",");
        }
        out.push_str(&serde_json::Value::from(name.as_str()).to_string());
        out.push_str(":");
        match node {
            Node::Raw(raw) | Node::Styled(raw, _) => out.push_str(raw.get()),
            Node::Key => {
                out.push_str("\"");
                out.push_key();
                out.push_str("\"");
            }
            Node::Text(text) => out.push(&quoted(text)),
            Node::Object(inside) => write_json(inside, out),
        }
    }
    out.push_str("}");
}

/// How a list is written in pairs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    /// `a[0]=x&a[1]=y`: form bodies.
    Index,
    /// `a=x&a=y`: queries.
    Repeat,
}

/// Pairs as `application/x-www-form-urlencoded`, nested by brackets.
pub(crate) struct Pairs {
    pub out: Spliced,
    lists: Lists,
    first: bool,
    /// Bytes written, names alone.
    names: usize,
    /// The names themselves, of a query.
    pub written: Vec<String>,
}

impl Pairs {
    pub(crate) fn new(lists: Lists) -> Pairs {
        Pairs { out: Spliced::default(), lists, first: true, names: 0, written: Vec::new() }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.first
    }
    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.first) {
            self.out.push_str("&");
        }
        let encoded = percent(name);
        self.names += encoded.len() + 1;
        self.out.push_str(&encoded);
        if self.lists == Lists::Repeat {
            self.written.push(name.to_owned());
        }
        self.out.push_str("=");
    }
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.out.push_str(&percent(value));
    }
    pub(crate) fn key(&mut self, name: &str) {
        self.name(name);
        self.out.push_key();
    }
    /// A value that is encoded already.
    pub(crate) fn encoded(&mut self, name: &str, value: &Spliced) {
        self.name(name);
        self.out.push(value);
    }
    pub(crate) fn fields(&mut self, prefix: &str, fields: &[(String, Node)]) -> Result<(), BadArguments> {
        for (name, node) in fields {
            // The fields of the body itself stand under no name.
            let name = nested((!prefix.is_empty()).then_some(prefix), name)?;
            match node {
                Node::Raw(raw) => self.value(&name, raw, 0)?,
                Node::Styled(raw, style) => self.styled(&name, raw, Some(*style))?,
                Node::Key => self.key(&name),
                Node::Text(text) => self.encoded(&name, &text.map(percent)),
                Node::Object(inside) => self.fields(&name, inside)?,
            }
        }
        Ok(())
    }
    /// A value under a name, in the style that its place has for it.
    pub(crate) fn styled(
        &mut self,
        name: &str,
        raw: &RawValue,
        style: Option<Style>,
    ) -> Result<(), BadArguments> {
        let Some(style) = style else { return self.value(name, raw, 0) };
        match (style, level(raw, name)?) {
            (Style::Members, Level::Object(members)) => {
                for (inner, value) in &members {
                    self.value(inner, value, 0)?;
                }
            }
            (Style::Repeat | Style::Index, Level::Array(items)) => {
                for (i, item) in items.iter().enumerate() {
                    let index = format!("{name}[{i}]");
                    self.value(if style == Style::Index { &index } else { name }, item, 1)?;
                }
            }
            (Style::Members | Style::Repeat | Style::Index, _) => self.value(name, raw, 0)?,
            _ => {
                if let Some(text) = joined(raw, name, style, percent)? {
                    self.name(name);
                    self.out.push_str(&text);
                }
            }
        }
        Ok(())
    }
    /// A value under a name. Of null and of empty lists and objects a form says `name=`, a query nothing.
    pub(crate) fn value(&mut self, name: &str, raw: &RawValue, depth: usize) -> Result<(), BadArguments> {
        if depth > MAX_DEPTH {
            return Err(BadArguments::new(format!("an argument is nested deeper than {MAX_DEPTH}")));
        }
        match self.lists {
            Lists::Repeat if self.names > MAX_URL => return Err(long_url()),
            Lists::Index if self.names > MAX_PAIRS => {
                return Err(BadArguments::new("the arguments make a form longer than 32 MiB"));
            }
            _ => {}
        }
        match level(raw, name)? {
            Level::Scalar(s) => self.text(name, &s),
            Level::Array(items) if !items.is_empty() => {
                for (i, item) in items.iter().enumerate() {
                    match self.lists {
                        Lists::Index => self.value(&format!("{name}[{i}]"), item, depth + 1)?,
                        Lists::Repeat => self.value(name, item, depth + 1)?,
                    }
                }
            }
            Level::Object(fields) if !fields.is_empty() => {
                for (inner, value) in &fields {
                    self.value(&nested(Some(name), inner)?, value, depth + 1)?;
                }
            }
            _ if self.lists == Lists::Index => self.text(name, ""),
            _ => {}
        }
        Ok(())
    }
}

/// `prefix[name]`. A bracket in a name would move its value elsewhere.
fn nested(prefix: Option<&str>, name: &str) -> Result<String, BadArguments> {
    if name.contains(['[', ']']) || name.is_empty() {
        return Err(BadArguments::new(
            "an argument's name is empty or has a bracket, which a form can't carry",
        ));
    }
    Ok(prefix.map_or_else(|| name.to_owned(), |prefix| format!("{prefix}[{name}]")))
}
