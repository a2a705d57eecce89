//! What a form asks for: a flat object of primitive properties, the restricted JSON Schema that the specification allows
//! and nothing beyond it (spec: client/elicitation, "Requested Schema"; SEP-1034: defaults; SEP-1330: enumerations).
use serde_json::{Map, Value, json};

use super::field::Field;
use super::{Invalid, MAX_PROPERTIES};

/// Longest name of a property, in bytes.
const MAX_NAME: usize = 128;

/// A property of a form.
#[derive(Debug, Clone, PartialEq)]
pub struct Property {
    /// Its name in `content`.
    pub name: String,
    /// For display.
    pub title: Option<String>,
    /// For display.
    pub description: Option<String>,
    /// What it takes.
    pub field: Field,
    /// Whether an accepted form must have it.
    pub required: bool,
}

/// The properties of a form, in their order. May be empty: then it asks for a yes or no alone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Form {
    properties: Vec<Property>,
}

impl Form {
    /// A form without properties.
    pub fn new() -> Form {
        Form::default()
    }

    /// Adds a property that must be there.
    ///
    /// # Errors
    /// [`Invalid`] if the name is taken or no name, the form is full, or the field contradicts itself.
    pub fn require(self, name: &str, field: Field) -> Result<Form, Invalid> {
        self.with(Property { name: name.to_owned(), title: None, description: None, field, required: true })
    }

    /// Adds a property.
    ///
    /// # Errors
    /// As [`Form::require`].
    pub fn with(mut self, property: Property) -> Result<Form, Invalid> {
        let name = &property.name;
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(Invalid(format!("names of properties have 1 to {MAX_NAME} bytes")));
        }
        if self.properties.len() >= MAX_PROPERTIES {
            return Err(Invalid(format!("a form has {MAX_PROPERTIES} properties at most")));
        }
        if self.property(name).is_some() {
            return Err(Invalid(format!("{} is there twice", place(name))));
        }
        property.field.check().map_err(|why| Invalid(format!("{}: {why}", place(name))))?;
        self.properties.push(property);
        Ok(self)
    }

    /// The properties.
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// The property of that name.
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|property| property.name == name)
    }

    /// Reads a `requestedSchema`.
    ///
    /// # Errors
    /// [`Invalid`] names the first thing that the specification doesn't allow there.
    pub fn parse(schema: &Value) -> Result<Form, Invalid> {
        let invalid = |why: &str| Invalid(format!("requestedSchema {why}"));
        let all = schema.as_object().ok_or_else(|| invalid("must be an object"))?;
        only(all, &["$schema", "type", "properties", "required"])
            .map_err(|name| Invalid(format!("requestedSchema must not have {name}")))?;
        if all.get("type").and_then(Value::as_str) != Some("object") {
            return Err(invalid("needs the type \"object\""));
        }
        if all.get("$schema").is_some_and(|dialect| !dialect.is_string()) {
            return Err(invalid("needs a string as $schema"));
        }
        let properties = all.get("properties").and_then(Value::as_object);
        let properties = properties.ok_or_else(|| invalid("needs properties, an object"))?;
        let mut required = match all.get("required") {
            None => Vec::new(),
            Some(names) => strings(names).ok_or_else(|| invalid("needs an array of strings as required"))?,
        };
        let mut form = Form::new();
        for (name, schema) in properties {
            let at = place(name);
            let schema = schema.as_object().ok_or_else(|| Invalid(format!("{at} must be an object")))?;
            let text = |word: &str| match schema.get(word) {
                None => Ok(None),
                Some(Value::String(text)) => Ok(Some(text.clone())),
                Some(_) => Err(Invalid(format!("{at}: {word} must be a string"))),
            };
            let before = required.len();
            required.retain(|wanted| wanted != name);
            if before - required.len() > 1 {
                return Err(Invalid(format!("{at} is required twice")));
            }
            form = form.with(Property {
                name: name.clone(),
                title: text("title")?,
                description: text("description")?,
                field: Field::parse(schema).map_err(|why| Invalid(format!("{at}: {why}")))?,
                required: required.len() < before,
            })?;
        }
        match required.first() {
            None => Ok(form),
            Some(_) => Err(invalid("requires a property that it doesn't have")),
        }
    }

    /// The `requestedSchema`.
    pub fn to_value(&self) -> Value {
        self.render(Field::to_map)
    }

    /// The same in the words of revision 2025-06-18, which knows less.
    pub(super) fn to_value_2025_06_18(&self) -> Result<Value, &str> {
        match self.properties.iter().find(|property| matches!(property.field, Field::Choices { .. })) {
            Some(property) => Err(&property.name),
            None => Ok(self.render(Field::to_map_2025_06_18)),
        }
    }

    fn render(&self, field: impl Fn(&Field) -> Map<String, Value>) -> Value {
        let mut properties = Map::new();
        for property in &self.properties {
            let mut schema = Map::new();
            let mut rest = field(&property.field);
            schema.extend(rest.remove_entry("type"));
            for (word, text) in [("title", &property.title), ("description", &property.description)] {
                schema.extend(text.clone().map(|text| (word.to_owned(), Value::String(text))));
            }
            schema.extend(rest);
            properties.insert(property.name.clone(), Value::Object(schema));
        }
        let required: Vec<_> = self.properties.iter().filter(|p| p.required).map(|p| &*p.name).collect();
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }
}

/// Where a property stands, for refusals of the request.
fn place(name: &str) -> String {
    format!("requestedSchema.properties.{}", short(name))
}

/// A name as refusals show it.
pub(super) fn short(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { ' ' } else { c }).take(80).collect()
}

/// The strings of an array; `None` if it is something else.
pub(super) fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|one| one.as_str().map(str::to_owned)).collect()
}

/// Whether an object has no other members.
///
/// # Errors
/// The first one, as refusals show it.
pub(super) fn only(all: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match all.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(other) => Err(short(other)),
    }
}
