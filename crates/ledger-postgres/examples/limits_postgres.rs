//! What limits cost on PostgreSQL: operations a second of 1, 16 and 64 callers without limits, all on one allowance of each
//! kind, and spread over 64. The server is its own, with fsync on.
//!
//! `cargo run --release -p counterfoil-ledger-postgres --example limits_postgres -- [seconds] [rounds]`; `TMPDIR` is where its data lie.

#![allow(clippy::unwrap_used)]

#[path = "../../ledger-sqlite/examples/operations/mod.rs"]
mod operations;

use ledger::SystemEnv;
use ledger_postgres::{Config, PgStore};
use std::sync::Arc;
use std::time::Duration;
use temp_postgres::{Options, TempPostgres};

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).map(|a| a.parse().unwrap());
    let (seconds, rounds) = (numbers.next().unwrap_or(3), numbers.next().unwrap_or(3));
    let settings =
        [("shared_buffers", "512MB"), ("max_wal_size", "4GB")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    let server = TempPostgres::start(Options { fsync: true, settings: settings.to_vec() });
    let config = Config::new(server.url(&server.database()), "bench");
    let store = PgStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).await.unwrap();
    operations::limited::measure(store.clone(), Duration::from_secs(seconds), rounds.try_into().unwrap())
        .await;
    store.close().await.unwrap();
}
