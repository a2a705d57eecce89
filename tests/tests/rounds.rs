//! State that travels, with the clients that carry it: questions, approvals, long calls and tasks of official clients and of the
//! project's own, at replicas behind nginx of which one or the other is killed meanwhile. Effects are counted at the
//! provider, in two books.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "rounds/approvals.rs"]
mod approvals;
#[path = "rounds/kills.rs"]
mod kills;
#[path = "rounds/legs.rs"]
mod legs;
#[path = "rounds/shown.rs"]
mod shown;
#[path = "rounds/stage.rs"]
mod stage;
#[path = "rounds/tasks.rs"]
mod tasks;

use anyhow::{Context, Result, ensure};
use counterfoil_tests::clients::{Kind, Question, Worker};
use counterfoil_tests::stand::Class;
use counterfoil_tests::wire::Said;
use stage::{NOTE, ORDERS, Stage, agreeable, order, result};
use std::time::Duration;

/// Both questions were put once, in their order, and the effect is what was answered.
fn two_rounds(stage: &Stage, kind: Kind, name: &str) -> Result<()> {
    let mut worker = Worker::start(kind, stage.project.path())?;
    let limit = Duration::from_secs(10);
    let driven = stage.drive(&mut worker, limit, ORDERS, &order(name), name, agreeable)?;
    let value = result(&driven)?;
    ensure!(driven.repeats == 0, "{} repeats", driven.repeats);
    let shown: Vec<bool> = driven.asked.iter().map(|m| m.contains("amount")).collect();
    ensure!(shown == [true, false], "{:?}", driven.asked);
    ensure!(value.to_string().contains(NOTE), "{value}");
    stage.once(name)?;
    // The same again is answered from the ledger, and nobody is asked anything.
    let again = stage.drive(&mut worker, limit, ORDERS, &order(name), name, agreeable)?;
    ensure!(again.asked.is_empty() && result(&again)? == value, "{:?} {:?}", again.asked, again.said);
    // A user who says no causes nothing.
    let no = format!("{name}_no");
    let refused = stage.drive(&mut worker, limit, ORDERS, &order(&no), &no, |question| {
        let agreed = agreeable(question)?;
        let first = agreed["content"]["amount"].is_number();
        Ok(if first { agreed } else { Question::decline() })
    })?;
    ensure!(matches!(refused.said, Said::Result { is_error: true, .. }), "{:?}", refused.said);
    ensure!(stage.sandbox().count(Class::Key, &no)? == (0, 0), "a refusal had an effect");
    Ok(())
}

#[test]
fn two_rounds_are_one_effect_with_every_official_client() -> Result<()> {
    let stage = Stage::open(true, "")?;
    // The Rust client is not asked here: its worker answers no questions.
    let kinds = Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Rust | Kind::RustLegacy));
    for (n, kind) in kinds.enumerate() {
        two_rounds(&stage, kind, &format!("two{n}")).with_context(|| kind.name())?;
    }
    ensure!(!stage.cluster().lost_one(), "a replica ended");
    Ok(())
}
