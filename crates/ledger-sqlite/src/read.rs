//! The readers: a few read-only connections, each with its own snapshot, never waiting for the writer.
//!
//! Look-ups run on the caller's thread: they touch a handful of pages, mostly cached, and handing them to
//! another thread would cost more than they do. Only lists, which may have to scan, go elsewhere.

use crate::index::{By, Unindexed};
use crate::record::{decode, id_bytes};
use crate::{describe, handles, schema, sessions, shelf};
use ledger::codes;
use ledger::handle::Handle;
use ledger::operation::{Operation, Unreadable};
use ledger::store::{ApiKey, BlobKind, Found, Query, Session, Shelved, StoreError, Tombstone};
use ledger::words::{Epoch, KeyHash, OperationId, SlotHash, Time};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections kept open for the next reader.
const KEPT: usize = 8;

pub(crate) struct Readers {
    place: schema::Place,
    unindexed: Arc<Unindexed>,
    idle: Mutex<Vec<Connection>>,
    /// Records that can't be used: each is reported once, and wants no attention any more.
    unreadable: Mutex<HashSet<OperationId>>,
}

/// A record, or the id of one that can't be used, and why.
type Read = Result<Operation, (OperationId, Unreadable)>;

/// What a look-up finds.
enum Left {
    Record(Box<Read>),
    Grave(String),
}

fn record(r: &Row<'_>) -> rusqlite::Result<Read> {
    let id: [u8; 16] = r.get(0)?;
    let text = r.get_ref(2)?.as_bytes().map_err(|_| Unreadable::Damaged);
    let op = text.and_then(|text| decode(id, r.get(1).unwrap_or_default(), text));
    Ok(op.map_err(|why| (OperationId(u128::from_be_bytes(id)), why)))
}

fn unreadable((id, why): (OperationId, Unreadable)) -> StoreError {
    StoreError::unreadable(id, why)
}

fn tombstone(text: &str) -> Result<Found, StoreError> {
    serde_json::from_str::<Tombstone>(text)
        .map(Found::Tombstone)
        .map_err(|_| StoreError::Damaged("a tombstone".into()))
}

impl Readers {
    pub fn new(place: schema::Place, unindexed: Arc<Unindexed>) -> Readers {
        Readers { place, unindexed, idle: Mutex::default(), unreadable: Mutex::default() }
    }

    /// Where the database is.
    pub fn place(&self) -> &schema::Place {
        &self.place
    }

    pub fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn with<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let failed = |e: rusqlite::Error| StoreError::Unavailable(describe(&e));
        let db = kept.map_or_else(|| schema::reader(&self.place), Ok).map_err(failed)?;
        // A connection that failed is not used again.
        let done = read(&db).map_err(failed)?;
        let mut idle = idle();
        if idle.len() < KEPT {
            idle.push(db);
        }
        Ok(done)
    }

    /// One record that can't be used must not hide all others: it is reported and left out.
    fn sound(&self, read: Read) -> Option<Operation> {
        match read {
            Ok(op) => Some(op),
            Err((id, why)) => {
                if self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).insert(id) {
                    ledger::store::report(id, why);
                }
                None
            }
        }
    }

    /// Up to `limit` sound records of a query that yields id, version and record.
    fn some(&self, sql: &str, args: &[&dyn ToSql], limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.with(|db| {
            let mut statement = db.prepare_cached(sql)?;
            let mut rows = statement.query(args)?;
            let mut found = Vec::new();
            while found.len() < limit
                && let Some(r) = rows.next()?
            {
                found.extend(self.sound(record(r)?));
            }
            Ok(found)
        })
    }

    fn one(&self, sql: &str, args: &[&dyn ToSql]) -> Result<Option<Operation>, StoreError> {
        self.with(|db| db.prepare_cached(sql)?.query_row(args, record).optional())?
            .transpose()
            .map_err(unreadable)
    }

    /// The row of an entry that is not in its table yet. Meanwhile it may be there, and the row gone: the table is asked then.
    fn unindexed(&self, by: By, hash: &[u8; 16]) -> Result<Option<Operation>, StoreError> {
        let sql = match by {
            By::Key => "SELECT id, version, record FROM op WHERE seq = ?1 AND key_hash = ?2",
            By::Slot => "SELECT id, version, record FROM op WHERE seq = ?1 AND slot_hash = ?2",
        };
        match self.unindexed.row(by, hash) {
            Some(seq) => self.one(sql, &[&seq, hash]),
            None => Ok(None),
        }
    }

    /// A record, or else a tombstone, from one snapshot: `sql` yields id, version and record, or only what is left.
    fn found(&self, sql: &str, key: &[u8; 16]) -> Result<Option<Found>, StoreError> {
        let row = self.with(|db| {
            let one = |r: &Row<'_>| match r.get_ref(0)? {
                ValueRef::Null => Ok(Left::Grave(r.get(2)?)),
                _ => record(r).map(|read| Left::Record(Box::new(read))),
            };
            db.prepare_cached(sql)?.query_row([key], one).optional()
        })?;
        match row {
            None => Ok(None),
            Some(Left::Grave(text)) => tombstone(&text).map(Some),
            Some(Left::Record(read)) => Ok(Some(Found::Operation(Box::new(read.map_err(unreadable)?)))),
        }
    }

    pub fn by_id(&self, id: OperationId) -> Result<Option<Found>, StoreError> {
        self.found(
            "SELECT id, version, record FROM op WHERE id = ?1
             UNION ALL SELECT NULL, NULL, record FROM tombstone WHERE id = ?1 LIMIT 1",
            &id_bytes(id),
        )
    }

    /// Found by the index of principals: of another's there is no entry, so its record isn't touched.
    pub fn owned(&self, principal: &str, id: OperationId) -> Result<Option<Operation>, StoreError> {
        let sql =
            "SELECT id, version, record FROM op INDEXED BY op_principal WHERE principal = ?1 AND id = ?2";
        let args = params![principal, id_bytes(id)];
        self.with(|db| db.prepare_cached(sql)?.query_row(args, record).optional())?
            .transpose()
            .map_err(unreadable)
    }

    pub fn by_key(&self, key: &KeyHash) -> Result<Option<Found>, StoreError> {
        if let Some(op) = self.unindexed(By::Key, &key.0)? {
            return Ok(Some(Found::Operation(Box::new(op))));
        }
        self.found(
            "SELECT op.id, version, record FROM op_by_key AS k JOIN op ON op.seq = k.op_seq WHERE k.key_hash = ?1
             UNION ALL SELECT NULL, NULL, record FROM tombstone WHERE key_hash = ?1 LIMIT 1",
            &key.0,
        )
    }

    pub fn by_slot(&self, slot: &SlotHash) -> Result<Option<Operation>, StoreError> {
        if let Some(op) = self.unindexed(By::Slot, &slot.0)? {
            return Ok(Some(op));
        }
        self.one(
            "SELECT id, version, record FROM slot JOIN op ON op.seq = slot.op_seq WHERE slot.slot_hash = ?1",
            &[&slot.0],
        )
    }

    pub fn blob(&self, id: OperationId, kind: BlobKind) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT data FROM op_blob WHERE op_seq = (SELECT seq FROM op WHERE id = ?1) AND kind = ?2";
        self.with(|db| {
            db.prepare_cached(sql)?.query_row(params![id_bytes(id), kind.code()], |r| r.get(0)).optional()
        })
    }

    pub fn due(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        let sql = "SELECT id, version, record FROM op INDEXED BY op_attention
                   WHERE attention IS NOT NULL AND attention <= ?1 ORDER BY attention, id";
        self.some(sql, &[&now.0], limit)
    }

    /// The same without what is running (2).
    pub fn due_at_rest(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        let sql = "SELECT id, version, record FROM op INDEXED BY op_attention
                   WHERE attention IS NOT NULL AND attention <= ?1 AND state <> 2 ORDER BY attention, id";
        self.some(sql, &[&now.0], limit)
    }

    pub fn orphans(
        &self,
        epoch: Epoch,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError> {
        // The ids come from the index alone; only those of this page have their records read.
        let page = "SELECT id FROM op INDEXED BY op_attention
                    WHERE attention IS NOT NULL AND (owner_epoch NOT IN (0, ?1) OR caller_epoch <> ?1) AND id > ?2 ORDER BY id LIMIT ?3";
        let mut found = Vec::new();
        let mut after = after.map_or_else(Vec::new, |id| id_bytes(id).to_vec());
        while found.len() < limit {
            let want = limit - found.len();
            let ids = self.with(|db| {
                let mut statement = db.prepare_cached(page)?;
                let ids =
                    statement.query_map(params![epoch.0.cast_signed(), after, count(want)], |r| r.get(0))?;
                ids.collect::<rusqlite::Result<Vec<[u8; 16]>>>()
            })?;
            let Some(last) = ids.last() else { break };
            after = last.to_vec();
            for id in &ids {
                // Between the two statements it may have been pruned or taken by this boot: then it is no orphan.
                let sql = "SELECT id, version, record FROM op WHERE id = ?1 AND attention IS NOT NULL AND (owner_epoch NOT IN (0, ?2) OR caller_epoch <> ?2)";
                found.extend(self.some(sql, &[id, &epoch.0.cast_signed()], 1)?);
            }
        }
        Ok(found)
    }

    pub fn next_attention(&self) -> Result<Option<Time>, StoreError> {
        self.with(|db| {
            let mut statement =
                db.prepare_cached("SELECT attention, id FROM op INDEXED BY op_attention WHERE attention IS NOT NULL ORDER BY attention")?;
            let mut rows = statement.query([])?;
            while let Some(r) = rows.next()? {
                let id = OperationId(u128::from_be_bytes(r.get(1)?));
                if !self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).contains(&id) {
                    return Ok(Some(Time(r.get(0)?)));
                }
            }
            Ok(None)
        })
    }

    pub fn list(&self, q: &Query) -> Result<Vec<Operation>, StoreError> {
        let state = q.state.as_deref().map(codes::execution_of_word);
        let delivery = q.delivery.as_deref().map(codes::delivery_of_word);
        let before = q.before.map(|id| id_bytes(id).to_vec());
        // The index that leaves the least to look through; see the schema for what the partial ones hold. The
        // two numbers of states are written out, or SQLite could not tell that a partial index applies.
        let (index, also) = match (state, delivery) {
            (Some(None), _) | (_, Some(None)) => return Ok(Vec::new()),
            (Some(Some(1 | 2)), _) => ("op_attention", "attention IS NOT NULL"),
            (Some(Some(3 | 7)), _) | (_, Some(Some(3))) => ("op_waiting", "1"),
            _ if q.principal.is_some() => ("op_principal", "1"),
            _ => ("op_id", "1"),
        };
        let mut sql = format!("SELECT id, version, record FROM op INDEXED BY {index} WHERE {also}");
        let mut args: Vec<&dyn ToSql> = Vec::new();
        for (column, code) in [("state", state.flatten()), ("delivery", delivery.flatten())] {
            if let Some(code) = code {
                sql += &format!(" AND {column} = {code}");
            }
        }
        for (test, value) in [("principal = ?", &q.principal), ("tool = ?", &q.tool)] {
            if let Some(value) = value {
                sql += &format!(" AND {test}");
                args.push(value);
            }
        }
        if let Some(before) = &before {
            sql += " AND id < ?";
            args.push(before);
        }
        sql += " ORDER BY id DESC";
        self.some(&sql, &args, q.limit)
    }

    pub fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        let texts = self.with(|db| {
            let mut statement = db.prepare_cached("SELECT record FROM api_key ORDER BY id")?;
            let texts = statement.query_map([], |r| r.get::<_, String>(0))?;
            texts.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        texts
            .iter()
            .map(|t| serde_json::from_str(t).map_err(|_| StoreError::Damaged("an API key".into())))
            .collect()
    }

    pub fn handle(&self, id: &[u8; 32], principal: &str, now: Time) -> Result<Option<Handle>, StoreError> {
        self.with(|db| handles::find(db, id, principal, now))
    }

    pub fn handles(
        &self,
        principal: &str,
        kind: Option<&str>,
        after: Option<[u8; 32]>,
        limit: usize,
        now: Time,
    ) -> Result<Vec<Handle>, StoreError> {
        self.with(|db| handles::list(db, principal, kind, after, limit, now))
    }

    pub fn shelved(&self, name: &str, now: Time) -> Result<Option<Shelved>, StoreError> {
        self.with(|db| shelf::find(db, name, now))
    }

    pub fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        self.with(|db| sessions::find(db, id))
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::index;
    use ledger::SystemEnv;

    /// Memory was asked, and before the row was read it had been pruned and its number given to another.
    #[test]
    fn a_row_whose_number_was_given_again_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = schema::Place {
            path: dir.path().join("ledger.db"),
            #[cfg(feature = "faults")]
            vfs: None,
        };
        std::fs::write(&place.path, b"").unwrap();
        let mut db = schema::writer(&place).unwrap();
        schema::migrate(&mut db, "test", &SystemEnv, 0).unwrap();
        let (pruned, other) = ([1; 16], [2; 16]);
        db.execute(
            "INSERT INTO op VALUES (1, ?1, ?1, ?1, 'p', 't', 4, 1, 1, 0, 0, 0, NULL, NULL, 'not a record')",
            [other],
        )
        .unwrap();
        let readers = Readers::new(place, Arc::new(index::Unindexed::of(1, pruned)));
        assert!(readers.by_key(&KeyHash(pruned)).unwrap().is_none());
        assert!(readers.by_slot(&SlotHash(pruned)).unwrap().is_none());
    }
}
