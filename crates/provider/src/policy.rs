//! How a provider treats keys and what its answers mean: as a preset or manifest says it, and as an intent keeps it.

mod keys;
mod words;

pub(crate) use keys::{Carrier, KeyLookup, Keys, split};
pub(crate) use words::{Alphabet, Basis, Caches, CarrierKind, Compares, KeyMode, LookupByKey, Replay};

use crate::parse::{Names, Retention, Span};
use ledger::Millis;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::{Arc, Mutex, PoisonError};

/// The length of an effect key; a provider that takes less can't be given one.
pub(crate) const KEY_LEN: u32 = 36;
/// Without a published retention a replay is only tried this long.
pub(crate) const UNPUBLISHED_WINDOW: Millis = Millis::secs(3600);

/// Within what a key names one request, as its provider says. A replay must stay inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyScope {
    /// The provider's account, whichever credential of it is used.
    Account,
    /// One API key: another credential of the same account is another scope.
    ApiKey,
    /// One route of the API.
    Route,
    /// The account, in each of the provider's regions by itself.
    Region,
}

impl KeyScope {
    /// The word in presets and manifests.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            KeyScope::Account => "account",
            KeyScope::ApiKey => "api_key",
            KeyScope::Route => "route",
            KeyScope::Region => "region",
        }
    }
}

/// An answer known by its status, and by its code where others share the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sign {
    /// The HTTP status.
    pub status: u16,
    /// A text found at one of [`Policy::code_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// A header by which a provider marks an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayMarker {
    /// Its name.
    pub header: String,
    /// Its value, compared without case; `*` is any.
    pub value: String,
}

impl ReplayMarker {
    /// Whether a header of this value is the mark.
    pub(crate) fn is(&self, value: &str) -> bool {
        self.value == "*" || value.trim().eq_ignore_ascii_case(&self.value)
    }
}

/// How the answers of a GraphQL method are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GraphqlAnswers {
    /// Under which name in `data` the effect's answer stands.
    pub field: String,
    /// JSON pointers to lists of what the provider refused; empty or absent ones are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors_at: Vec<String>,
    /// Codes of errors after which nothing was done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub definite_codes: Vec<String>,
    /// Codes of errors that mean "not applied, wait".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_applied_codes: Vec<String>,
}

/// How a provider says in the body of a success whether it is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OkAt {
    /// JSON pointer to `true` or `false`.
    pub at: String,
    /// Codes of a `false` after which it may have been applied all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unclear: Vec<String>,
    /// Codes of a `false` that mean "not applied, wait".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_applied: Vec<String>,
}

/// What the body of a success says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Success,
    /// With its code; empty if it has none.
    Refusal(String),
    /// Neither: it may not be this provider's.
    Nothing,
}

/// `[execution_policy.idempotency]`, and a preset's `[idempotency]`. What is absent comes from the layer below.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawIdempotency {
    pub mode: Option<KeyMode>,
    pub header_name: Option<String>,
    pub carrier: Option<CarrierKind>,
    pub name: Option<String>,
    pub quote: Option<bool>,
    pub min_len: Option<u32>,
    pub max_len: Option<u32>,
    pub alphabet: Option<Alphabet>,
    pub methods: Option<Names>,
    pub endpoints: Option<Names>,
    pub scope: Option<KeyScope>,
    pub retention: Option<Retention>,
    pub retention_basis: Option<Basis>,
    pub margin: Option<Span>,
    pub caches: Option<Caches>,
    pub replay: Option<Replay>,
    pub compares_body: Option<Compares>,
    pub mismatch: Option<Vec<Sign>>,
    pub in_flight: Option<Vec<Sign>>,
    pub conflict: Option<Vec<Sign>>,
    pub conflict_resource: Option<String>,
    pub code_at: Option<Names>,
    pub definite: Option<Vec<u16>>,
    pub replay_definite: Option<Vec<u16>>,
    pub not_applied: Option<Vec<u16>>,
    pub definite_codes: Option<Names>,
    pub not_applied_codes: Option<Names>,
    pub errors_at: Option<Names>,
    pub replay_marker: Option<ReplayMarker>,
    pub ignored_marker: Option<ReplayMarker>,
    pub lookup_by_key: Option<LookupByKey>,
    pub ok: Option<OkAt>,
}

impl RawIdempotency {
    /// Whether this layer says where the key travels.
    pub(crate) fn names_carrier(&self) -> bool {
        self.header_name.is_some() || self.carrier.is_some() || self.name.is_some()
    }

    /// This layer over another.
    pub(crate) fn over(self, below: &RawIdempotency) -> RawIdempotency {
        let below = below.clone();
        // A carrier named anew must not inherit the name of another carrier.
        let carried = self.carrier.is_some() || self.header_name.is_some();
        RawIdempotency {
            mode: self.mode.or(below.mode),
            name: if carried { self.name } else { self.name.or(below.name) },
            header_name: if carried { self.header_name } else { below.header_name },
            carrier: if carried { self.carrier } else { below.carrier },
            quote: self.quote.or(below.quote),
            min_len: self.min_len.or(below.min_len),
            max_len: self.max_len.or(below.max_len),
            alphabet: self.alphabet.or(below.alphabet),
            methods: self.methods.or(below.methods),
            endpoints: self.endpoints.or(below.endpoints),
            scope: self.scope.or(below.scope),
            // A basis belongs to its retention.
            retention_basis: if self.retention.is_some() {
                self.retention_basis.or(Some(Basis::Published))
            } else {
                self.retention_basis.or(below.retention_basis)
            },
            retention: self.retention.or(below.retention),
            margin: self.margin.or(below.margin),
            caches: self.caches.or(below.caches),
            replay: self.replay.or(below.replay),
            compares_body: self.compares_body.or(below.compares_body),
            mismatch: self.mismatch.or(below.mismatch),
            in_flight: self.in_flight.or(below.in_flight),
            conflict: self.conflict.or(below.conflict),
            conflict_resource: self.conflict_resource.or(below.conflict_resource),
            code_at: self.code_at.or(below.code_at),
            definite: self.definite.or(below.definite),
            replay_definite: self.replay_definite.or(below.replay_definite),
            not_applied: self.not_applied.or(below.not_applied),
            definite_codes: self.definite_codes.or(below.definite_codes),
            not_applied_codes: self.not_applied_codes.or(below.not_applied_codes),
            errors_at: self.errors_at.or(below.errors_at),
            replay_marker: self.replay_marker.or(below.replay_marker),
            ignored_marker: self.ignored_marker.or(below.ignored_marker),
            lookup_by_key: self.lookup_by_key.or(below.lookup_by_key),
            ok: self.ok.or(below.ok),
        }
    }
}

/// What a provider's answers mean, pinned in every intent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Statuses that are a definite refusal of the send they answer.
    pub definite: Vec<u16>,
    /// Of these, the ones that only come from behind the provider's key check: they settle a replay unmarked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replay_definite: Vec<u16>,
    /// Statuses that mean "not applied, wait". A 403 and a 503 also need `Retry-After`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_applied: Vec<u16>,
    /// The key was used with another request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mismatch: Vec<Sign>,
    /// Another request under the key is in progress.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<Sign>,
    /// The object exists already; the answer leads to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflict: Vec<Sign>,
    /// JSON pointer to the existing object's id in such an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict_resource: Option<String>,
    /// JSON pointers at which an answer's code may stand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub code_at: Vec<String>,
    /// How a replayed answer is marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_marker: Option<ReplayMarker>,
    /// How an answer is marked for which the key did not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored_marker: Option<ReplayMarker>,
    /// The answers are GraphQL's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphql: Option<GraphqlAnswers>,
    /// Failures are stored and repeated too.
    pub caches_all: bool,
    /// How the body of a success says whether it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ok: Option<OkAt>,
    /// A success with a body that is not JSON is not from this provider.
    pub json: bool,
    /// A repeat that finds nothing left (404, 410) shows that the effect is there: DELETE.
    pub gone_is_done: bool,
}

/// Policies as they were read last: the intents of a method all have the same one, and it is most of an intent.
static READ: Mutex<Vec<(Box<str>, Arc<Policy>)>> = Mutex::new(Vec::new());
/// How many are kept.
const MAX_READ: usize = 64;
/// The longest text of one that is kept, in bytes.
const MAX_READ_TEXT: usize = 8 << 10;

/// Reads a policy; one that was read lately is not read again.
pub(crate) fn pinned<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Arc<Policy>, D::Error> {
    let text = <&RawValue>::deserialize(d)?.get();
    let read = || READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, policy)) = read().iter().find(|(known, _)| **known == *text) {
        return Ok(policy.clone());
    }
    let policy: Arc<Policy> = Arc::new(serde_json::from_str(text).map_err(serde::de::Error::custom)?);
    if text.len() <= MAX_READ_TEXT {
        let mut read = read();
        if read.len() == MAX_READ {
            read.remove(0);
        }
        read.push((text.into(), policy.clone()));
    }
    Ok(policy)
}

/// What stands for the answered field in a pointer of a GraphQL provider.
const FIELD: &str = "{field}";

impl Policy {
    /// An earlier program would take answers for what they are not.
    pub(crate) fn is_new(&self) -> bool {
        self.graphql.is_some() || self.ignored_marker.is_some() || self.ok.is_some()
    }

    /// The same for a method that answers with this field of `data`, or for one that is not of GraphQL.
    pub(crate) fn answered_by(mut self, field: Option<&str>) -> Policy {
        let Some(field) = field else {
            self.graphql = None;
            self.code_at.retain(|at| !at.contains(FIELD));
            return self;
        };
        let escaped = field.replace('~', "~0").replace('/', "~1");
        let graphql = self.graphql.get_or_insert_default();
        field.clone_into(&mut graphql.field);
        for at in self.code_at.iter_mut().chain(&mut graphql.errors_at) {
            *at = at.replace(FIELD, &escaped);
        }
        self
    }

    /// What the body of a success says of itself, where this provider's do.
    pub(crate) fn word_of(&self, body: &[u8]) -> Option<Word> {
        let ok = self.ok.as_ref()?;
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(body) else { return Some(Word::Nothing) };
        Some(match json.pointer(&ok.at) {
            Some(serde_json::Value::Bool(true)) => Word::Success,
            Some(serde_json::Value::Bool(false)) => {
                let code = self.code_at.iter().find_map(|at| json.pointer(at)?.as_str());
                Word::Refusal(code.unwrap_or_default().to_owned())
            }
            _ => Word::Nothing,
        })
    }
}
