//! What a call is answered: it opens an operation, joins one, brings answers, waits.

use super::live::{News, Watch};
use super::part::Untaken;
use super::place::Place;
use super::{Answer, ApplyError, Call, CallError, Creation, JoinedBy, Kind, Ledger, Note, Progress};
use crate::decide::{Event, Refusal};
use crate::input::{self, Given, MAX_ANSWER};
use crate::operation::{DeliveryState, Execution, Operation, Unkeyed};
use crate::planted;
use crate::store::{BlobKind, SlotWrite, StoreError};
use crate::twin::Twin;
use crate::words::{Epoch, Millis, OperationId, Time};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// What is asked while waiting: is the caller still there.
type Gone<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

impl Ledger {
    /// Answers a call: finds its operation or creates it, runs it or joins it, waits for the result up to
    /// `call.wait`.
    ///
    /// `create` is asked when a new operation is needed (again, if another call came first), or most likely is; its
    /// error ends the call before anything is written, unless there is an operation. `gone` resolves when the caller's
    /// stream closes. `progress` hears how far the attempt is, if [`Call::hears_progress`]. Drive the future to its end
    /// (a closed stream is what `gone` is for), and say with [`Ledger::delivered`] what became of every
    /// [`Answer::Result`].
    ///
    /// # Errors
    /// What `create` says.
    pub async fn call<E>(
        self: &Arc<Self>,
        call: &Call,
        create: &(dyn Fn() -> Result<Creation, E> + Send + Sync),
        gone: impl Future<Output = ()> + Send,
        progress: impl FnMut(&Progress) + Send,
    ) -> Result<Answer, E> {
        let mut gone = std::pin::pin!(gone);
        let answer = self.answer_call(call, create, gone.as_mut(), progress).await?;
        if let Answer::Error(e) = &answer {
            self.observer.note(Note::Answered(e.kind));
        }
        Ok(answer)
    }

    async fn answer_call<E>(
        self: &Arc<Self>,
        call: &Call,
        create: &(dyn Fn() -> Result<Creation, E> + Send + Sync),
        mut gone: Gone<'_>,
        mut progress: impl FnMut(&Progress) + Send,
    ) -> Result<Answer, E> {
        let until = self.store.now().plus(call.wait);
        let mut unmet = self.unmet(call);
        // Why it was not created; told if there is no operation when that is looked up once more.
        let mut refused: Option<Box<CallError>> = None;
        // The loser of a compare-and-set starts over; each round reads what beat it.
        for _ in 0..ROUNDS {
            let key = unmet.take();
            let unread = key.is_some();
            let place = match key {
                None => self.place(call).await,
                key => Ok(Place::New { key, slot: SlotWrite::Set }),
            };
            let place = match place {
                Ok(p) => p,
                Err(e) => {
                    // It may have been told that the one it names runs. Whether that is its own is not known either.
                    let named = call.key.as_ref().and_then(|k| k.key.operation_id());
                    if let Some(id) = call.named.or(named) {
                        let unreadable = self.unreadable(call, id, &e);
                        return Ok(error(CallError { operation: None, ..unreadable }));
                    }
                    // Whoever comes back with a reserved key may have it in a state only, and begin anew without it.
                    if let Some(key) = self.reserved(call) {
                        let unconfirmed = CallError::unconfirmed(key.as_str().to_owned());
                        return Ok(error(CallError { retry_after: Some(Millis::secs(5)), ..unconfirmed }));
                    }
                    // That a limit is in the way is only said where no operation is.
                    let refused = refused.filter(|e| !matches!(e.kind, Kind::Limited | Kind::Denied));
                    return Ok(refused.map_or_else(|| error(CallError::store()), Answer::Error));
                }
            };
            match place {
                Place::Error(e) => return Ok(Answer::Error(e)),
                Place::Known(op, by) => {
                    let id = op.id;
                    // Boxed, as is the wait for a twin: a call that opens an operation doesn't carry their state.
                    let answer = Box::pin(self.known(call, *op, by, until, gone, &mut progress)).await;
                    return Ok(answer.unwrap_or_else(|e| error(self.unreadable(call, id, &e))));
                }
                Place::Wait(op) => {
                    let id = op.id;
                    let answer = match Box::pin(self.wait_on_twin(call, *op, until, gone.as_mut())).await {
                        Ok(Waited::Join(op)) => {
                            let by = JoinedBy::Fingerprint;
                            Box::pin(self.known(call, *op, by, until, gone, &mut progress)).await
                        }
                        Ok(Waited::Answer(a)) => Ok(a),
                        Err(e) => Err(e),
                    };
                    return Ok(answer.unwrap_or_else(|e| error(self.unreadable(call, id, &e))));
                }
                Place::New { key: None, .. } if call.unkeyed == Unkeyed::Reserve => {
                    return Ok(Answer::Reserve { key: self.mint(call) });
                }
                Place::New { key, slot } => {
                    if let Some(e) = refused {
                        return Ok(Answer::Error(e));
                    }
                    let creation = match create() {
                        Ok(creation) => creation,
                        // Whatever stands in the way of a new one, the operation may be there.
                        Err(_) if unread => continue,
                        Err(e) => return Err(e),
                    };
                    if unread
                        && (creation.gate.is_some() || !creation.allowances.is_empty())
                        && !planted!(ClaimedAgain)
                    {
                        // A call that is made again takes nothing of what is limited, not even for a moment.
                        continue;
                    }
                    match self.create(call, creation, key, slot).await {
                        Ok(Some((op, watch))) => {
                            let id = op.id;
                            let answer = self.wait(call, op, watch, None, until, gone, &mut progress).await;
                            return Ok(answer.unwrap_or_else(|e| error(self.unreadable(call, id, &e))));
                        }
                        Ok(None) => {}
                        // Nothing of it was written; but another call of the same key may have come first, and what it
                        // took may be what was missing here.
                        Err(e) if unread || e.operation.is_none() => refused = Some(e),
                        Err(e) => return Ok(Answer::Error(e)),
                    }
                }
            }
        }
        // Other calls kept coming first.
        Ok(error(CallError::store()))
    }

    /// Answers a call about an operation that was there already.
    async fn known(
        self: &Arc<Self>,
        call: &Call,
        op: Operation,
        by: JoinedBy,
        until: Time,
        gone: Gone<'_>,
        progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Answer, StoreError> {
        if call.answers.iter().any(|(_, a)| a.len() > MAX_ANSWER) {
            return Ok(error(CallError::plain(
                Kind::BadArguments,
                "An answer is larger than allowed, so none of them was taken.",
                "Answer with less.",
            )));
        }
        if input::compare(&op, &call.answers) == Given::Conflict && !planted!(AnswerOverwrites) {
            return Ok(error(self.answer_conflict(call, &op)));
        }
        self.observer.note(Note::Joined(by, &op));
        let mut watch = self.live.watch(op.id, true);
        match &op.execution {
            Execution::Completed => return self.stored(op, Some(by)).await,
            Execution::Cancelled { explicit } => return Ok(error(self.cancelled(call, &op, *explicit))),
            Execution::InputRequired { .. } if op.waits_for_input() && !call.answers.is_empty() => {
                return self.answered_by(call, op, watch, by, until, gone, progress).await;
            }
            Execution::InputRequired { .. } => return self.waiting(op, Some(by)).await,
            Execution::InDoubt { .. }
            | Execution::Accepted
            | Execution::Failed { .. }
            | Execution::Running => {}
        }
        match self.take_part(&op).await {
            Ok(next) => {
                // Its own write rang too.
                watch.seen += 1;
                self.wait(call, next, watch, Some(by), until, gone, progress).await
            }
            Err(Untaken::Limited(e)) => Ok(Answer::Error(e)),
            Err(Untaken::Apply(ApplyError::Store(e))) => Err(e),
            Err(Untaken::Apply(ApplyError::Refused(Refusal::CantAsk))) => Ok(error(self.in_doubt(call, &op))),
            // It moved on meanwhile, or recovery is about to end it: wait for it as it is now.
            Err(Untaken::Apply(ApplyError::Refused(_) | ApplyError::Gone | ApplyError::Handle { .. })) => {
                match self.read(op.id).await? {
                    Some(now) => self.wait(call, now, watch, Some(by), until, gone, progress).await,
                    None => Ok(error(self.expired(call))),
                }
            }
        }
    }

    /// A call that brings answers. Of two that bring the same, one goes first and the other joins.
    #[allow(clippy::too_many_arguments)]
    async fn answered_by(
        self: &Arc<Self>,
        call: &Call,
        op: Operation,
        watch: Watch,
        by: JoinedBy,
        until: Time,
        gone: Gone<'_>,
        progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Answer, StoreError> {
        match self.record_answers(&op, &call.scope.principal, &call.answers, true).await {
            Ok(next) => self.wait(call, next, watch, Some(by), until, gone, progress).await,
            Err(ApplyError::Store(e)) => Err(e),
            Err(ApplyError::Refused(Refusal::AnswerConflict)) => Ok(error(self.answer_conflict(call, &op))),
            // They are recorded already, or it moved on meanwhile.
            Err(_) => match self.read(op.id).await? {
                Some(now) if now.waits_for_input() => self.waiting(now, Some(by)).await,
                Some(now) => {
                    let now = match self.take_part(&now).await {
                        Ok(next) => next,
                        Err(Untaken::Limited(e)) => return Ok(Answer::Error(e)),
                        Err(Untaken::Apply(_)) => now,
                    };
                    self.wait(call, now, watch, Some(by), until, gone, progress).await
                }
                None => Ok(error(self.expired(call))),
            },
        }
    }

    /// It waits for a person: to answer what it asked, or to say what happened.
    async fn waiting(&self, op: Operation, joined_by: Option<JoinedBy>) -> Result<Answer, StoreError> {
        if op.waits_for_input() {
            let open = self.open_asks(&op).await?;
            return Ok(Answer::Input { operation: Box::new(op), open, joined_by });
        }
        let question = match &op.execution {
            Execution::InputRequired { question } => question.clone(),
            _ => String::new(),
        };
        Ok(Answer::Confirm { operation: Box::new(op), question, joined_by })
    }

    /// Waits until the operation can be answered, the time is over or the caller is gone.
    #[allow(clippy::too_many_arguments)]
    async fn wait(
        self: &Arc<Self>,
        call: &Call,
        op: impl Into<Arc<Operation>> + Send,
        mut watch: Watch,
        joined_by: Option<JoinedBy>,
        until: Time,
        mut gone: Gone<'_>,
        progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Answer, StoreError> {
        let mut op = op.into();
        if call.hears_progress {
            watch.hear_progress();
        }
        let mut told = 0.0;
        // However much progress is told meanwhile.
        let mut next_look = self.store.now().plus(self.settings.poll);
        loop {
            // Not marked as seen: what rings between a read and the wait for a ring is not lost, from the moment on that
            // the watch began.
            let news: News = watch.news.borrow().clone();
            if let Some((done, result)) = news.outcome {
                self.outbox.handed(done.id, self.store.now());
                return Ok(Answer::Result { operation: done, result, replayed: false, joined_by });
            }
            if news.progress.done > told {
                told = news.progress.done;
                progress(&news.progress);
            }
            if op.execution == Execution::Accepted {
                // Abandoned by somebody who did not know of this call.
                match Box::pin(self.take_part(&op)).await {
                    Ok(next) => op = Arc::new(next),
                    Err(Untaken::Limited(e)) => return Ok(Answer::Error(e)),
                    Err(Untaken::Apply(ApplyError::Store(e))) => return Err(e),
                    Err(Untaken::Apply(_)) => {}
                }
            }
            // An operation in doubt may have an owner: the question to the provider is under way.
            let asked =
                op.owner != Epoch(0) && self.store.is_live(op.owner) && self.store.now() < op.deadline;
            if op.execution.is_answerable() && !asked {
                return match &op.execution {
                    Execution::Completed => self.stored(Arc::unwrap_or_clone(op), joined_by).await,
                    Execution::Failed { reason } => Ok(error(self.failed(call, &op, reason))),
                    Execution::Cancelled { explicit } => Ok(error(self.cancelled(call, &op, *explicit))),
                    Execution::InputRequired { .. } => {
                        self.waiting(Arc::unwrap_or_clone(op), joined_by).await
                    }
                    _ => Ok(error(self.in_doubt(call, &op))),
                };
            }
            let now = self.store.now();
            let left = until.since(now);
            if left <= Millis(0) {
                if op.execution.is_answerable() {
                    return Ok(error(self.in_doubt(call, &op)));
                }
                if call.lease_of_caller > Millis(0) {
                    self.linger(op.id, call.lease_of_caller);
                }
                return Ok(Answer::Running { operation: Box::new(Arc::unwrap_or_clone(op)), joined_by });
            }
            let ring = watch.news.changed();
            let pause = self.env.sleep(left.min(next_look.since(now)).max(Millis(1)));
            let paused = tokio::select! {
                biased;
                () = gone.as_mut() => {
                    drop(watch);
                    self.leave(op.id).await?;
                    return Ok(Answer::Gone);
                }
                _ = ring => false,
                () = pause => true,
            };
            // The outcome comes with the ring where the attempt runs here; only else is the ledger read. Progress alone
            // changes no record.
            let read = {
                let now = watch.news.borrow();
                now.outcome.is_none() && (paused || now.rings != watch.seen)
            };
            if read {
                watch.seen = watch.news.borrow().rings;
                next_look = self.store.now().plus(self.settings.poll);
                match self.read(op.id).await? {
                    Some(now) => op = Arc::new(now),
                    None => return Ok(error(self.expired(call))),
                }
            }
        }
    }

    /// The caller's stream closed. The last one to go abandons the operation before its point of no return;
    /// after it, the operation runs on.
    pub(super) async fn leave(&self, id: OperationId) -> Result<(), StoreError> {
        let Some(op) = self.read(id).await? else { return Ok(()) };
        let left = self.apply(&op, |now| {
            // Another call waits, here or at the replica that joined last.
            let attended = self.live.has_callers(id) || now.caller.epoch != self.store.epoch();
            if attended { Err(Refusal::Nothing) } else { Ok(vec![Event::CallerGone]) }
        });
        match left.await {
            Ok(next) => {
                if next.execution == Execution::Accepted {
                    self.live.stop(id, next.attempt);
                }
                Ok(())
            }
            Err(ApplyError::Refused(_) | ApplyError::Gone | ApplyError::Handle { .. }) => Ok(()),
            Err(ApplyError::Store(e)) => Err(e),
        }
    }

    async fn wait_on_twin(
        self: &Arc<Self>,
        call: &Call,
        op: Operation,
        until: Time,
        mut gone: Gone<'_>,
    ) -> Result<Waited, StoreError> {
        let mut watch = self.live.watch(op.id, false);
        let mut op = op;
        loop {
            match self.twin_of(call, &op) {
                Twin::Join => return Ok(Waited::Join(Box::new(op))),
                // It waited on this one, so it is answered about this one and never becomes another.
                Twin::Delivered | Twin::History => return Ok(Waited::Answer(error(self.twin(call, &op)))),
                Twin::Wait => {}
            }
            let left = until.since(self.store.now());
            if left <= Millis(0) {
                return Ok(Waited::Answer(error(self.twin(call, &op))));
            }
            let pause = self.env.sleep(left.min(self.settings.poll));
            tokio::select! {
                biased;
                () = gone.as_mut() => return Ok(Waited::Answer(Answer::Gone)),
                _ = watch.news.changed() => {}
                () = pause => {}
            }
            match self.read(op.id).await? {
                Some(now) => op = self.outbox.newest(now),
                None => return Ok(Waited::Answer(error(self.expired(call)))),
            }
        }
    }

    async fn stored(&self, op: Operation, joined_by: Option<JoinedBy>) -> Result<Answer, StoreError> {
        match self.store.blob(op.id, BlobKind::Result).await? {
            Some(result) => {
                self.outbox.handed(op.id, self.store.now());
                // Whoever opened it reads its own result back where that was quicker than being told.
                // The same holds for its further legs and rounds.
                let replayed = match joined_by {
                    None => false,
                    Some(JoinedBy::State) => op.delivery.state >= DeliveryState::Written,
                    Some(_) => true,
                };
                Ok(Answer::Result { operation: Arc::new(op), result: result.into(), replayed, joined_by })
            }
            None => Err(StoreError::Damaged(format!("{} has no result", op.id))),
        }
    }
}

/// How often the loser of a compare-and-set looks again. Each round somebody else came first, so this many
/// mean that the store contradicts itself.
pub(super) const ROUNDS: usize = 100;

enum Waited {
    Join(Box<Operation>),
    Answer(Answer),
}

fn error(e: CallError) -> Answer {
    Answer::Error(Box::new(e))
}
