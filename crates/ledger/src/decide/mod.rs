//! The state machine: `decide(record, event, now)` is pure and says the next record, or why not.
//!
//! Every transition of an operation is here and nowhere else. A store persists what comes out under a
//! compare-and-set on the record's version, so a decision made on a stale record changes nothing.

mod end;
mod event;
mod inputs;
mod settle;

pub(crate) use end::DENIED;
use end::{end, never_sent};
pub use event::{Event, Fence, Finding, Opening, Outcome, Refusal, Verdict};
pub use inputs::may_begin_with;

use crate::Strategy;
use crate::effect::{Effect, EffectState, Intent};
use crate::operation::{Caller, Decision, Delivery, DeliveryState, Execution, Operation, TaskOut};
use crate::planted;
use crate::step::{self, Moment};
use crate::store::{Blob, BlobKind};
use crate::words::{EffectKey, Epoch, Millis, Time};
use std::collections::BTreeMap;

/// The most effects one operation may have: bounds its record.
pub const MAX_EFFECTS: usize = 1000;

/// A record's next state and the payloads that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The record, its version already counted up.
    pub next: Operation,
    /// Payloads.
    pub blobs: Vec<Blob>,
}

/// The record of a new operation: running its first attempt, its one effect intended where it has one. With questions
/// nothing of it runs yet; they have to be some that [`may_begin_with`] has nothing against.
#[must_use]
pub fn open(o: Opening, now: Time) -> Transition {
    let mut blobs = Vec::new();
    if let Some(a) = o.arguments {
        blobs.push(Blob { kind: BlobKind::Arguments, data: a });
    }
    let mut next = Operation {
        id: o.id,
        version: 1,
        scope: o.scope,
        key: o.key,
        fingerprint: o.fingerprint,
        begun_at: None,
        created_at: now,
        ended_at: None,
        execution: Execution::Running,
        attempt: 1,
        counted_from: 1,
        owner: o.epoch,
        deadline: now.plus(o.policy.timeout),
        policy: o.policy,
        not_before: now,
        effects: Vec::new(),
        delivery: Delivery { state: DeliveryState::NotReady, at: now, alerted: false },
        caller: Caller { epoch: o.epoch, gone: false },
        joined: 0,
        cancel_requested: false,
        conclude: false,
        is_error: false,
        spoken: 0,
        decisions: Vec::new(),
        inputs: Vec::new(),
        planned: None,
        task: None,
        allowances: Vec::new(),
        form: 0,
        more: BTreeMap::new(),
    };
    if !o.asks.is_empty() {
        inputs::opened(&mut next, &mut blobs, o.asks, o.intent, now);
    } else if let Some((intent, key)) = o.intent {
        intend(&mut next, &mut blobs, intent, key, now);
    }
    Transition { next, blobs }
}

/// Adds an effect with its first send begun: the send's deadline is durable with the intent, so that nothing
/// more needs to be written before the first byte leaves. With a precheck no send is begun yet.
fn intend(op: &mut Operation, blobs: &mut Vec<Blob>, intent: Intent, key: EffectKey, now: Time) {
    let index = u16::try_from(op.effects.len()).unwrap_or(u16::MAX);
    let first = u32::from(!intent.recovery.precheck);
    op.effects.push(Effect {
        digest: intent.digest(),
        name: intent.name,
        discriminator: intent.discriminator,
        key,
        state: EffectState::Intended,
        send_deadline: if first == 1 { send_deadline(op, intent.recovery.send_timeout, now) } else { now },
        recovery: intent.recovery,
        summary: intent.summary,
        intended_at: now,
        sends: first,
        attempt_sends: first,
        unresolved: first,
        sent_by: op.attempt,
        fenced_at: None,
        not_before: now,
        looks: 0,
        absent: false,
        stored_failure: false,
        forced: false,
        has_receipt: false,
        several: false,
        why: String::new(),
    });
    blobs.push(Blob { kind: BlobKind::Intent(index), data: intent.body });
}

/// Whether an effect may begin under this name: each is intended once, and an operation has so many at most.
fn new_effect(op: &Operation, intent: &Intent) -> Result<(), Refusal> {
    if let Some(i) = op.effect(&intent.name, &intent.discriminator) {
        let same = op.effects[i].digest == intent.digest();
        return Err(if same { Refusal::Nothing } else { Refusal::IntentMismatch });
    }
    if op.effects.len() >= MAX_EFFECTS { Err(Refusal::TooManyEffects) } else { Ok(()) }
}

fn send_deadline(op: &Operation, send_timeout: Millis, now: Time) -> Time {
    now.plus(send_timeout).min(op.deadline)
}

fn fenced(op: &Operation, f: Fence) -> Result<(), Refusal> {
    if op.attempt == f.attempt && op.owner == f.epoch { Ok(()) } else { Err(Refusal::Fenced) }
}

fn running(op: &Operation, f: Fence) -> Result<(), Refusal> {
    fenced(op, f)?;
    if op.execution == Execution::Running { Ok(()) } else { Err(Refusal::State) }
}

/// Running, and it may begin something new: not if all that is left to do is to give an account.
fn beginning(op: &Operation, f: Fence) -> Result<(), Refusal> {
    running(op, f)?;
    if op.conclude { Err(Refusal::State) } else { Ok(()) }
}

/// Running, or in doubt and being reconciled: an effect may be settled.
fn settling(op: &Operation, f: Fence) -> Result<(), Refusal> {
    fenced(op, f)?;
    match op.execution {
        Execution::Running | Execution::InDoubt { .. } => Ok(()),
        _ => Err(Refusal::State),
    }
}

fn claim(op: &mut Operation, epoch: Epoch, by_call: bool, now: Time) {
    if by_call {
        op.caller = Caller { epoch, gone: false };
    }
    for e in &mut op.effects {
        // Whoever sent last is fenced from this moment on; a later attempt that sent nothing changes nothing.
        if e.unresolved > 0 && e.fenced_at.is_none() {
            e.fenced_at = Some(now);
            // Whatever was asked before this moment was asked too early.
            e.absent = false;
        }
        if e.state == EffectState::Intended && e.unresolved > 0 {
            e.state = EffectState::Unknown;
            if e.why.is_empty() {
                e.why = "the attempt that sent it ended without an answer".into();
            }
        }
        e.attempt_sends = 0;
    }
    op.attempt += 1;
    op.owner = epoch;
    op.deadline = now.plus(op.policy.timeout);
    op.ended_at = None;
}

/// Nothing of it happened, and somebody asks for it again: its next attempt is a new beginning.
fn begin_anew(op: &mut Operation, epoch: Epoch, now: Time) {
    claim(op, epoch, true, now);
    op.counted_from = op.attempt;
    op.begun_at = Some(now);
    op.execution = Execution::Running;
}

/// Decides what `event` makes of `op` at `now`.
///
/// # Errors
/// [`Refusal`] says why the event can't happen; the record is then unchanged.
#[allow(clippy::too_many_lines)]
pub fn decide(op: &Operation, event: Event, now: Time) -> Result<Transition, Refusal> {
    let mut next = op.clone();
    let mut blobs = Vec::new();
    match event {
        Event::Claim { epoch, by_call, owner_dead } => match op.execution {
            Execution::Accepted => {
                if !by_call {
                    return Err(Refusal::State);
                }
                begin_anew(&mut next, epoch, now);
            }
            Execution::Failed { .. } => {
                // Whoever holds it as a task was told how that ended.
                if !by_call || op.may_have_effect() || op.task.is_some() {
                    return Err(Refusal::State);
                }
                // The effects were provably not sent or refused while nothing was open: each may be sent anew,
                // under the same key.
                begin_anew(&mut next, epoch, now);
                next.conclude = false;
                for e in &mut next.effects {
                    // A refusal with its receipt stands; what was never sent is sent.
                    if e.state == EffectState::Rejected && !e.has_receipt {
                        e.state = EffectState::Intended;
                        e.not_before = now;
                        e.looks = 0;
                        e.absent = false;
                        e.stored_failure = false;
                        e.fenced_at = None;
                    }
                }
            }
            Execution::Running => {
                let alive = op.owner != Epoch(0) && !owner_dead && now < op.deadline;
                if alive && !planted!(ClaimFromTheLiving) {
                    return Err(Refusal::Busy);
                }
                if op.owner == Epoch(0) && now < op.not_before && !by_call {
                    return Err(Refusal::Busy);
                }
                if op.attempt + 1 - op.counted_from >= op.policy.attempt_cap {
                    return Err(Refusal::Cap);
                }
                claim(&mut next, epoch, by_call, now);
            }
            _ => return Err(Refusal::State),
        },
        Event::Intend { fence, intent, key } => {
            beginning(op, fence)?;
            new_effect(op, &intent)?;
            intend(&mut next, &mut blobs, *intent, key, now);
        }
        Event::Local { fence, intent, key, receipt } => {
            beginning(op, fence)?;
            new_effect(op, &intent)?;
            let index = op.effects.len();
            intend(&mut next, &mut blobs, *intent, key, now);
            let e = &mut next.effects[index];
            // It is made by the write that tells of it: nothing is ever on its way.
            (e.sends, e.attempt_sends, e.unresolved, e.send_deadline) = (0, 0, 0, now);
            e.state = EffectState::Applied;
            e.has_receipt = true;
            let index = u16::try_from(index).unwrap_or(u16::MAX);
            blobs.push(Blob { kind: BlobKind::Receipt(index), data: receipt.0 });
        }
        Event::Require { fence, asks } => {
            beginning(op, fence)?;
            inputs::require(op, &mut next, &mut blobs, asks, now)?;
        }
        Event::Answer { by, answers, epoch, by_call, intent } => {
            let new = inputs::Answers { by, answers, epoch, by_call };
            inputs::answer(op, &mut next, &mut blobs, new, intent, now)?;
        }
        Event::HandOut { ttl } => {
            if op.task.is_some() {
                return Err(Refusal::Nothing);
            }
            next.task = Some(TaskOut { at: now, ttl });
            next.form = next.form.max(1);
            if op.execution == Execution::Accepted {
                // Abandoned a moment ago: what is handed out runs on.
                next.execution = Execution::Running;
                next.not_before = now;
                next.counted_from = next.attempt + 1;
            }
        }
        Event::Send { fence, effect } => {
            running(op, fence)?;
            let deadline = send_deadline(
                op,
                op.effects.get(effect).ok_or(Refusal::NoSuchEffect)?.recovery.send_timeout,
                now,
            );
            let e = &mut next.effects[effect];
            if e.is_settled() {
                return Err(Refusal::State);
            }
            if e.unresolved > 0
                && !e.forced
                && matches!(e.recovery.strategy, Strategy::None | Strategy::Confirm)
                && !planted!(ReplayWithoutStrategy)
            {
                return Err(Refusal::MayHaveEffect);
            }
            e.sends += 1;
            e.attempt_sends += 1;
            e.unresolved += 1;
            e.send_deadline = e.send_deadline.max(deadline);
            e.sent_by = fence.attempt;
            e.fenced_at = None;
            e.absent = false;
            e.forced = false;
        }
        Event::Receive { fence, effect, outcome } => {
            if !planted!(ReceiveWithoutFence) {
                settling(op, fence)?;
            }
            let e = next.effects.get_mut(effect).ok_or(Refusal::NoSuchEffect)?;
            if e.is_settled() {
                return Err(Refusal::State);
            }
            settle::receive(e, u16::try_from(effect).unwrap_or(u16::MAX), outcome, now, &mut blobs)?;
        }
        Event::Looked { fence, effect, asked_at, answer } => {
            settling(op, fence)?;
            let e = next.effects.get_mut(effect).ok_or(Refusal::NoSuchEffect)?;
            settle::looked(e, u16::try_from(effect).unwrap_or(u16::MAX), asked_at, answer, now, &mut blobs)?;
        }
        Event::Close { fence, result, is_error, caller_gone } => {
            settling(op, fence)?;
            if !op.effects_settled() && !planted!(CloseOverOpenEffect) {
                return Err(Refusal::Unsettled);
            }
            end(&mut next, Execution::Completed, now);
            next.is_error = is_error;
            let state =
                if caller_gone || op.caller.gone { DeliveryState::Undelivered } else { DeliveryState::Ready };
            next.delivery = Delivery { state, at: now, alerted: false };
            blobs.push(Blob { kind: BlobKind::Result, data: result });
        }
        // Nobody calls again for a task.
        Event::Interrupted { fence, until, .. } if op.task.is_some() => {
            running(op, fence)?;
            next.owner = Epoch(0);
            next.not_before = until;
        }
        Event::Fail { fence, reason } | Event::Interrupted { fence, reason, .. } => {
            running(op, fence)?;
            if op.may_have_effect() && !planted!(ResetOnError) {
                return Err(Refusal::MayHaveEffect);
            }
            never_sent(&mut next, "never sent");
            // Whoever asked to cancel it gets what they asked for: nothing happened, and nothing will.
            let asked = op.cancel_requested;
            let how =
                if asked { Execution::Cancelled { explicit: true } } else { Execution::Failed { reason } };
            end(&mut next, how, now);
        }
        Event::Doubt { fence, reason } => {
            settling(op, fence)?;
            let since = if let Execution::InDoubt { since, .. } = op.execution { since } else { now };
            next.execution = Execution::InDoubt { reason, since };
            next.owner = Epoch(0);
        }
        Event::Ask { fence, question } => {
            settling(op, fence)?;
            next.execution = Execution::InputRequired { question };
            next.owner = Epoch(0);
        }
        Event::Rest { fence, until } => {
            running(op, fence)?;
            next.owner = Epoch(0);
            next.not_before = until;
        }
        Event::CallerGone => match op.execution {
            Execution::Running
                if !op.is_past_no_return() && (op.task.is_none() || planted!(HandedOutAbandoned)) =>
            {
                next.execution = Execution::Accepted;
                next.owner = Epoch(0);
                next.caller.gone = true;
                next.not_before = now.plus(op.policy.abandoned_for);
            }
            _ if op.caller.gone => return Err(Refusal::Nothing),
            Execution::Running | Execution::InDoubt { .. } | Execution::InputRequired { .. } => {
                next.caller.gone = true
            }
            _ => return Err(Refusal::State),
        },
        Event::Join { epoch } => match op.execution {
            Execution::Running => {
                next.joined += 1;
                next.caller = Caller { epoch, gone: false };
            }
            _ => return Err(Refusal::State),
        },
        Event::Cancel { by } => end::cancel(op, &mut next, by, now)?,
        Event::Expire => end::expire(op, &mut next, now)?,
        Event::Deliver(state) => {
            if op.execution != Execution::Completed || state <= DeliveryState::Ready {
                return Err(Refusal::State);
            }
            // The same news again refreshes the time of a written delivery (the guard window counts from the
            // last one) and is otherwise nothing new.
            let back = state < op.delivery.state && !planted!(DeliveryGoesBack);
            if back || (state == op.delivery.state && state != DeliveryState::Written) {
                return Err(Refusal::Nothing);
            }
            next.delivery = Delivery { state, at: now, alerted: op.delivery.alerted };
        }
        Event::Alerted => {
            if op.delivery.alerted || op.delivery.state != DeliveryState::Undelivered {
                return Err(Refusal::Nothing);
            }
            next.delivery.alerted = true;
        }
        Event::Decide { by, verdict } => settle::verdict(op, &mut next, &mut blobs, by, verdict, now)?,
        Event::Reconcile { epoch, by, owner_dead } => {
            let Execution::InDoubt { .. } = op.execution else { return Err(Refusal::State) };
            if op.owner != Epoch(0) && !owner_dead && now < op.deadline {
                return Err(Refusal::Busy);
            }
            if !op.effects.iter().any(|e| !e.is_settled() && e.recovery.can_look_up) {
                return Err(Refusal::CantAsk);
            }
            claim(&mut next, epoch, false, now);
            for e in &mut next.effects {
                // An earlier *not found* is no answer to a new question.
                e.absent = false;
            }
            // A chatty caller must not make the record grow: one line stands for all its questions.
            if next.decisions.last().is_none_or(|d| d.by != by || d.what != RECONCILING) {
                next.decisions.push(Decision { at: now, by, what: RECONCILING.into() });
            }
        }
    }
    next.version = op.version + 1;
    Ok(Transition { next, blobs })
}

const RECONCILING: &str = "reconciliation begun";

/// What recovery does with an operation whose attempts are used up: as LEDGER's attempt cap says.
#[must_use]
pub fn at_cap(op: &Operation) -> AtCap {
    if !op.may_have_effect() {
        AtCap::Fail
    } else if op.effects_settled() {
        AtCap::CloseWithAccount
    } else {
        AtCap::Doubt
    }
}

/// See [`at_cap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtCap {
    /// No effect happened.
    Fail,
    /// All effects are settled: a result that lists them.
    CloseWithAccount,
    /// An effect is open.
    Doubt,
}

/// The next step of an effect of this record.
#[must_use]
pub fn next_step(op: &Operation, effect: usize, at: Moment<'_>) -> step::Step {
    op.effects.get(effect).map_or(step::Step::Settled, |e| step::next(e, at))
}

/// The strategy that governs an operation as a whole: that of its first open effect.
#[must_use]
pub fn strategy_of(op: &Operation) -> Option<Strategy> {
    op.effects.iter().find(|e| !e.is_settled()).or(op.effects.first()).map(|e| e.recovery.strategy)
}
