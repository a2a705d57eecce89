//! What is left behind is taken up again: at the start everything that another boot left, while running
//! whatever is due.

use super::{ApplyError, Ledger, Note};
use crate::decide::{AtCap, Event, Fence, Refusal, at_cap};
use crate::operation::{DeliveryState, Execution, Operation};
use crate::store::StoreError;
use crate::words::{Epoch, Millis};
use std::sync::Arc;

impl Ledger {
    /// Takes up what earlier boots left behind. Returns when all of it has been claimed or settled; the
    /// claimed attempts run on.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read.
    pub async fn recover_orphans(self: &Arc<Self>) -> Result<usize, StoreError> {
        let mut after = None;
        let mut taken = 0;
        loop {
            let page = self.store.orphans(after, 256).await?;
            let Some(last) = page.last() else { return Ok(taken) };
            after = Some(last.id);
            for op in page {
                if self.recover_one(&op, true).await? {
                    taken += 1;
                }
                while self.live.running() >= self.settings.recover_at_once {
                    self.env.sleep(Millis(2)).await;
                }
            }
        }
    }

    /// Recovers, delivers and prunes for as long as the process lives.
    pub async fn tend(self: Arc<Self>) {
        let mut next_prune = self.env.monotonic();
        loop {
            if let Err(e) = self.tend_once().await {
                tracing::error!(error = %e, "recovery could not read the ledger; it tries again");
            }
            if self.env.monotonic() >= next_prune {
                next_prune = self.env.monotonic() + 60_000;
                // Small batches, so that calls are never held up for long.
                while let Ok(n) = self.store.prune(self.store.now(), self.settings.tombstones_for, 200).await {
                    if n < 200 {
                        break;
                    }
                    self.env.sleep(Millis(5)).await;
                }
            }
            let until = match self.store.next_attention().await {
                Ok(Some(t)) => t.since(self.store.now()),
                _ => Millis::secs(1),
            };
            self.env.sleep(until.clamp(self.settings.sweep, Millis::secs(1))).await;
        }
    }

    /// One round of recovery over whatever is due now.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read.
    pub async fn tend_once(self: &Arc<Self>) -> Result<usize, StoreError> {
        let due = self.store.due(self.store.now(), 256).await?;
        let mut taken = 0;
        for op in due {
            if self.live.running() >= self.settings.recover_at_once {
                break;
            }
            if self.recover_one(&op, !self.store.is_live(op.owner)).await? {
                taken += 1;
            }
        }
        Ok(taken)
    }

    /// Does what one record needs. Returns whether something was done.
    async fn recover_one(self: &Arc<Self>, op: &Operation, owner_dead: bool) -> Result<bool, StoreError> {
        let now = self.store.now();
        let caller_gone = op.caller.gone || !self.store.is_live(op.caller.epoch) || !self.live.has_callers(op.id);
        let done = match &op.execution {
            Execution::Accepted if now >= op.not_before => self.settle(op, Event::Expire).await?,
            Execution::Running => {
                let mine = op.owner == self.store.epoch();
                if mine && self.live.has_attempt(op.id) && now.since(op.deadline) < Millis::secs(2) {
                    // Its own timer ends it; a hung one is taken over after a moment.
                    return Ok(false);
                }
                if !op.is_past_no_return() && caller_gone {
                    self.observer.note(Note::Window("abandoned"));
                    self.settle(op, Event::CallerGone).await?
                } else {
                    self.take_over(op, owner_dead).await?
                }
            }
            Execution::Completed => match op.delivery.state {
                DeliveryState::Ready if caller_gone || now.since(op.delivery.at) >= self.settings.ready_grace => {
                    self.observer.note(Note::Window("undelivered"));
                    self.settle(op, Event::Deliver(DeliveryState::Undelivered)).await?
                }
                DeliveryState::Undelivered if !op.delivery.alerted && op.attention(self.settings.ready_grace, Millis(0)).is_some() => {
                    // At the start everything with attention is visited; only what is due is alerted about.
                    if owner_dead && op.owner == Epoch(0) && self.store.due(now, 1024).await?.iter().all(|d| d.id != op.id) {
                        return Ok(false);
                    }
                    self.observer.note(Note::Alert { what: "undelivered", operation: op });
                    self.settle(op, Event::Alerted).await?
                }
                _ => false,
            },
            _ => false,
        };
        Ok(done)
    }

    async fn settle(&self, op: &Operation, event: Event) -> Result<bool, StoreError> {
        match self.apply(op, |_| vec![event.clone()]).await {
            Ok(_) => Ok(true),
            Err(ApplyError::Refused(_) | ApplyError::Gone) => Ok(false),
            Err(ApplyError::Store(e)) => Err(e),
        }
    }

    async fn take_over(self: &Arc<Self>, op: &Operation, owner_dead: bool) -> Result<bool, StoreError> {
        let epoch = self.store.epoch();
        match self.apply(op, |_| vec![Event::Claim { epoch, by_call: false, owner_dead }]).await {
            Ok(claimed) => {
                self.observer.note(Note::Window(if op.effects_settled() && op.is_past_no_return() {
                    "receipt_without_result"
                } else if op.is_past_no_return() {
                    "intent_without_receipt"
                } else {
                    "running_without_intent"
                }));
                self.live.stop(op.id, op.attempt);
                self.launch(claimed, None);
                Ok(true)
            }
            Err(ApplyError::Refused(Refusal::Cap)) => self.give_up_at_cap(op).await,
            Err(ApplyError::Refused(_) | ApplyError::Gone) => Ok(false),
            Err(ApplyError::Store(e)) => Err(e),
        }
    }

    /// The attempts are used up: what is known decides.
    async fn give_up_at_cap(&self, op: &Operation) -> Result<bool, StoreError> {
        // Whoever owned the last attempt is dead or past its deadline; the compare-and-set on the record
        // makes sure that it is still the last.
        let fence = Fence { attempt: op.attempt, epoch: op.owner };
        self.live.stop(op.id, op.attempt);
        let why = format!("{} attempts came to no end", op.attempt);
        let event = match at_cap(op) {
            AtCap::Fail => Event::Fail { fence, reason: why },
            AtCap::Doubt => {
                let last = op.effects.iter().find(|e| !e.is_settled()).map_or("", |e| e.why.as_str());
                Event::Doubt { fence, reason: format!("{why}; last seen: {last}") }
            }
            AtCap::CloseWithAccount => {
                let Some(runner) = self.runner.get() else { return Ok(false) };
                let account = runner.account(op, &why);
                Event::Close { fence, result: account.result, is_error: account.is_error, caller_gone: !self.live.has_callers(op.id) }
            }
        };
        self.observer.note(Note::Alert { what: "attempts_used_up", operation: op });
        self.settle(op, event).await
    }
}
