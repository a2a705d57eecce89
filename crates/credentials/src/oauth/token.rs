//! The token endpoint: what is asked of it, and what its answer must be.

use super::answer::Code;
use super::http::{Http, NoAnswer};
use super::metadata::{Server, server};
use super::{Client, ClientAuth, known};
use crate::entry::MAX_SECRET;
use crate::error::Error;
use crate::store::unix_now;
use http::HeaderValue;
use oauth2::basic::{
    BasicClient, BasicErrorResponseType, BasicRequestTokenError, BasicTokenResponse, BasicTokenType,
};
use oauth2::{
    AsyncHttpClient, AuthType, AuthUrl, ClientId, ClientSecret, CsrfToken, EndpointNotSet, EndpointSet,
    HttpRequest, HttpResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken, Scope,
    TokenResponse as _, TokenUrl,
};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use zeroize::Zeroizing;

/// The longest that a token is said to live: beyond a year it is a mistake.
const LONGEST_LIFE: u64 = 366 * 86_400;

/// What a token endpoint gave.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    /// What is sent.
    pub access: Zeroizing<String>,
    /// What renews it. Absent after a renewal: the old one goes on.
    pub refresh: Option<Zeroizing<String>>,
    /// When the access token ends, in seconds since 1970, if that was said.
    pub expires: Option<i64>,
    /// What it may be used for. Empty after a renewal: the same as before.
    pub scopes: Vec<String>,
}

impl Tokens {
    /// How long the access token lives from now on, in seconds, if that was said.
    #[must_use]
    pub fn life(&self) -> Option<i64> {
        self.expires.map(|at| at - unix_now())
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens")
            .field("expires", &self.expires)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

pub(super) type Known =
    BasicClient<EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointSet>;

/// The library's client.
pub(super) fn basic(client: &Client, server: &Server) -> Known {
    let how = match client.auth {
        Some(ClientAuth::Post) => AuthType::RequestBody,
        None if server.secret_in_body => AuthType::RequestBody,
        Some(ClientAuth::Basic) | None => AuthType::BasicAuth,
    };
    let known = BasicClient::new(ClientId::new(client.id.clone()))
        .set_token_uri(TokenUrl::from_url(server.token.clone()))
        .set_auth_type(how);
    match &client.secret {
        Some(secret) => known.set_client_secret(ClientSecret::new(secret.to_string())),
        None => known,
    }
}

/// What names the use of a token.
pub(super) fn about(client: &Client) -> Vec<(&'static str, String)> {
    let both = [("resource", &client.resource), ("audience", &client.audience)];
    both.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
}

/// A person who is to be sent to the server.
pub struct Away {
    /// Where.
    pub url: url::Url,
    /// What proves later that the same client asks (RFC 7636). A secret until then.
    pub verifier: Zeroizing<String>,
}

/// Where a person has to go, to come back to `redirect` with this state.
///
/// # Errors
/// The server sends nobody anywhere, or the redirect is no address.
pub fn away(client: &Client, server: &Server, redirect: &str, state: &str) -> Result<Away, Error> {
    let Some(authorize) = server.authorize.clone() else {
        return Err(Error::Server("the authorization server tells no place where people are sent".into()));
    };
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let known =
        basic(client, server).set_auth_uri(AuthUrl::from_url(authorize)).set_redirect_uri(address(redirect)?);
    let mut ask = known
        .authorize_url(|| CsrfToken::new(state.to_owned()))
        .add_scopes(client.scopes.iter().cloned().map(Scope::new))
        .set_pkce_challenge(challenge);
    for (name, value) in about(client) {
        ask = ask.add_extra_param(name, value);
    }
    let (url, _) = ask.url();
    Ok(Away { url, verifier: Zeroizing::new(verifier.into_secret()) })
}

fn address(redirect: &str) -> Result<RedirectUrl, Error> {
    RedirectUrl::new(redirect.to_owned())
        .map_err(|_| Error::Server("the address of the redirect can't be written".into()))
}

/// The code's tokens.
pub(super) async fn exchange(
    http: &Http,
    client: &Client,
    server: &Server,
    code: Code,
    verifier: &Zeroizing<String>,
    redirect: &str,
) -> Result<Tokens, Error> {
    let known = basic(client, server).set_redirect_uri(address(redirect)?);
    let verifier = PkceCodeVerifier::new(verifier.to_string());
    let mut request = known.exchange_code(code.0).set_pkce_verifier(verifier);
    for (name, value) in about(client) {
        request = request.add_extra_param(name, value);
    }
    let ask = Asking::by(http);
    taken(&client.scopes, server, request.request_async(&ask).await, &ask)
}

/// A new access token, and perhaps a new refresh token. Scopes that are not told are those of before, which are not known here.
pub(crate) async fn refresh(
    http: &Http,
    client: &Client,
    server: &Server,
    token: &Zeroizing<String>,
) -> Result<Tokens, Error> {
    let (known, token) = (basic(client, server), RefreshToken::new(token.to_string()));
    let mut request = known.exchange_refresh_token(&token);
    for (name, value) in about(client) {
        request = request.add_extra_param(name, value);
    }
    let ask = Asking::by(http);
    taken(&[], server, request.request_async(&ask).await, &ask)
}

/// A token of the client's own, and the server that gave it.
pub(crate) async fn credentials_grant(http: &Http, client: &Client) -> Result<(Tokens, Server), Error> {
    let server = server(http, client).await?;
    let known = basic(client, &server);
    let scopes = client.scopes.iter().cloned().map(Scope::new);
    let mut request = known.exchange_client_credentials().add_scopes(scopes);
    for (name, value) in about(client) {
        request = request.add_extra_param(name, value);
    }
    let ask = Asking::by(http);
    let tokens = taken(&client.scopes, &server, request.request_async(&ask).await, &ask)?;
    Ok((tokens, server))
}

/// A token of the client's own (RFC 6749, section 4.4): whether id and secret are right.
///
/// # Errors
/// Why there is none.
pub async fn client_credentials(client: &Client) -> Result<Tokens, Error> {
    Ok(credentials_grant(&Http::new(), client).await?.0)
}

/// How the library asks, and what status it was answered last.
struct Asking {
    http: Http,
    status: Arc<AtomicU16>,
}

impl Asking {
    fn by(http: &Http) -> Asking {
        Asking { http: http.clone(), status: Arc::default() }
    }
}

impl<'c> AsyncHttpClient<'c> for Asking {
    type Error = NoAnswer;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, NoAnswer>> + Send>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        let (http, status) = (self.http.clone(), self.status.clone());
        Box::pin(async move {
            let answer = http.ask(request).await?;
            status.store(answer.status().as_u16(), Ordering::Relaxed);
            Ok(answer)
        })
    }
}

fn taken(
    scopes: &[String],
    server: &Server,
    answer: Result<BasicTokenResponse, BasicRequestTokenError<NoAnswer>>,
    asking: &Asking,
) -> Result<Tokens, Error> {
    let at = server.token.origin().ascii_serialization();
    let fail = |why: &str| Error::Server(format!("no token from {at}: {why}"));
    let answer = answer.map_err(|e| match e {
        // Nothing that it says beside the word is repeated.
        BasicRequestTokenError::ServerResponse(e) => refused(word(e.error())),
        BasicRequestTokenError::Request(e) => fail(&e.to_string()),
        BasicRequestTokenError::Parse(_, body) => match said(&body) {
            Some(word) => refused(known(&word)),
            None => fail(&unreadable(asking)),
        },
        BasicRequestTokenError::Other(_) => fail(&unreadable(asking)),
    })?;
    if *answer.token_type() != BasicTokenType::Bearer {
        return Err(fail("it gave a token that is not a bearer token"));
    }
    let access = Zeroizing::new(answer.access_token().secret().clone());
    let refresh = answer.refresh_token().map(|t| Zeroizing::new(t.secret().clone()));
    let size = access.len() + refresh.as_ref().map_or(0, |t| t.len());
    if access.is_empty() || HeaderValue::try_from(access.as_str()).is_err() {
        return Err(fail("it gave a token that can't be sent"));
    }
    if size > MAX_SECRET {
        return Err(fail("its tokens are longer than 8 KiB"));
    }
    let life = answer.expires_in().map(|d| d.as_secs().min(LONGEST_LIFE));
    let scopes = match answer.scopes() {
        Some(scopes) => scopes.iter().map(|s| s.to_string()).collect(),
        None => scopes.to_vec(),
    };
    Ok(Tokens {
        access,
        refresh: refresh.filter(|t| !t.is_empty()),
        expires: life.map(|s| unix_now().saturating_add(i64::try_from(s).unwrap_or(0))),
        scopes,
    })
}

fn refused(word: &'static str) -> Error {
    match word {
        "server_error" | "temporarily_unavailable" => {
            Error::Server(format!("the authorization server says {word}"))
        }
        word => Error::Refused(word.into()),
    }
}

fn word(error: &BasicErrorResponseType) -> &'static str {
    known(error.as_ref())
}

/// Some servers refuse with a status of success.
fn said(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(value.get("error")?.as_str()?.to_owned())
}

fn unreadable(asking: &Asking) -> String {
    match asking.status.load(Ordering::Relaxed) {
        200 => "its answer is not one of a token endpoint".into(),
        other => format!("it answered {other}"),
    }
}
