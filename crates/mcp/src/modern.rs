//! What a request of the modern era must satisfy before it is served, in the order that decides which error wins:
//!
//! 1. `initialize` without per-request metadata opens the legacy era: -32022, naming what is served.
//! 2. `_meta` with the required fields: else -32602. It comes before any header, since a body without metadata has
//!    nothing to compare.
//! 3. `MCP-Protocol-Version` equals the body's revision: else -32020, even where neither is served.
//! 4. The revision is served: else -32022.
//! 5. `Mcp-Method`, then `Mcp-Name` where the method has one: else -32020 (-32602 if the body lacks the name).
//! 6. `inputResponses` and `requestState`, where the request may bring them, have their shape: else -32602.
use http::HeaderMap;

use crate::constants::{SUPPORTED_VERSIONS, header, meta, method, name_source};
use crate::error::RpcError;
use crate::headers::must_equal;
use crate::input::Given;
use crate::message::Request;
use crate::meta::RequestMeta;
use crate::revision::Eras;

/// Checks a request's standard headers and metadata, and takes the latter out of it. `eras`: what is served, for the
/// texts of refusals.
///
/// # Errors
/// See the order above; all travel with HTTP 400.
pub fn admit(request: &mut Request, headers: &HeaderMap, eras: Eras) -> Result<RequestMeta, RpcError> {
    check(request, Some(headers), eras)
}

/// As [`admit`], of a request that came without headers, as over lines: its metadata is all there is.
///
/// # Errors
/// Points 1, 2, 4 and 6 of the order above, and -32602 if the body lacks the name.
pub fn admit_bare(request: &mut Request, eras: Eras) -> Result<RequestMeta, RpcError> {
    check(request, None, eras)
}

fn check(request: &mut Request, headers: Option<&HeaderMap>, eras: Eras) -> Result<RequestMeta, RpcError> {
    let mirrors = |name: &str, value: &str, wrapped: bool| match headers {
        Some(headers) => must_equal(headers, name, value, wrapped),
        None => Ok(()),
    };
    let declares = |m: &crate::json::RawObject| m.has(meta::PROTOCOL_VERSION);
    if request.method == method::INITIALIZE && !request.meta.as_ref().is_some_and(declares) {
        let asked = request.params.as_ref().and_then(|p| p.get("protocolVersion"));
        return Err(RpcError::unsupported_version(
            &asked.as_ref().and_then(|v| v.as_string()).unwrap_or_default(),
            eras,
        ));
    }
    let meta = RequestMeta::of(request, eras)?;
    let version = meta.protocol_version();
    mirrors(header::PROTOCOL_VERSION, &version, false)?;
    if !SUPPORTED_VERSIONS.contains(&&*version) {
        return Err(RpcError::unsupported_version(&version, eras));
    }
    mirrors(header::METHOD, &request.method, false)?;
    if let Some(source) = name_source(&request.method) {
        let name = request.params.as_ref().and_then(|p| p.string(source));
        let name = name.ok_or_else(|| RpcError::malformed(format!("params.{source} must be a string")))?;
        mirrors(header::NAME, &name, true)?;
    }
    drop(version);
    Given::of(request)?;
    Ok(meta)
}
