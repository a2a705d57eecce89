//! What `serve` says when it is ready: where it is, and lines to paste.

use super::out::Out;
use crate::run::Running;
use serde_json::{Value, json};

/// For programs.
pub(super) fn document(running: &Running) -> Value {
    json!({
        "endpoint": running.endpoint(),
        "sandbox": running.sandbox().map(|(at, _)| format!("http://{at}")),
        "data": running.data().display().to_string(),
        "ledger": ledger(running),
        "mode": running.config().mode.as_str(),
        "auth": running.config().auth.word(),
        "pid": std::process::id(),
    })
}

/// Where the ledger is: its directory, or its server without secrets.
fn ledger(running: &Running) -> String {
    match running.config().ledger.postgres() {
        Some(place) => place.url.shown(),
        None => running.data().display().to_string(),
    }
}

/// For people.
pub(super) fn say(out: &Out, running: &Running, program: &str) {
    let endpoint = running.endpoint();
    let config = running.config();
    let mode = if config.file.is_none() {
        "sandbox mode: no real money, no configuration needed"
    } else {
        config.mode.as_str()
    };
    out.say(format!("{} {} ({mode})", out.bold("Counterfoil"), env!("CARGO_PKG_VERSION")));
    out.say("");
    out.say(format!("  endpoint   {}", out.bold(&endpoint)));
    if let Some((at, own)) = running.sandbox() {
        out.say(format!(
            "  sandbox    http://{at}{}",
            if own { "" } else { "  (already running, used as it is)" }
        ));
    }
    out.say(format!("  ledger     {}", ledger(running)));
    if let Some(file) = &config.file {
        out.say(format!("  config     {}", file.display()));
    }
    out.say("");
    let keyed = config.auth == crate::config::Auth::ApiKey;
    out.say("Call it from a shell:");
    if running.sandbox().is_some() {
        let key = if keyed { " --header 'Authorization: Bearer cfk_…'" } else { "" };
        out.say(format!(
            "  {program} call {endpoint} payments_refunds_create --arg payment=pay_demo --arg amount=500{key}"
        ));
    } else {
        out.say(format!("  {program} methods"));
    }
    out.say("Look at it with an inspector:");
    out.say(format!(
        "  npx @modelcontextprotocol/inspector --transport http --server-url {endpoint} --protocol-era modern"
    ));
    out.say("Give it to a desktop host (its list of MCP servers):");
    let mut server = json!({ "type": "http", "url": endpoint });
    if keyed {
        server["headers"] = json!({ "Authorization": "Bearer cfk_…" });
    }
    out.say(format!("  {}", json!({ "mcpServers": { config.server.name.clone(): server } })));
    if let Some((at, _)) = running.sandbox() {
        out.say("Lose a reply on purpose, and count what really happened:");
        out.say(format!("  curl -s http://{at}/_sandbox/rules -d '{{\"on\":\"POST /v1/refunds\",\"do\":\"apply_then_cut\"}}'"));
        out.say(format!("  curl -s http://{at}/_sandbox/effects"));
    }
    if keyed {
        out.say(format!("Make a key for a caller: {program} api-keys create --principal NAME"));
    }
    out.say("");
    out.say(format!("Next: `{program} methods`, `{program} ops list`, `{program} doctor`, docs/start.md. Ctrl-C stops it; nothing is lost."));
}
