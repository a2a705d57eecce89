//! Every refusal with its exact status, code and id, seen on a raw socket.
#![allow(clippy::unwrap_used, clippy::expect_used)]
extern crate counterfoil_mcp as mcp;

mod common;
use std::time::Duration;

use common::{META, Server, call, message};
use mcp::server::{Authenticator, CallersEras, HttpRefusal, ServeLimits};
use mcp::{Eras, RpcError};
use serde_json::json;

const CAPABILITIES: &str = r#""io.modelcontextprotocol/clientCapabilities":{}"#;

async fn modern() -> Server {
    Server::with(|c| c.eras = Eras::Modern, ServeLimits::default()).await
}

#[tokio::test]
async fn the_conformance_table_of_required_rejections() {
    for eras in [Eras::Both, Eras::Modern] {
        required_rejections(eras).await;
    }
}

async fn required_rejections(eras: Eras) {
    let server = Server::with(|c| c.eras = eras, ServeLimits::default()).await;
    let one = |method: &str, meta: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{meta}}}}}"#)
    };
    let version = |v: &str| format!(r#""io.modelcontextprotocol/protocolVersion":"{v}""#);
    let id = Some(json!(1));

    for body in [
        one("server/discover", ""),
        one("server/discover", &format!(r#""_meta":{{{CAPABILITIES}}}"#)),
        one("server/discover", &format!(r#""_meta":{{{}}}"#, version("2026-07-28"))),
        one("server/discover", r#""_meta":[]"#),
        one(
            "server/discover",
            r#""_meta":{"io.modelcontextprotocol/protocolVersion":1,"io.modelcontextprotocol/clientCapabilities":{}}"#,
        ),
        one("server/discover", &META.replace("{}", r#"{},"progressToken":1.5"#)),
        one("server/discover", &META.replace("{}", r#"{},"io.modelcontextprotocol/logLevel":"loud""#)),
        r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":[]}"#.to_owned(),
        message("1", "tools/call", r#""arguments":{}"#),
    ] {
        assert_eq!(server.post(&body, &[]).await.refusal(), (400, -32602, id.clone()), "{body}");
        // Missing metadata wins over missing headers, where those don't choose the legacy era.
        if !body.contains("tools/call") && eras == Eras::Modern {
            let bare = server.post(&body, &[("MCP-Protocol-Version", None), ("Mcp-Method", None)]).await;
            assert_eq!(bare.refusal(), (400, -32602, id.clone()), "{body}");
        }
    }
    let good = message("1", "server/discover", "");
    assert_eq!(server.post(&good, &[]).await.status, 200, "clientInfo is optional");

    let foreign = one("server/discover", &format!(r#""_meta":{{{},{CAPABILITIES}}}"#, version("v999.0.0")));
    let answer = server.post(&foreign, &[("MCP-Protocol-Version", Some("v999.0.0"))]).await;
    assert_eq!(answer.refusal(), (400, -32022, id.clone()));
    assert_eq!(answer.json()["error"]["data"], json!({"supported": ["2026-07-28"], "requested": "v999.0.0"}));
    assert_eq!(server.post(&foreign, &[]).await.refusal(), (400, -32020, id.clone()), "mismatch wins");

    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "unknown/method",
    ] {
        assert_eq!(
            server.post(&message("1", method, ""), &[]).await.refusal(),
            (404, -32601, id.clone()),
            "{method}"
        );
    }
    if eras == Eras::Both {
        return;
    }
    let legacy = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
    let answer = server.post(legacy, &[("MCP-Protocol-Version", None), ("Mcp-Method", None)]).await;
    assert_eq!(answer.refusal(), (400, -32022, id.clone()));
    assert_eq!(answer.json()["error"]["data"]["requested"], "2025-11-25");
    let answer = server
        .post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, &[("MCP-Protocol-Version", None)])
        .await;
    assert!(answer.body.contains("2026-07-28"), "a legacy client's only hint: {answer:?}");
}

#[tokio::test]
async fn headers_must_mirror_the_body() {
    let server = Server::start().await;
    let list = message("\"a\\u0062\"", "tools/list", "");
    let id = Some(json!("ab"));
    for (name, value) in [
        ("MCP-Protocol-Version", None),
        ("MCP-Protocol-Version", Some("2025-11-25")),
        ("MCP-Protocol-Version", Some("2026-07-28|2026-07-28")),
        ("Mcp-Method", None),
        ("Mcp-Method", Some("TOOLS/LIST")),
        ("Mcp-Method", Some("tools/list|tools/call")),
        ("Mcp-Method", Some("tools/call")),
    ] {
        let answer = server.post(&list, &[(name, value)]).await;
        assert_eq!(answer.refusal(), (400, -32020, id.clone()), "{name} {value:?}");
        assert!(answer.body.contains(r#""id":"a\u0062""#), "ids are echoed byte for byte");
    }
    let echo = call("echo", "{}");
    for name in [
        None,
        Some("other"),
        Some("echo|echo"),
        Some("=?base64?ZWNobw?="),
        Some("=?base64?!?="),
        Some("\u{e9}"),
    ] {
        assert_eq!(server.post(&echo, &[("Mcp-Name", name)]).await.refusal().1, -32020, "{name:?}");
    }
    for name in ["=?base64?ZWNobw==?=", "  echo  "] {
        assert_eq!(server.post(&echo, &[("Mcp-Name", Some(name))]).await.status, 200, "{name:?}");
    }
    assert_eq!(
        server.post(&echo, &[("Mcp-Method", None), ("MCP-METHOD", Some("tools/call"))]).await.status,
        200
    );
    let task = message("1", "tasks/get", r#""taskId":"t""#);
    assert_eq!(server.post(&task, &[("Mcp-Name", Some("u"))]).await.refusal().1, -32020);

    let region = call("echo", r#"{"region":"Hello"}"#);
    assert_eq!(server.post(&region, &[]).await.refusal(), (400, -32020, Some(json!(1))));
    assert_eq!(server.post(&region, &[("Mcp-Param-Region", Some("=?base64?SGVsbG8=?="))]).await.status, 200);
    assert_eq!(
        server.post(&region, &[("Mcp-Param-Region", Some("=?base64?SGVsbG8?="))]).await.refusal().1,
        -32020
    );
}

#[tokio::test]
async fn bodies_that_are_no_request() {
    let server = Server::start().await;
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{}{}}}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    for body in [
        "",
        "{",
        "nul",
        r#"{"a":1,}"#,
        r#"{"id":1,"id":1}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"p":{"x":{"k":1,"\u006b":2}}}"#,
        &deep,
    ] {
        assert_eq!(server.post(body, &[]).await.refusal(), (400, -32700, None), "{body}");
    }
    let mut bytes = server.request("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\x01\x02\"}", &[]);
    let end = bytes.len();
    bytes[end - 4..end - 2].copy_from_slice(b"\xff\xfe");
    assert_eq!(server.send(&bytes).await.refusal(), (400, -32700, None));
    for (body, id) in [
        ("[]", None),
        ("7", None),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#, None),
        (r#"{"id":1,"method":"tools/list"}"#, Some(json!(1))),
        (r#"{"jsonrpc":"1.0","id":1,"method":"tools/list"}"#, Some(json!(1))),
        (r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1.0,"method":"tools/list"}"#, None),
        (r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, Some(json!(1))),
        (r#"{"jsonrpc":"2.0","id":1,"method":""}"#, Some(json!(1))),
        (r#"{"jsonrpc":"2.0","id":1}"#, Some(json!(1))),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None),
    ] {
        assert_eq!(server.post(body, &[]).await.refusal(), (400, -32600, id), "{body}");
    }
    let accepted =
        server.post(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#, &[]).await;
    assert_eq!((accepted.status, accepted.body.as_str()), (202, ""));
}

#[tokio::test]
async fn refusals_of_http_itself() {
    let server = modern().await;
    let good = message("1", "server/discover", "");
    for (name, value, expected) in [
        ("Host", Some("evil.example.com"), 403),
        ("Host", None, 403),
        ("Origin", Some("http://evil.example.com"), 403),
        ("Origin", Some("null"), 403),
        ("Content-Type", Some("text/plain"), 415),
        ("Content-Type", None, 415),
        ("Accept", Some("text/event-stream"), 406),
        ("Accept", Some("application/json;q=0, text/html"), 406),
    ] {
        assert_eq!(
            server.post(&good, &[(name, value)]).await.refusal(),
            (expected, -32600, None),
            "{name} {value:?}"
        );
    }
    let own = format!("http://{}", server.addr);
    for (name, value) in [
        ("Origin", Some(own.as_str())),
        ("Content-Type", Some("Application/JSON; charset=utf-8")),
        ("Accept", None),
        ("Accept", Some("*/*")),
        ("Accept", Some("application/json")),
        ("Mcp-Session-Id", Some("old")),
        ("Last-Event-ID", Some("7")),
    ] {
        let answer = server.post(&good, &[(name, value)]).await;
        assert_eq!(answer.status, 200, "{name} {value:?}");
        assert!(!answer.head.contains("session"));
    }
    for method in ["GET", "DELETE", "PUT"] {
        let request = format!("{method} /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.addr);
        let answer = server.send(request.as_bytes()).await;
        assert_eq!(answer.refusal(), (405, -32600, None));
        assert!(answer.head.contains("allow: post"));
    }
    let listen = message("1", "subscriptions/listen", r#""notifications":{}"#);
    let answer = server.post(&listen, &[("Accept", Some("application/json"))]).await;
    assert_eq!(answer.refusal(), (406, -32600, Some(json!(1))));
}

#[tokio::test]
async fn large_and_late_bodies() {
    let server = Server::with(|c| c.read_timeout = Duration::from_millis(200), ServeLimits::default()).await;
    let huge = call("echo", &format!("\"{}\"", "x".repeat(5_000_000)));
    assert_eq!(server.post(&huge, &[]).await.refusal(), (413, -32600, None));
    let chunked = [
        server.request("", &[("Content-Length", None), ("Transfer-Encoding", Some("chunked"))]),
        format!("{:x}\r\n{huge}\r\n0\r\n\r\n", huge.len()).into_bytes(),
    ]
    .concat();
    assert_eq!(server.send(&chunked).await.refusal(), (413, -32600, None));
    let waiting =
        server.request("", &[("Content-Length", Some("5000000")), ("Expect", Some("100-continue"))]);
    assert_eq!(server.send(&waiting).await.refusal(), (413, -32600, None), "refused before it is sent");
    let late = server.request("{", &[("Content-Length", Some("100"))]);
    assert_eq!(server.send(&late).await.refusal(), (408, -32600, None));
    let fits = call("echo", &format!("\"{}\"", "x".repeat(4_000_000)));
    assert_eq!(server.post(&fits, &[]).await.status, 200);
    for (size, status) in [(60_000, 200), (66_000, 431), (100_000, 431), (1_000_000, 431)] {
        let good = message("1", "server/discover", "");
        let answer = server.post(&good, &[("X-Fill", Some(&"x".repeat(size)))]).await;
        assert_eq!(answer.status, status, "a head of {size} bytes");
    }
}

struct Locked;

#[async_trait::async_trait]
impl Authenticator for Locked {
    async fn authenticate(&self, head: &http::request::Parts) -> Result<http::Extensions, HttpRefusal> {
        if head.headers.contains_key("authorization") {
            return Ok(http::Extensions::new());
        }
        let mut refusal =
            HttpRefusal::from(RpcError::refused(http::StatusCode::UNAUTHORIZED, "a key is needed"));
        refusal.headers.insert("www-authenticate", http::HeaderValue::from_static("Bearer"));
        Err(refusal)
    }
}

#[tokio::test]
async fn the_principal_is_asked_for_before_the_body_is_read() {
    let server =
        Server::with(|c| c.authenticator = Some(std::sync::Arc::new(Locked)), ServeLimits::default()).await;
    let unread = server.request("", &[("Content-Length", Some("1000"))]);
    let answer = server.send(&unread).await;
    assert_eq!(answer.refusal(), (401, -32600, None));
    assert!(answer.head.contains("www-authenticate: bearer"));
    let good = message("1", "server/discover", "");
    assert_eq!(server.post(&good, &[("Authorization", Some("Bearer x"))]).await.status, 200);
}

/// Serves the caller `old` the legacy era and `new` the modern one; others what the endpoint serves.
struct ByCaller;

#[async_trait::async_trait]
impl Authenticator for ByCaller {
    async fn authenticate(&self, head: &http::request::Parts) -> Result<http::Extensions, HttpRefusal> {
        let mut known = http::Extensions::new();
        match head.headers.get("authorization").and_then(|v| v.to_str().ok()) {
            Some("old") => drop(known.insert(CallersEras(Eras::Legacy))),
            Some("new") => drop(known.insert(CallersEras(Eras::Modern))),
            Some(_) => {}
            None => return Err(RpcError::refused(http::StatusCode::UNAUTHORIZED, "a key is needed").into()),
        }
        Ok(known)
    }

    fn tells_eras(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_caller_may_be_served_other_eras_under_any_name() {
    let by_caller = |c: &mut mcp::server::HttpConfig| {
        c.authenticator = Some(std::sync::Arc::new(ByCaller));
        c.eras = Eras::Modern;
        c.allowed_hosts = vec!["old.example.com".into()];
        c.eras_by_host = vec![("old.example.com".into(), Eras::Legacy)];
    };
    let server = Server::with(by_caller, ServeLimits::default()).await;
    let modern = message("1", "tools/list", "");
    let legacy = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let local = server.addr.to_string();
    for (who, host, on_modern, on_legacy, on_get) in [
        ("old", local.as_str(), 400, 200, 200),
        ("new", local.as_str(), 200, 400, 405),
        ("other", local.as_str(), 200, 400, 405),
        ("old", "old.example.com", 400, 200, 200),
        ("new", "old.example.com", 200, 400, 405),
        ("other", "old.example.com", 400, 200, 200),
    ] {
        let from = [("Host", Some(host)), ("Authorization", Some(who))];
        assert_eq!(server.post(&modern, &from).await.status, on_modern, "{who} {host}");
        let head = [("Host", host), ("Authorization", who)];
        assert_eq!(server.legacy(legacy, &head).await.status, on_legacy, "{who} {host}");
        let get =
            server.bare("GET", &[("Accept", "text/event-stream"), ("Host", host), ("Authorization", who)]);
        if on_get == 405 {
            assert_eq!(server.send(&get).await.status, 405, "{who} {host}");
        }
    }
    // Nobody learns of eras before it is known who asks.
    let get = server.bare("GET", &[("Accept", "text/event-stream")]);
    assert_eq!(server.send(&get).await.status, 401);
    assert_eq!(server.send(&server.bare("PUT", &[])).await.status, 405);
}
