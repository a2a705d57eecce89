//! One try at an operation: its effects, one send at a time, each recorded before and after.

use super::recover::Place;
use super::{ApplyError, Ledger, Note, Progress};
use crate::decide::{Event, Fence, Finding, Outcome, Refusal};
use crate::effect::{Effect, EffectState, Intent, Strategy};
use crate::executor::{Executor, Looked, Receipt, Sent};
use crate::failpoint;
use crate::handle::HandleChange;
use crate::operation::{Execution, Operation};
use crate::planted;
use crate::step::{self, Moment, Step};
use crate::store::{BlobKind, StoreError};
use crate::words::{EffectKey, Millis, Time};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A claim on an operation: proves that this process owns its newest attempt. Effects are caused only
/// through it.
pub struct Attempt {
    pub(super) ledger: Arc<Ledger>,
    pub(super) fence: Fence,
    state: Mutex<State>,
    arguments: Option<Arc<[u8]>>,
    /// Opened with its one effect: that effect's receipt becomes durable together with the result, in the
    /// closing write, and costs no barrier of its own.
    single: bool,
    /// The intent that it was opened with, so that it need not be read back.
    planned: Option<Arc<Intent>>,
    /// One write at a time.
    turn: tokio::sync::Mutex<()>,
    /// Its place among the attempts of recovery, if it is one of them.
    place: Mutex<Option<Place>>,
}

pub(super) struct State {
    /// The record as it is durable, to this attempt's knowledge.
    durable: Arc<Operation>,
    /// The record with what is still to be written.
    view: Arc<Operation>,
    /// What is still to be written, before or with the next event.
    pending: Vec<Event>,
    /// Effects whose first send is durable with their intent and not yet made.
    begun: Vec<usize>,
    /// The answers that came in this attempt: not read back, and maybe not yet durable.
    pub(super) receipts: HashMap<usize, Receipt>,
}

/// The longest pause between two tries to record how an attempt ended.
const LAST_PAUSE: Millis = Millis(1600);

pub(super) fn stopped(e: ApplyError) -> Stopped {
    match e {
        ApplyError::Refused(
            r @ (Refusal::TooManyEffects | Refusal::TooManyInputs | Refusal::BadAsk | Refusal::Unsettled),
        ) => Stopped::NeverSent(r.to_string()),
        ApplyError::Refused(_) | ApplyError::Gone | ApplyError::Handle { .. } => Stopped::Fenced,
        ApplyError::Store(e) => Stopped::Store(e),
    }
}

/// What became of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Performed {
    /// It happened; otherwise it was definitely refused.
    pub applied: bool,
    /// The provider's answer.
    pub receipt: Receipt,
}

/// Why the ledger stopped an attempt. A tool passes it on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Stopped {
    /// Another attempt took over, or the operation was cancelled or abandoned.
    #[error("another attempt took over")]
    Fenced,
    /// No safe automatic step is left.
    #[error("in doubt: {0}")]
    Doubt(String),
    /// A person must say.
    #[error("a person must say: {0}")]
    Ask(String),
    /// It asked for answers, and goes on as another attempt when they are there.
    #[error("it waits for answers")]
    Asked,
    /// Recovery goes on later.
    #[error("recovery goes on later")]
    Rest(Time),
    /// Nothing was ever sent.
    #[error("nothing was sent: {0}")]
    NeverSent(String),
    /// The ledger can't be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Attempt {
    pub(super) fn new(
        ledger: Arc<Ledger>,
        op: Arc<Operation>,
        arguments: Option<Arc<[u8]>>,
        planned: Option<Arc<Intent>>,
        place: Option<Place>,
    ) -> Attempt {
        let fence = Fence { attempt: op.attempt, epoch: op.owner };
        let single = op.effects.len() == 1;
        // A claim takes every send of earlier attempts out of this count.
        let begun = (0..op.effects.len()).filter(|&i| op.effects[i].attempt_sends > 0).collect();
        let state =
            State { durable: op.clone(), view: op, pending: Vec::new(), begun, receipts: HashMap::new() };
        Attempt {
            ledger,
            fence,
            state: Mutex::new(state),
            arguments,
            single,
            planned,
            turn: tokio::sync::Mutex::new(()),
            place: Mutex::new(place),
        }
    }

    /// The record as this attempt last saw it.
    #[must_use]
    pub fn operation(&self) -> Arc<Operation> {
        self.state().view.clone()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call's arguments, if this process has them or they were kept with the record.
    #[must_use]
    pub fn arguments(&self) -> Option<&[u8]> {
        self.arguments.as_deref()
    }

    /// Tells the caller how far it is.
    pub fn progress(&self, done: f64, total: Option<f64>, message: impl Into<String>) {
        let id = self.state().view.id;
        self.ledger.live.progress(id, Progress { done, total, message: message.into() });
    }

    /// The recorded intent of the effect with this index.
    ///
    /// # Errors
    /// [`Stopped::Store`] if the ledger can't be read or the intent is missing.
    pub async fn recorded_intent(&self, effect: usize) -> Result<Option<Intent>, Stopped> {
        Ok(self.intent_at(effect).await?.map(Arc::unwrap_or_clone))
    }

    async fn intent_at(&self, effect: usize) -> Result<Option<Arc<Intent>>, Stopped> {
        if effect == 0 && self.planned.is_some() {
            return Ok(self.planned.clone());
        }
        let op = self.operation();
        let Some(e) = op.effects.get(effect) else { return Ok(None) };
        Ok(self.ledger.intent_of(&op, effect, e).await?.map(Arc::new))
    }

    /// Causes an effect and returns its receipt. If this operation recorded the effect before, the recorded
    /// intent counts and nothing is sent that is not safe to send.
    ///
    /// # Errors
    /// [`Stopped`]: pass it on.
    pub async fn effect(&self, intent: Intent, executor: &dyn Executor) -> Result<Performed, Stopped> {
        let op = self.operation();
        if let Some(i) = op.effect(&intent.name, &intent.discriminator) {
            if op.effects[i].digest != intent.digest() && !planted!(OtherIntentSent) {
                let reason = "intent_mismatch: the tool now asks for another request under the same effect; nothing was sent".to_owned();
                return Err(self.doubt(reason).await);
            }
            return self.drive(i, &intent, executor).await;
        }
        let key = self.ledger.effect_key(&op, &intent);
        let fence = self.fence;
        if planted!(SendBeforeIntent) {
            executor.send(&intent, &key, false, Millis(1000)).await;
        }
        let next = self.apply(Event::Intend { fence, intent: Box::new(intent.clone()), key }).await?;
        let Some(index) = next.effect(&intent.name, &intent.discriminator) else {
            return Err(Stopped::Fenced);
        };
        if next.effects[index].unresolved > 0 {
            self.state().begun.push(index);
        }
        self.drive(index, &intent, executor).await
    }

    /// Goes on with the recorded effect of this index.
    ///
    /// # Errors
    /// [`Stopped`]: pass it on.
    pub async fn resume(&self, effect: usize, executor: &dyn Executor) -> Result<Performed, Stopped> {
        let Some(intent) = self.intent_at(effect).await? else {
            return Err(StoreError::Damaged("an intent is missing".into()).into());
        };
        self.drive(effect, &intent, executor).await
    }

    /// Applies an event, after whatever is still to be written, in one write.
    pub(super) async fn apply(&self, event: Event) -> Result<Arc<Operation>, Stopped> {
        self.write(Some(event), &[], None).await.map_err(stopped)
    }

    /// Makes what is still to be written, and `event`, durable in one write. What is kept meanwhile stays. With `result`
    /// it is the closing one, and whoever waits here is given that.
    pub(super) async fn write(
        &self,
        event: Option<Event>,
        handles: &[HandleChange],
        result: Option<&Arc<[u8]>>,
    ) -> Result<Arc<Operation>, ApplyError> {
        let _turn = self.turn.lock().await;
        let (durable, mut events) = {
            let s = self.state();
            (s.durable.clone(), s.pending.clone())
        };
        let kept = events.len();
        events.extend(event);
        if events.is_empty() {
            // Another write of this attempt took it along.
            return Ok(self.operation());
        }
        let next = self.ledger.speak(&durable, self.fence.epoch, &events, handles, result).await?;
        let mut s = self.state();
        s.pending.drain(..kept);
        s.view = match s.pending.is_empty() {
            true => next.clone(),
            false => self
                .ledger
                .fold(&next, s.pending.clone())
                .map_or_else(|_| next.clone(), |(view, _)| Arc::new(view)),
        };
        s.durable = next;
        Ok(s.view.clone())
    }

    /// Like `write`, for the end of the attempt: a store that can't be used now is tried a little longer,
    /// because a receipt may be known here only.
    pub(super) async fn write_at_last(
        &self,
        event: Event,
        result: Option<&Arc<[u8]>>,
    ) -> Result<Arc<Operation>, ApplyError> {
        let mut pause = Millis(50);
        loop {
            match self.write(Some(event.clone()), &[], result).await {
                Err(ApplyError::Store(e)) if pause <= LAST_PAUSE => {
                    tracing::warn!(error = %e, "the end of an attempt could not be recorded; it is tried again");
                    self.ledger.env.sleep(pause).await;
                    pause = Millis(pause.0 * 2);
                }
                r => return r,
            }
        }
    }

    /// Records what an answer makes of an effect. What settles it is kept for the next write, where that is
    /// the closing one; a failed write loses nothing of it.
    async fn record(&self, index: usize, event: Event) -> Result<Arc<Operation>, Stopped> {
        match self.keep(index, event) {
            Ok(view) if self.single => Ok(view),
            Ok(_) => self.write(None, &[], None).await.map_err(stopped),
            Err(event) => self.apply(event).await,
        }
    }

    /// Keeps an event for the next write, if the record as this attempt knows it allows for it and it
    /// settles the effect. Else it is given back.
    fn keep(&self, index: usize, event: Event) -> Result<Arc<Operation>, Event> {
        let mut s = self.state();
        match self.ledger.fold(&s.view, vec![event.clone()]) {
            Ok((next, _)) if next.effects.get(index).is_some_and(Effect::is_settled) => {
                s.view = Arc::new(next);
                s.pending.push(event);
                Ok(s.view.clone())
            }
            _ => Err(event),
        }
    }

    pub(super) async fn doubt(&self, reason: String) -> Stopped {
        let fence = self.fence;
        let known = matches!(self.operation().execution, Execution::InDoubt { .. });
        match self.apply(Event::Doubt { fence, reason: reason.clone() }).await {
            Ok(op) => {
                if !known {
                    self.ledger.observer.note(Note::Alert { what: "in_doubt", operation: &op });
                }
                Stopped::Doubt(reason)
            }
            Err(e) => e,
        }
    }

    /// Takes one safe step after another until the effect is settled or no step is left for this attempt.
    async fn drive(
        &self,
        index: usize,
        intent: &Intent,
        executor: &dyn Executor,
    ) -> Result<Performed, Stopped> {
        let ledger = &self.ledger;
        let fence = self.fence;
        loop {
            let op = self.operation();
            let Some(effect) = op.effects.get(index) else { return Err(Stopped::Fenced) };
            let at = ledger.moment();
            let begun = self.take_begun(index);
            let step = if begun { Step::Send { replay: false } } else { step::next(effect, at) };
            if let Execution::InDoubt { reason, .. } = &op.execution
                && !matches!(step, Step::Settled | Step::LookUp | Step::AskPerson(_) | Step::Doubt(_))
            {
                // Reconciliation asks; it neither sends nor waits.
                return Err(self.doubt(reason.clone()).await);
            }
            match step {
                Step::Settled => return self.performed(&op, index).await,
                Step::Send { replay } => self.send(index, intent, effect, replay, begun, executor).await?,
                Step::LookUp => self.look_up(index, intent, effect, at, executor).await?,
                Step::Wait(until) if until >= op.deadline => return self.rest(until).await,
                Step::Wait(until) => self.pause(until.since(at.now)).await,
                Step::NeverSent => {
                    let next = self
                        .apply(Event::Receive { fence, effect: index, outcome: Outcome::NeverSent })
                        .await?;
                    return Err(Stopped::NeverSent(next.effects[index].why.clone()));
                }
                Step::Rest => return self.rest(ledger.rest_until(&op).max(effect.not_before)).await,
                Step::AskPerson(question) => {
                    let next = self.apply(Event::Ask { fence, question: question.clone() }).await?;
                    ledger.observer.note(Note::Alert { what: "in_doubt", operation: &next });
                    return Err(Stopped::Ask(question));
                }
                Step::Doubt(reason) => return Err(self.doubt(reason).await),
            }
        }
    }

    /// Waits. Meanwhile another attempt of recovery may have its place.
    async fn pause(&self, d: Millis) {
        let place = || self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let had = place().take().is_some();
        self.ledger.env.sleep(d).await;
        if had {
            let again = self.ledger.places.clone().acquire_owned().await.ok();
            *place() = again;
        }
    }

    /// Whether the first send of this effect is still to be made by this attempt. It is durable together with
    /// the intent, so it can be taken only once: whatever became of it, it counts as sent from here on.
    fn take_begun(&self, index: usize) -> bool {
        let mut s = self.state();
        let before = s.begun.len();
        s.begun.retain(|i| *i != index);
        s.begun.len() < before
    }

    async fn rest(&self, until: Time) -> Result<Performed, Stopped> {
        let fence = self.fence;
        self.apply(Event::Rest { fence, until }).await?;
        Err(Stopped::Rest(until))
    }

    /// One send. `begun`: its beginning is durable already.
    async fn send(
        &self,
        index: usize,
        intent: &Intent,
        effect: &Effect,
        replay: bool,
        begun: bool,
        executor: &dyn Executor,
    ) -> Result<(), Stopped> {
        let ledger = &self.ledger;
        let fence = self.fence;
        let op =
            if begun { self.operation() } else { self.apply(Event::Send { fence, effect: index }).await? };
        let Some(recorded) = op.effects.get(index) else { return Err(Stopped::Fenced) };
        self.progress(
            f64::from(recorded.sends),
            None,
            if recorded.attempt_sends > 1 { "sent again to the provider" } else { "sent to the provider" },
        );
        failpoint!("send.before");
        // However long the write took, or the process stood still: this send ends by the deadline that is durable, or a
        // *not found* would count too early; and a replay is still safe, or the provider may have forgotten the key.
        let at = ledger.moment();
        let timeout = effect.recovery.send_timeout.min(recorded.send_deadline.min(op.deadline).since(at.now));
        let too_late = replay && !matches!(step::next(effect, at), Step::Send { .. });
        let lapsed = ledger.store.epoch() != fence.epoch && !planted!(SendUnderOldEpoch);
        failpoint!("send.late");
        let outcome = if timeout <= Millis(0) || too_late || lapsed {
            Sent::NotSent { why: "no time was left for it".into() }
        } else {
            executor.send(intent, &self.sent_key(effect, intent), replay, timeout).await
        };
        failpoint!("send.after");
        let pause = |retry_after: Option<Millis>| {
            let jittered = ledger.env.jitter(step::backoff(effect).max(effect.recovery.initial_backoff));
            retry_after.map_or(jittered, |r| r.min(ledger.settings.max_rest).max(jittered))
        };
        let mut withheld = None;
        let (word, outcome) = match outcome {
            Sent::Withheld { why } => {
                withheld = Some(why.clone());
                ("not_sent", Outcome::NotSent { why, pause: pause(None) })
            }
            Sent::NotSent { why } => ("not_sent", Outcome::NotSent { why, pause: pause(None) }),
            Sent::Applied(r) => ("applied", Outcome::Applied(r)),
            Sent::Refused(r) => ("refused", Outcome::Refused(r)),
            Sent::NotApplied { why, retry_after } => {
                ("not_applied", Outcome::NotApplied { why, pause: pause(retry_after) })
            }
            Sent::Unknown { why, retry_after, stored } => {
                ("unknown", Outcome::Unknown { why, pause: pause(retry_after), stored })
            }
        };
        ledger.observer.note(Note::Sent(word));
        let applied = matches!(outcome, Outcome::Applied(_));
        if let Outcome::Applied(r) | Outcome::Refused(r) = &outcome {
            self.state().receipts.insert(index, r.clone());
        }
        let next = self.record(index, Event::Receive { fence, effect: index, outcome }).await?;
        failpoint!("receipt.after");
        if let Some(why) = withheld
            && next.effects.get(index).is_some_and(|e| e.unresolved > 0)
        {
            // Nothing changes by itself. Once it is put right, an operator's word sends it again.
            return Err(self.doubt(why).await);
        }
        if applied && replay && effect.recovery.strategy == Strategy::Lookup {
            // A second send was made because the first was not found: look again for two.
            let at = ledger.moment();
            self.look_up(index, intent, &next.effects[index], at, executor).await?;
        }
        Ok(())
    }

    /// The name that the effect goes by at the provider: the recorded one.
    fn sent_key<'a>(&self, effect: &'a Effect, intent: &Intent) -> std::borrow::Cow<'a, EffectKey> {
        if planted!(KeyPerAttempt) {
            let other = Intent { discriminator: self.fence.attempt.to_string(), ..intent.clone() };
            return std::borrow::Cow::Owned(self.ledger.effect_key(&self.operation(), &other));
        }
        std::borrow::Cow::Borrowed(&effect.key)
    }

    async fn look_up(
        &self,
        index: usize,
        intent: &Intent,
        effect: &Effect,
        at: Moment<'_>,
        executor: &dyn Executor,
    ) -> Result<(), Stopped> {
        let ledger = &self.ledger;
        let fence = self.fence;
        let asked_at = at.now;
        let timeout =
            effect.recovery.send_timeout.min(self.operation().deadline.since(asked_at)).max(Millis(1));
        let looked = executor.look_up_since(intent, &effect.key, timeout, step::asked(effect, at)).await;
        failpoint!("lookup.after");
        let pause = ledger.env.jitter(step::backoff(effect)).max(effect.recovery.initial_backoff);
        let several = matches!(looked, Looked::Several(_));
        let answer = match looked {
            Looked::Found(receipt) | Looked::Several(receipt) => Finding::Found { receipt, several },
            Looked::NotFound => Finding::NotFound { pause, counts_from: step::counts_from(effect, at) },
            Looked::Unknown { why } => Finding::Unknown { why, pause },
        };
        if effect.is_settled() {
            // A second look after a replay: only a second match is news.
            if !several {
                return Ok(());
            }
        } else if let Finding::Found { receipt, .. } = &answer {
            self.state().receipts.insert(index, receipt.clone());
        }
        let next = self.record(index, Event::Looked { fence, effect: index, asked_at, answer }).await?;
        if several {
            ledger.observer.note(Note::Alert { what: "several", operation: &next });
        }
        Ok(())
    }

    pub(super) async fn performed(&self, op: &Operation, index: usize) -> Result<Performed, Stopped> {
        let e = &op.effects[index];
        if !e.has_receipt {
            return Err(Stopped::NeverSent(e.why.clone()));
        }
        let i = u16::try_from(index).unwrap_or(u16::MAX);
        let here = self.state().receipts.get(&index).cloned();
        let receipt = match here {
            Some(r) => Some(r),
            None => self.ledger.store.blob(op.id, BlobKind::Receipt(i)).await?.map(Receipt),
        };
        let receipt = receipt.ok_or_else(|| StoreError::Damaged(format!("{} lacks a receipt", op.id)))?;
        Ok(Performed { applied: e.state == EffectState::Applied, receipt })
    }
}
