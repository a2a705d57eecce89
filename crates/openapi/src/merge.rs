//! What is imported, put into a manifest that is there: not over what an operator has changed, and comments stay.
//!
//! Each imported field leaves a digest of its value behind. A field whose value no longer has that digest is the
//! operator's; so is one that is gone, and one that was never imported.

use crate::names::digest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use toml_edit::{Array, Decor, InlineTable, Item, RawString, Table};

/// Where an import leaves what it has to know at the next.
pub(crate) const IMPORTED: &str = "imported";

/// Fields in the order in which they are written.
pub(crate) type Fields = Vec<(&'static str, Value)>;

/// What became of the fields of one table.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// With what they were and what they are; `Null` is nothing.
    pub changed: Vec<(String, Value, Value)>,
    /// The operator's, which are other than imported now.
    pub kept: Vec<String>,
    /// Of what is imported now.
    pub digests: BTreeMap<String, String>,
    /// Comments of fields that are gone.
    pub orphans: Vec<String>,
}

/// Puts fields into a table, but not over what the operator has changed. `digests` are those of the last import.
pub(crate) fn merge(table: &mut Table, digests: &Value, fields: &Fields) -> Merged {
    let mut merged = Merged::default();
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
            merged.digests.insert(name.to_owned(), digest_of(new));
        }
        if here.as_ref() == new {
            continue;
        }
        if !ours {
            merged.kept.push(name.to_owned());
            continue;
        }
        match new {
            Some(new) => put(table, name, new),
            None => merged.orphans.extend(take_out(table, name)),
        }
        let before = here.unwrap_or(Value::Null);
        merged.changed.push((name.to_owned(), before, new.cloned().unwrap_or(Value::Null)));
    }
    merged
}

/// Whether an operator has changed anything of a method.
pub(crate) fn touched(method: &dyn toml_edit::TableLike) -> bool {
    let digests = method.get(IMPORTED).map_or(Value::Null, |i| item(i)["digests"].take());
    let same = |name: &str, i: &Item| digests[name].as_str().is_some_and(|d| d == digest_of(&item(i)));
    method.iter().any(|(name, i)| name != IMPORTED && !same(name, i))
        || digests.as_object().is_some_and(|d| d.keys().any(|k| !method.contains_key(k)))
}

/// Puts a value in its place. What is equal stays as it is written; comments stay.
pub(crate) fn put(table: &mut Table, name: &str, new: &Value) {
    match table.get_mut(name) {
        None => {
            table.insert(name, toml_edit::value(value(new)));
        }
        Some(here) if item(here) == *new => {}
        Some(Item::Value(here)) => put_value(here, new),
        Some(Item::Table(here)) if new.is_object() => {
            let gone: Vec<String> =
                here.iter().map(|(n, _)| n.to_owned()).filter(|n| new.get(n).is_none()).collect();
            let orphans: Vec<String> = gone.iter().flat_map(|n| take_out(here, n)).collect();
            for (name, new) in new.as_object().into_iter().flatten() {
                put(here, name, new);
            }
            above_table(here, &orphans);
        }
        Some(_) => {
            let orphans = take_out(table, name);
            table.insert(name, toml_edit::value(value(new)));
            above(table, name, &orphans);
        }
    }
}

fn put_value(here: &mut toml_edit::Value, new: &Value) {
    if of(here) == *new {
        return;
    }
    // Only where there are comments inside is it taken apart.
    let inside = {
        let mut all = Vec::new();
        within(here, &mut all);
        !all.is_empty()
    };
    match (&mut *here, new) {
        (toml_edit::Value::InlineTable(here), Value::Object(members)) if inside => {
            here.retain(|name, _| members.contains_key(name));
            for (name, new) in members {
                match here.get_mut(name) {
                    Some(here) => put_value(here, new),
                    None => {
                        here.insert(name, value(new));
                    }
                }
            }
        }
        (toml_edit::Value::Array(here), Value::Array(all)) if inside => {
            while here.len() > all.len() {
                here.remove(here.len() - 1);
            }
            for (i, new) in all.iter().enumerate() {
                match here.get_mut(i) {
                    Some(here) => put_value(here, new),
                    None => here.push(value(new)),
                }
            }
        }
        _ => {
            let decor = here.decor().clone();
            *here = value(new);
            *here.decor_mut() = decor;
        }
    }
}

/// Takes a field out. Returns its comments.
pub(crate) fn take_out(table: &mut Table, name: &str) -> Vec<String> {
    let mut all = Vec::new();
    if let Some((key, item)) = table.remove_entry(name) {
        of_key(&key, &mut all);
        of_item(&item, &mut all);
    }
    all
}

/// Puts comments above a field, below those that are there.
pub(crate) fn above(table: &mut Table, name: &str, comments: &[String]) {
    if comments.is_empty() {
        return;
    }
    if let Some(Item::Table(inner)) = table.get_mut(name) {
        above_table(inner, comments);
    } else if let Some(mut key) = table.key_mut(name) {
        append(key.leaf_decor_mut(), "", comments);
    }
}

fn above_table(table: &mut Table, comments: &[String]) {
    if !comments.is_empty() {
        append(table.decor_mut(), "\n", comments);
    }
}

fn append(decor: &mut Decor, otherwise: &str, comments: &[String]) {
    let mut text = decor.prefix().and_then(RawString::as_str).unwrap_or(otherwise).to_owned();
    for comment in comments {
        text.push_str(comment);
        text.push('\n');
    }
    decor.set_prefix(text);
}

/// The comments in and around a table.
pub(crate) fn of_item(item: &Item, all: &mut Vec<String>) {
    let table = |t: &Table, all: &mut Vec<String>| {
        of_decor(t.decor(), all);
        for (name, item) in t {
            if let Some(key) = t.key(name) {
                of_key(key, all);
            }
            of_item(item, all);
        }
    };
    match item {
        Item::None => {}
        Item::Value(v) => {
            within(v, all);
            of_decor(v.decor(), all);
        }
        Item::Table(t) => table(t, all),
        Item::ArrayOfTables(tables) => tables.iter().for_each(|t| table(t, all)),
    }
}

/// The comments inside a value.
fn within(value: &toml_edit::Value, all: &mut Vec<String>) {
    match value {
        toml_edit::Value::Array(array) => {
            for inner in array {
                within(inner, all);
                of_decor(inner.decor(), all);
            }
            of_raw(Some(array.trailing()), all);
        }
        toml_edit::Value::InlineTable(table) => {
            for (name, inner) in table {
                if let Some(key) = table.key(name) {
                    of_key(key, all);
                }
                within(inner, all);
                of_decor(inner.decor(), all);
            }
            of_raw(Some(table.trailing()), all);
        }
        _ => {}
    }
}

fn of_key(key: &toml_edit::Key, all: &mut Vec<String>) {
    of_decor(key.leaf_decor(), all);
}

fn of_decor(decor: &Decor, all: &mut Vec<String>) {
    of_raw(decor.prefix(), all);
    of_raw(decor.suffix(), all);
}

/// Around values there are white space and comments, and nothing else.
fn of_raw(raw: Option<&RawString>, all: &mut Vec<String>) {
    let lines = raw.and_then(RawString::as_str).unwrap_or_default().lines();
    all.extend(lines.map(str::trim).filter(|l| l.starts_with('#')).map(str::to_owned));
}

/// A digest of a value, whatever the order of its members.
pub(crate) fn digest_of(value: &Value) -> String {
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
pub(crate) fn value(json: &Value) -> toml_edit::Value {
    match json {
        Value::Null => "".into(),
        Value::Bool(b) => (*b).into(),
        Value::Number(n) => match n.as_i64() {
            Some(i) => i.into(),
            None => n.as_f64().unwrap_or_default().into(),
        },
        Value::String(s) => s.as_str().into(),
        Value::Array(all) => toml_edit::Value::Array(all.iter().map(value).collect()),
        Value::Object(members) => {
            let all = members.iter().map(|(name, v)| (name.as_str(), value(v)));
            toml_edit::Value::InlineTable(all.collect::<InlineTable>())
        }
    }
}

/// A list with a line for each of its members.
pub(crate) fn lines(all: impl Iterator<Item = Value>) -> Array {
    let mut list: Array = all.map(|v| value(&v)).collect();
    for one in list.iter_mut() {
        one.decor_mut().set_prefix("\n  ");
    }
    list.set_trailing("\n");
    list
}

/// What TOML says, as JSON. A date, which no field has, is its text.
pub(crate) fn item(item: &Item) -> Value {
    let table =
        |t: &Table| Value::Object(t.iter().map(|(name, i)| (name.to_owned(), self::item(i))).collect());
    match item {
        Item::None => Value::Null,
        Item::Value(v) => of(v),
        Item::Table(t) => table(t),
        Item::ArrayOfTables(all) => Value::Array(all.iter().map(table).collect()),
    }
}

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
