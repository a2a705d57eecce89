//! The store: opening, closing, and the contract.

use crate::apply::{PRUNE_STEP, Pruned};
use crate::backup::{self, Backup, BackupError};
use crate::clock::{LedgerClock, SystemClock};
use crate::files::{self, Disk};
use crate::index::Index;
use crate::queue::{Answer, Answered, Queue, Stopped, Work};
use crate::read::Readers;
use crate::record::{Change, Counters};
use crate::sessions;
use crate::writer::Writer;
use crate::{Config, OpenError, schema};
use async_trait::async_trait;
use ledger::Env;
use ledger::claims::{self, Claim, Claimed};
use ledger::figures::Figures;
use ledger::gaps::Gaps;
use ledger::handle::Handle;
use ledger::operation::Operation;
use ledger::store::{
    ApiKey, Attention, BlobKind, Committed, Counts, Found, Identity, Query, Session, SessionChange, Shelved,
    Store, StoreError, StoreStats, Write, shelf_bounded,
};
use ledger::words::{Epoch, KeyHash, Millis, OperationId, SlotHash, Time};
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// Why nothing is read or written after closing.
pub(crate) const CLOSED: &str = "it was closed";

/// Why new operations are refused on a full disk.
pub(crate) const DISK_LOW: &str =
    "the disk is nearly full, so no new operation is begun; free some space and try again";

/// Why nothing is put on the shelf on a full disk.
pub(crate) const SHELF_FULL: &str =
    "the disk is nearly full, so nothing more is kept; free some space and try again";

/// Why nothing is pruned on a full disk.
pub(crate) const PRUNING_FULL: &str =
    "the disk is full, and index entries come before what is pruned; free some space and try again";

/// What the store and its writer have in common.
pub(crate) struct Shared {
    path: PathBuf,
    identity: Identity,
    epoch: Epoch,
    attention: Attention,
    pub clock: LedgerClock,
    gaps: Gaps,
    pub disk: Disk,
    pub queue: Queue,
    readers: Readers,
    counts: Mutex<Counters>,
    figures: Mutex<Figures>,
    /// New operations wait: the ledger was restored.
    held: AtomicBool,
    /// Why nothing more is read or written.
    stopped: OnceLock<String>,
    #[cfg(feature = "faults")]
    pub faults: crate::faults::Faults,
}

impl Shared {
    pub fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn publish(&self, counts: &Counters) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone_from(counts);
    }

    /// Stops after an error that leaves the state of the disk unknown.
    pub fn fail(&self, why: &str) {
        self.stop(&format!("{why}. It has stopped, so that nothing builds on an unknown state; see to the disk and start again"));
    }

    /// Nothing is read or written any more. What was never begun is told so.
    pub fn stop(&self, why: &str) {
        let why = self.stopped.get_or_init(|| why.to_owned());
        for job in self.queue.stop() {
            job.answer(Err(StoreError::Unavailable(why.clone())));
        }
    }

    fn usable(&self) -> Result<&Shared, StoreError> {
        match self.stopped.get() {
            None => Ok(self),
            Some(why) => Err(StoreError::Unavailable(why.clone())),
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Where the database is.
    pub fn place(&self) -> &schema::Place {
        self.readers.place()
    }

    async fn ask(&self, work: Work) -> Answered {
        match self.queue.ask(work).await {
            Ok(answered) => answered,
            Err(Stopped) => {
                Err(StoreError::Unavailable(self.stopped.get().map_or(CLOSED, String::as_str).to_owned()))
            }
        }
    }
}

/// A ledger's database in one SQLite file.
///
/// Dropping it finishes what waits, as [`SqliteStore::close`] does, but can't say whether that went well.
pub struct SqliteStore {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Opens the database and makes this start's epoch durable.
fn boot(
    config: &Config,
    place: &schema::Place,
    env: &Arc<dyn Env>,
) -> Result<(Connection, schema::Meta, Epoch, LedgerClock), OpenError> {
    let mut db = schema::writer(place)?;
    #[cfg(feature = "planted")]
    config.planted.relax(&db)?;
    let clock = config.clock.clone().unwrap_or_else(|| Arc::new(SystemClock(env.clone())));
    let mut meta = schema::migrate(&mut db, &config.ledger_name, &**env, clock.wall())?;
    let epoch = Epoch(meta.epoch.0 + 1);
    let (clock, unwatched) = LedgerClock::start(clock, &meta.mark, config.clock_margin);
    meta.gaps.add(unwatched);
    if clock.step() != meta.mark.step {
        tracing::warn!(
            "the wall clock was set, or is behind the ledger's time: replays of open intents are over, their quarantines begin now"
        );
    }
    let dir = files::directory(&config.path);
    let copy = backup::is_copy(&db)?;
    let behind =
        config.restored || copy || files::known_epoch(&dir).is_some_and(|known| known > meta.epoch.0);
    #[cfg(feature = "planted")]
    let late = config.planted.hold_late;
    #[cfg(not(feature = "planted"))]
    let late = false;
    // Before the epoch begins: once that is durable, the database may no longer look older than its directory.
    if behind && !late {
        files::hold(&dir)?;
    }
    schema::begin(&db, epoch, &clock.mark(), &meta.gaps)?;
    if behind && late {
        files::hold(&dir)?;
    }
    if copy {
        backup::adopt(&db)?;
    }
    Ok((db, meta, epoch, clock))
}

impl SqliteStore {
    /// Opens the ledger, or makes it. Blocks for a few disk writes.
    ///
    /// `on_fatal` is called once, on the writer's thread, if the disk fails so that nothing can be trusted
    /// any more: the process should then end, and be started again.
    ///
    /// # Errors
    /// [`OpenError`] says what stands in the way. Nothing is changed where it says so.
    pub fn open(
        config: Config,
        env: Arc<dyn Env>,
        on_fatal: Arc<dyn Fn(String) + Send + Sync>,
    ) -> Result<Arc<SqliteStore>, OpenError> {
        let dir = files::directory(&config.path);
        files::prepare(&dir)?;
        #[cfg(not(feature = "planted"))]
        let lock = files::lock(&dir)?;
        #[cfg(feature = "planted")]
        let lock = if config.planted.unlocked { crate::planted::unlocked(&dir)? } else { files::lock(&dir)? };
        let place = schema::Place {
            path: config.path.clone(),
            #[cfg(feature = "faults")]
            vfs: config.vfs.clone(),
        };
        files::claim_database(&config.path, &dir)?;
        files::tighten(&config.path)?;
        let disk = Disk::new(dir, config.min_free, config.ballast);
        let boot = match boot(&config, &place, &env) {
            // A start is work in flight too: recovery has to see what is open.
            Err(OpenError::DiskFull | OpenError::Database(_)) if disk.is_low() && disk.release_ballast() => {
                boot(&config, &place, &env)
            }
            other => other,
        };
        let (db, meta, epoch, clock) = boot?;
        disk.restore_ballast();
        let dir = files::directory(&config.path);
        disk.keep(|| files::keep_epoch(&dir, epoch.0))?;
        let held = AtomicBool::new(files::is_held(&dir));
        if held.load(Ordering::Acquire) {
            tracing::warn!("the ledger was restored from a backup: new operations wait until it is released");
        }
        #[cfg(feature = "faults")]
        let (worth, rows) = (config.log_pages, config.unindexed_rows);
        #[cfg(not(feature = "faults"))]
        let (worth, rows) = (crate::writer::FRAMES, crate::index::ROWS);
        let index = Index::load(&db, rows)?;
        let shared = Arc::new(Shared {
            identity: meta.identity,
            epoch,
            attention: config.attention,
            clock,
            gaps: meta.gaps,
            disk,
            queue: Queue::new(),
            readers: Readers::new(place, index.unindexed()),
            counts: Mutex::new(meta.counts.clone()),
            figures: Mutex::default(),
            stopped: OnceLock::new(),
            held,
            path: config.path,
            #[cfg(feature = "faults")]
            faults: crate::faults::Faults::default(),
        });
        let writer = Writer::new(db, shared.clone(), index, meta.counts, lock, worth)?;
        #[cfg(feature = "planted")]
        let writer = writer.fenced(!config.planted.unlocked);
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("ledger-writer".into())
            .spawn(move || {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.run()));
                if let Err(why) = done.unwrap_or_else(|_| Err("the writer failed unexpectedly".into())) {
                    of_thread.fail(&why);
                    on_fatal(format!("the ledger's database failed ({why}); nothing more is read or written until it is opened again"));
                }
            })
            .map_err(|error| OpenError::File { what: "writer thread", error })?;
        Ok(Arc::new(SqliteStore { shared, writer: Mutex::new(Some(thread)) }))
    }

    /// Makes everything durable, copies the log into the database and lets the directory go. Closing twice is
    /// the same as once.
    ///
    /// # Errors
    /// The store had failed, or failed now: what was answered before is durable all the same.
    pub async fn close(&self) -> Result<(), StoreError> {
        let closed = match self.shared.queue.ask(Work::Close).await {
            Ok(answered) => answered.map(|_| ()),
            Err(Stopped) => match self.shared.stopped.get() {
                Some(why) if why != CLOSED => Err(StoreError::Unavailable(why.clone())),
                _ => Ok(()),
            },
        };
        self.join();
        self.shared.readers.close();
        closed
    }

    /// Copies the ledger to a new file while it goes on: this user's only, on the disk when this returns. Opened in
    /// another directory, the copy holds new operations until it is released.
    ///
    /// # Errors
    /// [`BackupError`]: there is no copy, and the ledger is as it was.
    pub async fn backup(&self, to: PathBuf) -> Result<Backup, BackupError> {
        self.shared.usable().map_err(|e| BackupError::Database(e.to_string()))?;
        let shared = self.shared.clone();
        // What was acknowledged before the copy is begun is in it.
        let copied = tokio::task::spawn_blocking(move || {
            backup::copy(shared.readers.place(), &to, shared.clock.now())
        });
        copied.await.unwrap_or_else(|e| Err(BackupError::Database(format!("the copying failed: {e}"))))
    }

    /// Waits for the writer's thread, which is about to end; then the lock is free.
    fn join(&self) {
        let thread = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last owner may be the writer itself, inside `on_fatal`.
        if let Some(t) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = t.join();
        }
    }

    /// Faults that tests order.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn faults(&self) -> &crate::faults::Faults {
        &self.shared.faults
    }

    /// Makes the disk look as if so many bytes were free.
    #[cfg(feature = "faults")]
    pub fn pretend_free(&self, bytes: Option<u64>) {
        *self.shared.disk.pretended.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.join();
    }
}

/// The writer answers each kind of work with its kind of answer.
fn mixed_up() -> StoreError {
    StoreError::Uncertain("the writer gave an answer to another question".into())
}

#[async_trait]
impl Store for SqliteStore {
    fn now(&self) -> Time {
        self.shared.clock.now()
    }
    fn epoch(&self) -> Epoch {
        self.shared.epoch
    }
    fn is_live(&self, epoch: Epoch) -> bool {
        // The lock admits one process at a time.
        epoch == self.shared.epoch
    }
    fn clock_step(&self) -> Option<Time> {
        self.shared.clock.step()
    }
    fn gaps(&self) -> &Gaps {
        &self.shared.gaps
    }
    fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    async fn write(&self, write: Write) -> Result<Committed, StoreError> {
        let shared = self.shared.usable()?;
        if let Write::Create { operation, .. } = &write
            && shared.disk.is_low()
            // The repetition of a creation that was made is no new operation.
            && !matches!(shared.readers.by_id(operation.id)?, Some(Found::Operation(_)))
        {
            return Err(StoreError::Unavailable(DISK_LOW.into()));
        }
        match shared.ask(Work::Write(Change::new(write, shared.attention)?)).await? {
            Answer::Committed(committed) => Ok(committed),
            _ => Err(mixed_up()),
        }
    }

    fn write_lazily(&self, write: Write) {
        let id = write.operation().id;
        if !Change::new(write, self.shared.attention)
            .is_ok_and(|change| self.shared.queue.tell(Work::Write(change)))
        {
            tracing::warn!("a lazy write of {id} was dropped: the ledger is behind or has stopped");
        }
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.shared.usable()?.ask(Work::Flush).await.map(|_| ())
    }

    async fn by_id(&self, id: OperationId) -> Result<Option<Found>, StoreError> {
        self.shared.usable()?.readers.by_id(id)
    }
    async fn owned(&self, principal: &str, id: OperationId) -> Result<Option<Operation>, StoreError> {
        self.shared.usable()?.readers.owned(principal, id)
    }
    async fn by_key(&self, key: &KeyHash) -> Result<Option<Found>, StoreError> {
        self.shared.usable()?.readers.by_key(key)
    }
    async fn by_slot(&self, slot: &SlotHash) -> Result<Option<Operation>, StoreError> {
        self.shared.usable()?.readers.by_slot(slot)
    }
    async fn blob(&self, id: OperationId, kind: BlobKind) -> Result<Option<Vec<u8>>, StoreError> {
        self.shared.usable()?.readers.blob(id, kind)
    }
    async fn due(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.shared.usable()?.readers.due(now, limit)
    }
    async fn due_at_rest(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.shared.usable()?.readers.due_at_rest(now, limit)
    }
    async fn orphans(&self, after: Option<OperationId>, limit: usize) -> Result<Vec<Operation>, StoreError> {
        let shared = self.shared.usable()?;
        shared.readers.orphans(shared.epoch, after, limit)
    }
    async fn next_attention(&self) -> Result<Option<Time>, StoreError> {
        self.shared.usable()?.readers.next_attention()
    }

    async fn list(&self, query: &Query) -> Result<Vec<Operation>, StoreError> {
        self.shared.usable()?;
        let (shared, query) = (self.shared.clone(), query.clone());
        let list = move || shared.readers.list(&query);
        // A rare state or tool may take a scan of everything: not on a thread that serves calls.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let listed = runtime.spawn_blocking(list).await;
                listed.unwrap_or_else(|_| Err(StoreError::Unavailable("a list was broken off".into())))
            }
            Err(_) => list(),
        }
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        let shared = self.shared.usable()?;
        Ok(shared.counts.lock().unwrap_or_else(PoisonError::into_inner).counts())
    }

    async fn prune(&self, now: Time, tombstones_for: Millis, limit: usize) -> Result<usize, StoreError> {
        let shared = self.shared.usable()?;
        let mut pruned = 0;
        loop {
            let step = PRUNE_STEP.min(limit - pruned);
            let work = Work::Prune { now, tombstones_for, limit: step };
            let Answer::Pruned(Pruned { records, tombstones, more }) = shared.ask(work).await? else {
                return Err(mixed_up());
            };
            pruned += records;
            if (records < step && !more || pruned == limit) && tombstones < PRUNE_STEP {
                return Ok(pruned);
            }
        }
    }

    fn is_held(&self) -> bool {
        self.shared.held.load(Ordering::Acquire)
    }

    async fn release(&self) -> Result<(), StoreError> {
        let shared = self.shared.usable()?;
        files::release(&files::directory(&shared.path))
            .map_err(|_| StoreError::Unavailable("the mark of a restored ledger can't be removed".into()))?;
        shared.held.store(false, Ordering::Release);
        Ok(())
    }

    async fn put_api_key(&self, key: ApiKey) -> Result<(), StoreError> {
        self.shared.usable()?.ask(Work::ApiKey(key)).await.map(|_| ())
    }
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        self.shared.usable()?.readers.api_keys()
    }

    async fn open_session(&self, session: Session) -> Result<Vec<String>, StoreError> {
        let shared = self.shared.usable()?;
        let session = session.bounded()?;
        if shared.disk.is_low() {
            return Err(StoreError::Unavailable(sessions::DISK_LOW.into()));
        }
        match shared.ask(Work::Session(sessions::Work::Open(session))).await? {
            Answer::SessionsEnded(ids) => Ok(ids),
            _ => Err(mixed_up()),
        }
    }
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        self.shared.usable()?.readers.session(id)
    }
    async fn change_session(&self, id: &str, change: SessionChange) -> Result<Option<Session>, StoreError> {
        let work = sessions::Work::Change(id.to_owned(), change.bounded()?);
        match self.shared.usable()?.ask(Work::Session(work)).await? {
            Answer::Session(session) => Ok(session.map(|s| *s)),
            _ => Err(mixed_up()),
        }
    }
    async fn end_session(&self, id: &str) -> Result<bool, StoreError> {
        match self.shared.usable()?.ask(Work::Session(sessions::Work::End(id.to_owned()))).await? {
            Answer::SessionsGone(n) => Ok(n > 0),
            _ => Err(mixed_up()),
        }
    }
    async fn prune_sessions(&self, unused_since: Time, limit: usize) -> Result<usize, StoreError> {
        let shared = self.shared.usable()?;
        let mut pruned = 0;
        loop {
            let step = PRUNE_STEP.min(limit - pruned);
            let work = sessions::Work::Prune { unused_since, limit: step };
            let Answer::SessionsGone(n) = shared.ask(Work::Session(work)).await? else {
                return Err(mixed_up());
            };
            pruned += n;
            if n < step || pruned == limit {
                return Ok(pruned);
            }
        }
    }

    async fn handle(
        &self,
        id_hash: &[u8; 32],
        principal: &str,
        now: Time,
    ) -> Result<Option<Handle>, StoreError> {
        self.shared.usable()?.readers.handle(id_hash, principal, now)
    }
    async fn handles(
        &self,
        principal: &str,
        kind: Option<&str>,
        after: Option<[u8; 32]>,
        limit: usize,
        now: Time,
    ) -> Result<Vec<Handle>, StoreError> {
        self.shared.usable()?.readers.handles(principal, kind, after, limit, now)
    }
    async fn touch_handle(&self, id_hash: &[u8; 32], principal: &str, at: Time) -> Result<(), StoreError> {
        let work = Work::Touch { id_hash: *id_hash, principal: principal.to_owned(), at };
        self.shared.usable()?.ask(work).await.map(|_| ())
    }
    async fn prune_handles(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        let limit = limit.min(PRUNE_STEP);
        match self.shared.usable()?.ask(Work::PruneHandles { now, limit }).await? {
            Answer::Gone(n) => Ok(n),
            _ => Err(mixed_up()),
        }
    }
    async fn shelved(&self, name: &str) -> Result<Option<Shelved>, StoreError> {
        let shared = self.shared.usable()?;
        shared.readers.shelved(name, shared.clock.now())
    }
    async fn shelve(
        &self,
        name: &str,
        expected: u64,
        data: Vec<u8>,
        until: Option<Time>,
    ) -> Result<bool, StoreError> {
        let shared = self.shared.usable()?;
        shelf_bounded(name, &data)?;
        if shared.disk.is_low() {
            return Err(StoreError::Unavailable(SHELF_FULL.into()));
        }
        match shared.ask(Work::Shelve { name: name.to_owned(), expected, data, until }).await? {
            Answer::Shelved(put) => Ok(put),
            _ => Err(mixed_up()),
        }
    }
    async fn prune_shelf(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        let limit = limit.min(PRUNE_STEP);
        match self.shared.usable()?.ask(Work::PruneShelf { now, limit }).await? {
            Answer::Gone(n) => Ok(n),
            _ => Err(mixed_up()),
        }
    }

    async fn claim(&self, holder: OperationId, turn: u64, claims: &[Claim]) -> Result<Claimed, StoreError> {
        let shared = self.shared.usable()?;
        claims::bounded(claims)?;
        if shared.disk.is_low() {
            return Err(StoreError::Unavailable(SHELF_FULL.into()));
        }
        match shared.ask(Work::Claim { holder, turn, claims: claims.to_vec() }).await? {
            Answer::Claimed(claimed) => Ok(claimed),
            _ => Err(mixed_up()),
        }
    }
    async fn release_claims(
        &self,
        holder: OperationId,
        turn: u64,
        buckets: &[String],
    ) -> Result<(), StoreError> {
        let shared = self.shared.usable()?;
        let work = || Work::Release { holder, turn, buckets: buckets.to_vec() };
        // Whoever claims comes later in the same line, and what a crash undoes ends by itself: nobody waits for it.
        if shared.queue.tell(work()) { Ok(()) } else { shared.ask(work()).await.map(|_| ()) }
    }
    async fn prune_claims(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        let limit = limit.min(PRUNE_STEP);
        match self.shared.usable()?.ask(Work::PruneClaims { now, limit }).await? {
            Answer::Gone(n) => Ok(n),
            _ => Err(mixed_up()),
        }
    }

    fn stats(&self) -> StoreStats {
        let size = |suffix: &str| {
            let mut path = self.shared.path.clone().into_os_string();
            path.push(suffix);
            std::fs::metadata(path).map_or(0, |m| m.len())
        };
        let figures = self.shared.figures().stats();
        StoreStats {
            bytes: size("") + size("-wal"),
            free_bytes: self.shared.disk.free(),
            disk_low: self.shared.disk.is_low(),
            schema: schema::LATEST,
            ..figures
        }
    }
}
