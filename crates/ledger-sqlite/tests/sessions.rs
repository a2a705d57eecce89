//! Sessions on a disk: a ledger from before there were any, a full disk, and a failed one.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod contract;

use contract::sessions::session;
use contract::{T0, completed, get, id, is_unavailable};
use counterfoil_ledger_sqlite::faults::Fault;
use counterfoil_ledger_sqlite::{Config, SqliteStore};
use ledger::SystemEnv;
use ledger::store::{SessionChange, Store, StoreError};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

fn open(dir: &Path) -> Arc<SqliteStore> {
    let config = Config { ballast: 0, min_free: 1 << 20, ..Config::new(dir.join("data/ledger.db"), "test") };
    SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|_| {})).unwrap()
}

#[tokio::test]
async fn a_ledger_from_before_sessions_is_lifted() {
    let dir = TempDir::new().unwrap();
    let s = open(dir.path());
    let op = completed(&*s, 1, Some("k"), T0).await;
    s.close().await.unwrap();
    // The first schema is this one without the tables of sessions and what is kept of the clocks, and with its indexes.
    let db = rusqlite::Connection::open(dir.path().join("data/ledger.db")).unwrap();
    db.execute_batch(contract::INDEXES_OF_SCHEMA_4).unwrap();
    db.execute_batch(
        "DROP TABLE claim; DROP TABLE allowance; DROP TABLE handle; DROP TABLE shelf; DROP TABLE migration; DROP TABLE session; DROP TABLE session_uri; ALTER TABLE meta DROP COLUMN boot; ALTER TABLE meta DROP COLUMN elapsed;
         ALTER TABLE meta DROP COLUMN skew; ALTER TABLE meta DROP COLUMN gaps; PRAGMA user_version = 1",
    )
    .unwrap();
    drop(db);

    let s = open(dir.path());
    assert_eq!(s.stats().schema, 6);
    assert_eq!(get(&*s, id(1)).await, op, "what was there is as it was");
    s.open_session(session("a", "alice", T0)).await.unwrap();
    s.close().await.unwrap();
    let db = rusqlite::Connection::open(dir.path().join("data/ledger.db")).unwrap();
    let version: u32 = db.pragma_query_value(None, "user_version", |r| r.get(0)).unwrap();
    assert_eq!(version, 6);
}

#[tokio::test]
async fn a_full_disk_opens_no_session_and_lets_one_go_on() {
    let dir = TempDir::new().unwrap();
    let s = open(dir.path());
    s.open_session(session("a", "alice", T0)).await.unwrap();
    s.pretend_free(Some(0));
    let refused = s.open_session(session("b", "alice", T0)).await;
    assert!(is_unavailable(&refused), "{refused:?}");
    assert!(s.change_session("a", SessionChange::Used).await.unwrap().is_some());
    // The shelf takes nothing either; what is there is read.
    let refused = s.shelve("ring", 0, vec![1], None).await;
    assert!(is_unavailable(&refused), "{refused:?}");
    assert_eq!(s.shelved("ring").await.unwrap(), None);
    s.pretend_free(Some(1 << 40));
    assert!(s.shelve("ring", 0, vec![1], None).await.unwrap());
    // The commit itself finds the disk full.
    s.faults().fail(1, Fault::Full);
    let refused = s.open_session(session("b", "alice", T0)).await;
    assert!(is_unavailable(&refused), "{refused:?}");
    assert_eq!(s.session("b").await.unwrap(), None);
    assert!(s.end_session("a").await.unwrap(), "ending one makes room");
    s.open_session(session("b", "alice", T0)).await.unwrap();
}

#[tokio::test]
async fn a_failed_disk_is_not_said_to_have_kept_anything() {
    let dir = TempDir::new().unwrap();
    let s = open(dir.path());
    s.open_session(session("a", "alice", T0)).await.unwrap();
    s.faults().fail(1, Fault::Io);
    let unsure = s.change_session("a", SessionChange::LogLevel("debug".into())).await;
    assert!(matches!(unsure, Err(StoreError::Uncertain(_))), "{unsure:?}");
    assert!(is_unavailable(&s.session("a").await), "nothing is read after it");
    assert!(is_unavailable(&s.end_session("a").await));
    assert!(is_unavailable(&s.prune_sessions(T0, 1).await));
}

#[tokio::test]
async fn a_change_that_changes_nothing_is_not_written() {
    let dir = TempDir::new().unwrap();
    let s = open(dir.path());
    s.open_session(session("a", "alice", T0)).await.unwrap();
    s.change_session("a", SessionChange::Subscribe("note://1".into())).await.unwrap();
    let before = s.stats().commits;
    s.change_session("a", SessionChange::Subscribe("note://1".into())).await.unwrap();
    s.change_session("a", SessionChange::Unsubscribe("note://2".into())).await.unwrap();
    s.change_session("b", SessionChange::Used).await.unwrap();
    s.end_session("b").await.unwrap();
    s.prune_sessions(T0, 10).await.unwrap();
    assert_eq!(s.stats().commits, before);
}
