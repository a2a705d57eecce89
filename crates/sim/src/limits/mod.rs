//! What is limited in a schedule, and the simulator's own account of it: who asked for what and when, what was granted and
//! given back, who began. Drawn from the plan and from what really happened; nothing of the ledger's own comparisons is used.
//!
//! `check` has the rules, `store` what becomes of claims on their way.

mod check;
mod store;

use crate::lab::{Lab, State};
use crate::plan::ToolPlan;
use crate::rng::Rng;
use crate::world::Home;
use ledger::claims::{Allowance, Claims, Period, Term};
use ledger::words::{Epoch, KeyHash, Millis, OperationId, Time};
use ledger::{Execution, Operation};
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) use store::{Word, bounded};

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// How many begin in so many milliseconds.
    Rate(i64),
    /// How many run at a time; what is not given back is free after so many milliseconds.
    Places(i64),
    /// The sum of the arguments' numbers, each more by one, over a period.
    Budget(Period),
}

/// One limit.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    /// Of one tool, or of all together.
    pub tool: Option<usize>,
    /// Each principal has its own.
    pub own: bool,
    pub most: u64,
    pub what: What,
}

/// The limits of a schedule: most have none.
pub(crate) fn draw(r: &mut Rng, tools: &[ToolPlan], lease: i64) -> Vec<Limit> {
    if !r.mille(200) {
        return Vec::new();
    }
    let longest = tools.iter().map(|t| t.policy.timeout.0).max().unwrap_or(0);
    let limit = |r: &mut Rng| {
        let tool = if r.mille(700) { Some(r.index(tools.len())) } else { None };
        let (most, what) = match r.below(6) {
            0 | 1 => (r.range(1, 3), What::Rate(r.pick(&[300, 2000, 8000]))),
            2 | 3 => (r.range(1, 2), What::Places(longest + lease)),
            _ => {
                let period = match r.below(5) {
                    0 => Period::Day,
                    _ => Period::Last(Millis(r.pick(&[2500, 12_000, 90_000]))),
                };
                (r.range(1, 5), What::Budget(period))
            }
        };
        Limit { tool, own: r.mille(250), most: most.unsigned_abs(), what }
    };
    (0..r.range(1, 3)).map(|_| limit(r)).collect()
}

/// When what was asked for at `t` is over.
fn end(what: What, t: Time) -> Time {
    const DAY: i64 = 86_400_000;
    match what {
        What::Rate(span) | What::Places(span) | What::Budget(Period::Last(Millis(span))) => Time(t.0 + span),
        What::Budget(_) => Time((t.0.div_euclid(DAY) + 1) * DAY),
    }
}

impl Lab {
    /// What a call needs.
    pub fn allowances(&self, tool: usize, arguments: usize, principal: &str) -> Vec<Allowance> {
        let of_it = self.plan.limits.iter().enumerate().filter(|(_, l)| l.tool.is_none_or(|t| t == tool));
        let each = of_it.map(|(n, l)| {
            let (word, amount, term) = match l.what {
                What::Rate(span) => ("rate", 1, Term::Rate(Millis(span))),
                What::Places(span) => ("place", 1, Term::Place(Millis(span))),
                What::Budget(period) => ("budget", 1 + arguments as u64, Term::Budget(period)),
            };
            let of = if l.own { principal } else { "all" };
            Allowance {
                bucket: format!("{n}.{word}.{of}"),
                of: word.into(),
                amount,
                cap: l.most,
                term,
                own: l.own,
            }
        });
        each.collect()
    }

    /// The same for an operation, by what it is about.
    fn needs(&self, op: &Operation) -> Vec<Allowance> {
        if self.plan.limits.is_empty() {
            return Vec::new();
        }
        let (tool, arguments) = self.subject(op);
        self.allowances(tool, arguments, &op.scope.principal)
    }

    /// What a bucket is of.
    fn what(&self, bucket: &str) -> Option<What> {
        let n: usize = bucket.split('.').next()?.parse().ok()?;
        self.plan.limits.get(n).map(|l| l.what)
    }
}

/// Somebody asked for claims: when that was first, by its own clock, and where.
#[derive(Clone, Copy)]
struct Asked {
    at: Time,
    home: Home,
}

/// Claims of a holder on a bucket, from when they were granted.
#[derive(Clone)]
struct Held {
    /// Which of all grants this was.
    seq: u64,
    turn: u64,
    amount: u64,
    /// When it was granted.
    at: Time,
    /// Until when it counts, by when it was first asked for.
    end: Time,
    /// With which of all grants it was given back.
    gone: Option<u64>,
    /// Whose call it was.
    task: usize,
}

/// A call that began an operation on a bucket: whatever it found there it had to leave room for.
#[derive(Clone, Copy)]
struct Begun {
    seq: u64,
    at: Time,
}

/// What a call is known by.
struct Calling {
    /// The operation that had its key when the call came.
    known: Option<OperationId>,
    since: Time,
    /// Who claimed for it.
    holders: Vec<OperationId>,
    key: Option<KeyHash>,
    /// The operation that had its key when there was no room for it.
    there: Option<OperationId>,
}

type Slot = (OperationId, String);
type Holdings = BTreeMap<Slot, Vec<Held>>;

/// The account.
#[derive(Default)]
pub(crate) struct Account {
    /// The store's: the contract in its plainest form.
    claims: Claims,
    seq: u64,
    /// By holder, turn, and until when it was asked for.
    asked: BTreeMap<(OperationId, u64, Vec<Time>), Asked>,
    /// The newest turn in which each holder asked for a bucket.
    newest: HashMap<Slot, u64>,
    held: Holdings,
    /// The last beginning of each operation that a call made.
    begun: BTreeMap<Slot, Begun>,
    /// Every beginning that counts in a rate, and until when.
    rates: BTreeMap<String, Vec<(Begun, Time)>>,
    /// Claims on rates that a beginning was counted by.
    counted: BTreeSet<Slot>,
    /// The version that an operation's attempt began with.
    attempts: HashMap<OperationId, u64>,
    /// When each operation was begun, or begun anew.
    begun_at: HashMap<OperationId, Time>,
    /// Which boot owes it that an operation gives back what it needs no more.
    owes: HashMap<OperationId, Epoch>,
    /// When an operation last was one that a call begins anew.
    anew: HashMap<OperationId, Time>,
    calls: HashMap<usize, Calling>,
    /// Something was refused, lost or late on the way of these: they may hold something for nothing.
    excused: BTreeSet<OperationId>,
    /// As it was before what nobody waited for on the disk.
    kept: Option<Box<(Claims, Holdings)>>,
}

impl Account {
    /// The latest of a holder's claims on a bucket, unless it was given back.
    fn holds(&self, id: OperationId, bucket: &str) -> Option<&Held> {
        let all = self.held.get(&(id, bucket.to_owned()))?;
        all.iter().rev().find(|h| h.gone.is_none())
    }

    /// When something was first asked for in a turn.
    fn first_asked(&self, holder: OperationId, turn: u64) -> Option<&Asked> {
        let of_turn =
            self.asked.range((holder, turn, Vec::new())..).take_while(|(k, _)| (k.0, k.1) == (holder, turn));
        of_turn.map(|(_, asked)| asked).min_by_key(|asked| asked.at)
    }

    /// Until when what is asked for at `asked` counts. A budget counts in the period in which its operation was begun, however
    /// late an attempt of it asks for it again; a call asks for one that it is about to begin.
    fn counts_until(&self, what: What, word: &Word, asked: Time) -> Time {
        match (what, self.begun_at.get(&word.holder)) {
            (What::Budget(_), Some(begun)) if !self.calls.contains_key(&word.task) => end(what, *begun),
            _ => end(what, asked),
        }
    }

    /// Whether what a holder has of a bucket counted when `by` was granted.
    fn counted_for(&self, slot: &Slot, by: Begun) -> Option<u64> {
        let there = |h: &&Held| h.seq < by.seq && by.at < h.end && h.gone.is_none_or(|g| g > by.seq);
        self.held.get(slot)?.iter().rev().find(there).map(|h| h.amount)
    }
}

/// Whether a call that comes to it begins it anew.
fn begins_anew(op: &Operation) -> bool {
    matches!(op.execution, Execution::Accepted | Execution::Failed { .. })
}

impl State {
    /// Something went wrong on the way of this one.
    pub fn excuse(&mut self, id: OperationId) {
        self.account.excused.insert(id);
    }

    /// Whether an operation has used what it holds of a budget, or still may; `None`: nobody can tell.
    fn spends(&self, op: &Operation) -> Option<bool> {
        let facts = || self.facts.range((op.id, String::new())..).take_while(|((id, _), _)| *id == op.id);
        if facts().any(|(_, f)| f.stalled || f.word) {
            return None;
        }
        let happened = facts().any(|(_, f)| f.applied > 0);
        Some(match &op.execution {
            Execution::Completed => !op.is_error || happened,
            Execution::Failed { .. } | Execution::Cancelled { .. } => happened,
            _ => true,
        })
    }
}
