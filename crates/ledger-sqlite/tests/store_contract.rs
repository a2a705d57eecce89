//! Holds the store in memory and the one on SQLite to the same contract, case by case and in random sequences.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod contract;

use contract::{Made, T0, WEEK, close, fence, fingerprint, id, key, opening, received, scope, step};
use counterfoil_ledger_sqlite::{Config, SqliteStore};
use ledger::memory::MemoryStore;
use ledger::store::{Attention, BlobKind, Committed, Query, SlotWrite, Store, Write};
use ledger::words::{Epoch, Millis, OperationId, Time};
use ledger::{DeliveryState, Event, Operation, SystemEnv};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn memory() -> Made {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemEnv), T0, Attention::default()));
    let again = store.clone();
    Made { store, keep: Box::new(()), restart: Box::new(move || Arc::new(again.restart())) }
}

/// In memory-backed files where there are any: these tests are about answers, not about disks.
fn sqlite() -> Made {
    sqlite_with(|config| config)
}

/// One whose keys and slots go to their tables with each creation.
fn sqlite_entering() -> Made {
    sqlite_with(|config| Config { unindexed_rows: 1, ..config })
}

fn sqlite_with(how: impl Fn(Config) -> Config) -> Made {
    let shm = std::path::Path::new("/dev/shm");
    let dir = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap();
    let config = how(Config { ballast: 0, min_free: 0, ..Config::new(dir.path().join("ledger.db"), "test") });
    let open =
        |config| SqliteStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).unwrap();
    let store = open(config.clone());
    Made { store, keep: Box::new(dir), restart: Box::new(move || open(config)) }
}

suite!(in_memory, super::memory);
suite!(on_sqlite, super::sqlite);
suite!(on_sqlite_entering, super::sqlite_entering);

#[derive(Clone, Debug)]
enum Action {
    Create { id: u64, key: Option<u8>, arguments: u32, slot: Option<Option<u64>>, dead: bool, again: bool },
    Step { id: u64, event: u8, lazy: bool, stale: bool, again: bool },
    Prune { after: i64, tombstones_for: i64 },
}

fn action() -> impl Strategy<Value = Action> {
    let slot = prop_oneof![Just(None), Just(Some(None)), (0..6_u64).prop_map(|n| Some(Some(n)))];
    prop_oneof![
        4 => (0..6_u64, proptest::option::of(0..3_u8), 0..3_u32, slot, any::<bool>(), any::<bool>())
            .prop_map(|(id, key, arguments, slot, dead, again)| Action::Create { id, key, arguments, slot, dead, again }),
        8 => (0..6_u64, 0..11_u8, any::<bool>(), prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(id, event, lazy, stale, again)| Action::Step { id, event, lazy, stale, again }),
        1 => (0..2 * WEEK, 0..2 * WEEK).prop_map(|(after, tombstones_for)| Action::Prune { after, tombstones_for }),
    ]
}

fn event(n: u8, op: &Operation) -> Event {
    let f = fence(op);
    match n {
        0 | 1 => received(op),
        2 => close(op, false),
        3 => close(op, true),
        4 => Event::CallerGone,
        5 => Event::Join { epoch: Epoch(1) },
        6 => Event::Doubt { fence: f, reason: "no way on".into() },
        7 => Event::Deliver(DeliveryState::Written),
        8 => Event::Deliver(DeliveryState::Acknowledged),
        9 => Event::Alerted,
        _ => Event::Rest { fence: f, until: T0.plus(Millis(5)) },
    }
}

/// Everything that can be asked of a store.
async fn dump(s: &dyn Store) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut put = |what: String, answer: String| {
        all.insert(what, answer);
    };
    for n in 0..6 {
        put(format!("id {n}"), format!("{:?}", s.by_id(id(n)).await.unwrap()));
        for kind in [BlobKind::Arguments, BlobKind::Intent(0), BlobKind::Receipt(0), BlobKind::Result] {
            put(format!("blob {n} {kind:?}"), format!("{:?}", s.blob(id(n), kind).await.unwrap()));
        }
    }
    for n in 0..3 {
        put(
            format!("key {n}"),
            format!("{:?}", s.by_key(&scope("alice").key_hash(&key(&n.to_string()))).await.unwrap()),
        );
        put(
            format!("slot {n}"),
            format!("{:?}", s.by_slot(&scope("alice").slot_hash(&fingerprint(n))).await.unwrap()),
        );
    }
    for at in [0, 10, 60_010, 90_010, WEEK] {
        put(format!("due {at}"), format!("{:?}", s.due(T0.plus(Millis(at)), 4).await.unwrap()));
    }
    for state in [None, Some("running"), Some("accepted"), Some("completed"), Some("in_doubt")] {
        for delivery in [None, Some("not_ready"), Some("undelivered"), Some("written")] {
            let q = Query {
                state: state.map(Into::into),
                delivery: delivery.map(Into::into),
                limit: 4,
                ..Query::default()
            };
            put(format!("list {state:?} {delivery:?}"), format!("{:?}", s.list(&q).await.unwrap()));
        }
    }
    put("orphans".into(), format!("{:?}", s.orphans(Some(id(0)), 3).await.unwrap()));
    put("next".into(), format!("{:?}", s.next_attention().await.unwrap()));
    put("counts".into(), format!("{:?}", s.counts().await.unwrap()));
    all
}

async fn both(a: &dyn Store, b: &dyn Store, write: &Write) -> Committed {
    let (x, y) = (a.write(write.clone()).await.unwrap(), b.write(write.clone()).await.unwrap());
    assert_eq!(x, y, "{write:?}");
    x
}

async fn run(actions: Vec<Action>) {
    let (memory, sqlite) = (memory(), sqlite());
    let (a, b) = (&*memory.store, &*sqlite.store);
    // The newest record of each operation as its writer knows it, which may be behind.
    let mut known: BTreeMap<OperationId, Operation> = BTreeMap::new();
    for (n, action) in (0_u32..).zip(actions) {
        let now = T0.plus(Millis(n.into()));
        match action {
            Action::Create { id: n, key, arguments, slot, dead, again } => {
                let key = key.map(|k| k.to_string());
                let epoch = if dead { Epoch(9) } else { Epoch(1) };
                let (op, blobs) = opening(id(n), key.as_deref(), arguments, epoch);
                let slot = slot.map_or(SlotWrite::Set, |s| SlotWrite::CompareAndSet(s.map(id)));
                let write = Write::Create { operation: Box::new(op.clone()), slot, blobs };
                if both(a, b, &write).await == Committed::Done {
                    known.entry(op.id).or_insert(op);
                }
                if again {
                    both(a, b, &write).await;
                }
            }
            Action::Step { id: which, event: e, lazy, stale, again } => {
                let Some(op) = known.get(&id(which)) else { continue };
                let Some((next, write)) = step(op, event(e, op), now, n.into()) else { continue };
                if lazy {
                    a.write_lazily(write.clone());
                    b.write_lazily(write.clone());
                    b.flush().await.unwrap();
                } else {
                    both(a, b, &write).await;
                }
                if again {
                    both(a, b, &write).await;
                }
                if !stale {
                    known.insert(next.id, next);
                }
            }
            Action::Prune { after, tombstones_for } => {
                let (at, keep) = (Time(T0.0 + after), Millis(tombstones_for));
                let (x, y) = (a.prune(at, keep, 100).await.unwrap(), b.prune(at, keep, 100).await.unwrap());
                assert_eq!(x, y);
            }
        }
        let (x, y) = (dump(a).await, dump(b).await);
        for (what, answer) in &x {
            assert_eq!(*answer, y[what], "{what}, after {n} actions");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn both_stores_agree(actions in prop::collection::vec(action(), 1..40)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(actions));
    }
}
