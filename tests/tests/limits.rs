//! Rates, places, budgets, rules and the breaker, in the real binary: what is let through is counted at the provider, over
//! replicas, retries, refusals and kills.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::cluster::{self, Cluster};
use counterfoil_tests::http;
use counterfoil_tests::stand::{AMOUNT, Class, Gateway, Project, Sandbox};
use counterfoil_tests::wire::{self, Call, Said};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

struct Stage {
    project: Project,
    sandbox: Sandbox,
    _home: Project,
}

/// Provider and project; `more` ends its configuration.
fn stage(more: &str) -> Result<Stage> {
    let home = Project::empty()?;
    let sandbox =
        Sandbox::start(&home.path().join("provider"), &home.path().join("provider.log"), "127.0.0.1:0")?;
    Ok(Stage { project: Project::with_classes_and(sandbox.addr, more)?, sandbox, _home: home })
}

impl Stage {
    /// Effects of a business object, seen by two books that agree.
    fn effects(&self, class: Class, order: &str) -> Result<u64> {
        let (effects, refunded) = self.sandbox.count(class, order)?;
        ensure!(refunded == effects * AMOUNT, "{order}: {effects} effects and {refunded} refunded");
        Ok(effects)
    }
}

fn call(addr: SocketAddr, class: Class, order: &str) -> Said {
    wire::call(addr, LIMIT, &Call::new(&class.tool(), class.arguments(order)).keyed(order))
}

/// A result that is no error, and whether an earlier call made it.
fn result(said: &Said) -> Result<bool> {
    match said {
        Said::Result { operation, is_error: false, .. } => {
            Ok(operation["replayed"].as_bool().unwrap_or_default())
        }
        said => bail!("no result: {}", said.brief()),
    }
}

/// The error of this kind, and its sentence.
fn error(said: Said, kind: &str) -> Result<(Value, String)> {
    match said {
        Said::Error { kind: told, error, text } if told == kind => Ok((error, text)),
        said => bail!("not {kind}: {} {said:?}", said.brief()),
    }
}

fn figure(addr: SocketAddr, name: &str) -> Result<u64> {
    let metrics = http::json(addr, "GET", "/metrics", None)?.text();
    let value = metrics.lines().find_map(|l| l.strip_prefix(name)?.trim().parse().ok());
    value.with_context(|| format!("no {name}"))
}

#[test]
fn a_rate_is_one_for_all_replicas() -> Result<()> {
    let mut s = stage("\n[limits.\"key\"]\nrate = \"20/h\"\n")?;
    cluster::configure(&s.project)?;
    let cluster = Cluster::start(&mut s.project, 2)?;
    let addrs = [cluster.replicas[0].addr, cluster.replicas[1].addr];
    // Six callers at once, at both; each of 60 orders once.
    let mut passed: Vec<String> = thread::scope(|scope| {
        let callers = (0..6).map(|caller| {
            scope.spawn(move || -> Result<Vec<String>> {
                let mut passed = Vec::new();
                for n in 0..10 {
                    let order = format!("r{caller}n{n}");
                    match call(addrs[n % 2], Class::Key, &order) {
                        said @ Said::Result { .. } => {
                            ensure!(!result(&said)?, "{order} is nobody else's");
                            passed.push(order);
                        }
                        said => {
                            let (e, text) = error(said, "limited")?;
                            let wait = e["retryAfterMs"].as_i64().unwrap_or_default();
                            ensure!((1..=3_600_000).contains(&wait), "{e}");
                            ensure!(
                                text.contains("calls of key: at most 20 in 1 hour; as many began"),
                                "{text}"
                            );
                        }
                    }
                }
                Ok(passed)
            })
        });
        let callers: Vec<_> = callers.collect();
        let each = callers.into_iter().map(|c| c.join().expect("a caller"));
        each.collect::<Result<Vec<_>>>().map(|all| all.concat())
    })?;
    ensure!(passed.len() == 20, "{} were let through", passed.len());
    // Who was let through has its answer at either, and is not counted again; who was not has no effect.
    passed.sort();
    for (n, order) in passed.iter().enumerate() {
        ensure!(result(&call(addrs[n % 2], Class::Key, order))?, "{order} ran again");
        ensure!(result(&call(addrs[(n + 1) % 2], Class::Key, order))?, "{order} ran again");
        ensure!(s.effects(Class::Key, order)? == 1, "{order}");
    }
    for caller in 0..6 {
        for n in 0..10 {
            let order = format!("r{caller}n{n}");
            let expected = u64::from(passed.contains(&order));
            ensure!(s.effects(Class::Key, &order)? == expected, "{order}");
        }
    }
    // Another integration is not touched by it, and the refusals are counted.
    result(&call(addrs[0], Class::Natural, "other"))?;
    let refused = addrs.iter().map(|a| figure(*a, "counterfoil_error_answers_total{word=\"limited\"}"));
    ensure!(refused.sum::<Result<u64>>()? == 40, "refusals are counted");
    Ok(())
}

fn budget(operations: u64, more: &str) -> String {
    let most = operations * AMOUNT;
    format!(
        "\n[limits.\"key.refunds.create\"]\nbudget = {{ argument = \"amount\", most = {most}, period = \"month\", per = \"principal\" }}\n{more}"
    )
}

#[test]
fn a_budget_counts_what_happened_once() -> Result<()> {
    let mut s = stage(&budget(3, ""))?;
    let gateway = s.project.gateway(None)?;
    let at = gateway.addr;
    result(&call(at, Class::Key, "a"))?;
    // The provider does it and the answer is lost: it is sent again, and charged once.
    s.sandbox.rule(&json!({ "on": Class::Key.on(), "do": "apply_then_cut" }))?;
    result(&call(at, Class::Key, "b"))?;
    // A refusal is given back.
    for n in 0..4 {
        s.sandbox.rule(&json!({ "on": Class::Key.on(), "do": "refuse" }))?;
        match call(at, Class::Key, &format!("refused{n}")) {
            Said::Result { is_error: true, .. } => {}
            said => bail!("it is refused: {}", said.brief()),
        }
    }
    result(&call(at, Class::Key, "c"))?;
    let (e, text) = error(call(at, Class::Key, "d"), "limited")?;
    ensure!(
        text.contains("the sum of amount of key.refunds.create, for each caller: at most 2100 in a calendar month (UTC); 2100 are used, 0 are left, and this call asks for 700"),
        "{text}"
    );
    ensure!(e["retryAfterMs"].as_i64().is_some_and(|ms| ms > 0 && ms <= 31 * 86_400_000), "{e}");
    ensure!(e.get("operationId").is_none() && e.get("retryKey").is_none(), "nothing is there: {e}");
    // Replays are answered, however full it is, and after a restart, too.
    for order in ["a", "b", "c"] {
        ensure!(result(&call(at, Class::Key, order))?, "{order} ran again");
    }
    drop(gateway);
    let gateway = s.project.gateway(None)?;
    for order in ["a", "b", "c"] {
        ensure!(result(&call(gateway.addr, Class::Key, order))?, "{order} ran again");
        ensure!(s.effects(Class::Key, order)? == 1, "{order}");
    }
    error(call(gateway.addr, Class::Key, "d"), "limited")?;
    ensure!(s.effects(Class::Key, "d")? == 0, "d has an effect");
    Ok(())
}

#[test]
fn a_kill_between_claim_and_record_overspends_nothing() -> Result<()> {
    let mut s = stage(&budget(2, ""))?;
    let mut gateway = s.project.gateway(Some("claim.after"))?;
    match call(gateway.addr, Class::Key, "a") {
        Said::Lost(_) => {}
        said => bail!("it was killed: {}", said.brief()),
    }
    ensure!(gateway.process.wait(LIMIT).is_some(), "it did not die at its point");
    let gateway = s.project.gateway(None)?;
    ensure!(s.effects(Class::Key, "a")? == 0, "nothing was sent");
    // What it claimed is held until the month is over; one more fits, and never two.
    result(&call(gateway.addr, Class::Key, "b"))?;
    error(call(gateway.addr, Class::Key, "c"), "limited")?;
    error(call(gateway.addr, Class::Key, "a"), "limited")?;
    ensure!(result(&call(gateway.addr, Class::Key, "b"))?, "b ran again");
    let all = ["a", "b", "c"].iter().map(|o| s.effects(Class::Key, o)).sum::<Result<u64>>()?;
    ensure!(all == 1, "{all} effects");
    Ok(())
}

#[test]
fn rules_are_kept_and_shown() -> Result<()> {
    let rules = "\n[limits.\"key.refunds.create\"]\nallow = [{ argument = \"amount\", at_most = 700 }]\n\
                 deny = [{ argument = \"order_id\", matches = \"(?i)x.*\" }]\nrate = \"100/m\"\n";
    let mut s = stage(rules)?;
    let gateway = s.project.gateway(None)?;
    result(&call(gateway.addr, Class::Key, "a"))?;
    let (e, text) = error(call(gateway.addr, Class::Key, "X1"), "denied")?;
    ensure!(text.contains("it is denied for what order_id is"), "{text}");
    ensure!(e.get("retryAfterMs").is_none(), "{e}");
    let mut arguments = Class::Key.arguments("b");
    arguments["amount"] = json!(701);
    let more = Call::new(&Class::Key.tool(), arguments).keyed("b");
    let (_, text) = error(wire::call(gateway.addr, LIMIT, &more), "denied")?;
    ensure!(text.contains("it is allowed only if amount is at most 700"), "{text}");
    ensure!(
        figure(gateway.addr, "counterfoil_error_answers_total{word=\"denied\"}")? == 2,
        "both are counted"
    );
    ensure!(s.effects(Class::Key, "b")? + s.effects(Class::Key, "X1")? == 0, "nothing ran");
    // What an operator sees.
    let (code, info) = s.project.ask(&["info", "key.refunds.create"])?;
    let told = json!([
        "denied if order_id is a text like (?i)x.*",
        "allowed only if amount is at most 700",
        "calls of key.refunds.create: at most 100 in 1 minute",
    ]);
    ensure!(code == 0 && info["limits"] == told, "{info}");
    let dry = |amount: &str| {
        let amount = format!("amount={amount}");
        s.project.ask(&[
            "exec",
            "key.refunds.create",
            "--dry-run",
            "--param",
            "payment=pay_demo_c",
            "--param",
            &amount,
        ])
    };
    let (code, plan) = dry("701")?;
    ensure!(plan["refused"]["kind"] == "denied" && plan["wouldSend"].is_null(), "{code} {plan}");
    let (code, plan) = dry("700")?;
    let needs = json!([{ "limit": "calls of key.refunds.create: at most 100 in 1 minute", "amount": 1 }]);
    ensure!(code == 0 && plan["needs"] == needs && plan["refused"].is_null(), "{plan}");
    Ok(())
}

#[test]
fn places_are_free_when_the_answer_is_there() -> Result<()> {
    let mut s = stage("\n[limits.\"key\"]\nconcurrency = 1\nper = \"principal\"\n")?;
    let gateway = s.project.gateway(None)?;
    let at = gateway.addr;
    for n in 0..10 {
        result(&call(at, Class::Key, &format!("one{n}")))?;
    }
    s.sandbox.rule(&json!({ "on": Class::Key.on(), "do": "delay", "delay_ms": 400 }))?;
    let slow = thread::spawn(move || call(at, Class::Key, "slow"));
    thread::sleep(Duration::from_millis(150));
    let (_, text) = error(call(at, Class::Key, "beside"), "limited")?;
    ensure!(text.contains("calls of key, for each caller: at most 1 at a time; 1 are running"), "{text}");
    result(&slow.join().expect("a caller"))?;
    result(&call(at, Class::Key, "beside"))?;
    Ok(())
}

fn breaker(gateway: &Gateway, s: &Stage) -> Result<()> {
    let at = gateway.addr;
    s.sandbox.rule(&json!({ "on": Class::None.on(), "do": "cut", "times": 2 }))?;
    for n in 0..2 {
        error(call(at, Class::None, &format!("lost{n}")), "in_doubt")?;
    }
    let (e, text) = error(call(at, Class::None, "later"), "unavailable")?;
    ensure!(text.contains("none has not answered for a while"), "{text}");
    let wait = e["retryAfterMs"].as_u64().unwrap_or_default();
    ensure!((1..=1500).contains(&wait), "{e}");
    ensure!(s.effects(Class::None, "later")? == 0, "nothing ran");
    // Another provider of the same origin has no breaker; what is known is answered, whatever is down.
    result(&call(at, Class::Key, "other"))?;
    error(call(at, Class::None, "lost0"), "in_doubt")?;
    let began = Instant::now();
    thread::sleep(Duration::from_millis(wait + 50));
    // One is let through. It is answered, so all are.
    for n in 0..5 {
        result(&call(at, Class::None, &format!("again{n}")))?;
    }
    result(&call(at, Class::None, "later"))?;
    ensure!(began.elapsed() < Duration::from_secs(15), "it went on at once");
    ensure!(s.effects(Class::None, "later")? == 1, "later ran once");
    Ok(())
}

#[test]
fn a_breaker_opens_and_closes() -> Result<()> {
    let more = "\n[limits.\"none\"]\nbreaker = { failures = 2, window = \"30s\", pause = \"1500ms\" }\n";
    let mut s = stage(more)?;
    let gateway = s.project.gateway(None)?;
    breaker(&gateway, &s)
}

#[test]
fn recovery_is_not_held_up_by_a_breaker() -> Result<()> {
    let more = "\n[limits.\"key\"]\nbreaker = { failures = 2, pause = \"1h\" }\n";
    let mut s = stage(more)?;
    let gateway = s.project.gateway(None)?;
    // Three sends are lost, so it opens; the fourth is answered, so it closes.
    s.sandbox.rule(&json!({ "on": Class::Key.on(), "do": "cut", "times": 3 }))?;
    result(&call(gateway.addr, Class::Key, "a"))?;
    result(&call(gateway.addr, Class::Key, "b"))?;
    ensure!(s.effects(Class::Key, "a")? == 1 && s.effects(Class::Key, "b")? == 1, "once each");
    Ok(())
}
