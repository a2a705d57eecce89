//! Values as people write them: lengths of time, sizes, addresses, names.

use ledger::Millis;
use std::net::SocketAddr;

/// A length of time between two bounds.
pub(super) fn duration(text: &str, least: Millis, most: Millis) -> Result<Millis, String> {
    let d = provider::parse_duration(text)?;
    if d < least || d > most {
        return Err(format!("{text} is outside {} to {}", show_duration(least), show_duration(most)));
    }
    Ok(d)
}

/// A length of time in the largest unit that divides it.
#[must_use]
pub fn show_duration(d: Millis) -> String {
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")] {
        if d.0 != 0 && d.0 % unit == 0 {
            return format!("{}{name}", d.0 / unit);
        }
    }
    format!("{}ms", d.0)
}

/// Reads `512KiB`, `4MiB` or `1GiB`.
///
/// # Errors
/// Says what a size looks like.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit: u64 = match &text[digits..] {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => 0,
    };
    let bytes = text[..digits].parse::<u64>().ok().filter(|_| unit > 0).and_then(|n| n.checked_mul(unit));
    bytes.ok_or_else(|| format!("{text:?} is not a size; write for example \"512KiB\" or \"4MiB\""))
}

/// A size in the largest unit that it reaches, to one decimal.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    for (unit, name) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit {
            #[allow(clippy::cast_precision_loss)]
            let n = bytes as f64 / unit as f64;
            return if bytes.is_multiple_of(unit) {
                format!("{}{name}", bytes / unit)
            } else {
                format!("{n:.1}{name}")
            };
        }
    }
    format!("{bytes}B")
}

/// An address with its port.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address = named.as_deref().unwrap_or(text).parse();
    address.map_err(|_| format!("{text:?} is not an address; write for example \"127.0.0.1:8600\""))
}

/// The name of a server: it becomes part of keys, so it is plain.
pub(super) fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=64).contains(&text.len()) && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not a name; use 1 to 64 of A-Z a-z 0-9 . _ -"))
    }
}

/// The name of an integration: the first part of canonical ids, so without dots.
pub(super) fn integration(text: &str) -> Result<String, String> {
    name(text)
        .ok()
        .filter(|n| !n.contains('.'))
        .ok_or_else(|| format!("{text:?} is not the name of an integration; use 1 to 64 of A-Z a-z 0-9 _ -"))
}

/// The path of the endpoint.
pub(super) fn path(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '~');
    if text.len() < 2
        || !text.starts_with('/')
        || text.ends_with('/')
        || text.contains("//")
        || !text.chars().all(plain)
    {
        return Err(format!("{text:?} is not a path; write for example \"/mcp\""));
    }
    let taken = ["/healthz", "/readyz", "/metrics", "/connect", "/console", "/api", "/.well-known"];
    match taken.iter().find(|t| text == **t || text.starts_with(&format!("{t}/"))) {
        Some(t) => Err(format!("{t} is taken; choose another path")),
        None => Ok(text.to_owned()),
    }
}

/// `https://…`, or `http://` on loopback.
pub(super) fn public_url(text: &str) -> Result<url::Url, String> {
    let url = url::Url::parse(text).map_err(|e| format!("{text:?} is not a URL ({e})"))?;
    if !(url.scheme() == "https" || url.scheme() == "http" && is_loopback(&url)) {
        return Err("must be https, or http on loopback".into());
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err("must have no user, password, query or fragment".into());
    }
    Ok(url)
}

/// Where alerts are posted. The URL may hold a token, so it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook(String);

impl Webhook {
    /// https, or http on loopback.
    pub(super) fn new(text: &str) -> Result<Webhook, String> {
        let url = url::Url::parse(text).map_err(|e| format!("not a URL ({e})"))?;
        if !(url.scheme() == "https" || url.scheme() == "http" && is_loopback(&url)) {
            return Err("must be https, or http on loopback".into());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must have no user or password; a token goes into its path or query".into());
        }
        Ok(Webhook(text.to_owned()))
    }

    /// The URL, to post to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Webhook(…)")
    }
}

fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(d)) => d == "localhost",
        Some(url::Host::Ipv4(a)) => a.is_loopback(),
        Some(url::Host::Ipv6(a)) => a.is_loopback(),
        None => false,
    }
}

/// A `Host` name, with or without a port.
pub(super) fn host(text: &str) -> Result<(), String> {
    let url = url::Url::parse(&format!("http://{text}"));
    let good = url.is_ok_and(|u| {
        u.host_str().is_some() && u.path() == "/" && u.query().is_none() && u.username().is_empty()
    });
    if good && !text.contains(['/', '@', '?', '#', '*', ' ']) {
        Ok(())
    } else {
        Err(format!("{text:?} is not a host name; write for example \"mcp.example.com\""))
    }
}

/// An `Origin`: scheme, host and port.
pub(super) fn origin(text: &str) -> Result<(), String> {
    match url::Url::parse(text) {
        Ok(u) if matches!(u.scheme(), "http" | "https") && u.origin().ascii_serialization() == text => Ok(()),
        Ok(u) if matches!(u.scheme(), "http" | "https") => Err(format!(
            "{text:?} is not an origin as browsers send it; write {:?}",
            u.origin().ascii_serialization()
        )),
        _ => Err(format!("{text:?} is not an origin; write for example \"https://app.example.com\"")),
    }
}
