//! JSON-RPC 2.0 envelopes (spec: basic, "Messages") over a checked body; nothing inside `params` is interpreted.
use std::fmt;

use bytes::Bytes;

use crate::error::RpcError;
use crate::json::{Envelope, Limits, Raw, RawObject, envelope};

/// A request id: a JSON string or integer, kept as text and echoed byte for byte.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Id(Raw);

impl Id {
    /// Takes a string or an integer; `null`, fractions and other kinds are no ids (spec: basic, "Requests").
    pub fn new(raw: Raw) -> Option<Id> {
        (raw.is_string() || raw.is_integer()).then_some(Id(raw))
    }

    /// An integer id.
    pub fn number(n: u64) -> Id {
        Id(Raw::trusted(n.to_string()))
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The JSON value.
    pub fn raw(&self) -> &Raw {
        &self.0
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request: it wants exactly one response.
#[derive(Debug, Clone)]
pub struct Request {
    /// Echoed in the response. Restarts at 0 in every client: never a key.
    pub id: Id,
    /// Never empty.
    pub method: String,
    /// Always an object if present.
    pub params: Option<RawObject>,
    pub(crate) meta: Option<RawObject>,
}

/// A notification: it wants none.
#[derive(Debug, Clone)]
pub struct Notification {
    /// Never empty.
    pub method: String,
    /// Always an object if present.
    pub params: Option<RawObject>,
}

/// What a client may send.
#[derive(Debug, Clone)]
pub enum Message {
    /// Wants a response.
    Request(Request),
    /// Wants none.
    Notification(Notification),
}

/// A body that was refused, with the id to echo where it could be read.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The id, if the body had a proper one.
    pub id: Option<Id>,
    /// Why.
    pub error: RpcError,
}

/// Reads one message from a body.
///
/// # Errors
/// -32700 for a body that isn't acceptable JSON, -32600 for JSON that is no request or notification, -32602 for
/// `params` that isn't an object.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Message, Box<Refused>> {
    let bare = |error| Box::new(Refused { id: None, error });
    let Envelope { root, params, meta, first } =
        envelope(body, limits).map_err(|e| bare(RpcError::parse_error(&e)))?;
    let Some(root) = root else {
        return Err(bare(RpcError::invalid_request(if first == b'[' {
            "batches are not part of this protocol; send one message per POST"
        } else {
            "the body must be one JSON object"
        })));
    };
    let named_id = root.get("id");
    let id = named_id.clone().and_then(Id::new);
    let refuse = |error| Box::new(Refused { id: id.clone(), error });
    if root.get("jsonrpc").is_none_or(|v| v.as_string().as_deref() != Some("2.0")) {
        return Err(refuse(RpcError::invalid_request("jsonrpc must be \"2.0\"")));
    }
    if named_id.is_some() && id.is_none() {
        return Err(refuse(RpcError::invalid_request("id must be a string or an integer")));
    }
    let method = match root.get("method") {
        Some(method) => match method.as_string() {
            Some(method) if !method.is_empty() => method.into_owned(),
            _ => return Err(refuse(RpcError::invalid_request("method must be a non-empty string"))),
        },
        None if root.get("result").is_some() || root.get("error").is_some() => {
            return Err(bare(RpcError::invalid_request("clients send no responses in this revision")));
        }
        None => return Err(refuse(RpcError::invalid_request("method is missing"))),
    };
    if params.is_none() && root.get("params").is_some() {
        return Err(refuse(RpcError::malformed("params must be an object")));
    }
    Ok(match id {
        Some(id) => Message::Request(Request { id, method, params, meta }),
        None => Message::Notification(Notification { method, params }),
    })
}
