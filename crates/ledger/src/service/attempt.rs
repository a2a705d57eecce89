//! One try at an operation: its effects, one send at a time, each recorded before and after; and how it ends.

use super::{ApplyError, Ledger, Note, Progress, RunError, ToolResult};
use crate::decide::{AtCap, Event, Fence, Finding, Outcome, Refusal, at_cap};
use crate::effect::{Effect, EffectState, Intent, Strategy};
use crate::executor::{Executor, Looked, Receipt, Sent};
use crate::failpoint;
use crate::operation::{Execution, Operation};
use crate::step::{self, Moment, Step};
use crate::store::{BlobKind, StoreError};
use crate::words::{EffectKey, Millis, Time};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A claim on an operation: proves that this process owns its newest attempt. Effects are caused only
/// through it.
pub struct Attempt {
    ledger: Arc<Ledger>,
    fence: Fence,
    state: Mutex<State>,
    arguments: Option<Arc<[u8]>>,
    /// Opened with its one effect: that effect's receipt becomes durable together with the result, in the
    /// closing write, and costs no barrier of its own.
    single: bool,
    /// The receipt that came last, so that it need not be read back.
    receipt: Mutex<Option<(usize, Receipt)>>,
}

struct State {
    /// The record as it is durable, to this attempt's knowledge.
    durable: Operation,
    /// The record with what is still to be written.
    view: Operation,
    /// What is still to be written, before or with the next event.
    pending: Vec<Event>,
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
    /// The record as this attempt last saw it.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.state().view.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
        let op = self.operation();
        let Some(e) = op.effects.get(effect) else { return Ok(None) };
        Ok(self.ledger.intent_of(&op, effect, e).await?)
    }

    /// Causes an effect and returns its receipt. If this operation recorded the effect before, the recorded
    /// intent counts and nothing is sent that is not safe to send.
    ///
    /// # Errors
    /// [`Stopped`]: pass it on.
    pub async fn effect(&self, intent: Intent, executor: &dyn Executor) -> Result<Performed, Stopped> {
        let op = self.operation();
        if let Some(i) = op.effect(&intent.name, &intent.discriminator) {
            if op.effects[i].digest != intent.digest() {
                let reason = "intent_mismatch: the tool now asks for another request under the same effect; nothing was sent".to_owned();
                self.doubt(reason.clone()).await?;
                return Err(Stopped::Doubt(reason));
            }
            return self.drive(i, &intent, executor).await;
        }
        let key = self.ledger.effect_key(&op, &intent);
        let fence = self.fence;
        let next = self.apply(Event::Intend { fence, intent: Box::new(intent.clone()), key: key.clone() }).await?;
        let index = next.effects.len() - 1;
        self.drive(index, &intent, executor).await
    }

    /// Goes on with the recorded effect of this index.
    ///
    /// # Errors
    /// [`Stopped`]: pass it on.
    pub async fn resume(&self, effect: usize, executor: &dyn Executor) -> Result<Performed, Stopped> {
        let Some(intent) = self.recorded_intent(effect).await? else {
            return Err(StoreError::Damaged("an intent is missing".into()).into());
        };
        self.drive(effect, &intent, executor).await
    }

    /// Applies an event, after whatever is still to be written, in one write.
    async fn apply(&self, event: Event) -> Result<Operation, Stopped> {
        let (durable, mut events) = {
            let s = self.state();
            (s.durable.clone(), s.pending.clone())
        };
        events.push(event);
        match self.ledger.apply(&durable, |_| events.clone()).await {
            Ok(next) => {
                *self.state() = State { durable: next.clone(), view: next.clone(), pending: Vec::new() };
                Ok(next)
            }
            Err(ApplyError::Refused(_) | ApplyError::Gone) => Err(Stopped::Fenced),
            Err(ApplyError::Store(e)) => Err(e.into()),
        }
    }

    /// Keeps an event for the next write, if the record as this attempt knows it allows for it and it
    /// settles the effect.
    fn keep(&self, index: usize, event: &Event) -> Option<Operation> {
        let mut s = self.state();
        let (next, _) = self.ledger.fold(&s.view, vec![event.clone()]).ok()?;
        if !next.effects.get(index).is_some_and(Effect::is_settled) {
            return None;
        }
        s.view = next.clone();
        s.pending.push(event.clone());
        Some(next)
    }

    async fn doubt(&self, reason: String) -> Result<(), Stopped> {
        let fence = self.fence;
        let op = self.apply(Event::Doubt { fence, reason: reason.clone() }).await?;
        self.ledger.observer.note(Note::Alert { what: "in_doubt", operation: &op });
        Ok(())
    }

    /// Takes one safe step after another until the effect is settled or no step is left for this attempt.
    async fn drive(&self, index: usize, intent: &Intent, executor: &dyn Executor) -> Result<Performed, Stopped> {
        let ledger = &self.ledger;
        let fence = self.fence;
        // The first send of an effect that this attempt itself intended is durable with its intent.
        let mut begun = {
            let op = self.operation();
            op.effects.get(index).is_some_and(|e| e.attempt_sends == 1 && e.sent_by == fence.attempt && e.state == EffectState::Intended && e.unresolved == 1)
        };
        loop {
            let op = self.operation();
            let Some(effect) = op.effects.get(index) else { return Err(Stopped::Fenced) };
            let at = Moment { now: ledger.store.now(), clock_step: ledger.store.clock_step() };
            let step = if begun { Step::Send { replay: false } } else { step::next(effect, at) };
            match step {
                Step::Settled => return self.performed(&op, index).await,
                Step::Send { replay } => {
                    if matches!(op.execution, Execution::InDoubt { .. }) {
                        // Reconciliation asks; it never sends.
                        let reason = effect.why.clone();
                        self.doubt(reason.clone()).await?;
                        return Err(Stopped::Doubt(reason));
                    }
                    self.send(index, intent, effect, replay, std::mem::take(&mut begun), executor).await?;
                }
                Step::LookUp => self.look_up(index, intent, effect, executor).await?,
                Step::Wait(until) => {
                    if matches!(op.execution, Execution::InDoubt { .. }) {
                        let reason = effect.why.clone();
                        self.doubt(reason.clone()).await?;
                        return Err(Stopped::Doubt(reason));
                    }
                    if until >= op.deadline {
                        return self.rest(until).await;
                    }
                    ledger.env.sleep(until.since(at.now)).await;
                }
                Step::NeverSent => {
                    let next = self.apply(Event::Receive { fence, effect: index, outcome: Outcome::NeverSent }).await?;
                    return Err(Stopped::NeverSent(next.effects[index].why.clone()));
                }
                Step::Rest => return self.rest(ledger.rest_until(&op)).await,
                Step::AskPerson(question) => {
                    let next = self.apply(Event::Ask { fence, question: question.clone() }).await?;
                    ledger.observer.note(Note::Alert { what: "in_doubt", operation: &next });
                    return Err(Stopped::Ask(question));
                }
                Step::Doubt(reason) => {
                    self.doubt(reason.clone()).await?;
                    return Err(Stopped::Doubt(reason));
                }
            }
        }
    }

    async fn rest(&self, until: Time) -> Result<Performed, Stopped> {
        let fence = self.fence;
        self.apply(Event::Rest { fence, until }).await?;
        Err(Stopped::Rest(until))
    }

    /// One send. `begun`: its beginning is durable already.
    async fn send(&self, index: usize, intent: &Intent, effect: &Effect, replay: bool, begun: bool, executor: &dyn Executor) -> Result<(), Stopped> {
        let ledger = &self.ledger;
        let fence = self.fence;
        let op = if begun { self.operation() } else { self.apply(Event::Send { fence, effect: index }).await? };
        let sent = op.effects.get(index).map_or(0, |e| e.attempt_sends);
        self.progress(f64::from(op.effects.get(index).map_or(0, |e| e.sends)), None, if sent > 1 { "sent again to the provider" } else { "sent to the provider" });
        let timeout = effect.recovery.send_timeout.min(op.deadline.since(ledger.store.now()));
        failpoint!("send.before");
        let outcome = if timeout <= Millis(0) {
            Sent::NotSent { why: "no time was left for it".into() }
        } else {
            executor.send(intent, &effect.key, replay, timeout).await
        };
        failpoint!("send.after");
        let pause = |retry_after: Option<Millis>| {
            let jittered = ledger.env.jitter(step::backoff(effect).max(effect.recovery.initial_backoff));
            retry_after.map_or(jittered, |r| r.max(jittered))
        };
        let (word, outcome) = match outcome {
            Sent::NotSent { why } => ("not_sent", Outcome::NotSent { why, pause: pause(None) }),
            Sent::Applied(r) => ("applied", Outcome::Applied(r)),
            Sent::Refused(r) => ("refused", Outcome::Refused(r)),
            Sent::NotApplied { why, retry_after } => ("not_applied", Outcome::NotApplied { why, pause: pause(retry_after) }),
            Sent::Unknown { why, retry_after, stored } => ("unknown", Outcome::Unknown { why, pause: pause(retry_after), stored }),
        };
        ledger.observer.note(Note::Sent(word));
        let applied = matches!(outcome, Outcome::Applied(_));
        let answer = match &outcome {
            Outcome::Applied(r) | Outcome::Refused(r) => Some(r.clone()),
            _ => None,
        };
        let event = Event::Receive { fence, effect: index, outcome };
        let kept = if self.single { self.keep(index, &event) } else { None };
        let next = match kept {
            Some(next) => next,
            None => self.apply(event).await?,
        };
        *self.receipt.lock().unwrap_or_else(PoisonError::into_inner) = answer.map(|r| (index, r));
        failpoint!("receipt.after");
        if applied && replay && effect.recovery.strategy == Strategy::Lookup {
            // A second send was made because the first was not found: look again for two.
            self.look_up(index, intent, &next.effects[index], executor).await?;
        }
        Ok(())
    }

    async fn look_up(&self, index: usize, intent: &Intent, effect: &Effect, executor: &dyn Executor) -> Result<(), Stopped> {
        let ledger = &self.ledger;
        let fence = self.fence;
        let asked_at = ledger.store.now();
        let timeout = effect.recovery.send_timeout.min(self.operation().deadline.since(asked_at)).max(Millis(1));
        let looked = executor.look_up(intent, &effect.key, timeout).await;
        failpoint!("lookup.after");
        let pause = ledger.env.jitter(step::backoff(effect)).max(effect.recovery.initial_backoff);
        let several = matches!(looked, Looked::Several(_));
        let (answer, receipt) = match looked {
            Looked::Found(receipt) => (Finding::Found { receipt: receipt.clone(), several: false }, Some(receipt)),
            Looked::Several(receipt) => (Finding::Found { receipt: receipt.clone(), several: true }, Some(receipt)),
            Looked::NotFound => (Finding::NotFound { pause }, None),
            Looked::Unknown { why } => (Finding::Unknown { why, pause }, None),
        };
        let settled_before = effect.is_settled();
        let event = Event::Looked { fence, effect: index, asked_at, answer };
        let next = match if self.single { self.keep(index, &event) } else { None } {
            Some(next) => next,
            None if settled_before => return Ok(()),
            None => self.apply(event).await?,
        };
        if let (Some(r), false) = (receipt, settled_before) {
            *self.receipt.lock().unwrap_or_else(PoisonError::into_inner) = Some((index, r));
        }
        if several {
            ledger.observer.note(Note::Alert { what: "several", operation: &next });
        }
        Ok(())
    }

    async fn performed(&self, op: &Operation, index: usize) -> Result<Performed, Stopped> {
        let applied = op.effects[index].state == EffectState::Applied;
        let i = u16::try_from(index).unwrap_or(u16::MAX);
        let here = self.receipt.lock().unwrap_or_else(PoisonError::into_inner).take().filter(|(n, _)| *n == index).map(|(_, r)| r.0);
        let receipt = match here {
            Some(r) => Some(r),
            None => self.ledger.store.blob(op.id, BlobKind::Receipt(i)).await?,
        };
        match receipt {
            Some(data) => Ok(Performed { applied, receipt: Receipt(data) }),
            None => Err(Stopped::NeverSent(op.effects[index].why.clone())),
        }
    }
}

impl Ledger {
    pub(crate) fn effect_key(&self, op: &Operation, intent: &Intent) -> EffectKey {
        EffectKey::derive(&self.store.identity().name, &op.scope, op.id, op.key.as_ref(), &op.fingerprint, &intent.name, &intent.discriminator)
    }

    async fn intent_of(&self, op: &Operation, index: usize, e: &Effect) -> Result<Option<Intent>, StoreError> {
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
    pub(crate) fn launch(self: &Arc<Self>, op: Operation, arguments: Option<Arc<[u8]>>) {
        let id = op.id;
        let number = op.attempt;
        let running = self.live.start(id);
        let me = self.clone();
        let abort = self.env.spawn(Box::pin(async move {
            let _running = running;
            me.run(op, arguments).await;
        }));
        self.live.abort_with(id, number, abort);
    }

    async fn run(self: &Arc<Self>, op: Operation, arguments: Option<Arc<[u8]>>) {
        let Some(runner) = self.runner.get().cloned() else { return };
        let fence = Fence { attempt: op.attempt, epoch: op.owner };
        let arguments = match arguments {
            Some(a) => Some(a),
            None => self.store.blob(op.id, BlobKind::Arguments).await.ok().flatten().map(Arc::from),
        };
        let time_left = op.deadline.since(self.store.now());
        let single = op.effects.len() == 1;
        let state = Mutex::new(State { durable: op.clone(), view: op, pending: Vec::new() });
        let attempt = Attempt { ledger: self.clone(), fence, state, arguments, single, receipt: Mutex::new(None) };
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
        let op = attempt.operation();
        self.end(&attempt, &op, ended).await;
    }

    /// Records how an attempt ended.
    async fn end(self: &Arc<Self>, attempt: &Attempt, op: &Operation, ended: Result<ToolResult, RunError>) {
        match ended {
            Ok(result) => self.close(attempt, result).await,
            Err(RunError::Stopped(Stopped::Fenced | Stopped::Doubt(_) | Stopped::Ask(_) | Stopped::Rest(_) | Stopped::Store(_))) => {}
            Err(RunError::Stopped(Stopped::NeverSent(why)) | RunError::Tool(why)) => self.give_up(attempt, op, why).await,
        }
        self.live.ring(op.id);
    }

    /// The attempt ended without a result and without a decision of the ledger.
    async fn give_up(self: &Arc<Self>, attempt: &Attempt, op: &Operation, why: String) {
        let fence = attempt.fence;
        let r = match at_cap(op) {
            AtCap::Fail => attempt.apply(Event::Fail { fence, reason: why.clone() }).await.map(|_| ()),
            AtCap::CloseWithAccount => match self.runner.get() {
                Some(r) => {
                    self.close(attempt, r.account(op, &why)).await;
                    Ok(())
                }
                None => Ok(()),
            },
            AtCap::Doubt => {
                let until = self.rest_until(op);
                attempt.apply(Event::Rest { fence, until }).await.map(|_| ())
            }
        };
        if let Err(e) = r {
            tracing::warn!(operation = %op.id, error = %e, "the end of an attempt could not be recorded; recovery takes it up");
        }
    }

    pub(crate) async fn close(self: &Arc<Self>, attempt: &Attempt, result: ToolResult) {
        let fence = attempt.fence;
        let id = attempt.operation().id;
        let bytes: Arc<[u8]> = result.result.into();
        failpoint!("close.before");
        let closed = attempt
            .apply(Event::Close { fence, result: bytes.to_vec(), is_error: result.is_error, caller_gone: !self.live.has_callers(id) })
            .await;
        failpoint!("close.after");
        match closed {
            Ok(op) => self.live.outcome(&op, bytes),
            Err(Stopped::Fenced) => self.observer.note(Note::Refused(Refusal::Fenced)),
            Err(e) => tracing::warn!(operation = %id, error = %e, "a result could not be recorded; recovery takes it up"),
        }
    }
}
