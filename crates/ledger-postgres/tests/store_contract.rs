//! Holds the store on PostgreSQL to the contract that all stores keep: the same suite, written once.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../ledger-sqlite/tests/contract/mod.rs"]
mod contract;
mod support;

use contract::Made;

fn postgres() -> Made {
    let config = support::config();
    let store = support::open(&config);
    Made { store, keep: Box::new(()), restart: Box::new(move || support::open(&config)) }
}

suite!(on_postgres, super::postgres);
