//! The one place where requests leave.
//!
//! Provably *not sent* is what never was given to an established connection: a name that does not resolve, a
//! refused connection, TLS that fails, a deadline that passes before; and what a dying connection handed back
//! unread. Whatever a connection has accepted may have left. Nothing here tries twice.

mod asking;

use crate::credentials::{Account, Credentials, is_missing};
use crate::error::BadArguments;
use crate::judge::{Answer, Judged, Observation, graphql, judge};
use crate::manifest::Mode;
use crate::mask::Mask;
use crate::method::Method;
use crate::own::{self, NoOwn, Whose};
use crate::policy::Word;
use crate::proof::Proof;
use crate::receipt::Receipt;
use crate::request::{HttpIntent, answered, get};
use crate::wire::Wires;
use async_trait::async_trait;
use bytes::Bytes;
use credentials::Ticket;
use http::{Request, header};
use ledger::{Asked, EffectKey, Executor, Intent, Looked, Millis, Sent};
use std::fmt;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// Redirects that a read follows, within one origin.
const MAX_REDIRECTS: usize = 3;

/// The connection of an exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    /// One that was kept, if there is one, and kept again: for what may be sent twice, and for reads.
    Kept,
    /// One for this exchange alone: where a kept one that had just died would raise a doubt for nothing.
    Fresh,
}

/// A request on its way, with what authenticates it where that had to be looked for.
struct Placed<'a> {
    http: &'a HttpIntent,
    own: Option<Proof>,
    /// Of an access token that can be renewed.
    ticket: Option<Ticket>,
}

/// Sends recorded requests for the ledger.
#[derive(Clone)]
pub struct HttpExecutor {
    wires: Wires,
    credentials: Arc<dyn Credentials>,
    watch: Option<Arc<dyn Watch>>,
}

/// Hears of every send whether its provider answered.
pub trait Watch: Send + Sync {
    /// A send to this origin was answered; or it was not, or with a status of 500 and above.
    fn seen(&self, origin: &str, answered: bool);
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
        HttpExecutor { wires: Wires::new(), credentials, watch: None }
    }

    /// The same, with somebody who watches.
    #[must_use]
    pub fn watched_by(self, watch: Arc<dyn Watch>) -> HttpExecutor {
        HttpExecutor { watch: Some(watch), ..self }
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
        self.read_as(method, None, args, timeout).await
    }

    /// The same for this principal, with its own credential where each has one.
    ///
    /// # Errors
    /// Arguments from which no request can be built.
    pub async fn read_as(
        &self,
        method: &Method,
        principal: Option<&str>,
        args: &str,
        timeout: Millis,
    ) -> Result<ReadOutcome, BadArguments> {
        let mut http = method.read_request(args)?;
        http.principal = principal.filter(|_| method.home.own.is_some()).map(str::to_owned);
        let deadline = Instant::now() + timeout.duration();
        let outcome = self.ask_for(&http, deadline).await;
        Ok(match outcome {
            Ok(answer) => {
                let refused = matches!(http.policy.word_of(&answer.body), Some(Word::Refusal(_)))
                    || http.policy.graphql.is_some() && graphql::fails(&answer);
                let receipt = answer.receipt();
                ReadOutcome::Answered(if refused { receipt.refused() } else { receipt })
            }
            Err(why) => ReadOutcome::Unavailable { why },
        })
    }

    /// A read, and once more if its access token was refused and can be renewed.
    async fn ask_for(&self, http: &HttpIntent, deadline: Instant) -> Result<Answer, String> {
        let mut again = true;
        loop {
            let request = http.to_http(None)?;
            let to = self.placed(http, None, deadline).await.map_err(|e| e.to_string())?;
            let answer = self.follow(request, &to, deadline).await?;
            if !self.renews(&to, answer.status) || !again {
                return Ok(answer);
            }
            again = false;
        }
    }

    /// Whether this status refused an access token that will be another one at the next send.
    fn renews(&self, to: &Placed<'_>, status: u16) -> bool {
        let origin = own::origin(to.http.base.as_deref().unwrap_or_default());
        let (account, mode, origin) = (to.http.account.as_str(), to.http.mode.as_str(), origin.as_str());
        let Some(ticket) = to.ticket.filter(|_| status == 401) else { return false };
        match &to.http.principal {
            Some(principal) => {
                self.credentials.refused_own(&Whose { account, mode, origin, principal }, ticket)
            }
            None => self.credentials.refused(&Account { account, mode, origin }, ticket),
        }
    }

    /// The recorded request, where the account is now: it must be where it was, and who it was, when the request was
    /// recorded. `first`: nothing of it has left yet.
    fn in_place(&self, http: HttpIntent, first: bool) -> Result<HttpIntent, String> {
        let Some(base) = http.base.clone() else { return Ok(http) };
        let mark = recorded(&http, first);
        self.credentials.unchanged(&http.account, &http.mode, &base, mark)?;
        let moved = self.credentials.moved(&http.account, &http.mode, &base);
        Ok(match moved {
            Some(to) => http.moved(&base, &to),
            None => http,
        })
    }

    /// The credential that it goes out with, if that has to be looked for, and is the one with this mark (`None`: whichever).
    /// Without one in time nothing may be sent.
    async fn placed<'a>(
        &self,
        http: &'a HttpIntent,
        mark: Option<&str>,
        deadline: Instant,
    ) -> Result<Placed<'a>, NoOwn> {
        let origin = own::origin(http.base.as_deref().unwrap_or_default());
        let found = async {
            let (account, mode) = (http.account.as_str(), http.mode.as_str());
            if let Some(principal) = &http.principal {
                let whose = Whose { account, mode, origin: &origin, principal };
                let own = self.credentials.own(&whose, mark).await?;
                return Ok(Placed { http, own: Some(own.proof), ticket: own.ticket });
            }
            let kept = self.credentials.kept(&Account { account, mode, origin: &origin }, mark).await?;
            let (own, ticket) = kept.map_or((None, None), |kept| (Some(kept.proof), kept.ticket));
            Ok(Placed { http, own, ticket })
        };
        let late = |_| NoOwn::Missing("its credential was not there within the time allowed".into());
        timeout_at(deadline, found).await.unwrap_or_else(|e| Err(late(e)))
    }

    /// An exchange of a send: whoever watches hears whether the provider answered.
    async fn watched(
        &self,
        on: On,
        request: Request<Bytes>,
        to: &Placed<'_>,
        deadline: Instant,
    ) -> Observation {
        let Some(watch) = &self.watch else { return self.exchange(on, request, to, deadline).await };
        let (request, mask) = match self.authenticated(request, to) {
            Ok(ready) => ready,
            // The provider has no part in it.
            Err(why) => return Observation::NotSent(why),
        };
        let origin = own::origin(&request.uri().to_string());
        let seen = mask.over(self.wires.exchange(request, on == On::Kept, to.http.cap, deadline).await);
        let answered = match &seen {
            Observation::Answer(answer) => answer.status < 500,
            Observation::TooLarge(_) => true,
            Observation::NotSent(_)
            | Observation::ConnectionLost(_)
            | Observation::Timeout
            | Observation::Torn(_) => false,
        };
        watch.seen(&origin, answered);
        seen
    }

    /// Puts the secret in and performs the exchange. What comes of it doesn't have the secret.
    async fn exchange(
        &self,
        on: On,
        request: Request<Bytes>,
        to: &Placed<'_>,
        deadline: Instant,
    ) -> Observation {
        let (request, mask) = match self.authenticated(request, to) {
            Ok(ready) => ready,
            Err(why) => return Observation::NotSent(why),
        };
        mask.over(self.wires.exchange(request, on == On::Kept, to.http.cap, deadline).await)
    }

    /// The request with its secret, and what must not be seen in its answer.
    fn authenticated(
        &self,
        mut request: Request<Bytes>,
        to: &Placed<'_>,
    ) -> Result<(Request<Bytes>, Mask), String> {
        let http = to.http;
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
        let proof = match &to.own {
            Some(own) => own.clone(),
            None => self.credentials.proof(&http.account, &http.mode).map_err(|e| e.to_string())?,
        };
        proof
            .put_into(&mut request)
            .map_err(|why| format!("the credential of account {:?} can't be sent: {why}", http.account))?;
        Ok((request, Mask::of(proof.secrets())))
    }

    /// A GET, and where it leads, within one origin.
    async fn follow(
        &self,
        mut request: Request<Bytes>,
        to: &Placed<'_>,
        deadline: Instant,
    ) -> Result<Answer, String> {
        for _ in 0..=MAX_REDIRECTS {
            let (uri, verb) = (request.uri().clone(), request.method().clone());
            let headers = request.headers().clone();
            let answer = answered(self.exchange(On::Kept, request, to, deadline).await)?;
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
        to: &Placed<'_>,
        key: &EffectKey,
        replay: bool,
        id: &str,
        conflict: Receipt,
        deadline: Instant,
    ) -> Sent {
        let unknown = |why: String| Sent::Unknown { why, retry_after: None, stored: false };
        let Some(plan) = &to.http.conflict else {
            return unknown("it exists already, and there is no way to fetch it".into());
        };
        if id == "." || id == ".." {
            return unknown("it exists already, but its id can't be part of a URL".into());
        }
        let url = format!("{}{}{}", plan.before.with(key), crate::encode::percent(id), plan.after);
        let request = match get(&url, &to.http.headers) {
            Ok(request) => request,
            Err(why) => return unknown(why),
        };
        let answer = match answered(self.exchange(On::Fresh, request, to, deadline).await) {
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
            Err(why) if replay => return withheld(&why),
            Err(why) => return Sent::NotSent { why },
        };
        let to = match self.placed(&http, recorded(&http, !replay), deadline).await {
            Ok(to) => to,
            Err(NoOwn::Changed(why)) if replay => return withheld(&why),
            Err(why) => return Sent::NotSent { why: why.to_string() },
        };
        let request = match http.to_http(Some(key)) {
            Ok(request) => request,
            Err(why) => return Sent::NotSent { why },
        };
        let on = if intent.recovery.strategy.replays() { On::Kept } else { On::Fresh };
        let seen = self.watched(on, request, &to, deadline).await;
        let renewed = matches!(&seen, Observation::Answer(a) if self.renews(&to, a.status));
        let sent = match (judge(&http.policy, replay, &seen), seen) {
            // It was refused for its token, and this provider's refusals are definite: nothing of it happened.
            (Judged::Sent(Sent::Refused(_)), _) if renewed && !replay => Sent::NotApplied {
                why: "answered 401: its access token was refused, and is renewed".into(),
                retry_after: None,
            },
            (Judged::Sent(sent), _) => sent,
            (Judged::Existing { resource_id }, Observation::Answer(a)) => {
                Box::pin(self.existing(&to, key, replay, &resource_id, a.receipt(), deadline)).await
            }
            (Judged::Existing { .. }, _) => {
                Sent::Unknown { why: "no answer".into(), retry_after: None, stored: false }
            }
        };
        tracing::debug!(target: "counterfoil::provider", request = %intent.summary, replay, outcome = word(&sent), "sent");
        sent
    }

    async fn look_up(&self, intent: &Intent, key: &EffectKey, timeout: Millis) -> Looked {
        self.ask(intent, key, timeout, None).await
    }

    async fn look_up_since(&self, intent: &Intent, key: &EffectKey, timeout: Millis, asked: Asked) -> Looked {
        self.ask(intent, key, timeout, Some(asked)).await
    }
}

/// The mark of the credential that it must go out with. What was recorded without a credential has not been sent under any
/// at first; what was sent since, nobody knows.
fn recorded(http: &HttpIntent, first: bool) -> Option<&str> {
    http.credential.as_deref().filter(|mark| !(first && is_missing(mark)))
}

fn withheld(why: &str) -> Sent {
    Sent::Withheld {
        why: format!("not sent again: {why}; put it back and have it sent again, or look there"),
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
