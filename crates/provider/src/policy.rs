//! How a provider treats keys and what its answers mean: as a preset or manifest says it, and as an intent keeps it.

use crate::parse::{Names, Retention, Span};
use crate::template::{Piece, Template};
use crate::text::{check_pointer, field_path};
use ledger::Millis;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::{Arc, Mutex, PoisonError};

/// The length of an effect key; a provider that takes less can't be given one.
pub(crate) const KEY_LEN: u32 = 36;
/// Without a published retention a replay is only tried this long.
pub(crate) const UNPUBLISHED_WINDOW: Millis = Millis::secs(3600);

/// Where the key travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CarrierKind {
    Header,
    Body,
    Query,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyMode {
    None,
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
    /// A conflict that names the object.
    #[serde(rename = "conflict_no_replay")]
    Conflict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Alphabet {
    Any,
    Uuid,
    Alphanumeric,
}

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

/// A header by which a provider marks a replayed answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayMarker {
    /// Its name.
    pub header: String,
    /// Its value, compared without case.
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LookupByKey {
    pub query: String,
    #[serde(default)]
    pub items: Option<String>,
    #[serde(rename = "match")]
    pub matches: String,
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
    pub mismatch: Option<Vec<Sign>>,
    pub in_flight: Option<Vec<Sign>>,
    pub conflict: Option<Vec<Sign>>,
    pub conflict_resource: Option<String>,
    pub code_at: Option<Names>,
    pub definite: Option<Vec<u16>>,
    pub replay_definite: Option<Vec<u16>>,
    pub not_applied: Option<Vec<u16>>,
    pub replay_marker: Option<ReplayMarker>,
    pub lookup_by_key: Option<LookupByKey>,
}

impl RawIdempotency {
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
            mismatch: self.mismatch.or(below.mismatch),
            in_flight: self.in_flight.or(below.in_flight),
            conflict: self.conflict.or(below.conflict),
            conflict_resource: self.conflict_resource.or(below.conflict_resource),
            code_at: self.code_at.or(below.code_at),
            definite: self.definite.or(below.definite),
            replay_definite: self.replay_definite.or(below.replay_definite),
            not_applied: self.not_applied.or(below.not_applied),
            replay_marker: self.replay_marker.or(below.replay_marker),
            lookup_by_key: self.lookup_by_key.or(below.lookup_by_key),
        }
    }
}

/// Where the effect key goes, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Header(String),
    Body(Vec<String>),
    Query(String),
}

/// How the provider honours a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub carrier: Carrier,
    pub quote: bool,
    pub methods: Vec<String>,
    /// The paths on which it is honoured, `{}` for any one segment; empty: on all.
    pub endpoints: Vec<String>,
    /// `None`: the provider does not say.
    pub scope: Option<KeyScope>,
    /// `None`: for ever. The margin is already taken off.
    pub replay_for: Option<Millis>,
    pub published: bool,
    pub replays_first_answer: bool,
    pub lookup: Option<LookupByKey>,
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
    /// Statuses that mean "not applied, wait". A 503 also needs `Retry-After`.
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
    /// Failures are stored and repeated too.
    pub caches_all: bool,
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

impl Keys {
    /// Whether a key is honoured on this verb and path.
    pub(crate) fn cover(&self, verb: &http::Method, path: &Template) -> bool {
        self.methods.iter().any(|m| m == verb.as_str())
            && (self.endpoints.is_empty() || self.endpoints.iter().any(|e| fits(e, path)))
    }
}

/// Whether a path is an endpoint: the same segments, where `{}` stands for any one that is not empty.
fn fits(endpoint: &str, path: &Template) -> bool {
    let path: String = path
        .0
        .iter()
        .map(|p| match p {
            Piece::Text(t) => t.as_str(),
            Piece::Key | Piece::Arg(_) => "{}",
        })
        .collect();
    let (mut want, mut have) = (endpoint.split('/'), path.split('/'));
    loop {
        match (want.next(), have.next()) {
            (None, None) => return true,
            (Some("{}"), Some(part)) if !part.is_empty() => {}
            (Some(want), Some(have)) if want == have => {}
            _ => return false,
        }
    }
}

/// The two halves of a merged `[idempotency]`: how to carry a key (if at all), and how to judge answers.
pub(crate) fn split(raw: &RawIdempotency) -> Result<(Option<Keys>, Policy), String> {
    let pointers = raw.code_at.iter().flat_map(|n| &n.0).chain(&raw.conflict_resource);
    for p in pointers.chain(raw.lookup_by_key.iter().flat_map(|l| l.items.iter().chain([&l.matches]))) {
        check_pointer(p)?;
    }
    if let Some(path) = raw.endpoints.iter().flat_map(|n| &n.0).find(|p| !p.starts_with('/')) {
        return Err(format!(
            "the endpoint {path:?} must begin with a slash, like \"/payments/{{}}/refunds\""
        ));
    }
    for status in [&raw.definite, &raw.replay_definite].into_iter().flatten().flatten() {
        if !(300..500).contains(status) {
            return Err(format!("{status} can't be a definite refusal; only 3xx and 4xx can"));
        }
    }
    for status in raw.not_applied.iter().flatten() {
        if !matches!(status, 400..=599) {
            return Err(format!("{status} can't mean \"not applied, wait\"; only 4xx and 5xx can"));
        }
    }
    if raw.conflict.as_ref().is_some_and(|c| !c.is_empty()) && raw.conflict_resource.is_none() {
        return Err("`conflict` needs `conflict_resource`, a JSON pointer to the existing object's id".into());
    }
    if raw.replay == Some(Replay::Conflict) && raw.conflict.as_ref().is_none_or(Vec::is_empty) {
        return Err(
            "replay = \"conflict_no_replay\" needs `conflict`, or every replay would be in doubt".into()
        );
    }
    let caches_all = raw.caches == Some(Caches::All);
    let policy = Policy {
        definite: raw.definite.clone().unwrap_or_default(),
        replay_definite: raw.replay_definite.clone().unwrap_or_default(),
        not_applied: raw.not_applied.clone().unwrap_or_default(),
        mismatch: raw.mismatch.clone().unwrap_or_default(),
        in_flight: raw.in_flight.clone().unwrap_or_default(),
        conflict: raw.conflict.clone().unwrap_or_default(),
        conflict_resource: raw.conflict_resource.clone(),
        code_at: raw.code_at.clone().unwrap_or_default().0,
        replay_marker: raw.replay_marker.clone(),
        caches_all,
        json: true,
        gone_is_done: false,
    };
    if raw.mode != Some(KeyMode::Dynamic) {
        return Ok((None, policy));
    }
    if let Some(max) = raw.max_len.filter(|max| *max < KEY_LEN) {
        return Err(format!(
            "an effect key has {KEY_LEN} characters and this provider takes {max}; use recovery = \"lookup\" or \"unique\""
        ));
    }
    if raw.alphabet == Some(Alphabet::Alphanumeric) {
        return Err("an effect key has hyphens, which this provider does not take; use recovery = \"lookup\" or \"unique\"".into());
    }
    let carrier = match (&raw.header_name, raw.carrier, &raw.name) {
        (Some(_), Some(CarrierKind::Body | CarrierKind::Query), _) | (Some(_), _, Some(_)) => {
            return Err("`header_name` says carrier and name at once; leave `carrier` and `name` out".into());
        }
        (Some(name), _, _) => Carrier::Header(name.clone()),
        (None, None | Some(CarrierKind::Header), name) => {
            Carrier::Header(name.clone().unwrap_or_else(|| "Idempotency-Key".into()))
        }
        (None, Some(_), None) => return Err("`carrier` needs the field's `name`".into()),
        (None, Some(CarrierKind::Body), Some(name)) => Carrier::Body(field_path(name)?),
        (None, Some(CarrierKind::Query), Some(name)) => Carrier::Query(name.clone()),
    };
    if let Carrier::Header(name) = &carrier {
        http::HeaderName::try_from(name.as_str()).map_err(|_| format!("{name:?} is not a header's name"))?;
    }
    let published = raw.retention.is_some() && raw.retention_basis != Some(Basis::Unpublished);
    let retention = raw.retention.unwrap_or(Retention::For(UNPUBLISHED_WINDOW));
    let replay_for = match retention {
        Retention::Forever => None,
        Retention::For(d) => {
            let margin = raw.margin.map_or(Millis((d.0 / 10).min(3_600_000)), |m| m.0);
            let left = Millis(d.0.saturating_sub(margin.0));
            if left.0 <= 0 {
                return Err("the margin leaves nothing of the retention; shorten `margin`".into());
            }
            Some(left)
        }
    };
    // What nobody has published may be shorter than it was when somebody looked.
    let replay_for = match (published, replay_for) {
        (true, d) => d,
        (false, d) => Some(d.map_or(UNPUBLISHED_WINDOW, |d| d.min(UNPUBLISHED_WINDOW))),
    };
    let keys = Keys {
        carrier,
        quote: raw.quote.unwrap_or(false),
        methods: raw
            .methods
            .as_ref()
            .map_or_else(|| vec!["POST".into()], |m| m.0.iter().map(|m| m.to_ascii_uppercase()).collect()),
        endpoints: raw.endpoints.clone().unwrap_or_default().0,
        scope: raw.scope,
        replay_for,
        published,
        replays_first_answer: caches_all && raw.replay == Some(Replay::Stored),
        lookup: raw.lookup_by_key.clone(),
    };
    Ok((Some(keys), policy))
}
