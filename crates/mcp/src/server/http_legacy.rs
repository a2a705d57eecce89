//! The legacy era over HTTP (spec 2025-11-25: Streamable HTTP): sessions, notifications and responses by POST, the
//! stream by GET, the end of a session by DELETE.
use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::header::{ALLOW, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::answer::{answer, bare, plain, streamed};
use super::batch::Batch;
use super::channel::Channel;
use super::connection::Flushes;
use super::dispatch::{self, guarded};
use super::era::{self, Era};
use super::handle::{Head, caller};
use super::intake::Accepts;
use super::refusal::{About, Refusal};
use super::{Caller, Client, Endpoint, InBatch, Outcome, Service, Subscription, ask, legacy};
use crate::constants::{header, method};
use crate::error::RpcError;
use crate::json::Limits;
use crate::message::{self, Message, Notification, Request};
use crate::revision::Revision;

/// A legacy client as it shows itself.
struct Visitor {
    caller: Caller,
    flushes: Option<Arc<Flushes>>,
    /// The session that it names, whether that is one of ours or of a platform in front.
    named: Option<Arc<str>>,
}

impl Visitor {
    fn of<S>(endpoint: &Endpoint<S>, parts: Head, revision: Revision) -> Result<Visitor, RpcError> {
        let named = named_session(&parts.headers)?;
        let (mut caller, flushes) = caller(parts, revision);
        if !endpoint.config.platform_sessions {
            caller.session.clone_from(&named);
        }
        Ok(Visitor { caller, flushes, named })
    }
}

fn named_session(headers: &HeaderMap) -> Result<Option<Arc<str>>, RpcError> {
    let mut all = headers.get_all(header::SESSION_ID).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(one), None) if era::is_session_id(one) => Ok(one.to_str().ok().map(Arc::from)),
        _ => Err(RpcError::invalid_request(
            "Mcp-Session-Id must be one value of 1 to 255 visible ASCII characters",
        )),
    }
}

/// Who it is and what is known of it. `about`: its message, for the refusal.
async fn known<S: Service>(
    endpoint: &Endpoint<S>,
    parts: Head,
    revision: Revision,
    about: &About,
) -> Result<(Visitor, Client), Refusal> {
    let visitor = Visitor::of(endpoint, parts, revision);
    let mut visitor = visitor.map_err(|error| Refusal::from(error).about(about))?;
    let client = legacy::client(&*endpoint.service, &visitor.caller).await;
    let client = client.map_err(|refusal| Refusal::of_client(refusal, about))?;
    // What names no revision is of its session's (spec 2025-11-25: Streamable HTTP, "Protocol Version Header").
    let caller = &mut visitor.caller;
    if let Some(agreed) = client.revision.filter(|r| r.is_legacy() && caller.session.is_some())
        && !caller.headers.contains_key(header::PROTOCOL_VERSION)
    {
        caller.revision = agreed;
    }
    Ok((visitor, client))
}

/// A request.
pub(super) async fn serve<S: Service>(
    endpoint: &Endpoint<S>,
    parts: Head,
    request: Request,
    revision: Revision,
    events: bool,
) -> Result<Response, Refusal> {
    if request.method == method::INITIALIZE {
        return Ok(initialize(endpoint, parts, &request, revision).await);
    }
    let about = About::request(&request, revision);
    let (visitor, client) = known(endpoint, parts, revision, &about).await?;
    let Visitor { caller, flushes, named } = visitor;
    let revision = caller.revision;
    if let Some(result) = legacy::own_answer(&request) {
        return Ok(own(&request, revision, &result.into()));
    }
    match legacy::exchange(request, caller, client) {
        Ok(exchange) => Ok(answer(endpoint, exchange, named, events, flushes, None).await),
        Err(error) => Err(Refusal::from(RpcError { http_status: StatusCode::OK, ..error }).about(&about)),
    }
}

/// What the wire itself answers. An error of an admitted request travels with 200.
fn own(request: &Request, _revision: Revision, outcome: &Outcome) -> Response {
    let (message, _) = outcome.to_message(Some(&request.id));
    #[cfg(feature = "wire-log")]
    crate::wire_log::server(Some(_revision), Some(&request.method), &message);
    plain(message, StatusCode::OK)
}

/// The handshake. A session that the client names here is one that it gave up.
async fn initialize<S: Service>(
    endpoint: &Endpoint<S>,
    parts: Head,
    request: &Request,
    revision: Revision,
) -> Response {
    let (caller, _) = caller(parts, revision);
    let welcome = match legacy::initialize(&endpoint.service, caller, request).await {
        Ok(welcome) => welcome,
        Err(error) => return own(request, revision, &error.into()),
    };
    let session = welcome.session.as_deref().map(HeaderValue::from_str);
    match session {
        None => own(request, welcome.revision, &welcome.result.into()),
        Some(Ok(id)) if era::is_session_id(&id) => {
            let mut response = own(request, welcome.revision, &welcome.result.into());
            response.headers_mut().insert(header::SESSION_ID, id);
            response
        }
        Some(_) => {
            tracing::error!("a session id was minted that no header can carry");
            own(request, revision, &dispatch::failed().into())
        }
    }
}

/// A notification: taken, and acted on before the answer.
pub(super) async fn notified<S: Service>(
    endpoint: &Endpoint<S>,
    parts: Head,
    notification: Notification,
    revision: Revision,
) -> Result<Response, Refusal> {
    let (visitor, _) = known(endpoint, parts, revision, &About::other(revision)).await?;
    act(endpoint, visitor.caller, visitor.named, notification)
        .await
        .map_err(|error| Refusal::failed(error, false).about(&About::other(revision)))?;
    Ok(bare(StatusCode::ACCEPTED))
}

async fn act<S: Service>(
    endpoint: &Endpoint<S>,
    caller: Caller,
    named: Option<Arc<str>>,
    notification: Notification,
) -> Result<(), RpcError> {
    if notification.method == method::CANCELLED {
        if let Some(id) = legacy::cancelled_request(&notification) {
            let key = legacy::key(&*endpoint.service, &caller, named, id)?;
            if !endpoint.config.running.cancel(&key)
                && let Some(session) = &key.session
            {
                endpoint.service.cancelled_elsewhere(&caller, session, &key.id);
            }
        }
        return Ok(());
    }
    // In a task of its own, which a client that goes away doesn't touch.
    let service = endpoint.service.clone();
    let noted = endpoint.config.tasks.spawn(async move { service.notified(caller, notification).await });
    noted.await.map_err(|_| dispatch::failed())
}

/// A response of the client: taken, and handed on before the answer.
pub(super) async fn responded<S: Service>(
    endpoint: &Endpoint<S>,
    parts: Head,
    response: message::Response,
    revision: Revision,
) -> Result<Response, Refusal> {
    let (visitor, _) = known(endpoint, parts, revision, &About::other(revision)).await?;
    match hand_on(endpoint, visitor.caller, response).await {
        Ok(()) => Ok(bare(StatusCode::ACCEPTED)),
        Err(refusal) => Err(refusal.about(&About::other(revision))),
    }
}

/// Gives the service what a client answers. What answers nothing of ours has no effect.
async fn hand_on<S: Service>(
    endpoint: &Endpoint<S>,
    caller: Caller,
    response: message::Response,
) -> Result<(), Refusal> {
    let Some((id, outcome)) = ask::answered(response) else { return Ok(()) };
    // In a task of its own, which a client that goes away doesn't touch.
    let service = endpoint.service.clone();
    let taken = endpoint.config.tasks.spawn(async move { service.response(caller, id, outcome).await });
    match taken.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            let error = RpcError { http_status: StatusCode::SERVICE_UNAVAILABLE, ..error };
            Err(Refusal::from(error).with(RETRY_AFTER, "1"))
        }
        Err(_) => Err(Refusal::failed(dispatch::failed(), false)),
    }
}

/// GET and DELETE.
pub(super) async fn without_body<S: Service>(
    endpoint: &Endpoint<S>,
    parts: Head,
) -> Result<Response, Refusal> {
    let Era::Legacy(revision) = era::by_header(&parts.headers) else {
        return Err(
            Refusal::of(StatusCode::METHOD_NOT_ALLOWED, "this endpoint takes POST only").with(ALLOW, "POST")
        );
    };
    if parts.method == Method::DELETE {
        end(endpoint, parts, revision).await
    } else {
        stream(endpoint, parts, revision).await
    }
}

/// The stream for messages outside of requests. `Last-Event-ID` has no meaning here, since events have no ids.
async fn stream<S: Service>(
    endpoint: &Endpoint<S>,
    parts: Head,
    revision: Revision,
) -> Result<Response, Refusal> {
    if !Accepts::of(&parts.headers).events {
        let why = "Accept must include text/event-stream for GET";
        return Err(Refusal::of(StatusCode::NOT_ACCEPTABLE, why).about(&About::other(revision)));
    }
    let (visitor, _) = known(endpoint, parts, revision, &About::other(revision)).await?;
    let config = &endpoint.config;
    let revision = visitor.caller.revision;
    let identity = dispatch::identity(&*endpoint.service, &visitor.caller)
        .map_err(|error| Refusal::failed(error, false).about(&About::other(revision)))?;
    let Some(place) = endpoint.streams.enter(identity) else {
        // Official clients take this status as "no stream is offered", and go on without one.
        let why =
            "too many streams are open at the moment, so none is offered; requests are served as always";
        let refusal = Refusal::of(StatusCode::METHOD_NOT_ALLOWED, why).with(ALLOW, "POST, DELETE");
        return Err(refusal.about(&About::other(revision)));
    };
    let channel = Arc::new(Channel::stream(revision, visitor.caller.transport, config.queue));
    let (service, feed) = (endpoint.service.clone(), Subscription::open(channel.clone(), None));
    let guard = EndIfPanicked(channel.clone());
    let session = visitor.caller.session.clone();
    let open = session.map(|session| config.session_streams.insert(session, channel.clone()));
    let feeding = Box::pin(async move {
        let (_guard, _open) = (guard, open);
        service.stream(visitor.caller, feed).await;
    });
    if dispatch::start(&config.tasks, feeding).await.is_err() {
        return Err(Refusal::failed(dispatch::failed(), false).about(&About::other(revision)));
    }
    Ok(streamed(config, channel, visitor.flushes, Some(place)))
}

/// Ends a stream whose feeding panicked, even if others still hold its subscription.
struct EndIfPanicked(Arc<Channel>);

impl Drop for EndIfPanicked {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end_listening();
        }
    }
}

/// The client ends its session.
async fn end<S: Service>(
    endpoint: &Endpoint<S>,
    parts: Head,
    revision: Revision,
) -> Result<Response, Refusal> {
    let refuse = |refusal: Refusal| refusal.about(&About::other(revision));
    let visitor = Visitor::of(endpoint, parts, revision).map_err(|error| refuse(error.into()))?;
    if visitor.named.is_none() {
        return Err(refuse(RpcError::invalid_request("DELETE needs the Mcp-Session-Id that it ends").into()));
    }
    if visitor.caller.session.is_none() {
        return Err(refuse(super::SessionRefusal::None.into()));
    }
    match guarded(async { endpoint.service.end_session(&visitor.caller).await }).await {
        Ok(Ok(())) => Ok(bare(StatusCode::NO_CONTENT)),
        Ok(Err(refusal)) => Err(refuse(refusal.into())),
        Err(error) => Err(refuse(Refusal::failed(error, false))),
    }
}

/// A batch (revision 2025-03-26): every message goes its own way; the requests are answered together.
pub(super) async fn batch<S: Service>(
    endpoint: &Endpoint<S>,
    parts: Head,
    body: &Bytes,
    limits: &Limits,
    events: bool,
) -> Result<Response, Refusal> {
    let revision = Revision::V2025_03_26;
    let refuse = |error: RpcError| Refusal::from(error).about(&About::other(revision));
    let pieces = message::split_batch(body, limits).map_err(refuse)?;
    let (visitor, client) = known(endpoint, parts, revision, &About::other(revision)).await?;
    let Visitor { mut caller, flushes, named } = visitor;
    if caller.revision != revision {
        return Err(Refusal::from(message::batch_refused()).about(&About::other(caller.revision)));
    }
    let messages: Vec<_> = pieces.iter().map(|piece| message::parse(piece, limits)).collect();
    let calls =
        messages.iter().filter(|m| matches!(m, Ok(Message::Request(r)) if r.method == method::TOOLS_CALL));
    caller.extensions.insert(InBatch { calls: calls.count() });
    let mut batch = Batch::default();
    let mut untaken = None;
    for message in messages {
        let request = match message {
            Ok(Message::Request(request)) => request,
            Ok(Message::Notification(notification)) => {
                if let Err(error) = act(endpoint, caller.clone(), named.clone(), notification).await {
                    tracing::error!(%error.message, "a notification in a batch had no effect");
                }
                continue;
            }
            Ok(Message::Response(response)) => {
                if let Err(refusal) = hand_on(endpoint, caller.clone(), response).await {
                    untaken = Some(refusal);
                }
                continue;
            }
            Err(refused) => {
                batch.refused(&refused.error, refused.id.as_ref());
                continue;
            }
        };
        if let Err(error) = fits_a_batch(&request) {
            batch.refused(&error, Some(&request.id));
        } else if let Some(result) = legacy::own_answer(&request) {
            batch.answered(&request, &result);
        } else {
            let id = request.id.clone();
            match legacy::exchange(request, caller.clone(), client.clone()) {
                Ok(exchange) => batch.begin(endpoint, exchange, named.clone()).await,
                Err(error) => batch.refused(&error, Some(&id)),
            }
        }
    }
    if batch.is_empty() {
        return match untaken {
            None => Ok(bare(StatusCode::ACCEPTED)),
            Some(refusal) => Err(refusal.about(&About::other(revision))),
        };
    }
    if untaken.is_some() {
        tracing::error!("a response in a batch could not be taken; the requests beside it are answered");
    }
    Ok(batch.answer(&endpoint.config, events, flushes).await)
}

/// Spec 2025-03-26: basic/lifecycle, "Initialization".
fn fits_a_batch(request: &Request) -> Result<(), RpcError> {
    if era::declares_modern(request.meta.as_ref()) {
        return Err(RpcError::invalid_request("revisions later than 2025-03-26 have no batches"));
    }
    if request.method == method::INITIALIZE {
        return Err(RpcError::invalid_request("initialize must not be part of a batch"));
    }
    Ok(())
}
