//! Crash windows by violence.
//!
//! Each round makes one refund through a real client against the real gateway and the real sandbox provider, in the
//! middle of which something breaks: the gateway is killed at a named point of its way, the provider cuts, hangs or
//! tears, the client leaves. The gateway is started again, the client retries as it would, and then everything is
//! counted: effects at the provider (twice, from different books), the answer's bytes over further replays, what the
//! ledger still has open.
//!
//! A run is a seed and a number of rounds; `--only N` repeats one round of it. What no single call shows is an
//! [`ordeal`].

pub mod actor;
pub mod lane;
pub mod ordeal;
pub mod plan;
pub mod report;
pub mod round;
pub mod table;

pub use plan::{Against, Fault, Plan, Round, Style, Voice};
pub use report::Report;

use crate::torture::lane::Lane;
use crate::torture::round::{Broken, Violation};
use anyhow::Result;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many rounds.
    pub rounds: usize,
    /// From which seed.
    pub seed: u64,
    /// How many at a time, each with a gateway and a provider of its own.
    pub jobs: usize,
    /// Only this round.
    pub only: Option<usize>,
    /// Only rounds whose fault, class, style or voice is called so.
    pub filter: Option<String>,
    /// Against what.
    pub against: Against,
    /// Says which round is done.
    pub verbose: bool,
}

/// Runs it.
///
/// # Errors
/// The stand itself does not work: a process that does not start, a provider that does not answer.
pub fn run(settings: &Settings) -> Result<Report> {
    let started = Instant::now();
    // A round that is asked for by its number may lie beyond.
    let count = settings.only.map_or(settings.rounds, |n| settings.rounds.max(n + 1));
    let mut rounds = Plan::new(settings.seed, count, settings.against).rounds;
    rounds.retain(|r| settings.only.is_none_or(|n| r.number == n));
    rounds.retain(|r| settings.filter.as_ref().is_none_or(|f| r.words().iter().any(|w| w == f)));
    let mut report = Report::new(settings.seed);
    play(settings, rounds, &mut report)?;
    finish(&mut report, settings, started);
    Ok(report)
}

/// Closes a report: what must have been reached, and how long it took.
fn finish(report: &mut Report, settings: &Settings, started: Instant) {
    if settings.only.is_none() && settings.filter.is_none() {
        report.check_reached(settings.against);
    }
    report.seconds = started.elapsed().as_secs_f64();
}

/// Plays rounds on as many lanes as there are jobs, and adds them to a report.
fn play(settings: &Settings, mut rounds: Vec<Round>, report: &mut Report) -> Result<()> {
    rounds.reverse();
    let report = Mutex::new(report);
    let queue = Mutex::new(rounds);
    let failed: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let lock = |m: &Mutex<Option<anyhow::Error>>| m.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    std::thread::scope(|scope| {
        for number in 0..settings.jobs.max(1) {
            let (report, queue, failed) = (&report, &queue, &failed);
            scope.spawn(move || {
                let work = || -> Result<()> {
                    let mut lane = Lane::new(number, settings.against, settings.seed)?;
                    let mut done = Vec::new();
                    loop {
                        if lock(failed) {
                            return Ok(());
                        }
                        let Some(round) = queue.lock().unwrap_or_else(PoisonError::into_inner).pop() else {
                            break;
                        };
                        let played = round::play(&mut lane, settings.seed, &round)?;
                        if settings.verbose {
                            eprintln!("{}", played.line(&round));
                            let told = settings.only.is_some() || !played.fired;
                            for line in played.story.iter().filter(|_| told) {
                                eprintln!("     {line}");
                            }
                        }
                        report.lock().unwrap_or_else(PoisonError::into_inner).add(&round, &played);
                        done.push((round, played.expected_effects));
                    }
                    for (round, violation) in close(&lane, settings.seed, done)? {
                        report.lock().unwrap_or_else(PoisonError::into_inner).violation(&round, violation);
                    }
                    Ok(())
                };
                if let Err(e) = work() {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

/// Looks at a lane once more when all its rounds are over: what came late counts as well.
fn close(lane: &Lane, seed: u64, done: Vec<(Round, u64)>) -> Result<Vec<(Round, Violation)>> {
    let mut all = Vec::new();
    if let (Some(panic), Some((round, _))) = (lane.panic(), done.last()) {
        let violation = Violation { broken: Broken::Answer, what: panic, reproduction: lane.said() };
        all.push((round.clone(), violation));
    }
    for (round, expected) in done {
        if let Some(late) = round::late(lane, seed, &round, expected)? {
            all.push((round, late));
        }
    }
    Ok(all)
}
