//! A client of the legacy era (2025-11-25, 2025-06-18, 2025-03-26) over Streamable HTTP, which answers what its server
//! asks, be it on the stream of a request or on the session's own.
//!
//! It sends each request once, and opens no session anew. Questions are answered side by side while the stream is read;
//! one that the server withdraws is given up.
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::reply::{answer, is_stream, message, progress, refusal};
use super::rounds::Question;
use super::transport::{self, Transport, collect, reason};
use super::{CallOptions, ClientConfig, Reply};
use crate::constants::{header, meta, method};
use crate::error::Error;
use crate::json::{Raw, RawObject, quote};
use crate::message::Id;
use crate::revision::Revision;
use crate::sse;

/// Code of the error that answers a question in its place (JSON-RPC leaves it to applications).
const DECLINED: i64 = -1;

/// A client of one server, after its handshake.
pub struct LegacyClient {
    transport: Transport,
    uri: Uri,
    bearer: Option<HeaderValue>,
    timeout: Duration,
    next_id: AtomicU64,
    revision: Revision,
    session: Option<HeaderValue>,
    /// Whether a revision was agreed on.
    opened: bool,
    welcome: RawObject,
}

impl LegacyClient {
    /// Opens by `initialize`, asking for this revision, and `notifications/initialized`.
    ///
    /// # Errors
    /// [`Error::Config`], or as [`LegacyClient::request`]; [`Error::Protocol`] for a revision that isn't spoken.
    pub async fn connect(config: ClientConfig, revision: Revision) -> Result<LegacyClient, Error> {
        let mut client = LegacyClient::of(&config, revision)?;
        let id = client.id();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"{}","params":{{"protocolVersion":"{revision}","capabilities":{},"clientInfo":{{"name":{},"version":{}}}}}}}"#,
            id.as_str(),
            method::INITIALIZE,
            config.capabilities,
            quote(&config.name),
            quote(&config.version)
        );
        let deadline = client.deadline(None);
        let response = client.post(None, HeaderMap::new(), body.into(), deadline).await?;
        let session = response.headers().get(header::SESSION_ID).cloned();
        let mut options = CallOptions::default();
        let reply = client.read(response, &id, &mut options, deadline, |_| async { None }).await?;
        let spoken = reply.result.string("protocolVersion");
        let spoken = spoken.and_then(|name| Revision::parse(&name)).filter(|r| r.is_legacy());
        client.revision =
            spoken.ok_or_else(|| Error::Protocol("initialize: the server's revision isn't known".into()))?;
        (client.session, client.opened) = (session, true);
        client.welcome = reply.result;
        client.tell(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned()).await?;
        Ok(client)
    }

    /// A client of a session that was opened before, perhaps by another program. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn resume(config: ClientConfig, revision: Revision, session: &str) -> Result<LegacyClient, Error> {
        let mut client = LegacyClient::of(&config, revision)?;
        let session = HeaderValue::from_str(session);
        let session = session
            .map_err(|_| Error::Config("the session's id holds characters that a header can't".into()));
        (client.session, client.opened) = (Some(session?), true);
        Ok(client)
    }

    fn of(config: &ClientConfig, revision: Revision) -> Result<LegacyClient, Error> {
        if !config.capabilities.is_object() {
            return Err(Error::Config("client capabilities must be a JSON object".into()));
        }
        Ok(LegacyClient {
            transport: Transport::new(config.connect_timeout, config.response_cap),
            uri: transport::endpoint(&config.url).map_err(Error::Config)?,
            bearer: super::bearer(config.bearer.as_deref())?,
            timeout: config.timeout,
            next_id: AtomicU64::new(1),
            revision,
            session: None,
            opened: false,
            welcome: RawObject::empty(),
        })
    }

    /// What was agreed on.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The session, if the server keeps one.
    pub fn session(&self) -> Option<&str> {
        self.session.as_ref().and_then(|id| id.to_str().ok())
    }

    /// The `InitializeResult`; empty if the session was [resumed](LegacyClient::resume).
    pub fn welcome(&self) -> &RawObject {
        &self.welcome
    }

    fn id(&self) -> Id {
        Id::number(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    fn deadline(&self, timeout: Option<Duration>) -> Instant {
        Instant::now() + timeout.unwrap_or(self.timeout)
    }

    /// A request. What the server asks before it answers is given to `answer`; `None` declines, by an error. A future that
    /// is dropped cancels nothing in this era.
    ///
    /// # Errors
    /// [`Error::NotSent`], [`Error::Unknown`], [`Error::Rpc`], [`Error::Http`] or [`Error::Protocol`].
    pub async fn request<F, A>(
        &self,
        method: &str,
        params: &[(&str, Raw)],
        mut options: CallOptions<'_>,
        answer: F,
    ) -> Result<Reply, Error>
    where
        F: FnMut(Question) -> A,
        A: Future<Output = Option<Raw>>,
    {
        let deadline = self.deadline(options.timeout);
        let id = self.id();
        let mut members: Vec<String> =
            options.meta.iter().map(|(name, value)| format!("{}:{value}", quote(name))).collect();
        if options.on_progress.is_some() {
            members.push(format!(r#""{}":{}"#, meta::PROGRESS_TOKEN, id.as_str()));
        }
        let about = (!members.is_empty()).then(|| format!(r#""_meta":{{{}}}"#, members.join(",")));
        let own = params.iter().map(|(name, value)| format!("{}:{value}", quote(name)));
        let more = options.params.iter().map(|(name, value)| format!("{}:{value}", quote(name)));
        let params: Vec<String> = about.into_iter().chain(own).chain(more).collect();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":{},"params":{{{}}}}}"#,
            id.as_str(),
            quote(method),
            params.join(",")
        );
        let headers = std::mem::take(&mut options.headers);
        let response = self.post(None, headers, body.into(), deadline).await?;
        self.read(response, &id, &mut options, deadline, answer).await
    }

    /// `tools/call`.
    ///
    /// # Errors
    /// As [`LegacyClient::request`].
    pub async fn call_tool<F, A>(
        &self,
        name: &str,
        arguments: Option<&RawObject>,
        options: CallOptions<'_>,
        answer: F,
    ) -> Result<Reply, Error>
    where
        F: FnMut(Question) -> A,
        A: Future<Output = Option<Raw>>,
    {
        let mut params = vec![("name", Raw::string(name))];
        params.extend(arguments.map(|arguments| ("arguments", arguments.raw())));
        self.request(method::TOOLS_CALL, &params, options, answer).await
    }

    /// Opens the session's own stream (GET) and answers what is asked there, until the server ends it.
    ///
    /// # Errors
    /// [`Error::Http`] where none is offered; [`Error::Unknown`] if it broke off.
    pub async fn stream<F, A>(&self, answer: F) -> Result<(), Error>
    where
        F: FnMut(Question) -> A,
        A: Future<Output = Option<Raw>>,
    {
        let headers = self.headers(HeaderMap::new(), "text/event-stream");
        let opening =
            self.transport.open_by(Method::GET, &self.uri, headers, Bytes::new(), self.deadline(None));
        let response = opening.await?;
        if !is_stream(&response) {
            return Err(refusal(response, self.transport.response_cap()).await);
        }
        let mut options = CallOptions::default();
        self.pour(response, None, &mut options, answer).await.map(drop)
    }

    /// Ends the session, if there is one (DELETE).
    ///
    /// # Errors
    /// [`Error::Http`] if the server refuses.
    pub async fn end(self) -> Result<(), Error> {
        if self.session.is_none() {
            return Ok(());
        }
        let headers = self.headers(HeaderMap::new(), "application/json");
        let deadline = self.deadline(None);
        let ended =
            self.transport.open_by(Method::DELETE, &self.uri, headers, Bytes::new(), deadline).await?;
        if ended.status().is_success() {
            return Ok(());
        }
        Err(refusal(ended, self.transport.response_cap()).await)
    }

    fn headers(&self, mut headers: HeaderMap, accept: &'static str) -> HeaderMap {
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if self.opened && self.revision >= Revision::V2025_06_18 {
            let name = HeaderName::from_static(header::PROTOCOL_VERSION);
            headers.insert(name, HeaderValue::from_static(self.revision.as_str()));
        }
        if let Some(session) = &self.session {
            headers.insert(HeaderName::from_static(header::SESSION_ID), session.clone());
        }
        if let Some(bearer) = &self.bearer {
            headers.insert(AUTHORIZATION, bearer.clone());
        }
        headers
    }

    /// `_about`: the method of the server's request that a response answers.
    async fn post(
        &self,
        _about: Option<&str>,
        headers: HeaderMap,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Error> {
        let mut headers = self.headers(headers, "application/json, text/event-stream");
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        #[cfg(feature = "wire-log")]
        crate::wire_log::client(self.revision, _about, &body);
        self.transport.open(&self.uri, headers, body, deadline).await
    }

    /// Sends what wants no response.
    async fn tell(&self, body: String) -> Result<(), Error> {
        self.told(None, body).await
    }

    async fn told(&self, about: Option<&str>, body: String) -> Result<(), Error> {
        let response = self.post(about, HeaderMap::new(), body.into(), self.deadline(None)).await?;
        if response.status().is_success() {
            // Read to its end, so that the connection can be used again.
            let _ = collect(response.into_body(), self.transport.response_cap()).await;
            return Ok(());
        }
        Err(refusal(response, self.transport.response_cap()).await)
    }

    /// The reply to a request, by JSON or at the end of a stream.
    async fn read<F, A>(
        &self,
        response: Response<Incoming>,
        id: &Id,
        options: &mut CallOptions<'_>,
        deadline: Instant,
        answer: F,
    ) -> Result<Reply, Error>
    where
        F: FnMut(Question) -> A,
        A: Future<Output = Option<Raw>>,
    {
        let reading = async {
            if !is_stream(&response) {
                let cap = self.transport.response_cap();
                return super::reply::read(response, id, &mut options.on_progress, cap).await;
            }
            let reply = self.pour(response, Some(id), options, answer).await?;
            reply.ok_or_else(|| Error::Unknown("the stream ended without a response".into()))
        };
        match timeout_at(deadline, reading).await {
            Ok(reply) => reply,
            Err(_) => Err(Error::Unknown("no response in time".into())),
        }
    }

    /// Reads a stream to the response to `id`, or to its end.
    async fn pour<F, A>(
        &self,
        response: Response<Incoming>,
        id: Option<&Id>,
        options: &mut CallOptions<'_>,
        mut ask: F,
    ) -> Result<Option<Reply>, Error>
    where
        F: FnMut(Question) -> A,
        A: Future<Output = Option<Raw>>,
    {
        let (status, mut body) = (response.status(), response.into_body());
        let mut reader = sse::Reader::default();
        let mut answering = FuturesUnordered::new();
        let mut open: Vec<String> = Vec::new();
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                Some((key, method, given)) = answering.next(), if !answering.is_empty() => {
                    let (key, method, given): (String, String, Option<Raw>) = (key, method, given);
                    // One that was withdrawn isn't answered any more.
                    let before = open.len();
                    open.retain(|known| *known != key);
                    if open.len() < before {
                        self.told(Some(&method), response_to(&key, given.as_ref())).await?;
                    }
                    continue;
                }
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|e| Error::Unknown(format!("the stream broke off: {}", reason(&e))))?;
            let Ok(piece) = frame.into_data() else { continue };
            for event in reader.push(&piece) {
                let Some(message) = message(event)? else { continue };
                match (message.string("method").map(|m| m.into_owned()), message.get("id").and_then(Id::new))
                {
                    (Some(method), Some(own)) if method == method::PING => {
                        let body = response_to(own.as_str(), Some(&RawObject::empty().raw()));
                        self.told(Some(&method), body).await?;
                    }
                    (Some(method), Some(own)) => {
                        let params = message.get("params").and_then(|params| params.object());
                        let key = own.as_str().to_owned();
                        open.push(key.clone());
                        let given = ask(Question { key: key.clone(), method: method.clone(), params });
                        answering.push(async move { (key, method, given.await) });
                    }
                    (Some(method), None) if method == method::CANCELLED => {
                        let params = message.get("params").and_then(|params| params.object());
                        let moot = params.and_then(|params| params.get("requestId"));
                        open.retain(|known| moot.as_ref().is_none_or(|id| id.as_str() != known));
                    }
                    (Some(_), None) => {
                        if let (Some(on_progress), Some(progress)) =
                            (options.on_progress.as_mut(), progress(&message))
                        {
                            on_progress(progress);
                        }
                    }
                    (None, _) => {
                        if let Some(answer) = id.and_then(|id| answer(status, &message, id)) {
                            return answer.map(Some);
                        }
                    }
                }
            }
            if reader.pending() > self.transport.response_cap() {
                return Err(Error::Unknown("an event of the stream is too large".into()));
            }
        }
    }
}

/// The response to a server's request: the result, or an error that declines.
fn response_to(id: &str, result: Option<&Raw>) -> String {
    match result {
        Some(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        None => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{DECLINED},"message":"The request was declined."}}}}"#
        ),
    }
}
