//! A person who proved at the page to be the principal is sent on to the authorization server.
//!
//! What has to be known when that person comes back lies sealed on the ledger's shelf, under a state of 256 random bits, for
//! ten minutes, for one answer, at whichever replica. The browser gets the state with the address, and beside it a cookie:
//! who comes back without that cookie is not who proved.

use super::html;
use super::page::{Instead, Link, Page, later};
use super::redirect::redirect;
use super::whose;
use crate::answers::random_name;
use crate::rounds::Subject;
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use ledger::Millis;
use provider::OwnAccount;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// How long a person may be away.
const AWAY: Millis = Millis::secs(600);

/// What such states are for.
const PURPOSE: &str = "authorize";

/// Who was sent away, for what.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Away {
    pub link: Link,
    /// The link itself, to begin anew.
    pub token: String,
    pub issuer: String,
    pub client: String,
    pub redirect: String,
    /// The digest of the cookie.
    browser: String,
    pub verifier: Zeroizing<String>,
}

fn digest(text: &str) -> String {
    ledger::effect::hex(&Sha256::digest(text))
}

/// A state is bound to its name.
fn subject(state: &str) -> Subject<'_> {
    Subject { principal: "", method: "", name: "", fingerprint: state.as_bytes() }
}

/// Where it lies.
fn place(state: &str) -> String {
    format!("away/{}", digest(state))
}

/// The name of a state's cookie: each has its own, so that several may be on the way.
fn cookie(base: &str, state: &str) -> String {
    let digest = digest(state);
    // The prefix has browsers refuse one from another host or without https (RFC 6265bis, section 4.1.3.2).
    let prefix = if base.starts_with("https:") { "__Host-" } else { "" };
    format!("{prefix}counterfoil-{}", &digest[..16])
}

fn set_cookie(base: &str, state: &str, value: &str, seconds: i64) -> String {
    let secure = if base.starts_with("https:") { "; Secure" } else { "" };
    let name = cookie(base, state);
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}

/// Takes the cookie away again.
pub(super) fn no_cookie(base: &str, state: &str) -> String {
    set_cookie(base, state, "", 0)
}

impl Away {
    /// Whether it is the browser that proved.
    pub fn is_browser(&self, base: &str, state: &str, headers: &HeaderMap) -> bool {
        let name = cookie(base, state);
        let all = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok());
        let mut pairs = all.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(n, value)| n == name && digest(value) == self.browser)
    }
}

impl Page {
    /// The principal proved to be here.
    pub async fn send_away(
        &self,
        link: &Link,
        account: &OwnAccount,
        token: &str,
    ) -> Result<Response, Instead> {
        let not_now = |why: &str| Box::new(html::later(StatusCode::SERVICE_UNAVAILABLE, why));
        let unusable = |why: String| {
            tracing::warn!(account = account.account, %why, "a principal could not be sent to its authorization server");
            not_now(&format!(
                "The authorization server can't be used at the moment ({why}), and nothing was stored. Try again later."
            ))
        };
        let client = account.client().map_err(|why| {
            tracing::error!(account = account.account, %why, "no principal can connect");
            not_now(
                "This server is not set up for it: an operator has to look at its log. Nothing was stored.",
            )
        })?;
        let (Some(client), Some(base)) = (client, self.connections().base()) else { return Err(later()) };
        // Two links may be on the way; the second must not make another account of what the first one connected.
        let at = whose(account, &link.principal);
        if self.connections().is_connected(&at, client).await.map_err(|_| later())? {
            return Ok(html::done(account));
        }
        let server =
            self.connections().renewals.servers.of(client).await.map_err(|e| unusable(e.to_string()))?;
        let (state, browser) = (random_name() + &random_name(), random_name() + &random_name());
        let redirect = redirect(base, client.identity());
        let sent = credentials::away(client, &server, &redirect, &state);
        let sent = sent.map_err(|e| unusable(e.to_string()))?;
        let (issuer, id) = client.identity();
        let away = Away {
            link: link.clone(),
            token: token.to_owned(),
            issuer: issuer.to_owned(),
            client: id.to_owned(),
            redirect,
            browser: digest(&browser),
            verifier: sent.verifier,
        };
        let sealed = self.shared.seal(PURPOSE, subject(&state), &away).await.ok_or_else(later)?;
        let store = self.shared.ledger.store();
        let until = store.now().plus(AWAY);
        let kept = store.shelve(&place(&state), 0, sealed.into_bytes(), Some(until)).await;
        if !kept.map_err(|_| later())? {
            return Err(later());
        }
        let cookie = set_cookie(base, &state, &browser, AWAY.0 / 1000);
        html::onward(sent.url.as_str(), &cookie).ok_or_else(later)
    }

    /// What was kept of a state, and its version. `None`: unknown, over, or used.
    pub async fn away(&self, state: &str) -> Result<Option<(u64, Away)>, Instead> {
        if state.len() != 64 || !state.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let found = self.shared.ledger.store().shelved(&place(state)).await.map_err(|_| later())?;
        let Some(found) = found else { return Ok(None) };
        let Ok(sealed) = std::str::from_utf8(&found.data) else { return Ok(None) };
        match self.shared.unseal(PURPOSE, subject(state), sealed).await {
            Ok(away) => Ok(Some((found.version, away))),
            Err(crate::rounds::Closed::Rejected) => Ok(None),
            Err(crate::rounds::Closed::Unavailable) => Err(later()),
        }
    }

    /// Whether this answer is the state's one.
    pub async fn answered(&self, state: &str, version: u64) -> Result<bool, Instead> {
        let store = self.shared.ledger.store();
        let until = Some(store.now().plus(Millis(1)));
        store.shelve(&place(state), version, Vec::new(), until).await.map_err(|_| later())
    }
}
