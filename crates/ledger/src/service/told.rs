//! Answers that are no results: what a program or a model can act on.

use crate::words::{Millis, OperationId};
use serde::Serialize;

/// What a model can act on: the kinds of errors that answer a call and are never stored as results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The tool wants a key.
    KeyRequired,
    /// The key names an operation with other arguments.
    KeyConflict,
    /// The key names an operation that is no longer kept.
    KeyExpired,
    /// The same call without a key was made a moment ago.
    Twin,
    /// It goes on; ask again with `retryKey`.
    StillRunning,
    /// It may or may not have happened.
    InDoubt,
    /// Nothing ran; retry is safe.
    Unavailable,
    /// It is not known whether it was admitted; retry is safe with `retryKey`, and with nothing else.
    AdmissionUnknown,
    /// The arguments don't fit.
    BadArguments,
    /// Not allowed, or cancelled.
    Denied,
    /// Another answer to the same question came first.
    AnswerConflict,
    /// A person must say yes first.
    ApprovalRequired,
    /// The handle was there and is no longer.
    HandleExpired,
    /// There is no such handle for this caller.
    HandleUnknown,
    /// The caller has to give a credential of its own first.
    CredentialRequired,
    /// A limit is reached; nothing ran.
    Limited,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 16] = [
        Kind::KeyRequired,
        Kind::KeyConflict,
        Kind::KeyExpired,
        Kind::Twin,
        Kind::StillRunning,
        Kind::InDoubt,
        Kind::Unavailable,
        Kind::AdmissionUnknown,
        Kind::BadArguments,
        Kind::Denied,
        Kind::AnswerConflict,
        Kind::ApprovalRequired,
        Kind::HandleExpired,
        Kind::HandleUnknown,
        Kind::CredentialRequired,
        Kind::Limited,
    ];

    /// The word on the wire.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::KeyRequired => "key_required",
            Kind::KeyConflict => "key_conflict",
            Kind::KeyExpired => "key_expired",
            Kind::Twin => "twin",
            Kind::StillRunning => "still_running",
            Kind::InDoubt => "in_doubt",
            Kind::Unavailable => "unavailable",
            Kind::AdmissionUnknown => "admission_unknown",
            Kind::BadArguments => "bad_arguments",
            Kind::Denied => "denied",
            Kind::AnswerConflict => "answer_conflict",
            Kind::ApprovalRequired => "approval_required",
            Kind::HandleExpired => "handle_expired",
            Kind::HandleUnknown => "handle_unknown",
            Kind::CredentialRequired => "credential_required",
            Kind::Limited => "limited",
        }
    }
}

/// An answer that is no result: what happened, what is safe now, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// Which kind.
    pub kind: Kind,
    /// One plain sentence: what happened.
    pub sentence: String,
    /// What to do.
    pub advice: String,
    /// The operation it is about.
    pub operation: Option<OperationId>,
    /// When asking again makes sense.
    pub retry_after: Option<Millis>,
    /// The key that means "I am that call again".
    pub retry_key: Option<String>,
    /// A key that means "a second one, please".
    pub new_key: Option<String>,
}

impl CallError {
    /// An error that names no operation and no keys.
    #[must_use]
    pub fn plain(kind: Kind, sentence: impl Into<String>, advice: impl Into<String>) -> CallError {
        CallError {
            kind,
            sentence: sentence.into(),
            advice: advice.into(),
            operation: None,
            retry_after: None,
            retry_key: None,
            new_key: None,
        }
    }

    /// The ledger can't be used, and nothing was written.
    pub(crate) fn store() -> CallError {
        CallError::plain(
            Kind::Unavailable,
            "The ledger can't be used at the moment, so nothing ran.",
            "Call again a little later; it is safe. Give the same key if you gave one.",
        )
    }

    /// It is not known whether this operation was written. Whether the same call once more is the same operation depends on
    /// its key and its tool; with `retry_key` it always is.
    pub(crate) fn unconfirmed(retry_key: String) -> CallError {
        CallError {
            retry_key: Some(retry_key),
            ..CallError::plain(
                Kind::AdmissionUnknown,
                "The ledger did not confirm the operation, so it is not known whether it was admitted.",
                "Call again with `retryKey` as the idempotency key and the same arguments: if it was admitted, you get its answer. Without that key it could be done twice.",
            )
        }
    }
}
