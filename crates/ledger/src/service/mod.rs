//! The service on core and store: finds the operation a call belongs to, runs attempts, resumes them,
//! accounts for deliveries.
//!
//! - `place`: which operation does a call belong to;
//! - `admit`: what is it answered;
//! - `open`: how a new one is created;
//! - `told`: the kinds of answers that are no results;
//! - `refuse`: the answers that are no results;
//! - `gate`: whether a new one may be opened just now;
//! - `apply`: events become a write;
//! - `attempt`: one try and its effects;
//! - `ask`: what a try asks, and what it changes in the ledger's own database;
//! - `hold`: claims on what is limited;
//! - `inputs`: answers, approvals and tasks;
//! - `run`: how a try begins and ends;
//! - `live`: who waits for what in this process;
//! - `met`: which keys it met lately;
//! - `recover`: what is left behind is taken up again;
//! - `deliver`: whether results arrived;
//! - `operate`: what operators see and decide.

mod admit;
mod apply;
mod ask;
mod attempt;
mod deliver;
mod gate;
mod hold;
mod inputs;
mod live;
mod met;
mod open;
mod operate;
mod part;
mod place;
mod recover;
mod refuse;
mod run;
mod told;

pub use attempt::{Attempt, Performed, Stopped};
pub use gate::{Admission, Pass};
pub use hold::ReadHold;
pub use live::{Changes, Progress};
pub use operate::{Detail, EffectDetail, OperateError};
pub use told::{CallError, Kind};

use crate::bus::{Alone, Bus};
use crate::claims::Allowance;
use crate::decide::Refusal;
use crate::effect::Intent;
use crate::env::Env;
use crate::input::Ask;
use crate::keys::CallerKey;
use crate::operation::{Operation, OperationPolicy, Unkeyed};
use crate::planted;
use crate::store::{Found, Store, StoreError};
use crate::words::{Millis, OperationId, Scope};
use crate::{Fingerprint, keys};
use async_trait::async_trait;
use serde::Serialize;
use std::sync::{Arc, OnceLock};
use tokio::sync::Semaphore;

/// How the service paces itself.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often waiters read the ledger again without a doorbell.
    pub poll: Millis,
    /// The shortest pause between two rounds of recovery, unless more is due than there was room for.
    pub sweep: Millis,
    /// How many attempts started by recovery do something at a time: each may be at the provider. Those that only wait
    /// don't count.
    pub recover_at_once: usize,
    /// How long tombstones are kept.
    pub tombstones_for: Millis,
    /// How long a `ready` result may wait for its stream.
    pub ready_grace: Millis,
    /// The longest pause between two attempts of recovery.
    pub max_rest: Millis,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            poll: Millis(500),
            sweep: Millis(200),
            recover_at_once: 64,
            tombstones_for: Millis::secs(400 * 86_400),
            ready_grace: Millis::secs(90),
            max_rest: Millis::secs(1800),
        }
    }
}

/// How a call came to an operation that was there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinedBy {
    /// By a key.
    Key,
    /// By the operation's id.
    Operation,
    /// By scope and arguments, inside the guard window.
    Fingerprint,
    /// By a state that named it: the caller's own next leg or round.
    State,
}

impl JoinedBy {
    /// Every way.
    pub const ALL: [JoinedBy; 4] =
        [JoinedBy::Key, JoinedBy::Operation, JoinedBy::Fingerprint, JoinedBy::State];

    /// The word on the wire and in metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            JoinedBy::Key => "key",
            JoinedBy::Operation => "operation",
            JoinedBy::Fingerprint => "fingerprint",
            JoinedBy::State => "state",
        }
    }
}

/// What a call is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The stored result.
    Result {
        /// The record as it was read with the result.
        operation: Arc<Operation>,
        /// The result's bytes, the same for every call.
        result: Arc<[u8]>,
        /// An earlier call produced it.
        replayed: bool,
        /// How this call came to it; absent for the call that opened it.
        joined_by: Option<JoinedBy>,
    },
    /// It waits for these answers: give them with a call that names it, or by [`Ledger::answer`].
    Input {
        /// The record.
        operation: Box<Operation>,
        /// What is asked and not answered yet.
        open: Vec<Ask>,
        /// How this call came to it; absent for the call that opened it.
        joined_by: Option<JoinedBy>,
    },
    /// Nothing was written: call again with this key ([`Unkeyed::Reserve`]). It is good for these arguments in this scope.
    Reserve {
        /// A new key.
        key: String,
    },
    /// Only a person can tell whether its effect happened: ask, and [`Ledger::decide`]; or say
    /// [`Ledger::in_doubt_error`].
    Confirm {
        /// The record.
        operation: Box<Operation>,
        /// What to ask.
        question: String,
        /// How this call came to it.
        joined_by: Option<JoinedBy>,
    },
    /// The time to wait is over and it is still running: make a leg or a task of it, or say
    /// [`Ledger::still_running_error`].
    Running {
        /// The record as it was last read.
        operation: Box<Operation>,
        /// How this call came to it.
        joined_by: Option<JoinedBy>,
    },
    /// Something else.
    Error(Box<CallError>),
    /// The caller's stream closed: nobody is left to answer.
    Gone,
}

/// A call as the ledger sees it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Where it belongs.
    pub scope: Scope,
    /// What it asks.
    pub fingerprint: Fingerprint,
    /// Its key, if it gave one.
    pub key: Option<CallerKey>,
    /// What happens without one.
    pub unkeyed: Unkeyed,
    /// The guard window.
    pub guard_window: Millis,
    /// How long to wait for a result.
    pub wait: Millis,
    /// The operation that a sealed state names. It decides before the key; a key must agree with it.
    pub named: Option<OperationId>,
    /// Answers to what that operation asked, by key, each valid for its question. Other keys count for nothing.
    pub answers: Vec<(String, Vec<u8>)>,
    /// For how long after [`Answer::Running`] the caller counts as present, although nothing of it is open.
    pub lease_of_caller: Millis,
    /// Whether the caller hears how far it is.
    pub hears_progress: bool,
}

/// What a new operation needs; asked for where there is most likely none yet.
#[derive(Clone, Debug)]
pub struct Creation {
    /// Limits.
    pub policy: OperationPolicy,
    /// The one effect's intent, where the tool has exactly one.
    pub intent: Option<Intent>,
    /// Arguments, kept where no intent pins them.
    pub arguments: Option<Vec<u8>>,
    /// What has to be answered before anything of it runs; its intent is no effect before that.
    pub asks: Vec<Ask>,
    /// What it may do only as far as others left something of it. Claimed before it is written; where one of these is
    /// used up, it is not.
    pub allowances: Vec<Allowance>,
    /// Whether it may be opened just now. Asked when there is no such operation, and passed last of all.
    pub gate: Option<Arc<dyn Admission>>,
}

/// What a tool made of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// The final result's bytes.
    pub result: Vec<u8>,
    /// It reports an error.
    pub is_error: bool,
}

/// Why a tool came to no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    /// The ledger stopped it; that is already recorded or is the ledger's to record.
    #[error("stopped by the ledger")]
    Stopped(#[from] Stopped),
    /// The tool gave up by itself. The text is for people and is stored.
    #[error("{0}")]
    Tool(String),
}

/// Runs tools. Implemented by the gateway.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Runs (or resumes) the operation's tool. Effects are caused only through `attempt`.
    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError>;
    /// A result for an operation that ended without its tool: lists what was applied.
    fn account(&self, operation: &Operation, why: &str) -> ToolResult;
}

/// Something worth counting or telling.
#[derive(Clone, Debug)]
pub enum Note<'a> {
    /// An operation was opened.
    Opened(&'a Operation),
    /// A call joined one, or got its stored result.
    Joined(JoinedBy, &'a Operation),
    /// The record changed from one state to another.
    Transition {
        /// Execution state before.
        from: &'static str,
        /// The record now.
        to: &'a Operation,
    },
    /// An event was refused by the record's state.
    Refused(Refusal),
    /// A send ended; the word says how.
    Sent(&'static str),
    /// A crash window was recovered from; the word says which.
    Window(&'static str),
    /// A call was answered with an error of this kind.
    Answered(Kind),
    /// Somebody must look.
    Alert {
        /// What about: `in_doubt`, `undelivered`, `several`, `attempts_used_up`.
        what: &'static str,
        /// The record.
        operation: &'a Operation,
    },
}

/// Hears of everything worth counting.
pub trait Observer: Send + Sync + 'static {
    /// Called in the course of things: must be quick.
    fn note(&self, note: Note<'_>);
}

/// Hears nothing.
pub struct Silent;
impl Observer for Silent {
    fn note(&self, _: Note<'_>) {}
}

/// The ledger.
pub struct Ledger {
    store: Arc<dyn Store>,
    bus: Arc<dyn Bus>,
    env: Arc<dyn Env>,
    settings: Settings,
    observer: Arc<dyn Observer>,
    runner: OnceLock<Arc<dyn Runner>>,
    live: live::Live,
    outbox: deliver::Outbox,
    met: met::Met,
    /// For attempts of recovery.
    places: Arc<Semaphore>,
}

pub(crate) enum ApplyError {
    Refused(Refusal),
    /// A handle is not as the change of it expects, or there are too many. Nothing was written.
    Handle {
        full: bool,
    },
    Gone,
    Store(StoreError),
}

impl From<StoreError> for ApplyError {
    fn from(e: StoreError) -> Self {
        ApplyError::Store(e)
    }
}

impl Ledger {
    /// A ledger on `store`. Give it a runner before the first call, then start recovery.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        env: Arc<dyn Env>,
        settings: Settings,
        observer: Arc<dyn Observer>,
    ) -> Arc<Ledger> {
        Ledger::with_bus(store, Arc::new(Alone::default()), env, settings, observer)
    }

    /// The same beside other replicas, which hear of each other by `bus`. Somebody must pass on what is heard, by
    /// [`Ledger::heard`] and [`Ledger::missed`].
    #[must_use]
    pub fn with_bus(
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
        env: Arc<dyn Env>,
        settings: Settings,
        observer: Arc<dyn Observer>,
    ) -> Arc<Ledger> {
        let places = Arc::new(Semaphore::new(settings.recover_at_once.max(1)));
        Arc::new(Ledger {
            places,
            store,
            bus,
            env,
            settings,
            observer,
            runner: OnceLock::new(),
            live: live::Live::default(),
            outbox: deliver::Outbox::default(),
            met: met::Met::default(),
        })
    }

    /// Says who runs tools. Only the first call counts.
    pub fn set_runner(&self, runner: Arc<dyn Runner>) {
        let _ = self.runner.set(runner);
    }

    /// The store under it.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The bus to the other replicas.
    #[must_use]
    pub fn bus(&self) -> &Arc<dyn Bus> {
        &self.bus
    }

    /// Another replica changed this record: who waits for it here reads it again.
    pub fn heard(&self, id: OperationId) {
        if !planted!(BellNotHeard) {
            self.live.ring(id);
        }
    }

    /// Changes of other replicas may have been missed: everybody who waits here reads again.
    pub fn missed(&self) {
        if !planted!(GapNotHeard) {
            self.live.ring_all();
        }
    }

    /// How many attempts are running in this process.
    #[must_use]
    pub fn running(&self) -> usize {
        self.live.running()
    }

    /// The nonce for a delivery of this operation to this principal.
    #[must_use]
    pub fn ack_nonce(&self, principal: &str, id: OperationId) -> String {
        keys::ack(&self.store.identity().secret, principal, id)
    }

    fn stamp(&self) -> u64 {
        let mut b = [0; 8];
        self.env.random(&mut b);
        u64::from_le_bytes(b)
    }

    async fn read(&self, id: OperationId) -> Result<Option<Operation>, StoreError> {
        Ok(match self.store.by_id(id).await? {
            Some(Found::Operation(op)) => Some(*op),
            _ => None,
        })
    }

    /// Whether nobody is known to wait for the answer any more: the stream closed, or nobody waits here and its replica
    /// is dead or this one. (Under which epoch somebody began to wait here is of no matter.)
    fn caller_gone(&self, op: &Operation) -> bool {
        let waits_here = || self.live.has_callers(op.id) || self.outbox.is_going(op.id);
        let here = op.caller.epoch == self.store.epoch();
        op.caller.gone || ((here || !self.store.is_live(op.caller.epoch)) && !waits_here())
    }
}
