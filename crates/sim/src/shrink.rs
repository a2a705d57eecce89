//! Makes a failing schedule smaller: takes one thing after another out of its plan for as long as it still breaks the
//! same rule.

use crate::plan::{Plan, Rates};
use crate::run::{Outcome, run};
use crate::semantics::Semantics;

/// A failing schedule made small.
pub struct Small {
    /// What is left of its plan, for people.
    pub plan: String,
    /// Its run, with a trace.
    pub outcome: Outcome,
    /// How many runs it took.
    pub runs: usize,
}

/// The schedule of `seed` made small; `None` if it breaks nothing. At most `most` runs are made.
#[must_use]
pub fn shrink(seed: u64, semantics: Option<Semantics>, most: usize) -> Option<Small> {
    let mut plan = Plan::draw(seed, semantics);
    let rule = run(&plan, false).violation?.rule;
    let mut runs = 1;
    loop {
        let mut smaller = None;
        for candidate in candidates(&plan) {
            if runs >= most {
                break;
            }
            runs += 1;
            if run(&candidate, false).violation.is_some_and(|v| v.rule == rule) {
                smaller = Some(candidate);
                break;
            }
        }
        match smaller {
            Some(next) => plan = next,
            None => break,
        }
    }
    let outcome = run(&plan, true);
    Some(Small { plan: format!("{plan:#?}"), outcome, runs })
}

fn with(plan: &Plan, change: impl FnOnce(&mut Plan)) -> Plan {
    let mut next = plan.clone();
    change(&mut next);
    next
}

/// Every plan that has one thing less.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    if plan.callers.len() > 1 {
        for n in 0..plan.callers.len() {
            all.push(with(plan, |p| {
                p.callers.remove(n);
            }));
        }
    }
    for n in 0..plan.blows.len() {
        all.push(with(plan, |p| {
            p.blows.remove(n);
        }));
    }
    for (c, caller) in plan.callers.iter().enumerate() {
        if caller.wishes.len() > 1 {
            for n in 0..caller.wishes.len() {
                all.push(with(plan, |p| {
                    p.callers[c].wishes.remove(n);
                }));
            }
        }
    }
    for n in 0..plan.limits.len() {
        all.push(with(plan, |p| {
            p.limits.remove(n);
        }));
    }
    if plan.replicas > 1 {
        all.push(with(plan, |p| p.replicas -= 1));
    }
    let rates: [fn(&mut Rates) -> &mut u32; 22] = [
        |r| &mut r.store_slow,
        |r| &mut r.store_unavailable,
        |r| &mut r.store_uncertain,
        |r| &mut r.store_duplicate,
        |r| &mut r.store_kill,
        |r| &mut r.read_unavailable,
        |r| &mut r.not_sent,
        |r| &mut r.request_lost,
        |r| &mut r.answer_lost,
        |r| &mut r.refuses,
        |r| &mut r.fails,
        |r| &mut r.busy,
        |r| &mut r.slow,
        |r| &mut r.stalls,
        |r| &mut r.replay_refused,
        |r| &mut r.look_fails,
        |r| &mut r.swallowed,
        |r| &mut r.withheld,
        |r| &mut r.bell_late,
        |r| &mut r.bell_twice,
        |r| &mut r.bell_lost,
        |r| &mut r.pulse_lost,
    ];
    for rate in rates {
        if *rate(&mut plan.rates.clone()) > 0 {
            all.push(with(plan, |p| *rate(&mut p.rates) = 0));
        }
    }
    for t in 0..plan.tools.len() {
        let tool = &plan.tools[t];
        if tool.before + tool.after + tool.other + tool.deaf > 0 {
            all.push(with(plan, |p| {
                let t = &mut p.tools[t];
                (t.before, t.after, t.other, t.deaf) = (0, 0, 0, 0);
            }));
        }
        if tool.approval || tool.rounds > 0 {
            all.push(with(plan, |p| {
                let t = &mut p.tools[t];
                (t.approval, t.rounds) = (false, 0);
            }));
        }
        if tool.questions > 1 {
            all.push(with(plan, |p| p.tools[t].questions = 1));
        }
        if tool.handles && tool.effects > 0 {
            all.push(with(plan, |p| p.tools[t].handles = false));
        }
        if tool.effects > 1 {
            all.push(with(plan, |p| p.tools[t].effects = 1));
        }
    }
    for (c, caller) in plan.callers.iter().enumerate() {
        for (n, w) in caller.wishes.iter().enumerate() {
            if w.leg.is_some() || w.task.is_some() {
                all.push(with(plan, |p| {
                    let w = &mut p.callers[c].wishes[n];
                    (w.leg, w.task) = (None, None);
                }));
            }
            if w.quits + w.fickle + w.denies + w.cancels > 0 {
                all.push(with(plan, |p| {
                    let w = &mut p.callers[c].wishes[n];
                    (w.quits, w.fickle, w.denies, w.cancels) = (0, 0, 0, 0);
                }));
            }
            if w.leaves + w.acknowledges + w.alters + w.pries > 0 || w.again || w.second {
                all.push(with(plan, |p| {
                    let w = &mut p.callers[c].wishes[n];
                    (w.leaves, w.acknowledges, w.alters, w.pries) = (0, 0, 0, 0);
                    (w.again, w.second) = (false, false);
                }));
            }
        }
    }
    all
}
