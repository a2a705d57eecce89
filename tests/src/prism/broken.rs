//! Requests that are broken on purpose: a validator that takes them shows nothing by taking the others.

use super::prune::{FORM, VERBS, resolved};
use super::recorder::Request;
use crate::random::Random;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What is broken, in the order in which it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// A field of the body, or a parameter of the query, that must be there is not.
    LeftOut,
    /// A text where a number or a truth value should be.
    WrongType,
    /// No body where there must be one.
    NoBody,
    /// No credential where there must be one.
    NoCredential,
    /// A verb that the path does not have.
    Verb,
    /// A path that is not described.
    Path,
}

impl Fault {
    /// Whether it breaks what a schema says, not only the way.
    pub(super) fn is_of_schema(self) -> bool {
        matches!(self, Fault::LeftOut | Fault::WrongType | Fault::NoBody)
    }
}

/// So many of what can be broken of good requests, as many kinds as there are.
pub(super) fn broken(
    root: &Value,
    good: &[(String, Request)],
    count: usize,
    seed: u64,
) -> Vec<(Fault, String, Request)> {
    let mut kinds: BTreeMap<Fault, Vec<(String, Request)>> = BTreeMap::new();
    for (http, request) in good {
        for (fault, broken) in of(root, http, request) {
            kinds.entry(fault).or_default().push((http.clone(), broken));
        }
    }
    let mut random = Random::new(seed, 2);
    kinds.values_mut().for_each(|all| random.shuffle(all));
    let mut chosen = Vec::new();
    while chosen.len() < count && kinds.values().any(|all| !all.is_empty()) {
        let room = count - chosen.len();
        let next = kinds.iter_mut().filter_map(|(fault, all)| all.pop().map(|(http, r)| (*fault, http, r)));
        chosen.extend(next.take(room));
    }
    chosen
}

/// Everything that can be broken of one request.
fn of(root: &Value, http: &str, request: &Request) -> Vec<(Fault, Request)> {
    let mut all = Vec::new();
    let (verb, path) = http.split_once(' ').unwrap_or_default();
    let item = &root["paths"][path];
    let operation = &item[verb.to_lowercase()];
    let with = |change: &dyn Fn(&mut Request)| {
        let mut broken = request.clone();
        change(&mut broken);
        broken
    };
    all.push((Fault::Path, with(&|r| r.target = format!("/not/described{}", r.target))));
    if let Some(other) =
        ["PUT", "PATCH", "DELETE", "POST"].into_iter().find(|v| item.get(v.to_lowercase()).is_none())
    {
        debug_assert!(VERBS.contains(&other.to_lowercase().as_str()));
        all.push((Fault::Verb, with(&|r| other.clone_into(&mut r.verb))));
    }
    let security = operation.get("security").or_else(|| root.get("security")).and_then(Value::as_array);
    // An empty requirement among them says that none is needed.
    let asked = security
        .is_some_and(|s| !s.is_empty() && s.iter().all(|one| one.as_object().is_some_and(|o| !o.is_empty())));
    if asked && request.header("authorization").is_some() {
        all.push((
            Fault::NoCredential,
            with(&|r| r.headers.retain(|(n, _)| !n.eq_ignore_ascii_case("authorization"))),
        ));
    }
    let body = resolved(root, &operation["requestBody"]);
    if body["required"] == true && !request.body.is_empty() {
        all.push((
            Fault::NoBody,
            with(&|r| {
                r.body.clear();
                r.headers.retain(|(n, _)| !n.eq_ignore_ascii_case("content-type"));
            }),
        ));
    }
    all.extend(in_query(root, item, operation, request));
    all.extend(in_body(root, body, request));
    all
}

fn in_query(root: &Value, item: &Value, operation: &Value, request: &Request) -> Vec<(Fault, Request)> {
    let mut all = Vec::new();
    let Some((path, query)) = request.target.split_once('?') else { return all };
    let lists = [&item["parameters"], &operation["parameters"]];
    for parameter in lists.into_iter().filter_map(Value::as_array).flatten().map(|p| resolved(root, p)) {
        let name = parameter["name"].as_str().unwrap_or_default();
        let schema = resolved(root, &parameter["schema"]);
        let pairs: Vec<&str> = query.split('&').collect();
        let is_it = |pair: &str| pair.split('=').next() == Some(name);
        if parameter["in"] != "query" || !pairs.iter().any(|p| is_it(p)) {
            continue;
        }
        let mut write = |fault: Fault, pairs: Vec<String>| {
            all.push((fault, Request { target: format!("{path}?{}", pairs.join("&")), ..request.clone() }));
        };
        if parameter["required"] == true {
            write(Fault::LeftOut, pairs.iter().filter(|p| !is_it(p)).map(ToString::to_string).collect());
        }
        if is_strict(schema) {
            let wrong = |p: &&str| if is_it(p) { format!("{name}=neither") } else { (*p).to_owned() };
            write(Fault::WrongType, pairs.iter().map(wrong).collect());
        }
    }
    all
}

fn in_body(root: &Value, body: &Value, request: &Request) -> Vec<(Fault, Request)> {
    let mut all = Vec::new();
    let kind = request.header("content-type").and_then(|t| t.split(';').next()).unwrap_or_default().trim();
    let schema = resolved(root, &body["content"][kind]["schema"]);
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object();
    let strict = properties
        .into_iter()
        .flatten()
        .filter(|(_, s)| is_strict(resolved(root, s)))
        .map(|(n, _)| n.as_str());
    let strict: Vec<&str> = strict.collect();
    let mut write = |fault: Fault, body: Vec<u8>| all.push((fault, Request { body, ..request.clone() }));
    if kind.ends_with("json") {
        let Ok(Value::Object(given)) = serde_json::from_slice::<Value>(&request.body) else { return all };
        let changed = |change: &dyn Fn(&mut Map<String, Value>)| {
            let mut other = given.clone();
            change(&mut other);
            Value::Object(other).to_string().into_bytes()
        };
        if let Some(name) = required.iter().find(|n| given.contains_key(**n)) {
            write(Fault::LeftOut, changed(&|o| drop(o.shift_remove(*name))));
        }
        if let Some(name) = strict.iter().find(|n| given.contains_key(**n)) {
            write(Fault::WrongType, changed(&|o| drop(o.insert((*name).to_owned(), "neither".into()))));
        }
    } else if kind == FORM {
        let text = String::from_utf8_lossy(&request.body).into_owned();
        let pairs: Vec<&str> = text.split('&').collect();
        let is_of = |pair: &str, name: &str| {
            pair.split('=').next().is_some_and(|n| n == name || n.starts_with(&format!("{name}%5B")))
        };
        if let Some(name) = required.iter().find(|n| pairs.iter().any(|p| is_of(p, n))) {
            let left: Vec<&str> = pairs.iter().filter(|p| !is_of(p, name)).copied().collect();
            // Without a body nothing is missing where none need be.
            if !left.is_empty() || body["required"] == true {
                write(Fault::LeftOut, left.join("&").into_bytes());
            }
        }
        if let Some(name) = strict.iter().find(|n| pairs.iter().any(|p| p.split('=').next() == Some(n))) {
            let wrong = |p: &&str| {
                if p.split('=').next() == Some(name) { format!("{name}=neither") } else { (*p).to_owned() }
            };
            write(Fault::WrongType, pairs.iter().map(wrong).collect::<Vec<_>>().join("&").into_bytes());
        }
    }
    all
}

/// Whether a text can't be what the schema wants.
fn is_strict(schema: &Value) -> bool {
    ["integer", "number", "boolean"].contains(&schema["type"].as_str().unwrap_or_default())
        && schema["nullable"] != true
}

#[cfg(test)]
mod tests {
    use super::{Fault, broken};
    use crate::prism::recorder::Request;
    use serde_json::json;

    #[test]
    fn what_can_be_broken_is() {
        let root = json!({
            "security": [{ "key": [] }],
            "paths": { "/a/{id}": {
                "parameters": [{ "$ref": "#/components/parameters/n" }],
                "post": { "requestBody": { "required": true, "content": { "application/json": { "schema": { "required": ["m"], "properties": { "m": { "type": "string" }, "b": { "type": "boolean" } } } } } } },
                "get": { "security": [] },
            } },
            "components": { "parameters": { "n": { "in": "query", "name": "n", "required": true, "schema": { "type": "integer" } } } },
        });
        let post = Request {
            verb: "POST".into(),
            target: "/a/1?n=5&o=6".into(),
            headers: vec![
                ("Content-Type".into(), "application/json".into()),
                ("authorization".into(), "x".into()),
            ],
            body: br#"{"m":"x","b":true}"#.to_vec(),
        };
        let get = Request { verb: "GET".into(), body: Vec::new(), ..post.clone() };
        let good = [("POST /a/{id}".to_owned(), post), ("GET /a/{id}".to_owned(), get)];
        let all = broken(&root, &good, 100, 3);
        let count = |fault: Fault| all.iter().filter(|(f, ..)| *f == fault).count();
        assert_eq!(count(Fault::LeftOut), 3);
        assert_eq!(count(Fault::WrongType), 3);
        assert_eq!(
            (count(Fault::NoBody), count(Fault::NoCredential), count(Fault::Verb), count(Fault::Path)),
            (1, 1, 2, 2)
        );
        assert!(
            all.iter().any(|(_, _, r)| r.target == "/a/1?o=6")
                && all.iter().any(|(_, _, r)| r.target == "/a/1?n=neither&o=6")
        );
        let kinds: Vec<Fault> = broken(&root, &good, 6, 3).into_iter().map(|(f, ..)| f).collect();
        assert_eq!(
            kinds,
            [Fault::LeftOut, Fault::WrongType, Fault::NoBody, Fault::NoCredential, Fault::Verb, Fault::Path]
        );
    }
}
