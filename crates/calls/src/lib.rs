//! What a caller sends to the ledger with a `tools/call`, and what it sees of it: one set of rules for every server that
//! ledgers calls, whatever wire it speaks.
//!
//! - [`key`]: the carriers of an idempotency key, and what happens when two disagree;
//! - [`argument`]: the `idempotency_key` argument, and which schemas allow for it;
//! - [`answer`]: errors that a model can act on, and the operation that a result names.
//!
//! It promises that the same call means the same to each of them. It has no I/O and no state, and knows JSON as
//! `serde_json` values or as text; who keeps foreign bytes does that around it.

pub mod answer;
pub mod argument;
pub mod key;

use serde_json::{Value, json};

/// The extension that announces idempotency keys.
pub const EXTENSION: &str = "dev.counterfoil/idempotency";

/// The most acknowledgements that one request may carry.
pub const MAX_ACKS: usize = 64;

/// What a server says about the extension: the carriers of keys that it reads, and how long a key is remembered, in
/// milliseconds.
#[must_use]
pub fn announcement(carriers: &[&str], retention_ms: i64) -> Value {
    json!({
        "keyCarriers": carriers,
        "metaKey": key::META_KEY,
        "header": "Idempotency-Key",
        "argument": argument::KEY_ARGUMENT,
        "scope": ["principal", "tool", "mode"],
        "retentionMs": retention_ms,
    })
}
