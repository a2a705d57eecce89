//! `cargo xtask bench first`: a first look at cost. Starts the gateway in sandbox mode and the provider without
//! fsync, both in a temporary folder, and asks from 1, 16 and 64 connections.

use anyhow::{Context, Result, bail};
use clap::Parser;
use counterfoil_tests::load::{Figures, Kind, measure, try_one};
use counterfoil_tests::process::{Process, binary};
use counterfoil_tests::stand::Project;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::time::Duration;

#[derive(Parser)]
#[command(name = "load", about = "A first look at cost")]
struct Cli {
    /// How long each figure is measured, in seconds.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// The figures as one JSON object on the last line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("load: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let mut project = Project::empty()?;
    let mut sandbox = Command::new(binary()?);
    sandbox
        .args(["sandbox", "--json", "--no-fsync", "--listen", "127.0.0.1:0", "--data"])
        .arg(project.path().join("sandbox"));
    let mut sandbox = Process::start(&mut sandbox, &project.path().join("sandbox.log"))?;
    let listen = sandbox.ready()?["sandbox"].as_str().context("the sandbox provider's address")?.to_owned();
    project.serve = vec!["--sandbox-listen".into(), listen.trim_start_matches("http://").to_owned()];
    let gateway = project.gateway(None)?;
    let lasting = Duration::from_secs(cli.seconds.clamp(1, 60));
    println!(
        "{:18}{:>13}{:>12}{:>14}{:>12}{:>10}{:>10}",
        "", "connections", "requests", "requests/s", "CPU us", "p50 us", "p99 us"
    );
    let mut named = Map::new();
    for kind in Kind::ALL {
        try_one(gateway.addr, kind)?;
        // The first requests pay for what is made once.
        warm(gateway.addr, gateway.process.pid(), kind)?;
        for connections in [1, 16, 64] {
            let f: Figures = measure(gateway.addr, gateway.process.pid(), kind, connections, lasting)?;
            if f.errors > 0 {
                bail!("{} of {} answers to {} were not what was asked for", f.errors, f.requests, f.kind);
            }
            println!(
                "{:18}{:>13}{:>12}{:>14.0}{:>12.1}{:>10}{:>10}",
                f.kind, f.connections, f.requests, f.per_second, f.cpu_us_per_request, f.p50_us, f.p99_us
            );
            let name = format!("{}_{}", f.kind, f.connections);
            named.insert(format!("{name}_per_second"), json!(f.per_second.round()));
            named.insert(format!("{name}_cpu_us"), json!((f.cpu_us_per_request * 10.0).round() / 10.0));
            named.insert(format!("{name}_p50_us"), json!(f.p50_us));
            named.insert(format!("{name}_p99_us"), json!(f.p99_us));
        }
    }
    if cli.json {
        println!("{}", Value::Object(named));
    }
    Ok(())
}

fn warm(addr: SocketAddr, pid: u32, kind: Kind) -> Result<()> {
    measure(addr, pid, kind, 4, Duration::from_millis(500)).map(|_| ())
}
