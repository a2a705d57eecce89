//! Crashes at every await of a boot, for every strategy: effects as promised, one effect key, the same bytes,
//! one result, nothing left running.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;
use support::*;

use counterfoil_ledger::*;
use std::sync::Arc;

const STRATEGIES: [Strategy; 7] = [
    Strategy::Key,
    Strategy::Unique,
    Strategy::Local,
    Strategy::Natural,
    Strategy::Lookup,
    Strategy::Confirm,
    Strategy::None,
];

const SCRIPTS: [&[Act]; 7] = [
    &[],
    &[Act::ApplyAndLose],
    &[Act::Lose],
    &[Act::NotSent],
    &[Act::Busy],
    &[Act::ApplyAndHang],
    &[Act::NotSent, Act::ApplyAndLose, Act::Lose],
];

/// Runs a boot with a call until it is answered or stopped at its gate. Returns whether it was answered.
async fn live(boot: &Boot, call: &Call) -> bool {
    boot.start();
    let handle = boot.spawn_call(call);
    tokio::select! {
        a = handle => {
            boot.written(&a.unwrap());
            true
        }
        () = boot.gate.reached.notified() => false,
    }
}

/// The client comes again and again until it has an answer that will not change by itself.
async fn settle(boot: &Boot, call: &Call) -> Answer {
    let mut call = call.clone();
    for _ in 0..40 {
        let a = boot.call(&call).await;
        boot.written(&a);
        match &a {
            Answer::Result { .. } => return a,
            Answer::Error(e) if e.kind == Kind::InDoubt => return a,
            Answer::Error(e) if matches!(e.kind, Kind::StillRunning | Kind::Unavailable) => pause(1000).await,
            // It was delivered: the same call is only repeated by saying so.
            Answer::Error(e) if e.kind == Kind::Twin => call = keyed(e.retry_key.as_ref().unwrap()),
            other => panic!("{other:?}"),
        }
    }
    panic!("stuck: {:#?}", boot.only().await)
}

/// What must be true once all is quiet.
async fn check(boot: &Boot, strategy: Strategy, call: &Call, what: &str) {
    let a = settle(boot, call).await;
    let again = settle(boot, call).await;
    let effects = boot.provider.effects();
    boot.provider.assert_one_key();
    let op = boot.only().await;
    match &a {
        Answer::Result { .. } => {
            assert_eq!(result(&a).1, result(&again).1, "{what}: the result changed");
            assert_eq!(effects, 1, "{what}: effects\n{op:#?}");
            assert_eq!(op.execution, Execution::Completed, "{what}");
        }
        _ => {
            // Only what can't be replayed or asked may be in doubt, and then at most one effect is there.
            assert!(matches!(strategy, Strategy::Confirm | Strategy::None), "{what}: in doubt\n{op:#?}");
            assert!(effects <= 1, "{what}: {effects} effects");
            let done = boot.ledger.decide(op.id, "test".into(), Verdict::NotApplied).await.unwrap();
            assert!(matches!(done.execution, Execution::Failed { .. }), "{what}");
        }
    }
    pause(100).await;
    assert_eq!(boot.ledger.running(), 0, "{what}: something is left running");
}

/// One history: a boot stopped at step `first`, a second one at `second` of its own, then one that lives.
/// Returns how far the first two came.
async fn history(
    strategy: Strategy,
    script: &[Act],
    single: bool,
    call: &Call,
    first: usize,
    second: Option<usize>,
) -> (bool, bool) {
    let mut a = Boot::first(Provider::new(dedupes(strategy), script), recovery(strategy), Gate::at(first));
    a.single = single;
    let what = format!("{strategy:?} {script:?} single={single} stopped at {first}, {second:?}");
    let answered = live(&a, call).await;
    let what = format!("{what} ({})", a.gate.last());
    a.env.kill();
    let mut last = a.next(second.map_or_else(Arc::default, Gate::at));
    let mut second_answered = true;
    if second.is_some() {
        second_answered = live(&last, call).await;
        last.env.kill();
        last = last.next(Arc::default());
    }
    last.start();
    check(&last, strategy, call, &what).await;
    last.env.kill();
    (answered, second_answered)
}

#[tokio::test(start_paused = true)]
async fn one_crash_anywhere() {
    for strategy in STRATEGIES {
        for script in SCRIPTS {
            for single in [true, false] {
                let mut step = 0;
                while !history(strategy, script, single, &keyed("k"), step, None).await.0 {
                    step += 1;
                }
                assert!(step >= 5, "{strategy:?} {script:?}: only {step} points");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_crash_anywhere_without_a_key() {
    for strategy in STRATEGIES {
        let mut step = 0;
        while !history(strategy, &[Act::ApplyAndLose], true, &unkeyed(), step, None).await.0 {
            step += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_crashes_anywhere() {
    for strategy in [Strategy::Key, Strategy::Lookup, Strategy::None] {
        let mut first = 0;
        loop {
            let (mut second, mut answered) = (0, false);
            loop {
                let script = &[Act::ApplyAndLose];
                let (a, b) = history(strategy, script, true, &keyed("k"), first, Some(second)).await;
                answered |= a;
                if b {
                    break;
                }
                second += 1;
            }
            if answered {
                break;
            }
            first += 1;
        }
    }
}

/// The first boot is not dead but stalls, and wakes up when the second is done.
#[tokio::test(start_paused = true)]
async fn a_zombie_anywhere() {
    // `lookup` promises nothing against a stall beyond its bound.
    for strategy in [
        Strategy::Key,
        Strategy::Unique,
        Strategy::Local,
        Strategy::Natural,
        Strategy::Confirm,
        Strategy::None,
    ] {
        for script in [SCRIPTS[0], SCRIPTS[1], SCRIPTS[3]] {
            let mut step = 0;
            loop {
                let a =
                    Boot::first(Provider::new(dedupes(strategy), script), recovery(strategy), Gate::at(step));
                let answered = live(&a, &keyed("k")).await;
                let b = a.next(Arc::default());
                b.start();
                let before = settle(&b, &keyed("k")).await;
                let record = b.only().await;
                a.gate.release();
                pause(30_000).await;
                let what = format!("{strategy:?} {script:?} zombie at {step}");
                let after = settle(&b, &keyed("k")).await;
                if let Answer::Result { .. } = before {
                    assert_eq!(result(&before).1, result(&after).1, "{what}");
                    assert_eq!(b.provider.effects(), 1, "{what}");
                } else {
                    assert!(b.provider.effects() <= 1, "{what}");
                    assert!(b.only().await.attempt >= record.attempt, "{what}");
                }
                b.provider.assert_one_key();
                a.env.kill();
                b.env.kill();
                if answered {
                    break;
                }
                step += 1;
            }
        }
    }
}

/// Acknowledgements of writes are lost, or writes are refused, at each write of the way.
#[tokio::test(start_paused = true)]
async fn a_write_that_fails_anywhere() {
    for fault in [Fault::AckLost, Fault::Refused, Fault::LostUncertain] {
        for strategy in STRATEGIES {
            for single in [true, false] {
                for nth in 0..6 {
                    let mut b = Boot::plain(strategy, &[Act::NotSent]);
                    b.single = single;
                    b.store
                        .faults
                        .lock()
                        .unwrap()
                        .extend(std::iter::repeat_n(Fault::Fine, nth).chain([fault]));
                    b.start();
                    let what = format!("{fault:?} {strategy:?} single={single} write {nth}");
                    let mut a = b.call(&keyed("k")).await;
                    for _ in 0..20 {
                        if let Answer::Error(e) = &a
                            && matches!(
                                e.kind,
                                Kind::AdmissionUnknown | Kind::Unavailable | Kind::StillRunning
                            )
                        {
                            pause(1000).await;
                            a = b.call(&keyed("k")).await;
                        }
                    }
                    if fault == Fault::AckLost {
                        // A lost acknowledgement is normal: nobody is bothered with it.
                        assert!(matches!(a, Answer::Result { .. }), "{what}: {a:?}");
                    }
                    check(&b, strategy, &keyed("k"), &what).await;
                    b.env.kill();
                }
            }
        }
    }
}
