//! The state machine: `decide(record, event, now)` is pure and says the next record, or why not.
//!
//! Every transition of an operation is here and nowhere else. A store persists what comes out under a
//! compare-and-set on the record's version, so a decision made on a stale record changes nothing.

use crate::effect::{Effect, EffectState, Intent};
use crate::executor::Receipt;
use crate::operation::{Caller, Decision, Delivery, DeliveryState, Execution, Operation, OperationPolicy};
use crate::step::{self, Moment};
use crate::store::{Blob, BlobKind};
use crate::words::{EffectKey, Epoch, Key, Millis, OperationId, Scope, Time};
use crate::{Fingerprint, Strategy};

/// Proof of which attempt speaks: its number and the boot that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The attempt's number.
    pub attempt: u32,
    /// The boot that runs it.
    pub epoch: Epoch,
}

/// What a new operation is made of.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Its fresh id.
    pub id: OperationId,
    /// Where it lives.
    pub scope: Scope,
    /// The caller's name for it.
    pub key: Option<Key>,
    /// What is asked.
    pub fingerprint: Fingerprint,
    /// Limits.
    pub policy: OperationPolicy,
    /// Who runs it and holds the caller's stream.
    pub epoch: Epoch,
    /// The intent and key of its one effect, if it has exactly one.
    pub intent: Option<(Intent, EffectKey)>,
    /// Its arguments, kept where no intent pins them.
    pub arguments: Option<Vec<u8>>,
}

/// What an operator or a person says about an operation that waits for a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It happened; the receipt is the person's word or what they found.
    Applied(Receipt),
    /// It did not happen and will not any more.
    NotApplied,
    /// Send the recorded bytes once more, under the same key.
    SendAgain,
}

/// Something that happens to an operation.
#[derive(Clone, Debug)]
pub enum Event {
    /// A replica takes it: the next attempt. `by_call`: a call asks for it (as opposed to recovery).
    Claim {
        /// Who takes it.
        epoch: Epoch,
        /// A call asks for it.
        by_call: bool,
        /// The epoch that owned it is known to be dead.
        owner_dead: bool,
    },
    /// An effect is about to be caused. The first send's deadline is part of it.
    Intend {
        /// Whose attempt.
        fence: Fence,
        /// Everything needed to send it again.
        intent: Box<Intent>,
        /// Its name at the provider.
        key: EffectKey,
    },
    /// Another send is about to begin.
    Send {
        /// Whose attempt.
        fence: Fence,
        /// Which effect.
        effect: usize,
    },
    /// A send ended.
    Receive {
        /// Whose attempt.
        fence: Fence,
        /// Which effect.
        effect: usize,
        /// How.
        outcome: Outcome,
    },
    /// The provider was asked.
    Looked {
        /// Whose attempt.
        fence: Fence,
        /// Which effect.
        effect: usize,
        /// When the question left.
        asked_at: Time,
        /// What it said.
        answer: Finding,
    },
    /// There is a result.
    Close {
        /// Whose attempt.
        fence: Fence,
        /// The result's bytes.
        result: Vec<u8>,
        /// It reports an error.
        is_error: bool,
        /// The caller's stream is known to be closed.
        caller_gone: bool,
    },
    /// No effect happened, and it is known.
    Fail {
        /// Whose attempt.
        fence: Fence,
        /// Why, for people.
        reason: String,
    },
    /// No safe automatic step is left.
    Doubt {
        /// Whose attempt.
        fence: Fence,
        /// Why, for people.
        reason: String,
    },
    /// A person must say.
    Ask {
        /// Whose attempt.
        fence: Fence,
        /// What is asked.
        question: String,
    },
    /// The attempt lets go; recovery goes on after `until`.
    Rest {
        /// Whose attempt.
        fence: Fence,
        /// Not before.
        until: Time,
    },
    /// The caller's stream closed and no other call waits.
    CallerGone,
    /// Another call waits for it here.
    Join {
        /// The boot that holds the stream.
        epoch: Epoch,
    },
    /// Somebody asks to cancel it.
    Cancel {
        /// Who.
        by: String,
    },
    /// An abandoned operation's time is over.
    Expire,
    /// The result got so far.
    Deliver(DeliveryState),
    /// The alert about an undelivered result was raised.
    Alerted,
    /// A person's or operator's word.
    Decide {
        /// Who.
        by: String,
        /// What.
        verdict: Verdict,
    },
    /// Ask the provider again about an operation in doubt; the attempt counts, the state stays.
    Reconcile {
        /// Who asks.
        epoch: Epoch,
        /// Who decided so.
        by: String,
    },
}

/// How a send ended, as the record sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Provably nothing left.
    NotSent {
        /// For people.
        why: String,
        /// The pause before the next.
        pause: Millis,
    },
    /// It happened.
    Applied(Receipt),
    /// The provider definitely refused this send.
    Refused(Receipt),
    /// The provider says that this send was not applied.
    NotApplied {
        /// For people.
        why: String,
        /// The pause before the next.
        pause: Millis,
    },
    /// Not known.
    Unknown {
        /// For people.
        why: String,
        /// The pause before the next.
        pause: Millis,
        /// Replays repeat this failure.
        stored: bool,
    },
    /// No more sends are made, and none left.
    NeverSent,
}

/// What a look-up said, as the record sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The receipt; `several`: there were more.
    Found {
        /// The object.
        receipt: Receipt,
        /// More than one matched.
        several: bool,
    },
    /// Nothing visible.
    NotFound {
        /// The pause before asking again.
        pause: Millis,
    },
    /// No answer.
    Unknown {
        /// For people.
        why: String,
        /// The pause before asking again.
        pause: Millis,
    },
}

/// Why an event can't happen to this record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The attempt is not the newest one, or its replica lost it: a zombie's write.
    #[error("the attempt was taken over: its writes change nothing")]
    Fenced,
    /// The operation's state does not allow it.
    #[error("the operation's state does not allow this")]
    State,
    /// An attempt is alive.
    #[error("another attempt is running")]
    Busy,
    /// It can't be cancelled any more.
    #[error("a request of this operation may already have reached the provider; it can't be cancelled")]
    PastNoReturn,
    /// An effect is not settled.
    #[error("an effect of this operation is not settled")]
    Unsettled,
    /// Some effect happened or may have.
    #[error("an effect of this operation happened or may have happened")]
    MayHaveEffect,
    /// The effect is recorded with another intent.
    #[error("the effect is recorded with another intent")]
    IntentMismatch,
    /// There is no such effect.
    #[error("there is no such effect")]
    NoSuchEffect,
    /// The record already says so, or says more.
    #[error("there is nothing to change")]
    Nothing,
    /// The attempts are used up.
    #[error("the attempts are used up")]
    Cap,
    /// Asking is of no use: the provider can't be asked.
    #[error("the provider can't be asked about this effect")]
    CantAsk,
}

impl Refusal {
    /// The word in metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Refusal::Fenced => "fenced",
            Refusal::State => "state",
            Refusal::Busy => "busy",
            Refusal::PastNoReturn => "past_no_return",
            Refusal::Unsettled => "unsettled",
            Refusal::MayHaveEffect => "may_have_effect",
            Refusal::IntentMismatch => "intent_mismatch",
            Refusal::NoSuchEffect => "no_such_effect",
            Refusal::Nothing => "nothing",
            Refusal::Cap => "cap",
            Refusal::CantAsk => "cant_ask",
        }
    }
}

/// A record's next state and the payloads that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The record, its version already counted up.
    pub next: Operation,
    /// Payloads.
    pub blobs: Vec<Blob>,
}

/// The record of a new operation: running its first attempt, its one effect intended where it has one.
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
        is_error: false,
        decisions: Vec::new(),
    };
    if let Some((intent, key)) = o.intent {
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

/// Running, or in doubt and being reconciled: an effect may be settled.
fn settling(op: &Operation, f: Fence) -> Result<(), Refusal> {
    fenced(op, f)?;
    match op.execution {
        Execution::Running | Execution::InDoubt { .. } => Ok(()),
        _ => Err(Refusal::State),
    }
}

fn end(op: &mut Operation, execution: Execution, now: Time) {
    op.execution = execution;
    op.ended_at = Some(now);
    op.owner = Epoch(0);
}

fn claim(op: &mut Operation, epoch: Epoch, by_call: bool, now: Time) {
    if by_call {
        op.caller = Caller { epoch, gone: false };
    }
    for e in &mut op.effects {
        // Whoever sent last is fenced from this moment on; a later attempt that sent nothing changes nothing.
        if e.unresolved > 0 && e.fenced_at.is_none() {
            e.fenced_at = Some(now);
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
                claim(&mut next, epoch, by_call, now);
                next.execution = Execution::Running;
            }
            Execution::Failed { .. } => {
                if !by_call || op.may_have_effect() {
                    return Err(Refusal::State);
                }
                // The effects were provably not sent or refused while nothing was open: each may be sent anew,
                // under the same key.
                claim(&mut next, epoch, by_call, now);
                next.counted_from = next.attempt;
                for e in &mut next.effects {
                    // A refusal with its receipt stands; what was never sent is sent.
                    if e.state == EffectState::Rejected && !e.has_receipt {
                        e.state = EffectState::Intended;
                        e.not_before = now;
                    }
                }
                next.execution = Execution::Running;
            }
            Execution::Running => {
                if op.owner != Epoch(0) && !owner_dead && now < op.deadline {
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
            running(op, fence)?;
            if let Some(i) = op.effect(&intent.name, &intent.discriminator) {
                return Err(if op.effects[i].digest == intent.digest() { Refusal::Nothing } else { Refusal::IntentMismatch });
            }
            intend(&mut next, &mut blobs, *intent, key, now);
        }
        Event::Send { fence, effect } => {
            running(op, fence)?;
            let deadline = send_deadline(op, op.effects.get(effect).ok_or(Refusal::NoSuchEffect)?.recovery.send_timeout, now);
            let e = &mut next.effects[effect];
            if e.is_settled() {
                return Err(Refusal::State);
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
            settling(op, fence)?;
            let e = next.effects.get_mut(effect).ok_or(Refusal::NoSuchEffect)?;
            if e.is_settled() {
                return Err(Refusal::State);
            }
            receive(e, u16::try_from(effect).unwrap_or(u16::MAX), outcome, now, &mut blobs)?;
        }
        Event::Looked { fence, effect, asked_at, answer } => {
            settling(op, fence)?;
            let e = next.effects.get_mut(effect).ok_or(Refusal::NoSuchEffect)?;
            looked(e, u16::try_from(effect).unwrap_or(u16::MAX), asked_at, answer, now, &mut blobs)?;
        }
        Event::Close { fence, result, is_error, caller_gone } => {
            settling(op, fence)?;
            if !op.effects_settled() {
                return Err(Refusal::Unsettled);
            }
            end(&mut next, Execution::Completed, now);
            next.is_error = is_error;
            let state = if caller_gone || op.caller.gone { DeliveryState::Undelivered } else { DeliveryState::Ready };
            next.delivery = Delivery { state, at: now, alerted: false };
            blobs.push(Blob { kind: BlobKind::Result, data: result });
        }
        Event::Fail { fence, reason } => {
            running(op, fence)?;
            if op.may_have_effect() {
                return Err(Refusal::MayHaveEffect);
            }
            end(&mut next, Execution::Failed { reason }, now);
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
            Execution::Running if !op.is_past_no_return() => {
                next.execution = Execution::Accepted;
                next.owner = Epoch(0);
                next.caller.gone = true;
                next.not_before = now.plus(op.policy.abandoned_for);
            }
            _ if op.caller.gone => return Err(Refusal::Nothing),
            Execution::Running | Execution::InDoubt { .. } | Execution::InputRequired { .. } => next.caller.gone = true,
            _ => return Err(Refusal::State),
        },
        Event::Join { epoch } => match op.execution {
            Execution::Running | Execution::Accepted => {
                next.joined += 1;
                next.caller = Caller { epoch, gone: false };
            }
            _ => return Err(Refusal::State),
        },
        Event::Cancel { by } => match op.execution {
            Execution::Accepted => cancel(&mut next, by, now),
            Execution::Running if !op.may_have_effect() => cancel(&mut next, by, now),
            Execution::Running if op.effects.len() > 1 || op.effects_settled() => {
                if op.cancel_requested {
                    return Err(Refusal::Nothing);
                }
                next.cancel_requested = true;
                next.decisions.push(Decision { at: now, by, what: "cancel requested".into() });
            }
            Execution::Running => return Err(Refusal::PastNoReturn),
            _ => return Err(Refusal::State),
        },
        Event::Expire => match op.execution {
            Execution::Accepted if now >= op.not_before => end(&mut next, Execution::Cancelled { explicit: false }, now),
            _ => return Err(Refusal::State),
        },
        Event::Deliver(state) => {
            if op.execution != Execution::Completed || state <= DeliveryState::Ready {
                return Err(Refusal::State);
            }
            // The same news again refreshes the time of a written delivery (the guard window counts from the
            // last one) and is otherwise nothing new.
            if state < op.delivery.state || (state == op.delivery.state && state != DeliveryState::Written) {
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
        Event::Decide { by, verdict } => decide_verdict(op, &mut next, &mut blobs, by, verdict, now)?,
        Event::Reconcile { epoch, by } => {
            let Execution::InDoubt { .. } = op.execution else { return Err(Refusal::State) };
            if op.owner != Epoch(0) && now < op.deadline {
                return Err(Refusal::Busy);
            }
            if !op.effects.iter().any(|e| !e.is_settled() && e.recovery.can_look_up) {
                return Err(Refusal::CantAsk);
            }
            claim(&mut next, epoch, false, now);
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

fn cancel(op: &mut Operation, by: String, now: Time) {
    for e in &mut op.effects {
        if !e.is_settled() {
            e.state = EffectState::Rejected;
            e.why = "cancelled before anything was sent".into();
        }
    }
    op.decisions.push(Decision { at: now, by, what: "cancelled".into() });
    end(op, Execution::Cancelled { explicit: true }, now);
}

fn receive(e: &mut Effect, index: u16, outcome: Outcome, now: Time, blobs: &mut Vec<Blob>) -> Result<(), Refusal> {
    match outcome {
        Outcome::NotSent { why, pause } => {
            e.unresolved = e.unresolved.saturating_sub(1);
            e.why = why;
            e.not_before = now.plus(pause);
            if e.unresolved == 0 {
                // Provably nothing of it ever left: it is as it was before its first send.
                e.state = EffectState::Intended;
                e.fenced_at = None;
            }
        }
        Outcome::NotApplied { why, pause } => {
            e.unresolved = e.unresolved.saturating_sub(1);
            e.why = why;
            e.not_before = now.plus(pause);
            e.state = if e.unresolved == 0 { EffectState::Intended } else { EffectState::Unknown };
        }
        Outcome::Applied(receipt) => {
            e.state = EffectState::Applied;
            e.has_receipt = true;
            e.unresolved = 0;
            e.why.clear();
            blobs.push(Blob { kind: BlobKind::Receipt(index), data: receipt.0 });
        }
        Outcome::Refused(receipt) => {
            // A refusal of a replay is about the replay, unless the provider repeats its first answer.
            if e.unresolved <= 1 || e.recovery.replays_first_answer {
                e.state = EffectState::Rejected;
                e.has_receipt = true;
                e.unresolved = 0;
                "refused by the provider".clone_into(&mut e.why);
                blobs.push(Blob { kind: BlobKind::Receipt(index), data: receipt.0 });
            } else {
                e.unresolved -= 1;
                e.state = EffectState::Unknown;
                // The same bytes will be refused again; only asking helps.
                e.stored_failure = true;
                "a replay was refused, which says nothing about the first send".clone_into(&mut e.why);
            }
        }
        Outcome::Unknown { why, pause, stored } => {
            e.state = EffectState::Unknown;
            e.why = why;
            e.not_before = now.plus(pause);
            e.stored_failure |= stored;
        }
        Outcome::NeverSent => {
            if e.unresolved > 0 {
                return Err(Refusal::MayHaveEffect);
            }
            e.state = EffectState::Rejected;
            if e.why.is_empty() {
                "never sent".clone_into(&mut e.why);
            }
        }
    }
    Ok(())
}

fn looked(e: &mut Effect, index: u16, asked_at: Time, answer: Finding, now: Time, blobs: &mut Vec<Blob>) -> Result<(), Refusal> {
    e.looks += 1;
    match answer {
        Finding::Found { receipt, several } => {
            e.several |= several;
            if e.state == EffectState::Applied {
                // A second look after a replay: only a second match is news.
                return if several { Ok(()) } else { Err(Refusal::Nothing) };
            }
            if e.state == EffectState::Rejected {
                return Err(Refusal::State);
            }
            e.state = EffectState::Applied;
            e.has_receipt = true;
            e.unresolved = 0;
            e.why.clear();
            blobs.push(Blob { kind: BlobKind::Receipt(index), data: receipt.0 });
        }
        Finding::NotFound { .. } | Finding::Unknown { .. } if e.is_settled() => return Err(Refusal::Nothing),
        Finding::NotFound { pause } => {
            if e.unresolved == 0 {
                return Ok(());
            }
            e.state = EffectState::Unknown;
            let quarantine = e.quarantine_until();
            if asked_at >= quarantine {
                e.absent = true;
                "asked after its quarantine, and not found".clone_into(&mut e.why);
            } else {
                // Not before the quarantine is over unless the pause is shorter: found settles it at once.
                e.not_before = now.plus(pause).min(quarantine.max(now));
            }
        }
        Finding::Unknown { why, pause } => {
            e.why = why;
            e.not_before = now.plus(pause);
        }
    }
    Ok(())
}

fn decide_verdict(op: &Operation, next: &mut Operation, blobs: &mut Vec<Blob>, by: String, verdict: Verdict, now: Time) -> Result<(), Refusal> {
    if !matches!(op.execution, Execution::InDoubt { .. } | Execution::InputRequired { .. }) {
        return Err(Refusal::State);
    }
    let open: Vec<usize> = (0..op.effects.len()).filter(|&i| !op.effects[i].is_settled()).collect();
    if open.is_empty() {
        return Err(Refusal::NoSuchEffect);
    }
    let what = match &verdict {
        Verdict::Applied(_) => "it happened",
        Verdict::NotApplied => "it did not happen",
        Verdict::SendAgain => "send it again, the same bytes under the same key",
    };
    next.decisions.push(Decision { at: now, by, what: what.into() });
    match verdict {
        Verdict::Applied(receipt) => {
            for i in open {
                let e = &mut next.effects[i];
                e.state = EffectState::Applied;
                e.has_receipt = true;
                e.unresolved = 0;
                "a person's word".clone_into(&mut e.why);
                blobs.push(Blob { kind: BlobKind::Receipt(u16::try_from(i).unwrap_or(u16::MAX)), data: receipt.0.clone() });
            }
            // Recovery claims it and closes it from the receipt.
            next.execution = Execution::Running;
            next.owner = Epoch(0);
            next.not_before = now;
            next.counted_from = next.attempt;
        }
        Verdict::NotApplied => {
            for i in open {
                let e = &mut next.effects[i];
                e.state = EffectState::Rejected;
                e.unresolved = 0;
                "a person's word: it did not happen".clone_into(&mut e.why);
            }
            if next.may_have_effect() {
                // Others were applied: recovery closes it with an account of them.
                next.execution = Execution::Running;
                next.owner = Epoch(0);
                next.not_before = now;
                next.counted_from = next.attempt;
            } else {
                end(next, Execution::Failed { reason: "an operator found that it did not happen".into() }, now);
            }
        }
        Verdict::SendAgain => {
            for i in open {
                let e = &mut next.effects[i];
                // What is not known of earlier sends stays not known: only one more send is permitted.
                e.forced = true;
                e.not_before = now;
            }
            next.execution = Execution::Running;
            next.owner = Epoch(0);
            next.not_before = now;
            next.counted_from = next.attempt;
        }
    }
    Ok(())
}

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
pub fn next_step(op: &Operation, effect: usize, at: Moment) -> step::Step {
    op.effects.get(effect).map_or(step::Step::Settled, |e| step::next(e, at))
}

/// The strategy that governs an operation as a whole: that of its first open effect.
#[must_use]
pub fn strategy_of(op: &Operation) -> Option<Strategy> {
    op.effects.iter().find(|e| !e.is_settled()).or(op.effects.first()).map(|e| e.recovery.strategy)
}
