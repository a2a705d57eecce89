//! `POST /api/v1/exec` on the gateway's listener, for tool handlers in any language: as the caller that its credential
//! says, behind the same door as the endpoint. And `GET /api/openapi.json`, which describes it.

use super::body::{self, Body};
use super::key::Step;
use super::{Executed, Unfit, Wanted, description, error, known, outcome, plan, run};
use crate::answer;
use crate::call::{self, shorten};
use crate::catalog::Entry;
use crate::keys::{self, KeyTrouble};
use crate::metrics::Counted;
use crate::principal::principal_of;
use crate::service::Shared;
use crate::tool::Body::Mutating as Changing;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{any, get};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use ledger::{CallError, CallerKey, Carrier, DeliveryState, Key, Operation};
use mcp::json::{RawObject, quote};
use mcp::server::{Admitted, Delivering, Delivery, Door, HttpConfig, HttpRefusal};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Where executions are asked for.
pub(super) const PATH: &str = "/api/v1/exec";
/// Where that is described.
const DESCRIPTION: &str = "/api/openapi.json";

struct Route {
    shared: Arc<Shared>,
    door: Door,
    /// Work that a shutdown waits for.
    tasks: TaskTracker,
}

/// The routes.
pub(crate) fn router(shared: &Arc<Shared>, http: &HttpConfig) -> Router {
    let route = Route { shared: shared.clone(), door: Door::new(http), tasks: http.tasks.clone() };
    Router::new().route(PATH, any(execute)).route(DESCRIPTION, get(describe)).with_state(Arc::new(route))
}

/// An answer that is no outcome.
struct Failure {
    status: StatusCode,
    code: &'static str,
    message: String,
    headers: HeaderMap,
}

impl Failure {
    fn of(status: StatusCode, code: &'static str, message: impl Into<String>) -> Failure {
        Failure { status, code, message: message.into(), headers: HeaderMap::new() }
    }

    fn usage(message: impl std::fmt::Display) -> Failure {
        Failure::of(StatusCode::BAD_REQUEST, "usage", format!("{message}. Nothing ran."))
    }

    fn json(&self) -> Value {
        json!({ "error": { "code": self.code, "message": self.message } })
    }

    /// Before there is anything to answer to.
    fn alone(self) -> Response {
        alone(self.status, self.headers.clone(), &self.json())
    }
}

/// A response whose fate nobody asks for.
fn alone(status: StatusCode, headers: HeaderMap, json: &Value) -> Response {
    let mut response = Response::new(axum::body::Body::from(json.to_string()));
    *response.status_mut() = status;
    let all = response.headers_mut();
    all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    all.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    all.extend(headers);
    response
}

impl From<HttpRefusal> for Failure {
    fn from(refusal: HttpRefusal) -> Failure {
        let status = refusal.error.http_status;
        let code = match status {
            StatusCode::UNAUTHORIZED => "unauthorized",
            StatusCode::FORBIDDEN => "forbidden",
            StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
            StatusCode::NOT_ACCEPTABLE => "not_acceptable",
            StatusCode::REQUEST_TIMEOUT => "timeout",
            StatusCode::PAYLOAD_TOO_LARGE => "too_large",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported_media_type",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable",
            _ => "usage",
        };
        Failure { status, code, message: refusal.error.message, headers: refusal.headers }
    }
}

/// What a request is answered.
enum Reply {
    /// What came of an execution, or would: the document.
    Done(String),
    /// An error of the ledger, or one that is told like one.
    Error(Box<CallError>),
    Failure(Box<Failure>),
}

impl From<Unfit> for Reply {
    fn from(e: Unfit) -> Reply {
        match e {
            Unfit::Arguments(why) => Reply::Error(Box::new(answer::bad_arguments(&why))),
            Unfit::NotHere(why) => Reply::Failure(Box::new(Failure::usage(why))),
            Unfit::Call(e) => Reply::Error(e),
        }
    }
}

impl Reply {
    /// The response, and what becomes of it. `keyed`: the request had a key, or changes nothing.
    fn send(self, to: &Admitted, keyed: bool) -> (Response, Delivering) {
        let (status, headers, json) = match self {
            Reply::Done(json) => (StatusCode::OK, HeaderMap::new(), json),
            Reply::Error(e) => (outcome::status(e.kind, keyed), pause(&e, keyed), error(&e).to_string()),
            Reply::Failure(failure) => {
                let json = failure.json().to_string();
                (failure.status, failure.headers, json)
            }
        };
        let (mut response, delivering) = to.answer(status, json);
        response.headers_mut().extend(headers);
        (response, delivering)
    }
}

/// When the very same may be sent again, where that is what to do: in whole seconds, one at least.
fn pause(e: &CallError, keyed: bool) -> HeaderMap {
    if !outcome::comes_again(e.kind, keyed) {
        return HeaderMap::new();
    }
    let seconds = e.retry_after.map_or(1, |p| p.0.max(0).saturating_add(999) / 1000).clamp(1, 3600);
    HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from(seconds))])
}

async fn describe(State(route): State<Arc<Route>>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    if let Some(refusal) = route.door.stranger(&head) {
        return Failure::from(refusal).alone();
    }
    alone(StatusCode::OK, HeaderMap::new(), &description::of(&route.shared.settings.version))
}

async fn execute(State(route): State<Arc<Route>>, request: Request) -> Response {
    let admitted = match route.door.admit(request).await {
        Ok(admitted) => admitted,
        Err(refusal) => return Failure::from(refusal).alone(),
    };
    // It goes on when its caller leaves, who is known to be gone by this.
    let present = CancellationToken::new();
    let gone = present.clone();
    let _left = present.drop_guard();
    let (sender, answered) = oneshot::channel();
    let (here, keyed) = (route.clone(), Arc::new(AtomicBool::new(false)));
    let found = keyed.clone();
    route.tasks.spawn(async move { here.work(admitted, gone, sender, &found).await });
    tokio::select! {
        response = answered => response.unwrap_or_else(|_| failed()),
        () = route.door.drained() => stopping(keyed.load(Ordering::Relaxed)),
    }
}

/// A panic. What it had begun is the ledger's to end.
fn failed() -> Response {
    let message = "The gateway failed before it could answer. What was asked may have taken effect; ask again with the same key, or look before you repeat it.";
    Failure::of(StatusCode::INTERNAL_SERVER_ERROR, "internal", message).alone()
}

fn stopping(keyed: bool) -> Response {
    let e = super::stopping();
    alone(outcome::status(e.kind, keyed), pause(&e, keyed), &error(&e))
}

impl Route {
    /// `keyed` is set once the request is known to have a key, or to change nothing.
    async fn work(
        &self,
        admitted: Admitted,
        gone: CancellationToken,
        to: oneshot::Sender<Response>,
        keyed: &AtomicBool,
    ) {
        let shared = &self.shared;
        let (started, metrics) = (Instant::now(), &shared.metrics);
        let in_flight = Counted::new(&metrics.in_flight);
        let asked = self.read(&admitted).await;
        keyed.store(asked.as_ref().is_ok_and(Asked::repeats), Ordering::Relaxed);
        let (word, reply, stored) = match &asked {
            Err(_) => ("refused", None, None),
            Ok(asked) => {
                let (word, reply, stored) = Box::pin(self.carry_out(asked, gone)).await;
                (word, Some(reply), stored)
            }
        };
        drop(in_flight);
        let took = started.elapsed();
        let reply = match asked {
            Ok(Asked { which: Which::Served(entry), .. }) => {
                metrics.call(&entry.spec.canonical, Some(&entry.usual), word, took);
                reply
            }
            Ok(_) => {
                metrics.call("(unknown)", None, word, took);
                reply
            }
            Err(refused) => {
                metrics.call("(unknown)", None, word, took);
                Some(refused)
            }
        };
        let Some(reply) = reply else { return };
        let (response, delivering) = reply.send(&admitted, keyed.load(Ordering::Relaxed));
        // Whoever asked may have left: then the response is dropped, and says so.
        drop(to.send(response));
        if let Some(operation) = stored {
            let state = match delivering.await {
                Delivery::Written => DeliveryState::Written,
                Delivery::Undelivered => DeliveryState::Undelivered,
            };
            shared.ledger.delivered(&operation, state);
        }
    }

    /// The word for it, what is answered, and the operation whose result that is.
    async fn carry_out(
        &self,
        asked: &Asked,
        gone: CancellationToken,
    ) -> (&'static str, Reply, Option<Arc<Operation>>) {
        let entry = match &asked.which {
            Which::Served(entry) => entry,
            Which::Elsewhere { entry, id } => {
                let settings = entry.as_ref().map(|e| e.settings.clone()).unwrap_or_default();
                let again = call::Asked {
                    principal: asked.principal.clone(),
                    entry: entry.as_deref(),
                    id: id.clone(),
                    arguments: asked.arguments.as_ref(),
                    key: asked.key.clone(),
                    settings,
                };
                return match known(&self.shared, &again, gone.cancelled_owned()).await {
                    Some(executed) => told(executed),
                    None => ("refused", unknown(&asked.id), None),
                };
            }
        };
        if asked.dry_run {
            let shown = plan(entry, asked.arguments.as_ref()).map(for_callers);
            return ("dry_run", shown.map_or_else(Reply::from, |plan| Reply::Done(plan.to_string())), None);
        }
        let wanted = Wanted {
            entry,
            principal: asked.principal.clone(),
            arguments: asked.arguments.clone(),
            key: asked.key.clone(),
            unkeyed: entry.settings.unkeyed,
            wait: entry.settings.wait,
            yields: true,
        };
        match run(&self.shared, wanted, gone.cancelled_owned()).await {
            Err(unfit) => ("refused", unfit.into(), None),
            Ok(executed) => told(executed),
        }
    }

    /// What is asked, of whom, and under which key.
    async fn read(&self, admitted: &Admitted) -> Result<Asked, Reply> {
        let Body { id, arguments, key, step, dry_run } =
            body::read(admitted.body.clone(), &self.door.limits()).map_err(|e| usage(&e))?;
        let principal = principal_of(&admitted.extensions);
        let carried = Keys { headers: &admitted.headers, arguments: arguments.as_ref(), key, step };
        let (which, key) = match self.shared.served(&admitted.extensions).catalog.find(&id).cloned() {
            Some(entry) => {
                let key = carried.find(Some(&entry), &entry.spec.canonical)?;
                (Which::Served(entry), key)
            }
            // A dry run is of what could be begun.
            None if dry_run => return Err(unknown(&id)),
            None => {
                let gone = call::removed(&self.shared, &principal, &id).await;
                // One of another view; asked for after the ledger, so that it takes as long as one that isn't there.
                let elsewhere = self.shared.catalog().find(&id).cloned();
                let canonical = elsewhere.as_ref().map(|e| e.spec.canonical.clone()).or(gone);
                let canonical = canonical.unwrap_or_else(|| id.as_str().into());
                let entry = elsewhere.filter(|e| matches!(e.body, Changing(_)));
                // Nothing is said of a key for a method that isn't there.
                let Ok(Some(key)) = carried.find(entry.as_deref(), &canonical) else {
                    return Err(unknown(&id));
                };
                (Which::Elsewhere { entry, id: canonical }, Some(key))
            }
        };
        Ok(Asked { which, id, principal, arguments, key, dry_run })
    }
}

fn usage(why: &str) -> Reply {
    Reply::Failure(Box::new(Failure::usage(why)))
}

/// There is no such method, or none for whoever asks.
fn unknown(id: &str) -> Reply {
    let message =
        format!("there is no method {}; `counterfoil methods` lists them. Nothing ran.", quote(&shorten(id)));
    Reply::Failure(Box::new(Failure::of(StatusCode::NOT_FOUND, "unknown_method", message)))
}

/// The word for what came of it, what is answered, and the operation whose result that is.
fn told(executed: Executed) -> (&'static str, Reply, Option<Arc<Operation>>) {
    match executed {
        Executed::Error(e) => ("error", Reply::Error(e), None),
        Executed::Busy => ("busy", Reply::Error(Box::new(call::busy())), None),
        // Nobody reads it.
        Executed::Gone => ("gone", Reply::Error(Box::new(super::stopping())), None),
        executed => {
            let reply = Reply::Done(executed.document());
            match executed {
                Executed::Stored { operation, replayed, .. } => {
                    (if replayed { "replayed" } else { "completed" }, reply, Some(operation))
                }
                _ => ("read", reply, None),
            }
        }
    }
}

/// What of a recorded request is for operators alone: how its account is marked, and how it recovers.
const OPERATORS: [&str; 5] = ["credential", "policy", "lookup", "conflict", "account"];

/// A plan as callers see it.
fn for_callers(mut plan: Value) -> Value {
    if let Some(request) = plan.pointer_mut("/wouldSend/request").and_then(Value::as_object_mut) {
        for member in OPERATORS {
            request.shift_remove(member);
        }
    }
    plan
}

/// Where a request may have its key.
struct Keys<'a> {
    headers: &'a HeaderMap,
    arguments: Option<&'a RawObject>,
    key: Option<Key>,
    step: Option<Step>,
}

impl Keys<'_> {
    /// The key for the method of this canonical id, which may not be served any more.
    fn find(self, entry: Option<&Entry>, id: &str) -> Result<Option<CallerKey>, Reply> {
        let beside = keys::beside(self.headers, self.arguments, entry.is_none_or(|e| e.key_is_ours));
        let beside = beside.map_err(|trouble| match trouble {
            KeyTrouble::Program(e) => {
                Reply::Failure(Box::new(Failure::of(StatusCode::BAD_REQUEST, "usage", e.message)))
            }
            KeyTrouble::Model(e) => Reply::Error(e),
        })?;
        let key = match (self.key, beside) {
            (Some(key), Some(other)) if key != other.key => {
                let why = "key: two carriers of the idempotency key disagree; send one, or the same in all";
                return Err(usage(why));
            }
            (Some(key), _) => Some(CallerKey { key, carrier: Carrier::Program }),
            (None, beside) => beside,
        };
        match (key, self.step) {
            (Some(_), Some(_)) => {
                let why =
                    "key, operation: the steps of an operation have keys of their own; give one of the two";
                Err(usage(why))
            }
            (Some(key), None) => Ok(Some(key)),
            (None, Some(step)) => {
                let fingerprint = call::fingerprint(entry, id, self.arguments)
                    .map_err(|e| Reply::Error(Box::new(answer::bad_arguments(&e.to_string()))))?;
                let key = step.key(&fingerprint).map_err(|e| usage(&format!("operation: {e}")))?;
                Ok(Some(CallerKey { key, carrier: Carrier::Program }))
            }
            (None, None) => Ok(entry.and_then(|e| keys::derived(self.arguments, &e.settings.key_from))),
        }
    }
}

/// Which method it is.
enum Which {
    /// One that whoever asks is served.
    Served(Arc<Entry>),
    /// One that whoever asks isn't shown, or that is not there any more: what is known of it is answered, and nothing is
    /// opened.
    Elsewhere {
        entry: Option<Arc<Entry>>,
        /// Its canonical id.
        id: Arc<str>,
    },
}

/// A request that holds together.
struct Asked {
    which: Which,
    /// The method as it was called.
    id: String,
    principal: Arc<str>,
    arguments: Option<RawObject>,
    key: Option<CallerKey>,
    /// It is only to be shown.
    dry_run: bool,
}

impl Asked {
    /// Whether the very same once more is the same operation, or changes nothing.
    fn repeats(&self) -> bool {
        let reads = matches!(&self.which, Which::Served(entry) if !matches!(entry.body, Changing(_)));
        self.key.is_some() || self.dry_run || reads
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn who_stops_invites_nobody_to_repeat_what_has_no_key() {
        let told = |keyed| {
            let response = stopping(keyed);
            (response.status(), response.headers().contains_key(RETRY_AFTER))
        };
        assert_eq!(told(true), (StatusCode::SERVICE_UNAVAILABLE, true));
        assert_eq!(told(false), (StatusCode::CONFLICT, false));
    }

    #[test]
    fn callers_are_shown_the_request_alone() {
        let request = json!({ "method": "POST", "url": [], "credential": "m", "policy": {}, "lookup": {}, "conflict": {}, "account": "a", "body": [] });
        let plan = json!({ "wouldSend": { "summary": "s", "request": request, "credential": { "header": "h" } }, "needs": [] });
        let shown = for_callers(plan)["wouldSend"].clone();
        let members: Vec<String> = shown["request"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(members, ["method", "url", "body"]);
        assert_eq!(shown["credential"]["header"], "h");
        let refused = json!({ "wouldSend": null, "refused": {} });
        assert_eq!(for_callers(refused.clone()), refused);
    }
}
