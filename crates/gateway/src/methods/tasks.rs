//! `tasks/get`, `tasks/update`, `tasks/cancel` (SEP-2663): a task is an operation, seen through its handle.
//!
//! Any replica answers: what is told is read from the ledger each time. Unknown, forged and foreign ids look alike.

use super::{params, string};
use crate::answers;
use crate::principal::principal_of;
use crate::rounds::{self, Unfit};
use crate::service::Shared;
use crate::view::rfc3339;
use ledger::service::OperateError;
use ledger::{BlobKind, DeliveryState, Execution, Operation, OperationId, Refusal, Time};
use mcp::constants::{TASKS_EXTENSION, result_type};
use mcp::error::RpcError;
use mcp::input::{self, InputRequest};
use mcp::json::{Limits, Raw, RawObject, quote};
use mcp::server::{Delivery, Exchange, Outcome, Responder, WireResult};
use serde_json::{Value, json};
use std::sync::Arc;

/// How often a client should ask.
const POLL_MS: i64 = 1000;

/// Whether the client of this request knows tasks.
pub(crate) fn known(exchange: &Exchange) -> bool {
    !exchange.caller.revision.is_legacy() && declares(exchange.meta.client_capabilities())
}

fn declares(capabilities: &Raw) -> bool {
    let extensions = capabilities.object().and_then(|c| c.get("extensions")).and_then(|e| e.object());
    extensions.and_then(|e| e.get(TASKS_EXTENSION)).is_some_and(|settings| settings.is_object())
}

/// -32021: it can't be answered to a client that knows no tasks. Nothing ran.
pub(crate) fn required() -> RpcError {
    RpcError::missing_capability(json!({ "extensions": { TASKS_EXTENSION: {} } }))
}

/// A `Task` without what its state adds.
pub(crate) fn task(shared: &Shared, op: &Operation) -> Value {
    base(shared, op, status(op), message(op))
}

fn base(shared: &Shared, op: &Operation, status: &str, message: Option<String>) -> Value {
    let out = op.task.as_ref();
    let created = out.map_or(op.created_at, |t| t.at);
    let ttl = out.and_then(|t| t.ttl).map(|t| t.0);
    let mut object = json!({
        "taskId": shared.ledger.task_id(op.id),
        "status": status,
        "createdAt": rfc3339(created),
        "lastUpdatedAt": rfc3339(updated(op).max(created)),
        "ttlMs": ttl,
    });
    if let Some(message) = message {
        object["statusMessage"] = json!(message);
    }
    if !op.execution.is_ended() {
        object["pollIntervalMs"] = json!(POLL_MS);
    }
    object
}

fn updated(op: &Operation) -> Time {
    let inputs = op.inputs.iter().flat_map(|i| [Some(i.asked_at), i.answer.as_ref().map(|a| a.at)]).flatten();
    inputs.chain(op.ended_at).chain([op.created_at]).max().unwrap_or(op.created_at)
}

fn status(op: &Operation) -> &'static str {
    match &op.execution {
        Execution::Completed => "completed",
        Execution::Failed { .. } => "failed",
        Execution::Cancelled { .. } => "cancelled",
        Execution::InputRequired { .. } => "input_required",
        Execution::Accepted | Execution::Running | Execution::InDoubt { .. } => "working",
    }
}

fn message(op: &Operation) -> Option<String> {
    match &op.execution {
        Execution::Failed { reason } => Some(reason.clone()),
        Execution::InDoubt { reason, .. } => Some(format!(
            "It is not known whether it had its effect: {reason}. It is being found out, or an operator decides."
        )),
        Execution::Running if op.cancel_requested => Some("It was asked to stop.".into()),
        Execution::InputRequired { .. } if op.waits_for_approval() => Some(format!(
            "It waits for a person's yes. Where the client can't ask for it, an operator gives it: \
             counterfoil ops approve {}",
            op.id
        )),
        _ => None,
    }
}

/// A `DetailedTask` as it is now.
///
/// # Errors
/// The ledger can't be read.
pub(crate) async fn detailed(shared: &Shared, op: &Operation, declared: &Raw) -> Result<Raw, RpcError> {
    let unavailable = |_| rounds::unavailable();
    let more = match &op.execution {
        Execution::Completed => {
            let stored = shared.ledger.store().blob(op.id, BlobKind::Result).await.map_err(unavailable)?;
            Some(("result", result(&stored.unwrap_or_default())?))
        }
        Execution::Failed { reason } => {
            let error = json!({ "code": mcp::error::INTERNAL, "message": reason });
            Some(("error", crate::answer::raw(&error)))
        }
        Execution::InputRequired { .. } => {
            let asked = questions(shared, op).await?;
            let may = |r: &&InputRequest| input::check([*r], declared, mcp::Revision::V2026_07_28).is_ok();
            let open: Vec<InputRequest> = asked.iter().filter(may).cloned().collect();
            if open.is_empty() {
                // Nothing that this client could answer: somebody else has to.
                let text = message(op);
                let text =
                    text.unwrap_or_else(|| "It waits for an answer that this client can't give.".to_owned());
                return Ok(crate::answer::raw(&base(shared, op, "working", Some(text))));
            }
            Some(("inputRequests", input::of_requests(&open)))
        }
        _ => None,
    };
    let object = crate::answer::raw(&task(shared, op));
    Ok(match (more, object.object()) {
        (Some((name, value)), Some(all)) => all.with(&[(name, value.as_str())]),
        _ => object,
    })
}

/// What it asks, all of it.
async fn questions(shared: &Shared, op: &Operation) -> Result<Vec<InputRequest>, RpcError> {
    if rounds::asks_a_person(op) {
        return Ok(rounds::confirm(op).into_iter().collect());
    }
    let open = shared.ledger.asked(op).await.map_err(|_| rounds::unavailable())?;
    rounds::questions(&open).map_err(|e| {
        tracing::error!(error = %e, "a question of a task can't be read");
        rounds::unavailable()
    })
}

/// The stored result, as the request would have been answered.
fn result(stored: &[u8]) -> Result<Raw, RpcError> {
    let limits = Limits { depth: 128, ..Limits::default() };
    let stored = RawObject::parse(stored.to_vec(), &limits);
    let object = stored.map_err(|_| RpcError::internal("Internal error: the result can't be read."))?;
    Ok(WireResult::of(&object, result_type::COMPLETE, &[]).raw().clone())
}

fn unknown() -> RpcError {
    RpcError::invalid_params("there is no such task here, or not any more")
}

/// The operation of this caller that a task id names.
///
/// # Errors
/// There is none; or the ledger can't be read.
pub(crate) async fn find(shared: &Shared, principal: &str, id: &str) -> Result<Operation, RpcError> {
    // A forged id costs the same read as a foreign one.
    let named = shared.ledger.task(id);
    let operation = named.unwrap_or_else(|| OperationId::new(Time(0), 0));
    let found = shared.ledger.status(principal, operation).await.map_err(|_| rounds::unavailable())?;
    found.filter(|op| named.is_some() && op.task.is_some()).ok_or_else(unknown)
}

async fn asked(shared: &Shared, exchange: &Exchange) -> Result<(Arc<str>, Operation), RpcError> {
    if !known(exchange) {
        return Err(required());
    }
    let id = string(&params(exchange), "taskId", "params")?;
    let principal = principal_of(&exchange.caller.extensions);
    let op = find(shared, &principal, &id).await?;
    Ok((principal, op))
}

/// Answers `tasks/get`.
pub(crate) async fn get(shared: &Shared, exchange: &Exchange, responder: Responder) {
    let told = async {
        let (_, op) = asked(shared, exchange).await?;
        let text = detailed(shared, &op, exchange.meta.client_capabilities()).await?;
        Ok::<_, RpcError>((op, text))
    };
    match told.await {
        Ok((op, text)) => {
            let delivered = responder.finish(shared.result(exchange, text.as_str().to_owned(), &[])).await;
            // Whoever asks for a task by its id, and gets its end, has it.
            if op.execution == Execution::Completed && delivered == Delivery::Written {
                shared.ledger.delivered(&op, DeliveryState::Acknowledged);
            }
        }
        Err(e) => responder.answer(e),
    }
}

fn acknowledged(shared: &Shared, exchange: &Exchange) -> Outcome {
    shared.result(exchange, "{}".into(), &[])
}

/// What came of changing a task: a refusal says that it is past that, which is no error of the client.
fn taken(done: Result<Operation, OperateError>) -> Result<(), RpcError> {
    match done {
        Err(OperateError::Unknown) => Err(unknown()),
        done => answers::taken(done),
    }
}

/// Answers `tasks/update`.
pub(crate) async fn update(shared: &Arc<Shared>, exchange: &Exchange) -> Outcome {
    let done = async {
        let (principal, op) = asked(shared, exchange).await?;
        let Some(responses) = input::responses(&params(exchange))? else {
            return Err(RpcError::malformed(format!("params.{} is missing", quote("inputResponses"))));
        };
        answer(shared, &principal, op, responses).await
    };
    done.await.map_or_else(Into::into, |()| acknowledged(shared, exchange))
}

/// Takes what answers an open question; what answers none, any more or at all, counts for nothing.
async fn answer(
    shared: &Arc<Shared>,
    principal: &str,
    mut op: Operation,
    mut responses: Vec<(String, Raw)>,
) -> Result<(), RpcError> {
    // In each round somebody else answered one of them first.
    for _ in 0..=input::MAX_REQUESTS {
        if !rounds::asks_a_person(&op) {
            let open: Vec<&str> = op.open_inputs().map(|i| op.inputs[i].key.as_str()).collect();
            responses.retain(|(key, _)| open.contains(&key.as_str()));
        }
        let given = rounds::answers(shared, &op, &responses).await.map_err(|e| match e {
            Unfit::Answer(e) => *e,
            Unfit::Store(_) => rounds::unavailable(),
        })?;
        let done = match &given.decision {
            Some(decision) => rounds::decide(shared, principal, op.id, decision).await,
            None if given.given.is_empty() => return Ok(()),
            None => match shared.ledger.answer(op.id, principal, &given.given).await {
                Err(OperateError::Refused { refusal: Refusal::AnswerConflict, .. }) => {
                    let now = shared.ledger.status(principal, op.id).await;
                    op = now.map_err(|_| rounds::unavailable())?.ok_or_else(unknown)?;
                    continue;
                }
                done => done,
            },
        };
        return taken(done);
    }
    Ok(())
}

/// Answers `tasks/cancel`.
pub(crate) async fn cancel(shared: &Shared, exchange: &Exchange) -> Outcome {
    let done = async {
        let (principal, op) = asked(shared, exchange).await?;
        taken(shared.ledger.cancel(op.id, principal.to_string()).await)
    };
    done.await.map_or_else(Into::into, |()| acknowledged(shared, exchange))
}
