//! HTTP/1.1 by hand over a socket: a test sees every byte, and can stop in the middle.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The largest answer that is read, in bytes.
const MAX_BODY: usize = 64 << 20;

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers, names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body, decoded from chunks.
    pub body: Vec<u8>,
}

impl Reply {
    /// The first header of a name (lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The body as text; broken UTF-8 is shown as such.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; `null` if it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The JSON-RPC message that ends the answer: the body, or the last event of a stream.
    #[must_use]
    pub fn message(&self) -> String {
        let text = self.text();
        if !self.header("content-type").is_some_and(|t| t.starts_with("text/event-stream")) {
            return text;
        }
        // One event may have several data lines (HTML, "Server-sent events").
        let events = text.split("\n\n").filter_map(|event| {
            let data: Vec<&str> = event
                .lines()
                .filter_map(|l| l.strip_prefix("data:"))
                .map(|l| l.strip_prefix(' ').unwrap_or(l))
                .collect();
            (!data.is_empty()).then(|| data.join("\n"))
        });
        events.last().unwrap_or_default()
    }
}

/// A request's bytes, with `Host` and `Content-Length` unless given.
#[must_use]
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    let has = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if !has("host") {
        head.push_str("Host: 127.0.0.1\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !has("content-length") && (!body.is_empty() || method != "GET") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// A connection that is kept.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(addr: SocketAddr, timeout: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&addr, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// What the system says.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Reads up to `n` bytes, as a client that leaves in the middle.
    pub fn read_some(&mut self, n: usize) -> usize {
        let mut some = vec![0; n];
        self.0.read(&mut some).unwrap_or(0)
    }

    /// Reads one answer.
    ///
    /// # Errors
    /// `UnexpectedEof` if the connection ends before the answer does; `InvalidData` if it isn't HTTP.
    pub fn read(&mut self) -> io::Result<Reply> {
        let mut reply = self.head()?;
        while (100..200).contains(&reply.status) {
            reply = self.head()?;
        }
        let chunked = reply.header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
        let length =
            reply.header("content-length").map(|v| v.parse::<usize>().map_err(|_| bad("content-length")));
        reply.body = match length.transpose()? {
            _ if chunked => self.chunks()?,
            _ if matches!(reply.status, 204 | 304) => Vec::new(),
            Some(n) if n > MAX_BODY => return Err(bad("an answer that is too large")),
            Some(n) => self.exactly(n)?,
            None => {
                let mut all = Vec::new();
                self.0.by_ref().take(MAX_BODY as u64).read_to_end(&mut all)?;
                all
            }
        };
        Ok(reply)
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub fn exchange(&mut self, bytes: &[u8]) -> io::Result<Reply> {
        self.send(bytes)?;
        self.read()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.0.by_ref().take(64 << 10).read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn head(&mut self) -> io::Result<Reply> {
        let first = self.line()?;
        let status =
            first.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(|| bad("the status line"))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(Reply { status, headers, body: Vec::new() });
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad("a header"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    fn exactly(&mut self, n: usize) -> io::Result<Vec<u8>> {
        let mut body = vec![0; n];
        self.0.read_exact(&mut body)?;
        Ok(body)
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
                .map_err(|_| bad("a chunk's size"))?;
            if size > MAX_BODY - body.len() {
                return Err(bad("an answer that is too large"));
            }
            body.extend(self.exactly(size)?);
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not HTTP: {what}"))
}

/// One request on a connection of its own.
///
/// # Errors
/// As [`Connection::read`].
pub fn once(addr: SocketAddr, timeout: Duration, bytes: &[u8]) -> io::Result<Reply> {
    Connection::open(addr, timeout)?.exchange(bytes)
}

/// One JSON request (or a bodiless one, if `body` is `None`) and its answer.
///
/// # Errors
/// As [`Connection::read`].
pub fn json(
    addr: SocketAddr,
    method: &str,
    path: &str,
    body: Option<&serde_json::Value>,
) -> io::Result<Reply> {
    let text = body.map(ToString::to_string).unwrap_or_default();
    let headers: &[(&str, &str)] = if body.is_some() {
        &[("Content-Type", "application/json"), ("Connection", "close")]
    } else {
        &[("Connection", "close")]
    };
    once(addr, Duration::from_secs(10), &request(method, path, headers, text.as_bytes()))
}

/// A request, as a server in front of another one reads it.
pub struct Asked {
    /// Its lines, with the empty one.
    pub head: String,
    /// Its body, by its length.
    pub body: Vec<u8>,
}

impl Asked {
    /// The next one of a connection; nothing at its end.
    pub fn read(from: &mut impl BufRead) -> Option<Asked> {
        let mut asked = Asked { head: String::new(), body: Vec::new() };
        while !asked.head.ends_with("\r\n\r\n") {
            if from.read_line(&mut asked.head).ok()? == 0 {
                return None;
            }
        }
        let length = asked.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        asked.body = vec![0; length];
        from.read_exact(&mut asked.body).ok()?;
        Some(asked)
    }

    /// A header, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<String> {
        let line = self.head.lines().find(|l| l.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    }

    /// As it came.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head.as_bytes(), &self.body].concat()
    }
}
