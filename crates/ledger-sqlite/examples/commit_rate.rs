//! How many operations a second the store opens and closes: two durable writes each, by 1, 16 and 64 callers,
//! each waiting for its answer before the next write. Beside it the floor: the same statements with the same values,
//! bound and made ready before, in a bare loop on one connection in transactions of as many writes as the store had in
//! its own. That is what SQLite and the disk can do here without callers, hand-over, answers or bookkeeping.
//!
//! `cargo run --release -p counterfoil-ledger-sqlite --example commit_rate -- [--callers N] [--operations N] [--pairs N]
//! [--dir DIRECTORY] [--json]`
//!
//! Both sides take the same number of prepared operations; the pairs are taken one right after the other, each on a new
//! database, and the middle one of their ratios counts. Only figures of an optimised build on an idle machine and the
//! real disk mean anything.

#![allow(clippy::unwrap_used)]

mod operations;

use counterfoil_ledger_sqlite::{Config, SqliteStore};
use ledger::SystemEnv;
use ledger::store::{Blob, BlobKind, Committed, Store, Write};
use operations::{Writes, operation};
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Opens a store; its time and epoch are those of what is written into it.
fn store(path: &Path) -> Arc<SqliteStore> {
    let config = Config { ballast: 0, ..Config::new(path, "bench") };
    SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).unwrap()
}

/// Operations a second, and writes in a transaction.
async fn through_the_store(path: &Path, callers: usize, operations: usize) -> (f64, f64) {
    let store = store(path);
    let each = operations.div_ceil(callers);
    let (epoch, now) = (store.epoch(), store.now());
    let work: Vec<Vec<_>> =
        (0..callers).map(|_| (0..each).map(|_| operation(epoch, now)).collect()).collect();
    let begun = Instant::now();
    let tasks: Vec<_> = work
        .into_iter()
        .map(|mine| {
            let store = store.clone();
            tokio::spawn(async move {
                for Writes { create, close, .. } in mine {
                    assert_eq!(store.write(create).await.unwrap(), Committed::Done);
                    assert_eq!(store.write(close).await.unwrap(), Committed::Done);
                }
            })
        })
        .collect();
    for t in tasks {
        t.await.unwrap();
    }
    let took = begun.elapsed().as_secs_f64();
    let figures = store.stats();
    store.close().await.unwrap();
    ((each * callers) as f64 / took, figures.writes as f64 / figures.commits as f64)
}

/// What is bound in the statements of one write.
struct Row {
    id: [u8; 16],
    key: [u8; 16],
    slot: [u8; 16],
    principal: String,
    tool: String,
    deadline: i64,
    version: i64,
    record: String,
    blobs: Vec<Blob>,
}

impl Row {
    fn of(write: Write) -> Row {
        let (Write::Create { operation: op, blobs, .. } | Write::Update { operation: op, blobs, .. }) = write;
        Row {
            id: op.id.0.to_be_bytes(),
            key: ledger::store::key_hash_of(&op).unwrap().0,
            slot: ledger::store::slot_hash_of(&op).0,
            principal: op.scope.principal.to_string(),
            tool: op.scope.tool.to_string(),
            deadline: op.deadline.0,
            version: i64::try_from(op.version).unwrap(),
            record: serde_json::to_string(&op).unwrap(),
            blobs,
        }
    }
}

fn there(db: &Connection, sql: &str, key: &[u8; 16]) -> bool {
    db.prepare_cached(sql).unwrap().exists([key]).unwrap()
}

fn payloads(db: &Connection, seq: i64, blobs: &[Blob]) {
    for Blob { kind, data } in blobs {
        let sql = "INSERT INTO op_blob (op_seq, kind, data) VALUES (?1, ?2, ?3) ON CONFLICT (op_seq, kind) DO NOTHING";
        db.prepare_cached(sql).unwrap().execute(params![seq, BlobKind::code(*kind), data]).unwrap();
    }
}

/// The statements of a creation.
fn create(db: &Connection, row: &Row) {
    assert!(!there(db, "SELECT 1 FROM op WHERE id = ?1", &row.id));
    assert!(!there(db, "SELECT op_seq FROM op_by_key WHERE key_hash = ?1", &row.key));
    assert!(!there(db, "SELECT 1 FROM tombstone WHERE key_hash = ?1", &row.key));
    // As many operations as are made here have their index entries in memory.
    assert!(!there(db, "SELECT op_seq FROM slot WHERE slot_hash = ?1", &row.slot));
    let sql = "INSERT INTO op (id, key_hash, slot_hash, principal, tool, state, delivery, version, stamp, owner_epoch,
        caller_epoch, attention, expires_at, record) VALUES (?1, ?2, ?3, ?4, ?5, 2, 1, ?6, 0, 1, 1, ?7, NULL, ?8)";
    let bound =
        params![row.id, row.key, row.slot, row.principal, row.tool, row.version, row.deadline, row.record];
    db.prepare_cached(sql).unwrap().execute(bound).unwrap();
    let seq = db.last_insert_rowid();
    payloads(db, seq, &row.blobs);
}

/// The statements of a closing.
fn update(db: &Connection, row: &Row) {
    let sql = "SELECT seq, version, stamp, state, delivery FROM op WHERE id = ?1";
    let (seq, version): (i64, i64) = db
        .prepare_cached(sql)
        .unwrap()
        .query_row([&row.id], |r| {
            let _: (i64, i64, i64) = (r.get(2)?, r.get(3)?, r.get(4)?);
            Ok((r.get(0)?, r.get(1)?))
        })
        .unwrap();
    assert_eq!(version + 1, row.version);
    let sql =
        "UPDATE op SET state = 4, delivery = 2, version = ?2, stamp = 1, owner_epoch = 0, caller_epoch = 1,
        attention = ?3, expires_at = ?3, record = ?4 WHERE seq = ?1";
    db.prepare_cached(sql).unwrap().execute(params![seq, row.version, row.deadline, row.record]).unwrap();
    payloads(db, seq, &row.blobs);
}

/// Operations a second of the same statements, `batch` of them to a transaction.
fn bare(path: &Path, batch: usize, operations: usize) -> f64 {
    let (epoch, now) = {
        // Makes the tables.
        let store = store(path);
        (store.epoch(), store.now())
    };
    let db = Connection::open(path).unwrap();
    // The writer's settings; it checkpoints after as many pages.
    db.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536;
         PRAGMA foreign_keys = OFF;",
    )
    .unwrap();
    for set in ["PRAGMA wal_autocheckpoint = 8192", "PRAGMA journal_size_limit = -1"] {
        db.query_row(set, [], |_| Ok(())).unwrap();
    }
    db.set_prepared_statement_cache_capacity(64);
    let counts: String = db.query_row("SELECT counts FROM meta", [], |r| r.get(0)).unwrap();
    let rows: Vec<(Row, Row)> = (0..operations)
        .map(|_| {
            let Writes { create, close, .. } = operation(epoch, now);
            (Row::of(create), Row::of(close))
        })
        .collect();
    let sql = |sql: &str| db.prepare_cached(sql).unwrap().execute([]).unwrap();
    let transaction = |writes: &dyn Fn()| {
        sql("BEGIN IMMEDIATE");
        writes();
        let mark = "UPDATE meta SET high_water = ?1, clock_step = ?2, counts = ?3";
        db.prepare_cached(mark).unwrap().execute(params![now.0, None::<i64>, counts]).unwrap();
        sql("COMMIT");
    };
    let begun = Instant::now();
    for batch in rows.chunks(batch) {
        transaction(&|| batch.iter().for_each(|(row, _)| create(&db, row)));
        transaction(&|| batch.iter().for_each(|(_, row)| update(&db, row)));
    }
    operations as f64 / begun.elapsed().as_secs_f64()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

struct Options {
    callers: Vec<usize>,
    operations: usize,
    pairs: usize,
    within: PathBuf,
    json: bool,
}

fn options() -> Options {
    let mut o = Options {
        callers: vec![1, 16, 64],
        operations: 8000,
        pairs: 3,
        within: std::env::temp_dir(),
        json: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut next = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--callers" => o.callers = vec![next().parse::<usize>().unwrap().clamp(1, 1024)],
            "--operations" => o.operations = next().parse::<usize>().unwrap().clamp(64, 100_000),
            "--pairs" => o.pairs = next().parse::<usize>().unwrap().clamp(1, 99),
            "--dir" => o.within = next().into(),
            "--json" => o.json = true,
            _ => panic!("unknown: {arg}"),
        }
    }
    o
}

fn main() {
    let o = options();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if cfg!(debug_assertions) {
        println!("This is not an optimised build: these figures say little.");
    }
    println!(
        "{:>8} {:>14} {:>16} {:>14} {:>8}",
        "callers", "operations/s", "writes a commit", "bare loop/s", "ratio"
    );
    for callers in o.callers {
        // A commit of one caller is a matter of the disk alone: fewer will do.
        let operations = if callers == 1 { o.operations / 8 } else { o.operations };
        let (mut ours, mut floor, mut ratios, mut shares) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..o.pairs {
            let dir = tempfile::tempdir_in(&o.within).unwrap();
            let one =
                runtime.block_on(through_the_store(&dir.path().join("a/ledger.db"), callers, operations));
            let batch = (one.1.round() as usize).max(1);
            let other = bare(&dir.path().join("b/ledger.db"), batch, operations);
            ours.push(one.0);
            shares.push(one.1);
            floor.push(other);
            ratios.push(one.0 / other);
        }
        let (rate, share, floor, ratio) = (median(ours), median(shares), median(floor), median(ratios));
        println!("{callers:>8} {rate:>14.0} {share:>16.1} {floor:>14.0} {ratio:>8.2}");
        if o.json {
            println!(
                "{{\"callers\":{callers},\"store_per_second\":{rate:.1},\"writes_a_commit\":{share:.2},\"bare_per_second\":{floor:.1},\"ratio\":{ratio:.4}}}"
            );
        }
    }
}
