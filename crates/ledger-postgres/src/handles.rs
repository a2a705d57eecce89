//! Handles of tools, and the shelf. A write that changes handles goes by a statement of its own, beside the batches: it is
//! seldom, and takes its locks in its own order.

use crate::read::{HANDLE, HANDLES, Readers, SHELVED, count};
use crate::record::{Change, Kind};
use crate::shared::Shared;
use crate::{describe, is_definite, not_made};
use ledger::handle::{Handle, HandleChange, MAX_HANDLES};
use ledger::store::{Committed, Shelved, StoreError, shelf_bounded};
use ledger::words::{Millis, Time};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Tries of a statement that the server refused because others were in the way.
const TRIES: u32 = 6;

const WRITE: &str = "SELECT write_handles_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, \
     $20, $21, $22, $23)";

/// The arrays of the changes.
#[derive(Default)]
struct Arrays<'a> {
    what: Vec<i16>,
    id: Vec<&'a [u8]>,
    principal: Vec<&'a str>,
    kind: Vec<Option<&'a str>>,
    expected: Vec<Option<i64>>,
    value: Vec<Option<&'a [u8]>>,
    at: Vec<i64>,
    idle: Vec<Option<i64>>,
    absolute: Vec<Option<i64>>,
}

impl<'a> Arrays<'a> {
    fn of(changes: &'a [HandleChange]) -> Arrays<'a> {
        let mut a = Arrays::default();
        for c in changes {
            a.id.push(c.id_hash());
            a.principal.push(c.principal());
            a.at.push(c.at().0);
            let (what, kind, expected, value, lives) = match c {
                HandleChange::Create(h) => {
                    (0, Some(h.kind.as_str()), None, Some(h.value.as_slice()), Some((h.idle.0, h.absolute.0)))
                }
                HandleChange::Update { expected, value, .. } => {
                    (1, None, Some(expected.cast_signed()), Some(value.as_slice()), None)
                }
                HandleChange::Destroy { expected, .. } => {
                    (2, None, expected.map(u64::cast_signed), None, None)
                }
            };
            a.what.push(what);
            a.kind.push(kind);
            a.expected.push(expected);
            a.value.push(value);
            a.idle.push(lives.map(|l| l.0));
            a.absolute.push(lives.map(|l| l.1));
        }
        a
    }
}

const OVER: &str = "this replica's lease is over; it goes on under a new epoch in a moment";

/// Makes an update of a record with changes of handles. A statement whose answer was lost is sent again: it recognises what
/// it did.
pub(crate) async fn write(
    shared: &Shared,
    change: &Change,
    handles: &[HandleChange],
) -> Result<Committed, StoreError> {
    ledger::handle::bounded(handles)?;
    let Kind::Update { stamp } = change.kind else {
        return Err(StoreError::Unavailable("a new record changes no handles".into()));
    };
    let a = Arrays::of(handles);
    if a.principal.iter().chain(a.kind.iter().flatten()).any(|t| t.contains('\0')) {
        return Err(StoreError::Unavailable("a text of a handle has a zero character; leave it out".into()));
    }
    let r = &change.row;
    let mut kinds: Vec<i32> = Vec::new();
    let mut data: Vec<&[u8]> = Vec::new();
    for b in &change.blobs {
        let kind = b.kind.code().cast_signed();
        if !kinds.contains(&kind) {
            kinds.push(kind);
            data.push(&b.data);
        }
    }
    let epoch = change.by.0.cast_signed();
    let args: [&(dyn ToSql + Sync); 23] = [
        &epoch,
        &r.id,
        &r.version,
        &stamp,
        &r.code,
        &r.owner,
        &r.caller,
        &r.attention,
        &r.low,
        &r.expires_at,
        &r.record(),
        &kinds,
        &data,
        &a.what,
        &a.id,
        &a.principal,
        &a.kind,
        &a.expected,
        &a.value,
        &a.at,
        &a.idle,
        &a.absolute,
        &count(MAX_HANDLES),
    ];
    let (mut unsure, mut tries) = (false, 0);
    loop {
        if shared.is_lapsed() || change.by != shared.epoch() {
            return Err(not_made(unsure, OVER.into()));
        }
        let conn = match shared.links.aside.get().await {
            Err(StoreError::Unavailable(why)) => return Err(not_made(unsure, why)),
            other => other?,
        };
        let asked = conn.client.query_one(WRITE, &args);
        match tokio::time::timeout(shared.config.answer_within, asked).await {
            Ok(Ok(row)) => {
                return match row.get::<_, Option<i16>>(0) {
                    Some(0 | 4) => Ok(Committed::Done),
                    Some(5) if unsure => Err(StoreError::Uncertain(
                        "the record was written again before the answer came".into(),
                    )),
                    Some(6) => Ok(Committed::HandleMoved),
                    Some(7) => Ok(Committed::HandlesFull),
                    Some(_) => Ok(Committed::Stale),
                    None => {
                        shared.lapse(change.by);
                        Err(not_made(unsure, OVER.into()))
                    }
                };
            }
            Ok(Err(e)) if is_definite(&e) => {
                if conn.makes_again(&e, &mut tries, TRIES).await {
                    continue;
                }
                return Err(not_made(unsure, describe(&e)));
            }
            // The answer is lost, with whatever it was.
            Ok(Err(_)) | Err(_) => {
                unsure = true;
                conn.give_up();
            }
        }
    }
}

fn handle(r: &Row) -> Handle {
    let id: &[u8] = r.get(0);
    Handle {
        id_hash: id.try_into().unwrap_or_default(),
        principal: r.get::<_, &str>(1).into(),
        kind: r.get(2),
        version: r.get::<_, i64>(3).cast_unsigned(),
        created_at: Time(r.get(4)),
        used_at: Time(r.get(5)),
        idle: Millis(r.get(6)),
        absolute: Millis(r.get(7)),
        value: r.get(8),
    }
}

pub(crate) async fn find(
    readers: &Readers,
    id_hash: &[u8; 32],
    principal: &str,
    now: Time,
) -> Result<Option<Handle>, StoreError> {
    let principal = principal.replace('\0', "");
    let rows = readers.rows(HANDLE, &[&id_hash.as_slice(), &principal, &now.0]).await?;
    Ok(rows.first().map(handle))
}

pub(crate) async fn list(
    readers: &Readers,
    principal: &str,
    kind: Option<&str>,
    after: Option<[u8; 32]>,
    limit: usize,
    now: Time,
) -> Result<Vec<Handle>, StoreError> {
    if principal.contains('\0') || kind.is_some_and(|k| k.contains('\0')) {
        return Ok(Vec::new());
    }
    let after = after.map_or_else(Vec::new, |a| a.to_vec());
    let rows = readers.rows(HANDLES, &[&principal, &kind, &after, &now.0, &count(limit)]).await?;
    Ok(rows.iter().map(handle).collect())
}

pub(crate) async fn touch(
    shared: &Shared,
    id_hash: &[u8; 32],
    principal: &str,
    at: Time,
) -> Result<(), StoreError> {
    let principal = principal.replace('\0', "");
    let sql = "UPDATE handle SET used_at = greatest(used_at, $3), expires_at = least(greatest(used_at, $3) + idle, created_at + absolute)
       WHERE id_hash = $1 AND principal = $2 AND expires_at > $3";
    shared.write_all(sql, &[&id_hash.as_slice(), &principal, &at.0]).await.map(|_| ())
}

pub(crate) async fn prune(shared: &Shared, now: Time, limit: usize) -> Result<usize, StoreError> {
    let sql = "DELETE FROM handle h USING (SELECT id_hash FROM handle WHERE expires_at <= $1 ORDER BY expires_at, id_hash LIMIT $2
       FOR UPDATE SKIP LOCKED) g WHERE h.id_hash = g.id_hash RETURNING 1";
    shared.write_all(sql, &[&now.0, &count(limit)]).await.map(|rows| rows.len())
}

pub(crate) async fn shelved(readers: &Readers, name: &str, now: Time) -> Result<Option<Shelved>, StoreError> {
    if name.contains('\0') {
        return Ok(None);
    }
    let rows = readers.rows(SHELVED, &[&name, &now.0]).await?;
    Ok(rows.first().map(|r| Shelved {
        version: r.get::<_, i64>(0).cast_unsigned(),
        data: r.get(1),
        until: r.get::<_, Option<i64>>(2).map(Time),
    }))
}

pub(crate) async fn shelve(
    shared: &Shared,
    name: &str,
    expected: u64,
    data: Vec<u8>,
    until: Option<Time>,
) -> Result<bool, StoreError> {
    shelf_bounded(name, &data)?;
    let args: [&(dyn ToSql + Sync); 5] =
        [&name, &expected.cast_signed(), &data, &until.map(|t| t.0), &shared.clock.now().0];
    Ok(shared.write_one("SELECT shelve_1($1, $2, $3, $4, $5)", &args).await?.get(0))
}

pub(crate) async fn prune_shelf(shared: &Shared, now: Time, limit: usize) -> Result<usize, StoreError> {
    let sql =
        "DELETE FROM shelf s USING (SELECT name FROM shelf WHERE until <= $1 ORDER BY until, name LIMIT $2
       FOR UPDATE SKIP LOCKED) g WHERE s.name = g.name RETURNING 1";
    shared.write_all(sql, &[&now.0, &count(limit)]).await.map(|rows| rows.len())
}
