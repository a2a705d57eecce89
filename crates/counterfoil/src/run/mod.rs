//! A gateway that runs: assembled from a configuration, serving MCP, recovering what was left behind, asked and
//! told by operators over its control socket.

mod assemble;
mod backup;
mod bundled;
mod claim;
mod control;
mod core;
pub(crate) mod credentials;
mod executor;
mod held;
mod limits;
mod lines;
mod opened;
mod origins;
mod replicas;
mod sealing;
pub(crate) mod socket;
pub(crate) mod undecided;
mod views;

#[cfg(feature = "cli")]
pub(crate) use self::core::data_directory;
pub use self::core::{Core, Use};
#[cfg(feature = "cli")]
pub(crate) use assemble::integration;
pub use assemble::{Loaded, load};
pub use control::Operator;
#[cfg(feature = "cli")]
pub(crate) use held::pages;
pub(crate) use held::{Held, Sockets};
pub(crate) use lines::{NAME as LINES, Refused, Terms, greet};

use crate::Error;
use crate::config::Config;
use crate::native::Native;
use crate::stdio;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Starts gateways.
pub struct Server;

impl Server {
    /// Opens the ledger, starts recovery, and serves: the MCP endpoint, `/healthz`, `/readyz`, `/metrics`, the control
    /// socket, and a socket for the clients of other processes. Calls are answered from the start; `/readyz` waits a
    /// second at most for what an earlier run left behind.
    ///
    /// # Errors
    /// [`Error`] says what stands in the way; nothing is left running.
    pub async fn start(config: Config) -> Result<Running, Error> {
        Server::start_with(config, Native::default()).await
    }

    /// The same, with native tools, resources and prompts. They survive [`Running::reload`].
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_with(config: Config, native: Native) -> Result<Running, Error> {
        let mut held = Held::open(config, native, Sockets::Needed).await?;
        let address = held.listen().await?;
        held.begin().await?;
        Ok(Running { held, address })
    }

    /// Serves one client over this process's stdin and stdout, until that one ends or `stop` resolves. Nothing else may
    /// write to stdout. If another process holds the ledger, its tools are served, not these: give every server its own
    /// data directory, or let all that share one offer the same. With `[auth] mode = "api-key"` the client is the owner
    /// of `api_key`.
    ///
    /// # Errors
    /// [`Error`] says what stands in the way of a start; what the client has asked by then is answered.
    pub async fn stdio(
        config: Config,
        native: Native,
        api_key: Option<String>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        // Nobody asks for a reload.
        let (_quiet, reload) = tokio::sync::mpsc::channel(1);
        let again = config.clone();
        let pipes = stdio::stdin().and_then(|input| Ok((input, stdio::stdout()?)));
        let (reader, writer) =
            pipes.map_err(|e| Error::Holder(format!("standard input and output can't be used: {e}")))?;
        let client = stdio::Client { reader, writer, stop, reload, load: move || Ok(again.clone()) };
        stdio::serve(stdio::Reach { config, listen: false, api_key, native }, client).await
    }
}

/// A gateway that runs. Dropping it stops it where it stands; [`Running::shutdown`] ends it in order.
pub struct Running {
    held: Held,
    address: SocketAddr,
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
        format!("http://{reach}{}", self.held.core.config.server.path)
    }

    /// Where the sandbox provider listens, if it is mounted, and whether this process runs it.
    #[must_use]
    pub fn sandbox(&self) -> Option<(SocketAddr, bool)> {
        self.held.core.sandbox()
    }

    /// The ledger's directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        let dir = self.held.core.config.ledger.directory();
        std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())
    }

    /// The configuration it started with, addresses resolved.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.held.core.config
    }

    /// The operators' routes, asked in process.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.held.core.operator()
    }

    /// See [`Core::reload`].
    ///
    /// # Errors
    /// [`Error::Config`]: nothing was changed.
    pub fn reload(&self, new: &Config) -> Result<Vec<&'static str>, Error> {
        self.held.core.reload(new)
    }

    /// Resolves when the ledger has failed for good: the process should end, and be started again.
    pub async fn failed(&self) -> Error {
        Error::Fatal(self.held.core.failed().await)
    }

    /// Announces the end for `[server] shutdown_delay`, while calls are still taken; then takes no more, lets those in
    /// flight end (`shutdown_limit` at most), makes everything durable and lets the ledger go. What outlasts that is taken
    /// up by the next run, or at once by another replica.
    ///
    /// # Errors
    /// [`Error::Store`]: the store had failed; what was answered before is durable all the same.
    pub async fn shutdown(self) -> Result<(), Error> {
        self.held.shutdown(None).await
    }
}

/// Whether a sandbox provider answers at an address.
#[cfg(feature = "cli")]
pub(crate) async fn sandbox_answers(at: SocketAddr) -> bool {
    bundled::answers(at).await
}
