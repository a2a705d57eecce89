//! From a description's operations to a manifest: who is chosen, under which names, where it is served.

use crate::document::{Document, text};
use crate::manifest::{Entry, Fields, Manifest};
use crate::operation::{Described, Draft};
use crate::report::{Note, Reason, Report, Skipped};
use crate::schema::Schemas;
use crate::service::{Auth, Base};
use crate::{Error, Imported, Options, names, operation, prose, safety, service};
use provider::{Format, Integration, MethodEffect, Mode, Preset};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The most operations of one description.
const MAX_OPERATIONS: usize = 60_000;
/// The verbs of OpenAPI, and what else a path item may hold.
const VERBS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// All operations, in their order.
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
                });
                continue;
            }
        };
        let Some(members) = item.as_object() else {
            let detail = "its path holds no object".to_owned();
            skipped.push(Skipped { operation: path.clone(), reason: Reason::Malformed, detail });
            continue;
        };
        for (verb, operation) in members {
            if !VERBS.contains(&verb.as_str()) {
                continue;
            }
            if !operation.is_object() {
                let operation = format!("{} {path}", verb.to_uppercase());
                let detail = "it is no object".to_owned();
                skipped.push(Skipped { operation, reason: Reason::Malformed, detail });
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
            if all.len() < MAX_OPERATIONS {
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
}

impl<'r, 'a: 'r> Run<'r, 'a> {
    pub(crate) fn import(&mut self, manifest: Manifest, all: &[Described<'a>]) -> Result<Imported, Error> {
        let mut left_out = Vec::new();
        let names = self.names(&manifest, all);
        let taken_out = manifest.taken_out();
        let mut chosen = Vec::new();
        for (described, name) in all.iter().zip(&names) {
            let http = described.http();
            let named = self.options.selection.operations.iter().any(|o| described.is(o));
            if name.1 || manifest.selections.iter().any(|s| s.takes(described)) {
                if !name.1 && taken_out.contains(&http) && !named {
                    left_out.push(http);
                } else {
                    chosen.push((*described, name.0.clone()));
                }
            } else {
                self.not_chosen += 1;
            }
        }
        let base = self.base(&mut chosen)?;
        let only: Vec<Described<'_>> = chosen.iter().map(|c| c.0).collect();
        let security = service::security(self.document, &only);
        self.notes.extend(security.notes.iter().map(|n| Note { method: None, note: n.clone() }));
        let mut entries = Vec::new();
        for (described, name) in chosen {
            match operation::draft(self.document, &self.schemas, described, &security.secrets) {
                Err((reason, detail)) => {
                    self.skipped.push(Skipped { operation: described.http(), reason, detail })
                }
                Ok(draft) => {
                    self.notes.extend(
                        draft.notes.iter().map(|n| Note { method: Some(name.clone()), note: n.clone() }),
                    );
                    entries.push(entry(name, described, draft));
                }
            }
        }
        let preset = self.options.preset.clone().or_else(|| self.known_preset(&base, &entries, &manifest));
        let top = self.top(&base, security.auth.as_ref(), preset.as_deref());
        let modes: Vec<Mode> = [(Mode::Production, &base.production), (Mode::Sandbox, &base.sandbox)]
            .into_iter()
            .filter_map(|(mode, url)| url.as_ref().map(|_| mode))
            .collect();
        let mode = *modes.first().ok_or(Error::NoServer)?;
        let ids: BTreeSet<String> = all.iter().map(Described::http).collect();
        let head = format!(
            "# Written by `counterfoil import openapi`{}. What you change stays when it is imported again.\n",
            self.document
                .root
                .pointer("/info/version")
                .and_then(Value::as_str)
                .map(|v| format!(" from version {}", prose::short(v, 40)))
                .unwrap_or_default()
        );
        let loads = |text: &str| {
            // Before anything is checked: of so many methods each check by itself would take minutes.
            bounded(text.len(), all)?;
            let loaded = Integration::parse("the manifest", text, Format::Toml, mode);
            loaded.map_err(|e| Error::Manifest(e.to_string()))
        };
        let write = |manifest: Manifest, entries: &[Entry]| {
            let renamed = renamed(&manifest, entries);
            manifest.write(&head, &top, entries, &ids, &renamed, &left_out)
        };
        let mut written = write(manifest.clone(), &entries);
        let mut loaded = loads(&written.0);
        if let Err(e) = loaded {
            if matches!(e, Error::TooLarge { .. }) {
                return Err(e);
            }
            self.weed(&top, &mut entries, mode)?;
            if entries.is_empty() && manifest.known.is_empty() {
                return Err(Error::Nothing(match self.skipped.first() {
                    Some(first) => format!(
                        "each of {} operations is left out; the first, {}: {}",
                        self.skipped.len(),
                        first.operation,
                        first.detail
                    ),
                    None => "no operation fits what is chosen".into(),
                }));
            }
            written = write(manifest, &entries);
            loaded = loads(&written.0);
        }
        let loaded = loaded?;
        let (text, changes) = written;
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
            not_chosen: self.not_chosen,
            skipped: std::mem::take(&mut self.skipped),
            notes: std::mem::take(&mut self.notes),
            changes,
        };
        Ok(Imported { manifest: text, integration: loaded, report, modes })
    }

    /// The names of all operations, and whether each is in the manifest already. Who is there keeps its name, found by its
    /// id, else by its verb and path; who is new gets a name that nobody has.
    fn names(&self, manifest: &Manifest, all: &[Described<'_>]) -> Vec<(String, bool)> {
        let mut taken = names::Taken::new(self.name);
        for k in &manifest.known {
            taken.take(&k.name, k.wire.as_deref());
        }
        let mut ids: HashMap<&str, usize> = HashMap::new();
        for described in all {
            *ids.entry(described.id().unwrap_or_default()).or_default() += 1;
        }
        let by_http: HashMap<&str, &str> =
            manifest.known.iter().filter_map(|k| Some((k.http.as_deref()?, k.name.as_str()))).collect();
        let by_id: HashMap<&str, &str> =
            manifest.known.iter().filter_map(|k| Some((k.operation.as_deref()?, k.name.as_str()))).collect();
        let mut given: BTreeSet<&str> = BTreeSet::new();
        let mut known: Vec<Option<&str>> = vec![None; all.len()];
        // Who is where it was comes first; then who has moved and kept its id.
        for (slot, d) in known.iter_mut().zip(all) {
            *slot = by_http.get(d.http().as_str()).copied().filter(|n| given.insert(n));
        }
        for (slot, d) in known.iter_mut().zip(all) {
            if slot.is_none()
                && let Some(id) = d.id().filter(|id| ids.get(id) == Some(&1))
            {
                *slot = by_id.get(id).copied().filter(|n| given.insert(n));
            }
        }
        all.iter()
            .zip(known)
            .map(|(d, known)| match known {
                Some(name) => (name.to_owned(), true),
                None => (taken.give(names::method(self.name, d.id(), d.verb, d.path), &d.http()), false),
            })
            .collect()
    }

    /// Where most of the chosen operations are served; those served elsewhere are skipped.
    fn base(&mut self, chosen: &mut Vec<(Described<'a>, String)>) -> Result<Base, Error> {
        for (option, url) in
            [("--base-url", &self.options.base_url), ("--sandbox-url", &self.options.sandbox_url)]
        {
            if let Some(url) = url
                && service::checked(url).as_deref() != Some(url.trim_end_matches('/'))
            {
                return Err(Error::Option(format!(
                    "{option} {url:?} must be https, or http on loopback, and end before any `?`"
                )));
            }
        }
        let bases: Vec<Base> = chosen
            .iter()
            .map(|c| service::base(self.document.root, Some(c.0), &self.options.variables))
            .collect();
        let mut counts: HashMap<&Base, usize> = HashMap::new();
        for base in &bases {
            *counts.entry(base).or_default() += 1;
        }
        // The first of those that are equally frequent, so that the same description gives the same manifest.
        let most = counts.values().max().copied().unwrap_or_default();
        let base = bases.iter().find(|b| counts.get(b) == Some(&most)).cloned().unwrap_or_default();
        let mut at = bases.iter();
        let skipped = &mut self.skipped;
        chosen.retain(|(described, _)| {
            let own = at.next();
            let same = own == Some(&base);
            if !same {
                let url = own.and_then(|b| b.production.as_deref().or(b.sandbox.as_deref())).unwrap_or("no address");
                let detail = format!("it is served at {url:.200}, unlike the others; import it by itself with --path or --operation");
                skipped.push(Skipped { operation: described.http(), reason: Reason::Server, detail });
            }
            same
        });
        let trimmed = |url: &Option<String>| url.as_ref().map(|u| u.trim_end_matches('/').to_owned());
        Ok(Base {
            production: trimmed(&self.options.base_url).or(base.production),
            sandbox: trimmed(&self.options.sandbox_url).or(base.sandbox),
        })
    }

    /// The preset of the provider that all methods which change something are sent to. Where it isn't one and all, or would
    /// be another decision about methods that are there, it isn't taken, and who imports is told of it.
    fn known_preset(&mut self, base: &Base, entries: &[Entry], manifest: &Manifest) -> Option<String> {
        let base = base.production.as_ref().or(base.sandbox.as_ref())?;
        let changing =
            entries.iter().filter(|e| !e.derived.contains(&("effect", safety::Effect::Read.word())));
        let mut presets: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for entry in changing {
            let path = entry.http.split_once(' ').map_or("", |(_, path)| path);
            *presets.entry(Preset::at(&format!("{base}{path}"))).or_default() += 1;
        }
        if let (1, Some((Some(preset), _))) = (presets.len(), presets.first_key_value()) {
            if manifest.known.is_empty() || manifest.had_imported("preset") {
                return Some((*preset).to_owned());
            }
            let note = format!("by its address the preset {preset} fits; --preset {preset} takes it");
            self.notes.push(Note { method: None, note });
            return None;
        }
        for (preset, served) in presets {
            let Some(preset) = preset else { continue };
            let note = format!(
                "by their address the preset {preset} fits {served} of the methods that change something, but not all, so it \
                 is not taken; import those by themselves (--path, --name), or name it for all with --preset"
            );
            self.notes.push(Note { method: None, note });
        }
        None
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
            let variable: String = self.name.to_ascii_uppercase().replace('-', "_");
            let mut table = json!({ "kind": auth.kind, "secret": format!("${{env:{variable}_TOKEN}}") });
            if let Some(header) = &auth.header {
                table["header"] = json!(header);
            }
            if auth.rotates {
                table["rotates"] = json!(true);
            }
            top.push(("auth", table));
        }
        top
    }

    /// Takes out what the manifest's own checks refuse.
    fn weed(&mut self, top: &Fields, entries: &mut Vec<Entry>, mode: Mode) -> Result<(), Error> {
        let written = |entries: &[Entry]| {
            let blank = Manifest::read(None).map_err(Error::Existing)?;
            Ok::<String, Error>(blank.write("", top, entries, &BTreeSet::new(), &BTreeSet::new(), &[]).0)
        };
        let loads = |text: &str| {
            Integration::parse("manifest", text, Format::Toml, mode).map(|_| ()).map_err(|e| e.message)
        };
        if entries.is_empty() {
            return Ok(());
        }
        // What fails may be an operator's: then none of these is taken out.
        if loads(&written(entries)?).is_ok() {
            return Ok(());
        }
        let mut kept = Vec::new();
        for entry in entries.drain(..) {
            match loads(&written(std::slice::from_ref(&entry))?) {
                Ok(()) => kept.push(entry),
                Err(detail) => {
                    self.skipped.push(Skipped { operation: entry.http, reason: Reason::Refused, detail });
                }
            }
        }
        *entries = kept;
        Ok(())
    }
}

/// Operations that were renamed, by what they were.
fn renamed(manifest: &Manifest, entries: &[Entry]) -> BTreeSet<String> {
    let names: BTreeSet<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    let still = manifest.known.iter().filter(|k| names.contains(k.name.as_str()));
    still.filter_map(|k| k.http.clone()).collect()
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

/// The recovery strategy that the description allows by itself.
fn strategy(draft: &Draft) -> Option<&'static str> {
    match (&draft.carrier, draft.natural) {
        (Some(_), _) => Some("key"),
        (None, true) => Some("natural"),
        (None, false) => None,
    }
}

/// A method's fields.
fn entry(name: String, described: Described<'_>, draft: Draft) -> Entry {
    let mut fields: Fields = vec![("http", json!(draft.http))];
    fields.extend(draft.title.as_ref().map(|t| ("title", json!(t))));
    fields.push(("description", json!(draft.description)));
    fields.push(("effect", json!(draft.effect.word())));
    if draft.any_answer {
        fields.push(("answers", json!("any")));
    }
    let derived = strategy(&draft);
    if let Some(carrier) = &draft.carrier {
        let mut table = json!({ "mode": "dynamic", "carrier": carrier.place, "name": carrier.name });
        table["methods"] = json!([described.verb]);
        fields.push(("idempotency", table));
    } else if draft.natural {
        fields.push(("natural", json!({})));
    }
    fields.push(("body", json!(draft.body)));
    fields.extend(draft.content_type.as_ref().map(|c| ("content_type", json!(c))));
    let table = |all: Vec<(String, Value)>| Value::Object(all.into_iter().collect());
    let texts = |all: Vec<(String, String)>| -> Value {
        Value::Object(all.into_iter().map(|(n, t)| (n, json!(t))).collect())
    };
    for (field, all) in [("query", draft.query), ("headers", draft.headers), ("part_types", draft.part_types)]
    {
        if !all.is_empty() {
            fields.push((field, texts(all)));
        }
    }
    if !draft.part_headers.is_empty() {
        let all = draft.part_headers.into_iter().map(|(field, headers)| (field, texts(headers)));
        fields.push(("part_headers", table(all.collect())));
    }
    if !draft.params.is_empty() {
        fields.push(("params", table(draft.params.into_iter().map(|(n, p)| (n, json!(p))).collect())));
    }
    if !draft.styles.is_empty() {
        fields.push(("styles", table(draft.styles.into_iter().map(|(n, s)| (n, json!(s))).collect())));
    }
    fields.push(("input", json!(draft.input.to_string())));
    fields.extend(draft.details.map(|d| ("details", json!(d))));
    let mut said = vec![("effect", draft.effect.word())];
    said.extend(derived.map(|d| ("recovery", d)));
    Entry {
        name,
        http: described.http(),
        operation: described.id().map(str::to_owned),
        fields,
        derived: said,
    }
}
