//! The queue of a replica and its writer: whatever waits is one statement, which is committed or not as a whole. A
//! statement whose answer was lost is sent again on the next connection, while the first may still be on its way.

use super::server::{Answers, admits};
use super::store::Replica;
use crate::world::{OUTSIDE, lock};
use ledger::planted::{self, Plant};
use ledger::store::{Committed, StoreError, Write, key_hash_of, slot_hash_of};
use ledger::words::{Epoch, KeyHash, OperationId, SlotHash};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::oneshot;

pub(crate) type Answered = Result<Committed, StoreError>;

/// How long a lazy write waits for others to ride with.
const LAZY_FOR: i64 = 20;
/// How long a replica waits for an answer before it gives a connection up.
const ANSWER_WITHIN: i64 = 1500;

pub(crate) struct Job {
    /// Without one: answered when everything before it is durable.
    pub write: Option<Write>,
    pub by: Epoch,
    /// Whose call it is.
    pub task: usize,
    /// Nobody waits for a lazy write.
    pub answer: Option<oneshot::Sender<Answered>>,
}

impl Job {
    fn answer(&mut self, answer: Answered) {
        if let Some(a) = self.answer.take() {
            let _ = a.send(answer);
        }
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    pub jobs: VecDeque<Job>,
}

#[derive(PartialEq, Eq, Hash)]
enum Part {
    Operation(OperationId),
    Slot(SlotHash),
    Key(KeyHash),
}

fn parts(write: &Write) -> Vec<Part> {
    let op = write.operation();
    let mut parts = vec![Part::Operation(op.id)];
    if let Write::Create { .. } = write {
        parts.push(Part::Slot(slot_hash_of(op)));
        parts.extend(key_hash_of(op).map(Part::Key));
    }
    parts
}

impl Queue {
    /// The next batch: no two writes of it are about the same thing, and order is kept.
    fn take(&mut self) -> Vec<Job> {
        let (mut jobs, mut left) = (Vec::new(), VecDeque::new());
        let mut busy: HashSet<Part> = HashSet::new();
        while let Some(job) = self.jobs.pop_front() {
            let clear = match &job.write {
                None => left.is_empty(),
                Some(w) => {
                    let mut clear = true;
                    for part in parts(w) {
                        clear &= busy.insert(part);
                    }
                    clear
                }
            };
            if clear { jobs.push(job) } else { left.push_back(job) }
        }
        self.jobs = left;
        jobs
    }
}

fn over() -> String {
    "the lease is over".into()
}

/// What becomes of a statement on its way.
pub(super) enum Fate {
    Plain,
    Refused,
    /// The connection breaks with it in flight: when it arrives at the server, if it does, and how long that takes to
    /// commit it.
    Broken {
        arrives: Option<(i64, i64)>,
        away: i64,
    },
    /// It takes long.
    Slow {
        arrives: i64,
        works: i64,
    },
    DieBefore,
    DieAfter,
}

impl Replica {
    pub async fn ask(&self, write: Option<Write>, by: Epoch) -> Answered {
        let (answer, answered) = oneshot::channel();
        let task = self.lab.world.current();
        lock(&self.queue).jobs.push_back(Job { write, by, task, answer: Some(answer) });
        self.wake.notify_one();
        answered.await.unwrap_or_else(|_| Err(StoreError::Uncertain("the writer stopped".into())))
    }

    pub async fn write_alone(&self, write: Write, by: Epoch) -> Answered {
        if self.is_lapsed() || lock(&self.standing).epoch != by {
            self.lab.state().excuse(write.operation().id);
            return Err(StoreError::Unavailable(over()));
        }
        let (answer, mut answered) = oneshot::channel();
        let task = self.lab.world.current();
        let job = Job { write: Some(write), by, task, answer: Some(answer) };
        self.commit(vec![job], by, false).await;
        answered.try_recv().unwrap_or_else(|_| Err(StoreError::Uncertain("no answer".into())))
    }

    pub fn tell(&self, write: Write, by: Epoch) {
        let task = self.lab.world.current();
        lock(&self.queue).jobs.push_back(Job { write: Some(write), by, task, answer: None });
        self.wake.notify_one();
    }

    /// Writes for as long as the process lives.
    pub async fn write(self: Arc<Self>) {
        loop {
            self.wake.notified().await;
            loop {
                let (waits, urgent) = {
                    let q = lock(&self.queue);
                    (!q.jobs.is_empty(), q.jobs.iter().any(|j| j.answer.is_some()))
                };
                if !waits {
                    break;
                }
                if !urgent {
                    tokio::select! {
                        biased;
                        () = self.wake.notified() => {}
                        () = self.lab.world.sleep(LAZY_FOR) => {}
                    }
                }
                let batch = lock(&self.queue).take();
                let lapsed = self.is_lapsed();
                let epoch = lock(&self.standing).epoch;
                let mut jobs = Vec::with_capacity(batch.len());
                for mut job in batch {
                    // What an earlier boot asked for is not made under the next one.
                    if job.write.is_some() && (lapsed || job.by != epoch) {
                        self.lab.state().coverage.fault("write of a lapsed replica refused");
                        if let Some(w) = &job.write {
                            self.lab.state().excuse(w.operation().id);
                        }
                        job.answer(Err(StoreError::Unavailable(over())));
                    } else {
                        jobs.push(job);
                    }
                }
                if !jobs.is_empty() {
                    self.commit(jobs, epoch, false).await;
                }
            }
        }
    }

    pub(super) fn fate(&self) -> Fate {
        let rates = &self.lab.plan.rates;
        let mut r = lock(&self.rng);
        let mut hits = |rate| self.lab.hits(&mut r, rate);
        let (fate, word) = if hits(rates.store_unavailable) {
            (Fate::Refused, "write refused")
        } else if hits(rates.store_uncertain) {
            let away = if r.mille(300) { r.range(500, 4000) } else { r.range(25, 60) };
            match r.below(6) {
                0 | 1 => (Fate::Broken { arrives: Some((0, 0)), away }, "acknowledgement lost"),
                2 => (Fate::Broken { arrives: None, away }, "write lost"),
                // About when it is sent again, or when the replica has long gone on under another epoch.
                n => {
                    let late = if n == 5 { r.range(500, 6000) } else { r.range(1, away + 60) };
                    let works = if r.mille(300) { r.range(1, 800) } else { 0 };
                    (Fate::Broken { arrives: Some((late, works)), away }, "write late")
                }
            }
        } else if hits(rates.store_duplicate) {
            (Fate::Broken { arrives: Some((0, 0)), away: 0 }, "write repeated")
        } else if hits(rates.store_kill) {
            if r.mille(500) {
                (Fate::DieBefore, "died before a write")
            } else {
                (Fate::DieAfter, "died after a write")
            }
        } else if hits(rates.store_slow) {
            let (arrives, works) = (r.range(0, 900), r.range(0, 1100));
            return Fate::Slow { arrives, works };
        } else {
            return Fate::Plain;
        };
        drop(r);
        self.lab.state().coverage.fault(word);
        self.lab.say(format_args!("epoch {}: {word}", lock(&self.standing).epoch.0));
        fate
    }

    /// Sends a batch. The server works on it whatever becomes of the connection. `None`: the answer is lost.
    async fn send(
        &self,
        epoch: Epoch,
        writes: &Arc<Vec<(Write, usize)>>,
        lazy: bool,
        fate: Fate,
    ) -> Option<Answers> {
        let lab = &self.lab;
        self.way().await;
        let (arrives, works) = match fate {
            Fate::Plain | Fate::Refused | Fate::DieAfter if self.is_away() => return None,
            Fate::Plain | Fate::Refused | Fate::DieAfter => {
                let answers = {
                    let mut s = lab.state();
                    if admits(&s, epoch) {
                        Answers::All(s.commit(lab, epoch, lab.world.now(), writes, lazy))
                    } else {
                        Answers::Over
                    }
                };
                if let Fate::DieAfter = fate {
                    self.die().await;
                }
                self.way().await;
                return (!self.is_away()).then_some(answers);
            }
            Fate::DieBefore => {
                self.die().await;
                return None;
            }
            Fate::Slow { arrives, works } => (arrives, works),
            Fate::Broken { arrives, away } => {
                self.link_away(away);
                match arrives {
                    Some(when) => when,
                    None => return None,
                }
            }
        };
        let broken = self.is_away();
        let (tx, rx) = oneshot::channel();
        let (lab, writes, replica) = (self.lab.clone(), writes.clone(), self.number);
        self.lab.world.spawn(
            OUTSIDE,
            Box::pin(async move {
                let generation = lab.state().server.generation;
                lab.world.sleep(arrives).await;
                let admitted = {
                    let s = lab.state();
                    let same = s.server.generation == generation && s.server.up_at <= lab.world.now();
                    if !same {
                        return;
                    }
                    admits(&s, epoch)
                };
                if !admitted {
                    let _ = tx.send(Answers::Over);
                    return;
                }
                let began = lab.world.now();
                lab.world.sleep(works).await;
                let answers = {
                    let mut s = lab.state();
                    if s.server.generation != generation {
                        return;
                    }
                    if s.is_over(epoch) {
                        s.coverage.fault("committed as its boot ended");
                    }
                    let answers = s.commit(&lab, epoch, began, &writes, lazy);
                    if s.reached_at(replica) > lab.world.now() {
                        return;
                    }
                    answers
                };
                let _ = tx.send(Answers::All(answers));
            }),
        );
        if broken {
            return None;
        }
        self.troubled();
        let answers = tokio::select! {
            biased;
            answers = rx => answers.ok(),
            () = self.lab.world.sleep(ANSWER_WITHIN) => None,
        };
        self.troubled();
        answers
    }

    fn refuse(&self, jobs: &mut [Job], unsure: bool, why: String) {
        let e = if unsure { StoreError::Uncertain(why) } else { StoreError::Unavailable(why) };
        if unsure {
            self.unsure();
        }
        jobs.iter().filter_map(|j| j.write.as_ref()).for_each(|w| self.lab.state().excuse(w.operation().id));
        jobs.iter_mut().for_each(|j| j.answer(Err(e.clone())));
    }

    /// Somebody looks what became of a write, after a pause.
    fn unsure(&self) {
        self.lab.state().coverage.fault("uncertain");
        self.lab.state().trouble(self.home, self.lab.world.now() + 200);
    }

    /// Makes `jobs` under `epoch`; `unsure`: some try may have been made without our knowing.
    async fn commit(&self, mut jobs: Vec<Job>, epoch: Epoch, mut unsure: bool) {
        let lazy = jobs.iter().all(|j| j.answer.is_none());
        let writes: Vec<(Write, usize)> =
            jobs.iter().filter_map(|j| j.write.clone().map(|w| (w, j.task))).collect();
        if writes.len() > 1 {
            self.lab.state().coverage.fault("several writes in a batch");
        }
        let writes = Arc::new(writes);
        loop {
            if !self.connected().await {
                let why = "the database is away".to_owned();
                return self.refuse(&mut jobs, unsure, why);
            }
            let fate = self.fate();
            if let Fate::Refused = fate {
                self.way().await;
                self.troubled();
                if jobs.len() > 1 {
                    // One of them may be at fault; the others must not suffer for it.
                    for job in jobs {
                        Box::pin(self.commit(vec![job], epoch, unsure)).await;
                    }
                    return;
                }
                return self.refuse(&mut jobs, unsure, "simulated".to_owned());
            }
            match self.send(epoch, &writes, lazy, fate).await {
                Some(Answers::All(answers)) => {
                    let mut answers = answers.into_iter();
                    for job in &mut jobs {
                        if job.write.is_none() {
                            job.answer(Ok(Committed::Done));
                        } else if let Some((committed, further)) = answers.next() {
                            let lost = committed == Committed::Stale && further && unsure;
                            if let Some(w) = job.write.as_ref().filter(|_| lost) {
                                self.lab.state().excuse(w.operation().id);
                            }
                            job.answer(if lost && !planted::is_out(Plant::StaleWhereUnsure) {
                                self.unsure();
                                // Ours may have been made before the next one.
                                Err(StoreError::Uncertain("it was written again meanwhile".into()))
                            } else {
                                Ok(committed)
                            });
                        }
                    }
                    return;
                }
                Some(Answers::Over) => {
                    self.lab.state().coverage.fault("batch of an ended boot refused");
                    self.lapse(epoch);
                    return self.refuse(&mut jobs, unsure, over());
                }
                None => {
                    unsure = true;
                    self.troubled();
                }
            }
        }
    }
}
