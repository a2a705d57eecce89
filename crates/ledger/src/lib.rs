//! The operation ledger: durable records of tool calls that change the world.
//!
//! This crate is the ground floor. It knows nothing of MCP, HTTP or SQL. What it promises:
//!
//! - the state machine is pure: [`decide()`] takes a record, an event and a time, and says the next record
//!   or why not; [`step::next`] says what may safely be done about an effect; neither has I/O, a clock or
//!   randomness of its own;
//! - [`Store`] persists a transition atomically, under a compare-and-set on the record's version;
//! - [`Ledger`] is the service on both: it finds the operation a call belongs to, runs attempts, resumes
//!   them after a crash, and keeps account of deliveries;
//! - time, randomness and spawning come in through [`Env`], so that a simulator can own them.
//!
//! The words are those of the contract in `docs/concepts.md`.

pub mod bus;
pub mod canonical;
pub mod claims;
pub mod codes;
pub mod decide;
pub mod effect;
pub mod env;
pub mod executor;
pub mod failpoint;
pub mod figures;
pub mod gaps;
pub mod handle;
pub mod input;
pub mod keys;
pub mod memory;
pub mod operation;
pub mod planted;
pub mod service;
mod shelf;
pub mod step;
pub mod store;
pub mod twin;
pub mod words;

pub use canonical::{Canonical, CanonicalError, Fingerprint};
pub use claims::{Allowance, Claim, Claimed, Period, Term};
pub use decide::{Event, Refusal, Transition, Verdict, decide};
pub use effect::{Effect, EffectState, Intent, Recovery, Strategy};
pub use env::{Env, SystemEnv};
pub use executor::{Asked, Executor, Looked, Receipt, Sent};
pub use handle::{Handle, HandleChange, HandleConflict, HandleFound};
pub use input::{Answered, Ask, Input, InputDigest, InputKind};
pub use keys::{CallerKey, Carrier, Secret};
pub use operation::{
    Caller, Delivery, DeliveryState, Execution, Operation, OperationPolicy, TaskOut, Unkeyed,
};
pub use service::{
    Admission, Answer, Attempt, Call, CallError, Changes, Creation, JoinedBy, Kind, Ledger, Note, Observer,
    Pass, Performed, Progress, ReadHold, RunError, Runner, Settings, Silent, Stopped, ToolResult,
};
pub use store::{Blob, BlobKind, Committed, Store, StoreError};
pub use words::{EffectKey, Epoch, Key, KeyHash, Millis, OperationId, Scope, SlotHash, Time};
