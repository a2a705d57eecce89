//! The schema and the programs that may work on it: earlier ledgers are lifted while replicas work on them, newer ones are
//! used only if they say so, and what a newer program wrote is kept or left alone.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../ledger-sqlite/tests/contract/mod.rs"]
mod contract;
mod support;

use contract::{completed, get, id, step};
use ledger::store::{Committed, Store, StoreError};
use ledger::words::Millis;
use ledger::{DeliveryState, Event, SystemEnv};
use ledger_postgres::{Config, OpenError, PgStore};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{config, sql, try_open};

/// As the first program left it, with one replica that lives.
const FIRST: &str = concat!(
    include_str!("../sql/0001.sql"),
    include_str!("../sql/write.sql"),
    include_str!("../sql/tend.sql"),
    "INSERT INTO migration (version) VALUES (1);
     INSERT INTO meta (one, name, secret, created_at, high_water, shift) SELECT 1, 'test', sha256('a'), c, c, 0 FROM (SELECT ledger_clock() AS c) n;
     INSERT INTO replica (epoch, instance, started_at, lease_ms, lease_until, beats, skew_ms, server_name, version, fingerprint, listen)
       VALUES (nextval('replica_epoch'), 'old', 0, 60000, ledger_clock() + 60000, 0, 0, '', '0.0.1', '', 'here:1')"
);

async fn works(s: &PgStore, n: u32) {
    completed(s, n, Some(&n.to_string()), s.now()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_of_the_first_schema_is_lifted_by_whoever_comes_first() {
    let config = config();
    sql(&config, &format!("CREATE SCHEMA {}", config.schema));
    sql(
        &config,
        "CREATE TABLE migration (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())",
    );
    sql(&config, FIRST);
    // Its program would drop what newer ones write into records.
    let Err(refused) = try_open(config.clone()).await else { panic!("it is lifted under a living replica") };
    assert!(matches!(refused, OpenError::OlderAlive { needed: 2, .. }), "{refused}");
    assert!(refused.to_string().contains("here:1 (0.0.1)"), "{refused}");
    assert_eq!(sql(&config, "SELECT max(version) FROM migration"), "1", "nothing was changed");
    sql(&config, "UPDATE replica SET lease_until = ledger_clock() - 1");
    let new: Vec<_> = (0..3).map(|_| tokio::spawn(try_open(config.clone()))).collect();
    let mut all = Vec::new();
    for one in new {
        all.push(one.await.unwrap().unwrap());
    }
    for (n, s) in (1..).zip(&all) {
        works(s, n).await;
    }
    assert_eq!(all[1].counts().await.unwrap().execution.get("completed"), Some(&3));
    let known = all[0].stats().schema;
    let each = "SELECT string_agg(version || ' ' || compatible_from, ', ' ORDER BY version) FROM migration WHERE version > 1";
    assert_eq!(sql(&config, each), (2..=known).map(|n| format!("{n} 2")).collect::<Vec<_>>().join(", "));
    assert_eq!(
        sql(&config, "SELECT knows || ' ' || (ended_at IS NOT NULL) FROM replica WHERE listen = 'here:1'"),
        "1 true"
    );
    let replicas = all[0].replicas().await.unwrap();
    assert_eq!(replicas.iter().find(|r| r.listen.is_empty()).map(|r| r.schema), Some(known));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_is_used_only_if_it_says_so() {
    let config = Config { lease: Millis(400), ..config() };
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let ear = told.clone();
    let on_fatal = Arc::new(move |why| ear.lock().unwrap().push(why));
    let s = PgStore::open(config.clone(), Arc::new(SystemEnv), on_fatal).await.unwrap();
    let known = s.stats().schema;
    works(&s, 1).await;
    // A newer program was here, that only added something.
    sql(
        &config,
        &format!(
            "ALTER TABLE op ADD COLUMN newer text; INSERT INTO migration VALUES ({}, now(), {known})",
            known + 1
        ),
    );
    let late = try_open(config.clone()).await.unwrap();
    works(&late, 2).await;
    works(&s, 3).await;
    assert_eq!(late.replicas().await.unwrap().len(), 2);
    drop(late);
    // One step more, that changes something for this program: who begins now, may not.
    sql(&config, &format!("INSERT INTO migration VALUES ({0}, now(), {0})", known + 2));
    let Err(newer) = try_open(config.clone()).await else { panic!("it is opened") };
    assert!(
        matches!(newer, OpenError::Newer { found, needed, known: k } if (found, needed, k) == (known + 2, known + 2, known)),
        "{newer}"
    );
    assert!(newer.to_string().contains("Use the newer program"), "{newer}");
    // Who was ended by it goes on under no new epoch, and says why, once.
    sql(&config, "SELECT end_replica_1(epoch, 0) FROM replica");
    let begun = Instant::now();
    loop {
        match s.ready().await {
            Err(StoreError::Unavailable(why)) if why.contains("Use the newer program") => break,
            other => assert!(begun.elapsed() < Duration::from_secs(20), "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
    let told = std::mem::take(&mut *told.lock().unwrap());
    assert!(told.len() == 1 && told[0].contains("Use the newer program"), "{told:?}");
    let made = contract::opening_at(id(9), "alice", None, 9, s.epoch(), s.now());
    let write = ledger::store::Write::Create {
        operation: Box::new(made.0),
        slot: ledger::store::SlotWrite::Set,
        blobs: made.1,
    };
    assert!(contract::is_unavailable(&s.write(write).await));
    assert_eq!(sql(&config, "SELECT count(*) FROM replica WHERE ended_at IS NULL"), "0");
    // A row that doesn't say what it takes is taken for the worst.
    sql(
        &config,
        &format!(
            "DELETE FROM migration WHERE version > {known}; INSERT INTO migration VALUES ({}, now())",
            known + 1
        ),
    );
    let Err(newer) = try_open(config.clone()).await else { panic!("it is opened") };
    assert!(matches!(newer, OpenError::Newer { needed, .. } if needed == known + 1), "{newer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_newer_program_wrote_is_kept_or_left_alone() {
    let config = config();
    let s = try_open(config.clone()).await.unwrap();
    let now = s.now();
    let first = completed(&*s, 1, Some("k"), now).await;
    let second = completed(&*s, 2, Some("l"), now).await;
    let of = |id: ledger::OperationId| format!("'{:032x}'::uuid", id.0);
    let set = |id, more: &str| {
        format!("UPDATE op SET record = (record::jsonb || '{more}')::text WHERE id = {}", of(id))
    };
    sql(&config, &set(first.id, r#"{"later":{"a":[1,"x"]}}"#));
    sql(&config, &set(second.id, r#"{"form":4000000000,"execution":{"state":"dreaming"}}"#));
    let text = |id| sql(&config, &format!("SELECT record FROM op WHERE id = {}", of(id)));
    let before = text(second.id);
    let (_, w) = step(&get(&*s, first.id).await, Event::Deliver(DeliveryState::Written), now, 9).unwrap();
    assert_eq!(s.write(w).await.unwrap(), Committed::Done);
    let kept = text(first.id);
    assert!(kept.contains(r#""written""#) && kept.contains(r#""later":{"a":[1,"x"]}"#), "{kept}");
    for left in [s.by_id(second.id).await, s.by_key(&ledger::store::key_hash_of(&second).unwrap()).await] {
        assert!(
            matches!(&left, Err(StoreError::Unavailable(why)) if why.contains("newer version")),
            "{left:?}"
        );
    }
    let far = now.plus(Millis(1 << 40));
    assert!(s.due(far, 10).await.unwrap().is_empty() && s.due_at_rest(far, 10).await.unwrap().is_empty());
    // Beside another replica too it keeps nobody from what it leaves to newer ones; and that takes no place.
    let other = try_open(config.clone()).await.unwrap();
    let third = completed(&*other, 3, None, now.plus(Millis(1))).await;
    let due: Vec<_> = other.due(far, 1).await.unwrap().iter().map(|op| op.id).collect();
    assert_eq!(due, [third.id]);
    let held =
        format!("SELECT count(*) FROM attention WHERE holder IS NOT NULL AND op_id = {}", of(second.id));
    assert_eq!(sql(&config, &held), "0");
    sql(
        &config,
        &format!("DELETE FROM attention WHERE op_id = {0}; DELETE FROM op WHERE id = {0}", of(third.id)),
    );
    drop(other);
    assert_eq!(s.prune(far, Millis(0), 10).await.unwrap(), 1, "only what it knows");
    assert_eq!(text(second.id), before, "what it doesn't know it doesn't touch");
    // A field below the top that nobody announced is not read over.
    sql(
        &config,
        &set(
            second.id,
            r#"{"form":0,"execution":{"state":"completed"},"delivery":{"state":"ready","at":1,"via":"x"}}"#,
        ),
    );
    let damaged = s.by_id(second.id).await;
    assert!(matches!(damaged, Err(StoreError::Damaged(_))), "{damaged:?}");
}
