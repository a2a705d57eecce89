//! `cargo xtask bench`: builds and installs what is measured, then measures. The peers come from their registries into
//! `build/bench/`, each by a lock file; everything that is ours is an optimised build.

use crate::clients::venv;
use crate::install::{languages, locked_packages};
use crate::{build_dir, cargo, keep, keep_as, locked, root, steps};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// What `cargo xtask bench` is asked for.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    first: Option<First>,
    /// The figures as one JSON object on the last line
    #[arg(long)]
    json: bool,
    /// Only figures whose name contains this, and those that are taken together with them
    #[arg(long, value_name = "FIGURE")]
    only: Option<String>,
    /// How long each side of a pair is measured, in seconds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

#[derive(clap::Subcommand)]
enum First {
    /// A first look at cost: a read-only call and a ledgered one at 1, 16 and 64 connections
    First {
        /// The figures as one JSON object on the last line
        #[arg(long)]
        json: bool,
        /// How long each figure is measured, in seconds
        #[arg(long, default_value_t = 4)]
        seconds: u64,
    },
}

/// The programs of the package with the benchmarks.
const PROGRAMS: [&str; 5] = ["bench", "echo", "echo_axum", "echo_rmcp", "fill"];

/// Runs it. Whether every bar was met.
///
/// # Errors
/// Something can't be built, installed or measured.
pub fn run(args: &Args) -> Result<bool> {
    if let Some(First::First { json, seconds }) = args.first {
        return first(json, seconds);
    }
    peers()?;
    let binary = counterfoil()?;
    build(&["--package", "counterfoil-benches", "--features", "servers", "--bins"])?;
    for name in PROGRAMS {
        keep("release", name)?;
    }
    // By itself: it is built with the hooks for faults, which nothing else may have.
    build(&["--package", "counterfoil-ledger-sqlite", "--example", "commit_rate"])?;
    keep_as("release", "examples/commit_rate", "commit_rate")?;
    // Ledgers lie on the disk that the project lies on: a temporary folder may be in memory.
    let temporary = build_dir().join("bench/tmp");
    std::fs::create_dir_all(&temporary)?;
    let mut c = Command::new(build_dir().join("bin/release/bench"));
    c.args(["--seconds", &args.seconds.to_string()])
        .env("COUNTERFOIL_BIN", binary)
        .env("COUNTERFOIL_BUILD_DIR", build_dir())
        .env("TMPDIR", temporary);
    if let Some(only) = &args.only {
        c.args(["--only", only]);
    }
    if args.json {
        c.arg("--json");
    }
    match c.status()?.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => bail!("the figures could not be taken"),
    }
}

fn build(args: &[&str]) -> Result<()> {
    steps::must(locked(cargo().args(["build", "--release"]).args(args)))
}

/// The binary as it is shipped, built by itself, so that no other package's features are in it.
fn counterfoil() -> Result<PathBuf> {
    build(&["--package", "counterfoil"])?;
    keep("release", "counterfoil")
}

fn first(json: bool, seconds: u64) -> Result<bool> {
    let binary = counterfoil()?;
    build(&["--package", "counterfoil-tests", "--bin", "load"])?;
    let mut c = Command::new(keep("release", "load")?);
    c.args(["--seconds", &seconds.to_string()]).env("COUNTERFOIL_BIN", binary);
    if json {
        c.arg("--json");
    }
    Ok(c.status()?.success())
}

/// Servers made with the official SDKs.
fn peers() -> Result<()> {
    languages()?;
    let source = root().join("benches/peers");
    let folder = build_dir().join("bench");
    locked_packages(&source.join("ts"), &folder.join("ts"), &["server.mjs"])?;
    venv(&source.join("py/requirements.txt"), &folder.join("py"))?;
    let (from, to) = (source.join("py/server.py"), folder.join("py/server.py"));
    std::fs::copy(&from, to).with_context(|| from.display().to_string())?;
    Ok(())
}
