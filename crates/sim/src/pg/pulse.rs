//! The lease of a replica, and the epochs that it goes on under.

use super::store::Replica;
use crate::world::lock;
use ledger::words::{Epoch, Time};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How far the database's clock may be off before it counts as set.
const MARGIN: i64 = 1000;

/// What a replica knows of itself and of the others.
pub(crate) struct Standing {
    pub epoch: Epoch,
    /// Until when its lease holds, in virtual time.
    pub until: i64,
    pub live: BTreeSet<u64>,
    pub newest: u64,
    pub shift: i64,
    pub step: Option<Time>,
}

impl Replica {
    pub fn is_lapsed(&self) -> bool {
        self.lab.world.now() >= lock(&self.standing).until
    }

    /// That boot was ended by others.
    pub fn lapse(&self, epoch: Epoch) {
        let mut s = lock(&self.standing);
        if s.epoch == epoch {
            s.until = i64::MIN;
            self.hurry.notify_one();
        }
    }

    pub fn has_company(&self) -> bool {
        let s = lock(&self.standing);
        s.live.iter().any(|e| *e != s.epoch.0)
    }

    /// Asks the server who is alive, and what its clock says.
    pub fn look(&self) -> i64 {
        let look = self.lab.state().look(&self.lab);
        let mut s = lock(&self.standing);
        (s.live, s.newest, s.shift) = (look.live, look.newest, look.shift);
        s.step = self.lab.clock_step();
        look.clock
    }

    /// Renews the lease for as long as the process lives.
    pub async fn pulse(self: Arc<Self>) {
        let lab = self.lab.clone();
        let lease = lab.plan.lease;
        let mut quiet_until = 0;
        loop {
            tokio::select! {
                biased;
                () = self.hurry.notified() => {}
                () = lab.world.sleep(lease / 4) => {}
            }
            if self.is_lapsed() {
                self.go_on().await;
                quiet_until = lab.world.now() + lease;
            } else if self.beat(quiet_until).await {
                quiet_until = lab.world.now() + lease;
            }
        }
    }

    /// Whether a clock that was set stands in the way of ending others.
    async fn beat(&self, quiet_until: i64) -> bool {
        let lab = &self.lab;
        if !self.beating().await {
            return false;
        }
        let epoch = lock(&self.standing).epoch;
        let sent = lab.world.now();
        self.way().await;
        // Longer than this it waits for no answer.
        if lab.world.now() - sent > lab.plan.lease / 2 {
            return false;
        }
        if !lab.state().renew(lab, epoch) {
            lab.say(format_args!("epoch {} was ended by others", epoch.0));
            lab.state().coverage.fault("ended by others");
            self.lapse(epoch);
            return false;
        }
        self.way().await;
        if lab.world.now() - sent > lab.plan.lease / 2 || self.is_cut() {
            return false;
        }
        {
            let mut s = lock(&self.standing);
            // What has lapsed by its own clock is not brought back to life: meanwhile it was thought dead here.
            if s.epoch != epoch || lab.world.now() >= s.until {
                return false;
            }
            s.until = sent + lab.plan.lease;
        }
        let before = lock(&self.standing).shift;
        let clock = self.look();
        let (shift, now) = (lock(&self.standing).shift, self.time());
        let off = clock + shift - now.0;
        if off.abs() > MARGIN {
            lab.state().put_right(lab, shift, off, now);
            self.look();
            return true;
        }
        if shift != before {
            return true;
        }
        if lab.world.now() >= quiet_until && lab.state().reap(lab, epoch, now) {
            lab.state().coverage.fault("lapsed replica ended");
            self.look();
        }
        false
    }

    /// Goes on under a new epoch: what ran under the old one is anybody's.
    async fn go_on(&self) {
        let lab = &self.lab;
        if !self.beating().await {
            return;
        }
        let old = lock(&self.standing).epoch;
        let sent = lab.world.now();
        self.way().await;
        let epoch = {
            let mut s = lab.state();
            let epoch = s.begin(lab, self.number, self.home);
            s.end(lab, old);
            s.coverage.fault("went on under a new epoch");
            epoch
        };
        self.way().await;
        if self.is_cut() {
            // The answer is lost: nobody goes on under that one.
            return;
        }
        {
            let mut s = lock(&self.standing);
            (s.epoch, s.until) = (epoch, sent + lab.plan.lease);
        }
        lab.say(format_args!("home {}: epoch {} goes on as epoch {}", self.home, old.0, epoch.0));
        self.look();
    }
}
