//! What has to be true of limits: at every claim, every return, every beginning, every send, every refusal, and at the end.

use super::{Begun, Calling, Held, Slot, What, Word, begins_anew, end};
use crate::lab::{Lab, Lease, State};
use crate::model::Writer;
use ledger::claims::{Allowance, Term};
use ledger::words::{Epoch, OperationId, Time};
use ledger::{Call, CallError, Execution, Kind, Operation};

/// Claims are made for this long at most beyond what the plan says: replicas' clocks differ.
const SLACK: i64 = 20;

/// Whether an attempt of it runs, or asks what became of it: answered, it may wait to be taken up.
fn is_run(op: &Operation) -> bool {
    matches!(op.execution, Execution::Running | Execution::InDoubt { .. }) && op.owner != Epoch(0)
}

impl State {
    /// A call comes.
    pub fn calling(&mut self, lab: &Lab, task: usize, call: &Call) {
        if lab.plan.limits.is_empty() {
            return;
        }
        let key = call.key.as_ref().map(|k| &k.key);
        let named = key.and_then(|k| k.operation_id()).or(call.named);
        let known = key.and_then(|k| self.keys.get(&call.scope.key_hash(k)).copied()).or(named);
        let known = known.filter(|id| self.records.get(id).is_some_and(|r| r.op.scope == call.scope));
        let key = key.map(|k| call.scope.key_hash(k));
        let calling = Calling { known, since: lab.time(), holders: Vec::new(), key, there: None };
        self.account.calls.insert(task, calling);
    }

    /// A call that is made again claims nothing, unless it begins its operation anew; and nobody claims for longer than is
    /// said.
    pub(super) fn check_asks(&mut self, lab: &Lab, word: &Word) {
        for c in &word.claims {
            let Some(what) = lab.what(&c.bucket) else { continue };
            if c.until.0 > self.account.counts_until(what, word, word.now).0 + SLACK {
                let what = format!("{} claims {} for longer than it is limited", word.holder, c.bucket);
                lab.fail(self, "claim_ends", what);
            }
        }
        let known = self.account.calls.get(&word.task).and_then(|c| Some((c.known?, c.since)));
        let Some((id, since)) = known.filter(|_| !word.claims.is_empty()) else { return };
        let Some(r) = self.records.get(&id) else { return };
        let lately = self.account.anew.get(&id).is_some_and(|t| *t >= since);
        if !begins_anew(&r.op) && !lately {
            let what = format!("a call of {id}, which is {}, claims something", r.op.execution.word());
            lab.fail(self, "claims_again", what);
        }
    }

    /// What may have been used, or is being used, is not given back.
    pub(super) fn check_given_back(&mut self, lab: &Lab, slot: &Slot, turn: u64) {
        let Some(r) = self.records.get(&slot.0) else { return };
        let wrong = match lab.what(&slot.1) {
            Some(What::Budget(_)) => self.spends(&r.op) == Some(true),
            Some(What::Places(_)) => {
                let attempt = self.account.attempts.get(&slot.0).copied().unwrap_or(1);
                is_run(&r.op) && attempt <= turn
            }
            Some(What::Rate(_)) => true,
            None => false,
        };
        if wrong {
            let what = format!("{} gives back {}, and is {}", slot.0, slot.1, r.op.execution.word());
            lab.fail(self, "given_back", what);
        }
    }

    /// It is written: all that it needs is claimed for it.
    pub fn check_limits_created(&mut self, lab: &Lab, op: &Operation, who: Writer) {
        let needs = lab.needs(op);
        if needs != op.allowances {
            lab.fail(self, "limits", format!("{} is not written with its limits", op.id));
        }
        if needs.is_empty() {
            return;
        }
        self.account.attempts.insert(op.id, op.version);
        self.note_begun(lab, op, Time(0));
        self.note_writer(op, who);
        let waits = crate::books::waits(op);
        let needs: Vec<Allowance> =
            needs.into_iter().filter(|a| !(waits && matches!(a.term, Term::Place(_)))).collect();
        self.begins(lab, op, &needs, op.version);
    }

    /// It is changed: what begins anew has claimed first, and what goes on by itself is not stopped.
    pub fn check_limits_updated(&mut self, lab: &Lab, before: &Operation, after: &Operation, who: Writer) {
        if before.allowances != after.allowances {
            lab.fail(self, "limits", format!("{}: its limits were changed", after.id));
        }
        // What waited for an answer before anything of it was done begins with the answer.
        let answered =
            matches!(before.execution, Execution::InputRequired { .. }) && before.effects.is_empty();
        let begins = (answered || begins_anew(before)) && before.attempt < after.attempt;
        if before.begun() != after.begun() && !begins {
            lab.fail(self, "limits", format!("{} is said to be begun, and goes on", after.id));
        }
        let needs = lab.needs(after);
        if needs.is_empty() {
            return;
        }
        if before.execution != after.execution || before.owner != after.owner {
            self.note_writer(after, who);
        }
        if is_run(after) && !is_run(before) {
            // Whatever is given back of what was before takes nothing of this.
            self.account.attempts.insert(after.id, after.version);
        }
        if begins_anew(before) {
            self.account.anew.insert(after.id, lab.time());
        }
        if after.attempt == before.attempt {
            return;
        }
        self.account.attempts.insert(after.id, after.version);
        let by_call = self.account.calls.contains_key(&who.task);
        if begins_anew(before) {
            // A call claims first.
            let asked = self.account.first_asked(after.id, after.version).filter(|_| by_call);
            self.note_begun(lab, after, asked.map_or(before.begun(), |first| first.at));
        } else if answered {
            let asked = before.inputs.iter().map(|i| i.asked_at).max();
            self.note_begun(lab, after, asked.unwrap_or(before.begun()));
        }
        // An operator who has it tried again is not stopped either.
        if !begins_anew(before) || !by_call {
            self.coverage.travel("goes on whatever is left");
            return;
        }
        self.coverage.travel("begun anew within limits");
        let (rates, rest): (Vec<Allowance>, Vec<Allowance>) =
            needs.into_iter().partition(|a| matches!(a.term, Term::Rate(_)));
        self.begins(lab, after, &rest, after.version);
        for a in rates {
            let found = self.account.held.iter().find_map(|(slot, all)| {
                let fresh = slot.1 == a.bucket
                    && !self.records.contains_key(&slot.0)
                    && !self.account.counted.contains(slot);
                let mine = all.iter().rev().find(|h| h.gone.is_none() && h.task == who.task);
                mine.filter(|h| fresh && h.at < h.end)
                    .map(|h| (slot.clone(), Begun { seq: h.seq, at: h.at }, h.end))
            });
            let Some((slot, begun, until)) = found else {
                let what = format!("{} begins anew, and counts in no rate", after.id);
                return lab.fail(self, "claim_first", what);
            };
            self.account.counted.insert(slot);
            self.account.rates.entry(a.bucket.clone()).or_default().push((begun, until));
            self.check_rate(lab, &a);
        }
    }

    /// It is begun, or begun anew, in this time.
    fn note_begun(&mut self, lab: &Lab, op: &Operation, since: Time) {
        if op.begun().0 + SLACK < since.0 || lab.time().0 + SLACK < op.begun().0 {
            lab.fail(self, "limits", format!("{} is said to be begun at {}", op.id, op.begun().0));
        }
        self.account.begun_at.insert(op.id, op.begun());
    }

    fn note_writer(&mut self, op: &Operation, who: Writer) {
        self.account.owes.insert(op.id, who.epoch);
    }

    /// A call begins an operation with these needs, claimed in this turn.
    fn begins(&mut self, lab: &Lab, op: &Operation, needs: &[Allowance], turn: u64) {
        for a in needs {
            let held = self.account.held.get(&(op.id, a.bucket.clone())).into_iter().flatten();
            let held = held.filter(|h| h.gone.is_none() && h.turn == turn && h.amount == a.amount);
            // One that comes once more counts no more if its time is over by then.
            let in_time = |h: &&Held| h.at < h.end;
            let claimed = if held.clone().count() == 0 { "not claimed" } else { "claimed when it was over" };
            let found = held.rev().find(in_time).map(|h| (Begun { seq: h.seq, at: h.at }, h.end));
            let Some((begun, until)) = found else {
                let what = format!("{} is written, and {} is {claimed} for it", op.id, a.bucket);
                return lab.fail(self, "claim_first", what);
            };
            let slot = (op.id, a.bucket.clone());
            if let Term::Rate(_) = a.term {
                self.account.counted.insert(slot);
                self.account.rates.entry(a.bucket.clone()).or_default().push((begun, until));
                self.check_rate(lab, a);
            } else {
                self.account.begun.insert(slot, begun);
                self.check_sum(lab, a, op);
            }
        }
    }

    /// Never more beginnings in a stretch of time than are allowed.
    fn check_rate(&mut self, lab: &Lab, a: &Allowance) {
        let Some(all) = self.account.rates.get(&a.bucket) else { return };
        let too_many = all.iter().map(|(by, _)| {
            let before = all.iter().filter(|(z, end)| z.seq < by.seq && by.at < *end).count() as u64;
            (before + 1, by.at)
        });
        if let Some((n, at)) = too_many.filter(|(n, _)| *n > a.cap).max_by_key(|(n, _)| *n) {
            let what = format!("{n} began within the time of {} at {}, of {}", a.bucket, at.0, a.cap);
            lab.fail(self, "rate", what);
        }
    }

    /// Whoever a call began found room: of what runs (or is spent, or may be) now and counted then, never more than is allowed.
    fn check_sum(&mut self, lab: &Lab, a: &Allowance, new: &Operation) {
        let place = matches!(a.term, Term::Place(_));
        let counts = |op: &Operation| {
            if place { is_run(op) } else { self.spends(op) == Some(true) }
        };
        let all: Vec<(OperationId, Option<Begun>)> = self
            .account
            .held
            .keys()
            .filter(|slot| slot.1 == a.bucket)
            .filter(|slot| slot.0 == new.id || self.records.get(&slot.0).is_some_and(|r| counts(&r.op)))
            .map(|slot| (slot.0, self.account.begun.get(slot).copied()))
            .collect();
        let over = all.iter().find_map(|(id, begun)| {
            let by = (*begun)?;
            let mine = self.account.held.get(&(*id, a.bucket.clone()))?;
            let mine = mine.iter().find(|h| h.seq == by.seq)?.amount;
            let others = all.iter().filter(|(other, _)| other != id);
            let others = others.filter_map(|(o, _)| self.account.counted_for(&(*o, a.bucket.clone()), by));
            let sum: u64 = mine + others.sum::<u64>();
            (sum > a.cap).then_some((*id, sum))
        });
        if let Some((id, sum)) = over {
            let what = format!("{id} began when {sum} of {} are used, of {}", a.bucket, a.cap);
            lab.fail(self, if place { "places" } else { "budget" }, what);
        }
    }

    /// What goes on by itself is seen by others before anything is sent.
    pub fn check_limits_seen(&mut self, lab: &Lab, id: OperationId) {
        let Some(r) = self.records.get(&id) else { return };
        let attempt = self.account.attempts.get(&id).copied().unwrap_or(1);
        let (now, begun) = (lab.time(), self.account.begun_at.get(&id).copied());
        let counts = |a: &Allowance| match a.term {
            Term::Rate(_) => false,
            Term::Place(_) => true,
            Term::Budget(period) => begun.is_some_and(|t| now.0 + SLACK < end(What::Budget(period), t).0),
        };
        let unseen = lab.needs(&r.op).into_iter().filter(counts).find(|a| {
            let newest = self.account.newest.get(&(id, a.bucket.clone()));
            newest.is_none_or(|turn| *turn < attempt)
        });
        if let Some(a) = unseen.filter(|_| attempt > 1) {
            let what = format!("{id} goes on and sends, and does not count in {}", a.bucket);
            lab.fail(self, "uncounted", what);
        }
    }

    /// A call is refused for want of room: it changed nothing, wrote nothing and holds nothing.
    pub fn check_limited(&mut self, lab: &Lab, e: &CallError, task: usize) {
        let Some(call) = self.account.calls.get(&task) else { return };
        if !(e.kind == Kind::Limited || (e.kind == Kind::Denied && e.operation.is_none())) {
            return;
        }
        let (holders, there) = (call.holders.clone(), call.there);
        self.coverage.travel(if e.operation.is_some() { "limited anew" } else { "limited" });
        // One that began its operation may find it abandoned, and be refused then.
        if let Some(id) = self.created_by.get(&task).copied().filter(|_| e.operation.is_none()) {
            let what = format!("a call was refused ({}), and it opened {id}", e.kind.word());
            lab.fail(self, "limited", what);
        }
        if let Some(id) = there.filter(|_| e.operation.is_none()) {
            let what = format!("a call was refused ({}), and {id} has its key", e.kind.word());
            lab.fail(self, "limited", what);
        }
        if e.kind == Kind::Limited && e.retry_after.is_none() {
            lab.fail(self, "limited", "a call is to come again, and was not told when".into());
        }
        // Of one that may have begun all the same it counts.
        let unsure = e.operation.is_some_and(|id| self.account.excused.contains(&id));
        let left = self.account.held.iter().filter(|_| !unsure).find(|(slot, all)| {
            holders.contains(&slot.0)
                && !self.records.contains_key(&slot.0)
                && !self.account.excused.contains(&slot.0)
                && all.iter().any(|h| h.gone.is_none() && h.task == task)
        });
        if let Some((slot, _)) = left {
            let what = format!("a call was refused, and {} holds {} for it", slot.0, slot.1);
            lab.fail(self, "limited", what);
        }
    }

    /// At the end: nothing is held for nothing, and all that was spent counts.
    pub fn check_limits_at_the_end(&mut self, lab: &Lab) {
        let now = lab.time();
        let mut wrong = None;
        for (slot, all) in &self.account.held {
            let Some(held) = all.iter().rev().find(|h| h.gone.is_none() && now < h.end) else { continue };
            let needs = match (lab.what(&slot.1), self.records.get(&slot.0)) {
                (None, _) => true,
                // Who began nothing gave it back at once.
                (Some(What::Rate(_)), _) => true,
                (Some(What::Budget(_)), Some(r)) => self.spends(&r.op).unwrap_or(true),
                (Some(What::Places(_)), Some(r)) => is_run(&r.op),
                (Some(_), None) => self.graves.contains_key(&slot.0),
            };
            let owes = self.account.owes.get(&slot.0).copied();
            let asked = self.account.first_asked(slot.0, held.turn).map(|a| a.home);
            let gone = |l: &Lease| l.ended.is_some() || l.lapsed.is_some() || lab.world.is_dead(l.home);
            let dead = owes.is_some_and(|e| self.lease(e).is_none_or(gone))
                || asked.is_some_and(|home| lab.world.is_dead(home));
            if !needs && !dead && !self.account.excused.contains(&slot.0) {
                wrong = Some(("leak", format!("{} holds {} for nothing", slot.0, slot.1)));
            }
        }
        for r in self.records.values() {
            for a in lab.needs(&r.op) {
                let open = |t: Time| now < t;
                let used = matches!(a.term, Term::Budget(_)) && self.spends(&r.op) == Some(true);
                let slot = (r.op.id, a.bucket.clone());
                let all = self.account.held.get(&slot).into_iter().flatten();
                let ends = all.map(|h| h.end).max();
                if used && ends.is_some_and(open) && self.account.holds(r.op.id, &a.bucket).is_none() {
                    wrong =
                        Some(("uncounted", format!("{} has used {}, and does not count", r.op.id, a.bucket)));
                }
                let held = self.account.held.iter().filter(|(s, _)| s.1 == a.bucket);
                let sum: u64 = held
                    .filter_map(|(_, all)| all.iter().rev().find(|h| h.gone.is_none()))
                    .filter(|h| now.0 + SLACK < h.end.0)
                    .map(|h| h.amount)
                    .sum();
                if self.account.claims.used(&a.bucket, Time(now.0 - SLACK)) < sum {
                    wrong = Some(("uncounted", format!("of {} less is held than was granted", a.bucket)));
                }
            }
        }
        if let Some((rule, what)) = wrong
            && self.violation.is_none()
        {
            lab.fail(self, rule, what);
        }
    }
}
