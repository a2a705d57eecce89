//! The simulator's own account of what travels: questions and answers, yeses and nos, handles, tasks, single use. Kept by
//! what callers, people and tools say and do, and compared with every write; nothing of the ledger's own comparisons is
//! used here.

use crate::lab::{Lab, State};
use crate::model::Writer;
use ledger::handle::{Handle, HandleChange};
use ledger::store::{Committed, Shelved};
use ledger::words::Time;
use ledger::{BlobKind, EffectState, Execution, InputKind, Operation, OperationId, Strategy};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A handle, and which steps changed it.
pub(crate) struct Kept {
    pub handle: Handle,
    pub changes: Vec<(OperationId, String)>,
}

#[derive(Default)]
pub(crate) struct Books {
    /// Somebody said yes to it, or no.
    pub said_yes: BTreeSet<OperationId>,
    /// What clients hold: the id that each was given for an operation.
    pub tasks: HashMap<OperationId, String>,
    /// What is kept of handles.
    pub handles: BTreeMap<[u8; 32], Kept>,
    /// Handles that were there once.
    pub destroyed: BTreeSet<[u8; 32]>,
    /// The texts of handles that clients know: whose, which.
    pub known: Vec<(String, String)>,
    /// Which handle an operation is about: its arguments name it.
    pub about: HashMap<OperationId, String>,
    /// The shelf.
    pub shelf: BTreeMap<String, Shelved>,
    /// States that were given out, and when.
    pub states: HashMap<String, Time>,
    /// With which answer a state that may be used once was used.
    pub used: HashMap<String, Vec<u8>>,
    /// Until when the caller of an operation counts as present between two legs: at which home, in virtual time.
    pub lingers: HashMap<OperationId, (usize, i64)>,
}

/// Whether it waits for answers: read off the record, not asked of it.
pub(crate) fn waits(op: &Operation) -> bool {
    matches!(op.execution, Execution::InputRequired { .. }) && op.inputs.iter().any(|i| i.answer.is_none())
}

/// Whether a person has to say yes and has not.
pub(crate) fn lacks_yes(op: &Operation) -> bool {
    op.inputs.iter().any(|i| i.kind == InputKind::Approval && i.answer.is_none())
}

impl State {
    pub fn check_books(&mut self, lab: &Lab, before: &Operation, after: &Operation, who: Writer) {
        self.check_inputs(lab, before, after);
        let id = after.id;
        if before.task.is_some() && after.task != before.task {
            lab.fail(self, "task_lost", format!("{id}: what was handed out was changed or taken back"));
        }
        if before.task.is_some() && after.execution == Execution::Accepted {
            lab.fail(self, "task_lost", format!("{id} was handed out as a task, and is abandoned"));
        }
        if before.execution == Execution::Running
            && after.execution == Execution::Accepted
            && let Some((home, until)) = self.books.lingers.get(&id).copied()
            && lab.world.now() < until
            && !lab.world.is_dead(home)
            && self.lease(who.epoch).is_some_and(|l| l.home == home)
        {
            lab.fail(
                self,
                "lingers",
                format!("{id} is abandoned by the replica that its caller comes back to"),
            );
        }
        if before.execution != Execution::Completed && after.execution == Execution::Completed {
            self.check_handles_of(lab, after);
        }
    }

    /// A question stays as it was asked, and its first answer counts.
    fn check_inputs(&mut self, lab: &Lab, before: &Operation, after: &Operation) {
        let id = after.id;
        for (n, b) in before.inputs.iter().enumerate() {
            let same = after.inputs.get(n).is_some_and(|a| {
                a.key == b.key && a.kind == b.kind && a.digest == b.digest && a.round == b.round
            });
            if !same {
                lab.fail(self, "question", format!("{id}: the question `{}` was changed", b.key));
                return;
            }
            if b.answer.is_some() && after.inputs[n].answer != b.answer {
                lab.fail(self, "one_answer", format!("{id}: the answer to `{}` was changed", b.key));
            }
        }
        let mut keys: Vec<&str> = after.inputs.iter().map(|i| i.key.as_str()).collect();
        keys.sort_unstable();
        if keys.windows(2).any(|w| w[0] == w[1]) {
            lab.fail(self, "question", format!("{id}: two questions have one key"));
        }
        for (n, a) in after.inputs.iter().enumerate() {
            let first = before.inputs.get(n).is_none_or(|b| b.answer.is_none());
            let (index, kind) = (n as u16, a.kind);
            if before.inputs.get(n).is_none() {
                self.check_asked(lab, after, n);
            }
            if a.answer.is_none() || !first {
                continue;
            }
            self.coverage.travel("answered");
            if !self.blobs.contains_key(&(id, BlobKind::Answer(index))) {
                lab.fail(self, "one_answer", format!("{id}: the answer to `{}` is not kept", a.key));
            }
            if kind == InputKind::Approval && !self.books.said_yes.contains(&id) {
                lab.fail(self, "yes_of_nobody", format!("{id}: a yes is recorded that nobody said"));
            }
        }
        if waits(before) && after.execution == Execution::Running && !after.conclude {
            let open = after.inputs.iter().find(|i| i.answer.is_none()).map(|i| i.key.clone());
            if let Some(key) = open {
                lab.fail(self, "unanswered", format!("{id} goes on although `{key}` has no answer"));
            }
        }
        if lacks_yes(after) && !after.effects.is_empty() && after.effects.len() > before.effects.len() {
            let what = format!("{id} has an effect that was to wait for a yes");
            lab.fail(self, "before_yes", what);
        }
    }

    /// It is asked, and what is asked is kept.
    pub fn check_asked(&mut self, lab: &Lab, op: &Operation, n: usize) {
        let i = &op.inputs[n];
        let approval = i.kind == InputKind::Approval;
        self.coverage.travel(if approval { "asked for a yes" } else { "asked" });
        if i.round > 1 {
            self.coverage.travel("asked in a later round");
        }
        if !self.blobs.contains_key(&(op.id, BlobKind::Request(n as u16))) {
            lab.fail(self, "question", format!("{}: `{}` is asked without its text", op.id, i.key));
        }
    }

    /// Each step of an operation that completed changed its handle once.
    fn check_handles_of(&mut self, lab: &Lab, op: &Operation) {
        let steps: Vec<String> = op
            .effects
            .iter()
            .filter(|e| e.recovery.strategy == Strategy::Local && e.state == EffectState::Applied)
            .map(|e| e.name.clone())
            .collect();
        for step in steps {
            let made = self
                .books
                .handles
                .values()
                .map(|k| k.changes.iter().filter(|(of, s)| *of == op.id && *s == step).count())
                .sum::<usize>();
            let gone = self
                .books
                .about
                .get(&op.id)
                .is_some_and(|text| self.books.destroyed.contains(&ledger::handle::id_hash(text)));
            if made != 1 && !gone {
                let what = format!("{} completed, and its step `{step}` was made {made} times", op.id);
                lab.fail(self, "handle_once", what);
            }
        }
    }

    /// Whether these changes can be made; if so they are, all of them.
    pub fn change_handles(
        &mut self,
        lab: &Lab,
        op: &Operation,
        before: &Operation,
        changes: &[HandleChange],
    ) -> Option<Committed> {
        for c in changes {
            let there = self
                .books
                .handles
                .get(c.id_hash())
                .filter(|k| k.handle.principal == *c.principal() && c.at() < k.handle.expires_at());
            let fits = match c {
                HandleChange::Create(h) => !self.books.handles.contains_key(&h.id_hash),
                HandleChange::Update { expected, .. } => there.is_some_and(|k| k.handle.version == *expected),
                HandleChange::Destroy { expected, .. } => {
                    there.is_some_and(|k| expected.is_none_or(|e| e == k.handle.version))
                }
            };
            if !fits {
                self.coverage.travel("handle moved");
                return Some(Committed::HandleMoved);
            }
        }
        let step = op.effects.get(before.effects.len()).map_or_else(String::new, |e| e.name.clone());
        for c in changes {
            self.check_change(lab, op, &step, c);
            match c {
                HandleChange::Create(h) => {
                    let changes = vec![(op.id, step.clone())];
                    self.books.handles.insert(h.id_hash, Kept { handle: h.clone(), changes });
                }
                HandleChange::Update { id_hash, value, at, .. } => {
                    if let Some(k) = self.books.handles.get_mut(id_hash) {
                        k.handle.value.clone_from(value);
                        k.handle.version += 1;
                        k.handle.used_at = k.handle.used_at.max(*at);
                        k.changes.push((op.id, step.clone()));
                    }
                }
                HandleChange::Destroy { id_hash, .. } => {
                    self.books.handles.remove(id_hash);
                    self.books.destroyed.insert(*id_hash);
                }
            }
        }
        None
    }

    fn check_change(&mut self, lab: &Lab, op: &Operation, step: &str, c: &HandleChange) {
        self.coverage.travel("handle changed");
        lab.say(format_args!("{} changes a handle by its step `{step}`", op.id));
        let Some(k) = self.books.handles.get(c.id_hash()) else { return };
        if k.changes.iter().any(|(of, s)| *of == op.id && s == step) {
            let what = format!("{}: its step `{step}` changes a handle once more", op.id);
            return lab.fail(self, "handle_once", what);
        }
        if let HandleChange::Update { value, .. } = c {
            // Tools only ever add their own mark to what is there.
            let mut wanted = k.handle.value.clone();
            wanted.extend_from_slice(format!("|{}", op.id).as_bytes());
            if *value != wanted {
                let what = format!("{}: what another operation wrote into a handle is lost", op.id);
                lab.fail(self, "handle_value", what);
            }
        }
    }

    pub fn handle_of(&self, id_hash: &[u8; 32], principal: &str, now: Time) -> Option<Handle> {
        let there = |k: &&Kept| *k.handle.principal == *principal && now < k.handle.expires_at();
        self.books.handles.get(id_hash).filter(there).map(|k| k.handle.clone())
    }

    pub fn touch(&mut self, id_hash: &[u8; 32], principal: &str, at: Time) {
        if self.handle_of(id_hash, principal, at).is_some()
            && let Some(k) = self.books.handles.get_mut(id_hash)
        {
            k.handle.used_at = k.handle.used_at.max(at);
        }
    }

    pub fn shelved(&self, name: &str, now: Time) -> Option<Shelved> {
        self.books.shelf.get(name).filter(|s| s.until.is_none_or(|t| now < t)).cloned()
    }

    pub fn shelve(
        &mut self,
        name: &str,
        expected: u64,
        data: Vec<u8>,
        until: Option<Time>,
        now: Time,
    ) -> bool {
        use ledger::planted::{Plant, is_out};
        let there = self.shelved(name, now).map_or(0, |s| s.version);
        if there != expected && !is_out(Plant::ShelfWithoutCompareAndSet) {
            return false;
        }
        let version = self.books.shelf.get(name).map_or(0, |s| s.version) + 1;
        self.books.shelf.insert(name.to_owned(), Shelved { version, data, until });
        true
    }

    /// A state that may be used once was let through with this answer.
    pub fn use_once(&mut self, lab: &Lab, state: &str, answer: &[u8]) {
        self.coverage.travel("used once");
        match self.books.used.get(state) {
            Some(first) if first != answer => {
                lab.fail(self, "used_twice", format!("the state {state} was used with two answers"));
            }
            Some(_) => {}
            None => {
                self.books.used.insert(state.to_owned(), answer.to_vec());
            }
        }
    }
}
