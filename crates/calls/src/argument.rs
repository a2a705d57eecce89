//! The `idempotency_key` argument that is added to the input schema of a ledgered tool, where its root allows for it.

use serde_json::{Value, json};

/// The argument.
pub const KEY_ARGUMENT: &str = "idempotency_key";

const DESCRIPTION: &str = "Leave this out on a first call. Only if an earlier answer to the same call gave you a `retryKey` or `newKey`, put exactly that value here. Never make up a value.";

/// Its schema.
#[must_use]
pub fn property() -> Value {
    json!({ "type": "string", "description": DESCRIPTION })
}

/// Members of a schema's root with which one more property would change what else fits, or what the property means.
const IN_THE_WAY: [&str; 17] = [
    "$ref",
    "$dynamicRef",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedProperties",
    "maxProperties",
    "propertyNames",
    "patternProperties",
    "dependentSchemas",
    "const",
    "enum",
    "minProperties",
];

/// What is asked of a schema's root.
pub trait Root {
    /// Whether it has this member.
    fn has(&self, member: &str) -> bool;
    /// Its `$schema`: `None` where there is none, `Some(None)` where that is no string.
    fn dialect(&self) -> Option<Option<String>>;
    /// Whether it declares this property.
    fn declares(&self, property: &str) -> bool;
}

impl Root for serde_json::Map<String, Value> {
    fn has(&self, member: &str) -> bool {
        self.contains_key(member)
    }
    fn dialect(&self) -> Option<Option<String>> {
        self.get("$schema").map(|d| d.as_str().map(str::to_owned))
    }
    fn declares(&self, property: &str) -> bool {
        self.get("properties").and_then(|p| p.get(property)).is_some()
    }
}

/// Whether the key argument can be added: only to a plain object root, where it changes nothing else.
#[must_use]
pub fn allows_key(root: &impl Root) -> bool {
    let other_dialect = root.dialect().is_some_and(|d| d.is_none_or(|d| !d.contains("2020-12")));
    !other_dialect && !root.declares(KEY_ARGUMENT) && !IN_THE_WAY.iter().any(|k| root.has(k))
}
