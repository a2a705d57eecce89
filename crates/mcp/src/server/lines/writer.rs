//! What leaves on one connection, line by line: whole, in the order in which it was handed over, and nothing of a
//! request after its cancellation was read.
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::calls::{Call, Calls};

/// Lines that may wait for the writer; what speaks faster waits itself.
pub(super) const QUEUE: usize = 16;
/// Lines that are written at most before a flush.
const FLUSH_EVERY: usize = 32;
/// Time for the last lines to leave when the connection ends.
pub(super) const FLUSH: Duration = Duration::from_secs(2);

/// One message.
pub(super) struct Part {
    pub message: Bytes,
    /// The request that it belongs to.
    pub call: Option<Arc<Call>>,
    /// Whether it is that request's answer.
    pub last: bool,
    /// Told once the line was written and flushed.
    pub delivery: Option<oneshot::Sender<()>>,
}

impl Part {
    /// A message of no request that could be cancelled.
    pub fn plain(message: Bytes) -> Part {
        Part { message, call: None, last: true, delivery: None }
    }
}

pub(super) enum Line {
    One(Part),
    /// The answers to a batch.
    Batch(Vec<Part>),
}

/// Writes until everybody who could send is gone, or `closing` says that nobody will any more; what waits by then is
/// still written.
///
/// # Errors
/// As the stream's: the connection is broken.
pub(super) async fn write<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut lines: mpsc::Receiver<Line>,
    calls: &Calls,
    closing: &CancellationToken,
) -> io::Result<()> {
    let mut text = Vec::new();
    let mut written = Vec::new();
    let mut unflushed = 0;
    loop {
        let line = match lines.try_recv() {
            Ok(line) if unflushed < FLUSH_EVERY => line,
            other => {
                if unflushed > 0 {
                    writer.flush().await?;
                    unflushed = 0;
                    for delivery in written.drain(..) {
                        // Nobody has to be listening.
                        let _: Result<(), ()> = oneshot::Sender::send(delivery, ());
                    }
                }
                match other {
                    Ok(line) => line,
                    Err(_) => {
                        let next = tokio::select! {
                            biased;
                            line = lines.recv() => line,
                            () = closing.cancelled(), if !lines.is_closed() => {
                                lines.close();
                                continue;
                            }
                        };
                        match next {
                            Some(line) => line,
                            None => return Ok(()),
                        }
                    }
                }
            }
        };
        text.clear();
        let parts = match line {
            Line::One(part) => {
                if !may_leave(calls, &part) {
                    continue;
                }
                text.extend_from_slice(&part.message);
                vec![part]
            }
            Line::Batch(parts) => {
                let parts: Vec<Part> = parts.into_iter().filter(|part| may_leave(calls, part)).collect();
                if parts.is_empty() {
                    continue;
                }
                for (n, part) in parts.iter().enumerate() {
                    text.push(if n == 0 { b'[' } else { b',' });
                    text.extend_from_slice(&part.message);
                }
                text.push(b']');
                parts
            }
        };
        text.push(b'\n');
        writer.write_all(&text).await?;
        unflushed += 1;
        written.extend(parts.into_iter().filter_map(|part| part.delivery));
        // A large answer must not stay in memory for as long as the connection lives.
        if text.capacity() > 1 << 20 {
            text = Vec::new();
        }
    }
}

fn may_leave(calls: &Calls, part: &Part) -> bool {
    debug_assert!(!part.message.contains(&b'\n'), "a message is one line");
    part.call.as_ref().is_none_or(|call| calls.claim(call, part.last))
}
