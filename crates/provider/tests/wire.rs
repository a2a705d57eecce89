//! Connections to a provider: which are kept, which are not used again, and what is read on them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{key, parse};
use counterfoil_provider::{ConfigCredentials, HttpExecutor, Integration};
use ledger::{Executor, Intent, Millis, Sent, Strategy};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A provider that answers every request with the same pieces, a moment apart.
struct Provider {
    base: String,
    connections: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    async fn start(pieces: Vec<String>, closes: bool) -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (connections, heads) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (count, seen) = (connections.clone(), heads.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (pieces, seen) = (pieces.clone(), seen.clone());
                tokio::spawn(async move {
                    let mut all = Vec::new();
                    let mut buffer = [0; 4096];
                    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                        all.extend_from_slice(&buffer[..n]);
                        // Every body is `{}`.
                        while let Some(end) = all.windows(6).position(|w| w == b"\r\n\r\n{}") {
                            let head = all.drain(..end + 6).collect::<Vec<_>>();
                            seen.lock().unwrap().push(String::from_utf8(head).unwrap());
                            for piece in &pieces {
                                stream.write_all(piece.as_bytes()).await.unwrap();
                                tokio::time::sleep(Duration::from_millis(20)).await;
                            }
                            if closes {
                                return;
                            }
                        }
                    }
                });
            }
        });
        Provider { base, connections, heads }
    }

    fn integration(&self, rest: &str) -> Integration {
        let base = &self.base;
        parse(&format!(
            "name = \"p\"\nbase_url = \"{base}\"\npreset = \"stripe\"\n[methods.m]\nhttp = \"POST /m/n\"\n{rest}"
        ))
        .unwrap()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn executor(i: &Integration) -> HttpExecutor {
    HttpExecutor::new(Arc::new(ConfigCredentials::load_with(std::slice::from_ref(i), |_| None).unwrap()))
}

fn intent(i: &Integration, strategy: Strategy) -> Intent {
    let m = i.method("m").unwrap();
    m.intent("{}", &m.recovery(Some(strategy)).unwrap()).unwrap()
}

async fn send(x: &HttpExecutor, intent: &Intent) -> Sent {
    x.send(intent, &key(), false, Millis(2000)).await
}

fn whole(body: &str) -> Vec<String> {
    vec![format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())]
}

#[tokio::test]
async fn a_connection_is_kept_only_where_a_second_send_is_safe() {
    for (strategy, connections) in [(Strategy::Key, 1), (Strategy::Confirm, 5)] {
        let provider = Provider::start(whole("{}"), false).await;
        let i = provider.integration("");
        let (x, intent) = (executor(&i), intent(&i, strategy));
        for _ in 0..5 {
            assert!(matches!(send(&x, &intent).await, Sent::Applied(_)));
        }
        assert_eq!(provider.connections(), connections, "{strategy:?}");
    }
}

#[tokio::test]
async fn as_many_are_kept_as_were_needed_at_once() {
    let provider = Provider::start(whole("{}"), false).await;
    let i = provider.integration("");
    let (x, intent) = (executor(&i), intent(&i, Strategy::Key));
    for _ in 0..3 {
        let all: Vec<_> = (0..40)
            .map(|_| {
                let (x, intent) = (x.clone(), intent.clone());
                tokio::spawn(async move { send(&x, &intent).await })
            })
            .collect();
        for one in all {
            assert!(matches!(one.await.unwrap(), Sent::Applied(_)));
        }
    }
    assert_eq!(provider.heads.lock().unwrap().len(), 120);
    assert!(provider.connections() <= 40, "{} connections", provider.connections());
}

#[tokio::test]
async fn one_that_was_closed_meanwhile_is_noticed_before_it_is_used() {
    let provider = Provider::start(whole("{}"), true).await;
    let i = provider.integration("");
    let (x, intent) = (executor(&i), intent(&i, Strategy::Key));
    for n in 1..=5 {
        assert!(matches!(send(&x, &intent).await, Sent::Applied(_)));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(provider.connections(), n);
    }
}

#[tokio::test]
async fn a_request_names_its_host_and_asks_for_a_path() {
    let provider = Provider::start(whole("{}"), false).await;
    let i = provider.integration("");
    assert!(matches!(send(&executor(&i), &intent(&i, Strategy::Key)).await, Sent::Applied(_)));
    let head = provider.heads.lock().unwrap()[0].to_lowercase();
    assert!(head.starts_with("post /m/n http/1.1\r\n"), "{head}");
    let host = provider.base.trim_start_matches("http://");
    assert_eq!(head.matches("\r\nhost: ").count(), 1, "{head}");
    assert!(head.contains(&format!("\r\nhost: {host}\r\n")), "{head}");
}

#[tokio::test]
async fn a_body_may_come_in_pieces_up_to_the_cap() {
    let pieces = |count: usize| {
        let mut all = vec!["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned()];
        all.push("1\r\n\"\r\n".into());
        all.extend((0..count).map(|_| format!("400\r\n{}\r\n", "x".repeat(1024))));
        all.push("1\r\n\"\r\n0\r\n\r\n".into());
        all
    };
    for (count, fits) in [(3, true), (5, false)] {
        let provider = Provider::start(pieces(count), false).await;
        let i = provider.integration("max_response = \"4KiB\"");
        let (x, intent) = (executor(&i), intent(&i, Strategy::Key));
        for n in 1..=2 {
            match send(&x, &intent).await {
                Sent::Applied(receipt) => {
                    assert!(fits, "{count} pieces");
                    assert!(receipt.0.len() > count * 1024);
                    assert_eq!(provider.connections(), 1);
                }
                Sent::Unknown { why, .. } => {
                    assert!(!fits && why.contains("larger"), "{count} pieces: {why}");
                    // What was not read to its end is not used again.
                    assert_eq!(provider.connections(), n);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
