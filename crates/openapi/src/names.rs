//! Names of methods and arguments: valid, stable, and no two alike.

use provider::wire_name;
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;

/// The longest name of a method without its integration's, in bytes.
const MAX_METHOD: usize = 120;
/// The longest name of an argument that models take.
const MAX_ARGUMENT: usize = 64;

/// The name of an integration from a title: `Acme Payments API` is `acme-payments`.
pub(crate) fn integration(title: &str) -> String {
    let lower = title.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    let mut kept: Vec<&str> = words.collect();
    while kept.len() > 1
        && matches!(kept.last(), Some(&("api" | "apis" | "rest" | "openapi" | "specification")))
    {
        kept.pop();
    }
    let mut name = kept.join("-");
    name.truncate(32);
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() { "api".into() } else { name }
}

/// The name that an operation asks for, by itself: from its id, else from verb and path.
pub(crate) fn method(integration: &str, id: Option<&str>, verb: &str, path: &str) -> String {
    let parts = match id {
        Some(id) => parts(id, &['.', '/', ':']),
        None => {
            let mut all = parts(path, &['/']);
            all.push(verb.to_ascii_lowercase());
            all
        }
    };
    let mut parts: &[String] = &parts;
    // `drive.files.list` of the integration `drive` is `files.list`.
    if let [first, rest @ ..] = parts
        && !rest.is_empty()
        && first.eq_ignore_ascii_case(integration)
    {
        parts = rest;
    }
    let name = parts.join(".");
    if name.is_empty() {
        return verb.to_ascii_lowercase();
    }
    bounded(name)
}

fn parts(text: &str, ends: &[char]) -> Vec<String> {
    text.split(ends).map(clean).filter(|p| !p.is_empty()).collect()
}

/// Only `A-Z a-z 0-9 _ -`; all else is an underscore, and none stands at an end.
fn clean(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
        if !(c == '_' && out.ends_with('_')) {
            out.push(c);
        }
    }
    out.trim_matches('_').to_owned()
}

fn bounded(name: String) -> String {
    if name.len() <= MAX_METHOD {
        return name;
    }
    let head = name[..MAX_METHOD - 9].trim_end_matches(['.', '_', '-']);
    format!("{head}_{}", digest(&name))
}

/// Eight digits that depend on the whole text.
pub(crate) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes())[..4].iter().map(|b| format!("{b:02x}")).collect()
}

/// Methods' names that are given, with the tools' names on the wire that they take.
pub(crate) struct Taken<'i> {
    integration: &'i str,
    wire: HashSet<String>,
    names: HashSet<String>,
}

impl<'i> Taken<'i> {
    pub(crate) fn new(integration: &'i str) -> Taken<'i> {
        Taken { integration, wire: HashSet::new(), names: HashSet::new() }
    }

    /// Takes a name as it is, if it is free.
    pub(crate) fn take(&mut self, name: &str, wire: Option<&str>) -> bool {
        let wire = wire.map_or_else(|| wire_name(&format!("{}.{name}", self.integration)), str::to_owned);
        if self.names.contains(name) || self.wire.contains(&wire) {
            return false;
        }
        self.wire.insert(wire);
        self.names.insert(name.to_owned());
        true
    }

    /// The name, or the name with a suffix that depends on the operation; `http` is what no two operations share.
    pub(crate) fn give(&mut self, name: String, http: &str) -> String {
        if self.take(&name, None) {
            return name;
        }
        let mut head = name;
        head.truncate(MAX_METHOD - 9);
        let head = head.trim_end_matches(['.', '_', '-']);
        let mut salt = http.to_owned();
        loop {
            let other = format!("{head}_{}", digest(&salt));
            if self.take(&other, None) {
                return other;
            }
            salt.push(' ');
        }
    }
}

/// Names of one method's arguments, each a valid property's name.
#[derive(Default)]
pub(crate) struct Arguments(HashSet<String>);

impl Arguments {
    /// A name near to the one asked for; `place` tells two of the same name apart.
    pub(crate) fn give(&mut self, asked: &str, place: &str) -> String {
        let mut name = clean(asked);
        name.truncate(MAX_ARGUMENT);
        if name.is_empty() {
            name = place.to_owned();
        }
        if self.0.insert(name.clone()) {
            return name;
        }
        name.truncate(MAX_ARGUMENT - place.len() - 6);
        let mut other = format!("{name}_{place}");
        let mut n = 1;
        while !self.0.insert(other.clone()) {
            n += 1;
            other = format!("{name}_{place}{n}");
        }
        other
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_methods() {
        assert_eq!(method("github", Some("repos/create-issue"), "POST", "/x"), "repos.create-issue");
        assert_eq!(method("drive", Some("drive.files.list"), "GET", "/x"), "files.list");
        assert_eq!(method("a", None, "POST", "/v1/orgs/{org}/members"), "v1.orgs.org.members.post");
        assert_eq!(method("a", None, "GET", "/"), "get");
        assert_eq!(method("a", Some("Größe ändern!"), "PUT", "/"), "Gr_e_ndern");
        assert_eq!(integration("Acme Payments API"), "acme-payments");
        assert_eq!(integration("…"), "api");
    }

    #[test]
    fn two_that_would_meet_do_not() {
        let mut taken = Taken::new("a");
        assert_eq!(taken.give("b.c".into(), "GET /1"), "b.c");
        let other = taken.give("b_c".into(), "GET /2");
        assert!(other.starts_with("b_c_") && other != taken.give("b.c".into(), "GET /2"), "{other}");
        let mut again = Taken::new("a");
        again.take("b.c", None);
        assert_eq!(again.give("b_c".into(), "GET /2"), other);
    }

    proptest! {
        #[test]
        fn every_name_is_valid_and_its_own(ids in prop::collection::vec((prop::option::of(".{0,200}"), "[/a-z{}]{1,40}"), 1..40)) {
            let mut taken = Taken::new("api");
            let mut wire = HashSet::new();
            for (i, (id, path)) in ids.iter().enumerate() {
                let name = taken.give(method("api", id.as_deref(), "GET", path), &format!("GET {path} {i}"));
                prop_assert!(name.len() <= MAX_METHOD);
                prop_assert!(name.split('.').all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')), "{name}");
                let on_wire = wire_name(&format!("api.{name}"));
                prop_assert!(on_wire.len() <= 64 && wire.insert(on_wire));
            }
        }

        #[test]
        fn every_argument_is_valid_and_its_own(names in prop::collection::vec(".{0,80}", 1..30)) {
            let (mut all, mut seen) = (Arguments::default(), HashSet::new());
            for name in names {
                let given = all.give(&name, "query");
                prop_assert!(!given.is_empty() && given.len() <= MAX_ARGUMENT && given.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
                prop_assert!(seen.insert(given));
            }
        }
    }
}
