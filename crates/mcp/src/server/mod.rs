//! The server side of Streamable HTTP, revision 2026-07-28: one endpoint, one POST per request, answered by one JSON
//! body or by an event stream that ends with the response.
//!
//! Promises: an admitted request is always answered, by -32603 if the service panics or forgets to; a client that
//! goes away never stops the work, it is only told ([`Notifier::gone`]); who answers learns whether the answer was
//! written ([`Delivering`]); a stream never ends without its final response; everything read is bounded.
mod body;
mod channel;
mod connection;
mod handle;
mod responder;
mod serve;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::routing::any;
use http::request::Parts;
use http::{Extensions, HeaderMap};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use connection::Connection;
pub use responder::{Delivering, Delivery, Notifier, Outcome, Responder, Subscription, WireResult};
pub use serve::{ServeLimits, serve};

use crate::error::{Error, RpcError};
use crate::message::Request;
use crate::meta::RequestMeta;
use crate::origin::HostPolicy;

/// Called between the two halves of an answer that names an operation; for crash tests only.
#[cfg(feature = "failpoints")]
pub static MID_REPLY: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

/// An admitted request: its headers agree with its body, its revision is served.
#[derive(Debug)]
pub struct Exchange {
    /// Id, method and parameters.
    pub request: Request,
    /// Its `_meta`.
    pub meta: RequestMeta,
    /// The HTTP headers, for keys and mirrored arguments carried there.
    pub headers: HeaderMap,
    /// What the [`Authenticator`] put in, such as the principal.
    pub extensions: Extensions,
    /// The other end of the connection, if served by [`serve`].
    pub peer: Option<SocketAddr>,
}

/// What answers requests.
pub trait Service: Send + Sync + 'static {
    /// Answers from memory, at once, without a task; `None` hands the request to [`Service::call`]. Meant for what
    /// must stay up and cheap under any load, such as `server/discover` and `tools/list`. Must not block.
    fn ready(&self, _exchange: &Exchange) -> Option<Outcome> {
        None
    }

    /// Answers through the responder. Runs to its end whether the client stays or not.
    fn call(self: Arc<Self>, exchange: Exchange, responder: Responder) -> impl Future<Output = ()> + Send;
}

/// A request refused at the door, before its body was read.
#[derive(Debug)]
pub struct HttpRefusal {
    /// Extra headers, such as `WWW-Authenticate` or `Retry-After`.
    pub headers: HeaderMap,
    /// The body, and in its `http_status` the status.
    pub error: RpcError,
}

impl From<RpcError> for HttpRefusal {
    fn from(error: RpcError) -> HttpRefusal {
        HttpRefusal { headers: HeaderMap::new(), error }
    }
}

/// Who is asking. Consulted before the body is read.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// Gives what the service needs to know, such as the principal; it ends up in [`Exchange::extensions`].
    ///
    /// # Errors
    /// The refusal that is sent.
    async fn authenticate(&self, head: &Parts) -> Result<Extensions, HttpRefusal>;
}

/// How the endpoint behaves.
#[derive(Clone)]
pub struct HttpConfig {
    /// Path of the endpoint; begins with `/`.
    pub path: String,
    /// The bound port, which loopback `Host` headers must name; `None` allows any.
    pub port: Option<u16>,
    /// `Host` names allowed beyond this machine's loopback.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values allowed beyond the endpoint's own on loopback.
    pub allowed_origins: Vec<String>,
    /// Largest request body, in bytes.
    pub max_body: usize,
    /// Time for a request body to arrive.
    pub read_timeout: Duration,
    /// Deepest nesting of a request body.
    pub max_depth: usize,
    /// A call that takes longer than this gets an event stream, so that its client and the proxies on the way see
    /// bytes.
    pub early_bytes: Duration,
    /// Pause between comments on a quiet stream.
    pub keep_alive: Duration,
    /// Responses above this many bytes go as JSON as long as no stream was opened (one official client fails on
    /// events over 1 MiB).
    pub large_result: usize,
    /// Notifications that may wait for a slow reader; a listen stream that falls further behind is ended.
    pub queue: usize,
    /// Who is asking; `None` asks nobody.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Cancelled when the server shuts down: open listen streams end with their final result.
    pub shutdown: CancellationToken,
    /// Time that calls in flight then have; after it their clients get an error, since a connection that just breaks
    /// leaves some of them waiting. Shorter than [`ServeLimits::drain`].
    pub drain: Duration,
    /// The running calls, to wait for before the process ends.
    pub tasks: TaskTracker,
}

impl Default for HttpConfig {
    fn default() -> Self {
        HttpConfig {
            path: "/mcp".into(),
            port: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body: 4 << 20,
            read_timeout: Duration::from_secs(30),
            max_depth: 64,
            early_bytes: Duration::from_secs(2),
            keep_alive: Duration::from_secs(15),
            large_result: 1 << 20,
            queue: 64,
            authenticator: None,
            shutdown: CancellationToken::new(),
            drain: Duration::from_secs(25),
            tasks: TaskTracker::new(),
        }
    }
}

pub(crate) struct Endpoint<S> {
    config: HttpConfig,
    hosts: HostPolicy,
    service: Arc<S>,
}

/// The endpoint as a router, to be mounted beside others and served by [`serve`] (or any other server of axum
/// routers; an answer then counts as written once hyper took its last byte).
///
/// # Errors
/// [`Error::Config`] if the path doesn't begin with `/` or a limit is zero.
pub fn router<S: Service>(config: HttpConfig, service: Arc<S>) -> Result<Router, Error> {
    if !config.path.starts_with('/') || config.path.contains(['{', '}', '?', '#']) {
        let path = &config.path;
        return Err(Error::Config(format!(
            "server.path must be a plain path that begins with '/', not '{path}'"
        )));
    }
    if config.max_body == 0 || config.max_depth == 0 || config.queue == 0 || config.keep_alive.is_zero() {
        return Err(Error::Config("the endpoint's limits must be greater than zero".into()));
    }
    let hosts = HostPolicy::new(config.port, &config.allowed_hosts, &config.allowed_origins);
    let path = config.path.clone();
    let endpoint = Arc::new(Endpoint { config, hosts, service });
    let route = any(move |request: axum::extract::Request| handle::handle(endpoint.clone(), request));
    Ok(Router::new().route(&path, route))
}
