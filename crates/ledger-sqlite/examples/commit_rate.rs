//! How many operations a second the store opens and closes: two durable writes each, by 1, 16 and 64 callers,
//! each waiting for its answer before the next write. Beside it, the same statements in a bare loop on one
//! connection, with as many operations in a transaction: what SQLite itself can do here, without callers,
//! hand-over, answers or bookkeeping.
//!
//! `cargo run --release -p counterfoil-ledger-sqlite --example commit_rate [SECONDS] [DIRECTORY]`
//!
//! Only figures of an optimised build on an idle machine and the real disk mean anything.

#![allow(clippy::unwrap_used)]

use counterfoil_ledger_sqlite::{Config, SqliteStore};
use ledger::decide::{Fence, Opening, Outcome, open};
use ledger::executor::Receipt;
use ledger::store::{Blob, BlobKind, Committed, SlotWrite, Store, Write};
use ledger::words::{EffectKey, Epoch, Key, OperationId, Scope, Time};
use ledger::{
    Env, Event, Fingerprint, Intent, Operation, OperationPolicy, Recovery, Strategy, SystemEnv, decide,
};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One operation's two writes: 512 bytes of intent, 128 of receipt, 1 KiB of result.
fn operation(epoch: Epoch, now: Time) -> (Write, Write) {
    let id = OperationId::new(now, SystemEnv.random_u128());
    let scope = Scope { principal: "bench".into(), tool: "pay".into(), mode: "sandbox".into() };
    let key = Key::new(&format!("order-{:x}", SystemEnv.random_u128())).unwrap();
    let arguments =
        ledger::canonical::canonicalise_arguments(Some(&format!("{{\"order\":\"{}\"}}", key.as_str())), None)
            .unwrap();
    let fingerprint = Fingerprint::of("pay", &arguments);
    let effect = EffectKey::derive("bench", &scope, id, Some(&key), &fingerprint, "charge", "");
    let intent = Intent {
        name: "charge".into(),
        discriminator: String::new(),
        recovery: Recovery::new(Strategy::Key),
        summary: "POST https://api.example/charges".into(),
        body: vec![b'x'; 512],
    };
    let key = Some(key);
    let opening = Opening {
        id,
        scope,
        key,
        fingerprint,
        policy: OperationPolicy::default(),
        epoch,
        intent: Some((intent, effect)),
        arguments: None,
    };
    let opened = open(opening, now);
    let fence = Fence { attempt: 1, epoch };
    let receive = Event::Receive { fence, effect: 0, outcome: Outcome::Applied(Receipt(vec![b'r'; 128])) };
    let received = decide(&opened.next, receive, now).unwrap();
    let close = Event::Close { fence, result: vec![b'y'; 1024], is_error: false, caller_gone: false };
    let closed = decide(&received.next, close, now).unwrap();
    // Both transitions in one write, as the service makes them: the version counts one.
    let next = Operation { version: 2, ..closed.next };
    let blobs = received.blobs.into_iter().chain(closed.blobs).collect();
    (
        Write::Create {
            operation: Box::new(opened.next),
            slot: SlotWrite::CompareAndSet(None),
            blobs: opened.blobs,
        },
        Write::Update { operation: Box::new(next), stamp: 1, blobs },
    )
}

async fn through_the_store(path: &Path, callers: usize, time: Duration) -> (f64, f64) {
    let config = Config { ballast: 0, ..Config::new(path, "bench") };
    let store = SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).unwrap();
    let begun = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut done = 0_u32;
                while begun.elapsed() < time {
                    let (create, update) = operation(store.epoch(), store.now());
                    assert_eq!(store.write(create).await.unwrap(), Committed::Done);
                    assert_eq!(store.write(update).await.unwrap(), Committed::Done);
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for t in tasks {
        done += t.await.unwrap();
    }
    let took = begun.elapsed().as_secs_f64();
    let figures = store.stats();
    store.close().await.unwrap();
    (f64::from(done) / took, figures.writes as f64 / figures.commits as f64)
}

/// The same rows in the same tables, `batch` openings or closings to a transaction.
fn bare(path: &Path, batch: usize, time: Duration) -> f64 {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY")
        .unwrap();
    let blobs = |seq: i64, blobs: &[Blob]| {
        for Blob { kind, data } in blobs {
            let mut add =
                db.prepare_cached("INSERT INTO op_blob (op_seq, kind, data) VALUES (?1, ?2, ?3)").unwrap();
            add.execute(rusqlite::params![seq, BlobKind::code(*kind), data]).unwrap();
        }
    };
    let (begun, mut done) = (Instant::now(), 0_u32);
    while begun.elapsed() < time {
        let pairs: Vec<_> = (0..batch).map(|_| operation(Epoch(1), Time(1_800_000_000_000))).collect();
        let mut seqs = Vec::new();
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        for (create, _) in &pairs {
            let (op, Write::Create { blobs: payloads, .. }) = (create.operation(), create) else {
                unreachable!()
            };
            let sql = "INSERT INTO op (id, key_hash, slot_hash, principal, tool, state, delivery, version, stamp, owner_epoch,
                caller_epoch, attention, record) VALUES (?1, ?2, ?3, ?4, ?5, 2, 1, 1, 0, 1, 1, ?6, ?7)";
            let (key, slot) = (ledger::store::key_hash_of(op).unwrap().0, ledger::store::slot_hash_of(op).0);
            let record = serde_json::to_string(op).unwrap();
            let row = rusqlite::params![
                op.id.0.to_be_bytes(),
                key,
                slot,
                op.scope.principal,
                op.scope.tool,
                op.deadline.0,
                record
            ];
            db.prepare_cached(sql).unwrap().execute(row).unwrap();
            let seq = db.last_insert_rowid();
            db.prepare_cached("INSERT INTO slot VALUES (?1, ?2)")
                .unwrap()
                .execute(rusqlite::params![slot, seq])
                .unwrap();
            blobs(seq, payloads);
            seqs.push(seq);
        }
        db.execute_batch("COMMIT; BEGIN IMMEDIATE").unwrap();
        for ((_, update), seq) in pairs.iter().zip(seqs) {
            let (op, Write::Update { blobs: payloads, .. }) = (update.operation(), update) else {
                unreachable!()
            };
            let sql = "UPDATE op SET state = 4, delivery = 2, version = 2, owner_epoch = 0, attention = ?2, expires_at = ?2, record = ?3 WHERE seq = ?1";
            let row = rusqlite::params![seq, op.deadline.0, serde_json::to_string(op).unwrap()];
            db.prepare_cached(sql).unwrap().execute(row).unwrap();
            blobs(seq, payloads);
        }
        db.execute_batch("COMMIT").unwrap();
        done += u32::try_from(batch).unwrap();
    }
    f64::from(done) / begun.elapsed().as_secs_f64()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let time = Duration::from_secs(args.next().map_or(3, |s| s.parse().unwrap()));
    let within = args.next().map_or_else(std::env::temp_dir, Into::into);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if cfg!(debug_assertions) {
        println!("This is not an optimised build: these figures say little.");
    }
    println!("{:>8} {:>14} {:>16} {:>14}", "callers", "operations/s", "writes a commit", "bare loop/s");
    for callers in [1, 16, 64] {
        let dir = tempfile::tempdir_in(&within).unwrap();
        let path = dir.path().join("ledger.db");
        let (rate, share) = runtime.block_on(through_the_store(&path, callers, time));
        println!("{callers:>8} {rate:>14.0} {share:>16.1} {:>14.0}", bare(&path, callers, time));
    }
}
