//! What is done to a store: at random, but so that real transitions come of it.

use crate::contract::key;
use ledger::decide::{Fence, Finding, Opening, Outcome, Verdict, open};
use ledger::executor::Receipt;
use ledger::handle::{Handle, HandleChange};
use ledger::input::{Ask, InputKind};
use ledger::store::SessionChange;
use ledger::words::{EffectKey, Epoch, Millis, OperationId, Scope, Time};
use ledger::{
    Blob, DeliveryState, Event, Fingerprint, Intent, Operation, OperationPolicy, Recovery, Strategy as Way,
};
use proptest::prelude::*;

pub const IDS: u64 = 6;
pub const KEYS: u8 = 4;
pub const WHO: [&str; 2] = ["alice", "bob"];
pub const ARGUMENTS: u32 = 3;
pub const SESSIONS: u8 = 4;
pub const HANDLES: u8 = 4;

const WAYS: [Way; 7] =
    [Way::Key, Way::Unique, Way::Local, Way::Natural, Way::Lookup, Way::Confirm, Way::None];

#[derive(Clone, Debug)]
pub struct New {
    pub id: u64,
    pub who: usize,
    pub key: Option<u8>,
    pub arguments: u32,
    pub way: usize,
    /// It has exactly one effect, which is known at its opening.
    pub single: bool,
    /// It begins with a question.
    pub asks: bool,
    /// A boot that is no longer there opened it.
    pub dead: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Slot {
    Set,
    Empty,
    /// Holds this one.
    Of(u64),
    /// Holds what it holds.
    Right,
}

/// How an update is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Once,
    Lazily,
    /// And the very same again.
    Twice,
    /// And again as if it were another's.
    Rival,
}

#[derive(Clone, Debug)]
pub enum Action {
    Create {
        new: New,
        slot: Slot,
        again: bool,
    },
    /// `apt`: the next event from this one on that is not refused.
    Step {
        id: u64,
        event: u8,
        apt: bool,
        of: u8,
        zombie: bool,
        behind: usize,
        how: How,
        more: bool,
        /// A change of a handle that goes with it.
        handle: Option<u8>,
    },
    Later(i64),
    Prune {
        after: i64,
        tombstones_for: i64,
    },
    Restart,
    ApiKey {
        n: u8,
        revoked: bool,
    },
    OpenSession {
        n: u8,
        who: usize,
        subscriptions: Vec<u8>,
        used: i64,
    },
    ChangeSession {
        n: u8,
        change: u8,
    },
    EndSession(u8),
    TouchHandle {
        n: u8,
        who: usize,
    },
    PruneHandles,
    Shelve {
        n: u8,
        /// It knows what is there.
        apt: bool,
        until: u8,
    },
    PruneShelf,
    PruneSessions {
        since: i64,
        limit: usize,
    },
}

const DAY: i64 = 86_400_000;

pub fn action() -> impl Strategy<Value = Action> {
    let slot = prop_oneof![
        3 => Just(Slot::Set),
        2 => Just(Slot::Empty),
        1 => (0..IDS).prop_map(Slot::Of),
        3 => Just(Slot::Right),
    ];
    let new = (
        (0..IDS, 0..WHO.len(), prop::option::of(0..KEYS), 0..ARGUMENTS),
        (0..WAYS.len(), prop::bool::weighted(0.7), prop::bool::weighted(0.15), prop::bool::weighted(0.25)),
    )
        .prop_map(|((id, who, key, arguments), (way, single, dead, asks))| New {
            id,
            who,
            key,
            arguments,
            way,
            single,
            asks,
            dead,
        });
    let how = prop_oneof![
        6 => Just(How::Once),
        2 => Just(How::Lazily),
        1 => Just(How::Twice),
        1 => Just(How::Rival),
    ];
    let behind = prop_oneof![9 => Just(0_usize), 1 => 1..4_usize];
    let step = (
        (0..IDS, 0..EVENTS, prop::bool::weighted(0.7), any::<u8>(), prop::bool::weighted(0.08)),
        (behind, how, prop::bool::weighted(0.05), prop::option::weighted(0.15, any::<u8>())),
    )
        .prop_map(|((id, event, apt, of, zombie), (behind, how, more, handle))| Action::Step {
            id,
            event,
            apt,
            of,
            zombie,
            behind,
            how,
            more,
            handle,
        });
    prop_oneof![
        14 => (new, slot, prop::bool::weighted(0.2)).prop_map(|(new, slot, again)| Action::Create { new, slot, again }),
        40 => step,
        3 => prop::sample::select(vec![5, 3_000, 61_000, DAY]).prop_map(Action::Later),
        3 => (prop_oneof![0..9 * DAY, 8 * DAY..9 * DAY], 0..2 * DAY)
            .prop_map(|(after, tombstones_for)| Action::Prune { after, tombstones_for }),
        1 => Just(Action::Restart),
        1 => (0..3_u8, any::<bool>()).prop_map(|(n, revoked)| Action::ApiKey { n, revoked }),
        1 => (0..SESSIONS, 0..WHO.len(), prop::collection::vec(0..5_u8, 0..4), 0..100_i64)
            .prop_map(|(n, who, subscriptions, used)| Action::OpenSession { n, who, subscriptions, used }),
        2 => (0..SESSIONS, any::<u8>()).prop_map(|(n, change)| Action::ChangeSession { n, change }),
        1 => (0..HANDLES, 0..WHO.len()).prop_map(|(n, who)| Action::TouchHandle { n, who }),
        1 => Just(Action::PruneHandles),
        2 => (0..3_u8, prop::bool::weighted(0.7), 0..3_u8)
            .prop_map(|(n, apt, until)| Action::Shelve { n, apt, until }),
        1 => Just(Action::PruneShelf),
        1 => (0..SESSIONS).prop_map(Action::EndSession),
        1 => (0..110_i64, 0..3_usize).prop_map(|(since, limit)| Action::PruneSessions { since, limit }),
    ]
}

pub fn scope(who: usize) -> Scope {
    Scope { principal: WHO[who].into(), tool: "pay".into(), mode: "production".into() }
}

fn intent(op: OperationId, name: &str, way: Way, body: &str) -> Intent {
    let recovery = Recovery { can_look_up: matches!(way, Way::Lookup | Way::Key), ..Recovery::new(way) };
    let summary = format!("POST /{name}");
    Intent {
        name: name.into(),
        discriminator: String::new(),
        recovery,
        summary,
        body: format!("{body} of {op}").into_bytes(),
    }
}

fn effect_key(scope: &Scope, id: OperationId, fingerprint: &Fingerprint, name: &str) -> EffectKey {
    EffectKey::derive("test", scope, id, None, fingerprint, name, "")
}

/// The record that a creation begins with.
pub fn opening(
    n: &New,
    id: OperationId,
    fingerprint: Fingerprint,
    epoch: Epoch,
    now: Time,
) -> (Operation, Vec<Blob>) {
    let scope = scope(n.who);
    let intent =
        n.single.then(|| (intent(id, "a", WAYS[n.way], "intent"), effect_key(&scope, id, &fingerprint, "a")));
    let policy = OperationPolicy { attempt_cap: 3, ..OperationPolicy::default() };
    let key = n.key.map(|k| key(&format!("k{k}")));
    let arguments = Some(format!("arguments {}", n.arguments).into_bytes());
    let epoch = if n.dead { Epoch(1_000_000) } else { epoch };
    let asks = if n.asks { vec![ask("q0")] } else { Vec::new() };
    let t = open(Opening { id, scope, key, fingerprint, policy, epoch, intent, arguments, asks }, now);
    (t.next, t.blobs)
}

fn ask(key: &str) -> Ask {
    let kind = if key == "q0" { InputKind::Approval } else { InputKind::Client };
    Ask { key: key.into(), kind, request: format!("what of {key}?").into_bytes() }
}

pub fn handle_hash(n: u8) -> [u8; 32] {
    [n; 32]
}

/// A change of a handle; `version` is what it has, if it is there.
pub fn handle_change(n: u8, version: Option<u64>, now: Time) -> HandleChange {
    let id_hash = handle_hash(n % HANDLES);
    let principal = WHO[usize::from(n / 4 % 2)].into();
    let known = if n & 64 == 0 { version.unwrap_or(1) } else { 7 };
    match n / 8 % 4 {
        0 | 1 => HandleChange::Create(Handle {
            id_hash,
            principal,
            kind: ["a", "b"][usize::from(n / 128)].into(),
            value: vec![n; usize::from(n)],
            version: 1,
            created_at: now,
            used_at: now,
            idle: Millis(4_000),
            absolute: Millis(70_000),
        }),
        2 => HandleChange::Update { id_hash, principal, expected: known, value: vec![n; 3], at: now },
        _ => HandleChange::Destroy { id_hash, principal, expected: (n & 128 == 0).then_some(known), at: now },
    }
}

pub const EVENTS: u8 = 44;

/// The `n`-th event for this record, and its name.
pub fn event(n: u8, of: u8, zombie: bool, op: &Operation, epoch: Epoch, now: Time) -> (&'static str, Event) {
    let fence = Fence { attempt: op.attempt.saturating_sub(u32::from(zombie)), epoch: op.owner };
    let effect = usize::from(of) % (op.effects.len().max(1) + usize::from(of > 250));
    let receive = |outcome| Event::Receive { fence, effect, outcome };
    let looked = |answer| Event::Looked { fence, effect, asked_at: now, answer };
    let decide = |verdict| Event::Decide { by: "operator".into(), verdict };
    let intend = |name: &str, body: &str| Event::Intend {
        fence,
        intent: Box::new(intent(op.id, name, WAYS[usize::from(of) % WAYS.len()], body)),
        key: effect_key(&op.scope, op.id, &op.fingerprint, name),
    };
    let receipt = || Receipt(format!("receipt {of}").into_bytes());
    let (why, pause, reason) = (String::from("why"), Millis(5), String::from("reason"));
    let close = |is_error, caller_gone| Event::Close {
        fence,
        result: format!("result {of}").into_bytes(),
        is_error,
        caller_gone,
    };
    let keys = ["q0", "q1", "q2"];
    let answers = |n: usize, text: &str| {
        let all = keys.iter().take(n).map(|k| ((*k).to_owned(), format!("{text} to {k}").into_bytes()));
        // What waits for its yes is what the record opened with.
        let planned = op.planned.map(|_| intent(op.id, "a", WAYS[usize::from(of) % WAYS.len()], "intent"));
        let planned = planned.map(|i| Box::new((i, effect_key(&op.scope, op.id, &op.fingerprint, "a"))));
        Event::Answer {
            by: "person".into(),
            answers: all.collect(),
            epoch,
            by_call: of > 100,
            intent: planned,
        }
    };
    match n {
        36 => ("require", Event::Require { fence, asks: vec![ask("q1"), ask("q2")] }),
        37 => ("require again", Event::Require { fence, asks: vec![ask("q0")] }),
        38 => ("answer one", answers(1, "yes")),
        39 | 40 => ("answer all", answers(3, "yes")),
        41 => ("answer otherwise", answers(2, "no")),
        42 => ("hand out", Event::HandOut { ttl: (of > 100).then_some(Millis(i64::from(of) * 10_000)) }),
        43 => {
            let (i, key) =
                (intent(op.id, "l", Way::Local, "step"), effect_key(&op.scope, op.id, &op.fingerprint, "l"));
            ("local", Event::Local { fence, intent: Box::new(i), key, receipt: receipt() })
        }
        0 => ("claim", Event::Claim { epoch, by_call: false, owner_dead: false }),
        1 => ("claim by a call", Event::Claim { epoch, by_call: true, owner_dead: false }),
        2 | 35 => ("claim from the dead", Event::Claim { epoch, by_call: false, owner_dead: true }),
        3 => ("intend", intend("a", "intent")),
        4 => ("intend a second", intend("b", "intent")),
        5 => ("intend another", intend("a", "other")),
        6 => ("send", Event::Send { fence, effect }),
        7 | 8 => ("applied", receive(Outcome::Applied(receipt()))),
        9 => ("refused", receive(Outcome::Refused(receipt()))),
        10 => ("unknown", receive(Outcome::Unknown { why, pause, stored: of > 200 })),
        11 => ("not sent", receive(Outcome::NotSent { why, pause })),
        12 => ("not applied", receive(Outcome::NotApplied { why, pause })),
        13 => ("never sent", receive(Outcome::NeverSent)),
        14 => ("found", looked(Finding::Found { receipt: receipt(), several: of > 200 })),
        15 => ("not found", looked(Finding::NotFound { pause, counts_from: now })),
        16 => ("not answered", looked(Finding::Unknown { why, pause })),
        17 | 18 => ("close", close(false, false)),
        19 => ("close for nobody", close(true, true)),
        20 => ("fail", Event::Fail { fence, reason }),
        21 => ("doubt", Event::Doubt { fence, reason }),
        22 => ("ask", Event::Ask { fence, question: reason }),
        23 => ("rest", Event::Rest { fence, until: now.plus(Millis(5)) }),
        24 => ("caller gone", Event::CallerGone),
        25 => ("join", Event::Join { epoch }),
        26 => ("cancel", Event::Cancel { by: "caller".into() }),
        27 => ("expire", Event::Expire),
        28 => ("written", Event::Deliver(DeliveryState::Written)),
        29 => ("undelivered", Event::Deliver(DeliveryState::Undelivered)),
        30 => ("acknowledged", Event::Deliver(DeliveryState::Acknowledged)),
        31 => ("alerted", Event::Alerted),
        32 => ("decide: it happened", decide(Verdict::Applied(receipt()))),
        33 => {
            if of < 128 {
                ("decide: it did not", decide(Verdict::NotApplied))
            } else {
                ("decide: again", decide(Verdict::SendAgain))
            }
        }
        _ => ("reconcile", Event::Reconcile { epoch, by: "operator".into(), owner_dead: of > 128 }),
    }
}

pub fn change(n: u8) -> SessionChange {
    let uri = format!("note://{}", n % 5);
    match n % 4 {
        0 => SessionChange::Used,
        1 => SessionChange::LogLevel(["debug", "error"][usize::from(n / 4 % 2)].into()),
        2 => SessionChange::Subscribe(uri),
        _ => SessionChange::Unsubscribe(uri),
    }
}
