//! `cargo xtask bench`: builds and installs what is measured, then measures. The peers come from their registries into
//! `build/bench/`, each by a lock file; everything that is ours is an optimised build.

use crate::clients::venv;
use crate::install::{languages, locked_packages};
use crate::{build_dir, cargo, keep, keep_as, locked, root, steps};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The programs of the package with the benchmarks.
const PROGRAMS: [&str; 8] =
    ["asks", "bench", "echo", "echo_axum", "echo_rmcp", "exec_overhead", "fill", "seal_rate"];

/// Runs it. Whether every bar was met. With `first` as the first argument: a first look at cost, a read-only call and a
/// ledgered one at 1, 16 and 64 connections.
///
/// # Errors
/// Something can't be built, installed or measured.
pub fn run(args: &[String]) -> Result<bool> {
    if let Some((word, rest)) = args.split_first()
        && word == "first"
    {
        return first(rest);
    }
    // Replicas are compared with no peers.
    let replicas = args.iter().any(|a| a == "postgres" || a == "--store=postgres");
    if !replicas {
        peers()?;
    }
    let binary = counterfoil()?;
    build(&["--package", "counterfoil-benches", "--features", "servers", "--bins"])?;
    for name in PROGRAMS {
        keep("release", name)?;
    }
    // By themselves: they are built with the hooks for faults, which nothing else may have.
    let (package, example) = match replicas {
        false => ("counterfoil-ledger-sqlite", "commit_rate"),
        true => ("counterfoil-ledger-postgres", "throughput"),
    };
    build(&["--package", package, "--example", example])?;
    keep_as("release", &format!("examples/{example}"), example)?;
    if replicas {
        build(&["--package", "counterfoil-tests", "--features", "fixture", "--bin", "fixture"])?;
        keep("release", "fixture")?;
    }
    // Ledgers lie on the disk that the project lies on: a temporary folder may be in memory.
    let temporary = build_dir().join("bench/tmp");
    std::fs::create_dir_all(&temporary)?;
    let mut c = Command::new(build_dir().join("bin/release/bench"));
    c.args(args)
        .env("COUNTERFOIL_BIN", binary)
        .env("COUNTERFOIL_BUILD_DIR", build_dir())
        .env("COUNTERFOIL_FIXTURE", build_dir().join("bin/release/fixture"))
        .env("TMPDIR", temporary);
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

fn first(args: &[String]) -> Result<bool> {
    let binary = counterfoil()?;
    build(&["--package", "counterfoil-tests", "--bin", "load"])?;
    let mut c = Command::new(keep("release", "load")?);
    Ok(c.args(args).env("COUNTERFOIL_BIN", binary).status()?.success())
}

/// Servers made with the official SDKs.
fn peers() -> Result<()> {
    languages()?;
    let source = root().join("benches/peers");
    let folder = build_dir().join("bench");
    locked_packages(&source.join("ts"), &folder.join("ts"), &["server.mjs"])?;
    venv(&source.join("py/requirements.txt"), &folder.join("py"))?;
    for name in ["py/server.py", "py/state.py"] {
        let from = source.join(name);
        std::fs::copy(&from, folder.join(name)).with_context(|| from.display().to_string())?;
    }
    Ok(())
}
