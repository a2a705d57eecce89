//! What the tests of what servers fall into share: messages of both eras, streams that listen, providers.

use crate::http::{self, Reply};
use crate::stand::{Project, Sandbox};
use crate::stream::Stream;
use crate::wire::{self, Call, Era, LEGACY, Members};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

/// How long anything is waited for.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// What a client takes.
pub const BOTH: &str = "application/json, text/event-stream";
/// The legacy era, in its newest revision.
pub const OLD: Era = Era::Legacy(Some(LEGACY));
/// Each era once.
pub const ERAS: [Era; 2] = [Era::Modern, OLD];

/// A request other than a call, in an era, with the id 1.
#[must_use]
pub fn request(addr: SocketAddr, era: Era, method: &str, params: &Value) -> Vec<u8> {
    if era == Era::Modern {
        let mut params = params.clone();
        let name = params["uri"].as_str().or(params["name"].as_str()).map(str::to_owned);
        params["_meta"] = wire::meta(&json!({}));
        return wire::post(addr, "1", method, name.as_deref(), &params, BOTH, &[]);
    }
    old(addr, &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string(), &[])
}

/// A message of the legacy era.
#[must_use]
pub fn old(addr: SocketAddr, body: &str, more: &[(&str, &str)]) -> Vec<u8> {
    any(addr, "POST", body, &[&[("MCP-Protocol-Version", LEGACY)], more].concat())
}

/// Any HTTP request that takes JSON and streams.
#[must_use]
pub fn any(addr: SocketAddr, verb: &str, body: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let host = addr.to_string();
    let mut headers = vec![("Host", host.as_str()), ("Accept", BOTH)];
    if verb == "POST" {
        headers.push(("Content-Type", "application/json"));
    }
    headers.extend_from_slice(more);
    http::request(verb, "/mcp", &headers, body.as_bytes())
}

/// Sends bytes on a connection of their own and reads the answer.
///
/// # Errors
/// What the socket says.
pub fn send(addr: SocketAddr, bytes: &[u8]) -> Result<Reply> {
    Ok(http::once(addr, TIMEOUT, bytes)?)
}

/// Calls a tool.
///
/// # Errors
/// What the socket says.
pub fn call(addr: SocketAddr, era: Era, tool: &str, arguments: Value) -> Result<Reply> {
    send(addr, &Call::new(tool, arguments).of(era).bytes(addr))
}

/// Opens the legacy stream beside requests.
///
/// # Errors
/// It does not open.
pub fn listen_old(addr: SocketAddr) -> Result<Stream> {
    let mut stream = Stream::open(addr, &any(addr, "GET", "", &[("MCP-Protocol-Version", LEGACY)]))?;
    stream.until(TIMEOUT, |s| s.body().starts_with(':'))?;
    ensure!(stream.status()? == 200, "{:?}", stream.head());
    Ok(stream)
}

/// Opens a modern stream of changes of the tools, and reads its acknowledgement.
///
/// # Errors
/// It does not open.
pub fn listen(addr: SocketAddr) -> Result<Stream> {
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let mut stream = Stream::open(addr, &request(addr, Era::Modern, "subscriptions/listen", &wanted))?;
    stream.until(TIMEOUT, |s| s.events().is_ok_and(|e| !e.is_empty()))?;
    let first = stream.events()?.swap_remove(0);
    ensure!(first["method"] == "notifications/subscriptions/acknowledged", "{first}");
    Ok(stream)
}

/// The line of an `initialize`, with the id 0.
#[must_use]
pub fn opening() -> String {
    let client = json!({ "name": "counterfoil-tests", "version": "1.0.0" });
    let params = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string()
}

/// The line of a call, in an era.
#[must_use]
pub fn line(era: Era, id: u64, tool: &str, arguments: &Value) -> String {
    let mut params = json!({ "name": tool, "arguments": arguments });
    if era == Era::Modern {
        params["_meta"] = wire::meta(&json!({}));
    }
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

/// SIGTERM, without waiting for what becomes of it.
///
/// # Errors
/// There is no such process.
pub fn terminate(pid: u32) -> Result<()> {
    let told = Command::new("kill").arg("-TERM").arg(pid.to_string()).status()?;
    ensure!(told.success(), "no process {pid}");
    Ok(())
}

/// A sandbox provider in a folder of its own.
pub struct Provider {
    /// It.
    pub sandbox: Sandbox,
    _dir: TempDir,
}

impl Provider {
    /// Starts it.
    ///
    /// # Errors
    /// It does not start.
    pub fn start() -> Result<Provider> {
        let dir = TempDir::with_prefix("counterfoil-test-")?;
        let sandbox = Sandbox::start(&dir.path().join("sandbox"), &dir.path().join("log"), "127.0.0.1:0")?;
        Ok(Provider { sandbox, _dir: dir })
    }
}

/// Puts further members into `[server]` of a project's configuration.
///
/// # Errors
/// There is no such file.
pub fn set_server(project: &Project, members: &str) -> Result<()> {
    let file = project.path().join("counterfoil.toml");
    let config = std::fs::read_to_string(&file)?;
    ensure!(config.contains("[server]\n"), "no [server]");
    Ok(std::fs::write(&file, config.replacen("[server]\n", &format!("[server]\n{members}"), 1))?)
}

/// A provider that answers every request with these bytes; says whenever it was asked. It lasts as long as the process.
///
/// # Errors
/// What the socket says.
pub fn canned(body: &'static str) -> Result<(SocketAddr, mpsc::Receiver<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let (asked, count) = mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            if answer(socket, body).is_ok() && asked.send(()).is_err() {
                return;
            }
        }
    });
    Ok((addr, count))
}

fn answer(socket: TcpStream, body: &str) -> Result<()> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(socket);
    let mut length = 0;
    loop {
        let mut head = String::new();
        ensure!(reader.read_line(&mut head)? > 0, "no request");
        if head == "\r\n" {
            break;
        }
        if let Some(value) = head.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
    let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    Ok(reader.get_mut().write_all(answer.as_bytes())?)
}

/// A member of the result, as it was written.
///
/// # Errors
/// There is no result, or no such member.
pub fn member(reply: &Reply, name: &str) -> Result<String> {
    let find = |text: &str, name: &str| {
        let all: Members = serde_json::from_str(text)?;
        let found = all.0.into_iter().find(|(n, _)| n == name).map(|(_, raw)| raw.get().to_owned());
        found.with_context(|| format!("no {name}: {text}"))
    };
    find(&find(&reply.message(), "result")?, name)
}
