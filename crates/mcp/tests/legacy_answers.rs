//! The legacy era over HTTP: how requests are answered, cancelled and batched, and the stream outside of them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
extern crate counterfoil_mcp as mcp;

mod common;
use std::time::Duration;

use common::{ASK, Answer, EVENTS, Seen, Server, legacy, legacy_call, message};
use mcp::server::{Delivery, ServeLimits};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn results_and_notifications_travel_as_in_the_modern_era() {
    let mut server = Server::start().await;
    server.legacy(ASK, &[("X-Open", "s")]).await;
    let asked = legacy("1", "tools/call", r#""_meta":{"progressToken":"p"},"name":"progress""#);
    let answer = server.legacy(&asked, &[("Mcp-Session-Id", "s")]).await;
    let methods: Vec<_> = answer.events().iter().map(|e| e["method"].clone()).collect();
    let progress = json!("notifications/progress");
    assert_eq!(
        methods,
        [progress.clone(), progress.clone(), progress, json!("notifications/message"), Value::Null]
    );
    assert_eq!(
        answer.events()[4]["result"],
        json!({"content": [], "done": true, "_meta": {"dev.example/x": 1}})
    );
    assert!(!answer.body.contains("id:"), "no event ids");
    let quiet = server.legacy(&legacy_call("1", "progress", "{}"), &[]).await;
    assert_eq!(quiet.json()["result"]["done"], true, "nobody asked, so one JSON body");

    let slow = server.legacy(&legacy_call("1", "slow", r#"{"ms":400}"#), &[]).await;
    assert!(slow.body.matches(":\n\n").count() >= 2, "{slow:?}");
    assert_eq!(slow.events()[0]["result"]["slow"], true);
    let large = legacy("1", "tools/call", r#""_meta":{"progressToken":1},"name":"big""#);
    let large = server.legacy(&large, &[]).await;
    assert_eq!(large.json()["result"]["big"].as_str().unwrap().len(), 8 << 20);
    assert_eq!(server.next().await, Seen::Fate(Delivery::Written));

    let mut server = Server::with(|c| c.drain = Duration::from_millis(200), ServeLimits::default()).await;
    let held = held(&server, &legacy_call("1", "hold", "{}"), &[]).await;
    server.shutdown.cancel();
    let answer = tokio::time::timeout(Duration::from_secs(5), held).await.unwrap().unwrap();
    assert_eq!(answer.events()[0]["error"]["code"], -32603, "answered when the time to drain is over");
    server.moods.release.notify_one();
    assert_eq!(server.next().await, Seen::WentOn);
}

/// Sends a request that is held, and gives its answer to come.
async fn held(server: &Server, body: &str, more: &[(&str, &str)]) -> tokio::task::JoinHandle<Answer> {
    let request = server.legacy_request(body, more);
    let mut stream = tokio::net::TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(&request).await.unwrap();
    let answer = tokio::spawn(async move {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        Answer::of(&all)
    });
    tokio::time::sleep(Duration::from_millis(60)).await;
    answer
}

async fn nothing_happens(server: &mut Server) {
    let seen = tokio::time::timeout(Duration::from_millis(150), server.seen.recv()).await;
    assert!(seen.is_err(), "{seen:?}");
}

#[tokio::test]
async fn only_a_cancellation_by_name_cancels() {
    let mut server = Server::start().await;
    let ann = [("X-Who", "ann")];
    let in_session = [("X-Who", "ann"), ("Mcp-Session-Id", "s")];
    server.legacy(ASK, &[("X-Who", "ann"), ("X-Open", "s")]).await;

    for (id, who) in [("5", &ann[..]), ("\"x\"", &in_session[..])] {
        let answer = held(&server, &legacy_call(id, "hold", "{}"), who).await;
        // Neither another principal, nor another session, nor another id.
        let other = if who.len() == 1 { &in_session[..] } else { &ann[..] };
        assert_eq!(server.legacy(&common::cancel(id), &[("X-Who", "bob")]).await.status, 202);
        assert_eq!(server.legacy(&common::cancel(id), other).await.status, 202);
        assert_eq!(server.legacy(&common::cancel("6"), who).await.status, 202);
        assert_eq!(server.legacy(&common::cancel("{}"), who).await.status, 202);
        nothing_happens(&mut server).await;
        assert_eq!(server.legacy(&common::cancel(id), who).await.status, 202);
        assert_eq!(server.next().await, Seen::Gone);
        let events = answer.await.unwrap().events();
        assert_eq!(events.len(), 1, "a cancelled request is answered too");
        assert_eq!(events[0]["error"]["code"], -32800);
        assert_eq!(events[0]["id"].to_string(), id);
        server.moods.release.notify_one();
        assert_eq!(server.next().await, Seen::WentOn);
        assert_eq!(server.next().await, Seen::Fate(Delivery::Undelivered));
        assert_eq!(server.legacy(&common::cancel(id), who).await.status, 202, "too late, and no harm");
    }

    // As JSON, before any stream.
    let json_only = [("X-Who", "ann"), ("Accept", "application/json")];
    let answer = held(&server, &legacy_call("8", "hold", "{}"), &json_only).await;
    server.legacy(&common::cancel("8"), &ann).await;
    assert_eq!(answer.await.unwrap().refusal(), (200, -32800, Some(json!(8))));
    assert_eq!(server.next().await, Seen::Gone);
    server.moods.release.notify_one();
    assert_eq!(server.next().await, Seen::WentOn);
    assert_eq!(server.next().await, Seen::Fate(Delivery::Undelivered));

    // A call that was cancelled and goes on doesn't stand in the way of another of its id.
    let first = held(&server, &legacy_call("1", "hold", "{}"), &ann).await;
    server.legacy(&common::cancel("1"), &ann).await;
    assert_eq!(first.await.unwrap().refusal(), (200, -32800, Some(json!(1))));
    let second = held(&server, &legacy_call("1", "hold", "{}"), &ann).await;
    server.legacy(&common::cancel("1"), &ann).await;
    assert_eq!(second.await.unwrap().refusal(), (200, -32800, Some(json!(1))));
    for _ in 0..2 {
        assert_eq!(server.next().await, Seen::Gone);
        server.moods.release.notify_one();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..4 {
        assert!(matches!(server.next().await, Seen::WentOn | Seen::Fate(Delivery::Undelivered)));
    }

    // Two calls that could be meant: neither is.
    let first = held(&server, &legacy_call("1", "hold", "{}"), &ann).await;
    let second = held(&server, &legacy_call("1", "hold", "{}"), &ann).await;
    server.legacy(&common::cancel("1"), &ann).await;
    nothing_happens(&mut server).await;
    server.moods.release.notify_one();
    server.moods.release.notify_one();
    for answer in [first, second] {
        assert_eq!(
            answer.await.unwrap().events()[0]["result"],
            json!({"content": [], "_meta": {"dev.example/x": 1}})
        );
    }
}

#[tokio::test]
async fn a_disconnect_cancels_nothing_in_the_legacy_era() {
    let mut server = Server::start().await;
    // Once while the choice between JSON and a stream is open, once after.
    for wait in [0, 200] {
        let answer = held(&server, &legacy_call("1", "hold", "{}"), &[]).await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        answer.abort();
        nothing_happens(&mut server).await;
        server.moods.release.notify_one();
        assert_eq!(server.next().await, Seen::WentOn);
        assert_eq!(server.next().await, Seen::Fate(Delivery::Undelivered));
    }
    // It can still be cancelled by name.
    let answer = held(&server, &legacy_call("2", "hold", "{}"), &[]).await;
    answer.abort();
    nothing_happens(&mut server).await;
    server.legacy(&common::cancel("2"), &[]).await;
    assert_eq!(server.next().await, Seen::Gone);
    server.moods.release.notify_one();
}

async fn streaming(server: &Server, more: &[(&str, &str)]) -> tokio::net::TcpStream {
    let before = server.moods.streams.lock().await.len();
    let mut stream = tokio::net::TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(&server.bare("GET", &[&[EVENTS], more].concat())).await.unwrap();
    while server.moods.streams.lock().await.len() == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stream
}

#[tokio::test]
async fn the_stream_carries_changes_and_ends_at_shutdown() {
    let mut server = Server::start().await;
    let none = server.send(&server.bare("GET", &[("Accept", "application/json")])).await;
    assert_eq!(none.refusal(), (406, -32600, None));
    let modern = server.bare("GET", &[EVENTS, ("MCP-Protocol-Version", "2026-07-28")]);
    let modern = server.send(&modern).await;
    assert_eq!(modern.refusal(), (405, -32600, None));
    assert!(modern.head.contains("allow: post\r\n"));

    let leaver = streaming(&server, &[]).await;
    drop(leaver);
    assert_eq!(server.next().await, Seen::Ended, "here a disconnect is the end");

    let mut stream =
        streaming(&server, &[("Last-Event-ID", "7"), ("MCP-Protocol-Version", "2025-06-18")]).await;
    let feed = server.moods.streams.lock().await.pop().unwrap();
    assert!(feed.id().is_none() && !feed.is_ended());
    let params = mcp::RawObject::parse("{\"uri\":\n\"test://x\"}", &Default::default()).unwrap();
    assert!(feed.notify("notifications/tools/list_changed", None));
    assert!(feed.notify("notifications/resources/updated", Some(&params)));
    tokio::time::sleep(Duration::from_millis(250)).await;
    server.shutdown.cancel();
    let mut all = Vec::new();
    tokio::time::timeout(Duration::from_secs(2), stream.read_to_end(&mut all)).await.unwrap().unwrap();
    let answer = Answer::of(&all);
    assert!(answer.body.matches(":\n\n").count() >= 2, "comments keep it alive: {answer:?}");
    assert!(!answer.body.contains("id:") && answer.head.contains("x-accel-buffering: no"), "{answer:?}");
    assert_eq!(
        answer.events(),
        [
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
            json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "test://x"}}),
        ]
    );
    assert_eq!(server.next().await, Seen::Ended);
    assert!(feed.is_ended() && !feed.notify("notifications/tools/list_changed", None));
}

#[tokio::test]
async fn a_slow_reader_of_the_stream_falls() {
    let mut server = Server::with(|c| c.queue = 8, ServeLimits::default()).await;
    let mut slow = streaming(&server, &[]).await;
    let feed = server.moods.streams.lock().await[0].clone();
    let fat = format!(r#"{{"uri":"test://{}"}}"#, "x".repeat(200_000));
    let fat = mcp::RawObject::parse(fat, &Default::default()).unwrap();
    let mut sent = 0;
    while feed.notify("notifications/resources/updated", Some(&fat)) {
        sent += 1;
        assert!(sent < 1000, "the slow one must fall");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(feed.is_ended());
    assert_eq!(server.next().await, Seen::Ended);
    let mut all = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), slow.read_to_end(&mut all)).await.unwrap().unwrap();
    assert!(Answer::of(&all).events().len() <= sent, "it ends, and whole");
}

#[tokio::test]
async fn a_batch_is_answered_by_an_array_or_a_stream() {
    let mut server = Server::start().await;
    let old = [("MCP-Protocol-Version", "2025-03-26")];
    let note = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let batch = [
        &legacy("1", "ping", ""),
        note,
        &legacy_call("2", "told", "{}"),
        &legacy("3", "tools/list", ""),
        "7",
        r#"{"jsonrpc":"2.0","id":4}"#,
        ASK,
        &message("5", "tools/list", ""),
        response,
        &legacy("6", "test/mood", r#""_meta":[]"#),
        &legacy_call("8", "panic", "{}"),
    ]
    .join(",\n");
    for headers in [&old[..], &[]] {
        let answer = server.legacy(&format!(" [{batch}]"), headers).await;
        assert!(answer.head.contains("content-type: application/json"), "{answer:?}");
        let mut found: Vec<(String, i64)> = answer.json().as_array().unwrap().iter().map(outcome).collect();
        found.sort();
        let expected = [
            ("1", 0),
            ("2", 0),
            ("3", 0),
            ("4", -32600),
            ("5", -32600),
            ("6", -32602),
            ("7", -32600),
            ("8", -32603),
            ("null", -32600),
        ];
        assert_eq!(found, expected.map(|(id, code)| (id.to_owned(), code)));
        let mut seen = [format!("{:?}", server.next().await), format!("{:?}", server.next().await)];
        seen.sort();
        assert_eq!(seen, ["Fate(Written)", r#"Notified("notifications/x")"#]);
    }

    let quiet = server.legacy(&format!("[{note},{response}]"), &old).await;
    assert_eq!((quiet.status, quiet.body.as_str()), (202, ""));
    assert_eq!(server.next().await, Seen::Notified("notifications/x".into()));
    let many = |n: usize| format!("[{}]", vec![legacy("1", "ping", ""); n].join(","));
    assert_eq!(server.legacy(&many(32), &old).await.json().as_array().unwrap().len(), 32);
    for body in ["[]", &many(33), &format!("[{}]", vec!["1"; 100_000].join(","))] {
        assert_eq!(server.legacy(body, &old).await.refusal(), (400, -32600, None));
    }
    for body in ["[", "[1,]", r#"[{"a":1,"a":2}]"#] {
        assert_eq!(server.legacy(body, &old).await.refusal(), (400, -32700, None));
    }
    for version in ["2025-06-18", "2025-11-25", "2026-07-28"] {
        let answer = server.legacy(&many(1), &[("MCP-Protocol-Version", version)]).await;
        assert_eq!(answer.refusal(), (400, -32600, None), "{version}");
    }
}

/// The id and the error code (0 for a result) of a response.
fn outcome(response: &Value) -> (String, i64) {
    assert!(response["result"].is_object() != response["error"].is_object(), "{response}");
    (response["id"].to_string(), response["error"]["code"].as_i64().unwrap_or(0))
}

#[tokio::test]
async fn a_slow_batch_becomes_a_stream() {
    let mut server = Server::with(|c| c.drain = Duration::from_millis(300), ServeLimits::default()).await;
    let batch = format!(
        "[{},{},{}]",
        legacy_call("1", "slow", r#"{"ms":350}"#),
        legacy_call("2", "told", "{}"),
        legacy_call("3", "slow", r#"{"ms":1}"#)
    );
    let answer = server.legacy(&batch, &[]).await;
    let ids: Vec<_> = answer.events().iter().map(outcome).collect();
    assert_eq!(ids, [("2".into(), 0), ("3".into(), 0), ("1".into(), 0)]);
    assert!(answer.body.starts_with(":\n\n") && !answer.body.contains("id:"), "{answer:?}");
    assert_eq!(server.next().await, Seen::Fate(Delivery::Written));
    let json_only = server.legacy(&batch, &[("Accept", "application/json")]).await;
    assert_eq!(json_only.json().as_array().unwrap().len(), 3);
    assert_eq!(server.next().await, Seen::Fate(Delivery::Written));

    let hold = format!("[{},{}]", legacy_call("1", "hold", "{}"), legacy("2", "ping", ""));
    let left = held(&server, &hold, &[]).await;
    left.abort();
    nothing_happens(&mut server).await;
    server.moods.release.notify_one();
    assert_eq!(server.next().await, Seen::WentOn);
    assert_eq!(server.next().await, Seen::Fate(Delivery::Undelivered));

    let cancelled = held(&server, &hold, &[]).await;
    server.legacy(&common::cancel("1"), &[]).await;
    assert_eq!(server.next().await, Seen::Gone);
    server.moods.release.notify_one();
    assert_eq!(server.next().await, Seen::WentOn);
    let answer = cancelled.await.unwrap();
    let codes: Vec<_> = answer.json().as_array().unwrap().iter().map(outcome).collect();
    assert_eq!(codes, [("2".into(), 0), ("1".into(), -32800)]);
    assert_eq!(server.next().await, Seen::Fate(Delivery::Undelivered));

    let streamed = held(&server, &hold, &[]).await;
    let single = held(&server, &hold, &[("Accept", "application/json")]).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.shutdown.cancel();
    let events = streamed.await.unwrap().events();
    assert_eq!(events.iter().map(outcome).collect::<Vec<_>>(), [("2".into(), 0), ("1".into(), -32603)]);
    assert_eq!(outcome(&single.await.unwrap().json()[1]), ("1".into(), -32603));
}
