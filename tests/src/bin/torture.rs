//! `cargo xtask torture`: crash windows by violence. See the library's module of that name.

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use counterfoil_tests::naive;
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
    let drawn = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_secs());
    let seed = cli.seed.unwrap_or_else(drawn);
    let settings = torture::Settings {
        rounds: cli.rounds,
        seed,
        jobs: cli.jobs.min(64),
        only: cli.only,
        filter: cli.filter.clone(),
        against: Against::Gateway,
        verbose: cli.verbose,
    };
    if cli.self_check {
        return self_check(&settings);
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

/// A guard that never cries guards nothing: what is wrong on purpose must be reported as what it is.
fn self_check(settings: &torture::Settings) -> Result<bool> {
    let mut seen = 0;
    for (name, against) in [("the naive server", Against::Naive), ("the lying manifest", Against::Liar)] {
        let report = torture::run(&torture::Settings { rounds: 12, against, ..settings.clone() })?;
        let f = &report.all;
        println!(
            "{name}: {} duplicates, {} lost, {} byte-different in {} rounds",
            f.duplicates, f.lost, f.byte_different, f.rounds
        );
        let missed = match against {
            Against::Naive => f.duplicates == 0 || f.lost == 0 || f.byte_different == 0,
            // Nearly each fault makes a second effect, in the gateway's own recovery.
            _ => f.duplicates * 2 < f.rounds,
        };
        if missed || report.is_good() {
            bail!("the harness does not see what {name} does wrong:\n{}", report.text());
        }
        seen += f.rounds;
    }
    println!("{seen} passed, 0 failed");
    Ok(true)
}
