//! `POST /api/v1/exec` on the gateway's listener, for tool handlers in any language: as the caller that its credential
//! says, behind the same door as the endpoint. And `GET /api/openapi.json`, which describes it.

use super::body::{self, Body};
use super::{Executed, Unfit, Wanted, description, error, outcome, plan, run};
use crate::answer;
use crate::call::{self, shorten};
use crate::catalog::Entry;
use crate::keys::{self, KeyTrouble};
use crate::principal::principal_of;
use crate::service::Shared;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{any, get};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use ledger::{CallError, CallerKey, Carrier, DeliveryState, Kind, Millis, Operation};
use mcp::json::{RawObject, quote};
use mcp::server::{Admitted, Delivering, Delivery, Door, HttpConfig, HttpRefusal};
use serde_json::{Value, json};
use std::sync::Arc;
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
    /// What came of an execution, or would.
    Done(Value),
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
    /// The response, and what becomes of it.
    fn send(self, to: &Admitted) -> (Response, Delivering) {
        let (status, headers, json) = match self {
            Reply::Done(json) => (StatusCode::OK, HeaderMap::new(), json),
            Reply::Error(e) => (outcome::status(e.kind), pause(&e), error(&e)),
            Reply::Failure(failure) => {
                let json = failure.json();
                (failure.status, failure.headers, json)
            }
        };
        let (mut response, delivering) = to.answer(status, json.to_string());
        response.headers_mut().extend(headers);
        (response, delivering)
    }
}

/// When the same may be sent again, where that is what to do: in whole seconds, one at least.
fn pause(e: &CallError) -> HeaderMap {
    if !outcome::comes_again(e.kind) {
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
    let here = route.clone();
    route.tasks.spawn(async move { here.work(admitted, gone, sender).await });
    tokio::select! {
        response = answered => response.unwrap_or_else(|_| failed()),
        () = route.door.drained() => stopping(),
    }
}

/// A panic. What it had begun is the ledger's to end.
fn failed() -> Response {
    let message = "The gateway failed before it could answer. What was asked may have taken effect; ask again with the same key, or look before you repeat it.";
    Failure::of(StatusCode::INTERNAL_SERVER_ERROR, "internal", message).alone()
}

fn stopping() -> Response {
    let e = CallError {
        retry_after: Some(Millis::secs(1)),
        ..CallError::plain(
            Kind::AdmissionUnknown,
            "The gateway stops before this is answered, so it is not known how it ends.",
            "Send the very same again: with its key, or the same operation and step, nothing is done twice.",
        )
    };
    alone(outcome::status(e.kind), pause(&e), &error(&e))
}

impl Route {
    async fn work(&self, admitted: Admitted, gone: CancellationToken, to: oneshot::Sender<Response>) {
        let shared = &self.shared;
        let (started, metrics) = (Instant::now(), &shared.metrics);
        metrics.in_flight.inc();
        let asked = self.read(&admitted);
        let (word, reply, stored) = match &asked {
            Err(_) => ("refused", None, None),
            Ok(asked) => {
                let (word, reply, stored) = Box::pin(self.carry_out(asked, gone)).await;
                (word, Some(reply), stored)
            }
        };
        metrics.in_flight.dec();
        let took = started.elapsed();
        let reply = match asked {
            Ok(Asked { entry, .. }) => {
                metrics.call(&entry.spec.canonical, Some(&entry.usual), word, took);
                reply
            }
            Err(refused) => {
                metrics.call("(unknown)", None, word, took);
                Some(refused)
            }
        };
        let Some(reply) = reply else { return };
        let (response, delivering) = reply.send(&admitted);
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
        let entry = &asked.entry;
        if asked.dry_run {
            let reply = plan(entry, asked.arguments.as_ref()).map_or_else(Reply::from, Reply::Done);
            return ("dry_run", reply, None);
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
            Ok(Executed::Error(e)) => ("error", Reply::Error(e), None),
            Ok(Executed::Busy) => ("busy", Reply::Error(Box::new(call::busy())), None),
            // Nobody reads it.
            Ok(Executed::Gone) => ("gone", Reply::Error(Box::new(super::stopping())), None),
            Ok(executed) => {
                let reply = Reply::Done(executed.view());
                match executed {
                    Executed::Stored { operation, replayed, .. } => {
                        (if replayed { "replayed" } else { "completed" }, reply, Some(operation))
                    }
                    _ => ("read", reply, None),
                }
            }
        }
    }

    /// What is asked, of whom, and under which key.
    fn read(&self, admitted: &Admitted) -> Result<Asked, Reply> {
        let usage = |why: &str| Reply::Failure(Box::new(Failure::usage(why)));
        let Body { id, arguments, key, step, dry_run } =
            body::read(admitted.body.clone(), &self.door.limits()).map_err(|e| usage(&e))?;
        let Some(entry) = self.shared.served(&admitted.extensions).catalog.find(&id).cloned() else {
            let message = format!(
                "there is no method {}; `counterfoil methods` lists them. Nothing ran.",
                quote(&shorten(&id))
            );
            return Err(Reply::Failure(Box::new(Failure::of(
                StatusCode::NOT_FOUND,
                "unknown_method",
                message,
            ))));
        };
        let beside = keys::beside(&admitted.headers, arguments.as_ref(), entry.key_is_ours);
        let beside = beside.map_err(|trouble| match trouble {
            KeyTrouble::Program(e) => {
                Reply::Failure(Box::new(Failure::of(StatusCode::BAD_REQUEST, "usage", e.message)))
            }
            KeyTrouble::Model(e) => Reply::Error(e),
        })?;
        let key = match (key, beside) {
            (Some(key), Some(other)) if key != other.key => {
                let why = "key: two carriers of the idempotency key disagree; send one, or the same in all";
                return Err(usage(why));
            }
            (Some(key), _) => Some(CallerKey { key, carrier: Carrier::Program }),
            (None, beside) => beside,
        };
        let key = match (key, step) {
            (Some(_), Some(_)) => {
                let why =
                    "key, operation: the steps of an operation have keys of their own; give one of the two";
                return Err(usage(why));
            }
            (Some(key), None) => Some(key),
            (None, Some(step)) => {
                let fingerprint = call::fingerprint(Some(&entry), &entry.spec.canonical, arguments.as_ref())
                    .map_err(|e| Reply::Error(Box::new(answer::bad_arguments(&e.to_string()))))?;
                let key = step.key(&fingerprint).map_err(|e| usage(&format!("operation: {e}")))?;
                Some(CallerKey { key, carrier: Carrier::Program })
            }
            (None, None) => keys::derived(arguments.as_ref(), &entry.settings.key_from),
        };
        let principal = principal_of(&admitted.extensions);
        Ok(Asked { entry, principal, arguments, key, dry_run })
    }
}

/// A request that holds together.
struct Asked {
    entry: Arc<Entry>,
    principal: Arc<str>,
    arguments: Option<RawObject>,
    key: Option<CallerKey>,
    /// It is only to be shown.
    dry_run: bool,
}
