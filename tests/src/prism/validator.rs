//! Prism, as the server of a description.

use super::prune::{FORM, resolved};
use super::recorder::{Exchange, Request};
use crate::http::Reply;
use crate::process::{Process, build_dir, free_address, node};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long it may take to read a description.
const READY_WITHIN: Duration = Duration::from_secs(60);

pub(super) struct Validator {
    process: Process,
    pub(super) addr: SocketAddr,
}

impl Validator {
    /// Starts it; until it answers, [`Validator::ready`].
    pub(super) fn start(description: &Path, log: &Path) -> Result<Validator> {
        let build = build_dir()?;
        let program = build.join("prism/node_modules/@stoplight/prism-cli/dist/index.js");
        ensure!(
            program.is_file(),
            "Prism is not in {}; run `cargo xtask test --only judged`, which installs it",
            build.display()
        );
        let addr = free_address()?;
        let mut command = Command::new(node(&build));
        command.arg(program).args(["mock", "--host", "127.0.0.1", "--verboseLevel", "error", "--port"]);
        command.arg(addr.port().to_string()).arg(description);
        // It tells nobody that it was started.
        command.env("SCARF_ANALYTICS", "false").env("DO_NOT_TRACK", "1");
        Ok(Validator { process: Process::start(&mut command, log)?, addr })
    }

    pub(super) fn ready(&mut self) -> Result<()> {
        let until = Instant::now() + READY_WITHIN;
        let probe = Request { verb: "GET".into(), target: "/is/anybody/there".into(), ..Request::default() };
        while probe.send(self.addr).is_err() {
            if let Some(status) = self.process.ended() {
                bail!("Prism ended ({status})\n{}", self.process.said());
            }
            ensure!(
                Instant::now() < until,
                "Prism does not answer within {READY_WITHIN:?}\n{}",
                self.process.said()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// What the validator says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It takes it.
    Taken,
    /// It answers with an error, but for something that was not sent and need not be.
    Imagined,
    /// It refuses it, for this.
    Refused(String),
}

/// What the validator says of a request of an operation.
pub(super) fn verdict(root: &Value, http: &str, exchange: &Exchange) -> Result<Verdict> {
    let of = &exchange.reply;
    let told = violations(of)?;
    let (verb, path) = http.split_once(' ').unwrap_or_default();
    let operation = &root["paths"][path][verb.to_lowercase()];
    let form = &resolved(root, &operation["requestBody"])["content"][FORM];
    let imagined = |v: &Value| is_imagined(root, &form["schema"], &exchange.request, v);
    let (unfounded, founded): (Vec<&Value>, Vec<&Value>) = told.iter().partition(|v| imagined(v));
    match (founded.is_empty(), of.status < 400, unfounded.is_empty()) {
        (true, true, true) => return Ok(Verdict::Taken),
        (true, _, false) => return Ok(Verdict::Imagined),
        _ => {}
    }
    let mut said: Vec<String> = founded.into_iter().map(shown).collect();
    said.dedup();
    if said.is_empty() {
        said.push(of.text().chars().take(600).collect());
    }
    Ok(Verdict::Refused(format!("{} {}", of.status, said.join("; "))))
}

/// The violations of requests; those of answers are the validator's own.
fn violations(reply: &Reply) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    if let Some(header) = reply.header("sl-violations") {
        let told: Value = serde_json::from_str(header).context("sl-violations")?;
        all.extend(told.as_array().context("sl-violations is no list")?.clone());
    }
    if reply.header("content-type").is_some_and(|t| t.starts_with("application/problem+json")) {
        all.extend(reply.json()["validation"].as_array().cloned().unwrap_or_default());
    }
    all.retain(|v| v["location"][0] != "response");
    Ok(all)
}

fn place(violation: &Value) -> Vec<&str> {
    let all = violation["location"].as_array().into_iter().flatten().filter_map(Value::as_str);
    all.filter(|part| *part != "request").collect()
}

fn shown(violation: &Value) -> String {
    format!("{}: {}", place(violation).join("."), violation["message"].as_str().unwrap_or_default())
}

/// Whether it is about a member of a form that was not sent and need not be there: the validator puts an empty object
/// where the brackets of one are missing, and then misses what such an object must have.
fn is_imagined(root: &Value, schema: &Value, request: &Request, violation: &Value) -> bool {
    let place = place(violation);
    let [first, members @ ..] = place.as_slice() else { return false };
    if *first != "body" || !request.header("content-type").is_some_and(|t| t.starts_with(FORM)) {
        return false;
    }
    let body = String::from_utf8_lossy(&request.body);
    let names: Vec<String> =
        body.split('&').filter_map(|pair| pair.split('=').next()).map(str::to_owned).collect();
    let (mut name, mut schema) = (String::new(), resolved(root, schema));
    for member in members {
        name = if name.is_empty() { (*member).to_owned() } else { format!("{name}%5B{member}%5D") };
        let inside = format!("{name}%5B");
        if !names.iter().any(|n| *n == name || n.starts_with(&inside)) {
            let required = schema["required"].as_array().into_iter().flatten();
            return !required.filter_map(Value::as_str).any(|r| r == *member);
        }
        schema = resolved(root, &schema["properties"][*member]);
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_not_sent_and_need_not_be_is_no_objection() {
        let schema = json!({ "required": ["must"], "properties": {
            "must": { "required": ["x"] },
            "may": { "required": ["y"], "properties": { "in": { "required": ["z"] } } },
        } });
        let root = json!({ "paths": { "/a": { "post": { "requestBody": { "content": { FORM: { "schema": schema } } } } } } });
        let judged = |body: &str, location: Value| {
            let request = Request {
                headers: vec![("content-type".into(), FORM.into())],
                body: body.into(),
                ..Request::default()
            };
            let problem = json!({ "validation": [{ "location": location, "message": "m" }] });
            let headers = vec![("content-type".to_owned(), "application/problem+json".to_owned())];
            let reply = Reply { status: 422, headers, body: problem.to_string().into_bytes() };
            verdict(&root, "POST /a", &Exchange { request, reply }).unwrap()
        };
        assert_eq!(judged("must%5Bx%5D=1", json!(["request", "body", "may"])), Verdict::Imagined);
        assert_eq!(
            judged("must%5Bx%5D=1&may%5By%5D=2", json!(["request", "body", "may", "in"])),
            Verdict::Imagined
        );
        assert!(matches!(
            judged("must%5Bx%5D=1&may%5Bin%5D%5Bo%5D=2", json!(["request", "body", "may", "in"])),
            Verdict::Refused(_)
        ));
        assert!(matches!(
            judged("must%5Bx%5D=1&may%5By%5D=2", json!(["request", "body", "may"])),
            Verdict::Refused(_)
        ));
        assert!(
            matches!(judged("may%5By%5D=2", json!(["request", "body", "must"])), Verdict::Refused(_)),
            "it must be there"
        );
        assert!(matches!(judged("must=1", json!(["request", "body"])), Verdict::Refused(_)));
        assert!(matches!(judged("must=1", json!(["request", "query", "may"])), Verdict::Refused(_)));
        let plain = |status: u16| {
            let reply = Reply { status, ..Reply::default() };
            verdict(&root, "POST /a", &Exchange { request: Request::default(), reply }).unwrap()
        };
        assert_eq!(plain(200), Verdict::Taken);
        assert!(matches!(plain(404), Verdict::Refused(_)));
    }
}
