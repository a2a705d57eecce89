//! What can happen to an operation, and why it can't.

use crate::Fingerprint;
use crate::effect::Intent;
use crate::executor::Receipt;
use crate::input::Ask;
use crate::operation::{DeliveryState, OperationPolicy};
use crate::words::{EffectKey, Epoch, Key, Millis, OperationId, Scope, Time};

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
    /// What has to be answered before its first attempt; its intent is no effect before that.
    pub asks: Vec<Ask>,
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
    /// An effect was made in the ledger's own database: by this very write.
    Local {
        /// Whose attempt.
        fence: Fence,
        /// What it is.
        intent: Box<Intent>,
        /// Its name.
        key: EffectKey,
        /// What came of it.
        receipt: Receipt,
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
    /// No effect happened, and the attempt ended because the ledger could not be used: what is handed out goes on after
    /// `until`, up to the cap; whatever else it is, whoever calls again goes on with it.
    Interrupted {
        /// Whose attempt.
        fence: Fence,
        /// Why, for people.
        reason: String,
        /// Not before.
        until: Time,
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
    /// The tool needs answers: a new round. The attempt is over; the last answer begins the next one.
    Require {
        /// Whose attempt.
        fence: Fence,
        /// What is asked.
        asks: Vec<Ask>,
    },
    /// Answers came. The last one claims the operation and makes what waited for it an effect, in this very write.
    Answer {
        /// Who answers.
        by: String,
        /// By key. Keys that name no question count for nothing.
        answers: Vec<(String, Vec<u8>)>,
        /// Who runs the next attempt, if these are the last answers.
        epoch: Epoch,
        /// Whoever brings them waits for the result there.
        by_call: bool,
        /// The intent that waits, and its name at the provider.
        intent: Option<Box<(Intent, EffectKey)>>,
    },
    /// A client holds a handle to it from now on: it runs on by itself.
    HandOut {
        /// For how long that is promised.
        ttl: Option<Millis>,
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
    /// Another call waits for the running operation here.
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
        /// The epoch that owns an earlier question is known to be dead.
        owner_dead: bool,
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
        /// From when on a *not found* counts, clock steps included: [`crate::step::counts_from`].
        counts_from: Time,
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
    /// It has as many effects as it may have.
    #[error("an operation can't have more than {MAX_EFFECTS} effects", MAX_EFFECTS = super::MAX_EFFECTS)]
    TooManyEffects,
    /// Asking is of no use: the provider can't be asked.
    #[error("the provider can't be asked about this effect")]
    CantAsk,
    /// Another answer was given first.
    #[error("another answer to this question was given before, and that one counts")]
    AnswerConflict,
    /// A question is not one that may be asked: its key was used before, or it is out of its bounds.
    #[error(
        "the tool asks a question under a key that was used before, or one without a proper key or larger than allowed"
    )]
    BadAsk,
    /// An answer is larger than allowed.
    #[error("an answer has at most {MAX_ANSWER} bytes", MAX_ANSWER = crate::input::MAX_ANSWER)]
    BadAnswer,
    /// It has asked as much as it may.
    #[error("an operation can't ask more than {MAX_INPUTS} questions", MAX_INPUTS = crate::input::MAX_INPUTS)]
    TooManyInputs,
}

impl Refusal {
    /// Every refusal.
    pub const ALL: [Refusal; 16] = [
        Refusal::Fenced,
        Refusal::State,
        Refusal::Busy,
        Refusal::PastNoReturn,
        Refusal::Unsettled,
        Refusal::MayHaveEffect,
        Refusal::IntentMismatch,
        Refusal::NoSuchEffect,
        Refusal::Nothing,
        Refusal::Cap,
        Refusal::TooManyEffects,
        Refusal::CantAsk,
        Refusal::AnswerConflict,
        Refusal::BadAsk,
        Refusal::BadAnswer,
        Refusal::TooManyInputs,
    ];

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
            Refusal::TooManyEffects => "too_many_effects",
            Refusal::CantAsk => "cant_ask",
            Refusal::AnswerConflict => "answer_conflict",
            Refusal::BadAsk => "bad_ask",
            Refusal::BadAnswer => "bad_answer",
            Refusal::TooManyInputs => "too_many_inputs",
        }
    }
}
