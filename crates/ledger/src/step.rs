//! What may safely be done about an effect now: pure, and the one place where that is decided.

use crate::effect::{Effect, EffectState, Strategy};
use crate::executor::Asked;
use crate::gaps::Gaps;
use crate::planted;
use crate::words::{Millis, Time};

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is left to do.
    Settled,
    /// Send the recorded bytes; `replay`: an earlier send is unresolved.
    Send {
        /// An earlier send is unresolved.
        replay: bool,
    },
    /// Ask the provider.
    LookUp,
    /// Nothing before this moment.
    Wait(Time),
    /// Every send was provably not sent and no more are made: it did not happen.
    NeverSent,
    /// This attempt may send no more; another one may, later.
    Rest,
    /// A person must say.
    AskPerson(String),
    /// No safe automatic step is left.
    Doubt(String),
}

/// Facts of the moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The ledger's time.
    pub now: Time,
    /// See [`crate::Store::clock_step`].
    pub clock_step: Option<Time>,
    /// See [`crate::Store::gaps`].
    pub gaps: &'a Gaps,
}

impl Moment<'_> {
    /// Whether the effect may be older than it looks. One of the very moment of the step may have been before it.
    fn stepped(&self, effect: &Effect) -> Option<Time> {
        self.clock_step.filter(|s| effect.intended_at <= *s)
    }
}

/// Decides the next step. Call with the record as it is durable now.
#[must_use]
pub fn next(effect: &Effect, at: Moment<'_>) -> Step {
    match effect.state {
        EffectState::Applied | EffectState::Rejected => return Step::Settled,
        EffectState::Intended | EffectState::Unknown => {}
    }
    match allowed(effect, at) {
        // Only what reaches the provider has to wait.
        Step::Send { .. } | Step::LookUp if at.now < effect.not_before => Step::Wait(effect.not_before),
        step => step,
    }
}

fn allowed(effect: &Effect, at: Moment<'_>) -> Step {
    if effect.forced {
        return Step::Send { replay: effect.unresolved > 0 };
    }
    if effect.unresolved == 0 {
        // Nothing has left, provably: sending is safe whatever the strategy.
        if effect.recovery.precheck && effect.recovery.can_look_up && effect.looks == 0 {
            return Step::LookUp;
        }
        return if effect.attempt_sends < effect.recovery.max_sends {
            Step::Send { replay: false }
        } else {
            Step::NeverSent
        };
    }
    let stepped = at.stepped(effect).is_some();
    match effect.recovery.strategy {
        Strategy::Key | Strategy::Unique | Strategy::Natural => replay(effect, at.now, stepped),
        // Committed in the ledger's own database or not at all: running it again is the recovery.
        Strategy::Local => Step::Send { replay: true },
        Strategy::Lookup => look_up(effect, at),
        Strategy::Confirm => Step::AskPerson(format!("Did this happen? {}", effect.summary)),
        Strategy::None if planted!(ReplayWithoutStrategy) => Step::Send { replay: true },
        Strategy::None => {
            Step::Doubt(doubt(effect, "a send of it is unresolved and nothing makes a second one safe"))
        }
    }
}

fn doubt(effect: &Effect, why: &str) -> String {
    if effect.why.is_empty() { why.to_owned() } else { format!("{why}; last seen: {}", effect.why) }
}

/// Whether a send begun now would still arrive while the provider is sure to know the key.
fn replay_is_safe(effect: &Effect, now: Time, stepped: bool) -> bool {
    // An object that the provider refuses a second of stays refused: `unique` has no horizon of its own.
    let within = effect.replay_until().is_none_or(|until| now.plus(effect.recovery.send_timeout) <= until);
    within && !(stepped && effect.recovery.replay_for.is_some())
}

fn replay(effect: &Effect, now: Time, stepped: bool) -> Step {
    let safe = replay_is_safe(effect, now, stepped) || planted!(ReplayPastRetention);
    let safe = safe && !planted!(DoubtInHaste);
    if !effect.stored_failure && safe {
        return if effect.attempt_sends < effect.recovery.max_sends {
            Step::Send { replay: true }
        } else {
            Step::Rest
        };
    }
    let why = if effect.stored_failure {
        "the provider repeats a stored failure for this key"
    } else if stepped {
        "the ledger's clock was set, so it is not known whether the provider still remembers the key"
    } else {
        "the time in which a replay is safe is over"
    };
    if effect.recovery.can_look_up {
        // Found settles it. Not found settles nothing: a fresh send would go out under a key that the
        // provider has forgotten, or that only repeats the failure.
        if effect.absent {
            return Step::Doubt(doubt(effect, &format!("{why}, and the provider shows no trace of it")));
        }
        return Step::LookUp;
    }
    Step::Doubt(doubt(effect, why))
}

fn look_up(effect: &Effect, at: Moment<'_>) -> Step {
    let counts = at.now >= counts_from(effect, at) || planted!(LookupWithoutQuarantine);
    if effect.absent && counts {
        if effect.stored_failure {
            return Step::Doubt(doubt(
                effect,
                "the provider shows no trace of it and refuses to take it again",
            ));
        }
        return if effect.attempt_sends < effect.recovery.max_sends {
            Step::Send { replay: true }
        } else {
            Step::Rest
        };
    }
    Step::LookUp
}

/// What an executor is told of the time that it asks for.
#[must_use]
pub fn asked(effect: &Effect, at: Moment<'_>) -> Asked {
    let steady = at.stepped(effect).is_none() && at.gaps.ended_since(effect.intended_at).0 == 0;
    Asked { intended_at: effect.intended_at, now: at.now, steady }
}

/// From when on *not found* counts: after the last send's deadline and the fencing of whoever sent it, plus
/// what the provider may take to process and to show it, of time that was watched. A clock that was set says nothing
/// about how long ago that was, so the wait begins anew; a send that was under way then may have lasted for its whole
/// time limit after it.
#[must_use]
pub fn counts_from(effect: &Effect, at: Moment<'_>) -> Time {
    let r = &effect.recovery;
    let bound = Millis(r.processing_bound.0.saturating_add(r.visibility_lag.0));
    let q = at.gaps.end_of(effect.quarantine_from(), bound);
    at.stepped(effect).map_or(q, |s| q.max(at.gaps.end_of(s.plus(r.send_timeout), bound)))
}

/// The longest pause before the next send or look-up: doubles from the first, up to the cap. The caller draws
/// the actual pause from `[0, this]` (full jitter).
#[must_use]
pub fn backoff(effect: &Effect) -> Millis {
    let n = effect.sends.saturating_add(effect.looks).saturating_sub(1).min(20);
    let d = effect.recovery.initial_backoff.0.saturating_mul(1i64 << n);
    Millis(d.clamp(0, effect.recovery.max_backoff.0))
}
