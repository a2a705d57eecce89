//! Claims on allowances: whatever waits is one statement over a connection of its own, so that claims share commits and wait
//! neither for recovery nor for retention. It can be made again when its answer was lost.

use crate::link::lock;
use crate::read::count;
use crate::record::Bits;
use crate::shared::{CLOSED, PRUNE_CLAIMS, Shared};
use crate::{describe, is_definite, is_in_the_way, is_read_only, not_made};
use ledger::claims::{self, Claim, Claimed};
use ledger::store::StoreError;
use ledger::words::{OperationId, Time};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub(crate) const CLAIMS: [&str; 1] =
    ["SELECT full_at, held, free FROM claims_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"];

/// The most that is made in one statement. Others wait for the buckets of it meanwhile.
const BATCH: usize = 256;
/// The most buckets of one statement, but for a single job: each takes a place in the server's table of locks.
const BUCKETS: usize = 512;
/// How often one is made again that found another's work in the way.
const TRIES: u32 = 2;

enum Ask {
    Claim(Vec<Claim>),
    Back(Vec<String>),
}

impl Ask {
    fn buckets(&self) -> impl Iterator<Item = &String> {
        let (claims, back) = match self {
            Ask::Claim(claims) => (claims.as_slice(), &[][..]),
            Ask::Back(buckets) => (&[][..], buckets.as_slice()),
        };
        claims.iter().map(|c| &c.bucket).chain(back)
    }
}

type Answered = Result<Claimed, StoreError>;

struct Job {
    holder: OperationId,
    turn: u64,
    ask: Ask,
    answer: oneshot::Sender<Answered>,
}

/// What waits to be claimed or given back, in order.
#[derive(Default)]
pub(crate) struct Desk {
    waiting: Mutex<VecDeque<Job>>,
    wake: Notify,
}

impl Desk {
    /// The next batch: a holder is in it once, in its order. Who is gone claims nothing.
    fn take(&self) -> Vec<Job> {
        let mut waiting = lock(&self.waiting);
        let (mut jobs, mut left) = (Vec::new(), VecDeque::new());
        let (mut holders, mut buckets) = (HashSet::new(), HashSet::new());
        while let Some(job) = waiting.pop_front() {
            if matches!(job.ask, Ask::Claim(_)) && job.answer.is_closed() {
                continue;
            }
            let mut more: HashSet<&String> = job.ask.buckets().collect();
            more.retain(|b| !buckets.contains(*b));
            let fits = jobs.is_empty() || (jobs.len() < BATCH && buckets.len() + more.len() <= BUCKETS);
            // What waits keeps its holder's later ones waiting.
            if holders.insert(job.holder) && fits {
                let more: Vec<String> = more.into_iter().cloned().collect();
                buckets.extend(more);
                jobs.push(job)
            } else {
                left.push_back(job)
            }
        }
        *waiting = left;
        jobs
    }

    /// Somebody should look: something waits, or the store is closed.
    pub fn rouse(&self) {
        self.wake.notify_one();
    }
}

async fn stand_in_line(shared: &Shared, holder: OperationId, turn: u64, ask: Ask) -> Answered {
    let (answer, answered) = oneshot::channel();
    {
        // Under the lock: whoever ends the line afterwards finds this in it.
        let mut waiting = lock(&shared.desk.waiting);
        shared.usable()?;
        waiting.push_back(Job { holder, turn, ask, answer });
    }
    shared.desk.rouse();
    answered.await.unwrap_or_else(|_| Err(StoreError::Uncertain(CLOSED.into())))
}

pub(crate) async fn claim(shared: &Shared, holder: OperationId, turn: u64, claims: &[Claim]) -> Answered {
    claims::bounded(claims)?;
    stand_in_line(shared, holder, turn, Ask::Claim(claims.to_vec())).await
}

pub(crate) async fn release(
    shared: &Shared,
    holder: OperationId,
    turn: u64,
    buckets: &[String],
) -> Result<(), StoreError> {
    // Under other names nothing was ever claimed.
    let buckets: Vec<String> = buckets.iter().filter(|b| claims::fits(b)).cloned().collect();
    if buckets.is_empty() {
        return Ok(());
    }
    stand_in_line(shared, holder, turn, Ask::Back(buckets)).await.map(|_| ())
}

pub(crate) async fn prune(shared: &Shared, now: Time, limit: usize) -> Result<usize, StoreError> {
    let rows = shared.again(PRUNE_CLAIMS, &[&now.0, &count(limit)]).await?;
    Ok(rows.first().map_or(0, |r| usize::try_from(r.get::<_, i64>(0)).unwrap_or(0)))
}

/// Makes what waits until the store is closed.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let jobs = shared.desk.take();
        if shared.is_closing() {
            let late = std::mem::take(&mut *lock(&shared.desk.waiting));
            let no = || Err(StoreError::Unavailable(CLOSED.into()));
            // Whoever asked may have gone.
            jobs.into_iter().chain(late).for_each(|job| drop(job.answer.send(no())));
            return;
        }
        if jobs.is_empty() {
            shared.desk.wake.notified().await;
            continue;
        }
        answer(&shared, jobs).await;
    }
}

async fn answer(shared: &Shared, jobs: Vec<Job>) {
    let failed = match make(shared, &jobs).await {
        Ok(rows) if rows.len() == jobs.len() => {
            // Whoever asked may have gone.
            jobs.into_iter().zip(&rows).for_each(|(job, row)| drop(job.answer.send(Ok(claimed(row)))));
            return;
        }
        Ok(_) => Failed { why: StoreError::Uncertain("a claim had no answer".into()), how: How::Lost },
        Err(failed) => failed,
    };
    let apart = match failed.how {
        // One of them may be at fault; the others must not suffer for it.
        How::Refused if jobs.len() > 1 => jobs.into_iter().map(|job| vec![job]).collect(),
        // Claims don't wait on; what is not given back would be held for nothing.
        How::InTheWay => {
            let (back, claims): (Vec<Job>, Vec<Job>) =
                jobs.into_iter().partition(|job| matches!(job.ask, Ask::Back(_)));
            let alone = claims.is_empty();
            refuse(claims, &failed.why);
            if alone {
                refuse(back, &failed.why);
                return;
            }
            vec![back]
        }
        How::Refused | How::Lost => return refuse(jobs, &failed.why),
    };
    for jobs in apart.into_iter().filter(|jobs| !jobs.is_empty()) {
        Box::pin(answer(shared, jobs)).await;
    }
}

fn refuse(jobs: Vec<Job>, why: &StoreError) {
    jobs.into_iter().for_each(|job| drop(job.answer.send(Err(why.clone()))));
}

fn claimed(row: &Row) -> Claimed {
    match row.get::<_, Option<i32>>(0) {
        None => Claimed::Granted,
        Some(place) => Claimed::Full {
            which: usize::try_from(place - 1).unwrap_or(0),
            used: u64::try_from(row.get::<_, i64>(1)).unwrap_or(0),
            next: row.get::<_, Option<i64>>(2).map(Time),
        },
    }
}

/// The arrays of a batch.
#[derive(Default)]
struct Arrays<'a> {
    names: Vec<&'a str>,
    holders: Vec<Bits>,
    turns: Vec<i64>,
    back: Vec<bool>,
    first: Vec<i32>,
    last: Vec<i32>,
    of: Vec<i32>,
    bucket: Vec<i32>,
    amount: Vec<i64>,
    cap: Vec<i64>,
    until: Vec<i64>,
}

/// The place of what is as far on in an array of the database.
fn place(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

impl<'a> Arrays<'a> {
    fn of(jobs: &'a [Job]) -> Arrays<'a> {
        let mut a = Arrays::default();
        let mut known: HashMap<&str, i32> = HashMap::new();
        for job in jobs {
            a.holders.push(Bits::id(job.holder));
            a.turns.push(job.turn.cast_signed());
            a.back.push(matches!(job.ask, Ask::Back(_)));
            a.first.push(place(a.of.len() + 1));
            let which = place(a.holders.len());
            let mut part = |bucket: &'a str, amount: u64, cap: u64, until: Time| {
                let next = place(known.len() + 1);
                let n = *known.entry(bucket).or_insert(next);
                if n == next {
                    a.names.push(bucket);
                }
                a.of.push(which);
                a.bucket.push(n);
                a.amount.push(amount.cast_signed());
                a.cap.push(cap.cast_signed());
                a.until.push(until.0);
            };
            match &job.ask {
                Ask::Claim(claims) => claims.iter().for_each(|c| part(&c.bucket, c.amount, c.cap, c.until)),
                Ask::Back(buckets) => {
                    let each: HashSet<&str> = buckets.iter().map(String::as_str).collect();
                    each.into_iter().for_each(|b| part(b, 0, 0, Time(0)));
                }
            }
            a.last.push(place(a.of.len()));
        }
        a
    }
}

/// Why a batch was not made.
struct Failed {
    why: StoreError,
    how: How,
}

enum How {
    /// The database was not reached.
    Lost,
    /// Another's work was in the way for too long.
    InTheWay,
    /// The database refused it, as it may not refuse each of its parts.
    Refused,
}

async fn make(shared: &Shared, jobs: &[Job]) -> Result<Vec<Row>, Failed> {
    let a = Arrays::of(jobs);
    // Whether some try may have been made without our knowing.
    let (mut unsure, mut tries) = (false, 0);
    loop {
        let conn = match shared.links.claims.get().await {
            Ok(conn) => conn,
            Err(StoreError::Unavailable(why)) => {
                return Err(Failed { why: not_made(unsure, why), how: How::Lost });
            }
            Err(why) => return Err(Failed { why, how: How::Lost }),
        };
        let now = shared.clock.now().0;
        let args: [&(dyn ToSql + Sync); 12] = [
            &now, &a.names, &a.holders, &a.turns, &a.back, &a.first, &a.last, &a.of, &a.bucket, &a.amount,
            &a.cap, &a.until,
        ];
        let asked = conn.client.query(&conn.statements[0], &args);
        match tokio::time::timeout(shared.config.answer_within, asked).await {
            Ok(Ok(rows)) => return Ok(rows),
            Ok(Err(e)) if is_definite(&e) => {
                if conn.makes_again(&e, &mut tries, TRIES).await {
                    continue;
                }
                let how = if is_in_the_way(&e) {
                    How::InTheWay
                } else if is_read_only(&e) {
                    How::Lost
                } else {
                    How::Refused
                };
                return Err(Failed { why: not_made(unsure, describe(&e)), how });
            }
            // The answer is lost, with whatever it was.
            Ok(Err(_)) | Err(_) => {
                unsure = true;
                conn.give_up();
            }
        }
    }
}
