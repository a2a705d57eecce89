//! What a schedule is made of: drawn from its seed, and cut down when a failing one is shrunk.

use crate::limits::Limit;
use crate::rng::Rng;
use crate::semantics::Semantics;
use ledger::words::{Millis, Time};
use ledger::{OperationPolicy, Recovery, Strategy, Unkeyed};

/// The ledger's time at the start of a schedule.
pub(crate) const BASE: Time = Time(1_800_000_000_000);

/// How a provider treats a key or an object; each fits some strategies.
#[derive(Clone, Debug)]
pub(crate) struct ToolPlan {
    /// `t0`, `t1`, …: the tool's canonical id.
    pub name: String,
    pub recovery: Recovery,
    pub effects: usize,
    /// Opened with its one effect's intent.
    pub planned: bool,
    /// Effects of one attempt run at once.
    pub at_once: bool,
    pub unkeyed: Unkeyed,
    pub guard_window: Millis,
    pub policy: OperationPolicy,
    /// How long the provider remembers a key.
    pub retention: Option<i64>,
    /// The provider keeps refusals and failures under the key and repeats them.
    pub keeps_failures: bool,
    /// In 1000: the tool panics, fails or hangs before an effect; after one; asks for another request.
    pub before: u32,
    pub after: u32,
    pub other: u32,
    /// It claims success whatever the ledger told it.
    pub deaf: u32,
    /// A person has to say yes first.
    pub approval: bool,
    /// How often it asks, and how much at a time.
    pub rounds: usize,
    pub questions: usize,
    /// In 1000: it asks something else under a key that was used.
    pub asks_other: u32,
    /// It keeps a handle, and may end it.
    pub handles: bool,
    /// A state that asks may be used once.
    pub single_use: bool,
}

/// Where a caller's key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyMode {
    None,
    Program,
    Argument,
}

/// One thing that a caller wants done.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub tool: usize,
    pub arguments: u32,
    pub key: KeyMode,
    /// Tells keys apart; wishes of several callers may share one.
    pub key_number: u32,
    /// In 1000, per try: it leaves before the answer.
    pub leaves: u32,
    /// In 1000: it acknowledges what it got.
    pub acknowledges: u32,
    /// It calls once more after it has its result.
    pub again: bool,
    /// Told of a twin, it means a second one.
    pub second: bool,
    /// In 1000, per try: it tries the operation id of another principal first.
    pub pries: u32,
    /// In 1000, per retry: other arguments under the same key.
    pub alters: u32,
    pub starts_at: i64,
    /// It leaves soon and is soon back.
    pub hasty: bool,
    /// It waits in legs of so many milliseconds.
    pub leg: Option<i64>,
    /// It is content with a task: where it would have to wait or to answer, or at once.
    pub task: Option<bool>,
    /// In 1000: it does not come back between two legs, or leaves what it was asked unanswered.
    pub quits: u32,
    /// In 1000: it answers late, twice, in part, differently, or elsewhere.
    pub fickle: u32,
    /// In 1000: it says no where a yes is asked for.
    pub denies: u32,
    /// In 1000, per look at a task: it cancels it.
    pub cancels: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct CallerPlan {
    pub number: usize,
    pub principal: &'static str,
    pub wishes: Vec<Wish>,
}

/// Something that happens at a moment.
#[derive(Clone, Debug)]
pub(crate) enum Blow {
    /// A replica dies; its successor boots after a while.
    Kill { replica: usize, down: i64 },
    /// A replica is not scheduled for a while.
    Pause { replica: usize, length: i64 },
    /// The wall clock jumps, and the store notices.
    Step,
    /// The store's clock jumps ahead.
    Jump { by: i64 },
    /// An operator does something to some operation.
    Operator { replica: usize, dice: u64 },
    /// The network between a replica and the database is cut for a while.
    Cut { replica: usize, length: i64 },
    /// The database stops at once and is back after a while.
    Restart { down: i64 },
}

/// In 1000, per occasion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    pub store_slow: u32,
    pub store_unavailable: u32,
    pub store_uncertain: u32,
    pub store_duplicate: u32,
    pub store_kill: u32,
    pub read_unavailable: u32,
    pub not_sent: u32,
    pub request_lost: u32,
    pub answer_lost: u32,
    pub refuses: u32,
    pub fails: u32,
    pub busy: u32,
    pub slow: u32,
    pub stalls: u32,
    pub replay_refused: u32,
    pub look_fails: u32,
    pub swallowed: u32,
    pub withheld: u32,
    pub bell_late: u32,
    pub bell_twice: u32,
    pub bell_lost: u32,
    pub pulse_lost: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub seed: u64,
    pub semantics: Semantics,
    pub replicas: usize,
    pub tools: Vec<ToolPlan>,
    /// What the calls of them have to keep to.
    pub limits: Vec<Limit>,
    pub callers: Vec<CallerPlan>,
    pub blows: Vec<(i64, Blow)>,
    pub rates: Rates,
    /// From here on nothing goes wrong any more.
    pub calm_at: i64,
    pub lease: i64,
    pub heartbeat: i64,
    /// A replica whose lease lapsed may write nothing more and boots again; else it goes on under its old epoch.
    pub lapse_ends: bool,
    /// A boot ends the one before it of the same replica, as the database knows it.
    pub named: bool,
    pub grace: Millis,
}

const STRATEGIES: [Strategy; 10] = [
    Strategy::Key,
    Strategy::Key,
    Strategy::Key,
    Strategy::Unique,
    Strategy::Natural,
    Strategy::Lookup,
    Strategy::Lookup,
    Strategy::Lookup,
    Strategy::Confirm,
    Strategy::None,
];

impl Plan {
    /// The schedule of a seed, on `semantics` or on what the seed draws.
    pub fn draw(seed: u64, semantics: Option<Semantics>) -> Plan {
        let semantics = semantics.unwrap_or_else(|| Semantics::draw(seed));
        let mut r = Rng::new(seed, 2);
        let mut tools: Vec<ToolPlan> = (0..r.range(1, 2) as usize).map(|n| tool(&mut r, n)).collect();
        let calm_at = r.range(4000, 15_000);
        let mut callers: Vec<CallerPlan> =
            (0..r.range(1, 5) as usize).map(|n| caller(&mut r, n, tools.len())).collect();
        let mut replicas = match (semantics, r.range(1, 3)) {
            (Semantics::Sqlite, _) => 1,
            // Most schedules are about several.
            (_, n) => (n as usize).max(r.range(1, 3) as usize),
        };
        let mut blows: Vec<(i64, Blow)> =
            (0..r.range(0, 6)).map(|_| (r.range(50, calm_at), blow(&mut r, replicas, semantics))).collect();
        blows.sort_by_key(|b| b.0);
        // Each kind of fault is absent in many schedules, so that their combinations differ.
        // Some schedules are stormy: faults meet faults.
        let storm = if r.mille(120) { 3 } else { 1 };
        let mut some = |most: u32| if r.mille(450) { r.below(u64::from(most * storm)) as u32 } else { 0 };
        let mut rates = Rates {
            store_slow: some(150),
            store_unavailable: some(80),
            store_uncertain: some(120),
            store_duplicate: some(200),
            store_kill: some(30) / storm,
            read_unavailable: some(60),
            not_sent: some(300),
            request_lost: some(250),
            answer_lost: some(350),
            refuses: some(200),
            fails: some(250),
            busy: some(200),
            slow: some(400),
            stalls: some(15) / storm,
            replay_refused: some(300),
            look_fails: some(250),
            swallowed: some(200),
            withheld: some(60),
            bell_late: some(300),
            bell_twice: some(300),
            bell_lost: some(150),
            pulse_lost: some(60),
        };
        if r.mille(120) {
            // Every other acknowledgement is lost, while sends come to little: each answer must count once.
            (rates.store_uncertain, rates.store_unavailable) = (450, 0);
            (rates.answer_lost, rates.busy, rates.not_sent) = (400, 500, 300);
        }
        if semantics == Semantics::Postgres && r.mille(90) {
            crowd(&mut r, &mut tools[0], &mut callers, &mut rates);
            replicas = replicas.max(2);
        }
        if semantics == Semantics::Postgres && r.mille(60) {
            // Leases that are not renewed, again and again, while the database takes its time.
            (rates.store_slow, rates.pulse_lost) = (500, 400);
            let sleep = |r: &mut Rng| Blow::Pause { replica: r.index(replicas), length: r.range(1600, 3200) };
            blows.extend((0..12).map(|n| (100 + n * 350 + r.range(0, 300), sleep(&mut r))));
            blows.sort_by_key(|b| b.0);
        }
        let lease = r.pick(&[1500, 3000]);
        // From a stream of its own: schedules without limits stay as they are.
        let limits = crate::limits::draw(&mut Rng::new(seed, 4), &tools, lease);
        Plan {
            seed,
            semantics,
            replicas,
            tools,
            limits,
            callers,
            blows,
            rates,
            calm_at,
            lease,
            heartbeat: 500,
            lapse_ends: semantics == Semantics::Shared && r.mille(500),
            named: r.mille(500),
            grace: Millis(r.pick(&[2000, 5000])),
        }
    }
}

/// Everybody wants the same, comes and goes, and joins what is there, while answers of the provider are lost, replays are
/// refused and acknowledgements of the database are lost: between a write and its repetition others write, and whoever
/// counts a refusal twice takes it that nothing was ever sent.
fn crowd(r: &mut Rng, tool: &mut ToolPlan, callers: &mut [CallerPlan], rates: &mut Rates) {
    (tool.recovery.strategy, tool.recovery.max_sends) = (Strategy::Key, 4);
    (tool.recovery.replays_first_answer, tool.keeps_failures) = (false, false);
    (tool.approval, tool.rounds, tool.handles, tool.effects) = (false, 0, false, tool.effects.max(1));
    (tool.before, tool.after, tool.other, tool.deaf) = (0, 0, 0, 0);
    for w in callers.iter_mut().flat_map(|c| &mut c.wishes) {
        (w.tool, w.arguments, w.key, w.key_number) = (0, 0, KeyMode::Program, 0);
        (w.leaves, w.hasty, w.starts_at) = (900, true, r.range(0, 800));
    }
    (rates.store_uncertain, rates.store_unavailable) = (450, 0);
    (rates.answer_lost, rates.busy, rates.not_sent) = (500, 0, 100);
    rates.replay_refused = 700;
}

fn tool(r: &mut Rng, number: usize) -> ToolPlan {
    let strategy = r.pick(&STRATEGIES);
    let keeps_failures = strategy == Strategy::Key && r.mille(500);
    let horizon = match strategy {
        Strategy::Key | Strategy::Natural => r.pick(&[None, None, Some(2500), Some(12_000)]),
        _ => None,
    };
    let can_look_up = strategy == Strategy::Lookup
        || (matches!(strategy, Strategy::Key | Strategy::Unique) && r.mille(300));
    let recovery = Recovery {
        replay_for: horizon.map(Millis),
        processing_bound: Millis(2000),
        visibility_lag: Millis(700),
        can_look_up,
        precheck: can_look_up && r.mille(250),
        replays_first_answer: keeps_failures,
        send_timeout: Millis(1000),
        max_sends: r.range(1, 4) as u32,
        initial_backoff: Millis(50),
        max_backoff: Millis(600),
        ..Recovery::new(strategy)
    };
    let handles = r.mille(250);
    let effects = match r.below(10) {
        0 if handles => 0,
        0..=6 => 1,
        _ => 2,
    };
    let asks = r.mille(350);
    let guard_window = Millis(r.pick(&[1000, 5000, 300_000]));
    let tool = ToolPlan {
        name: format!("t{number}"),
        recovery,
        effects,
        // What is opened with its effect has nothing to ask on its way.
        planned: effects == 1 && !asks && r.mille(700),
        at_once: r.mille(300),
        unkeyed: r.pick(&[Unkeyed::Guard, Unkeyed::Guard, Unkeyed::Guard, Unkeyed::New, Unkeyed::Reject]),
        guard_window,
        policy: OperationPolicy {
            guard_window,
            timeout: Millis(r.pick(&[2500, 5000])),
            retention: Millis(guard_window.0.max(r.pick(&[30_000, 3_600_000]))),
            attempt_cap: r.range(3, 8) as u32,
            abandoned_for: Millis(r.pick(&[500, 4000, 15_000])),
        },
        retention: horizon,
        keeps_failures,
        before: if r.mille(300) { 150 } else { 0 },
        after: if r.mille(300) { 200 } else { 0 },
        other: if r.mille(80) { 100 } else { 0 },
        deaf: if r.mille(100) { 400 } else { 0 },
        approval: false,
        rounds: if asks { r.range(1, 2) as usize } else { 0 },
        questions: r.range(1, 3) as usize,
        asks_other: if asks && r.mille(150) { 150 } else { 0 },
        handles,
        single_use: r.mille(400),
    };
    // A yes is to an intent that is known before.
    ToolPlan { approval: tool.planned && r.mille(350), ..tool }
}

fn caller(r: &mut Rng, number: usize, tools: usize) -> CallerPlan {
    let wishes = (0..r.range(1, 3))
        .map(|_| Wish {
            tool: r.index(tools),
            arguments: r.below(2) as u32,
            key: r.pick(&[KeyMode::None, KeyMode::None, KeyMode::Program, KeyMode::Argument]),
            key_number: r.below(3) as u32,
            leaves: r.pick(&[0, 300, 600]),
            acknowledges: r.pick(&[0, 500, 1000]),
            again: r.mille(350),
            second: r.mille(250),
            pries: if r.mille(150) { 400 } else { 0 },
            alters: if r.mille(150) { 300 } else { 0 },
            starts_at: r.range(0, 3000),
            hasty: false,
            leg: if r.mille(300) { Some(r.range(50, 900)) } else { None },
            task: match r.below(10) {
                0 => Some(true),
                1 | 2 => Some(false),
                _ => None,
            },
            quits: if r.mille(300) { 250 } else { 0 },
            fickle: r.pick(&[0, 300, 700]),
            denies: r.pick(&[0, 0, 300]),
            cancels: if r.mille(300) { 120 } else { 0 },
        })
        .collect();
    CallerPlan { number, principal: if r.mille(850) { "ann" } else { "bob" }, wishes }
}

fn blow(r: &mut Rng, replicas: usize, semantics: Semantics) -> Blow {
    let replica = r.index(replicas);
    if semantics == Semantics::Postgres && r.mille(300) {
        return if r.mille(700) {
            Blow::Cut { replica, length: r.pick(&[50, 600, 2500, 7000]) }
        } else {
            Blow::Restart { down: r.pick(&[20, 500, 2500]) }
        };
    }
    match r.below(10) {
        0..=3 => Blow::Kill { replica, down: r.pick(&[20, 300, 2500]) },
        4..=6 => Blow::Pause { replica, length: r.pick(&[300, 1200, 4000, 9000]) },
        7 => {
            if r.mille(500) {
                Blow::Step
            } else {
                Blow::Jump { by: r.pick(&[2000, 60_000]) }
            }
        }
        _ => Blow::Operator { replica, dice: r.next() },
    }
}
