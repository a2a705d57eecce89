//! What an open stream of change notifications takes of the server's memory. A program of its own: the memory of the
//! whole process is looked at, so nothing else may run in it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{modern_params, settings, watched, world};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The first pay for what is made once; all together stay below what one caller may have.
const FIRST: usize = 40;
const STREAMS: usize = 200;
/// Below 20 kB each. Two buffers of 8 KiB are hyper's, and about 5 kB are ours; a stream that holds on to the request
/// which opened it, or to the future of a whole call, is above.
const MOST_KB: usize = 20;

fn resident_kb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A stream as a socket and nothing else, so that this side of it takes no memory that could be mistaken.
fn open(addr: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let (mut all, mut buffer) = (String::new(), [0; 4096]);
    while !all.contains("notifications/subscriptions/acknowledged") {
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "{all}");
        all.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_stream_takes_less_than_20_kb() {
    let w = world(watched(), settings(), false).await;
    // A request of ordinary size, with headers as proxies and clients add them.
    let params = modern_params(json!({ "notifications": { "toolsListChanged": true } }), json!({}));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params });
    let trace = "t".repeat(400);
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "subscriptions/listen"),
        ("User-Agent", "a client"),
        ("X-Request-Id", "4711"),
        ("X-Forwarded-For", "192.0.2.1"),
        ("Tracestate", trace.as_str()),
    ];
    let (addr, request) = (w.addr, w.request("POST", &headers, &body.to_string()));
    let each = tokio::task::spawn_blocking(move || {
        let some = |count: usize| (0..count).map(|_| open(addr, &request)).collect::<Vec<_>>();
        let first = some(FIRST);
        let before = resident_kb();
        let streams = some(STREAMS);
        let each = (resident_kb() - before) / STREAMS;
        drop((first, streams));
        each
    });
    let each = each.await.unwrap();
    assert!(each < MOST_KB, "{each} kB");
}
