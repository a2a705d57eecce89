//! What is stored: the plainest possible store, shared by all replicas of a schedule. Every change of it goes through
//! [`State::apply`], which has it checked.

use crate::lab::{Lab, Record, State};
use ledger::handle::HandleChange;
use ledger::store::{Committed, SlotWrite, Write, key_hash_of, slot_hash_of};
use ledger::words::Epoch;
use ledger::{Blob, BlobKind, Operation, OperationId};

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub epoch: Epoch,
    /// The task whose call it is, where that is known.
    pub task: usize,
}

impl State {
    pub fn apply(&mut self, lab: &Lab, write: &Write, who: Writer) -> Committed {
        match write {
            Write::Create { operation, slot, blobs } => self.create(lab, operation, *slot, blobs, who),
            Write::Update { operation, stamp, blobs, handles } => {
                self.update(lab, operation, *stamp, blobs, handles, who)
            }
        }
    }

    fn create(
        &mut self,
        lab: &Lab,
        op: &Operation,
        slot: SlotWrite,
        blobs: &[Blob],
        who: Writer,
    ) -> Committed {
        if self.records.contains_key(&op.id) {
            return Committed::Done;
        }
        let key = key_hash_of(op);
        if key.is_some_and(|k| self.keys.contains_key(&k) || self.graves.values().any(|g| g.1 == Some(k))) {
            return Committed::KeyTaken;
        }
        let s = slot_hash_of(op);
        let holds = self.slots.get(&s).copied().filter(|id| self.records.contains_key(id));
        if let SlotWrite::CompareAndSet(expected) = slot
            && holds != expected
        {
            return Committed::SlotTaken;
        }
        self.check_created(lab, op, holds, who);
        self.check_limits_created(lab, op, who);
        if let Some(k) = key {
            self.keys.insert(k, op.id);
        }
        self.slots.insert(s, op.id);
        self.add(lab, op.id, blobs);
        (0..op.inputs.len()).for_each(|n| self.check_asked(lab, op, n));
        self.records.insert(op.id, Record::new(op.clone()));
        self.created_by.insert(who.task, op.id);
        Committed::Done
    }

    fn update(
        &mut self,
        lab: &Lab,
        op: &Operation,
        stamp: u64,
        blobs: &[Blob],
        handles: &[HandleChange],
        who: Writer,
    ) -> Committed {
        let Some(r) = self.records.get(&op.id) else { return Committed::Stale };
        if r.op.version == op.version && r.stamp == stamp {
            return Committed::Done;
        }
        if r.op.version + 1 != op.version {
            return Committed::Stale;
        }
        if !handles.is_empty() {
            let before = r.op.clone();
            if let Some(refused) = self.change_handles(lab, op, &before, handles) {
                return refused;
            }
        }
        let Some(r) = self.records.get_mut(&op.id) else { return Committed::Stale };
        let before = std::mem::replace(&mut r.op, op.clone());
        r.stamp = stamp;
        (r.due, r.held) = (None, None);
        let now = lab.time();
        if crate::check::is_history(&before, now, op.policy.guard_window) {
            r.was_history = Some(now);
        }
        self.add(lab, op.id, blobs);
        self.check_updated(lab, &before, op, who);
        self.check_books(lab, &before, op, who);
        self.check_limits_updated(lab, &before, op, who);
        Committed::Done
    }

    fn add(&mut self, lab: &Lab, id: OperationId, blobs: &[Blob]) {
        for b in blobs {
            let kept = self.blobs.entry((id, b.kind)).or_insert_with(|| b.data.clone());
            if *kept != b.data && b.kind != BlobKind::Arguments {
                let what = format!("{id}: another {:?} was written over one that is kept", b.kind);
                self.fail_with(lab, "kept_once", what);
            }
        }
    }

    pub fn fail_with(&mut self, lab: &Lab, rule: &'static str, what: String) {
        lab.fail(self, rule, what);
    }
}
