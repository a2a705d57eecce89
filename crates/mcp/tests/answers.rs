//! Answers: bytes kept, the choice between JSON and a stream, disconnects, deliveries, panics, listen streams.
#![allow(clippy::unwrap_used, clippy::expect_used)]
extern crate counterfoil_mcp as mcp;

mod common;
use std::time::Duration;

use common::{Answer, Seen, Server, call, message};
use mcp::server::{Delivery, ServeLimits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn results_keep_their_bytes() {
    let server = Server::start().await;
    let odd = r#"{"a":1.0,"b":[1e999, 9007199254740993],"unknown":{"\u00e9":"\/"}}"#;
    let answer = server.post(&call("echo", odd), &[]).await;
    assert_eq!(
        answer.body,
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[],   "echo" : {odd},"_meta":{{"own": 1.0 ,"dev.example/x":1}},"resultType":"complete"}}}}"#
        )
    );
    assert!(answer.head.contains("content-type: application/json"));
    assert!(answer.head.contains("cache-control: no-store"));
    let answer = server.post(&message("-9007199254740993", "server/discover", ""), &[]).await;
    assert!(answer.body.starts_with(r#"{"jsonrpc":"2.0","id":-9007199254740993,"result""#));
    assert_eq!(answer.json()["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "t");
    let answer = server.post(&message("1", "test/known", ""), &[]).await;
    assert_eq!(answer.refusal(), (200, 7001, Some(json!(1))));
    assert_eq!(answer.json()["error"]["data"]["kind"], "some_kind");
    assert_eq!(server.post(&call("nothing", "{}"), &[]).await.refusal(), (200, -32602, Some(json!(1))));
}

#[tokio::test]
async fn one_connection_serves_many() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    for _ in 0..3 {
        for body in [call("echo", "{}"), message("1", "server/discover", "")] {
            let request = server.request(&body, &[("Connection", None)]);
            stream.write_all(&request).await.unwrap();
            let mut piece = vec![0; 4096];
            let n = stream.read(&mut piece).await.unwrap();
            assert_eq!(Answer::of(&piece[..n]).status, 200);
        }
    }
}

#[tokio::test]
async fn a_slow_call_gets_early_bytes_and_comments() {
    let server = Server::start().await;
    let started = std::time::Instant::now();
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(&server.request(&call("slow", r#"{"ms":600}"#), &[])).await.unwrap();
    let mut all = vec![0; 4096];
    let mut n = 0;
    while !all[..n].ends_with(b":\n\n\r\n") {
        n += stream.read(&mut all[n..]).await.unwrap();
    }
    assert!(started.elapsed() < Duration::from_millis(500), "bytes come before the result");
    let mut rest = all[..n].to_vec();
    stream.read_to_end(&mut rest).await.unwrap();
    let answer = Answer::of(&rest);
    assert!(answer.head.contains("x-accel-buffering: no") && answer.head.contains("cache-control: no-store"));
    assert!(answer.body.matches(":\n\n").count() >= 3, "{answer:?}");
    assert!(!answer.body.contains("id:"), "no event ids");
    let events = answer.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["result"]["slow"], true);

    let json_only =
        server.post(&call("slow", r#"{"ms":300}"#), &[("Accept", Some("application/json"))]).await;
    assert_eq!(json_only.json()["result"]["slow"], true);
    let quick = server.post(&call("slow", r#"{"ms":10}"#), &[]).await;
    assert_eq!(quick.json()["result"]["slow"], true);
}

#[tokio::test]
async fn notifications_precede_the_response_in_its_stream() {
    let server = Server::start().await;
    let asked = call("progress", "{}").replace(
        "\"_meta\":{",
        r#""_meta":{"progressToken":"p-1","io.modelcontextprotocol/logLevel":"error","#,
    );
    let answer = server.post(&asked, &[]).await;
    let events = answer.events();
    let progress: Vec<_> = events
        .iter()
        .filter(|e| e["method"] == "notifications/progress")
        .map(|e| e["params"].clone())
        .collect();
    assert_eq!(progress.iter().map(|p| p["progress"].as_f64().unwrap()).collect::<Vec<_>>(), [1.0, 2.0, 2.5]);
    assert_eq!(progress[0], json!({"progressToken": "p-1", "progress": 1, "total": 3, "message": "so\nfar"}));
    let logs: Vec<_> = events.iter().filter(|e| e["method"] == "notifications/message").collect();
    assert_eq!(logs.len(), 1);
    assert_eq!(logs[0]["params"], json!({"level": "error", "logger": "t", "data": {"a": 1}}));
    assert_eq!(events.last().unwrap()["result"]["done"], true);
    assert_eq!(answer.body.lines().filter(|l| l.starts_with("data:")).count(), 5);

    let silent = server.post(&call("progress", "{}"), &[]).await;
    assert_eq!(silent.json()["result"]["done"], true, "nobody asked, so one JSON body");
    let json_only = server.post(&asked, &[("Accept", Some("application/json"))]).await;
    assert_eq!(json_only.json()["result"]["done"], true);
}

#[tokio::test]
async fn a_large_result_is_json_even_after_progress() {
    let mut server = Server::start().await;
    let asked = call("big", "{}").replace("\"_meta\":{", r#""_meta":{"progressToken":1,"#);
    let answer = server.post(&asked, &[]).await;
    assert!(answer.head.contains("content-type: application/json"));
    assert_eq!(answer.json()["result"]["big"].as_str().unwrap().len(), 8 << 20);
    assert_eq!(server.next().await, Seen::Fate(Delivery::Written));
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_and_the_work_goes_on() {
    let mut server = Server::start().await;
    // Once while the choice is open, once after the stream was opened.
    for wait in [30, 300] {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(&server.request(&call("hold", "{}"), &[])).await.unwrap();
        tokio::time::sleep(Duration::from_millis(wait)).await;
        drop(stream);
        assert_eq!(server.next().await, Seen::Gone);
        server.moods.release.notify_one();
        assert_eq!(server.next().await, Seen::WentOn);
        assert_eq!(server.next().await, Seen::Fate(Delivery::Undelivered));
    }
}

#[tokio::test]
async fn deliveries_are_reported() {
    let mut server = Server::start().await;
    server.post(&call("told", "{}"), &[]).await;
    assert_eq!(server.next().await, Seen::Fate(Delivery::Written), "as JSON");

    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(&server.request(&call("hold", "{}"), &[])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.moods.release.notify_one();
    assert_eq!(server.next().await, Seen::WentOn);
    assert_eq!(server.next().await, Seen::Fate(Delivery::Written), "as the end of a stream");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    assert_eq!(Answer::of(&all).events().len(), 1);
}

#[tokio::test]
async fn an_answer_stuck_in_a_dead_connection_is_undelivered() {
    let limits = ServeLimits { write_stall: Duration::from_millis(300), ..ServeLimits::default() };
    let mut server = Server::with(|_| {}, limits).await;
    let request = server.request(&call("big", "{}"), &[]);
    // hyper takes the whole body, but a peer that reads nothing never lets it out.
    let mut stuck = TcpStream::connect(server.addr).await.unwrap();
    stuck.write_all(&request).await.unwrap();
    assert_eq!(server.next().await, Seen::Fate(Delivery::Undelivered), "closed after the stall");
    let mut leaving = TcpStream::connect(server.addr).await.unwrap();
    leaving.write_all(&request).await.unwrap();
    let mut some = [0; 100];
    leaving.read_exact(&mut some).await.unwrap();
    drop(leaving);
    assert_eq!(server.next().await, Seen::Fate(Delivery::Undelivered), "left in the middle");
}

#[tokio::test]
async fn a_panic_is_answered() {
    let server = Server::start().await;
    for tool in ["panic", "forget"] {
        assert_eq!(
            server.post(&call(tool, "{}"), &[]).await.refusal(),
            (200, -32603, Some(json!(1))),
            "{tool}"
        );
    }
    let streamed = server.post(&call("panic_late", "{}"), &[]).await.events();
    assert_eq!(streamed[0]["error"]["code"], -32603);
    assert_eq!(
        server.post(&message("1", "test/panic_ready", ""), &[]).await.refusal(),
        (200, -32603, Some(json!(1)))
    );
    assert_eq!(server.post(&call("echo", "{}"), &[]).await.status, 200, "the server lives");
}

async fn listening(server: &Server, id: &str) -> TcpStream {
    let before = server.moods.subscriptions.lock().await.len();
    let body = message(id, "subscriptions/listen", r#""notifications":{"toolsListChanged":true}"#);
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(&server.request(&body, &[])).await.unwrap();
    while server.moods.subscriptions.lock().await.len() == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stream
}

#[tokio::test]
async fn a_listen_stream_is_acknowledged_tagged_and_ended_on_shutdown() {
    let server = Server::start().await;
    let mut stream = listening(&server, "\"sub\"").await;
    let params = mcp::RawObject::parse(r#"{"uri":"test://x"}"#, &Default::default()).unwrap();
    {
        let all = server.moods.subscriptions.lock().await;
        assert!(all[0].notify("notifications/resources/updated", Some(&params)));
        assert!(all[0].notify("notifications/tools/list_changed", None));
        assert!(!all[0].is_ended());
    }
    tokio::time::sleep(Duration::from_millis(150)).await;
    server.shutdown.cancel();
    let mut all = Vec::new();
    tokio::time::timeout(Duration::from_secs(2), stream.read_to_end(&mut all)).await.unwrap().unwrap();
    let tag = json!({"io.modelcontextprotocol/subscriptionId": "sub"});
    assert_eq!(
        Answer::of(&all).events(),
        [
            json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                "params": {"_meta": tag, "notifications": {"toolsListChanged": true}}}),
            json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "test://x", "_meta": tag}}),
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": tag}}),
            json!({"jsonrpc": "2.0", "id": "sub", "result": {"_meta": tag, "resultType": "complete"}}),
        ]
    );
    tokio::time::timeout(Duration::from_secs(2), server.served).await.unwrap().unwrap();
    let ended = server.moods.subscriptions.lock().await.pop().unwrap();
    assert!(ended.is_ended());
    assert!(!ended.notify("notifications/tools/list_changed", None));
}

#[tokio::test]
async fn a_slow_reader_falls_alone_and_a_leaver_is_forgotten() {
    let server = Server::with(|c| c.queue = 8, ServeLimits::default()).await;
    let slow = listening(&server, "1").await;
    let mut quick = listening(&server, "2").await;
    let reader = tokio::spawn(async move {
        let mut all = Vec::new();
        quick.read_to_end(&mut all).await.unwrap();
        Answer::of(&all).events()
    });
    let fat =
        mcp::RawObject::parse(format!(r#"{{"uri":"test://{}"}}"#, "x".repeat(200_000)), &Default::default())
            .unwrap();
    let mut sent = 0;
    let fell = loop {
        let all = server.moods.subscriptions.lock().await;
        if !all[0].notify("notifications/resources/updated", Some(&fat)) {
            break sent;
        }
        assert!(all[1].notify("notifications/resources/updated", Some(&fat)), "the quick one goes on");
        sent += 1;
        assert!(sent < 1000, "the slow one must fall");
        drop(all);
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let mut all = server.moods.subscriptions.lock().await;
    assert!(all[0].is_ended() && !all[1].is_ended());
    let fate = tokio::time::timeout(Duration::from_secs(5), all.pop().unwrap().finish()).await.unwrap();
    assert_eq!(fate, Delivery::Written);
    let events = reader.await.unwrap();
    assert_eq!(events.len(), fell + 2, "all that was sent, the acknowledgement and the result");
    drop(all);
    drop(slow);

    let leaver = listening(&server, "3").await;
    drop(leaver);
    let all = server.moods.subscriptions.lock().await;
    tokio::time::timeout(Duration::from_secs(5), all.last().unwrap().ended()).await.unwrap();
}

#[tokio::test]
async fn calls_in_flight_end_before_the_server_does() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(&server.request(&call("slow", r#"{"ms":400}"#), &[])).await.unwrap();
    let _idle = TcpStream::connect(server.addr).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.shutdown.cancel();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    assert_eq!(Answer::of(&all).events()[0]["result"]["slow"], true);
    tokio::time::timeout(Duration::from_secs(2), server.served).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.addr).await.is_err());

    let limits = ServeLimits { drain: Duration::from_millis(100), ..ServeLimits::default() };
    let server = Server::with(|_| {}, limits).await;
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(&server.request(&call("slow", r#"{"ms":60000}"#), &[])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(2), server.served).await.expect("drain is bounded").unwrap();
}

#[tokio::test]
async fn calls_that_outlast_the_drain_are_answered_too() {
    let mut server = Server::with(|c| c.drain = Duration::from_millis(300), ServeLimits::default()).await;
    let body = call("hold", "{}");
    let mut streamed = TcpStream::connect(server.addr).await.unwrap();
    streamed.write_all(&server.request(&body, &[])).await.unwrap();
    let mut single = TcpStream::connect(server.addr).await.unwrap();
    single.write_all(&server.request(&body, &[("Accept", Some("application/json"))])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.shutdown.cancel();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    streamed.read_to_end(&mut first).await.unwrap();
    single.read_to_end(&mut second).await.unwrap();
    assert_eq!(Answer::of(&first).events()[0]["error"]["code"], -32603);
    assert_eq!(Answer::of(&second).refusal(), (200, -32603, Some(json!(1))));
    server.moods.release.notify_one();
    server.moods.release.notify_one();
    assert_eq!(server.next().await, Seen::WentOn, "the work is not stopped");
    assert_eq!(server.next().await, Seen::Fate(Delivery::Undelivered));
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let limits = ServeLimits { idle: Duration::from_millis(200), ..ServeLimits::default() };
    let server = Server::with(|_| {}, limits).await;
    for start in ["", "P", "PRI * HTTP/2", "POST /mcp HTTP/1.1\r\nHost: x\r\n"] {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        let end = tokio::time::timeout(Duration::from_secs(2), stream.read_to_end(&mut all)).await;
        assert!(end.is_ok(), "{start:?} held the connection");
    }
}

#[tokio::test]
async fn http2_is_served_alike() {
    use http_body_util::{BodyExt, Full};
    let mut server = Server::start().await;
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .http2_only(true)
        .build_http::<Full<bytes::Bytes>>();
    let url = server.url();
    let request = |tool: &str| {
        http::Request::post(&url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool)
            .body(Full::from(call(tool, "{}")))
            .unwrap()
    };
    let response = client.request(request("told")).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.ends_with(br#""resultType":"complete","_meta":{"dev.example/x":1}}}"#), "{body:?}");
    assert_eq!(server.next().await, Seen::Fate(Delivery::Written));

    // A reset stream is a client that left, though its connection lives on.
    let held = tokio::time::timeout(Duration::from_millis(50), client.request(request("hold"))).await;
    assert!(held.is_err());
    assert_eq!(server.next().await, Seen::Gone);
    server.moods.release.notify_one();
    assert_eq!(server.next().await, Seen::WentOn);
    assert_eq!(server.next().await, Seen::Fate(Delivery::Undelivered));
}
