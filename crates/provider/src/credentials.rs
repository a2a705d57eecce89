//! Secrets: named in manifests, resolved at start, put into a request at the last moment.
//!
//! No secret is ever in an intent, a log, an error or a `Debug` output.

mod configured;

pub use configured::ConfigCredentials;

use crate::error::CredentialError;
use crate::own::{How, NoOwn, Whose};
use crate::proof::{Masked, Proof, Scheme};
use crate::stored::{Kept, OAuth};
use async_trait::async_trait;
use credentials::Ticket;
use std::path::PathBuf;
use std::sync::Arc;

/// The largest secret that is read from a file, in bytes.
const MAX_SECRET: u64 = 64 << 10;

/// Gives what authenticates an account.
#[async_trait]
pub trait Credentials: Send + Sync {
    /// What its requests carry; [`Proof::is_none`] if the account needs nothing.
    ///
    /// # Errors
    /// The credential is missing or unusable: nothing may be sent.
    fn proof(&self, account: &str, mode: &str) -> Result<Proof, CredentialError>;

    /// Whether a recorded request may still go out: its account is still at this base URL, and still has the
    /// credential with this mark (`None`: nothing is known of it, or any of the account's will do). Without knowledge
    /// of either, yes.
    ///
    /// # Errors
    /// Why it must not: a key means nothing to another account, so its replay could be a second effect.
    fn unchanged(&self, account: &str, mode: &str, base: &str, mark: Option<&str>) -> Result<(), String> {
        let _ = (account, mode, base, mark);
        Ok(())
    }

    /// A principal's own credential, if it is the one with this mark (`None`: whichever).
    ///
    /// # Errors
    /// [`NoOwn`]: nothing may be sent.
    async fn own(&self, whose: &Whose<'_>, mark: Option<&str>) -> Result<Kept, NoOwn> {
        let (account, _) = (whose.account, mark);
        Err(NoOwn::Missing(format!("no principal has a credential of its own for account {account:?} here")))
    }

    /// The provider refused a principal's token (401). Whether the next send will have another one.
    fn refused_own(&self, whose: &Whose<'_>, ticket: Ticket) -> bool {
        let _ = (whose, ticket);
        false
    }

    /// What authenticates an account whose credential is in the user's store, or got by OAuth, if it is the one with this mark
    /// (`None`: whichever). `None`: it is not such an account.
    ///
    /// # Errors
    /// [`NoOwn`]: nothing may be sent.
    async fn kept(&self, to: &Account<'_>, mark: Option<&str>) -> Result<Option<Kept>, NoOwn> {
        let _ = (to, mark);
        Ok(None)
    }

    /// The provider refused such a token (401). Whether the next send will have another one.
    fn refused(&self, to: &Account<'_>, ticket: Ticket) -> bool {
        let _ = (to, ticket);
        false
    }

    /// Where this base URL of an account is now, if it is one that moves by itself.
    fn moved(&self, account: &str, mode: &str, base: &str) -> Option<String> {
        let _ = (account, mode, base);
        None
    }
}

/// An account, and where its request goes.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    /// The account of the manifest.
    pub account: &'a str,
    /// `sandbox` or `production`.
    pub mode: &'a str,
    /// Scheme, host and port.
    pub origin: &'a str,
}

/// The mark of a credential that could not be read when a request was recorded.
pub(crate) const MISSING: &str = "missing";

/// The mark of a credential, and of what goes along with it.
pub(crate) fn with_also(mark: String, also: Option<&str>) -> String {
    match also {
        Some(also) => format!("{mark}+{also}"),
        None => mark,
    }
}

/// Whether a mark says that something of the credential could not be read: nothing was sent under it.
pub(crate) fn is_missing(mark: &str) -> bool {
    mark == MISSING || mark.strip_suffix(MISSING).is_some_and(|rest| rest.ends_with('+'))
}

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretRef {
    Env(String),
    File(PathBuf),
}

impl SecretRef {
    /// Reads `${env:NAME}` or `${file:PATH}`. What is neither may be the secret itself, so it is not repeated.
    pub(crate) fn parse(text: &str) -> Result<SecretRef, String> {
        let inside =
            text.strip_prefix("${").and_then(|t| t.strip_suffix('}')).and_then(|t| t.split_once(':'));
        match inside {
            Some(("env", name)) if !name.is_empty() => Ok(SecretRef::Env(name.to_owned())),
            Some(("file", path)) if !path.is_empty() => Ok(SecretRef::File(path.into())),
            Some(("keyring", _)) => Err("\"${keyring:NAME}\" is for counterfoil.toml; a manifest has secret = \"store\", and `counterfoil auth connect` keeps it encrypted (--keyring: under a key in the keyring)".into()),
            _ => Err("a secret is never written here; write \"${env:NAME}\" or \"${file:PATH}\"".into()),
        }
    }
}

/// How an account authenticates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    None,
    /// By the operator's secret.
    Shared(Scheme, SecretRef),
    /// By what `counterfoil auth connect` kept.
    Stored(Scheme),
    /// By tokens of OAuth.
    OAuth(OAuth),
    /// By one that each principal has of its own.
    Own(Scheme),
    /// By tokens that each principal has of its own.
    OwnTokens(OAuth),
}

/// A secret of the operator's that goes along with the credential, and how it is sent.
pub(crate) type Also = (Scheme, SecretRef);

impl Auth {
    /// How it is sent, if there is one.
    pub(crate) fn scheme(&self) -> Option<&Scheme> {
        match self {
            Auth::None => None,
            Auth::Shared(scheme, _) | Auth::Stored(scheme) | Auth::Own(scheme) => Some(scheme),
            Auth::OAuth(_) | Auth::OwnTokens(_) => Some(&Scheme::Bearer),
        }
    }

    /// What authenticates a request, each secret masked.
    pub(crate) fn masked(&self, also: &[Also]) -> Vec<Masked> {
        let all = self.scheme().into_iter().chain(also.iter().map(|(scheme, _)| scheme));
        all.map(Scheme::masked).collect()
    }

    /// How each principal's own is got and sent, if it has one.
    pub(crate) fn own(&self) -> Option<Arc<How>> {
        match self {
            Auth::Own(scheme) => Some(How::given(scheme.clone())),
            Auth::OwnTokens(oauth) => Some(How::oauth(oauth.clone())),
            Auth::None | Auth::Shared(..) | Auth::Stored(_) | Auth::OAuth(_) => None,
        }
    }
}

/// The secret that is named.
pub(crate) fn read_secret(
    secret: &SecretRef,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let text = match secret {
        SecretRef::Env(name) => {
            env(name).ok_or_else(|| format!("the environment variable {name} is not set"))?
        }
        SecretRef::File(path) => {
            let too_large = std::fs::metadata(path).map_err(|e| e.kind()).map(|m| m.len() > MAX_SECRET);
            match too_large.and_then(|large| {
                if large { Ok(String::new()) } else { std::fs::read_to_string(path).map_err(|e| e.kind()) }
            }) {
                Ok(text) => text,
                Err(kind) => return Err(format!("its file can't be read: {kind}")),
            }
        }
    };
    let text = text.trim();
    if text.is_empty() {
        Err("it is empty, or its file is larger than 64 KiB".into())
    } else {
        Ok(text.to_owned())
    }
}
