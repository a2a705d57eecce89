//! Between a running call and what carries its messages: notifications one way, the last message, and the news that
//! the client is gone or has cancelled the other way. Neither side ever waits for the other to be scheduled, and
//! messages lie here bare: framing them is the transport's.
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::StatusCode;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ask::Unsent;
use super::{Exchange, Transport};
use crate::constants::method;
use crate::error::RpcError;
use crate::json::Raw;
use crate::message::Id;
use crate::meta::LogLevel;
use crate::revision::Revision;

/// The final response of a call.
pub(super) struct Last {
    pub message: Bytes,
    pub status: StatusCode,
    pub delivery: Option<oneshot::Sender<()>>,
}

/// What is sent next.
pub(super) enum Next {
    /// A notification.
    Message(Bytes),
    /// The final response; nothing follows.
    Last(Last),
    /// Nothing follows: a legacy stream has ended, or, over lines, the request was cancelled.
    End,
}

/// How the HTTP response begins.
pub(super) enum First {
    Answer(Last),
    Stream,
}

pub(super) struct Channel {
    /// The request's; `None` for a stream that belongs to no request.
    pub id: Option<Id>,
    pub revision: Revision,
    pub transport: Transport,
    pub progress_token: Option<Raw>,
    pub log_level: Option<LogLevel>,
    /// Whether the client takes messages before the last one; if not, there are no notifications.
    pub streams: bool,
    /// Notifications that may wait for a reader.
    pub queue: usize,
    /// Cancelled when the client is gone or has cancelled, or a listen stream ended for any reason.
    pub gone: Gone,
    /// Cancelled when the transport is gone, which is no cancellation for a legacy request over HTTP.
    pub cut: Gone,
    /// The request's method, which says what the answer must look like.
    #[cfg(feature = "wire-log")]
    pub about: Option<Box<str>>,
    waker: AtomicWaker,
    state: Mutex<State>,
}

struct State {
    /// The other side is gone or has taken the last message: nothing more can be sent.
    closed: bool,
    opened: bool,
    events: VecDeque<Bytes>,
    last: Option<Last>,
    listening: Listening,
    progress: Option<f64>,
    pace: [Pace; 2],
}

/// Whether this carries a stream of change notifications.
enum Listening {
    /// It carries a call.
    No,
    /// Ends with this final result (modern era).
    Until(Bytes),
    /// Ends without one (legacy era).
    Legacy,
    /// Has ended.
    Over,
}

/// News that are waited for by few: a token that is made when somebody waits or they come.
#[derive(Default)]
pub(super) struct Gone(OnceLock<CancellationToken>);

impl Gone {
    fn token(&self) -> &CancellationToken {
        self.0.get_or_init(CancellationToken::new)
    }

    pub fn cancel(&self) {
        self.token().cancel();
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.get().is_some_and(CancellationToken::is_cancelled)
    }

    pub async fn cancelled(&self) {
        self.token().cancelled().await;
    }
}

/// A token bucket: a burst at once, then a steady rate.
struct Pace {
    tokens: f64,
    /// `None` before the first.
    at: Option<Instant>,
}

const BURST: f64 = 20.0;
const PER_SECOND: f64 = 10.0;

impl Pace {
    fn take(&mut self) -> bool {
        let now = Instant::now();
        let passed = self.at.map_or(0.0, |at| now.duration_since(at).as_secs_f64());
        self.tokens = (self.tokens + PER_SECOND * passed).min(BURST);
        self.at = Some(now);
        let ok = self.tokens >= 1.0;
        if ok {
            self.tokens -= 1.0;
        }
        ok
    }
}

impl Channel {
    /// For the answer to a request. `streams`: whether the client takes messages before it.
    pub fn of(exchange: &Exchange, streams: bool, queue: usize) -> Channel {
        let (caller, meta) = (&exchange.caller, &exchange.meta);
        let mut new = Channel::new(caller.revision, caller.transport, streams, queue);
        let (id, token) = (&exchange.request.id, meta.progress_token());
        // Both lie in the buffer that the request was read into, with its headers. A call that ends soon shares it; a
        // stream would hold on to it for hours.
        (new.id, new.progress_token) = match exchange.request.method.as_str() {
            method::LISTEN => (Id::new(id.raw().detached()), token.map(Raw::detached)),
            _ => (Some(id.clone()), token.cloned()),
        };
        new.log_level = meta.log_level();
        #[cfg(feature = "wire-log")]
        {
            new.about = Some(exchange.request.method.as_str().into());
        }
        new
    }

    /// For a legacy client's stream of messages outside of requests.
    pub fn stream(revision: Revision, transport: Transport, queue: usize) -> Channel {
        let new = Channel::new(revision, transport, true, queue);
        {
            let mut state = new.state();
            state.opened = true;
            state.listening = Listening::Legacy;
        }
        new
    }

    fn new(revision: Revision, transport: Transport, streams: bool, queue: usize) -> Channel {
        let pace = || Pace { tokens: BURST, at: None };
        Channel {
            id: None,
            revision,
            transport,
            progress_token: None,
            log_level: None,
            streams,
            queue,
            gone: Gone::default(),
            cut: Gone::default(),
            #[cfg(feature = "wire-log")]
            about: None,
            waker: AtomicWaker::new(),
            state: Mutex::new(State {
                closed: false,
                opened: false,
                events: VecDeque::new(),
                last: None,
                listening: Listening::No,
                progress: None,
                pace: [pace(), pace()],
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a progress notification unless it doesn't advance, comes too fast, or nobody can take it.
    pub fn progress(&self, value: f64, message: impl FnOnce() -> Bytes) {
        let mut state = self.state();
        if state.closed || state.last.is_some() || state.progress.is_some_and(|before| value <= before) {
            return;
        }
        if state.events.len() < self.queue && state.pace[0].take() {
            state.progress = Some(value);
            state.events.push_back(message());
            drop(state);
            self.waker.wake();
        }
    }

    /// Queues a log notification unless it comes too fast or nobody can take it.
    pub fn log(&self, message: impl FnOnce() -> Bytes) {
        let mut state = self.state();
        if !state.closed && state.last.is_none() && state.events.len() < self.queue && state.pace[1].take() {
            state.events.push_back(message());
            drop(state);
            self.waker.wake();
        }
    }

    /// Opens the stream at once with a first message; `closing` is its final response when it ends from our side.
    pub fn listen(&self, first: Bytes, closing: Bytes) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.opened = true;
        state.events.push_back(first);
        state.listening = Listening::Until(closing);
        drop(state);
        self.waker.wake();
    }

    /// Queues a notification of a listen stream; `false` if the stream has ended. A full queue means that the reader
    /// is too slow: its stream ends here, so that it knows that something is missing.
    pub fn notify(&self, message: Bytes) -> bool {
        let mut state = self.state();
        if state.closed || state.last.is_some() || matches!(state.listening, Listening::Over) {
            return false;
        }
        let room = state.events.len() < self.queue;
        if room {
            state.events.push_back(message);
        } else {
            state.events.clear();
        }
        drop(state);
        if room {
            self.waker.wake();
        } else {
            self.end_listening();
        }
        room
    }

    /// Queues a request to a legacy client. One that can't be queued is never sent.
    pub fn ask(&self, message: Bytes) -> Result<(), Unsent> {
        if !self.revision.is_legacy() || !self.streams {
            return Err(Unsent::NoStream);
        }
        let mut state = self.state();
        if state.closed || state.last.is_some() || matches!(state.listening, Listening::Over) {
            return Err(Unsent::Gone);
        }
        if state.events.len() >= self.queue {
            return Err(Unsent::Full);
        }
        state.events.push_back(message);
        drop(state);
        self.waker.wake();
        Ok(())
    }

    /// Queues the news that a request to the client is moot. Such news have room, since each follows a request that had,
    /// and they may still leave ahead of the final response.
    pub fn withdraw(&self, message: Bytes) {
        let mut state = self.state();
        if !state.closed && !matches!(state.listening, Listening::Over) {
            state.events.push_back(message);
            drop(state);
            self.waker.wake();
        }
    }

    /// Ends a listen stream, in the modern era with its final result, and gives the news of that result's delivery;
    /// `None` if it isn't one, or has ended already.
    pub fn end_listening(&self) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state();
        let closing = match &mut state.listening {
            Listening::No | Listening::Over => return None,
            listening => std::mem::replace(listening, Listening::Over),
        };
        drop(state);
        let (delivery, receiver) = oneshot::channel();
        match closing {
            Listening::Until(message) => {
                self.conclude(Last { message, status: StatusCode::OK, delivery: Some(delivery) });
            }
            _ => self.waker.wake(),
        }
        self.gone.cancel();
        Some(receiver)
    }

    /// Sets the final response. The first one counts; with the client gone it is dropped, which its sender learns.
    pub fn conclude(&self, last: Last) {
        let mut state = self.state();
        if !state.closed && state.last.is_none() {
            state.last = Some(last);
            drop(state);
            self.waker.wake();
        }
    }

    /// The server shuts down and can't wait for the call any longer; the call itself isn't touched.
    pub fn give_up(&self) {
        let error = RpcError::internal(
            "Internal error: the server is shutting down before this call ended. It may still take effect; ask \
             before repeating it.",
        );
        self.fail(&error);
    }

    fn fail(&self, error: &RpcError) {
        self.conclude(Last {
            message: error.to_message(self.id.as_ref()),
            status: error.http_status,
            delivery: None,
        });
    }

    /// The transport is gone: nothing more can be sent, and what waits is undelivered. A legacy request over HTTP
    /// isn't cancelled by that (spec 2025-11-25: Streamable HTTP, "Sending Messages to the Server"); any other is, and
    /// so is every listen stream.
    pub fn abandon(&self) {
        let listening = self.close();
        if listening || !self.revision.is_legacy() || self.transport == Transport::Lines {
            self.gone.cancel();
        }
    }

    /// The client cancelled the request by name. Over HTTP it is still answered, by an error, since a stream must not
    /// end without its response; over lines nothing more is sent for it. The call itself isn't touched beyond the news.
    pub fn cancel(&self) {
        if self.transport == Transport::Http {
            if self.end_listening().is_none() {
                self.fail(&RpcError::cancelled());
            }
        } else {
            self.close();
        }
        self.gone.cancel();
    }

    /// Nothing more is sent. Says whether this was a listen stream.
    fn close(&self) -> bool {
        let mut state = self.state();
        state.closed = true;
        state.events.clear();
        let listening = !matches!(state.listening, Listening::No);
        if listening {
            state.listening = Listening::Over;
        }
        let last = state.last.take();
        drop(state);
        // Whoever waits for its delivery learns of it outside of the lock.
        drop(last);
        self.cut.cancel();
        self.waker.wake();
        listening
    }

    /// Decides between one JSON body and a stream, as soon as there is something to send.
    pub fn poll_first(&self, cx: &mut Context<'_>, large: usize) -> Poll<First> {
        self.waker.register(cx.waker());
        self.first(large)
    }

    /// As [`Channel::poll_first`], without being told when it is worth asking again.
    pub fn first(&self, large: usize) -> Poll<First> {
        let mut state = self.state();
        let quiet = state.events.is_empty() || !self.streams;
        match state.last.take() {
            Some(last) if quiet || last.message.len() > large && !state.opened => {
                state.closed = true;
                self.sent(&last.message);
                Poll::Ready(First::Answer(last))
            }
            Some(last) => {
                state.last = Some(last);
                Poll::Ready(First::Stream)
            }
            None if !quiet => Poll::Ready(First::Stream),
            None => Poll::Pending,
        }
    }

    /// What is to be sent next. One reader at a time.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Next> {
        self.waker.register(cx.waker());
        let mut state = self.state();
        if let Some(message) = state.events.pop_front() {
            self.sent(&message);
            return Poll::Ready(Next::Message(message));
        }
        if let Some(last) = state.last.take() {
            state.closed = true;
            self.sent(&last.message);
            return Poll::Ready(Next::Last(last));
        }
        if state.closed || matches!(state.listening, Listening::Over) {
            state.closed = true;
            return Poll::Ready(Next::End);
        }
        Poll::Pending
    }

    /// As [`Channel::poll_next`], for a reader that isn't a body.
    pub async fn next(&self) -> Next {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// A message leaves.
    fn sent(&self, _message: &Bytes) {
        #[cfg(feature = "wire-log")]
        crate::wire_log::server(Some(self.revision), self.about.as_deref(), _message);
    }
}
