//! The way to the writer: what waits to be written, in order, and how a batch is taken from it.
//!
//! Bounded: whoever waits for an answer holds one of a limited number of permits; lazy writes beyond a limit are dropped,
//! as a crash would drop them. No two writes of one batch are about the same operation, key or slot: the later one waits
//! for the next batch, and everything behind it that has to do with it too.

use crate::link::lock;
use crate::record::{Bits, Change};
use ledger::store::{Committed, StoreError};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

/// Writers that may wait at once; more wait for a permit.
const WAITING: usize = 4096;
/// Lazy writes that may wait.
const LAZY: usize = 65_536;
/// Writes in one transaction.
const BATCH: usize = 512;
/// Bytes after which a transaction takes no more writes.
const BATCH_BYTES: usize = 8 << 20;
/// How long a lazy write waits for others to ride with.
const LAZY_FOR: Duration = Duration::from_millis(20);

pub(crate) type Answered = Result<Committed, StoreError>;

pub(crate) enum Work {
    Write(Box<Change>),
    /// Answered when everything before it is durable.
    Flush,
}

pub(crate) struct Job {
    pub work: Work,
    /// Nobody waits for a lazy write.
    pub answer: Option<oneshot::Sender<Answered>>,
    _permit: Option<OwnedSemaphorePermit>,
    /// Of a flush: the newest batch in which something before it was taken, once all of that is.
    after: Option<u64>,
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
    stopped: bool,
    /// Operations, keys and slots of the batches that writers are at.
    flying: HashSet<Bits>,
    /// The numbers of these batches, and how many writes they have.
    batches: Vec<u64>,
    flying_jobs: usize,
    /// The number of the newest batch.
    newest: u64,
}

impl Inner {
    /// Whether a writer is to take a batch. While another is under way this one waits for company: two small ones cost the
    /// server more than one that is not. When that is done, it waits no more.
    fn is_due(&self) -> bool {
        self.urgent * 3 > self.flying_jobs * 2 || self.jobs.len() >= BATCH || self.stopped
    }
}

pub(crate) struct Queue {
    inner: Mutex<Inner>,
    wake: Notify,
    permits: Arc<Semaphore>,
}

/// Nothing is taken any more; the job was not begun.
pub(crate) struct Stopped;

impl Queue {
    pub fn new() -> Queue {
        Queue { inner: Mutex::default(), wake: Notify::new(), permits: Arc::new(Semaphore::new(WAITING)) }
    }

    /// Puts work in line and waits until it is done.
    pub async fn ask(&self, work: Work) -> Result<Answered, Stopped> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| Stopped)?;
        let (answer, answered) = oneshot::channel();
        let due = {
            let mut q = lock(&self.inner);
            if q.stopped {
                return Err(Stopped);
            }
            q.jobs.push_back(Job { work, answer: Some(answer), _permit: Some(permit), after: None });
            q.urgent += 1;
            // Else who lands the batch that this one waits behind wakes a writer.
            q.is_due()
        };
        if due {
            self.wake.notify_one();
        }
        // A writer that goes without an answer was cut off in the middle of it.
        Ok(answered.await.unwrap_or_else(|_| Err(StoreError::Uncertain("the writer stopped".into()))))
    }

    /// Puts a lazy write in line. Whether it was taken.
    pub fn tell(&self, change: Change) -> bool {
        let mut q = lock(&self.inner);
        if q.stopped || q.jobs.len() - q.urgent >= LAZY {
            return false;
        }
        q.jobs.push_back(Job {
            work: Work::Write(Box::new(change)),
            answer: None,
            _permit: None,
            after: None,
        });
        if q.lazy_since.is_none() {
            q.lazy_since = Some(Instant::now());
            drop(q);
            self.wake.notify_one();
        }
        true
    }

    /// The next batch for a writer, as soon as anybody waits for it. Nothing once it was stopped and is empty. The writer
    /// says by [`Queue::landed`] that it is done with it: until then no other batch has to do with the same things.
    pub async fn next(&self) -> Option<Batch> {
        loop {
            let pause = {
                let mut q = lock(&self.inner);
                let lazy_until = q.lazy_since.map(|t| t + LAZY_FOR);
                if q.is_due() || lazy_until.is_some_and(|t| t <= Instant::now()) {
                    let batch = take(&mut q);
                    if !batch.jobs.is_empty() {
                        return Some(batch);
                    }
                    if q.stopped && q.jobs.is_empty() {
                        // One was told; it tells the other.
                        self.wake.notify_one();
                        return None;
                    }
                    // All that waits has to do with what another writer is at, who looks again when that is done.
                    Duration::from_millis(50)
                } else {
                    lazy_until
                        .map_or(Duration::from_secs(3600), |t| t.saturating_duration_since(Instant::now()))
                }
            };
            let _ = tokio::time::timeout(pause, self.wake.notified()).await;
        }
    }

    /// A batch is done.
    pub fn landed(&self, batch: &Landed) {
        let mut q = lock(&self.inner);
        for b in &batch.bits {
            q.flying.remove(b);
        }
        q.batches.retain(|n| *n != batch.number);
        q.flying_jobs -= batch.jobs;
        if !q.jobs.is_empty() {
            drop(q);
            // Its own writer may have lost its connection meanwhile.
            self.wake.notify_one();
        }
    }

    /// Takes nothing more; what waits is still done.
    pub fn stop(&self) {
        self.permits.close();
        lock(&self.inner).stopped = true;
        self.wake.notify_one();
    }
}

/// What a writer takes at once.
pub(crate) struct Batch {
    pub jobs: Vec<Job>,
    pub landing: Landed,
}

/// What is no longer under way when a batch is done.
pub(crate) struct Landed {
    number: u64,
    /// What its writes had to do with.
    bits: Vec<Bits>,
    /// How many they were.
    jobs: usize,
}

fn take(q: &mut Inner) -> Batch {
    let (mut jobs, mut bits, mut bytes, mut left) = (Vec::new(), Vec::new(), 0, VecDeque::new());
    let mut busy: HashSet<Bits> = HashSet::new();
    while jobs.len() < BATCH && bytes < BATCH_BYTES {
        let Some(mut job) = q.jobs.pop_front() else { break };
        let ready = match &job.work {
            // Durable are all before it, so none may be left behind or be under way. What came after it may be: else it
            // would wait for as long as there is always something.
            Work::Flush if left.is_empty() => {
                let with = q.newest + u64::from(!jobs.is_empty());
                let after = *job.after.get_or_insert(with);
                q.batches.iter().all(|n| *n > after)
            }
            Work::Flush => false,
            Work::Write(c) => {
                let claims = c.claims();
                let parts = [Some(c.row.id), claims.map(|c| c.slot), claims.and_then(|c| c.key)];
                // Whatever is left behind is busy as well: order is kept.
                let mut clear = true;
                for part in parts.into_iter().flatten() {
                    clear &= busy.insert(part) && !q.flying.contains(&part);
                }
                if clear {
                    bytes += c.bytes();
                    bits.extend(parts.into_iter().flatten());
                }
                clear
            }
        };
        if ready {
            q.urgent -= usize::from(job.answer.is_some());
            jobs.push(job);
        } else {
            left.push_back(job);
            if left.len() >= BATCH {
                break;
            }
        }
    }
    while let Some(job) = left.pop_back() {
        q.jobs.push_front(job);
    }
    if q.jobs.len() == q.urgent {
        q.lazy_since = None;
    }
    if !jobs.is_empty() {
        q.flying.extend(&bits);
        q.newest += 1;
        q.batches.push(q.newest);
        q.flying_jobs += jobs.len();
    }
    let landing = Landed { number: q.newest, bits, jobs: jobs.len() };
    Batch { jobs, landing }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    /// Puts the writes in line.
    async fn ask(q: &Arc<Queue>, numbers: std::ops::Range<u8>) {
        for n in numbers {
            let q = q.clone();
            tokio::spawn(async move { q.ask(Work::Write(Box::new(Change::of_test(n)))).await.map(drop) });
        }
        // All are in line before anything is taken: there is one thread.
        tokio::task::yield_now().await;
    }

    /// What is taken of them within a moment.
    async fn taken(q: &Arc<Queue>, numbers: std::ops::Range<u8>) -> Option<Batch> {
        ask(q, numbers).await;
        tokio::time::timeout(Duration::from_millis(100), q.next()).await.ok().flatten()
    }

    #[tokio::test]
    async fn a_writer_that_waits_is_woken_once_there_is_enough_or_nothing_under_way() {
        let q = Arc::new(Queue::new());
        let next = || {
            let q = q.clone();
            tokio::spawn(async move { tokio::time::timeout(Duration::from_secs(10), q.next()).await })
        };
        let first = taken(&q, 0..9).await.unwrap();
        let waiting = next();
        ask(&q, 10..16).await;
        assert!(!waiting.is_finished(), "six are few beside nine");
        ask(&q, 16..17).await;
        let second = waiting.await.unwrap().expect("who made it enough wakes the writer").unwrap();
        assert_eq!(second.jobs.len(), 7);
        let waiting = next();
        ask(&q, 20..21).await;
        q.landed(&first.landing);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "one is few beside seven");
        q.landed(&second.landing);
        assert_eq!(waiting.await.unwrap().expect("who lands the last wakes it").unwrap().jobs.len(), 1);
    }

    #[tokio::test]
    async fn a_second_batch_waits_for_company_or_for_the_first() {
        let q = Arc::new(Queue::new());
        let first = taken(&q, 0..9).await.unwrap();
        assert_eq!(first.jobs.len(), 9, "nothing was under way: who is there is taken at once");
        assert!(taken(&q, 10..16).await.is_none(), "six are few beside nine");
        let second = taken(&q, 16..17).await.unwrap();
        assert_eq!(second.jobs.len(), 7);
        assert!(taken(&q, 20..21).await.is_none());
        q.landed(&first.landing);
        assert!(taken(&q, 0..0).await.is_none(), "one is few beside seven");
        q.landed(&second.landing);
        assert_eq!(taken(&q, 0..0).await.unwrap().jobs.len(), 1, "nothing is under way any more");
    }

    #[tokio::test]
    async fn a_flush_waits_for_what_was_before_it_and_for_nothing_else() {
        let q = Arc::new(Queue::new());
        let holds = |b: &Batch| b.jobs.iter().any(|j| matches!(j.work, Work::Flush));
        let mut flying = VecDeque::from([taken(&q, 0..9).await.unwrap()]);
        let asked = q.clone();
        tokio::spawn(async move { asked.ask(Work::Flush).await.map(drop) });
        tokio::task::yield_now().await;
        flying.push_back(taken(&q, 10..20).await.unwrap());
        assert!(!holds(&flying[1]), "what was before it is under way");
        // There is a batch under way at any time.
        q.landed(&flying.pop_front().unwrap().landing);
        let next = taken(&q, 20..40).await.unwrap();
        assert!(holds(&next) && next.jobs.len() == 21, "what was before it is done");
    }
}
