//! What came of a round: the result and its bytes, the doubt and its end, the effects, what is still open.

use super::promise::Promise;
use super::{Broken, Game};
use crate::stand::{AMOUNT, Class};
use crate::torture::lane::CLIENT_LIMIT;
use crate::torture::plan::Voice;
use crate::wire::{self, Call, Said};
use anyhow::Result;
use serde_json::json;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

impl Game<'_> {
    /// A call of the operation itself, by a program that knows its id.
    fn replay(&self, id: &str) -> Said {
        let said = self.replay_at(self.lane.addr(), id);
        // A balancer that has just sent it to a replica that was killed does not send it again; the caller does.
        let again = |said: &Said| self.lane.is_replicated() && matches!(said, Said::Lost(_));
        (0..20).fold(said, |said, _| {
            if !again(&said) {
                return said;
            }
            thread::sleep(Duration::from_millis(100));
            self.replay_at(self.lane.addr(), id)
        })
    }

    /// The same at one of several places.
    pub(super) fn replay_at(&self, addr: SocketAddr, id: &str) -> Said {
        let arguments = self.round.class.arguments(&self.round.order(self.seed));
        wire::call(addr, CLIENT_LIMIT, &Call::new(&self.round.tool(), arguments).keyed(id))
    }

    /// There is a result: it is the same for ever.
    pub(super) fn result(&mut self, said: &Said, first: Option<&Said>, promise: &Promise) -> Result<()> {
        let Said::Result { value, operation, is_error, .. } = said else { return Ok(()) };
        let id = operation["id"].as_str().unwrap_or_default().to_owned();
        self.operation = Some(id.clone());
        if id.is_empty() && !self.is_naive() {
            self.broke(Broken::Answer, format!("the result names no operation: {value}"));
        }
        if *is_error != promise.refused {
            self.broke(Broken::Answer, format!("isError is {is_error}: {value}"));
        }
        if let Some(Said::Result { value: before, operation, .. }) = first
            && (before != value || operation["id"] != json!(id))
        {
            self.broke(
                Broken::ByteDifferent,
                format!("the first call was told {before} of {}, the retry {value} of {id}", operation["id"]),
            );
        }
        if self.effects()?.0 == 0 && !promise.refused {
            self.broke(Broken::Lost, format!("a result of {id} without an effect"));
        }
        // A caller that does not believe it.
        let again = self.actor.try_once(self.lane)?;
        match &again {
            Said::Result { value: later, operation, .. }
                if later == value && operation["id"] == json!(id) => {}
            Said::Error { kind, error, .. }
                if kind == "twin" && error["operationId"] == json!(id) && !self.round.style.is_keyed() => {}
            Said::Result { value: later, operation, .. } => {
                self.broke(
                    Broken::ByteDifferent,
                    format!("{value} of {id}, then {later} of {}", operation["id"]),
                );
            }
            other => self.broke(
                Broken::Answer,
                format!("after the result of {id} the same caller was told: {}", other.brief()),
            ),
        }
        let mut stored: Option<String> = match self.round.voice {
            Voice::Raw | Voice::RawLegacy => raw_bytes(said),
            Voice::Official(_) => None,
        };
        for n in 0..2 {
            if n == 1 && self.round.number.is_multiple_of(4) {
                self.lane.serve(None)?;
            }
            let replayed = self.replay(&id);
            match &replayed {
                Said::Result { stored: bytes, value: later, operation, .. } => {
                    let same = stored.as_ref().is_none_or(|s| s == bytes)
                        && later == value
                        && operation["id"] == json!(id);
                    if !same {
                        self.broke(
                            Broken::ByteDifferent,
                            format!("{stored:?} or {value}, then {bytes} of {}", operation["id"]),
                        );
                    }
                    stored.get_or_insert_with(|| bytes.clone());
                }
                other => self
                    .broke(Broken::ByteDifferent, format!("replay {n} of {id} was told: {}", other.brief())),
            }
        }
        self.bytes = stored;
        Ok(())
    }

    /// It is in doubt: it stays so until somebody says what happened, and then it is as that person said.
    pub(super) fn doubt(&mut self, id: &str) -> Result<()> {
        self.operation = Some(id.to_owned());
        // A request that the provider still holds is part of the truth.
        thread::sleep(Duration::from_millis(500));
        let record = self.lane.operation(id)?;
        let state = record["state"].as_str().unwrap_or_default().to_owned();
        if !matches!(state.as_str(), "in_doubt" | "input_required") {
            self.broke(
                Broken::Answer,
                format!("a call was told that {id} is in doubt, and its record says {state}"),
            );
            return Ok(());
        }
        let asked = self.replay(id);
        if !matches!(&asked, Said::Error { kind, .. } if kind == "in_doubt") {
            self.broke(
                Broken::Answer,
                format!("{id} is {state}, and a call of it was told: {}", asked.brief()),
            );
        }
        let (effects, _) = self.effects()?;
        let verdict = match effects {
            0 if self.round.class == Class::Confirm && self.random.chance(50) => "--send-again",
            0 => "--not-applied",
            _ => "--applied",
        };
        self.lane.resolve(id, verdict)?;
        if verdict == "--not-applied" {
            let until = Instant::now() + Duration::from_secs(5);
            loop {
                let state = self.lane.operation(id)?["state"].as_str().unwrap_or_default().to_owned();
                if matches!(state.as_str(), "failed" | "cancelled" | "completed") {
                    return Ok(());
                }
                if Instant::now() > until {
                    self.broke(
                        Broken::LeftRunning,
                        format!("{id} was decided as not applied and is {state}"),
                    );
                    return Ok(());
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        let until = Instant::now() + Duration::from_secs(10);
        let first = loop {
            let said = self.replay(id);
            if matches!(said, Said::Result { .. }) || Instant::now() > until {
                break said;
            }
            thread::sleep(Duration::from_millis(100));
        };
        match (raw_bytes(&first), raw_bytes(&self.replay(id))) {
            (Some(one), Some(two)) if one == two => self.bytes = Some(two),
            (one, two) => self.broke(
                Broken::ByteDifferent,
                format!("after {verdict} {id} was told {one:?} ({}), then {two:?}", first.brief()),
            ),
        }
        Ok(())
    }

    /// What really happened, from two books.
    pub(super) fn count(&mut self, promise: &Promise, in_doubt: bool) -> Result<u64> {
        let (effects, refunded) = self.effects()?;
        if effects > promise.most || refunded > promise.most * AMOUNT {
            self.broke(Broken::Duplicate, format!("{effects} effects, {refunded} refunded"));
        } else if refunded != effects * AMOUNT {
            self.broke(Broken::Answer, format!("{effects} effects, but {refunded} refunded"));
        } else if effects == 0 && !promise.refused && !in_doubt {
            self.broke(Broken::Lost, "no effect");
        } else if effects > 0 && promise.refused {
            self.broke(Broken::Answer, "the provider refused, and there is an effect");
        }
        Ok(effects)
    }

    /// Nothing is left running, and nothing undecided.
    pub(super) fn quiesce(&mut self) -> Result<()> {
        if self.is_naive() {
            return Ok(());
        }
        let until = Instant::now() + Duration::from_secs(12);
        loop {
            let all = self.lane.operations()?;
            let open: Vec<String> = all
                .iter()
                .filter(|op| {
                    op["running"] == json!(true)
                        || matches!(op["state"].as_str(), Some("running" | "in_doubt" | "input_required"))
                })
                .map(|op| {
                    format!("{} is {}", op["id"].as_str().unwrap_or("?"), op["state"].as_str().unwrap_or("?"))
                })
                .collect();
            if open.is_empty() || Instant::now() > until {
                if !open.is_empty() {
                    self.broke(Broken::LeftRunning, open.join(", "));
                }
                self.lane.known.extend(all.iter().filter_map(|op| op["id"].as_str().map(str::to_owned)));
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

pub(super) fn raw_bytes(said: &Said) -> Option<String> {
    match said {
        Said::Result { stored, .. } => Some(stored.clone()),
        _ => None,
    }
}
