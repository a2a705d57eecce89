//! How much a tool may be used: which arguments are allowed, how often, how many at a time, for how much in all, and not
//! while its provider is down.
//!
//! Here the words of the configuration become what the ledger keeps to: an [`Allowance`] per limit, with a bucket that all
//! replicas name alike. Nothing here counts; the breaker alone remembers something, and that for this process only.

mod breaker;
mod rules;

pub use breaker::{Breaker, BreakerSettings, Breakers};
pub(crate) use rules::has_twin;
pub use rules::{Argument, Found, Rule, Test, Value};

use crate::approval::Decimal;
use crate::catalog::Entry;
use crate::service::Shared;
use crate::tool::BadArguments;
use ledger::{Admission, Allowance, CallError, Kind, Millis, Note, Observer as _, Period, ReadHold, Term};
use mcp::json::RawObject;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::sync::Arc;

/// The longest value by which a budget is divided, in bytes.
const MAX_PART: usize = 255;

/// Who shares a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Per {
    /// All callers together.
    #[default]
    All,
    /// Each principal has its own.
    Principal,
}

/// What is limited, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// How many begin in a time.
    Rate {
        /// So many.
        most: u64,
        /// In this time.
        span: Millis,
    },
    /// How many run at a time.
    Places {
        /// So many.
        most: u64,
        /// What is not given back by then is free: the time that an attempt may take, and a lease.
        held: Millis,
    },
    /// For how much in all.
    Budget {
        /// The argument that is added up.
        argument: Argument,
        /// How much.
        most: u64,
        /// In this time.
        period: Period,
        /// Each value of this argument has a sum of its own.
        by: Option<Argument>,
    },
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The integration or method that it was set for: what has the same name here shares it.
    pub of: Arc<str>,
    /// Who shares it.
    pub per: Per,
    /// What it limits.
    pub what: What,
}

/// All that limits the use of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Each of them has to hold.
    pub allow: Vec<Rule>,
    /// None of them may hold.
    pub deny: Vec<Rule>,
    /// How much.
    pub limits: Vec<Limit>,
    /// Whether its provider is down.
    pub breaker: Option<Arc<Breaker>>,
}

/// Why a call is not let through, before anything is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Its arguments don't say how much it asks for.
    Arguments(BadArguments),
    /// A rule is against it, or there is nothing left of what it needs.
    Refused(Box<CallError>),
}

impl From<BadArguments> for Unfit {
    fn from(e: BadArguments) -> Unfit {
        Unfit::Arguments(e)
    }
}

/// Whose call it is.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    /// The caller.
    pub principal: &'a str,
    /// `sandbox` or `production`.
    pub mode: &'a str,
}

impl Limits {
    /// What a call with these arguments has to claim, if the rules allow it.
    ///
    /// # Errors
    /// [`Unfit`]: nothing is claimed.
    pub fn of_call(&self, whose: Whose<'_>, arguments: &RawObject) -> Result<Vec<Allowance>, Unfit> {
        if let Some(e) = rules::refused(&self.deny, &self.allow, arguments) {
            return Err(Unfit::Refused(Box::new(e)));
        }
        let claimed = self.limits.iter().map(|limit| limit.of_call(whose, arguments));
        claimed.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(Unfit::Arguments)
    }

    /// Asked when a new operation is about to be opened: whether its provider is down.
    #[must_use]
    pub fn gate(&self) -> Option<Arc<dyn Admission>> {
        self.breaker.clone().map(|breaker| breaker as Arc<dyn Admission>)
    }

    /// Each of them in words, for people.
    #[must_use]
    pub fn told(&self) -> Vec<String> {
        let allow = self.allow.iter().map(|r| format!("allowed only if {r}"));
        let deny = self.deny.iter().map(|r| format!("denied if {r}"));
        let limits = self.limits.iter().map(Limit::to_string);
        let breaker = self.breaker.iter().map(|b| b.to_string());
        deny.chain(allow).chain(breaker).chain(limits).collect()
    }
}

impl Limit {
    fn of_call(&self, whose: Whose<'_>, arguments: &RawObject) -> Result<Option<Allowance>, BadArguments> {
        let mut name = Name::new(self, whose);
        let (amount, cap, term, of) = match &self.what {
            What::Rate { most, span } => {
                name.part(&span.0.to_string());
                (1, *most, Term::Rate(*span), self.subject())
            }
            What::Places { most, held } => (1, *most, Term::Place(*held), self.subject()),
            What::Budget { argument, most, period, by } => {
                let amount = whole(argument, arguments)?;
                if amount == 0 {
                    return Ok(None);
                }
                name.part(&argument.to_string());
                name.part(&match period {
                    Period::Day => "day".to_owned(),
                    Period::Month => "month".to_owned(),
                    Period::Last(span) => span.0.to_string(),
                });
                let mut of = self.subject();
                if let Some(by) = by {
                    let part = part(by, arguments)?;
                    name.part(&by.to_string());
                    name.part(&part);
                    of = format!("{of}, {by} {part}");
                }
                (amount, *most, Term::Budget(*period), of)
            }
        };
        let own = self.per == Per::Principal;
        Ok(Some(Allowance { bucket: name.bucket(), of, amount, cap, term, own }))
    }

    /// What is limited, in words.
    fn subject(&self) -> String {
        let of = match &self.what {
            What::Budget { argument, .. } => format!("the sum of {argument} of {}", self.of),
            What::Rate { .. } | What::Places { .. } => format!("calls of {}", self.of),
        };
        match self.per {
            Per::All => of,
            Per::Principal => format!("{of}, for each caller"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cap, term, by) = match &self.what {
            What::Rate { most, span } => (*most, Term::Rate(*span), None),
            What::Places { most, held } => (*most, Term::Place(*held), None),
            What::Budget { most, period, by, .. } => (*most, Term::Budget(*period), by.as_ref()),
        };
        let by = by.map(|by| format!(", for each {by}")).unwrap_or_default();
        let of = format!("{}{by}", self.subject());
        Allowance { bucket: String::new(), of, amount: 0, cap, term, own: false }.fmt(f)
    }
}

/// The name of a bucket: a hash, so that nothing in it can be taken for something else and it says nothing of anybody.
struct Name {
    kind: &'static str,
    hash: Sha256,
}

impl Name {
    fn new(limit: &Limit, whose: Whose<'_>) -> Name {
        let kind = match &limit.what {
            What::Rate { .. } => "rate",
            What::Places { .. } => "place",
            What::Budget { .. } => "budget",
        };
        let mut name = Name { kind, hash: Sha256::new() };
        name.part(whose.mode);
        name.part(&limit.of);
        match limit.per {
            Per::All => name.part(""),
            Per::Principal => name.part(&format!("of {}", whose.principal)),
        }
        name
    }

    fn part(&mut self, text: &str) {
        self.hash.update(text.len().to_be_bytes());
        self.hash.update(text);
    }

    fn bucket(self) -> String {
        let hash = self.hash.finalize();
        let hex: String = hash.iter().take(16).map(|b| format!("{b:02x}")).collect();
        format!("{}-{hex}", self.kind)
    }
}

/// How much a call asks for.
fn whole(argument: &Argument, arguments: &RawObject) -> Result<u64, BadArguments> {
    let (number, is) = match argument.find(arguments) {
        Found::Value(raw) => (Decimal::parse(raw.as_str()).and_then(|d| d.whole()), "is none"),
        Found::Nothing => (None, "is missing"),
        Found::Unclear => (None, "is there in other letters, too"),
    };
    number.filter(|n| *n <= ledger::claims::MAX_AMOUNT).ok_or_else(|| {
        BadArguments(format!(
            "{argument} has to be a whole number from 0 to {}, because a budget is kept of it; it {is}",
            ledger::claims::MAX_AMOUNT
        ))
    })
}

/// The part of a budget that a call belongs to. Spellings that a provider may take for the same are the same.
fn part(by: &Argument, arguments: &RawObject) -> Result<String, BadArguments> {
    let given = by.find(arguments);
    let text = match &given {
        Found::Value(raw) => raw.as_string(),
        Found::Nothing | Found::Unclear => None,
    };
    let part = text.map(|t| t.trim().to_lowercase()).filter(|t| (1..=MAX_PART).contains(&t.len()));
    part.ok_or_else(|| {
        BadArguments(format!(
            "{by} has to be a text of 1 to {MAX_PART} bytes, because a budget is kept for each value of it"
        ))
    })
}

/// Claims for a read that is about to be made; the arguments fit the tool's schema.
///
/// # Errors
/// [`Unfit`]: nothing is read.
pub(crate) async fn hold_for_read(
    shared: &Shared,
    entry: &Entry,
    principal: &str,
    arguments: &RawObject,
) -> Result<ReadHold, Unfit> {
    let whose = Whose { principal, mode: &shared.settings.mode };
    let allowances = entry.settings.limits.of_call(whose, arguments).inspect_err(|e| {
        if let Unfit::Refused(e) = e {
            count(shared, e.kind);
        }
    })?;
    // What is refused for want of room is counted where it is claimed.
    shared.ledger.hold_for_read(&allowances).await.map_err(Unfit::Refused)
}

/// Counts a refusal of which the ledger does not hear.
pub(crate) fn count(shared: &Shared, kind: Kind) {
    shared.metrics.note(Note::Answered(kind));
}

#[cfg(test)]
mod half_open;
#[cfg(test)]
mod tests;
