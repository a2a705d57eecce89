//! The load: many connections, one request at a time on each, from one thread. Cheap on purpose (mio, no allocation per
//! request): it shares the machine with the server. An answer that is not what was asked for ends the run.

use crate::process::cpu;
use anyhow::{Context, Result, bail};
use memchr::memmem;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Stands in a request where each gets a text of its own, of the same length.
pub const UNIQUE: &str = "@@@@@@@@@@@@@@@@";
/// How long the last answers may take to come.
const DRAIN: Duration = Duration::from_secs(30);
/// The largest answer.
const MAX_ANSWER: usize = 64 << 10;

/// What is asked.
#[derive(Clone)]
pub struct Ask {
    bytes: Vec<u8>,
    unique: Vec<usize>,
    sign: Vec<u8>,
}

impl Ask {
    /// A request, with [`UNIQUE`] wherever something is its own; a good answer has status 200 and holds `sign`.
    #[must_use]
    pub fn new(bytes: Vec<u8>, sign: &str) -> Ask {
        let unique = memmem::find_iter(&bytes, UNIQUE).collect();
        Ask { bytes, unique, sign: sign.into() }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Answers a second, within the time.
    pub per_second: f64,
    /// CPU of the server for one request, in microseconds; 0 if it was not asked for.
    pub cpu_us: f64,
    /// Half of the answers came within, in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 came within, in milliseconds.
    pub p99_ms: f64,
}

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    sent: Instant,
    answer: Vec<u8>,
    got: usize,
    waits: bool,
}

/// Never the same twice on a machine whose clock goes forward.
fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if NEXT.load(Ordering::Relaxed) == 0 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let now = u64::try_from(now).unwrap_or(1);
        let _ = NEXT.compare_exchange(0, now << 8, Ordering::Relaxed, Ordering::Relaxed);
    }
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Connection {
    fn open(addr: SocketAddr, ask: &Ask) -> Result<Connection> {
        let stream = std::net::TcpStream::connect_timeout(&addr, Duration::from_secs(10))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream: TcpStream::from_std(stream),
            request: ask.bytes.clone(),
            sent: Instant::now(),
            answer: vec![0; MAX_ANSWER],
            got: 0,
            waits: false,
        })
    }

    fn send(&mut self, ask: &Ask) -> Result<()> {
        if !ask.unique.is_empty() {
            let own = format!("{:016x}", unique());
            for at in &ask.unique {
                self.request[*at..at + own.len()].copy_from_slice(own.as_bytes());
            }
        }
        (self.got, self.waits, self.sent) = (0, true, Instant::now());
        // Far below what a socket takes at once.
        let sent = self.stream.write(&self.request).context("a request can't be sent")?;
        if sent == self.request.len() { Ok(()) } else { bail!("a request was sent in part only") }
    }

    /// Reads what is there. Whether the answer is whole.
    fn read(&mut self) -> Result<bool> {
        loop {
            if self.got == self.answer.len() {
                bail!("an answer is too large");
            }
            match self.stream.read(&mut self.answer[self.got..]) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(n) => self.got += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e.into()),
            }
            if is_whole(&self.answer[..self.got])? {
                return Ok(true);
            }
        }
    }

    fn is_good(&self, ask: &Ask) -> bool {
        let answer = &self.answer[..self.got];
        answer.starts_with(b"HTTP/1.1 200") && memmem::find(answer, &ask.sign).is_some()
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").skip(1).find_map(|line| {
        let (n, value) = line.split_once(':')?;
        n.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn is_whole(answer: &[u8]) -> Result<bool> {
    let Some(end) = memmem::find(answer, b"\r\n\r\n") else { return Ok(false) };
    let head = std::str::from_utf8(&answer[..end]).context("a head that is not text")?;
    let body = &answer[end + 4..];
    if let Some(length) = header(head, "content-length") {
        return Ok(body.len() >= length.parse().context("content-length")?);
    }
    match header(head, "transfer-encoding") {
        // JSON text does not end like this, so no chunk can.
        Some(coding) if coding.eq_ignore_ascii_case("chunked") => Ok(body.ends_with(b"0\r\n\r\n")),
        _ => bail!("an answer that does not say how long it is"),
    }
}

/// One request and its answer's body, to see that it works before it is measured.
///
/// # Errors
/// It doesn't; holds what came instead.
pub fn try_one(addr: SocketAddr, ask: &Ask) -> Result<Vec<u8>> {
    let mut bytes = ask.bytes.clone();
    let own = format!("{:016x}", unique());
    for at in &ask.unique {
        bytes[*at..at + own.len()].copy_from_slice(own.as_bytes());
    }
    let reply = counterfoil_tests::http::once(addr, Duration::from_secs(10), &bytes)?;
    if reply.status == 200 && memmem::find(&reply.body, &ask.sign).is_some() {
        Ok(reply.body)
    } else {
        bail!("not what was asked for: HTTP {}: {}", reply.status, reply.text())
    }
}

/// Asks for a time, over a number of connections; `pid` is the process whose CPU is counted.
///
/// # Errors
/// A connection broke, or an answer was not what was asked for.
pub fn run(
    addr: SocketAddr,
    pid: Option<u32>,
    ask: &Ask,
    connections: usize,
    lasting: Duration,
) -> Result<Outcome> {
    run_over(&[(addr, ask.clone())], pid.as_slice(), connections, lasting)
}

/// Asks several servers for a time, over a number of connections, which are dealt out among them in turn; the CPU of all
/// of `pids` is counted.
///
/// # Errors
/// As [`run`].
pub fn run_over(
    servers: &[(SocketAddr, Ask)],
    pids: &[u32],
    connections: usize,
    lasting: Duration,
) -> Result<Outcome> {
    let of = |n: usize| &servers[n % servers.len()];
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut all =
        (0..connections).map(|n| Connection::open(of(n).0, &of(n).1)).collect::<Result<Vec<_>>>()?;
    for (n, connection) in all.iter_mut().enumerate() {
        poll.registry().register(&mut connection.stream, Token(n), Interest::READABLE)?;
    }
    let used = || pids.iter().map(|pid| cpu(*pid)).sum::<Result<Duration>>();
    let (before, began) = (used()?, Instant::now());
    let end = began + lasting;
    let mut took: Vec<u32> = Vec::with_capacity(1 << 20);
    let mut late = 0_usize;
    for (n, connection) in all.iter_mut().enumerate() {
        connection.send(&of(n).1)?;
    }
    let mut waiting = connections;
    while waiting > 0 {
        poll.poll(&mut events, Some(Duration::from_millis(100)))?;
        for n in events.iter().map(Event::token) {
            let (connection, ask) = (&mut all[n.0], &of(n.0).1);
            if !connection.waits || !connection.read()? {
                continue;
            }
            if !connection.is_good(ask) {
                let answer = String::from_utf8_lossy(&connection.answer[..connection.got]).into_owned();
                bail!("not what was asked for: {answer}");
            }
            let now = Instant::now();
            if now < end {
                let us = now.duration_since(connection.sent).as_micros();
                took.push(u32::try_from(us).unwrap_or(u32::MAX));
                connection.send(ask)?;
            } else {
                late += 1;
                connection.waits = false;
                waiting -= 1;
            }
        }
        if Instant::now() > end + DRAIN {
            bail!("{waiting} answers did not come within {DRAIN:?}");
        }
    }
    let cpu = used()?.saturating_sub(before);
    let per_second = took.len() as f64 / lasting.as_secs_f64();
    let cpu_us = cpu.as_secs_f64() * 1e6 / (took.len() + late).max(1) as f64;
    took.sort_unstable();
    let at = |part: f64| {
        let n = ((took.len() as f64 * part) as usize).min(took.len().saturating_sub(1));
        took.get(n).map_or(0.0, |us| f64::from(*us) / 1e3)
    };
    Ok(Outcome { per_second, cpu_us, p50_ms: at(0.5), p99_ms: at(0.99) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answer_is_whole_when_all_of_it_is_there() {
        for (text, whole) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", false),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", true),
        ] {
            assert_eq!(is_whole(text.as_bytes()).unwrap(), whole, "{text}");
        }
        assert!(is_whole(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn each_request_has_a_text_of_its_own() {
        assert_ne!(unique(), unique());
        let ask = Ask::new(format!("a{UNIQUE}b{UNIQUE}").into_bytes(), "x");
        assert_eq!(ask.unique, [1, 18]);
    }
}
