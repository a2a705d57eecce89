//! Credentials that principals give of their own: kept encrypted in the ledger, asked for at a page of this server, sent to
//! the provider and seen by nobody else.
//!
//! Promises: a secret passes through no client and no model; it is stored only for the principal that was asked, who proves to
//! be it; a link stores once; what is kept opens only for its ledger, mode, account, origin and principal, whichever replica
//! reads it. Where there is none, nothing is opened and nothing is sent.

mod ask;
mod html;
mod page;
mod proof;

pub(crate) use ask::{Connecting, before_read, connecting, required, unreadable, wait};
pub(crate) use page::router;

use ledger::{Store, Time};
use provider::{Own, OwnAccount, OwnCredentials, Whose};
use seal::{Keeper, OpenError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// How often a write is tried again after another's.
const TRIES: usize = 8;
/// The form that is written. Another one is left alone.
const FORM: u32 = 1;

/// The credentials of principals in one process. Made before there is a ledger; until that is open, none can be read.
#[derive(Default)]
pub struct Connections {
    kept: OnceLock<(Arc<dyn Store>, Keeper)>,
    base: OnceLock<String>,
}

/// A credential as it is kept.
#[derive(Serialize, Deserialize)]
struct Record {
    form: u32,
    /// When it was given.
    at: Time,
    mark: String,
    /// Encrypted.
    secret: String,
}

/// Where a principal's credential is kept.
fn place(whose: &Whose<'_>) -> String {
    let mut digest = Sha256::new();
    for part in [whose.account, whose.mode, whose.origin, whose.principal] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    format!("credential/{}", ledger::effect::hex(&digest.finalize()))
}

/// Whose credential for this account.
pub(crate) fn whose<'a>(account: &'a OwnAccount, principal: &'a str) -> Whose<'a> {
    Whose { account: &account.account, mode: account.mode.as_str(), origin: &account.origin, principal }
}

/// What a secret is bound to.
fn about<'a>(ledger: &'a str, whose: &Whose<'a>, mark: &'a str) -> [&'a [u8]; 7] {
    let Whose { account, mode, origin, principal } = *whose;
    ["credential", ledger, mode, account, origin, principal, mark].map(str::as_bytes)
}

/// What is kept of it, and its version.
async fn record(store: &dyn Store, whose: &Whose<'_>) -> Result<(u64, Option<Record>), String> {
    let found = store.shelved(&place(whose)).await.map_err(|e| e.to_string())?;
    let Some(found) = found else { return Ok((0, None)) };
    let record = serde_json::from_slice::<Record>(&found.data).ok().filter(|r| r.form == FORM);
    Ok((found.version, record))
}

/// When a principal gave the credential that is kept of it, if there is one.
///
/// # Errors
/// Why that can't be known now.
pub(crate) async fn since(store: &dyn Store, whose: &Whose<'_>) -> Result<Option<Time>, String> {
    Ok(record(store, whose).await?.1.map(|r| r.at))
}

/// Forgets it; whether there was one.
///
/// # Errors
/// Why it was not forgotten, or may not have been.
pub(crate) async fn forget(store: &dyn Store, whose: &Whose<'_>) -> Result<bool, String> {
    for _ in 0..TRIES {
        let (version, _) = record(store, whose).await?;
        if version == 0 {
            return Ok(false);
        }
        let until = Some(store.now().plus(ledger::Millis(1)));
        let gone = store.shelve(&place(whose), version, Vec::new(), until).await;
        if gone.map_err(|e| e.to_string())? {
            return Ok(true);
        }
    }
    Err("another write was always first".into())
}

impl Connections {
    /// Reads and writes them in this ledger from now on.
    pub fn open(&self, store: Arc<dyn Store>, keeper: Keeper) {
        let _ = self.kept.set((store, keeper));
    }

    /// The pages are at this address, without a slash at the end, from now on.
    pub fn serve_at(&self, base: String) {
        let _ = self.base.set(base);
    }

    pub(crate) fn base(&self) -> Option<&str> {
        self.base.get().map(String::as_str)
    }

    fn kept(&self) -> Result<&(Arc<dyn Store>, Keeper), String> {
        self.kept.get().ok_or_else(|| "this process can't read the credentials of principals".into())
    }

    /// Keeps a secret, in the place of an older one.
    ///
    /// # Errors
    /// Why it was not kept, or may not have been.
    pub(crate) async fn put(
        &self,
        account: &OwnAccount,
        principal: &str,
        secret: &Zeroizing<String>,
    ) -> Result<(), String> {
        let (store, keeper) = self.kept()?;
        let whose = whose(account, principal);
        let mark = account.mark(secret)?;
        let about = about(&store.identity().name, &whose, &mark);
        let sealed = keeper.put_away(secret.as_bytes(), &about).await.map_err(|e| e.to_string())?;
        let new = Record { form: FORM, at: store.now(), mark: mark.clone(), secret: sealed };
        let data = serde_json::to_vec(&new).map_err(|e| e.to_string())?;
        for _ in 0..TRIES {
            let (version, _) = record(&**store, &whose).await?;
            if store.shelve(&place(&whose), version, data.clone(), None).await.map_err(|e| e.to_string())? {
                return Ok(());
            }
        }
        Err("another write was always first".into())
    }
}

#[async_trait::async_trait]
impl OwnCredentials for Connections {
    async fn find(&self, whose: &Whose<'_>) -> Result<Option<Own>, String> {
        let (store, keeper) = self.kept()?;
        let (_, Some(record)) = record(&**store, whose).await? else { return Ok(None) };
        let about = about(&store.identity().name, whose, &record.mark);
        match keeper.take_out(&record.secret, &about).await {
            Ok(bytes) => {
                let secret = std::str::from_utf8(&bytes).map_err(|_| "it is damaged".to_owned())?;
                Ok(Some(Own { secret: Zeroizing::new(secret.to_owned()), mark: record.mark }))
            }
            // As good as none: its owner is asked again.
            Err(OpenError::Rejected(why)) => {
                tracing::warn!(
                    account = whose.account,
                    why = why.word(),
                    "a principal's credential does not open"
                );
                Ok(None)
            }
            Err(OpenError::Unavailable(why)) => Err(why),
        }
    }
}
