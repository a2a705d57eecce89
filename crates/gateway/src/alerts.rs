//! Tells somebody: each alert as a small JSON document to a webhook. It carries no result and no argument,
//! only what is needed to look the operation up, and it never causes an effect.
//!
//! `{"alert", "operation": {"id", "tool", "mode", "principal", "state", "reason"?, "delivery"}, "at"}`, posted
//! at least once while the process lives: a receiver that does not answer with 2xx is tried three times.

use crate::metrics::Metrics;
use crate::view::{OperationView, rfc3339};
use http::{HeaderMap, HeaderValue};
use ledger::{Note, Observer, Store};
use mcp::client::{Sent, Transport};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::mpsc;

/// Alerts that may wait for a slow receiver; more are only counted and logged.
const QUEUE: usize = 1024;
const TRIES: u32 = 3;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Counts everything, and sends alerts on.
pub struct Alerting {
    metrics: Arc<Metrics>,
    clock: OnceLock<Weak<dyn Store>>,
    queue: mpsc::Sender<Value>,
}

impl Alerting {
    /// An observer that counts with `metrics` and posts alerts to `url`; call inside the runtime.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, url: String) -> Arc<Alerting> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(post_all(url, waiting));
        Arc::new(Alerting { metrics, clock: OnceLock::new(), queue })
    }

    /// Where the time of an alert is read.
    pub fn set_clock(&self, store: &Arc<dyn Store>) {
        let _ = self.clock.set(Arc::downgrade(store));
    }
}

impl Observer for Alerting {
    fn note(&self, note: Note<'_>) {
        if let Note::Alert { what, operation } = &note {
            let v = OperationView::from(*operation);
            let at = self.clock.get().and_then(Weak::upgrade).map(|s| rfc3339(s.now()));
            let body = json!({
                "alert": what,
                "at": at,
                "operation": {
                    "id": v.id, "tool": v.tool, "mode": v.mode, "principal": v.principal,
                    "state": v.state, "reason": v.reason, "delivery": v.delivery,
                },
            });
            if self.queue.try_send(body).is_err() {
                tracing::error!(operation = %operation.id, alert = what, "the webhook is too slow: an alert was not posted");
            }
        }
        self.metrics.note(note);
    }
}

async fn post_all(url: String, mut waiting: mpsc::Receiver<Value>) {
    let transport = Transport::new(Duration::from_secs(5), 64 << 10);
    let mut headers = HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    while let Some(body) = waiting.recv().await {
        let mut why = String::new();
        for n in 0..TRIES {
            tokio::time::sleep(Duration::from_secs(u64::from(n) * 2)).await;
            match transport.post(&url, headers.clone(), body.to_string().into(), TIMEOUT).await {
                Sent::Answered { status, .. } if status.is_success() => {
                    why.clear();
                    break;
                }
                Sent::Answered { status, .. } => why = format!("answered {status}"),
                Sent::NotSent(w) | Sent::Unknown(w) => why = w,
            }
        }
        if !why.is_empty() {
            tracing::error!(alert = %body["alert"], operation = %body["operation"]["id"], why, "the webhook did not take an alert");
        }
    }
}
