//! What the tasks of one connection share, and the way of one request from its turn to its answer.
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::LinesConfig;
use super::calls::{Call, Calls};
use super::writer::{Line, Part};
use crate::constants::method;
use crate::error::RpcError;
use crate::message::{Id, Request};
use crate::revision::Revision;
use crate::server::channel::{Channel, Next};
use crate::server::dispatch::{self, guarded};
use crate::server::legacy::{self, Refusal};
use crate::server::{Caller, Exchange, Responder, Service, SessionRefusal, Subscription, Transport};

pub(super) struct Connection<S> {
    pub config: LinesConfig,
    pub service: Arc<S>,
    pub calls: Arc<Calls>,
    /// Nothing can be sent any more.
    pub closing: CancellationToken,
    /// What runs for this connection.
    pub tasks: TaskTracker,
    queue: mpsc::Sender<Line>,
}

/// A request whose era is known.
pub(super) enum Admitted {
    Modern(Box<Exchange>),
    /// What is known of the client is looked up when its turn comes.
    Legacy(Box<Request>, Box<Caller>),
}

/// Where an answer goes: onto a line of its own, or among those to a batch.
#[derive(Clone)]
pub(super) enum Sink {
    Line,
    Batch(Arc<Batch>),
}

/// The answers to a batch, sent together when none is missing.
pub(super) struct Batch(Mutex<(usize, Vec<Part>)>);

impl Batch {
    pub fn new(requests: usize) -> Arc<Batch> {
        Arc::new(Batch(Mutex::new((requests, Vec::new()))))
    }

    /// One more request has ended; gives the line when it was the last.
    fn ended(&self, part: Option<Part>) -> Option<Line> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1.extend(part);
        state.0 = state.0.saturating_sub(1);
        (state.0 == 0 && !state.1.is_empty()).then(|| Line::Batch(std::mem::take(&mut state.1)))
    }
}

impl<S: Service> Connection<S> {
    pub fn new(config: LinesConfig, service: Arc<S>, queue: mpsc::Sender<Line>) -> Arc<Connection<S>> {
        Arc::new(Connection {
            config,
            service,
            calls: Arc::default(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
            queue,
        })
    }

    pub fn caller(&self, revision: Revision, session: Option<Arc<str>>) -> Caller {
        Caller {
            revision,
            transport: Transport::Lines,
            headers: HeaderMap::new(),
            extensions: self.config.extensions.clone(),
            peer: None,
            session,
        }
    }

    /// Hands a line to the writer; waits for its turn, not for the client.
    pub async fn send(&self, line: Line) {
        tokio::select! {
            _ = self.queue.send(line) => {}
            () = self.closing.cancelled() => {}
        }
    }

    /// Answers with an error.
    pub async fn refuse(&self, id: Option<&Id>, error: &RpcError, sink: &Sink) {
        let message = error.to_message(id);
        log(None, None, &message);
        self.answer(sink, Some(Part::plain(message))).await;
    }

    /// Gives a request's answer, or the news that it has none.
    pub async fn answer(&self, sink: &Sink, part: Option<Part>) {
        let line = match sink {
            Sink::Line => part.map(Line::One),
            Sink::Batch(batch) => batch.ended(part),
        };
        if let Some(line) = line {
            self.send(line).await;
        }
    }

    /// Answers a request.
    pub async fn serve(&self, admitted: Admitted, call: Arc<Call>, sink: Sink) {
        let part = |message: Bytes| {
            let (call, delivery) = (Some(call.clone()), None);
            Some(Part { message, call, last: true, delivery })
        };
        let exchange = match admitted {
            Admitted::Modern(exchange) => *exchange,
            Admitted::Legacy(request, caller) => {
                let (revision, about) = (caller.revision, request.method.clone());
                let known = match legacy::client(&*self.service, &caller).await {
                    Ok(client) => legacy::exchange(*request, *caller, client),
                    Err(refusal) => Err(refused(refusal)),
                };
                match known {
                    Ok(exchange) => exchange,
                    Err(error) => {
                        let message = error.to_message(Some(&call.id));
                        log(Some(revision), Some(&about), &message);
                        return self.answer(&sink, part(message)).await;
                    }
                }
            }
        };
        if let Some((message, _)) = dispatch::ready(&*self.service, &exchange) {
            return self.answer(&sink, part(message)).await;
        }
        let channel = Arc::new(Channel::of(&exchange, true, self.config.queue));
        call.attach(channel.clone());
        let responder = Responder::new(channel.clone());
        // A panic drops the responder, which answers.
        let work = guarded(async { self.service.clone().call(exchange, responder).await });
        tokio::join!(work, self.forward(&channel, &call, &sink)).0.unwrap_or_default();
    }

    /// Hands over what a call says, until it has ended.
    async fn forward(&self, channel: &Channel, call: &Arc<Call>, sink: &Sink) {
        let mut listened = false;
        loop {
            match channel.next().await {
                Next::Message(message) => {
                    listened = call.listens;
                    let part = Part { message, call: Some(call.clone()), last: false, delivery: None };
                    self.send(Line::One(part)).await;
                }
                Next::Last(last) => {
                    let part = Part {
                        message: last.message,
                        call: Some(call.clone()),
                        last: true,
                        delivery: last.delivery,
                    };
                    self.answer(sink, Some(part)).await;
                    if listened {
                        self.send(Line::One(Part::plain(torn_down(&call.id)))).await;
                    }
                    return;
                }
                Next::End => {
                    self.calls.end(call);
                    return self.answer(sink, None).await;
                }
            }
        }
    }

    /// Feeds a legacy client's stream of messages outside of requests.
    pub async fn stream(&self, caller: Caller, channel: Arc<Channel>) {
        let subscription = Subscription::open(channel.clone(), None);
        let work = guarded(async { self.service.clone().stream(caller, subscription).await });
        let forward = async {
            while let Next::Message(message) = channel.next().await {
                self.send(Line::One(Part::plain(message))).await;
            }
        };
        tokio::join!(work, forward).0.unwrap_or_default();
    }
}

/// A server that ends a listen stream says so by name too (spec: cancellation, "Cancellation Flow"); after the final
/// result, so that a client which takes either as the end sees the graceful one.
fn torn_down(id: &Id) -> Bytes {
    let id = id.as_str();
    let method = method::CANCELLED;
    let message: Bytes =
        format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"requestId":{id}}}}}"#).into();
    log(Some(Revision::V2026_07_28), None, &message);
    message
}

fn refused(refusal: Refusal) -> RpcError {
    match refusal {
        Refusal::Error(error) => error,
        Refusal::Session(SessionRefusal::Unavailable) => legacy::session_unavailable(),
        Refusal::Session(SessionRefusal::Unknown | SessionRefusal::None) => RpcError::refused(
            StatusCode::NOT_FOUND,
            "this connection's session has ended; open another connection and initialize",
        ),
    }
}

/// A message leaves that no channel carries.
pub(super) fn log(_revision: Option<Revision>, _about: Option<&str>, _message: &Bytes) {
    #[cfg(feature = "wire-log")]
    crate::wire_log::server(_revision, _about, _message);
}
