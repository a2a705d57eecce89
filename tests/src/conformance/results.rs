//! What a run of the suite left: a folder for each scenario with the checks that it made; and the requirement set
//! that says which scenarios there are.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// As it should be.
    Success,
    /// Against a rule.
    Failure,
    /// Against a recommendation.
    Warning,
    /// Not checked.
    Skipped,
    /// Only said.
    Info,
}

/// A check of a scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Its id, not always unique in a scenario.
    pub id: String,
    /// What came of it.
    pub status: Status,
    /// What it is about.
    #[serde(default)]
    pub description: String,
    /// Why it did not succeed.
    pub error_message: Option<String>,
    /// What it saw.
    pub details: Option<Value>,
}

impl Check {
    /// Why it did not succeed, in a line.
    #[must_use]
    pub fn why(&self) -> String {
        let details = self.details.as_ref().map(Value::to_string).unwrap_or_default();
        let text = match &self.error_message {
            Some(message) if details.is_empty() => message.clone(),
            Some(message) => format!("{message} {details}"),
            None => format!("{} {details}", self.description),
        };
        text.chars().take(600).map(|c| if c == '\n' { ' ' } else { c }).collect()
    }
}

/// What came of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// At least one check of its own succeeded, and none failed.
    Passed,
    /// A check failed.
    Failed,
    /// No check of its own succeeded, and none failed: they were skipped, or only warn or inform.
    Unproven,
}

impl Outcome {
    /// Of the checks that were made. Those of the wire's schema come with every scenario and alone say nothing.
    #[must_use]
    pub fn of(checks: &[Check]) -> Outcome {
        let own = |c: &&Check| !c.id.starts_with("wire-schema-");
        if checks.iter().any(|c| c.status == Status::Failure) {
            Outcome::Failed
        } else if checks.iter().filter(own).any(|c| c.status == Status::Success) {
            Outcome::Passed
        } else {
            Outcome::Unproven
        }
    }

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::Unproven => "unproven",
        }
    }
}

/// Scenarios that were run, with their checks.
pub type Results = BTreeMap<String, Vec<Check>>;

/// Reads the folder that a run filled.
///
/// # Errors
/// A folder is not of the form that the suite gives it, or holds no checks that can be read.
pub fn read(folder: &Path) -> Result<Results> {
    let mut all = Results::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(scenario) = scenario(&name) else {
            bail!("{name} is not named as a server scenario's results")
        };
        let file = path.join("checks.json");
        let text = std::fs::read(&file).with_context(|| file.display().to_string())?;
        let checks: Vec<Check> = serde_json::from_slice(&text).with_context(|| file.display().to_string())?;
        if all.insert(scenario.to_owned(), checks).is_some() {
            bail!("{scenario} was run twice");
        }
    }
    Ok(all)
}

/// `server-<scenario>-2026-11-29T20-30-14-898Z`
fn scenario(folder: &str) -> Option<&str> {
    let rest = folder.strip_prefix("server-")?;
    let (name, stamp) = rest.split_at_checked(rest.len().checked_sub(25)?)?;
    let shape = |(at, b): (usize, u8)| match at {
        0 | 5 | 8 | 14 | 17 | 20 => b == b'-',
        11 => b == b'T',
        24 => b == b'Z',
        _ => b.is_ascii_digit(),
    };
    (!name.is_empty() && stamp.bytes().enumerate().all(shape)).then_some(name)
}

/// The server scenarios that a revision's requirement set runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Required {
    /// Those that decide conformance, in order.
    pub scored: Vec<String>,
    /// Those that are run and reported.
    pub unscored: Vec<String>,
}

impl Required {
    /// Reads the suite's own file of a revision.
    ///
    /// # Errors
    /// It can't be read, or names none.
    pub fn load(file: &Path) -> Result<Required> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let required = Required::parse(&text);
        if required.scored.is_empty() {
            bail!("{} names no scored server scenario", file.display());
        }
        Ok(required)
    }

    /// The few forms of YAML that these files use: a list of names under `server`, a list of mappings under
    /// `not_scored`.
    fn parse(text: &str) -> Required {
        let mut required = Required { scored: Vec::new(), unscored: Vec::new() };
        let (mut section, mut last) = ("", None);
        for line in text.lines().filter(|l| !l.trim_start().starts_with('#')) {
            let bare = line.trim();
            if !line.starts_with(' ') && bare.ends_with(':') {
                section = bare.trim_end_matches(':');
            } else if let ("server", Some(name)) = (section, bare.strip_prefix("- ")) {
                required.scored.push(name.to_owned());
            } else if section == "not_scored" {
                if let Some(name) = bare.strip_prefix("- scenario: ") {
                    last = Some(name.to_owned());
                } else if bare == "leg: server" {
                    required.unscored.extend(last.take());
                }
            }
        }
        required
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.scored.iter().chain(&self.unscored)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
    use super::*;

    #[test]
    fn folders_and_requirement_sets_are_read() {
        assert_eq!(scenario("server-server-stateless-2026-11-29T20-30-14-898Z"), Some("server-stateless"));
        assert_eq!(scenario("server-ping-2026-11-29T20-30-14-89Z"), None);
        assert_eq!(scenario("client-ping-2026-11-29T20-30-14-898Z"), None);
        assert_eq!(scenario("server-"), None);
        let text = "# server:\nserver:\n  - a\n  - b-c\n\nclient:\n  - x\nnot_scored:\n  - scenario: auth/j\n    \
                    leg: client\n    reason: extension\n  - scenario: t\n    leg: server\n    note: >-\n      leg: x\n";
        let required = Required { scored: vec!["a".into(), "b-c".into()], unscored: vec!["t".into()] };
        assert_eq!(Required::parse(text), required);
    }

    #[test]
    fn a_scenario_passes_by_a_check_of_its_own() {
        let checks = |all: &[(&str, &str)]| -> Vec<Check> {
            let of = |(id, status): &(&str, &str)| serde_json::json!({"id": id, "status": status});
            serde_json::from_value(all.iter().map(of).collect()).unwrap()
        };
        let wire = ("wire-schema-valid", "SUCCESS");
        for (all, outcome) in [
            (vec![wire, ("a", "SUCCESS"), ("b", "WARNING")], Outcome::Passed),
            (vec![wire, ("a", "SUCCESS"), ("b", "FAILURE")], Outcome::Failed),
            (vec![("wire-schema-valid", "FAILURE"), ("a", "SUCCESS")], Outcome::Failed),
            (vec![wire, ("a", "SKIPPED")], Outcome::Unproven),
            (vec![wire, ("a", "WARNING"), ("b", "INFO")], Outcome::Unproven),
            (vec![wire], Outcome::Unproven),
            (vec![], Outcome::Unproven),
        ] {
            assert_eq!(Outcome::of(&checks(&all)), outcome, "{all:?}");
        }
    }
}
