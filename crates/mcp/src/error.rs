//! JSON-RPC errors and the HTTP status each travels with, in one place.
//!
//! | cause | HTTP | code | id |
//! | --- | --- | --- | --- |
//! | `Host` or `Origin` not allowed | 403 | -32600 | no |
//! | any method but POST (legacy era: but GET and DELETE too) | 405 | -32600 | no |
//! | body is not `application/json` | 415 | -32600 | no |
//! | `Accept` excludes `application/json` | 406 | -32600 | no |
//! | body larger than the limit | 413 | -32600 | no |
//! | body not received in time | 408 | -32600 | no |
//! | not UTF-8, not JSON, too deep, duplicate members, lone surrogates | 400 | -32700 | no |
//! | a batch, a response, a wrong `jsonrpc`, `id` or `method` | 400 | -32600 | if readable |
//! | `params` missing or not an object, required `_meta` missing or mistyped, `params.name` missing | 400 | -32602 | yes |
//! | `inputResponses` or `requestState` of another shape | 400 | -32602 | yes |
//! | a mirrored header is missing, doubled, malformed or differs from the body | 400 | -32020 | yes |
//! | a revision that isn't served; `initialize` where the legacy era isn't served | 400 | -32022 | yes |
//! | any modern request where the modern era isn't served | 400 | -32600 | yes |
//! | `subscriptions/listen` from a client that can't take a stream | 406 | -32600 | yes |
//! | a capability that the client didn't declare | 400 | -32021 | yes |
//! | a method that isn't served | 404 | -32601 | yes |
//! | well-formed parameters that name nothing: unknown tool, foreign cursor | 200 | -32602 | yes |
//! | the server failed (a panic included) | 200 | -32603 | yes |
//! | an application's own error, with `data.kind` | 200 | outside -32768..-32000 | yes |
//!
//! Legacy era: an error of a request that was admitted travels with 200, whatever stands above; before that, in
//! addition:
//!
//! | cause | HTTP | code | id |
//! | --- | --- | --- | --- |
//! | `Mcp-Session-Id` malformed; DELETE without it | 400 | -32600 | if readable |
//! | the session is unknown, ended, expired or another's | 404 | -32600 | if readable |
//! | DELETE where no sessions are kept | 405 | -32600 | no |
//! | the session can't be looked up at the moment | 503 | -32600 | if readable |
//! | GET without `text/event-stream` in `Accept` | 406 | -32600 | no |
//! | a client's answer to a question can't be kept at the moment | 503 | the failure's | no |
//! | the server failed over a notification, a response, GET or DELETE | 500 | -32603 | no |
//! | the client cancelled the request | 200 | -32800 | yes |
//! | the client's user has to open a page first | 200 | -32042 | yes |
//!
//! Statuses 400 and 404 are the specification's (Streamable HTTP; basic, "Error Codes"). Where it is silent the error
//! travels with 200, because official clients show a typed error only on 200 and 400, and one tears its connection
//! down on 5xx.
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::constants::SUPPORTED_VERSIONS;
use crate::json::{JsonError, Raw, quote};
use crate::message::Id;
use crate::revision::Eras;

/// -32700: the body isn't JSON.
pub const PARSE_ERROR: i64 = -32700;
/// -32600: the body isn't a JSON-RPC request, or HTTP forbids it.
pub const INVALID_REQUEST: i64 = -32600;
/// -32601: the method isn't served.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// -32602: the parameters are wrong.
pub const INVALID_PARAMS: i64 = -32602;
/// -32603: the server failed.
pub const INTERNAL: i64 = -32603;
/// -32020: headers and body differ.
pub const HEADER_MISMATCH: i64 = -32020;
/// -32021: a capability is needed that the client didn't declare.
pub const MISSING_CAPABILITY: i64 = -32021;
/// -32800: the client cancelled its request (legacy era; the code is the Language Server Protocol's).
pub const CANCELLED: i64 = -32800;
/// -32042: the user has to open a page first (revision 2025-11-25: client/elicitation, "URL Elicitation Required Error").
pub const URL_REQUIRED: i64 = -32042;
/// -32022: the revision isn't served.
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// A JSON-RPC error with the HTTP status it has when no stream was opened before it.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    /// HTTP status; within an open stream it is 200 whatever this says.
    pub http_status: StatusCode,
    /// JSON-RPC code.
    pub code: i64,
    /// What happened, what is safe now, what to do.
    pub message: String,
    /// More, for programs.
    pub data: Option<Value>,
}

impl RpcError {
    fn new(http_status: StatusCode, code: i64, message: impl Into<String>) -> RpcError {
        RpcError { http_status, code, message: message.into(), data: None }
    }

    /// The same error with `data`.
    pub fn with_data(mut self, data: Value) -> RpcError {
        self.data = Some(data);
        self
    }

    /// The body isn't acceptable JSON: 400, -32700.
    pub fn parse_error(error: &JsonError) -> RpcError {
        let data = json!({ "offset": error.offset });
        Self::new(StatusCode::BAD_REQUEST, PARSE_ERROR, format!("Parse error: {error}. Nothing ran."))
            .with_data(data)
    }

    /// The body isn't a JSON-RPC request or notification: 400, -32600.
    pub fn invalid_request(why: impl std::fmt::Display) -> RpcError {
        Self::new(StatusCode::BAD_REQUEST, INVALID_REQUEST, format!("Invalid request: {why}. Nothing ran."))
    }

    /// HTTP itself forbids the request: any status, -32600.
    pub fn refused(status: StatusCode, why: impl std::fmt::Display) -> RpcError {
        Self::new(status, INVALID_REQUEST, format!("Refused: {why}. Nothing ran."))
    }

    /// The method isn't served: 404, -32601.
    pub fn method_not_found(method: &str) -> RpcError {
        Self::new(
            StatusCode::NOT_FOUND,
            METHOD_NOT_FOUND,
            format!("Method not found: {method}. Nothing ran; server/discover tells what is served."),
        )
    }

    /// The request doesn't satisfy the schema of its method (a required field is missing or mistyped): 400, -32602.
    pub fn malformed(why: impl std::fmt::Display) -> RpcError {
        Self::new(StatusCode::BAD_REQUEST, INVALID_PARAMS, format!("Invalid params: {why}. Nothing ran."))
    }

    /// Well-formed parameters that name nothing here (unknown tool, foreign cursor): 200, -32602.
    pub fn invalid_params(why: impl std::fmt::Display) -> RpcError {
        Self::new(StatusCode::OK, INVALID_PARAMS, format!("Invalid params: {why}."))
    }

    /// A header is missing, malformed or differs from the body: 400, -32020.
    pub fn header_mismatch(why: impl std::fmt::Display) -> RpcError {
        Self::new(StatusCode::BAD_REQUEST, HEADER_MISMATCH, format!("Header mismatch: {why}. Nothing ran."))
    }

    /// The client didn't declare what this needs: 400, -32021. `required` has the shape of `ClientCapabilities`.
    pub fn missing_capability(required: Value) -> RpcError {
        Self::new(
            StatusCode::BAD_REQUEST,
            MISSING_CAPABILITY,
            "Missing required client capability. Nothing ran; declare it (in _meta, or at initialize) or use a client that has it.",
        )
        .with_data(json!({ "requiredCapabilities": required }))
    }

    /// The revision isn't served: 400, -32022, naming those that are. `data.supported` has those that a request may
    /// name in its `_meta`; the message also has those that `initialize` opens.
    pub fn unsupported_version(requested: &str, eras: Eras) -> RpcError {
        Self::new(
            StatusCode::BAD_REQUEST,
            UNSUPPORTED_VERSION,
            format!("Unsupported protocol version. Nothing ran; served: {}.", eras.served()),
        )
        .with_data(json!({ "supported": SUPPORTED_VERSIONS, "requested": requested }))
    }

    /// The client cancelled its request (legacy era): 200, -32800.
    pub fn cancelled() -> RpcError {
        Self::new(
            StatusCode::OK,
            CANCELLED,
            "Cancelled: the client cancelled this request. What had begun may still take effect; ask before \
             repeating it.",
        )
    }

    /// The request can be made again once the client's user has been at a page (revision 2025-11-25): 200, -32042. `id`
    /// names the page for the client; the user is shown `message`.
    pub fn url_required(id: &str, message: &str, url: &str) -> RpcError {
        let page = json!({ "mode": "url", "elicitationId": id, "url": url, "message": message });
        Self::new(StatusCode::OK, URL_REQUIRED, message).with_data(json!({ "elicitations": [page] }))
    }

    /// The server failed: 200, -32603. The message must not tell how the server is made.
    pub fn internal(message: impl Into<String>) -> RpcError {
        Self::new(StatusCode::OK, INTERNAL, message)
    }

    /// An application's own error: 200, a code outside the reserved range, `data.kind` for programs. A code inside
    /// -32768..=-32000 is a mistake of the caller and becomes -32603.
    pub fn application(code: i64, kind: &str, message: impl Into<String>) -> RpcError {
        let code = if (-32768..=-32000).contains(&code) { INTERNAL } else { code };
        Self::new(StatusCode::OK, code, message).with_data(json!({ "kind": kind }))
    }

    /// It can't be done at the moment, nothing was done, and asking again is safe: 200, -32603, `data.kind` is
    /// `unavailable`.
    pub fn unavailable(message: impl Into<String>) -> RpcError {
        Self::application(INTERNAL, "unavailable", message)
    }

    /// The response message on one line. Without `id` the member is absent: it may never be null.
    pub fn to_message(&self, id: Option<&Id>) -> Bytes {
        let mut out = String::with_capacity(128 + self.message.len());
        out.push_str(r#"{"jsonrpc":"2.0","#);
        if let Some(id) = id {
            out.push_str(r#""id":"#);
            out.push_str(id.as_str());
            out.push(',');
        }
        out.push_str(&format!(r#""error":{{"code":{},"message":{}"#, self.code, quote(&self.message)));
        if let Some(data) = &self.data {
            out.push_str(&format!(r#","data":{data}"#));
        }
        out.push_str("}}");
        out.into()
    }
}

/// The response message around a complete result object, which must be on one line.
pub(crate) fn result_message(id: &Id, result: &Raw) -> Bytes {
    let result = result.bytes();
    let mut out = Vec::with_capacity(result.len() + id.as_str().len() + 40);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_str().as_bytes());
    out.extend_from_slice(br#","result":"#);
    out.extend_from_slice(result);
    out.push(b'}');
    out.into()
}

/// What can go wrong in this crate apart from answers to a client ([`RpcError`]).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request never left this machine; sending it again is safe.
    #[error("the request was not sent: {0}. Nothing ran; it is safe to send it again")]
    NotSent(String),
    /// The request may have been received and carried out.
    #[error("the answer is unknown: {0}. The request may have been carried out; ask before repeating it")]
    Unknown(String),
    /// An answer of HTTP alone, without a JSON-RPC message.
    #[error("the server answered HTTP {status} without an MCP message: {body}")]
    Http {
        /// HTTP status.
        status: StatusCode,
        /// Its headers.
        headers: Box<http::HeaderMap>,
        /// The start of its body.
        body: String,
    },
    /// A JSON-RPC error.
    #[error("the server refused ({code}): {message}")]
    Rpc {
        /// HTTP status.
        status: StatusCode,
        /// JSON-RPC code.
        code: i64,
        /// The server's message.
        message: String,
        /// The server's data.
        data: Option<Raw>,
    },
    /// An answer that breaks the protocol.
    #[error("the server broke the protocol: {0}. The request may have been carried out")]
    Protocol(String),
    /// A text that isn't acceptable JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A tool's `x-mcp-header` annotation breaks the rules; the tool must not be offered or used.
    #[error("x-mcp-header at {path}: {why}. Correct the tool's input schema")]
    HeaderAnnotation {
        /// Where in the schema.
        path: String,
        /// Which rule.
        why: &'static str,
    },
    /// A setting that can't be right.
    #[error("{0}")]
    Config(String),
    /// The listening socket failed for good.
    #[error("the listening socket failed: {0}")]
    Io(#[from] std::io::Error),
}
