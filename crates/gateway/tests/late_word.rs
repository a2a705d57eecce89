//! A person's word about one attempt is no word about another, in the legacy era too.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::replicas::*;
use common::*;

use counterfoil_gateway as gateway;
use gateway::Offer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

async fn question(stream: &mut Stream) -> Value {
    let asked = stream.within(Duration::from_secs(8)).await.expect("a question");
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    asked["id"].clone()
}

/// The answer to the first question comes again, as a client repeats what it got no answer to, while the effect of the
/// second attempt is in doubt.
#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_is_heard_twice_counts_once() {
    let tool = Arc::new(Works::default());
    let offer = || Offer { tools: vec![works("works", &tool, |_| {})], ..Offer::default() };
    let p = pair(offer, true).await;
    let auth = bearer("ann");
    let (_, session) = p.a.initialize(json!({ "elicitation": {} }), &[("Authorization", &auth)]).await;
    let session = session.unwrap();
    let headers = [
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Mcp-Session-Id", session.as_str()),
        ("Authorization", &auth),
    ];
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params":
        { "name": "works", "arguments": { "send": "confirm" }, "_meta": { "dev.counterfoil/idempotency-key": "k" } } });
    let no = |id: &Value| {
        let result = accept(json!({ "happened": "no" }));
        json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
    };
    let mut stream = p.a.stream("POST", &headers, &call.to_string()).await;
    let first = question(&mut stream).await;
    assert_eq!(p.b.http("POST", &headers, &no(&first)).await.status, 202);
    let mut last = stream.within(Duration::from_secs(8)).await;
    // Where the call ended with that, it is made again.
    if last.as_ref().is_some_and(|m| m["id"] == 7) {
        stream = p.a.stream("POST", &headers, &call.to_string()).await;
        last = stream.within(Duration::from_secs(8)).await;
    }
    let second = last.expect("another question");
    assert_eq!(second["method"], "elicitation/create", "{second}");
    assert_ne!(second["id"], first);
    assert_eq!(tool.sent(), 2, "the first was said not to have happened");

    for w in [&p.a, &p.b] {
        assert_eq!(w.http("POST", &headers, &no(&first)).await.status, 202);
    }
    assert_eq!(stream.within(Duration::from_millis(700)).await, None, "nobody was asked about the second");
    assert_eq!(tool.sent(), 2);
    let ops =
        p.a.gateway.ledger().list(&ledger::store::Query { limit: 10, ..Default::default() }).await.unwrap();
    let words = ops[0].decisions.iter().filter(|d| d.what == "it did not happen").count();
    assert_eq!((ops.len(), words), (1, 1), "{:?}", ops[0].decisions);
}
