//! A writer: takes whatever waits, has it written by one statement, which is one transaction, and answers. There may be two:
//! while one waits for the disk, the other gives the server work.
//!
//! A statement whose answer was lost is sent again, on the next connection: it recognises what it did. Only where it
//! can't tell (somebody wrote since) or the database stays away is the answer `Uncertain`.

use crate::link::{Conn, Link};
use crate::queue::{Job, Work};
use crate::record::{Change, Claims};
use crate::rows::{KeyClaim, Payload, Rows, SlotClaim};
use crate::shared::Shared;
use crate::{describe, is_definite, not_made};
use ledger::store::{Committed, StoreError};
use ledger::words::Epoch;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

pub(crate) const WRITE: &str = "SELECT answers, batch FROM write_3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// Tries of a statement that the server refused because others were in the way.
const TRIES: u32 = 6;
/// Batches made with care after one that had to be: callers who come twice come in crowds.
const WARY: u32 = 16;

/// The arrays of a batch. Borrowed from the jobs, so that a batch can be sent again.
#[derive(Default)]
struct Arrays<'a> {
    /// The states of creations and updates, in the order of the answers.
    codes: Vec<i16>,
    created: Rows<&'a [u8]>,
    slots: Rows<SlotClaim>,
    keys: Rows<KeyClaim>,
    updated: Rows<&'a [u8]>,
    payloads: Rows<Payload<'a>>,
    /// The job of each answer.
    order: Vec<usize>,
}

impl<'a> Arrays<'a> {
    fn of(jobs: &'a [Job]) -> Arrays<'a> {
        let mut writes: Vec<(usize, &Change)> = jobs
            .iter()
            .enumerate()
            .filter_map(|(n, j)| match &j.work {
                Work::Write(c) => Some((n, &**c)),
                Work::Flush => None,
            })
            .collect();
        // Creations by their slots, then updates by their ids: the order of the locks.
        writes.sort_unstable_by_key(|(_, c)| c.claims().map_or((true, c.row.id), |made| (false, made.slot)));
        let mut a = Arrays::default();
        for (job, c) in writes {
            let id = c.row.id;
            match c.claims() {
                Some(Claims { slot, before, forced, key }) => {
                    let (slot, before, forced) = (*slot, *before, *forced);
                    a.created.0.push(&c.row.binary);
                    a.slots.0.push(SlotClaim { slot, id, before, forced, low: c.row.low });
                    a.keys.0.extend(key.map(|key| KeyClaim { key, id }));
                }
                None => a.updated.0.push(&c.row.binary),
            }
            a.codes.push(c.row.code);
            a.order.push(job);
            let n = i32::try_from(a.order.len()).unwrap_or(i32::MAX);
            // The first of a kind stays, in one write as over many.
            for (at, b) in c.blobs.iter().enumerate() {
                if c.blobs[..at].iter().all(|earlier| earlier.kind != b.kind) {
                    a.payloads.0.push(Payload { n, id, kind: b.kind.code().cast_signed(), data: &b.data });
                }
            }
        }
        a.keys.0.sort_unstable();
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
    careful: bool,
) -> Result<Sent, tokio_postgres::Error> {
    let epoch = epoch.0.cast_signed();
    let parameters: [&(dyn ToSql + Sync); 10] =
        [&epoch, &lane, &lazy, &careful, &a.codes, &a.created, &a.slots, &a.keys, &a.updated, &a.payloads];
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
    let mut wary = 0;
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
            let how = How { careful: wary > 0, unsure: false };
            wary = if commit(&shared, lane, jobs, epoch, how).await { WARY } else { wary.saturating_sub(1) };
        }
        shared.queue.landed(&batch.landing);
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

/// How a batch is to be made.
#[derive(Clone, Copy)]
struct How {
    /// Something of it may be there already.
    careful: bool,
    /// Some try may have been made without our knowing.
    unsure: bool,
}

/// Makes `jobs` under `epoch`. Whether it turned out that care was needed.
async fn commit(shared: &Shared, lane: i16, mut jobs: Vec<Job>, epoch: Epoch, how: How) -> bool {
    let How { mut careful, mut unsure } = how;
    let mut surprised = false;
    // Lazy writes ride along where somebody waits for the disk anyway.
    let lazy = jobs.iter().all(|j| j.answer.is_none());
    let mut tries = 0;
    loop {
        let conn = match shared.links.writers[usize::from(lane.unsigned_abs())].get().await {
            Ok(conn) => conn,
            Err(StoreError::Unavailable(why)) => {
                refuse(jobs, &not_made(unsure, why));
                return surprised;
            }
            Err(e) => {
                refuse(jobs, &e);
                return surprised;
            }
        };
        let began = Instant::now();
        let arrays = Arrays::of(&jobs);
        let asked = send(lane, &conn, epoch, &arrays, lazy, careful);
        match tokio::time::timeout(shared.config.answer_within, asked).await {
            Ok(Ok(Sent::Answers(answers, batch))) => {
                let order = std::mem::take(&mut { arrays }.order);
                shared.figures().commit(began.elapsed(), order.len() as u64);
                if !lazy {
                    shared.acknowledged(epoch, lane, batch);
                }
                answer(jobs, &order, &answers, unsure);
                return surprised;
            }
            Ok(Ok(Sent::Over)) => {
                shared.lapse(epoch);
                // Had an earlier try been made, it was made before this boot ended.
                refuse(jobs, &not_made(unsure, OVER.into()));
                return surprised;
            }
            Ok(Err(e)) if !careful && e.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                (careful, surprised) = (true, true);
            }
            Ok(Err(e)) if is_definite(&e) => {
                if conn.makes_again(&e, &mut tries, TRIES).await {
                    continue;
                }
                let why = describe(&e);
                if jobs.len() > 1 {
                    // One of them may be at fault; the others must not suffer for it.
                    drop(arrays);
                    for job in std::mem::take(&mut jobs) {
                        Box::pin(commit(shared, lane, vec![job], epoch, How { careful: true, unsure })).await;
                    }
                    return surprised;
                }
                refuse(jobs, &not_made(unsure, why));
                return surprised;
            }
            // The answer is lost, with whatever it was.
            Ok(Err(_)) | Err(_) => {
                (careful, unsure) = (true, true);
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
