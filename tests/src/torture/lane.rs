//! One of several stands that play rounds side by side: a project folder, its provider, its gateway, its clients.

use super::plan::{Against, METHODS};
use crate::clients::{self, Order, Worker};
use crate::naive::Naive;
use crate::process::{Process, free_address, tail};
use crate::stand::{Class, Gateway, Project, Sandbox};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a client waits for one answer.
pub const CLIENT_LIMIT: Duration = Duration::from_secs(6);

/// What answers calls: the gateway, or the naive server.
enum Server {
    Gateway(Gateway),
    Naive(Naive),
}

/// A lane.
pub struct Lane {
    number: usize,
    against: Against,
    /// Its folder.
    pub project: Project,
    /// Its provider.
    pub sandbox: Sandbox,
    server: Option<Server>,
    armed: bool,
    workers: BTreeMap<clients::Kind, Worker>,
    /// Operations of earlier rounds.
    pub known: BTreeSet<String>,
}

/// What the configuration says of the tools that are called in another way.
fn policies() -> String {
    let of = |class: Class| {
        let name = class.name();
        format!(
            "\n[tools.\"{name}.refunds.reject\"]\nunkeyed = \"reject\"\n\n[tools.\"{name}.refunds.named\"]\nkey_from = [\"order_id\"]\n"
        )
    };
    Class::ALL.into_iter().chain([Class::Liar]).map(of).collect()
}

impl Lane {
    /// Starts a provider and makes a folder for it.
    ///
    /// # Errors
    /// They don't start.
    pub fn new(number: usize, against: Against, seed: u64) -> Result<Lane> {
        // The configuration names the provider's address, so that is found first.
        let addr = free_address()?;
        let project = Project::with_methods(addr, &METHODS, &policies())?;
        // One run in two has clients whose session must outlive the gateway's deaths.
        if seed % 2 == 1 {
            project.server("legacy_sessions", "\"always\"")?;
        }
        let sandbox = Sandbox::start(
            &project.path().join("sandbox"),
            &project.path().join("sandbox.log"),
            &addr.to_string(),
        )?;
        let mut lane = Lane {
            number,
            against,
            project,
            sandbox,
            server: None,
            armed: false,
            workers: BTreeMap::new(),
            known: BTreeSet::new(),
        };
        lane.serve(None)?;
        Ok(lane)
    }

    /// Whether it plays against the naive server.
    #[must_use]
    pub fn is_naive(&self) -> bool {
        self.against == Against::Naive
    }

    fn process(&mut self) -> Option<&mut Process> {
        match self.server.as_mut()? {
            Server::Gateway(g) => Some(&mut g.process),
            Server::Naive(n) => Some(&mut n.process),
        }
    }

    /// Where calls go.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        match &self.server {
            Some(Server::Gateway(g)) => g.addr,
            Some(Server::Naive(n)) => n.addr,
            None => SocketAddr::from(([127, 0, 0, 1], 1)),
        }
    }

    /// Kills the gateway if one runs, and starts one, armed or not.
    ///
    /// # Errors
    /// It does not start.
    pub fn serve(&mut self, failpoint: Option<&str>) -> Result<()> {
        let old = self.server.take();
        let was = match &old {
            Some(Server::Naive(n)) => Some(n.addr),
            _ => None,
        };
        drop(old);
        self.armed = failpoint.is_some();
        self.server = Some(if self.is_naive() {
            Server::Naive(Naive::start(self.sandbox.addr, was, failpoint, &self.project.gateway_log())?)
        } else {
            Server::Gateway(self.project.gateway(failpoint)?)
        });
        Ok(())
    }

    /// A gateway that runs and is armed with nothing.
    ///
    /// # Errors
    /// It does not start.
    pub fn plain(&mut self) -> Result<()> {
        if self.armed || self.is_dead() { self.serve(None) } else { Ok(()) }
    }

    /// Whether the gateway is gone.
    pub fn is_dead(&mut self) -> bool {
        self.process().is_none_or(|p| p.ended().is_some())
    }

    /// Waits for the gateway's death.
    pub fn dies_within(&mut self, within: Duration) -> bool {
        self.process().is_none_or(|p| p.wait(within).is_some())
    }

    /// SIGKILL to the gateway.
    pub fn kill(&mut self) {
        if let Some(p) = self.process() {
            p.kill();
        }
    }

    /// SIGKILL to the provider, and a new one at the same place.
    ///
    /// # Errors
    /// It does not start again.
    pub fn restart_sandbox(&mut self) -> Result<()> {
        self.sandbox.process.kill();
        let (dir, addr) = (self.project.path().to_path_buf(), self.sandbox.addr);
        self.sandbox = Sandbox::start(&dir.join("sandbox"), &dir.join("sandbox.log"), &addr.to_string())?;
        Ok(())
    }

    /// The worker of an official client, started when it is first needed.
    ///
    /// # Errors
    /// It does not start.
    pub fn worker(&mut self, kind: clients::Kind) -> Result<&mut Worker> {
        if !self.workers.contains_key(&kind) {
            let worker = Worker::start(kind, self.project.path())?;
            self.workers.insert(kind, worker);
        }
        self.workers.get_mut(&kind).context("a worker")
    }

    /// The endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.addr())
    }

    /// A new order of the lane's own client object.
    #[must_use]
    pub fn order<'a>(&self, url: &'a str, abort_after: Option<Duration>) -> Order<'a> {
        Order { client: "lane", url, auth: None, timeout: CLIENT_LIMIT, abort_after }
    }

    /// The ledger's operations, newest first.
    ///
    /// # Errors
    /// The command fails.
    pub fn operations(&self) -> Result<Vec<Value>> {
        let (code, value) = self.project.ask(&["ops", "list", "--limit", "1000"])?;
        match value["operations"].as_array() {
            Some(all) if code == 0 => Ok(all.clone()),
            _ => bail!("`ops list` ended with {code}: {value}"),
        }
    }

    /// One record with everything in it.
    ///
    /// # Errors
    /// The command fails.
    pub fn operation(&self, id: &str) -> Result<Value> {
        let (code, value) = self.project.ask(&["ops", "show", id])?;
        if code == 0 { Ok(value) } else { bail!("`ops show {id}` ended with {code}: {value}") }
    }

    /// An operator's word about an operation in doubt.
    ///
    /// # Errors
    /// It is refused.
    pub fn resolve(&self, id: &str, verdict: &str) -> Result<Value> {
        let (code, value) = self.project.ask(&["ops", "resolve", id, verdict, "--by", "torture"])?;
        if code == 0 { Ok(value) } else { bail!("`ops resolve {id} {verdict}` ended with {code}: {value}") }
    }

    /// A panic that any gateway of this lane wrote of: nothing that was played is a reason for one.
    #[must_use]
    pub fn panic(&self) -> Option<String> {
        let log = std::fs::read(self.project.gateway_log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let at = log.find("panicked at")?;
        Some(log[at..].chars().take(600).collect())
    }

    /// What was said on standard error, for a report.
    #[must_use]
    pub fn said(&self) -> String {
        let said = |name: &str| tail(&self.project.path().join(name), 3000);
        format!("lane {}: gateway:\n{}\nsandbox:\n{}", self.number, said("gateway.log"), said("sandbox.log"))
    }
}
