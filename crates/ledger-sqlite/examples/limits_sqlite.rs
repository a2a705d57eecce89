//! What limits cost on SQLite: operations a second of 1, 16 and 64 callers without limits, all on one allowance of each kind,
//! and spread over 64.
//!
//! `cargo run --release -p counterfoil-ledger-sqlite --example limits_sqlite -- [seconds] [rounds]`; `TMPDIR` is where the database lies.

#![allow(clippy::unwrap_used)]

mod operations;

use counterfoil_ledger_sqlite::{Config, SqliteStore};
use ledger::SystemEnv;
use std::sync::Arc;
use std::time::Duration;

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).map(|a| a.parse().unwrap());
    let (seconds, rounds) = (numbers.next().unwrap_or(3), numbers.next().unwrap_or(3));
    let dir = tempfile::tempdir().unwrap();
    let config = Config { ballast: 0, ..Config::new(dir.path().join("ledger.db"), "bench") };
    let store = SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).unwrap();
    operations::limited::measure(store.clone(), Duration::from_secs(seconds), rounds.try_into().unwrap())
        .await;
    store.close().await.unwrap();
}
