//! Tokens of principals: used while they are good, renewed by one replica at a time.
//!
//! A renewal is a turn, which lies on the shelf and ends by itself. Whoever has it looks again at what is there, asks, and
//! writes what it got before anybody uses it; so no refresh token is used twice, but where a replica ended between the
//! answer and the write: then what it got is lost, the old one is refused, and the principal is asked again. A renewal that
//! has begun is finished whoever asked for it goes away.

use super::place;
use super::record::{Grant, Pair, Record, Shelf};
use crate::answers::random_name;
use credentials::{Client, REST, Refused, Server, Servers, Ticket, ends_soon};
use ledger::{Millis, Time};
use provider::{Own, Whose};
use seal::SealError;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep, timeout_at};

/// How long a turn lasts: an answer takes 10 s at most, and has to be written.
const TURN: Millis = Millis::secs(20);
/// The server is asked so soon after the turn began, or not at all.
const BEGIN: Duration = Duration::from_secs(2);
/// How long a use waits for somebody else's turn, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);
/// How long, and how often, it is tried to write what was got.
const KEEPING: Duration = Duration::from_secs(600);
const AGAIN: Duration = Duration::from_millis(500);
const BUSY: &str = "its access token is being renewed; try again";

/// See the module: what one process knows.
#[derive(Default)]
pub(super) struct Renewals {
    pub servers: Servers,
    turns: Mutex<HashMap<String, Turn>>,
}

/// Of one principal's tokens.
#[derive(Clone, Default)]
struct Turn {
    /// Whose turn it is in this process.
    one: Arc<tokio::sync::Mutex<()>>,
    refused: Arc<Mutex<Refused>>,
}

/// What lies on the shelf while somebody has a turn, or nobody shall.
#[derive(Serialize, Deserialize)]
enum Lease {
    Taken(String),
    /// A renewal failed for the moment, and why.
    Rests(String),
}

/// What came of asking for a turn.
enum Asked {
    /// It is ours, by this name.
    Ours(String),
    Theirs,
    Rests(String),
}

/// What is there.
enum Seen {
    /// Nothing that will ever be good without the principal.
    None,
    Good(Own),
    /// It has to be renewed.
    Stale(Box<Stale>),
}

struct Stale {
    grant: Grant,
    pair: Pair,
    own: Own,
    /// It may be used as long as there is no other.
    usable: bool,
}

impl Stale {
    /// It, while it may be used; else why there is no other.
    fn or(self, why: &str) -> Result<Option<Own>, String> {
        if self.usable {
            Ok(Some(self.own))
        } else {
            Err(format!("its access token can't be renewed now: {why}; try again"))
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn secs(time: Time) -> i64 {
    time.0 / 1000
}

async fn look(
    shelf: &Shelf,
    whose: &Whose<'_>,
    client: &Client,
    refused: Option<Ticket>,
) -> Result<Seen, String> {
    let (_, record) = shelf.read(whose).await?;
    let Some(record) = record.filter(|r| r.fits(Some(client.identity()))) else { return Ok(Seen::None) };
    let Some(grant) = record.grant.clone() else { return Ok(Seen::None) };
    let Some(opened) = shelf.open(whose, &record).await? else { return Ok(Seen::None) };
    let pair: Pair = serde_json::from_slice(&opened).map_err(|_| "it is damaged".to_owned())?;
    let ticket = Ticket::of(&pair.access);
    let renewable = pair.refresh.is_some() && grant.refused.is_none();
    let own =
        Own { secret: pair.access.clone(), mark: record.mark.clone(), ticket: renewable.then_some(ticket) };
    let (now, life) = (shelf.store.now(), grant.ends.map(|end| end.since(grant.got).0 / 1000));
    let ended = grant.ends.is_some_and(|end| end <= now);
    let bad = refused == Some(ticket);
    if !bad && !ends_soon(secs(now), grant.ends.map(secs), life) {
        return Ok(Seen::Good(own));
    }
    if renewable {
        let usable = !bad && !ended;
        return Ok(Seen::Stale(Box::new(Stale { grant, pair, own, usable })));
    }
    Ok(if bad || ended || grant.refused.is_some() { Seen::None } else { Seen::Good(own) })
}

impl Renewals {
    fn turn(&self, whose: &Whose<'_>) -> Turn {
        lock(&self.turns).entry(place(whose)).or_default().clone()
    }

    /// See [`Refused::say`].
    pub fn refused(&self, whose: &Whose<'_>, ticket: Ticket) -> bool {
        lock(&self.turn(whose).refused).say(ticket)
    }

    /// A principal's access token, renewed if need be.
    pub async fn find(
        &self,
        shelf: &Shelf,
        whose: &Whose<'_>,
        client: &Client,
    ) -> Result<Option<Own>, String> {
        let turn = self.turn(whose);
        let asked = || lock(&turn.refused).ticket();
        let used = |own: Own| {
            lock(&turn.refused).in_use(own.ticket);
            Ok(Some(own))
        };
        match look(shelf, whose, client, asked()).await? {
            Seen::None => return Ok(None),
            Seen::Good(own) => return used(own),
            // It is being renewed here.
            Seen::Stale(stale) if stale.usable && turn.one.try_lock().is_err() => return Ok(Some(stale.own)),
            Seen::Stale(_) => {}
        }
        let until = Instant::now() + PATIENCE;
        let waiting = timeout_at(until, turn.one.clone().lock_owned());
        let mut one = waiting.await.map_err(|_| BUSY.to_owned())?;
        loop {
            let refused = asked();
            let stale = match look(shelf, whose, client, refused).await? {
                Seen::None => return Ok(None),
                Seen::Good(own) => return used(own),
                Seen::Stale(stale) => stale,
            };
            let server = match self.servers.of(client).await {
                Ok(server) => server,
                Err(e) => return stale.or(&e.to_string()),
            };
            let began = Instant::now();
            match take(shelf, whose).await {
                Ok(Asked::Rests(why)) | Err(why) => return stale.or(&why),
                Ok(Asked::Theirs) if stale.usable => return Ok(Some(stale.own)),
                Ok(Asked::Theirs) if Instant::now() >= until => return Err(BUSY.into()),
                Ok(Asked::Theirs) => sleep(LOOK).await,
                Ok(Asked::Ours(name)) => {
                    let renewal = Renewal {
                        shelf: shelf.clone(),
                        servers: self.servers.clone(),
                        server,
                        client: client.clone(),
                        owner: Owner::of(whose),
                        refused,
                        name,
                        began,
                    };
                    let done = tokio::spawn(renewal.run(one));
                    let (back, done) = done.await.map_err(|_| "renewing it was interrupted; try again")?;
                    match done? {
                        Done::Got(own) => {
                            lock(&turn.refused).renewed(refused, own.ticket);
                            return Ok(Some(own));
                        }
                        Done::Failed(stale, why) => return stale.or(&why),
                        Done::Look => one = back,
                    }
                }
            }
        }
    }
}

/// [`Whose`], owned.
struct Owner([String; 4]);

impl Owner {
    fn of(whose: &Whose<'_>) -> Owner {
        Owner([whose.account, whose.mode, whose.origin, whose.principal].map(str::to_owned))
    }

    fn whose(&self) -> Whose<'_> {
        let [account, mode, origin, principal] = &self.0;
        Whose { account, mode, origin, principal }
    }
}

fn lease(whose: &Whose<'_>) -> String {
    format!("renewal/{}", place(whose))
}

/// Asks for the turn.
async fn take(shelf: &Shelf, whose: &Whose<'_>) -> Result<Asked, String> {
    let (store, at) = (&shelf.store, lease(whose));
    let found = store.shelved(&at).await.map_err(|e| e.to_string())?;
    if let Some(found) = found {
        return Ok(match serde_json::from_slice(&found.data) {
            Ok(Lease::Rests(why)) => Asked::Rests(why),
            Ok(Lease::Taken(_)) | Err(_) => Asked::Theirs,
        });
    }
    let name = random_name();
    let data = serde_json::to_vec(&Lease::Taken(name.clone())).map_err(|e| e.to_string())?;
    let until = store.now().plus(TURN);
    let taken = store.shelve(&at, 0, data, Some(until)).await.map_err(|e| e.to_string())?;
    Ok(if taken { Asked::Ours(name) } else { Asked::Theirs })
}

/// What came of a turn.
enum Done {
    Got(Own),
    /// What is there has to be looked at again.
    Look,
    /// Nothing changed, and why.
    Failed(Box<Stale>, String),
}

/// A turn.
struct Renewal {
    shelf: Shelf,
    servers: Servers,
    server: Server,
    client: Client,
    owner: Owner,
    refused: Option<Ticket>,
    name: String,
    began: Instant,
}

impl Renewal {
    async fn run(self, one: OwnedMutexGuard<()>) -> (OwnedMutexGuard<()>, Result<Done, String>) {
        let done = self.renew().await;
        let why = if let Ok(Done::Failed(_, why)) = &done { Some(why.clone()) } else { None };
        self.end(why).await;
        (one, done)
    }

    async fn renew(&self) -> Result<Done, String> {
        let whose = self.owner.whose();
        // Whoever had the turn before may have got another one.
        let seen = look(&self.shelf, &whose, &self.client, self.refused).await?;
        let Seen::Stale(stale) = seen else { return Ok(Done::Look) };
        let Some(refresh) = stale.pair.refresh.clone() else { return Ok(Done::Look) };
        if self.began.elapsed() > BEGIN {
            return Err(BUSY.into());
        }
        match self.servers.refresh(&self.client, &self.server, &refresh).await {
            Ok(got) => {
                ledger::failpoint!("renewal.answered");
                tracing::info!(account = whose.account, "a principal's access token was renewed");
                let told = granted(&self.client, &got, self.shelf.store.now());
                let new = Grant { renewable: true, ..told };
                let pair = Pair { access: got.access, refresh: got.refresh.or(Some(refresh)) };
                let kept = self.keep(&stale, new, &pair).await?;
                let ticket = Some(Ticket::of(&pair.access));
                let own = Own { secret: pair.access, mark: stale.own.mark, ticket };
                Ok(if kept { Done::Got(own) } else { Done::Look })
            }
            Err(e) => {
                tracing::warn!(account = whose.account, why = %e, "a principal's access token was not renewed");
                let Some(word) = e.ended() else { return Ok(Done::Failed(stale, e.to_string())) };
                let ended = Grant { refused: Some(word.to_owned()), ..stale.grant.clone() };
                self.keep(&stale, ended, &stale.pair).await?;
                Ok(Done::Look)
            }
        }
    }

    /// Writes it, and goes on trying while the ledger can't. `false`: it is not wanted any more.
    async fn keep(&self, was: &Stale, new: Grant, pair: &Pair) -> Result<bool, String> {
        let until = Instant::now() + KEEPING;
        loop {
            match self.put(was, &new, pair).await {
                Ok(kept) => return Ok(kept),
                Err(why) if Instant::now() < until => {
                    tracing::warn!(%why, "a principal's tokens can't be kept yet, and are not used before they are");
                    sleep(AGAIN).await;
                }
                Err(why) => {
                    tracing::error!(%why, "a principal's tokens could not be kept; the principal is asked again");
                    return Err(why);
                }
            }
        }
    }

    async fn put(&self, was: &Stale, new: &Grant, pair: &Pair) -> Result<bool, String> {
        let whose = self.owner.whose();
        let (version, now) = self.shelf.read(&whose).await?;
        // Connected anew, forgotten, or renewed by another: what was got has no use. A refusal of the token that got this is
        // none.
        let same =
            |r: &Record| r.mark == was.own.mark && r.grant.as_ref().is_some_and(|g| g.got == was.grant.got);
        let Some(now) = now.filter(same) else { return Ok(false) };
        let text = zeroize::Zeroizing::new(serde_json::to_vec(pair).map_err(|e| e.to_string())?);
        let closed = self.shelf.close(&whose, (now.at, &now.mark), Some(new.clone()), &text).await;
        let record = match closed {
            Err(SealError::TooLarge) => {
                tracing::error!("a principal's tokens are longer than 8 KiB and can't be kept");
                return Ok(false);
            }
            closed => closed.map_err(|e| e.to_string())?,
        };
        match self.shelf.write(&whose, version, &record).await? {
            true => Ok(true),
            false => Err("another write was first".into()),
        }
    }

    /// Ends the turn; with a reason, nobody has one for a while.
    async fn end(&self, rests: Option<String>) {
        let (store, at) = (&self.shelf.store, lease(&self.owner.whose()));
        let Ok(Some(found)) = store.shelved(&at).await else { return };
        if !matches!(serde_json::from_slice(&found.data), Ok(Lease::Taken(by)) if by == self.name) {
            return;
        }
        let most = if rests.is_some() { Millis::from(REST) } else { Millis(1) };
        let data = rests.and_then(|why| serde_json::to_vec(&Lease::Rests(why)).ok()).unwrap_or_default();
        // If that fails, it ends by itself.
        let _ = store.shelve(&at, found.version, data, Some(store.now().plus(most))).await;
    }
}

/// What is told of tokens that were got now.
pub(super) fn granted(client: &Client, got: &credentials::Tokens, now: Time) -> Grant {
    Grant {
        issuer: client.endpoints.identity().to_owned(),
        client: client.id.clone(),
        got: now,
        ends: got.life().map(|s| now.plus(Millis::secs(s))),
        renewable: got.refresh.is_some(),
        scopes: got.scopes.clone(),
        refused: None,
    }
}
