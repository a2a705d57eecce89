//! Steps of a run: each says what it does, how long it took and what it counted; a failed one does not hide those
//! after it.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a command; its output is shown.
///
/// # Errors
/// It can't be started, or fails.
pub fn must(c: &mut Command) -> Result<()> {
    let shown = shown(c);
    println!("+ {shown}");
    let status = c.status().with_context(|| shown.clone())?;
    if status.success() { Ok(()) } else { bail!("`{shown}` ended with {status}") }
}

fn shown(c: &Command) -> String {
    let program = c.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    let args: Vec<_> = c.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
    format!("{name} {}", args.join(" "))
}

/// How many lines of a step that failed are told again at the end.
const TOLD_AGAIN: usize = 60;

/// One step at work.
#[derive(Default)]
pub struct Step {
    passed: u64,
    failed: u64,
    told: Told,
}

/// What is told again if the step fails: what cargo's tests say of those that failed, or else the last lines.
#[derive(Default)]
struct Told {
    failures: Vec<String>,
    of_failures: bool,
    last: VecDeque<String>,
}

impl Told {
    fn line(&mut self, line: &str) {
        self.of_failures = (self.of_failures || line == "failures:") && !line.starts_with("test result");
        if self.of_failures {
            self.failures.push(line.to_owned());
        }
        self.last.push_back(line.to_owned());
        if self.last.len() > TOLD_AGAIN {
            self.last.pop_front();
        }
    }

    fn again(self) -> Vec<String> {
        let mut again = if self.failures.is_empty() { self.last.into() } else { self.failures };
        again.truncate(TOLD_AGAIN);
        again
    }
}

impl Step {
    /// Says something on the way.
    pub fn note(&self, text: &str) {
        println!("{text}");
    }

    /// Counts a check that passed.
    pub fn pass(&mut self) {
        self.passed += 1;
    }

    /// Counts a check that failed, and says so.
    pub fn fail(&mut self, text: &str) {
        println!("FAILED: {text}");
        self.told.line(text);
        self.failed += 1;
    }

    /// A command that counts as one check.
    ///
    /// # Errors
    /// It can't be started, or fails.
    pub fn command(&mut self, c: &mut Command) -> Result<()> {
        must(c)?;
        self.passed += 1;
        Ok(())
    }

    /// A command that counts its checks itself: lines of cargo test, or `N passed, N failed`.
    ///
    /// # Errors
    /// It can't be started, fails, or counts nothing.
    pub fn counted(&mut self, c: &mut Command) -> Result<()> {
        let shown = shown(c);
        println!("+ {shown}");
        let mut child =
            c.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().with_context(|| shown.clone())?;
        let out = child.stdout.take().context("no standard output")?;
        let (mut passed, mut failed) = (0, 0);
        for line in BufReader::new(out).lines() {
            let line = line?;
            self.told.line(&line);
            let counts = counts(&line);
            if let Some((p, f)) = counts {
                passed += p;
                failed += f;
            }
            // This program's own closing line is the only one of that form.
            if counts.is_none() || line.starts_with("test result") {
                println!("{line}");
                std::io::stdout().flush()?;
            }
        }
        let status = child.wait()?;
        self.passed += passed;
        self.failed += failed;
        if !status.success() {
            bail!("`{shown}` ended with {status}");
        }
        if passed == 0 {
            bail!("`{shown}` ran no check");
        }
        Ok(())
    }
}

/// `test result: ok. 12 passed; 0 failed; …`, or `12 passed, 0 failed`.
fn counts(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result:").and_then(|r| r.split_once(". ")).map_or(line, |(_, r)| r);
    let mut numbers = [0; 2];
    for ((part, word), n) in rest.split([';', ',']).map(str::trim).zip(["passed", "failed"]).zip(&mut numbers)
    {
        *n = part.strip_suffix(word)?.trim().parse().ok()?;
    }
    (rest.contains("passed") && rest.contains("failed")).then_some((numbers[0], numbers[1]))
}

/// A run.
pub struct Steps {
    only: Option<String>,
    started: Instant,
    done: Vec<Done>,
}

/// A step that is over.
struct Done {
    name: String,
    took: Duration,
    passed: u64,
    failed: u64,
    again: Vec<String>,
}

impl Steps {
    /// A run of all steps, or of those whose name contains a word.
    pub fn new(only: Option<String>) -> Steps {
        Steps { only, started: Instant::now(), done: Vec::new() }
    }

    /// Runs a step.
    pub fn run(&mut self, name: &str, work: impl FnOnce(&mut Step) -> Result<()>) {
        if self.only.as_ref().is_some_and(|word| !name.contains(word.as_str())) {
            return;
        }
        println!("\n== {name}");
        let started = Instant::now();
        let mut step = Step::default();
        if let Err(e) = work(&mut step) {
            println!("FAILED: {e:#}");
            step.told.line(&format!("{e:#}"));
            // The command's own count may have it already.
            step.failed = step.failed.max(1);
        }
        let Step { passed, failed, told } = step;
        let again = if failed > 0 { told.again() } else { Vec::new() };
        self.done.push(Done { name: name.to_owned(), took: started.elapsed(), passed, failed, again });
    }

    /// Says what came of all steps, at last in the form that other programs read. Whether all is well.
    pub fn close(&self) -> bool {
        for step in self.done.iter().filter(|d| !d.again.is_empty()) {
            println!("\n== failed: {}", step.name);
            step.again.iter().for_each(|line| println!("{line}"));
        }
        println!("\n== in {} s", self.started.elapsed().as_secs());
        for Done { name, took, passed, failed, .. } in &self.done {
            let word = if *failed == 0 { "ok" } else { "FAILED" };
            println!("{word:7}{:6} s  {passed:5} passed {failed:4} failed  {name}", took.as_secs());
        }
        let passed: u64 = self.done.iter().map(|d| d.passed).sum();
        let failed: u64 = self.done.iter().map(|d| d.failed).sum();
        println!("{passed} passed, {failed} failed");
        failed == 0 && passed > 0
    }

    /// The same for programs: `{"passed", "failed", "seconds", "steps": [{"name", "passed", "failed", "seconds"}, …]}`.
    pub fn document(&self) -> Value {
        let step = |d: &Done| json!({ "name": d.name, "passed": d.passed, "failed": d.failed, "seconds": d.took.as_secs() });
        json!({
            "passed": self.done.iter().map(|d| d.passed).sum::<u64>(),
            "failed": self.done.iter().map(|d| d.failed).sum::<u64>(),
            "seconds": self.started.elapsed().as_secs(),
            "steps": self.done.iter().map(step).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_read() {
        assert_eq!(
            counts(
                "test result: ok. 12 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s"
            ),
            Some((12, 1))
        );
        assert_eq!(counts("test result: FAILED. 0 passed; 3 failed; 0 ignored"), Some((0, 3)));
        assert_eq!(counts("300 passed, 0 failed"), Some((300, 0)));
        assert_eq!(counts("it passed, nothing failed"), None);
        assert_eq!(counts("ok"), None);
    }

    #[test]
    fn a_run_is_told_to_programs() {
        let mut steps = Steps::new(Some("o".into()));
        steps.run("one", |s| {
            s.pass();
            Ok(())
        });
        steps.run("two", |_| bail!("no"));
        steps.run("left", |_| bail!("not run"));
        let document = steps.document();
        assert_eq!((&document["passed"], &document["failed"]), (&json!(1), &json!(1)));
        let named: Vec<_> = document["steps"].as_array().into_iter().flatten().map(|s| &s["name"]).collect();
        assert_eq!(named, ["one", "two"]);
        assert!(!steps.close());
    }

    #[test]
    fn what_failed_is_told_again() {
        let again = |lines: &[&str]| {
            let mut told = Told::default();
            lines.iter().for_each(|line| told.line(line));
            told.again()
        };
        let cargo = ["test a ... ok", "failures:", "---- b ----", "panicked", "test result: FAILED. 1", "c"];
        assert_eq!(again(&cargo), ["failures:", "---- b ----", "panicked"]);
        let lines: Vec<String> = (0..TOLD_AGAIN + 9).map(|n| n.to_string()).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(again(&lines), lines[9..], "the last ones, where nothing says which are the failures");
    }
}
