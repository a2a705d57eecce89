//! A ledger that this process holds, and what runs on it: the sockets beside it, recovery, and the HTTP endpoint where
//! one is wanted.

use super::claim::Claim;
use super::lines::{self, Host};
use super::{Core, Use, control, core::data_directory};
use crate::Error;
use crate::config::{Auth, Config, LegacySessions};
use crate::native::Native;
use mcp::server::{Authenticator, HttpConfig, ServeLimits};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// The longest that idle connections are still answered once nobody can connect any more: a balancer that kept them
/// either uses them up, one request each, or hears that nobody listens and passes on.
const LINGER: Duration = Duration::from_secs(2);

/// The longest that tokens of principals which are being got are waited for: an answer takes 10 s.
const WRITTEN: Duration = Duration::from_secs(12);

/// Whether the sockets in the data directory are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// They are, or nothing is.
    Needed,
    /// Where the ledger is elsewhere and another process has the directory, this one does without.
    IfFree,
}

/// See the module. Dropping it stops it where it stands; [`Held::shutdown`] ends it in order.
pub(crate) struct Held {
    pub core: Core,
    /// Serves MCP, a message a line.
    pub host: Arc<Host>,
    token: CancellationToken,
    /// The end is announced; everything goes on.
    announced: CancellationToken,
    /// HTTP is served.
    listens: Option<SocketAddr>,
    /// The data directory is this process's. With SQLite the ledger's own lock says so.
    directory: Option<Claim>,
    shutdown: DropGuard,
    tasks: TaskTracker,
    serving: Vec<AbortOnDropHandle<()>>,
    control: Option<AbortOnDropHandle<()>>,
}

impl Held {
    /// Opens the ledger. Nothing is served yet.
    ///
    /// # Errors
    /// [`Error`] says what stands in the way; nothing is left running.
    pub async fn open(config: Config, native: Native, sockets: Sockets) -> Result<Held, Error> {
        let directory = match config.ledger.postgres() {
            None => None,
            Some(place) => {
                data_directory(&place.data)?;
                match Claim::take(&place.data) {
                    Ok(claim) => Some(claim),
                    Err(Error::Directory { .. }) if sockets == Sockets::IfFree => None,
                    Err(e) => return Err(e),
                }
            }
        };
        let core = Core::open_with(config, Use::Serve, native).await?;
        let token = CancellationToken::new();
        let tasks = TaskTracker::new();
        let host = Arc::new(Host::new(&core, token.clone(), tasks.clone()));
        let shutdown = token.clone().drop_guard();
        Ok(Held {
            core,
            host,
            token,
            announced: CancellationToken::new(),
            listens: None,
            directory,
            shutdown,
            tasks,
            serving: Vec::new(),
            control: None,
        })
    }

    /// Serves the MCP endpoint, `/healthz`, `/readyz` and `/metrics`; the bound address.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Endpoint`].
    pub async fn listen(&mut self) -> Result<SocketAddr, Error> {
        let config = &self.core.config;
        let bind = |source| Error::Bind { address: config.server.listen, source };
        let listener = TcpListener::bind(config.server.listen).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let http = HttpConfig {
            path: config.server.path.clone(),
            views: super::views::paths(config),
            port: Some(address.port()),
            allowed_hosts: hosts(config),
            allowed_origins: config.server.allowed_origins.clone(),
            max_body: config.server.max_body,
            eras: config.server.eras,
            eras_by_host: config.server.eras_by_host.clone(),
            platform_sessions: config.server.legacy_sessions == LegacySessions::Platform,
            authenticator: match config.auth {
                Auth::None => None,
                Auth::ApiKey => Some(self.core.api_keys.clone() as Arc<dyn Authenticator>),
            },
            shutdown: self.token.clone(),
            tasks: self.tasks.clone(),
            ..HttpConfig::default()
        };
        if let Some(base) = pages(config, address) {
            self.core.connections.serve_at(base);
        }
        let app = self.core.gateway.app(http)?;
        let linger = config.server.shutdown_delay.duration().min(LINGER);
        let limits = ServeLimits { drain: limit(config), linger, ..ServeLimits::default() };
        let (announced, token) = (self.announced.clone(), self.token.clone());
        let serving = mcp::server::serve_announced(listener, app, announced, token, limits);
        self.serving.push(AbortOnDropHandle::new(tokio::spawn(serving)));
        self.listens = Some(address);
        Ok(address)
    }

    /// Serves the sockets beside the ledger, and takes up what an earlier run left behind.
    ///
    /// # Errors
    /// [`Error::File`]: a socket can't be made.
    pub async fn begin(&mut self) -> Result<(), Error> {
        if self.core.config.ledger.postgres().is_none() || self.directory.is_some() {
            let dir = self.core.config.ledger.directory().to_owned();
            self.control = Some(control::serve(&dir, self.core.routes(), self.token.clone())?);
            self.serving.push(lines::serve(&dir, self.host.clone())?);
        }
        self.core.describe(self.listens).await;
        self.core.recover().await;
        self.core.gateway.set_ready();
        Ok(())
    }

    /// Ends in order: says so for a while where a balancer asks (`/readyz`), while everything is answered; then takes no
    /// more calls, gives those in flight time to end, makes everything durable and lets the ledger go. What is past its
    /// point of no return and outlasts this is taken up by the next run, or at once by another replica. `drain`: instead
    /// of what the configuration says, and without an announcement.
    ///
    /// # Errors
    /// [`Error::Store`]: the store had failed; what was answered before is durable all the same.
    pub async fn shutdown(self, drain: Option<Duration>) -> Result<(), Error> {
        let Held { mut core, announced, listens, shutdown, tasks, serving, control, directory, .. } = self;
        core.gateway.drain();
        if drain.is_none() && listens.is_some() {
            announced.cancel();
            tokio::time::sleep(core.config.server.shutdown_delay.duration()).await;
        }
        let drain = drain.unwrap_or_else(|| limit(&core.config));
        core.stop_recovering();
        drop(shutdown);
        tasks.close();
        let ended = async {
            for one in serving {
                let _ = one.await;
            }
            tasks.wait().await;
        };
        let until = tokio::time::Instant::now() + drain;
        let _ = tokio::time::timeout_at(until, ended).await;
        core.settle(drain.min(Duration::from_secs(2))).await;
        // What was got with a code or a refresh token is nowhere else before it is written.
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        core.connections.settle(left.min(WRITTEN)).await;
        if let Some(control) = control {
            let _ = tokio::time::timeout(drain, control).await;
        }
        let closed = core.close().await;
        drop(directory);
        closed
    }
}

fn limit(config: &Config) -> Duration {
    config.server.shutdown_limit.duration()
}

/// Where people reach the pages of this server, if they can: beside the endpoint that is public, or at the loopback address.
pub(crate) fn pages(config: &Config, address: SocketAddr) -> Option<String> {
    let Some(url) = &config.server.public_url else {
        return address.ip().is_loopback().then(|| format!("http://{address}"));
    };
    let url = url.as_str().trim_end_matches('/');
    let base = url.strip_suffix(config.server.path.trim_end_matches('/')).unwrap_or(url);
    Some(base.trim_end_matches('/').to_owned())
}

/// `Host` names beyond loopback: those listed, and that of the public URL.
fn hosts(config: &Config) -> Vec<String> {
    let mut all = config.server.allowed_hosts.clone();
    if let Some(host) = config.server.public_url.as_ref().and_then(|u| u.host_str())
        && !all.iter().any(|h| h == host)
    {
        all.push(host.to_owned());
    }
    all
}
