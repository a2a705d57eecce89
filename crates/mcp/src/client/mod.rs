//! The client side of Streamable HTTP: [`McpClient`] of revision 2026-07-28, [`LegacyClient`] of the earlier ones.
//!
//! They send each request once. Whether and how to send again is for those who know what the request does; these clients
//! tell them what they need: [`Error::NotSent`] is proven, [`Error::Unknown`] is not, everything else is an answer.
mod legacy;
mod reply;
mod rounds;
mod tasks;
mod transport;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tokio::time::Instant;

pub use legacy::LegacyClient;
pub use rounds::{MAX_ROUNDS, Question, Round};
pub use transport::{Sent, Transport};

use crate::constants::{VERSION, header, meta, method, name_source};
use crate::error::Error;
use crate::headers::{HeaderParams, encode};
use crate::json::{Raw, RawObject, quote};
use crate::message::Id;

/// How to reach a server, and what to say about ourselves.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The endpoint: https, or http on loopback.
    pub url: String,
    /// A bearer token for `Authorization`.
    pub bearer: Option<String>,
    /// `clientInfo.name`.
    pub name: String,
    /// `clientInfo.version`.
    pub version: String,
    /// `ClientCapabilities`, an object.
    pub capabilities: Raw,
    /// Time for a TCP connection.
    pub connect_timeout: Duration,
    /// Time for a whole request, unless it says otherwise.
    pub timeout: Duration,
    /// Largest answer taken, in bytes.
    pub response_cap: usize,
}

impl ClientConfig {
    /// The defaults for an endpoint: no token, no capabilities, 5 s to connect, 60 s a request, 16 MiB an answer.
    pub fn new(url: impl Into<String>, name: impl Into<String>, version: impl Into<String>) -> ClientConfig {
        ClientConfig {
            url: url.into(),
            bearer: None,
            name: name.into(),
            version: version.into(),
            capabilities: RawObject::empty().raw(),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(60),
            response_cap: 16 << 20,
        }
    }
}

/// A progress notification.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Increases.
    pub progress: f64,
    /// What it runs up to, if known.
    pub total: Option<f64>,
    /// For people.
    pub message: Option<String>,
}

/// A result.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The result object as it came, `resultType` and `_meta` included.
    pub result: RawObject,
    /// `complete`, `input_required`, or an extension's.
    pub result_type: String,
}

/// What goes with one request beyond its parameters.
#[derive(Default)]
pub struct CallOptions<'a> {
    /// Further members of `_meta`, values as JSON text.
    pub meta: Vec<(String, Raw)>,
    /// Further members of `params`, such as `requestState`, `inputResponses` or `idempotencyKey`.
    pub params: Vec<(String, Raw)>,
    /// Further HTTP headers.
    pub headers: HeaderMap,
    /// Instead of the configured one. Progress doesn't extend it.
    pub timeout: Option<Duration>,
    /// Asks for progress notifications and takes them.
    pub on_progress: Option<Box<dyn FnMut(Progress) + Send + 'a>>,
}

/// A tool as listed.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its definition as it came.
    pub definition: RawObject,
}

/// A client of one server. Share it; requests run side by side.
pub struct McpClient {
    transport: Transport,
    uri: Uri,
    bearer: Option<HeaderValue>,
    /// The members of `_meta` that every request carries.
    about: String,
    timeout: Duration,
    next_id: AtomicU64,
    mirrored: Mutex<HashMap<String, HeaderParams>>,
}

impl McpClient {
    /// Makes a client; nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Config`] if the URL, the token or the capabilities can't be used.
    pub fn new(config: ClientConfig) -> Result<McpClient, Error> {
        let uri = transport::endpoint(&config.url).map_err(Error::Config)?;
        let bearer = bearer(config.bearer.as_deref())?;
        if !config.capabilities.is_object() {
            return Err(Error::Config("client capabilities must be a JSON object".into()));
        }
        let about = format!(
            r#""{}":"{VERSION}","{}":{{"name":{},"version":{}}},"{}":{}"#,
            meta::PROTOCOL_VERSION,
            meta::CLIENT_INFO,
            quote(&config.name),
            quote(&config.version),
            meta::CLIENT_CAPABILITIES,
            config.capabilities
        );
        Ok(McpClient {
            transport: Transport::new(config.connect_timeout, config.response_cap),
            uri,
            bearer,
            about,
            timeout: config.timeout,
            next_id: AtomicU64::new(1),
            mirrored: Mutex::default(),
        })
    }

    /// `server/discover`.
    ///
    /// # Errors
    /// As [`McpClient::request`].
    pub async fn discover(&self) -> Result<Reply, Error> {
        self.request(method::DISCOVER, &[], CallOptions::default()).await
    }

    /// All pages of `tools/list`, and what they say about mirrored arguments. Tools whose `x-mcp-header` annotations
    /// break the rules are left out, with a warning in the log, as the specification demands.
    ///
    /// # Errors
    /// As [`McpClient::request`]; [`Error::Protocol`] also for pages without end.
    pub async fn list_tools(&self) -> Result<Vec<Tool>, Error> {
        const MAX_PAGES: usize = 1000;
        let broken = |why: &str| Error::Protocol(format!("tools/list: {why}"));
        let mut tools = Vec::new();
        let mut mirrored = HashMap::new();
        let mut seen = HashSet::new();
        let mut cursor: Option<Raw> = None;
        for _ in 0..MAX_PAGES {
            let params: Vec<_> = cursor.iter().map(|cursor| ("cursor", cursor.clone())).collect();
            let reply = self.request(method::TOOLS_LIST, &params, CallOptions::default()).await?;
            let listed = reply.result.get("tools").ok_or_else(|| broken("the result has no tools"))?;
            let listed: Vec<Box<serde_json::value::RawValue>> =
                listed.read().map_err(|_| broken("tools is not an array"))?;
            for definition in listed {
                let definition =
                    Raw::from(definition).object().ok_or_else(|| broken("a tool is not an object"))?;
                let name = definition.get("name").and_then(|n| n.as_string().map(|s| s.into_owned()));
                let name = name.ok_or_else(|| broken("a tool has no name"))?;
                match definition.get("inputSchema").map(|schema| HeaderParams::of_schema(&schema)).transpose()
                {
                    Ok(params) => {
                        mirrored.insert(name.clone(), params.unwrap_or_default());
                        tools.push(Tool { name, definition });
                    }
                    Err(error) => tracing::warn!(tool = %name, %error, "a listed tool is left out"),
                }
            }
            cursor = reply.result.get("nextCursor").filter(|c| !c.is_null());
            match &cursor {
                None => {
                    *self.mirrored.lock().unwrap_or_else(PoisonError::into_inner) = mirrored;
                    return Ok(tools);
                }
                Some(next) if !seen.insert(next.to_string()) => return Err(broken("a cursor came twice")),
                Some(_) => {}
            }
        }
        Err(broken("too many pages"))
    }

    /// `tools/call`. Mirrors arguments into headers as the last [`McpClient::list_tools`] said; a -32020 answer means
    /// that nothing ran and that tools should be listed again.
    ///
    /// # Errors
    /// As [`McpClient::request`].
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: Option<&RawObject>,
        mut options: CallOptions<'_>,
    ) -> Result<Reply, Error> {
        let params = self.tool_call(name, arguments, &mut options);
        self.request(method::TOOLS_CALL, &params, options).await
    }

    /// The parameters of a call; mirrors arguments into headers.
    fn tool_call(
        &self,
        name: &str,
        arguments: Option<&RawObject>,
        options: &mut CallOptions<'_>,
    ) -> Vec<(&'static str, Raw)> {
        let mirrored = {
            let known = self.mirrored.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(name).map(|params| params.headers(arguments)).unwrap_or_default()
        };
        options.headers.extend(mirrored.into_iter().map(|(name, value)| (Some(name), value)));
        let mut params = vec![("name", Raw::string(name))];
        params.extend(arguments.map(|arguments| ("arguments", arguments.raw())));
        params
    }

    /// Any request. Its future may be dropped: that closes the connection, which cancels the request.
    ///
    /// # Errors
    /// [`Error::NotSent`], [`Error::Unknown`], [`Error::Rpc`], [`Error::Http`] or [`Error::Protocol`].
    pub async fn request(
        &self,
        method: &str,
        params: &[(&str, Raw)],
        mut options: CallOptions<'_>,
    ) -> Result<Reply, Error> {
        self.send(method, params, &mut options).await
    }

    async fn send(
        &self,
        method: &str,
        params: &[(&str, Raw)],
        options: &mut CallOptions<'_>,
    ) -> Result<Reply, Error> {
        let deadline = Instant::now() + options.timeout.unwrap_or(self.timeout);
        let id = Id::number(self.next_id.fetch_add(1, Ordering::Relaxed));
        let mut body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":{},"params":{{"_meta":{{{}"#,
            id.as_str(),
            quote(method),
            self.about
        );
        if options.on_progress.is_some() {
            body.push_str(&format!(r#","{}":{}"#, meta::PROGRESS_TOKEN, id.as_str()));
        }
        let extra = options.meta.iter().map(|(name, value)| (name.as_str(), value));
        members(&mut body, extra);
        body.push('}');
        members(&mut body, params.iter().map(|(name, value)| (*name, value)));
        members(&mut body, options.params.iter().map(|(name, value)| (name.as_str(), value)));
        body.push_str("}}");

        let mut headers = options.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(HeaderName::from_static(header::PROTOCOL_VERSION), HeaderValue::from_static(VERSION));
        let own = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| Error::NotSent("the method can't be a header value".into()))
        };
        headers.insert(HeaderName::from_static(header::METHOD), own(method)?);
        let source = name_source(method);
        let named = params.iter().find(|(name, _)| Some(*name) == source);
        if let Some(name) = named.and_then(|(_, value)| value.as_string()) {
            headers.insert(HeaderName::from_static(header::NAME), own(&encode(&name))?);
        }
        if let Some(bearer) = &self.bearer {
            headers.insert(AUTHORIZATION, bearer.clone());
        }

        #[cfg(feature = "wire-log")]
        crate::wire_log::client(crate::revision::Revision::V2026_07_28, None, body.as_bytes());
        let response = self.transport.open(&self.uri, headers, body.into(), deadline).await?;
        let reading = reply::read(response, &id, &mut options.on_progress, self.transport.response_cap());
        match tokio::time::timeout_at(deadline, reading).await {
            Ok(reply) => reply,
            Err(_) => Err(Error::Unknown("no response in time".into())),
        }
    }
}

/// The value of `Authorization`.
fn bearer(token: Option<&str>) -> Result<Option<HeaderValue>, Error> {
    let value = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))).transpose();
    let mut value =
        value.map_err(|_| Error::Config("the bearer token holds characters that a header can't".into()))?;
    if let Some(value) = &mut value {
        value.set_sensitive(true);
    }
    Ok(value)
}

fn members<'a>(body: &mut String, all: impl Iterator<Item = (&'a str, &'a Raw)>) {
    for (name, value) in all {
        body.push(',');
        body.push_str(&quote(name));
        body.push(':');
        body.push_str(value.as_str());
    }
}
