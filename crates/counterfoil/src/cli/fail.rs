//! How a command ends when it doesn't end well: an exit code, a sentence for people, a kind for programs.

use crate::Error;
use serde_json::Value;

/// The provider or tool refused.
pub(super) const REFUSED: u8 = 1;
/// Usage or configuration.
pub(super) const USAGE: u8 = 2;
/// It may or may not have happened.
pub(super) const IN_DOUBT: u8 = 3;
/// The key belongs to another operation.
pub(super) const KEY_CONFLICT: u8 = 4;
/// Nothing ran, or a retry is safe.
pub(super) const UNAVAILABLE: u8 = 5;

/// A command's end: its exit code, or why it failed.
pub(super) type Done = Result<u8, Fail>;

/// Why a command failed.
#[derive(Debug)]
pub(super) struct Fail {
    pub code: u8,
    /// For programs, in `error.kind`.
    pub kind: String,
    /// For people.
    pub message: String,
    /// More, for programs.
    pub detail: Option<Box<Value>>,
}

impl Fail {
    fn new(code: u8, kind: &str, message: impl Into<String>) -> Fail {
        Fail { code, kind: kind.into(), message: message.into(), detail: None }
    }
    pub fn usage(message: impl Into<String>) -> Fail {
        Fail::new(USAGE, "usage", message)
    }
    pub fn unavailable(message: impl Into<String>) -> Fail {
        Fail::new(UNAVAILABLE, "unavailable", message)
    }

    /// What the operators' routes refused.
    pub fn operator(status: ::http::StatusCode, body: &Value) -> Fail {
        let error = &body["error"];
        let message = error["message"].as_str().unwrap_or("the request was refused").to_owned();
        let kind = error["code"].as_str().unwrap_or("refused");
        let code = match status.as_u16() {
            400 | 404 | 415 | 422 => USAGE,
            503 => UNAVAILABLE,
            _ => REFUSED,
        };
        Fail::new(code, kind, message)
    }
}

impl From<Error> for Fail {
    fn from(e: Error) -> Fail {
        if e.is_configuration() {
            Fail::new(USAGE, "configuration", e.to_string())
        } else {
            Fail::unavailable(e.to_string())
        }
    }
}

impl From<crate::config::ConfigError> for Fail {
    fn from(e: crate::config::ConfigError) -> Fail {
        Fail::from(Error::from(e))
    }
}

/// The exit code of an error object of the wire (`kind`).
pub(super) fn code_of_kind(kind: &str) -> u8 {
    match kind {
        "in_doubt" => IN_DOUBT,
        "key_conflict" | "key_expired" => KEY_CONFLICT,
        "unavailable" | "admission_unknown" | "still_running" => UNAVAILABLE,
        "bad_arguments" | "key_required" => USAGE,
        _ => REFUSED,
    }
}
