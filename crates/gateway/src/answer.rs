//! Answers that are no results: tool results with `isError: true`, one plain sentence, and an error object that
//! a model or program can act on. They answer a call and are never stored.

use ledger::CallError;
use mcp::json::{Limits, Raw};
use serde_json::Value;

pub use calls::answer::{META_ERROR, bad_arguments, error_object};

/// The result object of an error, and its error object for `_meta`.
#[must_use]
pub fn result(e: &CallError, has_output_schema: bool) -> (Raw, Raw) {
    let (body, object) = calls::answer::result(e, has_output_schema);
    (raw(&body), raw(&object))
}

/// JSON text of a value that was made here.
#[must_use]
pub fn raw(value: &Value) -> Raw {
    // What serde_json writes is JSON; the limits are those of what is read, so give it room.
    let limits = Limits { depth: 128, ..Limits::default() };
    Raw::parse(value.to_string(), &limits).unwrap_or_else(|_| Raw::string(""))
}
