//! What is left behind is taken up again: at the start everything that another boot left, while running
//! whatever is due.
//!
//! Many records are recovered at a time, so that their writes share commits. How many attempts of recovery do something
//! at a time is bounded, because each may send: a record is claimed only when there is a place for its attempt, since
//! from then on its time runs. An attempt that only waits (for a pause, for a quarantine) gives its place away meanwhile.

use super::run::Given;
use super::{ApplyError, Ledger, Note};
use crate::decide::{AtCap, Event, Fence, Refusal, at_cap};
use crate::failpoint;
use crate::handle::lately;
use crate::operation::{DeliveryState, Execution, Operation};
use crate::planted;
use crate::store::StoreError;
use crate::words::{Epoch, Millis};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// A place among the attempts of recovery.
pub(crate) type Place = OwnedSemaphorePermit;

/// Records that are read, and recovered, at a time.
const PAGE: usize = 256;
/// How many old handles, names on the shelf and claims go at once, each. No store removes fewer of them at a time.
const GONE: usize = 100;

/// As far back, of time that was watched, what was not watched holds up the removal of old records.
const LATELY: Millis = Millis::secs(7 * 86_400);

/// What came of one record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Done,
    /// There was nothing to do.
    Nothing,
    /// An attempt of it would have needed a place.
    NoPlace,
}

impl From<bool> for Came {
    fn from(done: bool) -> Came {
        if done { Came::Done } else { Came::Nothing }
    }
}

/// What recovery does at the same time.
#[derive(Default)]
struct Round {
    going: FuturesUnordered<BoxFuture<'static, Result<Came, StoreError>>>,
    taken: usize,
    /// There was no place for more.
    short: bool,
    failed: Option<StoreError>,
}

impl Round {
    fn ended(&mut self, one: Result<Came, StoreError>) {
        match one {
            Ok(came) => {
                self.taken += usize::from(came == Came::Done);
                self.short |= came == Came::NoPlace;
            }
            Err(e) => self.failed = Some(e),
        }
    }

    /// Waits for something while what is under way goes on.
    async fn until<T>(&mut self, wanted: impl Future<Output = T>) -> T {
        let mut wanted = std::pin::pin!(wanted);
        loop {
            tokio::select! {
                biased;
                Some(one) = self.going.next(), if !self.going.is_empty() => self.ended(one),
                there = wanted.as_mut() => return there,
            }
        }
    }

    async fn add(&mut self, one: impl Future<Output = Result<Came, StoreError>> + Send + 'static) {
        while self.going.len() >= PAGE
            && let Some(one) = self.going.next().await
        {
            self.ended(one);
        }
        self.going.push(Box::pin(one));
    }

    /// Waits for all of it, whatever failed: a claim that is broken off would be left lying until its deadline.
    async fn end(mut self) -> Result<Round, StoreError> {
        while let Some(one) = self.going.next().await {
            self.ended(one);
        }
        match self.failed.take() {
            None => Ok(self),
            Some(e) => Err(e),
        }
    }
}

impl Ledger {
    /// Takes up what earlier boots left behind. Returns when all of it has been claimed or settled; the
    /// claimed attempts run on. Calls need not wait for it: one that comes to an operation of a dead boot takes it up
    /// itself. [`Ledger::tend`] may run meanwhile.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read or written.
    pub async fn recover_orphans(self: &Arc<Self>) -> Result<usize, StoreError> {
        let mut after = None;
        let mut round = Round::default();
        while round.failed.is_none() {
            let page = match round.until(self.store.orphans(after, PAGE)).await {
                Ok(page) => page,
                Err(e) => {
                    round.failed = Some(e);
                    break;
                }
            };
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            for op in page {
                let place = match op.execution {
                    Execution::Running => round.until(self.places.clone().acquire_owned()).await.ok(),
                    _ => None,
                };
                if round.failed.is_some() {
                    break;
                }
                round.add(self.clone().recover_one(op, false, place)).await;
            }
        }
        Ok(round.end().await?.taken)
    }

    /// This replica lapsed and goes on under `epoch`: what it ran is anybody's, so its attempts end here. What others
    /// have not taken up yet is taken up, as after a restart.
    fn abandon(self: &Arc<Self>, epoch: Epoch) {
        let stopped = self.live.stop_all_but(epoch);
        tracing::warn!("this replica goes on under epoch {}: {stopped} attempts were given up", epoch.0);
        let me = self.clone();
        self.env.spawn(Box::pin(async move {
            if let Err(e) = me.recover_orphans().await {
                tracing::error!(error = %e, "what was given up could not be read; it is taken up as it becomes due");
            }
        }));
    }

    /// Recovers, delivers and prunes for as long as the process lives.
    pub async fn tend(self: Arc<Self>) {
        let mut next_prune = self.env.monotonic();
        let mut epoch = self.store.epoch();
        loop {
            let now = self.store.epoch();
            if now != epoch {
                self.abandon(now);
                epoch = now;
            }
            let short = match self.round().await {
                Ok(round) => round.short,
                Err(e) => {
                    tracing::error!(error = %e, "recovery could not read the ledger; it tries again");
                    false
                }
            };
            if self.env.monotonic() >= next_prune {
                next_prune = self.env.monotonic() + 60_000;
                self.prune().await;
            }
            if short {
                // More is due than there were places: it goes on as soon as some are free.
                let some = u32::try_from(self.settings.recover_at_once / 4).unwrap_or(1).max(1);
                tokio::select! {
                    biased;
                    _ = self.places.acquire_many(some) => {}
                    () = self.env.sleep(Millis::secs(1)) => {}
                }
                continue;
            }
            let until = match self.store.next_attention().await {
                Ok(Some(t)) => t.since(self.store.now()),
                _ => Millis::secs(1),
            };
            self.env.sleep(until.min(Millis::secs(1)).max(self.settings.sweep)).await;
        }
    }

    /// Removes old records, in small batches, so that calls are never held up for long.
    async fn prune(&self) {
        loop {
            // What was not watched lately counts for nothing: a clock that was set ahead while nothing ran would make
            // everything look old.
            let now = self.store.now();
            let gaps = self.store.gaps();
            let unwatched = gaps.ended_since(gaps.start_of(now, LATELY));
            let until = now.plus(Millis(-unwatched.0));
            match self.store.prune(until, self.settings.tombstones_for, 200).await {
                Ok(n) if n >= 200 => self.env.sleep(Millis(5)).await,
                Ok(_) => break,
                Err(e) => {
                    tracing::error!(error = %e, "old records could not be removed; it is tried again");
                    return;
                }
            }
        }
        // What is gone for its readers. Their times were promised by the ledger's clock as it is.
        let now = self.store.now();
        let gone = async {
            while self.store.prune_handles(lately(now), GONE).await?
                + self.store.prune_shelf(now, GONE).await?
                + self.store.prune_claims(now, GONE).await?
                >= GONE
            {
                self.env.sleep(Millis(5)).await;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(e) = gone.await {
            tracing::error!(error = %e, "old handles and claims could not be removed; it is tried again");
        }
    }

    /// One round of recovery over whatever is due now.
    ///
    /// # Errors
    /// [`StoreError`]: the ledger can't be read or written.
    pub async fn tend_once(self: &Arc<Self>) -> Result<usize, StoreError> {
        self.round().await.map(|round| round.taken)
    }

    async fn round(self: &Arc<Self>) -> Result<Round, StoreError> {
        self.clear_outbox().await?;
        let due = self.store.due(self.store.now(), PAGE).await?;
        let mut round = Round::default();
        for op in due {
            round.add(self.clone().recover_one(op, true, None)).await;
        }
        let mut round = round.end().await?;
        if round.short {
            // What needs no place doesn't wait behind what has none.
            for op in self.store.due_at_rest(self.store.now(), PAGE).await? {
                round.add(self.clone().recover_one(op, true, None)).await;
            }
            round = round.end().await?;
        }
        Ok(round)
    }

    /// Does what one record needs: one whose time has come (`due`), or one that another boot left behind. Where an
    /// attempt of it has to begin, that takes `place`, or one that is free.
    async fn recover_one(
        self: Arc<Self>,
        op: Operation,
        due: bool,
        place: Option<Place>,
    ) -> Result<Came, StoreError> {
        let now = self.store.now();
        match &op.execution {
            Execution::Accepted if due => Ok(self.settle(&op, Event::Expire).await?.into()),
            Execution::InputRequired { .. } if due => Ok(self.settle(&op, Event::Expire).await?.into()),
            Execution::Running if planted!(LeftBehind) => Ok(Came::Nothing),
            Execution::Running => {
                let mine = op.owner == self.store.epoch();
                if mine && self.live.has_attempt(op.id) && now.since(op.deadline) < Millis::secs(2) {
                    // Its own timer ends it; a hung one is taken over after a moment.
                    return Ok(Came::Nothing);
                }
                let abandoned = op.task.is_none() || planted!(HandedOutAbandoned);
                if abandoned && !op.is_past_no_return() && self.caller_gone(&op) {
                    let done = self.settle(&op, Event::CallerGone).await?;
                    if done {
                        self.live.stop(op.id, op.attempt);
                        self.observer.note(Note::Window("abandoned"));
                    }
                    return Ok(done.into());
                }
                match place.or_else(|| self.places.clone().try_acquire_owned().ok()) {
                    Some(place) => Ok(self.take_over(&op, place).await?.into()),
                    None => Ok(Came::NoPlace),
                }
            }
            Execution::Completed => match op.delivery.state {
                DeliveryState::Ready if due || self.caller_gone(&op) => {
                    let done = self.settle(&op, Event::Deliver(DeliveryState::Undelivered)).await?;
                    if done {
                        self.observer.note(Note::Window("undelivered"));
                    }
                    Ok(done.into())
                }
                DeliveryState::Undelivered if due => {
                    let done = self.settle(&op, Event::Alerted).await?;
                    if done {
                        self.observer.note(Note::Alert { what: "undelivered", operation: &op });
                    }
                    Ok(done.into())
                }
                _ => Ok(Came::Nothing),
            },
            _ => Ok(Came::Nothing),
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
            Err(ApplyError::Refused(_) | ApplyError::Gone | ApplyError::Handle { .. }) => Ok(false),
            Err(ApplyError::Store(e)) => Err(e),
        }
    }

    async fn take_over(self: &Arc<Self>, op: &Operation, place: Place) -> Result<bool, StoreError> {
        let claim = self.apply(op, |now| {
            let epoch = self.store.epoch();
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
                self.launch(claimed, Given { place: Some(place), ..Given::default() });
                Ok(true)
            }
            Err(ApplyError::Refused(Refusal::Cap)) => self.give_up_at_cap(op).await,
            Err(ApplyError::Refused(_) | ApplyError::Gone | ApplyError::Handle { .. }) => Ok(false),
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
