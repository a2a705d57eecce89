//! The replicas on one ledger: what each says of itself, and what is wrong if they don't say the same.
//!
//! Promises: two processes with equal configuration, manifests and version have the same fingerprint; two that serve a
//! client anything different, or treat its calls differently, have not. Secrets, addresses and directories are no part
//! of it.

use super::opened::Opened;
use super::sealing;
use crate::config::Config;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use gateway::Gateway;
use http::StatusCode;
use ledger::Millis;
use ledger_postgres::{Check, Description, PgStore, Replica, Verdict};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// How often a replica looks at the others.
const LOOK: Duration = Duration::from_secs(5);
/// Clocks that are further apart than this are warned of: logs don't line up, and certificates may seem out of date.
const SKEW: Millis = Millis::secs(2);

/// This program's version.
#[cfg(not(feature = "failpoints"))]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// This program's version, or what it plays.
#[cfg(feature = "failpoints")]
pub(crate) fn version() -> &'static str {
    match ledger_postgres::newer::word() {
        Some(_) => concat!(env!("CARGO_PKG_VERSION"), "+newer"),
        None => env!("CARGO_PKG_VERSION"),
    }
}

/// A hash of everything that has to be the same on every replica.
pub(crate) fn fingerprint(gateway: &Gateway, config: &Config) -> String {
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    };
    let server = &config.server;
    let sorted = |mut eras: Vec<(String, mcp::Eras)>| {
        eras.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        eras
    };
    let hosts = sorted(server.eras_by_host.clone());
    let principals = sorted(server.eras_by_principal.clone());
    part(version());
    part(&server.name);
    part(config.mode.as_str());
    part(config.auth.word());
    part(&server.path);
    part(&format!("{} {:?} {hosts:?} {principals:?}", server.max_body, server.eras));
    part(&format!("{:?} {}", server.legacy_sessions, server.legacy_session_idle.0));
    part(&format!("{} {}", config.seal.state_ttl.0, config.seal.single_use));
    part(&format!("{} {} {}", config.lists_ttl.0, config.ledger.lease.0, config.ledger.retention.0));
    // What clients see, and how their calls are treated.
    part(&hex(&gateway.digest()));
    for entry in gateway.catalog().entries() {
        part(&entry.spec.canonical);
        part(&format!("{:?}", entry.settings));
        part(&entry.body.safety().to_string());
    }
    hex(&hash.finalize()[..16])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        // A string takes everything.
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// What a replica says of itself.
pub(crate) fn description(gateway: &Gateway, config: &Config, listen: &str) -> Description {
    Description {
        server_name: config.server.name.clone(),
        version: version().into(),
        fingerprint: fingerprint(gateway, config),
        listen: listen.into(),
    }
}

/// Something that should be the same and isn't.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Drift {
    /// For anybody: it names nothing.
    pub plain: &'static str,
    /// For operators.
    pub what: String,
    /// What to do.
    pub mend: &'static str,
}

/// Compares those that serve. A command that has the ledger open for a moment says nothing of itself.
pub(crate) fn drift(all: &[Replica]) -> Vec<Drift> {
    let serving: Vec<&Replica> =
        all.iter().filter(|r| !r.fingerprint.is_empty() && r.lease_left.0 > 0).collect();
    let groups = |of: &dyn Fn(&Replica) -> String| {
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for r in &serving {
            let (word, name) = (of(r), if r.listen.is_empty() { &*r.instance } else { &*r.listen });
            match groups.iter_mut().find(|(w, _)| *w == word) {
                Some((_, names)) => names.push(name),
                None => groups.push((word, vec![name])),
            }
        }
        groups
    };
    let told = |groups: &[(String, Vec<&str>)]| {
        let each: Vec<String> =
            groups.iter().map(|(w, names)| format!("{w}: {}", names.join(", "))).collect();
        each.join("; ")
    };
    let mut out = Vec::new();
    let names = groups(&|r| r.server_name.clone());
    if names.len() > 1 {
        out.push(Drift {
            plain: "replicas have different server names",
            what: format!("replicas have different server names ({})", told(&names)),
            mend: "give all the same [server] name: clients cache and sign under it",
        });
    }
    let versions = groups(&|r| r.version.clone());
    if versions.len() > 1 {
        out.push(Drift {
            plain: "replicas have different versions",
            what: format!("replicas have different versions ({})", told(&versions)),
            mend: "finish the upgrade: replicas of both versions work on one ledger, but clients see lists change",
        });
    }
    // Another version or name is another fingerprint, and is told already.
    let same =
        |r: &&&Replica, first: &Replica| r.version == first.version && r.server_name == first.server_name;
    let differs = serving.first().is_some_and(|first| {
        serving.iter().filter(|r| same(r, first)).any(|r| r.fingerprint != first.fingerprint)
    });
    if differs {
        let prints = groups(&|r| r.fingerprint.chars().take(8).collect());
        out.push(Drift {
            plain: "replicas are configured differently",
            what: format!("replicas are configured differently ({})", told(&prints)),
            mend: "give all the same counterfoil.toml and manifests, then restart or reload (SIGHUP) those that are behind",
        });
    }
    let skews = || serving.iter().map(|r| r.skew.0);
    if let (Some(least), Some(most)) = (skews().min(), skews().max())
        && (most - least > SKEW.0 || most.abs() > SKEW.0 || least.abs() > SKEW.0)
    {
        let each = groups(&|r| format!("{:+} ms", r.skew.0));
        out.push(Drift {
            plain: "clocks differ",
            what: format!("wall clocks differ from the database's ({})", told(&each)),
            mend: "synchronise the clocks; nothing is decided by them, but logs and certificates are read by them",
        });
    }
    out
}

/// Describes this replica, and looks at the others for as long as it is polled.
pub(crate) async fn watch(store: Arc<PgStore>, gateway: Gateway, keeper: Option<seal::Keeper>) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut said = Vec::new();
    loop {
        look.tick().await;
        #[cfg(feature = "failpoints")]
        if ledger_postgres::newer::word().is_some() {
            store.bus().tell(ledger::bus::Note { topic: "newer".into(), body: "{}".into() });
        }
        // While the database is away nothing is known, and that is told elsewhere.
        let Ok(replicas) = store.replicas().await else { continue };
        let mut found = drift(&replicas);
        found.extend(keeper.as_ref().and_then(seal::Keeper::trouble).map(|e| sealing::drift(&e)));
        gateway.set_warnings(found.iter().map(|d| d.plain).collect());
        let plain: Vec<&str> = found.iter().map(|d| d.plain).collect();
        if plain != said {
            for d in &found {
                tracing::warn!(mend = d.mend, "{}", d.what);
            }
            if found.is_empty() {
                tracing::info!("all replicas agree");
            }
            said = plain;
        }
    }
}

/// `GET /v1/replicas`: who shares the ledger, what differs, and what its database promises.
pub(crate) fn router(opened: &Opened) -> Router {
    Router::new().route("/v1/replicas", get(told)).with_state(opened.postgres().cloned())
}

async fn told(State(store): State<Option<Arc<PgStore>>>) -> (StatusCode, Json<Value>) {
    let Some(store) = store else {
        return (StatusCode::OK, Json(json!({ "replicas": [], "drift": [], "checks": [] })));
    };
    let (replicas, checks) = tokio::join!(store.replicas(), store.checks());
    match (replicas, checks) {
        (Ok(replicas), Ok(checks)) => {
            let drift = drift(&replicas);
            let replicas: Vec<Value> = replicas.iter().map(replica).collect();
            let checks: Vec<Value> = checks.iter().map(check).collect();
            (StatusCode::OK, Json(json!({ "replicas": replicas, "drift": drift, "checks": checks })))
        }
        (Err(e), _) | (_, Err(e)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            Json(json!({ "error": { "code": "unavailable", "message": e.to_string() } })),
        ),
    }
}

fn replica(r: &Replica) -> Value {
    json!({
        "epoch": r.epoch.0,
        "this": r.this,
        "name": r.instance,
        "serves": !r.fingerprint.is_empty(),
        "serverName": r.server_name,
        "version": r.version,
        "schema": r.schema,
        "fingerprint": r.fingerprint,
        "listen": r.listen,
        "startedAt": gateway::view::rfc3339(r.started_at),
        "leaseLeftMs": r.lease_left.0,
        "skewMs": r.skew.0,
    })
}

fn check(c: &Check) -> Value {
    let level = match c.verdict {
        Verdict::Good => "ok",
        Verdict::Warn => "warning",
        Verdict::Bad => "error",
    };
    json!({ "what": c.what, "found": c.found, "level": level, "mend": c.advice })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ledger::words::{Epoch, Time};

    fn replica(n: u64) -> Replica {
        Replica {
            epoch: Epoch(n),
            this: n == 1,
            instance: format!("cf-{n}"),
            server_name: "shop".into(),
            version: "1".into(),
            schema: 1,
            fingerprint: "aaaaaaaaaaaa".into(),
            listen: String::new(),
            started_at: Time(0),
            lease_left: Millis(1000),
            skew: Millis(0),
        }
    }

    fn plain(all: &[Replica]) -> Vec<&'static str> {
        drift(all).into_iter().map(|d| d.plain).collect()
    }

    #[test]
    fn what_differs_is_told_once() {
        let same = [replica(1), replica(2), replica(3)];
        assert!(plain(&same).is_empty() && plain(&[]).is_empty() && plain(&same[..1]).is_empty());
        let with = |change: &dyn Fn(&mut Replica)| {
            let mut all = same.clone();
            change(&mut all[1]);
            all
        };
        let configured = drift(&with(&|r| r.fingerprint = "bbbbbbbbbbbb".into()));
        assert_eq!(configured.len(), 1);
        assert_eq!(configured[0].plain, "replicas are configured differently");
        assert!(configured[0].what.contains("aaaaaaaa: cf-1, cf-3; bbbbbbbb: cf-2"), "{:?}", configured[0]);
        let upgrade = with(&|r| (r.version, r.fingerprint) = ("2".into(), "b".into()));
        assert_eq!(plain(&upgrade), ["replicas have different versions"]);
        let renamed = with(&|r| (r.server_name, r.fingerprint) = ("store".into(), "b".into()));
        assert_eq!(plain(&renamed), ["replicas have different server names"]);
        for off in [2001, -2001] {
            assert_eq!(plain(&with(&|r| r.skew = Millis(off))), ["clocks differ"]);
        }
        assert!(plain(&with(&|r| r.skew = Millis(1999))).is_empty());
        // Commands, and those that are gone, count for nothing.
        assert!(plain(&with(&|r| r.fingerprint = String::new())).is_empty());
        assert!(plain(&with(&|r| (r.fingerprint, r.lease_left) = ("b".into(), Millis(-1)))).is_empty());
    }
}
