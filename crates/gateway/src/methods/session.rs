//! What changes a legacy client's session: `logging/setLevel`, `resources/subscribe` and `resources/unsubscribe`
//! (spec 2025-11-25: server/utilities/logging; server/resources, "Subscriptions").

use super::{name, not_found, params, string};
use crate::catalog::MAX_URI;
use crate::result;
use crate::service::Shared;
use mcp::error::RpcError;
use mcp::meta::LogLevel;
use mcp::server::{Exchange, Outcome};

/// Answers `logging/setLevel`.
pub(crate) async fn set_level(shared: &Shared, exchange: &Exchange) -> Outcome {
    let level = match string(&params(exchange), "level", "params") {
        Ok(name) => match LogLevel::parse(&name) {
            Some(level) => level,
            None => return RpcError::invalid_params("params.level is not a known log level").into(),
        },
        Err(e) => return e.into(),
    };
    match shared.sessions.set_level(&exchange.caller, level).await {
        Ok(()) => result::nothing(),
        Err(e) => e.into(),
    }
}

/// Answers `resources/subscribe` and `resources/unsubscribe`.
pub(crate) async fn subscribe(shared: &Shared, exchange: &Exchange) -> Outcome {
    let on = exchange.request.method == name::SUBSCRIBE;
    match subscribed(shared, exchange, on).await {
        Ok(()) => result::nothing(),
        Err(e) => e.into(),
    }
}

async fn subscribed(shared: &Shared, exchange: &Exchange, on: bool) -> Result<(), RpcError> {
    let uri = string(&params(exchange), "uri", "params")?;
    if uri.len() > MAX_URI {
        return Err(RpcError::malformed("params.uri has more than 8 KiB"));
    }
    if on {
        let found = shared.catalog().resource(&uri).ok_or_else(|| not_found(true, &uri))?;
        if !found.reader.tells_changes() {
            return Err(RpcError::invalid_params(
                "changes of this resource are not told; read it when needed",
            ));
        }
    }
    shared.sessions.subscribe(&exchange.caller, uri, on).await
}
