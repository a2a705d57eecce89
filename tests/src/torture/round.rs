//! One round: the strike, the retries, the counting.

use super::actor::{Actor, End, Flight, Leave};
use super::lane::{CLIENT_LIMIT, Lane};
use super::plan::{Fault, Round};
use crate::random::Random;
use crate::stand::{AMOUNT, Class};
use crate::wire::{self, Call, Said};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// What was broken that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    /// More effects than one.
    Duplicate,
    /// A result without its effect, or no result at all.
    Lost,
    /// A later answer differs from the first.
    ByteDifferent,
    /// Something is still open when it should be over.
    LeftRunning,
    /// In doubt where the strategy promises more.
    Doubt,
    /// An answer that should never be.
    Answer,
}

/// A broken promise, with what is needed to see it again.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub broken: Broken,
    /// What was seen.
    pub what: String,
    /// Seed, round, record, the provider's own log.
    pub reproduction: String,
}

/// How a round went.
#[derive(Clone, Debug)]
pub struct Played {
    /// The fault really happened.
    pub fired: bool,
    /// The call came to be in doubt (and was decided).
    pub in_doubt: bool,
    /// What was broken.
    pub violations: Vec<Violation>,
    /// The effects that there were at the end; later there must be as many.
    pub expected_effects: u64,
    /// Tries of the caller.
    pub tries: u32,
    /// How long it took.
    pub seconds: f64,
    /// What the caller was told.
    pub story: Vec<String>,
}

impl Played {
    /// A line for people.
    #[must_use]
    pub fn line(&self, round: &Round) -> String {
        format!(
            "{:4} {:22} {:8} {:12} {:10} {} tries {:5.2} s{}{}{}",
            round.number,
            round.fault.name(),
            round.class.name(),
            round.style.name(),
            round.voice.name(),
            self.tries,
            self.seconds,
            if self.fired { "" } else { "  (not reached)" },
            if self.in_doubt { "  in doubt" } else { "" },
            self.violations.iter().map(|v| format!("  {:?}: {}", v.broken, v.what)).collect::<String>(),
        )
    }
}

/// What is promised of a round's end.
struct Promise {
    /// The provider refuses for good.
    refused: bool,
    /// It may come to be in doubt.
    doubt: bool,
}

fn promise(round: &Round) -> Promise {
    let provider = round.fault.provider(round.class);
    Promise {
        refused: provider == Some("refuse"),
        // A provider of this class repeats a stored failure, and shows no trace when it is asked.
        doubt: !round.class.is_exact() || (round.class == Class::Key && provider == Some("fail")),
    }
}

struct Game<'a> {
    lane: &'a mut Lane,
    seed: u64,
    round: &'a Round,
    actor: Actor,
    random: Random,
    broken: Vec<(Broken, String)>,
    operation: Option<String>,
}

/// Plays a round.
///
/// # Errors
/// The stand does not work.
pub fn play(lane: &mut Lane, seed: u64, round: &Round) -> Result<Played> {
    let started = Instant::now();
    let actor = Actor::new(round, seed);
    let mut game =
        Game { lane, seed, round, actor, random: round.random(seed), broken: Vec::new(), operation: None };
    let outcome = game.go().with_context(|| {
        format!(
            "round {} of seed {seed} ({})\n{}",
            round.number,
            round.words().join(", "),
            game.actor.story.join("\n")
        )
    });
    let (fired, in_doubt, effects) = match outcome {
        Ok(all) => all,
        Err(e) => return Err(e.context(game.lane.said())),
    };
    let reproduction = if game.broken.is_empty() { String::new() } else { game.reproduction() };
    let violations = game
        .broken
        .drain(..)
        .map(|(broken, what)| Violation { broken, what, reproduction: reproduction.clone() })
        .collect();
    Ok(Played {
        fired,
        in_doubt,
        violations,
        expected_effects: effects,
        tries: game.actor.tries,
        seconds: started.elapsed().as_secs_f64(),
        story: game.actor.story,
    })
}

/// What came after a round was counted.
///
/// # Errors
/// The provider does not answer.
pub fn late(lane: &Lane, seed: u64, round: &Round, expected: u64) -> Result<Option<Violation>> {
    let order = round.order(seed);
    let (effects, refunded) = lane.sandbox.count(round.class, &order)?;
    Ok((effects != expected || refunded != expected * AMOUNT).then(|| Violation {
        broken: Broken::Duplicate,
        what: format!("{effects} effects and {refunded} refunded at the end of the run, {expected} at the end of the round"),
        reproduction: format!("seed {seed}, round {}, object {order}\n{}", round.number, lane.said()),
    }))
}

impl Game<'_> {
    fn is_naive(&self) -> bool {
        self.lane.is_naive()
    }

    fn broke(&mut self, broken: Broken, what: impl Into<String>) {
        self.broken.push((broken, what.into()));
    }

    fn go(&mut self) -> Result<(bool, bool, u64)> {
        self.lane.sandbox.disarm()?;
        if let Some(extra) = self.round.extra {
            self.arm(extra, &json!({}))?;
        }
        let (fired, first) = self.strike()?;
        if self.round.again {
            thread::sleep(Duration::from_micros(self.random.below(250_000)));
            self.lane.kill();
            self.lane.serve(None)?;
        }
        let end = self.actor.settle(self.lane)?;
        // The faults are over; what follows is about what was kept.
        self.lane.sandbox.disarm()?;
        let promise = promise(self.round);
        let mut in_doubt = false;
        match end {
            End::Result(said) => self.result(&said, first.as_ref(), &promise)?,
            End::InDoubt(id) => {
                in_doubt = true;
                if !promise.doubt {
                    self.broke(Broken::Doubt, format!("{id} is in doubt"));
                }
                self.doubt(&id)?;
            }
            End::Broken(why) => self.broke(Broken::Answer, why),
            End::Lost(why) => self.broke(Broken::Lost, format!("no answer at all; at last: {why}")),
        }
        let effects = self.count(&promise, in_doubt)?;
        self.quiesce()?;
        Ok((fired, in_doubt, effects))
    }

    /// Makes the first call, in which something breaks. Whether it broke, and what the caller saw.
    fn strike(&mut self) -> Result<(bool, Option<Said>)> {
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
                let (fired, said) = self.until_death_then(|lane| {
                    // The second life may end before it says that it is ready.
                    Ok(match lane.serve(Some(name)) {
                        Ok(()) => lane.dies_within(Duration::from_secs(4)),
                        Err(_) => true,
                    })
                })?;
                Ok((fired, said))
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
                Ok((true, Some(said)))
            }
            Fault::ClientCutMidReply => {
                self.lane.plain()?;
                let bytes = usize::try_from(1 + self.random.below(400)).unwrap_or(1);
                let flight = self.actor.begin(self.lane, Leave::Bytes(bytes))?;
                let said = self.actor.end(self.lane, flight)?;
                Ok((true, Some(said)))
            }
            Fault::ReplyMid => {
                self.lane.plain()?;
                let bytes = usize::try_from(1 + self.random.below(400)).unwrap_or(1);
                let flight = self.actor.begin(self.lane, Leave::Bytes(bytes))?;
                let said = self.actor.end(self.lane, flight)?;
                self.lane.kill();
                self.lane.serve(None)?;
                Ok((true, Some(said)))
            }
            Fault::Twice => {
                self.lane.plain()?;
                self.arm("delay", &json!({ "delay_ms": 100 }))?;
                let twin = self.actor.twin(self.lane)?;
                let flight = self.actor.begin(self.lane, Leave::No)?;
                let said = self.actor.end(self.lane, flight)?;
                let other = self.actor.end(self.lane, twin)?;
                if let (Said::Result { operation: a, .. }, Said::Result { operation: b, .. }) =
                    (&said, &other)
                    && a["id"] != b["id"]
                {
                    let what = format!("two calls at once made {} and {}", a["id"], b["id"]);
                    self.broke(Broken::Duplicate, what);
                }
                Ok((true, Some(said)))
            }
            Fault::Provider(name) => {
                self.lane.plain()?;
                match name {
                    "refuse_replay" => {
                        self.arm("apply_then_cut", &json!({}))?;
                        self.arm("refuse_replay", &json!({}))?;
                    }
                    "retry_later" | "unavailable" => self.arm(name, &json!({ "retry_after": 1 }))?,
                    // This server claims success without an effect for as long as it can't reach the provider.
                    _ if self.is_naive() => self.arm(name, &json!({ "times": 1000 }))?,
                    _ => self.arm(name, &json!({}))?,
                }
                let flight = self.actor.begin(self.lane, Leave::No)?;
                let said = self.actor.end(self.lane, flight)?;
                Ok((true, Some(said)))
            }
            Fault::ProviderKilled => {
                self.lane.plain()?;
                self.arm("apply_then_hang", &json!({}))?;
                let flight = self.actor.begin(self.lane, Leave::No)?;
                self.wait_for(|game| Ok(game.effects()?.0 > 0))?;
                self.lane.restart_sandbox()?;
                let said = self.actor.end(self.lane, flight)?;
                Ok((true, Some(said)))
            }
        }
    }

    fn arm(&self, name: &str, more: &Value) -> Result<()> {
        let mut rule = json!({ "on": self.round.class.on(), "do": name, "times": 1 });
        for (k, v) in more.as_object().into_iter().flatten() {
            rule[k] = v.clone();
        }
        self.lane.sandbox.rule(&rule)
    }

    fn until_death(&mut self) -> Result<(bool, Option<Said>)> {
        self.until_death_then(|_| Ok(true))
    }

    /// Makes the call with an armed gateway, waits for its death, does something, starts an unarmed one.
    fn until_death_then(
        &mut self,
        then: impl FnOnce(&mut Lane) -> Result<bool>,
    ) -> Result<(bool, Option<Said>)> {
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
        Ok((fired, Some(said)))
    }

    fn kill_and_restart(&mut self, flight: Flight) -> Result<(bool, Option<Said>)> {
        self.lane.kill();
        self.lane.serve(None)?;
        let said = self.actor.end(self.lane, flight)?;
        Ok((true, Some(said)))
    }

    fn wait_for(&self, mut what: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until && !what(self)? {
            thread::sleep(Duration::from_millis(3));
        }
        Ok(())
    }

    fn received(&self) -> Result<u64> {
        self.lane.sandbox.effects("object=nothing")?["received"].as_u64().context("received")
    }

    fn effects(&self) -> Result<(u64, u64)> {
        self.lane.sandbox.count(self.round.class, &self.round.order(self.seed))
    }

    /// A call of the operation itself, by a program that knows its id.
    fn replay(&self, id: &str) -> Said {
        let arguments = self.round.class.arguments(&self.round.order(self.seed));
        wire::call(self.lane.addr(), CLIENT_LIMIT, &Call::new(&self.round.tool(), arguments).keyed(id))
    }

    /// There is a result: it is the same for ever.
    fn result(&mut self, said: &Said, first: Option<&Said>, promise: &Promise) -> Result<()> {
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
            super::plan::Voice::Raw | super::plan::Voice::RawLegacy => raw_bytes(said),
            super::plan::Voice::Official(_) => None,
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
        Ok(())
    }

    /// It is in doubt: it stays so until somebody says what happened, and then it is as that person said.
    fn doubt(&mut self, id: &str) -> Result<()> {
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
            (Some(one), Some(two)) if one == two => {}
            (one, two) => self.broke(
                Broken::ByteDifferent,
                format!("after {verdict} {id} was told {one:?} ({}), then {two:?}", first.brief()),
            ),
        }
        Ok(())
    }

    /// What really happened, from two books.
    fn count(&mut self, promise: &Promise, in_doubt: bool) -> Result<u64> {
        let (effects, refunded) = self.effects()?;
        if effects > 1 || refunded > AMOUNT {
            self.broke(Broken::Duplicate, format!("{effects} effects, {refunded} refunded"));
        } else if refunded != effects * AMOUNT {
            self.broke(Broken::Answer, format!("{effects} effects, but {refunded} refunded"));
        } else if effects == 0 && !promise.refused && !in_doubt {
            self.broke(Broken::Lost, "no effect");
        } else if effects == 1 && promise.refused {
            self.broke(Broken::Answer, "the provider refused, and there is an effect");
        }
        Ok(effects)
    }

    /// Nothing is left running, and nothing undecided.
    fn quiesce(&mut self) -> Result<()> {
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

    fn reproduction(&self) -> String {
        let order = self.round.order(self.seed);
        let record = match &self.operation {
            Some(id) if !id.is_empty() => {
                self.lane.operation(id).map_or_else(|e| format!("{e:#}"), |v| format!("{v:#}"))
            }
            _ => "none known".into(),
        };
        let log = self
            .lane
            .sandbox
            .effects(&format!("object={order}&list=true"))
            .map_or_else(|e| format!("{e:#}"), |v| format!("{v:#}"));
        format!(
            "seed {}, round {}: {}\nagain: cargo xtask torture --seed {} --only {}\nthe caller:\n{}\nthe record:\n{record}\nthe provider:\n{log}\n{}",
            self.seed,
            self.round.number,
            self.round.words().join(", "),
            self.seed,
            self.round.number,
            self.actor.story.join("\n"),
            self.lane.said(),
        )
    }
}

fn raw_bytes(said: &Said) -> Option<String> {
    match said {
        Said::Result { stored, .. } => Some(stored.clone()),
        _ => None,
    }
}
