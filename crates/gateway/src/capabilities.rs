//! What the server says of itself, in either era: only what the catalog of the moment can keep.

use crate::catalog::Catalog;
use crate::result;
use crate::service::GatewaySettings;
use crate::sessions::LegacySessions;
use mcp::constants::{SUPPORTED_VERSIONS, TASKS_EXTENSION};
use mcp::json::Raw;
use mcp::server::{Outcome, Transport};
use serde_json::{Value, json};
use std::sync::Arc;

pub use calls::EXTENSION;

/// A catalog with what is said about it, made once.
pub(crate) struct Served {
    pub catalog: Arc<Catalog>,
    /// The answer to `server/discover`.
    pub discover: Outcome,
    /// Whether `initialize` over HTTP opens a session.
    pub mints: bool,
    over_http: Raw,
    over_lines: Raw,
}

impl Served {
    pub fn new(catalog: Arc<Catalog>, s: &GatewaySettings, info: &Raw) -> Served {
        let mints = match s.legacy_sessions {
            LegacySessions::Always => true,
            LegacySessions::Auto => catalog.asks_clients() || catalog.has_subscriptions(),
            LegacySessions::Never | LegacySessions::Platform => false,
        };
        let subscribe = catalog.has_subscriptions();
        Served {
            discover: discover(&catalog, s, info),
            over_http: opened(&catalog, s, info, subscribe && mints),
            over_lines: opened(&catalog, s, info, subscribe),
            catalog,
            mints,
        }
    }

    /// The `InitializeResult` without `protocolVersion`.
    pub fn opened(&self, transport: Transport) -> Raw {
        match transport {
            Transport::Http => self.over_http.clone(),
            Transport::Lines => self.over_lines.clone(),
        }
    }

    /// Every byte of what is said and listed, in both eras, in a fixed order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let discover = match &self.discover {
            Outcome::Result(result) => Some(result.raw().as_str()),
            Outcome::Error(_) => None,
        };
        let opened = [self.over_http.as_str(), self.over_lines.as_str()];
        discover.into_iter().chain(opened).chain(self.catalog.texts())
    }

    /// Whether `resources/subscribe` is served to legacy clients.
    pub fn subscribes(&self, transport: Transport) -> bool {
        self.catalog.has_subscriptions() && (self.mints || transport == Transport::Lines)
    }
}

fn capabilities(catalog: &Catalog, subscribe: bool) -> Value {
    let mut c = json!({ "tools": { "listChanged": true }, "logging": {} });
    if catalog.has_resources() {
        c["resources"] = json!({ "listChanged": true });
        if subscribe {
            c["resources"]["subscribe"] = json!(true);
        }
    }
    if catalog.has_prompts() {
        c["prompts"] = json!({ "listChanged": true });
    }
    if catalog.has_completions() {
        c["completions"] = json!({});
    }
    c
}

fn extension(s: &GatewaySettings) -> Value {
    let carriers = ["params.idempotencyKey", "_meta", "header", "argument"];
    json!({ EXTENSION: calls::announcement(&carriers, s.retention_ms) })
}

/// What is announced beyond the protocol to clients of the modern era.
fn extensions(s: &GatewaySettings) -> Value {
    let mut all = extension(s);
    all[TASKS_EXTENSION] = json!({});
    all
}

fn discover(catalog: &Catalog, s: &GatewaySettings, info: &Raw) -> Outcome {
    let mut c = capabilities(catalog, catalog.has_subscriptions());
    c["extensions"] = extensions(s);
    let mut body = json!({
        "supportedVersions": SUPPORTED_VERSIONS,
        "capabilities": c,
        "ttlMs": s.list_ttl_ms,
        "cacheScope": if s.public_lists { "public" } else { "private" },
    });
    if let Some(i) = &s.instructions {
        body["instructions"] = json!(i);
    }
    result::modern(body.to_string(), info, &[])
}

/// The legacy era knows no `extensions`; what is beyond its own capabilities is `experimental`.
fn opened(catalog: &Catalog, s: &GatewaySettings, info: &Raw, subscribe: bool) -> Raw {
    let mut c = capabilities(catalog, subscribe);
    c["experimental"] = extension(s);
    let mut body = json!({ "capabilities": c, "serverInfo": info.read::<Value>().unwrap_or_default() });
    if let Some(i) = &s.instructions {
        body["instructions"] = json!(i);
    }
    crate::answer::raw(&body)
}
