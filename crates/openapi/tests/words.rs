//! What descriptions say with words beside the usual ones: parameters with slashes, alternatives that only require, HEAD.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use openapi::{Description, Imported, Options};
use provider::{Format, Integration, MethodEffect, Mode};
use serde_json::{Value, json};

fn import(paths: &Value, schemas: &Value) -> (Imported, Integration) {
    let text = json!({
        "openapi": "3.0.3",
        "info": { "title": "Code", "version": "1" },
        "servers": [{ "url": "https://api.example.com" }],
        "paths": paths,
        "components": { "schemas": schemas },
    });
    let imported = Description::read(&text.to_string()).unwrap().import(&Options::default(), None).unwrap();
    let integration =
        Integration::parse("m.toml", &imported.manifest, Format::Toml, Mode::Production).unwrap();
    (imported, integration)
}

fn parameter(name: &str, more: &Value) -> Value {
    let mut all = json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

#[test]
fn a_parameter_has_slashes_where_its_description_says_so() {
    let several = json!({ "x-multi-segment": true });
    let get = |id: &str, parameters: &[Value]| json!({ "get": { "operationId": id, "parameters": parameters, "responses": {} } });
    let paths = json!({
        "/contents/{path}": get("contents", &[parameter("path", &several)]),
        "/commits/{ref}/status": get("status", &[parameter("ref", &several)]),
        "/no/{path}": get("no", &[parameter("path", &json!({ "x-multi-segment": false }))]),
        "/reserved/{path}": get("reserved", &[parameter("path", &json!({ "allowReserved": true }))]),
        "/two/{a}/{b}": get("two", &[parameter("a", &several), parameter("b", &several)]),
        "/part/v{a}": get("part", &[parameter("a", &several)]),
        "/label/{a}": get("label", &[parameter("a", &json!({ "x-multi-segment": true, "style": "label" }))]),
    });
    let (imported, code) = import(&paths, &json!({}));
    let url = |name: &str, args: Value| {
        let method = code.method(name).unwrap();
        method.read_request(&args.to_string()).map(|r| r.shown()).map_err(|e| e.to_string())
    };
    assert_eq!(
        url("contents", json!({ "path": "src/a b.rs" })).unwrap(),
        "GET https://api.example.com/contents/src/a%20b.rs"
    );
    assert_eq!(
        url("status", json!({ "ref": "heads/main" })).unwrap(),
        "GET https://api.example.com/commits/heads/main/status"
    );
    assert_eq!(url("two", json!({ "a": "x", "b": "y/z" })).unwrap(), "GET https://api.example.com/two/x/y/z");
    assert!(url("contents", json!({ "path": "../secrets" })).is_err());
    for name in ["no", "reserved"] {
        assert!(url(name, json!({ "path": "a/b" })).is_err(), "{name}");
    }
    for name in ["part", "label"] {
        assert!(
            url(name, json!({ "a": "a/b" })).is_err() && url(name, json!({ "a": "a" })).is_ok(),
            "{name}"
        );
    }
    assert!(url("two", json!({ "a": "x/y", "b": "z" })).is_err());
    let noted: Vec<&str> = imported
        .report
        .notes
        .iter()
        .filter(|n| n.note.contains("may have slashes"))
        .filter_map(|n| n.method.as_deref())
        .collect();
    assert_eq!(noted, ["two", "part"]);
}

/// The schema of the argument `body`, or of all, and what it takes.
fn takes(schema: &Value, schemas: &Value, fits: &[(Value, bool)]) {
    let paths = json!({ "/a": { "patch": {
        "operationId": "change",
        "requestBody": { "required": true, "content": { "application/json": { "schema": schema } } },
        "responses": {},
    } } });
    let (_, code) = import(&paths, schemas);
    let input = code.method("change").unwrap().input_schema().clone();
    let validator = jsonschema::validator_for(&input).unwrap();
    let whole = input["properties"].get("body").is_some();
    for (given, fits) in fits {
        let args = if whole { json!({ "body": given }) } else { given.clone() };
        assert_eq!(validator.is_valid(&args), *fits, "{given}: {input}");
    }
}

#[test]
fn alternatives_require_what_stands_beside_them() {
    // As GitHub describes the change of a check.
    let check = json!({
        "type": "object",
        "properties": {
            "status": { "type": "string", "enum": ["queued", "in_progress", "completed"] },
            "conclusion": { "type": "string" },
            "name": { "type": "string" },
        },
        "anyOf": [
            { "properties": { "status": { "enum": ["completed"] } }, "required": ["conclusion"], "additionalProperties": true },
            { "properties": { "status": { "enum": ["queued", "in_progress"] } }, "additionalProperties": true },
        ],
    });
    let fits = [
        (json!({ "name": "lint" }), true),
        (json!({ "status": "queued" }), true),
        (json!({ "status": "completed", "conclusion": "success" }), true),
        (json!({ "conclusion": "success" }), true),
        (json!({ "status": "completed" }), false),
        (json!({ "status": "done", "conclusion": "success" }), false),
    ];
    takes(&check, &json!({}), &fits);
    takes(&json!({ "allOf": [check] }), &json!({}), &fits);
    takes(
        &json!({ "type": "object", "properties": { "check": { "$ref": "#/components/schemas/Check" } }, "required": ["check"] }),
        &json!({ "Check": check }),
        &fits.map(|(given, fits)| (json!({ "check": given }), fits)),
    );
}

#[test]
fn parts_require_what_other_parts_have() {
    let base = json!({ "Base": { "type": "object", "properties": {
        "id": { "type": "string", "readOnly": true }, "a": { "type": "integer" }, "b": { "type": "integer" },
    } } });
    let of = |more: Value| {
        let parts = json!({ "allOf": [{ "$ref": "#/components/schemas/Base" }, more] });
        json!({ "type": "object", "properties": { "it": parts }, "required": ["it"] })
    };
    let it = |given: Value, fits| (json!({ "it": given }), fits);
    takes(
        &of(json!({ "required": ["a"] })),
        &base,
        &[it(json!({ "a": 1 }), true), it(json!({ "b": 1 }), false)],
    );
    takes(
        &of(json!({ "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] })),
        &base,
        &[it(json!({ "a": 1 }), true), it(json!({ "b": 1 }), true), it(json!({ "c": 1 }), false)],
    );
    // What only the provider writes is required of nobody, nor what is described nowhere.
    for name in ["id", "other"] {
        takes(
            &of(json!({ "anyOf": [{ "required": [name] }, { "required": ["a"] }] })),
            &base,
            &[it(json!({ "b": 1 }), true)],
        );
        takes(&of(json!({ "required": [name] })), &base, &[it(json!({ "b": 1 }), true)]);
    }
    // One part's word for it is enough, in whichever order, for the alternatives too.
    let open = json!({ "properties": { "id": { "type": "string" } } });
    let closed = json!({ "properties": { "id": { "readOnly": true } }, "required": ["id"] });
    let choice = json!({ "anyOf": [{ "required": ["id"] }, { "type": "string" }] });
    for parts in [[&open, &closed, &closed], [&closed, &open, &open], [&open, &closed, &choice]] {
        let within = json!({ "type": "object", "properties": { "it": { "allOf": parts } } });
        takes(
            &within,
            &base,
            &[it(json!({}), true), it(json!({ "id": "i" }), true), it(json!({ "id": 1 }), false)],
        );
    }
    // The properties of an object are not those of an object in it.
    let inner = json!({ "type": "object", "properties": { "a": { "type": "integer" }, "in": { "anyOf": [
        { "type": "object", "required": ["a"] }, { "type": "string" },
    ] } } });
    takes(&inner, &json!({}), &[(json!({ "in": {} }), true), (json!({ "in": 1 }), false)]);
}

#[test]
fn a_head_with_an_action_behind_its_path_is_no_read() {
    let head = |id: &str| json!({ "head": { "operationId": id, "responses": {} } });
    let paths = json!({
        "/things/{id}": head("head_thing"),
        "/rpc?action=delete": head("rpc_a"),
        "/rpc#Action=StopThings": head("rpc_b"),
        "/rpc?action=list": head("rpc_c"),
    });
    let (_, code) = import(&paths, &json!({}));
    let effect = |name: &str| code.method(name).unwrap().effect();
    for (name, expected) in [
        ("head_thing", MethodEffect::Read),
        ("rpc_a", MethodEffect::Mutating),
        ("rpc_b", MethodEffect::Mutating),
        ("rpc_c", MethodEffect::Read),
    ] {
        assert_eq!(effect(name), expected, "{name}");
    }
    let method = code.method("rpc_a").unwrap();
    assert_eq!(method.recovery(None).unwrap().strategy.word(), "none");
    assert!(method.intent("{}", &method.recovery(None).unwrap()).is_ok());
}
