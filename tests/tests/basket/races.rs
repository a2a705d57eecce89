//! Two clients at one basket, of one customer: whoever is faster wins, the other is told and can go on.

use crate::shop::{Customer, open, overtaken, payments, structure};
use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::clients::Kind;
use counterfoil_tests::wire::Said;
use serde_json::json;

fn is_done(said: &Said) -> bool {
    matches!(said, Said::Result { is_error: false, .. })
}

#[test]
fn of_two_who_add_one_wins_and_the_other_goes_on() -> Result<()> {
    let stage = open("")?;
    let (ts, py) =
        (Customer::new(&stage, Kind::TypeScript, None)?, Customer::new(&stage, Kind::Python, None)?);
    let basket = ts.create("raced")?;
    let mut won = [0, 0];
    for round in 0..12_u64 {
        let version = 1 + round * 2;
        let add = |item: &str| json!({ "basket": basket, "item": item, "version": version });
        let (one, other) = (ts.begin("basket_add", &add("tea"))?, py.begin("basket_add", &add("cake"))?);
        let said = [ts.end(one)?, py.end(other)?];
        let winner = match said.each_ref().map(is_done) {
            [true, false] => 0,
            [false, true] => 1,
            both => bail!("round {round}: {both:?} of {said:?}"),
        };
        won[winner] += 1;
        let now = overtaken(&said[1 - winner]).with_context(|| format!("round {round}"))?;
        ensure!(now["version"] == version + 1, "round {round}: {now}");
        let (late, item) = if winner == 0 { (&py, "cake") } else { (&ts, "tea") };
        let done = structure(late.add(&basket, item, version + 1, &format!("late_{round}"))?)?;
        ensure!(done["version"] == version + 2, "round {round}: {done}");
    }
    let shown = ts.shown(&basket)?;
    let count =
        |item: &str| shown["items"].as_array().map_or(0, |all| all.iter().filter(|i| *i == item).count());
    ensure!(count("tea") == 12 && count("cake") == 12 && shown["version"] == 25, "{won:?} {shown}");
    Ok(())
}

#[test]
fn a_basket_that_two_pay_is_paid_once() -> Result<()> {
    let stage = open("")?;
    let (ts, py) =
        (Customer::new(&stage, Kind::TypeScript, None)?, Customer::new(&stage, Kind::Python, None)?);
    for round in 0..6 {
        let basket = ts.create(&format!("paid_{round}"))?;
        structure(ts.add(&basket, "coffee", 1, &format!("filled_{round}"))?)?;
        // Two different orders, so they are two operations.
        let order = |who: &str| format!("{who}_{round}");
        let pay = |who: &str| json!({ "basket": basket, "version": 2, "order": order(who) });
        let (one, other) =
            (ts.begin("basket_checkout", &pay("ts"))?, py.begin("basket_checkout", &pay("py"))?);
        let said = [ts.end(one)?, py.end(other)?];
        let paid = payments(&stage, &order("ts"))? + payments(&stage, &order("py"))?;
        ensure!(paid == 1, "round {round}: {paid} payments, {said:?}");
        ensure!(said.iter().any(is_done), "round {round}: {said:?}");
    }
    Ok(())
}
