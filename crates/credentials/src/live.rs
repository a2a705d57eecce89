//! The credentials of a running process: read when a request is sent, renewed before they end, and never older than the file.
//!
//! Whether the file was replaced is looked at with every use, so what another process connected or renewed counts from the
//! next request on. Tokens are renewed by one process at a time, under a lock of the account; who waited for it finds what the
//! other got. A renewal that has begun is finished whoever asked for it goes away: its refresh token may be used up.

use crate::entry::{About, Secret};
use crate::error::Error;
use crate::files::Stamp;
use crate::oauth::{self, Client, Flow, Http, Server, Tokens};
use crate::store::{self, Entry, Listing, RENEWED_WITHIN, Store, unix_now};
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
const REST: Duration = Duration::from_secs(2);
/// A token that is refused so soon after it replaced a refused one is not at fault.
const ONCE_IN: Duration = Duration::from_secs(60);

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

/// Which access token it was, without telling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl Ticket {
    fn of(token: &str) -> Ticket {
        let digest = Sha256::digest(token.as_bytes());
        Ticket(digest.iter().take(8).fold(0, |n, b| n << 8 | u64::from(*b)))
    }
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
    turns: Mutex<HashMap<Slot, Turn>>,
}

/// The file as it was read last.
struct Seen {
    stamp: Option<Stamp>,
    listing: Result<Option<Arc<Listing>>, Error>,
}

/// Account, mode, issuer, origin.
type Slot = [String; 4];

#[derive(Clone, Default)]
struct Turn {
    /// Whose turn it is to use or renew.
    memory: Arc<tokio::sync::Mutex<Memory>>,
    refused: Arc<Mutex<Refused>>,
}

/// What this process knows of an account's tokens.
#[derive(Default)]
struct Memory {
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

#[derive(Default)]
struct Refused {
    ticket: Option<Ticket>,
    /// When a token was last renewed because of that.
    renewed: Option<Instant>,
}

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
            turns: Mutex::default(),
        }))
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
        let mut refused = lock(&turn.refused);
        if !renewable || refused.renewed.is_some_and(|at| at.elapsed() < ONCE_IN) {
            return false;
        }
        refused.ticket = Some(ticket);
        true
    }

    async fn token(&self, wanted: &Wanted<'_>, client: &Client) -> Result<Found, String> {
        let turn = self.0.turn(wanted, client);
        let memory = turn.memory.clone().lock_owned().await;
        let refused = lock(&turn.refused).ticket;
        let told = Told {
            account: wanted.account.to_owned(),
            mode: wanted.mode.to_owned(),
            origin: wanted.origin.to_owned(),
            kind: wanted.kind.to_owned(),
            client: client.clone(),
        };
        // Quick where nothing is to be done; else finished, whatever becomes of who asked.
        match self.0.clone().fresh(memory, &told, refused).await? {
            Fresh::Found(found) => Ok(found),
            Fresh::Stale(memory) => {
                let inner = self.0.clone();
                let renewal = tokio::spawn(async move { inner.renew(memory, told, refused).await });
                let renewed =
                    renewal.await.map_err(|_| "renewing it was interrupted; try again".to_owned())?;
                if refused.is_some() && renewed.as_ref().is_ok_and(|f| f.ticket != refused) {
                    let mut now = lock(&turn.refused);
                    if now.ticket.take_if(|t| Some(*t) == refused).is_some() {
                        now.renewed = Some(Instant::now());
                    }
                }
                renewed
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
    Found(Found),
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
        let slot =
            [wanted.account, wanted.mode, client.endpoints.identity(), wanted.origin].map(str::to_owned);
        lock(&self.turns).entry(slot).or_default().clone()
    }

    /// Opens an entry; the key may have to be waited for.
    async fn open(self: &Arc<Inner>, listing: Arc<Listing>, entry: Entry) -> Result<Secret, Error> {
        let known = lock(&self.key).clone().filter(|(id, _)| *id == listing.key_id);
        let key = match known {
            Some((_, key)) => key,
            None => {
                let inner = self.clone();
                let reading = tokio::task::spawn_blocking(move || {
                    let key = inner.store()?.key(&listing)?;
                    *lock(&inner.key) = Some((listing.key_id.clone(), key.clone()));
                    Ok::<_, Error>(key)
                });
                reading.await.map_err(|_| Error::Busy)??
            }
        };
        store::open(&key, &entry)
    }

    /// The token that is there, if it may be used.
    async fn fresh(
        self: Arc<Inner>,
        mut memory: OwnedMutexGuard<Memory>,
        told: &Told,
        refused: Option<Ticket>,
    ) -> Result<Fresh, String> {
        let wanted = told.wanted();
        if told.client.flow == Flow::ClientCredentials {
            if let Some(own) = memory.own.as_ref().filter(|t| good(t.expires, None, &t.access, refused)) {
                return Ok(Fresh::Found(found(&own.access, mark_of(&told.client))));
            }
            return Ok(Fresh::Stale(memory));
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
        if good(about.expires, life, access, refused) {
            return Ok(Fresh::Found(found(access, about.mark.clone())));
        }
        if let Some(word) = &about.refused {
            return Err(ended(&wanted, word));
        }
        if secret.refresh.is_none() {
            // A refused one that can't be replaced is sent: its provider says what is wrong.
            return match about.expires {
                Some(at) if at <= unix_now() => Err(expired(&wanted)),
                _ => Ok(Fresh::Found(found(access, about.mark.clone()))),
            };
        }
        Ok(Fresh::Stale(memory))
    }

    /// Gets another token.
    async fn renew(
        self: Arc<Inner>,
        mut memory: OwnedMutexGuard<Memory>,
        told: Told,
        refused: Option<Ticket>,
    ) -> Result<Found, String> {
        if let Some((at, why)) = memory.failed.as_ref().filter(|(at, _)| at.elapsed() < REST) {
            let _ = at;
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
            Err(Error::Refused(word)) => Err(match told.client.flow {
                Flow::Code => ended(&told.wanted(), &word),
                Flow::ClientCredentials => format!(
                    "the authorization server refused the client ({word}); check client_id and client_secret of account {:?}",
                    told.account
                ),
            }),
            Err(e) => {
                let said = self.usable(&memory, &told, &e, refused);
                memory.failed = Some((Instant::now(), e));
                said
            }
        }
    }

    /// What was there, while it is good yet; else why there is no other.
    fn usable(
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
            None => Err(format!("its access token can't be renewed now: {why}; try again")),
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
        if let Some(access) = &secret.access
            && good(entry.about.expires, life(&entry.about), access, refused)
        {
            let found = found(access, entry.about.mark.clone());
            memory.opened = Some((entry, secret));
            return Ok(found);
        }
        if let Some(word) = &entry.about.refused {
            return Err(Error::Refused(word.clone()));
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
            Err(Error::Refused(word)) => {
                tracing::warn!(
                    account = told.account,
                    mode = told.mode,
                    why = word,
                    "a refresh token was refused"
                );
                // Only this word says that the token itself is over (RFC 6749, section 5.2).
                if word == "invalid_grant" {
                    let about = About { refused: Some(word.clone()), ..entry.about };
                    self.put(about, secret).await?;
                }
                Err(Error::Refused(word))
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

fn found(access: &Zeroizing<String>, mark: String) -> Found {
    Found { secret: access.clone(), mark, ticket: Some(Ticket::of(access)) }
}

/// How long a token lives, in seconds.
fn life(about: &About) -> Option<i64> {
    about.expires.map(|end| end - about.renewed.unwrap_or(about.since))
}

/// Whether a token may be used: not about to end, and not the refused one.
fn good(expires: Option<i64>, life: Option<i64>, access: &str, refused: Option<Ticket>) -> bool {
    let early = life.map_or(EARLY, |l| (l / 4).clamp(0, EARLY));
    expires.is_none_or(|at| at - early > unix_now()) && Some(Ticket::of(access)) != refused
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

/// Whether it needs no store: the client has its secret from elsewhere.
fn is_given(wanted: &Wanted<'_>) -> bool {
    wanted.client.is_some_and(|c| c.flow == Flow::ClientCredentials && c.secret.is_some())
}

/// The entry that it is.
fn fitting<'a>(listing: &'a Listing, wanted: &Wanted<'_>) -> Result<&'a Entry, String> {
    let issuer = wanted.client.map(|c| c.endpoints.identity());
    let mine = |e: &&Entry| e.about.account == wanted.account && e.about.mode == wanted.mode;
    let mut all = listing.entries.iter().filter(mine).peekable();
    if all.peek().is_none() {
        return Err(absent(wanted));
    }
    let here = |e: &&Entry| e.about.origins.iter().any(|o| o == wanted.origin);
    let Some(entry) = all.find(|e| here(e) && e.about.issuer.as_deref() == issuer) else {
        return Err(format!(
            "the credential of account {:?} was given for another address or issuer than the manifest names now; connect it again with {}",
            wanted.account,
            command(wanted)
        ));
    };
    if entry.about.kind != wanted.kind
        || entry.about.client.as_deref() != wanted.client.map(|c| c.id.as_str())
    {
        return Err(format!(
            "the credential of account {:?} was given as {:?}, and the manifest asks for another kind or client now; connect it again with {}",
            wanted.account,
            entry.about.kind,
            command(wanted)
        ));
    }
    Ok(entry)
}

fn command(wanted: &Wanted<'_>) -> String {
    format!("`counterfoil auth connect {}`", wanted.account)
}
fn absent(wanted: &Wanted<'_>) -> String {
    format!("account {:?} is not connected for {}; run {}", wanted.account, wanted.mode, command(wanted))
}
fn expired(wanted: &Wanted<'_>) -> String {
    format!("the access token has ended and can't be renewed; run {}", command(wanted))
}
fn ended(wanted: &Wanted<'_>, word: &str) -> String {
    format!("the authorization server does not renew it any more ({word}); run {}", command(wanted))
}
