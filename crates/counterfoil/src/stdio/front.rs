//! The pump between a client and its backend, which outlives any backend.

use super::reach::{Backend, Reach, Reader, Writer};
use super::table::{Table, Verdict};
use super::{ENDING, PENDING_LINES, STILL_ASKED, UNREACHED};
use crate::Error;
use crate::config::{Config, ConfigError};
use crate::run::Held;
use bytes::Bytes;
use mcp::RpcError;
use mcp::server::{Line, LineReader};
use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};
use tokio_util::task::AbortOnDropHandle;

/// Lines that may wait for a writer.
const QUEUE: usize = 16;
/// Deepest nesting of a client's message, as the backend's.
const DEPTH: usize = 64;

/// The client's side: its lines in and out, and the wishes of whoever started this process.
pub(crate) struct Client<R, W, F, L> {
    pub reader: R,
    pub writer: W,
    /// Resolves when this process is to end.
    pub stop: F,
    /// Tells that the configuration is to be read again.
    pub reload: mpsc::Receiver<()>,
    /// Reads the configuration.
    pub load: L,
}

/// What is on the other side.
enum Link {
    Up(Up),
    Down {
        since: Instant,
        /// There never was a backend: without one there is nothing to serve.
        first: bool,
        reaching: AbortOnDropHandle<Result<Backend, Error>>,
    },
}

struct Up {
    lines: LineReader<Reader>,
    queue: mpsc::Sender<Bytes>,
    _writing: AbortOnDropHandle<()>,
}

/// A line for the backend.
struct Outgoing {
    line: Bytes,
    /// The table has it, or nobody needs it after this backend.
    kept: bool,
}

/// What happened.
enum Event {
    Client(Option<Line>),
    Backend(Option<Line>),
    Reached(Box<Result<Backend, Error>>),
    Failed(String),
    Reload,
    Tick,
    Sent,
    Ended,
}

/// Writes lines until nobody sends any more, or they can't be written; then nothing more comes.
async fn write(mut writer: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Bytes>) {
    while let Some(line) = lines.recv().await {
        let mut text = Vec::with_capacity(line.len() + 1);
        text.extend_from_slice(&line);
        text.push(b'\n');
        if writer.write_all(&text).await.is_err() || (lines.is_empty() && writer.flush().await.is_err()) {
            return;
        }
    }
    let _ = writer.shutdown().await;
}

/// Serves one client until its input ends, its output can't be written, or it is to stop.
///
/// # Errors
/// There is no ledger to serve it from at the start, or it failed for good; the client's requests are answered.
pub(crate) async fn serve<R, W, F, L>(reach: Reach, client: Client<R, W, F, L>) -> Result<(), Error>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = ()>,
    L: Fn() -> Result<Config, ConfigError>,
{
    pump(reach, client, UNREACHED).await
}

/// `patience`: how long a request waits for a backend.
async fn pump<R, W, F, L>(reach: Reach, client: Client<R, W, F, L>, patience: Duration) -> Result<(), Error>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = ()>,
    L: Fn() -> Result<Config, ConfigError>,
{
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|e| Error::Holder(format!("this system gives no randomness ({e})")))?;
    let max_line = reach.config.server.max_body;
    let (out, waiting) = mpsc::channel(QUEUE);
    let writing = AbortOnDropHandle::new(tokio::spawn(write(client.writer, waiting)));
    let mut front = Front {
        table: Table::new(ledger::effect::hex(&random), DEPTH, max_line.saturating_mul(PENDING_LINES)),
        link: Link::Down {
            since: Instant::now(),
            first: true,
            reaching: AbortOnDropHandle::new(tokio::spawn(reach.clone().first())),
        },
        reach,
        held: None,
        to_client: VecDeque::new(),
        to_backend: VecDeque::new(),
        out,
        max_line,
        patience,
        input_over: None,
    };
    let ended =
        front.run(LineReader::new(client.reader, max_line), client.stop, client.reload, client.load).await;
    let held = front.held.take();
    // What its client doesn't take by then it never gets; the backend takes it for given.
    let _ = tokio::time::timeout(ENDING, async {
        front.leave(ended.is_ok()).await;
        let _ = writing.await;
    })
    .await;
    match (held, ended) {
        (Some(held), Ok(())) => held.shutdown(Some(ENDING)).await,
        (_, ended) => ended,
    }
}

struct Front {
    table: Table,
    link: Link,
    reach: Reach,
    held: Option<Held>,
    to_client: VecDeque<Bytes>,
    to_backend: VecDeque<Outgoing>,
    out: mpsc::Sender<Bytes>,
    max_line: usize,
    patience: Duration,
    /// When the client's input ended, and until when its requests may still be answered.
    input_over: Option<Instant>,
}

impl Front {
    async fn run<R: AsyncRead + Unpin>(
        &mut self,
        mut input: LineReader<R>,
        stop: impl Future<Output = ()>,
        mut reload: mpsc::Receiver<()>,
        load: impl Fn() -> Result<Config, ConfigError>,
    ) -> Result<(), Error> {
        let mut stop = std::pin::pin!(stop);
        let mut tick = interval(Duration::from_millis(250));
        loop {
            if self.input_over.is_some() && self.is_served() {
                return Ok(());
            }
            let event = tokio::select! {
                biased;
                () = &mut stop => Event::Ended,
                Some(()) = reload.recv() => Event::Reload,
                event = self.event(&mut input) => event,
                _ = tick.tick() => Event::Tick,
            };
            match event {
                Event::Ended => return Ok(()),
                Event::Client(None) => self.input_over = Some(Instant::now() + ENDING),
                Event::Client(Some(line)) => self.take(line),
                Event::Backend(Some(Line::Whole(line))) => {
                    if self.table.said(&line) {
                        self.to_client.push_back(line);
                    }
                }
                Event::Backend(_) => self.lost(),
                Event::Reached(reached) => {
                    if let Err(error) = self.reached(*reached) {
                        self.refuse_all(&mut input).await;
                        return Err(error);
                    }
                }
                Event::Failed(why) => {
                    let answers = self.table.fail_all();
                    self.to_client.extend(answers);
                    return Err(Error::Fatal(why));
                }
                Event::Reload => self.reload(&load),
                Event::Tick => self.expire(),
                Event::Sent => {}
            }
        }
    }

    /// Whether the client that sent its last line has got what can be got.
    fn is_served(&self) -> bool {
        // A start has its own limit: what was asked before it is over is still answered.
        let starting = matches!(self.link, Link::Down { first: true, .. });
        let over = !starting && self.input_over.is_some_and(|until| Instant::now() >= until);
        over || (!self.table.is_owed() && self.to_client.is_empty() && self.to_backend.is_empty())
    }

    /// Waits for the next thing to happen. Nothing is read that could not be passed on, and no side waits for the other.
    async fn event<R: AsyncRead + Unpin>(&mut self, input: &mut LineReader<R>) -> Event {
        let reads = self.input_over.is_none()
            && self.table.has_room()
            && self.to_backend.is_empty()
            && self.to_client.len() < QUEUE;
        let answers = self.to_client.len() < QUEUE;
        let failed = async {
            match &self.held {
                Some(held) => held.core.failed().await,
                None => std::future::pending().await,
            }
        };
        let out = self.out.clone();
        let backend = match &mut self.link {
            Link::Up(up) => (Some(up), None),
            Link::Down { reaching, .. } => (None, Some(reaching)),
        };
        let (up, reaching) = backend;
        let queue = up.as_ref().map(|up| up.queue.clone());
        let lines = up.map(|up| &mut up.lines);
        tokio::select! {
            why = failed => Event::Failed(why),
            permit = out.reserve(), if !self.to_client.is_empty() => match permit {
                Ok(permit) => {
                    if let Some(line) = self.to_client.pop_front() {
                        permit.send(line);
                    }
                    Event::Sent
                }
                Err(_) => Event::Ended,
            },
            () = out.closed() => Event::Ended,
            permit = reserve(queue.as_ref()), if !self.to_backend.is_empty() => {
                match permit {
                    Some(permit) => {
                        if let Some(next) = self.to_backend.pop_front() {
                            permit.send(next.line);
                        }
                    }
                    // The reading side will find out.
                    None => self.withdraw(),
                }
                Event::Sent
            }
            line = next(lines), if answers => Event::Backend(line),
            reached = joined(reaching) => Event::Reached(Box::new(reached)),
            line = input.next(), if reads => Event::Client(line.unwrap_or(None)),
        }
    }

    fn take(&mut self, line: Line) {
        let verdict = match line {
            Line::Whole(line) => self.table.asked(line, Instant::now()),
            Line::TooLong => {
                let why = format!("the line is longer than {} bytes", self.max_line);
                Verdict::Answer(RpcError::invalid_request(why).to_message(None))
            }
        };
        let up = matches!(self.link, Link::Up(_));
        match verdict {
            Verdict::Answer(answer) => self.to_client.push_back(answer),
            // Without a backend the table keeps what has to be sent.
            Verdict::Forward(line) | Verdict::Now(line) if up => {
                self.to_backend.push_back(Outgoing { line, kept: true });
            }
            Verdict::Pass(line) if up => self.to_backend.push_back(Outgoing { line, kept: false }),
            Verdict::Pass(line) => self.table.hold(line, Instant::now()),
            Verdict::Forward(_) | Verdict::Now(_) => {}
        }
    }

    /// Takes back what the backend did not get, where the next one is to have it.
    fn withdraw(&mut self) {
        for Outgoing { line, kept } in self.to_backend.drain(..) {
            if !kept {
                self.table.hold(line, Instant::now());
            }
        }
    }

    /// The backend has ended.
    fn lost(&mut self) {
        self.withdraw();
        self.held = None;
        tracing::info!("the process that holds the ledger has ended; looking for the next one");
        self.link = Link::Down {
            since: Instant::now(),
            first: false,
            reaching: AbortOnDropHandle::new(tokio::spawn(self.reach.clone().next())),
        };
    }

    /// There will be no backend: what was asked already, or is being asked, is answered.
    async fn refuse_all<R: AsyncRead + Unpin>(&mut self, input: &mut LineReader<R>) {
        let _ = tokio::time::timeout(STILL_ASKED, async {
            while self.input_over.is_none() && self.table.has_room() {
                match input.next().await {
                    Ok(Some(line)) => self.take(line),
                    _ => return,
                }
            }
        })
        .await;
        let answers = self.table.fail_start();
        self.to_client.extend(answers);
    }

    /// Gives the client all that is there for it: what waits here, then what the backend has said by the time that it
    /// knows this client to be gone. What it wrote before that it counts as given. `listen`: it has anything to say.
    async fn leave(self, listen: bool) {
        let Front { mut table, link, to_client, out, .. } = self;
        for line in to_client {
            if out.send(line).await.is_err() {
                return;
            }
        }
        let Link::Up(Up { mut lines, queue, _writing }) = link else { return };
        if !listen {
            return;
        }
        drop(queue);
        while let Ok(Some(Line::Whole(line))) = lines.next().await {
            if table.said(&line) && out.send(line).await.is_err() {
                return;
            }
        }
    }

    fn reached(&mut self, reached: Result<Backend, Error>) -> Result<(), Error> {
        let Backend { lines, writer, held } = match reached {
            Ok(backend) => backend,
            Err(error) if matches!(self.link, Link::Down { first: true, .. }) => {
                return Err(error);
            }
            Err(error) => {
                tracing::warn!(%error, "no backend");
                self.lost();
                return Ok(());
            }
        };
        let (queue, waiting) = mpsc::channel(QUEUE);
        let writer: Writer = writer;
        let writing = AbortOnDropHandle::new(tokio::spawn(write(writer, waiting)));
        self.held = held;
        if matches!(self.link, Link::Down { first: true, .. }) {
            self.input_over = self.input_over.map(|_| Instant::now() + ENDING);
        }
        self.link = Link::Up(Up { lines, queue, _writing: writing });
        self.to_backend = self.table.resume().into_iter().map(|line| Outgoing { line, kept: true }).collect();
        Ok(())
    }

    fn expire(&mut self) {
        if let Link::Down { since, .. } = self.link {
            let answers = self.table.expire(since, Instant::now(), self.patience);
            self.to_client.extend(answers);
        }
    }

    /// A file that can't be used leaves the running configuration in place.
    fn reload(&mut self, load: impl Fn() -> Result<Config, ConfigError>) {
        let Some(held) = &self.held else { return };
        match load().map_err(Error::from).and_then(|new| held.core.reload(&new)) {
            Ok(fixed) if fixed.is_empty() => tracing::info!("configuration reloaded"),
            Ok(fixed) => {
                let restart_for = fixed.join(", ");
                tracing::warn!(restart_for, "configuration reloaded; some of it takes a restart");
            }
            Err(e) => {
                tracing::error!("the configuration was not reloaded, the running one stays in place: {e}")
            }
        }
    }
}

async fn reserve(queue: Option<&mpsc::Sender<Bytes>>) -> Option<mpsc::Permit<'_, Bytes>> {
    match queue {
        Some(queue) => queue.reserve().await.ok(),
        None => std::future::pending().await,
    }
}

async fn next(lines: Option<&mut LineReader<Reader>>) -> Option<Line> {
    match lines {
        Some(lines) => lines.next().await.unwrap_or(None),
        None => std::future::pending().await,
    }
}

async fn joined(reaching: Option<&mut AbortOnDropHandle<Result<Backend, Error>>>) -> Result<Backend, Error> {
    match reaching {
        Some(reaching) => reaching
            .await
            .unwrap_or_else(|e| Err(Error::Holder(format!("looking for the ledger failed ({e})")))),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
