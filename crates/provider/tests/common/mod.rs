//! What several test files need.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use counterfoil_provider::{Format, Integration, Mode};
use ledger::EffectKey;

pub const KEY: &str = "0f1e2d3c-4b5a-8978-8695-a4b3c2d1e0f0";

pub fn key() -> EffectKey {
    serde_json::from_str(&format!("\"{KEY}\"")).unwrap()
}

/// An integration `p` on loopback: `head` before the methods, `methods` after.
pub fn integration(head: &str, methods: &str) -> Integration {
    parse(&format!("name = \"p\"\nbase_url = \"http://127.0.0.1:1/base/\"\n{head}\n{methods}")).unwrap()
}

pub fn parse(text: &str) -> Result<Integration, counterfoil_provider::ConfigError> {
    Integration::parse("p.toml", text, Format::Toml, Mode::Sandbox)
}

/// The HTTP request that a call would send.
pub fn request(i: &Integration, method: &str, args: &str) -> Result<http::Request<bytes::Bytes>, String> {
    let m = i.method(method).unwrap();
    let http = match m.effect() {
        counterfoil_provider::MethodEffect::Read => m.read_request(args).map_err(|e| e.to_string())?,
        counterfoil_provider::MethodEffect::Mutating => {
            let intent = m.intent(args, &m.recovery(None).unwrap()).map_err(|e| e.to_string())?;
            counterfoil_provider::HttpIntent::decode(&intent.body).unwrap()
        }
    };
    http.to_http(Some(&key()))
}

pub fn body(r: &http::Request<bytes::Bytes>) -> String {
    String::from_utf8(r.body().to_vec()).unwrap()
}

/// A server on loopback that answers each request, by what of it is read at once, with a status and JSON.
pub async fn server(mut answer: impl FnMut(&str) -> (u16, String) + Send + 'static) -> std::net::SocketAddr {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut some = vec![0; 16 << 10];
            let n = stream.read(&mut some).await.unwrap_or(0);
            let (status, body) = answer(&String::from_utf8_lossy(&some[..n]));
            let text = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(text.as_bytes()).await;
        }
    });
    at
}

/// What became of a send, in a word.
pub fn word(sent: &ledger::Sent) -> &'static str {
    use ledger::Sent;
    match sent {
        Sent::NotSent { .. } => "not sent",
        Sent::Applied(_) => "applied",
        Sent::Refused(_) => "refused",
        Sent::NotApplied { .. } => "not applied",
        Sent::Withheld { .. } => "withheld",
        Sent::Unknown { stored: true, .. } => "unknown, stored",
        Sent::Unknown { .. } => "unknown",
    }
}
