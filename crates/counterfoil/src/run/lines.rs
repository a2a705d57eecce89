//! The socket for the clients of other processes: how `serve --stdio` shares a ledger that another process holds.
//!
//! On `mcp.sock` in the ledger's directory (0600) every connection begins with one line, `{"counterfoil":1, …}`: the
//! [`Terms`] that its process would serve the ledger under, and `"apiKey"` where the configuration asks for one. It goes on
//! with MCP, a message a line, once it was answered with the same terms and `"ok":true`. A refusal says why, and with
//! `"retry"` that it will pass. The process that holds the ledger serves its own client in the same way.
//!
//! Terms must agree because either process may hold the ledger next, and answers calls that the other one began: whose
//! they are and in which mode is part of what finds their operation.
//!
//! At a shutdown connections just end: the other end sends what was not answered to whoever holds the ledger next.

use super::Core;
use super::socket;
use crate::Error;
use crate::config::{Auth, Config};
use gateway::{ApiKeys, Gateway, NamesCalls};
use http::header::AUTHORIZATION;
use http::{Extensions, Request, StatusCode};
use mcp::RpcError;
use mcp::message::Notification;
use mcp::server::{
    Authenticator, Caller, Client, Exchange, LinesConfig, Opened, Opening, Outcome, Responder, Service,
    SessionRefusal, Subscription, serve_lines,
};
use mcp::server::{Line, LineReader};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// The socket's name.
pub(crate) const NAME: &str = "mcp.sock";
/// The version of the first line.
const VERSION: u32 = 1;
/// The longest first line, in bytes.
const MAX_PREFACE: usize = 4096;
/// Time for the first line.
const PREFACE: Duration = Duration::from_secs(5);
/// Connections at a time.
const MAX_CONNECTIONS: usize = 64;
/// What naming its calls adds to a line at most, in bytes: [`gateway::META_CALL`] with a name, for each call of a batch.
const MAX_NAMES: usize = 128 * mcp::message::MAX_BATCH;

/// What processes that share a ledger must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// `[auth] mode`: whose a call is.
    auth: String,
    /// `[server] mode`.
    mode: String,
    /// `[server] name`.
    name: String,
}

impl Terms {
    pub fn of(config: &Config) -> Terms {
        Terms {
            auth: config.auth.word().to_owned(),
            mode: config.mode.as_str().to_owned(),
            name: config.server.name.clone(),
        }
    }

    /// Which setting differs, and how; `self` is the holder's.
    fn unlike(&self, other: &Terms) -> Option<String> {
        let all = [
            ("[auth] mode", &self.auth, &other.auth),
            ("[server] mode", &self.mode, &other.mode),
            ("[server] name", &self.name, &other.name),
        ];
        let (setting, here, there) = all.into_iter().find(|(_, here, there)| here != there)?;
        let shown = |text: &str| text.chars().take(64).collect::<String>();
        Some(format!(
            "the process that holds the ledger has {setting} = {:?}, and this one {:?}; give both the same, or each a data directory of its own",
            shown(here),
            shown(there)
        ))
    }
}

#[derive(Serialize, Deserialize)]
struct Preface {
    counterfoil: u32,
    #[serde(flatten)]
    terms: Terms,
    #[serde(rename = "apiKey", default, skip_serializing_if = "Option::is_none")]
    api_key: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    counterfoil: u32,
    #[serde(flatten)]
    terms: Option<Terms>,
    #[serde(default)]
    ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default)]
    retry: bool,
}

/// Why a connection can't be used.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Not now.
    Later(String),
    /// Not like this.
    Never(String),
}

/// Opens a connection from the client's side; what was read of it so far stays in the reader.
pub(crate) async fn greet<R, W>(
    reader: R,
    writer: &mut W,
    max_line: usize,
    terms: &Terms,
    api_key: Option<&str>,
) -> Result<LineReader<R>, Refused>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let later = |why: &str| Refused::Later(format!("the process that holds the ledger {why}"));
    let preface = Preface { counterfoil: VERSION, terms: terms.clone(), api_key: api_key.map(Into::into) };
    let mut text = serde_json::to_vec(&preface).map_err(|_| later("can't be greeted"))?;
    text.push(b'\n');
    let mut lines = LineReader::new(reader, max_line);
    let answer = async {
        writer.write_all(&text).await.ok()?;
        writer.flush().await.ok()?;
        lines.next().await.ok()?
    };
    let answer = match tokio::time::timeout(2 * PREFACE, answer).await {
        Ok(Some(Line::Whole(line))) => serde_json::from_slice::<Answer>(&line).ok(),
        Ok(Some(Line::TooLong)) => None,
        Ok(None) => return Err(later("ended the connection; it may be stopping")),
        Err(_) => return Err(later("doesn't answer on its socket")),
    };
    match answer {
        Some(Answer { ok: true, counterfoil: VERSION, terms: Some(theirs), .. }) => {
            match theirs.unlike(terms) {
                Some(why) => Err(Refused::Never(why)),
                None => Ok(lines),
            }
        }
        Some(Answer { error: Some(why), retry: true, .. }) => Err(Refused::Later(why)),
        Some(Answer { error: Some(why), .. }) => Err(Refused::Never(why)),
        _ => Err(Refused::Never(
            "what answers on the ledger's mcp.sock is of another version; stop it, or use the same version"
                .into(),
        )),
    }
}

/// Serves connections.
pub(crate) struct Host {
    gateway: Gateway,
    keys: Option<Arc<ApiKeys>>,
    terms: Terms,
    config: LinesConfig,
}

impl Host {
    pub fn new(core: &Core, shutdown: CancellationToken, tasks: TaskTracker) -> Host {
        let server = &core.config.server;
        Host {
            gateway: core.gateway.clone(),
            keys: (core.config.auth == Auth::ApiKey).then(|| core.api_keys.clone()),
            terms: Terms::of(&core.config),
            config: LinesConfig {
                // The other end measured the line before it named its calls.
                max_line: server.max_body.saturating_add(MAX_NAMES),
                eras: server.eras,
                shutdown,
                tasks,
                farewell: false,
                ..LinesConfig::default()
            },
        }
    }

    /// Serves one connection to its end.
    pub async fn serve<R, W>(self: Arc<Self>, mut reader: R, mut writer: W)
    where
        R: AsyncRead + Send + Unpin,
        W: AsyncWrite + Send + Unpin,
    {
        let served = match tokio::time::timeout(PREFACE, self.admit(&mut reader)).await {
            Ok(served) => served,
            Err(_) => Err(Refused::Later("the first line did not arrive in time".into())),
        };
        let (error, retry) = match &served {
            Ok(_) => (None, false),
            Err(Refused::Later(why)) => (Some(why.clone()), true),
            Err(Refused::Never(why)) => (Some(why.clone()), false),
        };
        let terms = error.is_none().then(|| self.terms.clone());
        let answer = Answer { counterfoil: VERSION, terms, ok: error.is_none(), error, retry };
        let Ok(mut text) = serde_json::to_vec(&answer) else { return };
        text.push(b'\n');
        if writer.write_all(&text).await.is_err() || writer.flush().await.is_err() {
            return;
        }
        if let Ok((key, mut extensions)) = served {
            extensions.insert(NamesCalls);
            let config = LinesConfig { extensions, ..self.config.clone() };
            let service = Fronted { gateway: Arc::new(self.gateway.clone()), keys: self.keys.clone(), key };
            serve_lines(reader, writer, config, Arc::new(service)).await;
        }
    }

    /// Reads the first line, byte by byte: what follows it belongs to somebody else.
    async fn admit<R>(&self, reader: &mut R) -> Result<(Option<String>, Extensions), Refused>
    where
        R: AsyncRead + Unpin,
    {
        use tokio::io::AsyncReadExt as _;
        let mut line = Vec::new();
        loop {
            match reader.read_u8().await {
                Ok(b'\n') => break,
                Ok(byte) if line.len() < MAX_PREFACE => line.push(byte),
                _ => return Err(Refused::Never("the first line is not one of counterfoil's".into())),
            }
        }
        let preface: Preface = serde_json::from_slice(&line)
            .map_err(|_| Refused::Never("the first line is not one of counterfoil's".into()))?;
        if preface.counterfoil != VERSION {
            return Err(Refused::Never(
                "the process that holds the ledger is of another version; stop it, or use the same version"
                    .into(),
            ));
        }
        if let Some(why) = self.terms.unlike(&preface.terms) {
            return Err(Refused::Never(why));
        }
        let Some(keys) = &self.keys else { return Ok((None, Extensions::new())) };
        let Some(key) = preface.api_key else {
            return Err(Refused::Never(
                "this server needs an API key: set COUNTERFOIL_API_KEY to one of `counterfoil api-keys create`".into(),
            ));
        };
        match principal(keys, &key).await {
            Ok(extensions) => Ok((Some(key), extensions)),
            Err(error) if error.http_status == StatusCode::UNAUTHORIZED => {
                Err(Refused::Never("COUNTERFOIL_API_KEY is not known here, or was revoked".into()))
            }
            Err(error) => Err(Refused::Later(error.message)),
        }
    }
}

/// Whose key it is, as over HTTP.
async fn principal(keys: &ApiKeys, key: &str) -> Result<Extensions, RpcError> {
    let head = Request::builder().header(AUTHORIZATION, format!("Bearer {key}")).body(());
    let unknown = || RpcError::refused(StatusCode::UNAUTHORIZED, "this API key is not known here");
    let (head, ()) = head.map_err(|_| unknown())?.into_parts();
    keys.authenticate(&head).await.map_err(|refusal| refusal.error)
}

/// Listens on the ledger's socket until the host's shutdown.
///
/// # Errors
/// [`Error::File`]: the socket can't be made.
pub(super) fn serve(dir: &Path, host: Arc<Host>) -> Result<AbortOnDropHandle<()>, Error> {
    let fail = |source| Error::File { what: "the socket for other processes' clients", source };
    let (listener, place) = socket::listen(dir, NAME).map_err(fail)?;
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        let shutdown = host.config.shutdown.clone();
        let mut connections = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        let (reader, writer) = stream.into_split();
                        connections.spawn(host.clone().serve(reader, writer));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        place.remove();
        drop(listener);
        while connections.join_next().await.is_some() {}
    })))
}

/// The gateway for one connection. A revoked key is refused with the next request, as over HTTP.
struct Fronted {
    gateway: Arc<Gateway>,
    keys: Option<Arc<ApiKeys>>,
    key: Option<String>,
}

impl Service for Fronted {
    fn ready(&self, exchange: &Exchange) -> Option<Outcome> {
        // A key is asked for again, and that takes a task.
        if self.keys.is_some() { None } else { self.gateway.ready(exchange) }
    }

    async fn call(self: Arc<Self>, exchange: Exchange, responder: Responder) {
        if let (Some(keys), Some(key)) = (&self.keys, &self.key)
            && let Err(error) = principal(keys, key).await
        {
            responder.finish(error);
            return;
        }
        if let Some(outcome) = self.gateway.ready(&exchange) {
            responder.finish(outcome);
            return;
        }
        self.gateway.clone().call(exchange, responder).await;
    }

    async fn initialize(self: Arc<Self>, caller: Caller, opening: Opening) -> Result<Opened, RpcError> {
        self.gateway.clone().initialize(caller, opening).await
    }

    async fn client(&self, caller: &Caller) -> Result<Client, SessionRefusal> {
        self.gateway.client(caller).await
    }

    async fn end_session(&self, caller: &Caller) -> Result<(), SessionRefusal> {
        self.gateway.end_session(caller).await
    }

    async fn stream(self: Arc<Self>, caller: Caller, stream: Subscription) {
        self.gateway.clone().stream(caller, stream).await;
    }

    async fn notified(self: Arc<Self>, caller: Caller, notification: Notification) {
        self.gateway.clone().notified(caller, notification).await;
    }

    fn identity(&self, caller: &Caller) -> Arc<str> {
        self.gateway.identity(caller)
    }
}
