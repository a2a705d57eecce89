//! The answers that are no results: what happened, what is safe now, what to do.

use super::{Call, CallError, Kind, Ledger};
use crate::keys;
use crate::operation::{DeliveryState, Execution, Operation};
use crate::store::StoreError;
use crate::words::{Millis, OperationId};

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
        CallError {
            retry_after: Some(Millis::secs(1)),
            new_key: None,
            ..self.about(
                call,
                op,
                Kind::Unavailable,
                format!("The operation {} had no effect: {reason}.", op.id),
                "Calling again is safe: it goes on as the same operation (give `retryKey`, or the same key or arguments as now).",
            )
        }
    }

    pub(super) fn cancelled(&self, call: &Call, op: &Operation, explicit: bool) -> CallError {
        if explicit {
            self.about(
                call,
                op,
                Kind::Denied,
                format!("The operation {} was cancelled; it had no effect.", op.id),
                "Do not repeat it unless a new one is wanted: then call with `newKey`.",
            )
        } else {
            self.expired(call)
        }
    }
}
