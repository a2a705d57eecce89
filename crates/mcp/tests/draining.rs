//! Servers that stop while balancers call over connections that they keep: no request is lost. These balancers do what
//! nginx does: they send over a kept connection without looking whether it is about to be closed, connect where they have
//! none, go elsewhere where nobody listens, and send nothing twice.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
extern crate counterfoil_mcp as mcp;

mod common;
use common::{Server, call};
use mcp::server::ServeLimits;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

const SOON: Duration = Duration::from_secs(5);
/// How often a server is stopped; more by `COUNTERFOIL_DRAINS`.
const DRAINS: u64 = 8;
const BALANCERS: usize = 4;
/// Kept at first by each.
const KEPT: usize = 3;

/// One answer of `told`; an error says that the request was lost.
fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<String, String> {
    stream.write_all(request).map_err(|e| format!("not written: {e}"))?;
    let mut all = Vec::new();
    while !all.ends_with(b"}}}") {
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) => return Err(format!("closed after {} bytes", all.len())),
            Ok(n) => all.extend(&buffer[..n]),
            Err(e) => return Err(format!("{e} after {} bytes", all.len())),
        }
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

fn connect(addr: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(SOON))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Calls until nobody listens and nothing is kept; how many were answered.
fn balance(addr: SocketAddr, request: &[u8], pause: Duration, ready: &Semaphore) -> Result<u64, String> {
    let mut kept = Vec::new();
    for _ in 0..KEPT {
        let mut stream = connect(addr).map_err(|e| format!("the first: {e}"))?;
        exchange(&mut stream, request)?;
        kept.push(stream);
    }
    ready.add_permits(1);
    let mut answered = 0;
    let until = Instant::now() + SOON * 2;
    while Instant::now() < until {
        let mut stream = match kept.pop().map_or_else(|| connect(addr), Ok) {
            Ok(stream) => stream,
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => return Ok(answered),
            Err(e) => return Err(format!("neither served nor refused: {e}")),
        };
        let answer = exchange(&mut stream, request)?;
        if !answer.starts_with("HTTP/1.1 200") {
            return Err(answer);
        }
        answered += 1;
        if !answer.to_lowercase().contains("\r\nconnection: close\r\n") {
            kept.push(stream);
        }
        std::thread::sleep(pause);
    }
    Err("it was never refused".to_owned())
}

async fn drained(n: u64) -> (u64, Vec<String>) {
    let linger = Duration::from_secs(1);
    let server = Server::with(|_| {}, ServeLimits { linger, ..ServeLimits::default() }).await;
    let request: Arc<[u8]> = server.request(&call("told", "{}"), &[("Connection", None)]).into();
    let ready = Arc::new(Semaphore::new(0));
    let balancers: Vec<_> = (0..BALANCERS)
        .map(|which| {
            let (addr, request, ready) = (server.addr, request.clone(), ready.clone());
            // Some call all the time; others keep connections that they seldom use.
            let pause = Duration::from_millis(if which + 1 < BALANCERS { 0 } else { 15 });
            std::thread::spawn(move || balance(addr, &request, pause, &ready))
        })
        .collect();
    let all = u32::try_from(BALANCERS).unwrap();
    let _ = tokio::time::timeout(SOON, ready.acquire_many(all)).await.expect("they begin").unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    server.announced.cancel();
    tokio::time::sleep(Duration::from_millis(10 + n % 7)).await;
    server.shutdown.cancel();
    tokio::time::timeout(SOON * 2, server.served).await.expect("it ends").unwrap();
    let (mut answered, mut lost) = (0, Vec::new());
    for balancer in balancers {
        match tokio::task::spawn_blocking(|| balancer.join().unwrap()).await.unwrap() {
            Ok(so_many) => answered += so_many,
            Err(why) => lost.push(why),
        }
    }
    (answered, lost)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_while_a_server_stops() {
    let drains = std::env::var("COUNTERFOIL_DRAINS").ok().and_then(|n| n.parse().ok()).unwrap_or(DRAINS);
    let (mut answered, mut lost) = (0, Vec::new());
    for n in 0..drains {
        let (more, failed) = drained(n).await;
        answered += more;
        lost.extend(failed);
    }
    assert!(lost.is_empty(), "{} lost beside {answered} answered in {drains} drains: {lost:?}", lost.len());
    assert!(answered > drains * 20, "only {answered} calls");
    eprintln!("{answered} calls, none lost");
}

#[tokio::test]
async fn an_idle_connection_is_answered_until_the_last_and_holds_nothing_up_for_longer() {
    let linger = Duration::from_millis(600);
    let server = Server::with(|_| {}, ServeLimits { linger, ..ServeLimits::default() }).await;
    let request = server.request(&call("told", "{}"), &[("Connection", None)]);
    let addr = server.addr;
    let kept = |request: Vec<u8>| {
        tokio::task::spawn_blocking(move || {
            let mut stream = connect(addr).unwrap();
            exchange(&mut stream, &request).unwrap();
            stream
        })
    };
    let (mut used, mut idle) = (kept(request.clone()).await.unwrap(), kept(request.clone()).await.unwrap());
    server.announced.cancel();
    server.shutdown.cancel();
    let began = Instant::now();
    tokio::time::sleep(linger / 2).await;
    let late = tokio::task::spawn_blocking(move || {
        let refused = TcpStream::connect(addr).unwrap_err().kind();
        (refused, exchange(&mut used, &request).unwrap(), used.read(&mut [0; 8]).unwrap())
    });
    let (refused, answer, rest) = late.await.unwrap();
    assert_eq!((refused, rest), (ErrorKind::ConnectionRefused, 0));
    assert!(answer.to_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
    tokio::time::timeout(SOON, server.served).await.expect("it ends").unwrap();
    assert!(began.elapsed() >= linger, "the idle one had {:?}", began.elapsed());
    assert_eq!(idle.read(&mut [0; 8]).unwrap(), 0);
}
