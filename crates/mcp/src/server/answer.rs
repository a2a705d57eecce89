//! From a request that was admitted to its HTTP response: a call is begun, and its answer becomes one JSON body or a
//! stream.
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::body::{Handover, Single, Stream};
use super::channel::{Channel, First};
use super::connection::Flushes;
use super::streams::Place;
use super::{Endpoint, Exchange, HttpConfig, Responder, Service, dispatch, legacy};
use crate::constants::header;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A request on its way.
pub(super) enum Begun {
    /// Answered already.
    Done(Bytes, StatusCode),
    /// Will be answered here.
    Running(Arc<Channel>),
}

/// Begins to answer. `streams`: whether the client takes messages before the answer; `named`: the session that a
/// legacy client names.
pub(super) async fn begin<S: Service>(
    endpoint: &Endpoint<S>,
    exchange: Exchange,
    named: Option<Arc<str>>,
    streams: bool,
) -> Begun {
    if let Some((message, status)) = dispatch::ready(&*endpoint.service, &exchange) {
        return Begun::Done(message, status);
    }
    let channel = Arc::new(Channel::of(&exchange, streams, endpoint.config.queue));
    let responder = if exchange.caller.revision.is_legacy() {
        match legacy::key(&*endpoint.service, &exchange.caller, named, exchange.request.id.clone()) {
            Ok(key) => {
                Responder::cancellable(channel.clone(), endpoint.config.running.insert(key, channel.clone()))
            }
            Err(error) => {
                let (message, status) = dispatch::message(&exchange, &error.into());
                return Begun::Done(message, status);
            }
        }
    } else {
        Responder::new(channel.clone())
    };
    let service = endpoint.service.clone();
    // A panic, here or later, drops the responder, which answers.
    if let Ok(call) = catch_unwind(AssertUnwindSafe(|| Box::pin(service.call(exchange, responder)))) {
        let _ = dispatch::start(&endpoint.config.tasks, call).await;
    }
    Begun::Running(channel)
}

/// Answers a request, by one JSON body or by a stream, which keeps `place`.
pub(super) async fn answer<S: Service>(
    endpoint: &Endpoint<S>,
    exchange: Exchange,
    named: Option<Arc<str>>,
    events: bool,
    flushes: Option<Arc<Flushes>>,
    place: Option<Place>,
) -> Response {
    let config = &endpoint.config;
    // Clients of the legacy era look for the error of a request in a response that succeeded.
    let legacy = exchange.caller.revision.is_legacy();
    let status_of = |status| if legacy { StatusCode::OK } else { status };
    let channel = match begin(endpoint, exchange, named, events).await {
        Begun::Done(message, status) => return plain(message, status_of(status)),
        Begun::Running(channel) => channel,
    };
    let first = match channel.first(config.large_result) {
        Poll::Ready(first) => first,
        Poll::Pending => Box::pin(wait(config, &channel, events)).await,
    };
    match first {
        First::Answer(last) => {
            let handover = Handover { answer: last.delivery, flushes, whole: false };
            let body = Body::new(Single::new(last.message, handover));
            with_headers(body, status_of(last.status), JSON)
        }
        First::Stream => streamed(config, channel, flushes, place),
    }
}

/// Waits for how the response begins. A client that takes messages before the answer gets some bytes in time.
async fn wait(config: &HttpConfig, channel: &Arc<Channel>, events: bool) -> First {
    let abandon = Abandon(Some(channel.clone()));
    let first = poll_fn(|cx| channel.poll_first(cx, config.large_result));
    let first = if events {
        tokio::time::timeout(config.early_bytes, first).await.unwrap_or(First::Stream)
    } else {
        tokio::select! {
            first = first => first,
            () = drained(config) => {
                channel.give_up();
                poll_fn(|cx| channel.poll_first(cx, config.large_result)).await
            }
        }
    };
    abandon.disarm();
    first
}

/// The server shuts down and calls have had their time.
pub(super) async fn drained(config: &HttpConfig) {
    config.shutdown.cancelled().await;
    tokio::time::sleep(config.drain).await;
}

/// The messages of a channel as an event stream.
pub(super) fn streamed(
    config: &HttpConfig,
    channel: Arc<Channel>,
    flushes: Option<Arc<Flushes>>,
    place: Option<Place>,
) -> Response {
    let shutdown = config.shutdown.clone();
    let body = Stream::new(channel, flushes, config.keep_alive, shutdown, config.drain, place);
    events(Body::new(body))
}

/// An event stream.
pub(super) fn events(body: Body) -> Response {
    // No larger than it has to be: hyper keeps the map for as long as the stream is open.
    let mut headers = HeaderMap::with_capacity(3);
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(header::ACCEL_BUFFERING, HeaderValue::from_static("no"));
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    response
}

/// One message as JSON.
pub(super) fn plain(message: Bytes, status: StatusCode) -> Response {
    with_headers(Body::from(message), status, JSON)
}

/// A status alone.
pub(super) fn bare(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

pub(super) fn with_headers(body: Body, status: StatusCode, kind: HeaderValue) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Tells the call that its client is gone, unless the response took over.
struct Abandon(Option<Arc<Channel>>);

impl Abandon {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Abandon {
    fn drop(&mut self) {
        if let Some(channel) = &self.0 {
            channel.abandon();
        }
    }
}
