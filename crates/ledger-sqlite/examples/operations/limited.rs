//! What limits cost: operations of callers who each claim before they open one and give back when it is closed, beside the
//! same without. For the examples of both stores.

use super::{Writes, operation};
use ledger::claims::{Claim, Claimed};
use ledger::store::{Committed, Store};
use ledger::words::Millis;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a call claims: a place and a part of a budget of one of so many allowances each; none with 0.
#[derive(Clone, Copy)]
struct Load {
    callers: usize,
    allowances: usize,
}

/// One operation: two writes that are waited for, and with limits a claim before and a return after them.
async fn life(s: &dyn Store, of: usize, limited: bool) {
    let now = s.now();
    let Writes { create, close, .. } = operation(s.epoch(), now);
    let id = create.operation().id;
    let names = ["place", "budget"].map(|kind| format!("{kind}-{of:032x}"));
    if limited {
        let until = now.plus(Millis::secs(75));
        let claims = names.clone().map(|bucket| Claim { bucket, amount: 1, cap: 1 << 40, until });
        assert_eq!(s.claim(id, 1, &claims).await.unwrap(), Claimed::Granted);
    }
    assert_eq!(s.write(create).await.unwrap(), Committed::Done);
    assert_eq!(s.write(close).await.unwrap(), Committed::Done);
    if limited {
        s.release_claims(id, 2, &names[..1]).await.unwrap();
    }
}

/// Operations a second, and how long the middle one and the slowest of a hundred took.
async fn run(s: &Arc<dyn Store>, load: Load, time: Duration) -> (f64, Duration, Duration) {
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let all: Vec<_> = (0..load.callers)
        .map(|c| {
            let (s, stop) = (s.clone(), stop.clone());
            tokio::spawn(async move {
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    life(&*s, c % load.allowances.max(1), load.allowances > 0).await;
                    took.push(begun.elapsed());
                }
                took
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut took = Vec::new();
    for caller in all {
        took.extend(caller.await.unwrap());
    }
    let rate = took.len() as f64 / begun.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |of_100: usize| took[(took.len() - 1) * of_100 / 100];
    (rate, at(50), at(99))
}

/// Each load in turn, as often as is said; the middle of the rates counts.
pub async fn measure(s: Arc<dyn Store>, time: Duration, rounds: usize) {
    println!(
        "{:>8} {:>12} {:>14} {:>10} {:>10}",
        "callers", "allowances", "operations/s", "p50 ms", "p99 ms"
    );
    run(&s, Load { callers: 16, allowances: 1 }, time / 4).await;
    for callers in [1, 16, 64] {
        let loads = [0, 1, 64].map(|allowances| Load { callers, allowances });
        let mut seen = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for (load, seen) in loads.iter().zip(&mut seen) {
                seen.push(run(&s, *load, time).await);
            }
        }
        for (load, mut seen) in loads.into_iter().zip(seen) {
            seen.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (rate, p50, p99) = seen[seen.len() / 2];
            let ms = |d: Duration| d.as_secs_f64() * 1000.0;
            println!("{callers:>8} {:>12} {rate:>14.0} {:>10.2} {:>10.2}", load.allowances, ms(p50), ms(p99));
        }
    }
}
