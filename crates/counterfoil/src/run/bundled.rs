//! The sandbox provider beside the gateway: the one that already answers at the address, or one started here.

use crate::Error;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpStream;

/// A sandbox provider that can be used.
pub(crate) struct Bundled {
    /// Where it listens.
    pub address: SocketAddr,
    /// It runs in this process.
    own: Option<sandbox::Running>,
}

impl Bundled {
    /// Uses the provider at `listen`, or starts one there with its state in `data`.
    ///
    /// # Errors
    /// [`Error::Sandbox`]: something else uses the address, or the state can't be used.
    pub async fn at(listen: SocketAddr, data: &Path) -> Result<Bundled, Error> {
        if listen.port() != 0 && answers(listen).await {
            tracing::info!(%listen, "using the sandbox provider that already runs");
            return Ok(Bundled { address: listen, own: None });
        }
        let running = sandbox::Sandbox::start(sandbox::Config::new(listen, data)).await?;
        Ok(Bundled { address: running.addr(), own: Some(running) })
    }

    /// Whether it was started here.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Stops it, if it is this process's.
    pub async fn shutdown(self) {
        if let Some(own) = self.own {
            own.shutdown().await;
        }
    }
}

/// Whether a sandbox provider answers there.
pub(crate) async fn answers(address: SocketAddr) -> bool {
    tokio::time::timeout(Duration::from_secs(2), health(address)).await.is_ok_and(|found| found.is_some())
}

async fn health(address: SocketAddr) -> Option<()> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let driver = tokio::spawn(connection);
    let request = Request::get("/_sandbox/health")
        .header(http::header::HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .ok()?;
    let response = sender.send_request(request).await.ok()?;
    let bytes = Limited::new(response.into_body(), 4096).collect().await.ok()?.to_bytes();
    driver.abort();
    let value: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    (value["sandbox"] == "counterfoil").then_some(())
}
