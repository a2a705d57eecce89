//! What a restart finds, who may own a directory, and the bounds of a start.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::{io::BufRead, os::unix::fs::PermissionsExt, time::Instant};

use common::{Stand, refund, start};
use counterfoil_sandbox::{Config, Error, Sandbox, Tuning};
use serde_json::{Value, json};

#[tokio::test]
async fn a_restart_rebuilds_everything() {
    let mut it = Stand::new().await;
    let pay = it.post("/v1/payments", Some("p"), json!({"amount": 100, "currency": "eur"})).await;
    let first = it.post("/v1/refunds", Some("k"), refund(&pay.id(), 60)).await;
    it.post("/v1/refunds", Some("bad"), refund(&pay.id(), 60)).await;
    it.post("/unique/v1/refunds", None, json!({"payment": "pay_demo", "amount": 1, "reference": "r"})).await;
    it.send("PUT", "/natural/v1/refunds/n", None, refund("pay_demo2", 3)).await;
    it.send("PUT", "/natural/v1/refunds/n", None, refund("pay_demo2", 3)).await;
    it.post("/increase/v1/transfers", Some("k"), json!({"amount": 1})).await;
    it.rule(json!({"on": "*", "do": "cut"})).await;
    let strip = |mut effects: Value| {
        effects["received"] = Value::Null;
        effects
    };
    let before = strip(it.effects("list=true").await);
    it.restart().await;
    assert_eq!(strip(it.effects("list=true").await), before);
    assert_eq!(it.get("/_sandbox/rules").await.json(), json!({"rules": []}));

    let again = it.post("/v1/refunds", Some("k"), refund(&pay.id(), 60)).await;
    assert!(again.replayed());
    assert_eq!(again.body, first.body);
    let kept = it.post("/v1/refunds", Some("bad"), refund(&pay.id(), 60)).await;
    assert_eq!((kept.status, kept.replayed(), kept.code().as_str()), (400, true, "amount_too_large"));
    assert_eq!(it.post("/v1/refunds", Some("k"), refund(&pay.id(), 61)).await.status, 400);
    assert_eq!(it.get(&format!("/v1/payments/{}", pay.id())).await.json()["refunded"], 60);
    let taken = it.post("/unique/v1/refunds", None, json!({"payment": "pay_demo", "reference": "r"})).await;
    assert_eq!(taken.status, 409);
    it.send("PUT", "/natural/v1/refunds/n", None, refund("pay_demo2", 3)).await;
    assert_eq!(it.count("pay_demo2").await, 1);
    let used = it.post("/increase/v1/transfers", Some("k"), json!({"amount": 2})).await.json();
    assert!(used["resource_id"].is_string());
    // New ids do not meet old ones.
    let more = it.post("/v1/refunds", None, refund(&pay.id(), 1)).await;
    assert_ne!(more.id(), first.id());
    assert_eq!(it.get("/v1/refunds").await.json()["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_torn_last_line_is_dropped_and_other_damage_is_not_touched() {
    let mut it = Stand::new().await;
    for key in ["a", "b"] {
        it.post("/v1/refunds", Some(key), refund("pay_demo", 1)).await;
    }
    let path = it.dir.path().join("data/effects.jsonl");
    drop(it.running.take());
    let whole = std::fs::read(&path).unwrap();
    // Torn at every length of the last line: the earlier one stays, the last is gone.
    let last = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for cut in [last, last + 1, last + 40, whole.len() - 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        it.restart().await;
        assert_eq!(it.effects("").await["byKey"], json!({"a": 1}), "cut at {cut} of {}", whole.len());
        it.post("/v1/refunds", Some("c"), refund("pay_demo", 1)).await;
        it.restart().await;
        assert_eq!(it.effects("").await["byKey"], json!({"a": 1, "c": 1}));
        drop(it.running.take());
    }
    // A log with nothing but a torn head.
    std::fs::write(&path, b"{\"log\"").unwrap();
    it.restart().await;
    assert_eq!(it.effects("").await["total"], 0);
    drop(it.running.take());

    let mut damaged = whole.clone();
    damaged[last - 10] = b'\n';
    std::fs::write(&path, &damaged).unwrap();
    let config = Config::new("127.0.0.1:0".parse().unwrap(), it.dir.path().join("data"));
    let error = Sandbox::start(config.clone()).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { line: 2, .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), damaged);
    // A line too few.
    let second = whole.iter().position(|b| *b == b'\n').unwrap() + 1;
    std::fs::write(&path, [&whole[..second], &whole[last..]].concat()).unwrap();
    assert!(matches!(Sandbox::start(config).await, Err(Error::Corrupt { .. })));
}

#[tokio::test]
async fn one_owner_loopback_and_a_free_port() {
    let it = Stand::new().await;
    let dir = it.dir.path().join("data");
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(dir.join("effects.jsonl")).unwrap().permissions().mode() & 0o777, 0o600);
    let error = Sandbox::start(Config::new("127.0.0.1:0".parse().unwrap(), &dir)).await.unwrap_err();
    assert!(
        matches!(error, Error::Locked(_)) && error.to_string().contains("another sandbox provider"),
        "{error}"
    );
    let other = it.dir.path().join("other");
    let error = Sandbox::start(Config::new(it.addr, &other)).await.unwrap_err();
    assert!(
        matches!(error, Error::Bind { .. }) && error.to_string().contains(&it.addr.to_string()),
        "{error}"
    );
    let error = Sandbox::start(Config::new("0.0.0.0:0".parse().unwrap(), &other)).await.unwrap_err();
    assert!(matches!(error, Error::NotLoopback(_)), "{error}");
    std::fs::write(&other, "a file").unwrap();
    let error = Sandbox::start(Config::new("127.0.0.1:0".parse().unwrap(), &other)).await.unwrap_err();
    assert!(matches!(error, Error::Data { .. }), "{error}");
}

#[tokio::test]
async fn shutdown_frees_address_and_directory() {
    let mut it = Stand::new().await;
    it.post("/v1/refunds", Some("k"), refund("pay_demo", 1)).await;
    it.rule(json!({"on": "POST /v1/refunds", "do": "apply_then_hang"})).await;
    let hung = it.post("/v1/refunds", Some("k2"), refund("pay_demo", 1));
    assert!(tokio::time::timeout(std::time::Duration::from_millis(100), hung).await.is_err());
    let begun = Instant::now();
    it.running.take().unwrap().shutdown().await;
    assert!(begun.elapsed().as_secs() < 3);
    let mut config = Config::new(it.addr, it.dir.path().join("data"));
    config.fsync = false;
    it.running = Some(Sandbox::start(config).await.unwrap());
    assert_eq!(it.count("pay_demo").await, 2);
    it.post("/v1/refunds", Some("k3"), refund("pay_demo", 1)).await;
    it.restart().await;
    assert_eq!(it.count("pay_demo").await, 3);
}

#[tokio::test]
async fn reset_forgets_and_voids_what_is_under_way() {
    let mut it = Stand::new().await;
    it.post("/v1/refunds", Some("k"), refund("pay_demo", 1)).await;
    it.rule(json!({"on": "POST /v1/refunds", "do": "delay", "delay_ms": 200, "times": 9})).await;
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", "late")];
    let body = refund("pay_demo", 1).to_string();
    let (late, ()) = tokio::join!(it.exchange("POST", "/v1/refunds", &headers, body.as_bytes()), async {
        common::nap(80).await;
        assert_eq!(it.post("/_sandbox/reset", None, json!({})).await.status, 200);
    });
    assert_eq!(late, b"");
    assert_eq!(it.effects("").await["total"], 0);
    assert_eq!(it.get("/_sandbox/rules").await.json(), json!({"rules": []}));
    assert!(!it.post("/v1/refunds", Some("k"), refund("pay_demo", 1)).await.replayed());
    it.restart().await;
    assert_eq!(it.effects("").await["byKey"], json!({"k": 1}));
}

#[tokio::test]
async fn many_at_once_are_each_counted_once_and_all_on_disk() {
    let mut it = Stand::new().await;
    let each = (0..200).map(|n| {
        let it = &it;
        async move {
            let payment = format!("pay_demo{}", n % 20);
            it.post("/v1/refunds", Some(&format!("k{n}")), refund(&payment, 1)).await.id()
        }
    });
    let mut ids = futures_util::future::join_all(each).await;
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 200);
    it.restart().await;
    let effects = it.effects("").await;
    assert_eq!((&effects["total"], &effects["byObject"]["pay_demo7"]), (&json!(200), &json!(10)));
    assert_eq!(effects["byKey"].as_object().unwrap().len(), 200);
}

const CHILD_DATA: &str = "SANDBOX_TEST_CHILD_DATA";

/// Not a test of its own: what the next test starts in another process, to be killed there.
#[tokio::test]
async fn child() {
    if let Some(data) = std::env::var_os(CHILD_DATA) {
        let mut running = start(std::path::Path::new(&data), Tuning::default()).await;
        println!("listening={}=", running.addr());
        running.wait().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_minus_nine_under_load_loses_nothing_answered_and_doubles_nothing() {
    let mut it = Stand::new().await;
    drop(it.running.take());
    let mut total = 0;
    for round in 0..3 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD_DATA, it.dir.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let addr = lines
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("listening=")?.1.split_once('=')?.0.to_owned()));
        it.addr = addr.unwrap().parse().unwrap();

        let body =
            |key: &str| json!({"payment": "pay_demo", "amount": 1, "metadata": {"order": key}}).to_string();
        let attempt = async |it: &Stand, key: &str| {
            let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
            it.try_exchange("POST", "/v1/refunds", &headers, body(key).as_bytes()).await
        };
        let clients = (0..16).map(|client| {
            let it = &it;
            async move {
                let mut answered = Vec::new();
                for turn in 0.. {
                    let key = format!("{round}-{client}-{turn}");
                    let reply = attempt(it, &key).await.filter(|bytes| bytes.ends_with(b"}"));
                    let whole = reply.is_some();
                    answered.push((key, reply));
                    if !whole {
                        break;
                    }
                }
                answered
            }
        });
        let (answered, ()) = tokio::join!(futures_util::future::join_all(clients), async {
            common::nap(300).await;
            // SIGKILL.
            child.kill().unwrap();
            child.wait().unwrap();
        });

        it.restart().await;
        for (key, reply) in answered.iter().flatten() {
            let again = common::parse(&attempt(&it, key).await.unwrap());
            if let Some(first) = reply {
                assert!(again.replayed(), "{key} was answered and is forgotten");
                assert_eq!(common::parse(first).body, again.body);
            }
            total += 1;
        }
        let effects = it.effects("").await;
        assert_eq!(effects["total"], total);
        assert!(effects["byObject"].as_object().unwrap().values().all(|count| *count == 1));
        assert!(answered.iter().flatten().any(|(_, reply)| reply.is_some()));
        drop(it.running.take());
    }
}
