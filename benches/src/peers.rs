//! The servers that are measured: each a process of its own on a free port of the loopback.

use anyhow::{Context, Result};
use counterfoil_tests::process::{Process, build_dir, node};
use counterfoil_tests::stand::{Gateway, Project};
use counterfoil_tests::wire::{Call, meta, post};
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::load::{Ask, UNIQUE};

/// What every `echo` is asked to give back.
const TEXT: &str = "the quick brown fox jumps over the lazy dog";

/// A server that answers `echo`.
pub struct Server {
    /// Its process.
    pub process: Process,
    /// Its address.
    pub addr: SocketAddr,
}

impl Server {
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Server> {
        let shown = format!("{:?}", command.get_program());
        let mut process = Process::start(command, log)?;
        let ready = process.ready().with_context(|| shown.clone())?;
        let url = ready["url"].as_str().with_context(|| format!("{shown}: its url"))?;
        let addr = url.trim_start_matches("http://").split('/').next().unwrap_or_default().parse()?;
        Ok(Server { process, addr })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// A program beside this one.
pub(crate) fn beside(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().context("a program without a folder")?.join(name))
}

/// Ours: a reading tool made with the library.
///
/// # Errors
/// It does not start.
pub fn ours(folder: &Path) -> Result<Server> {
    let mut command = Command::new(beside("echo")?);
    Server::start(command.arg(folder.join("echo")), &folder.join("echo.log"))
}

/// A bare axum handler that answers these bytes.
///
/// # Errors
/// It does not start.
pub fn axum(folder: &Path, answer: &[u8]) -> Result<Server> {
    let file = folder.join("answer.json");
    std::fs::write(&file, answer)?;
    Server::start(Command::new(beside("echo_axum")?).arg(file), &folder.join("axum.log"))
}

/// The official Rust SDK.
///
/// # Errors
/// It does not start.
pub fn rmcp(folder: &Path) -> Result<Server> {
    Server::start(&mut Command::new(beside("echo_rmcp")?), &folder.join("rmcp.log"))
}

/// The official TypeScript SDK.
///
/// # Errors
/// It does not start.
pub fn typescript(folder: &Path) -> Result<Server> {
    let build = build_dir()?;
    let mut command = Command::new(node(&build));
    Server::start(command.arg(build.join("bench/ts/server.mjs")), &folder.join("ts.log"))
}

/// The official Python SDK.
///
/// # Errors
/// It does not start.
pub fn python(folder: &Path) -> Result<Server> {
    let build = build_dir()?.join("bench/py");
    let mut command = Command::new(build.join("venv/bin/python"));
    Server::start(command.arg(build.join("server.py")), &folder.join("py.log"))
}

/// A call of `echo`: the same bytes for everyone.
#[must_use]
pub fn echo(addr: SocketAddr) -> Ask {
    Ask::new(Call::new("echo", json!({ "text": TEXT })).bytes(addr), TEXT)
}

/// A refund of the sandbox, each with a key and a payment of its own.
#[must_use]
pub fn refund(addr: SocketAddr) -> Ask {
    let arguments = json!({ "payment": format!("pay_demo_{UNIQUE}"), "amount": 100 });
    Ask::new(Call::new("payments_refunds_create", arguments).keyed(UNIQUE).bytes(addr), "\"isError\":false")
}

/// A request for a stream of changes of the list of tools, by the owner of an API key.
#[must_use]
pub fn listen(addr: SocketAddr, key: &str) -> Vec<u8> {
    let params = json!({ "_meta": meta(&json!({})), "notifications": { "toolsListChanged": true } });
    let bearer = format!("Bearer {key}");
    let more = [("Authorization", bearer.as_str())];
    post(addr, "1", "subscriptions/listen", None, &params, "application/json, text/event-stream", &more)
}

/// The gateway as it is shipped, in sandbox mode, with the provider in a process of its own.
pub struct Ledgered {
    /// The gateway.
    pub gateway: Gateway,
    /// The provider.
    pub provider: Process,
    /// Their folder.
    pub project: Project,
    /// Where the provider is.
    pub sandbox: SocketAddr,
}

impl Ledgered {
    /// Starts both, with the gateway's ledger where it is by default.
    ///
    /// # Errors
    /// One does not start.
    pub fn start() -> Result<Ledgered> {
        let (project, provider, sandbox) = Ledgered::provider()?;
        Ledgered::with(project, provider, sandbox)
    }

    /// A folder and a provider, which does not wait for the disk: its durability is not what is measured.
    ///
    /// # Errors
    /// It does not start.
    pub fn provider() -> Result<(Project, Process, SocketAddr)> {
        let mut project = Project::empty()?;
        let data = project.path().join("sandbox").display().to_string();
        let args = ["sandbox", "--json", "--no-fsync", "--listen", "127.0.0.1:0", "--data", &data];
        let mut provider = Process::start(&mut project.command(&args)?, &project.path().join("sandbox.log"))?;
        let ready = provider.ready().context("the sandbox provider")?;
        let url = ready["sandbox"].as_str().context("the sandbox provider's address")?;
        let sandbox = url.trim_start_matches("http://").to_owned();
        project.serve = vec!["--sandbox-listen".into(), sandbox.clone()];
        Ok((project, provider, sandbox.parse()?))
    }

    /// Starts the gateway beside a provider.
    ///
    /// # Errors
    /// It does not start.
    pub fn with(mut project: Project, provider: Process, sandbox: SocketAddr) -> Result<Ledgered> {
        let gateway = project.gateway(None)?;
        Ok(Ledgered { gateway, provider, project, sandbox })
    }

    /// The sum of a metric over its labels; 0 if there is none.
    ///
    /// # Errors
    /// The gateway does not answer.
    pub fn metric(&self, name: &str) -> Result<f64> {
        metric(self.gateway.addr, name)
    }
}

/// The sum of a metric over its labels; 0 if there is none. A name with labels is that one only.
///
/// # Errors
/// The gateway does not answer.
pub fn metric(addr: SocketAddr, name: &str) -> Result<f64> {
    let reply = counterfoil_tests::http::json(addr, "GET", "/metrics", None)?;
    let text = reply.text();
    let of = text.lines().filter(|l| l.strip_prefix(name).is_some_and(|r| r.starts_with([' ', '{'])));
    Ok(of.filter_map(|l| l.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
}
