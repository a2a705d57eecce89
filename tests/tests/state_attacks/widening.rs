//! Answers that try to make more of a request than was shown: further members, answers to what was not asked or not yet,
//! other arguments, texts that look like something else; and ids of operations in the wrong hands.

use crate::stage::{Stage, accept};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::stand::{AMOUNT, Class, payment};
use counterfoil_tests::wire::{META_ERROR, META_KEY, META_OPERATION};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn approved(more: Value) -> Value {
    let mut content = json!({ "approve": true });
    for (name, value) in more.as_object().into_iter().flatten() {
        content[name] = value.clone();
    }
    json!({ "approval": accept(content) })
}

#[test]
fn a_yes_is_to_what_was_shown() -> Result<()> {
    let stage = Stage::open("shop", "")?;
    let ann = stage.caller("ann")?;
    let tool = Class::Unique.tool();
    let params = |arguments: &Value, more: Value| {
        let mut all = json!({ "name": tool, "arguments": arguments });
        for (name, value) in more.as_object().into_iter().flatten() {
            all[name] = value.clone();
        }
        all
    };
    let ask = |params: &Value| ann.result(stage.addr, "tools/call", params);
    let arguments = Class::Unique.arguments("yes");
    // A yes before the question, with and without a key: it is asked all the same.
    let keyed = json!({ META_KEY: "order-yes" });
    for _ in 0..2 {
        let early =
            ask(&params(&arguments, json!({ "inputResponses": approved(json!({})), "_meta": keyed })))?;
        ensure!(early["resultType"] == "input_required", "a yes came before the question: {early}");
        stage.untouched(Class::Unique, "yes")?;
    }
    let asked = ask(&params(&arguments, json!({ "_meta": keyed })))?;
    let state = asked["requestState"].as_str().context("a state")?.to_owned();
    let message = asked["inputRequests"]["approval"]["params"]["message"].as_str().context("a message")?;
    for part in [payment("yes"), AMOUNT.to_string()] {
        ensure!(message.contains(&part), "{part} is not shown: {message}");
    }
    // What doesn't fit is no yes.
    for unfit in [
        json!({ "approval": accept(json!({ "approve": "true" })) }),
        json!({ "approval": accept(json!({ "approve": 1 })) }),
        json!({ "approval": accept(json!({ "Approve": true })) }),
        json!({ "approval": { "action": "accept" } }),
        json!({ "approval": true }),
        json!({ "approval": { "action": "ACCEPT", "content": { "approve": true } } }),
    ] {
        let more = json!({ "requestState": state, "inputResponses": unfit });
        let reply = ann.ask(stage.addr, "tools/call", &params(&arguments, more))?;
        ensure!(reply.json()["error"]["code"] == -32602, "{unfit}: {}", reply.text());
        stage.untouched(Class::Unique, "yes")?;
    }
    // A yes to something else, or to nothing that was asked, is none.
    for other in ["approve", "APPROVAL", "approval ", "approval.1", "amount"] {
        let more =
            json!({ "requestState": state, "inputResponses": { other: accept(json!({ "approve": true })) } });
        let again = ask(&params(&arguments, more))?;
        ensure!(again["resultType"] == "input_required", "{other}: {again}");
    }
    // Other arguments beside a good state and a yes.
    let mut larger = arguments.clone();
    larger["amount"] = json!(AMOUNT * 100);
    let more = json!({ "requestState": state, "inputResponses": approved(json!({})) });
    let reply = ann.ask(stage.addr, "tools/call", &params(&larger, more))?;
    ensure!(reply.json()["error"]["code"] == -32602, "{}", reply.text());
    stage.untouched(Class::Unique, "yes")?;
    // Further members of a yes count for nothing.
    let wide = approved(json!({
        "amount": AMOUNT * 100, "payment": payment("other"), "order_id": "other", "arguments": larger,
    }));
    let more = json!({ "requestState": state, "inputResponses": wide });
    let done = ask(&params(&arguments, more))?;
    ensure!(done["isError"] != true && done["resultType"] == "complete", "{done}");
    let counted = stage.provider.sandbox.count(Class::Unique, "yes")?;
    ensure!(counted == (1, AMOUNT), "{counted:?}");
    stage.untouched(Class::Unique, "other")?;
    Ok(())
}

/// A text of the caller's can't pass for a line of what is shown.
#[test]
fn a_text_is_shown_as_the_text_it_is() -> Result<()> {
    let stage = Stage::open("shop", "")?;
    let ann = stage.caller("ann")?;
    let mut arguments = Class::Unique.arguments("text");
    arguments["order_id"] = json!("text\namount: 1\u{202e}\u{2028}\r\u{7}Approved by the bank.");
    let asked = ann.call(stage.addr, &Class::Unique.tool(), &arguments)?;
    let message = asked["inputRequests"]["approval"]["params"]["message"].as_str().context("a message")?;
    let amounts: Vec<&str> = message.lines().filter(|l| l.starts_with("amount")).collect();
    ensure!(amounts == [format!("amount: {AMOUNT}")], "{message}");
    let plain = |c: char| c == '\n' || !(c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c));
    ensure!(message.chars().all(plain), "{message:?}");
    ensure!(!message.lines().any(|l| l.starts_with("Approved")), "{message}");
    Ok(())
}

/// The id of an operation is no secret: in another's hands it opens nothing and tells nothing.
#[test]
fn another_callers_operation_is_one_that_never_was() -> Result<()> {
    let stage = Stage::open("shop", "")?;
    let (ann, ben) = (stage.caller("ann")?, stage.caller("ben")?);
    let (tool, arguments) = (Class::Key.tool(), Class::Key.arguments("ids"));
    let done = ann.call(stage.addr, &tool, &arguments)?;
    let id = done["_meta"][META_OPERATION]["id"].as_str().context("an id")?.to_owned();
    let asked = ann.call(stage.addr, &Class::Unique.tool(), &Class::Unique.arguments("waits"))?;
    let waits = asked["_meta"][META_OPERATION]["id"].as_str().context("an id")?.to_owned();
    // Of the same moment, and of nobody.
    let never =
        |id: &str| format!("{}{}", &id[..id.len() - 4], if id.ends_with("7777") { "8888" } else { "7777" });
    let mut seen = BTreeSet::new();
    for (tool, arguments, key) in [
        (&tool, &arguments, id.clone()),
        (&tool, &arguments, never(&id)),
        (&tool, &arguments, waits.clone()),
        (&Class::Unique.tool(), &Class::Unique.arguments("waits"), waits.clone()),
        (&Class::Unique.tool(), &Class::Unique.arguments("waits"), never(&waits)),
    ] {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { META_KEY: key } });
        let result = ben.result(stage.addr, "tools/call", &params)?;
        ensure!(result["isError"] == true, "{key}: {result}");
        // But for the id, which is the asker's own word.
        let kind = result["_meta"][META_ERROR]["kind"].as_str().context("a kind")?.to_owned();
        seen.insert((kind, result.to_string().replace(&key, "ID")));
    }
    ensure!(seen.len() == 1, "{seen:#?}");
    // Words of an answer, too: whoever brings them, nothing was asked of ben.
    let params = json!({
        "name": Class::Unique.tool(), "arguments": Class::Unique.arguments("waits"),
        "inputResponses": approved(json!({})), "_meta": { META_KEY: waits },
    });
    ensure!(ben.result(stage.addr, "tools/call", &params)?["isError"] == true, "ben approved");
    stage.untouched(Class::Unique, "waits")?;
    let counted = stage.provider.sandbox.count(Class::Key, "ids")?;
    ensure!(counted == (1, AMOUNT), "{counted:?}");
    Ok(())
}
