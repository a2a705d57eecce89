//! What a run went through: a check that never met a state proves nothing about it.

use ledger::{Execution, Note, Observer};
use std::collections::BTreeMap;

/// Counts of what was met, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Transitions of execution: from, to.
    pub transitions: BTreeMap<(&'static str, &'static str), u64>,
    /// Refusals of events.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Crash windows that were recovered from.
    pub windows: BTreeMap<&'static str, u64>,
    /// Outcomes of sends.
    pub sends: BTreeMap<&'static str, u64>,
    /// Errors that calls were answered with.
    pub errors: BTreeMap<&'static str, u64>,
    /// How calls came to operations.
    pub joins: BTreeMap<&'static str, u64>,
    /// Alerts.
    pub alerts: BTreeMap<&'static str, u64>,
    /// Faults that were made.
    pub faults: BTreeMap<&'static str, u64>,
    /// What became of state that travels: questions, answers, tasks, legs, handles.
    pub travels: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// A fault was made.
    pub(crate) fn fault(&mut self, what: &'static str) {
        *self.faults.entry(what).or_default() += 1;
    }

    /// State travelled.
    pub(crate) fn travel(&mut self, what: &'static str) {
        *self.travels.entry(what).or_default() += 1;
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Coverage) {
        for (k, n) in &other.transitions {
            *self.transitions.entry(*k).or_default() += n;
        }
        let pairs = [
            (&mut self.refusals, &other.refusals),
            (&mut self.windows, &other.windows),
            (&mut self.sends, &other.sends),
            (&mut self.errors, &other.errors),
            (&mut self.joins, &other.joins),
            (&mut self.alerts, &other.alerts),
            (&mut self.faults, &other.faults),
            (&mut self.travels, &other.travels),
        ];
        for (mine, theirs) in pairs {
            for (k, n) in theirs {
                *mine.entry(*k).or_default() += n;
            }
        }
    }
}

/// Hears what a ledger tells.
pub(crate) struct Listener {
    pub lab: std::sync::Arc<crate::lab::Lab>,
    pub home: crate::world::Home,
}

impl Observer for Listener {
    fn note(&self, note: Note<'_>) {
        let mut guard = self.lab.state();
        let state = &mut *guard;
        if let Note::Transition { from, to } = &note
            && self.lab.is_postgres()
            && *from != to.execution.word()
            && to.execution != Execution::Running
        {
            // Somebody may wait for it at another replica.
            state.untold.insert((self.home, to.id));
        }
        let c = &mut state.coverage;
        match note {
            Note::Opened(op) => *c.transitions.entry(("-", op.execution.word())).or_default() += 1,
            Note::Joined(by, _) => *c.joins.entry(by.word()).or_default() += 1,
            Note::Transition { from, to } => {
                *c.transitions.entry((from, to.execution.word())).or_default() += 1
            }
            Note::Refused(r) => *c.refusals.entry(r.word()).or_default() += 1,
            Note::Sent(word) => *c.sends.entry(word).or_default() += 1,
            Note::Window(word) => *c.windows.entry(word).or_default() += 1,
            Note::Answered(kind) => *c.errors.entry(kind.word()).or_default() += 1,
            Note::Alert { what, .. } => *c.alerts.entry(what).or_default() += 1,
        }
    }
}
