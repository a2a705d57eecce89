//! A parsed file as a tree in which every key and value knows its place, and a reader that takes keys out of it,
//! notes what is wrong, and at the end what nobody asked for.

use super::error::{At, ConfigError, Problem};
use provider::nearest;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub at: At,
    pub kind: Kind,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Text(String),
    /// Its value.
    Integer(i64),
    /// As it is written.
    Fraction(String),
    Bool(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// A date or an integer beyond 64 bits: nothing here takes one.
    Other(&'static str),
    /// From the environment: it becomes what the key wants.
    Variable(String),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub at: At,
    pub value: Node,
}

impl Kind {
    fn word(&self) -> &'static str {
        match self {
            Kind::Text(_) | Kind::Variable(_) => "a string",
            Kind::Integer(_) => "an integer",
            Kind::Fraction(_) => "a number with a fraction",
            Kind::Bool(_) => "true or false",
            Kind::List(_) => "an array",
            Kind::Table(_) => "a table",
            Kind::Other(word) => word,
        }
    }
}

/// Finds lines and columns.
struct Lines<'a> {
    text: &'a str,
}

impl Lines<'_> {
    fn at(&self, span: &Range<usize>) -> At {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        At::Line(line, column)
    }

    fn node(&self, value: &Spanned<DeValue<'_>>) -> Node {
        let kind = match value.get_ref() {
            DeValue::String(s) => Kind::Text(s.clone().into_owned()),
            DeValue::Boolean(b) => Kind::Bool(*b),
            DeValue::Integer(i) => match i64::from_str_radix(i.as_str(), i.radix()) {
                Ok(value) => Kind::Integer(value),
                Err(_) => Kind::Other("an integer beyond 64 bits"),
            },
            DeValue::Float(f) => Kind::Fraction(f.as_str().to_owned()),
            DeValue::Datetime(_) => Kind::Other("a date or time"),
            DeValue::Array(a) => Kind::List(a.iter().map(|v| self.node(v)).collect()),
            DeValue::Table(t) => Kind::Table(self.table(t)),
        };
        Node { at: self.at(&value.span()), kind }
    }

    fn table(&self, table: &DeTable<'_>) -> Vec<Entry> {
        let entry = |(key, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>)| Entry {
            key: key.get_ref().clone().into_owned(),
            at: self.at(&key.span()),
            value: self.node(value),
        };
        let mut entries: Vec<Entry> = table.iter().map(entry).collect();
        entries.sort_by_key(|e| match e.at {
            At::Line(line, column) => (line, column),
            _ => (0, 0),
        });
        entries
    }
}

/// Parses a file; what is not TOML is one fault, with its place.
pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Entry>, ConfigError> {
    let lines = Lines { text };
    match DeTable::parse(text) {
        Ok(table) => Ok(lines.table(table.get_ref())),
        Err(e) => {
            let at = e.span().map_or(At::Nowhere, |s| lines.at(&s));
            Err(ConfigError::one(file, at, format!("not TOML: {}", e.message().replace('\n', ", "))))
        }
    }
}

/// The faults found so far.
pub(super) struct Faults {
    file: String,
    found: RefCell<Vec<Problem>>,
}

impl Faults {
    pub fn new(file: &str) -> Faults {
        Faults { file: file.to_owned(), found: RefCell::default() }
    }
    pub fn add(&self, at: &At, message: impl Into<String>) {
        self.found.borrow_mut().push(Problem {
            file: self.file.clone(),
            at: at.clone(),
            message: message.into(),
        });
    }
    /// No faults, or all of them in the order of the file.
    pub fn into_result(self) -> Result<(), ConfigError> {
        let mut problems = self.found.into_inner();
        if problems.is_empty() {
            return Ok(());
        }
        problems.sort_by_key(|p| match &p.at {
            At::Line(line, column) => (0, *line, *column),
            At::Variable(_) => (1, 0, 0),
            At::Nowhere => (2, 0, 0),
        });
        Err(ConfigError { problems })
    }
}

/// A key and its string.
pub(super) struct Pair {
    pub key: String,
    pub key_at: At,
    pub value: String,
    pub value_at: At,
}

impl Pair {
    fn new(key: &str, key_at: &At, value: &str, value_at: &At) -> Pair {
        let (key, value) = (key.to_owned(), value.to_owned());
        Pair { key, key_at: key_at.clone(), value, value_at: value_at.clone() }
    }
}

/// Reads one table. Each getter takes a key out; [`Reader::finish`] refuses what is left.
pub(super) struct Reader<'a> {
    /// How the table is named in messages: `[server]`.
    pub name: String,
    pub at: At,
    entries: Vec<(&'a Entry, Cell<bool>)>,
    known: RefCell<Vec<&'static str>>,
    pub faults: &'a Faults,
}

impl<'a> Reader<'a> {
    pub fn new(name: impl Into<String>, at: At, entries: &'a [Entry], faults: &'a Faults) -> Reader<'a> {
        let entries = entries.iter().map(|e| (e, Cell::new(false))).collect();
        Reader { name: name.into(), at, entries, known: RefCell::default(), faults }
    }

    /// Takes a key out.
    pub fn take(&self, key: &'static str) -> Option<&'a Entry> {
        self.known.borrow_mut().push(key);
        let (entry, taken) = self.entries.iter().find(|(e, _)| e.key == key)?;
        taken.set(true);
        Some(entry)
    }

    /// Where the key is written; the table itself, if it isn't.
    pub fn place(&self, key: &str) -> At {
        self.entries.iter().find(|(e, _)| e.key == key).map_or_else(|| self.at.clone(), |(e, _)| e.at.clone())
    }

    /// Whether the key isn't written at all.
    pub fn lacks(&self, key: &str) -> bool {
        !self.entries.iter().any(|(e, _)| e.key == key)
    }

    /// A setting of a room that isn't there yet.
    pub fn later(&self, key: &'static str, what: &str) {
        if let Some(e) = self.take(key) {
            self.faults.add(&e.at, format!("{what} not available in this version; take this out"));
        }
    }

    fn wrong(&self, entry: &Entry, wanted: &str) {
        self.faults
            .add(&entry.value.at, format!("{} must be {wanted}, not {}", entry.key, entry.value.kind.word()));
    }

    /// A string without `${…}`: those are for secrets, and there are none here.
    pub fn text(&self, key: &'static str) -> Option<(String, At)> {
        let (text, at) = self.secret(key)?;
        if text.contains("${") {
            let why = format!(
                "{key} is no secret, and ${{…}} is for secrets only; write the value itself, or set it with the environment variable that overrides it"
            );
            self.faults.add(&at, why);
            return None;
        }
        Some((text, at))
    }

    /// A string that may be a secret, as it is written.
    pub fn secret(&self, key: &'static str) -> Option<(String, At)> {
        let entry = self.take(key)?;
        match &entry.value.kind {
            Kind::Text(s) | Kind::Variable(s) => Some((s.clone(), entry.value.at.clone())),
            _ => {
                self.wrong(entry, "a string");
                None
            }
        }
    }

    /// A string that `read` makes something of; its error says what is wrong.
    pub fn parsed<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<(T, At)> {
        let (text, at) = self.text(key)?;
        match read(&text) {
            Ok(v) => Some((v, at)),
            Err(why) => {
                self.faults.add(&at, format!("{key}: {why}"));
                None
            }
        }
    }

    pub fn bool(&self, key: &'static str) -> Option<(bool, At)> {
        let entry = self.take(key)?;
        match &entry.value.kind {
            Kind::Bool(b) => Some((*b, entry.value.at.clone())),
            Kind::Variable(s) if s == "true" || s == "false" => Some((s == "true", entry.value.at.clone())),
            _ => {
                self.wrong(entry, "true or false");
                None
            }
        }
    }

    /// A list of strings; from the environment separated by commas.
    pub fn texts(&self, key: &'static str) -> Option<Vec<(String, At)>> {
        let entry = self.take(key)?;
        match &entry.value.kind {
            Kind::Variable(s) => {
                let parts = s.split(',').map(str::trim).filter(|p| !p.is_empty());
                Some(parts.map(|p| (p.to_owned(), entry.value.at.clone())).collect())
            }
            Kind::List(list) => {
                let mut out = Vec::new();
                for node in list {
                    match &node.kind {
                        Kind::Text(s) => out.push((s.clone(), node.at.clone())),
                        other => {
                            self.faults.add(&node.at, format!("{key} takes strings, not {}", other.word()))
                        }
                    }
                }
                Some(out)
            }
            _ => {
                self.wrong(entry, "an array of strings");
                None
            }
        }
    }

    /// The strings of a table whose keys are free, such as `eras_by_host`, with the places of key and value; from the
    /// environment `KEY=VALUE`, separated by commas.
    pub fn pairs(&self, key: &'static str) -> Vec<Pair> {
        let Some(entry) = self.take(key) else { return Vec::new() };
        let mut out = Vec::new();
        match &entry.value.kind {
            Kind::Variable(s) => {
                let at = &entry.value.at;
                for part in s.split(',').map(str::trim).filter(|p| !p.is_empty()) {
                    match part.split_once('=') {
                        Some((k, v)) => out.push(Pair::new(k.trim(), at, v.trim(), at)),
                        None => self.faults.add(
                            at,
                            format!("{key}: {part:?} has no value; write KEY=VALUE, separated by commas"),
                        ),
                    }
                }
            }
            Kind::Table(entries) => {
                for e in entries {
                    match &e.value.kind {
                        Kind::Text(s) => out.push(Pair::new(&e.key, &e.at, s, &e.value.at)),
                        _ => self.wrong(e, "a string"),
                    }
                }
            }
            _ => self.wrong(entry, "a table"),
        }
        out
    }

    /// The numbers of a table whose keys are free, as they are written.
    pub fn numbers(&self, key: &'static str) -> Vec<(String, String, At)> {
        let Some(entry) = self.take(key) else { return Vec::new() };
        let Kind::Table(entries) = &entry.value.kind else {
            self.wrong(entry, "a table");
            return Vec::new();
        };
        let mut out = Vec::new();
        for e in entries {
            let text = match &e.value.kind {
                Kind::Integer(value) => value.to_string(),
                Kind::Fraction(text) => text.clone(),
                _ => {
                    self.wrong(e, "a number");
                    continue;
                }
            };
            out.push((e.key.clone(), text, e.value.at.clone()));
        }
        out
    }

    /// A whole number between two bounds.
    pub fn whole(&self, key: &'static str, least: u64, most: u64) -> Option<(u64, At)> {
        let entry = self.take(key)?;
        let number = match &entry.value.kind {
            Kind::Integer(n) => u64::try_from(*n).ok(),
            Kind::Variable(s) => s.parse().ok(),
            _ => {
                self.wrong(entry, "a whole number");
                return None;
            }
        };
        let found = number.filter(|n| (least..=most).contains(n));
        if found.is_none() {
            self.faults.add(&entry.value.at, format!("{key} must be a whole number from {least} to {most}"));
        }
        found.map(|n| (n, entry.value.at.clone()))
    }

    /// Whether the key holds a list.
    pub fn is_list(&self, key: &str) -> bool {
        self.entries.iter().any(|(e, _)| e.key == key && matches!(e.value.kind, Kind::List(_)))
    }

    /// Whether the key holds a list of nothing.
    pub fn is_empty_list(&self, key: &str) -> bool {
        self.entries
            .iter()
            .any(|(e, _)| e.key == key && matches!(&e.value.kind, Kind::List(list) if list.is_empty()))
    }

    /// Whether the key holds a table.
    pub fn is_table(&self, key: &str) -> bool {
        self.entries.iter().any(|(e, _)| e.key == key && matches!(e.value.kind, Kind::Table(_)))
    }

    /// A table under this one.
    pub fn table(&self, key: &'static str) -> Option<Reader<'a>> {
        let entry = self.take(key)?;
        match &entry.value.kind {
            Kind::Table(entries) => {
                Some(Reader::new(format!("[{key}]"), entry.at.clone(), entries, self.faults))
            }
            _ => {
                self.wrong(entry, "a table");
                None
            }
        }
    }

    /// The tables of a table whose keys are free, such as `[tools."id"]`.
    pub fn tables(&self) -> Vec<(&'a str, Reader<'a>)> {
        let mut out = Vec::new();
        for (entry, taken) in &self.entries {
            taken.set(true);
            match &entry.value.kind {
                Kind::Table(entries) => {
                    let name = format!("{}.\"{}\"]", self.name.trim_end_matches(']'), entry.key);
                    out.push((entry.key.as_str(), Reader::new(name, entry.at.clone(), entries, self.faults)));
                }
                _ => self.wrong(entry, "a table"),
            }
        }
        out
    }

    /// An array of tables.
    pub fn list(&self, key: &'static str) -> Vec<Reader<'a>> {
        let Some(entry) = self.take(key) else { return Vec::new() };
        let Kind::List(list) = &entry.value.kind else {
            self.faults.add(&entry.at, format!("{key} is a list of tables; write [[{key}]]"));
            return Vec::new();
        };
        let mut out = Vec::new();
        for node in list {
            match &node.kind {
                Kind::Table(entries) => {
                    out.push(Reader::new(format!("[[{key}]]"), node.at.clone(), entries, self.faults));
                }
                other => self.faults.add(&node.at, format!("{key} takes tables, not {}", other.word())),
            }
        }
        out
    }

    /// Refuses what nobody asked for.
    pub fn finish(&self) {
        let known = self.known.borrow();
        for (entry, taken) in &self.entries {
            if taken.get() {
                continue;
            }
            let inside = if self.name.is_empty() { String::new() } else { format!(" in {}", self.name) };
            let hint = match nearest(&entry.key, known.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("known: {}", known.join(", ")),
            };
            self.faults.add(&entry.at, format!("unknown key {:?}{inside}; {hint}", entry.key));
        }
    }
}
