//! A second reading of JSON: `serde_json` steps over the values, and what it lets pass is looked at here. Slow and
//! plain; the measure for the product's own scanners.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// A JSON value that keeps its text.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number as it was written.
    Number(String),
    /// A string's value.
    String(String),
    /// An array.
    Array(Vec<Tree>),
    /// An object, in its order.
    Object(Vec<(String, Tree)>),
}

/// An object one level deep.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reading;
        impl<'de> Visitor<'de> for Reading {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    all.push((name, map.next_value().map_err(A::Error::custom)?));
                }
                Ok(Members(all))
            }
        }
        deserializer.deserialize_map(Reading)
    }
}

/// Reads a text: valid, nested no deeper than `depth`, without lone surrogates and, with `unique`, without two members
/// of one name. `None` if it is anything else.
#[must_use]
pub fn read(text: &[u8], depth: usize, unique: bool) -> Option<Tree> {
    let text = std::str::from_utf8(text).ok()?;
    value(serde_json::from_str::<&RawValue>(text).ok()?.get(), depth, unique)
}

fn value(text: &str, depth: usize, unique: bool) -> Option<Tree> {
    Some(match text.as_bytes().first()? {
        b'n' => Tree::Null,
        b't' => Tree::Bool(true),
        b'f' => Tree::Bool(false),
        b'"' => Tree::String(serde_json::from_str(text).ok()?),
        b'[' => {
            let depth = depth.checked_sub(1)?;
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            Tree::Array(
                items.into_iter().map(|item| value(item.get(), depth, unique)).collect::<Option<_>>()?,
            )
        }
        b'{' => {
            let depth = depth.checked_sub(1)?;
            let members = serde_json::from_str::<Members<'_>>(text).ok()?.0;
            let mut all: Vec<(String, Tree)> = Vec::with_capacity(members.len());
            for (name, member) in members {
                all.push((name, value(member.get(), depth, unique)?));
            }
            let mut names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            if unique && names.windows(2).any(|two| two[0] == two[1]) {
                return None;
            }
            Tree::Object(all)
        }
        _ => Tree::Number(text.to_owned()),
    })
}

impl Tree {
    /// A member of an object.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tree> {
        match self {
            Tree::Object(all) => all.iter().find(|(n, _)| n == name).map(|(_, v)| v),
            _ => None,
        }
    }

    /// A string's value.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Tree::String(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        matches!(self, Tree::Object(_))
    }

    /// Whether it can be the id of a request: a string, or an integer without fraction and exponent.
    #[must_use]
    pub fn is_id(&self) -> bool {
        match self {
            Tree::String(_) => true,
            Tree::Number(text) => text.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()),
            _ => false,
        }
    }

    /// Whether a value here or further in satisfies a condition on strings and names.
    #[must_use]
    pub fn names(&self, wanted: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Tree::Object(all) => all.iter().any(|(name, value)| wanted(name) || value.names(wanted)),
            Tree::Array(all) => all.iter().any(|value| value.names(wanted)),
            Tree::String(text) => wanted(text),
            _ => false,
        }
    }

    /// The value as text, the members of objects in reverse and every character above `z` and below `A` escaped, so
    /// that nothing but the meaning stays; numbers as `number` writes them.
    #[must_use]
    pub fn written(&self, number: &dyn Fn(&str) -> String) -> String {
        match self {
            Tree::Null => "null".into(),
            Tree::Bool(b) => b.to_string(),
            Tree::Number(text) => number(text),
            Tree::String(text) => escaped(text),
            Tree::Array(all) => {
                let all: Vec<_> = all.iter().map(|value| value.written(number)).collect();
                format!("[ {} ]", all.join(" ,\n"))
            }
            Tree::Object(all) => {
                let all: Vec<_> = all
                    .iter()
                    .rev()
                    .map(|(name, value)| format!("{}\t: {}", escaped(name), value.written(number)))
                    .collect();
                format!("{{\r{}}}", all.join(", "))
            }
        }
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04X}"));
            }
        }
    }
    out.push('"');
    out
}
