//! Single keywords of schemas, as JSON Schema has them.

use crate::document::{Document, is, list, text};
use serde_json::{Map, Value, json};

/// The types of a schema, as far as JSON Schema knows them; `null` included where the schema says so.
pub(crate) fn types(schema: &Value) -> Option<Value> {
    const KNOWN: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];
    match schema.get("type") {
        Some(Value::String(one)) => KNOWN.contains(&one.as_str()).then(|| Value::from(one.as_str())),
        Some(Value::Array(several)) => {
            let mut known: Vec<Value> = Vec::new();
            for one in several {
                if one.as_str().is_some_and(|t| KNOWN.contains(&t)) && !known.contains(one) {
                    known.push(one.clone());
                }
            }
            match known.len() {
                0 => None,
                1 => known.pop(),
                _ => Some(Value::Array(known)),
            }
        }
        _ if schema.get("properties").is_some_and(Value::is_object) => Some(Value::from("object")),
        _ if schema.get("items").is_some_and(Value::is_object) => Some(Value::from("array")),
        _ => None,
    }
}

/// The numeric bounds, those of OpenAPI 3.0 as JSON Schema has them.
pub(crate) fn bounds(members: &Map<String, Value>, out: &mut Map<String, Value>) {
    for (limit, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        let value = members.get(limit).filter(|v| v.is_number());
        match (value, members.get(exclusive)) {
            (Some(value), Some(Value::Bool(true))) => {
                out.insert(exclusive.into(), value.clone());
            }
            (value, strict) => {
                if let Some(value) = value {
                    out.insert(limit.into(), value.clone());
                }
                if let Some(strict) = strict.filter(|v| v.is_number()) {
                    out.insert(exclusive.into(), strict.clone());
                }
            }
        }
    }
    let step = members.get("multipleOf").filter(|v| v.as_f64().is_some_and(|v| v > 0.0));
    if let Some(step) = step {
        out.insert("multipleOf".into(), step.clone());
    }
    for count in ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"] {
        if let Some(n) = members.get(count).filter(|v| v.is_u64()) {
            out.insert(count.into(), n.clone());
        }
    }
    if members.get("uniqueItems") == Some(&Value::Bool(true)) {
        out.insert("uniqueItems".into(), Value::Bool(true));
    }
    if let Some(coded) = members.get("contentEncoding").and_then(Value::as_str).filter(|c| c.len() <= 20) {
        out.insert("contentEncoding".into(), Value::from(coded));
    }
    if let Some(format) = members.get("format").and_then(Value::as_str).filter(|f| f.len() <= 40) {
        out.insert("format".into(), Value::from(format));
    }
}

/// What a discriminator says of a branch: which value of its property chooses it.
pub(crate) fn told_apart(schema: &Value, branch: &Value, written: &mut Value) {
    let Some(name) = schema.pointer("/discriminator/propertyName").and_then(Value::as_str) else { return };
    let Some(to) = text(branch, "$ref") else { return };
    let Some(properties) = written.get_mut("properties").and_then(Value::as_object_mut) else { return };
    let last = to.rsplit('/').next().unwrap_or(to);
    let mapped: Vec<Value> = schema
        .pointer("/discriminator/mapping")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .take(200)
        .filter(|(_, target)| target.as_str().is_some_and(|t| t == to || t == last))
        .map(|(value, _)| Value::from(value.as_str()))
        .collect();
    let mut said = json!({ "type": "string", "enum": mapped });
    if mapped.is_empty() {
        said = json!({ "type": "string", "enum": [last] });
    }
    // An own list of choices is more than a name.
    let known = properties.get(name).is_some_and(|p| p.get("enum").is_some() || p.get("const").is_some());
    if !known {
        properties.insert(name.to_owned(), said);
    }
}

/// The names of an object's properties, those of its `allOf` included, as far as arguments have them; and those that a part
/// says only the provider writes, whatever another says.
pub(crate) fn properties<'a>(
    document: &Document<'a>,
    schema: &'a Value,
    left: &mut usize,
    out: &mut Vec<String>,
    read_only: &mut Vec<String>,
) {
    let (Ok(schema), Some(less)) = (document.resolve(schema), left.checked_sub(1)) else { return };
    *left = less;
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let target = document.resolve(property).unwrap_or(property);
        let names =
            if is(target, "readOnly") || is(property, "readOnly") { &mut *read_only } else { &mut *out };
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    list(schema, "allOf").iter().for_each(|part| properties(document, part, left, out, read_only));
}

/// The schemas that a discriminator's mapping names, by the value that chooses each.
pub(crate) fn mapping<'a>(document: &Document<'a>, schema: &'a Value) -> Vec<(&'a str, &'a Value)> {
    let all = schema.pointer("/discriminator/mapping").and_then(Value::as_object);
    let named = |target: &str| match target.contains(['/', '#']) {
        true => document.at(target).ok(),
        false => document.at(&format!("#/components/schemas/{target}")).ok(),
    };
    all.into_iter()
        .flatten()
        .take(200)
        .filter_map(|(value, target)| Some((value.as_str(), named(target.as_str()?)?)))
        .filter(|(_, target)| !std::ptr::eq(*target, schema))
        .collect()
}

/// The last mends of an object: `required` names what is there, in it or `beside` it in the same object, and nothing that is
/// `read_only` in a part of it; and null is among what may be null.
pub(crate) fn settle(out: &mut Map<String, Value>, null: bool, beside: &[String], read_only: &[String]) {
    if let Some(Value::Array(required)) = out.get_mut("required") {
        required.retain(|r| read_only.iter().all(|name| r != name));
    }
    let there: Option<Vec<String>> =
        out.get("properties").and_then(Value::as_object).map(|p| p.keys().cloned().collect());
    let alternatives = out.get("anyOf").is_some() || out.get("allOf").is_some();
    if there.is_some() || !alternatives {
        let there = there.unwrap_or_default();
        if let Some(Value::Array(required)) = out.get_mut("required") {
            required.retain(|r| r.as_str().is_some_and(|r| there.iter().chain(beside).any(|t| t == r)));
        }
    }
    if out.get("required").is_some_and(|r| r.as_array().is_some_and(Vec::is_empty)) {
        out.remove("required");
    }
    if !null {
        return;
    }
    match out.get_mut("type") {
        Some(Value::String(one)) if one != "null" => {
            let both = json!([one.clone(), "null"]);
            out.insert("type".into(), both);
        }
        Some(Value::Array(several)) if !several.contains(&Value::from("null")) => {
            several.push(Value::from("null"))
        }
        _ => {}
    }
    if let Some(Value::Array(choices)) = out.get_mut("enum")
        && !choices.contains(&Value::Null)
    {
        choices.push(Value::Null);
    }
    if let Some(Value::Array(branches)) = out.get_mut("anyOf") {
        branches.push(json!({ "type": "null" }));
    }
}
