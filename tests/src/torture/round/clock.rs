//! The wall clock of the gateway is set. The ledger's time only goes forward, so what it may do afterwards is what is
//! safe whatever the age of an open intent is; what was settled before stays what it was.

use super::{Age, Game, Struck};
use crate::torture::actor::Leave;
use crate::torture::plan::{By, Voice, When};
use anyhow::{Result, bail};

/// What the gateway says when it notices a step while it runs.
const NOTICED: &str = "the wall clock was set";

impl Game<'_> {
    pub(super) fn clock_set(&mut self, when: When, by: By) -> Result<Struck> {
        let ahead = by.seconds(&mut self.random);
        self.lane.serve_by_a_clock()?;
        match when {
            When::Running => self.clock_set_running(ahead),
            When::Restart => self.clock_set_at_restart(ahead),
            When::Answered => self.clock_set_after_the_answer(ahead, false),
            When::AnsweredRestart => self.clock_set_after_the_answer(ahead, true),
        }
    }

    fn clock_set_running(&mut self, ahead: i64) -> Result<Struck> {
        // It looks at the clock once a second: nothing is answered for longer.
        let flight = self.held(3)?;
        let noticed = self.set_and_notice(ahead)?;
        let first = self.actor.end(self.lane, flight)?;
        let age = if noticed { Age::Unknown } else { Age::Known };
        Ok(Struck { age, ..Struck::new(noticed, Some(first)) })
    }

    fn clock_set_at_restart(&mut self, ahead: i64) -> Result<Struck> {
        let flight = self.held(1)?;
        self.lane.kill();
        let seen = self.restart_at(ahead)?;
        let first = self.actor.end(self.lane, flight)?;
        Ok(Struck { age: Age::Unknown, ..Struck::new(seen, Some(first)) })
    }

    /// A caller that has its answer, or lost it on the way, asks again under another clock.
    fn clock_set_after_the_answer(&mut self, ahead: i64, restart: bool) -> Result<Struck> {
        let leave = match self.round.voice {
            Voice::Raw | Voice::RawLegacy => *self.random.one(&[Leave::No, Leave::Bytes(40)]),
            Voice::Official(_) => Leave::No,
        };
        let flight = self.actor.begin(self.lane, leave)?;
        let first = self.actor.end(self.lane, flight)?;
        let seen = if restart {
            self.lane.kill();
            self.restart_at(ahead)?
        } else {
            self.set_and_notice(ahead)?
        };
        Ok(Struck::new(seen, Some(first)))
    }

    /// Sets the clock of a gateway that runs. Whether it noticed.
    fn set_and_notice(&mut self, ahead: i64) -> Result<bool> {
        self.actor.tell(&format!("the clock is set by {ahead} s"));
        let from = self.lane.said_so_far();
        self.lane.set_clock(ahead)?;
        self.wait_for(|game| Ok(game.lane.said_since(from, NOTICED)))?;
        Ok(self.lane.said_since(from, NOTICED))
    }

    /// Starts a gateway under another clock than the one before had. Whether it sees that clock.
    fn restart_at(&mut self, ahead: i64) -> Result<bool> {
        self.actor.tell(&format!("started again with the clock set by {ahead} s"));
        self.lane.set_clock(ahead)?;
        self.lane.serve(None)?;
        match self.lane.clock_seen()? {
            (seen, true) => Ok(seen.abs_diff(ahead) <= 5),
            (_, false) => bail!("the gateway was started under the machine's clock"),
        }
    }
}
