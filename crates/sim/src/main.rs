//! `simulate`: many schedules, one of them again, or the guards taken out. See `docs/proof.md`.

use anyhow::{Result, bail};
use clap::Parser;
use counterfoil_sim::campaign::{Campaign, Report, hush};
use counterfoil_sim::shrink::shrink;
use counterfoil_sim::{Semantics, guards};
use ledger::planted::Plant;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Parser)]
#[command(about = "Simulate the operation ledger under a seeded scheduler")]
struct Args {
    /// How many schedules
    #[arg(long, default_value_t = 20_000)]
    schedules: u64,
    /// The first seed; each schedule takes the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Figures as one JSON object on the last line
    #[arg(long)]
    json: bool,
    /// What the replicas share: `sqlite`, `postgres` or `shared`; by default each schedule draws it
    #[arg(long, value_name = "NAME", value_parser = store)]
    store: Option<Semantics>,
    /// Take out one guard after another: each must be missed
    #[arg(long)]
    planted: bool,
    /// With --planted: the most schedules for one guard
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    each: u64,
    /// With --planted or --replay: only this guard
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Run the schedule of this seed again, make it small and say what it breaks
    #[arg(long, value_name = "SEED")]
    replay: Option<u64>,
    /// With --replay: every step of it
    #[arg(long)]
    trace: bool,
    /// Threads; by default one for each core
    #[arg(long)]
    threads: Option<usize>,
}

fn store(word: &str) -> Result<Semantics, String> {
    Semantics::of(word).ok_or_else(|| format!("there are {}", Semantics::ALL.map(Semantics::word).join(", ")))
}

fn main() -> ExitCode {
    hush();
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("simulate: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn threads(args: &Args) -> usize {
    args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from))
}

fn plants(args: &Args) -> Result<Vec<Plant>> {
    let Some(name) = &args.only else { return Ok(guards()) };
    match guards().into_iter().find(|p| format!("{p:?}").eq_ignore_ascii_case(name)) {
        Some(p) => Ok(vec![p]),
        None => bail!("there is no guard `{name}`; there are {:?}", guards()),
    }
}

fn run(args: &Args) -> Result<bool> {
    if let Some(seed) = args.replay {
        let plant = if args.only.is_some() { plants(args)?.first().copied() } else { None };
        ledger::planted::on_this_thread(plant);
        return Ok(replay(seed, args.store, args.trace));
    }
    let campaign = Campaign {
        schedules: args.schedules,
        seed: args.seed,
        threads: threads(args),
        semantics: args.store,
        plant: None,
        until_first: false,
    };
    let started = Instant::now();
    let report = campaign.run();
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} schedules in {seconds:.1} s ({:.0} a second), {} violations",
        report.schedules,
        report.schedules as f64 / seconds,
        report.violations
    );
    for (semantics, (ran, broke)) in &report.stores {
        println!("  {}: {ran} schedules, {broke} violations", semantics.word());
    }
    tell(&report, args.store);
    let mut good = report.violations == 0;
    let mut planted = Vec::new();
    if args.planted {
        for plant in plants(args)? {
            planted.push((plant, look_for(args, &campaign, plant)));
        }
        good &= planted.iter().all(|(_, found)| is_caught(found));
    }
    if !args.json {
        return Ok(good);
    }
    let stores: serde_json::Map<_, _> = report
        .stores
        .iter()
        .map(|(s, (ran, broke))| (s.word().to_owned(), json!({ "schedules": ran, "violations": broke })))
        .collect();
    let caught: serde_json::Map<_, _> = planted
        .iter()
        .map(|(plant, found)| {
            let by = found.iter().map(|(s, rule)| (s.word().to_owned(), json!(rule)));
            (format!("{plant:?}"), by.collect::<serde_json::Map<_, _>>().into())
        })
        .collect();
    let mut line = json!({
        "schedules": report.schedules,
        "violations": report.violations,
        "planted_caught": planted.iter().filter(|(_, found)| is_caught(found)).count(),
        "planted_total": planted.len(),
        "seed": args.seed,
        "seconds": (seconds * 10.0).round() / 10.0,
        "stores": stores,
        "planted": caught,
    });
    if let Value::Object(object) = &mut line {
        object.insert("coverage".into(), coverage(&report));
    }
    println!("{line}");
    Ok(good)
}

/// On what a guard was looked for, and the rule that missed it there.
type Caught = Vec<(Semantics, Option<&'static str>)>;

fn is_caught(found: &Caught) -> bool {
    !found.is_empty() && found.iter().all(|(_, rule)| rule.is_some())
}

/// Takes a guard out wherever there is something for it to guard.
fn look_for(args: &Args, campaign: &Campaign, plant: Plant) -> Caught {
    let mut caught = Vec::new();
    for semantics in Semantics::ALL {
        if !semantics.has(plant) || args.store.is_some_and(|s| s != semantics) {
            continue;
        }
        let of = Campaign {
            schedules: args.each,
            seed: semantics.first_seed(plant).wrapping_add(args.seed - 1),
            semantics: Some(semantics),
            plant: Some(plant),
            until_first: true,
            ..campaign.clone()
        };
        let found = of.run();
        let on = semantics.word();
        match found.findings.first() {
            Some(f) => println!(
                "caught: {plant:?} on {on} by `{}` after {} schedules (seed {})",
                f.violation.rule, found.schedules, f.seed
            ),
            None => println!("MISSED: {plant:?} on {on} in {} schedules", found.schedules),
        }
        caught.push((semantics, found.findings.first().map(|f| f.violation.rule)));
    }
    caught
}

fn counts(of: &BTreeMap<&'static str, u64>) -> Value {
    of.iter().map(|(k, n)| ((*k).to_owned(), json!(n))).collect::<serde_json::Map<_, _>>().into()
}

fn coverage(report: &Report) -> Value {
    let c = &report.coverage;
    let transitions: serde_json::Map<_, _> =
        c.transitions.iter().map(|((from, to), n)| (format!("{from}>{to}"), json!(n))).collect();
    json!({
        "transitions": transitions,
        "refusals": counts(&c.refusals),
        "windows": counts(&c.windows),
        "sends": counts(&c.sends),
        "errors": counts(&c.errors),
        "joins": counts(&c.joins),
        "alerts": counts(&c.alerts),
        "faults": counts(&c.faults),
        "travels": counts(&c.travels),
    })
}

fn tell(report: &Report, semantics: Option<Semantics>) {
    for f in &report.findings {
        println!(
            "seed {} on {}: {} at {} ms: {}",
            f.seed,
            f.semantics.word(),
            f.violation.rule,
            f.violation.at,
            f.violation.what
        );
    }
    if let Some(f) = report.findings.first() {
        let on = semantics.map_or_else(String::new, |s| format!(" --store {}", s.word()));
        println!("the first one, made small (again: --replay {}{on} --trace):", f.seed);
        replay(f.seed, semantics, false);
    }
}

/// Whether the schedule breaks nothing.
fn replay(seed: u64, semantics: Option<Semantics>, trace: bool) -> bool {
    let Some(small) = shrink(seed, semantics, 400) else {
        println!("the schedule of seed {seed} breaks nothing");
        if trace {
            counterfoil_sim::simulate(seed, semantics, true).trace.iter().for_each(|l| println!("{l}"));
        }
        return true;
    };
    if trace {
        println!("{}", small.plan);
        small.outcome.trace.iter().for_each(|l| println!("{l}"));
    }
    println!("made small in {} runs; {} steps are left", small.runs, small.outcome.steps);
    if let Some(v) = &small.outcome.violation {
        println!("seed {seed} breaks `{}` at {} ms: {}", v.rule, v.at, v.what);
    }
    false
}
