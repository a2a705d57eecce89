//! Between a running call and its HTTP response: notifications one way, the last message, and the news that the
//! client is gone the other way. Neither side ever waits for the other to be scheduled.
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::StatusCode;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::RpcError;
use crate::json::Raw;
use crate::message::Id;
use crate::meta::LogLevel;
use crate::sse;

/// The final response of a call.
pub(super) struct Last {
    pub message: Bytes,
    pub status: StatusCode,
    pub delivery: Option<oneshot::Sender<()>>,
}

/// What an open stream sends next.
pub(super) enum Next {
    Event(Bytes),
    Last(Last),
}

/// How the HTTP response begins.
pub(super) enum First {
    Answer(Last),
    Stream,
}

pub(super) struct Channel {
    pub id: Id,
    pub progress_token: Option<Raw>,
    pub log_level: Option<LogLevel>,
    /// Whether the client takes an event stream; if not, there are no notifications.
    pub streams: bool,
    /// Notifications that may wait for a reader.
    pub queue: usize,
    /// Cancelled when the client is gone, or a listen stream ended for any reason.
    pub gone: CancellationToken,
    waker: AtomicWaker,
    state: Mutex<State>,
}

struct State {
    /// The HTTP side is gone or has taken the last message: nothing more can be sent.
    closed: bool,
    opened: bool,
    events: VecDeque<Bytes>,
    last: Option<Last>,
    /// The final result of a listen stream, ready to be sent.
    closing: Option<Bytes>,
    progress: Option<f64>,
    pace: [Pace; 2],
}

/// A token bucket: a burst at once, then a steady rate.
struct Pace {
    tokens: f64,
    at: Instant,
}

const BURST: f64 = 20.0;
const PER_SECOND: f64 = 10.0;

impl Pace {
    fn take(&mut self) -> bool {
        let now = Instant::now();
        self.tokens = (self.tokens + PER_SECOND * now.duration_since(self.at).as_secs_f64()).min(BURST);
        self.at = now;
        let ok = self.tokens >= 1.0;
        if ok {
            self.tokens -= 1.0;
        }
        ok
    }
}

impl Channel {
    pub fn new(
        id: Id,
        progress_token: Option<Raw>,
        log_level: Option<LogLevel>,
        streams: bool,
        queue: usize,
    ) -> Channel {
        let at = Instant::now();
        let pace = || Pace { tokens: BURST, at };
        Channel {
            id,
            progress_token,
            log_level,
            streams,
            queue,
            gone: CancellationToken::new(),
            waker: AtomicWaker::new(),
            state: Mutex::new(State {
                closed: false,
                opened: false,
                events: VecDeque::new(),
                last: None,
                closing: None,
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
            state.events.push_back(sse::event(&message()));
            drop(state);
            self.waker.wake();
        }
    }

    /// Queues a log notification unless it comes too fast or nobody can take it.
    pub fn log(&self, message: impl FnOnce() -> Bytes) {
        let mut state = self.state();
        if !state.closed && state.last.is_none() && state.events.len() < self.queue && state.pace[1].take() {
            state.events.push_back(sse::event(&message()));
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
        state.events.push_back(sse::event(&first));
        state.closing = Some(closing);
        drop(state);
        self.waker.wake();
    }

    /// Queues a notification of a listen stream; `false` if the stream has ended. A full queue means that the reader
    /// is too slow: its stream ends here, so that it knows that something is missing.
    pub fn notify(&self, message: Bytes) -> bool {
        let mut state = self.state();
        if state.closed || state.last.is_some() {
            return false;
        }
        let room = state.events.len() < self.queue;
        if room {
            state.events.push_back(sse::event(&message));
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

    /// Ends a listen stream with its final result, and gives the news of its delivery; `None` if it isn't one, or has
    /// ended already.
    pub fn end_listening(&self) -> Option<oneshot::Receiver<()>> {
        let (delivery, receiver) = oneshot::channel();
        let closing = self.state().closing.take()?;
        self.conclude(Last { message: closing, status: StatusCode::OK, delivery: Some(delivery) });
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
        self.conclude(Last {
            message: error.to_message(Some(&self.id)),
            status: error.http_status,
            delivery: None,
        });
    }

    /// The client is gone.
    pub fn abandon(&self) {
        let mut state = self.state();
        state.closed = true;
        state.events.clear();
        state.closing = None;
        let last = state.last.take();
        drop(state);
        drop(last);
        self.gone.cancel();
    }

    /// Decides between one JSON body and a stream, as soon as there is something to send.
    pub fn poll_first(&self, cx: &mut Context<'_>, large: usize) -> Poll<First> {
        self.waker.register(cx.waker());
        let mut state = self.state();
        let quiet = state.events.is_empty() || !self.streams;
        match state.last.take() {
            Some(last) if quiet || last.message.len() > large && !state.opened => {
                state.closed = true;
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

    /// The next piece of an open stream.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Next> {
        self.waker.register(cx.waker());
        let mut state = self.state();
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(Next::Event(event));
        }
        match state.last.take() {
            Some(last) => {
                state.closed = true;
                Poll::Ready(Next::Last(last))
            }
            None => Poll::Pending,
        }
    }
}
