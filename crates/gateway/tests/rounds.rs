//! Calls that come again: with answers, with nothing but their state, or with a key that was kept for them; on whichever
//! replica.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::replicas::*;
use common::*;

use counterfoil_gateway as gateway;
use gateway::{Body, Offer, ToolSettings};
use ledger::{Execution, Millis, Unkeyed};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

async fn worlds(tune: impl Fn(&mut ToolSettings) + Copy) -> (Pair, Arc<Works>) {
    worlds_for(tune, true).await
}

async fn worlds_for(tune: impl Fn(&mut ToolSettings) + Copy, auth: bool) -> (Pair, Arc<Works>) {
    let tool = Arc::new(Works::default());
    let offer = || Offer {
        tools: vec![works("works", &tool, tune), works("other", &tool, tune), super_echo()],
        prompts: vec![prompt("works")],
        ..Offer::default()
    };
    (pair(offer, auth).await, tool)
}

fn super_echo() -> (gateway::ToolSpec, ToolSettings, Body) {
    tool("echo", None, Body::Read(Arc::new(Echo)))
}

/// A call by `ann`.
async fn ann(w: &World, params: Value) -> Reply {
    as_one(w, "ann", params).await
}

async fn as_one(w: &World, who: &str, params: Value) -> Reply {
    w.modern_with("tools/call", params, asked(), &[("Authorization", &bearer(who))]).await
}

async fn keyed(w: &World, key: &str, params: Value) -> Reply {
    let headers = [("Authorization", bearer("ann")), ("Idempotency-Key", key.to_owned())];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    w.modern_with("tools/call", params, asked(), &headers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_rounds_are_answered_on_whichever_replica() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "ask": [["who"], ["n1", "why"]], "send": "key" });
    let first = ann(&p.a, call("works", arguments.clone(), None, None)).await;
    assert_eq!(questions(&first), ["who"]);
    let asked = &result(&first)["inputRequests"]["who"];
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(asked["params"]["message"], "What is who?");

    let told = json!({ "who": accept(json!({ "who": "me", "more": 1 })), "never": { "action": "accept" } });
    let second = ann(&p.b, call("works", arguments.clone(), Some(&state(&first)), Some(told))).await;
    assert_eq!(questions(&second), ["n1", "why"]);
    assert_eq!(operation_of(&second), operation_of(&first));
    assert_eq!(tool.sent(), 0, "nothing is done before the last answer");

    // One of two answers: the other is asked again, alone.
    let told = json!({ "n1": accept(json!({ "n1": 7 })) });
    let third = ann(&p.a, call("works", arguments.clone(), Some(&state(&second)), Some(told))).await;
    assert_eq!(questions(&third), ["why"]);
    let told = json!({ "why": { "action": "decline" } });
    let last = call("works", arguments, Some(&state(&third)), Some(told));
    let done = ann(&p.b, last.clone()).await;
    let text = said(&done);
    for part in [r#""who":"me""#, r#""n1":7"#, r#"{"action":"decline"}"#, "done"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("more"), "what was not asked for is ignored: {text}");
    assert_eq!(operation_of(&done), operation_of(&first));
    // The same again: the same result, and nothing more.
    let again = ann(&p.a, last).await;
    assert_eq!(result(&again)["content"], result(&done)["content"]);
    assert_eq!(tool.sent(), 1);
    assert_eq!(p.operations().await, 1);
    let op = p.operation(&operation_of(&done)).await;
    assert!(op.inputs.iter().all(|i| i.answer.as_ref().unwrap().by == "ann"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_wrong_with_a_state_the_answer_is_the_same() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "ask": [["who"]] });
    let good = state(&ann(&p.a, call("works", arguments.clone(), None, None)).await);
    let elsewhere = {
        let (q, _) = worlds(|_| {}).await;
        state(&ann(&q.a, call("works", arguments.clone(), None, None)).await)
    };
    let told = || Some(json!({ "who": accept(json!({ "who": "me" })) }));
    let mut seen = BTreeSet::new();
    let mut look = |what: &str, reply: Reply| {
        assert_eq!(reply.code(), -32602, "{what}");
        let head: Vec<&str> = reply.head.lines().filter(|l| !l.to_lowercase().starts_with("date")).collect();
        seen.insert(format!("{} {}", head.join("\n"), reply.last()));
    };
    // Each in the second half of the text, where the sealed part and its proof are.
    let flipped = |at: usize| {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    };
    let mut bad = vec![
        ("nothing", String::new()),
        ("words", "please".to_owned()),
        ("truncated", good[..good.len() - 1].to_owned()),
        ("half", good[..good.len() / 2].to_owned()),
        ("longer", format!("{good}A")),
        ("too long", format!("{good}{}", "A".repeat(20_000))),
        ("of another ring", elsewhere),
    ];
    let body = good.rfind('.').unwrap();
    bad.extend([12, body / 2, body - 3, body + 3].map(|at| ("flipped", flipped(at))));
    for (what, token) in &bad {
        look(what, ann(&p.b, call("works", arguments.clone(), Some(token), told())).await);
    }
    look("another's", as_one(&p.b, "ben", call("works", arguments.clone(), Some(&good), told())).await);
    look("other tool", ann(&p.a, call("other", arguments.clone(), Some(&good), told())).await);
    let other = json!({ "ask": [["who"]], "x": 1 });
    look("other arguments", ann(&p.a, call("works", other, Some(&good), told())).await);
    look("a reader", ann(&p.a, call("echo", arguments.clone(), Some(&good), told())).await);
    let prompt = json!({ "name": "works", "arguments": { "name": "x" }, "requestState": good });
    let auth = bearer("ann");
    look("other method", p.a.modern_with("prompts/get", prompt, asked(), &[("Authorization", &auth)]).await);
    assert!(rejections(&p.a, "forged").await >= 3, "{}", p.a.metrics().await);
    assert!(rejections(&p.b, "malformed").await >= 2, "{}", p.b.metrics().await);
    assert!(rejections(&p.b, "too_long").await >= 1 && rejections(&p.b, "unknown_key").await >= 1);

    // Another server's name: the ring has it, and so has what it seals.
    let renamed = seal::Operation::Rename("other".into());
    let shelf = seal::OnLedger(p.store.clone());
    let there = ledger::Store::shelved(&*p.store, seal::NAME).await.unwrap().unwrap();
    seal::alter(&shelf, &p.place, &p.sealing, &renamed).await.unwrap();
    let sealing = seal::Settings { audience: "other".into(), ..p.sealing.clone() };
    let other = seal::Keeper::start(Arc::new(shelf.clone()), p.place.clone(), sealing).await.unwrap();
    let env: Arc<dyn ledger::Env> = p.clock.clone();
    let offer = Offer { tools: vec![works("works", &tool, |_| {})], ..Offer::default() };
    let parts = Parts {
        store: p.store.clone(),
        env,
        offer,
        settings: settings(),
        auth: true,
        keeper: Some(other),
        poll: Millis(40),
    };
    let c = serve(parts).await;
    look("other audience", ann(&c, call("works", arguments.clone(), Some(&good), told())).await);
    assert_eq!(rejections(&c, "forged").await, 1);
    let now = ledger::Store::shelved(&*p.store, seal::NAME).await.unwrap().unwrap();
    assert!(ledger::Store::shelve(&*p.store, seal::NAME, now.version, there.data, None).await.unwrap());

    // It still is good, until its time is over by the ledger's clock.
    p.clock.forward(STATE_TTL.duration() - Duration::from_secs(30));
    let again = ann(&p.b, call("works", arguments.clone(), Some(&good), None)).await;
    assert_eq!(questions(&again), ["who"]);
    p.clock.forward(Duration::from_secs(31));
    look("expired", ann(&p.b, call("works", arguments.clone(), Some(&good), told())).await);
    assert_eq!(rejections(&p.b, "expired").await, 1);

    // Its key was replaced; the gateways read the ring again within seconds of their own time.
    let fresh = state(&ann(&p.a, call("works", arguments.clone(), None, None)).await);
    seal::alter(&shelf, &p.place, &p.sealing, &seal::Operation::Replace).await.unwrap();
    let sealing = p.sealing.clone();
    let keeper = seal::Keeper::start(Arc::new(shelf), p.place.clone(), sealing).await.unwrap();
    let env: Arc<dyn ledger::Env> = p.clock.clone();
    let offer = Offer { tools: vec![works("works", &tool, |_| {})], ..Offer::default() };
    let store = p.store.clone();
    let (settings, poll) = (settings(), Millis(40));
    let d = serve(Parts { store, env, offer, settings, auth: true, keeper: Some(keeper), poll }).await;
    look("replaced key", ann(&d, call("works", arguments, Some(&fresh), told())).await);

    assert_eq!(seen.len(), 1, "{seen:#?}");
    assert_eq!((tool.ran(), p.operations().await), (1, 1), "nothing ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_answer_counts_and_the_same_joins() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "ask": [["who"]], "send": "key", "hold": "before" });
    let asked = state(&ann(&p.a, call("works", arguments.clone(), None, None)).await);
    let with = |who: &str| {
        let told = json!({ "who": accept(json!({ "who": who })) });
        call("works", arguments.clone(), Some(&asked), Some(told))
    };
    let open = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        tool.open();
    };
    let (one, same, other, ()) =
        tokio::join!(ann(&p.a, with("me")), ann(&p.b, with("me")), ann(&p.b, with("you")), open);
    let conflicts = [&one, &same, &other].map(|r| result(r)["isError"] == true);
    // Either both of the same got it, or the other one did.
    assert!(conflicts == [false, false, true] || conflicts == [true, true, false], "{conflicts:?}");
    for refused in [&one, &same, &other].into_iter().filter(|r| result(r)["isError"] == true) {
        assert_eq!(kind(refused), "answer_conflict");
    }
    let (won, lost) = if conflicts[2] { ("me", "you") } else { ("you", "me") };
    // After its end it is no different.
    let again = ann(&p.b, with(won)).await;
    assert!(said(&again).contains(won));
    assert_eq!(kind(&ann(&p.a, with(lost)).await), "answer_conflict");
    assert_eq!((tool.sent(), p.operations().await), (1, 1));
    let spaced = json!({ "who": { "content": { "who": won, "more": [1] }, "action": "accept", "x": 1 } });
    let spaced = ann(&p.b, call("works", arguments.clone(), Some(&asked), Some(spaced))).await;
    assert_eq!(result(&spaced)["content"], result(&again)["content"], "the same answer in other words");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_do_not_fit_are_not_recorded() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "ask": [["who", "n1"]], "send": "key" });
    let first = ann(&p.a, call("works", arguments.clone(), None, None)).await;
    let token = state(&first);
    let good = accept(json!({ "who": "me" }));
    for (bad, status) in [
        (json!({ "who": good, "n1": accept(json!({ "n1": "7" })) }), "a text for a number"),
        (json!({ "who": good, "n1": accept(json!({ "n1": 1.5 })) }), "a part of a number"),
        (json!({ "who": good, "n1": accept(json!({})) }), "nothing in it"),
        (json!({ "who": good, "n1": { "action": "perhaps" } }), "no such action"),
        (json!({ "who": good, "n1": {} }), "no action"),
        (json!({ "who": good, "n1": null }), "null"),
        (json!({ "who": good, "n1": [1] }), "a list"),
        (json!(null), "no answers"),
        (json!([]), "a list of answers"),
    ] {
        let reply = ann(&p.b, call("works", arguments.clone(), Some(&token), Some(bad))).await;
        assert_eq!(reply.code(), -32602, "{status}");
        let op = p.operation(&operation_of(&first)).await;
        assert!(op.inputs.iter().all(|i| i.answer.is_none()), "{status}");
    }
    let unknown = json!({ "never": accept(json!({ "x": 1 })) });
    let reply = ann(&p.b, call("works", arguments.clone(), Some(&token), Some(unknown))).await;
    assert_eq!(questions(&reply), ["n1", "who"], "keys that were not asked for are ignored");
    let told = json!({ "who": good, "n1": accept(json!({ "n1": 7 })) });
    let reply = ann(&p.a, call("works", arguments, Some(&state(&reply)), Some(told))).await;
    assert!(said(&reply).ends_with("done"));
    assert_eq!(tool.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_lost_its_state_is_asked_the_same() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "ask": [["who"]], "send": "key" });
    let first = ann(&p.a, call("works", arguments.clone(), None, None)).await;
    // Answers without the state are nobody's.
    let told = json!({ "who": accept(json!({ "who": "me" })) });
    let again = ann(&p.b, call("works", arguments.clone(), None, Some(told.clone()))).await;
    assert_eq!(result(&again)["inputRequests"], result(&first)["inputRequests"]);
    assert_eq!(operation_of(&again), operation_of(&first));
    let foreign = as_one(&p.b, "ben", call("works", arguments.clone(), None, None)).await;
    assert_ne!(operation_of(&foreign), operation_of(&first), "another caller's is another");
    for token in [state(&again), state(&first)] {
        let done = ann(&p.b, call("works", arguments.clone(), Some(&token), Some(told.clone()))).await;
        assert!(said(&done).ends_with("done"), "either state");
    }
    assert_eq!(tool.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_can_not_be_asked_is_told_what_it_takes() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "ask": [["who"]] });
    let auth = bearer("ann");
    let headers = [("Authorization", auth.as_str())];
    for declared in [json!({}), json!({ "elicitation": { "url": {} } }), json!({ "sampling": {} })] {
        let meta = json!({ META_CAPABILITIES: declared });
        let params = call("works", arguments.clone(), None, None);
        let reply = p.a.modern_with("tools/call", params, meta, &headers).await;
        assert_eq!((reply.status, reply.code()), (400, -32021));
        assert_eq!(
            reply.last()["error"]["data"]["requiredCapabilities"],
            json!({ "elicitation": { "form": {} } })
        );
    }
    // Who can goes on with it.
    assert_eq!(questions(&ann(&p.b, call("works", arguments, None, None)).await), ["who"]);
    assert_eq!((tool.ran(), p.operations().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_what_was_cancelled_does_nothing() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "ask": [["who"]], "send": "key" });
    let first = ann(&p.a, call("works", arguments.clone(), None, None)).await;
    let id = operation_of(&first).parse().unwrap();
    p.a.gateway.ledger().cancel(id, "an operator".into()).await.unwrap();
    let told = json!({ "who": accept(json!({ "who": "me" })) });
    let reply = ann(&p.b, call("works", arguments, Some(&state(&first)), Some(told))).await;
    assert_eq!(kind(&reply), "denied");
    assert_eq!((tool.ran(), tool.sent()), (1, 0));
    assert!(p.operation(&operation_of(&first)).await.inputs[0].answer.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_a_no_and_neither() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = |n: i64| json!({ "approval": true, "send": "key", "n": n });
    let says = |answer: Value| Some(json!({ "approve": answer }));
    let first = ann(&p.a, call("works", arguments(1), None, None)).await;
    assert_eq!(questions(&first), ["approve"]);
    // Put away is neither: it is asked again, and nothing is decided.
    let put_away = says(json!({ "action": "cancel" }));
    let again = ann(&p.b, call("works", arguments(1), Some(&state(&first)), put_away)).await;
    assert_eq!(questions(&again), ["approve"]);
    let yes = says(accept(json!({ "approve": true })));
    let done = ann(&p.b, call("works", arguments(1), Some(&state(&again)), yes)).await;
    assert_eq!((said(&done).as_str(), tool.sent()), ("done", 1));
    let op = p.operation(&operation_of(&done)).await;
    assert!(op.decisions.iter().any(|d| d.by == "ann"), "{:?}", op.decisions);

    for (n, no) in [(2, accept(json!({ "approve": false }))), (3, json!({ "action": "decline" }))] {
        let first = ann(&p.a, call("works", arguments(n), None, None)).await;
        let denied = ann(&p.b, call("works", arguments(n), Some(&state(&first)), says(no))).await;
        assert_eq!(kind(&denied), "denied");
        // A yes after the no changes nothing.
        let yes = says(accept(json!({ "approve": true })));
        let late = ann(&p.a, call("works", arguments(n), Some(&state(&first)), yes)).await;
        assert_eq!(kind(&late), "denied");
    }
    assert_eq!(tool.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_call_is_waited_for_in_legs() {
    let (p, tool) = worlds(|s| s.wait = Millis(80)).await;
    let arguments = json!({ "send": "key", "hold": "after" });
    let mut reply = ann(&p.a, call("works", arguments.clone(), None, None)).await;
    let id = operation_of(&reply);
    for leg in 0..3 {
        assert_eq!(questions(&reply).len(), 0);
        assert_eq!(result(&reply).get("inputRequests"), None, "a leg asks for nothing");
        assert_eq!(operation_of(&reply), id);
        let w = if leg % 2 == 0 { &p.b } else { &p.a };
        reply = ann(w, call("works", arguments.clone(), Some(&state(&reply)), None)).await;
    }
    tool.open();
    let token = state(&reply);
    p.becomes(&id, "completed").await;
    let done = ann(&p.b, call("works", arguments.clone(), Some(&token), None)).await;
    assert_eq!(said(&done), "done");
    assert_eq!(result(&done)["_meta"]["dev.counterfoil/operation"]["joinedBy"], "state");
    assert_eq!((tool.ran(), tool.sent(), p.operations().await), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn legs_end_before_the_client_gives_up() {
    let (p, tool) = worlds(|s| s.wait = Millis(40)).await;
    let arguments = json!({ "send": "key", "hold": "after" });
    let mut reply = ann(&p.a, call("works", arguments.clone(), None, None)).await;
    let mut legs = 0;
    while result(&reply)["resultType"] == "input_required" {
        legs += 1;
        let w = if legs % 2 == 0 { &p.b } else { &p.a };
        reply = ann(w, call("works", arguments.clone(), Some(&state(&reply)), None)).await;
        assert!(legs < 20);
    }
    assert_eq!(legs, 9, "one of ten rounds is kept");
    assert_eq!(kind(&reply), "still_running");
    let error = result(&reply)["_meta"]["dev.counterfoil/error"].clone();
    tool.open();
    let key = error["retryKey"].as_str().unwrap();
    p.becomes(error["operationId"].as_str().unwrap(), "completed").await;
    let done = keyed(&p.b, key, call("works", arguments, None, None)).await;
    assert_eq!(said(&done), "done");
    assert_eq!(tool.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn between_legs_the_caller_counts_as_there() {
    let (p, tool) = worlds(|s| s.wait = Millis(60)).await;
    let before = json!({ "send": "key", "hold": "before" });
    let leg = ann(&p.a, call("works", before.clone(), None, None)).await;
    let id = operation_of(&leg);
    // A second call without its state is not taken for this one.
    let twin = ann(&p.a, call("works", before.clone(), None, None)).await;
    assert_eq!(kind(&twin), "twin");
    tokio::time::sleep(PAUSE / 3).await;
    let op = p.operation(&id).await;
    assert!(matches!(op.execution, Execution::Running) && !op.caller.gone);
    // Who doesn't come back has left: nothing happened yet, so nothing will by itself.
    let op = p.becomes(&id, "accepted").await;
    assert_eq!((op.effects.len(), tool.sent()), (0, 0));
    tool.open();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(tool.sent(), 0, "the abandoned attempt does nothing more");
    // Late, but back: it goes on.
    let late = ann(&p.b, call("works", before, Some(&state(&leg)), None)).await;
    let done = if result(&late)["resultType"] == "complete" {
        late
    } else {
        p.becomes(&id, "completed").await;
        ann(&p.b, call("works", json!({ "send": "key", "hold": "before" }), Some(&state(&late)), None)).await
    };
    assert_eq!((said(&done).as_str(), tool.sent()), ("done", 1));
    assert_eq!(operation_of(&done), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_point_of_no_return_it_goes_on_without_its_caller() {
    let (p, tool) = worlds(|s| s.wait = Millis(60)).await;
    let after = json!({ "send": "key", "hold": "after" });
    let leg = ann(&p.a, call("works", after.clone(), None, None)).await;
    let id = operation_of(&leg);
    tokio::time::sleep(PAUSE * 2).await;
    let op = p.operation(&id).await;
    assert!(matches!(op.execution, Execution::Running) && op.caller.gone, "{op:?}");
    tool.open();
    p.becomes(&id, "completed").await;
    // The caller is known to be gone: the call again, without anything, is that call.
    let done = ann(&p.a, call("works", after, None, None)).await;
    assert_eq!((said(&done).as_str(), operation_of(&done)), ("done", id));
    assert_eq!((tool.ran(), tool.sent()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reserved_call_creates_nothing_at_first() {
    let (p, tool) = worlds(|s| s.unkeyed = Unkeyed::Reserve).await;
    let arguments = json!({ "send": "key" });
    let first = ann(&p.a, call("works", arguments.clone(), None, None)).await;
    assert_eq!(questions(&first).len(), 0);
    let token = state(&first);
    assert_eq!((tool.ran(), p.operations().await), (0, 0), "nothing was opened");
    let with = |w| ann(w, call("works", arguments.clone(), Some(&token), None));
    let (one, same) = tokio::join!(with(&p.a), with(&p.b));
    assert_eq!(said(&one), "done");
    assert_eq!(operation_of(&one), operation_of(&same));
    assert_eq!((tool.sent(), p.operations().await), (1, 1));
    // Another key beside it is a contradiction.
    let reply = keyed(&p.b, "mine", call("works", arguments.clone(), Some(&token), None)).await;
    assert_eq!(kind(&reply), "key_conflict");
    let other = json!({ "send": "key", "x": 1 });
    assert_eq!(ann(&p.b, call("works", other, Some(&token), None)).await.code(), -32602);
    // Its twin is told of as ever.
    assert_eq!(kind(&ann(&p.a, call("works", arguments, None, None)).await), "twin");
    assert_eq!(tool.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_and_another_key_disagree() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "ask": [["who"]], "send": "key" });
    let first = keyed(&p.a, "k-1", call("works", arguments.clone(), None, None)).await;
    let told = json!({ "who": accept(json!({ "who": "me" })) });
    let again = call("works", arguments, Some(&state(&first)), Some(told));
    assert_eq!(kind(&keyed(&p.b, "k-2", again.clone()).await), "key_conflict");
    assert_eq!(tool.sent(), 0);
    assert!(p.operation(&operation_of(&first)).await.inputs[0].answer.is_none(), "nothing was recorded");
    assert!(said(&keyed(&p.b, "k-1", again).await).ends_with("done"));
    assert_eq!(tool.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_person_can_tell() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = |n: i64| json!({ "send": "confirm", "n": n });
    let first = ann(&p.a, call("works", arguments(1), None, None)).await;
    let keys = questions(&first);
    let key = keys[0].clone();
    let message = result(&first)["inputRequests"][&key]["params"]["message"].as_str().unwrap();
    assert!(keys.len() == 1 && message.contains("ring the bell"), "{message}");
    let says = |key: &str, word: &str| Some(json!({ key: accept(json!({ "happened": word })) }));
    // No word is no word.
    for silent in [json!({ &key: { "action": "decline" } }), json!({ &key: { "action": "cancel" } })] {
        let again = ann(&p.b, call("works", arguments(1), Some(&state(&first)), Some(silent))).await;
        assert_eq!(questions(&again), keys);
    }
    let wrong = says(&key, "perhaps");
    assert_eq!(ann(&p.b, call("works", arguments(1), Some(&state(&first)), wrong)).await.code(), -32602);
    let yes = ann(&p.b, call("works", arguments(1), Some(&state(&first)), says(&key, "yes"))).await;
    assert!(said(&yes).contains("happened"), "the receipt is the person's word: {}", said(&yes));
    assert_eq!(tool.sent(), 1, "nothing is sent again");
    let op = p.operation(&operation_of(&yes)).await;
    assert!(
        op.decisions.iter().any(|d| d.by.contains("ann") && d.what == "it happened"),
        "{:?}",
        op.decisions
    );
    // The other word comes too late.
    let late = ann(&p.a, call("works", arguments(1), Some(&state(&first)), says(&key, "no"))).await;
    assert_eq!(result(&late)["content"], result(&yes)["content"]);

    let first = ann(&p.a, call("works", arguments(2), None, None)).await;
    let key = questions(&first)[0].clone();
    ann(&p.b, call("works", arguments(2), Some(&state(&first)), says(&key, "no"))).await;
    let op = p.operation(&operation_of(&first)).await;
    assert!(
        op.decisions.iter().any(|d| d.by.contains("ann") && d.what == "it did not happen"),
        "{:?}",
        op.decisions
    );

    // A client that can't be asked hears that it is not known.
    let auth = bearer("ann");
    let headers = [("Authorization", auth.as_str())];
    let reply =
        p.a.modern_with("tools/call", call("works", arguments(3), None, None), json!({}), &headers).await;
    assert_eq!(kind(&reply), "in_doubt");
}
