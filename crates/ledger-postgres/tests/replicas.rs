//! Several replicas on one database: epochs, leases, takeover, lost acknowledgements, news, clocks, restored ledgers.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../ledger-sqlite/tests/contract/mod.rs"]
mod contract;
#[path = "support/proxy.rs"]
mod proxy;
mod support;

use contract::{close, create, get, id, is_unavailable, opening, opening_at, received, step};
use ledger::bus::{Heard, Note};
use ledger::store::{Committed, SlotWrite, Store, StoreError, Write};
use ledger::words::{Epoch, Millis, OperationId, Time};
use ledger_postgres::{Config, Description, Failover, OpenError, PgStore, Verdict};
use proxy::Proxy;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{SERVER, config, open, sql, try_open};
use tokio::sync::broadcast::Receiver;

/// The same ledger through a wire that can be cut.
async fn wired(config: &Config) -> (Proxy, Config) {
    let proxy = Proxy::to(SERVER.port()).await;
    let url = config.url.replace(&format!(":{}", SERVER.port()), &format!(":{}", proxy.port));
    (proxy, Config { url, ..config.clone() })
}

async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Connections that end are ended, and made anew.
async fn whole(s: &PgStore) {
    tokio::time::sleep(Duration::from_millis(300)).await;
    until("the wire is whole", async || s.ready().await.is_ok() && s.by_id(id(1)).await.is_ok()).await;
}

async fn heard(bus: &mut Receiver<Heard>) -> Heard {
    tokio::time::timeout(Duration::from_secs(10), bus.recv()).await.expect("something is heard").unwrap()
}

fn ids(ops: &[ledger::Operation]) -> Vec<OperationId> {
    ops.iter().map(|op| op.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_start_at_once() {
    let config = config();
    let all: Vec<_> = (0..5).map(|_| tokio::spawn(try_open(config.clone()))).collect();
    let mut stores = Vec::new();
    for one in all {
        stores.push(one.await.unwrap().unwrap());
    }
    let mut epochs: Vec<Epoch> = stores.iter().map(|s| s.epoch()).collect();
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), 5, "each boot has an epoch of its own");
    assert!(stores.iter().all(|s| s.identity().secret.0 == stores[0].identity().secret.0));
    assert_eq!(
        sql(&config, "SELECT count(*) FROM migration"),
        stores[0].stats().schema.to_string(),
        "each step was made once"
    );

    stores[0].describe(Description { server_name: "pay".into(), ..Description::default() }).await.unwrap();
    let replicas = stores[1].replicas().await.unwrap();
    assert_eq!(replicas.len(), 5);
    let first = replicas.iter().find(|r| r.epoch == stores[0].epoch()).unwrap();
    assert_eq!((first.server_name.as_str(), first.this), ("pay", false));
    assert!(replicas.iter().all(|r| r.lease_left.0 > 0 && r.skew.0.abs() < 1000), "{replicas:?}");
    let checks = stores[0].checks().await.unwrap();
    let fsync = checks.iter().find(|c| c.what == "fsync").unwrap();
    assert_eq!(
        (fsync.verdict, fsync.found.as_str()),
        (Verdict::Bad, "off"),
        "the tests' server does not sync"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_ledger_or_newer_is_left_alone() {
    let config = config();
    drop(try_open(config.clone()).await.unwrap());
    sql(&config, "INSERT INTO migration (version) VALUES (77)");
    let Err(newer) = try_open(config.clone()).await else { panic!("a newer schema is opened") };
    assert!(matches!(newer, OpenError::Newer { found: 77, .. }), "{newer}");
    assert!(newer.to_string().contains("newer program"));

    let missing = Config { make: false, ..support::config() };
    assert!(matches!(try_open(missing.clone()).await, Err(OpenError::Missing)));
    assert_eq!(
        sql(&missing, &format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{}'", missing.schema)),
        "0"
    );

    let foreign = support::config();
    sql(&foreign, &format!("CREATE SCHEMA {0}; CREATE TABLE {0}.other (a int)", foreign.schema));
    assert!(matches!(try_open(foreign).await, Err(OpenError::NotALedger)));

    let secret = Config {
        url: format!("postgres://u:hunter2@127.0.0.1:{}/nowhere", SERVER.port()),
        ..support::config()
    };
    let Err(why) = try_open(secret).await else { panic!("there is no such user") };
    assert!(!format!("{why:?} {why}").contains("hunter2"));
    let refused = Config { url: "postgres://u:hunter2@127.0.0.1:1/db".into(), ..support::config() };
    let Err(why) = try_open(refused).await else { panic!("nobody listens there") };
    assert!(matches!(why, OpenError::Unreachable(_)), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_replica_is_replaced_within_a_lease() {
    let config = Config { lease: Millis(2000), ..config() };
    let (proxy, of_a) = wired(&config).await;
    let (a, b) = (try_open(of_a).await.unwrap(), try_open(config.clone()).await.unwrap());
    let now = a.now();
    let old = a.epoch();
    for n in 1..=3 {
        let made = opening_at(id(n), "alice", None, u32::try_from(n).unwrap(), old, now);
        assert_eq!(create(&*a, &made, SlotWrite::Set).await, Committed::Done);
    }
    // One with its result stored, and its caller at the replica that dies.
    let op = get(&*a, id(3)).await;
    let (op, w) = step(&op, received(&op), now, 1).unwrap();
    a.write(w).await.unwrap();
    let (_, w) = step(&op, close(&op, false), now, 2).unwrap();
    a.write(w).await.unwrap();
    assert!(b.due(b.now(), 10).await.unwrap().is_empty(), "its deadline is a minute away");
    assert!(b.is_live(old) && a.is_live(b.epoch()));

    proxy.cut();
    let cut = Instant::now();
    until("its work is due at the other one", async || b.due(b.now(), 10).await.unwrap().len() == 3).await;
    // A lease, a beat of the other one, and what a busy machine adds.
    assert!(cut.elapsed() < Duration::from_secs(10), "{:?}", cut.elapsed());
    assert!(!b.is_live(old));
    assert_eq!(ids(&b.orphans(None, 10).await.unwrap()), [id(1), id(2), id(3)]);
    assert!(a.is_lapsed_for_test(), "by its own clock its lease is over, too");
    let late = get(&*b, id(1)).await;
    let (_, late) = step(&late, received(&late), now, 9).unwrap();
    assert!(is_unavailable(&a.write(late.clone()).await), "it owns nothing any more");

    proxy.heal();
    let mut epochs = a.epochs();
    until("it goes on under a new epoch", async || a.epoch() != old).await;
    assert!(a.epoch() > b.epoch());
    assert_eq!(*epochs.borrow_and_update(), a.epoch());
    until("it may write", async || a.ready().await.is_ok()).await;
    assert!(is_unavailable(&a.write_under(old, late.clone()).await), "nothing is written under the old one");
    assert!(!a.is_live(old) && a.is_live(a.epoch()));
    until("the other one knows it", async || b.is_live(a.epoch())).await;
    assert_eq!(a.write(late).await.unwrap(), Committed::Done, "the record itself had not moved");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_is_waited_for_by_nobody() {
    let config = config();
    let (a, b) = (try_open(config.clone()).await.unwrap(), try_open(config.clone()).await.unwrap());
    let made = opening_at(id(1), "alice", None, 1, a.epoch(), a.now());
    create(&*a, &made, SlotWrite::Set).await;
    a.leave().await.unwrap();
    assert_eq!(ids(&b.due(b.now(), 10).await.unwrap()), [id(1)]);
    assert!(is_unavailable(&a.write(step(&made.0, received(&made.0), a.now(), 1).unwrap().1).await));
    assert_eq!(get(&*a, id(1)).await, made.0, "it still reads");
    assert_eq!(b.replicas().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_under_the_same_name_ends_the_one_before() {
    let config = Config { instance: "pod-0".into(), lease: Millis::secs(60), ..config() };
    let a = try_open(config.clone()).await.unwrap();
    let made = opening_at(id(1), "alice", None, 1, a.epoch(), a.now());
    create(&*a, &made, SlotWrite::Set).await;
    let b = try_open(config.clone()).await.unwrap();
    assert!(!b.is_live(a.epoch()));
    assert_eq!(ids(&b.due(b.now(), 10).await.unwrap()), [id(1)], "nobody waits for a minute");
    let late = step(&made.0, received(&made.0), a.now(), 1).unwrap().1;
    assert!(is_unavailable(&a.write(late).await), "the database itself refuses the one before");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_shared_out() {
    let config = config();
    let (a, b) = (try_open(config.clone()).await.unwrap(), try_open(config.clone()).await.unwrap());
    until("they know each other", async || a.has_company_for_test() && b.has_company_for_test()).await;
    for n in 1..=40 {
        create(&*a, &opening(id(n), None, u32::try_from(n).unwrap(), a.epoch()), SlotWrite::Set).await;
    }
    let (x, y) = tokio::join!(a.due(a.now(), 15), b.due(b.now(), 15));
    let (x, y) = (ids(&x.unwrap()), ids(&y.unwrap()));
    assert!(x.len() + y.len() >= 15 && x.iter().all(|i| !y.contains(i)), "{x:?} {y:?}");
    let again = ids(&a.due(a.now(), 15).await.unwrap());
    assert!(x.iter().all(|i| again.contains(i)), "who looks after them is asked again");
    // Who was given them and does nothing does not keep them.
    until("all of them come to one", async || b.due(b.now(), 100).await.unwrap().len() == 40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_acknowledgement_is_asked_for_again() {
    let config = config();
    let (proxy, of_a) = wired(&config).await;
    let a = try_open(of_a).await.unwrap();
    let b = try_open(config.clone()).await.unwrap();
    let made = opening(id(1), Some("k"), 1, a.epoch());
    // The creation is made, and its answer lost.
    proxy.deafen();
    let waiting = tokio::spawn({
        let (a, made) = (a.clone(), made.clone());
        async move {
            a.write(Write::Create { operation: Box::new(made.0), slot: SlotWrite::Set, blobs: made.1 }).await
        }
    });
    until("it is made", async || b.by_id(id(1)).await.unwrap().is_some()).await;
    assert!(!waiting.is_finished());
    proxy.reset();
    assert_eq!(waiting.await.unwrap().unwrap(), Committed::Done);

    let (v2, w) = step(&made.0, received(&made.0), a.now(), 7).unwrap();
    whole(&a).await;
    proxy.deafen();
    let waiting = tokio::spawn({
        let (a, w) = (a.clone(), w.clone());
        async move { a.write(w).await }
    });
    until("it is made", async || get(&*b, id(1)).await == v2).await;
    proxy.reset();
    assert_eq!(waiting.await.unwrap().unwrap(), Committed::Done, "recognised by its stamp");

    // Where somebody wrote since, it can't be known.
    let (v3, w) = step(&v2, close(&v2, false), a.now(), 8).unwrap();
    whole(&a).await;
    proxy.deafen();
    let waiting = tokio::spawn({
        let a = a.clone();
        async move { a.write(w).await }
    });
    until("it is made", async || get(&*b, id(1)).await == v3).await;
    let (_, over) = step(&v3, ledger::Event::Deliver(ledger::DeliveryState::Written), b.now(), 9).unwrap();
    assert_eq!(b.write(over).await.unwrap(), Committed::Done);
    proxy.reset();
    let said = waiting.await.unwrap();
    assert!(matches!(said, Err(StoreError::Uncertain(_))), "{said:?}");
    assert!(!a.is_held(), "nothing that was acknowledged is missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_cable_is_waited_for_and_no_longer() {
    let config = Config {
        patience: Duration::from_millis(700),
        answer_within: Duration::from_millis(500),
        writers: 1,
        ..config()
    };
    let (proxy, of_a) = wired(&config).await;
    let a = try_open(of_a).await.unwrap();
    create(&*a, &opening(id(1), None, 1, a.epoch()), SlotWrite::Set).await;
    proxy.cut();
    let begun = Instant::now();
    let made = opening(id(2), None, 2, a.epoch());
    let first = a
        .write(Write::Create {
            operation: Box::new(made.0.clone()),
            slot: SlotWrite::Set,
            blobs: made.1.clone(),
        })
        .await;
    assert!(matches!(first, Err(StoreError::Uncertain(_))), "it was sent: {first:?}");
    let second =
        a.write(Write::Create { operation: Box::new(made.0), slot: SlotWrite::Set, blobs: made.1 }).await;
    assert!(is_unavailable(&second), "it was not: {second:?}");
    assert!(is_unavailable(&a.by_id(id(1)).await));
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    proxy.heal();
    proxy.reset();
    until("it is back", async || a.by_id(id(1)).await.is_ok() && a.ready().await.is_ok()).await;
    assert_eq!(create(&*a, &opening(id(3), None, 3, a.epoch()), SlotWrite::Set).await, Committed::Done);
}

async fn listening(a: &Arc<PgStore>, b: &Arc<PgStore>) -> Receiver<Heard> {
    let hears = b.bus().listen();
    until("they know each other", async || a.has_company_for_test()).await;
    hears
}

#[tokio::test(flavor = "multi_thread")]
async fn news() {
    let config = config();
    let (proxy, of_b) = wired(&config).await;
    let (a, b) = (try_open(config.clone()).await.unwrap(), try_open(of_b).await.unwrap());
    let mut at_b = listening(&a, &b).await;
    let mut at_a = a.bus().listen();
    let note = |n: u32| Note { topic: "list".into(), body: n.to_string() };
    // Nobody hears before it listens on the database: the first few may come before that.
    until("the wire is up", async || {
        a.bus().moved(id(0));
        tokio::time::timeout(Duration::from_millis(50), at_b.recv()).await.is_ok()
    })
    .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    while at_b.try_recv().is_ok() {}

    let begun = Instant::now();
    a.bus().moved(id(7));
    assert_eq!(heard(&mut at_b).await, Heard::Moved(id(7)));
    a.bus().tell(note(1));
    assert_eq!(heard(&mut at_b).await, Heard::Note(Arc::new(note(1))));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());

    // More ids than one notification holds.
    for n in 1000..2000 {
        a.bus().moved(id(n));
    }
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 1000 {
        let Heard::Moved(id) = heard(&mut at_b).await else { panic!("no gap here") };
        seen.insert(id);
    }
    a.bus().tell(Note { topic: "list".into(), body: "x".repeat(ledger::bus::MAX_BODY + 1) });
    assert_eq!(heard(&mut at_b).await, Heard::Gap, "what is too long is told as a gap");

    // What is told while a replica is cut off is heard after it, and that something may be missing.
    proxy.cut();
    for n in 10..20 {
        a.bus().tell(note(n));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    proxy.reset();
    let (mut gap, mut notes) = (false, std::collections::BTreeSet::new());
    while !gap || notes.len() < 10 {
        match heard(&mut at_b).await {
            Heard::Gap => gap = true,
            Heard::Note(n) => {
                notes.insert(n.body.parse::<u32>().unwrap());
            }
            Heard::Moved(_) => {}
        }
    }
    assert_eq!(notes, (10..20).collect());
    assert!(
        !std::iter::from_fn(|| at_a.try_recv().ok()).any(|h| matches!(h, Heard::Note(_))),
        "nobody hears itself"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_is_not_followed() {
    let config = Config { lease: Millis(2000), clock_margin: Millis(2000), ..config() };
    let (a, b) = (try_open(config.clone()).await.unwrap(), try_open(config.clone()).await.unwrap());
    for by in [3_600_000, -7_200_000] {
        let (epoch, step) = (a.epoch(), a.clock_step());
        let (before, begun) = (a.now(), Instant::now());
        set(&config, by);
        for s in [&a, &b] {
            until("the step is remembered", async || s.clock_step() > step).await;
        }
        let went = a.now().since(before).0;
        assert!((went - Millis::from(begun.elapsed()).0).abs() < 5000, "{went} ms in {:?}", begun.elapsed());
        assert!(a.clock_step().unwrap() >= before);
        assert!((a.now().since(b.now())).0.abs() < 5000, "all replicas go on together");
        // A lease that seems to have lapsed, or to last for hours, ends nobody.
        tokio::time::sleep(Duration::from_millis(4500)).await;
        assert_eq!(a.epoch(), epoch);
        assert_eq!(a.replicas().await.unwrap().len(), 2);
        let c = try_open(config.clone()).await.unwrap();
        assert!((a.now().since(c.now())).0.abs() < 5000, "who comes later goes with them");
        c.close().await.unwrap();
    }
    // Set back while nobody is there.
    let high = a.now();
    a.close().await.unwrap();
    b.close().await.unwrap();
    set(&config, -30_000_000);
    let c = try_open(config.clone()).await.unwrap();
    assert!(c.now() >= high && c.now().since(high).0 < 20_000);
    assert!(c.clock_step().is_some_and(|t| t.since(high).0.abs() < 5000));
}

/// Sets the database's clock, as far as a ledger sees it, by so many milliseconds from what it really is.
fn set(config: &Config, ms: i64) {
    let body = format!("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + {ms}");
    let function = "FUNCTION ledger_clock() RETURNS bigint LANGUAGE sql VOLATILE";
    sql(config, &format!("CREATE OR REPLACE {function} AS $$ {body} $$"));
}

#[tokio::test(flavor = "multi_thread")]
async fn time_that_no_replica_watched_is_known() {
    const DAY: i64 = 86_400_000;
    let config = Config { lease: Millis(2000), ..config() };
    let a = try_open(config.clone()).await.unwrap();
    let b = try_open(config.clone()).await.unwrap();
    assert_eq!(b.gaps().ended_since(Time(0)), Millis(0), "somebody was there, or it is new");
    let since = a.now();
    a.close().await.unwrap();
    b.close().await.unwrap();
    // Set ahead while nobody is there: it may as well have passed.
    set(&config, DAY);
    let c = try_open(config.clone()).await.unwrap();
    assert!(c.now().since(since).0 >= DAY);
    assert_eq!(c.clock_step(), None);
    let unwatched = c.gaps().ended_since(since);
    assert!((DAY..DAY + 60_000).contains(&unwatched.0), "{unwatched:?}");
    let end = c.gaps().end_of(since, Millis(60_000));
    assert!(end > c.now(), "a wait from before is not over by it");
    // Who comes while somebody is there knows of it too, and adds nothing.
    let d = try_open(config.clone()).await.unwrap();
    assert_eq!(d.gaps(), c.gaps());
    c.close().await.unwrap();
    d.close().await.unwrap();
    let e = try_open(config).await.unwrap();
    assert!(e.gaps().ended_since(since).0 < DAY + 60_000, "a start right after the end skips nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_older_than_the_world_is_held() {
    let config = Config { lease: Millis(1500), ..config() };
    let a = try_open(config.clone()).await.unwrap();
    assert!(!a.is_held());
    create(&*a, &opening(id(1), None, 1, a.epoch()), SlotWrite::Set).await;
    // Acknowledged writes that are no longer there.
    sql(&config, "UPDATE tally SET n = n - 1 WHERE code = 0");
    until("it is held", async || a.is_held()).await;
    let b = try_open(config.clone()).await.unwrap();
    assert!(b.is_held());
    sql(&config, "UPDATE tally SET n = n + 1 WHERE code = 0");
    b.release().await.unwrap();
    assert!(!b.is_held());
    until("it is released everywhere", async || !a.is_held()).await;
    a.close().await.unwrap();
    b.close().await.unwrap();

    // Another timeline: held, unless only synchronous standbys are ever promoted and it was in use just now.
    let promoted = |high: &str| {
        sql(
            &config,
            &format!("UPDATE meta SET timeline = timeline + 1, held = NULL, high_water = high_water {high}"),
        )
    };
    promoted("+ 0");
    let c = try_open(config.clone()).await.unwrap();
    assert!(c.is_held());
    c.close().await.unwrap();
    let trusting = Config { failover: Failover::Synchronous, ..config.clone() };
    promoted("+ 0");
    assert!(!try_open(trusting.clone()).await.unwrap().is_held());
    promoted("- 3600000");
    assert!(try_open(trusting.clone()).await.unwrap().is_held(), "an hour old: a backup");
    // Another cluster: always.
    sql(&config, "UPDATE meta SET system_identifier = '1', held = NULL");
    let d = try_open(trusting).await.unwrap();
    assert!(d.is_held());
    d.release().await.unwrap();
    drop(d);
    assert!(!try_open(config.clone()).await.unwrap().is_held(), "it stays released");
    assert!(try_open(Config { restored: true, ..config }).await.unwrap().is_held(), "told so");
}

#[tokio::test(flavor = "multi_thread")]
async fn rivals_for_keys_and_slots() {
    let config = config();
    let stores = [open(&config), open(&config), open(&config)];
    for round in 0..20_u32 {
        // The same keys and the same arguments, at all replicas, in different orders.
        let mut all = tokio::task::JoinSet::new();
        for (r, store) in (0_u64..).zip(&stores) {
            for n in 0..16_u64 {
                let n = if r == 1 { 15 - n } else { n };
                let store = store.clone();
                all.spawn(async move {
                    let name = id(u64::from(round) * 1000 + r * 100 + n);
                    let keyed = n % 2 == 0;
                    let key = format!("{round}-{n}");
                    let made = opening(
                        name,
                        keyed.then_some(&*key),
                        round * 100 + u32::try_from(n).unwrap(),
                        store.epoch(),
                    );
                    let slot = if n % 3 == 0 { SlotWrite::Set } else { SlotWrite::CompareAndSet(None) };
                    (n, create(&*store, &made, slot).await, name)
                });
            }
        }
        let mut done = std::collections::BTreeMap::<u64, Vec<Committed>>::new();
        while let Some(one) = all.join_next().await {
            let (n, committed, name) = one.unwrap();
            let there = stores[0].by_id(name).await.unwrap().is_some();
            assert_eq!(there, committed == Committed::Done, "what lost left nothing behind");
            done.entry(n).or_default().push(committed);
        }
        for (n, answers) in done {
            let won = answers.iter().filter(|c| **c == Committed::Done).count();
            // Only those without a key that take the slot whatever it holds may all win.
            assert!(won == 1 || (won == 3 && n % 2 == 1 && n % 3 == 0), "{n}: {answers:?}");
        }
    }
}
