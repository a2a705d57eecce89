//! Integration manifests from OpenAPI descriptions, 3.0 and 3.1, in JSON or YAML.
//!
//! What it promises:
//!
//! - a description of any size, nesting or self-reference is imported or refused in bounded time and memory, and nothing
//!   that it refers to is fetched;
//! - what it writes, the gateway loads: every manifest is read back by the gateway's own reader before it is handed out;
//! - what can't be said in a manifest is listed with its reason, never dropped in silence;
//! - arguments that the description takes are taken: where something can't be checked, less is checked;
//! - whatever an operator has changed in a manifest stays when it is imported again, and so do the names of its methods.

mod body;
mod document;
mod entry;
mod files;
mod fit;
mod import;
mod keys;
mod keywords;
mod known;
mod manifest;
mod merge;
mod names;
mod operation;
mod pages;
mod parameters;
mod prose;
pub mod read;
pub mod report;
mod safety;
mod schema;
mod select;
mod served;
mod servers;
mod service;
mod yaml;

use crate::document::{Document, text};
use crate::import::{MAX_OPERATIONS, Run, described};
use crate::manifest::{Known, Manifest};
use crate::report::Report;
use crate::schema::Schemas;
use crate::served::Given;
use crate::servers::Base;
use provider::{Integration, Mode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub use select::Selection;

/// Why nothing was imported. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read.
    #[error(transparent)]
    Read(#[from] read::ReadError),
    /// It is no OpenAPI description of a version that is known.
    #[error("it is not a description of OpenAPI 3.0 or 3.1: {0}")]
    Version(String),
    /// Nothing fits what was chosen.
    #[error("nothing is imported: {0}")]
    Nothing(String),
    /// It is not known where requests go to.
    #[error("the description names no server that requests can go to; give --base-url https://…")]
    NoServer,
    /// An option that can't be.
    #[error("{0}")]
    Option(String),
    /// The manifest that is there can't be read.
    #[error("the manifest that is there can't be read, and is left as it is: {0}")]
    Existing(String),
    /// The manifest that is there is of another description.
    #[error(
        "the manifest that is there is not of this description, and is left as it is: {}. --name takes it all the same, or \
         gives this one a manifest of its own",
        common(*imported, *here)
    )]
    Other {
        /// How many operations were imported into it.
        imported: usize,
        /// How many of them this description has.
        here: usize,
    },
    /// The description has more operations than can be imported.
    #[error(
        "the description has more than {MAX_OPERATIONS} operations, which is the most, so nothing is written; divide it"
    )]
    TooMany,
    /// The manifest would be larger than one may be.
    #[error(
        "its manifest would have {size} MiB, and {most} MiB is the most, so nothing is written; choose a part of it with \
         --tag, --path or --choose{such}"
    )]
    TooLarge {
        /// In MiB.
        size: usize,
        /// The most, in MiB.
        most: usize,
        /// Tags to choose from.
        such: String,
    },
    /// The manifest would not load.
    #[error("the manifest would not load, and is not written: {0}")]
    Manifest(String),
}

fn common(imported: usize, here: usize) -> String {
    match imported {
        0 => "nothing of it was imported".into(),
        _ => format!("{here} of the {imported} operations that were imported into it are in this one"),
    }
}

/// What is asked of an import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The integration's name; `None`: from the description's title.
    pub name: Option<String>,
    /// What is chosen; nothing said: what was chosen before, else all.
    pub selection: Selection,
    /// All, whatever was chosen before.
    pub all: bool,
    /// Where requests go to in production; `None`: as described.
    pub base_url: Option<String>,
    /// Where requests go to in sandbox mode; `None`: as described.
    pub sandbox_url: Option<String>,
    /// Values of servers' variables.
    pub variables: BTreeMap<String, String>,
    /// The preset that says how the provider treats keys.
    pub preset: Option<String>,
    /// The manifest that is there is meant, whatever description it was imported from.
    pub replace: bool,
}

impl Options {
    /// The same, with what was said at an earlier import and isn't now.
    fn remembered(&self, said: &Value) -> Options {
        let mut all = self.clone();
        let before =
            |own: &Option<String>, field: &str| own.clone().or_else(|| text(said, field).map(str::to_owned));
        all.base_url = before(&self.base_url, "base_url");
        all.sandbox_url = before(&self.sandbox_url, "sandbox_url");
        all.preset = before(&self.preset, "preset");
        for (name, value) in said["variables"].as_object().into_iter().flatten() {
            if let Some(value) = value.as_str() {
                all.variables.entry(name.clone()).or_insert_with(|| value.to_owned());
            }
        }
        all
    }

    /// What an import without these options is to remember.
    fn said(&self) -> Value {
        let mut said = json!({});
        let options =
            [("base_url", &self.base_url), ("sandbox_url", &self.sandbox_url), ("preset", &self.preset)];
        for (field, value) in options {
            if let Some(value) = value {
                said[field] = json!(value);
            }
        }
        if !self.variables.is_empty() {
            said["variables"] = json!(self.variables);
        }
        said
    }
}

/// A manifest, and what became of the description.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The manifest, in TOML.
    pub manifest: String,
    /// The same, as it is loaded in the first of its modes.
    pub integration: Integration,
    /// What was imported, skipped and changed.
    pub report: Report,
    /// The modes in which the manifest says where requests go to.
    pub modes: Vec<Mode>,
}

/// The methods of a manifest, with what each was imported from and where they were served: what is needed to tell whose it is.
#[derive(Clone, Debug, Default)]
pub struct Methods {
    known: Vec<Known>,
    at: Base,
    variables: BTreeMap<String, String>,
}

impl Methods {
    /// Those of a manifest; of what can't be read none.
    #[must_use]
    pub fn of(manifest: &str) -> Methods {
        let Ok(manifest) = Manifest::read(Some(manifest)) else { return Methods::default() };
        let url = manifest.field("base_url");
        let at = served::before(&manifest.imported, url.as_ref(), &Given::default(), &[]);
        let variables = Options::default().remembered(&manifest.said).variables;
        Methods { known: manifest.known, at: at.unwrap_or_default(), variables }
    }
}

/// How many operations were imported into a manifest that may be a description's, and how many of them it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Of the manifest.
    pub imported: usize,
    /// Of these in the description.
    pub here: usize,
}

/// How many operations tell that a manifest is a description's where no address does: any two services may have a
/// `GET /health`, or ids as `list` and `get`.
const MANY: usize = 3;

/// A description that was read.
#[derive(Debug)]
pub struct Description {
    root: Value,
}

/// An operation to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice<'a> {
    /// Verb and path.
    pub http: String,
    /// Its id.
    pub id: Option<&'a str>,
    /// Its tags.
    pub tags: Vec<&'a str>,
}

impl Description {
    /// Reads a description.
    ///
    /// # Errors
    /// It can't be read, or is something else.
    pub fn read(text: &str) -> Result<Description, Error> {
        let root = read::read(text)?;
        let version = match root.get("openapi") {
            Some(Value::String(v)) => v.clone(),
            Some(Value::Number(n)) => n.to_string(),
            _ if root.get("swagger").is_some() => {
                return Err(Error::Version("it is Swagger 2.0; convert it to OpenAPI 3 first".into()));
            }
            _ => return Err(Error::Version("it has no `openapi` on its top level".into())),
        };
        if !(version.starts_with("3.0") || version.starts_with("3.1") || version == "3") {
            return Err(Error::Version(format!("its version is {:.20}", version)));
        }
        Ok(Description { root })
    }

    /// The name of its integration, if none is given.
    #[must_use]
    pub fn name(&self) -> String {
        names::integration(self.root.pointer("/info/title").and_then(Value::as_str).unwrap_or_default())
    }

    /// Its operations.
    #[must_use]
    pub fn operations(&self) -> Vec<Choice<'_>> {
        let document = Document { root: &self.root };
        let mut skipped = Vec::new();
        let described = described(&document, &mut skipped);
        described
            .into_iter()
            .map(|d| Choice { http: d.http(), id: d.id(), tags: d.tags().collect() })
            .collect()
    }

    /// What this description shares with a manifest that seems to be its own under another name: it has more than half of what
    /// was imported there, and one of these is served where the manifest's were, or they are at least three.
    #[must_use]
    pub fn shared(&self, methods: &Methods) -> Option<Shared> {
        let imported = methods.known.iter().filter(|k| k.http.is_some()).count();
        if imported == 0 {
            return None;
        }
        let document = Document { root: &self.root };
        let all = described(&document, &mut Vec::new());
        let found = known::found(&methods.known, &all, &self.name());
        let both = || all.iter().zip(&found).filter(|(_, method)| method.is_some()).map(|(d, _)| *d);
        let here = both().count();
        let at = [&methods.at.production, &methods.at.sandbox];
        let together = |d| {
            let listed = servers::listed(&self.root, Some(d), &methods.variables);
            listed.iter().any(|(url, _)| at.into_iter().flatten().any(|at| at == url))
        };
        (here * 2 > imported && (here >= MANY || both().any(together))).then_some(Shared { imported, here })
    }

    /// Makes a manifest, or mends the one that is there.
    ///
    /// # Errors
    /// Nothing can be imported; the message says why and what to do.
    pub fn import(&self, options: &Options, existing: Option<&str>) -> Result<Imported, Error> {
        let mut manifest = Manifest::read(existing).map_err(Error::Existing)?;
        let document = Document { root: &self.root };
        let mut skipped = Vec::new();
        let all = described(&document, &mut skipped);
        if all.is_empty() {
            return Err(Error::Nothing("the description has no operations".into()));
        }
        if all.len() > MAX_OPERATIONS {
            return Err(Error::TooMany);
        }
        if let Some(unknown) = options.selection.unknown(&all) {
            return Err(Error::Nothing(unknown));
        }
        let asked = options.selection != Selection::default();
        if options.all {
            manifest.selections = vec![Selection::default()];
        } else if asked && !manifest.selections.contains(&options.selection) {
            manifest.selections.push(options.selection.clone());
        } else if manifest.selections.is_empty() {
            manifest.selections.push(Selection::default());
        }
        let name = options.name.clone().unwrap_or_else(|| self.name());
        let options = &options.remembered(&manifest.said);
        manifest.said = options.said();
        let mut run = Run {
            document: &document,
            schemas: Schemas::new(&document),
            options,
            name: &name,
            skipped,
            notes: Vec::new(),
            not_chosen: 0,
            there: BTreeSet::new(),
        };
        run.import(manifest, &all)
    }
}
