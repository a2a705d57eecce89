//! Results as each era writes them: the modern one with `resultType` and the server's name, the legacy one without.

use mcp::constants::{meta, result_type};
use mcp::error::RpcError;
use mcp::json::{Limits, Raw, RawObject};
use mcp::server::{Outcome, WireResult};

/// A result of the modern era, made here, with further members of `_meta`.
pub(crate) fn modern(text: String, server_info: &Raw, more: &[(&str, &str)]) -> Outcome {
    let info = (meta::SERVER_INFO, server_info.as_str());
    let complete = |object: &RawObject, meta: &[_]| WireResult::of(object, result_type::COMPLETE, meta);
    frame(text, |object| match more {
        [] => complete(object, &[info]),
        [one] => complete(object, &[info, *one]),
        more => complete(object, &[&[info], more].concat()),
    })
}

/// A result of the legacy era, made here, with members of `_meta`.
pub(crate) fn legacy(text: String, more: &[(&str, &str)]) -> Outcome {
    frame(text, |object| WireResult::legacy_of(object, more))
}

/// The legacy era's answer to what has none: exactly `{}`.
pub(crate) fn nothing() -> Outcome {
    legacy("{}".into(), &[])
}

fn frame(text: String, make: impl FnOnce(&RawObject) -> WireResult) -> Outcome {
    let limits = Limits { depth: 128, ..Limits::default() };
    match RawObject::parse(text, &limits) {
        Ok(object) => Outcome::Result(make(&object)),
        // A stored or provider's text that can't be framed: say so rather than send a broken message.
        Err(why) => {
            tracing::error!(%why, "a result can't be put on the wire");
            Outcome::Error(RpcError::internal(
                "Internal error: the result can't be put on the wire. It is kept; an operator can read it.",
            ))
        }
    }
}
