//! What a call's arguments must be: the tool's JSON Schema, compiled once, offline and bounded; and the
//! `idempotency_key` argument that is added where the schema's root allows for it.

use crate::bounds::{NoBound, Telling, Work};
use crate::tool::BadArguments;
use calls::argument::{self, Root};
use mcp::json::{Limits, Raw, RawObject, quote};

pub use calls::argument::KEY_ARGUMENT;

/// The largest schema that is compiled.
const MAX_SCHEMA: usize = 256 * 1024;
/// How many errors are told at once.
const TOLD: usize = 5;

/// A compiled schema.
pub struct Schema {
    validator: jsonschema::Validator,
    work: Work,
}

/// Why a schema can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// Too large.
    #[error("its input schema has more than {MAX_SCHEMA} bytes")]
    Large,
    /// Not an object schema.
    #[error("its input schema is not a JSON object with \"type\": \"object\"")]
    NotAnObject,
    /// A dialect that is not known.
    #[error("its input schema declares a dialect other than JSON Schema 2020-12 or draft-07")]
    Dialect,
    /// Not valid, or it refers to another document (those are never fetched).
    #[error("its input schema can't be compiled: {0}")]
    Invalid(String),
    /// Checking anything against it could take for ever, or far too long.
    #[error("its input schema can't be used: {0}")]
    Unbounded(String),
}

impl From<NoBound> for SchemaError {
    fn from(why: NoBound) -> Self {
        match why {
            NoBound::Elsewhere(_) => SchemaError::Invalid(why.to_string()),
            NoBound::Endless | NoBound::TooMuch => SchemaError::Unbounded(why.to_string()),
        }
    }
}

const DIALECTS: [&str; 4] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2020-12/schema#",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-07/schema",
];

impl Schema {
    /// Compiles a schema. References outside the document are refused, patterns run in linear time, and what one value
    /// can cost is bounded.
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn compile(raw: &Raw) -> Result<Schema, SchemaError> {
        if raw.as_str().len() > MAX_SCHEMA {
            return Err(SchemaError::Large);
        }
        let value: serde_json::Value = raw.read().map_err(|e| SchemaError::Invalid(e.to_string()))?;
        if value.get("type").and_then(|t| t.as_str()) != Some("object") {
            return Err(SchemaError::NotAnObject);
        }
        if let Some(d) = value.get("$schema")
            && !d.as_str().is_some_and(|d| DIALECTS.contains(&d))
        {
            return Err(SchemaError::Dialect);
        }
        let work = Work::of(&value)?;
        let draft07 = value.get("$schema").and_then(|d| d.as_str()).is_some_and(|d| d.contains("draft-07"));
        let draft = if draft07 { jsonschema::Draft::Draft7 } else { jsonschema::Draft::Draft202012 };
        jsonschema::options()
            .with_draft(draft)
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .build(&value)
            .map(|validator| Schema { validator, work })
            .map_err(|e| SchemaError::Invalid(e.to_string()))
    }

    /// Checks arguments.
    ///
    /// # Errors
    /// [`BadArguments`] names the places and what is wrong there.
    pub fn check(&self, arguments: &RawObject) -> Result<(), BadArguments> {
        let value: serde_json::Value =
            arguments.raw().read().map_err(|_| BadArguments("the arguments can't be read".into()))?;
        if !self.work.takes(&value) {
            return Err(BadArguments(
                "they are nested too deeply, or are too many, to be checked against this tool's schema; send less at once"
                    .into(),
            ));
        }
        if self.validator.is_valid(&value) {
            return Ok(());
        }
        // The validator collects all that is wrong before it gives any of it.
        let wrong: Vec<_> = match self.work.telling(&value) {
            Telling::All => self.validator.iter_errors(&value).take(TOLD).collect(),
            Telling::First => self.validator.validate(&value).err().into_iter().collect(),
            Telling::Nothing => Vec::new(),
        };
        if wrong.is_empty() {
            return Err(BadArguments(
                "they don't fit this tool's schema, and are too many to say where; send less at once to be told"
                    .into(),
            ));
        }
        let mut told: Vec<String> = Vec::new();
        for e in wrong {
            let at = e.instance_path().to_string();
            let text: String = e.to_string().chars().take(300).collect();
            told.push(if at.is_empty() { text } else { format!("at {at}: {text}") });
        }
        Err(BadArguments(told.join("; ")))
    }
}

/// A schema's root, as text.
struct Text<'a>(&'a RawObject);

impl Root for Text<'_> {
    fn has(&self, member: &str) -> bool {
        self.0.has(member)
    }
    fn dialect(&self) -> Option<Option<String>> {
        self.0.get("$schema").map(|d| d.as_string().map(std::borrow::Cow::into_owned))
    }
    fn declares(&self, property: &str) -> bool {
        self.0.get("properties").and_then(|p| p.object()).is_some_and(|p| p.has(property))
    }
}

/// Whether the key argument can be added: only to a plain object root, where it changes nothing else.
#[must_use]
pub fn allows_key(schema: &RawObject) -> bool {
    argument::allows_key(&Text(schema))
}

/// The schema with the key argument; every other byte is as it was.
#[must_use]
pub fn with_key(schema: &RawObject) -> Raw {
    let property = argument::property().to_string();
    let properties = schema
        .get("properties")
        .and_then(|p| p.object())
        .unwrap_or_else(RawObject::empty)
        .with(&[(KEY_ARGUMENT, &property)]);
    schema.with(&[("properties", properties.as_str())])
}

/// The arguments without a member.
#[must_use]
pub fn without(arguments: &RawObject, name: &str) -> RawObject {
    if arguments.get(name).is_none() {
        return arguments.clone();
    }
    let mut text = String::from("{");
    for (k, v) in arguments.iter().filter(|(k, _)| k != name) {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&quote(&k));
        text.push(':');
        text.push_str(v.as_str());
    }
    text.push('}');
    RawObject::parse(text, &Limits::default()).unwrap_or_else(|_| RawObject::empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn raw(s: &str) -> Raw {
        Raw::parse(s.to_owned(), &Limits::default()).unwrap()
    }

    #[test]
    fn the_key_is_added_to_plain_roots_only() {
        let plain =
            raw(r#"{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}"#)
                .object()
                .unwrap();
        assert!(allows_key(&plain));
        let with = with_key(&plain);
        assert!(
            with.as_str().starts_with(
                r#"{"type":"object","properties":{"a":{"type":"integer"},"idempotency_key":{"type":"string""#
            ),
            "{with}"
        );
        assert!(with.as_str().ends_with(r#""additionalProperties":false}"#));
        for other in [
            r#"{"type":"object","oneOf":[{}]}"#,
            r##"{"type":"object","$ref":"#/$defs/a"}"##,
            r#"{"type":"object","maxProperties":2}"#,
            r#"{"type":"object","properties":{"idempotency_key":{}}}"#,
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}"#,
        ] {
            assert!(!allows_key(&raw(other).object().unwrap()), "{other}");
        }
    }

    #[test]
    fn foreign_references_are_refused_and_errors_name_their_place() {
        assert!(matches!(
            Schema::compile(&raw(
                r#"{"type":"object","properties":{"a":{"$ref":"https://example.com/x.json"}}}"#
            )),
            Err(SchemaError::Invalid(_))
        ));
        assert!(matches!(Schema::compile(&raw(r#"{"type":"array"}"#)), Err(SchemaError::NotAnObject)));
        assert!(matches!(
            Schema::compile(&raw(r#"{"type":"object","$schema":"https://example.com/other"}"#)),
            Err(SchemaError::Dialect)
        ));
        let s = Schema::compile(&raw(
            r#"{"type":"object","properties":{"amount":{"type":"integer"}},"required":["payment"]}"#,
        ))
        .unwrap();
        let e = s.check(&raw(r#"{"amount":"x"}"#).object().unwrap()).unwrap_err();
        assert!(e.0.contains("/amount") && e.0.contains("payment"), "{e}");
    }

    #[test]
    fn arguments_of_very_many_values_are_refused_without_a_list_of_all_that_is_wrong() {
        let names: Vec<String> = (0..100).map(|n| format!("member{n}")).collect();
        let row = serde_json::json!({ "required": names });
        let check = |row: &serde_json::Value, rows: usize| {
            let schema = serde_json::json!({ "type": "object", "properties": { "rows": { "items": row } } });
            let s = Schema::compile(&raw(&schema.to_string())).unwrap();
            let arguments = serde_json::json!({ "rows": vec![serde_json::json!({}); rows] });
            s.check(&raw(&arguments.to_string()).object().unwrap()).unwrap_err().0
        };
        assert_eq!(check(&row, 2).matches("member").count(), TOLD);
        assert_eq!(check(&row, 20_000).matches("member").count(), 1);
        let either = serde_json::json!({ "anyOf": [row] });
        assert!(check(&either, 20_000).contains("too many to say where"));
    }

    #[test]
    fn a_schema_of_schemas_can_be_an_argument() {
        let s = Schema::compile(&raw(
            r#"{"type":"object","properties":{"schema":{"$ref":"https://json-schema.org/draft/2020-12/schema"}}}"#,
        ))
        .unwrap();
        assert!(s.check(&raw(r#"{"schema":{"type":"string"}}"#).object().unwrap()).is_ok());
        assert!(s.check(&raw(r#"{"schema":{"type":7}}"#).object().unwrap()).is_err());
    }

    #[test]
    fn a_member_is_taken_out_and_the_rest_stays() {
        let a = raw(r#"{"b": 1.0 ,"idempotency_key":"k","c":[ 1 ]}"#).object().unwrap();
        assert_eq!(without(&a, KEY_ARGUMENT).raw().as_str(), r#"{"b":1.0,"c":[ 1 ]}"#);
    }
}
