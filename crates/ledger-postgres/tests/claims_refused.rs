//! Claims that the database refuses: another's work is in the way, or it takes no writes. What waits is told so in time and
//! holds nothing, what is given back is given back, and the connection is given up where another server may be behind it.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../ledger-sqlite/tests/contract/mod.rs"]
mod contract;
mod support;

use contract::id;
use ledger::claims::{Claim, Claimed, MAX_AMOUNT};
use ledger::store::{Store, StoreError};
use ledger::words::Millis;
use ledger_postgres::{Config, PgStore};
use std::time::{Duration, Instant};
use support::{config, open, sql};
use temp_postgres::{Options, TempPostgres};
use tokio_postgres::NoTls;

fn one(s: &PgStore, bucket: &str) -> Claim {
    Claim { bucket: bucket.into(), amount: 1, cap: 9, until: s.now().plus(Millis::secs(3600)) }
}

async fn used(s: &PgStore, bucket: &str) -> u64 {
    let all = Claim { amount: MAX_AMOUNT, cap: MAX_AMOUNT - 1, ..one(s, bucket) };
    match s.claim(id(999), 1, &[all]).await.unwrap() {
        Claimed::Full { used, .. } => used,
        Claimed::Granted => panic!("more than there can be was granted"),
    }
}

fn names(buckets: &[&str]) -> Vec<String> {
    buckets.iter().map(|b| (*b).to_owned()).collect()
}

/// Another session that holds the lock of a bucket until it is dropped.
async fn locked(config: &Config, bucket: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&config.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let lock =
        format!("SET search_path = {}; SELECT pg_advisory_lock(bucket_lock_1('{bucket}'))", config.schema);
    client.batch_execute(&lock).await.unwrap();
    client
}

/// The server waits so long for a lock, in the place of 5 s.
fn patience(config: &Config, ms: u32) {
    let of = "claims_1(bigint, text[], uuid[], bigint[], boolean[], integer[], integer[], integer[], integer[], bigint[], bigint[], bigint[])";
    sql(config, &format!("ALTER FUNCTION {of} SET lock_timeout = '{ms}ms'"));
}

fn is_locked(said: &Result<Claimed, StoreError>) -> bool {
    matches!(said, Err(StoreError::Unavailable(why)) if why.contains("55P03"))
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_do_not_wait_on_for_a_lock_and_what_is_given_back_does() {
    let config = config();
    let s = open(&config);
    assert_eq!(s.claim(id(1), 1, &[one(&s, "a")]).await.unwrap(), Claimed::Granted);
    patience(&config, 250);
    let lock = locked(&config, "a").await;
    let begun = Instant::now();
    // It is tried three times, and known not to be made.
    let said = s.claim(id(2), 1, &[one(&s, "b"), one(&s, "a")]).await;
    assert!(is_locked(&said), "{said:?}");
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(750) && took < Duration::from_secs(8), "{took:?}");
    assert_eq!(used(&s, "b").await, 0, "nor is the part of it that was free");
    // Whoever waits in the same statement is refused with it; what is given back is tried once more by itself.
    let back = names(&["a"]);
    let (three, four) = ([one(&s, "a")], [one(&s, "c")]);
    let first = s.claim(id(3), 1, &three);
    let refused = async {
        // Behind the first, and with what is given back.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let refused = s.claim(id(4), 1, &four).await;
        drop(lock);
        refused
    };
    let given_back = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        s.release_claims(id(1), 1, &back).await
    };
    let (first, refused, given_back) = tokio::join!(first, refused, given_back);
    assert!(is_locked(&first) && is_locked(&refused), "{first:?} {refused:?}");
    given_back.unwrap();
    assert_eq!((used(&s, "a").await, used(&s, "c").await), (0, 0));
    // What is given back doesn't wait without end either.
    assert_eq!(s.claim(id(1), 2, &[one(&s, "a")]).await.unwrap(), Claimed::Granted);
    let lock = locked(&config, "a").await;
    let said = s.release_claims(id(1), 2, &names(&["a"])).await;
    assert!(is_locked(&said.clone().map(|()| Claimed::Granted)), "{said:?}");
    drop(lock);
    assert_eq!(used(&s, "a").await, 1, "it counts until it is over");
}

/// A session of the server that is for claims.
fn session_for_claims(server: &TempPostgres, database: &str) -> String {
    server.sql(
        database,
        "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT full_at%' AND pid <> pg_backend_pid()",
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_takes_no_writes_is_given_up() {
    let server = TempPostgres::start(Options::default());
    let database = server.database();
    let s = open(&Config::new(server.url(&database), "test"));
    assert_eq!(s.claim(id(1), 1, &[one(&s, "a")]).await.unwrap(), Claimed::Granted);
    let before = session_for_claims(&server, &database);
    assert!(before.parse::<u32>().is_ok(), "{before:?}");
    // The next session is one for reading, for as long as it lasts; those after it are not.
    let read_only = |how: &str| {
        // From elsewhere: a session of this database could not say that any more.
        server.sql("postgres", &format!("ALTER DATABASE \"{database}\" {how}"))
    };
    read_only("SET default_transaction_read_only = on");
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let sessions = server.sql(&database, others);
    server.sql(&database, &format!("SELECT pg_terminate_backend({before})"));
    let begun = Instant::now();
    let there = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> {before} AND state = 'idle'"
    );
    while server.sql(&database, &there) != sessions {
        assert!(begun.elapsed() < Duration::from_secs(20), "it comes back");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    read_only("RESET default_transaction_read_only");
    // All of it is refused, once, and nothing of it made. Who asks at the same time may come after that.
    let (two, three) = ([one(&s, "a"), one(&s, "b")], [one(&s, "b")]);
    let first = s.claim(id(2), 1, &two).await;
    assert!(matches!(&first, Err(StoreError::Unavailable(why)) if why.contains("25006")), "{first:?}");
    // What comes next has another connection.
    let begun = Instant::now();
    assert_eq!(s.claim(id(3), 1, &three).await.unwrap(), Claimed::Granted);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_ne!(session_for_claims(&server, &database), before);
    assert_eq!((used(&s, "a").await, used(&s, "b").await), (1, 1));
    s.release_claims(id(1), 1, &names(&["a"])).await.unwrap();
    assert_eq!(used(&s, "a").await, 0);
}
