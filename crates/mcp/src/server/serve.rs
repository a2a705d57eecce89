//! Accepts connections and serves an endpoint and routes on them, over HTTP/1.1 and HTTP/2.
//!
//! Promises: TCP_NODELAY is on; idle connections stay open for a minute and more (official clients reuse them after
//! that long); the number of connections, the size of heads and the time of everything are bounded; on shutdown
//! nothing new is accepted, open listen streams end with their final result, and calls in flight have `drain` to end.
//!
//! A connection that is kept and closed at the very moment when a request comes over it loses that request, and a balancer
//! in front doesn't send one again that may have changed something. So a shutdown can be announced first
//! ([`serve_announced`]): everything is answered as before, and every answer ends its connection. Then the listener goes:
//! who connects is refused, and a balancer passes that on, because nothing was sent. What is connected by then is answered
//! for a while longer ([`ServeLimits::linger`]), each answer ending its connection, and what is idle after that is closed.
//!
//! A connection may carry a stream that stays open for hours, and there may be thousands, so what one keeps is small: what
//! all have in common is shared, and of the two protocols only the one that is spoken has state.
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::response::Response;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::app::{Answering, App};
use super::connection::{Connection, Flushes, Speaks, Watched};
use super::limits::{Awaited, HeadTimer, Signal};

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
    /// The part of `drain` in which connections that are open when the listener closes may still bring a request.
    pub linger: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        ServeLimits {
            connections: 4096,
            idle: Duration::from_secs(75),
            write_stall: Duration::from_secs(60),
            max_head: 64 << 10,
            drain: Duration::from_secs(30),
            linger: Duration::ZERO,
        }
    }
}

/// Time that a connection without any request yet has for its first one, once nothing more is accepted: it may be on its
/// way.
const FIRST: Duration = Duration::from_millis(250);

/// Time for connections that have begun to be complete, once none begins any more: a way there and back.
const BEGUN: Duration = Duration::from_millis(20);

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
    let permits = Arc::new(Semaphore::new(limits.connections.max(1)));
    let connections = TaskTracker::new();
    let common = Arc::new(Common::new(app.into(), limits));
    let Common { limits, ends, .. } = &*common;
    let begin = |(stream, peer): (TcpStream, SocketAddr), permit: Option<OwnedSemaphorePermit>| {
        let mut one = Serving::new(&common, stream, peer, permit);
        connections.spawn(poll_fn(move |cx| one.poll(cx)));
    };
    let mut told = false;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            () = announced.cancelled(), if !told => {
                told = true;
                ends.announced.give();
            }
            (accepted, permit) = accept(&listener, &permits) => match accepted {
                Ok(accepted) => begin(accepted, permit),
                Err(e) => after_failed(&e).await,
            },
        }
    }
    // Answers that are on their way are the last of their connections now.
    ends.announced.give();
    let end = Instant::now() + limits.drain;
    close(listener, &permits, begin).await;
    connections.close();
    if announced.is_cancelled() {
        let idle = end.min(Instant::now() + limits.linger);
        let _ = timeout_at(idle, connections.wait()).await;
    }
    ends.shutdown.give();
    if timeout_at(end, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "closing connections that did not end in time");
        ends.kill.give();
        connections.wait().await;
    }
}

type Accepted = (io::Result<(TcpStream, SocketAddr)>, Option<OwnedSemaphorePermit>);

/// The next connection, once there is room for one.
async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> Accepted {
    // The semaphore is never closed.
    let permit = permits.clone().acquire_owned().await.ok();
    (listener.accept().await, permit)
}

async fn after_failed(e: &io::Error) {
    // A connection that broke while it waited is its client's affair.
    if !matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        tracing::warn!(error = %e, "a connection could not be accepted; trying again");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Closes the listener so that whoever connects is either served or refused. What waits in the kernel's queue is accepted
/// as its client sees it, and would be reset with the listener. So no connection may begin while the queue is emptied.
async fn close(
    listener: TcpListener,
    permits: &Arc<Semaphore>,
    begin: impl Fn((TcpStream, SocketAddr), Option<OwnedSemaphorePermit>),
) {
    if let Err(e) = begin_none(&listener) {
        tracing::debug!(error = %e, "connections that begin while the listener is closed may be reset");
    }
    let last = Instant::now() + BEGUN;
    while let Ok((accepted, permit)) = timeout_at(last, accept(&listener, permits)).await {
        match accepted {
            Ok(accepted) => begin(accepted, permit),
            Err(e) => after_failed(&e).await,
        }
    }
    if let Ok(listener) = listener.into_std() {
        while let Ok(permit) = permits.clone().try_acquire_owned()
            && let Ok((stream, peer)) = listener.accept()
            && stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            begin((stream, peer), Some(permit));
        }
    }
}

/// Lets the kernel drop what asks for a connection, and nothing else. A client's kernel asks again after a second, and
/// hears then that nobody listens.
#[cfg(target_os = "linux")]
fn begin_none(listener: &TcpListener) -> io::Result<()> {
    use socket2::SockFilter;
    // Classic BPF (Linux: Documentation/networking/filter.rst) over the TCP header: byte 13 holds the flags, and who asks
    // for a connection sets SYN there (RFC 9293, 3.1).
    let (load_byte, jump_if_any, give) = (0x30, 0x45, 0x06);
    socket2::SockRef::from(listener).attach_filter(&[
        SockFilter::new(load_byte, 0, 0, 13),
        SockFilter::new(jump_if_any, 0, 1, 0x02),
        SockFilter::new(give, 0, 0, 0),
        SockFilter::new(give, 0, 0, u32::MAX),
    ])
}

#[cfg(not(target_os = "linux"))]
fn begin_none(_: &TcpListener) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What all connections have in common.
struct Common {
    app: App,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    limits: ServeLimits,
    ends: Ends,
}

impl Common {
    fn new(app: App, limits: ServeLimits) -> Common {
        let (mut http1, mut http2) = (http1::Builder::new(), http2::Builder::new(TokioExecutor::new()));
        // A buffer that is filled by a large read may hold more than its limit, so heads have one of their own.
        http1
            .header_read_timeout(limits.idle)
            .max_buf_size(limits.max_head.max(8192))
            .max_header_size(limits.max_head);
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(limits.idle)
            .max_header_list_size(u32::try_from(limits.max_head).unwrap_or(u32::MAX));
        Common { app, http1, http2, limits, ends: Ends::default() }
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

type Socket = Watched<TcpStream>;

/// A connection as far as it has come.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all connections are of the large variant, and for long"
)]
enum Stage {
    /// It has not been seen yet what the other end speaks; `None` where that just turned out.
    Opening(Option<Box<(Socket, Requests)>>),
    Http1(http1::Connection<TokioIo<Socket>, Requests>),
    Http2(Box<http2::Connection<TokioIo<Socket>, Requests, TokioExecutor>>),
}

/// One connection, served to its end; on shutdown it takes no further request.
struct Serving {
    common: Arc<Common>,
    stage: Stage,
    flushes: Arc<Flushes>,
    announced: Awaited,
    shutdown: Awaited,
    kill: Awaited,
    /// It has been told that a shutdown was announced.
    told: bool,
    /// Its time to bring a first request, once there is a shutdown.
    first: Option<Pin<Box<Sleep>>>,
    stopped: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Serving {
    fn new(
        common: &Arc<Common>,
        stream: TcpStream,
        peer: SocketAddr,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Serving {
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!(error = %e, "TCP_NODELAY could not be set");
        }
        let flushes = Arc::new(Flushes::default());
        let Common { limits, ends, .. } = &**common;
        let socket = Watched::new(stream, flushes.clone(), limits.idle, limits.write_stall);
        let known = Connection { peer, flushes: flushes.clone() };
        let requests = Requests { common: common.clone(), known };
        Serving {
            stage: Stage::Opening(Some(Box::new((socket, requests)))),
            flushes,
            announced: ends.announced.awaited(),
            shutdown: ends.shutdown.awaited(),
            kill: ends.kill.awaited(),
            told: false,
            first: None,
            stopped: false,
            _permit: permit,
            common: common.clone(),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.kill.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut served = self.poll_stage(cx);
        if served.is_pending() && !self.told && self.announced.poll(cx).is_ready() {
            // An answer over HTTP/1.1 says it itself, and before the first request there is nobody to tell.
            self.told = self.has_asked();
            if self.told && matches!(self.stage, Stage::Http2(_)) {
                // The other end is told by a frame, so nothing that is on its way is lost.
                self.wind_down();
                served = self.poll_stage(cx);
            }
        }
        if served.is_pending() && !self.stopped && self.shutdown.poll(cx).is_ready() {
            // Before its first request there is nothing to finish, and it would be closed at once.
            if self.has_asked() || self.poll_first(cx).is_ready() {
                self.stopped = true;
                self.wind_down();
                served = self.poll_stage(cx);
            }
        }
        served.map(|served| {
            if let Err(e) = served {
                tracing::debug!(error = %e, "a connection ended early");
            }
        })
    }

    fn has_asked(&self) -> bool {
        self.flushes.asked.load(Ordering::Acquire)
    }

    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.first.get_or_insert_with(|| Box::pin(sleep(FIRST))).as_mut().poll(cx)
    }

    /// Goes on, from finding out what is spoken to speaking it.
    fn poll_stage(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Early>> {
        if let Stage::Opening(opening) = &mut self.stage {
            let Some(seen) = opening else { return Poll::Ready(Ok(())) };
            let speaks = ready!(seen.0.poll_speaks(cx))?;
            let Some(seen) = opening.take() else { return Poll::Ready(Ok(())) };
            let (socket, requests) = *seen;
            let socket = TokioIo::new(socket);
            self.stage = match speaks {
                Speaks::Http1 => {
                    let mut http1 = self.common.http1.clone();
                    Stage::Http1(http1.timer(HeadTimer::default()).serve_connection(socket, requests))
                }
                Speaks::Http2 => Stage::Http2(Box::new(self.common.http2.serve_connection(socket, requests))),
            };
        }
        match &mut self.stage {
            Stage::Opening(_) => Poll::Ready(Ok(())),
            Stage::Http1(connection) => Pin::new(connection).poll(cx).map_err(Early::from),
            Stage::Http2(connection) => Pin::new(&mut **connection).poll(cx).map_err(Early::from),
        }
    }

    /// It takes no further request.
    fn wind_down(&mut self) {
        match &mut self.stage {
            Stage::Opening(opening) => *opening = None,
            Stage::Http1(connection) => Pin::new(connection).graceful_shutdown(),
            Stage::Http2(connection) => Pin::new(&mut **connection).graceful_shutdown(),
        }
    }
}

/// Why a connection ended before its time.
#[derive(Debug, thiserror::Error)]
enum Early {
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
}

/// Answers the requests of one connection.
struct Requests {
    common: Arc<Common>,
    known: Connection,
}

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        self.known.flushes.asked.store(true, Ordering::Release);
        let one = request.version() < Version::HTTP_2;
        let answer = self.common.app.answer(request, &self.known);
        Answer { answer, last: one.then(|| self.common.clone()) }
    }
}

/// An answer on its way. hyper keeps room for it as long as the connection lasts, so there is next to nothing in it.
struct Answer {
    answer: Answering,
    /// Says whether it is its connection's last, where that is told in the answer.
    last: Option<Arc<Common>>,
}

impl Future for Answer {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(self.answer.as_mut().poll(cx));
        if self.last.as_ref().is_some_and(|common| common.ends.announced.is_given()) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(response))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_are_kept_for_a_minute_and_more() {
        let limits = ServeLimits::default();
        assert!(limits.idle >= std::time::Duration::from_secs(60), "{:?}", limits.idle);
        let streams = crate::server::HttpConfig::default();
        assert!(
            streams.max_streams <= limits.connections / 4 && streams.max_streams_each <= streams.max_streams
        );
    }

    #[test]
    fn a_connection_is_small() {
        // Each open stream has one for as long as it is open, beside the two buffers of 8 KiB that hyper has for it. HTTP/2,
        // whose state is larger, has it elsewhere.
        let size = size_of::<Serving>();
        assert!(size <= 1024, "{size}");
        assert!(size_of::<Answer>() <= 32, "hyper keeps room for one as long");
    }
}
