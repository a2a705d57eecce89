//! The key ring of a process that serves, and what operators see of it and do with it.
//!
//! Promises: what serves has a ring, or does not start; every replica on a ledger has the same one, because a ledger that
//! can have several is served only under a master key that was given.

use super::opened::Opened;
use super::replicas::Drift;
use crate::Error;
use crate::config::{At, Config, ConfigError};
use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use ledger::Store;
use seal::{FILE, Keeper, MasterId, MasterKey, MasterPlace, OnLedger, Operation, Settings, Stage, Told};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

fn place(config: &Config) -> MasterPlace {
    match &config.seal.master {
        Some(key) => MasterPlace::Given(key.clone()),
        None => MasterPlace::File(config.ledger.directory().join(FILE)),
    }
}

fn settings(config: &Config) -> Settings {
    Settings {
        audience: config.server.name.clone(),
        state_ttl: config.seal.state_ttl,
        alone: config.ledger.postgres().is_none(),
    }
}

/// Where replicas share a ledger, a file that each makes for itself would be another one on each; and their directories
/// often last no longer than they do.
///
/// # Errors
/// [`Error::Config`]: there is none.
pub(crate) fn given(config: &Config) -> Result<(), Error> {
    if config.ledger.postgres().is_none() || config.seal.master.is_some() {
        return Ok(());
    }
    Err(Error::Config(ConfigError::one(
        config.shown(),
        At::Nowhere,
        "a ledger in PostgreSQL may have several replicas, and what one of them seals the others have to open; set [seal] master = \"${env:NAME}\" or \"${file:PATH}\" to one key for all (or COUNTERFOIL__SEAL__MASTER). `openssl rand -base64 32` makes one",
    )))
}

/// Opens the ring for a process that serves; makes it on the first start.
///
/// # Errors
/// [`Error::Seal`]: what stands in the way, and what to do.
pub(crate) async fn keeper(config: &Config, store: Arc<dyn Store>) -> Result<Keeper, Error> {
    Ok(Keeper::start(Arc::new(OnLedger(store)), place(config), settings(config)).await?)
}

/// Lets a process that runs operations for a while read the credentials of principals, where there is a ring that opens.
/// It makes none, and without one the calls that need such a credential are not sent.
pub(crate) async fn open(connections: &gateway::Connections, config: &Config, store: &Arc<dyn Store>) {
    if given(config).is_err() || !matches!(store.shelved(seal::NAME).await, Ok(Some(_))) {
        return;
    }
    match keeper(config, store.clone()).await {
        Ok(keeper) => connections.open(store.clone(), keeper),
        Err(e) => tracing::warn!(error = %e, "the credentials of principals can't be read here"),
    }
}

/// What a running replica says of a ring that it can't read any more.
pub(crate) fn drift(e: &seal::Error) -> Drift {
    Drift {
        plain: "the key ring can't be read",
        what: e.to_string(),
        mend: "`counterfoil doctor` and `counterfoil keys list` say more",
    }
}

/// What the routes work on.
struct Ring {
    shelf: OnLedger,
    place: MasterPlace,
    settings: Settings,
    /// The configuration lacks what it needs.
    lacks: Option<String>,
    opened: Opened,
    /// Of a process that serves: it reads the ring again after a change.
    keeper: Option<Keeper>,
}

type Answer = (StatusCode, Json<Value>);

/// `GET /v1/keys`: the ring. `POST /v1/keys/rotate`, `/allow`, `/forbid`, `/rename`, `/reset`: its changes.
pub(crate) fn router(config: &Config, opened: &Opened, keeper: Option<Keeper>) -> Router {
    let ring = Ring {
        shelf: OnLedger(opened.store()),
        place: place(config),
        settings: settings(config),
        lacks: given(config).err().map(|e| e.to_string()),
        opened: opened.clone(),
        keeper,
    };
    Router::new()
        .route("/v1/keys", get(list))
        .route("/v1/keys/{change}", post(change))
        .with_state(Arc::new(ring))
}

fn refused(status: StatusCode, code: &str, message: impl ToString) -> Answer {
    (status, Json(json!({ "error": { "code": code, "message": message.to_string() } })))
}

fn failed(e: &seal::Error) -> Answer {
    match e {
        seal::Error::Absent => refused(StatusCode::NOT_FOUND, "absent", e),
        seal::Error::Refused(_) => refused(StatusCode::CONFLICT, "refused", e),
        e if e.is_configuration() => refused(StatusCode::BAD_REQUEST, "configuration", e),
        e => refused(StatusCode::SERVICE_UNAVAILABLE, "unavailable", e),
    }
}

fn told(told: &Told, ours: &str) -> Answer {
    let time = |t| gateway::view::rfc3339(t);
    let keys: Vec<Value> = told
        .keys
        .iter()
        .filter(|k| k.stage != Stage::Gone)
        .map(|k| {
            json!({
                "id": k.id.as_str(),
                "stage": k.stage.word(),
                "madeAt": time(k.made_at),
                "sealsFrom": time(k.seals_from),
                "opensUntil": k.opens_until.map(time),
            })
        })
        .collect();
    let masters: Vec<String> = told.masters.iter().map(ToString::to_string).collect();
    let body = json!({
        "serverName": told.audience,
        "configuredName": ours,
        "masters": masters,
        "master": told.mine.to_string(),
        "masterFrom": told.place,
        "longestLifetimeMs": told.longest.0,
        "keys": keys,
    });
    (StatusCode::OK, Json(body))
}

async fn list(State(ring): State<Arc<Ring>>) -> Answer {
    if let Some(lacks) = &ring.lacks {
        return refused(StatusCode::BAD_REQUEST, "configuration", lacks);
    }
    match seal::look(&ring.shelf, &ring.place).await {
        Ok(found) => told(&found, &ring.settings.audience),
        Err(e) => failed(&e),
    }
}

/// What a change needs to know.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Asked {
    /// `rotate`: at once, and without the other keys.
    now: bool,
    /// `allow`: the other master key. The socket is this user's only.
    master: Option<String>,
    /// `forbid`: the other master key's name.
    id: Option<String>,
}

impl Ring {
    fn operation(&self, change: &str, asked: &Asked) -> Result<Operation, Answer> {
        let usage = |why: &str| refused(StatusCode::BAD_REQUEST, "usage", why);
        Ok(match change {
            "rotate" if asked.now => Operation::Replace,
            "rotate" => Operation::Rotate,
            "allow" => {
                let master = asked.master.as_deref().ok_or_else(|| usage("`master` is missing"))?;
                Operation::Allow(MasterKey::read(master).map_err(|e| usage(&e.to_string()))?)
            }
            "forbid" => {
                let id = asked.id.as_deref().and_then(MasterId::read);
                Operation::Forbid(id.ok_or_else(|| {
                    usage("`id` is not a master key's name; `counterfoil keys list` shows them")
                })?)
            }
            "rename" => Operation::Rename(self.settings.audience.clone()),
            "reset" => Operation::Reset,
            _ => {
                return Err(refused(
                    StatusCode::NOT_FOUND,
                    "unknown",
                    "there is no such change of the key ring",
                ));
            }
        })
    }

    /// What only those that don't run yet learn must not change under those that do.
    async fn in_use(&self, operation: &Operation) -> Option<Answer> {
        if !matches!(operation, Operation::Rename(_) | Operation::Reset) {
            return None;
        }
        let store = self.opened.postgres()?;
        match store.replicas().await {
            Ok(all) => {
                let serving = |r: &ledger_postgres::Replica| !r.fingerprint.is_empty() && r.lease_left.0 > 0;
                let count = all.iter().filter(|r| serving(r)).count();
                (count > 0).then(|| {
                    let why = format!("{count} replicas serve with the key ring as it is; stop them first. Nothing was changed");
                    refused(StatusCode::CONFLICT, "refused", why)
                })
            }
            Err(e) => Some(refused(StatusCode::SERVICE_UNAVAILABLE, "unavailable", e)),
        }
    }
}

async fn change(
    State(ring): State<Arc<Ring>>,
    Path(change): Path<String>,
    Json(asked): Json<Asked>,
) -> Answer {
    if let Some(lacks) = &ring.lacks {
        return refused(StatusCode::BAD_REQUEST, "configuration", lacks);
    }
    let operation = match ring.operation(&change, &asked) {
        Ok(operation) => operation,
        Err(answer) => return answer,
    };
    if let Some(answer) = ring.in_use(&operation).await {
        return answer;
    }
    match seal::alter(&ring.shelf, &ring.place, &ring.settings, &operation).await {
        Ok(found) => {
            if let Some(keeper) = &ring.keeper {
                // Else it is read within seconds.
                let _ = keeper.refresh().await;
            }
            told(&found, &ring.settings.audience)
        }
        Err(e) => failed(&e),
    }
}
