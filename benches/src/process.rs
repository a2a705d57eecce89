//! What the system says of a process, from Linux's `/proc`.

use anyhow::{Context, Result};
use std::time::Duration;

/// User and system time of a process so far, all its threads together. Counted by the system in steps of 10 ms.
///
/// # Errors
/// There is no such process, or no `/proc`.
pub fn cpu(pid: u32) -> Result<Duration> {
    counterfoil_tests::load::cpu(pid)
}

fn status(pid: u32, name: &str) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("this needs Linux's /proc")?;
    let line = text.lines().find_map(|l| l.strip_prefix(name)).context("/proc/PID/status")?;
    line.trim_start_matches(':')
        .split_whitespace()
        .next()
        .and_then(|n| n.parse().ok())
        .context("a size in kB")
}

/// Memory that a process has now, in kB (`VmRSS`).
///
/// # Errors
/// As [`cpu`].
pub fn rss_kb(pid: u32) -> Result<f64> {
    status(pid, "VmRSS")
}

/// The most it had so far, in kB (`VmHWM`).
///
/// # Errors
/// As [`cpu`].
pub fn most_rss_kb(pid: u32) -> Result<f64> {
    status(pid, "VmHWM")
}

/// How many programs ran or waited to run in the last minute, on average.
#[must_use]
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(f64::NAN)
}
