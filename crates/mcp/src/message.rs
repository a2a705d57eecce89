//! JSON-RPC 2.0 envelopes (spec: basic, "Messages") over a checked body; nothing inside `params` is interpreted.
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

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
    /// `params.arguments`, if it is an object.
    pub arguments: Option<RawObject>,
    pub(crate) meta: Option<RawObject>,
}

/// A notification: it wants none.
#[derive(Debug, Clone)]
pub struct Notification {
    /// Never empty.
    pub method: String,
    /// Always an object if present.
    pub params: Option<RawObject>,
    pub(crate) meta: Option<RawObject>,
}

/// What a client may send.
#[derive(Debug, Clone)]
pub enum Message {
    /// Wants a response.
    Request(Request),
    /// Wants none.
    Notification(Notification),
    /// Answers a request of the server; only the legacy era has those.
    Response(Response),
}

/// An answer of the client.
#[derive(Debug, Clone)]
pub struct Response {
    /// The id of the request that it answers.
    pub id: Id,
    /// `result`, or `error` as it came.
    pub outcome: Result<Raw, Raw>,
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
/// -32700 for a body that isn't acceptable JSON, -32600 for JSON that is no message, -32602 for
/// `params` that isn't an object.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Message, Box<Refused>> {
    let bare = |error| Box::new(Refused { id: None, error });
    let Envelope { root, params, meta, arguments, first } =
        envelope(body, limits).map_err(|e| bare(RpcError::parse_error(&e)))?;
    let Some(root) = root else {
        return Err(bare(if first == b'[' { batch_refused() } else { not_an_object() }));
    };
    let id = root.get("id").and_then(Id::new);
    let refuse = |error| Box::new(Refused { id: id.clone(), error });
    if root.string("jsonrpc").as_deref() != Some("2.0") {
        return Err(refuse(RpcError::invalid_request("jsonrpc must be \"2.0\"")));
    }
    if id.is_none() && root.has("id") {
        return Err(refuse(RpcError::invalid_request("id must be a string or an integer")));
    }
    let method = match root.string("method") {
        Some(method) if !method.is_empty() => method.into_owned(),
        _ if root.has("method") => {
            return Err(refuse(RpcError::invalid_request("method must be a non-empty string")));
        }
        _ if root.has("result") || root.has("error") => {
            let outcome = match (root.get("result"), root.get("error")) {
                (Some(result), None) => Ok(result),
                (None, Some(error)) => Err(error),
                _ => {
                    return Err(bare(RpcError::invalid_request(
                        "a response has either a result or an error",
                    )));
                }
            };
            let id =
                id.ok_or_else(|| bare(RpcError::invalid_request("a response needs the request's id")))?;
            return Ok(Message::Response(Response { id, outcome }));
        }
        _ => return Err(refuse(RpcError::invalid_request("method is missing"))),
    };
    if params.is_none() && root.has("params") {
        return Err(refuse(RpcError::malformed("params must be an object")));
    }
    Ok(match id {
        Some(id) => Message::Request(Request { id, method, params, arguments, meta }),
        None => Message::Notification(Notification { method, params, meta }),
    })
}

pub(crate) fn batch_refused() -> RpcError {
    RpcError::invalid_request("batches are not part of this protocol; send one message per POST")
}

fn not_an_object() -> RpcError {
    RpcError::invalid_request("the body must be one JSON object")
}

/// A client's response where none can be, as in the modern era.
pub(crate) fn response_refused() -> RpcError {
    RpcError::invalid_request("clients send no responses in this revision")
}

/// The most messages that a batch may hold.
pub const MAX_BATCH: usize = 32;

/// Whether a body is an array, as a batch is. Says nothing about whether it is valid.
pub(crate) fn is_batch(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'[')
}

/// Takes a batch (revision 2025-03-26 only) apart; each message is then read for itself.
///
/// # Errors
/// -32700 for a body that isn't acceptable JSON, -32600 for an empty array or one of more than 32 messages.
pub(crate) fn split_batch(body: &Bytes, limits: &Limits) -> Result<Vec<Bytes>, RpcError> {
    // The array itself is one level more.
    let limits = Limits { depth: limits.depth.saturating_add(1), ..limits.clone() };
    let all = Raw::parse(body.clone(), &limits).map_err(|e| RpcError::parse_error(&e))?;
    let items: Items = all.read().map_err(|_| not_an_object())?;
    match items.0.len() {
        0 => Err(RpcError::invalid_request("a batch must hold at least one message")),
        n if n > MAX_BATCH => {
            Err(RpcError::invalid_request(format!("a batch may hold {MAX_BATCH} messages at most")))
        }
        _ => Ok(items.0.into_iter().map(|item| all.bytes().slice_ref(item.get().as_bytes())).collect()),
    }
}

/// The elements of an array, no more than one above the limit.
struct Items<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Items<'de>, D::Error> {
        struct Taking;
        impl<'de> Visitor<'de> for Taking {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Items<'de>, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = seq.next_element::<&'de RawValue>()? {
                    if all.len() <= MAX_BATCH {
                        all.push(item);
                    }
                }
                Ok(Items(all))
            }
        }
        deserializer.deserialize_seq(Taking)
    }
}
