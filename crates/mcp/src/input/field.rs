//! One property of a form: text, number, flag, one choice, several choices.
use std::cmp::Ordering;
use std::collections::HashSet;

use serde_json::{Map, Number, Value, json};

use super::form::{only, strings};
use super::format::Format;

/// The most options of a choice.
const MAX_OPTIONS: usize = 256;

/// What a property takes. Defaults are for the client to show; nothing is filled in here (SEP-1034).
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// A string. Lengths are in Unicode code points.
    Text {
        /// Shortest.
        min: Option<u64>,
        /// Longest.
        max: Option<u64>,
        /// What it must be.
        format: Option<Format>,
        /// Shown first.
        default: Option<String>,
    },
    /// A number.
    Number {
        /// Whether fractions are refused.
        integer: bool,
        /// Lowest.
        min: Option<Number>,
        /// Highest.
        max: Option<Number>,
        /// Shown first.
        default: Option<Number>,
    },
    /// Yes or no.
    Flag {
        /// Shown first.
        default: Option<bool>,
    },
    /// One of several.
    Choice {
        /// At least one, each value once.
        options: Vec<Choice>,
        /// Titles are written as `enumNames`, which SEP-1330 keeps for now, and not beside each value.
        names: bool,
        /// Shown first.
        default: Option<String>,
    },
    /// Any of several, each at most once.
    Choices {
        /// At least one, each value once.
        options: Vec<Choice>,
        /// Fewest.
        min: Option<u64>,
        /// Most.
        max: Option<u64>,
        /// Shown first.
        default: Option<Vec<String>>,
    },
}

/// An option of a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What is answered.
    pub value: String,
    /// What is shown; the value if there is none. Of one choice all options have one, or none has.
    pub title: Option<String>,
}

impl Field {
    /// A text without limits.
    pub fn text() -> Field {
        Field::Text { min: None, max: None, format: None, default: None }
    }

    /// A text of a format.
    pub fn formatted(format: Format) -> Field {
        Field::Text { min: None, max: None, format: Some(format), default: None }
    }

    /// A number without limits.
    pub fn number() -> Field {
        Field::Number { integer: false, min: None, max: None, default: None }
    }

    /// A whole number without limits.
    pub fn integer() -> Field {
        Field::Number { integer: true, min: None, max: None, default: None }
    }

    /// Yes or no.
    pub fn flag() -> Field {
        Field::Flag { default: None }
    }

    /// One of these.
    pub fn choice<S: Into<String>>(values: impl IntoIterator<Item = S>) -> Field {
        let options = values.into_iter().map(|value| Choice { value: value.into(), title: None }).collect();
        Field::Choice { options, names: false, default: None }
    }

    /// Whether it says what it can mean.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Field::Text { min, max, .. } => ordered(min, max, ["minLength", "maxLength"])?,
            Field::Number { min: Some(min), max: Some(max), .. } if compare(min, max).is_gt() => {
                return Err("minimum is greater than maximum".into());
            }
            Field::Number { .. } | Field::Flag { .. } => {}
            Field::Choice { options, .. } => distinct(options)?,
            Field::Choices { options, min, max, .. } => {
                distinct(options)?;
                ordered(min, max, ["minItems", "maxItems"])?;
                if min.is_some_and(|min| min > options.len() as u64) {
                    return Err("minItems is more than there are options".into());
                }
            }
        }
        match self.default() {
            Some(default) => self.fits(&default).map_err(|why| format!("default {why}")),
            None => Ok(()),
        }
    }

    fn default(&self) -> Option<Value> {
        match self {
            Field::Text { default, .. } | Field::Choice { default, .. } => default.clone().map(Value::String),
            Field::Number { default, .. } => default.clone().map(Value::Number),
            Field::Flag { default } => default.map(Value::Bool),
            Field::Choices { default, .. } => default.as_ref().map(|all| json!(all)),
        }
    }

    /// Reads the schema of a property; `title` and `description` are left to the caller.
    pub(super) fn parse(schema: &Map<String, Value>) -> Result<Field, String> {
        let allow = |known: &[&str]| {
            let all = [&["type", "title", "description", "default"], known].concat();
            only(schema, &all).map_err(|name| format!("must not have {name}"))
        };
        let default = schema.get("default");
        let text = |what: &str| match default {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("default must be {what}")),
        };
        let count = |word: &str| match schema.get(word) {
            None => Ok(None),
            Some(n) => {
                whole(n).map(Some).ok_or_else(|| format!("{word} must be a whole number, not negative"))
            }
        };
        let number = |word: &str| match schema.get(word) {
            None => Ok(None),
            Some(Value::Number(n)) => Ok(Some(n.clone())),
            Some(_) => Err(format!("{word} must be a number")),
        };
        match schema.get("type").and_then(Value::as_str) {
            Some("string") if schema.contains_key("oneOf") => {
                allow(&["oneOf"])?;
                let options = titled(schema.get("oneOf"))?;
                Ok(Field::Choice { options, names: false, default: text("a string")? })
            }
            Some("string") if schema.contains_key("enum") => {
                allow(&["enum", "enumNames"])?;
                let mut options = untitled(schema.get("enum"))?;
                // The form of revision 2025-06-18, which SEP-1330 keeps for now.
                if let Some(names) = schema.get("enumNames") {
                    let names = strings(names).filter(|names| names.len() == options.len());
                    let names = names.ok_or("enumNames must have one string for each value")?;
                    for (option, name) in options.iter_mut().zip(names) {
                        option.title = Some(name);
                    }
                }
                let names = schema.contains_key("enumNames");
                Ok(Field::Choice { options, names, default: text("a string")? })
            }
            Some("string") => {
                allow(&["minLength", "maxLength", "format"])?;
                let format = match schema.get("format") {
                    None => None,
                    Some(name) => Some(
                        name.as_str()
                            .and_then(Format::parse)
                            .ok_or("format must be email, uri, date or date-time")?,
                    ),
                };
                let (min, max) = (count("minLength")?, count("maxLength")?);
                Ok(Field::Text { min, max, format, default: text("a string")? })
            }
            Some(kind @ ("number" | "integer")) => {
                allow(&["minimum", "maximum"])?;
                let (min, max, default) = (number("minimum")?, number("maximum")?, number("default")?);
                Ok(Field::Number { integer: kind == "integer", min, max, default })
            }
            Some("boolean") => {
                allow(&[])?;
                let default = default.map(|flag| flag.as_bool().ok_or("default must be true or false"));
                Ok(Field::Flag { default: default.transpose()? })
            }
            Some("array") => {
                allow(&["items", "minItems", "maxItems"])?;
                let items =
                    schema.get("items").and_then(Value::as_object).ok_or("items must be an object")?;
                let options = if items.contains_key("anyOf") {
                    only(items, &["anyOf"]).map_err(|name| format!("items must not have {name}"))?;
                    titled(items.get("anyOf"))?
                } else {
                    only(items, &["type", "enum"]).map_err(|name| format!("items must not have {name}"))?;
                    if items.get("type").and_then(Value::as_str) != Some("string") {
                        return Err("items must be of type string".into());
                    }
                    untitled(items.get("enum"))?
                };
                let default = default.map(|all| strings(all).ok_or("default must be an array of strings"));
                let (min, max) = (count("minItems")?, count("maxItems")?);
                Ok(Field::Choices { options, min, max, default: default.transpose()? })
            }
            _ => Err("type must be string, number, integer, boolean, or array for several choices".into()),
        }
    }

    /// The schema, `type` included.
    pub(super) fn to_map(&self) -> Map<String, Value> {
        let mut map = Map::new();
        let mut set = |word: &str, value: Option<Value>| {
            map.extend(value.map(|value| (word.to_owned(), value)));
        };
        match self {
            Field::Text { min, max, format, .. } => {
                set("type", Some(json!("string")));
                set("minLength", min.map(Value::from));
                set("maxLength", max.map(Value::from));
                set("format", format.map(|format| json!(format.as_str())));
            }
            Field::Number { integer, min, max, .. } => {
                set("type", Some(json!(if *integer { "integer" } else { "number" })));
                set("minimum", min.clone().map(Value::Number));
                set("maximum", max.clone().map(Value::Number));
            }
            Field::Flag { .. } => set("type", Some(json!("boolean"))),
            Field::Choice { options, names, .. } => {
                set("type", Some(json!("string")));
                match constants(options) {
                    Some(constants) if !names => set("oneOf", Some(constants)),
                    titled => {
                        set("enum", Some(values(options)));
                        set("enumNames", titled.map(|_| titles(options)));
                    }
                }
            }
            Field::Choices { options, min, max, .. } => {
                set("type", Some(json!("array")));
                set("minItems", min.map(Value::from));
                set("maxItems", max.map(Value::from));
                set(
                    "items",
                    Some(match constants(options) {
                        Some(constants) => json!({ "anyOf": constants }),
                        None => json!({ "type": "string", "enum": values(options) }),
                    }),
                );
            }
        }
        set("default", self.default());
        map
    }

    /// The same as revision 2025-06-18 has it: titles as `enumNames`, and defaults of flags alone.
    pub(super) fn to_map_2025_06_18(&self) -> Map<String, Value> {
        let mut map = self.to_map();
        if !matches!(self, Field::Flag { .. }) {
            map.remove("default");
        }
        if let Field::Choice { options, .. } = self
            && map.remove("oneOf").is_some()
        {
            map.insert("enum".into(), values(options));
            map.insert("enumNames".into(), titles(options));
        }
        map
    }

    /// Whether a value answers it.
    ///
    /// # Errors
    /// What it must be. The value isn't shown: it may be a secret.
    pub(super) fn fits(&self, value: &Value) -> Result<(), String> {
        match (self, value) {
            (Field::Text { min, max, format, .. }, Value::String(text)) => {
                let length = text.chars().count() as u64;
                if let Some(min) = min.filter(|min| length < *min) {
                    return Err(format!("must have {min} characters or more"));
                }
                if let Some(max) = max.filter(|max| length > *max) {
                    return Err(format!("must have {max} characters at most"));
                }
                match format.filter(|format| !format.fits(text)) {
                    Some(format) => Err(format!("must be {}", format.words())),
                    None => Ok(()),
                }
            }
            (Field::Text { .. }, _) => Err("must be a string".into()),
            (Field::Number { integer, min, max, .. }, Value::Number(n)) => {
                if *integer && !is_whole(n) {
                    return Err("must be a whole number".into());
                }
                if let Some(min) = min.as_ref().filter(|min| compare(n, min).is_lt()) {
                    return Err(format!("must be {min} or more"));
                }
                match max.as_ref().filter(|max| compare(n, max).is_gt()) {
                    Some(max) => Err(format!("must be {max} at most")),
                    None => Ok(()),
                }
            }
            (Field::Number { .. }, _) => Err("must be a number".into()),
            (Field::Flag { .. }, Value::Bool(_)) => Ok(()),
            (Field::Flag { .. }, _) => Err("must be true or false".into()),
            (Field::Choice { options, .. }, Value::String(text)) if has(options, text) => Ok(()),
            (Field::Choice { .. }, _) => Err("must be one of the values offered".into()),
            (Field::Choices { options, min, max, .. }, Value::Array(all)) => {
                let mut seen = HashSet::new();
                for one in all {
                    match one.as_str().filter(|one| has(options, one)) {
                        None => return Err("must hold values offered, and no others".into()),
                        Some(one) if !seen.insert(one) => return Err("must hold each value once".into()),
                        Some(_) => {}
                    }
                }
                let length = all.len() as u64;
                if let Some(min) = min.filter(|min| length < *min) {
                    return Err(format!("must hold {min} values or more"));
                }
                match max.filter(|max| length > *max) {
                    Some(max) => Err(format!("must hold {max} values at most")),
                    None => Ok(()),
                }
            }
            (Field::Choices { .. }, _) => Err("must be an array of the values offered".into()),
        }
    }
}

fn has(options: &[Choice], value: &str) -> bool {
    options.iter().any(|option| option.value == value)
}

fn distinct(options: &[Choice]) -> Result<(), String> {
    if options.is_empty() || options.len() > MAX_OPTIONS {
        return Err(format!("a choice has 1 to {MAX_OPTIONS} options"));
    }
    let mut seen = HashSet::new();
    if !options.iter().all(|option| seen.insert(&*option.value)) {
        return Err("a value is offered twice".into());
    }
    let with_title = options.iter().filter(|option| option.title.is_some()).count();
    if with_title != 0 && with_title != options.len() {
        return Err("either all options have a title, or none has".into());
    }
    Ok(())
}

fn ordered(min: &Option<u64>, max: &Option<u64>, [least, most]: [&str; 2]) -> Result<(), String> {
    match (min, max) {
        (Some(min), Some(max)) if min > max => Err(format!("{least} is greater than {most}")),
        _ => Ok(()),
    }
}

fn untitled(values: Option<&Value>) -> Result<Vec<Choice>, String> {
    let values = values.and_then(strings).ok_or("enum must be an array of strings")?;
    Ok(values.into_iter().map(|value| Choice { value, title: None }).collect())
}

fn titled(constants: Option<&Value>) -> Result<Vec<Choice>, String> {
    let read = |one: &Value| {
        let one = one.as_object().filter(|one| one.len() == 2)?;
        let text = |name: &str| one.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Choice { value: text("const")?, title: Some(text("title")?) })
    };
    let all = constants.and_then(Value::as_array).and_then(|all| all.iter().map(read).collect());
    all.ok_or_else(|| "options must be an array of {\"const\", \"title\"}".into())
}

fn values(options: &[Choice]) -> Value {
    options.iter().map(|option| json!(option.value)).collect()
}

/// The titles alone.
fn titles(options: &[Choice]) -> Value {
    options.iter().map(|o| o.title.as_deref().unwrap_or(&o.value)).collect()
}

/// The options with their titles; `None` if they have none.
fn constants(options: &[Choice]) -> Option<Value> {
    let constant =
        |option: &Choice| option.title.as_ref().map(|title| json!({ "const": option.value, "title": title }));
    options.iter().map(constant).collect()
}

/// A whole number that isn't negative, also if it is written with a fraction of zero.
fn whole(value: &Value) -> Option<u64> {
    let number = value.as_number()?;
    number.as_u64().or_else(|| {
        let float = number.as_f64()?;
        (float.fract() == 0.0 && (0.0..9.0e15).contains(&float)).then_some(float as u64)
    })
}

/// JSON Schema counts 1.0 as a whole number.
fn is_whole(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

/// Which number is greater, exactly.
fn compare(a: &Number, b: &Number) -> Ordering {
    // Zero has one sign.
    let float = |n: &Number| n.as_f64().unwrap_or_default() + 0.0;
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => with_float(a, float(b)),
        (None, Some(b)) => with_float(b, float(a)).reverse(),
        (None, None) => float(a).total_cmp(&float(b)),
    }
}

fn with_float(whole: i128, float: f64) -> Ordering {
    // Beyond any number that is held as a whole one.
    if float.abs() > 1e30 {
        return 0.0f64.total_cmp(&float);
    }
    whole.cmp(&(float.trunc() as i128)).then(0.0f64.total_cmp(&(float.fract() + 0.0)))
}

#[cfg(test)]
#[path = "field_tests.rs"]
mod tests;
