//! A gateway that runs: assembled from a configuration, serving MCP, recovering what was left behind, asked and
//! told by operators over its control socket.

mod assemble;
mod bundled;
mod control;
mod core;
mod executor;
mod origins;

#[cfg(feature = "cli")]
pub(crate) use self::core::data_directory;
pub use self::core::{Core, Use};
pub use assemble::{Loaded, load};
pub use control::Operator;

use crate::Error;
use crate::config::{Auth, Config};
use mcp::server::{Authenticator, HttpConfig, ServeLimits};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// How long calls in flight may take to end on shutdown.
const DRAIN: Duration = Duration::from_secs(30);

/// Starts gateways.
pub struct Server;

impl Server {
    /// Opens the ledger, starts recovery, and serves: the MCP endpoint, `/healthz`, `/readyz`, `/metrics`, and the
    /// control socket. Calls are answered from the start; `/readyz` waits for what an earlier run left behind.
    ///
    /// # Errors
    /// [`Error`] says what stands in the way; nothing is left running.
    pub async fn start(config: Config) -> Result<Running, Error> {
        let mut core = Core::open(config, Use::Work).await?;
        let config = core.config.clone();
        let bind = |source| Error::Bind { address: config.server.listen, source };
        let listener = TcpListener::bind(config.server.listen).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let shutdown = CancellationToken::new();
        let tasks = TaskTracker::new();
        let http = HttpConfig {
            path: config.server.path.clone(),
            port: Some(address.port()),
            allowed_hosts: hosts(&config),
            allowed_origins: config.server.allowed_origins.clone(),
            max_body: config.server.max_body,
            authenticator: match config.auth {
                Auth::None => None,
                Auth::ApiKey => Some(core.api_keys.clone() as Arc<dyn Authenticator>),
            },
            shutdown: shutdown.clone(),
            tasks: tasks.clone(),
            ..HttpConfig::default()
        };
        let router = core.gateway.router(http)?;
        let limits = ServeLimits { drain: DRAIN, ..ServeLimits::default() };
        let control = control::serve(config.ledger.directory(), core.routes(), shutdown.clone())?;
        let serving = AbortOnDropHandle::new(tokio::spawn(mcp::server::serve(
            listener,
            router,
            shutdown.clone(),
            limits,
        )));
        match core.recover().await {
            Ok(0) => {}
            Ok(taken) => tracing::info!(operations = taken, "took up what an earlier run left behind"),
            // The recovery loop tries again; a store that failed for good says so itself.
            Err(e) => tracing::error!(error = %e, "what an earlier run left behind could not be read"),
        }
        core.gateway.set_ready();
        Ok(Running { core, address, shutdown: shutdown.drop_guard(), tasks, serving, control })
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

/// A gateway that runs. Dropping it stops it where it stands; [`Running::shutdown`] ends it in order.
pub struct Running {
    core: Core,
    address: SocketAddr,
    shutdown: DropGuard,
    tasks: TaskTracker,
    serving: AbortOnDropHandle<()>,
    control: AbortOnDropHandle<()>,
}

impl Running {
    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the MCP endpoint, from this machine.
    #[must_use]
    pub fn endpoint(&self) -> String {
        let reach = if self.address.ip().is_unspecified() {
            SocketAddr::from(([127, 0, 0, 1], self.address.port()))
        } else {
            self.address
        };
        format!("http://{reach}{}", self.core.config.server.path)
    }

    /// Where the sandbox provider listens, if it is mounted, and whether this process runs it.
    #[must_use]
    pub fn sandbox(&self) -> Option<(SocketAddr, bool)> {
        self.core.sandbox()
    }

    /// The ledger's directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        let dir = self.core.config.ledger.directory();
        std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())
    }

    /// The configuration it started with, addresses resolved.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// The operators' routes, asked in process.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.core.operator()
    }

    /// See [`Core::reload`].
    ///
    /// # Errors
    /// [`Error::Config`]: nothing was changed.
    pub fn reload(&self, new: &Config) -> Result<Vec<&'static str>, Error> {
        self.core.reload(new)
    }

    /// Resolves when the ledger has failed for good: the process should end, and be started again.
    pub async fn failed(&self) -> Error {
        Error::Fatal(self.core.failed().await)
    }

    /// Takes no more calls, lets those in flight end (30 s at most), makes everything durable and lets the ledger go.
    ///
    /// # Errors
    /// [`Error::Store`]: the store had failed; what was answered before is durable all the same.
    pub async fn shutdown(self) -> Result<(), Error> {
        self.core.gateway.drain();
        drop(self.shutdown);
        let _ = self.serving.await;
        self.tasks.close();
        let _ = tokio::time::timeout(DRAIN, self.tasks.wait()).await;
        // What is past its point of no return is taken up by the next run if it outlasts this.
        self.core.settle(Duration::from_secs(2)).await;
        let _ = self.control.await;
        self.core.close().await
    }
}

/// Whether a sandbox provider answers at an address.
#[cfg(feature = "cli")]
pub(crate) async fn sandbox_answers(at: SocketAddr) -> bool {
    bundled::answers(at).await
}
