//! The store: opening, closing, and the contract.

use crate::bus::{self, PgBus};
use crate::checks::{self, Check, Replica};
use crate::clock::LedgerClock;
use crate::link::{Link, Place, Purpose, lock, quoted};
use crate::queue::{Answered, Queue, Stopped, Work};
use crate::read::{self, COUNTS, Readers, ask, count};
use crate::record::{Bits, Change, counts, decode};
use crate::replica::{self, Standing};
use crate::writer::{self, Figures, WRITE};
use crate::{Config, Description, OpenError, describe, schema, sessions, tls, unavailable, url};
use async_trait::async_trait;
use ledger::Env;
use ledger::bus::Bus;
use ledger::operation::Operation;
use ledger::store::{
    ApiKey, BlobKind, Committed, Counts, Found, Identity, Query, Session, SessionChange, Store, StoreError,
    StoreStats, Tombstone, Write,
};
use ledger::words::{Epoch, KeyHash, Millis, OperationId, SlotHash, Time};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Why nothing is read or written after closing.
const CLOSED: &str = "the store was closed";
/// Records, and tombstones, in one step of pruning.
const PRUNE_STEP: usize = 200;
/// How long a replica looks after what it was given as due before another may, at most.
const HOLD: i64 = 2000;
/// How long closing waits for the database.
const LAST: Duration = Duration::from_secs(5);

const WRITER: [&str; 1] = [WRITE];
const PULSE: [&str; replica::STATEMENTS + bus::SENDING.len()] = [
    replica::RENEW,
    replica::MARK,
    replica::LOOK,
    replica::REAP,
    replica::SHIFT,
    bus::SENDING[0],
    bus::SENDING[1],
    bus::SENDING[2],
];
const ASIDE: [&str; 6] = [
    "SELECT o_id, o_version, o_record FROM due_1($1, $2, $3, $4)",
    "SELECT next_attention_1()",
    "SELECT id, version, record, prune_after FROM op WHERE prune_after < $1 AND (prune_after, id) > ($2, $3) AND expires_at < $1
     ORDER BY prune_after, id LIMIT $4",
    "SELECT records, graves FROM prune_1($1, 9::smallint, $2, $3, $4, $5, $6, $7)",
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = current_schema() AND c.relkind = 'r'",
    "SELECT ARRAY(SELECT epoch FROM replica WHERE ended_at IS NULL), (SELECT max(epoch) FROM replica)",
];
const DUE: usize = 0;
const NEXT: usize = 1;
const EXPIRED: usize = 2;
const PRUNE: usize = 3;
const SIZE: usize = 4;
const LIVE: usize = 5;

pub(crate) struct Links {
    /// The hot path.
    pub writers: Vec<Link>,
    /// The lease, and the bell: nothing that may take long.
    pub pulse: Link,
    /// Recovery, retention, sessions.
    pub aside: Link,
}

/// What the store and its tasks have in common.
pub(crate) struct Shared {
    pub config: Config,
    pub instance: String,
    identity: Identity,
    pub clock: LedgerClock,
    pub replica: Standing,
    pub links: Links,
    pub readers: Readers,
    pub queue: Queue,
    pub bus: Arc<PgBus>,
    pub description: Mutex<Description>,
    figures: Mutex<Figures>,
    held: AtomicBool,
    closing: AtomicBool,
    close: Notify,
    bytes: AtomicU64,
    env: Arc<dyn Env>,
}

impl Shared {
    pub fn epoch(&self) -> Epoch {
        self.replica.epoch()
    }
    pub fn is_lapsed(&self) -> bool {
        self.replica.is_lapsed()
    }
    pub fn lapse(&self, epoch: Epoch) {
        self.replica.lapse(epoch);
    }
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
    pub fn figures(&self) -> MutexGuard<'_, Figures> {
        lock(&self.figures)
    }
    pub fn acknowledged(&self, epoch: Epoch, lane: i16, batch: i64) {
        self.replica.acknowledged(epoch, lane, batch);
    }
    pub fn set_held(&self, held: bool) {
        if self.held.swap(held, Ordering::AcqRel) != held {
            if held {
                tracing::warn!("the ledger is held: new operations wait until it is released");
            } else {
                tracing::info!("the ledger was released");
            }
        }
    }

    /// How far this machine's wall clock is ahead of the database's, milliseconds.
    pub fn skew(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Millis::from(since).0 - (self.clock.now().0 - self.clock.shift())
    }

    async fn ask(&self, work: Work) -> Answered {
        match self.queue.ask(work).await {
            Ok(answered) => answered,
            Err(Stopped) => Err(StoreError::Unavailable(CLOSED.into())),
        }
    }

    /// One statement that writes, beside the hot path. Its answer may be lost.
    pub async fn write_one(&self, sql: &str, args: &[&(dyn ToSql + Sync)]) -> Result<Row, StoreError> {
        let conn = self.links.aside.get().await?;
        let asked = conn.client.query_one(sql, args);
        ask(&conn, self.config.answer_within, asked).await.unwrap_or_else(|| Err(lost()))
    }

    pub async fn write_all(&self, sql: &str, args: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        let conn = self.links.aside.get().await?;
        let asked = conn.client.query(sql, args);
        ask(&conn, self.config.answer_within, asked).await.unwrap_or_else(|| Err(lost()))
    }

    /// One that does no harm if it is made twice.
    async fn again(&self, statement: usize, args: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        loop {
            let conn = self.links.aside.get().await?;
            let asked = conn.client.query(&conn.statements[statement], args);
            if let Some(answer) = ask(&conn, self.config.answer_within, asked).await {
                return answer;
            }
        }
    }

    fn usable(&self) -> Result<(), StoreError> {
        if self.is_closing() { Err(StoreError::Unavailable(CLOSED.into())) } else { Ok(()) }
    }
}

fn lost() -> StoreError {
    StoreError::Uncertain("the connection to the database was lost".into())
}

/// A ledger in a PostgreSQL database, as one of its replicas.
///
/// Dropping it finishes what waits and ends this boot, as [`PgStore::close`] does, but can't say whether that went well.
pub struct PgStore {
    shared: Arc<Shared>,
    /// Tells when the database's thread has ended.
    ended: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
}

fn checked(config: &Config) -> Result<(Arc<Place>, Config), OpenError> {
    let address = url::parse(&config.url)?;
    let tls = tls::MakeTls::new(&address)?;
    if config.lease < replica::LEAST_LEASE {
        return Err(OpenError::Setting("the lease is at least 300 ms"));
    }
    if !(1..=2).contains(&config.writers) {
        return Err(OpenError::Setting("one or two connections are for writing"));
    }
    if config.readers == 0 {
        return Err(OpenError::Setting("at least one connection is for reading"));
    }
    let mut pg = address.config;
    pg.application_name("counterfoil");
    let place = Place { config: pg, tls, schema: quoted(&config.schema)? };
    Ok((Arc::new(place), config.clone()))
}

async fn open(config: Config, place: Arc<Place>, env: Arc<dyn Env>) -> Result<Arc<Shared>, OpenError> {
    let away = |e: tokio_postgres::Error| match e.as_db_error() {
        Some(_) => OpenError::Database(describe(&e)),
        None => OpenError::Unreachable(describe(&e)),
    };
    let purpose = |statements, relaxed| Purpose { statements, relaxed, heard: None };
    let first = place.connect(&purpose(&[], false)).await.map_err(away)?;
    schema::migrate(&first.client, &place.schema, &config, &*env).await?;
    let instance = if config.instance.is_empty() {
        format!("{:032x}", env.random_u128())
    } else {
        config.instance.clone()
    };
    let sent = crate::clock::elapsed();
    let begun = schema::begin(&first, &config, &instance, config.restored).await?;
    let clock = replica::first_clock(&begun, config.clock_margin);
    schema::succeed(&first, begun.epoch, &instance, clock.now()).await?;
    let patience = config.patience;
    let keep = async |purpose: Purpose| -> Result<Link, OpenError> {
        let conn = place.connect(&purpose).await.map_err(away)?;
        Ok(Link::keep(place.clone(), conn, purpose, patience))
    };
    let mut writers = Vec::new();
    for _ in 0..config.writers {
        writers.push(keep(purpose(&WRITER, false)).await?);
    }
    let links = Links {
        writers,
        pulse: keep(purpose(&PULSE, true)).await?,
        aside: keep(purpose(&ASIDE, false)).await?,
    };
    let mut readers = Vec::new();
    for _ in 0..config.readers {
        readers.push(keep(purpose(&read::STATEMENTS, true)).await?);
    }
    let (heard, bells) = bus::bells();
    let hearing = keep(Purpose { statements: &bus::HEARING, relaxed: true, heard: Some(heard) }).await?;
    let bus = Arc::new(PgBus::new(&config.schema, &*env));
    if let Some(why) = &begun.held {
        tracing::warn!("the ledger is held ({why}): new operations wait until it is released");
    }
    let shared = Arc::new(Shared {
        readers: Readers::new(readers, config.answer_within),
        description: Mutex::new(config.description.clone()),
        replica: Standing::new(begun.epoch, sent + config.lease.0),
        identity: begun.identity,
        instance,
        clock,
        links,
        queue: Queue::new(),
        bus,
        figures: Mutex::default(),
        held: AtomicBool::new(begun.held.is_some()),
        closing: AtomicBool::new(false),
        close: Notify::new(),
        bytes: AtomicU64::new(0),
        env,
        config,
    });
    replica::first_look(&shared).await?;
    tokio::spawn(replica::pulse(shared.clone()));
    tokio::spawn(bus::send(shared.clone()));
    tokio::spawn(bus::hear(shared.clone(), bells, hearing));
    tokio::spawn(measure(shared.clone()));
    Ok(shared)
}

/// Looks at the size now and then.
async fn measure(shared: Arc<Shared>) {
    while !shared.is_closing() {
        if let Ok(rows) = shared.again(SIZE, &[]).await
            && let Some(row) = rows.first()
        {
            shared.bytes.store(row.get::<_, i64>(0).unsigned_abs(), Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
}

/// The database's thread: opens, says so, and works until the store is closed.
fn thread(
    config: Config,
    place: Arc<Place>,
    env: Arc<dyn Env>,
    opened: oneshot::Sender<Result<Arc<Shared>, OpenError>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            let _ = opened.send(Err(OpenError::Database(format!("no runtime: {e}"))));
            return;
        }
    };
    runtime.block_on(async move {
        let shared = match open(config, place, env).await {
            Ok(shared) => shared,
            Err(e) => {
                let _ = opened.send(Err(e));
                return;
            }
        };
        let mut writers = tokio::task::JoinSet::new();
        for lane in (0..).take(shared.links.writers.len()) {
            writers.spawn(writer::run(shared.clone(), lane));
        }
        if opened.send(Ok(shared.clone())).is_err() {
            shared.closing.store(true, Ordering::Release);
            shared.queue.stop();
        }
        while !shared.is_closing() {
            shared.close.notified().await;
        }
        let _ = tokio::time::timeout(LAST, writers.join_all()).await;
        let _ = tokio::time::timeout(LAST, end(&shared)).await;
    });
}

/// Ends this boot, so that nobody waits for its lease.
async fn end(shared: &Shared) -> Result<(), StoreError> {
    let epoch = shared.epoch();
    let conn = shared.links.aside.get().await?;
    let args: [&(dyn ToSql + Sync); 2] = [&epoch.0.cast_signed(), &shared.clock.now().0];
    conn.client.query("SELECT end_replica_1($1, $2)", &args).await.map_err(|e| unavailable(&e))?;
    Ok(())
}

impl PgStore {
    /// Opens the ledger, or makes it. Several replicas may do so at once.
    ///
    /// `on_fatal` is called if the store's own thread fails: the process should then end, and be started again. A
    /// database that is away is no such failure.
    ///
    /// # Errors
    /// [`OpenError`] says what stands in the way. Nothing is changed where it says so.
    pub async fn open(
        config: Config,
        env: Arc<dyn Env>,
        on_fatal: Arc<dyn Fn(String) + Send + Sync>,
    ) -> Result<Arc<PgStore>, OpenError> {
        let (place, config) = checked(&config)?;
        let (open, opened) = oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .name("ledger-postgres".into())
            .spawn(move || {
                let work = std::panic::AssertUnwindSafe(|| thread(config, place, env, open));
                if std::panic::catch_unwind(work).is_err() {
                    on_fatal("the ledger's database thread failed; nothing more is read or written until it is opened again".into());
                }
                let _ = end.send(());
            })
            .map_err(|e| OpenError::Database(format!("no thread: {e}")))?;
        let shared = opened
            .await
            .unwrap_or_else(|_| Err(OpenError::Database("its thread failed at the start".into())))?;
        Ok(Arc::new(PgStore { shared, ended: Mutex::new(Some(ended)) }))
    }

    /// Makes everything durable, ends this boot and closes the connections. Closing twice is the same as once.
    ///
    /// # Errors
    /// The database is away: what was answered before is durable all the same, and this boot ends with its lease.
    pub async fn close(&self) -> Result<(), StoreError> {
        if self.shared.is_closing() {
            return Ok(());
        }
        let flushed = self.flush().await;
        self.stop();
        let ended = lock(&self.ended).take();
        if let Some(ended) = ended {
            let _ = tokio::task::spawn_blocking(move || ended.recv_timeout(2 * LAST)).await;
        }
        flushed
    }

    fn stop(&self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.queue.stop();
        self.shared.close.notify_one();
        self.shared.replica.hurry.notify_one();
    }

    /// Ends this boot at once, so that other replicas take over what it ran without waiting for its lease. Nothing is
    /// written any more; reading goes on.
    ///
    /// # Errors
    /// The database is away: then the lease has to lapse.
    pub async fn leave(&self) -> Result<(), StoreError> {
        self.flush().await?;
        self.shared.replica.leave();
        let args: [&(dyn ToSql + Sync); 2] =
            [&self.shared.epoch().0.cast_signed(), &self.shared.clock.now().0];
        self.shared.write_one("SELECT end_replica_1($1, $2)", &args).await.map(|_| ())
    }

    /// The way to the other replicas.
    #[must_use]
    pub fn bus(&self) -> Arc<dyn Bus> {
        self.shared.bus.clone()
    }

    /// Says how this replica is to be described to the others from now on.
    ///
    /// # Errors
    /// The database is away: it is told at the next renewal of the lease.
    pub async fn describe(&self, description: Description) -> Result<(), StoreError> {
        lock(&self.shared.description).clone_from(&description);
        let d = &description;
        self.shared
            .write_all(
                "UPDATE replica SET server_name = $2, version = $3, fingerprint = $4, listen = $5 WHERE epoch = $1",
                &[&self.shared.epoch().0.cast_signed(), &d.server_name, &d.version, &d.fingerprint, &d.listen],
            )
            .await
            .map(|_| ())
    }

    /// The replicas that are alive.
    ///
    /// # Errors
    /// The database is away.
    pub async fn replicas(&self) -> Result<Vec<Replica>, StoreError> {
        checks::replicas(&self.shared).await
    }

    /// Facts about the server.
    ///
    /// # Errors
    /// The database is away.
    pub async fn checks(&self) -> Result<Vec<Check>, StoreError> {
        checks::checks(&self.shared).await
    }

    /// Whether the database can be written to just now, within the patience that writes have.
    ///
    /// # Errors
    /// Why not.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.shared.usable()?;
        if self.shared.is_lapsed() {
            return Err(StoreError::Unavailable("this replica's lease is over".into()));
        }
        self.shared.links.writers[0].get().await.map(|_| ())
    }

    /// Whether this replica's own clock says that its lease is over.
    #[doc(hidden)]
    #[must_use]
    pub fn is_lapsed_for_test(&self) -> bool {
        self.shared.is_lapsed()
    }

    /// Whether it knows of others that are alive.
    #[doc(hidden)]
    #[must_use]
    pub fn has_company_for_test(&self) -> bool {
        self.shared.replica.has_company()
    }

    /// This replica's epochs, beginning with the present one: a new one each time its lease was over. What ran under an
    /// earlier one has to be given up.
    #[must_use]
    pub fn epochs(&self) -> watch::Receiver<Epoch> {
        self.shared.replica.epochs()
    }

    /// As [`Store::write`], for what was begun under `epoch`: refused (nothing is written) once this replica goes on
    /// under another.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub async fn write_under(&self, epoch: Epoch, write: Write) -> Result<Committed, StoreError> {
        self.shared.usable()?;
        let change = Change::new(write, self.shared.config.attention, epoch)?;
        self.shared.ask(Work::Write(Box::new(change))).await
    }
}

impl Drop for PgStore {
    fn drop(&mut self) {
        if !self.shared.is_closing() {
            self.stop();
        }
        if let Some(ended) = lock(&self.ended).take() {
            let _ = ended.recv_timeout(2 * LAST);
        }
    }
}

#[async_trait]
impl Store for PgStore {
    fn now(&self) -> Time {
        self.shared.clock.now()
    }
    fn epoch(&self) -> Epoch {
        self.shared.epoch()
    }
    fn is_live(&self, epoch: Epoch) -> bool {
        self.shared.replica.is_live(epoch)
    }
    fn clock_step(&self) -> Option<Time> {
        self.shared.clock.step()
    }
    fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    async fn write(&self, write: Write) -> Result<Committed, StoreError> {
        self.write_under(self.shared.epoch(), write).await
    }

    fn write_lazily(&self, write: Write) {
        let id = write.operation().id;
        let change = Change::new(write, self.shared.config.attention, self.shared.epoch());
        if !change.is_ok_and(|change| self.shared.queue.tell(change)) {
            tracing::warn!("a lazy write of {id} was dropped: the ledger is behind or was closed");
        }
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.shared.usable()?;
        self.shared.ask(Work::Flush).await.map(|_| ())
    }

    async fn by_id(&self, id: OperationId) -> Result<Option<Found>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.by_id(id).await
    }
    async fn by_key(&self, key: &KeyHash) -> Result<Option<Found>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.by_key(key).await
    }
    async fn by_slot(&self, slot: &SlotHash) -> Result<Option<Operation>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.by_slot(slot).await
    }
    async fn blob(&self, id: OperationId, kind: BlobKind) -> Result<Option<Vec<u8>>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.blob(id, kind).await
    }

    /// What other replicas look after just now is left out; what this one gets is its own to look after for a moment.
    async fn due(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.shared.usable()?;
        // A few places apart, so that two replicas don't give up the same rows at the same moment.
        let spread = self.shared.env.jitter(Millis(HOLD / 2)).0;
        let hold = if self.shared.replica.has_company() { HOLD / 2 + spread } else { 0 };
        let epoch = self.shared.epoch().0.cast_signed();
        let rows = self.shared.again(DUE, &[&epoch, &now.0, &count(limit), &hold]).await?;
        let due: Vec<Operation> = rows.iter().filter_map(|r| self.shared.readers.sound(r)).collect();
        // Whose work came here because it is gone must be known to be gone.
        if due.iter().any(|op| op.owner != self.shared.epoch() && self.is_live(op.owner)) {
            let rows = self.shared.again(LIVE, &[]).await?;
            rows.iter().for_each(|r| self.shared.replica.heard(r.get(0), r.get(1)));
        }
        Ok(due)
    }
    async fn orphans(&self, after: Option<OperationId>, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.orphans(after, limit).await
    }
    async fn next_attention(&self) -> Result<Option<Time>, StoreError> {
        self.shared.usable()?;
        let rows = self.shared.again(NEXT, &[]).await?;
        Ok(rows.first().and_then(|r| r.get::<_, Option<i64>>(0)).map(Time))
    }
    async fn list(&self, query: &Query) -> Result<Vec<Operation>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.list(query).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.shared.usable()?;
        let rows = self.shared.readers.rows(COUNTS, &[]).await?;
        Ok(counts(rows.iter().map(|r| (r.get(0), r.get(1)))))
    }

    async fn prune(&self, now: Time, tombstones_for: Millis, limit: usize) -> Result<usize, StoreError> {
        self.shared.usable()?;
        let shared = &self.shared;
        let epoch = shared.epoch().0.cast_signed();
        let old = now.0.saturating_sub(tombstones_for.0);
        let (mut pruned, mut place) = (0, (i64::MIN, Bits([0; 16])));
        loop {
            let step = PRUNE_STEP.min(limit - pruned);
            let rows = shared.again(EXPIRED, &[&now.0, &place.0, &place.1, &count(step)]).await?;
            let (mut ids, mut versions, mut graves): (Vec<Bits>, Vec<i64>, Vec<String>) = Default::default();
            for row in &rows {
                let (id, version): (Bits, i64) = (row.get(0), row.get(1));
                place = (row.get(3), id);
                // A record that can't be read stays: somebody has to look at it.
                let Some(op) = decode(id, version, row.get(2)) else { continue };
                let outcome = op.execution.word().into();
                let grave = Tombstone { id: op.id, fingerprint: op.fingerprint, outcome, at: now };
                let Ok(text) = serde_json::to_string(&grave) else { continue };
                ids.push(id);
                versions.push(version);
                graves.push(text);
            }
            let args: [&(dyn ToSql + Sync); 7] =
                [&epoch, &ids, &versions, &graves, &now.0, &old, &count(PRUNE_STEP)];
            let done = shared.again(PRUNE, &args).await?;
            let number = |n| done.first().map_or(0, |r| usize::try_from(r.get::<_, i64>(n)).unwrap_or(0));
            pruned += number(0);
            if (rows.len() < step || pruned >= limit) && number(1) < PRUNE_STEP {
                return Ok(pruned);
            }
        }
    }

    fn is_held(&self) -> bool {
        self.shared.held.load(Ordering::Acquire)
    }
    async fn release(&self) -> Result<(), StoreError> {
        self.shared.usable()?;
        self.shared.write_all("UPDATE meta SET held = NULL", &[]).await?;
        self.shared.set_held(false);
        Ok(())
    }

    async fn put_api_key(&self, key: ApiKey) -> Result<(), StoreError> {
        self.shared.usable()?;
        let text = serde_json::to_string(&key)
            .map_err(|_| StoreError::Unavailable("an API key has no JSON form".into()))?;
        if key.id.contains('\0') {
            return Err(StoreError::Unavailable("an API key's id has a zero character".into()));
        }
        let sql = "INSERT INTO api_key (id, record) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET record = excluded.record";
        self.shared.write_all(sql, &[&key.id, &text]).await.map(|_| ())
    }
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.api_keys().await
    }

    async fn open_session(&self, session: Session) -> Result<Vec<String>, StoreError> {
        self.shared.usable()?;
        sessions::open(&self.shared, session).await
    }
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        self.shared.usable()?;
        sessions::find(&self.shared.readers, id).await
    }
    async fn change_session(&self, id: &str, change: SessionChange) -> Result<Option<Session>, StoreError> {
        self.shared.usable()?;
        sessions::change(&self.shared, id, change).await
    }
    async fn end_session(&self, id: &str) -> Result<bool, StoreError> {
        self.shared.usable()?;
        sessions::end(&self.shared, id).await
    }
    async fn prune_sessions(&self, unused_since: Time, limit: usize) -> Result<usize, StoreError> {
        self.shared.usable()?;
        sessions::prune(&self.shared, unused_since, limit).await
    }

    fn stats(&self) -> StoreStats {
        let figures = self.shared.figures().stats();
        StoreStats {
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            free_bytes: u64::MAX,
            schema: schema::LATEST,
            ..figures
        }
    }
}
