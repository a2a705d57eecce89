//! Listening, and what happens on the wire.
//!
//! Connections are served by hand on hyper, so that a fault can end one without a byte: a service that returns an
//! error makes hyper drop the connection with nothing written.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State as Extract,
    http::{HeaderValue, header, uri::Authority},
    response::Response,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::{JoinHandle, JoinSet},
};
use tower::ServiceExt;

use crate::{
    Config, Error, Tuning,
    answer::{Fate, Play, Problem},
    class::Class,
    control,
    log::{self, Durable, Log},
    request::Request,
    rules::LONGEST_WAIT,
    shared::Shared,
    state::State,
};

const MAX_CONNECTIONS: usize = 1024;
/// The largest request body, in bytes.
pub(crate) const MAX_BODY: usize = 1024 * 1024;
const BODY_WAIT: Duration = Duration::from_secs(30);
/// Long, because it also ends idle connections, and ending one under a pooling client costs it a request.
const HEAD_WAIT: Duration = Duration::from_secs(300);
/// How long a shutdown waits for requests under way.
const FAREWELL: Duration = Duration::from_secs(1);

/// The sandbox provider.
#[derive(Debug)]
pub struct Sandbox;

impl Sandbox {
    /// Locks the data directory, rebuilds the state from its log, and listens.
    ///
    /// # Errors
    /// [`Error::NotLoopback`], [`Error::Bind`], [`Error::Locked`], [`Error::Data`] or [`Error::Corrupt`]; nothing
    /// is left running then.
    pub async fn start(config: Config) -> Result<Running, Error> {
        let Config { listen, data, fsync, tune } = config;
        if !tune.any_address && !listen.ip().is_loopback() {
            return Err(Error::NotLoopback(listen));
        }
        let bind = |source| Error::Bind { addr: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(bind)?;
        let addr = listener.local_addr().map_err(bind)?;

        let retention = tune.retention;
        let rebuild = move || {
            let opened = log::open(&data, fsync)?;
            let mut state = State::after(opened.after);
            for entry in opened.entries {
                state.apply(entry, retention);
            }
            Ok::<_, Error>((state, opened.log, opened.durable))
        };
        let (state, log, durable) = tokio::task::spawn_blocking(rebuild)
            .await
            .map_err(|error| Error::Stopped(error.to_string()))??;
        Ok(run(listener, addr, (state, log, durable), tune))
    }
}

fn run(
    listener: TcpListener,
    addr: SocketAddr,
    (state, log, durable): (State, Log, watch::Receiver<Durable>),
    tune: Tuning,
) -> Running {
    let (close, closing) = watch::channel(false);
    let shared = Arc::new(Shared::new(state, log, durable, closing.clone(), tune));
    let router = control::routes().fallback(elsewhere).with_state(Arc::clone(&shared));
    let task = tokio::spawn(serve(listener, router, Arc::clone(&shared), closing));
    Running { addr, shared, close, task: Some(task) }
}

/// A sandbox provider that runs. Dropping it stops it where it stands; what was answered is on disk.
#[derive(Debug)]
pub struct Running {
    addr: SocketAddr,
    shared: Arc<Shared>,
    close: watch::Sender<bool>,
    task: Option<JoinHandle<Result<(), Error>>>,
}

impl Running {
    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits until it stops by itself, which it does only when its log can't be written.
    ///
    /// # Errors
    /// [`Error::LogFailed`], or [`Error::Stopped`] if its task broke.
    pub async fn wait(&mut self) -> Result<(), Error> {
        match self.task.as_mut() {
            None => Ok(()),
            Some(task) => {
                let ended = task.await;
                self.task = None;
                ended.unwrap_or_else(|error| Err(Error::Stopped(error.to_string())))
            }
        }
    }

    /// Stops listening, gives requests under way a second, writes the log out and lets go of the directory.
    pub async fn shutdown(mut self) {
        self.close.send_replace(true);
        if let Err(error) = self.wait().await {
            tracing::warn!(%error, "the sandbox provider did not stop cleanly");
        }
        let shared = Arc::clone(&self.shared);
        let _ = tokio::task::spawn_blocking(move || shared.close()).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close.send_replace(true);
        if let Some(task) = &self.task {
            task.abort();
        }
        self.shared.close();
    }
}

async fn serve(
    listener: TcpListener,
    router: Router,
    shared: Arc<Shared>,
    closing: watch::Receiver<bool>,
) -> Result<(), Error> {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    let ended = loop {
        let next = async {
            let permit = Arc::clone(&room).acquire_owned().await;
            (permit, listener.accept().await)
        };
        tokio::select! {
            () = closed(closing.clone()) => break Ok(()),
            () = shared.failed() => break Err(Error::LogFailed),
            Some(_) = connections.join_next() => {}
            (permit, accepted) = next => match accepted {
                Ok((stream, _)) => {
                    let serving = connection(stream, router.clone(), shared.clone(), closing.clone());
                    connections.spawn(async move {
                        serving.await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    // Out of descriptors, or a client that left: the next may succeed.
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    };
    drop(listener);
    let _ = tokio::time::timeout(FAREWELL, async { while connections.join_next().await.is_some() {} }).await;
    connections.shutdown().await;
    ended
}

async fn closed(mut closing: watch::Receiver<bool>) {
    // An error means that the owner is gone, which is an end as well.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Ends a connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection was cut, as a rule asked")]
struct Cut;

async fn connection(stream: TcpStream, router: Router, shared: Arc<Shared>, closing: watch::Receiver<bool>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let service = service_fn(move |request: http::Request<Incoming>| {
        let control = is_control(request.uri().path()).then(|| router.clone());
        let shared = shared.clone();
        async move {
            if let Some(refused) = foreign(&request, shared.tune.any_address) {
                return Ok(refused.answer(Class::Key).into_response(Play::SEND));
            }
            let mut response = match control {
                Some(router) => router
                    .oneshot(request.map(Body::new))
                    .await
                    .unwrap_or_else(|never: Infallible| match never {}),
                None => provider(shared, request).await,
            };
            let play = response.extensions_mut().remove::<Play>().unwrap_or(Play::SEND);
            if !play.after.is_zero() {
                tokio::time::sleep(play.after).await;
            }
            match play.fate {
                Fate::Send => Ok(response),
                Fate::Torn => Ok(torn(response).await),
                Fate::Trickle(pause) => Ok(trickle(response, pause).await),
                Fate::Cut => Err(Cut),
                Fate::Hang => {
                    tokio::time::sleep(LONGEST_WAIT).await;
                    Err(Cut)
                }
            }
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_headers(100)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = closed(closing) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Keeps web pages out: a browser names its page in `Origin`, and a rebound name in `Host`.
fn foreign(request: &http::Request<Incoming>, any_host: bool) -> Option<Problem> {
    let local = |authority: &Authority| {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    let headers = request.headers();
    let host = headers.get(header::HOST).map(|host| Authority::try_from(host.as_bytes()));
    if !any_host && host.is_some_and(|host| !host.is_ok_and(|host| local(&host))) {
        let message = "this server answers to localhost and loopback addresses only; check the Host header";
        return Some(Problem::invalid(403, "wrong_host", message));
    }
    let page = |origin: &HeaderValue| {
        let uri: Option<http::Uri> = origin.to_str().ok().and_then(|text| text.parse().ok());
        !uri.is_some_and(|uri| uri.authority().is_some_and(local))
    };
    headers
        .get(header::ORIGIN)
        .filter(|origin| page(origin))
        .map(|_| Problem::invalid(403, "wrong_origin", "web pages of other origins may not use this server"))
}

/// Half of the body under the length of the whole, a pause in which it is sent, then the end.
async fn torn(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let whole = to_bytes(body, usize::MAX).await.unwrap_or_default();
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
    let half = whole.slice(..whole.len() / 2);
    let end = stream::once(async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Err::<Bytes, _>(Cut)
    });
    Response::from_parts(parts, Body::from_stream(stream::iter([Ok(half)]).chain(end)))
}

/// The body byte by byte, with a pause before each.
async fn trickle(response: Response, pause: Duration) -> Response {
    let (mut parts, body) = response.into_parts();
    let whole = to_bytes(body, usize::MAX).await.unwrap_or_default();
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
    let bytes = stream::unfold(whole, move |mut left| async move {
        if left.is_empty() {
            return None;
        }
        tokio::time::sleep(pause).await;
        Some((Ok::<_, Infallible>(left.split_to(1)), left))
    });
    Response::from_parts(parts, Body::from_stream(bytes))
}

/// Whether a path belongs to the control side: all that its routes could have.
fn is_control(path: &str) -> bool {
    path.starts_with("/_sandbox/")
}

/// The provider side, by the control side's router: a control path that it does not know.
async fn elsewhere(Extract(shared): Extract<Arc<Shared>>, request: axum::extract::Request) -> Response {
    provider(shared, request).await
}

/// The provider side: everything that is not control.
async fn provider<B>(shared: Arc<Shared>, request: http::Request<B>) -> Response
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let refuse = |class, problem: Problem| problem.answer(class).into_response(Play::SEND);
    let whole = Limited::new(body, MAX_BODY).collect();
    let body = match tokio::time::timeout(BODY_WAIT, whole).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let message = "the body is larger than 1 MiB, or was not sent whole";
            return refuse(Class::Key, Problem::invalid(413, "body_too_large", message));
        }
        Err(_) => {
            let message = "the body did not arrive within 30 seconds";
            return refuse(Class::Key, Problem::invalid(408, "body_too_slow", message));
        }
    };
    shared.received.fetch_add(1, Ordering::Relaxed);
    match Request::read(parts.method, &parts.uri, &parts.headers, &body) {
        Err((class, problem)) => refuse(class, problem),
        Ok(request) => {
            let mut answering = Box::pin(shared.answer(request));
            // What waits for nothing is carried out at once, without a task of its own.
            let (answer, play) = match poll_fn(|cx| Poll::Ready(answering.as_mut().poll(cx))).await {
                Poll::Ready(played) => played,
                // Apart from the connection: a provider carries out what it has received, whoever still listens.
                Poll::Pending => tokio::spawn(answering).await.unwrap_or_else(|_| {
                    (Problem::new(500, "api_error", "internal_error", "").answer(Class::Key), Play::CUT)
                }),
            };
            answer.into_response(play)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_log_that_cannot_be_written_answers_nothing_and_stops_the_provider() {
        for fsync in [true, false] {
            is_stopped_by_a_full_disk(fsync).await;
        }
    }

    async fn is_stopped_by_a_full_disk(fsync: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (log, durable) = log::full(fsync).unwrap();
        let mut running = run(listener, addr, (State::default(), log, durable), Tuning::default());
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let body = r#"{"payment":"pay_demo","amount":1}"#;
        let head = "POST /v1/refunds HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer, b"");
        assert!(matches!(running.wait().await, Err(Error::LogFailed)));
        assert!(TcpStream::connect(addr).await.is_err());
    }
}
