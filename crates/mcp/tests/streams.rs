//! Streams of change notifications leave room for requests, and for other callers' streams.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
extern crate counterfoil_mcp as mcp;

mod common;
use common::{EVENTS, Seen, Server, legacy, message};
use http_body_util::{BodyExt, Full};
use mcp::server::ServeLimits;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn bounded(most: usize, each: usize) -> Server {
    let change = |c: &mut mcp::server::HttpConfig| (c.max_streams, c.max_streams_each) = (most, each);
    Server::with(change, ServeLimits::default()).await
}

/// Opens a stream and keeps it; gives the status and the connection.
async fn open(server: &Server, request: Vec<u8>) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(&request).await.unwrap();
    let mut head = vec![0; 12];
    let read = stream.read_exact(&mut head);
    tokio::time::timeout(Duration::from_secs(5), read).await.unwrap().unwrap();
    (String::from_utf8_lossy(&head[9..]).parse().unwrap(), stream)
}

fn get(server: &Server, who: &str) -> Vec<u8> {
    server.bare("GET", &[EVENTS, ("X-Who", who)])
}

fn listen() -> String {
    message("1", "subscriptions/listen", r#""notifications":{"toolsListChanged":true}"#)
}

#[tokio::test]
async fn get_beyond_the_most_is_told_that_there_is_none() {
    let mut server = bounded(3, 2).await;
    let mut open_ones = Vec::new();
    for who in ["ann", "ann", "bob"] {
        let (status, stream) = open(&server, get(&server, who)).await;
        assert_eq!(status, 200);
        open_ones.push(stream);
    }
    // Ann has her share; then nobody gets one.
    for who in ["ann", "cid"] {
        let refused = server.send(&get(&server, who)).await;
        assert_eq!(refused.refusal(), (405, -32600, None), "{who}");
        assert!(refused.head.contains("allow: post, delete\r\n"), "{refused:?}");
        assert!(refused.body.contains("too many streams are open"), "{refused:?}");
    }
    // Both eras share the places, and requests need none.
    let refused = server.post(&listen(), &[("X-Who", Some("cid"))]).await;
    assert_eq!(refused.refusal(), (200, -32603, Some(json!(1))));
    assert_eq!(refused.json()["error"]["data"]["kind"], "unavailable");
    assert_eq!(server.legacy(&legacy("1", "ping", ""), &[("X-Who", "ann")]).await.status, 200);
    assert_eq!(server.post(&message("1", "server/discover", ""), &[]).await.status, 200);

    drop(open_ones.remove(0));
    assert_eq!(server.next().await, Seen::Ended);
    let mut again = open(&server, get(&server, "ann")).await;
    while again.0 != 200 {
        again = open(&server, get(&server, "ann")).await;
    }
    assert_eq!(open(&server, get(&server, "ann")).await.0, 405);
}

/// Whether an event stream begins, which a refusal over 200 isn't.
async fn opens_stream(server: &Server, request: Vec<u8>) -> bool {
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(&request).await.unwrap();
    let mut head = [0; 512];
    let n = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut head)).await.unwrap().unwrap();
    String::from_utf8_lossy(&head[..n]).to_lowercase().contains("content-type: text/event-stream")
}

#[tokio::test]
async fn a_caller_has_its_share_only() {
    let server = bounded(10, 1).await;
    let ann = [("X-Who", Some("ann"))];
    let (status, held) = open(&server, server.request(&listen(), &ann)).await;
    assert_eq!((status, server.moods.subscriptions.lock().await.len()), (200, 1));
    assert_eq!(server.post(&listen(), &ann).await.refusal(), (200, -32603, Some(json!(1))));
    assert_eq!(server.send(&get(&server, "ann")).await.refusal(), (405, -32600, None));
    assert!(opens_stream(&server, get(&server, "bob")).await);
    // What is refused for another reason takes no place.
    for _ in 0..3 {
        let wrong = server.post(&listen(), &[("Accept", Some("application/json"))]).await;
        assert_eq!(wrong.refusal().0, 406);
    }
    drop(held);
    let begun = std::time::Instant::now();
    while !opens_stream(&server, server.request(&listen(), &ann)).await {
        assert!(begun.elapsed() < Duration::from_secs(5), "the place is given back");
    }
}

#[tokio::test]
async fn streams_over_one_http2_connection_count_too() {
    let server = bounded(2, 2).await;
    let io = hyper_util::rt::TokioIo::new(TcpStream::connect(server.addr).await.unwrap());
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let url = server.url();
    let mut ask = async || {
        let request = http::Request::get(&url).header("Accept", "text/event-stream");
        client.send_request(request.body(Full::<bytes::Bytes>::default()).unwrap()).await.unwrap()
    };
    let (first, _second) = (ask().await, ask().await);
    assert!(first.status() == 200 && _second.status() == 200);
    let refused = ask().await;
    assert_eq!(refused.status(), 405);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("too many streams"), "{body:?}");
    drop(first);
    let begun = std::time::Instant::now();
    while ask().await.status() != 200 {
        assert!(begun.elapsed() < Duration::from_secs(5), "the place is given back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
