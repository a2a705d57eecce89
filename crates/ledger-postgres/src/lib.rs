//! The ledger's [`Store`](ledger::store::Store) on PostgreSQL 14 and newer: several replicas, one ledger.
//!
//! What it promises:
//!
//! - a write that was answered `Done` was committed with `synchronous_commit=on`; everything that waits is committed
//!   together, by one statement, and nobody waits for a timer;
//! - each boot of each replica is an epoch with a lease. Who can't renew it in time, by its own clock and counted from
//!   before the renewal was sent, takes a new epoch; who was ended by others writes nothing more under the old one;
//! - an acknowledgement that was lost is asked for again: a write is answered `Done` or `Stale` only if that is known;
//! - while the database is away, writes and reads wait for a bounded time and are then `Unavailable`, and the store
//!   connects again by itself;
//! - all times are the database's, put right where its clock was set;
//! - a ledger that is older than what this process was told is durable, or that comes from another cluster, is held.
//!
//! Everything that talks to the database runs on one thread of its own. Modules: `url` and `tls` (where it is), `link`
//! (one connection that comes back), `schema` (tables, functions, migrations), `record` and `rows` (a record as a row), `queue` and
//! `writer` (the group commit), `replica` (lease, epoch, others), `clock`, `read`, `sessions`, `bus` (news between
//! replicas), `checks` (facts for `doctor`), `store` (opening, and the contract).

mod bus;
mod checks;
mod claims;
mod clock;
mod contract;
mod handles;
mod link;
#[cfg(feature = "failpoints")]
pub mod newer;
mod queue;
mod read;
mod record;
mod replica;
mod rows;
mod schema;
mod sessions;
mod shared;
mod store;
mod tls;
mod url;
mod writer;

pub use bus::PgBus;
pub use checks::{Check, Replica, Verdict};
pub use store::PgStore;

use ledger::store::{Attention, StoreError};
use ledger::words::Millis;
use std::time::Duration;

/// The largest payload or record that is kept, in bytes.
pub const MAX_PAYLOAD: usize = 64 << 20;

/// What a change of the server's timeline means: that another server took over, or that an earlier state was put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failover {
    /// The ledger is held: acknowledged writes may be missing, unless a standby was synchronous.
    #[default]
    Hold,
    /// The operator says that only a standby that has every acknowledged write is ever promoted: the ledger goes on, if it
    /// was in use within [`FAILOVER_WITHIN`]. (What was put back from a backup is older.)
    Synchronous,
}

/// How fresh a ledger must be for a change of timeline to be taken for a failover.
pub const FAILOVER_WITHIN: Millis = Millis::secs(300);

/// What a replica says of itself, for the others and for `doctor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The server's name as it tells it to clients; part of what they sign and cache.
    pub server_name: String,
    /// The program's version.
    pub version: String,
    /// A hash of everything in the configuration that has to be the same everywhere.
    pub fingerprint: String,
    /// Where it listens.
    pub listen: String,
}

/// What a store is opened with.
#[derive(Clone)]
pub struct Config {
    /// `postgres://user:password@host:port/database?sslmode=…`. Never logged.
    pub url: String,
    /// The schema in the database that the ledger lives in; made if it isn't there.
    pub schema: String,
    /// The name a new ledger gets. It is part of every effect key, so it is fixed for good then.
    pub name: String,
    /// A name for this replica that no other one has at the same time (a pod's or a host's name). A boot under the same
    /// name ends the one before it at once. Empty: a random one, and what an earlier boot left waits for its lease.
    pub instance: String,
    /// How this replica describes itself from the start.
    pub description: Description,
    /// When records want attention.
    pub attention: Attention,
    /// How long a replica is thought alive without a sign of life; at least 300 ms. A takeover takes about as long.
    pub lease: Millis,
    /// How long a write or a read waits for a database that is away.
    pub patience: Duration,
    /// How long an answer of the database may take before its connection is given up.
    pub answer_within: Duration,
    /// A step of the database's clock beyond this is remembered (see `Store::clock_step`).
    pub clock_margin: Millis,
    /// It was restored from a backup: new operations wait until it is released.
    pub restored: bool,
    /// What a change of timeline means.
    pub failover: Failover,
    /// Connections for writing: one or two. While one waits for the disk the other gives the server work, if there is
    /// enough of it.
    pub writers: usize,
    /// Connections for reading.
    pub readers: usize,
    /// Whether a ledger is made where there is none. What only looks must not: a database may be named by mistake.
    pub make: bool,
}

impl Config {
    /// The defaults: schema `counterfoil`, a lease of 15 s, 5 s of patience, 15 s for an answer, 5 s of clock margin, two
    /// readers.
    #[must_use]
    pub fn new(url: impl Into<String>, name: impl Into<String>) -> Config {
        Config {
            url: url.into(),
            schema: "counterfoil".into(),
            name: name.into(),
            instance: String::new(),
            description: Description::default(),
            attention: Attention::default(),
            lease: Millis::secs(15),
            patience: Duration::from_secs(5),
            answer_within: Duration::from_secs(15),
            clock_margin: Millis::secs(5),
            restored: false,
            failover: Failover::default(),
            writers: 2,
            readers: 2,
            make: true,
        }
    }
}

/// Why a ledger can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address can't be used.
    #[error(
        "the ledger's database address can't be used ({0}); give postgres://user:password@host:port/database?sslmode=…"
    )]
    Address(String),
    /// A setting is out of bounds.
    #[error("{0}")]
    Setting(&'static str),
    /// No connection.
    #[error("the ledger's database can't be reached ({0}); check that it runs, the address and the password")]
    Unreachable(String),
    /// It is not fit for a ledger.
    #[error("{0}; nothing was changed")]
    Unfit(String),
    /// The schema is something else.
    #[error(
        "the schema holds tables that are no Counterfoil ledger; nothing was changed. Give another schema"
    )]
    NotALedger,
    /// There is none, and none was to be made.
    #[error(
        "there is no ledger in this schema yet; nothing was changed. Start the server once, or give the schema that it uses"
    )]
    Missing,
    /// A newer program migrated it, in a way that this one can't work with.
    #[error(
        "the ledger has schema {found}, on which only programs work that know schema {needed}, and this program knows up to {known}; nothing was changed. Use the newer program: an upgrade goes on by starting replicas of it until all are new"
    )]
    Newer {
        /// The database's schema.
        found: u32,
        /// What a program must know to work on it.
        needed: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// A step of the schema would break replicas that are alive.
    #[error(
        "this program has to change the ledger's schema so that only programs work on it that know schema {needed}, and replicas are running that don't: {names}. Nothing was changed. Stop them first, then start this one; one that is gone already counts as running until its lease has lapsed"
    )]
    OlderAlive {
        /// What a program must know afterwards.
        needed: u32,
        /// Who is in the way, with their versions.
        names: String,
    },
    /// The database refused.
    #[error("the ledger's database can't be used ({0})")]
    Database(String),
}

/// An error of the database for people: code and kind, never SQL, values or addresses.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        // These speak of the server; the messages of others may quote values.
        Some(e)
            if ["08", "0A", "25", "28", "3D", "42", "53", "57", "58"]
                .iter()
                .any(|c| e.code().code().starts_with(c)) =>
        {
            format!("PostgreSQL error {}: {}", e.code().code(), e.message())
        }
        Some(e) => format!("PostgreSQL error {}", e.code().code()),
        None if error.is_closed() => "the connection is closed".into(),
        None => {
            let cause = std::error::Error::source(error).map(|e| format!(": {e}")).unwrap_or_default();
            format!("{error}{cause}")
        }
    }
}

impl From<tokio_postgres::Error> for OpenError {
    fn from(error: tokio_postgres::Error) -> Self {
        OpenError::Database(describe(&error))
    }
}

/// Whether the server itself refused a statement, so that nothing of it stands. Anything graver than `ERROR` may come
/// after a commit: a session that is ended while it waits for a standby, for one.
pub(crate) fn is_definite(error: &tokio_postgres::Error) -> bool {
    use tokio_postgres::error::Severity;
    error.as_db_error().is_some_and(|e| e.parsed_severity() == Some(Severity::Error))
}

/// Whether another's work was in the way, so that the same may well succeed a moment later.
pub(crate) fn is_in_the_way(error: &tokio_postgres::Error) -> bool {
    use tokio_postgres::error::SqlState;
    let passing =
        [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE, SqlState::LOCK_NOT_AVAILABLE];
    error.code().is_some_and(|c| passing.contains(c))
}

/// Whether the server takes no writes.
pub(crate) fn is_read_only(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&tokio_postgres::error::SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// What is said of something that was not made: if it is `unsure`, an earlier try may have been.
pub(crate) fn not_made(unsure: bool, why: String) -> StoreError {
    if unsure { StoreError::Uncertain(why) } else { StoreError::Unavailable(why) }
}

pub(crate) fn unavailable(error: &tokio_postgres::Error) -> StoreError {
    StoreError::Unavailable(describe(error))
}
