//! What a running call holds to speak to its client: notifications, one final outcome, and two pieces of news: the
//! client is gone; the answer was written or not.
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::oneshot;

use super::channel::{Channel, Last};
use super::running::Entry;
use crate::constants::{meta, method, result_type};
use crate::error::{RpcError, result_message};
use crate::input::{self, Asker, InputRequest, Unasked};
use crate::json::{Flaw, JsonError, Raw, RawObject, quote};
use crate::message::Id;
use crate::meta::LogLevel;

/// A complete result object, ready for the wire: `resultType` and the members of `_meta` are in place, every other
/// byte is as it was stored. May be made once and sent often.
#[derive(Debug, Clone)]
pub struct WireResult(Raw);

impl WireResult {
    /// Adds `resultType` and members of `_meta` (values are JSON text) to a result object. Members of those names that
    /// it has already get the new value in their place.
    ///
    /// # Errors
    /// [`JsonError`] if `object` isn't a JSON object.
    pub fn new(object: &Raw, result_type: &str, meta: &[(&str, &str)]) -> Result<WireResult, JsonError> {
        let object = object.object().ok_or(JsonError { flaw: Flaw::NotObject, offset: 0 })?;
        Ok(Self::of(&object, result_type, meta))
    }

    /// As [`WireResult::new`], of an object whose members are located already.
    pub fn of(object: &RawObject, result_type: &str, meta: &[(&str, &str)]) -> WireResult {
        let quoted;
        let result_type = match result_type {
            result_type::COMPLETE => r#""complete""#,
            other => {
                quoted = quote(other);
                &quoted
            }
        };
        WireResult(object.with_meta(meta, &[("resultType", result_type)]).single_line())
    }

    /// A result of the legacy era, which knows no `resultType`: adds members of `_meta` only.
    ///
    /// # Errors
    /// [`JsonError`] if `object` isn't a JSON object.
    pub fn legacy(object: &Raw, meta: &[(&str, &str)]) -> Result<WireResult, JsonError> {
        let object = object.object().ok_or(JsonError { flaw: Flaw::NotObject, offset: 0 })?;
        Ok(Self::legacy_of(&object, meta))
    }

    /// As [`WireResult::legacy`], of an object whose members are located already.
    pub fn legacy_of(object: &RawObject, meta: &[(&str, &str)]) -> WireResult {
        if meta.is_empty() {
            return WireResult(object.raw().single_line());
        }
        WireResult(object.with_meta(meta, &[]).single_line())
    }

    /// The result without members, as the legacy era answers `ping`.
    pub fn empty() -> WireResult {
        WireResult(RawObject::empty().raw())
    }

    /// A result of type `complete`.
    ///
    /// # Errors
    /// [`JsonError`] if `object` isn't a JSON object.
    pub fn complete(object: &Raw, meta: &[(&str, &str)]) -> Result<WireResult, JsonError> {
        Self::new(object, result_type::COMPLETE, meta)
    }

    /// A result of the modern era that asks the client for more: what it asks, and the state that it is to bring back.
    /// `_asker`: there is no such result of other requests.
    ///
    /// # Errors
    /// [`Unasked`] if it asks nothing, or more than it may.
    pub fn input_required(
        _asker: Asker,
        requests: &[InputRequest],
        state: Option<&str>,
        meta: &[(&str, &str)],
    ) -> Result<WireResult, Unasked> {
        Ok(Self::of(&input::asking(requests, state)?, result_type::INPUT_REQUIRED, meta))
    }

    /// A result of the modern era that hands out a task (SEP-2663, "Task Creation"), which must be findable by then, and
    /// only to a client that declared the extension.
    ///
    /// # Errors
    /// [`Unasked::NoTask`] if the object is no `Task`, or the request no `tools/call`.
    pub fn task(asker: Asker, task: &RawObject, meta: &[(&str, &str)]) -> Result<WireResult, Unasked> {
        let text = |name| task.string(name).is_some();
        let lives = task.get("ttlMs").is_some_and(|ttl| ttl.is_integer() || ttl.is_null());
        let whole = ["taskId", "status", "createdAt", "lastUpdatedAt"].into_iter().all(text);
        if asker != Asker::ToolsCall || !whole || !lives {
            return Err(Unasked::NoTask);
        }
        Ok(Self::of(task, result_type::TASK, meta))
    }

    /// The text.
    pub fn raw(&self) -> &Raw {
        &self.0
    }
}

/// How a request ends.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// With a result.
    Result(WireResult),
    /// With an error.
    Error(RpcError),
}

impl Outcome {
    /// The message. Only a stream outside of requests has no id, and it has no outcome either.
    pub(super) fn to_message(&self, id: Option<&Id>) -> (Bytes, StatusCode) {
        match (self, id) {
            (Outcome::Result(result), Some(id)) => (result_message(id, &result.0), StatusCode::OK),
            (Outcome::Result(_), None) => {
                (RpcError::internal("Internal error.").to_message(None), StatusCode::OK)
            }
            (Outcome::Error(error), id) => (error.to_message(id), error.http_status),
        }
    }
}

impl From<RpcError> for Outcome {
    fn from(error: RpcError) -> Outcome {
        Outcome::Error(error)
    }
}

impl From<WireResult> for Outcome {
    fn from(result: WireResult) -> Outcome {
        Outcome::Result(result)
    }
}

/// Whether an answer crossed the last boundary that can be seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Its last byte went to a healthy connection. A proxy may still have swallowed it.
    Written,
    /// The client's connection or stream was gone first.
    Undelivered,
}

/// Resolves to the fate of an answer. May be dropped by those who don't care.
#[derive(Debug)]
pub struct Delivering(Option<oneshot::Receiver<()>>);

impl Delivering {
    pub(super) fn of(written: oneshot::Receiver<()>) -> Delivering {
        Delivering(Some(written))
    }
}

impl Future for Delivering {
    type Output = Delivery;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Delivery> {
        let Some(receiver) = &mut self.0 else { return Poll::Ready(Delivery::Undelivered) };
        Pin::new(receiver).poll(cx).map(|sent| match sent {
            Ok(()) => Delivery::Written,
            Err(_) => Delivery::Undelivered,
        })
    }
}

/// Sends a call's notifications. Cheap to clone, harmless to keep: after the final outcome it does nothing.
#[derive(Clone)]
pub struct Notifier(pub(super) Arc<Channel>);

impl Notifier {
    /// Sends a progress notification if the client asked for them. `progress` must increase; what doesn't increase,
    /// isn't finite, or comes faster than a client can use is left out.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = self.progress_token().filter(|_| progress.is_finite()) else { return };
        self.0.progress(progress, || {
            let mut params = format!(r#"{{"progressToken":{token},"progress":{progress}"#);
            if let Some(total) = total.filter(|t| t.is_finite()) {
                params.push_str(&format!(r#","total":{total}"#));
            }
            if let Some(message) = message {
                params.push_str(&format!(r#","message":{}"#, quote(message)));
            }
            params.push('}');
            notification(method::PROGRESS, &params)
        });
    }

    /// Whether the client asked for progress, and can be told.
    pub fn hears_progress(&self) -> bool {
        self.progress_token().is_some()
    }

    fn progress_token(&self) -> Option<&Raw> {
        self.0.progress_token.as_ref().filter(|_| self.0.streams)
    }

    /// Sends a log message if the client asked for this level. It must hold no secrets.
    pub fn log(&self, level: LogLevel, logger: Option<&str>, data: &Raw) {
        if !self.0.streams || self.0.log_level.is_none_or(|lowest| level < lowest) {
            return;
        }
        self.0.log(|| {
            let logger = logger.map(|name| format!(r#""logger":{},"#, quote(name))).unwrap_or_default();
            let data = data.single_line();
            notification(
                method::MESSAGE,
                &format!(r#"{{"level":"{}",{logger}"data":{data}}}"#, level.as_str()),
            )
        });
    }

    /// Resolves when the client is gone or has cancelled. Modern era over HTTP: its stream or connection closed before
    /// the final response was handed over (a connection whose client closed only its sending half counts as closed).
    /// Legacy era over HTTP: only by `notifications/cancelled`, never by a disconnect. Over lines: by that, or at the
    /// end of the client's input.
    pub async fn gone(&self) {
        self.0.gone.cancelled().await;
    }

    /// Whether the client is gone or has cancelled.
    pub fn is_gone(&self) -> bool {
        self.0.gone.is_cancelled()
    }
}

fn notification(method: &str, params: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":{},"params":{params}}}"#, quote(method)).into()
}

fn bare_notification(method: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":{}}}"#, quote(method)).into()
}

/// Answers one request, once. Dropped without an answer (a panic included) it answers -32603, so that a client never
/// waits for nothing.
pub struct Responder {
    notifier: Notifier,
    done: bool,
    /// Lets the client's cancellation find the call until it is answered.
    running: Option<Entry>,
}

impl std::ops::Deref for Responder {
    type Target = Notifier;

    fn deref(&self) -> &Notifier {
        &self.notifier
    }
}

impl Responder {
    pub(super) fn new(channel: Arc<Channel>) -> Responder {
        Responder { notifier: Notifier(channel), done: false, running: None }
    }

    /// For a call that its client may cancel by the id of its request.
    pub(super) fn cancellable(channel: Arc<Channel>, running: Entry) -> Responder {
        Responder { notifier: Notifier(channel), done: false, running: Some(running) }
    }

    /// A handle for notifications alone, for other tasks.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Gives the final outcome, and tells its fate.
    pub fn finish(mut self, outcome: impl Into<Outcome>) -> Delivering {
        let (delivery, receiver) = oneshot::channel();
        self.conclude(&outcome.into(), Some(delivery));
        Delivering::of(receiver)
    }

    /// Gives the final outcome, where nobody asks for its fate.
    pub fn answer(mut self, outcome: impl Into<Outcome>) {
        self.conclude(&outcome.into(), None);
    }

    fn conclude(&mut self, outcome: &Outcome, delivery: Option<oneshot::Sender<()>>) {
        self.done = true;
        let channel = &self.notifier.0;
        let (message, status) = outcome.to_message(channel.id.as_ref());
        channel.conclude(Last { message, status, delivery });
    }

    /// Turns the response into a stream of change notifications (`subscriptions/listen`), opened at once with the
    /// acknowledgement of `notifications`, the part of the client's filter that will be honoured. `result_meta` goes
    /// into the final result beside the subscription's id. The stream ends with its final result when the
    /// [`Subscription`] is dropped, when the server shuts down, or when its reader falls too far behind.
    pub fn listen(mut self, notifications: &Raw, result_meta: &[(&str, &str)]) -> Subscription {
        self.done = true;
        let channel = self.notifier.0.clone();
        if !channel.streams {
            let refusal =
                RpcError::refused(StatusCode::NOT_ACCEPTABLE, "this method answers with text/event-stream");
            self.conclude(&refusal.into(), None);
            channel.gone.cancel();
            return Subscription::open(channel, self.running.take());
        }
        let Some(own) = channel.id.clone() else {
            return Subscription::open(channel, None);
        };
        let id = own.as_str();
        let acknowledged = format!(
            r#"{{"_meta":{{"{}":{id}}},"notifications":{}}}"#,
            meta::SUBSCRIPTION_ID,
            notifications.single_line()
        );
        let mut closing_meta = result_meta.to_vec();
        closing_meta.push((meta::SUBSCRIPTION_ID, id));
        let closing = WireResult::of(&RawObject::empty(), result_type::COMPLETE, &closing_meta);
        channel.listen(notification(method::ACKNOWLEDGED, &acknowledged), result_message(&own, &closing.0));
        Subscription::open(channel, self.running.take())
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.done {
            tracing::error!("a call ended without an answer; its client gets an internal error");
            let failed = "Internal error: the server failed before it could answer. The request may have taken effect; \
                          ask before repeating it.";
            self.conclude(&RpcError::internal(failed).into(), None);
        }
    }
}

/// An open stream of change notifications: of a listen request, or of a legacy client outside of its requests.
pub struct Subscription {
    pub(super) channel: Arc<Channel>,
    /// Lets the client's cancellation find it.
    _running: Option<Entry>,
}

impl Subscription {
    pub(super) fn open(channel: Arc<Channel>, running: Option<Entry>) -> Subscription {
        Subscription { channel, _running: running }
    }

    /// The listen request's id, which tags every notification; `None` for a legacy client's stream.
    pub fn id(&self) -> Option<&Id> {
        self.channel.id.as_ref()
    }

    /// Sends a notification, in the modern era tagged with the subscription's id. Never waits. `false`: the stream has
    /// ended (its client is gone, the server shuts down, or its queue was full), so forget it.
    pub fn notify(&self, method: &str, params: Option<&RawObject>) -> bool {
        let Some(id) = self.id() else {
            let message = match params {
                Some(params) => notification(method, params.raw().single_line().as_str()),
                None => bare_notification(method),
            };
            return self.channel.notify(message);
        };
        let tag = [(meta::SUBSCRIPTION_ID, id.as_str())];
        let params = match params {
            Some(params) => params.with_meta(&tag, &[]),
            None => RawObject::empty().with_meta(&tag, &[]),
        };
        self.channel.notify(notification(method, params.single_line().as_str()))
    }

    /// Resolves when the stream has ended, for whatever reason.
    pub async fn ended(&self) {
        self.channel.gone.cancelled().await;
    }

    /// Whether the stream has ended.
    pub fn is_ended(&self) -> bool {
        self.channel.gone.is_cancelled()
    }

    /// Ends the stream, in the modern era with its final result. A legacy stream has none, so its delivery is
    /// [`Delivery::Undelivered`].
    pub fn finish(self) -> Delivering {
        Delivering(self.channel.end_listening())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.channel.end_listening();
    }
}
