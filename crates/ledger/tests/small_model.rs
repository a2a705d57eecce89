//! Every course that one operation can take with two workers, a provider of each class and a crash anywhere: the
//! real `decide` and `step::next`, searched exhaustively.
//!
//! A state holds the durable record, what each worker believes of it, the requests that are under way, and what
//! the provider did. Time is a small number of ticks that pass at any moment, also while a worker is in the middle
//! of something: that is how a worker becomes a zombie. The control flow around `step::next` is that of an attempt
//! and of the recovery loop, with each durable write, each request and each answer a step of its own.
//!
//! What is promised is checked in every state. So that the checks are known to bite, guards can be taken away
//! ([`Without`]): each must then lead to a second effect.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "small_model/content.rs"]
mod content;
#[path = "small_model/course.rs"]
mod course;

use counterfoil_ledger::decide::{AtCap, Opening, at_cap, open};
use counterfoil_ledger::step::{self, Step};
use counterfoil_ledger::{
    EffectKey, EffectState, Epoch, Event, Execution, Fingerprint, Intent, Millis, Operation, OperationId,
    OperationPolicy, Recovery, Refusal, Scope, Strategy, Time,
};
use course::close;
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::sync::Arc;

/// Ticks that a send may take.
const SEND: i64 = 2;
/// Ticks that an attempt may take.
const ATTEMPT: i64 = 4;
/// Ticks that a request may be on its way, or be worked on, beyond its sender's patience.
const STALL: i64 = 1;
/// Ticks that an effect may stay invisible.
const LAG: i64 = 1;
/// Ticks that the provider remembers a key.
const RETENTION: i64 = 6;
/// How many crashes there are at most.
const CRASHES: u8 = 1;

const ONE_EFFECT: &str = "at most one effect";

/// A guard that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// *Not found* counts as soon as the senders' time is over.
    Quarantine,
    /// The ledger replays for longer than the provider remembers.
    Margin,
    /// Each attempt has its own key.
    OneKey,
    /// A provider of which nothing is known is taken for one that may be asked to do it twice.
    Caution,
}

/// A kind of provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct World {
    strategy: Strategy,
    without: Without,
}

/// A request under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Request {
    /// The worker that waits for its answer, if it still does.
    by: Option<usize>,
    /// The key that it bears: 0, or its attempt where that is the fault.
    key: u32,
    /// It arrives by then or not at all.
    until: i64,
}

/// What a worker is in the middle of. `seen` is the record as it was durable when the worker last wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// About to take the next step; `begun`: the first send is durable and still to be made.
    Thinking {
        seen: Arc<Operation>,
        begun: bool,
    },
    /// A request is under way.
    Waiting {
        seen: Arc<Operation>,
    },
    /// The connection broke.
    Cut {
        seen: Arc<Operation>,
    },
    /// The provider was asked, and said so (or not).
    Asked {
        seen: Arc<Operation>,
        at: i64,
        found: bool,
    },
    /// The answer is here; it and the result are one write.
    Closing {
        seen: Arc<Operation>,
        answer: Answer,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    /// An answer to a send.
    Applied,
    /// A look-up's.
    Found { asked_at: i64 },
    /// The receipt is durable.
    Known,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    now: i64,
    record: Arc<Operation>,
    workers: [Doing; 2],
    /// Each worker's boot.
    boots: [u64; 2],
    requests: Vec<Request>,
    /// When effects happened, and under which key.
    effects: Vec<(i64, u32)>,
    crashes: u8,
    cancelled: bool,
    called_again: bool,
    /// A worker's write came too late.
    fenced: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Act {
    Tick,
    Crash(usize),
    /// A worker goes on with what it does.
    Go(usize),
    /// A look-up before its time shows, or doesn't show, what is there.
    Ask {
        worker: usize,
        found: bool,
    },
    /// A worker's time is over.
    TimeUp(usize),
    /// A worker that does nothing looks after the record.
    Recover(usize),
    /// The caller calls again.
    CallAgain(usize),
    Cancel,
    /// A request arrives, and its answer too, if it is `answered`.
    Arrive {
        request: usize,
        answered: bool,
    },
    /// A request is lost.
    Lose(usize),
}

fn recovery(w: World) -> Recovery {
    let strategy = match (w.strategy, w.without) {
        (Strategy::None, Without::Caution) => Strategy::Natural,
        (s, _) => s,
    };
    let quarantine = w.without != Without::Quarantine;
    Recovery {
        replay_for: match (w.strategy, w.without) {
            (Strategy::Key, Without::Margin) => Some(Millis(RETENTION + SEND + 1)),
            // What a replay's request may take on its way comes off.
            (Strategy::Key, _) => Some(Millis(RETENTION - STALL)),
            _ => None,
        },
        processing_bound: Millis(if quarantine { STALL } else { 0 }),
        visibility_lag: Millis(if quarantine { LAG } else { 0 }),
        send_timeout: Millis(SEND),
        // Where a second send needs no more than another attempt, one an attempt is enough to see all.
        max_sends: if w.strategy == Strategy::Key { 2 } else { 1 },
        initial_backoff: Millis(1),
        max_backoff: Millis(1),
        ..Recovery::new(strategy)
    }
}

fn opened(w: World) -> Operation {
    let scope = Scope { principal: "p".into(), tool: "t".into(), mode: "production".into() };
    let canonical = counterfoil_ledger::canonical::canonicalise_arguments(None, None).unwrap();
    let fingerprint = Fingerprint::of("t", &canonical);
    let id = OperationId(1);
    let key = EffectKey::derive("model", &scope, id, None, &fingerprint, "e", "");
    let intent = Intent {
        name: "e".into(),
        discriminator: String::new(),
        recovery: recovery(w),
        summary: String::new(),
        body: Vec::new(),
    };
    let policy = OperationPolicy { timeout: Millis(ATTEMPT), attempt_cap: 3, ..OperationPolicy::default() };
    let (epoch, arguments) = (Epoch(1), None);
    open(
        Opening {
            id,
            scope,
            key: None,
            fingerprint,
            policy,
            epoch,
            intent: Some((intent, key)),
            arguments,
            asks: vec![],
        },
        Time(0),
    )
    .next
}

/// Takes out of a record what no decision depends on, so that courses that differ only in words become one.
fn plain(mut op: Operation) -> Arc<Operation> {
    for e in &mut op.effects {
        e.why.clear();
        // Counted for pauses, which are all one tick here, and for whether there was one.
        (e.sends, e.looks) = (0, e.looks.min(1));
    }
    match &mut op.execution {
        Execution::Failed { reason } => reason.clear(),
        Execution::InDoubt { reason, .. } => reason.clear(),
        Execution::InputRequired { question } => question.clear(),
        _ => {}
    }
    op.decisions.clear();
    Arc::new(op)
}

impl Model for World {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let record = plain(opened(*self));
        // The opening is durable; its one send is begun with it.
        let first = Doing::Thinking { seen: record.clone(), begun: true };
        vec![State {
            now: 0,
            record,
            workers: [first, Doing::Nothing],
            boots: [1, 2],
            requests: Vec::new(),
            effects: Vec::new(),
            crashes: 0,
            cancelled: false,
            called_again: false,
            fenced: false,
        }]
    }

    fn actions(&self, s: &State, acts: &mut Vec<Act>) {
        acts.push(Act::Tick);
        for (i, r) in s.requests.iter().enumerate() {
            if i > 0 && *r == s.requests[i - 1] {
                continue;
            }
            acts.extend([true, false].map(|answered| Act::Arrive { request: i, answered }));
            acts.push(Act::Lose(i));
        }
        if !s.cancelled && !s.record.execution.is_answerable() {
            acts.push(Act::Cancel);
        }
        for (w, doing) in s.workers.iter().enumerate() {
            if s.crashes < CRASHES && *doing != Doing::Nothing {
                acts.push(Act::Crash(w));
            }
            let seen = match doing {
                Doing::Nothing => {
                    if s.record.execution == Execution::Running {
                        acts.push(Act::Recover(w));
                    }
                    if !s.called_again && matches!(s.record.execution, Execution::Failed { .. }) {
                        acts.push(Act::CallAgain(w));
                    }
                    continue;
                }
                Doing::Thinking { seen, begun } => {
                    let step = step::next(&seen.effects[0], s.moment());
                    match step {
                        Step::LookUp if !begun => {
                            let (there, surely) =
                                (!s.effects.is_empty(), s.effects.iter().any(|e| e.0 + LAG <= s.now));
                            acts.extend(there.then_some(Act::Ask { worker: w, found: true }));
                            acts.extend((!surely).then_some(Act::Ask { worker: w, found: false }));
                        }
                        Step::Wait(until) if !begun && until < seen.deadline => {}
                        _ => acts.push(Act::Go(w)),
                    }
                    seen
                }
                Doing::Waiting { seen } => {
                    if s.now >= seen.effects[0].send_deadline.0 {
                        acts.push(Act::Go(w));
                    }
                    seen
                }
                Doing::Cut { seen } | Doing::Asked { seen, .. } | Doing::Closing { seen, .. } => {
                    acts.push(Act::Go(w));
                    seen
                }
            };
            if s.now >= seen.deadline.0 && !matches!(doing, Doing::Closing { .. }) {
                acts.push(Act::TimeUp(w));
            }
        }
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut s = last.clone();
        match act {
            Act::Tick => {
                s.now += 1;
                let now = s.now;
                s.requests.retain(|r| r.until >= now);
            }
            Act::Crash(w) => {
                s.crashes += 1;
                s.let_go(w);
                s.boots[w] = s.boots[0].max(s.boots[1]) + 1;
            }
            Act::Ask { worker, found } => {
                let Doing::Thinking { seen, .. } = &last.workers[worker] else { return None };
                s.think(worker, *self, seen, false, found);
            }
            Act::Go(w) => self.go(&mut s, &last.workers[w], w),
            Act::TimeUp(w) => {
                let (Doing::Thinking { seen, .. }
                | Doing::Waiting { seen }
                | Doing::Cut { seen }
                | Doing::Asked { seen, .. }) = &last.workers[w]
                else {
                    return None;
                };
                s.let_go(w);
                s.give_up(seen);
            }
            Act::Recover(w) => {
                let owner = s.record.owner;
                let owner_dead = owner != Epoch(0) && !s.boots.contains(&owner.0);
                let claim = Event::Claim { epoch: Epoch(s.boots[w]), by_call: false, owner_dead };
                let seen = s.record.clone();
                match s.write(vec![claim]) {
                    Ok(seen) => s.workers[w] = Doing::Thinking { seen, begun: false },
                    Err(Refusal::Cap) => {
                        let fence = State::fence(&seen);
                        let event = match at_cap(&seen) {
                            AtCap::Fail => Event::Fail { fence, reason: String::new() },
                            AtCap::Doubt => Event::Doubt { fence, reason: String::new() },
                            AtCap::CloseWithAccount => close(fence),
                        };
                        s.write(vec![event]).ok()?;
                    }
                    Err(_) => return None,
                }
            }
            Act::CallAgain(w) => {
                s.called_again = true;
                let claim = Event::Claim { epoch: Epoch(s.boots[w]), by_call: true, owner_dead: false };
                let seen = s.write(vec![claim]).ok()?;
                s.workers[w] = Doing::Thinking { seen, begun: false };
            }
            Act::Cancel => {
                s.cancelled = true;
                s.write(vec![Event::Cancel { by: "caller".into() }]).ok()?;
            }
            Act::Arrive { request, answered } => {
                let r = s.requests.remove(request);
                s.arrive(self.strategy, &r);
                s.answer(&r, answered);
            }
            Act::Lose(request) => {
                let r = s.requests.remove(request);
                s.answer(&r, false);
            }
        }
        (s != *last).then_some(s)
    }

    fn properties(&self) -> Vec<Property<World>> {
        let mut all = vec![
            Property::always(ONE_EFFECT, |w: &World, s: &State| {
                // Repeating changes nothing there.
                w.strategy == Strategy::Natural || s.effects.len() <= 1
            }),
            Property::always("nothing closes over an open effect", |_, s: &State| {
                s.record.execution != Execution::Completed || s.record.effects_settled()
            }),
            Property::always("what is said to have happened did", |_, s: &State| {
                s.record.effects[0].state != EffectState::Applied || !s.effects.is_empty()
            }),
            Property::always("what failed or was cancelled never happens", |_, s: &State| {
                let over =
                    matches!(s.record.execution, Execution::Failed { .. } | Execution::Cancelled { .. });
                !over || s.effects.is_empty()
            }),
            Property::always("the key never changes", |w: &World, s: &State| {
                s.record.effects[0].key == opened(*w).effects[0].key
            }),
            // So that it is known that the search comes to what matters.
            Property::sometimes("it is closed", |_, s: &State| s.record.execution == Execution::Completed),
            Property::sometimes("it happened and nobody knows", |_, s: &State| {
                !s.effects.is_empty() && s.record.effects[0].state != EffectState::Applied && s.crashes > 0
            }),
            Property::sometimes("a zombie's write is refused", |_, s: &State| s.fenced),
            Property::sometimes("it is cancelled after nothing was sent", |_, s: &State| {
                matches!(s.record.execution, Execution::Cancelled { .. })
            }),
        ];
        all.push(match self.strategy {
            Strategy::None => Property::sometimes("it is in doubt", |_, s: &State| {
                matches!(s.record.execution, Execution::InDoubt { .. })
            }),
            _ => Property::sometimes("it is closed after a crash", |_, s: &State| {
                s.record.execution == Execution::Completed && s.crashes > 0 && s.record.attempt > 1
            }),
        });
        all
    }
}

/// Searches everything, or, where a guard is missing, until that is seen.
fn search(strategy: Strategy, without: Without) -> impl Checker<World> {
    let begun = std::time::Instant::now();
    let checker = World { strategy, without }.checker();
    let checked = if without == Without::Nothing {
        checker.threads(2).spawn_bfs().join()
    } else {
        // One thread: then the course is a shortest one.
        checker.finish_when(HasDiscoveries::AnyOf([ONE_EFFECT].into())).spawn_bfs().join()
    };
    println!(
        "{} without {without:?}: {} states, {} transitions, {:?}",
        strategy.word(),
        checked.unique_state_count(),
        checked.state_count(),
        begun.elapsed()
    );
    checked
}

fn holds(strategy: Strategy) {
    let checked = search(strategy, Without::Nothing);
    checked.assert_properties();
    assert!(checked.unique_state_count() > 10_000, "the search came to nothing");
}

/// The course that leads to a second effect, for people.
fn second_effect(strategy: Strategy, without: Without) {
    let checked = search(strategy, without);
    let path = checked.assert_any_discovery(ONE_EFFECT);
    let acts: Vec<_> = path.into_actions();
    println!("{} without {without:?}: {acts:?}", strategy.word());
    assert!(checked.discovery("what is said to have happened did").is_none());
}

#[test]
fn a_key_gives_one_effect() {
    holds(Strategy::Key);
}

#[test]
fn a_unique_field_gives_one_effect() {
    holds(Strategy::Unique);
}

#[test]
fn asking_gives_one_effect() {
    holds(Strategy::Lookup);
}

#[test]
fn what_may_be_repeated_is_not_hidden() {
    holds(Strategy::Natural);
}

#[test]
fn nothing_known_gives_at_most_one_effect() {
    holds(Strategy::None);
}

#[test]
fn without_a_quarantine_asking_gives_two() {
    second_effect(Strategy::Lookup, Without::Quarantine);
}

#[test]
fn without_a_margin_a_forgotten_key_gives_two() {
    second_effect(Strategy::Key, Without::Margin);
}

#[test]
fn a_key_that_changes_with_the_attempt_gives_two() {
    second_effect(Strategy::Key, Without::OneKey);
}

#[test]
fn repeating_where_nothing_is_known_gives_two() {
    second_effect(Strategy::None, Without::Caution);
}
