//! The shelf: small things that the replicas share, each under a name, replaced only by whoever knows what is there.

use ledger::store::Shelved;
use ledger::words::Time;
use rusqlite::{Connection, OptionalExtension as _, Result, params};

pub(crate) fn find(db: &Connection, name: &str, now: Time) -> Result<Option<Shelved>> {
    let sql = "SELECT version, data, until FROM shelf WHERE name = ?1 AND (until IS NULL OR until > ?2)";
    db.prepare_cached(sql)?
        .query_row(params![name, now.0], |r| {
            Ok(Shelved {
                version: r.get::<_, i64>(0)?.cast_unsigned(),
                data: r.get(1)?,
                until: r.get::<_, Option<i64>>(2)?.map(Time),
            })
        })
        .optional()
}

/// Whether it was put there.
pub(crate) fn put(
    db: &Connection,
    name: &str,
    expected: u64,
    data: &[u8],
    until: Option<Time>,
    now: Time,
) -> Result<bool> {
    let there: Option<(i64, Option<i64>)> = db
        .prepare_cached("SELECT version, until FROM shelf WHERE name = ?1")?
        .query_row([name], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    let version = there.filter(|(_, until)| until.is_none_or(|u| u > now.0)).map_or(0, |(v, _)| v);
    if version.cast_unsigned() != expected {
        return Ok(false);
    }
    let version = there.map_or(0, |(v, _)| v) + 1;
    db.prepare_cached("INSERT OR REPLACE INTO shelf (name, version, until, data) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![name, version, until.map(|t| t.0), data])?;
    Ok(true)
}

pub(crate) fn prune(db: &Connection, now: Time, limit: usize) -> Result<usize> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    db.prepare_cached(
        "DELETE FROM shelf WHERE name IN
           (SELECT name FROM shelf INDEXED BY shelf_until WHERE until IS NOT NULL AND until <= ?1 ORDER BY until, name LIMIT ?2)",
    )?
    .execute(params![now.0, limit])
}
