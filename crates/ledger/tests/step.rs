//! What may safely be done about an effect, per strategy; and what a call without a key is to its slot.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use counterfoil_ledger::decide::{self, Opening};
use counterfoil_ledger::effect::Effect;
use counterfoil_ledger::gaps::{Gap, Gaps, NONE};
use counterfoil_ledger::step::{Moment, Step, asked, backoff, next};
use counterfoil_ledger::twin::{Twin, classify};
use counterfoil_ledger::*;
use support::{BASE, fingerprint, intent, policy, recovery, scope};

fn at(ms: i64) -> Time {
    BASE.plus(Millis(ms))
}

fn effect(strategy: Strategy, change: impl Fn(&mut Recovery)) -> Effect {
    let mut r = recovery(strategy);
    change(&mut r);
    let i = intent(&r, "refund");
    let key = EffectKey::derive("t", &scope("p"), OperationId(1), None, &fingerprint("{}"), &i.name, "");
    let o = Opening {
        id: OperationId(1),
        scope: scope("p"),
        key: None,
        fingerprint: fingerprint("{}"),
        policy: policy(),
        epoch: Epoch(1),
        intent: Some((i, key)),
        arguments: None,
        asks: vec![],
    };
    decide::open(o, BASE).next.effects.remove(0)
}

/// An effect with one send of which nothing is known.
fn unresolved(strategy: Strategy, change: impl Fn(&mut Recovery)) -> Effect {
    Effect { state: EffectState::Unknown, ..effect(strategy, change) }
}

fn step(e: &Effect, ms: i64) -> Step {
    next(e, Moment { now: at(ms), clock_step: None, gaps: &NONE })
}

fn word(s: &Step) -> &'static str {
    match s {
        Step::Settled => "settled",
        Step::Send { replay: true } => "replay",
        Step::Send { replay: false } => "send",
        Step::LookUp => "look up",
        Step::Wait(_) => "wait",
        Step::NeverSent => "never sent",
        Step::Rest => "rest",
        Step::AskPerson(_) => "ask",
        Step::Doubt(_) => "doubt",
    }
}

/// fresh | used up before anything left | unresolved | unresolved and used up | unresolved and forced |
/// unresolved, paused | unresolved, stored failure | the same and the provider can be asked
fn row(s: Strategy) -> [&'static str; 8] {
    match s {
        Strategy::Key | Strategy::Unique | Strategy::Natural => {
            ["send", "never sent", "replay", "rest", "replay", "wait", "doubt", "look up"]
        }
        Strategy::Local => ["send", "never sent", "replay", "replay", "replay", "wait", "replay", "replay"],
        Strategy::Lookup => {
            ["send", "never sent", "look up", "look up", "replay", "wait", "look up", "look up"]
        }
        Strategy::Confirm => ["send", "never sent", "ask", "ask", "replay", "ask", "ask", "ask"],
        Strategy::None => ["send", "never sent", "doubt", "doubt", "replay", "doubt", "doubt", "doubt"],
    }
}

#[test]
fn every_strategy() {
    for s in [
        Strategy::Key,
        Strategy::Unique,
        Strategy::Local,
        Strategy::Natural,
        Strategy::Lookup,
        Strategy::Confirm,
        Strategy::None,
    ] {
        let fresh = Effect { unresolved: 0, attempt_sends: 0, ..effect(s, |_| ()) };
        let open = unresolved(s, |_| ());
        let got = [
            step(&fresh, 0),
            step(&Effect { attempt_sends: 3, ..fresh.clone() }, 0),
            step(&open, 0),
            step(&Effect { attempt_sends: 3, ..open.clone() }, 0),
            step(&Effect { attempt_sends: 3, forced: true, ..open.clone() }, 0),
            step(&Effect { not_before: at(10), ..open.clone() }, 0),
            step(&Effect { stored_failure: true, ..open.clone() }, 0),
            step(&Effect { stored_failure: true, ..unresolved(s, |r| r.can_look_up = true) }, 0),
        ];
        assert_eq!(got.iter().map(word).collect::<Vec<_>>(), row(s), "{s:?}");
        for state in [EffectState::Applied, EffectState::Rejected] {
            assert_eq!(step(&Effect { state, forced: true, ..open.clone() }, 0), Step::Settled);
        }
    }
}

#[test]
fn replays_stop_where_the_provider_may_forget() {
    for s in [Strategy::Key, Strategy::Natural, Strategy::Unique] {
        let e = unresolved(s, |r| r.replay_for = Some(Millis(10_000)));
        // A send may take 1000: begun at 9000 it still arrives in time.
        assert_eq!(word(&step(&e, 9000)), "replay");
        assert_eq!(word(&step(&e, 9001)), "doubt");
        let asked = unresolved(s, |r| (r.replay_for, r.can_look_up) = (Some(Millis(10_000)), true));
        assert_eq!(word(&step(&asked, 9001)), "look up");
        // Not found settles nothing here: a fresh send would go out under a forgotten key.
        assert_eq!(word(&step(&Effect { absent: true, ..asked }, 9001)), "doubt");
        // What was provably not sent is sent, however old.
        assert_eq!(word(&step(&Effect { unresolved: 0, attempt_sends: 0, ..e }, 50_000)), "send");
    }
}

#[test]
fn a_clock_step_ends_replays_and_begins_quarantines_anew() {
    let after = |e: &Effect, now: i64, step: i64| {
        word(&next(e, Moment { now: at(now), clock_step: Some(at(step)), gaps: &NONE }))
    };
    let bounded = unresolved(Strategy::Key, |r| r.replay_for = Some(Millis(100_000)));
    assert_eq!(after(&bounded, 10, 5), "doubt");
    assert_eq!(after(&bounded, 10, -5), "replay", "an intent made after the step is as young as it looks");
    assert_eq!(after(&unresolved(Strategy::Unique, |_| ()), 10, 5), "replay");
    let absent = Effect { absent: true, ..unresolved(Strategy::Lookup, |_| ()) };
    assert_eq!(after(&absent, 3500, -5), "replay");
    assert_eq!(after(&absent, 3500, 2000), "look up");
    // A send that was under way when the clock was set may have lasted for a send's whole time after it.
    assert_eq!(after(&absent, 5499, 2000), "look up");
    assert_eq!(after(&absent, 5500, 2000), "replay");
    // Of the very moment of the step: it may have been before it.
    assert_eq!(after(&bounded, 10, 0), "doubt");
    assert_eq!(after(&absent, 3499, 0), "look up");
}

#[test]
fn a_question_since_the_intent_is_steady_only_if_time_was_watched() {
    let e = unresolved(Strategy::Lookup, |_| ());
    let steady = |clock_step: Option<i64>, gap: Option<(i64, i64)>| {
        let mut gaps = Gaps::default();
        if let Some((from, to)) = gap {
            gaps.add(Gap { from: at(from), to: at(to) });
        }
        let moment = Moment { now: at(9000), clock_step: clock_step.map(at), gaps: &gaps };
        let asked = asked(&e, moment);
        assert_eq!((asked.intended_at, asked.now), (e.intended_at, at(9000)));
        asked.steady
    };
    assert!(steady(None, None));
    assert!(steady(Some(-5), Some((-500, -10))), "what was before the intent is no matter");
    assert!(!steady(Some(0), None) && !steady(Some(5000), None));
    assert!(!steady(None, Some((100, 200))) && !steady(None, Some((-100, 1))));
}

#[test]
fn time_that_nobody_watched_counts_for_no_quarantine_and_against_every_replay() {
    let gaps = |from: i64, to: i64| {
        let mut gaps = Gaps::default();
        gaps.add(Gap { from: at(from), to: at(to) });
        gaps
    };
    let then =
        |e: &Effect, now: i64, gaps: &Gaps| word(&next(e, Moment { now: at(now), clock_step: None, gaps }));
    let absent = Effect { absent: true, ..unresolved(Strategy::Lookup, |_| ()) };
    // Send deadline 1000, bound and lag 2500. 500 of them were watched before an hour that may have been none.
    let hour = gaps(1500, 3_601_500);
    assert_eq!(then(&absent, 3_601_500, &hour), "look up");
    assert_eq!(then(&absent, 3_603_499, &hour), "look up");
    assert_eq!(then(&absent, 3_603_500, &hour), "replay");
    // It was over before.
    assert_eq!(then(&absent, 3_600_000, &gaps(3500, 3_600_000)), "replay");
    // The sender was fenced off after it.
    let fenced = Effect { fenced_at: Some(at(3_602_000)), ..absent };
    assert_eq!(then(&fenced, 3_604_499, &hour), "look up");
    assert_eq!(then(&fenced, 3_604_500, &hour), "replay");
    // After a step the wait begins anew, and counts what is watched only.
    let stepped = |now| {
        word(&next(
            &fenced,
            Moment { now: at(now), clock_step: Some(at(3_603_000)), gaps: &gaps(3_603_500, 3_700_000) },
        ))
    };
    assert_eq!((stepped(3_702_499), stepped(3_702_500)), ("look up", "replay"));
    // The provider may have forgotten the key in that hour.
    let bounded = unresolved(Strategy::Key, |r| r.replay_for = Some(Millis(100_000)));
    assert_eq!(then(&bounded, 3_601_500, &hour), "doubt");
}

#[test]
fn not_found_counts_only_after_the_quarantine() {
    let absent = Effect { absent: true, ..unresolved(Strategy::Lookup, |_| ()) };
    // Send deadline 1000, bound 2000, lag 500.
    assert_eq!(word(&step(&absent, 3499)), "look up");
    assert_eq!(word(&step(&absent, 3500)), "replay");
    assert_eq!(word(&step(&Effect { attempt_sends: 3, ..absent.clone() }, 3500)), "rest");
    assert_eq!(word(&step(&Effect { stored_failure: true, ..absent.clone() }, 3500)), "doubt");
    assert_eq!(word(&step(&Effect { fenced_at: Some(at(5000)), ..absent }, 7499)), "look up");
}

#[test]
fn a_precheck_comes_before_the_first_send_only() {
    let e = effect(Strategy::None, |r| (r.precheck, r.can_look_up) = (true, true));
    assert_eq!((e.sends, e.unresolved), (0, 0), "nothing is begun before the question is answered");
    assert_eq!(word(&step(&e, 0)), "look up");
    assert_eq!(word(&step(&Effect { looks: 1, ..e.clone() }, 0)), "send");
    assert_eq!(word(&step(&Effect { looks: 1, unresolved: 1, ..e }, 0)), "doubt");
}

#[test]
fn pauses_grow_and_are_bounded() {
    let e = effect(Strategy::Key, |_| ());
    let pause = |sends| backoff(&Effect { sends, ..e.clone() }).0;
    assert_eq!(
        [pause(0), pause(1), pause(2), pause(3), pause(4), pause(5), pause(u32::MAX)],
        [50, 50, 100, 200, 400, 400, 400]
    );
}

#[test]
fn twins() {
    use DeliveryState as D;
    let base = {
        let o = Opening {
            id: OperationId(1),
            scope: scope("p"),
            key: None,
            fingerprint: fingerprint("{}"),
            policy: policy(),
            epoch: Epoch(1),
            intent: None,
            arguments: None,
            asks: vec![],
        };
        decide::open(o, BASE).next
    };
    let of = |execution: Execution, ended: Option<i64>, delivery: D, delivered: i64| Operation {
        execution,
        ended_at: ended.map(at),
        delivery: operation::Delivery { state: delivery, at: at(delivered), alerted: false },
        ..base.clone()
    };
    let failed = || Execution::Failed { reason: String::new() };
    let doubt = || Execution::InDoubt { reason: String::new(), since: BASE };
    let cancelled = |explicit| Execution::Cancelled { explicit };
    let done = || Execution::Completed;
    use Twin::*;
    // The record; the call's time; what it is while the caller may be there, and when it is known to be gone.
    let table = [
        (of(Execution::Running, None, D::NotReady, 0), 1, Wait, Join),
        (of(Execution::Running, None, D::NotReady, 0), 9999, Wait, Join),
        (of(Execution::Accepted, None, D::NotReady, 0), 9999, Join, Join),
        (of(doubt(), None, D::NotReady, 0), 9999, Join, Join),
        (of(Execution::InputRequired { question: String::new() }, None, D::NotReady, 0), 9999, Join, Join),
        (of(failed(), Some(0), D::NotReady, 0), 100, Join, Join),
        (of(failed(), Some(0), D::NotReady, 0), 101, History, History),
        (of(cancelled(true), Some(0), D::NotReady, 0), 100, Join, Join),
        (of(cancelled(true), Some(0), D::NotReady, 0), 101, History, History),
        (of(cancelled(false), Some(0), D::NotReady, 0), 1, History, History),
        (of(done(), Some(0), D::Ready, 0), 100, Wait, Join),
        (of(done(), Some(0), D::Undelivered, 0), 100, Join, Join),
        (of(done(), Some(0), D::Written, 0), 100, Delivered, Delivered),
        // The window counts from the last delivery.
        (of(done(), Some(0), D::Written, 50), 150, Delivered, Delivered),
        (of(done(), Some(0), D::Written, 50), 151, History, History),
        (of(done(), Some(0), D::Undelivered, 0), 101, History, History),
        (of(done(), Some(0), D::Acknowledged, 50), 51, History, History),
    ];
    for (op, now, there, gone) in table {
        let what = format!("{:?} {:?} at {now}", op.execution, op.delivery);
        assert_eq!(classify(&op, at(now), Millis(100), &NONE, false), there, "{what}");
        assert_eq!(classify(&op, at(now), Millis(100), &NONE, true), gone, "{what}");
        // The same, if an hour that nobody watched lies before the call.
        let mut gaps = Gaps::default();
        gaps.add(Gap { from: at(now - 1), to: at(now - 1 + 3_600_000) });
        let later = at(now + 3_600_000);
        assert_eq!(classify(&op, later, Millis(100), &gaps, false), there, "{what}, after a gap");
        assert_eq!(classify(&op, later, Millis(100), &gaps, true), gone, "{what}, after a gap");
    }
}
