//! What an author says about a server and its tools, every default resolved.

use futures_util::future::BoxFuture;
use ledger::effect::Recovery as Pinned;
use ledger::{EffectKey, Millis, Note, Observer, OperationPolicy, Strategy, Unkeyed};
use rmcp::model::{CallToolResult, JsonObject};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Between the handler's time limit and the attempt's: what it came to is still recorded.
const TO_RECORD: Millis = Millis::secs(5);

/// What makes it safe to run a handler again after it was interrupted: each names its own promise.
///
/// A handler that recovery runs again gets the recorded arguments and the effect key, and nothing of the request that
/// brought them: no HTTP headers, no client to ask ([`Ledgered::has_caller`](crate::Ledgered::has_caller) says so).
#[derive(Clone, Debug, Default)]
pub enum Recovery {
    /// Nothing is known to: it is never run again by itself, and in doubt at once. At most one effect, never hidden.
    #[default]
    None,
    /// The handler passes the effect key on to somebody who honours it. Exactly one effect.
    Key {
        /// For how long whoever honours it remembers a key; `None`: for ever. A tenth of it, at most an hour, is left as a
        /// margin, and the handler's time limit has to fit in before that; past it, it is in doubt.
        retained_for: Option<Duration>,
    },
    /// Running it twice leaves the same as running it once.
    Natural,
    /// It can be found out whether it happened. Exactly one effect, unless something stalls for longer than these bounds.
    Lookup {
        /// Finds out.
        find: LookUpFn,
        /// The longest that what the handler sent may be worked on after the handler is gone.
        processing_bound: Duration,
        /// How long what happened may stay invisible.
        visibility_lag: Duration,
    },
}

/// Finds out whether an effect happened: see [`Recovery::lookup`].
#[derive(Clone)]
pub struct LookUpFn(Arc<dyn Fn(LookUp) -> BoxFuture<'static, Found> + Send + Sync>);

impl fmt::Debug for LookUpFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LookUpFn")
    }
}

impl LookUpFn {
    pub(crate) fn ask(&self, what: LookUp) -> BoxFuture<'static, Found> {
        (self.0)(what)
    }
}

/// What is looked for.
#[derive(Clone, Debug)]
pub struct LookUp {
    /// The tool's name.
    pub tool: String,
    /// The arguments of the call.
    pub arguments: JsonObject,
    /// The key that the handler was given.
    pub effect_key: EffectKey,
}

/// What was found.
#[derive(Clone, Debug)]
pub enum Found {
    /// It happened: this is the result of the call.
    Happened(Box<CallToolResult>),
    /// There is no trace of it now.
    Nothing,
    /// The question was not answered. The text is for people.
    Unanswered(String),
}

impl Recovery {
    /// [`Recovery::Lookup`] with the usual bounds: 30 s of processing, 5 s until it can be seen.
    pub fn lookup<F>(find: impl Fn(LookUp) -> F + Send + Sync + 'static) -> Recovery
    where
        F: Future<Output = Found> + Send + 'static,
    {
        Recovery::Lookup {
            find: LookUpFn(Arc::new(move |what| Box::pin(find(what)))),
            processing_bound: Duration::from_secs(30),
            visibility_lag: Duration::from_secs(5),
        }
    }

    /// As the ledger pins it in an intent. One run an attempt: the next one has its own record.
    pub(crate) fn pinned(&self, time_limit: Millis) -> Pinned {
        let new = |strategy| Pinned { send_timeout: time_limit, max_sends: 1, ..Pinned::new(strategy) };
        match self {
            Recovery::None => new(Strategy::None),
            Recovery::Natural => new(Strategy::Natural),
            Recovery::Key { retained_for } => {
                let left = |d: Duration| {
                    let d = Millis::from(d).0;
                    Millis(d - (d / 10).min(3_600_000))
                };
                Pinned { replay_for: retained_for.map(left), ..new(Strategy::Key) }
            }
            Recovery::Lookup { processing_bound, visibility_lag, .. } => Pinned {
                processing_bound: Millis::from(*processing_bound),
                visibility_lag: Millis::from(*visibility_lag),
                ..new(Strategy::Lookup)
            },
        }
    }
}

type Who = dyn Fn(Option<&http::request::Parts>) -> Option<String> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Config {
    pub read_only: HashSet<String>,
    pub trust_annotations: bool,
    pub errors_mean_nothing_ran: bool,
    pub recovery: HashMap<String, Recovery>,
    pub principal: Option<Arc<Who>>,
    pub unkeyed: Unkeyed,
    pub guard_window: Millis,
    pub time_limit: Millis,
    pub retention: Millis,
    pub most_at_once: usize,
    pub key_argument: bool,
    pub observer: Arc<dyn Observer>,
}

impl Default for Config {
    fn default() -> Self {
        let usual = OperationPolicy::default();
        Config {
            read_only: HashSet::new(),
            trust_annotations: false,
            errors_mean_nothing_ran: false,
            recovery: HashMap::new(),
            principal: None,
            unkeyed: Unkeyed::Guard,
            guard_window: usual.guard_window,
            time_limit: Millis::secs(600),
            retention: usual.retention,
            most_at_once: 1024,
            key_argument: true,
            observer: Arc::new(Alerts),
        }
    }
}

impl Config {
    pub fn policy(&self) -> OperationPolicy {
        OperationPolicy {
            guard_window: self.guard_window,
            timeout: Millis(self.time_limit.0.saturating_add(TO_RECORD.0)),
            retention: self.retention,
            ..OperationPolicy::default()
        }
    }

    /// How long a call waits for its result: as long as the handler may take, and a little more.
    pub fn wait(&self) -> Millis {
        Millis(self.time_limit.0.saturating_add(2 * TO_RECORD.0))
    }

    pub fn recovery_of(&self, tool: &str) -> &Recovery {
        static NONE: Recovery = Recovery::None;
        self.recovery.get(tool).unwrap_or(&NONE)
    }
}

/// Logs what somebody must look at.
struct Alerts;

impl Observer for Alerts {
    fn note(&self, note: Note<'_>) {
        if let Note::Alert { what, operation } = note {
            tracing::warn!(operation = %operation.id, tool = %operation.scope.tool, "an operation needs a look: {what}");
        }
    }
}
