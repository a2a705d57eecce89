//! One replica's way to the shared store, with the faults of a network and a database in between.

use crate::lab::Lab;
use crate::limits::{Word, bounded};
use crate::model::Writer;
use crate::rng::Rng;
use crate::world::{Home, OUTSIDE, lock};
use async_trait::async_trait;
use ledger::Operation;
use ledger::claims::{Claim, Claimed};
use ledger::handle::Handle;
use ledger::keys::Secret;
use ledger::memory::MemoryStore;
use ledger::store::{
    ApiKey, BlobKind, Committed, Counts, Found, Identity, Query, Session, SessionChange, Shelved, Store,
    StoreError, StoreStats, Write,
};
use ledger::words::{Epoch, KeyHash, Millis, OperationId, SlotHash, Time};
use std::sync::{Arc, Mutex};

pub(crate) struct SimStore {
    lab: Arc<Lab>,
    epoch: Epoch,
    home: Home,
    identity: Identity,
    rng: Mutex<Rng>,
    /// Written soon; lost if the replica dies first.
    lazy: Mutex<Vec<Write>>,
    /// API keys and sessions: no part of what is simulated.
    aside: MemoryStore,
}

/// What becomes of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Plain,
    Unavailable,
    /// Made, and not confirmed.
    Unconfirmed,
    /// Not made, and not confirmed.
    Lost,
    /// Not confirmed, and made after a while.
    Later,
    Twice,
    DieBefore,
    DieAfter,
}

impl SimStore {
    pub fn new(lab: Arc<Lab>, epoch: Epoch, home: Home, rng: Rng, aside: MemoryStore) -> Arc<SimStore> {
        let identity = Identity { name: "simulated".into(), secret: Secret([7; 32]) };
        Arc::new(SimStore { lab, epoch, home, identity, rng: Mutex::new(rng), lazy: Mutex::default(), aside })
    }

    /// A way to the store and back: now and then others come first, seldom it takes long.
    async fn way(&self) {
        let ms = {
            let mut r = lock(&self.rng);
            if self.lab.hits(&mut r, self.lab.plan.rates.store_slow) {
                r.range(20, 2000)
            } else {
                r.range(-3, 3)
            }
        };
        if ms > 0 {
            self.lab.world.sleep(ms).await;
        }
    }

    fn writer(&self) -> Writer {
        Writer { epoch: self.epoch, task: self.lab.world.current() }
    }

    fn fate(&self) -> Fate {
        let rates = &self.lab.plan.rates;
        let mut r = lock(&self.rng);
        let mut hits = |rate| self.lab.hits(&mut r, rate);
        let (fate, word) = if hits(rates.store_unavailable) {
            (Fate::Unavailable, "write refused")
        } else if hits(rates.store_uncertain) {
            match r.below(5) {
                0 | 1 => (Fate::Unconfirmed, "acknowledgement lost"),
                2 => (Fate::Lost, "write lost"),
                _ => (Fate::Later, "write late"),
            }
        } else if hits(rates.store_duplicate) {
            (Fate::Twice, "write repeated")
        } else if hits(rates.store_kill) {
            if r.mille(500) {
                (Fate::DieBefore, "died before a write")
            } else {
                (Fate::DieAfter, "died after a write")
            }
        } else {
            return Fate::Plain;
        };
        self.lab.state().coverage.fault(word);
        self.lab.say(format_args!("epoch {}: {word}", self.epoch.0));
        fate
    }

    fn make(&self, write: &Write) -> Committed {
        self.drain();
        self.lab.state().apply(&self.lab, write, self.writer())
    }

    fn drain(&self) {
        let lazy = std::mem::take(&mut *lock(&self.lazy));
        let mut state = self.lab.state();
        for w in lazy {
            state.apply(&self.lab, &w, self.writer());
        }
    }

    /// The lease is over, and here that means that nothing more is written under this epoch.
    fn is_fenced(&self) -> bool {
        self.lab.plan.lapse_ends && !self.is_live(self.epoch)
    }

    async fn die(&self) {
        self.lab.world.kill(self.home);
        std::future::pending::<()>().await;
    }

    /// What becomes of something on its way to the store: `make` makes it, `twice` does so twice, `later` sees to it that it is
    /// made when nobody waits for it any longer.
    async fn meets<T: Send>(
        &self,
        id: OperationId,
        make: impl Fn() -> T + Send + Sync,
        twice: impl FnOnce() -> T + Send,
        later: impl FnOnce() + Send,
    ) -> Result<T, StoreError> {
        let fate = self.fate();
        if !matches!(fate, Fate::Plain | Fate::Twice) {
            self.lab.state().excuse(id);
        }
        match fate {
            Fate::Plain | Fate::Twice => {
                let done = if matches!(fate, Fate::Plain) { make() } else { twice() };
                self.way().await;
                return Ok(done);
            }
            Fate::Unavailable => return Err(StoreError::Unavailable("simulated".into())),
            Fate::Lost => {}
            Fate::Unconfirmed => {
                make();
                self.way().await;
            }
            Fate::Later => later(),
            Fate::DieBefore => self.die().await,
            Fate::DieAfter => {
                make();
                self.die().await;
            }
        }
        Err(StoreError::Uncertain("simulated".into()))
    }

    /// Claims, or their return, with the same faults as writes.
    async fn claims(&self, word: Word) -> Result<Claimed, StoreError> {
        bounded(&word)?;
        self.lab.state().asks(&self.lab, &word);
        self.way().await;
        let make = || self.lab.state().make(&self.lab, &word);
        let twice = || {
            make();
            make()
        };
        let later = || {
            let (lab, word, ms) = (self.lab.clone(), word.clone(), lock(&self.rng).range(1, 300));
            self.after(ms, move || {
                lab.state().make(&lab, &word);
            });
        };
        self.meets(word.holder, make, twice, later).await
    }

    /// Does something later, whatever becomes of this replica.
    fn after(&self, ms: i64, what: impl FnOnce() + Send + 'static) {
        let lab = self.lab.clone();
        self.lab.world.spawn(
            OUTSIDE,
            Box::pin(async move {
                lab.world.sleep(ms).await;
                what();
            }),
        );
    }

    async fn reading(&self) -> Result<(), StoreError> {
        self.way().await;
        let fails = self.lab.hits(&mut lock(&self.rng), self.lab.plan.rates.read_unavailable);
        if fails {
            self.lab.state().coverage.fault("read refused");
            return Err(StoreError::Unavailable("simulated".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for SimStore {
    fn now(&self) -> Time {
        self.lab.time()
    }
    fn epoch(&self) -> Epoch {
        self.epoch
    }
    fn is_live(&self, epoch: Epoch) -> bool {
        self.lab.state().is_live(epoch, self.lab.time(), self.lab.plan.lease)
    }
    fn clock_step(&self) -> Option<Time> {
        self.lab.clock_step()
    }
    fn identity(&self) -> &Identity {
        &self.identity
    }

    async fn write(&self, write: Write) -> Result<Committed, StoreError> {
        self.way().await;
        let id = write.operation().id;
        if self.is_fenced() {
            self.lab.state().coverage.fault("write of a lapsed replica refused");
            self.lab.state().excuse(id);
            return Err(StoreError::Unavailable("the lease is over".into()));
        }
        let make = || self.make(&write);
        let twice = || {
            let first = make();
            let second = make();
            if first != second {
                let what = format!("a repeated write was {second:?}, the first {first:?}");
                self.lab.fail(&mut self.lab.state(), "repeatable", what);
            }
            first
        };
        let later = || {
            let (lab, who, write) = (self.lab.clone(), self.writer(), write.clone());
            let ms = {
                let mut r = lock(&self.rng);
                // Often just when the writer, having looked, writes once more.
                if r.mille(600) { r.range(35, 60) } else { r.range(1, 300) }
            };
            self.after(ms, move || {
                lab.state().apply(&lab, &write, who);
            });
        };
        self.meets(id, make, twice, later).await
    }

    fn write_lazily(&self, write: Write) {
        lock(&self.lazy).push(write);
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.reading().await?;
        if self.is_fenced() {
            return Err(StoreError::Unavailable("the lease is over".into()));
        }
        self.drain();
        Ok(())
    }

    async fn by_id(&self, id: OperationId) -> Result<Option<Found>, StoreError> {
        self.reading().await.inspect_err(|_| self.lab.state().excuse(id))?;
        Ok(self.lab.state().by_id(id))
    }
    async fn by_key(&self, key: &KeyHash) -> Result<Option<Found>, StoreError> {
        self.reading().await?;
        Ok(self.lab.state().by_key(key))
    }
    async fn by_slot(&self, slot: &SlotHash) -> Result<Option<Operation>, StoreError> {
        self.reading().await?;
        Ok(self.lab.state().by_slot(slot))
    }
    async fn blob(&self, id: OperationId, kind: BlobKind) -> Result<Option<Vec<u8>>, StoreError> {
        self.reading().await?;
        Ok(self.lab.state().blobs.get(&(id, kind)).cloned())
    }
    async fn due(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.reading().await?;
        Ok(self.lab.state().due(&self.lab, now, limit, false, None))
    }
    async fn due_at_rest(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.reading().await?;
        Ok(self.lab.state().due(&self.lab, now, limit, true, None))
    }
    async fn orphans(&self, after: Option<OperationId>, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.reading().await?;
        let (now, lease) = (self.lab.time(), self.lab.plan.lease);
        let s = self.lab.state();
        Ok(s.orphans(&self.lab, after, limit, |e| !s.is_live(e, now, lease)))
    }
    async fn next_attention(&self) -> Result<Option<Time>, StoreError> {
        self.reading().await?;
        Ok(self.lab.state().next_attention(&self.lab))
    }
    async fn list(&self, q: &Query) -> Result<Vec<Operation>, StoreError> {
        self.reading().await?;
        Ok(self.lab.state().list(q))
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.reading().await?;
        Ok(self.lab.state().counts())
    }
    async fn prune(&self, now: Time, tombstones_for: Millis, limit: usize) -> Result<usize, StoreError> {
        self.reading().await?;
        Ok(self.lab.state().prune(now, tombstones_for, limit))
    }

    async fn put_api_key(&self, key: ApiKey) -> Result<(), StoreError> {
        self.aside.put_api_key(key).await
    }
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        self.aside.api_keys().await
    }
    async fn open_session(&self, session: Session) -> Result<Vec<String>, StoreError> {
        self.aside.open_session(session).await
    }
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        self.aside.session(id).await
    }
    async fn change_session(&self, id: &str, change: SessionChange) -> Result<Option<Session>, StoreError> {
        self.aside.change_session(id, change).await
    }
    async fn end_session(&self, id: &str) -> Result<bool, StoreError> {
        self.aside.end_session(id).await
    }
    async fn prune_sessions(&self, unused_since: Time, limit: usize) -> Result<usize, StoreError> {
        self.aside.prune_sessions(unused_since, limit).await
    }
    async fn handle(
        &self,
        id_hash: &[u8; 32],
        principal: &str,
        now: Time,
    ) -> Result<Option<Handle>, StoreError> {
        self.reading().await?;
        Ok(self.lab.state().handle_of(id_hash, principal, now))
    }
    async fn handles(
        &self,
        principal: &str,
        kind: Option<&str>,
        after: Option<[u8; 32]>,
        limit: usize,
        now: Time,
    ) -> Result<Vec<Handle>, StoreError> {
        self.aside.handles(principal, kind, after, limit, now).await
    }
    async fn touch_handle(&self, id_hash: &[u8; 32], principal: &str, at: Time) -> Result<(), StoreError> {
        self.reading().await?;
        self.lab.state().touch(id_hash, principal, at);
        Ok(())
    }
    async fn prune_handles(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.aside.prune_handles(now, limit).await
    }
    async fn shelved(&self, name: &str) -> Result<Option<Shelved>, StoreError> {
        self.reading().await?;
        Ok(self.lab.state().shelved(name, self.lab.time()))
    }
    async fn shelve(
        &self,
        name: &str,
        expected: u64,
        data: Vec<u8>,
        until: Option<Time>,
    ) -> Result<bool, StoreError> {
        self.reading().await?;
        self.lab.told(&self.rng, |lab| lab.state().shelve(name, expected, data, until, lab.time()))
    }
    async fn prune_shelf(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.aside.prune_shelf(now, limit).await
    }
    async fn claim(&self, holder: OperationId, turn: u64, claims: &[Claim]) -> Result<Claimed, StoreError> {
        let word = Word::new(self.lab.world.current(), self.home, self.now(), holder, turn);
        self.claims(Word { claims: claims.to_vec(), ..word }).await
    }
    async fn release_claims(
        &self,
        holder: OperationId,
        turn: u64,
        buckets: &[String],
    ) -> Result<(), StoreError> {
        let word = Word::new(self.lab.world.current(), self.home, self.now(), holder, turn);
        self.claims(Word { back: buckets.to_vec(), ..word }).await.map(|_| ())
    }
    async fn prune_claims(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        // None of them at all, and nothing is drawn: schedules without claims stay as they are.
        Ok(self.lab.state().prune_claims(now, limit))
    }
    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }
}
