//! Reading a description: JSON or YAML, with bounds on its size, its nesting and what it unfolds to.

use crate::yaml;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The largest description, in bytes. The largest that is known to be published has 47 MB.
pub const MAX_BYTES: usize = 64 << 20;
/// The most values in one, aliases of YAML unfolded.
const MAX_NODES: usize = 6_000_000;
/// The deepest nesting. The JSON reader has the same bound.
pub(crate) const MAX_DEPTH: usize = 120;

/// Why a description can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Too large, too deep, or it unfolds to too much.
    #[error("it is not read: {0}")]
    TooMuch(String),
    /// Neither JSON nor YAML.
    #[error("it can't be read: {0}")]
    Malformed(String),
}

/// What is left to read.
pub(crate) struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new() -> Budget {
        Budget { nodes: MAX_NODES, bytes: MAX_BYTES }
    }
    /// Takes one value with a text of so many bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), String> {
        match (self.nodes.checked_sub(1), self.bytes.checked_sub(bytes)) {
            (Some(nodes), Some(bytes)) => {
                *self = Budget { nodes, bytes };
                Ok(())
            }
            _ => {
                Err(format!("it has, or unfolds to, more than {MAX_NODES} values or {} MiB", MAX_BYTES >> 20))
            }
        }
    }
}

/// Reads a description. What begins with a brace is JSON, all else YAML (and a brace may begin YAML, too).
///
/// # Errors
/// [`ReadError`].
pub fn read(text: &str) -> Result<Value, ReadError> {
    if text.len() > MAX_BYTES {
        return Err(ReadError::TooMuch(format!(
            "it has more than {} MiB; divide it, or choose a part of it beforehand",
            MAX_BYTES >> 20
        )));
    }
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('{') {
        match json(text) {
            Err(ReadError::Malformed(why)) => yaml::read(text).map_err(|e| match e {
                // A file that is almost JSON is better told what is wrong with it as JSON.
                ReadError::Malformed(_) => ReadError::Malformed(why),
                other => other,
            }),
            done => done,
        }
    } else {
        yaml::read(text)
    }
}

fn json(text: &str) -> Result<Value, ReadError> {
    let mut budget = Budget::new();
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = Seed(&mut budget).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    read.map_err(|e| {
        let all = e.to_string();
        if all.contains("recursion limit") || all.contains("unfolds to") {
            ReadError::TooMuch(all)
        } else {
            ReadError::Malformed(all)
        }
    })
}

/// A value that is counted while it is read.
struct Seed<'b>(&'b mut Budget);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.0.take(0).map(|()| Value::Null).map_err(E::custom)
    }
    fn visit_bool<E: serde::de::Error>(self, v: bool) -> Result<Value, E> {
        self.0.take(0).map(|()| Value::Bool(v)).map_err(E::custom)
    }
    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Value, E> {
        self.0.take(0).map(|()| Value::from(v)).map_err(E::custom)
    }
    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Value, E> {
        self.0.take(0).map(|()| Value::from(v)).map_err(E::custom)
    }
    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Value, E> {
        self.0.take(0).map(|()| Value::from(v)).map_err(E::custom)
    }
    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Value, E> {
        self.0.take(v.len()).map(|()| Value::from(v)).map_err(E::custom)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut a: A) -> Result<Value, A::Error> {
        self.0.take(0).map_err(A::Error::custom)?;
        let mut all = Vec::new();
        while let Some(one) = a.next_element_seed(Seed(self.0))? {
            all.push(one);
        }
        Ok(Value::Array(all))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut a: A) -> Result<Value, A::Error> {
        self.0.take(0).map_err(A::Error::custom)?;
        let mut all = Map::new();
        while let Some(name) = a.next_key::<String>()? {
            self.0.take(name.len()).map_err(A::Error::custom)?;
            let value = a.next_value_seed(Seed(self.0))?;
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn json_and_yaml_say_the_same() {
        let a = read("{\"a\": [1, 2.5, null, true, \"x\"]}").unwrap();
        assert_eq!(a, read("a:\n- 1\n- 2.5\n-\n- true\n- x\n").unwrap());
        assert_eq!(read("{a: 1}").unwrap(), json!({"a": 1}));
        assert_eq!(read("\u{feff}{\"a\": 1}").unwrap(), json!({"a": 1}));
        assert!(matches!(read("{\"a\": 1,, }"), Err(ReadError::Malformed(_))));
    }

    #[test]
    fn deep_and_large_ones_are_refused() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(matches!(read(&format!("{{\"a\":{deep}}}")), Err(ReadError::TooMuch(_))));
        assert!(matches!(read(&format!("a: {deep}")), Err(ReadError::TooMuch(_))));
        let endless = "[".repeat(1 << 20);
        assert!(read(&format!("a: {endless}")).is_err());
        let many = format!("{{\"a\":[{}0]}}", "0,".repeat(MAX_NODES));
        assert!(matches!(read(&many), Err(ReadError::TooMuch(_))));
    }
}
