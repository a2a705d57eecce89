//! The one place where requests leave.
//!
//! Provably *not sent* is what never was given to an established connection: a name that does not resolve, a
//! refused connection, TLS that fails, a deadline that passes before; and what a dying connection handed back
//! unread. Whatever a connection has accepted may have left. Nothing here tries twice.

use crate::credentials::{Credentials, MISSING};
use crate::error::BadArguments;
use crate::judge::{Answer, Judged, Observation, judge};
use crate::manifest::Mode;
use crate::method::Method;
use crate::receipt::Receipt;
use crate::request::{HttpIntent, answered, get};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use ledger::{EffectKey, Executor, Intent, Looked, Millis, Sent};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Redirects that a read follows, within one origin.
const MAX_REDIRECTS: usize = 3;
/// Idle connections are given up before most servers do.
const POOL_IDLE: Duration = Duration::from_secs(15);
const POOL_PER_HOST: usize = 32;

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Sends recorded requests for the ledger.
#[derive(Clone)]
pub struct HttpExecutor {
    /// Keeps connections: for what may be sent twice, and for reads.
    pooled: Http,
    /// A connection for each send: where a kept one that had just died would raise a doubt for nothing.
    fresh: Http,
    credentials: Arc<dyn Credentials>,
}

impl fmt::Debug for HttpExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpExecutor").finish_non_exhaustive()
    }
}

/// What came of a read.
#[derive(Clone, Debug)]
pub enum ReadOutcome {
    /// A whole answer of any status, for [`crate::render()`].
    Answered(Receipt),
    /// There is none. A repeat is harmless.
    Unavailable {
        /// For people and logs.
        why: String,
    },
}

impl HttpExecutor {
    /// An executor with the public certificate roots compiled in.
    #[must_use]
    pub fn new(credentials: Arc<dyn Credentials>) -> HttpExecutor {
        HttpExecutor { pooled: client(POOL_PER_HOST), fresh: client(0), credentials }
    }

    /// Performs a read once, without the ledger.
    ///
    /// # Errors
    /// Arguments from which no request can be built.
    pub async fn read(
        &self,
        method: &Method,
        args: &str,
        timeout: Millis,
    ) -> Result<ReadOutcome, BadArguments> {
        let http = method.read_request(args)?;
        let deadline = Instant::now() + timeout.duration();
        let outcome = match http.to_http(None) {
            Ok(request) => self.follow(request, &http, deadline).await,
            Err(why) => Err(why),
        };
        Ok(match outcome {
            Ok(answer) => ReadOutcome::Answered(answer.receipt()),
            Err(why) => ReadOutcome::Unavailable { why },
        })
    }

    /// The recorded request, where the account is now: it must be where it was, and who it was, when the request was
    /// recorded. `first`: nothing of it has left yet.
    fn in_place(&self, http: HttpIntent, first: bool) -> Result<HttpIntent, String> {
        let Some(base) = http.base.clone() else { return Ok(http) };
        // What was recorded without a credential has not been sent under any; what was sent since, nobody knows.
        let mark = http.credential.as_deref().filter(|mark| !(first && *mark == MISSING));
        self.credentials.unchanged(&http.account, &http.mode, &base, mark)?;
        let moved = self.credentials.moved(&http.account, &http.mode, &base);
        Ok(match moved {
            Some(to) => http.moved(&base, &to),
            None => http,
        })
    }

    /// One page of a look-up.
    async fn page(&self, http: &HttpIntent, url: &str, deadline: Instant) -> Result<Answer, String> {
        answered(self.exchange(&self.fresh, get(url, &http.headers)?, http, deadline).await)
    }

    /// Puts the secret in and performs the exchange.
    async fn exchange(
        &self,
        client: &Http,
        request: Request<Bytes>,
        http: &HttpIntent,
        deadline: Instant,
    ) -> Observation {
        let request = match self.authenticated(request, http) {
            Ok(request) => request,
            Err(why) => return Observation::NotSent(why),
        };
        exchange(client, request, http.cap, deadline).await
    }

    fn authenticated(
        &self,
        mut request: Request<Bytes>,
        http: &HttpIntent,
    ) -> Result<Request<Bytes>, String> {
        // The intent was built from a checked base URL; this guards against one that was not.
        let host = request.uri().host().unwrap_or_default().trim_matches(['[', ']']);
        let loopback = host == "localhost"
            || host.ends_with(".localhost")
            || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if request.uri().scheme_str() != Some("https") && !loopback {
            return Err("only loopback may be reached without https".into());
        }
        if http.mode.parse::<Mode>().is_err() {
            return Err(format!("there is no mode {:?}", http.mode));
        }
        if let Some((name, mut value)) =
            self.credentials.header(&http.account, &http.mode).map_err(|e| e.to_string())?
        {
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }

    /// A GET, and where it leads, within one origin.
    async fn follow(
        &self,
        mut request: Request<Bytes>,
        http: &HttpIntent,
        deadline: Instant,
    ) -> Result<Answer, String> {
        for _ in 0..=MAX_REDIRECTS {
            let (uri, verb) = (request.uri().clone(), request.method().clone());
            let headers = request.headers().clone();
            let answer = answered(self.exchange(&self.pooled, request, http, deadline).await)?;
            let safe = verb == http::Method::GET || verb == http::Method::HEAD;
            let location = answer
                .header(header::LOCATION.as_str())
                .filter(|_| safe && matches!(answer.status, 301 | 302 | 303 | 307 | 308));
            let Some(location) = location else { return Ok(answer) };
            let next = url::Url::parse(&uri.to_string())
                .and_then(|here| here.join(location).map(|there| (here.origin() == there.origin(), there)));
            let there = match next {
                Ok((true, there)) => there,
                Ok((false, _)) => return Err("redirected to another host, which is not followed".into()),
                Err(_) => return Err("redirected to something that is not a URL".into()),
            };
            let mut onward = Request::builder()
                .method(verb)
                .uri(there.as_str())
                .body(Bytes::new())
                .map_err(|_| "redirected to something that is not a URL".to_owned())?;
            *onward.headers_mut() = headers;
            request = onward;
        }
        Err(format!("redirected more than {MAX_REDIRECTS} times"))
    }

    /// After a conflict that named an object: is it this effect's, and what is it now?
    async fn existing(
        &self,
        http: &HttpIntent,
        key: &EffectKey,
        replay: bool,
        id: &str,
        conflict: Receipt,
        deadline: Instant,
    ) -> Sent {
        let unknown = |why: String| Sent::Unknown { why, retry_after: None, stored: false };
        let Some(plan) = &http.conflict else {
            return unknown("it exists already, and there is no way to fetch it".into());
        };
        if id == "." || id == ".." {
            return unknown("it exists already, but its id can't be part of a URL".into());
        }
        let url = format!("{}{}{}", plan.before.with(key), crate::encode::percent(id), plan.after);
        let request = match get(&url, &http.headers) {
            Ok(request) => request,
            Err(why) => return unknown(why),
        };
        let answer = match answered(self.exchange(&self.fresh, request, http, deadline).await) {
            Ok(answer) if answer.status == 200 => answer,
            Ok(answer) => {
                return unknown(format!("it exists already, but fetching it was answered {}", answer.status));
            }
            Err(why) => return unknown(format!("it exists already, but it could not be fetched: {why}")),
        };
        match plan.proves(key, &answer.body) {
            Some(true) => {
                Sent::Applied(answer.receipt().noted("It existed already under this effect's key.").keep())
            }
            // Another's object stands in the way. For a first send that is a plain refusal.
            Some(false) if !replay => Sent::Refused(conflict.keep()),
            Some(false) => unknown("an object that is not this effect's stands in the way".into()),
            None => unknown("it exists already, but the object does not show whose it is".into()),
        }
    }
}

#[async_trait]
impl Executor for HttpExecutor {
    async fn send(&self, intent: &Intent, key: &EffectKey, replay: bool, timeout: Millis) -> Sent {
        let deadline = Instant::now() + timeout.duration();
        let http = match HttpIntent::decode(&intent.body) {
            Ok(http) => http,
            Err(why) => return Sent::NotSent { why },
        };
        // A key means nothing to another account: the replay would be a second effect.
        let http = match self.in_place(http, !replay) {
            Ok(http) => http,
            Err(why) if replay => {
                return Sent::Withheld {
                    why: format!("not sent again: {why}; put it back and have it sent again, or look there"),
                };
            }
            Err(why) => return Sent::NotSent { why },
        };
        let request = match http.to_http(Some(key)) {
            Ok(request) => request,
            Err(why) => return Sent::NotSent { why },
        };
        let client = if intent.recovery.strategy.replays() { &self.pooled } else { &self.fresh };
        let seen = self.exchange(client, request, &http, deadline).await;
        let sent = match (judge(&http.policy, replay, &seen), seen) {
            (Judged::Sent(sent), _) => sent,
            (Judged::Existing { resource_id }, Observation::Answer(a)) => {
                self.existing(&http, key, replay, &resource_id, a.receipt(), deadline).await
            }
            (Judged::Existing { .. }, _) => {
                Sent::Unknown { why: "no answer".into(), retry_after: None, stored: false }
            }
        };
        tracing::debug!(target: "counterfoil::provider", request = %intent.summary, replay, outcome = word(&sent), "sent");
        sent
    }

    async fn look_up(&self, intent: &Intent, key: &EffectKey, timeout: Millis) -> Looked {
        let deadline = Instant::now() + timeout.duration();
        let unknown = |why: String| Looked::Unknown { why };
        let http = match HttpIntent::decode(&intent.body) {
            Ok(http) => http,
            Err(why) => return unknown(why),
        };
        // Another account would truthfully answer that it knows nothing. Where that is not known, no answer permits more
        // than a replay, and the replay is withheld.
        let http = match self.in_place(http, true) {
            Ok(http) => http,
            Err(why) => return unknown(format!("not asked: {why}")),
        };
        let Some(plan) = &http.lookup else { return unknown("this provider can't be asked".into()) };
        let first = match self.page(&http, &plan.url.with(key), deadline).await {
            Ok(answer) => answer,
            Err(why) => return unknown(why),
        };
        match plan.onward(key, &first) {
            Some(url) => match self.page(&http, &url, deadline).await {
                Ok(second) => plan.evaluate(key, &second),
                Err(why) => unknown(why),
            },
            None => plan.evaluate(key, &first),
        }
    }
}

fn word(sent: &Sent) -> &'static str {
    match sent {
        Sent::NotSent { .. } => "not sent",
        Sent::Applied(_) => "applied",
        Sent::Refused(_) => "refused",
        Sent::NotApplied { .. } => "not applied",
        Sent::Withheld { .. } => "withheld",
        Sent::Unknown { .. } => "unknown",
    }
}

fn client(idle_per_host: usize) -> Http {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // HTTP/1.1 only: on a connection of its own a request's fate is its connection's.
    let https =
        HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().wrap_connector(tcp);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(idle_per_host)
        // Every send is the ledger's.
        .retry_canceled_requests(false)
        .build(https)
}

/// One exchange, connecting included, within a deadline.
async fn exchange(client: &Http, request: Request<Bytes>, cap: u64, deadline: Instant) -> Observation {
    let mut request = request.map(Full::new);
    // Set by the client at the moment it has a connection, before the request is given to it.
    let connection = capture_connection(&mut request);
    let sent = timeout_at(deadline, client.request(request)).await;
    let accepted = connection.connection_metadata().is_some();
    let response = match sent {
        Ok(Ok(response)) => response,
        Ok(Err(e)) if !accepted || handed_back(&e) => return Observation::NotSent(not_sent(&e)),
        Ok(Err(e)) => return Observation::ConnectionLost(innermost(&e)),
        Err(_) if !accepted => return Observation::NotSent("no connection within the time allowed".into()),
        Err(_) => return Observation::Timeout,
    };
    let (head, mut body) = response.into_parts();
    let announced =
        head.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|n| n > cap) {
        return Observation::TooLarge(cap);
    }
    let mut whole = BytesMut::new();
    loop {
        match timeout_at(deadline, body.frame()).await {
            Err(_) => return Observation::Timeout,
            Ok(None) => break,
            Ok(Some(Err(e))) => return Observation::Torn(innermost(&e)),
            Ok(Some(Ok(frame))) => {
                let Ok(data) = frame.into_data() else { continue };
                if (whole.len() + data.len()) as u64 > cap {
                    return Observation::TooLarge(cap);
                }
                whole.extend_from_slice(&data);
            }
        }
    }
    Observation::Answer(Answer { status: head.status.as_u16(), headers: head.headers, body: whole.freeze() })
}

/// The connection closed before it took the request up, and gave it back.
fn handed_back(e: &ClientError) -> bool {
    let mut source = std::error::Error::source(e);
    while let Some(s) = source {
        if let Some(h) = s.downcast_ref::<hyper::Error>() {
            return h.is_canceled();
        }
        source = s.source();
    }
    false
}

fn not_sent(e: &ClientError) -> String {
    let what = if e.is_connect() { "no connection" } else { "the connection closed before the request" };
    format!("{what}: {}", innermost(e))
}

/// The last cause says most; it names no secret, for requests are not part of these errors.
fn innermost(e: &(dyn std::error::Error + 'static)) -> String {
    let mut last = e;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
