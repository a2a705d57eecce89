//! The database: what is committed, who is alive, what its clock says, whom it rings for.

use super::bus::Line;
use crate::lab::{Lab, Lease, Record, State};
use crate::model::Writer;
use crate::world::Home;
use ledger::planted::{self, Plant};
use ledger::store::{Committed, Write};
use ledger::words::{Epoch, Time};
use ledger::{BlobKind, DeliveryState, Execution, OperationId};
use std::collections::BTreeSet;

/// What can be lost in a crash: a record as it was before a commit that nobody waited for.
struct Loose {
    before: Record,
    added: Vec<BlobKind>,
}

#[derive(Default)]
pub(crate) struct Server {
    /// It restarts at this moment, or is up since.
    pub up_at: i64,
    /// Counts restarts: what was on its way in an earlier one comes to nothing.
    pub generation: u32,
    /// Until when the network between it and each replica is cut.
    pub cut_until: Vec<i64>,
    /// Its machine's clock less virtual time.
    pub clock: i64,
    /// What makes ledger time of it.
    pub shift: i64,
    /// Committed since the disk was last waited for.
    loose: Vec<Loose>,
    /// Records whose newest versions were lost in a crash: whoever read them may write what follows over another.
    pub forgot: BTreeSet<OperationId>,
    /// Who listens.
    pub lines: Vec<Line>,
}

impl Server {
    /// Its clock tells ledger time.
    pub fn new(base: Time, replicas: usize) -> Server {
        Server { clock: base.0, cut_until: vec![0; replicas], ..Server::default() }
    }
}

/// What the server answers to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// To each write; `true`: the record is further on than this very version.
    All(Vec<(Committed, bool)>),
    /// That boot is over.
    Over,
}

/// What a look at the server tells.
pub(crate) struct Look {
    pub live: BTreeSet<u64>,
    pub newest: u64,
    pub shift: i64,
    pub clock: i64,
}

impl State {
    /// A new boot of a replica. Where replicas have names, it ends the boot before it.
    pub fn begin(&mut self, lab: &Lab, replica: usize, home: Home) -> Epoch {
        let until = lab.world.now() + self.server.clock + lab.plan.lease;
        self.leases.push(Lease { beat: lab.time(), ended: None, lapsed: None, replica, home, until });
        let mine = Epoch(self.leases.len() as u64);
        if lab.plan.named {
            let older: Vec<u64> =
                (1..mine.0).filter(|e| self.lease(Epoch(*e)).is_some_and(|l| l.replica == replica)).collect();
            older.into_iter().for_each(|e| self.end(lab, Epoch(e)));
        }
        self.reap(lab, mine, lab.time());
        mine
    }

    /// Renews a lease; `false`: that boot is over.
    pub fn renew(&mut self, lab: &Lab, epoch: Epoch) -> bool {
        let clock = lab.world.now() + self.server.clock;
        let Some(l) = self.leases.get_mut(epoch.0 as usize - 1) else { return false };
        if l.ended.is_some() {
            return false;
        }
        (l.beat, l.until) = (lab.time(), clock + lab.plan.lease);
        true
    }

    pub fn look(&self, lab: &Lab) -> Look {
        let newest = self.leases.len() as u64;
        Look {
            live: (1..=newest).filter(|e| !self.is_over(Epoch(*e))).collect(),
            newest,
            shift: self.server.shift,
            clock: lab.world.now() + self.server.clock,
        }
    }

    /// Ends the boots whose leases have lapsed, unless the clock was set a moment ago. Whether there were any.
    pub fn reap(&mut self, lab: &Lab, mine: Epoch, now: Time) -> bool {
        let clock = lab.world.now() + self.server.clock;
        if (clock + self.server.shift - now.0).abs() > 1000 {
            return false;
        }
        let lease = lab.plan.lease;
        let lapsed: Vec<Epoch> = (1..=self.leases.len() as u64)
            .map(Epoch)
            .filter(|e| *e != mine)
            .filter(|e| {
                let l = self.lease(*e);
                l.is_some_and(|l| l.ended.is_none() && (l.until < clock || l.until > clock + 2 * lease))
            })
            .collect();
        lapsed.iter().for_each(|e| self.end(lab, *e));
        !lapsed.is_empty()
    }

    /// Ends a boot for good; what it left behind wants attention now.
    pub fn end(&mut self, lab: &Lab, epoch: Epoch) {
        let Some(l) = self.leases.get_mut(epoch.0 as usize - 1) else { return };
        if l.ended.is_some() {
            return;
        }
        l.ended = Some(lab.world.now());
        lab.say(format_args!("epoch {} is ended", epoch.0));
        for r in self.records.values_mut() {
            let ran = r.op.execution == Execution::Running && r.op.owner == epoch;
            let held = r.op.execution == Execution::Completed
                && r.op.delivery.state == DeliveryState::Ready
                && r.op.caller.epoch == epoch;
            if ran || held {
                r.due = Some(lab.time());
            }
        }
    }

    /// Somebody puts right what is added to the clock, unless somebody else was first.
    pub fn put_right(&mut self, lab: &Lab, seen: i64, by: i64, at: Time) {
        if self.server.shift == seen {
            self.server.shift = seen - by;
            lab.stepped(at);
        }
    }

    /// A batch is committed; its boot was asked about at `began`. `lazy`: nobody waits for the disk.
    pub fn commit(
        &mut self,
        lab: &Lab,
        epoch: Epoch,
        began: i64,
        writes: &[(Write, usize)],
        lazy: bool,
    ) -> Vec<(Committed, bool)> {
        // What a statement that began later than its boot ended writes, others don't expect.
        if let Some(ended) = self.lease(epoch).and_then(|l| l.ended)
            && ended < began
            && !writes.is_empty()
        {
            let what =
                format!("epoch {} was ended, and a batch of it that came later was committed", epoch.0);
            lab.fail(self, "ended", what);
        }
        if !lazy {
            self.server.loose.clear();
            self.claims_kept();
        }
        let mut answers = Vec::with_capacity(writes.len());
        for (w, task) in writes {
            let op = w.operation();
            let before = self.records.get(&op.id).filter(|_| lazy).map(Record::copy);
            let further = self.records.get(&op.id).is_some_and(|r| r.op.version > op.version);
            let committed = self.apply(lab, w, Writer { epoch, task: *task });
            if let Some(before) = before
                && committed == Committed::Done
                && let Write::Update { blobs, .. } = w
            {
                let added = blobs.iter().map(|b| b.kind).collect();
                self.server.loose.push(Loose { before, added });
            }
            answers.push((committed, further || !self.records.contains_key(&op.id)));
        }
        answers
    }

    /// The server stops at once: what is under way comes to nothing, and so does what nobody waited for.
    pub fn restart(&mut self, lab: &Lab, down: i64) {
        self.server.generation += 1;
        self.server.up_at = lab.world.now() + down;
        self.claims_lost();
        let mut lost: Vec<OperationId> = Vec::new();
        while let Some(l) = self.server.loose.pop() {
            let id = l.before.op.id;
            let Some(r) = self.records.get_mut(&id) else { continue };
            *r = l.before;
            for kind in l.added {
                self.blobs.remove(&(id, kind));
            }
            lost.push(id);
            self.server.forgot.insert(id);
        }
        if !lost.is_empty() {
            self.coverage.fault("lazy writes lost");
            lab.say(format_args!("lost with the server: the newest of {lost:?}"));
        }
        (0..self.server.lines.len()).for_each(|n| self.break_line(n));
    }

    /// The network between a replica and the server is cut for so long.
    pub fn cut(&mut self, lab: &Lab, replica: usize, length: i64) {
        let until = lab.world.now() + length;
        if let Some(u) = self.server.cut_until.get_mut(replica) {
            *u = until.max(*u);
        }
        let of = self.server.lines.iter().enumerate().filter(|(_, l)| l.replica == replica);
        let lines: Vec<usize> = of.map(|(n, _)| n).collect();
        lines.into_iter().for_each(|n| self.break_line(n));
    }

    /// When that replica can reach the server.
    pub fn reached_at(&self, replica: usize) -> i64 {
        self.server.up_at.max(self.server.cut_until.get(replica).copied().unwrap_or(0))
    }
}

/// Whether a batch of this epoch is taken.
pub(crate) fn admits(state: &State, epoch: Epoch) -> bool {
    !state.is_over(epoch) || planted::is_out(Plant::LateBatchOfOldEpoch)
}
