//! Who uses what: counted by revision and by deprecated feature, told to operators and to machines.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{Echo, META_CAPABILITIES, META_CLIENT, META_LEVEL, offer, settings, tool, world};
use counterfoil_gateway::Body;
use counterfoil_gateway::limits::{Breaker, BreakerSettings, Limits};
use ledger::Millis;
use serde_json::{Value, json};
use std::sync::Arc;

fn row<'a>(usage: &'a Value, feature: &str) -> &'a Value {
    usage["usage"].as_array().unwrap().iter().find(|r| r["feature"] == feature).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn requests_are_counted_by_revision_and_client() {
    let w = world(offer(), settings(), false).await;
    let usage = w.operator("/v1/usage").await;
    assert_eq!(usage["usage"], json!([]));
    assert!(usage["since"].as_str().unwrap().ends_with('Z'));
    for client in ["one", "two", "one"] {
        let meta = json!({ META_CLIENT: { "name": client, "version": "1.0" } });
        w.modern_with("tools/list", json!({}), meta, &[]).await;
    }
    let meta = json!({ "dev.counterfoil/ack": ["no-such-nonce"] });
    w.modern_with("server/discover", json!({}), meta, &[]).await;
    w.modern("tools/call", json!({ "name": "echo", "arguments": {} })).await;
    w.modern("no/such", json!({})).await;
    w.initialize(json!({}), &[]).await;
    w.legacy(None, "tools/list", json!({})).await;
    let usage = w.operator("/v1/usage").await;
    let modern = row(&usage, "revision 2026-07-28");
    assert_eq!((&modern["requests"], &modern["clients"]), (&json!(6), &json!(["one 1.0", "two 1.0"])));
    assert_eq!((&modern["deprecatedIn"], &modern["advice"]), (&Value::Null, &Value::Null));
    assert!(modern["lastSeen"].as_str().unwrap().ends_with('Z'));
    let legacy = row(&usage, "revision 2025-11-25");
    assert_eq!((&legacy["requests"], &legacy["clients"]), (&json!(2), &json!(["old 0.9"])));
    assert!(legacy["advice"].is_string());
    assert_eq!(usage["usage"].as_array().unwrap().len(), 2);
    let metrics = w.metrics().await;
    assert!(metrics.contains("counterfoil_requests_total{revision=\"2026-07-28\"} 6"), "{metrics}");
    assert!(metrics.contains("counterfoil_requests_total{revision=\"2025-11-25\"} 2"));
    assert!(metrics.contains("counterfoil_requests_total{revision=\"2025-03-26\"} 0"));
}

#[tokio::test]
async fn deprecated_features_are_counted_with_their_removal() {
    let mut o = offer();
    o.tools.push(tool("ask", Some(json!({ "sampling": {}, "roots": {} })), Body::Read(Arc::new(Echo))));
    let w = world(o, settings(), false).await;
    w.modern("tools/list", json!({})).await;
    // A client that has the capabilities but calls nothing that needs them uses nothing.
    let both = json!({ META_CAPABILITIES: { "sampling": {}, "roots": {} } });
    w.modern_with("tools/call", json!({ "name": "echo", "arguments": {} }), both.clone(), &[]).await;
    assert_eq!(row(&w.operator("/v1/usage").await, "sampling"), &Value::Null);
    w.modern_with("tools/call", json!({ "name": "ask", "arguments": {} }), both, &[]).await;
    let some = json!({ META_CAPABILITIES: { "sampling": {} } });
    w.modern_with("tools/call", json!({ "name": "ask", "arguments": {} }), some, &[]).await;
    for _ in 0..2 {
        w.modern_with("tools/list", json!({}), json!({ META_LEVEL: "debug" }), &[]).await;
    }
    let level = json!({ META_LEVEL: "debug" });
    w.modern_with("resources/read", json!({ "uri": "test://shelf/text" }), level, &[]).await;
    w.legacy(None, "logging/setLevel", json!({ "level": "info" })).await;
    w.legacy(None, "tools/list", json!({})).await;
    let usage = w.operator("/v1/usage").await;
    for (feature, requests) in [("logging", 4), ("roots", 1), ("sampling", 2)] {
        let r = row(&usage, feature);
        assert_eq!(r["requests"], requests, "{feature} {usage}");
        assert_eq!(r["deprecatedIn"], "2026-07-28");
        assert!(r["removal"].as_str().unwrap().contains("2027-07-28"));
        assert!(r["advice"].is_string());
    }
    let metrics = w.metrics().await;
    assert!(metrics.contains("counterfoil_deprecated_total{feature=\"logging\"} 4"), "{metrics}");
}

#[tokio::test]
async fn a_breaker_shows_whether_it_is_open() {
    let settings_of = BreakerSettings { failures: 1, window: Millis::secs(30), pause: Millis::secs(15) };
    let breaker = Arc::new(Breaker::new("shop", settings_of));
    let mut o = offer();
    for name in ["pay", "refund"] {
        let (spec, mut settings, body) = tool(name, None, Body::Read(Arc::new(Echo)));
        settings.limits = Arc::new(Limits { breaker: Some(breaker.clone()), ..Limits::default() });
        o.tools.push((spec, settings, body));
    }
    let w = world(o, settings(), false).await;
    for (answered, open) in [(true, 0), (false, 1), (true, 0)] {
        breaker.seen(answered);
        let metrics = w.metrics().await;
        let shown: Vec<&str> = metrics.lines().filter(|l| l.contains("breaker_open{")).collect();
        assert_eq!(shown, [format!("counterfoil_breaker_open{{integration=\"shop\"}} {open}")], "once");
        assert!(metrics.contains("# TYPE counterfoil_breaker_open gauge\n"), "{metrics}");
    }
    let without = world(offer(), settings(), false).await.metrics().await;
    assert!(!without.contains("breaker_open{"), "{without}");
}
