//! Which operation of a description is which method that is there, and which of them an operator has taken out.

use crate::manifest::Known;
use crate::names;
use crate::operation::Described;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

/// Verb and path, however the holes are called: `GET /users/{}`.
fn shape(http: &str) -> String {
    let mut out = String::new();
    let mut rest = http;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((_, after)) = after.split_once('}') else { break };
        out.push_str(before);
        out.push_str("{}");
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Where each key is that nothing else has.
fn unique<K: Hash + Eq>(keys: impl Iterator<Item = (usize, K)>) -> HashMap<K, usize> {
    let mut all: HashMap<K, Option<usize>> = HashMap::new();
    for (at, key) in keys {
        all.entry(key).and_modify(|one| *one = None).or_insert(Some(at));
    }
    all.into_iter().filter_map(|(key, at)| Some((key, at?))).collect()
}

/// The ids that one operation has, and no other.
fn ids<'a>(all: &[Described<'a>]) -> HashMap<&'a str, usize> {
    unique(all.iter().enumerate().filter_map(|(i, d)| Some((i, d.id()?))))
}

/// Of methods that were imported from one verb and path the one that was: what an operator has copied from it has another
/// name. Where none has the name that the operation asks for, the first.
fn originals<'k>(known: &'k [Known], integration: &str) -> BTreeMap<&'k str, usize> {
    let is_named = |k: &Known| {
        let parts = k.http.as_deref().and_then(|http| http.split_once(' '));
        parts.is_some_and(|(verb, path)| {
            names::method(integration, k.operation.as_deref(), verb, path) == k.name
        })
    };
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, k) in known.iter().enumerate() {
        let Some(http) = &k.http else { continue };
        let one = all.entry(http).or_insert(i);
        if *one != i && is_named(k) && !is_named(&known[*one]) {
            *one = i;
        }
    }
    all
}

/// For each operation the method that is there, if one is: no two have the same. Copies of an operator's are none.
pub(crate) fn found(known: &[Known], all: &[Described<'_>], integration: &str) -> Vec<Option<usize>> {
    let mut at: Vec<Option<usize>> = vec![None; all.len()];
    let mut free = vec![true; known.len()];
    let take = |at: &mut Vec<Option<usize>>, free: &mut Vec<bool>, operation: usize, method: usize| {
        if at[operation].is_none() && free[method] {
            at[operation] = Some(method);
            free[method] = false;
        }
    };
    // Who is where it was comes first.
    let originals = originals(known, integration);
    let https: Vec<String> = all.iter().map(Described::http).collect();
    for (i, http) in https.iter().enumerate() {
        if let Some(k) = originals.get(http.as_str()) {
            take(&mut at, &mut free, i, *k);
        }
    }
    // Then who is there but for the names of holes, which nobody sends.
    let still: BTreeSet<&str> = at.iter().flatten().filter_map(|k| known[*k].http.as_deref()).collect();
    let moved: Vec<(usize, &str)> =
        originals.iter().filter(|(http, _)| !still.contains(*http)).map(|(http, i)| (*i, *http)).collect();
    let by_shape = unique(moved.iter().map(|(i, http)| (*i, shape(http))));
    let open = |at: &[Option<usize>], i: usize| at[i].is_none();
    let shapes = unique(https.iter().enumerate().filter(|(i, _)| open(&at, *i)).map(|(i, h)| (i, shape(h))));
    for (shape, i) in &shapes {
        if let Some(k) = by_shape.get(shape) {
            take(&mut at, &mut free, *i, *k);
        }
    }
    // Then who has moved and kept its id.
    let by_id = unique(moved.iter().filter_map(|(i, _)| Some((*i, known[*i].operation.as_deref()?))));
    for (id, i) in ids(all) {
        if let Some(k) = by_id.get(id) {
            take(&mut at, &mut free, i, *k);
        }
    }
    at
}

/// The methods that a description no longer has. What was never imported is the operator's own, and no such.
pub(crate) fn gone(known: &[Known], all: &[Described<'_>], found: &[Option<usize>]) -> BTreeSet<String> {
    let mut there: BTreeSet<String> = all.iter().map(Described::http).collect();
    let found = || found.iter().flatten().map(|k| &known[*k]);
    there.extend(found().filter_map(|k| k.http.clone()));
    // A copy of one that is there, whose holes were called otherwise when it was copied.
    let twin = |k: &Known| Some((k.operation.clone()?, shape(k.http.as_deref()?)));
    let twins: BTreeSet<(String, String)> = found().filter_map(twin).collect();
    let is_there = |k: &&Known| {
        k.http.as_ref().is_none_or(|http| there.contains(http)) || twin(k).is_some_and(|t| twins.contains(&t))
    };
    let gone = known.iter().filter(|k| !is_there(k));
    gone.map(|k| k.name.clone()).collect()
}

/// Operations by verb and path, with the ids that each was seen with.
pub(crate) type Places = BTreeMap<String, BTreeSet<String>>;

/// What an operator has taken out, to be recognised whatever the provider calls it next.
pub(crate) struct TakenOut<'a> {
    places: Places,
    shapes: BTreeSet<String>,
    seen: BTreeSet<String>,
    /// The ids of the description that one operation has.
    ids: HashMap<&'a str, usize>,
}

impl<'a> TakenOut<'a> {
    pub(crate) fn new(places: Places, all: &[Described<'a>]) -> TakenOut<'a> {
        let shapes = places.keys().map(|http| shape(http)).collect();
        let seen = places.values().flatten().cloned().collect();
        TakenOut { places, shapes, seen, ids: ids(all) }
    }

    /// Whether an operation is one of these: by its path, whatever its holes are called, or by its id.
    pub(crate) fn has(&self, described: &Described<'_>) -> bool {
        let id = described.id().filter(|id| self.ids.contains_key(id));
        self.shapes.contains(&shape(&described.http())) || id.is_some_and(|id| self.seen.contains(id))
    }

    /// It stays out, under the path and id that it has now as well.
    pub(crate) fn stays_out(&mut self, described: &Described<'_>) {
        let ids = self.places.entry(described.http()).or_default();
        ids.extend(described.id().map(str::to_owned));
    }

    /// It was brought back.
    pub(crate) fn is_back(&mut self, described: &Described<'_>) {
        let own = shape(&described.http());
        self.places
            .retain(|http, ids| shape(http) != own && !described.id().is_some_and(|id| ids.contains(id)));
    }

    pub(crate) fn into_places(self) -> Places {
        self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn holes_have_no_names() {
        for (http, is) in [
            ("GET /a/{id}/b/{x}", "GET /a/{}/b/{}"),
            ("GET /a", "GET /a"),
            ("GET /a?x={y}#{", "GET /a?x={}#{"),
            ("GET /{", "GET /{"),
        ] {
            assert_eq!(shape(http), is);
        }
    }

    #[test]
    fn each_operation_is_one_method_at_most() {
        let known = |name: &str, http: &str, id: &str| Known {
            name: name.into(),
            wire: None,
            http: Some(http.to_owned()).filter(|h| !h.is_empty()),
            operation: Some(id.to_owned()).filter(|id| !id.is_empty()),
            touched: false,
        };
        let methods = [
            known("a", "GET /a/{x}", "a"),
            // An operator's copy of it, and one of their own.
            known("copy", "GET /a/{x}", "a"),
            known("own", "", ""),
            known("b", "GET /b", "b"),
            known("lost", "GET /lost", "lost"),
        ];
        let (nothing, a, b) = (
            Value::Null,
            serde_json::json!({ "operationId": "x" }),
            serde_json::json!({ "operationId": "b" }),
        );
        let of = |path, operation| Described { verb: "GET", path, item: &nothing, operation };
        let all = [of("/a/{y}", &a), of("/c", &b), of("/d", &nothing)];
        // The one that was imported is found, wherever its copies are, and keeps its name.
        assert_eq!(found(&methods, &all, "x"), [Some(0), Some(3), None]);
        let mut reversed = methods.clone();
        reversed.reverse();
        assert_eq!(found(&reversed, &all, "x"), [Some(4), Some(1), None]);
        let gone = gone(&methods, &all, &found(&methods, &all, "x"));
        assert_eq!(
            gone.into_iter().collect::<Vec<_>>(),
            ["lost"],
            "a copy is not gone while its twin is there"
        );
        // Neither is it once its twin has another hole's name; and two of one shape are not taken for one another.
        let (x, y) = (known("a", "GET /a/{y}", "a"), known("copy", "GET /a/{x}", "a"));
        let at = found(&[x.clone(), y.clone()], &all, "x");
        assert!(at[0] == Some(0) && super::gone(&[x, y], &all, &at).is_empty());
        let two = [known("x", "GET /a/{x}", ""), known("y", "GET /a/{z}", "")];
        assert_eq!(found(&two, &all, "x"), [None, None, None]);
    }
}
