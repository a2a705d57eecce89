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
    let ways = match (cli.direct, cli.proxy) {
        (true, _) => vec![Way::Direct],
        (_, true) => vec![Way::Proxy],
        _ => vec![Way::Direct, Way::Proxy],
    };
    let settings = Settings { revision: cli.revision.clone(), only: cli.only.clone(), ways };
    let report = conformance::run(&settings)?;
    if cli.json {
        println!("{}", report.json());
    } else {
        println!("{} passed, {} failed", report.passed(), report.surprises());
    }
    Ok(report.is_good())
}
