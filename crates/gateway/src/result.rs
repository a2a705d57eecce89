//! Results as each era writes them: the modern one with `resultType` and the server's name, the legacy one without.

use mcp::constants::meta;
use mcp::error::RpcError;
use mcp::json::{JsonError, Limits, Raw};
use mcp::server::{Outcome, WireResult};

/// A result of the modern era, made here, with further members of `_meta`.
pub(crate) fn modern(text: String, server_info: &Raw, more: &[(&str, &str)]) -> Outcome {
    let info = (meta::SERVER_INFO, server_info.as_str());
    frame(text, |raw| match more {
        [] => WireResult::complete(raw, &[info]),
        [one] => WireResult::complete(raw, &[info, *one]),
        more => WireResult::complete(raw, &[&[info], more].concat()),
    })
}

/// A result of the legacy era, made here, with members of `_meta`.
pub(crate) fn legacy(text: String, more: &[(&str, &str)]) -> Outcome {
    frame(text, |raw| WireResult::legacy(raw, more))
}

/// The legacy era's answer to what has none: exactly `{}`.
pub(crate) fn nothing() -> Outcome {
    legacy("{}".into(), &[])
}

fn frame(text: String, make: impl FnOnce(&Raw) -> Result<WireResult, JsonError>) -> Outcome {
    let limits = Limits { depth: 128, ..Limits::default() };
    match Raw::parse(text, &limits).and_then(|raw| make(&raw)) {
        Ok(r) => Outcome::Result(r),
        // A stored or provider's text that can't be framed: say so rather than send a broken message.
        Err(why) => {
            tracing::error!(%why, "a result can't be put on the wire");
            Outcome::Error(RpcError::internal(
                "Internal error: the result can't be put on the wire. It is kept; an operator can read it.",
            ))
        }
    }
}
