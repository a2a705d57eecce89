//! What is expected of the suite: how many scenarios there are, which fail and why, which checks may be skipped or
//! warn. Nothing else may happen.

use super::Way;
use super::results::{Outcome, Status};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The file `tests/conformance/expected.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// How many scenarios each revision's set has.
    #[serde(default)]
    pub revision: BTreeMap<String, Totals>,
    /// Scenarios that don't pass.
    #[serde(default)]
    pub fails: Vec<Fails>,
    /// Checks that are skipped or warn in scenarios that pass.
    #[serde(default)]
    pub allowed: Vec<Allowed>,
}

/// The size of a set.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Scenarios that decide conformance.
    pub scored: usize,
    /// Scenarios that are run and reported.
    pub unscored: usize,
}

/// Scenarios that don't pass, for one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fails {
    /// Why.
    pub reason: String,
    /// In which revision.
    pub revision: String,
    /// What comes of them.
    #[serde(default = "failed")]
    pub outcome: Outcome,
    /// On which way only.
    pub way: Option<Way>,
    /// Their names.
    pub scenarios: Vec<String>,
}

fn failed() -> Outcome {
    Outcome::Failed
}

/// A check that need not succeed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// Why.
    pub reason: String,
    /// In which revision.
    pub revision: String,
    /// In which scenario.
    pub scenario: String,
    /// Its id.
    pub check: String,
    /// What comes of it.
    pub status: Status,
    /// On which way only.
    pub way: Option<Way>,
}

impl Expected {
    /// Reads the file.
    ///
    /// # Errors
    /// It can't be read, or contradicts itself.
    pub fn load(file: &Path) -> Result<Expected> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        Expected::parse(&text).with_context(|| file.display().to_string())
    }

    /// Reads its text.
    ///
    /// # Errors
    /// It is no such text, or contradicts itself.
    pub fn parse(text: &str) -> Result<Expected> {
        let expected: Expected = toml::from_str(text)?;
        let mut seen = BTreeSet::new();
        for fails in &expected.fails {
            if fails.reason.trim().is_empty() || fails.outcome == Outcome::Passed {
                bail!("what fails has a reason, and an outcome that is not passed: {fails:?}");
            }
            for scenario in &fails.scenarios {
                if !seen.insert((&fails.revision, fails.way, scenario)) {
                    bail!("{scenario} is listed twice for {}", fails.revision);
                }
            }
        }
        for allowed in &expected.allowed {
            let may = matches!(allowed.status, Status::Skipped | Status::Warning);
            if allowed.reason.trim().is_empty() || !may {
                bail!("what is allowed has a reason, and is SKIPPED or WARNING: {allowed:?}");
            }
        }
        Ok(expected)
    }

    /// How a scenario is expected to end, and the reason if it is not to pass.
    #[must_use]
    pub fn of(&self, revision: &str, way: Way, scenario: &str) -> (Outcome, Option<&str>) {
        let mut fits = self.fails.iter().filter(|f| {
            f.revision == revision
                && f.way.is_none_or(|w| w == way)
                && f.scenarios.iter().any(|s| s == scenario)
        });
        fits.next().map_or((Outcome::Passed, None), |f| (f.outcome, Some(&f.reason)))
    }

    /// Names of scenarios that are listed for a revision.
    #[must_use]
    pub fn named(&self, revision: &str) -> BTreeSet<&str> {
        let fails = self.fails.iter().filter(|f| f.revision == revision);
        let fails = fails.flat_map(|f| f.scenarios.iter().map(String::as_str));
        let allowed = self.allowed.iter().filter(|a| a.revision == revision);
        fails.chain(allowed.map(|a| a.scenario.as_str())).collect()
    }

    /// Checks that may be skipped or warn in a scenario.
    pub fn allowed<'a>(
        &'a self,
        revision: &'a str,
        way: Way,
        scenario: &'a str,
    ) -> impl Iterator<Item = &'a Allowed> {
        self.allowed.iter().filter(move |a| {
            a.revision == revision && a.scenario == scenario && a.way.is_none_or(|w| w == way)
        })
    }
}
