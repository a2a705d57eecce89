//! What can be called, and how safe a retry is.

use super::{Answered, Ctx, Failure};
use crate::catalog::Entry;
use crate::tool::Body;
use crate::view::payload;
use axum::Json;
use axum::extract::{Path, Query as HttpQuery, State};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MethodsQuery {
    q: Option<String>,
}

fn method_view(e: &Entry, whole: bool) -> Value {
    let mut v = json!({
        "id": &*e.spec.canonical,
        "tool": e.spec.name,
        "title": e.spec.title,
        "description": e.spec.description,
        "effect": if matches!(e.body, Body::Read(_)) { "read" } else { "mutating" },
        "safety": e.body.safety(),
        "limits": e.settings.limits.told(),
    });
    if matches!(e.body, Body::Mutating(_)) {
        v["approval"] = json!(e.settings.approval.to_string());
        v["mode"] = json!(e.settings.mode.word());
    }
    if whole {
        v["inputSchema"] = payload(e.spec.input_schema.as_str().as_bytes());
        v["outputSchema"] =
            e.spec.output_schema.as_ref().map(|s| payload(s.as_str().as_bytes())).unwrap_or_default();
        if matches!(e.body, Body::Mutating(_)) {
            let s = &e.settings;
            v["settings"] = json!({
                "unkeyed": s.unkeyed,
                "keyFrom": s.key_from,
                "injectKey": s.inject_key,
                "keyArgument": e.key_is_ours,
                "guardWindowMs": s.policy.guard_window.0,
                "timeoutMs": s.policy.timeout.0,
                "legMs": s.wait.0,
                "inlineLimitMs": s.inline_limit.0,
                "retentionMs": s.policy.retention.0,
                "attemptCap": s.policy.attempt_cap,
            });
        }
    }
    v
}

pub(super) async fn list(State(c): State<Ctx>, HttpQuery(q): HttpQuery<MethodsQuery>) -> Answered {
    let word = q.q.unwrap_or_default().to_lowercase();
    let catalog = c.shared.catalog();
    let found: Vec<Value> = catalog
        .entries()
        .filter(|e| {
            e.spec.canonical.to_lowercase().contains(&word)
                || e.spec.description.to_lowercase().contains(&word)
        })
        .map(|e| method_view(e, false))
        .collect();
    Ok(Json(json!({ "methods": found })))
}

pub(super) async fn one(State(c): State<Ctx>, Path(id): Path<String>) -> Answered {
    match c.shared.catalog().find(&id) {
        Some(e) => Ok(Json(method_view(e, true))),
        None => Err(Failure(
            StatusCode::NOT_FOUND,
            "unknown_method",
            format!("there is no method {id:?}; `counterfoil methods` lists them"),
        )),
    }
}
