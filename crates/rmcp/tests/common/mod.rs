//! A served handler and a client of raw HTTP.
#![allow(dead_code)]

use counterfoil_rmcp::Durable;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The newest revision.
pub const MODERN: &str = "2026-07-28";

/// A handler behind streamable HTTP on a free port.
pub struct Served<H> {
    pub durable: H,
    pub address: SocketAddr,
    serving: JoinHandle<()>,
}

impl<H> Drop for Served<H> {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub async fn serve<H: ServerHandler>(durable: Durable<H>) -> Served<Arc<Durable<H>>> {
    serve_as_is(Arc::new(durable.start())).await
}

pub async fn serve_as_is<H: ServerHandler + Clone>(durable: H) -> Served<H> {
    let config =
        StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
    let handler = durable.clone();
    let service = StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await.unwrap();
    });
    Served { durable, address, serving }
}

/// One request, as text.
pub struct Asked {
    pub tool: &'static str,
    pub arguments: Value,
    pub meta: Value,
    pub headers: Vec<(&'static str, String)>,
    pub input: Option<Value>,
    pub state: Option<String>,
}

pub fn call(tool: &'static str, arguments: Value) -> Asked {
    Asked { tool, arguments, meta: json!({}), headers: Vec::new(), input: None, state: None }
}

impl Asked {
    pub fn key(mut self, key: &str) -> Asked {
        self.headers.push(("Idempotency-Key", key.into()));
        self
    }
    pub fn header(mut self, name: &'static str, value: &str) -> Asked {
        self.headers.push((name, value.into()));
        self
    }
    pub fn meta(mut self, name: &str, value: Value) -> Asked {
        self.meta[name] = value;
        self
    }

    /// The request's bytes.
    pub fn text(&self) -> String {
        let mut meta = self.meta.clone();
        meta["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
        meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "raw", "version": "1" });
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
        let mut body = json!({
            "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": { "name": self.tool, "arguments": self.arguments, "_meta": meta },
        });
        if let Some(input) = &self.input {
            body["params"]["inputResponses"] = input.clone();
        }
        if let Some(state) = &self.state {
            body["params"]["requestState"] = state.as_str().into();
        }
        post("tools/call", Some(self.tool), &self.headers, &body)
    }

    pub async fn send(&self, to: SocketAddr) -> Value {
        exchange(to, &self.text()).await
    }

    /// Sends it and leaves when `ready` is there, without a look at the answer.
    pub async fn send_and_leave(&self, to: SocketAddr, ready: impl Future<Output = ()>) {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(self.text().as_bytes()).await.unwrap();
        ready.await;
        drop(stream);
    }
}

pub fn post(method: &str, name: Option<&str>, headers: &[(&'static str, String)], body: &Value) -> String {
    let body = body.to_string();
    let mut text = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n\
         Content-Length: {}\r\n",
        body.len()
    );
    if let Some(name) = name {
        text.push_str(&format!("Mcp-Name: {name}\r\n"));
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text + "\r\n" + &body
}

/// Sends a request and reads its answer: the JSON-RPC message.
pub async fn exchange(to: SocketAddr, text: &str) -> Value {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(30), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
    let json = body.find('{').unwrap_or_else(|| panic!("no JSON: {answer}"));
    let mut all = serde_json::Deserializer::from_str(&body[json..]).into_iter::<Value>();
    all.next().unwrap().unwrap()
}

/// The text of a result.
pub fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

/// The object of an error that is no result.
pub fn error(answer: &Value) -> &Value {
    let object = &answer["result"]["_meta"]["dev.counterfoil/error"];
    assert!(object.is_object() && answer["result"]["isError"] == true, "no error: {answer}");
    object
}

/// What a result says of its operation.
pub fn operation(answer: &Value) -> &Value {
    let object = &answer["result"]["_meta"]["dev.counterfoil/operation"];
    assert!(object.is_object(), "no operation: {answer}");
    object
}

/// The result without what is said anew each time.
pub fn result(answer: &Value) -> String {
    let mut result = answer["result"].clone();
    result["_meta"].as_object_mut().unwrap().shift_remove("dev.counterfoil/operation").unwrap();
    result.to_string()
}

/// Waits until something holds.
pub async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
