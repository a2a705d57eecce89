//! `info`: how a method is called, where each of its settings comes from, whether a retry is safe and why.

use super::fail::Done;
use super::out::{Out, pretty};
use super::place::{Place, encode};
use crate::config::show_duration;
use crate::run::Use;
use ledger::Millis;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// The method's canonical id, or its tool name
    id: String,
}

pub(super) async fn run(args: Args, out: &Out) -> Done {
    let session = args.place.open(Use::Catalog).await?;
    let found = async {
        let mut method = session.get(&format!("/v1/methods/{}", encode(&args.id))).await?;
        let id = method["id"].as_str().unwrap_or_default().to_owned();
        method["origins"] = session.get(&format!("/v1/origins/{}", encode(&id))).await?;
        Ok::<_, super::fail::Fail>(method)
    }
    .await;
    session.close().await?;
    let method = found?;
    out.document(&method);
    if !out.is_json() {
        describe(out, &method);
    }
    Ok(0)
}

fn text(v: &Value) -> &str {
    v.as_str().unwrap_or("-")
}

fn time(v: &Value) -> String {
    v.as_i64().map_or_else(|| "for ever".into(), |ms| show_duration(Millis(ms)))
}

fn describe(out: &Out, m: &Value) {
    let safety = &m["safety"];
    let from = safety["effectFrom"].as_str().map(|f| format!(", from {f}")).unwrap_or_default();
    out.say(format!("{}  ({}{from})", out.bold(text(&m["id"])), text(&m["effect"])));
    // The whole of it, where a model is given less.
    out.say(safety["details"].as_str().unwrap_or(text(&m["description"])));
    out.say("");
    out.say(format!("tool      {}", text(&m["tool"])));
    if let Some(http) = safety["http"].as_str() {
        out.say(format!("http      {http}"));
    }
    out.say(format!("retry     {}", text(&safety["retry"])));
    if safety["undecided"] == true {
        out.say(
            "undecided nobody said how an unclear outcome recovers; `counterfoil doctor` says how to decide",
        );
    }
    if m["effect"] == "mutating" {
        out.say(format!("promise   {}", text(&safety["promise"])));
        out.say(format!("approval  {}", approval(text(&m["approval"]))));
        if let Some(carrier) = safety["keyCarrier"].as_str() {
            let published = if safety["replayForMs"]["published"] == true {
                ""
            } else {
                " (the provider has not published how long it remembers keys)"
            };
            let scope = match safety["keyScope"].as_str() {
                Some("api_key") => ", one scope per API key",
                Some("route") => ", one scope per route",
                Some("region") => ", one scope per region of the account",
                _ => "",
            };
            let from = safety["keyCarrierFrom"].as_str().map(|f| format!(" (from {f})")).unwrap_or_default();
            out.say(format!(
                "key       in {carrier}{from}{scope}; replays are safe {}{published}",
                within(&safety["replayForMs"]["value"])
            ));
            if let Some(compared) = safety["keyCompares"].as_str() {
                out.say(format!("          of a repeat the provider compares {compared}"));
            }
        }
    }
    for (n, limit) in m["limits"].as_array().into_iter().flatten().enumerate() {
        out.say(format!("{:10}{}", if n == 0 { "limits" } else { "" }, text(limit)));
    }
    if m["effect"] == "mutating" {
        out.say("");
        settings(out, m);
    }
    out.say("");
    out.say(out.dim("ARGUMENTS"));
    arguments(out, &m["inputSchema"]);
    out.say("");
    out.say(format!("counterfoil exec {}{}", text(&m["id"]), example(&m["inputSchema"])));
}

fn approval(said: &str) -> String {
    match said {
        "never" => "never: nobody is asked".into(),
        "always" => "always: a person has to say yes before anything of a call is done".into(),
        limits => format!("a person has to say yes to a call with {limits}, or without that argument"),
    }
}

fn within(v: &Value) -> String {
    if v.is_null() { "for ever".into() } else { format!("for {}", time(v)) }
}

fn settings(out: &Out, m: &Value) {
    let (s, set, from) = (&m["safety"], &m["settings"], &m["origins"]);
    // The provider's layers know where recovery comes from; for what the file overrides, the file's line is told.
    let layered = |key: &str, origin: &str| match (s[key]["from"].as_str(), from[origin].as_str()) {
        (Some("tools"), Some(place)) if place != "default" => place.to_owned(),
        (Some(word), _) => word.to_owned(),
        (None, place) => place.unwrap_or("default").to_owned(),
    };
    let said = |key: &str| from[key].as_str().unwrap_or("default").to_owned();
    let list = set["keyFrom"]
        .as_array()
        .map(|l| l.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
        .unwrap_or_default();
    let rows = [
        ("recovery", text(&s["recovery"]["value"]).to_owned(), layered("recovery", "recovery")),
        ("replays for", time(&s["replayForMs"]["value"]), layered("replayForMs", "")),
        ("send_timeout", time(&s["sendTimeoutMs"]["value"]), layered("sendTimeoutMs", "sendTimeout")),
        ("max_sends", s["maxSends"]["value"].to_string(), layered("maxSends", "")),
        ("initial_backoff", time(&s["initialBackoffMs"]["value"]), layered("initialBackoffMs", "")),
        ("max_backoff", time(&s["maxBackoffMs"]["value"]), layered("maxBackoffMs", "")),
        ("unkeyed", text(&set["unkeyed"]).to_owned(), said("unkeyed")),
        ("guard_window", time(&set["guardWindowMs"]), said("guardWindow")),
        ("key_from", if list.is_empty() { "-".into() } else { list }, said("keyFrom")),
        ("inject_key", set["injectKey"].to_string(), said("injectKey")),
        ("timeout", time(&set["timeoutMs"]), said("timeout")),
        ("approval", text(&m["approval"]).to_owned(), said("approval")),
        ("mode", text(&m["mode"]).to_owned(), said("mode")),
        ("leg", time(&set["legMs"]), said("leg")),
        ("inline_limit", time(&set["inlineLimitMs"]), said("inlineLimit")),
        ("retention", time(&set["retentionMs"]), said("retention")),
    ];
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(name, value, from)| vec![name.to_owned(), value, from]).collect();
    out.table(&["SETTING", "VALUE", "FROM"], &rows);
}

fn required(schema: &Value) -> Vec<&str> {
    schema["required"].as_array().map(|r| r.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

fn arguments(out: &Out, schema: &Value) {
    let Some(properties) = schema["properties"].as_object() else {
        out.say(pretty(schema));
        return;
    };
    let required = required(schema);
    for (name, p) in properties {
        let kind = p["type"].as_str().map_or_else(|| json!(p["type"]).to_string(), str::to_owned);
        let must = if required.contains(&name.as_str()) { ", required" } else { "" };
        out.say(
            format!("  {name} ({kind}{must})  {}", p["description"].as_str().unwrap_or_default()).trim_end(),
        );
    }
}

fn example(schema: &Value) -> String {
    let one = |name: &str| match schema["properties"][name]["type"].as_str() {
        Some("integer" | "number") => format!(" --param {name}=1"),
        Some("boolean") => format!(" --param {name}=true"),
        Some("array" | "object") => format!(" --param {name}:=…"),
        _ => format!(" --param {name}=…"),
    };
    required(schema).into_iter().map(one).collect()
}
