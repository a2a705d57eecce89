//! Every fault, as a raw client sees it, and what had happened by then.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Stand, nap, parse, refund, request};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

fn on(fault: &str) -> Value {
    json!({"on": "POST /v1/refunds", "do": fault})
}

/// A refund of `pay_demo` under key `k`, as bytes.
fn bytes() -> Vec<u8> {
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", "k")];
    request("POST", "/v1/refunds", &headers, refund("pay_demo", 1).to_string().as_bytes())
}

async fn again(it: &Stand) -> common::Reply {
    it.post("/v1/refunds", Some("k"), refund("pay_demo", 1)).await
}

#[tokio::test]
async fn apply_then_cut_sends_nothing_and_the_key_replays() {
    let it = Stand::new().await;
    it.rule(on("apply_then_cut")).await;
    assert_eq!(it.raw(&bytes()).await, b"");
    assert_eq!(it.count("pay_demo").await, 1);
    let log = std::fs::read_to_string(it.dir.path().join("data/effects.jsonl")).unwrap();
    assert_eq!(log.lines().filter(|line| line.contains("\"application\"")).count(), 1);
    let reply = again(&it).await;
    assert!(reply.status == 200 && reply.replayed());
    assert_eq!(it.count("pay_demo").await, 1);
    assert_eq!(it.get("/_sandbox/rules").await.json()["rules"][0]["fired"], 1);
}

#[tokio::test]
async fn a_cut_on_a_kept_connection_sends_nothing_more() {
    let it = Stand::new().await;
    it.rule(json!({"on": "POST /v1/refunds", "do": "apply_then_cut", "skip": 1})).await;
    let keep = String::from_utf8(bytes()).unwrap().replace("Connection: close\r\n", "").into_bytes();
    let mut stream = TcpStream::connect(it.addr).await.unwrap();
    stream.write_all(&keep).await.unwrap();
    let mut buffer = vec![0; 4096];
    let read = stream.read(&mut buffer).await.unwrap();
    assert_eq!(parse(&buffer[..read]).status, 200);
    stream.write_all(&keep).await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn cut_applies_nothing() {
    let it = Stand::new().await;
    it.rule(on("cut")).await;
    assert_eq!(it.raw(&bytes()).await, b"");
    assert_eq!(it.count("pay_demo").await, 0);
    assert!(!again(&it).await.replayed());
}

#[tokio::test]
async fn errors_after_applying() {
    let it = Stand::new().await;
    it.rule(on("apply_then_502")).await;
    let reply = again(&it).await;
    assert_eq!((reply.status, reply.header("content-type")), (502, Some("text/html")));
    assert_eq!((again(&it).await.status, it.count("pay_demo").await), (200, 1));

    let mail = || it.post("/v1/messages", Some("m"), json!({"to": "x", "subject": "s", "body": "b"}));
    it.rule(json!({"on": "POST /v1/messages", "do": "apply_then_500"})).await;
    let (first, second) = (mail().await, mail().await);
    assert_eq!((first.status, second.status, second.replayed()), (500, 500, true));
    assert_eq!((it.count("x").await, first.body == second.body), (1, true));

    // One that keeps only successes keeps this one.
    let sent = || it.post("/resend/v1/emails", Some("m"), json!({"to": "y", "subject": "s"}));
    it.rule(json!({"on": "POST /resend/v1/emails", "do": "apply_then_500"})).await;
    assert_eq!((sent().await.status, sent().await.status, it.count("y").await), (500, 200, 1));
}

#[tokio::test]
async fn fail_is_kept_and_applies_nothing() {
    let it = Stand::new().await;
    it.rule(on("fail")).await;
    assert_eq!(again(&it).await.status, 500);
    let reply = again(&it).await;
    assert_eq!((reply.status, reply.replayed(), it.count("pay_demo").await), (500, true, 0));
    it.rule(json!({"on": "POST /none/v1/refunds", "do": "fail"})).await;
    assert_eq!(it.post("/none/v1/refunds", None, refund("pay_demo", 1)).await.status, 500);
    assert_eq!(it.post("/none/v1/refunds", None, refund("pay_demo", 1)).await.status, 200);
}

#[tokio::test]
async fn hangs_never_answer() {
    let it = Stand::new().await;
    it.rule(on("apply_then_hang")).await;
    assert!(timeout(Duration::from_millis(150), it.raw(&bytes())).await.is_err());
    assert_eq!(it.count("pay_demo").await, 1);
    assert!(again(&it).await.replayed());
    it.rule(json!({"on": "POST /v1/refunds", "do": "hang", "match": {"key": "k2"}})).await;
    let hung = it.post("/v1/refunds", Some("k2"), refund("pay_demo", 1));
    assert!(timeout(Duration::from_millis(150), hung).await.is_err());
    assert_eq!(it.count("pay_demo").await, 1);
}

#[tokio::test]
async fn a_delay_holds_the_key_and_outlives_its_client() {
    let it = Stand::new().await;
    it.rule(json!({"on": "POST /v1/refunds", "do": "delay", "delay_ms": 300})).await;
    let mut stream = TcpStream::connect(it.addr).await.unwrap();
    stream.write_all(&bytes()).await.unwrap();
    nap(100).await;
    drop(stream);
    nap(50).await;
    let busy = again(&it).await;
    assert_eq!((busy.status, it.count("pay_demo").await), (409, 0));
    nap(300).await;
    assert_eq!(it.count("pay_demo").await, 1);
    assert!(again(&it).await.replayed());
    assert_eq!(it.count("pay_demo").await, 1);
}

#[tokio::test]
async fn after_ms_waits_between_the_effect_and_the_cut() {
    let it = Stand::new().await;
    it.rule(json!({"on": "POST /v1/refunds", "do": "apply_then_cut", "after_ms": 300})).await;
    let begun = Instant::now();
    let (reply, count) = tokio::join!(
        async {
            let reply = it.raw(&bytes()).await;
            (reply, begun.elapsed())
        },
        async {
            nap(150).await;
            it.count("pay_demo").await
        }
    );
    assert_eq!((reply.0.len(), count), (0, 1));
    assert!(reply.1 >= Duration::from_millis(300));
}

#[tokio::test]
async fn refusals() {
    let it = Stand::new().await;
    // Within execution: kept.
    it.rule(on("refuse")).await;
    assert_eq!(again(&it).await.code(), "card_declined");
    let reply = again(&it).await;
    assert_eq!((reply.status, reply.replayed()), (402, true));
    // At the door: not kept, whatever the body.
    let third = || it.post("/v1/refunds", Some("k3"), refund("pay_demo", 1));
    it.rule(json!({"on": "POST /v1/refunds", "do": "refuse", "status": 403, "body": {"no": 1}})).await;
    let reply = third().await;
    assert_eq!((reply.status, reply.json()), (403, json!({"no": 1})));
    assert_eq!((third().await.status, it.count("pay_demo").await), (200, 1));
    // Upon a kept answer: that stays.
    it.rule(on("refuse")).await;
    assert_eq!(third().await.status, 402);
    assert_eq!((third().await.status, it.count("pay_demo").await), (200, 1));
    // A look-up can be refused and can fail, too.
    it.rule(json!({"on": "GET /v1/refunds", "do": "refuse", "status": 404})).await;
    it.rule(json!({"on": "GET /v1/refunds", "do": "fail"})).await;
    let statuses = [it.get("/v1/refunds").await.status, it.get("/v1/refunds").await.status];
    assert_eq!((statuses, it.get("/v1/refunds").await.status), ([404, 500], 200));
}

#[tokio::test]
async fn refuse_replay_waits_for_a_replay() {
    let it = Stand::new().await;
    it.rule(on("refuse_replay")).await;
    assert_eq!(again(&it).await.status, 200);
    let reply = again(&it).await;
    assert_eq!((reply.status, reply.replayed()), (401, false));
    assert!(again(&it).await.replayed());
    assert_eq!(it.count("pay_demo").await, 1);
    // Classes without keys: the reference, or the marker.
    for (class, body) in [
        ("unique", json!({"payment": "pay_demo", "amount": 1, "reference": "r"})),
        ("lookup", json!({"payment": "pay_demo", "amount": 1, "metadata": {"marker": "m"}})),
    ] {
        let path = format!("/{class}/v1/refunds");
        it.rule(json!({"on": format!("POST {path}"), "do": "refuse_replay"})).await;
        assert_eq!(it.post(&path, None, body.clone()).await.status, 200);
        assert_eq!(it.post(&path, None, body).await.status, 401);
    }
}

#[tokio::test]
async fn wait_answers_apply_nothing() {
    let it = Stand::new().await;
    it.rule(json!({"on": "POST /v1/refunds", "do": "retry_later", "retry_after": 3})).await;
    it.rule(on("unavailable")).await;
    let (first, second) = (again(&it).await, again(&it).await);
    assert_eq!((first.status, first.header("retry-after")), (429, Some("3")));
    assert_eq!((second.status, second.header("retry-after")), (503, Some("1")));
    assert_eq!(it.count("pay_demo").await, 0);
    assert!(!again(&it).await.replayed());
}

#[tokio::test]
async fn forgotten_keys_stay_forgotten() {
    let mut it = Stand::new().await;
    again(&it).await;
    it.post("/v1/refunds", Some("k2"), refund("pay_demo", 2)).await;
    it.rule(json!({"on": "POST /v1/refunds", "do": "forget_keys", "match": {"key": "k"}})).await;
    it.rule(on("cut")).await;
    assert_eq!(it.raw(&bytes()).await, b"");
    it.restart().await;
    let reply = again(&it).await;
    assert!(reply.status == 200 && !reply.replayed());
    assert_eq!(it.effects("").await["byKey"], json!({"k": 2, "k2": 1}));
    assert!(it.post("/v1/refunds", Some("k2"), refund("pay_demo", 2)).await.replayed());
    it.rule(on("forget_keys")).await;
    again(&it).await;
    assert!(!it.post("/v1/refunds", Some("k2"), refund("pay_demo", 2)).await.replayed());
}

#[tokio::test]
async fn broken_bodies() {
    let it = Stand::new().await;
    it.rule(on("garbage")).await;
    let reply = again(&it).await;
    assert!(reply.status == 200 && serde_json::from_slice::<Value>(&reply.body).is_err());
    it.rule(json!({"on": "POST /v1/refunds", "do": "garbage", "body": "nonsense"})).await;
    assert_eq!(again(&it).await.body, b"nonsense");

    it.rule(on("torn")).await;
    let reply = parse(&it.raw(&bytes()).await);
    let announced: usize = reply.header("content-length").unwrap().parse().unwrap();
    assert_eq!((reply.status, reply.body.len()), (200, announced / 2));
    assert!(announced > 20);

    it.rule(on("huge")).await;
    let reply = again(&it).await;
    assert!(reply.body.len() > 10 * 1024 * 1024);
    assert_eq!(reply.json()["id"], again(&it).await.json()["id"]);
    assert_eq!(it.count("pay_demo").await, 1);
}

#[tokio::test]
async fn a_trickle_is_whole_and_slow_and_had_applied_before() {
    let it = Stand::new().await;
    it.rule(json!({"on": "POST /v1/refunds", "do": "trickle", "delay_ms": 3})).await;
    let mut stream = TcpStream::connect(it.addr).await.unwrap();
    let begun = Instant::now();
    stream.write_all(&bytes()).await.unwrap();
    let (mut answer, mut some, mut reads) = (Vec::new(), [0; 4096], 0);
    loop {
        let read = stream.read(&mut some).await.unwrap();
        if read == 0 {
            break;
        }
        if reads == 1 {
            assert_eq!(it.count("pay_demo").await, 1);
        }
        answer.extend_from_slice(&some[..read]);
        reads += 1;
    }
    let reply = parse(&answer);
    let announced: usize = reply.header("content-length").unwrap().parse().unwrap();
    assert_eq!((reply.status, reply.body.len()), (200, announced));
    assert!(begun.elapsed() >= Duration::from_millis(3 * announced as u64));
    // More than the head and the body at once, and at most a read for each byte.
    assert!(reads > 10 && reads <= announced + 1, "{reads} reads of {announced} bytes");
    let again = again(&it).await;
    assert!(again.replayed());
    assert_eq!((again.json(), it.count("pay_demo").await), (reply.json(), 1));
}

#[tokio::test]
async fn not_found_for_a_while_combines_with_a_cut() {
    let it = Stand::new().await;
    let body = json!({"payment": "pay_demo", "amount": 1, "metadata": {"marker": "m"}});
    it.rule(json!({"on": "POST /lookup/v1/*", "do": "not_found_for_a_while", "delay_ms": 300})).await;
    it.rule(json!({"on": "POST /lookup/v1/refunds", "do": "apply_then_cut"})).await;
    let headers = [("Content-Type", "application/json")];
    assert_eq!(it.exchange("POST", "/lookup/v1/refunds", &headers, body.to_string().as_bytes()).await, b"");
    let found = async || {
        let found = it.get("/lookup/v1/refunds?marker=m").await.json();
        found["data"].as_array().unwrap().len()
    };
    assert_eq!((it.count("pay_demo").await, found().await), (1, 0));
    nap(350).await;
    assert_eq!(found().await, 1);
}

#[tokio::test]
async fn rules_choose_by_count_key_object_and_wildcard() {
    let it = Stand::new().await;
    it.rule(json!({"on": "POST /v1/*", "do": "unavailable", "times": 2, "skip": 1,
                   "match": {"key": "k", "object": "pay_demo"}}))
        .await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(again(&it).await.status);
        assert_eq!(it.post("/v1/refunds", Some("k9"), refund("pay_demo", 1)).await.status, 200);
    }
    assert_eq!(statuses, [200, 503, 503, 200]);
    it.rule(json!({"on": "*", "do": "unavailable", "times": 100})).await;
    assert_eq!(it.get("/v1/refunds").await.status, 503);
    // The control side is out of reach of the rules.
    assert_eq!(it.get("/_sandbox/health").await.json()["sandbox"], "counterfoil");
    let gone = it.send("DELETE", "/_sandbox/rules", None, json!({})).await.json();
    assert_eq!((gone, it.get("/v1/refunds").await.status), (json!({"disarmed": 2}), 200));
}

#[tokio::test]
async fn wrong_rules_are_refused_with_what_is_valid() {
    let it = Stand::new().await;
    for (rule, hint) in [
        (json!({"on": "POST /v1/refunds", "do": "explode"}), "apply_then_cut"),
        (json!({"do": "cut"}), "POST /v1/refunds"),
        (json!({"on": "/v1/refunds", "do": "cut"}), "METHOD /path"),
        (json!({"on": "POST /v1/refund", "do": "cut"}), "refunds"),
        (json!({"on": "POST /*/refunds", "do": "cut"}), "METHOD /path"),
        (json!({"on": "POST /v1/refunds", "do": "cut", "time": 1}), "times"),
        (json!({"on": "POST /v1/refunds", "do": "cut", "delay_ms": 1}), "after_ms"),
        (json!({"on": "POST /v1/refunds", "do": "delay"}), "delay_ms"),
        (json!({"on": "POST /v1/refunds", "do": "trickle"}), "delay_ms"),
        (json!({"on": "POST /v1/refunds", "do": "delay", "delay_ms": 600_001}), "600000"),
        (json!({"on": "POST /v1/refunds", "do": "cut", "times": 0}), "times"),
        (json!({"on": "POST /v1/refunds", "do": "refuse", "status": 200}), "400"),
        (json!({"on": "POST /v1/refunds", "do": "cut", "match": {"who": "x"}}), "key, object"),
        (json!(["cut"]), "object"),
    ] {
        let reply = it.post("/_sandbox/rules", None, rule.clone()).await;
        assert_eq!(reply.status, 400, "{rule}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(hint), "{rule}: {message}");
    }
    assert_eq!(it.get("/_sandbox/rules").await.json(), json!({"rules": []}));
}
