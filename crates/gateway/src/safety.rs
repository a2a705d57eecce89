//! Whether the same may be sent again, and why: in words for people, from the one thing that decides it.

use ledger::Strategy;
use serde_json::{Value, json};

/// Whether a retry is safe, and why, in a sentence.
#[must_use]
pub fn retry(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Key => {
            "safe: the same key goes out with every send, and the provider acts once per key while it remembers it"
        }
        Strategy::Unique => {
            "safe: the provider refuses a second object with the same value of a field that is filled with the effect's key"
        }
        Strategy::Local => "safe: the effect is part of the ledger's own transaction",
        Strategy::Natural => "safe: sending it again leaves the same end state",
        Strategy::Lookup => "safe after asking: the provider is asked before anything is sent again",
        Strategy::Confirm => "a person is asked before anything is sent again",
        Strategy::None => {
            "not safe, so nothing is ever sent twice: an unclear outcome is in doubt until somebody decides"
        }
    }
}

/// The same for a table: `safe` is `yes`, `no` or `asks`, and `why` a few words. `undecided`: nobody said how it recovers.
#[must_use]
pub fn repeat(strategy: Strategy, undecided: bool) -> Value {
    let (safe, why) = match strategy {
        Strategy::Key => ("yes", "the provider acts once per key"),
        Strategy::Unique => ("yes", "the provider refuses a second"),
        Strategy::Local => ("yes", "it is part of the ledger's write"),
        Strategy::Natural => ("yes", "it leaves the same end state"),
        Strategy::Lookup => ("yes", "the provider is asked first"),
        Strategy::Confirm => ("asks", "a person is asked first"),
        Strategy::None if undecided => ("no", "nobody decided; never sent twice, in doubt instead"),
        Strategy::None => ("no", "never sent twice, in doubt instead"),
    };
    json!({ "safe": safe, "why": why })
}

/// The same for a tool that changes nothing.
#[must_use]
pub fn reading() -> Value {
    json!({ "safe": "yes", "why": "it changes nothing" })
}
