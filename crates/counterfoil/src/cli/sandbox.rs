//! `sandbox`: the sandbox provider alone, its state on disk.

use super::fail::{Done, Fail};
use super::out::Out;
use crate::Error;
use crate::config::{DATA, SANDBOX_LISTEN};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The address; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = SANDBOX_LISTEN)]
    listen: SocketAddr,
    /// The directory of its state [default: .counterfoil/sandbox]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Don't wait for the disk: for benchmarks; survives a kill, not a power loss
    #[arg(long)]
    no_fsync: bool,
    /// How long it remembers idempotency keys
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "24h")]
    retention: Duration,
    /// How long each change holds its key in flight before it applies
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0ms")]
    in_flight: Duration,
    /// How long look-ups don't see yet what was applied
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0ms")]
    visibility_lag: Duration,
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    provider::parse_duration(text).map(ledger::Millis::duration)
}

pub(super) async fn run(args: Args, out: &Out) -> Done {
    let data = match args.data {
        Some(data) => data,
        None => {
            crate::run::data_directory(DATA.as_ref())?;
            PathBuf::from(DATA).join("sandbox")
        }
    };
    let mut config = ::sandbox::Config::new(args.listen, &data);
    config.fsync = !args.no_fsync;
    config.tune.retention = args.retention;
    config.tune.in_flight = args.in_flight;
    config.tune.visibility_lag = args.visibility_lag;
    let listen =
        |kind| signal(kind).map_err(|e| Fail::unavailable(format!("signals can't be received: {e}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut running = ::sandbox::Sandbox::start(config).await.map_err(Error::from)?;
    let url = format!("http://{}", running.addr());
    let shown = std::path::absolute(&data).unwrap_or(data);
    out.document(&json!({ "sandbox": url, "data": shown.display().to_string(), "pid": std::process::id() }));
    out.say(format!("{} {url}  (state in {})", out.bold("Sandbox provider"), shown.display()));
    out.say(format!("  what really happened:  curl -s {url}/_sandbox/effects"));
    out.say(format!("  lose the next reply:   curl -s {url}/_sandbox/rules -d '{{\"on\":\"POST /v1/refunds\",\"do\":\"apply_then_cut\"}}'"));
    out.say(format!("  no faults any more:    curl -s -X DELETE {url}/_sandbox/rules"));
    tracing::info!(url, "ready");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        ended = running.wait() => ended.map_err(Error::from)?,
    }
    running.shutdown().await;
    Ok(0)
}
