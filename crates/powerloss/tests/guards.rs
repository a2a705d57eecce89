//! Guards around the directory, each with the check that misses it.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use counterfoil_powerloss::{Disk, Event, Files, Loss};
use ledger::store::{Query, Store};
use ledger::words::Millis;
use ledger_sqlite::OpenError;
use ledger_sqlite::planted::Planted;
use std::path::Path;
use std::process::Command;
use support::load::User;
use support::told::Told;
use support::{BESIDE, Watched, block_on, config, directory, lay, open};

/// The files of a directory that matter after a stop.
fn files(dir: &Path) -> Files {
    let mut all = Files::new();
    for name in ["ledger.db", "ledger.db-wal", BESIDE[0], BESIDE[1]] {
        if let Ok(bytes) = std::fs::read(dir.join(name)) {
            all.insert(name.into(), bytes);
        }
    }
    all
}

/// A ledger that was put back from a backup beside its own directory, and is started; the power is cut at every
/// moment of that start. Says after which events the next start would let new operations in.
fn unnoticed(planted: Planted) -> (Vec<usize>, usize) {
    let dir = directory();
    drop(open(config(dir.path())).unwrap());
    let backup = files(dir.path());
    drop(open(config(dir.path())).unwrap());
    let mut restored = files(dir.path());
    restored.retain(|name, _| BESIDE.contains(&&**name));
    restored.extend(backup.into_iter().filter(|(name, _)| !BESIDE.contains(&&**name)));

    let w = Watched::new(&restored);
    let (store, _) = open(w.config(planted)).unwrap();
    assert!(store.is_held());
    drop(store);
    let mut disk = Disk::new(&restored);
    let (mut let_in, mut tried) = (Vec::new(), 0);
    for (n, event) in w.recorder.log().iter().enumerate() {
        disk.step(event);
        if matches!(event, Event::Create(_) | Event::Mark(_)) {
            continue;
        }
        for loss in [Loss::All, Loss::Nothing, Loss::Some(n as u64)] {
            let after = directory();
            lay(after.path(), &disk.after(loss));
            let (store, _) = open(config(after.path())).unwrap();
            tried += 1;
            if !store.is_held() {
                let_in.push(n);
            }
        }
    }
    (let_in, tried)
}

#[test]
fn a_restored_ledger_is_held_whenever_the_power_goes() {
    let (let_in, tried) = unnoticed(Planted::default());
    println!("{tried} cuts");
    assert!(let_in.is_empty() && tried >= 10, "after events {let_in:?} of {tried} cuts");
}

#[test]
fn a_ledger_that_is_held_too_late_is_caught() {
    let (let_in, tried) = unnoticed(Planted { hold_late: true, ..Planted::default() });
    println!("{} of {tried} cuts let new operations in", let_in.len());
    assert!(!let_in.is_empty());
}

const SECOND: &str = "LEDGER_SECOND_PROCESS";

/// The other process: opens what is in use, and writes. Does nothing when run as one of the tests.
#[test]
fn second() {
    let Ok(arg) = std::env::var(SECOND) else { return };
    let (dir, unlocked) = arg.rsplit_once('|').unwrap();
    let planted = Planted { unlocked: unlocked == "true", ..Planted::default() };
    match open(ledger_sqlite::Config { planted, ..config(Path::new(dir)) }) {
        Err(OpenError::Locked { .. }) => println!("\nLOCKED OUT"),
        Err(e) => panic!("{e}"),
        Ok((store, _)) => {
            let w = Watched::new(&Files::new());
            let told = Told::new(w.recorder.clone());
            let user = User { store: &store, told: &told };
            block_on(async {
                for n in 100..110 {
                    user.left_open(n).await.unwrap();
                }
            });
            println!("\nLET IN");
        }
    }
}

/// Two processes on one directory. Says what is wrong with that.
fn two_processes(unlocked: bool) -> Vec<String> {
    let dir = directory();
    let planted = Planted { unlocked, ..Planted::default() };
    let (store, _) = open(ledger_sqlite::Config { planted, ..config(dir.path()) }).unwrap();
    let w = Watched::new(&Files::new());
    let told = Told::new(w.recorder.clone());
    let user = User { store: &store, told: &told };
    block_on(user.operation(0, Millis::secs(60), 10)).unwrap();
    let other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "second", "--nocapture", "--test-threads=1"])
        .env(SECOND, format!("{}|{unlocked}", dir.path().display()))
        .output()
        .unwrap();
    assert!(other.status.success(), "{other:?}");
    let mut wrong = Vec::new();
    let said = String::from_utf8_lossy(&other.stdout).into_owned();
    assert!(said.contains("LOCKED OUT") != said.contains("LET IN"), "{said}");
    if said.contains("LET IN") {
        wrong.push("a second process was let in".into());
    }
    block_on(async {
        user.left_open(1).await.unwrap();
        let there = store.list(&Query { limit: usize::MAX, ..Query::default() }).await.unwrap();
        let counted: u64 = store.counts().await.unwrap().execution.values().sum();
        if counted != there.len() as u64 {
            wrong.push(format!("{counted} operations are counted, {} are there", there.len()));
        }
        if let Some(op) = there.iter().find(|op| op.owner.0 > store.epoch().0) {
            wrong.push(format!("{:?} writes, and {:?} owns an operation", store.epoch(), op.owner));
        }
    });
    wrong
}

#[test]
fn one_process_at_a_time() {
    assert_eq!(two_processes(false), [""; 0]);
}

#[test]
fn a_second_process_that_is_let_in_is_caught() {
    let wrong = two_processes(true);
    println!("{wrong:#?}");
    assert_eq!(wrong.len(), 3, "{wrong:?}");
}
