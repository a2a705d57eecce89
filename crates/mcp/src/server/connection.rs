//! One TCP connection as answers see it: who is at the other end, what it speaks, and whether their bytes reached the
//! kernel.
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
    /// Whether the connection has brought a request.
    pub asked: AtomicBool,
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

/// What the other end speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Http1,
    Http2,
}

/// The socket, with three watches: flushes, a time limit for the very first bytes (before hyper's own applies), and a
/// time limit for a peer that doesn't read.
pub(super) struct Watched<T> {
    io: T,
    flushes: Arc<Flushes>,
    opening: Option<Pin<Box<Sleep>>>,
    opened: usize,
    ahead: Ahead,
    stall: Option<Pin<Box<Sleep>>>,
    stalled: bool,
    write_timeout: Duration,
}

/// How HTTP/2 begins (RFC 9113, 3.4). Behind as many bytes hyper's own time limits apply.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes that were read to see what the other end speaks, and that nobody took yet.
#[derive(Default)]
struct Ahead {
    bytes: [u8; PREFACE.len()],
    read: u8,
    taken: u8,
    /// How reading on failed, told after the bytes.
    failed: Option<io::ErrorKind>,
}

impl Ahead {
    fn read(&self) -> &[u8] {
        &self.bytes[..usize::from(self.read)]
    }

    fn rest(&self) -> &[u8] {
        &self.read()[usize::from(self.taken)..]
    }
}

impl<T> Watched<T> {
    pub fn new(io: T, flushes: Arc<Flushes>, first_bytes: Duration, write_timeout: Duration) -> Watched<T> {
        let (opening, ahead) = (Some(Box::pin(sleep(first_bytes))), Ahead::default());
        Watched { io, flushes, opening, opened: 0, ahead, stall: None, stalled: false, write_timeout }
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

impl<T: AsyncRead + Unpin> Watched<T> {
    /// Finds out what the other end speaks, as soon as it is clear. What is read for that stays to be read.
    pub fn poll_speaks(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Speaks>> {
        loop {
            let before = self.ahead.read().len();
            if before == PREFACE.len() {
                return Poll::Ready(Ok(Speaks::Http2));
            }
            let mut bytes = [0; PREFACE.len()];
            let mut buf = ReadBuf::new(&mut bytes[before..]);
            std::task::ready!(self.poll_socket(cx, &mut buf))?;
            let new = buf.filled();
            let as_expected = !new.is_empty() && PREFACE[before..].starts_with(new);
            let read = before + new.len();
            self.ahead.bytes[before..read].copy_from_slice(&bytes[before..read]);
            self.ahead.read = u8::try_from(read).unwrap_or(u8::MAX);
            if !as_expected {
                return Poll::Ready(Ok(Speaks::Http1));
            }
        }
    }

    fn poll_socket(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if self.opening.is_some() {
            self.opened += buf.filled().len() - before;
            if self.opened >= PREFACE.len() {
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

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(failed) = this.ahead.failed.take() {
            return Poll::Ready(Err(failed.into()));
        }
        let rest = this.ahead.rest();
        if rest.is_empty() {
            return this.poll_socket(cx, buf);
        }
        let taken = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..taken]);
        this.ahead.taken += u8::try_from(taken).unwrap_or(u8::MAX);
        // What is there already comes along: given the beginning alone, hyper would make its buffer twice as large to
        // have room for the rest.
        if this.ahead.rest().is_empty()
            && buf.remaining() > 0
            && let Poll::Ready(Err(e)) = this.poll_socket(cx, buf)
        {
            this.ahead.failed = Some(e.kind());
        }
        Poll::Ready(Ok(()))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    const LONG: Duration = Duration::from_secs(60);

    fn watched(limit: Duration) -> (DuplexStream, Watched<DuplexStream>) {
        let (theirs, ours) = duplex(4096);
        (theirs, Watched::new(ours, Arc::default(), limit, LONG))
    }

    async fn speaks(socket: &mut Watched<DuplexStream>) -> io::Result<Speaks> {
        poll_fn(|cx| socket.poll_speaks(cx)).await
    }

    #[tokio::test]
    async fn what_is_spoken_is_found_out_and_nothing_is_lost() {
        let cases = [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Speaks::Http1),
            ("POST /mcp HTTP/1.1\r\nHost: a\r\n\r\n", Speaks::Http1),
            ("PRI * HTTP/1.1\r\nHost: a\r\n\r\n", Speaks::Http1),
            ("PR", Speaks::Http1),
            ("", Speaks::Http1),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Speaks::Http2),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nand frames", Speaks::Http2),
        ];
        for (text, expected) in cases {
            for piece in [1, 3, 23, 24, 25, 100] {
                let (mut theirs, mut socket) = watched(LONG);
                let sending = tokio::spawn(async move {
                    for bytes in text.as_bytes().chunks(piece) {
                        theirs.write_all(bytes).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                });
                assert_eq!(speaks(&mut socket).await.unwrap(), expected, "{text:?} in pieces of {piece}");
                // By small steps, and at once.
                let mut all = String::new();
                let mut few = [0; 5];
                let n = socket.read(&mut few).await.unwrap();
                all.push_str(std::str::from_utf8(&few[..n]).unwrap());
                socket.read_to_string(&mut all).await.unwrap();
                assert_eq!(all, text, "in pieces of {piece}");
                sending.await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn what_follows_the_beginning_comes_with_it() {
        let text = b"POST /mcp HTTP/1.1\r\nHost: a\r\n\r\n";
        let (mut theirs, mut socket) = watched(LONG);
        theirs.write_all(text).await.unwrap();
        speaks(&mut socket).await.unwrap();
        let mut buffer = [0; 100];
        assert_eq!(socket.read(&mut buffer).await.unwrap(), text.len(), "one read gives all that is there");
    }

    #[tokio::test]
    async fn who_does_not_say_what_it_speaks_has_its_limit() {
        let (mut theirs, mut socket) = watched(Duration::from_millis(50));
        theirs.write_all(b"PRI * ").await.unwrap();
        let failed = speaks(&mut socket).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
    }
}
