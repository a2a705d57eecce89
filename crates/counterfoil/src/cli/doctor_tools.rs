//! What `doctor` says of tools: who is asked before them, and whether their retentions agree.

use super::doctor::Report;
use crate::config::show_duration;
use gateway::{Approval, Body, Catalog};
use ledger::Millis;
use provider::Mode;
use serde_json::Value;

/// Who is asked before what, and which tools only clients that know tasks can call.
pub(super) fn approvals(catalog: &Catalog, report: &mut Report) {
    let changing = || catalog.entries().filter(|e| matches!(e.body, Body::Mutating(_)));
    let waiting = changing().filter(|e| e.settings.approval != Approval::Never);
    let waiting: Vec<String> =
        waiting.map(|e| format!("{} ({})", e.spec.canonical, e.settings.approval)).collect();
    if !waiting.is_empty() {
        report.good("approval", format!("a person says yes first: {}", waiting.join(", ")));
    }
    let tasks = changing().filter(|e| e.settings.mode.needs_tasks());
    let tasks: Vec<&str> = tasks.map(|e| &*e.spec.canonical).collect();
    if !tasks.is_empty() {
        report.good("tasks", format!("only clients that know tasks can call {}", tasks.join(", ")));
    }
}

/// What changes something and nobody decided about: an error where it is real, since its first unclear outcome would be
/// the first time that somebody thinks of it.
pub(super) fn undecided(mode: Mode, id: &str, safety: &Value, report: &mut Report) {
    if safety["undecided"] != true {
        return;
    }
    let what = "undecided: it changes something, and neither its description, a preset, its manifest nor [tools] says how an unclear outcome of it recovers; it would be in doubt at once";
    let mend = format!(
        "describe keys, a look-up or `natural` in the manifest, or decide in counterfoil.toml: [tools.\"{id}\"] recovery = \"key\" | \"natural\" | \"lookup\" | \"confirm\"; \"none\" (never sent twice) is a decision, too"
    );
    match mode {
        Mode::Production => report.error(id, what, &mend),
        Mode::Sandbox => report.warn(id, what, &mend),
    }
}

/// Three retentions must agree: the caller's retry horizon, the ledger's, the provider's.
pub(super) fn retentions(
    id: &str,
    safety: &Value,
    policy: &ledger::OperationPolicy,
    horizon: Millis,
    report: &mut Report,
) {
    let strategy = safety["recovery"]["value"].as_str().unwrap_or("none");
    if policy.retention < horizon {
        report.error(
            id,
            format!("the ledger forgets after {}, callers may retry for {}", show_duration(policy.retention), show_duration(horizon)),
            "lengthen retention in [ledger] or [tools], or say how long your callers retry with --retry-horizon",
        );
    }
    match strategy {
        // Told by `undecided`.
        "none" if safety["undecided"] == true => {}
        "none" => report.good(id, "none, as decided: an unclear outcome is in doubt at once"),
        "confirm" => report.warn(
            id,
            "a person decides every unclear outcome",
            "set recovery to something the provider supports, if it supports anything",
        ),
        _ => {
            let until = safety["replayForMs"]["value"].as_i64().map(Millis);
            let span = until.map_or("for ever".to_owned(), |m| format!("for {}", show_duration(m)));
            let send = safety["sendTimeoutMs"]["value"].as_i64().map_or(Millis::secs(10), Millis);
            match until {
                Some(until) if until.0 <= policy.timeout.0.saturating_add(send.0) => report.warn(
                    id,
                    format!("{strategy}: replays are safe {span} only, hardly longer than one attempt ({})", show_duration(policy.timeout)),
                    "shorten timeout, or say in the manifest how long the provider really remembers (retention, margin)",
                ),
                _ => report.good(id, format!("{strategy}: replays {span}, kept {} after the end", show_duration(policy.retention))),
            }
            if strategy == "key" && until.is_some() && safety["replayForMs"]["published"] == false {
                report.warn(id, "the provider has not published how long it remembers keys", "replays stop early for safety; say in the manifest what you know (retention, retention_basis)");
            }
        }
    }
}
