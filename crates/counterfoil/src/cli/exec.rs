//! `exec`: one operation from the shell, through the same ledger as every call.

use super::arguments;
use super::fail::{Done, Fail, IN_DOUBT, REFUSED, code_of_kind};
use super::out::{Out, pretty, pretty_text, soon};
use super::place::Place;
use crate::Error;
use crate::run::Use;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

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
    let answered = session.operator.ask_text(::http::Method::POST, "/v1/exec", Some(text.into())).await;
    let closed = session.close().await;
    let known = args.key.is_some() || args.dry_run;
    let lost = |e| unanswered(e, args.key.is_some(), args.dry_run);
    let (status, bytes) = answered.map_err(lost)?;
    if let Err(fail) = closed {
        // What came of it is known all the same, and must not be lost.
        tracing::warn!(why = %fail.message, "the ledger was not let go in order");
    }
    let text = String::from_utf8_lossy(&bytes);
    if !status.is_success() {
        // Refusals of a body that doesn't fit the route are plain text.
        let plain = |_| json!({ "error": { "code": "usage", "message": text } });
        let mut fail = Fail::operator(status, &serde_json::from_str(&text).unwrap_or_else(plain));
        if fail.message.contains(NO_TEXT) && !args.params.is_empty() {
            fail.message.push_str(" (text that reads as JSON goes in quotes: --param 'id=\"5\"')");
        }
        return Err(fail);
    }
    let Some((answer, result)) = parts(&text) else {
        return Err(lost(Error::Unanswered("its answer is not JSON".into())));
    };
    out.written(&text);
    Ok(said(out, &answer, result.as_deref(), known))
}

/// Why there is no answer. Without a key, the same again is another operation.
fn unanswered(e: Error, keyed: bool, dry_run: bool) -> Fail {
    match e {
        Error::Unanswered(_) if dry_run => {
            Fail::unavailable(format!("{e}. Nothing is sent by a dry run: the same again is safe"))
        }
        Error::Unanswered(_) if keyed => {
            Fail::unavailable(format!("{e}. With the same --key, the same again is safe"))
        }
        Error::Unanswered(_) => Fail::new(
            IN_DOUBT,
            "unknown",
            format!(
                "{e}. It may have been carried out; without --key the same again would be a second one: look with `counterfoil ops list` first"
            ),
        ),
        e => e.into(),
    }
}

/// The members of an object, each as it is written.
fn members(text: &str) -> Option<HashMap<String, Box<RawValue>>> {
    serde_json::from_str(text).ok()
}

/// An answer, and the result in it as it is written: it may hold what can't be read without loss.
fn parts(text: &str) -> Option<(Value, Option<Box<RawValue>>)> {
    let mut members = members(text)?;
    let result = members.remove("result");
    let mut answer = Map::new();
    for (name, raw) in members {
        answer.insert(name, serde_json::from_str(raw.get()).ok()?);
    }
    Some((Value::Object(answer), result))
}

/// A tool result for people.
fn shown(result: &RawValue) -> String {
    if let Some(content) = members(result.get()).and_then(|mut m| m.remove("structuredContent")) {
        return pretty_text(content.get());
    }
    let plain = serde_json::from_str(result.get());
    plain.map_or_else(|_| pretty_text(result.get()), |result| text_of(&result))
}

/// Tells people what came of it, and gives the exit code. `known`: the very same command again is the same operation.
fn said(out: &Out, answer: &Value, result: Option<&RawValue>, known: bool) -> u8 {
    match answer["outcome"].as_str() {
        Some("dry_run") if answer["refused"].is_object() => {
            out.say(format!("{} nothing was sent, and nothing would be:", out.bold("dry run:")));
            error(out, &answer["refused"], known)
        }
        Some("dry_run") => {
            out.say(format!("{} nothing was sent. This would be:", out.bold("dry run:")));
            out.say(would_send(&answer["wouldSend"]));
            out.say("");
            let promise = answer["safety"]["promise"].as_str().unwrap_or("it changes nothing");
            out.say(format!("promise: {promise}"));
            for need in answer["needs"].as_array().into_iter().flatten() {
                out.say(needed(need));
            }
            if answer["approvalNeeded"] == true {
                out.say("approval: a person has to say yes first (`counterfoil ops approve`)");
            }
            0
        }
        Some("result") => {
            let failed = answer["isError"] == true;
            out.say(result.map(shown).unwrap_or_default());
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
        _ => error(out, &answer["error"], known),
    }
}

/// What the check of arguments says where a text is wanted.
const NO_TEXT: &str = "is not of type \"string\"";

/// Tells an error of the ledger, and gives its exit code.
fn error(out: &Out, error: &Value, known: bool) -> u8 {
    let kind = error["kind"].as_str().unwrap_or("error");
    out.say(format!("{} {}", out.bad(kind), error["message"].as_str().unwrap_or_default()));
    out.say(error["advice"].as_str().unwrap_or_default());
    if let Some(ms) = error["retryAfterMs"].as_u64() {
        out.say(out.dim(&format!("again: {} (retryAfterMs {ms})", soon(ms))));
    }
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
    code_of_kind(kind, known)
}

/// What a call would claim of a limit.
fn needed(need: &Value) -> String {
    format!("needs: {} of {}", need["amount"], need["limit"].as_str().unwrap_or("a limit"))
}

/// The request with its credential masked, or why there is none to show.
fn would_send(shown: &Value) -> String {
    if shown.is_null() {
        return "(what it sends shows while it runs: it is a tool of its own)".into();
    }
    let mut proof = vec![&shown["credential"]];
    proof.extend(shown["also"].as_array().into_iter().flatten());
    super::request::text_with(&shown["request"], "{key}", &proof)
}

/// The text parts of a tool result.
pub(super) fn text_of(result: &Value) -> String {
    let parts = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text: Vec<&str> = parts.iter().filter_map(|p| p["text"].as_str()).collect();
    if text.is_empty() { pretty(result) } else { text.join("\n") }
}
