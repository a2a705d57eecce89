//! A server with a service of many moods, and a raw client that sees every byte.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mcp::constants::{meta, method};
use mcp::input::{Asker, Given, InputRequest};
use mcp::json::Limits;
use mcp::message::Notification;
use mcp::meta::LogLevel;
use mcp::server::{
    Caller, Client, ClientError, Delivery, Exchange, HttpConfig, InBatch, Opened, Opening, Outcome,
    Responder, ServeLimits, Service, SessionRefusal, Subscription, WireResult, app, serve_announced,
};
use mcp::{Raw, RawObject, RpcError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What the service saw.
#[derive(Debug, PartialEq)]
pub enum Seen {
    Gone,
    WentOn,
    Fate(Delivery),
    Ended,
    Notified(String),
    /// A question's stream is gone.
    Cut,
}

pub struct Moods {
    seen: mpsc::UnboundedSender<Seen>,
    pub release: Notify,
    pub subscriptions: Mutex<Vec<Subscription>>,
    /// Legacy streams.
    pub streams: Mutex<Vec<Arc<Subscription>>>,
    /// Questions without an answer, by their id.
    pub asked: std::sync::Mutex<HashMap<String, oneshot::Sender<Result<Raw, ClientError>>>>,
    /// Legacy sessions and whose they are.
    pub sessions: std::sync::Mutex<HashMap<String, String>>,
}

/// What a caller says of itself in a header of the tests.
pub fn said(caller: &Caller, name: &str) -> String {
    caller.headers.get(name).map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default()
}

impl Moods {
    /// Panics where a test asks for it.
    fn mood(&self, caller: &Caller, place: &str) {
        assert!(said(caller, "x-panic") != place, "on purpose");
    }

    /// Waits for the answer to a question.
    pub fn answer_to(&self, id: &str) -> oneshot::Receiver<Result<Raw, ClientError>> {
        let (sender, receiver) = oneshot::channel();
        self.asked.lock().unwrap().insert(id.to_owned(), sender);
        receiver
    }

    fn look_up(&self, caller: &Caller) -> Result<(), SessionRefusal> {
        match caller.session.as_deref() {
            None => Ok(()),
            Some("busy") => Err(SessionRefusal::Unavailable),
            Some("none") => Err(SessionRefusal::None),
            Some(id) if self.sessions.lock().unwrap().get(id) == Some(&said(caller, "x-who")) => Ok(()),
            Some(_) => Err(SessionRefusal::Unknown),
        }
    }
}

pub fn raw(text: &str) -> Raw {
    Raw::parse(text.to_owned(), &Limits { depth: 400, unique_members: false }).unwrap()
}

impl Service for Moods {
    fn ready(&self, exchange: &Exchange) -> Option<Outcome> {
        match exchange.request.method.as_str() {
            method::DISCOVER => {
                let result = raw(
                    r#"{"supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"public"}"#,
                );
                if exchange.caller.revision.is_legacy() {
                    return None;
                }
                Some(
                    WireResult::complete(&result, &[(meta::SERVER_INFO, r#"{"name":"t","version":"1"}"#)])
                        .unwrap()
                        .into(),
                )
            }
            method::TOOLS_LIST => {
                let params = exchange.request.params.as_ref();
                let after = match mcp::paging::requested("tools", params) {
                    Ok(after) => after,
                    Err(error) => return Some(error.into()),
                };
                let text = match after.as_deref() {
                    None => format!(
                        r#"{{"tools":[{{"name":"echo","inputSchema":{{"type":"object","properties":{{"region":{{"type":"string","x-mcp-header":"Region"}}}}}}}},{{"name":"bad","inputSchema":{{"type":"object","properties":{{"x":{{"type":"number","x-mcp-header":"X"}}}}}}}}],"nextCursor":"{}","ttlMs":0,"cacheScope":"public"}}"#,
                        mcp::paging::encode("tools", "bad")
                    ),
                    Some(_) => r#"{"tools":[{"name":"last","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"public"}"#.into(),
                };
                let legacy = exchange.caller.revision.is_legacy();
                let made = if legacy { WireResult::legacy } else { WireResult::complete };
                Some(made(&raw(&text), &[]).unwrap().into())
            }
            method::INITIALIZE | "ping" if exchange.caller.revision.is_legacy() => {
                panic!("the wire answers these")
            }
            "test/panic_ready" => panic!("on purpose"),
            "test/mood" => {
                let (caller, meta) = (&exchange.caller, &exchange.meta);
                let result = serde_json::json!({
                    "revision": caller.revision.as_str(),
                    "session": caller.session.as_deref(),
                    "version": meta.protocol_version(),
                    "capabilities": meta.client_capabilities(),
                    "level": meta.log_level().map(LogLevel::as_str),
                    "token": meta.progress_token(),
                });
                Some(WireResult::legacy(&raw(&result.to_string()), &[]).unwrap().into())
            }
            "test/batched" => {
                let calls = exchange.caller.extensions.get::<InBatch>().map(|b| b.calls);
                let result = serde_json::json!({ "calls": calls });
                Some(WireResult::legacy(&raw(&result.to_string()), &[]).unwrap().into())
            }
            "test/known" => Some(RpcError::application(7001, "some_kind", "No.").into()),
            _ => None,
        }
    }

    async fn call(self: Arc<Self>, exchange: Exchange, responder: Responder) {
        let params = exchange.request.params.clone().unwrap_or_else(RawObject::empty);
        let legacy = exchange.caller.revision.is_legacy();
        if exchange.request.method == method::LISTEN && !legacy {
            let subscription = responder.listen(&params.get("notifications").unwrap_or(raw("{}")), &[]);
            self.subscriptions.lock().await.push(subscription);
            return;
        }
        if exchange.request.method != method::TOOLS_CALL {
            responder.finish(RpcError::method_not_found(&exchange.request.method));
            return;
        }
        let arguments = params.get("arguments").unwrap_or(raw("{}"));
        let name = params.get("name").unwrap();
        let made = if legacy { WireResult::legacy } else { WireResult::complete };
        let text = |text: &str| made(&raw(text), &[("dev.example/x", "1")]).unwrap();
        match name.as_string().unwrap().as_ref() {
            "echo" => {
                let schema = raw(r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#);
                let mirrored = mcp::headers::HeaderParams::of_schema(&schema).unwrap();
                if legacy {
                    // Headers mirror nothing there.
                } else if let Err(error) =
                    mirrored.check(&exchange.caller.headers, arguments.object().as_ref())
                {
                    responder.finish(error);
                    return;
                }
                let result =
                    format!("{{\"content\":[],\r\n \"echo\" : {arguments},\"_meta\":{{\"own\": 1.0 }}}}");
                responder.finish(text(&result));
            }
            "slow" => {
                tokio::time::sleep(Duration::from_millis(
                    arguments.object().unwrap().get("ms").unwrap().read().unwrap(),
                ))
                .await;
                responder.finish(text(r#"{"content":[],"slow":true}"#));
            }
            "hold" => {
                let notifier = responder.notifier();
                let seen = self.seen.clone();
                tokio::spawn(async move {
                    notifier.gone().await;
                    seen.send(Seen::Gone).unwrap();
                });
                self.release.notified().await;
                self.seen.send(Seen::WentOn).unwrap();
                let fate = responder.finish(text(r#"{"content":[]}"#)).await;
                self.seen.send(Seen::Fate(fate)).unwrap();
            }
            "told" => {
                let fate = responder.finish(text(r#"{"content":[]}"#));
                let seen = self.seen.clone();
                tokio::spawn(async move { seen.send(Seen::Fate(fate.await)).unwrap() });
            }
            // Asks the client, in the manner of its era, and tells what came back.
            "ask" if legacy => {
                let answer = self.answer_to("q-1");
                let params = raw(
                    "{\n\"message\":\"Sure?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{}}}",
                );
                // The first revision with a legacy client's streams has no elicitation.
                let oldest = exchange.caller.revision == mcp::Revision::V2025_03_26;
                let asked = if oldest {
                    responder.request("q-1".into(), method::ROOTS_LIST, None)
                } else {
                    responder.request("q-1".into(), method::ELICITATION_CREATE, Some(&params))
                };
                let asked = match asked {
                    Ok(asked) => asked,
                    Err(why) => {
                        responder.finish(RpcError::application(7003, "unsent", format!("{why:?}")));
                        return;
                    }
                };
                let outcome = tokio::select! {
                    answer = answer => answer.unwrap(),
                    () = responder.gone() => return drop(asked),
                    () = self.release.notified() => {
                        drop(asked);
                        responder.finish(text(r#"{"content":[],"moot":true}"#));
                        return;
                    }
                    () = asked.cut() => {
                        self.seen.send(Seen::Cut).unwrap();
                        return asked.answered();
                    }
                };
                asked.answered();
                let outcome = match outcome {
                    Ok(answer) => answer.to_string(),
                    Err(error) => serde_json::json!([error.code, error.message]).to_string(),
                };
                responder.finish(text(&format!(r#"{{"content":[],"outcome":{outcome}}}"#)));
            }
            "ask" => {
                let given = match Given::of(&exchange.request) {
                    Ok(given) => given,
                    Err(error) => return drop(responder.finish(error)),
                };
                let round: u32 = given.state.as_deref().map_or(0, |state| state.parse().unwrap());
                let rounds = arguments.object().unwrap().get("rounds").map_or(1, |n| n.read().unwrap());
                if round < rounds {
                    let roots = InputRequest::roots(&format!("r{round}")).unwrap();
                    let state = (round + 1).to_string();
                    let asks = WireResult::input_required(Asker::ToolsCall, &[roots], Some(&state), &[]);
                    responder.finish(asks.unwrap());
                    return;
                }
                let all: Vec<_> =
                    given.responses.iter().map(|(key, one)| format!("[\"{key}\",{one}]")).collect();
                let all = all.join(",");
                let id = exchange.request.id.as_str();
                responder.finish(text(&format!(r#"{{"content":[],"id":{id},"given":[{all}]}}"#)));
            }
            "panic" => panic!("on purpose"),
            "panic_late" => {
                tokio::time::sleep(Duration::from_millis(150)).await;
                panic!("on purpose");
            }
            "forget" => {}
            "progress" => {
                for step in [1.0, 2.0, 2.0, 1.5, f64::NAN, 2.5] {
                    responder.progress(step, Some(3.0), Some("so\nfar"));
                }
                responder.log(LogLevel::Info, None, &raw("\"too low\""));
                responder.log(LogLevel::Error, Some("t"), &raw("{\n\"a\":1}"));
                responder.finish(text(r#"{"content":[],"done":true}"#));
            }
            "big" => {
                responder.progress(1.0, None, None);
                let big = "x".repeat(8 << 20);
                let fate = responder.finish(text(&format!(r#"{{"content":[],"big":"{big}"}}"#)));
                let seen = self.seen.clone();
                tokio::spawn(async move { seen.send(Seen::Fate(fate.await)).unwrap() });
            }
            other => {
                responder.finish(RpcError::invalid_params(format!("unknown tool: {other}")));
            }
        }
    }

    async fn initialize(self: Arc<Self>, caller: Caller, opening: Opening) -> Result<Opened, RpcError> {
        self.mood(&caller, "initialize");
        if said(&caller, "x-refuse") == "initialize" {
            return Err(RpcError::application(7002, "full", "No."));
        }
        let info = opening.client_info.map_or("null".into(), |i| i.to_string());
        let wanted = said(&caller, "x-open");
        let session = (!wanted.is_empty()).then(|| {
            self.sessions.lock().unwrap().insert(wanted.clone(), said(&caller, "x-who"));
            wanted.clone()
        });
        let result = raw(&format!(
            r#"{{"capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"t","version":"1"}},"protocolVersion":"no","_meta":{{"info":{info},"capabilities":{}}}}}"#,
            opening.capabilities
        ));
        Ok(Opened { result, session })
    }

    async fn client(&self, caller: &Caller) -> Result<Client, SessionRefusal> {
        self.mood(caller, "client");
        self.look_up(caller)?;
        let mut client = Client::default();
        if caller.session.is_some() {
            client.capabilities = raw(r#"{"roots":{}}"#);
            client.log_level = Some(LogLevel::Error);
            client.revision = mcp::Revision::parse(&said(caller, "x-agreed"));
        }
        Ok(client)
    }

    async fn end_session(&self, caller: &Caller) -> Result<(), SessionRefusal> {
        self.mood(caller, "end_session");
        self.look_up(caller)?;
        self.sessions.lock().unwrap().remove(caller.session.as_deref().unwrap());
        Ok(())
    }

    async fn stream(self: Arc<Self>, caller: Caller, stream: Subscription) {
        self.mood(&caller, "stream");
        let stream = Arc::new(stream);
        self.streams.lock().await.push(stream.clone());
        tokio::task::yield_now().await;
        self.mood(&caller, "stream_late");
        stream.ended().await;
        self.seen.send(Seen::Ended).unwrap();
    }

    async fn response(
        self: Arc<Self>,
        caller: Caller,
        id: String,
        outcome: Result<Raw, ClientError>,
    ) -> Result<(), RpcError> {
        self.mood(&caller, "response");
        if said(&caller, "x-refuse") == "response" {
            return Err(RpcError::unavailable("not now"));
        }
        if let Some(waiting) = self.asked.lock().unwrap().remove(&id) {
            let _ = waiting.send(outcome);
        }
        Ok(())
    }

    async fn notified(self: Arc<Self>, caller: Caller, notification: Notification) {
        self.mood(&caller, "notified");
        self.seen.send(Seen::Notified(notification.method)).unwrap();
    }

    fn identity(&self, caller: &Caller) -> Arc<str> {
        self.mood(caller, "identity");
        said(caller, "x-who").into()
    }
}

pub struct Server {
    pub addr: SocketAddr,
    pub moods: Arc<Moods>,
    pub seen: mpsc::UnboundedReceiver<Seen>,
    pub announced: CancellationToken,
    pub shutdown: CancellationToken,
    pub served: JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Server {
        Self::with(|_| {}, ServeLimits::default()).await
    }

    pub async fn with(change: impl FnOnce(&mut HttpConfig), limits: ServeLimits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (sender, seen) = mpsc::unbounded_channel();
        let moods = Arc::new(Moods {
            seen: sender,
            release: Notify::new(),
            subscriptions: Mutex::default(),
            streams: Mutex::default(),
            asked: Default::default(),
            sessions: Default::default(),
        });
        let mut config = HttpConfig { port: Some(addr.port()), ..HttpConfig::default() };
        config.early_bytes = Duration::from_millis(100);
        config.keep_alive = Duration::from_millis(100);
        change(&mut config);
        let shutdown = config.shutdown.clone();
        let announced = CancellationToken::new();
        let app = app(config, moods.clone()).unwrap();
        let served =
            tokio::spawn(serve_announced(listener, app, announced.clone(), shutdown.clone(), limits));
        Server { addr, moods, seen, announced, shutdown, served }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    pub async fn next(&mut self) -> Seen {
        tokio::time::timeout(Duration::from_secs(5), self.seen.recv())
            .await
            .expect("nothing was seen")
            .unwrap()
    }

    /// Sends bytes, then reads until the server closes.
    pub async fn send(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut all = Vec::new();
        tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut all))
            .await
            .expect("no end")
            .unwrap();
        Answer::of(&all)
    }

    /// Sends a well-formed request with `Connection: close`.
    pub async fn post(&self, body: &str, change: &[(&str, Option<&str>)]) -> Answer {
        self.send(&self.request(body, change)).await
    }

    /// As [`Server::post`], with the headers of a legacy client and `more`.
    pub async fn legacy(&self, body: &str, more: &[(&str, &str)]) -> Answer {
        self.send(&self.legacy_request(body, more)).await
    }

    pub fn legacy_request(&self, body: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let mut change = vec![("MCP-Protocol-Version", None), ("Mcp-Method", None), ("Mcp-Name", None)];
        change.extend(more.iter().map(|(name, value)| (*name, Some(*value))));
        self.request(body, &change)
    }

    /// A request without a body.
    pub fn bare(&self, method: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let mut head = format!("{method} /mcp HTTP/1.1\r\nConnection: close\r\n");
        if !more.iter().any(|(name, _)| *name == "Host") {
            head.push_str(&format!("Host: {}\r\n", self.addr));
        }
        for (name, value) in more {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// A request with the headers that belong to its body; `change` replaces, adds, or (with `None`) removes some.
    pub fn request(&self, body: &str, change: &[(&str, Option<&str>)]) -> Vec<u8> {
        let value: serde_json::Value = serde_json::from_str(&body.replace("1e999", "0")).unwrap_or_default();
        let mut headers = vec![
            ("Host".to_owned(), self.addr.to_string()),
            ("Content-Type".into(), "application/json".into()),
            ("Accept".into(), "application/json, text/event-stream".into()),
            ("MCP-Protocol-Version".into(), "2026-07-28".into()),
            ("Mcp-Method".into(), value["method"].as_str().unwrap_or("none").into()),
            ("Connection".into(), "close".into()),
            ("Content-Length".into(), body.len().to_string()),
        ];
        if let Some(name) = value["params"]["name"].as_str() {
            headers.push(("Mcp-Name".into(), name.into()));
        }
        for (name, value) in change {
            headers.retain(|(known, _)| known != name);
            for value in value.iter().flat_map(|v| v.split('|')) {
                headers.push(((*name).into(), value.into()));
            }
        }
        let head: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut request = format!("POST /mcp HTTP/1.1\r\n{head}\r\n").into_bytes();
        request.extend_from_slice(body.as_bytes());
        request
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn of(all: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(all).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
        let head = head.to_ascii_lowercase();
        let body = if head.contains("transfer-encoding: chunked") { dechunk(body) } else { body.to_owned() };
        Answer { status: head[9..12].parse().unwrap(), head, body }
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Status, code and id, as three that must be right together.
    pub fn refusal(&self) -> (u16, i64, Option<serde_json::Value>) {
        let json = self.json();
        assert!(json["error"]["message"].is_string(), "{json}");
        (self.status, json["error"]["code"].as_i64().unwrap(), json.get("id").cloned())
    }

    /// The messages of an event stream.
    pub fn events(&self) -> Vec<serde_json::Value> {
        assert!(self.head.contains("content-type: text/event-stream"), "{self:?}");
        self.body
            .lines()
            .filter_map(|l| l.strip_prefix("data: "))
            .map(|l| serde_json::from_str(l).unwrap())
            .collect()
    }
}

fn dechunk(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        out.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    out
}

pub const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

pub fn message(id: &str, method: &str, params: &str) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{META}{comma}{params}}}}}"#)
}

pub fn call(tool: &str, arguments: &str) -> String {
    message("1", "tools/call", &format!(r#""name":"{tool}","arguments":{arguments}"#))
}

/// A request of the legacy era.
pub fn legacy(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
}

pub fn legacy_call(id: &str, tool: &str, arguments: &str) -> String {
    legacy(id, "tools/call", &format!(r#""name":"{tool}","arguments":{arguments}"#))
}

pub fn cancel(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

/// A legacy client's handshake.
pub const ASK: &str = r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}"#;
/// What a client of the stream accepts.
pub const EVENTS: (&str, &str) = ("Accept", "text/event-stream");
