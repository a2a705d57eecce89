//! The readers: a few connections, on each of which questions follow one another without waiting for answers.

use crate::link::{Conn, Link, lock};
use crate::record::{Bits, decode};
use crate::{is_definite, unavailable};
use ledger::codes;
use ledger::operation::Operation;
use ledger::store::{ApiKey, BlobKind, Found, Query, StoreError, Tombstone};
use ledger::words::{KeyHash, OperationId, SlotHash};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// The statements of a reader, by number.
pub(crate) const STATEMENTS: [&str; 12] = [
    "SELECT q.id, o.version, o.record, t.record FROM (SELECT $1::uuid AS id) q LEFT JOIN op o ON o.id = q.id
     LEFT JOIN tombstone t ON t.id = q.id",
    "SELECT k.op_id, o.version, o.record, t.record FROM op_key k LEFT JOIN op o ON o.id = k.op_id
     LEFT JOIN tombstone t ON t.id = k.op_id WHERE k.key_hash = $1",
    "SELECT o.id, o.version, o.record FROM slot s JOIN op o ON o.id = s.op_id WHERE s.slot_hash = $1",
    "SELECT data FROM op_blob WHERE op_id = $1 AND kind = $2",
    "SELECT o.id, o.version, o.record FROM attention a JOIN op o ON o.id = a.op_id
     WHERE o.low = a.at AND o.attention IS NOT NULL AND o.id > $1
       AND ((o.owner_epoch <> 0 AND NOT EXISTS (SELECT 1 FROM replica r WHERE r.epoch = o.owner_epoch AND r.ended_at IS NULL))
         OR NOT EXISTS (SELECT 1 FROM replica r WHERE r.epoch = o.caller_epoch AND r.ended_at IS NULL))
     ORDER BY o.id LIMIT $2",
    "SELECT code, sum(n)::bigint FROM tally WHERE code <> 0 GROUP BY code",
    "SELECT record FROM api_key ORDER BY id",
    "SELECT s.principal, s.revision, s.client, s.log_level, s.opened_at, s.used_at,
       ARRAY(SELECT u.uri FROM session_uri u WHERE u.session_id = s.id ORDER BY u.uri) FROM session s WHERE s.id = $1",
    "SELECT id_hash, principal, kind, version, created_at, used_at, idle, absolute, value FROM handle
     WHERE id_hash = $1 AND principal = $2 AND expires_at > $3",
    "SELECT id_hash, principal, kind, version, created_at, used_at, idle, absolute, value FROM handle
     WHERE principal = $1 AND ($2::text IS NULL OR kind = $2) AND id_hash > $3 AND expires_at > $4 ORDER BY id_hash LIMIT $5",
    "SELECT version, data, until FROM shelf WHERE name = $1 AND (until IS NULL OR until > $2)",
    "SELECT id, version, record FROM op WHERE id = $1 AND principal = $2",
];
pub(crate) const BY_ID: usize = 0;
pub(crate) const BY_KEY: usize = 1;
pub(crate) const BY_SLOT: usize = 2;
pub(crate) const BLOB: usize = 3;
pub(crate) const ORPHANS: usize = 4;
pub(crate) const COUNTS: usize = 5;
pub(crate) const API_KEYS: usize = 6;
pub(crate) const SESSION: usize = 7;
pub(crate) const HANDLE: usize = 8;
pub(crate) const HANDLES: usize = 9;
pub(crate) const SHELVED: usize = 10;
pub(crate) const OWNED: usize = 11;

pub(crate) struct Readers {
    links: Vec<Link>,
    turn: AtomicUsize,
    answer_within: Duration,
    /// Records that can't be used: each is reported once.
    unreadable: Mutex<HashSet<OperationId>>,
}

fn read(id: Bits, version: i64, record: &str) -> Result<Operation, StoreError> {
    decode(id, version, record).map_err(|why| StoreError::unreadable(id.operation(), why))
}

pub(crate) fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Asks once, within a limit. `None`: the connection was lost, and with it the answer.
pub(crate) async fn ask<T>(
    conn: &Conn,
    within: Duration,
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Option<Result<T, StoreError>> {
    match tokio::time::timeout(within, asked).await {
        Ok(Ok(t)) => Some(Ok(t)),
        Ok(Err(e)) if is_definite(&e) => Some(Err(unavailable(&e))),
        Ok(Err(_)) | Err(_) => {
            conn.give_up();
            None
        }
    }
}

impl Readers {
    pub fn new(links: Vec<Link>, answer_within: Duration) -> Readers {
        Readers { links, turn: AtomicUsize::new(0), answer_within, unreadable: Mutex::default() }
    }

    /// Asks until there is an answer: reading twice does no harm.
    pub async fn rows(&self, statement: usize, args: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        let link = &self.links[self.turn.fetch_add(1, Ordering::Relaxed) % self.links.len()];
        loop {
            let conn = link.get().await?;
            let asked = conn.client.query(&conn.statements[statement], args);
            if let Some(answer) = ask(&conn, self.answer_within, asked).await {
                return answer;
            }
        }
    }

    async fn text(&self, sql: &str, args: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        let link = &self.links[self.turn.fetch_add(1, Ordering::Relaxed) % self.links.len()];
        loop {
            let conn = link.get().await?;
            if let Some(answer) = ask(&conn, self.answer_within, conn.client.query(sql, args)).await {
                return answer;
            }
        }
    }

    /// One record that can't be used must not hide all others: it is reported and left out.
    pub fn sound(&self, row: &Row) -> Option<Operation> {
        let id: Bits = row.get(0);
        match decode(id, row.get(1), row.get(2)) {
            Ok(op) => Some(op),
            Err(why) => {
                if lock(&self.unreadable).insert(id.operation()) {
                    ledger::store::report(id.operation(), why);
                }
                None
            }
        }
    }

    async fn found(&self, statement: usize, key: Bits) -> Result<Option<Found>, StoreError> {
        let rows = self.rows(statement, &[&key]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let id: Bits = row.get(0);
        if let Some(record) = row.get::<_, Option<&str>>(2) {
            return Ok(Some(Found::Operation(Box::new(read(id, row.get(1), record)?))));
        }
        let Some(grave) = row.get::<_, Option<&str>>(3) else { return Ok(None) };
        let tombstone: Tombstone =
            serde_json::from_str(grave).map_err(|_| StoreError::Damaged("a tombstone".into()))?;
        Ok(Some(Found::Tombstone(tombstone)))
    }

    pub async fn by_id(&self, id: OperationId) -> Result<Option<Found>, StoreError> {
        self.found(BY_ID, Bits::id(id)).await
    }

    /// Compared there: another's record is not read here.
    pub async fn owned(&self, principal: &str, id: OperationId) -> Result<Option<Operation>, StoreError> {
        let rows = self.rows(OWNED, &[&Bits::id(id), &principal]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        read(row.get(0), row.get(1), row.get(2)).map(Some)
    }

    pub async fn by_key(&self, key: &KeyHash) -> Result<Option<Found>, StoreError> {
        self.found(BY_KEY, Bits(key.0)).await
    }

    pub async fn by_slot(&self, slot: &SlotHash) -> Result<Option<Operation>, StoreError> {
        let rows = self.rows(BY_SLOT, &[&Bits(slot.0)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let id: Bits = row.get(0);
        read(id, row.get(1), row.get(2)).map(Some)
    }

    pub async fn blob(&self, id: OperationId, kind: BlobKind) -> Result<Option<Vec<u8>>, StoreError> {
        let rows = self.rows(BLOB, &[&Bits::id(id), &kind.code().cast_signed()]).await?;
        Ok(rows.first().map(|r| r.get(0)))
    }

    pub async fn orphans(
        &self,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError> {
        let mut found = Vec::new();
        let mut after = Bits::id(after.unwrap_or(OperationId(0)));
        while found.len() < limit {
            let want = limit - found.len();
            let rows = self.rows(ORPHANS, &[&after, &count(want)]).await?;
            let Some(last) = rows.last() else { break };
            after = last.get(0);
            found.extend(rows.iter().filter_map(|r| self.sound(r)));
            if rows.len() < want {
                break;
            }
        }
        Ok(found)
    }

    pub async fn list(&self, q: &Query) -> Result<Vec<Operation>, StoreError> {
        let state = q.state.as_deref().map(codes::execution_of_word);
        let delivery = q.delivery.as_deref().map(codes::delivery_of_word);
        // What wants attention or waits for a person is in a small table; a principal's are in an index.
        let small = match (state, delivery) {
            (Some(None), _) | (_, Some(None)) => return Ok(Vec::new()),
            (Some(Some(1 | 2 | 3 | 7)), _) | (_, Some(Some(2 | 3))) => true,
            _ => false,
        };
        let names = [&q.principal, &q.tool];
        if names.into_iter().flatten().any(|name| name.contains('\0')) {
            return Ok(Vec::new());
        }
        let mut sql = String::from("SELECT o.id, o.version, o.record FROM op o");
        sql += if small {
            " JOIN attention a ON a.op_id = o.id AND a.at = o.low WHERE true"
        } else {
            " WHERE true"
        };
        if let Some(state) = state.flatten() {
            sql += &format!(" AND o.code / 8 = {state}");
        }
        if let Some(delivery) = delivery.flatten() {
            sql += &format!(" AND o.code % 8 = {delivery}");
        }
        let limit = count(q.limit);
        let mut args: Vec<&(dyn ToSql + Sync)> = vec![&limit];
        for (column, value) in ["o.principal", "o.tool"].into_iter().zip(names) {
            if let Some(value) = value {
                args.push(value);
                sql += &format!(" AND {column} = ${}", args.len());
            }
        }
        let mut before = q.before.map(Bits::id);
        let mut found = Vec::new();
        while found.len() < q.limit {
            let mut sql = sql.clone();
            let mut args = args.clone();
            if let Some(before) = &before {
                args.push(before);
                sql += &format!(" AND o.id < ${}", args.len());
            }
            sql += " ORDER BY o.id DESC LIMIT $1";
            let rows = self.text(&sql, &args).await?;
            found.extend(rows.iter().filter_map(|r| self.sound(r)));
            let Some(last) = rows.last().filter(|_| count(rows.len()) == limit) else { break };
            before = Some(last.get(0));
        }
        found.truncate(q.limit);
        Ok(found)
    }

    pub async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        let rows = self.rows(API_KEYS, &[]).await?;
        rows.iter()
            .map(|r| serde_json::from_str(r.get(0)).map_err(|_| StoreError::Damaged("an API key".into())))
            .collect()
    }
}
