//! Against a real server.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use bus_nats::NatsBus;
use ledger::OperationId;
use ledger::bus::{Bus, Heard, Note};
use ledger::keys::Secret;
use ledger::store::Identity;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::time::timeout;

/// A server that runs.
struct Server(Child);

impl Server {
    fn start(port: u16) -> Server {
        let installed = std::env::var_os("COUNTERFOIL_BUILD_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../build"), PathBuf::from)
            .join("nats/usr/sbin/nats-server");
        let program = if installed.exists() { installed } else { PathBuf::from("nats-server") };
        let child = Command::new(program)
            .args(["--addr", "127.0.0.1", "--port", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server is missing: `cargo xtask install` brings it");
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn bus(port: u16, secret: u8) -> Arc<NatsBus> {
    let identity = Identity { name: "test".into(), secret: Secret([secret; 32]) };
    NatsBus::connect(&format!("nats://127.0.0.1:{port}"), &identity).await.unwrap()
}

fn note(body: &str) -> Note {
    Note { topic: "change".into(), body: body.into() }
}

/// The next that is no gap.
async fn next(heard: &mut Receiver<Heard>) -> Heard {
    loop {
        match timeout(Duration::from_secs(20), heard.recv()).await.expect("something is heard").unwrap() {
            Heard::Gap => {}
            other => return other,
        }
    }
}

/// Tells until it is heard: a connection takes a moment.
async fn until_heard(from: &NatsBus, to: &mut Receiver<Heard>, body: &str) {
    let wanted = Heard::Note(Arc::new(note(body)));
    for _ in 0..400 {
        from.tell(note(body));
        if let Ok(Ok(heard)) = timeout(Duration::from_millis(50), to.recv()).await
            && heard == wanted
        {
            // What was told more than once.
            while timeout(Duration::from_millis(200), to.recv()).await.is_ok() {}
            return;
        }
    }
    panic!("{body} is never heard");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_hear_each_other_and_nobody_else() {
    let port = free_port();
    let _server = Server::start(port);
    let (a, b, stranger) = (bus(port, 1).await, bus(port, 1).await, bus(port, 2).await);
    let (mut at_a, mut at_b, mut at_stranger) = (a.listen(), b.listen(), stranger.listen());
    until_heard(&a, &mut at_b, "there").await;
    until_heard(&b, &mut at_a, "here").await;
    while timeout(Duration::from_millis(100), at_b.recv()).await.is_ok() {}
    let ids: Vec<_> = (0..1000).map(OperationId).collect();
    ids.iter().for_each(|id| a.moved(*id));
    for id in &ids {
        assert_eq!(next(&mut at_b).await, Heard::Moved(*id));
    }
    a.tell(note("resource test://x"));
    assert_eq!(next(&mut at_b).await, Heard::Note(Arc::new(note("resource test://x"))));
    // Nobody hears itself, and another ledger hears nothing.
    while let Ok(heard) = timeout(Duration::from_millis(100), at_a.recv()).await {
        assert_eq!(heard.unwrap(), Heard::Gap);
    }
    while let Ok(heard) = timeout(Duration::from_millis(100), at_stranger.recv()).await {
        assert_eq!(heard.unwrap(), Heard::Gap);
    }
    // What is too long is not sent, and leaves a gap.
    a.tell(note(&"x".repeat(ledger::bus::MAX_BODY + 1)));
    let heard = timeout(Duration::from_secs(10), at_b.recv()).await.unwrap().unwrap();
    assert_eq!(heard, Heard::Gap);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_a_gap_for_everybody_and_is_made_again() {
    let port = free_port();
    // Nothing is there at first.
    let (a, b) = (bus(port, 1).await, bus(port, 1).await);
    let (mut at_a, mut at_b) = (a.listen(), b.listen());
    let server = Server::start(port);
    until_heard(&a, &mut at_b, "one").await;
    while timeout(Duration::from_millis(100), at_a.recv()).await.is_ok() {}
    drop(server);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let _server = Server::start(port);
    for heard in [&mut at_a, &mut at_b] {
        let first = timeout(Duration::from_secs(20), heard.recv()).await.expect("a gap is heard").unwrap();
        assert_eq!(first, Heard::Gap);
    }
    until_heard(&b, &mut at_a, "two").await;
}
