//! What an import tells people.

use super::add::{Added, block};
use super::{Out, Prepared};
use openapi::report::{Difference, Report};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// How many lines of one kind are shown to people; `--json` has them all.
const SHOWN: usize = 12;

/// Says what became of one description.
pub(super) fn tell(out: &Out, prepared: &Prepared, dry_run: bool) {
    let report = &prepared.report;
    let done = match (dry_run, prepared.same) {
        (_, true) => "is as it was",
        (true, _) => "would be written",
        (false, false) => "written",
    };
    out.say(format!("{}  {done}", out.bold(&prepared.manifest.display().to_string())));
    decisive(out, &report.changes.decisive);
    let recovery: Vec<String> = report.recovery.iter().map(|(word, n)| format!("{n} {word}")).collect();
    let changing = report.methods - report.reading;
    let by =
        if recovery.is_empty() { String::new() } else { format!(" (recovery: {})", recovery.join(", ")) };
    out.say(format!(
        "  {} methods: {} read, {changing} change something{by}",
        report.methods, report.reading
    ));
    out.say(places(report));
    if let Some(preset) = &report.preset {
        out.say(format!("  preset {preset}: what is known of how this provider treats keys"));
    }
    if report.not_chosen > 0 {
        out.say(format!("  {} operations are not chosen", report.not_chosen));
    }
    let changes = &report.changes;
    lines(out, "added", &changes.added);
    lines(out, "removed", &changes.removed);
    let named = |all: &BTreeMap<String, Vec<String>>| -> Vec<String> {
        let name = |n: &String| if n.is_empty() { "(the integration)".to_owned() } else { n.clone() };
        all.iter().map(|(n, fields)| format!("{}: {}", name(n), fields.join(", "))).collect()
    };
    lines(out, "changed", &named(&changes.changed));
    lines(out, "kept as you have it", &named(&changes.kept));
    lines(out, "left out, as you took them out", &changes.left_out);
    let skipped = |stay: bool| {
        let these = report.skipped.iter().filter(move |s| s.stays.is_some() == stay);
        these.map(|s| match &s.stays {
            Some(method) => format!("{method}: {}: {} ({})", s.operation, s.detail, s.reason.word()),
            None => format!("{}: {} ({})", s.operation, s.detail, s.reason.word()),
        })
    };
    whole(out, "stay as they were", &skipped(true).collect::<Vec<_>>());
    lines(out, "skipped", &skipped(false).collect::<Vec<_>>());
    let notes: Vec<String> = report
        .notes
        .iter()
        .map(|n| n.method.as_ref().map_or_else(|| n.note.clone(), |m| format!("{m}: {}", n.note)))
        .collect();
    lines(out, "notes", &notes);
    out.say("");
    match prepared.added {
        Some(Added::Now) => out.say("It is named in the configuration now."),
        Some(Added::Before) => out.say("The configuration names it."),
        None => {
            out.say("Name it in counterfoil.toml, if it isn't yet (--add does it):");
            out.say("");
            block(&report.integration, &prepared.manifest)
                .lines()
                .for_each(|line| out.say(format!("  {line}")));
        }
    }
    out.say("");
    out.say(match &prepared.secret_variable {
        Some(variable) => format!(
            "Its credential is read from {variable}. To keep it encrypted instead, write secret = \"store\" in [auth] of the \
             manifest, and run: counterfoil auth connect {}",
            report.integration
        ),
        None if prepared.authenticates => "Its credential is where [auth] of the manifest says.".into(),
        None => "Its description names no credential. If the provider wants one, add [auth] to the manifest.".into(),
    });
}

/// Where calls go in each mode: whoever reads it sees in which of them they have real effects.
fn places(report: &Report) -> String {
    let at = |mode: &str, option: &str| match report.addresses.get(mode) {
        Some(url) => format!("{mode} mode sends to {}", plain(url)),
        None => format!("{mode} mode sends nothing: it has no address, and {option} gives one"),
    };
    format!("  {}; {}", at("sandbox", "--sandbox-url"), at("production", "--base-url"))
}

/// Text of a description, which must not move a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// What decides where calls go, what they do and whether they may be repeated: all of it, and before all else.
fn decisive(out: &Out, all: &[Difference]) {
    let (whole, methods): (Vec<&Difference>, Vec<&Difference>) = all.iter().partition(|d| d.method.is_none());
    let moves = |d: &Difference| {
        let mut modes = d.before.as_object().into_iter().flatten();
        d.field == "base_url" && modes.any(|(mode, url)| d.after.get(mode).is_some_and(|now| now != url))
    };
    if whole.iter().any(|d| moves(d)) {
        out.say(
            out.bad("all methods of this integration move: their calls, with the credential, go elsewhere"),
        );
    }
    let line = |d: &Difference| {
        let of = d.method.as_ref().map_or_else(|| "all methods".to_owned(), Clone::clone);
        format!("{of}: {}", difference(&d.field, &d.before, &d.after))
    };
    let all: Vec<String> = whole.into_iter().chain(methods).map(line).collect();
    self::whole(out, "changed: where calls go, what they do, whether they may be repeated", &all);
}

/// `effect: mutating → read`; of tables their members that differ.
fn difference(field: &str, before: &Value, after: &Value) -> String {
    let (Value::Object(was), Value::Object(is)) = (before, after) else {
        return format!("{field}: {} → {}", shown(before), shown(after));
    };
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let member =
        |name: &&String| (was.get(*name).unwrap_or(&Value::Null), is.get(*name).unwrap_or(&Value::Null));
    let differ = names.iter().filter(|n| member(n).0 != member(n).1);
    let all: Vec<String> =
        differ.map(|n| format!("{field}.{n}: {} → {}", shown(member(n).0), shown(member(n).1))).collect();
    all.join(", ")
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// All of these lines.
fn whole(out: &Out, what: &str, all: &[String]) {
    if !all.is_empty() {
        out.say(out.bold(&format!("{what} ({})", all.len())));
        all.iter().for_each(|line| out.say(format!("  {}", plain(line))));
    }
}

fn lines(out: &Out, what: &str, all: &[String]) {
    if all.is_empty() {
        return;
    }
    out.say(out.dim(&format!("{what} ({})", all.len())));
    for line in all.iter().take(SHOWN) {
        out.say(format!("  {}", plain(line)));
    }
    if all.len() > SHOWN {
        out.say(format!("  and {} more; --json has them all", all.len() - SHOWN));
    }
}
