//! The MCP wire, written and read by hand: the modern revision 2026-07-28, and calls of the legacy era.

use crate::http::{self, Connection, Reply};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The revision that is spoken.
pub const VERSION: &str = "2026-07-28";
/// The newest revision of the legacy era.
pub const LEGACY: &str = "2025-11-25";
/// Where an idempotency key is in `_meta`.
pub const META_KEY: &str = "dev.counterfoil/idempotency-key";
/// Where the operation is in a result's `_meta`.
pub const META_OPERATION: &str = "dev.counterfoil/operation";
/// Where an error is in a result's `_meta`.
pub const META_ERROR: &str = "dev.counterfoil/error";
/// Where a consumer acknowledges, in a request's `_meta`.
pub const META_ACK: &str = "dev.counterfoil/ack";

/// In which era a request is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Revision 2026-07-28: each request says all.
    Modern,
    /// The legacy era without session and without `initialize`; the revision is in a header, or left out as the
    /// first clients of the transport did (2025-03-26).
    Legacy(Option<&'static str>),
}

/// A `tools/call` to be written.
#[derive(Clone, Debug)]
pub struct Call {
    /// JSON-RPC id, as JSON text.
    pub id: String,
    /// The tool's name on the wire.
    pub tool: String,
    /// The arguments.
    pub arguments: Value,
    /// Further members of `_meta`.
    pub meta: Value,
    /// `params.idempotencyKey`.
    pub params_key: Option<String>,
    /// The header `Idempotency-Key`.
    pub header_key: Option<String>,
    /// The header `Authorization`.
    pub auth: Option<String>,
    /// Asks for a stream only or JSON only; both by default.
    pub accept: &'static str,
    /// In which era it is written.
    pub era: Era,
}

impl Call {
    /// A call of a tool.
    #[must_use]
    pub fn new(tool: &str, arguments: Value) -> Call {
        Call {
            id: "1".into(),
            tool: tool.into(),
            arguments,
            meta: json!({}),
            params_key: None,
            header_key: None,
            auth: None,
            accept: "application/json, text/event-stream",
            era: Era::Modern,
        }
    }

    /// The same in another era.
    #[must_use]
    pub fn of(mut self, era: Era) -> Call {
        self.era = era;
        self
    }

    /// With a key in `_meta`.
    #[must_use]
    pub fn keyed(mut self, key: &str) -> Call {
        self.meta[META_KEY] = json!(key);
        self
    }

    /// The request's bytes.
    #[must_use]
    pub fn bytes(&self, addr: SocketAddr) -> Vec<u8> {
        let mut params = json!({ "name": self.tool, "arguments": self.arguments });
        match self.era {
            Era::Modern => params["_meta"] = meta(&self.meta),
            Era::Legacy(_) if self.meta == json!({}) => {}
            Era::Legacy(_) => params["_meta"] = self.meta.clone(),
        }
        if let Some(key) = &self.params_key {
            params["idempotencyKey"] = json!(key);
        }
        let mut more: Vec<(&str, &str)> = Vec::new();
        if let Some(key) = &self.header_key {
            more.push(("Idempotency-Key", key));
        }
        if let Some(auth) = &self.auth {
            more.push(("Authorization", auth));
        }
        match self.era {
            Era::Modern => post(addr, &self.id, "tools/call", Some(&self.tool), &params, self.accept, &more),
            Era::Legacy(revision) => {
                let host = addr.to_string();
                more.extend([
                    ("Host", host.as_str()),
                    ("Content-Type", "application/json"),
                    ("Accept", self.accept),
                ]);
                more.extend(revision.map(|r| ("MCP-Protocol-Version", r)));
                let id = &self.id;
                let body =
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
                http::request("POST", "/mcp", &more, body.as_bytes())
            }
        }
    }
}

/// The required `_meta` of a request, with further members.
#[must_use]
pub fn meta(more: &Value) -> Value {
    let mut all = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "counterfoil-tests-raw", "version": "1.0.0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    all
}

/// The bytes of a request to an address, with the headers that the specification asks for.
#[must_use]
pub fn post(
    addr: SocketAddr,
    id: &str,
    method: &str,
    name: Option<&str>,
    params: &Value,
    accept: &str,
    more: &[(&str, &str)],
) -> Vec<u8> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    let host = addr.to_string();
    let mut headers = vec![
        ("Host", host.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", accept),
        ("MCP-Protocol-Version", VERSION),
        ("Mcp-Method", method),
    ];
    if let Some(name) = name {
        headers.push(("Mcp-Name", name));
    }
    headers.extend_from_slice(more);
    http::request("POST", "/mcp", &headers, body.as_bytes())
}

/// The members of an object as they were written.
#[derive(Debug)]
pub struct Members(pub Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Members(all))
            }
        }
        d.deserialize_map(V)
    }
}

/// What a call was told, whoever asked.
#[derive(Clone, Debug)]
pub enum Said {
    /// A result that the ledger stored.
    Result {
        /// The stored bytes (raw client), or their JSON in canonical form (official clients).
        stored: String,
        /// The result as JSON, without its envelope.
        value: Value,
        /// `_meta["dev.counterfoil/operation"]`.
        operation: Value,
        /// The provider refused.
        is_error: bool,
    },
    /// An answer that is no result: `_meta["dev.counterfoil/error"]`.
    Error {
        /// Its kind.
        kind: String,
        /// The whole object.
        error: Value,
        /// Its sentence.
        text: String,
    },
    /// A JSON-RPC error.
    Rpc {
        /// HTTP status, where known.
        status: u16,
        /// JSON-RPC code.
        code: i64,
        /// Its message.
        message: String,
    },
    /// No answer: what the client saw instead.
    Lost(String),
}

impl Said {
    /// Reads an answer of the wire.
    #[must_use]
    pub fn of(reply: &Reply) -> Said {
        let text = reply.message();
        let Ok(message) = serde_json::from_str::<Members>(&text) else {
            return Said::Lost(format!(
                "HTTP {}: {}",
                reply.status,
                text.chars().take(200).collect::<String>()
            ));
        };
        for (name, value) in message.0 {
            match name.as_str() {
                "result" => return Said::of_result(value.get()),
                "error" => {
                    let error: Value = serde_json::from_str(value.get()).unwrap_or_default();
                    return Said::Rpc {
                        status: reply.status,
                        code: error["code"].as_i64().unwrap_or_default(),
                        message: error["message"].as_str().unwrap_or_default().to_owned(),
                    };
                }
                _ => {}
            }
        }
        Said::Lost(format!("HTTP {} without result or error: {text}", reply.status))
    }

    /// Reads a result: what was stored is everything but the envelope that is made for each call.
    #[must_use]
    pub fn of_result(text: &str) -> Said {
        let Ok(members) = serde_json::from_str::<Members>(text) else {
            return Said::Lost(format!("a result that is no object: {text}"));
        };
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        if let Some(error) = value["_meta"].get(META_ERROR) {
            return Said::Error {
                kind: error["kind"].as_str().unwrap_or_default().to_owned(),
                error: error.clone(),
                text: value["content"][0]["text"].as_str().unwrap_or_default().to_owned(),
            };
        }
        let operation = value["_meta"][META_OPERATION].clone();
        let mut stored = String::new();
        for (name, raw) in &members.0 {
            match name.as_str() {
                "resultType" => {}
                "_meta" => {
                    let inner = serde_json::from_str::<Members>(raw.get()).map(|m| m.0).unwrap_or_default();
                    for (key, raw) in inner.iter().filter(|(key, _)| {
                        key != META_OPERATION && key != "io.modelcontextprotocol/serverInfo"
                    }) {
                        stored.push_str(&format!("_meta/{key}={}\n", raw.get()));
                    }
                }
                name => stored.push_str(&format!("{name}={}\n", raw.get())),
            }
        }
        let is_error = value["isError"].as_bool().unwrap_or(false);
        Said::Result { stored, value: without_envelope(value), operation, is_error }
    }

    /// With all that an error says.
    #[must_use]
    pub fn at_length(&self) -> String {
        match self {
            Said::Error { text, .. } => format!("{}: {text}", self.brief()),
            other => other.brief(),
        }
    }

    /// In a few words.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Said::Result { operation, is_error, .. } => {
                format!(
                    "{} of {}",
                    if *is_error { "a refusal" } else { "a result" },
                    operation["id"].as_str().unwrap_or("?")
                )
            }
            Said::Error { kind, error, .. } => {
                format!("{kind} of {}", error["operationId"].as_str().unwrap_or("no operation"))
            }
            Said::Rpc { status, code, message } => format!("HTTP {status}, {code}: {message}"),
            Said::Lost(why) => format!("lost: {why}"),
        }
    }
}

/// What of a result is not made anew for each call.
fn without_envelope(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.shift_remove("resultType");
        let meta = object.get_mut("_meta").and_then(Value::as_object_mut).map(|meta| {
            meta.shift_remove(META_OPERATION);
            meta.shift_remove("io.modelcontextprotocol/serverInfo");
            meta.is_empty()
        });
        if meta == Some(true) {
            object.shift_remove("_meta");
        }
        // A client that fills in the default says the same.
        if object.get("isError") == Some(&json!(false)) {
            object.shift_remove("isError");
        }
    }
    value
}

/// Makes a call on a connection of its own.
#[must_use]
pub fn call(addr: SocketAddr, timeout: Duration, call: &Call) -> Said {
    match http::once(addr, timeout, &call.bytes(addr)) {
        Ok(reply) => Said::of(&reply),
        Err(e) => Said::Lost(e.to_string()),
    }
}

/// Makes a request other than a call and returns its result or error object.
///
/// # Errors
/// What the socket says.
pub fn ask(addr: SocketAddr, method: &str, name: Option<&str>, mut params: Value) -> std::io::Result<Value> {
    params["_meta"] = meta(&params["_meta"]);
    let bytes = post(addr, "1", method, name, &params, "application/json, text/event-stream", &[]);
    let reply = Connection::open(addr, Duration::from_secs(10))?.exchange(&bytes)?;
    Ok(serde_json::from_str(&reply.message()).unwrap_or_default())
}
