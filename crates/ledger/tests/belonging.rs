//! Which operation a call belongs to: keys in every carrier, twins, joins, replays, conflicts, tombstones.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;
use support::*;

use counterfoil_ledger::*;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

fn boot() -> Boot {
    Boot::plain(Strategy::Key, &[])
}

/// A tool that takes half a second, so that calls meet it running.
fn slow() -> Boot {
    let b = boot();
    b.mood(Mood::SleepBefore(500));
    b
}

#[tokio::test(start_paused = true)]
async fn a_key_is_answered_with_the_same_bytes_for_ever() {
    let b = boot();
    let first = result(&b.call(&keyed("k")).await);
    assert_eq!((first.2, first.3), (false, None));
    for call in
        [keyed("k"), in_argument("k"), keyed(&first.0.id.to_string()), in_argument(&first.0.id.to_string())]
    {
        let again = result(&b.call(&call).await);
        assert_eq!((again.0.id, &again.1, again.2), (first.0.id, &first.1, true));
    }
    pause(1_000_000).await;
    assert_eq!(result(&b.call(&keyed("k")).await).1, first.1);
    assert_eq!((b.provider.effects(), b.provider.send_count()), (1, 1));
    // Another key or another principal is another operation.
    result(&b.call(&keyed("k2")).await);
    result(&b.call(&Call { scope: scope("q"), ..keyed("k") }).await);
    assert_eq!(b.provider.effects(), 3);
}

#[tokio::test(start_paused = true)]
async fn fifty_calls_with_one_key_are_one_effect() {
    let b = slow();
    let calls: Vec<_> = (0..50).map(|_| b.spawn_call(&keyed("k"))).collect();
    let mut bytes = Vec::new();
    for c in calls {
        bytes.push(result(&c.await.unwrap()).1);
    }
    assert!(bytes.iter().all(|r| *r == bytes[0]));
    assert_eq!((b.provider.effects(), b.count().await), (1, 1));
    assert_eq!(b.ledger.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_with_other_arguments_runs_nothing() {
    let b = boot();
    let id = result(&b.call(&keyed("k")).await).0.id;
    let other = |k: &str| Call { fingerprint: fingerprint("{\"amount\":6}"), ..keyed(k) };
    for key in ["k".to_owned(), id.to_string()] {
        let e = refused(&b.call(&other(&key)).await, Kind::KeyConflict);
        assert_eq!(e.operation, Some(id));
        // The key that it is given works for these arguments, and for these only.
        let new = e.new_key.unwrap();
        refused(&b.call(&keyed(&new)).await, Kind::KeyConflict);
        result(&b.call(&other(&new)).await);
    }
    assert_eq!(b.provider.effects(), 3);
}

#[tokio::test(start_paused = true)]
async fn foreign_and_unknown_operations_look_alike() {
    let b = boot();
    let id = result(&b.call(&keyed("k")).await).0.id;
    let unknown = OperationId::new(id.made_at(), 77);
    // While it may be on its way into the ledger, and when that is over.
    for kind in [Kind::AdmissionUnknown, Kind::KeyExpired] {
        let asked = async |id: OperationId| {
            refused(&b.call(&Call { scope: scope("q"), ..keyed(&id.to_string()) }).await, kind)
        };
        let (foreign, unknown) = (asked(id).await, asked(unknown).await);
        assert_eq!((foreign.sentence, foreign.operation), (unknown.sentence, unknown.operation));
        pause(61_000).await;
    }
    assert_eq!(b.ledger.status("q", id).await.unwrap(), None);
    assert!(b.ledger.status("p", id).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_pruned_key_runs_nothing() {
    let mut b = boot();
    b.policy.retention = Millis(10_000);
    let id = result(&b.call(&keyed("k")).await).0.id;
    result(&b.call(&Call { fingerprint: fingerprint("{}"), ..unkeyed() }).await);
    b.start();
    pause(90_000).await;
    assert_eq!(b.count().await, 0);
    refused(&b.call(&keyed("k")).await, Kind::KeyExpired);
    refused(&b.call(&keyed(&id.to_string())).await, Kind::KeyExpired);
    let e = refused(
        &b.call(&Call { fingerprint: fingerprint("{\"other\":1}"), ..keyed("k") }).await,
        Kind::KeyExpired,
    );
    assert_eq!(b.provider.effects(), 2);
    assert!(e.new_key.is_some());
    // The slot of a pruned operation is free.
    result(&b.call(&unkeyed()).await);
}

#[tokio::test(start_paused = true)]
async fn policies_without_a_key() {
    let b = boot();
    let reject = Call { unkeyed: Unkeyed::Reject, ..unkeyed() };
    let e = refused(&b.call(&reject).await, Kind::KeyRequired);
    assert_eq!(b.count().await, 0);
    result(&b.call(&Call { unkeyed: Unkeyed::Reject, ..keyed(&e.new_key.unwrap()) }).await);
    let new = Call { unkeyed: Unkeyed::New, ..unkeyed() };
    result(&b.call(&new).await);
    result(&b.call(&new).await);
    assert_eq!((b.provider.effects(), b.count().await), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn two_unkeyed_calls_at_once_are_one_operation() {
    let b = slow();
    let (first, second) = (b.spawn_call(&unkeyed()), b.spawn_call(&unkeyed()));
    let mine = first.await.unwrap();
    let (op, bytes, ..) = result(&mine);
    assert_eq!(b.provider.effects(), 1);
    // The result is on its way to the first: the second waits on.
    pause(300).await;
    assert!(!second.is_finished());
    b.written(&mine);
    let e = refused(&second.await.unwrap(), Kind::Twin);
    assert_eq!(e.operation, Some(op.id));
    assert_eq!(e.retry_key.as_deref(), Some(&*op.id.to_string()));
    // "I am that call again", "a second one, please".
    assert_eq!(result(&b.call(&keyed(&e.retry_key.unwrap())).await).1, bytes);
    assert_eq!(b.provider.effects(), 1);
    let new = e.new_key.unwrap();
    let two = result(&b.call(&in_argument(&new)).await);
    assert_ne!(two.0.id, op.id);
    assert_eq!(result(&b.call(&keyed(&new)).await).0.id, two.0.id);
    assert_eq!(b.provider.effects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_twin_that_outlasts_the_wait_is_named() {
    let b = slow();
    let first = b.spawn_call(&unkeyed());
    pause(10).await;
    let e = refused(&b.call(&Call { wait: Millis(100), ..unkeyed() }).await, Kind::Twin);
    assert!(e.retry_after.is_some());
    // The key means: I am that call again.
    let joined = result(&b.call(&keyed(&e.retry_key.unwrap())).await);
    assert_eq!((joined.0.id, joined.3), (result(&first.await.unwrap()).0.id, Some(JoinedBy::Operation)));
    assert_eq!(b.provider.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delivered_twin_is_told_at_once_even_before_readers_see_the_delivery() {
    let b = boot();
    *b.store.held.lock().unwrap() = Some(Vec::new());
    let a = b.call(&unkeyed()).await;
    b.written(&a);
    assert_eq!(b.only().await.delivery.state, DeliveryState::Ready);
    refused(&b.call(&unkeyed()).await, Kind::Twin);
    b.ledger.tend_once().await.unwrap();
    assert_eq!(b.only().await.delivery.state, DeliveryState::Written);
    refused(&b.call(&unkeyed()).await, Kind::Twin);
    // Outside the window it is history.
    pause(300_001).await;
    result(&b.call(&unkeyed()).await);
    assert_eq!(b.provider.effects(), 2);
}

/// What the wall clock says of the time in which nothing ran may be wrong: the window goes on where it was left.
#[tokio::test(start_paused = true)]
async fn a_restart_after_which_it_looks_late_ends_no_window() {
    for (delivered, joins) in [(DeliveryState::Written, false), (DeliveryState::Undelivered, true)] {
        let b = boot();
        let (op, bytes, ..) = result(&b.call(&unkeyed()).await);
        b.ledger.delivered(&op, delivered);
        b.env.kill();
        let from = store::Store::now(&*b.store);
        pause(86_400_000).await;
        let c = b.next(Default::default());
        let mut gaps = gaps::Gaps::default();
        gaps.add(gaps::Gap { from, to: store::Store::now(&*c.store) });
        c.store.gaps.set(gaps).unwrap();
        pause(299_000).await;
        let a = c.call(&unkeyed()).await;
        if joins {
            assert_eq!((result(&a).1, result(&a).3), (bytes, Some(JoinedBy::Fingerprint)));
        } else {
            refused(&a, Kind::Twin);
        }
        assert_eq!(c.provider.effects(), 1);
        pause(301_000).await;
        result(&c.call(&unkeyed()).await);
        assert_eq!(c.provider.effects(), 2, "it does end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_after_which_it_looks_late_removes_nothing() {
    let b = boot();
    let (op, bytes, ..) = result(&b.call(&keyed("k")).await);
    b.written(&b.call(&keyed("k")).await);
    b.env.kill();
    let from = store::Store::now(&*b.store);
    pause(30 * 86_400_000).await;
    let c = b.next(Default::default());
    let mut gaps = gaps::Gaps::default();
    gaps.add(gaps::Gap { from, to: store::Store::now(&*c.store) });
    c.store.gaps.set(gaps).unwrap();
    c.start();
    pause(6 * 86_400_000).await;
    let again = result(&c.call(&keyed("k")).await);
    assert_eq!((again.0.id, again.1), (op.id, bytes));
    pause(2 * 86_400_000).await;
    refused(&c.call(&keyed("k")).await, Kind::KeyExpired);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_reports_on_keeps_its_twin_waiting_only_so_long() {
    let b = boot();
    b.start();
    let (op, bytes, ..) = result(&b.call(&unkeyed()).await);
    refused(&b.call(&unkeyed()).await, Kind::Twin);
    pause(95_000).await;
    assert_eq!(b.get(op.id).await.delivery.state, DeliveryState::Undelivered);
    let a = b.call(&unkeyed()).await;
    assert_eq!((result(&a).1, result(&a).3), (bytes, Some(JoinedBy::Fingerprint)));
}

#[tokio::test(start_paused = true)]
async fn an_undelivered_result_goes_to_the_retry() {
    let b = boot();
    let a = b.call(&unkeyed()).await;
    let (op, bytes, ..) = result(&a);
    b.ledger.delivered(&op, DeliveryState::Undelivered);
    let again = b.call(&unkeyed()).await;
    assert_eq!((result(&again).1, result(&again).3), (bytes, Some(JoinedBy::Fingerprint)));
    // The news of the second delivery builds on the first, however stale the record it came with.
    b.ledger.delivered(&op, DeliveryState::Written);
    refused(&b.call(&unkeyed()).await, Kind::Twin);
    b.ledger.tend_once().await.unwrap();
    assert_eq!(b.get(op.id).await.delivery.state, DeliveryState::Written);
    refused(&b.call(&unkeyed()).await, Kind::Twin);
    // Acknowledged: the next one is a new operation. Foreign nonces do nothing.
    b.ledger.acknowledge("q", &b.ledger.ack_nonce("q", op.id)).await;
    b.ledger.acknowledge("p", "ak_nonsense").await;
    refused(&b.call(&unkeyed()).await, Kind::Twin);
    b.ledger.acknowledge("p", &b.ledger.ack_nonce("p", op.id)).await;
    assert_ne!(result(&b.call(&unkeyed()).await).0.id, op.id);
    assert_eq!(b.provider.effects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_a_model_may_have_invented_meets_its_twin_first() {
    let b = slow();
    let a = b.call_for(&in_argument("invented-1"), 100).await;
    assert!(matches!(a, Answer::Gone));
    let a = b.call(&in_argument("invented-2")).await;
    assert_eq!(result(&a).3, Some(JoinedBy::Fingerprint));
    b.written(&a);
    refused(&b.call(&in_argument("invented-3")).await, Kind::Twin);
    refused(&b.call(&unkeyed()).await, Kind::Twin);
    assert_eq!((b.provider.effects(), b.count().await), (1, 1));
    // The one that opened it finds it by key, whoever carries it.
    assert!(result(&b.call(&in_argument("invented-1")).await).2);
    // A program's key means what it says.
    assert!(!result(&b.call(&keyed("mine")).await).2);
    assert_eq!(b.provider.effects(), 2);
    // Outside the window a new one opens under its own key.
    pause(300_001).await;
    result(&b.call(&in_argument("invented-9")).await);
    assert!(result(&b.call(&keyed("invented-9")).await).2);
    assert_eq!(b.provider.effects(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_goes_before_the_intent_abandons() {
    let mut b = slow();
    b.single = false;
    b.policy.abandoned_for = Millis(60_000);
    assert!(matches!(b.call_for(&keyed("k"), 100).await, Answer::Gone));
    pause(2000).await;
    let op = b.only().await;
    assert_eq!((op.execution, op.attempt, b.provider.send_count()), (Execution::Accepted, 1, 0));
    assert_eq!(b.ledger.running(), 0, "its attempt was stopped");
    // The next call of it runs it.
    let done = result(&b.call(&keyed("k")).await);
    assert_eq!((done.0.id, done.0.attempt), (op.id, 2));
    // Nobody comes back: it expires.
    assert!(matches!(b.call_for(&keyed("k2"), 100).await, Answer::Gone));
    b.start();
    pause(70_000).await;
    refused(&b.call(&keyed("k2")).await, Kind::KeyExpired);
    assert_eq!(b.provider.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_joined_call_keeps_it_from_being_abandoned() {
    let mut b = slow();
    b.single = false;
    let b = Arc::new(b);
    let (b1, b2) = (b.clone(), b.clone());
    // Both go at the same moment, or only the first does.
    let first = tokio::spawn(async move { b1.call_for(&keyed("k"), 100).await });
    let second = tokio::spawn(async move {
        pause(50).await;
        b2.call(&keyed("k")).await
    });
    assert!(matches!(first.await.unwrap(), Answer::Gone));
    assert_eq!(result(&second.await.unwrap()).0.attempt, 1);
    let (b1, b2) = (b.clone(), b.clone());
    let first = tokio::spawn(async move { b1.call_for(&keyed("both"), 100).await });
    let second = tokio::spawn(async move { b2.call_for(&keyed("both"), 100).await });
    assert!(matches!((first.await.unwrap(), second.await.unwrap()), (Answer::Gone, Answer::Gone)));
    pause(10).await;
    let left = b
        .memory
        .list(&store::Query { state: Some("accepted".into()), limit: 9, ..store::Query::default() })
        .await
        .unwrap();
    assert_eq!(left.len(), 1, "the last to go abandons it");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_goes_after_the_intent_leaves_it_running() {
    let b = slow();
    assert!(matches!(b.call_for(&unkeyed(), 100).await, Answer::Gone));
    pause(1000).await;
    let op = b.only().await;
    assert_eq!(
        (op.execution.clone(), op.delivery.state, b.provider.effects()),
        (Execution::Completed, DeliveryState::Undelivered, 1)
    );
    let joined = b.call(&unkeyed()).await;
    assert_eq!((result(&joined).0.id, result(&joined).3), (op.id, Some(JoinedBy::Fingerprint)));
    // Undelivered for long: an alert, once.
    b.ledger.delivered(&op, DeliveryState::Undelivered);
    b.start();
    pause(2_000_000).await;
    assert_eq!(b.notes.count("alert undelivered"), 1);
    assert_ne!(result(&b.call(&unkeyed()).await).0.id, op.id, "outside the window it is history");
}

#[tokio::test(start_paused = true)]
async fn still_running_can_be_asked_again_by_every_name() {
    let b = slow();
    let short = |c: Call| Call { wait: Millis(100), ..c };
    let e = refused(&b.call(&short(keyed("k"))).await, Kind::StillRunning);
    assert_eq!(e.new_key, None);
    refused(&b.call(&short(keyed("k"))).await, Kind::StillRunning);
    refused(&b.call(&short(keyed(&e.retry_key.unwrap()))).await, Kind::StillRunning);
    // Nobody waits for it now, so a call without a key is that call again.
    let a = b.call(&unkeyed()).await;
    assert_eq!(result(&a).3, Some(JoinedBy::Fingerprint));
    assert_eq!((b.provider.effects(), b.count().await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_failed_operation_goes_on_under_the_same_effect_key() {
    let b = boot();
    *b.provider.otherwise.lock().unwrap() = Act::NotSent;
    let e = refused(&b.call(&keyed("k")).await, Kind::Unavailable);
    let op = b.only().await;
    assert_eq!((op.execution.word(), Some(op.id)), ("failed", e.operation));
    *b.provider.otherwise.lock().unwrap() = Act::Apply;
    // By fingerprint inside the window, as by key.
    let done = result(&b.call(&unkeyed()).await);
    assert_eq!((done.0.id, done.0.attempt), (op.id, 2));
    assert_eq!(done.0.effects[0].key, op.effects[0].key);
    assert_eq!(result(&b.call(&keyed("k")).await).1, done.1);
    b.provider.assert_one_key();
    assert_eq!(b.provider.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_calls_of_a_failed_operation_start_one_attempt() {
    let b = boot();
    *b.provider.otherwise.lock().unwrap() = Act::NotSent;
    refused(&b.call(&keyed("k")).await, Kind::Unavailable);
    *b.provider.otherwise.lock().unwrap() = Act::Apply;
    b.mood(Mood::SleepBefore(500));
    let calls: Vec<_> = (0..10).map(|_| b.spawn_call(&keyed("k"))).collect();
    for c in calls {
        assert_eq!(result(&c.await.unwrap()).0.attempt, 2);
    }
    assert_eq!((b.provider.effects(), b.tool.runs.load(SeqCst)), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn an_explicit_cancel_is_final() {
    let mut b = slow();
    b.single = false;
    let call = b.spawn_call(&keyed("k"));
    pause(10).await;
    let op = b.only().await;
    b.ledger.cancel(op.id, "ops".into()).await.unwrap();
    refused(&call.await.unwrap(), Kind::Denied);
    refused(&b.call(&keyed("k")).await, Kind::Denied);
    // A repetition by itself does not undo it.
    let e = refused(&b.call(&unkeyed()).await, Kind::Denied);
    assert_eq!((b.provider.send_count(), b.ledger.running()), (0, 0));
    result(&b.call(&keyed(&e.new_key.unwrap())).await);
    // With its intent out it can't be cancelled.
    b.single = true;
    let call = b.spawn_call(&keyed("k3"));
    pause(10).await;
    let running = b.memory.by_key(&scope("p").key_hash(&Key::new("k3").unwrap())).await.unwrap().unwrap();
    let store::Found::Operation(op) = running else { panic!() };
    assert!(b.ledger.cancel(op.id, "ops".into()).await.is_err());
    result(&call.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn creation_may_refuse_and_changes_nothing_for_what_is_known() {
    let b = boot();
    let bad = b
        .ledger
        .call(&keyed("k"), &|| Err::<Creation, _>("bad arguments"), std::future::pending(), |_| {})
        .await;
    assert_eq!(bad.unwrap_err(), "bad arguments");
    assert_eq!(b.count().await, 0);
    result(&b.call(&keyed("k")).await);
    // A known operation is answered although the tool is gone by now.
    let known = b
        .ledger
        .call(&keyed("k"), &|| Err::<Creation, _>("no such tool"), std::future::pending(), |_| {})
        .await;
    assert!(result(&known.unwrap()).2);
    // So it is by a replica that never met its key, whatever stands in the way of a new one.
    let known = b
        .beside()
        .ledger
        .call(&keyed("k"), &|| Err::<Creation, _>("no such tool"), std::future::pending(), |_| {})
        .await;
    assert!(result(&known.unwrap()).2);
    for fault in [Fault::Fine, Fault::Refused, Fault::LostUncertain] {
        let other = b.beside();
        other.store.faults.lock().unwrap().push_back(fault);
        assert!(result(&other.call(&keyed("k")).await).2);
    }
    refused(
        &b.beside().call(&Call { fingerprint: fingerprint("{}"), ..keyed("k") }).await,
        Kind::KeyConflict,
    );
    assert_eq!((b.count().await, b.provider.effects()), (1, 1));
    // What became of a new one is told as it is, although it can't be looked up either.
    for (fault, kind) in [(Fault::Refused, Kind::Unavailable), (Fault::LostUncertain, Kind::AdmissionUnknown)]
    {
        let other = b.beside();
        other.store.faults.lock().unwrap().push_back(fault);
        other.store.reads_fail.store(true, SeqCst);
        refused(&other.call(&keyed("new")).await, kind);
    }
    assert_eq!((b.count().await, b.provider.effects()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_cant_be_used_runs_nothing_and_never_lies() {
    let b = boot();
    b.store.reads_fail.store(true, SeqCst);
    refused(&b.call(&unkeyed()).await, Kind::Unavailable);
    b.store.reads_fail.store(false, SeqCst);
    b.store.faults.lock().unwrap().push_back(Fault::Refused);
    refused(&b.call(&keyed("k")).await, Kind::Unavailable);
    b.store.faults.lock().unwrap().push_back(Fault::LostUncertain);
    let e = refused(&b.call(&unkeyed()).await, Kind::AdmissionUnknown);
    // It may still be on its way; after a minute it isn't.
    let key = e.retry_key.unwrap();
    let e = refused(&b.call(&keyed(&key)).await, Kind::AdmissionUnknown);
    assert_eq!(e.retry_key.as_ref(), Some(&key));
    pause(61_000).await;
    refused(&b.call(&keyed(&key)).await, Kind::KeyExpired);
    assert_eq!((b.provider.send_count(), b.count().await), (0, 0));
    // It runs, and then can't be read: not "nothing ran".
    b.mood(Mood::SleepBefore(2000));
    let call = b.spawn_call(&keyed("k"));
    pause(10).await;
    b.store.reads_fail.store(true, SeqCst);
    let e = refused(&call.await.unwrap(), Kind::AdmissionUnknown);
    assert_eq!(e.retry_key.as_deref(), Some("k"));
    b.store.reads_fail.store(false, SeqCst);
    result(&b.call(&keyed("k")).await);
    assert_eq!(b.provider.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn progress_reaches_callers_and_nothing_is_left_behind() {
    let b = Boot::plain(Strategy::Key, &[Act::Lose, Act::Lose]);
    let seen = Mutex::new(Vec::new());
    let creation = b.creation();
    let a = b
        .ledger
        .call::<()>(&keyed("k"), &move || Ok(creation.clone()), std::future::pending(), |p| {
            seen.lock().unwrap().push(p.done)
        })
        .await;
    result(&a.unwrap());
    let seen = seen.into_inner().unwrap();
    assert!(!seen.is_empty() && seen.windows(2).all(|w| w[0] < w[1]), "{seen:?}");
    assert_eq!(b.ledger.running(), 0);
}

/// Tells how far it is more often than waiters look, and comes to no end.
struct Chatty;

#[async_trait::async_trait]
impl Runner for Chatty {
    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError> {
        for n in 1_u32.. {
            attempt.progress(f64::from(n), None, "on and on");
            pause(10).await;
        }
        unreachable!()
    }
    fn account(&self, _: &Operation, why: &str) -> ToolResult {
        ToolResult { result: why.as_bytes().to_vec(), is_error: true }
    }
}

/// What another replica did is found out by looking, whatever is told here meanwhile.
#[tokio::test(start_paused = true)]
async fn who_hears_of_progress_all_the_time_still_looks_at_the_ledger() {
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    let settings = Settings::default();
    let poll = settings.poll;
    let here = Ledger::new(b.store.clone(), b.env.clone(), settings.clone(), b.notes.clone());
    here.set_runner(Arc::new(Chatty));
    let elsewhere = Ledger::new(b.store.clone(), b.env.clone(), settings, b.notes.clone());
    let creation = b.creation();
    let call = Call { wait: Millis(120_000), ..keyed("k") };
    let answer = tokio::spawn(async move {
        here.call::<()>(&call, &move || Ok(creation.clone()), std::future::pending(), |_| {}).await.unwrap()
    });
    pause(100).await;
    elsewhere.cancel(b.only().await.id, "an operator".into()).await.unwrap();
    let answer = tokio::time::timeout(poll.duration() * 2, answer).await.expect("it looks").unwrap();
    refused(&answer, Kind::Denied);
}
