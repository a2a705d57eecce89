//! The answers that are no results: what happened, what is safe now, what to do.

use super::{Answer, Call, CallError, Kind, Ledger, Note};
use crate::decide::DENIED;
use crate::keys;
use crate::operation::{DeliveryState, Execution, Operation};
use crate::store::StoreError;
use crate::words::{Millis, OperationId};

pub(super) fn key_required() -> CallError {
    CallError::plain(
        Kind::KeyRequired,
        "This tool needs an idempotency key, so nothing ran.",
        "Call again with a key of your own that stays the same for every repetition of this call, or with `newKey`.",
    )
}

impl Ledger {
    pub(super) fn mint(&self, call: &Call) -> String {
        keys::mint(&self.store.identity().secret, &call.scope, &call.fingerprint, self.env.random_u128())
    }

    pub(super) fn about(
        &self,
        call: &Call,
        op: &Operation,
        kind: Kind,
        sentence: String,
        advice: &str,
    ) -> CallError {
        CallError {
            kind,
            sentence,
            advice: advice.into(),
            operation: Some(op.id),
            retry_after: None,
            retry_key: Some(op.id.to_string()),
            new_key: Some(self.mint(call)),
        }
    }

    pub(super) fn conflict(&self, call: &Call, op: Option<OperationId>) -> CallError {
        CallError {
            operation: op,
            new_key: Some(self.mint(call)),
            ..CallError::plain(
                Kind::KeyConflict,
                "This idempotency key was given with other arguments before, so nothing ran.",
                "To repeat the earlier call, send exactly its arguments. For these arguments, use a new key, or `newKey`.",
            )
        }
    }

    pub(super) fn expired(&self, call: &Call) -> CallError {
        CallError {
            new_key: Some(self.mint(call)),
            ..CallError::plain(
                Kind::KeyExpired,
                "This key names an operation that is not, or no longer, kept here, so nothing ran.",
                "Find out by other means whether the earlier call had its effect; if a new one is wanted, call with `newKey`.",
            )
        }
    }

    pub(super) fn twin(&self, call: &Call, op: &Operation) -> CallError {
        let sentence = match &op.execution {
            Execution::Completed if op.delivery.state >= DeliveryState::Written => {
                format!(
                    "The same call was made a moment ago and its result was delivered (operation {}); nothing ran again.",
                    op.id
                )
            }
            Execution::Completed => format!(
                "The same call was made a moment ago and its result is on its way (operation {}); nothing ran again.",
                op.id
            ),
            Execution::Cancelled { .. } => format!(
                "The same call was made a moment ago and was cancelled (operation {}); nothing ran again.",
                op.id
            ),
            e => format!(
                "The same call is being worked on (operation {}, {}); nothing ran again.",
                op.id,
                e.word()
            ),
        };
        CallError {
            retry_after: (!op.execution.is_ended()).then_some(Millis::secs(2)),
            ..self.about(call, op, Kind::Twin, sentence, "For the answer of that call, call again with `retryKey` as the idempotency key. If a second one is really meant, call with `newKey`.")
        }
    }

    /// The ledger can't be read although this operation is known to it: never "nothing ran".
    pub(super) fn unreadable(&self, call: &Call, id: OperationId, e: &StoreError) -> CallError {
        tracing::error!(operation = %id, error = %e, "a call could not be answered");
        CallError {
            retry_after: Some(Millis::secs(5)),
            operation: Some(id),
            retry_key: Some(call.key.as_ref().map_or_else(|| id.to_string(), |k| k.key.as_str().to_owned())),
            ..CallError::plain(
                Kind::AdmissionUnknown,
                format!(
                    "The ledger can't be used at the moment, so it is not known how the operation {id} stands."
                ),
                "Call again a little later with `retryKey` as the idempotency key and the same arguments; nothing is done twice.",
            )
        }
    }

    /// For a caller that can't be asked, can't come back by itself and holds no task: what such a one is told in the place
    /// of an answer that needs it.
    #[must_use]
    pub fn or_error(&self, call: &Call, answer: Answer) -> Answer {
        let e = match &answer {
            Answer::Input { operation, .. } => self.unanswered_error(call, operation),
            Answer::Confirm { operation, .. } => self.in_doubt_error(call, operation),
            Answer::Running { operation, .. } => self.still_running_error(call, operation),
            Answer::Reserve { key } => {
                self.answered(CallError { new_key: Some(key.clone()), ..key_required() })
            }
            Answer::Result { .. } | Answer::Error(_) | Answer::Gone => return answer,
        };
        Answer::Error(Box::new(e))
    }

    /// The answer to a caller that neither can wait longer nor come back by itself.
    #[must_use]
    pub fn still_running_error(&self, call: &Call, op: &Operation) -> CallError {
        self.answered(self.still_running(call, op))
    }

    /// The answer to a caller of an operation that can't be read now, and may be running.
    #[must_use]
    pub fn unreadable_error(&self, call: &Call, id: OperationId, e: &StoreError) -> CallError {
        self.answered(self.unreadable(call, id, e))
    }

    /// The answer to a caller that can't be asked, about an operation of which only a person can tell.
    #[must_use]
    pub fn in_doubt_error(&self, call: &Call, op: &Operation) -> CallError {
        self.answered(self.in_doubt(call, op))
    }

    /// The answer to a caller that can't be asked, about an operation that waits for answers.
    #[must_use]
    pub fn unanswered_error(&self, call: &Call, op: &Operation) -> CallError {
        self.answered(self.unanswered(call, op))
    }

    pub(super) fn answered(&self, e: CallError) -> CallError {
        self.observer.note(Note::Answered(e.kind));
        e
    }

    fn unanswered(&self, call: &Call, op: &Operation) -> CallError {
        if op.waits_for_approval() {
            return self.about(
                call,
                op,
                Kind::ApprovalRequired,
                format!("The operation {} waits for a person's yes; nothing of it was done yet.", op.id),
                "Ask an operator to grant it with `counterfoil ops approve` and the operation's id, then call again with `retryKey` as the idempotency key.",
            );
        }
        self.about(
            call,
            op,
            Kind::Denied,
            format!("The operation {} waits for an answer that this client can't give.", op.id),
            "Call again with `retryKey` from a client that can be asked, or leave it: it ends by itself.",
        )
    }

    pub(super) fn answer_conflict(&self, call: &Call, op: &Operation) -> CallError {
        CallError {
            new_key: None,
            ..self.about(
                call,
                op,
                Kind::AnswerConflict,
                format!(
                    "Another answer was given to a question of the operation {} before, and that one counts.",
                    op.id
                ),
                "Call again with `retryKey` and without answers to get the result under the first answer.",
            )
        }
    }

    pub(super) fn still_running(&self, call: &Call, op: &Operation) -> CallError {
        CallError {
            retry_after: Some(Millis::secs(5)),
            new_key: None,
            ..self.about(
                call,
                op,
                Kind::StillRunning,
                format!("The operation {} is still running; its result will be kept.", op.id),
                "Call again with `retryKey` as the idempotency key and the same arguments to get its result. Nothing is done twice.",
            )
        }
    }

    pub(super) fn in_doubt(&self, call: &Call, op: &Operation) -> CallError {
        let (what, advice) = match &op.execution {
            Execution::InputRequired { question } => (
                format!(
                    "It is not known whether the operation {} had its effect, and only a person can tell: {question}",
                    op.id
                ),
                "Do not repeat it. An operator answers with `counterfoil ops resolve`; then call again with `retryKey`.",
            ),
            Execution::InDoubt { reason, .. } => (
                format!("It is not known whether the operation {} had its effect: {reason}.", op.id),
                "Do not repeat it blindly. Look at the provider, or let an operator decide with `counterfoil ops resolve`; then call again with `retryKey`.",
            ),
            _ => (
                format!("It is not known yet whether the operation {} had its effect.", op.id),
                "Call again with `retryKey` in a little while.",
            ),
        };
        self.about(call, op, Kind::InDoubt, what, advice)
    }

    pub(super) fn failed(&self, call: &Call, op: &Operation, reason: &str) -> CallError {
        if op.task.is_some() {
            return self.about(
                call,
                op,
                Kind::Unavailable,
                format!("The operation {} had no effect: {reason}. It was handed out as a task, and that has ended.", op.id),
                "For another try, call with `newKey`.",
            );
        }
        CallError {
            retry_after: Some(Millis::secs(1)),
            new_key: None,
            ..self.about(
                call,
                op,
                Kind::Unavailable,
                format!("The operation {} had no effect: {reason}.", op.id),
                "Calling again is safe; with `retryKey` it goes on as the same operation.",
            )
        }
    }

    pub(super) fn cancelled(&self, call: &Call, op: &Operation, explicit: bool) -> CallError {
        if explicit {
            self.about(
                call,
                op,
                Kind::Denied,
                if op.decisions.last().is_some_and(|d| d.what == DENIED) {
                    format!("The operation {} was denied by a person; it had no effect.", op.id)
                } else {
                    format!("The operation {} was cancelled; it had no effect.", op.id)
                },
                "Do not repeat it unless a new one is wanted: then call with `newKey`.",
            )
        } else {
            self.expired(call)
        }
    }
}
