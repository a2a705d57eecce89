//! The figures, each a function that starts what it needs and stops it again.

use crate::figures::{Figures, median};
use crate::load::{self, Outcome};
use crate::peers::{self, Ledgered, Server, echo, refund};
use crate::{process, recovery, stored};
use anyhow::{Context, Result};
use counterfoil_tests::process::run;
use serde_json::Value;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Pairs of a comparison.
pub const PAIRS: usize = 5;
/// Callers of the figures about latency.
const CALLERS: [usize; 4] = [1, 16, 64, 256];
/// Operations of the figures about stored and open ones.
const MANY: usize = 1_000_000;
const FEW: usize = 1000;
const OPEN: usize = 10_000;

/// How long and how much.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// How long one side of a pair is asked.
    pub each: Duration,
}

/// A comparison: the median of the pairs' ratios, and the medians of both sides.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Ours over theirs.
    pub ratio: f64,
    /// The smallest and largest ratio.
    pub range: (f64, f64),
    /// Ours.
    pub ours: Outcome,
    /// Theirs.
    pub theirs: Outcome,
}

pub(crate) fn middle(all: &[Outcome]) -> Outcome {
    let of = |f: fn(&Outcome) -> f64| median(all.iter().map(f).collect());
    Outcome {
        per_second: of(|o| o.per_second),
        cpu_us: of(|o| o.cpu_us),
        p50_ms: of(|o| o.p50_ms),
        p99_ms: of(|o| o.p99_ms),
    }
}

/// Takes pairs, one side right after the other; who begins alternates.
///
/// # Errors
/// A side fails.
pub fn paired(
    pairs: usize,
    mut ours: impl FnMut() -> Result<Outcome>,
    mut theirs: impl FnMut() -> Result<Outcome>,
) -> Result<Pair> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for n in 0..pairs {
        if n % 2 == 0 {
            a.push(ours()?);
            b.push(theirs()?);
        } else {
            b.push(theirs()?);
            a.push(ours()?);
        }
    }
    let ratios: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a.per_second / b.per_second).collect();
    let range = (
        ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    );
    Ok(Pair { ratio: median(ratios), range, ours: middle(&a), theirs: middle(&b) })
}

fn told(pair: &Pair, them: &str) -> String {
    let side = |o: &Outcome| format!("{:.0}/s, {:.0} us CPU", o.per_second, o.cpu_us);
    let (low, high) = pair.range;
    format!("ours {}; {them} {}; pairs {low:.2} to {high:.2}", side(&pair.ours), side(&pair.theirs))
}

fn side(
    addr: SocketAddr,
    pid: u32,
    ask: load::Ask,
    connections: usize,
    each: Duration,
) -> impl FnMut() -> Result<Outcome> {
    move || load::run(addr, Some(pid), &ask, connections, each)
}

fn warm(addr: SocketAddr, ask: &load::Ask, each: Duration) -> Result<()> {
    load::try_one(addr, ask)?;
    load::run(addr, None, ask, 16, each / 2).map(|_| ())
}

fn against(
    figures: &mut Figures,
    name: &str,
    them: &str,
    connections: usize,
    ours: (SocketAddr, u32, load::Ask),
    theirs: &Server,
    extent: Extent,
) -> Result<Pair> {
    let ask = echo(theirs.addr);
    warm(ours.0, &ours.2, extent.each)?;
    warm(theirs.addr, &ask, extent.each)?;
    let pair = paired(
        PAIRS,
        side(ours.0, ours.1, ours.2, connections, extent.each),
        side(theirs.addr, theirs.pid(), ask, connections, extent.each),
    )?;
    figures.add(name, pair.ratio, &told(&pair, them));
    Ok(pair)
}

/// `readonly_vs_axum_16`, `readonly_vs_axum_64`, `readonly_vs_rmcp_64`, `cpu_us_readonly`.
///
/// # Errors
/// A server does not start or answers wrongly.
pub fn readonly(figures: &mut Figures, extent: Extent, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
    let folder = TempDir::with_prefix("counterfoil-bench-")?;
    let ours = peers::ours(folder.path())?;
    let ask = || (ours.addr, ours.pid(), echo(ours.addr));
    if ["readonly_vs_axum_16", "readonly_vs_axum_64", "cpu_us_readonly"].iter().any(|n| wanted(n)) {
        let axum = peers::axum(folder.path(), &load::try_one(ours.addr, &echo(ours.addr))?)?;
        let mut cpu = None;
        for connections in [16, 64] {
            let name = format!("readonly_vs_axum_{connections}");
            let pair = against(figures, &name, "axum", connections, ask(), &axum, extent)?;
            cpu = Some(pair.ours.cpu_us);
        }
        figures.add("cpu_us_readonly", cpu.context("no pair")?, "");
    }
    if wanted("readonly_vs_rmcp_64") {
        let rmcp = peers::rmcp(folder.path())?;
        against(figures, "readonly_vs_rmcp_64", "rmcp", 64, ask(), &rmcp, extent)?;
    }
    Ok(())
}

/// `ledgered_vs_typescript_64`, `ledgered_vs_python_64`.
///
/// # Errors
/// A server does not start or answers wrongly.
pub fn ledgered(figures: &mut Figures, extent: Extent, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
    let folder = TempDir::with_prefix("counterfoil-bench-")?;
    let ours = Ledgered::start()?;
    let (addr, pid) = (ours.gateway.addr, ours.gateway.process.pid());
    for (name, start) in [("typescript", peers::typescript as fn(&_) -> _), ("python", peers::python)] {
        let figure = format!("ledgered_vs_{name}_64");
        if wanted(&figure) {
            let theirs = start(folder.path())?;
            against(figures, &figure, name, 64, (addr, pid, refund(addr)), &theirs, extent)?;
        }
    }
    Ok(())
}

/// `ledger_vs_floor_64`: the store alone, as its example measures it.
///
/// # Errors
/// It does not run.
pub fn floor(figures: &mut Figures, extent: Extent) -> Result<()> {
    let folder = TempDir::with_prefix("counterfoil-bench-")?;
    let mut command = Command::new(peers::beside("commit_rate")?);
    command.args(["--json", "--callers", "64", "--pairs", &PAIRS.to_string()]);
    command.args(["--operations", &(4000 * extent.each.as_secs().clamp(1, 10)).to_string(), "--dir"]);
    let out = run(command.arg(folder.path()), Duration::from_secs(600))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let last: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_default();
    let of = |name: &str| {
        last[name].as_f64().with_context(|| format!("no {name}: {}", String::from_utf8_lossy(&out.stderr)))
    };
    let behind = format!(
        "store {:.0} operations/s, {:.1} writes a commit; bare statements {:.0}/s",
        of("store_per_second")?,
        of("writes_a_commit")?,
        of("bare_per_second")?
    );
    figures.add("ledger_vs_floor_64", of("ratio")?, &behind);
    Ok(())
}

/// `growth_1e6`.
///
/// # Errors
/// A ledger can't be prepared, or a server does not start or answers wrongly.
pub fn growth(figures: &mut Figures, extent: Extent) -> Result<()> {
    let pair = stored::growth(MANY, FEW, PAIRS, extent.each)?;
    figures.add("growth_1e6", pair.ratio, &told(&pair, "with a thousand"));
    Ok(())
}

/// `recover_10k_ms`, and beside it `recover_10k_settled_ms`.
///
/// # Errors
/// A server does not start, or the operations are not settled.
pub fn recover(figures: &mut Figures) -> Result<()> {
    let all = (0..3).map(|_| recovery::restart(OPEN)).collect::<Result<Vec<_>>>()?;
    figures.add("recover_10k_ms", median(all.iter().map(|r| r.resumed_ms).collect()), "");
    figures.add("recover_10k_settled_ms", median(all.iter().map(|r| r.settled_ms).collect()), "");
    Ok(())
}

/// `ledger_p50_ms_N`, `ledger_p99_ms_N`, `cpu_us_ledgered`, `fsync_per_s`, `rss_idle_mb`, `rss_load_mb`.
///
/// # Errors
/// A server does not start or answers wrongly.
pub fn latency(figures: &mut Figures, extent: Extent) -> Result<()> {
    let ours = Ledgered::start()?;
    let (addr, pid) = (ours.gateway.addr, ours.gateway.process.pid());
    let ask = refund(addr);
    load::try_one(addr, &ask)?;
    figures.add("rss_idle_mb", process::rss_kb(pid)? / 1024.0, "");
    warm(addr, &ask, extent.each)?;
    for callers in CALLERS {
        let commits = ours.metric("counterfoil_store_commits_total")?;
        let began = Instant::now();
        let all = (0..PAIRS).map(|_| load::run(addr, Some(pid), &ask, callers, extent.each));
        let o = middle(&all.collect::<Result<Vec<_>>>()?);
        let commits = ours.metric("counterfoil_store_commits_total")? - commits;
        let behind = format!("{:.0}/s, {:.0} us CPU", o.per_second, o.cpu_us);
        figures.add(&format!("ledger_p50_ms_{callers}"), o.p50_ms, &behind);
        figures.add(&format!("ledger_p99_ms_{callers}"), o.p99_ms, "");
        if callers == 64 {
            figures.add("cpu_us_ledgered", o.cpu_us, "");
            // Each commit of a database in WAL mode with synchronous=FULL syncs its log once.
            figures.add("fsync_per_s", commits / began.elapsed().as_secs_f64(), "");
        }
    }
    figures.add("rss_load_mb", process::most_rss_kb(pid)? / 1024.0, "");
    Ok(())
}

/// `start_ms`: from the start of the process until it says that it serves, with an existing small ledger.
///
/// # Errors
/// It does not start.
pub fn start(figures: &mut Figures) -> Result<()> {
    let mut ours = Ledgered::start()?;
    load::try_one(ours.gateway.addr, &refund(ours.gateway.addr))?;
    let mut took = Vec::new();
    for _ in 0..PAIRS {
        ours.gateway.process.terminate()?;
        let began = Instant::now();
        ours.gateway = ours.project.gateway(None)?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    figures.add("start_ms", median(took), "");
    Ok(())
}
