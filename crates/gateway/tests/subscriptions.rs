//! Change notifications of the modern era: filters, what is acknowledged, what is heard, and what a reload tells.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{Stream, catalog, offer, prompt, settings, watched, world};
use counterfoil_gateway::Change;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const QUIET: Duration = Duration::from_millis(150);

async fn acknowledged(stream: &mut Stream) -> Value {
    let ack = stream.next().await;
    assert_eq!(ack["method"], "notifications/subscriptions/acknowledged");
    ack["params"]["notifications"].clone()
}

fn heard(message: &Value) -> (String, Value) {
    assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s-1", "{message}");
    (message["method"].as_str().unwrap().to_owned(), message["params"]["uri"].clone())
}

#[tokio::test]
async fn only_what_can_be_kept_is_acknowledged() {
    let w = world(watched(), settings(), false).await;
    let all = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": ["test://watched", "test://watch/7", "test://shelf/text", "test://nothing", "test://watched"],
        "somethingElse": 7 });
    let mut s = w.listen(all).await;
    assert_eq!(
        acknowledged(&mut s).await,
        json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
            "resourceSubscriptions": ["test://watch/7", "test://watched"] })
    );
    let mut s = w.listen(json!({ "toolsListChanged": false })).await;
    assert_eq!(acknowledged(&mut s).await, json!({}));
    let only_tools = counterfoil_gateway::Offer { tools: offer().tools, ..Default::default() };
    let w = world(only_tools, settings(), false).await;
    let mut s = w.listen(json!({ "promptsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["test://watched"] })).await;
    assert_eq!(acknowledged(&mut s).await, json!({}));
}

#[tokio::test]
async fn only_what_was_asked_for_is_heard_and_at_once() {
    let w = world(watched(), settings(), false).await;
    let mut resources = w.listen(json!({ "resourceSubscriptions": ["test://watched"] })).await;
    let mut prompts = w.listen(json!({ "promptsListChanged": true })).await;
    acknowledged(&mut resources).await;
    acknowledged(&mut prompts).await;
    let changes = w.gateway.changes();
    let expected = ("notifications/resources/updated".to_owned(), json!("test://watched"));
    let mut fastest = Duration::MAX;
    // The machine may be busy with other things: one in five must be as fast as promised.
    for _ in 0..5 {
        let begun = Instant::now();
        for change in [
            Change::Tools,
            Change::Resources,
            Change::Resource("test://watch/7".into()),
            Change::Resource("test://watched".into()),
            Change::Prompts,
        ] {
            changes.tell(change);
        }
        assert_eq!(heard(&resources.next().await), expected);
        assert_eq!(heard(&prompts.next().await).0, "notifications/prompts/list_changed");
        fastest = fastest.min(begun.elapsed());
    }
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
    assert!(resources.within(QUIET).await.is_none());
    assert!(prompts.within(QUIET).await.is_none());
}

#[tokio::test]
async fn a_reload_tells_the_lists_that_changed() {
    let w = world(watched(), settings(), false).await;
    let lists = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true });
    let mut s = w.listen(lists).await;
    acknowledged(&mut s).await;
    w.gateway.reload(catalog(watched()));
    assert!(s.within(QUIET).await.is_none());
    let mut more = watched();
    more.prompts.push(prompt("other"));
    w.gateway.reload(catalog(more));
    assert_eq!(heard(&s.next().await).0, "notifications/prompts/list_changed");
    assert!(s.within(QUIET).await.is_none());
    let mut less = watched();
    less.prompts.push(prompt("other"));
    less.templates.pop();
    w.gateway.reload(catalog(less));
    assert_eq!(heard(&s.next().await).0, "notifications/resources/list_changed");
    let mut renamed = offer();
    renamed.tools[0].0.title = None;
    w.gateway.reload(catalog(renamed));
    let mut all: Vec<String> = Vec::new();
    for _ in 0..3 {
        all.push(heard(&s.next().await).0);
    }
    all.sort();
    assert_eq!(all, ["prompts", "resources", "tools"].map(|l| format!("notifications/{l}/list_changed")));
    assert!(s.within(QUIET).await.is_none());
    w.stop.cancel();
    let end = s.next().await;
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!("s-1"), &json!("complete")));
    assert_eq!(end["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "test");
}

#[tokio::test]
async fn wrong_filters_are_refused() {
    let w = world(watched(), settings(), false).await;
    let many: Vec<String> = (0..257).map(|i| format!("test://watch/{i}")).collect();
    for filter in [
        Value::Null,
        json!([]),
        json!("all"),
        json!({ "toolsListChanged": 1 }),
        json!({ "promptsListChanged": "yes" }),
        json!({ "resourcesListChanged": null }),
        json!({ "resourceSubscriptions": "test://watched" }),
        json!({ "resourceSubscriptions": [7] }),
        json!({ "resourceSubscriptions": { "a": 1 } }),
        json!({ "resourceSubscriptions": many }),
        json!({ "resourceSubscriptions": ["x".repeat(9000)] }),
    ] {
        let r = w.modern("subscriptions/listen", json!({ "notifications": filter })).await;
        assert_eq!((r.status, r.code()), (400, -32602), "{filter}");
    }
    let r = w.modern("subscriptions/listen", json!({})).await;
    assert_eq!(r.code(), -32602);
}

#[tokio::test]
async fn who_falls_behind_is_told_of_everything() {
    // One thread: the listener can't run while the changes are told.
    let w = world(watched(), settings(), false).await;
    let filter =
        json!({ "toolsListChanged": true, "resourceSubscriptions": ["test://watched", "test://watch/1"] });
    let mut s = w.listen(filter).await;
    acknowledged(&mut s).await;
    w.gateway.changes().tell(Change::Resource("test://watched".into()));
    for i in 0..5000 {
        w.gateway.changes().tell(Change::Resource(format!("test://watch/x{i}").into()));
    }
    let mut all: Vec<(String, Value)> = Vec::new();
    for _ in 0..3 {
        all.push(heard(&s.next().await));
    }
    assert!(s.within(QUIET).await.is_none());
    all.sort_by_key(|(m, u)| format!("{m}{u}"));
    let updated = "notifications/resources/updated".to_owned();
    assert_eq!(
        all,
        [
            (updated.clone(), json!("test://watch/1")),
            (updated, json!("test://watched")),
            ("notifications/tools/list_changed".to_owned(), Value::Null),
        ]
    );
    assert!(w.metrics().await.contains("counterfoil_listen_streams 1"));
}

#[tokio::test]
async fn a_burst_of_changes_does_not_end_a_stream() {
    let w = world(watched(), settings(), false).await;
    let uris: Vec<String> = (0..256).map(|i| format!("test://watch/{i}")).collect();
    let mut s = w.listen(json!({ "resourceSubscriptions": uris })).await;
    acknowledged(&mut s).await;
    for uri in &uris {
        w.gateway.changes().tell(Change::Resource(uri.as_str().into()));
    }
    for uri in &uris {
        assert_eq!(heard(&s.next().await).1, *uri);
    }
    // And so when it fell behind.
    for i in 0..3000 {
        w.gateway.changes().tell(Change::Resource(format!("test://watch/x{i}").into()));
    }
    for _ in &uris {
        assert_eq!(heard(&s.next().await).0, "notifications/resources/updated");
    }
    assert!(s.within(QUIET).await.is_none());
}
