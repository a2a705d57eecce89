//! A [`Store`] in memory: the contract in its plainest form, for tests and as the model that other stores are
//! compared with. It survives nothing.

use crate::claims::{self, Claim, Claimed, Claims};
use crate::env::Env;
use crate::handle::{self, Handle, HandleChange, MAX_HANDLES};
use crate::keys::Secret;
use crate::operation::Operation;
use crate::planted;
use crate::store::{
    ApiKey, Attention, Blob, BlobKind, Committed, Counts, Found, Identity, MAX_SESSIONS, MAX_SUBSCRIPTIONS,
    Query, SESSION_TAKEN, Session, SessionChange, Shelved, SlotWrite, Store, StoreError, StoreStats,
    Tombstone, Write, key_hash_of, shelf_bounded, slot_hash_of,
};
use crate::words::{Epoch, KeyHash, Millis, OperationId, SlotHash, Time};
use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Default)]
struct State {
    records: BTreeMap<OperationId, (Operation, u64)>,
    blobs: BTreeMap<(OperationId, BlobKind), Vec<u8>>,
    keys: HashMap<KeyHash, OperationId>,
    slots: HashMap<SlotHash, OperationId>,
    graves: BTreeMap<OperationId, (Tombstone, Option<KeyHash>)>,
    api_keys: BTreeMap<String, ApiKey>,
    sessions: BTreeMap<String, Session>,
    handles: BTreeMap<[u8; 32], Handle>,
    shelf: BTreeMap<String, Shelved>,
    claims: Claims,
    stats: StoreStats,
}

/// A store in memory.
pub struct MemoryStore {
    env: Arc<dyn Env>,
    started: i64,
    base: Time,
    epoch: Epoch,
    /// The newest boot of all on this state.
    newest: Arc<AtomicU64>,
    identity: Identity,
    attention: Attention,
    state: Arc<Mutex<State>>,
}

impl MemoryStore {
    /// An empty store; its time begins at `base` and goes with the environment's clock.
    #[must_use]
    pub fn new(env: Arc<dyn Env>, base: Time, attention: Attention) -> MemoryStore {
        let started = env.monotonic();
        let identity = Identity { name: "memory".into(), secret: Secret([1; 32]) };
        MemoryStore {
            env,
            started,
            base,
            epoch: Epoch(1),
            newest: Arc::new(AtomicU64::new(1)),
            identity,
            attention,
            state: Arc::default(),
        }
    }

    /// The same records under the next boot, as after a restart. What the earlier boot still holds goes on
    /// working on them, like a process that was thought dead.
    #[must_use]
    pub fn restart(&self) -> MemoryStore {
        let epoch = Epoch(self.newest.fetch_add(1, Ordering::SeqCst) + 1);
        MemoryStore {
            env: self.env.clone(),
            started: self.started,
            base: self.base,
            epoch,
            newest: self.newest.clone(),
            identity: self.identity.clone(),
            attention: self.attention,
            state: self.state.clone(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attention_of(&self, op: &Operation) -> Option<Time> {
        op.attention(self.attention.grace, self.attention.alert_after)
    }
}

impl State {
    fn add(&mut self, id: OperationId, blobs: Vec<Blob>) {
        for b in blobs {
            self.blobs.entry((id, b.kind)).or_insert(b.data);
        }
    }

    /// Makes all of these changes, or says why none of them is made.
    fn change_handles(&mut self, changes: Vec<HandleChange>) -> Option<Committed> {
        for c in &changes {
            let there = self
                .handles
                .get(c.id_hash())
                .filter(|h| h.principal == *c.principal() && c.at() < h.expires_at());
            let fits = match c {
                HandleChange::Create(h) => {
                    let own = |o: &&Handle| o.principal == h.principal && h.created_at < o.expires_at();
                    if self.handles.values().filter(own).count() >= MAX_HANDLES {
                        return Some(Committed::HandlesFull);
                    }
                    !self.handles.contains_key(&h.id_hash)
                }
                HandleChange::Update { expected, .. } => there.is_some_and(|h| h.version == *expected),
                HandleChange::Destroy { expected, .. } => {
                    there.is_some_and(|h| expected.is_none_or(|e| e == h.version))
                }
            };
            if !fits {
                return Some(Committed::HandleMoved);
            }
        }
        for c in changes {
            match c {
                HandleChange::Create(h) => {
                    self.handles.insert(h.id_hash, h);
                }
                HandleChange::Update { id_hash, value, at, .. } => {
                    if let Some(h) = self.handles.get_mut(&id_hash) {
                        (h.value, h.version, h.used_at) = (value, h.version + 1, h.used_at.max(at));
                    }
                }
                HandleChange::Destroy { id_hash, .. } => {
                    self.handles.remove(&id_hash);
                }
            }
        }
        None
    }

    fn write(&mut self, write: Write) -> Committed {
        match write {
            Write::Create { operation, slot, blobs } => {
                if self.records.contains_key(&operation.id) {
                    return Committed::Done;
                }
                let key = key_hash_of(&operation);
                if key.is_some_and(|k| {
                    self.keys.contains_key(&k) || self.graves.values().any(|g| g.1 == Some(k))
                }) {
                    return Committed::KeyTaken;
                }
                let s = slot_hash_of(&operation);
                let holds = self.slots.get(&s).copied().filter(|id| self.records.contains_key(id));
                if let SlotWrite::CompareAndSet(expected) = slot
                    && holds != expected
                {
                    return Committed::SlotTaken;
                }
                if let Some(k) = key {
                    self.keys.insert(k, operation.id);
                }
                self.slots.insert(s, operation.id);
                self.add(operation.id, blobs);
                self.records.insert(operation.id, (*operation, 0));
                Committed::Done
            }
            Write::Update { operation, stamp, blobs, handles } => {
                let Some((now, last)) = self.records.get(&operation.id) else { return Committed::Stale };
                if now.version == operation.version && *last == stamp {
                    return Committed::Done;
                }
                if now.version + 1 != operation.version {
                    return Committed::Stale;
                }
                if let Some(refused) = self.change_handles(handles) {
                    return refused;
                }
                let id = operation.id;
                self.records.insert(id, (*operation, stamp));
                self.add(id, blobs);
                Committed::Done
            }
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn now(&self) -> Time {
        self.base.plus(Millis(self.env.monotonic() - self.started))
    }
    fn epoch(&self) -> Epoch {
        self.epoch
    }
    fn is_live(&self, epoch: Epoch) -> bool {
        epoch.0 == self.newest.load(Ordering::SeqCst)
    }
    fn clock_step(&self) -> Option<Time> {
        None
    }
    fn identity(&self) -> &Identity {
        &self.identity
    }
    async fn write(&self, write: Write) -> Result<Committed, StoreError> {
        if let Write::Update { handles, .. } = &write {
            handle::bounded(handles)?;
        }
        let mut s = self.state();
        s.stats.commits += 1;
        s.stats.writes += 1;
        Ok(s.write(write))
    }
    fn write_lazily(&self, write: Write) {
        self.state().write(write);
    }
    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
    async fn by_id(&self, id: OperationId) -> Result<Option<Found>, StoreError> {
        let s = self.state();
        Ok(match s.records.get(&id) {
            Some((op, _)) => Some(Found::Operation(Box::new(op.clone()))),
            None => s.graves.get(&id).map(|(t, _)| Found::Tombstone(t.clone())),
        })
    }
    async fn by_key(&self, key: &KeyHash) -> Result<Option<Found>, StoreError> {
        let s = self.state();
        if let Some((op, _)) = s.keys.get(key).and_then(|id| s.records.get(id)) {
            return Ok(Some(Found::Operation(Box::new(op.clone()))));
        }
        Ok(s.graves.values().find(|g| g.1 == Some(*key)).map(|g| Found::Tombstone(g.0.clone())))
    }
    async fn by_slot(&self, slot: &SlotHash) -> Result<Option<Operation>, StoreError> {
        let s = self.state();
        Ok(s.slots.get(slot).and_then(|id| s.records.get(id)).map(|(op, _)| op.clone()))
    }
    async fn blob(&self, id: OperationId, kind: BlobKind) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.state().blobs.get(&(id, kind)).cloned())
    }
    async fn due(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        let s = self.state();
        let mut due: Vec<(Time, &Operation)> = s
            .records
            .values()
            .filter_map(|(op, _)| self.attention_of(op).filter(|t| *t <= now).map(|t| (t, op)))
            .collect();
        due.sort_by_key(|(t, op)| (*t, op.id));
        Ok(due.into_iter().take(limit).map(|(_, op)| op.clone()).collect())
    }
    async fn orphans(&self, after: Option<OperationId>, limit: usize) -> Result<Vec<Operation>, StoreError> {
        let s = self.state();
        Ok(s.records
            .values()
            .map(|(op, _)| op)
            .filter(|op| after.is_none_or(|a| op.id > a) && self.attention_of(op).is_some())
            .filter(|op| (op.owner != Epoch(0) && !self.is_live(op.owner)) || !self.is_live(op.caller.epoch))
            .take(limit)
            .cloned()
            .collect())
    }
    async fn next_attention(&self) -> Result<Option<Time>, StoreError> {
        Ok(self.state().records.values().filter_map(|(op, _)| self.attention_of(op)).min())
    }
    async fn list(&self, q: &Query) -> Result<Vec<Operation>, StoreError> {
        let s = self.state();
        Ok(s.records
            .values()
            .rev()
            .map(|(op, _)| op)
            .filter(|op| q.takes(op))
            .take(q.limit)
            .cloned()
            .collect())
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        let mut c = Counts::default();
        for (op, _) in self.state().records.values() {
            *c.execution.entry(op.execution.word().into()).or_default() += 1;
            *c.delivery.entry(op.delivery.state.word().into()).or_default() += 1;
        }
        Ok(c)
    }
    async fn prune(&self, now: Time, tombstones_for: Millis, limit: usize) -> Result<usize, StoreError> {
        let mut s = self.state();
        let gone: Vec<Operation> = s
            .records
            .values()
            .map(|(op, _)| op)
            .filter(|op| op.expires_at().is_some_and(|t| t < now))
            .take(limit)
            .cloned()
            .collect();
        for op in &gone {
            s.records.remove(&op.id);
            s.blobs.retain(|(id, _), _| *id != op.id);
            let key = key_hash_of(op);
            if let Some(k) = key {
                s.keys.remove(&k);
            }
            let grave = Tombstone {
                id: op.id,
                fingerprint: op.fingerprint,
                outcome: op.execution.word().into(),
                at: now,
            };
            s.graves.insert(op.id, (grave, key));
        }
        s.graves.retain(|_, (t, _)| t.at.plus(tombstones_for) > now);
        Ok(gone.len())
    }
    async fn put_api_key(&self, key: ApiKey) -> Result<(), StoreError> {
        self.state().api_keys.insert(key.id.clone(), key);
        Ok(())
    }
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        Ok(self.state().api_keys.values().cloned().collect())
    }
    async fn open_session(&self, session: Session) -> Result<Vec<String>, StoreError> {
        let session = session.bounded()?;
        let mut s = self.state();
        if s.sessions.contains_key(&session.id) {
            return Err(StoreError::Unavailable(SESSION_TAKEN.into()));
        }
        let principal = session.principal.clone();
        let kept = session.id.clone();
        s.sessions.insert(kept.clone(), session);
        let own = || s.sessions.values().filter(|o| o.principal == principal && o.id != kept);
        let beyond = (own().count() + 1).saturating_sub(MAX_SESSIONS);
        if beyond == 0 {
            return Ok(Vec::new());
        }
        let mut others: Vec<_> = own().map(|o| (o.used_at != o.opened_at, o.used_at, o.id.clone())).collect();
        others.sort();
        let ended: Vec<String> = others.into_iter().take(beyond).map(|(_, _, id)| id).collect();
        for id in &ended {
            s.sessions.remove(id);
        }
        Ok(ended)
    }
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        Ok(self.state().sessions.get(id).cloned())
    }
    async fn change_session(&self, id: &str, change: SessionChange) -> Result<Option<Session>, StoreError> {
        let (change, now) = (change.bounded()?, self.now());
        let mut s = self.state();
        let Some(session) = s.sessions.get_mut(id) else { return Ok(None) };
        match change {
            SessionChange::Used => session.used_at = now,
            SessionChange::LogLevel(level) => session.log_level = Some(level),
            SessionChange::Subscribe(uri) => {
                if let Err(at) = session.subscriptions.binary_search(&uri)
                    && session.subscriptions.len() < MAX_SUBSCRIPTIONS
                {
                    session.subscriptions.insert(at, uri);
                }
            }
            SessionChange::Unsubscribe(uri) => session.subscriptions.retain(|u| *u != uri),
        }
        Ok(Some(session.clone()))
    }
    async fn end_session(&self, id: &str) -> Result<bool, StoreError> {
        Ok(self.state().sessions.remove(id).is_some())
    }
    async fn prune_sessions(&self, unused_since: Time, limit: usize) -> Result<usize, StoreError> {
        let mut s = self.state();
        let old = s.sessions.values().filter(|session| session.used_at < unused_since);
        let mut old: Vec<(Time, String)> = old.map(|session| (session.used_at, session.id.clone())).collect();
        old.sort();
        old.truncate(limit);
        for (_, id) in &old {
            s.sessions.remove(id);
        }
        Ok(old.len())
    }
    async fn handle(
        &self,
        id_hash: &[u8; 32],
        principal: &str,
        now: Time,
    ) -> Result<Option<Handle>, StoreError> {
        let s = self.state();
        let own = |h: &&Handle| *h.principal == *principal && now < h.expires_at();
        Ok(s.handles.get(id_hash).filter(own).cloned())
    }
    async fn handles(
        &self,
        principal: &str,
        kind: Option<&str>,
        after: Option<[u8; 32]>,
        limit: usize,
        now: Time,
    ) -> Result<Vec<Handle>, StoreError> {
        let s = self.state();
        let wanted = s
            .handles
            .values()
            .filter(|h| *h.principal == *principal && now < h.expires_at())
            .filter(|h| kind.is_none_or(|k| k == h.kind) && after.is_none_or(|a| h.id_hash > a));
        Ok(wanted.take(limit).cloned().collect())
    }
    async fn touch_handle(&self, id_hash: &[u8; 32], principal: &str, at: Time) -> Result<(), StoreError> {
        let mut s = self.state();
        let own = |h: &&mut Handle| *h.principal == *principal && at < h.expires_at();
        if let Some(h) = s.handles.get_mut(id_hash).filter(own) {
            h.used_at = h.used_at.max(at);
        }
        Ok(())
    }
    async fn prune_handles(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        let mut s = self.state();
        let mut gone: Vec<(Time, [u8; 32])> =
            s.handles.values().map(|h| (h.expires_at(), h.id_hash)).filter(|(t, _)| *t <= now).collect();
        gone.sort();
        gone.truncate(limit);
        for (_, id) in &gone {
            s.handles.remove(id);
        }
        Ok(gone.len())
    }
    async fn shelved(&self, name: &str) -> Result<Option<Shelved>, StoreError> {
        let now = self.now();
        Ok(self.state().shelf.get(name).filter(|s| s.until.is_none_or(|u| now < u)).cloned())
    }
    async fn shelve(
        &self,
        name: &str,
        expected: u64,
        data: Vec<u8>,
        until: Option<Time>,
    ) -> Result<bool, StoreError> {
        shelf_bounded(name, &data)?;
        let now = self.now();
        let mut s = self.state();
        let there = s.shelf.get(name);
        let version = there.filter(|s| s.until.is_none_or(|u| now < u)).map_or(0, |s| s.version);
        if version != expected && !planted!(ShelfWithoutCompareAndSet) {
            return Ok(false);
        }
        let version = there.map_or(0, |s| s.version) + 1;
        s.shelf.insert(name.to_owned(), Shelved { version, data, until });
        Ok(true)
    }
    async fn prune_shelf(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        let mut s = self.state();
        let mut gone: Vec<(Time, String)> = s
            .shelf
            .iter()
            .filter_map(|(name, s)| s.until.filter(|u| *u <= now).map(|u| (u, name.clone())))
            .collect();
        gone.sort();
        gone.truncate(limit);
        for (_, name) in &gone {
            s.shelf.remove(name);
        }
        Ok(gone.len())
    }
    async fn claim(&self, holder: OperationId, turn: u64, claims: &[Claim]) -> Result<Claimed, StoreError> {
        claims::bounded(claims)?;
        let now = self.now();
        Ok(self.state().claims.claim(now, holder, turn, claims))
    }
    async fn release_claims(
        &self,
        holder: OperationId,
        turn: u64,
        buckets: &[String],
    ) -> Result<(), StoreError> {
        self.state().claims.release(holder, turn, buckets);
        Ok(())
    }
    async fn prune_claims(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        Ok(self.state().claims.prune(now, limit))
    }
    fn stats(&self) -> StoreStats {
        self.state().stats.clone()
    }
}
