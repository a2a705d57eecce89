//! One TCP connection as answers see it: who is at the other end, and whether their bytes reached the kernel.
//!
//! hyper takes the last piece of a body before it has written it. An answer therefore counts as *written* only when a
//! flush of its connection succeeded after hyper took that piece; if the socket fails or closes first, it doesn't.
//! Over HTTP/2 the flow control of the peer may still hold bytes back at that moment; this is the best that can be
//! known there.
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};

/// The connection a request came over.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// Address of the other end of the TCP connection (a proxy's, if there is one).
    pub peer: SocketAddr,
    /// What is told when bytes reached the kernel.
    pub flushes: Arc<Flushes>,
}

/// Answers that hyper has taken and not yet flushed.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    any: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    closed: bool,
    answers: Vec<oneshot::Sender<()>>,
}

impl Flushes {
    /// Waits for the next flush; a connection already closed drops the sender, which says so.
    pub fn register(&self, answer: oneshot::Sender<()>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.closed {
            waiting.answers.push(answer);
            self.any.store(true, Ordering::Release);
        }
    }

    fn flushed(&self) {
        if self.any.load(Ordering::Acquire) {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            self.any.store(false, Ordering::Release);
            for answer in waiting.answers.drain(..) {
                // Nobody has to be listening.
                let _ = answer.send(());
            }
        }
    }

    fn close(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.closed = true;
        waiting.answers.clear();
    }
}

/// The socket, with three watches: flushes, a time limit for the very first bytes (before hyper's own applies), and a
/// time limit for a peer that doesn't read.
pub(super) struct Watched<T> {
    io: T,
    flushes: Arc<Flushes>,
    opening: Option<Pin<Box<Sleep>>>,
    opened: usize,
    stall: Option<Pin<Box<Sleep>>>,
    stalled: bool,
    write_timeout: Duration,
}

/// Bytes after which hyper's own time limits apply: the length of the HTTP/2 preface.
const PREFACE: usize = 24;

impl<T> Watched<T> {
    pub fn new(io: T, flushes: Arc<Flushes>, first_bytes: Duration, write_timeout: Duration) -> Watched<T> {
        let opening = Some(Box::pin(sleep(first_bytes)));
        Watched { io, flushes, opening, opened: 0, stall: None, stalled: false, write_timeout }
    }

    /// Arms the time limit while the peer takes nothing, and disarms it when it does.
    fn watch_stall<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stalled = false;
            return written;
        }
        let timeout = self.write_timeout;
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(timeout)));
        if !std::mem::replace(&mut self.stalled, true) {
            stall.as_mut().reset(Instant::now() + timeout);
        }
        match stall.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        self.flushes.close();
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if self.opening.is_some() {
            self.opened += buf.filled().len() - before;
            if self.opened >= PREFACE {
                self.opening = None;
            } else if let (Poll::Pending, Some(limit)) = (&read, &mut self.opening)
                && limit.as_mut().poll(cx).is_ready()
            {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.watch_stall(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.watch_stall(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.flushes.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
