//! The methods that are answered by what native code offers: resources, prompts, completion; and the two of the legacy
//! era that change a session.

mod complete;
mod prompts;
mod resources;
mod session;
pub(crate) mod tasks;

pub(crate) use complete::complete;
pub(crate) use prompts::get;
pub(crate) use resources::{not_found, read};
pub(crate) use session::{set_level, subscribe};

use crate::resource::Failure;
use ledger::Millis;
use mcp::error::RpcError;
use mcp::json::{Raw, RawObject};
use mcp::server::Exchange;
use std::collections::BTreeMap;
use std::future::Future;

/// Names of methods that the wire need not know.
pub(crate) mod name {
    pub const RESOURCES_LIST: &str = "resources/list";
    pub const TEMPLATES_LIST: &str = "resources/templates/list";
    pub const RESOURCES_READ: &str = "resources/read";
    pub const SUBSCRIBE: &str = "resources/subscribe";
    pub const UNSUBSCRIBE: &str = "resources/unsubscribe";
    pub const PROMPTS_LIST: &str = "prompts/list";
    pub const PROMPTS_GET: &str = "prompts/get";
    pub const COMPLETE: &str = "completion/complete";
    pub const SET_LEVEL: &str = "logging/setLevel";
}

/// How long a read, a prompt or a completion may take.
const TIMEOUT: Millis = Millis::secs(60);

/// Ends what takes too long: it only reads, so it can be dropped anywhere.
async fn bounded<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    match tokio::time::timeout(TIMEOUT.duration(), work).await {
        Ok(done) => done,
        Err(_) => {
            Err(Failure::Failed("it took too long; nothing was changed, so asking again is safe".into()))
        }
    }
}

fn failed(failure: Failure, not_found: impl FnOnce() -> RpcError) -> RpcError {
    match failure {
        Failure::NotFound => not_found(),
        Failure::Bad(why) => RpcError::invalid_params(why),
        Failure::Failed(why) => RpcError::internal(format!("Internal error: {why}")),
    }
}

fn params(exchange: &Exchange) -> RawObject {
    exchange.request.params.clone().unwrap_or_else(RawObject::empty)
}

/// A member that must be a string.
fn string(of: &RawObject, member: &str, path: &str) -> Result<String, RpcError> {
    of.get(member)
        .and_then(|v| v.as_string().map(|s| s.into_owned()))
        .ok_or_else(|| RpcError::malformed(format!("{path}.{member} must be a string")))
}

/// An object whose values are strings; empty if it isn't there.
fn strings(value: Option<&Raw>, path: &str) -> Result<BTreeMap<String, String>, RpcError> {
    let Some(value) = value else { return Ok(BTreeMap::new()) };
    let object = value.object().ok_or_else(|| RpcError::malformed(format!("{path} must be an object")))?;
    object
        .iter()
        .map(|(name, value)| match value.as_string() {
            Some(text) => Ok((name.clone().into_owned(), text.into_owned())),
            None => Err(RpcError::malformed(format!("{path}.{} must be a string", shown(&name)))),
        })
        .collect()
}

/// A name from outside, as it is repeated in a message.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}
