//! Accepts connections and serves an endpoint and routes on them, over HTTP/1.1 and HTTP/2.
//!
//! Promises: TCP_NODELAY is on; idle connections stay open for a minute and more (official clients reuse them after
//! that long); the number of connections, the size of heads and the time of everything are bounded; on shutdown
//! nothing new is accepted, open listen streams end with their final result, and calls in flight have `drain` to end.
//!
//! A connection that is kept and closed at the very moment when a request comes over it loses that request, and a balancer
//! in front doesn't send one again that may have changed something. So a shutdown can be announced first
//! ([`serve_announced`]): everything is answered as before, and every answer ends its connection, until those that are
//! kept have gone by themselves.
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::app::App;
use super::connection::{Connection, Flushes, Watched};
use super::limits::{HeadTimer, Signal};

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

/// Time that a connection without any request yet has for its first one, once nothing more is accepted: it may be on its
/// way.
const FIRST: Duration = Duration::from_millis(250);

/// Serves until `shutdown` is cancelled, then drains. Use the token of [`super::HttpConfig::shutdown`], so that listen
/// streams end too.
pub async fn serve(
    listener: TcpListener,
    app: impl Into<App>,
    shutdown: CancellationToken,
    limits: ServeLimits,
) {
    serve_announced(listener, app, CancellationToken::new(), shutdown, limits).await;
}

/// The same, where a shutdown can be announced: from `announced` on everything is still accepted and answered, over
/// HTTP/1.1 with `Connection: close`, and an HTTP/2 connection is told to open no further stream.
pub async fn serve_announced(
    listener: TcpListener,
    app: impl Into<App>,
    announced: CancellationToken,
    shutdown: CancellationToken,
    limits: ServeLimits,
) {
    let app = app.into();
    let permits = Arc::new(Semaphore::new(limits.connections.max(1)));
    let connections = TaskTracker::new();
    let ends = Ends::default();
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().header_read_timeout(limits.idle).max_buf_size(limits.max_head.max(8192));
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.idle)
        .max_header_list_size(u32::try_from(limits.max_head).unwrap_or(u32::MAX));
    let mut told = false;
    let begin = |stream: TcpStream, peer: SocketAddr, permit: Option<OwnedSemaphorePermit>| {
        let one = connection(http.clone(), app.clone(), stream, peer, limits.clone(), ends.clone());
        connections.spawn(async move {
            one.await;
            drop(permit);
        });
    };
    loop {
        let next = async {
            // The semaphore is never closed.
            let permit = permits.clone().acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            () = announced.cancelled(), if !told => {
                told = true;
                ends.announced.give();
                continue;
            }
            next = next => next,
        };
        match accepted {
            Ok((stream, peer)) => begin(stream, peer, permit),
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
    // Answers that are on their way are the last of their connections now.
    ends.announced.give();
    // What waits in the kernel's queue was accepted as its client sees it, and closing the listener would reset it.
    if let Ok(listener) = listener.into_std() {
        while let Ok(permit) = permits.clone().try_acquire_owned()
            && let Ok((stream, peer)) = listener.accept()
            && stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            begin(stream, peer, Some(permit));
        }
    }
    ends.shutdown.give();
    connections.close();
    if tokio::time::timeout(limits.drain, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "closing connections that did not end in time");
        ends.kill.give();
        connections.wait().await;
    }
}

/// How a connection learns that it is to end.
#[derive(Clone, Default)]
struct Ends {
    /// What is answered from now on is the last.
    announced: Signal,
    /// No further request is taken.
    shutdown: Signal,
    /// It is closed as it stands.
    kill: Signal,
}

/// What a connection has spoken so far.
const NOTHING: u8 = 0;
const HTTP_1: u8 = 1;
const HTTP_2: u8 = 2;

/// Serves one connection to its end; on shutdown it takes no further request.
async fn connection(
    mut http: auto::Builder<TokioExecutor>,
    app: App,
    stream: TcpStream,
    peer: SocketAddr,
    limits: ServeLimits,
    ends: Ends,
) {
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!(error = %e, "TCP_NODELAY could not be set");
    }
    let flushes = Arc::new(Flushes::default());
    http.http1().timer(HeadTimer::default());
    let io = TokioIo::new(Watched::new(stream, flushes.clone(), limits.idle, limits.write_stall));
    let known = Connection { peer, flushes };
    let spoken = AtomicU8::new(NOTHING);
    let service = service_fn(|request: Request<Incoming>| {
        let one = request.version() < Version::HTTP_2;
        spoken.store(if one { HTTP_1 } else { HTTP_2 }, Ordering::Release);
        let answer = app.answer(request, &known);
        let last = one.then(|| ends.announced.clone());
        async move {
            let mut response = answer.await;
            if last.is_some_and(|last| last.is_given()) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let serving = http.serve_connection(io, service);
    tokio::pin!(serving);
    let [mut announced, mut shutdown, mut kill] =
        [&ends.announced, &ends.shutdown, &ends.kill].map(Signal::awaited);
    let mut told = false;
    // Its time to bring a first request, once there is a shutdown.
    let mut first: Option<Pin<Box<Sleep>>> = None;
    let mut stopped = false;
    let ended = poll_fn(|cx| {
        if kill.poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut served = serving.as_mut().poll(cx);
        if served.is_pending() && !told && announced.poll(cx).is_ready() {
            // Which it is is known from its first request on.
            let spoken = spoken.load(Ordering::Acquire);
            told = spoken != NOTHING;
            if spoken == HTTP_2 {
                // The other end is told by a frame, so nothing that is on its way is lost.
                serving.as_mut().graceful_shutdown();
                served = serving.as_mut().poll(cx);
            }
        }
        if served.is_pending() && !stopped && shutdown.poll(cx).is_ready() {
            // Before its first request there is nothing to finish, and it would be closed at once.
            let first = first.get_or_insert_with(|| Box::pin(sleep(FIRST)));
            if spoken.load(Ordering::Acquire) != NOTHING || first.as_mut().poll(cx).is_ready() {
                stopped = true;
                serving.as_mut().graceful_shutdown();
                served = serving.as_mut().poll(cx);
            }
        }
        served
    })
    .await;
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
