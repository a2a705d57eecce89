//! Sessions of legacy clients: read in one statement, changed inside the writer's transaction, so that no change is
//! lost between two.

use crate::queue::{Answer, Answered};
use ledger::store::{MAX_SESSIONS, MAX_SUBSCRIPTIONS, SESSION_TAKEN, Session, SessionChange, StoreError};
use ledger::words::Time;
use rusqlite::{Connection, OptionalExtension as _, Result, params};

/// Why no session is opened on a full disk.
pub(crate) const DISK_LOW: &str =
    "the disk is nearly full, so no new session is opened; free some space and try again";

/// What the writer is asked to do with sessions. What is in it is within its bounds.
pub(crate) enum Work {
    Open(Session),
    Change(String, SessionChange),
    End(String),
    Prune { unused_since: Time, limit: usize },
}

impl Work {
    /// About how much it writes.
    pub fn bytes(&self) -> usize {
        match self {
            Work::Open(s) => s.client.len() + s.subscriptions.iter().map(String::len).sum::<usize>(),
            Work::Change(_, SessionChange::Subscribe(uri)) => uri.len(),
            _ => 0,
        }
    }
}

/// The session with this id. One statement, so one moment of the database.
pub(crate) fn find(db: &Connection, id: &str) -> Result<Option<Session>> {
    let mut statement = db.prepare_cached(
        "SELECT s.principal, s.revision, s.client, s.log_level, s.opened_at, s.used_at, u.uri
         FROM session s LEFT JOIN session_uri u ON u.session_seq = s.seq WHERE s.id = ?1 ORDER BY u.uri",
    )?;
    let mut rows = statement.query([id])?;
    let mut found: Option<Session> = None;
    while let Some(r) = rows.next()? {
        let session = match &mut found {
            Some(session) => session,
            None => found.insert(Session {
                id: id.to_owned(),
                principal: r.get(0)?,
                revision: r.get(1)?,
                client: r.get(2)?,
                log_level: r.get(3)?,
                subscriptions: Vec::new(),
                opened_at: Time(r.get(4)?),
                used_at: Time(r.get(5)?),
            }),
        };
        session.subscriptions.extend(r.get::<_, Option<String>>(6)?);
    }
    Ok(found)
}

/// Does `work` at `now`. Without `creations` (the disk is full) nothing is opened. Also says whether the database
/// changed.
pub(crate) fn apply(db: &Connection, work: &Work, creations: bool, now: Time) -> Result<(Answered, bool)> {
    match work {
        Work::Open(_) if !creations => Ok((Err(StoreError::Unavailable(DISK_LOW.into())), false)),
        Work::Open(session) => open(db, session),
        Work::Change(id, change) => {
            let Some(seq) = seq(db, id)? else { return Ok((Ok(Answer::Session(None)), false)) };
            let changed = change_one(db, seq, change, now)?;
            Ok((Ok(Answer::Session(find(db, id)?.map(Box::new))), changed))
        }
        Work::End(id) => {
            let seq = seq(db, id)?;
            if let Some(seq) = seq {
                remove(db, seq)?;
            }
            Ok((Ok(Answer::SessionsGone(usize::from(seq.is_some()))), seq.is_some()))
        }
        Work::Prune { unused_since, limit } => {
            let old = db
                .prepare_cached("SELECT seq FROM session WHERE used_at < ?1 ORDER BY used_at, id LIMIT ?2")?
                .query_map(params![unused_since.0, i64::try_from(*limit).unwrap_or(i64::MAX)], |r| r.get(0))?
                .collect::<Result<Vec<i64>>>()?;
            for seq in &old {
                remove(db, *seq)?;
            }
            Ok((Ok(Answer::SessionsGone(old.len())), !old.is_empty()))
        }
    }
}

fn seq(db: &Connection, id: &str) -> Result<Option<i64>> {
    db.prepare_cached("SELECT seq FROM session WHERE id = ?1")?.query_row([id], |r| r.get(0)).optional()
}

fn open(db: &Connection, s: &Session) -> Result<(Answered, bool)> {
    if seq(db, &s.id)?.is_some() {
        return Ok((Err(StoreError::Unavailable(SESSION_TAKEN.into())), false));
    }
    db.prepare_cached(
        "INSERT INTO session (id, principal, revision, client, log_level, opened_at, used_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        s.id,
        s.principal,
        s.revision,
        s.client,
        s.log_level,
        s.opened_at.0,
        s.used_at.0
    ])?;
    let seq = db.last_insert_rowid();
    for uri in &s.subscriptions {
        subscribe(db, seq, uri)?;
    }
    Ok((Ok(Answer::SessionsEnded(make_room(db, &s.principal, seq)?)), true))
}

/// Ends what a principal has beyond its most, but never the session `new`: first what was never used, oldest first, then
/// what was unused for longest. Gives their ids.
fn make_room(db: &Connection, principal: &str, new: i64) -> Result<Vec<String>> {
    let held: i64 = db
        .prepare_cached("SELECT count(*) FROM session WHERE principal = ?1")?
        .query_row([principal], |r| r.get(0))?;
    let beyond = held - MAX_SESSIONS as i64;
    if beyond <= 0 {
        return Ok(Vec::new());
    }
    let old = db
        .prepare_cached(
            "SELECT seq, id FROM session WHERE principal = ?1 AND seq <> ?2
             ORDER BY used_at <> opened_at, used_at, id LIMIT ?3",
        )?
        .query_map(params![principal, new, beyond], |r| Ok((r.get(0)?, r.get(1)?)))?
        .collect::<Result<Vec<(i64, String)>>>()?;
    for (seq, _) in &old {
        remove(db, *seq)?;
    }
    Ok(old.into_iter().map(|(_, id)| id).collect())
}

fn subscribe(db: &Connection, seq: i64, uri: &str) -> Result<usize> {
    db.prepare_cached(
        "INSERT INTO session_uri (session_seq, uri) VALUES (?1, ?2) ON CONFLICT (session_seq, uri) DO NOTHING",
    )?
    .execute(params![seq, uri])
}

/// Whether anything changed.
fn change_one(db: &Connection, seq: i64, change: &SessionChange, now: Time) -> Result<bool> {
    let changed = match change {
        SessionChange::Used => db
            .prepare_cached("UPDATE session SET used_at = ?2 WHERE seq = ?1")?
            .execute(params![seq, now.0])?,
        SessionChange::LogLevel(level) => db
            .prepare_cached("UPDATE session SET log_level = ?2 WHERE seq = ?1 AND log_level IS NOT ?2")?
            .execute(params![seq, level])?,
        SessionChange::Subscribe(uri) => {
            let held: i64 = db
                .prepare_cached("SELECT count(*) FROM session_uri WHERE session_seq = ?1")?
                .query_row([seq], |r| r.get(0))?;
            if usize::try_from(held).is_ok_and(|n| n < MAX_SUBSCRIPTIONS) {
                subscribe(db, seq, uri)?
            } else {
                0
            }
        }
        SessionChange::Unsubscribe(uri) => db
            .prepare_cached("DELETE FROM session_uri WHERE session_seq = ?1 AND uri = ?2")?
            .execute(params![seq, uri])?,
    };
    Ok(changed > 0)
}

fn remove(db: &Connection, seq: i64) -> Result<()> {
    db.prepare_cached("DELETE FROM session_uri WHERE session_seq = ?1")?.execute([seq])?;
    db.prepare_cached("DELETE FROM session WHERE seq = ?1")?.execute([seq])?;
    Ok(())
}
