//! One write inside the writer's transaction. Each either changes everything it should or nothing at all, so
//! that a batch needs no savepoints; the only errors are SQLite's own, and they end the whole batch.

use crate::handles;
use crate::index::{By, Index};
use crate::record::{Change, Counters, Kind, decode, id_bytes};
use ledger::store::{Blob, Committed, SlotWrite, StoreError, Tombstone};
use ledger::words::{Millis, Time};
use rusqlite::{Connection, OptionalExtension as _, Result, params};

/// Records, and tombstones, in one step of pruning: short enough that no writer waits noticeably.
pub(crate) const PRUNE_STEP: usize = 128;
/// Index entries in one step that has to come before.
const INDEX_STEP: usize = 1024;

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
    index: &mut Index,
    change: &Change,
    creations: bool,
    counts: &mut Counters,
) -> Result<Applied> {
    match change.kind {
        Kind::Create(slot) => create(db, index, change, slot, creations, counts),
        Kind::Update { stamp } => update(db, change, stamp, counts),
    }
}

fn exists(db: &Connection, sql: &str, key: &[u8; 16]) -> Result<bool> {
    db.prepare_cached(sql)?.exists([key])
}

fn create(
    db: &Connection,
    index: &mut Index,
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
        && (index.row(db, By::Key, key)?.is_some()
            || exists(db, "SELECT 1 FROM tombstone WHERE key_hash = ?1", key)?)
    {
        return Ok(nothing(Committed::KeyTaken));
    }
    if let SlotWrite::CompareAndSet(expected) = slot {
        // A pruned operation's slot row goes with it, so what is found here is alive.
        let holds: Option<[u8; 16]> = match index.row(db, By::Slot, &row.slot_hash)? {
            Some(seq) => {
                let mut id = db.prepare_cached("SELECT id FROM op WHERE seq = ?1")?;
                id.query_row([seq], |r| r.get(0)).optional()?
            }
            None => None,
        };
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
    index.add(seq, row.key_hash, row.slot_hash);
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

/// What one step of pruning came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pruned {
    pub records: usize,
    pub tombstones: usize,
    /// The next records have index entries that had to be entered first: ask again.
    pub more: bool,
}

/// Replaces up to `limit` records that expired before `now` by tombstones, then removes a step's worth
/// of tombstones that are too old. A record that can't be read stays: somebody has to look at it. So does, on a full
/// disk (without `creations`), one whose index entries take room first.
pub(crate) fn prune(
    db: &Connection,
    index: &mut Index,
    (now, tombstones_for, limit): (Time, Millis, usize),
    creations: bool,
    counts: &mut Counters,
) -> Result<Pruned> {
    let (going, early) = expired(db, index, now, limit)?;
    for g in &going {
        db.prepare_cached("DELETE FROM op_blob WHERE op_seq = ?1")?.execute([g.seq])?;
        db.prepare_cached("DELETE FROM slot WHERE slot_hash = ?1 AND op_seq = ?2")?
            .execute(params![g.slot_hash, g.seq])?;
        db.prepare_cached("DELETE FROM op_by_key WHERE key_hash = ?1 AND op_seq = ?2")?
            .execute(params![g.key_hash, g.seq])?;
        db.prepare_cached("DELETE FROM op WHERE seq = ?1")?.execute([g.seq])?;
        let text = serde_json::to_string(&g.tombstone)
            .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
        db.prepare_cached(
            "INSERT OR REPLACE INTO tombstone (id, key_hash, at, record) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![g.id, g.key_hash, now.0, text])?;
        counts.add(g.state, g.delivery, -1);
    }
    if !going.is_empty() {
        index.removed(db)?;
    }
    let more = early && (!creations || index.hurry(db, INDEX_STEP)?);
    let old = now.0.saturating_sub(tombstones_for.0);
    let tombstones = db
        .prepare_cached("DELETE FROM tombstone WHERE id IN (SELECT id FROM tombstone WHERE at <= ?1 ORDER BY at LIMIT ?2)")?
        .execute(params![old, PRUNE_STEP as i64])?;
    Ok(Pruned { records: going.len(), tombstones, more })
}

/// Up to `limit` records that expired before `now`, and whether the next has index entries to be entered first.
fn expired(db: &Connection, index: &Index, now: Time, limit: usize) -> Result<(Vec<Going>, bool)> {
    let mut going = Vec::new();
    let mut expired = db.prepare_cached(
        "SELECT seq, id, slot_hash, state, delivery, key_hash, record FROM op INDEXED BY op_expires
         WHERE expires_at IS NOT NULL AND expires_at < ?1 ORDER BY expires_at",
    )?;
    let mut rows = expired.query([now.0])?;
    while going.len() < limit
        && let Some(r) = rows.next()?
    {
        let (seq, id) = (r.get(0)?, r.get(1)?);
        if !index.has(seq) {
            return Ok((going, true));
        }
        let Some(op) = r.get_ref(6)?.as_bytes().ok().and_then(|text| decode(id, 0, text).ok()) else {
            continue;
        };
        let outcome = op.execution.word().into();
        going.push(Going {
            seq,
            id,
            slot_hash: r.get(2)?,
            state: r.get(3)?,
            delivery: r.get(4)?,
            key_hash: r.get(5)?,
            tombstone: Tombstone { id: op.id, fingerprint: op.fingerprint, outcome, at: now },
        });
    }
    Ok((going, false))
}
