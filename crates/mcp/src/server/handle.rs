//! The way of one HTTP request, in the order of its checks: host and origin, method, principal, media types, body,
//! message; then its era, and what that one demands.
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::header::ALLOW;
use http::request::Parts;
use http::{Method, StatusCode};
use http_body::Body;

use super::answer::{answer, bare};
use super::connection::{Connection, Flushes};
use super::era::{self, Era};
use super::intake::{Accepts, is_json, read};
use super::refusal::{About, Refusal};
use super::{
    AtPath, Caller, CallersEras, Endpoint, Exchange, Service, Transport, dispatch, http_legacy, streams,
};
use crate::constants::method;
use crate::error::RpcError;
use crate::json::Limits;
use crate::message::{self, Message, Request};
use crate::modern;
use crate::revision::{Eras, Revision};

/// The head of a request, and what it came over, if that is known.
pub(super) struct Head {
    inner: Parts,
    connection: Option<Connection>,
}

impl Deref for Head {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.inner
    }
}

impl DerefMut for Head {
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.inner
    }
}

/// Answers a request.
pub(super) async fn handle<S: Service, B: Body<Data = Bytes> + Unpin>(
    endpoint: Arc<Endpoint<S>>,
    request: http::Request<B>,
    connection: Option<Connection>,
) -> Response {
    let (parts, body) = request.into_parts();
    match take(&endpoint, Head { inner: parts, connection }, body).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

async fn take<S: Service, B: Body<Data = Bytes> + Unpin>(
    endpoint: &Endpoint<S>,
    mut parts: Head,
    body: B,
) -> Result<Response, Refusal> {
    let config = &endpoint.config;
    endpoint.hosts.check(&parts).map_err(|why| Refusal::of(StatusCode::FORBIDDEN, why))?;
    if let Some(path) = config.views.iter().find(|path| ***path == *parts.uri.path()) {
        let path = AtPath(path.clone());
        parts.extensions.insert(path);
    }
    let mut eras = endpoint.eras(&parts);
    let by_caller = config.authenticator.as_ref().is_some_and(|a| a.tells_eras());
    if let Some(refusal) = refused_method(&parts, if by_caller { Eras::Both } else { eras }) {
        return Err(refusal);
    }
    if let Some(authenticator) = &config.authenticator {
        let known = authenticator.authenticate(&parts).await?;
        parts.extensions.extend(known);
    }
    if let Some(CallersEras(its)) = parts.extensions.get().filter(|_| by_caller) {
        eras = *its;
    }
    if let Some(refusal) = refused_method(&parts, eras).filter(|_| by_caller) {
        return Err(refusal);
    }
    if parts.method != Method::POST {
        return Box::pin(http_legacy::without_body(endpoint, parts)).await;
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
    if message::is_batch(&body)
        && eras.legacy()
        && era::by_header(&parts.headers) == Era::Legacy(Revision::V2025_03_26)
    {
        return Box::pin(http_legacy::batch(endpoint, parts, &body, &limits, accepts.events)).await;
    }
    match message::parse(&body, &limits) {
        Ok(Message::Request(request)) => serve(endpoint, parts, request, &accepts, eras).await,
        Ok(Message::Notification(notification)) => {
            match era::of(notification.meta.as_ref(), &parts.headers) {
                Era::Legacy(revision) if eras.legacy() => {
                    Box::pin(http_legacy::notified(endpoint, parts, notification, revision)).await
                }
                Era::Modern if !eras.modern() => Err(era::modern_refused().into()),
                // The modern era defines none over HTTP; a well-formed one is taken and has no effect.
                _ => Ok(bare(StatusCode::ACCEPTED)),
            }
        }
        Ok(Message::Response(response)) => match era::by_header(&parts.headers) {
            Era::Legacy(revision) if eras.legacy() => {
                Box::pin(http_legacy::responded(endpoint, parts, response, revision)).await
            }
            Era::Modern if !eras.modern() => Err(era::modern_refused().into()),
            _ => Err(message::response_refused().into()),
        },
        Err(refused) => Err(refused.into()),
    }
}

/// The refusal of a method that is neither POST nor the legacy era's, or whose client isn't of that era.
fn refused_method(parts: &Parts, eras: Eras) -> Option<Refusal> {
    if parts.method == Method::POST {
        return None;
    }
    let known = matches!(parts.method, Method::GET | Method::DELETE);
    let legacy = eras.legacy() && matches!(era::by_header(&parts.headers), Era::Legacy(_));
    if known && legacy {
        return None;
    }
    let refuse = |why, allowed| Refusal::of(StatusCode::METHOD_NOT_ALLOWED, why).with(ALLOW, allowed);
    Some(if known || !eras.legacy() {
        let why = "this endpoint takes POST only; sessions and resumable streams belong to earlier revisions";
        refuse(why, "POST")
    } else {
        let why = "this endpoint takes POST, and GET and DELETE of the revisions with sessions";
        refuse(why, "GET, POST, DELETE")
    })
}

async fn serve<S: Service>(
    endpoint: &Endpoint<S>,
    parts: Head,
    mut request: Request,
    accepts: &Accepts,
    eras: Eras,
) -> Result<Response, Refusal> {
    let modern = match era::of(request.meta.as_ref(), &parts.headers) {
        Era::Legacy(revision) if eras.legacy() => {
            // Boxed, here and above, so that the modern era doesn't carry the legacy one's state about.
            return Box::pin(http_legacy::serve(endpoint, parts, request, revision, accepts.events)).await;
        }
        Era::Modern if !eras.modern() => Err(era::modern_refused()),
        _ => modern::admit(&mut request, &parts.headers, eras),
    };
    let refuse =
        |error: RpcError| Refusal::from(error).about(&About::request(&request, Revision::V2026_07_28));
    let meta = modern.map_err(refuse)?;
    if request.method == method::LISTEN && !accepts.events {
        let why = "Accept must include text/event-stream for this method";
        return Err(refuse(RpcError::refused(StatusCode::NOT_ACCEPTABLE, why)));
    }
    let (caller, flushes) = caller(parts, Revision::V2026_07_28);
    let place = if request.method == method::LISTEN {
        let identity = dispatch::identity(&*endpoint.service, &caller).map_err(refuse)?;
        Some(endpoint.streams.enter(identity).ok_or_else(|| refuse(streams::too_many()))?)
    } else {
        None
    };
    let exchange = Exchange { request, meta, caller };
    Ok(answer(endpoint, exchange, None, accepts.events, flushes, place).await)
}

/// Who is asking, and what tells whether the answer was written.
pub(super) fn caller(head: Head, revision: Revision) -> (Caller, Option<Arc<Flushes>>) {
    let Parts { headers, extensions, .. } = head.inner;
    let (peer, flushes) = head.connection.map(|c| (c.peer, c.flushes)).unzip();
    let caller = Caller { revision, transport: Transport::Http, headers, extensions, peer, session: None };
    (caller, flushes)
}
