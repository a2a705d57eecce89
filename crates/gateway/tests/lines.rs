//! Both eras over lines: one connection is one session in memory, beside requests that stand for themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{GatewayLines, modern_params, settings, watched, world};
use counterfoil_gateway::{Change, Gateway};
use ledger::Store;
use mcp::server::{Caller, Opened, Opening, Service, SessionRefusal, Transport};
use mcp::{Revision, RpcError};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

const QUIET: Duration = Duration::from_millis(250);

async fn opened(c: &mut GatewayLines) -> Value {
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": { "roots": {} },
        "clientInfo": { "name": "local", "version": "2" } });
    let answer = c.request("initialize", params).await;
    c.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    answer
}

#[tokio::test]
async fn a_connection_is_a_session_in_memory() {
    let w = world(watched(), settings(), false).await;
    let mut c = GatewayLines::open(&w);
    let answer = opened(&mut c).await;
    assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answer["result"]["capabilities"]["resources"]["subscribe"], true);
    assert_eq!(c.request("logging/setLevel", json!({ "level": "error" })).await["result"], json!({}));
    // Messages below the level stay away; what the client said of itself is known.
    let echo = c.request("tools/call", json!({ "name": "echo", "arguments": {} })).await;
    assert_eq!(echo["result"]["structuredContent"]["revision"], "2025-06-18");
    let levels: Vec<&Value> = c.heard.iter().map(|m| &m["params"]["level"]).collect();
    assert_eq!(levels, ["error"]);
    c.heard.clear();
    assert_eq!(
        c.request("resources/subscribe", json!({ "uri": "test://watched" })).await["result"],
        json!({})
    );
    w.gateway.changes().tell(Change::Resource("test://watch/1".into()));
    w.gateway.changes().tell(Change::Resource("test://watched".into()));
    w.gateway.changes().tell(Change::Tools);
    let mut all = Vec::new();
    for _ in 0..2 {
        let m = c.within(Duration::from_secs(5)).await.unwrap();
        all.push((m["method"].as_str().unwrap().to_owned(), m["params"]["uri"].clone()));
    }
    assert!(c.within(QUIET).await.is_none());
    all.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        all,
        [
            ("notifications/resources/updated".to_owned(), json!("test://watched")),
            ("notifications/tools/list_changed".to_owned(), Value::Null),
        ]
    );
    assert_eq!(
        c.request("resources/unsubscribe", json!({ "uri": "test://watched" })).await["result"],
        json!({})
    );
    w.gateway.changes().tell(Change::Resource("test://watched".into()));
    assert!(c.within(QUIET).await.is_none());
    // Modern requests beside it stand for themselves.
    let modern = c.request("tools/call", modern_params(json!({ "name": "echo" }), json!({}))).await;
    assert_eq!(modern["result"]["structuredContent"]["revision"], "2026-07-28");
    assert_eq!(modern["result"]["resultType"], "complete");
    // Nothing of it is kept, and nothing is left when the connection ends.
    assert_eq!(w.store.prune_sessions(ledger::Time(i64::MAX), 10).await.unwrap(), 0);
    assert!(w.metrics().await.contains("counterfoil_legacy_streams 1"));
    drop(c);
    let begun = Instant::now();
    while !w.metrics().await.contains("counterfoil_sessions_ended_total 1") {
        assert!(begun.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(w.metrics().await.contains("counterfoil_legacy_streams 0"));
}

#[tokio::test]
async fn a_connection_holds_so_many_subscriptions() {
    let w = world(watched(), settings(), false).await;
    let mut c = GatewayLines::open(&w);
    opened(&mut c).await;
    for i in 0..ledger::store::MAX_SUBSCRIPTIONS {
        let r = c.request("resources/subscribe", json!({ "uri": format!("test://watch/{i}") })).await;
        assert_eq!(r["result"], json!({}), "{r}");
    }
    let r = c.request("resources/subscribe", json!({ "uri": "test://watch/7" })).await;
    assert_eq!(r["result"], json!({}));
    let r = c.request("resources/subscribe", json!({ "uri": "test://watched" })).await;
    assert_eq!(r["error"]["code"], -32602);
    // An unknown level changes nothing.
    let r = c.request("logging/setLevel", json!({ "level": "loud" })).await;
    assert_eq!(r["error"]["code"], -32602);
}

fn caller(session: Option<String>) -> Caller {
    Caller {
        revision: Revision::V2025_11_25,
        transport: Transport::Lines,
        headers: http::HeaderMap::new(),
        extensions: http::Extensions::new(),
        peer: None,
        session: session.map(Into::into),
    }
}

#[tokio::test]
async fn so_many_connections_are_held() {
    let w = world(watched(), settings(), false).await;
    let service = Arc::new(w.gateway.clone());
    let open = async |service: &Arc<Gateway>| -> Result<Opened, RpcError> {
        let opening = Opening { client_info: None, capabilities: common::raw(&json!({})) };
        service.clone().initialize(caller(None), opening).await
    };
    let mut ids = Vec::new();
    for _ in 0..1024 {
        ids.push(open(&service).await.unwrap().session.unwrap());
    }
    let refused = open(&service).await.unwrap_err();
    assert_eq!(refused.code, -32603);
    let one = caller(ids.pop());
    assert_eq!(&*service.identity(&one), "anonymous");
    assert!(service.client(&one).await.is_ok());
    service.end_session(&one).await.unwrap();
    assert_eq!(service.client(&one).await.unwrap_err(), SessionRefusal::Unknown);
    assert_eq!(service.end_session(&one).await.unwrap_err(), SessionRefusal::Unknown);
    assert!(open(&service).await.is_ok());
    // Each id is its own.
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1023);
}

#[tokio::test]
async fn what_a_client_says_of_itself_is_kept_short() {
    let w = world(watched(), settings(), false).await;
    let service = Arc::new(w.gateway.clone());
    let info = json!({ "name": "n".repeat(500), "version": "1", "icons": [{ "src": "data:".to_owned() + &"x".repeat(5000) }] });
    let opening = Opening {
        client_info: Some(common::raw(&info)),
        capabilities: common::raw(&json!({ "roots": { "listChanged": true } })),
    };
    let opened = service.clone().initialize(caller(None), opening).await.unwrap();
    let client = service.client(&caller(opened.session)).await.unwrap();
    let info: Value = client.info.unwrap().read().unwrap();
    assert_eq!(info, json!({ "name": "n".repeat(256), "version": "1" }));
    assert_eq!(client.capabilities.as_str(), r#"{"roots":{"listChanged":true}}"#);
}
