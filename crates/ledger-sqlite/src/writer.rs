//! The one writer: takes whatever waits, writes it in one transaction, commits, answers.
//!
//! It is also the only one that has the log checkpointed: most of it beside its own work (see [`crate::copier`]), the rest
//! itself, between two transactions, so that the log can begin anew. After an error that leaves the state of the disk
//! unknown it stops for good.

use crate::apply;
use crate::copier::{self, Copier};
use crate::describe;
use crate::index::Index;
use crate::queue::{Answer, Answered, Job, Work};
use crate::record::Counters;
use crate::store::Shared;
use crate::{claims, handles, sessions, shelf};
use ledger::store::StoreError;
use ledger::words::Time;
use rusqlite::{Connection, ErrorCode, params};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Log frames (4 KiB each) that are worth a checkpoint when nothing else is to do.
const IDLE_FRAMES: i32 = 256;
/// Log frames after which copying begins.
pub(crate) const FRAMES: u16 = 8192;
/// So many times as many frames, and readers are waited for, so that the log can begin anew.
const MOST: i32 = 4;
/// What a pass of copying leaves over, as a part of the frames that it began at: little enough to be copied between
/// two batches.
const REST: i32 = 16;
/// Passes after which the rest is copied between two batches, however much it is.
const PASSES: u32 = 5;
/// How often the clock and the disk are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Idle time after which the high-water mark is written all the same, milliseconds.
const MARK_AFTER: i64 = 30_000;

/// Why a transaction did not commit.
enum Failure {
    /// Nothing was begun: another program holds the database's write lock.
    Busy,
    /// The disk is full, and nothing was written. SQLite reports this only when writing a page to the log
    /// fails for want of room. A transaction counts only by its last frame, which is written after all
    /// others, so this one does not count: not now, and not when the log is replayed. (A failed *sync*, for
    /// want of room too, is reported as an I/O error.)
    Full,
    /// Whether anything was written is not known.
    Fatal(String),
}

impl Failure {
    fn of(error: &rusqlite::Error) -> Failure {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Failure::Full,
            _ => Failure::Fatal(describe(error)),
        }
    }
}

pub(crate) struct Writer {
    // Dropped in this order: the connection is closed before the lock is let go.
    db: Connection,
    shared: Arc<Shared>,
    index: Index,
    counts: Counters,
    /// It writes only while no later epoch was begun.
    #[cfg(feature = "planted")]
    fenced: bool,
    /// Frames in the log after the last commit.
    frames: Arc<AtomicI32>,
    /// How many of them a checkpoint has dealt with.
    checkpointed: i32,
    /// The frames after which copying begins.
    worth: i32,
    copier: Copier,
    /// Passes of the copier since the log began.
    passes: u32,
    marked: Time,
    ticked: Instant,
    /// Lazy writes were dropped since the last flush.
    lazy_lost: bool,
    _lock: File,
}

impl Writer {
    pub fn new(
        mut db: Connection,
        shared: Arc<Shared>,
        index: Index,
        counts: Counters,
        lock: File,
        worth: u16,
    ) -> rusqlite::Result<Writer> {
        let frames = Arc::new(AtomicI32::new(0));
        let seen = frames.clone();
        db.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        let marked = shared.clock.now();
        let copier = Copier::new(shared.place().clone());
        Ok(Writer {
            db,
            shared,
            index,
            counts,
            #[cfg(feature = "planted")]
            fenced: true,
            frames,
            checkpointed: 0,
            worth: i32::from(worth),
            copier,
            passes: 0,
            marked,
            ticked: Instant::now(),
            lazy_lost: false,
            _lock: lock,
        })
    }

    #[cfg(feature = "planted")]
    pub fn fenced(self, fenced: bool) -> Writer {
        Writer { fenced, ..self }
    }

    /// Writes until the store is closed or fails; then says why, if it failed.
    pub fn run(mut self) -> Result<(), String> {
        let done = self.write_all();
        if let Err(why) = &done {
            self.shared.fail(why);
        }
        done
    }

    fn write_all(&mut self) -> Result<(), String> {
        loop {
            let shared = self.shared.clone();
            let soon = self.copier.is_busy() || self.backlog() >= IDLE_FRAMES;
            let wait = if soon { TICK / 10 } else { TICK };
            let mut jobs = shared.queue.next(wait);
            let idle = jobs.is_empty();
            let closing = jobs.pop_if(|j| matches!(j.work, Work::Close));
            if !jobs.is_empty() {
                self.batch(jobs)?;
            }
            if let Some(job) = closing {
                return self.close(job);
            }
            self.copy(idle)?;
            if self.ticked.elapsed() >= TICK {
                self.tick()?;
            }
        }
    }

    fn batch(&mut self, jobs: Vec<Job>) -> Result<(), String> {
        let mut done = self.transact(&jobs, true, false);
        if matches!(done, Err(Failure::Full)) {
            // What is in flight gets the ballast's room; new operations have to wait.
            if self.shared.disk.release_ballast() {
                tracing::error!("the disk is full: new operations are refused until there is room");
            }
            done = self.transact(&jobs, false, false);
        }
        if matches!(done, Err(Failure::Full)) {
            // A log that is copied into the database begins anew, in the room it already has.
            let copied = self.checkpoint("PASSIVE").map_err(Failure::Fatal);
            done = copied.and_then(|()| self.transact(&jobs, false, false));
        }
        let refusal = match done {
            Ok(answers) => {
                for (job, answer) in jobs.into_iter().zip(answers) {
                    let answer = match job.work {
                        Work::Flush if std::mem::take(&mut self.lazy_lost) => Err(StoreError::Unavailable(
                            "delivery states written lazily were dropped; the results themselves are kept"
                                .into(),
                        )),
                        _ => answer,
                    };
                    job.answer(answer);
                }
                return Ok(());
            }
            Err(Failure::Busy) => {
                "another program is writing to the database: no program but this one should; stop it and try again"
            }
            Err(Failure::Full) => "the disk is full: free some space and try again",
            Err(Failure::Fatal(why)) => {
                self.shared.fail(&why);
                for job in jobs {
                    job.answer(Err(StoreError::Uncertain(why.clone())));
                }
                return Err(why);
            }
        };
        self.lazy_lost |= jobs.iter().any(|j| j.answer.is_none() && matches!(j.work, Work::Write(_)));
        for job in jobs {
            job.answer(Err(StoreError::Unavailable(refusal.into())));
        }
        Ok(())
    }

    /// One transaction with all of `jobs`. With `mark` the ledger's time is written even if nothing else is.
    fn transact(&mut self, jobs: &[Job], creations: bool, mark: bool) -> Result<Vec<Answered>, Failure> {
        if !mark && jobs.iter().all(|j| matches!(j.work, Work::Flush)) {
            return Ok(jobs.iter().map(|_| Ok(Answer::Done)).collect());
        }
        self.run_sql("BEGIN IMMEDIATE").map_err(|e| match e.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy) => Failure::Busy,
            _ => Failure::of(&e),
        })?;
        let mut counts = self.counts.clone();
        let done = self.apply(jobs, creations, mark, &mut counts).and_then(|(answers, changed)| {
            if changed {
                self.commit(jobs.len())?;
            }
            Ok((answers, changed))
        });
        if matches!(done, Ok((_, true))) {
            self.index.committed();
        } else {
            self.index.rolled_back();
        }
        if !self.db.is_autocommit() {
            self.run_sql("ROLLBACK").map_err(|e| Failure::Fatal(describe(&e)))?;
        }
        let (answers, _) = done.map_err(|e| Failure::of(&e))?;
        if counts != self.counts {
            self.shared.publish(&counts);
            self.counts = counts;
        }
        Ok(answers)
    }

    fn apply(
        &mut self,
        jobs: &[Job],
        creations: bool,
        mark: bool,
        counts: &mut Counters,
    ) -> rusqlite::Result<(Vec<Answered>, bool)> {
        let (db, index) = (&self.db, &mut self.index);
        let mut changed = mark;
        let mut answers = Vec::with_capacity(jobs.len());
        for job in jobs {
            answers.push(match &job.work {
                Work::Write(change) => {
                    let applied = apply::write(db, index, change, creations, counts)?;
                    changed |= applied.changed;
                    applied.answer.map(Answer::Committed)
                }
                Work::Prune { now, tombstones_for, limit } => {
                    let what = (*now, *tombstones_for, *limit);
                    let pruned = apply::prune(db, index, what, creations, counts)?;
                    changed |= pruned.records + pruned.tombstones > 0 || pruned.more && creations;
                    if creations || pruned.records > 0 || !pruned.more {
                        Ok(Answer::Pruned(pruned))
                    } else {
                        Err(StoreError::Unavailable(crate::store::PRUNING_FULL.into()))
                    }
                }
                Work::ApiKey(key) => {
                    let text = serde_json::to_string(key)
                        .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
                    db.prepare_cached("INSERT OR REPLACE INTO api_key (id, record) VALUES (?1, ?2)")?
                        .execute(params![key.id, text])?;
                    changed = true;
                    Ok(Answer::Done)
                }
                Work::Session(work) => {
                    let (answer, did) = sessions::apply(db, work, creations, self.shared.clock.now())?;
                    changed |= did;
                    answer
                }
                Work::Touch { id_hash, principal, at } => {
                    changed |= handles::used(db, id_hash, principal, *at)?;
                    Ok(Answer::Done)
                }
                Work::PruneHandles { now, limit } => {
                    let n = handles::prune(db, *now, *limit)?;
                    changed |= n > 0;
                    Ok(Answer::Gone(n))
                }
                Work::Shelve { .. } if !creations => {
                    Err(StoreError::Unavailable(crate::store::SHELF_FULL.into()))
                }
                Work::Shelve { name, expected, data, until } => {
                    let put = shelf::put(db, name, *expected, data, *until, self.shared.clock.now())?;
                    changed |= put;
                    Ok(Answer::Shelved(put))
                }
                Work::PruneShelf { now, limit } => {
                    let n = shelf::prune(db, *now, *limit)?;
                    changed |= n > 0;
                    Ok(Answer::Gone(n))
                }
                Work::Claim { .. } if !creations => {
                    Err(StoreError::Unavailable(crate::store::SHELF_FULL.into()))
                }
                Work::Claim { holder, turn, claims } => {
                    let now = self.shared.clock.now();
                    let (claimed, did) = claims::claim(db, *holder, *turn, claims, now)?;
                    changed |= did;
                    Ok(Answer::Claimed(claimed))
                }
                Work::Release { holder, turn, buckets } => {
                    changed |= claims::release(db, *holder, *turn, buckets)?;
                    Ok(Answer::Done)
                }
                Work::PruneClaims { now, limit } => {
                    let n = claims::prune(db, *now, *limit)?;
                    changed |= n > 0;
                    Ok(Answer::Gone(n))
                }
                Work::Flush | Work::Close => Ok(Answer::Done),
            });
        }
        if changed {
            if creations {
                index.move_on(db)?;
            }
            // Every recorded moment lies before this one, so no later start can begin before it.
            let mark = self.shared.clock.mark();
            let (now, step) = (mark.high_water.0, mark.step.map(|t| t.0));
            let epoch = self.shared.epoch().0.cast_signed();
            let marked = db.prepare_cached(
                "UPDATE meta SET high_water = ?1, clock_step = ?2, elapsed = ?3, skew = ?4, counts = ?5 WHERE epoch = ?6",
            )?
            .execute(params![now, step, mark.elapsed, mark.skew, counts.text(), epoch])?;
            // What is in memory is true for one process at a time only: this one's, until another begins an epoch.
            #[cfg(feature = "planted")]
            let marked = if self.fenced { marked } else { 1 };
            if marked != 1 {
                return Err(rusqlite::Error::StatementChangedRows(marked));
            }
            self.marked = mark.high_water;
        }
        Ok((answers, changed))
    }

    fn run_sql(&self, sql: &str) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    fn commit(&self, writes: usize) -> rusqlite::Result<()> {
        let began = Instant::now();
        #[cfg(feature = "faults")]
        if let Some(fault) = self.shared.faults.next() {
            if fault == crate::faults::Fault::IoAfterCommit {
                self.run_sql("COMMIT")?;
            }
            return Err(fault.error());
        }
        self.run_sql("COMMIT")?;
        self.shared.figures().commit(began.elapsed(), writes as u64);
        Ok(())
    }

    fn backlog(&mut self) -> i32 {
        let frames = self.frames.load(Ordering::Relaxed);
        // The log began anew if it is shorter than what was dealt with.
        if frames < self.checkpointed {
            self.checkpointed = 0;
        }
        frames - self.checkpointed
    }

    /// Has the log copied into the database when it is worth it. Commits go on meanwhile, so each pass leaves some, and
    /// fewer; the last are copied between two batches, so that the log begins anew.
    fn copy(&mut self, idle: bool) -> Result<(), String> {
        let mut again = false;
        if self.copier.has_ended() {
            match self.copier.end()? {
                Some(copied) => {
                    self.checkpointed = copied;
                    again = true;
                }
                None => self.checkpointed = self.frames.load(Ordering::Relaxed),
            }
        }
        let backlog = self.backlog();
        if self.frames.load(Ordering::Relaxed) >= MOST * self.worth && backlog >= self.worth {
            self.checkpoint("RESTART")
        } else if self.copier.is_busy() {
            Ok(())
        } else if again && (backlog <= self.worth / REST || self.passes >= PASSES) {
            self.checkpoint("PASSIVE")
        } else if again || backlog >= self.worth {
            self.passes += 1;
            if self.copier.begin() { Ok(()) } else { self.checkpoint("PASSIVE") }
        } else if idle && backlog >= IDLE_FRAMES {
            self.checkpoint("PASSIVE")
        } else {
            Ok(())
        }
    }

    /// Copies the log between two transactions.
    fn checkpoint(&mut self, mode: &str) -> Result<(), String> {
        // One at a time; and none after one that failed.
        self.copier.end()?;
        self.passes = 0;
        // Waiting for readers may not hold up the writers for long.
        let patience = |ms| self.db.busy_timeout(Duration::from_millis(ms)).map_err(|e| describe(&e));
        patience(100)?;
        let done = self.db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()));
        patience(5000)?;
        self.checkpointed = self.frames.load(Ordering::Relaxed);
        done.or_else(|e| copier::judge(&e).map(|_| ()))
    }

    fn tick(&mut self) -> Result<(), String> {
        self.ticked = Instant::now();
        self.shared.disk.restore_ballast();
        let stepped = self.shared.clock.check();
        if stepped {
            tracing::warn!(
                "the wall clock was set, or this machine was paused: replays of open intents are over, their quarantines begin now"
            );
        }
        if stepped || self.shared.clock.now().since(self.marked).0 >= MARK_AFTER {
            self.mark()?;
        }
        Ok(())
    }

    fn mark(&mut self) -> Result<(), String> {
        match self.transact(&[], true, true) {
            Err(Failure::Fatal(why)) => Err(why),
            // The next batch carries it.
            _ => Ok(()),
        }
    }

    fn close(&mut self, job: Job) -> Result<(), String> {
        let done = self.mark().and_then(|()| self.checkpoint("TRUNCATE"));
        self.shared.stop(crate::store::CLOSED);
        job.answer(match &done {
            Ok(()) => Ok(Answer::Done),
            Err(why) => Err(StoreError::Uncertain(why.clone())),
        });
        done
    }
}
