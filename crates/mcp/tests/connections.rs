//! Connections in the hands of slow, hasty and hostile clients, and those that live while the server ends.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
extern crate counterfoil_mcp as mcp;

mod common;
use common::{Server, call};
use http_body_util::{BodyExt, Full};
use mcp::server::ServeLimits;
use std::io::Write as _;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_secs(5);

/// Reads to the end, or says that there is none.
async fn to_end(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let end = tokio::time::timeout(SOON, stream.read_to_end(&mut all)).await.expect("it stays open");
    // A reset is an end too.
    let _ = end;
    String::from_utf8_lossy(&all).into_owned()
}

/// The bytes of a request that keeps its connection.
fn kept(server: &Server, body: &str) -> Vec<u8> {
    server.request(body, &[("Connection", None)])
}

/// Reads as much as one answer of `told` takes.
async fn one(stream: &mut TcpStream) -> String {
    let mut all = String::new();
    while !all.ends_with("}}}") {
        let mut buffer = [0; 4096];
        let n = tokio::time::timeout(SOON, stream.read(&mut buffer)).await.expect("no answer").unwrap();
        assert!(n > 0, "closed after {all:?}");
        all.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    all
}

/// Writes byte by byte for as long as anybody takes it, and says how long that was.
async fn trickle(stream: &mut TcpStream, bytes: &[u8]) -> Duration {
    let began = Instant::now();
    for byte in bytes {
        let mut ended = [0; 1];
        if stream.write_all(&[*byte]).await.is_err() {
            break;
        }
        let end = tokio::time::timeout(Duration::from_millis(10), stream.peek(&mut ended)).await;
        if end.is_ok() {
            break;
        }
    }
    began.elapsed()
}

#[tokio::test]
async fn a_head_that_trickles_has_its_limit_whichever_it_is() {
    let idle = Duration::from_millis(300);
    let server = Server::with(|_| {}, ServeLimits { idle, ..ServeLimits::default() }).await;
    let slow = format!("POST /mcp HTTP/1.1\r\nHost: x\r\nX-Slow: {}", "x".repeat(1000));
    for before in 0..3 {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        for _ in 0..before {
            stream.write_all(&kept(&server, &call("told", "{}"))).await.unwrap();
            assert!(one(&mut stream).await.starts_with("HTTP/1.1 200"));
            tokio::time::sleep(idle / 2).await;
        }
        let took = trickle(&mut stream, slow.as_bytes()).await;
        assert!(took < idle * 4, "after {before} requests it was read for {took:?}");
        to_end(&mut stream).await;
    }
}

#[tokio::test]
async fn a_body_that_trickles_or_never_comes_is_told_so_in_time() {
    let limit = Duration::from_millis(300);
    let server = Server::with(|c| c.read_timeout = limit, ServeLimits::default()).await;
    let body = call("told", "{}");
    let whole = kept(&server, &body);
    let head = whole.len() - body.len();
    for sent in [0, 1, body.len() - 1] {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        // One request before, so that its clock is not that of the connection.
        stream.write_all(&whole).await.unwrap();
        one(&mut stream).await;
        stream.write_all(&whole[..head]).await.unwrap();
        let began = Instant::now();
        trickle(&mut stream, &whole[head..head + sent]).await;
        let answer = to_end(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        let took = began.elapsed();
        assert!(took >= limit && took < limit * 4, "{sent} bytes: {took:?}");
    }
}

#[tokio::test]
async fn requests_one_behind_the_other_are_all_answered_in_their_order() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    let count = 200;
    let mut all = Vec::new();
    for n in 0..count {
        let body = call("echo", &format!(r#"{{"n":"<{n}>"}}"#));
        all.extend(if n + 1 < count { kept(&server, &body) } else { server.request(&body, &[]) });
    }
    let (mut reading, mut writing) = stream.split();
    let mut answers = Vec::new();
    let write = async { writing.write_all(&all).await.unwrap() };
    tokio::time::timeout(SOON, async { tokio::join!(write, reading.read_to_end(&mut answers)) })
        .await
        .expect("they are not all answered")
        .1
        .unwrap();
    let answers = String::from_utf8(answers).unwrap();
    let found: Vec<usize> =
        answers.split("\"<").skip(1).map(|rest| rest.split('>').next().unwrap().parse().unwrap()).collect();
    assert_eq!(found, (0..count).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_announced_shutdown_answers_everything_and_ends_each_connection_by_its_answer() {
    let server = Server::start().await;
    let mut idle = TcpStream::connect(server.addr).await.unwrap();
    idle.write_all(&kept(&server, &call("told", "{}"))).await.unwrap();
    assert!(!one(&mut idle).await.to_lowercase().contains("connection: close"));
    let mut busy = TcpStream::connect(server.addr).await.unwrap();
    busy.write_all(&kept(&server, &call("slow", r#"{"ms":300}"#))).await.unwrap();
    let mut silent = TcpStream::connect(server.addr).await.unwrap();
    let halves = kept(&server, &call("told", "{}"));
    let mut half = TcpStream::connect(server.addr).await.unwrap();
    half.write_all(&halves[..40]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.announced.cancel();
    tokio::time::sleep(Duration::from_millis(50)).await;
    half.write_all(&halves[40..]).await.unwrap();
    let mut late = TcpStream::connect(server.addr).await.unwrap();
    for stream in [&mut idle, &mut silent, &mut late] {
        stream.write_all(&kept(&server, &call("told", "{}"))).await.unwrap();
    }
    for (n, stream) in [&mut idle, &mut silent, &mut late, &mut half].into_iter().enumerate() {
        let answer = to_end(stream).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("}}}"), "{n}: {answer}");
        assert!(answer.to_lowercase().contains("\r\nconnection: close\r\n"), "{n}: {answer}");
    }
    let slow = to_end(&mut busy).await;
    assert!(slow.contains("\"slow\":true"), "{slow}");
    assert!(!server.served.is_finished());
    server.shutdown.cancel();
    tokio::time::timeout(SOON, server.served).await.expect("it ends").unwrap();
}

type Http2 = hyper::client::conn::http2::SendRequest<Full<bytes::Bytes>>;

async fn http2(server: &Server) -> (Http2, tokio::task::JoinHandle<hyper::Result<()>>) {
    let io = hyper_util::rt::TokioIo::new(TcpStream::connect(server.addr).await.unwrap());
    let executor = hyper_util::rt::TokioExecutor::new();
    let (client, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    (client, tokio::spawn(connection))
}

/// The body of the answer to a call.
async fn called(server: &Server, client: &mut Http2, tool: &str, arguments: &str) -> hyper::Result<String> {
    let request = http::Request::post(server.url())
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool)
        .body(Full::from(call(tool, arguments)))
        .unwrap();
    let body = client.send_request(request).await?.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn an_announced_shutdown_ends_http2_connections_and_loses_no_stream() {
    let server = Server::start().await;
    let (mut client, ended) = http2(&server).await;
    let slow = called(&server, &mut client, "slow", r#"{"ms":300}"#);
    let announce = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.announced.cancel();
    };
    let (slow, ()) = tokio::join!(slow, announce);
    assert!(slow.unwrap().contains("\"slow\":true"));
    tokio::time::timeout(SOON, ended).await.expect("the connection ends").unwrap().unwrap();
    assert!(called(&server, &mut client, "told", "{}").await.is_err());

    // One that comes later is answered, and is then told like the others.
    let (mut client, ended) = http2(&server).await;
    assert!(called(&server, &mut client, "told", "{}").await.unwrap().ends_with("}}}"));
    tokio::time::timeout(SOON, ended).await.expect("the later connection ends").unwrap().unwrap();
}

#[tokio::test]
async fn who_had_connected_before_a_shutdown_is_answered() {
    let server = Server::start().await;
    // Nothing else runs here, so the server can't have taken them yet.
    let mut early: Vec<std::net::TcpStream> = (0..3)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(server.addr).unwrap();
            stream.write_all(&kept(&server, &call("told", "{}"))).unwrap();
            stream
        })
        .collect();
    server.shutdown.cancel();
    for stream in early.drain(..) {
        stream.set_nonblocking(true).unwrap();
        let mut stream = TcpStream::from_std(stream).unwrap();
        let answer = to_end(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("}}}"), "{answer:?}");
    }
    tokio::time::timeout(SOON, server.served).await.expect("it ends").unwrap();
    assert!(TcpStream::connect(server.addr).await.is_err());
}
