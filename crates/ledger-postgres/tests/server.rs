//! What the server goes through: restarts while it is written to, the plans of the statements that matter, and how its
//! tables keep their size.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../ledger-sqlite/tests/contract/mod.rs"]
mod contract;

use contract::{close, id, key, opening_at, received, scope, step};
use ledger::claims::{Claim, Claimed};
use ledger::store::{BlobKind, Committed, Found, Query, SlotWrite, Store, StoreError, Write};
use ledger::words::{Millis, OperationId, Time};
use ledger::{DeliveryState, Event, Operation, SystemEnv};
use ledger_postgres::{Config, PgStore};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use temp_postgres::{Options, Stop, TempPostgres};

async fn open(server: &TempPostgres, database: &str) -> Arc<PgStore> {
    let config = Config::new(server.url(database), "test");
    PgStore::open(config, Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).await.unwrap()
}

/// Creates one, as a call does that was not heard of for sure: the same again until that is known.
async fn create(s: &PgStore, n: u64) -> Result<Option<Operation>, StoreError> {
    let made =
        opening_at(id(n), "alice", Some(&n.to_string()), u32::try_from(n).unwrap(), s.epoch(), s.now());
    let write = Write::Create { operation: Box::new(made.0.clone()), slot: SlotWrite::Set, blobs: made.1 };
    Ok((s.write(write).await? == Committed::Done).then_some(made.0))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_over_restarts() {
    let server = TempPostgres::start(Options::default());
    let database = server.database();
    let store = open(&server, &database).await;
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(1)));
    let known: Arc<Mutex<BTreeMap<OperationId, u64>>> = Arc::default();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (store, stop, next, known) = (store.clone(), stop.clone(), next.clone(), known.clone());
            tokio::spawn(async move {
                let mut refused = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Ok(Some(op)) = create(&store, n).await else {
                        refused += 1;
                        continue;
                    };
                    known.lock().unwrap().insert(op.id, op.version);
                    let (op, w) = step(&op, received(&op), store.now(), 1).unwrap();
                    if store.write(w).await.is_ok_and(|c| c == Committed::Done) {
                        known.lock().unwrap().insert(op.id, op.version);
                    }
                }
                refused
            })
        })
        .collect();
    for how in [Stop::Immediate, Stop::Fast, Stop::Kill] {
        tokio::time::sleep(Duration::from_millis(400)).await;
        tokio::task::block_in_place(|| server.restart(how));
        let begun = Instant::now();
        while store.ready().await.is_err() || store.counts().await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::Relaxed);
    let mut refused = 0;
    for caller in callers {
        refused += caller.await.unwrap();
    }
    let known = std::mem::take(&mut *known.lock().unwrap());
    assert!(known.len() > 100, "{} were written, {refused} refused", known.len());
    for (id, version) in &known {
        let Some(Found::Operation(op)) = store.by_id(*id).await.unwrap() else { panic!("{id} is lost") };
        assert!(op.version >= *version, "{id} fell back");
    }
    assert!(!store.is_held(), "nothing that was acknowledged is missing");
    // While it is away: refused after a moment, and told so.
    tokio::task::block_in_place(|| server.stop(Stop::Fast));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    let refused = create(&store, 1 << 20).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert!(matches!(store.by_id(id(1)).await, Err(StoreError::Unavailable(_))));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    tokio::task::block_in_place(|| server.run());
    let begun = Instant::now();
    while create(&store, 1 << 20).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whoever was granted a claim writes its record next, so the claim is there whatever becomes of the server in between.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_claimed_outlives_the_server() {
    let server = TempPostgres::start(Options::default());
    let store = open(&server, &server.database()).await;
    let mut held = 0;
    for round in 0..6_u64 {
        let until = store.now().plus(Millis::secs(3600));
        let most = |n: u64| Claim { bucket: "a".into(), amount: 10 + n, cap: 1000, until };
        let more: Vec<_> = (0..4).map(|n| round * 4 + n).collect();
        let claims: Vec<[Claim; 1]> = more.iter().map(|n| [most(*n)]).collect();
        let granted = more.iter().zip(&claims).map(|(n, c)| store.claim(id(*n), 1, c));
        for one in futures_util::future::join_all(granted).await {
            assert_eq!(one.unwrap(), Claimed::Granted);
        }
        tokio::task::block_in_place(|| server.restart(Stop::Immediate));
        held += more.iter().map(|n| 10 + n).sum::<u64>();
        let all = Claim { amount: 1000, ..most(0) };
        match store.claim(id(99), 1, &[all]).await.unwrap() {
            Claimed::Full { used, .. } => assert_eq!(used, held, "round {round}"),
            Claimed::Granted => panic!("nothing is held"),
        }
    }
}

/// A life of an operation, as the ledger writes it.
async fn live(s: &PgStore, n: u64, now: Time) {
    let made = opening_at(id(n), "alice", Some(&n.to_string()), u32::try_from(n).unwrap(), s.epoch(), now);
    let write = Write::Create {
        operation: Box::new(made.0.clone()),
        slot: SlotWrite::CompareAndSet(None),
        blobs: made.1,
    };
    assert_eq!(s.write(write).await.unwrap(), Committed::Done);
    let op = made.0;
    let (next, mut w) = step(&op, received(&op), now, 1).unwrap();
    let (next, closing) = step(&next, close(&next, false), now, 2).unwrap();
    // The receipt and the result in one write, as the service makes it.
    if let (Write::Update { operation, blobs, .. }, Write::Update { blobs: more, .. }) = (&mut w, closing) {
        **operation = Operation { version: op.version + 1, ..next.clone() };
        blobs.extend(more);
    }
    let next = Operation { version: op.version + 1, ..next };
    assert_eq!(s.write(w).await.unwrap(), Committed::Done);
    s.write_lazily(step(&next, Event::Deliver(DeliveryState::Written), now, 3).unwrap().1);
}

async fn lives(s: &Arc<PgStore>, from: u64, to: u64, now: Time) {
    let mut all = tokio::task::JoinSet::new();
    for n in from..to {
        if all.len() >= 64 {
            all.join_next().await.unwrap().unwrap();
        }
        let s = s.clone();
        all.spawn(async move { live(&s, n, now).await });
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
    s.flush().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_matter_have_their_plans() {
    let settings = [
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_nested_statements", "on"),
        // Plans as they are for tables that nobody has analysed.
        ("autovacuum", "off"),
    ];
    let settings = settings.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec();
    let server = TempPostgres::start(Options { settings, ..Options::default() });
    let database = server.database();
    let store = open(&server, &database).await;
    let now = store.now();
    lives(&store, 1, 400, now).await;
    // Losers of each kind, and repetitions.
    let made = opening_at(id(9000), "alice", Some("1"), 1, store.epoch(), now);
    let write = |slot| Write::Create { operation: Box::new(made.0.clone()), slot, blobs: made.1.clone() };
    assert_eq!(store.write(write(SlotWrite::Set)).await.unwrap(), Committed::KeyTaken);
    let made = opening_at(id(9001), "alice", None, 1, store.epoch(), now);
    let write = |slot| Write::Create { operation: Box::new(made.0.clone()), slot, blobs: made.1.clone() };
    assert_eq!(store.write(write(SlotWrite::CompareAndSet(None))).await.unwrap(), Committed::SlotTaken);
    assert_eq!(store.write(write(SlotWrite::CompareAndSet(Some(id(1))))).await.unwrap(), Committed::Done);
    assert_eq!(store.write(write(SlotWrite::Set)).await.unwrap(), Committed::Done);
    store.by_key(&scope("alice").key_hash(&key("1"))).await.unwrap();
    store.blob(id(1), BlobKind::Result).await.unwrap();
    store.due(now.plus(Millis(1 << 40)), 10).await.unwrap();
    store.due_at_rest(now.plus(Millis(1 << 40)), 10).await.unwrap();
    store.next_attention().await.unwrap();
    store.orphans(None, 10).await.unwrap();
    store.list(&Query { state: Some("running".into()), limit: 5, ..Query::default() }).await.unwrap();
    store.list(&Query { principal: Some("alice".into()), limit: 5, ..Query::default() }).await.unwrap();
    assert_eq!(
        store.prune(now.plus(Millis(contract::WEEK + 1)), Millis(contract::WEEK), 100).await.unwrap(),
        100
    );
    drop(store);
    let log = server.log();
    for bad in [
        "Seq Scan on op ",
        "Seq Scan on op_",
        "Seq Scan on attention",
        "Seq Scan on slot",
        "Seq Scan on tombstone",
        "Hash Join",
        "Merge Join",
        "Materialize",
    ] {
        // Statements of this test's own, and of migrations, are none that matter.
        let at = log.find(bad).map(|at| {
            let from = log[..at].rfind("Query Text:").unwrap_or(0);
            log[from..].chars().take(3000).collect::<String>()
        });
        assert!(at.is_none(), "{bad}: {}", at.unwrap_or_default());
    }
    for good in
        ["Index Scan using op_pkey on op o", "Index Scan using attention_pkey", "UPDATE op o SET version"]
    {
        assert!(log.contains(good), "the log has no {good}: are plans logged at all?");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_change_where_they_are() {
    let server = TempPostgres::start(Options::default());
    let database = server.database();
    let store = open(&server, &database).await;
    let now = store.now();
    lives(&store, 1, 3000, now).await;
    // The server tells a while later, and only when its process is used again.
    let told = || {
        server
            .sql(&database, "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'op'")
            .parse::<u64>()
            .unwrap()
    };
    let begun = Instant::now();
    while told() < 5998 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{} changes were counted", told());
        tokio::time::sleep(Duration::from_millis(300)).await;
        store.flush().await.unwrap();
    }
    let share = |table: &str| {
        let sql = format!(
            "SELECT round(100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1)) FROM pg_stat_user_tables WHERE relname = '{table}'"
        );
        server.sql(&database, &sql).parse::<i64>().unwrap()
    };
    let size = || {
        server
            .sql(&database, "SELECT pg_total_relation_size('counterfoil.attention')")
            .parse::<u64>()
            .unwrap()
    };
    let heap = server.sql(&database, "SELECT pg_relation_size('counterfoil.op') / 3000");
    println!(
        "HOT: op {} %, tally {} %, replica {} %; attention {} bytes; a record {heap}",
        share("op"),
        share("tally"),
        share("replica"),
        size()
    );
    assert!(share("op") >= 75, "{} % of the changes of records stayed on their page", share("op"));
    assert_eq!(store.counts().await.unwrap().execution.get("completed"), Some(&2999));
    assert_eq!(
        server.sql(&database, "SELECT count(*) FROM counterfoil.attention"),
        "0",
        "what was delivered wants nothing"
    );
}
