//! The store: opening and closing, and what only replicas have.

use crate::bus::{self, PgBus};
use crate::checks::{self, Check, Replica};
use crate::claims::{self, Desk};
use crate::link::{Link, Place, Purpose, lock, quoted};
use crate::queue::Queue;
use crate::read::{self, Readers};
use crate::replica::{self, Standing};
use crate::shared::{ASIDE, Links, OnFatal, PULSE, SIZE, Shared, WRITER};
use crate::{Config, Description, OpenError, describe, schema, tls, unavailable, url, writer};
use ledger::Env;
use ledger::bus::Bus;
use ledger::store::{Store as _, StoreError};
use ledger::words::Epoch;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio_postgres::types::ToSql;

/// How long closing waits for the database.
const LAST: Duration = Duration::from_secs(5);

/// A ledger in a PostgreSQL database, as one of its replicas.
///
/// Dropping it finishes what waits and ends this boot, as [`PgStore::close`] does, but can't say whether that went well.
pub struct PgStore {
    pub(crate) shared: Arc<Shared>,
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

async fn open(
    config: Config,
    place: Arc<Place>,
    env: Arc<dyn Env>,
    on_fatal: OnFatal,
) -> Result<Arc<Shared>, OpenError> {
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
    let begun = schema::begin(&first, &config, &instance, config.restored, true).await?;
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
        claims: keep(purpose(&claims::CLAIMS, false)).await?,
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
        gaps: begun.gaps,
        instance,
        clock,
        links,
        queue: Queue::new(),
        desk: Desk::default(),
        bus,
        figures: Mutex::default(),
        held: AtomicBool::new(begun.held.is_some()),
        closing: AtomicBool::new(false),
        close: Notify::new(),
        bytes: AtomicU64::new(0),
        on_fatal,
        env,
        config,
    });
    replica::first_look(&shared).await?;
    tokio::spawn(replica::pulse(shared.clone()));
    tokio::spawn(bus::send(shared.clone()));
    tokio::spawn(bus::hear(shared.clone(), bells, hearing));
    tokio::spawn(claims::run(shared.clone()));
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
    on_fatal: OnFatal,
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
        let shared = match open(config, place, env, on_fatal).await {
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
            shared.desk.rouse();
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
    /// `on_fatal` is called if the store's own thread fails, or if a newer program changed the schema so that this one
    /// can't go on: the process should then end, and be started again. A database that is away is no such failure.
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
                let told = on_fatal.clone();
                let work = std::panic::AssertUnwindSafe(|| thread(config, place, env, told, open));
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
        self.shared.desk.rouse();
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
        if let Some(why) = self.shared.replica.outdated() {
            return Err(StoreError::Unavailable(why.to_owned()));
        }
        if self.shared.is_lapsed() {
            return Err(StoreError::Unavailable("this replica's lease is over".into()));
        }
        if self.shared.links.writers.iter().any(Link::is_up) {
            return Ok(());
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
