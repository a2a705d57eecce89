//! Schedules that the simulator found, by hand: each broke a rule once.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use counterfoil_ledger::decide::{self, Event, Fence, Opening, Outcome};
use counterfoil_ledger::*;
use std::sync::atomic::Ordering::SeqCst;
use support::*;

/// Two deliveries were reported before the first was written, and another replica wrote an acknowledgement between: the
/// second lay on a first that never came to be, had the right version, and wrote over it.
#[tokio::test(start_paused = true)]
async fn a_delivery_is_not_written_over_an_acknowledgement() {
    let b = Boot::plain(Strategy::Key, &[]);
    let first = result(&b.call(&keyed("k")).await).0;
    let second = result(&b.call(&keyed("k")).await).0;
    *b.store.held.lock().unwrap() = Some(Vec::new());
    b.ledger.delivered(&first, DeliveryState::Written);
    b.ledger.delivered(&second, DeliveryState::Written);
    let other = b.next(Default::default());
    let nonce = other.ledger.ack_nonce("p", first.id);
    other.ledger.acknowledge("p", &nonce).await;
    assert_eq!(b.only().await.delivery.state, DeliveryState::Acknowledged);
    b.ledger.tend_once().await.unwrap();
    assert_eq!(b.only().await.delivery.state, DeliveryState::Acknowledged);
}

/// What is reported while the write of an earlier delivery is on its way is seen at once here, and written later.
#[tokio::test(start_paused = true)]
async fn the_second_of_two_deliveries_is_not_lost() {
    let b = Boot::plain(Strategy::Key, &[]);
    let first = result(&b.call(&unkeyed()).await).0;
    let retry = keyed(&first.id.to_string());
    let second = result(&b.call(&retry).await).0;
    *b.store.held.lock().unwrap() = Some(Vec::new());
    b.ledger.delivered(&first, DeliveryState::Undelivered);
    b.ledger.delivered(&second, DeliveryState::Written);
    refused(&b.call(&unkeyed()).await, Kind::Twin);
    b.ledger.tend_once().await.unwrap();
    assert_eq!(b.only().await.delivery.state, DeliveryState::Written);
    refused(&b.call(&unkeyed()).await, Kind::Twin);
    assert_eq!(b.count().await, 1);
}

/// A replay was found safe, its record took a few tries, and by then the provider might have forgotten the key.
#[tokio::test(start_paused = true)]
async fn a_replay_is_judged_again_after_its_write() {
    let r = Recovery { replay_for: Some(Millis(1100)), ..recovery(Strategy::Key) };
    let b = Boot::first(Provider::new(true, &[Act::Lose]), r, Default::default());
    let lost = Fault::LostUncertain;
    b.store.faults.lock().unwrap().extend([Fault::Fine, Fault::Fine, lost, lost, lost]);
    refused(&b.call(&keyed("k")).await, Kind::InDoubt);
    assert_eq!(b.provider.send_count(), 1, "nothing is sent that may arrive after the provider forgot");
}

/// The acknowledgement of *not applied* was lost and a call joined meanwhile. Counted once more, it took the first send,
/// of which nothing is known, for one that never left.
#[tokio::test(start_paused = true)]
async fn an_answer_is_counted_once_though_its_acknowledgement_is_lost() {
    // Passes of the gate: opening 0 and 1, send 2 and 3, its end 4 and 5, the next send's record 6 and 7, that send 8
    // and 9, its end 10 and 11.
    let gate = Gate::at(11);
    let provider = Provider::new(true, &[Act::Lose, Act::Busy]);
    let b = Boot::first(provider, recovery(Strategy::Key), gate.clone());
    b.store.faults.lock().unwrap().extend([Fault::Fine, Fault::Fine, Fault::Fine, Fault::AckLost]);
    let first = b.spawn_call(&keyed("k"));
    gate.reached.notified().await;
    assert_eq!(gate.last(), "after a write");
    let joining = b.spawn_call(&keyed("k"));
    pause(5).await;
    gate.release();
    pause(100).await;
    let op = b.only().await;
    assert_eq!((op.joined, op.effects[0].sends, op.effects[0].unresolved), (1, 2, 1));
    assert_eq!(op.effects[0].state, EffectState::Unknown);
    result(&first.await.unwrap());
    result(&joining.await.unwrap());
    assert_eq!(b.provider.effects(), 1);
    assert_eq!(b.provider.looks.load(SeqCst), 0);
}

/// An operator asked to cancel between two effects, the tool complied, and nothing had happened. Every call ran it
/// again, found the wish, and was told to call again.
#[test]
fn a_cancellation_that_was_asked_for_ends_what_had_no_effect() {
    let open = Opening {
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
    let fence = Fence { attempt: 1, epoch: Epoch(1) };
    let mut op = decide::open(open, BASE).next;
    let mut then = |event| {
        op = decide(&op, event, BASE).unwrap().next;
        op.clone()
    };
    for name in ["pay", "mail"] {
        let intent = intent(&recovery(Strategy::Key), name);
        let key = EffectKey::derive("l", &scope("p"), OperationId(1), None, &fingerprint("{}"), name, "");
        then(Event::Intend { fence, intent: Box::new(intent), key });
    }
    let asked = then(Event::Cancel { by: "me".into() });
    assert!(asked.cancel_requested && asked.execution == Execution::Running);
    for effect in 0..2 {
        let outcome = Outcome::NotSent { why: "refused".into(), pause: Millis(0) };
        then(Event::Receive { fence, effect, outcome });
    }
    let ended = then(Event::Fail { fence, reason: "cancelled between two effects".into() });
    assert_eq!(ended.execution, Execution::Cancelled { explicit: true });
    let again = Event::Claim { epoch: Epoch(1), by_call: true, owner_dead: false };
    assert_eq!(decide(&ended, again, BASE), Err(Refusal::State));
}

/// Another replica's news was later than this one's, which counted for more: the guard window ended before its time.
#[tokio::test(start_paused = true)]
async fn the_guard_window_counts_from_the_last_news_of_all() {
    let b = Boot::plain(Strategy::Key, &[]);
    let call = Call { guard_window: Millis(1000), ..unkeyed() };
    let first = result(&b.call(&call).await).0;
    let second = result(&b.call(&keyed(&first.id.to_string())).await).0;
    *b.store.held.lock().unwrap() = Some(Vec::new());
    b.ledger.delivered(&first, DeliveryState::Written);
    b.ledger.delivered(&second, DeliveryState::Written);
    pause(500).await;
    let now = store::Store::now(&*b.memory);
    let gone = decide(&first, Event::Deliver(DeliveryState::Undelivered), now).unwrap();
    let write =
        store::Write::Update { operation: Box::new(gone.next), stamp: 1, blobs: vec![], handles: vec![] };
    assert_eq!(b.memory.write(write).await.unwrap(), Committed::Done);
    pause(700).await;
    refused(&b.call(&call).await, Kind::Twin);
    assert_eq!(b.count().await, 1);
}
