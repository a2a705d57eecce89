//! OAuth 2.1, as a client: authorization code with PKCE, at a loopback redirect or at a page of a server; client credentials;
//! refresh.
//!
//! Requests and answers of the token endpoint are the library's (`oauth2`); what is checked beyond them is here: https outside
//! loopback, no redirects, bounded answers, metadata that names its own issuer (RFC 8414), answers that name the issuer they
//! come from (RFC 9207), bearer tokens only.

mod answer;
mod callback;
mod code;
mod http;
mod metadata;
mod servers;
mod token;

pub use answer::{Answer, Code};
pub use code::Connecting;
pub(crate) use http::Http;
pub use metadata::Server;
pub(crate) use metadata::server;
pub use servers::Servers;
pub use token::{Away, Tokens, away, client_credentials};
pub(crate) use token::{credentials_grant, refresh};

use std::fmt;
use zeroize::Zeroizing;

/// How tokens are got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// A person says yes in a browser.
    Code,
    /// The client acts for itself.
    ClientCredentials,
}

/// How a client shows its secret at the token endpoint (RFC 6749, section 2.3.1; names of RFC 7591).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// In the header: `client_secret_basic`.
    Basic,
    /// In the body: `client_secret_post`.
    Post,
}

/// Where an authorization server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoints {
    /// It tells at its issuer's metadata.
    Discover {
        /// The issuer.
        issuer: String,
    },
    /// It was told.
    Given {
        /// The issuer, if that was told too.
        issuer: Option<String>,
        /// Where people are sent; not needed for client credentials.
        authorize: Option<String>,
        /// Where tokens are got.
        token: String,
    },
}

impl Endpoints {
    /// Whose the tokens are: the issuer, or where nobody told it the place that gives them.
    #[must_use]
    pub fn identity(&self) -> &str {
        match self {
            Endpoints::Discover { issuer } | Endpoints::Given { issuer: Some(issuer), .. } => issuer,
            Endpoints::Given { issuer: None, token, .. } => token,
        }
    }
}

/// A client of an authorization server.
#[derive(Clone, PartialEq, Eq)]
pub struct Client {
    /// Where the server is.
    pub endpoints: Endpoints,
    /// The client's id.
    pub id: String,
    /// Its secret, if it has one.
    pub secret: Option<Zeroizing<String>>,
    /// How it shows it; `None`: as the server tells, in the header where that tells nothing.
    pub auth: Option<ClientAuth>,
    /// What is asked for.
    pub scopes: Vec<String>,
    /// How tokens are got.
    pub flow: Flow,
    /// What the token is for (RFC 8707).
    pub resource: Option<String>,
    /// The same, for servers that ask for it in this way.
    pub audience: Option<String>,
}

impl Client {
    /// Whose its tokens are, and its id: by another of either it is another account.
    #[must_use]
    pub fn identity(&self) -> (&str, &str) {
        (self.endpoints.identity(), &self.id)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.endpoints)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Whether it leads to this machine by its own word: an address of loopback, or the name `localhost`.
#[must_use]
pub fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// https, or http on loopback; without user, password or fragment.
///
/// # Errors
/// What is wrong with it.
pub fn check_url(text: &str) -> Result<url::Url, String> {
    let url = url::Url::parse(text).map_err(|e| format!("{text:?} is not a URL: {e}"))?;
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) => {}
        _ => return Err(format!("{text:?} must be https: only loopback may be reached without it")),
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(format!("{text:?} must have no user, password or fragment"));
    }
    Ok(url)
}

/// The words of errors that are told (RFC 6749, sections 4.1.2.1 and 5.2; RFC 8707; OpenID Connect Core, section 3.1.2.6).
/// Another word is not repeated: nobody knows what it holds.
pub(crate) fn known(word: &str) -> &'static str {
    const KNOWN: [&str; 15] = [
        "access_denied",
        "account_selection_required",
        "consent_required",
        "interaction_required",
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "login_required",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_grant_type",
        "unsupported_response_type",
    ];
    KNOWN.into_iter().find(|k| *k == word).unwrap_or("an error of its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_reached_without_https() {
        for good in ["https://as.example/a?b=c", "http://127.0.0.1:1/", "http://[::1]/", "http://localhost:8"]
        {
            assert!(check_url(good).is_ok(), "{good}");
        }
        for bad in
            ["http://as.example", "ftp://127.0.0.1", "as.example", "https://u@as.example", "https://a/#x"]
        {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_words_are_not_repeated() {
        assert_eq!(known("invalid_grant"), "invalid_grant");
        assert_eq!(known("CANARY"), "an error of its own");
    }
}
