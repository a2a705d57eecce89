//! From a description's operations to a manifest: who is chosen, and under which names.

use crate::document::{Document, text};
use crate::entry::Drafted;
use crate::known::{self, Places, TakenOut};
use crate::manifest::{Entry, Fields, Import, Manifest};
use crate::operation::{self, Described};
use crate::report::{Note, Reason, Report, Skipped};
use crate::schema::Schemas;
use crate::service::{Auth, Base};
use crate::{Error, Imported, Options, names, prose, served, servers, service};
use provider::{Format, Integration, MethodEffect, Mode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The most operations of one description.
pub(crate) const MAX_OPERATIONS: usize = 60_000;
/// The verbs of OpenAPI, and what else a path item may hold.
const VERBS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// All operations, in their order; of those that are too many the first too many.
pub(crate) fn described<'a>(document: &Document<'a>, skipped: &mut Vec<Skipped>) -> Vec<Described<'a>> {
    let mut all = Vec::new();
    for (path, item) in document.table("/paths") {
        if path.starts_with("x-") {
            continue;
        }
        let item = match document.resolve(item) {
            Ok(item) => item,
            Err(lost) => {
                skipped.push(Skipped {
                    operation: path.clone(),
                    reason: Reason::Reference,
                    detail: lost.said(),
                    stays: None,
                });
                continue;
            }
        };
        let Some(members) = item.as_object() else {
            let detail = "its path holds no object".to_owned();
            skipped.push(Skipped { operation: path.clone(), reason: Reason::Malformed, detail, stays: None });
            continue;
        };
        for (verb, operation) in members {
            if !VERBS.contains(&verb.as_str()) {
                continue;
            }
            if !operation.is_object() {
                let operation = format!("{} {path}", verb.to_uppercase());
                let detail = "it is no object".to_owned();
                skipped.push(Skipped { operation, reason: Reason::Malformed, detail, stays: None });
                continue;
            }
            let verb = match verb.as_str() {
                "get" => "GET",
                "put" => "PUT",
                "post" => "POST",
                "delete" => "DELETE",
                "options" => "OPTIONS",
                "head" => "HEAD",
                "patch" => "PATCH",
                _ => "TRACE",
            };
            // One more tells that there are too many.
            if all.len() <= MAX_OPERATIONS {
                all.push(Described { verb, path, item, operation });
            }
        }
    }
    all
}

/// One import.
pub(crate) struct Run<'r, 'a> {
    pub document: &'r Document<'a>,
    pub schemas: Schemas<'r>,
    pub options: &'r Options,
    pub name: &'r str,
    pub skipped: Vec<Skipped>,
    pub notes: Vec<Note>,
    pub not_chosen: usize,
    /// The names of the methods that are there.
    pub there: BTreeSet<String>,
}

/// An operation that becomes a method.
pub(crate) struct Chosen<'a> {
    pub described: Described<'a>,
    pub name: String,
    /// Whether it is one already.
    pub there: bool,
}

impl<'r, 'a: 'r> Run<'r, 'a> {
    pub(crate) fn import(&mut self, manifest: Manifest, all: &[Described<'a>]) -> Result<Imported, Error> {
        self.there = manifest.known.iter().map(|k| k.name.clone()).collect();
        let found = known::found(&manifest.known, all, self.name);
        let gone = known::gone(&manifest.known, all, &found);
        let mut taken_out = TakenOut::new(manifest.taken_out(), all);
        let (mut chosen, left_out) = self.choose(&manifest, all, &found, &mut taken_out);
        let taken_out = taken_out.into_places();
        let mut deciding: Vec<Described<'_>> =
            all.iter().zip(&found).filter(|(_, k)| k.is_some()).map(|(d, _)| *d).collect();
        let (base, server) = self.serve(&manifest, &deciding, &gone, &mut chosen)?;
        if deciding.is_empty() {
            deciding = chosen.iter().map(|c| c.described).collect();
        }
        let only: Vec<Described<'_>> = chosen.iter().map(|c| c.described).collect();
        let was = manifest.field("auth");
        let security = service::security(self.document, &only, &deciding, was.as_ref());
        let whole = security.notes.iter().cloned().chain(self.beside(only.first().copied(), &server));
        self.notes.extend(whole.map(|note| Note { method: None, note }));
        let mut drafts = Vec::new();
        for Chosen { described, name, there } in chosen {
            match operation::draft(self.document, &self.schemas, described, &security.secrets) {
                Err((reason, detail)) => self.skip(&name, described.http(), reason, detail),
                Ok(draft) => {
                    self.notes.extend(
                        draft.notes.iter().map(|n| Note { method: Some(name.clone()), note: n.clone() }),
                    );
                    drafts.push(Drafted { described, name, there, draft });
                }
            }
        }
        let preset = self.options.preset.clone().or_else(|| self.known_preset(&base, &drafts, &manifest));
        let mut entries = self.entries(drafts, &base, preset.as_deref(), &manifest);
        let top = self.top(&base, security.auth.as_ref(), preset.as_deref());
        let modes: Vec<Mode> = [(Mode::Production, &base.production), (Mode::Sandbox, &base.sandbox)]
            .into_iter()
            .filter_map(|(mode, url)| url.as_ref().map(|_| mode))
            .collect();
        let mode = *modes.first().ok_or(Error::NoServer)?;
        let head = self.head();
        let whole = Import {
            head: &head,
            top: &top,
            entries: &[],
            gone: &gone,
            server: &server,
            taken_out: &taken_out,
            left_out: &left_out,
        };
        let write = |manifest: Manifest, entries: &[Entry]| manifest.write(&Import { entries, ..whole });
        // One method is checked without what there is of all the others.
        let (none, out) = (BTreeSet::new(), Places::new());
        let write_one = |manifest: Manifest, entry: &[Entry]| {
            manifest.write(&Import { entries: entry, gone: &none, taken_out: &out, left_out: &[], ..whole })
        };
        let loads = |text: &str| {
            // Before anything is checked: of so many methods each check by itself would take minutes.
            bounded(text.len(), all)?;
            let loaded = Integration::parse("the manifest", text, Format::Toml, mode);
            loaded.map_err(|e| Error::Manifest(e.to_string()))
        };
        let mut written = write(manifest.clone(), &entries);
        let mut loaded = loads(&written.0);
        if let Err(e) = loaded {
            if matches!(e, Error::TooLarge { .. }) {
                return Err(e);
            }
            self.weed(&top, &mut entries, mode)?;
            self.give_way(&manifest, &mut entries, |one, entry| loads(&write_one(one, entry).0).map(drop));
            written = write(manifest.clone(), &entries);
            loaded = loads(&written.0);
        }
        if entries.is_empty() && manifest.known.is_empty() {
            return Err(self.nothing());
        }
        let (text, changes) = written;
        self.told(text, loaded?, changes, modes)
    }

    /// Who is chosen, under which name; and who would be, if an operator had not taken it out. Who is there keeps its name;
    /// who is new gets one that nobody has.
    fn choose(
        &mut self,
        manifest: &Manifest,
        all: &[Described<'a>],
        found: &[Option<usize>],
        taken_out: &mut TakenOut<'_>,
    ) -> (Vec<Chosen<'a>>, Vec<String>) {
        let (mut chosen, mut left_out) = (Vec::new(), Vec::new());
        let mut taken = names::Taken::new(self.name);
        for k in &manifest.known {
            taken.take(&k.name, k.wire.as_deref());
        }
        for (described, found) in all.iter().zip(found) {
            let described = *described;
            let known = found.and_then(|k| manifest.known.get(k)).map(|k| k.name.clone());
            let there = known.is_some();
            // A name is taken whether it is chosen or not: by what is chosen later none changes.
            let name = known.unwrap_or_else(|| {
                let asked = names::method(self.name, described.id(), described.verb, described.path);
                taken.give(asked, &described.http())
            });
            if !there && !manifest.selections.iter().any(|s| s.takes(&described)) {
                self.not_chosen += 1;
                continue;
            }
            if !there && taken_out.has(&described) {
                if !self.options.selection.operations.iter().any(|o| described.is(o)) {
                    taken_out.stays_out(&described);
                    left_out.push(described.http());
                    continue;
                }
                taken_out.is_back(&described);
            }
            chosen.push(Chosen { described, name, there });
        }
        (chosen, left_out)
    }

    /// An operation is not imported; a method of it that is there stays as it was.
    pub(crate) fn skip(&mut self, name: &str, operation: String, reason: Reason, detail: String) {
        let stays = self.there.contains(name).then(|| name.to_owned());
        self.skipped.push(Skipped { operation, reason, detail, stays });
    }

    fn nothing(&self) -> Error {
        Error::Nothing(match self.skipped.first() {
            Some(first) => format!(
                "each of {} operations is left out; the first, {}: {}",
                self.skipped.len(),
                first.operation,
                first.detail
            ),
            None => "no operation fits what is chosen".into(),
        })
    }

    /// The first line of a new manifest.
    fn head(&self) -> String {
        let version = self.document.root.pointer("/info/version").and_then(Value::as_str);
        let from = version.map(|v| format!(" from version {}", prose::short(v, 40))).unwrap_or_default();
        format!(
            "# Written by `counterfoil import openapi`{from}. What you change stays when it is imported again.\n"
        )
    }

    /// The manifest's top level.
    fn top(&self, base: &Base, auth: Option<&Auth>, preset: Option<&str>) -> Fields {
        let info = |field: &str, most: usize| {
            let value = self.document.root.pointer("/info").and_then(|i| text(i, field));
            value.map(|t| prose::short(t, most)).filter(|t| !t.is_empty())
        };
        let mut top: Fields = vec![("name", json!(self.name))];
        top.extend(info("title", 120).map(|t| ("title", json!(t))));
        top.extend(info("description", 600).map(|t| ("description", json!(t))));
        let mut urls = json!({});
        for (mode, url) in [("sandbox", &base.sandbox), ("production", &base.production)] {
            if let Some(url) = url {
                urls[mode] = json!(url);
            }
        }
        top.push(("base_url", urls));
        top.extend(preset.map(|name| ("preset", json!(name))));
        if let Some(auth) = auth {
            top.push(("auth", auth.fields(self.name)));
        }
        top
    }

    /// What the description has beside its operations, none of which is imported.
    fn beside(&self, first: Option<Described<'_>>, server: &Value) -> Vec<String> {
        let (root, variables) = (self.document.root, &self.options.variables);
        let mut notes = servers::further(root, first, variables, &served::base(server));
        for field in ["webhooks", "x-webhooks"] {
            let hooks = root.get(field).and_then(Value::as_object).filter(|hooks| !hooks.is_empty());
            notes.extend(hooks.map(|hooks| {
                let named: Vec<String> = hooks.keys().map(|name| prose::short(name, 60)).collect();
                format!(
                    "its webhooks are requests of the provider's to you, and are not imported: {}",
                    prose::some(&named)
                )
            }));
        }
        notes
    }

    fn told(
        &mut self,
        manifest: String,
        loaded: Integration,
        changes: crate::report::Changes,
        modes: Vec<Mode>,
    ) -> Result<Imported, Error> {
        let mut recovery = BTreeMap::new();
        for method in loaded.methods().iter().filter(|m| m.effect() == MethodEffect::Mutating) {
            let strategy = method.recovery(None).map_err(|e| Error::Manifest(e.to_string()))?.strategy;
            *recovery.entry(strategy.word().to_owned()).or_default() += 1;
        }
        let changing: usize = recovery.values().sum();
        let report = Report {
            integration: self.name.to_owned(),
            methods: loaded.methods().len(),
            reading: loaded.methods().len() - changing,
            recovery,
            preset: (loaded.preset().name != "none").then(|| loaded.preset().name.clone()),
            addresses: [Mode::Sandbox, Mode::Production]
                .into_iter()
                .filter_map(|mode| Some((mode.as_str(), loaded.sends_to(mode)?.to_owned())))
                .collect(),
            not_chosen: self.not_chosen,
            skipped: std::mem::take(&mut self.skipped),
            notes: std::mem::take(&mut self.notes),
            changes,
        };
        Ok(Imported { manifest, integration: loaded, report, modes })
    }
}

/// How many tags are named to choose from.
const TAGS_SHOWN: usize = 5;

/// Whether a manifest of so many bytes can be loaded.
fn bounded(size: usize, all: &[Described<'_>]) -> Result<(), Error> {
    if size <= provider::MAX_MANIFEST {
        return Ok(());
    }
    let mut tags: BTreeMap<&str, usize> = BTreeMap::new();
    for tag in all.iter().flat_map(Described::tags) {
        *tags.entry(tag).or_default() += 1;
    }
    let mut tags: Vec<(&str, usize)> = tags.into_iter().collect();
    tags.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let named: Vec<String> =
        tags.iter().take(TAGS_SHOWN).map(|(tag, n)| format!("{:?} ({n})", prose::short(tag, 60))).collect();
    let such = if named.is_empty() { String::new() } else { format!("; tags are {}", named.join(", ")) };
    Err(Error::TooLarge { size: size >> 20, most: provider::MAX_MANIFEST >> 20, such })
}
