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

/// The hash under which a key is kept: SHA-256, hexadecimal.
#[must_use]
pub fn hash(key: &str) -> String {
    ledger::effect::hex(&Sha256::digest(key.as_bytes()))
}

struct Known {
    by_hash: HashMap<String, Arc<str>>,
    read: Option<Instant>,
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
}

impl ApiKeys {
    /// Keys kept in this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> ApiKeys {
        let known = RwLock::new(Known { by_hash: HashMap::new(), read: None });
        ApiKeys { keys: Arc::new(Keys { store, known }), eras: HashMap::new() }
    }

    /// Serves these principals other eras than the rest.
    #[must_use]
    pub fn with_eras(self, eras: impl IntoIterator<Item = (String, Eras)>) -> ApiKeys {
        ApiKeys { eras: eras.into_iter().collect(), ..self }
    }

    /// Forgets what was read, so that a new or revoked key counts at once.
    pub fn forget(&self) {
        self.keys.known.write().unwrap_or_else(PoisonError::into_inner).read = None;
    }
}

impl Keys {
    /// Whose key has this hash, if any.
    async fn owner(&self, hash: &str) -> Result<Option<Arc<str>>, StoreError> {
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if known.read.is_some_and(|t| t.elapsed() < STALE) {
                return Ok(known.by_hash.get(hash).cloned());
            }
        }
        let keys: Vec<ApiKey> = self.store.api_keys().await?;
        let by_hash: HashMap<String, Arc<str>> = keys
            .into_iter()
            .filter(|k| k.revoked_at.is_none())
            .map(|k| (k.hash, k.principal.into()))
            .collect();
        let owner = by_hash.get(hash).cloned();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) =
            Known { by_hash, read: Some(Instant::now()) };
        Ok(owner)
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
