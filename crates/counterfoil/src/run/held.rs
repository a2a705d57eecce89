//! A ledger that this process holds, and what runs on it: the sockets beside it, recovery, and the HTTP endpoint where
//! one is wanted.

use super::lines::{self, Host};
use super::{Core, Use, control};
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

/// See the module. Dropping it stops it where it stands; [`Held::shutdown`] ends it in order.
pub(crate) struct Held {
    pub core: Core,
    /// Serves MCP, a message a line.
    pub host: Arc<Host>,
    token: CancellationToken,
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
    pub async fn open(config: Config, native: Native) -> Result<Held, Error> {
        let core = Core::open_with(config, Use::Work, native).await?;
        let token = CancellationToken::new();
        let tasks = TaskTracker::new();
        let host = Arc::new(Host::new(&core, token.clone(), tasks.clone()));
        let shutdown = token.clone().drop_guard();
        Ok(Held { core, host, token, shutdown, tasks, serving: Vec::new(), control: None })
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
        let router = self.core.gateway.router(http)?;
        let limits = ServeLimits { drain: super::DRAIN, ..ServeLimits::default() };
        let serving = mcp::server::serve(listener, router, self.token.clone(), limits);
        self.serving.push(AbortOnDropHandle::new(tokio::spawn(serving)));
        Ok(address)
    }

    /// Serves the sockets beside the ledger, and takes up what an earlier run left behind.
    ///
    /// # Errors
    /// [`Error::File`]: a socket can't be made.
    pub async fn begin(&mut self) -> Result<(), Error> {
        let dir = self.core.config.ledger.directory().to_owned();
        self.control = Some(control::serve(&dir, self.core.routes(), self.token.clone())?);
        self.serving.push(lines::serve(&dir, self.host.clone())?);
        match self.core.recover().await {
            Ok(0) => {}
            Ok(taken) => tracing::info!(operations = taken, "took up what an earlier run left behind"),
            // The recovery loop tries again; a store that failed for good says so itself.
            Err(e) => tracing::error!(error = %e, "what an earlier run left behind could not be read"),
        }
        self.core.gateway.set_ready();
        Ok(())
    }

    /// Takes no more calls, gives those in flight this much time to end, makes everything durable and lets the ledger
    /// go. What is past its point of no return and outlasts this is taken up by the next run.
    ///
    /// # Errors
    /// [`Error::Store`]: the store had failed; what was answered before is durable all the same.
    pub async fn shutdown(self, drain: Duration) -> Result<(), Error> {
        let Held { core, shutdown, tasks, serving, control, .. } = self;
        core.gateway.drain();
        drop(shutdown);
        tasks.close();
        let ended = async {
            for one in serving {
                let _ = one.await;
            }
            tasks.wait().await;
        };
        let _ = tokio::time::timeout(drain, ended).await;
        core.settle(drain.min(Duration::from_secs(2))).await;
        if let Some(control) = control {
            let _ = tokio::time::timeout(drain, control).await;
        }
        core.close().await
    }
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
