//! The pure model and the store on PostgreSQL run the same random sequences: see the test of this name of ledger-sqlite.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../ledger-sqlite/tests/model/action.rs"]
mod action;
#[path = "../../ledger-sqlite/tests/contract/mod.rs"]
mod contract;
#[path = "../../ledger-sqlite/tests/model/mod.rs"]
mod model;
#[path = "../../ledger-sqlite/tests/model/pair.rs"]
mod pair;
mod support;

use ledger::store::Store;
use pair::{Subject, agrees};
use std::sync::Arc;

fn postgres() -> Subject {
    let config = support::config();
    let open = move || support::open(&config) as Arc<dyn Store>;
    Subject { store: open(), open: Box::new(open), _keep: Box::new(()), pace: 4 }
}

#[test]
fn postgres_store() {
    agrees("on PostgreSQL", postgres);
}
