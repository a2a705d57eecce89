//! Replicas behind nginx with the book's recipe that are restarted one after the other, over and over, while callers call
//! over connections that they keep: no call fails, none is made twice.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use anyhow::{Context, Result, ensure};
use counterfoil_tests::cluster::{self, Cluster};
use counterfoil_tests::http::{Connection, Reply};
use counterfoil_tests::stand::{AMOUNT, Class, Project, Sandbox};
use counterfoil_tests::wire::{Call, Said};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);
/// How often all are restarted; more by `COUNTERFOIL_ROLLS`.
const ROLLS: usize = 1;
/// Callers that have an effect with each call, those that only read, and one that seldom calls: nginx keeps connections
/// for it that it hardly uses.
const REFUNDING: usize = 2;
const READING: usize = 3;
/// Longer than nginx passes over a replica that it could not reach (`fail_timeout` of the recipe).
const BETWEEN: Duration = Duration::from_millis(2200);

/// What one caller did: how many calls were answered, and what became of the others.
#[derive(Debug, Default)]
struct Made {
    answered: usize,
    failed: Vec<String>,
}

fn call(front: SocketAddr, over: &AtomicBool, pause: Duration, next: impl Fn(usize) -> Call) -> Result<Made> {
    let mut made = Made::default();
    let mut kept: Option<Connection> = None;
    while !over.load(Ordering::Relaxed) {
        let call = next(made.answered + made.failed.len());
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => Connection::open(front, LIMIT).context("nginx")?,
        };
        let reply: Reply = connection.exchange(&call.bytes(front)).context("nginx gave no answer")?;
        let said = Said::of(&reply);
        if matches!(said, Said::Result { is_error: false, .. }) {
            made.answered += 1;
        } else {
            made.failed.push(format!("{}: {}", reply.status, said.brief()));
        }
        // nginx ends a connection after a thousand requests, and says so.
        if !reply.header("connection").is_some_and(|v| v.eq_ignore_ascii_case("close")) {
            kept = Some(connection);
        }
        thread::sleep(pause);
    }
    Ok(made)
}

#[test]
fn no_call_fails_while_all_replicas_are_restarted() -> Result<()> {
    let rolls = std::env::var("COUNTERFOIL_ROLLS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROLLS);
    let home = Project::empty()?;
    let sandbox =
        Sandbox::start(&home.path().join("provider"), &home.path().join("provider.log"), "127.0.0.1:0")?;
    let mut project = Project::with_classes(sandbox.addr)?;
    cluster::configure(&project)?;
    let mut cluster = Cluster::start(&mut project, 3)?;
    let front = cluster.front;
    let over = AtomicBool::new(false);
    let order = |caller: usize, n: usize| format!("roll_{caller}_{n}");
    let refund = move |caller: usize| {
        move |n: usize| {
            let order = order(caller, n);
            Call::new(&Class::Key.tool(), Class::Key.arguments(&order)).keyed(&order)
        }
    };
    let read = |_: usize| Call::new("operation_status", json!({ "id": "op_01ARZ3NDEKTSV4RRFFQ69G5FAV" }));
    let (refunds, reads) = thread::scope(|scope| -> Result<_> {
        let over = &over;
        let busy = Duration::from_millis(1);
        let refunding: Vec<_> =
            (0..REFUNDING).map(|c| scope.spawn(move || call(front, over, busy, refund(c)))).collect();
        let reading: Vec<_> = (0..=READING)
            .map(|c| {
                let pause = if c < READING { busy } else { Duration::from_millis(150) };
                scope.spawn(move || call(front, over, pause, read))
            })
            .collect();
        let rolled = (0..rolls * 3).try_for_each(|n| {
            thread::sleep(BETWEEN);
            cluster.terminate(n % 3)?;
            cluster.revive(&project, n % 3)?;
            cluster.all_ready(LIMIT)
        });
        over.store(true, Ordering::Relaxed);
        let ended = |callers: Vec<thread::ScopedJoinHandle<'_, Result<Made>>>| -> Result<Vec<Made>> {
            callers.into_iter().map(|c| c.join().map_err(|_| anyhow::anyhow!("a panic"))?).collect()
        };
        let made = (ended(refunding)?, ended(reading)?);
        rolled?;
        Ok(made)
    })?;
    let answered: usize = refunds.iter().chain(&reads).map(|m| m.answered).sum();
    let failed: Vec<&String> = refunds.iter().chain(&reads).flat_map(|m| &m.failed).collect();
    // nginx met replicas that were gone, and passed the calls on.
    let passed_on = cluster.requests()?.iter().filter(|l| l.contains(", 127.0.0.1:")).count();
    println!("{answered} calls, {passed_on} of them passed on, {} failed", failed.len());
    ensure!(failed.is_empty(), "{} calls failed beside {answered}: {failed:?}", failed.len());
    ensure!(passed_on > 0 && answered > 100 * rolls, "{answered} calls, {passed_on} passed on");
    for (caller, made) in refunds.iter().enumerate() {
        for n in 0..made.answered {
            let counted = sandbox.count(Class::Key, &order(caller, n))?;
            ensure!(counted == (1, AMOUNT), "{}: {counted:?}", order(caller, n));
        }
    }
    ensure!(!cluster.lost_one(), "a replica ended by itself");
    Ok(())
}
