//! Sessions of legacy clients: read in one statement, changed by one, each a transaction of its own.

use crate::read::{Readers, SESSION, count};
use crate::shared::Shared;
use ledger::store::{MAX_SESSIONS, MAX_SUBSCRIPTIONS, SESSION_TAKEN, Session, SessionChange, StoreError};
use ledger::words::Time;

/// Text that the database can't keep.
fn kept(text: &str) -> Result<(), StoreError> {
    if text.contains('\0') {
        return Err(StoreError::Unavailable("a text of a session has a zero character; leave it out".into()));
    }
    Ok(())
}

pub(crate) async fn find(readers: &Readers, id: &str) -> Result<Option<Session>, StoreError> {
    if id.contains('\0') {
        return Ok(None);
    }
    let rows = readers.rows(SESSION, &[&id]).await?;
    Ok(rows.first().map(|r| Session {
        id: id.to_owned(),
        principal: r.get(0),
        revision: r.get(1),
        client: r.get(2),
        log_level: r.get(3),
        opened_at: Time(r.get(4)),
        used_at: Time(r.get(5)),
        subscriptions: r.get(6),
    }))
}

pub(crate) async fn open(shared: &Shared, session: Session) -> Result<Vec<String>, StoreError> {
    let s = session.bounded()?;
    let texts =
        [&s.id, &s.principal, &s.revision, &s.client].into_iter().chain(&s.log_level).chain(&s.subscriptions);
    texts.into_iter().try_for_each(|t| kept(t))?;
    let row = shared
        .write_one(
            "SELECT open_session_1($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            &[
                &s.id,
                &s.principal,
                &s.revision,
                &s.client,
                &s.log_level,
                &s.opened_at.0,
                &s.used_at.0,
                &s.subscriptions,
                &count(MAX_SESSIONS),
            ],
        )
        .await?;
    row.get::<_, Option<Vec<String>>>(0).ok_or_else(|| StoreError::Unavailable(SESSION_TAKEN.into()))
}

pub(crate) async fn change(
    shared: &Shared,
    id: &str,
    change: SessionChange,
) -> Result<Option<Session>, StoreError> {
    let (kind, text) = match change.bounded()? {
        SessionChange::Used => (0_i16, None),
        SessionChange::LogLevel(level) => (1, Some(level)),
        SessionChange::Subscribe(uri) => (2, Some(uri)),
        // One that can't be kept was never subscribed to.
        SessionChange::Unsubscribe(uri) => (3, Some(uri.replace('\0', ""))),
    };
    if id.contains('\0') {
        return Ok(None);
    }
    kept(text.as_deref().unwrap_or_default())?;
    let row = shared
        .write_one(
            "SELECT change_session_1($1, $2, $3, $4, $5)",
            &[&id, &kind, &text, &shared.clock.now().0, &count(MAX_SUBSCRIPTIONS)],
        )
        .await?;
    if row.get::<_, Option<bool>>(0) != Some(true) {
        return Ok(None);
    }
    find(&shared.readers, id).await
}

pub(crate) async fn end(shared: &Shared, id: &str) -> Result<bool, StoreError> {
    if id.contains('\0') {
        return Ok(false);
    }
    let row = shared.write_one("SELECT end_sessions_1(ARRAY[$1::text])", &[&id]).await?;
    Ok(row.get::<_, i64>(0) > 0)
}

pub(crate) async fn prune(shared: &Shared, unused_since: Time, limit: usize) -> Result<usize, StoreError> {
    let mut pruned = 0;
    while pruned < limit {
        let step = (limit - pruned).min(500);
        let row =
            shared.write_one("SELECT prune_sessions_1($1, $2)", &[&unused_since.0, &count(step)]).await?;
        let n = usize::try_from(row.get::<_, i64>(0)).unwrap_or(0);
        pruned += n;
        if n < step {
            break;
        }
    }
    Ok(pruned)
}
