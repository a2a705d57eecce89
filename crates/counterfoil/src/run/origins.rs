//! Where each setting of a tool comes from: told by `info`, kept apart from what the settings are.

use super::assemble::{Loaded, shown};
use crate::config::{Config, Set, ToolConfig};
use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use provider::{Integration, MethodEffect};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

type Map = HashMap<String, Value>;

/// Per canonical id, shared with the route that tells.
#[derive(Clone)]
pub(crate) struct Origins(Arc<RwLock<Map>>);

impl Origins {
    pub fn new(map: Map) -> Origins {
        Origins(Arc::new(RwLock::new(map)))
    }

    pub fn replace(&self, map: Map) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = map;
    }

    /// `GET /v1/origins/{id}`.
    pub fn router(&self) -> Router {
        Router::new().route("/v1/origins/{id}", get(one)).with_state(self.clone())
    }
}

async fn one(State(origins): State<Origins>, Path(id): Path<String>) -> (StatusCode, Json<Value>) {
    let map = origins.0.read().unwrap_or_else(PoisonError::into_inner);
    match map.get(&id) {
        Some(found) => (StatusCode::OK, Json(found.clone())),
        None => (StatusCode::OK, Json(json!({}))),
    }
}

/// Works out where the settings of every mutating method come from.
pub(crate) fn of(config: &Config, loaded: &Loaded) -> Map {
    let methods = loaded.integrations.iter().flat_map(Integration::methods);
    let mutating = methods.filter(|m| m.effect() == MethodEffect::Mutating);
    mutating
        .map(|m| {
            (
                m.canonical_id().to_owned(),
                tool(config, config.tools.iter().find(|t| t.id == m.canonical_id())),
            )
        })
        .collect()
}

fn tool(config: &Config, own: Option<&ToolConfig>) -> Value {
    let file = config.file.as_deref();
    fn at<T>(set: Option<&Set<T>>) -> Option<&crate::config::At> {
        set.map(|s| &s.at)
    }
    let say = |own: Option<&crate::config::At>, default: Option<&crate::config::At>| match (own, default) {
        (Some(at), _) => format!("[tools], {}", shown(file, at)),
        (None, Some(at)) => format!("[defaults], {}", shown(file, at)),
        (None, None) => "default".to_owned(),
    };
    let d = &config.defaults;
    json!({
        "name": say(at(own.and_then(|t| t.name.as_ref())), None),
        "recovery": say(at(own.and_then(|t| t.recovery.as_ref())), None),
        "sendTimeout": say(at(own.and_then(|t| t.send_timeout.as_ref())), at(d.send_timeout.as_ref())),
        "unkeyed": say(at(own.and_then(|t| t.unkeyed.as_ref())), at(d.unkeyed.as_ref())),
        "keyFrom": say(at(own.and_then(|t| t.key_from.as_ref())), None),
        "injectKey": say(at(own.and_then(|t| t.inject_key.as_ref())), None),
        "guardWindow": say(at(own.and_then(|t| t.guard_window.as_ref())), at(d.guard_window.as_ref())),
        "timeout": say(at(own.and_then(|t| t.timeout.as_ref())), at(d.timeout.as_ref())),
        "inlineLimit": say(at(own.and_then(|t| t.inline_limit.as_ref())), at(d.inline_limit.as_ref())),
        // Without a leg of its own it is the inline limit, where that is set.
        "leg": if own.is_some_and(|t| t.leg.is_some()) || d.leg.is_some() {
            say(at(own.and_then(|t| t.leg.as_ref())), at(d.leg.as_ref()))
        } else {
            say(at(own.and_then(|t| t.inline_limit.as_ref())), at(d.inline_limit.as_ref()))
        },
        "mode": say(at(own.and_then(|t| t.mode.as_ref())), at(d.mode.as_ref())),
        "approval": say(at(own.and_then(|t| t.approval.as_ref())), at(d.approval.as_ref())),
        "retention": match own.and_then(|t| t.retention.as_ref()) {
            Some(s) => format!("[tools], {}", shown(file, &s.at)),
            None => "[ledger] or its default".to_owned(),
        },
    })
}
