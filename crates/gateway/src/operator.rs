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
//! | `POST /v1/ops/{id}/approve` `{"by"}` · `POST /v1/ops/{id}/deny` `{"by"}` | says yes or no to what waits for it |
//! | `POST /v1/release` `{"by"}` | lets new operations in after a restore, once nothing is open |
//! | `POST /v1/exec` `{"id", "arguments"?, "key"?, "principal"?, "dryRun"?}` | one operation |
//! | `GET /v1/methods?q=` · `GET /v1/methods/{id}` | what can be called, and how safe a retry is |
//! | `GET /v1/api-keys` · `POST /v1/api-keys` `{"principal", "note"?, "id", "hash"}` · `POST /v1/api-keys/{id}/revoke` | API keys |
//! | `GET /v1/credentials` · `POST /v1/credentials/forget` `{"account", "principal", "exact"?}` | credentials that principals gave of their own |
//!
//! Errors are `{"error": {"code", "message"}}` with a fitting status.

mod api_keys;
mod credentials;
mod decide;
mod methods;

use crate::call::{Asked, removed};
use crate::exec::{self, Executed, Unfit};
use crate::principal::ApiKeys;
use crate::service::{Gateway, Shared};
use crate::tool::ToolSettings;
use crate::view::{InputDetail, OperationView, payload};
use axum::extract::{Path, Query as HttpQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use ledger::service::OperateError;
use ledger::store::Query;
use ledger::{BlobKind, CallerKey, Carrier, Key, Kind, Operation, OperationId, StoreError, Unkeyed};
use mcp::json::RawObject;
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
        .route("/v1/ops/{id}/resolve", post(decide::resolve))
        .route("/v1/ops/{id}/retry", post(decide::retry))
        .route("/v1/ops/{id}/cancel", post(decide::cancel))
        .route("/v1/ops/{id}/approve", post(decide::approve))
        .route("/v1/ops/{id}/deny", post(decide::deny))
        .route("/v1/release", post(decide::release))
        .route("/v1/exec", post(exec))
        .route("/v1/methods", get(methods::list))
        .route("/v1/methods/{id}", get(methods::one))
        .route("/v1/api-keys", get(api_keys::list).post(api_keys::create))
        .route("/v1/api-keys/{id}/revoke", post(api_keys::revoke))
        .route("/v1/credentials", get(credentials::list))
        .route("/v1/credentials/forget", post(credentials::forget))
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

impl From<Unfit> for Failure {
    fn from(e: Unfit) -> Self {
        match e {
            Unfit::Arguments(why) => usage(format!("the arguments don't fit: {why}")),
            Unfit::NotHere(why) => usage(why),
            Unfit::Call(e) => {
                let status = match e.kind {
                    Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                    _ => StatusCode::CONFLICT,
                };
                Failure(status, e.kind.word(), format!("{} {}", e.sentence, e.advice))
            }
        }
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
    let details = questions(&c.shared, &d.operation).await?;
    for (input, detail) in v.inputs.iter_mut().zip(details) {
        input.detail = Some(detail);
    }
    let planned = c.shared.ledger.planned_intent(&d.operation).await?;
    v.planned = planned.map(|intent| json!({ "summary": intent.summary, "request": payload(&intent.body) }));
    v.arguments = d.arguments.as_deref().map(payload);
    v.result = d.result.as_deref().map(payload);
    Ok(Json(serde_json::to_value(v).unwrap_or_default()))
}

/// What was asked and answered, word for word.
async fn questions(shared: &Shared, op: &Operation) -> Result<Vec<InputDetail>, StoreError> {
    let store = shared.ledger.store();
    let mut all = Vec::new();
    for i in 0..u16::try_from(op.inputs.len()).unwrap_or(u16::MAX) {
        let request = store.blob(op.id, BlobKind::Request(i)).await?;
        let answer = store.blob(op.id, BlobKind::Answer(i)).await?;
        all.push(InputDetail {
            request: request.as_deref().map(payload),
            answer: answer.as_deref().map(payload),
        });
    }
    Ok(all)
}

/// An operation as it stands after a decision.
fn told(op: &Operation) -> Answered {
    Ok(Json(serde_json::to_value(OperationView::from(op)).unwrap_or_default()))
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

async fn exec(State(c): State<Ctx>, Json(e): Json<Exec>) -> Result<Response, Failure> {
    let s = &c.shared;
    let arguments = exec::arguments(e.arguments.as_deref()).map_err(usage)?;
    let principal: Arc<str> = e.principal.as_deref().unwrap_or(OPERATOR).into();
    let Some(entry) = s.catalog().find(&e.id).cloned() else {
        return match forgotten(s, &e, principal, arguments.as_ref()).await {
            Some(executed) => Ok(exec_answer(s, &executed)),
            None => Err(Failure(
                StatusCode::NOT_FOUND,
                "unknown_method",
                format!("there is no method {:?}; `counterfoil methods` lists them", e.id),
            )),
        };
    };
    if e.dry_run {
        return exec::plan(&entry, arguments.as_ref())
            .map(|plan| Json(plan).into_response())
            .map_err(Failure::from);
    }
    let key = e.key.as_deref().map(Key::new).transpose().map_err(|e| usage(e.to_string()))?;
    let wanted = exec::Wanted {
        entry: &entry,
        principal,
        arguments,
        key: key.map(|key| CallerKey { key, carrier: Carrier::Program }),
        // From the shell every execution is its own operation unless a key says otherwise.
        unkeyed: Unkeyed::New,
        wait: entry.settings.policy.timeout,
        yields: false,
    };
    Ok(exec_answer(s, &exec::run(s, wanted, std::future::pending()).await?))
}

/// What is known under this key of a method that is not in the configuration any more.
async fn forgotten(
    s: &Arc<Shared>,
    e: &Exec,
    principal: Arc<str>,
    arguments: Option<&RawObject>,
) -> Option<Executed> {
    let key = Key::new(e.key.as_deref().filter(|_| !e.dry_run)?).ok()?;
    let id = removed(s, &principal, &e.id).await.unwrap_or_else(|| e.id.as_str().into());
    let key = Some(CallerKey { key, carrier: Carrier::Program });
    let settings = ToolSettings::default();
    let asked = Asked { principal, entry: None, id, arguments, key, settings };
    exec::known(s, &asked, std::future::pending()).await
}

fn exec_answer(s: &Shared, executed: &Executed) -> Response {
    if let Executed::Stored { operation, .. } = executed {
        // The answer goes to the operator's own terminal over this connection.
        s.ledger.delivered(operation, ledger::DeliveryState::Written);
    }
    ([(CONTENT_TYPE, "application/json")], executed.document()).into_response()
}
