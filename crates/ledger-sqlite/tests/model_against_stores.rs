//! The pure model and every store run the same random sequences, and agree on every answer and, after every step, on
//! everything that is in them. Transitions are real ones: each update is what `decide` makes of a record.
//!
//! Sequences are run until nothing new is seen any more, and what has to be seen is counted. A store to come is held
//! to it by one line at the end. `LEDGER_SEED` repeats a run; a failure names its seed and the shortest sequence.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "model/action.rs"]
mod action;
mod contract;
mod model;
#[path = "model/pair.rs"]
mod pair;

use contract::T0;
use counterfoil_ledger_sqlite::{Config, SqliteStore};
use ledger::SystemEnv;
use ledger::memory::MemoryStore;
use ledger::store::{Attention, Store};
use pair::{Subject, agrees};
use std::sync::Arc;

fn memory() -> Subject {
    let mut newest = Arc::new(MemoryStore::new(Arc::new(SystemEnv), T0, Attention::default()));
    let store: Arc<dyn Store> = newest.clone();
    let open = move || {
        newest = Arc::new(newest.restart());
        newest.clone() as Arc<dyn Store>
    };
    Subject { store, open: Box::new(open), _keep: Box::new(()), pace: 1 }
}

/// In memory-backed files where there are any: this is about answers, not about disks.
fn sqlite() -> Subject {
    let shm = std::path::Path::new("/dev/shm");
    let dir = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap();
    // Keys and slots go to their tables in the midst of it.
    let config = Config {
        ballast: 0,
        min_free: 0,
        unindexed_rows: 3,
        ..Config::new(dir.path().join("ledger.db"), "test")
    };
    let open = move || {
        SqliteStore::open(config.clone(), Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).unwrap()
            as Arc<dyn Store>
    };
    Subject { store: open(), open: Box::new(open), _keep: Box::new(dir), pace: 1 }
}

#[test]
fn memory_store() {
    agrees("in memory", memory);
}

#[test]
fn sqlite_store() {
    agrees("on SQLite", sqlite);
}
