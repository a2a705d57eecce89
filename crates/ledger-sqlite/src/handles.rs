//! Handles of tools: changed together with a record, inside the writer's transaction; found by one statement, whether they
//! are unknown, another's or gone.

use ledger::handle::{Handle, HandleChange, MAX_HANDLES};
use ledger::store::Committed;
use ledger::words::{Millis, Time};
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};

const COLUMNS: &str = "id_hash, principal, kind, version, created_at, used_at, idle, absolute, value";

fn handle(r: &Row<'_>) -> Result<Handle> {
    Ok(Handle {
        id_hash: r.get(0)?,
        principal: r.get::<_, String>(1)?.into(),
        kind: r.get(2)?,
        version: r.get::<_, i64>(3)?.cast_unsigned(),
        created_at: Time(r.get(4)?),
        used_at: Time(r.get(5)?),
        idle: Millis(r.get(6)?),
        absolute: Millis(r.get(7)?),
        value: r.get(8)?,
    })
}

pub(crate) fn find(
    db: &Connection,
    id_hash: &[u8; 32],
    principal: &str,
    now: Time,
) -> Result<Option<Handle>> {
    let sql =
        format!("SELECT {COLUMNS} FROM handle WHERE id_hash = ?1 AND principal = ?2 AND expires_at > ?3");
    db.prepare_cached(&sql)?.query_row(params![id_hash, principal, now.0], handle).optional()
}

/// A principal's, of one kind or of all.
pub(crate) fn list(
    db: &Connection,
    principal: &str,
    kind: Option<&str>,
    after: Option<[u8; 32]>,
    limit: usize,
    now: Time,
) -> Result<Vec<Handle>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM handle INDEXED BY handle_principal
         WHERE principal = ?1 AND id_hash > ?2 AND (?3 IS NULL OR kind = ?3) AND expires_at > ?4 ORDER BY id_hash LIMIT ?5"
    );
    // No hash is shorter, so all of them come after nothing.
    let after = after.map_or_else(Vec::new, |a| a.to_vec());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    db.prepare_cached(&sql)?.query_map(params![principal, after, kind, now.0, limit], handle)?.collect()
}

/// Why these changes can't be made, if they can't. Changes nothing.
pub(crate) fn refused(db: &Connection, changes: &[HandleChange]) -> Result<Option<Committed>> {
    for c in changes {
        let principal: &str = c.principal();
        let version = || -> Result<Option<u64>> {
            let sql = "SELECT version FROM handle WHERE id_hash = ?1 AND principal = ?2 AND expires_at > ?3";
            let found: Option<i64> = db
                .prepare_cached(sql)?
                .query_row(params![c.id_hash(), principal, c.at().0], |r| r.get(0))
                .optional()?;
            Ok(found.map(i64::cast_unsigned))
        };
        let fits = match c {
            HandleChange::Create(h) => {
                let held: i64 = db
                    .prepare_cached("SELECT count(*) FROM handle INDEXED BY handle_principal WHERE principal = ?1 AND expires_at > ?2")?
                    .query_row(params![principal, h.created_at.0], |r| r.get(0))?;
                if held >= MAX_HANDLES as i64 {
                    return Ok(Some(Committed::HandlesFull));
                }
                !db.prepare_cached("SELECT 1 FROM handle WHERE id_hash = ?1")?.exists([h.id_hash])?
            }
            HandleChange::Update { expected, .. } => version()? == Some(*expected),
            HandleChange::Destroy { expected, .. } => {
                version()?.is_some_and(|v| expected.is_none_or(|e| e == v))
            }
        };
        if !fits {
            return Ok(Some(Committed::HandleMoved));
        }
    }
    Ok(None)
}

/// Makes changes that [`refused`] has nothing against.
pub(crate) fn apply(db: &Connection, changes: &[HandleChange]) -> Result<()> {
    for c in changes {
        match c {
            HandleChange::Create(h) => {
                db.prepare_cached(
                    "INSERT INTO handle (id_hash, principal, kind, version, created_at, used_at, idle, absolute, expires_at, value)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                )?
                .execute(params![
                    h.id_hash,
                    &*h.principal,
                    h.kind,
                    h.version.cast_signed(),
                    h.created_at.0,
                    h.used_at.0,
                    h.idle.0,
                    h.absolute.0,
                    h.expires_at().0,
                    h.value
                ])?;
            }
            HandleChange::Update { id_hash, value, at, .. } => {
                db.prepare_cached("UPDATE handle SET version = version + 1, value = ?2 WHERE id_hash = ?1")?
                    .execute(params![id_hash, value])?;
                used(db, id_hash, c.principal(), *at)?;
            }
            HandleChange::Destroy { id_hash, .. } => {
                db.prepare_cached("DELETE FROM handle WHERE id_hash = ?1")?.execute([id_hash])?;
            }
        }
    }
    Ok(())
}

/// Whether it was there to be used.
pub(crate) fn used(db: &Connection, id_hash: &[u8; 32], principal: &str, at: Time) -> Result<bool> {
    let sql = "SELECT created_at, used_at, idle, absolute FROM handle WHERE id_hash = ?1 AND principal = ?2 AND expires_at > ?3";
    let found = db
        .prepare_cached(sql)?
        .query_row(params![id_hash, principal, at.0], |r| {
            Ok((Time(r.get(0)?), Time(r.get(1)?), Millis(r.get(2)?), Millis(r.get(3)?)))
        })
        .optional()?;
    let Some((created, before, idle, absolute)) = found else { return Ok(false) };
    let at = at.max(before);
    let expires = at.plus(idle).min(created.plus(absolute));
    db.prepare_cached("UPDATE handle SET used_at = ?2, expires_at = ?3 WHERE id_hash = ?1")?
        .execute(params![id_hash, at.0, expires.0])?;
    Ok(true)
}

pub(crate) fn prune(db: &Connection, now: Time, limit: usize) -> Result<usize> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    db.prepare_cached(
        "DELETE FROM handle WHERE id_hash IN
           (SELECT id_hash FROM handle INDEXED BY handle_expires WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)",
    )?
    .execute(params![now.0, limit])
}
