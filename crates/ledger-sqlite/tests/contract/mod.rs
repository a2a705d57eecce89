//! The contract of [`Store`] as a suite that any store can be held to: `suite!(name, factory)` makes one test
//! per rule. A factory gives an empty store and whatever has to live as long as it.

#![allow(dead_code)]

pub mod claims;
pub mod handles;
pub mod sessions;

use ledger::decide::{Fence, Opening, Outcome, open};
use ledger::executor::Receipt;
use ledger::store::{
    ApiKey, Blob, BlobKind, Committed, Found, Query, SlotWrite, Store, StoreError, Write, key_hash_of,
    slot_hash_of,
};
use ledger::words::{EffectKey, Epoch, Key, Millis, OperationId, Scope, Time};
use ledger::{
    DeliveryState, Event, Execution, Fingerprint, Intent, Operation, OperationPolicy, Recovery, Strategy,
    decide,
};
use std::any::Any;
use std::sync::Arc;

pub struct Made {
    pub store: Arc<dyn Store>,
    pub keep: Box<dyn Any>,
    /// The same records under the next boot, once `store` was let go.
    pub restart: Box<dyn FnOnce() -> Arc<dyn Store>>,
}

#[macro_export]
macro_rules! suite {
    ($name:ident, $factory:expr) => {
        mod $name {
            $crate::suite!(@ $factory; creations updates keys slots lazy attention at_rest orphans lists pruning payloads counts api_keys);
            $crate::suite!(# $factory; sessions session_changes session_bounds session_races session_pruning session_restart session_count);
            $crate::suite!(~ $factory; handles handle_conflicts handle_expiry handle_limits handle_lists handle_pruning shelf shelf_bounds shelf_races);
            $crate::suite!(^ $factory; claims claims_together claims_bounds claims_end claims_in_the_way claims_given_back claims_late claims_by_turns claims_by_turns_of_one claims_pruning claims_races);
        }
    };
    (^ $factory:expr; $($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            $crate::contract::claims::$case($factory()).await;
        })*
    };
    (# $factory:expr; $($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            $crate::contract::sessions::$case($factory()).await;
        })*
    };
    (~ $factory:expr; $($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            $crate::contract::handles::$case($factory()).await;
        })*
    };
    (@ $factory:expr; $($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            let made = $factory();
            $crate::contract::$case(&*made.store).await;
        })*
    };
}

pub const T0: Time = Time(1_700_000_000_000);
pub const WEEK: i64 = 7 * 86_400_000;

/// Makes a ledger in SQLite what it was before index entries waited: an index over keys, and a slot's row from its first
/// moment.
pub const INDEXES_OF_SCHEMA_4: &str = "
DROP TABLE op_by_key;
ALTER TABLE meta DROP COLUMN indexed;
CREATE UNIQUE INDEX op_key ON op (key_hash) WHERE key_hash IS NOT NULL;
INSERT OR REPLACE INTO slot SELECT slot_hash, seq FROM op ORDER BY seq;
";

/// The n-th of a row of ids.
pub fn id(n: u64) -> OperationId {
    OperationId::new(Time(1_600_000_000_000 + n.cast_signed()), u128::from(n))
}

pub fn scope(principal: &str) -> Scope {
    Scope { principal: principal.into(), tool: "pay".into(), mode: "production".into() }
}

pub fn fingerprint(n: u32) -> Fingerprint {
    Fingerprint::of(
        "pay",
        &ledger::canonical::canonicalise_arguments(Some(&format!("{{\"n\":{n}}}")), None).unwrap(),
    )
}

pub fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// A new operation with one effect intended.
pub fn opening(id: OperationId, k: Option<&str>, n: u32, epoch: Epoch) -> (Operation, Vec<Blob>) {
    opening_at(id, "alice", k, n, epoch, T0)
}

pub fn opening_at(
    id: OperationId,
    principal: &str,
    k: Option<&str>,
    n: u32,
    epoch: Epoch,
    now: Time,
) -> (Operation, Vec<Blob>) {
    let (scope, key, fingerprint) = (scope(principal), k.map(key), fingerprint(n));
    let effect = EffectKey::derive("test", &scope, id, key.as_ref(), &fingerprint, "charge", "");
    let intent = Intent {
        name: "charge".into(),
        discriminator: String::new(),
        recovery: Recovery::new(Strategy::Key),
        summary: "POST /charges".into(),
        body: format!("intent {id}").into_bytes(),
    };
    let o = Opening {
        id,
        scope,
        key,
        fingerprint,
        policy: OperationPolicy::default(),
        epoch,
        intent: Some((intent, effect)),
        arguments: Some(b"{}".to_vec()),
        asks: Vec::new(),
    };
    let t = open(o, now);
    (t.next, t.blobs)
}

pub fn fence(op: &Operation) -> Fence {
    Fence { attempt: op.attempt, epoch: op.owner }
}

/// What `event` makes of `op`, as a write.
pub fn step(op: &Operation, event: Event, now: Time, stamp: u64) -> Option<(Operation, Write)> {
    let t = decide(op, event, now).ok()?;
    let write = Write::Update { operation: Box::new(t.next.clone()), stamp, blobs: t.blobs, handles: vec![] };
    Some((t.next, write))
}

pub fn received(op: &Operation) -> Event {
    Event::Receive { fence: fence(op), effect: 0, outcome: Outcome::Applied(receipt()) }
}

pub fn receipt() -> Receipt {
    Receipt(b"receipt".to_vec())
}

pub fn close(op: &Operation, gone: bool) -> Event {
    Event::Close { fence: fence(op), result: b"result".to_vec(), is_error: false, caller_gone: gone }
}

pub async fn create(s: &dyn Store, (op, blobs): &(Operation, Vec<Blob>), slot: SlotWrite) -> Committed {
    s.write(Write::Create { operation: Box::new(op.clone()), slot, blobs: blobs.clone() }).await.unwrap()
}

/// Creates the n-th operation with arguments n and brings it to its end.
pub async fn completed(s: &dyn Store, n: u32, k: Option<&str>, now: Time) -> Operation {
    let made = opening_at(id(n.into()), "alice", k, n, s.epoch(), now);
    assert_eq!(create(s, &made, SlotWrite::Set).await, Committed::Done);
    let (op, w) = step(&made.0, received(&made.0), now, 1).unwrap();
    assert_eq!(s.write(w).await.unwrap(), Committed::Done);
    let (op, w) = step(&op, close(&op, false), now, 2).unwrap();
    assert_eq!(s.write(w).await.unwrap(), Committed::Done);
    op
}

pub async fn get(s: &dyn Store, id: OperationId) -> Operation {
    match s.by_id(id).await.unwrap() {
        Some(Found::Operation(op)) => *op,
        other => panic!("{id}: {other:?}"),
    }
}

fn ids(ops: &[Operation]) -> Vec<OperationId> {
    ops.iter().map(|op| op.id).collect()
}

pub async fn creations(s: &dyn Store) {
    let made = opening(id(1), Some("k"), 1, s.epoch());
    assert!(s.by_id(id(1)).await.unwrap().is_none());
    assert_eq!(create(s, &made, SlotWrite::Set).await, Committed::Done);
    assert_eq!(get(s, id(1)).await, made.0, "a record comes back as it went in, version and all");
    assert_eq!(
        create(s, &made, SlotWrite::CompareAndSet(None)).await,
        Committed::Done,
        "a repetition is this very write, whatever the slot holds"
    );
    assert_eq!(s.by_slot(&slot_hash_of(&made.0)).await.unwrap().unwrap(), made.0);
    assert!(
        matches!(s.by_key(&key_hash_of(&made.0).unwrap()).await.unwrap(), Some(Found::Operation(op)) if *op == made.0)
    );
    assert_eq!(
        s.blob(id(1), BlobKind::Intent(0)).await.unwrap().unwrap(),
        format!("intent {}", id(1)).into_bytes()
    );
    assert_eq!(s.blob(id(1), BlobKind::Result).await.unwrap(), None);
}

pub async fn updates(s: &dyn Store) {
    let made = opening(id(1), None, 1, s.epoch());
    let (v2, w2) = step(&made.0, received(&made.0), T0, 7).unwrap();
    assert_eq!(s.write(w2.clone()).await.unwrap(), Committed::Stale, "there is no such record");
    create(s, &made, SlotWrite::Set).await;
    assert_eq!(s.write(w2.clone()).await.unwrap(), Committed::Done);
    assert_eq!(s.write(w2).await.unwrap(), Committed::Done, "a repetition is recognised by its stamp");
    assert_eq!(get(s, id(1)).await, v2);
    let (_, rival) = step(&made.0, Event::CallerGone, T0, 8).unwrap();
    assert_eq!(s.write(rival).await.unwrap(), Committed::Stale, "another write of the same version lost");
    let (v3, w3) = step(&v2, close(&v2, false), T0, 9).unwrap();
    assert_eq!(s.write(w3.clone()).await.unwrap(), Committed::Done);
    let (_, old) = step(&made.0, received(&made.0), T0, 7).unwrap();
    assert_eq!(s.write(old).await.unwrap(), Committed::Stale, "a repetition after the next write is stale");
    assert_eq!(get(s, id(1)).await, v3);
}

pub async fn keys(s: &dyn Store) {
    create(s, &opening(id(1), Some("k"), 1, s.epoch()), SlotWrite::Set).await;
    assert_eq!(
        create(s, &opening(id(2), Some("k"), 2, s.epoch()), SlotWrite::Set).await,
        Committed::KeyTaken
    );
    assert!(s.by_id(id(2)).await.unwrap().is_none());
    let theirs = opening_at(id(3), "bob", Some("k"), 1, s.epoch(), T0);
    assert_eq!(
        create(s, &theirs, SlotWrite::CompareAndSet(None)).await,
        Committed::Done,
        "another principal's room"
    );
    assert_eq!(
        create(s, &opening(id(4), Some("k"), 1, s.epoch()), SlotWrite::CompareAndSet(None)).await,
        Committed::KeyTaken,
        "the key comes before the slot"
    );
    // What one may have is one's own: another's looks like none.
    assert_eq!(s.owned("bob", id(3)).await.unwrap(), Some(theirs.0));
    assert_eq!(s.owned("alice", id(1)).await.unwrap(), Some(get(s, id(1)).await));
    for (principal, n) in [("alice", 3), ("bob", 1), ("bob", 2), ("bo", 3), ("Bob", 3), ("", 3)] {
        assert_eq!(s.owned(principal, id(n)).await.unwrap(), None, "{principal} {n}");
    }
}

pub async fn slots(s: &dyn Store) {
    let slot = slot_hash_of(&opening(id(1), None, 1, s.epoch()).0);
    assert_eq!(
        create(s, &opening(id(1), None, 1, s.epoch()), SlotWrite::CompareAndSet(Some(id(9)))).await,
        Committed::SlotTaken
    );
    assert_eq!(
        create(s, &opening(id(1), None, 1, s.epoch()), SlotWrite::CompareAndSet(None)).await,
        Committed::Done
    );
    assert_eq!(
        create(s, &opening(id(2), None, 1, s.epoch()), SlotWrite::CompareAndSet(None)).await,
        Committed::SlotTaken
    );
    assert!(s.by_id(id(2)).await.unwrap().is_none());
    assert_eq!(
        create(s, &opening(id(2), None, 1, s.epoch()), SlotWrite::CompareAndSet(Some(id(1)))).await,
        Committed::Done
    );
    assert_eq!(s.by_slot(&slot).await.unwrap().unwrap().id, id(2));
    assert_eq!(create(s, &opening(id(3), Some("k"), 1, s.epoch()), SlotWrite::Set).await, Committed::Done);
    assert_eq!(s.by_slot(&slot).await.unwrap().unwrap().id, id(3), "keyed operations take the slot too");

    // A pruned operation leaves its slot as if it had always been empty; an older one does not return to it.
    let newest = get(s, id(3)).await;
    let (v2, w) = step(&newest, received(&newest), T0, 1).unwrap();
    s.write(w).await.unwrap();
    let (_, w) = step(&v2, close(&v2, false), T0, 1).unwrap();
    s.write(w).await.unwrap();
    assert_eq!(s.prune(T0.plus(Millis(WEEK + 1)), Millis(WEEK), 10).await.unwrap(), 1);
    assert!(s.by_slot(&slot).await.unwrap().is_none());
    assert_eq!(
        create(s, &opening(id(4), None, 1, s.epoch()), SlotWrite::CompareAndSet(Some(id(3)))).await,
        Committed::SlotTaken
    );
    assert_eq!(
        create(s, &opening(id(4), None, 1, s.epoch()), SlotWrite::CompareAndSet(None)).await,
        Committed::Done
    );
}

pub async fn lazy(s: &dyn Store) {
    let op = completed(s, 1, None, T0).await;
    let (v4, w) = step(&op, Event::Deliver(DeliveryState::Written), T0, 3).unwrap();
    let (_, rival) = step(&op, Event::Deliver(DeliveryState::Undelivered), T0, 4).unwrap();
    s.write_lazily(w);
    s.write_lazily(rival);
    s.flush().await.unwrap();
    assert_eq!(get(s, id(1)).await, v4, "the first is kept, the stale one dropped");
    let (v5, w) = step(&v4, Event::Deliver(DeliveryState::Acknowledged), T0, 5).unwrap();
    s.write_lazily(w);
    for _ in 0..1000 {
        if get(s, id(1)).await == v5 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("a lazy write is made soon, asked for or not");
}

pub async fn attention(s: &dyn Store) {
    assert_eq!(s.next_attention().await.unwrap(), None);
    let timeout = OperationPolicy::default().timeout;
    for (n, later) in [(1, 20), (2, 0), (3, 10), (4, 10)] {
        let made =
            opening_at(id(n), "alice", None, u32::try_from(n).unwrap(), s.epoch(), T0.plus(Millis(later)));
        create(s, &made, SlotWrite::Set).await;
    }
    let at = |ms| T0.plus(timeout).plus(Millis(ms));
    assert_eq!(s.next_attention().await.unwrap(), Some(at(0)));
    assert!(s.due(at(-1), 10).await.unwrap().is_empty());
    assert_eq!(ids(&s.due(at(0), 10).await.unwrap()), [id(2)], "a moment that has come counts");
    assert_eq!(
        ids(&s.due(at(100), 10).await.unwrap()),
        [id(2), id(3), id(4), id(1)],
        "earliest first, then by id"
    );
    assert_eq!(ids(&s.due(at(100), 2).await.unwrap()), [id(2), id(3)]);
    let op = get(s, id(2)).await;
    let (_, w) = step(&op, Event::Rest { fence: fence(&op), until: at(50) }, T0, 1).unwrap();
    s.write(w).await.unwrap();
    assert_eq!(s.next_attention().await.unwrap(), Some(at(10)));
    assert_eq!(ids(&s.due(at(100), 10).await.unwrap()), [id(3), id(4), id(1), id(2)]);
    let op = get(s, id(3)).await;
    let (op, w) = step(&op, received(&op), T0, 1).unwrap();
    s.write(w).await.unwrap();
    let (op, w) = step(&op, close(&op, false), T0, 1).unwrap();
    s.write(w).await.unwrap();
    let (_, w) = step(&op, Event::Deliver(DeliveryState::Written), T0, 1).unwrap();
    s.write(w).await.unwrap();
    assert_eq!(
        ids(&s.due(at(1 << 40), 10).await.unwrap()),
        [id(4), id(1), id(2)],
        "what was delivered wants none"
    );
}

pub async fn at_rest(s: &dyn Store) {
    assert!(s.due_at_rest(T0.plus(Millis(1 << 40)), 10).await.unwrap().is_empty());
    for n in 1..=20 {
        create(s, &opening(id(n), None, u32::try_from(n).unwrap(), s.epoch()), SlotWrite::Set).await;
    }
    let grace = ledger::store::Attention::default().grace;
    // Results that wait for their streams: their time comes after that of what runs.
    for (n, later) in [(51, 3), (50, 3), (52, 1)] {
        completed(s, n, None, T0.plus(Millis(later))).await;
    }
    let at = |ms| T0.plus(grace).plus(Millis(ms));
    assert!(s.due_at_rest(at(0), 10).await.unwrap().is_empty(), "what runs is left out");
    assert_eq!(s.due(at(3), 100).await.unwrap().len(), 23);
    assert_eq!(ids(&s.due_at_rest(at(1), 10).await.unwrap()), [id(52)], "a moment that has come counts");
    assert_eq!(
        ids(&s.due_at_rest(at(3), 10).await.unwrap()),
        [id(52), id(50), id(51)],
        "earliest first, then by id, however much runs before them"
    );
    assert_eq!(ids(&s.due_at_rest(at(3), 2).await.unwrap()), [id(52), id(50)]);
    // What waits to be claimed is running, whoever owns it.
    let op = get(s, id(1)).await;
    let (_, w) = step(&op, Event::Rest { fence: fence(&op), until: T0 }, T0, 1).unwrap();
    s.write(w).await.unwrap();
    assert_eq!(ids(&s.due_at_rest(at(3), 10).await.unwrap()), [id(52), id(50), id(51)]);
    let op = get(s, id(52)).await;
    let (_, w) = step(&op, Event::Deliver(DeliveryState::Written), T0, 1).unwrap();
    s.write(w).await.unwrap();
    assert_eq!(ids(&s.due_at_rest(at(3), 10).await.unwrap()), [id(50), id(51)]);
}

pub async fn orphans(s: &dyn Store) {
    let dead = Epoch(s.epoch().0 + 1_000_000);
    for n in [5, 2, 4, 1] {
        create(s, &opening(id(n), None, u32::try_from(n).unwrap(), dead), SlotWrite::Set).await;
    }
    create(s, &opening(id(3), None, 3, s.epoch()), SlotWrite::Set).await;
    assert_eq!(
        ids(&s.orphans(None, 10).await.unwrap()),
        [id(1), id(2), id(4), id(5)],
        "by id, without this boot's"
    );
    assert_eq!(ids(&s.orphans(None, 2).await.unwrap()), [id(1), id(2)]);
    assert_eq!(ids(&s.orphans(Some(id(2)), 2).await.unwrap()), [id(4), id(5)]);
    assert!(s.orphans(Some(id(5)), 2).await.unwrap().is_empty());
    let op = get(s, id(4)).await;
    let (_, w) =
        step(&op, Event::Claim { epoch: s.epoch(), by_call: true, owner_dead: true }, T0, 1).unwrap();
    s.write(w).await.unwrap();
    let op = get(s, id(5)).await;
    let (_, w) = step(&op, Event::Join { epoch: s.epoch() }, T0, 1).unwrap();
    s.write(w).await.unwrap();
    let op = get(s, id(1)).await;
    let (_, w) = step(&op, Event::Doubt { fence: fence(&op), reason: "no way on".into() }, T0, 1).unwrap();
    s.write(w).await.unwrap();
    let op = get(s, id(3)).await;
    let (_, w) = step(&op, Event::Rest { fence: fence(&op), until: T0 }, T0, 1).unwrap();
    s.write(w).await.unwrap();
    create(s, &opening(id(6), None, 6, s.epoch()), SlotWrite::Set).await;
    let mut op = get(s, id(6)).await;
    op.version += 1;
    op.caller.epoch = dead;
    s.write(Write::Update { operation: Box::new(op), stamp: 1, blobs: vec![], handles: vec![] })
        .await
        .unwrap();
    assert_eq!(
        ids(&s.orphans(None, 10).await.unwrap()),
        [id(2), id(5), id(6)],
        "a dead owner or a dead caller makes an orphan; nobody as owner, or wanting nothing, does not"
    );
}

pub async fn lists(s: &dyn Store) {
    for n in 1..=6 {
        let principal = if n % 2 == 0 { "alice" } else { "bob" };
        let made = opening_at(id(n), principal, None, u32::try_from(n).unwrap(), s.epoch(), T0);
        create(s, &made, SlotWrite::Set).await;
    }
    let op = get(s, id(4)).await;
    let (op, w) = step(&op, received(&op), T0, 1).unwrap();
    s.write(w).await.unwrap();
    let (_, w) = step(&op, close(&op, true), T0, 1).unwrap();
    s.write(w).await.unwrap();
    let op = get(s, id(3)).await;
    let (_, w) = step(&op, Event::Doubt { fence: fence(&op), reason: "no way on".into() }, T0, 1).unwrap();
    s.write(w).await.unwrap();
    let all = Query { limit: 100, ..Query::default() };
    let some = |s: &str| Some(s.to_owned());
    for (query, want) in [
        (all.clone(), vec![6, 5, 4, 3, 2, 1]),
        (Query { limit: 2, ..all.clone() }, vec![6, 5]),
        (Query { limit: 0, ..all.clone() }, vec![]),
        (Query { before: Some(id(5)), limit: 2, ..all.clone() }, vec![4, 3]),
        (Query { principal: some("bob"), ..all.clone() }, vec![5, 3, 1]),
        (Query { principal: some("bob"), before: Some(id(5)), limit: 1, ..all.clone() }, vec![3]),
        (Query { principal: some("nobody"), ..all.clone() }, vec![]),
        (Query { tool: some("pay"), limit: 1, ..all.clone() }, vec![6]),
        (Query { tool: some("other"), ..all.clone() }, vec![]),
        (Query { state: some("running"), ..all.clone() }, vec![6, 5, 2, 1]),
        (
            Query { state: some("running"), principal: some("alice"), before: Some(id(6)), ..all.clone() },
            vec![2],
        ),
        (Query { state: some("in_doubt"), ..all.clone() }, vec![3]),
        (
            Query { state: some("in_doubt"), delivery: some("not_ready"), tool: some("pay"), ..all.clone() },
            vec![3],
        ),
        (Query { state: some("completed"), ..all.clone() }, vec![4]),
        (Query { state: some("input_required"), ..all.clone() }, vec![]),
        (
            Query {
                state: some("completed"),
                delivery: some("undelivered"),
                principal: some("alice"),
                ..all.clone()
            },
            vec![4],
        ),
        (Query { delivery: some("undelivered"), ..all.clone() }, vec![4]),
        (Query { delivery: some("not_ready"), before: Some(id(4)), ..all.clone() }, vec![3, 2, 1]),
        (Query { state: some("nonsense"), ..all.clone() }, vec![]),
        (Query { delivery: some("nonsense"), ..all.clone() }, vec![]),
    ] {
        let want: Vec<OperationId> = want.into_iter().map(id).collect();
        assert_eq!(ids(&s.list(&query).await.unwrap()), want, "{query:?}");
    }
}

pub async fn pruning(s: &dyn Store) {
    let end = T0.plus(Millis(WEEK));
    let old = completed(s, 1, Some("k"), T0).await;
    let young = completed(s, 2, None, T0.plus(Millis(10))).await;
    create(s, &opening(id(3), None, 3, s.epoch()), SlotWrite::Set).await;
    assert_eq!(s.prune(end, Millis(WEEK), 10).await.unwrap(), 0, "not before its time is over");
    assert_eq!(s.prune(end.plus(Millis(1)), Millis(WEEK), 10).await.unwrap(), 1);
    let Some(Found::Tombstone(t)) = s.by_id(id(1)).await.unwrap() else { panic!("no tombstone by id") };
    assert_eq!(
        (t.id, t.fingerprint, t.outcome.as_str(), t.at),
        (id(1), old.fingerprint, "completed", end.plus(Millis(1)))
    );
    assert_eq!(s.owned("alice", id(1)).await.unwrap(), None, "nobody's any more");
    let hash = key_hash_of(&old).unwrap();
    assert!(matches!(s.by_key(&hash).await.unwrap(), Some(Found::Tombstone(g)) if g == t));
    for kind in [BlobKind::Arguments, BlobKind::Intent(0), BlobKind::Receipt(0), BlobKind::Result] {
        assert_eq!(s.blob(id(1), kind).await.unwrap(), None);
        assert!(s.blob(id(2), kind).await.unwrap().is_some());
    }
    assert!(s.by_slot(&slot_hash_of(&old)).await.unwrap().is_none());
    let (_, w) = step(&old, Event::Deliver(DeliveryState::Written), T0, 9).unwrap();
    assert_eq!(s.write(w).await.unwrap(), Committed::Stale, "gone is gone");
    let again = opening(id(4), Some("k"), 1, s.epoch());
    assert_eq!(create(s, &again, SlotWrite::Set).await, Committed::KeyTaken, "a tombstone keeps the key");
    assert_eq!(get(s, id(2)).await, young);

    // Unsettled operations stay, however old; then the tombstone's time is over too.
    let later = end.plus(Millis(2 * WEEK));
    assert_eq!(s.prune(later, Millis(WEEK), 10).await.unwrap(), 1);
    assert!(s.by_id(id(1)).await.unwrap().is_none() && s.by_key(&hash).await.unwrap().is_none());
    assert!(matches!(s.by_id(id(2)).await.unwrap(), Some(Found::Tombstone(_))));
    assert_eq!(get(s, id(3)).await.execution, Execution::Running);
    assert_eq!(create(s, &again, SlotWrite::Set).await, Committed::Done);

    for n in 100..105 {
        completed(s, n, None, T0).await;
    }
    assert_eq!(s.prune(later, Millis(WEEK), 2).await.unwrap(), 2, "the limit holds");
    assert_eq!(s.prune(later, Millis(WEEK), 100).await.unwrap(), 3);
    assert_eq!(s.prune(later, Millis(0), 100).await.unwrap(), 0);
    for n in [2, 100, 104] {
        assert!(s.by_id(id(n)).await.unwrap().is_none(), "tombstones that are kept for no time are gone");
    }
}

pub async fn payloads(s: &dyn Store) {
    let op = completed(s, 1, None, T0).await;
    let (next, _) = step(&op, Event::Deliver(DeliveryState::Written), T0, 3).unwrap();
    let blobs = vec![
        Blob { kind: BlobKind::Result, data: b"another result".to_vec() },
        Blob { kind: BlobKind::Receipt(0), data: b"another receipt".to_vec() },
        Blob { kind: BlobKind::Receipt(1), data: vec![] },
        Blob { kind: BlobKind::Intent(1), data: vec![0; 300_000] },
    ];
    assert_eq!(
        s.write(Write::Update { operation: Box::new(next), stamp: u64::MAX, blobs, handles: vec![] })
            .await
            .unwrap(),
        Committed::Done
    );
    assert_eq!(s.blob(id(1), BlobKind::Result).await.unwrap().unwrap(), b"result");
    assert_eq!(s.blob(id(1), BlobKind::Receipt(0)).await.unwrap().unwrap(), b"receipt");
    assert_eq!(s.blob(id(1), BlobKind::Receipt(1)).await.unwrap().unwrap(), b"");
    assert_eq!(s.blob(id(1), BlobKind::Intent(1)).await.unwrap().unwrap().len(), 300_000);
    assert_eq!(s.blob(id(2), BlobKind::Result).await.unwrap(), None);
}

pub async fn counts(s: &dyn Store) {
    assert_eq!(s.counts().await.unwrap(), ledger::store::Counts::default());
    completed(s, 1, None, T0).await;
    completed(s, 2, None, T0).await;
    create(s, &opening(id(3), None, 3, s.epoch()), SlotWrite::Set).await;
    let c = s.counts().await.unwrap();
    assert_eq!(c.execution.into_iter().collect::<Vec<_>>(), [("completed".into(), 2), ("running".into(), 1)]);
    assert_eq!(c.delivery.into_iter().collect::<Vec<_>>(), [("not_ready".into(), 1), ("ready".into(), 2)]);
    s.prune(T0.plus(Millis(2 * WEEK)), Millis(WEEK), 10).await.unwrap();
    let c = s.counts().await.unwrap();
    assert_eq!(c.execution.into_iter().collect::<Vec<_>>(), [("running".into(), 1)]);
}

pub async fn api_keys(s: &dyn Store) {
    let key = |id: &str, note: &str| ApiKey {
        id: id.into(),
        principal: "alice".into(),
        hash: "00".into(),
        created_at: T0,
        revoked_at: None,
        note: note.into(),
    };
    s.put_api_key(key("b", "")).await.unwrap();
    s.put_api_key(key("a", "")).await.unwrap();
    s.put_api_key(ApiKey { revoked_at: Some(T0), ..key("b", "lost") }).await.unwrap();
    assert_eq!(
        s.api_keys().await.unwrap(),
        [key("a", ""), ApiKey { revoked_at: Some(T0), ..key("b", "lost") }]
    );
}

/// Whether an error says that nothing was written.
pub fn is_unavailable<T>(r: &Result<T, StoreError>) -> bool {
    matches!(r, Err(StoreError::Unavailable(_)))
}
