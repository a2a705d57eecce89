//! One write inside the writer's transaction. Each either changes everything it should or nothing at all, so
//! that a batch needs no savepoints; the only errors are SQLite's own, and they end the whole batch.

use crate::handles;
use crate::record::{Change, Counters, Kind, decode, id_bytes};
use ledger::store::{Blob, Committed, SlotWrite, StoreError, Tombstone, key_hash_of};
use ledger::words::{Millis, Time};
use rusqlite::{Connection, OptionalExtension as _, Result, params};

/// Records, and tombstones, in one step of pruning: short enough that no writer waits noticeably.
pub(crate) const PRUNE_STEP: usize = 128;

/// What a write came to: an answer, and whether the database changed.
pub(crate) struct Applied {
    pub answer: std::result::Result<Committed, StoreError>,
    pub changed: bool,
}

fn nothing(answer: Committed) -> Applied {
    Applied { answer: Ok(answer), changed: false }
}

/// Makes `change`. Without `creations` (the disk is full) new records are refused; those that are already
/// there are still recognised.
pub(crate) fn write(
    db: &Connection,
    change: &Change,
    creations: bool,
    counts: &mut Counters,
) -> Result<Applied> {
    match change.kind {
        Kind::Create(slot) => create(db, change, slot, creations, counts),
        Kind::Update { stamp } => update(db, change, stamp, counts),
    }
}

fn exists(db: &Connection, sql: &str, key: &[u8; 16]) -> Result<bool> {
    db.prepare_cached(sql)?.exists([key])
}

fn create(
    db: &Connection,
    change: &Change,
    slot: SlotWrite,
    creations: bool,
    counts: &mut Counters,
) -> Result<Applied> {
    let row = &change.row;
    if exists(db, "SELECT 1 FROM op WHERE id = ?1", &row.id)? {
        return Ok(nothing(Committed::Done));
    }
    if !creations {
        let answer = Err(StoreError::Unavailable(crate::store::DISK_LOW.into()));
        return Ok(Applied { answer, changed: false });
    }
    if let Some(key) = &row.key_hash
        && (exists(db, "SELECT 1 FROM op WHERE key_hash = ?1", key)?
            || exists(db, "SELECT 1 FROM tombstone WHERE key_hash = ?1", key)?)
    {
        return Ok(nothing(Committed::KeyTaken));
    }
    if let SlotWrite::CompareAndSet(expected) = slot {
        // A pruned operation's slot row goes with it, so what is found here is alive.
        let holds: Option<[u8; 16]> = db
            .prepare_cached(
                "SELECT op.id FROM slot JOIN op ON op.seq = slot.op_seq WHERE slot.slot_hash = ?1",
            )?
            .query_row([&row.slot_hash], |r| r.get(0))
            .optional()?;
        if holds != expected.map(id_bytes) {
            return Ok(nothing(Committed::SlotTaken));
        }
    }
    db.prepare_cached(
        "INSERT INTO op (id, key_hash, slot_hash, principal, tool, state, delivery, version, stamp, owner_epoch, caller_epoch,
           attention, expires_at, record) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(params![
        row.id,
        row.key_hash,
        row.slot_hash,
        row.principal,
        row.tool,
        row.state,
        row.delivery,
        row.version,
        row.owner,
        row.caller,
        row.attention,
        row.expires_at,
        row.record,
    ])?;
    let seq = db.last_insert_rowid();
    db.prepare_cached("INSERT INTO slot (slot_hash, op_seq) VALUES (?1, ?2) ON CONFLICT (slot_hash) DO UPDATE SET op_seq = excluded.op_seq")?
        .execute(params![row.slot_hash, seq])?;
    add(db, seq, &change.blobs)?;
    counts.add(row.state, row.delivery, 1);
    Ok(Applied { answer: Ok(Committed::Done), changed: true })
}

fn update(db: &Connection, change: &Change, stamp: i64, counts: &mut Counters) -> Result<Applied> {
    let row = &change.row;
    let now = db
        .prepare_cached("SELECT seq, version, stamp, state, delivery FROM op WHERE id = ?1")?
        .query_row([&row.id], |r| {
            Ok((r.get::<_, i64>(0)?, r.get::<_, i64>(1)?, r.get::<_, i64>(2)?, r.get(3)?, r.get(4)?))
        })
        .optional()?;
    let Some((seq, version, last, state, delivery)) = now else { return Ok(nothing(Committed::Stale)) };
    if version == row.version && last == stamp {
        return Ok(nothing(Committed::Done));
    }
    if version.wrapping_add(1) != row.version {
        return Ok(nothing(Committed::Stale));
    }
    if let Some(refused) = handles::refused(db, &change.handles)? {
        return Ok(nothing(refused));
    }
    db.prepare_cached(
        "UPDATE op SET state = ?2, delivery = ?3, version = ?4, stamp = ?5, owner_epoch = ?6, caller_epoch = ?7, attention = ?8,
           expires_at = ?9, record = ?10 WHERE seq = ?1",
    )?
    .execute(params![
        seq,
        row.state,
        row.delivery,
        row.version,
        stamp,
        row.owner,
        row.caller,
        row.attention,
        row.expires_at,
        row.record,
    ])?;
    add(db, seq, &change.blobs)?;
    handles::apply(db, &change.handles)?;
    counts.add(state, delivery, -1);
    counts.add(row.state, row.delivery, 1);
    Ok(Applied { answer: Ok(Committed::Done), changed: true })
}

/// Payloads never change: one that is there already stays.
fn add(db: &Connection, seq: i64, blobs: &[Blob]) -> Result<()> {
    for b in blobs {
        db.prepare_cached("INSERT INTO op_blob (op_seq, kind, data) VALUES (?1, ?2, ?3) ON CONFLICT (op_seq, kind) DO NOTHING")?
            .execute(params![seq, b.kind.code(), b.data])?;
    }
    Ok(())
}

/// A record that is about to go.
struct Going {
    seq: i64,
    id: [u8; 16],
    slot_hash: [u8; 16],
    state: i64,
    delivery: i64,
    key_hash: Option<[u8; 16]>,
    tombstone: Tombstone,
}

/// Replaces up to `limit` records that expired before `now` by tombstones, then removes a step's worth
/// of tombstones that are too old. A record that can't be read stays: somebody has to look at it.
pub(crate) fn prune(
    db: &Connection,
    now: Time,
    tombstones_for: Millis,
    limit: usize,
    counts: &mut Counters,
) -> Result<(usize, usize)> {
    let mut going = Vec::new();
    {
        let mut expired = db.prepare_cached(
            "SELECT seq, id, slot_hash, state, delivery, version, record FROM op INDEXED BY op_expires
             WHERE expires_at IS NOT NULL AND expires_at < ?1 ORDER BY expires_at",
        )?;
        let mut rows = expired.query([now.0])?;
        while going.len() < limit
            && let Some(r) = rows.next()?
        {
            let id = r.get(1)?;
            let Some(op) = r.get_ref(6)?.as_bytes().ok().and_then(|text| decode(id, 0, text).ok()) else {
                continue;
            };
            let tombstone = Tombstone {
                id: op.id,
                fingerprint: op.fingerprint,
                outcome: op.execution.word().into(),
                at: now,
            };
            let key_hash = key_hash_of(&op).map(|k| k.0);
            going.push(Going {
                seq: r.get(0)?,
                id,
                slot_hash: r.get(2)?,
                state: r.get(3)?,
                delivery: r.get(4)?,
                key_hash,
                tombstone,
            });
        }
    }
    for g in &going {
        db.prepare_cached("DELETE FROM op_blob WHERE op_seq = ?1")?.execute([g.seq])?;
        db.prepare_cached("DELETE FROM slot WHERE slot_hash = ?1 AND op_seq = ?2")?
            .execute(params![g.slot_hash, g.seq])?;
        db.prepare_cached("DELETE FROM op WHERE seq = ?1")?.execute([g.seq])?;
        let text = serde_json::to_string(&g.tombstone)
            .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
        db.prepare_cached(
            "INSERT OR REPLACE INTO tombstone (id, key_hash, at, record) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![g.id, g.key_hash, now.0, text])?;
        counts.add(g.state, g.delivery, -1);
    }
    let old = now.0.saturating_sub(tombstones_for.0);
    let tombstones = db
        .prepare_cached("DELETE FROM tombstone WHERE id IN (SELECT id FROM tombstone WHERE at <= ?1 ORDER BY at LIMIT ?2)")?
        .execute(params![old, PRUNE_STEP as i64])?;
    Ok((going.len(), tombstones))
}
