//! The claims of a schedule as its stores make them, each noted in the account.

use super::{Asked, Held, Slot};
use crate::lab::{Lab, State};
use crate::world::Home;
use ledger::claims::{self, Claim, Claimed};
use ledger::planted::{self, Plant};
use ledger::store::StoreError;
use ledger::words::{OperationId, Time};

/// Claims on their way to a store, or their return.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub holder: OperationId,
    pub turn: u64,
    pub claims: Vec<Claim>,
    /// With none of the former: what is given back.
    pub back: Vec<String>,
    pub home: Home,
    pub task: usize,
    /// What time it is for whoever asks.
    pub now: Time,
}

impl Word {
    pub fn new(task: usize, home: Home, now: Time, holder: OperationId, turn: u64) -> Word {
        Word { holder, turn, claims: Vec::new(), back: Vec::new(), home, task, now }
    }

    /// The same, if it is asked for again because its answer was lost.
    fn ask(&self) -> (OperationId, u64, Vec<Time>) {
        (self.holder, self.turn, self.claims.iter().map(|c| c.until).collect())
    }
}

impl State {
    /// Somebody asks for claims: noted before anything can go wrong with them.
    pub fn asks(&mut self, lab: &Lab, word: &Word) {
        if word.claims.is_empty() {
            return;
        }
        let first = Asked { at: word.now, home: word.home };
        self.account.asked.entry(word.ask()).or_insert(first);
        for c in &word.claims {
            let newest = self.account.newest.entry((word.holder, c.bucket.clone())).or_default();
            *newest = word.turn.max(*newest);
        }
        if let Some(c) = self.account.calls.get_mut(&word.task) {
            c.holders.push(word.holder);
        }
        self.check_asks(lab, word);
    }

    /// Makes it.
    pub fn make(&mut self, lab: &Lab, word: &Word) -> Claimed {
        if word.claims.is_empty() {
            self.give_back(lab, word);
            Claimed::Granted
        } else {
            self.claim(lab, word)
        }
    }

    fn claim(&mut self, lab: &Lab, word: &Word) -> Claimed {
        let waits = !planted::is_out(Plant::ClaimsNotWaitedFor);
        if !waits {
            self.keep();
        }
        let a = &mut self.account;
        let claimed = a.claims.claim(word.now, word.holder, word.turn, &word.claims);
        lab.say(format_args!(
            "{} claims {} in turn {}: {claimed:?}",
            word.holder,
            told(&word.claims),
            word.turn
        ));
        if claimed != Claimed::Granted {
            self.coverage.travel("claim refused");
            if let Some(c) = a.calls.get_mut(&word.task) {
                c.there = c.key.and_then(|k| self.keys.get(&k).copied());
            }
            return claimed;
        }
        self.coverage.travel("claimed");
        if waits {
            a.kept = None;
        }
        a.seq += 1;
        let asked = a.asked.get(&word.ask()).map_or(word.now, |f| f.at);
        for c in &word.claims {
            let Some(what) = lab.what(&c.bucket) else { continue };
            let held = Held {
                seq: a.seq,
                turn: word.turn,
                amount: c.amount,
                at: lab.time(),
                end: a.counts_until(what, word, asked),
                gone: None,
                task: word.task,
            };
            let all = a.held.entry((word.holder, c.bucket.clone())).or_default();
            // One that a later attempt overtook takes nothing from it, and adds nothing.
            let later = |h: &Held| h.gone.is_none() && h.turn > word.turn && word.now < h.end;
            if !all.iter().any(later) {
                all.push(held);
            }
        }
        claimed
    }

    fn give_back(&mut self, lab: &Lab, word: &Word) {
        self.keep();
        let a = &mut self.account;
        a.claims.release(word.holder, word.turn, &word.back);
        a.seq += 1;
        let mut gone: Vec<Slot> = Vec::new();
        for bucket in &word.back {
            let slot = (word.holder, bucket.clone());
            let Some(all) = a.held.get_mut(&slot) else { continue };
            let there = all.iter().filter(|h| h.gone.is_none());
            if there.map(|h| h.turn).max().is_some_and(|turn| turn <= word.turn) {
                all.iter_mut().filter(|h| h.gone.is_none()).for_each(|h| h.gone = Some(a.seq));
                gone.push(slot);
            }
        }
        if !gone.is_empty() {
            self.coverage.travel("given back");
            lab.say(format_args!("{} gives back {:?} of turn {}", word.holder, word.back, word.turn));
        }
        for slot in gone {
            self.check_given_back(lab, &slot, word.turn);
        }
    }

    /// Nobody waits for the disk with what comes now: it may be lost with the server.
    fn keep(&mut self) {
        let a = &mut self.account;
        if a.kept.is_none() {
            a.kept = Some(Box::new((a.claims.clone(), a.held.clone())));
        }
    }

    /// Everything so far is on the disk.
    pub fn claims_kept(&mut self) {
        self.account.kept = None;
    }

    /// The server stopped: what nobody waited for is lost.
    pub fn claims_lost(&mut self) {
        let Some(kept) = self.account.kept.take() else { return };
        let a = &mut self.account;
        (a.claims, a.held) = *kept;
        a.excused.extend(a.held.keys().map(|slot| slot.0));
        self.coverage.fault("claims lost");
    }

    /// Removes what is over.
    pub fn prune_claims(&mut self, now: Time, limit: usize) -> usize {
        self.account.claims.prune(now, limit)
    }
}

/// Whether they may be made.
pub(crate) fn bounded(word: &Word) -> Result<(), StoreError> {
    if word.claims.is_empty() { Ok(()) } else { claims::bounded(&word.claims) }
}

fn told(claims: &[Claim]) -> String {
    claims.iter().map(|c| format!("{} of {}", c.amount, c.bucket)).collect::<Vec<_>>().join(", ")
}
