//! A gate that stops whoever passes, and a store whose writes pass it and may fail or take a while.

use super::pause;
use async_trait::async_trait;
use counterfoil_ledger::claims::{Claim, Claimed};
use counterfoil_ledger::memory::MemoryStore;
use counterfoil_ledger::store::*;
use counterfoil_ledger::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Stops whoever passes at a chosen step, for ever or until it is opened.
#[derive(Default)]
pub struct Gate {
    passed: AtomicUsize,
    stop_at: Mutex<Option<usize>>,
    pub reached: Notify,
    open: Notify,
    names: Mutex<Vec<&'static str>>,
}

impl Gate {
    pub fn at(step: usize) -> Arc<Gate> {
        Arc::new(Gate { stop_at: Mutex::new(Some(step)), ..Gate::default() })
    }
    pub async fn pass(&self, name: &'static str) {
        let n = self.passed.fetch_add(1, SeqCst);
        self.names.lock().unwrap().push(name);
        if *self.stop_at.lock().unwrap() == Some(n) {
            let opened = self.open.notified();
            self.reached.notify_one();
            opened.await;
        }
    }
    /// Lets go whoever was stopped.
    pub fn release(&self) {
        *self.stop_at.lock().unwrap() = None;
        self.open.notify_waiters();
    }
    pub fn steps(&self) -> usize {
        self.passed.load(SeqCst)
    }
    pub fn last(&self) -> &'static str {
        self.names.lock().unwrap().last().copied().unwrap_or("start")
    }
}

/// What goes wrong with the next writes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This one passes.
    Fine,
    /// It is made, and its acknowledgement is lost.
    AckLost,
    /// It is not made, and that is known.
    Refused,
    /// It is not made, and that is not known.
    LostUncertain,
    /// It is made a little later, and that is not known.
    Late,
}

/// Keeps claims in its own way, in the place of a store that does it well.
#[async_trait]
pub trait Desk: Send + Sync {
    async fn claim(
        &self,
        now: Time,
        holder: OperationId,
        turn: u64,
        claims: &[Claim],
    ) -> Result<Claimed, StoreError>;
    async fn give_back(&self, holder: OperationId, turn: u64, buckets: &[String]);
    async fn prune(&self, now: Time, limit: usize) -> usize;
}

/// A store whose writes pass a gate before and after, and may fail.
pub struct Gated {
    pub inner: Arc<MemoryStore>,
    pub gate: Arc<Gate>,
    pub faults: Mutex<VecDeque<Fault>>,
    pub claim_faults: Mutex<VecDeque<Fault>>,
    /// Who keeps its claims, if not the store itself.
    pub desk: std::sync::OnceLock<Arc<dyn Desk>>,
    /// How long a claim takes, half of it before and half after it is made.
    pub claim_latency: std::sync::atomic::AtomicI64,
    pub reads_fail: std::sync::atomic::AtomicBool,
    pub clock_step: Mutex<Option<Time>>,
    pub gaps: std::sync::OnceLock<gaps::Gaps>,
    /// How long a write takes, half of it before and half after it is made.
    pub latency: std::sync::atomic::AtomicI64,
    /// The boot that it goes on under, after it lapsed.
    pub renewed: std::sync::OnceLock<Arc<MemoryStore>>,
    /// Lazy writes wait here while held.
    pub held: Mutex<Option<Vec<Write>>>,
}

impl Gated {
    pub fn new(inner: Arc<MemoryStore>, gate: Arc<Gate>) -> Arc<Gated> {
        Arc::new(Gated {
            inner,
            gate,
            faults: Mutex::default(),
            claim_faults: Mutex::default(),
            desk: std::sync::OnceLock::new(),
            claim_latency: 0.into(),
            reads_fail: false.into(),
            clock_step: Mutex::default(),
            gaps: std::sync::OnceLock::new(),
            latency: 0.into(),
            renewed: std::sync::OnceLock::new(),
            held: Mutex::default(),
        })
    }
    /// The lease was over: from now on it is another boot.
    pub fn lapse(&self) {
        assert!(self.renewed.set(Arc::new(self.inner.restart())).is_ok(), "it lapses once");
    }
    fn boot(&self) -> &MemoryStore {
        self.renewed.get().unwrap_or(&self.inner)
    }
    async fn write_by(&self, epoch: Option<Epoch>, write: Write) -> Result<Committed, StoreError> {
        self.gate.pass("before a write").await;
        let half = self.latency.load(SeqCst) / 2;
        if half > 0 {
            pause(half).await;
        }
        if epoch.is_some_and(|epoch| epoch != self.epoch()) {
            return Err(StoreError::Unavailable("another boot".into()));
        }
        let fault = self.faults.lock().unwrap().pop_front().unwrap_or(Fault::Fine);
        let done = match fault {
            Fault::Refused => return Err(StoreError::Unavailable("test".into())),
            Fault::LostUncertain => return Err(StoreError::Uncertain("test".into())),
            Fault::Late => {
                let inner = self.inner.clone();
                tokio::spawn(async move {
                    pause(45).await;
                    inner.write(write).await
                });
                return Err(StoreError::Uncertain("test".into()));
            }
            Fault::Fine | Fault::AckLost => self.inner.write(write).await,
        };
        if half > 0 {
            pause(half).await;
        }
        self.gate.pass("after a write").await;
        if fault == Fault::AckLost { Err(StoreError::Uncertain("test".into())) } else { done }
    }
    fn readable(&self) -> Result<(), StoreError> {
        if self.reads_fail.load(SeqCst) { Err(StoreError::Unavailable("test".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for Gated {
    fn now(&self) -> Time {
        self.inner.now()
    }
    fn epoch(&self) -> Epoch {
        self.boot().epoch()
    }
    fn is_live(&self, epoch: Epoch) -> bool {
        self.boot().is_live(epoch)
    }
    fn clock_step(&self) -> Option<Time> {
        *self.clock_step.lock().unwrap()
    }
    fn gaps(&self) -> &gaps::Gaps {
        self.gaps.get().unwrap_or(&gaps::NONE)
    }
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }
    async fn write(&self, write: Write) -> Result<Committed, StoreError> {
        self.write_by(None, write).await
    }
    async fn write_under(&self, epoch: Epoch, write: Write) -> Result<Committed, StoreError> {
        self.write_by(Some(epoch), write).await
    }
    fn write_lazily(&self, write: Write) {
        match &mut *self.held.lock().unwrap() {
            Some(held) => held.push(write),
            None => self.inner.write_lazily(write),
        }
    }
    async fn flush(&self) -> Result<(), StoreError> {
        if let Some(held) = self.held.lock().unwrap().as_mut() {
            held.drain(..).for_each(|w| self.inner.write_lazily(w));
        }
        Ok(())
    }
    async fn by_id(&self, id: OperationId) -> Result<Option<Found>, StoreError> {
        self.readable()?;
        self.inner.by_id(id).await
    }
    async fn by_key(&self, key: &KeyHash) -> Result<Option<Found>, StoreError> {
        self.readable()?;
        self.inner.by_key(key).await
    }
    async fn by_slot(&self, slot: &SlotHash) -> Result<Option<Operation>, StoreError> {
        self.readable()?;
        self.inner.by_slot(slot).await
    }
    async fn blob(&self, id: OperationId, kind: BlobKind) -> Result<Option<Vec<u8>>, StoreError> {
        self.readable()?;
        self.inner.blob(id, kind).await
    }
    async fn due(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.inner.due(now, limit).await
    }
    async fn orphans(&self, after: Option<OperationId>, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.boot().orphans(after, limit).await
    }
    async fn next_attention(&self) -> Result<Option<Time>, StoreError> {
        self.inner.next_attention().await
    }
    async fn list(&self, query: &Query) -> Result<Vec<Operation>, StoreError> {
        self.inner.list(query).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.inner.counts().await
    }
    async fn prune(&self, now: Time, tombstones_for: Millis, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune(now, tombstones_for, limit).await
    }
    async fn open_session(&self, session: Session) -> Result<Vec<String>, StoreError> {
        self.inner.open_session(session).await
    }
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        self.readable()?;
        self.inner.session(id).await
    }
    async fn change_session(&self, id: &str, change: SessionChange) -> Result<Option<Session>, StoreError> {
        self.inner.change_session(id, change).await
    }
    async fn end_session(&self, id: &str) -> Result<bool, StoreError> {
        self.inner.end_session(id).await
    }
    async fn prune_sessions(&self, unused_since: Time, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_sessions(unused_since, limit).await
    }
    async fn handle(
        &self,
        id_hash: &[u8; 32],
        principal: &str,
        now: Time,
    ) -> Result<Option<Handle>, StoreError> {
        self.readable()?;
        self.inner.handle(id_hash, principal, now).await
    }
    async fn handles(
        &self,
        principal: &str,
        kind: Option<&str>,
        after: Option<[u8; 32]>,
        limit: usize,
        now: Time,
    ) -> Result<Vec<Handle>, StoreError> {
        self.readable()?;
        self.inner.handles(principal, kind, after, limit, now).await
    }
    async fn touch_handle(&self, id_hash: &[u8; 32], principal: &str, at: Time) -> Result<(), StoreError> {
        self.inner.touch_handle(id_hash, principal, at).await
    }
    async fn prune_handles(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_handles(now, limit).await
    }
    async fn shelved(&self, name: &str) -> Result<Option<Shelved>, StoreError> {
        self.readable()?;
        self.inner.shelved(name).await
    }
    async fn shelve(
        &self,
        name: &str,
        expected: u64,
        data: Vec<u8>,
        until: Option<Time>,
    ) -> Result<bool, StoreError> {
        self.inner.shelve(name, expected, data, until).await
    }
    async fn prune_shelf(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_shelf(now, limit).await
    }
    async fn claim(&self, holder: OperationId, turn: u64, claims: &[Claim]) -> Result<Claimed, StoreError> {
        if let Some(desk) = self.desk.get() {
            return desk.claim(self.now(), holder, turn, claims).await;
        }
        self.gate.pass("before a claim").await;
        let half = self.claim_latency.load(SeqCst) / 2;
        if half > 0 {
            pause(half).await;
        }
        let fault = self.claim_faults.lock().unwrap().pop_front().unwrap_or(Fault::Fine);
        let done = match fault {
            Fault::Refused => return Err(StoreError::Unavailable("test".into())),
            Fault::LostUncertain | Fault::Late => return Err(StoreError::Uncertain("test".into())),
            Fault::Fine | Fault::AckLost => self.inner.claim(holder, turn, claims).await,
        };
        if half > 0 {
            pause(half).await;
        }
        if fault == Fault::AckLost { Err(StoreError::Uncertain("test".into())) } else { done }
    }
    async fn release_claims(
        &self,
        holder: OperationId,
        turn: u64,
        buckets: &[String],
    ) -> Result<(), StoreError> {
        if let Some(desk) = self.desk.get() {
            desk.give_back(holder, turn, buckets).await;
            return Ok(());
        }
        self.inner.release_claims(holder, turn, buckets).await
    }
    async fn prune_claims(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        if let Some(desk) = self.desk.get() {
            return Ok(desk.prune(now, limit).await);
        }
        // As a store that keeps nobody waiting for long.
        self.inner.prune_claims(now, limit.min(128)).await
    }
    async fn put_api_key(&self, key: ApiKey) -> Result<(), StoreError> {
        self.inner.put_api_key(key).await
    }
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        self.inner.api_keys().await
    }
    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }
}
