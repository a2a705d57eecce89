//! Which era a message belongs to: chosen by its metadata and header, never by its method, so that `initialize` or
//! `ping` with modern metadata is what it is there, a method that doesn't exist.
use http::{HeaderMap, HeaderValue};

use super::{Endpoint, HttpConfig};
use crate::constants::{header, meta};
use crate::error::RpcError;
use crate::json::RawObject;
use crate::revision::{Eras, Revision};

/// What a message's header, or its `_meta`, says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Modern,
    /// With the revision that the header names. A legacy client that names none is taken as one of 2025-03-26, which
    /// has no header for it (spec 2025-11-25: Streamable HTTP, "Protocol Version Header").
    Legacy(Revision),
}

/// The era by the header alone: a revision that isn't a legacy one that is spoken, an unknown one included, is modern,
/// where its refusal names what is served.
pub(super) fn by_header(headers: &HeaderMap) -> Era {
    let mut all = headers.get_all(header::PROTOCOL_VERSION).iter();
    match (all.next(), all.next()) {
        (None, _) => Era::Legacy(Revision::V2025_03_26),
        (Some(one), None) => match one.to_str().ok().and_then(Revision::parse) {
            Some(revision) if revision.is_legacy() => Era::Legacy(revision),
            _ => Era::Modern,
        },
        _ => Era::Modern,
    }
}

/// Whether a message's `_meta` says that it is of the modern era.
pub(super) fn declares_modern(meta: Option<&RawObject>) -> bool {
    meta.is_some_and(|m| m.has(meta::PROTOCOL_VERSION))
}

/// The era of a message that came over HTTP.
pub(super) fn of(meta: Option<&RawObject>, headers: &HeaderMap) -> Era {
    if declares_modern(meta) { Era::Modern } else { by_header(headers) }
}

/// The refusal of a modern message where the modern era isn't served. Its code is none of the modern era's, so that a
/// client of both eras falls back to `initialize`.
pub(super) fn modern_refused() -> RpcError {
    let served = Eras::Legacy.served();
    RpcError::invalid_request(format!("this endpoint serves {served}; open with initialize"))
}

impl<S> Endpoint<S> {
    /// Which eras are served under the name that the request asked for.
    pub fn eras(&self, parts: &http::request::Parts) -> Eras {
        let HttpConfig { eras, eras_by_host, .. } = &self.config;
        if eras_by_host.is_empty() {
            return *eras;
        }
        let host = crate::origin::host_name(parts).unwrap_or_default();
        let listed = eras_by_host.iter().find(|(name, _)| name.eq_ignore_ascii_case(host));
        listed.map_or(*eras, |(_, eras)| *eras)
    }
}

/// Whether a session id has the form that the protocol allows: 1 to 255 visible ASCII characters.
pub(super) fn is_session_id(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=255).contains(&bytes.len()) && bytes.iter().all(|b| (0x21..=0x7e).contains(b))
}
