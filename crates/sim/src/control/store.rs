//! The records, in a database of their own. Each step is one transaction, on disk before it is reported.

use anyhow::{Context, Result};
use rusqlite::{Connection, OptionalExtension, params};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// For how long an answer is kept.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// What a claim came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nobody else runs it: the caller of this function does.
    Run,
    /// It ran; this was answered.
    Completed(String),
    /// It runs somewhere, and its expiry has not come.
    InProgress,
    /// The key was used with another payload.
    Mismatch,
}

/// The records.
pub struct Store {
    db: Mutex<Connection>,
    in_progress: Duration,
}

impl Store {
    /// Opens or creates the file. A run is taken for dead `in_progress` after it was claimed.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open(file: &Path, in_progress: Duration) -> Result<Store> {
        let db = Connection::open(file).context("the control's database")?;
        db.busy_timeout(Duration::from_secs(5))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(
            "CREATE TABLE IF NOT EXISTS record (
                id TEXT PRIMARY KEY,
                payload TEXT NOT NULL,
                status TEXT NOT NULL CHECK (status IN ('in_progress', 'completed')),
                in_progress_until INTEGER NOT NULL,
                expires INTEGER NOT NULL,
                response TEXT
            )",
        )?;
        Ok(Store { db: Mutex::new(db), in_progress })
    }

    fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what expired.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn sweep(&self) -> Result<()> {
        self.db().execute("DELETE FROM record WHERE expires < ?1", [millis(Duration::ZERO)])?;
        Ok(())
    }

    /// Claims a key, if it is new, expired, or left in progress past its expiry.
    ///
    /// # Errors
    /// What SQLite says: nothing may run then.
    pub fn claim(&self, id: &str, payload: &str) -> Result<Claim> {
        let db = self.db();
        let claimed = db.execute(
            "INSERT INTO record (id, payload, status, in_progress_until, expires) VALUES (?1, ?2, 'in_progress', ?3, ?4)
             ON CONFLICT (id) DO UPDATE SET
                payload = excluded.payload, status = excluded.status, response = NULL,
                in_progress_until = excluded.in_progress_until, expires = excluded.expires
             WHERE record.expires < ?5
                OR (record.status = 'in_progress' AND record.in_progress_until < ?5 AND record.payload = ?2)",
            params![id, payload, millis(self.in_progress), millis(KEPT), millis(Duration::ZERO)],
        )?;
        if claimed == 1 {
            return Ok(Claim::Run);
        }
        let row: Option<(String, Option<String>)> = db
            .query_row("SELECT payload, response FROM record WHERE id = ?1", [id], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        Ok(match row {
            Some((other, _)) if other != payload => Claim::Mismatch,
            Some((_, Some(response))) => Claim::Completed(response),
            // Deleted in between, too: the next look finds that out.
            _ => Claim::InProgress,
        })
    }

    /// Stores the answer.
    ///
    /// # Errors
    /// What SQLite says: the answer must not leave then.
    pub fn complete(&self, id: &str, response: &str) -> Result<()> {
        self.db().execute(
            "UPDATE record SET status = 'completed', response = ?2, expires = ?3 WHERE id = ?1",
            params![id, response, millis(KEPT)],
        )?;
        Ok(())
    }

    /// Takes the claim back after an error, so that a retry runs.
    ///
    /// # Errors
    /// What SQLite says: a retry waits for the expiry then.
    pub fn delete(&self, id: &str) -> Result<()> {
        self.db().execute("DELETE FROM record WHERE id = ?1", [id])?;
        Ok(())
    }
}

/// The wall clock `later`, in milliseconds since 1970.
fn millis(later: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from((now + later).as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_record_is_claimed_once_kept_when_completed_and_claimed_again_when_deleted_or_expired() {
        let store = Store::open(Path::new(":memory:"), Duration::from_millis(60)).unwrap();
        assert_eq!(store.claim("a", "{}").unwrap(), Claim::Run);
        assert_eq!(store.claim("a", "{}").unwrap(), Claim::InProgress);
        assert_eq!(store.claim("a", "[]").unwrap(), Claim::Mismatch);
        assert_eq!(store.claim("b", "{}").unwrap(), Claim::Run);
        store.delete("b").unwrap();
        assert_eq!(store.claim("b", "{}").unwrap(), Claim::Run);
        store.complete("b", "done").unwrap();
        std::thread::sleep(Duration::from_millis(80));
        store.sweep().unwrap();
        // What runs for too long is taken for dead, what is completed is not.
        assert_eq!(store.claim("a", "[]").unwrap(), Claim::Mismatch);
        assert_eq!(store.claim("a", "{}").unwrap(), Claim::Run);
        assert_eq!(store.claim("b", "{}").unwrap(), Claim::Completed("done".into()));
    }
}
