//! What a store, its contract and its tasks have in common: connections with their statements, and what is known.

use crate::bus::{self, PgBus};
use crate::claims::Desk;
use crate::clock::LedgerClock;
use crate::link::{Link, lock};
use crate::queue::{Answered, Queue, Stopped, Work};
use crate::read::{Readers, ask};
use crate::replica::{self, Standing};
use crate::writer::WRITE;
use crate::{Config, Description};
use ledger::Env;
use ledger::figures::Figures;
use ledger::gaps::Gaps;
use ledger::store::{Identity, StoreError};
use ledger::words::{Epoch, Millis};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Why nothing is read or written after closing.
pub(crate) const CLOSED: &str = "the store was closed";

pub(crate) const WRITER: [&str; 1] = [WRITE];
pub(crate) const PULSE: [&str; replica::STATEMENTS + bus::SENDING.len()] = [
    replica::RENEW,
    replica::MARK,
    replica::LOOK,
    replica::REAP,
    replica::SHIFT,
    bus::SENDING[0],
    bus::SENDING[1],
    bus::SENDING[2],
];
pub(crate) const ASIDE: [&str; 8] = [
    "SELECT o_id, o_version, o_record FROM due_2($1, $2, $3, $4, $5, false)",
    "SELECT next_attention_1()",
    "SELECT id, version, record, prune_after FROM op WHERE prune_after < $1 AND (prune_after, id) > ($2, $3) AND expires_at < $1
     ORDER BY prune_after, id LIMIT $4",
    "SELECT records, graves FROM prune_1($1, 9::smallint, $2, $3, $4, $5, $6, $7)",
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = current_schema() AND c.relkind = 'r'",
    "SELECT ARRAY(SELECT epoch FROM replica WHERE ended_at IS NULL), (SELECT max(epoch) FROM replica)",
    "SELECT o_id, o_version, o_record FROM due_2($1, $2, $3, $4, $5, true)",
    "SELECT prune_claims_1($1, $2)",
];
pub(crate) const DUE: usize = 0;
pub(crate) const NEXT: usize = 1;
pub(crate) const EXPIRED: usize = 2;
pub(crate) const PRUNE: usize = 3;
pub(crate) const SIZE: usize = 4;
pub(crate) const LIVE: usize = 5;
pub(crate) const DUE_AT_REST: usize = 6;
pub(crate) const PRUNE_CLAIMS: usize = 7;

pub(crate) struct Links {
    /// The hot path.
    pub writers: Vec<Link>,
    /// The lease, and the bell: nothing that may take long.
    pub pulse: Link,
    /// Recovery, retention, sessions.
    pub aside: Link,
    /// Claims on allowances: what callers wait for before they begin.
    pub claims: Link,
}

/// What the store and its tasks have in common.
pub(crate) struct Shared {
    pub config: Config,
    pub instance: String,
    pub identity: Identity,
    pub gaps: Gaps,
    pub clock: LedgerClock,
    pub replica: Standing,
    pub links: Links,
    pub readers: Readers,
    pub queue: Queue,
    pub desk: Desk,
    pub bus: Arc<PgBus>,
    pub description: Mutex<Description>,
    pub figures: Mutex<Figures>,
    pub held: AtomicBool,
    pub closing: AtomicBool,
    pub close: Notify,
    pub bytes: AtomicU64,
    pub env: Arc<dyn Env>,
    /// Told why this process can't go on.
    pub on_fatal: OnFatal,
}

pub(crate) type OnFatal = Arc<dyn Fn(String) + Send + Sync>;

impl Shared {
    pub fn epoch(&self) -> Epoch {
        self.replica.epoch()
    }
    pub fn is_lapsed(&self) -> bool {
        self.replica.is_lapsed()
    }
    pub fn lapse(&self, epoch: Epoch) {
        self.replica.lapse(epoch);
    }
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
    pub fn figures(&self) -> MutexGuard<'_, Figures> {
        lock(&self.figures)
    }
    pub fn acknowledged(&self, epoch: Epoch, lane: i16, batch: i64) {
        self.replica.acknowledged(epoch, lane, batch);
    }
    pub fn set_held(&self, held: bool) {
        if self.held.swap(held, Ordering::AcqRel) != held {
            if held {
                tracing::warn!("the ledger is held: new operations wait until it is released");
            } else {
                tracing::info!("the ledger was released");
            }
        }
    }

    /// How far this machine's wall clock is ahead of the database's, milliseconds.
    pub fn skew(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Millis::from(since).0 - (self.clock.now().0 - self.clock.shift())
    }

    pub async fn ask(&self, work: Work) -> Answered {
        match self.queue.ask(work).await {
            Ok(answered) => answered,
            Err(Stopped) => Err(StoreError::Unavailable(CLOSED.into())),
        }
    }

    /// One statement that writes, beside the hot path. Its answer may be lost.
    pub async fn write_one(&self, sql: &str, args: &[&(dyn ToSql + Sync)]) -> Result<Row, StoreError> {
        let conn = self.links.aside.get().await?;
        let asked = conn.client.query_one(sql, args);
        ask(&conn, self.config.answer_within, asked).await.unwrap_or_else(|| Err(lost()))
    }

    pub async fn write_all(&self, sql: &str, args: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        let conn = self.links.aside.get().await?;
        let asked = conn.client.query(sql, args);
        ask(&conn, self.config.answer_within, asked).await.unwrap_or_else(|| Err(lost()))
    }

    /// One that does no harm if it is made twice.
    pub async fn again(
        &self,
        statement: usize,
        args: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        loop {
            let conn = self.links.aside.get().await?;
            let asked = conn.client.query(&conn.statements[statement], args);
            if let Some(answer) = ask(&conn, self.config.answer_within, asked).await {
                return answer;
            }
        }
    }

    pub fn usable(&self) -> Result<(), StoreError> {
        if self.is_closing() { Err(StoreError::Unavailable(CLOSED.into())) } else { Ok(()) }
    }
}

fn lost() -> StoreError {
    StoreError::Uncertain("the connection to the database was lost".into())
}
