//! Who is calling: nobody in particular on an unauthenticated loopback server, or the owner of an API key.
//!
//! A key is 256 random bits, so its SHA-256 is enough at rest and costs nothing per request; rotation keeps the
//! principal.

use async_trait::async_trait;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use ledger::store::ApiKey;
use ledger::{Store, StoreError};
use mcp::Eras;
use mcp::error::RpcError;
use mcp::server::{Authenticator, CallersEras, HttpRefusal};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How callers prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// They don't; loopback only.
    None,
    /// By an API key as a bearer token.
    ApiKey,
}

/// The caller, as requests carry it.
#[derive(Clone, Debug)]
pub struct Principal(pub Arc<str>);

/// The principal of an unauthenticated server.
pub const ANONYMOUS: &str = "anonymous";

/// The API key that a request came with, for what lasts longer than a request.
#[derive(Clone)]
pub(crate) struct Proof {
    keys: Arc<Keys>,
    hash: Arc<str>,
    principal: Arc<str>,
}

impl Proof {
    /// Whether the key still proves the same. One that can't be looked up at the moment does.
    pub async fn holds(&self) -> bool {
        match self.keys.owner(&self.hash).await {
            Ok(owner) => owner.as_ref() == Some(&self.principal),
            Err(_) => true,
        }
    }
}

/// Who is asking.
pub(crate) fn principal_of(extensions: &Extensions) -> Arc<str> {
    static NOBODY: LazyLock<Arc<str>> = LazyLock::new(|| ANONYMOUS.into());
    extensions.get::<Principal>().map_or_else(|| NOBODY.clone(), |p| p.0.clone())
}

/// What API keys begin with.
pub const PREFIX: &str = "cfk_";
/// How long a revocation by another process may go unnoticed.
const STALE: Duration = Duration::from_secs(2);
/// How long a key that another process made may go unnoticed. Keys that are none make no more reads than one in this time.
const NEW: Duration = Duration::from_millis(100);

/// The hash under which a key is kept: SHA-256, hexadecimal.
#[must_use]
pub fn hash(key: &str) -> String {
    ledger::effect::hex(&Sha256::digest(key.as_bytes()))
}

#[derive(Default)]
struct Known {
    by_hash: HashMap<String, Arc<str>>,
    /// When the read began that found them; none, if they may have changed since.
    read: Option<Instant>,
    /// When the last read began that failed.
    failed: Option<Instant>,
    /// When all that was read before was forgotten.
    forgotten: Option<Instant>,
}

impl Known {
    /// Whose key it is, as far as what is known is good enough to say so to somebody who asked at this time.
    fn owner(&self, hash: &str, asked: Instant) -> Option<Option<Arc<str>>> {
        let read = self.read?;
        let owner = self.by_hash.get(hash).cloned();
        let good = if owner.is_some() { STALE } else { NEW };
        (read >= asked || asked.duration_since(read) < good).then_some(owner)
    }
}

/// The API keys of a ledger, read again when they may have changed.
pub struct ApiKeys {
    keys: Arc<Keys>,
    /// Principals that are served other eras than the rest.
    eras: HashMap<String, Eras>,
}

struct Keys {
    store: Arc<dyn Store>,
    known: RwLock<Known>,
    /// Held while they are read: all who ask meanwhile share that read, or the next one.
    reading: tokio::sync::Mutex<()>,
}

impl ApiKeys {
    /// Keys kept in this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> ApiKeys {
        let keys = Keys { store, known: RwLock::default(), reading: tokio::sync::Mutex::default() };
        ApiKeys { keys: Arc::new(keys), eras: HashMap::new() }
    }

    /// Serves these principals other eras than the rest.
    #[must_use]
    pub fn with_eras(self, eras: impl IntoIterator<Item = (String, Eras)>) -> ApiKeys {
        ApiKeys { eras: eras.into_iter().collect(), ..self }
    }

    /// Forgets what was read, so that a new or revoked key counts at once.
    pub fn forget(&self) {
        self.keys.forget();
    }
}

impl Keys {
    fn forget(&self) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        (known.read, known.forgotten) = (None, Some(Instant::now()));
    }

    /// Whose key has this hash, if any.
    async fn owner(&self, hash: &str) -> Result<Option<Arc<str>>, StoreError> {
        self.owner_by(hash, || self.store.api_keys()).await
    }

    async fn owner_by<R>(&self, hash: &str, read: impl FnOnce() -> R) -> Result<Option<Arc<str>>, StoreError>
    where
        R: Future<Output = Result<Vec<ApiKey>, StoreError>>,
    {
        let asked = Instant::now();
        let known = || self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = known().owner(hash, asked) {
            return Ok(owner);
        }
        let _reading = self.reading.lock().await;
        {
            let known = known();
            if let Some(owner) = known.owner(hash, asked) {
                return Ok(owner);
            }
            if known.failed.is_some_and(|t| t >= asked) {
                return Err(StoreError::Unavailable("the API keys could not be read a moment ago".into()));
            }
        }
        let began = Instant::now();
        let keys = read().await;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let keys: Vec<ApiKey> = keys.inspect_err(|_| known.failed = Some(began))?;
        known.by_hash = keys
            .into_iter()
            .filter(|k| k.revoked_at.is_none())
            .map(|k| (k.hash, k.principal.into()))
            .collect();
        // What changed while it was read may not be in it.
        known.read = known.forgotten.is_none_or(|t| t < began).then_some(began);
        Ok(known.by_hash.get(hash).cloned())
    }
}

fn refuse(status: StatusCode, why: &'static str) -> HttpRefusal {
    let mut headers = HeaderMap::new();
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"counterfoil\""));
    } else {
        headers.insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    HttpRefusal { headers, error: RpcError::refused(status, why) }
}

#[async_trait]
impl Authenticator for ApiKeys {
    async fn authenticate(&self, head: &Parts) -> Result<Extensions, HttpRefusal> {
        let mut given = head.headers.get_all(AUTHORIZATION).iter();
        let key = given
            .next()
            .filter(|_| given.next().is_none())
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.split_once(' '))
            .filter(|(scheme, key)| {
                scheme.eq_ignore_ascii_case("bearer") && key.starts_with(PREFIX) && key.len() < 128
            })
            .map(|(_, key)| key.trim());
        let Some(key) = key else {
            return Err(refuse(
                StatusCode::UNAUTHORIZED,
                "this server needs an API key: send it as `Authorization: Bearer cfk_…`",
            ));
        };
        let hash: Arc<str> = hash(key).into();
        match self.keys.owner(&hash).await {
            Ok(Some(owner)) => {
                let mut e = Extensions::new();
                if let Some(eras) = self.eras.get(&*owner) {
                    e.insert(CallersEras(*eras));
                }
                e.insert(Principal(owner.clone()));
                e.insert(Proof { keys: self.keys.clone(), hash, principal: owner });
                Ok(e)
            }
            Ok(None) => {
                Err(refuse(StatusCode::UNAUTHORIZED, "this API key is not known here, or was revoked"))
            }
            Err(_) => Err(refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "the ledger can't be read at the moment; try again a little later",
            )),
        }
    }

    fn tells_eras(&self) -> bool {
        !self.eras.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ledger::memory::MemoryStore;
    use ledger::store::Attention;
    use ledger::{SystemEnv, Time};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Keys that other processes make, and what reading them comes to.
    struct Others {
        keys: Keys,
        there: Mutex<Vec<ApiKey>>,
        reads: AtomicUsize,
        takes: Duration,
        fails: bool,
    }

    fn others(takes: Duration, fails: bool) -> Others {
        let store = Arc::new(MemoryStore::new(Arc::new(SystemEnv), Time(0), Attention::default()));
        let keys = ApiKeys::new(store).keys;
        let keys = Arc::into_inner(keys).unwrap();
        Others { keys, there: Mutex::default(), reads: AtomicUsize::new(0), takes, fails }
    }

    impl Others {
        fn make(&self, key: &str, principal: &str) {
            self.there.lock().unwrap().push(ApiKey {
                id: key.into(),
                principal: principal.into(),
                hash: key.into(),
                created_at: Time(0),
                revoked_at: None,
                note: String::new(),
            });
        }
        async fn owner(&self, key: &str) -> Result<Option<Arc<str>>, StoreError> {
            let read = || async {
                self.reads.fetch_add(1, Ordering::SeqCst);
                let found = self.there.lock().unwrap().clone();
                tokio::time::sleep(self.takes).await;
                if self.fails { Err(StoreError::Unavailable("gone".into())) } else { Ok(found) }
            };
            self.keys.owner_by(key, read).await
        }
        fn reads(&self) -> usize {
            self.reads.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn a_key_that_another_process_made_is_known_at_once() {
        let o = others(Duration::ZERO, false);
        o.make("a", "ann");
        assert_eq!(o.owner("a").await.unwrap().as_deref(), Some("ann"));
        o.make("b", "ben");
        tokio::time::sleep(NEW).await;
        assert_eq!(o.owner("b").await.unwrap().as_deref(), Some("ben"));
        // What is known is not read again for that.
        let reads = o.reads();
        assert_eq!(o.owner("a").await.unwrap().as_deref(), Some("ann"));
        assert_eq!((reads, o.reads()), (2, 2));
    }

    #[tokio::test]
    async fn wrong_keys_make_few_reads() {
        let o = others(Duration::ZERO, false);
        let begun = Instant::now();
        while begun.elapsed() < 3 * NEW {
            for _ in 0..100 {
                assert_eq!(o.owner("x").await.unwrap(), None);
            }
        }
        let most = begun.elapsed().as_millis() / NEW.as_millis() + 1;
        assert!((2..=most).contains(&(o.reads() as u128)), "{} of {most}", o.reads());
    }

    #[tokio::test]
    async fn who_asks_at_the_same_time_shares_a_read_and_its_failure() {
        for fails in [false, true] {
            // Longer than what is read counts as new.
            let o = others(2 * NEW, fails);
            o.make("a", "ann");
            let late = async |key: &'static str, wait: Duration| {
                tokio::time::sleep(wait).await;
                o.owner(key).await
            };
            let asked = (0..40).map(|n| late(if n % 2 == 0 { "a" } else { "x" }, NEW / 25 * n));
            let all = futures_util::future::join_all(asked).await;
            assert!(all.iter().all(|answer| answer.is_err() == fails));
            if !fails {
                let found = all.iter().filter(|owner| owner.as_ref().is_ok_and(Option::is_some)).count();
                assert_eq!(found, 20);
            }
            // Whoever it is too old for waits for the next one.
            assert!((2..=3).contains(&o.reads()), "{fails}: {}", o.reads());
        }
    }

    #[tokio::test]
    async fn what_changes_while_it_is_read_is_read_again() {
        let o = others(NEW, false);
        let (first, ()) = tokio::join!(o.owner("a"), async {
            tokio::time::sleep(NEW / 2).await;
            o.make("a", "ann");
            o.keys.forget();
        });
        assert_eq!(first.unwrap(), None);
        assert_eq!(o.owner("a").await.unwrap().as_deref(), Some("ann"));
    }
}
