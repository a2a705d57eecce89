//! What is kept of a principal on the ledger's shelf: one secret, or the tokens of one connection, encrypted for exactly what
//! is told beside them.

use super::place;
use ledger::{Store, Time};
use provider::Whose;
use seal::{Keeper, OpenError, SealError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The forms that are written. Another one is left alone.
const SECRET: u32 = 1;
const TOKENS: u32 = 2;

/// A credential as it is kept.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Record {
    form: u32,
    /// When it was given.
    pub at: Time,
    pub mark: String,
    /// Encrypted.
    secret: String,
    /// Of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
}

/// What is told of tokens.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    /// Whose they are.
    pub issuer: String,
    /// The client that they were given to.
    pub client: String,
    /// When they were got. Another time with each renewal.
    pub got: Time,
    /// When the access token ends, if it says so.
    pub ends: Option<Time>,
    /// There is a refresh token.
    pub renewable: bool,
    pub scopes: Vec<String>,
    /// The word by which the authorization server ended it.
    pub refused: Option<String>,
}

/// What is sealed of tokens.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Pair {
    pub access: Zeroizing<String>,
    pub refresh: Option<Zeroizing<String>>,
}

impl Pair {
    /// What is sealed.
    pub fn text(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        serde_json::to_vec(self).map(Zeroizing::new).map_err(|e| e.to_string())
    }
}

impl Record {
    /// Whether it is what is asked for: a secret, or tokens of this issuer for this client.
    pub fn fits(&self, client: Option<(&str, &str)>) -> bool {
        self.grant.as_ref().map(|g| (g.issuer.as_str(), g.client.as_str())) == client
    }
}

/// What is kept of it, and its version.
pub(super) async fn read(store: &dyn Store, whose: &Whose<'_>) -> Result<(u64, Option<Record>), String> {
    let found = store.shelved(&place(whose)).await.map_err(|e| e.to_string())?;
    let Some(found) = found else { return Ok((0, None)) };
    let record = serde_json::from_slice::<Record>(&found.data).ok();
    Ok((found.version, record.filter(|r| matches!((r.form, &r.grant), (SECRET, None) | (TOKENS, Some(_))))))
}

/// The shelf with the keys to what lies there.
#[derive(Clone)]
pub(super) struct Shelf {
    pub store: Arc<dyn Store>,
    pub keeper: Keeper,
}

impl Shelf {
    pub async fn read(&self, whose: &Whose<'_>) -> Result<(u64, Option<Record>), String> {
        read(&*self.store, whose).await
    }

    /// Whether it was written: what is there still had this version.
    pub async fn write(&self, whose: &Whose<'_>, version: u64, record: &Record) -> Result<bool, String> {
        let data = serde_json::to_vec(record).map_err(|e| e.to_string())?;
        self.store.shelve(&place(whose), version, data, None).await.map_err(|e| e.to_string())
    }

    /// Encrypts a secret, or tokens, of this principal.
    pub async fn close(
        &self,
        whose: &Whose<'_>,
        (at, mark): (Time, &str),
        grant: Option<Grant>,
        secret: &[u8],
    ) -> Result<Record, SealError> {
        let form = if grant.is_some() { TOKENS } else { SECRET };
        let new = Record { form, at, mark: mark.to_owned(), secret: String::new(), grant };
        let secret = self.keeper.put_away(secret, &about(&self.ledger(), whose, &new, &told(&new))).await?;
        Ok(Record { secret, ..new })
    }

    /// Opens it. `None`: it does not open, and is as good as none; its owner is asked again.
    pub async fn open(
        &self,
        whose: &Whose<'_>,
        record: &Record,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
        let ledger = self.ledger();
        match self.keeper.take_out(&record.secret, &about(&ledger, whose, record, &told(record))).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(OpenError::Rejected(why)) => {
                let (account, why) = (whose.account, why.word());
                tracing::warn!(account, why, "a principal's credential does not open");
                Ok(None)
            }
            Err(OpenError::Unavailable(why)) => Err(why),
        }
    }

    fn ledger(&self) -> String {
        self.store.identity().name.clone()
    }
}

/// What is told of tokens, as bytes.
fn told(record: &Record) -> Vec<u8> {
    record.grant.as_ref().and_then(|g| serde_json::to_vec(g).ok()).unwrap_or_default()
}

/// What a secret is bound to: its place; tokens also to all that is told of them.
fn about<'a>(ledger: &'a str, whose: &Whose<'a>, record: &'a Record, told: &'a [u8]) -> Vec<&'a [u8]> {
    let Whose { account, mode, origin, principal } = *whose;
    let what = if record.grant.is_some() { "tokens" } else { "credential" };
    let mut all: Vec<&[u8]> =
        [what, ledger, mode, account, origin, principal, &record.mark].map(str::as_bytes).to_vec();
    all.extend(record.grant.is_some().then_some(told));
    all
}
