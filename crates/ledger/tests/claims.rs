//! Limits that operations keep to together: what is claimed before they are written, what is given back, and who is never
//! refused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;
use support::limited::*;
use support::*;

use counterfoil_ledger::*;
use std::sync::atomic::Ordering::SeqCst;

pub(crate) fn what_is_used_up_is_refused_before_anything_is_written() {
    run(async {
        let b = limited(Strategy::Key, &[], &[own(budget(40, 100)), rate(9)]);
        for n in 1..=2 {
            assert_eq!(word(&b.call(&other(&format!("k{n}"), n)).await), "result");
        }
        let e = refusal(b.call(&other("k3", 3)).await);
        assert_eq!(
            e.sentence,
            "This call would go over a limit, so nothing ran. the budget of refunds: at most 100 in 1 hour; 80 are used, \
             20 are left, and this call asks for 40."
        );
        assert!(
            e.advice.starts_with("Ask for at most 20, or call again with the same arguments"),
            "{}",
            e.advice
        );
        assert!(e.retry_after.is_some_and(|t| t > Millis(0) && t <= HOUR), "{:?}", e.retry_after);
        assert_eq!((e.operation, e.retry_key.as_ref(), e.new_key.as_ref()), (None, None, None));
        // What never fits is no matter of when.
        let mut more = b.beside();
        more.allowances = vec![budget(101, 100)];
        let Answer::Error(e) = more.call(&other("k4", 4)).await else { panic!("it fits") };
        assert_eq!((e.kind, e.retry_after), (Kind::Denied, None));
        assert!(e.advice.ends_with("one call may ask for at most 100."), "{}", e.advice);
        // Nothing is there, and what fitted was not taken either.
        assert!(
            b.memory
                .by_key(&other("k3", 3).scope.key_hash(&Key::new("k3").unwrap()))
                .await
                .unwrap()
                .is_none()
        );
        assert_eq!((used(&b, "budget").await, used(&b, "rate").await), (80, 2));
        assert_eq!(b.provider.effects(), 2);
        // The same call is let through once there is room.
        tokio::time::sleep(HOUR.duration()).await;
        assert_eq!(word(&b.call(&other("k3", 3)).await), "result");
    });
}

fn run(f: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(f);
}

#[test]
fn a_full_allowance_refuses() {
    what_is_used_up_is_refused_before_anything_is_written();
}

#[tokio::test(start_paused = true)]
async fn who_comes_again_is_neither_refused_nor_counted() {
    let b = limited(Strategy::Key, &[], &[budget(100, 100), rate(1), place(1)]);
    assert_eq!(word(&b.call(&keyed("k")).await), "result");
    for _ in 0..3 {
        assert_eq!(word(&b.call(&keyed("k")).await), "replayed");
    }
    // A replica that never met the key, and one that is started anew.
    assert_eq!(word(&b.beside().call(&keyed("k")).await), "replayed");
    let next = b.next(Default::default());
    assert_eq!(word(&next.call(&keyed("k")).await), "replayed");
    assert_eq!((used(&b, "budget").await, used(&b, "rate").await, used(&b, "place").await), (100, 1, 0));
    // Without a key, the same call is the same operation.
    let b = limited(Strategy::Key, &[], &[rate(1)]);
    assert_eq!(word(&b.call(&unkeyed()).await), "result");
    assert_ne!(word(&b.call(&unkeyed()).await), "limited");
    // And who joins one that runs.
    let b = limited(Strategy::Key, &[], &[place(1)]);
    b.mood(Mood::SleepBefore(2000));
    let (one, two) = (keyed("k"), keyed("k"));
    let (first, second) = tokio::join!(b.call(&one), b.call(&two));
    assert_eq!((word(&first), word(&second)), ("result", "result"));
    assert_eq!(b.provider.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_came_to_nothing_is_given_back() {
    // A definite refusal of the provider.
    let b = limited(Strategy::Key, &[Act::Refuse], &[budget(100, 100), place(1), rate(5)]);
    assert_eq!(word(&b.call(&other("a", 1)).await), "error");
    assert_eq!((used(&b, "budget").await, used(&b, "place").await, used(&b, "rate").await), (0, 0, 1));
    assert_eq!(word(&b.call(&other("b", 2)).await), "result");
    assert_eq!((used(&b, "budget").await, used(&b, "place").await), (100, 0));
    assert_eq!(word(&b.call(&other("c", 3)).await), "limited");

    // Nothing was ever sent: failed. The next call of it claims again, and is refused if there is nothing left.
    let b = limited(Strategy::Key, &[Act::NotSent; 3], &[budget(100, 100)]);
    assert_eq!(word(&b.call(&other("a", 1)).await), "unavailable");
    assert_eq!(used(&b, "budget").await, 0);
    assert_eq!(word(&b.call(&other("b", 2)).await), "result");
    assert_eq!(word(&b.call(&other("a", 1)).await), "limited");
    assert_eq!(by_key(&b, &other("a", 1)).await.execution.word(), "failed", "it stays as it was");
    tokio::time::sleep(HOUR.duration()).await;
    assert_eq!(word(&b.call(&other("a", 1)).await), "result");
    assert_eq!((used(&b, "budget").await, b.provider.effects()), (100, 2));

    // Denied by a person; while it waits it holds its part of the budget, and no place.
    let mut b = limited(Strategy::Key, &[], &[budget(100, 100), place(1)]);
    b.asks = vec![approval()];
    let call = keyed("k");
    assert!(matches!(b.asked(&call).await, Answer::Input { .. }));
    assert_eq!((used(&b, "budget").await, used(&b, "place").await), (100, 0));
    let op = by_key(&b, &call).await;
    b.ledger.cancel(op.id, "ann".into()).await.unwrap();
    assert_eq!(used(&b, "budget").await, 0);
}

pub(crate) fn a_doubt_keeps_what_it_holds() {
    run(async {
        let b = limited(Strategy::None, &[Act::ApplyAndLose], &[budget(100, 100), place(1)]);
        assert_eq!(word(&b.call(&other("a", 1)).await), "in_doubt");
        assert_eq!((used(&b, "budget").await, used(&b, "place").await), (100, 0));
        assert_eq!(word(&b.call(&other("b", 2)).await), "limited");
        // It turns out not to have happened.
        let op = by_key(&b, &other("a", 1)).await;
        b.ledger.decide(op.id, "ann".into(), Verdict::NotApplied).await.unwrap();
        b.start();
        tokio::time::sleep(Millis::secs(30).duration()).await;
        assert_eq!(used(&b, "budget").await, 0, "{:?}", by_key(&b, &other("a", 1)).await);
        assert_eq!(word(&b.call(&other("b", 2)).await), "result");
    });
}

#[test]
fn what_may_have_happened_counts() {
    a_doubt_keeps_what_it_holds();
}

/// Three claims that took longer than a second: each of them was over when it was made.
pub(crate) fn what_takes_too_long_to_claim_is_claimed_again() {
    run(async {
        let one_a_second = allowance("second", 1, 1, Term::Rate(Millis(1000)));
        let b = limited(Strategy::Key, &[], &[one_a_second.clone(), budget(40, 100), place(3)]);
        b.store.claim_latency.store(2400, SeqCst);
        let late: Vec<_> = (1..=3).map(|n| b.spawn_call(&other(&format!("k{n}"), n))).collect();
        pause(100).await;
        b.store.claim_latency.store(0, SeqCst);
        let mut said = Vec::new();
        for one in late {
            said.push(word(&one.await.unwrap()));
        }
        said.sort_unstable();
        assert_eq!(said, ["limited", "limited", "result"]);
        let held = (used(&b, "second").await, used(&b, "budget").await, used(&b, "place").await);
        assert_eq!((held, b.provider.effects()), ((1, 40, 0), 1), "who was refused holds nothing");
        // It always takes longer: then nothing runs, rather than more than is allowed.
        b.store.claim_latency.store(2400, SeqCst);
        pause(2000).await;
        let Answer::Error(e) = b.call(&other("k4", 4)).await else { panic!("it ran") };
        assert_eq!((e.kind, b.provider.effects()), (Kind::Unavailable, 1));
        assert_eq!(used(&b, "budget").await, 40);
        // Of a day that ends meanwhile nothing is spent; it counts in the next.
        let b = limited(Strategy::Key, &[], &[allowance("day", 900, 1000, Term::Budget(Period::Day))]);
        pause(Period::Day.end(b.store.now()).since(b.store.now()).0 - 100).await;
        b.store.claim_latency.store(400, SeqCst);
        assert_eq!(word(&b.call(&other("k1", 1)).await), "result");
        assert_eq!(word(&b.call(&other("k2", 2)).await), "limited");
        assert_eq!(used(&b, "day").await, 900);
    });
}

#[test]
fn claims_that_are_over_at_once_are_none() {
    what_takes_too_long_to_claim_is_claimed_again();
}

#[tokio::test(start_paused = true)]
async fn a_place_is_free_when_the_answer_is_there() {
    let b = limited(Strategy::Key, &[], &[place(1)]);
    for n in 0..20 {
        assert_eq!(word(&b.call(&other(&format!("k{n}"), n)).await), "result");
    }
    b.mood(Mood::SleepBefore(1000));
    let (one, two) = (other("x", 100), other("y", 101));
    let (first, second) = tokio::join!(b.call(&one), b.call(&two));
    let mut both = [word(&first), word(&second)];
    both.sort_unstable();
    assert_eq!(both, ["limited", "result"]);
    let e = refusal(if word(&first) == "limited" { first } else { second });
    assert!(e.sentence.ends_with("at most 1 at a time; as many are running."), "{}", e.sentence);
}

#[tokio::test(start_paused = true)]
async fn a_lost_acknowledgement_claims_once() {
    let b = limited(Strategy::Key, &[], &[budget(100, 100), rate(3)]);
    b.store.claim_faults.lock().unwrap().extend([Fault::AckLost, Fault::LostUncertain, Fault::AckLost]);
    assert_eq!(word(&b.call(&other("a", 1)).await), "result");
    assert_eq!((used(&b, "budget").await, used(&b, "rate").await), (100, 1));
    // It never becomes clear: nothing of the operation was written, so nothing ran.
    let b = limited(Strategy::Key, &[], &[budget(100, 100)]);
    b.store.claim_faults.lock().unwrap().extend([Fault::LostUncertain; 4]);
    assert_eq!(word(&b.call(&other("a", 1)).await), "unavailable");
    b.store.claim_faults.lock().unwrap().push_back(Fault::Refused);
    assert_eq!(word(&b.call(&other("a", 1)).await), "unavailable");
    assert_eq!((b.provider.send_count(), used(&b, "budget").await), (0, 0));
    // Nor does it hold anything if it was made.
    b.store.claim_faults.lock().unwrap().extend([Fault::AckLost; 4]);
    assert_eq!(word(&b.call(&other("a", 1)).await), "unavailable");
    assert_eq!((b.provider.send_count(), used(&b, "budget").await), (0, 0));
    assert_eq!(word(&b.call(&other("a", 1)).await), "result");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_given_back() {
    let b = limited(Strategy::Key, &[], &[budget(100, 100), rate(1)]);
    b.store.faults.lock().unwrap().push_back(Fault::Refused);
    assert_eq!(word(&b.call(&other("a", 1)).await), "unavailable");
    assert_eq!((used(&b, "budget").await, used(&b, "rate").await), (0, 0));
    // Not known whether it was: it is held.
    b.store.faults.lock().unwrap().push_back(Fault::LostUncertain);
    assert_eq!(word(&b.call(&other("a", 1)).await), "admission_unknown");
    assert_eq!(used(&b, "budget").await, 100);
    // Made, and the acknowledgement lost.
    let b = limited(Strategy::Key, &[], &[budget(100, 100)]);
    b.store.faults.lock().unwrap().push_back(Fault::AckLost);
    assert_eq!(word(&b.call(&other("a", 1)).await), "result");
    assert_eq!(used(&b, "budget").await, 100);
}

/// Killed at each of its steps, started again, called again: never more than the cap, whatever was cut off.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_step_lets_nothing_too_much_through() {
    let mut stopped = 0;
    for step in 0..40 {
        let gate = Gate::at(step);
        let mut first = Boot::first(Provider::new(true, &[]), recovery(Strategy::Key), gate.clone());
        first.allowances = vec![budget(60, 100), place(2)];
        let call = other("a", 1);
        let reached = tokio::select! {
            () = gate.reached.notified() => true,
            a = first.call(&call) => { assert_eq!(word(&a), "result"); false }
        };
        if !reached {
            break;
        }
        stopped += 1;
        first.env.kill();
        let b = first.next(Default::default());
        b.start();
        // Whatever it held, two of them never fit.
        let others = [b.call(&other("b", 2)).await, b.call(&other("c", 3)).await];
        let again = b.call(&call).await;
        let made = others.iter().chain([&again]).filter(|a| matches!(word(a), "result" | "replayed")).count();
        assert!(made <= 1 && b.provider.effects() <= 1, "step {step}: {made} {}", b.provider.effects());
        assert!(used(&b, "budget").await <= 100);
        // It ends by itself, and then there is room again.
        tokio::time::sleep(Millis::secs(3601).duration()).await;
        assert!(matches!(word(&b.call(&call).await), "result" | "replayed"), "step {step}");
    }
    assert!(stopped > 6, "{stopped}");
}

#[tokio::test(start_paused = true)]
async fn a_read_holds_a_place_while_it_lasts() {
    let b = Boot::plain(Strategy::Key, &[]);
    let both = [place(1), rate(2)];
    let hold = b.ledger.hold_for_read(&both).await.unwrap();
    let refused = b.ledger.hold_for_read(&both).await.err().unwrap();
    assert_eq!(refused.kind, Kind::Limited);
    hold.end().await;
    assert_eq!((used(&b, "place").await, used(&b, "rate").await), (0, 1));
    drop(b.ledger.hold_for_read(&both).await.unwrap());
    tokio::time::sleep(Millis(10).duration()).await;
    assert_eq!((used(&b, "place").await, used(&b, "rate").await), (0, 2), "one that is broken off, too");
    let refused = b.ledger.hold_for_read(&both).await.err().unwrap();
    assert!(
        refused.sentence.contains("at most 2 in 1 minute; as many began in that time"),
        "{}",
        refused.sentence
    );
    let mine = [own(place(1)), own(rate(2))];
    let refused = b.ledger.hold_for_read(&mine).await.err().unwrap();
    assert!(refused.sentence.contains("at most 2 in 1 minute; 2 began in that time"), "{}", refused.sentence);
    assert!(b.ledger.hold_for_read(&[]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_broken_off_while_it_claims_holds_nothing() {
    let b = Boot::plain(Strategy::Key, &[]);
    b.store.claim_latency.store(1000, SeqCst);
    let both = [place(1), rate(2)];
    let off = tokio::time::timeout(Millis(700).duration(), b.ledger.hold_for_read(&both)).await;
    assert!(off.is_err() && used(&b, "rate").await == 1, "it is made, and nobody heard of it");
    pause(10).await;
    assert_eq!(used(&b, "place").await, 0);
    // Nor one of which it never became clear whether it claimed.
    b.store.claim_faults.lock().unwrap().extend([Fault::AckLost; 4]);
    assert_eq!(b.ledger.hold_for_read(&both).await.err().unwrap().kind, Kind::Unavailable);
    assert_eq!((used(&b, "place").await, used(&b, "rate").await), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_shared_does_not_tell_what_others_do() {
    let b = limited(Strategy::Key, &[], &[budget(40, 100)]);
    for n in 1..=2 {
        assert_eq!(word(&b.call(&other(&format!("k{n}"), n)).await), "result");
    }
    let e = refusal(b.call(&other("k3", 3)).await);
    assert!(
        e.sentence.ends_with("at most 100 in 1 hour; not so much is left: this call asks for 40."),
        "{}",
        e.sentence
    );
    assert!(e.advice.starts_with("Ask for less, or call again with the same arguments"), "{}", e.advice);
    assert!(![&e.sentence, &e.advice].iter().any(|t| t.contains("80") || t.contains("20")), "{e:?}");
}

#[tokio::test(start_paused = true)]
async fn old_claims_are_removed() {
    let b = limited(Strategy::Key, &[], &[rate(5)]);
    b.start();
    assert_eq!(word(&b.call(&keyed("k")).await), "result");
    tokio::time::sleep(Millis::secs(200).duration()).await;
    assert_eq!(b.memory.prune_claims(b.store.now(), 10).await.unwrap(), 0, "they went by themselves");
    assert_eq!(b.tool.runs.load(SeqCst), 1);
    // However many, at a time.
    let until = b.store.now().plus(Millis(10));
    for n in 0..300 {
        let one = Claim { bucket: "many".into(), amount: 1, cap: 300, until };
        assert_eq!(b.memory.claim(OperationId(n), 1, &[one]).await.unwrap(), Claimed::Granted);
    }
    tokio::time::sleep(Millis::secs(62).duration()).await;
    assert_eq!(b.memory.prune_claims(b.store.now(), 300).await.unwrap(), 0, "all of them went at once");
}

/// Two replicas, lost acknowledgements, a provider with its moods, everything called more than once: whatever happens, no
/// more than the budget has its effect, and whatever has its effect is counted.
#[test]
fn by_chance_nothing_is_overspent_and_nothing_is_uncounted() {
    let (mut full, mut spent) = (0, 0);
    for seed in 0..80_u64 {
        run(async {
            let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut roll = |n: usize| {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                usize::try_from(dice % n as u64).unwrap()
            };
            let moods = [Act::Apply, Act::Refuse, Act::NotSent, Act::ApplyAndLose, Act::Lose, Act::Busy];
            let script: Vec<Act> = (0..14).map(|_| moods[roll(moods.len())]).collect();
            let strategy = [Strategy::Key, Strategy::None, Strategy::Lookup][roll(3)];
            let a = limited(strategy, &script, &[budget(1, 3), place(4)]);
            let mut b = a.beside();
            b.allowances.clone_from(&a.allowances);
            for boot in [&a, &b] {
                boot.start();
                let faults = [Fault::Fine, Fault::Fine, Fault::AckLost, Fault::LostUncertain, Fault::Refused];
                let some = |roll: &mut dyn FnMut(usize) -> usize| {
                    (0..8).map(|_| faults[roll(5)]).collect::<Vec<_>>()
                };
                boot.store.claim_faults.lock().unwrap().extend(some(&mut roll));
                let writes = [Fault::Fine, Fault::Fine, Fault::Fine, Fault::AckLost];
                boot.store.faults.lock().unwrap().extend((0..10).map(|_| writes[roll(4)]));
            }
            let calls: Vec<(bool, u32, i64)> = (0..16)
                .map(|_| (roll(2) == 0, u32::try_from(roll(7)).unwrap(), i64::try_from(roll(3000)).unwrap()))
                .collect();
            let said = calls.iter().map(|(first, n, after)| {
                let boot = if *first { &a } else { &b };
                async move {
                    tokio::time::sleep(Millis(*after).duration()).await;
                    word(&boot.call(&other(&format!("k{n}"), *n)).await)
                }
            });
            let said = futures_util::future::join_all(said).await;
            full += said.iter().filter(|w| **w == "limited").count();
            tokio::time::sleep(Millis::secs(120).duration()).await;
            for n in 0..7 {
                b.call(&other(&format!("k{n}"), n)).await;
            }
            let effects = u64::from(a.provider.effects());
            spent += effects;
            let held = used(&a, "budget").await;
            assert!(
                effects <= 3 && effects <= held && held <= 3,
                "seed {seed} {strategy:?}: {effects} {held} {said:?}"
            );
            assert_eq!(used(&a, "place").await, 0, "seed {seed}");
        });
    }
    assert!(full > 50 && spent > 80, "it goes everywhere: {full} {spent}");
}
