//! A server for the whole test program, and stores on it.

#![allow(dead_code)]

use ledger::SystemEnv;
use ledger_postgres::{Config, OpenError, PgStore};
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use temp_postgres::{Options, TempPostgres};

pub static SERVER: LazyLock<TempPostgres> = LazyLock::new(|| TempPostgres::start(Options::default()));
static DATABASE: LazyLock<String> = LazyLock::new(|| SERVER.database());
static SCHEMAS: AtomicU32 = AtomicU32::new(0);

/// A ledger of its own in the program's database.
pub fn config() -> Config {
    let schema = format!("s{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
    Config { schema, ..Config::new(SERVER.url(&DATABASE), "test") }
}

/// Runs SQL in the schema of this ledger.
pub fn sql(config: &Config, sql: &str) -> String {
    SERVER.sql(&DATABASE, &format!("SET search_path = {}; {sql}", config.schema))
}

/// Waits for a future from wherever: on a thread with a runtime of its own.
pub fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    })
    .join()
    .unwrap()
}

pub async fn try_open(config: Config) -> Result<Arc<PgStore>, OpenError> {
    PgStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).await
}

pub fn open(config: &Config) -> Arc<PgStore> {
    let config = config.clone();
    wait(async move { try_open(config).await.unwrap() })
}
