//! Tasks in the hands of another caller: it can't see, answer, cancel or follow them, and can't tell them from none.

use crate::stage::{Caller, Stage, accept, shown};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::http::Reply;
use counterfoil_tests::stand::{AMOUNT, Class, payment};
use counterfoil_tests::stream::Stream;
use counterfoil_tests::traps::{TIMEOUT, send};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

#[test]
fn another_callers_task_is_one_that_never_was() -> Result<()> {
    let stage = Stage::open("shop", "")?;
    let (ann, ben) = (stage.caller("ann")?, stage.caller("ben")?);
    let order = json!({ "payment": payment("task"), "order_id": "task" });
    let made = ann.call(stage.addr, "orders_task", &order)?;
    let id = made["taskId"].as_str().with_context(|| format!("no task: {made}"))?.to_owned();
    let becomes = |status: &str| -> Result<Value> {
        let until = Instant::now() + TIMEOUT;
        loop {
            let task = ann.result(stage.addr, "tasks/get", &json!({ "taskId": id }))?;
            if task["status"] == status {
                return Ok(task);
            }
            ensure!(Instant::now() < until, "it is not {status}: {task}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    becomes("input_required")?;
    let yes = json!({
        "amount": accept(json!({ "amount": 1 })),
        "note": accept(json!({ "note": "by ben" })),
    });
    let tried = |who: &Caller, method: &str, id: &str| -> Result<Reply> {
        who.ask(stage.addr, method, &json!({ "taskId": id, "inputResponses": yes }))
    };
    let forged = |at: usize| {
        let mut bytes = id.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
        String::from_utf8(bytes).unwrap()
    };
    for method in METHODS {
        let mut seen = BTreeSet::new();
        seen.insert(shown(&tried(&ben, method, &id)?));
        for at in "task_".len()..id.len() {
            seen.insert(shown(&tried(&ann, method, &forged(at))?));
        }
        for none in ["task_", "x", &id[..id.len() - 1], &id.to_lowercase(), &format!("{id}0")] {
            seen.insert(shown(&tried(&ann, method, none)?));
            seen.insert(shown(&tried(&ben, method, none)?));
        }
        ensure!(seen.len() == 1, "{method}: refusals differ: {seen:#?}");
        ensure!(seen.iter().all(|s| s.contains("-32602")), "{seen:?}");
        // The other era has no tasks, whoever asks.
        let params = json!({ "taskId": id });
        let old = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        for who in [&ann, &ben] {
            let reply = send(stage.addr, &who.legacy(stage.addr)?.bytes(&old))?;
            ensure!(reply.json()["error"]["code"] == -32601, "{method}: {}", reply.text());
        }
    }
    // Followed by whom it is none of the business, beside whose it is.
    let follow = |who: &Caller| -> Result<Stream> {
        let filter = json!({ "notifications": { "taskIds": [id, forged(10)] } });
        let mut stream = Stream::open(stage.addr, &who.bytes(stage.addr, "subscriptions/listen", &filter))?;
        stream.until(TIMEOUT, |s| s.events().is_ok_and(|all| !all.is_empty()))?;
        Ok(stream)
    };
    let (mut own, mut foreign) = (follow(&ann)?, follow(&ben)?);
    let granted = |s: &Stream| -> Result<Value> {
        Ok(s.events()?.swap_remove(0)["params"]["notifications"]["taskIds"].clone())
    };
    ensure!(granted(&own)? == json!([id]), "{}", own.body());
    ensure!(!foreign.body().contains(&id), "{}", foreign.body());

    // Answers that don't fit are refused, and nothing of them is kept.
    for unfit in [
        json!({ "amount": accept(json!({ "amount": "700" })) }),
        json!({ "amount": accept(json!({})) }),
        json!({ "amount": { "action": "perhaps" } }),
        json!({ "amount": null }),
        json!([]),
        json!("amount"),
    ] {
        let params = json!({ "taskId": id, "inputResponses": unfit });
        let reply = ann.ask(stage.addr, "tasks/update", &params)?;
        ensure!(reply.json()["error"]["code"] == -32602, "{unfit}: {}", reply.text());
    }
    let waits = becomes("input_required")?;
    ensure!(waits["inputRequests"]["amount"].is_object(), "{waits}");
    // Nor is what was never asked.
    let update = |answers: Value| {
        ann.result(stage.addr, "tasks/update", &json!({ "taskId": id, "inputResponses": answers }))
    };
    update(
        json!({ "note": accept(json!({ "note": "before it is asked" })), "x": accept(json!({ "x": 1 })) }),
    )?;
    update(json!({ "amount": accept(json!({ "amount": AMOUNT, "payment": payment("other") })) }))?;
    let until = Instant::now() + TIMEOUT;
    while !becomes("input_required")?["inputRequests"]["note"].is_object() {
        ensure!(Instant::now() < until, "it does not go on");
        std::thread::sleep(Duration::from_millis(50));
    }
    stage.untouched(Class::Key, "task")?;
    update(json!({ "note": accept(json!({ "note": "as agreed" })) }))?;
    let done = becomes("completed")?;
    ensure!(done.to_string().contains("as agreed"), "{done}");
    let counted = stage.provider.sandbox.count(Class::Key, "task")?;
    ensure!(counted == (1, AMOUNT), "{counted:?}");
    own.until(TIMEOUT, |s| s.body().contains("\"completed\""))?;
    let _ = foreign.until(Duration::from_millis(300), |_| false);
    ensure!(!foreign.body().contains(&id) && foreign.events()?.len() == 1, "{}", foreign.body());
    // After its end, too.
    let ended: BTreeSet<String> = [id.clone(), forged(10)]
        .iter()
        .map(|id| tried(&ben, "tasks/get", id).map(|reply| shown(&reply)))
        .collect::<Result<_>>()?;
    ensure!(ended.len() == 1, "{ended:#?}");
    Ok(())
}
