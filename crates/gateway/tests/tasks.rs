//! Operations that are handed out as tasks: found, answered, cancelled and followed by their ids, on whichever replica.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::replicas::*;
use common::*;

use counterfoil_gateway as gateway;
use gateway::tool::Mode;
use gateway::{Offer, ToolSettings};
use ledger::{DeliveryState, Millis};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

async fn worlds(tune: impl Fn(&mut ToolSettings) + Copy) -> (Pair, Arc<Works>) {
    let tool = Arc::new(Works::default());
    let offer = || Offer {
        tools: vec![
            works("task", &tool, |s| {
                s.mode = Mode::Task;
                tune(s);
            }),
            works("later", &tool, |s| {
                s.mode = Mode::TaskOnceAnswered;
                tune(s);
            }),
            works("auto", &tool, |s| {
                s.inline_limit = Millis(150);
                tune(s);
            }),
            works("inline", &tool, |s| {
                s.mode = Mode::Inline;
                s.wait = Millis(80);
                tune(s);
            }),
        ],
        ..Offer::default()
    };
    (pair(offer, true).await, tool)
}

async fn as_one(w: &World, who: &str, meta: Value, method: &str, params: Value) -> Reply {
    w.modern_with(method, params, meta, &[("Authorization", &bearer(who))]).await
}

async fn ann(w: &World, method: &str, params: Value) -> Reply {
    as_one(w, "ann", tasked(), method, params).await
}

async fn make(w: &World, name: &str, arguments: &Value) -> Reply {
    ann(w, "tools/call", call(name, arguments.clone(), None, None)).await
}

#[track_caller]
fn task_of(reply: &Reply) -> String {
    let result = result(reply);
    assert_eq!(result["resultType"], "task", "{result}");
    for member in ["status", "createdAt", "lastUpdatedAt"] {
        assert!(result[member].is_string(), "{member} in {result}");
    }
    assert!(result["ttlMs"].is_i64());
    result["taskId"].as_str().unwrap().to_owned()
}

async fn get(w: &World, id: &str) -> Value {
    let reply = ann(w, "tasks/get", json!({ "taskId": id })).await;
    let result = result(&reply).clone();
    assert_eq!((result["resultType"].as_str(), result["taskId"].as_str()), (Some("complete"), Some(id)));
    result
}

/// Asks until it is in this state.
async fn becomes(w: &World, id: &str, status: &str) -> Value {
    for _ in 0..200 {
        let now = get(w, id).await;
        if now["status"] == status {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it stays {}", get(w, id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_tasks_gets_none() {
    let (p, tool) = worlds(|_| {}).await;
    for name in ["task", "later"] {
        let params = call(name, json!({ "send": "key" }), None, None);
        let reply = as_one(&p.a, "ann", asked(), "tools/call", params.clone()).await;
        assert_eq!((reply.status, reply.code()), (400, -32021));
        let needed = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        assert_eq!(reply.last()["error"]["data"]["requiredCapabilities"], needed);
        let auth = bearer("ann");
        let legacy = p.a.legacy_with(None, "tools/call", params, &[("Authorization", &auth)]).await;
        assert_eq!(legacy.code(), -32021);
    }
    assert_eq!((tool.ran(), p.operations().await), (0, 0), "nothing ran");

    // What another client of the same caller made a task of is answered all the same, and not as a task.
    let arguments = json!({ "send": "key", "hold": "after" });
    let first = make(&p.a, "auto", &arguments).await;
    let id = task_of(&first);
    tool.open();
    p.becomes(&operation_of(&first), "completed").await;
    let plain = as_one(&p.b, "ann", asked(), "tools/call", call("auto", arguments, None, None)).await;
    assert_eq!(said(&plain), "done");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({ "taskId": id, "inputResponses": {} });
        assert_eq!(as_one(&p.a, "ann", asked(), method, params).await.code(), -32021, "{method}");
    }
}

/// A yes that the client can't be asked for is waited for as a task, which goes on when an operator gives it.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_its_client_can_not_give_is_a_task() {
    let (p, tool) = worlds(|s| s.approval = gateway::approval::Approval::Always).await;
    let mute = json!({ META_CAPABILITIES: { "extensions": { "io.modelcontextprotocol/tasks": {} } } });
    for (n, name) in ["task", "auto"].into_iter().enumerate() {
        let ask = |method: &'static str, params: Value| as_one(&p.b, "ann", mute.clone(), method, params);
        let params = call(name, json!({ "send": "key" }), None, None);
        let first = ask("tools/call", params.clone()).await;
        let (id, op) = (task_of(&first), operation_of(&first));
        assert_eq!(task_of(&ask("tools/call", params).await), id, "the same task");
        let told = ask("tasks/get", json!({ "taskId": id })).await;
        assert_eq!(result(&told)["status"], "working");
        let how = format!("counterfoil ops approve {op}");
        assert!(result(&told)["statusMessage"].as_str().unwrap().ends_with(&how), "{:?}", told.messages);
        assert_eq!((tool.ran(), tool.sent()), (n, n), "nothing is done before a yes");
        p.a.operator_post(&format!("/v1/ops/{op}/approve"), &json!({ "by": "eve" })).await;
        p.becomes(&op, "completed").await;
        let done = ask("tasks/get", json!({ "taskId": id })).await;
        assert_eq!(result(&done)["status"], "completed");
        assert_eq!(tool.sent(), n + 1);
    }
    // Where there are no tasks, the call itself is told.
    let inline = call("inline", json!({ "send": "key" }), None, None);
    assert_eq!(kind(&as_one(&p.a, "ann", mute, "tools/call", inline).await), "approval_required");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_operation_is_the_same_task() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "send": "key", "hold": "after" });
    let first = make(&p.a, "task", &arguments).await;
    let id = task_of(&first);
    assert_eq!((&id[..5], id.len()), ("task_", 58));
    // Its answer was lost: the call is repeated, anywhere.
    for w in [&p.b, &p.a] {
        assert_eq!(task_of(&make(w, "task", &arguments).await), id);
    }
    assert_eq!(get(&p.b, &id).await["status"], "working");
    tool.open();
    p.becomes(&operation_of(&first), "completed").await;
    // Nobody has fetched it: still the same, as often as it is repeated.
    for w in [&p.a, &p.b, &p.a, &p.b] {
        let again = make(w, "task", &arguments).await;
        assert_eq!(task_of(&again), id);
        assert_eq!(result(&again)["status"], "completed");
    }
    assert_eq!((tool.ran(), tool.sent(), p.operations().await), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn fetching_the_end_acknowledges_it() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "send": "key" });
    let first = make(&p.a, "task", &arguments).await;
    let id = task_of(&first);
    let op = p.becomes(&operation_of(&first), "completed").await;
    assert!(op.delivery.state < DeliveryState::Acknowledged);
    let done = get(&p.b, &id).await;
    assert_eq!(done["status"], "completed");
    assert_eq!(done["result"]["content"][0]["text"], "done");
    assert_eq!(done.get("pollIntervalMs"), None, "there is nothing more to ask");
    for _ in 0..100 {
        if p.operation(&operation_of(&first)).await.delivery.state == DeliveryState::Acknowledged {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(p.operation(&operation_of(&first)).await.delivery.state, DeliveryState::Acknowledged);
    // It stays to be fetched; the same call is a new one.
    assert_eq!(get(&p.a, &id).await["result"], done["result"]);
    assert_ne!(task_of(&make(&p.b, "task", &arguments).await), id);
    p.becomes(&operation_of(&first), "completed").await;
    assert_eq!(p.operations().await, 2);
    drop(tool);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_and_forged_ids_look_alike() {
    let (p, tool) = worlds(|_| {}).await;
    let id = task_of(&make(&p.a, "task", &json!({ "send": "key", "hold": "before" })).await);
    let asked = make(&p.a, "later", &json!({ "ask": [["who"]] })).await;
    let unhanded = p.a.gateway.ledger().task_id(operation_of(&asked).parse().unwrap());
    let mut flipped = id.clone();
    let last = flipped.pop().unwrap();
    flipped.push(if last == '0' { '8' } else { '0' });
    let other_op = format!("{}{}", if id.as_bytes()[5] == b'0' { "task_1" } else { "task_0" }, &id[6..]);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let mut seen = BTreeSet::new();
        for (who, id) in [
            ("ben", id.as_str()),
            ("ann", &flipped),
            ("ann", &other_op),
            ("ann", &unhanded),
            ("ann", "task_"),
            ("ann", "x"),
            ("ann", ""),
            ("ben", &flipped),
        ] {
            let params = json!({ "taskId": id, "inputResponses": {} });
            let reply = as_one(&p.b, who, tasked(), method, params).await;
            assert_eq!(reply.code(), -32602, "{method} {id}");
            seen.insert(format!("{} {}", reply.status, reply.last()));
        }
        assert_eq!(seen.len(), 1, "{seen:#?}");
        let lacking = ann(&p.b, method, json!({ "inputResponses": {} })).await;
        assert_eq!(lacking.code(), -32602);
    }
    assert_eq!(get(&p.a, &id).await["status"], "working", "nobody else cancelled it");
    tool.open();
    becomes(&p.b, &id, "completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_asks_and_is_answered_in_parts() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "ask": [["who", "n1"], ["why"]], "send": "key" });
    let id = task_of(&make(&p.a, "task", &arguments).await);
    let waits = becomes(&p.b, &id, "input_required").await;
    let keys = |now: &Value| -> Vec<String> {
        let mut keys: Vec<String> = now["inputRequests"].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&waits), ["n1", "who"]);
    assert_eq!(waits["inputRequests"]["who"]["method"], "elicitation/create");
    // A client that can't be asked is not told what it could not answer.
    let meta = json!({ META_CAPABILITIES: { "extensions": { "io.modelcontextprotocol/tasks": {} } } });
    let mute = as_one(&p.a, "ann", meta, "tasks/get", json!({ "taskId": id })).await;
    assert_eq!(
        (result(&mute)["status"].as_str(), result(&mute).get("inputRequests")),
        (Some("working"), None)
    );

    let update = async |w: &World, responses: Value| {
        ann(w, "tasks/update", json!({ "taskId": id, "inputResponses": responses })).await
    };
    let who = |who: &str| accept(json!({ "who": who }));
    for bad in [json!({ "who": who("me"), "n1": accept(json!({ "n1": "x" })) }), json!(null), json!([])] {
        assert_eq!(update(&p.b, bad.clone()).await.code(), -32602, "{bad}");
        assert_eq!(keys(&get(&p.a, &id).await), ["n1", "who"], "nothing was recorded");
    }
    let ack = update(&p.b, json!({ "who": who("me"), "never": who("x") })).await;
    let mut members: Vec<&String> = result(&ack).as_object().unwrap().keys().collect();
    members.retain(|m| *m != "_meta");
    assert_eq!(
        (members, result(&ack)["resultType"].as_str()),
        (vec![&"resultType".to_owned()], Some("complete"))
    );
    assert_eq!(keys(&get(&p.a, &id).await), ["n1"]);
    // What was answered before counts no more, whatever is said of it; the rest of it does.
    let rest = json!({ "who": who("you"), "n1": accept(json!({ "n1": 7 })) });
    result(&update(&p.a, rest).await);
    let now = becomes(&p.b, &id, "input_required").await;
    assert_eq!(keys(&now), ["why"]);
    let misfit = json!({ "who": { "action": "perhaps" }, "why": accept(json!({ "why": "so" })) });
    result(&update(&p.b, misfit).await);
    let done = becomes(&p.a, &id, "completed").await;
    let text = done["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(r#""who":"me""#) && text.contains("7") && text.contains(r#""why":"so""#), "{text}");
    assert_eq!(tool.sent(), 1);
    result(&update(&p.a, json!({ "who": who("you") })).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_before_it_is_a_task_is_asked_by_the_call() {
    let (p, tool) = worlds(|_| {}).await;
    let arguments = json!({ "ask": [["who"], ["why"]], "send": "key" });
    let first = make(&p.a, "later", &arguments).await;
    assert_eq!(questions(&first), ["who"]);
    let told = json!({ "who": accept(json!({ "who": "me" })) });
    let out = ann(&p.b, "tools/call", call("later", arguments, Some(&state(&first)), Some(told))).await;
    let id = task_of(&out);
    assert_eq!(operation_of(&out), operation_of(&first));
    let now = becomes(&p.a, &id, "input_required").await;
    assert_eq!(now["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["why"]);
    let told = json!({ "taskId": id, "inputResponses": { "why": accept(json!({ "why": "so" })) } });
    result(&ann(&p.a, "tasks/update", told).await);
    becomes(&p.b, &id, "completed").await;
    assert_eq!(tool.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_stops_what_can_be_stopped() {
    let (p, tool) = worlds(|_| {}).await;
    let before = task_of(&make(&p.a, "task", &json!({ "send": "key", "hold": "before" })).await);
    let after_call = make(&p.a, "task", &json!({ "send": "key", "hold": "after" })).await;
    let after = task_of(&after_call);
    let asking = task_of(&make(&p.a, "task", &json!({ "ask": [["who"]], "send": "key" })).await);
    becomes(&p.b, &asking, "input_required").await;
    for _ in 0..100 {
        if tool.sent() == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for id in [&before, &after, &asking] {
        let ack = ann(&p.b, "tasks/cancel", json!({ "taskId": id })).await;
        assert_eq!(result(&ack)["resultType"], "complete");
    }
    assert_eq!(get(&p.a, &before).await["status"], "cancelled");
    assert_eq!(get(&p.a, &asking).await["status"], "cancelled");
    let going = get(&p.a, &after).await;
    assert_eq!(going["status"], "working", "past the point of no return it goes on");
    assert!(going["statusMessage"].as_str().unwrap().contains("stop"), "{going}");
    tool.open();
    assert_eq!(becomes(&p.a, &after, "completed").await["result"]["content"][0]["text"], "done");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(tool.sent(), 1, "what was cancelled did nothing");
    // An end is an end; that is no error of the client.
    for id in [&before, &after] {
        result(&ann(&p.a, "tasks/cancel", json!({ "taskId": id })).await);
        let told = json!({ "taskId": id, "inputResponses": { "who": { "action": "decline" } } });
        result(&ann(&p.a, "tasks/update", told).await);
    }
    assert_eq!(get(&p.b, &before).await["status"], "cancelled");
    assert_eq!(get(&p.b, &after).await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_and_doubts_are_told_in_words() {
    let (p, tool) = worlds(|s| s.policy.attempt_cap = 1).await;
    let failing = task_of(&make(&p.a, "task", &json!({ "fail": true })).await);
    let failed = becomes(&p.b, &failing, "failed").await;
    assert_eq!(failed["error"]["code"], -32603);
    assert!(failed["error"]["message"].as_str().unwrap().contains("it gave up"), "{failed}");
    assert_eq!(failed.get("result"), None);
    // It is over: the same call goes on with nothing, and tells how to begin anew.
    let again = make(&p.a, "task", &json!({ "fail": true })).await;
    assert!(result(&again)["_meta"]["dev.counterfoil/error"]["newKey"].is_string(), "{:?}", again.messages);
    assert_eq!(tool.ran(), 1);

    let call = make(&p.a, "task", &json!({ "send": "none" })).await;
    let id = task_of(&call);
    p.becomes(&operation_of(&call), "in_doubt").await;
    let doubt = get(&p.b, &id).await;
    assert_eq!(doubt["status"], "working");
    assert!(doubt["statusMessage"].as_str().unwrap().contains("not known"), "{doubt}");
    assert_eq!(doubt.get("error"), None);

    // Of which only a person can tell is asked by the task.
    let id = task_of(&make(&p.a, "task", &json!({ "send": "confirm" })).await);
    let asks = becomes(&p.a, &id, "input_required").await;
    let key = asks["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let told = json!({ "taskId": id, "inputResponses": { key: accept(json!({ "happened": "yes" })) } });
    result(&ann(&p.b, "tasks/update", told).await);
    becomes(&p.a, &id, "completed").await;
    assert_eq!(tool.sent(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_takes_long_becomes_one() {
    let (p, tool) = worlds(|_| {}).await;
    let quick = make(&p.a, "auto", &json!({ "send": "key" })).await;
    assert_eq!(said(&quick), "done");
    let slow = json!({ "send": "key", "hold": "after" });
    let began = std::time::Instant::now();
    let id = task_of(&make(&p.a, "auto", &slow).await);
    assert!(began.elapsed() >= Duration::from_millis(140), "it is waited for a little");
    // Who can't be handed one waits in legs, if that is how it is set up, or as long as it takes.
    let leg = make(&p.a, "inline", &slow).await;
    assert_eq!(questions(&leg).len(), 0);
    tool.open();
    becomes(&p.b, &id, "completed").await;
    p.becomes(&operation_of(&leg), "completed").await;
    let done = ann(&p.b, "tools/call", call("inline", slow, Some(&state(&leg)), None)).await;
    assert_eq!(said(&done), "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_tasks_are_told() {
    let (p, tool) = worlds(|_| {}).await;
    let mine = task_of(&make(&p.a, "task", &json!({ "ask": [["who"]], "hold": "before" })).await);
    becomes(&p.a, &mine, "input_required").await;
    let held = json!({ "hold": "before", "n": 2 });
    let reply = as_one(&p.a, "ben", tasked(), "tools/call", call("task", held, None, None)).await;
    let foreign = task_of(&reply);

    let params = json!({ "notifications": { "taskIds": [mine, foreign, "task_x", mine] } });
    let listen = |meta: Value, params: Value| {
        let params = modern_params(params, meta);
        json!({ "jsonrpc": "2.0", "id": "s-1", "method": "subscriptions/listen", "params": params })
            .to_string()
    };
    let auth = bearer("ann");
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "subscriptions/listen"),
        ("Authorization", auth.as_str()),
    ];
    let refused = p.b.http("POST", &headers, &listen(asked(), params.clone())).await;
    assert_eq!(refused.code(), -32021);
    for bad in [json!("x"), json!([1]), json!(vec!["t"; 257])] {
        let params = json!({ "notifications": { "taskIds": bad } });
        assert_eq!(p.b.http("POST", &headers, &listen(tasked(), params)).await.code(), -32602);
    }

    let mut stream = p.b.stream("POST", &headers, &listen(tasked(), params)).await;
    let ack = stream.next().await;
    assert_eq!(ack["params"]["notifications"]["taskIds"], json!([mine]), "only one's own");
    let mut told = async |status: &str| {
        let news = stream.within(Duration::from_secs(8)).await.expect("news");
        assert_eq!(news["method"], "notifications/tasks", "{news}");
        assert_eq!(
            (news["params"]["taskId"].as_str(), news["params"]["status"].as_str()),
            (Some(&*mine), Some(status))
        );
        assert_eq!(news["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s-1");
        let mut params = news["params"].clone();
        params.as_object_mut().unwrap().remove("_meta");
        params
    };
    let now = told("input_required").await;
    let mut got = get(&p.a, &mine).await;
    for member in ["_meta", "resultType"] {
        got.as_object_mut().unwrap().remove(member);
    }
    assert_eq!(now, got, "as it would have been told by tasks/get");
    let answer = json!({ "taskId": mine, "inputResponses": { "who": accept(json!({ "who": "me" })) } });
    result(&ann(&p.b, "tasks/update", answer).await);
    told("working").await;
    tool.open();
    let done = told("completed").await;
    assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("me"));
    assert_eq!(stream.within(Duration::from_millis(400)).await, None, "each state once, and nobody else's");
}
