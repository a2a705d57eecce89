//! The legacy era: what a client is asked on its stream is named by a sealed id, and the answer may come over any connection.

use crate::stage::{Stage, accept, shown};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::stand::{AMOUNT, Class, payment};
use counterfoil_tests::stream::Stream;
use counterfoil_tests::traps::TIMEOUT;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The question with this number on the stream, and its id.
fn question(stream: &mut Stream, number: usize) -> Result<String> {
    let asked = |s: &Stream| -> Vec<Value> {
        let all = s.events().unwrap_or_default();
        all.into_iter().filter(|e| e["method"] == "elicitation/create").collect()
    };
    stream.until(TIMEOUT, |s| asked(s).len() > number)?;
    asked(stream)[number]["id"].as_str().map(str::to_owned).context("an id")
}

fn requests(stream: &Stream) -> Result<usize> {
    Ok(stream.events()?.iter().filter(|e| e.get("method").is_some() && e.get("id").is_some()).count())
}

#[test]
fn an_answer_counts_from_whom_was_asked_and_under_the_id_that_was_sent() -> Result<()> {
    let stage = Stage::open("shop", "")?;
    let (ann, ben) = (stage.caller("ann")?, stage.caller("ben")?);
    let (own, foreign) = (ann.legacy(stage.addr)?, ben.legacy(stage.addr)?);
    let order = json!({ "payment": payment("legacy"), "order_id": "legacy" });
    // One that the ledger keeps and one that reads, asked at the same time.
    let mut kept = Stream::open(stage.addr, &own.call("orders_two_rounds", &order))?;
    let mut read = Stream::open(stage.addr, &own.call("test_input_required_result_multi_round", &json!({})))?;
    let mut theirs =
        Stream::open(stage.addr, &foreign.call("test_input_required_result_multi_round", &json!({})))?;
    let (amount, name) = (question(&mut kept, 0)?, question(&mut read, 0)?);
    question(&mut theirs, 0)?;
    let before = stage.rejected_at_all()?;
    let mut seen = BTreeSet::new();
    let mut tried = 0;
    let wrong = accept(json!({ "amount": 1, "name": "ben" }));
    for id in [&amount, &name] {
        let flips = (0..id.len()).step_by(7).map(|at| {
            let mut bytes = id.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            String::from_utf8(bytes).unwrap()
        });
        let ends = [1, id.len() / 2, id.len() - 1].map(|n| id[..n].to_owned());
        let others = ["nobody-asked".to_owned(), format!("{id}A"), "1".into()];
        for changed in flips.chain(ends).chain(others) {
            seen.insert(shown(&own.answer(&changed, &wrong)?));
            tried += 1;
        }
        // The very id, from somebody else: in a session of its own.
        seen.insert(shown(&foreign.answer(id, &wrong)?));
        tried += 1;
    }
    ensure!(seen.len() == 1 && seen.iter().all(|s| s.starts_with("202 ")), "{seen:#?}");
    let counted = stage.rejected_at_all()? - before;
    ensure!(counted == tried, "{counted} of {tried} were counted");
    // What answers a question on a stream is no state of a request, whoever brings it back.
    for (tool, arguments) in
        [("orders_two_rounds", &order), ("test_input_required_result_multi_round", &json!({}))]
    {
        for id in [&amount, &name] {
            let params = json!({ "name": tool, "arguments": arguments, "requestState": id });
            let reply = ann.ask(stage.addr, "tools/call", &params)?;
            ensure!(reply.json()["error"]["code"] == -32602, "{}", reply.text());
        }
    }
    std::thread::sleep(Duration::from_millis(300));
    for stream in [&mut kept, &mut read] {
        // What may have come meanwhile is read.
        let _ = stream.until(Duration::from_millis(200), |_| false);
        ensure!(requests(stream)? == 1 && !stream.is_whole(), "something was taken: {}", stream.body());
    }
    stage.untouched(Class::Key, "legacy")?;

    // All of them still wait for the true answer.
    own.answer(
        &amount,
        &accept(json!({ "amount": AMOUNT, "payment": payment("other"), "order_id": "other" })),
    )?;
    own.answer(&amount, &accept(json!({ "amount": 1 })))?;
    let note = question(&mut kept, 1)?;
    ensure!(note != amount, "an id was used twice");
    own.answer(&note, &accept(json!({ "note": "so" })))?;
    kept.whole(TIMEOUT)?;
    let last = kept.events()?.pop().context("a response")?;
    ensure!(last["id"] == 7 && last["result"]["isError"] != true, "{last}");
    let counted = stage.provider.sandbox.count(Class::Key, "legacy")?;
    ensure!(counted == (1, AMOUNT), "{counted:?}");
    // Late, and again: nothing.
    own.answer(&note, &accept(json!({ "note": "otherwise" })))?;
    own.answer(&name, &accept(json!({ "name": "me" })))?;
    let colour = question(&mut read, 1)?;
    own.answer(&colour, &accept(json!({ "color": "blue" })))?;
    read.whole(TIMEOUT)?;
    ensure!(read.body().contains("me likes blue."), "{}", read.body());
    ensure!(requests(&theirs)? == 1, "another's question was answered: {}", theirs.body());
    Ok(())
}
