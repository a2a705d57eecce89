//! From a call of a ledgered tool to its answer: principal, key, fingerprint, ledger, delivery.

use crate::Durable;
use crate::run;
use crate::seat::{self, SEAT, Said};
use crate::stored;
use crate::tools::{Facts, Served};
use calls::answer::{self, META_ACK, META_ERROR, META_OPERATION};
use calls::argument::KEY_ARGUMENT;
use calls::key::{self, Carried, Carriers, META_KEY, Trouble};
use http::HeaderMap;
use http::request::Parts;
use ledger::canonical::canonicalise_arguments;
use ledger::{Answer, Call, CallError, Creation, DeliveryState, Fingerprint, Kind, Millis, Scope};
use rmcp::model::{CallToolRequestParams, CallToolResponse, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use std::sync::Arc;

/// The principal where nobody says who is calling.
const ANONYMOUS: &str = "anonymous";
/// The mode in every scope.
const MODE: &str = "production";
/// The longest name of a principal or tool that is recorded, in bytes.
const LONGEST_NAME: usize = 512;
/// The most bytes of arguments that are recorded.
const MOST_ARGUMENTS: usize = 4 << 20;

/// What ends a call before anything is written.
enum Before {
    Unknown,
    Busy,
}

impl<H: ServerHandler> Durable<H> {
    /// Who is calling.
    ///
    /// # Errors
    /// The caller is not known: nothing ran.
    pub(crate) fn principal_of(&self, context: &RequestContext<RoleServer>) -> Result<Arc<str>, ErrorData> {
        let Some(who) = &self.config.principal else { return Ok(ANONYMOUS.into()) };
        match who(context.extensions.get::<Parts>()) {
            Some(name) if !name.is_empty() && name.len() <= LONGEST_NAME => Ok(name.into()),
            _ => Err(ErrorData::invalid_request("it is not known who is calling, so nothing ran", None)),
        }
    }

    /// Acknowledges the deliveries that a request names; wrong nonces are ignored.
    pub(crate) async fn hear(&self, context: &RequestContext<RoleServer>) {
        let running = self.running();
        let Some(Value::Array(nonces)) = context.meta.get(META_ACK) else { return };
        let Ok(principal) = self.principal_of(context) else { return };
        for nonce in nonces.iter().filter_map(Value::as_str).take(calls::MAX_ACKS) {
            running.ledger.acknowledge(&principal, nonce).await;
        }
    }

    /// Answers a call, past the ledger where its tool only reads.
    pub(crate) async fn answer_call(
        &self,
        request: CallToolRequestParams,
        mut context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.hear(&context).await;
        // Only the ledger says this.
        context.meta.remove(seat::META_EFFECT_KEY);
        if self.config.read_only.contains(&*request.name) {
            return self.handler.call_tool(request, context).await;
        }
        let served = self.served(&request.name, &context).await;
        if matches!(served, Served::Yes(facts) if facts.reads) {
            return self.handler.call_tool(request, context).await;
        }
        Box::pin(self.ledgered(served, request, context)).await
    }

    async fn ledgered(
        &self,
        served: Served,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let facts = match served {
            Served::Yes(facts) => facts,
            // It may have been served when it was called first.
            Served::No => {
                Facts { reads: false, key_is_ours: self.config.key_argument, has_output_schema: false }
            }
            Served::Unsaid => Facts { reads: false, key_is_ours: false, has_output_schema: false },
        };
        let error = |e: &CallError| {
            let (body, object) = answer::result(e, facts.has_output_schema);
            Ok(CallToolResponse::Complete(stored::error(body, META_ERROR, object)))
        };
        let principal = self.principal_of(&context)?;
        if request.name.len() > LONGEST_NAME {
            return Err(ErrorData::invalid_params("the tool's name is too long; nothing ran", None));
        }
        let found = key::find(carriers(&request, &context, facts.key_is_ours));
        let key = match found {
            Ok(key) => key,
            Err(Trouble::Program(why)) => return Err(ErrorData::invalid_params(why, None)),
            Err(Trouble::Model(e)) => return error(&e),
        };
        let arguments = stripped(request.arguments.as_ref(), facts.key_is_ours);
        let text = arguments.as_ref().map(|a| Value::Object(a.clone()).to_string());
        if text.as_ref().is_some_and(|t| t.len() > MOST_ARGUMENTS) {
            return error(&answer::bad_arguments("they are too many to be recorded; send less at once"));
        }
        let canonical = match canonicalise_arguments(text.as_deref(), None) {
            Ok(canonical) => canonical,
            Err(e) => return error(&answer::bad_arguments(&e.to_string())),
        };
        let tool: Arc<str> = (*request.name).into();
        let call = Call {
            fingerprint: Fingerprint::of(&tool, &canonical),
            scope: Scope { principal, tool, mode: MODE.into() },
            key,
            unkeyed: self.config.unkeyed,
            guard_window: self.config.guard_window,
            wait: self.config.wait(),
            named: None,
            answers: Vec::new(),
            lease_of_caller: Millis(0),
            hears_progress: false,
        };
        let ledger = &self.running().ledger;
        let create = || -> Result<Creation, Before> {
            if served == Served::No {
                return Err(Before::Unknown);
            }
            if ledger.running() >= self.config.most_at_once {
                return Err(Before::Busy);
            }
            Ok(Creation {
                policy: self.config.policy(),
                intent: Some(run::intent(&self.config, &request.name, arguments.as_ref())),
                arguments: None,
                asks: Vec::new(),
                allowances: Vec::new(),
                gate: None,
            })
        };
        let gone = context.ct.clone();
        let (seat, ear, mut bench) =
            seat::seat(self.handler.clone(), request.clone(), context, call.scope.clone(), call.fingerprint);
        let answered = {
            let answering = ledger.call(&call, &create, gone.cancelled(), |_| {});
            let mut answering = std::pin::pin!(SEAT.scope(seat, answering));
            tokio::select! {
                biased;
                answer = answering.as_mut() => answer,
                () = bench.serve() => answering.await,
            }
        };
        // A handler that is still at it goes on without this call.
        drop(bench);
        match answered.map(|answer| ledger.or_error(&call, answer)) {
            Ok(Answer::Result { operation, result, replayed, joined_by }) => {
                let nonce = ledger.ack_nonce(&call.scope.principal, operation.id);
                let about = answer::operation(&operation, replayed, joined_by, &nonce);
                // The SDK does not say whether an answer was written: one that is handed over while its caller is there
                // counts as written. A repetition of that call is told so, and never runs.
                let gone = gone.is_cancelled();
                let state = if gone { DeliveryState::Undelivered } else { DeliveryState::Written };
                ledger.delivered(&operation, state);
                match stored::read(&result) {
                    Some(kept) => stored::answer(kept, META_OPERATION, raw(&about)),
                    None => Err(ErrorData::internal_error(
                        format!("the result of {} can't be read; nothing ran again", operation.id),
                        None,
                    )),
                }
            }
            Ok(Answer::Error(e)) => match ear.heard() {
                // This call's own run did nothing, and says why.
                Some(Said::Asks(asks)) => Ok(CallToolResponse::InputRequired(asks)),
                Some(Said::Fails(e)) => Err(e),
                None => error(&e),
            },
            // Nobody reads it; the SDK still wants an end.
            Ok(Answer::Gone) => Err(ErrorData::internal_error("the caller left", None)),
            // Whatever else the ledger may want of a caller needs a way to come back that the SDK's wire has not.
            Ok(_) => error(&CallError::plain(
                Kind::KeyRequired,
                "This tool needs an idempotency key, so nothing ran.",
                "Call again with a key of your own that stays the same for every repetition of this call.",
            )),
            Err(Before::Unknown) => Err(ErrorData::invalid_params(
                "unknown tool; nothing ran. tools/list tells what there is",
                None,
            )),
            Err(Before::Busy) => error(&answer::busy()),
        }
    }
}

fn raw(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn carried(value: Option<&Value>) -> Carried<'_> {
    match value {
        None => Carried::Absent,
        Some(Value::String(text)) => Carried::Text(text.into()),
        Some(_) => Carried::Other,
    }
}

/// The key's places in a call. The SDK drops members of `params` that it doesn't know: `params.idempotencyKey` is one.
fn carriers<'a>(
    request: &'a CallToolRequestParams,
    context: &'a RequestContext<RoleServer>,
    key_is_ours: bool,
) -> Carriers<'a> {
    static NONE: std::sync::LazyLock<HeaderMap> = std::sync::LazyLock::new(HeaderMap::new);
    let of_params = || request.meta.as_ref().and_then(|m| m.get(META_KEY));
    let arguments = request.arguments.as_ref().filter(|_| key_is_ours);
    Carriers {
        params: Carried::Absent,
        meta: carried(context.meta.get(META_KEY).or_else(of_params)),
        headers: context.extensions.get::<Parts>().map_or(&NONE, |parts| &parts.headers),
        argument: carried(arguments.and_then(|a| a.get(KEY_ARGUMENT))),
    }
}

/// The arguments as they are recorded, and as the handler gets them.
fn stripped(arguments: Option<&JsonObject>, key_is_ours: bool) -> Option<JsonObject> {
    let mut arguments = arguments?.clone();
    if key_is_ours {
        arguments.shift_remove(KEY_ARGUMENT);
    }
    Some(arguments)
}
