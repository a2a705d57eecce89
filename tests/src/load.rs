//! A first look at cost: requests per second and CPU per request, from keep-alive connections on this machine.
//!
//! One thread a connection, one request at a time on each, for a bounded time. The load comes from the same two
//! cores as the server, so requests per second are what is left of them; CPU per request is the server's own, from
//! `/proc/PID/stat` (proc(5): utime and stime in ticks of 10 ms).

use crate::http::Connection;
use crate::wire::{self, Call, Said};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `tools/call` of `operation_status` for an operation that is not there: a read in process.
    Status,
    /// `tools/list`.
    List,
    /// `tools/call` of `payments_refunds_create`, each with a key of its own.
    Refund,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Status, Kind::List, Kind::Refund];

    /// Its name in figures.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Status => "operation_status",
            Kind::List => "tools_list",
            Kind::Refund => "refund",
        }
    }

    fn bytes(self, addr: SocketAddr, unique: &str) -> Vec<u8> {
        match self {
            Kind::Status => {
                Call::new("operation_status", json!({ "id": "op_01ARZ3NDEKTSV4RRFFQ69G5FAV" })).bytes(addr)
            }
            Kind::List => wire::post(
                addr,
                "1",
                "tools/list",
                None,
                &json!({ "_meta": wire::meta(&json!({})) }),
                "application/json, text/event-stream",
                &[],
            ),
            Kind::Refund => Call::new(
                "payments_refunds_create",
                json!({ "payment": format!("pay_demo_{unique}"), "amount": 100 }),
            )
            .keyed(unique)
            .bytes(addr),
        }
    }

    fn is_good(self, status: u16, body: &str) -> bool {
        status == 200
            && match self {
                Kind::Status => body.contains("\"landed\"") || body.contains("\\\"landed\\\""),
                Kind::List => body.contains("\"tools\""),
                Kind::Refund => {
                    body.contains("\"isError\":false") && body.contains("dev.counterfoil/operation")
                }
            }
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// What was asked.
    pub kind: &'static str,
    /// How many connections.
    pub connections: usize,
    /// Requests that were answered.
    pub requests: u64,
    /// Answers that were not what was asked for; any makes the run worthless.
    pub errors: u64,
    /// Requests a second.
    pub per_second: f64,
    /// CPU of the server for one request, in microseconds.
    pub cpu_us_per_request: f64,
    /// Half of the answers came within, in microseconds.
    pub p50_us: u64,
    /// 99 of 100 came within, in microseconds.
    pub p99_us: u64,
}

/// User and system time of a process so far.
///
/// # Errors
/// There is no such process, or no `/proc`.
pub fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("this needs Linux's /proc")?;
    // The command's name is in brackets and may hold anything.
    let rest = stat.rsplit_once(')').context("/proc/PID/stat")?.1;
    let ticks = |n: usize| rest.split_whitespace().nth(n).and_then(|t| t.parse::<u64>().ok());
    let (user, system) = (ticks(11).context("utime")?, ticks(12).context("stime")?);
    Ok(Duration::from_millis((user + system) * 10))
}

/// Asks for a time, from a number of connections.
///
/// # Errors
/// The server can't be reached.
pub fn measure(
    addr: SocketAddr,
    pid: u32,
    kind: Kind,
    connections: usize,
    lasting: Duration,
) -> Result<Figures> {
    let stop = AtomicBool::new(false);
    let errors = AtomicU64::new(0);
    let run = format!("{}-{}", std::process::id(), Instant::now().elapsed().as_nanos());
    let run = format!(
        "{run}-{}-{connections}",
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis()
    );
    let before = cpu(pid)?;
    let started = Instant::now();
    let mut all: Vec<u64> = thread::scope(|scope| {
        let workers: Vec<_> = (0..connections)
            .map(|c| {
                let (stop, errors, run) = (&stop, &errors, &run);
                scope.spawn(move || -> Result<Vec<u64>> {
                    let mut connection = Connection::open(addr, Duration::from_secs(30))?;
                    let fixed = kind.bytes(addr, "x");
                    let mut took = Vec::new();
                    let mut n = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        n += 1;
                        let own;
                        let bytes = if kind == Kind::Refund {
                            own = kind.bytes(addr, &format!("{run}-{c}-{n}"));
                            &own
                        } else {
                            &fixed
                        };
                        let sent = Instant::now();
                        let reply = connection.exchange(bytes)?;
                        took.push(u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX));
                        if !kind.is_good(reply.status, &reply.text()) {
                            errors.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    Ok(took)
                })
            })
            .collect();
        thread::sleep(lasting);
        stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .map(|w| w.join().unwrap_or_else(|_| bail!("a connection's thread ended")))
            .collect::<Result<Vec<_>>>()
    })?
    .concat();
    let seconds = started.elapsed().as_secs_f64();
    let used = cpu(pid)?.saturating_sub(before);
    all.sort_unstable();
    let at = |part: f64| {
        all.get(((all.len() as f64 * part) as usize).min(all.len().saturating_sub(1))).copied().unwrap_or(0)
    };
    let requests = all.len() as u64;
    Ok(Figures {
        kind: kind.name(),
        connections,
        requests,
        errors: errors.into_inner(),
        per_second: requests as f64 / seconds,
        cpu_us_per_request: used.as_secs_f64() * 1e6 / requests.max(1) as f64,
        p50_us: at(0.5),
        p99_us: at(0.99),
    })
}

/// One request of the kind, to see that it works before it is measured.
///
/// # Errors
/// It does not; holds what came instead.
pub fn try_one(addr: SocketAddr, kind: Kind) -> Result<()> {
    let unique = format!(
        "try-{}-{}",
        std::process::id(),
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos()
    );
    let reply = crate::http::once(addr, Duration::from_secs(10), &kind.bytes(addr, &unique))?;
    if kind.is_good(reply.status, &reply.text()) {
        Ok(())
    } else {
        bail!("{} is answered: {}", kind.name(), Said::of(&reply).brief())
    }
}
