//! A copy of the database, made while it is in use.
//!
//! Promises: the copy is the ledger at one moment, whole and checked, on the disk before it has its name, this user's
//! only, and never in the place of a file that was there. It says of itself that it is a copy: whoever opens it holds new
//! operations, for it is older than the world by then.

use crate::{describe, schema};
use ledger::words::Time;
use rusqlite::Connection;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A copy that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Its size, bytes.
    pub bytes: u64,
    /// When it was begun, in the ledger's time: what it doesn't know is younger.
    pub at: Time,
}

/// Why there is no copy. Nothing is left of it, and the ledger is as it was.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file is in its place.
    #[error("there is a file of that name already, and nothing is overwritten; give another name")]
    Exists,
    /// The file can't be made.
    #[error("the copy can't be written ({0}); check that its directory exists, is writable and has room")]
    File(#[from] std::io::Error),
    /// The database can't be read, or its copy is not sound.
    #[error("the database can't be copied ({0})")]
    Database(String),
}

impl From<rusqlite::Error> for BackupError {
    fn from(e: rusqlite::Error) -> Self {
        BackupError::Database(describe(&e))
    }
}

/// A file under another name until it is whole; removed if it never gets there.
struct Part {
    path: PathBuf,
}

impl Drop for Part {
    fn drop(&mut self) {
        for end in ["", "-journal", "-wal", "-shm"] {
            let mut name = self.path.clone().into_os_string();
            name.push(end);
            let _ = std::fs::remove_file(name);
        }
    }
}

/// Copies the database to a new file. Neither writer nor readers wait for it.
pub(crate) fn copy(place: &schema::Place, to: &Path, at: Time) -> Result<Backup, BackupError> {
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists);
    }
    let name = to.file_name().ok_or_else(|| std::io::Error::from(ErrorKind::InvalidFilename))?;
    let dir = match to.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let mut part = std::ffi::OsString::from(".");
    part.push(name);
    part.push(format!(".{}.part", std::process::id()));
    let part = dir.join(part);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    let part = Part { path: part };
    let text = part.path.to_str().ok_or_else(|| std::io::Error::from(ErrorKind::InvalidFilename))?;

    let from = schema::reader(place)?;
    // The file itself is open for reading only, and what is written is another one.
    from.execute_batch("PRAGMA query_only = OFF")?;
    from.execute("VACUUM INTO ?1", [text])?;
    drop(from);
    mark(&part.path, at)?;
    let file = File::open(&part.path)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    publish(&part.path, to)?;
    File::open(dir)?.sync_all()?;
    Ok(Backup { bytes, at })
}

/// Says in the copy that it is one, and checks it.
fn mark(path: &Path, at: Time) -> Result<(), BackupError> {
    let copy = Connection::open(path)?;
    copy.execute_batch("PRAGMA synchronous = FULL; CREATE TABLE copied (at INTEGER NOT NULL) STRICT;")?;
    copy.execute("INSERT INTO copied (at) VALUES (?1)", [at.0])?;
    let sound: String = copy.query_row("PRAGMA quick_check(1)", [], |r| r.get(0))?;
    if sound != "ok" {
        return Err(BackupError::Database("its copy is not sound; look at the disk".into()));
    }
    copy.close().map_err(|(_, e)| e.into())
}

/// Gives a whole file its name, if that is free.
fn publish(part: &Path, to: &Path) -> Result<(), BackupError> {
    let taken = |e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists => BackupError::Exists,
        _ => e.into(),
    };
    match std::fs::hard_link(part, to) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            // A file system without links: the name is taken first, and its own empty file replaced.
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(taken)?;
            Ok(std::fs::rename(part, to)?)
        }
        done => done.map_err(taken),
    }
}

/// Whether the database is such a copy, opened for the first time.
pub(crate) fn is_copy(db: &Connection) -> rusqlite::Result<bool> {
    db.query_row("SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = 'copied'", [], |r| {
        r.get(0)
    })
}

/// From here on it is a ledger of its own. Call it once what follows from its being a copy is durable.
pub(crate) fn adopt(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch("DROP TABLE IF EXISTS copied")
}
