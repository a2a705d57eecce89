//! What answers, findings and verdicts make of effects.

use super::{Finding, Outcome, Refusal, Verdict, end};
use crate::effect::{Effect, EffectState};
use crate::operation::{Decision, Execution, Operation};
use crate::planted;
use crate::store::{Blob, BlobKind};
use crate::words::{Epoch, Time};

pub(super) fn receive(
    e: &mut Effect,
    index: u16,
    outcome: Outcome,
    now: Time,
    blobs: &mut Vec<Blob>,
) -> Result<(), Refusal> {
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
            let settles = e.unresolved <= 1 || e.recovery.replays_first_answer;
            if settles || planted!(ReplayRefusalSettles) {
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

pub(super) fn looked(
    e: &mut Effect,
    index: u16,
    asked_at: Time,
    answer: Finding,
    now: Time,
    blobs: &mut Vec<Blob>,
) -> Result<(), Refusal> {
    // An unanswered question before the first send was not asked.
    if e.unresolved > 0 || !matches!(answer, Finding::Unknown { .. }) {
        e.looks += 1;
    }
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
        Finding::NotFound { pause, counts_from } => {
            if e.unresolved == 0 {
                return Ok(());
            }
            e.state = EffectState::Unknown;
            let quarantine = counts_from.max(e.quarantine_until());
            e.absent = asked_at >= quarantine || planted!(LookupWithoutQuarantine);
            if e.absent {
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

pub(super) fn verdict(
    op: &Operation,
    next: &mut Operation,
    blobs: &mut Vec<Blob>,
    by: String,
    word: Verdict,
    now: Time,
) -> Result<(), Refusal> {
    if !matches!(op.execution, Execution::InDoubt { .. } | Execution::InputRequired { .. }) {
        return Err(Refusal::State);
    }
    // An open question is answered, not decided about, as long as nothing was done.
    if op.waits_for_input() && !op.may_have_effect() {
        return Err(Refusal::State);
    }
    let open: Vec<usize> = (0..op.effects.len()).filter(|&i| !op.effects[i].is_settled()).collect();
    let what = match &word {
        Verdict::Applied(_) => "it happened",
        Verdict::NotApplied => "it did not happen",
        Verdict::SendAgain => "send it again, the same bytes under the same key",
    };
    next.decisions.push(Decision { at: now, by, what: what.into() });
    if open.is_empty() {
        // Every effect is known and yet the tool can't go on (it asks for something else than is recorded):
        // the word ends the operation with an account of them.
        next.conclude = true;
        go_on(next, now);
        return Ok(());
    }
    match word {
        Verdict::Applied(receipt) => {
            for i in open {
                let e = &mut next.effects[i];
                e.state = EffectState::Applied;
                e.has_receipt = true;
                e.unresolved = 0;
                "a person's word".clone_into(&mut e.why);
                blobs.push(Blob {
                    kind: BlobKind::Receipt(u16::try_from(i).unwrap_or(u16::MAX)),
                    data: receipt.0.clone(),
                });
            }
            // Recovery claims it and closes it from the receipt.
            go_on(next, now);
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
                go_on(next, now);
            } else {
                end(
                    next,
                    Execution::Failed { reason: "an operator found that it did not happen".into() },
                    now,
                );
            }
        }
        Verdict::SendAgain => {
            for i in open {
                let e = &mut next.effects[i];
                // What is not known of earlier sends stays not known: only one more send is permitted.
                e.forced = true;
                e.not_before = now;
            }
            go_on(next, now);
        }
    }
    Ok(())
}

/// Recovery claims it next, with a new count of attempts.
fn go_on(op: &mut Operation, now: Time) {
    op.execution = Execution::Running;
    op.owner = Epoch(0);
    op.not_before = now;
    op.counted_from = op.attempt + 1;
}
