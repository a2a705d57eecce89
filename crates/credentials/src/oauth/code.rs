//! The authorization code flow: a person is sent to the server, and comes back to a loopback address.

use super::Client;
use super::callback::{self, Brought, PATH, Page};
use super::http::Http;
use super::metadata::{Server, server};
use super::token::{Away, Tokens, away, exchange};
use crate::error::Error;
use oauth2::CsrfToken;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use zeroize::Zeroizing;

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
    state: String,
    verifier: Zeroizing<String>,
    redirect: String,
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
        let bind = |e: std::io::Error| {
            Error::Server(format!(
                "nothing can listen at 127.0.0.1:{port} ({}); use another --port",
                e.kind()
            ))
        };
        let listener =
            TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.map_err(bind)?;
        let at = listener.local_addr().map_err(bind)?;
        let redirect = format!("http://{at}{PATH}");
        let state = CsrfToken::new_random().into_secret();
        let Away { url, verifier } = away(&client, &server, &redirect, &state)?;
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
            if brought.answer.state() == Some(&self.state) {
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
        let Brought { answer, say } = brought;
        let done = match answer.code(&self.server) {
            Err(e) => Err(e),
            Ok(code) => {
                let (http, client, server) = (&self.http, &self.client, &self.server);
                let got = exchange(http, client, server, code, &self.verifier, &self.redirect).await;
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
