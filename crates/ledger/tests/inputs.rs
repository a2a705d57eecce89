//! Questions and answers, approvals, handles and tasks: what they make of a record, and what comes of them in the service
//! through lost acknowledgements, dead replicas and answers that race.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;
use support::*;

use counterfoil_ledger::decide::{Fence, Opening};
use counterfoil_ledger::handle::EXPIRED_FOR;
use counterfoil_ledger::input::{MAX_ANSWER, MAX_INPUTS, MAX_REQUEST};
use counterfoil_ledger::store::{BlobKind, Found, Store as _};
use counterfoil_ledger::*;
use std::sync::atomic::Ordering::SeqCst;

type Answers = Vec<(String, Vec<u8>)>;

fn answer(key: &str, text: &str) -> Answers {
    vec![(key.into(), text.as_bytes().to_vec())]
}

fn says(op: &Operation) -> &'static str {
    op.execution.word()
}

/// A call of the operation that a sealed state names.
fn state(id: OperationId) -> Call {
    Call { named: Some(id), ..unkeyed() }
}

fn with(id: OperationId, key: &str, text: &str) -> Call {
    Call { answers: answer(key, text), ..state(id) }
}

#[track_caller]
fn input(a: &Answer) -> (OperationId, Vec<String>) {
    match a {
        Answer::Input { operation, open, .. } => {
            (operation.id, open.iter().map(|a| String::from_utf8(a.request.clone()).unwrap()).collect())
        }
        other => panic!("a question expected: {other:?}"),
    }
}

#[track_caller]
fn error(a: &Answer) -> &CallError {
    match a {
        Answer::Error(e) => e,
        other => panic!("an error expected: {other:?}"),
    }
}

// The pure part.

fn opened(asks: Vec<Ask>, intent: Option<Intent>) -> Operation {
    let o = opening(asks, intent);
    decide::open(o, BASE).next
}

fn opening(asks: Vec<Ask>, intent: Option<Intent>) -> Opening {
    Opening {
        id: OperationId(1),
        scope: scope("p"),
        key: None,
        fingerprint: fingerprint("{}"),
        policy: policy(),
        epoch: Epoch(1),
        intent: intent.map(|i| {
            let key = effect_key(&i);
            (i, key)
        }),
        arguments: None,
        asks,
    }
}

fn effect_key(i: &Intent) -> EffectKey {
    EffectKey::derive("t", &scope("p"), OperationId(1), None, &fingerprint("{}"), &i.name, "")
}

fn refund() -> Intent {
    intent(&recovery(Strategy::Key), "refund")
}

fn reply(answers: Answers, intent: Option<Intent>) -> Event {
    let intent = intent.map(|i| {
        let key = effect_key(&i);
        Box::new((i, key))
    });
    Event::Answer { by: "ann".into(), answers, epoch: Epoch(2), by_call: false, intent }
}

fn go(op: &Operation, e: Event) -> Operation {
    decide(op, e, BASE.plus(Millis(9))).unwrap_or_else(|r| panic!("{r:?} by {op:#?}")).next
}

fn no(op: &Operation, e: Event) -> Refusal {
    decide(op, e, BASE.plus(Millis(9))).unwrap_err()
}

#[test]
pub(crate) fn what_waits_for_a_yes_is_no_effect_before_it() {
    let t = decide::open(opening(vec![approval()], Some(refund())), BASE);
    let op = t.next;
    assert_eq!((says(&op), op.attempt, op.owner), ("input_required", 0, Epoch(0)));
    assert!(op.effects.is_empty() && op.waits_for_approval() && !op.is_past_no_return());
    assert_eq!(op.planned, Some(refund().digest()));
    let kept: Vec<BlobKind> = t.blobs.iter().map(|b| b.kind).collect();
    assert_eq!(kept, [BlobKind::Planned, BlobKind::Request(0)]);
    assert_eq!(Intent::unpack(&t.blobs[0].data), Some(refund()), "all of it is kept, byte for byte");
    // Nobody takes it but by the yes.
    for by_call in [true, false] {
        let claim = Event::Claim { epoch: Epoch(2), by_call, owner_dead: true };
        assert_eq!(no(&op, claim), Refusal::State);
    }
    // Exactly what was shown is sent: neither nothing nor something else.
    let other = Intent { body: b"amount=500".to_vec(), ..refund() };
    for wrong in [None, Some(other)] {
        assert_eq!(no(&op, reply(answer("approval", "yes"), wrong)), Refusal::IntentMismatch);
    }
    let t = decide(&op, reply(answer("approval", "yes"), Some(refund())), BASE.plus(Millis(9))).unwrap();
    let op = t.next;
    assert_eq!((says(&op), op.attempt, op.counted_from, op.owner), ("running", 1, 1, Epoch(2)));
    assert_eq!((op.effects.len(), op.effects[0].unresolved, op.planned), (1, 1, None));
    assert_eq!((op.decisions[0].by.as_str(), op.decisions[0].what.as_str()), ("ann", "approved"));
    let kept: Vec<BlobKind> = t.blobs.iter().map(|b| b.kind).collect();
    assert_eq!(kept, [BlobKind::Answer(0), BlobKind::Intent(0)]);
    // Its form keeps programs away that know nothing of it.
    assert_eq!(op.form, 1);
}

#[test]
pub(crate) fn the_first_answer_counts() {
    let op = opened(vec![ask("name"), ask("size")], None);
    let one = go(&op, reply(answer("name", "n"), None));
    assert_eq!((says(&one), one.open_inputs().collect::<Vec<_>>()), ("input_required", vec![1]));
    assert_eq!(no(&one, reply(answer("name", "n"), None)), Refusal::Nothing);
    assert_eq!(no(&one, reply(answer("name", "m"), None)), Refusal::AnswerConflict);
    assert_eq!(no(&one, reply(answer("other", "n"), None)), Refusal::Nothing, "it answers nothing");
    // One that conflicts takes the others with it.
    let mixed = [answer("size", "s"), answer("name", "m")].concat();
    assert_eq!(no(&one, reply(mixed, None)), Refusal::AnswerConflict);
    let twice = [answer("size", "s"), answer("size", "t")].concat();
    assert_eq!(no(&one, reply(twice, None)), Refusal::AnswerConflict);
    let long = vec![("size".into(), vec![0; MAX_ANSWER + 1])];
    assert_eq!(no(&one, reply(long, None)), Refusal::BadAnswer);
    let both = [answer("name", "n"), answer("size", "s")].concat();
    let done = go(&one, reply(both.clone(), None));
    assert_eq!((says(&done), done.attempt), ("running", 1));
    // Afterwards, in whatever state.
    let fence = Fence { attempt: 1, epoch: Epoch(2) };
    let closed = go(&done, Event::Close { fence, result: vec![], is_error: false, caller_gone: false });
    for op in [&done, &closed] {
        assert_eq!(no(op, reply(both.clone(), None)), Refusal::Nothing);
        assert_eq!(no(op, reply(answer("size", "t"), None)), Refusal::AnswerConflict);
    }
    let cancelled = go(&one, Event::Cancel { by: "p".into() });
    assert_eq!(no(&cancelled, reply(answer("name", "n"), None)), Refusal::Nothing);
    assert_eq!(no(&cancelled, reply(answer("size", "s"), None)), Refusal::State);
}

#[test]
fn rounds_and_their_bounds() {
    let fence = |op: &Operation| Fence { attempt: op.attempt, epoch: op.owner };
    let require = |op: &Operation, asks| Event::Require { fence: fence(op), asks };
    let mut op = opened(vec![], None);
    assert_eq!(no(&op, require(&op, vec![])), Refusal::BadAsk);
    for bad in [
        vec![ask("")],
        vec![ask(&"k".repeat(65))],
        vec![ask("a b")],
        vec![ask("é")],
        vec![ask("a"), ask("a")],
        vec![Ask { request: vec![], ..ask("a") }],
        vec![Ask { request: vec![b'x'; MAX_REQUEST + 1], ..ask("a") }],
    ] {
        assert_eq!(no(&op, require(&op, bad)), Refusal::BadAsk);
    }
    for n in 0..MAX_INPUTS {
        let key = format!("K-{n}_.");
        let asked = go(&op, require(&op, vec![ask(&key)]));
        assert_eq!((says(&asked), asked.owner), ("input_required", Epoch(0)));
        assert_eq!(asked.inputs[n].round as usize, n + 1);
        op = go(&asked, reply(answer(&key, "x"), None));
        // A person's time is none of the attempts that are tried in vain.
        assert_eq!((op.attempt - op.counted_from, op.attempt as usize), (0, n + 2));
        assert_eq!(no(&op, require(&op, vec![ask(&key)])), Refusal::BadAsk, "a key is used once");
    }
    assert_eq!(no(&op, require(&op, vec![ask("more")])), Refusal::TooManyInputs);
    // Nothing may be open while it waits.
    let sent = opened(vec![], Some(refund()));
    assert_eq!(no(&sent, require(&sent, vec![ask("a")])), Refusal::Unsettled);
}

#[test]
fn how_a_question_ends_without_an_answer() {
    let op = opened(vec![approval()], Some(refund()));
    let end = op.attention(Millis(1), Millis(1)).unwrap();
    assert_eq!(end, BASE.plus(policy().abandoned_for));
    assert_eq!(decide(&op, Event::Expire, end.plus(Millis(-1))).unwrap_err(), Refusal::State);
    let expired = decide(&op, Event::Expire, end).unwrap().next;
    assert_eq!(expired.execution, Execution::Cancelled { explicit: false });
    let denied = go(&op, Event::Cancel { by: "ann".into() });
    assert_eq!(denied.execution, Execution::Cancelled { explicit: true });
    assert_eq!((denied.decisions[0].by.as_str(), denied.decisions[0].what.as_str()), ("ann", "denied"));
    assert_eq!(no(&denied, reply(answer("approval", "yes"), Some(refund()))), Refusal::State);
    // An operator's word about what happened is none to a question.
    let decide_it = Event::Decide { by: "ops".into(), verdict: Verdict::NotApplied };
    assert_eq!(no(&op, decide_it.clone()), Refusal::State);
    // After an effect there is an account.
    let fence = Fence { attempt: 1, epoch: Epoch(1) };
    let sent = opened(vec![], Some(refund()));
    let done =
        go(&sent, Event::Receive { fence, effect: 0, outcome: decide::Outcome::Applied(Receipt(vec![1])) });
    let asking = go(&done, Event::Require { fence, asks: vec![ask("name")] });
    let end = asking.attention(Millis(1), Millis(1)).unwrap();
    let expired = decide(&asking, Event::Expire, end).unwrap().next;
    for next in [expired, go(&asking, Event::Cancel { by: "p".into() }), go(&asking, decide_it)] {
        assert_eq!((says(&next), next.conclude, next.owner), ("running", true, Epoch(0)));
        // And nothing else.
        let next = go(&next, Event::Claim { epoch: Epoch(2), by_call: true, owner_dead: false });
        let fence = Fence { attempt: 2, epoch: Epoch(2) };
        let mail = intent(&recovery(Strategy::Key), "mail");
        let key = effect_key(&mail);
        assert_eq!(no(&next, Event::Intend { fence, intent: Box::new(mail), key }), Refusal::State);
        assert_eq!(no(&next, Event::Require { fence, asks: vec![ask("more")] }), Refusal::State);
    }
}

#[test]
fn a_task_runs_on() {
    let op = opened(vec![], None);
    let task = go(&op, Event::HandOut { ttl: Some(Millis::secs(30 * 86_400)) });
    assert_eq!(no(&task, Event::HandOut { ttl: None }), Refusal::Nothing);
    let alone = go(&task, Event::CallerGone);
    assert_eq!((says(&alone), alone.caller.gone), ("running", true));
    assert_eq!(no(&alone, Event::CallerGone), Refusal::Nothing);
    // The same call without a key finds it, although its caller may be there.
    let class = |op: &Operation| twin::classify(op, BASE, Millis(300), &gaps::NONE, false);
    assert_eq!((class(&op), class(&task)), (twin::Twin::Wait, twin::Twin::Join));
    // Abandoned just before: it runs again.
    let abandoned = go(&op, Event::CallerGone);
    let again = go(&abandoned, Event::HandOut { ttl: None });
    assert_eq!(says(&again), "running");
    assert_eq!(go(&again, Event::Claim { epoch: Epoch(2), by_call: false, owner_dead: false }).attempt, 2);
    // After it failed it is over.
    let fence = Fence { attempt: 1, epoch: Epoch(1) };
    let failed = go(&task, Event::Fail { fence, reason: "down".into() });
    let claim = Event::Claim { epoch: Epoch(2), by_call: true, owner_dead: false };
    assert_eq!(no(&failed, claim), Refusal::State);
    // It is kept for as long as its holder was promised.
    assert_eq!(failed.expires_at(), Some(BASE.plus(Millis(9)).plus(Millis::secs(30 * 86_400))));
    let short = go(&op, Event::HandOut { ttl: Some(Millis(1)) });
    let failed = go(&short, Event::Fail { fence, reason: "down".into() });
    assert_eq!(failed.expires_at(), Some(BASE.plus(Millis(9)).plus(policy().retention)));
}

#[test]
fn records_from_before_are_read_and_plain_ones_grow_by_nothing() {
    let op = opened(vec![], Some(refund()));
    let json = serde_json::to_string(&op).unwrap();
    for word in ["inputs", "planned", "task", "allowances", "form", "spoken"] {
        assert!(!json.contains(word), "{json}");
    }
    assert_eq!(Operation::from_record(json.as_bytes()).unwrap(), Operation { version: 0, ..op });
    let op = opened(vec![approval()], Some(refund()));
    let op = go(&op, Event::HandOut { ttl: None });
    let op = go(&op, reply(answer("approval", "yes"), Some(refund())));
    let json = serde_json::to_string(&op).unwrap();
    assert_eq!(Operation::from_record(json.as_bytes()).unwrap(), Operation { version: 0, ..op });
}

// The service.

async fn settled(b: &Boot) -> Operation {
    for _ in 0..200 {
        if b.ledger.running() == 0 {
            return b.only().await;
        }
        pause(10).await;
    }
    panic!("it goes on: {:#?}", b.only().await)
}

#[tokio::test(start_paused = true)]
async fn two_rounds_and_an_effect() {
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    b.mood(Mood::Asks);
    let (id, open) = input(&b.asked(&keyed("k")).await);
    assert_eq!(open, ["name?"]);
    assert_eq!((b.provider.effects(), settled(&b).await.effects.len()), (0, 0));
    // Without state the same call joins at once, and is asked the same.
    assert_eq!(input(&b.asked(&keyed("k")).await), (id, vec!["name?".to_owned()]));
    assert_eq!(input(&b.asked(&unkeyed()).await).0, id);
    // Another boot gets the answer.
    let c = b.next(Default::default());
    c.mood(Mood::Asks);
    let (_, open) = input(&c.asked(&with(id, "name", "n")).await);
    assert_eq!(open, ["size?"]);
    let a = c.asked(&Call { key: keyed("k").key, ..with(id, "size", "s") }).await;
    let (op, _, replayed, by) = result(&a);
    assert_eq!((op.id, replayed, by), (id, false, Some(JoinedBy::State)));
    assert_eq!(*c.tool.told.lock().unwrap(), [(b"n".to_vec(), b"s".to_vec())]);
    assert_eq!((b.provider.effects(), b.provider.send_count()), (1, 1));
    c.written(&a);
    c.ledger.tend_once().await.unwrap();
    // An answer after the end: the recorded one gets the result, another is refused, and so is a foreign state.
    let (_, _, replayed, _) = result(&c.asked(&with(id, "size", "s")).await);
    assert!(replayed);
    assert_eq!(error(&c.asked(&with(id, "size", "t")).await).kind, Kind::AnswerConflict);
    let foreign = Call { scope: scope("q"), ..with(id, "size", "s") };
    assert_eq!(error(&c.asked(&foreign).await).kind, Kind::AdmissionUnknown);
    let unknown = state(OperationId::new(id.made_at(), 77));
    assert_eq!(error(&c.asked(&unknown).await).sentence, error(&c.asked(&foreign).await).sentence);
    let other = Call { fingerprint: fingerprint("{\"amount\":6}"), ..state(id) };
    assert_eq!(error(&c.asked(&other).await).kind, Kind::KeyConflict);
    assert_eq!(c.provider.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_beside_a_state_must_agree() {
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    b.mood(Mood::Asks);
    let (id, _) = input(&b.asked(&keyed("k")).await);
    let beside = |call: Call| Call { named: Some(id), ..call };
    for (call, fits) in [
        (keyed("k"), true),
        (keyed(&id.to_string()), true),
        (in_argument("k"), true),
        // Passed over when its call joined as a twin.
        (in_argument("invented"), true),
        (keyed("other"), false),
        (keyed(&OperationId(5).to_string()), false),
    ] {
        let a = b.asked(&beside(call.clone())).await;
        match fits {
            true => assert_eq!(input(&a).0, id, "{call:?}"),
            false => assert_eq!(error(&a).kind, Kind::KeyConflict, "{call:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_sends_what_was_shown() {
    let mut b = Boot::plain(Strategy::None, &[]);
    b.asks = vec![approval()];
    b.start();
    let (id, open) = input(&b.asked(&keyed("k")).await);
    assert_eq!(open, ["POST /refunds amount=5?"]);
    let op = b.only().await;
    assert_eq!((says(&op), op.effects.len(), b.tool.runs.load(SeqCst)), ("input_required", 0, 0));
    assert_eq!(b.ledger.planned_intent(&op).await.unwrap().unwrap().body, b"refund: amount=5");
    let told = b.call(&keyed("k")).await;
    assert_eq!(error(&told).kind, Kind::ApprovalRequired);
    assert!(error(&told).advice.contains("ops approve"), "{told:?}");
    // Time alone sends nothing.
    pause(3_600_000).await;
    assert_eq!(b.provider.send_count(), 0);
    b.ledger.approve(id, "ann").await.unwrap();
    let done = settled(&b).await;
    assert_eq!((says(&done), b.provider.effects(), b.provider.send_count()), ("completed", 1, 1));
    assert_eq!((done.decisions[0].by.as_str(), done.decisions[0].what.as_str()), ("ann", "approved"));
    assert_eq!(done.inputs[0].answer.as_ref().unwrap().by, "ann");
    // Saying it again changes nothing; a no comes too late and is told so.
    assert_eq!(b.ledger.approve(id, "bob").await.unwrap().id, id);
    assert!(matches!(b.ledger.deny(id, "bob").await, Err(service::OperateError::Refused { .. })));
    let (_, bytes, ..) = result(&b.call(&keyed("k")).await);
    assert_eq!(bytes, b.memory.blob(id, BlobKind::Receipt(0)).await.unwrap().unwrap());
    assert_eq!(b.provider.send_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_no_is_final() {
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.asks = vec![approval()];
    let (id, _) = input(&b.asked(&keyed("k")).await);
    let before = b.only().await;
    // A no to a question that does not wait is no word about the one that does.
    let other = b.ledger.deny_asked(id, "an_older_one", "ann").await;
    assert!(matches!(other, Err(service::OperateError::Refused { .. })), "{other:?}");
    assert_eq!(b.only().await, before);
    let op = b.ledger.deny_asked(id, &before.inputs[0].key, "ann").await.unwrap();
    assert_eq!((says(&op), op.decisions[0].what.as_str()), ("cancelled", "denied"));
    assert!(matches!(b.ledger.approve(id, "bob").await, Err(service::OperateError::Refused { .. })));
    let told = b.call(&keyed("k")).await;
    assert_eq!(error(&told).kind, Kind::Denied);
    assert!(error(&told).sentence.contains("denied by a person"), "{told:?}");
    assert!(!error(&told).sentence.contains("ann"), "who said no is not the caller's to know");
    assert_eq!(error(&b.call(&with(id, "approval", "yes")).await).kind, Kind::Denied);
    assert_eq!((b.provider.send_count(), b.tool.runs.load(SeqCst)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_yes_and_a_no_race() {
    for first in [true, false] {
        let mut b = Boot::plain(Strategy::Key, &[]);
        b.asks = vec![approval()];
        let (id, _) = input(&b.asked(&keyed("k")).await);
        b.store.latency.store(10, SeqCst);
        let late = if first { (0, 1) } else { (1, 0) };
        let yes = async {
            pause(late.0).await;
            b.ledger.approve(id, "ann").await
        };
        let no = async {
            pause(late.1).await;
            b.ledger.deny(id, "bob").await
        };
        let (yes, no) = tokio::join!(yes, no);
        assert!(yes.is_ok() != no.is_ok(), "one of them wins, the other is told: {yes:?} {no:?}");
        let op = settled(&b).await;
        assert_eq!(b.provider.effects(), u32::from(yes.is_ok()), "{op:#?}");
        assert_eq!(op.decisions.len(), 1);
        assert_eq!(yes.is_ok(), first);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_race_on_two_replicas() {
    for (texts, winners) in [(["n", "n"], 2), (["n", "m"], 1)] {
        let mut b = Boot::plain(Strategy::Key, &[]);
        b.asks = vec![ask("go")];
        b.mood(Mood::SleepBefore(50));
        let (id, _) = input(&b.asked(&keyed("k")).await);
        let c = b.beside();
        c.store.latency.store(4, SeqCst);
        b.store.latency.store(4, SeqCst);
        let calls = (with(id, "go", texts[0]), with(id, "go", texts[1]));
        let (x, y) = tokio::join!(c.call(&calls.0), b.call(&calls.1));
        let got = |a: &Answer| matches!(a, Answer::Result { .. });
        assert_eq!(usize::from(got(&x)) + usize::from(got(&y)), winners, "{x:?} {y:?}");
        for a in [&x, &y].into_iter().filter(|a| !got(a)) {
            assert_eq!(error(a).kind, Kind::AnswerConflict);
        }
        assert_eq!((b.provider.effects(), b.provider.send_count()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_acknowledgement_of_the_last_answer() {
    for fault in [Fault::AckLost, Fault::LostUncertain, Fault::Refused] {
        let mut b = Boot::plain(Strategy::None, &[]);
        b.asks = vec![approval()];
        let (id, _) = input(&b.asked(&keyed("k")).await);
        b.store.faults.lock().unwrap().push_back(fault);
        let a = b.call(&with(id, "approval", "yes")).await;
        if fault == Fault::Refused {
            // Nothing was written, and it is not told that nothing ran.
            assert_eq!(error(&a).kind, Kind::AdmissionUnknown);
            assert_eq!(says(&b.only().await), "input_required");
        } else {
            result(&a);
        }
        result(&b.call(&with(id, "approval", "yes")).await);
        assert_eq!((b.provider.effects(), b.provider.send_count()), (1, 1), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_joins_while_the_acknowledgement_is_lost() {
    let mut b = Boot::plain(Strategy::None, &[]);
    b.asks = vec![approval()];
    let (id, _) = input(&b.asked(&keyed("k")).await);
    b.store.faults.lock().unwrap().push_back(Fault::AckLost);
    let joins = async {
        pause(5).await;
        // The yes is durable by now, and whoever gave it doesn't know.
        assert_eq!(says(&b.only().await), "running");
        b.call(&keyed("k")).await
    };
    let (a, joined) = tokio::join!(b.ledger.approve(id, "ann"), joins);
    assert_eq!(a.unwrap().id, id);
    result(&joined);
    assert_eq!((b.provider.effects(), b.provider.send_count()), (1, 1));
}

/// A replica is killed at every step of a round; the next one goes on with the same answers.
#[tokio::test(start_paused = true)]
async fn killed_at_every_step_of_a_round() {
    for approves in [false, true] {
        let mut step = 0;
        loop {
            let gate = Gate::at(step);
            let mut b = Boot::first(Provider::new(true, &[]), recovery(Strategy::Key), gate.clone());
            b.single = approves;
            b.asks = if approves { vec![approval()] } else { vec![ask("go")] };
            b.mood(if approves { Mood::Plain } else { Mood::Asks });
            let texts = [("approval", "yes"), ("go", "go"), ("name", "n"), ("size", "s")];
            let course = async |b: &Boot| {
                let mut call = keyed("k");
                loop {
                    match b.asked(&call).await {
                        Answer::Input { operation, open, .. } => {
                            let text = texts.iter().find(|t| t.0 == open[0].key).unwrap().1;
                            call = Call { key: keyed("k").key, ..with(operation.id, &open[0].key, text) };
                        }
                        Answer::Error(e) if e.kind == Kind::AdmissionUnknown => {}
                        other => return other,
                    }
                }
            };
            let over = tokio::select! {
                a = course(&b) => {
                    result(&a);
                    true
                }
                () = gate.reached.notified() => false,
            };
            b.env.kill();
            let c = b.next(Default::default());
            c.mood(if approves { Mood::Plain } else { Mood::Asks });
            c.start();
            let (op, ..) = result(&course(&c).await);
            assert_eq!(b.provider.effects(), 1, "killed at step {step}, {}", gate.last());
            b.provider.assert_one_key();
            if !approves {
                let told = [&b, &c].map(|x| x.tool.told.lock().unwrap().last().cloned());
                assert!(told.into_iter().flatten().all(|t| t == (b"n".to_vec(), b"s".to_vec())));
            }
            assert!(op.inputs.iter().all(|i| i.answer.is_some()));
            c.env.kill();
            if over {
                assert!(step > 5, "it has steps to be killed at: {step}");
                break;
            }
            step += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_question_under_a_used_key_is_the_tools_mistake() {
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    b.mood(Mood::Asks);
    let (id, _) = input(&b.asked(&keyed("k")).await);
    b.mood(Mood::AsksOtherwise);
    let a = b.call(&with(id, "name", "n")).await;
    assert!(error(&a).sentence.contains("input_mismatch"), "{a:?}");
    assert_eq!((says(&b.only().await), b.provider.send_count()), ("failed", 0));
    // After an effect it is in doubt.
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    b.mood(Mood::AsksAfter);
    let (id, open) = input(&b.asked(&keyed("k")).await);
    assert_eq!(open, ["name?", "size?"]);
    assert_eq!(input(&b.asked(&with(id, "name", "n")).await).1, ["size?"]);
    b.mood(Mood::AsksOtherwise);
    let a = b.call(&with(id, "size", "s")).await;
    assert_eq!((error(&a).kind, says(&b.only().await)), (Kind::InDoubt, "in_doubt"));
    assert_eq!(b.provider.send_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn questions_after_an_effect_keep_it() {
    let mut b = Boot::plain(Strategy::None, &[]);
    b.single = false;
    b.mood(Mood::AsksAfter);
    let (id, _) = input(&b.asked(&keyed("k")).await);
    let op = b.ledger.answer(id, "ann", &answer("size", "s")).await.unwrap();
    assert_eq!(says(&op), "input_required");
    assert_eq!(b.ledger.answer(id, "bob", &answer("size", "s")).await.unwrap().version, op.version);
    let told = b.ledger.answer(id, "bob", &answer("size", "t")).await.unwrap_err();
    assert!(matches!(told, service::OperateError::Refused { refusal: Refusal::AnswerConflict, .. }));
    assert_eq!(b.ledger.answer(id, "bob", &answer("other", "t")).await.unwrap().version, op.version);
    let mut changes = b.ledger.changes(id);
    b.ledger.answer(id, "ann", &answer("name", "n")).await.unwrap();
    tokio::time::timeout(Millis(1000).duration(), changes.changed()).await.unwrap();
    let (_, bytes, ..) = result(&b.call(&state(id)).await);
    assert_eq!((bytes.as_slice(), b.provider.send_count()), (b"ns".as_slice(), 1));
    let long = Call { answers: vec![("name".into(), vec![0; MAX_ANSWER + 1])], ..state(id) };
    assert_eq!(error(&b.call(&long).await).kind, Kind::BadArguments);
}

#[tokio::test(start_paused = true)]
async fn nobody_answers() {
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.asks = vec![approval()];
    b.start();
    let (id, _) = input(&b.asked(&keyed("k")).await);
    pause(policy().abandoned_for.0 + 2000).await;
    assert_eq!(b.get(id).await.execution, Execution::Cancelled { explicit: false });
    assert_eq!(error(&b.call(&with(id, "approval", "yes")).await).kind, Kind::KeyExpired);
    assert_eq!(b.provider.send_count(), 0);
    // After an effect: an account of it.
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    b.mood(Mood::AsksAfter);
    b.start();
    let (id, _) = input(&b.asked(&keyed("k")).await);
    pause(policy().abandoned_for.0 + 5000).await;
    let op = b.get(id).await;
    assert_eq!((says(&op), op.is_error), ("completed", true));
    let (_, bytes, ..) = result(&b.call(&keyed("k")).await);
    assert!(String::from_utf8(bytes).unwrap().contains("account of 1 effects"));
}

#[tokio::test(start_paused = true)]
async fn a_reserved_key_creates_what_it_was_reserved_for() {
    let b = Boot::plain(Strategy::Key, &[]);
    let reserve = |call: Call| Call { unkeyed: Unkeyed::Reserve, ..call };
    let Answer::Reserve { key } = b.asked(&reserve(unkeyed())).await else { panic!("a key") };
    assert_eq!((b.count().await, b.provider.send_count()), (0, 0));
    assert_eq!(error(&b.call(&reserve(unkeyed())).await).kind, Kind::KeyRequired);
    // A call that was lost and made again with it is one.
    let a = b.asked(&reserve(keyed(&key))).await;
    let (op, ..) = result(&a);
    assert_eq!(result(&b.asked(&reserve(keyed(&key))).await).0.id, op.id);
    let other = Call { fingerprint: fingerprint("{\"amount\":6}"), ..reserve(keyed(&key)) };
    assert_eq!(error(&b.asked(&other).await).kind, Kind::KeyConflict);
    // Its twin without a key is found first.
    b.ledger.delivered(&op, DeliveryState::Undelivered);
    assert_eq!(result(&b.asked(&reserve(unkeyed())).await).0.id, op.id);
    assert_eq!((b.count().await, b.provider.effects()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_ring_between_the_read_and_the_wait_is_not_lost() {
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    b.mood(Mood::SleepBefore(2000));
    b.policy.timeout = Millis(20_000);
    let c = b.beside();
    let first = b.spawn_call(&keyed("k"));
    pause(100).await;
    // Its join takes long to come back; meanwhile the result is there, and the bell rings.
    c.store.latency.store(2400, SeqCst);
    let joins = c.spawn_call(&keyed("k"));
    pause(2000).await;
    let (op, ..) = result(&first.await.unwrap());
    c.ledger.heard(op.id);
    let began = c.memory.now();
    result(&joins.await.unwrap());
    assert!(
        c.memory.now().since(began) < Millis(700),
        "it waits for no poll: {:?}",
        c.memory.now().since(began)
    );
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_is_told_apart() {
    let b = Boot::plain(Strategy::Confirm, &[Act::ApplyAndLose]);
    match b.asked(&keyed("k")).await {
        Answer::Confirm { operation, question, .. } => {
            assert!(question.contains("Did this happen?"), "{question}");
            assert!(!operation.waits_for_input());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(error(&b.call(&keyed("k")).await).kind, Kind::InDoubt);
}

// Legs and tasks.

#[tokio::test(start_paused = true)]
async fn between_two_legs_the_caller_is_there() {
    let b = Boot::plain(Strategy::Key, &[]);
    let mut b = b;
    b.single = false;
    b.policy.timeout = Millis(20_000);
    b.mood(Mood::SleepBefore(9000));
    b.start();
    let leg = |call: Call| Call { wait: Millis(1000), lease_of_caller: Millis(2000), ..call };
    let id = match b.asked(&leg(keyed("k"))).await {
        Answer::Running { operation, .. } => operation.id,
        other => panic!("{other:?}"),
    };
    pause(500).await;
    let alive = b.env.alive();
    for _ in 0..2 {
        assert!(matches!(b.asked(&leg(state(id))).await, Answer::Running { .. }), "the next leg is in time");
        pause(100).await;
    }
    // One looks after all legs.
    assert_eq!(b.env.alive(), alive);
    pause(1400).await;
    assert_eq!(says(&b.get(id).await), "running");
    assert!(!b.get(id).await.caller.gone);
    // It does not come back: abandoned, as at a closed stream, and the next call runs it again.
    pause(1000).await;
    assert_eq!(says(&b.get(id).await), "accepted");
    b.mood(Mood::Plain);
    let (op, ..) = result(&b.asked(&state(id)).await);
    assert_eq!((op.id, op.attempt, b.provider.effects()), (id, 2, 1));
}

#[tokio::test(start_paused = true)]
pub(crate) async fn what_is_handed_out_is_not_abandoned() {
    for dies in [false, true] {
        let mut b = Boot::plain(Strategy::Key, &[]);
        b.single = false;
        b.mood(Mood::SleepBefore(3000));
        b.start();
        let id = match b.asked(&Call { wait: Millis(0), ..keyed("k") }).await {
            Answer::Running { operation, .. } => operation.id,
            other => panic!("{other:?}"),
        };
        let out = b.ledger.hand_out(id, Some(Millis::secs(60))).await.unwrap();
        let again = b.ledger.hand_out(id, None).await.unwrap();
        assert_eq!((out.task, again.version), (again.task, out.version), "the same task every time");
        // Its caller is gone, and with `dies` its replica too.
        let call = b.asked_until(&Call { wait: Millis(60_000), ..keyed("k") }, pause(100)).await;
        assert!(matches!(call, Answer::Gone));
        assert_eq!(says(&b.get(id).await), "running");
        if dies {
            b.env.kill();
            let c = b.next(Default::default());
            c.start();
            pause(8000).await;
            assert_eq!(says(&c.get(id).await), "completed");
            c.env.kill();
        } else {
            pause(4000).await;
            let op = b.get(id).await;
            assert_eq!((says(&op), op.attempt), ("completed", 1));
        }
        assert_eq!(b.provider.effects(), 1);
        b.env.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_is_over() {
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    b.mood(Mood::SleepBefore(200));
    *b.provider.otherwise.lock().unwrap() = Act::NotSent;
    let Answer::Running { operation, .. } = b.asked(&Call { wait: Millis(0), ..keyed("k") }).await else {
        panic!("it runs");
    };
    b.ledger.hand_out(operation.id, None).await.unwrap();
    pause(4000).await;
    assert_eq!(says(&b.get(operation.id).await), "failed");
    *b.provider.otherwise.lock().unwrap() = Act::Apply;
    let a = b.call(&keyed("k")).await;
    assert!(error(&a).new_key.is_some() && error(&a).advice.contains("newKey"), "{a:?}");
    assert_eq!(b.provider.effects(), 0, "nothing runs under a task that was told to have failed");
}

#[tokio::test(start_paused = true)]
async fn task_ids() {
    let b = Boot::plain(Strategy::Key, &[]);
    let id = OperationId::new(BASE, 99);
    let task = b.ledger.task_id(id);
    assert_eq!((task.len(), task.as_str()), (58, b.ledger.task_id(id).as_str()));
    assert_eq!(b.ledger.task(&task), Some(id));
    let other = b.ledger.task_id(OperationId::new(BASE, 98));
    let mixed = format!("{}{}", &task[..32], &other[32..]);
    let mut wrong =
        vec![mixed, String::new(), "task_".into(), id.to_string(), format!("{task}0"), task.to_lowercase()];
    wrong.extend((0..task.len()).map(|i| {
        let mut t = task.clone().into_bytes();
        t[i] = if t[i] == b'0' { b'1' } else { b'0' };
        String::from_utf8(t).unwrap()
    }));
    for w in wrong {
        assert_eq!(b.ledger.task(&w), None, "{w}");
    }
}

// Handles.

#[tokio::test(start_paused = true)]
pub(crate) async fn changes_of_handles_are_made_once() {
    // Killed behind the making, behind the change, and not at all.
    for hangs in [1, 2, 9] {
        let mut b = Boot::plain(Strategy::Key, &[]);
        b.single = false;
        b.mood(Mood::Handles(hangs));
        b.start();
        if hangs < 9 {
            assert!(matches!(b.asked_until(&keyed("k"), pause(500)).await, Answer::Gone));
        }
        b.env.kill();
        let c = b.next(Default::default());
        c.mood(Mood::Handles(9));
        c.start();
        let (op, bytes, ..) = result(&c.call(&keyed("k")).await);
        let told = String::from_utf8(bytes).unwrap();
        let (text, value) = told.split_once(' ').unwrap();
        assert_eq!(value, "0+1", "killed behind step {hangs}");
        assert!(text.len() == 29 && text.starts_with("hd_"), "{text}");
        let there = c.ledger.handle("p", text).await.unwrap().there().unwrap();
        assert_eq!((there.value.as_slice(), there.version), (b"0+1".as_slice(), 2));
        assert_eq!(op.effects.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["basket", "add"]);
        assert!(op.effects.iter().all(|e| e.sends == 0 && e.state == EffectState::Applied));
        assert_eq!(c.ledger.handle("q", text).await.unwrap(), HandleFound::Unknown);
        assert_eq!(c.memory.handles("p", None, None, 9, c.memory.now()).await.unwrap().len(), 1);
        c.env.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn lost_acknowledgements_change_no_handle_twice() {
    // The writes: opening, making, changing, closing.
    for n in 1..=2 {
        for fault in [Fault::AckLost, Fault::LostUncertain] {
            let mut b = Boot::plain(Strategy::Key, &[]);
            b.single = false;
            b.mood(Mood::Handles(9));
            let mut faults = vec![Fault::Fine; n];
            faults.push(fault);
            b.store.faults.lock().unwrap().extend(faults);
            let (_, bytes, ..) = result(&b.call(&keyed("k")).await);
            assert!(bytes.ends_with(b" 0+1"), "{:?} {fault:?}", String::from_utf8(bytes));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_zombie_changes_no_handle() {
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    b.mood(Mood::Handles(9));
    // Stands still just before its handle is changed.
    b.store.latency.store(0, SeqCst);
    let gate = Gate::at(4);
    let mut b =
        Boot { gate: gate.clone(), ..Boot::first(b.provider.clone(), recovery(Strategy::Key), gate.clone()) };
    b.single = false;
    b.mood(Mood::Handles(9));
    let waiting = b.spawn_call(&keyed("k"));
    gate.reached.notified().await;
    assert_eq!(gate.last(), "before a write");
    let c = b.next(Default::default());
    c.mood(Mood::Handles(9));
    c.start();
    let (_, bytes, ..) = result(&c.call(&keyed("k")).await);
    assert!(bytes.ends_with(b" 0+1"));
    gate.release();
    pause(3000).await;
    let told = String::from_utf8(bytes).unwrap();
    let there = c.ledger.handle("p", told.split_once(' ').unwrap().0).await.unwrap().there().unwrap();
    assert_eq!((there.value.as_slice(), there.version), (b"0+1".as_slice(), 2));
    waiting.abort();
    b.env.kill();
    c.env.kill();
}

#[tokio::test(start_paused = true)]
async fn a_handle_lives_as_long_as_it_is_used() {
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    b.mood(Mood::Handles(9));
    b.start();
    let (_, bytes, ..) = result(&b.call(&keyed("k")).await);
    let told = String::from_utf8(bytes).unwrap();
    let text = told.split_once(' ').unwrap().0;
    let m = 60_000;
    let found = async |who| b.ledger.handle(who, text).await.unwrap();
    pause(50 * m).await;
    assert!(found("p").await.there().is_some());
    assert_eq!(found("q").await, HandleFound::Unknown);
    pause(50 * m).await;
    assert!(found("p").await.there().is_some(), "it was used in between");
    pause(21 * m).await;
    // No longer than two hours in all. Its owner is told for a while that it has expired, nobody else ever is.
    let expired = HandleFound::Expired { kind: "basket".into() };
    assert_eq!(found("p").await, expired);
    assert_eq!(found("q").await, HandleFound::Unknown);
    let day = EXPIRED_FOR.0;
    pause(day - 2 * m).await;
    assert_eq!(found("p").await, expired);
    assert!(b.memory.handles("p", None, None, 9, b.memory.now()).await.unwrap().is_empty());
    pause(3 * m).await;
    assert_eq!(found("p").await, HandleFound::Unknown);
    let kept = async |ms: i64| {
        let then = b.memory.now().plus(Millis(-ms));
        b.memory.handles("p", None, None, 9, then).await.unwrap().len()
    };
    assert_eq!(kept(EXPIRED_FOR.0 + 60 * 60_000).await, 0, "nothing is kept of it");
    assert!(matches!(b.memory.by_id(b.only().await.id).await.unwrap(), Some(Found::Operation(_))));
}

#[test]
fn whoever_answers_it_is_called_for_where_it_runs() {
    let op = opened(vec![approval()], None);
    let left = go(&op, Event::CallerGone);
    let by_an_operator = Event::Answer {
        by: "ann".into(),
        answers: answer("approval", "yes"),
        epoch: Epoch(2),
        by_call: false,
        intent: None,
    };
    for asking in [op, left] {
        let runs = go(&asking, by_an_operator.clone());
        // Its first caller's replica may be gone by now; this one is not.
        assert_eq!(
            (says(&runs), runs.owner, runs.caller.epoch, runs.caller.gone),
            ("running", Epoch(2), Epoch(2), false)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_it_begins_with_has_bounds() {
    let many = |n: usize| (0..n).map(|i| ask(&format!("k{i}"))).collect::<Vec<_>>();
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    for asks in [
        vec![ask("a"), ask("a")],
        vec![ask("a b")],
        vec![Ask { request: vec![b'x'; MAX_REQUEST + 1], ..ask("a") }],
        many(MAX_INPUTS + 1),
    ] {
        b.asks = asks;
        assert_eq!(error(&b.asked(&keyed("k")).await).kind, Kind::BadArguments);
    }
    assert!(b.memory.list(&store::Query { limit: 1, ..Default::default() }).await.unwrap().is_empty());
    b.asks = many(MAX_INPUTS);
    assert_eq!(input(&b.asked(&keyed("k")).await).1.len(), MAX_INPUTS);
}

#[tokio::test(start_paused = true)]
async fn a_yes_is_said_to_everything_that_waits_for_one() {
    let gate: std::sync::Arc<Gate> = Default::default();
    let mut b = Boot::first(Provider::new(true, &[]), recovery(Strategy::Key), gate.clone());
    b.asks = vec![approval(), Ask { key: "second".into(), ..approval() }];
    let (id, _) = input(&b.asked(&keyed("k")).await);
    // While the operator's yes is on its way, the client says yes to one of them in other words.
    b.store.latency.store(100, SeqCst);
    let client = async {
        let beside = b.beside();
        beside.ledger.answer(id, "client", &answer("approval", "yes")).await.unwrap()
    };
    let (granted, _) = tokio::join!(b.ledger.approve(id, "ann"), client);
    let op = granted.unwrap();
    assert!(op.inputs.iter().all(|i| i.answer.is_some()), "{op:#?}");
    settled(&b).await;
    assert_eq!(b.provider.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_outlives_a_ledger_that_is_away_for_a_moment() {
    let mut b = Boot::plain(Strategy::Key, &[]);
    b.single = false;
    b.mood(Mood::SleepBefore(200));
    b.start();
    let Answer::Running { operation, .. } = b.asked(&Call { wait: Millis(0), ..keyed("k") }).await else {
        panic!("it runs");
    };
    b.ledger.hand_out(operation.id, None).await.unwrap();
    // Its first word is refused; when it ends, the ledger is back.
    b.store.faults.lock().unwrap().push_back(Fault::Refused);
    pause(20_000).await;
    let op = b.get(operation.id).await;
    assert_eq!((says(&op), op.attempt, b.provider.effects()), ("completed", 2, 1), "{op:#?}");
    b.env.kill();
}
