//! State that travels: what sealing it costs, what a round of questions adds to a call, and how often tasks can be asked
//! for; beside the official Python SDK, whose servers seal their state, too.

use crate::figures::{Figures, median};
use crate::load::{self, Ask};
use crate::peers::{self, Server, beside};
use crate::runs::{self, Extent, PAIRS};
use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::http::Connection;
use counterfoil_tests::process::{build_dir, run};
use counterfoil_tests::wire::{META_KEY, meta, post};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a state says.
const STATE: &str = r#"{"o":"op_01K8Z5T7QH4N0V8W2X6Y9ABCDE","r":2}"#;
/// What it is bound to.
const ARGUMENTS: &str =
    r#"{"amount":1250,"order":"order-1001","text":"the quick brown fox jumps over the lazy dog"}"#;
/// Tasks that are asked for, and connections that ask.
const TASKS: usize = 64;
const LIMIT: Duration = Duration::from_secs(10);
/// The word for all of these figures.
pub const ALL: &str = "state";
const ACCEPT: &str = "application/json, text/event-stream";

/// All of these figures, or those that are wanted.
///
/// # Errors
/// A side does not run, or a server does not start or answers wrongly.
pub fn all(figures: &mut Figures, extent: Extent, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
    let any = |names: &[&str]| wanted(ALL) || names.iter().any(|name| wanted(name));
    if any(&["seal_open_per_s", "seal_open_vs_python"]) {
        sealing(figures, extent)?;
    }
    if any(&["round_added_ms", "round_added_kept_ms", "round_added_vs_python"]) {
        rounds(figures, extent)?;
    }
    if any(&["tasks_polled_per_s", "tasks_polled_done_per_s"]) {
        polled(figures, extent)?;
    }
    Ok(())
}

/// `seal_open_per_s`, `seal_open_vs_python`.
///
/// # Errors
/// A side does not run.
fn sealing(figures: &mut Figures, extent: Extent) -> Result<()> {
    let python = build_dir()?.join("bench/py");
    let rate = |command: &mut Command| -> Result<f64> {
        command.arg(extent.each.as_secs_f64().to_string()).args([STATE, ARGUMENTS]);
        let out = run(command, extent.each + Duration::from_secs(30))?;
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let value: Value = serde_json::from_str(said.trim()).unwrap_or_default();
        let shown = || format!("no rate: {said}{}", String::from_utf8_lossy(&out.stderr));
        value["per_second"].as_f64().with_context(shown)
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for n in 0..PAIRS {
        let mut us = || rate(&mut Command::new(beside("seal_rate")?)).map(|r| ours.push(r));
        let mut them = || {
            let mut command = Command::new(python.join("venv/bin/python"));
            rate(command.arg(python.join("state.py"))).map(|r| theirs.push(r))
        };
        if n % 2 == 0 {
            us()?;
            them()?;
        } else {
            them()?;
            us()?;
        }
    }
    let ratios = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
    let behind = format!("python {:.0}/s", median(theirs.clone()));
    figures.add("seal_open_per_s", median(ours), "one core; a round: fingerprint, opened, sealed anew");
    figures.add("seal_open_vs_python", median(ratios), &behind);
    Ok(())
}

/// One connection to a server.
struct Caller {
    addr: SocketAddr,
    connection: Connection,
}

/// A text of its own for each call of this process, which is its key, too.
fn own() -> String {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    format!("call-{}-{}", std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed))
}

impl Caller {
    fn open(addr: SocketAddr) -> Result<Caller> {
        Ok(Caller { addr, connection: Connection::open(addr, LIMIT)? })
    }

    fn request(&self, tool: &str, own: &str, more: &[(&str, &Value)]) -> Vec<u8> {
        let can =
            json!({ "elicitation": { "form": {} }, "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let all = json!({ "io.modelcontextprotocol/clientCapabilities": can, META_KEY: own });
        let mut params = json!({ "name": tool, "arguments": { "text": own }, "_meta": meta(&all) });
        for (name, value) in more {
            params[*name] = (*value).clone();
        }
        post(self.addr, "1", "tools/call", Some(tool), &params, ACCEPT, &[])
    }

    /// Calls a tool and answers what it asks until it has a result: that, how often it was asked, and how long its requests
    /// took.
    fn call(&mut self, tool: &str) -> Result<(Value, usize, Duration)> {
        let own = own();
        let mut bytes = self.request(tool, &own, &[]);
        let mut took = Duration::ZERO;
        for rounds in 0..4 {
            let began = Instant::now();
            let reply = self.connection.exchange(&bytes)?;
            took += began.elapsed();
            let message: Value = serde_json::from_str(&reply.message()).unwrap_or_default();
            let result = &message["result"];
            if result["resultType"] != "input_required" {
                ensure!(result.is_object() && result["isError"] != true, "{tool}: {message}");
                return Ok((result.clone(), rounds, took));
            }
            let asked = result["inputRequests"].as_object().context("questions")?;
            let answer = |of: &Value| {
                let fields = of["params"]["requestedSchema"]["properties"].as_object();
                let names = fields.into_iter().flatten().map(|(name, _)| (name.clone(), json!("me")));
                json!({ "action": "accept", "content": names.collect::<serde_json::Map<_, _>>() })
            };
            let answers: Value = asked
                .iter()
                .map(|(key, of)| (key.clone(), answer(of)))
                .collect::<serde_json::Map<_, _>>()
                .into();
            bytes = self.request(
                tool,
                &own,
                &[("inputResponses", &answers), ("requestState", &result["requestState"])],
            );
        }
        bail!("{tool} does not stop asking")
    }
}

/// What each of two rounds adds to a call, in milliseconds, and what the call without them takes: medians of calls in
/// turn.
fn added(server: &Server, plain: &str, asking: &str, lasting: Duration) -> Result<(f64, f64)> {
    let mut caller = Caller::open(server.addr)?;
    let mut took = [Vec::new(), Vec::new()];
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let mut one = |n: usize| -> Result<f64> {
        let (tool, rounds) = if n == 0 { (plain, 0) } else { (asking, 2) };
        let (result, asked, time) = caller.call(tool)?;
        ensure!(asked == rounds, "{tool} asked {asked} times: {result}");
        Ok(ms(time))
    };
    for _ in 0..20 {
        one(0)?;
        one(1)?;
    }
    let began = Instant::now();
    while began.elapsed() < lasting {
        for (n, all) in took.iter_mut().enumerate() {
            all.push(one(n)?);
        }
    }
    let [without, with] = took.map(median);
    Ok(((with - without) / 2.0, without))
}

/// `round_added_ms`, `round_added_kept_ms`, `round_added_vs_python`.
///
/// # Errors
/// A server does not start or answers wrongly.
fn rounds(figures: &mut Figures, extent: Extent) -> Result<()> {
    let folder = TempDir::with_prefix("counterfoil-bench-")?;
    let (ours, theirs) = (asks(folder.path())?, peers::python(folder.path())?);
    let mut read = Vec::new();
    let mut kept = Vec::new();
    let mut python = Vec::new();
    for _ in 0..PAIRS {
        read.push(added(&ours, "echo", "two_rounds", extent.each)?);
        python.push(added(&theirs, "echo", "two_rounds", extent.each)?);
        kept.push(added(&ours, "kept", "kept_two_rounds", extent.each)?);
    }
    let of = |all: &[(f64, f64)]| {
        let part = |f: fn(&(f64, f64)) -> f64| median(all.iter().map(f).collect());
        (part(|a| a.0), part(|a| a.1))
    };
    let ratio = median(read.iter().zip(&python).map(|(a, b)| b.0 / a.0).collect());
    let ((read, read_call), (kept, kept_call), (python, python_call)) = (of(&read), of(&kept), of(&python));
    figures.add("round_added_ms", read, &format!("to a reading call of {read_call:.3} ms"));
    figures.add(
        "round_added_kept_ms",
        kept,
        &format!("to a call of {kept_call:.3} ms that the ledger keeps"),
    );
    let behind = format!("python {python:.3} ms, to a call of {python_call:.3} ms");
    figures.add("round_added_vs_python", ratio, &behind);
    Ok(())
}

fn asks(folder: &Path) -> Result<Server> {
    let mut command = Command::new(beside("asks")?);
    Server::start(command.arg(folder.join("asks")), &folder.join("asks.log"))
}

/// `tasks_polled_per_s`, `tasks_polled_done_per_s`, each with the CPU of one.
///
/// # Errors
/// A server does not start or answers wrongly.
fn polled(figures: &mut Figures, extent: Extent) -> Result<()> {
    let folder = TempDir::with_prefix("counterfoil-bench-")?;
    let server = asks(folder.path())?;
    for (figure, tool, sign) in
        [("tasks_polled_per_s", "waits", "\"working\""), ("tasks_polled_done_per_s", "done", "\"completed\"")]
    {
        let mut caller = Caller::open(server.addr)?;
        let all = (0..TASKS).map(|_| poll(&mut caller, tool, sign)).collect::<Result<Vec<_>>>()?;
        let servers: Vec<_> = all.into_iter().map(|ask| (server.addr, ask)).collect();
        let wait = Instant::now();
        for (addr, ask) in &servers {
            while let Err(e) = load::try_one(*addr, ask) {
                ensure!(wait.elapsed() < LIMIT, "{tool}: {e:#}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let lasting = |each| load::run_over(&servers, &[server.pid()], TASKS, each);
        lasting(extent.each / 2)?;
        let each = (0..PAIRS).map(|_| lasting(extent.each)).collect::<Result<Vec<_>>>()?;
        let o = runs::middle(&each);
        let behind = format!("{:.0} us CPU, {:.2} ms p50, {:.2} ms p99", o.cpu_us, o.p50_ms, o.p99_ms);
        figures.add(figure, o.per_second, &behind);
    }
    Ok(())
}

/// A request for a task of its own, made now.
fn poll(caller: &mut Caller, tool: &str, sign: &str) -> Result<Ask> {
    let (result, ..) = caller.call(tool)?;
    let id = result["taskId"].as_str().or(result["task"]["taskId"].as_str());
    let id = id.with_context(|| format!("{tool} is no task: {result}"))?;
    let can = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let all = meta(&json!({ "io.modelcontextprotocol/clientCapabilities": can }));
    let params = json!({ "taskId": id, "_meta": all });
    Ok(Ask::new(post(caller.addr, "1", "tasks/get", Some(id), &params, ACCEPT, &[]), sign))
}
