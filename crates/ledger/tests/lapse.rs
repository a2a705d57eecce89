//! A replica that lapsed and goes on under another epoch: what it ran is anybody's, and it takes part itself.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;
use support::*;

use counterfoil_ledger::*;
use std::sync::atomic::Ordering::SeqCst;

fn tend(b: &Boot) {
    let ledger = b.ledger.clone();
    b.env.spawn(Box::pin(async move { ledger.tend().await }));
}

/// Whatever it was about to do, an attempt of an earlier epoch writes nothing, begins no send, and ends at once.
#[tokio::test(start_paused = true)]
async fn an_attempt_of_an_earlier_epoch_changes_nothing() {
    // What is under way when it lapses: the send, the tool's own work, the write that its first send waits for.
    for (what, provider, store, mood, sends) in [
        ("at the provider", 500, 0, Mood::Plain, 1),
        ("before its intent", 0, 0, Mood::SleepBefore(500), 0),
        ("before its send", 0, 200, Mood::Plain, 0),
    ] {
        let mut b = Boot::plain(Strategy::Key, &[]);
        b.single = mood == Mood::Plain;
        b.mood(mood);
        b.provider.latency.store(provider, SeqCst);
        b.store.latency.store(store, SeqCst);
        let call = b.spawn_call(&keyed("k"));
        pause(150).await;
        let before = b.only().await;
        assert_eq!(before.execution, Execution::Running, "{what}");
        b.store.lapse();
        pause(700).await;
        assert_eq!(b.only().await, before, "{what}: nothing was written");
        assert_eq!(b.ledger.running(), 0, "{what}: it ended");
        assert!(!call.is_finished(), "{what}: its caller waits for whoever takes it up");
        assert_eq!(b.provider.send_count(), sends, "{what}");
        b.env.kill();
    }
}

/// An attempt that hangs at the provider is given up, and taken up again under the new epoch, for the same caller.
#[tokio::test(start_paused = true)]
async fn its_attempts_are_given_up_and_taken_up_again() {
    let b = Boot::plain(Strategy::Key, &[Act::ApplyAndHang]);
    tend(&b);
    let call = b.spawn_call(&keyed("k"));
    pause(300).await;
    let before = b.only().await;
    assert_eq!((before.execution.word(), before.attempt, b.provider.send_count()), ("running", 1, 1));
    b.store.lapse();
    let answer = call.await.unwrap();
    let (op, _, replayed, joined_by) = result(&answer);
    assert_eq!((op.attempt, replayed, joined_by), (2, false, None));
    assert_eq!((b.provider.effects(), b.provider.send_count()), (1, 2));
    b.provider.assert_one_key();
    assert_eq!(b.ledger.running(), 0);
    b.env.kill();
}

/// Where nothing was sent yet, a caller that waits here all the time is no caller that is gone.
#[tokio::test(start_paused = true)]
async fn who_waits_here_still_waits() {
    let mut b = Boot::plain(Strategy::None, &[]);
    b.single = false;
    b.mood(Mood::SleepBefore(1500));
    tend(&b);
    let call = b.spawn_call(&keyed("k"));
    pause(300).await;
    assert!(b.only().await.effects.is_empty());
    b.store.lapse();
    let answer = call.await.unwrap();
    let (op, ..) = result(&answer);
    assert_eq!((op.attempt, op.delivery.state, op.is_error), (2, DeliveryState::Ready, false));
    assert_eq!((b.provider.effects(), b.notes.count("window abandoned")), (1, 0));
    b.env.kill();
}

/// A claim, and an opening, that are under way to the ledger when it lapses are none of the boot that is over: the claim is
/// made again under the new epoch, and of the opening nothing ran.
#[tokio::test(start_paused = true)]
async fn nothing_begins_under_an_epoch_that_is_over() {
    let b = Boot::plain(Strategy::Key, &[Act::NotSent, Act::NotSent, Act::NotSent]);
    let first = b.spawn_call(&keyed("k"));
    pause(3000).await;
    assert_eq!(b.only().await.execution.word(), "failed", "{:?}", first.await.unwrap());
    b.store.latency.store(200, SeqCst);
    let again = b.spawn_call(&keyed("k"));
    pause(50).await;
    b.store.lapse();
    let answer = again.await.unwrap();
    let (op, ..) = result(&answer);
    assert_eq!((op.attempt, b.provider.effects()), (2, 1), "one claim, and it is the new boot's");
    b.env.kill();

    let b = Boot::plain(Strategy::Key, &[]);
    b.store.latency.store(200, SeqCst);
    let call = b.spawn_call(&keyed("k"));
    pause(50).await;
    b.store.lapse();
    let answer = call.await.unwrap();
    assert!(matches!(&answer, Answer::Error(e) if e.kind == Kind::Unavailable), "{answer:?}");
    assert_eq!(b.provider.send_count(), 0);
    b.store.latency.store(0, SeqCst);
    result(&b.call(&keyed("k")).await);
    assert_eq!((b.only().await.attempt, b.provider.effects()), (1, 1));
    b.env.kill();
}
