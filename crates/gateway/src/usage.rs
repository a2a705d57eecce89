//! Who uses what: requests by revision and by deprecated feature, so that an operator can tell when an era or a feature
//! can be rolled off. Counted since the process began; names are what clients say of themselves.
//!
//! Cheap: a request that brings nothing new allocates nothing, and takes a short lock only where clients alternate.

use crate::metrics::Metrics;
use crate::view::rfc3339;
use ledger::Time;
use mcp::Revision;
use mcp::json::Raw;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Names kept for each feature.
const MAX_CLIENTS: usize = 8;
/// Spellings of names that are remembered, so that they need not be read again.
const MAX_SEEN: usize = 64;
/// Characters of a name.
const MAX_NAME: usize = 64;

/// A feature that the protocol has deprecated (spec: deprecated).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deprecated {
    /// A log level was asked for.
    Logging,
    /// A tool that asks for roots was called.
    Roots,
    /// A tool that asks for sampling was called.
    Sampling,
}

/// Since when they are.
const DEPRECATED_IN: &str = "2026-07-28";
/// From when on they may be gone.
const REMOVAL: &str = "the first revision released on or after 2027-07-28";

impl Deprecated {
    const ALL: [Deprecated; 3] = [Deprecated::Logging, Deprecated::Roots, Deprecated::Sampling];

    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Deprecated::Logging => "logging",
            Deprecated::Roots => "roots",
            Deprecated::Sampling => "sampling",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Deprecated::Logging => {
                "Read the server's own log, or its traces, instead of asking for log messages."
            }
            Deprecated::Roots => {
                "Name folders and files in the tool's arguments or in the server's configuration."
            }
            Deprecated::Sampling => "Give the tool its own access to a model.",
        }
    }
}

/// Every revision, newest first.
const REVISIONS: [Revision; 4] =
    [Revision::V2026_07_28, Revision::V2025_11_25, Revision::V2025_06_18, Revision::V2025_03_26];

fn place(revision: Revision) -> usize {
    match revision {
        Revision::V2026_07_28 => 0,
        Revision::V2025_11_25 => 1,
        Revision::V2025_06_18 => 2,
        Revision::V2025_03_26 => 3,
    }
}

#[derive(Default)]
struct Clients {
    /// Hashes of `clientInfo` as it was sent.
    seen: Vec<u64>,
    names: Vec<String>,
}

struct Cell {
    requests: AtomicU64,
    last: AtomicI64,
    clients: Mutex<Clients>,
    /// No further name will be kept.
    full: AtomicBool,
    /// The hash of the newest `clientInfo`, which most requests repeat.
    newest: AtomicU64,
    counter: Counter,
}

impl Cell {
    fn new(counter: Counter) -> Cell {
        Cell {
            requests: AtomicU64::new(0),
            last: AtomicI64::new(0),
            clients: Mutex::default(),
            full: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            counter,
        }
    }

    /// Counts one, and tells whether it was the first.
    fn count(&self, now: Time, hasher: &RandomState, client: Option<&Raw>) -> bool {
        self.counter.inc();
        self.last.fetch_max(now.0, Ordering::Relaxed);
        if let Some(client) = client
            && !self.full.load(Ordering::Relaxed)
        {
            let hash = hasher.hash_one(&client.bytes()[..]);
            if self.newest.swap(hash, Ordering::Relaxed) != hash {
                self.remember(hash, client);
            }
        }
        self.requests.fetch_add(1, Ordering::Relaxed) == 0
    }

    fn remember(&self, hash: u64, client: &Raw) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.seen.contains(&hash) {
            return;
        }
        clients.seen.push(hash);
        if let Some(name) = name_of(client).filter(|n| !clients.names.contains(n)) {
            clients.names.push(name);
        }
        let full = clients.seen.len() >= MAX_SEEN || clients.names.len() >= MAX_CLIENTS;
        self.full.store(full, Ordering::Relaxed);
    }
}

/// `name version`, of visible characters only.
fn name_of(client: &Raw) -> Option<String> {
    let client = client.object()?;
    let text = |member: &str| client.get(member).and_then(|v| v.as_string().map(|s| s.into_owned()));
    let whole = format!("{} {}", text("name")?, text("version").unwrap_or_default());
    let clean: String = whole.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    Some(clean.trim().to_owned()).filter(|n| !n.is_empty())
}

/// See the module.
pub struct Usage {
    since: Time,
    revisions: [Cell; 4],
    deprecated: [Cell; 3],
    hasher: RandomState,
}

impl Usage {
    /// Counting begins now.
    #[must_use]
    pub fn new(since: Time, metrics: &Metrics) -> Usage {
        Usage {
            since,
            revisions: REVISIONS.map(|r| Cell::new(metrics.requests_of(r))),
            deprecated: Deprecated::ALL.map(|d| Cell::new(metrics.deprecated(d.word()))),
            hasher: RandomState::new(),
        }
    }

    /// Counts a request.
    pub fn request(&self, now: Time, revision: Revision, client: Option<&Raw>) {
        self.revisions[place(revision)].count(now, &self.hasher, client);
    }

    /// Counts the use of a deprecated feature; the first one is told to operators.
    pub fn deprecated(&self, now: Time, feature: Deprecated, client: Option<&Raw>) {
        if self.deprecated[feature as usize].count(now, &self.hasher, client) {
            tracing::warn!(
                feature = feature.word(),
                client = client.and_then(name_of),
                deprecated_in = DEPRECATED_IN,
                removal = REMOVAL,
                advice = feature.advice(),
                "a client uses a deprecated feature of the protocol"
            );
        }
    }

    /// What was seen: `{"since", "usage": [{"feature", "requests", "lastSeen", "clients", "deprecatedIn", "removal",
    /// "advice"}]}`, revisions first, newest first.
    #[must_use]
    pub fn view(&self) -> Value {
        let mut all = Vec::new();
        for (revision, cell) in REVISIONS.into_iter().zip(&self.revisions) {
            let advice = revision.is_legacy().then_some(
                "Update these clients to revision 2026-07-28 before the legacy era is turned off (`eras`).",
            );
            all.extend(row(&format!("revision {revision}"), cell, None, None, advice));
        }
        for (feature, cell) in Deprecated::ALL.into_iter().zip(&self.deprecated) {
            let advice = Some(feature.advice());
            all.extend(row(feature.word(), cell, Some(DEPRECATED_IN), Some(REMOVAL), advice));
        }
        json!({ "since": rfc3339(self.since), "usage": all })
    }
}

fn row(
    feature: &str,
    cell: &Cell,
    deprecated_in: Option<&str>,
    removal: Option<&str>,
    advice: Option<&str>,
) -> Option<Value> {
    let requests = cell.requests.load(Ordering::Relaxed);
    if requests == 0 {
        return None;
    }
    let clients = cell.clients.lock().unwrap_or_else(PoisonError::into_inner).names.clone();
    Some(json!({
        "feature": feature,
        "requests": requests,
        "lastSeen": rfc3339(Time(cell.last.load(Ordering::Relaxed))),
        "clients": clients,
        "deprecatedIn": deprecated_in,
        "removal": removal,
        "advice": advice,
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use mcp::json::Limits;

    #[test]
    fn names_are_few_short_and_printable() {
        let usage = Usage::new(Time(0), &Metrics::default());
        let client = |text: String| Raw::parse(text, &Limits { depth: 8, unique_members: true }).unwrap();
        for i in 0..100 {
            let info = client(format!(r#"{{"name":"c\u0007{}","version":"{}"}}"#, "x".repeat(100), i % 20));
            usage.request(Time(i), Revision::V2025_06_18, Some(&info));
        }
        for i in 0..20 {
            let info = client(format!(r#"{{"name":"client","version":"{i}"}}"#));
            usage.request(Time(5), Revision::V2026_07_28, Some(&info));
        }
        usage.request(Time(5), Revision::V2026_07_28, Some(&client("{}".into())));
        let view = usage.view();
        let modern = &view["usage"][0];
        assert_eq!((&modern["feature"], &modern["requests"]), (&json!("revision 2026-07-28"), &json!(21)));
        assert_eq!(modern["clients"].as_array().unwrap().len(), MAX_CLIENTS);
        assert_eq!(modern["clients"][0], "client 0");
        let legacy = &view["usage"][1];
        assert_eq!((&legacy["feature"], &legacy["requests"]), (&json!("revision 2025-06-18"), &json!(100)));
        // The version is cut away, so all are one.
        let name = legacy["clients"][0].as_str().unwrap();
        assert_eq!((legacy["clients"].as_array().unwrap().len(), name.chars().count()), (1, MAX_NAME));
        assert!(!name.chars().any(char::is_control));
        assert_eq!(legacy["lastSeen"], "1970-01-01T00:00:00.099Z");
        assert_eq!(view["usage"].as_array().unwrap().len(), 2);
    }
}
