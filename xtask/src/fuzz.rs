//! The fuzz targets under libFuzzer: each for a while, from the kept inputs on. What is found stays in `build/fuzz`, and
//! the command that shows it again on the stable compiler is printed.
//!
//! They are built apart from everything else, in `build/fuzz/target`, by a nightly compiler if there is one, else by the
//! stable one with its bootstrap switch: the address sanitizer asks for either.

use crate::{build_dir, cargo, locked, root, steps};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// How targets are run.
#[derive(clap::Args)]
pub struct Options {
    /// Minutes for each target
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Only this target; may be given several times
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// One JSON object on the last line: per target executions, seconds, findings
    #[arg(long)]
    json: bool,
}

/// What libFuzzer needs of the compiler: edges counted, comparisons seen, memory checked.
const FLAGS: [&str; 10] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Zsanitizer=address",
    "-Ccodegen-units=1",
    "--cfg",
    "fuzzing",
];
/// The longest input that is tried, in bytes, unless a kept one is longer.
const LONGEST: &str = "4096";
/// What one input may take, in seconds, and in MiB.
const SLOWEST: &str = "20";
const LARGEST: &str = "2048";

/// What became of one target.
struct Outcome {
    name: String,
    executions: u64,
    seconds: f64,
    findings: Vec<PathBuf>,
}

/// Builds the targets and runs them. Whether nothing was found.
///
/// # Errors
/// A target can't be built, doesn't exist, or ends without having run.
pub fn fuzz(options: &Options) -> Result<bool> {
    if !(options.minutes > 0.0 && options.minutes < 10_000.0) {
        bail!("--minutes must be more than 0");
    }
    let names = chosen(&options.target)?;
    let programs = build(&names)?;
    let seconds = (options.minutes * 60.0).ceil();
    let mut outcomes = Vec::new();
    for name in names {
        println!("\n== {name}: {seconds} s");
        let outcome = run(&programs.join(&name), &name, seconds)?;
        println!("{name}: {} executions in {:.0} s, {}", outcome.executions, outcome.seconds, told(&outcome));
        outcomes.push(outcome);
    }
    println!();
    for o in &outcomes {
        println!("{:10} {:12} executions {:6.0} s  {}", o.name, o.executions, o.seconds, told(o));
    }
    if options.json {
        println!("{}", shown(&outcomes));
    }
    Ok(outcomes.iter().all(|o| o.findings.is_empty()))
}

fn told(outcome: &Outcome) -> String {
    match outcome.findings.len() {
        0 => "nothing found".into(),
        n => format!("FOUND {n}"),
    }
}

/// `{"targets":{"name":{"executions":…,"seconds":…,"findings":["path"]}},"findings":…}`.
fn shown(outcomes: &[Outcome]) -> String {
    let quoted = |text: String| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let all: Vec<String> = outcomes
        .iter()
        .map(|Outcome { name, executions, seconds, findings }| {
            let findings: Vec<_> = findings.iter().map(|f| quoted(f.display().to_string())).collect();
            let findings = findings.join(",");
            format!(
                r#""{name}":{{"executions":{executions},"seconds":{seconds:.1},"findings":[{findings}]}}"#
            )
        })
        .collect();
    let findings: usize = outcomes.iter().map(|o| o.findings.len()).sum();
    format!(r#"{{"targets":{{{}}},"findings":{findings}}}"#, all.join(","))
}

/// The targets that there are, or those of them that were asked for.
fn chosen(asked: &[String]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(root().join("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        if let (Some(stem), true) = (path.file_stem(), path.extension().is_some_and(|e| e == "rs")) {
            all.push(stem.to_string_lossy().into_owned());
        }
    }
    all.sort();
    if let Some(unknown) = asked.iter().find(|name| !all.contains(name)) {
        bail!("there is no target {unknown:?}; there are {}", all.join(", "));
    }
    if !asked.is_empty() {
        all.retain(|name| asked.contains(name));
    }
    Ok(all)
}

/// This machine's target triple. With it named, build scripts and macros are left uninstrumented.
fn host() -> Result<String> {
    let out = Command::new("rustc").arg("-vV").output().context("rustc can't be started")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = text.lines().find_map(|l| l.strip_prefix("host: "));
    line.map(str::to_owned).context("rustc doesn't say what machine this is")
}

fn has_nightly() -> bool {
    let mut c = Command::new("cargo");
    c.args(["+nightly", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    c.status().is_ok_and(|s| s.success())
}

/// Builds them; gives the folder of the programs.
fn build(names: &[String]) -> Result<PathBuf> {
    let host = host()?;
    let folder = build_dir().join("fuzz/target");
    let mut c = if has_nightly() {
        let mut c = Command::new("cargo");
        c.arg("+nightly").current_dir(root());
        // Set by the cargo that runs this, for its own toolchain.
        c.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
        c
    } else {
        let mut c = cargo();
        c.env("RUSTC_BOOTSTRAP", "1");
        c
    };
    c.args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", &host]);
    for name in names {
        c.args(["--bin", name]);
    }
    c.env("RUSTFLAGS", FLAGS.join(" ")).env_remove("CARGO_ENCODED_RUSTFLAGS");
    c.env("CARGO_TARGET_DIR", &folder);
    steps::must(locked(&mut c))?;
    Ok(folder.join(host).join("release"))
}

/// Runs one target until its time is over or something is found.
fn run(program: &Path, name: &str, seconds: f64) -> Result<Outcome> {
    let place = build_dir().join("fuzz");
    let (grown, found) = (place.join("corpus").join(name), place.join("found").join(name));
    std::fs::create_dir_all(&grown)?;
    std::fs::create_dir_all(&found)?;
    let before = listed(&found)?;
    let mut c = Command::new(program);
    // The first folder takes new inputs, the second is only read.
    c.arg(&grown).arg(root().join("fuzz/seeds").join(name));
    c.arg(format!("-artifact_prefix={}/", found.display()));
    c.arg(format!("-max_total_time={seconds}"));
    c.arg(format!("-max_len={LONGEST}"));
    c.arg(format!("-timeout={SLOWEST}"));
    c.arg(format!("-rss_limit_mb={LARGEST}"));
    c.args(["-print_final_stats=1", "-print_funcs=0", "-use_value_profile=1"]);
    c.env("ASAN_OPTIONS", "detect_leaks=0").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut child = c.spawn().with_context(|| format!("{} can't be started", program.display()))?;
    let log = child.stderr.take().context("no standard error")?;
    let mut executions = 0;
    for line in BufReader::new(log).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        executions = executed(&line).unwrap_or(executions);
        // The steps on the way are for nobody; what is found is.
        if !line.starts_with(['#', '"']) && !line.starts_with("INFO:") && !line.starts_with("stat::") {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    let seconds = started.elapsed().as_secs_f64();
    let findings: Vec<PathBuf> = listed(&found)?.into_iter().filter(|f| !before.contains(f)).collect();
    for input in &findings {
        println!("FAILED: {name} is broken by {}", input.display());
        println!(
            "  again, on stable: COUNTERFOIL_FUZZ_INPUT={name}:{} cargo test -p counterfoil-fuzzing one_input -- --nocapture",
            input.display()
        );
        println!("  when it is mended, keep it: cp {} fuzz/seeds/{name}/", input.display());
    }
    if !status.success() && findings.is_empty() {
        bail!("{name} ended with {status}, and no input was left");
    }
    if executions == 0 && findings.is_empty() {
        bail!("{name} ran nothing");
    }
    Ok(Outcome { name: name.to_owned(), executions, seconds, findings })
}

/// `#4096 pulse …`, or `stat::number_of_executed_units: 4096`.
fn executed(line: &str) -> Option<u64> {
    if let Some(total) = line.strip_prefix("stat::number_of_executed_units:") {
        return total.trim().parse().ok();
    }
    line.strip_prefix('#')?.split_whitespace().next()?.parse().ok()
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = std::fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect::<Result<Vec<_>>>()?;
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_read() {
        assert_eq!(executed("#2097152\tpulse  cov: 1 ft: 2"), Some(2_097_152));
        assert_eq!(executed("stat::number_of_executed_units: 77"), Some(77));
        assert_eq!(executed("    #1 0x55 in f"), None);
        assert_eq!(executed("INFO: seed"), None);
    }

    #[test]
    fn findings_are_counted_in_the_last_line() {
        let outcome = |name: &str, findings: &[&str]| Outcome {
            name: name.into(),
            executions: 5,
            seconds: 1.26,
            findings: findings.iter().map(PathBuf::from).collect(),
        };
        let line = shown(&[outcome("a", &[]), outcome("b", &["/x\"y"])]);
        assert_eq!(
            line,
            r#"{"targets":{"a":{"executions":5,"seconds":1.3,"findings":[]},"b":{"executions":5,"seconds":1.3,"findings":["/x\"y"]}},"findings":1}"#
        );
    }
}
