//! The ring of one process: opened at the start, read anew while it runs, used to seal and open.
//!
//! Promises: a copy that was not read anew within [`STALE`] neither seals nor refuses; a key that is not known here is
//! looked up in the ledger before its token is refused, once a second at most, whoever asks; a ring is made where there
//! is none, and changed by compare-and-set only, so that processes that start at once end with one.

use crate::context::Context;
use crate::error::{Error, OpenError, Reject, SealError};
use crate::master::{self, MasterKey, MasterPlace};
use crate::ring::{Change, LONGEST_LIFETIME, POLL, Ring, STALE};
use crate::shelf::{Kept, NAME, Shelf};
use crate::vault::Vault;
use crate::wrap::{self, Wrapped};
use ledger::Millis;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;
use zeroize::Zeroizing;

/// The pause between two readings that unknown keys ask for.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a change is tried again after another process's.
pub(crate) const TRIES: usize = 16;
/// An older program wrote the ring anew while this one runs.
const NO_VAULT: &str = "the key ring has no vault; restart a replica of this version, which makes one";

/// What the configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `[server] name`.
    pub audience: String,
    /// How long a token lives, unless it is asked for less.
    pub state_ttl: Millis,
    /// No other process can have this ledger: another server name is a new name, not a second one.
    pub alone: bool,
}

/// See the module. Clones are the same keeper.
#[derive(Clone)]
pub struct Keeper {
    inner: Arc<Inner>,
}

struct Inner {
    shelf: Arc<dyn Shelf>,
    place: MasterPlace,
    master: MasterKey,
    settings: Settings,
    copy: RwLock<Arc<Copy>>,
    /// Held while the ledger is read.
    reading: tokio::sync::Mutex<()>,
    trouble: RwLock<Option<Error>>,
}

/// The ring as it was read.
struct Copy {
    version: u64,
    ring: Ring,
    vault: Option<Vault>,
    /// When the reading began.
    read: Instant,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("ring", &self.copy().ring).finish_non_exhaustive()
    }
}

/// The master key of this place, made if there is none; whether it was made now.
pub(crate) fn master_for_a_new_ring(place: &MasterPlace) -> Result<(MasterKey, bool), Error> {
    for _ in 0..TRIES {
        if let Some(key) = place.get()? {
            return Ok((key, false));
        }
        // Only a file can be absent.
        let MasterPlace::File(path) = place else { break };
        let key = MasterKey::new()?;
        if master::write(path, &key)? {
            return Ok((key, true));
        }
    }
    Err(Error::Contended)
}

/// Takes a master key's file away that was made a moment ago, if it opens nothing: another process made the ring first.
pub(crate) async fn take_back(shelf: &dyn Shelf, place: &MasterPlace, key: &MasterKey) {
    let Ok(Some(kept)) = shelf.kept(NAME).await else { return };
    let opens = wrap::outside(&kept.data).is_ok_and(|(_, ids)| ids.contains(&key.id()));
    if let (false, MasterPlace::File(path)) = (opens, place) {
        // If it stays, the next start says whose it is not.
        let _ = std::fs::remove_file(path);
    }
}

/// Opens what is kept with this place's master key.
pub(crate) fn unwrap(kept: &Kept, place: &MasterPlace) -> Result<(Wrapped, MasterKey), Error> {
    let Some(master) = place.get()? else {
        let (_, ring) = wrap::outside(&kept.data)?;
        return Err(Error::NoMaster { ring, place: place.shown() });
    };
    Ok((Wrapped::open(&kept.data, &master, &place.shown())?, master))
}

impl Keeper {
    /// Opens the ring; makes it, with a master key's file if none is given, where there is none.
    ///
    /// # Errors
    /// [`Error`] says what stands in the way; what is kept was not changed.
    pub async fn start(
        shelf: Arc<dyn Shelf>,
        place: MasterPlace,
        settings: Settings,
    ) -> Result<Keeper, Error> {
        if !(1..=LONGEST_LIFETIME.0).contains(&settings.state_ttl.0) {
            return Err(Error::Refused("the lifetime of tokens is outside 1ms to 24h".into()));
        }
        for _ in 0..TRIES {
            let read = Instant::now();
            let Some(kept) = shelf.kept(NAME).await.map_err(Error::Store)? else {
                make(&*shelf, &place, &settings).await?;
                continue;
            };
            let (mut wrapped, master) = unwrap(&kept, &place)?;
            let mut changed = false;
            if wrapped.audience != settings.audience {
                if !settings.alone {
                    return Err(Error::Audience { ring: wrapped.audience, ours: settings.audience });
                }
                tracing::warn!(
                    was = wrapped.audience,
                    now = settings.audience,
                    "the server has another name: what was sealed under the old one is refused from now on"
                );
                wrapped.audience.clone_from(&settings.audience);
                changed = true;
            }
            let longer = wrapped.ring.decide(Change::Lifetime(settings.state_ttl), shelf.now());
            if let Ok(Some(next)) = longer {
                wrapped.ring = next;
                changed = true;
            }
            if wrapped.vault.is_none() {
                wrapped.renew_vault()?;
                changed = true;
            }
            if changed {
                let _ = shelf.keep(NAME, kept.version, wrapped.close()?).await.map_err(Error::Store)?;
                // Read again, whoever changed it.
                continue;
            }
            let Wrapped { ring, vault, .. } = wrapped;
            let copy = RwLock::new(Arc::new(Copy { version: kept.version, ring, vault, read }));
            let reading = tokio::sync::Mutex::default();
            let trouble = RwLock::default();
            return Ok(Keeper {
                inner: Arc::new(Inner { shelf, place, master, settings, copy, reading, trouble }),
            });
        }
        Err(Error::Contended)
    }

    /// A context with this server as the audience.
    #[must_use]
    pub fn context<'a>(
        &'a self,
        purpose: &'a str,
        principal: &'a str,
        method: &'a str,
        name: &'a str,
        fingerprint: &'a [u8],
    ) -> Context<'a> {
        let audience = &self.inner.settings.audience;
        Context { purpose, audience, principal, method, name, fingerprint }
    }

    /// How long a token lives, unless it is asked for less.
    #[must_use]
    pub fn state_ttl(&self) -> Millis {
        self.inner.settings.state_ttl
    }

    /// Seals it for this context, for `ttl` or as long as the configuration says.
    ///
    /// # Errors
    /// [`SealError`]: nothing was handed out.
    pub async fn seal(
        &self,
        payload: &[u8],
        context: &Context<'_>,
        ttl: Option<Millis>,
    ) -> Result<String, SealError> {
        let copy = self.fresh().await.map_err(|e| SealError::Unavailable(e.to_string()))?;
        let ttl = ttl.unwrap_or(self.inner.settings.state_ttl);
        copy.ring.seal(payload, context, self.inner.shelf.now(), ttl)
    }

    /// Opens what any replica sealed for exactly this context, before its end.
    ///
    /// # Errors
    /// [`OpenError`]: refused, or the ledger can't be asked for its key now.
    pub async fn open(&self, text: &str, context: &Context<'_>) -> Result<Vec<u8>, OpenError> {
        let asked = Instant::now();
        let unavailable = |e: Error| OpenError::Unavailable(e.to_string());
        let copy = self.fresh().await.map_err(unavailable)?;
        match copy.ring.open(text, context, self.inner.shelf.now()) {
            Err(Reject::UnknownKey) => {
                let copy = self.read_since(asked).await.map_err(unavailable)?;
                Ok(copy.ring.open(text, context, self.inner.shelf.now())?)
            }
            done => Ok(done?),
        }
    }

    /// Encrypts a secret that the ledger is to keep, for exactly this: `about` has to be said again to open it.
    ///
    /// # Errors
    /// [`SealError`]: nothing was made.
    pub async fn put_away(&self, secret: &[u8], about: &[&[u8]]) -> Result<String, SealError> {
        let copy = self.fresh().await.map_err(|e| SealError::Unavailable(e.to_string()))?;
        let vault = copy.vault.as_ref().ok_or_else(|| SealError::Unavailable(NO_VAULT.into()))?;
        vault.close(secret, about)
    }

    /// Opens what any replica put away for exactly this.
    ///
    /// # Errors
    /// [`OpenError`]: it was put away for something else or under keys that are gone, or the ledger can't be asked now.
    pub async fn take_out(&self, text: &str, about: &[&[u8]]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let asked = Instant::now();
        let unavailable = |e: Error| OpenError::Unavailable(e.to_string());
        let open = |copy: &Copy| match &copy.vault {
            Some(vault) => vault.open(text, about),
            None => Err(Reject::UnknownKey),
        };
        let copy = self.fresh().await.map_err(unavailable)?;
        match open(&copy) {
            Err(Reject::UnknownKey) => Ok(open(&*self.read_since(asked).await.map_err(unavailable)?)?),
            done => Ok(done?),
        }
    }

    fn copy(&self) -> Arc<Copy> {
        self.inner.copy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A copy that may be used.
    async fn fresh(&self) -> Result<Arc<Copy>, Error> {
        let copy = self.copy();
        if copy.read.elapsed() < STALE.duration() {
            return Ok(copy);
        }
        self.read_since(Instant::now()).await
    }

    /// A copy that was read after `since`. All who wait share one reading, and there is a pause between two.
    async fn read_since(&self, since: Instant) -> Result<Arc<Copy>, Error> {
        let _one = self.inner.reading.lock().await;
        let copy = self.copy();
        if copy.read > since {
            return Ok(copy);
        }
        tokio::time::sleep_until(copy.read + PAUSE).await;
        self.read().await
    }

    async fn read(&self) -> Result<Arc<Copy>, Error> {
        let read = self.take().await;
        let trouble = read.as_ref().err().cloned();
        *self.inner.trouble.write().unwrap_or_else(PoisonError::into_inner) = trouble;
        read
    }

    async fn take(&self) -> Result<Arc<Copy>, Error> {
        let Inner { shelf, master, settings, place, .. } = &*self.inner;
        let read = Instant::now();
        let kept = shelf.kept(NAME).await.map_err(Error::Store)?.ok_or(Error::Absent)?;
        let old = self.copy();
        let (ring, vault) = if kept.version == old.version {
            (old.ring.clone(), old.vault.clone())
        } else {
            let wrapped = Wrapped::open(&kept.data, master, &place.shown())?;
            if wrapped.audience != settings.audience {
                return Err(Error::Audience { ring: wrapped.audience, ours: settings.audience.clone() });
            }
            (wrapped.ring, wrapped.vault)
        };
        let copy = Arc::new(Copy { version: kept.version, ring, vault, read });
        *self.inner.copy.write().unwrap_or_else(PoisonError::into_inner) = copy.clone();
        Ok(copy)
    }

    /// What is wrong with the ring, if its last reading failed.
    #[must_use]
    pub fn trouble(&self) -> Option<Error> {
        self.inner.trouble.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the ring now, instead of within [`POLL`].
    ///
    /// # Errors
    /// As at the start; the copy that is there is used until it is stale.
    pub async fn refresh(&self) -> Result<(), Error> {
        let _one = self.inner.reading.lock().await;
        self.read().await.map(drop)
    }

    /// Keeps the copy fresh, and takes keys out of the ledger that are gone, for as long as it is polled.
    pub async fn tend(&self) {
        let mut look = tokio::time::interval(POLL.duration());
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut said = None;
        loop {
            look.tick().await;
            let trouble = match self.refresh().await {
                Ok(()) => self.tidy().await.err(),
                Err(e) => Some(e),
            };
            let words = trouble.map(|e| e.to_string());
            if words != said {
                match &words {
                    Some(words) => tracing::error!("{words}"),
                    None => tracing::info!("the key ring is read again"),
                }
                said = words;
            }
        }
    }

    async fn tidy(&self) -> Result<(), Error> {
        let Inner { shelf, master, place, .. } = &*self.inner;
        if !matches!(self.copy().ring.decide(Change::Tidy, shelf.now()), Ok(Some(_))) {
            return Ok(());
        }
        let kept = shelf.kept(NAME).await.map_err(Error::Store)?.ok_or(Error::Absent)?;
        let mut wrapped = Wrapped::open(&kept.data, master, &place.shown())?;
        if let Ok(Some(next)) = wrapped.ring.decide(Change::Tidy, shelf.now()) {
            wrapped.ring = next;
            // If another process was first, it did the same or will be followed by the next round.
            let _ = shelf.keep(NAME, kept.version, wrapped.close()?).await.map_err(Error::Store)?;
        }
        Ok(())
    }
}

/// Makes the ring, unless another process is first.
async fn make(shelf: &dyn Shelf, place: &MasterPlace, settings: &Settings) -> Result<(), Error> {
    let (master, made) = master_for_a_new_ring(place)?;
    let wrapped = Wrapped::new(&settings.audience, &master, shelf.now(), settings.state_ttl)?;
    let first = shelf.keep(NAME, 0, wrapped.close()?).await.map_err(Error::Store)?;
    if first {
        tracing::info!(master = %master.id(), from = place.shown(), "made the key ring");
    } else if made {
        take_back(shelf, place, &master).await;
    }
    Ok(())
}
