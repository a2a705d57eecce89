//! The database server breaks, for all replicas at once.

use super::super::{Broken, Game, Struck};
use super::LAPSED;
use crate::torture::actor::Leave;
use crate::torture::lane::CLIENT_LIMIT;
use crate::wire::{self, Call, Said};
use anyhow::{Result, anyhow};
use serde_json::json;
use std::thread;
use std::time::Duration;
use temp_postgres::Stop;

impl Game<'_> {
    pub(super) fn database_crashes(&mut self) -> Result<Struck> {
        let flight = self.held(1)?;
        self.replicas()?.restart_database(Stop::Immediate, Duration::ZERO);
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(true, Some(said)))
    }

    pub(super) fn database_killed(&mut self) -> Result<Struck> {
        self.arm("delay", &json!({ "delay_ms": 60 }))?;
        let flight = self.actor.begin(self.lane, Leave::No)?;
        thread::sleep(Duration::from_micros(self.random.below(200_000)));
        self.replicas()?.restart_database(Stop::Kill, Duration::ZERO);
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(true, Some(said)))
    }

    /// It stays away: what changes something is refused, and has changed nothing; what reads goes on.
    pub(super) fn database_away(&mut self) -> Result<Struck> {
        let flight = self.held(1)?;
        self.replicas()?.postgres.stop(Stop::Immediate);
        thread::sleep(Duration::from_millis(300));
        let other = format!("{}_away", self.round.order(self.seed));
        let call = Call::new(&self.round.class.tool(), self.round.class.arguments(&other)).keyed(&other);
        let asked: Vec<_> = self
            .lane
            .fronts()
            .into_iter()
            .map(|addr| {
                let call = call.clone();
                let list = move || wire::ask(addr, "tools/list", None, json!({}));
                thread::spawn(move || (list(), wire::call(addr, CLIENT_LIMIT, &call)))
            })
            .collect();
        for (n, asked) in asked.into_iter().enumerate() {
            let (listed, said) = asked.join().map_err(|_| anyhow!("a caller's thread"))?;
            let listed = listed?;
            if !listed["result"]["tools"].is_array() {
                self.broke(Broken::Answer, format!("without its database replica {n} lists: {listed}"));
            }
            if !matches!(&said, Said::Error { kind, .. } if kind == "unavailable") {
                let what = format!("without its database replica {n} answers a call: {}", said.brief());
                self.broke(Broken::Answer, what);
            }
        }
        let (effects, _) = self.lane.sandbox.count(self.round.class, &other)?;
        if effects > 0 {
            self.broke(Broken::Duplicate, format!("{effects} effects of a call that was refused"));
        }
        thread::sleep(LAPSED);
        self.replicas()?.postgres.run();
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(true, Some(said)))
    }
}
