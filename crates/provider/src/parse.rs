//! Reading TOML and JSON with one set of types, and saying where and what is wrong.

use crate::error::ConfigError;
use crate::text::{nearest, parse_duration, parse_size};
use ledger::Millis;
use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// The largest manifest that is read, in bytes.
pub const MAX_MANIFEST: usize = 64 << 20;

/// Reads `text` as TOML.
pub(crate) fn toml<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, ConfigError> {
    bounded(file, text)?;
    toml::from_str(text).map_err(|e| {
        let line = e.span().map(|s| line_at(text, s.start));
        ConfigError::new(file, explain(e.message())).at(line)
    })
}

/// Reads `text` as JSON.
pub(crate) fn json<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, ConfigError> {
    bounded(file, text)?;
    serde_json::from_str(text).map_err(|e| {
        let all = e.to_string();
        let message = all.rsplit_once(" at line ").map_or(all.as_str(), |(m, _)| m);
        ConfigError::new(file, explain(message)).at(Some(e.line()).filter(|l| *l > 0))
    })
}

fn bounded(file: &str, text: &str) -> Result<(), ConfigError> {
    if text.len() > MAX_MANIFEST {
        let most = MAX_MANIFEST >> 20;
        return Err(ConfigError::new(
            file,
            format!("larger than {most} MiB; divide it into several integrations"),
        ));
    }
    Ok(())
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1
}

/// Adds the nearest of the expected names to an unknown one. Serde lists them in backticks.
fn explain(message: &str) -> String {
    for kind in ["unknown field `", "unknown variant `"] {
        let Some((word, rest)) = message.strip_prefix(kind).and_then(|r| r.split_once('`')) else { continue };
        let expected: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        let what = if kind.contains("field") { "is not known here" } else { "is not a value of this" };
        return match nearest(word, expected.iter().copied()) {
            Some(near) => format!("`{word}` {what}; did you mean `{near}`?"),
            None => format!("`{word}` {what}; known: {}", expected.join(", ")),
        };
    }
    message.trim_end().to_owned()
}

/// The line of a method's field, or of the method, found by its text: types that were built no longer know.
pub(crate) fn line_of(text: &str, method: &str, field: &str) -> Option<usize> {
    let quoted = format!("\"{method}\"");
    let bare = format!("methods.{method}");
    let is_head = |l: &str| l.contains(&quoted) || l.contains(&bare);
    let head = text.lines().position(is_head)?;
    let within = text
        .lines()
        .enumerate()
        .skip(head)
        .take_while(|(i, l)| *i == head || !l.trim_start().starts_with("[methods.") || is_head(l));
    let found = within.into_iter().find(|(_, l)| {
        let l = l.trim_start();
        [format!("{field} "), format!("{field}="), format!("\"{field}\"")].iter().any(|s| l.starts_with(s))
            || (l.starts_with('[')
                && (l.contains(&format!(".{field}]")) || l.contains(&format!(".{field}."))))
    });
    Some(found.map_or(head, |(i, _)| i) + 1)
}

/// A text that some rule reads.
fn by_text<'de, D: Deserializer<'de>, T>(
    d: D,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    let text = String::deserialize(d)?;
    read(&text).map_err(de::Error::custom)
}

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub Millis);
impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        by_text(d, parse_duration).map(Span)
    }
}

/// How long a provider remembers a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retention {
    Forever,
    For(Millis),
}
impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        by_text(d, |t| {
            if t == "forever" { Ok(Retention::Forever) } else { parse_duration(t).map(Retention::For) }
        })
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub u64);
impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        by_text(d, parse_size).map(Size)
    }
}

/// A list of texts; one alone may stand without brackets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(pub Vec<String>);
impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Names;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Names, E> {
                Ok(Names(vec![v.to_owned()]))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut a: A) -> Result<Names, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = a.next_element()? {
                    all.push(one);
                }
                Ok(Names(all))
            }
        }
        d.deserialize_any(V)
    }
}

/// A value for both modes, or one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByMode<T> {
    pub sandbox: Option<T>,
    pub production: Option<T>,
    /// It is one for both.
    pub one: bool,
}
impl<'de, T: Deserialize<'de> + Clone + From<Text>> Deserialize<'de> for ByMode<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Clone + From<Text>> Visitor<'de> for V<T> {
            type Value = ByMode<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a table with `sandbox` and `production`")
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<ByMode<T>, E> {
                let one = T::from(Text(v.to_owned()));
                Ok(ByMode { sandbox: Some(one.clone()), production: Some(one), one: true })
            }
            fn visit_map<A: MapAccess<'de>>(self, mut a: A) -> Result<ByMode<T>, A::Error> {
                let mut by = ByMode { sandbox: None, production: None, one: false };
                while let Some(name) = a.next_key::<String>()? {
                    let slot = match name.as_str() {
                        "sandbox" => &mut by.sandbox,
                        "production" => &mut by.production,
                        _ => return Err(de::Error::unknown_field(&name, &["sandbox", "production"])),
                    };
                    if slot.replace(a.next_value()?).is_some() {
                        return Err(de::Error::custom(format!("`{name}` is given twice")));
                    }
                }
                Ok(by)
            }
        }
        d.deserialize_any(V(PhantomData))
    }
}

/// A plain text, where [`ByMode`] needs one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text(pub String);

/// A table in its order, in which no name may occur twice (JSON allows it; then the last would win unseen).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table<T>(pub Vec<(String, T)>);
impl<T> Default for Table<T> {
    fn default() -> Self {
        Table(Vec::new())
    }
}
impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = Table<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut a: A) -> Result<Table<T>, A::Error> {
                let mut all: Vec<(String, T)> = Vec::new();
                let mut seen = std::collections::HashSet::new();
                while let Some(name) = a.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(de::Error::custom(format!("`{name}` is given twice")));
                    }
                    let value = a.next_value()?;
                    all.push((name, value));
                }
                Ok(Table(all))
            }
        }
        d.deserialize_map(V(PhantomData))
    }
}

/// A JSON Schema: a table, or a text that holds one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schema(pub serde_json::Value);
impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = match serde_json::Value::deserialize(d)? {
            serde_json::Value::String(text) => serde_json::from_str(&text)
                .map_err(|e| de::Error::custom(format!("the schema's text is not JSON: {e}")))?,
            other => other,
        };
        if !value.is_object() {
            return Err(de::Error::custom(
                "a JSON Schema must be a table, or a text that holds a JSON object",
            ));
        }
        if value.to_string().contains("$__toml_private_datetime") {
            return Err(de::Error::custom("a JSON Schema has no dates; put quotes around it"));
        }
        Ok(Schema(value))
    }
}
