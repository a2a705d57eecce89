//! The fixture server of the official conformance suite, made with the library and nothing else: what the suite expects a
//! server to offer. `--traps` adds what breaks servers that aren't careful.
//!
//! It prints `{"url": …}` on one line and serves until SIGTERM or SIGINT, then ends in order; with `--stdio` it serves the
//! client that started it.

#[path = "../fixture/mod.rs"]
mod fixture;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use counterfoil::config::Config;
use counterfoil::native::Eras;
use counterfoil::run::Server;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(name = "fixture", about = "The conformance suite's fixture server")]
struct Cli {
    /// The address; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The path of the endpoint.
    #[arg(long, default_value = "/mcp")]
    path: String,
    /// Which eras are served.
    #[arg(long, value_enum, default_value_t = Era::Both)]
    eras: Era,
    /// Serves one client over stdin and stdout instead; nothing is printed.
    #[arg(long)]
    stdio: bool,
    /// Adds the traps.
    #[arg(long)]
    traps: bool,
    /// Adds the tools that ask before they refund, and baskets; the configuration has the method that they call.
    #[arg(long)]
    orders: bool,
    /// Adds the tools of the example `basket`; the configuration has the method that they call.
    #[arg(long)]
    shop: bool,
    /// Where its ledger is; a temporary folder if left out.
    #[arg(long)]
    data: Option<PathBuf>,
    /// A configuration to start from.
    #[arg(long)]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Era {
    Both,
    Modern,
    Legacy,
}

#[tokio::main]
async fn main() -> Result<()> {
    let cli = Cli::parse();
    // From here on a signal is a wish to end in order.
    let mut ends = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let own = tempfile::tempdir().context("a temporary folder")?;
    let data = cli.data.unwrap_or_else(|| own.path().join("data"));
    let mut config = match &cli.config {
        Some(file) => {
            let mut config = Config::load(file)?;
            config.set_data(&data);
            config
        }
        None => Config::native("fixture", &data),
    };
    config.set_listen(cli.listen)?;
    config.server.path = cli.path;
    config.server.eras = match cli.eras {
        Era::Both => Eras::Both,
        Era::Modern => Eras::Modern,
        Era::Legacy => Eras::Legacy,
    };
    if cli.stdio {
        let [a, b] = &mut ends;
        let stop = async {
            tokio::select! {
                _ = a.recv() => {}
                _ = b.recv() => {}
            }
        };
        return Ok(Server::stdio(config, fixture::native(cli.traps, cli.orders, cli.shop), None, stop).await?);
    }
    let running = Server::start_with(config, fixture::native(cli.traps, cli.orders, cli.shop)).await?;
    println!("{}", serde_json::json!({ "url": running.endpoint() }));
    let [a, b] = &mut ends;
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
        failed = running.failed() => return Err(failed.into()),
    }
    running.shutdown().await?;
    Ok(())
}
