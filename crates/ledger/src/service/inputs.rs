//! Answers from wherever they come, approvals, and operations that are handed out as tasks.

use super::live::Changes;
use super::place::Place;
use super::run::Given;
use super::{ApplyError, Call, Ledger, OperateError};
use crate::decide::{Event, Refusal};
use crate::effect::Intent;
use crate::failpoint;
use crate::handle::{HandleFound, lately};
use crate::input::{Ask, InputKind};
use crate::keys;
use crate::operation::{Execution, Operation};
use crate::planted;
use crate::store::{BlobKind, StoreError};
use crate::words::{EffectKey, Millis, OperationId};
use std::sync::Arc;

/// What an operator's yes is kept as.
const GRANTED: &[u8] = br#"{"action":"accept"}"#;

/// How old a handle's time of use may be before its next use is noted: a part of the time that it may lie unused.
const TOUCH_PART: i64 = 16;

impl Ledger {
    /// What an operation asks and has no answer to.
    pub(super) async fn open_asks(&self, op: &Operation) -> Result<Vec<Ask>, StoreError> {
        let mut open = Vec::new();
        for i in op.open_inputs() {
            let kind = BlobKind::Request(u16::try_from(i).unwrap_or(u16::MAX));
            let request = self.store.blob(op.id, kind).await?;
            let request =
                request.ok_or_else(|| StoreError::Damaged(format!("{} lacks a question", op.id)))?;
            let input = &op.inputs[i];
            open.push(Ask { key: input.key.clone(), kind: input.kind, request });
        }
        Ok(open)
    }

    /// The intent that waits for the last answer, and its name at the provider.
    async fn planned(&self, op: &Operation) -> Result<Option<Box<(Intent, EffectKey)>>, StoreError> {
        if op.planned.is_none() {
            return Ok(None);
        }
        let packed = self.store.blob(op.id, BlobKind::Planned).await?;
        let intent = packed.as_deref().and_then(Intent::unpack);
        let intent = intent.ok_or_else(|| StoreError::Damaged(format!("{} lacks its intent", op.id)))?;
        let key = self.effect_key(op, &intent);
        Ok(Some(Box::new((intent, key))))
    }

    /// Records answers; the last one begins the next attempt here. `by_call`: whoever brings them waits for the result
    /// here.
    pub(super) async fn record_answers(
        self: &Arc<Self>,
        op: &Operation,
        by: &str,
        answers: &[(String, Vec<u8>)],
        by_call: bool,
    ) -> Result<Operation, ApplyError> {
        let planned = self.planned(op).await?;
        let mut claimed = None;
        let (next, epoch) = loop {
            // The attempt that it may begin belongs to the boot that writes it.
            let epoch = self.store.epoch();
            let make = |now: &Operation| {
                claimed = Some(now.attempt + 1);
                Ok(vec![Event::Answer {
                    by: by.to_owned(),
                    answers: answers.to_vec(),
                    epoch,
                    by_call,
                    intent: planned.clone(),
                }])
            };
            failpoint!("answer.before");
            let done = self.apply_as(op, make, Some(epoch), &[], None).await.map(Arc::unwrap_or_clone);
            failpoint!("answer.after");
            match done {
                Err(ApplyError::Refused(Refusal::Fenced)) if epoch != self.store.epoch() => {}
                done => break (done?, epoch),
            }
        };
        // After a lost acknowledgement it may be another's by now.
        let mine =
            next.execution == Execution::Running && next.owner == epoch && claimed == Some(next.attempt);
        if mine {
            let planned = planned.filter(|_| next.planned.is_none()).map(|p| Arc::new(p.0));
            self.launch(next.clone(), Given { planned, ..Given::default() });
        }
        // Who waits elsewhere for something else than its end.
        self.bus.moved(next.id);
        Ok(next)
    }

    /// Answers what an operation asked: first come, first kept. Whoever answers must be allowed to. The same answers again
    /// change nothing; the last one begins the next attempt, here. Keys that name no question count for nothing.
    ///
    /// # Errors
    /// [`OperateError::Refused`] with [`Refusal::AnswerConflict`]: another answer came first. Else it is not asking, or
    /// the ledger can't be used.
    pub async fn answer(
        self: &Arc<Self>,
        id: OperationId,
        by: &str,
        answers: &[(String, Vec<u8>)],
    ) -> Result<Operation, OperateError> {
        let op = self.find(id).await?;
        match self.record_answers(&op, by, answers, false).await {
            Ok(next) => Ok(next),
            // They are recorded already, or answer nothing.
            Err(ApplyError::Refused(Refusal::Nothing)) => self.find(id).await,
            Err(ApplyError::Refused(refusal)) => {
                let state = self.find(id).await?.execution.word();
                Err(OperateError::Refused { state, refusal })
            }
            Err(ApplyError::Gone | ApplyError::Handle { .. }) => Err(OperateError::Unknown),
            Err(ApplyError::Store(e)) => Err(e.into()),
        }
    }

    /// A person says yes to what waits for it. Exactly what was shown is sent. Saying it again changes nothing.
    ///
    /// # Errors
    /// [`OperateError`]: it does not wait for a yes (any more).
    pub async fn approve(self: &Arc<Self>, id: OperationId, by: &str) -> Result<Operation, OperateError> {
        loop {
            let op = self.find(id).await?;
            let approvals = |open: bool| {
                let of = op.inputs.iter().filter(|i| i.kind == InputKind::Approval);
                of.filter(|i| i.answer.is_none() == open).map(|i| i.key.clone()).collect::<Vec<_>>()
            };
            let open = approvals(true);
            if open.is_empty() || !op.waits_for_input() {
                let said = open.is_empty() && !approvals(false).is_empty();
                return if said { Ok(op) } else { Err(refused(&op, Refusal::State)) };
            }
            let answers: Vec<_> = open.into_iter().map(|key| (key, GRANTED.to_vec())).collect();
            match self.answer(id, by, &answers).await {
                // Somebody else said yes to one of them, in other words: what is still open is asked for again.
                Err(OperateError::Refused { refusal: Refusal::AnswerConflict, .. }) => {}
                other => return other,
            }
        }
    }

    /// A person says no to what waits for a yes: nothing of it is done, for good.
    ///
    /// # Errors
    /// [`OperateError`]: it does not wait for a yes (any more).
    pub async fn deny(&self, id: OperationId, by: &str) -> Result<Operation, OperateError> {
        self.denied(id, None, by).await
    }

    /// The same, said to one question: where that waits for nothing any more, it is no word about another.
    ///
    /// # Errors
    /// [`OperateError`]: the question does not wait for a yes (any more).
    pub async fn deny_asked(&self, id: OperationId, key: &str, by: &str) -> Result<Operation, OperateError> {
        self.denied(id, Some(key), by).await
    }

    async fn denied(&self, id: OperationId, key: Option<&str>, by: &str) -> Result<Operation, OperateError> {
        let op = self.find(id).await?;
        let mut state = op.execution.word();
        let denied = self.apply(&op, |now| {
            state = now.execution.word();
            let waits = |key: &str| now.open_inputs().any(|i| now.inputs[i].key == key);
            if now.waits_for_approval() && key.is_none_or(waits) {
                Ok(vec![Event::Cancel { by: by.to_owned() }])
            } else {
                Err(Refusal::State)
            }
        });
        match denied.await {
            Ok(next) => Ok(next),
            Err(ApplyError::Refused(refusal)) => Err(OperateError::Refused { state, refusal }),
            Err(ApplyError::Gone | ApplyError::Handle { .. }) => Err(OperateError::Unknown),
            Err(ApplyError::Store(e)) => Err(e.into()),
        }
    }

    /// Gives a client a handle to an operation: it runs on by itself from then on. Durable before this returns; the same
    /// again changes nothing.
    ///
    /// # Errors
    /// [`OperateError`].
    pub async fn hand_out(&self, id: OperationId, ttl: Option<Millis>) -> Result<Operation, OperateError> {
        let out = self.operate(id, |_| Ok(Event::HandOut { ttl })).await;
        failpoint!("task.after");
        match out {
            Err(OperateError::Refused { refusal: Refusal::Nothing, .. }) => self.find(id).await,
            other => other,
        }
    }

    /// The id under which a client holds an operation as a task: always the same.
    #[must_use]
    pub fn task_id(&self, id: OperationId) -> String {
        keys::task(&self.store.identity().secret, id)
    }

    /// The operation that a task id names. Nothing is read: whether it is the asker's is still to be seen.
    #[must_use]
    pub fn task(&self, id: &str) -> Option<OperationId> {
        keys::task_of(&self.store.identity().secret, id)
    }

    /// Rings whenever the record of this operation changes.
    #[must_use]
    pub fn changes(&self, id: OperationId) -> Changes {
        Changes(self.live.watch(id, false))
    }

    /// Between two legs of a call its caller counts as present for `grace`. If nobody waits then, it counts as gone.
    pub fn linger(self: &Arc<Self>, id: OperationId, grace: Millis) {
        if planted!(LegsNotAwaited) {
            return;
        }
        let watch = self.live.watch(id, true);
        if !self.live.linger(id, self.env.monotonic() + grace.0) {
            return;
        }
        let me = self.clone();
        self.env.spawn(Box::pin(async move {
            while let Some(left) = me.live.lingers(id, me.env.monotonic()) {
                me.env.sleep(left).await;
            }
            drop(watch);
            if me.live.has_callers(id) {
                return;
            }
            if let Err(e) = me.leave(id).await {
                tracing::warn!(operation = %id, error = %e, "it could not be recorded that a caller did not come back");
            }
        }));
    }

    /// The questions of an operation that have no answer yet.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read.
    pub async fn asked(&self, op: &Operation) -> Result<Vec<Ask>, StoreError> {
        if op.waits_for_input() { self.open_asks(op).await } else { Ok(Vec::new()) }
    }

    /// The intent that waits for a yes, for showing what will be sent.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read.
    pub async fn planned_intent(&self, op: &Operation) -> Result<Option<Intent>, StoreError> {
        Ok(self.planned(op).await?.map(|p| p.0))
    }

    /// Whether a call belongs to this operation: its state, its key and its arguments agree that it does.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read.
    pub async fn belongs(&self, call: &Call, id: OperationId) -> Result<bool, StoreError> {
        Ok(matches!(self.place(call).await?, Place::Known(op, _) if op.id == id))
    }

    /// A handle of this principal, by its text; being read is a use of it.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read.
    pub async fn handle(&self, principal: &str, text: &str) -> Result<HandleFound, StoreError> {
        let id_hash = crate::handle::id_hash(text);
        let now = self.store.now();
        let found = HandleFound::of(self.store.handle(&id_hash, principal, lately(now)).await?, now);
        if let HandleFound::There(h) = &found
            && now.since(h.used_at) >= Millis((h.idle.0 / TOUCH_PART).max(1))
        {
            let (store, principal) = (self.store.clone(), h.principal.clone());
            self.env.spawn(Box::pin(async move {
                // It only ever lives a little shorter for it.
                let _ = store.touch_handle(&id_hash, &principal, now).await;
            }));
        }
        Ok(found)
    }
}

fn refused(op: &Operation, refusal: Refusal) -> OperateError {
    OperateError::Refused { state: op.execution.word(), refusal }
}
