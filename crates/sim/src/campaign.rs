//! Many schedules, on all cores.

use crate::coverage::Coverage;
use crate::lab::Violation;
use crate::plan::Plan;
use crate::run::run;
use crate::semantics::Semantics;
use ledger::planted::{self, Plant};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// A seed whose schedule breaks a rule.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The seed.
    pub seed: u64,
    /// What it ran on.
    pub semantics: Semantics,
    /// What it breaks.
    pub violation: Violation,
}

/// What came of many schedules.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many were run.
    pub schedules: u64,
    /// How many broke a rule.
    pub violations: u64,
    /// The first of them.
    pub findings: Vec<Finding>,
    /// What was met.
    pub coverage: Coverage,
    /// How many were run, and how many broke a rule, on what.
    pub stores: BTreeMap<Semantics, (u64, u64)>,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// How many schedules.
    pub schedules: u64,
    /// The first seed; each schedule takes the next.
    pub seed: u64,
    /// How many threads.
    pub threads: usize,
    /// What all of them run on; else each draws it.
    pub semantics: Option<Semantics>,
    /// A guard that is taken out, for those schedules only.
    pub plant: Option<Plant>,
    /// End at the first violation.
    pub until_first: bool,
}

/// The most findings that are kept.
const KEPT: usize = 20;

/// Silences what simulated tools say when they panic. The ledger's own panics are still told.
pub fn hush() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"simulated") {
            before(info);
        }
    }));
}

impl Campaign {
    /// Runs it.
    #[must_use]
    pub fn run(&self) -> Report {
        let next = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let total = Mutex::new(Report::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    planted::on_this_thread(self.plant);
                    let mut mine = Report::default();
                    while !stop.load(Relaxed) {
                        let n = next.fetch_add(1, Relaxed);
                        if n >= self.schedules {
                            break;
                        }
                        let seed = self.seed.wrapping_add(n);
                        let plan = Plan::draw(seed, self.semantics);
                        let outcome = run(&plan, false);
                        mine.schedules += 1;
                        let on = mine.stores.entry(plan.semantics).or_default();
                        on.0 += 1;
                        on.1 += u64::from(outcome.violation.is_some());
                        mine.coverage.add(&outcome.coverage);
                        if let Some(violation) = outcome.violation {
                            mine.violations += 1;
                            if mine.findings.len() < KEPT {
                                mine.findings.push(Finding { seed, semantics: plan.semantics, violation });
                            }
                            if self.until_first {
                                stop.store(true, Relaxed);
                            }
                        }
                    }
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    total.schedules += mine.schedules;
                    total.violations += mine.violations;
                    total.findings.extend(mine.findings);
                    total.coverage.add(&mine.coverage);
                    for (semantics, (ran, broke)) in mine.stores {
                        let on = total.stores.entry(semantics).or_default();
                        *on = (on.0 + ran, on.1 + broke);
                    }
                });
            }
        });
        let mut report = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.findings.sort_by_key(|f| f.seed.wrapping_sub(self.seed));
        report.findings.truncate(KEPT);
        report
    }
}
