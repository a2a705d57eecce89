//! The power is cut at every barrier, and between them: what was answered `Done` is there, and nothing is half there.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use counterfoil_powerloss::{Disk, Event, Files, Loss};
use ledger_sqlite::planted::Planted;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::load::User;
use support::told::{Cell, Known, Told};
use support::{Watched, block_on, open};

/// The workload, over two starts: the first is closed in order, the second is not.
fn record(planted: Planted) -> (Vec<Event>, Arc<Told>) {
    let w = Watched::new(&Files::new());
    // The store makes the database file and syncs its directory before SQLite sees it.
    let told = Told::new(w.recorder.clone());
    for boot in 0..2_u64 {
        let n = told.begun(&Cell::Boot, format!("boot {}", boot + 1));
        let (store, said) = open(w.config(planted)).unwrap();
        told.done(&Cell::Boot, n);
        block_on(async {
            let user = User { store: &store, told: &told };
            let refused = user.everything(100 * boot, &w.recorder).await;
            assert!(refused.is_empty(), "{refused:?}");
            if boot == 0 {
                store.close().await.unwrap();
            }
        });
        drop(store);
        assert!(said.lock().unwrap().is_empty());
    }
    (w.recorder.log(), told)
}

/// A moment of the record, and what may be left after a cut then.
struct Cut {
    at: usize,
    loss: Loss,
    files: Files,
}

/// Cuts at every barrier, just before and just after it, and at every write of which there are few in a row; of
/// long rows of writes some are taken.
fn cuts(log: &[Event], lots: u64) -> (Vec<Cut>, usize) {
    let mut base = Files::new();
    base.insert("ledger.db".into(), Vec::new());
    let mut disk = Disk::new(&base);
    let (mut cuts, mut barriers, mut row) = (Vec::new(), 0, 0);
    let mut take = |disk: &Disk, at: usize, losses: &[Loss]| {
        cuts.extend(losses.iter().map(|loss| Cut { at, loss: *loss, files: disk.after(*loss) }));
    };
    for (n, event) in log.iter().enumerate() {
        if matches!(event, Event::Sync { .. }) {
            barriers += 1;
            row = 0;
            if !disk.is_settled() {
                let mut losses = vec![Loss::All, Loss::Nothing, Loss::LastTorn, Loss::Zeros];
                losses.extend((0..lots).map(|i| Loss::Some(n as u64 * 1000 + i)));
                take(&disk, n, &losses);
            }
        }
        disk.step(event);
        match event {
            Event::Sync { .. } => {
                take(&disk, n + 1, if disk.is_settled() { &[Loss::All] } else { &[Loss::All, Loss::Nothing] })
            }
            Event::Write { .. } | Event::Resize { .. } | Event::Delete { .. } => {
                row += 1;
                if row <= 4 || row % 101 == 0 {
                    take(&disk, n + 1, &[Loss::LastTorn, Loss::Some(n as u64)]);
                }
            }
            Event::Beside(_) => take(&disk, n + 1, &[Loss::All]),
            // An answer without a barrier since: what it says must be durable already.
            Event::Mark(_) => take(&disk, n + 1, &[Loss::All]),
            Event::Create(_) | Event::SyncDir => {}
        }
    }
    (cuts, barriers)
}

/// Checks every cut, on two threads. Says what is wrong at most so often.
fn judge(log: &[Event], told: &Told, cuts: &[Cut]) -> Vec<String> {
    let known: Vec<Known> = cuts.iter().map(|c| told.at(&log[..c.at])).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrong = Vec::new();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(cut) = cuts.get(n) else { return wrong };
            if let Err(why) = known[n].check(told, &cut.files) {
                wrong.push(format!("cut after event {}, {:?} lost: {why}", cut.at, cut.loss));
            }
        }
    };
    std::thread::scope(|s| {
        let other = s.spawn(work);
        let mut wrong = work();
        wrong.extend(other.join().unwrap());
        wrong
    })
}

#[test]
fn nothing_acknowledged_is_lost() {
    let (log, told) = record(Planted::default());
    let (mut cuts, barriers) = cuts(&log, 6);
    let all = cuts.len();
    // Where nothing changed, nothing new can be seen.
    cuts.dedup_by(|b, a| a.files == b.files && told.at(&log[..a.at]) == told.at(&log[..b.at]));
    let wrong = judge(&log, &told, &cuts);
    let acknowledged = told.at(&log).acknowledged();
    println!(
        "{} events, {barriers} barriers, {} cuts ({all} with repetitions), {acknowledged} writes acknowledged",
        log.len(),
        cuts.len()
    );
    assert!(wrong.is_empty(), "{} of {}: {:#?}", wrong.len(), cuts.len(), &wrong[..wrong.len().min(5)]);
    assert!(barriers >= 40 && acknowledged >= 60, "the workload shrank");
    assert!(
        log.iter().any(|e| matches!(e, Event::Sync { file, .. } if &**file == "ledger.db")),
        "the log was copied into the database"
    );
}

#[test]
fn a_second_cut_during_recovery_loses_nothing_either() {
    let (log, told) = record(Planted::default());
    let (cuts, _) = cuts(&log, 1);
    let mut tried = 0;
    // One in so many: each is a start with cuts of its own.
    for first in cuts.iter().filter(|c| matches!(c.loss, Loss::Some(_))).step_by(9) {
        let w = Watched::new(&first.files);
        let (store, _) = open(w.config(Planted::default())).unwrap();
        drop(store);
        let again = w.recorder.log();
        let mut disk = Disk::new(&first.files);
        let known = told.at(&log[..first.at]).and_a_start();
        for (n, event) in again.iter().enumerate() {
            if matches!(event, Event::Sync { .. }) {
                for loss in [Loss::All, Loss::Nothing, Loss::Some(n as u64)] {
                    let checked = known.check(&told, &disk.after(loss));
                    tried += 1;
                    assert!(checked.is_ok(), "cut after event {} and again after {n}: {checked:?}", first.at);
                }
            }
            disk.step(event);
        }
    }
    println!("{tried} second cuts");
    assert!(tried > 50);
}

#[test]
fn a_store_that_does_not_sync_its_commits_is_caught() {
    let (log, told) = record(Planted { relaxed_sync: true, ..Planted::default() });
    let (mut cuts, _) = cuts(&log, 0);
    cuts.retain(|c| c.loss == Loss::All);
    cuts.dedup_by(|b, a| a.files == b.files && told.at(&log[..a.at]) == told.at(&log[..b.at]));
    let wrong = judge(&log, &told, &cuts);
    println!("{} of {} cuts lose acknowledged writes", wrong.len(), cuts.len());
    assert!(wrong.iter().any(|w| w.contains("was acknowledged")), "{wrong:?}");
}
