//! A deliberately naive server: it forwards each call to the provider, without a key and without a memory, and says
//! that all went well if the provider hung up. The harness is run against it to see that it reports what it must:
//! a guard that never cries guards nothing.

use crate::http;
use crate::process::{Process, free_address};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

/// One that runs, as a process of its own so that it can die.
pub struct Naive {
    /// Its process.
    pub process: Process,
    /// Its address.
    pub addr: SocketAddr,
}

impl Naive {
    /// Starts this program again as the server.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(
        sandbox: SocketAddr,
        listen: Option<SocketAddr>,
        failpoint: Option<&str>,
        log: &Path,
    ) -> Result<Naive> {
        let listen = match listen {
            Some(listen) => listen,
            None => free_address()?,
        };
        let listen = listen.to_string();
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["naive", "--listen", &listen, "--sandbox", &sandbox.to_string()])
            .env_remove("COUNTERFOIL_FAILPOINT");
        if let Some(name) = failpoint {
            command.env("COUNTERFOIL_FAILPOINT", name);
        }
        let mut process = Process::start(&mut command, log)?;
        let addr = process.ready()?["listen"].as_str().context("the naive server's address")?.parse()?;
        Ok(Naive { process, addr })
    }
}

/// Serves until it is killed.
///
/// # Errors
/// The address can't be bound.
pub fn serve(listen: SocketAddr, sandbox: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen)?;
    println!("{}", json!({ "listen": listener.local_addr()?.to_string() }));
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            let _ = answer(stream, sandbox);
        });
    }
    Ok(())
}

fn answer(stream: TcpStream, sandbox: SocketAddr) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(("content-length", value)) =
            line.to_ascii_lowercase().trim().split_once(':').map(|(n, v)| (n, v.trim()))
        {
            length = value.parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let reply = match (request["method"].as_str(), request["params"]["name"].as_str()) {
        (Some("tools/call"), Some("key_refunds_create")) => {
            let text = refund(sandbox, &request["params"]["arguments"]);
            json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "resultType": "complete", "content": [{ "type": "text", "text": text }] } })
        }
        _ => {
            json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32601, "message": "not served" } })
        }
    };
    let reply = reply.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        reply.len()
    );
    reader.get_mut().write_all((head + &reply).as_bytes())
}

fn refund(sandbox: SocketAddr, arguments: &Value) -> String {
    let mut arguments = arguments.clone();
    if let Some(object) = arguments.as_object_mut() {
        object.shift_remove("idempotency_key");
    }
    pass("send.before");
    let sent = http::json(sandbox, "POST", "/v1/refunds", Some(&arguments));
    pass("send.after");
    sent.map_or_else(|_| "done, I suppose".into(), |reply| reply.text())
}

fn pass(name: &str) {
    if std::env::var("COUNTERFOIL_FAILPOINT").is_ok_and(|armed| armed == name) {
        std::process::abort();
    }
}
