//! Copies the log into the database beside the writer, on a connection and a thread of its own, so that commits don't wait
//! for the pages that lie scattered.
//!
//! What is copied is synced before SQLite counts it as copied, so a failure here leaves the log whole. The writer looks at
//! the outcome before it makes or begins another checkpoint: after a failed sync none may follow, since one that
//! seems to succeed would let go of a log whose pages never reached the disk.

use crate::{describe, schema};
use rusqlite::{Connection, ErrorCode};
use std::thread::JoinHandle;

/// What one pass came to: frames of the log that are in the database now, or `None` if it has to be tried later.
type Passed = Result<Option<i32>, String>;

pub(crate) struct Copier {
    place: schema::Place,
    /// Opened for the first pass, and kept.
    kept: Option<Connection>,
    pass: Option<JoinHandle<(Option<Connection>, Passed)>>,
}

impl Copier {
    pub fn new(place: schema::Place) -> Copier {
        Copier { place, kept: None, pass: None }
    }

    /// Begins a pass, unless one is under way. Whether one is now: there may be no room for a thread.
    pub fn begin(&mut self) -> bool {
        if self.pass.is_none() {
            let (place, kept) = (self.place.clone(), self.kept.take());
            let copy = move || match kept.map_or_else(|| schema::copier(&place), Ok) {
                Ok(db) => {
                    let passed = pass(&db);
                    (Some(db), passed)
                }
                Err(e) => (None, judge(&e)),
            };
            self.pass = std::thread::Builder::new().name("ledger-copier".into()).spawn(copy).ok();
        }
        self.pass.is_some()
    }

    /// A pass is under way, or its outcome was not looked at yet.
    pub fn is_busy(&self) -> bool {
        self.pass.is_some()
    }

    /// A pass has ended, so that [`Copier::end`] doesn't wait.
    pub fn has_ended(&self) -> bool {
        self.pass.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Waits for the pass, if there is one.
    ///
    /// # Errors
    /// The state of the disk is unknown.
    pub fn end(&mut self) -> Passed {
        let Some(pass) = self.pass.take() else { return Ok(None) };
        match pass.join() {
            Ok((db, passed)) => {
                self.kept = db;
                passed
            }
            Err(_) => Err("copying the log failed unexpectedly".into()),
        }
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        // The directory is let go after this: nothing of this process may touch the database then.
        if let Err(why) = self.end() {
            tracing::error!(
                "the log could not be copied into the database ({why}); the next start replays it"
            );
        }
    }
}

fn pass(db: &Connection) -> Passed {
    let row = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |r| Ok((r.get(0)?, r.get(2)?)));
    match row {
        Ok((0_i32, copied)) => Ok(Some(copied)),
        Ok(_) => Ok(None),
        Err(e) => judge(&e),
    }
}

/// What a failed checkpoint means: the log keeps what could not be copied, or nothing is known any more.
pub(crate) fn judge(error: &rusqlite::Error) -> Passed {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            tracing::warn!(
                "the log could not be copied into the database now ({}); trying again later",
                describe(error)
            );
            Ok(None)
        }
        _ => Err(describe(error)),
    }
}
