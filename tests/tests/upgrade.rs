//! Replicas of two versions on one ledger. The newer version is this very program, playing its own successor: it has
//! another version, a schema one step newer, writes a field into records that this version doesn't know, and tells on the
//! bus what this version has never heard of.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::cluster::{self, Cluster};
use counterfoil_tests::http;
use counterfoil_tests::session::Session;
use counterfoil_tests::stand::{AMOUNT, Class, Project, Sandbox};
use counterfoil_tests::wire::{self, Call, Said};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);
/// Between the restart of one and the end of the next: longer than nginx passes over a replica that it could not reach.
const BETWEEN: Duration = Duration::from_millis(2200);
/// Replicas look at each other every five seconds.
const LOOKED: Duration = Duration::from_secs(15);
/// The variable that makes a program built for tests play its successor.
const NEWER: &str = "COUNTERFOIL_NEWER";
const MIXED: &str = "replicas have different versions";

struct Stage {
    cluster: Cluster,
    project: Project,
    sandbox: Sandbox,
    _home: Project,
}

fn stage(count: usize) -> Result<Stage> {
    let home = Project::empty()?;
    let sandbox =
        Sandbox::start(&home.path().join("provider"), &home.path().join("provider.log"), "127.0.0.1:0")?;
    let mut project = Project::with_classes(sandbox.addr)?;
    cluster::configure(&project)?;
    let cluster = Cluster::start(&mut project, count)?;
    Ok(Stage { cluster, project, sandbox, _home: home })
}

impl Stage {
    fn addr(&self, n: usize) -> SocketAddr {
        self.cluster.replicas[n].addr
    }

    /// What replicas that are started from now on play.
    fn play(&mut self, what: Option<&str>) {
        self.project.environment.retain(|(name, _)| name != NEWER);
        self.project.environment.extend(what.map(|what| (NEWER.to_owned(), what.to_owned())));
    }

    /// Ends one in order and starts it again, as whatever is played.
    fn replace(&mut self, n: usize) -> Result<()> {
        self.cluster.terminate(n)?;
        self.cluster.revive(&self.project, n)?;
        self.cluster.all_ready(LIMIT)?;
        thread::sleep(BETWEEN);
        Ok(())
    }

    /// Until `/readyz` of one warns of two versions, or warns of nothing. It stays ready.
    fn warns(&self, n: usize, mixed: bool) -> Result<()> {
        let until = Instant::now() + LOOKED;
        loop {
            let ready = http::json(self.addr(n), "GET", "/readyz", None)?;
            ensure!(ready.status == 200, "replica {n}: {} {}", ready.status, ready.text());
            if ready.text().contains(MIXED) == mixed {
                return Ok(());
            }
            ensure!(Instant::now() < until, "replica {n} says {:?}", ready.text());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// The stored bytes of a result, which are the same from whichever replica.
    fn same(&self, order: &str) -> Result<String> {
        let mut all = Vec::new();
        for n in 0..self.cluster.replicas.len() {
            all.push(
                result(&wire::call(self.addr(n), LIMIT, &refund(order)))
                    .with_context(|| format!("{order} at {n}"))?,
            );
        }
        all.dedup();
        ensure!(all.len() == 1, "{order} has several results: {all:?}");
        Ok(all.remove(0))
    }

    fn figure(&self, n: usize, name: &str) -> Result<u64> {
        let metrics = http::json(self.addr(n), "GET", "/metrics", None)?.text();
        let value = metrics.lines().find_map(|l| l.strip_prefix(name)?.trim().parse().ok());
        value.with_context(|| format!("no {name}"))
    }
}

fn refund(order: &str) -> Call {
    Call::new(&Class::Key.tool(), Class::Key.arguments(order)).keyed(order)
}

/// The operation and the stored bytes.
fn result(said: &Said) -> Result<String> {
    match said {
        Said::Result { stored, operation, is_error: false, .. } => {
            Ok(format!("{} {stored}", operation["id"]))
        }
        said => bail!("{}", said.brief()),
    }
}

/// Calls, one after the other, each an order of its own, until it is over: the orders with what was answered.
fn call_on(front: SocketAddr, name: usize, over: &AtomicBool) -> Result<Vec<(String, String)>> {
    let (mut made, mut again) = (Vec::new(), 0);
    while !over.load(Ordering::Relaxed) {
        let order = format!("u{name}n{}", made.len());
        let mut said = wire::call(front, LIMIT, &refund(&order));
        // A kept connection that a replica closes in the very moment in which nginx writes on it: nothing ran.
        if again == 0 && said.brief().contains("HTTP 502") {
            again += 1;
            said = wire::call(front, LIMIT, &refund(&order));
        }
        let told = result(&said).with_context(|| format!("the call of {order} failed"))?;
        made.push((order, told));
        thread::sleep(Duration::from_millis(25));
    }
    Ok(made)
}

#[test]
fn replicas_are_replaced_by_newer_ones_and_back_while_calls_come() -> Result<()> {
    let mut stage = stage(3)?;
    let front = stage.cluster.front;
    let schema = |stage: &Stage| stage.cluster.sql("SELECT max(version) FROM counterfoil.migration");
    let own: u32 = schema(&stage).parse()?;
    let session = Session::open(front)?;
    let lists =
        |stage: &Stage| -> Result<Vec<u8>> { Ok(session.ask(stage.addr(0), "tools/list", json!({}))?.body) };
    let listed = lists(&stage)?;
    stage.warns(0, false)?;
    let over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..3)
        .map(|n| {
            let over = over.clone();
            thread::spawn(move || call_on(front, n, &over))
        })
        .collect();
    let mut play = || -> Result<()> {
        // Forward.
        stage.play(Some("adds"));
        stage.same("before")?;
        stage.replace(0)?;
        ensure!(schema(&stage) == (own + 1).to_string(), "the newer one made its step");
        stage.same("before")?;
        stage.same("mixed")?;
        stage.warns(0, true)?;
        stage.warns(1, true)?;
        for n in 0..3 {
            ensure!(session.ask(stage.addr(n), "ping", json!({}))?.status == 200, "the session at {n}");
        }
        ensure!(stage.figure(1, "counterfoil_bus_unknown_total")? > 0, "what it doesn't know it counts");
        let knows = "SELECT string_agg(DISTINCT version || ' ' || knows, ', ' ORDER BY version || ' ' || knows) FROM counterfoil.replica WHERE ended_at IS NULL";
        let of = env!("CARGO_PKG_VERSION");
        ensure!(stage.cluster.sql(knows) == format!("{of} {own}, {of}+newer {}", own + 1));
        stage.replace(1)?;
        stage.replace(2)?;
        stage.warns(1, false)?;
        stage.same("mixed")?;
        stage.same("newer")?;
        // And back.
        stage.play(None);
        stage.replace(2)?;
        stage.warns(1, true)?;
        stage.same("newer")?;
        stage.same("mixed_again")?;
        stage.replace(0)?;
        stage.replace(1)?;
        stage.warns(0, false)?;
        ensure!(schema(&stage) == (own + 1).to_string(), "a step that was made stays");
        stage.same("after").map(drop)
    };
    let played = play();
    over.store(true, Ordering::Relaxed);
    let mut made = Vec::new();
    for caller in callers {
        made.extend(caller.join().map_err(|_| anyhow::anyhow!("a panic"))??);
    }
    played?;
    ensure!(made.len() > 300, "{} calls were made meanwhile", made.len());
    for (order, _) in &made {
        assert_eq!(stage.sandbox.count(Class::Key, order)?, (1, AMOUNT), "{order}");
    }
    for (order, told) in made.iter().step_by(25) {
        assert_eq!(&stage.same(order)?, told, "{order}");
    }
    for n in 0..3 {
        ensure!(session.ask(stage.addr(n), "ping", json!({}))?.status == 200, "the session at {n}");
    }
    assert_eq!(lists(&stage)?, listed, "both serve the same");
    assert!(!stage.cluster.lost_one());
    let kept = r#"SELECT count(*) FROM counterfoil.op WHERE record LIKE '%"newer":_"kept":[1,"two"]%'"#;
    let all = stage.cluster.sql("SELECT count(*) FROM counterfoil.op");
    let kept: usize = stage.cluster.sql(kept).parse()?;
    ensure!(kept > 100 && kept < all.parse()?, "{kept} records of {all} are the newer version's");
    Ok(())
}

#[test]
fn what_a_newer_replica_left_behind_an_older_one_ends_and_keeps_what_it_does_not_know() -> Result<()> {
    let mut stage = stage(2)?;
    stage.play(Some("adds"));
    stage.cluster.terminate(0)?;
    stage.cluster.revive(&stage.project, 0)?;
    stage.cluster.all_ready(LIMIT)?;
    // It dies with a request out, and an older one goes on.
    stage.cluster.arm("send.after")?;
    let lost = wire::call(stage.addr(0), LIMIT, &refund("gone"));
    assert!(matches!(lost, Said::Lost(_)), "{}", lost.brief());
    assert!(stage.cluster.process(0)?.wait(LIMIT).is_some(), "it is gone");
    let told = result(&wire::call(stage.addr(1), LIMIT, &refund("gone")))?;
    assert_eq!(stage.sandbox.count(Class::Key, "gone")?, (1, AMOUNT));
    let record = "SELECT record FROM counterfoil.op";
    let record = stage.cluster.sql(record);
    assert!(record.contains("\"state\":\"completed\""), "{record}");
    assert!(record.contains("\"newer\":{\"kept\":[1,\"two\"]}"), "a field was lost: {record}");
    stage.cluster.revive(&stage.project, 0)?;
    stage.cluster.all_ready(LIMIT)?;
    assert_eq!(stage.same("gone")?, told);
    Ok(())
}

#[test]
fn a_step_that_breaks_older_replicas_is_not_made_while_they_live() -> Result<()> {
    let mut stage = stage(3)?;
    let own: u32 = stage.cluster.sql("SELECT max(version) FROM counterfoil.migration").parse()?;
    let refused = |stage: &mut Stage, n: usize| -> Result<String> {
        ensure!(stage.cluster.revive(&stage.project, n).is_err(), "it started");
        let process = stage.cluster.process(n)?;
        let status = process.wait(LIMIT).context("it did not end")?;
        ensure!(!status.success());
        // One log for all runs of a replica.
        let said = process.said();
        Ok(said.lines().rfind(|l| l.starts_with("counterfoil: ")).unwrap_or_default().to_owned())
    };
    stage.play(Some("breaks"));
    stage.cluster.terminate(2)?;
    let said = refused(&mut stage, 2)?;
    for n in [0, 1] {
        let name = format!("{} ({})", stage.addr(n), env!("CARGO_PKG_VERSION"));
        assert!(said.contains(&name) && said.contains("Nothing was changed"), "{said}");
    }
    assert_eq!(stage.cluster.sql("SELECT max(version) FROM counterfoil.migration"), own.to_string());
    let first = result(&wire::call(stage.addr(0), LIMIT, &refund("first")))?;
    // One is gone in order, one was killed: it counts until its lease is over.
    stage.cluster.terminate(0)?;
    stage.cluster.kill(1);
    let said = refused(&mut stage, 2)?;
    assert!(
        said.contains(&stage.addr(1).to_string()) && !said.contains(&stage.addr(0).to_string()),
        "{said}"
    );
    thread::sleep(cluster::LEASE + Duration::from_millis(200));
    stage.cluster.revive(&stage.project, 2)?;
    assert_eq!(result(&wire::call(stage.addr(2), LIMIT, &refund("first")))?, first);
    assert_eq!(stage.sandbox.count(Class::Key, "first")?, (1, AMOUNT));
    // From then on the older version is refused, and told what to do.
    stage.play(None);
    let said = refused(&mut stage, 0)?;
    let what = format!("the ledger has schema {}, on which only programs work that know schema {0}", own + 1);
    assert!(said.contains(&what) && said.contains("Use the newer program"), "{said}");
    Ok(())
}
