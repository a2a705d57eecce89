//! A call of a tool that changes the world: its key, state and answers, the ledger, and what the ledger's answer becomes
//! on the wire.

mod asking;
mod connecting;

use crate::answer;
use crate::call::{Asked, META_OPERATION, Parts, error_outcome, operation_meta, removed, shorten, text};
use crate::call::{busy, creation};
use crate::catalog::Entry;
use crate::connect::{self, Connecting};
use crate::keys::{self, KeyTrouble};
use crate::limits::{self, Whose};
use crate::methods::tasks;
use crate::principal::principal_of;
use crate::rounds::{self, Closed, State, Subject, Unfit};
use crate::service::Shared;
use crate::tool::{BadArguments, Body, Mode};
use asking::Heard;
use ledger::service::OperateError;
use ledger::{
    Answer, Ask, Call, CallError, CallerKey, Carrier, Creation, DeliveryState, InputKind, Key, Kind,
    Operation, OperationId, StoreError,
};
use mcp::constants::{meta, method};
use mcp::error::RpcError;
use mcp::input::{Asker, Given};
use mcp::json::quote;
use mcp::server::{Delivery, Exchange, Outcome, Responder, WireResult};
use serde_json::json;
use std::sync::Arc;

/// What ends a call before anything is written.
enum Before {
    Unknown,
    Arguments(BadArguments),
    /// A rule is against it.
    Refused(Box<CallError>),
    Busy,
    Capability(Box<RpcError>),
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

/// What a call is answered without the ledger, and the word for it.
type Refused = (Outcome, &'static str);

/// A call whose parts are read and hold together.
struct Ledgered<'a> {
    shared: &'a Arc<Shared>,
    exchange: &'a Exchange,
    entry: Option<&'a Entry>,
    asked: Asked<'a>,
    call: Call,
    /// Rounds used before this one.
    round: u32,
    /// The client knows tasks.
    tasks: bool,
    /// The key that was kept for it in a state.
    kept: Option<String>,
    /// What the client said of the page where its user gives a credential.
    connecting: Connecting,
}

/// Answers it.
pub(crate) async fn ledgered(
    shared: &Arc<Shared>,
    exchange: &Exchange,
    entry: Option<&Entry>,
    parts: Parts<'_>,
    responder: Responder,
) -> &'static str {
    match Box::pin(Ledgered::of(shared, exchange, entry, &parts)).await {
        Ok(call) => call.answer(&parts, responder).await,
        Err((outcome, word)) => {
            responder.answer(outcome);
            word
        }
    }
}

impl<'a> Ledgered<'a> {
    async fn of(
        shared: &'a Arc<Shared>,
        exchange: &'a Exchange,
        entry: Option<&'a Entry>,
        parts: &Parts<'a>,
    ) -> Result<Ledgered<'a>, Refused> {
        let refused = |e: RpcError| (Outcome::from(e), "refused");
        let told = |e: &CallError| (error_outcome(shared, exchange, e, entry), "error");
        // A tool that is not served may still be known to the ledger: its calls are answered, none is opened.
        let settings = entry.map(|e| e.settings.clone()).unwrap_or_default();
        let ours = entry.is_none_or(|e| e.key_is_ours);
        keys::not_shared(&exchange.caller).map_err(refused)?;
        let (headers, from) = (&exchange.caller.headers, &settings.key_from);
        let key = keys::find(headers, &exchange.meta, parts.params, parts.arguments, ours, from);
        let key = key.map_err(|trouble| match trouble {
            KeyTrouble::Program(e) => refused(*e),
            KeyTrouble::Model(e) => told(&e),
        })?;
        let key = key.or_else(|| keys::name(&exchange.caller.extensions, &exchange.meta, settings.unkeyed));
        let principal = principal_of(&exchange.caller.extensions);
        let id = match entry {
            Some(e) => e.spec.canonical.clone(),
            None => {
                let gone = removed(shared, &principal, &parts.name).await;
                // One of another view; asked for after the ledger, so that it takes as long as one that isn't there.
                let elsewhere = shared.catalog().by_name(&parts.name).map(|e| e.spec.canonical.clone());
                elsewhere.or(gone).unwrap_or_else(|| (*parts.name).into())
            }
        };
        let asked = Asked { principal, entry, id, arguments: parts.arguments, key, settings };
        let call =
            asked.call(&shared.settings.mode).map_err(|e| told(&answer::bad_arguments(&e.to_string())))?;
        let tasks = tasks::known(exchange);
        let (kept, connecting) = (None, Connecting::Unasked);
        let mut this = Ledgered { shared, exchange, entry, asked, call, round: 0, tasks, kept, connecting };
        if !exchange.caller.revision.is_legacy() {
            let given = Given::of(&exchange.request).map_err(refused)?;
            if let Some(token) = &given.state {
                this.take_up(token, &given).await?;
            }
            if tasks {
                this.call.wait = match this.asked.settings.mode {
                    Mode::Inline => this.call.wait,
                    Mode::Auto => this.call.wait.min(this.asked.settings.inline_limit),
                    // What it asks at first comes from it at once.
                    Mode::TaskOnceAnswered if given.is_empty() => this.call.wait,
                    Mode::Task | Mode::TaskOnceAnswered => ledger::Millis(0),
                };
            }
            if shared.keeper.is_some() && this.round < rounds::LAST_LEG {
                this.call.lease_of_caller = rounds::GRACE;
            }
        }
        Ok(this)
    }

    fn told(&self, e: &CallError) -> Refused {
        (error_outcome(self.shared, self.exchange, e, self.entry), "error")
    }

    /// Of the operation that it belongs to nothing is known now but that it is there: never "nothing ran".
    fn unreadable(&self, id: OperationId, e: &StoreError) -> Refused {
        self.told(&self.shared.ledger.unreadable_error(&self.call, id, e))
    }

    /// The same where not even its id is known.
    fn unopened(&self) -> CallError {
        CallError {
            retry_after: Some(ledger::Millis::secs(5)),
            retry_key: self.call.key.as_ref().map(|k| k.key.as_str().to_owned()),
            ..CallError::plain(Kind::AdmissionUnknown, rounds::UNOPENED.0, rounds::UNOPENED.1)
        }
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            principal: &self.call.scope.principal,
            method: method::TOOLS_CALL,
            name: &self.call.scope.tool,
            fingerprint: &self.call.fingerprint.digest,
        }
    }

    /// Goes on where the state says that the call was.
    async fn take_up(&mut self, token: &str, given: &Given) -> Result<(), Refused> {
        let state: State = match self.shared.unseal(rounds::PURPOSE, self.subject(), token).await {
            Ok(state) => state,
            Err(Closed::Rejected) => return Err((rounds::rejected().into(), "refused")),
            Err(Closed::Unavailable) => return Err(self.told(&self.unopened())),
        };
        self.round = state.round;
        if state.connect {
            self.connecting = connect::connecting(&given.responses, true);
        }
        self.kept.clone_from(&state.key);
        if let Some(text) = &state.key {
            let kept = Key::new(text).map_err(|_| (Outcome::from(rounds::rejected()), "refused"))?;
            match &self.call.key {
                Some(own) if own.key != kept => return Err(self.told(&disagree())),
                _ => self.call.key = Some(CallerKey { key: kept, carrier: Carrier::Program }),
            }
        }
        self.call.named = state.operation;
        let Some(id) = state.operation.filter(|_| !given.responses.is_empty()) else { return Ok(()) };
        self.take_answers(id, given).await
    }

    /// Reads what the client answered, and decides what is a decision.
    async fn take_answers(&mut self, id: OperationId, brought: &Given) -> Result<(), Refused> {
        let principal = &self.call.scope.principal;
        // One that is gone is answered by the look-up.
        let op = match self.shared.ledger.status(principal, id).await {
            Ok(Some(op)) => op,
            Ok(None) => return Ok(()),
            Err(e) => return Err(self.unreadable(id, &e)),
        };
        let given = match rounds::answers(self.shared, &op, &brought.responses).await {
            Ok(given) => given,
            Err(Unfit::Answer(e)) => return Err(((*e).into(), "refused")),
            Err(Unfit::Store(e)) => return Err(self.unreadable(id, &e)),
        };
        let Some(decision) = given.decision else {
            self.call.answers = given.given;
            return Ok(());
        };
        // A no counts where a yes would; elsewhere the look-up tells why not.
        match self.shared.ledger.belongs(&self.call, id).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(e) => return Err(self.unreadable(id, &e)),
        }
        match rounds::decide(self.shared, principal, id, &decision).await {
            // Refused: somebody decided before. The look-up tells how it stands.
            Ok(_) | Err(OperateError::Refused { .. } | OperateError::Unknown | OperateError::Pruned(_)) => {
                Ok(())
            }
            Err(OperateError::Store(e)) => Err(self.unreadable(id, &e)),
        }
    }

    async fn answer(mut self, parts: &Parts<'_>, responder: Responder) -> &'static str {
        self.call.hears_progress = responder.hears_progress();
        let Ledgered { shared, exchange, .. } = self;
        let create = |own: Option<&provider::Own>| -> Result<Creation, Before> {
            let Some(entry) = self.entry else { return Err(Before::Unknown) };
            let Body::Mutating(tool) = &entry.body else { return Err(Before::Unknown) };
            // A known operation is answered whatever the client can; only a new one may have to ask it.
            if let Some(requires) = &entry.requires {
                requires
                    .check(exchange.meta.client_capabilities())
                    .map_err(|e| Before::Capability(Box::new(e)))?;
            }
            if self.asked.settings.mode.needs_tasks() && !self.tasks {
                return Err(Before::Capability(Box::new(tasks::required())));
            }
            if shared.ledger.running() >= shared.settings.max_in_flight {
                return Err(Before::Busy);
            }
            let whose = Whose { principal: &self.call.scope.principal, mode: &self.call.scope.mode };
            let creation = creation(entry, tool.as_ref(), self.asked.arguments, &self.asked.settings, whose)?;
            self.under_own(creation, own)
        };
        let notifier = responder.notifier();
        let watcher = responder.notifier();
        let progress = |p: &ledger::Progress| notifier.progress(p.done, p.total, Some(&p.message));
        let mut own = None;
        let mut answer = loop {
            let with_own = || create(own.as_ref());
            let answer = shared.ledger.call(&self.call, &with_own, watcher.gone(), progress).await;
            let lacks = match &answer {
                Err(Before::Credential(account)) => Some(((**account).clone(), None)),
                Ok(answer) => self.lacks(answer),
                Err(_) => None,
            };
            let Some((account, operation)) = lacks.filter(|_| own.is_none()) else { break answer };
            match Box::pin(self.connect(&account, operation, &watcher)).await {
                Ok(found) if operation.is_none() => own = Some(found),
                // It is there; what the operation lacks is something else.
                Ok(_) => break answer,
                Err((outcome, word)) => {
                    responder.answer(outcome);
                    return word;
                }
            }
        };
        let create = || create(own.as_ref());
        if exchange.caller.revision.is_legacy() {
            while let Ok(Answer::Input { operation, .. } | Answer::Confirm { operation, .. }) = &answer {
                let id = operation.id;
                match Box::pin(self.ask_on_stream(&answer, &watcher)).await {
                    Some(Heard::Answer) => {
                        let again = Call { named: Some(id), ..self.call.clone() };
                        answer = shared.ledger.call(&again, &create, watcher.gone(), progress).await;
                    }
                    Some(Heard::Gone) => answer = Ok(Answer::Gone),
                    None => break,
                }
            }
        }
        let (outcome, word) = match answer {
            // Its clients expect a task, however fast it was.
            Ok(Answer::Result { operation, .. }) if self.is_for_tasks(&operation) => {
                let out = self.hand_out(&operation).await;
                // The result itself went to nobody yet.
                shared.ledger.delivered(&self.newest(operation).await, DeliveryState::Undelivered);
                out
            }
            Ok(Answer::Result { operation, result, replayed, joined_by }) => {
                ledger::failpoint!("reply.before");
                let nonce = shared.ledger.ack_nonce(&self.call.scope.principal, operation.id);
                let about = operation_meta(&operation, replayed, joined_by, &nonce);
                let outcome = shared.result(exchange, text(&result), &[(META_OPERATION, about.as_str())]);
                let delivered = match responder.finish(outcome).await {
                    Delivery::Written => DeliveryState::Written,
                    Delivery::Undelivered => DeliveryState::Undelivered,
                };
                ledger::failpoint!("deliver.before");
                shared.ledger.delivered(&operation, delivered);
                return if replayed { "replayed" } else { "completed" };
            }
            Ok(Answer::Error(e)) => self.told(&e),
            // Nobody reads it; the wire still wants an end.
            Ok(Answer::Gone) => (RpcError::internal("Internal error: the caller left.").into(), "gone"),
            Ok(other) => match Box::pin(self.as_task(&other)).await {
                Some(task) => task,
                None => Box::pin(self.another_round(other)).await,
            },
            Err(Before::Unknown) => {
                let e = RpcError::invalid_params(format!(
                    "unknown tool {}; nothing ran. tools/list tells what there is",
                    quote(&shorten(&parts.name))
                ));
                (e.into(), "refused")
            }
            Err(Before::Capability(e)) => ((*e).into(), "refused"),
            Err(Before::Arguments(e)) => self.told(&answer::bad_arguments(&e.0)),
            Err(Before::Refused(e)) => {
                limits::count(shared, e.kind);
                self.told(&e)
            }
            Err(Before::Credential(_)) => self.told(&connect::unreadable()),
            Err(Before::Busy) => (error_outcome(shared, exchange, &busy(), self.entry), "busy"),
        };
        responder.answer(outcome);
        word
    }

    fn is_for_tasks(&self, operation: &Operation) -> bool {
        self.tasks && (self.asked.settings.mode.needs_tasks() || operation.task.is_some())
    }

    /// The task that a call gets in the place of an answer that it can't get now; `None`: it gets none.
    async fn as_task(&self, answer: &Answer) -> Option<Refused> {
        let operation = match answer {
            Answer::Running { operation, .. } => operation,
            // Before it is one, what is asked is asked by the call.
            Answer::Input { operation, .. } | Answer::Confirm { operation, .. }
                if operation.task.is_some() =>
            {
                operation
            }
            // A yes that this client can't be asked for is an operator's to give, and is waited for as a task.
            Answer::Input { operation, open, .. } if approval(open) && self.questions(open).is_err() => {
                operation
            }
            _ => return None,
        };
        if !self.tasks || self.asked.settings.mode == Mode::Inline {
            return None;
        }
        Some(self.hand_out(operation).await)
    }

    /// It as it is now, if that can be read.
    async fn newest(&self, operation: Arc<Operation>) -> Operation {
        let now = self.shared.ledger.status(&self.call.scope.principal, operation.id).await;
        now.ok().flatten().unwrap_or_else(|| Arc::unwrap_or_clone(operation))
    }

    /// Hands the operation out; the client finds it from then on.
    async fn hand_out(&self, operation: &Operation) -> Refused {
        let ttl = Some(operation.policy.retention);
        match self.shared.ledger.hand_out(operation.id, ttl).await {
            Ok(op) => {
                let task = answer::raw(&tasks::task(self.shared, &op));
                let about = about(&op);
                let members =
                    [(meta::SERVER_INFO, self.shared.server_info.as_str()), (META_OPERATION, about.as_str())];
                let object = task.object().unwrap_or_else(mcp::json::RawObject::empty);
                match WireResult::task(Asker::ToolsCall, &object, &members) {
                    Ok(result) => (Outcome::Result(result), "task"),
                    Err(e) => {
                        tracing::error!(error = %e, "a task can't be put on the wire");
                        (RpcError::internal("Internal error: the task can't be told.").into(), "error")
                    }
                }
            }
            Err(e) => {
                tracing::warn!(operation = %operation.id, error = %e, "an operation could not be handed out as a task");
                self.told(&self.shared.ledger.still_running_error(&self.call, operation))
            }
        }
    }
}

/// What a client hears of an operation that has no result yet.
fn about(op: &Operation) -> String {
    json!({ "id": op.id.to_string(), "attempt": op.attempt }).to_string()
}

fn approval(open: &[Ask]) -> bool {
    open.iter().any(|ask| ask.kind == InputKind::Approval)
}

fn disagree() -> CallError {
    CallError::plain(
        Kind::KeyConflict,
        "This call brings back a state with one key and gives another, so nothing ran.",
        "Send the call again with the state and without a key of its own, or with its key and without the state.",
    )
}
