//! Lines: one message a line over any byte stream, such as stdio or a Unix socket, each connection for itself (spec
//! 2026-07-28: stdio; spec 2025-11-25: Transports, "stdio").
//!
//! Both eras at once: a request whose `_meta` names a revision is modern and stands for itself; `initialize` opens the
//! one legacy session that a connection can have, to which all other requests then belong.
//!
//! Promises, beyond those of the whole module: a line that is no message costs an error, never the connection; nothing
//! is sent for a request after its cancellation was read; an answer counts as written when its whole line was written
//! and flushed; at the end of the input whoever works for this client learns that it is gone.
//!
//! Limits: calls that run at a time are counted, listen streams apart from them, since only calls end by themselves.
//! Requests beyond that wait, and while they do, cancellations behind them are still read and still count for both;
//! only when too much waits is nothing more read.
mod calls;
mod connection;
mod reader;
mod run;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use reader::{Line, LineReader};

use super::Service;
use crate::revision::Eras;

/// How a connection behaves.
#[derive(Clone)]
pub struct LinesConfig {
    /// Longest line, in bytes.
    pub max_line: usize,
    /// Deepest nesting of a message.
    pub max_depth: usize,
    /// Calls that run at a time; at least 1.
    pub max_calls: usize,
    /// Listen streams that are open at a time; more are refused.
    pub max_listens: usize,
    /// Requests that wait for their turn; with more, or with four lines of the greatest length, nothing is read.
    pub max_waiting: usize,
    /// Notifications of a request that may wait for a slow reader; a listen stream that falls further behind is ended.
    pub queue: usize,
    /// Which eras are served.
    pub eras: Eras,
    /// What is known of the client, such as its principal; it ends up in [`super::Caller::extensions`].
    pub extensions: Extensions,
    /// Cancelled when the server shuts down: no new requests, and calls in flight have `drain` to end.
    pub shutdown: CancellationToken,
    /// Whether the client is told of a shutdown: listen streams end with their final result, requests that come late or
    /// last too long are answered with an error. Off where the other end knows what to do when a connection just ends.
    pub farewell: bool,
    /// Time for calls in flight to end, after a shutdown and after the end of the input.
    pub drain: Duration,
    /// The running calls, to wait for before the process ends.
    pub tasks: TaskTracker,
}

impl Default for LinesConfig {
    fn default() -> Self {
        LinesConfig {
            max_line: 4 << 20,
            max_depth: 64,
            max_calls: 256,
            max_listens: 64,
            max_waiting: 1024,
            queue: 64,
            eras: Eras::Both,
            extensions: Extensions::new(),
            shutdown: CancellationToken::new(),
            farewell: true,
            drain: Duration::from_secs(25),
            tasks: TaskTracker::new(),
        }
    }
}

/// Serves one connection until its input ends, it can't be written to, or the server has shut down. Calls that outlive
/// `drain` run on in the tasks of the configuration.
pub async fn serve_lines<R, W, S>(reader: R, writer: W, config: LinesConfig, service: Arc<S>)
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin,
    S: Service,
{
    let (queue, lines) = mpsc::channel(writer::QUEUE);
    let reader = LineReader::new(reader, config.max_line);
    let connection = connection::Connection::new(config, service, queue);
    let (calls, closing) = (connection.calls.clone(), connection.closing.clone());
    let mut reading = std::pin::pin!(run::Reading::new(connection).run(reader));
    let mut writing = std::pin::pin!(writer::write(writer, lines, &calls, &closing));
    let mut broken = false;
    loop {
        tokio::select! {
            () = &mut reading => break,
            ended = &mut writing, if !broken => {
                broken = true;
                closing.cancel();
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection can't be written to");
                }
            }
        }
    }
    closing.cancel();
    if !broken {
        let _ = tokio::time::timeout(writer::FLUSH, writing).await;
    }
}
