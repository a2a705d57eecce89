//! A handle is good for whoever made it. To anybody else it is one that never was, at whichever replica.

use crate::shop::{Customer, open, structure};
use crate::stage::Stage;
use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::clients::Kind;
use counterfoil_tests::wire::Said;
use serde_json::json;

fn key_of(stage: &Stage, principal: &str) -> Result<String> {
    let data = stage.cluster().to_ask()?.display().to_string();
    let (code, made) =
        stage.project.ask(&["api-keys", "create", "--principal", principal, "--data", &data])?;
    let key = made["key"].as_str().filter(|_| code == 0).with_context(|| format!("no key: {made}"))?;
    Ok(format!("Bearer {key}"))
}

#[test]
fn a_stolen_handle_is_one_that_never_was() -> Result<()> {
    let stage = open("\n[auth]\nmode = \"api-key\"\n")?;
    let ann = Customer::new(&stage, Kind::TypeScript, Some(key_of(&stage, "ann")?))?;
    let ben = Customer::new(&stage, Kind::Python, Some(key_of(&stage, "ben")?))?;
    let basket = ann.create("hers")?;
    structure(ann.add(&basket, "tea", 1, "hers_too")?)?;
    let refused = |tool: &str, basket: &str, key: &str| -> Result<String> {
        let mut arguments = json!({ "basket": basket });
        if tool != "basket_show" {
            arguments["version"] = json!(2);
        }
        match tool {
            "basket_add" => arguments["item"] = json!("cake"),
            "basket_checkout" => arguments["order"] = json!("bens"),
            _ => {}
        }
        match ben.call(tool, &arguments, Some(key))? {
            Said::Error { kind, text, error } if kind == "handle_unknown" => Ok(format!("{text} {error}")),
            other => bail!("{tool}: {other:?}"),
        }
    };
    // More rounds than replicas.
    for round in 0..4 {
        for tool in ["basket_show", "basket_add", "basket_checkout"] {
            let key = |what: &str| format!("{tool}_{what}_{round}");
            let stolen = refused(tool, &basket, &key("stolen"))?;
            let mut guess = basket.clone().into_bytes();
            let last = guess.last_mut().context("an empty handle")?;
            *last = if *last == b'0' { b'1' } else { b'0' };
            let guessed = refused(tool, &String::from_utf8(guess)?, &key("guessed"))?;
            ensure!(guessed == stolen, "they differ: {stolen}");
        }
    }
    ensure!(ben.listed()?.is_empty(), "another's baskets are listed");
    let shown = ann.shown(&basket)?;
    ensure!(shown["items"] == json!(["tea"]) && shown["version"] == 2, "{shown}");
    ensure!(crate::shop::payments(&stage, "bens")? == 0, "a thief had it paid");
    Ok(())
}
