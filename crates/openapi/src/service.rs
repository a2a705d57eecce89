//! Where an API is, and how it is told who calls: servers and security schemes.

use crate::document::{Document, list, text};
use crate::operation::Described;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// The addresses of one operation, as descriptions give them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Base {
    pub production: Option<String>,
    pub sandbox: Option<String>,
}

/// The addresses of an operation: of its own servers, else its path's, else the description's.
pub(crate) fn base(
    root: &Value,
    described: Option<Described<'_>>,
    variables: &BTreeMap<String, String>,
) -> Base {
    let places = described.map(|d| [d.operation, d.item]);
    let servers = places
        .iter()
        .flatten()
        .map(|place| list(place, "servers"))
        .find(|servers| !servers.is_empty())
        .unwrap_or_else(|| list(root, "servers"));
    let mut base = Base::default();
    for server in servers.iter().take(32) {
        let Some(url) = address(server, variables) else { continue };
        let about = format!("{url} {}", text(server, "description").unwrap_or_default()).to_lowercase();
        let mut words = about.split(|c: char| !c.is_ascii_alphanumeric());
        let trial = words.any(|w| {
            matches!(
                w,
                "sandbox"
                    | "test"
                    | "testing"
                    | "staging"
                    | "demo"
                    | "dev"
                    | "development"
                    | "localhost"
                    | "mock"
            )
        });
        let slot = if trial { &mut base.sandbox } else { &mut base.production };
        // An address of the preferred scheme is not replaced; servers come in the order of preference.
        if slot.is_none() {
            *slot = Some(url);
        }
    }
    base
}

/// A server's URL with its variables filled in; `None` if it is none that requests can go to.
fn address(server: &Value, variables: &BTreeMap<String, String>) -> Option<String> {
    let template = text(server, "url")?.trim();
    let mut url = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        url.push_str(before);
        let known = server.pointer("/variables").and_then(|v| v.get(name));
        let value = variables.get(name).map(String::as_str).or_else(|| {
            known.and_then(|k| text(k, "default").or_else(|| list(k, "enum").first().and_then(Value::as_str)))
        })?;
        url.push_str(value);
        rest = after;
    }
    url.push_str(rest);
    checked(&url)
}

/// An address that a manifest takes: https, or http on loopback; what is described with http is taken with https.
pub(crate) fn checked(url: &str) -> Option<String> {
    let mut parsed = url::Url::parse(url).ok()?;
    parsed.host()?;
    if parsed.scheme() == "http" && !provider::is_loopback(&parsed) {
        parsed.set_scheme("https").ok()?;
        if parsed.port() == Some(80) {
            parsed.set_port(None).ok()?;
        }
    }
    let plain = parsed.username().is_empty()
        && parsed.password().is_none()
        && parsed.query().is_none()
        && parsed.fragment().is_none();
    (plain && matches!(parsed.scheme(), "https" | "http"))
        .then(|| parsed.as_str().trim_end_matches('/').to_owned())
}

/// How requests are authenticated, as a manifest's `[auth]` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Auth {
    pub kind: &'static str,
    pub header: Option<String>,
    pub rotates: bool,
}

/// The schemes of a description, and the one that is used.
pub(crate) struct Security {
    pub auth: Option<Auth>,
    /// Place and name of what schemes fill: never an argument.
    pub secrets: Vec<(String, String)>,
    /// What is not representable.
    pub notes: Vec<String>,
}

/// Chooses the scheme that most of the operations take.
pub(crate) fn security(document: &Document<'_>, operations: &[Described<'_>]) -> Security {
    let mut schemes: Vec<(&str, Option<Auth>, String)> = Vec::new();
    let mut secrets = Vec::new();
    for (name, scheme) in document.table("/components/securitySchemes").take(64) {
        let Ok(scheme) = document.resolve(scheme) else { continue };
        let place = text(scheme, "in").unwrap_or_default();
        let field = text(scheme, "name").unwrap_or_default();
        let said = text(scheme, "scheme").unwrap_or_default().to_ascii_lowercase();
        let kind = text(scheme, "type").unwrap_or_default();
        let auth = match (kind, said.as_str(), place) {
            ("http", "bearer", _) => Some(Auth { kind: "bearer", header: None, rotates: false }),
            ("http", "basic", _) => Some(Auth { kind: "basic", header: None, rotates: false }),
            ("oauth2" | "openIdConnect", ..) => Some(Auth { kind: "bearer", header: None, rotates: true }),
            ("apiKey", _, "header") if provider::is_header(field) => {
                Some(Auth { kind: "header", header: Some(field.to_owned()), rotates: false })
            }
            _ => None,
        };
        if kind == "apiKey" {
            secrets.push((place.to_owned(), field.to_owned()));
        }
        let what = match (kind, place) {
            ("apiKey", place) => format!("{name:.60} (a key in the {place:.20} `{field:.60}`)"),
            ("http", _) => format!("{name:.60} (http {said:.30})"),
            (kind, _) => format!("{name:.60} ({kind:.30})"),
        };
        schemes.push((name, auth, what));
    }
    let mut taken: HashMap<&str, usize> = HashMap::new();
    let mut with: HashMap<&str, usize> = HashMap::new();
    for described in operations {
        let own = described.operation.get("security").or_else(|| document.root.get("security"));
        for requirement in
            own.and_then(Value::as_array).into_iter().flatten().take(32).filter_map(Value::as_object)
        {
            for (i, name) in requirement.keys().enumerate() {
                // The first of several that go together is the credential; the others go with it.
                let counts = if requirement.len() == 1 || i == 0 { &mut taken } else { &mut with };
                *counts.entry(name.as_str()).or_default() += 1;
            }
        }
    }
    let usable = schemes.iter().filter(|s| s.1.is_some());
    let chosen = usable
        .enumerate()
        .max_by_key(|(i, s)| (taken.get(s.0).copied().unwrap_or(0), std::cmp::Reverse(*i)))
        .map(|(_, s)| s);
    let mut notes = Vec::new();
    for scheme in &schemes {
        let uses = taken.get(scheme.0).copied().unwrap_or(0) + with.get(scheme.0).copied().unwrap_or(0);
        if chosen.is_some_and(|c| c.0 == scheme.0) || uses == 0 {
            continue;
        }
        notes.push(format!(
            "the security scheme {} of {uses} operations is not in [auth], which has one credential",
            scheme.2
        ));
    }
    if let (None, false) = (chosen, schemes.is_empty()) {
        let all: Vec<&str> = schemes.iter().map(|s| s.2.as_str()).collect();
        notes.push(format!("no credential is sent: [auth] has no kind for {:.300}", all.join(", ")));
    }
    Security { auth: chosen.and_then(|c| c.1.clone()), secrets, notes }
}
