//! A wire between a store and its server that can be cut, or made to swallow what comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const OPEN: u8 = 0;
/// What the server answers is lost.
const DEAF: u8 = 1;
/// Nothing passes either way, and nobody is told.
const CUT: u8 = 2;

pub struct Proxy {
    pub port: u16,
    mode: Arc<AtomicU8>,
    /// Connections made in an earlier round end.
    round: Arc<AtomicU64>,
}

impl Proxy {
    pub async fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let made = Proxy {
            port: listener.local_addr().unwrap().port(),
            mode: Arc::default(),
            round: Arc::default(),
        };
        let (mode, round) = (made.mode.clone(), made.round.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mode, round) = (mode.clone(), round.clone());
                tokio::spawn(async move {
                    if mode.load(Ordering::SeqCst) == CUT {
                        while mode.load(Ordering::SeqCst) == CUT {
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                        return;
                    }
                    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    let begun = round.load(Ordering::SeqCst);
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    let up = pump(from_client, to_server, mode.clone(), false);
                    let down = pump(from_server, to_client, mode.clone(), true);
                    let over = async {
                        while round.load(Ordering::SeqCst) == begun {
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    };
                    tokio::select! { () = up => {} () = down => {} () = over => {} }
                });
            }
        });
        made
    }

    /// Answers are lost from now on.
    pub fn deafen(&self) {
        self.mode.store(DEAF, Ordering::SeqCst);
    }
    /// Nothing passes from now on, and no end of a connection is seen.
    pub fn cut(&self) {
        self.mode.store(CUT, Ordering::SeqCst);
    }
    /// All connections end; new ones pass.
    pub fn reset(&self) {
        self.round.fetch_add(1, Ordering::SeqCst);
        self.mode.store(OPEN, Ordering::SeqCst);
    }
    /// All pass again, with what was held back.
    pub fn heal(&self) {
        self.mode.store(OPEN, Ordering::SeqCst);
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mode: Arc<AtomicU8>,
    down: bool,
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(n) = from.read(&mut bytes).await {
        if n == 0 {
            return;
        }
        while mode.load(Ordering::SeqCst) == CUT {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if down && mode.load(Ordering::SeqCst) == DEAF {
            continue;
        }
        if to.write_all(&bytes[..n]).await.is_err() {
            return;
        }
    }
}
