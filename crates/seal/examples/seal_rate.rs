//! How many states a second one thread seals and opens: one is what a call that waits for an answer carries, sealed for
//! one round and opened for the next.
//!
//! `cargo run --release -p counterfoil-seal --example seal_rate -- [--seconds N] [--bytes N] [--json]`
//!
//! Only figures of an optimised build on an idle machine mean anything.

#![allow(clippy::unwrap_used)]

use ledger::{Millis, Time};
use seal::{Context, Key, Ring};
use std::time::{Duration, Instant};

fn number(name: &str, default: u64) -> u64 {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|a| a == name);
    at.map_or(default, |at| {
        arguments.get(at + 1).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{name} takes a number"))
    })
}

fn main() {
    let (seconds, bytes) = (number("--seconds", 3), number("--bytes", 256));
    let now = Time(1_800_000_000_000);
    let ring = Ring::new(Key::new().unwrap(), now, Millis::secs(600)).unwrap();
    let context = Context {
        purpose: "state",
        audience: "billing",
        principal: "billing-agent",
        method: "tools/call",
        name: "payments.refunds.create",
        fingerprint: &[7; 32],
    };
    let fill = usize::try_from(bytes).unwrap().saturating_sub(8);
    let payload = format!("{{\"s\":\"{}\"}}", "x".repeat(fill));
    let (begun, limit) = (Instant::now(), Duration::from_secs(seconds));
    let (mut done, mut length) = (0u64, 0);
    while begun.elapsed() < limit {
        for _ in 0..100 {
            let token = ring.seal(payload.as_bytes(), &context, now, Millis::secs(600)).unwrap();
            assert_eq!(ring.open(&token, &context, now).unwrap(), payload.as_bytes());
            length = token.len();
            done += 1;
        }
    }
    #[allow(clippy::cast_precision_loss)]
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    if std::env::args().any(|a| a == "--json") {
        println!(
            "{{\"seal_open_per_s\":{rate:.0},\"payload_bytes\":{},\"token_bytes\":{length}}}",
            payload.len()
        );
    } else {
        println!("{rate:.0} a second sealed and opened, {} bytes in a token of {length}", payload.len());
    }
}
