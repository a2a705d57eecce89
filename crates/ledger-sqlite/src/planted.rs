//! Guards of this store that a test can take away. What they guard against must then be noticed by some check;
//! a check that passes without its guard shows nothing.

use crate::OpenError;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// What is left out. Everything is there by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// Commits are not synced (`synchronous=NORMAL`): a power cut takes acknowledged writes with it.
    pub relaxed_sync: bool,
    /// The directory is not locked: a second process gets in. Nor are the first one's writes fenced by its epoch.
    pub unlocked: bool,
    /// A restored ledger is marked as held only after its epoch was begun: a crash in between lets it go unnoticed.
    pub hold_late: bool,
}

impl Planted {
    pub(crate) fn relax(self, db: &rusqlite::Connection) -> rusqlite::Result<()> {
        if self.relaxed_sync { db.execute_batch("PRAGMA synchronous = NORMAL") } else { Ok(()) }
    }
}

/// What `files::lock` gives, without taking the lock.
pub(crate) fn unlocked(dir: &Path) -> Result<File, OpenError> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false).mode(0o600);
    open.open(dir.join("ledger.lock")).map_err(|error| OpenError::File { what: "lock", error })
}
