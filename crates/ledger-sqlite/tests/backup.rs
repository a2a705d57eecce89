//! A copy of a ledger that is in use: what is in it, who may read it, and that it holds new operations wherever it is
//! opened, once.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod contract;

use contract::{T0, completed, get, id};
use counterfoil_ledger_sqlite::{BackupError, Config, SqliteStore};
use ledger::SystemEnv;
use ledger::store::Store;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

fn open(dir: &Path) -> Arc<SqliteStore> {
    let config = Config { ballast: 0, min_free: 0, ..Config::new(dir.join("ledger.db"), "test") };
    SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).unwrap()
}

/// What lies in a directory.
fn files(dir: &Path) -> Vec<String> {
    let all = std::fs::read_dir(dir).unwrap();
    let mut all: Vec<String> = all.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_the_ledger_at_one_moment_and_waits() {
    let (home, away, out) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let s = open(home.path());
    let known = completed(&*s, 1, Some("k"), T0).await;
    let to = out.path().join("copy.db");
    let done = s.backup(to.clone()).await.unwrap();
    completed(&*s, 2, None, T0).await;
    let meta = std::fs::metadata(&to).unwrap();
    assert_eq!((meta.len(), meta.permissions().mode() & 0o777), (done.bytes, 0o600));
    assert_eq!(files(out.path()), ["copy.db"]);
    // Nothing is overwritten, not even by what a broken link would lead to.
    assert!(matches!(s.backup(to.clone()).await, Err(BackupError::Exists)));
    let link = out.path().join("link.db");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    assert!(matches!(s.backup(link).await, Err(BackupError::Exists)));
    let nowhere = s.backup(out.path().join("no/copy.db")).await;
    assert!(matches!(nowhere, Err(BackupError::File(_))), "{nowhere:?}");
    assert_eq!(files(out.path()), ["copy.db", "link.db"]);
    let name = s.identity().secret.0;
    s.close().await.unwrap();
    assert!(matches!(s.backup(out.path().join("late.db")).await, Err(BackupError::Database(_))));
    // The original is no copy.
    let s = open(home.path());
    assert!(!s.is_held());
    s.close().await.unwrap();

    std::fs::copy(&to, away.path().join("ledger.db")).unwrap();
    let s = open(away.path());
    assert!(s.is_held());
    assert_eq!(s.identity().secret.0, name);
    assert_eq!(get(&*s, id(1)).await.version, known.version);
    assert!(s.by_id(id(2)).await.unwrap().is_none(), "it is younger than the copy");
    s.close().await.unwrap();
    let s = open(away.path());
    assert!(s.is_held(), "over a restart too");
    s.release().await.unwrap();
    // A copy of a copy is one.
    let again = out.path().join("again.db");
    s.backup(again.clone()).await.unwrap();
    s.close().await.unwrap();
    let s = open(away.path());
    assert!(!s.is_held(), "released is released");
    s.close().await.unwrap();
    let third = TempDir::new().unwrap();
    std::fs::copy(&again, third.path().join("ledger.db")).unwrap();
    assert!(open(third.path()).is_held());
}
