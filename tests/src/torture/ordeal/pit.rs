//! Where requests to a provider go and no answer comes from. Every other one is passed on to the real provider, whose
//! answer is thrown away: it had its effect and nobody was told. The rest is lost on the way.

use crate::http::Connection;
use anyhow::Result;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How many requests are read at once.
const AT_ONCE: usize = 4;
/// How long one may take to come.
const WITHIN: Duration = Duration::from_secs(5);
/// The largest body that is read, in bytes.
const MAX_BODY: usize = 1 << 20;

#[derive(Default)]
struct Shared {
    closed: AtomicBool,
    taken: AtomicU64,
    passed_on: AtomicU64,
    held: Mutex<Vec<TcpStream>>,
}

/// See the module. Connections stay open until it is dropped.
pub struct Pit {
    addr: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Pit {
    /// Opens one at an address, before a provider.
    ///
    /// # Errors
    /// The address is taken.
    pub fn open(addr: SocketAddr, provider: SocketAddr) -> Result<Pit> {
        let listener = TcpListener::bind(addr)?;
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for _ in 0..AT_ONCE {
            let (listener, shared) = (listener.try_clone()?, shared.clone());
            threads.push(thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    if shared.closed.load(Ordering::Relaxed) {
                        break;
                    }
                    shared.swallow(stream, provider);
                }
            }));
        }
        Ok(Pit { addr, shared, threads })
    }

    /// Requests that came.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// Those that the provider got.
    #[must_use]
    pub fn passed_on(&self) -> u64 {
        self.shared.passed_on.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn swallow(&self, stream: TcpStream, provider: SocketAddr) {
        let Ok(request) = read(&stream) else { return };
        let n = self.taken.fetch_add(1, Ordering::Relaxed);
        // Who asks what became of a request is not answered either.
        if n.is_multiple_of(2) && !request.starts_with(b"GET ") {
            let sent = Connection::open(provider, WITHIN).and_then(|mut c| c.exchange(&request));
            self.passed_on.fetch_add(u64::from(sent.is_ok()), Ordering::Relaxed);
        }
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }
}

/// One request, head and body, as it came.
fn read(stream: &TcpStream) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(WITHIN))?;
    let mut reader = BufReader::new(stream);
    let (mut all, mut length) = (Vec::new(), 0);
    loop {
        let before = all.len();
        if (&mut reader).take(MAX_BODY as u64).read_until(b'\n', &mut all)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&all[before..]).trim().to_ascii_lowercase();
        if let Some(("content-length", value)) = line.split_once(':').map(|(n, v)| (n, v.trim())) {
            length = value.parse().unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length.min(MAX_BODY)];
    reader.read_exact(&mut body)?;
    all.extend(body);
    Ok(all)
}

impl Drop for Pit {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        for _ in &self.threads {
            // Somebody waits for a connection.
            let _ = TcpStream::connect_timeout(&self.addr, WITHIN);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
