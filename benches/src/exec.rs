//! What carrying out a method costs over a bare call of the same request by a usual HTTP client.

use crate::figures::Figures;
use crate::peers::beside;
use crate::runs::{Extent, PAIRS};
use anyhow::{Context, Result};
use counterfoil_tests::process::run;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// `exec_overhead_us`: what a reading method takes longer than a bare `reqwest` call of the same request, one at a time.
/// `exec_vs_reqwest_16`: calls a second with 16 at a time, ours over theirs.
///
/// # Errors
/// It does not run.
pub fn overhead(figures: &mut Figures, extent: Extent) -> Result<()> {
    let mut command = Command::new(beside("exec_overhead")?);
    command.args([extent.each.as_secs_f64().to_string(), PAIRS.to_string()]);
    let out = run(&mut command, Duration::from_secs(600))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let last: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_default();
    let of = |name: &str| {
        last[name].as_f64().with_context(|| format!("no {name}: {}", String::from_utf8_lossy(&out.stderr)))
    };
    let alone = format!("ours {:.1} us, reqwest {:.1} us, one at a time", of("ours_us")?, of("bare_us")?);
    figures.add("exec_overhead_us", of("overhead_us")?, &alone);
    let many = format!("ours {:.0}/s, reqwest {:.0}/s", of("ours_per_s")?, of("bare_per_s")?);
    figures.add("exec_vs_reqwest_16", of("ratio")?, &many);
    Ok(())
}
