//! The official conformance suite as judge: it runs against the fixture server, directly, through a reverse proxy and
//! against replicas that share a ledger, and what comes of every scenario is compared with what is expected of it.
//!
//! Any difference fails: a scenario that fails without being listed, one that is listed and passes, one that is
//! missing, a check that was skipped or warns, a set that has another size. So it can't be green by running nothing.

pub mod expected;
pub mod judge;
pub mod results;
mod stand;

use crate::process;
use anyhow::{Result, bail};
use expected::Expected;
use judge::Figures;
use results::Required;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use stand::Stand;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The revisions that the suite has a requirement set for.
pub const REVISIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];

/// How long a run of the suite may take; it needs about 15 seconds.
const SUITE_WITHIN: Duration = Duration::from_secs(600);

/// How the suite comes to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// To its own address.
    Direct,
    /// Through nginx.
    Proxy,
    /// Through nginx, which gives each request to the next one of several replicas.
    Replicas,
}

impl Way {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Way::Direct => "direct",
            Way::Proxy => "proxy",
            Way::Replicas => "replicas",
        }
    }
}

/// What is to be run.
pub struct Settings {
    /// Only this revision.
    pub revision: Option<String>,
    /// Only this scenario.
    pub only: Option<String>,
    /// How.
    pub ways: Vec<Way>,
    /// How many replicas there are, on the way that has several.
    pub replicas: u8,
}

/// What came of it.
#[derive(Default)]
pub struct Report(Vec<(&'static str, Way, Figures)>);

impl Report {
    /// Scenarios that came out as expected, on all ways.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.0.iter().map(|(_, _, f)| f.as_expected).sum()
    }

    /// What is not as expected, on all ways.
    #[must_use]
    pub fn surprises(&self) -> usize {
        self.0.iter().map(|(_, _, f)| f.surprises.len()).sum()
    }

    /// Whether all is as expected, and there was something.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.surprises() == 0 && self.passed() > 0
    }

    /// One object: by revision the figures of the worst way, and those of each way.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut revisions = Map::new();
        for revision in REVISIONS {
            let of: Vec<_> = self.0.iter().filter(|(r, _, _)| *r == revision).collect();
            if of.is_empty() {
                continue;
            }
            let least = |figure: fn(&Figures) -> usize| of.iter().map(|(_, _, f)| figure(f)).min();
            let mut object = json!({
                "scored_pass": least(|f| f.scored_pass),
                "scored_total": least(|f| f.scored_total),
                "unscored_pass": least(|f| f.unscored_pass),
                "unscored_total": least(|f| f.unscored_total),
                "surprises": of.iter().map(|(_, _, f)| f.surprises.len()).sum::<usize>(),
            });
            for (_, way, figures) in of {
                object[way.as_str()] = figures.json();
            }
            revisions.insert(revision.into(), object);
        }
        json!({"good": self.is_good(), "revisions": revisions})
    }
}

/// Runs all that is to be run; says on the way what comes of it.
///
/// # Errors
/// The stand does not work: something is not installed, a server does not start, the suite breaks off.
pub fn run(settings: &Settings) -> Result<Report> {
    if let Some(named) = settings.revision.as_deref()
        && !REVISIONS.contains(&named)
    {
        bail!("the suite has requirement sets for {} only, none for {named:?}", REVISIONS.join(" and "));
    }
    let suite = Suite::find()?;
    let expected = Expected::load(&process::project().join("tests/conformance/expected.toml"))?;
    std::fs::create_dir_all(&suite.results)?;
    let mut report = Report::default();
    for way in &settings.ways {
        let mut stand = Stand::start(*way, settings.replicas, &suite.results)?;
        for revision in REVISIONS {
            if settings.revision.as_deref().is_some_and(|r| r != revision) {
                continue;
            }
            let required = suite.required(revision)?;
            let only = settings.only.as_deref();
            if only.is_some_and(|o| !required.all().any(|r| r == o)) {
                continue;
            }
            let (folder, scored_failed) = suite.run(&stand.url, revision, *way, only)?;
            let results = results::read(&folder)?;
            let mut figures = judge::judge(revision, *way, &required, &results, &expected, only);
            // The suite's own word must be the same.
            if only.is_none() && scored_failed != (figures.scored_pass < figures.scored_total) {
                figures.surprises.push(format!(
                    "the suite says that a scored scenario failed: {scored_failed}; of its results that is not so"
                ));
            }
            println!("{revision}, {}", way.as_str());
            print!("{}", figures.text());
            report.0.push((revision, *way, figures));
        }
        let passed = stand.stop()?;
        let Some((_, _, figures)) = report.0.last_mut() else {
            bail!("no requirement set names the scenario {:?}", settings.only);
        };
        let Some(passed) = passed else { continue };
        println!("{} requests through nginx, {} answered with a stream", passed.requests, passed.streams);
        if *way == Way::Replicas {
            let shares: Vec<String> = passed.by.values().map(usize::to_string).collect();
            println!("by replica: {}", shares.join(", "));
        }
        if let Some(why) = stand.complaint(&passed, settings.only.is_none()) {
            println!("FAILED: {why}");
            figures.surprises.push(why);
        }
    }
    Ok(report)
}

/// The installed suite.
struct Suite {
    node: PathBuf,
    package: PathBuf,
    results: PathBuf,
}

impl Suite {
    fn find() -> Result<Suite> {
        let build = process::build_dir()?;
        let package = build.join("conformance/node_modules/@modelcontextprotocol/conformance");
        if !package.join("dist/index.js").is_file() {
            bail!("the conformance suite is not installed: run `cargo xtask install`");
        }
        Ok(Suite { node: process::node(&build), package, results: build.join("conformance/results") })
    }

    fn required(&self, revision: &str) -> Result<Required> {
        Required::load(&self.package.join("requirements").join(format!("{revision}.yaml")))
    }

    /// The folder of results, and whether the suite says that a scored scenario failed.
    fn run(&self, url: &str, revision: &str, way: Way, only: Option<&str>) -> Result<(PathBuf, bool)> {
        let folder = self.results.join(format!("{}-{revision}", way.as_str()));
        // What an earlier run left must not count.
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let mut command = Command::new(&self.node);
        command.arg(self.package.join("dist/index.js")).args(["server", "--url", url]);
        match only {
            None => command.args(["--requirements", revision]),
            Some(scenario) => command.args(["--scenario", scenario, "--spec-version", revision, "--force"]),
        };
        // What it would write elsewhere goes there too.
        command.arg("--output-dir").arg(&folder).current_dir(&folder);
        let out = process::run(&mut command, SUITE_WITHIN)?;
        let said = [out.stdout.as_slice(), out.stderr.as_slice()].concat();
        std::fs::write(folder.join("said.txt"), &said)?;
        match out.status.code() {
            Some(0) => Ok((folder, false)),
            Some(1) => Ok((folder, true)),
            _ => bail!("the suite ended with {}\n{}", out.status, String::from_utf8_lossy(&said)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
    use super::*;

    #[test]
    fn the_page_names_every_reason_and_every_scenario_that_does_not_pass() {
        let project = process::project();
        let page = std::fs::read_to_string(project.join("docs/conformance.md")).unwrap();
        let expected = Expected::load(&project.join("tests/conformance/expected.toml")).unwrap();
        for fails in &expected.fails {
            assert!(page.contains(&fails.reason), "docs/conformance.md does not say: {}", fails.reason);
            for scenario in &fails.scenarios {
                assert!(
                    page.contains(&format!("`{scenario}`")),
                    "docs/conformance.md does not name {scenario}"
                );
            }
        }
        for (revision, totals) in &expected.revision {
            let row = format!("| {revision} | {} | {} |", totals.scored, totals.unscored);
            assert!(page.contains(&row), "docs/conformance.md has no row {row}");
        }
    }
}
