//! `cargo xtask torture`: crash windows by violence. See the library's module of that name.

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use counterfoil_tests::naive;
use counterfoil_tests::torture::ordeal::{self, Ordeal, soak::Soaked};
use counterfoil_tests::torture::{self, Against};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Parser)]
#[command(name = "torture", about = "Kill, cut, retry, and count")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// How many rounds.
    #[arg(long, default_value_t = 300)]
    rounds: usize,
    /// From which seed; drawn from the clock if left out.
    #[arg(long)]
    seed: Option<u64>,
    /// How many at a time.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Only the round of this number.
    #[arg(long)]
    only: Option<usize>,
    /// Only rounds whose fault, class, policy or client is called so.
    #[arg(long)]
    filter: Option<String>,
    /// The figures as one JSON object on the last line.
    #[arg(long)]
    json: bool,
    /// A line for each round.
    #[arg(long)]
    verbose: bool,
    /// Run against a naive server: good is to find what it does wrong.
    #[arg(long)]
    self_check: bool,
    /// Where the ledger is; several gateways can share one in PostgreSQL.
    #[arg(long, default_value = "sqlite", value_parser = ["sqlite", "postgres"])]
    store: String,
    /// How many gateways share the ledger, behind nginx.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    replicas: u8,
    #[command(flatten)]
    table: torture::table::Options,
    /// Instead of rounds: a disk that fills, thousands of operations open at a restart, or both.
    #[arg(long, value_name = "NAME")]
    ordeal: Option<Ordeal>,
    /// How many operations are open at the restart.
    #[arg(long, default_value_t = 10_000)]
    open: usize,
    /// How often the disk fills.
    #[arg(long, default_value_t = 4)]
    turns: usize,
    /// Rounds and ordeals in turn until so many minutes are over.
    #[arg(long, conflicts_with_all = ["rounds", "only", "filter", "ordeal"])]
    minutes: Option<f64>,
}

#[derive(Subcommand)]
enum Command {
    /// The naive server itself.
    #[command(hide = true)]
    Naive {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        sandbox: SocketAddr,
    },
    /// One ordeal, in a process of its own.
    #[command(hide = true)]
    Ordeal {
        which: Ordeal,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        turns: usize,
        #[arg(long)]
        open: usize,
        #[arg(long)]
        liar: bool,
        #[arg(long)]
        verbose: bool,
    },
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("torture: the stand does not work: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<bool> {
    if let Some(Command::Naive { listen, sandbox }) = &cli.command {
        naive::serve(*listen, *sandbox)?;
        return Ok(true);
    }
    if let Some(Command::Ordeal { which, seed, turns, open, liar, verbose }) = cli.command {
        let against = if liar { Against::Liar } else { Against::Gateway };
        ordeal::play(which, ordeal::Settings { seed, turns, open, against, verbose })?;
        return Ok(true);
    }
    let drawn = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_secs());
    let seed = cli.seed.unwrap_or_else(drawn);
    if cli.table.table {
        return torture::table::run(&cli.table, seed, cli.jobs.min(64), cli.verbose);
    }
    let against = match cli.store.as_str() {
        "postgres" => Against::Replicas(usize::from(cli.replicas)),
        _ => Against::Gateway,
    };
    let settings = torture::Settings {
        rounds: cli.rounds,
        seed,
        jobs: cli.jobs.min(64),
        only: cli.only,
        filter: cli.filter.clone(),
        against,
        verbose: cli.verbose,
    };
    let ordeals = ordeal::Settings {
        seed,
        turns: cli.turns,
        open: cli.open,
        against: Against::Gateway,
        verbose: cli.verbose,
    };
    if cli.self_check {
        return self_check(&settings, ordeals);
    }
    if let Some(which) = cli.ordeal {
        return ordeals_alone(which, ordeals, cli.json);
    }
    if let Some(minutes) = cli.minutes {
        return soak(minutes, &settings, ordeals, cli.json);
    }
    let report = torture::run(&settings)?;
    print!("{}", report.text());
    if cli.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{} passed, {} failed", report.passed, report.failed + report.not_reached.len() as u64);
    }
    Ok(report.is_good())
}

/// The last line: the figures, or what was counted.
fn closing(json: bool, mut figures: serde_json::Value, passed: u64, failed: u64) {
    if json {
        figures["passed"] = passed.into();
        figures["failed"] = failed.into();
        println!("{figures}");
    } else {
        println!("{passed} passed, {failed} failed");
    }
}

fn ordeals_alone(which: Ordeal, settings: ordeal::Settings, json: bool) -> Result<bool> {
    let mut report = ordeal::Report::default();
    report.play(which, settings)?;
    print!("{}", report.text());
    println!("seed {}", settings.seed);
    let mut figures = serde_json::to_value(&report)?;
    figures["seed"] = settings.seed.into();
    closing(json, figures, report.sheet.passed, report.sheet.violations.len() as u64);
    Ok(report.is_good())
}

fn soak(minutes: f64, settings: &torture::Settings, ordeals: ordeal::Settings, json: bool) -> Result<bool> {
    let soaked: Soaked = ordeal::soak::run(minutes, settings, ordeals)?;
    print!("{}{}", soaked.rounds.text(), soaked.played.text());
    let (rounds, played) = (&soaked.rounds, &soaked.played.sheet);
    let g = &soaked.growth;
    println!(
        "{} minutes, {} rounds ({} by one gateway: memory {} to {} MB, open files {} to {}, threads {} to {}), {} ordeals",
        soaked.minutes,
        rounds.all.rounds,
        soaked.lasting_rounds,
        g.rss_first_mb,
        g.rss_last_mb,
        g.fds_first,
        g.fds_last,
        g.threads_first,
        g.threads_last,
        soaked.ordeals
    );
    let failed = rounds.failed + rounds.not_reached.len() as u64 + played.violations.len() as u64;
    closing(json, serde_json::to_value(&soaked)?, rounds.passed + played.passed, failed);
    Ok(soaked.is_good())
}

/// A guard that never cries guards nothing: what is wrong on purpose must be reported as what it is.
fn self_check(settings: &torture::Settings, ordeals: ordeal::Settings) -> Result<bool> {
    let mut seen = 0;
    let mut wrong = vec![("the naive server", Against::Naive), ("the lying manifest", Against::Liar)];
    if let Some(count) = settings.against.replicas() {
        // What one gateway does wrong is seen without.
        wrong = vec![("the lying manifest with replicas", Against::LiarReplicas(count))];
    }
    for (name, against) in wrong {
        let report = torture::run(&torture::Settings { rounds: 12, against, ..settings.clone() })?;
        let f = &report.all;
        println!(
            "{name}: {} duplicates, {} lost, {} byte-different in {} rounds",
            f.duplicates, f.lost, f.byte_different, f.rounds
        );
        let missed = match against {
            Against::Naive => f.duplicates == 0 || f.lost == 0 || f.byte_different == 0,
            // Nearly each round makes a second effect, in the gateway's own recovery, and each kind of fault does.
            _ => f.duplicates * 2 < f.rounds || report.by_point.values().any(|f| f.duplicates == 0),
        };
        if missed || report.is_good() {
            bail!("the harness does not see what {name} does wrong:\n{}", report.text());
        }
        seen += f.rounds;
    }
    // The same lie under the ordeals, in small.
    for which in Ordeal::All.each().into_iter().filter(|_| settings.against.replicas().is_none()) {
        let mut report = ordeal::Report::default();
        report.play(which, ordeal::Settings { turns: 1, open: 40, against: Against::Liar, ..ordeals })?;
        let tally = report.sheet.tally();
        let was_played = report.sheet.passed > 0 || tally != Default::default();
        if was_played && tally.duplicates == 0 {
            bail!("the ordeal {which:?} does not see what the lying manifest does wrong:\n{}", report.text());
        }
        seen += u64::from(was_played);
    }
    println!("{seen} passed, 0 failed");
    Ok(true)
}
