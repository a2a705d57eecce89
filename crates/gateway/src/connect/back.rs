//! `/connect/callback/…`: a browser comes back from an authorization server.
//!
//! In this order: the state is known, the browser is the one that proved, the place is that of the server it was sent to, what
//! it was sent for is still so, the answer is the state's first, there is no connection yet, the answer is the issuer's own, the
//! code gets tokens, they can be kept, the link is used up, the tokens are stored.

use super::away::no_cookie;
use super::html;
use super::page::{Instead, Page, UNSTORED, later};
use super::whose;
use axum::extract::{Request, State};
use axum::response::Response;
use credentials::Answer;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use provider::OwnAccount;
use std::sync::Arc;

/// The longest query that is read, in bytes.
const MAX_QUERY: usize = 8 << 10;

/// What went wrong once the state may have been used.
const LOST: &str = "the ledger can't be used at the moment";

const MIXED_UP: &str = "That answer came back to the place of another authorization server than the one that this was begun for (a mix-up of servers).";

const FOREIGN: &str = "This is not the browser in which this was begun, or it keeps no cookies. Open the link in the browser in which you go on from it.";

pub(super) async fn back(State(page): State<Arc<Page>>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let answered = async {
        page.host(&head)?;
        if head.method != Method::GET {
            let why = "This address is for a browser that comes back from an authorization server.";
            return Err(Box::new(html::refused(StatusCode::METHOD_NOT_ALLOWED, why)));
        }
        let query = head.uri.query().unwrap_or_default();
        if query.len() > MAX_QUERY {
            return Err(Box::new(html::refused(StatusCode::BAD_REQUEST, "That answer is too long.")));
        }
        let answer = Answer::read(query);
        // Finished even if the browser goes away: a code gets tokens once.
        let tasks = page.connections().renewals.tasks.clone();
        let taken = tasks.spawn(async move { page.take_back(&head, answer).await });
        taken.await.unwrap_or_else(|_| Err(unknown()))
    };
    answered.await.unwrap_or_else(|instead: Instead| *instead)
}

/// It ended while the tokens were stored, or about to be.
fn unknown() -> Instead {
    Box::new(html::later(StatusCode::SERVICE_UNAVAILABLE, UNSTORED))
}

impl Page {
    async fn take_back(&self, head: &Parts, answer: Answer) -> Result<Response, Instead> {
        let gone = || Box::new(html::gone());
        let state = answer.state().cloned().ok_or_else(gone)?;
        let (version, away) = self.away(&state).await?.ok_or_else(gone)?;
        let base = self.connections().base().ok_or_else(later)?;
        // Whoever is here otherwise was sent by somebody else, to have a foreign account stored as his own, or his as a
        // foreign one (RFC 6749, section 10.12; RFC 9700, section 4.7). The right browser may still come.
        if !away.is_browser(base, &state, &head.headers) {
            return Err(Box::new(html::refused(StatusCode::FORBIDDEN, FOREIGN)));
        }
        if !away.redirect.ends_with(head.uri.path()) {
            return Err(Box::new(html::refused(StatusCode::FORBIDDEN, MIXED_UP)));
        }
        let (_, account) = self.account(&away.link).ok_or_else(gone)?;
        if account.identity() != Some((&away.issuer, &away.client)) {
            return Err(gone());
        }
        let client = account.client().ok().flatten().ok_or_else(later)?;
        let servers = &self.connections().renewals.servers;
        let server = servers.of(client).await.map_err(|e| {
            let why = format!("The authorization server can't be used at the moment ({e}), and nothing was stored. Load this page again.");
            Box::new(html::later(StatusCode::SERVICE_UNAVAILABLE, &why))
        })?;
        let not_connected = |why: &str| {
            tracing::warn!(account = account.account, why, "a principal is not connected");
            html::not_connected(&account, why, &away.token)
        };
        // From here on no other answer is taken.
        match self.answered(&state, version).await {
            Ok(true) => {}
            Ok(false) => return Err(gone()),
            Err(_) => return Ok(not_connected(LOST)),
        }
        let ended = |mut response: Response| {
            if let Ok(cookie) = HeaderValue::try_from(no_cookie(base, &state)) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        };
        let at = whose(&account, &away.link.principal);
        match self.connections().is_connected(&at, client).await {
            Ok(false) => {}
            Ok(true) => return Ok(ended(html::done(&account))),
            Err(_) => return Ok(ended(not_connected(LOST))),
        }
        let got = match answer.code(&server) {
            Ok(code) => servers.exchange(client, &server, code, &away.verifier, &away.redirect).await,
            Err(e) => Err(e),
        };
        let kept = |tokens| self.connections().new_tokens(client, tokens);
        let tokens = match got.map_err(|e| e.to_string()).and_then(kept) {
            Ok(tokens) => tokens,
            Err(why) => return Ok(ended(not_connected(&why))),
        };
        match self.use_up(&away.link).await {
            Ok(true) => {}
            Ok(false) => return Ok(ended(html::gone())),
            Err(_) => return Ok(ended(not_connected(LOST))),
        }
        let done = self.connections().connect(&at, client, &tokens).await;
        Ok(ended(self.told(&account, done)))
    }

    fn told(&self, account: &OwnAccount, done: Result<(), String>) -> Response {
        match done {
            Ok(()) => {
                tracing::info!(account = account.account, "a principal was connected");
                html::done(account)
            }
            Err(why) => {
                tracing::warn!(account = account.account, %why, "a principal's tokens could not be stored");
                *unknown()
            }
        }
    }
}
