//! What a store answers when it is asked, whichever it is.

use crate::lab::{Lab, Record, State};
use ledger::store::{Counts, Found, Query, key_hash_of};
use ledger::words::{Epoch, KeyHash, Millis, OperationId, SlotHash, Time};
use ledger::{Execution, Operation};

impl Lab {
    /// When a record wants attention, by itself.
    pub fn attention(&self, op: &Operation) -> Option<Time> {
        op.attention(self.plan.grace, Millis::secs(30))
    }
}

impl State {
    pub fn by_id(&self, id: OperationId) -> Option<Found> {
        match self.records.get(&id) {
            Some(r) => Some(Found::Operation(Box::new(r.op.clone()))),
            None => self.graves.get(&id).map(|(t, _)| Found::Tombstone(t.clone())),
        }
    }

    pub fn by_key(&self, key: &KeyHash) -> Option<Found> {
        if let Some(r) = self.keys.get(key).and_then(|id| self.records.get(id)) {
            return Some(Found::Operation(Box::new(r.op.clone())));
        }
        self.graves.values().find(|g| g.1 == Some(*key)).map(|g| Found::Tombstone(g.0.clone()))
    }

    pub fn by_slot(&self, slot: &SlotHash) -> Option<Operation> {
        self.slots.get(slot).and_then(|id| self.records.get(id)).map(|r| r.op.clone())
    }

    fn wants(&self, lab: &Lab, at_rest: bool) -> impl Iterator<Item = (Time, OperationId)> {
        self.records.values().filter(move |r| !at_rest || r.op.execution != Execution::Running).filter_map(
            |r| {
                let own = lab.attention(&r.op)?;
                Some((r.due.map_or(own, |t| t.min(own)), r.op.id))
            },
        )
    }

    /// What is due, earliest first. With `hold`, it is for this epoch to look after for so long, and what another one
    /// looks after is left out.
    pub fn due(
        &mut self,
        lab: &Lab,
        now: Time,
        limit: usize,
        at_rest: bool,
        hold: Option<(Epoch, i64)>,
    ) -> Vec<Operation> {
        let mut due: Vec<(Time, OperationId)> = self.wants(lab, at_rest).filter(|(t, _)| *t <= now).collect();
        due.sort_unstable();
        if let Some((mine, until)) = hold {
            let clock = lab.world.now();
            due.retain(|(_, id)| {
                let held = self.records.get(id).and_then(|r| r.held);
                held.is_none_or(|(by, until)| by == mine || until < clock || self.is_over(by))
            });
            due.truncate(limit);
            for (_, id) in &due {
                if let Some(r) = self.records.get_mut(id) {
                    r.held = Some((mine, until));
                }
            }
        }
        due.iter().take(limit).filter_map(|(_, id)| self.records.get(id).map(|r| r.op.clone())).collect()
    }

    pub fn next_attention(&self, lab: &Lab) -> Option<Time> {
        self.wants(lab, false).map(|(t, _)| t).min()
    }

    pub fn orphans(
        &self,
        lab: &Lab,
        after: Option<OperationId>,
        limit: usize,
        dead: impl Fn(Epoch) -> bool,
    ) -> Vec<Operation> {
        let left = |op: &Operation| (op.owner != Epoch(0) && dead(op.owner)) || dead(op.caller.epoch);
        self.records
            .values()
            .map(|r| &r.op)
            .filter(|op| after.is_none_or(|a| op.id > a) && lab.attention(op).is_some() && left(op))
            .take(limit)
            .cloned()
            .collect()
    }

    pub fn list(&self, q: &Query) -> Vec<Operation> {
        self.records.values().rev().map(|r| &r.op).filter(|op| q.takes(op)).take(q.limit).cloned().collect()
    }

    pub fn counts(&self) -> Counts {
        let mut c = Counts::default();
        for r in self.records.values() {
            *c.execution.entry(r.op.execution.word().into()).or_default() += 1;
            *c.delivery.entry(r.op.delivery.state.word().into()).or_default() += 1;
        }
        c
    }

    pub fn prune(&mut self, now: Time, tombstones_for: Millis, limit: usize) -> usize {
        let gone: Vec<OperationId> = self
            .records
            .values()
            .filter(|r| r.op.expires_at().is_some_and(|t| t < now))
            .map(|r| r.op.id)
            .take(limit)
            .collect();
        for id in &gone {
            let Some(r) = self.records.remove(id) else { continue };
            self.blobs.retain(|(of, _), _| of != id);
            let key = key_hash_of(&r.op);
            if let Some(k) = key {
                self.keys.remove(&k);
            }
            let outcome = r.op.execution.word().into();
            let grave = ledger::store::Tombstone { id: *id, fingerprint: r.op.fingerprint, outcome, at: now };
            self.graves.insert(*id, (grave, key));
        }
        self.graves.retain(|_, (t, _)| t.at.plus(tombstones_for) > now);
        gone.len()
    }
}

impl Record {
    pub fn copy(&self) -> Record {
        Record { op: self.op.clone(), ..*self }
    }
}
