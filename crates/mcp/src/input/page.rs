//! The address of a page that a user is sent to (spec: client/elicitation, "Safe URL Handling"; SEP-1036).
use url::{Host, Url};

use super::Invalid;
use super::format::is_uri;

/// Longest address, in bytes.
const MAX_URL: usize = 4 << 10;

/// https, or http on a loopback host; a host and no user.
pub(super) fn check(text: &str) -> Result<(), Invalid> {
    let invalid = |why: &str| Err(Invalid(format!("url {why}")));
    if text.len() > MAX_URL {
        return invalid("is longer than 4 KiB");
    }
    let Some(url) = Some(text).filter(|text| is_uri(text)).and_then(|text| Url::parse(text).ok()) else {
        return invalid("is not a URL");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return invalid("must hold no user and no password");
    }
    let loopback = match url.host() {
        None => return invalid("must name a host"),
        Some(Host::Domain(name)) => name.trim_end_matches('.') == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
    };
    match url.scheme() {
        "https" => Ok(()),
        "http" if loopback => Ok(()),
        _ => invalid("must begin with https:// (http:// for this machine's loopback alone)"),
    }
}
