//! What legacy clients answer to what they were asked on their streams. An answer names what it answers by an id that only
//! this server could have made, so it may come to any replica: to an operation it goes through the ledger, to a request
//! that is being read through the shelf if that is elsewhere.

use crate::principal::principal_of;
use crate::rounds::{self, Closed, Decision, Subject, asks_a_person};
use crate::service::Shared;
use ledger::service::OperateError;
use ledger::{Env as _, InputKind, Millis, Operation, OperationId, Store, SystemEnv};
use mcp::Revision;
use mcp::error::RpcError;
use mcp::input::{Answer, InputRequest};
use mcp::json::{Limits, Raw};
use mcp::server::{Asked, Caller, ClientError, MAX_ASKED_ID, Notifier};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// What tokens of this kind are for.
const PURPOSE: &str = "ask";
/// How long an answer waits on the shelf for the replica that asked.
const KEPT: Millis = Millis::secs(120);

/// What an answer answers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Name {
    /// A question of an operation.
    #[serde(rename = "o")]
    Input(OperationId, usize),
    /// Whether the effect of an operation happened, as its attempt of this number left it.
    #[serde(rename = "c")]
    Confirm(OperationId, u32),
    /// A question of a request that is being read.
    #[serde(rename = "m")]
    Mail {
        #[serde(rename = "b")]
        box_: String,
        #[serde(rename = "i")]
        index: usize,
    },
}

fn subject(principal: &str) -> Subject<'_> {
    Subject { principal, method: "", name: "", fingerprint: &[] }
}

impl Name {
    /// Asks the client of this stream.
    pub async fn send(
        &self,
        keeper: &seal::Keeper,
        principal: &str,
        notifier: &Notifier,
        request: &InputRequest,
        revision: Revision,
    ) -> Result<Asked, RpcError> {
        let Subject { principal, method, name, fingerprint } = subject(principal);
        let context = keeper.context(PURPOSE, principal, method, name, fingerprint);
        let text = serde_json::to_vec(self).map_err(|_| rounds::unavailable())?;
        let id = keeper.seal(&text, &context, None).await.map_err(|_| rounds::unavailable())?;
        let cant = |why: &str| {
            RpcError::invalid_params(format!(
                "this needs an answer of the client, which can't be asked: {why}"
            ))
        };
        if id.len() > MAX_ASKED_ID {
            return Err(RpcError::internal("Internal error: a question has too long a name."));
        }
        let params = request.legacy_params(revision, &id).map_err(|e| cant(&e.why))?;
        notifier.request(id, request.method(), params.as_ref()).map_err(|e| cant(&e.to_string()))
    }
}

type Outcome = Result<Raw, ClientError>;

/// Where answers go, by the name of the request that waits for them.
type Boxes = HashMap<String, mpsc::UnboundedSender<(usize, Outcome)>>;

/// Requests here that wait for answers.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<Boxes>>);

impl Waiting {
    fn all(&self) -> std::sync::MutexGuard<'_, Boxes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where one request gets its answers.
pub(crate) struct Mail {
    name: String,
    waiting: Waiting,
    here: mpsc::UnboundedReceiver<(usize, Outcome)>,
    store: Arc<dyn Store>,
}

/// An answer on the shelf.
#[derive(Serialize, Deserialize)]
struct Shelved {
    result: Option<String>,
    code: i64,
    message: String,
}

/// A name that nobody guesses: 128 random bits.
pub(crate) fn random_name() -> String {
    format!("{:032x}", SystemEnv.random_u128())
}

fn place(name: &str, index: usize) -> String {
    format!("answer/{name}/{index}")
}

impl Mail {
    pub fn new(waiting: &Waiting, store: Arc<dyn Store>) -> Mail {
        let name = random_name();
        let (sender, here) = mpsc::unbounded_channel();
        waiting.all().insert(name.clone(), sender);
        Mail { name, waiting: waiting.clone(), here, store }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next answer to one of these questions.
    pub async fn next(&mut self, open: &[usize], look: Duration) -> (usize, Outcome) {
        loop {
            match tokio::time::timeout(look, self.here.recv()).await {
                Ok(Some(answer)) => return answer,
                Ok(None) => std::future::pending::<()>().await,
                Err(_) => {}
            }
            for &index in open {
                let Ok(Some(there)) = self.store.shelved(&place(&self.name, index)).await else { continue };
                let Ok(shelved) = serde_json::from_slice::<Shelved>(&there.data) else { continue };
                let outcome = match shelved.result {
                    None => Err(ClientError { code: shelved.code, message: shelved.message }),
                    Some(text) => match Raw::parse(text, &Limits::default()) {
                        Ok(raw) => Ok(raw),
                        Err(_) => continue,
                    },
                };
                return (index, outcome);
            }
        }
    }
}

impl Drop for Mail {
    fn drop(&mut self) {
        self.waiting.all().remove(&self.name);
    }
}

/// Takes an answer. What names nothing of this caller's is ignored.
///
/// # Errors
/// It can't be taken at the moment.
pub(crate) async fn response(
    shared: &Arc<Shared>,
    caller: &Caller,
    id: &str,
    outcome: Outcome,
) -> Result<(), RpcError> {
    let principal = principal_of(&caller.extensions);
    let name: Name = match shared.unseal(PURPOSE, subject(&principal), id).await {
        Ok(name) => name,
        Err(Closed::Rejected) => return Ok(()),
        Err(Closed::Unavailable) => return Err(rounds::unavailable()),
    };
    match name {
        Name::Mail { box_, index } => deliver(shared, &box_, index, outcome).await,
        Name::Input(operation, input) => {
            let Some(op) = read(shared, &principal, operation).await? else { return Ok(()) };
            answered(shared, &principal, &op, input, outcome).await
        }
        Name::Confirm(operation, attempt) => {
            let op = read(shared, &principal, operation).await?.filter(|op| op.attempt == attempt);
            let Some(op) = op else { return Ok(()) };
            confirmed(shared, &principal, &op, outcome).await
        }
    }
}

async fn read(shared: &Shared, principal: &str, id: OperationId) -> Result<Option<Operation>, RpcError> {
    shared.ledger.status(principal, id).await.map_err(|_| rounds::unavailable())
}

async fn deliver(shared: &Shared, name: &str, index: usize, outcome: Outcome) -> Result<(), RpcError> {
    if let Some(sender) = shared.waiting.all().get(name) {
        // Whoever waited may just have left.
        let _ = sender.send((index, outcome));
        return Ok(());
    }
    let shelved = match outcome {
        Ok(raw) if raw.as_str().len() > mcp::input::MAX_BYTES => return Ok(()),
        Ok(raw) => Shelved { result: Some(raw.as_str().to_owned()), code: 0, message: String::new() },
        Err(e) => Shelved { result: None, code: e.code, message: e.message },
    };
    let data = serde_json::to_vec(&shelved).map_err(|_| rounds::unavailable())?;
    let store = shared.ledger.store();
    let until = store.now().plus(KEPT);
    // The first answer counts: it is not replaced.
    store.shelve(&place(name, index), 0, data, Some(until)).await.map_err(|_| rounds::unavailable())?;
    Ok(())
}

/// What came of recording an answer, as far as the client has to know: a refusal says that it was decided before.
pub(crate) fn taken(done: Result<Operation, OperateError>) -> Result<(), RpcError> {
    match done {
        Ok(_) | Err(OperateError::Refused { .. } | OperateError::Unknown) => Ok(()),
        Err(e) => {
            tracing::warn!(error = %e, "an answer could not be recorded");
            Err(rounds::unavailable())
        }
    }
}

async fn answered(
    shared: &Arc<Shared>,
    principal: &str,
    op: &Operation,
    index: usize,
    outcome: Outcome,
) -> Result<(), RpcError> {
    let Some(input) = op.inputs.get(index) else { return Ok(()) };
    let request = rounds::recorded(shared, op, index).await.map_err(|_| rounds::unavailable())?;
    let said = match &outcome {
        Ok(raw) => Answer::read(&request, raw).ok(),
        Err(_) => None,
    };
    if input.kind == InputKind::Approval {
        // A client that can't show the question has said neither yes nor no.
        let Some(answer) = said.filter(|answer| *answer != Answer::Cancelled) else { return Ok(()) };
        if !rounds::approves(&answer) {
            return taken(shared.ledger.deny_asked(op.id, &input.key, principal).await);
        }
        let yes = [(input.key.clone(), rounds::spelled(&answer.to_raw()))];
        return taken(shared.ledger.answer(op.id, principal, &yes).await);
    }
    // What doesn't fit is no answer; there is no way to say so to whoever gave it.
    let unsaid = if outcome.is_err() { Answer::Declined } else { Answer::Cancelled };
    let answer = rounds::spelled(&said.unwrap_or(unsaid).to_raw());
    taken(shared.ledger.answer(op.id, principal, &[(input.key.clone(), answer)]).await)
}

async fn confirmed(
    shared: &Arc<Shared>,
    principal: &str,
    op: &Operation,
    outcome: Outcome,
) -> Result<(), RpcError> {
    let request = rounds::confirm(op).ok().filter(|_| asks_a_person(op));
    let Some((request, raw)) = request.zip(outcome.ok()) else { return Ok(()) };
    let happened = Answer::read(&request, &raw).ok().and_then(|answer| rounds::happened(&answer));
    let Some(happened) = happened else { return Ok(()) };
    let decision = Decision::Happened(op.attempt, happened);
    taken(rounds::decide(shared, principal, op.id, &decision).await)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        let id = OperationId::new(ledger::Time(1), 7);
        for name in
            [Name::Input(id, 63), Name::Confirm(id, u32::MAX), Name::Mail { box_: "f".repeat(32), index: 63 }]
        {
            let text = serde_json::to_string(&name).unwrap();
            assert!(text.len() < 64, "{text}");
            assert_eq!(serde_json::from_str::<Name>(&text).unwrap(), name);
        }
    }
}
