//! A gateway of native tools, resources and prompts over real HTTP, and the few words of HTTP that tests need.
#![allow(dead_code)]

pub mod counted;
pub mod replicas;

use async_trait::async_trait;
use counterfoil_gateway as gateway;
use gateway::catalog::ListSettings;
use gateway::prompt::{Made, Prompt, PromptArgument, PromptSpec};
use gateway::resource::{Asked, Completion, Contents, Data, Failure, Resource, ResourceSpec, TemplateSpec};
use gateway::service::server_info;
use gateway::{
    ApiKeys, BadArguments, Body, Catalog, Context, Gateway, GatewayParts, GatewaySettings, Icon,
    LegacySessions, Metrics, Offer, ReadTool, Tool, ToolSettings, ToolSpec,
};
use ledger::memory::MemoryStore;
use ledger::store::{ApiKey, Attention};
use ledger::{
    Attempt, Env, Intent, Ledger, Millis, RunError, Settings, Store, SystemEnv, Time, ToolResult, Unkeyed,
};
use mcp::json::{Limits, Raw, RawObject};
use mcp::meta::LogLevel;
use mcp::server::{HttpConfig, LinesConfig, ServeLimits};
use provider::{ConfigCredentials, HttpExecutor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

pub struct World {
    pub addr: SocketAddr,
    pub gateway: Gateway,
    pub store: Arc<MemoryStore>,
    pub api_keys: Arc<ApiKeys>,
    pub stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn raw(v: &Value) -> Raw {
    Raw::parse(v.to_string(), &Limits::default()).unwrap()
}

pub fn settings() -> GatewaySettings {
    GatewaySettings {
        name: "test".into(),
        version: "1".into(),
        mode: "sandbox".into(),
        instructions: Some("Be careful.".into()),
        list_ttl_ms: 300_000,
        public_lists: true,
        retention_ms: 604_800_000,
        max_in_flight: 100,
        legacy_sessions: LegacySessions::Auto,
        session_idle: gateway::sessions::SESSION_IDLE,
        single_use: false,
    }
}

pub fn catalog(offer: Offer) -> Catalog {
    build(offer).unwrap()
}

pub fn build(offer: Offer) -> Result<Catalog, gateway::CatalogError> {
    let lists = ListSettings { ttl: Millis::secs(300), public: true, server_info: server_info("test", "1") };
    Catalog::build(offer, &lists)
}

pub async fn world(offer: Offer, settings: GatewaySettings, auth: bool) -> World {
    let env = Arc::new(SystemEnv);
    let store = Arc::new(MemoryStore::new(env.clone(), Time(1_700_000_000_000), Attention::default()));
    serve(Parts { store, env, offer, settings, auth, keeper: None, poll: Settings::default().poll }).await
}

/// What one gateway is made of.
pub struct Parts {
    pub store: Arc<MemoryStore>,
    pub env: Arc<dyn Env>,
    pub offer: Offer,
    pub settings: GatewaySettings,
    pub auth: bool,
    pub keeper: Option<seal::Keeper>,
    pub poll: Millis,
}

pub async fn serve(parts: Parts) -> World {
    serve_on(parts.store.clone(), parts).await
}

/// The same with another store for the ledger, such as one that watches that of `parts`.
pub async fn serve_on(ledgers: Arc<dyn Store>, parts: Parts) -> World {
    let Parts { store, env, offer, settings, auth, keeper, poll } = parts;
    let catalog = catalog(offer);
    serve_catalog(ledgers, Served { store, env, catalog, settings, auth, keeper, poll, paths: Vec::new() })
        .await
}

/// The same with a catalog that is made, and further paths.
pub struct Served {
    pub store: Arc<MemoryStore>,
    pub env: Arc<dyn Env>,
    pub catalog: Catalog,
    pub settings: GatewaySettings,
    pub auth: bool,
    pub keeper: Option<seal::Keeper>,
    pub poll: Millis,
    pub paths: Vec<Arc<str>>,
}

pub async fn serve_catalog(ledgers: Arc<dyn Store>, served: Served) -> World {
    let Served { store, env, catalog, settings, auth, keeper, poll, paths } = served;
    let metrics = Arc::new(Metrics::default());
    let paced = Settings { poll, ..Settings::default() };
    let ledger = Ledger::new(ledgers, env, paced, metrics.clone());
    let platform = settings.legacy_sessions == LegacySessions::Platform;
    let gateway = Gateway::new(GatewayParts {
        ledger,
        catalog,
        executor: Arc::new(HttpExecutor::new(Arc::new(ConfigCredentials::load(&[]).unwrap()))),
        settings,
        metrics,
        changes: gateway::Changes::default(),
        keeper,
        connections: Arc::default(),
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let api_keys = Arc::new(ApiKeys::new(store.clone()));
    let mut http = HttpConfig {
        port: Some(addr.port()),
        shutdown: stop.clone(),
        platform_sessions: platform,
        views: paths,
        ..HttpConfig::default()
    };
    if auth {
        http.authenticator = Some(api_keys.clone());
        for principal in ["ann", "ben"] {
            let hash = gateway::principal::hash(&format!("cfk_{principal}"));
            let key = ApiKey {
                id: principal.into(),
                principal: principal.into(),
                hash,
                created_at: Time(0),
                revoked_at: None,
                note: String::new(),
            };
            store.put_api_key(key).await.unwrap();
        }
    }
    let app = gateway.app(http).unwrap();
    tokio::spawn(mcp::server::serve(listener, app, stop.clone(), ServeLimits::default()));
    gateway.set_ready();
    World { addr, gateway, store, api_keys, stop }
}

/// An HTTP answer with the messages in it.
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub messages: Vec<Value>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|l| {
            let (n, v) = l.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| v.trim().to_owned())
        })
    }

    pub fn last(&self) -> &Value {
        self.messages.last().unwrap()
    }

    pub fn code(&self) -> i64 {
        self.last()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {:?}", self.messages))
    }
}

/// Stands for the path among headers.
pub const PATH: &str = ":path";

pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const META_CLIENT: &str = "io.modelcontextprotocol/clientInfo";
pub const META_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Params of the modern era.
pub fn modern_params(mut params: Value, meta: Value) -> Value {
    let mut all = json!({ META_VERSION: "2026-07-28", META_CAPABILITIES: {} });
    for (k, v) in meta.as_object().unwrap() {
        all[k] = v.clone();
    }
    params["_meta"] = all;
    params
}

impl World {
    /// As on the wire. A header `:path` is no header but the path.
    pub fn request(&self, verb: &str, headers: &[(&str, &str)], body: &str) -> String {
        let path = headers.iter().find(|(n, _)| *n == PATH).map_or("/mcp", |(_, path)| path);
        let mut text = format!(
            "{verb} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            self.addr,
            body.len()
        );
        if !headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("accept")) {
            text.push_str("Accept: application/json, text/event-stream\r\n");
        }
        for (name, value) in headers.iter().filter(|(n, _)| *n != PATH) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        format!("{text}\r\n{body}")
    }

    pub async fn http(&self, verb: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let headers = [headers, &[("Connection", "close")]].concat();
        let mut s = TcpStream::connect(self.addr).await.unwrap();
        s.write_all(self.request(verb, &headers, body).as_bytes()).await.unwrap();
        let mut out = Vec::new();
        tokio::time::timeout(Duration::from_secs(10), s.read_to_end(&mut out)).await.unwrap().unwrap();
        let out = String::from_utf8(out).unwrap();
        let (head, body) = out.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let events = body.lines().filter_map(|l| l.strip_prefix("data:")).map(|d| d.trim().to_owned());
        let mut messages: Vec<Value> = events.filter_map(|d| serde_json::from_str(&d).ok()).collect();
        if messages.is_empty() {
            // An answer to a batch comes in chunks (RFC 9112, section 7.1), the array in one.
            let array = body.lines().find(|l| l.starts_with('['));
            messages.extend(serde_json::from_str::<Value>(array.unwrap_or(body.trim())));
        }
        Reply { status, head: head.to_owned(), messages }
    }

    /// A request of the modern era.
    pub async fn modern(&self, method: &str, params: Value) -> Reply {
        self.modern_with(method, params, json!({}), &[]).await
    }

    pub async fn modern_with(
        &self,
        method: &str,
        params: Value,
        meta: Value,
        headers: &[(&str, &str)],
    ) -> Reply {
        let name = ["name", "uri", "taskId"].iter().find_map(|m| params[*m].as_str()).map(str::to_owned);
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": modern_params(params, meta) });
        let mut all = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
        if let Some(name) = name.as_deref()
            && (["tools/call", "prompts/get", "resources/read"].contains(&method)
                || method.starts_with("tasks/"))
        {
            all.push(("Mcp-Name", name));
        }
        all.extend_from_slice(headers);
        self.http("POST", &all, &body.to_string()).await
    }

    /// A request of the legacy era.
    pub async fn legacy(&self, session: Option<&str>, method: &str, params: Value) -> Reply {
        self.legacy_with(session, method, params, &[]).await
    }

    pub async fn legacy_with(
        &self,
        session: Option<&str>,
        method: &str,
        params: Value,
        headers: &[(&str, &str)],
    ) -> Reply {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut all = vec![("MCP-Protocol-Version", "2025-11-25")];
        all.extend(session.map(|s| ("Mcp-Session-Id", s)));
        all.extend_from_slice(headers);
        self.http("POST", &all, &body.to_string()).await
    }

    /// Opens the legacy era; gives the answer and the session.
    pub async fn initialize(&self, capabilities: Value, headers: &[(&str, &str)]) -> (Value, Option<String>) {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": "old", "version": "0.9" } });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let reply = self.http("POST", headers, &body.to_string()).await;
        assert_eq!(reply.status, 200, "{:?}", reply.messages);
        (reply.last().clone(), reply.header("mcp-session-id"))
    }

    /// A stream that stays open.
    pub async fn stream(&self, verb: &str, headers: &[(&str, &str)], body: &str) -> Stream {
        let mut s = TcpStream::connect(self.addr).await.unwrap();
        s.write_all(self.request(verb, headers, body).as_bytes()).await.unwrap();
        let mut lines = BufReader::new(s).lines();
        let status = lines.next_line().await.unwrap().unwrap();
        assert!(status.contains(" 200 "), "{status}");
        while !lines.next_line().await.unwrap().unwrap().is_empty() {}
        Stream(lines)
    }

    pub async fn listen(&self, notifications: Value) -> Stream {
        self.listen_with(notifications, &[]).await
    }

    pub async fn listen_with(&self, notifications: Value, more: &[(&str, &str)]) -> Stream {
        let params = modern_params(json!({ "notifications": notifications }), json!({}));
        let body =
            json!({ "jsonrpc": "2.0", "id": "s-1", "method": "subscriptions/listen", "params": params });
        let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "subscriptions/listen")];
        self.stream("POST", &[&headers, more].concat(), &body.to_string()).await
    }

    /// The operators' answer to a GET.
    pub async fn operator(&self, path: &str) -> Value {
        self.operator_asked(&format!("GET {path} HTTP/1.1\r\nHost: local\r\nConnection: close\r\n\r\n")).await
    }

    /// The operators' answer to a POST.
    pub async fn operator_post(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: local\r\nConnection: close\r\nContent-Type: application/json"
        );
        self.operator_asked(&format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await
    }

    async fn operator_asked(&self, request: &str) -> Value {
        let text = self.operator_answer(request).await;
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    async fn operator_answer(&self, request: &str) -> String {
        let router = gateway::operator::router(&self.gateway, self.api_keys.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let text = ask(addr, request).await;
        serving.abort();
        text
    }

    /// The answer as it was written, head and body.
    pub async fn text(&self, verb: &str, headers: &[(&str, &str)], body: &str) -> String {
        let headers = [headers, &[("Connection", "close")]].concat();
        ask(self.addr, &self.request(verb, &headers, body)).await
    }

    /// The operators' answer as it was written, head and body.
    pub async fn operator_text(&self, verb: &str, path: &str, body: &str) -> String {
        let head = format!(
            "{verb} {path} HTTP/1.1\r\nHost: local\r\nConnection: close\r\nContent-Type: application/json"
        );
        self.operator_answer(&format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await
    }

    pub async fn metrics(&self) -> String {
        let addr = self.addr;
        ask(addr, &format!("GET /metrics HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n")).await
    }
}

async fn ask(addr: SocketAddr, request: &str) -> String {
    let mut s = TcpStream::connect(addr).await.unwrap();
    s.write_all(request.as_bytes()).await.unwrap();
    let mut out = String::new();
    s.read_to_string(&mut out).await.unwrap();
    out
}

pub struct Stream(Lines<BufReader<TcpStream>>);

impl Stream {
    /// The next message.
    pub async fn next(&mut self) -> Value {
        self.within(Duration::from_secs(5)).await.expect("a message")
    }

    /// The next message, if one comes in time; `Null` at the stream's end.
    pub async fn within(&mut self, time: Duration) -> Option<Value> {
        let read = async {
            loop {
                let Ok(Some(line)) = self.0.next_line().await else { return Value::Null };
                // The last chunk (RFC 9112, section 7.1).
                if line == "0" {
                    return Value::Null;
                }
                if let Some(data) = line.strip_prefix("data:") {
                    return serde_json::from_str(data.trim()).unwrap();
                }
            }
        };
        tokio::time::timeout(time, read).await.ok()
    }
}

/// A client over lines.
pub struct GatewayLines {
    writer: WriteHalf<DuplexStream>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    next: u64,
    /// Notifications that came before the answers that were waited for.
    pub heard: Vec<Value>,
}

impl GatewayLines {
    pub fn open(w: &World) -> GatewayLines {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(theirs);
        let service = Arc::new(w.gateway.clone());
        tokio::spawn(mcp::server::serve_lines(reader, writer, LinesConfig::default(), service));
        let (reader, writer) = tokio::io::split(ours);
        GatewayLines { writer, lines: BufReader::new(reader).lines(), next: 0, heard: Vec::new() }
    }

    pub async fn send(&mut self, message: &Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// The next message, if one comes in time.
    pub async fn within(&mut self, time: Duration) -> Option<Value> {
        let line = tokio::time::timeout(time, self.lines.next_line()).await.ok()?.unwrap()?;
        Some(serde_json::from_str(&line).unwrap())
    }

    /// The answer to a request.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        loop {
            let m = self.within(Duration::from_secs(5)).await.expect("an answer");
            if m["id"] == id {
                return m;
            }
            self.heard.push(m);
        }
    }
}

pub fn icon() -> Icon {
    Icon {
        src: "https://example.com/i.png".into(),
        mime_type: Some("image/png".into()),
        sizes: vec!["48x48".into()],
        theme: Some("dark".into()),
    }
}

/// A resource that answers by its URI.
pub struct Shelf {
    pub tells: bool,
}

#[async_trait]
impl Resource for Shelf {
    async fn read(
        &self,
        context: Context,
        uri: &str,
        variables: BTreeMap<String, String>,
    ) -> Result<Vec<Contents>, Failure> {
        let text = |t: String| Contents {
            uri: uri.into(),
            mime_type: Some("text/plain".into()),
            data: Data::Text(t),
        };
        match uri.rsplit('/').next().unwrap() {
            "binary" => {
                Ok(vec![Contents { uri: uri.into(), mime_type: None, data: Data::Blob(vec![0, 255, 7]) }])
            }
            "none" => Err(Failure::NotFound),
            "bad" => Err(Failure::Bad("this can't be read that way".into())),
            "failed" => Err(Failure::Failed("the shelf is locked".into())),
            "panics" => panic!("a resource that panics"),
            "logs" => {
                context.log(LogLevel::Warning, Some("shelf"), &raw(&json!("dusty")));
                Ok(vec![text("logged".into())])
            }
            _ => Ok(vec![text(format!("{} {variables:?} \u{2028}\n\"", context.principal))]),
        }
    }

    async fn complete(&self, _context: Context, asked: Asked) -> Result<Completion, Failure> {
        if asked.value == "panic" {
            panic!("a completion that panics");
        }
        let all: Vec<String> = (0..250).map(|i| format!("{}{i}{}", asked.value, asked.known.len())).collect();
        Ok(Completion { values: all, total: Some(1000) })
    }

    fn tells_changes(&self) -> bool {
        self.tells
    }
}

pub fn resource(uri: &str, tells: bool) -> gateway::ResourceEntry {
    let spec = ResourceSpec {
        uri: uri.into(),
        name: uri.rsplit('/').next().unwrap().into(),
        title: Some("A title".into()),
        description: Some("What it holds.".into()),
        mime_type: Some("text/plain".into()),
        size: Some(7),
        icons: vec![icon()],
        annotations: Some(raw(&json!({ "audience": ["user"], "priority": 0.5 }))),
    };
    (spec, Arc::new(Shelf { tells }))
}

pub fn template(uri: &str, tells: bool) -> gateway::TemplateEntry {
    let spec = TemplateSpec {
        uri_template: uri.into(),
        name: "item".into(),
        title: None,
        description: Some("An item.".into()),
        mime_type: Some("text/plain".into()),
        icons: Vec::new(),
        annotations: None,
    };
    (spec, Arc::new(Shelf { tells }))
}

pub struct Greeting;

#[async_trait]
impl Prompt for Greeting {
    async fn get(&self, context: Context, arguments: BTreeMap<String, String>) -> Result<Made, Failure> {
        match arguments.get("tone").map(String::as_str) {
            Some("panic") => panic!("a prompt that panics"),
            Some("bad") => return Err(Failure::Bad("there is no such tone".into())),
            Some("failed") => return Err(Failure::Failed("nobody is in the mood".into())),
            Some("broken") => return Ok(Made { description: None, messages: vec![raw(&json!("text"))] }),
            _ => {}
        }
        let text = format!("Greet {} {:?}", arguments["name"], context.revision.map(|r| r.as_str()));
        let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
        Ok(Made { description: Some("A greeting".into()), messages: vec![raw(&message)] })
    }

    async fn complete(&self, _context: Context, asked: Asked) -> Result<Completion, Failure> {
        Ok(Completion { values: vec![format!("{}-{:?}", asked.value, asked.known)], total: None })
    }
}

pub fn prompt(name: &str) -> gateway::PromptEntry {
    let argument = |name: &str, required| PromptArgument {
        name: name.into(),
        title: Some("Title".into()),
        description: Some("What it means.".into()),
        required,
    };
    let spec = PromptSpec {
        name: name.into(),
        title: Some("Greeting".into()),
        description: Some("Greets somebody.".into()),
        arguments: vec![argument("name", true), argument("tone", false)],
        icons: vec![icon()],
    };
    (spec, Arc::new(Greeting))
}

/// Tells what it was given.
pub struct Echo;

#[async_trait]
impl ReadTool for Echo {
    async fn read(&self, context: Context, arguments: RawObject) -> Result<ToolResult, BadArguments> {
        if arguments.get("panic").is_some() {
            panic!("a tool that panics");
        }
        context.progress(1.0, Some(2.0), Some("half"));
        for level in [LogLevel::Debug, LogLevel::Info, LogLevel::Error] {
            context.log(level, None, &raw(&json!({ "at": level.as_str() })));
        }
        let told = json!({
            "principal": &*context.principal,
            "revision": context.revision.map(|r| r.as_str()),
            "sampling": context.has("sampling"),
        });
        let body =
            json!({ "content": [{ "type": "text", "text": told.to_string() }], "structuredContent": told });
        Ok(ToolResult { result: body.to_string().into_bytes(), is_error: false })
    }
}

/// Counts how often it ran.
#[derive(Default)]
pub struct Count(pub AtomicUsize);

#[async_trait]
impl Tool for Count {
    fn plan(&self, _arguments: &RawObject) -> Result<Option<Intent>, BadArguments> {
        Ok(None)
    }

    async fn run(&self, _attempt: &Attempt) -> Result<ToolResult, RunError> {
        let n = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        let body = json!({ "content": [{ "type": "text", "text": n.to_string() }], "isError": false });
        Ok(ToolResult { result: body.to_string().into_bytes(), is_error: false })
    }

    fn safety(&self) -> Value {
        json!({ "effect": "mutating" })
    }
}

pub fn tool(name: &str, requires: Option<Value>, body: Body) -> (ToolSpec, ToolSettings, Body) {
    let spec = ToolSpec {
        mode: None,
        canonical: format!("native.{name}").into(),
        name: name.into(),
        title: Some("A tool".into()),
        description: "Does something.".into(),
        input_schema: raw(&json!({ "type": "object" })),
        output_schema: None,
        icons: vec![icon()],
        requires: requires.as_ref().map(raw),
        annotations: Some(raw(&json!({ "readOnlyHint": true, "idempotentHint": true }))),
    };
    (spec, ToolSettings { unkeyed: Unkeyed::New, ..ToolSettings::default() }, body)
}

/// Some of everything, with nothing that needs a session.
pub fn offer() -> Offer {
    Offer {
        tools: vec![tool("echo", None, Body::Read(Arc::new(Echo)))],
        resources: vec!["text", "binary", "none", "bad", "failed", "panics", "logs"]
            .into_iter()
            .map(|n| resource(&format!("test://shelf/{n}"), false))
            .collect(),
        templates: vec![template("test://item/{id}/data", false), template("test://item/{id}/{part}", false)],
        prompts: vec![prompt("greet")],
    }
}

/// As [`offer`], with resources whose changes are told.
pub fn watched() -> Offer {
    let mut o = offer();
    o.resources.push(resource("test://watched", true));
    o.templates.push(template("test://watch/{id}", true));
    o
}
