//! The words of presets and manifests.

use crate::text::field_path;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// Where the key travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CarrierKind {
    Header,
    Body,
    Query,
    /// A variable of a GraphQL document, or a field of one.
    GraphqlInput,
    /// An argument of a directive in a GraphQL document.
    GraphqlDirective,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyMode {
    None,
    /// On the methods that say `dynamic` themselves: which those are can't be known beforehand.
    Declared,
    Dynamic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Basis {
    Published,
    Unpublished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Caches {
    #[serde(rename = "all")]
    All,
    #[serde(rename = "2xx_only")]
    Successes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Replay {
    /// The first answer, again.
    Stored,
    /// The state of now.
    Converging,
    /// A conflict, which may name the object.
    #[serde(rename = "conflict_no_replay")]
    Conflict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Alphabet {
    Any,
    Uuid,
    /// A UUID of version 4 and no other.
    UuidV4,
    Alphanumeric,
}

/// How much of a request a provider compares with the first one under its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compares {
    /// All: another request is refused.
    Whole,
    /// Nothing: whatever comes under the key gets the first one's answer.
    Nothing,
    /// This field; another value of it makes another request, which is carried out.
    Field(String),
}

impl Compares {
    /// In words, for people.
    pub(crate) fn word(&self) -> String {
        match self {
            Compares::Whole => "the whole request".into(),
            Compares::Nothing => "nothing".into(),
            Compares::Field(name) => format!("`{name}` only"),
        }
    }
}

impl<'de> Deserialize<'de> for Compares {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Compares;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or the name of the one field that is compared")
            }
            fn visit_bool<E: de::Error>(self, all: bool) -> Result<Compares, E> {
                Ok(if all { Compares::Whole } else { Compares::Nothing })
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Compares, E> {
                field_path(name).map_err(E::custom)?;
                Ok(Compares::Field(name.to_owned()))
            }
        }
        d.deserialize_any(V)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LookupByKey {
    /// In a list: the query parameter that takes the key.
    pub query: Option<String>,
    /// The list.
    pub items: Option<String>,
    /// The key in an object of it.
    #[serde(rename = "match")]
    pub matches: Option<String>,
    /// At a path: where the first answer is kept, with `{key}` in it.
    pub path: Option<String>,
    /// The first answer's status.
    pub status: Option<String>,
    /// Its body.
    pub answer: Option<String>,
}
