//! What any store promises about sessions.

use super::{Made, T0, is_unavailable};
use ledger::store::{
    MAX_SESSION_CLIENT, MAX_SESSION_URI, MAX_SESSION_WORD, MAX_SESSIONS, MAX_SUBSCRIPTIONS, Session,
    SessionChange, Store,
};
use ledger::words::{Millis, Time};
use std::sync::Arc;

/// A session as `initialize` leaves it.
pub fn session(id: &str, principal: &str, used_at: Time) -> Session {
    Session {
        id: id.into(),
        principal: principal.into(),
        revision: "2025-11-25".into(),
        client: r#"{"clientInfo":{"name":"a\u0000b"}}"#.into(),
        log_level: None,
        subscriptions: Vec::new(),
        opened_at: T0,
        used_at,
    }
}

fn uri(n: usize) -> String {
    format!("note://{n:04}")
}

fn subscribe(n: usize) -> SessionChange {
    SessionChange::Subscribe(uri(n))
}

async fn find(s: &dyn Store, id: &str) -> Option<Session> {
    s.session(id).await.unwrap()
}

async fn change(s: &dyn Store, id: &str, change: SessionChange) -> Session {
    let given = s.change_session(id, change.clone()).await.unwrap().unwrap();
    assert_eq!(find(s, id).await.as_ref(), Some(&given), "{change:?} gives the session as it is then");
    given
}

pub async fn sessions(made: Made) {
    let s = &*made.store;
    let mine = session("a", "alice", T0);
    s.open_session(mine.clone()).await.unwrap();
    let bobs = Session {
        log_level: Some("info".into()),
        subscriptions: vec!["b".into(), "a".into(), "b".into()],
        ..session("b", "bob", T0)
    };
    s.open_session(bobs.clone()).await.unwrap();
    assert_eq!(find(s, "a").await, Some(mine.clone()), "it comes back as it went in");
    let bobs = Session { subscriptions: vec!["a".into(), "b".into()], ..bobs };
    assert_eq!(find(s, "b").await, Some(bobs.clone()), "subscriptions in order, each once");
    for foreign in ["", "A", "a ", "c", "%", "*"] {
        assert_eq!(find(s, foreign).await, None, "{foreign:?}");
        assert_eq!(s.change_session(foreign, SessionChange::Used).await.unwrap(), None);
        assert!(!s.end_session(foreign).await.unwrap());
    }
    let taken = s.open_session(session("a", "bob", T0)).await;
    assert!(is_unavailable(&taken), "a second one under the same id would take its place: {taken:?}");
    assert_eq!(find(s, "a").await, Some(mine));

    assert!(s.end_session("a").await.unwrap());
    assert!(!s.end_session("a").await.unwrap(), "it was ended already");
    assert_eq!(find(s, "a").await, None);
    assert_eq!(s.change_session("a", subscribe(1)).await.unwrap(), None, "ended is ended");
    assert_eq!(find(s, "b").await, Some(bobs), "the other one stays");
    s.open_session(session("a", "alice", T0)).await.unwrap();
    assert_eq!(find(s, "a").await.unwrap().subscriptions, [""; 0], "nothing is left of the ended one");
}

pub async fn session_changes(made: Made) {
    let s = &*made.store;
    s.open_session(session("a", "alice", T0)).await.unwrap();
    let begun = s.now();
    let used = change(s, "a", SessionChange::Used).await;
    assert!(
        used.used_at >= begun && used.used_at <= s.now(),
        "used at the store's time, not {:?}",
        used.used_at
    );
    assert_eq!(used, Session { used_at: used.used_at, ..session("a", "alice", T0) }, "nothing else changed");
    let level = change(s, "a", SessionChange::LogLevel("debug".into())).await;
    assert_eq!(level.log_level.as_deref(), Some("debug"));
    assert_eq!(level.used_at, used.used_at, "only its use is marked as use");
    assert_eq!(change(s, "a", SessionChange::LogLevel("error".into())).await.log_level.unwrap(), "error");
    for n in [2, 1, 3, 2, 1] {
        change(s, "a", subscribe(n)).await;
    }
    assert_eq!(find(s, "a").await.unwrap().subscriptions, [uri(1), uri(2), uri(3)]);
    change(s, "a", SessionChange::Unsubscribe(uri(2))).await;
    let same = change(s, "a", SessionChange::Unsubscribe("never".into())).await;
    assert_eq!(same.subscriptions, [uri(1), uri(3)]);
    assert_eq!((same.log_level.as_deref(), same.used_at), (Some("error"), used.used_at));
}

pub async fn session_bounds(made: Made) {
    let s = &*made.store;
    let good = Session {
        id: "i".repeat(MAX_SESSION_WORD),
        client: "c".repeat(MAX_SESSION_CLIENT),
        subscriptions: (0..MAX_SUBSCRIPTIONS - 1).map(uri).collect(),
        ..session("", "alice", T0)
    };
    s.open_session(good.clone()).await.unwrap();
    assert_eq!(find(s, &good.id).await, Some(good.clone()), "what just fits is kept whole");
    let word = || "w".repeat(MAX_SESSION_WORD + 1);
    let long = "u".repeat(MAX_SESSION_URI + 1);
    for (bad, part) in [
        (Session { id: word(), ..session("", "alice", T0) }, "id"),
        (Session { revision: word(), ..session("x", "alice", T0) }, "revision"),
        (Session { log_level: Some(word()), ..session("x", "alice", T0) }, "log level"),
        (Session { client: "c".repeat(MAX_SESSION_CLIENT + 1), ..session("x", "alice", T0) }, "client"),
        (Session { subscriptions: vec![long.clone()], ..session("x", "alice", T0) }, "resource URI"),
        (
            Session {
                subscriptions: (0..=MAX_SUBSCRIPTIONS).map(uri).collect(),
                ..session("x", "alice", T0)
            },
            "at most",
        ),
    ] {
        let refused = s.open_session(bad.clone()).await;
        assert!(is_unavailable(&refused), "{part}: {refused:?}");
        let why = refused.unwrap_err().to_string();
        assert!(why.contains(part) && why.contains("nothing was written"), "{part}: {why}");
        assert_eq!(find(s, &bad.id).await, None, "{part}");
    }
    for bad in [SessionChange::Subscribe(long.clone()), SessionChange::LogLevel(word())] {
        assert!(is_unavailable(&s.change_session(&good.id, bad).await));
    }
    change(s, &good.id, SessionChange::Unsubscribe(long)).await;
    let longest = "u".repeat(MAX_SESSION_URI);
    let full = change(s, &good.id, SessionChange::Subscribe(longest.clone())).await;
    assert_eq!(full.subscriptions.len(), MAX_SUBSCRIPTIONS);
    let same = change(s, &good.id, SessionChange::Subscribe("zz".into())).await;
    assert_eq!(same, full, "beyond the most nothing changes");
    assert_eq!(change(s, &good.id, SessionChange::Subscribe(longest.clone())).await, full);
    change(s, &good.id, SessionChange::Unsubscribe(longest)).await;
    assert_eq!(
        change(s, &good.id, SessionChange::Subscribe("zz".into())).await.subscriptions.last().unwrap(),
        "zz"
    );
}

/// Many at once, from several threads: none is lost, and none is kept twice.
pub async fn session_races(made: Made) {
    const EACH: usize = 40;
    made.store.open_session(session("a", "alice", T0.plus(Millis(-1000)))).await.unwrap();
    for n in EACH..2 * EACH {
        made.store.change_session("a", subscribe(n)).await.unwrap();
    }
    let go = Arc::new(std::sync::Barrier::new(4));
    let rivals: Vec<_> = (0..4)
        .map(|who| {
            let (s, go) = (made.store.clone(), go.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                go.wait();
                runtime.block_on(async {
                    for n in 0..EACH {
                        let change = match who {
                            0 | 1 => subscribe(n),
                            2 => SessionChange::Unsubscribe(uri(EACH + n)),
                            _ if n % 2 == 0 => SessionChange::Used,
                            _ => SessionChange::LogLevel(n.to_string()),
                        };
                        s.change_session("a", change).await.unwrap().unwrap();
                    }
                });
            })
        })
        .collect();
    // The threads have runtimes of their own; this one waits without holding a store's task up.
    tokio::task::spawn_blocking(move || rivals.into_iter().for_each(|t| t.join().unwrap())).await.unwrap();
    let end = find(&*made.store, "a").await.unwrap();
    assert_eq!(end.subscriptions, (0..EACH).map(uri).collect::<Vec<_>>());
    assert_eq!(end.log_level.as_deref(), Some("39"));
    assert!(end.used_at >= T0, "used since");

    // Of many that end it, one does; whoever opens the same id at the same time, one does.
    let at_once = |open: bool| {
        let s = made.store.clone();
        async move {
            let each = (0..8).map(|_| async {
                if open {
                    s.open_session(session("a", "alice", T0)).await.is_ok()
                } else {
                    s.end_session("a").await.unwrap()
                }
            });
            futures_util::future::join_all(each).await.into_iter().filter(|done| *done).count()
        }
    };
    assert_eq!(at_once(false).await, 1);
    assert_eq!(at_once(true).await, 1);
}

pub async fn session_pruning(made: Made) {
    let s = &*made.store;
    let long_ago = |n: i64| T0.plus(Millis(n - 1000));
    for n in 0..300_i64 {
        let mut old = session(&format!("s{n:03}"), "alice", long_ago(n));
        old.subscriptions = vec!["note://1".into()];
        s.open_session(old).await.unwrap();
    }
    assert_eq!(
        s.prune_sessions(long_ago(0), 10).await.unwrap(),
        0,
        "used at this very moment is not before it"
    );
    assert_eq!(s.prune_sessions(long_ago(300), 0).await.unwrap(), 0);
    assert_eq!(s.prune_sessions(long_ago(300), 2).await.unwrap(), 2, "the limit holds");
    assert!(find(s, "s001").await.is_none() && find(s, "s002").await.is_some(), "unused longest first");
    change(s, "s002", SessionChange::Used).await;
    assert_eq!(s.prune_sessions(long_ago(299), 1000).await.unwrap(), 296, "in one go");
    assert!(find(s, "s002").await.is_some(), "one that was used meanwhile stays");
    assert_eq!(find(s, "s299").await.unwrap().subscriptions, ["note://1"]);
    assert!(find(s, "s298").await.is_none());
    assert_eq!(s.change_session("s298", SessionChange::Used).await.unwrap(), None, "gone is gone");
    assert_eq!(s.prune_sessions(Time(i64::MAX), usize::MAX).await.unwrap(), 2);
}

pub async fn session_restart(made: Made) {
    let Made { store, keep, restart } = made;
    store.open_session(session("a", "alice", T0)).await.unwrap();
    store.open_session(session("ended", "alice", T0)).await.unwrap();
    change(&*store, "a", SessionChange::LogLevel("debug".into())).await;
    let kept = change(&*store, "a", subscribe(7)).await;
    store.end_session("ended").await.unwrap();
    let before = store.epoch();
    drop(store);
    let again = restart();
    assert!(again.epoch() > before);
    assert_eq!(find(&*again, "a").await, Some(kept), "it outlives its process");
    assert_eq!(find(&*again, "ended").await, None);
    change(&*again, "a", subscribe(8)).await;
    drop(again);
    drop(keep);
}

pub async fn session_count(made: Made) {
    let s = &*made.store;
    s.open_session(session("bobs", "bob", T0)).await.unwrap();
    let ids: Vec<String> = (0..MAX_SESSIONS).map(|n| format!("a{n:05}")).collect();
    for some in ids.chunks(64) {
        let mut opened = tokio::task::JoinSet::new();
        for id in some {
            let number: i64 = id[1..].parse().unwrap();
            // The second one was unused for longest, whatever the order of their ids.
            let used = if number == 1 { T0 } else { T0.plus(Millis(1 + number)) };
            let (store, session) = (made.store.clone(), session(id, "alice", used));
            opened.spawn(async move { store.open_session(session).await });
        }
        while let Some(done) = opened.join_next().await {
            done.unwrap().unwrap();
        }
    }
    assert!(find(s, "a00001").await.is_some(), "as many as may be are kept");
    // Even if it claims to be older than all others, the new one stays.
    let ended = s.open_session(session("b", "alice", T0)).await.unwrap();
    assert_eq!(ended, ["a00001"], "one more ends the one that was never used");
    assert_eq!(find(s, "a00001").await, None);
    for kept in ["a00000", "a00002", "b", "bobs"] {
        assert!(find(s, kept).await.is_some(), "{kept} stays");
    }
    // Who only opens sessions ends those alone: the younger ones that were never used, not the older ones that were.
    let unused = |id: &str, at: i64| {
        let at = T0.plus(Millis(at));
        Session { opened_at: at, ..session(id, "alice", at) }
    };
    for (id, at, ends) in [("c", 90_000, "b"), ("d", 80_000, "c"), ("e", 95_000, "d"), ("f", 70_000, "e")] {
        assert_eq!(s.open_session(unused(id, at)).await.unwrap(), [ends], "{id}");
    }
    change(s, "f", SessionChange::Used).await;
    let used = s.open_session(session("g", "alice", T0.plus(Millis(99_000)))).await.unwrap();
    assert_eq!(used, ["a00000"], "where all were used, the one unused for longest");
    assert_eq!(s.open_session(session("carols", "carol", T0)).await.unwrap(), [""; 0]);
    assert!(find(s, "bobs").await.is_some(), "others' stay");
}
