//! Arguments made from a tool's own schema: what a model could write, and more of it than a model would think of.
//!
//! Whatever comes out is valid by an independent reading of the schema, or nothing comes out. The same seed gives the
//! same arguments.

mod pattern;
mod text;

use crate::random::Random;
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How deep objects and lists are filled with what is not required.
const DEPTH: usize = 4;
/// How many members that are not required an object gets.
const OPTIONAL: usize = 8;
/// How often another try is made where what was made is not valid.
const TRIES: u64 = 40;

/// The characters that an argument's texts may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    /// All but slashes of both kinds: one segment of a path.
    Segment,
    /// What can be seen in ASCII: a header.
    Visible,
}

impl Alphabet {
    fn has(self, c: char) -> bool {
        match self {
            Alphabet::Segment => c != '/' && c != '\\',
            Alphabet::Visible => c.is_ascii_graphic(),
        }
    }
}

/// Arguments that are valid by the schema, those that are named here in their alphabets.
///
/// # Errors
/// The schema can't be read, or none were found.
pub fn arguments(schema: &Value, alphabets: &BTreeMap<String, Alphabet>, seed: u64) -> Result<Value> {
    let validator = jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .with_pattern_options(jsonschema::PatternOptions::regex())
        .should_validate_formats(true)
        .build(schema)
        .context("the schema can't be read")?;
    let mut last = None;
    for number in 0..TRIES {
        // Tries that fail are followed by more modest ones.
        let optional = [60, 40, 20, 0][usize::try_from(number / 10).unwrap_or(3).min(3)];
        let mut maker = Maker { random: Random::new(seed, number), optional };
        let mut made = maker.value(schema, 0);
        for (name, alphabet) in alphabets {
            if let Some(Value::String(text)) = made.get_mut(name) {
                *text = text.chars().map(|c| if alphabet.has(c) { c } else { '_' }).collect();
            }
        }
        match validator.validate(&made) {
            Ok(()) => return Ok(made),
            Err(why) => last = Some(format!("at {:?}: {why}", why.instance_path().to_string())),
        }
    }
    anyhow::bail!("no valid arguments were found: {}", last.unwrap_or_default())
}

struct Maker {
    random: Random,
    /// How many of a hundred members that are not required are made.
    optional: u64,
}

impl Maker {
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        let Some(rules) = schema.as_object() else { return json!("anything") };
        if let Some(one) = rules.get("const") {
            return one.clone();
        }
        if let Some(choices) = rules.get("enum").and_then(Value::as_array).filter(|c| !c.is_empty()) {
            return self.random.one(choices).clone();
        }
        let rules = self.chosen(rules);
        match self.kind(&rules).as_str() {
            "object" => self.object(&rules, depth),
            "array" => self.array(&rules, depth),
            "integer" => json!(self.whole(&rules)),
            "number" => self.number(&rules),
            "boolean" => json!(self.random.chance(50)),
            "null" => Value::Null,
            _ => self.text(&rules),
        }
    }

    /// The rules with one of the alternatives among them, and all that hold together.
    fn chosen(&mut self, rules: &Map<String, Value>) -> Map<String, Value> {
        let mut all = rules.clone();
        for name in ["anyOf", "oneOf"] {
            if let Some(Value::Array(choices)) = all.remove(name)
                && !choices.is_empty()
            {
                let choice = self.random.one(&choices).clone();
                merge(&mut all, &choice);
            }
        }
        if let Some(Value::Array(parts)) = all.remove("allOf") {
            for part in &parts {
                merge(&mut all, part);
            }
        }
        if ["anyOf", "oneOf", "allOf"].iter().any(|n| all.contains_key(*n)) { self.chosen(&all) } else { all }
    }

    fn kind(&mut self, rules: &Map<String, Value>) -> String {
        match rules.get("type") {
            Some(Value::String(kind)) => return kind.clone(),
            Some(Value::Array(kinds)) => {
                let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
                let full: Vec<&str> = kinds.iter().copied().filter(|k| *k != "null").collect();
                // Null where it is all there is, and now and then.
                let of = if full.is_empty() || self.random.chance(5) { &kinds } else { &full };
                if !of.is_empty() {
                    return (*self.random.one(of)).to_owned();
                }
            }
            _ => {}
        }
        let hints =
            [("properties", "object"), ("required", "object"), ("items", "array"), ("minimum", "number")];
        hints.iter().find(|(rule, _)| rules.contains_key(*rule)).map_or("string", |(_, kind)| kind).to_owned()
    }

    fn object(&mut self, rules: &Map<String, Value>, depth: usize) -> Value {
        let empty = Map::new();
        let properties = rules.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required: Vec<&str> = rules
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let most = limit(rules, "maxProperties").unwrap_or(usize::MAX);
        let mut made = Map::new();
        for name in &required {
            let schema = properties.get(*name).unwrap_or(&Value::Null);
            made.insert((*name).to_owned(), self.value(schema, depth + 1));
        }
        let mut others: Vec<&String> =
            properties.keys().filter(|n| !required.contains(&n.as_str())).collect();
        self.random.shuffle(&mut others);
        let share = if depth >= DEPTH { 0 } else { self.optional / (1 + depth as u64) };
        for name in others.into_iter().take(OPTIONAL) {
            if made.len() < most && self.random.chance(share) {
                made.insert(name.clone(), self.value(&properties[name], depth + 1));
            }
        }
        let least =
            limit(rules, "minProperties").unwrap_or(usize::from(properties.is_empty() && depth < DEPTH));
        if let Some(schema) = rules.get("additionalProperties").filter(|s| s.is_object()) {
            for n in 1..=8 {
                if made.len() >= least.min(most) {
                    break;
                }
                made.insert(format!("member_{n}"), self.value(schema, depth + 1));
            }
        }
        Value::Object(made)
    }

    fn array(&mut self, rules: &Map<String, Value>, depth: usize) -> Value {
        let least = limit(rules, "minItems").unwrap_or(0).max(1);
        let most = limit(rules, "maxItems").unwrap_or(least + 2).max(limit(rules, "minItems").unwrap_or(0));
        let count = (least + usize::try_from(self.random.below(3)).unwrap_or(0)).min(most);
        let any = json!({ "type": "string" });
        let schema = rules.get("items").unwrap_or(&any);
        let distinct = rules.get("uniqueItems") == Some(&Value::Bool(true));
        let mut made: Vec<Value> = Vec::new();
        for _ in 0..count {
            let item = self.value(schema, depth + 1);
            if !(distinct && made.contains(&item)) {
                made.push(item);
            }
        }
        Value::Array(made)
    }

    fn whole(&mut self, rules: &Map<String, Value>) -> i64 {
        let (low, high) = self.bounds(rules);
        #[allow(clippy::cast_possible_truncation)]
        let (low, high) = (low.ceil() as i64, high.floor() as i64);
        let span = u64::try_from(high.saturating_sub(low)).unwrap_or(0).saturating_add(1);
        let n = low.saturating_add(i64::try_from(self.random.below(span)).unwrap_or(0));
        match rules.get("multipleOf").and_then(Value::as_i64).filter(|m| *m > 0) {
            Some(of) => (n / of) * of,
            None => n,
        }
    }

    fn number(&mut self, rules: &Map<String, Value>) -> Value {
        let (low, high) = self.bounds(rules);
        if rules.contains_key("multipleOf") || high - low < 2.0 {
            return json!(self.whole(rules));
        }
        // Halves and quarters are what every reader has exactly.
        #[allow(clippy::cast_precision_loss)]
        let part = self.random.below(4) as f64 / 4.0;
        #[allow(clippy::cast_precision_loss)]
        let whole = self.whole(rules) as f64;
        json!(if whole + part <= high { whole + part } else { whole })
    }

    /// Both ends, where nobody says: small numbers.
    fn bounds(&mut self, rules: &Map<String, Value>) -> (f64, f64) {
        let at = |name: &str| rules.get(name).and_then(Value::as_f64);
        let low = at("minimum").or_else(|| at("exclusiveMinimum").map(|n| n + 1.0));
        let high = at("maximum").or_else(|| at("exclusiveMaximum").map(|n| n - 1.0));
        match (low, high) {
            (Some(low), Some(high)) => (low, high.min(low + 1e6)),
            (Some(low), None) => (low, low + 1000.0),
            (None, Some(high)) => ((high - 1000.0).max(1.0).min(high), high),
            (None, None) => (1.0, 1000.0),
        }
    }

    fn text(&mut self, rules: &Map<String, Value>) -> Value {
        let least = limit(rules, "minLength").unwrap_or(1);
        let most = limit(rules, "maxLength").unwrap_or(usize::MAX).max(least);
        if let Some(pattern) = rules.get("pattern").and_then(Value::as_str)
            && let Some(made) = pattern::matching(pattern, least, &mut self.random)
        {
            return json!(made);
        }
        let format = rules.get("format").and_then(Value::as_str).unwrap_or_default();
        json!(text::of_format(format, &mut self.random).unwrap_or_else(|| text::plain(
            least,
            most,
            &mut self.random
        )))
    }
}

fn limit(rules: &Map<String, Value>, name: &str) -> Option<usize> {
    rules.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok())
}

/// Puts what a part says to what the whole says.
fn merge(all: &mut Map<String, Value>, part: &Value) {
    for (name, new) in part.as_object().into_iter().flatten() {
        match (all.get_mut(name), new) {
            (Some(Value::Object(old)), Value::Object(new)) if name == "properties" => {
                old.extend(new.iter().map(|(n, v)| (n.clone(), v.clone())));
            }
            (Some(Value::Array(old)), Value::Array(new)) if name == "required" => {
                old.extend(new.iter().cloned());
            }
            _ => {
                all.insert(name.clone(), new.clone());
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Alphabet, arguments};
    use anyhow::Result;
    use serde_json::{Value, json};

    fn made(schema: &Value, seed: u64) -> Result<Value> {
        arguments(schema, &[("segment".to_owned(), Alphabet::Segment)].into(), seed)
    }

    #[test]
    fn what_is_made_is_valid_and_the_same_for_a_seed() {
        let schema = json!({
            "type": "object",
            "required": ["id", "list", "either", "part", "segment"],
            "additionalProperties": false,
            "properties": {
                "segment": { "type": "string" },
                "id": { "type": "string", "pattern": "^AC[0-9a-f]{8}$", "minLength": 10, "maxLength": 10 },
                "list": { "type": "array", "items": { "type": "integer", "minimum": 3, "maximum": 9 }, "minItems": 2, "uniqueItems": true },
                "either": { "anyOf": [{ "type": "string", "enum": ["", "x"] }, { "type": "object", "required": ["n"], "properties": { "n": { "type": "number", "exclusiveMinimum": 1, "multipleOf": 5 } } }] },
                "part": { "allOf": [{ "type": "object", "properties": { "a": { "type": "boolean" } } }, { "required": ["a"] }] },
                "at": { "type": ["string", "null"], "format": "date-time" },
                "mail": { "type": "string", "format": "email", "maxLength": 60 },
                "map": { "type": "object", "additionalProperties": { "type": "string", "maxLength": 3 }, "minProperties": 2 },
            },
        });
        let validator = jsonschema::validator_for(&schema).unwrap();
        let mut different = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let one = made(&schema, seed).unwrap();
            assert!(validator.is_valid(&one), "{one}");
            assert!(!one["segment"].as_str().unwrap().contains(['/', '\\']));
            assert_eq!(one, made(&schema, seed).unwrap());
            different.insert(one.to_string());
        }
        assert!(different.len() > 100);
        assert!(
            different.iter().any(|d| d.contains("\"map\""))
                && different.iter().any(|d| !d.contains("\"map\""))
        );
    }

    #[test]
    fn what_has_no_value_is_said() {
        let none = json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "integer", "minimum": 5, "maximum": 4 } } });
        assert!(made(&none, 1).is_err());
        assert!(made(&json!({ "type": "nothing" }), 1).is_err());
        assert_eq!(made(&json!({ "const": 7 }), 1).unwrap(), Value::from(7));
    }
}
