//! Response bodies that know whether they were taken to their last byte: one JSON message, or an event stream.
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::channel::{Channel, Next};
use super::connection::Flushes;
use super::streams::Place;
use crate::sse;

/// Reports the fate of an answer when its body is dropped: taken whole, it waits for the connection's next flush;
/// dropped before that, the waiting side learns that it was not delivered.
pub(super) struct Handover {
    pub answer: Option<oneshot::Sender<()>>,
    pub flushes: Option<Arc<Flushes>>,
    pub whole: bool,
}

impl Drop for Handover {
    fn drop(&mut self) {
        if let (true, Some(answer)) = (self.whole, self.answer.take()) {
            match &self.flushes {
                Some(flushes) => flushes.register(answer),
                None => {
                    let _ = answer.send(());
                }
            }
        }
    }
}

/// What a body says when it is asked for more.
type Polled = Poll<Option<Result<Frame<Bytes>, Infallible>>>;

/// Lets a crash test see the process die with half an answer on the wire: the first half goes out, and the hook is
/// passed before the second.
#[cfg(feature = "failpoints")]
#[derive(Default)]
struct Torn(Option<(Bytes, Pin<Box<Sleep>>)>);

#[cfg(feature = "failpoints")]
impl Torn {
    /// Leaves the first half of an answer that names an operation, if a test waits for one.
    fn tear(&mut self, answer: &mut Bytes) -> bool {
        let about = b"dev.counterfoil/operation";
        if super::MID_REPLY.get().is_none() || !answer.windows(about.len()).any(|w| w == about) {
            return false;
        }
        let second = answer.split_off(answer.len() / 2);
        self.0 = Some((second, Box::pin(sleep(Duration::from_millis(30)))));
        true
    }

    /// The second half, when the first is out; `None` if nothing was torn.
    fn poll_second(&mut self, cx: &mut Context<'_>) -> Option<Poll<Bytes>> {
        let (second, flushed) = self.0.as_mut()?;
        if flushed.as_mut().poll(cx).is_pending() {
            return Some(Poll::Pending);
        }
        if let Some(hook) = super::MID_REPLY.get() {
            hook();
        }
        let second = second.clone();
        self.0 = None;
        Some(Poll::Ready(second))
    }

    fn waits(&self) -> usize {
        self.0.as_ref().map_or(0, |(second, _)| second.len())
    }
}

/// One message as the whole body.
pub(super) struct Single {
    pub message: Option<Bytes>,
    pub handover: Handover,
    #[cfg(feature = "failpoints")]
    torn: Torn,
}

impl Single {
    pub fn new(message: Bytes, handover: Handover) -> Single {
        Single {
            message: Some(message),
            handover,
            #[cfg(feature = "failpoints")]
            torn: Torn::default(),
        }
    }
}

impl Body for Single {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Polled {
        #[cfg(feature = "failpoints")]
        {
            let this = &mut *self;
            if let Some(second) = this.torn.poll_second(_cx) {
                this.handover.whole = second.is_ready();
                return second.map(|second| Some(Ok(Frame::data(second))));
            }
            if let Some(first) = this.message.take_if(|message| this.torn.tear(message)) {
                return Poll::Ready(Some(Ok(Frame::data(first))));
            }
        }
        self.handover.whole = true;
        Poll::Ready(self.message.take().map(|message| Ok(Frame::data(message))))
    }

    fn is_end_stream(&self) -> bool {
        #[cfg(feature = "failpoints")]
        if self.torn.waits() > 0 {
            return false;
        }
        self.message.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        #[cfg(feature = "failpoints")]
        if self.torn.waits() > 0 {
            return SizeHint::with_exact(self.torn.waits() as u64);
        }
        SizeHint::with_exact(self.message.as_ref().map_or(0, |m| m.len() as u64))
    }
}

/// An event stream: a comment at once, notifications as they come, comments in between, the response
/// last (a legacy client's stream outside of requests has none).
pub(super) struct Stream {
    channel: Arc<Channel>,
    handover: Handover,
    opened: bool,
    ended: bool,
    every: Duration,
    keep_alive: Pin<Box<Sleep>>,
    shutdown: Shutdown,
    /// Its place among the streams of change notifications, if it is one.
    _place: Option<Place>,
    #[cfg(feature = "failpoints")]
    torn: Torn,
}

/// Where the server's shutdown stands for this stream.
enum Shutdown {
    Awaited(Pin<Box<WaitForCancellationFutureOwned>>, Duration),
    Draining(Pin<Box<Sleep>>),
}

impl Stream {
    pub fn new(
        channel: Arc<Channel>,
        flushes: Option<Arc<Flushes>>,
        every: Duration,
        shutdown: CancellationToken,
        drain: Duration,
        place: Option<Place>,
    ) -> Stream {
        Stream {
            channel,
            handover: Handover { answer: None, flushes, whole: false },
            opened: false,
            ended: false,
            every,
            keep_alive: Box::pin(sleep(every)),
            shutdown: Shutdown::Awaited(Box::pin(shutdown.cancelled_owned()), drain),
            _place: place,
            #[cfg(feature = "failpoints")]
            torn: Torn::default(),
        }
    }

    /// On shutdown a listen stream ends at once, any other when the time to drain is over. Says whether it ended.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> bool {
        if let Shutdown::Awaited(shutdown, drain) = &mut self.shutdown {
            if shutdown.as_mut().poll(cx).is_pending() {
                return false;
            }
            self.shutdown = Shutdown::Draining(Box::pin(sleep(*drain)));
        }
        if self.channel.end_listening().is_some() {
            return true;
        }
        let Shutdown::Draining(rest) = &mut self.shutdown else { return false };
        let over = rest.as_mut().poll(cx).is_ready();
        if over {
            self.channel.give_up();
        }
        over
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        #[cfg(feature = "failpoints")]
        if let Some(second) = this.torn.poll_second(cx) {
            this.ended = second.is_ready();
            this.handover.whole = this.ended;
            return second.map(|second| Some(Ok(Frame::data(second))));
        }
        let piece = if !std::mem::replace(&mut this.opened, true) {
            sse::COMMENT
        } else {
            let mut next = this.channel.poll_next(cx);
            if next.is_pending() && this.poll_shutdown(cx) {
                next = this.channel.poll_next(cx);
            }
            match next {
                Poll::Ready(Next::Message(message)) => sse::event(&message),
                Poll::Ready(Next::Last(last)) => {
                    this.handover.answer = last.delivery;
                    #[cfg_attr(not(feature = "failpoints"), expect(unused_mut))]
                    let mut event = sse::event(&last.message);
                    #[cfg(feature = "failpoints")]
                    if this.torn.tear(&mut event) {
                        return Poll::Ready(Some(Ok(Frame::data(event))));
                    }
                    this.ended = true;
                    this.handover.whole = true;
                    event
                }
                Poll::Ready(Next::End) => {
                    this.ended = true;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    std::task::ready!(this.keep_alive.as_mut().poll(cx));
                    sse::COMMENT
                }
            }
        };
        this.keep_alive.as_mut().reset(Instant::now() + this.every);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.ended {
            self.channel.abandon();
        }
    }
}
