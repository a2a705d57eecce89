//! Asking the client: [`Context::ask`](super::Context::ask) in tools that read, resources and prompts,
//! [`Attempt::ask`](super::Attempt::ask) in tools that change the world. Forms may be derived from a type, and read into
//! it again.

use super::tool::ToolError;
pub use mcp::input::{Answer, Choice, Field, Form, Format, InputRequest, Invalid, Property, Sampling};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

impl From<Invalid> for ToolError {
    fn from(e: Invalid) -> ToolError {
        ToolError::failed(format!("The tool asks what can't be asked: {e}."))
    }
}

impl From<gateway::Unanswered> for ToolError {
    fn from(e: gateway::Unanswered) -> ToolError {
        // It must be no result: the client gets the questions instead.
        ToolError::bad(e.to_string())
    }
}

/// Asks the user by a form with the fields of a type: texts, numbers, flags, enumerations without data, lists of those,
/// and an `Option` of each. Doc comments become descriptions.
///
/// # Errors
/// [`Invalid`]: the type has something that a form can't ask for.
pub fn form<T: JsonSchema>(key: &str, message: &str) -> Result<InputRequest, Invalid> {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let mut plain = Map::new();
    plain.insert("type".into(), json!("object"));
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten().map(|(name, p)| (name.clone(), property(p)));
    plain.insert("properties".into(), Value::Object(properties.collect()));
    plain.extend(schema.get("required").map(|r| ("required".to_owned(), r.clone())));
    InputRequest::form(key, message, Form::parse(&Value::Object(plain))?)
}

/// A derived schema in the words that forms know.
fn property(derived: &Value) -> Value {
    let Some(all) = derived.as_object() else { return derived.clone() };
    let mut all = all.clone();
    // An `Option`.
    if let Some(types) = all.get_mut("type").filter(|t| t.is_array()) {
        let real = types.as_array().into_iter().flatten().find(|t| *t != "null").cloned();
        *types = real.unwrap_or_default();
    }
    for name in ["anyOf", "oneOf"] {
        let some = all.get(name).and_then(Value::as_array);
        let some: Option<Vec<Value>> =
            some.map(|a| a.iter().filter(|s| s["type"] != "null").cloned().collect());
        if let Some([one]) = some.as_deref() {
            let inner = property(one);
            let said = all.get("description").cloned();
            all = inner.as_object().cloned().unwrap_or_default();
            all.extend(said.map(|d| ("description".to_owned(), d)));
        }
    }
    if let Some(options) = all.get_mut("enum").and_then(Value::as_array_mut) {
        options.retain(|o| !o.is_null());
    }
    if let Some(options) = all.get("oneOf").and_then(Value::as_array) {
        let option = |o: &Value| {
            let value = o.get("const").unwrap_or(&Value::Null);
            json!({ "const": value, "title": o.get("description").unwrap_or(value) })
        };
        let options = options.iter().map(option).collect();
        all.insert("oneOf".into(), options);
        all.insert("type".into(), json!("string"));
    }
    if let Some(items) = all.get("items").filter(|_| all["type"] == "array") {
        let items = property(items);
        let items = match items.get("oneOf") {
            Some(options) => json!({ "anyOf": options }),
            None => items,
        };
        all.insert("items".into(), items);
        all.remove("uniqueItems");
    }
    // The width of a number is no format of a text.
    if all["type"] == "integer" || all["type"] == "number" {
        all.remove("format");
    }
    if all.get("default").is_some_and(Value::is_null) {
        all.remove("default");
    }
    Value::Object(all)
}

/// What the user filled in, as the type; `None` if the user declined or went away.
///
/// # Errors
/// [`ToolError::Failed`]: it is not of that type. A form made by [`form`] is.
pub fn filled<T: DeserializeOwned>(answer: &Answer) -> Result<Option<T>, ToolError> {
    let Some(content) = answer.content() else { return Ok(None) };
    let read = serde_json::from_str(content.as_str());
    read.map(Some).map_err(|_| ToolError::failed("The answer is not of the form that this tool reads."))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, dead_code)]
mod tests {
    use super::*;
    use mcp::json::{Limits, Raw};

    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Size {
        /// Fits nobody.
        Small,
        /// Fits everybody.
        Large,
    }

    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Colour {
        Red,
        Blue,
    }

    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    struct Shirt {
        /// On its back.
        name: String,
        number: u8,
        note: Option<String>,
        size: Size,
        colour: Option<Colour>,
        colours: Vec<Colour>,
        #[serde(default)]
        gift: bool,
    }

    #[test]
    fn a_type_becomes_a_form_and_its_answer_the_type() {
        let request = form::<Shirt>("shirt", "Which shirt?").unwrap();
        let params: Value = request.params().unwrap().read().unwrap();
        let schema = &params["requestedSchema"];
        assert_eq!(schema["properties"]["name"], json!({ "type": "string", "description": "On its back." }));
        assert_eq!(
            schema["properties"]["size"]["oneOf"][1],
            json!({ "const": "large", "title": "Fits everybody." })
        );
        assert_eq!(schema["properties"]["colour"]["enum"], json!(["red", "blue"]));
        assert_eq!(schema["required"], json!(["name", "number", "size", "colours"]));
        let raw = |v: Value| Raw::parse(v.to_string(), &Limits::default()).unwrap();
        let content =
            json!({ "name": "Ann", "number": 7, "size": "small", "colours": ["red"], "gift": true });
        let answer = Answer::read(&request, &raw(json!({ "action": "accept", "content": content }))).unwrap();
        let shirt = Shirt {
            name: "Ann".into(),
            number: 7,
            note: None,
            size: Size::Small,
            colour: None,
            colours: vec![Colour::Red],
            gift: true,
        };
        assert_eq!(filled(&answer).unwrap(), Some(shirt));
        assert_eq!(filled::<Shirt>(&Answer::Declined).unwrap(), None);
    }

    #[test]
    fn what_a_form_cannot_ask_is_refused() {
        #[derive(JsonSchema)]
        struct Deep {
            inner: Option<Shirt>,
        }
        assert!(form::<Deep>("deep", "How?").is_err());
    }
}
