//! From a `tools/call` to its answer: which tool, and which of two ways: a tool that reads runs at once, one that changes
//! the world goes through the ledger.

use crate::answer;
use crate::arguments::{KEY_ARGUMENT, without};
use crate::asks::{Of, Reading};
use crate::catalog::Entry;
use crate::connect;
use crate::ledgered::ledgered;
use crate::limits::{self, Unfit, Whose};
use crate::metrics::Counted;
use crate::preview;
use crate::principal::principal_of;
use crate::service::Shared;
use crate::tool::{BadArguments, Body, Tool, ToolSettings};
use crate::usage::Deprecated;
use ledger::canonical::canonicalise_arguments;
use ledger::store::Query;
use ledger::{Call, CallError, CallerKey, Creation, Fingerprint, Operation, Scope};
use mcp::error::RpcError;
use mcp::input::Asker;
use mcp::json::{Raw, RawObject};
use mcp::server::{Exchange, Notifier, Outcome, Responder, Transport};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

pub use calls::answer::META_OPERATION;

/// Answers a `tools/call`.
pub(crate) async fn tools_call(shared: &Arc<Shared>, exchange: &Exchange, responder: Responder) {
    let started = Instant::now();
    let in_flight = Counted::new(&shared.metrics.in_flight);
    let (label, outcome) = answer_call(shared, exchange, responder).await;
    drop(in_flight);
    let took = started.elapsed();
    match label {
        Label::Served(e) => shared.metrics.call(&e.spec.canonical, Some(&e.usual), outcome, took),
        Label::Other(word) => shared.metrics.call(word, None, outcome, took),
    }
}

/// Whose figures a call counts in.
enum Label {
    Served(Arc<Entry>),
    /// A tool that is not served has no figures of its own: names from outside must not fill the memory.
    Other(&'static str),
}

/// A call's parts, checked for shape.
pub(crate) struct Parts<'a> {
    pub name: Cow<'a, str>,
    pub params: &'a RawObject,
    pub arguments: Option<&'a RawObject>,
}

fn parts(exchange: &Exchange) -> Result<Parts<'_>, RpcError> {
    let named = exchange.request.params.as_ref().and_then(|p| Some((p, p.string("name")?)));
    let (params, name) = named.ok_or_else(|| RpcError::malformed("params.name must be a string"))?;
    let arguments = exchange.request.arguments.as_ref();
    if arguments.is_none() && params.has("arguments") {
        return Err(RpcError::malformed("params.arguments must be an object"));
    }
    Ok(Parts { name, params, arguments })
}

async fn answer_call(
    shared: &Arc<Shared>,
    exchange: &Exchange,
    responder: Responder,
) -> (Label, &'static str) {
    let parts = match parts(exchange) {
        Ok(p) => p,
        Err(e) => {
            responder.answer(e);
            return (Label::Other("(malformed)"), "refused");
        }
    };
    let served = shared.served(&exchange.caller.extensions);
    let entry = served.catalog.by_name(&parts.name).cloned();
    let label = entry.clone().map_or(Label::Other("(unknown)"), Label::Served);
    // Only the modern era over HTTP mirrors arguments into headers.
    let mirrors = exchange.caller.transport == Transport::Http && !exchange.caller.revision.is_legacy();
    if let Some(e) = entry.as_ref().filter(|_| mirrors)
        && let Err(e) = e.header_params.check(&exchange.caller.headers, parts.arguments)
    {
        responder.answer(e);
        return (label, "refused");
    }
    if let Some(e) = &entry {
        note_deprecated(shared, exchange, e);
        if let Body::Read(tool) = &e.body {
            if let Some(Err(missing)) =
                e.requires.as_ref().map(|r| r.check(exchange.meta.client_capabilities()))
            {
                responder.answer(missing);
                return (label, "refused");
            }
            // A read goes on when its client leaves, so connections alone don't bound them.
            let Ok(_reading) = shared.reads.try_acquire() else {
                responder.answer(error_outcome(shared, exchange, &busy(), Some(e)));
                return (label, "busy");
            };
            let outcome =
                read(shared, exchange, e, tool.as_ref(), parts.arguments, responder.notifier()).await;
            responder.answer(outcome);
            return (label, "read");
        }
    }
    let outcome = Box::pin(ledgered(shared, exchange, entry.as_deref(), parts, responder)).await;
    (label, outcome)
}

/// Counts the call of a tool that works with a deprecated capability of its client.
fn note_deprecated(shared: &Shared, exchange: &Exchange, entry: &Entry) {
    let Some(requires) = &entry.requires else { return };
    for (needed, name, feature) in
        [(requires.roots, "roots", Deprecated::Roots), (requires.sampling, "sampling", Deprecated::Sampling)]
    {
        if needed && exchange.meta.has(name) {
            shared.usage.deprecated(shared.ledger.store().now(), feature, exchange.meta.client_info());
        }
    }
}

async fn read(
    shared: &Arc<Shared>,
    exchange: &Exchange,
    entry: &Entry,
    tool: &dyn crate::tool::ReadTool,
    arguments: Option<&RawObject>,
    notifier: Notifier,
) -> Outcome {
    let given = arguments.cloned().unwrap_or_else(RawObject::empty);
    let principal = principal_of(&exchange.caller.extensions);
    let held = match entry.schema.check(&given) {
        Ok(()) => limits::hold_for_read(shared, entry, &principal, &given).await,
        Err(e) => Err(limits::Unfit::Arguments(e)),
    };
    let result = match held {
        Ok(held) => {
            let of = Of { asker: Asker::ToolsCall, name: &entry.spec.canonical, arguments };
            let timeout = entry.settings.policy.timeout;
            let (reading, context) = match Reading::begin(shared, exchange, of, timeout, notifier).await {
                Ok(begun) => begun,
                Err(e) => return e.into(),
            };
            if let Some(account) = tool.own_account() {
                let before = connect::before_read(shared, exchange, entry, &account, &reading, &context);
                if let Some(instead) = Box::pin(before).await {
                    return instead;
                }
            }
            let read = tool.read(context, given).await;
            held.end().await;
            if let Some(asked) = reading.end(read.is_ok()).await {
                return asked;
            }
            read
        }
        Err(limits::Unfit::Arguments(e)) => Err(e),
        Err(limits::Unfit::Refused(e)) => return error_outcome(shared, exchange, &e, Some(entry)),
    };
    match result {
        Ok(r) => {
            let text = String::from_utf8(r.result).unwrap_or_else(|e| text(e.as_bytes()));
            shared.result(exchange, text, &[])
        }
        Err(e) => error_outcome(shared, exchange, &answer::bad_arguments(&e.0), Some(entry)),
    }
}

/// The text of a result that was made or stored as bytes.
pub(crate) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

pub(crate) fn error_outcome(
    shared: &Shared,
    exchange: &Exchange,
    e: &CallError,
    entry: Option<&Entry>,
) -> Outcome {
    let (body, object) = answer::result(e, entry.is_some_and(|e| e.spec.output_schema.is_some()));
    shared.result(exchange, body.to_string(), &[(answer::META_ERROR, object.as_str())])
}

pub(crate) use calls::answer::{BUSY, busy};

/// Whose call, of which tool, saying what: enough for the ledger's look-up.
pub(crate) struct Asked<'a> {
    pub principal: Arc<str>,
    /// The tool, if it is served now.
    pub entry: Option<&'a Entry>,
    /// Its canonical id.
    pub id: Arc<str>,
    pub arguments: Option<&'a RawObject>,
    pub key: Option<CallerKey>,
    /// Overrides the tool's settings.
    pub settings: ToolSettings,
}

/// The fingerprint of a call of the tool of this id, which may not be served any more.
pub(crate) fn fingerprint(
    entry: Option<&Entry>,
    id: &str,
    arguments: Option<&RawObject>,
) -> Result<Fingerprint, ledger::CanonicalError> {
    let leave_out = entry.is_none_or(|e| e.key_is_ours).then_some(KEY_ARGUMENT);
    let raw = arguments.map(RawObject::raw);
    let canonical = canonicalise_arguments(raw.as_ref().map(Raw::as_str), leave_out)?;
    Ok(Fingerprint::of(id, &canonical))
}

impl Asked<'_> {
    /// The call as the ledger sees it.
    pub fn call(&self, mode: &Arc<str>) -> Result<Call, ledger::CanonicalError> {
        let tool = self.id.clone();
        Ok(Call {
            fingerprint: fingerprint(self.entry, &tool, self.arguments)?,
            scope: Scope { principal: self.principal.clone(), tool, mode: mode.clone() },
            key: self.key.clone(),
            unkeyed: self.settings.unkeyed,
            guard_window: self.settings.policy.guard_window,
            wait: self.settings.wait,
            named: None,
            answers: Vec::new(),
            lease_of_caller: ledger::Millis(0),
            hears_progress: false,
        })
    }
}

/// What a new operation of this tool needs. Nothing is claimed of what is limited.
pub(crate) fn creation(
    entry: &Entry,
    tool: &dyn Tool,
    arguments: Option<&RawObject>,
    settings: &ToolSettings,
    whose: Whose<'_>,
) -> Result<Creation, Unfit> {
    let empty = RawObject::empty();
    let given = arguments.unwrap_or(&empty);
    let stripped = if entry.key_is_ours { without(given, KEY_ARGUMENT) } else { given.clone() };
    entry.schema.check(&stripped)?;
    let intent = tool.plan(&stripped)?;
    let allowances = settings.limits.of_call(whose, &stripped)?;
    let mut asks = Vec::new();
    if settings.approval.is_needed(&stripped) {
        let asked = preview::ask(&entry.spec.canonical, intent.as_ref(), &stripped, &settings.approval);
        let unfit = |e| BadArguments(format!("a person has to approve them and can't be shown them: {e}"));
        asks.push(asked.map_err(unfit)?);
    }
    let arguments = intent.is_none().then(|| stripped.raw().as_str().as_bytes().to_vec());
    let gate = settings.limits.gate();
    Ok(Creation { policy: settings.policy.clone(), intent, arguments, asks, allowances, gate })
}

/// The canonical id of a tool that is not served any more, from the caller's own recent operations: what was
/// opened under it is still answered.
pub(crate) async fn removed(shared: &Shared, principal: &str, name: &str) -> Option<Arc<str>> {
    let query = Query { principal: Some(principal.to_owned()), limit: 200, ..Query::default() };
    let recent = shared.ledger.list(&query).await.ok()?;
    recent.into_iter().map(|op| op.scope.tool).find(|tool| provider::wire_name(tool) == name)
}

pub(crate) fn shorten(name: &str) -> String {
    name.chars().take(64).collect()
}

/// `_meta["dev.counterfoil/operation"]`.
pub(crate) fn operation_meta(
    op: &Operation,
    replayed: bool,
    joined_by: Option<ledger::JoinedBy>,
    nonce: &str,
) -> String {
    calls::answer::operation(op, replayed, joined_by, nonce)
}
