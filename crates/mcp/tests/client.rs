//! The client: what became of a request, and the reading of every kind of answer.
#![allow(clippy::unwrap_used, clippy::expect_used)]
extern crate counterfoil_mcp as mcp;

mod common;
use std::time::Duration;

use common::{Server, raw};
use http::HeaderMap;
use mcp::client::{CallOptions, ClientConfig, McpClient, Sent, Transport};
use mcp::{Error, RawObject};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn client(url: impl Into<String>) -> McpClient {
    McpClient::new(ClientConfig { timeout: Duration::from_secs(3), ..ClientConfig::new(url, "test", "1") })
        .unwrap()
}

fn object(text: &str) -> RawObject {
    raw(text).object().unwrap()
}

#[tokio::test]
async fn it_speaks_with_our_server() {
    let server = Server::start().await;
    let client = client(server.url());
    let reply = client.discover().await.unwrap();
    assert_eq!(reply.result.get("supportedVersions").unwrap().as_str(), r#"["2026-07-28"]"#);

    let arguments = object(r#"{"region":"é","n":1.0}"#);
    let refused = client.call_tool("echo", Some(&arguments), CallOptions::default()).await.unwrap_err();
    assert!(matches!(refused, Error::Rpc { code: -32020, .. }), "not mirrored before listing: {refused}");
    let names: Vec<_> = client.list_tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["echo", "last"], "all pages, without the tool whose annotation is wrong");
    let reply = client.call_tool("echo", Some(&arguments), CallOptions::default()).await.unwrap();
    assert_eq!(reply.result.get("echo").unwrap().as_str(), arguments.raw().as_str());
    assert_eq!(reply.result_type, "complete");

    let mut seen = Vec::new();
    let options = CallOptions {
        meta: vec![("io.modelcontextprotocol/logLevel".into(), raw("\"error\""))],
        on_progress: Some(Box::new(|p| seen.push(p.progress))),
        ..CallOptions::default()
    };
    let reply = client.call_tool("progress", None, options).await.unwrap();
    assert_eq!(reply.result.get("done").unwrap().as_str(), "true");
    assert_eq!(seen, [1.0, 2.0, 2.5]);

    let slow =
        client.call_tool("slow", Some(&object(r#"{"ms":300}"#)), CallOptions::default()).await.unwrap();
    assert_eq!(slow.result.get("slow").unwrap().as_str(), "true");
    let options = CallOptions { timeout: Some(Duration::from_millis(150)), ..CallOptions::default() };
    let late = client.call_tool("slow", Some(&object(r#"{"ms":5000}"#)), options).await.unwrap_err();
    assert!(matches!(late, Error::Unknown(_)), "{late}");
    let unknown = client.request("no/such", &[], CallOptions::default()).await.unwrap_err();
    assert!(matches!(unknown, Error::Rpc { code: -32601, status, .. } if status == 404));
}

#[tokio::test]
async fn a_client_that_gives_up_cancels() {
    let mut server = Server::start().await;
    let client = client(server.url());
    let options = CallOptions { timeout: Some(Duration::from_millis(200)), ..CallOptions::default() };
    client.call_tool("hold", None, options).await.unwrap_err();
    assert_eq!(server.next().await, common::Seen::Gone);
    server.moods.release.notify_one();
}

/// A server that reads one request to its end and then does as told.
async fn once(answer: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            while !request.ends_with(b"}") {
                let n = stream.read(&mut piece).await.unwrap();
                request.extend_from_slice(&piece[..n]);
            }
            match answer {
                Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                None => tokio::time::sleep(Duration::from_secs(60)).await,
            }
        }
    });
    url
}

async fn post(url: &str) -> Sent {
    let transport = Transport::new(Duration::from_secs(1), 1000);
    transport.post(url, HeaderMap::new(), "{}".into(), Duration::from_millis(500)).await
}

#[tokio::test]
async fn what_became_of_a_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    for url in [
        closed.as_str(),
        "http://example.com/",
        "https://no-such-host.invalid/",
        "ftp://localhost/",
        "http://user@localhost/",
        "not a url",
    ] {
        let sent = post(url).await;
        assert!(matches!(sent, Sent::NotSent(_)), "{url}: {sent:?}");
    }
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let no_tls = format!("https://localhost:{}/", plain.local_addr().unwrap().port());
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    });
    assert!(matches!(post(&no_tls).await, Sent::NotSent(_)), "TLS was not established");
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_tls = format!("https://{}/", silent.local_addr().unwrap());
    assert!(matches!(post(&silent_tls).await, Sent::NotSent(_)), "the handshake never ended");

    for (answer, why) in [
        (Some(""), "cut after the request"),
        (None, "no answer in time"),
        (Some("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"torn\":"), "torn body"),
        (Some("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), "torn chunks"),
        (Some("HTTP/1.1 2"), "torn head"),
        (Some("garbage\r\n\r\n"), "no HTTP"),
    ] {
        let sent = post(&once(answer).await).await;
        assert!(matches!(sent, Sent::Unknown(_)), "{why}: {sent:?}");
    }
    let long: &'static str = Box::leak(
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n{}", "x".repeat(2000)).into_boxed_str(),
    );
    assert!(matches!(post(&once(Some(long)).await).await, Sent::Unknown(why) if why.contains("1000 bytes")));

    let moved = "HTTP/1.1 307 Temporary Redirect\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n";
    match post(&once(Some(moved)).await).await {
        Sent::Answered { status, headers, body } => {
            assert_eq!(
                (status.as_u16(), headers["location"].as_bytes(), body.len()),
                (307, &b"/other"[..], 0)
            );
        }
        other => panic!("redirects are answers: {other:?}"),
    }
}

#[tokio::test]
async fn answers_of_every_shape() {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n";
    let stream = |text: &str| -> &'static str { Box::leak(format!("{head}{text}").into_boxed_str()) };
    let good = stream(
        "\u{feff}: hi\r\nid: 1\r\ndata:\r\n\r\nevent: other\ndata: x\n\ndata: {\"jsonrpc\":\"2.0\",\rdata: \"id\":1,\"result\":{\"old\":true}}\r\r",
    );
    let reply = client(once(Some(good)).await).discover().await.unwrap();
    assert_eq!((reply.result_type.as_str(), reply.result.get("old").unwrap().as_str()), ("complete", "true"));

    let ended = client(once(Some(stream(": hi\n\n"))).await).discover().await.unwrap_err();
    assert!(matches!(ended, Error::Unknown(_)), "{ended}");
    let other = stream("data: {\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n\n");
    assert!(matches!(client(once(Some(other)).await).discover().await.unwrap_err(), Error::Unknown(_)));

    let json = |status: &str, body: &str| -> &'static str {
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Box::leak(text.into_boxed_str())
    };
    let refused = json(
        "400 Bad Request",
        r#"{"jsonrpc":"2.0","error":{"code":-32022,"message":"m","data":{"supported":["x"]}}}"#,
    );
    match client(once(Some(refused)).await).discover().await.unwrap_err() {
        Error::Rpc { status, code: -32022, data: Some(data), .. } => {
            assert_eq!((status.as_u16(), data.as_str()), (400, r#"{"supported":["x"]}"#));
        }
        other => panic!("{other}"),
    }
    let proxy = "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\noops";
    assert!(matches!(
        client(once(Some(proxy)).await).discover().await.unwrap_err(),
        Error::Http { status, body, .. } if status == 502 && body == "oops"
    ));
    for body in
        ["{}", "[]", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#, r#"{"jsonrpc":"2.0","id":1,"result":[]}"#]
    {
        let error = client(once(Some(json("200 OK", body))).await).discover().await.unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{body}: {error}");
    }
    assert!(matches!(
        McpClient::new(ClientConfig::new("http://example.com", "a", "1")),
        Err(Error::Config(_))
    ));
}
