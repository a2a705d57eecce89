//! Rounds and ordeals in turn until the minutes are over, with one gateway that serves all the time: whatever of it
//! grows with the calls would end it in days.

use super::books::Sheet;
use super::watch::{Growth, Sample, Watch};
use super::{Ordeal, Report as Ordeals};
use crate::torture::lane::Lane;
use crate::torture::plan::{Fault, Round};
use crate::torture::{Plan, Report, Settings, close, finish, play};
use anyhow::{Context, Result};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Rounds between two ordeals.
const CHUNK: usize = 100;
/// Of so many of the plan's rounds, the lasting gateway plays those that leave it alone; they lie far beyond the others,
/// for the plan begins with those that don't.
const GENTLE: usize = 200;
const BEYOND: usize = 100_000;
/// Rounds of the lasting gateway before it is first looked at: until then caches fill.
const WARM: usize = 12;

/// What it came to.
#[derive(Debug, Serialize)]
pub struct Soaked {
    /// How long it went on, in minutes.
    pub minutes: f64,
    /// All rounds.
    #[serde(flatten)]
    pub rounds: Report,
    /// Of them, those of the gateway that served all the time.
    pub lasting_rounds: u64,
    /// How often an ordeal was played.
    pub ordeals: u64,
    /// How that gateway grew.
    #[serde(flatten)]
    pub growth: Growth,
    /// What the last ordeals came to; the checks of all count.
    #[serde(flatten)]
    pub played: Ordeals,
}

impl Soaked {
    /// Whether every promise held.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.rounds.is_good() && self.played.is_good()
    }
}

/// Rounds that leave their gateway alone.
fn is_gentle(round: &Round) -> bool {
    let fault = matches!(
        round.fault,
        Fault::ClientCut
            | Fault::ClientCutMidReply
            | Fault::Twice
            | Fault::Provider(_)
            | Fault::ProviderKilled
    );
    // Every fourth restarts it between two replays.
    fault && !round.again && !round.number.is_multiple_of(4)
}

/// Plays for some minutes; the rounds are those of a plan that has no end, so `--only` repeats any of them.
///
/// # Errors
/// The stand does not work.
pub fn run(minutes: f64, settings: &Settings, ordeals: super::Settings) -> Result<Soaked> {
    let started = Instant::now();
    let lasting = Duration::from_secs_f64(minutes.clamp(0.0, 60.0 * 24.0 * 30.0) * 60.0);
    let mut report = Report::new(settings.seed);
    let mut played = Ordeals::default();
    let mut lane = Lane::new(settings.jobs, settings.against, settings.seed)?;
    let pid = lane.pid().context("the gateway's process")?;
    let (mut watch, mut done, mut count) = (Watch::default(), Vec::new(), 0u64);
    for n in 0.. {
        if started.elapsed() >= lasting && n > 0 {
            break;
        }
        let part = |from: usize, count: usize| {
            let to = from + count;
            let all = Plan::new(settings.seed, to, settings.against).rounds;
            all.into_iter().filter(move |r| (from..to).contains(&r.number))
        };
        play(settings, part(n * CHUNK, CHUNK).collect(), &mut report)?;
        let gentle: Vec<_> = part(BEYOND + n * GENTLE, GENTLE).filter(is_gentle).collect();
        for round in gentle {
            if started.elapsed() >= lasting && done.len() > WARM {
                break;
            }
            let outcome = crate::torture::round::play(&mut lane, settings.seed, &round)?;
            if settings.verbose {
                eprintln!("{}", outcome.line(&round));
            }
            report.add(&round, &outcome);
            done.push((round, outcome.expected_effects));
            if done.len() >= WARM {
                watch.add(Sample::of(pid)?);
            }
        }
        if started.elapsed() < lasting || n == 0 {
            let which = if n % 2 == 0 { Ordeal::Disk } else { Ordeal::Open };
            played.play(which, super::Settings { seed: ordeals.seed.wrapping_add(n as u64), ..ordeals })?;
            count += 1;
        }
        eprintln!(
            "{:.1} of {minutes} minutes: {} rounds, {count} ordeals, {} broken",
            started.elapsed().as_secs_f64() / 60.0,
            report.all.rounds,
            report.failed + played.sheet.violations.len() as u64
        );
    }
    let mut sheet = Sheet::default();
    sheet.check(lane.pid() == Some(pid), super::books::Breach::Service, || {
        "the gateway that should serve all the time was started anew".into()
    });
    watch.judge(&mut sheet);
    played.sheet.passed += sheet.passed;
    played.sheet.violations.extend(sheet.violations);
    let lasting_rounds = done.len() as u64;
    for (round, violation) in close(&lane, settings.seed, done)? {
        report.violation(&round, violation);
    }
    finish(&mut report, settings, started);
    Ok(Soaked {
        minutes: (started.elapsed().as_secs_f64() / 6.0).round() / 10.0,
        rounds: report,
        lasting_rounds,
        ordeals: count,
        growth: watch.growth(),
        played,
    })
}
