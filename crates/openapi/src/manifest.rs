//! Manifests as they are written, and written again: what an operator has changed since the last import stays.
//!
//! Each imported field leaves a digest of its value behind. A field whose value no longer has that digest is the
//! operator's; so is one that is gone, and one that was never imported.

use crate::names::digest;
use crate::report::Changes;
use crate::select::Selection;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table};

/// Where an import leaves what it has to know at the next.
const IMPORTED: &str = "imported";

/// Fields in the order in which they are written.
pub(crate) type Fields = Vec<(&'static str, Value)>;

/// A method to be written.
pub(crate) struct Entry {
    pub name: String,
    /// Verb and path, as described.
    pub http: String,
    /// The operation's id, if it has one.
    pub operation: Option<String>,
    pub fields: Fields,
    /// What was derived of its safety, by field.
    pub derived: Vec<(&'static str, &'static str)>,
}

/// A method that is there.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub name: String,
    /// Its tool's name, where the operator has set one.
    pub wire: Option<String>,
    pub http: Option<String>,
    pub operation: Option<String>,
}

/// A manifest that is there, or a new one.
#[derive(Clone)]
pub(crate) struct Manifest {
    document: DocumentMut,
    pub known: Vec<Known>,
    /// What was chosen before.
    pub selections: Vec<Selection>,
    /// What was said on the command line, now or before, beside what was chosen.
    pub said: Value,
    /// The operations that were imported before: verbs and paths.
    before: BTreeSet<String>,
}

impl Manifest {
    /// # Errors
    /// The text is no TOML.
    pub(crate) fn read(text: Option<&str>) -> Result<Manifest, String> {
        let document: DocumentMut =
            text.unwrap_or_default().parse().map_err(|e: toml_edit::TomlError| e.to_string())?;
        let mut known = Vec::new();
        for (name, method) in
            document.get("methods").and_then(Item::as_table_like).into_iter().flat_map(|t| t.iter())
        {
            let said = |field: &str| method.get(IMPORTED)?.get(field)?.as_str().map(str::to_owned);
            known.push(Known {
                name: name.to_owned(),
                wire: method.get("name").and_then(Item::as_str).map(str::to_owned),
                http: said("http"),
                operation: said("operation"),
            });
        }
        let imported = document.get(IMPORTED).map_or(Value::Null, item);
        let texts = |v: &Value| -> Vec<String> {
            v.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let selections = imported["selections"].as_array().into_iter().flatten().map(|s| Selection {
            tags: texts(&s["tags"]),
            paths: texts(&s["paths"]),
            operations: texts(&s["operations"]),
        });
        let selections = selections.collect();
        let before = texts(&imported["operations"]).into_iter().collect();
        let said = imported["options"].clone();
        Ok(Manifest { known, selections, said, before, document })
    }

    /// Whether a field of the top level was imported before, whatever became of it.
    pub(crate) fn had_imported(&self, field: &str) -> bool {
        let imported = self.document.get(IMPORTED).map_or(Value::Null, item);
        imported["digests"].get(field).is_some()
    }

    /// The operations that the operator has taken out.
    pub(crate) fn taken_out(&self) -> BTreeSet<String> {
        let there: BTreeSet<&str> = self.known.iter().filter_map(|k| k.http.as_deref()).collect();
        self.before.iter().filter(|b| !there.contains(b.as_str())).cloned().collect()
    }

    /// Writes what is imported now. `described` are all operations of the description, chosen or not, as verbs and paths;
    /// `renamed` those that are no more where they were, `left_out` those that stay out.
    pub(crate) fn write(
        mut self,
        head: &str,
        top: &Fields,
        entries: &[Entry],
        described: &BTreeSet<String>,
        renamed: &BTreeSet<String>,
        left_out: &[String],
    ) -> (String, Changes) {
        let mut changes = Changes { left_out: left_out.to_vec(), ..Changes::default() };
        let fresh = self.document.as_table().is_empty();
        let old = self.document.remove(IMPORTED).map_or(Value::Null, |i| item(&i));
        let (changed, kept, digests) = merge(self.document.as_table_mut(), &old["digests"], top);
        if !fresh {
            note(&mut changes, "", changed, kept);
        }
        if fresh && let Some(mut key) = self.document.key_mut("name") {
            key.leaf_decor_mut().set_prefix(head);
        }
        let mut methods = match self.document.remove("methods") {
            Some(Item::Table(methods)) => methods,
            Some(other) => other.into_table().unwrap_or_default(),
            None => Table::new(),
        };
        methods.set_implicit(true);
        let gone: Vec<(String, bool)> = self
            .known
            .iter()
            .filter_map(|k| {
                // What was never imported is the operator's own.
                let http = k.http.as_ref()?;
                if described.contains(http) || renamed.contains(http) {
                    return None;
                }
                let touched = methods.get(&k.name).and_then(Item::as_table_like).is_some_and(touched);
                Some((k.name.clone(), touched))
            })
            .collect();
        for (name, touched) in gone {
            if touched {
                changes.kept.insert(name, vec!["all of it: the description no longer has it".into()]);
            } else {
                methods.remove(&name);
                changes.removed.push(name);
            }
        }
        for entry in entries {
            let added = !methods.contains_key(&entry.name);
            let place = methods.entry(&entry.name).or_insert_with(|| Item::Table(Table::new()));
            if !place.is_table() {
                let as_table = std::mem::take(place).into_table().unwrap_or_default();
                *place = Item::Table(as_table);
            }
            let Some(table) = place.as_table_mut() else { continue };
            let old = table.remove(IMPORTED).map_or(Value::Null, |i| item(&i));
            let (changed, kept, digests) = merge(table, &old["digests"], &entry.fields);
            table.insert(IMPORTED, toml_edit::value(inline(&imported(entry, &digests))));
            if added {
                changes.added.push(entry.name.clone());
            } else {
                note(&mut changes, &entry.name, changed, kept);
            }
        }
        self.document.insert("methods", Item::Table(methods));
        let mut imported = Table::new();
        let selections = self.selections.iter().map(|s| {
            let mut all = Map::new();
            for (name, values) in [("tags", &s.tags), ("paths", &s.paths), ("operations", &s.operations)] {
                if !values.is_empty() {
                    all.insert(name.into(), json!(values));
                }
            }
            Value::Object(all)
        });
        imported.insert("selections", toml_edit::value(value(&Value::Array(selections.collect()))));
        if self.said.as_object().is_some_and(|s| !s.is_empty()) {
            imported.insert("options", toml_edit::value(value(&self.said)));
        }
        imported.insert("digests", toml_edit::value(value(&json!(digests))));
        let mut operations: BTreeSet<&str> = entries.iter().map(|e| e.http.as_str()).collect();
        operations.extend(self.before.iter().map(String::as_str).filter(|b| described.contains(*b)));
        let mut list = Array::new();
        for operation in operations {
            list.push(operation);
            if let Some(last) = list.get_mut(list.len() - 1) {
                last.decor_mut().set_prefix("\n  ");
            }
        }
        list.set_trailing("\n");
        imported.insert("operations", toml_edit::value(list));
        self.document.insert(IMPORTED, Item::Table(imported));
        (self.document.to_string(), changes)
    }
}

fn note(changes: &mut Changes, name: &str, changed: Vec<String>, kept: Vec<String>) {
    if !changed.is_empty() {
        changes.changed.insert(name.to_owned(), changed);
    }
    if !kept.is_empty() {
        changes.kept.insert(name.to_owned(), kept);
    }
}

/// What is known of a method at the next import, and what `info` tells of its origin.
fn imported(entry: &Entry, digests: &BTreeMap<String, String>) -> Value {
    let mut out = Map::new();
    if let Some(operation) = &entry.operation {
        out.insert("operation".into(), json!(operation));
    }
    out.insert("http".into(), json!(entry.http));
    for (field, word) in &entry.derived {
        out.insert((*field).to_owned(), json!(word));
    }
    out.insert("digests".into(), json!(digests));
    Value::Object(out)
}

/// Whether an operator has changed anything of a method.
fn touched(method: &dyn toml_edit::TableLike) -> bool {
    let digests = method.get(IMPORTED).map_or(Value::Null, |i| item(i)["digests"].take());
    let same = |name: &str, i: &Item| digests[name].as_str().is_some_and(|d| d == digest_of(&item(i)));
    method.iter().any(|(name, i)| name != IMPORTED && !same(name, i))
        || digests.as_object().is_some_and(|d| d.keys().any(|k| !method.contains_key(k)))
}

/// Puts fields into a table, but not over what the operator has changed. Tells which fields changed, which are kept, and
/// the digests of what is imported now.
fn merge(
    table: &mut Table,
    digests: &Value,
    fields: &Fields,
) -> (Vec<String>, Vec<String>, BTreeMap<String, String>) {
    let (mut changed, mut kept, mut now) = (Vec::new(), Vec::new(), BTreeMap::new());
    let old: Vec<String> = digests.as_object().map(|d| d.keys().cloned().collect()).unwrap_or_default();
    let dropped =
        old.iter().filter(|o| !fields.iter().any(|(name, _)| name == o)).map(|o| (o.as_str(), None));
    for (name, new) in fields.iter().map(|(name, v)| (*name, Some(v))).chain(dropped) {
        let here = table.get(name).map(item);
        let was = digests[name].as_str();
        let ours = match (&here, was) {
            (Some(here), Some(was)) => digest_of(here) == was,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if let Some(new) = new {
            now.insert(name.to_owned(), digest_of(new));
        }
        match (ours, new) {
            (true, Some(new)) if here.as_ref() != Some(new) => {
                // An item in place keeps the comments around it.
                match table.get_mut(name) {
                    Some(place) => *place = toml_edit::value(value(new)),
                    None => {
                        table.insert(name, toml_edit::value(value(new)));
                    }
                }
                changed.push(name.to_owned());
            }
            (true, None) if here.is_some() => {
                table.remove(name);
                changed.push(name.to_owned());
            }
            (false, new) if here.as_ref() != new => kept.push(name.to_owned()),
            _ => {}
        }
    }
    (changed, kept, now)
}

/// A digest of a value, whatever the order of its members.
fn digest_of(value: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let by_name: BTreeMap<&String, &Value> = members.iter().collect();
                Value::Object(by_name.into_iter().map(|(n, v)| (n.clone(), sorted(v))).collect())
            }
            Value::Array(all) => Value::Array(all.iter().map(sorted).collect()),
            other => other.clone(),
        }
    }
    digest(&sorted(value).to_string())
}

/// A JSON value in TOML, on one line. There is no null in what is written here.
fn value(json: &Value) -> toml_edit::Value {
    match json {
        Value::Null => "".into(),
        Value::Bool(b) => (*b).into(),
        Value::Number(n) => match n.as_i64() {
            Some(i) => i.into(),
            None => n.as_f64().unwrap_or_default().into(),
        },
        Value::String(s) => s.as_str().into(),
        Value::Array(all) => toml_edit::Value::Array(all.iter().map(value).collect()),
        Value::Object(_) => toml_edit::Value::InlineTable(inline(json)),
    }
}

fn inline(json: &Value) -> InlineTable {
    json.as_object().into_iter().flatten().map(|(name, v)| (name.as_str(), value(v))).collect()
}

/// What TOML says, as JSON. A date, which no field has, is its text.
fn item(item: &Item) -> Value {
    fn of(value: &toml_edit::Value) -> Value {
        match value {
            toml_edit::Value::String(s) => json!(s.value()),
            toml_edit::Value::Integer(i) => json!(i.value()),
            toml_edit::Value::Float(f) => json!(f.value()),
            toml_edit::Value::Boolean(b) => json!(b.value()),
            toml_edit::Value::Datetime(d) => json!(d.value().to_string()),
            toml_edit::Value::Array(all) => Value::Array(all.iter().map(of).collect()),
            toml_edit::Value::InlineTable(t) => {
                Value::Object(t.iter().map(|(name, v)| (name.to_owned(), of(v))).collect())
            }
        }
    }
    match item {
        Item::None => Value::Null,
        Item::Value(v) => of(v),
        Item::Table(t) => Value::Object(t.iter().map(|(name, i)| (name.to_owned(), self::item(i))).collect()),
        Item::ArrayOfTables(all) => Value::Array(
            all.iter()
                .map(|t| Value::Object(t.iter().map(|(n, i)| (n.to_owned(), self::item(i))).collect()))
                .collect(),
        ),
    }
}
