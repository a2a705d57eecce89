//! A raw HTTP client that sees every byte, and a sandbox in a temporary directory.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::{net::SocketAddr, path::Path, time::Duration};

use counterfoil_sandbox::{Config, Running, Sandbox, Tuning};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub struct Stand {
    pub dir: tempfile::TempDir,
    pub running: Option<Running>,
    pub addr: SocketAddr,
    pub tune: Tuning,
}

#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }
    pub fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
    pub fn id(&self) -> String {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()["id"].as_str().unwrap().to_owned()
    }
}

pub async fn start(dir: &Path, tune: Tuning) -> Running {
    let mut config = Config::new("127.0.0.1:0".parse().unwrap(), dir.join("data"));
    config.tune = tune;
    Sandbox::start(config).await.unwrap()
}

impl Stand {
    pub async fn new() -> Stand {
        Stand::tuned(Tuning::default()).await
    }

    pub async fn tuned(tune: Tuning) -> Stand {
        let dir = tempfile::tempdir().unwrap();
        let running = start(dir.path(), tune.clone()).await;
        Stand { dir, addr: running.addr(), running: Some(running), tune }
    }

    /// Drops the server where it stands, and starts another on the same directory.
    pub async fn restart(&mut self) {
        drop(self.running.take());
        let running = start(self.dir.path(), self.tune.clone()).await;
        self.addr = running.addr();
        self.running = Some(running);
    }

    /// All bytes that come back until the server closes.
    pub async fn raw(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        bytes
    }

    /// The same, or nothing if the server is not there any more.
    pub async fn try_exchange(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let mut stream = TcpStream::connect(self.addr).await.ok()?;
        stream.write_all(&request(method, path, headers, body)).await.ok()?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.ok()?;
        Some(bytes)
    }

    pub async fn exchange(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        self.raw(&request(method, path, headers, body)).await
    }

    pub async fn send(&self, method: &str, path: &str, key: Option<&str>, body: Value) -> Reply {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(key.map(|key| ("Idempotency-Key", key)));
        parse(&self.exchange(method, path, &headers, body.to_string().as_bytes()).await)
    }

    pub async fn post(&self, path: &str, key: Option<&str>, body: Value) -> Reply {
        self.send("POST", path, key, body).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        parse(&self.exchange("GET", path, &[], b"").await)
    }

    /// Arms a rule.
    pub async fn rule(&self, rule: Value) {
        let reply = self.post("/_sandbox/rules", None, rule).await;
        assert_eq!(reply.status, 200, "{}", reply.json());
    }

    pub async fn effects(&self, query: &str) -> Value {
        self.get(&format!("/_sandbox/effects?{query}")).await.json()
    }

    /// How many effects an object has had.
    pub async fn count(&self, object: &str) -> u64 {
        self.effects(&format!("object={object}")).await["total"].as_u64().unwrap()
    }
}

pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub fn parse(bytes: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(bytes);
    let at = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
    let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head, body: bytes[at + 4..].to_vec() }
}

pub fn refund(payment: &str, amount: u64) -> Value {
    json!({"payment": payment, "amount": amount})
}

pub async fn nap(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
