//! The deterministic simulator of the operation ledger. For tests; never shipped.
//!
//! It runs the real `ledger` (service, recovery, joining, `decide`, `step`) under a scheduler that owns time, ids and
//! randomness: up to five callers, up to three replicas, a provider of each class, a store as SQLite, PostgreSQL or the
//! bare contract has it ([`Semantics`]), replicas that die, stall past their lease and wake. Callers answer what they are
//! asked, say yes and no, come back in legs or hold a task; tools ask and keep handles. The invariants of the contract are
//! checked at every write, every send, every effect and every answer, liveness at the end. The same seed gives the same
//! schedule; a failing one is shrunk and replays with a trace.
//!
//! Modules: `world` (time and tasks), `lab` (what is shared, what really happened), `plan` and `shrink` (a schedule),
//! `store`, `pg` and `reads` over `model` (what is stored), `limits` (what is allowed, and the account of it), `boot` (replicas), `caller`, `asked` and `serve` (calls),
//! `tool` and `provider`, `check` and `books` (the invariants), `run` and `campaign`.

mod asked;
mod books;
mod boot;
mod caller;
pub mod campaign;
mod check;
#[cfg(feature = "control")]
pub mod control;
mod coverage;
mod lab;
mod limits;
mod model;
mod pg;
mod plan;
mod provider;
mod reads;
mod rng;
mod run;
mod semantics;
mod serve;
pub mod shrink;
mod store;
#[cfg(test)]
mod tests;
mod tool;
mod trace;
mod world;

pub use coverage::Coverage;
pub use lab::Violation;
pub use run::Outcome;
pub use semantics::{Semantics, guards};

/// Runs the schedule of a seed, on `semantics` or on what the seed draws; `recording`: with a trace for people.
#[must_use]
pub fn simulate(seed: u64, semantics: Option<Semantics>, recording: bool) -> Outcome {
    run::run(&plan::Plan::draw(seed, semantics), recording)
}
