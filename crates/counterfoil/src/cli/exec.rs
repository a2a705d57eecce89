//! `exec`: one operation from the shell, through the same ledger as every call.

use super::arguments;
use super::fail::{Done, Fail, REFUSED, code_of_kind};
use super::out::{Out, pretty};
use super::place::Place;
use crate::run::Use;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// The method's canonical id, or its tool name
    id: String,
    /// The arguments as a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    body: Option<String>,
    /// One argument; JSON where it is JSON, else text. Repeatable
    #[arg(long = "param", value_name = "NAME=VALUE")]
    params: Vec<String>,
    /// The idempotency key: the same key is the same operation. Without one each run is a new operation
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// As whom: the scope in which the key lives
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// Show what would be sent; nothing is
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(args: Args, out: &Out) -> Done {
    let body = args.body.as_deref().map(arguments::body).transpose()?;
    let arguments = arguments::merge(body.as_deref(), &args.params)?;
    let raw = serde_json::value::RawValue::from_string(arguments).map_err(|e| Fail::usage(e.to_string()))?;
    let mut request = serde_json::Map::new();
    request.insert("id".into(), json!(args.id));
    if let Some(key) = &args.key {
        request.insert("key".into(), json!(key));
    }
    if let Some(principal) = &args.principal {
        request.insert("principal".into(), json!(principal));
    }
    request.insert("dryRun".into(), json!(args.dry_run));
    // The arguments go in as they were written: a number keeps its exact digits.
    let mut text = Value::Object(request).to_string();
    text.pop();
    let text = format!("{text},\"arguments\":{}}}", raw.get());

    let session = args.place.open(if args.dry_run { Use::Catalog } else { Use::Work }).await?;
    let answered = session.operator.ask(::http::Method::POST, "/v1/exec", Some(text.into())).await;
    session.close().await?;
    let (status, answer) = answered?;
    if !status.is_success() {
        return Err(Fail::operator(status, &answer));
    }
    out.document(&answer);
    Ok(said(out, &answer))
}

/// Tells people what came of it, and gives the exit code.
fn said(out: &Out, answer: &Value) -> u8 {
    match answer["outcome"].as_str() {
        Some("dry_run") if answer["refused"].is_object() => {
            out.say(format!("{} nothing was sent, and nothing would be:", out.bold("dry run:")));
            error(out, &answer["refused"])
        }
        Some("dry_run") => {
            out.say(format!("{} nothing was sent. This would be:", out.bold("dry run:")));
            out.say(would_send(&answer["wouldSend"]));
            out.say("");
            let promise = answer["safety"]["promise"].as_str().unwrap_or("it changes nothing");
            out.say(format!("promise: {promise}"));
            if answer["approvalNeeded"] == true {
                out.say("approval: a person has to say yes first (`counterfoil ops approve`)");
            }
            0
        }
        Some("result") => {
            let failed = answer["isError"] == true;
            let result = &answer["result"];
            out.say(match result.get("structuredContent") {
                Some(content) => pretty(content),
                None => text_of(result),
            });
            if let Some(id) = answer["operation"]["id"].as_str() {
                let replayed = if answer["operation"]["replayed"] == true {
                    ", answered from the ledger: nothing was sent this time"
                } else {
                    ""
                };
                out.say(
                    out.dim(&format!("operation {id}, attempt {}{replayed}", answer["operation"]["attempt"])),
                );
            }
            if failed { REFUSED } else { 0 }
        }
        _ => error(out, &answer["error"]),
    }
}

/// Tells an error of the ledger, and gives its exit code.
fn error(out: &Out, error: &Value) -> u8 {
    let kind = error["kind"].as_str().unwrap_or("error");
    out.say(format!("{} {}", out.bad(kind), error["message"].as_str().unwrap_or_default()));
    out.say(error["advice"].as_str().unwrap_or_default());
    for (name, what) in [
        ("operationId", "operation"),
        ("retryKey", "retry with --key"),
        ("newKey", "a second one with --key"),
    ] {
        if let Some(value) = error[name].as_str() {
            out.say(out.dim(&format!("{what}: {value}")));
        }
    }
    if let ("approval_required", Some(id)) = (kind, error["operationId"].as_str()) {
        out.say("");
        out.say(format!("counterfoil ops show {id}               what will be sent"));
        out.say(format!("counterfoil ops approve {id} --by NAME  send it; --key {id} then gets the result"));
        out.say(format!("counterfoil ops deny {id} --by NAME     nothing of it is done"));
    }
    code_of_kind(kind)
}

/// The request with its credential masked, or why there is none to show.
fn would_send(shown: &Value) -> String {
    if shown.is_null() {
        return "(what it sends shows while it runs: it is a tool of its own)".into();
    }
    let credential = &shown["credential"];
    let header = credential["header"].as_str().zip(credential["value"].as_str());
    super::request::text_with(&shown["request"], "{key}", header)
}

/// The text parts of a tool result.
pub(super) fn text_of(result: &Value) -> String {
    let parts = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text: Vec<&str> = parts.iter().filter_map(|p| p["text"].as_str()).collect();
    if text.is_empty() { pretty(result) } else { text.join("\n") }
}
