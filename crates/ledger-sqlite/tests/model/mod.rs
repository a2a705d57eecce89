//! The contract of [`Store`](ledger::store::Store) as a pure model: what any store answers, and what is in it, after
//! any sequence of requests. No store's code is in it.

use ledger::handle::{Handle, HandleChange};
use ledger::operation::Operation;
use ledger::store::{
    ApiKey, Attention, Blob, BlobKind, Committed, Counts, Query, Session, SessionChange, Shelved, SlotWrite,
    Tombstone, Write, key_hash_of, slot_hash_of,
};
use ledger::words::{Epoch, KeyHash, Millis, OperationId, SlotHash, Time};
use std::collections::BTreeMap;

/// A record, the mark of its last update, and its payloads.
#[derive(Clone, Debug)]
pub struct Row {
    pub op: Operation,
    stamp: Option<u64>,
    pub blobs: BTreeMap<BlobKind, Vec<u8>>,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub rows: BTreeMap<OperationId, Row>,
    pub graves: BTreeMap<OperationId, (Tombstone, Option<KeyHash>)>,
    slots: BTreeMap<[u8; 16], OperationId>,
    pub api_keys: BTreeMap<String, ApiKey>,
    pub sessions: BTreeMap<String, Session>,
    pub handles: BTreeMap<[u8; 32], Handle>,
    pub shelf: BTreeMap<String, Shelved>,
}

/// What a look-up finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Place<'a> {
    Nowhere,
    Record(&'a Operation),
    Grave(&'a Tombstone),
}

impl Row {
    fn add(&mut self, blobs: &[Blob]) {
        for b in blobs {
            self.blobs.entry(b.kind).or_insert_with(|| b.data.clone());
        }
    }
}

impl Model {
    pub fn write(&mut self, write: &Write) -> Committed {
        match write {
            Write::Create { operation, slot, blobs } => self.create(operation, *slot, blobs),
            Write::Update { operation, stamp, blobs, handles } => {
                self.update(operation, *stamp, blobs, handles)
            }
        }
    }

    fn create(&mut self, op: &Operation, slot: SlotWrite, blobs: &[Blob]) -> Committed {
        if self.rows.contains_key(&op.id) {
            return Committed::Done;
        }
        if key_hash_of(op).is_some_and(|k| self.by_key(&k) != Place::Nowhere) {
            return Committed::KeyTaken;
        }
        let place = slot_hash_of(op);
        if let SlotWrite::CompareAndSet(expected) = slot
            && self.by_slot(&place).map(|op| op.id) != expected
        {
            return Committed::SlotTaken;
        }
        self.slots.insert(place.0, op.id);
        let mut row = Row { op: op.clone(), stamp: None, blobs: BTreeMap::new() };
        row.add(blobs);
        self.rows.insert(op.id, row);
        Committed::Done
    }

    fn update(&mut self, op: &Operation, stamp: u64, blobs: &[Blob], handles: &[HandleChange]) -> Committed {
        let Some(row) = self.rows.get(&op.id) else { return Committed::Stale };
        if (row.op.version, row.stamp) == (op.version, Some(stamp)) {
            return Committed::Done;
        }
        if row.op.version + 1 != op.version {
            return Committed::Stale;
        }
        let mut changed = self.handles.clone();
        if !handles.iter().all(|c| change_handle(&mut changed, c)) {
            return Committed::HandleMoved;
        }
        self.handles = changed;
        if let Some(row) = self.rows.get_mut(&op.id) {
            (row.op, row.stamp) = (op.clone(), Some(stamp));
            row.add(blobs);
        }
        Committed::Done
    }

    pub fn prune(&mut self, now: Time, tombstones_for: Millis) -> usize {
        let gone: Vec<OperationId> = self
            .rows
            .values()
            .filter(|r| r.op.expires_at().is_some_and(|t| t < now))
            .map(|r| r.op.id)
            .collect();
        for id in &gone {
            let Some(Row { op, .. }) = self.rows.remove(id) else { continue };
            self.slots.retain(|_, holder| holder != id);
            let outcome = op.execution.word().to_owned();
            let grave = Tombstone { id: *id, fingerprint: op.fingerprint, outcome, at: now };
            self.graves.insert(*id, (grave, key_hash_of(&op)));
        }
        self.graves.retain(|_, (t, _)| t.at.plus(tombstones_for) > now);
        gone.len()
    }

    pub fn by_id(&self, id: OperationId) -> Place<'_> {
        match (self.rows.get(&id), self.graves.get(&id)) {
            (Some(row), _) => Place::Record(&row.op),
            (None, Some((grave, _))) => Place::Grave(grave),
            (None, None) => Place::Nowhere,
        }
    }

    pub fn by_key(&self, key: &KeyHash) -> Place<'_> {
        let row = self.rows.values().find(|r| key_hash_of(&r.op).as_ref() == Some(key));
        let grave = self.graves.values().find(|(_, k)| k.as_ref() == Some(key));
        match (row, grave) {
            (Some(row), _) => Place::Record(&row.op),
            (None, Some((grave, _))) => Place::Grave(grave),
            (None, None) => Place::Nowhere,
        }
    }

    pub fn by_slot(&self, slot: &SlotHash) -> Option<&Operation> {
        self.slots.get(&slot.0).map(|id| &self.rows[id].op)
    }

    /// All that want attention some time, earliest first, then by id.
    pub fn attention(&self) -> Vec<(Time, &Operation)> {
        let Attention { grace, alert_after } = Attention::default();
        let mut all: Vec<_> =
            self.rows.values().filter_map(|r| Some((r.op.attention(grace, alert_after)?, &r.op))).collect();
        all.sort_by_key(|(at, op)| (*at, op.id));
        all
    }

    pub fn orphans(&self, live: Epoch, after: Option<OperationId>, limit: usize) -> Vec<&Operation> {
        let mut all: Vec<_> = self
            .attention()
            .into_iter()
            .map(|(_, op)| op)
            .filter(|op| (op.owner != Epoch(0) && op.owner != live) || op.caller.epoch != live)
            .filter(|op| after.is_none_or(|a| op.id > a))
            .collect();
        all.sort_by_key(|op| op.id);
        all.truncate(limit);
        all
    }

    pub fn list(&self, q: &Query) -> Vec<&Operation> {
        let says = |filter: &Option<String>, word: &str| filter.as_deref().is_none_or(|f| f == word);
        let mut all: Vec<_> = self
            .rows
            .values()
            .map(|r| &r.op)
            .filter(|op| says(&q.principal, &op.scope.principal) && says(&q.tool, &op.scope.tool))
            .filter(|op| says(&q.state, op.execution.word()) && says(&q.delivery, op.delivery.state.word()))
            .filter(|op| q.before.is_none_or(|b| op.id < b))
            .collect();
        all.reverse();
        all.truncate(q.limit);
        all
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for row in self.rows.values() {
            *counts.execution.entry(row.op.execution.word().into()).or_default() += 1;
            *counts.delivery.entry(row.op.delivery.state.word().into()).or_default() += 1;
        }
        counts
    }

    /// What a change makes of a session; `used` is when the store says it was used.
    pub fn change_session(&mut self, id: &str, change: &SessionChange, used: Time) -> Option<Session> {
        let session = self.sessions.get_mut(id)?;
        match change {
            SessionChange::Used => session.used_at = used,
            SessionChange::LogLevel(level) => session.log_level = Some(level.clone()),
            SessionChange::Subscribe(uri) => {
                session.subscriptions.push(uri.clone());
                session.subscriptions.sort();
                session.subscriptions.dedup();
            }
            SessionChange::Unsubscribe(uri) => session.subscriptions.retain(|u| u != uri),
        }
        Some(session.clone())
    }

    pub fn handle(&self, id_hash: &[u8; 32], principal: &str, now: Time) -> Option<&Handle> {
        self.handles.get(id_hash).filter(|h| *h.principal == *principal && h.expires_at() > now)
    }

    pub fn touch_handle(&mut self, id_hash: &[u8; 32], principal: &str, at: Time) {
        if self.handle(id_hash, principal, at).is_some() {
            self.handles.entry(*id_hash).and_modify(|h| h.used_at = h.used_at.max(at));
        }
    }

    pub fn prune_handles(&mut self, now: Time) -> usize {
        let before = self.handles.len();
        self.handles.retain(|_, h| h.expires_at() > now);
        before - self.handles.len()
    }

    /// What is there and not gone. What is ever put there is gone by `T0` already, or is not gone before the end of time.
    pub fn shelved(&self, name: &str) -> Option<&Shelved> {
        self.shelf.get(name).filter(|s| s.until.is_none_or(|u| u > crate::contract::T0))
    }

    pub fn shelve(&mut self, name: &str, expected: u64, data: &[u8], until: Option<Time>) -> bool {
        let fits = self.shelved(name).map_or(0, |s| s.version) == expected;
        if fits {
            let version = self.shelf.get(name).map_or(1, |s| s.version + 1);
            self.shelf.insert(name.into(), Shelved { version, data: data.to_vec(), until });
        }
        fits
    }

    pub fn prune_sessions(&mut self, unused_since: Time, limit: usize) -> usize {
        let mut old: Vec<_> = self
            .sessions
            .values()
            .filter(|s| s.used_at < unused_since)
            .map(|s| (s.used_at, s.id.clone()))
            .collect();
        old.sort();
        old.truncate(limit);
        old.iter().for_each(|(_, id)| {
            self.sessions.remove(id);
        });
        old.len()
    }
}

/// Makes one change of a handle, if it may be made.
fn change_handle(all: &mut BTreeMap<[u8; 32], Handle>, change: &HandleChange) -> bool {
    let there = |all: &BTreeMap<[u8; 32], Handle>, version: Option<u64>| {
        all.get(change.id_hash()).is_some_and(|h| {
            h.principal == *change.principal()
                && h.expires_at() > change.at()
                && version.is_none_or(|v| v == h.version)
        })
    };
    match change {
        HandleChange::Create(h) => {
            !all.contains_key(&h.id_hash) && all.insert(h.id_hash, h.clone()).is_none()
        }
        HandleChange::Update { id_hash, expected, value, at, .. } => {
            let fits = there(all, Some(*expected));
            if fits {
                all.entry(*id_hash).and_modify(|h| {
                    h.version += 1;
                    h.value.clone_from(value);
                    h.used_at = h.used_at.max(*at);
                });
            }
            fits
        }
        HandleChange::Destroy { id_hash, expected, .. } => {
            there(all, *expected) && all.remove(id_hash).is_some()
        }
    }
}
