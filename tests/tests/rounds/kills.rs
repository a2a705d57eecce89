//! A replica is killed at each step of a call that asks.

use crate::stage::{ORDERS, Stage, agreeable, order, result};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::clients::{Kind, Worker};
use std::time::Duration;

/// Where a replica is killed, whichever comes there first.
const POINTS: [&str; 12] = [
    "open.before",
    "open.after",
    "ask.before",
    "ask.after",
    "ask.after@2",
    "answer.before",
    "answer.after",
    "answer.after@2",
    "send.after",
    "receipt.after",
    "close.after",
    "reply.before",
];

/// Of the modern era: who is asked holds everything, so a replica that dies between two rounds is not missed.
fn kills_between_rounds(stage: &Stage, kind: Kind) -> Result<()> {
    let mut worker = Worker::start(kind, stage.project.path())?;
    for round in ["amount", "note"] {
        let name = format!("between_{round}");
        let driven = stage.supervised(|| {
            stage.drive(&mut worker, Duration::from_secs(10), ORDERS, &order(&name), &name, |question| {
                let answer = agreeable(question)?;
                if answer["content"].get(round).is_some() {
                    let asked = stage.last_asked(ORDERS)?;
                    stage.cluster().kill(asked);
                }
                Ok(answer)
            })
        })?;
        result(&driven).with_context(|| name.clone())?;
        ensure!(driven.repeats == 0 && driven.asked.len() == 2, "{:?}", (driven.repeats, driven.asked));
        stage.once(&name)?;
    }
    Ok(())
}

/// A replica dies at a point of the call, and the host calls again.
fn kills_within(stage: &Stage, kind: Kind, limit: Duration) -> Result<()> {
    let mut worker = Worker::start(kind, stage.project.path())?;
    for point in POINTS {
        let name = format!("at_{}", point.replace(['.', '@'], "_"));
        stage.cluster().arm(point)?;
        let driven =
            stage.supervised(|| stage.drive(&mut worker, limit, ORDERS, &order(&name), &name, agreeable));
        let driven = driven.with_context(|| format!("killed at {point}"))?;
        result(&driven).with_context(|| format!("killed at {point}"))?;
        ensure!(!stage.is_armed(point), "nobody came to {point}");
        stage.once(&name).with_context(|| format!("killed at {point}"))?;
        // An answer that was recorded is not asked for again.
        let times = |word: &str| driven.asked.iter().filter(|m| m.contains(word)).count();
        ensure!(times("amount") <= 2 && times("note") <= 2, "{point}: {:?}", driven.asked);
    }
    Ok(())
}

fn kills_at_every_step(kind: Kind, limit: Duration) -> Result<()> {
    let stage = Stage::open(true, "")?;
    if !kind.is_legacy() {
        kills_between_rounds(&stage, kind)?;
    }
    kills_within(&stage, kind, limit)
}

#[test]
fn a_kill_at_every_step_of_two_rounds_is_one_effect_typescript() -> Result<()> {
    kills_at_every_step(Kind::TypeScript, Duration::from_secs(6))
}

#[test]
fn a_kill_at_every_step_of_two_rounds_is_one_effect_python() -> Result<()> {
    kills_at_every_step(Kind::Python, Duration::from_secs(6))
}

#[test]
fn a_kill_at_every_step_of_two_rounds_is_one_effect_typescript_1() -> Result<()> {
    kills_at_every_step(Kind::TypeScript1, Duration::from_secs(3))
}

#[test]
fn a_kill_at_every_step_of_two_rounds_is_one_effect_python_1() -> Result<()> {
    kills_at_every_step(Kind::Python1, Duration::from_secs(3))
}
