//! A proxy between client and gateway that breaks one exchange in a way that is ordered: what stands between two
//! machines in real life, on loopback.
//!
//! Each request goes to the gateway on a connection of its own, byte by byte but for its `Connection` and `Host`; what
//! is not ordered to break is passed on as it comes, streams included. A client that leaves is gone for the gateway
//! too.

use crate::http::{self, Connection};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the gateway may take to answer a request that is to break.
const PATIENCE: Duration = Duration::from_secs(20);
/// The largest body of a request, in bytes.
const MAX_BODY: usize = 8 << 20;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is lost before a header came.
    CutBeforeHeaders,
    /// It is lost in the middle of a JSON body.
    CutInBody,
    /// An event stream ends in good order without the response.
    StreamWithoutResponse,
    /// An event stream with `id:` lines is lost.
    StreamWithIdsCut,
    /// 500 with a JSON-RPC error.
    ServerError,
    /// 503 with `Retry-After`.
    Unavailable,
    /// 429 with `Retry-After`.
    TooMany,
    /// 502 with a page for people.
    BadGateway,
    /// 202, as if the request were a notification.
    Accepted,
    /// The answer comes later than any client waits here.
    Late,
    /// The response has no `resultType`.
    NoResultType,
}

impl Fault {
    /// All.
    pub const ALL: [Fault; 11] = [
        Fault::CutBeforeHeaders,
        Fault::CutInBody,
        Fault::StreamWithoutResponse,
        Fault::StreamWithIdsCut,
        Fault::ServerError,
        Fault::Unavailable,
        Fault::TooMany,
        Fault::BadGateway,
        Fault::Accepted,
        Fault::Late,
        Fault::NoResultType,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fault::CutBeforeHeaders => "cut_before_headers",
            Fault::CutInBody => "cut_in_body",
            Fault::StreamWithoutResponse => "stream_without_response",
            Fault::StreamWithIdsCut => "stream_with_ids_cut",
            Fault::ServerError => "500",
            Fault::Unavailable => "503",
            Fault::TooMany => "429",
            Fault::BadGateway => "502_html",
            Fault::Accepted => "202",
            Fault::Late => "late",
            Fault::NoResultType => "no_result_type",
        }
    }
}

/// Whether the request that breaks came to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It did, and was answered; only then does it break.
    Answered,
    /// It never did.
    Never,
}

impl Reach {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reach::Answered => "answered",
            Reach::Never => "never_reached",
        }
    }
}

/// What is to break next.
#[derive(Clone, Debug)]
struct Rule {
    /// The JSON-RPC method.
    method: &'static str,
    fault: Fault,
    reach: Reach,
    /// Released when the fault is over: an answer that is late is held until then.
    until: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    /// Faults that have happened.
    broken: usize,
    /// The requests that came, by HTTP method and JSON-RPC method.
    requests: Vec<String>,
    /// What held answers wait for.
    held: Vec<Arc<AtomicBool>>,
}

#[derive(Clone, Default)]
struct Shared(Arc<(Mutex<State>, Condvar)>);

impl Shared {
    fn with<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        let done = what(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.1.notify_all();
        done
    }
}

/// A proxy that runs until it is dropped.
pub struct Proxy {
    addr: SocketAddr,
    shared: Shared,
    ended: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts one before an address.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(to: SocketAddr) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let (shared, ended) = (Shared::default(), Arc::new(AtomicBool::new(false)));
        let (theirs, over) = (shared.clone(), ended.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let shared = theirs.clone();
                // A connection that breaks, breaks for its client.
                thread::spawn(move || serve(stream, to, &shared));
            }
        });
        Ok(Proxy { addr, shared, ended })
    }

    /// The endpoint that clients are given.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    /// The next request of a JSON-RPC method breaks.
    pub fn rule(&self, method: &'static str, fault: Fault, reach: Reach) {
        let until = Arc::new(AtomicBool::new(false));
        self.shared.with(|s| {
            s.held.push(until.clone());
            s.rules.push(Rule { method, fault, reach, until });
            s.requests.clear();
        });
    }

    /// Waits until so many faults have happened since the start.
    ///
    /// # Errors
    /// They did not.
    pub fn broken(&self, count: usize) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        let (lock, changed) = &*self.shared.0;
        let mut state = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while state.broken < count {
            let left = until.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "the fault never happened; the requests: {:?}", state.requests);
            state = changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Forgets which requests came.
    pub fn forget(&self) {
        self.shared.with(|s| s.requests.clear());
    }

    /// The requests since the last rule: `POST tools/call`, `GET`, ….
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.shared.with(|s| s.requests.clone())
    }

    /// Lets go of answers that are held, and drops rules that were not used.
    pub fn clear(&self) {
        self.shared.with(|s| {
            s.held.drain(..).for_each(|h| h.store(true, Ordering::SeqCst));
            s.rules.clear();
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.clear();
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the one that accepts.
        let _ = TcpStream::connect_timeout(&self.addr, Duration::from_secs(1));
    }
}

/// A request as it came.
struct Request {
    method: String,
    /// The whole, for the gateway: with its own `Host`, and an end after the answer.
    bytes: Vec<u8>,
    /// The JSON-RPC message; null if there is none.
    message: Value,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn read(from: &mut BufReader<TcpStream>, to: SocketAddr) -> io::Result<Option<Request>> {
    let mut first = String::new();
    if from.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let method = first.split(' ').next().unwrap_or_default().to_owned();
    let mut head = format!("{}\r\nHost: {to}\r\nConnection: close\r\n", first.trim_end());
    let mut length = 0;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Err(bad("a head without an end"));
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| bad("a header"))?;
        match name.to_ascii_lowercase().as_str() {
            "host" | "connection" | "keep-alive" => continue,
            "transfer-encoding" => return Err(bad("a request in chunks")),
            "content-length" => length = value.trim().parse().map_err(|_| bad("content-length"))?,
            _ => {}
        }
        head.push_str(&format!("{line}\r\n"));
    }
    if length > MAX_BODY {
        return Err(bad("a body that is too large"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    head.push_str("\r\n");
    let message = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(Request { method, bytes: [head.as_bytes(), &body].concat(), message }))
}

/// One request of one connection: the client is told that it ends, so that its next one has another.
fn serve(client: TcpStream, to: SocketAddr, shared: &Shared) {
    let _ = client.set_nodelay(true);
    let Ok(clone) = client.try_clone() else { return };
    let Ok(Some(request)) = read(&mut BufReader::new(clone), to) else { return };
    let called = request.message["method"].as_str().unwrap_or_default().to_owned();
    let rule = shared.with(|s| {
        s.requests.push(format!("{} {called}", request.method).trim_end().to_owned());
        let at = s.rules.iter().position(|r| r.method == called);
        at.map(|at| s.rules.remove(at))
    });
    let Some(rule) = rule else {
        let _ = pass(&client, to, &request);
        return;
    };
    let answer = match rule.reach {
        Reach::Never => None,
        Reach::Answered => http::once(to, PATIENCE, &request.bytes).ok(),
    };
    let message = answer.map(|a| a.message());
    let _ = breaks(&client, &request, message, &rule, shared);
}

/// Passes an exchange on.
fn pass(client: &TcpStream, to: SocketAddr, request: &Request) -> io::Result<()> {
    let mut gateway = TcpStream::connect(to)?;
    gateway.set_nodelay(true)?;
    gateway.write_all(&request.bytes)?;
    let (mut theirs, leaving) = (client.try_clone()?, gateway.try_clone()?);
    thread::spawn(move || {
        // Nothing more comes from a client that waits: an end means that it is gone.
        let mut rest = [0; 1024];
        while matches!(theirs.read(&mut rest), Ok(n) if n > 0) {}
        let _ = leaving.shutdown(Shutdown::Both);
    });
    let mut client = client;
    let mut some = vec![0; 64 << 10];
    loop {
        match gateway.read(&mut some)? {
            0 => break,
            n => client.write_all(&some[..n])?,
        }
    }
    client.shutdown(Shutdown::Both)
}

fn reply(status: &str, kind: &str, more: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n{body}",
        body.len()
    )
}

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// What the client sees instead. `answer` is the gateway's message, if it was asked.
fn breaks(
    mut client: &TcpStream,
    request: &Request,
    answer: Option<String>,
    rule: &Rule,
    shared: &Shared,
) -> io::Result<()> {
    const JSON: &str = "application/json";
    let id = &request.message["id"];
    let error =
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": "broken on purpose" } });
    let real = answer.unwrap_or_else(|| {
        json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": "it never ran" }] } })
            .to_string()
    });
    // What was promised has happened before the client can know of it.
    shared.with(|s| s.broken += 1);
    let text = match rule.fault {
        Fault::CutBeforeHeaders => String::new(),
        Fault::CutInBody => {
            let whole = reply("200 OK", JSON, "", &real);
            let half = whole.len() - real.len() / 2;
            let half = (half..whole.len()).find(|at| whole.is_char_boundary(*at)).unwrap_or(half);
            whole.get(..half).unwrap_or_default().to_owned()
        }
        Fault::StreamWithoutResponse => {
            format!("{STREAM}{}{}", chunk(": nothing follows\n\n"), "0\r\n\r\n")
        }
        Fault::StreamWithIdsCut => {
            let note = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "on the way" } });
            format!(
                "{STREAM}{}{}",
                chunk("id: 1\nretry: 50\ndata: \n\n"),
                chunk(&format!("id: 2\nevent: message\ndata: {note}\n\n"))
            )
        }
        Fault::ServerError => reply("500 Internal Server Error", JSON, "", &error.to_string()),
        Fault::Unavailable => reply("503 Service Unavailable", JSON, "Retry-After: 1\r\n", ""),
        Fault::TooMany => reply("429 Too Many Requests", JSON, "Retry-After: 1\r\n", ""),
        Fault::BadGateway => {
            reply("502 Bad Gateway", "text/html", "", "<html><body><h1>502 Bad Gateway</h1></body></html>")
        }
        Fault::Accepted => reply("202 Accepted", JSON, "", ""),
        Fault::Late => {
            while !rule.until.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(10));
            }
            reply("200 OK", JSON, "", &real)
        }
        Fault::NoResultType => {
            let mut message: Value = serde_json::from_str(&real).map_err(|_| bad("the gateway's message"))?;
            if let Some(result) = message["result"].as_object_mut() {
                result.shift_remove("resultType");
            }
            reply("200 OK", JSON, "", &message.to_string())
        }
    };
    client.write_all(text.as_bytes())?;
    client.flush()?;
    client.shutdown(Shutdown::Both)
}

/// A check that the proxy is transparent where nothing is ordered.
///
/// # Errors
/// The gateway does not answer through it.
pub fn passes(proxy: &Proxy, path: &str) -> Result<u16> {
    let mut connection = Connection::open(proxy.addr, Duration::from_secs(5))?;
    let reply = connection.exchange(&http::request("GET", path, &[], b"")).context("through the proxy")?;
    Ok(reply.status)
}
