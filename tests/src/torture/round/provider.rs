//! What the provider does by itself: it fails, is slow, or is gone.

use super::{Game, Struck};
use crate::torture::actor::Leave;
use anyhow::Result;
use serde_json::json;
use std::thread;
use std::time::Duration;

impl Game<'_> {
    pub(super) fn provider_fails(&mut self, name: &str) -> Result<Struck> {
        self.lane.plain()?;
        let exact = self.round.class.is_exact();
        // What has to have happened for the fault to be the one that is meant.
        let mut times = 1;
        match name {
            "refuse_replay" => {
                self.arm("apply_then_cut", &json!({}))?;
                self.arm("refuse_replay", &json!({}))?;
            }
            "retry_later" | "unavailable" => self.arm(name, &json!({ "retry_after": 1 }))?,
            // A send may take 500 ms.
            "late" => self.arm("delay", &json!({ "delay_ms": 700 }))?,
            // Some answers come whole in time, and some don't.
            "trickle" => {
                let pause = *self.random.one(&[1, 6]);
                self.arm(name, &json!({ "delay_ms": pause }))?;
            }
            "mute" => {
                self.arm("hang", &json!({ "times": 3 }))?;
                times = if exact { 2 } else { 1 };
            }
            // This server claims success without an effect for as long as it can't reach the provider.
            _ if self.is_naive() => self.arm(name, &json!({ "times": 1000 }))?,
            _ => self.arm(name, &json!({}))?,
        }
        let flight = self.actor.begin(self.lane, Leave::No)?;
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(self.lane.sandbox.fired()? >= times, Some(said)))
    }

    pub(super) fn provider_killed(&mut self) -> Result<Struck> {
        self.lane.plain()?;
        self.arm("apply_then_hang", &json!({}))?;
        let flight = self.actor.begin(self.lane, Leave::No)?;
        self.wait_for(|game| Ok(game.effects()?.0 > 0))?;
        self.lane.restart_sandbox()?;
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(true, Some(said)))
    }

    /// It takes the request, applies it or not, and is gone for a while.
    pub(super) fn provider_down(&mut self) -> Result<Struck> {
        self.lane.plain()?;
        let flight = self.held(1)?;
        let gone = self.lane.end_sandbox();
        thread::sleep(Duration::from_millis(1000 + self.random.below(1500)));
        self.lane.restart_sandbox()?;
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(gone, Some(said)))
    }

    /// It is not there, and comes back while the call is tried, or after.
    pub(super) fn provider_down_first(&mut self) -> Result<Struck> {
        self.lane.plain()?;
        let gone = self.lane.end_sandbox();
        let flight = self.actor.begin(self.lane, Leave::No)?;
        thread::sleep(Duration::from_millis(400 + self.random.below(1200)));
        self.lane.restart_sandbox()?;
        let said = self.actor.end(self.lane, flight)?;
        Ok(Struck::new(gone, Some(said)))
    }
}
