//! Limits of what begins anew and of what goes on: each beginning counts once, in its own time.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;
use support::limited::*;
use support::*;

use counterfoil_ledger::*;
use std::sync::atomic::Ordering::SeqCst;

#[tokio::test(start_paused = true)]
async fn each_beginning_counts_in_a_rate() {
    // Nine sends that never left: three attempts of one operation, each of them called for.
    let b = limited(Strategy::Key, &[Act::NotSent; 9], &[rate(3), budget(100, 100)]);
    let call = other("a", 1);
    for begun in 1..=3 {
        assert_eq!(word(&b.call(&call).await), "unavailable");
        assert_eq!((used(&b, "rate").await, used(&b, "budget").await), (begun, 0));
    }
    let sent = b.provider.send_count();
    for _ in 0..3 {
        let e = refusal(b.call(&call).await);
        assert!(e.operation.is_some() && e.retry_after.is_some_and(|t| t <= Millis::secs(60)), "{e:?}");
    }
    assert_eq!((b.provider.send_count(), used(&b, "rate").await), (sent, 3));
    // What it needs besides is refused: then it began nothing, and counts nothing.
    tokio::time::sleep(Millis::secs(61).duration()).await;
    assert_eq!(word(&b.call(&other("b", 2)).await), "result");
    assert_eq!(word(&b.call(&call).await), "limited");
    assert_eq!(used(&b, "rate").await, 1);
    // Of two that come at once, one begins it and the other joins.
    tokio::time::sleep(HOUR.duration()).await;
    let (one, two) = tokio::join!(b.call(&call), b.call(&call));
    assert_eq!((word(&one), word(&two)), ("result", "result"));
    assert_eq!((used(&b, "rate").await, b.provider.effects()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn who_meant_to_join_what_failed_meanwhile_claims_first() {
    let a = limited(Strategy::Key, &[Act::NotSent; 3], &[budget(100, 100), rate(9)]);
    let b = a.beside();
    let call = other("k", 1);
    let first = a.spawn_call(&call);
    pause(10).await;
    // It reads that it runs, and is slow to write that it joins.
    b.store.latency.store(8000, SeqCst);
    let second = b.spawn_call(&call);
    assert_eq!(word(&first.await.unwrap()), "unavailable");
    assert_eq!(word(&a.call(&other("c", 2)).await), "result");
    assert_eq!(word(&second.await.unwrap()), "limited");
    assert_eq!((a.provider.effects(), used(&a, "budget").await, used(&a, "rate").await), (1, 100, 2));
    // There is room: it begins it anew instead.
    let a = limited(Strategy::Key, &[Act::NotSent; 3], &[budget(100, 100), rate(9)]);
    let b = a.beside();
    let first = a.spawn_call(&call);
    pause(10).await;
    b.store.latency.store(8000, SeqCst);
    let second = b.spawn_call(&call);
    assert_eq!(word(&first.await.unwrap()), "unavailable");
    b.store.latency.store(0, SeqCst);
    assert_eq!(word(&second.await.unwrap()), "result");
    assert_eq!((a.provider.effects(), used(&a, "budget").await, used(&a, "rate").await), (1, 100, 2));
}

#[tokio::test(start_paused = true)]
async fn who_finds_its_own_operation_in_the_way_joins_it() {
    let a = limited(Strategy::Key, &[], &[rate(1)]);
    let b = a.beside();
    b.store.claim_latency.store(200, SeqCst);
    let call = other("k", 1);
    // It reads that there is none, and claims when another call has what it needs.
    let late = b.spawn_call(&call);
    pause(10).await;
    assert_eq!(word(&a.call(&call).await), "result");
    assert_eq!(word(&late.await.unwrap()), "replayed");
    assert_eq!((a.provider.effects(), used(&a, "rate").await), (1, 1));
    let e = refusal(b.call(&other("c", 2)).await);
    assert_eq!(e.operation, None);
    // The same of one that begins anew.
    let a = limited(Strategy::Key, &[Act::NotSent; 3], &[rate(2)]);
    assert_eq!(word(&a.call(&call).await), "unavailable");
    let b = a.beside();
    b.store.claim_latency.store(200, SeqCst);
    let late = b.spawn_call(&call);
    pause(10).await;
    assert_eq!(word(&a.call(&call).await), "result");
    assert!(matches!(word(&late.await.unwrap()), "result" | "replayed"));
    assert_eq!((a.provider.effects(), used(&a, "rate").await), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_beginning_that_is_refused_counts_in_no_rate() {
    let b = limited(Strategy::Key, &[Act::NotSent; 3], &[rate(9)]);
    let call = other("k", 1);
    assert_eq!(word(&b.call(&call).await), "unavailable");
    b.store.faults.lock().unwrap().push_back(Fault::Refused);
    assert_eq!(word(&b.call(&call).await), "admission_unknown");
    assert_eq!((b.provider.send_count(), used(&b, "rate").await), (3, 1));
    assert_eq!((word(&b.call(&call).await), used(&b, "rate").await), ("result", 2));
}

#[tokio::test(start_paused = true)]
async fn what_was_abandoned_claims_its_place_again() {
    let mut a = limited(Strategy::Key, &[], &[place(1)]);
    a.single = false;
    a.mood(Mood::SleepBefore(3000));
    let b = a.beside();
    let call = other("k", 1);
    let leaves = async { a.call_for(&call, 500).await };
    let stays = async {
        pause(100).await;
        b.call(&call).await
    };
    let comes = async {
        pause(501).await;
        a.call(&other("c", 2)).await
    };
    let (_, stays, comes) = tokio::join!(leaves, stays, comes);
    assert_eq!((word(&stays), word(&comes)), ("limited", "result"));
    assert_eq!((a.provider.effects(), used(&a, "place").await), (1, 0));
    assert_eq!(word(&b.call(&call).await), "result");
}

#[tokio::test(start_paused = true)]
async fn what_is_claimed_too_late_is_given_back() {
    let script = [Act::NotSent, Act::NotSent, Act::NotSent, Act::Refuse];
    let a = limited(Strategy::Key, &script, &[budget(100, 100), place(1), rate(9)]);
    let call = other("k", 1);
    assert_eq!(word(&a.call(&call).await), "unavailable");
    // It reads that it failed, and claims when another call has run it to its end.
    let b = a.beside();
    b.store.claim_latency.store(6000, SeqCst);
    let late = b.spawn_call(&call);
    pause(10).await;
    assert_eq!(word(&a.call(&call).await), "error");
    assert_eq!(word(&late.await.unwrap()), "replayed");
    assert_eq!((used(&a, "budget").await, used(&a, "place").await, used(&a, "rate").await), (0, 0, 2));
    assert_eq!(a.provider.effects(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_beginning_that_is_written_late_counts() {
    let b = limited(Strategy::Key, &[Act::NotSent; 3], &[rate(9)]);
    b.start();
    let call = other("a", 1);
    assert_eq!(word(&b.call(&call).await), "unavailable");
    // It begins anew, is not told so, tries once more and finds that it runs: nobody else began it.
    b.store.latency.store(20, SeqCst);
    b.store.faults.lock().unwrap().push_back(Fault::Late);
    let said = b.call(&call).await;
    assert!(matches!(word(&said), "result" | "replayed"), "{said:?}");
    assert_eq!((used(&b, "rate").await, b.provider.effects()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn what_ends_while_it_claims_to_go_on_holds_nothing() {
    let mut b = limited(Strategy::Key, &[], &[budget(100, 100), place(1)]);
    (b.asks, b.single) = (vec![approval()], false);
    let call = keyed("k");
    assert!(matches!(b.asked(&call).await, Answer::Input { .. }));
    let op = by_key(&b, &call).await;
    b.store.claim_latency.store(2000, SeqCst);
    b.ledger.answer(op.id, "ann", &[("approval".into(), b"yes".to_vec())]).await.unwrap();
    pause(10).await;
    // What it holds is given back before what it claims to go on is made.
    b.ledger.cancel(op.id, "ann".into()).await.unwrap();
    assert_eq!(by_key(&b, &call).await.execution.word(), "cancelled");
    assert_eq!((used(&b, "budget").await, used(&b, "place").await), (0, 0));
    pause(1200).await;
    assert_eq!(used(&b, "budget").await, 100, "it came too late to be taken back with the rest");
    pause(1200).await;
    assert_eq!((used(&b, "budget").await, used(&b, "place").await, b.provider.effects()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_yes_is_not_refused_and_takes_its_place() {
    let mut b = limited(Strategy::Key, &[], &[place(1)]);
    b.asks = vec![approval()];
    let call = keyed("k");
    let Answer::Input { operation, .. } = b.asked(&call).await else { panic!("it asks") };
    let waits = operation.id;
    // Somebody else has the one place.
    let taken = Claim { bucket: "place".into(), amount: 1, cap: 1, until: b.store.now().plus(HOUR) };
    assert_eq!(b.memory.claim(OperationId(1), 1, &[taken]).await.unwrap(), Claimed::Granted);
    b.mood(Mood::SleepBefore(1000));
    b.ledger.answer(waits, "ann", &[("approval".into(), b"yes".to_vec())]).await.unwrap();
    tokio::time::sleep(Millis(500).duration()).await;
    assert_eq!(used(&b, "place").await, 2, "it goes on, and is seen");
    tokio::time::sleep(Millis(5000).duration()).await;
    assert_eq!((used(&b, "place").await, b.provider.effects()), (1, 1));
}

const DAY: i64 = 86_400_000;

fn of_a_day(amount: u64, cap: u64) -> Allowance {
    allowance("day", amount, cap, Term::Budget(Period::Day))
}

/// Sleeps until so many milliseconds before the day ends.
async fn before_midnight(b: &Boot, ms: i64) {
    let left = Period::Day.end(b.store.now()).since(b.store.now());
    pause(left.0 - ms).await;
}

/// Begun ten seconds before midnight, it is recovered on the day after: that day's calls find all of its budget.
#[tokio::test(start_paused = true)]
async fn what_was_begun_yesterday_is_not_charged_today() {
    let first = limited(Strategy::Key, &[Act::ApplyAndLose], &[of_a_day(900, 1000), place(1)]);
    before_midnight(&first, 10_000).await;
    let late = first.spawn_call(&other("a", 1));
    // It is sent, and the answer is lost; then the process is.
    pause(20).await;
    assert_eq!((first.provider.send_count(), used(&first, "day").await), (1, 900));
    first.env.kill();
    assert!(late.await.is_err());
    pause(15_000).await;
    let b = first.next(Default::default());
    b.mood(Mood::SleepBefore(2000));
    b.start();
    pause(1000).await;
    assert_eq!((used(&b, "day").await, used(&b, "place").await), (0, 1), "it goes on, and takes its place");
    b.mood(Mood::Plain);
    let mut others = b.beside();
    others.allowances = vec![of_a_day(900, 1000)];
    assert_eq!(word(&others.call(&other("b", 2)).await), "result");
    pause(5000).await;
    assert_eq!(word(&b.call(&other("a", 1)).await), "replayed");
    assert_eq!((used(&b, "day").await, b.provider.effects()), (900, 2));
    assert_eq!(word(&others.call(&other("c", 3)).await), "limited");
}

/// A doubt that is asked about each day was begun on one of them.
#[tokio::test(start_paused = true)]
async fn a_doubt_that_is_asked_about_is_charged_once() {
    let budgets = [of_a_day(100, 1000), allowance("24h", 100, 1000, Term::Budget(Period::Last(Millis(DAY))))];
    let asked = Recovery { can_look_up: true, ..recovery(Strategy::None) };
    let mut b = Boot::first(Provider::new(false, &[Act::ApplyAndLose]), asked, Default::default());
    b.allowances = budgets.to_vec();
    b.start();
    before_midnight(&b, 60_000).await;
    b.provider.deaf.store(usize::MAX, SeqCst);
    assert_eq!(word(&b.call(&other("a", 1)).await), "in_doubt");
    assert_eq!((used(&b, "day").await, used(&b, "24h").await), (100, 100));
    // Each question is an attempt; none of them makes it count for longer.
    for hour in 1..30 {
        pause(HOUR.0).await;
        assert_eq!(word(&b.call(&other("a", 1)).await), "in_doubt");
        assert!(by_key(&b, &other("a", 1)).await.attempt > hour, "it was asked");
        let counts = (used(&b, "day").await, used(&b, "24h").await);
        assert_eq!(counts, (0, if hour < 24 { 100 } else { 0 }), "{hour} hours later");
    }
}

/// Who begins anew what came to nothing begins it on that day, and what recovery does with it counts there.
#[tokio::test(start_paused = true)]
async fn what_begins_anew_counts_when_it_does() {
    let script = [Act::NotSent, Act::NotSent, Act::NotSent, Act::ApplyAndLose];
    let a = limited(Strategy::Key, &script, &[of_a_day(900, 1000)]);
    before_midnight(&a, 5000).await;
    assert_eq!(word(&a.call(&other("a", 1)).await), "unavailable");
    assert_eq!((used(&a, "day").await, by_key(&a, &other("a", 1)).await.begun_at), (0, None));
    // By a call, which is killed when it has sent.
    pause(10_000).await;
    let anew = a.spawn_call(&other("a", 1));
    pause(20).await;
    assert_eq!((a.provider.send_count(), used(&a, "day").await), (4, 900));
    let begun = by_key(&a, &other("a", 1)).await.begun_at;
    assert!(begun.is_some_and(|t| a.store.now().since(t) < Millis(1000)), "{begun:?}");
    a.env.kill();
    assert!(anew.await.is_err());
    let b = a.next(Default::default());
    b.start();
    pause(8000).await;
    assert_eq!(word(&b.call(&other("a", 1)).await), "replayed");
    assert_eq!((used(&b, "day").await, b.provider.effects()), (900, 1));
    assert_eq!(by_key(&b, &other("a", 1)).await.begun_at, begun, "what goes on begins nothing");
    assert_eq!(word(&b.call(&other("b", 2)).await), "limited");
    // By an operator's word, whatever others hold.
    let b = limited(Strategy::Key, &script[..3], &[of_a_day(900, 1000)]);
    before_midnight(&b, 5000).await;
    assert_eq!(word(&b.call(&other("a", 1)).await), "unavailable");
    pause(10_000).await;
    b.ledger.retry(by_key(&b, &other("a", 1)).await.id, "ann".into()).await.unwrap();
    pause(2000).await;
    assert_eq!((used(&b, "day").await, b.provider.effects()), (900, 1));
    assert_eq!(word(&b.call(&other("b", 2)).await), "limited");
}

/// What waits for a yes is sent on the day of the yes, and counts there: a budget of a day is not spent twice around midnight.
#[tokio::test(start_paused = true)]
async fn what_waited_for_a_yes_counts_when_it_is_sent() {
    let mut a = limited(
        Strategy::Key,
        &[],
        &[of_a_day(900, 1000), allowance("24h", 900, 1000, Term::Budget(Period::Last(Millis(DAY))))],
    );
    a.asks = vec![approval()];
    before_midnight(&a, 60_000).await;
    let Answer::Input { operation, .. } = a.asked(&other("a", 1)).await else { panic!("it asks") };
    assert_eq!((used(&a, "day").await, used(&a, "24h").await), (900, 900));
    pause(120_000).await;
    assert_eq!(used(&a, "day").await, 0, "nothing is sent today yet");
    a.ledger.answer(operation.id, "ann", &[("approval".into(), b"yes".to_vec())]).await.unwrap();
    pause(1000).await;
    assert_eq!((used(&a, "day").await, a.provider.effects()), (900, 1));
    let mut others = a.beside();
    others.asks.clear();
    assert_eq!(word(&others.call(&other("b", 2)).await), "limited");
    // It counts once, from then on.
    pause(DAY - 41_000).await;
    assert_eq!((used(&a, "day").await, used(&a, "24h").await), (0, 900));
    pause(60_000).await;
    assert_eq!(used(&a, "24h").await, 0);
    // Asked after its effect, it goes on with what it has begun.
    let mut b = limited(Strategy::Key, &[], &[of_a_day(900, 1000)]);
    b.single = false;
    b.mood(Mood::AsksAfter);
    before_midnight(&b, 60_000).await;
    let Answer::Input { operation, .. } = b.asked(&other("a", 1)).await else { panic!("it asks") };
    pause(120_000).await;
    let answers = ["name", "size"].map(|key| (key.into(), b"x".to_vec()));
    b.ledger.answer(operation.id, "ann", &answers).await.unwrap();
    pause(1000).await;
    assert_eq!((used(&b, "day").await, b.provider.effects()), (0, 1));
    assert_eq!(by_key(&b, &other("a", 1)).await.execution.word(), "completed");
}
