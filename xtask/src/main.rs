//! The project's own commands: `cargo xtask test | torture | bench`.
//!
//! `test` is the one command that tells whether the project works: it installs what it needs by package name into
//! `build/` (and, where a tool is missing, with `apt-get`), runs every check, and closes with `N passed, N failed`.

mod docs;
mod install;
mod steps;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use steps::Steps;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own commands")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what is needed and run every check
    Test {
        /// Fewer torture rounds
        #[arg(long)]
        quick: bool,
        /// Only steps whose name contains this word
        #[arg(long, value_name = "WORD")]
        only: Option<String>,
    },
    /// Kill the gateway at every point of its way, retry, and count
    #[command(disable_help_flag = true)]
    Torture {
        /// Passed on: --rounds N, --seed S, --jobs N, --only N, --filter WORD, --json, --verbose, --self-check
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measure
    #[command(subcommand)]
    Bench(Bench),
    /// Install the official clients into build/ and nothing else
    Install,
}

#[derive(Subcommand)]
enum Bench {
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

/// The project's folder.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), std::path::Path::to_path_buf)
}

/// Where everything that is installed or copied goes; not part of the repository.
fn build_dir() -> PathBuf {
    root().join("build")
}

fn cargo() -> Command {
    let mut c = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    c.current_dir(root());
    c
}

/// Nothing is resolved anew where a run must be repeatable.
fn locked(c: &mut Command) -> &mut Command {
    if std::env::var_os("CI").is_some() { c.arg("--locked") } else { c }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Task::Test { quick, only } => test(quick, only),
        Task::Torture { args } => torture(&args),
        Task::Bench(Bench::First { json, seconds }) => bench(json, seconds),
        Task::Install => install::clients().map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// Builds the binary with failpoints compiled in, and keeps it where no other build replaces it.
fn failpoints_binary() -> Result<PathBuf> {
    let mut c = cargo();
    c.args(["build", "--package", "counterfoil", "--features", "failpoints"]);
    steps::must(locked(&mut c))?;
    keep("debug", "counterfoil")
}

fn keep(profile: &str, name: &str) -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let folder = build_dir().join("bin").join(profile);
    std::fs::create_dir_all(&folder)?;
    let kept = folder.join(name);
    // A running copy can't be written over, but it can be replaced.
    let fresh = folder.join(format!("{name}.new"));
    std::fs::copy(target.join(profile).join(name), &fresh)
        .with_context(|| format!("{name} was not built"))?;
    std::fs::rename(&fresh, &kept)?;
    Ok(kept)
}

fn harness(profile: &str, bin: &str) -> Result<PathBuf> {
    let mut c = cargo();
    c.args(["build", "--package", "counterfoil-tests", "--bin", bin]);
    if profile == "release" {
        c.arg("--release");
    }
    steps::must(locked(&mut c))?;
    keep(profile, bin)
}

fn torture(args: &[String]) -> Result<bool> {
    install::clients()?;
    let binary = failpoints_binary()?;
    let mut c = Command::new(harness("debug", "torture")?);
    c.args(args).env("COUNTERFOIL_BIN", binary).env("COUNTERFOIL_BUILD_DIR", build_dir());
    Ok(c.status()?.success())
}

fn bench(json: bool, seconds: u64) -> Result<bool> {
    let mut c = cargo();
    c.args(["build", "--release", "--package", "counterfoil"]);
    steps::must(locked(&mut c))?;
    let binary = keep("release", "counterfoil")?;
    let mut c = Command::new(harness("release", "load")?);
    c.args(["--seconds", &seconds.to_string()]).env("COUNTERFOIL_BIN", binary);
    if json {
        c.arg("--json");
    }
    Ok(c.status()?.success())
}

fn test(quick: bool, only: Option<String>) -> Result<bool> {
    let mut steps = Steps::new(only);
    steps.run("format", |s| s.command(cargo().args(["fmt", "--all", "--check"])));
    steps.run("install", |s| {
        install::clients()?;
        s.note("the official clients are in build/clients");
        Ok(())
    });
    steps.run("lints", |s| {
        let mut c = cargo();
        c.args(["clippy", "--workspace", "--all-targets", "--features", "counterfoil-tests/e2e"]);
        locked(&mut c).args(["--", "-D", "warnings"]);
        s.command(&mut c)
    });
    steps.run("unit and integration tests", |s| {
        let mut c = cargo();
        c.args(["test", "--workspace", "--no-fail-fast"]);
        s.counted(locked(&mut c))
    });
    let mut binary = None;
    steps.run("build with failpoints", |_| {
        binary = Some(failpoints_binary()?);
        Ok(())
    });
    let binary = binary.unwrap_or_else(|| build_dir().join("bin/debug/counterfoil"));
    let with = |c: &mut Command| {
        c.env("COUNTERFOIL_BIN", &binary).env("COUNTERFOIL_BUILD_DIR", build_dir());
    };
    steps.run("end to end", |s| {
        let mut c = cargo();
        c.args(["test", "--package", "counterfoil-tests", "--features", "e2e", "--no-fail-fast", "--tests"]);
        with(locked(&mut c).args(["--", "--test-threads=2"]));
        s.counted(&mut c)
    });
    let mut tool = None;
    steps.run("torture: the harness sees a naive server's faults", |s| {
        let harness = tool.insert(harness("debug", "torture")?);
        let mut c = Command::new(harness);
        with(c.args(["--self-check", "--seed", "7"]));
        s.counted(&mut c)
    });
    let rounds = if quick { "60" } else { "300" };
    steps.run("torture", |s| {
        let harness = tool.take().unwrap_or_else(|| build_dir().join("bin/debug/torture"));
        let mut c = Command::new(harness);
        with(c.args(["--rounds", rounds]));
        s.counted(&mut c)
    });
    steps.run("documents", |s| docs::check(s, &root(), &binary));
    Ok(steps.close())
}
