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
