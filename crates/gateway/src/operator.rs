//! What operators see and decide: JSON over HTTP, served on a socket that only the ledger's owner can open, or
//! asked in process.
//!
//! | route | does |
//! | --- | --- |
//! | `GET /v1/status` | name, version, mode, counts, the store's figures |
//! | `GET /v1/usage` | who uses which revision of the protocol, and what is deprecated |
//! | `GET /v1/ops?state=&delivery=&tool=&principal=&before=&limit=` | records, newest first |
//! | `GET /v1/ops/{id}` | one record with its requests, receipts and result |
//! | `POST /v1/ops/{id}/resolve` `{"by", "verdict": "applied"\|"not_applied"\|"send_again", "receipt"?}` | decides one in doubt |
//! | `POST /v1/ops/{id}/retry` `{"by"}` | asks the provider again, or lets it go on now |
//! | `POST /v1/ops/{id}/cancel` `{"by"}` | cancels it |
//! | `POST /v1/release` `{"by"}` | lets new operations in after a restore, once nothing is open |
//! | `POST /v1/exec` `{"id", "arguments"?, "key"?, "principal"?, "dryRun"?}` | one operation |
//! | `GET /v1/methods?q=` · `GET /v1/methods/{id}` | what can be called, and how safe a retry is |
//! | `GET /v1/api-keys` · `POST /v1/api-keys` `{"principal", "note"?, "id", "hash"}` · `POST /v1/api-keys/{id}/revoke` | API keys |
//!
//! Errors are `{"error": {"code", "message"}}` with a fitting status.

mod api_keys;

use crate::answer;
use crate::call::{self, Asked};
use crate::catalog::Entry;
use crate::context::Context;
use crate::principal::ApiKeys;
use crate::service::{Gateway, Shared};
use crate::tool::Body;
use crate::view::{OperationView, payload};
use axum::extract::{Path, Query as HttpQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use ledger::service::OperateError;
use ledger::store::Query;
use ledger::{Answer, CallerKey, Carrier, Key, OperationId, StoreError, Unkeyed, Verdict};
use mcp::json::{Limits, RawObject};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The principal of operators' own calls.
pub const OPERATOR: &str = "operator";
/// The most records in one answer.
const MAX_LIST: usize = 1000;

#[derive(Clone)]
struct Ctx {
    shared: Arc<Shared>,
    api_keys: Arc<ApiKeys>,
}

/// The operators' routes.
pub fn router(gateway: &Gateway, api_keys: Arc<ApiKeys>) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/usage", get(used))
        .route("/v1/ops", get(list))
        .route("/v1/ops/{id}", get(show))
        .route("/v1/ops/{id}/resolve", post(resolve))
        .route("/v1/ops/{id}/retry", post(retry))
        .route("/v1/ops/{id}/cancel", post(cancel))
        .route("/v1/release", post(release))
        .route("/v1/exec", post(exec))
        .route("/v1/methods", get(methods))
        .route("/v1/methods/{id}", get(method))
        .route("/v1/api-keys", get(api_keys::list).post(api_keys::create))
        .route("/v1/api-keys/{id}/revoke", post(api_keys::revoke))
        .with_state(Ctx { shared: gateway.0.clone(), api_keys })
}

struct Failure(StatusCode, &'static str, String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": { "code": self.1, "message": self.2 } }))).into_response()
    }
}

impl From<StoreError> for Failure {
    fn from(e: StoreError) -> Self {
        Failure(StatusCode::SERVICE_UNAVAILABLE, "unavailable", e.to_string())
    }
}

impl From<OperateError> for Failure {
    fn from(e: OperateError) -> Self {
        let text = e.to_string();
        match e {
            OperateError::Unknown => Failure(StatusCode::NOT_FOUND, "unknown", text),
            OperateError::Pruned(_) => Failure(StatusCode::GONE, "pruned", text),
            OperateError::Refused { .. } => Failure(StatusCode::CONFLICT, "refused", text),
            OperateError::Store(e) => e.into(),
        }
    }
}

fn usage(message: impl Into<String>) -> Failure {
    Failure(StatusCode::BAD_REQUEST, "usage", message.into())
}

type Answered = Result<Json<Value>, Failure>;

async fn status(State(c): State<Ctx>) -> Answered {
    let s = &c.shared;
    let counts = s.ledger.counts().await?;
    Ok(Json(json!({
        "name": s.settings.name,
        "version": s.settings.version,
        "mode": &*s.settings.mode,
        "pid": std::process::id(),
        "running": s.ledger.running(),
        "held": s.ledger.store().is_held(),
        "tools": s.catalog().entries().count(),
        "operations": counts.execution,
        "deliveries": counts.delivery,
        "clockStep": s.ledger.store().clock_step().map(crate::view::rfc3339),
        "store": s.ledger.store().stats(),
    })))
}

async fn used(State(c): State<Ctx>) -> Json<Value> {
    Json(c.shared.usage.view())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    state: Option<String>,
    delivery: Option<String>,
    tool: Option<String>,
    principal: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
}

async fn list(State(c): State<Ctx>, HttpQuery(q): HttpQuery<ListQuery>) -> Answered {
    let before = match q.before {
        None => None,
        Some(b) => Some(parse_id(&b)?),
    };
    let word = |given: &Option<String>, words: &[&str], what: &str| match given {
        Some(w) if !words.contains(&w.as_str()) => {
            Err(usage(format!("there is no {what} {w:?}; it is one of {}", words.join(", "))))
        }
        _ => Ok(()),
    };
    word(&q.state, &ledger::Execution::WORDS, "state")?;
    word(&q.delivery, &ledger::DeliveryState::WORDS, "delivery")?;
    let query = Query {
        principal: q.principal,
        tool: q.tool,
        state: q.state,
        delivery: q.delivery,
        before,
        limit: q.limit.unwrap_or(50).clamp(1, MAX_LIST),
    };
    let ops = c.shared.ledger.list(&query).await?;
    Ok(Json(json!({ "operations": ops.iter().map(OperationView::from).collect::<Vec<_>>() })))
}

fn parse_id(text: &str) -> Result<OperationId, Failure> {
    text.parse().map_err(|e| usage(format!("{e}")))
}

async fn show(State(c): State<Ctx>, Path(id): Path<String>) -> Answered {
    let d = c.shared.ledger.detail(parse_id(&id)?).await?;
    let mut v = OperationView::from(&d.operation);
    for (e, detail) in v.effects.iter_mut().zip(&d.effects) {
        e.intent = detail.intent.as_deref().map(payload);
        e.receipt = detail.receipt.as_deref().map(payload);
    }
    v.arguments = d.arguments.as_deref().map(payload);
    v.result = d.result.as_deref().map(payload);
    Ok(Json(serde_json::to_value(v).unwrap_or_default()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resolve {
    by: String,
    verdict: String,
    receipt: Option<Value>,
}

async fn resolve(State(c): State<Ctx>, Path(id): Path<String>, Json(r): Json<Resolve>) -> Answered {
    let id = parse_id(&id)?;
    let by = who(&r.by)?;
    let verdict = match r.verdict.as_str() {
        "applied" => {
            let receipt =
                json!({ "operator": by, "note": "an operator found that it happened", "receipt": r.receipt });
            Verdict::Applied(ledger::Receipt(receipt.to_string().into_bytes()))
        }
        "not_applied" => Verdict::NotApplied,
        "send_again" => Verdict::SendAgain,
        other => {
            return Err(usage(format!(
                "there is no verdict {other:?}; it is applied, not_applied or send_again"
            )));
        }
    };
    let op = c.shared.ledger.decide(id, by, verdict).await?;
    Ok(Json(serde_json::to_value(OperationView::from(&op)).unwrap_or_default()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct By {
    by: String,
}

fn who(by: &str) -> Result<String, Failure> {
    if by.trim().is_empty() || by.len() > 128 {
        Err(usage("say who decides: `by` has 1 to 128 characters"))
    } else {
        Ok(by.to_owned())
    }
}

async fn retry(State(c): State<Ctx>, Path(id): Path<String>, Json(b): Json<By>) -> Answered {
    let op = c.shared.ledger.retry(parse_id(&id)?, who(&b.by)?).await?;
    Ok(Json(serde_json::to_value(OperationView::from(&op)).unwrap_or_default()))
}

async fn cancel(State(c): State<Ctx>, Path(id): Path<String>, Json(b): Json<By>) -> Answered {
    let op = c.shared.ledger.cancel(parse_id(&id)?, who(&b.by)?).await?;
    Ok(Json(serde_json::to_value(OperationView::from(&op)).unwrap_or_default()))
}

/// Every open operation must have been reconciled: what a restored ledger does not know, it would do again.
async fn release(State(c): State<Ctx>, Json(b): Json<By>) -> Answered {
    let by = who(&b.by)?;
    let counts = c.shared.ledger.counts().await?;
    let open: u64 = ["accepted", "running", "input_required", "in_doubt"]
        .iter()
        .filter_map(|w| counts.execution.get(*w))
        .sum();
    if open > 0 {
        let why = format!(
            "{open} operations are still open; reconcile them first (`counterfoil ops list`), then release"
        );
        return Err(Failure(StatusCode::CONFLICT, "open_operations", why));
    }
    let held = c.shared.ledger.store().is_held();
    c.shared.ledger.store().release().await?;
    tracing::warn!(by, "the restored ledger was released: new operations are opened again");
    Ok(Json(json!({ "released": held, "by": by })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Exec {
    id: String,
    arguments: Option<Box<serde_json::value::RawValue>>,
    key: Option<String>,
    principal: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

async fn exec(State(c): State<Ctx>, Json(e): Json<Exec>) -> Answered {
    let s = &c.shared;
    let catalog = s.catalog();
    let Some(entry) = catalog.find(&e.id).cloned() else {
        return Err(Failure(
            StatusCode::NOT_FOUND,
            "unknown_method",
            format!("there is no method {:?}; `counterfoil methods` lists them", e.id),
        ));
    };
    let arguments = match &e.arguments {
        None => None,
        Some(raw) => Some(
            RawObject::parse(raw.get().to_owned(), &Limits::default())
                .map_err(|e| usage(format!("the arguments are not a JSON object: {e}")))?,
        ),
    };
    if entry.requires.is_some() {
        return Err(usage(format!("{:?} asks its client while it runs, so it can't be run from here", e.id)));
    }
    let principal: Arc<str> = e.principal.as_deref().unwrap_or(OPERATOR).into();
    match &entry.body {
        Body::Read(tool) => {
            let arguments = arguments.unwrap_or_else(RawObject::empty);
            let bad = |e: crate::tool::BadArguments| usage(format!("the arguments don't fit: {e}"));
            entry.schema.check(&arguments).map_err(bad)?;
            let timeout = entry.settings.policy.timeout;
            let context = Context::new(principal, s.settings.mode.clone(), timeout, s.changes.clone(), None);
            let r = tool.read(context, arguments).await.map_err(bad)?;
            Ok(Json(json!({ "outcome": "result", "isError": r.is_error, "result": payload(&r.result) })))
        }
        Body::Mutating(tool) => {
            let key = match &e.key {
                None => None,
                Some(k) => Some(CallerKey {
                    key: Key::new(k).map_err(|e| usage(e.to_string()))?,
                    carrier: Carrier::Program,
                }),
            };
            let mut settings = entry.settings.clone();
            // From the shell every execution is its own operation unless a key says otherwise.
            settings.unkeyed = Unkeyed::New;
            settings.wait = settings.policy.timeout;
            if e.dry_run {
                let creation = call::creation(&entry, tool.as_ref(), arguments.as_ref(), &settings)
                    .map_err(|e| usage(format!("the arguments don't fit: {e}")))?;
                let intent =
                    creation.intent.map(|i| json!({ "summary": i.summary, "request": payload(&i.body) }));
                return Ok(Json(
                    json!({ "outcome": "dry_run", "wouldSend": intent, "safety": tool.safety() }),
                ));
            }
            execute(
                s,
                &entry,
                &Asked {
                    principal,
                    entry: Some(&entry),
                    id: entry.spec.canonical.clone(),
                    arguments: arguments.as_ref(),
                    key,
                    settings,
                },
            )
            .await
        }
    }
}

async fn execute(s: &Arc<Shared>, entry: &Entry, asked: &Asked<'_>) -> Answered {
    let call = asked.call(&s.settings.mode).map_err(|e| usage(format!("the arguments don't fit: {e}")))?;
    let Body::Mutating(tool) = &entry.body else { return Err(usage("this method only reads")) };
    let create = || call::creation(entry, tool.as_ref(), asked.arguments, &asked.settings);
    match s
        .ledger
        .call(&call, &create, std::future::pending(), |_| {})
        .await
        .map(|a| s.ledger.or_error(&call, a))
    {
        Err(e) => Err(usage(format!("the arguments don't fit: {e}"))),
        Ok(Answer::Result { operation, result, replayed, joined_by }) => {
            // The answer goes to the operator's own terminal over this connection.
            s.ledger.delivered(&operation, ledger::DeliveryState::Written);
            Ok(Json(json!({
                "outcome": "result",
                "isError": operation.is_error,
                "result": payload(&result),
                "operation": { "id": operation.id.to_string(), "replayed": replayed, "joinedBy": joined_by, "attempt": operation.attempt },
            })))
        }
        Ok(Answer::Error(e)) => {
            let mut object = answer::error_object(&e);
            object["message"] = json!(e.sentence);
            Ok(Json(json!({ "outcome": "error", "error": object })))
        }
        Ok(
            Answer::Gone
            | Answer::Running { .. }
            | Answer::Confirm { .. }
            | Answer::Input { .. }
            | Answer::Reserve { .. },
        ) => Err(Failure(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the gateway is stopping".into())),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MethodsQuery {
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
    });
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
                "inlineLimitMs": s.wait.0,
                "retentionMs": s.policy.retention.0,
                "attemptCap": s.policy.attempt_cap,
            });
        }
    }
    v
}

async fn methods(State(c): State<Ctx>, HttpQuery(q): HttpQuery<MethodsQuery>) -> Answered {
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

async fn method(State(c): State<Ctx>, Path(id): Path<String>) -> Answered {
    match c.shared.catalog().find(&id) {
        Some(e) => Ok(Json(method_view(e, true))),
        None => Err(Failure(
            StatusCode::NOT_FOUND,
            "unknown_method",
            format!("there is no method {id:?}; `counterfoil methods` lists them"),
        )),
    }
}
