//! Credentials that principals give of their own: kept encrypted in the ledger, asked for at a page of this server, sent to
//! the provider and seen by nobody else. A secret is given at the page; tokens of OAuth by a word at the authorization server,
//! to which the page leads.
//!
//! Promises: a secret passes through no client and no model; it is stored only for the principal that was asked, who proves to
//! be it; a link stores once; what is kept opens only for its ledger, mode, account, origin and principal, tokens only for
//! their issuer and client too, whichever replica reads it. Where there is none, nothing is opened and nothing is sent. A
//! refresh token is used by one replica, once, but where that one ends or is cut off from the ledger before it has written
//! what it got (see `renew`).

mod ask;
mod away;
mod back;
mod html;
mod page;
mod proof;
mod record;
mod redirect;
mod renew;
#[cfg(test)]
mod tests;

pub(crate) use ask::{Connecting, before_read, connecting, required, unreadable, wait};
pub(crate) use page::router;
pub use redirect::redirect;

use crate::answers::random_name;
use credentials::{Client, Ticket, Tokens};
use ledger::{Store, Time};
use provider::{Own, OwnAccount, OwnCredentials, Whose};
use record::{Grant, Pair, Shelf};
use renew::Renewals;
use seal::Keeper;
use sha2::{Digest as _, Sha256};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use zeroize::Zeroizing;

/// How often a write is tried again after another's.
const TRIES: usize = 8;

/// The credentials of principals in one process. Made before there is a ledger; until that is open, none can be read.
#[derive(Default)]
pub struct Connections {
    kept: OnceLock<Shelf>,
    base: OnceLock<String>,
    renewals: Renewals,
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

/// See [`Connections::new_tokens`].
pub(crate) struct NewTokens {
    grant: Grant,
    text: Zeroizing<Vec<u8>>,
}

/// What is told of a principal's credential.
pub(crate) struct Given {
    /// When it was given.
    pub since: Time,
    /// Of tokens.
    pub grant: Option<Grant>,
}

impl Given {
    /// Whether it can be used, in a word or more.
    pub fn state(&self, now: Time) -> &'static str {
        let Some(grant) = &self.grant else { return "valid" };
        let ended = grant.ends.is_some_and(|end| end <= now);
        match (&grant.refused, ended, grant.renewable) {
            (Some(_), ..) => "refused",
            (None, true, true) => "renewed at the next use",
            (None, true, false) => "expired",
            (None, false, _) => "valid",
        }
    }
}

/// What is told of the credential that a principal has for this account, if there is one.
///
/// # Errors
/// Why that can't be known now.
pub(crate) async fn given(
    store: &dyn Store,
    account: &OwnAccount,
    principal: &str,
) -> Result<Option<Given>, String> {
    let (_, record) = record::read(store, &whose(account, principal)).await?;
    let record = record.filter(|r| account.is_withheld() || r.fits(account.identity()));
    Ok(record.map(|r| Given { since: r.at, grant: r.grant }))
}

/// Forgets it; whether there was one.
///
/// # Errors
/// Why it was not forgotten, or may not have been.
pub(crate) async fn forget(store: &dyn Store, whose: &Whose<'_>) -> Result<bool, String> {
    for _ in 0..TRIES {
        let (version, _) = record::read(store, whose).await?;
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
        let _ = self.kept.set(Shelf { store, keeper });
    }

    /// The pages are at this address, without a slash at the end, from now on.
    pub fn serve_at(&self, base: String) {
        let _ = self.base.set(base);
    }

    pub(crate) fn base(&self) -> Option<&str> {
        self.base.get().map(String::as_str)
    }

    fn kept(&self) -> Result<&Shelf, String> {
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
        let mark = account.mark(secret)?;
        self.keep(&whose(account, principal), &mark, None, secret.as_bytes(), None).await
    }

    /// Whether this principal has a connection of this client that can be used, or renewed first.
    ///
    /// # Errors
    /// Why that can't be known now.
    pub(crate) async fn is_connected(&self, whose: &Whose<'_>, client: &Client) -> Result<bool, String> {
        let shelf = self.kept()?;
        let (_, record) = shelf.read(whose).await?;
        self.renewals.is_connected(shelf, whose, client, record).await
    }

    /// Keeps the tokens of a new connection, unless there is one that can be used: it would be another account in the place
    /// of what calls were recorded under meanwhile.
    ///
    /// # Errors
    /// Why they were not kept, or may not have been.
    pub(crate) async fn connect(
        &self,
        whose: &Whose<'_>,
        client: &Client,
        tokens: &NewTokens,
    ) -> Result<(), String> {
        // Another one for each connection: nobody knows whether it is of the same account at the provider.
        let mark = random_name();
        self.keep(whose, &mark, Some(tokens.grant.clone()), &tokens.text, Some(client)).await
    }

    /// Tokens that were just got, as they are to be kept.
    ///
    /// # Errors
    /// Why they can't be kept, whoever tries.
    pub(crate) fn new_tokens(&self, client: &Client, tokens: Tokens) -> Result<NewTokens, String> {
        let grant = renew::granted(client, &tokens, self.kept()?.store.now());
        let text = Pair { access: tokens.access, refresh: tokens.refresh }.text()?;
        if text.len() > seal::MAX_SECRET {
            return Err(renew::TOO_LARGE.into());
        }
        Ok(NewTokens { grant, text })
    }

    /// Waits, no longer than this, until all that was begun with codes and refresh tokens is written.
    pub async fn settle(&self, most: Duration) {
        self.renewals.tasks.close();
        if tokio::time::timeout(most, self.renewals.tasks.wait()).await.is_err() {
            tracing::warn!(
                "tokens of principals were still being got or written; those principals may be asked again"
            );
        }
    }

    /// Puts it in its place, over what is there; but with a client, over no connection of it that can be used.
    async fn keep(
        &self,
        whose: &Whose<'_>,
        mark: &str,
        grant: Option<Grant>,
        secret: &[u8],
        unless: Option<&Client>,
    ) -> Result<(), String> {
        let shelf = self.kept()?;
        let new = shelf.close(whose, (shelf.store.now(), mark), grant, secret).await;
        let new = new.map_err(|e| e.to_string())?;
        for _ in 0..TRIES {
            let (version, record) = shelf.read(whose).await?;
            let stays = match unless {
                Some(client) => self.renewals.is_connected(shelf, whose, client, record).await?,
                None => false,
            };
            if stays || shelf.write(whose, version, &new).await? {
                return Ok(());
            }
        }
        Err("another write was always first".into())
    }
}

#[async_trait::async_trait]
impl OwnCredentials for Connections {
    async fn find(&self, whose: &Whose<'_>, client: Option<&Client>) -> Result<Option<Own>, String> {
        let shelf = self.kept()?;
        if let Some(client) = client {
            return self.renewals.find(shelf, whose, client).await;
        }
        let (_, record) = shelf.read(whose).await?;
        let Some(record) = record.filter(|r| r.fits(None)) else { return Ok(None) };
        let Some(bytes) = shelf.open(whose, &record).await? else { return Ok(None) };
        let secret = std::str::from_utf8(&bytes).map_err(|_| "it is damaged".to_owned())?;
        Ok(Some(Own { secret: Zeroizing::new(secret.to_owned()), mark: record.mark, ticket: None }))
    }

    fn refused(&self, whose: &Whose<'_>, ticket: Ticket) -> bool {
        self.renewals.refused(whose, ticket)
    }
}
