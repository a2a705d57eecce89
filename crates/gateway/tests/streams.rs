//! Streams of the legacy era, of one session and of several: which is fed, with what, and when they end.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{Stream, World, catalog, offer, prompt, settings, watched, world};
use counterfoil_gateway::{Change, Offer};
use ledger::store::{MAX_SESSIONS, Session, SessionChange};
use ledger::{Millis, Store, Time};
use serde_json::{Value, json};
use std::time::Duration;

const QUIET: Duration = Duration::from_millis(250);
const WATCHED: &str = "test://watched";

async fn get(w: &World, session: Option<&str>, more: &[(&str, &str)]) -> Stream {
    let mut headers = vec![("MCP-Protocol-Version", "2025-11-25"), ("Accept", "text/event-stream")];
    headers.extend(session.map(|id| ("Mcp-Session-Id", id)));
    headers.extend_from_slice(more);
    w.stream("GET", &headers, "").await
}

async fn session(w: &World) -> String {
    w.initialize(json!({}), &[]).await.1.expect("a session")
}

fn tell(w: &World, uri: &str) {
    w.gateway.changes().tell(Change::Resource(uri.into()));
}

async fn hears(stream: &mut Stream, uri: &str) {
    let m = stream.next().await;
    assert_eq!((&m["method"], &m["params"]["uri"]), (&json!("notifications/resources/updated"), &json!(uri)));
}

/// Lets so much time pass for the server.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn of_a_sessions_streams_the_newest_alone_is_fed() {
    let w = world(watched(), settings(), false).await;
    let (id, other) = (session(&w).await, session(&w).await);
    for id in [&id, &other] {
        w.legacy(Some(id), "resources/subscribe", json!({ "uri": WATCHED })).await;
    }
    let mut others = get(&w, Some(&other), &[]).await;
    let (mut without, mut also_without) = (get(&w, None, &[]).await, get(&w, None, &[]).await);
    let mut oldest = get(&w, Some(&id), &[]).await;
    let mut older = get(&w, Some(&id), &[]).await;
    let mut newest = get(&w, Some(&id), &[]).await;
    let mut all_tell = async |fed: &mut Stream, silent: &mut [&mut Stream]| {
        tell(&w, WATCHED);
        w.gateway.changes().tell(Change::Tools);
        for stream in [fed, &mut others] {
            // A list is told at once, a resource after a look at what the session follows.
            let mut told =
                [stream.next().await["method"].to_string(), stream.next().await["method"].to_string()];
            told.sort();
            assert_eq!(
                told,
                [r#""notifications/resources/updated""#, r#""notifications/tools/list_changed""#]
            );
        }
        for stream in [&mut without, &mut also_without] {
            assert_eq!(stream.next().await["method"], "notifications/tools/list_changed");
        }
        for stream in silent {
            assert!(stream.within(QUIET).await.is_none(), "open and silent");
        }
    };
    all_tell(&mut newest, &mut [&mut oldest, &mut older]).await;
    // One that was silent all the time leaves nothing behind.
    drop(oldest);
    tokio::time::sleep(QUIET).await;
    all_tell(&mut newest, &mut [&mut older]).await;
    drop(newest);
    tokio::time::sleep(QUIET).await;
    all_tell(&mut older, &mut []).await;
    assert!(older.within(QUIET).await.is_none(), "nothing comes twice, and nothing late");
}

#[tokio::test]
async fn what_a_session_follows_is_read_only_when_it_may_have_changed() {
    let w = world(watched(), settings(), false).await;
    let id = session(&w).await;
    w.legacy(Some(&id), "resources/subscribe", json!({ "uri": WATCHED })).await;
    let mut s = get(&w, Some(&id), &[]).await;
    tell(&w, WATCHED);
    hears(&mut s, WATCHED).await;
    // Changed behind this process's back: it isn't read with every change, but after a while.
    let change = SessionChange::Unsubscribe(WATCHED.into());
    w.store.change_session(&id, change).await.unwrap();
    let elsewhere = SessionChange::Subscribe("test://watch/1".into());
    w.store.change_session(&id, elsewhere).await.unwrap();
    for _ in 0..3 {
        tell(&w, "test://watch/1");
        tell(&w, WATCHED);
        hears(&mut s, WATCHED).await;
    }
    pass(Duration::from_secs(31)).await;
    tell(&w, WATCHED);
    tell(&w, "test://watch/1");
    hears(&mut s, "test://watch/1").await;
    assert!(s.within(QUIET).await.is_none());
    // Changed by this process: at once.
    w.legacy(Some(&id), "resources/subscribe", json!({ "uri": WATCHED })).await;
    tell(&w, WATCHED);
    hears(&mut s, WATCHED).await;
    w.legacy(Some(&id), "resources/unsubscribe", json!({ "uri": WATCHED })).await;
    tell(&w, WATCHED);
    tell(&w, "test://watch/1");
    hears(&mut s, "test://watch/1").await;
}

#[tokio::test]
async fn who_falls_behind_is_told_of_declared_lists_only() {
    let w = world(Offer { tools: offer().tools, ..Offer::default() }, settings(), false).await;
    let mut s = get(&w, None, &[]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let lag = || (0..5000).for_each(|i| tell(&w, &format!("test://watch/x{i}")));
    lag();
    assert_eq!(s.next().await["method"], "notifications/tools/list_changed");
    assert!(s.within(QUIET).await.is_none());
    let mut more = offer();
    more.resources.clear();
    more.templates.clear();
    more.prompts = vec![prompt("other")];
    w.gateway.reload(catalog(more));
    assert_eq!(s.next().await["method"], "notifications/prompts/list_changed");
    lag();
    for list in ["tools", "prompts"] {
        assert_eq!(s.next().await["method"], format!("notifications/{list}/list_changed"));
    }
    assert!(s.within(QUIET).await.is_none());
}

#[tokio::test]
async fn a_stream_ends_soon_after_its_key_was_revoked() {
    let w = world(watched(), settings(), true).await;
    let (ann, ben) = (("Authorization", "Bearer cfk_ann"), ("Authorization", "Bearer cfk_ben"));
    let (mut anns, mut bens) = (get(&w, None, &[ann]).await, get(&w, None, &[ben]).await);
    let params = common::modern_params(json!({ "notifications": { "toolsListChanged": true } }), json!({}));
    let body = json!({ "jsonrpc": "2.0", "id": "s-1", "method": "subscriptions/listen", "params": params });
    let modern = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "subscriptions/listen"), ann];
    let mut listens = w.stream("POST", &modern, &body.to_string()).await;
    assert_eq!(listens.next().await["method"], "notifications/subscriptions/acknowledged");
    pass(Duration::from_secs(61)).await;
    w.gateway.changes().tell(Change::Tools);
    for stream in [&mut anns, &mut bens, &mut listens] {
        assert_eq!(stream.next().await["method"], "notifications/tools/list_changed", "a key that counts");
    }
    w.operator_post("/v1/api-keys/ann/revoke", &json!({})).await;
    assert!(anns.within(QUIET).await.is_none(), "it was not looked at yet");
    pass(Duration::from_secs(60)).await;
    assert_eq!(anns.next().await, Value::Null);
    assert_eq!(listens.next().await["result"]["resultType"], "complete");
    w.gateway.changes().tell(Change::Tools);
    assert_eq!(bens.next().await["method"], "notifications/tools/list_changed", "another's goes on");
}

fn kept(id: usize, used_at: Time) -> Session {
    Session {
        id: format!("{id:064}"),
        principal: "anonymous".into(),
        revision: "2025-11-25".into(),
        client: "{}".into(),
        log_level: None,
        subscriptions: Vec::new(),
        opened_at: Time(1_700_000_000_000),
        used_at,
    }
}

#[tokio::test]
async fn who_only_opens_sessions_ends_nobodys_that_is_in_use() {
    let w = world(watched(), settings(), false).await;
    let (used, unused) = (session(&w).await, session(&w).await);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(w.legacy(Some(&used), "tools/list", json!({})).await.status, 200);
    let begun = std::time::Instant::now();
    while {
        let s = w.store.session(&used).await.unwrap().unwrap();
        s.used_at == s.opened_at
    } {
        assert!(begun.elapsed() < Duration::from_secs(5), "its first use is marked at once");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let now = w.store.now();
    for n in 0..MAX_SESSIONS - 2 {
        w.store.open_session(Session { opened_at: now, ..kept(n, now) }).await.unwrap();
    }
    session(&w).await;
    assert!(w.store.session(&unused).await.unwrap().is_none(), "the oldest of those never used ends first");
    for _ in 0..20 {
        session(&w).await;
    }
    assert!(w.store.session(&used).await.unwrap().is_some());
    assert_eq!(w.legacy(Some(&used), "tools/list", json!({})).await.status, 200);
    assert!(w.metrics().await.contains("counterfoil_sessions_ended_total 21"));
}

#[tokio::test]
async fn the_stream_of_a_session_that_made_room_ends() {
    let w = world(watched(), settings(), false).await;
    let id = session(&w).await;
    let mut s = get(&w, Some(&id), &[]).await;
    tokio::time::sleep(QUIET).await;
    let later = w.store.now().plus(Millis::secs(1000));
    for n in 0..MAX_SESSIONS - 1 {
        w.store.open_session(kept(n, later)).await.unwrap();
    }
    assert!(s.within(QUIET).await.is_none(), "it is there still");
    session(&w).await;
    assert_eq!(s.next().await, Value::Null);
    assert!(w.store.session(&id).await.unwrap().is_none());
}
