//! The way of one HTTP request, in the order of its checks: host and origin, method, principal, media types, body,
//! message, metadata and headers; then the service, and the choice between JSON and a stream.
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;

use super::body::{Handover, Single, Stream};
use super::channel::{Channel, First};
use super::connection::{Connection, Flushes};
use super::{Caller, Endpoint, Exchange, HttpConfig, HttpRefusal, Outcome, Responder, Service, Transport};
use crate::constants::{header, method};
use crate::error::RpcError;
use crate::json::Limits;
use crate::message::{self, Id, Message, Request};
use crate::modern;
use crate::revision::Revision;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A refusal with the id to echo, if one was read.
struct Refusal {
    id: Option<Id>,
    headers: HeaderMap,
    error: RpcError,
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Refusal {
        Refusal { id: None, headers: HeaderMap::new(), error }
    }
}

impl From<HttpRefusal> for Refusal {
    fn from(refusal: HttpRefusal) -> Refusal {
        Refusal { id: None, headers: refusal.headers, error: refusal.error }
    }
}

impl Refusal {
    fn of(status: StatusCode, why: impl std::fmt::Display) -> Refusal {
        RpcError::refused(status, why).into()
    }

    fn with(mut self, name: http::HeaderName, value: &'static str) -> Refusal {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    fn into_response(self) -> Response {
        let mut response = plain(self.error.to_message(self.id.as_ref()), self.error.http_status);
        response.headers_mut().extend(self.headers);
        response
    }
}

pub(super) async fn handle<S: Service>(endpoint: Arc<Endpoint<S>>, request: http::Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    match take(&endpoint, parts, body).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

async fn take<S: Service>(endpoint: &Endpoint<S>, mut parts: Parts, body: Body) -> Result<Response, Refusal> {
    let config = &endpoint.config;
    endpoint.hosts.check(&parts).map_err(|why| Refusal::of(StatusCode::FORBIDDEN, why))?;
    if parts.method != Method::POST {
        let why = "this endpoint takes POST only; sessions and resumable streams belong to earlier revisions";
        return Err(Refusal::of(StatusCode::METHOD_NOT_ALLOWED, why).with(ALLOW, "POST"));
    }
    if let Some(authenticator) = &config.authenticator {
        let known = authenticator.authenticate(&parts).await?;
        parts.extensions.extend(known);
    }
    if !is_json(&parts.headers) {
        let why = "the body must be application/json";
        return Err(Refusal::of(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let accepts = Accepts::of(&parts.headers);
    if !accepts.json {
        let why = "Accept must include application/json";
        return Err(Refusal::of(StatusCode::NOT_ACCEPTABLE, why));
    }
    let body = read(config, &parts.headers, body).await?;
    let limits = Limits { depth: config.max_depth, unique_members: true };
    let request = match message::parse(&body, &limits) {
        Ok(Message::Request(request)) => request,
        // This revision defines none over HTTP; a well-formed one is taken and has no effect.
        Ok(Message::Notification(_)) => {
            let mut accepted = Response::new(Body::empty());
            *accepted.status_mut() = StatusCode::ACCEPTED;
            return Ok(accepted);
        }
        Err(refused) => return Err(Refusal { id: refused.id, ..refused.error.into() }),
    };
    serve(endpoint, parts, request, &accepts).await
}

async fn serve<S: Service>(
    endpoint: &Endpoint<S>,
    parts: Parts,
    request: Request,
    accepts: &Accepts,
) -> Result<Response, Refusal> {
    let config = &endpoint.config;
    let refuse = |id: &Id, error: RpcError| Refusal { id: Some(id.clone()), ..error.into() };
    let meta = modern::admit(&request, &parts.headers).map_err(|error| refuse(&request.id, error))?;
    if request.method == method::LISTEN && !accepts.events {
        let why = "Accept must include text/event-stream for this method";
        return Err(refuse(&request.id, RpcError::refused(StatusCode::NOT_ACCEPTABLE, why)));
    }
    let connection = parts.extensions.get::<Connection>();
    let peer = connection.map(|c| c.peer);
    let flushes = connection.map(|c| c.flushes.clone());
    let caller = Caller {
        revision: Revision::V2026_07_28,
        transport: Transport::Http,
        headers: parts.headers,
        extensions: parts.extensions,
        peer,
        session: None,
    };
    let exchange = Exchange { request, meta, caller };

    match catch_unwind(AssertUnwindSafe(|| endpoint.service.ready(&exchange))) {
        Ok(Some(outcome)) => {
            let (message, status) = outcome.to_message(&exchange.request.id);
            return Ok(plain(message, status));
        }
        Ok(None) => {}
        Err(_) => {
            let failed = Outcome::from(RpcError::internal("Internal error: the server failed. Nothing ran."));
            let (message, status) = failed.to_message(&exchange.request.id);
            return Ok(plain(message, status));
        }
    }

    let channel = Arc::new(Channel::new(
        exchange.request.id.clone(),
        exchange.meta.progress_token().cloned(),
        exchange.meta.log_level(),
        accepts.events,
        config.queue,
    ));
    let abandon = Abandon(Some(channel.clone()));
    start(config, Box::pin(endpoint.service.clone().call(exchange, Responder::new(channel.clone())))).await;
    let first = poll_fn(|cx| channel.poll_first(cx, config.large_result));
    let first = if accepts.events {
        tokio::time::timeout(config.early_bytes, first).await.unwrap_or(First::Stream)
    } else {
        let drained = async {
            config.shutdown.cancelled().await;
            tokio::time::sleep(config.drain).await;
        };
        tokio::select! {
            first = first => first,
            () = drained => {
                channel.give_up();
                poll_fn(|cx| channel.poll_first(cx, config.large_result)).await
            }
        }
    };
    abandon.disarm();
    Ok(match first {
        First::Answer(last) => {
            let handover = Handover { answer: last.delivery, flushes, whole: false };
            let body = Body::new(Single::new(last.message, handover));
            with_headers(body, last.status, JSON)
        }
        First::Stream => streamed(config, channel, flushes),
    })
}

fn streamed(config: &HttpConfig, channel: Arc<Channel>, flushes: Option<Arc<Flushes>>) -> Response {
    let body =
        Body::new(Stream::new(channel, flushes, config.keep_alive, config.shutdown.clone(), config.drain));
    let mut response = with_headers(body, StatusCode::OK, EVENTS);
    response.headers_mut().insert(header::ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Runs a call: its first stretch right here, since many end without waiting; the rest in a task of its own, which a
/// disconnect doesn't touch. A panic drops the call's responder, which answers.
async fn start<F: Future<Output = ()> + Send + 'static>(config: &HttpConfig, mut call: Pin<Box<F>>) {
    let ended = poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
        Poll::Ready(!matches!(polled, Ok(Poll::Pending)))
    })
    .await;
    if !ended {
        config.tasks.spawn(call);
    }
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

fn plain(message: Bytes, status: StatusCode) -> Response {
    with_headers(Body::from(message), status, JSON)
}

fn with_headers(body: Body, status: StatusCode, kind: HeaderValue) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, NO_STORE);
    response
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        let kind = value.as_bytes().split(|b| *b == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
    })
}

/// What the client takes. The specification has it list both media types; a client that lists none, or wildcards,
/// takes anything (RFC 9110, 12.5.1), and one that lists JSON alone never gets a stream.
struct Accepts {
    json: bool,
    events: bool,
}

impl Accepts {
    fn of(headers: &HeaderMap) -> Accepts {
        let mut found = Accepts { json: false, events: false };
        let mut any = false;
        for value in headers.get_all(ACCEPT) {
            if value.as_bytes() == b"application/json, text/event-stream" {
                return Accepts { json: true, events: true };
            }
            for one in value.as_bytes().split(|b| *b == b',') {
                let mut parts = one.split(|b| *b == b';').map(<[u8]>::trim_ascii);
                let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
                if kind.is_empty() {
                    continue;
                }
                any = true;
                let refused = parts.any(|p| {
                    p.get(..2).is_some_and(|q| q.eq_ignore_ascii_case(b"q="))
                        && p[2..].iter().all(|b| matches!(b, b'0' | b'.'))
                });
                if !refused {
                    found.json |= matches!(&kind[..], b"*/*" | b"application/*" | b"application/json");
                    found.events |= matches!(&kind[..], b"*/*" | b"text/*" | b"text/event-stream");
                }
            }
        }
        if any { found } else { Accepts { json: true, events: true } }
    }
}

/// Reads the body within its limits. A body that is too large is read and thrown away up to four times the limit, so
/// that its sender, still writing, gets to see the answer.
async fn read(config: &HttpConfig, headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
    let max = config.max_body;
    let too_large = || {
        let why = format!("the body is larger than {max} bytes");
        Refusal::of(StatusCode::PAYLOAD_TOO_LARGE, why).with(CONNECTION, "close")
    };
    let announced = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if announced
        .is_some_and(|length| length > max.saturating_mul(5) || length > max && headers.contains_key(EXPECT))
    {
        return Err(too_large());
    }
    match tokio::time::timeout(config.read_timeout, collect(body, max)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(too_large()),
        Ok(Err(_)) => Err(RpcError::invalid_request("the body ended before it was complete").into()),
        Err(_) => {
            let why = "the body did not arrive in time";
            Err(Refusal::of(StatusCode::REQUEST_TIMEOUT, why).with(CONNECTION, "close"))
        }
    }
}

/// The whole body; `None` if it is larger than `max`. A body of one piece isn't copied.
async fn collect(mut body: Body, max: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut total = 0usize;
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame?.into_data() else { continue };
        total = total.saturating_add(piece.len());
        if total > max {
            if total > max.saturating_mul(5) {
                return Ok(None);
            }
            rest = BytesMut::new();
        } else if first.is_empty() && rest.is_empty() {
            first = piece;
        } else {
            if rest.is_empty() {
                let expected = body.size_hint().exact().unwrap_or(0) as usize;
                rest.reserve((total + expected).min(max));
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&piece);
        }
        if body.is_end_stream() {
            break;
        }
    }
    Ok(if total > max {
        None
    } else if rest.is_empty() {
        Some(first)
    } else {
        Some(rest.freeze())
    })
}
