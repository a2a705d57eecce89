//! Kills a process in the middle of its writes, again and again: nothing that was acknowledged is lost.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod contract;

use contract::{T0, close, get, id, opening_at, received, step};
use counterfoil_ledger_sqlite::{Config, OpenError, SqliteStore};
use ledger::SystemEnv;
use ledger::store::{BlobKind, Committed, SlotWrite, Store, Write};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

const CHILD: &str = "LEDGER_KILL_CHILD";

fn open(dir: &Path) -> Result<Arc<SqliteStore>, OpenError> {
    let config = Config { ballast: 0, min_free: 0, ..Config::new(dir.join("ledger.db"), "test") };
    SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}")))
}

fn acknowledged(n: u32, version: u64) {
    println!("\nACK {n} {version}");
}

/// The process that is killed: 16 callers that say what was acknowledged to them. Does nothing when run as
/// one of the tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(arg) = std::env::var(CHILD) else { return };
    let (dir, first) = arg.rsplit_once('|').unwrap();
    let s = open(Path::new(dir)).unwrap();
    let first: u32 = first.parse().unwrap();
    let tasks: Vec<_> = (0..16)
        .map(|t| {
            let s = s.clone();
            tokio::spawn(async move {
                for i in 0.. {
                    let n = first + i * 16 + t;
                    let key = format!("k{n}");
                    let (op, blobs) = opening_at(id(n.into()), "alice", Some(&key), n, s.epoch(), T0);
                    let made = s
                        .write(Write::Create { operation: Box::new(op.clone()), slot: SlotWrite::Set, blobs })
                        .await
                        .unwrap();
                    assert_eq!(made, Committed::Done);
                    acknowledged(n, 1);
                    let (op, w) = step(&op, received(&op), T0, 1).unwrap();
                    assert_eq!(s.write(w).await.unwrap(), Committed::Done);
                    acknowledged(n, 2);
                    let (_, w) = step(&op, close(&op, false), T0, 2).unwrap();
                    assert_eq!(s.write(w).await.unwrap(), Committed::Done);
                    acknowledged(n, 3);
                }
            })
        })
        .collect();
    for t in tasks {
        t.await.unwrap();
    }
}

#[tokio::test]
async fn no_acknowledged_write_is_lost_by_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut acks: BTreeMap<u32, u64> = BTreeMap::new();
    for round in 0..4_u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{}|{}", dir.path().display(), round * 1_000_000))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut seen = 0;
        let kill_at = 150 + 211 * round;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            // A line that the kill cut short lacks its version, which is one digit.
            let Some((n, v)) = line.strip_prefix("ACK ").and_then(|l| l.split_once(' ')) else { continue };
            let (Ok(n), Ok(v)) = (n.parse(), v.parse()) else { continue };
            let newest = acks.entry(n).or_default();
            *newest = (*newest).max(v);
            seen += 1;
            if seen == kill_at {
                let error = open(dir.path()).err().expect("the child has the lock");
                assert!(
                    matches!(error, OpenError::Locked { holder: Some(pid) } if pid == child.id()),
                    "{error}"
                );
                child.kill().unwrap();
            }
        }
        let status = child.wait().unwrap();
        assert!(
            seen >= kill_at && !status.success(),
            "the child was to be killed while it wrote: {seen} acknowledged, {status}"
        );

        let s = open(dir.path()).unwrap();
        assert_eq!(
            s.epoch().0,
            u64::from(round + 1) * 2,
            "one start of the child and one of ours each round"
        );
        for (n, version) in &acks {
            let op = get(&*s, id((*n).into())).await;
            assert!(
                op.version >= *version,
                "operation {n}: version {version} was acknowledged, {} is there",
                op.version
            );
            let result = s.blob(op.id, BlobKind::Result).await.unwrap();
            assert_eq!(result.is_some(), op.version == 3, "record and payloads are one write");
        }
        let counts = s.counts().await.unwrap();
        let all: u64 = counts.execution.values().sum();
        let list = s.list(&ledger::store::Query { limit: usize::MAX, ..Default::default() }).await.unwrap();
        assert_eq!(all, list.len() as u64);
        s.close().await.unwrap();
    }
}
