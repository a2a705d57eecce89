//! Calls that take longer than their clients wait for one request.

use crate::stage::{Stage, result};
use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::clients::{Kind, Question, Worker};
use counterfoil_tests::stand::Class;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Settings of the tool: a call is worked on for as long as it takes.
pub fn patient(more: &str) -> String {
    format!("\n[tools.\"key.refunds.create\"]\nsend_timeout = \"60s\"\ntimeout = \"90s\"\n{more}\n")
}

fn nobody_is_asked(question: &Question) -> Result<Value> {
    bail!("asked: {question:?}")
}

#[test]
fn a_call_outlives_the_limit_of_its_clients_by_legs() -> Result<()> {
    // Ten waits of four seconds, and the clients' pauses between them, by clients that wait five.
    let stage = Stage::open(false, &patient("leg = \"4s\""))?;
    stage.sandbox().rule(&json!({ "on": Class::Key.on(), "do": "delay", "delay_ms": 40_000, "times": 2 }))?;
    let limit = Duration::from_secs(5);
    let each = |kind: Kind| -> Result<()> {
        let mut worker = Worker::start(kind, stage.project.path())?;
        let (name, tool) = (format!("long_{}", kind.name()), Class::Key.tool());
        let arguments = Class::Key.arguments(&name);
        let driven = stage.drive(&mut worker, limit, &tool, &arguments, &name, nobody_is_asked)?;
        result(&driven)?;
        ensure!(driven.repeats == 0, "{} repeats", driven.repeats);
        ensure!(driven.took > Duration::from_secs(40), "it took {:?}", driven.took);
        stage.once(&name)
    };
    thread::scope(|scope| {
        let all = [Kind::TypeScript, Kind::Python].map(|kind| (kind, scope.spawn(move || each(kind))));
        all.into_iter().try_for_each(|(kind, one)| one.join().unwrap().with_context(|| kind.name()))
    })
}

#[test]
fn a_long_call_outlives_the_replicas_that_work_on_it() -> Result<()> {
    let stage = Stage::open(false, &patient("leg = \"1s\""))?;
    for (kind, name) in [(Kind::TypeScript, "killed_ts"), (Kind::Python, "killed_py")] {
        stage.sandbox().rule(&json!({ "on": Class::Key.on(), "do": "delay", "delay_ms": 5000 }))?;
        let mut worker = Worker::start(kind, stage.project.path())?;
        let (tool, arguments) = (Class::Key.tool(), Class::Key.arguments(name));
        let over = AtomicBool::new(false);
        let driven = stage.supervised(|| {
            thread::scope(|scope| {
                // One after the other dies, twice, whether it sends, waits or does nothing; never two at a time.
                let killer = scope.spawn(|| {
                    let mut killed = 0;
                    while killed < 6 && !over.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(700));
                        let mut cluster = stage.cluster();
                        if cluster.at_work().len() == 3 {
                            let next = cluster.turn();
                            cluster.kill(next);
                            killed += 1;
                        }
                    }
                    killed
                });
                let limit = Duration::from_secs(3);
                let driven = stage.drive(&mut worker, limit, &tool, &arguments, name, nobody_is_asked);
                over.store(true, Ordering::Relaxed);
                let killed = killer.join().unwrap();
                ensure!(killed >= 3, "only {killed} replicas were killed");
                driven
            })
        })?;
        result(&driven).context(kind.name())?;
        stage.once(name).context(kind.name())?;
    }
    Ok(())
}
