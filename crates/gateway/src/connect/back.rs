//! `/connect/callback`: a browser comes back from an authorization server.
//!
//! In this order: the state is known, the browser is the one that proved, what it was sent for is still so, the answer is the
//! state's first, it is the issuer's own, the code gets tokens, the link is used up, the tokens are stored.

use super::away::no_cookie;
use super::html;
use super::page::{Instead, Page, UNSTORED, later};
use axum::extract::{Request, State};
use axum::response::Response;
use credentials::Answer;
use http::{HeaderValue, Method, StatusCode, header};
use provider::OwnAccount;
use std::sync::Arc;

/// The longest query that is read, in bytes.
const MAX_QUERY: usize = 8 << 10;

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
        let (answer, headers) = (Answer::read(query), head.headers);
        // Finished even if the browser goes away: a code gets tokens once.
        let taken = tokio::spawn(async move { page.take_back(&headers, answer).await });
        taken.await.unwrap_or_else(|_| Err(later()))
    };
    answered.await.unwrap_or_else(|instead: Instead| *instead)
}

impl Page {
    async fn take_back(&self, headers: &http::HeaderMap, answer: Answer) -> Result<Response, Instead> {
        let gone = || Box::new(html::gone());
        let state = answer.state().cloned().ok_or_else(gone)?;
        let (version, away) = self.away(&state).await?.ok_or_else(gone)?;
        let base = self.connections().base().ok_or_else(later)?;
        // Whoever is here otherwise was sent by somebody else, to have a foreign account stored as his own, or his as a
        // foreign one (RFC 6749, section 10.12; RFC 9700, section 4.7). The right browser may still come.
        if !away.is_browser(base, &state, headers) {
            return Err(Box::new(html::refused(StatusCode::FORBIDDEN, FOREIGN)));
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
        // From here on no other answer is taken.
        if !self.answered(&state, version).await? {
            return Err(gone());
        }
        let got = match answer.code(&server) {
            Ok(code) => servers.exchange(client, &server, code, &away.verifier, &away.redirect).await,
            Err(e) => Err(e),
        };
        let ended = |mut response: Response| {
            if let Ok(cookie) = HeaderValue::try_from(no_cookie(base, &state)) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        };
        let tokens = match got {
            Ok(tokens) => tokens,
            Err(e) => {
                tracing::warn!(account = account.account, why = %e, "a principal is not connected");
                return Ok(ended(html::not_connected(&account, &e.to_string(), &away.token)));
            }
        };
        self.use_up(&away.link).await?;
        let done = self.connections().connect(&account, &away.link.principal, client, tokens).await;
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
                html::later(StatusCode::SERVICE_UNAVAILABLE, UNSTORED)
            }
        }
    }
}
