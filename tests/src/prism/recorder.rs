//! A listener between the gateway and the validator, which passes everything on and keeps both sides of it.

use crate::http::{self, Connection, Reply};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long the validator may take to judge a request.
const PATIENCE: Duration = Duration::from_secs(20);
/// The largest body of a request, in bytes.
const MAX_BODY: usize = 8 << 20;

/// A request as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) verb: String,
    /// Path and query.
    pub(super) target: String,
    /// Names as they were written.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// The first header of a name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Sends it.
    pub(super) fn send(&self, to: SocketAddr) -> Result<Reply> {
        let host = to.to_string();
        let about = ["host", "connection", "content-length", "transfer-encoding"];
        let mut headers: Vec<(&str, &str)> = vec![("Host", &host), ("Connection", "close")];
        let others = self.headers.iter().filter(|(n, _)| !about.contains(&n.to_ascii_lowercase().as_str()));
        headers.extend(others.map(|(n, v)| (n.as_str(), v.as_str())));
        let length = self.body.len().to_string();
        if !self.body.is_empty() || self.verb != "GET" {
            headers.push(("Content-Length", &length));
        }
        let bytes = http::request(&self.verb, &self.target, &headers, &self.body);
        Ok(Connection::open(to, PATIENCE)?.exchange(&bytes)?)
    }

    /// For messages: its first line, and the beginning of its body.
    pub(super) fn brief(&self) -> String {
        let body: String = String::from_utf8_lossy(&self.body).chars().take(600).collect();
        let kind = self.header("content-type").unwrap_or("no content type");
        let target: String = self.target.chars().take(600).collect();
        format!("{} {target} [{kind}] {body}", self.verb)
    }
}

/// A request, and what the validator said of it.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) request: Request,
    pub(super) reply: Reply,
}

/// Listens until it is dropped.
pub(super) struct Recorder {
    pub(super) addr: SocketAddr,
    seen: Arc<Mutex<Vec<Exchange>>>,
    to: Arc<Mutex<Option<SocketAddr>>>,
    ended: Arc<AtomicBool>,
}

impl Recorder {
    pub(super) fn start() -> Result<Recorder> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let recorder = Recorder { addr, seen: Arc::default(), to: Arc::default(), ended: Arc::default() };
        let (seen, to, ended) = (recorder.seen.clone(), recorder.to.clone(), recorder.ended.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                let (seen, to) = (seen.clone(), to.clone());
                // A connection that breaks here is an answer that is lost there, which the call then says.
                thread::spawn(move || serve(stream, &to, &seen));
            }
        });
        Ok(recorder)
    }

    /// Where requests are passed on to from now on.
    pub(super) fn pass_to(&self, to: SocketAddr) {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
    }

    /// What was passed on since this was asked last.
    pub(super) fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the one that accepts.
        let _ = TcpStream::connect_timeout(&self.addr, Duration::from_secs(1));
    }
}

fn serve(stream: TcpStream, to: &Mutex<Option<SocketAddr>>, seen: &Mutex<Vec<Exchange>>) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = read(&mut BufReader::new(stream.try_clone()?))?;
    let to = to.lock().unwrap_or_else(PoisonError::into_inner).context("nobody judges yet")?;
    let reply = request.send(to)?;
    let mut head = format!("HTTP/1.1 {} Judged\r\nConnection: close\r\n", reply.status);
    if let Some(kind) = reply.header("content-type") {
        head.push_str(&format!("Content-Type: {kind}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", reply.body.len()));
    let whole = [head.as_bytes(), &reply.body].concat();
    // Who is called next looks at what is kept: first keep, then answer.
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(Exchange { request, reply });
    let mut stream = stream;
    stream.write_all(&whole)?;
    Ok(stream.shutdown(std::net::Shutdown::Write)?)
}

fn read(from: &mut BufReader<TcpStream>) -> Result<Request> {
    let mut line = || -> Result<String> {
        let mut line = String::new();
        ensure!(from.by_ref().take(256 << 10).read_line(&mut line)? > 0, "the head has no end");
        Ok(line.trim_end().to_owned())
    };
    let first = line()?;
    let mut parts = first.split(' ');
    let mut request = Request {
        verb: parts.next().unwrap_or_default().to_owned(),
        target: parts.next().context("no target")?.to_owned(),
        ..Request::default()
    };
    loop {
        let line = line()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').context("a header without a colon")?;
        request.headers.push((name.to_owned(), value.trim().to_owned()));
    }
    if request.header("transfer-encoding").is_some() {
        bail!("a request in chunks");
    }
    let length: usize = request.header("content-length").unwrap_or("0").parse()?;
    ensure!(length <= MAX_BODY, "a body that is too large");
    request.body = vec![0; length];
    from.read_exact(&mut request.body)?;
    Ok(request)
}
