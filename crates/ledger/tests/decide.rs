//! The state machine: a table of every event against every execution state, the rules of effects, and random
//! histories that try to break the invariants.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use counterfoil_ledger::decide::{self, Fence, Finding, Opening, Outcome};
use counterfoil_ledger::*;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as _;
use support::{BASE, approval, ask, fingerprint, intent, policy, recovery, scope};

const ME: Epoch = Epoch(1);
const KEYS: [&str; 4] = ["name", "size", "more", "approval"];

fn at(ms: i64) -> Time {
    BASE.plus(Millis(ms))
}

fn receipt() -> Receipt {
    Receipt(b"r".to_vec())
}

fn opened(strategy: Option<Strategy>) -> Operation {
    opened_asking(strategy, vec![])
}

fn opened_asking(strategy: Option<Strategy>, asks: Vec<Ask>) -> Operation {
    let key = |i: &Intent| {
        EffectKey::derive("t", &scope("p"), OperationId(1), None, &fingerprint("{}"), &i.name, "")
    };
    let intent = strategy.map(|s| intent(&recovery(s), "refund")).map(|i| (i.clone(), key(&i)));
    decide::open(
        Opening {
            id: OperationId(1),
            scope: scope("p"),
            key: None,
            fingerprint: fingerprint("{}"),
            policy: policy(),
            epoch: ME,
            intent,
            arguments: None,
            asks,
        },
        BASE,
    )
    .next
}

fn fence(op: &Operation) -> Fence {
    Fence { attempt: op.attempt, epoch: op.owner }
}

fn go(op: &Operation, e: Event, ms: i64) -> Operation {
    decide(op, e, at(ms)).unwrap_or_else(|r| panic!("{r:?} by {op:#?}")).next
}

fn receive(op: &Operation, outcome: Outcome) -> Event {
    Event::Receive { fence: fence(op), effect: 0, outcome }
}

fn unknown() -> Outcome {
    Outcome::Unknown { why: "cut".into(), pause: Millis(0), stored: false }
}

fn not_sent() -> Outcome {
    Outcome::NotSent { why: "refused".into(), pause: Millis(0) }
}

fn close(op: &Operation) -> Event {
    Event::Close { fence: fence(op), result: b"x".to_vec(), is_error: false, caller_gone: false }
}

/// The states of the table. `Sent` is running with a send out, `Fresh` running before any intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Accepted,
    Fresh,
    Sent,
    InputRequired,
    /// It waits for an answer, before anything was done.
    Asking,
    Completed,
    Failed,
    Cancelled,
    InDoubt,
}

const STATES: [Is; 9] = [
    Is::Accepted,
    Is::Fresh,
    Is::Sent,
    Is::InputRequired,
    Is::Asking,
    Is::Completed,
    Is::Failed,
    Is::Cancelled,
    Is::InDoubt,
];

fn state(s: Is) -> Operation {
    let sent = opened(Some(Strategy::Lookup));
    let fresh = opened(None);
    match s {
        Is::Fresh => fresh,
        Is::Sent => sent,
        Is::Accepted => go(&fresh, Event::CallerGone, 1),
        Is::InputRequired => go(&sent, Event::Ask { fence: fence(&sent), question: "?".into() }, 1),
        Is::Asking => go(&fresh, Event::Require { fence: fence(&fresh), asks: vec![ask("name")] }, 1),
        Is::Completed => {
            let op = go(&sent, receive(&sent, Outcome::Applied(receipt())), 1);
            go(&op, close(&op), 1)
        }
        Is::Failed => {
            let op = go(&sent, receive(&sent, not_sent()), 1);
            go(&op, Event::Fail { fence: fence(&op), reason: "down".into() }, 1)
        }
        Is::Cancelled => go(&fresh, Event::Cancel { by: "ops".into() }, 1),
        Is::InDoubt => {
            let op = go(&sent, receive(&sent, unknown()), 1);
            go(&op, Event::Doubt { fence: fence(&op), reason: "?".into() }, 1)
        }
    }
}

/// One of each kind of event, by the fence of `op`.
fn events(op: &Operation) -> Vec<Event> {
    let f = fence(op);
    let i = intent(&recovery(Strategy::Key), "mail");
    let key = EffectKey::derive("t", &scope("p"), OperationId(1), None, &fingerprint("{}"), "mail", "");
    vec![
        Event::Claim { epoch: ME, by_call: true, owner_dead: false },
        Event::Intend { fence: f, intent: Box::new(i), key: key.clone() },
        Event::Send { fence: f, effect: 0 },
        receive(op, Outcome::Applied(receipt())),
        Event::Looked {
            fence: f,
            effect: 0,
            asked_at: at(2),
            answer: Finding::Found { receipt: receipt(), several: false },
        },
        close(op),
        Event::Fail { fence: f, reason: "x".into() },
        Event::Interrupted { fence: f, reason: "x".into(), until: at(9) },
        Event::Doubt { fence: f, reason: "x".into() },
        Event::Ask { fence: f, question: "x".into() },
        Event::Rest { fence: f, until: at(9) },
        Event::CallerGone,
        Event::Join { epoch: ME },
        Event::Cancel { by: "ops".into() },
        Event::Expire,
        Event::Deliver(DeliveryState::Written),
        Event::Alerted,
        Event::Decide { by: "ops".into(), verdict: Verdict::Applied(receipt()) },
        Event::Reconcile { epoch: ME, by: "ops".into(), owner_dead: false },
        Event::Local {
            fence: f,
            intent: Box::new(intent(&recovery(Strategy::Local), "step")),
            key,
            receipt: receipt(),
        },
        Event::Require { fence: f, asks: vec![ask("size")] },
        Event::Answer {
            by: "p".into(),
            answers: vec![("name".into(), b"n".to_vec())],
            epoch: ME,
            by_call: true,
            intent: None,
        },
        Event::HandOut { ttl: None },
    ]
}

/// The expected next state's word, or the refusal, for each state in the order of `STATES`. A new event
/// without a row does not compile.
fn row(e: &Event) -> [&'static str; 9] {
    match e {
        // accepted, fresh, sent, input_required, asking, completed, failed, cancelled, in_doubt
        Event::Claim { .. } => {
            ["running", "busy", "busy", "state", "state", "state", "running", "state", "state"]
        }
        Event::Intend { .. } => {
            ["state", "running", "running", "state", "state", "state", "state", "state", "state"]
        }
        Event::Send { .. } => {
            ["state", "no_such_effect", "running", "state", "state", "state", "state", "state", "state"]
        }
        Event::Receive { .. } => {
            ["state", "no_such_effect", "running", "state", "state", "state", "state", "state", "in_doubt"]
        }
        Event::Looked { .. } => {
            ["state", "no_such_effect", "running", "state", "state", "state", "state", "state", "in_doubt"]
        }
        Event::Close { .. } => {
            ["state", "completed", "unsettled", "state", "state", "state", "state", "state", "unsettled"]
        }
        Event::Fail { .. } | Event::Interrupted { .. } => {
            ["state", "failed", "may_have_effect", "state", "state", "state", "state", "state", "state"]
        }
        Event::Doubt { .. } => {
            ["state", "in_doubt", "in_doubt", "state", "state", "state", "state", "state", "in_doubt"]
        }
        Event::Ask { .. } => [
            "state",
            "input_required",
            "input_required",
            "state",
            "state",
            "state",
            "state",
            "state",
            "input_required",
        ],
        Event::Rest { .. } => {
            ["state", "running", "running", "state", "state", "state", "state", "state", "state"]
        }
        Event::CallerGone => [
            "nothing",
            "accepted",
            "running",
            "input_required",
            "input_required",
            "state",
            "state",
            "state",
            "in_doubt",
        ],
        Event::Join { .. } => {
            ["state", "running", "running", "state", "state", "state", "state", "state", "state"]
        }
        Event::Cancel { .. } => [
            "cancelled",
            "cancelled",
            "past_no_return",
            "past_no_return",
            "cancelled",
            "state",
            "state",
            "state",
            "state",
        ],
        Event::Expire => ["state", "state", "state", "state", "state", "state", "state", "state", "state"],
        Event::Deliver(_) => {
            ["state", "state", "state", "state", "state", "completed", "state", "state", "state"]
        }
        Event::Alerted => [
            "nothing", "nothing", "nothing", "nothing", "nothing", "nothing", "nothing", "nothing", "nothing",
        ],
        Event::Decide { .. } => {
            ["state", "state", "state", "running", "state", "state", "state", "state", "running"]
        }
        Event::Reconcile { .. } => {
            ["state", "state", "state", "state", "state", "state", "state", "state", "in_doubt"]
        }
        Event::Local { .. } => {
            ["state", "running", "running", "state", "state", "state", "state", "state", "state"]
        }
        Event::Require { .. } => {
            ["state", "input_required", "unsettled", "state", "state", "state", "state", "state", "state"]
        }
        Event::Answer { .. } => [
            "nothing", "nothing", "nothing", "nothing", "running", "nothing", "nothing", "nothing", "nothing",
        ],
        Event::HandOut { .. } => [
            "running",
            "running",
            "running",
            "input_required",
            "input_required",
            "completed",
            "failed",
            "cancelled",
            "in_doubt",
        ],
    }
}

#[test]
fn every_event_in_every_state() {
    for (i, s) in STATES.iter().enumerate() {
        let op = state(*s);
        for e in events(&op) {
            let (name, want) = (format!("{e:?} in {s:?}"), row(&e)[i]);
            match decide(&op, e, at(2)) {
                Ok(t) => {
                    assert_eq!(t.next.execution.word(), want, "{name}");
                    assert_eq!(t.next.version, op.version + 1, "{name}");
                }
                Err(r) => assert_eq!(r.word(), want, "{name}"),
            }
        }
    }
}

#[test]
fn a_zombie_changes_nothing() {
    for s in [Is::Fresh, Is::Sent, Is::InDoubt] {
        let mut op = state(s);
        let zombie = fence(&op);
        op.attempt += 1;
        op.owner = ME;
        for f in [
            zombie,
            Fence { attempt: op.attempt, epoch: Epoch(9) },
            Fence { attempt: op.attempt + 1, epoch: ME },
        ] {
            let i = Box::new(intent(&recovery(Strategy::Key), "mail"));
            let key =
                EffectKey::derive("t", &scope("p"), OperationId(1), None, &fingerprint("{}"), "mail", "");
            for e in [
                Event::Intend { fence: f, intent: i, key },
                Event::Send { fence: f, effect: 0 },
                Event::Receive { fence: f, effect: 0, outcome: Outcome::Applied(receipt()) },
                Event::Looked {
                    fence: f,
                    effect: 0,
                    asked_at: at(2),
                    answer: Finding::NotFound { pause: Millis(1), counts_from: at(0) },
                },
                Event::Close { fence: f, result: vec![], is_error: false, caller_gone: false },
                Event::Fail { fence: f, reason: String::new() },
                Event::Doubt { fence: f, reason: String::new() },
                Event::Ask { fence: f, question: String::new() },
                Event::Rest { fence: f, until: at(9) },
                Event::Require { fence: f, asks: vec![ask("size")] },
                Event::Local {
                    fence: f,
                    intent: Box::new(intent(&recovery(Strategy::Local), "step")),
                    key: EffectKey::derive(
                        "t",
                        &scope("p"),
                        OperationId(1),
                        None,
                        &fingerprint("{}"),
                        "step",
                        "",
                    ),
                    receipt: receipt(),
                },
            ] {
                assert_eq!(decide(&op, e, at(2)).unwrap_err(), Refusal::Fenced);
            }
        }
    }
}

#[test]
fn claims() {
    let op = opened(None);
    let claim = |by_call, owner_dead| Event::Claim { epoch: Epoch(2), by_call, owner_dead };
    // Alive: busy until its deadline; dead: at once.
    assert_eq!(decide(&op, claim(false, false), at(4999)).unwrap_err(), Refusal::Busy);
    assert_eq!(go(&op, claim(false, false), 5000).attempt, 2);
    assert_eq!(go(&op, claim(false, true), 1).owner, Epoch(2));
    // Resting: recovery waits, a call need not.
    let resting = go(&op, Event::Rest { fence: fence(&op), until: at(100) }, 1);
    assert_eq!(decide(&resting, claim(false, false), at(99)).unwrap_err(), Refusal::Busy);
    assert_eq!(go(&resting, claim(true, false), 2).execution, Execution::Running);
    assert_eq!(go(&resting, claim(false, false), 100).attempt, 2);
    // Abandoned: only a call takes it up, and the attempts count anew.
    let mut abandoned = go(&op, Event::CallerGone, 1);
    assert_eq!(decide(&abandoned, claim(false, true), at(2)).unwrap_err(), Refusal::State);
    for n in 2..40 {
        let running = go(&abandoned, claim(true, false), 2);
        assert_eq!((running.attempt, running.counted_from), (n, n));
        assert!(!running.caller.gone);
        abandoned = go(&running, Event::CallerGone, 3);
    }
    // The cap: 6 attempts in all.
    let mut op = opened(Some(Strategy::Key));
    for n in 2..=6 {
        op = go(&op, claim(false, true), 1);
        assert_eq!(op.attempt, n);
    }
    assert_eq!(decide(&op, claim(false, true), at(2)).unwrap_err(), Refusal::Cap);
    // A word of a person begins a new count.
    let doubt = go(&op, Event::Doubt { fence: fence(&op), reason: "?".into() }, 2);
    let mut op = go(&doubt, Event::Decide { by: "ops".into(), verdict: Verdict::SendAgain }, 3);
    for _ in 0..6 {
        op = go(&op, claim(false, true), 4);
    }
    assert_eq!(decide(&op, claim(false, true), at(5)).unwrap_err(), Refusal::Cap);
}

#[test]
fn a_claim_makes_an_open_send_unknown_and_fences_it() {
    let op = opened(Some(Strategy::Lookup));
    let op = go(&op, Event::Claim { epoch: Epoch(2), by_call: false, owner_dead: true }, 700);
    let e = &op.effects[0];
    assert_eq!(
        (e.state, e.fenced_at, e.attempt_sends, e.unresolved),
        (EffectState::Unknown, Some(at(700)), 0, 1)
    );
    // Deadline of the send (1000) is later than the fence (700); then bound (2000) and lag (500).
    assert_eq!(e.quarantine_until(), at(3500));
    let late = go(
        &opened(Some(Strategy::Lookup)),
        Event::Claim { epoch: Epoch(2), by_call: false, owner_dead: true },
        4000,
    );
    assert_eq!(late.effects[0].quarantine_until(), at(6500));
    // What was asked before the fence does not count after it.
    let op = opened(Some(Strategy::Lookup));
    let unresolved = go(&op, receive(&op, unknown()), 10);
    let answer = Finding::NotFound { pause: Millis(1), counts_from: at(0) };
    let absent =
        go(&unresolved, Event::Looked { fence: fence(&op), effect: 0, asked_at: at(3500), answer }, 3501);
    assert!(absent.effects[0].absent);
    assert!(
        !go(&absent, Event::Claim { epoch: Epoch(2), by_call: false, owner_dead: true }, 3600).effects[0]
            .absent
    );
}

#[test]
fn not_found_counts_only_if_it_was_asked_late_enough() {
    let op = opened(Some(Strategy::Lookup));
    let op = go(&op, receive(&op, unknown()), 10);
    let asked = |ms: i64, counts_from: i64| {
        let answer = Finding::NotFound { pause: Millis(700), counts_from: at(counts_from) };
        // The answer itself may come as late as it likes.
        let e = go(&op, Event::Looked { fence: fence(&op), effect: 0, asked_at: at(ms), answer }, 9000)
            .effects[0]
            .clone();
        (e.absent, e.state)
    };
    // Deadline of the send 1000, bound 2000, lag 500.
    assert_eq!(asked(3499, 3500), (false, EffectState::Unknown));
    assert_eq!(asked(3500, 3500), (true, EffectState::Unknown));
    assert_eq!(asked(3499, 0), (false, EffectState::Unknown), "the record's own quarantine always holds");
    assert_eq!(asked(4000, 4001), (false, EffectState::Unknown), "a clock step makes it longer");
}

#[test]
fn effect_keys_come_from_the_callers_key_or_the_operation() {
    let key = Key::new("order-7").unwrap();
    let of = |ledger: &str, p: &str, id: u128, key: Option<&Key>, args: &str, name: &str, d: &str| {
        EffectKey::derive(ledger, &scope(p), OperationId(id), key, &fingerprint(args), name, d)
    };
    let keyed = of("l", "p", 1, Some(&key), "{}", "refund", "");
    assert_eq!(
        keyed,
        of("l", "p", 2, Some(&key), "{}", "refund", ""),
        "another operation id, the same caller's key"
    );
    let free = of("l", "p", 1, None, "{}", "refund", "");
    let others = [
        of("m", "p", 1, Some(&key), "{}", "refund", ""),
        of("l", "q", 1, Some(&key), "{}", "refund", ""),
        of("l", "p", 1, Some(&Key::new("order-8").unwrap()), "{}", "refund", ""),
        of("l", "p", 1, Some(&key), "{\"a\":1}", "refund", ""),
        of("l", "p", 1, Some(&key), "{}", "mail", ""),
        of("l", "p", 1, Some(&key), "{}", "refund", "2"),
        of("l", "p", 1, Some(&key), "{}", "refun", "d"),
        of("l", "p", 2, None, "{}", "refund", ""),
        of("m", "p", 1, None, "{}", "refund", ""),
        keyed.clone(),
        free.clone(),
    ];
    let distinct: std::collections::HashSet<_> = others.iter().collect();
    assert_eq!(distinct.len(), others.len());
    assert!(
        others.iter().all(|k| k.as_str().len() == 36 && k.as_str().as_bytes()[14] == b'8'),
        "UUID-shaped, version 8"
    );
}

#[test]
fn refusals_of_replays() {
    let refused = || Outcome::Refused(receipt());
    let first = opened(Some(Strategy::Key));
    assert_eq!(go(&first, receive(&first, refused()), 1).effects[0].state, EffectState::Rejected);
    let replay = |first_answer: bool| {
        let mut op = opened(Some(Strategy::Key));
        op.effects[0].recovery.replays_first_answer = first_answer;
        let op = go(&op, receive(&op, unknown()), 1);
        let op = go(&op, Event::Send { fence: fence(&op), effect: 0 }, 2);
        let e = go(&op, receive(&op, refused()), 3).effects[0].clone();
        (e.state, e.has_receipt, e.unresolved, e.stored_failure)
    };
    assert_eq!(
        replay(false),
        (EffectState::Unknown, false, 1, true),
        "a 401 on a replay is about the replay"
    );
    assert_eq!(replay(true), (EffectState::Rejected, true, 0, false));
    // A refusal after sends that provably never left is the first.
    let op = go(&first, receive(&first, not_sent()), 1);
    let op = go(&op, Event::Send { fence: fence(&op), effect: 0 }, 2);
    assert_eq!(go(&op, receive(&op, refused()), 3).effects[0].state, EffectState::Rejected);
}

#[test]
fn never_sent_only_while_nothing_left() {
    let op = opened(Some(Strategy::None));
    assert_eq!(decide(&op, receive(&op, Outcome::NeverSent), at(1)).unwrap_err(), Refusal::MayHaveEffect);
    let op = go(&op, receive(&op, not_sent()), 1);
    assert_eq!(go(&op, receive(&op, Outcome::NeverSent), 2).effects[0].state, EffectState::Rejected);
}

#[test]
fn a_second_send_is_refused_where_nothing_makes_it_safe() {
    for s in [Strategy::None, Strategy::Confirm] {
        let op = opened(Some(s));
        assert_eq!(
            decide(&op, Event::Send { fence: fence(&op), effect: 0 }, at(1)).unwrap_err(),
            Refusal::MayHaveEffect
        );
    }
}

#[test]
fn failing_settles_what_was_never_sent_and_a_call_opens_it_again() {
    let op = opened(Some(Strategy::Key));
    let op = go(&op, receive(&op, not_sent()), 1);
    let failed = go(&op, Event::Fail { fence: fence(&op), reason: "down".into() }, 2);
    assert!(failed.effects_settled());
    let again = go(&failed, Event::Claim { epoch: ME, by_call: true, owner_dead: false }, 3);
    assert_eq!((again.effects[0].state, &again.effects[0].key), (EffectState::Intended, &op.effects[0].key));
    assert_eq!((again.ended_at, again.execution), (None, Execution::Running));
    // What was refused with an answer stays refused.
    let op = opened(Some(Strategy::Key));
    let op = go(&op, receive(&op, Outcome::Refused(receipt())), 1);
    let failed = go(&op, Event::Fail { fence: fence(&op), reason: "?".into() }, 2);
    assert_eq!(
        go(&failed, Event::Claim { epoch: ME, by_call: true, owner_dead: false }, 3).effects[0].state,
        EffectState::Rejected
    );
}

#[test]
fn verdicts() {
    let ops = |verdict| Event::Decide { by: "ops".into(), verdict };
    let doubt = state(Is::InDoubt);
    let applied = go(&doubt, ops(Verdict::Applied(receipt())), 3);
    assert_eq!(
        (applied.execution.clone(), applied.owner, applied.effects[0].state),
        (Execution::Running, Epoch(0), EffectState::Applied)
    );
    let not = go(&doubt, ops(Verdict::NotApplied), 3);
    assert_eq!((not.execution.word(), not.effects[0].state), ("failed", EffectState::Rejected));
    let again = go(&doubt, ops(Verdict::SendAgain), 3);
    assert!(again.effects[0].forced && again.effects[0].unresolved == 1);
    assert_eq!(again.decisions.len(), 1);
    // In doubt with every effect known: the word ends it.
    let op = opened(Some(Strategy::Key));
    let op = go(&op, receive(&op, Outcome::Applied(receipt())), 1);
    let op = go(&op, Event::Doubt { fence: fence(&op), reason: "intent_mismatch".into() }, 2);
    assert!(go(&op, ops(Verdict::NotApplied), 3).conclude);
}

#[test]
fn reconciliation_waits_for_a_live_one_only() {
    let doubt = state(Is::InDoubt);
    let r = |owner_dead| Event::Reconcile { epoch: Epoch(2), by: "a call".into(), owner_dead };
    let asking = go(&doubt, r(false), 10);
    assert_eq!(asking.execution.word(), "in_doubt");
    assert_eq!(decide(&asking, r(false), at(11)).unwrap_err(), Refusal::Busy);
    assert_eq!(go(&asking, r(true), 11).attempt, asking.attempt + 1);
    assert_eq!(go(&asking, r(false), 5010).decisions.len(), 1, "chatter does not grow the record");
    let op = opened(Some(Strategy::None));
    let op = go(&op, Event::Doubt { fence: fence(&op), reason: "?".into() }, 1);
    assert_eq!(decide(&op, r(false), at(2)).unwrap_err(), Refusal::CantAsk);
}

#[test]
fn deliveries_go_only_forward() {
    use DeliveryState::*;
    let order = [NotReady, Ready, Undelivered, Written, Acknowledged];
    for from in order.iter().skip(1) {
        for to in order {
            let mut op = state(Is::Completed);
            op.delivery.state = *from;
            let got = decide(&op, Event::Deliver(to), at(50));
            match got {
                Ok(t) => {
                    assert!(t.next.delivery.state == to && to >= *from && to > Ready, "{from:?} -> {to:?}")
                }
                Err(_) => {
                    assert!(to < *from || to <= Ready || (to == *from && to != Written), "{from:?} -> {to:?}")
                }
            }
        }
    }
}

#[test]
fn too_many_effects_are_refused() {
    let mut op = opened(Some(Strategy::Key));
    let one = op.effects[0].clone();
    op.effects =
        (0..decide::MAX_EFFECTS).map(|i| effect::Effect { name: format!("e{i}"), ..one.clone() }).collect();
    let i = Box::new(intent(&recovery(Strategy::Key), "mail"));
    let e = Event::Intend { fence: fence(&op), intent: i, key: one.key };
    assert_eq!(decide(&op, e, at(1)).unwrap_err(), Refusal::TooManyEffects);
}

#[derive(Clone, Debug)]
struct Throw {
    kind: u8,
    a: u8,
    b: bool,
    stale: bool,
    ms: u16,
}

fn throw() -> impl proptest::strategy::Strategy<Value = Throw> {
    (0u8..33, any::<u8>(), any::<bool>(), proptest::bool::weighted(0.1), 0u16..3000)
        .prop_map(|(kind, a, b, stale, ms)| Throw { kind, a, b, stale, ms })
}

fn event(op: &Operation, t: &Throw, now: Time) -> Event {
    let mut f = fence(op);
    if t.stale {
        f.attempt = f.attempt.saturating_sub(1);
    }
    let effect = usize::from(t.a % 2);
    let pause = Millis(i64::from(t.a));
    let epoch = Epoch(1 + u64::from(t.a % 3));
    let got = |outcome| Event::Receive { fence: f, effect, outcome };
    let saw = |answer| Event::Looked { fence: f, effect, asked_at: now, answer };
    match t.kind {
        0 | 1 => Event::Claim { epoch, by_call: t.b, owner_dead: t.a.is_multiple_of(2) },
        2 => {
            let s = [Strategy::Key, Strategy::Lookup, Strategy::None][usize::from(t.a % 3)];
            let i = intent(&recovery(s), ["refund", "mail"][effect]);
            let key = EffectKey::derive("t", &op.scope, op.id, None, &op.fingerprint, &i.name, "");
            Event::Intend { fence: f, intent: Box::new(i), key }
        }
        3 | 4 => Event::Send { fence: f, effect },
        5 => got(not_sent()),
        6 => got(Outcome::Applied(Receipt(vec![t.a]))),
        7 => got(Outcome::Refused(Receipt(vec![t.a]))),
        8 => got(Outcome::NotApplied { why: "429".into(), pause }),
        9 => got(Outcome::Unknown { why: "cut".into(), pause, stored: t.b }),
        10 => got(Outcome::NeverSent),
        11 => saw(Finding::Found { receipt: Receipt(vec![t.a]), several: t.b }),
        12 => saw(Finding::NotFound { pause, counts_from: now }),
        13 => saw(Finding::Unknown { why: "?".into(), pause }),
        14 | 15 => Event::Close { fence: f, result: vec![t.a], is_error: t.b, caller_gone: t.b },
        16 => Event::Fail { fence: f, reason: "x".into() },
        17 => Event::Doubt { fence: f, reason: "x".into() },
        18 => Event::Ask { fence: f, question: "x".into() },
        19 => Event::Rest { fence: f, until: now.plus(pause) },
        20 => Event::CallerGone,
        21 => Event::Join { epoch },
        22 => Event::Cancel { by: "ops".into() },
        23 => Event::Expire,
        24 => Event::Deliver(
            [DeliveryState::Undelivered, DeliveryState::Written, DeliveryState::Acknowledged]
                [usize::from(t.a % 3)],
        ),
        26 | 27 => Event::Require { fence: f, asks: vec![ask(KEYS[usize::from(t.a % 3)])] },
        28 | 29 => {
            let text = if t.a < 230 { "yes" } else { "no" };
            let some = if t.b { KEYS.len() } else { usize::from(t.a % 5) };
            let planned = op.planned.map(|_| intent(&recovery(Strategy::Lookup), "refund")).map(|i| {
                let key = EffectKey::derive("t", &op.scope, op.id, None, &op.fingerprint, &i.name, "");
                Box::new((i, key))
            });
            let answers = KEYS.iter().take(some).map(|k| ((*k).to_owned(), text.into())).collect();
            Event::Answer { by: "ann".into(), answers, epoch, by_call: t.b, intent: planned }
        }
        30 => Event::HandOut { ttl: t.b.then_some(pause) },
        31 => {
            let i = intent(&recovery(Strategy::Local), "step");
            let key = EffectKey::derive("t", &op.scope, op.id, None, &op.fingerprint, &i.name, "");
            Event::Local { fence: f, intent: Box::new(i), key, receipt: receipt() }
        }
        _ => match t.a % 5 {
            0 => Event::Decide { by: "ops".into(), verdict: Verdict::Applied(receipt()) },
            1 => Event::Decide { by: "ops".into(), verdict: Verdict::NotApplied },
            2 => Event::Decide { by: "ops".into(), verdict: Verdict::SendAgain },
            3 => Event::Alerted,
            _ => Event::Reconcile { epoch, by: "ops".into(), owner_dead: t.b },
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_history_breaks_the_invariants(single in any::<bool>(), asks in any::<bool>(), throws in proptest::collection::vec(throw(), 1..60)) {
        let mut op = opened_asking(single.then_some(Strategy::Lookup), if asks { vec![approval()] } else { vec![] });
        let mut now = BASE;
        let mut results = 0;
        for t in &throws {
            now = now.plus(Millis(i64::from(t.ms)));
            let e = event(&op, t, now);
            let human = matches!(e, Event::Decide { .. });
            let fenced = match &e {
                Event::Intend { fence, .. } | Event::Send { fence, .. } | Event::Receive { fence, .. } | Event::Looked { fence, .. }
                | Event::Close { fence, .. } | Event::Fail { fence, .. } | Event::Interrupted { fence, .. } | Event::Doubt { fence, .. } | Event::Ask { fence, .. }
                | Event::Rest { fence, .. } | Event::Require { fence, .. } | Event::Local { fence, .. } => Some(*fence),
                _ => None,
            };
            let mut claims = matches!(e, Event::Claim { .. } | Event::Reconcile { .. });
            let answers = matches!(e, Event::Answer { .. });
            let Ok(step) = decide(&op, e.clone(), now) else { continue };
            let next = step.next;
            // The last answer claims.
            claims |= answers && next.execution == Execution::Running;
            // A zombie's write changes nothing.
            if let Some(f) = fenced {
                prop_assert_eq!((f.attempt, f.epoch), (op.attempt, op.owner));
            }
            // A result never changes, and what has one never becomes anything else.
            let wrote = step.blobs.iter().filter(|b| b.kind == BlobKind::Result).count();
            results += wrote;
            prop_assert!(results <= 1);
            if op.execution == Execution::Completed {
                prop_assert_eq!(&next.execution, &Execution::Completed);
                prop_assert_eq!(&next.effects, &op.effects);
                prop_assert!(next.delivery.state >= op.delivery.state);
            }
            prop_assert_eq!(next.execution == Execution::Completed, results == 1);
            // Attempts strictly increase on claims and never else.
            prop_assert_eq!(next.attempt, op.attempt + u32::from(claims));
            for (i, e) in op.effects.iter().enumerate() {
                prop_assert_eq!(&next.effects[i].key, &e.key);
                prop_assert_eq!(&next.effects[i].digest, &e.digest);
                if e.state == EffectState::Applied {
                    prop_assert_eq!(next.effects[i].state, EffectState::Applied);
                }
                if e.has_receipt {
                    prop_assert!(next.effects[i].has_receipt);
                    prop_assert_eq!(next.effects[i].state, e.state);
                }
                // What may have happened is given up by answers and people only.
                if e.unresolved > 0 && next.effects[i].state == EffectState::Rejected {
                    let answered = matches!(t.kind, 7);
                    prop_assert!(human || answered, "{:?}", e);
                }
            }
            // The first answer counts, and nothing is an effect before the last one.
            for (i, was) in op.inputs.iter().enumerate() {
                if was.answer.is_some() {
                    prop_assert_eq!(&next.inputs[i], was);
                }
                prop_assert_eq!(&next.inputs[i].digest, &was.digest);
            }
            if op.waits_for_input() && !claims {
                prop_assert_eq!(&next.effects, &op.effects);
            }
            prop_assert!(next.planned.is_none() || next.effects.is_empty());
            if next.waits_for_input() {
                prop_assert!(next.effects_settled() && next.owner == Epoch(0));
                prop_assert!(next.attention(Millis(1), Millis(1)).is_some());
            }
            if next.execution == Execution::Running {
                prop_assert!(next.conclude || next.open_inputs().next().is_none());
            }
            // What was handed out is not abandoned.
            prop_assert!(next.task.is_none() || next.execution != Execution::Accepted);
            prop_assert!(op.task.is_none() || next.task == op.task);
            let open = |e: &effect::Effect| !e.is_settled();
            match &next.execution {
                Execution::Completed => prop_assert!(!next.effects.iter().any(open)),
                Execution::Failed { .. } | Execution::Cancelled { .. } => {
                    prop_assert!(!next.may_have_effect());
                    prop_assert!(!next.effects.iter().any(open));
                }
                Execution::Accepted => prop_assert!(next.effects.is_empty()),
                _ => {}
            }
            // Only a living or waiting operation has an owner, and whoever ended has none.
            if next.execution.is_ended() || next.execution == Execution::Accepted {
                prop_assert_eq!(next.owner, Epoch(0));
            }
            // Somebody looks at everything that is not at rest.
            let at_rest = matches!(next.execution, Execution::InDoubt { .. } | Execution::InputRequired { .. } | Execution::Failed { .. } | Execution::Cancelled { .. } | Execution::Completed);
            prop_assert!(at_rest || next.attention(Millis(1), Millis(1)).is_some());
            // An open intent or a doubt is never pruned.
            prop_assert_eq!(next.expires_at().is_some(), next.execution.is_ended());
            op = next;
        }
    }
}
