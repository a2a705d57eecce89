//! The invariants of the contract, written down a second time and checked at every write of a record. Nothing of
//! `decide` or `twin` is used here: the checks and what they check must not err together.

use crate::lab::{Lab, State};
use crate::model::Writer;
use ledger::words::{Epoch, Millis, OperationId, Time};
use ledger::{DeliveryState, Effect, EffectState, Execution, Operation, Strategy, Unkeyed};

/// How long ago a decision that is written now may have been made: the slowest store and a few lost acknowledgements.
const SLACK: i64 = 10_000;

/// Whether a call without a key may become a new operation beside `op`.
pub(crate) fn is_history(op: &Operation, now: Time, window: Millis) -> bool {
    let over = |at: Time| now.since(at) > window;
    match &op.execution {
        Execution::Completed => {
            op.delivery.state == DeliveryState::Acknowledged
                || (over(op.delivery.at) && op.ended_at.is_none_or(over))
        }
        Execution::Failed { .. } | Execution::Cancelled { explicit: true } => op.ended_at.is_some_and(over),
        Execution::Cancelled { explicit: false } => true,
        Execution::Accepted
        | Execution::Running
        | Execution::InputRequired { .. }
        | Execution::InDoubt { .. } => false,
    }
}

/// Something of it may have left and nobody knows what became of it, or it is known to have happened.
fn may_have_left(e: &Effect) -> bool {
    match e.state {
        EffectState::Applied | EffectState::Unknown => true,
        EffectState::Intended => e.unresolved > 0,
        EffectState::Rejected => false,
    }
}

fn may_follow(from: &Execution, to: &Execution) -> bool {
    use Execution::{Accepted, Cancelled, Completed, Failed, InDoubt, InputRequired, Running};
    match from {
        Accepted => matches!(to, Accepted | Running | Cancelled { .. }),
        Running => true,
        InputRequired { .. } => {
            matches!(to, InputRequired { .. } | Running | Failed { .. } | Cancelled { .. })
        }
        Completed => *to == Completed,
        Failed { .. } => to == from || *to == Running,
        Cancelled { .. } => to == from,
        // Asking again may settle it at once.
        InDoubt { .. } => {
            matches!(to, InDoubt { .. } | Running | Failed { .. } | Completed | InputRequired { .. })
        }
    }
}

impl State {
    pub fn check_created(&mut self, lab: &Lab, op: &Operation, holds: Option<OperationId>, who: Writer) {
        lab.say(format_args!(
            "epoch {} opens {} (tool {}, key {:?}, {} effects)",
            who.epoch.0,
            op.id,
            op.scope.tool,
            op.key.as_ref().map(ledger::Key::as_str),
            op.effects.len()
        ));
        lab.world.trace.mark(10, op.id.0 as u64);
        if self.said_gone.contains(&op.id) {
            lab.fail(
                self,
                "expired",
                format!("{} is opened after somebody was told that it is not there", op.id),
            );
        }
        for e in &op.effects {
            self.check_new_effect(lab, op, e);
        }
        let tool = &lab.plan.tools[lab.tool(op)];
        let unnamed = op.key.as_ref().is_none_or(|k| k.as_str().starts_with("arg-"));
        if tool.unkeyed != Unkeyed::Guard || !unnamed {
            return;
        }
        let Some(r) = holds.and_then(|id| self.records.get(&id)) else { return };
        let lately = r.was_history.is_some_and(|t| t.plus(Millis(SLACK)) >= op.created_at);
        if !lately && !is_history(&r.op, lab.time(), tool.guard_window) {
            let what = format!(
                "{} was opened without a key beside its twin {}, which is {} and {}",
                op.id,
                r.op.id,
                r.op.execution.word(),
                r.op.delivery.state.word()
            );
            lab.fail(self, "twin", what);
        }
    }

    fn check_new_effect(&mut self, lab: &Lab, op: &Operation, e: &Effect) {
        if crate::books::lacks_yes(op) {
            let what = format!("`{}` of {} is an effect, and nobody said yes yet", e.name, op.id);
            lab.fail(self, "before_yes", what);
        }
        let taken =
            self.facts.iter().any(|(k, f)| f.key == e.key.as_str() && (k.0 != op.id || k.1 != e.name));
        if taken {
            lab.fail(self, "effect_key", format!("{}: the key {} names another effect, too", op.id, e.key));
        }
        let fact = self.fact(op.id, &e.name);
        if e.recovery.strategy == Strategy::Local {
            // It is made by the write that tells of it.
            fact.applied += 1;
        }
        if fact.key.is_empty() {
            e.key.as_str().clone_into(&mut fact.key);
            fact.intended = lab.world.now();
        } else if fact.key != e.key.as_str() {
            let what = format!("{}: the key of `{}` changed", op.id, e.name);
            lab.fail(self, "effect_key", what);
        }
    }

    pub fn check_updated(&mut self, lab: &Lab, before: &Operation, after: &Operation, who: Writer) {
        lab.world.trace.mark(11, after.id.0 as u64 ^ after.version);
        if lab.world.trace.is_recording() {
            let effects: Vec<String> = after
                .effects
                .iter()
                .map(|e| {
                    format!(
                        "{}={} ({} of {} sends unresolved)",
                        e.name,
                        e.state.word(),
                        e.unresolved,
                        e.sends
                    )
                })
                .collect();
            lab.say(format_args!(
                "epoch {} writes {} v{}: {} -> {}, attempt {} of {}, {}, {}",
                who.epoch.0,
                after.id,
                after.version,
                before.execution.word(),
                after.execution.word(),
                after.attempt,
                after.owner.0,
                after.delivery.state.word(),
                effects.join(", ")
            ));
        }
        let same = before.scope == after.scope
            && before.key == after.key
            && before.fingerprint == after.fingerprint
            && before.created_at == after.created_at
            && before.policy == after.policy;
        if !same {
            lab.fail(self, "pinned", format!("{}: what is pinned was changed", after.id));
        }
        if !may_follow(&before.execution, &after.execution) {
            let what = format!("{}: {} became {}", after.id, before.execution.word(), after.execution.word());
            lab.fail(self, "transition", what);
        }
        // A delivery that nobody waited for may be lost in a crash of the server after others have read it.
        if after.delivery.state < before.delivery.state && !self.server.forgot.contains(&after.id) {
            lab.fail(self, "delivery", format!("{}: its delivery went back", after.id));
        }
        self.check_attempt(lab, before, after, who);
        self.check_effects(lab, before, after, who);
        self.check_end(lab, before, after, who);
    }

    /// At most one live attempt.
    fn check_attempt(&mut self, lab: &Lab, before: &Operation, after: &Operation, who: Writer) {
        if after.attempt == before.attempt {
            return;
        }
        let now = lab.time();
        if after.attempt != before.attempt + 1 || after.owner != who.epoch {
            let what = format!("{}: attempt {} became {}", after.id, before.attempt, after.attempt);
            lab.fail(self, "one_attempt", what);
        }
        let free = before.owner == Epoch(0)
            || now >= before.deadline
            || self.was_dead(before.owner, now, lab.plan.lease);
        if !free {
            let what = format!(
                "{}: epoch {} took it from epoch {}, which is alive and in time",
                after.id, who.epoch.0, before.owner.0
            );
            lab.fail(self, "one_attempt", what);
        }
    }

    fn check_effects(&mut self, lab: &Lab, before: &Operation, after: &Operation, who: Writer) {
        let claimed = after.attempt != before.attempt;
        let decided = after.decisions.len() > before.decisions.len();
        let mut touched = false;
        for (n, e) in after.effects.iter().enumerate() {
            let Some(b) = before.effects.get(n) else {
                touched = true;
                self.check_new_effect(lab, after, e);
                continue;
            };
            touched |= b != e;
            let pinned = b.key == e.key
                && b.digest == e.digest
                && b.name == e.name
                && b.discriminator == e.discriminator
                && b.recovery == e.recovery
                && b.intended_at == e.intended_at;
            if !pinned || e.sends < b.sends {
                lab.fail(self, "pinned", format!("{}: effect `{}` was changed", after.id, e.name));
            }
            let fact = self.fact(after.id, &e.name);
            let (applied, excused) = (fact.applied, fact.word || fact.stalled);
            let wrong = match (b.state, e.state) {
                (EffectState::Applied, EffectState::Applied) => None,
                (EffectState::Applied, _) => Some("an applied effect became another"),
                (EffectState::Rejected, EffectState::Rejected) => None,
                (EffectState::Rejected, EffectState::Intended) if claimed && !b.has_receipt => None,
                (EffectState::Rejected, _) => Some("a rejected effect became another"),
                (_, EffectState::Applied) if applied == 0 && !decided && !excused => {
                    Some("it is recorded as applied, and nothing happened")
                }
                (_, EffectState::Rejected) if applied > 0 && !decided && !excused => {
                    Some("it is recorded as not applied, and it happened")
                }
                _ => None,
            };
            if let Some(wrong) = wrong {
                lab.fail(self, "effect_state", format!("{}: effect `{}`: {wrong}", after.id, e.name));
            }
        }
        if after.effects.len() < before.effects.len() {
            lab.fail(self, "pinned", format!("{}: an effect was forgotten", after.id));
        }
        // Only the attempt that owns the record says anything about its effects; claims, cancellations and people
        // are the others.
        let ends_early = matches!(after.execution, Execution::Cancelled { .. } | Execution::Failed { .. });
        if touched && !claimed && !decided && !ends_early && before.owner != who.epoch {
            let what = format!(
                "{}: epoch {} wrote about effects of an attempt of epoch {}",
                after.id, who.epoch.0, before.owner.0
            );
            lab.fail(self, "fence", what);
        }
    }

    fn check_end(&mut self, lab: &Lab, before: &Operation, after: &Operation, who: Writer) {
        if before.execution.word() == after.execution.word() {
            return;
        }
        let now = lab.time();
        let by_attempt = matches!(
            after.execution,
            Execution::Completed | Execution::InDoubt { .. } | Execution::InputRequired { .. }
        );
        let free = before.owner == Epoch(0)
            || now >= before.deadline
            || self.was_dead(before.owner, now, lab.plan.lease);
        if by_attempt && before.owner != who.epoch && !free {
            let what =
                format!("{}: epoch {} ended an attempt of epoch {}", after.id, who.epoch.0, before.owner.0);
            lab.fail(self, "fence", what);
        }
        match &after.execution {
            Execution::Completed => {
                if let Some(e) = after.effects.iter().find(|e| !e.is_settled()) {
                    let what = format!("{}: closed with `{}` {}", after.id, e.name, e.state.word());
                    lab.fail(self, "unsettled", what);
                }
            }
            Execution::Failed { .. } | Execution::Cancelled { .. } => self.check_nothing(lab, before, after),
            Execution::InDoubt { reason, .. } => self.check_doubt(lab, after, reason),
            // It asks; what is open at the provider is not left alone meanwhile.
            Execution::InputRequired { .. } if crate::books::waits(after) => {
                if let Some(e) = after.effects.iter().find(|e| may_have_left(e) && !e.is_settled()) {
                    let what = format!("{}: it asks, and `{}` is {}", after.id, e.name, e.state.word());
                    lab.fail(self, "unsettled", what);
                }
            }
            Execution::InputRequired { .. } => {
                let fits = after
                    .effects
                    .iter()
                    .any(|e| !e.is_settled() && e.recovery.strategy == Strategy::Confirm && e.unresolved > 0);
                if !fits {
                    lab.fail(self, "doubt", format!("{}: a person is asked without need", after.id));
                }
            }
            Execution::Running | Execution::Accepted => {}
        }
    }

    /// `failed` and `cancelled`: no effect happened, and it is known.
    fn check_nothing(&mut self, lab: &Lab, before: &Operation, after: &Operation) {
        let by_word = matches!(before.execution, Execution::InDoubt { .. } | Execution::InputRequired { .. })
            && !crate::books::waits(before);
        for (n, e) in before.effects.iter().enumerate() {
            // The refusal may be written together with the end.
            let refused = after.effects.get(n).is_some_and(|a| a.has_receipt);
            let fact = self.fact(after.id, &e.name);
            let (applied, excused) = (fact.applied, fact.word || fact.stalled);
            if (may_have_left(e) && !by_word && !refused) || (applied > 0 && !excused) {
                let what = format!(
                    "{} became {} although `{}` is {} and happened {applied} times",
                    after.id,
                    after.execution.word(),
                    e.name,
                    e.state.word()
                );
                lab.fail(self, "nothing_happened", what);
            }
        }
    }

    /// Doubt is for what has no safe automatic step left.
    fn check_doubt(&mut self, lab: &Lab, op: &Operation, reason: &str) {
        let now = lab.time();
        if reason.starts_with("intent_mismatch")
            || reason.starts_with("input_mismatch")
            || reason.starts_with("withheld")
            || reason.contains("attempts came to no end")
        {
            return;
        }
        let step = lab.clock_step();
        let fits = op.effects.iter().any(|e| {
            let open = !e.is_settled() && e.unresolved > 0;
            let old = e.recovery.replay_for.is_some_and(|d| {
                now.plus(e.recovery.send_timeout) > e.intended_at.plus(d)
                    || step.is_some_and(|s| e.intended_at <= s)
            });
            open && match e.recovery.strategy {
                Strategy::None | Strategy::Confirm => true,
                Strategy::Key | Strategy::Unique | Strategy::Natural => e.stored_failure || old,
                Strategy::Lookup => e.stored_failure,
                Strategy::Local => false,
            }
        });
        if !fits {
            lab.fail(self, "doubt", format!("{} is in doubt without need: {reason}", op.id));
        }
    }
}
