//! A replica is killed at each step of each tool, and started again as a supervisor does it.

use crate::shop::{Customer, open, payments, structure};
use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use counterfoil_tests::clients::Kind;
use serde_json::{Value, json};

/// Where whichever replica comes there first is killed, while a basket is made, filled and paid: the last three change
/// handles once, twice and three times.
const CREATE: [&str; 5] = ["open.before", "open.after", "handle.before", "handle.after", "close.before"];
const ADD: [&str; 8] = [
    "open.after",
    "handle.before",
    "handle.after",
    "handle.before@2",
    "handle.after@2",
    "close.before",
    "close.after",
    "reply.before",
];
const PAY: [&str; 11] = [
    "handle.before",
    "handle.after",
    "handle.before@2",
    "handle.after@2",
    "send.before",
    "send.after",
    "receipt.after",
    "handle.before@3",
    "handle.after@3",
    "close.after",
    "reply.before",
];

/// Does something while a replica is killed at a point of it.
fn killed<T>(stage: &Stage, point: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    stage.cluster().arm(point)?;
    let done = stage.supervised(work).with_context(|| format!("killed at {point}"))?;
    ensure!(!stage.is_armed(point), "nobody came to {point}");
    Ok(done)
}

fn holds(customer: &Customer, basket: &str, items: &[&str], version: u64) -> Result<()> {
    let shown = customer.shown(basket)?;
    ensure!(shown["items"] == json!(items) && shown["version"] == version, "{items:?} at {version}: {shown}");
    Ok(())
}

fn one_at_every_step(stage: &Stage, kind: Kind) -> Result<()> {
    let customer = Customer::new(stage, kind, None)?;
    let name = kind.name();
    for point in CREATE {
        let key = format!("{name}_create_{point}");
        let basket = killed(stage, point, || customer.create(&key))?;
        holds(&customer, &basket, &[], 1)?;
        ensure!(customer.create(&key)? == basket, "the same call made another basket");
    }
    ensure!(
        customer.listed()?.len() == CREATE.len(),
        "a basket was made twice, or lost: {:?}",
        customer.listed()?
    );

    let basket = customer.create(&format!("{name}_filled"))?;
    for (n, point) in ADD.into_iter().enumerate() {
        let (version, key) = (n as u64 + 1, format!("{name}_add_{point}"));
        let add = || structure(customer.add(&basket, "tea", version, &key)?);
        let done = killed(stage, point, add)?;
        ensure!(done["version"] == version + 1, "{point}: {done}");
        ensure!(add()? == done, "{point}: the same call has another answer");
        holds(&customer, &basket, &vec!["tea"; n + 1], version + 1).with_context(|| point.to_owned())?;
    }

    for point in PAY {
        let order = format!("{name}_{}", point.replace(['.', '@'], "_"));
        let basket = customer.create(&format!("{order}_create"))?;
        structure(customer.add(&basket, "cake", 1, &format!("{order}_add"))?)?;
        let arguments = json!({ "basket": basket, "version": 2, "order": order });
        let pay = || customer.made("basket_checkout", &arguments, &order);
        let paid: Value = killed(stage, point, pay)?;
        ensure!(paid["paid"] == 380 && paid["items"] == json!(["cake"]), "{point}: {paid}");
        ensure!(pay()? == paid, "{point}: the same call has another answer");
        ensure!(payments(stage, &order)? == 1, "{point}: {} payments", payments(stage, &order)?);
    }
    // What was paid is gone; the rest is as it was left.
    ensure!(customer.listed()?.len() == CREATE.len() + 1, "{:?}", customer.listed()?);
    Ok(())
}

#[test]
fn a_kill_at_every_step_of_a_basket_changes_it_once_typescript() -> Result<()> {
    one_at_every_step(&open("")?, Kind::TypeScript)
}

#[test]
fn a_kill_at_every_step_of_a_basket_changes_it_once_python() -> Result<()> {
    one_at_every_step(&open("")?, Kind::Python)
}
