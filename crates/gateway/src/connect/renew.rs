//! Tokens of principals: used while they are good, renewed by one replica at a time.
//!
//! A renewal is a turn, which lies on the shelf and ends by itself. Whoever has it looks again at what is there, asks, and
//! writes what it got before anybody uses it; so no refresh token is used twice, but where a replica ended between the
//! answer and the write, or was cut off from the ledger there for longer than its turn: another one asks with the old one
//! then, is refused, and the principal is asked again. A renewal that has begun is finished whoever asked for it goes away.

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
use tokio_util::task::TaskTracker;

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
pub(super) const TOO_LARGE: &str = "its tokens are longer than the 8 KiB that are kept";

/// See the module: what one process knows.
#[derive(Default)]
pub(super) struct Renewals {
    pub servers: Servers,
    /// What has begun and is finished whoever goes away, because a code or a refresh token may be used up.
    pub tasks: TaskTracker,
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
    fn or(self, now: Time, why: &str) -> Result<Option<Own>, String> {
        if self.usable && self.grant.ends.is_none_or(|end| end > now) {
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
    seen(shelf, whose, client, refused, record).await
}

async fn seen(
    shelf: &Shelf,
    whose: &Whose<'_>,
    client: &Client,
    refused: Option<Ticket>,
    record: Option<Record>,
) -> Result<Seen, String> {
    let Some(record) = record.filter(|r| r.fits(Some(client.identity()))) else { return Ok(Seen::None) };
    // What has ended is over also for those whose token was not refused yet.
    let Some(grant) = record.grant.clone().filter(|g| g.refused.is_none()) else { return Ok(Seen::None) };
    let Some(opened) = shelf.open(whose, &record).await? else { return Ok(Seen::None) };
    let pair: Pair = serde_json::from_slice(&opened).map_err(|_| "it is damaged".to_owned())?;
    let ticket = Ticket::of(&pair.access);
    let renewable = pair.refresh.is_some();
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
    Ok(if bad || ended { Seen::None } else { Seen::Good(own) })
}

impl Renewals {
    fn turn(&self, whose: &Whose<'_>) -> Turn {
        lock(&self.turns).entry(place(whose)).or_default().clone()
    }

    /// See [`Refused::say`].
    pub fn refused(&self, whose: &Whose<'_>, ticket: Ticket) -> bool {
        lock(&self.turn(whose).refused).say(ticket)
    }

    /// Whether this record is a connection that is used, or renewed first: its principal is not asked.
    pub async fn is_connected(
        &self,
        shelf: &Shelf,
        whose: &Whose<'_>,
        client: &Client,
        record: Option<Record>,
    ) -> Result<bool, String> {
        let refused = lock(&self.turn(whose).refused).ticket();
        Ok(!matches!(seen(shelf, whose, client, refused, record).await?, Seen::None))
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
        let now = || shelf.store.now();
        let before = match look(shelf, whose, client, asked()).await? {
            Seen::None => return Ok(None),
            Seen::Good(own) => return used(own),
            // It is being renewed here.
            Seen::Stale(stale) if stale.usable && turn.one.try_lock().is_err() => return Ok(Some(stale.own)),
            Seen::Stale(stale) => stale,
        };
        let until = Instant::now() + PATIENCE;
        let waiting = timeout_at(until, turn.one.clone().lock_owned());
        let Ok(mut one) = waiting.await else { return before.or(now(), "another call does that") };
        loop {
            let refused = asked();
            let stale = match look(shelf, whose, client, refused).await {
                Ok(Seen::None) => return Ok(None),
                Ok(Seen::Good(own)) => return used(own),
                Ok(Seen::Stale(stale)) => stale,
                Err(why) => return before.or(now(), &why),
            };
            let server = match self.servers.of(client).await {
                Ok(server) => server,
                Err(e) => return stale.or(now(), &e.to_string()),
            };
            let began = Instant::now();
            match take(shelf, whose).await {
                Ok(Asked::Rests(why)) | Err(why) => return stale.or(now(), &why),
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
                        told: turn.refused.clone(),
                        name,
                        began,
                    };
                    // It goes on for whoever comes next, also where its answer or the ledger is late.
                    let done = timeout_at(until, self.tasks.spawn(renewal.run(one)));
                    match done.await {
                        Ok(Ok((_, Ok(Done::Got(own))))) => return Ok(Some(own)),
                        Ok(Ok((_, Ok(Done::Failed(stale, why))))) => return stale.or(now(), &why),
                        Ok(Ok((back, Ok(Done::Look)))) => one = back,
                        Ok(Ok((_, Err(why)))) => return stale.or(now(), &why),
                        Ok(Err(_)) => return stale.or(now(), "it was interrupted"),
                        Err(_) => return stale.or(now(), "that takes too long"),
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
    /// Where it is told that another one took the place of the refused one.
    told: Arc<Mutex<Refused>>,
    name: String,
    began: Instant,
}

/// What came of a write.
enum Kept {
    Yes,
    /// It is not wanted any more.
    Unwanted,
    TooLarge,
}

impl Renewal {
    async fn run(self, one: OwnedMutexGuard<()>) -> (OwnedMutexGuard<()>, Result<Done, String>) {
        let done = self.renew().await;
        if let Ok(Done::Got(own)) = &done {
            lock(&self.told).renewed(self.refused, own.ticket);
        }
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
            return Err("its turn began too late".into());
        }
        match self.servers.refresh(&self.client, &self.server, &refresh).await {
            Ok(got) => {
                ledger::failpoint!("renewal.answered");
                tracing::info!(account = whose.account, "a principal's access token was renewed");
                let told = granted(&self.client, &got, self.shelf.store.now());
                // Where nothing is said of scopes they are those of before (RFC 6749, section 6).
                let scopes =
                    if got.scopes.is_empty() { stale.grant.scopes.clone() } else { told.scopes.clone() };
                let new = Grant { renewable: true, scopes, ..told };
                let pair = Pair { access: got.access, refresh: got.refresh.or(Some(refresh)) };
                Ok(match self.keep(&stale, new, &pair).await? {
                    Kept::Yes => {
                        let ticket = Some(Ticket::of(&pair.access));
                        Done::Got(Own { secret: pair.access, mark: stale.own.mark, ticket })
                    }
                    Kept::Unwanted => Done::Look,
                    Kept::TooLarge => Done::Failed(stale, TOO_LARGE.into()),
                })
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

    /// Writes it, and goes on trying while the ledger can't.
    async fn keep(&self, was: &Stale, new: Grant, pair: &Pair) -> Result<Kept, String> {
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

    async fn put(&self, was: &Stale, new: &Grant, pair: &Pair) -> Result<Kept, String> {
        let whose = self.owner.whose();
        let (version, now) = self.shelf.read(&whose).await?;
        // Connected anew, forgotten, or renewed by another: what was got has no use. A refusal of the token that got this is
        // none.
        let same =
            |r: &Record| r.mark == was.own.mark && r.grant.as_ref().is_some_and(|g| g.got == was.grant.got);
        let Some(now) = now.filter(same) else { return Ok(Kept::Unwanted) };
        let text = pair.text()?;
        let closed = self.shelf.close(&whose, (now.at, &now.mark), Some(new.clone()), &text).await;
        let record = match closed {
            Err(SealError::TooLarge) => {
                tracing::error!(
                    account = whose.account,
                    "what was got for a principal can't be kept: {TOO_LARGE}"
                );
                return Ok(Kept::TooLarge);
            }
            closed => closed.map_err(|e| e.to_string())?,
        };
        match self.shelf.write(&whose, version, &record).await? {
            true => Ok(Kept::Yes),
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
