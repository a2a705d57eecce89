//! A server that is told to stop while clients go on calling over connections that they keep: no call fails. The clients
//! are as simple as a balancer is: they send over an open connection without looking whether it is about to be closed,
//! send nothing twice, and stop coming when `/readyz` has said twice that they should.

use anyhow::{Context, Result, ensure};
use counterfoil_tests::http::{self, Connection};
use counterfoil_tests::shell::signal;
use counterfoil_tests::stand::{Class, Project, Sandbox};
use counterfoil_tests::wire::{self, Call, Said};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(15);

struct Stage {
    project: Project,
    sandbox: Sandbox,
    _home: Project,
}

fn stage(settings: &[(&str, &str)]) -> Result<Stage> {
    let home = Project::empty()?;
    let sandbox =
        Sandbox::start(&home.path().join("provider"), &home.path().join("provider.log"), "127.0.0.1:0")?;
    let project = Project::with_classes(sandbox.addr)?;
    for (key, value) in settings {
        project.server(key, value)?;
    }
    Ok(Stage { project, sandbox, _home: home })
}

/// What a client saw.
#[derive(Debug, Default)]
struct Seen {
    answered: usize,
    closes: usize,
}

/// Calls, one after the other, over one connection for as long as it is not told that it ends.
fn client(addr: SocketAddr, name: usize, out: &AtomicBool) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut kept: Option<Connection> = None;
    while !out.load(Ordering::Relaxed) {
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => Connection::open(addr, LONG).context("a connection")?,
        };
        let order = format!("c{name}n{}", seen.answered);
        let call = Call::new(&Class::Key.tool(), Class::Key.arguments(&order)).keyed(&order);
        let reply = connection
            .exchange(&call.bytes(addr))
            .with_context(|| format!("the call of {order} failed after {seen:?}"))?;
        let said = Said::of(&reply);
        ensure!(matches!(said, Said::Result { is_error: false, .. }), "{order}: {}", said.brief());
        seen.answered += 1;
        if reply.header("connection").is_some_and(|v| v.eq_ignore_ascii_case("close")) {
            seen.closes += 1;
        } else {
            kept = Some(connection);
        }
    }
    // Nothing is left open that the server could close under a request.
    ensure!(kept.is_none(), "a connection was kept to the end: {seen:?}");
    Ok(seen)
}

#[test]
fn no_call_fails_while_a_server_is_drained() -> Result<()> {
    let mut stage = stage(&[("shutdown_delay", "\"1500ms\""), ("shutdown_limit", "\"10s\"")])?;
    let mut gateway = stage.project.gateway(None)?;
    let addr = gateway.addr;
    let out = AtomicBool::new(false);
    let (seen, took) = std::thread::scope(|scope| -> Result<_> {
        let out = &out;
        let clients: Vec<_> = (0..4).map(|n| scope.spawn(move || client(addr, n, out))).collect();
        std::thread::sleep(Duration::from_millis(400));
        ensure!(http::json(addr, "GET", "/readyz", None)?.status == 200);
        let begun = Instant::now();
        signal(&gateway, "TERM")?;
        // A balancer that asks knows at once, and everything else goes on.
        let mut failed = 0;
        while failed < 2 {
            std::thread::sleep(Duration::from_millis(250));
            let ready = http::json(addr, "GET", "/readyz", None)?;
            ensure!(
                ready.status == 503 && ready.text() == "draining\n",
                "{}: {}",
                ready.status,
                ready.text()
            );
            ensure!(http::json(addr, "GET", "/healthz", None)?.status == 200);
            failed += 1;
        }
        out.store(true, Ordering::Relaxed);
        let panicked = |_| anyhow::anyhow!("a panic");
        let seen: Vec<Seen> =
            clients.into_iter().map(|c| c.join().map_err(panicked)?).collect::<Result<_>>()?;
        let status = gateway.process.wait(Duration::from_secs(20)).context("it never ended")?;
        ensure!(status.code() == Some(0), "{}", stage.project.gateway_said());
        Ok((seen, begun.elapsed()))
    })?;
    ensure!(took >= Duration::from_millis(1500) && took < Duration::from_secs(8), "{took:?}");
    for (n, s) in seen.iter().enumerate() {
        // One connection until the announcement, and every answer is told that it is the last from then on.
        ensure!(s.answered > s.closes && s.closes >= 1, "client {n}: {s:?}");
        for call in 0..s.answered {
            ensure!(stage.sandbox.count(Class::Key, &format!("c{n}n{call}"))?.0 == 1, "c{n}n{call}");
        }
    }
    Ok(())
}

#[test]
fn a_call_under_way_is_answered_and_a_stream_has_its_end() -> Result<()> {
    let mut stage = stage(&[("shutdown_delay", "\"300ms\""), ("shutdown_limit", "\"10s\"")])?;
    let mut gateway = stage.project.gateway(None)?;
    let addr = gateway.addr;
    let params = json!({ "notifications": { "toolsListChanged": true }, "_meta": wire::meta(&json!({})) });
    let listen = wire::post(
        addr,
        "7",
        "subscriptions/listen",
        None,
        &params,
        "application/json, text/event-stream",
        &[],
    );
    stage.sandbox.rule(&json!({ "on": Class::Key.on(), "do": "delay", "delay_ms": 400 }))?;
    let (stream, slow, status) = std::thread::scope(|scope| -> Result<_> {
        let stream = scope.spawn(move || http::once(addr, LONG, &listen));
        let slow = scope.spawn(move || {
            let call = Call::new(&Class::Key.tool(), Class::Key.arguments("slow")).keyed("slow");
            wire::call(addr, LONG, &call).brief()
        });
        std::thread::sleep(Duration::from_millis(200));
        signal(&gateway, "TERM")?;
        let status = gateway.process.wait(Duration::from_secs(20)).context("it never ended")?;
        let panicked = |_| anyhow::anyhow!("a panic");
        Ok((stream.join().map_err(panicked)??, slow.join().map_err(panicked)?, status))
    })?;
    ensure!(status.code() == Some(0), "{}", stage.project.gateway_said());
    ensure!(slow.starts_with("a result of"), "{slow}");
    ensure!(stage.sandbox.count(Class::Key, "slow")?.0 == 1);
    let text = stream.text();
    ensure!(stream.status == 200 && text.contains("\"id\":7") && text.contains("\"result\""), "{text}");
    Ok(())
}

#[test]
fn a_second_signal_ends_at_once() -> Result<()> {
    let mut stage = stage(&[("shutdown_delay", "\"1m\"")])?;
    let mut gateway = stage.project.gateway(None)?;
    signal(&gateway, "TERM")?;
    std::thread::sleep(Duration::from_millis(200));
    ensure!(gateway.process.ended().is_none(), "it didn't wait");
    let begun = Instant::now();
    signal(&gateway, "TERM")?;
    let status = gateway.process.wait(Duration::from_secs(10)).context("it never ended")?;
    ensure!(status.code() == Some(5) && begun.elapsed() < Duration::from_secs(3), "{status:?}");
    Ok(())
}
