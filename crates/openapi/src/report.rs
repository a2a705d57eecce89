//! What an import did, for people and programs: nothing is left out in silence.

use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Why an operation is not among the methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A verb that manifests don't have.
    Verb,
    /// A path that no URL can carry as it is described.
    Path,
    /// A GET or HEAD that needs a body.
    GetWithBody,
    /// A body of a kind that can't be written from arguments.
    MediaType,
    /// A parameter that is required and has no place.
    Parameter,
    /// A reference to another document, or to nothing.
    Reference,
    /// It is served elsewhere than the rest.
    Server,
    /// The description is not what OpenAPI says.
    Malformed,
    /// The manifest's own checks refuse it.
    Refused,
    /// It doesn't go together with what the operator has changed.
    Conflict,
}

impl Reason {
    /// The word for programs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Reason::Verb => "verb",
            Reason::Path => "path",
            Reason::GetWithBody => "get_with_body",
            Reason::MediaType => "media_type",
            Reason::Parameter => "parameter",
            Reason::Reference => "reference",
            Reason::Server => "server",
            Reason::Malformed => "malformed",
            Reason::Refused => "refused",
            Reason::Conflict => "conflict",
        }
    }
}

/// An operation that is not among the methods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Verb and path, as described.
    pub operation: String,
    /// Why.
    pub reason: Reason,
    /// Why exactly.
    pub detail: String,
    /// The method of it that is in the manifest, which stays as it was; `None`: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stays: Option<String>,
}

/// Something of an imported method, or of the whole, that is not as described.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The method's name; `None`: of the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What is different.
    pub note: String,
}

/// What became of a field that decides where calls go, what they do and whether they may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The method's name; `None`: it is the integration's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// `base_url`, `auth`, `preset`, `http`, `effect`, `idempotency` or `natural`.
    pub field: String,
    /// What it was; `Null`: it was not there.
    pub before: Value,
    /// What it is now; `Null`: it is not there.
    pub after: Value,
}

/// What a new import changes in a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// What was there and decides where calls go, what they do and whether they may be repeated: the integration's first.
    pub decisive: Vec<Difference>,
    /// Methods that were not there.
    pub added: Vec<String>,
    /// Methods that the description no longer has.
    pub removed: Vec<String>,
    /// Methods that differ, with the fields that do.
    pub changed: BTreeMap<String, Vec<String>>,
    /// Fields that the operator has changed, which stay as they are.
    pub kept: BTreeMap<String, Vec<String>>,
    /// Methods that the operator has taken out, which stay out.
    pub left_out: Vec<String>,
}

impl Changes {
    /// Whether nothing would be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// What became of a description.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The integration's name.
    pub integration: String,
    /// How many methods the manifest has.
    pub methods: usize,
    /// How many of them only read.
    pub reading: usize,
    /// How many change something, by the word of their recovery strategy.
    pub recovery: BTreeMap<String, usize>,
    /// The preset that the manifest has: the one that was named, or the one of the provider's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Where requests go, by mode; a mode that is not there sends nothing.
    pub addresses: BTreeMap<&'static str, String>,
    /// Operations that were not chosen.
    pub not_chosen: usize,
    /// Operations that are not among the methods, and why.
    pub skipped: Vec<Skipped>,
    /// What is not as described.
    pub notes: Vec<Note>,
    /// What changed in the manifest.
    pub changes: Changes,
}

impl Report {
    /// How many were skipped, by reason.
    #[must_use]
    pub fn skipped_by_reason(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for s in &self.skipped {
            *counts.entry(s.reason.word()).or_default() += 1;
        }
        counts
    }
}
