//! `cargo xtask bench`: takes the figures. Told by xtask where everything is (`COUNTERFOIL_BIN`, `COUNTERFOIL_BUILD_DIR`);
//! the other programs of this package are beside it.

use anyhow::{Result, bail};
use clap::Parser;
use counterfoil_benches::figures::Figures;
use counterfoil_benches::process::load_average;
use counterfoil_benches::runs::{self, Extent, PAIRS};
use counterfoil_benches::{exec, lists, replicas, state, streams};
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The groups of figures that are taken together, by their names or the beginnings of them.
const NAMES: [&[&str]; 10] = [
    &["readonly_vs_axum_16", "readonly_vs_axum_64", "readonly_vs_rmcp_64", "cpu_us_readonly"],
    &["ledgered_vs_typescript_64", "ledgered_vs_python_64"],
    &["ledger_vs_floor_64"],
    &["ledger_p50_ms", "ledger_p99_ms", "cpu_us_ledgered", "fsync_per_s", "rss_idle_mb", "rss_load_mb"],
    &["start_ms", "rss_per_listen_kb"],
    &["recover_10k_ms", "recover_10k_settled_ms"],
    &["growth_1e6"],
    &[
        state::ALL,
        "seal_open_per_s",
        "seal_open_vs_python",
        "round_added_ms",
        "round_added_kept_ms",
        "round_added_vs_python",
        "tasks_polled_per_s",
        "tasks_polled_done_per_s",
    ],
    &["list_1000_ms", "list_1000_kb", "list_20_ms", "list_20_kb"],
    &["exec_overhead_us", "exec_vs_reqwest_16"],
];

/// The same of replicas on PostgreSQL.
const REPLICAS: [&[&str]; 4] = [
    &["pg_calls_per_s", "pg_p50_ms", "pg_p99_ms"],
    &["pg_ledger_vs_pgbench_64"],
    &["listen_kb", "notify_p50_ms"],
    &["takeover_ms"],
];

/// Where the ledgers are that are measured.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Store {
    /// In a file.
    Sqlite,
    /// In a database server of its own, which is started for this.
    Postgres,
}

#[derive(Parser)]
#[command(name = "bench", about = "What a call costs, beside what others cost")]
struct Cli {
    /// All figures as one JSON object on the last line
    #[arg(long)]
    json: bool,
    /// Only figures whose name contains this, and those that are taken together with them
    #[arg(long, value_name = "FIGURE")]
    only: Option<String>,
    /// Where the ledgers are
    #[arg(long, value_enum, default_value = "sqlite")]
    store: Store,
    /// How long each side of a pair is measured, in seconds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("bench: a bar was missed");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("bench: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<bool> {
    let wanted =
        |name: &str| cli.only.as_deref().is_none_or(|only| name.contains(only) || only.contains(name));
    let names: &[&[&str]] = if cli.store == Store::Sqlite { &NAMES } else { &REPLICAS };
    let taken = |n: usize| names.get(n).is_some_and(|all| all.iter().any(|name| wanted(name)));
    if !(0..names.len()).any(taken) {
        bail!("there is no such figure; there are {}", names.concat().join(", "));
    }
    let group = |n: usize| cli.store == Store::Sqlite && taken(n);
    let replicas = |n: usize| cli.store == Store::Postgres && taken(n);
    let extent = Extent { each: Duration::from_secs(cli.seconds) };
    let (before, began) = (load_average(), Instant::now());
    if before > 1.0 {
        println!("This machine is busy (load average {before}): these figures say little.");
    }
    let mut figures = Figures::default();
    if group(0) {
        runs::readonly(&mut figures, extent, &wanted)?;
    }
    if group(1) {
        runs::ledgered(&mut figures, extent, &wanted)?;
    }
    if group(2) {
        runs::floor(&mut figures, extent)?;
    }
    if group(3) {
        runs::latency(&mut figures, extent)?;
    }
    if group(4) {
        runs::start(&mut figures)?;
        streams::listen(&mut figures)?;
    }
    if group(5) {
        runs::recover(&mut figures)?;
    }
    if group(6) {
        runs::growth(&mut figures, extent)?;
    }
    if group(7) {
        state::all(&mut figures, extent, &wanted)?;
    }
    if group(8) {
        lists::all(&mut figures, extent)?;
    }
    if group(9) {
        exec::overhead(&mut figures, extent)?;
    }
    if replicas(0) {
        replicas::calls(&mut figures, extent.each)?;
    }
    if replicas(1) {
        replicas::floor(&mut figures, extent.each)?;
    }
    if replicas(2) {
        replicas::news(&mut figures)?;
    }
    if replicas(3) {
        replicas::takeover(&mut figures)?;
    }
    let all_met = figures.all_met();
    if cli.json {
        let run = json!({
            "seconds": cli.seconds,
            "pairs": PAIRS,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "load_average_before": before,
            "took_s": began.elapsed().as_secs(),
        });
        println!("{}", figures.json(run));
    }
    Ok(all_met)
}
