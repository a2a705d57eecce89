//! The simulator, built for speed: it needs no other program, so its arguments are passed on as they are.

use crate::{cargo, keep, locked, steps};
use anyhow::Result;
use std::process::Command;

/// How many schedules a run of all checks goes through; a quick one, fewer.
pub fn schedules(quick: bool) -> &'static str {
    if quick { "2000" } else { "20000" }
}

/// Builds the simulator and runs it.
///
/// # Errors
/// It can't be built or started.
pub fn run(args: &[String]) -> Result<bool> {
    let mut c = cargo();
    c.args(["build", "--release", "--package", "counterfoil-sim", "--bin", "simulate"]);
    steps::must(locked(&mut c))?;
    Ok(Command::new(keep("release", "simulate")?).args(args).status()?.success())
}
