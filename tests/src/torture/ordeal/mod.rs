//! Ordeals: what no single call shows. The disk is full, thousands of operations are open at a restart, and everything
//! goes on for minutes.
//!
//! An ordeal is a scene of its own with real processes; it is played in a process of its own, which has what an ordeal
//! needs of the machine: a mount namespace, or as many open files as there may be.

pub mod books;
pub mod disk;
pub mod open;
mod pit;
pub mod scene;
pub mod soak;
pub mod watch;

use super::Against;
use crate::process::Process;
use anyhow::{Context, Result, bail};
use books::Sheet;
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long an ordeal may take altogether.
const PATIENCE: Duration = Duration::from_secs(900);
/// How many broken promises of an ordeal are told at full length.
const TOLD: usize = 12;

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ordeal {
    /// The disk fills to the last byte.
    Disk,
    /// Thousands of operations are open at a restart.
    Open,
    /// Each of them.
    All,
}

impl Ordeal {
    /// Those that are meant.
    #[must_use]
    pub fn each(self) -> Vec<Ordeal> {
        match self {
            Ordeal::All => vec![Ordeal::Disk, Ordeal::Open],
            one => vec![one],
        }
    }
}

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// From which seed.
    pub seed: u64,
    /// How often the disk fills.
    pub turns: usize,
    /// How many operations are open at the restart.
    pub open: usize,
    /// The gateway, or the gateway with a lying manifest.
    pub against: Against,
    /// Says how far it is.
    pub verbose: bool,
}

/// What an ordeal came to, if the machine permitted it.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Came<F> {
    /// Nothing was shown: `not permitted: …` says why.
    Not(String),
    /// Its figures.
    To(F),
}

/// What ordeals came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Of the full disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_disk: Option<Came<disk::Figures>>,
    /// Of the restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_at_restart: Option<Came<open::Figures>>,
    /// Checks of all of them.
    #[serde(skip)]
    pub sheet: Sheet,
    /// What was said meanwhile, where something was broken.
    #[serde(skip)]
    said: Vec<String>,
}

/// What a process that plays one prints at the end.
#[derive(Debug, Serialize, Deserialize)]
struct Played<F> {
    figures: F,
    sheet: Sheet,
    said: String,
}

/// Plays one in this process and prints what it came to: see [`run`].
///
/// # Errors
/// The stand does not work.
pub fn play(which: Ordeal, settings: Settings) -> Result<()> {
    let Settings { seed, turns, open, against, verbose } = settings;
    let text = match which {
        Ordeal::Disk => {
            let (figures, sheet, said) = disk::play(disk::Settings { seed, turns, against, verbose })?;
            serde_json::to_string(&Played { figures, sheet, said })?
        }
        Ordeal::Open => {
            let (figures, sheet, said) = open::play(open::Settings { seed, open, against, verbose })?;
            serde_json::to_string(&Played { figures, sheet, said })?
        }
        Ordeal::All => bail!("one at a time"),
    };
    println!("{text}");
    Ok(())
}

impl Report {
    /// Plays one, and adds what it came to: the last of its figures stay, its checks are added.
    ///
    /// # Errors
    /// The stand does not work.
    pub fn play(&mut self, which: Ordeal, settings: Settings) -> Result<()> {
        for one in which.each() {
            let began = Instant::now();
            match one {
                Ordeal::Disk => {
                    let came = match disk::permitted() {
                        Ok(prefix) => Came::To(self.apart::<disk::Figures>("disk", &prefix, settings)?),
                        Err(e) => Came::Not(format!("not permitted: {e:#}")),
                    };
                    println!("{}", line("full disk", &came, began.elapsed()));
                    self.full_disk = Some(came);
                }
                Ordeal::Open => {
                    // As many open files as this user may have.
                    let prefix = ["sh", "-c", "ulimit -n \"$(ulimit -Hn)\"; exec \"$@\"", "sh"];
                    let came = Came::To(self.apart::<open::Figures>("open", &prefix, settings)?);
                    println!("{}", line("open at restart", &came, began.elapsed()));
                    self.open_at_restart = Some(came);
                }
                Ordeal::All => {}
            }
        }
        Ok(())
    }

    /// In a process of its own, begun by a prefix.
    fn apart<F: DeserializeOwned>(&mut self, name: &str, prefix: &[&str], settings: Settings) -> Result<F> {
        let log = tempfile::NamedTempFile::with_prefix("counterfoil-ordeal-")?;
        let mut command = Command::new(prefix.first().context("a prefix")?);
        command.args(&prefix[1..]).arg(std::env::current_exe()?).args(["ordeal", name]);
        command.args(["--seed", &settings.seed.to_string(), "--turns", &settings.turns.to_string()]);
        command.args(["--open", &settings.open.to_string()]);
        if settings.against == Against::Liar {
            command.arg("--liar");
        }
        if settings.verbose {
            command.arg("--verbose");
        }
        let mut process = Process::start(&mut command, log.path())?;
        let line = process.json_line(PATIENCE).with_context(|| format!("the ordeal {name}"))?;
        process.wait(Duration::from_secs(10));
        if settings.verbose {
            eprint!("{}", process.said());
        }
        let Played { figures, sheet, said } = serde_json::from_value(line)?;
        if !sheet.violations.is_empty() {
            self.said.push(format!(
                "again: cargo xtask torture --ordeal {name} --seed {} --turns {} --open {}\n{said}",
                settings.seed, settings.turns, settings.open
            ));
        }
        self.sheet.passed += sheet.passed;
        self.sheet.violations.extend(sheet.violations);
        Ok(figures)
    }

    /// Whether every promise held that was looked at.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.sheet.violations.is_empty()
    }

    /// What was broken, for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for v in self.sheet.violations.iter().take(TOLD) {
            out.push_str(&format!("\n{:?}: {}\n", v.breach, v.what));
        }
        if self.sheet.violations.len() > TOLD {
            out.push_str(&format!("\n… and {} more\n", self.sheet.violations.len() - TOLD));
        }
        for said in &self.said {
            out.push_str(&format!("\n{said}\n"));
        }
        out
    }
}

fn line<F: Serialize>(name: &str, came: &Came<F>, took: Duration) -> String {
    let figures = match came {
        Came::Not(why) => format!("NOT SHOWN, {why}"),
        Came::To(figures) => serde_json::to_value(figures).map_or_else(
            |e| e.to_string(),
            |v| {
                let all = v.as_object().into_iter().flatten();
                all.map(|(name, n)| format!("{} {n}", name.replace('_', " "))).collect::<Vec<_>>().join(", ")
            },
        ),
    };
    format!("{name}: {figures} ({:.0} s)", took.as_secs_f64())
}
