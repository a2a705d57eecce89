//! The reading side of one connection: the era of each message, the turn of each request, cancellations, the end.
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use tokio::io::AsyncRead;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::calls::Call;
use super::connection::{Admitted, Batch, Connection, Sink, log};
use super::reader::{Line, LineReader};
use super::writer::{self, Part};
use crate::constants::{meta, method};
use crate::error::RpcError;
use crate::json::Limits;
use crate::message::{self, Id, Message, Notification, Request};
use crate::meta::RequestMeta;
use crate::modern;
use crate::revision::Revision;
use crate::server::channel::Channel;
use crate::server::dispatch::guarded;
use crate::server::{Exchange, Outcome, Service, Transport, WireResult, ask, era, legacy};

/// Lines of the greatest length that may wait.
const WAITING_LINES: usize = 4;

/// The legacy session of a connection.
struct Session {
    revision: Revision,
    id: Option<Arc<str>>,
    stream: Arc<Channel>,
}

/// A request that waits for its turn.
struct Waiting {
    admitted: Admitted,
    call: Arc<Call>,
    sink: Sink,
    size: usize,
}

pub(super) struct Reading<S> {
    shared: Arc<Connection<S>>,
    limits: Limits,
    permits: Arc<Semaphore>,
    session: Option<Session>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// The server shuts down; calls may run until then.
    draining: Option<Instant>,
}

impl<S: Service> Reading<S> {
    pub fn new(shared: Arc<Connection<S>>) -> Reading<S> {
        Reading {
            limits: Limits { depth: shared.config.max_depth, unique_members: true },
            permits: Arc::new(Semaphore::new(shared.config.max_calls.max(1))),
            shared,
            session: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            draining: None,
        }
    }

    /// Serves until the end, and ends in order.
    pub async fn run<R: AsyncRead + Unpin>(mut self, mut lines: LineReader<R>) {
        let shared = self.shared.clone();
        let config = &shared.config;
        let gone = loop {
            let room = self.waiting.len() < config.max_waiting
                && self.waiting_bytes < config.max_line.saturating_mul(WAITING_LINES);
            let deadline = self.draining;
            tokio::select! {
                biased;
                () = shared.closing.cancelled() => break true,
                () = config.shutdown.cancelled(), if deadline.is_none() => self.drain().await,
                () = shared.tasks.wait(), if deadline.is_some() => break false,
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.give_up().await;
                    break false;
                }
                Ok(permit) = self.permits.clone().acquire_owned(), if !self.waiting.is_empty() => {
                    self.next_turn(permit);
                }
                line = lines.next(), if room => match line {
                    Ok(Some(Line::Whole(line))) => self.line(line).await,
                    Ok(Some(Line::TooLong)) => {
                        let why = format!("the line is longer than {} bytes", config.max_line);
                        let error = RpcError::refused(StatusCode::PAYLOAD_TOO_LARGE, why);
                        shared.refuse(None, &error, &Sink::Line).await;
                    }
                    Ok(None) | Err(_) => break true,
                },
            }
        };
        self.leave();
        shared.tasks.close();
        if gone {
            let _ = timeout(config.drain, shared.tasks.wait()).await;
        }
        if let Some(Session { revision, id: Some(id), .. }) = self.session {
            let caller = shared.caller(revision, Some(id));
            let _ = guarded(async { shared.service.end_session(&caller).await }).await;
        }
    }

    /// The client is gone, or is to find out that we are.
    fn leave(&mut self) {
        self.shared.calls.leave();
        self.waiting.clear();
        if let Some(session) = &self.session {
            session.stream.cancel();
        }
    }

    /// The server shuts down: what would never end by itself ends, what has not begun never will.
    async fn drain(&mut self) {
        let shared = self.shared.clone();
        self.draining = Some(Instant::now() + shared.config.drain);
        for waiting in std::mem::take(&mut self.waiting) {
            shared.calls.end(&waiting.call);
            if shared.config.farewell && !waiting.call.is_over() {
                shared.refuse(Some(&waiting.call.id), &shutting_down(), &waiting.sink).await;
            }
        }
        self.waiting_bytes = 0;
        for call in shared.calls.each() {
            match call.channel() {
                _ if !call.listens => {}
                Some(channel) if shared.config.farewell => drop(channel.end_listening()),
                _ => call.leave(),
            }
        }
        if let Some(session) = &self.session {
            session.stream.end_listening();
        }
        shared.tasks.close();
    }

    /// The time to drain is over. Calls run on; their client is told, or left.
    async fn give_up(&mut self) {
        if !self.shared.config.farewell {
            return;
        }
        for call in self.shared.calls.each() {
            if let Some(channel) = call.channel() {
                channel.give_up();
            }
        }
        let told = async {
            while !self.shared.calls.is_empty() {
                sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(writer::FLUSH, told).await;
    }

    async fn line(&mut self, line: Bytes) {
        if !message::is_batch(&line) {
            return self.message(line, Sink::Line).await;
        }
        let batches = self.session.as_ref().is_some_and(|s| s.revision == Revision::V2025_03_26);
        let items = if batches {
            message::split_batch(&line, &self.limits)
        } else {
            let why = "batches belong to a session of revision 2025-03-26; send one message a line";
            Err(RpcError::invalid_request(why))
        };
        match items {
            Ok(items) => {
                let answered = items.iter().filter(|item| self.wants_answer(item)).count();
                let batch = Batch::new(answered);
                for item in items {
                    self.message(item, Sink::Batch(batch.clone())).await;
                }
            }
            Err(error) => self.shared.refuse(None, &error, &Sink::Line).await,
        }
    }

    /// Whether a batch's answer must wait for this one: a request, or what is refused.
    fn wants_answer(&self, item: &Bytes) -> bool {
        !matches!(message::parse(item, &self.limits), Ok(Message::Notification(_) | Message::Response(_)))
    }

    async fn message(&mut self, line: Bytes, sink: Sink) {
        match message::parse(&line, &self.limits) {
            Ok(Message::Request(request)) => self.request(request, sink, line.len()).await,
            Ok(Message::Notification(notification)) => self.notification(notification).await,
            Ok(Message::Response(response)) => self.response(response).await,
            Err(refused) => self.shared.refuse(refused.id.as_ref(), &refused.error, &sink).await,
        }
    }

    async fn notification(&mut self, notification: Notification) {
        if notification.method == method::CANCELLED {
            if let Some(id) = legacy::cancelled_request(&notification) {
                self.shared.calls.cancel(&id);
            }
            return;
        }
        if let Some(session) = &self.session {
            let caller = self.shared.caller(session.revision, session.id.clone());
            let service = self.shared.service.clone();
            let _ = guarded(async { service.notified(caller, notification).await }).await;
        }
    }

    /// Hands on what a legacy client answers; a modern one sends no responses at all (spec: stdio, "Sending Messages").
    async fn response(&mut self, response: message::Response) {
        if let (Some(session), Some((id, outcome))) = (&self.session, ask::answered(response)) {
            let caller = self.shared.caller(session.revision, session.id.clone());
            let service = self.shared.service.clone();
            if let Ok(Err(error)) = guarded(async { service.response(caller, id, outcome).await }).await {
                tracing::error!(%error.message, "a client's answer could not be taken");
            }
        }
    }

    async fn request(&mut self, mut request: Request, sink: Sink, size: usize) {
        let id = request.id.clone();
        if self.draining.is_some() {
            if self.shared.config.farewell {
                self.shared.refuse(Some(&id), &shutting_down(), &sink).await;
            }
            return;
        }
        let eras = self.shared.config.eras;
        let modern = era::declares_modern(request.meta.as_ref());
        // The others would wait for its answer, which a listen stream has only at its end.
        if modern && matches!(sink, Sink::Batch(_)) {
            let error = RpcError::invalid_request("revisions later than 2025-03-26 have no batches");
            return self.shared.refuse(Some(&id), &error, &sink).await;
        }
        if !modern && request.method == method::INITIALIZE && eras.legacy() {
            return match &sink {
                Sink::Line => self.initialize(&request).await,
                Sink::Batch(_) => {
                    let error = RpcError::invalid_request("initialize can't be part of a batch");
                    self.shared.refuse(Some(&id), &error, &sink).await;
                }
            };
        }
        let admitted = match &self.session {
            Some(session) if !modern => {
                if let Some(result) = legacy::own_answer(&request) {
                    return self.own(&request, session.revision, result, &sink).await;
                }
                let caller = self.shared.caller(session.revision, session.id.clone());
                Ok(Admitted::Legacy(Box::new(request), Box::new(caller)))
            }
            _ => match self.unopened(&mut request, modern) {
                Ok(Some(meta)) => {
                    let caller = self.shared.caller(Revision::V2026_07_28, None);
                    Ok(Admitted::Modern(Box::new(Exchange { request, meta, caller })))
                }
                Ok(None) => {
                    let empty = WireResult::empty();
                    return self.own(&request, Revision::V2025_03_26, empty, &sink).await;
                }
                Err(error) => Err(error),
            },
        };
        match admitted.and_then(|admitted| Ok((self.enter(&id, &admitted)?, admitted))) {
            Ok((call, admitted)) => {
                self.waiting_bytes += size;
                self.waiting.push_back(Waiting { admitted, call, sink, size });
                // Without a queue its turn is now.
                if self.waiting.len() == 1
                    && let Ok(permit) = self.permits.clone().try_acquire_owned()
                {
                    self.next_turn(permit);
                }
            }
            Err(error) => self.shared.refuse(Some(&id), &error, &sink).await,
        }
    }

    /// A request outside of a legacy session: the metadata of a modern one, nothing for a `ping`.
    fn unopened(&self, request: &mut Request, declared: bool) -> Result<Option<RequestMeta>, RpcError> {
        let eras = self.shared.config.eras;
        if declared && !eras.modern() {
            return Err(era::modern_refused());
        }
        if declared || !eras.legacy() {
            return modern::admit_bare(request, eras).map(Some);
        }
        if request.method == method::PING {
            return Ok(None);
        }
        let modern = if eras.modern() {
            format!(", or name the revision of each request in its _meta as {}", meta::PROTOCOL_VERSION)
        } else {
            String::new()
        };
        let served = eras.served();
        Err(RpcError::invalid_request(format!("open with initialize first{modern}; served: {served}")))
    }

    /// Enters a request among those that have no answer yet.
    fn enter(&self, id: &Id, admitted: &Admitted) -> Result<Arc<Call>, RpcError> {
        let listens = matches!(admitted, Admitted::Modern(e) if e.request.method == method::LISTEN);
        let most = self.shared.config.max_listens;
        if listens && self.shared.calls.listening() >= most {
            let why = format!("{most} listen streams are open on this connection; cancel one first");
            return Err(RpcError::refused(StatusCode::TOO_MANY_REQUESTS, why));
        }
        self.shared.calls.begin(id, listens).ok_or_else(|| {
            RpcError::invalid_request(
                "a request of this id has no answer yet; use each id once. The earlier request goes on",
            )
        })
    }

    /// Begins the request that waited longest.
    fn next_turn(&mut self, permit: OwnedSemaphorePermit) {
        let Some(Waiting { admitted, call, sink, size }) = self.waiting.pop_front() else { return };
        self.waiting_bytes = self.waiting_bytes.saturating_sub(size);
        let shared = self.shared.clone();
        // A listen stream lasts: it is counted elsewhere, and takes nobody's turn.
        let permit = (!call.listens).then_some(permit);
        let work = async move {
            if call.is_over() {
                shared.answer(&sink, None).await;
            } else {
                shared.serve(admitted, call, sink).await;
            }
            drop(permit);
        };
        let tasks = &self.shared.config.tasks;
        tasks.spawn(self.shared.tasks.track_future(work));
    }

    /// Answers what needs no service.
    async fn own(&self, request: &Request, revision: Revision, result: WireResult, sink: &Sink) {
        let (message, _) = Outcome::from(result).to_message(Some(&request.id));
        log(Some(revision), Some(&request.method), &message);
        self.shared.answer(sink, Some(Part::plain(message))).await;
    }

    /// Opens the legacy session. Nothing else is read meanwhile: what follows belongs to it.
    async fn initialize(&mut self, request: &Request) {
        let shared = self.shared.clone();
        let caller = shared.caller(Revision::LEGACY[0], None);
        let welcome = if self.session.is_some() {
            Err(RpcError::invalid_request("this connection is initialized already; open another one"))
        } else if shared.calls.contains(&request.id) {
            Err(RpcError::invalid_request("a request of this id has no answer yet; use each id once"))
        } else {
            legacy::initialize(&shared.service, caller, request).await
        };
        let welcome = match welcome {
            Ok(welcome) => welcome,
            Err(error) => return shared.refuse(Some(&request.id), &error, &Sink::Line).await,
        };
        let revision = welcome.revision;
        self.own(request, revision, welcome.result, &Sink::Line).await;
        let id: Option<Arc<str>> = welcome.session.map(Into::into);
        let stream = Arc::new(Channel::stream(revision, Transport::Lines, shared.config.queue));
        let caller = shared.caller(revision, id.clone());
        let (feeder, channel) = (shared.clone(), stream.clone());
        let feeding = async move { feeder.stream(caller, channel).await };
        shared.config.tasks.spawn(shared.tasks.track_future(feeding));
        self.session = Some(Session { revision, id, stream });
    }
}

fn shutting_down() -> RpcError {
    RpcError::refused(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down; send it to the next one")
}
