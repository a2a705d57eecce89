//! The authorization servers that one process asks for many people: what they tell of themselves is kept for a while, and one
//! that can't be used is not asked by each of them.

use super::answer::Code;
use super::http::Http;
use super::metadata::{Server, server};
use super::token::{Tokens, exchange, refresh};
use super::{Client, Endpoints};
use crate::error::Error;
use crate::live::REST;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// How long what a server told of itself is taken for true.
const TOLD: Duration = Duration::from_secs(600);

/// What was told, and when. Whoever asks holds it.
type Slot = Arc<tokio::sync::Mutex<Option<(Instant, Result<Server, Error>)>>>;

/// See the module.
#[derive(Clone)]
pub struct Servers {
    http: Http,
    told: Arc<Mutex<HashMap<Endpoints, Slot>>>,
}

impl Default for Servers {
    fn default() -> Servers {
        Servers { http: Http::new(), told: Arc::default() }
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").finish_non_exhaustive()
    }
}

impl Servers {
    fn slot(&self, client: &Client) -> Slot {
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(client.endpoints.clone()).or_default().clone()
    }

    /// That of a client.
    ///
    /// # Errors
    /// It can't be used.
    pub async fn of(&self, client: &Client) -> Result<Server, Error> {
        let slot = self.slot(client);
        let mut told = slot.lock().await;
        if let Some((at, server)) = told.as_ref()
            && at.elapsed() < if server.is_ok() { TOLD } else { REST }
        {
            return server.clone();
        }
        let server = server(&self.http, client).await;
        *told = Some((Instant::now(), server.clone()));
        server
    }

    /// What it told is asked for again at the next use: it may have moved.
    async fn unsure<T>(&self, client: &Client, got: Result<T, Error>) -> Result<T, Error> {
        if matches!(got, Err(Error::Server(_))) {
            *self.slot(client).lock().await = None;
        }
        got
    }

    /// The tokens of a code, for a person who came back to `redirect`.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn exchange(
        &self,
        client: &Client,
        server: &Server,
        code: Code,
        verifier: &Zeroizing<String>,
        redirect: &str,
    ) -> Result<Tokens, Error> {
        let got = exchange(&self.http, client, server, code, verifier, redirect).await;
        self.unsure(client, got).await
    }

    /// A new access token, and perhaps a new refresh token: then this one is used up, whatever comes of the answer.
    ///
    /// # Errors
    /// Why there is none; [`Error::ended`] says whether there never will be.
    pub async fn refresh(
        &self,
        client: &Client,
        server: &Server,
        token: &Zeroizing<String>,
    ) -> Result<Tokens, Error> {
        let got = refresh(&self.http, client, server, token).await;
        self.unsure(client, got).await
    }
}
