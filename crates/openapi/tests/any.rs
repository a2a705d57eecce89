//! Whatever a description says: it is imported or refused, and what is written loads.

#![allow(clippy::unwrap_used)]

use openapi::{Description, Options};
use proptest::prelude::*;
use provider::{Format, Integration, MethodEffect, Mode};
use serde_json::{Map, Value, json};

/// What may stand where anything is expected, fitting or not.
fn junk() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        prop::collection::vec(".{0,4}", 0..3).prop_map(Value::from),
    ]
}

fn reference() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[ABCD]".prop_map(|n| json!({ "$ref": format!("#/components/schemas/{n}") })),
        Just(json!({ "$ref": "#/components/schemas/~1nowhere" })),
        Just(json!({ "$ref": "other.yaml#/X" })),
        Just(json!({ "$ref": "#" })),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({ "type": "string", "format": "date", "maxLength": 5 })),
        Just(json!({ "type": "integer", "minimum": 1, "exclusiveMinimum": true, "nullable": true })),
        Just(json!({ "type": ["number", "null"], "exclusiveMaximum": 3.5 })),
        Just(json!({ "enum": ["a", "b", "a", null] })),
        "[a-z(?!)\\[\\]\\\\^$+*]{0,8}".prop_map(|p| json!({ "type": "string", "pattern": p })),
        reference(),
        reference(),
        junk(),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let named = prop::collection::btree_map("[a-zA-Z.\\[\\]$ä-]{0,6}", inner.clone(), 0..4);
        let several = prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            (named, prop::collection::vec("[a-z]{0,3}", 0..3), any::<bool>()).prop_map(|(properties, required, closed)| {
                json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": !closed })
            }),
            inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
            several.clone().prop_map(|all| json!({ "allOf": all })),
            several.clone().prop_map(|all| json!({ "oneOf": all, "discriminator": { "propertyName": "kind" } })),
            several.prop_map(|all| json!({ "anyOf": all, "nullable": true })),
            (prop::sample::select(vec!["type", "required", "properties", "enum", "items", "not", "default", "maxLength", "multipleOf"]), junk(), inner)
                .prop_map(|(keyword, value, mut schema)| {
                    if let Value::Object(members) = &mut schema {
                        members.insert(keyword.into(), value);
                    }
                    schema
                }),
        ]
    })
}

fn parameter() -> impl Strategy<Value = Value> {
    let place = prop::sample::select(vec!["path", "query", "header", "cookie", "query"]);
    let style = prop::sample::select(vec![
        "form",
        "simple",
        "label",
        "matrix",
        "deepObject",
        "spaceDelimited",
        "pipeDelimited",
        "odd",
    ]);
    ("[a-zA-Z\\[\\]$. -]{0,8}", place, style, any::<Option<bool>>(), any::<bool>(), schema()).prop_map(
        |(name, place, style, explode, required, schema)| {
            let mut p = json!({ "name": name, "in": place, "required": required, "schema": schema });
            if let Some(explode) = explode {
                p["style"] = json!(style);
                p["explode"] = json!(explode);
            }
            p
        },
    )
}

fn operation() -> impl Strategy<Value = Value> {
    let media = prop::sample::select(vec![
        "application/json",
        "application/x-www-form-urlencoded",
        "text/plain",
        "application/vnd.x+json",
        "*/*",
        "multipart/form-data",
        "application/octet-stream",
        "image/png",
    ]);
    (
        prop::option::of(".{0,20}"),
        prop::collection::vec(parameter(), 0..5),
        prop::option::of((media, schema(), any::<bool>())),
        junk(),
    )
        .prop_map(|(id, parameters, body, responses)| {
            let mut op = json!({ "parameters": parameters, "responses": responses });
            if let Some(id) = id {
                op["operationId"] = json!(id);
            }
            if let Some((media, schema, required)) = body {
                op["requestBody"] =
                    json!({ "required": required, "content": { media: { "schema": schema } } });
            }
            op
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_description_is_imported_or_refused(
        operations in prop::collection::vec(("/[a-z{}/.#?=&ä -]{0,12}", prop::sample::select(vec!["get", "put", "post", "delete", "patch", "head"]), operation()), 1..6),
        schemas in prop::collection::vec(schema(), 4),
    ) {
        let mut paths = Map::new();
        let count = operations.len();
        for (path, verb, operation) in operations {
            paths.entry(path).or_insert_with(|| json!({}))[verb] = operation;
        }
        let held: usize = paths.values().map(|p| p.as_object().unwrap().len()).sum();
        prop_assert!(held <= count);
        let named: Map<String, Value> = ["A", "B", "C", "D"].iter().map(|n| (*n).to_owned()).zip(schemas).collect();
        let text = json!({
            "openapi": "3.0.0", "info": { "title": "Any" }, "servers": [{ "url": "https://api.example/v1" }],
            "paths": paths, "components": { "schemas": named },
        }).to_string();
        let Ok(imported) = Description::read(&text).unwrap().import(&Options::default(), None) else { return Ok(()) };
        prop_assert_eq!(imported.report.methods + imported.report.skipped.len(), held, "nothing is dropped in silence");
        let integration = Integration::parse("m", &imported.manifest, Format::Toml, Mode::Production).unwrap();
        for method in integration.methods() {
            let input = method.input_schema();
            prop_assert!(input.to_string().len() < 64 << 10 && !input.to_string().contains("\"$ref\""));
            let compiled = jsonschema::options()
                .with_draft(jsonschema::Draft::Draft202012)
                .with_pattern_options(jsonschema::PatternOptions::regex())
                .build(input);
            prop_assert!(compiled.is_ok(), "{input}");
            // No arguments: a request or a refusal.
            match method.effect() {
                MethodEffect::Read => drop(method.read_request("{}")),
                MethodEffect::Mutating => drop(method.intent("{}", &method.recovery(None).unwrap())),
            }
        }
        let again = Description::read(&text).unwrap().import(&Options::default(), Some(&imported.manifest)).unwrap();
        prop_assert!(again.report.changes.is_empty(), "{:?}", again.report.changes);
        prop_assert_eq!(again.manifest, imported.manifest);
    }
}
