//! `cargo xtask conformance`: the official suite against the fixture server. See the library's module of that name.

use anyhow::Result;
use clap::Parser;
use counterfoil_tests::conformance::{self, Settings, Way};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "conformance",
    about = "Run the official conformance suite and compare it with what is expected"
)]
struct Cli {
    /// The figures as one JSON object on the last line.
    #[arg(long)]
    json: bool,
    /// Only this revision.
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Only this scenario.
    #[arg(long, value_name = "SCENARIO")]
    only: Option<String>,
    /// Only directly.
    #[arg(long, conflicts_with = "proxy")]
    direct: bool,
    /// Only through the reverse proxy.
    #[arg(long)]
    proxy: bool,
    /// Only against so many replicas that share a ledger in PostgreSQL, behind the reverse proxy.
    #[arg(long, value_name = "N", conflicts_with_all = ["direct", "proxy"], value_parser = clap::value_parser!(u8).range(1..=16))]
    replicas: Option<u8>,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("conformance: the stand does not work: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<bool> {
    let ways = match (cli.direct, cli.proxy, cli.replicas) {
        (true, ..) => vec![Way::Direct],
        (_, true, _) => vec![Way::Proxy],
        (.., Some(_)) => vec![Way::Replicas],
        _ => vec![Way::Direct, Way::Proxy],
    };
    let replicas = cli.replicas.unwrap_or(1);
    let settings = Settings { revision: cli.revision.clone(), only: cli.only.clone(), ways, replicas };
    let report = conformance::run(&settings)?;
    if cli.json {
        println!("{}", report.json());
    } else {
        println!("{} passed, {} failed", report.passed(), report.surprises());
    }
    Ok(report.is_good())
}
