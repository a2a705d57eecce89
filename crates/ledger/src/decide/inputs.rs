//! What questions and their answers make of an operation.

use super::{Refusal, claim, intend};
use crate::effect::Intent;
use crate::input::{Answered, Ask, Given, Input, InputKind, MAX_ANSWER, MAX_INPUTS, answer_digest, compare};
use crate::operation::{Decision, Execution, Operation};
use crate::planted;
use crate::store::{Blob, BlobKind};
use crate::words::{EffectKey, Epoch, Time};

fn index(i: usize) -> u16 {
    u16::try_from(i).unwrap_or(u16::MAX)
}

/// The operation begins with questions: nothing of it runs before they are answered, and its intent is no effect yet.
pub(super) fn opened(
    next: &mut Operation,
    blobs: &mut Vec<Blob>,
    asks: Vec<Ask>,
    intent: Option<(Intent, EffectKey)>,
    now: Time,
) {
    next.attempt = 0;
    next.counted_from = 0;
    next.owner = Epoch(0);
    let mut about = String::new();
    if let Some((intent, key)) = intent {
        about.clone_from(&intent.summary);
        if planted!(IntentBeforeApproval) {
            intend(next, blobs, intent, key, now);
        } else {
            next.planned = Some(intent.digest());
            blobs.push(Blob { kind: BlobKind::Planned, data: intent.pack() });
        }
    }
    ask(next, blobs, asks, now);
    next.execution = Execution::InputRequired { question: question(next, &about) };
}

fn ask(next: &mut Operation, blobs: &mut Vec<Blob>, asks: Vec<Ask>, now: Time) {
    // Programs that don't know of questions leave it alone.
    next.form = next.form.max(1);
    let round = next.inputs.last().map_or(1, |i| i.round.saturating_add(1));
    for a in asks {
        blobs.push(Blob { kind: BlobKind::Request(index(next.inputs.len())), data: a.request.clone() });
        next.inputs.push(Input {
            digest: a.digest(),
            key: a.key,
            kind: a.kind,
            round,
            asked_at: now,
            answer: None,
        });
    }
}

/// What operators read.
fn question(op: &Operation, about: &str) -> String {
    let keys: Vec<&str> = op.open_inputs().map(|i| op.inputs[i].key.as_str()).collect();
    let approval = op.open_inputs().any(|i| op.inputs[i].kind == InputKind::Approval);
    match (approval, about) {
        (true, "") => format!("it waits for a person's yes ({})", keys.join(", ")),
        (true, about) => format!("it waits for a person's yes to: {about}"),
        (false, _) => format!("it waits for the client's answer ({})", keys.join(", ")),
    }
}

/// Whether these may be asked after so many others.
fn askable(before: usize, asks: &[Ask]) -> Result<(), Refusal> {
    for (n, a) in asks.iter().enumerate() {
        if !a.is_bounded() || asks[..n].iter().any(|o| o.key == a.key) {
            return Err(Refusal::BadAsk);
        }
    }
    if before + asks.len() > MAX_INPUTS {
        return Err(Refusal::TooManyInputs);
    }
    Ok(())
}

/// Whether an operation may begin with these questions: each within its bounds and under a key of its own, and not too many.
///
/// # Errors
/// [`Refusal::BadAsk`], [`Refusal::TooManyInputs`].
pub fn may_begin_with(asks: &[Ask]) -> Result<(), Refusal> {
    askable(0, asks)
}

pub(super) fn require(
    op: &Operation,
    next: &mut Operation,
    blobs: &mut Vec<Blob>,
    mut asks: Vec<Ask>,
    now: Time,
) -> Result<(), Refusal> {
    if !op.effects_settled() {
        // Nothing sends while it waits, so nothing may be open.
        return Err(Refusal::Unsettled);
    }
    let given = asks.len();
    for a in &asks {
        // One that is open already may be asked once more, and is not asked anew.
        if op
            .input(&a.key)
            .is_some_and(|i| op.inputs[i].answer.is_some() || op.inputs[i].digest != a.digest())
        {
            return Err(Refusal::BadAsk);
        }
    }
    asks.retain(|a| op.input(&a.key).is_none());
    askable(op.inputs.len(), &asks)?;
    if given == 0 {
        return Err(Refusal::BadAsk);
    }
    ask(next, blobs, asks, now);
    next.owner = Epoch(0);
    next.execution = Execution::InputRequired { question: question(next, "") };
    Ok(())
}

pub(super) struct Answers {
    pub by: String,
    pub answers: Vec<(String, Vec<u8>)>,
    pub epoch: Epoch,
    pub by_call: bool,
}

pub(super) fn answer(
    op: &Operation,
    next: &mut Operation,
    blobs: &mut Vec<Blob>,
    new: Answers,
    intent: Option<Box<(Intent, EffectKey)>>,
    now: Time,
) -> Result<(), Refusal> {
    match compare(op, &new.answers) {
        Given::Conflict if !planted!(AnswerOverwrites) => return Err(Refusal::AnswerConflict),
        Given::Known => return Err(Refusal::Nothing),
        Given::New | Given::Conflict => {}
    }
    if !op.waits_for_input() {
        return Err(Refusal::State);
    }
    for (key, answer) in new.answers {
        let Some(i) = op.input(&key) else { continue };
        let digest = answer_digest(&answer);
        if answer.len() > MAX_ANSWER {
            return Err(Refusal::BadAnswer);
        }
        match &next.inputs[i].answer {
            Some(a) if a.digest == digest => continue,
            // Two answers to one question in one piece: neither counts.
            Some(_) if op.inputs[i].answer.is_none() => return Err(Refusal::AnswerConflict),
            _ => {}
        }
        next.inputs[i].answer = Some(Answered { digest, at: now, by: new.by.clone() });
        blobs.push(Blob { kind: BlobKind::Answer(index(i)), data: answer });
        if op.inputs[i].kind == InputKind::Approval {
            next.decisions.push(Decision { at: now, by: new.by.clone(), what: APPROVED.into() });
        }
    }
    if new.by_call {
        next.caller = crate::operation::Caller { epoch: new.epoch, gone: false };
    }
    if next.open_inputs().next().is_some() && !planted!(AnsweredInPart) {
        if !next.open_inputs().any(|i| next.inputs[i].kind == InputKind::Approval) {
            next.execution = Execution::InputRequired { question: question(next, "") };
        }
        return Ok(());
    }
    // Whoever answered, it is called for here: a caller that is gone elsewhere must not abandon it under this attempt.
    claim(next, new.epoch, true, now);
    // What a person takes to answer is no try of ours.
    next.counted_from += 1;
    next.execution = Execution::Running;
    if !op.is_past_no_return() {
        // Nothing of it was done while it waited: it begins now.
        next.begun_at = Some(now);
    }
    // What was shown is sent, and nothing else.
    if next.planned != intent.as_ref().map(|i| i.0.digest()) {
        return Err(Refusal::IntentMismatch);
    }
    if let Some(planned) = intent {
        next.planned = None;
        let (intent, key) = *planned;
        intend(next, blobs, intent, key, now);
    }
    Ok(())
}

/// The word in decisions of who was asked for a yes and said yes.
const APPROVED: &str = "approved";
