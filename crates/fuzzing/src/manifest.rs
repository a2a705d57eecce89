//! Integration manifests, and the requests that come of them.

use crate::input::parts;
use bytes::Bytes;
use ledger::EffectKey;
use provider::{ConfigError, Format, HttpIntent, Integration, Method, MethodEffect, Mode};
use std::collections::HashSet;

/// The effect key of all requests made here.
pub const KEY: &str = "0f1e2d3c-4b5a-8978-8695-a4b3c2d1e0f0";

/// The same, as the ledger has it.
pub fn effect_key() -> EffectKey {
    serde_json::from_str(&format!("\"{KEY}\"")).expect("an effect key")
}

/// The request that a call would send; `Err` if its arguments are refused.
pub fn request(method: &Method, args: &str) -> Result<http::Request<Bytes>, String> {
    let made = match method.effect() {
        MethodEffect::Read => method.read_request(args).map_err(|e| e.to_string())?,
        MethodEffect::Mutating => {
            let recovery = method.recovery(None).expect("a manifest that was taken can recover");
            let intent = method.intent(args, &recovery).map_err(|e| e.to_string())?;
            let again = method.intent(args, &recovery).expect("it was made before");
            assert_eq!(intent.body, again.body, "the same call is another request the second time");
            HttpIntent::decode(&intent.body).expect("what is recorded can be read")
        }
    };
    Ok(made.to_http(Some(&effect_key())).expect("what was made can be sent"))
}

/// A manifest is taken or refused with a place inside the file; whatever its methods send goes to its own address, below
/// its own path. Parts: a manifest (JSON if it begins with a brace), arguments.
///
/// # Panics
/// A promise is broken.
pub fn manifest(data: &[u8]) {
    let Ok(all) = std::str::from_utf8(data) else { return };
    let [text, args] = parts(all.as_bytes()).map(|p| std::str::from_utf8(p).unwrap_or_default());
    let format = if text.trim_start().starts_with('{') { Format::Json } else { Format::Toml };
    for mode in [Mode::Sandbox, Mode::Production] {
        match Integration::parse("m", text, format, mode) {
            Ok(integration) => taken(&integration, args),
            Err(error) => refused(&error, text),
        }
    }
}

fn refused(error: &ConfigError, text: &str) {
    assert_eq!(error.file, "m");
    assert!(!error.message.trim().is_empty(), "refused without words");
    let lines = text.bytes().filter(|b| *b == b'\n').count() + 1;
    if let Some(line) = error.line {
        assert!((1..=lines).contains(&line), "line {line} of {lines}: {error}");
    }
}

fn taken(integration: &Integration, args: &str) {
    let base = url::Url::parse(integration.base_url()).expect("a base URL is a URL");
    let host = base.host_str().expect("it has a host").to_owned();
    let local = host == "localhost"
        || host.ends_with(".localhost")
        || host == "[::1]"
        || host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback());
    assert!(
        base.scheme() == "https" || base.scheme() == "http" && local,
        "secrets would travel in the clear"
    );
    assert!(base.username().is_empty() && base.password().is_none());
    assert!(base.query().is_none() && base.fragment().is_none());
    let mut names = HashSet::new();
    for method in integration.methods() {
        let wire = method.wire_name();
        assert!((1..=64).contains(&wire.len()), "{wire:?}");
        assert!(wire.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'), "{wire:?}");
        assert!(method.canonical_id().starts_with(&format!("{}.", integration.name())));
        assert!(names.insert(wire), "two tools under one name");
        assert_eq!(method.input_schema()["type"], "object");
        let made = [args, "{}", r#"{"id":"../..","name":"a?b#c%2e"}"#].map(|args| request(method, args));
        for request in made.into_iter().flatten() {
            inside(&request, integration.base_url(), &base);
        }
    }
}

/// A request stays where its integration is: same scheme, host and port, below the same path, and no part of its path is
/// read as another by whoever normalises it.
fn inside(request: &http::Request<Bytes>, text: &str, base: &url::Url) {
    let sent = request.uri().to_string();
    let rest = sent.strip_prefix(text).unwrap_or_else(|| panic!("{sent} does not begin with {text}"));
    assert!(rest.starts_with('/'), "{sent} goes on in the middle of a segment");
    let url = url::Url::parse(&sent).expect("a request's URL is a URL");
    assert_eq!(url.origin(), base.origin(), "{sent} leaves {text}");
    assert_eq!(url.fragment(), None);
    let path = request.uri().path();
    assert_eq!(url.path(), path, "a normaliser makes another path of {sent}");
    assert!(!path.split('/').any(|s| s == "." || s == ".."), "{sent} climbs");
}
