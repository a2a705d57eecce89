//! What strangers, other callers and other servers can do with state that travels, over HTTP against real processes:
//! nothing, and they learn nothing by trying.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "state_attacks/handles.rs"]
mod handles;
#[path = "state_attacks/legacy.rs"]
mod legacy;
#[path = "state_attacks/stage.rs"]
mod stage;
#[path = "state_attacks/tasks.rs"]
mod tasks;
#[path = "state_attacks/tokens.rs"]
mod tokens;
#[path = "state_attacks/widening.rs"]
mod widening;
