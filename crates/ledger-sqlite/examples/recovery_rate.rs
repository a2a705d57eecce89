//! How long a restart takes to go on with many open operations, each of which has left its intent and no receipt: until
//! all are claimed, and until all are completed. The provider is a pause, so this is what ledger and disk take.
//!
//! `cargo run --release -p counterfoil-ledger-sqlite --example recovery_rate -- [OPERATIONS [MILLISECONDS]]`: how many
//! (10,000), and how long each send takes (1).

#![allow(clippy::unwrap_used)]

mod operations;

use counterfoil_ledger_sqlite::{Config, SqliteStore};
use ledger::executor::{Executor, Looked, Receipt, Sent};
use ledger::store::{Committed, Store};
use ledger::words::{EffectKey, Millis};
use ledger::{
    Attempt, Intent, Ledger, Note, Observer, Operation, RunError, Runner, Settings, SystemEnv, ToolResult,
};
use operations::operation;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

struct Provider(Duration);

#[async_trait::async_trait]
impl Executor for Provider {
    async fn send(&self, _: &Intent, _: &EffectKey, _: bool, _: Millis) -> Sent {
        tokio::time::sleep(self.0).await;
        Sent::Applied(Receipt(vec![b'r'; 128]))
    }
    async fn look_up(&self, _: &Intent, _: &EffectKey, _: Millis) -> Looked {
        Looked::NotFound
    }
}

#[async_trait::async_trait]
impl Runner for Provider {
    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError> {
        let done = attempt.resume(0, self).await?;
        Ok(ToolResult { result: vec![b'y'; 1024], is_error: !done.applied })
    }
    fn account(&self, _: &Operation, why: &str) -> ToolResult {
        ToolResult { result: why.into(), is_error: true }
    }
}

#[derive(Default)]
struct Counts {
    claimed: AtomicUsize,
    completed: AtomicUsize,
}

impl Observer for Counts {
    fn note(&self, note: Note<'_>) {
        match note {
            Note::Window(_) => self.claimed.fetch_add(1, Relaxed),
            Note::Transition { to, .. } if to.execution.word() == "completed" => {
                self.completed.fetch_add(1, Relaxed)
            }
            _ => 0,
        };
    }
}

fn store(path: &Path) -> Arc<SqliteStore> {
    let config = Config { ballast: 0, ..Config::new(path, "bench") };
    SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).unwrap()
}

#[tokio::main]
async fn main() {
    let args: Vec<usize> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let count = args.first().copied().unwrap_or(10_000).clamp(1, 1_000_000);
    let pause = Duration::from_millis(args.get(1).copied().unwrap_or(1) as u64);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data/ledger.db");
    let first = store(&path);
    let writers = (0..256).map(|n| {
        let first = first.clone();
        tokio::spawn(async move {
            for _ in (n..count).step_by(256) {
                let opened = operation(first.epoch(), first.now()).create;
                assert_eq!(first.write(opened).await.unwrap(), Committed::Done);
            }
        })
    });
    for w in writers.collect::<Vec<_>>() {
        w.await.unwrap();
    }
    first.close().await.unwrap();
    drop(first);

    let begun = Instant::now();
    let counts = Arc::new(Counts::default());
    let again = store(&path);
    let ledger = Ledger::new(again.clone(), Arc::new(SystemEnv), Settings::default(), counts.clone());
    ledger.set_runner(Arc::new(Provider(pause)));
    let taken = ledger.recover_orphans().await.unwrap();
    let claimed = begun.elapsed();
    while ledger.running() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let settled = begun.elapsed();
    assert_eq!((taken, counts.claimed.load(Relaxed), counts.completed.load(Relaxed)), (count, count, count));
    let f = again.stats();
    println!(
        "{count} operations: claimed after {} ms, completed after {} ms; {} writes in {} commits",
        claimed.as_millis(),
        settled.as_millis(),
        f.writes,
        f.commits
    );
    again.close().await.unwrap();
}
