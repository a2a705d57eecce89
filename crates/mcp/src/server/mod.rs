//! The server side: Streamable HTTP (one endpoint, one POST per request, answered by one JSON body or by an event
//! stream that ends with the response) and lines (one message a line), each for both eras.
//!
//! Promises: an admitted request is always answered, by -32603 if the service panics or forgets to; a client that
//! goes away never stops the work, it is only told ([`Notifier::gone`]); who answers learns whether the answer was
//! written ([`Delivering`]); a stream never ends without its final response; everything read is bounded.
mod answer;
mod app;
mod ask;
mod batch;
mod body;
mod channel;
mod connection;
mod dispatch;
mod door;
mod era;
mod handle;
mod http_legacy;
mod intake;
mod legacy;
mod limits;
mod lines;
mod refusal;
mod responder;
mod running;
mod serve;
mod streams;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use http::request::Parts;
use http::{Extensions, HeaderMap};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use app::App;
pub use ask::{Asked, ClientError, MAX_ASKED_ID, SessionStreams, Unsent};
pub use door::{Admitted, Door};
pub use lines::{Line, LineReader, LinesConfig, serve_lines};
pub use responder::{Delivering, Delivery, Notifier, Outcome, Responder, Subscription, WireResult};
pub use running::Running;
pub use serve::{ServeLimits, serve, serve_announced};

use crate::error::{Error, RpcError};
use crate::json::{Raw, RawObject};
use crate::message::{Id, Notification, Request};
use crate::meta::{LogLevel, RequestMeta};
use crate::origin::HostPolicy;
use crate::revision::{Eras, Revision};

/// Called between the two halves of an answer that names an operation; for crash tests only.
#[cfg(feature = "failpoints")]
pub static MID_REPLY: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

/// What carried a message here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP.
    Http,
    /// One message a line, over stdio or a socket.
    Lines,
}

/// Where a message comes from.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The revision the message is written in.
    pub revision: Revision,
    /// What carried it.
    pub transport: Transport,
    /// The HTTP headers, for keys and mirrored arguments carried there; empty over lines.
    pub headers: HeaderMap,
    /// What the [`Authenticator`] put in, such as the principal.
    pub extensions: Extensions,
    /// The other end of the connection, if served by [`serve`].
    pub peer: Option<SocketAddr>,
    /// Legacy era: the session it names. Over HTTP that is what the client claims, until [`Service::client`] has
    /// found it; over lines it is what [`Service::initialize`] gave this connection. Always `None` in the modern era.
    pub session: Option<Arc<str>>,
}

/// What an [`Authenticator`] puts beside the principal where this caller is served other eras than the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallersEras(pub Eras);

/// In the [`Caller::extensions`] of what was sent to one of the further paths ([`HttpConfig::views`]): which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtPath(pub Arc<str>);

/// An admitted request: its headers agree with its body, its revision is served.
#[derive(Debug)]
pub struct Exchange {
    /// Id, method and parameters.
    pub request: Request,
    /// Its `_meta`; in the legacy era with what the session knows of the client.
    pub meta: RequestMeta,
    /// Where it comes from.
    pub caller: Caller,
}

/// What a client says when it opens the legacy era.
#[derive(Debug, Clone)]
pub struct Opening {
    /// `clientInfo`, if it is an object.
    pub client_info: Option<Raw>,
    /// `capabilities`; `{}` if left out.
    pub capabilities: Raw,
}

/// The answer to an opening. `protocolVersion` is added by the wire.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The `InitializeResult` object without `protocolVersion`.
    pub result: Raw,
    /// The session, if one was opened: 1 to 255 visible ASCII characters, sent as `Mcp-Session-Id` over HTTP.
    pub session: Option<String>,
}

/// What is known of a legacy client beyond its request.
#[derive(Debug, Clone)]
pub struct Client {
    /// `clientInfo`.
    pub info: Option<Raw>,
    /// `capabilities`.
    pub capabilities: Raw,
    /// Lowest level of log messages wanted.
    pub log_level: Option<LogLevel>,
    /// The revision that its session was opened with. A message that names the session and no revision is of this one.
    pub revision: Option<Revision>,
}

/// Put into the [`Caller::extensions`] of each message of a batch: what its HTTP headers say is said of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InBatch {
    /// How many calls of tools the batch has.
    pub calls: usize,
}

/// Why a session can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRefusal {
    /// It isn't there, or not this caller's (the two can't be told apart): HTTP 404.
    Unknown,
    /// No sessions are kept here, so none can be ended: HTTP 405.
    None,
    /// It can't be looked up at the moment: -32603 for a request; HTTP 503 for what has no response of its own.
    Unavailable,
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

    /// Legacy era: `initialize`. Over lines a session must be opened, since the connection is one.
    ///
    /// # Errors
    /// The refusal that is sent.
    fn initialize(
        self: Arc<Self>,
        _caller: Caller,
        _opening: Opening,
    ) -> impl Future<Output = Result<Opened, RpcError>> + Send {
        std::future::ready(Err(RpcError::method_not_found(crate::constants::method::INITIALIZE)))
    }

    /// Legacy era: what is known of the client. Asked before each request, notification and stream, so it must be
    /// cheap. With [`Caller::session`] the session is looked up and must be the caller's; without one, this says what
    /// holds for a client that nothing is known of.
    ///
    /// # Errors
    /// The session can't be used.
    fn client(&self, _caller: &Caller) -> impl Future<Output = Result<Client, SessionRefusal>> + Send {
        std::future::ready(Ok(Client::default()))
    }

    /// Legacy era: the client ends its session (HTTP DELETE, or the end of its lines).
    ///
    /// # Errors
    /// The session can't be used.
    fn end_session(&self, _caller: &Caller) -> impl Future<Output = Result<(), SessionRefusal>> + Send {
        std::future::ready(Err(SessionRefusal::None))
    }

    /// Legacy era: the client opened its stream for messages outside of requests (HTTP GET; over lines at once after
    /// `initialize`). Feed it until it [ends](Subscription::ended).
    fn stream(self: Arc<Self>, _caller: Caller, _stream: Subscription) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// A notification of the client. `notifications/cancelled` never comes here: the wire acts on it.
    fn notified(
        self: Arc<Self>,
        _caller: Caller,
        _notification: Notification,
    ) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Legacy era: the client answered a request that it was asked under `id`, a string ([`Notifier::request`]); or claims
    /// to: nothing is known of the id but its length. Over HTTP the answer counts as taken when this returns.
    ///
    /// # Errors
    /// It can't be taken at the moment: over HTTP the client gets 503.
    fn response(
        self: Arc<Self>,
        _caller: Caller,
        _id: String,
        _outcome: Result<Raw, ClientError>,
    ) -> impl Future<Output = Result<(), RpcError>> + Send {
        std::future::ready(Ok(()))
    }

    /// A client cancelled a request of a session by name, and none such runs here. Where sessions are served by several
    /// replicas, the one that works on it is to be told: [`Running::cancel_call`]. Without a session nothing is said,
    /// since elsewhere another client's request may have the same id.
    fn cancelled_elsewhere(&self, _caller: &Caller, _session: &Arc<str>, _id: &Id) {}

    /// Who is asking, in one word, so that one caller's cancellation never ends another's call, and one caller's open
    /// streams don't take the room of all others.
    fn identity(&self, _caller: &Caller) -> Arc<str> {
        Arc::from("")
    }
}

impl Default for Client {
    fn default() -> Self {
        Client { info: None, capabilities: RawObject::empty().raw(), log_level: None, revision: None }
    }
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
    /// Gives what the service needs to know, such as the principal; it ends up in [`Caller::extensions`].
    ///
    /// # Errors
    /// The refusal that is sent.
    async fn authenticate(&self, head: &Parts) -> Result<Extensions, HttpRefusal>;
    /// Whether some callers are served other eras than the rest, as [`CallersEras`] beside the principal says.
    fn tells_eras(&self) -> bool {
        false
    }
}

/// How the endpoint behaves.
#[derive(Clone)]
pub struct HttpConfig {
    /// Path of the endpoint; begins with `/`.
    pub path: String,
    /// Further paths of the same endpoint. Requests there carry [`AtPath`].
    pub views: Vec<Arc<str>>,
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
    /// Streams of change notifications (GET, `subscriptions/listen`) that may be open at a time; more are refused. Well
    /// below [`ServeLimits::connections`], which also carry the requests.
    pub max_streams: usize,
    /// How many of them one caller may have open; see [`Service::identity`].
    pub max_streams_each: usize,
    /// Which eras are served.
    pub eras: Eras,
    /// Which eras are served under certain `Host` names (lower case, without port) instead of `eras`. What an
    /// [`Authenticator`] says of its caller ([`CallersEras`]) goes before both.
    pub eras_by_host: Vec<(String, Eras)>,
    /// A `Mcp-Session-Id` that a platform in front of this server minted is taken as it is: it names no session here.
    pub platform_sessions: bool,
    /// Who is asking; `None` asks nobody.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Cancelled when the server shuts down: open listen streams end with their final result.
    pub shutdown: CancellationToken,
    /// Time that calls in flight then have; after it their clients get an error, since a connection that just breaks
    /// leaves some of them waiting. Shorter than [`ServeLimits::drain`].
    pub drain: Duration,
    /// The running calls, to wait for before the process ends.
    pub tasks: TaskTracker,
    /// Those of them that legacy clients may cancel by name.
    pub running: Running,
    /// The streams that legacy sessions have open.
    pub session_streams: SessionStreams,
}

impl Default for HttpConfig {
    fn default() -> Self {
        HttpConfig {
            path: "/mcp".into(),
            views: Vec::new(),
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
            max_streams: 1024,
            max_streams_each: 256,
            eras: Eras::Both,
            eras_by_host: Vec::new(),
            platform_sessions: false,
            authenticator: None,
            shutdown: CancellationToken::new(),
            drain: Duration::from_secs(25),
            tasks: TaskTracker::new(),
            running: Running::default(),
            session_streams: SessionStreams::default(),
        }
    }
}

pub(crate) struct Endpoint<S> {
    config: HttpConfig,
    hosts: HostPolicy,
    service: Arc<S>,
    streams: Arc<streams::Streams>,
}

/// The endpoint as a router, to be mounted beside others and served by [`serve`] (or any other server of axum
/// routers; an answer then counts as written once hyper took its last byte).
///
/// # Errors
/// [`Error::Config`] if the path doesn't begin with `/` or a limit is zero.
pub fn router<S: Service>(config: HttpConfig, service: Arc<S>) -> Result<Router, Error> {
    app(config, service).map(Router::from)
}

/// The endpoint as [`serve`] serves it best: its POST requests don't pass a router.
///
/// # Errors
/// As [`router`].
pub fn app<S: Service>(config: HttpConfig, service: Arc<S>) -> Result<App, Error> {
    for path in std::iter::once(&*config.path).chain(config.views.iter().map(|p| &**p)) {
        if !path.starts_with('/') || path.contains(['{', '}', '?', '#']) {
            return Err(Error::Config(format!(
                "server.path must be a plain path that begins with '/', not '{path}'"
            )));
        }
    }
    let twice = |(i, path): (usize, &Arc<str>)| **path == *config.path || config.views[..i].contains(path);
    if config.views.iter().enumerate().any(twice) {
        return Err(Error::Config("the endpoint has one of its paths twice".into()));
    }
    if config.max_body == 0 || config.max_depth == 0 || config.queue == 0 || config.keep_alive.is_zero() {
        return Err(Error::Config("the endpoint's limits must be greater than zero".into()));
    }
    let hosts = HostPolicy::new(config.port, &config.allowed_hosts, &config.allowed_origins);
    let streams = streams::Streams::new(config.max_streams, config.max_streams_each);
    let endpoint = Endpoint { config, hosts, service, streams };
    Ok(App::of(Arc::new(endpoint)))
}
