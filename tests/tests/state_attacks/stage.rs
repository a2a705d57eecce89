//! A server with keys for its callers, and what the attacks ask of it.

use anyhow::{Context, Result, ensure};
use counterfoil_tests::http::{Connection, Reply};
use counterfoil_tests::process::{Process, fixture};
use counterfoil_tests::stand::{Class, Project};
use counterfoil_tests::traps::{BOTH, Provider, TIMEOUT, old, send, set_server};
use counterfoil_tests::wire::{LEGACY, meta, post};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;

/// The master key of every server here: what tells them apart is something else.
const MASTER: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// What a client declares that can be asked and knows tasks.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The reasons that the metric tells.
pub const WHYS: [&str; 5] = ["malformed", "too_long", "unknown_key", "forged", "expired"];

/// The fixture with a provider behind it. Its callers have keys; refunds of the class `unique` wait for a yes.
pub struct Stage {
    pub provider: Provider,
    pub project: Project,
    pub addr: SocketAddr,
    process: Option<Process>,
}

/// A caller, by its key.
#[derive(Clone)]
pub struct Caller(String);

impl Stage {
    /// Starts it under a name, with more members of `[seal]`.
    pub fn open(name: &str, seal: &str) -> Result<Stage> {
        let provider = Provider::start()?;
        let more = format!(
            "\n[auth]\nmode = \"api-key\"\n\n[seal]\nmaster = \"${{env:COUNTERFOIL_MASTER}}\"\n{seal}\n\
             [tools.\"unique.refunds.create\"]\napproval = \"always\"\n"
        );
        let mut project = Project::with_classes_and(provider.sandbox.addr, &more)?;
        set_server(&project, "legacy_sessions = \"always\"\n")?;
        project.environment.push(("COUNTERFOIL_MASTER".into(), MASTER.into()));
        let addr = ([127, 0, 0, 1], 0).into();
        let mut stage = Stage { provider, project, addr, process: None };
        stage.named(name)?;
        Ok(stage)
    }

    /// Starts it again, under this name.
    pub fn named(&mut self, name: &str) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.terminate()?;
        }
        self.project.edit(|text| {
            let is_name = |line: &&str| line.starts_with("name = \"");
            let old = text.lines().find(is_name).unwrap_or_default().to_owned();
            text.replacen(&old, &format!("name = \"{name}\""), 1)
        })?;
        let mut command = Command::new(fixture()?);
        command
            .args(["--orders", "--listen", "127.0.0.1:0", "--config"])
            .arg(self.project.path().join("counterfoil.toml"))
            .arg("--data")
            .arg(self.project.data())
            .envs(self.project.environment.iter().map(|(name, value)| (name, value)));
        let mut process = Process::start(&mut command, &self.project.gateway_log())?;
        let ready = process.ready().context("the fixture")?;
        let url = ready["url"].as_str().context("its url")?;
        self.addr = url.trim_start_matches("http://").split('/').next().unwrap_or_default().parse()?;
        self.process = Some(process);
        Ok(())
    }

    /// Makes a key for a caller.
    pub fn caller(&self, principal: &str) -> Result<Caller> {
        let (code, made) = self.project.ask(&["api-keys", "create", "--principal", principal])?;
        let key = made["key"].as_str().filter(|_| code == 0).with_context(|| format!("no key: {made}"))?;
        Ok(Caller(format!("Bearer {key}")))
    }

    /// A counter; 0 if there is none. A name with labels is that one only.
    pub fn metric(&self, name: &str) -> Result<u64> {
        let reply = counterfoil_tests::http::json(self.addr, "GET", "/metrics", None)?;
        ensure!(reply.status == 200, "no metrics: {}", reply.status);
        let text = reply.text();
        let of = text.lines().filter(|l| l.strip_prefix(name).is_some_and(|r| r.starts_with([' ', '{'])));
        Ok(of.filter_map(|l| l.rsplit_once(' ')?.1.parse::<u64>().ok()).sum())
    }

    /// How many states were refused, by why.
    pub fn rejected(&self, why: &str) -> Result<u64> {
        self.metric(&format!("counterfoil_state_rejected_total{{why=\"{why}\"}}"))
    }

    /// How many states were refused, whatever the reason.
    pub fn rejected_at_all(&self) -> Result<u64> {
        WHYS.iter().map(|why| self.rejected(why)).sum()
    }

    /// Nothing was sent to the provider for this object.
    pub fn untouched(&self, class: Class, order: &str) -> Result<()> {
        let counted = self.provider.sandbox.count(class, order)?;
        ensure!(counted == (0, 0), "{order}: {counted:?}");
        Ok(())
    }
}

/// The params with what every request says.
fn complete(params: &Value) -> Value {
    let can = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let mut params = params.clone();
    let mut all = json!({ CAPABILITIES: can });
    for (name, value) in params["_meta"].as_object().into_iter().flatten() {
        all[name] = value.clone();
    }
    params["_meta"] = meta(&all);
    params
}

impl Caller {
    /// The bytes of a request of the modern era, with the id 1.
    pub fn bytes(&self, addr: SocketAddr, method: &str, params: &Value) -> Vec<u8> {
        let name = ["name", "uri", "taskId"].iter().find_map(|n| params[*n].as_str()).map(str::to_owned);
        // What a header can't hold is no name of anything.
        let name = name.filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_graphic()));
        post(addr, "1", method, name.as_deref(), &complete(params), BOTH, &[("Authorization", &self.0)])
    }

    /// Asks in the modern era.
    pub fn ask(&self, addr: SocketAddr, method: &str, params: &Value) -> Result<Reply> {
        send(addr, &self.bytes(addr, method, params))
    }

    /// The result that a request has.
    pub fn result(&self, addr: SocketAddr, method: &str, params: &Value) -> Result<Value> {
        let reply = self.ask(addr, method, params)?;
        let message: Value = serde_json::from_str(&reply.message()).unwrap_or_default();
        ensure!(message["result"].is_object(), "{method} {params}: {message}");
        Ok(message["result"].clone())
    }

    /// The result of a call.
    pub fn call(&self, addr: SocketAddr, tool: &str, arguments: &Value) -> Result<Value> {
        self.result(addr, "tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Opens a session of the legacy era, of a client that can be asked.
    pub fn legacy(&self, addr: SocketAddr) -> Result<Legacy> {
        let client = json!({ "name": "counterfoil-tests", "version": "1.0.0" });
        let params =
            json!({ "protocolVersion": LEGACY, "capabilities": { "elicitation": {} }, "clientInfo": client });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let reply = send(addr, &old(addr, &body.to_string(), &[("Authorization", &self.0)]))?;
        let id = reply.header("mcp-session-id").with_context(|| format!("no session: {}", reply.text()))?;
        Ok(Legacy { addr, session: id.to_owned(), caller: self.clone() })
    }
}

/// A session of the legacy era.
pub struct Legacy {
    addr: SocketAddr,
    session: String,
    caller: Caller,
}

impl Legacy {
    /// The bytes of a message in it.
    pub fn bytes(&self, body: &Value) -> Vec<u8> {
        let more = [("Authorization", self.caller.0.as_str()), ("Mcp-Session-Id", &self.session)];
        old(self.addr, &body.to_string(), &more)
    }

    /// The bytes of a call in it.
    pub fn call(&self, tool: &str, arguments: &Value) -> Vec<u8> {
        let params = json!({ "name": tool, "arguments": arguments });
        self.bytes(&json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }))
    }

    /// Answers what it was asked under this id.
    pub fn answer(&self, id: &str, result: &Value) -> Result<Reply> {
        send(self.addr, &self.bytes(&json!({ "jsonrpc": "2.0", "id": id, "result": result })))
    }
}

/// An answer as everybody sees it: all of it but the date.
pub fn shown(reply: &Reply) -> String {
    let headers: Vec<String> =
        reply.headers.iter().filter(|(n, _)| n != "date").map(|(n, v)| format!("{n}: {v}")).collect();
    format!("{} {}\n{}", reply.status, headers.join("\n"), reply.text())
}

/// An answer to an elicitation.
pub fn accept(content: Value) -> Value {
    json!({ "action": "accept", "content": content })
}

/// Sends all of these, some at a time, and reads what they are answered, in their order.
pub fn at_once(addr: SocketAddr, all: &[Vec<u8>]) -> Result<Vec<Reply>> {
    const LANES: usize = 24;
    let lane = |n: usize| -> Result<Vec<(usize, Reply)>> {
        let mut connection = Connection::open(addr, TIMEOUT)?;
        let own = all.iter().enumerate().skip(n).step_by(LANES);
        own.map(|(i, bytes)| Ok((i, connection.exchange(bytes)?))).collect()
    };
    let mut done = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let lanes: Vec<_> = (0..LANES.min(all.len())).map(|n| scope.spawn(move || lane(n))).collect();
        for lane in lanes {
            done.extend(lane.join().unwrap()?);
        }
        Ok(())
    })?;
    done.sort_by_key(|(i, _)| *i);
    Ok(done.into_iter().map(|(_, reply)| reply).collect())
}
