//! From Rust types to JSON Schemas (draft 2020-12), and from arguments to Rust types.

use gateway::BadArguments;
use mcp::json::{Raw, RawObject};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// For tools and prompts that take no arguments.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArguments {}

/// The schema of what is read into this type. The type's own name is not a title for people, so it is left out.
pub(super) fn input<T: JsonSchema>() -> Value {
    untitled(SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value())
}

/// The schema of what this type is written as.
pub(super) fn output<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    untitled(settings.into_generator().into_root_schema_for::<T>().to_value())
}

fn untitled(mut schema: Value) -> Value {
    if let Some(o) = schema.as_object_mut() {
        o.shift_remove("title");
    }
    schema
}

/// JSON text of a value that was made here; `{}` can't be the text of a broken one, so nothing is hidden by it.
pub(super) fn raw(value: &impl serde::Serialize) -> Raw {
    Raw::of(value).unwrap_or_else(|| Raw::string(""))
}

/// Arguments as the type, or where and why they don't fit.
pub(super) fn read<T: DeserializeOwned>(arguments: &RawObject) -> Result<T, BadArguments> {
    let mut json = serde_json::Deserializer::from_str(arguments.as_str());
    serde_path_to_error::deserialize(&mut json).map_err(|e| {
        let path = e.path().to_string();
        let said = e.into_inner().to_string();
        // The text is ours to number, not the caller's: lines and columns would say nothing.
        let said = said.split(" at line ").next().unwrap_or_default();
        BadArguments(if path == "." { said.to_owned() } else { format!("argument `{path}`: {said}") })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use mcp::json::Limits;

    #[derive(Debug, serde::Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Order {
        /// Which.
        id: String,
        lines: Vec<Line>,
    }

    #[derive(Debug, serde::Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Line {
        amount: u8,
    }

    #[test]
    fn schemas_are_derived_and_untitled() {
        let schema = input::<Order>();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["properties"]["id"]["description"], "Which.");
        assert_eq!(schema["required"], serde_json::json!(["id", "lines"]));
        assert!(schema.get("title").is_none());
    }

    #[test]
    fn a_wrong_argument_is_named() {
        let o = |t: &str| RawObject::parse(t.to_owned(), &Limits::default()).unwrap();
        let e = read::<Order>(&o(r#"{"id":"a","lines":[{"amount":1},{"amount":300}]}"#)).unwrap_err();
        assert_eq!(e.0, "argument `lines[1].amount`: invalid value: integer `300`, expected u8");
        let e = read::<Order>(&o(r#"{"lines":[]}"#)).unwrap_err();
        assert_eq!(e.0, "missing field `id`");
    }
}
