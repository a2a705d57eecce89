//! A token that is there, and one that has to be renewed.

use super::fit::{absent, ended, expired, fitting, refused_client};
use super::{Found, Fresh, Inner, Memory, REST, Ticket, Told, Wanted, found, good, life, mark_of};
use crate::entry::{About, Secret};
use crate::error::Error;
use crate::oauth::{self, Flow};
use crate::store::{RENEWED_WITHIN, unix_now};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::OwnedMutexGuard;

impl Inner {
    /// The token that is there, if it may be used.
    pub(super) async fn fresh(
        self: Arc<Inner>,
        mut memory: OwnedMutexGuard<Memory>,
        told: &Told,
        refused: Option<Ticket>,
    ) -> Result<Fresh, String> {
        let wanted = told.wanted();
        memory.asked_by(&told.client);
        if told.client.flow == Flow::ClientCredentials {
            // A token that was got by a secret from the store ends with it: whoever forgets the one means the other.
            if told.client.secret.is_none()
                && let Err(why) = self.is_kept(&wanted)
            {
                memory.own = None;
                return Err(why);
            }
            let own = memory.own.as_ref().filter(|t| good(t.expires, None, &t.access, refused));
            return Ok(match own.map(|own| found(&own.access, mark_of(&told.client))) {
                Some(found) => Fresh::Found(found, memory),
                None => Fresh::Stale(memory),
            });
        }
        if memory.unsaved.is_some() {
            return Ok(Fresh::Stale(memory));
        }
        let listing = self.listing().map_err(|e| e.to_string())?.ok_or_else(|| absent(&wanted))?;
        let entry = fitting(&listing, &wanted)?.clone();
        let same = memory.opened.as_ref().is_some_and(|(e, _)| e.is(&entry));
        if !same {
            let secret = self.open(listing, entry.clone()).await.map_err(|e| e.to_string())?;
            memory.opened = Some((entry, secret));
        }
        let Some((entry, secret)) = &memory.opened else { return Err(absent(&wanted)) };
        let access = secret.access.as_ref().ok_or_else(|| absent(&wanted))?;
        let (about, life) = (&entry.about, life(&entry.about));
        // What has ended is over also where its token would be good yet.
        if let Some(word) = &about.refused {
            return Err(ended(&wanted, word));
        }
        if good(about.expires, life, access, refused) {
            let found = found(access, about.mark.clone());
            return Ok(Fresh::Found(found, memory));
        }
        if secret.refresh.is_none() {
            // A refused one that can't be replaced is sent: its provider says what is wrong.
            if about.expires.is_some_and(|at| at <= unix_now()) {
                return Err(expired(&wanted));
            }
            let found = found(access, about.mark.clone());
            return Ok(Fresh::Found(found, memory));
        }
        Ok(Fresh::Stale(memory))
    }

    /// Whether the store has what is wanted.
    fn is_kept(&self, wanted: &Wanted<'_>) -> Result<(), String> {
        let listing = self.listing().map_err(|e| e.to_string())?.ok_or_else(|| absent(wanted))?;
        fitting(&listing, wanted).map(drop)
    }

    /// Gets another token.
    pub(super) async fn renew(
        self: Arc<Inner>,
        mut memory: OwnedMutexGuard<Memory>,
        told: Told,
        refused: Option<Ticket>,
    ) -> Result<Found, String> {
        if let Some((_, why)) = memory.failed.as_ref().filter(|(at, _)| at.elapsed() < REST) {
            return self.usable(&memory, &told, why, refused);
        }
        let renewed = match told.client.flow {
            Flow::ClientCredentials => self.own_token(&mut memory, &told).await,
            Flow::Code => self.renew_stored(&mut memory, &told, refused).await,
        };
        match renewed {
            Ok(found) => {
                memory.failed = None;
                Ok(found)
            }
            Err(e) => {
                // Kept, or told by the store: nothing more is asked.
                if let (Flow::Code, Some(word)) = (told.client.flow, e.ended()) {
                    return Err(ended(&told.wanted(), word));
                }
                let said = self.usable(&memory, &told, &e, refused);
                memory.failed = Some((Instant::now(), e));
                said
            }
        }
    }

    /// What was there, while it is good yet; else why there is no other.
    pub(super) fn usable(
        &self,
        memory: &Memory,
        told: &Told,
        why: &Error,
        refused: Option<Ticket>,
    ) -> Result<Found, String> {
        let there = match (&memory.own, &memory.opened) {
            (Some(own), _) => Some((own.expires, &own.access, mark_of(&told.client))),
            (None, Some((e, Secret { access: Some(access), .. }))) => {
                Some((e.about.expires, access, e.about.mark.clone()))
            }
            _ => None,
        };
        // Not one whose successor is not on the disk yet.
        let there = there.filter(|(expires, access, _)| {
            memory.unsaved.is_none()
                && expires.is_none_or(|at| at > unix_now())
                && Some(Ticket::of(access)) != refused
        });
        match there {
            Some((_, access, mark)) => Ok(found(access, mark)),
            None => Err(match why {
                Error::Refused(word) => refused_client(&told.wanted(), word),
                why => format!("its access token can't be renewed now: {why}; try again"),
            }),
        }
    }

    /// A token of the client's own. It is not kept: whoever has id and secret gets another.
    async fn own_token(self: &Arc<Inner>, memory: &mut Memory, told: &Told) -> Result<Found, Error> {
        let mut client = told.client.clone();
        if client.secret.is_none() {
            let wanted = told.wanted();
            let no = |why: String| Error::Server(why);
            let listing = self.listing()?.ok_or_else(|| no(absent(&wanted)))?;
            let entry = fitting(&listing, &wanted).map_err(no)?.clone();
            client.secret = self.open(listing, entry).await?.client_secret;
        }
        let (tokens, _) = oauth::credentials_grant(&self.http, &client).await?;
        let found = found(&tokens.access, mark_of(&client));
        memory.own = Some(tokens);
        Ok(found)
    }

    /// By the refresh token, one process at a time.
    async fn renew_stored(
        self: &Arc<Inner>,
        memory: &mut Memory,
        told: &Told,
        refused: Option<Ticket>,
    ) -> Result<Found, Error> {
        let wanted = told.wanted();
        let (store, account, mode) = (self.store()?.clone(), told.account.clone(), told.mode.clone());
        let turn = tokio::task::spawn_blocking(move || store.renewal(&account, &mode, RENEWED_WITHIN));
        let _turn = turn.await.map_err(|_| Error::Busy)??;
        let no = |why: String| Error::Server(why);
        let listing = self.listing()?.ok_or_else(|| no(absent(&wanted)))?;
        let entry = fitting(&listing, &wanted).map_err(no)?.clone();
        // What was got and could not be kept comes first: it is the only one that is worth anything, unless somebody
        // connected anew.
        if let Some((about, secret)) = memory.unsaved.take()
            && (about.mark == entry.about.mark && about.since == entry.about.since)
        {
            return self.keep(memory, about, secret).await;
        }
        let secret = self.open(listing, entry.clone()).await?;
        // Another process may have been first.
        if let Some(word) = &entry.about.refused {
            return Err(Error::Refused(word.clone()));
        }
        if let Some(access) = &secret.access
            && good(entry.about.expires, life(&entry.about), access, refused)
        {
            let found = found(access, entry.about.mark.clone());
            memory.opened = Some((entry, secret));
            return Ok(found);
        }
        let token = secret.refresh.clone().ok_or_else(|| no(expired(&wanted)))?;
        let mut client = told.client.clone();
        client.secret = client.secret.or_else(|| secret.client_secret.clone());
        let server = match memory.server.clone() {
            Some(server) => server,
            None => oauth::server(&self.http, &client).await?,
        };
        memory.server = Some(server.clone());
        match oauth::refresh(&self.http, &client, &server, &token).await {
            Ok(tokens) => {
                let about = About {
                    renewed: Some(unix_now()),
                    expires: tokens.expires,
                    scopes: if tokens.scopes.is_empty() { entry.about.scopes } else { tokens.scopes },
                    ..entry.about
                };
                let secret = Secret {
                    access: Some(tokens.access),
                    refresh: tokens.refresh.or(secret.refresh),
                    ..secret
                };
                tracing::info!(account = told.account, mode = told.mode, "an access token was renewed");
                self.keep(memory, about, secret).await
            }
            Err(e @ Error::Refused(_)) => {
                tracing::warn!(
                    account = told.account,
                    mode = told.mode,
                    why = %e,
                    "the renewal of a token was refused"
                );
                if let Some(word) = e.ended() {
                    let about = About { refused: Some(word.to_owned()), ..entry.about };
                    self.put(about, secret).await?;
                }
                Err(e)
            }
            Err(e) => {
                memory.server = None;
                Err(e)
            }
        }
    }

    /// On the disk first, then used.
    async fn keep(
        self: &Arc<Inner>,
        memory: &mut Memory,
        about: About,
        secret: Secret,
    ) -> Result<Found, Error> {
        memory.unsaved = Some((about.clone(), secret.clone()));
        self.put(about.clone(), secret.clone()).await?;
        memory.unsaved = None;
        memory.opened = None;
        let access = secret.access.as_ref().ok_or(Error::Busy)?;
        Ok(found(access, about.mark))
    }

    async fn put(self: &Arc<Inner>, about: About, secret: Secret) -> Result<(), Error> {
        let store = self.store()?.clone();
        let at = self.listing()?.map_or(crate::KeyAt::File, |l| l.key_at);
        let writing = tokio::task::spawn_blocking(move || store.put(about, &secret, at));
        writing.await.map_err(|_| Error::Busy)?
    }
}
