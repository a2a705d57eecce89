//! How an API is told who calls: security schemes.

use crate::document::{Document, is, text};
use crate::operation::Described;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};

pub(crate) use crate::servers::{Base, base, checked};

/// The most schemes of a description that are looked at, and the most ways in of one operation.
const MAX_SCHEMES: usize = 64;
const MAX_WAYS: usize = 32;
/// The most that goes along with a credential.
const MAX_ALSO: usize = 4;

/// How requests are authenticated, as a manifest's `[auth]` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Auth {
    kind: &'static str,
    /// The header, or the parameter of the query, that carries it.
    name: Option<String>,
    rotates: bool,
    /// Places and names of what goes along with it.
    also: Vec<(&'static str, String)>,
}

impl Auth {
    fn plain(kind: &'static str) -> Auth {
        Auth { kind, name: None, rotates: false, also: Vec::new() }
    }

    /// Its fields, with secrets from variables of the environment that are named after the integration.
    pub(crate) fn fields(&self, integration: &str) -> Value {
        let variable = |name: &str| {
            let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            let all: String = format!("{integration}_{name}").chars().map(upper).collect();
            format!("${{env:{all}}}")
        };
        let mut fields = json!({ "kind": self.kind, "secret": variable("TOKEN") });
        if let Some(name) = &self.name {
            fields[self.kind] = json!(name);
        }
        if self.rotates {
            fields["rotates"] = json!(true);
        }
        if !self.also.is_empty() {
            let one = |(place, name): &(&str, String)| json!({ *place: name, "secret": variable(name) });
            fields["also"] = self.also.iter().map(one).collect();
        }
        fields
    }

    /// Whether a manifest's `[auth]` is of this kind, at the same place.
    fn is(&self, was: &Value) -> bool {
        let named = self.name.as_deref().is_none_or(|name| text(was, self.kind) == Some(name));
        text(was, "kind") == Some(self.kind) && named
    }
}

/// The schemes of a description, and the one that is used.
pub(crate) struct Security {
    pub auth: Option<Auth>,
    /// Place and name of what schemes fill: never an argument.
    pub secrets: Vec<(String, String)>,
    /// What is not representable.
    pub notes: Vec<String>,
}

/// A scheme of a description.
struct Scheme<'a> {
    name: &'a str,
    /// As `[auth]` has it; `None`: it can't be there.
    auth: Option<Auth>,
    /// What it is, for people.
    what: String,
    /// The place and name of its key, if it is one.
    key: Option<(String, String)>,
}

impl<'a> Scheme<'a> {
    fn read(name: &'a str, scheme: &Value) -> Scheme<'a> {
        let place = text(scheme, "in").unwrap_or_default();
        let field = text(scheme, "name").unwrap_or_default();
        let said = text(scheme, "scheme").unwrap_or_default().to_ascii_lowercase();
        let kind = text(scheme, "type").unwrap_or_default();
        let key = |kind| Some(Auth { name: Some(field.to_owned()), ..Auth::plain(kind) });
        let auth = match (kind, said.as_str(), place) {
            ("http", "bearer", _) => Some(Auth::plain("bearer")),
            ("http", "basic", _) => Some(Auth::plain("basic")),
            ("oauth2" | "openIdConnect", ..) => Some(Auth { rotates: true, ..Auth::plain("bearer") }),
            ("apiKey", _, "header") if provider::is_header(field) => key("header"),
            ("apiKey", _, "query") if !field.is_empty() => key("query"),
            _ => None,
        };
        let what = match (kind, place) {
            ("apiKey", place) => format!("{name:.60} (a key in the {place:.20} `{field:.60}`)"),
            ("http", _) => format!("{name:.60} (http {said:.30})"),
            (kind, _) => format!("{name:.60} ({kind:.30})"),
        };
        let key = (kind == "apiKey").then(|| (place.to_owned(), field.to_owned()));
        Scheme { name, auth, what, key }
    }
}

/// The ways in to an operation: of each the names of the schemes that go together, the credential's first.
fn ways<'v>(document: &Document<'v>, described: &Described<'v>) -> impl Iterator<Item = Vec<&'v str>> {
    let own = described.operation.get("security").or_else(|| document.root.get("security"));
    let all = own.and_then(Value::as_array).into_iter().flatten().take(MAX_WAYS);
    all.filter_map(Value::as_object).map(|way| way.keys().map(String::as_str).collect())
}

/// How often each scheme is the credential, and how often it is asked for at all.
fn counted<'v>(
    document: &Document<'v>,
    operations: &[Described<'v>],
) -> (HashMap<&'v str, usize>, HashMap<&'v str, usize>) {
    let (mut first, mut any) = (HashMap::new(), HashMap::new());
    for way in operations.iter().flat_map(|d| ways(document, d)) {
        for (i, name) in way.into_iter().enumerate() {
            *first.entry(name).or_default() += usize::from(i == 0);
            *any.entry(name).or_default() += 1;
        }
    }
    (first, any)
}

/// The scheme of `[auth]`: the one that most of the `deciding` operations take, but as long as one of them takes the one
/// that `was` there, that one. `operations` are all that it is for.
pub(crate) fn security(
    document: &Document<'_>,
    operations: &[Described<'_>],
    deciding: &[Described<'_>],
    was: Option<&Value>,
) -> Security {
    let table = document.table("/components/securitySchemes").take(MAX_SCHEMES);
    let schemes: Vec<Scheme<'_>> =
        table.filter_map(|(name, scheme)| Some(Scheme::read(name, document.resolve(scheme).ok()?))).collect();
    let (first, _) = counted(document, deciding);
    let takes = |s: &Scheme<'_>| first.get(s.name).copied().unwrap_or(0);
    let usable = || schemes.iter().filter_map(|s| Some((s, s.auth.as_ref()?))).enumerate();
    let rank = |(i, (s, _)): &(usize, (&Scheme<'_>, &Auth))| (takes(s), std::cmp::Reverse(*i));
    // Of several of one kind the one that rotates as the one that was there does.
    let alike = |auth: &Auth| was.is_some_and(|was| auth.rotates == is(was, "rotates"));
    let stays = usable()
        .filter(|(_, (s, auth))| takes(s) > 0 && was.is_some_and(|was| auth.is(was)))
        .max_by_key(|one| (alike(one.1.1), rank(one)));
    let chosen = stays.or_else(|| usable().max_by_key(rank)).map(|(_, (s, _))| s);
    let along = chosen.map(|c| along(document, deciding, &schemes, c)).unwrap_or_default();
    // What is there gets nothing new to find in the environment by itself.
    let along = if was.is_some_and(|was| was.get("also").is_none()) { Vec::new() } else { along };
    let in_auth: BTreeSet<&str> = chosen.into_iter().chain(along.iter().copied()).map(|s| s.name).collect();
    let (_, any) = counted(document, operations);
    let mut notes = Vec::new();
    for scheme in schemes.iter().filter(|s| !in_auth.contains(s.name)) {
        let what = &scheme.what;
        notes.push(match (any.get(scheme.name), &scheme.key) {
            (Some(uses), _) => {
                // Only a key has a place of its own to be put into.
                let also = if scheme.key.is_some() && scheme.auth.is_some() {
                    "; its `also` can hold it (a manifest that is there gets none by itself)"
                } else {
                    ", which has one credential"
                };
                format!("the security scheme {what} of {uses} operations is not in [auth]{also}")
            }
            (None, Some(_)) => format!(
                "no operation asks for the security scheme {what}: it is not in [auth], and no argument either where an operation has it as a parameter"
            ),
            (None, None) => format!("no operation asks for the security scheme {what}: it is not in [auth]"),
        });
    }
    if let (None, false) = (chosen, schemes.is_empty()) {
        let all: Vec<&str> = schemes.iter().map(|s| s.what.as_str()).collect();
        notes.push(format!("no credential is sent: [auth] has no kind for {:.300}", all.join(", ")));
    }
    let also = along.iter().filter_map(|s| s.auth.as_ref()).filter_map(|a| Some((a.kind, a.name.clone()?)));
    let also = also.collect();
    let auth = chosen.and_then(|c| c.auth.clone()).map(|auth| Auth { also, ..auth });
    Security { auth, secrets: schemes.iter().filter_map(|s| s.key.clone()).collect(), notes }
}

/// The keys that go along with a credential wherever it is asked for.
fn along<'s, 'a>(
    document: &Document<'_>,
    operations: &[Described<'_>],
    schemes: &'s [Scheme<'a>],
    credential: &'s Scheme<'a>,
) -> Vec<&'s Scheme<'a>> {
    let mut with: Option<BTreeSet<&str>> = None;
    for way in operations.iter().flat_map(|d| ways(document, d)) {
        if way.first() == Some(&credential.name) {
            let others: BTreeSet<&str> = way.into_iter().skip(1).collect();
            with = Some(with.map_or(others.clone(), |all| all.intersection(&others).copied().collect()));
        }
    }
    let with = with.unwrap_or_default();
    let mut all: Vec<&'s Scheme<'a>> = Vec::new();
    for scheme in schemes.iter().filter(|s| with.contains(s.name) && s.auth.is_some() && s.key.is_some()) {
        let is_there = all.iter().copied().chain([credential]).any(|s| s.auth == scheme.auth);
        if !is_there && all.len() < MAX_ALSO {
            all.push(scheme);
        }
    }
    all
}
