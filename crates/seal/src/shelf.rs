//! Where the ring is kept: one named value that is changed by compare-and-set.

use async_trait::async_trait;
use ledger::{Store, Time};
use std::sync::Arc;

/// The name under which the ring is kept.
pub const NAME: &str = "seal/ring";

/// A value as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// From 1; another one after every change.
    pub version: u64,
    /// The value.
    pub data: Vec<u8>,
}

/// What the ring asks of a store.
#[async_trait]
pub trait Shelf: Send + Sync + 'static {
    /// The ledger's time now.
    fn now(&self) -> Time;
    /// The value of a name.
    ///
    /// # Errors
    /// The store can't be asked.
    async fn kept(&self, name: &str) -> Result<Option<Kept>, String>;
    /// Sets it, durably, if its version is still `expected` (0: there is none). `false`: it isn't.
    ///
    /// # Errors
    /// The store can't be asked; whether it was written is not known.
    async fn keep(&self, name: &str, expected: u64, data: Vec<u8>) -> Result<bool, String>;
}

/// The shelf of a ledger.
#[derive(Clone)]
pub struct OnLedger(pub Arc<dyn Store>);

#[async_trait]
impl Shelf for OnLedger {
    fn now(&self) -> Time {
        self.0.now()
    }
    async fn kept(&self, name: &str) -> Result<Option<Kept>, String> {
        let found = self.0.shelved(name).await.map_err(|e| e.to_string())?;
        Ok(found.map(|s| Kept { version: s.version, data: s.data }))
    }
    async fn keep(&self, name: &str, expected: u64, data: Vec<u8>) -> Result<bool, String> {
        self.0.shelve(name, expected, data, None).await.map_err(|e| e.to_string())
    }
}
