//! Replicas: how they boot, die, stall, and what operators do at them.

use crate::coverage::Listener;
use crate::lab::{Lab, Lease};
use crate::pg::{Replica, SimBus, heed};
use crate::plan::{BASE, Blow};
use crate::rng::Rng;
use crate::store::SimStore;
use crate::tool::Tools;
use crate::world::{Home, OUTSIDE, SimEnv, lock};
use ledger::bus::{Alone, Bus};
use ledger::memory::MemoryStore;
use ledger::store::{Attention, Store};
use ledger::words::{Epoch, Millis, OperationId};
use ledger::{Env, Execution, Ledger, Settings, Verdict};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// One boot of a replica.
#[derive(Clone)]
pub(crate) struct Boot {
    pub home: Home,
    pub ledger: Arc<Ledger>,
}

/// All replicas.
pub(crate) struct Fleet {
    pub lab: Arc<Lab>,
    /// The newest boot of each.
    boots: Mutex<Vec<Boot>>,
}

impl Fleet {
    pub fn new(lab: Arc<Lab>) -> Arc<Fleet> {
        let fleet = Arc::new(Fleet { lab: lab.clone(), boots: Mutex::default() });
        for number in 0..lab.plan.replicas {
            let boot = fleet.boot(number, None);
            lock(&fleet.boots).push(boot);
        }
        fleet
    }

    pub fn get(&self, replica: usize) -> Boot {
        let boots = lock(&self.boots);
        boots[replica % boots.len()].clone()
    }

    fn boot(self: &Arc<Self>, number: usize, after: Option<Home>) -> Boot {
        let lab = &self.lab;
        let home = lab.world.new_home();
        let seed = lab.plan.seed;
        let boots = lab.boots.fetch_add(1, Relaxed) + 1;
        let stream = |n: u64| Rng::new(seed, 1000 + boots * 10 + n);
        let env: Arc<SimEnv> = SimEnv::new(lab.world.clone(), home, stream(0));
        let aside = MemoryStore::new(env.clone(), BASE, Attention::default());
        let (store, bus): (Arc<dyn Store>, Arc<dyn Bus>) = if lab.is_postgres() {
            let bus = SimBus::new(lab.clone(), home);
            let replica = Replica::new(lab.clone(), home, number, stream(1), aside, bus.clone());
            replica.start();
            (replica, bus)
        } else {
            let epoch = self.lease(number, home);
            (SimStore::new(lab.clone(), epoch, home, stream(1), aside), Arc::new(Alone::default()))
        };
        let epoch = store.epoch();
        lab.say(format_args!("epoch {} boots{}", epoch.0, if after.is_some() { " again" } else { "" }));
        let settings = Settings {
            // Slower than any bell, so that a bell that is not heard shows.
            poll: Millis(if lab.is_postgres() { 1000 } else { 400 }),
            sweep: Millis(200),
            recover_at_once: 3,
            tombstones_for: Millis::secs(600),
            ready_grace: lab.plan.grace,
            max_rest: Millis(3000),
        };
        let hears = Arc::new(Listener { lab: lab.clone(), home });
        let ledger = Ledger::with_bus(store.clone(), bus, env.clone(), settings, hears);
        ledger.set_runner(Arc::new(Tools { lab: lab.clone(), store, rng: Mutex::new(stream(2)) }));
        if lab.is_postgres() {
            let hearing = heed(lab.clone(), home, ledger.clone());
            env.spawn(Box::pin(hearing));
        } else {
            let (fleet, heart) = (self.clone(), lab.clone());
            env.spawn(Box::pin(async move { fleet.beat(heart, epoch, home).await }));
        }
        let (behind, world) = (ledger.clone(), lab.world.clone());
        env.spawn(Box::pin(async move {
            while behind.recover_orphans().await.is_err() {
                world.sleep(100).await;
            }
        }));
        let tending = ledger.clone();
        env.spawn(Box::pin(async move { tending.tend().await }));
        Boot { home, ledger }
    }

    /// A boot's epoch, where a lease is all that a store knows.
    fn lease(&self, replica: usize, home: Home) -> Epoch {
        let lab = &self.lab;
        let mut s = lab.state();
        if lab.plan.replicas == 1 {
            // One process holds the lock: whoever had it is dead.
            let now = lab.world.now();
            s.leases.iter_mut().for_each(|l| l.ended = Some(now));
        }
        s.leases.push(Lease { beat: lab.time(), ended: None, lapsed: None, replica, home, until: 0 });
        Epoch(s.leases.len() as u64)
    }

    /// Renews the lease. A replica that finds its own lapsed ends, where that is the rule.
    async fn beat(self: Arc<Self>, lab: Arc<Lab>, epoch: Epoch, home: Home) {
        loop {
            lab.world.sleep(lab.plan.heartbeat).await;
            let lapsed = {
                let (now, lease) = (lab.time(), lab.plan.lease);
                let mut s = lab.state();
                let lapsed = !s.is_live(epoch, now, lease);
                let Some(l) = s.leases.get_mut(epoch.0 as usize - 1) else { return };
                if lapsed {
                    l.lapsed = Some(now);
                }
                if !(lapsed && lab.plan.lapse_ends) {
                    l.beat = now;
                }
                lapsed
            };
            if lapsed {
                lab.say(format_args!("epoch {} finds its lease lapsed", epoch.0));
                lab.state().coverage.fault("woke after its lease");
                if lab.plan.lapse_ends {
                    self.replace(home, 10);
                    return;
                }
            }
        }
    }

    /// Kills a boot; its successor comes after `down`.
    fn replace(self: &Arc<Self>, home: Home, down: i64) {
        if self.lab.world.is_dead(home) {
            return;
        }
        self.lab.world.kill(home);
        let fleet = self.clone();
        self.lab.world.spawn(
            OUTSIDE,
            Box::pin(async move {
                fleet.lab.world.sleep(down).await;
                fleet.succeed(home).await;
            }),
        );
    }

    async fn succeed(self: &Arc<Self>, home: Home) {
        let find = || lock(&self.boots).iter().position(|b| b.home == home);
        let Some(n) = find() else { return };
        // Nobody begins without the database.
        while self.lab.state().reached_at(n) > self.lab.world.now() {
            self.lab.world.sleep(50).await;
        }
        if find().is_none() {
            return;
        }
        let boot = self.boot(n, Some(home));
        lock(&self.boots)[n] = boot;
    }

    /// Looks for boots that died of themselves (at a write) and boots their successors.
    pub async fn watch(self: Arc<Self>) {
        loop {
            self.lab.world.sleep(400).await;
            let dead: Vec<Home> =
                lock(&self.boots).iter().map(|b| b.home).filter(|h| self.lab.world.is_dead(*h)).collect();
            for home in dead {
                self.succeed(home).await;
            }
        }
    }

    /// Deals the blows of the plan, then brings calm.
    pub async fn strike(self: Arc<Self>) {
        let lab = self.lab.clone();
        for (at, blow) in &lab.plan.blows {
            lab.world.sleep(at - lab.world.now()).await;
            lab.say(format_args!("{blow:?}"));
            match *blow {
                Blow::Kill { replica, down } => {
                    lab.state().coverage.fault("killed");
                    self.replace(self.get(replica).home, down);
                }
                Blow::Pause { replica, length } => {
                    lab.state().coverage.fault("paused");
                    let home = self.get(replica).home;
                    lab.world.pause(home);
                    let (world, after) = (lab.world.clone(), lab.clone());
                    lab.world.spawn(
                        OUTSIDE,
                        Box::pin(async move {
                            world.sleep(length).await;
                            after.state().trouble(home, world.now());
                            world.wake(home);
                        }),
                    );
                }
                Blow::Step => {
                    lab.state().coverage.fault("wall clock set");
                    if lab.is_postgres() {
                        lab.state().server.clock -= 20_000;
                    } else {
                        lab.set_clock(0);
                    }
                }
                Blow::Jump { by } if lab.is_postgres() => {
                    lab.state().coverage.fault("clock set ahead");
                    lab.state().server.clock += by;
                }
                Blow::Jump { by } => {
                    lab.state().coverage.fault("clock set ahead");
                    // Every lease may look lapsed until its next beat.
                    let now = lab.time();
                    lab.set_clock(by);
                    for l in &mut lab.state().leases {
                        l.lapsed = Some(ledger::Time(now.0 + by));
                    }
                }
                Blow::Operator { replica, dice } => self.operate(replica, dice),
                Blow::Cut { replica, length } => {
                    lab.state().coverage.fault("network cut");
                    lab.state().cut(&lab, replica, length);
                }
                Blow::Restart { down } => {
                    lab.state().coverage.fault("database restarted");
                    lab.state().restart(&lab, down);
                }
            }
        }
        lab.world.sleep(lab.plan.calm_at - lab.world.now()).await;
        lab.say(format_args!("nothing goes wrong from here on"));
        lab.calm_down();
    }

    fn operate(self: &Arc<Self>, replica: usize, dice: u64) {
        let ids: Vec<OperationId> = self.lab.state().records.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[(dice >> 8) as usize % ids.len()];
        let boot = self.get(replica);
        let fleet = self.clone();
        let verb = dice % 6;
        self.lab.world.spawn(
            boot.home,
            Box::pin(async move {
                let done = match verb {
                    0 | 1 => boot.ledger.cancel(id, "operator".into()).await.map(|_| "cancelled"),
                    4 => {
                        fleet.lab.state().books.said_yes.insert(id);
                        boot.ledger.approve(id, "operator").await.map(|_| "approved")
                    }
                    5 => boot.ledger.deny(id, "operator").await.map(|_| "denied"),
                    2 => boot.ledger.retry(id, "operator".into()).await.map(|_| "retried"),
                    _ => return fleet.say_truth(&boot, id, dice).await,
                };
                let text = done.map_or_else(|e| e.to_string(), str::to_owned);
                fleet.lab.say(format_args!("the operator's wish about {id}: {text}"));
            }),
        );
    }

    /// An operator who looks at the provider says what happened. Not before everything that may be on its way has
    /// come or is lost, and not where one word can't be true of all open effects.
    pub async fn say_truth(&self, boot: &Boot, id: OperationId, dice: u64) {
        let lab = &self.lab;
        let verdict = {
            let mut guard = lab.state();
            let s = &mut *guard;
            let Some(r) = s.records.get(&id) else { return };
            let asks = crate::books::waits(&r.op);
            if asks || !matches!(r.op.execution, Execution::InDoubt { .. } | Execution::InputRequired { .. })
            {
                return;
            }
            let now = lab.time();
            let open: Vec<_> = r.op.effects.iter().filter(|e| !e.is_settled()).cloned().collect();
            let mut happened = Vec::new();
            for e in &open {
                let fact = s.fact(id, &e.name);
                if fact.in_flight > 0 || now <= e.send_deadline {
                    return;
                }
                happened.push(fact.applied > 0);
            }
            if happened.windows(2).any(|w| w[0] != w[1]) {
                return;
            }
            match happened.first() {
                Some(true) => Verdict::Applied(ledger::Receipt(b"seen".to_vec())),
                _ if dice & 64 == 0 => Verdict::NotApplied,
                _ => Verdict::SendAgain,
            }
        };
        let done = boot.ledger.decide(id, "operator".into(), verdict.clone()).await;
        let text = done.map_or_else(|e| e.to_string(), |_| "decided".into());
        lab.say(format_args!("the operator's {verdict:?} about {id}: {text}"));
    }
}
