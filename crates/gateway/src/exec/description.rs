//! `POST /api/v1/exec` as OpenAPI 3.1, made from the tables that the route itself goes by.

use super::body::MEMBERS;
use super::key::MAX_NAME;
use super::outcome;
use super::route::PATH;
use ledger::Kind;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Refusals at the door, and what they mean.
const REFUSALS: [(&str, &str); 11] = [
    ("400", "The body is no JSON, or its members don't fit together. Nothing ran."),
    ("401", "An API key is needed, or this one is not known. Nothing ran."),
    ("403", "`Host` or `Origin` is not allowed. Nothing ran."),
    ("404", "There is no such method. Nothing ran."),
    ("405", "Another method than POST. Nothing ran."),
    ("406", "`Accept` excludes JSON. Nothing ran."),
    ("408", "The body did not arrive in time. Nothing ran."),
    ("413", "The body is too large. Nothing ran."),
    ("415", "The body is not declared as JSON. Nothing ran."),
    ("500", "The gateway failed. It may have taken effect: ask again with the same key."),
    ("503", "API keys can't be read at the moment. Nothing ran."),
];

/// The document.
pub(super) fn of(version: &str) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Counterfoil",
            "version": version,
            "description": "One operation, through the ledger: sent again with the same key, or the same operation and step, it has its effect once.",
        },
        "paths": { PATH: { "post": {
            "operationId": "exec",
            "summary": "Execute a method",
            "security": [{}, { "apiKey": [] }],
            "parameters": [{
                "name": "Idempotency-Key", "in": "header", "required": false,
                "description": "The same as `key`; where both are there they are equal.",
                "schema": { "type": "string" },
            }],
            "requestBody": { "required": true, "content": { "application/json": { "schema": request() } } },
            "responses": responses(),
        } } },
        "components": {
            "securitySchemes": { "apiKey": { "type": "http", "scheme": "bearer", "bearerFormat": "cfk_…" } },
            "schemas": { "Answer": answer(), "Error": error(), "Refusal": refusal() },
        },
    })
}

fn request() -> Value {
    let text = |what: &str, most: usize| json!({ "type": ["string", "null"], "minLength": 1, "maxLength": most, "description": what });
    let mut properties = Map::new();
    for member in MEMBERS {
        let schema = match member {
            "id" => json!({ "type": "string", "description": "The method's id, or its tool name." }),
            "arguments" => {
                json!({ "type": ["object", "null"], "description": "As `counterfoil info` describes them." })
            }
            "key" => {
                text("The idempotency key: the same key is the same operation. Not with `operation`.", 255)
            }
            "operation" => text(
                "A name of the run that this is a step of, the same whenever it runs again. A step is the same effect if its method and arguments are, or its method and `step`.",
                MAX_NAME,
            ),
            "step" => {
                text("The step's name in `operation`; then other arguments under it are refused.", MAX_NAME)
            }
            _ => {
                json!({ "type": ["boolean", "null"], "description": "Show what would be sent; nothing is." })
            }
        };
        properties.insert(member.into(), schema);
    }
    json!({ "type": "object", "additionalProperties": false, "required": ["id"], "properties": properties })
}

fn answer() -> Value {
    json!({
        "type": "object",
        "required": ["outcome"],
        "properties": {
            "outcome": { "enum": ["result", "dry_run"] },
            "isError": { "type": "boolean", "description": "The provider or tool refused; that is a result, and it is kept." },
            "result": { "type": "object", "description": "A tool result of MCP: `content`, `structuredContent`." },
            "operation": {
                "type": "object",
                "description": "Not of a method that only reads.",
                "properties": {
                    "id": { "type": "string" },
                    "replayed": { "type": "boolean" },
                    "joinedBy": { "type": ["string", "null"] },
                    "attempt": { "type": "integer" },
                },
            },
            "wouldSend": { "type": ["object", "null"] },
            "refused": { "type": "object", "description": "Why a rule would not let it through." },
            "approvalNeeded": { "type": "boolean" },
            "needs": { "type": "array", "description": "What it would claim of its limits." },
            "safety": { "type": "object" },
        },
    })
}

fn error() -> Value {
    json!({
        "type": "object",
        "required": ["outcome", "error"],
        "properties": {
            "outcome": { "const": "error" },
            "error": {
                "type": "object",
                "required": ["kind", "message", "advice"],
                "properties": {
                    "kind": { "enum": Kind::ALL.map(Kind::word) },
                    "message": { "type": "string" },
                    "advice": { "type": "string" },
                    "operationId": { "type": "string" },
                    "retryAfterMs": { "type": "integer" },
                    "retryKey": { "type": "string" },
                    "newKey": { "type": "string" },
                },
            },
        },
    })
}

fn refusal() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": { "code": { "type": "string" }, "message": { "type": "string" } },
        } },
    })
}

fn responses() -> Value {
    let body = |schemas: &[&str]| {
        let all: Vec<Value> =
            schemas.iter().map(|s| json!({ "$ref": format!("#/components/schemas/{s}") })).collect();
        json!({ "application/json": { "schema": { "oneOf": all } } })
    };
    let mut told: BTreeMap<String, (Vec<&str>, Vec<&str>)> = BTreeMap::new();
    for (status, what) in REFUSALS {
        told.insert(status.into(), (vec![what], vec!["Refusal"]));
    }
    let mut kinds: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for kind in Kind::ALL {
        let mut statuses =
            [true, false].map(|keyed| outcome::status(kind, keyed).as_str().to_owned()).to_vec();
        statuses.dedup();
        for status in statuses {
            kinds.entry(status).or_default().push(kind.word());
        }
    }
    let mut all = Map::new();
    all.insert(
        "200".into(),
        json!({ "description": "There is a result (a refusal of the provider is one), or it is shown what would be sent.", "content": body(&["Answer"]) }),
    );
    for (status, words) in &kinds {
        told.entry(status.clone()).or_default().1.push("Error");
        let what = format!("`error.kind` is {}.", words.join(", "));
        let (texts, schemas) = &told[status];
        let description = texts.iter().map(|t| (*t).to_owned()).chain([what]).collect::<Vec<_>>().join(" ");
        all.insert(status.clone(), json!({ "description": description, "content": body(schemas) }));
    }
    for (status, (texts, schemas)) in &told {
        if !all.contains_key(status) {
            all.insert(status.clone(), json!({ "description": texts.join(" "), "content": body(schemas) }));
        }
    }
    Value::Object(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_of_every_member_kind_and_status() {
        let document = of("1.2.3");
        let post = &document["paths"][PATH]["post"];
        let schema = &post["requestBody"]["content"]["application/json"]["schema"];
        let members: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(members, MEMBERS);
        let responses = post["responses"].as_object().unwrap();
        for kind in Kind::ALL {
            for keyed in [true, false] {
                let told = &responses[outcome::status(kind, keyed).as_str()];
                assert!(told["description"].as_str().unwrap().contains(kind.word()), "{kind:?} {told}");
            }
        }
        for (status, what) in REFUSALS {
            assert!(responses[status]["description"].as_str().unwrap().contains(what), "{status}");
        }
        let schemas = |status: &str| {
            let all = responses[status]["content"]["application/json"]["schema"]["oneOf"].as_array().unwrap();
            all.iter().map(|s| s["$ref"].as_str().unwrap().rsplit('/').next().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(schemas("405"), ["Refusal"]);
        assert_eq!(schemas("503"), ["Refusal", "Error"]);
        // What it refers to is in it.
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
        }
    }
}
