//! How many operations a second the store makes, closed loop, beside pgbench with the bare two statements on the same
//! server, one commit each. `throughput [callers] [seconds] [replicas]`; the server is its own, with fsync on. `WRITERS=1`: one writer a replica.
//! `throughput pairs [callers] [seconds] [pairs]`: both in turn, openings and closings only, as in the other store's
//! example; their ratio, and what CPU an operation took of each, as JSON on the last line. `TMPDIR` is where the server's data lie.
//! `throughput grow [operations]`: HOT share and table sizes while operations come, and go by retention.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(missing_docs, unused_macros)]
#[path = "../../ledger-sqlite/tests/contract/mod.rs"]
mod contract;

use contract::{close, opening_at, received, step};
use ledger::store::{BlobKind, Committed, SlotWrite, Store, Write};
use ledger::words::{Millis, OperationId, Time};
use ledger::{DeliveryState, Env as _, Event, Operation, SystemEnv, decide};
use ledger_postgres::{Config, PgStore};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use temp_postgres::{Options, TempPostgres};

/// Open, close (both waited for), and with `delivered` the delivery (not waited for).
async fn life(s: &PgStore, n: u32, delivered: bool) {
    let now = s.now();
    let name = OperationId::new(now, SystemEnv.random_u128());
    let mut made = opening_at(name, "alice", Some(&name.to_string()), n, s.epoch(), now);
    // As a call of one effect is kept: its intent pins the arguments, so they are not kept beside it.
    made.1.retain(|blob| blob.kind != BlobKind::Arguments);
    let write = Write::Create { operation: Box::new(made.0.clone()), slot: SlotWrite::Set, blobs: made.1 };
    assert_eq!(s.write(write).await.unwrap(), Committed::Done);
    let op = made.0;
    // The receipt and the result in one write, as the service makes it.
    let received = decide(&op, received(&op), now).unwrap();
    let closed = decide(&received.next, close(&received.next, false), now).unwrap();
    let next = Operation { version: op.version + 1, ..closed.next };
    let told = delivered.then(|| step(&next, Event::Deliver(DeliveryState::Written), now, 3).unwrap().1);
    let (mut blobs, more) = (received.blobs, closed.blobs);
    blobs.extend(more);
    let write = Write::Update { operation: Box::new(next), stamp: 2, blobs, handles: Vec::new() };
    assert_eq!(s.write(write).await.unwrap(), Committed::Done);
    if let Some(told) = told {
        s.write_lazily(told);
    }
}

async fn stores(server: &TempPostgres, database: &str, replicas: usize) -> Vec<Arc<PgStore>> {
    let mut all = Vec::new();
    for _ in 0..replicas {
        let writers = std::env::var("WRITERS").ok().and_then(|w| w.parse().ok()).unwrap_or(2);
        let config = Config { writers, ..Config::new(server.url(database), "test") };
        all.push(PgStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).await.unwrap());
    }
    all
}

async fn ours(
    stores: &[Arc<PgStore>],
    callers: usize,
    seconds: u64,
    delivered: bool,
) -> (f64, Vec<Duration>) {
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let all: Vec<_> = (0..callers)
        .map(|c| {
            let (s, stop) = (stores[c % stores.len()].clone(), stop.clone());
            tokio::spawn(async move {
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    life(&s, u32::try_from(c).unwrap(), delivered).await;
                    took.push(begun.elapsed());
                }
                took
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    let mut took = Vec::new();
    for caller in all {
        took.extend(caller.await.unwrap());
    }
    let rate = took.len() as f64 / begun.elapsed().as_secs_f64();
    took.sort_unstable();
    (rate, took)
}

/// The same two statements, bare: one row of the same size inserted and updated, a commit each.
fn pgbench(server: &TempPostgres, database: &str, callers: usize, seconds: u64) -> f64 {
    server.sql(database, "CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, k uuid UNIQUE, state smallint, record text, receipt text) WITH (fillfactor = 70)");
    let script = server.data().parent().unwrap().join("bare.sql");
    let record = "x".repeat(1300);
    std::fs::write(&script, format!(
        "INSERT INTO bare (k, state, record) VALUES (gen_random_uuid(), 1, '{record}') RETURNING id \\gset\nUPDATE bare SET state = 2, receipt = 'r' WHERE id = :id AND state = 1;\n"
    )).unwrap();
    let mut bench = server.program("pgbench");
    bench.args([
        "-n",
        "-M",
        "prepared",
        "-U",
        "postgres",
        "-h",
        "127.0.0.1",
        "-p",
        &server.port().to_string(),
    ]);
    bench
        .args(["-c", &callers.to_string(), "-j", "2", "-T", &seconds.to_string(), "-f"])
        .arg(&script)
        .arg(database);
    let done = bench.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let tps = said.lines().find_map(|l| l.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    tps.unwrap_or_else(|| panic!("{said} {}", String::from_utf8_lossy(&done.stderr)))
}

/// User and system time so far: of this program with what it has started and waited for, and of the server with all that it
/// has started. In clock ticks of Linux, of which a second has 100.
fn cpu(server: &TempPostgres) -> (u64, u64) {
    let ticks = |pid: &str, ended: bool| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<u64> =
            stat.rsplit(") ").next().unwrap_or_default().split(' ').map(|f| f.parse().unwrap_or(0)).collect();
        fields.get(11..if ended { 15 } else { 13 }).map_or(0, |f| f.iter().sum::<u64>())
    };
    let postmaster = std::fs::read_to_string(server.data().join("postmaster.pid")).unwrap();
    let postmaster = postmaster.lines().next().unwrap();
    let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).unwrap();
    let all = ticks(postmaster, true) + children.split_whitespace().map(|c| ticks(c, false)).sum::<u64>();
    (ticks("self", true), all)
}

/// Operations a second, and the microseconds of CPU that each took of the callers' side and of the server.
type Side = (f64, f64, f64);

/// Both right after the other; who begins alternates.
async fn pairs(server: &TempPostgres, database: &str, callers: usize, seconds: u64, count: u64) {
    let all = stores(server, database, 1).await;
    ours(&all, callers, seconds, false).await;
    let bytes = server.sql(
        database,
        "SELECT ((SELECT sum(length(record)) FROM counterfoil.op) + (SELECT sum(length(data)) FROM counterfoil.op_blob)) / (SELECT count(*) FROM counterfoil.op)",
    );
    let side = |rate: f64, before: (u64, u64)| {
        let after = cpu(server);
        let of = |ticks: u64| ticks as f64 * 10_000.0 / (rate * seconds as f64);
        (rate, of(after.0 - before.0), of(after.1 - before.1))
    };
    let mut made: Vec<(Side, Side)> = Vec::new();
    for n in 0..count {
        let store = async || {
            let before = cpu(server);
            side(ours(&all, callers, seconds, false).await.0, before)
        };
        let bare = || {
            let before = cpu(server);
            side(pgbench(server, database, callers, seconds), before)
        };
        made.push(if n % 2 == 0 {
            (store().await, bare())
        } else {
            let bare = bare();
            (store().await, bare)
        });
        println!("{:.0?}", made.last().unwrap());
    }
    let stats = all[0].stats();
    let median = |mut of: Vec<f64>| {
        of.sort_by(f64::total_cmp);
        (of[0], of[of.len() / 2], of[of.len() - 1])
    };
    let of = |what: fn(&(Side, Side)) -> f64| median(made.iter().map(what).collect());
    let (least, ratio, most) = of(|(a, b)| a.0 / b.0);
    println!(
        "{{\"ratio\":{ratio:.3},\"least\":{least:.3},\"most\":{most:.3},\"store_per_second\":{:.1},\"pgbench_per_second\":{:.1},\"writes_a_commit\":{:.2},\"bytes_an_operation\":{bytes},\"store_cpu_us\":{:.1},\"store_server_cpu_us\":{:.1},\"pgbench_cpu_us\":{:.1},\"pgbench_server_cpu_us\":{:.1}}}",
        of(|(a, _)| a.0).1,
        of(|(_, b)| b.0).1,
        stats.writes as f64 / stats.commits as f64,
        of(|(a, _)| a.1).1,
        of(|(a, _)| a.2).1,
        of(|(_, b)| b.1).1,
        of(|(_, b)| b.2).1,
    );
}

/// How many records, and as many tombstones after them, retention keeps while a ledger grows.
const KEPT: u64 = 100_000;

/// One line a table: bytes with indexes and TOAST, rows, dead rows, changes that stayed on their page.
const SIZES: &str = "SELECT string_agg(format('  %-12s %5s MB, rows %7s, dead %6s, hot %s', relname, pg_total_relation_size(relid) >> 20, n_live_tup, n_dead_tup,
    CASE WHEN n_tup_upd = 0 THEN '-' ELSE format('%s %%', 100 * n_tup_hot_upd / n_tup_upd) END), E'\n' ORDER BY relname)
  || format(E'\n  all          %5s MB', sum(pg_total_relation_size(relid))::bigint >> 20)
  FROM pg_stat_user_tables WHERE schemaname = 'counterfoil' AND relname IN ('op', 'attention', 'op_blob', 'op_key', 'slot', 'tally', 'tombstone', 'meta', 'replica')";

/// 64 callers make operations; beside them retention runs as the ledger has it (batches of 200, pauses of 5 ms), only
/// that what is older than the last [`KEPT`] operations goes, and not what is older than a week.
async fn grow(server: &TempPostgres, database: &str, operations: u64) {
    let all = stores(server, database, 1).await;
    let (s, n) = (all[0].clone(), Arc::new(AtomicU64::new(0)));
    // When each thousandth operation began.
    let thousands: Arc<Mutex<Vec<i64>>> = Arc::default();
    let callers: Vec<_> = (0..64)
        .map(|_| {
            let (s, n, thousands) = (s.clone(), n.clone(), thousands.clone());
            tokio::spawn(async move {
                loop {
                    let mine = n.fetch_add(1, Ordering::Relaxed);
                    if mine >= operations {
                        return;
                    }
                    if mine % 1000 == 0 {
                        thousands.lock().unwrap().push(s.now().0);
                    }
                    // As many slots as records: most calls are no twins.
                    life(&s, u32::try_from(mine % (2 * KEPT)).unwrap(), true).await;
                }
            })
        })
        .collect();
    let pruning = tokio::spawn({
        let (s, thousands) = (s.clone(), thousands.clone());
        async move {
            let mut pruned = 0;
            loop {
                let until = {
                    let all = thousands.lock().unwrap();
                    let at = |back: u64| {
                        all.len().checked_sub(usize::try_from(back / 1000).unwrap()).map(|i| all[i])
                    };
                    at(KEPT).map(|until| (until, at(2 * KEPT).map_or(contract::WEEK, |old| until - old)))
                };
                let Some((until, tombstones_for)) = until else {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                };
                let until = Time(until + contract::WEEK);
                loop {
                    let gone = s.prune(until, Millis(tombstones_for), 200).await.unwrap();
                    pruned += gone;
                    if gone < 200 {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                if n_is_up(&thousands, operations) {
                    return pruned;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    });
    let (begun, each) = (Instant::now(), operations / 10);
    for tenth in 1..=10 {
        while n.load(Ordering::Relaxed) < tenth * each {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!(
            "{} operations, {:.0} s:\n{}",
            tenth * each,
            begun.elapsed().as_secs_f64(),
            server.sql(database, SIZES)
        );
    }
    for c in callers {
        c.await.unwrap();
    }
    println!("{} pruned", pruning.await.unwrap());
    println!(
        "vacuums: {}",
        server.sql(database, "SELECT string_agg(format('%s %s', relname, autovacuum_count), ', ' ORDER BY relname) FROM pg_stat_user_tables WHERE schemaname = 'counterfoil' AND autovacuum_count > 0")
    );
}

fn n_is_up(thousands: &Mutex<Vec<i64>>, operations: u64) -> bool {
    thousands.lock().unwrap().len() as u64 * 1000 >= operations
}

#[tokio::main]
async fn main() {
    let settings =
        [("shared_buffers", "512MB"), ("max_wal_size", "4GB")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    let mut settings = settings.to_vec();
    // Further settings of the server: `name=value,name=value`.
    let more = std::env::var("PG_SETTINGS").unwrap_or_default();
    settings
        .extend(more.split(',').filter_map(|s| s.split_once('=')).map(|(a, b)| (a.to_owned(), b.to_owned())));
    let server = TempPostgres::start(Options { fsync: true, settings });
    let database = server.database();
    let mut args = std::env::args().skip(1);
    let first = args.next();
    let number = |a: Option<String>, or: u64| a.and_then(|a| a.parse().ok()).unwrap_or(or);
    if first.as_deref() == Some("grow") {
        return grow(&server, &database, number(args.next(), 100_000)).await;
    }
    if first.as_deref() == Some("pairs") {
        let callers = usize::try_from(number(args.next(), 64)).unwrap();
        let (seconds, count) = (number(args.next(), 3), number(args.next(), 5));
        return pairs(&server, &database, callers, seconds, count).await;
    }
    let callers = usize::try_from(number(first, 64)).unwrap();
    let (seconds, replicas) = (number(args.next(), 5), usize::try_from(number(args.next(), 1)).unwrap());
    let all = stores(&server, &database, replicas).await;
    ours(&all, callers, 1, true).await;
    for round in 1..=2 {
        let (rate, took) = ours(&all, callers, seconds, true).await;
        let at = |q: usize| took[(took.len() - 1) * q / 100];
        let stats = all[0].stats();
        println!(
            "round {round}: {rate:.0} operations/s at {callers} callers, {replicas} replicas (p50 {:?}, p99 {:?}); {:.1} writes a commit, {} us a commit",
            at(50),
            at(99),
            stats.writes as f64 / stats.commits as f64,
            stats.commit_us / stats.commits
        );
        if let Ok(to) = std::env::var("PG_LOG") {
            std::fs::write(to, server.log()).unwrap();
        }
        let bare = pgbench(&server, &database, callers, seconds);
        println!("round {round}: pgbench {bare:.0} pairs/s; ours {:.2} times", rate / bare);
    }
}
