//! A store and the model side by side: the same random sequences, until nothing new is seen.

use crate::action::{
    ARGUMENTS, Action, EVENTS, HANDLES, How, IDS, KEYS, SESSIONS, Slot, WHO, action, event, handle_change,
    handle_hash, opening, scope,
};
use crate::contract::{T0, fingerprint, id, key};
use crate::model::{Model, Place};
use ledger::memory::MemoryStore;
use ledger::store::{
    ApiKey, Attention, Blob, BlobKind, Committed, Found, Query, Session, SessionChange, SlotWrite, Store,
    StoreError, Write, slot_hash_of,
};
use ledger::words::{Millis, OperationId, Time};
use ledger::{DeliveryState, Execution, Operation, Refusal, SystemEnv, decide};
use proptest::test_runner::{Config as Cases, RngAlgorithm, TestError, TestRng, TestRunner};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A store under test. Opening it again gives the same records under the next boot.
pub struct Subject {
    pub store: Arc<dyn Store>,
    pub open: Box<dyn FnMut() -> Arc<dyn Store>>,
    pub _keep: Box<dyn Any>,
    /// How much longer than a function call an answer takes: so much less is asked after each step, and so much more
    /// time there is.
    pub pace: u32,
}

/// What was seen: transitions, refusals, answers of the store.
type Seen = BTreeSet<String>;

/// A store and the model of it, side by side.
struct Pair<'a> {
    subject: Subject,
    model: Model,
    /// Every record that was written, in order: for those who are behind.
    past: BTreeMap<OperationId, Vec<Operation>>,
    /// How many operations of each number were pruned: ids are never used again.
    gone: BTreeMap<u64, u64>,
    now: Time,
    steps: usize,
    /// What the last step was about.
    touched: Option<OperationId>,
    stamps: u64,
    seen: &'a Mutex<Seen>,
}

const KINDS: [BlobKind; 12] = [
    BlobKind::Arguments,
    BlobKind::Intent(0),
    BlobKind::Intent(1),
    BlobKind::Receipt(0),
    BlobKind::Receipt(1),
    BlobKind::Receipt(7),
    BlobKind::Result,
    BlobKind::Request(0),
    BlobKind::Request(1),
    BlobKind::Answer(0),
    BlobKind::Answer(1),
    BlobKind::Planned,
];

impl Pair<'_> {
    fn saw(&self, what: String) {
        self.seen.lock().unwrap().insert(what);
    }

    /// The id of the newest operation with this number.
    fn id(&self, n: u64) -> OperationId {
        id(n + 100 * self.gone.get(&n).copied().unwrap_or(0))
    }

    fn store(&self) -> &dyn Store {
        &*self.subject.store
    }

    async fn write(&mut self, what: &str, write: &Write) -> Committed {
        let expected = self.model.write(write);
        let answer = self.store().write(write.clone()).await.unwrap();
        assert_eq!(answer, expected, "{what}: {write:?}");
        self.saw(format!("{what}: {answer:?}"));
        answer
    }

    async fn act(&mut self, action: Action) {
        self.now = self.now.plus(Millis(1));
        self.steps += 1;
        self.touched = match &action {
            Action::Create { new, .. } => Some(self.id(new.id)),
            Action::Step { id, .. } => Some(self.id(*id)),
            _ => None,
        };
        match action {
            Action::Create { new, slot, again } => {
                let epoch = self.store().epoch();
                let name = self.id(new.id);
                let (op, blobs) = opening(&new, name, fingerprint(new.arguments), epoch, self.now);
                let holds = self.model.by_slot(&slot_hash_of(&op)).map(|op| op.id);
                let (word, slot) = match slot {
                    Slot::Set => ("set", SlotWrite::Set),
                    Slot::Empty => ("if empty", SlotWrite::CompareAndSet(None)),
                    Slot::Of(n) => ("if it holds", SlotWrite::CompareAndSet(Some(self.id(n)))),
                    Slot::Right => ("if as it is", SlotWrite::CompareAndSet(holds)),
                };
                let keyed = if new.key.is_some() { "keyed" } else { "keyless" };
                let what = format!("create {keyed}, {word}");
                let write = Write::Create { operation: Box::new(op.clone()), slot, blobs };
                let fresh = !self.model.rows.contains_key(&op.id);
                if self.write(&what, &write).await == Committed::Done && fresh {
                    self.past.insert(op.id, vec![op]);
                }
                if again {
                    self.write("create again", &write).await;
                }
            }
            Action::Step { id: n, event: e, apt, of, zombie, behind, how, more, handle } => {
                let n = self.id(n);
                let Some(past) = self.past.get(&n) else { return };
                let op = past[past.len().saturating_sub(1 + behind)].clone();
                let epoch = self.store().epoch();
                let try_one = |e: u8| {
                    let (name, event) = event(e % EVENTS, of, zombie, &op, epoch, self.now);
                    (name, decide(&op, event, self.now))
                };
                let mut tried = try_one(e);
                if apt && tried.1.is_err() {
                    tried = (1..EVENTS).map(|n| try_one(e + n)).find(|t| t.1.is_ok()).unwrap_or(tried);
                }
                let (from, (name, decided)) = (op.execution.word(), tried);
                let t = match decided {
                    Ok(t) => t,
                    Err(refusal) => return self.saw(format!("{from}, {name}: refused, {}", refusal.word())),
                };
                self.saw(format!("{from}, {name}: {}", t.next.execution.word()));
                let mut blobs = t.blobs;
                if more {
                    // What is there stays as it is.
                    blobs.push(Blob { kind: BlobKind::Result, data: b"another".to_vec() });
                    blobs.push(Blob { kind: BlobKind::Receipt(7), data: vec![of; usize::from(of) * 40] });
                }
                self.stamps += 1;
                // A lazy write changes no handles.
                let handle = handle.filter(|_| how != How::Lazily).map(|h| {
                    let version = self.model.handles.get(&handle_hash(h % HANDLES)).map(|h| h.version);
                    handle_change(h, version, self.now)
                });
                let write = Write::Update {
                    operation: Box::new(t.next.clone()),
                    stamp: self.stamps,
                    blobs,
                    handles: handle.into_iter().collect(),
                };
                let made = if how == How::Lazily {
                    let expected = self.model.write(&write);
                    self.store().write_lazily(write.clone());
                    self.store().flush().await.unwrap();
                    self.saw(format!("update lazily: {expected:?}"));
                    expected
                } else {
                    self.write(if behind > 0 { "update from behind" } else { "update" }, &write).await
                };
                if made == Committed::Done {
                    self.past.get_mut(&n).unwrap().push(t.next);
                }
                match (how, write) {
                    (How::Twice, write) => {
                        self.write("update again", &write).await;
                    }
                    (How::Rival, Write::Update { operation, stamp, blobs, handles }) => {
                        let rival = Write::Update { operation, stamp: stamp + 1_000_000, blobs, handles };
                        self.write("update by a rival", &rival).await;
                    }
                    _ => {}
                }
            }
            Action::Later(ms) => self.now = self.now.plus(Millis(ms)),
            Action::Prune { after, tombstones_for } => {
                let (at, keep) = (self.now.plus(Millis(after)), Millis(tombstones_for));
                let went = self.store().prune(at, keep, 100).await.unwrap();
                assert_eq!(went, self.model.prune(at, keep));
                for n in 0..IDS {
                    let name = self.id(n);
                    if self.past.contains_key(&name) && !self.model.rows.contains_key(&name) {
                        *self.gone.entry(n).or_default() += 1;
                    }
                }
                self.saw(format!("prune: {}, {} graves", went.min(2), self.model.graves.len().min(2)));
            }
            Action::Restart => {
                let before = (self.store().epoch(), self.store().identity().secret.0);
                // Two owners at once would be two processes.
                self.subject.store =
                    Arc::new(MemoryStore::new(Arc::new(SystemEnv), T0, Attention::default()));
                self.subject.store = (self.subject.open)();
                let s = self.store();
                assert!(s.epoch() > before.0 && s.is_live(s.epoch()) && !s.is_live(before.0));
                assert_eq!(s.identity().secret.0, before.1);
                self.saw("restart".into());
            }
            other => self.about_clients(other).await,
        }
    }

    async fn about_clients(&mut self, action: Action) {
        match action {
            Action::ApiKey { n, revoked } => {
                let key = ApiKey {
                    id: format!("key {n}"),
                    principal: WHO[0].into(),
                    hash: format!("{:04x}", self.now.0 & 0xffff),
                    created_at: self.now,
                    revoked_at: revoked.then_some(self.now),
                    note: String::new(),
                };
                self.store().put_api_key(key.clone()).await.unwrap();
                let known = self.model.api_keys.insert(key.id.clone(), key).is_some();
                self.saw(format!("API key, known: {known}"));
            }
            Action::OpenSession { n, who, subscriptions, used } => {
                let session = Session {
                    id: format!("s{n}"),
                    principal: WHO[who].into(),
                    revision: "2025-11-25".into(),
                    client: "{}".into(),
                    log_level: None,
                    subscriptions: subscriptions.iter().map(|u| format!("note://{u}")).collect(),
                    opened_at: T0,
                    used_at: T0.plus(Millis(used)),
                };
                let taken = self.model.sessions.contains_key(&session.id);
                let opened = self.store().open_session(session.clone()).await;
                assert_eq!(matches!(opened, Err(StoreError::Unavailable(_))), taken, "{opened:?}");
                if !taken {
                    let session = session.bounded().unwrap();
                    self.model.sessions.insert(session.id.clone(), session);
                }
                self.saw(format!("open a session, taken: {taken}"));
            }
            Action::ChangeSession { n, change } => {
                let (id, change) = (format!("s{n}"), crate::action::change(change));
                let begun = self.store().now();
                let answer = self.store().change_session(&id, change.clone()).await.unwrap();
                // The store's clock is its own; what it says must lie between the question and the answer.
                let used = answer.as_ref().map_or(begun, |s| s.used_at);
                if change == SessionChange::Used && answer.is_some() {
                    assert!(used >= begun && used <= self.store().now());
                }
                assert_eq!(answer, self.model.change_session(&id, &change, used), "{change:?}");
                self.saw(format!("{:.9}, there: {}", format!("{change:?}"), answer.is_some()));
            }
            Action::EndSession(n) => {
                let id = format!("s{n}");
                let ended = self.store().end_session(&id).await.unwrap();
                assert_eq!(ended, self.model.sessions.remove(&id).is_some());
                self.saw(format!("end a session: {ended}"));
            }
            Action::TouchHandle { n, who } => {
                self.store().touch_handle(&handle_hash(n), WHO[who], self.now).await.unwrap();
                self.model.touch_handle(&handle_hash(n), WHO[who], self.now);
            }
            Action::PruneHandles => {
                let went = self.store().prune_handles(self.now, 100).await.unwrap();
                assert_eq!(went, self.model.prune_handles(self.now));
                self.saw(format!("prune handles: {}", went.min(1)));
            }
            Action::Shelve { n, apt, until } => {
                let name = format!("n{n}");
                let there = self.model.shelved(&name).map_or(0, |s| s.version);
                let expected = if apt { there } else { there + 1 };
                let until = [None, Some(T0), Some(Time(i64::MAX / 2))][usize::from(until)];
                let data = self.now.0.to_be_bytes().to_vec();
                let put = self.store().shelve(&name, expected, data.clone(), until).await.unwrap();
                assert_eq!(put, self.model.shelve(&name, expected, &data, until), "{name}");
                self.saw(format!("shelve: {put}"));
            }
            Action::PruneShelf => {
                let went = self.store().prune_shelf(T0, 100).await.unwrap();
                let before = self.model.shelf.len();
                self.model.shelf.retain(|_, s| s.until.is_none_or(|u| u > T0));
                assert_eq!(went, before - self.model.shelf.len());
            }
            Action::PruneSessions { since, limit } => {
                let since = T0.plus(Millis(since));
                let went = self.store().prune_sessions(since, limit).await.unwrap();
                assert_eq!(went, self.model.prune_sessions(since, limit));
                self.saw(format!("prune sessions: {}", went.min(1)));
            }
            _ => unreachable!("done before"),
        }
    }

    /// Every record after every step, with what was touched; of the many other questions one part after each, in turn,
    /// or all of them (`whole`).
    async fn agree(&self, whole: bool) {
        let (s, m) = (self.store(), &self.model);
        let all = Query { limit: 100, ..Query::default() };
        assert_eq!(s.list(&all).await.unwrap().iter().collect::<Vec<_>>(), m.list(&all));
        assert_eq!(s.counts().await.unwrap(), m.counts());
        let turn =
            |n: usize, of: usize| whole || (n + self.steps).is_multiple_of(of * self.subject.pace as usize);
        for (n, id) in self.past.keys().copied().chain([id(99)]).enumerate() {
            if self.touched != Some(id) && !turn(n, 4) {
                continue;
            }
            same(s.by_id(id).await.unwrap(), &m.by_id(id), "by id");
            let row = m.rows.get(&id);
            for kind in KINDS {
                let there = s.blob(id, kind).await.unwrap();
                assert_eq!(there.as_ref(), row.and_then(|r| r.blobs.get(&kind)), "{kind:?} of {id}");
                if row.is_none() {
                    break;
                }
            }
        }
        for who in 0..WHO.len() {
            for k in (0..KEYS).filter(|k| turn(usize::from(*k), 2)) {
                let hash = scope(who).key_hash(&key(&format!("k{k}")));
                same(s.by_key(&hash).await.unwrap(), &m.by_key(&hash), "by key");
            }
            for n in (0..ARGUMENTS).filter(|n| turn(*n as usize, 2)) {
                let slot = scope(who).slot_hash(&fingerprint(n));
                assert_eq!(s.by_slot(&slot).await.unwrap().as_ref(), m.by_slot(&slot), "slot {n} of {who}");
            }
        }
        let attention = m.attention();
        assert_eq!(s.next_attention().await.unwrap(), attention.first().map(|(at, _)| *at));
        let times = [(self.now, 100), (self.now.plus(Millis(91_000)), 2), (Time(i64::MAX), 100)];
        for (n, (at, limit)) in times.into_iter().enumerate() {
            if turn(n, 3) {
                let due = attention.iter().filter(|(t, _)| *t <= at).map(|(_, op)| *op).take(limit);
                let there = s.due(at, limit).await.unwrap();
                assert_eq!(there.iter().collect::<Vec<_>>(), due.collect::<Vec<_>>(), "due at {at:?}");
            }
        }
        for (n, (after, limit)) in [(None, 100), (Some(id(1)), 2)].into_iter().enumerate() {
            if turn(n, 2) {
                let there = s.orphans(after, limit).await.unwrap();
                assert_eq!(there.iter().collect::<Vec<_>>(), m.orphans(s.epoch(), after, limit), "orphans");
            }
        }
        let mut queries = vec![Query { before: Some(id(4)), limit: 2, ..all.clone() }];
        queries.extend(Execution::WORDS.map(|w| Query { state: Some(w.into()), ..all.clone() }));
        queries.extend(DeliveryState::WORDS.map(|w| Query { delivery: Some(w.into()), ..all.clone() }));
        queries.extend(WHO.map(|w| Query { principal: Some(w.into()), limit: 3, ..all.clone() }));
        queries.push(Query { tool: Some("other".into()), ..all.clone() });
        let (state, delivery) = (Some("completed".into()), Some("undelivered".into()));
        queries.push(Query { principal: Some(WHO[0].into()), state, delivery, ..all });
        for (n, q) in queries.into_iter().enumerate() {
            if turn(n, 8) {
                assert_eq!(s.list(&q).await.unwrap().iter().collect::<Vec<_>>(), m.list(&q), "{q:?}");
            }
        }
        for who in WHO {
            for n in (0..HANDLES).filter(|n| turn(usize::from(*n), 2)) {
                let hash = handle_hash(n);
                let there = s.handle(&hash, who, self.now).await.unwrap();
                assert_eq!(there.as_ref(), m.handle(&hash, who, self.now), "handle {n} of {who}");
            }
            if turn(9, 4) {
                for kind in [None, Some("a")] {
                    let of_kind = |h: &&ledger::Handle| kind.is_none_or(|k| k == h.kind);
                    let expected =
                        m.handles.values().filter(|h| m.handle(&h.id_hash, who, self.now).is_some());
                    let expected: Vec<_> = expected.filter(of_kind).take(3).collect();
                    let there = s.handles(who, kind, None, 3, self.now).await.unwrap();
                    assert_eq!(there.iter().collect::<Vec<_>>(), expected, "handles of {who}");
                }
            }
        }
        for n in (0..3).filter(|n| turn(*n, 2)) {
            let name = format!("n{n}");
            assert_eq!(s.shelved(&name).await.unwrap().as_ref(), m.shelved(&name), "{name}");
        }
        let keys = s.api_keys().await.unwrap();
        assert_eq!(keys.iter().collect::<Vec<_>>(), m.api_keys.values().collect::<Vec<_>>());
        for n in (0..SESSIONS).filter(|n| turn(usize::from(*n), 2)) {
            let id = format!("s{n}");
            assert_eq!(s.session(&id).await.unwrap().as_ref(), m.sessions.get(&id), "session {n}");
        }
    }
}

fn same(there: Option<Found>, expected: &Place<'_>, what: &str) {
    let place = match &there {
        None => Place::Nowhere,
        Some(Found::Operation(op)) => Place::Record(op),
        Some(Found::Tombstone(t)) => Place::Grave(t),
    };
    assert_eq!(place, *expected, "{what}");
}

async fn run(make: fn() -> Subject, actions: Vec<Action>, seen: &Mutex<Seen>) {
    let mut pair = Pair {
        subject: make(),
        model: Model::default(),
        past: BTreeMap::new(),
        gone: BTreeMap::new(),
        now: T0,
        steps: 0,
        touched: None,
        stamps: 0,
        seen,
    };
    let most = actions.len();
    for (n, action) in actions.into_iter().enumerate() {
        let shown = format!("{action:?}");
        // After a restart, a prune and at the end all of it is looked at.
        let whole = n + 1 == most || matches!(action, Action::Restart | Action::Prune { .. });
        pair.act(action).await;
        let agreed = std::panic::AssertUnwindSafe(pair.agree(whole));
        if let Err(panic) = futures_util::FutureExt::catch_unwind(agreed).await {
            eprintln!("they disagree after {shown}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Sequences in a row without anything new after which nothing new is expected.
const QUIET: u32 = 20;
const MOST: u32 = 400;
const LONGEST: Duration = Duration::from_secs(15);

/// Runs sequences until what is seen no longer grows.
pub fn agrees(name: &str, make: fn() -> Subject) {
    let begun = Instant::now();
    let given = std::env::var("LEDGER_SEED").ok().map(|s| s.parse().expect("LEDGER_SEED is a number"));
    let seed: u64 =
        given.unwrap_or_else(|| u64::from(std::process::id()) ^ T0.0.cast_unsigned() ^ since_epoch());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let seen = Mutex::new(Seen::new());
    let (mut sequences, mut quiet) = (0_u32, 0);
    // A busy machine gets more time to see what has to be seen, but no end of it.
    let longest = LONGEST * make().pace;
    let in_time = |seen: &Seen| begun.elapsed() < if enough(seen) { LONGEST } else { 2 * longest };
    while quiet < QUIET && sequences < MOST && in_time(&seen.lock().unwrap()) {
        let before = kinds(&seen.lock().unwrap());
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..12].copy_from_slice(&sequences.to_le_bytes());
        let config = Cases { cases: 1, max_shrink_iters: 400, failure_persistence: None, ..Cases::default() };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let ran = TestRunner::new_with_rng(config, rng).run(
            &proptest::collection::vec(action(), 60..140),
            |actions| {
                runtime.block_on(run(make, actions, &seen));
                Ok(())
            },
        );
        if let Err(TestError::Fail(why, actions)) = ran {
            panic!("{name}, LEDGER_SEED={seed}: {why}\nshortest: {actions:#?}");
        }
        sequences += 1;
        quiet = if kinds(&seen.lock().unwrap()) > before { 0 } else { quiet + 1 };
    }
    let seen = seen.into_inner().unwrap();
    let (refused, rest) = split(&seen);
    println!(
        "{name}: {sequences} sequences, {} kinds of transitions and answers, {} of refusals by {} reasons, {:?}, seed {seed}",
        rest.len(),
        refused.len(),
        reasons(&seen),
        begun.elapsed()
    );
    if std::env::var_os("LEDGER_SHOW").is_some() {
        println!("{seen:#?}");
    }
    assert!(enough(&seen), "seed {seed}: too little was seen: {rest:#?} {refused:#?}");
}

fn split(seen: &Seen) -> (Vec<&String>, Vec<&String>) {
    seen.iter().partition(|s| s.contains(": refused, "))
}

fn reasons(seen: &Seen) -> usize {
    let saw = |r: &Refusal| seen.iter().any(|s| s.ends_with(&format!(": refused, {}", r.word())));
    Refusal::ALL.iter().filter(|r| saw(r)).count()
}

/// What has to be seen at least. (A thousand effects of one operation are too many for here: that refusal is tested
/// beside `decide`.)
fn enough(seen: &Seen) -> bool {
    let (refused, rest) = split(seen);
    rest.len() >= 90 && refused.len() >= 90 && reasons(seen) >= 10
}

/// How many kinds of things were seen. A refusal is of the same kind in the same state and for the same reason.
fn kinds(seen: &Seen) -> usize {
    let kind = |s: &String| match s.split_once(": refused, ") {
        Some((what, why)) => format!("{} {why}", what.split(',').next().unwrap_or_default()),
        None => s.clone(),
    };
    seen.iter().map(kind).collect::<BTreeSet<_>>().len()
}

fn since_epoch() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_nanos() as u64
}
