//! What an outcome means to whoever executed something: one table for the exit code of the shell, the status over HTTP,
//! and the guide for agents.

use http::StatusCode;
use ledger::Kind;

/// What is safe after an execution that brought no result, or an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// There is a result, and it is no error.
    Done,
    /// The provider or tool refused, or somebody has to do something first.
    Refused,
    /// The request has to be another one.
    Usage,
    /// It may or may not have happened.
    InDoubt,
    /// The key belongs to another operation, or to one that is no longer kept.
    KeyConflict,
    /// The very same again is safe: nothing ran, or it is the same operation.
    Unavailable,
}

impl Class {
    /// All of them, by their exit codes.
    pub const ALL: [Class; 6] =
        [Class::Done, Class::Refused, Class::Usage, Class::InDoubt, Class::KeyConflict, Class::Unavailable];

    /// The exit code of a command.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Class::Done => 0,
            Class::Refused => 1,
            Class::Usage => 2,
            Class::InDoubt => 3,
            Class::KeyConflict => 4,
            Class::Unavailable => 5,
        }
    }

    /// In words.
    #[must_use]
    pub fn says(self) -> &'static str {
        match self {
            Class::Done => "done",
            Class::Refused => "the provider or tool refused",
            Class::Usage => "usage or configuration",
            Class::InDoubt => "in doubt: it may or may not have happened; look before you repeat it",
            Class::KeyConflict => "the key belongs to another operation, or to one that is no longer kept",
            Class::Unavailable => "unavailable; the very same again is safe",
        }
    }
}

/// What an error of this kind means to whoever would send the very same again. `keyed`: it had a key (or an operation and a
/// step), so the same again is the same operation, or changes nothing; without one it may be another, and is only safe where nothing ran.
#[must_use]
pub fn class(kind: Kind, keyed: bool) -> Class {
    match kind {
        Kind::InDoubt => Class::InDoubt,
        Kind::AdmissionUnknown | Kind::StillRunning if !keyed => Class::InDoubt,
        Kind::KeyConflict | Kind::KeyExpired => Class::KeyConflict,
        Kind::Unavailable | Kind::AdmissionUnknown | Kind::StillRunning | Kind::Limited => Class::Unavailable,
        Kind::BadArguments | Kind::KeyRequired => Class::Usage,
        Kind::Twin
        | Kind::Denied
        | Kind::AnswerConflict
        | Kind::ApprovalRequired
        | Kind::HandleExpired
        | Kind::HandleUnknown
        | Kind::CredentialRequired => Class::Refused,
    }
}

/// The HTTP status of an error of this kind. Those of keys are as in draft-ietf-httpapi-idempotency-key-header: 422 for a
/// key that was used for something else, 409 while its request is worked on, 400 where it is missing. `keyed` as of
/// [`class`]: programs and proxies repeat by themselves what is answered with 503.
#[must_use]
pub fn status(kind: Kind, keyed: bool) -> StatusCode {
    match kind {
        Kind::AdmissionUnknown if !keyed => StatusCode::CONFLICT,
        Kind::BadArguments | Kind::KeyRequired => StatusCode::BAD_REQUEST,
        Kind::Denied => StatusCode::FORBIDDEN,
        Kind::KeyConflict => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::KeyExpired => StatusCode::GONE,
        Kind::Limited => StatusCode::TOO_MANY_REQUESTS,
        Kind::Unavailable | Kind::AdmissionUnknown => StatusCode::SERVICE_UNAVAILABLE,
        Kind::StillRunning
        | Kind::Twin
        | Kind::InDoubt
        | Kind::AnswerConflict
        | Kind::ApprovalRequired
        | Kind::HandleExpired
        | Kind::HandleUnknown
        | Kind::CredentialRequired => StatusCode::CONFLICT,
    }
}

/// What to do about an error of this kind, in a sentence for programs and models.
#[must_use]
pub fn advice(kind: Kind) -> &'static str {
    match kind {
        Kind::BadArguments => "Nothing ran. Correct the arguments; the message says where.",
        Kind::KeyRequired => {
            "Nothing ran. Execute with the `newKey` of the error, and keep it for repetitions."
        }
        Kind::KeyConflict => {
            "Nothing ran. The key was used with other arguments: repeat exactly those, or use `newKey`."
        }
        Kind::KeyExpired => {
            "Nothing ran. The operation is no longer kept: find out by other means whether it happened."
        }
        Kind::Twin => {
            "Nothing ran again. `retryKey` gets the answer of the same execution of a moment ago; `newKey` only if a second one is meant."
        }
        Kind::StillRunning => {
            "It goes on. Execute again with `retryKey` after the pause; nothing is done twice."
        }
        Kind::InDoubt => {
            "It may have happened. Do not repeat it. Look at the provider, or ask a person to decide (`ops resolve`); then `retryKey`."
        }
        Kind::Unavailable => "Nothing ran. The same again after the pause is safe.",
        Kind::Limited => {
            "Nothing ran: a limit is reached. The same again after the pause is safe; the message says which limit."
        }
        Kind::AdmissionUnknown => {
            "It is not known whether it was admitted. With `retryKey` (its own key, if it had one) the same again is safe; without it is not."
        }
        Kind::Denied => "Nothing more is done of it. Do not try again unless somebody wants a new one.",
        Kind::AnswerConflict => {
            "Another answer counts. Execute with `retryKey` and without answers to get the result."
        }
        Kind::ApprovalRequired => {
            "Nothing was done yet. A person has to say yes (`ops approve`); then execute with `retryKey`."
        }
        Kind::HandleExpired => "Nothing was done. Begin a new one and go on with that.",
        Kind::HandleUnknown => "Nothing was done. Check the handle; if it is right, begin a new one.",
        Kind::CredentialRequired => "Nothing ran. Show the link to the user; execute again once it is given.",
    }
}

/// Whether the very same execution, sent again after a pause, is what to do.
#[must_use]
pub fn comes_again(kind: Kind, keyed: bool) -> bool {
    class(kind, keyed) == Class::Unavailable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_classes_agree() {
        for (kind, keyed) in Kind::ALL.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
            let status = status(kind, keyed);
            assert!(status.is_client_error() || status == StatusCode::SERVICE_UNAVAILABLE, "{kind:?}");
            assert!(!advice(kind).is_empty() && class(kind, keyed) != Class::Done, "{kind:?}");
            // A doubt must look like nothing that a program tries again by itself.
            if class(kind, keyed) == Class::InDoubt {
                assert!(!comes_again(kind, keyed) && status == StatusCode::CONFLICT, "{kind:?} {keyed}");
            }
            if status == StatusCode::SERVICE_UNAVAILABLE {
                assert!(comes_again(kind, keyed), "{kind:?} {keyed}");
            }
        }
        let codes: Vec<u8> = Class::ALL.map(Class::exit_code).to_vec();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn without_a_key_only_what_did_not_run_comes_again() {
        let comes = |keyed| Kind::ALL.into_iter().filter(move |kind| comes_again(*kind, keyed));
        let all = [Kind::StillRunning, Kind::Unavailable, Kind::AdmissionUnknown, Kind::Limited];
        assert_eq!(comes(true).collect::<Vec<_>>(), all);
        assert_eq!(comes(false).collect::<Vec<_>>(), [Kind::Unavailable, Kind::Limited]);
    }
}
