//! Claims on allowances: rates, places and budgets that all replicas of a ledger keep to together.
//!
//! An [`Allowance`] says how much of something may be used at a time; a [`Claim`] is what one holder takes of it until a
//! given moment. A store grants all claims of a holder or none ([`Store::claim`](crate::Store::claim)), so the sum of what
//! is held never goes over the cap. What is not given back ends by itself: a crash can make an allowance look fuller than
//! it is for a while, never emptier.

use crate::operation::{Execution, Operation};
use crate::planted;
use crate::store::StoreError;
use crate::words::{Epoch, Millis, OperationId, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The longest name of a bucket, in bytes.
pub const MAX_BUCKET: usize = 64;
/// The most claims that are made together.
pub const MAX_CLAIMS: usize = 16;
/// The largest amount, and the largest cap. Far below what a store's numbers hold: beside what is held, a sum may still have
/// what is over and was not removed yet.
pub const MAX_AMOUNT: u64 = 1 << 53;

const DAY: i64 = 86_400_000;

/// A part of what a bucket holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Names what is shared: 1 to [`MAX_BUCKET`] visible ASCII characters.
    pub bucket: String,
    /// How much of it.
    pub amount: u64,
    /// How much may be held in all.
    pub cap: u64,
    /// From when on it is held no more.
    pub until: Time,
}

/// What came of claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// All of them are held.
    Granted,
    /// None of them is.
    Full {
        /// The first that does not fit, by its place among them.
        which: usize,
        /// How much of it others hold.
        used: u64,
        /// When enough will be free at the latest; `None`: never, since it alone is over the cap.
        next: Option<Time>,
    },
}

/// Whether these claims may be made. Every store asks first.
///
/// # Errors
/// [`StoreError::Unavailable`]: there are none or too many, two are on one bucket, or a name or number is out of bounds.
pub fn bounded(claims: &[Claim]) -> Result<(), StoreError> {
    let no = |why: String| Err(StoreError::Unavailable(why));
    if claims.is_empty() || claims.len() > MAX_CLAIMS {
        return no(format!("1 to {MAX_CLAIMS} claims are made together"));
    }
    let mut names = BTreeSet::new();
    for c in claims {
        if !fits(&c.bucket) {
            return no(format!("a bucket's name has 1 to {MAX_BUCKET} visible ASCII characters"));
        }
        if c.amount > MAX_AMOUNT || c.cap > MAX_AMOUNT {
            return no(format!("the amount and the cap of a claim are at most {MAX_AMOUNT}"));
        }
        if !names.insert(c.bucket.as_str()) {
            return no("two claims on one bucket can't be made together; add them up".into());
        }
    }
    Ok(())
}

/// Whether this can be the name of a bucket.
#[must_use]
pub fn fits(bucket: &str) -> bool {
    (1..=MAX_BUCKET).contains(&bucket.len()) && bucket.bytes().all(|b| (0x21..=0x7e).contains(&b))
}

/// A stretch over which a budget is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// A calendar day, UTC.
    Day,
    /// A calendar month, UTC.
    Month,
    /// The last so much time.
    Last(Millis),
}

impl Period {
    /// When what is used at `now` counts no more.
    #[must_use]
    pub fn end(self, now: Time) -> Time {
        match self {
            Period::Last(span) => now.plus(span),
            Period::Day => Time((now.0.div_euclid(DAY)).saturating_add(1).saturating_mul(DAY)),
            Period::Month => end_of_month(now),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Period::Day => f.write_str("in a day (UTC)"),
            Period::Month => f.write_str("in a calendar month (UTC)"),
            Period::Last(span) => write!(f, "in {}", Span(*span)),
        }
    }
}

fn end_of_month(now: Time) -> Time {
    let of = |t: Time| time::OffsetDateTime::from_unix_timestamp(t.0.div_euclid(1000)).ok();
    let end = of(now).and_then(|t| {
        let (year, month) = if t.month() == time::Month::December {
            (t.year() + 1, 1)
        } else {
            (t.year(), u8::from(t.month()) + 1)
        };
        let first = time::Date::from_calendar_date(year, time::Month::try_from(month).ok()?, 1).ok()?;
        first.midnight().assume_utc().unix_timestamp().checked_mul(1000)
    });
    // Beyond the calendar's end no month is known: a long one, so that nothing is forgotten too early.
    end.map_or_else(|| now.plus(Millis(31 * DAY)), Time)
}

/// A length of time in words.
struct Span(Millis);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(DAY, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second")] {
            if self.0.0 >= unit && self.0.0 % unit == 0 {
                let n = self.0.0 / unit;
                return write!(f, "{n} {name}{}", if n == 1 { "" } else { "s" });
            }
        }
        write!(f, "{} ms", self.0.0)
    }
}

/// What is allowed, and for how long a claim on it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// So many begin in this time. Not given back.
    Rate(Millis),
    /// So many run at a time: given back when it runs no more, and not held longer than this.
    Place(Millis),
    /// So much is used in a period: given back if it turns out that nothing was applied.
    Budget(Period),
}

/// How much of something may be used, and how much of it an operation needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// Names what is shared: see [`Claim::bucket`].
    pub bucket: String,
    /// What is limited, in words.
    pub of: String,
    /// How much of it this operation needs.
    pub amount: u64,
    /// How much there is.
    pub cap: u64,
    /// For how long.
    pub term: Term,
    /// Whether nobody shares it with the caller: only then a caller is told how much of it is used.
    pub own: bool,
}

impl Allowance {
    /// The claim on it at `now`.
    #[must_use]
    pub fn claim(&self, now: Time) -> Claim {
        let until = match self.term {
            Term::Rate(span) | Term::Place(span) => now.plus(span),
            Term::Budget(period) => period.end(now),
        };
        Claim { bucket: self.bucket.clone(), amount: self.amount, cap: self.cap, until }
    }

    /// The claim on it of something that was begun at `begun` and goes on at `now`, whatever others hold. Each beginning
    /// counts once: in a rate it did, and a budget goes by when that was. `None`: it counts no more.
    #[must_use]
    pub fn claim_to_go_on(&self, begun: Time, now: Time) -> Option<Claim> {
        let until = match self.term {
            Term::Rate(_) => return None,
            Term::Place(span) => now.plus(span),
            Term::Budget(period) if planted!(ChargedAgain) => period.end(now),
            Term::Budget(period) => period.end(begun),
        };
        (now < until).then(|| Claim { cap: MAX_AMOUNT, until, ..self.claim(now) })
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Allowance { of, cap, .. } = self;
        match self.term {
            Term::Rate(span) => write!(f, "{of}: at most {cap} in {}", Span(span)),
            Term::Place(_) => write!(f, "{of}: at most {cap} at a time"),
            Term::Budget(period) => write!(f, "{of}: at most {cap} {period}"),
        }
    }
}

/// The buckets whose claims an operation in this state holds for nothing.
#[must_use]
pub fn given_back(op: &Operation) -> Vec<String> {
    let (places, budgets) = match &op.execution {
        Execution::Running => (false, false),
        Execution::InDoubt { .. } if planted!(GivenBackInDoubt) => (true, true),
        // The question whether it happened takes a place, too, while it is asked.
        Execution::InDoubt { .. } => (op.owner == Epoch(0), false),
        Execution::Accepted | Execution::InputRequired { .. } => (true, false),
        Execution::Failed { .. } | Execution::Cancelled { .. } => (true, true),
        // A result that is no error may stand for something that no effect was recorded of.
        Execution::Completed => (true, op.is_error && !op.may_have_effect()),
    };
    let goes = |a: &&Allowance| match a.term {
        Term::Rate(_) => false,
        Term::Place(_) => places,
        Term::Budget(_) => budgets,
    };
    op.allowances.iter().filter(goes).map(|a| a.bucket.clone()).collect()
}

/// What one holder has of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    amount: u64,
    until: Time,
    turn: u64,
}

/// The claims of a ledger in memory: the contract in its plainest form.
#[derive(Clone, Debug, Default)]
pub struct Claims(BTreeMap<String, BTreeMap<OperationId, Held>>);

impl Claims {
    /// [`Store::claim`](crate::Store::claim).
    pub fn claim(&mut self, now: Time, holder: OperationId, turn: u64, claims: &[Claim]) -> Claimed {
        for (which, c) in claims.iter().enumerate() {
            let others = || {
                let held = self.0.get(&c.bucket).into_iter().flatten();
                held.filter(|(who, h)| **who != holder && h.until > now).map(|(_, h)| (h.until, h.amount))
            };
            let used = others().fold(0, |sum: u64, (_, amount)| sum.saturating_add(amount));
            if used.saturating_add(c.amount) <= c.cap {
                continue;
            }
            return Claimed::Full { which, used, next: free_at(others().collect(), used, c) };
        }
        for c in claims {
            let held = self.0.entry(c.bucket.clone()).or_default();
            let mut next = Held { amount: c.amount, until: c.until, turn };
            match held.get(&holder).filter(|h| h.until > now) {
                Some(h) if h.turn > turn => continue,
                Some(h) => next.until = next.until.max(h.until),
                None => {}
            }
            held.insert(holder, next);
        }
        Claimed::Granted
    }

    /// [`Store::release_claims`](crate::Store::release_claims).
    pub fn release(&mut self, holder: OperationId, turn: u64, buckets: &[String]) {
        for bucket in buckets {
            let Some(held) = self.0.get_mut(bucket) else { continue };
            if held.get(&holder).is_some_and(|h| h.turn <= turn) {
                held.remove(&holder);
            }
            if held.is_empty() {
                self.0.remove(bucket);
            }
        }
    }

    /// [`Store::prune_claims`](crate::Store::prune_claims).
    pub fn prune(&mut self, now: Time, limit: usize) -> usize {
        let all =
            self.0.iter().flat_map(|(b, held)| held.iter().map(move |(who, h)| (h.until, b.clone(), *who)));
        let mut gone: Vec<_> = all.filter(|(until, ..)| *until <= now).collect();
        gone.sort();
        gone.truncate(limit);
        for (_, bucket, who) in &gone {
            if let Some(held) = self.0.get_mut(bucket) {
                held.remove(who);
            }
        }
        self.0.retain(|_, held| !held.is_empty());
        gone.len()
    }

    /// How much of a bucket is held at `now`.
    #[must_use]
    pub fn used(&self, bucket: &str, now: Time) -> u64 {
        let held = self.0.get(bucket).into_iter().flat_map(BTreeMap::values);
        held.filter(|h| h.until > now).fold(0, |sum, h| sum.saturating_add(h.amount))
    }
}

/// When enough of what others hold is over.
fn free_at(mut others: Vec<(Time, u64)>, used: u64, c: &Claim) -> Option<Time> {
    let mut left = used.saturating_add(c.amount);
    others.sort_unstable();
    for (until, amount) in others {
        left = left.saturating_sub(amount);
        if left <= c.cap {
            return Some(until);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_periods_end_where_the_calendar_says() {
        let at = |text: &str| {
            let t = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339);
            Time(t.map_or(0, |t| t.unix_timestamp() * 1000))
        };
        for (now, day, month) in [
            ("2026-01-31T23:59:59Z", "2026-02-01T00:00:00Z", "2026-02-01T00:00:00Z"),
            ("2024-02-28T00:00:00Z", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"),
            ("2026-12-05T10:00:00Z", "2026-12-06T00:00:00Z", "2027-01-01T00:00:00Z"),
        ] {
            assert_eq!(Period::Day.end(at(now)), at(day), "{now}");
            assert_eq!(Period::Month.end(at(now)), at(month), "{now}");
            assert_eq!(Period::Last(Millis(5)).end(at(now)), at(now).plus(Millis(5)));
        }
        // The last moment still belongs to its day; the next one to the next.
        let midnight = at("2026-02-01T00:00:00Z");
        assert_eq!(Period::Day.end(Time(midnight.0 - 1)), midnight);
        assert_eq!(Period::Day.end(midnight), at("2026-02-02T00:00:00Z"));
        for odd in [i64::MIN, -1, i64::MAX] {
            assert!(Period::Month.end(Time(odd)).0 >= odd && Period::Day.end(Time(odd)).0 >= odd, "{odd}");
        }
    }

    #[test]
    fn an_allowance_keeps_its_form_in_a_record() {
        for (term, json) in [
            (Term::Rate(Millis(1000)), r#"{"rate":1000}"#),
            (Term::Place(Millis(5)), r#"{"place":5}"#),
            (Term::Budget(Period::Day), r#"{"budget":"day"}"#),
            (Term::Budget(Period::Last(Millis(7))), r#"{"budget":{"last":7}}"#),
        ] {
            let a = Allowance { bucket: "b".into(), of: "x".into(), amount: 2, cap: 3, term, own: true };
            let text = serde_json::to_string(&a).unwrap_or_default();
            assert_eq!(
                text,
                format!(r#"{{"bucket":"b","of":"x","amount":2,"cap":3,"term":{json},"own":true}}"#)
            );
            assert_eq!(serde_json::from_str::<Allowance>(&text).ok(), Some(a));
        }
    }
}
