//! The simulator itself: it repeats, it is clean, and it sees what is taken out.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use counterfoil_sim::campaign::{Campaign, hush};
use counterfoil_sim::shrink::shrink;
use counterfoil_sim::{Semantics, guards, simulate};
use ledger::planted::{self, Plant};
use std::collections::BTreeSet;

fn campaign(schedules: u64, plant: Option<Plant>) -> Campaign {
    Campaign { schedules, seed: 1, threads: 2, semantics: None, plant, until_first: plant.is_some() }
}

#[test]
fn the_same_seed_is_the_same_schedule() {
    hush();
    let mut hashes = BTreeSet::new();
    for seed in 1..40 {
        let (a, b) = (simulate(seed, None, false), simulate(seed, None, false));
        assert_eq!((a.hash, a.steps), (b.hash, b.steps), "seed {seed}");
        assert_eq!(a.coverage, b.coverage, "seed {seed}");
        let (a, b) = (simulate(seed, None, true), simulate(seed, None, true));
        assert_eq!((a.hash, &a.trace), (b.hash, &b.trace), "seed {seed}");
        assert!(!a.trace.is_empty());
        hashes.insert(a.hash);
    }
    assert_eq!(hashes.len(), 39, "other seeds are other schedules");
}

/// 2,000 schedules, or as many as `COUNTERFOIL_SCHEDULES` says: `cargo xtask test` asks for 20,000.
#[test]
fn schedules_are_clean_and_go_everywhere() {
    hush();
    let wanted = std::env::var("COUNTERFOIL_SCHEDULES").map_or(2000, |n| n.parse().unwrap());
    let started = std::time::Instant::now();
    let report = campaign(wanted, None).run();
    println!("{} schedules in {} ms", report.schedules, started.elapsed().as_millis());
    assert_eq!(report.schedules, wanted);
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    let c = &report.coverage;
    for on in Semantics::ALL {
        let (ran, _) = report.stores[&on];
        println!("{ran} of them on {}", on.word());
        assert!(ran * 10 > wanted, "{ran} on {}", on.word());
    }
    for fault in [
        "acknowledgement lost",
        "batch of an ended boot refused",
        "bell late",
        "bell twice",
        "clock set ahead",
        "committed as its boot ended",
        "database restarted",
        "died after a write",
        "died before a write",
        "ended by others",
        "gap heard",
        "killed",
        "lapsed replica ended",
        "lazy writes lost",
        "listener cut off",
        "network cut",
        "packet held up",
        "paused",
        "read refused",
        "several writes in a batch",
        "tool failed",
        "went on under a new epoch",
        "wall clock set",
        "woke after its lease",
        "write late",
        "write lost",
        "write of a lapsed replica refused",
        "write refused",
        "write repeated",
    ] {
        assert!(c.faults.contains_key(fault), "no schedule had: {fault}");
    }
    for step in [
        "answered",
        "answered after the end",
        "answered differently",
        "answered elsewhere",
        "answered in part",
        "answered late",
        "answered twice",
        "asked",
        "asked for a yes",
        "asked in a later round",
        "begun anew within limits",
        "claim refused",
        "claimed",
        "given back",
        "goes on whatever is left",
        "handed out",
        "handle changed",
        "handle moved",
        "left unanswered",
        "leg",
        "limited",
        "limited anew",
        "said no",
        "state used before",
        "task answered",
        "task cancelled",
        "used once",
        "yes against no",
    ] {
        assert!(c.travels.contains_key(step), "no schedule had: {step}");
    }
    for window in [
        "abandoned",
        "intent_without_receipt",
        "receipt_without_result",
        "running_without_intent",
        "undelivered",
    ] {
        assert!(c.windows.contains_key(window), "no schedule recovered from: {window}");
    }
    let states: BTreeSet<&str> = c.transitions.keys().map(|(_, to)| *to).collect();
    assert_eq!(states.len(), ledger::Execution::WORDS.len(), "{states:?}");
    for refusal in
        ["busy", "fenced", "may_have_effect", "nothing", "past_no_return", "state", "cap", "cant_ask"]
    {
        assert!(c.refusals.contains_key(refusal), "no schedule met the refusal: {refusal}");
    }
}

/// Each guard, wherever there is something for it to guard.
#[test]
fn every_guard_is_missed_when_it_is_taken_out() {
    hush();
    for plant in guards() {
        for on in Semantics::ALL.into_iter().filter(|s| s.has(plant)) {
            let semantics = Some(on);
            let report =
                Campaign { semantics, seed: on.first_seed(plant), ..campaign(40_000, Some(plant)) }.run();
            let tried = report.schedules;
            assert!(report.violations > 0, "{plant:?} was not missed on {} in {tried} schedules", on.word());
        }
    }
}

#[test]
fn a_failing_schedule_is_made_small_and_repeats() {
    hush();
    planted::on_this_thread(Some(Plant::LookupWithoutQuarantine));
    let seed = (1..3000).find(|s| simulate(*s, None, false).violation.is_some()).unwrap();
    let whole = simulate(seed, None, true);
    let small = shrink(seed, None, 300).unwrap();
    let violation = small.outcome.violation.clone().unwrap();
    assert_eq!(violation.rule, whole.violation.unwrap().rule);
    assert!(small.outcome.steps < whole.steps, "{} of {}", small.outcome.steps, whole.steps);
    assert!(small.outcome.trace.last().unwrap().contains("VIOLATION"));
    let again = shrink(seed, None, 300).unwrap();
    assert_eq!((again.outcome.hash, again.plan), (small.outcome.hash, small.plan));
    planted::on_this_thread(None);
    assert!(shrink(seed, None, 300).is_none(), "with the guard in its place nothing is broken");
}
