//! What can go wrong when a gateway is assembled and run.

use crate::config::ConfigError;
use std::net::SocketAddr;

/// What a second process on an SQLite ledger is told.
const REPLICAS: &str = ". A ledger on SQLite has one process; for several replicas put it into PostgreSQL ([ledger] url = \"postgres://…\")";

fn more(e: &ledger_sqlite::OpenError) -> &'static str {
    if matches!(e, ledger_sqlite::OpenError::Locked { .. }) { REPLICAS } else { "" }
}

/// Why a gateway can't be started, or stopped. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration, a manifest, or what they name together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The ledger can't be opened. A second process on an SQLite ledger is told how there can be more.
    #[error("{0}{more}", more = more(.0))]
    Open(#[from] ledger_sqlite::OpenError),
    /// The ledger in PostgreSQL can't be opened.
    #[error(transparent)]
    OpenPostgres(#[from] ledger_postgres::OpenError),
    /// Another process has the data directory.
    #[error(
        "the directory {} is in use by {}; nothing was changed. Give each replica on one machine its own, with --data or [ledger] data",
        .directory.display(),
        .holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Directory {
        /// The directory.
        directory: std::path::PathBuf,
        /// Whose it is, if the lock says so.
        holder: Option<u32>,
    },
    /// The ledger can't be read or written.
    #[error(transparent)]
    Store(#[from] ledger::StoreError),
    /// The bus can't be used.
    #[error("{0}")]
    Bus(String),
    /// The key ring can't be opened.
    #[error(transparent)]
    Seal(#[from] seal::Error),
    /// The sandbox provider can't be started.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
    /// The address can't be bound.
    #[error(
        "the gateway can't listen on {address}: {source}; stop what uses the port, or choose another address with --listen"
    )]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The endpoint's settings.
    #[error(transparent)]
    Endpoint(#[from] mcp::Error),
    /// A file or socket of the data directory.
    #[error("{what} can't be used: {source}; check that the directory is yours and writable")]
    File {
        /// Which.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The ledger failed while it ran. Nothing more is read or written until it is opened again.
    #[error("{0}. What was answered is kept; start again, and what was under way is taken up")]
    Fatal(String),
    /// The process that holds the ledger doesn't answer on its control socket.
    #[error(
        "the process that holds the ledger can't be asked ({0}); nothing was changed. If it is busy or stopping, try again; if it is older than this program, restart it"
    )]
    Control(String),
    /// The process that holds the ledger was asked on its control socket, and its answer did not come.
    #[error(
        "the process that holds the ledger gave no answer ({0}); what was asked may have been done, so look before you repeat it. If the process is older than this program, restart it"
    )]
    Unanswered(String),
    /// The process that holds the ledger can't serve the clients of this one.
    #[error("{0}")]
    Holder(String),
    /// The process that holds the ledger refuses the clients of this one.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// Whether a person must change something first (as opposed to trying again).
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        use ledger_sqlite::OpenError;
        match self {
            Error::Config(_) | Error::Endpoint(_) | Error::Refused(_) | Error::Bus(_) => true,
            Error::Seal(e) => e.is_configuration(),
            Error::OpenPostgres(e) => !matches!(
                e,
                ledger_postgres::OpenError::Unreachable(_) | ledger_postgres::OpenError::Database(_)
            ),
            Error::Open(e) => !matches!(e, OpenError::Locked { .. } | OpenError::Database(_)),
            Error::Sandbox(e) => matches!(e, sandbox::Error::NotLoopback(_) | sandbox::Error::Corrupt { .. }),
            Error::Store(_)
            | Error::Directory { .. }
            | Error::Bind { .. }
            | Error::File { .. }
            | Error::Fatal(_)
            | Error::Control(_)
            | Error::Unanswered(_)
            | Error::Holder(_) => false,
        }
    }
}
