//! Accounts whose credential is in the user's store, or is got by OAuth: what a person is told before connecting one, and how
//! a request finds it.

use crate::credentials::{Auth, SecretRef, read_secret};
use crate::manifest::{Integration, Mode};
use crate::own;
use crate::proof::{Proof, Scheme, marked};
use credentials::{Client, ClientAuth, Endpoints, Flow, Live, Ticket, Wanted};
use zeroize::Zeroizing;

/// What a manifest says of OAuth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OAuth {
    pub endpoints: Endpoints,
    pub client_id: String,
    pub client_secret: ClientSecret,
    /// `None`: as the server tells.
    pub client_auth: Option<ClientAuth>,
    pub scopes: Vec<String>,
    pub flow: Flow,
    pub resource: Option<String>,
    pub audience: Option<String>,
}

/// Where a client's own secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientSecret {
    /// It has none.
    None,
    Named(SecretRef),
    /// In the store.
    Kept,
}

impl OAuth {
    /// The client, its secret read where it is named.
    pub fn client(&self, env: impl Fn(&str) -> Option<String>) -> Result<Client, String> {
        let secret = match &self.client_secret {
            ClientSecret::Named(at) => {
                Some(Zeroizing::new(read_secret(at, &env).map_err(|why| format!("client_secret: {why}"))?))
            }
            ClientSecret::None | ClientSecret::Kept => None,
        };
        Ok(Client {
            endpoints: self.endpoints.clone(),
            id: self.client_id.clone(),
            secret,
            auth: self.client_auth,
            scopes: self.scopes.clone(),
            flow: self.flow,
            resource: self.resource.clone(),
            audience: self.audience.clone(),
        })
    }
}

/// An account that is connected by `counterfoil auth connect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAccount {
    /// The provider, for people.
    pub provider: String,
    /// The account of the manifest.
    pub account: String,
    /// Which of the provider's worlds.
    pub mode: Mode,
    /// Scheme, host and port of where it is sent.
    pub origin: String,
    scheme: Scheme,
    oauth: Option<OAuth>,
}

impl StoredAccount {
    /// That of an integration, if it has one.
    pub(crate) fn of(i: &Integration) -> Option<StoredAccount> {
        let (scheme, oauth) = match &i.auth {
            Auth::Stored(scheme) => (scheme.clone(), None),
            Auth::OAuth(oauth) => (Scheme::Bearer, Some(oauth.clone())),
            Auth::None | Auth::Shared(..) | Auth::Own(_) | Auth::OwnTokens(_) => return None,
        };
        Some(StoredAccount {
            provider: i.title().unwrap_or(i.name()).to_owned(),
            account: i.account().to_owned(),
            mode: i.mode(),
            origin: own::origin(i.base_url()),
            scheme,
            oauth,
        })
    }

    /// How it is sent, as it is kept with the credential.
    #[must_use]
    pub fn kind(&self) -> String {
        if self.oauth.is_some() { "oauth".into() } else { self.scheme.word() }
    }

    /// What is asked for, in words.
    #[must_use]
    pub fn wanted(&self) -> String {
        self.scheme.wanted()
    }

    /// Whether tokens of OAuth are sent.
    #[must_use]
    pub fn is_oauth(&self) -> bool {
        self.oauth.is_some()
    }

    /// Whether the client's own secret is kept with the tokens.
    #[must_use]
    pub fn keeps_client_secret(&self) -> bool {
        self.oauth.as_ref().is_some_and(|o| o.client_secret == ClientSecret::Kept)
    }

    /// The client of OAuth, if it is one.
    ///
    /// # Errors
    /// Its secret is named and can't be read.
    pub fn client(&self) -> Result<Option<Client>, String> {
        self.client_with(|name| std::env::var(name).ok())
    }

    pub(crate) fn client_with(&self, env: impl Fn(&str) -> Option<String>) -> Result<Option<Client>, String> {
        self.oauth.as_ref().map(|o| o.client(env)).transpose()
    }

    /// The mark of a secret for it.
    ///
    /// # Errors
    /// It can't be sent; the reason does not repeat it.
    pub fn mark(&self, secret: &str) -> Result<String, String> {
        self.scheme.proof(secret).map(|proof| marked(&proof))
    }
}

/// A credential that had to be looked for, as a request is sent with it.
#[derive(Clone, Debug)]
pub struct Kept {
    pub(crate) proof: Proof,
    pub(crate) ticket: Option<Ticket>,
}

/// One such account of a process.
pub(crate) struct Stored {
    account: StoredAccount,
    kind: String,
    client: Result<Option<Client>, String>,
    live: Option<Live>,
}

impl Stored {
    pub fn new(account: StoredAccount, env: impl Fn(&str) -> Option<String>) -> Stored {
        let (kind, client) = (account.kind(), account.client_with(env));
        Stored { account, kind, client, live: None }
    }

    /// Reads it here from now on.
    pub fn open(&mut self, live: Live) {
        self.live = Some(live);
    }

    fn wanted<'a>(&'a self, origin: &'a str) -> Result<Wanted<'a>, String> {
        Ok(Wanted {
            account: &self.account.account,
            mode: self.account.mode.as_str(),
            origin,
            kind: &self.kind,
            client: self.client.as_ref().map_err(Clone::clone)?.as_ref(),
        })
    }

    fn live(&self) -> Result<&Live, String> {
        self.live.as_ref().ok_or_else(|| "this process reads no stored credentials".into())
    }

    /// What requests for an origin are recorded with now; `None`: there is no credential.
    pub fn mark(&self, origin: &str) -> Option<String> {
        self.live.as_ref()?.mark(&self.wanted(origin).ok()?)
    }

    /// Whether what the manifest names of it could be read.
    pub fn is_named_right(&self) -> bool {
        self.client.is_ok()
    }

    /// What is missing, and what to do.
    pub fn check(&self, origin: &str) -> Result<(), String> {
        self.live()?.check(&self.wanted(origin)?)
    }

    /// It, and its mark.
    pub async fn find(&self, origin: &str) -> Result<(Kept, String), String> {
        let found = self.live()?.find(&self.wanted(origin)?).await?;
        let proof = self.account.scheme.proof(&found.secret)?;
        Ok((Kept { proof, ticket: found.ticket }, found.mark))
    }

    /// See [`Live::refused`].
    pub fn refused(&self, origin: &str, ticket: Ticket) -> bool {
        match (self.live(), self.wanted(origin)) {
            (Ok(live), Ok(wanted)) => live.refused(&wanted, ticket),
            _ => false,
        }
    }
}
