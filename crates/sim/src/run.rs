//! One schedule from its plan to its end.

use crate::boot::Fleet;
use crate::caller::Caller;
use crate::coverage::Coverage;
use crate::lab::{Lab, Violation};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::world::{End, OUTSIDE, World};
use ledger::{Execution, OperationId};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What came of a schedule.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first broken invariant, if there was one.
    pub violation: Option<Violation>,
    /// Tells runs apart: the same seed gives the same number.
    pub hash: u64,
    /// Task polls.
    pub steps: usize,
    /// What was met.
    pub coverage: Coverage,
    /// For people; empty unless recorded.
    pub trace: Vec<String>,
}

/// No schedule needs more polls than this.
const MOST_STEPS: usize = 400_000;
/// How long after the last fault everything must be settled, in virtual milliseconds.
const SETTLES_IN: i64 = 600_000;

/// Runs a plan.
pub(crate) fn run(plan: &Plan, recording: bool) -> Outcome {
    let world = World::new(plan.seed, Trace::new(recording));
    let lab = Lab::new(world.clone(), Arc::new(plan.clone()));
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| drive(&lab)));
    if ran.is_err() {
        lab.fail(&mut lab.state(), "panic", "the ledger panicked".into());
    }
    check_told(&lab);
    let (violation, coverage) = {
        let mut s = lab.state();
        (s.violation.take(), std::mem::take(&mut s.coverage))
    };
    world.clear();
    Outcome { violation, hash: world.trace.hash(), steps: world.steps(), coverage, trace: world.trace.take() }
}

fn drive(lab: &Arc<Lab>) {
    let world = &lab.world;
    let fleet = Fleet::new(lab.clone());
    world.spawn(OUTSIDE, Box::pin(fleet.clone().strike()));
    world.spawn(OUTSIDE, Box::pin(fleet.clone().watch()));
    for c in &lab.plan.callers {
        let rng = Rng::new(lab.plan.seed, 10 + c.number as u64);
        let caller = Caller { fleet: fleet.clone(), plan: c.clone(), rng };
        world.spawn(OUTSIDE, Box::pin(caller.live()));
    }
    let until = lab.plan.calm_at + SETTLES_IN;
    let end = world
        .run(until, MOST_STEPS, || lab.is_calm() && lab.callers_left.load(Relaxed) == 0 && !lab.is_busy());
    if end != End::Done {
        return unsettled(lab, end);
    }
    // A word of an operator who looks ends what is in doubt.
    let waits: Vec<OperationId> = lab
        .state()
        .records
        .values()
        .filter(|r| matches!(r.op.execution, Execution::InDoubt { .. } | Execution::InputRequired { .. }))
        .map(|r| r.op.id)
        .collect();
    if waits.is_empty() {
        return check_limits(lab);
    }
    let teller = fleet.clone();
    let (told, seed) = (Arc::new(std::sync::atomic::AtomicBool::new(false)), lab.plan.seed);
    let done = told.clone();
    world.spawn(
        OUTSIDE,
        Box::pin(async move {
            // Whatever is on its way arrives or is lost.
            teller.lab.world.sleep(30_000).await;
            for (n, id) in waits.into_iter().enumerate() {
                let boot = teller.get(n);
                let (saying, by) = (teller.clone(), boot.clone());
                teller
                    .lab
                    .world
                    .spawn(boot.home, Box::pin(async move { saying.say_truth(&by, id, seed).await }));
            }
            teller.lab.world.sleep(2000).await;
            done.store(true, Relaxed);
        }),
    );
    let end = world.run(until + 200_000, MOST_STEPS, || told.load(Relaxed) && !lab.is_busy());
    if end != End::Done {
        return unsettled(lab, end);
    }
    check_limits(lab);
}

/// What is under way comes to its end; then nothing is held for nothing.
fn check_limits(lab: &Arc<Lab>) {
    if lab.plan.limits.is_empty() {
        return;
    }
    let until = lab.world.now() + 5000;
    lab.world.run(until + 20_000, MOST_STEPS, || lab.world.now() >= until && lab.state().untold.is_empty());
    lab.state().check_limits_at_the_end(lab);
}

/// What a replica changed, the others were told.
fn check_told(lab: &Arc<Lab>) {
    let mut s = lab.state();
    let untold = s.untold.iter().find(|(home, _)| !lab.world.is_dead(*home)).copied();
    if let Some((home, id)) = untold
        && s.violation.is_none()
    {
        let what = format!("home {home} moved {id} on, and did not say so");
        lab.fail(&mut s, "bell", what);
    }
}

fn unsettled(lab: &Arc<Lab>, end: End) {
    if end == End::Stopped {
        return;
    }
    let mut s = lab.state();
    let open: Vec<String> = s
        .records
        .values()
        .filter(|r| matches!(r.op.execution, Execution::Running | Execution::Accepted))
        .map(|r| format!("{} is {}", r.op.id, r.op.execution.word()))
        .collect();
    let left = lab.callers_left.load(Relaxed);
    let what = format!("{end:?}: {left} callers wait; {}", open.join(", "));
    lab.fail(&mut s, "liveness", what);
}
