//! State that outlives a call, with the official clients at replicas behind nginx: the example `basket`, of which a replica
//! is killed at each step. Each change is made once, nothing is lost, and a handle is good for its owner alone. Payments
//! are counted at the provider.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "basket/kills.rs"]
mod kills;
#[path = "basket/owners.rs"]
mod owners;
#[path = "basket/races.rs"]
mod races;
#[path = "basket/shop.rs"]
mod shop;
#[allow(dead_code)]
#[path = "rounds/stage.rs"]
mod stage;
