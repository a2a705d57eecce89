//! The front page's table: what each crash window comes to with each provider class, beside the control server.
//!
//! The rounds are those of the harness, each by a program that has a key for its call and keeps to it. A cell is what
//! was counted at the provider and what the caller was told, over some rounds. Beside it stands what is promised of the
//! cell: a round that comes to anything else fails, and so does a front page that says anything else. The control makes
//! second effects where its design does; a table in which it makes none was not measured.

pub mod control;
mod page;

use super::lane::Lane;
use super::plan::{Against, Fault, Round, Stop, Style, Voice};
use super::round::{self, Broken, Played};
use crate::stand::Class;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What is asked of the table.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Measure the front page's table, and print it.
    #[arg(long)]
    pub table: bool,
    /// How many rounds a cell of the table has.
    #[arg(long, requires = "table", default_value_t = 8)]
    each: u64,
    /// Put the table into the front page.
    #[arg(long, requires = "table", conflicts_with = "check")]
    write: bool,
    /// Compare what the front page's table promises with what is measured.
    #[arg(long, requires = "table")]
    check: bool,
}

/// How many times a round is played whose fault does not come to happen, or which meets another window.
const TRIES: usize = 3;

/// What stands in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    /// The gateway, with a provider of a class.
    Class(Class),
    /// The control.
    Control,
}

/// The columns, from the strongest promise to none.
const COLUMNS: [Column; 7] = [
    Column::Class(Class::Key),
    Column::Class(Class::Unique),
    Column::Class(Class::Natural),
    Column::Class(Class::Lookup),
    Column::Class(Class::Confirm),
    Column::Class(Class::None),
    Column::Control,
];

/// What a caller was told at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    /// A result, and the same bytes whenever it asked again.
    Answer,
    /// That it is in doubt; what follows was decided by a person.
    Doubt,
    /// One result, and later another.
    Differs,
    /// Nothing, or a result of what did not happen.
    Lost,
    /// Something that must never be told.
    Wrong,
}

/// What a round came to: effects at the provider when the caller was told, and what it was told.
type Outcome = (u64, Told);

/// What is promised of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// One effect, and one answer.
    One,
    /// As many effects, and the caller is told that it is in doubt.
    Doubt(u64),
    /// One effect and one answer, or in doubt with one effect at most.
    OneOrDoubt,
    /// Nothing: more than one effect is what this design makes here.
    Duplicate,
    /// Nothing: it may be one effect, it may be more.
    OneOrDuplicate,
}

impl Promise {
    fn allows(self, (effects, told): Outcome) -> bool {
        match self {
            Promise::One => (effects, told) == (1, Told::Answer),
            Promise::Doubt(n) => (effects, told) == (n, Told::Doubt),
            Promise::OneOrDoubt => {
                (effects, told) == (1, Told::Answer) || (effects <= 1 && told == Told::Doubt)
            }
            Promise::Duplicate => effects > 1,
            Promise::OneOrDuplicate => effects > 1 || (effects, told) == (1, Told::Answer),
        }
    }
}

/// A crash window.
struct Row {
    title: &'static str,
    /// Its faults, in turn.
    faults: &'static [Fault],
    /// What is promised where nothing can be done but to tell (`confirm`, `none`).
    weak: Promise,
    /// What the control comes to.
    control: Promise,
}

const ROWS: [Row; 8] = [
    Row {
        title: "killed before anything is written",
        faults: &[Fault::Point { name: "open.before" }],
        weak: Promise::One,
        control: Promise::One,
    },
    Row {
        title: "killed: intent written, not sent",
        faults: &[Fault::Point { name: "open.after" }, Fault::Point { name: "send.before" }],
        weak: Promise::Doubt(0),
        control: Promise::One,
    },
    Row {
        title: "killed: effect done, no receipt",
        faults: &[Fault::AppliedUnanswered, Fault::Point { name: "send.after" }],
        weak: Promise::Doubt(1),
        control: Promise::Duplicate,
    },
    Row {
        title: "killed: result written, not delivered",
        faults: &[Fault::Point { name: "close.after" }, Fault::Point { name: "reply.before" }],
        weak: Promise::One,
        control: Promise::One,
    },
    Row {
        title: "paused past its lease, and woken",
        faults: &[Fault::Stop(Stop::Applied), Fault::Stop(Stop::FirstByte)],
        weak: Promise::OneOrDoubt,
        // Two of its threads wake at once, and either may be the first at the record.
        control: Promise::OneOrDuplicate,
    },
    Row {
        title: "killed again while it recovers",
        faults: &[Fault::Recovery { name: "recover.before" }, Fault::Recovery { name: "recover.after" }],
        weak: Promise::Doubt(1),
        control: Promise::Duplicate,
    },
    Row {
        title: "the provider's answer is lost",
        faults: &[Fault::Provider("apply_then_cut"), Fault::Provider("apply_then_502")],
        weak: Promise::Doubt(1),
        control: Promise::Duplicate,
    },
    Row {
        title: "the client leaves, and calls again",
        faults: &[Fault::ClientCut, Fault::ClientCutMidReply],
        weak: Promise::One,
        control: Promise::One,
    },
];

fn promise(row: &Row, column: Column) -> Promise {
    match column {
        Column::Class(class) if class.is_exact() => Promise::One,
        Column::Class(_) => row.weak,
        Column::Control => row.control,
    }
}

/// What the rounds of a cell came to, and how often.
type Cell = BTreeMap<Outcome, u64>;

/// A measured table.
#[derive(Default)]
struct Table {
    /// By row and column.
    cells: BTreeMap<(usize, Column), Cell>,
    /// Broken promises, and what could not be measured.
    broken: Vec<(usize, Column, String)>,
    /// Rounds that count, and those that were played anew instead.
    rounds: u64,
    anew: u64,
}

impl Table {
    fn cell(&self, row: usize, column: Column) -> Cell {
        self.cells.get(&(row, column)).cloned().unwrap_or_default()
    }

    /// How many cells have something broken.
    fn broken_cells(&self) -> usize {
        self.broken.iter().map(|(row, column, _)| (row, column)).collect::<BTreeSet<_>>().len()
    }
}

/// Measures the table, and writes or compares it as asked. Whether every promise held.
///
/// # Errors
/// The stand does not work, or there is no front page to compare with or to write to.
pub fn run(options: &Options, seed: u64, jobs: usize, verbose: bool) -> Result<bool> {
    let started = Instant::now();
    let table = measure(options.each.max(1), seed, jobs, verbose)?;
    let shown = page::table(&table);
    println!("{shown}");
    let seconds = started.elapsed().as_secs_f64();
    println!("{} rounds, {} more were played anew, seed {seed}, {seconds:.0} s", table.rounds, table.anew);
    for (row, column, what) in &table.broken {
        println!("\nFAILED: {} x {}: {what}", ROWS[*row].title, page::name(*column));
    }
    let held = table.broken.is_empty();
    if options.check {
        return page::check(&table);
    }
    if options.write && held {
        page::write(&shown, options.each)?;
    } else if options.write {
        println!("the front page is left as it is");
    }
    let failed = table.broken_cells();
    println!("{} passed, {failed} failed", ROWS.len() * COLUMNS.len() - failed);
    Ok(held)
}

/// A round to be played.
struct Job {
    row: usize,
    column: Column,
    number: usize,
    /// Whose turn it is among the row's faults.
    turn: usize,
}

fn measure(each: u64, seed: u64, jobs: usize, verbose: bool) -> Result<Table> {
    let mut queue = Vec::new();
    // A run with few rounds begins with another fault each time.
    for turn in (0..usize::try_from(each)?).map(|n| n + usize::from(seed % 2 == 1)) {
        for row in 0..ROWS.len() {
            for column in COLUMNS {
                queue.push(Job { row, column, number: queue.len() * TRIES, turn });
            }
        }
    }
    let (queue, table) = (Mutex::new(queue), Mutex::new(Table::default()));
    let failed: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for number in 0..jobs.max(1) {
            let (queue, table, failed) = (&queue, &table, &failed);
            scope.spawn(move || {
                let next = || {
                    let broken = failed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                    if broken { None } else { queue.lock().unwrap_or_else(PoisonError::into_inner).pop() }
                };
                let work = || -> Result<()> {
                    let mut hands =
                        Hands { number, seed, verbose, gateway: None, control: None, done: Vec::new() };
                    while let Some(job) = next() {
                        hands.play(&job, table)?;
                    }
                    hands.late(table)
                };
                if let Err(e) = work() {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None => Ok(table.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// One who plays rounds, with a lane of each kind.
struct Hands {
    number: usize,
    seed: u64,
    verbose: bool,
    gateway: Option<Lane>,
    control: Option<Lane>,
    done: Vec<(usize, Column, Round, u64)>,
}

impl Hands {
    fn play(&mut self, job: &Job, table: &Mutex<Table>) -> Result<()> {
        let row = &ROWS[job.row];
        let (number, seed) = (self.number, self.seed);
        let (lane, class) = match job.column {
            Column::Class(class) => (&mut self.gateway, class),
            Column::Control => (&mut self.control, Class::Key),
        };
        if lane.is_none() {
            *lane = Some(match job.column {
                Column::Class(_) => Lane::new(number, Against::Gateway, seed)?,
                Column::Control => Lane::control(number, seed)?,
            });
        }
        let lane = lane.as_mut().context("a lane")?;
        for attempt in 0..TRIES {
            let round = Round {
                number: job.number + attempt,
                fault: row.faults[job.turn % row.faults.len()].clone(),
                class,
                style: Style::ProgramKey,
                voice: Voice::Raw,
                extra: None,
                again: false,
            };
            let played = round::play(lane, seed, &round)?;
            let outcome = outcome(lane, &played)?;
            if self.verbose {
                eprintln!("{} {outcome:?} {}", page::name(job.column), played.line(&round));
            }
            self.done.push((job.row, job.column, round, played.expected_effects));
            let quiet = played.violations.is_empty();
            let allowed = promise(row, job.column).allows(outcome);
            // A provider that was too slow for a time limit is another window: there is doubt then, and the control
            // runs again. Promises of one effect hold there, too.
            let slow = !allowed && (job.column == Column::Control || outcome.1 == Told::Doubt && quiet);
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            // What did not come to happen says nothing of its window.
            if (!played.fired && quiet || slow) && attempt + 1 < TRIES {
                table.anew += 1;
                continue;
            }
            table.rounds += 1;
            if !played.fired && quiet {
                let what = format!("the fault never happened in {TRIES} rounds");
                table.broken.push((job.row, job.column, what));
                return Ok(());
            }
            *table.cells.entry((job.row, job.column)).or_default().entry(outcome).or_default() += 1;
            if !allowed {
                let told = played.violations.first().map_or_else(
                    || played.story.join("\n"),
                    |v| format!("{:?}: {}\n{}", v.broken, v.what, v.reproduction),
                );
                table.broken.push((job.row, job.column, format!("{outcome:?}\n{told}")));
            }
            return Ok(());
        }
        Ok(())
    }

    /// What came after a round was counted, counts as well. (Of the control only the rounds themselves are shown.)
    fn late(&self, table: &Mutex<Table>) -> Result<()> {
        let Some(lane) = &self.gateway else { return Ok(()) };
        let mut broken = Vec::new();
        for (row, column, round, expected) in self.done.iter().filter(|d| d.1 != Column::Control) {
            if let Some(late) = round::late(lane, self.seed, round, *expected)? {
                broken.push((*row, *column, format!("{}\n{}", late.what, late.reproduction)));
            }
        }
        if let (Some(panic), Some((row, column, ..))) = (lane.panic(), self.done.last()) {
            broken.push((*row, *column, panic));
        }
        table.lock().unwrap_or_else(PoisonError::into_inner).broken.extend(broken);
        Ok(())
    }
}

fn outcome(lane: &mut Lane, played: &Played) -> Result<Outcome> {
    let effects = played.expected_effects;
    let has = |broken: &[Broken]| played.violations.iter().any(|v| broken.contains(&v.broken));
    let told = if has(&[Broken::Lost]) {
        Told::Lost
    } else if has(&[Broken::ByteDifferent]) {
        Told::Differs
    } else if has(&[Broken::Answer, Broken::LeftRunning]) || has(&[Broken::Duplicate]) && effects <= 1 {
        Told::Wrong
    } else if played.in_doubt {
        Told::Doubt
    } else {
        Told::Answer
    };
    if !played.in_doubt || effects == 0 {
        return Ok((effects, told));
    }
    // A person who found no effect may have had it sent again; the caller was told before that.
    let newest = lane.operations()?.first().and_then(|op| op["id"].as_str().map(str::to_owned));
    let record = lane.operation(&newest.context("no operation")?)?;
    let decided = record["decisions"].as_array().context("the decisions of an operation")?;
    let again = decided.iter().any(|d| d["what"].as_str().is_some_and(|w| w.starts_with("send it again")));
    Ok((if again { 0 } else { effects }, told))
}
