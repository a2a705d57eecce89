//! A store that tells what it was asked, and can be away.

use async_trait::async_trait;
use ledger::claims::{Claim, Claimed};
use ledger::gaps::Gaps;
use ledger::memory::MemoryStore;
use ledger::store::*;
use ledger::{BlobKind, Epoch, Handle, KeyHash, Millis, Operation, OperationId, SlotHash, Time};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A store that notes what it is asked about operations, their parts and handles; not what the ledger does by itself.
pub struct Counted {
    inner: Arc<MemoryStore>,
    asked: Mutex<Vec<&'static str>>,
    /// It can't be read.
    pub away: AtomicBool,
}

impl Counted {
    pub fn of(inner: Arc<MemoryStore>) -> Counted {
        Counted { inner, asked: Mutex::default(), away: AtomicBool::new(false) }
    }
    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }
    fn there(&self) -> Result<(), StoreError> {
        if self.away.load(Ordering::SeqCst) { Err(StoreError::Unavailable("test".into())) } else { Ok(()) }
    }
    pub fn taken(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

#[async_trait]
impl Store for Counted {
    fn now(&self) -> Time {
        self.inner.now()
    }
    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }
    fn is_live(&self, epoch: Epoch) -> bool {
        self.inner.is_live(epoch)
    }
    fn clock_step(&self) -> Option<Time> {
        self.inner.clock_step()
    }
    fn gaps(&self) -> &Gaps {
        self.inner.gaps()
    }
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }
    async fn write(&self, write: Write) -> Result<Committed, StoreError> {
        self.note("write");
        self.inner.write(write).await
    }
    fn write_lazily(&self, write: Write) {
        self.inner.write_lazily(write);
    }
    async fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush().await
    }
    async fn by_id(&self, id: OperationId) -> Result<Option<Found>, StoreError> {
        self.note("by_id");
        self.there()?;
        self.inner.by_id(id).await
    }
    async fn owned(&self, who: &str, id: OperationId) -> Result<Option<Operation>, StoreError> {
        self.note("owned");
        self.there()?;
        self.inner.owned(who, id).await
    }
    async fn by_key(&self, key: &KeyHash) -> Result<Option<Found>, StoreError> {
        self.note("by_key");
        self.there()?;
        self.inner.by_key(key).await
    }
    async fn by_slot(&self, slot: &SlotHash) -> Result<Option<Operation>, StoreError> {
        self.note("by_slot");
        self.there()?;
        self.inner.by_slot(slot).await
    }
    async fn blob(&self, id: OperationId, kind: BlobKind) -> Result<Option<Vec<u8>>, StoreError> {
        self.note("blob");
        self.there()?;
        self.inner.blob(id, kind).await
    }
    async fn due(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.inner.due(now, limit).await
    }
    async fn orphans(&self, after: Option<OperationId>, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.inner.orphans(after, limit).await
    }
    async fn next_attention(&self) -> Result<Option<Time>, StoreError> {
        self.inner.next_attention().await
    }
    async fn list(&self, query: &Query) -> Result<Vec<Operation>, StoreError> {
        self.note("list");
        self.inner.list(query).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.inner.counts().await
    }
    async fn prune(&self, now: Time, tombstones_for: Millis, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune(now, tombstones_for, limit).await
    }
    async fn claim(&self, holder: OperationId, turn: u64, claims: &[Claim]) -> Result<Claimed, StoreError> {
        self.note("claim");
        self.inner.claim(holder, turn, claims).await
    }
    async fn release_claims(&self, who: OperationId, turn: u64, b: &[String]) -> Result<(), StoreError> {
        self.inner.release_claims(who, turn, b).await
    }
    async fn prune_claims(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_claims(now, limit).await
    }
    async fn put_api_key(&self, key: ApiKey) -> Result<(), StoreError> {
        self.inner.put_api_key(key).await
    }
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        self.inner.api_keys().await
    }
    async fn open_session(&self, session: Session) -> Result<Vec<String>, StoreError> {
        self.inner.open_session(session).await
    }
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        self.note("session");
        self.inner.session(id).await
    }
    async fn change_session(&self, id: &str, change: SessionChange) -> Result<Option<Session>, StoreError> {
        self.note("change_session");
        self.inner.change_session(id, change).await
    }
    async fn end_session(&self, id: &str) -> Result<bool, StoreError> {
        self.note("end_session");
        self.inner.end_session(id).await
    }
    async fn prune_sessions(&self, unused_since: Time, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_sessions(unused_since, limit).await
    }
    async fn handle(&self, id: &[u8; 32], who: &str, now: Time) -> Result<Option<Handle>, StoreError> {
        self.note("handle");
        self.inner.handle(id, who, now).await
    }
    async fn handles(
        &self,
        who: &str,
        kind: Option<&str>,
        after: Option<[u8; 32]>,
        limit: usize,
        now: Time,
    ) -> Result<Vec<Handle>, StoreError> {
        self.note("handles");
        self.inner.handles(who, kind, after, limit, now).await
    }
    async fn touch_handle(&self, id: &[u8; 32], who: &str, at: Time) -> Result<(), StoreError> {
        self.note("touch_handle");
        self.inner.touch_handle(id, who, at).await
    }
    async fn prune_handles(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_handles(now, limit).await
    }
    async fn shelved(&self, name: &str) -> Result<Option<Shelved>, StoreError> {
        // The key ring is looked for by itself, now and then.
        if name != seal::NAME {
            self.note("shelved");
        }
        self.there()?;
        self.inner.shelved(name).await
    }
    async fn shelve(
        &self,
        name: &str,
        ver: u64,
        data: Vec<u8>,
        until: Option<Time>,
    ) -> Result<bool, StoreError> {
        self.inner.shelve(name, ver, data, until).await
    }
    async fn prune_shelf(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_shelf(now, limit).await
    }
    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }
}
