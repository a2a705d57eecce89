//! The way to the writer: what waits to be written, in order.
//!
//! Bounded: whoever waits for an answer holds one of a limited number of permits; lazy writes beyond a limit
//! are dropped, as a crash would drop them.

use crate::apply::Pruned;
use crate::record::Change;
use crate::sessions;
use ledger::claims::{Claim, Claimed};
use ledger::store::{ApiKey, Committed, Session, StoreError};
use ledger::words::{Millis, OperationId, Time};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Writers that may wait at once; more wait for a permit.
const WAITING: usize = 4096;
/// Lazy writes that may wait.
const LAZY: usize = 65_536;
/// Writes in one transaction.
const BATCH: usize = 1024;
/// Bytes after which a transaction takes no more writes.
const BATCH_BYTES: usize = 16 << 20;
/// How long a lazy write waits for others to ride with.
const LAZY_FOR: Duration = Duration::from_millis(20);

pub(crate) enum Work {
    Write(Change),
    Prune {
        now: Time,
        tombstones_for: Millis,
        limit: usize,
    },
    ApiKey(ApiKey),
    Session(sessions::Work),
    Touch {
        id_hash: [u8; 32],
        principal: String,
        at: Time,
    },
    PruneHandles {
        now: Time,
        limit: usize,
    },
    Shelve {
        name: String,
        expected: u64,
        data: Vec<u8>,
        until: Option<Time>,
    },
    PruneShelf {
        now: Time,
        limit: usize,
    },
    Claim {
        holder: OperationId,
        turn: u64,
        claims: Vec<Claim>,
    },
    Release {
        holder: OperationId,
        turn: u64,
        buckets: Vec<String>,
    },
    PruneClaims {
        now: Time,
        limit: usize,
    },
    /// Answered when everything before it is durable.
    Flush,
    /// The last one.
    Close,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Committed(Committed),
    Pruned(Pruned),
    Session(Option<Box<Session>>),
    SessionsGone(usize),
    SessionsEnded(Vec<String>),
    Gone(usize),
    Shelved(bool),
    Claimed(Claimed),
    Done,
}

pub(crate) type Answered = Result<Answer, StoreError>;

pub(crate) struct Job {
    pub work: Work,
    /// Nobody waits for a lazy write.
    pub answer: Option<oneshot::Sender<Answered>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Job {
    pub fn answer(self, answer: Answered) {
        if let Some(a) = self.answer {
            // Whoever asked may have gone; the write stands all the same.
            let _ = a.send(answer);
        }
    }
}

#[derive(Default)]
struct Inner {
    jobs: VecDeque<Job>,
    urgent: usize,
    lazy_since: Option<Instant>,
    /// The writer sleeps: wake it.
    asleep: bool,
    stopped: bool,
}

pub(crate) struct Queue {
    inner: Mutex<Inner>,
    wake: Condvar,
    permits: Arc<Semaphore>,
}

/// The writer has stopped; the job was not begun.
pub(crate) struct Stopped;

impl Queue {
    pub fn new() -> Queue {
        Queue { inner: Mutex::default(), wake: Condvar::new(), permits: Arc::new(Semaphore::new(WAITING)) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts work in line and waits until it is done.
    pub async fn ask(&self, work: Work) -> Result<Answered, Stopped> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| Stopped)?;
        let (answer, answered) = oneshot::channel();
        self.push(Job { work, answer: Some(answer), _permit: Some(permit) })?;
        // A writer that goes without an answer was cut off in the middle of it.
        Ok(answered.await.unwrap_or_else(|_| Err(StoreError::Uncertain("the writer stopped".into()))))
    }

    /// Puts a lazy write, or something else that nobody waits for, in line. Whether it was taken.
    pub fn tell(&self, work: Work) -> bool {
        let mut q = self.inner();
        if q.stopped || q.jobs.len() - q.urgent >= LAZY {
            return false;
        }
        q.jobs.push_back(Job { work, answer: None, _permit: None });
        if q.lazy_since.is_none() {
            q.lazy_since = Some(Instant::now());
            self.rouse(&mut q);
        }
        true
    }

    /// Asks the writer to finish what waits and stop.
    pub fn close(&self) {
        let _ = self.push(Job { work: Work::Close, answer: None, _permit: None });
    }

    fn push(&self, job: Job) -> Result<(), Stopped> {
        let mut q = self.inner();
        if q.stopped {
            return Err(Stopped);
        }
        q.jobs.push_back(job);
        q.urgent += 1;
        self.rouse(&mut q);
        Ok(())
    }

    fn rouse(&self, q: &mut Inner) {
        if q.asleep {
            q.asleep = false;
            self.wake.notify_one();
        }
    }

    /// The next batch: everything that waits, up to a limit, as soon as anybody waits for it. Empty after
    /// `idle` without any.
    pub fn next(&self, idle: Duration) -> Vec<Job> {
        let until = Instant::now() + idle;
        let mut q = self.inner();
        loop {
            let lazy_until = q.lazy_since.map(|t| t + LAZY_FOR);
            let now = Instant::now();
            if q.urgent > 0 || q.jobs.len() >= BATCH || lazy_until.is_some_and(|t| t <= now) {
                break;
            }
            let wait = lazy_until.map_or(until, |t| t.min(until)).saturating_duration_since(now);
            if wait.is_zero() {
                return Vec::new();
            }
            q.asleep = true;
            q = self.wake.wait_timeout(q, wait).unwrap_or_else(PoisonError::into_inner).0;
            q.asleep = false;
        }
        let (mut batch, mut bytes) = (Vec::with_capacity(q.jobs.len().min(BATCH)), 0);
        while batch.len() < BATCH
            && bytes < BATCH_BYTES
            && let Some(job) = q.jobs.pop_front()
        {
            // A lazy write is one that nobody waits for; closing has to be urgent without an answer too.
            q.urgent -= usize::from(job.answer.is_some() || matches!(job.work, Work::Close));
            bytes += match &job.work {
                Work::Write(c) => c.bytes(),
                Work::Session(s) => s.bytes(),
                Work::Shelve { data, .. } => data.len(),
                _ => 0,
            };
            let last = matches!(job.work, Work::Close);
            batch.push(job);
            if last {
                break;
            }
        }
        if q.jobs.len() == q.urgent {
            q.lazy_since = None;
        }
        batch
    }

    /// Takes nothing more; returns what was never begun.
    pub fn stop(&self) -> Vec<Job> {
        self.permits.close();
        let mut q = self.inner();
        q.stopped = true;
        q.urgent = 0;
        q.jobs.drain(..).collect()
    }
}
