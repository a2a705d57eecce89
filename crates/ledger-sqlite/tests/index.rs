//! Keys and slots are found wherever their entries are: in memory, on their way to the tables, or there; after a restart,
//! whenever that comes, and after what was pruned.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod contract;

use contract::{T0, WEEK, completed, create, id, opening};
use counterfoil_ledger_sqlite::faults::Fault;
use counterfoil_ledger_sqlite::{Config, SqliteStore};
use ledger::store::{Blob, Committed, Found, SlotWrite, Store, StoreError, Write, key_hash_of, slot_hash_of};
use ledger::words::{Millis, Time};
use ledger::{Operation, SystemEnv};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Entries leave memory after so many rows.
fn config(dir: &Path, rows: usize) -> Config {
    let path = dir.join("data/ledger.db");
    Config { ballast: 0, min_free: 0, unindexed_rows: rows, ..Config::new(path, "test") }
}

fn open(dir: &Path, rows: usize) -> Arc<SqliteStore> {
    SqliteStore::open(config(dir, rows), Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).unwrap()
}

fn sql(dir: &Path, sql: &str) {
    rusqlite::Connection::open(dir.join("data/ledger.db")).unwrap().execute_batch(sql).unwrap();
}

fn number(dir: &Path, sql: &str) -> i64 {
    let db = rusqlite::Connection::open(dir.join("data/ledger.db")).unwrap();
    db.query_row(sql, [], |r| r.get(0)).unwrap()
}

fn key(n: u32) -> String {
    format!("k{n}")
}

/// The key of the n-th operation is its, and so is its slot; nobody else gets either.
async fn is_there(s: &dyn Store, n: u32) {
    let made = opening(id(n.into()), Some(&key(n)), n, s.epoch());
    let by_key = s.by_key(&key_hash_of(&made.0).unwrap()).await.unwrap();
    assert!(matches!(&by_key, Some(Found::Operation(op)) if op.id == made.0.id), "key {n}: {by_key:?}");
    let by_slot = s.by_slot(&slot_hash_of(&made.0)).await.unwrap();
    assert_eq!(by_slot.map(|op| op.id), Some(made.0.id), "slot {n}");
    let other = opening(id(u64::from(n) + 1_000_000), Some(&key(n)), n, s.epoch());
    assert_eq!(create(s, &other, SlotWrite::Set).await, Committed::KeyTaken, "key {n}");
    let twin = opening(id(u64::from(n) + 1_000_000), None, n, s.epoch());
    assert_eq!(create(s, &twin, SlotWrite::CompareAndSet(None)).await, Committed::SlotTaken, "slot {n}");
}

/// It is gone, and its key with it.
async fn is_pruned(s: &dyn Store, n: u32) {
    let made = opening(id(n.into()), Some(&key(n)), n, s.epoch());
    let by_key = s.by_key(&key_hash_of(&made.0).unwrap()).await.unwrap();
    assert!(matches!(by_key, Some(Found::Tombstone(_))), "key {n}: {by_key:?}");
    assert!(s.by_slot(&slot_hash_of(&made.0)).await.unwrap().is_none(), "slot {n}");
    let again = opening(id(u64::from(n) + 1_000_000), Some(&key(n)), n, s.epoch());
    assert_eq!(create(s, &again, SlotWrite::Set).await, Committed::KeyTaken, "key {n}");
}

#[tokio::test]
async fn entries_are_found_at_every_stage_and_after_every_restart() {
    for rows in [1, 3, 10, 1000] {
        let dir = TempDir::new().unwrap();
        let mut s = open(dir.path(), rows);
        for n in 1..=40 {
            completed(&*s, n, Some(&key(n)), T0).await;
            for n in 1..=n {
                is_there(&*s, n).await;
            }
            if n % 7 == 0 {
                drop(s);
                s = open(dir.path(), rows);
            }
        }
        s.close().await.unwrap();
        let entered = number(dir.path(), "SELECT count(*) FROM op_by_key");
        assert_eq!(entered > 20, rows <= 10, "{entered} entries with {rows}");
    }
}

#[tokio::test]
async fn many_callers_at_once_get_a_key_and_a_slot_once() {
    let dir = TempDir::new().unwrap();
    let s = open(dir.path(), 5);
    let tasks: Vec<_> = (0..400_u32)
        .map(|t| {
            let s = s.clone();
            tokio::spawn(async move {
                // Eight for each key, eight for each slot.
                let n = t % 50;
                let (keyed, slot) = if t % 2 == 0 {
                    (Some(key(n)), SlotWrite::Set)
                } else {
                    (None, SlotWrite::CompareAndSet(None))
                };
                let made = opening(id(u64::from(t)), keyed.as_deref(), n, s.epoch());
                (n, create(&*s, &made, slot).await == Committed::Done)
            })
        })
        .collect();
    let mut made = vec![0; 50];
    for t in tasks {
        let (n, done) = t.await.unwrap();
        made[n as usize] += i32::from(done);
    }
    assert_eq!(made, [1; 50]);
}

#[tokio::test]
async fn what_is_pruned_is_entered_before_and_takes_nothing_along() {
    for rows in [1, 3, 10, 1000] {
        let dir = TempDir::new().unwrap();
        let mut s = open(dir.path(), rows);
        for n in 1..=30 {
            completed(&*s, n, Some(&key(n)), Time(T0.0 + i64::from(n))).await;
        }
        let until = |n: i64| T0.plus(Millis(WEEK + n + 1));
        assert_eq!(s.prune(until(12), Millis::secs(60), usize::MAX).await.unwrap(), 12);
        for _ in 0..2 {
            for n in 1..=30 {
                if n <= 12 { is_pruned(&*s, n).await } else { is_there(&*s, n).await }
            }
            drop(s);
            s = open(dir.path(), rows);
        }
        assert_eq!(s.prune(until(30), Millis::secs(60), usize::MAX).await.unwrap(), 18);
        s.close().await.unwrap();
        for table in ["op_by_key", "slot"] {
            assert_eq!(number(dir.path(), &format!("SELECT count(*) FROM {table}")), 0, "{table}");
        }
    }
}

#[tokio::test]
async fn the_newest_of_a_slot_counts_though_older_ones_were_entered() {
    let dir = TempDir::new().unwrap();
    let mut s = open(dir.path(), 2);
    let slot = slot_hash_of(&opening(id(1), None, 1, s.epoch()).0);
    for n in 1..=20 {
        let made = opening(id(n), None, 1, s.epoch());
        assert_eq!(create(&*s, &made, SlotWrite::Set).await, Committed::Done);
        if n % 3 == 0 {
            drop(s);
            s = open(dir.path(), 2);
        }
        assert_eq!(s.by_slot(&slot).await.unwrap().unwrap().id, id(n));
    }
}

#[tokio::test]
async fn the_number_of_a_pruned_row_is_given_again() {
    let dir = TempDir::new().unwrap();
    let s = open(dir.path(), 1);
    completed(&*s, 1, Some(&key(1)), T0).await;
    assert_eq!(s.prune(T0.plus(Millis(WEEK + 1)), Millis::secs(60), usize::MAX).await.unwrap(), 1);
    completed(&*s, 2, Some(&key(2)), T0).await;
    assert_eq!(number(dir.path(), "SELECT seq FROM op"), 1, "the number that the first one had");
    drop(s);
    let s = open(dir.path(), 1000);
    is_pruned(&*s, 1).await;
    is_there(&*s, 2).await;
}

fn creation((op, blobs): &(Operation, Vec<Blob>)) -> Write {
    Write::Create {
        operation: Box::new(op.clone()),
        slot: SlotWrite::CompareAndSet(None),
        blobs: blobs.clone(),
    }
}

#[tokio::test]
async fn a_creation_that_was_not_committed_leaves_nothing_in_memory() {
    let dir = TempDir::new().unwrap();
    let s = open(dir.path(), 1);
    for n in 1..=20 {
        // The first commit fails for want of room; the creation is refused by the second try.
        s.faults().fail(1, Fault::Full);
        let made = opening(id(n.into()), Some(&key(n)), n, s.epoch());
        assert!(matches!(s.write(creation(&made)).await, Err(StoreError::Unavailable(_))));
        assert!(s.by_key(&key_hash_of(&made.0).unwrap()).await.unwrap().is_none());
        let other = opening(id(u64::from(n) + 100), Some(&key(n)), n, s.epoch());
        assert_eq!(s.write(creation(&other)).await.unwrap(), Committed::Done);
        let by_key = s.by_key(&key_hash_of(&made.0).unwrap()).await.unwrap();
        assert!(matches!(by_key, Some(Found::Operation(op)) if op.id == other.0.id));
    }
    drop(s);
    let s = open(dir.path(), 1);
    for n in 1..=20 {
        let made = opening(id(n.into()), Some(&key(n)), n, s.epoch());
        assert_eq!(create(&*s, &made, SlotWrite::Set).await, Committed::KeyTaken);
    }
}

#[tokio::test]
async fn a_ledger_of_the_schema_before_is_taken_over() {
    let dir = TempDir::new().unwrap();
    let s = open(dir.path(), 1000);
    for n in 1..=10 {
        completed(&*s, n, Some(&key(n)), T0).await;
    }
    s.close().await.unwrap();
    sql(dir.path(), contract::INDEXES_OF_SCHEMA_4);
    sql(
        dir.path(),
        "DROP TABLE claim; DROP TABLE allowance; DELETE FROM migration WHERE version >= 5; PRAGMA user_version = 4",
    );
    let s = open(dir.path(), 2);
    assert_eq!(number(dir.path(), "SELECT count(*) FROM op_by_key"), 10);
    assert_eq!(number(dir.path(), "SELECT indexed FROM meta"), 10);
    // A program that knows the schema before asks the index that is gone: it has to refuse.
    assert_eq!(number(dir.path(), "SELECT compatible_from FROM migration WHERE version = 5"), 5);
    completed(&*s, 11, Some(&key(11)), T0).await;
    for n in 1..=11 {
        is_there(&*s, n).await;
    }
}

#[tokio::test]
async fn nothing_is_written_once_another_process_has_begun_an_epoch() {
    let dir = TempDir::new().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let ear = said.clone();
    let on_fatal = Arc::new(move |why| ear.lock().unwrap().push(why));
    let s = SqliteStore::open(config(dir.path(), 10), Arc::new(SystemEnv), on_fatal).unwrap();
    completed(&*s, 1, Some(&key(1)), T0).await;
    sql(dir.path(), "UPDATE meta SET epoch = epoch + 1");
    let next = opening(id(2), Some(&key(2)), 2, s.epoch());
    assert!(matches!(s.write(creation(&next)).await, Err(StoreError::Uncertain(_))));
    assert!(s.close().await.is_err());
    let said = said.lock().unwrap().join("\n");
    assert!(said.contains("another process"), "{said}");
    assert_eq!(number(dir.path(), "SELECT count(*) FROM op"), 1);
}
