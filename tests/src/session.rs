//! What a legacy client keeps open, by hand: its session, its stream; and a modern client's stream of changes.

use crate::http::{self, Connection, Reply};
use crate::stream::Stream;
use crate::wire;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(8);

/// The notification that the list of tools changed.
pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// A legacy session, whichever replica is asked.
#[derive(Clone, Debug)]
pub struct Session {
    /// `Mcp-Session-Id`.
    pub id: String,
}

impl Session {
    /// Opens one at an address.
    ///
    /// # Errors
    /// None was minted.
    pub fn open(at: SocketAddr) -> Result<Session> {
        let params = json!({
            "protocolVersion": wire::LEGACY,
            "capabilities": {},
            "clientInfo": { "name": "counterfoil-tests-raw", "version": "1.0.0" },
        });
        let reply = send(at, "POST", None, Some(("initialize", params)))?;
        let id = reply.header("mcp-session-id").with_context(|| format!("no session: {}", reply.text()))?;
        Ok(Session { id: id.to_owned() })
    }

    /// Asks something in it.
    ///
    /// # Errors
    /// What the socket says.
    pub fn ask(&self, at: SocketAddr, method: &str, params: Value) -> Result<Reply> {
        send(at, "POST", Some(&self.id), Some((method, params)))
    }

    /// Ends it.
    ///
    /// # Errors
    /// What the socket says.
    pub fn end(&self, at: SocketAddr) -> Result<Reply> {
        send(at, "DELETE", Some(&self.id), None)
    }

    /// Opens its stream.
    ///
    /// # Errors
    /// It is refused.
    pub fn stream(&self, at: SocketAddr) -> Result<Stream> {
        opened(at, &request(at, "GET", Some(&self.id), None))
    }
}

/// Opens a modern client's stream that tells of changes: `notifications` is the filter.
///
/// # Errors
/// It is refused, or not acknowledged.
pub fn listen(at: SocketAddr, notifications: &Value) -> Result<Stream> {
    let params = json!({ "notifications": notifications, "_meta": wire::meta(&json!({})) });
    let accept = "application/json, text/event-stream";
    let mut stream = opened(at, &wire::post(at, "7", "subscriptions/listen", None, &params, accept, &[]))?;
    stream.until(LIMIT, |s| s.events().is_ok_and(|e| !e.is_empty())).context("no acknowledgement")?;
    Ok(stream)
}

fn opened(at: SocketAddr, bytes: &[u8]) -> Result<Stream> {
    let mut stream = Stream::open(at, bytes)?;
    stream.until(LIMIT, |s| s.head().is_some()).context("no stream")?;
    match stream.status()? {
        200 => Ok(stream),
        status => bail!("the stream was refused with {status}: {}", stream.body()),
    }
}

/// How often a stream told something.
#[must_use]
pub fn told(stream: &Stream, method: &str) -> usize {
    stream.events().unwrap_or_default().iter().filter(|e| e["method"] == method).count()
}

fn request(at: SocketAddr, verb: &str, session: Option<&str>, ask: Option<(&str, Value)>) -> Vec<u8> {
    let host = at.to_string();
    let mut headers = vec![
        ("Host", host.as_str()),
        ("Accept", if verb == "GET" { "text/event-stream" } else { "application/json, text/event-stream" }),
        ("MCP-Protocol-Version", wire::LEGACY),
    ];
    headers.extend(session.map(|id| ("Mcp-Session-Id", id)));
    let body = ask.map(|(method, params)| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    });
    if body.is_some() {
        headers.push(("Content-Type", "application/json"));
    }
    http::request(verb, "/mcp", &headers, body.unwrap_or_default().as_bytes())
}

fn send(at: SocketAddr, verb: &str, session: Option<&str>, ask: Option<(&str, Value)>) -> Result<Reply> {
    Ok(Connection::open(at, LIMIT)?.exchange(&request(at, verb, session, ask))?)
}
