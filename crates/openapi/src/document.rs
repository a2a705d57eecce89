//! A description, and what refers to what in it. References are local; nothing is ever fetched.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// The longest chain of references that is followed.
const MAX_CHAIN: usize = 32;

/// A description as it was read.
pub(crate) struct Document<'a> {
    pub root: &'a Value,
}

/// A reference that leads nowhere in the description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It leads to another document.
    Remote(String),
    /// There is nothing where it leads.
    Nowhere(String),
}

impl Lost {
    /// What to tell people.
    pub(crate) fn said(&self) -> String {
        match self {
            Lost::Remote(to) => format!("`$ref` to another document ({}), which is not fetched", short(to)),
            Lost::Nowhere(to) => format!("`$ref` to something that is not there ({})", short(to)),
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(120).collect()
}

impl<'a> Document<'a> {
    /// The value itself, or what it refers to, however many steps away.
    pub(crate) fn resolve(&self, value: &'a Value) -> Result<&'a Value, Lost> {
        let mut value = value;
        for _ in 0..MAX_CHAIN {
            match value.get("$ref").and_then(Value::as_str) {
                Some(to) => value = self.at(to)?,
                None => return Ok(value),
            }
        }
        Err(Lost::Nowhere("references that only lead to each other".into()))
    }

    /// What a reference names.
    pub(crate) fn at(&self, reference: &str) -> Result<&'a Value, Lost> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(Lost::Remote(reference.to_owned()));
        };
        let pointer = percent_decode_str(pointer).decode_utf8_lossy();
        self.root.pointer(&pointer).ok_or_else(|| Lost::Nowhere(reference.to_owned()))
    }

    /// A table at a place; empty where there is none.
    pub(crate) fn table(&self, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.root.pointer(pointer).and_then(Value::as_object).into_iter().flat_map(Map::iter)
    }
}

/// A text member.
pub(crate) fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

/// The members of a list, none where there is no list.
pub(crate) fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether a member is `true`.
pub(crate) fn is(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool) == Some(true)
}
