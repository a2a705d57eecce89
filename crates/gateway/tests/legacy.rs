//! The legacy era over HTTP: the handshake, sessions and whose they are, results without what that era doesn't know,
//! and its stream beside requests.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{Count, Echo, World, offer, prompt, settings, tool, watched, world};
use counterfoil_gateway as gateway;
use gateway::{Body, Change, GatewaySettings, LegacySessions, Offer};
use ledger::store::SessionChange;
use ledger::{Millis, Store};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const QUIET: Duration = Duration::from_millis(250);

fn with(kind: LegacySessions) -> GatewaySettings {
    GatewaySettings { legacy_sessions: kind, ..settings() }
}

/// A catalog whose tools ask the client.
fn asking() -> (Offer, Arc<Count>) {
    let count = Arc::new(Count::default());
    let mut o = offer();
    let needs = json!({ "sampling": {} });
    o.tools.push(tool("ask", Some(needs.clone()), Body::Read(Arc::new(Echo))));
    o.tools.push(tool("change", Some(needs), Body::Mutating(count.clone())));
    o.tools.push(tool("plain", None, Body::Mutating(count.clone())));
    (o, count)
}

async fn session(w: &World) -> String {
    w.initialize(json!({}), &[]).await.1.expect("a session")
}

fn error_code(v: &Value) -> i64 {
    v["error"]["code"].as_i64().unwrap_or_else(|| panic!("{v}"))
}

#[tokio::test]
async fn the_handshake_tells_what_is_served() {
    let w = world(watched(), settings(), false).await;
    let (opened, session) = w.initialize(json!({}), &[]).await;
    let result = &opened["result"];
    assert_eq!(result["protocolVersion"], "2025-11-25");
    assert_eq!(result["serverInfo"], json!({ "name": "test", "version": "1" }));
    assert_eq!(result["instructions"], "Be careful.");
    let c = &result["capabilities"];
    assert_eq!(c["resources"], json!({ "listChanged": true, "subscribe": true }));
    assert_eq!(
        (&c["tools"], &c["prompts"]),
        (&json!({ "listChanged": true }), &json!({ "listChanged": true }))
    );
    assert_eq!((&c["logging"], &c["completions"]), (&json!({}), &json!({})));
    assert!(c["experimental"]["dev.counterfoil/idempotency"]["keyCarriers"].is_array());
    assert!(result["resultType"].is_null() && result["_meta"].is_null());
    assert_eq!(session.unwrap().len(), 64);
    // Without sessions nothing can be subscribed to.
    let w = world(watched(), with(LegacySessions::Never), false).await;
    let (opened, session) = w.initialize(json!({}), &[]).await;
    assert_eq!(opened["result"]["capabilities"]["resources"], json!({ "listChanged": true }));
    assert_eq!(session, None);
    let r = w.legacy(None, "resources/subscribe", json!({ "uri": "test://watched" })).await;
    assert_eq!(r.code(), -32601);
}

#[tokio::test]
async fn sessions_are_opened_only_where_something_needs_one() {
    for (offer, kind, opens) in [
        (offer(), LegacySessions::Auto, false),
        (watched(), LegacySessions::Auto, true),
        (asking().0, LegacySessions::Auto, true),
        (offer(), LegacySessions::Always, true),
        (watched(), LegacySessions::Never, false),
        (watched(), LegacySessions::Platform, false),
    ] {
        let w = world(offer, with(kind), false).await;
        let (_, session) = w.initialize(json!({}), &[]).await;
        assert_eq!(session.is_some(), opens, "{kind:?}");
        assert_eq!(LegacySessions::parse(kind.as_str()), Some(kind));
    }
    assert_eq!(LegacySessions::parse("Auto"), None);
}

#[tokio::test]
async fn results_have_nothing_that_the_era_does_not_know() {
    let w = world(watched(), settings(), false).await;
    for (method, params) in [
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/read", json!({ "uri": "test://shelf/text" })),
        ("prompts/get", json!({ "name": "greet", "arguments": { "name": "Ada" } })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "greet" }, "argument": { "name": "tone", "value": "" } }),
        ),
        ("tools/call", json!({ "name": "echo" })),
    ] {
        let r = w.legacy(None, method, params).await;
        assert_eq!(r.status, 200, "{method} {:?}", r.messages);
        let result = r.last()["result"].as_object().unwrap_or_else(|| panic!("{method} {:?}", r.messages));
        for unknown in ["resultType", "ttlMs", "cacheScope", "_meta"] {
            assert!(!result.contains_key(unknown), "{method} {unknown}");
        }
    }
    for (method, params) in [("ping", json!({})), ("logging/setLevel", json!({ "level": "debug" }))] {
        assert_eq!(w.legacy(None, method, params).await.last()["result"], json!({}), "{method}");
    }
    for method in ["server/discover", "subscriptions/listen", "no/such"] {
        let r = w.legacy(None, method, json!({ "notifications": {} })).await;
        assert_eq!((r.status, r.code()), (200, -32601), "{method}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_refused() {
    let w = world(watched(), settings(), false).await;
    let id = session(&w).await;
    let code = async |method: &str, params: Value| {
        let r = w.legacy(Some(&id), method, params).await;
        assert_eq!(r.status, 200);
        error_code(r.last())
    };
    for uri in ["test://nothing", "test://shelf/none"] {
        let r = w.legacy(None, "resources/read", json!({ "uri": uri })).await;
        assert_eq!((r.code(), &r.last()["error"]["data"]["uri"]), (-32002, &json!(uri)));
    }
    assert_eq!(code("resources/read", json!({ "uri": 7 })).await, -32602);
    assert_eq!(code("resources/read", json!({ "uri": "test://shelf/panics" })).await, -32603);
    assert_eq!(code("prompts/get", json!({ "name": "nobody" })).await, -32602);
    assert_eq!(code("prompts/get", json!({ "name": "greet" })).await, -32602);
    assert_eq!(code("tools/call", json!({ "name": "nobody" })).await, -32602);
    assert_eq!(code("tools/list", json!({ "cursor": "x" })).await, -32602);
    for level in [json!("loud"), json!(7), Value::Null, json!("")] {
        assert_eq!(code("logging/setLevel", json!({ "level": level })).await, -32602, "{level}");
    }
    assert_eq!(code("resources/subscribe", json!({})).await, -32602);
    assert_eq!(code("resources/subscribe", json!({ "uri": ["test://watched"] })).await, -32602);
    assert_eq!(code("resources/subscribe", json!({ "uri": "x".repeat(9000) })).await, -32602);
    assert_eq!(code("resources/subscribe", json!({ "uri": "test://nothing" })).await, -32002);
    assert_eq!(code("resources/subscribe", json!({ "uri": "test://shelf/text" })).await, -32602);
    assert_eq!(code("resources/unsubscribe", json!({ "uri": 1 })).await, -32602);
    // A subscription can't be kept without a session.
    let r = w.legacy(None, "resources/subscribe", json!({ "uri": "test://watched" })).await;
    assert_eq!(r.code(), -32602);
    assert!(r.last()["error"]["message"].as_str().unwrap().contains("session"));
    for capabilities in [json!([]), json!({ "x": "y".repeat(20_000) })] {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let r = w.http("POST", &[], &body.to_string()).await;
        assert_eq!(r.code(), -32602);
        assert_eq!(r.header("mcp-session-id"), None);
    }
}

#[tokio::test]
async fn a_session_holds_so_many_subscriptions() {
    let w = world(watched(), settings(), false).await;
    let id = session(&w).await;
    for i in 0..ledger::store::MAX_SUBSCRIPTIONS {
        w.store.change_session(&id, SessionChange::Subscribe(format!("test://watch/{i}"))).await.unwrap();
    }
    let subscribe = async |uri: &str| w.legacy(Some(&id), "resources/subscribe", json!({ "uri": uri })).await;
    assert_eq!(subscribe("test://watch/7").await.last()["result"], json!({}));
    assert_eq!(subscribe("test://watched").await.code(), -32602);
    let r = w.legacy(Some(&id), "resources/unsubscribe", json!({ "uri": "test://watch/7" })).await;
    assert_eq!(r.last()["result"], json!({}));
    assert_eq!(subscribe("test://watched").await.last()["result"], json!({}));
}

#[tokio::test]
async fn log_levels_hold_for_the_session() {
    let w = world(watched(), settings(), false).await;
    let id = session(&w).await;
    let levels = async |session: Option<&str>| {
        let r = w.legacy(session, "tools/call", json!({ "name": "echo", "arguments": {} })).await;
        let all = r.messages.iter().filter_map(|m| m["params"]["level"].as_str());
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(levels(None).await, ["info", "error"]);
    assert_eq!(levels(Some(&id)).await, ["info", "error"]);
    assert_eq!(
        w.legacy(Some(&id), "logging/setLevel", json!({ "level": "debug" })).await.last()["result"],
        json!({})
    );
    assert_eq!(levels(Some(&id)).await, ["debug", "info", "error"]);
    assert_eq!(
        w.legacy(None, "logging/setLevel", json!({ "level": "emergency" })).await.last()["result"],
        json!({})
    );
    assert_eq!(levels(None).await, ["info", "error"]);
    assert_eq!(levels(Some(&id)).await, ["debug", "info", "error"]);
}

#[tokio::test]
async fn a_session_is_its_principals_alone() {
    let w = world(watched(), settings(), true).await;
    let ann = ("Authorization", "Bearer cfk_ann");
    let ben = ("Authorization", "Bearer cfk_ben");
    let (_, id) = w.initialize(json!({}), &[ann]).await;
    let id = id.unwrap();
    let list = async |id: &str, who| w.legacy_with(Some(id), "tools/list", json!({}), &[who]).await.status;
    assert_eq!(list(&id, ann).await, 200);
    let unknown = "0".repeat(64);
    assert_eq!((list(&id, ben).await, list(&unknown, ben).await), (404, 404));
    // What the stranger is told is what it is told of a session that never was.
    let told = async |id: &str| w.legacy_with(Some(id), "tools/list", json!({}), &[ben]).await.messages;
    assert_eq!(told(&id).await, told(&unknown).await);
    let end = async |who| {
        w.http("DELETE", &[("MCP-Protocol-Version", "2025-11-25"), ("Mcp-Session-Id", &id), who], "")
            .await
            .status
    };
    assert_eq!(end(ben).await, 404);
    assert_eq!(list(&id, ann).await, 200);
    let reading = w
        .http(
            "GET",
            &[
                ("MCP-Protocol-Version", "2025-11-25"),
                ("Mcp-Session-Id", &id),
                ben,
                ("Accept", "text/event-stream"),
            ],
            "",
        )
        .await;
    assert_eq!(reading.status, 404);
    assert_eq!(end(ann).await, 204);
    assert_eq!((list(&id, ann).await, end(ann).await), (404, 404));
    assert!(w.metrics().await.contains("counterfoil_sessions_opened_total 1"));
    assert!(w.metrics().await.contains("counterfoil_sessions_ended_total 1"));
}

#[tokio::test]
async fn a_session_that_is_not_used_is_over() {
    let idle = GatewaySettings { session_idle: Millis(1600), ..settings() };
    let w = world(watched(), idle, false).await;
    let (used, unused) = (session(&w).await, session(&w).await);
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(w.legacy(Some(&used), "tools/list", json!({})).await.status, 200);
    }
    assert_eq!(w.legacy(Some(&unused), "tools/list", json!({})).await.status, 404);
    assert!(w.store.session(&unused).await.unwrap().is_none());
    assert!(w.store.session(&used).await.unwrap().is_some());
    // Nothing is read for what was never minted here.
    for odd in ["x", "../../etc", &"z".repeat(64)] {
        assert_eq!(w.legacy(Some(odd), "tools/list", json!({})).await.status, 404, "{odd}");
    }
}

#[tokio::test]
async fn a_session_is_not_marked_with_every_request() {
    let w = world(watched(), settings(), false).await;
    let id = session(&w).await;
    // Its first use is marked at once.
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(w.legacy(Some(&id), "tools/list", json!({})).await.status, 200);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let opened = w.store.session(&id).await.unwrap().unwrap();
    assert!(opened.used_at > opened.opened_at);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(w.legacy(Some(&id), "tools/list", json!({})).await.status, 200);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(w.store.session(&id).await.unwrap().unwrap().used_at, opened.used_at);
}

#[tokio::test]
async fn sessions_that_are_over_are_removed_when_others_begin() {
    let idle = GatewaySettings { session_idle: Millis(50), ..settings() };
    let w = world(watched(), idle, false).await;
    let left = ledger::store::Session {
        id: "a".repeat(64),
        principal: "anonymous".into(),
        revision: "2025-11-25".into(),
        client: "{}".into(),
        log_level: None,
        subscriptions: Vec::new(),
        opened_at: ledger::Time(1),
        used_at: ledger::Time(1),
    };
    w.store.open_session(left.clone()).await.unwrap();
    session(&w).await;
    let begun = Instant::now();
    while w.store.session(&left.id).await.unwrap().is_some() {
        assert!(begun.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn where_no_sessions_are_kept_none_can_be_named_or_ended() {
    let end = async |w: &World, id: &str| {
        w.http("DELETE", &[("MCP-Protocol-Version", "2025-11-25"), ("Mcp-Session-Id", id)], "").await.status
    };
    let id = "b".repeat(64);
    let w = world(watched(), with(LegacySessions::Never), false).await;
    assert_eq!((w.legacy(Some(&id), "tools/list", json!({})).await.status, end(&w, &id).await), (404, 405));
    let w = world(offer(), settings(), false).await;
    assert_eq!(end(&w, &id).await, 405);
    let w = world(watched(), with(LegacySessions::Platform), false).await;
    assert_eq!((w.legacy(Some(&id), "tools/list", json!({})).await.status, end(&w, &id).await), (200, 405));
    assert_eq!(
        w.legacy(Some("platform-id"), "logging/setLevel", json!({ "level": "debug" })).await.last()["result"],
        json!({})
    );
    let w = world(watched(), settings(), false).await;
    assert_eq!(end(&w, &id).await, 404);
}

#[tokio::test]
async fn the_stream_tells_lists_and_what_the_session_follows() {
    let w = world(watched(), settings(), false).await;
    let id = session(&w).await;
    let get = async |id: Option<&str>| {
        let mut headers = vec![("MCP-Protocol-Version", "2025-11-25"), ("Accept", "text/event-stream")];
        headers.extend(id.map(|id| ("Mcp-Session-Id", id)));
        w.stream("GET", &headers, "").await
    };
    let mut with_session = get(Some(&id)).await;
    let mut without = get(None).await;
    let changes = w.gateway.changes();
    let watched_uri = || Change::Resource("test://watched".into());
    changes.tell(watched_uri());
    assert!(with_session.within(QUIET).await.is_none());
    w.legacy(Some(&id), "resources/subscribe", json!({ "uri": "test://watched" })).await;
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        changes.tell(watched_uri());
        changes.tell(Change::Resource("test://watch/1".into()));
        let m = with_session.next().await;
        fastest = fastest.min(begun.elapsed());
        assert_eq!(m["method"], "notifications/resources/updated");
        assert_eq!(m["params"], json!({ "uri": "test://watched" }));
    }
    assert!(fastest < Duration::from_millis(120), "{fastest:?}");
    let mut more = watched();
    more.prompts.push(prompt("other"));
    w.gateway.reload(common::catalog(more));
    for s in [&mut with_session, &mut without] {
        let m = s.next().await;
        assert_eq!(m["method"], "notifications/prompts/list_changed");
        assert!(m["params"]["_meta"].is_null(), "{m}");
        assert!(s.within(QUIET).await.is_none());
    }
    assert!(w.metrics().await.contains("counterfoil_legacy_streams 2"));
    w.legacy(Some(&id), "resources/unsubscribe", json!({ "uri": "test://watched" })).await;
    changes.tell(watched_uri());
    assert!(with_session.within(QUIET).await.is_none());
    w.http("DELETE", &[("MCP-Protocol-Version", "2025-11-25"), ("Mcp-Session-Id", &id)], "").await;
    assert_eq!(with_session.next().await, Value::Null);
    assert!(without.within(QUIET).await.is_none());
}

#[tokio::test]
async fn a_stream_that_falls_behind_is_told_of_everything() {
    let w = world(watched(), settings(), false).await;
    let id = session(&w).await;
    for uri in ["test://watched", "test://watch/1"] {
        w.legacy(Some(&id), "resources/subscribe", json!({ "uri": uri })).await;
    }
    let headers = [
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Accept", "text/event-stream"),
        ("Mcp-Session-Id", id.as_str()),
    ];
    let mut s = w.stream("GET", &headers, "").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    for i in 0..5000 {
        w.gateway.changes().tell(Change::Resource(format!("test://watch/x{i}").into()));
    }
    let mut all = Vec::new();
    for _ in 0..5 {
        let m = s.next().await;
        all.push((m["method"].as_str().unwrap().to_owned(), m["params"]["uri"].clone()));
    }
    assert!(s.within(QUIET).await.is_none());
    for list in ["tools", "prompts", "resources"] {
        assert!(all.contains(&(format!("notifications/{list}/list_changed"), Value::Null)), "{all:?}");
    }
    for uri in ["test://watched", "test://watch/1"] {
        let updated = ("notifications/resources/updated".to_owned(), json!(uri));
        assert_eq!(all.iter().filter(|m| **m == updated).count(), 1, "{all:?}");
    }
}

#[tokio::test]
async fn tools_are_called_with_the_same_guarantees() {
    let (o, count) = asking();
    let w = world(o, settings(), false).await;
    let call = async |session: Option<&str>, name: &str, key: &str| {
        let params =
            json!({ "name": name, "arguments": {}, "_meta": { "dev.counterfoil/idempotency-key": key } });
        w.legacy(session, "tools/call", params).await.last().clone()
    };
    let first = call(None, "plain", "k").await;
    let about = &first["result"]["_meta"]["dev.counterfoil/operation"];
    assert_eq!(about["replayed"], false, "{first}");
    let meta = first["result"]["_meta"].as_object().unwrap();
    assert_eq!(meta.len(), 1, "{meta:?}");
    assert!(first["result"]["resultType"].is_null());
    let again = call(None, "plain", "k").await;
    assert_eq!(again["result"]["_meta"]["dev.counterfoil/operation"]["id"], about["id"]);
    assert_eq!(again["result"]["content"], first["result"]["content"]);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn arguments_are_mirrored_into_headers_in_the_modern_era_over_http_only() {
    let mut o = offer();
    let mut mirrored = tool("mirrored", None, Body::Read(Arc::new(Echo)));
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    mirrored.0.input_schema = common::raw(&json!({ "type": "object", "properties": { "region": region } }));
    o.tools.push(mirrored);
    let w = world(o, settings(), false).await;
    let params = json!({ "name": "mirrored", "arguments": { "region": "north" } });
    let r = w.modern("tools/call", params.clone()).await;
    assert_eq!((r.status, r.code()), (400, -32020));
    let r = w.modern_with("tools/call", params.clone(), json!({}), &[("Mcp-Param-Region", "north")]).await;
    assert_eq!(r.last()["result"]["structuredContent"]["revision"], "2026-07-28");
    for headers in [&[][..], &[("Mcp-Param-Region", "south")][..]] {
        let r = w.legacy_with(None, "tools/call", params.clone(), headers).await;
        assert_eq!(r.last()["result"]["structuredContent"]["revision"], "2025-11-25");
    }
    let mut c = common::GatewayLines::open(&w);
    let r = c.request("tools/call", common::modern_params(params, json!({}))).await;
    assert_eq!(r["result"]["structuredContent"]["revision"], "2026-07-28");
}

#[tokio::test]
async fn a_tool_that_asks_its_client_needs_one_that_can_be_asked() {
    let (o, count) = asking();
    let w = world(o, settings(), false).await;
    let (_, can) = w.initialize(json!({ "sampling": {} }), &[]).await;
    let (_, cannot) = w.initialize(json!({}), &[]).await;
    let call = async |session: Option<&str>, name: &str, key: &str| {
        let params =
            json!({ "name": name, "arguments": {}, "_meta": { "dev.counterfoil/idempotency-key": key } });
        w.legacy(session, "tools/call", params).await.last().clone()
    };
    for session in [None, cannot.as_deref()] {
        for name in ["ask", "change"] {
            let refused = call(session, name, "a").await;
            assert_eq!(error_code(&refused), -32021, "{refused}");
            assert_eq!(refused["error"]["data"]["requiredCapabilities"], json!({ "sampling": {} }));
        }
    }
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    let asked = call(can.as_deref(), "ask", "a").await;
    assert_eq!(asked["result"]["structuredContent"]["sampling"], true, "{asked}");
    let done = call(can.as_deref(), "change", "a").await;
    assert_eq!(done["result"]["isError"], false, "{done}");
    // A known operation is answered whatever the client can.
    let replayed = call(cannot.as_deref(), "change", "a").await;
    assert_eq!(replayed["result"]["content"], done["result"]["content"], "{replayed}");
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    // The modern era says so in each request.
    let modern = w.modern("tools/call", json!({ "name": "ask", "arguments": {} })).await;
    assert_eq!((modern.status, modern.code()), (400, -32021));
    let meta = json!({ common::META_CAPABILITIES: { "sampling": {} } });
    let modern = w.modern_with("tools/call", json!({ "name": "ask", "arguments": {} }), meta, &[]).await;
    assert_eq!(modern.last()["result"]["structuredContent"]["sampling"], true);
    // A session of the legacy era means nothing in the modern one.
    let meta = json!({ common::META_CAPABILITIES: {} });
    let id = can.unwrap();
    let r = w.modern_with("tools/call", json!({ "name": "ask" }), meta, &[("Mcp-Session-Id", &id)]).await;
    assert_eq!(r.code(), -32021);
    assert_eq!(r.header("mcp-session-id"), None);
}

#[tokio::test]
async fn such_a_tool_is_not_run_from_the_shell() {
    let (o, count) = asking();
    let w = world(o, settings(), false).await;
    for id in ["native.ask", "native.change"] {
        let answer = w.operator_post("/v1/exec", &json!({ "id": id, "arguments": {} })).await;
        assert_eq!(answer["error"]["code"], "usage", "{answer}");
    }
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    let answer = w.operator_post("/v1/exec", &json!({ "id": "native.plain", "arguments": {} })).await;
    assert_eq!(answer["outcome"], "result", "{answer}");
}

#[tokio::test]
async fn notifications_are_taken() {
    let w = world(watched(), settings(), false).await;
    let id = session(&w).await;
    for method in ["notifications/initialized", "notifications/roots/list_changed", "notifications/other"] {
        let body = json!({ "jsonrpc": "2.0", "method": method }).to_string();
        let headers = [("MCP-Protocol-Version", "2025-11-25"), ("Mcp-Session-Id", id.as_str())];
        assert_eq!(w.http("POST", &headers, &body).await.status, 202, "{method}");
    }
}

#[tokio::test]
async fn what_names_no_revision_is_of_its_sessions() {
    let w = world(watched(), settings(), false).await;
    let id = session(&w).await;
    let asked = async |headers: &[(&str, &str)]| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "echo" } });
        let r = w.http("POST", headers, &body.to_string()).await;
        r.last()["result"]["structuredContent"]["revision"].clone()
    };
    assert_eq!(asked(&[("Mcp-Session-Id", &id)]).await, "2025-11-25");
    assert_eq!(asked(&[("Mcp-Session-Id", &id), ("MCP-Protocol-Version", "2025-06-18")]).await, "2025-06-18");
    assert_eq!(asked(&[]).await, "2025-03-26");
}

#[tokio::test]
async fn one_header_is_not_the_key_of_several_calls() {
    let (o, count) = asking();
    let w = world(o, settings(), false).await;
    let call = |id: u32, key: Value| {
        let meta = json!({ "dev.counterfoil/idempotency-key": key });
        let mut params = json!({ "name": "plain", "arguments": {}, "_meta": meta });
        if key.is_null() {
            params["_meta"] = json!({});
        }
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let ping = json!({ "jsonrpc": "2.0", "id": 9, "method": "ping" });
    let header = ("Idempotency-Key", "k");
    let refused = w
        .http("POST", &[header], &json!([call(1, Value::Null), ping, call(2, "k".into())]).to_string())
        .await;
    let answers = refused.last().as_array().unwrap();
    for id in [1, 2] {
        let error = &answers.iter().find(|a| a["id"] == id).unwrap()["error"];
        assert_eq!(error["code"], -32602, "{error}");
        assert!(error["message"].as_str().unwrap().contains("can't be the key of several calls in a batch"));
    }
    assert_eq!(answers.iter().find(|a| a["id"] == 9).unwrap()["result"], json!({}));
    assert_eq!(count.0.load(Ordering::SeqCst), 0, "nothing ran");
    let one = w.http("POST", &[header], &json!([call(1, Value::Null), ping]).to_string()).await;
    let done = one.last().as_array().unwrap().iter().find(|a| a["id"] == 1).unwrap().clone();
    assert_eq!(done["result"]["isError"], false, "{done}");
    let own = w.http("POST", &[], &json!([call(1, "a".into()), call(2, "b".into())]).to_string()).await;
    assert!(own.last().as_array().unwrap().iter().all(|a| a["result"]["isError"] == false));
    assert_eq!(count.0.load(Ordering::SeqCst), 3);
}
