//! What becomes of an attempt: every strategy under every outcome of a send, tools that misbehave, the cap,
//! doubts and the words that end them, deliveries.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;
use support::*;

use counterfoil_ledger::*;
use std::sync::atomic::Ordering::SeqCst;

/// What a call that waits long enough is answered, and what is true then.
#[derive(Debug, PartialEq)]
struct End {
    answer: &'static str,
    effects: u32,
    sends: usize,
}

async fn end(
    strategy: Strategy,
    script: &[Act],
    otherwise: Act,
    change: impl Fn(&mut Recovery),
) -> (End, Boot) {
    let mut r = recovery(strategy);
    change(&mut r);
    let b = Boot::first(Provider::new(dedupes(strategy), script), r, Default::default());
    *b.provider.otherwise.lock().unwrap() = otherwise;
    b.start();
    let a = b.call(&Call { wait: Millis(120_000), ..keyed("k") }).await;
    let answer = match &a {
        Answer::Result { operation, .. } if operation.is_error => "error",
        Answer::Result { .. } => "result",
        Answer::Error(e) => e.kind.word(),
        Answer::Gone => "gone",
        _ => "other",
    };
    b.provider.assert_one_key();
    let (effects, sends) = (b.provider.effects(), b.provider.send_count());
    (End { answer, effects, sends }, b)
}

#[tokio::test(start_paused = true)]
async fn every_strategy_under_every_outcome() {
    use Act::*;
    use Strategy::*;
    // Strategy, what the provider does with the first sends and with all others, the answer, effects, sends.
    // The sends after the first are its replays, unless the first provably never left.
    type Row = (Strategy, &'static [Act], Act, &'static str, u32, usize);
    let table: &[Row] = &[
        (Key, &[], Apply, "result", 1, 1),
        (Key, &[NotSent, NotSent], Apply, "result", 1, 3),
        (Key, &[Busy], Apply, "result", 1, 2),
        (Key, &[ApplyAndLose], Apply, "result", 1, 2),
        (Key, &[ApplyAndHang], Apply, "result", 1, 2),
        (Key, &[Lose, Lose], Apply, "result", 1, 3),
        (Key, &[Refuse], Apply, "error", 0, 1),
        (Key, &[NotSent, Refuse], Apply, "error", 0, 2),
        (Key, &[Busy, Refuse], Apply, "error", 0, 2),
        // A refusal of a replay says nothing about the first send, and there is nobody to ask.
        (Key, &[ApplyAndLose, Refuse], Apply, "in_doubt", 1, 2),
        (Key, &[StoredFailure], Apply, "in_doubt", 0, 1),
        (Key, &[], NotSent, "unavailable", 0, 3),
        (Key, &[], Busy, "unavailable", 0, 3),
        // Unknown for ever: every attempt sends 3 times, 6 attempts.
        (Key, &[], Lose, "in_doubt", 0, 18),
        //
        (Unique, &[ApplyAndLose], Apply, "result", 1, 2),
        (Local, &[ApplyAndLose], Apply, "result", 1, 2),
        (Natural, &[ApplyAndLose], Apply, "result", 1, 2),
        (Natural, &[ApplyAndHang], Apply, "result", 1, 2),
        //
        (Lookup, &[], Apply, "result", 1, 1),
        (Lookup, &[NotSent], Apply, "result", 1, 2),
        (Lookup, &[ApplyAndLose], Apply, "result", 1, 1),
        (Lookup, &[ApplyAndHang], Apply, "result", 1, 1),
        (Lookup, &[Lose], Apply, "result", 1, 2),
        (Lookup, &[Lose], Refuse, "in_doubt", 0, 2),
        (Lookup, &[Refuse], Apply, "error", 0, 1),
        (Lookup, &[], NotSent, "unavailable", 0, 3),
        //
        (Confirm, &[], Apply, "result", 1, 1),
        (Confirm, &[NotSent, Busy], Apply, "result", 1, 3),
        (Confirm, &[ApplyAndLose], Apply, "in_doubt", 1, 1),
        (Confirm, &[Lose], Apply, "in_doubt", 0, 1),
        //
        (None, &[], Apply, "result", 1, 1),
        (None, &[NotSent, Busy], Apply, "result", 1, 3),
        (None, &[ApplyAndLose], Apply, "in_doubt", 1, 1),
        (None, &[ApplyAndHang], Apply, "in_doubt", 1, 1),
        (None, &[Lose], Apply, "in_doubt", 0, 1),
        (None, &[Refuse], Apply, "error", 0, 1),
        (None, &[], NotSent, "unavailable", 0, 3),
    ];
    for (strategy, script, otherwise, answer, effects, sends) in table {
        let (got, b) = end(*strategy, script, *otherwise, |_| ()).await;
        let want = End { answer, effects: *effects, sends: *sends };
        assert_eq!(got, want, "{strategy:?} {script:?} then {otherwise:?}\n{:#?}", b.only().await);
        assert_eq!(b.ledger.running(), 0);
        b.env.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_repeats_the_first_answer_settles() {
    let (got, _) =
        end(Strategy::Key, &[Act::Lose, Act::Refuse], Act::Apply, |r| r.replays_first_answer = true).await;
    assert_eq!(got, End { answer: "error", effects: 0, sends: 2 });
}

#[tokio::test(start_paused = true)]
async fn past_the_providers_memory_a_key_is_asked_about_or_doubted() {
    let brief = |r: &mut Recovery| r.replay_for = Some(Millis(1500));
    let (got, _) = end(Strategy::Key, &[], Act::Lose, brief).await;
    assert_eq!(got.answer, "in_doubt");
    assert!(got.sends < 18);
    let asked = |r: &mut Recovery| (r.replay_for, r.can_look_up) = (Some(Millis(1500)), true);
    let (got, b) = end(Strategy::Key, &[Act::ApplyAndHang], Act::Lose, asked).await;
    assert_eq!((got.answer, got.effects), ("result", 1));
    assert!(b.provider.looks.load(SeqCst) >= 1);
    // Nothing found, though asked late enough: never a fresh send under a forgotten key.
    let (got, b) = end(Strategy::Key, &[Act::Lose], Act::Lose, asked).await;
    assert_eq!((got.answer, got.effects), ("in_doubt", 0));
    // The effect turns up after all: the next call asks again and finds it.
    *b.provider.otherwise.lock().unwrap() = Act::Apply;
    let op = b.only().await;
    b.tool.line.send(&intent(&op.effects[0].recovery, "refund"), &op.effects[0].key, false, Millis(1)).await;
    let a = b.call(&keyed("k")).await;
    assert_eq!(result(&a).0.execution, Execution::Completed);
}

#[tokio::test(start_paused = true)]
async fn not_found_is_believed_only_after_the_quarantine() {
    // Applied, invisible at first: no second send.
    let b = Boot::plain(Strategy::Lookup, &[Act::ApplyAndLose]);
    b.provider.blind.store(3, SeqCst);
    b.start();
    let a = b.call(&Call { wait: Millis(120_000), ..keyed("k") }).await;
    result(&a);
    assert_eq!((b.provider.effects(), b.provider.send_count()), (1, 1));
    // Questions that are not answered don't count, and don't hammer.
    let b = Boot::plain(Strategy::Lookup, &[Act::Lose]);
    b.provider.deaf.store(5, SeqCst);
    b.start();
    result(&b.call(&Call { wait: Millis(120_000), ..keyed("k") }).await);
    assert_eq!((b.provider.effects(), b.provider.send_count()), (1, 2));
    assert!(b.provider.looks.load(SeqCst) < 40);
    // Invisible for longer than promised: the second look tells that there are two.
    let b = Boot::plain(Strategy::Lookup, &[Act::ApplyAndLose]);
    b.provider.blind_before_sends.store(2, SeqCst);
    b.start();
    result(&b.call(&Call { wait: Millis(120_000), ..keyed("k") }).await);
    assert_eq!(b.provider.effects(), 2);
    assert_eq!(b.notes.count("alert several"), 1);
    assert!(b.only().await.effects[0].several);
}

#[tokio::test(start_paused = true)]
async fn a_clock_step_does_not_make_recovery_hammer_the_provider() {
    let b = Boot::plain(Strategy::Lookup, &[Act::Lose]);
    b.start();
    let call = b.spawn_call(&Call { wait: Millis(120_000), ..keyed("k") });
    pause(3000).await;
    *b.store.clock_step.lock().unwrap() = Some(store::Store::now(&*b.store));
    let sends = b.provider.send_count();
    pause(2400).await;
    assert_eq!(b.provider.send_count(), sends, "the quarantine begins anew at the step");
    result(&call.await.unwrap());
    assert!(b.provider.looks.load(SeqCst) < 40, "{} questions", b.provider.looks.load(SeqCst));
    assert_eq!((b.provider.effects(), b.provider.send_count()), (1, 2));
}

/// However long the writes take: no send outlasts the deadline that is durable, or a *not found* would count
/// too early.
#[tokio::test(start_paused = true)]
async fn a_send_ends_by_its_recorded_deadline() {
    let b = Boot::plain(Strategy::Key, &[Act::Lose]);
    b.store.latency.store(600, SeqCst);
    result(&b.call(&keyed("k")).await);
    assert_eq!(*b.provider.timeouts.lock().unwrap(), [400, 400], "a send may take 1000, its record took 600");
    // Nothing is sent when no time is left.
    let b = Boot::plain(Strategy::None, &[]);
    b.store.latency.store(1200, SeqCst);
    refused(&b.call(&keyed("k")).await, Kind::Unavailable);
    assert_eq!(b.provider.send_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_asks_for_years_does_not_get_them() {
    let (got, _) = end(Strategy::Key, &[Act::BusyForYears], Act::Apply, |_| ()).await;
    assert_eq!(got, End { answer: "result", effects: 1, sends: 2 });
}

#[tokio::test(start_paused = true)]
async fn a_precheck_asks_until_it_is_answered() {
    let check = |r: &mut Recovery| (r.precheck, r.can_look_up) = (true, true);
    let mut r = recovery(Strategy::None);
    check(&mut r);
    let b = Boot::first(Provider::new(false, &[]), r, Default::default());
    b.provider.deaf.store(2, SeqCst);
    b.start();
    result(&b.call(&keyed("k")).await);
    assert_eq!((b.provider.looks.load(SeqCst), b.provider.effects()), (3, 1));
}

async fn moody(mood: Mood, single: bool, strategy: Strategy) -> (Boot, Answer) {
    let mut b = Boot::plain(strategy, &[]);
    b.single = single;
    b.mood(mood);
    b.start();
    let a = b.call(&Call { wait: Millis(120_000), ..keyed("k") }).await;
    (b, a)
}

#[tokio::test(start_paused = true)]
async fn tools_that_misbehave() {
    // Before any intent nothing happened, and the next call runs it.
    let (b, a) = moody(Mood::PanicBefore, false, Strategy::None).await;
    refused(&a, Kind::Unavailable);
    b.mood(Mood::Plain);
    result(&b.call(&keyed("k")).await);
    assert_eq!(b.provider.effects(), 1);
    // Its intent was durable and is the first send, begun: nobody can say that it did not leave.
    let (b, a) = moody(Mood::PanicBefore, true, Strategy::None).await;
    refused(&a, Kind::InDoubt);
    assert_eq!(b.provider.send_count(), 0);
    // After the effect there is an account of it, and never a second one.
    for single in [true, false] {
        for mood in [Mood::PanicAfter, Mood::HangAfter, Mood::FailAfter] {
            let (b, a) = moody(mood, single, Strategy::None).await;
            let (op, bytes, ..) = result(&a);
            assert!(op.is_error && bytes.starts_with(b"account of 1 effects"), "{mood:?}");
            assert_eq!((b.provider.effects(), op.effects[0].state), (1, EffectState::Applied), "{mood:?}");
            assert_eq!(result(&b.call(&keyed("k")).await).1, bytes);
        }
    }
    // Over its limit before the effect.
    let (b, a) = moody(Mood::SleepBefore(60_000), false, Strategy::None).await;
    refused(&a, Kind::Unavailable);
    assert_eq!((b.provider.send_count(), b.ledger.running()), (0, 0));
    // Without any effect.
    let (b, a) = moody(Mood::NoEffect, false, Strategy::None).await;
    assert_eq!((result(&a).1, b.provider.send_count()), (b"nothing to do".to_vec(), 0));
}

#[tokio::test(start_paused = true)]
async fn two_effects_in_one_operation() {
    for mood in [Mood::Two, Mood::TwoAtOnce] {
        // With writes that take a while, answers come in while others are being written.
        for (latency, answer) in [(0, 0), (20, 0), (20, 10), (20, 20), (20, 30), (50, 20)] {
            let mut b = Boot::plain(Strategy::None, &[]);
            b.single = false;
            b.mood(mood);
            b.store.latency.store(latency, SeqCst);
            b.provider.latency.store(answer, SeqCst);
            result(&b.call(&keyed("k")).await);
            let what = format!("{mood:?}, writes take {latency} ms, answers {answer}");
            let op = b.only().await;
            assert_eq!((op.effects.len(), b.provider.effects(), op.attempt), (2, 2, 1), "{what}");
            assert_ne!(op.effects[0].key, op.effects[1].key);
            assert!(op.effects_settled() && !op.is_error, "{what}: {op:#?}");
            let detail = b.ledger.detail(op.id).await.unwrap();
            for (e, d) in op.effects.iter().zip(detail.effects) {
                assert_eq!(d.receipt.unwrap(), format!("receipt of {}", e.key).into_bytes(), "{what}");
                assert!(d.intent.unwrap().starts_with(e.name.as_bytes()));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_does_not_listen_sends_nothing_twice() {
    for single in [true, false] {
        let mut b = Boot::plain(Strategy::None, &[Act::ApplyAndLose]);
        b.single = single;
        b.mood(Mood::Stubborn);
        b.start();
        refused(&b.call(&Call { wait: Millis(60_000), ..keyed("k") }).await, Kind::InDoubt);
        assert_eq!(b.provider.send_count(), 1);
        // The answer of its send can't be recorded: the send counts all the same.
        let mut b = Boot::plain(Strategy::None, &[Act::Lose]);
        b.single = single;
        b.mood(Mood::Stubborn);
        let before = if single { 1 } else { 2 };
        b.store
            .faults
            .lock()
            .unwrap()
            .extend(std::iter::repeat_n(Fault::Fine, before).chain([Fault::Refused; 3]));
        b.start();
        refused(&b.call(&Call { wait: Millis(60_000), ..keyed("k") }).await, Kind::InDoubt);
        assert_eq!(b.provider.send_count(), 1, "single={single}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_receipt_survives_a_store_that_is_away_for_a_moment() {
    for single in [true, false] {
        let mut b = Boot::plain(Strategy::None, &[]);
        b.single = single;
        let before = if single { 1 } else { 2 };
        b.store
            .faults
            .lock()
            .unwrap()
            .extend(std::iter::repeat_n(Fault::Fine, before).chain([Fault::Refused; 3]));
        let a = b.call(&keyed("k")).await;
        let (op, ..) = result(&a);
        assert_eq!(
            (op.effects[0].state, b.provider.send_count()),
            (EffectState::Applied, 1),
            "single={single}"
        );
        assert!(b.ledger.detail(op.id).await.unwrap().effects[0].receipt.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn another_intent_under_the_same_effect_is_a_doubt_that_a_word_can_end() {
    let b = Boot::plain(Strategy::Key, &[]);
    b.mood(Mood::OtherIntent);
    b.start();
    let e = refused(&b.call(&keyed("k")).await, Kind::InDoubt);
    assert!(e.sentence.contains("intent_mismatch"), "{}", e.sentence);
    assert_eq!(b.provider.send_count(), 0);
    let id = b.only().await.id;
    b.ledger.resolve_applied(id, "ops".into(), b"seen".to_vec()).await.unwrap();
    pause(2000).await;
    // The tool asks for something else still, and every effect is known: the next word ends it.
    assert_eq!(b.only().await.execution.word(), "in_doubt");
    b.ledger.decide(id, "ops".into(), Verdict::NotApplied).await.unwrap();
    pause(2000).await;
    let (op, bytes, ..) = result(&b.call(&keyed("k")).await);
    assert!(op.is_error && bytes.starts_with(b"account"));
    assert_eq!(op.decisions.len(), 2);
}

async fn doubtful(act: Act) -> (Boot, OperationId) {
    let b = Boot::plain(Strategy::None, &[act]);
    b.start();
    refused(&b.call(&keyed("k")).await, Kind::InDoubt);
    let id = b.only().await.id;
    (b, id)
}

#[tokio::test(start_paused = true)]
async fn a_doubt_answers_every_call_at_once_until_a_word_ends_it() {
    let (b, id) = doubtful(Act::ApplyAndLose).await;
    let before = store::Store::now(&*b.store);
    for call in [keyed("k"), keyed(&id.to_string()), unkeyed(), in_argument("invented")] {
        let e = refused(&b.call(&call).await, Kind::InDoubt);
        assert_eq!(e.operation, Some(id));
    }
    assert_eq!(store::Store::now(&*b.store), before);
    assert_eq!((b.provider.send_count(), b.count().await, b.notes.count("alert in_doubt")), (1, 1, 1));
    // A doubt never expires.
    b.env.kill();
    pause(100 * 86_400_000).await;
    let b = b.next(Default::default());
    b.start();
    pause(1000).await;
    refused(&b.call(&keyed("k")).await, Kind::InDoubt);
    b.ledger.resolve_applied(id, "ops".into(), b"found by hand".to_vec()).await.unwrap();
    let (op, bytes, ..) = result(&b.call(&keyed("k")).await);
    assert_eq!((bytes, op.is_error, op.decisions.len()), (b"found by hand".to_vec(), false, 1));
    assert_eq!(b.provider.send_count(), 1);
    // It is over: no word changes it any more.
    assert!(b.ledger.decide(id, "ops".into(), Verdict::SendAgain).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn not_applied_and_send_again() {
    let (b, id) = doubtful(Act::Lose).await;
    let op = b.ledger.decide(id, "ops".into(), Verdict::NotApplied).await.unwrap();
    assert_eq!(op.execution.word(), "failed");
    let done = result(&b.call(&keyed("k")).await);
    assert_eq!((done.0.id, b.provider.effects(), b.provider.send_count()), (id, 1, 2));
    b.provider.assert_one_key();

    let (b, id) = doubtful(Act::Lose).await;
    b.ledger.decide(id, "ops".into(), Verdict::SendAgain).await.unwrap();
    let done = result(&b.call(&keyed("k")).await);
    assert_eq!((done.0.id, b.provider.effects(), b.provider.send_count()), (id, 1, 2));
    b.provider.assert_one_key();
    // One more send is one: ambiguous again is a doubt again.
    let (b, id) = doubtful(Act::Lose).await;
    *b.provider.otherwise.lock().unwrap() = Act::Lose;
    b.ledger.decide(id, "ops".into(), Verdict::SendAgain).await.unwrap();
    pause(5000).await;
    assert_eq!((b.only().await.execution.word(), b.provider.send_count()), ("in_doubt", 2));
}

#[tokio::test(start_paused = true)]
async fn a_withheld_replay_is_in_doubt_at_once_and_goes_out_when_a_person_says_so() {
    let b = Boot::plain(Strategy::Key, &[Act::ApplyAndLose, Act::Withhold]);
    b.start();
    let e = refused(&b.call(&keyed("k")).await, Kind::InDoubt);
    assert!(format!("{e:?}").contains("the account is another one now"), "{e:?}");
    let op = b.only().await;
    assert_eq!(op.execution.word(), "in_doubt");
    let effect = &op.effects[0];
    // The first send is as open as before, and nothing says that the provider repeats a failure.
    assert_eq!((effect.unresolved, effect.stored_failure, b.provider.send_count()), (1, false, 2));
    // A word about another attempt, be it an earlier one, is none about this.
    for other in [op.attempt - 1, op.attempt + 1] {
        let word = b.ledger.decide_about(op.id, other, "ops".into(), Verdict::NotApplied).await;
        assert!(matches!(word, Err(service::OperateError::Refused { .. })), "{word:?}");
        assert_eq!(b.only().await, op);
    }
    // Put back.
    b.ledger.decide_about(op.id, op.attempt, "ops".into(), Verdict::SendAgain).await.unwrap();
    let done = result(&b.call(&keyed("k")).await);
    assert_eq!((done.0.id, b.provider.effects(), b.provider.send_count()), (op.id, 1, 3));
    b.provider.assert_one_key();
}

#[tokio::test(start_paused = true)]
async fn a_question_that_dies_with_its_process_does_not_block() {
    // In doubt although it can be asked: the cap came first.
    let mut b = Boot::plain(Strategy::Lookup, &[Act::Lose]);
    b.policy.attempt_cap = 1;
    b.provider.deaf.store(usize::MAX, SeqCst);
    b.start();
    refused(&b.call(&Call { wait: Millis(120_000), ..keyed("k") }).await, Kind::InDoubt);
    let id = b.only().await.id;
    b.env.kill();
    // Behind the creation that finds the key taken, and the claim.
    let gate = Gate::at(4);
    let dying = b.next(gate.clone());
    let call = dying.spawn_call(&keyed("k"));
    gate.reached.notified().await;
    assert_ne!(dying.get(id).await.owner, Epoch(0), "stopped amid its question: {}", gate.last());
    dying.env.kill();
    drop(call);
    let c = dying.next(Default::default());
    c.start();
    c.provider.deaf.store(0, SeqCst);
    let op = c.get(id).await;
    c.tool.line.send(&intent(&op.effects[0].recovery, "refund"), &op.effects[0].key, true, Millis(1)).await;
    let before = store::Store::now(&*c.store);
    result(&c.call(&keyed("k")).await);
    assert!(store::Store::now(&*c.store).since(before) < Millis(1000));
}

#[tokio::test(start_paused = true)]
async fn reconciliation_asks_and_never_sends() {
    let mut b = Boot::plain(Strategy::Lookup, &[Act::Lose]);
    b.policy.attempt_cap = 1;
    b.provider.deaf.store(usize::MAX, SeqCst);
    b.start();
    refused(&b.call(&Call { wait: Millis(120_000), ..keyed("k") }).await, Kind::InDoubt);
    b.provider.deaf.store(0, SeqCst);
    pause(60_000).await;
    for _ in 0..5 {
        let looks = b.provider.looks.load(SeqCst);
        refused(&b.call(&keyed("k")).await, Kind::InDoubt);
        assert!(b.provider.looks.load(SeqCst) > looks, "each call may ask");
        pause(1000).await;
    }
    assert_eq!((b.provider.send_count(), b.provider.effects()), (1, 0));
    assert_eq!(b.only().await.decisions.len(), 1);
    b.ledger.retry(b.only().await.id, "ops".into()).await.unwrap();
    pause(1000).await;
    assert_eq!(b.only().await.owner, Epoch(0));
}

#[tokio::test(start_paused = true)]
async fn an_operator_can_hurry_recovery() {
    let b = Boot::plain(Strategy::Key, &[Act::Lose; 3]);
    let call = b.spawn_call(&keyed("k"));
    // Nobody tends: it rests for good.
    pause(4000).await;
    let op = b.only().await;
    assert_eq!((op.execution.word(), op.owner), ("running", Epoch(0)));
    b.ledger.retry(op.id, "ops".into()).await.unwrap();
    result(&call.await.unwrap());
    assert_eq!(b.provider.effects(), 1);
    assert!(b.ledger.retry(op.id, "ops".into()).await.is_err(), "there is nothing to retry any more");
}

#[tokio::test(start_paused = true)]
async fn recovery_is_not_starved_by_calls() {
    let b = Boot::plain(Strategy::Key, &[Act::Lose; 3]);
    refused(&b.call(&Call { wait: Millis(3000), ..keyed("k") }).await, Kind::StillRunning);
    b.mood(Mood::SleepBefore(4500));
    let calls: Vec<_> = (0..200).map(|i| b.spawn_call(&keyed(&format!("load-{i}")))).collect();
    pause(10).await;
    assert!(b.ledger.running() >= 200);
    b.mood(Mood::Plain);
    b.start();
    let a = b.call(&Call { wait: Millis(4000), ..keyed("k") }).await;
    result(&a);
    for c in calls {
        result(&c.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_recovers_many_and_bounds_how_many_at_once() {
    let b = Boot::plain(Strategy::Key, &[Act::ApplyAndLose; 300]);
    let calls: Vec<_> = (0..300).map(|i| b.spawn_call(&keyed(&format!("k{i}")))).collect();
    pause(1).await;
    b.env.kill();
    drop(calls);
    let c = b.next(Default::default());
    c.mood(Mood::SleepBefore(50));
    c.start();
    let mut most = 0;
    for _ in 0..500 {
        most = most.max(c.ledger.running());
        pause(5).await;
    }
    assert!((2..=64).contains(&most), "{most}");
    assert_eq!((c.ledger.running(), c.provider.effects()), (0, 300));
    let counts = c.ledger.counts().await.unwrap();
    assert_eq!(counts.execution.get("completed"), Some(&300), "{counts:?}");
    assert_eq!(counts.delivery.get("undelivered"), Some(&300), "{counts:?}");
}

/// Leaves `count` operations behind, each with its send under way.
async fn left(strategy: Strategy, count: usize) -> Boot {
    let b = Boot::plain(strategy, &vec![Act::Lose; count]);
    let calls: Vec<_> = (0..count).map(|i| b.spawn_call(&keyed(&format!("k{i}")))).collect();
    pause(1).await;
    b.env.kill();
    drop(calls);
    b.next(Default::default())
}

#[tokio::test(start_paused = true)]
async fn recovery_takes_up_many_at_a_time() {
    let c = left(Strategy::Key, 300).await;
    // A write takes a tenth of a second, whoever else writes meanwhile. Each needs three of them.
    c.store.latency.store(100, SeqCst);
    c.start();
    pause(3000).await;
    let counts = c.ledger.counts().await.unwrap();
    assert_eq!(counts.execution.get("completed"), Some(&300), "{counts:?}");
    assert_eq!(c.provider.effects(), 300);
}

#[tokio::test(start_paused = true)]
async fn what_only_waits_keeps_nobody_out() {
    let c = left(Strategy::Lookup, 300).await;
    c.start();
    // A quarantine takes 2.5 s; five times as many as there are places wait for theirs at the same time.
    pause(4500).await;
    let counts = c.ledger.counts().await.unwrap();
    assert_eq!(counts.execution.get("completed"), Some(&300), "{counts:?}");
    assert_eq!(c.provider.effects(), 300);
}

#[tokio::test(start_paused = true)]
async fn what_falls_due_is_taken_up_as_places_become_free() {
    let c = left(Strategy::Key, 300).await;
    c.mood(Mood::SleepBefore(100));
    // Nothing looks for orphans: their deadline makes them due.
    c.env.spawn(Box::pin(c.ledger.clone().tend()));
    let mut most = 0;
    for _ in 0..1160 {
        most = most.max(c.ledger.running());
        pause(5).await;
    }
    let counts = c.ledger.counts().await.unwrap();
    assert_eq!(counts.execution.get("completed"), Some(&300), "{counts:?}");
    assert!((2..=64).contains(&most), "{most}");
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_ready_at_the_crash_goes_to_the_retry() {
    let b = Boot::plain(Strategy::None, &[]);
    let (op, bytes, ..) = result(&b.call(&unkeyed()).await);
    b.env.kill();
    let c = b.next(Default::default());
    c.start();
    pause(100).await;
    assert_eq!(c.get(op.id).await.delivery.state, DeliveryState::Undelivered);
    assert_eq!(c.notes.count("alert undelivered"), 0, "not before its time");
    let a = c.call(&unkeyed()).await;
    assert_eq!((result(&a).1, result(&a).3), (bytes, Some(JoinedBy::Fingerprint)));
    assert_eq!(c.provider.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_meets_a_dead_owner_goes_on_at_once() {
    let b = Boot::plain(Strategy::Key, &[]);
    b.mood(Mood::SleepBefore(4000));
    let _call = b.spawn_call(&keyed("k"));
    pause(10).await;
    b.env.kill();
    // Recovery has not begun, or is busy with others.
    let c = b.next(Default::default());
    let before = store::Store::now(&*c.store);
    let (op, ..) = result(&c.call(&keyed("k")).await);
    assert_eq!((op.attempt, c.provider.effects()), (2, 1));
    assert!(store::Store::now(&*c.store).since(before) < Millis(1000));
}

/// Recovery read the record before a call took it up: it must not fence off what runs now.
#[tokio::test(start_paused = true)]
async fn recovery_with_a_stale_record_leaves_a_live_attempt_alone() {
    for single in [true, false] {
        let mut b = Boot::plain(Strategy::Key, &[]);
        b.single = single;
        b.mood(Mood::SleepBefore(4000));
        let _call = b.spawn_call(&keyed("k"));
        pause(10).await;
        b.env.kill();
        // Recovery stops before its first write, the claim.
        let gate = Gate::at(0);
        let c = b.next(gate.clone());
        c.mood(Mood::SleepBefore(1000));
        let ledger = c.ledger.clone();
        let orphans = tokio::spawn(async move { ledger.recover_orphans().await });
        gate.reached.notified().await;
        let call = c.spawn_call(&keyed("k"));
        pause(500).await;
        gate.release();
        orphans.await.unwrap().unwrap();
        let (op, ..) = result(&call.await.unwrap());
        assert_eq!(
            (op.attempt, c.tool.runs.load(SeqCst), c.provider.send_count()),
            (2, 1, 1),
            "single={single}"
        );
    }
}

/// Many operations at a provider that doesn't answer keep other due work waiting for no place of theirs.
#[tokio::test(start_paused = true)]
async fn what_needs_no_place_does_not_wait_behind_what_has_none() {
    let slow = Recovery { send_timeout: Millis(60_000), ..recovery(Strategy::Key) };
    // It hangs at replays, too.
    let mut b = Boot::first(Provider::new(false, &[]), slow, Default::default());
    b.policy.timeout = Millis(120_000);
    *b.provider.otherwise.lock().unwrap() = Act::ApplyAndHang;
    for n in 0..400 {
        drop(b.spawn_call(&keyed(&format!("k{n}"))));
    }
    pause(1000).await;
    b.env.kill();
    // Their time is long over when this result, which nobody takes, has been ready for its grace.
    let b = b.next(Default::default());
    pause(130_000).await;
    *b.provider.otherwise.lock().unwrap() = Act::Apply;
    let ready = result(&b.call(&keyed("other")).await).0.id;
    *b.provider.otherwise.lock().unwrap() = Act::ApplyAndHang;
    pause(100_000).await;
    assert_eq!(b.get(ready).await.delivery.state, DeliveryState::Ready);
    let tending = b.ledger.clone();
    b.env.spawn(Box::pin(async move { tending.tend().await }));
    pause(5000).await;
    assert_eq!(b.get(ready).await.delivery.state, DeliveryState::Undelivered);
    b.env.kill();
}
