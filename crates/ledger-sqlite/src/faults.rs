//! Faults for tests: chosen commits fail, a disk looks full.

use rusqlite::ffi;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// How a commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The sync fails; nothing was committed.
    Io,
    /// The sync reports a failure although everything was committed.
    IoAfterCommit,
    /// The disk is full.
    Full,
    /// The writer's code fails.
    Panic,
}

/// What is to fail.
#[derive(Debug, Default)]
pub struct Faults {
    plan: Mutex<(u64, BTreeMap<u64, Fault>)>,
}

impl Faults {
    /// Makes the `nth` commit from now (1: the next) fail. Each try counts, a retry too.
    pub fn fail(&self, nth: u64, fault: Fault) {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let at = plan.0 + nth;
        plan.1.insert(at, fault);
    }

    pub(crate) fn next(&self) -> Option<Fault> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.0 += 1;
        let now = plan.0;
        plan.1.remove(&now)
    }
}

impl Fault {
    pub(crate) fn error(self) -> rusqlite::Error {
        assert!(self != Fault::Panic, "a test ordered this");
        let code = if self == Fault::Full { ffi::SQLITE_FULL } else { ffi::SQLITE_IOERR_FSYNC };
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }
}
