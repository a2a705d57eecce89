//! One of several stands that play rounds side by side: a project folder, its provider, its gateway, its clients.

use super::plan::{Against, METHODS};
use super::table::control::Control;
use crate::clients::{self, Order, Worker};
use crate::clock::Clock;
use crate::cluster::{self, Cluster};
use crate::naive::Naive;
use crate::process::{Process, free_address, tail};
use crate::stand::{Class, Gateway, Project, Sandbox};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

/// How long a client waits for one answer.
pub const CLIENT_LIMIT: Duration = Duration::from_secs(6);

/// What answers calls: the gateway, the naive server, or the control.
enum Server {
    Gateway(Gateway),
    Naive(Naive),
    Control(Control),
    Replicas(Box<Cluster>),
}

/// A lane.
pub struct Lane {
    number: usize,
    against: Against,
    control: bool,
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
        if against.replicas().is_some() {
            cluster::configure(&project)?;
        } else if seed % 2 == 1 {
            // One run in two has clients whose session must outlive the gateway's deaths.
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
            control: false,
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

    /// A lane whose calls the control server answers.
    ///
    /// # Errors
    /// As [`Lane::new`].
    pub fn control(number: usize, seed: u64) -> Result<Lane> {
        let mut lane = Lane::new(number, Against::Gateway, seed)?;
        lane.control = true;
        lane.server = None;
        lane.serve(None)?;
        Ok(lane)
    }

    /// Whether it plays against the naive server.
    #[must_use]
    pub fn is_naive(&self) -> bool {
        self.against == Against::Naive
    }

    /// Whether several gateways share its ledger.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.against.replicas().is_some()
    }

    fn process(&mut self) -> Option<&mut Process> {
        match self.server.as_mut()? {
            Server::Gateway(g) => Some(&mut g.process),
            Server::Naive(n) => Some(&mut n.process),
            Server::Control(c) => Some(&mut c.process),
            // There are several.
            Server::Replicas(_) => None,
        }
    }

    /// The replicas, where there are some, and their project.
    ///
    /// # Errors
    /// There are none.
    pub fn cluster(&mut self) -> Result<(&mut Cluster, &Project)> {
        match self.server.as_mut() {
            Some(Server::Replicas(cluster)) => Ok((cluster, &self.project)),
            _ => bail!("no replicas"),
        }
    }

    /// Everything that may be asked for the same: each replica, or the one gateway.
    #[must_use]
    pub fn fronts(&self) -> Vec<SocketAddr> {
        match &self.server {
            Some(Server::Replicas(c)) => c.replicas.iter().map(|r| r.addr).collect(),
            _ => vec![self.addr()],
        }
    }

    /// Where calls go.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        match &self.server {
            Some(Server::Gateway(g)) => g.addr,
            Some(Server::Naive(n)) => n.addr,
            Some(Server::Control(c)) => c.addr,
            Some(Server::Replicas(c)) => c.front,
            None => SocketAddr::from(([127, 0, 0, 1], 1)),
        }
    }

    /// Kills the gateway if one runs, and starts one, armed or not. Of replicas those that are gone are started, or else
    /// one is killed and started.
    ///
    /// # Errors
    /// It does not start.
    pub fn serve(&mut self, failpoint: Option<&str>) -> Result<()> {
        if let Some(count) = self.against.replicas() {
            return self.serve_replicas(count);
        }
        let old = self.server.take();
        let was = match &old {
            Some(Server::Naive(n)) => Some(n.addr),
            Some(Server::Control(c)) => Some(c.addr),
            _ => None,
        };
        drop(old);
        self.armed = failpoint.is_some();
        self.server = Some(if self.control {
            let (folder, log) = (self.project.path(), self.project.gateway_log());
            Server::Control(Control::start(self.sandbox.addr, was, failpoint, folder, &log)?)
        } else if self.is_naive() {
            Server::Naive(Naive::start(self.sandbox.addr, was, failpoint, &self.project.gateway_log())?)
        } else {
            Server::Gateway(self.project.gateway(failpoint)?)
        });
        Ok(())
    }

    fn serve_replicas(&mut self, count: usize) -> Result<()> {
        if let Some(Server::Replicas(cluster)) = &mut self.server {
            if cluster.dead().is_none() {
                let n = cluster.turn();
                cluster.kill(n);
            }
            return cluster.mend(&self.project);
        }
        let cluster = Cluster::start(&mut self.project, count)?;
        self.server = Some(Server::Replicas(Box::new(cluster)));
        Ok(())
    }

    /// A gateway that runs and is armed with nothing.
    ///
    /// # Errors
    /// It does not start.
    pub fn plain(&mut self) -> Result<()> {
        if let Some(Server::Replicas(cluster)) = &mut self.server {
            return cluster.mend(&self.project);
        }
        if self.armed || self.is_dead() { self.serve(None) } else { Ok(()) }
    }

    /// The process id of what answers calls.
    pub fn pid(&mut self) -> Option<u32> {
        self.process().map(|p| p.pid())
    }

    /// Whether the gateway is gone.
    pub fn is_dead(&mut self) -> bool {
        if let Some(Server::Replicas(cluster)) = &mut self.server {
            return cluster.lost_one();
        }
        self.process().is_none_or(|p| p.ended().is_some())
    }

    /// Waits for the gateway's death.
    pub fn dies_within(&mut self, within: Duration) -> bool {
        self.process().is_none_or(|p| p.wait(within).is_some())
    }

    /// SIGKILL to the gateway, or to one of the replicas.
    pub fn kill(&mut self) {
        if let Some(Server::Replicas(cluster)) = &mut self.server {
            let n = cluster.turn();
            cluster.kill(n);
        }
        if let Some(p) = self.process() {
            p.kill();
        }
    }

    /// SIGSTOP to the gateway.
    ///
    /// # Errors
    /// It does not stand still.
    pub fn stop(&mut self) -> Result<()> {
        self.process().context("no gateway")?.stop()
    }

    /// Whether the gateway stands still.
    pub fn is_stopped(&mut self) -> bool {
        self.process().is_some_and(|p| p.is_stopped())
    }

    /// SIGCONT to the gateway.
    ///
    /// # Errors
    /// It ended.
    pub fn go_on(&mut self) -> Result<()> {
        self.process().context("no gateway")?.go_on()
    }

    /// A gateway whose wall clock can be set; it is right, for now.
    ///
    /// # Errors
    /// It does not start.
    pub fn serve_by_a_clock(&mut self) -> Result<()> {
        self.project.clock = Some(Clock::new(self.project.path())?);
        self.serve(None)
    }

    /// Sets the wall clock of the gateway.
    ///
    /// # Errors
    /// There is none to set.
    pub fn set_clock(&self, ahead: i64) -> Result<()> {
        self.project.clock.as_ref().context("the machine's clock is not ours to set")?.set(ahead)
    }

    /// How many seconds ahead a program sees the clock, and whether the gateway is a program that does.
    ///
    /// # Errors
    /// It can't be seen.
    pub fn clock_seen(&mut self) -> Result<(i64, bool)> {
        let seen = self.project.clock.as_ref().context("the machine's clock")?.seen()?;
        let pid = self.process().context("no gateway")?.pid();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok((seen, maps.contains("libfaketime")))
    }

    /// Ends the gateway and forgets its ledger, whose time may be far from the true one: the next begins with nothing.
    ///
    /// # Errors
    /// What the system says.
    pub fn start_afresh(&mut self) -> Result<()> {
        self.server = None;
        self.project.clock = None;
        std::fs::remove_dir_all(self.project.data())?;
        // A session of before is unknown to it.
        self.workers.values_mut().try_for_each(|worker| worker.forget("lane"))
    }

    /// How much the gateways have said on standard error, in bytes.
    #[must_use]
    pub fn said_so_far(&self) -> usize {
        std::fs::metadata(self.project.gateway_log()).map_or(0, |m| usize::try_from(m.len()).unwrap_or(0))
    }

    /// Whether they have said something since.
    #[must_use]
    pub fn said_since(&self, from: usize, what: &str) -> bool {
        let log = std::fs::read(self.project.gateway_log()).unwrap_or_default();
        String::from_utf8_lossy(log.get(from..).unwrap_or_default()).contains(what)
    }

    /// SIGKILL to the provider. Whether nobody listens in its place.
    pub fn end_sandbox(&mut self) -> bool {
        self.sandbox.process.kill();
        TcpStream::connect(self.sandbox.addr).is_err()
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
        // One whose host came down, as Node.js does over a rejection that its client's library forgot, is started anew.
        let ended = self.workers.get_mut(&kind).is_some_and(|worker| worker.has_ended());
        if ended || !self.workers.contains_key(&kind) {
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

    /// A new order of the lane's own client object, which waits so long for an answer.
    #[must_use]
    pub fn order<'a>(&self, url: &'a str, timeout: Duration, abort_after: Option<Duration>) -> Order<'a> {
        Order { client: "lane", url, auth: None, timeout, abort_after }
    }

    /// A command of the binary about the lane's ledger.
    fn ask(&mut self, args: &[&str]) -> Result<(i32, Value)> {
        let Some(Server::Replicas(cluster)) = &mut self.server else { return self.project.ask(args) };
        let data = cluster.to_ask()?.display().to_string();
        self.project.ask(&[args, &["--data", &data]].concat())
    }

    /// The ledger's operations, newest first.
    ///
    /// # Errors
    /// The command fails.
    pub fn operations(&mut self) -> Result<Vec<Value>> {
        let (code, value) = self.ask(&["ops", "list", "--limit", "1000"])?;
        match value["operations"].as_array() {
            Some(all) if code == 0 => Ok(all.clone()),
            _ => bail!("`ops list` ended with {code}: {value}"),
        }
    }

    /// One record with everything in it.
    ///
    /// # Errors
    /// The command fails.
    pub fn operation(&mut self, id: &str) -> Result<Value> {
        let (code, value) = self.ask(&["ops", "show", id])?;
        if code == 0 { Ok(value) } else { bail!("`ops show {id}` ended with {code}: {value}") }
    }

    /// An operator's word about an operation in doubt.
    ///
    /// # Errors
    /// It is refused.
    pub fn resolve(&mut self, id: &str, verdict: &str) -> Result<Value> {
        let (code, value) = self.ask(&["ops", "resolve", id, verdict, "--by", "torture"])?;
        if code == 0 { Ok(value) } else { bail!("`ops resolve {id} {verdict}` ended with {code}: {value}") }
    }

    /// What the gateways of this lane write on standard error.
    fn logs(&self) -> Vec<PathBuf> {
        match &self.server {
            Some(Server::Replicas(cluster)) => cluster.logs(),
            _ => vec![self.project.gateway_log()],
        }
    }

    /// A panic that any gateway of this lane wrote of: nothing that was played is a reason for one.
    #[must_use]
    pub fn panic(&self) -> Option<String> {
        self.logs().iter().find_map(|log| {
            let log = std::fs::read(log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let at = log.find("panicked at")?;
            Some(log[at..].chars().take(600).collect())
        })
    }

    /// What was said on standard error, for a report.
    #[must_use]
    pub fn said(&self) -> String {
        let mut said = format!("lane {}:", self.number);
        for (n, log) in self.logs().iter().enumerate() {
            said.push_str(&format!("\ngateway {n}:\n{}", tail(log, 3000)));
        }
        let sandbox = tail(&self.project.path().join("sandbox.log"), 3000);
        said + &format!("\nsandbox:\n{sandbox}")
    }
}
