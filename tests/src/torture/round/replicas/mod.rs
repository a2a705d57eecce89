//! What happens to one of several replicas, to its way to the database, or to the database.

mod database;
mod news;
mod rolling;

use super::count::raw_bytes;
use super::{Broken, Game, Struck};
use crate::cluster::{Cluster, LEASE};
use crate::http;
use crate::torture::actor::{Flight, Leave};
use crate::torture::lane::CLIENT_LIMIT;
use crate::torture::plan::{Break, Upset};
use crate::wire::Said;
use anyhow::Result;
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

/// The most that a takeover may take, to the answer of a call that comes again: the lease, its detection, and what the
/// strategies wait for, on a machine that does other things too.
const TAKEOVER: Duration = Duration::from_secs(8);

/// Until a lease has lapsed for certain.
const LAPSED: Duration = Duration::from_millis(1800);

/// How long a client waits for an answer of somebody who may stand still.
const PATIENCE: Duration = Duration::from_millis(1300);

/// How long an answer may take beyond that until the client says so.
const GRACE: Duration = Duration::from_millis(300);

impl Game<'_> {
    pub(super) fn upset(&mut self, upset: Upset) -> Result<Struck> {
        self.lane.plain()?;
        match upset {
            Upset::Killed(at) => self.replica_killed(at, None),
            Upset::KilledTwice(then) => self.replica_killed("send.after", Some(then)),
            Upset::KilledOut => self.replica_killed_outside(),
            Upset::KilledRandom => self.any_replica_killed(),
            Upset::AllKilled => self.all_killed(),
            Upset::Still(at) => self.replica_still(at),
            Upset::StillRandom => self.any_replica_still(),
            Upset::Cable(at, how) => self.cable_breaks(at, how),
            Upset::DatabaseCrashes => self.database_crashes(),
            Upset::DatabaseKilled => self.database_killed(),
            Upset::DatabaseAway => self.database_away(),
            Upset::AtOnce => self.at_once(),
            Upset::Rolling => self.rolling(),
            Upset::Sessions => self.sessions(),
            Upset::News => self.news(),
            Upset::NewsMissed => self.news_missed(),
        }
    }

    fn replicas(&mut self) -> Result<&mut Cluster> {
        Ok(self.lane.cluster()?.0)
    }

    /// Others took over what a replica had in hand: how long that took.
    pub(super) fn taken_over(&mut self, since: Option<Instant>, first: Option<&Said>) {
        let Some(since) = since.filter(|_| !matches!(first, Some(Said::Result { .. }))) else { return };
        let took = since.elapsed();
        self.takeover = Some(took);
        if took > TAKEOVER {
            self.broke(Broken::LeftRunning, format!("taken over after {} ms only", took.as_millis()));
        }
    }

    /// Each replica says the same of the call, byte for byte.
    pub(super) fn everywhere(&mut self) -> Result<()> {
        if self.lane.cluster().is_err() {
            return Ok(());
        }
        self.lane.plain()?;
        self.replicas()?.all_ready(Duration::from_secs(20))?;
        let Some(id) = self.operation.clone().filter(|id| !id.is_empty()) else { return Ok(()) };
        // What was decided as not applied has no bytes, and whoever calls it again makes it anew.
        let Some(known) = self.bytes.clone() else { return Ok(()) };
        for (n, addr) in self.lane.fronts().into_iter().enumerate() {
            let said = self.replay_at(addr, &id);
            let same = match &said {
                Said::Result { stored, operation, .. } => *stored == known && operation["id"] == json!(id),
                _ => false,
            };
            if !same {
                let what = raw_bytes(&said).unwrap_or_else(|| said.brief());
                self.broke(Broken::ByteDifferent, format!("{known} of {id}, and at replica {n} {what}"));
            }
        }
        Ok(())
    }

    /// Looks at the replicas until something is so, or the call was answered and the grace is over.
    fn watch(
        &mut self,
        flight: &Flight,
        grace: Duration,
        so: impl Fn(&mut Cluster) -> bool,
    ) -> Result<(bool, Option<Said>)> {
        let mut until = Instant::now() + CLIENT_LIMIT;
        let mut said = None;
        loop {
            if so(self.replicas()?) {
                return Ok((true, said));
            }
            if said.is_none() {
                said = self.actor.poll(self.lane, flight)?;
                if said.is_some() {
                    until = Instant::now() + grace;
                }
            }
            if Instant::now() > until {
                return Ok((false, said));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// The answer, which may have been seen already.
    fn finish(&mut self, flight: Flight, said: Option<Said>) -> Result<Said> {
        match said {
            Some(said) => {
                self.actor.note(&said);
                Ok(said)
            }
            None => self.actor.end(self.lane, flight),
        }
    }

    /// How long after the answer a point may still be reached.
    fn grace(&self) -> Duration {
        let reached = self.round.fault.reaches(self.round.class);
        Duration::from_millis(if reached { 1000 } else { 50 })
    }

    fn replica_killed(&mut self, at: &str, then: Option<&str>) -> Result<Struck> {
        if let Some(help) = self.round.fault.provider(self.round.class) {
            self.arm(help, &json!({}))?;
        }
        self.replicas()?.arm(at)?;
        let flight = self.actor.begin(self.lane, Leave::No)?;
        let grace = self.grace();
        let (mut fired, said) = self.watch(&flight, grace, |c| c.dead().is_some())?;
        let since = Instant::now();
        if let Some(then) = then.filter(|_| fired) {
            self.replicas()?.arm(then)?;
            let until = Instant::now() + CLIENT_LIMIT;
            while self.replicas()?.at_work().len() > 1 && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            fired = self.replicas()?.at_work().len() == 1;
            self.actor.tell("the one that took over is dead");
        }
        self.replicas()?.disarm()?;
        let said = self.finish(flight, said)?;
        Ok(Struck { since: fired.then_some(since), ..Struck::new(fired, Some(said)) })
    }

    /// The one that works on the call.
    fn who_works(&mut self) -> Result<Option<usize>> {
        for n in self.replicas()?.at_work() {
            let addr = self.replicas()?.replicas[n].addr;
            let metrics = http::json(addr, "GET", "/metrics", None)?.text();
            let busy = metrics.lines().find_map(|l| l.strip_prefix("counterfoil_calls_in_flight "));
            if busy.is_some_and(|n| n.trim() != "0") {
                return Ok(Some(n));
            }
        }
        Ok(None)
    }

    fn replica_killed_outside(&mut self) -> Result<Struck> {
        let flight = self.held(1)?;
        let worker = self.who_works()?;
        if let Some(n) = worker {
            self.replicas()?.kill(n);
        }
        let since = worker.is_some().then(Instant::now);
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck { since, ..Struck::new(worker.is_some(), Some(said)) })
    }

    fn any_replica_killed(&mut self) -> Result<Struck> {
        self.arm("delay", &json!({ "delay_ms": 60 }))?;
        let flight = self.actor.begin(self.lane, Leave::No)?;
        thread::sleep(Duration::from_micros(self.random.below(200_000)));
        let n = self.replicas()?.turn();
        self.replicas()?.kill(n);
        let since = Instant::now();
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck { since: Some(since), ..Struck::new(true, Some(said)) })
    }

    fn all_killed(&mut self) -> Result<Struck> {
        let flight = self.held(1)?;
        for n in 0..self.replicas()?.replicas.len() {
            self.replicas()?.kill(n);
        }
        self.lane.plain()?;
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(true, Some(said)))
    }

    /// Makes the call, and waits until whoever works on it stands still at a point.
    fn until_still_at(&mut self, at: &str) -> Result<(Option<usize>, Flight, Option<Said>)> {
        self.replicas()?.arm(&format!("{at}:stop"))?;
        let flight = self.actor.begin(self.lane, Leave::No)?;
        let (_, said) = self.watch(&flight, Duration::from_millis(500), |c| c.still().is_some())?;
        self.replicas()?.disarm()?;
        let still = self.replicas()?.still();
        Ok((still, flight, said))
    }

    fn replica_still(&mut self, at: &str) -> Result<Struck> {
        self.actor.patience = PATIENCE;
        let (still, flight, said) = self.until_still_at(at)?;
        self.sleeps(still, flight, said)
    }

    fn any_replica_still(&mut self) -> Result<Struck> {
        self.actor.patience = PATIENCE;
        self.arm("delay", &json!({ "delay_ms": 60 }))?;
        let flight = self.actor.begin(self.lane, Leave::No)?;
        thread::sleep(Duration::from_micros(self.random.below(200_000)));
        let n = self.replicas()?.turn();
        self.replicas()?.process(n)?.stop()?;
        self.sleeps(Some(n), flight, None)
    }

    /// One stands still. Its call comes again and again, until another has taken over; then it wakes.
    fn sleeps(&mut self, still: Option<usize>, flight: Flight, said: Option<Said>) -> Result<Struck> {
        let since = Instant::now();
        let first = match said {
            Some(said) => self.finish(flight, Some(said))?,
            None => self.actor.end_by(self.lane, &flight, since + PATIENCE + GRACE)?,
        };
        let mut told = vec![first];
        let settled = |said: &Said| match said {
            Said::Result { .. } => true,
            Said::Error { kind, .. } => kind == "in_doubt",
            _ => false,
        };
        let until = since + Duration::from_secs(6);
        while still.is_some() && !told.last().is_some_and(settled) && Instant::now() < until {
            let flight = self.actor.begin(self.lane, Leave::No)?;
            told.push(self.actor.end_by(self.lane, &flight, Instant::now() + PATIENCE + GRACE)?);
            thread::sleep(Duration::from_millis(100));
        }
        thread::sleep(LAPSED.saturating_sub(since.elapsed()));
        if let Some(n) = still {
            self.actor.tell("it wakes");
            self.replicas()?.process(n)?.go_on()?;
            // What it still does, it does now.
            thread::sleep(Duration::from_millis(400));
        }
        self.actor.patience = CLIENT_LIMIT;
        let last = told.pop();
        let first = told.into_iter().find(|said| matches!(said, Said::Result { .. })).or(last);
        Ok(Struck::new(still.is_some(), first))
    }

    fn cable_breaks(&mut self, at: &str, how: Break) -> Result<Struck> {
        let (still, flight, said) = self.until_still_at(at)?;
        if let Some(n) = still {
            let replica = &self.replicas()?.replicas[n];
            match how {
                Break::Short | Break::Long => replica.cable.cut(),
                Break::Held => replica.cable.hold(),
                Break::Unanswered => replica.cable.deafen(),
            }
            self.actor.tell("the cable is broken");
            let cluster = self.replicas()?;
            cluster.process(n)?.go_on()?;
            thread::sleep(match how {
                Break::Short => LEASE * 3 / 10,
                Break::Long | Break::Held => LAPSED,
                Break::Unanswered => Duration::from_millis(150),
            });
            let cable = &cluster.replicas[n].cable;
            if how == Break::Unanswered {
                cable.cut();
            }
            cable.mend();
            self.actor.tell("the cable is mended");
        }
        let said = self.finish(flight, said)?;
        Ok(Struck::new(still.is_some(), Some(said)))
    }

    fn at_once(&mut self) -> Result<Struck> {
        let before = self.replicas()?.requests()?.len();
        let struck = self.twice()?;
        // A line is written after its answer.
        let until = Instant::now() + Duration::from_secs(2);
        while self.replicas()?.requests()?.len() < before + 2 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let requests = self.replicas()?.requests()?;
        let by = requests.get(before..).unwrap_or_default().iter().filter_map(|line| line.rsplit(' ').next());
        let by: std::collections::BTreeSet<&str> = by.collect();
        Ok(Struck { fired: by.len() > 1, ..struck })
    }
}
