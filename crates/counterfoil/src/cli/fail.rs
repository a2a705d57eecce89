//! How a command ends when it doesn't end well: an exit code, a sentence for people, a kind for programs.

use crate::Error;
use gateway::exec::outcome::{self, Class};
use ledger::Kind;
use serde_json::Value;

/// The provider or tool refused.
pub(super) const REFUSED: u8 = Class::Refused.exit_code();
/// Usage or configuration.
pub(super) const USAGE: u8 = Class::Usage.exit_code();
/// It may or may not have happened.
pub(super) const IN_DOUBT: u8 = Class::InDoubt.exit_code();
/// The very same again is safe.
pub(super) const UNAVAILABLE: u8 = Class::Unavailable.exit_code();

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
    pub fn new(code: u8, kind: &str, message: impl Into<String>) -> Fail {
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
            // The state is fine: what was named is two.
            409 if kind == "ambiguous" => USAGE,
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

/// The exit code of an error object of the wire (`kind`). `keyed`: the very same command again has the same key. What another
/// version says and this one doesn't know is a refusal.
pub(super) fn code_of_kind(kind: &str, keyed: bool) -> u8 {
    let known = Kind::ALL.into_iter().find(|k| k.word() == kind);
    known.map_or(REFUSED, |kind| outcome::class(kind, keyed).exit_code())
}
