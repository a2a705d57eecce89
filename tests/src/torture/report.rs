//! What a run came to, for people and programs.

use super::plan::{Against, Round, faults};
use super::round::{Broken, Played, Violation};
use crate::stand::Class;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// How many broken rounds are told, and how many things of each.
const TOLD: usize = 4;

/// Figures of a part of the run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Rounds played.
    pub rounds: u64,
    /// Rounds in which the fault really happened.
    pub fired: u64,
    /// More than one effect.
    pub duplicates: u64,
    /// A result without its effect, or no result.
    pub lost: u64,
    /// Came to be in doubt, as the strategy promises, and was decided.
    pub in_doubt: u64,
    /// In doubt where the strategy promises more.
    pub in_doubt_unexpected: u64,
    /// A later answer differed from the first.
    pub byte_different: u64,
    /// Still open at the end.
    pub left_running: u64,
    /// An answer that should never be.
    pub wrong_answers: u64,
}

impl Figures {
    fn add(&mut self, played: &Played) {
        self.rounds += 1;
        self.fired += u64::from(played.fired);
        self.in_doubt += u64::from(played.in_doubt);
        for v in &played.violations {
            self.count(v.broken);
        }
    }

    fn count(&mut self, broken: Broken) {
        let figure = match broken {
            Broken::Duplicate => &mut self.duplicates,
            Broken::Lost => &mut self.lost,
            Broken::ByteDifferent => &mut self.byte_different,
            Broken::LeftRunning => &mut self.left_running,
            Broken::Doubt => &mut self.in_doubt_unexpected,
            Broken::Answer => &mut self.wrong_answers,
        };
        *figure += 1;
    }
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// All rounds together.
    #[serde(flatten)]
    pub all: Figures,
    /// Rounds whose promises held.
    pub passed: u64,
    /// Rounds with a broken promise.
    pub failed: u64,
    #[serde(skip)]
    broken: BTreeSet<usize>,
    /// Points that were never reached although they can be.
    pub not_reached: Vec<String>,
    /// By what broke.
    pub by_point: BTreeMap<String, Figures>,
    /// By provider class.
    pub by_class: BTreeMap<String, Figures>,
    /// By the way the call was named.
    pub by_policy: BTreeMap<String, Figures>,
    /// By client.
    pub by_client: BTreeMap<String, Figures>,
    /// How long after a replica's end its call was settled by another, in milliseconds: half of the times, and the
    /// longest. None without replicas.
    pub takeover_ms: Option<(u64, u64)>,
    #[serde(skip)]
    takeovers: Vec<u64>,
    /// How long it took.
    pub seconds: f64,
    /// What was broken, at full length.
    #[serde(skip)]
    pub violations: Vec<(Round, Violation)>,
    #[serde(skip)]
    fired: BTreeMap<(String, Class), bool>,
}

impl Report {
    /// An empty one.
    #[must_use]
    pub fn new(seed: u64) -> Report {
        Report {
            seed,
            all: Figures::default(),
            passed: 0,
            failed: 0,
            broken: BTreeSet::new(),
            not_reached: Vec::new(),
            by_point: BTreeMap::new(),
            by_class: BTreeMap::new(),
            by_policy: BTreeMap::new(),
            by_client: BTreeMap::new(),
            takeover_ms: None,
            takeovers: Vec::new(),
            seconds: 0.0,
            violations: Vec::new(),
            fired: BTreeMap::new(),
        }
    }

    fn parts(&mut self, round: &Round) -> [&mut Figures; 5] {
        [
            &mut self.all,
            self.by_point.entry(round.fault.name()).or_default(),
            self.by_class.entry(round.class.name().into()).or_default(),
            self.by_policy.entry(round.style.name().into()).or_default(),
            self.by_client.entry(round.voice.name().into()).or_default(),
        ]
    }

    /// Adds a round.
    pub fn add(&mut self, round: &Round, played: &Played) {
        for figures in self.parts(round) {
            figures.add(played);
        }
        if !played.violations.is_empty() {
            self.broken.insert(round.number);
        }
        self.judge();
        // A send that this machine was too slow for is in doubt before it comes to a point behind it.
        let excused = played.in_doubt && !round.class.is_exact();
        *self.fired.entry((round.fault.name(), round.class)).or_default() |= played.fired || excused;
        if let Some(took) = played.takeover {
            self.takeovers.push(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            self.takeovers.sort_unstable();
            let all = &self.takeovers;
            self.takeover_ms = all.last().map(|most| (all[all.len() / 2], *most));
        }
        self.violations.extend(played.violations.iter().map(|v| (round.clone(), v.clone())));
    }

    fn judge(&mut self) {
        self.failed = self.broken.len() as u64;
        self.passed = self.all.rounds - self.failed;
    }

    /// Adds what came after a round was over.
    pub fn violation(&mut self, round: &Round, violation: Violation) {
        for figures in self.parts(round) {
            figures.count(violation.broken);
        }
        self.broken.insert(round.number);
        self.judge();
        self.violations.push((round.clone(), violation));
    }

    /// A point that is never reached proves nothing: every one that a class can reach and that was played must have
    /// been reached with it.
    pub fn check_reached(&mut self, against: Against) {
        for fault in faults(against) {
            // Where chance decides which of several replicas meets the fault, one class that met it is enough.
            let met = |class: &Class| self.fired.get(&(fault.name(), *class)) == Some(&true);
            if matches!(against, Against::Replicas(_)) && against.classes().iter().any(met) {
                continue;
            }
            for class in against.classes().iter().copied() {
                if fault.reaches(class) && self.fired.get(&(fault.name(), class)) == Some(&false) {
                    self.not_reached.push(format!("{} x {}", fault.name(), class.name()));
                }
            }
        }
    }

    /// Whether every promise held.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failed == 0 && self.not_reached.is_empty() && self.all.rounds > 0
    }

    /// What was broken: the first few rounds, and of each the first few things.
    fn told(&self) -> String {
        let mut out = String::new();
        for number in self.broken.iter().take(TOLD) {
            let of = || self.violations.iter().filter(|(round, _)| round.number == *number);
            for (round, v) in of().take(TOLD) {
                let (broken, words) = (v.broken, round.words().join(", "));
                out.push_str(&format!("\n{broken:?} in round {number} ({words}): {}\n", v.what));
            }
            let all = of().count();
            if all > TOLD {
                out.push_str(&format!("and {} more of this round\n", all - TOLD));
            }
        }
        let all = self.broken.len();
        if all > TOLD {
            out.push_str(&format!("\nand {} more rounds\n", all - TOLD));
        }
        out
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for number in self.broken.iter().take(TOLD) {
            // All of one round have one reproduction.
            let first = self.violations.iter().find(|(round, _)| round.number == *number);
            out.extend(first.map(|(_, v)| format!("\n{}\n", v.reproduction)));
        }
        let head = format!(
            "{:26}{:>7}{:>7}{:>6}{:>6}{:>8}{:>8}{:>8}{:>7}\n",
            "", "rounds", "fired", "dupl", "lost", "doubt", "differ", "running", "wrong"
        );
        for (name, part) in [
            ("point", &self.by_point),
            ("class", &self.by_class),
            ("policy", &self.by_policy),
            ("client", &self.by_client),
        ] {
            out.push_str(&format!("\nby {name}\n{head}"));
            for (name, f) in part {
                out.push_str(&line(name, f));
            }
        }
        // What broke stands at the end, where whoever reads only the end of a log finds it.
        out.push_str(&self.told());
        out.push_str(&format!("\n{head}{}", line("all", &self.all)));
        if !self.not_reached.is_empty() {
            out.push_str(&format!(
                "\nnever reached, so nothing is shown about: {}\n",
                self.not_reached.join(", ")
            ));
        }
        if let Some((half, most)) = self.takeover_ms {
            out.push_str(&format!(
                "taken over {} times: half within {half} ms, all within {most} ms\n",
                self.takeovers.len()
            ));
        }
        out.push_str(&format!("seed {}, {:.0} s\n", self.seed, self.seconds));
        out
    }
}

fn line(name: &str, f: &Figures) -> String {
    format!(
        "{name:26}{:>7}{:>7}{:>6}{:>6}{:>8}{:>8}{:>8}{:>7}\n",
        f.rounds,
        f.fired,
        f.duplicates,
        f.lost,
        f.in_doubt,
        f.byte_different,
        f.left_running,
        f.wrong_answers + f.in_doubt_unexpected
    )
}
