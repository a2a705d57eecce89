//! Credentials that each principal has of its own: what they are for, and how a request finds one.
//!
//! A secret belongs to an account, a mode, the origin that its owner was told, and a principal: it is sent nowhere else and
//! for nobody else. Its mark is recorded with the request, as that of a shared one is, so that what was sent once under one
//! credential is never sent again under another.

use crate::manifest::Mode;
use crate::proof::{Scheme, marked};
use crate::stored::OAuth;
use async_trait::async_trait;
use credentials::{Client, Endpoints, Ticket};
use std::fmt;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// How a principal's own credential is got and sent.
#[derive(Debug)]
pub(crate) struct How {
    pub scheme: Scheme,
    oauth: Option<OAuth>,
    /// Read once, as all secrets that are named.
    client: OnceLock<Result<Client, String>>,
}

impl PartialEq for How {
    fn eq(&self, other: &How) -> bool {
        (&self.scheme, &self.oauth) == (&other.scheme, &other.oauth)
    }
}

impl Eq for How {}

impl How {
    /// Given at a page.
    pub fn given(scheme: Scheme) -> Arc<How> {
        Arc::new(How { scheme, oauth: None, client: OnceLock::new() })
    }

    /// Tokens, by a person's word at the authorization server.
    pub fn oauth(oauth: OAuth) -> Arc<How> {
        Arc::new(How { scheme: Scheme::Bearer, oauth: Some(oauth), client: OnceLock::new() })
    }

    /// The client of OAuth, if it is one.
    ///
    /// # Errors
    /// Its secret is named and can't be read.
    pub fn client(&self) -> Result<Option<&Client>, String> {
        self.client_with(|name| std::env::var(name).ok())
    }

    /// The same, in another environment if it was not read yet.
    pub fn client_with(&self, env: impl Fn(&str) -> Option<String>) -> Result<Option<&Client>, String> {
        let Some(oauth) = &self.oauth else { return Ok(None) };
        self.client.get_or_init(|| oauth.client(env)).as_ref().map(Some).map_err(Clone::clone)
    }
}

/// Where a principal's own credential goes: what a person is told before giving it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAccount {
    /// The provider, for people.
    pub provider: String,
    /// The account of the manifest.
    pub account: String,
    /// Which of the provider's worlds.
    pub mode: Mode,
    /// Scheme, host and port: it is sent there, and nowhere else.
    pub origin: String,
    pub(crate) how: Arc<How>,
    pub(crate) is_withheld: bool,
}

impl OwnAccount {
    /// One under which nothing is sent in this mode.
    pub(crate) fn withheld(
        provider: String,
        account: String,
        mode: Mode,
        origin: String,
        scheme: Scheme,
    ) -> OwnAccount {
        OwnAccount { provider, account, mode, origin, how: How::given(scheme), is_withheld: true }
    }

    /// Whether nothing is sent under it in this mode. Then it is not known whose tokens could be used: any that are there
    /// were given for it.
    #[must_use]
    pub fn is_withheld(&self) -> bool {
        self.is_withheld
    }

    /// What is asked for, in words.
    #[must_use]
    pub fn wanted(&self) -> String {
        self.how.scheme.wanted()
    }

    /// Whether tokens of OAuth are sent.
    #[must_use]
    pub fn is_oauth(&self) -> bool {
        self.how.oauth.is_some()
    }

    /// How it is sent, in a word or two.
    #[must_use]
    pub fn kind(&self) -> String {
        if self.is_oauth() { "oauth".into() } else { self.how.scheme.word() }
    }

    /// The authorization server of OAuth, and the id of the client there.
    #[must_use]
    pub fn identity(&self) -> Option<(&str, &str)> {
        self.how.oauth.as_ref().map(|o| (o.endpoints.identity(), o.client_id.as_str()))
    }

    /// Where a person is sent, for people, and the id of the client there.
    #[must_use]
    pub fn leads_to(&self) -> Option<(String, &str)> {
        let oauth = self.how.oauth.as_ref()?;
        let place = match &oauth.endpoints {
            Endpoints::Given { authorize: Some(authorize), .. } => origin(authorize),
            told => told.identity().to_owned(),
        };
        Some((place, &oauth.client_id))
    }

    /// The client of OAuth, if it is one.
    ///
    /// # Errors
    /// Its secret is named and can't be read.
    pub fn client(&self) -> Result<Option<&Client>, String> {
        self.how.client()
    }

    /// The mark of a secret for it.
    ///
    /// # Errors
    /// It can't be sent; the reason does not repeat it.
    pub fn mark(&self, secret: &str) -> Result<String, String> {
        self.how.scheme.proof(secret).map(|proof| marked(&proof))
    }
}

/// Whose credential, for what.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    /// The account of the manifest.
    pub account: &'a str,
    /// `sandbox` or `production`.
    pub mode: &'a str,
    /// Scheme, host and port.
    pub origin: &'a str,
    /// The principal.
    pub principal: &'a str,
}

/// A principal's own credential, as it is kept.
#[derive(Clone)]
pub struct Own {
    /// The secret.
    pub secret: Zeroizing<String>,
    /// Its mark, from when it was given.
    pub mark: String,
    /// Of an access token that can be renewed.
    pub ticket: Option<Ticket>,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("mark", &self.mark).finish_non_exhaustive()
    }
}

/// Where they are kept.
#[async_trait]
pub trait OwnCredentials: Send + Sync {
    /// A principal's own, if it has one; of OAuth, that of this client, renewed if need be.
    ///
    /// # Errors
    /// Why that can't be known now.
    async fn find(&self, whose: &Whose<'_>, client: Option<&Client>) -> Result<Option<Own>, String>;

    /// The provider refused such a token (401). Whether the next send will have another one.
    fn refused(&self, whose: &Whose<'_>, ticket: Ticket) -> bool {
        let _ = (whose, ticket);
        false
    }
}

/// Why a request can't go out under a principal's own credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoOwn {
    /// It is another one than was recorded.
    #[error("{0}")]
    Changed(String),
    /// There is none, or it can't be read now.
    #[error("{0}")]
    Missing(String),
}

/// Scheme, host and port of a base URL.
pub(crate) fn origin(base: &str) -> String {
    url::Url::parse(base).map_or_else(|_| base.to_owned(), |url| url.origin().ascii_serialization())
}
