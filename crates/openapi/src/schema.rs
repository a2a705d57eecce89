//! OpenAPI schemas as JSON Schemas that models and clients take: without references, shallow and small.
//!
//! What is written here takes at least what the description takes: where something can't be said, less is checked, and a
//! note says so. `oneOf` becomes `anyOf`, because published alternatives often overlap.

mod alternatives;

use crate::document::{Document, Lost, is, list, text};
use crate::keywords::{bounds, properties, settle, types};
use crate::prose;
use serde_json::{Map, Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// The most bytes of one argument list's schema, as it is written.
pub(crate) const MAX_SCHEMA: usize = 24 << 10;
/// The most schemas in one.
const MAX_NODES: usize = 1500;
/// The depths that are tried, until the schema is small enough.
const DEPTHS: [usize; 7] = [10, 7, 5, 4, 3, 2, 1];
/// The longest description of one property, in characters.
const MAX_TEXT: usize = 240;
/// The most choices of an `enum`.
const MAX_CHOICES: usize = 120;
/// The most alternatives of an `anyOf`.
pub(crate) const MAX_BRANCHES: usize = 16;

/// Keywords of JSON Schema that say what this writer doesn't.
const LEFT_OUT: [&str; 12] = [
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "$dynamicRef",
];

/// A schema is larger than its bounds.
struct TooLarge;

/// The most bytes of written schemas that are kept, and the most of these.
const MAX_KEPT: usize = 16 << 20;
const MAX_PARTS: usize = 50_000;

/// To which depth, without descriptions, with kinds.
type How = (usize, bool, bool);

/// A schema as it was written, or that it was too large.
struct Part {
    written: Option<Value>,
    size: usize,
    nodes: usize,
    met: bool,
    notes: BTreeSet<String>,
}

/// Writes schemas of one description. What is known of patterns, and what was written, is kept between them.
pub(crate) struct Schemas<'a> {
    pub document: &'a Document<'a>,
    patterns: RefCell<HashMap<String, bool>>,
    parts: RefCell<HashMap<(*const Value, How), Rc<Part>>>,
    kept: Cell<usize>,
}

/// One schema while it is written.
struct Writer<'w, 'a> {
    all: &'w Schemas<'a>,
    nodes: usize,
    /// Without descriptions.
    bare: bool,
    /// With the kinds that discriminators name.
    kinds: bool,
    /// There were such kinds.
    met: bool,
    /// The references that lead here.
    within: Vec<&'a str>,
    /// The schemas whose kinds are being written.
    based: Vec<&'a Value>,
    /// The properties that the schemas around this one give the same object.
    beside: Vec<String>,
    /// Those of them that only the provider writes, as one of the schemas says.
    read_only: Vec<String>,
    notes: BTreeSet<String>,
}

impl<'a> Schemas<'a> {
    pub(crate) fn new(document: &'a Document<'a>) -> Schemas<'a> {
        Schemas { document, patterns: RefCell::default(), parts: RefCell::default(), kept: Cell::new(0) }
    }

    /// The schema of the arguments with these names, and what is checked less strictly than described.
    pub(crate) fn write(&self, parts: &[(String, &'a Value)]) -> (Vec<(String, Value)>, BTreeSet<String>) {
        let tries = [(&DEPTHS[0], false, true)].into_iter();
        let tries = tries.chain(DEPTHS.iter().map(|d| (d, false, false)));
        let mut met = true;
        for (i, depth) in tries.chain([(&1, true, false), (&0, true, false)]).enumerate() {
            if i == 1 && !met {
                // Without kinds it would be what was too large already.
                continue;
            }
            let (mut out, mut notes, mut nodes, mut size) = (Vec::new(), BTreeSet::new(), 0, 0);
            met = false;
            for (name, schema) in parts {
                let part = self.part(schema, (*depth.0, depth.1, depth.2));
                met |= part.met;
                let Some(written) = &part.written else { break };
                size += name.len() + part.size;
                nodes += part.nodes;
                if size > MAX_SCHEMA || nodes > MAX_NODES {
                    break;
                }
                notes.extend(part.notes.iter().cloned());
                out.push((name.clone(), written.clone()));
            }
            if out.len() == parts.len() {
                if i > 1 {
                    notes.insert("deep parts of its schema are left out".into());
                }
                return (out, notes);
            }
        }
        let notes = ["its schema is too large and is left out".to_owned()].into();
        (parts.iter().map(|(name, _)| (name.clone(), json!({}))).collect(), notes)
    }

    /// One part, written at a depth, without descriptions or with them, with kinds or without. The same few schemas are in
    /// most operations of a large description, so what was written is kept for a while.
    fn part(&self, schema: &'a Value, how: How) -> Rc<Part> {
        let key = (std::ptr::from_ref(schema), how);
        if let Some(known) = self.parts.borrow().get(&key) {
            return known.clone();
        }
        let mut writer = Writer {
            all: self,
            nodes: 0,
            bare: how.1,
            kinds: how.2,
            met: false,
            within: Vec::new(),
            based: Vec::new(),
            beside: Vec::new(),
            read_only: Vec::new(),
            notes: BTreeSet::new(),
        };
        let written = writer.schema(schema, how.0).ok();
        let size = written.as_ref().map_or(0, |w| w.to_string().len());
        // What is too large by itself is in no list of arguments.
        let written = written.filter(|_| size <= MAX_SCHEMA);
        let part = Part { written, size, nodes: writer.nodes, met: writer.met, notes: writer.notes };
        let part = Rc::new(part);
        let mut parts = self.parts.borrow_mut();
        let kept = self.kept.get() + if part.written.is_some() { size } else { 0 };
        if kept > MAX_KEPT || parts.len() >= MAX_PARTS {
            parts.clear();
            self.kept.set(0);
        } else {
            self.kept.set(kept);
        }
        parts.insert(key, part.clone());
        part
    }

    /// Whether a pattern can be checked, by the rules of whoever checks arguments.
    fn takes_pattern(&self, pattern: &str) -> bool {
        if pattern.len() > 500 {
            return false;
        }
        if let Some(known) = self.patterns.borrow().get(pattern) {
            return *known;
        }
        let takes = compiles(&json!({ "type": "string", "pattern": pattern }));
        self.patterns.borrow_mut().insert(pattern.to_owned(), takes);
        takes
    }
}

fn compiles(schema: &Value) -> bool {
    validator(schema).is_some()
}

/// A schema, compiled as for arguments.
pub(crate) fn validator(schema: &Value) -> Option<jsonschema::Validator> {
    jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .with_pattern_options(jsonschema::PatternOptions::regex())
        .build(schema)
        .ok()
}

impl<'a> Writer<'_, 'a> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Result<Value, TooLarge> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(TooLarge);
        }
        let Value::Object(members) = schema else {
            return Ok(if schema == &Value::Bool(false) { json!({ "not": {} }) } else { json!({}) });
        };
        if let Some(to) = members.get("$ref").and_then(Value::as_str) {
            return self.referred(to, schema, depth);
        }
        self.plain(schema, members, depth)
    }

    fn referred(&mut self, to: &'a str, schema: &'a Value, depth: usize) -> Result<Value, TooLarge> {
        let target = match self.all.document.at(to) {
            Ok(target) => target,
            Err(lost) => return Ok(self.lost(&lost)),
        };
        // A schema inside itself is written once more and then cut: one step shows what the next would be.
        if self.within.iter().filter(|r| **r == to).count() > 1 || self.within.len() > 64 {
            self.notes.insert("a schema that holds itself is cut".into());
            return Ok(self.cut(target));
        }
        self.within.push(to);
        let written = self.schema(target, depth);
        self.within.pop();
        let mut written = written?;
        if let (Some(about), Value::Object(w)) = (text(schema, "description"), &mut written)
            && !self.bare
        {
            w.insert("description".into(), Value::from(prose::short(about, MAX_TEXT)));
        }
        Ok(written)
    }

    fn lost(&mut self, lost: &Lost) -> Value {
        self.notes.insert(lost.said());
        json!({})
    }

    /// A schema of which only the type is said.
    fn cut(&mut self, schema: &Value) -> Value {
        let mut out = Map::new();
        if let Some(types) = types(schema) {
            out.insert("type".into(), types);
        }
        if !self.bare {
            out.insert("description".into(), Value::from("Its parts are not shown here."));
        }
        Value::Object(out)
    }

    fn plain(
        &mut self,
        schema: &'a Value,
        members: &'a Map<String, Value>,
        depth: usize,
    ) -> Result<Value, TooLarge> {
        let mut out = Map::new();
        let mut alternatives: Vec<Value> = Vec::new();
        let (around, hidden) = (self.beside.len(), self.read_only.len());
        if ["allOf", "anyOf", "oneOf"].iter().any(|k| !list(schema, k).is_empty()) {
            let (beside, read_only) = (&mut self.beside, &mut self.read_only);
            properties(self.all.document, schema, &mut MAX_NODES.clone(), beside, read_only);
        }
        for part in list(schema, "allOf") {
            let part = self.schema(part, depth)?;
            self.merge(&mut out, part, &mut alternatives);
        }
        self.beside.truncate(around);
        let parts = !out.is_empty();
        if depth == 0
            && ["properties", "items", "oneOf", "anyOf", "additionalProperties"]
                .iter()
                .any(|k| members.contains_key(*k))
        {
            self.read_only.truncate(hidden);
            return Ok(self.cut(schema));
        }
        let mut own = Map::new();
        // The values of its members are other objects.
        let outside = (std::mem::take(&mut self.beside), std::mem::take(&mut self.read_only));
        self.values(schema, members, &mut own, depth)?;
        (self.beside, self.read_only) = outside;
        let null = is(schema, "nullable");
        self.merge(&mut out, Value::Object(own), &mut alternatives);
        if parts {
            // What one part closes, another may open.
            if out.get("additionalProperties") == Some(&Value::Bool(false)) {
                out.remove("additionalProperties");
            }
        }
        for keyword in ["oneOf", "anyOf"] {
            let branches = list(schema, keyword);
            if !branches.is_empty() {
                self.branches(schema, branches, depth, &mut out, &mut alternatives)?;
            }
        }
        self.kinds(schema, depth, &mut out, &mut alternatives)?;
        match alternatives.len() {
            0 => {}
            1 => {
                out.insert("anyOf".into(), alternatives.remove(0));
            }
            _ => {
                let all: Vec<Value> = alternatives.into_iter().map(|a| json!({ "anyOf": a })).collect();
                out.insert("allOf".into(), Value::Array(all));
            }
        }
        settle(&mut out, null, &self.beside, &self.read_only);
        self.read_only.truncate(hidden);
        if LEFT_OUT.iter().any(|k| members.contains_key(*k)) {
            let which: Vec<&str> = LEFT_OUT.iter().copied().filter(|k| members.contains_key(*k)).collect();
            self.notes
                .insert(format!("less is checked than described: `{}` is left out", which.join("`, `")));
        }
        Ok(Value::Object(out))
    }

    /// What a schema says of values by itself.
    fn values(
        &mut self,
        schema: &'a Value,
        members: &'a Map<String, Value>,
        out: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), TooLarge> {
        if let Some(types) = types(schema) {
            out.insert("type".into(), types);
        }
        let mut about =
            text(schema, "description").or(text(schema, "title")).map(|d| prose::short(d, MAX_TEXT));
        if is(schema, "deprecated") {
            about = Some(format!("Deprecated. {}", about.unwrap_or_default()).trim_end().to_owned());
        }
        self.choices(schema, out, &mut about);
        bounds(members, out);
        if let Some(pattern) = text(schema, "pattern") {
            if self.all.takes_pattern(pattern) {
                out.insert("pattern".into(), Value::from(pattern));
            } else {
                let shown = prose::short(pattern, 80);
                about =
                    Some(format!("{} Pattern: {shown}", about.unwrap_or_default()).trim_start().to_owned());
                self.notes.insert("less is checked than described: a pattern can't be checked here".into());
            }
        }
        if let Some(about) = about.filter(|a| !a.is_empty() && !self.bare) {
            out.insert("description".into(), Value::from(about));
        }
        if let Some(Value::Object(properties)) = members.get("properties") {
            if properties.len() > MAX_NODES {
                return Err(TooLarge);
            }
            let mut written = Map::new();
            for (name, property) in properties {
                let target = self.all.document.resolve(property).unwrap_or(property);
                if is(target, "readOnly") || is(property, "readOnly") {
                    continue;
                }
                written.insert(name.clone(), self.schema(property, depth.saturating_sub(1))?);
            }
            out.insert("properties".into(), Value::Object(written));
        }
        let mut required: Vec<Value> = Vec::new();
        for name in list(schema, "required").iter().take(MAX_NODES).filter(|r| r.is_string()) {
            if !required.contains(name) {
                required.push(name.clone());
            }
        }
        if !required.is_empty() {
            out.insert("required".into(), Value::Array(required));
        }
        match members.get("additionalProperties") {
            Some(Value::Bool(false)) => {
                out.insert("additionalProperties".into(), Value::Bool(false));
            }
            Some(more @ Value::Object(m)) if !m.is_empty() => {
                let more = self.schema(more, depth.saturating_sub(1))?;
                out.insert("additionalProperties".into(), more);
            }
            _ => {}
        }
        if let Some(items) = members.get("items").filter(|i| i.is_object() || i.is_boolean()) {
            out.insert("items".into(), self.schema(items, depth.saturating_sub(1))?);
        }
        let prefix = list(schema, "prefixItems");
        if !prefix.is_empty() {
            let all: Result<Vec<Value>, TooLarge> =
                prefix.iter().map(|i| self.schema(i, depth.saturating_sub(1))).collect();
            out.insert("prefixItems".into(), Value::Array(all?));
        }
        Ok(())
    }

    fn choices(&mut self, schema: &Value, out: &mut Map<String, Value>, about: &mut Option<String>) {
        if let Some(only) = schema.get("const") {
            out.insert("const".into(), only.clone());
        }
        let choices = list(schema, "enum");
        let size: usize = choices.iter().take(MAX_CHOICES).map(|c| c.to_string().len()).sum();
        if choices.len() > MAX_CHOICES || size > MAX_CHOICES * 40 {
            let first: Vec<String> =
                choices.iter().take(8).map(|c| prose::short(&c.to_string(), 40)).collect();
            let all = format!("One of {}, such as {}.", choices.len(), first.join(", "));
            *about = Some(format!("{} {all}", about.clone().unwrap_or_default()).trim_start().to_owned());
            self.notes.insert("less is checked than described: a long list of choices is left out".into());
        } else if !choices.is_empty() {
            let mut unique: Vec<Value> = Vec::new();
            for choice in choices {
                if !unique.contains(choice) {
                    unique.push(choice.clone());
                }
            }
            out.insert("enum".into(), Value::Array(unique));
        }
        if let Some(default) = schema.get("default").filter(|d| !d.is_null() && d.to_string().len() <= 100) {
            out.insert("default".into(), default.clone());
        }
    }
}
