//! The effect key never changes: whatever the arguments, however often a manifest is read, a request is built, recorded and
//! read back, the same key stands in the same place, once.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{KEY, key, parse};
use counterfoil_provider::{HttpIntent, Preset};
use ledger::Intent;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Where a request bears the key: the name of what holds it.
fn places(intent: &Intent) -> Vec<String> {
    let http = HttpIntent::decode(&intent.body).unwrap();
    let request = http.to_http(Some(&key())).unwrap();
    let mut found: Vec<String> = request
        .headers()
        .iter()
        .filter(|(_, v)| v.to_str().is_ok_and(|v| v.contains(KEY)))
        .map(|(n, _)| format!("header {n}"))
        .collect();
    if request.uri().to_string().contains(KEY) {
        found.push("url".into());
    }
    let body = String::from_utf8(request.body().to_vec()).unwrap();
    found.extend((0..body.matches(KEY).count()).map(|_| "body".to_owned()));
    found
}

fn manifest(preset: &str) -> String {
    let method = match preset {
        "shopify" => {
            "http = \"POST /g\"\ngraphql = 'mutation M($a: A, $b: B, $c: C) { m(a: $a, b: $b, c: $c) @idempotent(key: \"{$key}\") { id } }'"
        }
        "braintree" => {
            "http = \"POST /g\"\ngraphql = 'mutation M($input: I!) { m(input: $input) { id } }'\nparams = { a = \"variable:input.a\", b = \"variable:input.b\", c = \"variable:input.c\" }"
        }
        _ => "http = \"POST /x\"\nidempotency = { mode = \"dynamic\" }",
    };
    format!("name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\npreset = \"{preset}\"\n[methods.m]\n{method}")
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        // What stands for the key in texts, and keys of others.
        Just(json!("{$key}")),
        Just(json!("{key}")),
        Just(json!("11111111-2222-8333-9444-555555555555")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z{}$\"]{1,6}", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect::<Map<String, Value>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_key_stays_where_it_is(a in value(), b in value(), c in value()) {
        let args = json!({ "a": a, "b": b, "c": c }).to_string();
        for preset in Preset::names().filter(|name| *name != "none") {
            let text = manifest(preset);
            let built: Vec<Intent> = (0..2)
                .map(|_| {
                    // Read anew, as at a reload or at another replica.
                    let i = parse(&text).unwrap();
                    let m = i.method("m").unwrap();
                    m.intent(&args, &m.recovery(None).unwrap()).unwrap()
                })
                .collect();
            prop_assert_eq!(&built[0].body, &built[1].body, "{}", preset);
            // The record holds no key, and comes back from it the same.
            prop_assert!(!String::from_utf8_lossy(&built[0].body).contains(KEY));
            let http = HttpIntent::decode(&built[0].body).unwrap();
            let again = serde_json::to_vec(&http).unwrap();
            prop_assert_eq!(&again, &built[0].body, "{}", preset);
            prop_assert_eq!(&HttpIntent::decode(&again).unwrap(), &http);
            let found = places(&built[0]);
            prop_assert_eq!(found.len(), 1, "{}: {:?}", preset, found);
            prop_assert_eq!(&found, &places(&Intent { body: again, ..built[0].clone() }), "{}", preset);
        }
    }
}
