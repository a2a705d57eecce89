//! Replicas, the provider, and a host that makes its calls again until they have an answer.

use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::clients::{Order, Question, Worker};
use counterfoil_tests::cluster::{self, Cluster};
use counterfoil_tests::process::fixture;
use counterfoil_tests::stand::{AMOUNT, Class, Project, Sandbox, payment};
use counterfoil_tests::wire::{META_KEY, Said};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The tool of the fixture that asks twice before it refunds.
pub const ORDERS: &str = "orders_two_rounds";
pub const NOTE: &str = "as agreed on the telephone";

/// Replicas, the provider, and what the tests of one client need.
pub struct Stage {
    pub cluster: Mutex<Cluster>,
    pub front: SocketAddr,
    sandbox: Mutex<Sandbox>,
    pub project: Project,
    _home: Project,
}

/// What a call came to.
pub struct Driven {
    pub said: Said,
    /// How often the host had to make the call again.
    pub repeats: usize,
    /// The sentences that its user was shown.
    pub asked: Vec<String>,
    /// How long the last call of the client took, with all its rounds.
    pub took: Duration,
}

impl Stage {
    /// Three replicas of the gateway, or of the fixture, with more configuration at the end.
    pub fn open(native: bool, more: &str) -> Result<Stage> {
        Stage::open_with(native.then_some("--orders"), more, |_, _| Ok(()))
    }

    /// Three replicas of the gateway, or of the fixture with what this argument adds; `prepare` puts into the project's
    /// folder what the configuration names, for the provider at this address.
    pub fn open_with(
        fixture_with: Option<&str>,
        more: &str,
        prepare: impl FnOnce(&Project, SocketAddr) -> Result<()>,
    ) -> Result<Stage> {
        let home = Project::empty()?;
        let provider = home.path().join("provider");
        let sandbox = Sandbox::start(&provider, &home.path().join("provider.log"), "127.0.0.1:0")?;
        let mut project = Project::with_classes_and(sandbox.addr, more)?;
        cluster::configure(&project)?;
        prepare(&project, sandbox.addr)?;
        let cluster = if let Some(argument) = fixture_with {
            project.serve.push(argument.into());
            Cluster::start_with(&mut project, 3, Some(fixture()?))?
        } else {
            Cluster::start(&mut project, 3)?
        };
        let front = cluster.front;
        Ok(Stage { cluster: Mutex::new(cluster), front, sandbox: Mutex::new(sandbox), project, _home: home })
    }

    pub fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn sandbox(&self) -> MutexGuard<'_, Sandbox> {
        self.sandbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something while whatever replica ends is started again, as a supervisor does it.
    pub fn supervised<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let supervisor = scope.spawn(|| -> Result<()> {
                while !over.load(Ordering::Relaxed) {
                    let mut cluster = self.cluster();
                    if let Some(n) = cluster.dead() {
                        cluster.revive(&self.project, n)?;
                    }
                    drop(cluster);
                    thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            });
            let done = work();
            over.store(true, Ordering::Relaxed);
            supervisor.join().unwrap().context("the supervisor")?;
            done
        })
    }

    /// The replica that nginx gave the last finished request of this tool.
    pub fn last_asked(&self, tool: &str) -> Result<usize> {
        let cluster = self.cluster();
        let named = format!("\"{tool}\"");
        let until = Instant::now() + Duration::from_secs(2);
        loop {
            let lines = cluster.requests()?;
            if let Some(line) = lines.iter().rfind(|l| l.contains(&named)) {
                let at = line.rsplit([' ', ',']).next().unwrap_or_default();
                let is_it = |n: &usize| cluster.replicas[*n].addr.to_string() == at;
                return (0..3).find(is_it).with_context(|| format!("no replica is at {at}"));
            }
            ensure!(Instant::now() < until, "nginx has passed on no call of {tool}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Makes a call under a key as a host does: where there is no answer, or one that says to come again, the same again.
    pub fn drive(
        &self,
        worker: &mut Worker,
        limit: Duration,
        tool: &str,
        arguments: &Value,
        key: &str,
        mut answer: impl FnMut(&Question) -> Result<Value>,
    ) -> Result<Driven> {
        let url = format!("http://{}/mcp", self.front);
        let order = Order { client: "host", url: &url, auth: None, timeout: limit, abort_after: None };
        let meta = json!({ META_KEY: key });
        let mut asked = Vec::new();
        let until = Instant::now() + Duration::from_secs(60);
        for repeats in 0.. {
            let begun = Instant::now();
            let said = worker.call_answering(&order, tool, arguments, &meta, WITHIN, |question| {
                asked.push(question.message().to_owned());
                answer(question)
            })?;
            let again = match &said {
                Said::Lost(_) => true,
                Said::Error { kind, .. } => kind == "still_running" || kind == "unavailable",
                // A balancer without a replica to pass on to.
                Said::Rpc { code, .. } => *code == -32603,
                Said::Result { .. } => false,
            };
            if !again {
                return Ok(Driven { said, repeats, asked, took: begun.elapsed() });
            }
            ensure!(Instant::now() < until, "no result at last: {said:?}");
            thread::sleep(Duration::from_millis(200));
        }
        bail!("unreachable: a call is made again until it has an answer")
    }

    /// Whether nobody came to a point yet.
    pub fn is_armed(&self, point: &str) -> bool {
        let (name, _) = point.split_once('@').unwrap_or((point, ""));
        let points = self.project.path().join("replicas/points");
        [name.to_owned(), format!("{name}@2"), format!("{name}@3")].iter().any(|f| points.join(f).exists())
    }

    /// One effect, in both books.
    pub fn once(&self, order: &str) -> Result<()> {
        let counted = self.sandbox().count(Class::Key, order)?;
        ensure!(counted == (1, AMOUNT), "{order}: {counted:?}");
        Ok(())
    }
}

/// The longest that a call may take with all its rounds.
pub const WITHIN: Duration = Duration::from_secs(60);

pub fn result(driven: &Driven) -> Result<&Value> {
    match &driven.said {
        Said::Result { value, is_error: false, .. } => Ok(value),
        other => bail!("a result was expected, not {} ({other:?})", other.brief()),
    }
}

/// A user who says how much, and why.
pub fn agreeable(question: &Question) -> Result<Value> {
    ensure!(question.method == "elicitation/create", "{question:?}");
    let properties = &question.params["requestedSchema"]["properties"];
    if properties["amount"].is_object() {
        Ok(Question::accept(json!({ "amount": AMOUNT })))
    } else if properties["note"].is_object() {
        Ok(Question::accept(json!({ "note": NOTE })))
    } else {
        bail!("nobody knows what to say to {question:?}")
    }
}

pub fn order(name: &str) -> Value {
    json!({ "payment": payment(name), "order_id": name })
}
