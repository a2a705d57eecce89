//! The ring: keys in stages, and the pure rules by which it turns.
//!
//! A key is made as *standby*: every replica can open with it, none seals with it yet. After [`SPREAD`] it is *active*:
//! by then every replica has read it, or has a copy of the ring that is too old to seal or to refuse with. The one before
//! it is *retiring*: it opens until the last token that anybody may have sealed with it has ended. Then it is *gone*. The
//! stages follow from times alone, so no process has to be there for a key to move on.

use crate::context::Context;
use crate::error::{Reject, SealError};
use crate::key::{Key, KeyId};
use crate::token;
use ledger::{Millis, Time};
use std::fmt;

/// How often a replica reads the ring.
pub const POLL: Millis = Millis::secs(15);
/// A copy of the ring that was not read anew for this long is not used.
pub const STALE: Millis = Millis::secs(60);
/// How long a new key waits until it seals: longer than any copy of the ring is used without it.
pub const SPREAD: Millis = Millis::secs(90);
/// What a key opens beyond the longest lifetime, after another one seals: whoever has an older copy may seal with it
/// until that is stale, and the ledger's clock is read with a delay.
const MARGIN: Millis = Millis(STALE.0 + 60_000);
/// The longest lifetime that a token may be given.
pub const LONGEST_LIFETIME: Millis = Millis::secs(86_400);
/// The most keys at a time.
pub const MAX_KEYS: usize = 16;

/// A key with its times.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub key: Key,
    pub made_at: Time,
    /// From when on it seals, if no newer one does.
    pub seals_from: Time,
    /// Until when it opens; none while no newer one is there.
    pub opens_until: Option<Time>,
}

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct Ring {
    /// The longest lifetime that any replica gives a token. It only grows.
    pub(crate) longest: Millis,
    /// Oldest first; never empty.
    pub(crate) held: Vec<Held>,
    /// Opens nothing: proved against when a key is not known, so that this takes as long.
    decoy: Key,
}

/// What a key is good for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It opens; it will seal.
    Standby,
    /// It seals and opens.
    Active,
    /// It opens.
    Retiring,
    /// Nothing: it only wasn't taken out yet.
    Gone,
}

impl Stage {
    /// The word for people and programs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Stage::Standby => "standby",
            Stage::Active => "active",
            Stage::Retiring => "retiring",
            Stage::Gone => "gone",
        }
    }
}

/// A key as it is shown: never the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turning {
    /// Its name.
    pub id: KeyId,
    /// What it is good for.
    pub stage: Stage,
    /// When it was made.
    pub made_at: Time,
    /// From when on it seals.
    pub seals_from: Time,
    /// Until when it opens, if that is known.
    pub opens_until: Option<Time>,
}

/// What is asked of a ring.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new key, in stages: nothing in flight is refused.
    Rotate(Key),
    /// A new key at once, and none of the others any more: what is in flight is refused.
    Replace(Key),
    /// Tokens may live as long as this.
    Lifetime(Millis),
    /// Keys that are gone are taken out.
    Tidy,
}

/// Why a change is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A new key is on its way already; it seals from then on.
    Underway(KeyId, Time),
    /// So many keys are retiring that no other one is taken in before this moment.
    Full(Time),
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.held.iter().map(|h| h.key.id())).finish()
    }
}

impl Ring {
    /// A ring of one key, which seals at once: nobody has another one.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new(key: Key, now: Time, longest: Millis) -> Result<Ring, getrandom::Error> {
        Ring::of(vec![Held { key, made_at: now, seals_from: now, opens_until: None }], longest)
    }

    pub(crate) fn of(held: Vec<Held>, longest: Millis) -> Result<Ring, getrandom::Error> {
        Ok(Ring { longest: longest.clamp(Millis(1), LONGEST_LIFETIME), held, decoy: Key::new()? })
    }

    /// The longest lifetime of a token.
    #[must_use]
    pub fn longest(&self) -> Millis {
        self.longest
    }

    /// Which one seals: the newest whose time has come. If the clock stands before all of them, the first.
    fn sealing(&self, now: Time) -> Option<usize> {
        let usable = |h: &Held| h.opens_until.is_none_or(|until| now < until);
        let come = self.held.iter().rposition(|h| h.seals_from <= now && usable(h));
        come.or_else(|| self.held.iter().position(usable))
    }

    fn stage(&self, index: usize, now: Time) -> Stage {
        let held = &self.held[index];
        match self.sealing(now) {
            _ if held.opens_until.is_some_and(|until| until <= now) => Stage::Gone,
            Some(active) if active == index => Stage::Active,
            Some(active) if active > index => Stage::Retiring,
            _ => Stage::Standby,
        }
    }

    /// Its keys, oldest first.
    #[must_use]
    pub fn keys(&self, now: Time) -> Vec<Turning> {
        let of = |(i, h): (usize, &Held)| Turning {
            id: h.key.id(),
            stage: self.stage(i, now),
            made_at: h.made_at,
            seals_from: h.seals_from,
            opens_until: h.opens_until,
        };
        self.held.iter().enumerate().map(of).collect()
    }

    /// What becomes of it, `None` if nothing changes.
    ///
    /// # Errors
    /// [`Refusal`]: it stays as it is.
    pub fn decide(&self, change: Change, now: Time) -> Result<Option<Ring>, Refusal> {
        let mut next = self.clone();
        next.held.retain(|h| h.opens_until.is_none_or(|until| now < until));
        match change {
            Change::Rotate(key) => {
                if let Some(t) = self.keys(now).into_iter().find(|t| t.stage == Stage::Standby) {
                    return Err(Refusal::Underway(t.id, t.seals_from));
                }
                if next.held.len() >= MAX_KEYS {
                    let first = next.held.iter().filter_map(|h| h.opens_until).min();
                    return Err(Refusal::Full(first.unwrap_or(now)));
                }
                let seals_from = now.plus(SPREAD);
                for h in next.held.iter_mut().filter(|h| h.opens_until.is_none()) {
                    h.opens_until = Some(seals_from.plus(next.longest).plus(MARGIN));
                }
                next.held.push(Held { key, made_at: now, seals_from, opens_until: None });
            }
            Change::Replace(key) => {
                next.held = vec![Held { key, made_at: now, seals_from: now, opens_until: None }];
            }
            Change::Lifetime(longest) => {
                let longest = longest.min(LONGEST_LIFETIME);
                // A shorter one is no reason to give up what was sealed for longer.
                if longest <= self.longest {
                    return Ok(None);
                }
                let more = longest.0 - self.longest.0;
                // Those that still seal somewhere may seal for longer from now on.
                for h in &mut next.held {
                    h.opens_until = h.opens_until.map(|until| until.plus(Millis(more)));
                }
                next.longest = longest;
            }
            Change::Tidy => {}
        }
        Ok((next != *self).then_some(next))
    }

    /// Seals it until `ttl` from now, at most the ring's longest lifetime.
    ///
    /// # Errors
    /// [`SealError`]: it doesn't fit, or the system gives no random numbers.
    pub fn seal(
        &self,
        payload: &[u8],
        context: &Context<'_>,
        now: Time,
        ttl: Millis,
    ) -> Result<String, SealError> {
        let Some(index) = self.sealing(now) else {
            return Err(SealError::Unavailable("no key of the ring is good now".into()));
        };
        let end = now.plus(ttl.min(self.longest));
        token::seal(&self.held[index].key, payload, &context.assertion(), end)
    }

    /// Opens what this ring sealed for exactly this context, before its end.
    ///
    /// # Errors
    /// [`Reject`].
    pub fn open(&self, text: &str, context: &Context<'_>, now: Time) -> Result<Vec<u8>, Reject> {
        let unproved = token::parse(text)?;
        let assertion = context.assertion();
        let held = self.held.iter().find(|h| h.key.id() == unproved.kid);
        match held.filter(|h| h.opens_until.is_none_or(|until| now < until)) {
            Some(held) => unproved.open(&held.key, &assertion, now),
            None => {
                // As long as it takes with a key.
                let _ = unproved.open(&self.decoy, &assertion, now);
                Err(Reject::UnknownKey)
            }
        }
    }
}
