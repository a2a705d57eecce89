//! The ledger's [`Store`](ledger::store::Store) on SQLite: one group-committing writer, many readers.
//!
//! What it promises:
//!
//! - a write that was answered `Done` is on the disk (WAL, `synchronous=FULL`, checked at every start);
//! - all writes go through one thread, which commits whatever has gathered in one transaction and then
//!   answers; nobody waits for a timer, and readers never wait for the writer;
//! - one process per data directory (an operating-system lock), so a restart waits for no lease: each start
//!   is a new epoch, made durable before anything else;
//! - the ledger's time never goes behind a recorded moment, and a step of the wall clock is remembered;
//! - after an I/O error nothing more is read or written: the kernel may have dropped what it could not write,
//!   and only a new start, which replays the log, knows what is true. A full disk is no such error: it
//!   refuses new operations and lets those in flight land.
//!
//! Modules: `files` (directory, lock, disk space), `schema` (settings, tables, migrations), `clock`, `record`
//! (a record as a row), `queue` and `writer` (the group commit), `apply` (one write inside a transaction), `index` (by key
//! and by slot), `copier` (the log into the database),
//! `sessions` (what is kept of legacy clients), `handles` and `shelf` (what tools and replicas keep), `read` (the readers), `backup` (a copy made while it is in use).

mod apply;
mod backup;
mod claims;
mod clock;
mod copier;
#[cfg(feature = "faults")]
pub mod faults;
mod files;
mod handles;
mod index;
#[cfg(feature = "planted")]
pub mod planted;
mod queue;
mod read;
mod record;
mod schema;
mod sessions;
mod shelf;
mod store;
mod writer;

pub use backup::{Backup, BackupError};
pub use clock::{Clock, SystemClock};
pub use store::SqliteStore;

use ledger::store::Attention;
use ledger::words::Millis;
use std::path::PathBuf;
use std::sync::Arc;

/// The largest payload or record that is kept, in bytes. Whoever bounds requests and results bounds them
/// well below; this only keeps one write from holding up all others for long.
pub const MAX_PAYLOAD: usize = 64 << 20;

/// What a store is opened with.
#[derive(Clone)]
pub struct Config {
    /// The database file. Its directory is made if it isn't there (0700) and belongs to this ledger alone:
    /// `ledger.lock` and `ledger.ballast` lie beside the database.
    pub path: PathBuf,
    /// The name a new ledger gets. It is part of every effect key, so it is fixed for good then; an existing
    /// ledger keeps its own.
    pub ledger_name: String,
    /// When records want attention.
    pub attention: Attention,
    /// New operations are refused while fewer bytes than this are free.
    pub min_free: u64,
    /// Bytes set aside in a file that is given up when the disk is full, so that what is in flight can end;
    /// 0 for none.
    pub ballast: u64,
    /// A step of the wall clock beyond this is remembered (see `Store::clock_step`).
    pub clock_margin: Millis,
    /// It was restored from a backup: new operations wait until it is released. A database that was put back
    /// beside its own directory is noticed without this.
    pub restored: bool,
    /// Another clock than the system's, for tests.
    pub clock: Option<Arc<dyn Clock>>,
    /// The registered VFS through which SQLite reaches its files, for tests; `None`: the system's.
    #[cfg(feature = "faults")]
    pub vfs: Option<String>,
    /// Pages in the log (4 KiB each) after which it is copied into the database beside the commits.
    #[cfg(feature = "faults")]
    pub log_pages: u16,
    /// Rows whose keys and slots wait in memory before they go to their indexes.
    #[cfg(feature = "faults")]
    pub unindexed_rows: usize,
    /// Guards that are left out, for tests that have to notice it.
    #[cfg(feature = "planted")]
    pub planted: planted::Planted,
}

impl Config {
    /// The defaults: 64 MiB kept free, 64 MiB of ballast, one minute of clock margin.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, ledger_name: impl Into<String>) -> Config {
        Config {
            path: path.into(),
            ledger_name: ledger_name.into(),
            attention: Attention::default(),
            min_free: 64 << 20,
            ballast: 64 << 20,
            restored: false,
            clock_margin: Millis::secs(60),
            clock: None,
            #[cfg(feature = "faults")]
            vfs: None,
            #[cfg(feature = "faults")]
            log_pages: writer::FRAMES,
            #[cfg(feature = "faults")]
            unindexed_rows: index::ROWS,
            #[cfg(feature = "planted")]
            planted: planted::Planted::default(),
        }
    }
}

/// Why a ledger can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "the ledger is in use by {}; nothing was changed. Use the one that runs, or stop it first",
        .holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Locked {
        /// Its process id, if the lock says so.
        holder: Option<u32>,
    },
    /// The directory or a file in it can't be made or read.
    #[error(
        "the ledger's {what} can't be used ({error}); check that the directory exists and that this user may write in it"
    )]
    File {
        /// Which: the directory, the lock, the database.
        what: &'static str,
        /// What the system said.
        error: std::io::Error,
    },
    /// Locks and shared memory can't be relied on there.
    #[error(
        "the ledger's directory is on a network file system ({0}), whose locks and writes SQLite can't rely on; put it on a local disk"
    )]
    NetworkFileSystem(&'static str),
    /// The file is something else.
    #[error("the file is not a Counterfoil ledger; nothing was changed. Give another path")]
    NotALedger,
    /// A newer program wrote it, in a way that this one can't work with.
    #[error(
        "the ledger has schema {found}, on which only programs work that know schema {needed}, and this program knows up to {known}; nothing was changed. Use the newer program, or restore a backup from before the upgrade"
    )]
    Newer {
        /// The file's schema.
        found: u32,
        /// What a program must know to work on it.
        needed: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// A setting that durability rests on did not take.
    #[error("SQLite did not accept {0}, without which writes could be lost; nothing was changed")]
    Unsafe(&'static str),
    /// There is no room to start in.
    #[error("the disk is full; nothing was lost. Free some space and start again")]
    DiskFull,
    /// The database can't be read or written.
    #[error("the ledger's database can't be used ({0})")]
    Database(String),
}

/// An SQLite error for people: code and meaning, never SQL, values or paths.
pub(crate) fn describe(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(e, _) => {
            format!("SQLite error {}: {}", e.extended_code, rusqlite::ffi::code_to_str(e.extended_code))
        }
        rusqlite::Error::SqlInputError { error, .. } => {
            format!("SQLite error {}: a statement does not fit the schema", error.extended_code)
        }
        rusqlite::Error::StatementChangedRows(_) => "another process has opened the ledger meanwhile".into(),
        rusqlite::Error::QueryReturnedNoRows => "a row that must be there is missing".into(),
        _ => "a value in the database has an unexpected form".into(),
    }
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => OpenError::DiskFull,
            _ => OpenError::Database(describe(&error)),
        }
    }
}
