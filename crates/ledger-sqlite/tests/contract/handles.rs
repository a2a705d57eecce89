//! What any store promises about handles and the shelf.

use super::{Made, T0, completed, create, get, id, is_unavailable, opening, received, step};
use ledger::handle::{
    Handle, HandleChange, MAX_HANDLE_CHANGES, MAX_HANDLE_KIND, MAX_HANDLE_LIFE, MAX_HANDLE_VALUE, MAX_HANDLES,
};
use ledger::store::{Committed, MAX_SHELF_NAME, MAX_SHELVED, Shelved, SlotWrite, Store, StoreError, Write};
use ledger::words::{Millis, Time};
use ledger::{DeliveryState, Event};

fn at(ms: i64) -> Time {
    T0.plus(Millis(ms))
}

pub fn hash(n: u16) -> [u8; 32] {
    let mut h = [7; 32];
    h[..2].copy_from_slice(&n.to_be_bytes());
    h
}

/// A handle that may lie unused for a second and live for ten.
pub fn handle(n: u16, principal: &str) -> Handle {
    Handle {
        id_hash: hash(n),
        principal: principal.into(),
        kind: "basket".into(),
        value: format!("value of {n}\0").into_bytes(),
        version: 1,
        created_at: T0,
        used_at: T0,
        idle: Millis(1000),
        absolute: Millis(10_000),
    }
}

fn update(n: u16, principal: &str, expected: u64, ms: i64) -> HandleChange {
    let value = format!("value {ms}").into_bytes();
    HandleChange::Update { id_hash: hash(n), principal: principal.into(), expected, value, at: at(ms) }
}

fn destroy(n: u16, principal: &str, expected: Option<u64>, ms: i64) -> HandleChange {
    HandleChange::Destroy { id_hash: hash(n), principal: principal.into(), expected, at: at(ms) }
}

/// A next state of operation 1, with these changes of handles. What it came to, and whether the record moved.
async fn change(s: &dyn Store, handles: Vec<HandleChange>) -> Committed {
    let op = get(s, id(1)).await;
    let (next, write) = step(&op, Event::Join { epoch: s.epoch() }, T0, op.version).unwrap();
    let Write::Update { operation, stamp, blobs, .. } = write else { unreachable!() };
    let done = s.write(Write::Update { operation, stamp, blobs, handles }).await.unwrap();
    let now = get(s, id(1)).await;
    assert_eq!(now, if done == Committed::Done { next } else { op }, "all of it, or nothing: {done:?}");
    done
}

async fn find(s: &dyn Store, n: u16, principal: &str, ms: i64) -> Option<Handle> {
    s.handle(&hash(n), principal, at(ms)).await.unwrap()
}

async fn one(s: &dyn Store) {
    create(s, &opening(id(1), None, 1, s.epoch()), SlotWrite::Set).await;
}

pub async fn handles(made: Made) {
    let s = &*made.store;
    one(s).await;
    let mine = handle(1, "alice");
    assert_eq!(change(s, vec![HandleChange::Create(mine.clone())]).await, Committed::Done);
    assert_eq!(find(s, 1, "alice", 1).await, Some(mine.clone()), "it comes back as it went in");
    for (n, principal) in [(1, "bob"), (1, "Alice"), (1, ""), (1, "%"), (2, "alice")] {
        assert_eq!(find(s, n, principal, 1).await, None, "unknown and foreign ones look alike");
    }
    assert_eq!(change(s, vec![update(1, "alice", 1, 500)]).await, Committed::Done);
    let changed = Handle { version: 2, value: b"value 500".to_vec(), used_at: at(500), ..mine.clone() };
    assert_eq!(find(s, 1, "alice", 501).await, Some(changed.clone()), "it counts as a use");
    assert_eq!(change(s, vec![destroy(1, "alice", Some(2), 600)]).await, Committed::Done);
    assert_eq!(find(s, 1, "alice", 600).await, None);
    // Two at once, and one that is gone already beside them.
    let two = || vec![HandleChange::Create(handle(3, "alice")), HandleChange::Create(handle(2, "bob"))];
    let mut more = two();
    more.push(destroy(1, "alice", None, 600));
    assert_eq!(change(s, more).await, Committed::HandleMoved);
    assert_eq!((find(s, 3, "alice", 1).await, find(s, 2, "bob", 1).await), (None, None));
    assert_eq!(change(s, two()).await, Committed::Done);
    assert_eq!(find(s, 3, "alice", 1).await, Some(handle(3, "alice")));
    let of_bob = handle(2, "bob");
    let op = get(s, id(1)).await;
    // The next boot finds all of it.
    drop(made.store);
    let s = (made.restart)();
    assert_eq!(find(&*s, 2, "bob", 1).await, Some(of_bob));
    assert_eq!(get(&*s, id(1)).await, op);
}

pub async fn handle_conflicts(made: Made) {
    let s = &*made.store;
    one(s).await;
    assert_eq!(change(s, vec![HandleChange::Create(handle(1, "alice"))]).await, Committed::Done);
    let there = find(s, 1, "alice", 1).await;
    for wrong in [
        update(1, "alice", 0, 1),
        update(1, "alice", 2, 1),
        update(1, "bob", 1, 1),
        update(2, "alice", 1, 1),
        destroy(1, "alice", Some(2), 1),
        destroy(1, "bob", None, 1),
        destroy(2, "alice", None, 1),
        HandleChange::Create(handle(1, "alice")),
        HandleChange::Create(handle(1, "bob")),
    ] {
        let what = format!("{wrong:?}");
        assert_eq!(change(s, vec![wrong]).await, Committed::HandleMoved, "{what}");
        assert_eq!(find(s, 1, "alice", 1).await, there, "{what}");
    }
    // The record goes first: who is stale is told so, whatever the handle.
    let op = get(s, id(1)).await;
    let (next, write) = step(&op, received(&op), T0, 77).unwrap();
    let Write::Update { operation, stamp, blobs, .. } = write else { unreachable!() };
    let with = |handles| Write::Update { operation: operation.clone(), stamp, blobs: blobs.clone(), handles };
    assert_eq!(s.write(with(vec![update(1, "alice", 1, 5)])).await.unwrap(), Committed::Done);
    assert_eq!(
        s.write(with(vec![update(1, "alice", 1, 5)])).await.unwrap(),
        Committed::Done,
        "the very write again is recognised, and its changes are not made again"
    );
    assert_eq!(find(s, 1, "alice", 6).await.unwrap().version, 2);
    let rival = Write::Update {
        operation: operation.clone(),
        stamp: 78,
        blobs: vec![],
        handles: vec![update(1, "alice", 2, 9)],
    };
    assert_eq!(s.write(rival).await.unwrap(), Committed::Stale);
    assert_eq!(find(s, 1, "alice", 6).await.unwrap().version, 2, "a zombie's change is none");
    assert_eq!(get(s, id(1)).await, next);
}

pub async fn handle_expiry(made: Made) {
    let s = &*made.store;
    one(s).await;
    assert_eq!(change(s, vec![HandleChange::Create(handle(1, "alice"))]).await, Committed::Done);
    assert!(find(s, 1, "alice", 999).await.is_some());
    assert_eq!(find(s, 1, "alice", 1000).await, None, "unused for as long as it may");
    // A use is noted, and never takes one back.
    s.touch_handle(&hash(1), "bob", at(900)).await.unwrap();
    assert_eq!(find(s, 1, "alice", 1000).await, None);
    s.touch_handle(&hash(1), "alice", at(900)).await.unwrap();
    s.touch_handle(&hash(1), "alice", at(500)).await.unwrap();
    assert_eq!(find(s, 1, "alice", 1899).await.unwrap().used_at, at(900));
    assert_eq!(find(s, 1, "alice", 1900).await, None);
    s.touch_handle(&hash(1), "alice", at(1900)).await.unwrap();
    assert_eq!(find(s, 1, "alice", 1900).await, None, "what is gone is not used");
    assert_eq!(change(s, vec![update(1, "alice", 1, 1900)]).await, Committed::HandleMoved);
    assert_eq!(change(s, vec![destroy(1, "alice", None, 1900)]).await, Committed::HandleMoved);
    // However often it is used, it lives no longer than it may.
    for ms in (1800_i64..=9900).step_by(900) {
        assert_eq!(
            change(s, vec![update(1, "alice", ((ms - 900) / 900).cast_unsigned(), ms)]).await,
            Committed::Done
        );
    }
    assert!(find(s, 1, "alice", 9999).await.is_some());
    assert_eq!(find(s, 1, "alice", 10_000).await, None);
}

pub async fn handle_limits(made: Made) {
    let s = &*made.store;
    one(s).await;
    let long = |n| Handle { idle: MAX_HANDLE_LIFE, absolute: MAX_HANDLE_LIFE, ..handle(n, "alice") };
    let most = u16::try_from(MAX_HANDLES).unwrap();
    let all: Vec<HandleChange> = (0..most).map(|n| HandleChange::Create(long(n))).collect();
    for some in all.chunks(MAX_HANDLE_CHANGES) {
        assert_eq!(change(s, some.to_vec()).await, Committed::Done);
    }
    assert_eq!(change(s, vec![HandleChange::Create(long(most))]).await, Committed::HandlesFull);
    assert_eq!(
        change(s, vec![HandleChange::Create(handle(most, "bob"))]).await,
        Committed::Done,
        "of each principal"
    );
    assert_eq!(change(s, vec![destroy(0, "alice", None, 1)]).await, Committed::Done);
    assert_eq!(change(s, vec![HandleChange::Create(handle(most + 1, "alice"))]).await, Committed::Done);
    // One that is gone takes no place.
    let later = Handle { created_at: at(1000), used_at: at(1000), ..long(most + 2) };
    assert_eq!(change(s, vec![HandleChange::Create(later)]).await, Committed::Done);

    let value = |len| HandleChange::Create(Handle { value: vec![1; len], ..handle(5000, "carol") });
    let kind = |len| HandleChange::Create(Handle { kind: "k".repeat(len), ..handle(5001, "carol") });
    let lives = |idle, absolute| HandleChange::Create(Handle { idle, absolute, ..handle(5002, "carol") });
    for bad in [
        vec![value(MAX_HANDLE_VALUE + 1)],
        vec![kind(MAX_HANDLE_KIND + 1)],
        vec![lives(Millis(0), Millis(1))],
        vec![lives(Millis(1), Millis(MAX_HANDLE_LIFE.0 + 1))],
        vec![value(1), value(2)],
        (0..=u16::try_from(MAX_HANDLE_CHANGES).unwrap())
            .map(|n| HandleChange::Create(handle(6000 + n, "d")))
            .collect(),
    ] {
        let op = get(s, id(1)).await;
        let (_, write) = step(&op, Event::Join { epoch: s.epoch() }, T0, 1).unwrap();
        let Write::Update { operation, stamp, blobs, .. } = write else { unreachable!() };
        let refused = s.write(Write::Update { operation, stamp, blobs, handles: bad }).await;
        assert!(is_unavailable(&refused), "{refused:?}");
        assert_eq!(get(s, id(1)).await, op);
    }
    assert_eq!(change(s, vec![value(MAX_HANDLE_VALUE), kind(MAX_HANDLE_KIND)]).await, Committed::Done);
    assert_eq!(find(s, 5000, "carol", 1).await.unwrap().value.len(), MAX_HANDLE_VALUE);
}

pub async fn handle_lists(made: Made) {
    let s = &*made.store;
    one(s).await;
    for n in [5, 1, 3] {
        assert_eq!(change(s, vec![HandleChange::Create(handle(n, "alice"))]).await, Committed::Done);
    }
    let other = Handle { kind: "deployment".into(), ..handle(2, "alice") };
    assert_eq!(change(s, vec![HandleChange::Create(other)]).await, Committed::Done);
    assert_eq!(change(s, vec![HandleChange::Create(handle(4, "bob"))]).await, Committed::Done);
    let list = async |principal, kind, after: Option<u16>, limit, ms| -> Vec<[u8; 32]> {
        let all = s.handles(principal, kind, after.map(hash), limit, at(ms)).await.unwrap();
        all.into_iter().map(|h| h.id_hash).collect()
    };
    assert_eq!(list("alice", None, None, 9, 1).await, [1, 2, 3, 5].map(hash));
    assert_eq!(list("alice", Some("basket"), None, 9, 1).await, [1, 3, 5].map(hash));
    assert_eq!(list("alice", Some("basket"), None, 2, 1).await, [1, 3].map(hash));
    assert_eq!(list("alice", Some("basket"), Some(3), 2, 1).await, [5].map(hash));
    assert_eq!(list("bob", None, None, 9, 1).await, [4].map(hash));
    assert_eq!(list("alice", Some("other"), None, 9, 1).await, [[0; 32]; 0]);
    assert_eq!(list("alice", None, None, 9, 1000).await, [[0; 32]; 0], "what is gone is not shown");
}

pub async fn handle_pruning(made: Made) {
    let s = &*made.store;
    one(s).await;
    for n in 1..=4 {
        let lives = Handle { idle: Millis(i64::from(n) * 100), ..handle(n, "alice") };
        assert_eq!(change(s, vec![HandleChange::Create(lives)]).await, Committed::Done);
    }
    assert_eq!(s.prune_handles(at(99), 10).await.unwrap(), 0);
    assert_eq!(s.prune_handles(at(300), 2).await.unwrap(), 2);
    assert_eq!(s.prune_handles(at(300), 2).await.unwrap(), 1);
    assert_eq!(s.prune_handles(at(300), 2).await.unwrap(), 0);
    assert_eq!(s.handles("alice", None, None, 9, at(1)).await.unwrap().len(), 1);
    // It outlives the operation that made it.
    let op = completed(s, 2, None, T0).await;
    let (_, w) = step(&op, Event::Deliver(DeliveryState::Written), T0, 5).unwrap();
    s.write(w).await.unwrap();
    assert_eq!(s.prune(at(1 << 40), Millis(0), 10).await.unwrap(), 1);
    assert!(find(s, 4, "alice", 1).await.is_some());
}

async fn put(s: &dyn Store, name: &str, expected: u64, data: &[u8], until: Option<Time>) -> bool {
    s.shelve(name, expected, data.to_vec(), until).await.unwrap()
}

pub async fn shelf(made: Made) {
    let s = &*made.store;
    let far = Some(Time(i64::MAX / 2));
    assert_eq!(s.shelved("ring").await.unwrap(), None);
    assert!(!put(s, "ring", 1, b"x", None).await, "nothing is there to be replaced");
    assert!(put(s, "ring", 0, b"one\0", None).await);
    let is = |version, data: &[u8], until| Some(Shelved { version, data: data.to_vec(), until });
    assert_eq!(s.shelved("ring").await.unwrap(), is(1, b"one\0", None));
    for wrong in [0, 2, u64::MAX / 2] {
        assert!(!put(s, "ring", wrong, b"other", far).await, "compare and set");
        assert_eq!(s.shelved("ring").await.unwrap(), is(1, b"one\0", None));
    }
    assert!(put(s, "ring", 1, b"", far).await);
    assert_eq!(s.shelved("ring").await.unwrap(), is(2, b"", far));
    for other in ["Ring", "ring ", "", "%", "rin"] {
        assert_eq!(s.shelved(other).await.unwrap(), None);
    }
    // Gone is as not there, but its versions go on: who knew the old one doesn't take the new one for it.
    assert!(put(s, "mark", 0, b"used", Some(T0)).await);
    assert_eq!(s.shelved("mark").await.unwrap(), None);
    assert!(!put(s, "mark", 1, b"again", far).await);
    assert!(put(s, "mark", 0, b"again", far).await);
    assert_eq!(s.shelved("mark").await.unwrap(), is(2, b"again", far));
    drop(made.store);
    let s = (made.restart)();
    assert_eq!(s.shelved("mark").await.unwrap(), is(2, b"again", far));
    assert!(put(&*s, "mark", 2, b"more", None).await);
}

pub async fn shelf_bounds(made: Made) {
    let s = &*made.store;
    let long = "n".repeat(MAX_SHELF_NAME);
    assert!(put(s, &long, 0, &vec![3; MAX_SHELVED], None).await);
    assert_eq!(s.shelved(&long).await.unwrap().unwrap().data.len(), MAX_SHELVED);
    let refused: [Result<bool, StoreError>; 4] = [
        s.shelve(&format!("{long}n"), 0, vec![], None).await,
        s.shelve("big", 0, vec![3; MAX_SHELVED + 1], None).await,
        s.shelve("", 0, vec![], None).await,
        s.shelve("a\0b", 0, vec![], None).await,
    ];
    for r in refused {
        assert!(is_unavailable(&r), "{r:?}");
    }
    // What is gone goes, and nothing else.
    for (name, until) in [("a", Some(at(10))), ("b", Some(at(20))), ("c", Some(at(30))), ("d", None)] {
        assert!(put(s, name, 0, b"x", until).await);
    }
    assert_eq!(s.prune_shelf(at(9), 10).await.unwrap(), 0);
    assert_eq!(s.prune_shelf(at(20), 1).await.unwrap(), 1);
    assert_eq!(s.prune_shelf(at(20), 10).await.unwrap(), 1);
    assert!(put(s, "a", 0, b"x", None).await);
    assert_eq!(s.shelved("a").await.unwrap().unwrap().version, 1, "nothing is left of the pruned one");
    assert_eq!(s.prune_shelf(at(1 << 40), 10).await.unwrap(), 1);
    assert!(s.shelved("d").await.unwrap().is_some());
}

pub async fn shelf_races(made: Made) {
    let s = made.store.clone();
    let many = (0..16_u8).map(|n| {
        let s = s.clone();
        async move { s.shelve("ring", 0, vec![n], None).await.unwrap().then_some(n) }
    });
    let won: Vec<u8> = futures_util::future::join_all(many).await.into_iter().flatten().collect();
    assert_eq!(won.len(), 1, "one of those who find nothing makes it");
    assert_eq!(s.shelved("ring").await.unwrap(), Some(Shelved { version: 1, data: won, until: None }));
}
