//! Attempts: the wrapped handler as the ledger's one effect of a call.

use crate::alone;
use crate::config::{Config, Found, LookUp, Recovery};
use crate::seat::{self, Came, Job, Ledgered, SEAT, Said, Seat};
use crate::stored;
use async_trait::async_trait;
use ledger::{
    Attempt, EffectKey, EffectState, Executor, Intent, Looked, Millis, Operation, Receipt, RunError, Runner,
    Sent, Strategy, ToolResult,
};
use rmcp::model::{CallToolRequestParams, CallToolResponse, JsonObject};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{OnceCell, oneshot};
use tokio::time::timeout;

/// The name of the one effect.
const EFFECT: &str = "handler";

/// What is recorded before the handler runs.
pub(crate) fn intent(config: &Config, tool: &str, arguments: Option<&JsonObject>) -> Intent {
    let mut body = json!({ "tool": tool });
    if let Some(arguments) = arguments {
        body["arguments"] = Value::Object(arguments.clone());
    }
    Intent {
        name: EFFECT.into(),
        discriminator: String::new(),
        recovery: config.recovery_of(tool).pinned(config.time_limit),
        summary: format!("tool {tool}"),
        body: body.to_string().into_bytes(),
    }
}

/// The call that an intent records.
fn recorded(intent: &Intent) -> Option<(String, Option<JsonObject>)> {
    let Ok(Value::Object(mut body)) = serde_json::from_slice(&intent.body) else { return None };
    let Some(Value::String(tool)) = body.remove("tool") else { return None };
    match body.remove("arguments") {
        None => Some((tool, None)),
        Some(Value::Object(arguments)) => Some((tool, Some(arguments))),
        Some(_) => None,
    }
}

pub(crate) struct HandlerRunner<H> {
    handler: Arc<H>,
    config: Arc<Config>,
    nobody: OnceCell<Peer<RoleServer>>,
}

impl<H: ServerHandler> HandlerRunner<H> {
    pub fn new(handler: Arc<H>, config: Arc<Config>) -> Self {
        HandlerRunner { handler, config, nobody: OnceCell::new() }
    }
}

#[async_trait]
impl<H: ServerHandler> Runner for HandlerRunner<H> {
    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError> {
        let executor = HandlerExecutor { runner: self, operation: attempt.operation() };
        let done = attempt.resume(0, &executor).await?;
        Ok(stored::closing(&done))
    }

    fn account(&self, op: &Operation, why: &str) -> ToolResult {
        let happened = op.effects.iter().any(|e| e.state == EffectState::Applied);
        let what = if happened { "It ran before that." } else { "It had no effect." };
        ToolResult {
            result: stored::said(&format!("The tool did not finish ({why}). {what}")),
            is_error: true,
        }
    }
}

struct HandlerExecutor<'a, H> {
    runner: &'a HandlerRunner<H>,
    operation: Arc<Operation>,
}

impl<H: ServerHandler> HandlerExecutor<'_, H> {
    /// The call that began this attempt, if there is one.
    fn seat(&self) -> Option<Arc<Seat>> {
        SEAT.try_with(Arc::clone).ok().filter(|seat| seat.is_for(&self.operation))
    }

    /// `None`: it did not come to an end in time, or whoever ran it is gone.
    async fn in_seat(
        &self,
        seat: &Seat,
        request: CallToolRequestParams,
        ledgered: Ledgered,
        limit: Millis,
    ) -> Result<Option<Came>, Sent> {
        let (reply, came) = oneshot::channel();
        if seat.hand_over(Job { request, ledgered, reply }).is_none() {
            return Err(Sent::NotSent { why: "the call that began it is gone".into() });
        }
        Ok(timeout(limit.duration(), came).await.ok().and_then(Result::ok))
    }

    async fn alone(
        &self,
        request: CallToolRequestParams,
        ledgered: &Ledgered,
        limit: Millis,
    ) -> Option<Came> {
        tracing::warn!(
            operation = %ledgered.operation, tool = %request.name,
            "the handler is run by recovery, without a caller"
        );
        let mut context = alone::context(self.runner.nobody.get_or_init(alone::peer).await.clone());
        seat::mark(&mut context, ledgered);
        timeout(limit.duration(), seat::run(&*self.runner.handler, request, context)).await.ok()
    }

    fn judge(&self, answer: Result<CallToolResponse, ErrorData>, replay: bool, seat: Option<&Seat>) -> Sent {
        let nothing = |why: String, said: Said| {
            if let Some(seat) = seat {
                seat.say(said);
            }
            Sent::NotSent { why }
        };
        match answer {
            Ok(CallToolResponse::InputRequired(_)) if replay => {
                Sent::Withheld { why: "run again, the tool asks its caller for input".into() }
            }
            Ok(CallToolResponse::InputRequired(asks)) => {
                nothing("the tool asks its caller for input".into(), Said::Asks(asks))
            }
            Err(e) if self.runner.config.errors_mean_nothing_ran => {
                let text: String = e.message.chars().take(300).collect();
                nothing(format!("the tool refused it ({text})"), Said::Fails(e))
            }
            answer => match stored::keep(&answer) {
                Some(kept) => Sent::Applied(Receipt(kept)),
                None => unknown("the tool answered with something that can't be kept"),
            },
        }
    }
}

fn unknown(why: &str) -> Sent {
    Sent::Unknown { why: why.into(), retry_after: None, stored: false }
}

#[async_trait]
impl<H: ServerHandler> Executor for HandlerExecutor<'_, H> {
    async fn send(&self, intent: &Intent, key: &EffectKey, replay: bool, limit: Millis) -> Sent {
        let Some((tool, arguments)) = recorded(intent) else {
            return Sent::Withheld { why: "what was recorded of the call can't be read".into() };
        };
        let seat = self.seat();
        if seat.is_none() && !replay && intent.recovery.strategy == Strategy::None {
            // It did not run yet, and nothing says that it may without its caller.
            return Sent::NotSent { why: "it waits for its next call".into() };
        }
        let mut request = CallToolRequestParams::new(tool);
        request.arguments = arguments;
        let ledgered = Ledgered {
            operation: self.operation.id,
            effect_key: key.clone(),
            replay,
            has_caller: seat.is_some(),
        };
        let came = match &seat {
            Some(seat) => match self.in_seat(seat, request, ledgered, limit).await {
                Ok(came) => came,
                Err(not_sent) => return not_sent,
            },
            None => self.alone(request, &ledgered, limit).await,
        };
        match came {
            Some(Came::Ended(answer)) => self.judge(*answer, replay, seat.as_deref()),
            Some(Came::Panicked) => unknown("the tool failed unexpectedly"),
            None => unknown("the tool did not come to an end within its time limit"),
        }
    }

    async fn look_up(&self, intent: &Intent, key: &EffectKey, limit: Millis) -> Looked {
        let Some((tool, arguments)) = recorded(intent) else {
            return Looked::Unknown { why: "what was recorded of the call can't be read".into() };
        };
        let Recovery::Lookup { find, .. } = self.runner.config.recovery_of(&tool) else {
            return Looked::Unknown { why: "there is no look-up for this tool any more".into() };
        };
        let what = LookUp { tool, arguments: arguments.unwrap_or_default(), effect_key: key.clone() };
        match timeout(limit.duration(), find.ask(what)).await {
            Ok(Found::Happened(result)) => match stored::keep(&Ok(CallToolResponse::Complete(*result))) {
                Some(kept) => Looked::Found(Receipt(kept)),
                None => Looked::Unknown { why: "what was found can't be kept".into() },
            },
            Ok(Found::Nothing) => Looked::NotFound,
            Ok(Found::Unanswered(why)) => Looked::Unknown { why },
            Err(_) => Looked::Unknown { why: "the look-up did not answer in time".into() },
        }
    }
}
