//! `control`: the server that the gateway is measured beside. See the library's module of that name.

use clap::Parser;
use counterfoil_sim::control::{Settings, serve};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(name = "control", about = "A refund server with an in-progress record and no provider key")]
struct Cli {
    /// Where it listens.
    #[arg(long)]
    listen: SocketAddr,
    /// The provider's address.
    #[arg(long)]
    provider: SocketAddr,
    /// The file of its records.
    #[arg(long)]
    file: PathBuf,
    /// How long the provider may take, in milliseconds.
    #[arg(long, default_value_t = 600)]
    timeout_ms: u64,
    /// How long after its claim a run is taken for dead, in milliseconds.
    #[arg(long, default_value_t = 800)]
    in_progress_ms: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = serve(Settings {
        listen: cli.listen,
        provider: cli.provider,
        file: cli.file,
        timeout: Duration::from_millis(cli.timeout_ms),
        in_progress: Duration::from_millis(cli.in_progress_ms),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("control: {e:#}");
            ExitCode::FAILURE
        }
    }
}
