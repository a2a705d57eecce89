//! An operation that may or may not have been admitted: whoever does what the answer says has one effect, with a key of its
//! own and without one, whatever the tool makes of calls without one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;
use support::*;

use counterfoil_ledger::*;
use std::sync::atomic::Ordering::SeqCst;

/// A call without a key under each policy that lets one in, and one with a key.
fn calls() -> [Call; 3] {
    [Call { unkeyed: Unkeyed::New, ..unkeyed() }, unkeyed(), keyed("k")]
}

/// It is written; neither is that confirmed, nor can it be looked up.
async fn unconfirmed(b: &Boot, call: &Call) -> CallError {
    b.store.faults.lock().unwrap().push_back(Fault::AckLost);
    b.store.latency.store(20, SeqCst);
    let asked = b.spawn_call(call);
    pause(5).await;
    b.store.reads_fail.store(true, SeqCst);
    let e = refused(&asked.await.unwrap(), Kind::AdmissionUnknown);
    b.store.reads_fail.store(false, SeqCst);
    b.start();
    pause(200_000).await;
    // Recovery carries on what was admitted.
    assert_eq!((b.count().await, b.provider.effects()), (1, 1));
    e
}

#[tokio::test(start_paused = true)]
async fn who_does_as_advised_has_one_effect() {
    for call in calls() {
        let b = Boot::plain(Strategy::Key, &[]);
        let e = unconfirmed(&b, &call).await;
        // It is true of every caller: with that key, and only with that.
        assert!(e.advice.starts_with("Call again with `retryKey`"), "{}", e.advice);
        assert!(e.advice.ends_with("Without that key it could be done twice."), "{}", e.advice);
        let again = Call { unkeyed: call.unkeyed, ..keyed(&e.retry_key.unwrap()) };
        let (op, ..) = result(&b.call(&again).await);
        assert_eq!((Some(op.id), b.provider.effects()), (e.operation, 1), "{:?}", call.unkeyed);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_without_a_key_is_a_second_one_where_the_tool_wants_it_so() {
    for (policy, effects) in [(Unkeyed::New, 2), (Unkeyed::Guard, 1)] {
        let b = Boot::plain(Strategy::Key, &[]);
        let call = Call { unkeyed: policy, ..unkeyed() };
        unconfirmed(&b, &call).await;
        b.call(&call).await;
        assert_eq!(b.provider.effects(), effects, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_had_no_effect_is_safe_to_call_again() {
    for call in calls() {
        let b = Boot::plain(Strategy::Key, &[Act::NotSent; 3]);
        let e = refused(&b.call(&call).await, Kind::Unavailable);
        assert!(e.advice.contains("with `retryKey` it goes on as the same operation"), "{}", e.advice);
        let (op, ..) = result(&b.call(&Call { unkeyed: call.unkeyed, ..keyed(&e.retry_key.unwrap()) }).await);
        assert_eq!((Some(op.id), b.provider.effects()), (e.operation, 1), "{:?}", call.unkeyed);
    }
}

/// A call that names an operation, by a state or by its id as a key, is never told that nothing ran: it may be running.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_away_is_no_reason_to_begin_another() {
    for call in calls() {
        let b = Boot::plain(Strategy::Key, &[]);
        b.mood(Mood::SleepBefore(2000));
        let first = Call { wait: Millis(500), ..call.clone() };
        let Answer::Running { operation, .. } = b.asked(&first).await else { panic!("it runs") };
        let id = operation.id;
        let leg = Call { named: Some(id), ..call.clone() };
        let by_id = Call { unkeyed: call.unkeyed, ..keyed(&id.to_string()) };
        for known in [leg, by_id] {
            b.store.reads_fail.store(true, SeqCst);
            let e = refused(&b.call(&known).await, Kind::AdmissionUnknown);
            b.store.reads_fail.store(false, SeqCst);
            let key = known.key.as_ref().map_or_else(|| id.to_string(), |k| k.key.as_str().to_owned());
            assert_eq!((e.operation, e.retry_key.as_ref()), (None, Some(&key)));
            let again = Call { unkeyed: call.unkeyed, ..keyed(&e.retry_key.unwrap()) };
            let (op, ..) = result(&b.call(&again).await);
            assert_eq!((op.id, b.provider.effects()), (id, 1), "{:?}", call.unkeyed);
        }
    }
}

/// A reserved key may be known to the state alone that brings it: who is told that nothing ran would call without it.
#[tokio::test(start_paused = true)]
async fn nor_is_it_for_who_comes_back_with_a_reserved_key() {
    let b = Boot::plain(Strategy::Key, &[]);
    let reserve = |call: Call| Call { unkeyed: Unkeyed::Reserve, ..call };
    let Answer::Reserve { key } = b.asked(&reserve(unkeyed())).await else { panic!("a key") };
    b.mood(Mood::SleepBefore(2000));
    let first = Call { wait: Millis(500), ..reserve(keyed(&key)) };
    let Answer::Running { operation, .. } = b.asked(&first).await else { panic!("it runs") };
    b.store.reads_fail.store(true, SeqCst);
    let e = refused(&b.call(&reserve(keyed(&key))).await, Kind::AdmissionUnknown);
    b.store.reads_fail.store(false, SeqCst);
    assert_eq!((e.operation, e.retry_key.as_ref()), (None, Some(&key)));
    let (op, ..) = result(&b.call(&reserve(keyed(&e.retry_key.unwrap()))).await);
    assert_eq!((op.id, b.provider.effects()), (operation.id, 1));
}
