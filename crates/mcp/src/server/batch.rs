//! The answers to a batch (revision 2025-03-26): one JSON array if all are ready soon, else an event stream with each
//! answer as it comes. Notifications of these calls are left out.
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::{FuturesUnordered, unfold};
use http::StatusCode;
use tokio::sync::oneshot;

use super::answer::{self, Begun, begin, drained};
use super::channel::{Channel, Last, Next};
use super::connection::Flushes;
use super::{Endpoint, Exchange, HttpConfig, Outcome, Service, WireResult};
use crate::error::RpcError;
use crate::message::{Id, Request};
use crate::revision::Revision;
use crate::sse;

type Deliveries = Vec<oneshot::Sender<()>>;
type Answering = Pin<Box<dyn Future<Output = Option<Last>> + Send>>;

/// Answers that are there, and those to come.
#[derive(Default)]
pub(super) struct Batch {
    done: VecDeque<Last>,
    waiting: FuturesUnordered<Answering>,
    channels: Vec<Arc<Channel>>,
}

/// The client is gone, or has everything: what isn't sent is undelivered, which cancels nothing.
impl Drop for Batch {
    fn drop(&mut self) {
        for channel in &self.channels {
            channel.abandon();
        }
    }
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.waiting.is_empty()
    }

    /// A message that isn't served.
    pub fn refused(&mut self, error: &RpcError, id: Option<&Id>) {
        let message = error.to_message(id);
        self.push(message, None);
    }

    /// A request that the wire answers itself.
    pub fn answered(&mut self, request: &Request, result: &WireResult) {
        let (message, _) = Outcome::Result(result.clone()).to_message(Some(&request.id));
        self.push(message, Some(&request.method));
    }

    fn push(&mut self, message: Bytes, _about: Option<&str>) {
        #[cfg(feature = "wire-log")]
        crate::wire_log::server(Some(Revision::V2025_03_26), _about, &message);
        self.done.push_back(Last { message, status: StatusCode::OK, delivery: None });
    }

    /// Begins a request.
    pub async fn begin<S: Service>(
        &mut self,
        endpoint: &Endpoint<S>,
        exchange: Exchange,
        named: Option<Arc<str>>,
    ) {
        debug_assert_eq!(exchange.caller.revision, Revision::V2025_03_26);
        match begin(endpoint, exchange, named, false).await {
            Begun::Done(message, status) => self.done.push_back(Last { message, status, delivery: None }),
            Begun::Running(channel) => {
                self.channels.push(channel.clone());
                self.waiting.push(Box::pin(async move {
                    loop {
                        match channel.next().await {
                            Next::Message(_) => {}
                            Next::Last(last) => return Some(last),
                            Next::End => return None,
                        }
                    }
                }));
            }
        }
    }

    /// Waits until every answer is there.
    async fn complete(&mut self) {
        while let Some(last) = self.waiting.next().await {
            self.done.extend(last);
        }
    }

    fn give_up(&self) {
        for channel in &self.channels {
            channel.give_up();
        }
    }

    /// The response to the whole batch.
    pub async fn answer(
        mut self,
        config: &HttpConfig,
        events: bool,
        flushes: Option<Arc<Flushes>>,
    ) -> Response {
        let complete = if events {
            tokio::time::timeout(config.early_bytes, self.complete()).await.is_ok()
        } else {
            let in_time = tokio::select! {
                () = self.complete() => true,
                () = drained(config) => false,
            };
            if !in_time {
                self.give_up();
                self.complete().await;
            }
            true
        };
        let mut pouring = Pouring {
            pieces: VecDeque::new(),
            handed: Vec::new(),
            flushes,
            every: config.keep_alive,
            drained: None,
            batch: self,
        };
        if complete {
            pouring.array();
            return answer::with_headers(pouring.into_body(), StatusCode::OK, answer::JSON);
        }
        pouring.pieces.push_back((sse::COMMENT, Vec::new()));
        let (shutdown, drain) = (config.shutdown.clone(), config.drain);
        pouring.drained = Some(Box::pin(async move {
            shutdown.cancelled().await;
            tokio::time::sleep(drain).await;
        }));
        answer::events(pouring.into_body())
    }
}

/// The body of the response.
struct Pouring {
    batch: Batch,
    pieces: VecDeque<(Bytes, Deliveries)>,
    /// Answers that were taken; when the body is asked for more, they count as handed to the connection.
    handed: Deliveries,
    flushes: Option<Arc<Flushes>>,
    every: Duration,
    drained: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Pouring {
    /// All answers as one array.
    fn array(&mut self) {
        let mut array = BytesMut::from(&b"["[..]);
        let mut deliveries = Vec::new();
        for (n, last) in std::mem::take(&mut self.batch.done).into_iter().enumerate() {
            if n > 0 {
                array.extend_from_slice(b",");
            }
            array.extend_from_slice(&last.message);
            deliveries.extend(last.delivery);
        }
        array.extend_from_slice(b"]");
        self.pieces.push_back((array.freeze(), deliveries));
    }

    fn into_body(self) -> Body {
        Body::from_stream(unfold(self, |mut pouring| async move {
            let piece = pouring.next().await?;
            Some((Ok::<_, std::convert::Infallible>(piece), pouring))
        }))
    }

    async fn next(&mut self) -> Option<Bytes> {
        // Before any wait: another call of this batch may be waiting to know what became of an answer.
        self.hand_over();
        if let Some((piece, deliveries)) = self.pieces.pop_front() {
            self.handed = deliveries;
            return Some(piece);
        }
        loop {
            if let Some(last) = self.batch.done.pop_front() {
                self.handed = last.delivery.into_iter().collect();
                return Some(sse::event(&last.message));
            }
            let Pouring { batch, drained, every, .. } = self;
            let over = async {
                match drained {
                    Some(drained) => drained.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                last = batch.waiting.next() => match last {
                    Some(last) => batch.done.extend(last),
                    None => return None,
                },
                () = over => {
                    self.drained = None;
                    self.batch.give_up();
                }
                () = tokio::time::sleep(*every) => return Some(sse::COMMENT),
            }
        }
    }

    /// What was taken before goes to the connection's next flush.
    fn hand_over(&mut self) {
        for answer in std::mem::take(&mut self.handed) {
            match &self.flushes {
                Some(flushes) => flushes.register(answer),
                None => {
                    let _ = answer.send(());
                }
            }
        }
    }
}
