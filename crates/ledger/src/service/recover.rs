//! What is left behind is taken up again: at the start everything that another boot left, while running
//! whatever is due.

use super::run::Given;
use super::{ApplyError, Ledger, Note};
use crate::decide::{AtCap, Event, Fence, Refusal, at_cap};
use crate::failpoint;
use crate::operation::{DeliveryState, Execution, Operation};
use crate::planted;
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
                while self.live.recovering() >= self.settings.recover_at_once {
                    self.env.sleep(Millis(10)).await;
                }
                if self.recover_one(&op, false).await? {
                    taken += 1;
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
                loop {
                    match self.store.prune(self.store.now(), self.settings.tombstones_for, 200).await {
                        Ok(n) if n >= 200 => self.env.sleep(Millis(5)).await,
                        Ok(_) => break,
                        Err(e) => {
                            tracing::error!(error = %e, "old records could not be removed; it is tried again");
                            break;
                        }
                    }
                }
            }
            let until = match self.store.next_attention().await {
                Ok(Some(t)) => t.since(self.store.now()),
                _ => Millis::secs(1),
            };
            self.env.sleep(until.min(Millis::secs(1)).max(self.settings.sweep)).await;
        }
    }

    /// One round of recovery over whatever is due now.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read or written.
    pub async fn tend_once(self: &Arc<Self>) -> Result<usize, StoreError> {
        self.clear_outbox().await?;
        let due = self.store.due(self.store.now(), 256).await?;
        let mut taken = 0;
        for op in due {
            if self.recover_one(&op, true).await? {
                taken += 1;
            }
        }
        Ok(taken)
    }

    /// Does what one record needs: one whose time has come (`due`), or one that another boot left behind.
    /// Returns whether something was done.
    async fn recover_one(self: &Arc<Self>, op: &Operation, due: bool) -> Result<bool, StoreError> {
        let now = self.store.now();
        match &op.execution {
            Execution::Accepted if due => self.settle(op, Event::Expire).await,
            Execution::Running if planted!(LeftBehind) => Ok(false),
            Execution::Running => {
                let mine = op.owner == self.store.epoch();
                if mine && self.live.has_attempt(op.id) && now.since(op.deadline) < Millis::secs(2) {
                    // Its own timer ends it; a hung one is taken over after a moment.
                    return Ok(false);
                }
                if !op.is_past_no_return() && self.caller_gone(op) {
                    let done = self.settle(op, Event::CallerGone).await?;
                    if done {
                        self.live.stop(op.id, op.attempt);
                        self.observer.note(Note::Window("abandoned"));
                    }
                    return Ok(done);
                }
                if self.live.recovering() >= self.settings.recover_at_once {
                    // Another round takes it up.
                    return Ok(false);
                }
                self.take_over(op).await
            }
            Execution::Completed => match op.delivery.state {
                DeliveryState::Ready if due || self.caller_gone(op) => {
                    let done = self.settle(op, Event::Deliver(DeliveryState::Undelivered)).await?;
                    if done {
                        self.observer.note(Note::Window("undelivered"));
                    }
                    Ok(done)
                }
                DeliveryState::Undelivered if due => {
                    let done = self.settle(op, Event::Alerted).await?;
                    if done {
                        self.observer.note(Note::Alert { what: "undelivered", operation: op });
                    }
                    Ok(done)
                }
                _ => Ok(false),
            },
            _ => Ok(false),
        }
    }

    async fn settle(&self, op: &Operation, event: Event) -> Result<bool, StoreError> {
        let abandons = matches!(event, Event::CallerGone);
        let settled = self.apply(op, |now| {
            // Somebody may have come since the record was read.
            if abandons && !self.caller_gone(now) { Err(Refusal::Nothing) } else { Ok(vec![event.clone()]) }
        });
        match settled.await {
            Ok(_) => Ok(true),
            Err(ApplyError::Refused(_) | ApplyError::Gone) => Ok(false),
            Err(ApplyError::Store(e)) => Err(e),
        }
    }

    async fn take_over(self: &Arc<Self>, op: &Operation) -> Result<bool, StoreError> {
        let epoch = self.store.epoch();
        let claim = self.apply(op, |now| {
            // Judged by the record as it is written, or a live attempt that came meanwhile would be fenced off.
            let owner_dead = now.owner != Epoch(0) && !self.store.is_live(now.owner);
            Ok(vec![Event::Claim { epoch, by_call: false, owner_dead }])
        });
        failpoint!("recover.before");
        match claim.await {
            Ok(claimed) => {
                failpoint!("recover.after");
                self.observer.note(Note::Window(if op.effects_settled() && op.is_past_no_return() {
                    "receipt_without_result"
                } else if op.is_past_no_return() {
                    "intent_without_receipt"
                } else {
                    "running_without_intent"
                }));
                self.live.stop(op.id, op.attempt);
                self.launch(claimed, Given { by_recovery: true, ..Given::default() });
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
        let doubt = |last: &str| Event::Doubt { fence, reason: format!("{why}; last seen: {last}") };
        let event = match at_cap(op) {
            AtCap::Fail => Event::Fail { fence, reason: why.clone() },
            AtCap::Doubt => doubt(op.effects.iter().find(|e| !e.is_settled()).map_or("", |e| e.why.as_str())),
            AtCap::CloseWithAccount => match self.account(op, &why) {
                Some(account) => Event::Close {
                    fence,
                    result: account.result,
                    is_error: account.is_error,
                    caller_gone: self.caller_gone(op),
                },
                None => doubt("every effect is known, but no account of them could be made"),
            },
        };
        let done = self.settle(op, event).await?;
        if done {
            self.observer.note(Note::Alert { what: "attempts_used_up", operation: op });
        }
        Ok(done)
    }
}
