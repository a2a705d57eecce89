//! A tool whose effect a person has to agree to: the user of the client, or an operator where the client can't ask.

use crate::stage::{Stage, result};
use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::clients::{Kind, Order, Question, Worker};
use counterfoil_tests::stand::{AMOUNT, Class, payment};
use counterfoil_tests::wire::{META_KEY, Said};
use serde_json::json;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// The user says yes or no. The replica that asked is dead by then, where it holds nothing that the client waits for.
fn approval(stage: &Stage, kind: Kind, name: &str, approves: bool) -> Result<()> {
    let mut worker = Worker::start(kind, stage.project.path())?;
    let (tool, arguments) = (Class::Key.tool(), Class::Key.arguments(name));
    let driven = stage.supervised(|| {
        stage.drive(&mut worker, LIMIT, &tool, &arguments, name, |question| {
            // What will be sent is shown, and nothing was.
            for part in [payment(name), AMOUNT.to_string()] {
                ensure!(question.message().contains(&part), "no {part} in {:?}", question.message());
            }
            ensure!(stage.sandbox().count(Class::Key, name)? == (0, 0), "it happened before the yes");
            if !kind.is_legacy() {
                let asked = stage.last_asked(&tool)?;
                stage.cluster().kill(asked);
            }
            Ok(if approves { Question::accept(json!({ "approve": true })) } else { Question::decline() })
        })
    })?;
    ensure!(driven.asked.len() == 1 && driven.repeats == 0, "{:?}", (&driven.asked, driven.repeats));
    if approves {
        result(&driven)?;
        return stage.once(name);
    }
    ensure!(!matches!(driven.said, Said::Result { is_error: false, .. }), "{:?}", driven.said);
    ensure!(stage.sandbox().count(Class::Key, name)? == (0, 0), "a refusal had an effect");
    Ok(())
}

#[test]
fn an_approval_comes_before_the_effect_with_every_official_client() -> Result<()> {
    let stage = Stage::open(false, "\n[tools.\"key.refunds.create\"]\napproval = \"always\"\n")?;
    for kind in [Kind::TypeScript, Kind::Python, Kind::TypeScript1, Kind::Python1] {
        for (approves, word) in [(true, "yes"), (false, "no")] {
            let name = format!("{}_{word}", kind.name());
            approval(&stage, kind, &name, approves).with_context(|| name.clone())?;
        }
    }
    an_operator_approves(&stage)
}

/// A client that can't ask anybody is told whom an operator has to agree to.
fn an_operator_approves(stage: &Stage) -> Result<()> {
    let mut worker = Worker::start(Kind::TypeScript, stage.project.path())?;
    let url = format!("http://{}/mcp", stage.front);
    let order = Order { client: "mute", url: &url, auth: None, timeout: LIMIT, abort_after: None };
    let (tool, arguments) = (Class::Key.tool(), Class::Key.arguments("operator"));
    let meta = json!({ META_KEY: "operator" });
    let said = worker.call(&order, &tool, &arguments, &meta)?;
    let Said::Error { kind, error, .. } = &said else { bail!("{said:?}") };
    ensure!(kind == "approval_required", "{said:?}");
    let id = error["operationId"].as_str().context("no operation")?;
    ensure!(stage.sandbox().count(Class::Key, "operator")? == (0, 0), "it happened before the yes");
    let data = stage.cluster().to_ask()?.display().to_string();
    let args = ["ops", "approve", id, "--by", "tester", "--data", &data];
    let (code, op) = stage.project.ask(&args)?;
    ensure!(code == 0, "exit {code}: {op}");
    let said = worker.call(&order, &tool, &arguments, &meta)?;
    ensure!(matches!(said, Said::Result { is_error: false, .. }), "{said:?}");
    stage.once("operator")
}
