//! The first call, in which something breaks: deaths of the gateway, and clients that leave.

use super::{Broken, Game, Struck};
use crate::torture::actor::{Flight, Leave};
use crate::torture::lane::{CLIENT_LIMIT, Lane};
use crate::torture::plan::Fault;
use crate::wire::Said;
use anyhow::Result;
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

impl Game<'_> {
    /// Makes the first call, in which something breaks. Whether it broke, and what the caller saw.
    pub(super) fn strike(&mut self) -> Result<Struck> {
        match self.round.fault.clone() {
            Fault::Point { name } => {
                self.lane.serve(Some(name))?;
                if let Some(help) = self.round.fault.provider(self.round.class) {
                    self.arm(help, &json!({}))?;
                }
                self.until_death()
            }
            Fault::Recovery { name } => {
                self.lane.serve(Some("send.after"))?;
                self.until_death_then(|lane| {
                    // The second life may end before it says that it is ready.
                    Ok(match lane.serve(Some(name)) {
                        Ok(()) => lane.dies_within(Duration::from_secs(4)),
                        Err(_) => true,
                    })
                })
            }
            Fault::RequestOut => {
                self.lane.plain()?;
                self.arm("delay", &json!({ "delay_ms": 400 }))?;
                let before = self.received()?;
                let flight = self.actor.begin(self.lane, Leave::No)?;
                self.wait_for(|game| Ok(game.received()? > before))?;
                self.kill_and_restart(flight)
            }
            Fault::AppliedUnanswered => {
                self.lane.plain()?;
                self.arm("apply_then_hang", &json!({}))?;
                let flight = self.actor.begin(self.lane, Leave::No)?;
                self.wait_for(|game| Ok(game.effects()?.0 > 0))?;
                self.kill_and_restart(flight)
            }
            Fault::KillRandom => {
                self.lane.plain()?;
                self.arm("delay", &json!({ "delay_ms": 60 }))?;
                let flight = self.actor.begin(self.lane, Leave::No)?;
                thread::sleep(Duration::from_micros(self.random.below(200_000)));
                self.kill_and_restart(flight)
            }
            Fault::ClientCut => {
                self.lane.plain()?;
                self.arm("delay", &json!({ "delay_ms": 120 }))?;
                let after = Duration::from_micros(self.random.below(150_000));
                let flight = self.actor.begin(self.lane, Leave::After(after))?;
                let said = self.actor.end(self.lane, flight)?;
                Ok(Struck::new(true, Some(said)))
            }
            Fault::ClientCutMidReply => {
                self.lane.plain()?;
                let bytes = usize::try_from(1 + self.random.below(400)).unwrap_or(1);
                let flight = self.actor.begin(self.lane, Leave::Bytes(bytes))?;
                let said = self.actor.end(self.lane, flight)?;
                Ok(Struck::new(true, Some(said)))
            }
            Fault::ReplyMid => {
                self.lane.plain()?;
                let bytes = usize::try_from(1 + self.random.below(400)).unwrap_or(1);
                let flight = self.actor.begin(self.lane, Leave::Bytes(bytes))?;
                let said = self.actor.end(self.lane, flight)?;
                self.lane.kill();
                self.lane.serve(None)?;
                Ok(Struck::new(true, Some(said)))
            }
            Fault::Twice => self.twice(),
            Fault::Provider(name) => self.provider_fails(name),
            Fault::ProviderKilled => self.provider_killed(),
            Fault::ProviderDown => self.provider_down(),
            Fault::ProviderDownFirst => self.provider_down_first(),
            Fault::Stop(at) => self.stand_still(at),
            Fault::Clock(when, by) => self.clock_set(when, by),
            Fault::Replicas(upset) => self.upset(upset),
        }
    }

    pub(super) fn twice(&mut self) -> Result<Struck> {
        self.lane.plain()?;
        self.arm("delay", &json!({ "delay_ms": 100 }))?;
        let twin = self.actor.twin(self.lane)?;
        let flight = self.actor.begin(self.lane, Leave::No)?;
        let said = self.actor.end(self.lane, flight)?;
        let other = self.actor.end(self.lane, twin)?;
        if let (Said::Result { operation: a, .. }, Said::Result { operation: b, .. }) = (&said, &other)
            && a["id"] != b["id"]
        {
            let what = format!("two calls at once made {} and {}", a["id"], b["id"]);
            self.broke(Broken::Duplicate, what);
        }
        Ok(Struck::new(true, Some(said)))
    }

    fn until_death(&mut self) -> Result<Struck> {
        self.until_death_then(|_| Ok(true))
    }

    /// Makes the call with an armed gateway, waits for its death, does something, starts an unarmed one.
    fn until_death_then(&mut self, then: impl FnOnce(&mut Lane) -> Result<bool>) -> Result<Struck> {
        let flight = self.actor.begin(self.lane, Leave::No)?;
        let mut said = None;
        let until = Instant::now() + CLIENT_LIMIT;
        while !self.lane.is_dead() && Instant::now() < until {
            said = self.actor.poll(self.lane, &flight)?;
            if said.is_some() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        // A point behind the answer.
        let grace = if self.round.fault.reaches(self.round.class) { 1000 } else { 50 };
        let fired = self.lane.dies_within(Duration::from_millis(grace)) && then(self.lane)?;
        self.lane.serve(None)?;
        let said = match said {
            Some(said) => {
                self.actor.note(&said);
                said
            }
            None => self.actor.end(self.lane, flight)?,
        };
        Ok(Struck::new(fired, Some(said)))
    }

    fn kill_and_restart(&mut self, flight: Flight) -> Result<Struck> {
        self.lane.kill();
        self.lane.serve(None)?;
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(true, Some(said)))
    }
}
