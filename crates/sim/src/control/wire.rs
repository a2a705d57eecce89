//! HTTP/1.1, as much as is needed of it: a request in, a reply out, and one request to the provider.

use serde_json::Value;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The largest head and the largest body that are read, in bytes.
const MAX_HEAD: u64 = 64 << 10;
const MAX_BODY: usize = 1 << 20;

/// A message's first line, its headers (names in lower case) and its body.
pub struct Message {
    /// The first line.
    pub first: String,
    headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Message {
    /// The first header of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Reads one with a `Content-Length`, or with no body.
    ///
    /// # Errors
    /// What the socket says; `UnexpectedEof` if it ends too soon; `InvalidData` if it is too large or no HTTP.
    pub fn read(stream: &TcpStream) -> io::Result<Message> {
        let mut reader = BufReader::new(stream);
        let mut head = reader.by_ref().take(MAX_HEAD);
        let mut line = || {
            let mut line = String::new();
            head.read_line(&mut line)?;
            let text = line.strip_suffix('\n').ok_or(ErrorKind::UnexpectedEof)?;
            Ok::<_, io::Error>(text.trim_end().to_owned())
        };
        let first = line()?;
        let mut headers = Vec::new();
        loop {
            let text = line()?;
            if text.is_empty() {
                break;
            }
            let (name, value) = text.split_once(':').ok_or(ErrorKind::InvalidData)?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut message = Message { first, headers, body: Vec::new() };
        let length = message.header("content-length").map_or(Ok(0), str::parse::<usize>);
        let length = length.ok().filter(|n| *n <= MAX_BODY).ok_or(ErrorKind::InvalidData)?;
        message.body.resize(length, 0);
        reader.read_exact(&mut message.body)?;
        Ok(message)
    }
}

/// Writes a reply and ends the connection.
///
/// # Errors
/// What the socket says.
pub fn reply(mut stream: &TcpStream, status: &str, body: &Value) -> io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())
}

/// Posts JSON to the provider: its status and its body.
///
/// # Errors
/// What the socket says, time-outs included: the request may have been carried out.
pub fn post(to: SocketAddr, path: &str, body: &Value, within: Duration) -> io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect_timeout(&to, within)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))?;
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())?;
    let answer = Message::read(&stream)?;
    let status = answer.first.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(ErrorKind::InvalidData)?;
    let body = serde_json::from_slice(&answer.body).map_err(|_| ErrorKind::InvalidData)?;
    Ok((status, body))
}
