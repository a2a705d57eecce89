//! A writer: takes whatever waits, has it written by one statement, which is one transaction, and answers. There may be two:
//! while one waits for the disk, the other gives the server work.
//!
//! A statement whose answer was lost is sent again, on the next connection: it recognises what it did. Only where it
//! can't tell (somebody wrote since) or the database stays away is the answer `Uncertain`.

use crate::link::{Conn, Link};
use crate::queue::{Job, Work};
use crate::record::{Bits, Kind};
use crate::shared::Shared;
use crate::{describe, is_definite};
use ledger::store::{Committed, SlotWrite, StoreError};
use ledger::words::Epoch;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

pub(crate) const WRITE: &str = "SELECT answers, batch FROM write_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
     $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35)";

/// Tries of a statement that the server refused because others were in the way.
const TRIES: u32 = 6;

/// The arrays of a batch, creations and updates each in the order of their ids. Borrowed from the jobs, so that a batch
/// can be sent again.
#[derive(Default)]
struct Arrays<'a> {
    c_id: Vec<Bits>,
    c_slot: Vec<Bits>,
    c_before: Vec<Option<Bits>>,
    c_forced: Vec<bool>,
    c_key: Vec<Option<Bits>>,
    c_principal: Vec<&'a str>,
    c_tool: Vec<&'a str>,
    c_prune: Vec<i64>,
    c_expires: Vec<Option<i64>>,
    c_attention: Vec<Option<i64>>,
    c_low: Vec<Option<i64>>,
    c_version: Vec<i64>,
    c_owner: Vec<i64>,
    c_caller: Vec<i64>,
    c_code: Vec<i16>,
    c_record: Vec<&'a str>,
    k_key: Vec<Bits>,
    k_id: Vec<Bits>,
    u_id: Vec<Bits>,
    u_version: Vec<i64>,
    u_stamp: Vec<i64>,
    u_code: Vec<i16>,
    u_owner: Vec<i64>,
    u_caller: Vec<i64>,
    u_attention: Vec<Option<i64>>,
    u_low: Vec<Option<i64>>,
    u_expires: Vec<Option<i64>>,
    u_record: Vec<&'a str>,
    b_n: Vec<i32>,
    b_id: Vec<Bits>,
    b_kind: Vec<i32>,
    b_data: Vec<&'a [u8]>,
    /// The job of each answer.
    order: Vec<usize>,
}

impl<'a> Arrays<'a> {
    fn of(jobs: &'a [Job]) -> Arrays<'a> {
        let mut writes: Vec<(usize, &crate::record::Change)> = jobs
            .iter()
            .enumerate()
            .filter_map(|(n, j)| match &j.work {
                Work::Write(c) => Some((n, &**c)),
                Work::Flush => None,
            })
            .collect();
        writes.sort_by_key(|(_, c)| (matches!(c.kind, Kind::Update { .. }), c.row.id));
        let mut a = Arrays::default();
        for (job, c) in writes {
            let r = &c.row;
            match c.kind {
                Kind::Create(slot) => {
                    let before = match slot {
                        SlotWrite::Set | SlotWrite::CompareAndSet(None) => None,
                        SlotWrite::CompareAndSet(Some(id)) => Some(Bits::id(id)),
                    };
                    a.c_id.push(r.id);
                    a.c_slot.push(r.slot);
                    a.c_before.push(before);
                    a.c_forced.push(slot == SlotWrite::Set);
                    a.c_key.push(r.key);
                    a.c_principal.push(&r.principal);
                    a.c_tool.push(&r.tool);
                    a.c_prune.push(r.prune_after);
                    a.c_expires.push(r.expires_at);
                    a.c_attention.push(r.attention);
                    a.c_low.push(r.low);
                    a.c_version.push(r.version);
                    a.c_owner.push(r.owner);
                    a.c_caller.push(r.caller);
                    a.c_code.push(r.code);
                    a.c_record.push(&r.record);
                    if let Some(key) = r.key {
                        a.k_key.push(key);
                        a.k_id.push(r.id);
                    }
                }
                Kind::Update { stamp } => {
                    a.u_id.push(r.id);
                    a.u_version.push(r.version);
                    a.u_stamp.push(stamp);
                    a.u_code.push(r.code);
                    a.u_owner.push(r.owner);
                    a.u_caller.push(r.caller);
                    a.u_attention.push(r.attention);
                    a.u_low.push(r.low);
                    a.u_expires.push(r.expires_at);
                    a.u_record.push(&r.record);
                }
            }
            a.order.push(job);
            let n = i32::try_from(a.order.len()).unwrap_or(i32::MAX);
            // The first of a kind stays, in one write as over many.
            let mut kinds: Vec<u32> = Vec::with_capacity(c.blobs.len());
            for b in &c.blobs {
                if kinds.contains(&b.kind.code()) {
                    continue;
                }
                kinds.push(b.kind.code());
                a.b_n.push(n);
                a.b_id.push(r.id);
                a.b_kind.push(b.kind.code().cast_signed());
                a.b_data.push(&b.data);
            }
        }
        a
    }
}

/// What became of a statement.
enum Sent {
    Answers(Vec<i16>, i64),
    /// This boot is over.
    Over,
}

async fn send(
    lane: i16,
    conn: &Conn,
    epoch: Epoch,
    a: &Arrays<'_>,
    lazy: bool,
) -> Result<Sent, tokio_postgres::Error> {
    let epoch = epoch.0.cast_signed();
    let parameters: [&(dyn ToSql + Sync); 35] = [
        &epoch,
        &lane,
        &lazy,
        &a.c_id,
        &a.c_slot,
        &a.c_before,
        &a.c_forced,
        &a.c_key,
        &a.c_principal,
        &a.c_tool,
        &a.c_prune,
        &a.c_expires,
        &a.c_attention,
        &a.c_low,
        &a.c_version,
        &a.c_owner,
        &a.c_caller,
        &a.c_code,
        &a.c_record,
        &a.k_key,
        &a.k_id,
        &a.u_id,
        &a.u_version,
        &a.u_stamp,
        &a.u_code,
        &a.u_owner,
        &a.u_caller,
        &a.u_attention,
        &a.u_low,
        &a.u_expires,
        &a.u_record,
        &a.b_n,
        &a.b_id,
        &a.b_kind,
        &a.b_data,
    ];
    let row = conn.client.query_one(&conn.statements[0], &parameters).await?;
    let answers: Option<Vec<i16>> = row.get(0);
    Ok(answers.map_or(Sent::Over, |answers| {
        Sent::Answers(answers, row.get::<_, Option<i64>>(1).unwrap_or_default())
    }))
}

const OVER: &str = "this replica's lease is over; it goes on under a new epoch in a moment";

/// Writes until the store is closed; `lane` is the writer's number.
pub(crate) async fn run(shared: Arc<Shared>, lane: i16) {
    let mine = usize::from(lane.unsigned_abs());
    loop {
        // Who has no connection leaves the work to who has one.
        while !shared.is_closing()
            && !shared.links.writers[mine].is_up()
            && shared.links.writers.iter().any(Link::is_up)
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let Some(batch) = shared.queue.next().await else { return };
        // What an earlier boot of this replica asked for is not made under the next one.
        let (epoch, lapsed) = (shared.epoch(), shared.is_lapsed());
        let (jobs, stale): (Vec<Job>, Vec<Job>) = batch.jobs.into_iter().partition(|j| match &j.work {
            Work::Write(c) => !lapsed && c.by == epoch,
            Work::Flush => true,
        });
        for job in stale {
            job.answer(Err(StoreError::Unavailable(OVER.into())));
        }
        if !jobs.is_empty() {
            commit(&shared, lane, jobs, epoch, false).await;
        }
        shared.queue.landed(&batch.bits);
    }
}

fn refuse(jobs: Vec<Job>, why: &StoreError) {
    if jobs.iter().any(|j| j.answer.is_none()) {
        tracing::warn!("lazy writes were dropped: {why}");
    }
    for job in jobs {
        job.answer(Err(why.clone()));
    }
}

/// Makes `jobs` under `epoch`; `unsure`: some try may have been made without our knowing.
async fn commit(shared: &Shared, lane: i16, mut jobs: Vec<Job>, epoch: Epoch, mut unsure: bool) {
    // Lazy writes ride along where somebody waits for the disk anyway.
    let lazy = jobs.iter().all(|j| j.answer.is_none());
    let mut tries = 0;
    loop {
        let conn = match shared.links.writers[usize::from(lane.unsigned_abs())].get().await {
            Ok(conn) => conn,
            Err(StoreError::Unavailable(why)) if unsure => return refuse(jobs, &StoreError::Uncertain(why)),
            Err(e) => return refuse(jobs, &e),
        };
        let began = Instant::now();
        let arrays = Arrays::of(&jobs);
        let sent =
            tokio::time::timeout(shared.config.answer_within, send(lane, &conn, epoch, &arrays, lazy)).await;
        match sent {
            Ok(Ok(Sent::Answers(answers, batch))) => {
                let order = std::mem::take(&mut { arrays }.order);
                shared.figures().commit(began.elapsed(), order.len() as u64);
                if !lazy {
                    shared.acknowledged(epoch, lane, batch);
                }
                return answer(jobs, &order, &answers, unsure);
            }
            Ok(Ok(Sent::Over)) => {
                shared.lapse(epoch);
                // Had an earlier try been made, it was made before this boot ended.
                let why = if unsure {
                    StoreError::Uncertain(OVER.into())
                } else {
                    StoreError::Unavailable(OVER.into())
                };
                return refuse(jobs, &why);
            }
            Ok(Err(e)) if is_definite(&e) => {
                let in_the_way = [
                    SqlState::T_R_DEADLOCK_DETECTED,
                    SqlState::T_R_SERIALIZATION_FAILURE,
                    SqlState::LOCK_NOT_AVAILABLE,
                ];
                if e.code().is_some_and(|c| in_the_way.contains(c)) && tries < TRIES {
                    tries += 1;
                    tokio::time::sleep(Duration::from_millis(1 << tries)).await;
                    continue;
                }
                if e.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                    // A primary that became a standby: another server may be behind the address by now.
                    conn.give_up();
                }
                let why = describe(&e);
                if jobs.len() > 1 {
                    // One of them may be at fault; the others must not suffer for it.
                    drop(arrays);
                    for job in std::mem::take(&mut jobs) {
                        Box::pin(commit(shared, lane, vec![job], epoch, unsure)).await;
                    }
                    return;
                }
                return refuse(
                    jobs,
                    &if unsure { StoreError::Uncertain(why) } else { StoreError::Unavailable(why) },
                );
            }
            // The answer is lost, with whatever it was.
            Ok(Err(_)) => {
                unsure = true;
                conn.give_up();
            }
            Err(_) => {
                unsure = true;
                conn.give_up();
            }
        }
    }
}

fn answer(jobs: Vec<Job>, order: &[usize], answers: &[i16], unsure: bool) {
    let mut of = vec![0_i16; jobs.len()];
    for (job, answer) in order.iter().zip(answers) {
        of[*job] = *answer;
    }
    for (job, code) in jobs.into_iter().zip(of) {
        job.answer(match code {
            0 | 4 => Ok(Committed::Done),
            1 => Ok(Committed::KeyTaken),
            2 => Ok(Committed::SlotTaken),
            // This very version was written by somebody else: ours was not.
            3 => Ok(Committed::Stale),
            // Ours may have been made before the next one.
            5 if unsure => {
                Err(StoreError::Uncertain("the record was written again before the answer came".into()))
            }
            _ => Ok(Committed::Stale),
        });
    }
}
