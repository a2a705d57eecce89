//! The shared world of a schedule: what every store of it sees, what really happened outside, and what was found.

use crate::books::Books;
use crate::coverage::Coverage;
use crate::limits::Account;
use crate::pg::Server;
use crate::plan::{BASE, Plan};
use crate::provider::Provider;
use crate::rng::Rng;
use crate::semantics::Semantics;
use crate::world::{Home, World, lock};
use ledger::canonical::{self, Fingerprint};
use ledger::store::{StoreError, Tombstone};
use ledger::words::{Epoch, KeyHash, OperationId, SlotHash, Time};
use ledger::{BlobKind, Execution, Operation};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one, in a word.
    pub rule: &'static str,
    /// What was seen.
    pub what: String,
    /// When, in virtual milliseconds from the start.
    pub at: i64,
}

pub(crate) struct Record {
    pub op: Operation,
    pub stamp: u64,
    /// When it was last history for a call without a key, before a write changed that.
    pub was_history: Option<Time>,
    /// It was left behind by a boot that ended: from then on it wants attention.
    pub due: Option<Time>,
    /// Which epoch looks after it, until when in virtual time.
    pub held: Option<(Epoch, i64)>,
}

impl Record {
    pub fn new(op: Operation) -> Record {
        Record { op, stamp: 0, was_history: None, due: None, held: None }
    }
}

/// A boot of a replica, as the database knows it.
pub(crate) struct Lease {
    pub beat: Time,
    /// Since when it is over for good, in virtual time: an exclusive lock passed on, or others ended it.
    pub ended: Option<i64>,
    /// When its lease was last found lapsed.
    pub lapsed: Option<Time>,
    /// Which replica it is, and its process.
    pub replica: usize,
    pub home: Home,
    /// When its lease ends, by the clock of the database's machine.
    pub until: i64,
}

/// What really became of an effect, apart from what anybody was told.
#[derive(Default)]
pub(crate) struct Fact {
    pub applied: u32,
    /// Requests that may still be applied.
    pub in_flight: u32,
    /// A packet was held up for longer than the provider's bounds allow for.
    pub stalled: bool,
    /// A person said what became of it.
    pub word: bool,
    pub key: String,
    /// When its intent became durable, in virtual time.
    pub intended: i64,
}

#[derive(Default)]
pub(crate) struct State {
    pub server: Server,
    pub books: Books,
    pub account: Account,
    pub records: BTreeMap<OperationId, Record>,
    pub blobs: BTreeMap<(OperationId, BlobKind), Vec<u8>>,
    pub keys: HashMap<KeyHash, OperationId>,
    pub slots: HashMap<SlotHash, OperationId>,
    pub graves: BTreeMap<OperationId, (Tombstone, Option<KeyHash>)>,
    pub leases: Vec<Lease>,
    /// A boot is dead when it was ended, and not before: no lease lapses by itself.
    pub ends_for_good: bool,
    pub facts: BTreeMap<(OperationId, String), Fact>,
    pub providers: Vec<Provider>,
    /// Which operation a task created last.
    pub created_by: HashMap<usize, OperationId>,
    /// The operation behind each key of a caller that was answered with a result.
    pub answered: HashMap<KeyHash, OperationId>,
    /// When each process could first know of a result that is there.
    pub heard: HashMap<(Home, OperationId), i64>,
    /// Changes that a process has made and not told the others.
    pub untold: BTreeSet<(Home, OperationId)>,
    /// When each process was last slow through no fault of the ledger.
    pub troubled: HashMap<Home, i64>,
    /// Operations that somebody was told are not there.
    pub said_gone: BTreeSet<OperationId>,
    pub coverage: Coverage,
    pub violation: Option<Violation>,
}

pub(crate) struct Lab {
    pub world: Arc<World>,
    pub plan: Arc<Plan>,
    /// By tool, by number of arguments.
    pub fingerprints: Vec<[Fingerprint; 4]>,
    state: Mutex<State>,
    /// The store's time less virtual time.
    offset: AtomicI64,
    step: AtomicI64,
    calm: AtomicBool,
    pub callers_left: AtomicI64,
    /// Boots so far.
    pub boots: AtomicU64,
}

const NO_STEP: i64 = i64::MIN;
/// The most that a replica's clock is behind the database's.
pub(crate) const LAG: i64 = 8;

impl Lab {
    pub fn new(world: Arc<World>, plan: Arc<Plan>) -> Arc<Lab> {
        let fingerprints = plan.tools.iter().map(|t| [0, 1, 2, 3].map(|n| fingerprint(&t.name, n))).collect();
        let providers =
            (0..plan.tools.len()).map(|n| Provider::new(Rng::new(plan.seed, 100 + n as u64))).collect();
        let callers = plan.callers.len() as i64;
        Arc::new(Lab {
            world,
            fingerprints,
            state: Mutex::new(State {
                providers,
                ends_for_good: plan.semantics != Semantics::Shared,
                server: Server::new(BASE, plan.replicas),
                ..State::default()
            }),
            offset: AtomicI64::new(BASE.0),
            step: AtomicI64::new(NO_STEP),
            calm: AtomicBool::new(false),
            callers_left: AtomicI64::new(callers),
            boots: AtomicU64::new(0),
            plan,
        })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The store's time.
    pub fn time(&self) -> Time {
        Time(self.world.now() + self.offset.load(Relaxed))
    }

    /// Since when intents can't be trusted to be as young as they look.
    pub fn clock_step(&self) -> Option<Time> {
        let t = self.step.load(Relaxed);
        (t != NO_STEP).then_some(Time(t))
    }

    /// Somebody noticed that a clock was set.
    pub fn stepped(&self, at: Time) {
        self.step.fetch_max(at.0, Relaxed);
    }

    /// The store's clock was set ahead by so much (or, with 0, its wall clock was set and it does not follow).
    pub fn set_clock(&self, by: i64) {
        self.offset.fetch_add(by, Relaxed);
        self.step.store(self.time().0, Relaxed);
    }

    pub fn is_postgres(&self) -> bool {
        self.plan.semantics == Semantics::Postgres
    }

    /// The most that the clocks of two replicas differ.
    pub fn lag(&self) -> i64 {
        if self.is_postgres() { LAG } else { 0 }
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Relaxed)
    }
    pub fn calm_down(&self) {
        self.calm.store(true, Relaxed);
    }

    /// A fault of this rate happens now.
    pub fn hits(&self, rng: &mut Rng, rate: u32) -> bool {
        rate > 0 && rng.mille(rate) && !self.is_calm()
    }

    /// What a store answers when it did this: now and then the word of it is lost.
    pub fn told<T>(&self, rng: &Mutex<Rng>, done: impl FnOnce(&Lab) -> T) -> Result<T, StoreError> {
        let lost = self.hits(&mut lock(rng), self.plan.rates.store_uncertain);
        let done = done(self);
        if lost { Err(StoreError::Uncertain("simulated".into())) } else { Ok(done) }
    }

    pub fn say(&self, text: std::fmt::Arguments<'_>) {
        self.world.trace.line(self.world.now(), text);
    }

    /// Keeps the first violation and ends the run.
    pub fn fail(&self, state: &mut State, rule: &'static str, what: String) {
        self.say(format_args!("VIOLATION {rule}: {what}"));
        if state.violation.is_none() {
            state.violation = Some(Violation { rule, what, at: self.world.now() });
        }
        self.world.stop();
    }

    /// Which tool and arguments an operation is about.
    pub fn subject(&self, op: &Operation) -> (usize, usize) {
        let tool = self.tool(op);
        let n = self.fingerprints[tool].iter().position(|f| *f == op.fingerprint).unwrap_or(0);
        (tool, n)
    }

    pub fn tool(&self, op: &Operation) -> usize {
        self.plan.tools.iter().position(|t| *t.name == *op.scope.tool).unwrap_or(0)
    }

    /// Whether some operation can still change by itself.
    pub fn is_busy(&self) -> bool {
        let (now, s) = (self.time(), self.state());
        s.records.values().any(|r| match r.op.execution {
            Execution::Running | Execution::Accepted => true,
            // Nobody may ever answer; then it ends by itself.
            Execution::InputRequired { .. } => crate::books::waits(&r.op),
            // The provider is being asked.
            Execution::InDoubt { .. } => now < r.op.deadline && s.is_live(r.op.owner, now, self.plan.lease),
            _ => false,
        })
    }
}

impl State {
    pub fn lease(&self, epoch: Epoch) -> Option<&Lease> {
        (epoch.0 as usize).checked_sub(1).and_then(|n| self.leases.get(n))
    }

    /// Whether that boot was ended for good.
    pub fn is_over(&self, epoch: Epoch) -> bool {
        self.lease(epoch).is_none_or(|l| l.ended.is_some())
    }

    pub fn is_live(&self, epoch: Epoch, now: Time, lease: i64) -> bool {
        let in_time = |l: &Lease| self.ends_for_good || now.since(l.beat).0 <= lease;
        self.lease(epoch).is_some_and(|l| l.ended.is_none() && in_time(l))
    }

    /// Whether the replica of that boot was thought dead lately: a decision from then may be written now.
    pub fn was_dead(&self, epoch: Epoch, now: Time, lease: i64) -> bool {
        let lapsed = self.lease(epoch).and_then(|l| l.lapsed);
        !self.is_live(epoch, now, lease) || lapsed.is_some_and(|t| now.since(t).0 <= 10_000)
    }

    /// That process was slow through no fault of the ledger.
    pub fn trouble(&mut self, home: Home, at: i64) {
        let t = self.troubled.entry(home).or_default();
        *t = at.max(*t);
    }

    pub fn fact(&mut self, op: OperationId, effect: &str) -> &mut Fact {
        self.facts.entry((op, effect.to_owned())).or_default()
    }
}

fn fingerprint(tool: &str, n: u32) -> Fingerprint {
    let text = format!("{{\"n\":{n}}}");
    match canonical::canonicalise_arguments(Some(&text), None) {
        Ok(c) => Fingerprint::of(tool, &c),
        Err(e) => unreachable!("{e}"),
    }
}
