//! Operations as a manifest's methods, and the preset that fits where they are sent.

use crate::import::Run;
use crate::manifest::{Entry, Fields, Manifest};
use crate::operation::{Described, Draft};
use crate::report::Note;
use crate::safety::Effect;
use crate::service::Base;
use provider::Preset;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// An operation that becomes a method, read.
pub(crate) struct Drafted<'a> {
    pub described: Described<'a>,
    pub name: String,
    /// Whether it is a method already.
    pub there: bool,
    pub draft: Draft,
}

impl Drafted<'_> {
    /// The preset of the provider that it is sent to.
    fn preset(&self, base: &str) -> Option<&'static str> {
        Preset::at(&format!("{base}{}", self.described.path))
    }

    fn changes(&self) -> bool {
        self.draft.effect == Effect::Mutating
    }
}

/// The address by which a provider is known.
fn address(base: &Base) -> Option<&String> {
    base.production.as_ref().or(base.sandbox.as_ref())
}

impl Run<'_, '_> {
    /// The preset of the provider that all methods which change something are sent to. One that was taken at an earlier
    /// import stays while a method that is there is sent to its provider. Where it isn't one and all, or would be another
    /// decision about methods that are there, it isn't taken, and who imports is told of it.
    pub(crate) fn known_preset(
        &mut self,
        base: &Base,
        drafts: &[Drafted<'_>],
        manifest: &Manifest,
    ) -> Option<String> {
        let base = address(base)?;
        let changing = || drafts.iter().filter(|d| d.changes());
        let mut presets: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for draft in changing() {
            *presets.entry(draft.preset(base)).or_default() += 1;
        }
        let had = manifest.had_imported("preset");
        if had
            && !manifest.is_own("preset")
            && let Some(was) = manifest.field("preset").as_ref().and_then(Value::as_str)
            && (presets.is_empty() || changing().any(|d| d.there && d.preset(base) == Some(was)))
        {
            return Some(was.to_owned());
        }
        if let (1, Some((Some(preset), _))) = (presets.len(), presets.first_key_value()) {
            if manifest.known.is_empty() || had {
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

    /// Methods of drafts. `preset` is the one that is imported; what an operator has made of it counts instead.
    pub(crate) fn entries(
        &mut self,
        drafts: Vec<Drafted<'_>>,
        base: &Base,
        preset: Option<&str>,
        manifest: &Manifest,
    ) -> Vec<Entry> {
        let own = manifest.is_own("preset");
        let named = if own { manifest.field("preset") } else { preset.map(Value::from) };
        let preset = named.as_ref().and_then(Value::as_str).and_then(|name| Preset::named(name).ok());
        // Who names a preset says that it holds for all; by its address one is known for what is sent there.
        let by_address = !own && self.options.preset.is_none();
        let mut entries = Vec::new();
        for mut drafted in drafts {
            if let Some(preset) = preset.as_ref().filter(|_| drafted.changes()) {
                let at = address(base).and_then(|base| drafted.preset(base));
                let fits = !by_address || at == Some(preset.name.as_str());
                if let Some(note) = settle(&mut drafted.draft, preset, fits) {
                    self.notes.push(Note { method: Some(drafted.name.clone()), note });
                }
            }
            entries.push(entry(drafted.name, drafted.described, drafted.draft));
        }
        entries
    }
}

/// Makes a draft one that its provider's preset goes together with: the place of the key is the gateway's, and where there
/// is none, or the method is not one that the preset `fits`, no key is carried. Says what is different.
fn settle(draft: &mut Draft, preset: &Preset, fits: bool) -> Option<String> {
    if let Some(carrier) = &mut draft.carrier {
        // What is published of another API's keys is not of this one's.
        carrier.unpublished = !fits;
        return None;
    }
    let spans = draft.styles.iter().any(|(_, style)| *style == "segments");
    let (place, field) = preset.carries(&draft.http, spans)?;
    let name = &preset.name;
    if !fits {
        draft.keyless = true;
        return Some(format!(
            "it is sent elsewhere than what the preset {name} is known for, so it carries no effect key"
        ));
    }
    let is_whole = draft.params.iter().any(|(_, to)| to == "document");
    if place == "body" && (is_whole || !["json", "form", "multipart"].contains(&draft.body)) {
        draft.keyless = true;
        return Some(format!(
            "the preset {name} has the effect key in the field {field} of the body, and this body has no fields: it carries \
             none, so a lost answer leaves a doubt"
        ));
    }
    let same = |a: &str| if place == "header" { a.eq_ignore_ascii_case(&field) } else { a == field };
    if let Some(placed) = draft.places.iter().find(|p| p.place == place && same(&p.field)) {
        if placed.denied {
            draft.keyless = true;
            return None;
        }
        let argument = placed.name.clone();
        draft.take_out(&argument);
    }
    match place {
        "header" => draft.headers.retain(|(name, _)| !same(name)),
        "query" => draft.query.retain(|(name, _)| !same(name)),
        _ => {}
    }
    None
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
        if carrier.unpublished {
            table["retention_basis"] = json!("unpublished");
        }
        fields.push(("idempotency", table));
    } else if draft.keyless {
        fields.push(("idempotency", json!({ "mode": "none" })));
    }
    if draft.carrier.is_none() && draft.natural {
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
