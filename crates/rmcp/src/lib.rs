//! Makes a server of the official Rust SDK (`rmcp`) safe to retry, in one line:
//!
//! ```no_run
//! # use rmcp::{ServerHandler, ServiceExt, transport::stdio};
//! # async fn f(counter: impl ServerHandler) -> Result<(), Box<dyn std::error::Error>> {
//! let counter = counterfoil_rmcp::Durable::sqlite(counter, ".counter")?.start();
//! counter.serve(stdio()).await?.waiting().await?;
//! # Ok(()) }
//! ```
//!
//! [`Durable`] is a [`ServerHandler`](rmcp::ServerHandler) around another one. Everything is passed through, but for calls
//! of tools that may change something. Those are operations of a ledger:
//!
//! - a call with an idempotency key runs once, however often it is sent, and every repetition gets the stored result;
//! - a call without one that is repeated within the guard window, or sent twice at once, never runs a second time by
//!   itself: it joins the first, or is told of it and given the keys with which to say what is meant;
//! - a handler that was interrupted, by a crash or its time limit, is never run again blindly: the operation is in doubt,
//!   unless its author says what makes a repetition safe ([`Recovery`]).
//!
//! To the ledger the wrapped handler's call is one opaque effect. What it sends on its way is its own: it is handed an
//! effect key ([`Ledgered`]) that stays the same for all repetitions, to be passed on to whoever honours one.
//!
//! Modules: `config` (what an author says), `handler` (the methods of the protocol), `call` (from a call to its answer),
//! `seat` (where a handler runs), `run` (attempts), `alone` (a context without a caller), `tools` (what is listed),
//! `stored` (results as they are kept).

mod alone;
mod call;
mod config;
mod handler;
mod run;
mod seat;
mod stored;
mod tools;

pub use config::{Found, LookUp, Recovery};
pub use seat::{Ledgered, META_EFFECT_KEY};

pub use ledger;

/// What the book says, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/recipes/rmcp.md")]
struct Book;

use config::Config;
use ledger::{Ledger, Observer, Settings, Store, Unkeyed};
use rmcp::ServerHandler;
use run::HandlerRunner;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::AbortHandle;

/// A server handler whose calls are operations of a ledger.
///
/// It is not `Clone`: where several are needed, as for every request of the streamable HTTP transport, put it into an
/// [`Arc`], which is a handler too. One handler then serves all sessions.
pub struct Durable<H> {
    handler: Arc<H>,
    config: Arc<Config>,
    store: Arc<dyn Store>,
    running: OnceLock<Running>,
    tools: tools::Known,
}

struct Running {
    ledger: Arc<Ledger>,
    tending: Option<AbortHandle>,
}

/// Why [`Durable::sqlite`] can't open its ledger.
#[cfg(feature = "sqlite")]
pub use ledger_sqlite::OpenError;

impl<H: ServerHandler> Durable<H> {
    /// Makes `handler` durable on `ledger`, which is this server's alone or shared by its replicas.
    ///
    /// What the ledger holds of interrupted calls is taken up with [`Durable::start`], or else with the first request.
    #[must_use]
    pub fn new(handler: H, ledger: Arc<dyn Store>) -> Durable<H> {
        Durable {
            handler: Arc::new(handler),
            config: Arc::default(),
            store: ledger,
            running: OnceLock::new(),
            tools: tools::Known::default(),
        }
    }

    /// The same on a ledger in `folder`, which is made if it isn't there (0700) and is the ledger's alone. One process at
    /// a time has it. Blocks for a few disk writes.
    ///
    /// # Errors
    /// [`OpenError`] says what stands in the way.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(handler: H, folder: impl AsRef<std::path::Path>) -> Result<Durable<H>, OpenError> {
        use ledger::{Env, SystemEnv};
        let env = Arc::new(SystemEnv);
        // A new ledger gets a name that no other has, because effect keys derive from it; an old one keeps its own.
        let name = format!("rmcp-{:032x}", env.random_u128());
        let config = ledger_sqlite::Config::new(folder.as_ref().join("ledger.db"), name);
        let broken = |why: String| tracing::error!("the ledger can't be used any more: {why}");
        let store = ledger_sqlite::SqliteStore::open(config, env, Arc::new(broken))?;
        Ok(Durable::new(handler, store))
    }

    fn with(mut self, set: impl FnOnce(&mut Config)) -> Self {
        set(Arc::make_mut(&mut self.config));
        self
    }

    /// These tools only read: their calls go past the ledger, as often as they are made.
    #[must_use]
    pub fn read_only<N: Into<String>>(self, tools: impl IntoIterator<Item = N>) -> Self {
        self.with(|c| c.read_only.extend(tools.into_iter().map(Into::into)))
    }

    /// Tools annotated with `readOnlyHint: true` only read. Without this, annotations count for nothing.
    #[must_use]
    pub fn trust_annotations(self) -> Self {
        self.with(|c| c.trust_annotations = true)
    }

    /// What makes it safe to run this tool again after it was interrupted. Without it: [`Recovery::None`].
    #[must_use]
    pub fn recovery(self, tool: impl Into<String>, recovery: Recovery) -> Self {
        self.with(|c| drop(c.recovery.insert(tool.into(), recovery)))
    }

    /// An [`ErrorData`](rmcp::ErrorData) of the handler means that nothing happened and nothing will: the same call, made
    /// again, runs. Without this it is a result like any other: kept, and given to every repetition.
    #[must_use]
    pub fn errors_mean_nothing_ran(self) -> Self {
        self.with(|c| c.errors_mean_nothing_ran = true)
    }

    /// Who is calling: the owner of keys and results, from what a verified credential says. It is given the HTTP request,
    /// or `None` over stdio; with `None` as its answer the call is refused. Without this, everybody is `anonymous` and
    /// shares keys and twins with all others, which is right for one user only.
    #[must_use]
    pub fn principal(
        self,
        who: impl Fn(Option<&http::request::Parts>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.with(|c| c.principal = Some(Arc::new(who)))
    }

    /// What happens to a call without a key; [`Unkeyed::Guard`] unless it is said here.
    #[must_use]
    pub fn unkeyed(self, policy: Unkeyed) -> Self {
        self.with(|c| c.unkeyed = policy)
    }

    /// For how long after its delivery a call without a key is a twin of the same call; 5 minutes unless it is said here.
    #[must_use]
    pub fn guard_window(self, window: Duration) -> Self {
        self.with(|c| c.guard_window = window.into())
    }

    /// The longest that the handler may take for one call; 10 minutes unless it is said here. Past it the handler is
    /// dropped, and what it did is not known.
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Self {
        self.with(|c| c.time_limit = limit.into())
    }

    /// How long a result is kept; 7 days unless it is said here.
    #[must_use]
    pub fn retention(self, kept: Duration) -> Self {
        self.with(|c| c.retention = kept.into())
    }

    /// How many calls may be in the handler at once; 1,024 unless it is said here. Past it a new call is told to come again.
    #[must_use]
    pub fn most_at_once(self, calls: usize) -> Self {
        self.with(|c| c.most_at_once = calls.max(1))
    }

    /// The `idempotency_key` argument is not added to the schemas of tools.
    #[must_use]
    pub fn without_key_argument(self) -> Self {
        self.with(|c| c.key_argument = false)
    }

    /// Hears of everything worth counting or telling. Without it, what somebody must look at is logged.
    #[must_use]
    pub fn observer(self, observer: Arc<dyn Observer>) -> Self {
        self.with(|c| c.observer = observer)
    }

    /// Takes up what an earlier process left behind, and keeps the ledger in order from now on. Otherwise that begins with
    /// the first request. Inside a Tokio runtime.
    #[must_use]
    pub fn start(self) -> Self {
        self.running();
        self
    }

    /// The ledger: to list operations, and to decide those that are in doubt.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.running().ledger
    }

    /// The handler inside.
    #[must_use]
    pub fn handler(&self) -> &H {
        &self.handler
    }

    fn running(&self) -> &Running {
        self.running.get_or_init(|| {
            let settings = Settings::default();
            let observer = self.config.observer.clone();
            let ledger = Ledger::new(self.store.clone(), Arc::new(seat::SeatedEnv), settings, observer);
            ledger.set_runner(Arc::new(HandlerRunner::new(self.handler.clone(), self.config.clone())));
            let tended = ledger.clone();
            let tending = tokio::spawn(async move {
                if let Err(e) = tended.recover_orphans().await {
                    tracing::error!(error = %e, "what was left behind could not be read; it is taken up as it becomes due");
                }
                tended.tend().await;
            });
            Running { ledger, tending: Some(tending.abort_handle()) }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(tending) = self.tending.take() {
            tending.abort();
        }
    }
}
