//! The credentials of a running process: read when a request is sent, renewed before they end, and never older than the file.
//!
//! Whether the file was replaced is looked at with every use, so what another process connected or renewed counts from the
//! next request on. Tokens are renewed by one process at a time, under a lock of the account; who waited for it finds what the
//! other got. A renewal that has begun is finished whoever asked for it goes away: its refresh token may be used up.

mod fit;
mod opened;
mod renew;

use crate::entry::{About, Secret};
use crate::error::Error;
use crate::files::Stamp;
use crate::oauth::{Client, Flow, Http, Server, Tokens};
use crate::refused::{Refused, Ticket};
use crate::store::{Entry, Listing, Store, unix_now};
use fit::{absent, ended, expired, fitting, is_given};
use opened::Unread;
use seal::MasterKey;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;
use zeroize::Zeroizing;

/// A token is renewed this long before it ends, in seconds, or a quarter of its life where that is less.
const EARLY: i64 = 60;
/// After a renewal that failed for the moment, the next is tried this much later.
pub const REST: Duration = Duration::from_secs(2);

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The account of the manifests.
    pub account: &'a str,
    /// `sandbox` or `production`.
    pub mode: &'a str,
    /// Scheme, host and port of where it goes.
    pub origin: &'a str,
    /// How it is sent, as in [`About::kind`].
    pub kind: &'a str,
    /// Of OAuth: the client.
    pub client: Option<&'a Client>,
}

/// A credential, to be sent now.
#[derive(Clone)]
pub struct Found {
    /// The secret.
    pub secret: Zeroizing<String>,
    /// The connection's mark.
    pub mark: String,
    /// Of an access token that can be renewed.
    pub ticket: Option<Ticket>,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found").field("mark", &self.mark).finish_non_exhaustive()
    }
}

/// See the module.
#[derive(Clone)]
pub struct Live(Arc<Inner>);

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("store", &self.0.store).finish_non_exhaustive()
    }
}

struct Inner {
    store: Result<Store, Error>,
    http: Http,
    seen: Mutex<Option<Seen>>,
    key: Mutex<Option<(String, MasterKey)>>,
    /// Which one could not be read, and why.
    unread: Mutex<Option<Unread>>,
    /// Whose turn it is to read the key.
    opening: Arc<tokio::sync::Mutex<()>>,
    turns: Mutex<HashMap<Slot, Turn>>,
}

/// The file as it was read last.
struct Seen {
    stamp: Option<Stamp>,
    listing: Result<Option<Arc<Listing>>, Error>,
}

/// Account, mode, issuer, origin, the client's id: by another one it is another account.
type Slot = [String; 5];

#[derive(Clone, Default)]
struct Turn {
    /// Whose turn it is to use or renew.
    memory: Arc<tokio::sync::Mutex<Memory>>,
    refused: Arc<Mutex<Refused>>,
}

/// What this process knows of an account's tokens.
#[derive(Default)]
struct Memory {
    /// By whom it was asked last.
    client: Option<Client>,
    /// What was opened, of which entry.
    opened: Option<(Entry, Secret)>,
    /// A token of the client's own, which is kept nowhere.
    own: Option<Tokens>,
    /// The server, as it told.
    server: Option<Server>,
    /// Renewed, and not on the disk yet: it must be before it is used.
    unsaved: Option<(About, Secret)>,
    /// A renewal failed, and why.
    failed: Option<(Instant, Error)>,
}

impl Memory {
    /// For this client: what was told to one that asked for something else, or with another secret, is not its own. What
    /// waits to be kept stays: it is the account's.
    fn asked_by(&mut self, client: &Client) {
        if self.client.as_ref() != Some(client) {
            (self.own, self.server, self.failed) = (None, None, None);
            self.client = Some(client.clone());
        }
    }
}

/// Those of this process, by store.
static SHARED: Mutex<Vec<(Store, Live)>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// Those of this store; or why there is none.
    #[must_use]
    pub fn new(store: Result<Store, Error>) -> Live {
        Live(Arc::new(Inner {
            store,
            http: Http::new(),
            seen: Mutex::default(),
            key: Mutex::default(),
            unread: Mutex::default(),
            opening: Arc::default(),
            turns: Mutex::default(),
        }))
    }

    /// The same, one in this process for each store. Whatever is loaded anew goes on with what is known already: a token that
    /// was renewed and could not be kept yet is nowhere else.
    #[must_use]
    pub fn shared(store: Result<Store, Error>) -> Live {
        let store = match store {
            Ok(store) => store,
            Err(e) => return Live::new(Err(e)),
        };
        let mut all = lock(&SHARED);
        if let Some((_, live)) = all.iter().find(|(s, _)| *s == store) {
            return live.clone();
        }
        let live = Live::new(Ok(store.clone()));
        all.push((store, live.clone()));
        live
    }

    /// What requests for it are recorded with now; `None`: it is not connected.
    #[must_use]
    pub fn mark(&self, wanted: &Wanted<'_>) -> Option<String> {
        if let Some(client) = wanted.client.filter(|c| c.flow == Flow::ClientCredentials) {
            return Some(mark_of(client));
        }
        let listing = self.0.listing().ok().flatten()?;
        fitting(&listing, wanted).ok().map(|e| e.about.mark.clone())
    }

    /// Whether it could be sent, as far as is known without asking anybody.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn check(&self, wanted: &Wanted<'_>) -> Result<(), String> {
        if is_given(wanted) {
            return Ok(());
        }
        let listing = self.0.listing().map_err(|e| e.to_string())?.ok_or_else(|| absent(wanted))?;
        let about = &fitting(&listing, wanted)?.about;
        if let Some(word) = &about.refused {
            return Err(ended(wanted, word));
        }
        match about.expires {
            Some(at) if at <= unix_now() && !about.renewable => Err(expired(wanted)),
            _ => Ok(()),
        }
    }

    /// The credential, renewed if need be.
    ///
    /// # Errors
    /// Why it can't be sent, and what to do.
    pub async fn find(&self, wanted: &Wanted<'_>) -> Result<Found, String> {
        match wanted.client {
            None => {
                let listing = self.0.listing().map_err(|e| e.to_string())?.ok_or_else(|| absent(wanted))?;
                let entry = fitting(&listing, wanted)?.clone();
                let mark = entry.about.mark.clone();
                let secret = self.0.open(listing, entry).await.map_err(|e| e.to_string())?;
                let secret = secret.secret.ok_or_else(|| absent(wanted))?;
                Ok(Found { secret, mark, ticket: None })
            }
            Some(client) => self.token(wanted, client).await,
        }
    }

    /// The provider refused an access token (401). Whether another one will be found at the next use.
    #[must_use]
    pub fn refused(&self, wanted: &Wanted<'_>, ticket: Ticket) -> bool {
        let Some(client) = wanted.client else { return false };
        let renewable = match client.flow {
            Flow::ClientCredentials => true,
            Flow::Code => {
                let listing = self.0.listing().ok().flatten();
                listing.is_some_and(|l| {
                    fitting(&l, wanted).is_ok_and(|e| e.about.renewable && e.about.refused.is_none())
                })
            }
        };
        let turn = self.0.turn(wanted, client);
        renewable && lock(&turn.refused).say(ticket)
    }

    async fn token(&self, wanted: &Wanted<'_>, client: &Client) -> Result<Found, String> {
        let turn = self.0.turn(wanted, client);
        let memory = turn.memory.clone().lock_owned().await;
        let refused = lock(&turn.refused).ticket();
        let told = Told {
            account: wanted.account.to_owned(),
            mode: wanted.mode.to_owned(),
            origin: wanted.origin.to_owned(),
            kind: wanted.kind.to_owned(),
            client: client.clone(),
        };
        // Quick where nothing is to be done; else finished, whatever becomes of who asked.
        match self.0.clone().fresh(memory, &told, refused).await? {
            Fresh::Found(found, _memory) => {
                lock(&turn.refused).in_use(found.ticket);
                Ok(found)
            }
            Fresh::Stale(memory) => {
                let inner = self.0.clone();
                let renewal = tokio::spawn(async move {
                    let renewed = inner.renew(memory, told, refused).await;
                    if let Ok(found) = &renewed {
                        lock(&turn.refused).renewed(refused, found.ticket);
                    }
                    renewed
                });
                renewal.await.map_err(|_| "renewing it was interrupted; try again".to_owned())?
            }
        }
    }
}

/// [`Wanted`], owned.
struct Told {
    account: String,
    mode: String,
    origin: String,
    kind: String,
    client: Client,
}

impl Told {
    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            account: &self.account,
            mode: &self.mode,
            origin: &self.origin,
            kind: &self.kind,
            client: Some(&self.client),
        }
    }
}

/// What is known without asking the authorization server.
enum Fresh {
    Found(Found, OwnedMutexGuard<Memory>),
    /// It has to be renewed.
    Stale(OwnedMutexGuard<Memory>),
}

impl Inner {
    fn store(&self) -> Result<&Store, Error> {
        self.store.as_ref().map_err(Clone::clone)
    }

    /// The file as it is now.
    fn listing(&self) -> Result<Option<Arc<Listing>>, Error> {
        let store = self.store()?;
        let stamp = store.stamp();
        let mut seen = lock(&self.seen);
        if let Some(seen) = seen.as_ref().filter(|s| s.stamp == stamp && s.listing.is_ok()) {
            return seen.listing.clone();
        }
        let listing = store.look().map(|l| l.map(Arc::new));
        *seen = Some(Seen { stamp, listing: listing.clone() });
        listing
    }

    fn turn(&self, wanted: &Wanted<'_>, client: &Client) -> Turn {
        let issuer = client.endpoints.identity();
        let slot = [wanted.account, wanted.mode, issuer, wanted.origin, &client.id].map(str::to_owned);
        lock(&self.turns).entry(slot).or_default().clone()
    }
}

fn found(access: &Zeroizing<String>, mark: String) -> Found {
    Found { secret: access.clone(), mark, ticket: Some(Ticket::of(access)) }
}

/// How long a token lives, in seconds.
fn life(about: &About) -> Option<i64> {
    about.expires.map(|end| end - about.renewed.unwrap_or(about.since))
}

/// Whether a token may be used: not about to end, and not the refused one.
fn good(expires: Option<i64>, life: Option<i64>, access: &str, refused: Option<Ticket>) -> bool {
    !ends_soon(unix_now(), expires, life) && Some(Ticket::of(access)) != refused
}

/// Whether a token is to be renewed for its end. All in seconds.
#[must_use]
pub fn ends_soon(now: i64, expires: Option<i64>, life: Option<i64>) -> bool {
    let early = life.map_or(EARLY, |l| (l / 4).clamp(0, EARLY));
    expires.is_some_and(|at| at - early <= now)
}

/// The mark of a client that acts for itself: whoever has its id at its server is the same account, by whichever secret.
fn mark_of(client: &Client) -> String {
    let mut digest = Sha256::new();
    for part in ["counterfoil oauth client", client.endpoints.identity(), &client.id] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect()
}
