//! An answer that is read as it arrives: what is there already, and when it came.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A request whose answer is on its way.
pub struct Stream {
    socket: TcpStream,
    asked: Instant,
    raw: Vec<u8>,
    ended: bool,
}

impl Stream {
    /// Sends a request on a connection of its own.
    ///
    /// # Errors
    /// What the socket says.
    pub fn open(addr: SocketAddr, request: &[u8]) -> Result<Stream> {
        let mut socket = TcpStream::connect_timeout(&addr, Duration::from_secs(10))?;
        socket.set_nodelay(true)?;
        let asked = Instant::now();
        socket.write_all(request)?;
        Ok(Stream { socket, asked, raw: Vec::new(), ended: false })
    }

    /// Reads until the answer so far is as wanted; says how long after the request that was.
    ///
    /// # Errors
    /// It did not become so in time, or the connection ended before.
    pub fn until(&mut self, within: Duration, wanted: impl Fn(&Stream) -> bool) -> Result<Duration> {
        let until = Instant::now() + within;
        loop {
            if wanted(self) {
                return Ok(self.asked.elapsed());
            }
            if self.ended {
                bail!("the connection ended:\n{}", String::from_utf8_lossy(&self.raw));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("not within {within:?}:\n{}", String::from_utf8_lossy(&self.raw));
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut piece = [0; 16 << 10];
            match self.socket.read(&mut piece) {
                Ok(0) => self.ended = true,
                Ok(n) => self.raw.extend_from_slice(&piece[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Reads the whole answer.
    ///
    /// # Errors
    /// As [`Stream::until`].
    pub fn whole(&mut self, within: Duration) -> Result<Duration> {
        self.until(within, Stream::is_whole)
    }

    /// The status line and headers, if they are there.
    #[must_use]
    pub fn head(&self) -> Option<String> {
        let end = self.raw.windows(4).position(|w| w == b"\r\n\r\n")?;
        Some(String::from_utf8_lossy(&self.raw[..end]).into_owned())
    }

    /// The status.
    ///
    /// # Errors
    /// There is none yet.
    pub fn status(&self) -> Result<u16> {
        let head = self.head().context("no head")?;
        Ok(head.get(9..12).unwrap_or_default().parse()?)
    }

    /// A header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let head = self.head()?;
        let mut headers = head.lines().filter_map(|l| l.split_once(':'));
        headers.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim().to_owned())
    }

    /// The body as far as it is there, and whether that is all.
    fn body_and_end(&self) -> (Vec<u8>, bool) {
        let Some(start) = self.raw.windows(4).position(|w| w == b"\r\n\r\n") else {
            return (Vec::new(), false);
        };
        let mut rest = &self.raw[start + 4..];
        if let Some(length) = self.header("content-length").and_then(|v| v.parse::<usize>().ok()) {
            return (rest[..rest.len().min(length)].to_vec(), rest.len() >= length);
        }
        let mut body = Vec::new();
        loop {
            let Some(line) = rest.windows(2).position(|w| w == b"\r\n") else { return (body, false) };
            let size =
                std::str::from_utf8(&rest[..line]).ok().and_then(|s| usize::from_str_radix(s, 16).ok());
            let Some(size) = size else { return (body, false) };
            if size == 0 {
                return (body, true);
            }
            let data = &rest[line + 2..];
            body.extend_from_slice(&data[..data.len().min(size)]);
            if data.len() < size + 2 {
                return (body, false);
            }
            rest = &data[size + 2..];
        }
    }

    /// The body as far as it is there.
    #[must_use]
    pub fn body(&self) -> String {
        String::from_utf8_lossy(&self.body_and_end().0).into_owned()
    }

    /// Whether the answer is there to its end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.body_and_end().1
    }

    /// The messages of an event stream, whose lines must all be of the kinds that are promised: data, comments, blank.
    ///
    /// # Errors
    /// Another line, such as one with an event id; or data that is no JSON.
    pub fn events(&self) -> Result<Vec<Value>> {
        let body = self.body();
        let whole = body.rfind("\n\n").map_or("", |end| &body[..end]);
        let mut events = Vec::new();
        for line in whole.lines() {
            match line.strip_prefix("data:") {
                Some(data) => events.push(serde_json::from_str(data).context("an event")?),
                None if line.is_empty() || line.starts_with(':') => {}
                None => bail!("a line of another kind: {line:?}"),
            }
        }
        Ok(events)
    }
}
