//! What only a store on a disk can be asked: reopening, locking, faults, time, permissions.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod contract;

use contract::{T0, WEEK, close, completed, create, get, id, is_unavailable, opening, received, step};
use counterfoil_ledger_sqlite::faults::Fault;
use counterfoil_ledger_sqlite::{Clock, Config, OpenError, SqliteStore};
use ledger::store::{BlobKind, Committed, Query, SlotWrite, Store, StoreError, Write, slot_hash_of};
use ledger::words::{Epoch, Millis, Time};
use ledger::{DeliveryState, Event, SystemEnv};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

fn config(dir: &Path) -> Config {
    Config { ballast: 1 << 20, min_free: 0, ..Config::new(dir.join("data/ledger.db"), "test") }
}

fn database(dir: &Path) -> PathBuf {
    dir.join("data/ledger.db")
}

fn open(config: Config) -> Result<Arc<SqliteStore>, OpenError> {
    SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}")))
}

/// A store whose fatal messages are kept.
fn fragile(dir: &Path) -> (Arc<SqliteStore>, Arc<Mutex<Vec<String>>>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let ear = said.clone();
    let on_fatal = Arc::new(move |why| ear.lock().unwrap().push(why));
    (SqliteStore::open(config(dir), Arc::new(SystemEnv), on_fatal).unwrap(), said)
}

#[tokio::test]
async fn everything_is_there_after_reopening_under_a_new_epoch() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    assert_eq!(s.epoch(), Epoch(1));
    let secret = s.identity().secret.0;
    let done = completed(&*s, 1, Some("k"), T0).await;
    let made = opening(id(2), None, 2, s.epoch());
    create(&*s, &made, SlotWrite::Set).await;
    let (_, w) = step(&done, Event::Deliver(DeliveryState::Written), T0, 3).unwrap();
    s.write_lazily(w);
    let counts = {
        s.flush().await.unwrap();
        s.counts().await.unwrap()
    };
    s.close().await.unwrap();
    s.close().await.unwrap();
    assert!(is_unavailable(&s.by_id(id(1)).await) && is_unavailable(&s.flush().await));

    let s = open(Config { ledger_name: "another".into(), ..config(dir.path()) }).unwrap();
    assert_eq!((s.epoch(), s.is_live(Epoch(1)), s.is_live(Epoch(2))), (Epoch(2), false, true));
    assert_eq!(
        (s.identity().name.as_str(), s.identity().secret.0),
        ("test", secret),
        "an identity is for life"
    );
    assert_eq!(get(&*s, id(1)).await.delivery.state, DeliveryState::Written);
    assert_eq!(s.counts().await.unwrap(), counts);
    assert_eq!(s.blob(id(1), BlobKind::Result).await.unwrap().unwrap(), b"result");
    assert_eq!(s.by_slot(&slot_hash_of(&made.0)).await.unwrap().unwrap(), made.0);
    let orphans = s.orphans(None, 10).await.unwrap();
    assert_eq!(orphans, [made.0], "the last boot's open operation waits for nobody");
    // Dropping without closing keeps everything too.
    let (_, w) = step(&orphans[0], Event::CallerGone, T0, 3).unwrap();
    s.write_lazily(w);
    drop(s);
    let s = open(config(dir.path())).unwrap();
    assert_eq!((s.epoch(), get(&*s, id(2)).await.version), (Epoch(3), 2));
}

#[tokio::test]
async fn a_second_opener_is_told_who_has_it() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    let error = open(config(dir.path())).err().unwrap();
    assert!(matches!(error, OpenError::Locked { holder: Some(pid) } if pid == std::process::id()), "{error}");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    create(&*s, &opening(id(1), None, 1, s.epoch()), SlotWrite::Set).await;
    s.close().await.unwrap();
    open(config(dir.path())).unwrap();
}

#[tokio::test]
async fn files_are_for_this_user_only() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    create(&*s, &opening(id(1), None, 1, s.epoch()), SlotWrite::Set).await;
    let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.path().join("data")), 0o700);
    for file in ["ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.lock", "ledger.ballast"] {
        assert_eq!(mode(&dir.path().join("data").join(file)), 0o600, "{file}");
    }
    s.close().await.unwrap();
    std::fs::set_permissions(database(dir.path()), std::fs::Permissions::from_mode(0o644)).unwrap();
    let _s = open(config(dir.path())).unwrap();
    assert_eq!(mode(&database(dir.path())), 0o600);
}

#[tokio::test]
async fn foreign_and_newer_files_are_left_alone() {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let path = database(dir.path());
    std::fs::write(&path, b"this is a text of more than one hundred bytes, to be sure that it is long enough to be looked at as a header of a database").unwrap();
    assert!(matches!(open(config(dir.path())), Err(OpenError::NotALedger)));
    std::fs::remove_file(&path).unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE mine (a)").unwrap();
    drop(db);
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(open(config(dir.path())), Err(OpenError::NotALedger)));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    std::fs::remove_file(&path).unwrap();
    open(config(dir.path())).unwrap().close().await.unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let error = open(config(dir.path())).err().unwrap();
    assert!(matches!(error, OpenError::Newer { found: 99, needed: 99, .. }), "{error}");
}

#[tokio::test]
async fn a_newer_file_is_used_only_if_it_says_so() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    completed(&*s, 1, Some("k"), T0).await;
    let known = s.stats().schema;
    s.close().await.unwrap();
    let sql = |sql: &str| {
        rusqlite::Connection::open(database(dir.path())).unwrap().execute_batch(sql).unwrap();
    };
    // A newer program was here, that only added something.
    sql(&format!(
        "CREATE TABLE newer (a); ALTER TABLE op ADD COLUMN newer TEXT; PRAGMA user_version = {0};
         INSERT INTO migration VALUES ({0}, {known})",
        known + 1
    ));
    let s = open(config(dir.path())).unwrap();
    completed(&*s, 2, Some("l"), T0).await;
    assert_eq!(s.counts().await.unwrap().execution.get("completed"), Some(&2));
    s.close().await.unwrap();
    // One step more, that doesn't speak of it: for all that is known it changed everything.
    sql(&format!("PRAGMA user_version = {}", known + 2));
    let error = open(config(dir.path())).err().unwrap();
    assert!(matches!(error, OpenError::Newer { needed, .. } if needed == known + 2), "{error}");
    // And one that says what it needs.
    sql(&format!("INSERT INTO migration VALUES ({0}, {0})", known + 2));
    let error = open(config(dir.path())).err().unwrap();
    assert!(
        matches!(error, OpenError::Newer { found, needed, known: k } if (found, needed, k) == (known + 2, known + 2, known)),
        "{error}"
    );
    assert!(error.to_string().contains("Use the newer program"), "{error}");
}

#[tokio::test]
async fn what_a_newer_program_wrote_is_kept_or_left_alone() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    let op = completed(&*s, 1, Some("k"), T0).await;
    completed(&*s, 2, Some("l"), T0).await;
    s.close().await.unwrap();
    let sql = |sql: &str| {
        rusqlite::Connection::open(database(dir.path())).unwrap().execute_batch(sql).unwrap();
    };
    sql("UPDATE op SET record = json_set(record, '$.later', json('{\"a\":[1,\"x\"]}'));
         UPDATE op SET record = json_set(record, '$.form', 99) WHERE seq = 2");
    let before: String = rusqlite::Connection::open(database(dir.path()))
        .unwrap()
        .query_row("SELECT record FROM op WHERE seq = 2", [], |r| r.get(0))
        .unwrap();
    let s = open(config(dir.path())).unwrap();
    let (_, w) = step(&get(&*s, op.id).await, Event::Deliver(DeliveryState::Written), T0, 9).unwrap();
    assert_eq!(s.write(w).await.unwrap(), Committed::Done);
    let kept: String = rusqlite::Connection::open(database(dir.path()))
        .unwrap()
        .query_row(
            "SELECT json_extract(record, '$.later') FROM op WHERE seq = 1 AND record LIKE '%written%'",
            [],
            |r| r.get(0),
        )
        .unwrap();
    assert_eq!(kept, r#"{"a":[1,"x"]}"#, "a field that it doesn't know survives its writes");
    let left = s.by_id(id(2)).await;
    assert!(matches!(&left, Err(StoreError::Unavailable(why)) if why.contains("newer version")), "{left:?}");
    assert!(s.due(T0.plus(Millis(1 << 40)), 10).await.unwrap().is_empty());
    assert_eq!(s.prune(T0.plus(Millis(1 << 40)), Millis(0), 10).await.unwrap(), 1, "only what it knows");
    s.close().await.unwrap();
    let db = rusqlite::Connection::open(database(dir.path())).unwrap();
    let after: String = db.query_row("SELECT record FROM op WHERE seq = 2", [], |r| r.get(0)).unwrap();
    assert_eq!(after, before, "what it doesn't know it doesn't touch");
}

#[tokio::test]
async fn an_interrupted_creation_is_begun_again() {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    rusqlite::Connection::open(database(dir.path()))
        .unwrap()
        .query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
        .unwrap();
    let s = open(config(dir.path())).unwrap();
    assert_eq!(s.epoch(), Epoch(1));
}

#[tokio::test]
async fn a_failed_sync_stops_everything() {
    let dir = TempDir::new().unwrap();
    let (s, said) = fragile(dir.path());
    completed(&*s, 1, None, T0).await;
    s.faults().fail(1, Fault::Io);
    let write = |n: u64| {
        let (op, blobs) = opening(id(n), None, u32::try_from(n).unwrap(), s.epoch());
        s.write(Write::Create { operation: Box::new(op), slot: SlotWrite::Set, blobs })
    };
    let (a, b) = tokio::join!(write(2), write(3));
    for r in [a, b] {
        assert!(matches!(r, Err(StoreError::Uncertain(_) | StoreError::Unavailable(_))), "{r:?}");
    }
    assert!(is_unavailable(&write(4).await));
    assert!(is_unavailable(&s.by_id(id(1)).await), "reads are no better than writes now");
    assert!(is_unavailable(&s.flush().await) && is_unavailable(&s.counts().await));
    assert!(is_unavailable(&s.close().await));
    let said = said.lock().unwrap().clone();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(!said[0].contains("ledger.db"), "{said:?}");
    let s = open(config(dir.path())).unwrap();
    get(&*s, id(1)).await;
    assert!(s.by_id(id(2)).await.unwrap().is_none() && s.by_id(id(4)).await.unwrap().is_none());
}

#[tokio::test]
async fn an_uncertain_commit_may_have_been_made() {
    let dir = TempDir::new().unwrap();
    let (s, _) = fragile(dir.path());
    s.faults().fail(1, Fault::IoAfterCommit);
    let (op, blobs) = opening(id(1), None, 1, s.epoch());
    let write = Write::Create { operation: Box::new(op.clone()), slot: SlotWrite::Set, blobs };
    assert!(matches!(s.write(write.clone()).await, Err(StoreError::Uncertain(_))));
    drop(s);
    let s = open(config(dir.path())).unwrap();
    assert_eq!(get(&*s, id(1)).await, op);
    assert_eq!(s.write(write).await.unwrap(), Committed::Done, "its repetition is recognised");
}

#[tokio::test]
async fn a_writer_that_breaks_leaves_nobody_waiting() {
    let dir = TempDir::new().unwrap();
    let (s, said) = fragile(dir.path());
    s.faults().fail(1, Fault::Panic);
    let (op, blobs) = opening(id(1), None, 1, s.epoch());
    let write = Write::Create { operation: Box::new(op), slot: SlotWrite::Set, blobs };
    assert!(matches!(s.write(write.clone()).await, Err(StoreError::Uncertain(_))));
    assert!(s.close().await.is_err() && is_unavailable(&s.write(write).await));
    assert_eq!(said.lock().unwrap().len(), 1);
    drop(s);
    assert!(open(config(dir.path())).unwrap().by_id(id(1)).await.unwrap().is_none());
}

#[tokio::test]
async fn an_idle_writer_copies_its_log_into_the_database() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    for n in 1..=100 {
        completed(&*s, n, None, T0).await;
    }
    let copy = dir.path().join("copy.db");
    for _ in 0..100 {
        // The database file alone, without its log.
        std::fs::copy(database(dir.path()), &copy).unwrap();
        let db = rusqlite::Connection::open(&copy).unwrap();
        let n: i64 = db.query_row("SELECT count(*) FROM op WHERE version = 3", [], |r| r.get(0)).unwrap_or(0);
        if n == 100 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the log was never copied");
}

#[tokio::test]
async fn a_full_disk_refuses_new_operations_and_lets_receipts_land() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    let ballast = dir.path().join("data/ledger.ballast");
    let made = opening(id(1), None, 1, s.epoch());
    create(&*s, &made, SlotWrite::Set).await;
    assert_eq!(std::fs::metadata(&ballast).unwrap().len(), 1 << 20);

    s.faults().fail(1, Fault::Full);
    s.pretend_free(Some(0));
    let (v2, receipt) = step(&made.0, received(&made.0), T0, 1).unwrap();
    assert_eq!(s.write(receipt).await.unwrap(), Committed::Done, "the ballast makes room");
    assert!(!ballast.exists());

    // The room that the ballast left is not for new operations.
    s.pretend_free(Some(1 << 19));
    let (op, blobs) = opening(id(2), None, 2, s.epoch());
    let new = Write::Create { operation: Box::new(op), slot: SlotWrite::Set, blobs };
    assert!(s.stats().disk_low);
    assert!(is_unavailable(&s.write(new.clone()).await));
    assert_eq!(create(&*s, &made, SlotWrite::Set).await, Committed::Done, "one that is there is no new one");

    // Still full on the last try: nothing was written, and everything goes on.
    s.faults().fail(1, Fault::Full);
    s.faults().fail(2, Fault::Full);
    s.faults().fail(3, Fault::Full);
    let (v3, result) = step(&v2, close(&v2, false), T0, 2).unwrap();
    assert!(is_unavailable(&s.write(result.clone()).await));
    assert_eq!(get(&*s, id(1)).await, v2);
    assert_eq!(s.write(result).await.unwrap(), Committed::Done);

    // A creation in a batch that hits the full disk is refused, an update beside it is not.
    s.pretend_free(Some(1 << 40));
    s.faults().fail(1, Fault::Full);
    assert!(is_unavailable(&s.write(new.clone()).await));
    assert_eq!(get(&*s, id(1)).await, v3);
    assert_eq!(s.write(new).await.unwrap(), Committed::Done);
    for _ in 0..200 {
        if ballast.exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(ballast.exists(), "the ballast is taken again when there is room");
}

#[tokio::test]
async fn a_flush_tells_of_lazy_writes_that_were_dropped() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    let op = completed(&*s, 1, None, T0).await;
    s.faults().fail(1, Fault::Full);
    s.faults().fail(2, Fault::Full);
    s.faults().fail(3, Fault::Full);
    let (_, w) = step(&op, Event::Deliver(DeliveryState::Written), T0, 3).unwrap();
    s.write_lazily(w.clone());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(is_unavailable(&s.flush().await));
    s.write_lazily(w);
    s.flush().await.unwrap();
    assert_eq!(get(&*s, id(1)).await.delivery.state, DeliveryState::Written);
}

#[tokio::test]
async fn a_foreign_writer_holds_nothing_up_for_ever() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    completed(&*s, 1, None, T0).await;
    let other = rusqlite::Connection::open(database(dir.path())).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (op, blobs) = opening(id(2), None, 2, s.epoch());
    let new = Write::Create { operation: Box::new(op), slot: SlotWrite::Set, blobs };
    let begun = std::time::Instant::now();
    assert!(is_unavailable(&s.write(new.clone()).await));
    assert!(begun.elapsed() < Duration::from_secs(20));
    get(&*s, id(1)).await;
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(s.write(new).await.unwrap(), Committed::Done);
}

#[tokio::test]
async fn one_damaged_record_spoils_no_other() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    for n in 1..=3 {
        create(&*s, &opening(id(n), None, u32::try_from(n).unwrap(), Epoch(9)), SlotWrite::Set).await;
    }
    let db = rusqlite::Connection::open(database(dir.path())).unwrap();
    db.execute("UPDATE op SET record = 'nonsense' WHERE seq = 1", []).unwrap();
    // A record that was swapped for another is damaged too.
    db.execute("UPDATE op SET record = (SELECT record FROM op WHERE seq = 3) WHERE seq = 2", []).unwrap();
    for n in [1, 2] {
        let r = s.by_id(id(n)).await;
        assert!(matches!(&r, Err(StoreError::Damaged(what)) if *what == id(n).to_string()), "{r:?}");
    }
    let far = T0.plus(Millis(WEEK));
    assert_eq!(s.due(far, 1).await.unwrap().len(), 1);
    assert_eq!(s.orphans(None, 1).await.unwrap()[0].id, id(3));
    assert_eq!(s.list(&Query { limit: 9, ..Query::default() }).await.unwrap().len(), 1);
    let op = get(&*s, id(3)).await;
    let (_, w) = step(&op, Event::CallerGone, T0, 1).unwrap();
    s.write(w).await.unwrap();
    let op = get(&*s, id(3)).await;
    assert_eq!(
        s.next_attention().await.unwrap(),
        op.attention(Millis(0), Millis(0)),
        "what can't be read is not waited for"
    );
}

#[tokio::test]
async fn oversized_payloads_are_refused_alone() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    let (op, mut blobs) = opening(id(1), None, 1, s.epoch());
    blobs[0].data = vec![0; counterfoil_ledger_sqlite::MAX_PAYLOAD + 1];
    assert!(is_unavailable(
        &s.write(Write::Create { operation: Box::new(op), slot: SlotWrite::Set, blobs }).await
    ));
    completed(&*s, 2, None, T0).await;
}

#[tokio::test]
async fn figures_say_what_was_done() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    completed(&*s, 1, None, T0).await;
    let f = s.stats();
    assert_eq!((f.commits, f.writes, f.schema, f.disk_low), (3, 3, 6, false));
    assert!(f.bytes > 4096 && f.free_bytes > 0 && f.commit_us >= f.commit_max_us);
    assert!(f.commit_buckets.is_sorted() && f.commit_buckets.len() == 11);
    assert!(f.commit_buckets.iter().all(|(_, n)| *n <= 3));
}

#[tokio::test]
async fn many_callers_share_commits_and_pruning_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let s = open(config(dir.path())).unwrap();
    let tasks: Vec<_> = (0..32_u64)
        .map(|t| {
            let s = s.clone();
            tokio::spawn(async move {
                for i in 0..20 {
                    let n = u32::try_from(t * 1000 + i).unwrap();
                    completed(&*s, n, Some(&format!("k{n}")), T0).await;
                }
            })
        })
        .collect();
    for t in tasks {
        t.await.unwrap();
    }
    let f = s.stats();
    assert_eq!(f.writes, 32 * 20 * 3);
    assert!(f.commits < f.writes / 2, "{} commits for {} writes", f.commits, f.writes);
    assert_eq!(s.counts().await.unwrap().execution["completed"], 640);
    assert_eq!(s.prune(T0.plus(Millis(WEEK + 1)), Millis(0), 300).await.unwrap(), 300);
    assert_eq!(s.prune(T0.plus(Millis(WEEK + 1)), Millis(0), usize::MAX).await.unwrap(), 340);
    let db = rusqlite::Connection::open(database(dir.path())).unwrap();
    for table in ["op", "op_blob", "op_by_key", "slot", "tombstone"] {
        let n: i64 = db.query_row(&format!("SELECT count(*) FROM {table}"), [], |r| r.get(0)).unwrap();
        assert_eq!(n, 0, "{table}");
    }
    let sound: String = db.query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[derive(Default)]
struct Hands {
    wall: AtomicI64,
    elapsed: AtomicI64,
    boot: Option<&'static str>,
}

impl Clock for Hands {
    fn wall(&self) -> i64 {
        self.wall.load(Ordering::Relaxed)
    }
    fn elapsed(&self) -> i64 {
        self.elapsed.load(Ordering::Relaxed)
    }
    fn boot(&self) -> Option<String> {
        self.boot.map(Into::into)
    }
}

fn timed(dir: &Path, wall: i64) -> (Arc<SqliteStore>, Arc<Hands>) {
    on_machine(dir, None, wall, 500)
}

/// Opens it on a machine that has been up for so long since that boot.
fn on_machine(
    dir: &Path,
    boot: Option<&'static str>,
    wall: i64,
    elapsed: i64,
) -> (Arc<SqliteStore>, Arc<Hands>) {
    let hands = Arc::new(Hands { wall: wall.into(), elapsed: elapsed.into(), boot });
    (open(Config { clock: Some(hands.clone()), ..config(dir) }).unwrap(), hands)
}

/// When a minute that began at T0 is over for what has to have really passed.
fn minute(s: &SqliteStore) -> Time {
    s.gaps().end_of(T0, Millis(60_000))
}

#[tokio::test]
async fn time_never_goes_back_and_steps_are_remembered() {
    let dir = TempDir::new().unwrap();
    let (s, hands) = timed(dir.path(), T0.0);
    assert_eq!((s.now(), s.clock_step()), (T0, None));
    hands.elapsed.fetch_add(5000, Ordering::Relaxed);
    assert_eq!(s.now(), T0.plus(Millis(5000)), "the clock that can't be set drives the time");
    create(&*s, &opening(id(1), None, 1, s.epoch()), SlotWrite::Set).await;
    drop(s);

    // Slightly behind: the mark holds, nothing is suspected.
    let (s, _) = timed(dir.path(), T0.0 - 50_000);
    assert_eq!((s.now(), s.clock_step()), (T0.plus(Millis(5000)), None));
    drop(s);
    // Far behind: a step, at the mark; it survives the next start.
    let (s, _) = timed(dir.path(), T0.0 - 3_600_000);
    assert_eq!((s.now(), s.clock_step()), (T0.plus(Millis(5000)), Some(T0.plus(Millis(5000)))));
    drop(s);
    let (s, _) = timed(dir.path(), T0.0 + 10_000_000);
    assert_eq!((s.now(), s.clock_step()), (Time(T0.0 + 10_000_000), Some(T0.plus(Millis(5000)))));
}

#[tokio::test]
async fn a_clock_that_was_set_ahead_while_nothing_ran_makes_no_wait_shorter() {
    let dir = TempDir::new().unwrap();
    let (s, hands) = timed(dir.path(), T0.0);
    hands.elapsed.fetch_add(20_000, Ordering::Relaxed);
    create(&*s, &opening(id(1), None, 1, s.epoch()), SlotWrite::Set).await;
    drop(s);
    // A day later, or so it says. 20 s of the minute are known to have passed.
    let day = T0.0 + 86_400_000;
    let (s, hands) = timed(dir.path(), day);
    assert_eq!((s.now(), s.clock_step(), minute(&s)), (Time(day), None, Time(day + 40_000)));
    hands.elapsed.fetch_add(10_000, Ordering::Relaxed);
    create(&*s, &opening(id(2), None, 1, s.epoch()), SlotWrite::Set).await;
    drop(s);
    // It is known over further starts, each of which adds its own.
    let (s, _) = timed(dir.path(), day + 11_000);
    assert_eq!(minute(&s), Time(day + 41_000));
    drop(s);
    let (s, _) = timed(dir.path(), day + 86_400_000);
    assert_eq!(minute(&s), Time(day + 86_400_000 + 30_000));
}

#[tokio::test]
async fn a_machine_that_stayed_up_knows_how_long_nothing_ran() {
    const HOUR: i64 = 3_600_000;
    let up = 1_000_000;
    let begun = |dir: &Path| on_machine(dir, Some("a"), T0.0, up).0;
    // Both clocks agree: all of it is known to have passed.
    let dir = TempDir::new().unwrap();
    drop(begun(dir.path()));
    let (s, _) = on_machine(dir.path(), Some("a"), T0.0 + HOUR + 900, up + HOUR);
    assert_eq!((s.now(), s.clock_step(), minute(&s)), (T0.plus(Millis(HOUR)), None, T0.plus(Millis(60_000))));
    drop(s);
    // Set ahead, set back, or set back less than the time that passed: a step, and nothing counts as watched.
    for wall in [HOUR, -HOUR, -HOUR / 2] {
        let dir = TempDir::new().unwrap();
        drop(begun(dir.path()));
        let (s, _) = on_machine(dir.path(), Some("a"), T0.0 + HOUR + wall, up + HOUR);
        let now = T0.plus(Millis((HOUR + wall).max(0)));
        assert_eq!((s.now(), s.clock_step()), (now, Some(now)), "{wall}");
        assert_eq!(minute(&s), now.plus(Millis(60_000)), "{wall}");
        drop(s);
        // That was noticed, and is not noticed again.
        let (s, _) = on_machine(dir.path(), Some("a"), T0.0 + 2 * HOUR + wall, up + 2 * HOUR);
        assert_eq!((s.now(), s.clock_step()), (now.plus(Millis(HOUR)), Some(now)), "{wall}");
    }
    // Another start of the machine: only the wall clock is left. The same one with less time since than was seen before:
    // it was set back to an earlier state of itself, and how long ago that was, its wall clock may not know.
    let set_back = Some(T0.plus(Millis(HOUR)));
    for (boot, elapsed, step) in [("b", up + HOUR, None), ("a", up - 1, set_back)] {
        let dir = TempDir::new().unwrap();
        drop(begun(dir.path()));
        let (s, _) = on_machine(dir.path(), Some(boot), T0.0 + HOUR, elapsed);
        let now = T0.plus(Millis(HOUR));
        assert_eq!((s.now(), s.clock_step(), minute(&s)), (now, step, now.plus(Millis(60_000))), "{boot}");
    }
}

#[tokio::test]
async fn a_start_follows_a_wall_clock_that_was_set_while_it_ran() {
    let dir = TempDir::new().unwrap();
    let (s, hands) = on_machine(dir.path(), Some("a"), T0.0, 1000);
    hands.wall.fetch_add(3_600_000, Ordering::Relaxed);
    for _ in 0..400 {
        if s.clock_step().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(s);
    let (s, _) = on_machine(dir.path(), Some("a"), T0.0 + 3_605_000, 6000);
    // Five seconds passed; the hour did not.
    assert_eq!((s.now(), s.clock_step()), (T0.plus(Millis(3_605_000)), Some(T0)));
    assert_eq!(minute(&s), T0.plus(Millis(3_660_000)));
}

#[tokio::test]
async fn a_step_of_the_clock_while_running_is_noticed() {
    for by in [-3_600_000, 3_600_000] {
        let dir = TempDir::new().unwrap();
        let (s, hands) = timed(dir.path(), T0.0);
        hands.wall.fetch_add(by, Ordering::Relaxed);
        for _ in 0..400 {
            if s.clock_step().is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((s.clock_step(), s.now()), (Some(T0), T0), "noticed, not followed");
        drop(s);
        let (s, _) = timed(dir.path(), T0.0);
        assert_eq!(s.clock_step(), Some(T0), "and durable");
    }
}

#[tokio::test]
async fn a_restored_ledger_opens_nothing_until_it_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("data/ledger.db");
    let open = |restored: bool| {
        let config = Config { restored, ..config(dir.path()) };
        SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|_| {})).unwrap()
    };
    let store = open(false);
    assert!(!store.is_held());
    store.close().await.unwrap();
    drop(store);
    let backup = std::fs::read(&db).unwrap();
    // Two more starts, then the older file is put back: its epoch is behind what the directory knows.
    for _ in 0..2 {
        let store = open(false);
        assert!(!store.is_held());
        store.close().await.unwrap();
    }
    std::fs::write(&db, backup).unwrap();
    let store = open(false);
    assert!(store.is_held());
    store.close().await.unwrap();
    drop(store);
    // A restart does not release it; a person does, once and for good.
    let store = open(false);
    assert!(store.is_held());
    store.release().await.unwrap();
    assert!(!store.is_held());
    store.close().await.unwrap();
    drop(store);
    let store = open(false);
    assert!(!store.is_held());
    store.close().await.unwrap();
    drop(store);
    // A whole directory that was put back can't be told; the operator says so.
    assert!(open(true).is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_is_copied_beside_the_commits_and_begins_anew() {
    let dir = TempDir::new().unwrap();
    let s = open(Config { log_pages: 32, ..config(dir.path()) }).unwrap();
    let log = dir.path().join("data/ledger.db-wal");
    let (mut written, mut largest) = (0, 0);
    for round in 0..40_u32 {
        let tasks = (0..8).map(|n| {
            let s = s.clone();
            tokio::spawn(async move { completed(&*s, 1 + round * 8 + n, None, T0).await })
        });
        for t in tasks.collect::<Vec<_>>() {
            t.await.unwrap();
        }
        written += 8;
        largest = largest.max(std::fs::metadata(&log).unwrap().len());
    }
    // Each of them dirties several pages, in each of several commits.
    assert!(written == 320 && largest < 2 << 20, "the log grew to {largest} bytes");
    assert!(std::fs::metadata(database(dir.path())).unwrap().len() > 320 * 1024, "nothing was copied");
    for n in 1..=320_u64 {
        assert_eq!(get(&*s, id(n)).await.execution.word(), "completed");
    }
    drop(s);
    let s = open(config(dir.path())).unwrap();
    for n in 1..=320_u64 {
        assert_eq!(s.blob(id(n), BlobKind::Result).await.unwrap().unwrap(), b"result");
    }
}
