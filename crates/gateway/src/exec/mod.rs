//! One execution outside of MCP, from the shell or for a tool handler in any language: through the same ledger as every
//! call, under the same scope, so that a key means the same operation whichever way it came.
//!
//! - [`run`] and [`plan`]: what the socket's `exec` and `POST /api/v1/exec` have in common;
//! - `key`: the key of a step of a handler's run;
//! - `body`, `route`: the route on the gateway's listener; `outcome`: what its answers mean; `description`: the same as
//!   OpenAPI.

mod body;
mod description;
mod key;
pub mod outcome;
mod route;

pub(crate) use route::router;

use crate::answer;
use crate::call::{self, Asked, busy};
use crate::catalog::Entry;
use crate::connect;
use crate::context::Context;
use crate::limits::{self, Whose};
use crate::service::Shared;
use crate::tool::{BadArguments, Body, ReadTool, Tool, ToolSettings};
use crate::view::payload;
use ledger::{
    Answer, CallError, CallerKey, Creation, JoinedBy, Kind, Millis, Operation, OperationId, ToolResult,
    Unkeyed,
};
use mcp::json::{Limits, RawObject};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// What is to be executed, and as whom.
pub(crate) struct Wanted<'a> {
    /// The method, by its id or its name on the wire.
    pub entry: &'a Entry,
    pub principal: Arc<str>,
    pub arguments: Option<RawObject>,
    pub key: Option<CallerKey>,
    /// What an execution without a key is.
    pub unkeyed: Unkeyed,
    /// How long it is waited for.
    pub wait: Millis,
    /// Under load it is refused, as a call is.
    pub yields: bool,
}

/// What came of it.
pub(crate) enum Executed {
    /// The result of a method that reads.
    Read(ToolResult),
    /// The stored result.
    Stored { operation: Arc<Operation>, result: Arc<[u8]>, replayed: bool, joined_by: Option<JoinedBy> },
    /// The ledger's answer is an error.
    Error(Box<CallError>),
    /// Too much is under way.
    Busy,
    /// Whoever asked has left.
    Gone,
}

/// Why nothing of it was begun.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// The arguments don't fit, and why.
    Arguments(String),
    /// It can't be run from here, and why.
    NotHere(String),
    /// The caller lacks something, or has to come again.
    Call(Box<CallError>),
}

impl Unfit {
    /// The same, of an operation that there is.
    fn of(self, operation: OperationId) -> Unfit {
        match self {
            Unfit::Call(e) => Unfit::Call(Box::new(CallError { operation: Some(operation), ..*e })),
            other => other,
        }
    }
}

impl From<BadArguments> for Unfit {
    fn from(e: BadArguments) -> Unfit {
        Unfit::Arguments(e.0)
    }
}

impl Executed {
    /// The answer's document. The result goes in as it was stored: its numbers keep their digits, however deep it is.
    pub fn document(&self) -> String {
        match self {
            Executed::Read(r) => document(r.is_error, &r.result, None),
            Executed::Stored { operation, result, replayed, joined_by } => {
                let about = json!({ "id": operation.id.to_string(), "replayed": replayed, "joinedBy": joined_by, "attempt": operation.attempt });
                document(operation.is_error, result, Some(&about))
            }
            Executed::Error(e) => error(e).to_string(),
            Executed::Busy => error(&busy()).to_string(),
            Executed::Gone => error(&stopping()).to_string(),
        }
    }
}

/// The document of a result.
fn document(is_error: bool, result: &[u8], operation: Option<&Value>) -> String {
    let result = match serde_json::from_slice::<&RawValue>(result) {
        Ok(raw) => Cow::Borrowed(raw.get()),
        Err(_) => Cow::Owned(json!(String::from_utf8_lossy(result)).to_string()),
    };
    let about = operation.map(|o| format!(r#","operation":{o}"#)).unwrap_or_default();
    format!(r#"{{"outcome":"result","isError":{is_error},"result":{result}{about}}}"#)
}

/// The document of an error of the ledger.
pub(crate) fn error(e: &CallError) -> Value {
    json!({ "outcome": "error", "error": told(e) })
}

fn told(e: &CallError) -> Value {
    let mut object = answer::error_object(e);
    object["message"] = json!(e.sentence);
    object
}

/// What is said where there is nobody to wait for the answer any more.
fn stopping() -> CallError {
    CallError {
        retry_after: Some(Millis::secs(1)),
        ..CallError::plain(
            Kind::AdmissionUnknown,
            "The gateway stops before this is answered, so it is not known how it ends.",
            "With its key, or the same operation and step, the very same again is safe: nothing is done twice. So it is of a method that only reads. Else it would be another one: look first whether it happened.",
        )
    }
}

/// The arguments as an object whose numbers keep their digits.
///
/// # Errors
/// Why they are none.
pub(crate) fn arguments(raw: Option<&RawValue>) -> Result<Option<RawObject>, String> {
    let parse = |raw: &RawValue| RawObject::parse(raw.get().to_owned(), &Limits::default());
    raw.map(parse).transpose().map_err(|e| format!("the arguments are not a JSON object: {e}"))
}

/// What would be sent; nothing is.
///
/// # Errors
/// [`Unfit`]: the arguments don't fit.
pub(crate) fn plan(entry: &Entry, given: Option<&RawObject>) -> Result<Value, Unfit> {
    let (would_send, asks, needs) = match &entry.body {
        Body::Read(tool) => {
            let arguments = given.cloned().unwrap_or_else(RawObject::empty);
            entry.schema.check(&arguments)?;
            let whose = Whose { principal: "", mode: "" };
            let needs = match entry.settings.limits.of_call(whose, &arguments) {
                Ok(allowances) => allowances,
                Err(limits::Unfit::Arguments(e)) => return Err(e.into()),
                Err(limits::Unfit::Refused(e)) => return Ok(refused_plan(entry, &e)),
            };
            (tool.plan(&arguments)?, false, needs)
        }
        Body::Mutating(tool) => {
            let whose = Whose { principal: "", mode: "" };
            let creation = match call::creation(entry, tool.as_ref(), given, &entry.settings, whose) {
                Ok(creation) => creation,
                Err(limits::Unfit::Arguments(e)) => return Err(e.into()),
                // What it would be answered is what one wants to know.
                Err(limits::Unfit::Refused(e)) => return Ok(refused_plan(entry, &e)),
            };
            let intent = creation.intent;
            let shown = intent.map(|i| json!({ "summary": i.summary, "request": payload(&i.body) }));
            (shown, !creation.asks.is_empty(), creation.allowances)
        }
    };
    // The request as it is kept holds no credential: what is shown of it is where it goes.
    let would_send = would_send.map(|mut shown| {
        let masked = |m: &provider::Masked| {
            let mut one = json!({ "value": m.value });
            one[m.place] = json!(m.name);
            one
        };
        let mut all = entry.body.masked_credentials().iter().map(masked);
        shown["credential"] = all.next().unwrap_or_default();
        let also: Vec<Value> = all.collect();
        if !also.is_empty() {
            shown["also"] = json!(also);
        }
        shown
    });
    let needs: Vec<Value> =
        needs.iter().map(|a| json!({ "limit": a.to_string(), "amount": a.amount })).collect();
    Ok(json!({
        "outcome": "dry_run",
        "wouldSend": would_send,
        "approvalNeeded": asks,
        "needs": needs,
        "safety": entry.body.safety(),
    }))
}

/// The same for a call that a rule would not let through.
fn refused_plan(entry: &Entry, e: &CallError) -> Value {
    json!({ "outcome": "dry_run", "wouldSend": null, "refused": told(e), "safety": entry.body.safety() })
}

/// Executes it. `gone` resolves when whoever asked has left; drive the future to its end all the same, and say what became
/// of a stored result.
///
/// # Errors
/// [`Unfit`]: nothing was begun.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    wanted: Wanted<'_>,
    gone: impl Future<Output = ()> + Send,
) -> Result<Executed, Unfit> {
    match &wanted.entry.body {
        Body::Read(tool) => read(shared, &wanted, tool.as_ref()).await,
        Body::Mutating(tool) => change(shared, &wanted, tool.as_ref(), gone).await,
    }
}

/// Why a method can't be begun from here, if it can't.
fn not_here(entry: &Entry) -> Option<String> {
    entry.requires.as_ref()?;
    Some(format!("{:?} asks its client while it runs, so it can't be run from here", entry.spec.canonical))
}

async fn read(shared: &Shared, wanted: &Wanted<'_>, tool: &dyn ReadTool) -> Result<Executed, Unfit> {
    let entry = wanted.entry;
    if let Some(why) = not_here(entry) {
        return Err(Unfit::NotHere(why));
    }
    let arguments = wanted.arguments.clone().unwrap_or_else(RawObject::empty);
    entry.schema.check(&arguments)?;
    let place = shared.reads.try_acquire();
    if wanted.yields && place.is_err() {
        return Ok(Executed::Busy);
    }
    if let Some(account) = tool.own_account() {
        own(shared, entry, &account, &wanted.principal).await?;
    }
    // Last, so that nothing is held of a limit for what is not asked.
    let held = match limits::hold_for_read(shared, entry, &wanted.principal, &arguments).await {
        Ok(held) => held,
        Err(limits::Unfit::Arguments(e)) => return Err(e.into()),
        Err(limits::Unfit::Refused(e)) => return Ok(Executed::Error(e)),
    };
    let (mode, changes) = (shared.settings.mode.clone(), shared.changes.clone());
    let timeout = entry.settings.policy.timeout;
    let context = Context::new(wanted.principal.clone(), mode, timeout, changes, shared.ledger.clone(), None);
    let read = tool.read(context, arguments).await;
    held.end().await;
    Ok(Executed::Read(read?))
}

/// The credential that a principal has of its own for this account.
async fn own(
    shared: &Shared,
    entry: &Entry,
    account: &provider::OwnAccount,
    principal: &str,
) -> Result<provider::Own, Unfit> {
    let found =
        connect::wait(&shared.connections, account, principal, Millis(0), std::future::pending()).await;
    match found {
        Ok(Some(own)) => Ok(own),
        Ok(None) => {
            let required = connect::required(shared, account, principal, entry).await;
            Err(Unfit::Call(Box::new(required.error())))
        }
        Err(why) => {
            tracing::warn!(%why, "the credential of a principal can't be read");
            Err(Unfit::Call(Box::new(connect::unreadable())))
        }
    }
}

/// What keeps a new operation from being opened.
enum Before {
    Arguments(BadArguments),
    Refused(Box<CallError>),
    Busy,
    /// It can't be begun from here, and why.
    NotHere(String),
    /// The caller has to give a credential of its own.
    Credential(Box<provider::OwnAccount>),
}

impl From<limits::Unfit> for Before {
    fn from(e: limits::Unfit) -> Before {
        match e {
            limits::Unfit::Arguments(e) => Before::Arguments(e),
            limits::Unfit::Refused(e) => Before::Refused(e),
        }
    }
}

async fn change(
    shared: &Arc<Shared>,
    wanted: &Wanted<'_>,
    tool: &dyn Tool,
    gone: impl Future<Output = ()> + Send,
) -> Result<Executed, Unfit> {
    let entry = wanted.entry;
    let settings = ToolSettings { unkeyed: wanted.unkeyed, wait: wanted.wait, ..entry.settings.clone() };
    let asked = Asked {
        principal: wanted.principal.clone(),
        entry: Some(entry),
        id: entry.spec.canonical.clone(),
        arguments: wanted.arguments.as_ref(),
        key: wanted.key.clone(),
        settings,
    };
    let call = asked.call(&shared.settings.mode).map_err(|e| Unfit::Arguments(e.to_string()))?;
    let whose = Whose { principal: &call.scope.principal, mode: &call.scope.mode };
    // What keeps a new operation from being opened is asked only where one is: a known one is answered whatever is lacking.
    let create = |mark: Option<&str>| -> Result<Creation, Before> {
        if let Some(why) = not_here(entry) {
            return Err(Before::NotHere(why));
        }
        if wanted.yields && shared.ledger.running() >= shared.settings.max_in_flight {
            return Err(Before::Busy);
        }
        let mut creation = call::creation(entry, tool, asked.arguments, &asked.settings, whose)?;
        let Some(account) = tool.own_account() else { return Ok(creation) };
        let Some(mark) = mark else { return Err(Before::Credential(Box::new(account))) };
        if let Some(intent) = creation.intent.take() {
            let owned = provider::owned(intent, &asked.principal, mark);
            creation.intent = Some(owned.map_err(|e| Before::Arguments(BadArguments(e)))?);
        }
        Ok(creation)
    };
    let mut gone = std::pin::pin!(gone);
    let mut mark: Option<String> = None;
    let answer = loop {
        let with_mark = || create(mark.as_deref());
        match shared.ledger.call(&call, &with_mark, gone.as_mut(), |_| {}).await {
            Ok(answer) => {
                let answer = shared.ledger.or_error(&call, answer);
                if let Some((account, operation)) = lacks(tool, &answer).filter(|_| mark.is_none()) {
                    own(shared, entry, &account, &asked.principal).await.map_err(|e| e.of(operation))?;
                }
                break answer;
            }
            Err(Before::Credential(account)) => {
                mark = Some(own(shared, entry, &account, &asked.principal).await?.mark);
            }
            Err(Before::Arguments(e)) => return Err(e.into()),
            Err(Before::NotHere(why)) => return Err(Unfit::NotHere(why)),
            Err(Before::Refused(e)) => {
                limits::count(shared, e.kind);
                return Ok(Executed::Error(e));
            }
            Err(Before::Busy) => return Ok(Executed::Busy),
        }
    };
    Ok(executed(answer))
}

/// Whether an operation has no effect, it may be for lack of the credential that was there when it was opened.
fn lacks(tool: &dyn Tool, answer: &Answer) -> Option<(provider::OwnAccount, OperationId)> {
    let Answer::Error(e) = answer else { return None };
    let operation = e.operation.filter(|_| e.kind == Kind::Unavailable)?;
    Some((tool.own_account()?, operation))
}

/// Executes again what is known of a method that is not there for whoever asks, or not any more; nothing is opened. `None`:
/// nothing is known of it. `gone` as of [`run`].
pub(crate) async fn known(
    shared: &Arc<Shared>,
    asked: &Asked<'_>,
    gone: impl Future<Output = ()> + Send,
) -> Option<Executed> {
    let call = asked.call(&shared.settings.mode).ok()?;
    let create = || Err(());
    let answer = shared.ledger.call(&call, &create, gone, |_| {}).await.ok()?;
    Some(executed(shared.ledger.or_error(&call, answer)))
}

fn executed(answer: Answer) -> Executed {
    match answer {
        Answer::Result { operation, result, replayed, joined_by } => {
            Executed::Stored { operation, result, replayed, joined_by }
        }
        Answer::Error(e) => Executed::Error(e),
        // Nothing else is left of an answer once it is put into words.
        Answer::Gone
        | Answer::Running { .. }
        | Answer::Confirm { .. }
        | Answer::Input { .. }
        | Answer::Reserve { .. } => Executed::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::document;

    #[test]
    fn a_result_is_told_as_it_was_stored() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        for stored in
            [r#"{"n":12345678901234567890123,"big":1e400,"one":1.10}"#, &*deep, r#"{"b":1,"a":2,"b":3}"#]
        {
            let told = document(false, stored.as_bytes(), None);
            assert_eq!(told, format!(r#"{{"outcome":"result","isError":false,"result":{stored}}}"#));
        }
        let about = serde_json::json!({ "id": "op" });
        assert_eq!(
            document(true, b"no \"JSON\"", Some(&about)),
            r#"{"outcome":"result","isError":true,"result":"no \"JSON\"","operation":{"id":"op"}}"#
        );
    }
}
