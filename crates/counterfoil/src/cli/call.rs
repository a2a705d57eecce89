//! `call`: a tool of an MCP server, called so that a lost answer can be asked for again.
//!
//! One key is made per invocation. A server that announces `dev.counterfoil/idempotency` gets it with every send, so
//! sending again after a lost answer is the same operation. With any other server a call is sent again only when
//! it provably never left, or when the tool is listed as read-only.

use super::arguments;
use super::caller::{Called, Caller, Problem};
use super::exec::text_of;
use super::fail::{Done, Fail, IN_DOUBT, REFUSED, UNAVAILABLE, USAGE, code_of_kind};
use super::out::{Out, pretty, soon};
use serde_json::json;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The endpoint, for example http://127.0.0.1:8600/mcp
    url: String,
    /// The tool's name
    tool: String,
    /// One argument; JSON where it is JSON, else text. Repeatable
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    arg: Vec<String>,
    /// The arguments as a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// The idempotency key [default: a new one; it is printed, to go on later]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// A further HTTP header. Repeatable
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// An API key, sent as a bearer token
    #[arg(long, value_name = "KEY", env = "COUNTERFOIL_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// How often to ask again at most
    #[arg(long, value_name = "N", default_value_t = 8)]
    retries: u32,
    /// How long one send may take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = super::sandbox::time)]
    timeout: Duration,
}

pub(super) async fn run(args: Args, out: &Out) -> Done {
    let body = args.args.as_deref().map(arguments::body).transpose()?;
    let arguments = arguments::merge(body.as_deref(), &args.arg)?;
    let mut headers = ::http::HeaderMap::new();
    for h in &args.headers {
        let (name, value) =
            h.split_once(':').ok_or_else(|| Fail::usage(format!("{h:?} is not NAME: VALUE")))?;
        let name: ::http::HeaderName =
            name.trim().parse().map_err(|_| Fail::usage(format!("{name:?} is not a header name")))?;
        let value: ::http::HeaderValue =
            value.trim().parse().map_err(|_| Fail::usage(format!("the value of {name} can't be sent")))?;
        headers.append(name, value);
    }
    // Without one given, the very same command again makes another one.
    let given = args.key.is_some();
    let key = match args.key {
        Some(key) => ledger::Key::new(&key).map_err(|e| Fail::usage(e.to_string()))?.as_str().to_owned(),
        None => super::caller::new_key().map_err(Fail::unavailable)?,
    };
    let caller =
        Caller::new(&args.url, args.api_key, headers, args.timeout, args.retries).map_err(Fail::usage)?;
    let say = |text: &str| {
        // On the way, for people; the answer itself is what stdout is for.
        if !out.is_json() {
            eprintln!("counterfoil: {text}");
        }
    };
    match caller.call(&args.tool, &arguments, &key, &say).await {
        Ok(called) => Ok(answered(out, &called, &key, given)),
        Err(problem) => Err(failed(problem, &key, given)),
    }
}

fn answered(out: &Out, called: &Called, key: &str, given: bool) -> u8 {
    let meta = &called.result["_meta"];
    let error = &meta["dev.counterfoil/error"];
    out.document(&json!({
        "result": called.result,
        "operation": meta.get("dev.counterfoil/operation"),
        "error": meta.get("dev.counterfoil/error"),
        "key": called.keyed.then_some(key),
        "sends": called.sends,
    }));
    out.say(match called.result.get("structuredContent") {
        Some(content) if error.is_null() => pretty(content),
        _ => text_of(&called.result),
    });
    if let Some(ms) = error["retryAfterMs"].as_u64() {
        out.say(out.dim(&format!("again: {}", soon(ms))));
    }
    if let Some(id) = meta["dev.counterfoil/operation"]["id"].as_str() {
        let replayed = meta["dev.counterfoil/operation"]["replayed"] == true;
        let how = if replayed { ", answered from the ledger" } else { "" };
        out.say(out.dim(&format!(
            "operation {id}{how}, key {key}, {} send{}",
            called.sends,
            if called.sends == 1 { "" } else { "s" }
        )));
    }
    match (called.result["isError"] == true, error["kind"].as_str()) {
        (false, _) => 0,
        (true, Some(kind)) => code_of_kind(kind, (given && called.keyed) || called.read_only),
        (true, None) => REFUSED,
    }
}

fn failed(problem: Problem, key: &str, given: bool) -> Fail {
    let (code, kind, message, keyed) = match problem {
        Problem::Unreached(why) => {
            (UNAVAILABLE, "not_sent", format!("the server can't be reached: {why}. Nothing ran"), false)
        }
        Problem::Unread(why) => {
            let message =
                format!("no clear answer came back: {why}. It only reads: the very same again is safe");
            (UNAVAILABLE, "unavailable", message, false)
        }
        Problem::Unknown { why, keyed: true } => (
            if given { UNAVAILABLE } else { IN_DOUBT },
            "unknown",
            format!(
                "no clear answer came back: {why}. It may have been carried out. Ask again with --key {key}, and only with that: it is the same operation"
            ),
            true,
        ),
        Problem::Unknown { why, keyed: false } => (
            IN_DOUBT,
            "unknown",
            format!(
                "no answer came back: {why}. The server takes no idempotency keys, so the call is not sent again: look whether it happened first"
            ),
            false,
        ),
        Problem::Refused { why, usage } => (if usage { USAGE } else { REFUSED }, "refused", why, false),
        Problem::NeedsInput => (
            REFUSED,
            "input_required",
            "the tool asks for input, which this command can't give".to_owned(),
            false,
        ),
    };
    Fail { code, kind: kind.into(), message, detail: keyed.then(|| Box::new(json!({ "key": key }))) }
}
