//! Handles that are guessed, stolen and raced, in both eras.

use crate::stage::{Caller, Stage, at_once};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::traps::send;
use counterfoil_tests::wire::META_KEY;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn text(result: &Value) -> Result<String> {
    let text = result["content"][0]["text"].as_str();
    text.map(str::to_owned).with_context(|| format!("no text: {result}"))
}

fn begin(stage: &Stage, caller: &Caller) -> Result<String> {
    text(&caller.call(stage.addr, "baskets_begin", &json!({}))?)
}

/// A handle with another character at a place.
fn guessed(handle: &str, at: usize) -> String {
    let mut bytes = handle.as_bytes().to_vec();
    bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
    String::from_utf8(bytes).unwrap()
}

/// A result without what names its own operation.
fn anonymous(result: &Value) -> String {
    let mut result = result.clone();
    if let Some(all) = result.as_object_mut() {
        all.remove("_meta");
        // A legacy result has none.
        all.remove("resultType");
    }
    let text = result.to_string();
    let mut parts = text.split("op_");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| format!("{all}OPERATION{}", &part[26..]))
}

#[test]
fn a_handle_that_was_guessed_or_stolen_is_one_that_never_was() -> Result<()> {
    let stage = Stage::open("shop", "")?;
    let (ann, ben) = (stage.caller("ann")?, stage.caller("ben")?);
    let handle = begin(&stage, &ann)?;
    ensure!(handle.starts_with("hd_") && handle.len() == 29, "128 bits: {handle}");
    ann.call(stage.addr, "baskets_add", &json!({ "basket": handle, "item": "tea" }))?;
    let ended = begin(&stage, &ann)?;
    ann.call(stage.addr, "baskets_end", &json!({ "basket": ended }))?;
    let own = begin(&stage, &ben)?;
    let legacy = ben.legacy(stage.addr)?;
    let mut guesses: Vec<(&Caller, String)> = (3..29).map(|at| (&ann, guessed(&handle, at))).collect();
    guesses.extend(["", "hd_", "basket", "hd_00000000000000000000000000"].map(|g| (&ann, g.to_owned())));
    guesses.extend([(&ann, handle.to_lowercase()), (&ann, format!("{handle} ")), (&ann, ended)]);
    guesses.extend([(&ben, handle.clone()), (&ann, own.clone())]);
    for tool in ["baskets_add", "baskets_look", "baskets_end"] {
        let mut seen = BTreeSet::new();
        let arguments = |basket: &str| {
            let mut all = json!({ "basket": basket });
            if tool == "baskets_add" {
                all["item"] = json!("poison");
            }
            all
        };
        for (who, guess) in &guesses {
            let result = who.call(stage.addr, tool, &arguments(guess))?;
            ensure!(result["isError"] == true, "{tool} {guess}: {result}");
            seen.insert(anonymous(&result));
        }
        // The other era is no way round.
        for basket in [handle.as_str(), "hd_00000000000000000000000000"] {
            let reply = send(stage.addr, &legacy.call(tool, &arguments(basket)))?;
            let message: Value = serde_json::from_str(&reply.message())?;
            seen.insert(anonymous(&message["result"]));
        }
        ensure!(seen.len() == 1, "{tool}: refusals differ: {seen:#?}");
        ensure!(seen.iter().all(|s| s.contains("handle_unknown")), "{seen:?}");
    }
    for (who, basket, held) in [(&ann, &handle, "tea"), (&ben, &own, "")] {
        ensure!(
            text(&who.call(stage.addr, "baskets_look", &json!({ "basket": basket }))?)? == held,
            "{basket}"
        );
    }
    Ok(())
}

#[test]
fn changes_that_race_are_made_once_each_or_not_at_all() -> Result<()> {
    let stage = Stage::open("shop", "")?;
    let ann = stage.caller("ann")?;
    let basket = begin(&stage, &ann)?;
    let add = |item: &str, key: &str| {
        let arguments = json!({ "basket": basket, "item": item });
        let params = json!({ "name": "baskets_add", "arguments": arguments, "_meta": { META_KEY: key } });
        ann.bytes(stage.addr, "tools/call", &params)
    };
    // Each of twelve calls under its own key, twice.
    let calls: Vec<Vec<u8>> = (0..24).map(|n| format!("item{}", n / 2)).map(|i| add(&i, &i)).collect();
    let mut put = BTreeSet::new();
    for (n, reply) in at_once(stage.addr, &calls)?.iter().enumerate() {
        let message: Value = serde_json::from_str(&reply.message())?;
        let result = &message["result"];
        match result["isError"] == true {
            false => drop(put.insert(format!("item{}", n / 2))),
            true => ensure!(result.to_string().contains("handle_moved"), "{message}"),
        }
    }
    ensure!(!put.is_empty(), "nobody was first");
    let held = text(&ann.call(stage.addr, "baskets_look", &json!({ "basket": basket }))?)?;
    let mut items: Vec<&str> = held.split(',').collect();
    items.sort_unstable();
    let wanted: Vec<&str> = put.iter().map(String::as_str).collect();
    ensure!(items == wanted, "told {wanted:?}, and there are {items:?}");
    // Made again under their keys they are what they were: nothing is put in twice.
    for item in &put {
        at_once(stage.addr, &[add(item, item)])?;
    }
    let again = text(&ann.call(stage.addr, "baskets_look", &json!({ "basket": basket }))?)?;
    ensure!(again == held, "{held}, then {again}");
    Ok(())
}
