//! The authorization code flow: a person is sent to the server, and comes back to a loopback address.

use super::callback::{self, Brought, PATH, Page};
use super::http::Http;
use super::metadata::{Server, server};
use super::token::{Tokens, about, basic, exchange};
use super::{Client, known};
use crate::error::Error;
use oauth2::{
    AuthUrl, AuthorizationCode, CsrfToken, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How many answers that are none of ours are refused until the whole is given up.
const FOREIGN: usize = 20;

/// A connection that waits for a person. Dropping it ends it; nothing was kept then.
#[derive(Debug)]
pub struct Connecting {
    /// Where the person has to go.
    pub url: url::Url,
    http: Http,
    client: Client,
    server: Server,
    state: CsrfToken,
    verifier: PkceCodeVerifier,
    redirect: RedirectUrl,
    brought: mpsc::Receiver<Brought>,
    serving: JoinSet<()>,
}

impl Connecting {
    /// Asks the server where people go, and listens for their return: on `port`, 0 for any.
    ///
    /// # Errors
    /// The server can't be used, or the port.
    pub async fn begin(client: Client, port: u16) -> Result<Connecting, Error> {
        let http = Http::new();
        let server = server(&http, &client).await?;
        let Some(authorize) = server.authorize.clone() else {
            return Err(Error::Server(
                "the authorization server tells no place where people are sent".into(),
            ));
        };
        let bind = |e: std::io::Error| {
            Error::Server(format!(
                "nothing can listen at 127.0.0.1:{port} ({}); use another --port",
                e.kind()
            ))
        };
        let listener =
            TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.map_err(bind)?;
        let at = listener.local_addr().map_err(bind)?;
        let redirect = RedirectUrl::new(format!("http://{at}{PATH}"))
            .map_err(|_| Error::Server("the address of the redirect can't be written".into()))?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let known = basic(&client, &server)
            .set_auth_uri(AuthUrl::from_url(authorize))
            .set_redirect_uri(redirect.clone());
        let mut ask = known
            .authorize_url(CsrfToken::new_random)
            .add_scopes(client.scopes.iter().cloned().map(Scope::new))
            .set_pkce_challenge(challenge);
        for (name, value) in about(&client) {
            ask = ask.add_extra_param(name, value);
        }
        let (url, state) = ask.url();
        let (hand, brought) = mpsc::channel(1);
        let mut serving = JoinSet::new();
        serving.spawn(callback::serve(listener, at, hand));
        Ok(Connecting { url, http, client, server, state, verifier, redirect, brought, serving })
    }

    /// Waits for the person, and gets the tokens. `keep` keeps them: the page says that it is
    /// connected when that is done.
    ///
    /// # Errors
    /// Nobody came, the server or the person refused, or what came was not the server's.
    pub async fn finish<T>(
        mut self,
        patience: Duration,
        keep: impl FnOnce(Tokens) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let until = tokio::time::Instant::now() + patience;
        let mut foreign = 0;
        let brought = loop {
            let came = tokio::time::timeout_at(until, self.brought.recv()).await;
            let Ok(Some(brought)) = came else {
                return Err(Error::Server(format!(
                    "nobody came back within {} s; nothing was kept. Try again",
                    patience.as_secs()
                )));
            };
            // RFC 6749, section 10.12. Whoever does not know the state did not come from what was asked.
            if brought.parameters.get("state") == Some(self.state.secret()) {
                break brought;
            }
            let _ = brought.say.send(Page::Foreign);
            tracing::warn!("an answer with another state was refused; still waiting for the right one");
            foreign += 1;
            if foreign >= FOREIGN {
                return Err(Error::Server(
                    "too many answers came that belong to something else; nothing was kept. Try again".into(),
                ));
            }
        };
        // From here on no other answer is taken.
        self.brought.close();
        let Brought { parameters, twice, say } = brought;
        let done = match proved(&parameters, twice, &self.server) {
            Err(e) => Err(e),
            Ok(code) => {
                let (http, client, server) = (&self.http, &self.client, &self.server);
                let got = exchange(http, client, server, code, self.verifier, self.redirect).await;
                got.and_then(keep)
            }
        };
        let _ = say.send(if done.is_ok() { Page::Connected } else { Page::NotConnected });
        // The page is on its way; it need not arrive.
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.serving.shutdown().await;
        done
    }
}

/// The code, if the answer is the server's own.
fn proved(
    parameters: &HashMap<String, String>,
    twice: bool,
    server: &Server,
) -> Result<AuthorizationCode, Error> {
    let refused = |why: &str| Error::Server(format!("the answer was refused: {why}. Nothing was kept"));
    if twice {
        return Err(refused("it has a parameter twice"));
    }
    // RFC 9207, section 2.4: before anything else of it counts.
    match (parameters.get("iss"), &server.issuer) {
        (Some(iss), Some(issuer)) if iss == issuer => {}
        (Some(_), Some(_)) => {
            return Err(refused("it names another issuer than the one that was asked (a mix-up of servers)"));
        }
        (Some(_), None) => {
            return Err(refused(
                "it names its issuer, and the manifest has none to compare with; set `issuer` in [auth]",
            ));
        }
        (None, _) if server.names_itself => {
            return Err(refused("it does not name its issuer, and this server always does"));
        }
        (None, _) => {}
    }
    if let Some(error) = parameters.get("error") {
        return Err(Error::Refused(known(error).into()));
    }
    match parameters.get("code") {
        Some(code) if !code.is_empty() => Ok(AuthorizationCode::new(code.clone())),
        _ => Err(refused("it has no code")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn server(issuer: Option<&str>, names_itself: bool) -> Server {
        Server {
            issuer: issuer.map(str::to_owned),
            authorize: None,
            token: "https://as.example/token".parse().unwrap(),
            names_itself,
            secret_in_body: false,
        }
    }

    fn told(parameters: &[(&str, &str)], server: &Server) -> String {
        let map = parameters.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        proved(&map, false, server).map_or_else(|e| e.to_string(), |code| code.secret().clone())
    }

    #[test]
    fn an_answer_is_taken_from_the_server_that_was_asked_only() {
        let (plain, strict) = (server(Some("https://as"), false), server(Some("https://as"), true));
        assert_eq!(told(&[("code", "c")], &plain), "c");
        assert_eq!(told(&[("code", "c"), ("iss", "https://as")], &plain), "c");
        assert_eq!(told(&[("code", "c"), ("iss", "https://as")], &strict), "c");
        assert!(told(&[("code", "c")], &strict).contains("does not name its issuer"));
        for server in [&plain, &strict] {
            assert!(told(&[("code", "c"), ("iss", "https://as/")], server).contains("mix-up"));
            // Before the error is believed.
            assert!(told(&[("error", "access_denied"), ("iss", "https://evil")], server).contains("mix-up"));
        }
        assert!(told(&[("code", "c"), ("iss", "https://as")], &server(None, false)).contains("set `issuer`"));
        assert!(told(&[("error", "access_denied")], &plain).contains("access_denied"));
        assert!(!told(&[("error", "CANARY")], &plain).contains("CANARY"));
        assert!(told(&[], &plain).contains("no code"));
        assert!(proved(&HashMap::new(), true, &plain).unwrap_err().to_string().contains("twice"));
    }
}
