//! `methods`: what can be called, or with `--safety` which of it is safe to repeat, and who says so.

use super::fail::Done;
use super::out::Out;
use super::place::{Place, encode};
use crate::config::show_duration;
use crate::run::Use;
use ledger::Millis;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Only those with this word in their id or description
    word: Option<String>,
    /// Tell which are safe to repeat and why, and where each of it comes from
    #[arg(long)]
    safety: bool,
}

pub(super) async fn run(args: Args, out: &Out) -> Done {
    let session = args.place.open(Use::Catalog).await?;
    let path = format!("/v1/methods?q={}", encode(args.word.as_deref().unwrap_or_default()));
    let answer = session.get(&path).await;
    session.close().await?;
    let answer = answer?;
    let methods = answer["methods"].as_array().map(Vec::as_slice).unwrap_or_default();
    if args.safety {
        let all: Vec<Value> = methods.iter().map(safety).collect();
        let rows: Vec<Vec<String>> = all.iter().map(safety_row).collect();
        out.document(&json!({ "methods": all }));
        table(out, &["METHOD", "EFFECT", "RECOVERY", "KEY IN", "REPLAYS FOR", "SAFE TO REPEAT"], &rows);
    } else {
        let rows: Vec<Vec<String>> = methods.iter().map(row).collect();
        out.document(&answer);
        table(out, &["METHOD", "TOOL", "EFFECT", "RECOVERY", "APPROVAL", "MODE", "PROMISE"], &rows);
    }
    Ok(0)
}

fn table(out: &Out, head: &[&str], rows: &[Vec<String>]) {
    if rows.is_empty() {
        out.say("nothing has that word; without one, all are listed");
    } else {
        out.table(head, rows);
    }
}

fn text(v: &Value) -> String {
    v.as_str().unwrap_or("-").to_owned()
}

fn row(m: &Value) -> Vec<String> {
    let recovery = m["safety"]["recovery"]["value"].as_str();
    let promise = m["safety"]["promise"].as_str().unwrap_or("changes nothing");
    vec![
        text(&m["id"]),
        text(&m["tool"]),
        text(&m["effect"]),
        recovery.unwrap_or("-").to_owned(),
        text(&m["approval"]),
        text(&m["mode"]),
        promise.to_owned(),
    ]
}

/// What is told of one: each fact with where it comes from.
fn safety(m: &Value) -> Value {
    let s = &m["safety"];
    let mutating = m["effect"] == "mutating";
    // Only these strategies send again by themselves within a time.
    let timed = matches!(s["recovery"]["value"].as_str(), Some("key" | "natural"));
    let from = |fact: &Value, from: &Value| json!({ "value": fact, "from": from });
    json!({
        "id": m["id"],
        "tool": m["tool"],
        "effect": from(&m["effect"], &s["effectFrom"]),
        "recovery": if mutating { s["recovery"].clone() } else { Value::Null },
        "keyCarrier": if s["keyCarrier"].is_string() { from(&s["keyCarrier"], &s["keyCarrierFrom"]) } else { Value::Null },
        "replayForMs": if timed { s["replayForMs"].clone() } else { Value::Null },
        "repeat": s["repeat"],
        "undecided": s["undecided"] == true,
    })
}

fn safety_row(m: &Value) -> Vec<String> {
    let sourced = |fact: &Value, shown: String| match fact["from"].as_str() {
        Some(from) => format!("{shown} ({from})"),
        None => shown,
    };
    let fact = |fact: &Value| sourced(fact, text(&fact["value"]));
    let window = &m["replayForMs"];
    let window = if window.is_null() {
        "-".to_owned()
    } else {
        let time = window["value"].as_i64().map_or_else(|| "ever".into(), |ms| show_duration(Millis(ms)));
        sourced(window, time)
    };
    let repeat = match (m["repeat"]["safe"].as_str(), m["repeat"]["why"].as_str()) {
        (Some(safe), Some(why)) => format!("{safe}: {why}"),
        _ => "-".into(),
    };
    vec![text(&m["id"]), fact(&m["effect"]), fact(&m["recovery"]), fact(&m["keyCarrier"]), window, repeat]
}
