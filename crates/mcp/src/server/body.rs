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

/// One message as the whole body.
pub(super) struct Single {
    pub message: Option<Bytes>,
    pub handover: Handover,
    #[cfg(feature = "failpoints")]
    pub torn: Option<(Bytes, Pin<Box<Sleep>>)>,
}

impl Single {
    pub fn new(message: Bytes, handover: Handover) -> Single {
        Single {
            message: Some(message),
            handover,
            #[cfg(feature = "failpoints")]
            torn: None,
        }
    }

    /// Lets a crash test see the process die with half an answer on the wire: the first half goes out, and the hook
    /// is passed before the second.
    #[cfg(feature = "failpoints")]
    fn tear(&mut self, cx: &mut Context<'_>) -> Option<Polled> {
        let hook = super::MID_REPLY.get()?;
        if let Some((second, flushed)) = &mut self.torn {
            if flushed.as_mut().poll(cx).is_pending() {
                return Some(Poll::Pending);
            }
            hook();
            let second = second.clone();
            self.torn = None;
            self.handover.whole = true;
            return Some(Poll::Ready(Some(Ok(Frame::data(second)))));
        }
        let about = b"dev.counterfoil/operation";
        let message = self.message.as_ref()?;
        if !message.windows(about.len()).any(|w| w == about) {
            return None;
        }
        let mut first = self.message.take()?;
        let second = first.split_off(first.len() / 2);
        self.torn = Some((second, Box::pin(sleep(Duration::from_millis(30)))));
        Some(Poll::Ready(Some(Ok(Frame::data(first)))))
    }
}

impl Body for Single {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Polled {
        #[cfg(feature = "failpoints")]
        if let Some(piece) = self.tear(_cx) {
            return piece;
        }
        self.handover.whole = true;
        Poll::Ready(self.message.take().map(|message| Ok(Frame::data(message))))
    }

    fn is_end_stream(&self) -> bool {
        #[cfg(feature = "failpoints")]
        if self.torn.is_some() {
            return false;
        }
        self.message.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        #[cfg(feature = "failpoints")]
        if let Some((second, _)) = &self.torn {
            return SizeHint::with_exact(second.len() as u64);
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
    ) -> Stream {
        Stream {
            channel,
            handover: Handover { answer: None, flushes, whole: false },
            opened: false,
            ended: false,
            every,
            keep_alive: Box::pin(sleep(every)),
            shutdown: Shutdown::Awaited(Box::pin(shutdown.cancelled_owned()), drain),
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
                    this.ended = true;
                    this.handover.whole = true;
                    this.handover.answer = last.delivery;
                    sse::event(&last.message)
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
