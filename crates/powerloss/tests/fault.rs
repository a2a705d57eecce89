//! The disk fails, or is full, at every barrier and at many writes: refusal or stop, as is promised, and nothing
//! acknowledged is lost after the restart.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use counterfoil_powerloss::{Disk, Event, Failure, Files, Loss, Plan};
use ledger::StoreError;
use ledger::store::Store;
use ledger_sqlite::planted::Planted;
use ledger_sqlite::{OpenError, SqliteStore};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::load::{User, id};
use support::told::{Cell, Told, sound};
use support::{Watched, block_on, config, open};

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// The fault lay beyond its end.
    NotMet,
    /// It could not be opened.
    NotOpened,
    /// It stopped, and said so once.
    Stopped,
    /// It refused, and went on when there was room.
    Refused,
    /// Nobody was refused: only copying the log had to wait.
    Unnoticed,
}

fn unavailable<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unavailable(_)))
}

/// The workload with one fault, then a restart.
fn run(plan: Plan) -> Result<Came, String> {
    let w = Watched::new(&Files::new());
    let told = Told::new(w.recorder.clone());
    w.recorder.plan(Some(plan));
    let n = told.begun(&Cell::Boot, "boot".into());
    let came = match open(w.config(Planted::default())) {
        Err(e) => {
            let full = matches!(plan.how, Failure::Full | Failure::FullHalf);
            if matches!(e, OpenError::DiskFull) != full {
                return Err(format!("it could not be opened: {e}"));
            }
            w.recorder.plan(None);
            Came::NotOpened
        }
        Ok((store, said)) => {
            told.done(&Cell::Boot, n);
            let came = block_on(used(&store, &w, &told, plan))?;
            drop(store);
            let said = said.lock().unwrap().len();
            if said != usize::from(came == Came::Stopped) {
                return Err(format!("{came:?}, and it said so {said} times"));
            }
            came
        }
    };
    // After a failure of the disk itself what is in memory proves nothing: all that was not synced may be gone.
    let log = w.recorder.log();
    let mut base = Files::new();
    base.insert("ledger.db".into(), Vec::new());
    let mut disk = Disk::new(&base);
    log.iter().for_each(|e| disk.step(e));
    for loss in [Loss::All, Loss::Nothing, Loss::Some(plan.first), Loss::Some(plan.first + 7919)] {
        let known = told.at(&log);
        known.check(&told, &disk.after(loss)).map_err(|why| format!("{came:?}, {loss:?} lost: {why}"))?;
    }
    // And the process alone: the directory as it is.
    drop(open(config(w.dir.path())).map_err(|e| format!("{came:?}, then: {e}"))?);
    sound(&w.dir.path().join("ledger.db"))?;
    Ok(came)
}

async fn used(store: &SqliteStore, w: &Watched, told: &Told, plan: Plan) -> Result<Came, String> {
    let user = User { store, told };
    let mut refused = user.everything(0, &w.recorder).await;
    let full = matches!(plan.how, Failure::Full | Failure::FullHalf);
    let mut stopped = unavailable(&store.counts().await);
    // What fails while the log is copied beside the writer is noticed soon, if nothing is written meanwhile.
    for _ in 0..100 {
        if stopped || full || w.recorder.failed() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        stopped = unavailable(&store.counts().await);
    }
    if stopped {
        w.recorder.plan(None);
        // Nothing builds on an unknown state, reads included.
        let closed = [
            unavailable(&store.by_id(id(0)).await),
            unavailable(&store.api_keys().await),
            unavailable(&user.left_open(90).await),
            unavailable(&store.flush().await),
        ];
        if closed.contains(&false) {
            return Err(format!("it stopped, yet answers: {closed:?}"));
        }
    }
    let met = w.recorder.failed() > 0;
    match (met, stopped, full) {
        (false, _, _) => {}
        (true, true, false) => return Ok(Came::Stopped),
        (true, false, false) => return Err(format!("{:?} was not noticed: {refused:?}", plan.how)),
        (true, true, true) => return Err(format!("a full disk stopped it: {refused:?}")),
        (true, false, true) => {
            if !refused.iter().all(|e| matches!(e, StoreError::Unavailable(_))) {
                return Err(format!("a full disk is known to have written nothing: {refused:?}"));
            }
        }
    }
    w.recorder.plan(if met { None } else { Some(plan_left(plan)) });
    if met {
        // It may say that news of deliveries was dropped on the way.
        let _ = store.flush().await;
    }
    let next = user.operation(91, ledger::words::Millis::secs(60), 20).await;
    if met && next.is_err() {
        return Err(format!("there is room again, and still: {next:?}"));
    }
    refused.extend(next.err());
    let closed = store.close().await;
    let met_at_last = !met && w.recorder.failed() > 0;
    if met_at_last && !full {
        return Ok(Came::Stopped);
    }
    if let Err(e) = closed {
        return Err(format!("it did not close: {e}"));
    }
    Ok(match (w.recorder.failed() > 0, refused.is_empty()) {
        (false, _) => Came::NotMet,
        (true, false) => Came::Refused,
        (true, true) => Came::Unnoticed,
    })
}

/// A plan that was not met by the workload is for its end.
fn plan_left(plan: Plan) -> Plan {
    Plan { first: 1, ..plan }
}

/// How many syncs there are without a fault, and which writes to fail at: the first after a sync, the last before
/// one, and some of each long row.
fn accesses() -> (u64, Vec<u64>) {
    let w = Watched::new(&Files::new());
    let told = Told::new(w.recorder.clone());
    let (store, _) = open(w.config(Planted::default())).unwrap();
    let refused = block_on(User { store: &store, told: &told }.everything(0, &w.recorder));
    assert!(refused.is_empty(), "{refused:?}");
    drop(store);
    let (mut syncs, mut writes, mut row, mut at) = (0, 0, 0, BTreeSet::new());
    for event in w.recorder.log() {
        match event {
            Event::Sync { .. } => {
                syncs += 1;
                row = 0;
                at.insert(writes);
            }
            Event::Write { .. } => {
                writes += 1;
                row += 1;
                if row <= 2 || row % 61 == 0 {
                    at.insert(writes);
                }
            }
            _ => {}
        }
    }
    (syncs, at.into_iter().filter(|n| *n > 0).collect())
}

/// Runs all plans, a few at a time, and counts what they came to.
fn all(plans: &[Plan]) -> Vec<Came> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut came = Vec::new();
        while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
            came.push(run(*plan).unwrap_or_else(|why| panic!("{plan:?}: {why}")));
        }
        came
    };
    let came: Vec<Came> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..8).map(|_| s.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let kinds = [Came::NotMet, Came::NotOpened, Came::Stopped, Came::Refused, Came::Unnoticed];
    for kind in kinds {
        println!("{kind:?}: {}", came.iter().filter(|c| **c == kind).count());
    }
    came
}

#[test]
fn a_failed_sync_stops_it_wherever_it_fails() {
    let (syncs, _) = accesses();
    let plans: Vec<Plan> =
        (1..=syncs + 3).map(|first| Plan { first, many: u64::MAX, how: Failure::Sync }).collect();
    let came = all(&plans);
    assert!(came.iter().filter(|c| **c == Came::Stopped).count() >= 15, "{came:?}");
    assert!(!came.contains(&Came::Refused) && !came.contains(&Came::Unnoticed), "{came:?}");
}

#[test]
fn a_failed_write_stops_it_too() {
    let (_, writes) = accesses();
    let plans: Vec<Plan> =
        writes.into_iter().map(|first| Plan { first, many: 1, how: Failure::Write }).collect();
    let came = all(&plans);
    assert!(came.contains(&Came::Stopped) && !came.contains(&Came::Refused), "{came:?}");
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let (_, writes) = accesses();
    let plans: Vec<Plan> = writes
        .into_iter()
        .flat_map(|first| {
            [
                Plan { first, many: u64::MAX, how: Failure::Full },
                Plan { first, many: 1, how: Failure::FullHalf },
            ]
        })
        .collect();
    let came = all(&plans);
    assert!(came.contains(&Came::Refused) && !came.contains(&Came::Stopped), "{came:?}");
}
