//! The way of one provider request: rules, key, processing time, decision, log, answer.
//!
//! Runs apart from its connection: a client that leaves stops nothing. The decision, the change in memory and its
//! place in the log are one critical section, and every answer, whatever it reads, waits until all that it may
//! reflect is on disk.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::http::Method;
use bytes::Bytes;
use serde_json::{Value, json, value::RawValue};
use tokio::sync::watch;

use crate::{
    Tuning,
    answer::{Answer, Fate, Play, Problem},
    business::{self, Decision},
    class::Class,
    log::{Durable, Log},
    repeat::{echoed, in_use, replay},
    request::Request,
    rules::{Ending, Fault, Fired},
    state::{Entry, Forget, State, Stored, millis},
};

/// State, its log, and what decides how they behave.
#[derive(Debug)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    durable: watch::Receiver<Durable>,
    closing: watch::Receiver<bool>,
    pub tune: Tuning,
    /// Provider requests since the start.
    pub received: AtomicU64,
    tokens: AtomicU64,
}

/// State and log together: one lock, so that the log has the order of memory.
#[derive(Debug)]
pub(crate) struct Inner {
    pub state: State,
    log: Option<Log>,
}

/// The provider is closing, was reset, or has lost its log: the request ends without an answer.
#[derive(Debug)]
pub(crate) struct Lost;

/// A key held in flight; let go of when dropped.
struct Held<'a> {
    shared: &'a Shared,
    slot: (Class, String),
    token: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        // A reset may have let another request hold the key since.
        if inner.state.in_flight.get(&self.slot) == Some(&self.token) {
            inner.state.in_flight.remove(&self.slot);
        }
    }
}

/// What a key says about a request.
enum Claim<'a> {
    New(Option<Held<'a>>),
    Answered(Answer, u64),
    Busy,
}

impl Inner {
    /// Logs an entry and takes it in. Returns its number.
    fn record(&mut self, entry: Entry, retention: Duration) -> Result<u64, Lost> {
        self.log.as_mut().ok_or(Lost)?.append(&entry).map_err(|_| Lost)?;
        self.state.apply(entry, retention);
        Ok(self.state.seq)
    }

    fn blank(&self, at: u64) -> Entry {
        Entry { seq: self.state.seq + 1, at, application: None, object: None, answer: None, forget: None }
    }
}

impl Shared {
    pub(crate) fn new(
        state: State,
        log: Log,
        durable: watch::Receiver<Durable>,
        closing: watch::Receiver<bool>,
        tune: Tuning,
    ) -> Self {
        Self {
            inner: Mutex::new(Inner { state, log: Some(log) }),
            durable,
            closing,
            tune,
            received: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
        }
    }

    /// The state. Held for moments only, never across a wait.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is queued and lets go of the directory. Whatever comes later is lost.
    pub(crate) fn close(&self) {
        let log = self.lock().log.take();
        if let Some(log) = log {
            log.close();
        }
    }

    /// Ends when the log has failed.
    pub(crate) async fn failed(&self) {
        let mut durable = self.durable.clone();
        // An error means that the writer has ended with the provider.
        if durable.wait_for(|durable| durable.failed).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until everything up to a number is on disk.
    pub(crate) async fn durable(&self, seq: u64) -> Result<(), Lost> {
        if self.durable.borrow().upto >= seq {
            return Ok(());
        }
        let mut durable = self.durable.clone();
        let reached = durable.wait_for(|durable| durable.failed || durable.upto >= seq).await;
        if reached.map_err(|_| Lost)?.upto >= seq { Ok(()) } else { Err(Lost) }
    }

    /// Forgets everything, the log included.
    pub(crate) async fn reset(&self) -> Result<(), Lost> {
        let seq = {
            let mut inner = self.lock();
            let seq = inner.state.seq + 1;
            inner.log.as_mut().ok_or(Lost)?.truncate(seq).map_err(|_| Lost)?;
            inner.state.reset();
            seq
        };
        self.durable(seq).await
    }

    /// Answers a request, and says how the connection plays the answer.
    pub(crate) async fn answer(self: Arc<Self>, request: Request) -> (Answer, Play) {
        let played = self.play(&request).await;
        played.unwrap_or_else(|Lost| (Answer::bytes(500, "text/plain", Bytes::new()), Play::CUT))
    }

    async fn play(&self, request: &Request) -> Result<(Answer, Play), Lost> {
        let fired = self.fire(request)?;
        let Some(ending) = &fired.ending else {
            return Ok((self.carry_out(request, &fired).await?, Play::SEND));
        };
        let play = |fate| Play { fate, after: ending.after };
        if let Some((answer, fate)) = unread(request, ending) {
            self.pause(fired.delay).await?;
            return Ok((answer, play(fate)));
        }
        let answer = self.carry_out(request, &fired).await?;
        let (answer, fate) = match ending.fault {
            Fault::ApplyThenCut => (answer, Fate::Cut),
            Fault::ApplyThenHang => (answer, Fate::Hang),
            Fault::Torn => (answer, Fate::Torn),
            Fault::Trickle => (answer, Fate::Trickle(ending.pause)),
            Fault::ApplyThen502 => {
                let page =
                    "<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>\n";
                let page = Bytes::from_static(page.as_bytes());
                (Answer::bytes(ending.status.unwrap_or(502), "text/html", page), Fate::Send)
            }
            Fault::Garbage => {
                let text =
                    ending.body.as_ref().and_then(Value::as_str).unwrap_or("<!doctype html>\n{\"id\": re_");
                (Answer::bytes(200, "application/json", Bytes::from(text.to_owned())), Fate::Send)
            }
            Fault::Huge => (pad(answer), Fate::Send),
            _ => (answer, Fate::Send),
        };
        Ok((answer, play(fate)))
    }

    /// Fires the rules, and forgets keys where they say so.
    fn fire(&self, request: &Request) -> Result<Fired, Lost> {
        let mut inner = self.lock();
        if inner.state.rules.is_empty() {
            return Ok(Fired::default());
        }
        let seen = inner.state.seen(request);
        let fired = inner.state.rules.fire(request, seen);
        if let Some(key) = &fired.forget {
            let forget = Forget { class: request.route.class, key: key.clone() };
            let entry = Entry { forget: Some(forget), ..inner.blank(now()) };
            inner.record(entry, self.tune.retention)?;
        }
        Ok(fired)
    }

    /// A wait that the closing of the provider ends.
    async fn pause(&self, time: Duration) -> Result<(), Lost> {
        if time.is_zero() {
            return Ok(());
        }
        let mut closing = self.closing.clone();
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            _ = async { closing.wait_for(|closing| *closing).await.is_ok() } => Err(Lost),
        }
    }

    async fn carry_out(&self, request: &Request, fired: &Fired) -> Result<Answer, Lost> {
        if request.method == Method::GET {
            self.pause(fired.delay).await?;
            return self.look_up(request).await;
        }
        let class = request.route.class;
        let epoch = self.lock().state.epoch;
        let held = loop {
            match self.claim(request) {
                Ok(Claim::New(held)) => break held,
                Ok(Claim::Answered(answer, seq)) => {
                    self.pause(fired.delay).await?;
                    self.durable(seq).await?;
                    // Asked for a refusal: it comes before the kept answer, which stays.
                    return Ok(match &fired.ending {
                        Some(ending) if ending.fault == Fault::Refuse => refusal(class, ending),
                        _ => echoed(answer, request),
                    });
                }
                Ok(Claim::Busy) => self.pause(Duration::from_millis(5)).await?,
                Err(problem) => return Ok(echoed(problem.answer(class), request)),
            }
        };
        self.pause(fired.delay + self.tune.in_flight).await?;
        let (answer, seq) = self.commit(request, fired, epoch)?;
        self.durable(seq).await?;
        drop(held);
        Ok(echoed(answer, request))
    }

    /// Takes the request's key, or says what stands under it.
    fn claim(&self, request: &Request) -> Result<Claim<'_>, Problem> {
        let class = request.route.class;
        let (Some(policy), Some(key)) = (class.keys(), &request.key) else { return Ok(Claim::New(None)) };
        if key.len() > policy.max_len || !key.bytes().all(|byte| (0x21..=0x7e).contains(&byte)) {
            let message = format!("the key must be 1 to {} visible ASCII characters", policy.max_len);
            return Err(Problem::invalid(400, "invalid_idempotency_key", message));
        }
        let slot = (class, key.clone());
        let mut inner = self.lock();
        if inner.state.in_flight.contains_key(&slot) {
            return if policy.waits { Ok(Claim::Busy) } else { Err(in_use(class)) };
        }
        if let Some(stored) = inner.state.stored(class, key, now(), self.tune.retention) {
            return replay(&inner.state, &policy, stored, request)
                .map(|answer| Claim::Answered(answer, inner.state.seq));
        }
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        inner.state.in_flight.insert(slot.clone(), token);
        Ok(Claim::New(Some(Held { shared: self, slot, token })))
    }

    /// Decides, logs and changes memory, at once.
    fn commit(&self, request: &Request, fired: &Fired, epoch: u64) -> Result<(Answer, u64), Lost> {
        let class = request.route.class;
        let mut inner = self.lock();
        if inner.state.epoch != epoch {
            return Err(Lost);
        }
        let at = now();
        let untouched = |answer: Answer| Decision {
            status: answer.status,
            body: serde_json::from_slice(&answer.body).unwrap_or(Value::Null),
            executed: true,
            resource: None,
            object: None,
            application: None,
        };
        let decision = match (fired.fault(), &fired.ending) {
            (Some(Fault::Fail), _) => untouched(crash().answer(class)),
            (Some(Fault::Refuse), Some(ending)) => untouched(refusal(class, ending)),
            _ => business::decide(&inner.state, request, at),
        };
        if let (Some(hide), Some(id)) = (fired.hide, &decision.resource) {
            inner.state.hide(id.clone(), at.saturating_add(millis(hide)));
        }
        let text = decision.body.to_string();
        // A provider that keeps only successes keeps the success behind a failure to say so.
        let kept = class.keys().zip(request.key.clone()).and_then(|(policy, key)| {
            let broken = policy.keeps_errors && fired.fault() == Some(Fault::ApplyThen500);
            let status = if broken { 500 } else { decision.status };
            let keeps = (policy.keeps_errors && decision.executed) || (200..300).contains(&status);
            let body = || if broken { crash().value(class).to_string() } else { text.clone() };
            keeps.then(|| (key, status, body()))
        });
        let stored = match kept {
            None => None,
            Some((key, status, body)) => Some(Stored {
                class,
                key,
                at,
                hash: request.hash(),
                status,
                resource: decision.resource,
                body: RawValue::from_string(body).map_err(|_| Lost)?,
            }),
        };
        let answer = match fired.fault() {
            Some(Fault::ApplyThen500) => crash().answer(class),
            _ => Answer::bytes(decision.status, "application/json", Bytes::from(text)),
        };
        let mut seq = inner.state.seq;
        if decision.application.is_some() || stored.is_some() {
            let entry = Entry {
                application: decision.application,
                object: decision.object,
                answer: stored,
                ..inner.blank(at)
            };
            seq = inner.record(entry, self.tune.retention)?;
        }
        Ok((answer, seq))
    }

    async fn look_up(&self, request: &Request) -> Result<Answer, Lost> {
        let (answer, seq) = {
            let inner = self.lock();
            let (state, at) = (&inner.state, now());
            let route = &request.route;
            let shown = |object: &_| state.visible(object, at, self.tune.visibility_lag);
            let found = match &route.id {
                Some(id) => business::fetch(state, route.class, route.kind, id, shown),
                None => business::list(state, request, shown),
            };
            let answer = match found {
                Ok(value) => Answer::json(200, &value),
                Err(problem) => problem.answer(route.class),
            };
            (answer, state.seq)
        };
        self.durable(seq).await?;
        Ok(answer)
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

/// Endings that come before the request is looked at.
fn unread(request: &Request, ending: &Ending) -> Option<(Answer, Fate)> {
    let class = request.route.class;
    let reading = request.method == Method::GET;
    let nothing = || Answer::bytes(500, "text/plain", Bytes::new());
    let wait = |status, code, message: &str| {
        let problem = Problem::new(status, "api_error", code, message);
        (problem.answer(class).with("retry-after", ending.retry_after.to_string()), Fate::Send)
    };
    match ending.fault {
        Fault::Cut => Some((nothing(), Fate::Cut)),
        Fault::Hang => Some((nothing(), Fate::Hang)),
        Fault::RetryLater => Some(wait(429, "rate_limited", "Too many requests; nothing was done.")),
        Fault::Unavailable => Some(wait(503, "unavailable", "Temporarily unavailable; nothing was done.")),
        Fault::RefuseReplay => Some((refusal(class, ending), Fate::Send)),
        // Refused at the door: who and how often are asked before what.
        Fault::Refuse if matches!(ending.status, Some(401 | 403 | 408 | 425 | 429)) => {
            Some((refusal(class, ending), Fate::Send))
        }
        Fault::Refuse if reading => Some((refusal(class, ending), Fate::Send)),
        Fault::Fail | Fault::ApplyThen500 if reading => Some((crash().answer(class), Fate::Send)),
        _ => None,
    }
}

/// A failure of the provider's own.
fn crash() -> Problem {
    Problem::new(500, "api_error", "internal_error", "Something went wrong on our end.")
}

/// The answer of a refusal rule.
fn refusal(class: Class, ending: &Ending) -> Answer {
    let usual = if ending.fault == Fault::RefuseReplay { 401 } else { 402 };
    let status = ending.status.unwrap_or(usual);
    if let Some(body) = &ending.body {
        return Answer::json(status, body);
    }
    let problem = match status {
        401 => Problem::invalid(401, "unauthorized", "Invalid API key provided."),
        402 => Problem::new(402, "card_error", "card_declined", "The card was declined."),
        status => Problem::invalid(status, "request_refused", "The request was refused."),
    };
    problem.answer(class)
}

/// The same answer with 10 MiB of padding.
fn pad(answer: Answer) -> Answer {
    let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|_| json!({}));
    body["padding"] = json!("x".repeat(10 * 1024 * 1024));
    Answer { body: Bytes::from(body.to_string()), ..answer }
}
