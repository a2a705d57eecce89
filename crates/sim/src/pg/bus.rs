//! Bells between replicas: gathered, rung over the connection that also renews the lease, heard over one of their own.
//! They are late, come twice and in any order; while a listener's connection is away they are lost, and it says so.

use super::store::Replica;
use crate::lab::{Lab, State};
use crate::rng::Rng;
use crate::world::{Home, OUTSIDE, lock};
use ledger::bus::{Bus, Heard, Note};
use ledger::{Execution, Ledger, OperationId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, broadcast};

/// What a listener may fall behind. Few: whoever is paused hears of a gap.
const ROOM: usize = 16;

/// A listener's connection, as the server knows it.
pub(crate) struct Line {
    pub home: Home,
    pub replica: usize,
    /// It is there; else its bells are lost.
    up: bool,
    /// Counts connections.
    number: u32,
    lost: Arc<Notify>,
    bus: Arc<SimBus>,
    hurry: Arc<Notify>,
}

#[derive(Clone, PartialEq, Eq)]
enum Bell {
    Moved(OperationId),
    Gap,
    /// Somebody new listens.
    Hello,
}

#[derive(Default)]
struct Waiting {
    moved: BTreeSet<OperationId>,
    overflow: bool,
}

pub(crate) struct SimBus {
    lab: Arc<Lab>,
    home: Home,
    waiting: Mutex<Waiting>,
    wake: Notify,
    heard: broadcast::Sender<Heard>,
}

impl SimBus {
    pub fn new(lab: Arc<Lab>, home: Home) -> Arc<SimBus> {
        let heard = broadcast::Sender::new(ROOM);
        Arc::new(SimBus { lab, home, waiting: Mutex::default(), wake: Notify::new(), heard })
    }
}

impl Bus for SimBus {
    fn moved(&self, id: OperationId) {
        self.lab.state().untold.remove(&(self.home, id));
        lock(&self.waiting).moved.insert(id);
        self.wake.notify_one();
    }
    fn tell(&self, _: Note) {}
    fn listen(&self) -> broadcast::Receiver<Heard> {
        self.heard.subscribe()
    }
}

impl State {
    /// That listener's connection breaks.
    pub fn break_line(&mut self, n: usize) {
        let Some(l) = self.server.lines.get_mut(n) else { return };
        if l.up {
            l.up = false;
            l.number += 1;
            l.lost.notify_one();
        }
    }

    /// Rings for everybody who listens but `from`.
    fn ring(&mut self, lab: &Arc<Lab>, from: Home, bells: &[Bell], r: &mut Rng) {
        let rates = &lab.plan.rates;
        self.server.lines.retain(|l| !lab.world.is_dead(l.home));
        for n in 0..self.server.lines.len() {
            if lab.hits(r, rates.bell_lost) {
                self.coverage.fault("listener cut off");
                self.break_line(n);
            }
            let l = &self.server.lines[n];
            if l.home == from || !l.up {
                continue;
            }
            for bell in bells {
                let twice = lab.hits(r, rates.bell_twice);
                for _ in 0..=usize::from(twice) {
                    let late = lab.hits(r, rates.bell_late);
                    if late || twice {
                        self.coverage.fault(if late { "bell late" } else { "bell twice" });
                    }
                    let ms = if late { r.range(10, 1500) } else { r.range(-4, 4) };
                    l.hear(lab, bell.clone(), ms);
                }
            }
        }
    }
}

impl Line {
    fn hear(&self, lab: &Arc<Lab>, bell: Bell, ms: i64) {
        let (bus, hurry) = (self.bus.clone(), self.hurry.clone());
        let say = move || match bell {
            // Nobody has to listen.
            Bell::Moved(id) => drop(bus.heard.send(Heard::Moved(id))),
            Bell::Gap => drop(bus.heard.send(Heard::Gap)),
            Bell::Hello => hurry.notify_one(),
        };
        if ms <= 0 {
            return say();
        }
        let (world, all, home, number) = (lab.world.clone(), lab.clone(), self.home, self.number);
        lab.world.spawn(
            OUTSIDE,
            Box::pin(async move {
                world.sleep(ms).await;
                let there = |l: &Line| l.home == home && l.up && l.number == number;
                if all.state().server.lines.iter().any(there) {
                    say();
                }
            }),
        );
    }
}

impl Replica {
    /// Rings for the others, for as long as the process lives.
    pub async fn ring(self: Arc<Self>) {
        let bus = self.bus.clone();
        loop {
            bus.wake.notified().await;
            let mut w = std::mem::take(&mut *lock(&bus.waiting));
            if !self.has_company() {
                w.moved.clear();
            }
            if w.moved.is_empty() {
                continue;
            }
            while !self.reached().await {
                // Whoever listens to the same database hears of a gap when it is back.
                w.overflow = true;
                w.moved.clear();
                self.lab.world.sleep(100).await;
            }
            self.way().await;
            let mut bells: Vec<Bell> = w.moved.iter().copied().map(Bell::Moved).collect();
            bells.extend(w.overflow.then_some(Bell::Gap));
            let mut r = lock(&self.rng).clone();
            self.lab.state().ring(&self.lab, self.home, &bells, &mut r);
            *lock(&self.rng) = r;
        }
    }

    /// Keeps a connection to hear by.
    pub async fn listen(self: Arc<Self>) {
        let lost = Arc::new(Notify::new());
        let mut first = true;
        loop {
            while !self.reached().await {
                self.lab.world.sleep(50).await;
            }
            self.way().await;
            {
                let mut r = lock(&self.rng).clone();
                let mut s = self.lab.state();
                match s.server.lines.iter_mut().find(|l| l.home == self.home) {
                    Some(l) => l.up = true,
                    None => s.server.lines.push(Line {
                        home: self.home,
                        replica: self.number,
                        up: true,
                        number: 0,
                        lost: lost.clone(),
                        bus: self.bus.clone(),
                        hurry: self.hurry.clone(),
                    }),
                }
                s.ring(&self.lab, self.home, &[Bell::Hello], &mut r);
                *lock(&self.rng) = r;
            }
            if !std::mem::take(&mut first) {
                let _ = self.bus.heard.send(Heard::Gap);
            }
            lost.notified().await;
        }
    }
}

/// Passes on what is heard, as the gateway does.
pub(crate) async fn heed(lab: Arc<Lab>, home: Home, ledger: Arc<Ledger>) {
    let mut heard = ledger.bus().listen();
    loop {
        match heard.recv().await {
            Ok(Heard::Moved(id)) => {
                lab.state().is_heard(&lab, home, Some(id));
                ledger.heard(id);
            }
            Ok(Heard::Gap) | Err(broadcast::error::RecvError::Lagged(_)) => {
                lab.state().coverage.fault("gap heard");
                lab.state().is_heard(&lab, home, None);
                ledger.missed();
            }
            Ok(Heard::Note(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

impl State {
    /// From now on that process can know that a result is there: of one operation, or of all.
    fn is_heard(&mut self, lab: &Lab, home: Home, id: Option<OperationId>) {
        let now = lab.world.now();
        let ids: Vec<OperationId> = match id {
            Some(id) => vec![id],
            None => self.records.keys().copied().collect(),
        };
        for id in ids {
            if self.records.get(&id).is_none_or(|r| r.op.execution != Execution::Completed) {
                continue;
            }
            self.heard.entry((home, id)).or_insert(now);
        }
    }
}
