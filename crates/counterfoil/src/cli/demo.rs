//! `demo`: a refund's reply is lost, the gateway is killed, the call is retried; what counts is what the provider
//! counted. Real processes of this program, a real provider, a directory of its own.

use super::caller::{Caller, new_key};
use super::fail::{Done, Fail, REFUSED};
use super::http::ask;
use super::naive::Naive;
use super::out::Out;
use ::http::Method;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Keep the demo's directory (ledger, logs) instead of removing it
    #[arg(long)]
    keep: bool,
}

/// How long a process may take until it is ready.
const READY: Duration = Duration::from_secs(20);
/// How long the provider may take to apply what was sent.
const APPLIED: Duration = Duration::from_secs(10);

pub(super) async fn run(args: &Args, out: &Out) -> Done {
    let begun = Instant::now();
    let dir = directory()?;
    let told = tell(&dir, out).await;
    if let (Err(_), false) = (&told, args.keep) {
        for log in ["gateway.log", "sandbox.log"] {
            let text = std::fs::read_to_string(dir.join(log)).unwrap_or_default();
            let last: Vec<&str> = text.lines().rev().take(5).collect();
            for line in last.iter().rev() {
                eprintln!("{log}: {line}");
            }
        }
    }
    if args.keep {
        eprintln!("counterfoil: the demo's directory is {}", dir.display());
    } else {
        let _ = std::fs::remove_dir_all(&dir);
    }
    let (ours, naive) =
        told.map_err(|why| Fail::unavailable(format!("the demo could not be played: {why}")))?;
    let right = ours == 1 && naive == 2;
    let seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    out.document(&json!({ "counterfoil": ours, "naive": naive, "asExpected": right, "seconds": seconds }));
    out.say("");
    let count = |n: i64, good: bool| if good { out.good(&n.to_string()) } else { out.bad(&n.to_string()) };
    out.say(format!("  {}  refund through Counterfoil", count(ours, ours == 1)));
    out.say(format!("  {}  refunds through the naive server", count(naive, naive == 1)));
    out.say("");
    if right {
        out.say(format!(
            "One refund was asked for, each time. ({seconds} s)  Try it yourself: `{} serve`",
            super::serve::program()
        ));
        Ok(0)
    } else {
        Err(Fail {
            code: REFUSED,
            kind: "unexpected".into(),
            message: format!("the provider counted {ours} and {naive}; 1 and 2 were expected"),
            detail: None,
        })
    }
}

fn directory() -> Result<PathBuf, Fail> {
    use std::os::unix::fs::DirBuilderExt as _;
    let key = new_key().map_err(Fail::unavailable)?;
    let dir = std::env::temp_dir().join(format!("counterfoil-demo-{}", &key[..8]));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .map_err(|e| Fail::unavailable(format!("{} can't be made: {e}", dir.display())))?;
    Ok(dir)
}

/// A process of this program, and what it said when it was ready. It dies with its handle.
struct Process {
    child: Child,
    ready: Value,
}

impl Process {
    async fn start(dir: &Path, log: &str, args: &[&str]) -> Result<Process, String> {
        let program = std::env::current_exe().map_err(|e| format!("this program can't be found: {e}"))?;
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.join(log))
            .map_err(|e| e.to_string())?;
        // Settings of the surroundings are not the demo's.
        let foreign: Vec<_> = std::env::vars_os()
            .map(|(k, _)| k)
            .filter(|k| k.to_string_lossy().starts_with("COUNTERFOIL_"))
            .collect();
        let mut command = Command::new(program);
        for name in foreign {
            command.env_remove(name);
        }
        let mut child = command
            .args(args)
            .arg("--json")
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| format!("a process can't be started: {e}"))?;
        let stdout = child.stdout.take().ok_or("a process has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(READY, lines.next_line())
            .await
            .map_err(|_| format!("`{}` was not ready in time", args[0]))?;
        let line = line
            .map_err(|e| e.to_string())?
            .ok_or_else(|| format!("`{}` ended before it was ready", args[0]))?;
        let ready = serde_json::from_str(&line)
            .map_err(|e| format!("`{}` said something else than JSON: {e}", args[0]))?;
        Ok(Process { child, ready })
    }

    /// SIGKILL: nothing is flushed, nobody says goodbye.
    async fn kill(mut self) -> Result<u32, String> {
        let pid = self.child.id().unwrap_or_default();
        self.child.kill().await.map_err(|e| e.to_string())?;
        Ok(pid)
    }
}

fn address(url: &Value) -> Result<SocketAddr, String> {
    url.as_str()
        .and_then(|u| u.strip_prefix("http://"))
        .and_then(|u| u.split('/').next())
        .and_then(|a| a.parse().ok())
        .ok_or_else(|| format!("{url} is not an address"))
}

/// What the provider really did for an order.
async fn effects(provider: SocketAddr, order: &str) -> Result<i64, String> {
    let (_, counted) =
        ask(provider, Method::GET, &format!("/_sandbox/effects?object={order}"), &[], None).await?;
    counted["total"].as_i64().ok_or_else(|| format!("the provider's count can't be read: {counted}"))
}

async fn arm(provider: SocketAddr, fault: &str) -> Result<(), String> {
    let rule = json!({ "on": "POST /v1/refunds", "do": fault, "times": 1 });
    match ask(provider, Method::POST, "/_sandbox/rules", &[], Some(&rule)).await? {
        (status, _) if status.is_success() => Ok(()),
        (status, why) => Err(format!("the fault can't be armed ({status}): {why}")),
    }
}

async fn tell(dir: &Path, out: &Out) -> Result<(i64, i64), String> {
    let step = |who: &str, what: &str| out.say(format!("{} {what}", out.bold(&format!("{who:<11}"))));
    let sandbox =
        Process::start(dir, "sandbox.log", &["sandbox", "--listen", "127.0.0.1:0", "--data", "provider"])
            .await?;
    let provider = address(&sandbox.ready["sandbox"])?;
    step("provider", &format!("a payments API with real effects and a counter, http://{provider}"));
    let at = provider.to_string();
    let gateway = Process::start(
        dir,
        "gateway.log",
        &["serve", "--listen", "127.0.0.1:0", "--data", "data", "--sandbox-listen", &at],
    )
    .await?;
    let endpoint = gateway.ready["endpoint"].as_str().unwrap_or_default().to_owned();
    let listen = address(&gateway.ready["endpoint"])?.to_string();
    step("gateway", &format!("Counterfoil in front of it, {endpoint}"));
    out.say("");

    let caller = || Caller::new(&endpoint, None, ::http::HeaderMap::new(), Duration::from_secs(30), 30);
    let quiet = |_: &str| {};
    let paid = caller()?
        .call("payments_payments_create", r#"{"amount":5000,"currency":"eur"}"#, &new_key()?, &quiet)
        .await
        .map_err(|p| format!("{p:?}"))?;
    let payment = paid.result["structuredContent"]["id"]
        .as_str()
        .ok_or_else(|| format!("the payment can't be read: {}", paid.result))?
        .to_owned();
    step("client", &format!("creates a payment of 50.00 EUR: {payment}"));

    arm(provider, "apply_then_hang").await?;
    step("provider", "will apply the next refund, and never answer it");
    let key = new_key()?;
    let arguments = json!({ "payment": payment, "amount": 2000, "order_id": "order-1001" }).to_string();
    step(
        "client",
        &format!("refunds 20.00 EUR of order-1001 (one call, its client makes the key {}…)", &key[..8]),
    );
    let heard = Arc::new(Mutex::new(Vec::new()));
    let client = {
        let (caller, arguments, key, heard) = (caller()?, arguments.clone(), key.clone(), heard.clone());
        tokio::spawn(async move {
            let say = |text: &str| {
                if let Ok(mut heard) = heard.lock() {
                    heard.push(text.to_owned());
                }
            };
            caller.call("payments_refunds_create", &arguments, &key, &say).await
        })
    };
    let since = Instant::now();
    while effects(provider, "order-1001").await? == 0 {
        if since.elapsed() > APPLIED || client.is_finished() {
            return Err("the refund never reached the provider".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    step("provider", "has paid 20.00 EUR back; the reply is lost");
    let pid = gateway.kill().await?;
    step("gateway", &format!("kill -9 {pid}: it dies with the request out and no answer stored"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let gateway = Process::start(
        dir,
        "gateway.log",
        &["serve", "--listen", &listen, "--data", "data", "--sandbox-listen", &at],
    )
    .await?;
    step(
        "gateway",
        "started again: it finds the request in its ledger, and sends the same bytes under the same key",
    );
    let refunded = tokio::time::timeout(Duration::from_secs(60), client)
        .await
        .map_err(|_| "the client got no answer")?;
    let refunded = refunded.map_err(|e| e.to_string())?.map_err(|p| format!("{p:?}"))?;
    let refund = refunded.result["structuredContent"]["id"]
        .as_str()
        .ok_or_else(|| format!("the refund can't be read: {}", refunded.result))?
        .to_owned();
    if let Some(first) = heard.lock().ok().and_then(|h| h.first().cloned()) {
        step("client", &format!("lost its connection ({first})"));
    }
    step("client", &format!("has its answer after {} tries of the same call: {refund}", refunded.sends));
    let again = caller()?
        .call("payments_refunds_create", &arguments, &key, &quiet)
        .await
        .map_err(|p| format!("{p:?}"))?;
    if again.result["structuredContent"]["id"] != refund.as_str() {
        return Err(format!("the same call was answered differently: {}", again.result));
    }
    step("client", "asks once more, to be sure: the same answer, from the ledger");
    let ours = effects(provider, "order-1001").await?;
    step("provider", &format!("counter for order-1001: {ours}"));
    out.say("");

    let naive = Naive::start(provider).await.map_err(|e| e.to_string())?;
    arm(provider, "apply_then_cut").await?;
    step("naive", "a server without a ledger: calls the provider, and calls it again when no answer comes");
    step("provider", "will apply the next refund, and cut the connection");
    let body = json!({ "payment": payment, "amount": 500, "order_id": "order-1002" });
    let (status, answer) = ask(naive.at, Method::POST, "/refund", &[], Some(&body)).await?;
    if !status.is_success() {
        return Err(format!("the naive server failed: {answer}"));
    }
    step(
        "client",
        &format!("refunds 5.00 EUR of order-1002, once: {}", answer["answer"]["id"].as_str().unwrap_or("-")),
    );
    let theirs = effects(provider, "order-1002").await?;
    step("provider", &format!("counter for order-1002: {theirs}"));
    drop((gateway, sandbox));
    Ok((ours, theirs))
}
