//! Calls that wait for a person's yes: nothing is done before it, what was shown is done once after it, whoever says it
//! and wherever.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::replicas::*;
use common::*;

use counterfoil_gateway as gateway;
use gateway::approval::{Approval, Decimal};
use gateway::{Offer, ToolSettings};
use ledger::InputKind;
use serde_json::{Value, json};
use std::sync::Arc;

const YES: &str = r#"{"approval":{"action":"accept","content":{"approve":true}}}"#;

fn answer(text: &str) -> Option<Value> {
    Some(serde_json::from_str(text).unwrap())
}

async fn worlds(approval: Approval) -> (Pair, Arc<Works>) {
    let tool = Arc::new(Works::default());
    let tune = |s: &mut ToolSettings| s.approval = approval.clone();
    let offer = || Offer { tools: vec![works("works", &tool, tune)], ..Offer::default() };
    (pair(offer, true).await, tool)
}

async fn ann(w: &World, capabilities: Value, key: Option<&str>, params: Value) -> Reply {
    let auth = bearer("ann");
    let mut headers = vec![("Authorization", auth.as_str())];
    headers.extend(key.map(|k| ("Idempotency-Key", k)));
    w.modern_with("tools/call", params, capabilities, &headers).await
}

fn arguments() -> Value {
    json!({ "send": "key", "note": "x\namount: 1", "amount": 12.50 })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_can_be_asked_is_shown_what_is_done_and_its_yes_does_it_once() {
    let (p, tool) = worlds(Approval::Always).await;
    let first = ann(&p.a, asked(), None, call("works", arguments(), None, None)).await;
    assert_eq!(questions(&first), ["approval"]);
    let form = &result(&first)["inputRequests"]["approval"]["params"];
    let message = form["message"].as_str().unwrap();
    let lines: Vec<&str> = message.lines().skip(2).collect();
    let shown = ["The tool native.works", "amount: 12.5", "send: \"key\"", "note: \"x\\namount: 1\""];
    assert_eq!(lines.len(), shown.len(), "{message}");
    assert!(shown.iter().all(|line| lines.contains(line)) && lines[1] == shown[1], "{message}");
    assert_eq!(form["requestedSchema"]["required"], json!(["approve"]));
    let op = p.operation(&operation_of(&first)).await;
    assert!(op.waits_for_approval() && op.effects.is_empty() && op.attempt == 0);
    assert_eq!((tool.ran(), tool.sent()), (0, 0));

    // On the other replica; and twice.
    let yes = call("works", arguments(), Some(&state(&first)), answer(YES));
    let done = ann(&p.b, asked(), None, yes.clone()).await;
    assert_eq!((operation_of(&done), said(&done)), (operation_of(&first), "done".to_owned()));
    assert_eq!(said(&ann(&p.a, asked(), None, yes).await), "done");
    assert_eq!((tool.ran(), tool.sent(), p.operations().await), (1, 1, 1));
    let op = p.operation(&operation_of(&first)).await;
    let input = &op.inputs[0];
    assert_eq!((input.kind, input.answer.as_ref().unwrap().by.as_str()), (InputKind::Approval, "ann"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_is_final() {
    let nos = [
        r#"{"approval":{"action":"decline"}}"#,
        r#"{"approval":{"action":"accept","content":{"approve":false}}}"#,
    ];
    for no in nos {
        let (p, tool) = worlds(Approval::Always).await;
        let first = ann(&p.a, asked(), None, call("works", arguments(), None, None)).await;
        let told =
            ann(&p.b, asked(), None, call("works", arguments(), Some(&state(&first)), answer(no))).await;
        assert_eq!(kind(&told), "denied", "{no}");
        p.becomes(&operation_of(&first), "cancelled").await;
        // A yes after a no comes too late.
        let late =
            ann(&p.a, asked(), None, call("works", arguments(), Some(&state(&first)), answer(YES))).await;
        assert_eq!(kind(&late), "denied");
        let path = format!("/v1/ops/{}/approve", operation_of(&first));
        assert_eq!(p.a.operator_post(&path, &json!({ "by": "eve" })).await["error"]["code"], "refused");
        assert_eq!((tool.ran(), tool.sent()), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_can_not_be_asked_is_told_and_an_operator_says_yes() {
    let (p, tool) = worlds(Approval::Always).await;
    let told = ann(&p.a, json!({}), Some("k"), call("works", arguments(), None, None)).await;
    assert_eq!(kind(&told), "approval_required");
    let error = &result(&told)["_meta"]["dev.counterfoil/error"];
    let id = error["operationId"].as_str().unwrap().to_owned();
    assert_eq!(error["retryKey"], id.as_str());
    assert!(error["advice"].as_str().unwrap().contains("ops approve"), "{error}");
    // Again it is the same one, and still nothing is done.
    let again = ann(&p.b, json!({}), Some("k"), call("works", arguments(), None, None)).await;
    assert_eq!(kind(&again), "approval_required");

    let listed = p.b.operator("/v1/ops?state=input_required").await;
    let listed = &listed["operations"][0];
    assert_eq!((&listed["id"], &listed["waitsFor"]), (&json!(id), &json!("approval")));
    let shown = p.b.operator(&format!("/v1/ops/{id}")).await;
    assert_eq!(shown["arguments"], arguments());
    let message = shown["inputs"][0]["detail"]["request"]["params"]["message"].as_str().unwrap();
    assert!(message.contains("\namount: 12.5\n"), "{message}");
    let nobody = p.b.operator_post(&format!("/v1/ops/{id}/approve"), &json!({ "by": " " })).await;
    assert_eq!(nobody["error"]["code"], "usage");
    assert_eq!(tool.ran(), 0);

    for who in ["eve", "adam"] {
        let granted = p.b.operator_post(&format!("/v1/ops/{id}/approve"), &json!({ "by": who })).await;
        assert_eq!(granted["inputs"][0]["answeredBy"], "eve", "the first yes counts: {granted}");
    }
    let done = ann(&p.a, json!({}), Some("k"), call("works", arguments(), None, None)).await;
    assert_eq!(said(&done), "done");
    let shown = p.a.operator(&format!("/v1/ops/{id}")).await;
    assert_eq!(shown["inputs"][0]["answeredBy"], "eve");
    assert!(shown["inputs"][0]["answeredAt"].is_string() && shown["waitsFor"].is_null(), "{shown}");
    assert_eq!((tool.ran(), tool.sent(), p.operations().await), (1, 1, 1));
    let denied = p.a.operator_post(&format!("/v1/ops/{id}/deny"), &json!({ "by": "eve" })).await;
    assert_eq!(denied["error"]["code"], "refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_of_the_client_after_an_operators_is_no_conflict_and_a_no_is() {
    let (p, tool) = worlds(Approval::Always).await;
    let first = ann(&p.a, asked(), None, call("works", arguments(), None, None)).await;
    let id = operation_of(&first);
    p.b.operator_post(&format!("/v1/ops/{id}/approve"), &json!({ "by": "eve" })).await;
    p.becomes(&id, "completed").await;
    let yes = call("works", arguments(), Some(&state(&first)), answer(YES));
    assert_eq!(said(&ann(&p.a, asked(), None, yes).await), "done");
    let no = answer(r#"{"approval":{"action":"decline"}}"#);
    let late = ann(&p.a, asked(), None, call("works", arguments(), Some(&state(&first)), no)).await;
    assert_eq!(kind(&late), "answer_conflict");
    assert_eq!(tool.sent(), 1);
}

/// A word that comes under another key than its operation's decides nothing, be it a no or a yes, and is told the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_no_under_another_key_is_no_word_about_it() {
    let (p, tool) = worlds(Approval::Always).await;
    let first = ann(&p.a, asked(), Some("own"), call("works", arguments(), None, None)).await;
    let id = operation_of(&first);
    let nos = [
        r#"{"approval":{"action":"decline"}}"#,
        r#"{"approval":{"action":"accept","content":{"approve":false}}}"#,
    ];
    let mut told = Vec::new();
    for word in [YES, nos[0], nos[1]] {
        let params = call("works", arguments(), Some(&state(&first)), answer(word));
        let reply = ann(&p.b, asked(), Some("another"), params).await;
        assert_eq!(kind(&reply), "key_conflict", "{word}");
        let mut error = result(&reply)["_meta"]["dev.counterfoil/error"].clone();
        error["newKey"] = Value::Null;
        told.push(error);
    }
    assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
    // Somebody else's state opens for nobody.
    let auth = bearer("ben");
    let params = call("works", arguments(), Some(&state(&first)), answer(nos[0]));
    let foreign = p.b.modern_with("tools/call", params, asked(), &[("Authorization", auth.as_str())]).await;
    assert_eq!(foreign.code(), -32602);
    let op = p.operation(&id).await;
    assert!(op.waits_for_approval() && op.inputs[0].answer.is_none(), "{op:?}");
    // Its own still counts.
    let yes = call("works", arguments(), Some(&state(&first)), answer(YES));
    assert_eq!(said(&ann(&p.b, asked(), Some("own"), yes).await), "done");
    assert_eq!((tool.ran(), tool.sent(), p.operations().await), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_over_the_limit_waits() {
    let limit = Decimal::parse("100").unwrap();
    let (p, tool) = worlds(Approval::Over(vec![("amount".into(), limit)])).await;
    let with = |amount: Value| call("works", json!({ "send": "key", "amount": amount }), None, None);
    for within in [json!(1), json!(100.0)] {
        assert_eq!(said(&ann(&p.a, json!({}), None, with(within)).await), "done");
    }
    assert_eq!(tool.sent(), 2);
    for over in [json!(100.01), json!(101), json!("1"), Value::Null] {
        let told = ann(&p.a, json!({}), None, with(over.clone())).await;
        assert_eq!(kind(&told), "approval_required", "{over}");
    }
    let told = ann(&p.a, json!({}), None, call("works", json!({ "send": "key" }), None, None)).await;
    assert_eq!(kind(&told), "approval_required");
    assert_eq!(tool.sent(), 2);
}
