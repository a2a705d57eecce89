//! Answers for requests that no backend will answer: what happened, and what is safe now.

use super::{Entry, Table};
use bytes::Bytes;
use mcp::RpcError;
use mcp::message::Id;
use std::time::Duration;
use tokio::time::Instant;

impl Table {
    /// Answers for requests that waited longer than this for a backend, counted from when it was lost at the earliest.
    pub fn expire(&mut self, lost: Instant, now: Instant, limit: Duration) -> Vec<Bytes> {
        self.fail(|e| now.duration_since(e.since.max(lost)) >= limit, &|| {
            RpcError::internal(
                "The process that holds the ledger has ended, and no other could be reached in its place. This request \
                 may or may not have been carried out. Look before you make it again, or make it again with the same \
                 idempotency key.",
            )
        })
    }

    /// Answers for all requests: the ledger failed.
    pub fn fail_all(&mut self) -> Vec<Bytes> {
        self.fail(|_| true, &|| {
            RpcError::internal(
                "The ledger failed, and this server ends. This request may or may not have been carried out. Start the \
                 server again. Look before you make the request again, or make it again with the same idempotency key.",
            )
        })
    }

    /// Answers for all requests: there is no server.
    pub fn fail_start(&mut self) -> Vec<Bytes> {
        self.fail(|_| true, &|| {
            RpcError::internal("This server can't start, and nothing was carried out; its log says why.")
        })
    }

    fn fail(&mut self, which: impl Fn(&Entry) -> bool, why: &dyn Fn() -> RpcError) -> Vec<Bytes> {
        let over: Vec<Id> =
            self.entries.values().filter(|e| which(e)).flat_map(|e| e.ids.iter().cloned()).collect();
        let answer = |id: &Id| {
            self.take(id);
            why().with_data(serde_json::json!({ "kind": "unavailable" })).to_message(Some(id))
        };
        over.iter().map(answer).collect()
    }
}
