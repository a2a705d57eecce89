//! Accepts connections and serves a router on them, over HTTP/1.1 and HTTP/2.
//!
//! Promises: TCP_NODELAY is on; idle connections stay open for a minute and more (official clients reuse them after
//! that long); the number of connections, the size of heads and the time of everything are bounded; on shutdown
//! nothing new is accepted, open listen streams end with their final result, and calls in flight have `drain` to end.
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use super::connection::{Connection, Flushes, Watched};

/// Limits of the server's connections.
#[derive(Debug, Clone)]
pub struct ServeLimits {
    /// Open connections; more wait in the kernel's queue.
    pub connections: usize,
    /// Time for a request's head to arrive, which includes the idle time before it on a kept connection.
    pub idle: Duration,
    /// Time that a peer may leave our bytes unread before its connection is closed.
    pub write_stall: Duration,
    /// Largest head of a request, in bytes.
    pub max_head: usize,
    /// Time for connections to end on shutdown, after which they are closed.
    pub drain: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        ServeLimits {
            connections: 4096,
            idle: Duration::from_secs(75),
            write_stall: Duration::from_secs(60),
            max_head: 64 << 10,
            drain: Duration::from_secs(30),
        }
    }
}

/// Serves until `shutdown` is cancelled, then drains. Use the token of [`super::HttpConfig::shutdown`], so that listen
/// streams end too.
pub async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken, limits: ServeLimits) {
    let permits = Arc::new(Semaphore::new(limits.connections.max(1)));
    let connections = TaskTracker::new();
    let kill = CancellationToken::new();
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_buf_size(limits.max_head.max(8192));
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.idle)
        .max_header_list_size(u32::try_from(limits.max_head).unwrap_or(u32::MAX));
    let http = Arc::new(http);

    loop {
        let next = async {
            // The semaphore is never closed.
            let permit = permits.clone().acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            next = next => next,
        };
        match accepted {
            Ok((stream, peer)) => {
                let one =
                    connection(http.clone(), router.clone(), stream, peer, limits.clone(), shutdown.clone());
                let kill = kill.clone();
                connections.spawn(async move {
                    tokio::select! {
                        () = one => {}
                        () = kill.cancelled() => {}
                    }
                    drop(permit);
                });
            }
            // A connection that broke while it waited is its client's affair.
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::ConnectionAborted | std::io::ErrorKind::ConnectionReset
                ) => {}
            Err(e) => {
                tracing::warn!(error = %e, "a connection could not be accepted; trying again");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.drain, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "closing connections that did not end in time");
        kill.cancel();
        connections.wait().await;
    }
}

/// Serves one connection to its end; on shutdown it takes no further request.
async fn connection(
    http: Arc<auto::Builder<TokioExecutor>>,
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
    limits: ServeLimits,
    shutdown: CancellationToken,
) {
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!(error = %e, "TCP_NODELAY could not be set");
    }
    let flushes = Arc::new(Flushes::default());
    let io = TokioIo::new(Watched::new(stream, flushes.clone(), limits.idle, limits.write_stall));
    let known = Connection { peer, flushes };
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(known.clone());
        let mut router = router.clone();
        async move {
            Ok::<_, Infallible>(router.call(request.map(Body::new)).await.unwrap_or_else(|e| match e {}))
        }
    });
    let serving = http.serve_connection(io, service);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(e) = ended {
        tracing::debug!(error = %e, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::ServeLimits;

    #[test]
    fn idle_connections_are_kept_for_a_minute_and_more() {
        let limits = ServeLimits::default();
        assert!(limits.idle >= std::time::Duration::from_secs(60), "{:?}", limits.idle);
        let streams = crate::server::HttpConfig::default();
        assert!(
            streams.max_streams <= limits.connections / 4 && streams.max_streams_each <= streams.max_streams
        );
    }
}
