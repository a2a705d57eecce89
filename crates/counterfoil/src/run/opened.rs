//! The store that a process opened, whichever it is, and the bus that belongs to it.

use super::Use;
use crate::Error;
use crate::config::{BusConfig, Config, LedgerPlace, Postgres};
use bus_nats::NatsBus;
use ledger::bus::{Alone, Bus};
use ledger::memory::MemoryStore;
use ledger::store::Attention;
use ledger::{Env, Store, Time};
use ledger_postgres::{Failover, PgStore};
use ledger_sqlite::SqliteStore;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;

/// A store that can be closed.
#[derive(Clone)]
pub(crate) enum Opened {
    /// Nothing is kept.
    Memory(Arc<MemoryStore>),
    Sqlite(Arc<SqliteStore>),
    /// One of several replicas, perhaps.
    Postgres(Arc<PgStore>),
}

type OnFatal = Arc<dyn Fn(String) + Send + Sync>;

impl Opened {
    /// In memory.
    pub fn memory(env: &Arc<dyn Env>) -> Opened {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let base = Time(i64::try_from(now.as_millis()).unwrap_or(0));
        Opened::Memory(Arc::new(MemoryStore::new(env.clone(), base, Attention::default())))
    }

    /// Where the configuration says.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::OpenPostgres`]: what stands in the way.
    pub async fn at(
        config: &Config,
        purpose: Use,
        env: Arc<dyn Env>,
        dead: watch::Sender<Option<String>>,
    ) -> Result<Opened, Error> {
        let on_fatal = Arc::new(move |why: String| {
            tracing::error!(why, "the ledger failed");
            let _ = dead.send(Some(why));
        });
        let opened = match &config.ledger.place {
            LedgerPlace::Sqlite(path) => sqlite(config, path, env, on_fatal).await?,
            LedgerPlace::Postgres(place) => {
                let store = postgres(config, place, purpose);
                Opened::Postgres(PgStore::open(store, env, on_fatal).await?)
            }
        };
        let store = opened.store();
        let kept = &store.identity().name;
        if *kept != config.server.name {
            tracing::warn!(
                ledger = kept,
                configured = config.server.name,
                "the ledger keeps the name it was made with: effect keys depend on it"
            );
        }
        Ok(opened)
    }

    /// As the ledger knows it.
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Opened::Memory(store) => store.clone(),
            Opened::Sqlite(store) => store.clone(),
            Opened::Postgres(store) => store.clone(),
        }
    }

    /// Where it has replicas.
    pub fn postgres(&self) -> Option<&Arc<PgStore>> {
        match self {
            Opened::Postgres(store) => Some(store),
            Opened::Memory(_) | Opened::Sqlite(_) => None,
        }
    }

    /// Makes everything durable and lets the ledger go: what still runs is taken up by the next run, or at once by
    /// another replica.
    ///
    /// # Errors
    /// [`Error::Store`]: the store had failed, or is away.
    pub async fn close(&self) -> Result<(), Error> {
        match self {
            Opened::Memory(_) => Ok(()),
            Opened::Sqlite(store) => Ok(store.close().await?),
            Opened::Postgres(store) => Ok(store.close().await?),
        }
    }
}

/// The bus that a configuration asks for, on a store that is open.
///
/// # Errors
/// [`Error::Bus`]: it can't be used.
pub(crate) async fn bus_of(config: &BusConfig, store: &Opened) -> Result<Arc<dyn Bus>, Error> {
    match (config, store) {
        // Nothing is kept, so there is nothing to tell.
        (_, Opened::Memory(_)) => Ok(Arc::new(Alone::default())),
        (BusConfig::Nats(url), Opened::Sqlite(_) | Opened::Postgres(_)) => {
            match NatsBus::connect(url.expose(), store.store().identity()).await {
                Ok(bus) => Ok(bus),
                Err(e) => Err(Error::Bus(e.to_string())),
            }
        }
        (BusConfig::Auto, Opened::Postgres(store)) => Ok(store.bus()),
        (BusConfig::Auto, Opened::Sqlite(_)) => Ok(Arc::new(Alone::default())),
    }
}

async fn sqlite(config: &Config, path: &Path, env: Arc<dyn Env>, on_fatal: OnFatal) -> Result<Opened, Error> {
    let store = ledger_sqlite::Config {
        restored: config.ledger.restored,
        ..ledger_sqlite::Config::new(path, &config.server.name)
    };
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(store, env, on_fatal)).await;
    let store = opened.map_err(|e| Error::Fatal(format!("the ledger could not be opened ({e})")))??;
    Ok(Opened::Sqlite(store))
}

fn postgres(config: &Config, place: &Postgres, purpose: Use) -> ledger_postgres::Config {
    ledger_postgres::Config {
        schema: place.schema.clone(),
        // A start under a name ends the run before it that had it: a command must not end the replica beside it.
        instance: place.replica.clone().filter(|_| purpose == Use::Serve).unwrap_or_default(),
        lease: config.ledger.lease,
        restored: config.ledger.restored,
        // What only looks makes nothing in a database that may be named by mistake.
        make: purpose.writes(),
        failover: if place.synchronous_standby { Failover::Synchronous } else { Failover::Hold },
        ..ledger_postgres::Config::new(place.url.expose(), &config.server.name)
    }
}
