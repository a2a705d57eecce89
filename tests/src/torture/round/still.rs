//! The gateway stands still: SIGSTOP, and everything that it holds runs out (its lease, the deadline of its send and of
//! its attempt, the patience of its client) before it moves again, or dies without having moved.

use super::{Game, Struck};
use crate::torture::actor::{Flight, Leave};
use crate::torture::lane::CLIENT_LIMIT;
use crate::torture::plan::Stop;
use crate::wire::Said;
use anyhow::Result;
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than a lane's lease (500 ms), a send (500 ms), an attempt (3 s), and the client's patience twice.
const LONG: Duration = Duration::from_millis(3500);

/// Longer than its lease.
const SHORT: Duration = Duration::from_millis(800);

/// How long a client waits for an answer meanwhile.
const PATIENCE: Duration = Duration::from_millis(1300);

/// How long it may take until it says so: some also wait until they have been heard giving up.
const GRACE: Duration = Duration::from_millis(300);

impl Game<'_> {
    pub(super) fn stand_still(&mut self, at: Stop) -> Result<Struck> {
        self.actor.patience = PATIENCE;
        let flight = self.until_still(at)?;
        let fired = self.lane.is_stopped();
        let stopped = Instant::now();
        self.actor.tell("the gateway stands still");
        let mut told = vec![self.actor.end_by(self.lane, &flight, stopped + PATIENCE + GRACE)?];
        if at == Stop::Killed {
            thread::sleep(SHORT.saturating_sub(stopped.elapsed()));
            self.lane.kill();
            self.lane.serve(None)?;
        } else {
            // In vain; and once more, so that it is asked something when it moves.
            let flight = self.actor.begin(self.lane, Leave::No)?;
            told.push(self.actor.end_by(self.lane, &flight, Instant::now() + PATIENCE + GRACE)?);
            let flight = self.actor.begin(self.lane, Leave::No)?;
            thread::sleep(LONG.saturating_sub(stopped.elapsed()));
            self.actor.tell("it goes on");
            self.lane.go_on()?;
            told.push(self.actor.end(self.lane, flight)?);
        }
        self.actor.patience = CLIENT_LIMIT;
        let last = told.pop();
        let first = told.into_iter().find(|said| matches!(said, Said::Result { .. })).or(last);
        Ok(Struck::new(fired, first))
    }

    /// Makes the call, and stops the gateway at the moment.
    fn until_still(&mut self, at: Stop) -> Result<Flight> {
        match at {
            Stop::Unread => {
                self.lane.plain()?;
                self.actor.prepare(self.lane);
                self.lane.stop()?;
                self.actor.begin(self.lane, Leave::No)
            }
            Stop::FirstByte => {
                self.lane.serve(Some("send.late:stop"))?;
                let flight = self.actor.begin(self.lane, Leave::No)?;
                self.wait_for(|game| Ok(game.lane.is_stopped()))?;
                Ok(flight)
            }
            Stop::RequestOut => {
                self.lane.plain()?;
                self.arm("delay", &json!({ "delay_ms": 300 }))?;
                let before = self.received()?;
                let flight = self.actor.begin(self.lane, Leave::No)?;
                self.wait_for(|game| Ok(game.received()? > before))?;
                self.lane.stop()?;
                Ok(flight)
            }
            Stop::Applied => {
                self.lane.plain()?;
                self.arm("apply_then_hang", &json!({}))?;
                let flight = self.actor.begin(self.lane, Leave::No)?;
                self.wait_for(|game| Ok(game.effects()?.0 > 0))?;
                self.lane.stop()?;
                Ok(flight)
            }
            Stop::Random | Stop::Killed => {
                self.lane.plain()?;
                self.arm("delay", &json!({ "delay_ms": 60 }))?;
                let flight = self.actor.begin(self.lane, Leave::No)?;
                thread::sleep(Duration::from_micros(self.random.below(200_000)));
                self.lane.stop()?;
                Ok(flight)
            }
        }
    }
}
