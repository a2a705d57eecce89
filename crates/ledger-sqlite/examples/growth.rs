//! What an operation costs in a ledger that holds many, beside one that holds few: CPU of the whole process, and 4 KiB
//! pages that it writes (into the log, and from there into the database) and reads.
//!
//! `cargo run --release -p counterfoil-ledger-sqlite --example growth -- [--stored N] [--operations N] [--rounds N]
//! [--callers N] [--dir DIRECTORY]`
//!
//! A ledger of `--stored` operations is made, or found in the directory from the last time, and for each round one of 1,000.
//! Their operations are over and delivered, evenly spread over the last day: as retention keeps them. Then each gets
//! `--operations` more in turn, round for round: looked for by a key that is not there, opened, closed, delivered. In the
//! large one these stay.

#![allow(clippy::unwrap_used)]

mod operations;

use counterfoil_ledger_sqlite::{Config, SqliteStore};
use ledger::SystemEnv;
use ledger::store::{Committed, Store, key_hash_of};
use ledger::words::Time;
use operations::{Writes, operation, over};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const FEW: usize = 1000;
/// How many write at once while a ledger is made.
const AT_ONCE: usize = 512;
const DAY: i64 = 86_400_000;

fn store(path: &Path) -> Arc<SqliteStore> {
    let config = Config { ballast: 0, ..Config::new(path, "bench") };
    SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).unwrap()
}

/// Operations over the last day, in the order of their time.
async fn fill(store: &Arc<SqliteStore>, count: usize) {
    let (epoch, now) = (store.epoch(), store.now());
    let at = move |n: usize| Time(now.0 - DAY + DAY * n as i64 / count as i64);
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|first| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in (first..count).step_by(AT_ONCE) {
                    assert_eq!(store.write(over(epoch, at(n))).await.unwrap(), Committed::Done);
                }
            })
        })
        .collect();
    for t in tasks {
        t.await.unwrap();
    }
}

/// What this process has used up.
#[derive(Clone, Copy)]
struct Used {
    /// User and system time, microseconds.
    cpu: f64,
    read: f64,
    written: f64,
}

fn used() -> Used {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |n: usize| fields[n].parse::<f64>().unwrap();
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let of =
        |name: &str| -> f64 { io.lines().find_map(|l| l.strip_prefix(name)?.trim().parse().ok()).unwrap() };
    // A tick is a hundredth of a second.
    Used { cpu: (ticks(11) + ticks(12)) * 10_000.0, read: of("rchar:"), written: of("wchar:") }
}

struct Cost {
    per_second: f64,
    cpu: f64,
    pages_written: f64,
    pages_read: f64,
    writes_a_commit: f64,
}

async fn measure(store: &Arc<SqliteStore>, callers: usize, operations: usize) -> Cost {
    let (epoch, now) = (store.epoch(), store.now());
    let each = operations.div_ceil(callers);
    let work: Vec<Vec<_>> =
        (0..callers).map(|_| (0..each).map(|_| operation(epoch, now)).collect()).collect();
    let (before, stats, begun) = (used(), store.stats(), Instant::now());
    let tasks: Vec<_> = work
        .into_iter()
        .map(|mine| {
            let store = store.clone();
            tokio::spawn(async move {
                for Writes { create, close, delivered } in mine {
                    let key = key_hash_of(create.operation()).unwrap();
                    assert!(store.by_key(&key).await.unwrap().is_none());
                    assert_eq!(store.write(create).await.unwrap(), Committed::Done);
                    assert_eq!(store.write(close).await.unwrap(), Committed::Done);
                    store.write_lazily(delivered);
                }
            })
        })
        .collect();
    for t in tasks {
        t.await.unwrap();
    }
    let took = begun.elapsed().as_secs_f64();
    let (after, now) = (used(), store.stats());
    let n = (each * callers) as f64;
    Cost {
        per_second: n / took,
        cpu: (after.cpu - before.cpu) / n,
        pages_written: (after.written - before.written) / 4096.0 / n,
        pages_read: (after.read - before.read) / 4096.0 / n,
        writes_a_commit: (now.writes - stats.writes) as f64 / (now.commits - stats.commits) as f64,
    }
}

struct Options {
    stored: usize,
    operations: usize,
    rounds: usize,
    callers: usize,
    within: PathBuf,
}

fn options() -> Options {
    let mut o = Options {
        stored: 1_000_000,
        operations: 20_000,
        rounds: 3,
        callers: 16,
        within: std::env::temp_dir().join("counterfoil-growth"),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut next = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--stored" => o.stored = next().parse::<usize>().unwrap().clamp(FEW + 1, 10_000_000),
            "--operations" => o.operations = next().parse::<usize>().unwrap().clamp(64, 100_000),
            "--rounds" => o.rounds = next().parse::<usize>().unwrap().clamp(1, 99),
            "--callers" => o.callers = next().parse::<usize>().unwrap().clamp(1, 1024),
            "--dir" => o.within = next().into(),
            _ => panic!("unknown: {arg}"),
        }
    }
    o
}

#[tokio::main]
async fn main() {
    let o = options();
    if cfg!(debug_assertions) {
        println!("This is not an optimised build: these figures say little.");
    }
    let path = o.within.join(format!("{}/ledger.db", o.stored));
    let there = path.exists();
    let begun = Instant::now();
    let many = store(&path);
    println!("the ledger of {}: opened in {} ms", o.stored, begun.elapsed().as_millis());
    if !there {
        fill(&many, o.stored).await;
    }
    println!(
        "{:>9} {:>13} {:>13} {:>14} {:>12} {:>16}",
        "stored", "operations/s", "CPU each, µs", "pages written", "pages read", "writes a commit"
    );
    for _ in 0..o.rounds {
        let small = tempfile::tempdir_in(&o.within).unwrap();
        let few = store(&small.path().join("ledger.db"));
        fill(&few, FEW).await;
        for (stored, store) in [(FEW, &few), (o.stored, &many)] {
            let c = measure(store, o.callers, o.operations).await;
            println!(
                "{stored:>9} {:>13.0} {:>13.1} {:>14.2} {:>12.2} {:>16.1}",
                c.per_second, c.cpu, c.pages_written, c.pages_read, c.writes_a_commit
            );
        }
        few.close().await.unwrap();
    }
    many.close().await.unwrap();
}
