//! Sealed tokens: what this server hands out and takes back, unread and unchanged by whoever carried it.
//!
//! What it promises: a token is opened only by who holds the ring, only for exactly the [`Context`] that it was sealed
//! for, and only before its end; whatever else arrives is a [`Reject`], which looks the same to the outside whatever the
//! reason. Nothing inside a token is read before its authenticity is proved. The ring is one for all replicas on a ledger:
//! made once, by compare-and-set, kept wrapped under a master key that the ledger doesn't have, and never replaced
//! because it could not be opened. It turns in stages, so that no token in flight is refused. Time comes in from the
//! ledger's clock.
//!
//! Beside the tokens, a vault: secrets that the ledger keeps for long, under keys that lie with the ring. And [`rest`]: secrets
//! that are kept elsewhere, under a master key alone.
//!
//! Tokens are PASETO v4.local (XChaCha20, BLAKE2b), with the key's name in the footer and the context as the implicit
//! assertion.

mod context;
mod error;
mod keeper;
mod key;
mod manage;
mod master;
pub mod rest;
mod ring;
mod shelf;
mod token;
mod vault;
mod wrap;

pub use context::Context;
pub use error::{Error, OpenError, Reject, SealError};
pub use keeper::{Keeper, Settings};
pub use key::{Key, KeyId};
pub use manage::{Operation, Told, alter, look};
pub use master::{FILE, MasterError, MasterId, MasterKey, MasterPlace};
pub use ring::{Change, LONGEST_LIFETIME, MAX_KEYS, POLL, Refusal, Ring, SPREAD, STALE, Stage, Turning};
pub use shelf::{Kept, NAME, OnLedger, Shelf};
pub use token::{MAX_PAYLOAD, MAX_TOKEN};
pub use vault::{MAX_SECRET, MAX_VAULT_KEYS};
pub use wrap::{MAX_MASTERS, Wrapped};
