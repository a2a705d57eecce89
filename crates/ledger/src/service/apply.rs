//! How events become a write of a record: decided on the record as it is, written under a compare-and-set, decided
//! again where somebody else came first, found again where an acknowledgement was lost.

use super::hold::release;
use super::{ApplyError, Ledger, Note};
use crate::decide::{self, Event, Refusal};
use crate::handle::HandleChange;
use crate::operation::{Execution, Operation};
use crate::planted;
use crate::step::Moment;
use crate::store::{Blob, Committed, StoreError, Write};
use crate::words::{Epoch, Millis};
use std::sync::Arc;
use tokio::sync::oneshot;

impl Ledger {
    /// Applies the events that `make` gives for the record as it is, in one write, reading again when the
    /// record has moved on. What `make` takes from the record it must take from the one it is given.
    pub(super) async fn apply(
        &self,
        op: &Operation,
        make: impl FnMut(&Operation) -> Result<Vec<Event>, Refusal>,
    ) -> Result<Operation, ApplyError> {
        self.apply_as(op, make, None, &[], None).await.map(Arc::unwrap_or_clone)
    }

    /// The same; also says whether it never became clear of some write of it whether it was made.
    pub(super) async fn apply_or_not(
        &self,
        op: &Operation,
        make: impl FnMut(&Operation) -> Result<Vec<Event>, Refusal>,
    ) -> (Result<Operation, ApplyError>, bool) {
        let mut unsure = false;
        let applied = self.apply_noting(op, make, None, &[], None, &mut unsure).await;
        (applied.map(Arc::unwrap_or_clone), unsure)
    }

    /// Applies the events of an attempt, each exactly once: a write whose acknowledgement was lost is found again by
    /// its mark, even if others wrote since, or if it is made only later. Once this replica goes on under another epoch
    /// than `by`, whatever became of the record, the attempt is fenced. `result`: these events close the operation with it.
    pub(super) async fn speak(
        &self,
        op: &Operation,
        by: Epoch,
        events: &[Event],
        handles: &[HandleChange],
        result: Option<&Arc<[u8]>>,
    ) -> Result<Arc<Operation>, ApplyError> {
        self.apply_as(op, |_| Ok(events.to_vec()), Some(by), handles, result).await
    }

    pub(super) async fn apply_as(
        &self,
        op: &Operation,
        make: impl FnMut(&Operation) -> Result<Vec<Event>, Refusal>,
        by: Option<Epoch>,
        handles: &[HandleChange],
        result: Option<&Arc<[u8]>>,
    ) -> Result<Arc<Operation>, ApplyError> {
        self.apply_noting(op, make, by, handles, result, &mut false).await
    }

    async fn apply_noting(
        &self,
        op: &Operation,
        mut make: impl FnMut(&Operation) -> Result<Vec<Event>, Refusal>,
        by: Option<Epoch>,
        handles: &[HandleChange],
        result: Option<&Arc<[u8]>>,
        unsure: &mut bool,
    ) -> Result<Arc<Operation>, ApplyError> {
        let mut current = std::borrow::Cow::Borrowed(op);
        let mut uncertain = 0;
        let mut said: Vec<u64> = Vec::new();
        loop {
            if !planted!(AnswerCountedTwice) && said.contains(&current.spoken) {
                let current = Arc::new(current.into_owned());
                self.written(&current, true, is_waited_for(&current), result).await;
                return Ok(current);
            }
            let (mut next, blobs) =
                make(&current).and_then(|events| self.fold(&current, events)).map_err(|r| {
                    self.observer.note(Note::Refused(r));
                    ApplyError::Refused(r)
                })?;
            let from = current.execution.word();
            let stamp = self.stamp();
            if by.is_some() {
                next.spoken = stamp;
            }
            let write =
                Write::Update { operation: Box::new(next.clone()), stamp, blobs, handles: handles.to_vec() };
            // A claim is written under the epoch that it names, or it would be one of a boot that is over.
            let claim = (next.owner != current.owner && next.owner != Epoch(0)).then_some(next.owner);
            let under = by.or(claim);
            let written = match under {
                Some(epoch) if !planted!(OldEpochSpeaks) => self.store.write_under(epoch, write).await,
                _ => self.store.write(write).await,
            };
            let done = match written {
                Ok(Committed::HandleMoved) => return Err(ApplyError::Handle { full: false }),
                Ok(Committed::HandlesFull) => return Err(ApplyError::Handle { full: true }),
                Ok(c) => c == Committed::Done,
                // A lost acknowledgement is normal: the record tells.
                Err(StoreError::Uncertain(_)) if uncertain < 3 => {
                    uncertain += 1;
                    said.extend(by.map(|_| stamp));
                    self.env.sleep(Millis(20 << uncertain)).await;
                    let before = std::mem::replace(unsure, true);
                    let made = self.read(op.id).await?.as_ref() == Some(&next);
                    *unsure = before || !made;
                    made
                }
                // Decided again, under the epoch that it is now.
                Err(StoreError::Unavailable(_))
                    if by.is_none() && claim.is_some_and(|claim| claim != self.store.epoch()) =>
                {
                    false
                }
                Err(StoreError::Unavailable(_)) if by.is_some_and(|by| by != self.store.epoch()) => {
                    self.observer.note(Note::Refused(Refusal::Fenced));
                    return Err(ApplyError::Refused(Refusal::Fenced));
                }
                Err(e) => return Err(e.into()),
            };
            if done {
                self.observer.note(Note::Transition { from, to: &next });
                let next = Arc::new(next);
                // A doubt that was asked about is the same doubt afterwards, and took a place meanwhile.
                let turned = next.execution != current.execution || next.owner != current.owner;
                self.written(&next, turned, is_waited_for(&next), result).await;
                return Ok(next);
            }
            // Each round reads a newer record, so this ends as soon as the others pause.
            current = std::borrow::Cow::Owned(self.read(op.id).await?.ok_or(ApplyError::Gone)?);
        }
    }

    /// A record was written: what it holds for nothing is given back, if it `turned`; then whoever waits here is told, with
    /// its result, so that nobody has to read it, and the other replicas, if it is `waited_for` there.
    async fn written(&self, op: &Arc<Operation>, turned: bool, waited_for: bool, result: Option<&Arc<[u8]>>) {
        let back = if turned { self.holds_for_nothing(op) } else { Vec::new() };
        let (live, bus, op, result) = (self.live.clone(), self.bus.clone(), op.clone(), result.cloned());
        let tell = move |op: Arc<Operation>| {
            let id = op.id;
            match result {
                Some(result) => live.outcome(op, result),
                None => live.ring(id),
            }
            if waited_for && !planted!(MovedNotTold) {
                bus.moved(id);
            }
        };
        if back.is_empty() {
            return tell(op);
        }
        // The next attempt may stop this one while it waits for that, and nobody would do the rest.
        let (done, told) = oneshot::channel();
        let store = self.store.clone();
        self.env.spawn(Box::pin(async move {
            release(&*store, op.id, op.version, &back).await;
            tell(op);
            let _ = done.send(());
        }));
        let _ = told.await;
    }

    /// The facts that a step is decided by.
    pub(super) fn moment(&self) -> Moment<'_> {
        Moment { now: self.store.now(), clock_step: self.store.clock_step(), gaps: self.store.gaps() }
    }

    /// What several events make of a record, as one transition.
    pub(super) fn fold(&self, op: &Operation, events: Vec<Event>) -> Result<(Operation, Vec<Blob>), Refusal> {
        let now = self.store.now();
        let mut folded: Option<Operation> = None;
        let mut blobs = Vec::new();
        for e in events {
            let t = decide::decide(folded.as_ref().unwrap_or(op), e, now)?;
            folded = Some(Operation { version: op.version + 1, ..t.next });
            blobs.extend(t.blobs);
        }
        Ok((folded.unwrap_or_else(|| op.clone()), blobs))
    }
}

/// Whoever waits at another replica waits for no other states, unless it looks after a task.
fn is_waited_for(op: &Operation) -> bool {
    op.execution.is_answerable() || op.execution == Execution::Accepted || op.task.is_some()
}
