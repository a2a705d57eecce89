//! What workers, requests and the provider do: the control flow of an attempt and of the recovery loop, step by step.

use super::{Answer, Doing, RETENTION, Request, STALL, State, Without, World, plain};
use counterfoil_ledger::decide::{AtCap, Fence, Finding, Outcome, at_cap};
use counterfoil_ledger::executor::Receipt;
use counterfoil_ledger::gaps::NONE;
use counterfoil_ledger::step::{self, Moment, Step};
use counterfoil_ledger::{Event, Execution, Millis, Operation, Refusal, Strategy, Time, decide};
use std::sync::Arc;

impl State {
    pub fn moment(&self) -> Moment<'static> {
        Moment { now: Time(self.now), clock_step: None, gaps: &NONE }
    }

    pub fn fence(op: &Operation) -> Fence {
        Fence { attempt: op.attempt, epoch: op.owner }
    }

    /// What a write comes to: the events, decided on the record as it is now, as the ledger decides anew when it
    /// finds that the record moved on.
    pub fn write(&mut self, events: Vec<Event>) -> Result<Arc<Operation>, Refusal> {
        let mut next = (*self.record).clone();
        for event in events {
            let decided = decide(&next, event, Time(self.now));
            self.fenced |= decided.as_ref().err() == Some(&Refusal::Fenced);
            next = decided?.next;
        }
        next.version = self.record.version + 1;
        self.record = plain(next);
        Ok(self.record.clone())
    }

    /// Worker `w` no longer waits for an answer.
    pub fn let_go(&mut self, w: usize) {
        self.workers[w] = Doing::Nothing;
        self.requests.iter_mut().filter(|r| r.by == Some(w)).for_each(|r| r.by = None);
        self.requests.sort();
    }

    /// Whether *not found*, asked at `at`, counts.
    pub fn counts(&self, seen: &Operation, at: i64) -> bool {
        at >= step::counts_from(&seen.effects[0], Moment { now: Time(at), clock_step: None, gaps: &NONE }).0
    }

    /// What came of a request for the worker that waits for it.
    pub fn answer(&mut self, r: &Request, answered: bool) {
        let Some(w) = r.by else { return };
        let Doing::Waiting { seen } = &self.workers[w] else { return };
        let seen = seen.clone();
        self.workers[w] =
            if answered { Doing::Closing { seen, answer: Answer::Applied } } else { Doing::Cut { seen } };
    }

    /// As an attempt ends that came to nothing.
    pub fn give_up(&mut self, seen: &Operation) {
        let fence = State::fence(seen);
        let rest = Event::Rest { fence, until: Time(self.now + 1) };
        let event = match (at_cap(seen), &seen.execution) {
            (AtCap::CloseWithAccount, _) => close(fence),
            (_, Execution::InDoubt { .. }) => Event::Doubt { fence, reason: String::new() },
            (AtCap::Fail, _) => Event::Fail { fence, reason: String::new() },
            (AtCap::Doubt, _) => rest,
        };
        let _ = self.write(vec![event]);
    }

    /// The next step of worker `w`, which is about to take one.
    pub fn think(&mut self, w: usize, world: World, seen: &Arc<Operation>, begun: bool, found: bool) {
        let (fence, effect) = (State::fence(seen), 0);
        let step =
            if begun { Step::Send { replay: false } } else { step::next(&seen.effects[0], self.moment()) };
        self.workers[w] = Doing::Nothing;
        let wrote = match step {
            Step::Settled => {
                self.workers[w] = Doing::Closing { seen: seen.clone(), answer: Answer::Known };
                return;
            }
            Step::Send { .. } => {
                let op =
                    if begun { Ok(seen.clone()) } else { self.write(vec![Event::Send { fence, effect }]) };
                let Ok(op) = op else { return };
                // The write and the first byte are two moments.
                self.workers[w] = if begun {
                    Doing::Waiting { seen: op.clone() }
                } else {
                    Doing::Thinking { seen: op.clone(), begun: true }
                };
                if begun {
                    self.emit(w, world, &op);
                }
                return;
            }
            Step::LookUp => {
                self.workers[w] = Doing::Asked { seen: seen.clone(), at: self.now, found };
                return;
            }
            Step::Wait(until) if until < seen.deadline => {
                self.workers[w] = Doing::Thinking { seen: seen.clone(), begun: false };
                return;
            }
            Step::Wait(until) => self.write(vec![Event::Rest { fence, until }]),
            Step::Rest => self.write(vec![Event::Rest { fence, until: Time(self.now + 1) }]),
            Step::NeverSent => {
                let never = Event::Receive { fence, effect, outcome: Outcome::NeverSent };
                if let Ok(op) = self.write(vec![never]) {
                    self.give_up(&op);
                }
                return;
            }
            Step::AskPerson(question) => self.write(vec![Event::Ask { fence, question }]),
            Step::Doubt(reason) => self.write(vec![Event::Doubt { fence, reason }]),
        };
        let _ = wrote;
    }

    /// The first byte leaves. There is time, or it would not.
    pub fn emit(&mut self, w: usize, world: World, op: &Operation) {
        let until = op.effects[0].send_deadline.min(op.deadline).0 + STALL;
        let key = if world.without == Without::OneKey { op.attempt } else { 0 };
        self.requests.push(Request { by: Some(w), key, until });
        self.requests.sort();
    }

    /// A request arrives. What it does depends on what the provider is.
    pub fn arrive(&mut self, strategy: Strategy, r: &Request) {
        let known = match strategy {
            Strategy::Key => self.effects.iter().any(|e| e.1 == r.key && self.now <= e.0 + RETENTION),
            Strategy::Unique => !self.effects.is_empty(),
            _ => false,
        };
        if !known {
            self.effects.push((self.now, r.key));
        }
    }
}

pub fn close(fence: Fence) -> Event {
    Event::Close { fence, result: Vec::new(), is_error: false, caller_gone: false }
}

pub fn unknown(fence: Fence) -> Event {
    let outcome = Outcome::Unknown { why: String::new(), pause: Millis(1), stored: false };
    Event::Receive { fence, effect: 0, outcome }
}

impl World {
    /// A worker goes on with what it is in the middle of.
    pub fn go(&self, s: &mut State, doing: &Doing, w: usize) {
        s.let_go(w);
        match doing {
            Doing::Nothing => {}
            Doing::Thinking { seen, begun } => {
                let time = seen.effects[0].send_deadline.min(seen.deadline).0 - s.now;
                if *begun && time <= 0 {
                    let outcome = Outcome::NotSent { why: String::new(), pause: Millis(1) };
                    let not_sent = Event::Receive { fence: State::fence(seen), effect: 0, outcome };
                    if let Ok(seen) = s.write(vec![not_sent]) {
                        s.workers[w] = Doing::Thinking { seen, begun: false };
                    }
                } else {
                    s.think(w, *self, seen, *begun, false);
                }
            }
            Doing::Waiting { seen } | Doing::Cut { seen } => {
                if let Ok(seen) = s.write(vec![unknown(State::fence(seen))]) {
                    s.workers[w] = Doing::Thinking { seen, begun: false };
                }
            }
            Doing::Asked { seen, at, found: true } => {
                s.workers[w] = Doing::Closing { seen: seen.clone(), answer: Answer::Found { asked_at: *at } };
            }
            Doing::Asked { seen, at, found: false } => {
                let counts_from = step::counts_from(
                    &seen.effects[0],
                    Moment { now: Time(*at), clock_step: None, gaps: &NONE },
                );
                let answer = Finding::NotFound { pause: Millis(1), counts_from };
                let looked =
                    Event::Looked { fence: State::fence(seen), effect: 0, asked_at: Time(*at), answer };
                if let Ok(seen) = s.write(vec![looked]) {
                    s.workers[w] = Doing::Thinking { seen, begun: false };
                }
            }
            Doing::Closing { seen, answer } => {
                let fence = State::fence(seen);
                let receipt = Receipt(Vec::new());
                let settles = match answer {
                    Answer::Applied => {
                        vec![Event::Receive { fence, effect: 0, outcome: Outcome::Applied(receipt) }]
                    }
                    Answer::Found { asked_at } => {
                        let answer = Finding::Found { receipt, several: false };
                        vec![Event::Looked { fence, effect: 0, asked_at: Time(*asked_at), answer }]
                    }
                    Answer::Known => Vec::new(),
                };
                let events = settles.into_iter().chain([close(fence)]).collect();
                let _ = s.write(events);
            }
        }
    }
}
