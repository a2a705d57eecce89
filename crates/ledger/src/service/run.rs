//! How an attempt begins, and how it ends: in a result, in none, in a panic or at its time limit.

use super::attempt::{Attempt, Stopped};
use super::gate::Pass;
use super::recover::Place;
use super::{ApplyError, Ledger, RunError, ToolResult};
use crate::decide::{AtCap, Event, Refusal, at_cap};
use crate::effect::{Effect, Intent};
use crate::failpoint;
use crate::operation::{Execution, Operation};
use crate::planted;
use crate::store::{BlobKind, StoreError};
use crate::words::{EffectKey, Millis, Time};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// What an attempt is given besides the record.
#[derive(Default)]
pub(crate) struct Given {
    /// The call's arguments, if they are at hand.
    pub arguments: Option<Arc<[u8]>>,
    /// The intent that the operation was opened with, if that is at hand.
    pub planned: Option<Arc<Intent>>,
    /// Recovery starts it, and bounds how many of those do something at a time.
    pub place: Option<Place>,
    /// It was let through by a gate, which wants to know when this attempt is over.
    pub pass: Option<Pass>,
}

impl Ledger {
    pub(crate) fn effect_key(&self, op: &Operation, intent: &Intent) -> EffectKey {
        EffectKey::derive(
            &self.store.identity().name,
            &op.scope,
            op.id,
            op.key.as_ref(),
            &op.fingerprint,
            &intent.name,
            &intent.discriminator,
        )
    }

    pub(super) async fn intent_of(
        &self,
        op: &Operation,
        index: usize,
        e: &Effect,
    ) -> Result<Option<Intent>, StoreError> {
        let i = u16::try_from(index).unwrap_or(u16::MAX);
        Ok(self.store.blob(op.id, BlobKind::Intent(i)).await?.map(|body| Intent {
            name: e.name.clone(),
            discriminator: e.discriminator.clone(),
            recovery: e.recovery.clone(),
            summary: e.summary.clone(),
            body,
        }))
    }

    /// When recovery goes on after an attempt that came to nothing: 1 s, 2 s, 4 s, … up to the cap, jittered.
    pub(crate) fn rest_until(&self, op: &Operation) -> Time {
        let n = op.attempt.saturating_sub(op.counted_from).min(20);
        let most = Millis((1000i64 << n).min(self.settings.max_rest.0));
        self.store.now().plus(Millis(most.0 / 2).max(self.env.jitter(most)))
    }

    /// Runs an attempt in the background, whoever waits for it.
    pub(crate) fn launch(self: &Arc<Self>, op: impl Into<Arc<Operation>>, given: Given) {
        let op = op.into();
        let id = op.id;
        let (number, epoch) = (op.attempt, op.owner);
        let running = self.live.start(id);
        let me = self.clone();
        let abort = self.env.spawn(Box::pin(async move {
            let _running = running;
            me.run(op, given).await;
        }));
        self.live.abort_with(id, number, epoch, abort);
    }

    async fn run(self: &Arc<Self>, op: Arc<Operation>, given: Given) {
        let Some(runner) = self.runner.get().cloned() else { return };
        let _pass = given.pass;
        let arguments = match given.arguments {
            Some(a) => Some(a),
            // It was opened just now, with an intent that pins them.
            None if given.planned.is_some() => None,
            None => self.store.blob(op.id, BlobKind::Arguments).await.ok().flatten().map(Arc::from),
        };
        if op.version > 1 && !op.allowances.is_empty() {
            self.hold_anyway(&op).await;
        }
        let time_left = op.deadline.since(self.store.now());
        let attempt = Attempt::new(self.clone(), op, arguments, given.planned, given.place);
        if attempt.operation().conclude {
            return self.give_up(&attempt, "an operator ended it".into()).await;
        }
        let work = AssertUnwindSafe(runner.run(&attempt)).catch_unwind();
        let ended = tokio::select! {
            biased;
            r = work => match r {
                Ok(r) => r,
                // What a panic says may hold anything; the record only says that there was one.
                Err(_) => Err(RunError::Tool("the tool failed unexpectedly".into())),
            },
            () = self.env.sleep(time_left.max(Millis(1))) => Err(RunError::Tool("the tool took longer than its limit".into())),
        };
        match ended {
            Ok(result) => self.close(&attempt, result).await,
            Err(RunError::Stopped(
                Stopped::Fenced | Stopped::Doubt(_) | Stopped::Ask(_) | Stopped::Asked | Stopped::Rest(_),
            )) => {}
            Err(RunError::Stopped(Stopped::Store(e))) => {
                tracing::warn!(error = %e, "an attempt ended because the ledger could not be used");
                let (reason, op) = ("the ledger could not be used".to_owned(), attempt.operation());
                if at_cap(&op) == AtCap::Fail && op.execution == Execution::Running {
                    let (fence, until) = (attempt.fence, self.rest_until(&op));
                    self.end(&attempt, Event::Interrupted { fence, reason, until }).await;
                } else {
                    self.give_up(&attempt, reason).await;
                }
            }
            Err(RunError::Stopped(Stopped::NeverSent(why)) | RunError::Tool(why)) => {
                self.give_up(&attempt, why).await
            }
        }
        self.live.ring(attempt.operation().id);
    }

    /// The attempt ended without a result and without a decision of the ledger.
    async fn give_up(self: &Arc<Self>, attempt: &Attempt, why: String) {
        let fence = attempt.fence;
        let op = attempt.operation();
        let rest = || Event::Rest { fence, until: self.rest_until(&op) };
        let event = match (at_cap(&op), &op.execution) {
            (AtCap::Doubt, Execution::Running) if planted!(ResetOnError) => {
                Event::Fail { fence, reason: why }
            }
            (AtCap::CloseWithAccount, _) => match self.account(&op, &why) {
                Some(account) => return self.close(attempt, account).await,
                None => rest(),
            },
            // Its question came to nothing: as before.
            (_, Execution::InDoubt { reason, .. }) => Event::Doubt { fence, reason: reason.clone() },
            (AtCap::Fail, _) => Event::Fail { fence, reason: why },
            (AtCap::Doubt, _) => rest(),
        };
        self.end(attempt, event).await;
    }

    /// Records how an attempt ended.
    async fn end(&self, attempt: &Attempt, event: Event) {
        let op = attempt.operation();
        match attempt.write_at_last(event, None).await {
            Ok(_) => {}
            Err(ApplyError::Store(e)) => {
                tracing::warn!(operation = %op.id, error = %e, "the end of an attempt could not be recorded; recovery takes it up");
            }
            Err(ApplyError::Refused(_) | ApplyError::Gone | ApplyError::Handle { .. }) => {
                tracing::debug!(operation = %op.id, "the attempt was fenced off")
            }
        }
    }

    /// A result that lists what was applied, unless the runner can't even do that.
    pub(crate) fn account(&self, op: &Operation, why: &str) -> Option<ToolResult> {
        let runner = self.runner.get()?;
        std::panic::catch_unwind(AssertUnwindSafe(|| runner.account(op, why))).ok()
    }

    async fn close(self: &Arc<Self>, attempt: &Attempt, result: ToolResult) {
        let fence = attempt.fence;
        let op = attempt.operation();
        let bytes: Arc<[u8]> = result.result.into();
        failpoint!("close.before");
        if planted!(AnswerBeforeReceipt) {
            self.live.outcome(op.clone(), bytes.clone());
        }
        let caller_gone = self.caller_gone(&op);
        let close = Event::Close { fence, result: bytes.to_vec(), is_error: result.is_error, caller_gone };
        let closed = attempt.write_at_last(close, Some(&bytes)).await;
        failpoint!("close.after");
        match closed {
            Ok(_) => {}
            Err(ApplyError::Refused(Refusal::Unsettled)) => {
                // The tool came to a result although an effect of it is open: nothing closes over that.
                let until = self.rest_until(&op);
                if attempt.write_at_last(Event::Rest { fence, until }, None).await.is_err() {
                    tracing::warn!(operation = %op.id, "a tool ended with an open effect; recovery takes it up");
                }
            }
            Err(ApplyError::Refused(_) | ApplyError::Gone | ApplyError::Handle { .. }) => {}
            Err(ApplyError::Store(e)) => {
                tracing::warn!(operation = %op.id, error = %e, "a result could not be recorded; recovery takes it up")
            }
        }
    }
}
