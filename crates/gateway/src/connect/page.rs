//! `/connect/{token}`: shows what is asked, and takes a secret once, from the person who was asked.

use super::back::back;
use super::html::{self, Shown};
use super::proof::{Proof, Proved};
use super::redirect::PATH;
use super::{Connections, place, whose};
use crate::catalog::Entry;
use crate::rounds::{Closed, Subject};
use crate::service::Shared;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use ledger::Millis;
use mcp::origin::HostPolicy;
use mcp::server::HttpConfig;
use provider::OwnAccount;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use zeroize::Zeroizing;

/// The largest form that is read, in bytes, and how long it may take to arrive.
const MAX_FORM: usize = 32 << 10;
const FORM_TIME: Duration = Duration::from_secs(10);
/// The longest secret, in characters.
const MAX_SECRET: usize = 4096;
/// How often a link may be tried with a wrong key.
const TRIES: u32 = 5;
/// Forms of good links that are worked on in a while: one each of these, so many at once.
const PAUSE: Duration = Duration::from_millis(200);
const BURST: u32 = 50;

/// What the tokens in the links are for.
const PURPOSE: &str = "connect";

/// What a link says, encrypted. It gives nobody a right: who opens it proves to be the principal.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    #[serde(rename = "p")]
    pub principal: String,
    /// The canonical id of the tool whose call asked.
    #[serde(rename = "t")]
    pub tool: String,
    /// Where the credential is to be kept: what is served today must still mean the same.
    #[serde(rename = "a")]
    pub place: String,
    /// Each link has its own.
    #[serde(rename = "n")]
    pub nonce: String,
}

/// The context of the tokens: who opens the page is not known when it is opened.
fn subject() -> Subject<'static> {
    Subject { principal: "", method: "", name: "", fingerprint: &[] }
}

impl Link {
    pub async fn seal(&self, shared: &Shared) -> Option<String> {
        shared.seal(PURPOSE, subject(), self).await
    }
}

/// What is kept of a link that was used or tried.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Trace {
    /// Wrong keys so far.
    tries: u32,
    /// It has stored a secret.
    used: bool,
}

impl Trace {
    fn is_spent(&self) -> bool {
        self.used || self.tries >= TRIES
    }
}

pub(super) struct Page {
    pub shared: Arc<Shared>,
    proof: Proof,
    hosts: HostPolicy,
    /// How far the rate is used up: the time at which it is not used at all.
    rate: Mutex<Instant>,
}

/// A link that opened, with what it is for.
struct Opened {
    link: Link,
    entry: Arc<Entry>,
    account: OwnAccount,
    /// Its version, and what is kept of it.
    trace: (u64, Trace),
}

/// The routes.
pub(crate) fn router(shared: &Arc<Shared>, http: &HttpConfig) -> Router {
    let page = Page {
        shared: shared.clone(),
        proof: Proof::of(http.authenticator.clone()),
        hosts: HostPolicy::new(http.port, &http.allowed_hosts, &[]),
        rate: Mutex::new(Instant::now()),
    };
    Router::new()
        .route("/connect/{token}", get(show).post(take))
        .route(PATH, get(back))
        .with_state(Arc::new(page))
}

const LATER: &str =
    "The ledger can't be used at the moment, and nothing was stored. Try again in a few seconds.";

/// What is answered instead.
pub(super) type Instead = Box<Response>;

pub(super) fn later() -> Instead {
    Box::new(html::later(StatusCode::SERVICE_UNAVAILABLE, LATER))
}

impl Page {
    pub fn connections(&self) -> &Connections {
        &self.shared.connections
    }

    /// Protection against DNS rebinding, as at the endpoint; where a form comes from is looked at by itself.
    pub fn host(&self, head: &Parts) -> Result<(), Instead> {
        let mut alone = Request::new(()).into_parts().0;
        alone.uri = head.uri.clone();
        for host in head.headers.get_all(header::HOST) {
            alone.headers.append(header::HOST, host.clone());
        }
        self.hosts.check(&alone).map_err(|_| {
            Box::new(html::refused(
                StatusCode::FORBIDDEN,
                "This server does not go by the name in that address.",
            ))
        })
    }

    async fn open(&self, token: &str) -> Result<Opened, Instead> {
        let gone = || Box::new(html::gone());
        let link: Link = match self.shared.unseal(PURPOSE, subject(), token).await {
            Ok(link) => link,
            Err(Closed::Rejected) => return Err(gone()),
            Err(Closed::Unavailable) => return Err(later()),
        };
        let (entry, account) = self.account(&link).ok_or_else(gone)?;
        let trace = self.trace(&link).await?;
        if trace.1.is_spent() {
            return Err(gone());
        }
        Ok(Opened { link, entry, account, trace })
    }

    /// What a link is for, if that is still so.
    pub fn account(&self, link: &Link) -> Option<(Arc<Entry>, OwnAccount)> {
        let entry = self.shared.catalog().find(&link.tool).cloned()?;
        let account = entry.body.own_account()?;
        let same = place(&whose(&account, &link.principal)) == link.place;
        same.then_some((entry, account))
    }

    async fn trace(&self, link: &Link) -> Result<(u64, Trace), Instead> {
        let found = self.shared.ledger.store().shelved(&trace_name(link)).await.map_err(|_| later())?;
        Ok(match found {
            None => (0, Trace::default()),
            // What can't be read was used.
            Some(s) => {
                (s.version, serde_json::from_slice(&s.data).unwrap_or(Trace { tries: TRIES, used: true }))
            }
        })
    }

    /// Whether it was kept: nobody else had used or tried the link since.
    async fn leave(&self, link: &Link, version: u64, trace: &Trace) -> Result<bool, Instead> {
        let store = self.shared.ledger.store();
        let data = serde_json::to_vec(trace).map_err(|_| later())?;
        // Longer than any link is good for.
        let until = store.now().plus(seal::LONGEST_LIFETIME).plus(Millis::secs(60));
        store.shelve(&trace_name(link), version, data, Some(until)).await.map_err(|_| later())
    }

    /// Uses a link up: it stores once, whoever else is on the way. `false`: it was.
    pub async fn use_up(&self, link: &Link) -> Result<bool, Instead> {
        loop {
            let (version, trace) = self.trace(link).await?;
            if trace.used {
                return Ok(false);
            }
            if self.leave(link, version, &Trace { used: true, ..trace }).await? {
                return Ok(true);
            }
        }
    }

    fn form(&self, status: StatusCode, opened: &Opened, wrong: Option<&'static str>) -> Response {
        let spec = &opened.entry.spec;
        let shown = Shown {
            server: &self.shared.settings.name,
            account: &opened.account,
            principal: &opened.link.principal,
            tool: &spec.canonical,
            purpose: spec.title.as_deref().unwrap_or(&spec.description),
            asks_key: self.proof.asks(),
            wrong,
        };
        html::form(status, &shown)
    }

    /// Whether a form of a good link is worked on now.
    fn admits(&self) -> bool {
        let mut full = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let next = (*full).max(now) + PAUSE;
        let admitted = next <= now + PAUSE * BURST;
        if admitted {
            *full = next;
        }
        admitted
    }

    /// Whether the form was sent by this very page. `Sec-Fetch-Site` says so where browsers send it (https, and loopback);
    /// pages without a referrer have `Origin: null`, so that alone is no proof.
    fn is_own(&self, headers: &HeaderMap) -> bool {
        let text = |name: &str| {
            let mut all = headers.get_all(name).iter();
            let one = all.next().and_then(|v| v.to_str().ok());
            if all.next().is_some() { Some("") } else { one }
        };
        let base = self.connections().base().and_then(|b| b.split_once("://").map(|(s, rest)| (b, s, rest)));
        let own = base.map(|(b, s, rest)| &b[..s.len() + 3 + rest.find('/').unwrap_or(rest.len())]);
        let named = text(header::ORIGIN.as_str());
        let is_own = |origin: &str| own.is_some_and(|own| own.eq_ignore_ascii_case(origin));
        match text("sec-fetch-site") {
            Some("same-origin") => named.is_none_or(|o| o == "null" || is_own(o)),
            Some(_) => false,
            None => named.is_some_and(is_own),
        }
    }

    /// Takes the form of a good link.
    async fn take(&self, opened: Opened, token: &str, form: Form) -> Result<Response, Instead> {
        let Opened { link, account, trace: (version, trace), .. } = &opened;
        if !account.is_oauth() && form.secret.is_empty() {
            return Ok(self.form(StatusCode::BAD_REQUEST, &opened, Some("The credential is empty.")));
        }
        // Tokens are given elsewhere.
        if form.secret.chars().count() > MAX_SECRET || account.mark(&form.secret).is_err() {
            let why = "This can't be sent to the provider: it is too long, or has characters that no header can carry.";
            return Ok(self.form(StatusCode::BAD_REQUEST, &opened, Some(why)));
        }
        let proved = self.proof.holds(&link.principal, &form.key).await;
        let next = match proved {
            Proved::Unknown => return Err(later()),
            Proved::Yes if account.is_oauth() => return self.send_away(link, account, token).await,
            Proved::Yes => Trace { used: true, ..*trace },
            Proved::No => Trace { tries: trace.tries + 1, ..*trace },
        };
        // Before anything is said or stored: a link that is tried at several places at once is tried once at each version.
        if !self.leave(link, *version, &next).await? {
            return Err(later());
        }
        match proved {
            Proved::No if next.is_spent() => Err(Box::new(html::gone())),
            Proved::No => {
                let why = "That is not the key of the person who was asked. Nothing was stored.";
                Ok(self.form(StatusCode::FORBIDDEN, &opened, Some(why)))
            }
            Proved::Yes | Proved::Unknown => {
                match self.connections().put(account, &link.principal, &form.secret).await {
                    Ok(()) => {
                        tracing::info!(account = account.account, "a principal gave its credential");
                        Ok(html::done(account))
                    }
                    Err(why) => {
                        tracing::warn!(account = account.account, %why, "a principal's credential could not be stored");
                        Err(Box::new(html::later(StatusCode::SERVICE_UNAVAILABLE, UNSTORED)))
                    }
                }
            }
        }
    }
}

pub(super) const UNSTORED: &str = "The ledger can't be used at the moment, so it is not known whether the credential was stored, and this link is used up. Make the call again: if it was not, its answer has a new link.";

fn trace_name(link: &Link) -> String {
    format!("connect/{}", link.nonce)
}

async fn show(State(page): State<Arc<Page>>, Path(token): Path<String>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let answered = async {
        page.host(&head)?;
        let opened = page.open(&token).await?;
        Ok(page.form(StatusCode::OK, &opened, None))
    };
    answered.await.unwrap_or_else(|instead: Instead| *instead)
}

async fn take(State(page): State<Arc<Page>>, Path(token): Path<String>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let refused = |status, why| Box::new(html::refused(status, why));
    let answered = async {
        page.host(&head)?;
        if !page.is_own(&head.headers) {
            return Err(refused(StatusCode::FORBIDDEN, "This form was not sent by this server's own page."));
        }
        let form = match tokio::time::timeout(FORM_TIME, Form::read(&head.headers, body)).await {
            Ok(Some(form)) => form,
            Ok(None) => return Err(refused(StatusCode::BAD_REQUEST, "That is not the form of this page.")),
            Err(_) => return Err(refused(StatusCode::REQUEST_TIMEOUT, "The form took too long to arrive.")),
        };
        let opened = page.open(&token).await?;
        if !page.admits() {
            let why =
                "Too many forms are sent at the moment, and nothing was stored. Try again in a few seconds.";
            return Err(Box::new(html::later(StatusCode::TOO_MANY_REQUESTS, why)));
        }
        page.take(opened, &token, form).await
    };
    answered.await.unwrap_or_else(|instead: Instead| *instead)
}

/// What a person entered.
#[derive(Default)]
struct Form {
    key: Zeroizing<String>,
    secret: Zeroizing<String>,
}

impl Form {
    async fn read(headers: &HeaderMap, body: Body) -> Option<Form> {
        let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next()?.trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return None;
        }
        let bytes = axum::body::to_bytes(body, MAX_FORM).await.ok()?;
        let mut form = Form::default();
        for (name, value) in url::form_urlencoded::parse(&bytes) {
            let value: Zeroizing<String> = Zeroizing::new(Cow::into_owned(value));
            let place = match name.as_ref() {
                "key" => &mut form.key,
                "secret" => &mut form.secret,
                _ => continue,
            };
            // White space around it comes from copying.
            *place = Zeroizing::new(value.trim().to_owned());
        }
        Some(form)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn read(kind: &str, body: &str) -> Option<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
        Form::read(&headers, Body::from(body.to_owned())).await
    }

    #[tokio::test]
    async fn forms_are_bounded_and_of_one_kind() {
        let form =
            read("application/x-www-form-urlencoded; charset=UTF-8", "key=cfk_1&secret=+a%26b%0D%0A&x=y")
                .await;
        let form = form.unwrap();
        assert_eq!((form.key.as_str(), form.secret.as_str()), ("cfk_1", "a&b"));
        assert!(read("text/plain", "secret=a").await.is_none());
        let large = format!("secret={}", "a".repeat(MAX_FORM));
        assert!(read("application/x-www-form-urlencoded", &large).await.is_none());
    }
}
