//! The control side, `/_sandbox/…`: counts, rules, reset.

use std::sync::{Arc, atomic::Ordering};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{RawQuery, State as Extract},
    response::Response,
    routing::{get, post},
};
use serde_json::{Value, json};

use crate::{
    answer::{Answer, Play, Problem},
    class::Class,
    report::{self, Filter},
    rules::Rule,
    server::MAX_BODY,
    shared::{Lost, Shared},
};

/// The routes of the control side.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/_sandbox/health", get(health))
        .route("/_sandbox/effects", get(effects))
        .route("/_sandbox/rules", get(list).post(arm).delete(disarm))
        .route("/_sandbox/reset", post(reset))
        .method_not_allowed_fallback(async || {
            problem(
                405,
                "method_not_allowed",
                "this control endpoint has other methods; see the documentation",
            )
        })
}

fn ok(value: &Value) -> Response {
    Answer::json(200, value).into_response(Play::SEND)
}

fn problem(status: u16, code: &'static str, message: impl Into<String>) -> Response {
    Problem::invalid(status, code, message).answer(Class::Key).into_response(Play::SEND)
}

fn lost(Lost: Lost) -> Response {
    problem(500, "log_failed", "the provider is stopping: its log can't be written, or it is being shut down")
}

async fn health() -> Response {
    ok(&json!({"sandbox": "counterfoil", "version": env!("CARGO_PKG_VERSION")}))
}

async fn effects(Extract(shared): Extract<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let filter = match Filter::read(&query.unwrap_or_default()) {
        Ok(filter) => filter,
        Err(message) => return problem(400, "parameter_unknown", message),
    };
    let (applications, seq) = {
        let inner = shared.lock();
        (inner.state.applications.clone(), inner.state.seq)
    };
    // What is counted is on disk, or it would not be what really happened.
    match shared.durable(seq).await {
        Ok(()) => ok(&report::report(&applications, shared.received.load(Ordering::Relaxed), &filter)),
        Err(gone) => lost(gone),
    }
}

async fn list(Extract(shared): Extract<Arc<Shared>>) -> Response {
    ok(&json!({"rules": shared.lock().state.rules.list()}))
}

async fn arm(Extract(shared): Extract<Arc<Shared>>, body: Body) -> Response {
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return problem(413, "body_too_large", "the body is larger than 1 MiB, or was not sent whole");
    };
    // Any Content-Type: `curl -d` says it is a form.
    let rule = match serde_json::from_slice(&body) {
        Ok(Value::Object(fields)) => Rule::parse(&fields),
        Ok(_) => Err("a rule is a JSON object".into()),
        Err(error) => Err(format!("a rule is a JSON object: {error}")),
    };
    match rule.and_then(|rule| shared.lock().state.rules.arm(rule)) {
        Ok(value) => ok(&value),
        Err(message) => problem(400, "invalid_rule", message),
    }
}

async fn disarm(Extract(shared): Extract<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let id = match query.as_deref().unwrap_or_default() {
        "" => None,
        query => match query.strip_prefix("id=").and_then(|id| id.parse().ok()) {
            Some(id) => Some(id),
            None => return problem(400, "parameter_unknown", "this takes id=N, or nothing for all rules"),
        },
    };
    let disarmed = shared.lock().state.rules.disarm(id);
    ok(&json!({ "disarmed": disarmed }))
}

async fn reset(Extract(shared): Extract<Arc<Shared>>) -> Response {
    match shared.reset().await {
        Ok(()) => ok(&json!({"reset": true})),
        Err(gone) => lost(gone),
    }
}
