//! Connections to providers, and one exchange on one of them.
//!
//! Whoever sends drives the connection: no connection has a task of its own, so a request and its answer cost no hand-over
//! between tasks. What is promised of the outcome:
//!
//! - *not sent* is what never was given to an established connection, and what a connection handed back untouched; from one
//!   that was kept it goes to the next one then, for nobody has seen it;
//! - once a request was given to one, whatever is not a whole answer is told as what it may be: sent;
//! - nothing is sent twice.
//!
//! A connection is kept only after a whole answer on it, for the next request to the same place, for a while.

use crate::judge::{Answer, Observation};
use bytes::{Bytes, BytesMut};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Uri, header};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tower::Service as _;

/// Idle connections are given up before most servers do.
const IDLE: Duration = Duration::from_secs(15);
/// Connections kept to one place.
const KEPT: usize = 128;

type Connector = HttpsConnector<HttpConnector>;
type Driver = http1::Connection<MaybeHttpsStream<TokioIo<TcpStream>>, Full<Bytes>>;
/// Scheme, host and port.
type Place = (Scheme, Authority);

/// See the module.
#[derive(Clone)]
pub(crate) struct Wires {
    connector: Connector,
    kept: Arc<Kept>,
}

impl Wires {
    /// With the public certificate roots compiled in.
    pub(crate) fn new() -> Wires {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // HTTP/1.1 only: on a connection of its own a request's fate is its connection's.
        let connector = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Wires { connector, kept: Arc::default() }
    }

    /// One exchange, connecting included, within a deadline; an answer of at most `cap` bytes. `keep`: on a connection
    /// that was kept, if there is one, and kept afterwards; else on one of its own.
    pub(crate) async fn exchange(
        &self,
        request: Request<Bytes>,
        keep: bool,
        cap: u64,
        deadline: Instant,
    ) -> Observation {
        let late = || Observation::NotSent("no connection within the time allowed".into());
        let uri = request.uri().clone();
        let Some((place, mut request)) = addressed(request) else {
            return Observation::NotSent("the URL names no host".into());
        };
        loop {
            if deadline <= Instant::now() {
                return late();
            }
            let kept = if keep { self.kept.take(&place).await } else { None };
            let was_kept = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                // Boxed: most exchanges find a connection, and need not carry the state of making one.
                None => match timeout_at(deadline, Box::pin(self.connect(uri.clone()))).await {
                    Ok(Ok(link)) if Instant::now() < deadline => link,
                    Ok(Err(why)) => return Observation::NotSent(format!("no connection: {why}")),
                    Ok(Ok(_)) | Err(_) => return late(),
                },
            };
            let seen = match timeout_at(deadline, link.ask(request, cap)).await {
                Ok(Ok(seen)) => seen,
                // It had died, and that could not be seen when it was taken up.
                Ok(Err(back)) if was_kept => {
                    request = back.request;
                    continue;
                }
                Ok(Err(Back { why, .. })) => {
                    return Observation::NotSent(format!("the connection closed before the request: {why}"));
                }
                Err(_) => Observation::Timeout,
            };
            if keep && matches!(seen, Observation::Answer(_)) && link.is_idle().await {
                self.kept.put(place, link);
            }
            return seen;
        }
    }

    async fn connect(&self, uri: Uri) -> Result<Link, String> {
        let mut connector = self.connector.clone();
        let connecting = async {
            poll_fn(|cx| connector.poll_ready(cx)).await?;
            connector.call(uri).await
        };
        let io = connecting.await.map_err(|e| innermost(&*e))?;
        let (sender, driver) = http1::handshake(io).await.map_err(|e| innermost(&e))?;
        Ok(Link { sender, driver: Some(Box::new(driver)), idle_since: Instant::now() })
    }
}

/// The place of a request, and the request as it is written on a connection to it.
fn addressed(mut request: Request<Bytes>) -> Option<(Place, Request<Full<Bytes>>)> {
    let scheme = request.uri().scheme()?.clone();
    let authority = request.uri().authority()?.clone();
    let usual = if scheme == Scheme::HTTPS { 443 } else { 80 };
    // RFC 9110 section 7.2: the port only where it is not the scheme's own; no user information.
    let host = match authority.port_u16() {
        Some(port) if port != usual => HeaderValue::try_from(format!("{}:{port}", authority.host())),
        _ => HeaderValue::try_from(authority.host()),
    };
    let host = host.ok()?;
    request.headers_mut().entry(header::HOST).or_insert(host);
    // RFC 9112 section 3.2.1: the origin-form.
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
    Some(((scheme, authority), request.map(Full::new)))
}

/// A connection.
struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// Reads and writes when it is polled; `None` once it has ended.
    driver: Option<Box<Driver>>,
    idle_since: Instant,
}

/// A request that a connection handed back untouched.
struct Back {
    request: Request<Full<Bytes>>,
    why: String,
}

/// Lets a connection read and write what it can.
fn drive(driver: &mut Option<Box<Driver>>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|d| Pin::new(&mut **d).poll(cx).is_ready()) {
        // What went wrong is told by the request. Dropped, so that a request that it still holds ends too.
        *driver = None;
    }
}

impl Link {
    async fn ask(&mut self, request: Request<Full<Bytes>>, cap: u64) -> Result<Observation, Back> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        let sent = poll_fn(|cx| {
            drive(driver, cx);
            answer.as_mut().poll(cx)
        });
        let response = match sent.await {
            Ok(response) => response,
            Err(mut e) => {
                let why = innermost(e.error());
                return match e.take_message() {
                    Some(request) => Err(Back { request, why }),
                    None => Ok(Observation::ConnectionLost(why)),
                };
            }
        };
        let (head, mut body) = response.into_parts();
        // Not by the header: what answers a HEAD tells of a length that does not follow.
        if body.size_hint().exact().is_some_and(|n| n > cap) {
            return Ok(Observation::TooLarge(cap));
        }
        let mut whole = Whole::default();
        while !body.is_end_stream() {
            match next(&mut self.driver, &mut body).await {
                None => break,
                Some(Err(e)) => return Ok(Observation::Torn(innermost(&e))),
                Some(Ok(data)) if (whole.len() + data.len()) as u64 > cap => {
                    return Ok(Observation::TooLarge(cap));
                }
                Some(Ok(data)) => whole.push(data),
            }
        }
        Ok(Observation::Answer(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: whole.bytes(),
        }))
    }

    /// Whether it waits for a request and is open, as far as is known here.
    async fn is_idle(&mut self) -> bool {
        poll_fn(|cx| {
            drive(&mut self.driver, cx);
            Poll::Ready(())
        })
        .await;
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// The next piece of a body.
async fn next(driver: &mut Option<Box<Driver>>, body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
    loop {
        let frame = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Pending => {
                drive(driver, cx);
                Pin::new(&mut *body).poll_frame(cx)
            }
            ready => ready,
        });
        match frame.await? {
            // Trailers say nothing here.
            Ok(frame) => match frame.into_data() {
                Ok(data) => return Some(Ok(data)),
                Err(_) => continue,
            },
            Err(e) => return Some(Err(e)),
        }
    }
}

/// A body; most come in one piece, which is not copied.
#[derive(Default)]
struct Whole {
    first: Bytes,
    more: BytesMut,
}

impl Whole {
    fn len(&self) -> usize {
        self.first.len() + self.more.len()
    }

    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        self.more.extend_from_slice(&std::mem::take(&mut self.first));
        self.more.extend_from_slice(&data);
    }

    fn bytes(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}

/// Connections that wait for their next request, the newest last.
#[derive(Default)]
struct Kept {
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    links: HashMap<Place, Vec<Link>>,
    /// Something closes what grows old.
    swept: bool,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest one to a place that is still open, as far as is known here.
    async fn take(&self, place: &Place) -> Option<Link> {
        loop {
            let mut link = self.lock().links.get_mut(place)?.pop()?;
            if link.idle_since.elapsed() < IDLE && link.is_idle().await {
                return Some(link);
            }
        }
    }

    fn put(self: &Arc<Self>, place: Place, mut link: Link) {
        link.idle_since = Instant::now();
        let mut places = self.lock();
        let links = places.links.entry(place).or_default();
        if links.len() < KEPT {
            links.push(link);
        }
        if !std::mem::replace(&mut places.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }
}

/// Closes what grows old, until there is nothing left.
async fn sweep(kept: Weak<Kept>) {
    loop {
        tokio::time::sleep(IDLE / 2).await;
        let Some(kept) = kept.upgrade() else { return };
        let mut places = kept.lock();
        places.links.retain(|_, links| {
            links.retain(|link| link.idle_since.elapsed() < IDLE);
            !links.is_empty()
        });
        if places.links.is_empty() {
            places.swept = false;
            return;
        }
    }
}

/// The last cause says most; it names no secret, for requests are not part of these errors.
fn innermost(e: &(dyn std::error::Error + 'static)) -> String {
    let mut last = e;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
