//! What one replica tells, and what clients keep, holds at all of them.

use super::super::{Broken, Game, Struck};
use crate::http;
use crate::session::{Session, TOOLS_CHANGED, listen, told};
use crate::stand::{Class, Project};
use crate::stream::Stream;
use crate::torture::actor::Leave;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// How long news may take where nothing broke, and where a connection has to be made again.
const SOON: Duration = Duration::from_secs(3);
const LATE: Duration = Duration::from_secs(8);

/// How long it is waited for news that must not come.
const QUIET: Duration = Duration::from_millis(250);

/// An integration that comes and goes: with it the list of tools changes.
const EXTRA: &str = "\n[[integration]]\nname = \"extra\"\nmanifest = \"integrations/extra.toml\"\n";

/// Adds or removes a tool in the configuration of all replicas; none reads it yet.
fn change_tools(project: &Project) -> Result<()> {
    let folder = project.path().join("integrations");
    let manifest = std::fs::read_to_string(folder.join(format!("{}.toml", Class::Key.name())))?;
    std::fs::write(folder.join("extra.toml"), manifest.replacen("name = \"key\"", "name = \"extra\"", 1))?;
    project.edit(|text| match text.split_once(EXTRA) {
        Some((before, after)) => format!("{before}{after}"),
        None => format!("{text}{EXTRA}"),
    })
}

/// Reads what has come so far.
fn look(streams: &mut [Stream]) {
    for stream in streams {
        let _ = stream.until(Duration::from_millis(1), |_| false);
    }
}

fn told_by(streams: &mut [Stream]) -> Vec<usize> {
    look(streams);
    streams.iter().map(|s| told(s, TOOLS_CHANGED)).collect()
}

impl Game<'_> {
    /// Replica `n` reads its configuration, in which a tool came or went.
    fn published_at(&mut self, n: usize) -> Result<()> {
        self.actor.tell(&format!("a change at replica {n}"));
        self.replicas()?.process(n)?.hang_up()
    }

    /// Waits until each stream was told so often; what it was told in the end.
    fn heard(&mut self, streams: &mut [Stream], least: usize, within: Duration) -> Vec<usize> {
        let until = Instant::now() + within;
        loop {
            let counts = told_by(streams);
            if counts.iter().all(|c| *c >= least) || Instant::now() > until {
                return counts;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// How often replicas had to suppose that they had missed something: then more is told than happened.
    fn gaps(&mut self) -> Result<u64> {
        let mut all = 0;
        for at in self.lane.fronts() {
            let metrics = http::json(at, "GET", "/metrics", None)?.text();
            let gaps = metrics.lines().find_map(|l| l.strip_prefix("counterfoil_bus_gaps_total "));
            all += gaps.and_then(|n| n.trim().parse::<u64>().ok()).context("bus_gaps_total")?;
        }
        Ok(all)
    }

    /// A stream at each replica, and one through nginx.
    fn listeners(&mut self) -> Result<Vec<Stream>> {
        let filter = json!({ "toolsListChanged": true });
        let mut all = self.lane.fronts();
        all.push(self.lane.addr());
        all.into_iter().map(|at| listen(at, &filter)).collect()
    }

    /// A change is published at each replica in turn: every subscriber is told of each exactly once.
    pub(super) fn news(&mut self) -> Result<Struck> {
        let flight = self.actor.begin(self.lane, Leave::No)?;
        let gaps = self.gaps()?;
        let mut streams = self.listeners()?;
        change_tools(self.lane.cluster()?.1)?;
        for n in 0..self.replicas()?.replicas.len() {
            self.published_at(n)?;
            let counts = self.heard(&mut streams, n + 1, SOON);
            if counts.iter().any(|c| *c < n + 1) {
                let what = format!("{} changes were told {counts:?} times", n + 1);
                self.broke(Broken::Lost, what);
            }
        }
        thread::sleep(QUIET);
        let expected = self.replicas()?.replicas.len();
        let counts = told_by(&mut streams);
        if counts.iter().any(|c| *c > expected) && self.gaps()? == gaps {
            self.broke(Broken::Duplicate, format!("{expected} changes were told {counts:?} times"));
        }
        self.same_lists()?;
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(true, Some(said)))
    }

    /// A change is published while one replica can't reach the database: its subscribers are told when it can again.
    pub(super) fn news_missed(&mut self) -> Result<Struck> {
        let flight = self.actor.begin(self.lane, Leave::No)?;
        let mut streams = self.listeners()?;
        change_tools(self.lane.cluster()?.1)?;
        let (cut, at) = {
            let cluster = self.replicas()?;
            (cluster.turn(), cluster.turn())
        };
        if self.random.chance(50) {
            self.replicas()?.replicas[cut].cable.cut();
        } else {
            self.replicas()?.replicas[cut].cable.hold();
        }
        self.published_at(at)?;
        thread::sleep(Duration::from_millis(300 + self.random.below(2000)));
        self.replicas()?.replicas[cut].cable.mend();
        let counts = self.heard(&mut streams, 1, LATE);
        if counts.contains(&0) {
            let what = format!("a change at {at}, while {cut} was cut off, was told {counts:?} times");
            self.broke(Broken::Lost, what);
        }
        for n in (0..self.replicas()?.replicas.len()).filter(|n| *n != at) {
            self.published_at(n)?;
        }
        // Each has read it once its list says so.
        thread::sleep(QUIET);
        self.same_lists()?;
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(true, Some(said)))
    }

    /// The lists of all replicas are the same, byte for byte, in both eras.
    fn same_lists(&mut self) -> Result<()> {
        let session = Session::open(self.lane.addr())?;
        let mut lists = Vec::new();
        for at in self.lane.fronts() {
            let legacy = session.ask(at, "tools/list", json!({}))?;
            let modern: Value = crate::wire::ask(at, "tools/list", None, json!({}))?;
            lists.push((legacy.message(), modern.to_string()));
        }
        if lists.iter().any(|l| *l != lists[0]) {
            self.broke(Broken::ByteDifferent, format!("lists differ between replicas: {lists:?}"));
        }
        let ended = session.end(self.lane.addr())?;
        if ended.status >= 300 {
            self.broke(Broken::Answer, format!("DELETE was answered {}: {}", ended.status, ended.text()));
        }
        Ok(())
    }

    /// A session is opened at one replica; another serves it; its stream is at one and the change at another; of two
    /// streams the newer is told; its end at a third ends it everywhere.
    pub(super) fn sessions(&mut self) -> Result<Struck> {
        let flight = self.actor.begin(self.lane, Leave::No)?;
        let at = self.lane.fronts();
        let (a, b, c) = (at[0], at[1 % at.len()], at[2 % at.len()]);
        let gaps = self.gaps()?;
        let session = Session::open(a)?;
        for at in [b, c, self.lane.addr()] {
            let reply = session.ask(at, "tools/list", json!({}))?;
            if reply.status != 200 {
                self.broke(
                    Broken::Lost,
                    format!("a session of another replica: {} {}", reply.status, reply.text()),
                );
            }
        }
        let mut streams = vec![session.stream(b)?];
        change_tools(self.lane.cluster()?.1)?;
        self.published_at(2 % at.len())?;
        let counts = self.heard(&mut streams, 1, SOON);
        if counts[0] == 0 {
            self.broke(Broken::Lost, format!("the session's stream was told {counts:?} times"));
        }
        streams.push(session.stream(a)?);
        // The other replica hears of the newer stream.
        thread::sleep(QUIET);
        self.published_at(0)?;
        self.heard(&mut streams[1..], 1, SOON);
        thread::sleep(QUIET);
        let told = told_by(&mut streams);
        if told != [1, 1] && (told[1] == 0 || self.gaps()? == gaps) {
            let what = format!("of two streams the older was told {} times, the newer {}", told[0], told[1]);
            self.broke(if told[1] == 0 { Broken::Lost } else { Broken::Duplicate }, what);
        }
        // The last replica reads it too, so that all offer the same.
        self.published_at(1 % at.len())?;
        let ended = session.end(c)?;
        if ended.status >= 300 {
            self.broke(Broken::Answer, format!("DELETE was answered {}: {}", ended.status, ended.text()));
        }
        for (n, at) in at.into_iter().enumerate() {
            let reply = session.ask(at, "tools/list", json!({}))?;
            if reply.status != 404 {
                let what = format!("a session that ended, at replica {n}: {} {}", reply.status, reply.text());
                self.broke(Broken::Answer, what);
            }
        }
        for (n, stream) in streams.iter_mut().enumerate() {
            if stream.whole(SOON).is_err() {
                self.broke(Broken::LeftRunning, format!("stream {n} of a session that ended is open"));
            }
        }
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(true, Some(said)))
    }
}
