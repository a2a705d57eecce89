//! What is in a state, for the checker.

use super::{Doing, LAG, RETENTION, STALL, State};
use counterfoil_ledger::{Effect, Execution, Operation, Strategy, Time};
use std::hash::{Hash, Hasher};

// The checker knows states by their hash alone. Times go into it as they lie to *now*, and those that lie so far
// back that no comparison depends on how far any more are one. So states that differ only by when they are reached
// are one, and the search ends although time does not. What no decision reads is left out. Records are taken apart
// by name, so that a field that is added to them has to be named here.

/// No intent or effect older than this differs from an older one, where a key is remembered for a time.
const OLD: i64 = RETENTION + 2;
/// No send or fencing, where not everything is seen at once.
const PAST: i64 = STALL + LAG + 1;

/// How far back times matter to a strategy: those of intents and effects, and those of sends.
fn memory(strategy: Strategy) -> (i64, i64) {
    match strategy {
        Strategy::Key => (OLD, 0),
        Strategy::Lookup => (LAG, PAST),
        _ => (0, 0),
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, h: &mut H) {
        let State {
            now,
            record,
            workers,
            boots,
            requests,
            effects,
            crashes,
            cancelled,
            called_again,
            fenced,
        } = self;
        (crashes, cancelled, called_again, fenced).hash(h);
        let (old, _) = memory(record.effects[0].recovery.strategy);
        for r in requests {
            (r.by, r.key, r.until - now).hash(h);
        }
        requests.len().hash(h);
        for (at, key) in effects {
            ((at - now).max(-old), key).hash(h);
        }
        effects.len().hash(h);
        let view = View { now: *now, boots };
        view.record(record, h);
        for doing in workers {
            std::mem::discriminant(doing).hash(h);
            let seen = match doing {
                Doing::Nothing => continue,
                Doing::Thinking { seen, begun } => {
                    begun.hash(h);
                    seen
                }
                Doing::Waiting { seen } | Doing::Cut { seen } => seen,
                Doing::Asked { seen, at, found } => {
                    (found, self.counts(seen, *at)).hash(h);
                    seen
                }
                Doing::Closing { seen, answer } => {
                    std::mem::discriminant(answer).hash(h);
                    seen
                }
            };
            // A worker that was taken over can only have its next write refused, whatever it is, unless its first
            // byte is about to leave.
            let fenced = State::fence(seen) != State::fence(record);
            fenced.hash(h);
            if !fenced || matches!(doing, Doing::Thinking { begun: true, .. }) {
                view.record(seen, h);
            }
        }
    }
}

struct View<'a> {
    now: i64,
    boots: &'a [u64; 2],
}

impl View<'_> {
    fn time(&self, t: Time, back: i64) -> i64 {
        (t.0 - self.now).max(-back)
    }

    fn record<H: Hasher>(&self, op: &Operation, h: &mut H) {
        let Operation {
            execution,
            attempt,
            counted_from,
            owner,
            deadline,
            not_before,
            effects,
            caller,
            joined,
            cancel_requested,
            conclude,
            is_error,
            // One for all records of a model.
            id: _,
            scope: _,
            key: _,
            fingerprint: _,
            policy: _,
            begun_at: _,
            created_at: _,
            // Read by no transition here.
            version: _,
            ended_at: _,
            spoken: _,
            delivery: _,
            decisions: _,
            form: _,
            more: _,
            // Nothing is asked, and nothing handed out.
            inputs: _,
            planned: _,
            task: _,
            // Nothing is limited.
            allowances: _,
        } = op;
        (execution.word(), attempt, counted_from).hash(h);
        // Which boot it is matters only as far as it is somebody's, or nobody's.
        (self.boots.iter().position(|b| *b == owner.0), owner.0 == 0).hash(h);
        (self.time(*deadline, 0), self.time(*not_before, 0)).hash(h);
        if let Execution::Cancelled { explicit } = execution {
            explicit.hash(h);
        }
        (caller.gone, joined, cancel_requested, conclude, is_error).hash(h);
        effects.iter().for_each(|e| self.effect(e, h));
    }

    fn effect<H: Hasher>(&self, e: &Effect, h: &mut H) {
        let Effect {
            state,
            intended_at,
            sends,
            attempt_sends,
            unresolved,
            send_deadline,
            fenced_at,
            not_before,
            looks,
            absent,
            stored_failure,
            forced,
            has_receipt,
            several,
            key,
            recovery,
            // One for all records of a model.
            name: _,
            discriminator: _,
            summary: _,
            digest: _,
            // Read by no transition here.
            sent_by: _,
            why: _,
        } = e;
        let (old, past) = memory(recovery.strategy);
        (key, state, self.time(*intended_at, old), sends, attempt_sends, unresolved).hash(h);
        (self.time(*send_deadline, past), fenced_at.map(|t| self.time(t, past))).hash(h);
        (self.time(*not_before, 0), looks, absent, stored_failure, forced, has_receipt, several).hash(h);
    }
}
