//! One replica's process: its contract as a store, over its queue, its lease and its connections.

use super::bus::SimBus;
use super::pulse::Standing;
use super::writer::Queue;
use crate::lab::Lab;
use crate::limits::Word;
use crate::rng::Rng;
use crate::world::{Home, lock};
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
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// How long a write or a read waits for a database that is away.
const PATIENCE: i64 = 1200;
/// How long a replica looks after what it was given as due before another may, at most.
const HOLD: i64 = 2000;

pub(crate) struct Replica {
    pub lab: Arc<Lab>,
    pub home: Home,
    pub number: usize,
    pub rng: Mutex<Rng>,
    pub standing: Mutex<Standing>,
    pub queue: Mutex<Queue>,
    pub wake: Notify,
    pub hurry: Arc<Notify>,
    pub bus: Arc<SimBus>,
    /// Until when the connection for writing is away.
    link: AtomicI64,
    /// The same of the one that renews the lease.
    pulse: AtomicI64,
    /// How far its clock is behind the database's.
    lag: i64,
    identity: Identity,
    /// API keys and sessions: no part of what is simulated.
    aside: MemoryStore,
}

impl Replica {
    pub fn new(
        lab: Arc<Lab>,
        home: Home,
        number: usize,
        mut rng: Rng,
        aside: MemoryStore,
        bus: Arc<SimBus>,
    ) -> Arc<Replica> {
        let lag = rng.range(0, crate::lab::LAG);
        let epoch = lab.state().begin(&lab, number, home);
        let standing = Standing {
            epoch,
            until: lab.world.now() + lab.plan.lease,
            live: BTreeSet::new(),
            newest: 0,
            shift: 0,
            step: None,
        };
        let replica = Arc::new(Replica {
            lab,
            home,
            number,
            rng: Mutex::new(rng),
            standing: Mutex::new(standing),
            queue: Mutex::default(),
            wake: Notify::new(),
            hurry: Arc::default(),
            bus,
            link: AtomicI64::new(0),
            pulse: AtomicI64::new(0),
            lag,
            identity: Identity { name: "simulated".into(), secret: Secret([7; 32]) },
            aside,
        });
        replica.look();
        replica
    }

    /// Begins its tasks.
    pub fn start(self: &Arc<Self>) {
        let world = &self.lab.world;
        world.spawn(self.home, Box::pin(self.clone().write()));
        world.spawn(self.home, Box::pin(self.clone().pulse()));
        world.spawn(self.home, Box::pin(self.clone().ring()));
        world.spawn(self.home, Box::pin(self.clone().listen()));
    }

    pub fn time(&self) -> Time {
        self.lab.time().plus(Millis(-self.lag))
    }

    /// A way to the server or back.
    pub async fn way(&self) {
        let ms = lock(&self.rng).range(-3, 3);
        if ms > 0 {
            self.lab.world.sleep(ms).await;
        }
    }

    /// What goes on here at the moment takes longer than it should, through no fault of the ledger.
    pub fn troubled(&self) {
        self.lab.state().trouble(self.home, self.lab.world.now());
    }

    /// The connection for writing breaks, and is back after so long.
    pub fn link_away(&self, ms: i64) {
        self.link.store(self.lab.world.now() + ms + 1, Relaxed);
    }

    /// Whether an answer finds its connection gone.
    pub fn is_away(&self) -> bool {
        let now = self.lab.world.now();
        self.link.load(Relaxed) > now || self.lab.state().reached_at(self.number) > now
    }

    /// The same for a connection that is not the one for writing.
    pub fn is_cut(&self) -> bool {
        self.lab.state().reached_at(self.number) > self.lab.world.now()
    }

    /// Waits for the server, for as long as there is patience; `false`: it stays away.
    async fn wait_for(&self, at: impl Fn() -> i64) -> bool {
        let began = self.lab.world.now();
        loop {
            let (now, at) = (self.lab.world.now(), at());
            if at <= now {
                return true;
            }
            self.troubled();
            if now >= began + PATIENCE {
                return false;
            }
            self.lab.world.sleep(at.min(began + PATIENCE) - now).await;
            self.troubled();
        }
    }

    pub async fn reached(&self) -> bool {
        self.wait_for(|| self.lab.state().reached_at(self.number)).await
    }

    /// The same for the connection that renews the lease, which breaks now and then.
    pub async fn beating(&self) -> bool {
        {
            let mut r = lock(&self.rng);
            if self.lab.hits(&mut r, self.lab.plan.rates.pulse_lost) {
                self.lab.state().coverage.fault("pulse lost");
                self.pulse.store(self.lab.world.now() + r.range(100, 2000), Relaxed);
            }
        }
        self.wait_for(|| self.pulse.load(Relaxed).max(self.lab.state().reached_at(self.number))).await
    }

    /// The same for the connection for writing.
    pub async fn connected(&self) -> bool {
        self.wait_for(|| self.link.load(Relaxed).max(self.lab.state().reached_at(self.number))).await
    }

    pub async fn die(&self) {
        self.lab.world.kill(self.home);
        std::future::pending::<()>().await;
    }

    async fn reading(&self) -> Result<(), StoreError> {
        let lab = &self.lab;
        if !self.reached().await {
            return Err(StoreError::Unavailable("the database is away".into()));
        }
        let (slow, fails) = {
            let mut r = lock(&self.rng);
            let slow = lab.hits(&mut r, lab.plan.rates.store_slow).then(|| r.range(20, 2000));
            (slow, lab.hits(&mut r, lab.plan.rates.read_unavailable))
        };
        match slow {
            Some(ms) => {
                lab.world.sleep(ms).await;
                self.troubled();
            }
            None => self.way().await,
        }
        if fails {
            self.troubled();
            lab.state().coverage.fault("read refused");
            return Err(StoreError::Unavailable("simulated".into()));
        }
        Ok(())
    }

    async fn due_of(&self, now: Time, limit: usize, at_rest: bool) -> Result<Vec<Operation>, StoreError> {
        self.reading().await?;
        let mine = self.epoch();
        let spread = lock(&self.rng).range(0, HOLD / 2);
        let hold = self.has_company().then(|| (mine, self.lab.world.now() + HOLD / 2 + spread));
        let due = self.lab.state().due(&self.lab, now, limit, at_rest, hold);
        // Whose work came here because it is gone must be known to be gone.
        if due.iter().any(|op| op.owner != mine && self.is_live(op.owner)) {
            self.reading().await?;
            self.look();
        }
        Ok(due)
    }
}

#[async_trait]
impl Store for Replica {
    fn now(&self) -> Time {
        self.time()
    }
    fn epoch(&self) -> Epoch {
        lock(&self.standing).epoch
    }
    fn is_live(&self, epoch: Epoch) -> bool {
        if epoch == self.epoch() {
            return !self.is_lapsed();
        }
        let s = lock(&self.standing);
        epoch.0 != 0 && (s.live.contains(&epoch.0) || epoch.0 > s.newest)
    }
    fn clock_step(&self) -> Option<Time> {
        lock(&self.standing).step
    }
    fn identity(&self) -> &Identity {
        &self.identity
    }

    async fn write(&self, write: Write) -> Result<Committed, StoreError> {
        self.write_under(self.epoch(), write).await
    }
    async fn write_under(&self, epoch: Epoch, write: Write) -> Result<Committed, StoreError> {
        // What changes handles goes its own way, beside the batches.
        match &write {
            Write::Update { handles, .. } if !handles.is_empty() => self.write_alone(write, epoch).await,
            _ => self.ask(Some(write), epoch).await,
        }
    }
    fn write_lazily(&self, write: Write) {
        self.tell(write, self.epoch());
    }
    async fn flush(&self) -> Result<(), StoreError> {
        self.ask(None, self.epoch()).await.map(|_| ())
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
        self.due_of(now, limit, false).await
    }
    async fn due_at_rest(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.due_of(now, limit, true).await
    }
    async fn orphans(&self, after: Option<OperationId>, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.reading().await?;
        let s = self.lab.state();
        Ok(s.orphans(&self.lab, after, limit, |e| s.is_over(e)))
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
