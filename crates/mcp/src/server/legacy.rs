//! The legacy era, whatever carries it: the handshake, what is known of a client, and what the wire answers itself.
use std::sync::Arc;

use super::dispatch::guarded;
use super::running::Key;
use super::{Caller, Client, Exchange, Opened, Opening, Service, SessionRefusal, WireResult};
use crate::constants::method;
use crate::error::RpcError;
use crate::json::{Raw, RawObject, quote};
use crate::message::{Id, Notification, Request};
use crate::meta::RequestMeta;
use crate::revision::Revision;

/// A handshake that succeeded.
pub(super) struct Welcome {
    /// The `InitializeResult`.
    pub result: WireResult,
    /// What was agreed on.
    pub revision: Revision,
    /// The session, if one was opened.
    pub session: Option<String>,
}

/// `initialize` (spec 2025-11-25: basic/lifecycle, "Initialization"). The caller's revision becomes the one agreed on.
///
/// # Errors
/// -32602 for parameters that break the schema, -32603 if the service panics, or what the service refuses with.
pub(super) async fn initialize<S: Service>(
    service: &Arc<S>,
    mut caller: Caller,
    request: &Request,
) -> Result<Welcome, RpcError> {
    let empty = RawObject::empty();
    let params = request.params.as_ref().unwrap_or(&empty);
    let asked = params.get("protocolVersion");
    let asked = asked.as_ref().and_then(Raw::as_string);
    let asked = asked.ok_or_else(|| RpcError::malformed("params.protocolVersion must be a string"))?;
    let revision = Revision::negotiate(&asked);
    let capabilities = params.get("capabilities").unwrap_or_else(|| empty.raw());
    if !capabilities.is_object() {
        return Err(RpcError::malformed("params.capabilities must be an object"));
    }
    let opening = Opening { client_info: params.get("clientInfo").filter(Raw::is_object), capabilities };
    caller.revision = revision;
    // The call is made inside the guard: what runs before its first await may panic too.
    let opened = guarded(async { service.clone().initialize(caller, opening).await }).await??;
    let Opened { result, session } = opened;
    let result = result.object().ok_or_else(super::dispatch::failed)?;
    let result = protocol_version_first(&result, revision);
    Ok(Welcome {
        result: WireResult::legacy(&result, &[]).map_err(|_| super::dispatch::failed())?,
        revision,
        session,
    })
}

fn protocol_version_first(result: &RawObject, revision: Revision) -> Raw {
    let mut out = format!(r#"{{"protocolVersion":"{revision}""#);
    for (name, value) in result.iter().filter(|(name, _)| name != "protocolVersion") {
        out.push_str(&format!(",{}:{value}", quote(&name)));
    }
    out.push('}');
    Raw::trusted(out)
}

/// Why a client's message isn't taken.
pub(super) enum Refusal {
    Session(SessionRefusal),
    Error(RpcError),
}

/// What is known of the client.
pub(super) async fn client<S: Service>(service: &S, caller: &Caller) -> Result<Client, Refusal> {
    match guarded(async { service.client(caller).await }).await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(refusal)) => Err(Refusal::Session(refusal)),
        Err(error) => Err(Refusal::Error(error)),
    }
}

/// The request with what is known of its client.
///
/// # Errors
/// -32602 if the request's own `_meta` is mistyped.
pub(super) fn exchange(request: Request, caller: Caller, client: Client) -> Result<Exchange, RpcError> {
    let Client { info, capabilities, log_level, revision: _ } = client;
    let meta = RequestMeta::legacy(&request, caller.revision, capabilities, info, log_level)?;
    Ok(Exchange { request, meta, caller })
}

/// What the wire answers itself: `ping`.
pub(super) fn own_answer(request: &Request) -> Option<WireResult> {
    (request.method == method::PING).then(WireResult::empty)
}

/// The request that `notifications/cancelled` names.
pub(super) fn cancelled_request(notification: &Notification) -> Option<Id> {
    Id::new(notification.params.as_ref()?.get("requestId")?)
}

/// Whose call a request of this caller is. `session`: what its client names, be it a session here or not.
///
/// # Errors
/// -32603 if the service panics.
pub(super) fn key<S: Service>(
    service: &S,
    caller: &Caller,
    session: Option<Arc<str>>,
    id: Id,
) -> Result<Key, RpcError> {
    Ok(Key { identity: super::dispatch::identity(service, caller)?, session, id })
}

/// The session of a request can't be looked up. Official clients give a connection up over a 503, and find an error in a
/// response.
pub(super) fn session_unavailable() -> RpcError {
    RpcError::unavailable(
        "Internal error: the session can't be looked up at the moment. Nothing ran; try again a little later.",
    )
}
