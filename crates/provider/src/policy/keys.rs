//! How a key is carried, how long it is good, and the checks of what a preset or manifest says of it.

use super::words::{Alphabet, Basis, Caches, CarrierKind, Compares, KeyMode, LookupByKey, Replay};
use super::{GraphqlAnswers, KEY_LEN, KeyScope, Policy, RawIdempotency, Sign, UNPUBLISHED_WINDOW};
use crate::parse::Retention;
use crate::template::{Piece, Template};
use crate::text::{check_pointer, field_path};
use ledger::Millis;

/// Where the effect key goes, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Header(String),
    Body(Vec<String>),
    Query(String),
    /// A variable of a GraphQL document, or a field of one. A method carries it as a field of its body.
    Variable(Vec<String>),
    /// An argument of a directive in a GraphQL document.
    Directive {
        name: String,
        argument: String,
    },
}

impl Carrier {
    /// A key that travels in a GraphQL document or its variables.
    pub(crate) fn is_graphql(&self) -> bool {
        matches!(self, Carrier::Variable(_) | Carrier::Directive { .. })
    }
}

/// How a provider is asked for the effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyLookup {
    /// It lists the objects of the method's path, narrowed to the key by a query parameter.
    List { query: String, items: Option<String>, matches: String },
    /// It keeps its first answer at a path.
    Answer { path: Template, status: String, body: String },
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
    /// How much is compared with the first request; `None`: the provider does not say.
    pub compares: Option<Compares>,
    pub lookup: Option<KeyLookup>,
}

impl Keys {
    /// Whether a key is honoured on this verb and path. With an argument that `spans` segments a path is no one endpoint's.
    pub(crate) fn cover(&self, verb: &http::Method, path: &Template, spans: bool) -> bool {
        self.methods.iter().any(|m| m == verb.as_str())
            && (self.endpoints.is_empty() || !spans && self.endpoints.iter().any(|e| fits(e, path)))
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
    let pointers = raw.code_at.iter().chain(&raw.errors_at).flat_map(|n| &n.0).chain(&raw.conflict_resource);
    for p in pointers.chain(raw.ok.iter().map(|ok| &ok.at)) {
        check_pointer(p)?;
    }
    let lookup = raw.lookup_by_key.as_ref().map(key_lookup).transpose()?;
    signs(raw)?;
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
    if let Some(ok) = &raw.ok {
        if let Some(code) = ok.unclear.iter().find(|c| ok.not_applied.contains(c)) {
            return Err(format!("`ok`: the code {code:?} can't be unclear and mean \"not applied\" at once"));
        }
        if raw.code_at.is_none() && !(ok.unclear.is_empty() && ok.not_applied.is_empty()) {
            return Err("`ok` names codes; say where they stand with `code_at`, a JSON pointer".into());
        }
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
        ignored_marker: raw.ignored_marker.clone(),
        graphql: graphql(raw)?,
        caches_all,
        ok: raw.ok.clone(),
        json: true,
        gone_is_done: false,
    };
    if raw.mode.is_none_or(|mode| mode == KeyMode::None) {
        return Ok((None, policy));
    }
    fits_key(raw)?;
    let carrier = carrier(raw)?;
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
        compares: raw.compares_body.clone(),
        lookup,
    };
    Ok((Some(keys).filter(|_| raw.mode == Some(KeyMode::Dynamic)), policy))
}

/// Whether the answers that are known by their signs can be what they are said to be.
fn signs(raw: &RawIdempotency) -> Result<(), String> {
    let given = |signs: &Option<Vec<Sign>>| signs.as_ref().is_some_and(|s| !s.is_empty());
    let all = [&raw.mismatch, &raw.in_flight, &raw.conflict].into_iter().flatten().flatten();
    for sign in all {
        if (200..300).contains(&sign.status) && sign.code.is_none() {
            return Err(format!("a {} is known by its code only; add `code`", sign.status));
        }
    }
    let no_replay = raw.replay == Some(Replay::Conflict);
    if given(&raw.conflict) && raw.conflict_resource.is_none() && !no_replay {
        return Err(
            "`conflict` needs `conflict_resource`, a JSON pointer to the existing object's id; or say replay = \"conflict_no_replay\" where the answer does not name it".into(),
        );
    }
    if no_replay && !given(&raw.conflict) {
        return Err(
            "replay = \"conflict_no_replay\" needs `conflict`, the answer by which a repeat is known".into(),
        );
    }
    if raw.compares_body == Some(Compares::Nothing) && given(&raw.mismatch) {
        return Err(
            "compares_body = false says that no request is refused for being another one; leave `mismatch` out".into(),
        );
    }
    for marker in raw.replay_marker.iter().chain(&raw.ignored_marker) {
        http::HeaderName::try_from(marker.header.as_str())
            .map_err(|_| format!("{:?} is not a header's name", marker.header))?;
    }
    if raw.ignored_marker.is_some() && raw.ignored_marker == raw.replay_marker {
        return Err("`replay_marker` and `ignored_marker` are the same, and mean opposite things".into());
    }
    Ok(())
}

/// How GraphQL answers are read, where anything is said of them.
fn graphql(raw: &RawIdempotency) -> Result<Option<GraphqlAnswers>, String> {
    let names = |names: &Option<crate::parse::Names>| names.clone().unwrap_or_default().0;
    let answers = GraphqlAnswers {
        field: String::new(),
        errors_at: names(&raw.errors_at),
        definite_codes: names(&raw.definite_codes),
        not_applied_codes: names(&raw.not_applied_codes),
    };
    if let Some(code) = answers.definite_codes.iter().find(|c| answers.not_applied_codes.contains(c)) {
        return Err(format!(
            "the code {code:?} can't be a definite refusal and mean \"not applied, wait\" at once"
        ));
    }
    Ok(Some(answers).filter(|a| *a != GraphqlAnswers::default()))
}

/// Whether an effect key is something that the provider takes: 36 characters, a UUID of version 8 in small letters.
fn fits_key(raw: &RawIdempotency) -> Result<(), String> {
    const INSTEAD: &str = "use recovery = \"lookup\" or \"unique\"";
    if let (Some(min), Some(max)) = (raw.min_len, raw.max_len)
        && min > max
    {
        return Err(format!("min_len = {min} is more than max_len = {max}"));
    }
    if let Some(max) = raw.max_len.filter(|max| *max < KEY_LEN) {
        return Err(format!(
            "an effect key has {KEY_LEN} characters and this provider takes {max}; {INSTEAD}"
        ));
    }
    if let Some(min) = raw.min_len.filter(|min| *min > KEY_LEN) {
        return Err(format!(
            "an effect key has {KEY_LEN} characters and this provider wants at least {min}; {INSTEAD}"
        ));
    }
    match raw.alphabet {
        Some(Alphabet::Alphanumeric) => {
            Err(format!("an effect key has hyphens, which this provider does not take; {INSTEAD}"))
        }
        Some(Alphabet::UuidV4) => Err(format!(
            "an effect key is a UUID of version 8, and this provider takes version 4 only; {INSTEAD}"
        )),
        Some(Alphabet::Any | Alphabet::Uuid) | None => Ok(()),
    }
}

fn carrier(raw: &RawIdempotency) -> Result<Carrier, String> {
    Ok(match (&raw.header_name, raw.carrier, &raw.name) {
        (Some(_), Some(kind), _) if kind != CarrierKind::Header => {
            return Err("`header_name` says carrier and name at once; leave `carrier` and `name` out".into());
        }
        (Some(_), _, Some(_)) => {
            return Err("`header_name` says carrier and name at once; leave `carrier` and `name` out".into());
        }
        (Some(name), _, None) => Carrier::Header(name.clone()),
        (None, None | Some(CarrierKind::Header), name) => {
            Carrier::Header(name.clone().unwrap_or_else(|| "Idempotency-Key".into()))
        }
        (None, Some(_), None) => return Err("`carrier` needs the field's `name`".into()),
        (None, Some(CarrierKind::Body), Some(name)) => Carrier::Body(field_path(name)?),
        (None, Some(CarrierKind::Query), Some(name)) => Carrier::Query(name.clone()),
        (None, Some(CarrierKind::GraphqlInput), Some(name)) => Carrier::Variable(field_path(name)?),
        (None, Some(CarrierKind::GraphqlDirective), Some(name)) => match field_path(name)?.as_slice() {
            [directive, argument] => Carrier::Directive {
                name: directive.trim_start_matches('@').to_owned(),
                argument: argument.clone(),
            },
            _ => {
                return Err(format!(
                    "{name:?} must name a directive and its argument, like \"idempotent.key\""
                ));
            }
        },
    })
}

fn key_lookup(raw: &LookupByKey) -> Result<KeyLookup, String> {
    let what =
        "`lookup_by_key` has either `query` and `match` (and `items`), or `path`, `status` and `answer`";
    for pointer in [&raw.items, &raw.matches, &raw.status, &raw.answer].into_iter().flatten() {
        check_pointer(pointer)?;
    }
    match raw {
        LookupByKey {
            query: Some(query),
            items,
            matches: Some(matches),
            path: None,
            status: None,
            answer: None,
        } => Ok(KeyLookup::List { query: query.clone(), items: items.clone(), matches: matches.clone() }),
        LookupByKey {
            query: None,
            items: None,
            matches: None,
            path: Some(path),
            status: Some(status),
            answer: Some(answer),
        } => {
            let path = Template::value(path)?;
            let begins = matches!(path.0.first(), Some(Piece::Text(t)) if t.starts_with('/') && !t.contains(['?', '#']));
            if !begins || !path.has_key() || path.args().next().is_some() {
                return Err(
                    "`lookup_by_key`: the path must begin with a slash and name {key}, and no argument"
                        .into(),
                );
            }
            Ok(KeyLookup::Answer { path, status: status.clone(), body: answer.clone() })
        }
        _ => Err(what.into()),
    }
}
