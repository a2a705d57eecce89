//! One tiny schedule for each kind of fault: it is made, it is seen, and nothing breaks.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::limits::{Limit, What};
use crate::plan::{Blow, CallerPlan, KeyMode, Plan, Rates, ToolPlan, Wish};
use crate::run::{Outcome, run};
use crate::semantics::Semantics;
use ledger::claims::Period;
use ledger::words::Millis;
use ledger::{OperationPolicy, Recovery, Strategy, Unkeyed};

fn plan(strategy: Strategy) -> Plan {
    let recovery = Recovery {
        processing_bound: Millis(2000),
        visibility_lag: Millis(700),
        send_timeout: Millis(1000),
        initial_backoff: Millis(50),
        max_backoff: Millis(600),
        ..Recovery::new(strategy)
    };
    let policy = OperationPolicy { timeout: Millis(5000), abandoned_for: Millis(500), ..Default::default() };
    let tool = ToolPlan {
        name: "t0".into(),
        recovery,
        effects: 1,
        planned: true,
        at_once: false,
        unkeyed: Unkeyed::Guard,
        guard_window: Millis(5000),
        policy,
        retention: None,
        keeps_failures: false,
        before: 0,
        after: 0,
        other: 0,
        deaf: 0,
        approval: false,
        rounds: 0,
        questions: 1,
        asks_other: 0,
        handles: false,
        single_use: false,
    };
    let wish = Wish {
        tool: 0,
        arguments: 0,
        key: KeyMode::Program,
        key_number: 0,
        leaves: 0,
        acknowledges: 1000,
        again: false,
        second: false,
        pries: 0,
        alters: 0,
        starts_at: 0,
        hasty: false,
        leg: None,
        task: None,
        quits: 0,
        fickle: 0,
        denies: 0,
        cancels: 0,
    };
    Plan {
        seed: 7,
        semantics: Semantics::Shared,
        replicas: 1,
        tools: vec![tool],
        limits: Vec::new(),
        callers: vec![CallerPlan { number: 0, principal: "ann", wishes: vec![wish] }],
        blows: Vec::new(),
        rates: Rates::default(),
        calm_at: 3000,
        lease: 1500,
        heartbeat: 500,
        lapse_ends: false,
        named: true,
        grace: Millis(2000),
    }
}

#[track_caller]
fn clean(plan: &Plan) -> Outcome {
    let o = run(plan, true);
    assert!(o.violation.is_none(), "{}", o.trace.join("\n"));
    o
}

fn happenings(o: &Outcome) -> usize {
    o.trace.iter().filter(|l| l.ends_with(" happens")).count()
}

#[track_caller]
fn answered(o: &Outcome) {
    assert!(o.trace.iter().any(|l| l.contains("gets a result")), "{}", o.trace.join("\n"));
}

#[test]
fn without_faults_a_call_is_two_writes_and_one_effect() {
    for strategy in [Strategy::Key, Strategy::Unique, Strategy::Natural, Strategy::Lookup, Strategy::None] {
        let o = clean(&plan(strategy));
        answered(&o);
        assert_eq!(happenings(&o), 1);
        assert_eq!(o.coverage.transitions[&("-", "running")], 1);
        assert_eq!(o.coverage.transitions[&("running", "completed")], 1);
        assert!(o.coverage.faults.is_empty());
        assert!(o.coverage.travels.is_empty());
    }
}

#[test]
fn faults_of_the_store() {
    crate::campaign::hush();
    let with = |change: fn(&mut Rates)| {
        let mut p = plan(Strategy::Key);
        change(&mut p.rates);
        let o = clean(&p);
        answered(&o);
        assert_eq!(happenings(&o), 1);
        o.coverage
    };
    assert!(with(|r| r.store_unavailable = 700).faults["write refused"] > 0);
    assert!(with(|r| r.read_unavailable = 700).faults["read refused"] > 0);
    assert!(with(|r| r.store_duplicate = 1000).faults["write repeated"] > 1);
    let uncertain = with(|r| r.store_uncertain = 900).faults;
    assert!(uncertain.keys().any(|k| ["acknowledgement lost", "write lost", "write late"].contains(k)));
    let dead = with(|r| r.store_kill = 700).faults;
    assert!(dead.keys().any(|k| k.starts_with("died")));
    with(|r| r.store_slow = 1000);
}

#[test]
fn faults_on_the_way_to_the_provider() {
    let with = |change: fn(&mut Rates)| {
        let mut p = plan(Strategy::Key);
        change(&mut p.rates);
        let o = clean(&p);
        answered(&o);
        (o.coverage.clone(), happenings(&o))
    };
    assert!(with(|r| r.not_sent = 1000).0.sends["not_sent"] > 0);
    assert!(with(|r| r.request_lost = 1000).0.sends["unknown"] > 0);
    assert!(with(|r| r.busy = 1000).0.sends["not_applied"] > 0);
    let (c, happened) = with(|r| r.answer_lost = 1000);
    assert!(c.sends["unknown"] > 0);
    assert_eq!(happened, 1, "the provider honours the key");
    let (c, happened) = with(|r| r.refuses = 1000);
    assert_eq!((c.sends["refused"], happened), (1, 0));
}

#[test]
fn an_answer_that_is_lost_is_looked_for_or_left_in_doubt() {
    let mut p = plan(Strategy::Lookup);
    p.rates.answer_lost = 1000;
    let o = clean(&p);
    answered(&o);
    assert_eq!(happenings(&o), 1);
    assert!(o.trace.iter().any(|l| l.contains("asks: Found")));
    let mut p = plan(Strategy::None);
    p.rates.answer_lost = 1000;
    let o = clean(&p);
    assert_eq!((happenings(&o), o.coverage.sends["unknown"]), (1, 1));
    assert!(o.coverage.errors["in_doubt"] > 0);
    assert!(
        o.trace.iter().any(|l| l.contains("Applied") && l.contains("decided")),
        "an operator looks at last"
    );
}

#[test]
fn a_packet_that_outlasts_every_bound_is_excused_and_counted() {
    let mut p = plan(Strategy::Lookup);
    p.rates.stalls = 1000;
    assert!(clean(&p).coverage.faults["packet held up"] > 0);
}

#[test]
fn a_replica_that_dies_is_recovered_from() {
    for at in [2, 12, 25] {
        let mut p = plan(Strategy::Key);
        p.rates.slow = 1000;
        p.blows.push((at, Blow::Kill { replica: 0, down: 300 }));
        let o = clean(&p);
        answered(&o);
        assert_eq!((happenings(&o), o.coverage.faults["killed"]), (1, 1));
    }
}

#[test]
fn a_replica_that_stalls_past_its_lease_writes_nothing_more() {
    for lapse_ends in [false, true] {
        let mut p = plan(Strategy::Key);
        (p.replicas, p.lapse_ends, p.calm_at) = (2, lapse_ends, 9000);
        p.rates.answer_lost = 1000;
        p.blows = vec![
            (5, Blow::Pause { replica: 0, length: 6000 }),
            (6500, Blow::Pause { replica: 1, length: 2000 }),
        ];
        let o = clean(&p);
        assert_eq!(happenings(&o), 1);
        assert!(o.coverage.faults["woke after its lease"] > 0);
    }
}

#[test]
fn clocks_that_are_set_end_replays_and_lengthen_waits() {
    for blow in [Blow::Step, Blow::Jump { by: 60_000 }] {
        for strategy in [Strategy::Key, Strategy::Lookup] {
            let mut p = plan(strategy);
            p.rates.request_lost = 1000;
            if strategy == Strategy::Key {
                p.tools[0].recovery.replay_for = Some(Millis(12_000));
            }
            p.blows.push((400, blow.clone()));
            clean(&p);
        }
    }
}

/// An opening is on its way, its acknowledgement lost, and the clock is put ahead by a minute.
#[test]
fn an_id_is_no_older_for_a_clock_that_was_put_ahead() {
    clean(&Plan::draw(9_415_961, None));
}

#[test]
fn callers_that_leave_come_back_and_are_answered() {
    let mut p = plan(Strategy::Key);
    p.callers[0].wishes[0].leaves = 1000;
    p.callers[0].wishes[0].key = KeyMode::None;
    p.rates.slow = 1000;
    let o = clean(&p);
    answered(&o);
    assert_eq!(happenings(&o), 1, "a retry without a key makes no second effect");
}

fn postgres(replicas: usize) -> Plan {
    Plan { semantics: Semantics::Postgres, replicas, calm_at: 9000, ..plan(Strategy::Key) }
}

#[test]
fn faults_of_a_database_server() {
    crate::campaign::hush();
    let with = |change: fn(&mut Rates)| {
        let mut p = postgres(1);
        change(&mut p.rates);
        let o = clean(&p);
        answered(&o);
        assert_eq!(happenings(&o), 1);
        o.coverage.faults
    };
    assert!(with(|_| {}).is_empty());
    assert!(with(|r| r.store_unavailable = 700)["write refused"] > 0);
    assert!(with(|r| r.store_duplicate = 700)["write repeated"] > 0);
    let uncertain = with(|r| r.store_uncertain = 700);
    for word in ["acknowledgement lost", "write lost", "write late"] {
        assert!(uncertain.contains_key(word), "{uncertain:?}");
    }
    let dead = with(|r| r.store_kill = 700);
    assert!(dead.keys().any(|k| k.starts_with("died")));
    with(|r| r.store_slow = 1000);
    let mut p = postgres(1);
    p.rates.slow = 1000;
    p.blows = vec![(30, Blow::Restart { down: 500 }), (40, Blow::Cut { replica: 0, length: 600 })];
    let o = clean(&p);
    answered(&o);
    assert_eq!((o.coverage.faults["database restarted"], o.coverage.faults["network cut"]), (1, 1));
}

#[test]
fn a_replica_that_was_ended_goes_on_under_another_epoch() {
    for blow in [Blow::Pause { replica: 0, length: 6000 }, Blow::Cut { replica: 0, length: 6000 }] {
        let mut p = postgres(2);
        p.rates.answer_lost = 1000;
        p.blows = vec![(5, blow.clone())];
        let o = clean(&p);
        answered(&o);
        assert_eq!(happenings(&o), 1);
        let faults = &o.coverage.faults;
        assert!(faults["lapsed replica ended"] > 0, "{faults:?}");
        assert!(faults["went on under a new epoch"] > 0, "{faults:?}");
        assert!(!faults.contains_key("killed"), "the process lives on");
    }
}

#[test]
fn who_waits_at_another_replica_hears_of_a_result() {
    let mut heard = 0;
    for seed in 0..20 {
        let mut p = postgres(3);
        p.seed = seed;
        p.rates.slow = 1000;
        let mut other = p.callers[0].clone();
        other.number = 1;
        other.wishes[0].starts_at = 20;
        p.callers.push(other);
        for (late, lost) in [(0, 0), (1000, 0), (0, 1000)] {
            (p.rates.bell_late, p.rates.bell_lost) = (late, lost);
            let o = clean(&p);
            assert_eq!(happenings(&o), 1);
            heard += usize::from(o.coverage.faults.contains_key("gap heard"));
        }
    }
    assert!(heard > 0, "a listener that was cut off says so");
}

/// A plan of one tool and one caller, on each kind of store.
fn everywhere(change: impl Fn(&mut Plan)) -> Vec<Outcome> {
    let plans = Semantics::ALL.map(|semantics| {
        let replicas = if semantics == Semantics::Sqlite { 1 } else { 3 };
        let mut p = Plan { semantics, replicas, calm_at: 9000, ..plan(Strategy::Key) };
        change(&mut p);
        clean(&p)
    });
    plans.into()
}

#[test]
fn what_is_asked_is_answered_and_goes_on() {
    for o in everywhere(|p| {
        (p.tools[0].planned, p.tools[0].rounds, p.tools[0].questions) = (false, 2, 3);
    }) {
        answered(&o);
        assert_eq!(happenings(&o), 1);
        let t = &o.coverage.travels;
        assert_eq!((t["asked"], t["asked in a later round"], t["answered"]), (6, 3, 6));
        assert_eq!(o.coverage.transitions[&("running", "input_required")], 2);
    }
    let mut met = std::collections::BTreeMap::new();
    for seed in 0..30 {
        for o in everywhere(|p| {
            (p.seed, p.tools[0].planned, p.tools[0].rounds) = (seed, false, 1);
            p.callers[0].wishes[0].fickle = 1000;
            p.tools[0].policy.abandoned_for = Millis(15_000);
            (p.tools[0].questions, p.tools[0].single_use) = (2, true);
        }) {
            assert_eq!(happenings(&o), 1);
            o.coverage.travels.keys().for_each(|k| *met.entry(*k).or_insert(0) += 1);
        }
    }
    for word in ["in part", "late", "twice", "differently", "elsewhere", "after the end"] {
        assert!(met.contains_key(format!("answered {word}").as_str()), "{word}: {met:?}");
    }
    assert!(met.contains_key("state used before"), "{met:?}");
}

#[test]
fn nothing_is_sent_before_a_yes_nor_after_a_no() {
    for o in everywhere(|p| p.tools[0].approval = true) {
        answered(&o);
        assert_eq!((happenings(&o), o.coverage.travels["asked for a yes"]), (1, 1));
        assert_eq!(o.coverage.transitions[&("-", "input_required")], 1);
    }
    for o in everywhere(|p| {
        p.tools[0].approval = true;
        p.callers[0].wishes[0].denies = 1000;
    }) {
        assert_eq!(happenings(&o), 0, "{:?}", o.coverage);
        assert_eq!(o.coverage.travels["said no"], 1);
        assert_eq!(o.coverage.transitions[&("input_required", "cancelled")], 1);
    }
    // Nobody says anything: it ends by itself.
    for o in everywhere(|p| {
        p.tools[0].approval = true;
        p.callers[0].wishes[0].quits = 1000;
    }) {
        assert_eq!((happenings(&o), o.coverage.travels["left unanswered"]), (0, 1));
        assert_eq!(o.coverage.transitions[&("input_required", "cancelled")], 1);
    }
}

#[test]
fn a_call_goes_on_in_legs_and_as_a_task() {
    for o in everywhere(|p| {
        p.rates.slow = 1000;
        p.callers[0].wishes[0].leg = Some(50);
    }) {
        answered(&o);
        assert_eq!(happenings(&o), 1);
        assert!(o.coverage.travels["leg"] > 0);
    }
    for o in everywhere(|p| {
        (p.tools[0].planned, p.tools[0].rounds) = (false, 1);
        p.callers[0].wishes[0].task = Some(true);
    }) {
        assert_eq!(happenings(&o), 1);
        let t = &o.coverage.travels;
        assert!(t["handed out"] > 0 && t["task answered"] > 0, "{t:?}");
    }
    for o in everywhere(|p| {
        p.callers[0].wishes[0].task = Some(true);
        p.callers[0].wishes[0].cancels = 1000;
        p.rates.not_sent = 1000;
    }) {
        assert!(o.coverage.travels["task cancelled"] > 0);
        assert!(happenings(&o) <= 1);
    }
}

/// Callers who want different things, at about the same time.
fn several(p: &mut Plan, callers: usize) {
    for n in 1..callers {
        let mut other = p.callers[0].clone();
        (other.number, other.wishes[0].key_number) = (n, n as u32);
        other.wishes[0].starts_at = 4 * n as i64;
        p.callers.push(other);
    }
}

#[test]
fn who_finds_no_room_comes_again_and_has_it_then() {
    let limit = |what, most| Limit { tool: Some(0), own: false, most, what };
    for what in [What::Places(9000), What::Rate(2000), What::Budget(Period::Last(Millis(2000)))] {
        for o in everywhere(|p| {
            p.limits = vec![limit(what, 1)];
            p.rates.slow = 1000;
            p.calm_at = 15_000;
            several(p, 3);
        }) {
            assert_eq!(happenings(&o), 3, "{what:?}");
            assert!(o.coverage.travels["limited"] > 0, "{what:?} {:?}", o.coverage.travels);
        }
    }
    // Of a day only so many have it, however often the others come.
    for o in everywhere(|p| {
        p.limits = vec![limit(What::Budget(Period::Day), 2)];
        several(p, 4);
    }) {
        assert_eq!((happenings(&o), o.coverage.travels["claimed"]), (2, 2));
        assert!(o.coverage.travels["claim refused"] > 10);
    }
}

#[test]
fn limits_hold_while_everything_goes_wrong() {
    crate::campaign::hush();
    let mut met = std::collections::BTreeSet::new();
    for seed in 0..40 {
        for o in everywhere(|p| {
            (p.seed, p.tools[0].planned, p.tools[0].before) = (seed, seed % 2 == 0, 300);
            let both = [What::Places(6500), What::Budget(Period::Last(Millis(4000))), What::Rate(500)];
            p.limits = both
                .map(|what| Limit { tool: None, own: what == both[0], most: 2, what })
                .into_iter()
                .collect();
            (p.rates.store_uncertain, p.rates.not_sent, p.rates.store_kill) = (200, 300, 20);
            (p.callers[0].wishes[0].leaves, p.callers[0].wishes[0].again) = (400, true);
            several(p, 5);
            p.blows = vec![(60, Blow::Kill { replica: 0, down: 100 }), (900, Blow::Restart { down: 50 })];
            if p.semantics != Semantics::Postgres {
                p.blows.truncate(1);
            }
        }) {
            met.extend(o.coverage.travels.keys().copied());
        }
    }
    for word in ["limited anew", "begun anew within limits", "goes on whatever is left", "given back"] {
        assert!(met.contains(word), "{word}: {met:?}");
    }
}

#[test]
fn handles_are_changed_once_by_each_operation() {
    for seed in 0..10 {
        for o in everywhere(|p| {
            p.seed = seed;
            (p.tools[0].planned, p.tools[0].handles) = (false, true);
            p.rates.store_uncertain = 300;
            for n in 1..4 {
                let mut other = p.callers[0].clone();
                other.number = n;
                other.wishes[0].key_number = n as u32;
                p.callers.push(other);
            }
            p.blows = vec![(60, Blow::Kill { replica: 0, down: 100 })];
        }) {
            assert!(o.coverage.travels["handle changed"] >= 2, "{:?}", o.coverage.travels);
            // A key that is given as an argument may join a twin.
            assert!((1..=4).contains(&happenings(&o)));
        }
    }
}
