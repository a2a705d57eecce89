//! Each case of the contract that is about claims is missed by a store that has the fault it is there for.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

extern crate ledger as counterfoil_ledger;

mod contract;
#[path = "../../ledger/tests/support/gated.rs"]
#[allow(dead_code)]
mod gated;

use async_trait::async_trait;
use contract::{Made, T0, claims as cases};
use gated::{Desk, Gate, Gated};
use ledger::SystemEnv;
use ledger::claims::{Claim, Claimed, bounded};
use ledger::memory::MemoryStore;
use ledger::store::{Attention, StoreError};
use ledger::words::{Millis, OperationId, Time};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use tokio::task::yield_now;

async fn pause(ms: i64) {
    tokio::time::sleep(Millis(ms).duration()).await;
}

/// What a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// What is claimed again is added to what is held.
    AddedUp,
    /// A claim that is refused takes away what its holder had.
    RefusedTakesAway,
    /// The first cap that was ever said holds for all.
    FirstCapHolds,
    /// A new boot knows of no claims.
    Forgets,
    /// What fits is held, whatever becomes of the rest.
    OneByOne,
    /// Whatever is asked for is claimed.
    Unbounded,
    /// What is over counts.
    NeverOver,
    /// Of what is over only so much is taken off at once; the rest counts.
    SomeIsOver,
    /// There is said to be room when the first of those in the way is over.
    NextOfFirst,
    /// Behind many small ones it is not said when there is room.
    NextOfFew,
    /// When there is room is looked up later than whether there is.
    NextLater,
    /// Whoever gives back gives back what others hold, too.
    OfOthers,
    /// What a later turn claimed is given back by an earlier one.
    OfLaterTurns,
    /// A claim of an earlier turn takes the place of a later one.
    EarlierReplaces,
    /// A claim made again ends when it says, though it was held for longer.
    EndsSooner,
    /// What is over keeps a holder's earlier turns out.
    TurnOutlives,
    /// More is removed than asked for.
    PrunesAll,
    /// What is not over is removed.
    PrunesEarly,
    /// What is removed goes on counting.
    PrunedCounts,
    /// Others come between the look whether there is room and the claim.
    LooksThenTakes,
}

#[derive(Clone, Copy)]
struct Held {
    amount: u64,
    until: Time,
    turn: u64,
}

/// The contract, but for what it does wrong.
#[derive(Default)]
struct Faulty {
    wrong: Option<Wrong>,
    held: Mutex<BTreeMap<String, BTreeMap<OperationId, Held>>>,
    caps: Mutex<BTreeMap<String, u64>>,
    /// What was removed and counts all the same.
    ghosts: Mutex<BTreeMap<String, u64>>,
}

impl Faulty {
    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<OperationId, Held>>> {
        self.held.lock().unwrap()
    }

    /// What others have of a bucket, those that end first first.
    fn others(&self, now: Time, holder: OperationId, bucket: &str) -> Vec<(Time, u64)> {
        let mut held = self.held();
        let of = held.entry(bucket.into()).or_default();
        let mut over: Vec<_> = of.iter().filter(|(_, h)| h.until <= now).map(|(who, _)| *who).collect();
        if self.is(Wrong::SomeIsOver) {
            over.truncate(256);
        }
        if !self.is(Wrong::NeverOver) && !self.is(Wrong::TurnOutlives) {
            of.retain(|who, _| !over.contains(who));
        }
        let counts = |h: &Held| !self.is(Wrong::TurnOutlives) || h.until > now;
        let others = of.iter().filter(|(who, h)| **who != holder && counts(h));
        let mut others: Vec<_> = others.map(|(_, h)| (h.until, h.amount)).collect();
        others.sort_unstable();
        others
    }

    fn next(&self, others: &[(Time, u64)], c: &Claim) -> Option<Time> {
        let mut left = others.iter().map(|(_, amount)| *amount).sum::<u64>() + c.amount;
        if self.is(Wrong::NextOfFirst) {
            return others.first().map(|(until, _)| *until).filter(|_| c.amount <= c.cap);
        }
        let looked = if self.is(Wrong::NextOfFew) { 1000 } else { others.len() };
        others.iter().take(looked).find_map(|(until, amount)| {
            left -= amount;
            (left <= c.cap).then_some(*until)
        })
    }

    fn take(&self, now: Time, holder: OperationId, turn: u64, c: &Claim) {
        let mut held = self.held();
        let of = held.entry(c.bucket.clone()).or_default();
        let mut new = Held { amount: c.amount, until: c.until, turn };
        match of.get(&holder) {
            Some(h) if h.turn > turn && !self.is(Wrong::EarlierReplaces) => return,
            Some(h) if h.until > now || self.is(Wrong::TurnOutlives) => {
                if !self.is(Wrong::EarlierReplaces) {
                    new.turn = turn.max(h.turn);
                }
                if !self.is(Wrong::EndsSooner) {
                    new.until = h.until.max(c.until);
                }
                if self.is(Wrong::AddedUp) {
                    new.amount += h.amount;
                }
            }
            _ => {}
        }
        of.insert(holder, new);
    }
}

#[async_trait]
impl Desk for Faulty {
    async fn claim(
        &self,
        now: Time,
        holder: OperationId,
        turn: u64,
        claims: &[Claim],
    ) -> Result<Claimed, StoreError> {
        if !self.is(Wrong::Unbounded) {
            bounded(claims)?;
        }
        for (which, c) in claims.iter().enumerate() {
            let first = *self.caps.lock().unwrap().entry(c.bucket.clone()).or_insert(c.cap);
            let cap = if self.is(Wrong::FirstCapHolds) { first } else { c.cap };
            let ghosts = self.ghosts.lock().unwrap().get(&c.bucket).copied().unwrap_or(0);
            let mut others = self.others(now, holder, &c.bucket);
            let used = others.iter().map(|(_, amount)| *amount).sum::<u64>() + ghosts;
            if used + c.amount <= cap {
                if self.is(Wrong::OneByOne) {
                    self.take(now, holder, turn, c);
                }
                continue;
            }
            if self.is(Wrong::RefusedTakesAway) {
                self.held().entry(c.bucket.clone()).or_default().remove(&holder);
            }
            if self.is(Wrong::NextLater) {
                yield_now().await;
                others = self.others(now, holder, &c.bucket);
            }
            return Ok(Claimed::Full { which, used, next: self.next(&others, c) });
        }
        if self.is(Wrong::LooksThenTakes) {
            yield_now().await;
        }
        claims.iter().for_each(|c| self.take(now, holder, turn, c));
        Ok(Claimed::Granted)
    }

    async fn give_back(&self, holder: OperationId, turn: u64, buckets: &[String]) {
        let mut held = self.held();
        for bucket in buckets {
            let Some(of) = held.get_mut(bucket) else { continue };
            of.retain(|who, h| {
                let mine = *who == holder || self.is(Wrong::OfOthers);
                !mine || (h.turn > turn && !self.is(Wrong::OfLaterTurns))
            });
        }
    }

    async fn prune(&self, now: Time, limit: usize) -> usize {
        let (mut held, mut gone) = (self.held(), 0);
        let limit = if self.is(Wrong::PrunesAll) { usize::MAX } else { limit };
        let early = if self.is(Wrong::PrunesEarly) { 2 } else { 0 };
        for (bucket, of) in &mut *held {
            of.retain(|_, h| {
                let goes = h.until.0 <= now.0 + early && gone < limit;
                if goes {
                    gone += 1;
                    if self.is(Wrong::PrunedCounts) {
                        *self.ghosts.lock().unwrap().entry(bucket.clone()).or_default() += h.amount;
                    }
                }
                !goes
            });
        }
        gone
    }
}

fn made(wrong: Option<Wrong>) -> Made {
    let desk = || Arc::new(Faulty { wrong, ..Faulty::default() });
    let store = |memory: MemoryStore, desk: Arc<Faulty>| {
        let store = Gated::new(Arc::new(memory), Arc::<Gate>::default());
        assert!(store.desk.set(desk).is_ok());
        store
    };
    let memory = MemoryStore::new(Arc::new(SystemEnv), T0, Attention::default());
    let next = memory.restart();
    let first = desk();
    let kept = if wrong == Some(Wrong::Forgets) { desk() } else { first.clone() };
    Made { store: store(memory, first), keep: Box::new(()), restart: Box::new(move || store(next, kept)) }
}

type Case = fn(Made) -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! case {
    ($name:ident) => {
        (stringify!($name), (|made| Box::pin(cases::$name(made))) as Case)
    };
}

fn passes(case: Case, wrong: Option<Wrong>) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    catch_unwind(AssertUnwindSafe(|| runtime.block_on(case(made(wrong))))).is_ok()
}

#[test]
fn every_case_misses_what_it_is_there_for() {
    use Wrong::*;
    let all: Vec<((&str, Case), &[Wrong])> = vec![
        (case!(claims), &[AddedUp, RefusedTakesAway, FirstCapHolds, Forgets]),
        (case!(claims_together), &[OneByOne]),
        (case!(claims_bounds), &[Unbounded]),
        (case!(claims_end), &[NeverOver, SomeIsOver]),
        (case!(claims_in_the_way), &[NextOfFirst, NextOfFew]),
        (case!(claims_given_back), &[OfOthers, OfLaterTurns, EarlierReplaces]),
        (case!(claims_late), &[EarlierReplaces, EndsSooner, TurnOutlives]),
        (case!(claims_by_turns), &[OfLaterTurns, EarlierReplaces]),
        (case!(claims_by_turns_of_one), &[NextLater]),
        (case!(claims_pruning), &[PrunesAll, PrunesEarly, PrunedCounts]),
        (case!(claims_races), &[LooksThenTakes]),
    ];
    thread::scope(|all_at_once| {
        let mut tried = Vec::new();
        for ((name, case), faults) in all {
            let faults = [None].into_iter().chain(faults.iter().copied().map(Some));
            tried.extend(faults.map(|wrong| (name, wrong, all_at_once.spawn(move || passes(case, wrong)))));
        }
        for (name, wrong, passes) in tried {
            assert_eq!(passes.join().unwrap(), wrong.is_none(), "{name} {wrong:?}");
        }
    });
}
