//! The methods of the protocol, and the parts that they share.

use crate::answers::{self, Waiting};
use crate::capabilities::Served;
use crate::catalog::{Catalog, List};
use crate::changes::Changes;
use crate::connect::{self, Connections};
use crate::context::Context;
use crate::methods::{self, name};
use crate::metrics::Metrics;
use crate::principal::principal_of;
use crate::runner::GatewayRunner;
use crate::sessions::{LegacySessions, Sessions};
use crate::usage::{Deprecated, Usage};
use crate::views::{View, Views};
use crate::{bridge, call, exec, health, listen, result};
use http::{Extensions, HeaderMap};
use ledger::{Executor, Ledger, Millis};
use mcp::constants::method;
use mcp::error::{Error, RpcError};
use mcp::json::{Raw, RawObject};
use mcp::message::{Id, Notification};
use mcp::server::{
    App, Caller, Client, ClientError, Exchange, HttpConfig, Notifier, Opened, Opening, Outcome, Responder,
    Running, Service, SessionRefusal, Subscription,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use tokio::sync::Semaphore;

use calls::MAX_ACKS;
pub use calls::answer::META_ACK;

/// What the gateway says about itself and how much it takes on.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The server's name: stable across replicas.
    pub name: String,
    /// The product's version.
    pub version: String,
    /// `sandbox` or `production`.
    pub mode: Arc<str>,
    /// What a model should know first.
    pub instructions: Option<String>,
    /// How long clients may keep lists, milliseconds.
    pub list_ttl_ms: i64,
    /// Whether lists are the same for everybody, without authentication.
    pub public_lists: bool,
    /// Default retention, told to clients.
    pub retention_ms: i64,
    /// Calls worked on at a time; more are told to come back.
    pub max_in_flight: usize,
    /// Whether legacy clients over HTTP get sessions.
    pub legacy_sessions: LegacySessions,
    /// How long a session may go unused.
    pub session_idle: Millis,
    /// Whether a state of a request that only reads may be brought back once.
    pub single_use: bool,
}

/// What a gateway is made of.
pub struct GatewayParts {
    /// The ledger; its runner is set by the gateway.
    pub ledger: Arc<Ledger>,
    /// The tools.
    pub catalog: Catalog,
    /// Sends recorded requests of HTTP tools.
    pub executor: Arc<dyn Executor>,
    /// Settings.
    pub settings: GatewaySettings,
    /// Figures; the ledger's observer too.
    pub metrics: Arc<Metrics>,
    /// News of changes.
    pub changes: Changes,
    /// Seals what requests bring back; without it no request is asked to come again.
    pub keeper: Option<seal::Keeper>,
    /// The credentials of principals.
    pub connections: Arc<Connections>,
}

pub(crate) struct Shared {
    pub ledger: Arc<Ledger>,
    pub executor: Arc<dyn Executor>,
    pub settings: GatewaySettings,
    pub metrics: Arc<Metrics>,
    pub changes: Changes,
    pub keeper: Option<seal::Keeper>,
    pub connections: Arc<Connections>,
    /// Requests that legacy clients are asked for.
    pub waiting: Waiting,
    pub server_info: Raw,
    pub sessions: Sessions,
    pub usage: Usage,
    /// Reads worked on: as many as there may be calls.
    pub reads: Semaphore,
    /// The calls that legacy clients may cancel by name.
    pub running: OnceLock<Running>,
    served: RwLock<Arc<Views>>,
    pub draining: AtomicBool,
    pub ready: AtomicBool,
    /// What `/readyz` warns of.
    pub warnings: RwLock<Vec<&'static str>>,
}

impl Shared {
    pub fn views(&self) -> Arc<Views> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What whoever sent a request is served.
    pub fn served(&self, extensions: &Extensions) -> Arc<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).of(extensions).clone()
    }

    /// All there is.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).whole().catalog.clone()
    }

    /// How long a state lives at most.
    pub fn state_ttl(&self) -> Millis {
        self.keeper.as_ref().map_or(Millis::secs(600), seal::Keeper::state_ttl)
    }

    /// What a request brings to native code.
    pub fn context(&self, exchange: &Exchange, timeout: Millis, notifier: Notifier) -> Context {
        let mut context = Context::new(
            principal_of(&exchange.caller.extensions),
            self.settings.mode.clone(),
            timeout,
            self.changes.clone(),
            self.ledger.clone(),
            Some(notifier),
        );
        context.revision = Some(exchange.caller.revision);
        let declared = exchange.meta.client_capabilities();
        if declared.as_str() != "{}" {
            context.capabilities = declared.object().unwrap_or_else(RawObject::empty);
        }
        context
    }

    /// A result made here, as the request's era writes it, with members of `_meta`.
    pub fn result(&self, exchange: &Exchange, text: String, more: &[(&str, &str)]) -> Outcome {
        if exchange.caller.revision.is_legacy() {
            result::legacy(text, more)
        } else {
            result::modern(text, &self.server_info, more)
        }
    }
}

/// How long a list of tools is.
#[derive(Clone, Debug)]
pub struct ToolList {
    /// The view whose list it is; without one, where there is no view.
    pub view: Option<View>,
    /// How many tools it has.
    pub tools: usize,
    /// The bytes of all its pages.
    pub bytes: usize,
}

/// The gateway.
#[derive(Clone)]
pub struct Gateway(pub(crate) Arc<Shared>);

/// `io.modelcontextprotocol/serverInfo`.
#[must_use]
pub fn server_info(name: &str, version: &str) -> Raw {
    crate::answer::raw(&json!({ "name": name, "version": version }))
}

impl Gateway {
    /// A gateway on its parts.
    #[must_use]
    pub fn new(parts: GatewayParts) -> Gateway {
        let server_info = server_info(&parts.settings.name, &parts.settings.version);
        let served = Views::new(parts.catalog, &parts.settings, &server_info, None);
        let store = parts.ledger.store().clone();
        let usage = Usage::new(store.now(), &parts.metrics);
        let bus = parts.ledger.bus().clone();
        parts.changes.connect(&bus);
        let sessions = Sessions::new(
            store,
            bus,
            parts.metrics.clone(),
            parts.settings.legacy_sessions,
            parts.settings.session_idle,
        );
        let reads = Semaphore::new(parts.settings.max_in_flight.min(Semaphore::MAX_PERMITS));
        let shared = Arc::new(Shared {
            ledger: parts.ledger,
            executor: parts.executor,
            settings: parts.settings,
            metrics: parts.metrics,
            changes: parts.changes,
            keeper: parts.keeper,
            connections: parts.connections,
            waiting: Waiting::default(),
            server_info,
            sessions,
            usage,
            reads,
            running: OnceLock::new(),
            served: RwLock::new(Arc::new(served)),
            draining: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            warnings: RwLock::default(),
        });
        #[cfg(feature = "failpoints")]
        if ledger::failpoint::is_armed("reply.mid") {
            mcp::server::MID_REPLY.get_or_init(|| || ledger::failpoint::pass("reply.mid"));
        }
        shared.ledger.set_runner(Arc::new(GatewayRunner(shared.clone())));
        Gateway(shared)
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.0.ledger
    }

    /// The tools as they are now.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog()
    }

    /// The lists of tools as they are now: without a view first, then each view's.
    #[must_use]
    pub fn tool_lists(&self) -> Vec<ToolList> {
        let views = self.0.views();
        let list = |view: Option<&View>, served: &Served| {
            let (tools, bytes) = served.catalog.tools_listed();
            ToolList { view: view.cloned(), tools, bytes }
        };
        let whole = list(None, views.whole());
        std::iter::once(whole).chain(views.all().map(|(view, served)| list(Some(view), served))).collect()
    }

    /// Where changes are told and heard.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.0.changes
    }

    /// Serves another catalog from now on, and tells who listens which lists changed.
    pub fn reload(&self, catalog: Catalog) {
        let before = self.0.views();
        let new = Arc::new(Views::new(catalog, &self.0.settings, &self.0.server_info, Some(&before)));
        let changed = before.changes_to(&new);
        *self.0.served.write().unwrap_or_else(PoisonError::into_inner) = new;
        for change in changed {
            self.0.changes.tell(change);
        }
    }

    /// Hears the other replicas, for as long as it is polled.
    pub async fn heed(&self) {
        bridge::heed(self.0.clone()).await;
    }

    /// Recovery is done: `/readyz` says so from now on.
    pub fn set_ready(&self) {
        self.0.ready.store(true, Ordering::Release);
    }

    /// No new work: `/readyz` says so from now on.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    /// What `/readyz` warns of from now on, a sentence each. Anybody may read it, so it names nothing.
    pub fn set_warnings(&self, warnings: Vec<&'static str>) {
        *self.0.warnings.write().unwrap_or_else(PoisonError::into_inner) = warnings;
    }

    /// A hash of every byte that clients are told without asking for anything in particular: what the server says of
    /// itself and all its lists, in both eras. Equal where two processes serve the same.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for text in self.0.views().texts() {
            hash.update(text.len().to_be_bytes());
            hash.update(text);
        }
        hash.finalize().into()
    }

    /// The MCP endpoint, the endpoints for machines, and the page where principals give credentials of their own, to be served by [`mcp::server::serve`].
    ///
    /// # Errors
    /// [`Error::Config`]: the path or a limit is wrong.
    pub fn app(&self, http: HttpConfig) -> Result<App, Error> {
        let machines = health::router(&self.0);
        let machines = machines.merge(connect::router(&self.0, &http)).merge(exec::router(&self.0, &http));
        if let Some(path) = http.views.iter().find(|path| !self.0.views().has_path(path)) {
            return Err(Error::Config(format!("there is no view at the path '{path}'")));
        }
        let _ = self.0.running.set(http.running.clone());
        Ok(mcp::server::app(http, Arc::new(self.clone()))?.merge(machines))
    }
}

/// -32601, in the words of the request's era.
fn not_served(asked: &str, legacy: bool) -> RpcError {
    let mut e = RpcError::method_not_found(asked);
    if legacy {
        e.message = format!("Method not found: {asked}. Nothing ran; initialize told what is served.");
    }
    e
}

impl Service for Gateway {
    fn ready(&self, exchange: &Exchange) -> Option<Outcome> {
        if exchange.meta.get(META_ACK).is_some() {
            return None;
        }
        let outcome = self.answer_at_once(exchange)?;
        self.count(exchange);
        Some(outcome)
    }

    fn call(self: Arc<Self>, exchange: Exchange, responder: Responder) -> impl Future<Output = ()> + Send {
        // A stream may be open for hours, and be one of thousands: nothing of what other calls need is kept for it.
        if exchange.request.method == method::LISTEN
            && !exchange.caller.revision.is_legacy()
            && exchange.meta.get(META_ACK).is_none()
        {
            self.count(&exchange);
            return listen::listen(&self.0, &exchange, responder);
        }
        Box::pin(self.work(exchange, responder))
    }

    async fn initialize(self: Arc<Self>, caller: Caller, opening: Opening) -> Result<Opened, RpcError> {
        let shared = &self.0;
        let now = shared.ledger.store().now();
        shared.usage.request(now, caller.revision, opening.client_info.as_ref());
        let served = shared.served(&caller.extensions);
        let principal = principal_of(&caller.extensions);
        let session = shared.sessions.open(&caller, &principal, opening, served.mints).await?;
        Ok(Opened { result: served.opened(caller.transport), session })
    }

    async fn client(&self, caller: &Caller) -> Result<Client, SessionRefusal> {
        self.0.sessions.client(caller, &principal_of(&caller.extensions)).await
    }

    async fn end_session(&self, caller: &Caller) -> Result<(), SessionRefusal> {
        let mints = self.0.served(&caller.extensions).mints;
        self.0.sessions.end(caller, &principal_of(&caller.extensions), mints).await
    }

    fn stream(self: Arc<Self>, mut caller: Caller, stream: Subscription) -> impl Future<Output = ()> + Send {
        // They lie in the buffer that the whole request was read into, and nobody asks for them again.
        caller.headers = HeaderMap::new();
        async move { listen::stream(&self.0, &caller, stream).await }
    }

    async fn notified(self: Arc<Self>, _caller: Caller, _notification: Notification) {
        // `notifications/initialized` and `notifications/roots/list_changed` ask for nothing: the roots of a client are
        // never kept. Others are not known, and a notification has no answer.
    }

    async fn response(
        self: Arc<Self>,
        caller: Caller,
        id: String,
        outcome: Result<Raw, ClientError>,
    ) -> Result<(), RpcError> {
        answers::response(&self.0, &caller, &id, outcome).await
    }

    fn cancelled_elsewhere(&self, caller: &Caller, session: &Arc<str>, id: &Id) {
        bridge::cancelled(&self.0, principal_of(&caller.extensions), session.clone(), id);
    }

    fn identity(&self, caller: &Caller) -> Arc<str> {
        principal_of(&caller.extensions)
    }
}

impl Gateway {
    /// Works on a request that isn't answered at once, and answers it.
    async fn work(self: Arc<Self>, exchange: Exchange, responder: Responder) {
        let shared = &self.0;
        self.count(&exchange);
        self.acknowledge(&exchange).await;
        if let Some(outcome) = self.answer_at_once(&exchange) {
            responder.answer(outcome);
            return;
        }
        let asked = exchange.request.method.as_str();
        // As with tools that read: it goes on when its client leaves, so connections alone don't bound it.
        let reads = matches!(asked, name::RESOURCES_READ | name::PROMPTS_GET | name::COMPLETE);
        let reading = reads.then(|| shared.reads.try_acquire());
        if let Some(Err(_)) = reading {
            let (what, advice) = call::BUSY;
            responder.answer(RpcError::unavailable(format!("{what} {advice}")));
            return;
        }
        let outcome = match asked {
            // Boxed, here and in it, so that a call doesn't carry the state of what it isn't about.
            method::TOOLS_CALL => return call::tools_call(shared, &exchange, responder).await,
            method::LISTEN => {
                let stream = listen::listen(shared, &exchange, responder);
                // It keeps what it needs of the request.
                drop(exchange);
                return stream.await;
            }
            method::TASKS_GET if !exchange.caller.revision.is_legacy() => {
                return Box::pin(methods::tasks::get(shared, &exchange, responder)).await;
            }
            method::TASKS_UPDATE if !exchange.caller.revision.is_legacy() => {
                Box::pin(methods::tasks::update(shared, &exchange)).await
            }
            method::TASKS_CANCEL if !exchange.caller.revision.is_legacy() => {
                Box::pin(methods::tasks::cancel(shared, &exchange)).await
            }
            name::RESOURCES_READ => Box::pin(methods::read(shared, &exchange, responder.notifier())).await,
            name::PROMPTS_GET => Box::pin(methods::get(shared, &exchange, responder.notifier())).await,
            name::COMPLETE => Box::pin(methods::complete(shared, &exchange, responder.notifier())).await,
            name::SET_LEVEL => Box::pin(methods::set_level(shared, &exchange)).await,
            name::SUBSCRIBE | name::UNSUBSCRIBE => Box::pin(methods::subscribe(shared, &exchange)).await,
            other => not_served(other, exchange.caller.revision.is_legacy()).into(),
        };
        responder.answer(outcome);
    }

    /// What is answered from memory under any load; `None`: what has to be worked on.
    fn answer_at_once(&self, exchange: &Exchange) -> Option<Outcome> {
        let asked = exchange.request.method.as_str();
        if asked == method::TOOLS_CALL {
            return None;
        }
        let legacy = exchange.caller.revision.is_legacy();
        let served = self.0.served(&exchange.caller.extensions);
        let catalog = &served.catalog;
        let page = |list| Some(catalog.page(list, legacy, exchange.request.params.as_ref()));
        match asked {
            method::DISCOVER if !legacy => Some(served.discover.clone()),
            method::TOOLS_LIST => page(List::Tools),
            name::RESOURCES_LIST if catalog.has_resources() => page(List::Resources),
            name::TEMPLATES_LIST if catalog.has_resources() => page(List::Templates),
            name::PROMPTS_LIST if catalog.has_prompts() => page(List::Prompts),
            name::RESOURCES_READ if catalog.has_resources() => None,
            name::PROMPTS_GET if catalog.has_prompts() => None,
            name::COMPLETE if catalog.has_completions() => None,
            method::LISTEN | method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL if !legacy => {
                None
            }
            name::SET_LEVEL if legacy => None,
            name::SUBSCRIBE | name::UNSUBSCRIBE if legacy && served.subscribes(exchange.caller.transport) => {
                None
            }
            other => Some(not_served(other, legacy).into()),
        }
    }

    /// Counts a request, once.
    fn count(&self, exchange: &Exchange) {
        let now = self.0.ledger.store().now();
        let (revision, client) = (exchange.caller.revision, exchange.meta.client_info());
        self.0.usage.request(now, revision, client);
        let asks_for_logs = if revision.is_legacy() {
            exchange.request.method == name::SET_LEVEL
        } else {
            exchange.meta.log_level().is_some()
        };
        if asks_for_logs {
            self.0.usage.deprecated(now, Deprecated::Logging, client);
        }
    }

    /// Acknowledges the deliveries that a request names; wrong nonces are ignored.
    async fn acknowledge(&self, exchange: &Exchange) {
        let Some(nonces) = exchange.meta.get(META_ACK).and_then(|v| v.read::<Vec<String>>().ok()) else {
            return;
        };
        let principal = principal_of(&exchange.caller.extensions);
        for n in nonces.iter().take(MAX_ACKS) {
            self.0.ledger.acknowledge(&principal, n).await;
        }
    }
}
