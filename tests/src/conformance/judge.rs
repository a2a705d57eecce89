//! A run compared with what is expected of it.

use super::Way;
use super::expected::Expected;
use super::results::{Check, Outcome, Required, Results, Status};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What came of one revision on one way.
#[derive(Debug, Default)]
pub struct Figures {
    /// Scenarios that decide conformance and passed.
    pub scored_pass: usize,
    /// Scenarios that decide conformance.
    pub scored_total: usize,
    /// Scenarios that don't decide it and passed.
    pub unscored_pass: usize,
    /// Scenarios that don't decide it.
    pub unscored_total: usize,
    /// Scenarios that came out as expected.
    pub as_expected: usize,
    /// Scenarios that decide conformance and are expected to pass.
    pub scored_expected: usize,
    /// What is not as expected.
    pub surprises: Vec<String>,
    /// Expected failures, by reason.
    pub reasons: BTreeMap<String, Vec<String>>,
}

impl Figures {
    /// As one object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "scored_pass": self.scored_pass,
            "scored_total": self.scored_total,
            "unscored_pass": self.unscored_pass,
            "unscored_total": self.unscored_total,
            "expected_failures": self.reasons,
            "surprises": self.surprises,
        })
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "  {} of {} scored scenarios passed, {} of {} that are not scored",
            self.scored_pass, self.scored_total, self.unscored_pass, self.unscored_total
        );
        let _ = writeln!(
            text,
            "  {} of {} scored scenarios are expected to pass",
            self.scored_expected, self.scored_total
        );
        for (reason, scenarios) in &self.reasons {
            let _ = writeln!(text, "  expected: {} not passed: {reason}", scenarios.len());
            for scenario in scenarios {
                let _ = writeln!(text, "    {scenario}");
            }
        }
        for surprise in &self.surprises {
            let _ = writeln!(text, "  FAILED: {surprise}");
        }
        text
    }
}

/// Compares. `only`: the one scenario that was run.
#[must_use]
pub fn judge(
    revision: &str,
    way: Way,
    required: &Required,
    results: &Results,
    expected: &Expected,
    only: Option<&str>,
) -> Figures {
    let mut figures = Figures::default();
    let wanted = |name: &String| only.is_none_or(|o| o == name);
    for (names, scored) in [(&required.scored, true), (&required.unscored, false)] {
        for name in names.iter().filter(|n| wanted(n)) {
            let mut found = Vec::new();
            let (should, reason) = expected.of(revision, way, name);
            let outcome = match results.get(name) {
                None => {
                    found.push(format!("{name}: it was not run"));
                    None
                }
                Some(checks) => {
                    let outcome = Outcome::of(checks);
                    found.extend(compare(name, outcome, should, checks));
                    if outcome == Outcome::Passed && should == Outcome::Passed {
                        found.extend(exceptions(revision, way, name, checks, expected));
                    }
                    Some(outcome)
                }
            };
            let passed = usize::from(outcome == Some(Outcome::Passed));
            if scored {
                figures.scored_pass += passed;
                figures.scored_total += 1;
                figures.scored_expected += usize::from(should == Outcome::Passed);
            } else {
                figures.unscored_pass += passed;
                figures.unscored_total += 1;
            }
            if found.is_empty() {
                figures.as_expected += 1;
            }
            if let (Some(reason), Some(outcome)) = (reason, outcome)
                && outcome != Outcome::Passed
            {
                figures.reasons.entry(reason.to_owned()).or_default().push(name.clone());
            }
            figures.surprises.append(&mut found);
        }
    }
    for name in results.keys().filter(|n| !required.all().any(|r| r == *n)) {
        figures.surprises.push(format!("{name}: it was run, and the requirement set does not name it"));
    }
    if only.is_none() {
        figures.surprises.extend(sizes(revision, required, expected));
    }
    figures
}

fn compare(name: &str, outcome: Outcome, should: Outcome, checks: &[Check]) -> Option<String> {
    if outcome == should {
        return None;
    }
    let what = match outcome {
        Outcome::Unproven => "is unproven",
        other => other.as_str(),
    };
    let mut text = format!("{name}: it {what}");
    if should != Outcome::Passed {
        let _ = write!(text, ", and it is listed as {}", should.as_str());
    }
    let shown = |c: &&Check| match outcome {
        Outcome::Passed => false,
        Outcome::Failed => c.status == Status::Failure,
        Outcome::Unproven => c.status != Status::Success,
    };
    for check in checks.iter().filter(shown) {
        let _ = write!(text, "\n      {}: {}", check.id, check.why());
    }
    Some(text)
}

/// Checks that were skipped or warned without being listed, and listed ones that did neither.
fn exceptions(revision: &str, way: Way, name: &str, checks: &[Check], expected: &Expected) -> Vec<String> {
    let mut found = Vec::new();
    let allowed: Vec<_> = expected.allowed(revision, way, name).collect();
    for check in checks.iter().filter(|c| matches!(c.status, Status::Skipped | Status::Warning)) {
        if !allowed.iter().any(|a| a.check == check.id && a.status == check.status) {
            let what = if check.status == Status::Skipped { "was skipped" } else { "warns" };
            found.push(format!("{name}: {} {what}: {}", check.id, check.why()));
        }
    }
    for one in allowed {
        if !checks.iter().any(|c| c.id == one.check && c.status == one.status) {
            found.push(format!("{name}: {} is listed as {:?}, and is not", one.check, one.status));
        }
    }
    found
}

/// A set that is larger or smaller than it was, and lists that name what is not in it.
fn sizes(revision: &str, required: &Required, expected: &Expected) -> Vec<String> {
    let mut found = Vec::new();
    match expected.revision.get(revision) {
        None => found.push(format!("it is not said how many scenarios {revision} has")),
        Some(totals) => {
            for (what, is, should) in [
                ("scored", required.scored.len(), totals.scored),
                ("not scored", required.unscored.len(), totals.unscored),
            ] {
                if is != should {
                    found.push(format!(
                        "the set has {is} scenarios that are {what}, and {should} are expected"
                    ));
                }
            }
        }
    }
    for name in expected.named(revision) {
        if !required.all().any(|r| r == name) {
            found.push(format!("{name}: it is listed, and the requirement set does not name it"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
    use super::*;

    const LIST: &str = r#"
        [revision."R"]
        scored = 3
        unscored = 1
        [[fails]]
        reason = "not yet"
        revision = "R"
        scenarios = ["c"]
        [[fails]]
        reason = "never"
        revision = "R"
        outcome = "unproven"
        scenarios = ["x"]
        [[allowed]]
        reason = "so"
        revision = "R"
        scenario = "b"
        check = "b2"
        status = "WARNING"
    "#;

    fn run(all: &[(&str, &[(&str, &str)])], list: &str, only: Option<&str>) -> Figures {
        let check =
            |(id, status): &(&str, &str)| json!({"id": id, "status": status, "errorMessage": "because"});
        let checks = |all: &[(&str, &str)]| serde_json::from_value(all.iter().map(check).collect()).unwrap();
        let results = all.iter().map(|(name, all)| ((*name).to_owned(), checks(all))).collect();
        let required =
            Required { scored: ["a", "b", "c"].map(str::to_owned).to_vec(), unscored: vec!["x".into()] };
        judge("R", Way::Direct, &required, &results, &Expected::parse(list).unwrap(), only)
    }

    const A: (&str, &[(&str, &str)]) = ("a", &[("a1", "SUCCESS"), ("a2", "INFO")]);
    const B: (&str, &[(&str, &str)]) = ("b", &[("b1", "SUCCESS"), ("b2", "WARNING")]);
    const C: (&str, &[(&str, &str)]) = ("c", &[("c1", "FAILURE"), ("c2", "SKIPPED")]);
    const X: (&str, &[(&str, &str)]) = ("x", &[("x1", "SKIPPED")]);

    #[test]
    fn what_is_expected_is_no_surprise_and_is_counted() {
        let figures = run(&[A, B, C, X], LIST, None);
        assert_eq!(figures.surprises, [""; 0]);
        assert_eq!((figures.scored_pass, figures.scored_total, figures.scored_expected), (2, 3, 2));
        assert_eq!((figures.unscored_pass, figures.unscored_total, figures.as_expected), (0, 1, 4));
        assert_eq!(figures.reasons["not yet"], ["c"]);
    }

    #[test]
    fn every_surprise_is_told() {
        let failing: (&str, &[(&str, &str)]) = ("a", &[("a1", "SUCCESS"), ("a2", "FAILURE")]);
        let passing: (&str, &[(&str, &str)]) = ("c", &[("c1", "SUCCESS")]);
        let skipping: (&str, &[(&str, &str)]) = ("a", &[("a1", "SUCCESS"), ("a2", "SKIPPED")]);
        let warning: (&str, &[(&str, &str)]) = ("a", &[("a1", "SUCCESS"), ("a2", "WARNING")]);
        let empty: (&str, &[(&str, &str)]) = ("a", &[]);
        let clean: (&str, &[(&str, &str)]) = ("b", &[("b1", "SUCCESS"), ("b2", "SUCCESS")]);
        let other: (&str, &[(&str, &str)]) = ("y", &[("y1", "SUCCESS")]);
        let failed: (&str, &[(&str, &str)]) = ("x", &[("x1", "FAILURE")]);
        for (all, part) in [
            (vec![failing, B, C, X], "a: it failed\n      a2: because"),
            (vec![A, B, passing, X], "c: it passed, and it is listed as failed"),
            (vec![skipping, B, C, X], "a: a2 was skipped: because"),
            (vec![warning, B, C, X], "a: a2 warns: because"),
            (vec![empty, B, C, X], "a: it is unproven"),
            (vec![A, clean, C, X], "b: b2 is listed as Warning, and is not"),
            (vec![A, B, C, X, other], "y: it was run"),
            (vec![A, B, C, failed], "x: it failed, and it is listed as unproven"),
            (vec![B, C, X], "a: it was not run"),
        ] {
            let figures = run(&all, LIST, None);
            assert_eq!(figures.surprises.len(), 1, "{part}: {:?}", figures.surprises);
            assert!(figures.surprises[0].starts_with(part), "{:?}", figures.surprises);
        }
        assert_eq!(run(&[], LIST, None).surprises.len(), 4, "nothing was run");
        let smaller = LIST.replace("scored = 3", "scored = 2");
        assert!(run(&[A, B, C, X], &smaller, None).surprises[0].starts_with("the set has 3"));
        let unknown = LIST.replace(r#"["c"]"#, r#"["c", "z"]"#);
        assert!(run(&[A, B, C, X], &unknown, None).surprises[0].starts_with("z: it is listed"));
    }

    #[test]
    fn one_scenario_alone_is_judged_alone() {
        assert_eq!(run(&[B], LIST, Some("b")).surprises, [""; 0]);
        assert_eq!(run(&[], LIST, Some("b")).surprises, ["b: it was not run"]);
        assert_eq!(run(&[A], LIST, Some("b")).surprises, ["b: it was not run"]);
    }

    #[test]
    fn a_list_that_contradicts_itself_is_refused() {
        for (from, to) in [
            (r#"["x"]"#, r#"["x", "c"]"#),
            (r#""unproven""#, r#""passed""#),
            (r#""WARNING""#, r#""FAILURE""#),
            (r#""not yet""#, r#"" ""#),
        ] {
            assert!(Expected::parse(&LIST.replace(from, to)).is_err(), "{to}");
        }
    }
}
