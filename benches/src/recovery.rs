//! A restart with many open operations: each has left its intent and no receipt, as after a kill in the middle of
//! everything.

use crate::peers::{Ledgered, metric};
use crate::stored::fill;
use anyhow::{Context, Result, bail};
use counterfoil_tests::wire::Call;
use serde_json::json;
use std::io::Write;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long all may take.
const WITHIN: Duration = Duration::from_secs(120);
/// Counts what was taken up again of what had left its intent and no receipt.
const TAKEN_UP: &str = "counterfoil_recovered_windows_total{word=\"intent_without_receipt\"}";
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);

/// How long a restart took, from the start of the process.
#[derive(Clone, Copy, Debug)]
pub struct Recovered {
    /// Until all had been taken up again, in milliseconds.
    pub resumed_ms: f64,
    /// Until none was open any more, in milliseconds.
    pub settled_ms: f64,
}

/// Leaves one open operation behind, opens it `count` times more under other keys, and starts again.
///
/// # Errors
/// A server does not start, or the operations are not settled in time.
pub fn restart(count: usize) -> Result<Recovered> {
    let (project, provider, sandbox) = Ledgered::provider()?;
    let rules = |method, body: Option<_>| {
        let reply = counterfoil_tests::http::json(sandbox, method, "/_sandbox/rules", body.as_ref())?;
        if reply.status == 200 { Ok(()) } else { bail!("the provider refused a rule: {}", reply.text()) }
    };
    rules("POST", Some(json!({ "on": "POST /v1/refunds", "do": "hang" })))?;
    let mut left = Ledgered::with(project, provider, sandbox)?;
    let call = Call::new("payments_refunds_create", json!({ "payment": "pay_demo_restart", "amount": 10 }))
        .keyed("restart-first");
    let mut client = TcpStream::connect(left.gateway.addr)?;
    client.write_all(&call.bytes(left.gateway.addr))?;
    let began = Instant::now();
    while left.metric("counterfoil_operations{state=\"running\"}")? < 1.0 {
        if began.elapsed() > WITHIN {
            bail!("the call was not opened: {}", left.project.gateway_said());
        }
        sleep(LOOK);
    }
    left.gateway.process.kill();
    rules("DELETE", None)?;
    let Ledgered { provider, mut project, .. } = left;
    fill("open", &project.data().join("ledger.db"), count)?;
    let began = Instant::now();
    let mut gateway = project.gateway(None)?;
    let mut resumed = None;
    let all = count as f64 + 1.0;
    let settled = loop {
        if began.elapsed() > WITHIN {
            bail!("not everything was settled within {WITHIN:?}: {}", project.gateway_said());
        }
        let taken = metric(gateway.addr, TAKEN_UP)?;
        if taken >= all && resumed.is_none() {
            resumed = Some(began.elapsed());
        }
        let open = metric(gateway.addr, "counterfoil_operations{state=\"running\"}")?;
        if resumed.is_some() && open < 1.0 {
            break began.elapsed();
        }
        sleep(LOOK);
    };
    let completed = metric(gateway.addr, "counterfoil_operations{state=\"completed\"}")?;
    if completed < all {
        bail!("{completed} of {all} operations were completed");
    }
    gateway.process.kill();
    drop(provider);
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    Ok(Recovered { resumed_ms: ms(resumed.context("none was resumed")?), settled_ms: ms(settled) })
}
