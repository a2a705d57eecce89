//! One round: the strike, the retries, the counting.

mod clock;
mod count;
mod promise;
mod provider;
mod replicas;
mod still;
mod strike;

use super::actor::{Actor, End, Flight, Leave};
use super::lane::Lane;
use super::plan::{Fault, Round};
use crate::random::Random;
use crate::stand::AMOUNT;
use crate::wire::Said;
use anyhow::{Context, Result};
use promise::{Doubt, promise};
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
    /// How long after a replica's end its call was settled by another.
    pub takeover: Option<Duration>,
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

/// What a strike came to.
struct Struck {
    /// It really happened.
    fired: bool,
    /// What the caller was told.
    first: Option<Said>,
    /// How far the age of what was open then can be trusted, and what it is.
    age: Age,
    /// Since when others must take over.
    since: Option<Instant>,
}

/// What the ledger can know of the age of an intent that was open when something broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// All of it.
    Known,
    /// Nothing: a clock was set meanwhile.
    Unknown,
}

impl Struck {
    fn new(fired: bool, first: Option<Said>) -> Struck {
        Struck { fired, first, age: Age::Known, since: None }
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
    /// The bytes that are stored of its result.
    bytes: Option<String>,
    takeover: Option<Duration>,
}

/// Plays a round.
///
/// # Errors
/// The stand does not work.
pub fn play(lane: &mut Lane, seed: u64, round: &Round) -> Result<Played> {
    let started = Instant::now();
    let actor = Actor::new(round, seed);
    let random = round.random(seed);
    let mut game = Game {
        lane,
        seed,
        round,
        actor,
        random,
        broken: Vec::new(),
        operation: None,
        bytes: None,
        takeover: None,
    };
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
    if matches!(round.fault, Fault::Clock(..)) {
        game.lane.start_afresh()?;
    }
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
        takeover: game.takeover,
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
        let Struck { fired, first, age, since } = self.strike()?;
        if self.round.again {
            thread::sleep(Duration::from_micros(self.random.below(250_000)));
            self.lane.kill();
            self.lane.serve(None)?;
        }
        let end = self.actor.settle(self.lane)?;
        self.taken_over(since, first.as_ref());
        // The faults are over; what follows is about what was kept.
        self.lane.sandbox.disarm()?;
        let promise = promise(self.round, age);
        let mut in_doubt = false;
        match end {
            End::Result(said) => self.result(&said, first.as_ref(), &promise)?,
            End::InDoubt(id) => {
                in_doubt = true;
                let allowed = match promise.doubt {
                    Doubt::Always => true,
                    Doubt::Untraced => self.effects()?.0 == 0,
                    Doubt::Received => self.received()? > 0,
                    Doubt::Never => false,
                };
                if !allowed {
                    self.broke(Broken::Doubt, format!("{id} is in doubt"));
                }
                self.doubt(&id)?;
            }
            End::Broken(why) => self.broke(Broken::Answer, why),
            End::Lost(why) => self.broke(Broken::Lost, format!("no answer at all; at last: {why}")),
        }
        let effects = self.count(&promise, in_doubt)?;
        self.everywhere()?;
        self.quiesce()?;
        Ok((fired, in_doubt, effects))
    }

    fn arm(&self, name: &str, more: &Value) -> Result<()> {
        let mut rule = json!({ "on": self.round.class.on(), "do": name, "times": 1 });
        for (k, v) in more.as_object().into_iter().flatten() {
            rule[k] = v.clone();
        }
        self.lane.sandbox.rule(&rule)
    }

    /// Makes the call, and returns once the provider holds the request: it has applied it, or will not, or will in a
    /// moment. So many requests are not answered.
    fn held(&mut self, sends: u32) -> Result<Flight> {
        let kind = *self.random.one(&["apply_then_hang", "hang", "delay"]);
        match kind {
            // Within what the manifests say that it may take.
            "delay" if sends == 1 => self.arm("delay", &json!({ "delay_ms": 150 }))?,
            "apply_then_hang" => self.arm(kind, &json!({}))?,
            _ => self.arm("hang", &json!({}))?,
        }
        if sends > 1 {
            self.arm("hang", &json!({ "times": sends - 1 }))?;
        }
        let before = self.received()?;
        let flight = self.actor.begin(self.lane, Leave::No)?;
        self.wait_for(|game| {
            Ok(if kind == "apply_then_hang" { game.effects()?.0 > 0 } else { game.received()? > before })
        })?;
        Ok(flight)
    }

    fn wait_for(&mut self, mut what: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
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

    fn reproduction(&mut self) -> String {
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
        let more = self.lane.cluster().map_or(0, |(cluster, _)| cluster.replicas.len());
        let more = if more > 0 { format!(" --store postgres --replicas {more}") } else { String::new() };
        format!(
            "seed {}, round {}: {}\nagain: cargo xtask torture --seed {} --only {}{more}\nthe caller:\n{}\nthe record:\n{record}\nthe provider:\n{log}\n{}",
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
