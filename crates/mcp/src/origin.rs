//! Protection against DNS rebinding (spec: Streamable HTTP, "Security & Endpoint"): which `Host` and `Origin` a
//! request may carry. On by default.
//!
//! `Host` must name this machine's loopback with the bound port, or be listed. `Origin`, if present, must be listed,
//! or be `http` on the very host and port that `Host` names, when that is loopback.
use http::header::{HOST, ORIGIN};
use http::request::Parts;

/// What is allowed beyond loopback.
#[derive(Debug, Clone, Default)]
pub struct HostPolicy {
    port: Option<u16>,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl HostPolicy {
    /// `port`: the bound port that loopback hosts must name (`None`: any). `hosts`: names allowed as `Host`, with a
    /// port (only that one) or without (any). `origins`: allowed values of `Origin`, such as `https://app.example.com`.
    pub fn new(port: Option<u16>, hosts: &[String], origins: &[String]) -> HostPolicy {
        let lower = |all: &[String]| {
            all.iter().map(|one| one.trim().trim_end_matches('/').to_ascii_lowercase()).collect::<Vec<_>>()
        };
        HostPolicy { port, hosts: lower(hosts), origins: lower(origins) }
    }

    /// Judges a request's head.
    ///
    /// # Errors
    /// The reason, for a 403.
    pub fn check(&self, parts: &Parts) -> Result<(), &'static str> {
        const HOST_REFUSED: &str =
            "the Host header names neither this machine nor a host in server.allowed_hosts";
        const ORIGIN_REFUSED: &str = "the Origin header is not in server.allowed_origins";
        let mut hosts = parts.headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next(), parts.uri.authority()) {
            (Some(host), None, _) => host.to_str().map_err(|_| HOST_REFUSED)?,
            // HTTP/2 carries it as :authority, which hyper keeps in the URI.
            (None, None, Some(authority)) => authority.as_str(),
            _ => return Err(HOST_REFUSED),
        };
        let loopback = self.is_own_loopback(host);
        if !loopback && !self.is_listed(host) {
            return Err(HOST_REFUSED);
        }
        let mut origins = parts.headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(()) };
        let origin = origin.to_str().map_err(|_| ORIGIN_REFUSED)?;
        let own = || {
            loopback && origin.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://")) && {
                let (name, port) = split(&origin[7..]);
                let (own_name, own_port) = split(host);
                name.eq_ignore_ascii_case(own_name) && port.unwrap_or("80") == own_port.unwrap_or("80")
            }
        };
        let listed = || self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin));
        if origins.next().is_none() && (own() || listed()) { Ok(()) } else { Err(ORIGIN_REFUSED) }
    }

    fn is_own_loopback(&self, host: &str) -> bool {
        let (name, port) = split(host);
        let right_port = match (self.port, port) {
            (None, _) => true,
            (Some(bound), Some(port)) => port.parse() == Ok(bound),
            (Some(bound), None) => bound == 80,
        };
        right_port && is_loopback_name(name)
    }

    fn is_listed(&self, host: &str) -> bool {
        let (name, _) = split(host);
        self.hosts.iter().any(|allowed| {
            let (_, port) = split(allowed);
            allowed.eq_ignore_ascii_case(if port.is_some() { host } else { name })
        })
    }
}

/// The host that a request names, without its port.
pub(crate) fn host_name(parts: &Parts) -> Option<&str> {
    let host = match parts.headers.get(HOST) {
        Some(host) => host.to_str().ok()?,
        None => parts.uri.authority()?.as_str(),
    };
    Some(split(host).0)
}

/// Whether a host name or address (without port) is this machine's loopback.
pub fn is_loopback_name(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// `name[:port]`; the name of an IPv6 address keeps its brackets.
fn split(host: &str) -> (&str, Option<&str>) {
    match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') => (&host[..colon], Some(&host[colon + 1..])),
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn judge(policy: &HostPolicy, host: &str, origin: Option<&str>) -> bool {
        let mut request = http::Request::builder().header(HOST, host);
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        policy.check(&request.body(()).unwrap().into_parts().0).is_ok()
    }

    #[test]
    fn only_this_machine_and_what_is_listed() {
        let policy = HostPolicy::new(
            Some(8600),
            &["mcp.Example.com".into(), "lan:9000".into()],
            &["https://app.example.com".into()],
        );
        for host in ["localhost:8600", "LOCALHOST:8600", "127.0.0.1:8600", "[::1]:8600", "127.9.9.9:8600"] {
            assert!(judge(&policy, host, None), "{host}");
            assert!(judge(&policy, host, Some(&format!("http://{host}"))), "{host}");
            assert!(!judge(&policy, host, Some("http://localhost:3000")), "{host}");
        }
        for host in ["mcp.example.com", "mcp.example.com:443", "lan:9000"] {
            assert!(judge(&policy, host, None), "{host}");
            assert!(judge(&policy, host, Some("https://app.example.com")), "{host}");
            assert!(!judge(&policy, host, Some(&format!("http://{host}"))), "{host}");
        }
        for host in ["localhost", "localhost:80", "evil.example.com", "lan", "127.0.0.1.evil.com:8600", ""] {
            assert!(!judge(&policy, host, None), "{host}");
        }
        for origin in ["null", "http://evil.example.com", "https://localhost:8600", "é"] {
            assert!(!judge(&policy, "localhost:8600", Some(origin)), "{origin}");
        }
        assert!(judge(&HostPolicy::default(), "localhost:1", None));
    }
}
