//! The official clients, each in a worker process of its own language that speaks JSON lines.

use crate::process::{Process, build_dir, project};
use crate::wire::{self, Said};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Which official client, and how it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `@modelcontextprotocol/client`, `versionNegotiation: auto`.
    TypeScript,
    /// The same, pinned to the modern revision: it never asks.
    TypeScriptPinned,
    /// The same as it is by default: the legacy era.
    TypeScriptLegacy,
    /// `@modelcontextprotocol/sdk` 1.x.
    TypeScript1,
    /// `mcp` 2.x, which asks.
    Python,
    /// The same, pinned to the modern revision.
    PythonPinned,
    /// `mcp` 1.x.
    Python1,
    /// `rmcp`, which is told to ask.
    Rust,
    /// The same as it is by default: the legacy era.
    RustLegacy,
}

impl Kind {
    /// All.
    pub const ALL: [Kind; 9] = [
        Kind::TypeScript,
        Kind::TypeScriptPinned,
        Kind::TypeScriptLegacy,
        Kind::TypeScript1,
        Kind::Python,
        Kind::PythonPinned,
        Kind::Python1,
        Kind::Rust,
        Kind::RustLegacy,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::TypeScript => "typescript",
            Kind::TypeScriptPinned => "typescript_pinned",
            Kind::TypeScriptLegacy => "typescript_legacy",
            Kind::TypeScript1 => "typescript_1",
            Kind::Python => "python",
            Kind::PythonPinned => "python_pinned",
            Kind::Python1 => "python_1",
            Kind::Rust => "rust",
            Kind::RustLegacy => "rust_legacy",
        }
    }

    /// The revision that it must come to speak with a server of both eras.
    #[must_use]
    pub fn revision(self) -> &'static str {
        if self.is_legacy() { wire::LEGACY } else { wire::VERSION }
    }

    /// Whether it opens with `initialize`.
    #[must_use]
    pub fn is_legacy(self) -> bool {
        matches!(self, Kind::TypeScriptLegacy | Kind::TypeScript1 | Kind::Python1 | Kind::RustLegacy)
    }

    /// Whether it hears of changes in the legacy era only where the server minted a session: these clients open no
    /// GET stream without one.
    #[must_use]
    pub fn hears_by_session(self) -> bool {
        matches!(self, Kind::Python1 | Kind::RustLegacy)
    }

    fn command(self, build: &Path) -> Command {
        // A module is found from where the script is, so the script is beside what was installed.
        let node = |folder: &str, args: &[&str]| {
            let mut c = Command::new(crate::process::node(build));
            c.arg(build.join("clients").join(folder).join("worker.mjs")).args(args);
            c
        };
        let python = |folder: &str, args: &[&str]| {
            let mut c = Command::new(build.join("clients").join(folder).join("venv/bin/python"));
            c.arg("-B").arg(project().join("tests/clients").join(folder).join("worker.py")).args(args);
            c
        };
        let rust = |mode: &str| {
            let mut c = Command::new(build.join("bin/debug/rmcp_worker"));
            c.arg(mode);
            c
        };
        match self {
            Kind::TypeScript => node("ts", &["auto"]),
            Kind::TypeScriptPinned => node("ts", &["pin"]),
            Kind::TypeScriptLegacy => node("ts", &["legacy"]),
            Kind::TypeScript1 => node("ts1", &[]),
            Kind::Python => python("py", &["auto"]),
            Kind::PythonPinned => python("py", &["pin"]),
            Kind::Python1 => python("py1", &[]),
            Kind::Rust => rust("auto"),
            Kind::RustLegacy => rust("legacy"),
        }
    }
}

/// How long beyond a call's own limit its worker may take to say so.
const SLACK: Duration = Duration::from_secs(10);

/// A worker process.
pub struct Worker {
    kind: Kind,
    process: Process,
    number: u64,
}

/// A request to a worker that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    number: u64,
    until: Instant,
}

/// What a server asks of a client's user, model or host.
#[derive(Clone, Debug)]
pub struct Question {
    /// The method, such as `elicitation/create`.
    pub method: String,
    /// Its parameters, as the client understood them.
    pub params: Value,
}

impl Question {
    /// The sentence that a user is shown.
    #[must_use]
    pub fn message(&self) -> &str {
        self.params["message"].as_str().unwrap_or_default()
    }

    /// A user who agrees, and fills this in.
    #[must_use]
    pub fn accept(content: Value) -> Value {
        json!({ "action": "accept", "content": content })
    }

    /// A user who does not.
    #[must_use]
    pub fn decline() -> Value {
        json!({ "action": "decline" })
    }
}

/// What an official client is to do.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// Which client object: kept from one order to the next.
    pub client: &'a str,
    /// The endpoint.
    pub url: &'a str,
    /// `Authorization`.
    pub auth: Option<&'a str>,
    /// The client's own limit for the request.
    pub timeout: Duration,
    /// The caller gives up after this.
    pub abort_after: Option<Duration>,
}

impl Worker {
    /// Starts one; it writes what it has to say on standard error into `folder`.
    ///
    /// # Errors
    /// The clients are not installed, or don't start.
    pub fn start(kind: Kind, folder: &Path) -> Result<Worker> {
        let build = build_dir()?;
        let mut command = kind.command(&build);
        let log = folder.join(format!("{}.log", kind.name()));
        let mut process = Process::start(&mut command, &log)?;
        process.ready().with_context(|| {
            format!("the {} client does not start; run `cargo xtask test`, which installs it", kind.name())
        })?;
        Ok(Worker { kind, process, number: 0 })
    }

    /// Begins a call of a tool.
    ///
    /// # Errors
    /// The worker is gone.
    pub fn begin_call(
        &mut self,
        order: &Order<'_>,
        tool: &str,
        arguments: &Value,
        meta: &Value,
    ) -> Result<Pending> {
        self.begin(order, call_of(tool, arguments, meta))
    }

    /// The answer of a call.
    ///
    /// # Errors
    /// The worker is gone or silent.
    pub fn end_call(&mut self, pending: Pending) -> Result<Said> {
        Ok(read(&self.end(pending)?))
    }

    /// The answer of a call, if it is there.
    ///
    /// # Errors
    /// The worker is gone.
    pub fn poll_call(&mut self, pending: Pending) -> Result<Option<Said>> {
        while let Some(answer) = self.process.try_json_line()? {
            if answer["n"] == json!(pending.number) {
                return Ok(Some(read(&answer)));
            }
        }
        Ok(None)
    }

    /// Makes a call.
    ///
    /// # Errors
    /// The worker is gone or silent.
    pub fn call(&mut self, order: &Order<'_>, tool: &str, arguments: &Value, meta: &Value) -> Result<Said> {
        let pending = self.begin_call(order, tool, arguments, meta)?;
        self.end_call(pending)
    }

    /// Makes a call with a client whose user can be asked: `answer` says what it says to each question, as the result of
    /// the question's method. The order's limit is for each request of the client, `within` for all of them together.
    ///
    /// # Errors
    /// The worker is gone or silent, or there is no answer.
    pub fn call_answering(
        &mut self,
        order: &Order<'_>,
        tool: &str,
        arguments: &Value,
        meta: &Value,
        within: Duration,
        mut answer: impl FnMut(&Question) -> Result<Value>,
    ) -> Result<Said> {
        let mut call = call_of(tool, arguments, meta);
        call["asked"] = json!(true);
        let pending = self.begin(order, call)?;
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line =
                self.process.json_line(left).with_context(|| format!("the {} worker", self.kind.name()))?;
            if let Some(number) = line["ask"].as_u64() {
                let method = line["method"].as_str().unwrap_or_default().to_owned();
                let question = Question { method, params: line["params"].clone() };
                let result = answer(&question)?;
                self.process.tell(&json!({ "answer": number, "result": result }).to_string())?;
            } else if line["n"] == json!(pending.number) {
                return Ok(read(&line));
            }
        }
    }

    /// Lists the tools: `{"tools", "protocolVersion"}`.
    ///
    /// # Errors
    /// The worker is gone, or the client could not list.
    pub fn list(&mut self, order: &Order<'_>) -> Result<Value> {
        self.ask(order, "list")
    }

    /// Lists and reads the resources: `{"served", "resources", "contents"}`.
    ///
    /// # Errors
    /// The worker is gone, or the client could not.
    pub fn resources(&mut self, order: &Order<'_>) -> Result<Value> {
        self.ask(order, "resources")
    }

    /// Lists the prompts: `{"served", "prompts"}`.
    ///
    /// # Errors
    /// The worker is gone, or the client could not.
    pub fn prompts(&mut self, order: &Order<'_>) -> Result<Value> {
        self.ask(order, "prompts")
    }

    /// Asks for changes of the list of tools, and returns by what the client hears of them.
    ///
    /// # Errors
    /// The worker is gone, or the client was refused.
    pub fn subscribe(&mut self, order: &Order<'_>) -> Result<String> {
        let answer = self.ask(order, "subscribe")?;
        Ok(answer["how"].as_str().unwrap_or_default().to_owned())
    }

    /// The methods of the notifications that came.
    ///
    /// # Errors
    /// The worker is gone.
    pub fn seen(&mut self, order: &Order<'_>) -> Result<Vec<String>> {
        let answer = self.ask(order, "seen")?;
        Ok(serde_json::from_value(answer["seen"].clone())?)
    }

    fn ask(&mut self, order: &Order<'_>, op: &str) -> Result<Value> {
        let pending = self.begin(order, json!({ "op": op }))?;
        let answer = self.end(pending)?;
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => bail!("the {} client can't {op}: {}", self.kind.name(), answer["error"]),
        }
    }

    /// Whether its process is over.
    pub fn has_ended(&mut self) -> bool {
        self.process.ended().is_some()
    }

    /// Drops a client object, as a host that starts anew: its JSON-RPC ids begin again.
    ///
    /// # Errors
    /// The worker is gone.
    pub fn forget(&mut self, client: &str) -> Result<()> {
        let order = Order { client, url: "", auth: None, timeout: Duration::from_secs(5), abort_after: None };
        let pending = self.begin(&order, json!({ "op": "forget" }))?;
        self.end(pending).map(|_| ())
    }

    fn begin(&mut self, order: &Order<'_>, mut request: Value) -> Result<Pending> {
        self.number += 1;
        request["n"] = json!(self.number);
        request["client"] = json!(order.client);
        request["url"] = json!(order.url);
        request["auth"] = json!(order.auth);
        request["timeoutMs"] = json!(millis(order.timeout));
        request["abortAfterMs"] = json!(order.abort_after.map(millis));
        self.process.tell(&request.to_string())?;
        Ok(Pending { number: self.number, until: Instant::now() + order.timeout + SLACK })
    }

    fn end(&mut self, pending: Pending) -> Result<Value> {
        loop {
            let left = pending.until.saturating_duration_since(Instant::now());
            let answer =
                self.process.json_line(left).with_context(|| format!("the {} worker", self.kind.name()))?;
            // An earlier request that was given up may still be answered.
            if answer["n"] == json!(pending.number) {
                return Ok(answer);
            }
        }
    }
}

fn call_of(tool: &str, arguments: &Value, meta: &Value) -> Value {
    let meta = if meta == &json!({}) { &Value::Null } else { meta };
    json!({ "op": "call", "tool": tool, "arguments": arguments, "meta": meta })
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

fn read(answer: &Value) -> Said {
    match answer.get("result") {
        Some(result) => Said::of_result(&result.to_string()),
        None => said(&answer["error"]),
    }
}

/// What the client's exception means: the server's refusal, or no answer.
fn said(error: &Value) -> Said {
    let message = error["message"].as_str().unwrap_or_default().to_owned();
    match error["code"].as_i64() {
        // -32000, -32001: the clients' own words for a lost or slow connection.
        Some(code) if !(-32001..=-32000).contains(&code) && code < 0 => {
            Said::Rpc { status: 0, code, message }
        }
        _ => Said::Lost(format!("{}: {message}", error["name"].as_str().unwrap_or("error"))),
    }
}
