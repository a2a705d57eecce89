//! The methods of the protocol, and the parts that they share.

use crate::call;
use crate::catalog::Catalog;
use crate::changes::Changes;
use crate::metrics::Metrics;
use crate::principal::{ANONYMOUS, Principal};
use crate::runner::GatewayRunner;
use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use http::StatusCode;
use ledger::{Executor, Ledger};
use mcp::constants::{SUPPORTED_VERSIONS, meta, method};
use mcp::error::{Error, RpcError};
use mcp::json::{Limits, Raw, RawObject};
use mcp::server::{Exchange, HttpConfig, Outcome, Responder, Service, Subscription, WireResult};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The extension that announces idempotency keys.
pub const EXTENSION: &str = "dev.counterfoil/idempotency";
/// Where deliveries are acknowledged in a request's `_meta`.
pub const META_ACK: &str = "dev.counterfoil/ack";
/// The most acknowledgements that one request may carry.
const MAX_ACKS: usize = 64;

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
}

pub(crate) struct Shared {
    pub ledger: Arc<Ledger>,
    pub executor: Arc<dyn Executor>,
    pub settings: GatewaySettings,
    pub metrics: Arc<Metrics>,
    pub changes: Changes,
    pub server_info: Raw,
    catalog: RwLock<Arc<Catalog>>,
    listeners: Mutex<Vec<Arc<Subscription>>>,
    draining: AtomicBool,
    ready: AtomicBool,
    discover: Outcome,
}

impl Shared {
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The gateway.
#[derive(Clone)]
pub struct Gateway(pub(crate) Arc<Shared>);

/// A result made here, with `_meta`.
pub(crate) fn complete(text: String, meta: &[(&str, &str)]) -> Outcome {
    let limits = Limits { depth: 128, ..Limits::default() };
    match Raw::parse(text, &limits)
        .map_err(|e| e.to_string())
        .and_then(|raw| WireResult::complete(&raw, meta).map_err(|e| e.to_string()))
    {
        Ok(r) => Outcome::Result(r),
        // A stored or provider's text that can't be framed: say so rather than send a broken message.
        Err(why) => {
            tracing::error!(why, "a result can't be put on the wire");
            Outcome::Error(RpcError::internal(
                "Internal error: the result can't be put on the wire. It is kept; an operator can read it.",
            ))
        }
    }
}

/// `io.modelcontextprotocol/serverInfo`.
#[must_use]
pub fn server_info(name: &str, version: &str) -> Raw {
    crate::answer::raw(&json!({ "name": name, "version": version }))
}

fn discover(s: &GatewaySettings, info: &Raw) -> Outcome {
    let mut body = json!({
        "supportedVersions": SUPPORTED_VERSIONS,
        "capabilities": {
            "tools": { "listChanged": true },
            "extensions": {
                EXTENSION: {
                    "keyCarriers": ["params.idempotencyKey", "_meta", "header", "argument"],
                    "metaKey": crate::keys::META_KEY,
                    "header": "Idempotency-Key",
                    "argument": crate::arguments::KEY_ARGUMENT,
                    "scope": ["principal", "tool", "mode"],
                    "retentionMs": s.retention_ms,
                }
            }
        },
        "ttlMs": s.list_ttl_ms,
        "cacheScope": if s.public_lists { "public" } else { "private" },
    });
    if let Some(i) = &s.instructions {
        body["instructions"] = json!(i);
    }
    complete(body.to_string(), &[(meta::SERVER_INFO, info.as_str())])
}

impl Gateway {
    /// A gateway on its parts.
    #[must_use]
    pub fn new(parts: GatewayParts) -> Gateway {
        let server_info = server_info(&parts.settings.name, &parts.settings.version);
        let discover = discover(&parts.settings, &server_info);
        let shared = Arc::new(Shared {
            ledger: parts.ledger,
            executor: parts.executor,
            settings: parts.settings,
            metrics: parts.metrics,
            changes: parts.changes,
            server_info,
            catalog: RwLock::new(Arc::new(parts.catalog)),
            listeners: Mutex::default(),
            draining: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            discover,
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

    /// Serves other tools from now on, and tells who listens if the lists changed.
    pub fn reload(&self, catalog: Catalog) {
        let changed = {
            let mut now = self.0.catalog.write().unwrap_or_else(PoisonError::into_inner);
            let changed = !now.lists_like(&catalog);
            *now = Arc::new(catalog);
            changed
        };
        if changed {
            let mut listeners = self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.retain(|l| l.notify("notifications/tools/list_changed", None));
        }
    }

    /// Recovery is done: `/readyz` says so from now on.
    pub fn set_ready(&self) {
        self.0.ready.store(true, Ordering::Release);
    }

    /// No new work: `/readyz` says so from now on.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    /// The MCP endpoint and the endpoints for machines.
    ///
    /// # Errors
    /// [`Error::Config`]: the path or a limit is wrong.
    pub fn router(&self, http: HttpConfig) -> Result<Router, Error> {
        let machines = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self.0.clone());
        Ok(mcp::server::router(http, Arc::new(self.clone()))?.merge(machines))
    }
}

async fn readyz(State(s): State<Arc<Shared>>) -> impl IntoResponse {
    if s.draining.load(Ordering::Acquire) {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n");
    }
    if !s.ready.load(Ordering::Acquire) {
        return (StatusCode::SERVICE_UNAVAILABLE, "taking up what an earlier run left behind\n");
    }
    if s.ledger.store().next_attention().await.is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the ledger can't be used\n");
    }
    if s.ledger.store().is_held() {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "restored from a backup: new operations wait for a release\n",
        );
    }
    if s.ledger.store().stats().disk_low {
        return (StatusCode::SERVICE_UNAVAILABLE, "the disk is nearly full: new operations are refused\n");
    }
    (StatusCode::OK, "ready\n")
}

async fn metrics(State(s): State<Arc<Shared>>) -> impl IntoResponse {
    let counts = s.ledger.counts().await.ok();
    let text = s.metrics.text(counts.as_ref(), &s.ledger.store().stats());
    ([(http::header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

/// Who is asking.
pub(crate) fn principal(exchange: &Exchange) -> Arc<str> {
    exchange.caller.extensions.get::<Principal>().map_or_else(|| ANONYMOUS.into(), |p| p.0.clone())
}

impl Service for Gateway {
    fn ready(&self, exchange: &Exchange) -> Option<Outcome> {
        if exchange.meta.get(META_ACK).is_some() {
            return None;
        }
        self.answer_at_once(exchange)
    }

    async fn call(self: Arc<Self>, exchange: Exchange, responder: Responder) {
        self.acknowledge(&exchange).await;
        if let Some(outcome) = self.answer_at_once(&exchange) {
            responder.finish(outcome);
            return;
        }
        match exchange.request.method.as_str() {
            method::TOOLS_CALL => call::tools_call(&self.0, &exchange, responder).await,
            method::LISTEN => self.listen(&exchange, responder).await,
            other => {
                responder.finish(RpcError::method_not_found(other));
            }
        }
    }
}

impl Gateway {
    /// What is answered from memory under any load.
    fn answer_at_once(&self, exchange: &Exchange) -> Option<Outcome> {
        match exchange.request.method.as_str() {
            method::DISCOVER => Some(self.0.discover.clone()),
            method::TOOLS_LIST => Some(self.0.catalog().page(exchange.request.params.as_ref())),
            method::TOOLS_CALL | method::LISTEN => None,
            other => Some(Outcome::Error(RpcError::method_not_found(other))),
        }
    }

    /// Acknowledges the deliveries that a request names; wrong nonces are ignored.
    async fn acknowledge(&self, exchange: &Exchange) {
        let Some(nonces) = exchange.meta.get(META_ACK).and_then(|v| v.read::<Vec<String>>().ok()) else {
            return;
        };
        let principal = principal(exchange);
        for n in nonces.iter().take(MAX_ACKS) {
            self.0.ledger.acknowledge(&principal, n).await;
        }
    }

    /// Change notifications of this process. Only the tool list changes here.
    async fn listen(&self, exchange: &Exchange, responder: Responder) {
        let filter =
            exchange.request.params.as_ref().and_then(|p| p.get("notifications")).and_then(|n| n.object());
        let Some(filter) = filter else {
            responder.finish(RpcError::malformed("params.notifications must be an object"));
            return;
        };
        let wants = |filter: &RawObject, name: &str| match filter.get(name) {
            None => Ok(false),
            Some(v) => v
                .as_bool()
                .ok_or_else(|| RpcError::malformed(format!("params.notifications.{name} must be a boolean"))),
        };
        let tools = match wants(&filter, "toolsListChanged") {
            Ok(t) => t,
            Err(e) => {
                responder.finish(e);
                return;
            }
        };
        let honoured =
            crate::answer::raw(&if tools { json!({ "toolsListChanged": true }) } else { json!({}) });
        let info = self.0.server_info.as_str();
        let subscription = Arc::new(responder.listen(&honoured, &[(meta::SERVER_INFO, info)]));
        if tools {
            let mut listeners = self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.retain(|l| !l.is_ended());
            listeners.push(subscription.clone());
        }
        self.0.metrics.listeners.inc();
        subscription.ended().await;
        self.0.metrics.listeners.dec();
        let mut listeners = self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|l| !l.is_ended());
    }
}
