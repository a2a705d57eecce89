//! The store's semantics on PostgreSQL, as `ledger-postgres` gives them to the ledger.
//!
//! - `server`: what the database does: statements, boots and their ends, its clock, its restarts, its bells;
//! - `writer`: the queue of a replica, whose batches are one statement each;
//! - `pulse`: its lease, and the epochs that it goes on under;
//! - `bus`: the bells between replicas;
//! - `claims`: claims, and what is given back, over a connection of their own;
//! - `store`: the contract over all that.
//!
//! Written a second time and as plainly as possible: nothing of the real store is used here.

mod bus;
mod claims;
mod pulse;
mod server;
mod store;
mod writer;

pub(crate) use bus::{SimBus, heed};
pub(crate) use server::Server;
pub(crate) use store::Replica;
