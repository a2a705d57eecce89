//! This process's stdin and stdout, each served by a thread of its own. A runtime waits at its end for what it reads and
//! writes itself: a host that neither writes nor reads any more would keep it from ending. These threads it doesn't know.

use bytes::{Buf as _, Bytes};
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

/// Bytes read at a time, and written at a time.
const PIECE: usize = 64 << 10;
/// Pieces that wait to be taken.
const PIECES: usize = 4;

/// What is read, until its end or an error.
pub(crate) struct Input {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    rest: Bytes,
}

/// Takes what is to be written. Flushed means that the other end's pipe has it.
pub(crate) struct Output {
    /// `None`: shut down.
    pieces: Option<mpsc::Sender<Bytes>>,
    done: mpsc::Receiver<io::Result<()>>,
    /// A piece is being written.
    writing: bool,
}

/// Standard input.
///
/// # Errors
/// There is no thread to be had.
pub(crate) fn stdin() -> io::Result<Input> {
    read("stdin", io::stdin())
}

/// Standard output.
///
/// # Errors
/// There is no thread to be had.
pub(crate) fn stdout() -> io::Result<Output> {
    write("stdout", io::stdout())
}

fn read(name: &str, mut from: impl Read + Send + 'static) -> io::Result<Input> {
    let (tell, pieces) = mpsc::channel(PIECES);
    std::thread::Builder::new().name(name.into()).spawn(move || {
        let mut piece = vec![0; PIECE];
        loop {
            let said = match from.read(&mut piece) {
                Ok(0) => return,
                Ok(n) => Ok(Bytes::copy_from_slice(piece.get(..n).unwrap_or_default())),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => Err(e),
            };
            let over = said.is_err();
            if tell.blocking_send(said).is_err() || over {
                return;
            }
        }
    })?;
    Ok(Input { pieces, rest: Bytes::new() })
}

fn write(name: &str, mut to: impl Write + Send + 'static) -> io::Result<Output> {
    let (pieces, mut waiting) = mpsc::channel::<Bytes>(1);
    let (tell, done) = mpsc::channel(1);
    std::thread::Builder::new().name(name.into()).spawn(move || {
        while let Some(piece) = waiting.blocking_recv() {
            let wrote = to.write_all(&piece).and_then(|()| to.flush());
            if tell.blocking_send(wrote).is_err() {
                return;
            }
        }
    })?;
    Ok(Output { pieces: Some(pieces), done, writing: false })
}

impl AsyncRead for Input {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            match ready!(this.pieces.poll_recv(cx)) {
                Some(piece) => this.rest = piece?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = this.rest.len().min(out.remaining());
        out.put_slice(this.rest.get(..n).unwrap_or_default());
        this.rest.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl Output {
    /// Waits until the last piece is written.
    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.writing {
            return Poll::Ready(Ok(()));
        }
        let done = ready!(self.done.poll_recv(cx));
        self.writing = false;
        Poll::Ready(done.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into())))
    }
}

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_done(cx))?;
        let n = bytes.len().min(PIECE);
        let piece = Bytes::copy_from_slice(bytes.get(..n).unwrap_or_default());
        // The one place is free: the piece before has been written.
        match this.pieces.as_ref().map(|pieces| pieces.try_send(piece)) {
            Some(Ok(())) => {
                this.writing = true;
                Poll::Ready(Ok(n))
            }
            _ => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_done(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_done(cx))?;
        this.pieces = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn everything_passes_in_order_and_flushed_means_written() {
        let (from, to) = std::io::pipe().unwrap();
        let (mut input, mut output) = (read("in", from).unwrap(), write("out", to).unwrap());
        let text: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
        let sent = text.clone();
        let sending = tokio::spawn(async move {
            output.write_all(&sent).await.unwrap();
            output.flush().await.unwrap();
            output.shutdown().await.unwrap();
            assert!(output.write_all(b"more").await.is_err());
        });
        let mut got = Vec::new();
        input.read_to_end(&mut got).await.unwrap();
        assert!(got == text, "{} bytes", got.len());
        sending.await.unwrap();
        // Nobody reads: what is written is flushed only as far as it can be.
        let (from, to) = std::io::pipe().unwrap();
        let mut output = write("out", to).unwrap();
        let more = async {
            output.write_all(&text).await?;
            output.flush().await
        };
        assert!(tokio::time::timeout(Duration::from_millis(100), more).await.is_err());
        drop(from);
        output.flush().await.unwrap_err();
    }

    #[test]
    fn a_runtime_ends_while_nothing_comes_and_nothing_is_taken() {
        let (_silent, _full) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let (from, to) = (_silent.0.try_clone().unwrap(), _full.1.try_clone().unwrap());
        let (tell, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (mut input, mut output) = (read("in", from).unwrap(), write("out", to).unwrap());
                let mut byte = [0];
                let some = tokio::time::timeout(Duration::from_millis(50), input.read(&mut byte)).await;
                assert!(some.is_err());
                let much = vec![0; 1 << 20];
                let all = tokio::time::timeout(Duration::from_millis(50), output.write_all(&much)).await;
                assert!(all.is_err());
            });
            drop(runtime);
            tell.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
