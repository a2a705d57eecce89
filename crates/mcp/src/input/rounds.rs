//! The modern way of asking: a request ends with the questions, and comes again with the answers (spec:
//! basic/patterns/mrtr).
use super::{InputRequest, MAX_REQUESTS};
use crate::constants::method;
use crate::error::RpcError;
use crate::json::{Raw, RawObject, quote};
use crate::message::Request;

/// A request that may end in questions (spec: basic/patterns/mrtr, "Supported Requests"). There are no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// `tools/call`, the only one that may also end in a task.
    ToolsCall,
    /// `resources/read`.
    ResourcesRead,
    /// `prompts/get`.
    PromptsGet,
}

impl Asker {
    /// The one of this method.
    pub fn of(method: &str) -> Option<Asker> {
        match method {
            method::TOOLS_CALL => Some(Asker::ToolsCall),
            method::RESOURCES_READ => Some(Asker::ResourcesRead),
            method::PROMPTS_GET => Some(Asker::PromptsGet),
            _ => None,
        }
    }

    /// Its method.
    pub fn method(self) -> &'static str {
        match self {
            Asker::ToolsCall => method::TOOLS_CALL,
            Asker::ResourcesRead => method::RESOURCES_READ,
            Asker::PromptsGet => method::PROMPTS_GET,
        }
    }
}

/// Why there is no such result. A mistake of the program, nothing that a client could bring about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unasked {
    /// A result that asks has requests, a state, or both.
    #[error("nothing is asked and no state is given")]
    Nothing,
    /// Keys are unique within a result.
    #[error("two requests have one key")]
    DoubleKey,
    /// More than [`MAX_REQUESTS`].
    #[error("more than 64 requests at a time")]
    TooMany,
    /// A task has `taskId`, `status`, `createdAt`, `lastUpdatedAt` and `ttlMs`, and only `tools/call` ends in one.
    #[error("this is no task of a tool call")]
    NoTask,
}

/// The members of a result that asks.
pub(crate) fn asking(requests: &[InputRequest], state: Option<&str>) -> Result<RawObject, Unasked> {
    if requests.is_empty() && state.is_none() {
        return Err(Unasked::Nothing);
    }
    if requests.len() > MAX_REQUESTS {
        return Err(Unasked::TooMany);
    }
    let twice = |(n, one): (usize, &InputRequest)| requests[..n].iter().any(|other| other.key() == one.key());
    if requests.iter().enumerate().any(twice) {
        return Err(Unasked::DoubleKey);
    }
    let mut members = Vec::new();
    if !requests.is_empty() {
        members.push(format!(r#""inputRequests":{}"#, of_requests(requests)));
    }
    members.extend(state.map(|state| format!(r#""requestState":{}"#, quote(state))));
    let text = Raw::trusted(format!("{{{}}}", members.join(",")));
    Ok(text.object().unwrap_or_else(RawObject::empty))
}

/// An `InputRequests` object: what a result, or the state of a task, asks.
pub fn of_requests(requests: &[InputRequest]) -> Raw {
    let all: Vec<_> =
        requests.iter().map(|request| format!("{}:{}", quote(request.key()), request.to_raw())).collect();
    Raw::trusted(format!("{{{}}}", all.join(",")))
}

/// What came with a request that was asked something before. Of the modern era; empty for requests that can't ask.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// `inputResponses`, by key, as they came. Whether they fit is for those who know what was asked.
    pub responses: Vec<(String, Raw)>,
    /// `requestState`: bytes of a stranger until they are verified.
    pub state: Option<String>,
}

impl Given {
    /// Reads `inputResponses` and `requestState` of a modern request; of one that was admitted they have their shape.
    ///
    /// # Errors
    /// -32602 if one is there and has another shape, `null` included.
    pub fn of(request: &Request) -> Result<Given, RpcError> {
        let (Some(_), Some(params)) = (Asker::of(&request.method), &request.params) else {
            return Ok(Given::default());
        };
        let state = match params.get("requestState") {
            None => None,
            Some(state) => Some(
                state
                    .as_string()
                    .ok_or_else(|| RpcError::malformed("params.requestState must be a string"))?
                    .into_owned(),
            ),
        };
        Ok(Given { responses: responses(params)?.unwrap_or_default(), state })
    }

    /// Whether nothing came: the request is asked for the first time.
    pub fn is_empty(&self) -> bool {
        self.responses.is_empty() && self.state.is_none()
    }
}

/// The `inputResponses` of `params`, by key, if they are there: an object of objects, [`MAX_REQUESTS`] at most.
///
/// # Errors
/// -32602 for another shape, `null` included.
pub fn responses(params: &RawObject) -> Result<Option<Vec<(String, Raw)>>, RpcError> {
    let Some(all) = params.get("inputResponses") else { return Ok(None) };
    let all = all.object().filter(|all| all.iter().all(|(_, one)| one.is_object()));
    let all = all.ok_or_else(|| RpcError::malformed("params.inputResponses must be an object of objects"))?;
    if all.len() > MAX_REQUESTS {
        let why = format!("params.inputResponses has more than {MAX_REQUESTS} members");
        return Err(RpcError::malformed(why));
    }
    Ok(Some(all.iter().map(|(key, one)| (key.into_owned(), one)).collect()))
}
