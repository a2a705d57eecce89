//! Manifests as they are written, and written again: what an operator has changed since the last import stays.

use crate::known::Places;
use crate::merge::{self, IMPORTED, Merged, digest_of, item, merge, touched};
use crate::report::{Changes, Difference};
use crate::select::Selection;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use toml_edit::{DocumentMut, Item, Table};

pub(crate) use crate::merge::Fields;

/// Fields that decide where a call goes, what it does and whether it may be repeated: what becomes of these is shown whole.
const DECISIVE: [&str; 7] = ["base_url", "auth", "preset", "http", "effect", "idempotency", "natural"];

/// A method to be written.
#[derive(Clone)]
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
    /// Its verb and path in the description that it was imported from; `None`: it is the operator's own.
    pub http: Option<String>,
    pub operation: Option<String>,
    /// Whether an operator has changed anything of it.
    pub touched: bool,
}

/// What is written.
pub(crate) struct Import<'i> {
    /// The first line of a new manifest.
    pub head: &'i str,
    pub top: &'i Fields,
    pub entries: &'i [Entry],
    /// The methods that the description no longer has, by name.
    pub gone: &'i BTreeSet<String>,
    /// Where the methods are served by the description.
    pub server: &'i Value,
    /// The operations that the operator has taken out.
    pub taken_out: &'i Places,
    /// Those of them that are described now.
    pub left_out: &'i [String],
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
    /// What the last import left behind.
    pub imported: Value,
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
                touched: method.as_table_like().is_some_and(touched),
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
        let said = imported["options"].clone();
        Ok(Manifest { known, selections, said, imported, document })
    }

    /// Whether nothing is there yet.
    pub(crate) fn is_new(&self) -> bool {
        self.document.as_table().is_empty()
    }

    /// A field of the top level as it is there.
    pub(crate) fn field(&self, name: &str) -> Option<Value> {
        self.document.get(name).map(item)
    }

    /// Whether a field of the top level was imported before, whatever became of it.
    pub(crate) fn had_imported(&self, field: &str) -> bool {
        self.imported["digests"].get(field).is_some()
    }

    /// Whether what is there of a field of the top level, or that nothing is, is an operator's doing.
    pub(crate) fn is_own(&self, field: &str) -> bool {
        let digest = self.imported["digests"][field].as_str();
        self.field(field).map(|value| digest_of(&value)).as_deref() != digest
    }

    /// The operations that the operator has taken out: they were imported, and there is no method of theirs.
    pub(crate) fn taken_out(&self) -> Places {
        let there: BTreeSet<&str> = self.known.iter().filter_map(|k| k.http.as_deref()).collect();
        let mut places = Places::new();
        for operation in self.imported["operations"].as_array().into_iter().flatten() {
            let Some(http) = operation.as_str().or_else(|| operation["http"].as_str()) else { continue };
            if !there.contains(http) {
                let ids = places.entry(http.to_owned()).or_default();
                ids.extend(operation["operation"].as_str().map(str::to_owned));
            }
        }
        places
    }

    /// The same top level with one method only, and of the last import what merging needs: the rest may be as long as the
    /// manifest.
    pub(crate) fn only(&self, method: &str) -> Manifest {
        let mut document = DocumentMut::new();
        for (name, item) in self.document.iter().filter(|(name, _)| !["methods", IMPORTED].contains(name)) {
            document.insert(name, item.clone());
        }
        if let Some(one) = self.document.get("methods").and_then(|m| m.get(method)) {
            let mut methods = Table::new();
            methods.insert(method, one.clone());
            document.insert("methods", Item::Table(methods));
        }
        let known = self.known.iter().filter(|k| k.name == method).cloned().collect();
        let imported = json!({ "digests": self.imported["digests"] });
        Manifest { document, known, selections: Vec::new(), said: Value::Null, imported }
    }

    /// Puts what is imported now into it.
    pub(crate) fn write(mut self, import: &Import<'_>) -> (String, Changes) {
        let mut changes = Changes { left_out: import.left_out.to_vec(), ..Changes::default() };
        let new = self.is_new();
        let merged = merge(self.document.as_table_mut(), &self.imported["digests"], import.top);
        let digests = merged.digests.clone();
        let mut orphans = merged.orphans.clone();
        if new {
            if let Some(mut key) = self.document.key_mut("name") {
                key.leaf_decor_mut().set_prefix(import.head);
            }
        } else {
            note(&mut changes, None, merged);
        }
        let mut standing = Places::new();
        if let Some(methods) = table(self.document.as_table_mut(), "methods", &mut orphans) {
            for known in &self.known {
                if !import.gone.contains(&known.name) {
                    continue;
                }
                if known.touched {
                    let why = vec!["all of it: the description no longer has it".into()];
                    changes.kept.insert(known.name.clone(), why);
                } else {
                    orphans.extend(merge::take_out(methods, &known.name));
                    changes.removed.push(known.name.clone());
                }
            }
            for entry in import.entries {
                set(methods, entry, &mut changes);
            }
            for (_, method) in methods.iter() {
                let said = |field: &str| method.get(IMPORTED)?.get(field)?.as_str().map(str::to_owned);
                if let Some(http) = said("http") {
                    standing.entry(http).or_default().extend(said("operation"));
                }
            }
        }
        for (http, ids) in import.taken_out {
            standing.entry(http.clone()).or_default().extend(ids.iter().cloned());
        }
        self.leave_behind(import.server, &digests, &standing, orphans);
        (self.document.to_string(), changes)
    }

    /// What the next import has to know.
    fn leave_behind(
        &mut self,
        server: &Value,
        digests: &BTreeMap<String, String>,
        operations: &Places,
        mut orphans: Vec<String>,
    ) {
        let selections = self.selections.iter().map(|s| {
            let mut all = Map::new();
            for (name, values) in [("tags", &s.tags), ("paths", &s.paths), ("operations", &s.operations)] {
                if !values.is_empty() {
                    all.insert(name.into(), json!(values));
                }
            }
            Value::Object(all)
        });
        let selections = Value::Array(selections.collect());
        let operations = operations.iter().flat_map(|(http, ids)| {
            let with = |id: &String| json!({ "http": http, "operation": id });
            match ids.is_empty() {
                true => vec![json!(http)],
                false => ids.iter().map(with).collect(),
            }
        });
        let operations: Vec<Value> = operations.collect();
        let Some(imported) = table(self.document.as_table_mut(), IMPORTED, &mut orphans) else { return };
        merge::put(imported, "selections", &selections);
        if self.said.as_object().is_some_and(|s| !s.is_empty()) {
            merge::put(imported, "options", &self.said);
        }
        merge::put(imported, "server", server);
        merge::put(imported, "digests", &json!(digests));
        if imported.get("operations").map(item) != Some(Value::Array(operations.clone())) {
            orphans.extend(merge::take_out(imported, "operations"));
            imported.insert("operations", toml_edit::value(merge::lines(operations.into_iter())));
        }
        merge::above(self.document.as_table_mut(), IMPORTED, &orphans);
    }
}

/// A table of tables, made where it isn't there. Comments that have no place any more are the caller's.
fn table<'t>(parent: &'t mut Table, name: &str, orphans: &mut Vec<String>) -> Option<&'t mut Table> {
    if !parent.contains_key(name) {
        let mut table = Table::new();
        table.set_implicit(name == "methods");
        parent.insert(name, Item::Table(table));
    }
    let place = parent.get_mut(name)?;
    if !place.is_table() {
        merge::of_item(place, orphans);
        let as_table = std::mem::take(place).into_table().unwrap_or_default();
        *place = Item::Table(as_table);
    }
    place.as_table_mut()
}

/// Puts one method in its place.
fn set(methods: &mut Table, entry: &Entry, changes: &mut Changes) {
    let added = !methods.contains_key(&entry.name);
    let mut orphans = Vec::new();
    let Some(table) = table(methods, &entry.name, &mut orphans) else { return };
    let before = table.get(IMPORTED).map_or(Value::Null, item);
    let mut merged = merge(table, &before["digests"], &entry.fields);
    orphans.append(&mut merged.orphans);
    let now = imported(entry, &merged.digests);
    // It is the last of all fields, whatever else is new.
    match table.remove_entry(IMPORTED) {
        Some((key, item)) => {
            table.insert_formatted(&key, item);
            merge::put(table, IMPORTED, &now);
        }
        None => merge::put(table, IMPORTED, &now),
    }
    merge::above(table, IMPORTED, &orphans);
    if added {
        changes.added.push(entry.name.clone());
    } else {
        note(changes, Some(&entry.name), merged);
    }
}

fn note(changes: &mut Changes, method: Option<&str>, merged: Merged) {
    let name = method.unwrap_or_default().to_owned();
    if !merged.kept.is_empty() {
        changes.kept.insert(name.clone(), merged.kept);
    }
    let fields: Vec<String> = merged.changed.iter().map(|(field, ..)| field.clone()).collect();
    if !fields.is_empty() {
        changes.changed.insert(name, fields);
    }
    for (field, before, after) in merged.changed {
        if DECISIVE.contains(&field.as_str()) {
            let method = method.map(str::to_owned);
            changes.decisive.push(Difference { method, field, before, after });
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_method_by_itself_is_as_long_as_it_is() {
        let mut text = "name = \"x\"\n[imported.digests]\nname = \"0\"\n".to_owned();
        for i in 0..100 {
            text =
                format!("{text}[methods.m{i}]\nhttp = \"GET /{i}\"\nimported = {{ http = \"GET /{i}\" }}\n");
        }
        let mut all = Manifest::read(Some(&text)).unwrap();
        let operations: Vec<String> = (0..100).map(|i| format!("GET /{i}")).collect();
        all.imported["operations"] = json!(operations);
        all.selections.push(Selection { operations, ..Selection::default() });
        let one = all.only("m7");
        assert_eq!(one.known.len(), 1);
        assert_eq!(one.imported["digests"]["name"], "0");
        let (none, out) = (BTreeSet::new(), Places::new());
        let import = Import {
            head: "",
            top: &vec![("name", json!("x"))],
            entries: &[],
            gone: &none,
            server: &Value::Null,
            taken_out: &out,
            left_out: &[],
        };
        let written = one.write(&import).0;
        assert!(written.contains("GET /7\"") && !written.contains("GET /8\""), "{written}");
        assert!(written.len() < 400, "{written}");
    }
}
