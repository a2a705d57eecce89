//! How operations end without their tool: cancelled, denied, expired.

use super::Refusal;
use crate::effect::EffectState;
use crate::operation::{Decision, Execution, Operation};
use crate::planted;
use crate::words::{Epoch, Time};

/// It is over.
pub(super) fn end(op: &mut Operation, execution: Execution, now: Time) {
    op.execution = execution;
    op.ended_at = Some(now);
    op.owner = Epoch(0);
}

/// Somebody asks to cancel it.
pub(super) fn cancel(op: &Operation, next: &mut Operation, by: String, now: Time) -> Result<(), Refusal> {
    match op.execution {
        Execution::Accepted => cancelled(next, by, now),
        Execution::Running if !op.may_have_effect() || planted!(CancelAfterNoReturn) => {
            cancelled(next, by, now)
        }
        Execution::Running if op.effects.len() > 1 || op.effects_settled() => {
            if op.cancel_requested {
                return Err(Refusal::Nothing);
            }
            next.cancel_requested = true;
            next.decisions.push(Decision { at: now, by, what: "cancel requested".into() });
        }
        Execution::Running => return Err(Refusal::PastNoReturn),
        Execution::InputRequired { .. } if !op.may_have_effect() => {
            let denied = op.waits_for_approval();
            cancelled(next, by, now);
            if let Some(d) = next.decisions.last_mut().filter(|_| denied) {
                DENIED.clone_into(&mut d.what);
            }
        }
        // What was done stays done; whoever waits gets an account of it.
        Execution::InputRequired { .. } if op.waits_for_input() && op.effects_settled() => {
            next.cancel_requested = true;
            next.decisions.push(Decision { at: now, by, what: "cancel requested".into() });
            conclude(next, now);
        }
        Execution::InputRequired { .. } => return Err(Refusal::PastNoReturn),
        _ => return Err(Refusal::State),
    }
    Ok(())
}

/// Its time is over, and nobody came.
pub(super) fn expire(op: &Operation, next: &mut Operation, now: Time) -> Result<(), Refusal> {
    match op.execution {
        Execution::Accepted if now >= op.not_before => {
            end(next, Execution::Cancelled { explicit: false }, now)
        }
        Execution::InputRequired { .. } if op.input_expires_at().is_some_and(|t| now >= t) => {
            if !op.may_have_effect() {
                never_sent(next, "nobody answered what it asked");
                end(next, Execution::Cancelled { explicit: false }, now);
            } else if op.effects_settled() {
                conclude(next, now);
            } else {
                return Err(Refusal::Unsettled);
            }
        }
        _ => return Err(Refusal::State),
    }
    Ok(())
}

/// Settles what was intended and provably never sent, so that nothing closes with an open effect.
pub(super) fn never_sent(op: &mut Operation, why: &str) {
    for e in op.effects.iter_mut().filter(|e| !e.is_settled()) {
        e.state = EffectState::Rejected;
        if e.why.is_empty() {
            why.clone_into(&mut e.why);
        }
    }
}

fn cancelled(op: &mut Operation, by: String, now: Time) {
    never_sent(op, "cancelled before anything was sent");
    op.decisions.push(Decision { at: now, by, what: "cancelled".into() });
    end(op, Execution::Cancelled { explicit: true }, now);
}

/// The word in decisions of who was asked for a yes and said no.
pub(crate) const DENIED: &str = "denied";

/// Its next attempt, by recovery, only gives an account of what was done.
pub(super) fn conclude(op: &mut Operation, now: Time) {
    op.conclude = true;
    op.execution = Execution::Running;
    op.owner = Epoch(0);
    op.not_before = now;
    op.counted_from = op.attempt + 1;
}
