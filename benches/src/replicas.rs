//! Replicas on one PostgreSQL: the server is a new one with its data on the project's disk, and waits for it.

use crate::figures::{Figures, median};
use crate::load::{self, Ask, Outcome, UNIQUE};
use crate::peers::{Ledgered, beside, metric};
use crate::runs::{PAIRS, middle};
use crate::streams;
use anyhow::{Context, Result, bail};
use counterfoil_tests::process::{Process, fixture, free_address, run};
use counterfoil_tests::session::{TOOLS_CHANGED, listen, told};
use counterfoil_tests::stand::{Class, Project};
use counterfoil_tests::wire::{Call, ask};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use temp_postgres::{Options, TempPostgres};

/// The variable that the configuration takes the database's address from.
const LEDGER: &str = "COUNTERFOIL_LEDGER";
/// The variable that sets the master key, and the key.
const MASTER: [&str; 2] = ["COUNTERFOIL__SEAL__MASTER", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="];
const CALLERS: [usize; 3] = [1, 16, 64];
/// The lease of the figure about takeover; all others are taken with the default.
const SHORT_LEASE: &str = "1s";
/// Changes that are told, to see how long it takes.
const CHANGES: usize = 101;
/// How long anything may take.
const WITHIN: Duration = Duration::from_secs(60);
/// Counts what was taken up again of what had left its intent and no receipt.
const TAKEN_UP: &str = "counterfoil_recovered_windows_total{word=\"intent_without_receipt\"}";

/// A database server as an operator has it: nothing about durability is turned off.
fn server() -> TempPostgres {
    let settings = [
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("shared_buffers", "1GB"),
        ("max_wal_size", "4GB"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    TempPostgres::start(Options { fsync: true, settings })
}

struct Replica {
    process: Process,
    addr: SocketAddr,
}

/// Replicas of the gateway, the provider that they send to, and their folder.
struct Replicas {
    all: Vec<Replica>,
    project: Project,
    sandbox: SocketAddr,
    _provider: Process,
}

impl Replicas {
    fn start(postgres: &TempPostgres, count: usize, lease: &str) -> Result<Replicas> {
        Replicas::start_with(postgres, count, lease, "")
    }

    /// The same with more configuration at its end.
    fn start_with(postgres: &TempPostgres, count: usize, lease: &str, more: &str) -> Result<Replicas> {
        let (mut project, provider, sandbox) = Ledgered::provider()?;
        let config = format!(
            "[server]\nname = \"bench\"\n\n[ledger]\nurl = \"${{env:{LEDGER}}}\"\nlease = \"{lease}\"\n\n[[integration]]\nname = \"key\"\nmanifest = \"key.toml\"\n{more}"
        );
        std::fs::write(project.path().join("counterfoil.toml"), config)?;
        let manifest = Class::Key.manifest(sandbox).replace("send = \"500ms\"", "send = \"10s\"");
        std::fs::write(project.path().join("key.toml"), manifest)?;
        project.environment.push((LEDGER.into(), postgres.url(&postgres.database())));
        project.environment.push((MASTER[0].into(), MASTER[1].into()));
        let mut replicas = Replicas { all: Vec::new(), project, sandbox, _provider: provider };
        for _ in 0..count {
            replicas.add()?;
        }
        Ok(replicas)
    }

    fn add(&mut self) -> Result<()> {
        let listen = free_address()?.to_string();
        let command = self.project.command(&["serve", "--json", "--listen", &listen])?;
        self.all.push(replica(command, &self.project, &listen)?);
        Ok(())
    }

    fn asks(&self) -> Vec<(SocketAddr, Ask)> {
        let arguments = json!({ "payment": format!("pay_demo_{UNIQUE}"), "amount": 100, "order_id": UNIQUE });
        let call = Call::new(&Class::Key.tool(), arguments).keyed(UNIQUE);
        let ask = |r: &Replica| (r.addr, Ask::new(call.bytes(r.addr), "\"isError\":false"));
        self.all.iter().map(ask).collect()
    }

    fn pids(&self) -> Vec<u32> {
        self.all.iter().map(|r| r.process.pid()).collect()
    }

    fn rules(&self, method: &str, body: Option<&Value>) -> Result<()> {
        let reply = counterfoil_tests::http::json(self.sandbox, method, "/_sandbox/rules", body)?;
        if reply.status == 200 { Ok(()) } else { bail!("the provider refused a rule: {}", reply.text()) }
    }
}

fn replica(mut command: Command, project: &Project, listen: &str) -> Result<Replica> {
    let name = listen.replace([':', '.'], "-");
    command.arg("--data").arg(project.path().join(&name));
    let mut process = Process::start(&mut command, &project.path().join(format!("{name}.log")))?;
    process.ready().with_context(|| process.said())?;
    Ok(Replica { process, addr: listen.parse()? })
}

/// `pg_calls_per_s_R_N`, `pg_p50_ms_R_N`, `pg_p99_ms_R_N`: refunds with R replicas and N connections, which are dealt out
/// among the replicas in turn.
///
/// # Errors
/// Something does not start or answers wrongly.
pub fn calls(figures: &mut Figures, each: Duration) -> Result<()> {
    let postgres = server();
    for count in 1..=3 {
        let replicas = Replicas::start(&postgres, count, "15s")?;
        let (asks, pids) = (replicas.asks(), replicas.pids());
        asks.iter().try_for_each(|(addr, ask)| load::try_one(*addr, ask).map(|_| ()))?;
        load::run_over(&asks, &[], 16, each)?;
        for callers in CALLERS {
            let all = (0..PAIRS).map(|_| load::run_over(&asks, &pids, callers, each));
            let o: Outcome = middle(&all.collect::<Result<Vec<_>>>()?);
            let behind = format!("{:.0} us CPU of all replicas a call", o.cpu_us);
            figures.add(&format!("pg_calls_per_s_{count}_{callers}"), o.per_second, &behind);
            figures.add(&format!("pg_p50_ms_{count}_{callers}"), o.p50_ms, "");
            figures.add(&format!("pg_p99_ms_{count}_{callers}"), o.p99_ms, "");
        }
    }
    Ok(())
}

/// `pg_ledger_vs_pgbench_64`: the store alone, as its example measures it, beside pgbench on the same server.
///
/// # Errors
/// It does not run.
pub fn floor(figures: &mut Figures, each: Duration) -> Result<()> {
    let mut command = Command::new(beside("throughput")?);
    command.args(["pairs", "64", &each.as_secs().to_string(), &PAIRS.to_string()]);
    let out = run(&mut command, Duration::from_secs(900))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let last: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_default();
    let of = |name: &str| {
        last[name].as_f64().with_context(|| format!("no {name}: {}", String::from_utf8_lossy(&out.stderr)))
    };
    let behind = format!(
        "store {:.0} operations/s, {:.1} writes a commit; pgbench {:.0}/s; pairs {:.2} to {:.2}",
        of("store_per_second")?,
        of("writes_a_commit")?,
        of("pgbench_per_second")?,
        of("least")?,
        of("most")?
    );
    figures.add("pg_ledger_vs_pgbench_64", of("ratio")?, &behind);
    Ok(())
}

/// `listen_kb`: what an open `subscriptions/listen` stream takes at one of two replicas. `notify_p50_ms`: from the call of
/// a tool at one replica, which tells of a change, until a stream at the other has heard of it.
///
/// # Errors
/// Something does not start or answers wrongly.
pub fn news(figures: &mut Figures) -> Result<()> {
    let postgres = server();
    let replicas = Replicas::start_with(&postgres, 2, "15s", streams::AUTH)?;
    let r = replicas.all.first().context("no replica")?;
    figures.add("listen_kb", streams::kb(&replicas.project, r.addr, r.process.pid())?, "");
    drop(replicas);

    let mut project = Project::empty()?;
    let config = format!("[server]\nname = \"bench\"\n\n[ledger]\nurl = \"${{env:{LEDGER}}}\"\n");
    std::fs::write(project.path().join("counterfoil.toml"), config)?;
    project.environment.push((LEDGER.into(), postgres.url(&postgres.database())));
    project.environment.push((MASTER[0].into(), MASTER[1].into()));
    let start = || {
        let (binary, listen) = (fixture()?, free_address()?.to_string());
        let mut command = Command::new(binary);
        command.current_dir(project.path()).args(["--config", "counterfoil.toml", "--listen", &listen]);
        command.envs(project.environment.iter().map(|(name, value)| (name, value)));
        replica(command, &project, &listen)
    };
    let (one, other) = (start()?, start()?);
    let mut stream = listen(other.addr, &json!({ "toolsListChanged": true }))?;
    let mut took = Vec::new();
    for n in 1..=CHANGES {
        let began = Instant::now();
        let params = json!({ "name": "test_trigger_tool_change", "arguments": {} });
        let answer = ask(one.addr, "tools/call", Some("test_trigger_tool_change"), params)?;
        if !answer["result"].is_object() {
            bail!("no change was made: {answer}");
        }
        stream.until(WITHIN, |s| told(s, TOOLS_CHANGED) >= n)?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
        // Each by itself: changes that come together are told once.
        sleep(Duration::from_millis(20));
    }
    took.sort_by(f64::total_cmp);
    let behind = format!("99 of 100 within {:.1} ms", took[took.len() * 99 / 100]);
    figures.add("notify_p50_ms", median(took), &behind);
    Ok(())
}

/// `takeover_ms`: from SIGKILL of the replica that waits for the provider's answer until another one has taken the
/// operation over, with a lease of a second.
///
/// # Errors
/// Something does not start, or nobody takes over.
pub fn takeover(figures: &mut Figures) -> Result<()> {
    let postgres = server();
    let mut replicas = Replicas::start(&postgres, 3, SHORT_LEASE)?;
    let mut took = Vec::new();
    for n in 0..PAIRS {
        replicas.rules("POST", Some(&json!({ "on": Class::Key.on(), "do": "hang" })))?;
        let first = replicas.all.first().context("no replica")?.addr;
        let order = format!("takeover-{n}");
        let call = Call::new(&Class::Key.tool(), Class::Key.arguments(&order)).keyed(&order);
        let mut client = TcpStream::connect(first)?;
        client.write_all(&call.bytes(first))?;
        let open = "counterfoil_operations{state=\"running\"}";
        wait("the call to be opened", || Ok(metric(first, open)? >= 1.0))?;
        sleep(Duration::from_millis(100));
        replicas.rules("DELETE", None)?;
        let mut dead = replicas.all.remove(0);
        let taken = |replicas: &Replicas| -> Result<f64> {
            replicas.all.iter().map(|r| metric(r.addr, TAKEN_UP)).sum()
        };
        let before = taken(&replicas)?;
        let began = Instant::now();
        dead.process.kill();
        wait("another replica to take over", || Ok(taken(&replicas)? > before))?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
        let first = replicas.all.first().context("no replica")?.addr;
        wait("it to be settled", || Ok(metric(first, open)? < 1.0))?;
        replicas.add()?;
    }
    let (least, most) = took.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), t| (a.min(*t), b.max(*t)));
    let behind = format!("lease {SHORT_LEASE}; {least:.0} to {most:.0}");
    figures.add("takeover_ms", median(took), &behind);
    Ok(())
}

fn wait(what: &str, mut there: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !there()? {
        if began.elapsed() > WITHIN {
            bail!("waited in vain for {what}");
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}
