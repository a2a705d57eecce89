//! How long a restart takes to go on with many open operations, each of which has left its intent and no receipt: until
//! all are claimed, and until all are completed. The provider is a pause, so this is what ledger and disk take.
//!
//! `cargo run --release -p counterfoil-ledger-sqlite --example recovery_rate -- [OPERATIONS [MILLISECONDS]]`: how many
//! (10,000), and how long each send takes (1).

#![allow(clippy::unwrap_used)]

use counterfoil_ledger_sqlite::{Config, SqliteStore};
use ledger::decide::{Opening, open};
use ledger::executor::{Executor, Looked, Receipt, Sent};
use ledger::store::{Committed, SlotWrite, Store, Write};
use ledger::words::{EffectKey, Key, Millis, OperationId, Scope};
use ledger::{
    Attempt, Env, Fingerprint, Intent, Ledger, Note, Observer, Operation, OperationPolicy, Recovery,
    RunError, Runner, Settings, Strategy, SystemEnv, ToolResult,
};
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

/// An open operation with 512 bytes of intent.
fn opened(store: &SqliteStore) -> Write {
    let (epoch, now) = (store.epoch(), store.now());
    let id = OperationId::new(now, SystemEnv.random_u128());
    let scope = Scope { principal: "bench".into(), tool: "pay".into(), mode: "sandbox".into() };
    let key = Some(Key::new(&format!("order-{:x}", SystemEnv.random_u128())).unwrap());
    let fingerprint = Fingerprint::of("pay", &ledger::canonical::canonicalise_arguments(None, None).unwrap());
    let effect = EffectKey::derive("bench", &scope, id, key.as_ref(), &fingerprint, "charge", "");
    let intent = Intent {
        name: "charge".into(),
        discriminator: String::new(),
        recovery: Recovery::new(Strategy::Key),
        summary: "POST https://api.example/charges".into(),
        body: vec![b'x'; 512],
    };
    let opening = Opening {
        id,
        scope,
        key,
        fingerprint,
        policy: OperationPolicy::default(),
        epoch,
        intent: Some((intent, effect)),
        arguments: None,
        asks: Vec::new(),
    };
    let opened = open(opening, now);
    Write::Create { operation: Box::new(opened.next), slot: SlotWrite::Set, blobs: opened.blobs }
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
                assert_eq!(first.write(opened(&first)).await.unwrap(), Committed::Done);
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
