//! What a call asks its client: on its stream in the legacy era, else by a round that ends the request and is brought
//! back.

use super::{Ledgered, Refused, about, approval};
use crate::answers::Name;
use crate::call::META_OPERATION;
use crate::rounds::{self, State, asks_a_person};
use ledger::{Answer, Ask, Operation};
use mcp::constants::meta;
use mcp::error::RpcError;
use mcp::input::{self, Asker, InputRequest};
use mcp::server::{Notifier, Outcome, WireResult};
use std::time::Duration;

/// What came of asking on a stream.
pub(super) enum Heard {
    /// It is answered, or was decided otherwise.
    Answer,
    /// The client is gone.
    Gone,
}

/// How often the ledger is asked how the operation stands, beside its doorbell.
const POLL: Duration = Duration::from_millis(500);

impl Ledgered<'_> {
    /// Asks a legacy client on the stream of its call, and waits for its answer, from wherever it comes. `None`: it can't
    /// be asked, or did not answer in time.
    pub(super) async fn ask_on_stream<E>(
        &self,
        answer: &Result<Answer, E>,
        notifier: &Notifier,
    ) -> Option<Heard> {
        let keeper = self.shared.keeper.as_ref()?;
        let (operation, asked): (&Operation, Vec<(Name, InputRequest)>) = match answer {
            Ok(Answer::Input { operation, open, .. }) => {
                let requests = self.questions(open).ok()?;
                let index = |request: &InputRequest| operation.input(request.key());
                let name = |r: InputRequest| Some((Name::Input(operation.id, index(&r)?), r));
                (operation, requests.into_iter().filter_map(name).collect())
            }
            Ok(Answer::Confirm { operation, .. }) => {
                let request = self.may_ask(rounds::confirm(operation).ok())?;
                (operation, vec![(Name::Confirm(operation.id, operation.attempt), request)])
            }
            _ => return None,
        };
        let (principal, revision) = (&self.call.scope.principal, self.exchange.caller.revision);
        // From before the question is out, so that no change is missed.
        let mut changes = self.shared.ledger.changes(operation.id);
        let mut open = Vec::new();
        for (name, request) in &asked {
            let sent = name.send(keeper, principal, notifier, request, revision).await.ok()?;
            open.push((operation.input(request.key()), sent));
        }
        let limit = tokio::time::sleep(keeper.state_ttl().duration());
        tokio::pin!(limit);
        loop {
            tokio::select! {
                () = changes.changed() => {}
                // Without a doorbell.
                () = tokio::time::sleep(POLL) => {}
                () = notifier.cut() => return Some(Heard::Gone),
                () = notifier.gone() => return Some(Heard::Gone),
                () = &mut limit => return None,
            }
            let Ok(now) = self.shared.ledger.status(principal, operation.id).await else { continue };
            // The questions of this round that still wait; nothing of it does once it goes on.
            let waits: Vec<Option<usize>> = match &now {
                Some(now) if !matches!(now.execution, ledger::Execution::InputRequired { .. }) => Vec::new(),
                None => Vec::new(),
                Some(now) if asks_a_person(now) => vec![None],
                Some(now) => now.open_inputs().map(Some).collect(),
            };
            let (still, done): (Vec<_>, Vec<_>) = open.into_iter().partition(|(i, _)| waits.contains(i));
            for (_, one) in done {
                one.answered();
            }
            if still.is_empty() {
                return Some(Heard::Answer);
            }
            open = still;
        }
    }

    /// What is said where the call is to come again: with answers, to wait on, or under a key that was kept for it. A
    /// caller that can't is told so.
    pub(super) async fn another_round(&self, answer: Answer) -> Refused {
        match &answer {
            Answer::Input { operation, open, .. } => match self.questions(open) {
                Ok(requests) => self.ask(&requests, Some(operation), None).await,
                Err(e) => Some((Outcome::from(*e), "refused")).filter(|_| !approval(open)),
            },
            Answer::Confirm { operation, .. } => match self.may_ask(rounds::confirm(operation).ok()) {
                Some(request) => self.ask(&[request], Some(operation), None).await,
                None => None,
            },
            // A leg: nothing is asked, the client only comes back.
            Answer::Running { operation, .. } if self.round < rounds::LAST_LEG => {
                self.ask(&[], Some(operation), None).await
            }
            Answer::Reserve { key } => self.ask(&[], None, Some(key)).await,
            _ => None,
        }
        .unwrap_or_else(|| match self.shared.ledger.or_error(&self.call, answer) {
            Answer::Error(e) => self.told(&e),
            _ => (RpcError::internal("Internal error: the call has no answer.").into(), "error"),
        })
    }

    /// The recorded questions, if this client can be asked them.
    pub(super) fn questions(&self, open: &[Ask]) -> Result<Vec<InputRequest>, Box<RpcError>> {
        let asked = rounds::questions(open).map_err(|e| {
            tracing::error!(error = %e, "a question can't be asked");
            Box::new(RpcError::internal("Internal error: a question of this operation can't be read."))
        })?;
        let revision = self.exchange.caller.revision;
        input::check(&asked, self.exchange.meta.client_capabilities(), revision).map_err(Box::new)?;
        Ok(asked)
    }

    fn may_ask(&self, request: Option<InputRequest>) -> Option<InputRequest> {
        let revision = self.exchange.caller.revision;
        request.filter(|r| input::check([r], self.exchange.meta.client_capabilities(), revision).is_ok())
    }

    /// Ends the request with what the client is to bring back. `None`: this client won't.
    async fn ask(
        &self,
        requests: &[InputRequest],
        operation: Option<&Operation>,
        key: Option<&str>,
    ) -> Option<Refused> {
        let state = State {
            operation: operation.map(|op| op.id),
            key: key.map(str::to_owned),
            round: self.round + 1,
            connect: false,
        };
        self.end_round(requests, &state, operation.map(about)).await
    }

    /// Ends the request with this state. `None`: this client won't bring it back.
    pub(super) async fn end_round(
        &self,
        requests: &[InputRequest],
        state: &State,
        about: Option<String>,
    ) -> Option<Refused> {
        if self.exchange.caller.revision.is_legacy() || self.round >= rounds::MAX_ROUNDS {
            return None;
        }
        let token = self.shared.seal(rounds::PURPOSE, self.subject(), state).await?;
        let mut members = vec![(meta::SERVER_INFO, self.shared.server_info.as_str())];
        members.extend(about.as_deref().map(|about| (META_OPERATION, about)));
        let result = WireResult::input_required(Asker::ToolsCall, requests, Some(&token), &members);
        let word = if requests.is_empty() { "leg" } else { "asked" };
        result.ok().map(|result| (Outcome::Result(result), word))
    }
}
