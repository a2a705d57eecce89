//! One HTTP POST that can say what became of it: not sent, answered, or unknown.
//!
//! *Not sent* is a proof, not a guess. The body passes a gate when hyper asks for its first piece, which over HTTP/1.1
//! happens before any byte of the request is flushed. A request that ends while the gate is untouched has its gate
//! revoked in the same step, so that its body can never leave afterwards, and without its body no server carries it
//! out. Everything after the gate is *answered* or *unknown*. Hence HTTP/1.1 only, no redirects, no retries.
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::uri::Scheme;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use crate::error::Error;
use crate::origin::is_loopback_name;

/// What became of a request.
#[derive(Debug)]
pub enum Sent {
    /// It never left, or at least not its body: nothing was carried out, sending it again is safe.
    NotSent(String),
    /// A whole answer came back.
    Answered {
        /// HTTP status.
        status: StatusCode,
        /// Its headers.
        headers: HeaderMap,
        /// Its body.
        body: Bytes,
    },
    /// It may have been received; no whole answer came back.
    Unknown(String),
}

/// A pool of connections. Cheap to clone.
#[derive(Clone)]
pub struct Transport {
    client: Client<HttpsConnector<HttpConnector>, Gated>,
    response_cap: usize,
}

impl Transport {
    /// `connect_timeout` bounds a TCP connection; `response_cap` the bytes of one answer (or of one event of a stream).
    pub fn new(connect_timeout: Duration, response_cap: usize) -> Transport {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(connect_timeout));
        let connector = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            // Shorter than servers commonly keep an idle connection, since one that is closed as we write is "unknown".
            .pool_idle_timeout(Duration::from_secs(20))
            .retry_canceled_requests(false)
            .build(connector);
        Transport { client, response_cap }
    }

    /// The largest answer taken, in bytes.
    pub fn response_cap(&self) -> usize {
        self.response_cap
    }

    /// Sends a POST and collects its answer, all within `timeout`.
    pub async fn post(&self, url: &str, headers: HeaderMap, body: Bytes, timeout: Duration) -> Sent {
        let deadline = Instant::now() + timeout;
        let uri = match endpoint(url) {
            Ok(uri) => uri,
            Err(why) => return Sent::NotSent(why),
        };
        match self.open(&uri, headers, body, deadline).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                match tokio::time::timeout_at(deadline, collect(body, self.response_cap)).await {
                    Ok(Ok(body)) => Sent::Answered { status: head.status, headers: head.headers, body },
                    Ok(Err(why)) => Sent::Unknown(why),
                    Err(_) => Sent::Unknown("the answer did not arrive in time".into()),
                }
            }
            Err(Error::NotSent(why)) => Sent::NotSent(why),
            Err(other) => Sent::Unknown(match other {
                Error::Unknown(why) => why,
                other => other.to_string(),
            }),
        }
    }

    /// Sends a POST and gives the head of its answer; the body follows.
    ///
    /// # Errors
    /// [`Error::NotSent`] or [`Error::Unknown`], nothing else.
    pub(crate) async fn open(
        &self,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Error> {
        self.open_by(Method::POST, uri, headers, body, deadline).await
    }

    /// The same by another HTTP method.
    pub(crate) async fn open_by(
        &self,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Error> {
        // hyper may send a request without a body whole, without asking for the body: no proof there.
        let gate = Arc::new(AtomicU8::new(if body.is_empty() { PASSED } else { UNTOUCHED }));
        let mut request = Request::new(Gated { body: Some(body), gate: gate.clone() });
        *request.method_mut() = method;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers;
        let (why, connecting) = match tokio::time::timeout_at(deadline, self.client.request(request)).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) => (reason(&error), error.is_connect()),
            Err(_) => ("no answer in time".to_owned(), false),
        };
        let revoked = gate.compare_exchange(UNTOUCHED, REVOKED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        Err(if connecting || revoked { Error::NotSent(why) } else { Error::Unknown(why) })
    }
}

/// An endpoint's address: https, or http on loopback.
pub(crate) fn endpoint(url: &str) -> Result<Uri, String> {
    let uri: Uri = url.parse().map_err(|_| "the URL is not valid".to_owned())?;
    let host = uri.host().unwrap_or_default();
    if host.is_empty() || uri.authority().is_some_and(|a| a.as_str().contains('@')) {
        return Err("the URL must name a host, and no user".into());
    }
    match uri.scheme() {
        Some(s) if *s == Scheme::HTTPS => Ok(uri),
        Some(s) if *s == Scheme::HTTP && is_loopback_name(host) => Ok(uri),
        Some(s) if *s == Scheme::HTTP => Err("https is required outside loopback".into()),
        _ => Err("the URL must begin with https://".into()),
    }
}

/// The whole of a body up to `cap` bytes.
pub(crate) async fn collect(mut body: Incoming, cap: usize) -> Result<Bytes, String> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| format!("the answer broke off: {}", reason(&e)))?;
        if let Ok(piece) = frame.into_data() {
            if all.len() + piece.len() > cap {
                return Err(format!("the answer is larger than {cap} bytes"));
            }
            all.extend_from_slice(&piece);
        }
    }
    Ok(all.freeze())
}

/// An error with its causes, on one line.
pub(crate) fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

const UNTOUCHED: u8 = 0;
const PASSED: u8 = 1;
const REVOKED: u8 = 2;

/// A body behind its gate.
struct Gated {
    body: Option<Bytes>,
    gate: Arc<AtomicU8>,
}

#[derive(Debug, thiserror::Error)]
#[error("the request was given up before it was sent")]
struct Revoked;

impl Body for Gated {
    type Data = Bytes;
    type Error = Revoked;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Revoked>>> {
        let Some(body) = self.body.take() else { return Poll::Ready(None) };
        match self.gate.compare_exchange(UNTOUCHED, PASSED, Ordering::AcqRel, Ordering::Acquire) {
            Err(REVOKED) => Poll::Ready(Some(Err(Revoked))),
            _ => Poll::Ready(Some(Ok(Frame::data(body)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.body.as_ref().map_or(0, |b| b.len() as u64))
    }
}
