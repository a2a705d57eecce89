//! The official Rust client as a worker: one JSON request a line on standard input, one JSON answer a line on standard
//! output. Its argument says how it opens: `auto` asks the server which revisions it speaks, `legacy` is what the
//! client does unless it is told otherwise.
//!
//! The requests are those of the other workers (`tests/clients/host.mjs`). A client object is kept from one request to
//! the next, and made anew when it is closed; nothing is ever sent twice from here.

use anyhow::{Context, Result, anyhow, bail};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, RequestMetaObject, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, NotificationContext, PeerRequestOptions, RunningService,
    ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

const CHANGED: &str = "notifications/tools/list_changed";

/// What has come of changes.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<&'static str>>>);

impl Seen {
    fn add(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(CHANGED);
    }

    fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClientHandler for Seen {
    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.add();
    }
}

type Client = RunningService<RoleClient, Seen>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    Auto,
    Legacy,
}

/// Name, endpoint, authorization.
type Key = (String, String, String);

/// The client objects.
#[derive(Clone)]
struct Hosts {
    opening: Opening,
    all: Arc<tokio::sync::Mutex<BTreeMap<Key, Arc<Client>>>>,
}

fn text(request: &Value, name: &str) -> String {
    request[name].as_str().unwrap_or_default().to_owned()
}

fn millis(request: &Value, name: &str) -> Option<Duration> {
    request[name].as_u64().map(Duration::from_millis)
}

impl Hosts {
    async fn connected(&self, request: &Value) -> Result<Arc<Client>> {
        let key = (text(request, "client"), text(request, "url"), text(request, "auth"));
        let mut all = self.all.lock().await;
        if let Some(client) = all.get(&key).filter(|c| !c.is_closed() && !c.is_transport_closed()) {
            return Ok(client.clone());
        }
        let mut config = StreamableHttpClientTransportConfig::with_uri(key.1.as_str());
        if let Some(token) = key.2.strip_prefix("Bearer ") {
            config = config.auth_header(token);
        }
        let lifecycle = match self.opening {
            Opening::Legacy => ClientLifecycleMode::Initialize,
            Opening::Auto => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: None,
            },
        };
        let transport = StreamableHttpClientTransport::from_config(config);
        let opened = Seen::default().serve_with_lifecycle(transport, lifecycle);
        let limit = millis(request, "timeoutMs").unwrap_or(Duration::from_secs(5));
        let client = tokio::time::timeout(limit, opened).await.context("it did not open in time")??;
        let client = Arc::new(client);
        all.insert(key, client.clone());
        Ok(client)
    }

    async fn carry_out(&self, request: &Value) -> Result<Value> {
        let op = text(request, "op");
        if op == "forget" {
            let name = text(request, "client");
            // Dropping the last handle ends the client's own tasks.
            self.all.lock().await.retain(|key, _| key.0 != name);
            return Ok(json!({}));
        }
        let client = self.connected(request).await?;
        let info = client.peer_info().context("the server has not said who it is")?;
        let serves =
            |what: &str| serde_json::to_value(&info.capabilities).is_ok_and(|c| c.get(what).is_some());
        match op.as_str() {
            "list" => Ok(json!({
                "tools": client.list_all_tools().await?,
                "protocolVersion": info.protocol_version,
            })),
            "resources" if serves("resources") => {
                let resources = client.list_all_resources().await?;
                let mut contents = Vec::new();
                for resource in &resources {
                    let params = ReadResourceRequestParams::new(resource.uri.clone());
                    contents.extend(client.read_resource(params).await?.contents);
                }
                Ok(json!({ "served": true, "resources": resources, "contents": contents }))
            }
            "prompts" if serves("prompts") => {
                let page = client.list_prompts(Some(PaginatedRequestParams::default())).await?;
                Ok(json!({ "served": true, "prompts": page.prompts }))
            }
            "resources" | "prompts" => Ok(json!({ "served": false })),
            "subscribe" if self.opening == Opening::Legacy => Ok(json!({
                "how": "GET where the server minted a session; without one this client opens no GET stream"
            })),
            "subscribe" => {
                let filter = SubscriptionFilter::builder().tools_list_changed().build();
                let mut subscription = client.listen(filter).await?;
                let seen = client.service().clone();
                tokio::spawn(async move {
                    while let Ok(Some(_)) = subscription.next().await {
                        seen.add();
                    }
                });
                Ok(json!({ "how": "subscriptions/listen" }))
            }
            "seen" => Ok(json!({ "seen": client.service().all() })),
            "call" => call(&client, request).await,
            other => bail!("an unknown operation: {other}"),
        }
    }
}

async fn call(client: &Client, request: &Value) -> Result<Value> {
    let mut params = CallToolRequestParams::new(text(request, "tool"));
    params.arguments = request["arguments"].as_object().cloned();
    let mut options =
        PeerRequestOptions::with_timeout(millis(request, "timeoutMs").unwrap_or(Duration::from_secs(5)));
    if let Some(meta) = request["meta"].as_object() {
        options = options.with_meta(RequestMetaObject::from(meta.clone()));
    }
    let sent = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let handle = client.send_cancellable_request(sent, options).await?;
    let answer = match millis(request, "abortAfterMs") {
        None => handle.await_response().await?,
        Some(after) => {
            let (peer, id) = (handle.peer.clone(), handle.id.clone());
            match tokio::time::timeout(after, handle.await_response()).await {
                Ok(answer) => answer?,
                Err(_) => {
                    cancel(&peer, id).await;
                    bail!("aborted by the test")
                }
            }
        }
    };
    match answer {
        ServerResult::CallToolResult(result) => Ok(serde_json::to_value(result)?),
        other => Err(anyhow!("a result of a tool was expected: {other:?}")),
    }
}

/// What the client itself says when a call is given up by its own limit.
async fn cancel(peer: &rmcp::Peer<RoleClient>, id: rmcp::model::RequestId) {
    let params = rmcp::model::CancelledNotificationParam::new(Some(id), Some("aborted by the test".into()));
    let _ = peer.notify_cancelled(params).await;
}

fn told(error: &anyhow::Error) -> Value {
    match error.downcast_ref::<ServiceError>() {
        Some(ServiceError::McpError(e)) => {
            json!({ "name": "McpError", "code": e.code.0, "message": e.message, "data": e.data })
        }
        _ => json!({ "name": "error", "code": null, "message": format!("{error:#}"), "data": null }),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let opening = match std::env::args().nth(1).as_deref() {
        Some("auto") => Opening::Auto,
        Some("legacy") => Opening::Legacy,
        other => bail!("an unknown way to open: {other:?}"),
    };
    let hosts = Hosts { opening, all: Arc::default() };
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    say(&json!({ "ready": true }));
    while let Some(line) = lines.recv().await {
        let request: Value = serde_json::from_str(&line)?;
        let hosts = hosts.clone();
        tokio::spawn(async move {
            let answer = match hosts.carry_out(&request).await {
                Ok(result) => json!({ "n": request["n"], "result": result }),
                Err(e) => json!({ "n": request["n"], "error": told(&e) }),
            };
            say(&answer);
        });
    }
    Ok(())
}

fn say(answer: &Value) {
    let mut out = std::io::stdout().lock();
    // Whoever asked may be gone.
    let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
}
