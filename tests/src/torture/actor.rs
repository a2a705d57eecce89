//! A caller in one round: names its call in its style, speaks with its voice, retries as such a client would.

use super::lane::{CLIENT_LIMIT, Lane};
use super::plan::{Round, Style, Voice};
use crate::clients::{self, Pending};
use crate::http::Connection;
use crate::random::Random;
use crate::wire::{self, Call, Era, META_KEY, Said};
use anyhow::Result;
use serde_json::{Value, json};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a caller goes on trying.
const PATIENCE: Duration = Duration::from_secs(40);

/// The caller.
pub struct Actor {
    round: Round,
    arguments: Value,
    key: String,
    order: String,
    /// How often it called.
    pub tries: u32,
    /// How long it waits for one answer.
    pub patience: Duration,
    /// A key that an answer gave it.
    learned: Option<String>,
    random: Random,
    begun: Instant,
    /// What it was told, for reports.
    pub story: Vec<String>,
}

/// A call under way.
pub enum Flight {
    /// In a worker.
    Official(clients::Kind, Pending),
    /// In a thread.
    Raw(Receiver<Said>),
}

/// How a caller leaves early.
#[derive(Clone, Copy, Debug)]
pub enum Leave {
    /// It does not.
    No,
    /// After a time.
    After(Duration),
    /// After some bytes of the answer.
    Bytes(usize),
}

/// What the caller came to.
#[derive(Clone, Debug)]
pub enum End {
    /// A stored result.
    Result(Said),
    /// The operation of this id is in doubt.
    InDoubt(String),
    /// An answer that no retry changes.
    Broken(String),
    /// No answer in all its patience.
    Lost(String),
}

impl Actor {
    /// The caller of a round.
    #[must_use]
    pub fn new(round: &Round, seed: u64) -> Actor {
        let order = round.order(seed);
        Actor {
            arguments: round.class.arguments(&order),
            key: format!("order-{order}"),
            round: round.clone(),
            order,
            tries: 0,
            patience: CLIENT_LIMIT,
            learned: None,
            random: round.random(seed ^ 0xac70),
            begun: Instant::now(),
            story: Vec::new(),
        }
    }

    /// Does what comes before the first try.
    pub fn prepare(&mut self, lane: &Lane) {
        if self.round.style == Style::MintedKey && self.learned.is_none() {
            self.learned = self.mint(lane);
        }
    }

    /// Begins the next try.
    ///
    /// # Errors
    /// A worker is gone.
    pub fn begin(&mut self, lane: &mut Lane, leave: Leave) -> Result<Flight> {
        self.tries += 1;
        let mut call = Call::new(&self.round.tool(), self.arguments.clone());
        self.name(lane, &mut call)?;
        match self.round.voice {
            Voice::Raw => Ok(Flight::Raw(self.raw(lane, call, leave))),
            Voice::RawLegacy => {
                // The first clients of the transport sent no revision.
                let revision = (!self.round.number.is_multiple_of(3)).then_some(wire::LEGACY);
                Ok(Flight::Raw(self.raw(lane, call.of(Era::Legacy(revision)), leave)))
            }
            Voice::Official(kind) => {
                if self.tries > 1 && self.round.style == Style::OtherId {
                    lane.worker(kind)?.forget("lane")?;
                }
                let url = lane.url();
                let abort = match leave {
                    Leave::After(d) => Some(d),
                    _ => None,
                };
                let order = lane.order(&url, self.patience, abort);
                let pending =
                    lane.worker(kind)?.begin_call(&order, &call.tool, &call.arguments, &call.meta)?;
                Ok(Flight::Official(kind, pending))
            }
        }
    }

    /// The same call at the same moment from a socket: the try is the next one's twin.
    ///
    /// # Errors
    /// The provider or gateway does not answer.
    pub fn twin(&mut self, lane: &Lane) -> Result<Flight> {
        let tries = self.tries;
        let mut call = Call::new(&self.round.tool(), self.arguments.clone());
        self.tries += 1;
        self.name(lane, &mut call)?;
        // A model names both alike or not at all; a program's key is the same anyway.
        self.tries = tries;
        Ok(Flight::Raw(self.raw(lane, call, Leave::No)))
    }

    /// Puts the key where the style has it.
    fn name(&mut self, lane: &Lane, call: &mut Call) -> Result<()> {
        if self.round.style == Style::RetryKey && self.tries > 1 && self.learned.is_none() {
            let tool = format!("{}.refunds.{}", self.round.class.name(), self.round.style.method());
            self.learned = look_up(lane, self.patience, &tool);
        }
        self.prepare(lane);
        let argument = match (self.round.style, &self.learned) {
            (Style::ProgramKey | Style::DerivedKey, _) => None,
            (_, Some(learned)) => Some(learned.clone()),
            (Style::InventedKey, None) => Some(format!("attempt-{}-{}", self.tries, self.order)),
            _ => None,
        };
        if let Some(argument) = argument {
            call.arguments["idempotency_key"] = json!(argument);
        }
        if self.round.style == Style::ProgramKey {
            match (self.round.voice, self.random.below(3)) {
                (Voice::Raw | Voice::RawLegacy, 0) => call.header_key = Some(self.key.clone()),
                (Voice::Raw | Voice::RawLegacy, 1) => call.params_key = Some(self.key.clone()),
                _ => call.meta[META_KEY] = json!(self.key),
            }
        }
        call.id = match self.round.style {
            Style::OtherId => json!(format!("id-{}", self.random.number())).to_string(),
            _ => self.tries.to_string(),
        };
        Ok(())
    }

    /// Calls without a key a tool that wants one, and is given one.
    fn mint(&mut self, lane: &Lane) -> Option<String> {
        let said =
            wire::call(lane.addr(), CLIENT_LIMIT, &Call::new(&self.round.tool(), self.arguments.clone()));
        self.tell(&format!("asking for a key: {}", said.brief()));
        match said {
            Said::Error { kind, error, .. } if kind == "key_required" => {
                error["newKey"].as_str().map(str::to_owned)
            }
            _ => None,
        }
    }

    fn raw(&self, lane: &Lane, call: Call, leave: Leave) -> Receiver<Said> {
        let (sender, receiver) = mpsc::channel();
        let (addr, patience) = (lane.addr(), self.patience);
        thread::spawn(move || {
            let said = match leave {
                Leave::No => wire::call(addr, patience, &call),
                Leave::After(d) => depart(addr, &call, |_| thread::sleep(d)),
                Leave::Bytes(n) => depart(addr, &call, |c| {
                    c.read_some(n);
                }),
            };
            let _ = sender.send(said);
        });
        receiver
    }

    /// The answer, if it is there.
    ///
    /// # Errors
    /// The worker is gone.
    pub fn poll(&mut self, lane: &mut Lane, flight: &Flight) -> Result<Option<Said>> {
        match flight {
            Flight::Raw(receiver) => match receiver.try_recv() {
                Ok(said) => Ok(Some(said)),
                Err(TryRecvError::Empty) => Ok(None),
                Err(TryRecvError::Disconnected) => Ok(Some(Said::Lost("the caller's thread ended".into()))),
            },
            Flight::Official(kind, pending) => lane.worker(*kind)?.poll_call(*pending),
        }
    }

    /// The answer.
    ///
    /// # Errors
    /// The worker is gone or silent.
    pub fn end(&mut self, lane: &mut Lane, flight: Flight) -> Result<Said> {
        let said = match flight {
            Flight::Raw(receiver) => {
                receiver.recv_timeout(CLIENT_LIMIT * 2).unwrap_or_else(|_| Said::Lost("no answer".into()))
            }
            Flight::Official(kind, pending) => lane.worker(kind)?.end_call(pending)?,
        };
        self.note(&said);
        Ok(said)
    }

    /// The answer, if it comes by then. A client that is still opening its connection has no limit of its own.
    ///
    /// # Errors
    /// The worker is gone.
    pub fn end_by(&mut self, lane: &mut Lane, flight: &Flight, until: Instant) -> Result<Said> {
        let said = loop {
            match self.poll(lane, flight)? {
                Some(said) => break said,
                None if Instant::now() > until => break Said::Lost("nothing, so far".into()),
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        self.note(&said);
        Ok(said)
    }

    /// Adds a line to the story.
    pub fn tell(&mut self, what: &str) {
        self.story.push(format!("{:6.3} {what}", self.begun.elapsed().as_secs_f64()));
    }

    /// Remembers an answer.
    pub fn note(&mut self, said: &Said) {
        self.tell(&format!("try {}: {}", self.tries, said.brief()));
        if let Said::Error { kind, error, .. } = said
            && matches!(kind.as_str(), "twin" | "still_running")
            && let Some(key) = error["retryKey"].as_str()
        {
            self.learned = Some(key.to_owned());
        }
    }

    /// One try to its end.
    ///
    /// # Errors
    /// A worker is gone.
    pub fn try_once(&mut self, lane: &mut Lane) -> Result<Said> {
        let flight = self.begin(lane, Leave::No)?;
        self.end(lane, flight)
    }

    /// Tries until there is an answer that counts.
    ///
    /// # Errors
    /// A worker is gone.
    pub fn settle(&mut self, lane: &mut Lane) -> Result<End> {
        let until = Instant::now() + PATIENCE;
        loop {
            let said = self.try_once(lane)?;
            let pause = match &said {
                Said::Result { .. } => return Ok(End::Result(said)),
                Said::Error { kind, error, text } => match kind.as_str() {
                    "twin" => 0,
                    "still_running" => error["retryAfterMs"].as_u64().unwrap_or(200).min(300),
                    "in_doubt" => {
                        return Ok(End::InDoubt(
                            error["operationId"].as_str().unwrap_or_default().to_owned(),
                        ));
                    }
                    "unavailable" | "admission_unknown" => 200,
                    _ => return Ok(End::Broken(format!("{kind}: {text}"))),
                },
                Said::Rpc { code: -32603, .. } | Said::Lost(_) => 50,
                Said::Rpc { .. } => return Ok(End::Broken(said.brief())),
            };
            if Instant::now() > until {
                return Ok(End::Lost(said.brief()));
            }
            if lane.is_dead() {
                return Ok(End::Broken("the gateway died by itself".into()));
            }
            thread::sleep(Duration::from_millis(pause));
        }
    }
}

/// Sends a call and leaves.
fn depart(addr: std::net::SocketAddr, call: &Call, before: impl Fn(&mut Connection)) -> Said {
    match Connection::open(addr, CLIENT_LIMIT) {
        Ok(mut connection) => {
            if connection.send(&call.bytes(addr)).is_ok() {
                before(&mut connection);
            }
            Said::Lost("left".into())
        }
        Err(e) => Said::Lost(e.to_string()),
    }
}

/// What a caller does who lost an answer and asks first: the newest operation of this tool that is not one of
/// before.
fn look_up(lane: &Lane, patience: Duration, tool: &str) -> Option<String> {
    let Said::Result { value, .. } =
        wire::call(lane.addr(), patience, &Call::new("operation_status", json!({ "limit": 20 })))
    else {
        return None;
    };
    let all = value["structuredContent"]["operations"].as_array()?.clone();
    all.iter()
        .filter(|op| op["tool"] == tool)
        .filter_map(|op| op["retryKey"].as_str())
        .find(|id| !lane.known.contains(*id))
        .map(str::to_owned)
}
