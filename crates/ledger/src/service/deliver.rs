//! Whether results arrived. Deliveries never touch execution.

use super::{ApplyError, Ledger, Note};
use crate::decide::{self, Event};
use crate::keys;
use crate::operation::{DeliveryState, Operation};
use crate::store::{StoreError, Write};
use crate::words::{OperationId, Time};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What this process knows of deliveries before a reader of the store can: results handed to callers whose
/// delivery was not reported yet, and records whose lazy write may still be on its way. Losing it makes a
/// retry inside the window join instead of being told of a twin.
#[derive(Default)]
pub(crate) struct Outbox {
    entries: Mutex<BTreeMap<OperationId, Going>>,
}

struct Going {
    /// Answers that were handed out and not reported yet.
    answers: usize,
    /// Since when.
    since: Time,
    /// The newest record that was written lazily, with later news in it. Not in its place here: entries are moved about.
    newest: Option<Box<Operation>>,
    /// News that came while that write was on its way. It may come to nothing, so nothing is written on top of it:
    /// a record that others changed meanwhile would be overwritten.
    also: Option<DeliveryState>,
}

impl Going {
    fn since(now: Time) -> Going {
        Going { answers: 0, since: now, newest: None, also: None }
    }
}

/// More than this many entries are not kept: whoever reports nothing must not cost memory without end.
const MOST: usize = 65_536;

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<OperationId, Going>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A result is handed to a caller.
    pub fn handed(&self, id: OperationId, now: Time) {
        let mut entries = self.lock();
        if entries.len() < MOST || entries.contains_key(&id) {
            let e = entries.entry(id).or_insert_with(|| Going::since(now));
            e.answers += 1;
            e.since = now;
        }
    }

    /// Whether a result is on its way to a caller of this process.
    pub fn is_going(&self, id: OperationId) -> bool {
        self.lock().get(&id).is_some_and(|e| e.answers > 0)
    }

    /// The newest known state of a record that was read.
    pub fn newest(&self, read: Operation) -> Operation {
        let entries = self.lock();
        let Some(e) = entries.get(&read.id) else { return read };
        match &e.newest {
            Some(n) if n.version > read.version => (**n).clone(),
            // Its write is there, or another's in its place; the news after it is not.
            Some(n)
                if e.also.is_some()
                    && n.version == read.version
                    && (n.delivery.state, n.delivery.at) > (read.delivery.state, read.delivery.at) =>
            {
                let mut n = (**n).clone();
                // The guard window is never cut short by whose news came first.
                n.delivery.at = n.delivery.at.max(read.delivery.at);
                n
            }
            _ => read,
        }
    }
}

impl Ledger {
    /// A delivery of this operation's result ended so: written, or gone first. Call it once for every result
    /// that [`Ledger::call`] gave. Batched, not waited for.
    pub fn delivered(&self, operation: &Operation, state: DeliveryState) {
        let now = self.store.now();
        let mut entries = self.outbox.lock();
        if let Some(e) = entries.get_mut(&operation.id) {
            e.answers = e.answers.saturating_sub(1);
            if let Some(n) = &mut e.newest {
                // One write of it is on its way already.
                if let Ok(t) = decide::decide(n, Event::Deliver(state), now) {
                    **n = Operation { version: n.version, ..t.next };
                    e.also = e.also.max(Some(state));
                }
                drop(entries);
                return self.live.ring(operation.id);
            }
        }
        if let Ok(t) = decide::decide(operation, Event::Deliver(state), now) {
            self.observer.note(Note::Transition { from: operation.execution.word(), to: &t.next });
            if entries.len() < MOST || entries.contains_key(&operation.id) {
                entries.entry(operation.id).or_insert_with(|| Going::since(now)).newest =
                    Some(Box::new(t.next.clone()));
            }
            self.store.write_lazily(Write::Update {
                operation: Box::new(t.next),
                stamp: self.stamp(),
                blobs: t.blobs,
                handles: Vec::new(),
            });
        }
        drop(entries);
        self.live.ring(operation.id);
    }

    /// Forgets what readers of the store can see by now, and answers of which nobody reported anything.
    pub(crate) async fn clear_outbox(&self) -> Result<(), StoreError> {
        let written: Vec<(OperationId, u64)> = {
            let entries = self.outbox.lock();
            entries.iter().map(|(id, e)| (*id, e.newest.as_ref().map_or(0, |n| n.version))).collect()
        };
        if written.is_empty() {
            return Ok(());
        }
        self.store.flush().await?;
        for (id, _) in &written {
            let also = self.outbox.lock().get(id).and_then(|e| e.also);
            if let Some(state) = also {
                self.deliver_late(*id, state).await?;
            }
        }
        let now = self.store.now();
        let mut entries = self.outbox.lock();
        for (id, version) in written {
            if let Some(e) = entries.get_mut(&id) {
                if e.also.is_none() && e.newest.as_ref().is_some_and(|n| n.version <= version) {
                    e.newest = None;
                }
                if e.newest.is_none() && (e.answers == 0 || now.since(e.since) >= self.settings.ready_grace) {
                    entries.remove(&id);
                }
            }
        }
        Ok(())
    }

    /// Records news that came while the write of an earlier delivery was on its way.
    async fn deliver_late(&self, id: OperationId, state: DeliveryState) -> Result<(), StoreError> {
        if let Some(op) = self.read(id).await?
            && let Err(ApplyError::Store(e)) = self.apply(&op, |_| Ok(vec![Event::Deliver(state)])).await
        {
            return Err(e);
        }
        if let Some(e) = self.outbox.lock().get_mut(&id) {
            // What came meanwhile waits for the next round.
            e.also = e.also.filter(|s| *s > state);
        }
        Ok(())
    }

    /// The consumer sent back this nonce: it has the result. Unknown and foreign nonces are ignored alike.
    pub async fn acknowledge(&self, principal: &str, nonce: &str) {
        let Some(id) = keys::acknowledged(&self.store.identity().secret, principal, nonce) else { return };
        // What is still on its way to the store comes first, or it would undo nothing but be lost.
        let _ = self.store.flush().await;
        if let Ok(Some(op)) = self.read(id).await
            && *op.scope.principal == *principal
        {
            let acknowledged = Event::Deliver(DeliveryState::Acknowledged);
            if let Err(ApplyError::Store(e)) = self.apply(&op, |_| Ok(vec![acknowledged.clone()])).await {
                tracing::warn!(operation = %id, error = %e, "an acknowledgement could not be recorded");
            }
        }
    }
}
