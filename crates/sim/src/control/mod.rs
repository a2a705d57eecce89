//! The control: a server for the same refund as the gateway's, built as such servers commonly are. What is measured of
//! the gateway is measured of it beside, so that a table of numbers says what the difference is, and so that a harness
//! which stopped seeing duplicates would be noticed.
//!
//! Its design is that of the idempotency utilities in wide use, of which Powertools for AWS Lambda is the best known
//! (releases since 1.26.7 of July 2022 for Python; the same in TypeScript, Java and .NET):
//!
//! - One durable record for each idempotency key: the caller's key, or the whole payload where there is none.
//! - **Claim**: one conditional write makes the record `in_progress` with an expiry, if there is none, or it has expired,
//!   or it was left in progress past its expiry, which is how a crashed run is told from one at work.
//! - **Run**, if the claim succeeded: one request to the provider. It bears no idempotency key of the provider's; the
//!   record is thought to be enough.
//! - **Completed**: the answer is stored in the record, and only then returned. A retry gets the stored answer.
//! - **In progress** by another: the retry waits, and after a while is told to come again.
//! - **An error** while it runs (a connection that ended, a time-out, a 5xx) deletes the record, so that the retry runs.
//!
//! It is a fair one: the store is SQLite with `synchronous=FULL` and one transaction for each step; nothing is answered
//! before it is stored; a caller that leaves doesn't end the run; a key with another payload is refused; the expiry is
//! longer than a run may take. Where it makes a second effect, the design does: between the provider's effect and the
//! record's completion only the provider knows of the effect, and the expired record says *run it again*.
//!
//! It speaks as much of MCP 2026-07-28 over HTTP as a `tools/call` needs, has one tool, and passes the named points of
//! the gateway's failpoints that it has, at the same places of its way.

mod point;
mod server;
mod store;
mod wire;

pub use server::{Settings, serve};
