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
//! | `GET /v1/credentials` · `POST /v1/credentials/forget` `{"account", "principal"}` | credentials that principals gave of their own |
//!
//! Errors are `{"error": {"code", "message"}}` with a fitting status.

mod api_keys;
mod credentials;
mod decide;
mod methods;

use crate::answer;
use crate::call::{self, Asked};
use crate::catalog::Entry;
use crate::connect;
use crate::context::Context;
use crate::principal::ApiKeys;
use crate::service::{Gateway, Shared};
use crate::tool::{BadArguments, Body};
use crate::view::{InputDetail, OperationView, payload};
use axum::extract::{Path, Query as HttpQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use ledger::service::OperateError;
use ledger::store::Query;
use ledger::{Answer, BlobKind, CallerKey, Carrier, Key, Operation, OperationId, StoreError, Unkeyed};
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
            let bad = |e: BadArguments| usage(format!("the arguments don't fit: {e}"));
            entry.schema.check(&arguments).map_err(bad)?;
            let timeout = entry.settings.policy.timeout;
            let (mode, changes) = (s.settings.mode.clone(), s.changes.clone());
            let context = Context::new(principal, mode, timeout, changes, s.ledger.clone(), None);
            if let Some(account) = tool.own_account() {
                own(s, &entry, &account, &context.principal).await?;
            }
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
                return Ok(Json(json!({
                    "outcome": "dry_run",
                    "wouldSend": intent,
                    "approvalNeeded": !creation.asks.is_empty(),
                    "safety": tool.safety(),
                })));
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

/// The credential that a principal has of its own for this account.
async fn own(
    s: &Shared,
    entry: &Entry,
    account: &provider::OwnAccount,
    principal: &str,
) -> Result<provider::Own, Failure> {
    let found = connect::wait(&s.connections, account, principal, ledger::Millis(0), async {}).await;
    let found = found.map_err(|why| Failure(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why))?;
    if let Some(own) = found {
        return Ok(own);
    }
    let e = connect::required(s, account, principal, entry).await.error();
    Err(Failure(StatusCode::CONFLICT, e.kind.word(), format!("{} {}", e.sentence, e.advice)))
}

async fn execute(s: &Arc<Shared>, entry: &Entry, asked: &Asked<'_>) -> Answered {
    let call = asked.call(&s.settings.mode).map_err(|e| usage(format!("the arguments don't fit: {e}")))?;
    let Body::Mutating(tool) = &entry.body else { return Err(usage("this method only reads")) };
    let mark = match tool.own_account() {
        Some(account) => Some(own(s, entry, &account, &asked.principal).await?.mark),
        None => None,
    };
    let create = || {
        let mut creation = call::creation(entry, tool.as_ref(), asked.arguments, &asked.settings)?;
        if let Some((intent, mark)) = creation.intent.take_if(|_| mark.is_some()).zip(mark.as_ref()) {
            let owned = provider::owned(intent, &asked.principal, mark).map_err(BadArguments)?;
            creation.intent = Some(owned);
        }
        Ok::<_, BadArguments>(creation)
    };
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
