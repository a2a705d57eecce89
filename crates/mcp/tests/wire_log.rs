//! The log of everything sent, which tests hold against the protocol's schemas.
#![cfg(feature = "wire-log")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
extern crate counterfoil_mcp as mcp;

mod common;
use std::process::Command;
use std::time::Duration;

use common::{Server, call, legacy, legacy_call, message, raw};
use mcp::client::{CallOptions, ClientConfig, LegacyClient, McpClient, Question};
use mcp::server::ServeLimits;
use mcp::{Raw, Revision};
use serde_json::{Value, json};

/// Sends one of everything; also run as a process of its own, by the test below.
#[tokio::test]
async fn one_of_everything() {
    let server = Server::with(|c| c.early_bytes = Duration::from_secs(5), ServeLimits::default()).await;
    server.post("{", &[]).await;
    server.post(&call("nothing", "{}"), &[]).await;
    server.post(&message("1", "tools/list", ""), &[("Mcp-Method", None)]).await;
    let asked = legacy("2", "tools/call", r#""_meta":{"progressToken":"p"},"name":"progress""#);
    let answer = server.legacy(&asked, &[("MCP-Protocol-Version", "2025-06-18")]).await;
    assert_eq!(answer.events().len(), 4);
    let opening = legacy("3", "initialize", r#""protocolVersion":"2025-11-25","capabilities":{}"#);
    assert_eq!(server.legacy(&opening, &[]).await.status, 200);
    let unknown = server.legacy(&legacy("4", "ping", ""), &[("Mcp-Session-Id", "x")]).await;
    assert_eq!(unknown.status, 404);
    let batch = format!("[{},{}]", legacy("5", "ping", ""), legacy_call("6", "echo", "{}"));
    assert_eq!(server.legacy(&batch, &[]).await.json().as_array().unwrap().len(), 2);
    let client = McpClient::new(ClientConfig::new(server.url(), "c", "1")).unwrap();
    client.discover().await.unwrap();
    client.call_tool_answering("ask", None, CallOptions::default(), roots).await.unwrap();
    let client =
        LegacyClient::connect(ClientConfig::new(server.url(), "c", "1"), Revision::V2025_11_25).await;
    let yes = async |_: Question| Some(raw(r#"{"action":"accept"}"#));
    client.unwrap().call_tool("ask", None, CallOptions::default(), yes).await.unwrap();
}

async fn roots(_: Question) -> Option<Raw> {
    Some(raw(r#"{"roots":[]}"#))
}

#[test]
fn everything_sent_is_in_the_log() {
    let folder = std::env::temp_dir().join(format!("wire-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "one_of_everything"])
        .env("COUNTERFOIL_WIRE_LOG", &folder)
        .spawn()
        .unwrap();
    let log = folder.join(format!("{}.jsonl", child.id()));
    assert!(child.wait().unwrap().success());
    let log = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<Value> = lines
        .iter()
        .map(|line| {
            let message = &line["message"];
            assert_eq!(message["jsonrpc"], "2.0", "{line}");
            let kind = if message["method"].is_string() {
                message["method"].clone()
            } else if message["result"].is_object() {
                json!("result")
            } else {
                message["error"]["code"].clone()
            };
            json!([line["from"], line["revision"], line["about"], kind])
        })
        .collect();
    assert_eq!(
        Value::from(seen),
        json!([
            ["server", null, null, -32700],
            ["server", "2026-07-28", "tools/call", -32602],
            ["server", "2026-07-28", "tools/list", -32020],
            ["server", "2025-06-18", null, "notifications/progress"],
            ["server", "2025-06-18", null, "notifications/progress"],
            ["server", "2025-06-18", null, "notifications/progress"],
            ["server", "2025-06-18", "tools/call", "result"],
            ["server", "2025-11-25", "initialize", "result"],
            ["server", "2025-03-26", "ping", -32600],
            ["server", "2025-03-26", "ping", "result"],
            ["server", "2025-03-26", "tools/call", "result"],
            ["client", "2026-07-28", null, "server/discover"],
            ["server", "2026-07-28", "server/discover", "result"],
            ["client", "2026-07-28", null, "tools/call"],
            ["server", "2026-07-28", "tools/call", "result"],
            ["client", "2026-07-28", null, "tools/call"],
            ["server", "2026-07-28", "tools/call", "result"],
            ["client", "2025-11-25", null, "initialize"],
            ["server", "2025-11-25", "initialize", "result"],
            ["client", "2025-11-25", null, "notifications/initialized"],
            ["client", "2025-11-25", null, "tools/call"],
            ["server", "2025-11-25", null, "elicitation/create"],
            ["client", "2025-11-25", "elicitation/create", "result"],
            ["server", "2025-11-25", "tools/call", "result"],
        ])
    );
}
