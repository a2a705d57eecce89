//! Importing again, whatever the provider changed meanwhile: an operation keeps its name, so its canonical id, and the place
//! of its key. These are what an effect key and a retry depend on.

#![allow(clippy::unwrap_used)]

use openapi::{Description, Options, Selection};
use proptest::prelude::*;
use provider::{Format, Integration, Mode};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// One operation of a provider, in its present version.
#[derive(Clone, Debug)]
struct Op {
    path: String,
    verb: &'static str,
    id: Option<String>,
    summary: String,
    key: Option<&'static str>,
    fields: Vec<String>,
    tag: &'static str,
}

fn op() -> impl Strategy<Value = Op> {
    (
        "/[a-c]{1,2}(/\\{id\\})?(\\?x=[ab])?",
        prop::sample::select(vec!["post", "put", "delete", "get"]),
        prop::option::of("[ab]{1,2}[./_]?[AB]?"),
        "[A-Z][a-z]{0,8}",
        prop::option::of(prop::sample::select(vec!["Idempotency-Key", "idempotency_key", "X-Request-Id"])),
        prop::collection::vec("[a-d]", 0..3),
        prop::sample::select(vec!["one", "two"]),
    )
        .prop_map(|(path, verb, id, summary, key, fields, tag)| Op {
            path,
            verb,
            id,
            summary,
            key,
            fields,
            tag,
        })
}

/// What a provider may do to an operation between two versions.
#[derive(Clone, Debug)]
enum Change {
    Summary(String),
    Field(String),
    Tag(&'static str),
    Id(Option<String>),
    Gone,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        "[A-Z][a-z]{0,8}".prop_map(Change::Summary),
        "[a-f]".prop_map(Change::Field),
        Just(Change::Tag("two")),
        prop::option::of("[ab]{1,2}").prop_map(Change::Id),
        Just(Change::Gone),
    ]
}

fn described(ops: &[Op]) -> String {
    let mut paths = Map::new();
    for op in ops {
        let mut parameters = Vec::new();
        if op.path.contains("{id}") {
            parameters.push(
                json!({ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } }),
            );
        }
        let mut properties: Map<String, Value> =
            op.fields.iter().map(|f| (f.clone(), json!({ "type": "string" }))).collect();
        match op.key {
            Some(name @ ("Idempotency-Key" | "X-Request-Id")) => parameters.push(json!({
                "name": name, "in": "header", "description": "Makes it idempotent.", "schema": { "type": "string" },
            })),
            Some(name) => drop(properties.insert(name.to_owned(), json!({ "type": "string" }))),
            None => {}
        }
        let mut operation =
            json!({ "summary": op.summary, "parameters": parameters, "tags": [op.tag], "responses": {} });
        if let Some(id) = &op.id {
            operation["operationId"] = json!(id);
        }
        if op.verb != "get" {
            operation["requestBody"] = json!({ "content": { "application/json": { "schema": { "type": "object", "properties": properties } } } });
        }
        paths.entry(op.path.clone()).or_insert_with(|| json!({}))[op.verb] = operation;
    }
    json!({ "openapi": "3.0.0", "info": { "title": "Api" }, "servers": [{ "url": "https://a.example" }], "paths": paths })
        .to_string()
}

/// By verb and path as described: canonical id, tool name, place of the key, strategy.
fn known(manifest: &str) -> BTreeMap<String, [String; 4]> {
    let api = Integration::parse("m", manifest, Format::Toml, Mode::Production).unwrap();
    let written: toml_edit::DocumentMut = manifest.parse().unwrap();
    let methods = written["methods"].as_table().unwrap();
    let of = |name: &str| {
        let method = api.method(name).unwrap();
        let strategy = match method.effect() {
            provider::MethodEffect::Read => "read".to_owned(),
            provider::MethodEffect::Mutating => method.recovery(None).unwrap().strategy.word().to_owned(),
        };
        [
            method.canonical_id().to_owned(),
            method.wire_name(),
            method.key_carrier().unwrap_or_default(),
            strategy,
        ]
    };
    methods.iter().map(|(name, m)| (m["imported"]["http"].as_str().unwrap().to_owned(), of(name))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn names_ids_and_carriers_stay(
        ops in prop::collection::vec(op(), 1..8),
        more in prop::collection::vec(op(), 0..5),
        changes in prop::collection::vec((any::<prop::sample::Index>(), change()), 0..8),
        first_by_tag in any::<bool>(),
    ) {
        let mut seen = std::collections::BTreeSet::new();
        let ops: Vec<Op> = ops.into_iter().filter(|o| seen.insert((o.path.clone(), o.verb))).collect();
        let selection = match first_by_tag {
            true => Selection { tags: vec![ops[0].tag.into()], ..Selection::default() },
            false => Selection::default(),
        };
        let options = Options { selection, ..Options::default() };
        let first = Description::read(&described(&ops)).unwrap().import(&options, None).unwrap();
        let before = known(&first.manifest);
        // The next version: changed, and with new operations in front, which must take nobody's name.
        let mut next = ops.clone();
        for (at, change) in changes {
            let at = at.index(next.len());
            match change {
                Change::Summary(s) => next[at].summary = s,
                Change::Field(f) => next[at].fields.push(f),
                Change::Tag(t) => next[at].tag = t,
                Change::Id(id) => next[at].id = id,
                Change::Gone if next.len() > 1 => drop(next.remove(at)),
                Change::Gone => {}
            }
        }
        // One verb and path has one operation: the old one, or none. (Where a key travels is the provider's word.)
        let taken: Vec<(&String, &str)> = ops.iter().map(|o| (&o.path, o.verb)).collect();
        let fresh: Vec<Op> = more.into_iter().filter(|o| !taken.contains(&(&o.path, o.verb))).collect();
        let next = [fresh, next].concat();
        // All that was there may be gone.
        let all = Options { all: true, replace: true, ..Options::default() };
        let second = Description::read(&described(&next)).unwrap().import(&all, Some(&first.manifest)).unwrap();
        let after = known(&second.manifest);
        for (http, was) in &before {
            let Some(now) = after.get(http) else { continue };
            prop_assert_eq!(&was[..3], &now[..3], "{}", http);
            // An effect is not taken for a read by another word of the provider's, nor a strategy for a stronger one.
            if !["GET"].iter().any(|v| http.starts_with(v)) {
                prop_assert_eq!(&was[3], &now[3], "{}", http);
            }
        }
        let ids: Vec<&String> = after.values().map(|v| &v[0]).collect();
        prop_assert!(ids.iter().all(|id| ids.iter().filter(|o| o == &id).count() == 1));
        let third = Description::read(&described(&next)).unwrap().import(&Options::default(), Some(&second.manifest)).unwrap();
        prop_assert_eq!(third.manifest, second.manifest);
    }
}
