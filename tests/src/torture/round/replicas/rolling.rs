//! Every replica is restarted in order, one after the other, while callers call: no call fails, and no session ends.

use super::super::{Broken, Game, Struck};
use crate::session::Session;
use crate::stand::{AMOUNT, Class};
use crate::torture::actor::Leave;
use crate::torture::lane::CLIENT_LIMIT;
use crate::wire::{self, Call, Said};
use anyhow::Result;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How many call meanwhile.
const CALLERS: usize = 3;

/// Between the restart of one and the end of the next: longer than nginx passes over a replica that it could not reach
/// (`fail_timeout` of the recipe), as whoever restarts replicas must leave.
const BETWEEN: Duration = Duration::from_millis(2200);

/// What one of the callers did: its orders, and what was no result.
type Made = (Vec<String>, Vec<String>);

fn call_on(front: SocketAddr, class: Class, name: &str, over: &AtomicBool) -> Made {
    let (mut orders, mut failed) = (Vec::new(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        let order = format!("{name}_{}", orders.len());
        let call = Call::new(&class.tool(), class.arguments(&order)).keyed(&order);
        let said = wire::call(front, CLIENT_LIMIT, &call);
        if !matches!(said, Said::Result { is_error: false, .. }) {
            failed.push(format!("{order}: {}", said.brief()));
        }
        orders.push(order);
        thread::sleep(Duration::from_millis(10));
    }
    (orders, failed)
}

impl Game<'_> {
    pub(super) fn rolling(&mut self) -> Result<Struck> {
        let (front, class) = (self.lane.addr(), self.round.class);
        let session = Session::open(front)?;
        let over = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..CALLERS)
            .map(|n| {
                let (over, name) = (over.clone(), format!("{}_{n}", self.round.order(self.seed)));
                thread::spawn(move || call_on(front, class, &name, &over))
            })
            .collect();
        let restarted = self.restart_each();
        over.store(true, Ordering::Relaxed);
        let mut made = Vec::new();
        for caller in callers {
            let (orders, failed) = caller.join().unwrap_or_default();
            if !failed.is_empty() {
                let what =
                    format!("{} of {} calls failed: {}", failed.len(), orders.len(), failed.join("; "));
                self.broke(Broken::Answer, what);
            }
            made.extend(orders);
        }
        restarted?;
        self.actor.tell(&format!("{} calls meanwhile", made.len()));
        for order in &made {
            let (effects, refunded) = self.lane.sandbox.count(class, order)?;
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
            cluster.terminate(n)?;
            cluster.revive(project, n)?;
            cluster.all_ready(Duration::from_secs(10))?;
            thread::sleep(BETWEEN);
        }
        Ok(())
    }
}
