//! One credential: what is told of it, and what is sealed.

use crate::error::Error;
use seal::{MasterKey, rest};
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroizing;

/// The largest secret that is kept, in bytes; of OAuth, all tokens of an entry together.
pub const MAX_SECRET: usize = 8 << 10;

/// What is told of a credential. It is not encrypted, and can't be changed without the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The account of the manifests.
    pub account: String,
    /// `sandbox` or `production`.
    pub mode: String,
    /// How it is sent: `bearer`, `basic`, `basic NAME`, `header NAME`, `query NAME`, `oauth`.
    pub kind: String,
    /// Scheme, host and port of where it is sent: what a person was told, and nowhere else.
    pub origins: Vec<String>,
    /// Of OAuth: whose tokens they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Of OAuth: the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// What requests are recorded with: another one after another account was connected, the same after a renewal.
    pub mark: String,
    /// When it was given, in seconds since 1970.
    pub since: i64,
    /// When its tokens were last renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<i64>,
    /// When its access token ends, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
    /// Whether it can be renewed without a person.
    #[serde(default)]
    pub renewable: bool,
    /// What it may be used for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The word by which the authorization server refused to renew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl About {
    /// Whether it is in the place of the other: the same account, mode and issuer, for a same origin.
    pub(crate) fn replaces(&self, other: &About) -> bool {
        let same = self.account == other.account && self.mode == other.mode && self.issuer == other.issuer;
        same && self.origins.iter().any(|o| other.origins.contains(o))
    }
}

/// What is sealed. Never printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    /// An API key, password or token that a person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Zeroizing<String>>,
    /// Of OAuth: what is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Zeroizing<String>>,
    /// Of OAuth: what renews it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<Zeroizing<String>>,
    /// Of OAuth: the client's own, where it is kept here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Zeroizing<String>>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    fn size(&self) -> usize {
        let all = [&self.secret, &self.access, &self.refresh, &self.client_secret];
        all.into_iter().flatten().map(|s| s.len()).sum()
    }
}

const DOMAIN: &[u8] = b"counterfoil credential v1";

/// Seals a secret for exactly what is told of it.
pub(crate) fn close(key: &MasterKey, about: &About, secret: &Secret) -> Result<String, Error> {
    let too_large = || {
        Error::TooMuch(format!(
            "a credential of more than {MAX_SECRET} bytes is not kept; nothing was changed"
        ))
    };
    if secret.size() > MAX_SECRET {
        return Err(too_large());
    }
    let text = Zeroizing::new(serde_json::to_vec(secret).map_err(|_| too_large())?);
    let bound = serde_json::to_vec(about).map_err(|_| too_large())?;
    rest::close(key, &text, &[DOMAIN, &bound]).map_err(|e| match e {
        seal::SealError::TooLarge => too_large(),
        seal::SealError::Unavailable(_) => Error::Random,
    })
}

/// Opens what was sealed for exactly this.
pub(crate) fn open(key: &MasterKey, about: &About, sealed: &str) -> Result<Secret, Error> {
    let forged = || Error::Forged { account: about.account.clone(), mode: about.mode.clone() };
    let bound = serde_json::to_vec(about).map_err(|_| forged())?;
    let text = rest::open(key, sealed, &[DOMAIN, &bound]).map_err(|_| forged())?;
    serde_json::from_slice(&text).map_err(|_| forged())
}
