//! Ledgers that are prepared: with a million operations, and the same machine with a thousand.

use crate::load;
use crate::peers::{Ledgered, beside, refund};
use crate::runs::{Pair, paired};
use anyhow::{Context, Result, bail};
use counterfoil_tests::process::{Process, run};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long preparing may take.
const WITHIN: Duration = Duration::from_secs(900);

/// Writes operations into a ledger that nobody uses now; `what` is `stored` or `open`.
///
/// # Errors
/// It could not be done.
pub fn fill(what: &str, ledger: &Path, count: usize) -> Result<()> {
    let mut command = Command::new(beside("fill")?);
    let out = run(command.arg(what).arg(ledger).arg(count.to_string()), WITHIN)?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let value: Value = serde_json::from_str(text.trim()).unwrap_or_default();
    if out.status.success() && value["operations"] == count {
        Ok(())
    } else {
        bail!("the ledger was not prepared: {}", String::from_utf8_lossy(&out.stderr))
    }
}

fn with(count: usize) -> Result<Ledgered> {
    let (project, provider, sandbox): (_, Process, _) = Ledgered::provider()?;
    fill("stored", &project.data().join("ledger.db"), count)?;
    let ledgered = Ledgered::with(project, provider, sandbox)?;
    let there = ledgered.metric("counterfoil_operations").context("counting operations")?;
    if there < count as f64 {
        bail!("the gateway sees {there} operations of {count}");
    }
    Ok(ledgered)
}

/// The throughput of durable calls on a ledger with `many` operations, and on one with `few`.
///
/// # Errors
/// A server does not start or answers wrongly.
pub fn growth(many: usize, few: usize, pairs: usize, each: Duration) -> Result<Pair> {
    let (large, small) = (with(many)?, with(few)?);
    let one = |l: &Ledgered, lasting| {
        load::run(l.gateway.addr, Some(l.gateway.process.pid()), &refund(l.gateway.addr), 64, lasting)
    };
    for l in [&large, &small] {
        load::try_one(l.gateway.addr, &refund(l.gateway.addr))?;
        // Reads in what a server that has run for a while has in memory.
        one(l, each)?;
    }
    paired(pairs, || one(&large, each), || one(&small, each))
}
