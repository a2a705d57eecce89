//! A description with only some of its operations, so that a validator that unfolds every reference has it in time.
//!
//! What judges a request is left as it is published: path items, parameters, bodies, security, and the components that
//! these refer to. What judges an answer is replaced by an answer that is always the same. And three things are written
//! otherwise, since the validator stumbles over them: bodies and parameters that are only referred to stand in their
//! places, the style of lists in forms is said where it is the default, and alternatives may overlap.

use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The members of a path item that are operations.
pub(super) const VERBS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// How many operations a description has.
pub(super) fn operations(root: &Value) -> u64 {
    let paths = root["paths"].as_object().into_iter().flatten();
    let verbs = |item: &Value| VERBS.iter().filter(|verb| item.get(**verb).is_some()).count();
    paths.map(|(_, item)| verbs(item) as u64).sum()
}

/// The description with these operations (`POST /v1/refunds`) alone.
pub(super) fn pruned(root: &Value, keep: &BTreeSet<String>) -> Value {
    let mut paths = Map::new();
    for (path, item) in root["paths"].as_object().into_iter().flatten() {
        let mut left = item.clone();
        follow(root, &mut left);
        let Some(members) = left.as_object_mut() else { continue };
        members.retain(|name, _| {
            !VERBS.contains(&name.as_str()) || keep.contains(&format!("{} {path}", name.to_uppercase()))
        });
        for verb in VERBS {
            if let Some(operation) = members.get_mut(verb) {
                follow(root, operation);
            }
            if let Some(operation) = members.get_mut(verb).and_then(Value::as_object_mut) {
                operation.insert("responses".into(), responses());
                operation.shift_remove("callbacks");
                if let Some(body) = operation.get_mut("requestBody") {
                    *body = resolved(root, body).clone();
                }
                if let Some(form) = operation.get_mut("requestBody").and_then(|b| b["content"].get_mut(FORM))
                {
                    say_defaults(root, form);
                }
            }
        }
        if VERBS.iter().any(|verb| members.contains_key(*verb)) {
            paths.insert(path.clone(), left);
        }
    }
    let paths = Value::Object(paths);
    let mut components = Map::new();
    if let Some(schemes) = root.pointer("/components/securitySchemes") {
        components.insert("securitySchemes".into(), schemes.clone());
    }
    let mut open = vec![&paths];
    while let Some(part) = open.pop() {
        match part {
            Value::Array(all) => open.extend(all),
            Value::Object(members) => {
                open.extend(members.values());
                let Some((kind, name)) = members.get("$ref").and_then(Value::as_str).and_then(component)
                else {
                    continue;
                };
                let Some(there) = root["components"][&kind].get(&name) else { continue };
                let of_kind = components.entry(kind).or_insert_with(|| json!({}));
                if of_kind.get(&name).is_none() {
                    of_kind[&name] = there.clone();
                    open.push(there);
                }
            }
            _ => {}
        }
    }
    let mut whole = Map::new();
    for name in ["openapi", "info", "servers", "security"] {
        if let Some(part) = root.get(name) {
            whole.insert(name.to_owned(), part.clone());
        }
    }
    whole.insert("paths".into(), paths);
    whole.insert("components".into(), Value::Object(components));
    let mut whole = Value::Object(whole);
    any_of(&mut whole);
    whole
}

/// Puts parameters where they are only referred to.
fn follow(root: &Value, holder: &mut Value) {
    for parameter in holder.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        *parameter = resolved(root, parameter).clone();
    }
}

/// Lets a value fit several alternatives: published ones overlap, and more do once the validator has read a text as a
/// number.
fn any_of(part: &mut Value) {
    match part {
        Value::Array(all) => all.iter_mut().for_each(any_of),
        Value::Object(members) => {
            if members.get("oneOf").is_some_and(Value::is_array)
                && !members.contains_key("anyOf")
                && let Some(alternatives) = members.shift_remove("oneOf")
            {
                members.insert("anyOf".into(), alternatives);
            }
            members.values_mut().for_each(any_of);
        }
        _ => {}
    }
}

/// The media type of forms.
pub(super) const FORM: &str = "application/x-www-form-urlencoded";

/// Says of lists in a form what OpenAPI says where nothing is said: the name once for each item. The validator knows it
/// only where it is said.
fn say_defaults(root: &Value, form: &mut Value) {
    let schema = resolved(root, &form["schema"]).clone();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let is_list = resolved(root, field)["type"] == "array";
        if is_list && form["encoding"][name].get("style").is_none() {
            form["encoding"][name]["style"] = json!("form");
            form["encoding"][name]["explode"] = json!(true);
        }
    }
}

/// The fields of an operation's form that the validator can't read, however they are written: lists of objects, which it
/// expects in JSON. The second are those that must be there.
pub(super) fn unreadable(root: &Value, operation: &Value) -> (Vec<String>, bool) {
    let schema = resolved(root, &resolved(root, &operation["requestBody"])["content"][FORM]["schema"]);
    let fields = schema["properties"].as_object().into_iter().flatten();
    let lists =
        fields.filter(|(_, field)| resolved(root, &resolved(root, field)["items"])["type"] == "object");
    let names: Vec<String> = lists.map(|(name, _)| name.clone()).collect();
    let required = schema["required"].as_array().into_iter().flatten();
    let needed = required.filter_map(Value::as_str).any(|name| names.iter().any(|n| n == name));
    (names, needed)
}

/// What a reference leads to.
pub(super) fn resolved<'a>(root: &'a Value, mut part: &'a Value) -> &'a Value {
    for _ in 0..8 {
        let Some(reference) = part.get("$ref").and_then(Value::as_str) else { return part };
        let Some(there) = reference.strip_prefix('#').and_then(|p| root.pointer(p)) else { return part };
        part = there;
    }
    part
}

fn responses() -> Value {
    let answer = json!({ "schema": { "type": "object" }, "example": {} });
    json!({ "200": { "description": "Done.", "content": { "application/json": answer } } })
}

/// The component that a reference leads to, or into.
fn component(reference: &str) -> Option<(String, String)> {
    let mut parts = reference.strip_prefix("#/components/")?.split('/');
    let mut next = || Some(parts.next()?.replace("~1", "/").replace("~0", "~"));
    Some((next()?, next()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{BTreeSet, operations, pruned};
    use serde_json::json;

    #[test]
    fn what_is_kept_keeps_what_it_refers_to() {
        let root = json!({
            "openapi": "3.0.0",
            "info": { "title": "t", "version": "1" },
            "x-more": { "a": { "$ref": "#/components/schemas/gone" } },
            "paths": {
                "/a": {
                    "parameters": [{ "$ref": "#/components/parameters/p" }],
                    "get": { "responses": { "200": { "$ref": "#/components/responses/gone" } } },
                    "post": { "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/b~1c/properties/x" } } } }, "responses": {} },
                },
                "/b": { "get": { "responses": {} } },
            },
            "components": {
                "parameters": { "p": { "name": "p", "in": "query", "schema": { "$ref": "#/components/schemas/d" } } },
                "schemas": { "b/c": { "properties": { "x": { "$ref": "#/components/schemas/b~1c" } } }, "d": { "oneOf": [{}, {}] }, "gone": {} },
                "responses": { "gone": {} },
            },
        });
        assert_eq!(operations(&root), 3);
        let left = pruned(&root, &["POST /a".to_owned()].into());
        assert_eq!(operations(&left), 1);
        assert_eq!(left["paths"]["/a"]["parameters"][0], root["components"]["parameters"]["p"]);
        let schemas = left["components"]["schemas"].as_object().unwrap();
        assert_eq!(schemas.keys().map(String::as_str).collect::<BTreeSet<_>>(), ["b/c", "d"].into());
        assert!(schemas["d"]["anyOf"].is_array());
        assert!(left["components"].get("responses").is_none() && left.get("x-more").is_none());
        assert!(left["paths"]["/a"]["post"]["responses"]["200"].is_object());
    }
}
