//! Every replica is restarted in order, one after the other, while callers call: no call fails, and no session ends.

use super::super::{Broken, Game, Struck};
use crate::session::Session;
use crate::stand::{AMOUNT, Class};
use crate::torture::actor::Leave;
use crate::torture::lane::CLIENT_LIMIT;
use crate::wire::{self, Call, Said};
use anyhow::{Result, anyhow};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How many call meanwhile.
const CALLERS: usize = 3;

/// Before the end of each: longer than nginx passes over a replica that it could not reach (`fail_timeout` of the recipe),
/// as whoever restarts replicas must leave. Before the first, too: in the round before this one others may have been killed.
const BETWEEN: Duration = Duration::from_millis(2200);

/// What one of the callers did: its orders, and those that had no result at once, with what it was told.
type Made = (Vec<String>, Vec<(String, Said)>);

fn call_on(front: SocketAddr, class: Class, name: &str, over: &AtomicBool) -> Made {
    let (mut orders, mut failed) = (Vec::new(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        let order = format!("{name}_{}", orders.len());
        let call = Call::new(&class.tool(), class.arguments(&order)).keyed(&order);
        let said = wire::call(front, CLIENT_LIMIT, &call);
        if !matches!(said, Said::Result { is_error: false, .. }) {
            failed.push((order.clone(), said));
        }
        orders.push(order);
        thread::sleep(Duration::from_millis(10));
    }
    (orders, failed)
}

/// Nothing ran, says the gateway.
fn was_refused(said: &Said) -> bool {
    matches!(said, Said::Error { kind, .. } if kind == "unavailable")
}

/// The same call again, as the refusal advises, has its result.
fn has_result_later(front: SocketAddr, class: Class, order: &str) -> bool {
    let call = Call::new(&class.tool(), class.arguments(order)).keyed(order);
    (0..10).any(|_| {
        let said = wire::call(front, CLIENT_LIMIT, &call);
        if was_refused(&said) {
            thread::sleep(Duration::from_millis(300));
        }
        matches!(said, Said::Result { is_error: false, .. })
    })
}

impl Game<'_> {
    /// How often replicas were too late to renew their lease: where the machine has no time for them, each refuses calls
    /// until it has a new one, and no restart is to blame for that.
    fn lapses(&mut self) -> Result<usize> {
        let logs = self.replicas()?.logs();
        let mut lapses = 0;
        for log in logs {
            lapses +=
                std::fs::read_to_string(log)?.matches(" was over; this replica goes on under epoch ").count();
        }
        Ok(lapses)
    }

    pub(super) fn rolling(&mut self) -> Result<Struck> {
        let (front, class) = (self.lane.addr(), self.round.class);
        let session = Session::open(front)?;
        let lapses = self.lapses()?;
        let over = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..CALLERS)
            .map(|n| {
                let (over, name) = (over.clone(), format!("{}_{n}", self.round.order(self.seed)));
                thread::spawn(move || call_on(front, class, &name, &over))
            })
            .collect();
        let restarted = self.restart_each();
        over.store(true, Ordering::Relaxed);
        let (mut made, mut failed) = (Vec::new(), Vec::new());
        for caller in callers {
            let (orders, refused) = caller.join().map_err(|_| anyhow!("a caller's thread"))?;
            made.extend(orders);
            failed.extend(refused);
        }
        restarted?;
        self.actor.tell(&format!("{} calls meanwhile", made.len()));
        if self.lapses()? > lapses {
            failed.retain(|(order, said)| !was_refused(said) || !has_result_later(front, class, order));
        }
        if !failed.is_empty() {
            let first: Vec<String> =
                failed.iter().take(3).map(|(order, said)| format!("{order}: {}", said.at_length())).collect();
            let what = format!("{} of {} calls failed: {}", failed.len(), made.len(), first.join("; "));
            self.broke(Broken::Answer, what);
        }
        for order in &made {
            let (effects, refunded) = self.lane.sandbox.count(class, order)?;
            // What was told that it failed may have none.
            if effects == 0 && failed.iter().any(|(failed, _)| failed == order) {
                continue;
            }
            if (effects, refunded) != (1, AMOUNT) {
                let broken = if effects > 1 { Broken::Duplicate } else { Broken::Lost };
                self.broke(broken, format!("{order}: {effects} effects, {refunded} refunded"));
            }
        }
        let listed = session.ask(front, "tools/list", json!({}))?;
        if listed.status != 200 {
            self.broke(Broken::Lost, format!("the session ended: {} {}", listed.status, listed.text()));
        }
        let flight = self.actor.begin(self.lane, Leave::No)?;
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(!made.is_empty(), Some(said)))
    }

    fn restart_each(&mut self) -> Result<()> {
        let (cluster, project) = self.lane.cluster()?;
        for n in 0..cluster.replicas.len() {
            thread::sleep(BETWEEN);
            cluster.terminate(n)?;
            cluster.revive(project, n)?;
            cluster.all_ready(Duration::from_secs(10))?;
        }
        Ok(())
    }
}
