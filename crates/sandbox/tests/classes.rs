//! Every provider class: what a second request gets, and what the oracle counts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Stand, nap, refund};
use counterfoil_sandbox::Tuning;
use serde_json::{Value, json};

#[tokio::test]
async fn payments_refunds_and_messages() {
    let it = Stand::new().await;
    let paid =
        it.post("/v1/payments", None, json!({"amount": 1000, "currency": "EUR", "order_id": "o1"})).await;
    let pay = paid.id();
    assert!(pay.starts_with("pay_"));
    assert_eq!(
        (&paid.json()["status"], &paid.json()["refunded"], &paid.json()["currency"]),
        (&json!("succeeded"), &json!(0), &json!("eur"))
    );

    let back = it.post("/v1/refunds", None, refund(&pay, 300)).await.json();
    assert_eq!(
        (&back["object"], &back["amount"], &back["payment"]),
        (&json!("refund"), &json!(300), &json!(pay))
    );
    assert_eq!(it.get(&format!("/v1/payments/{pay}")).await.json()["refunded"], 300);
    let too_much = it.post("/v1/refunds", None, refund(&pay, 701)).await;
    assert_eq!((too_much.status, too_much.code().as_str()), (400, "amount_too_large"));
    let rest = it.post("/v1/refunds", None, json!({"payment": pay})).await.json();
    assert_eq!(rest["amount"], 700);
    let none_left = it.post("/v1/refunds", None, refund(&pay, 1)).await;
    assert_eq!((none_left.status, none_left.code().as_str()), (400, "charge_already_refunded"));
    let unknown = it.post("/v1/refunds", None, refund("pay_nope", 1)).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "resource_missing"));

    assert_eq!(it.post("/v1/refunds", None, refund("pay_demo1", 5)).await.status, 200);
    assert_eq!(it.get("/v1/payments/pay_demo1").await.json()["refunded"], 5);
    for declined in [
        json!({"amount": 40200, "currency": "eur"}),
        json!({"amount": 1, "currency": "eur", "metadata": {"card_declined": true}}),
    ] {
        let declined = it.post("/v1/payments", None, declined).await;
        assert_eq!((declined.status, declined.code().as_str()), (402, "card_declined"));
    }
    let mail = json!({"to": "a@example.com", "subject": "s", "body": "b", "metadata": {"marker": "m1"}});
    let sent = it.post("/v1/messages", None, mail).await.id();
    let found = it.get("/v1/messages?marker=m1").await.json();
    assert_eq!((&found["data"][0]["id"], found["data"].as_array().unwrap().len()), (&json!(sent), 1));

    let effects = it.effects("").await;
    assert_eq!(effects["total"], 5);
    assert_eq!(effects["byObject"], json!({"o1": 1, pay.as_str(): 2, "pay_demo1": 1, "a@example.com": 1}));
    assert_eq!(effects["byKey"], json!({"(none)": 5}));
    assert_eq!(it.effects("kind=refund&class=key").await["total"], 3);
    assert_eq!(it.effects("list=true&object=o1").await["list"][0]["amount"], 1000);
    // One class's payment is unknown to another.
    assert_eq!(it.post("/none/v1/refunds", None, refund(&pay, 1)).await.status, 404);
}

#[tokio::test]
async fn forms_and_bad_input() {
    let it = Stand::new().await;
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let body = b"payment=pay_demo2&amount=12&metadata[order]=ord%201&metadata[marker]=m";
    let reply = common::parse(&it.exchange("POST", "/v1/refunds", &form, body).await);
    assert_eq!((&reply.json()["amount"], &reply.json()["metadata"]["order"]), (&json!(12), &json!("ord 1")));
    assert_eq!(it.count("ord%201").await, 1);

    for (body, status, code) in [
        (json!({"payment": "pay_demo", "amount": "12"}), 400, "parameter_invalid_integer"),
        (json!({"payment": "pay_demo", "amount": 1.5}), 400, "parameter_invalid_integer"),
        (json!({"payment": "pay_demo", "amount": 0}), 400, "parameter_invalid_integer"),
        (json!({"payment": "pay_demo", "amount": -1}), 400, "parameter_invalid_integer"),
        (json!({"payment": "pay_demo", "idempotency_key": "x"}), 400, "parameter_unknown"),
        (json!({"amount": 1}), 400, "parameter_missing"),
        (json!({"payment": "pay_demo", "metadata": {"a": {}}}), 400, "parameter_invalid"),
        (json!([]), 400, "invalid_json"),
    ] {
        let reply = it.post("/v1/refunds", None, body.clone()).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{body}");
    }
    for (method, path, status) in [
        ("POST", "/v1/refund", 404),
        ("POST", "/nowhere", 404),
        ("DELETE", "/v1/refunds", 405),
        ("PUT", "/v1/refunds/x", 405),
        ("GET", "/v1/refunds?limit=0", 400),
        ("GET", "/v1/refunds?colour=red", 400),
        ("GET", "/none/v1/refunds?marker=x", 400),
        ("GET", "/v1/refunds/re_nope", 404),
        ("PUT", "/_sandbox/rules", 405),
        ("GET", "/_sandbox/effects?objects=x", 400),
    ] {
        let reply = it.send(method, path, None, json!({})).await;
        assert_eq!(reply.status, status, "{method} {path}");
        assert!(reply.json()["error"]["message"].as_str().is_some_and(|m| !m.is_empty()));
    }
    let json = ("Content-Type", "application/json");
    let status = async |headers: &[(&str, &str)], body: &[u8]| {
        common::parse(&it.exchange("POST", "/v1/refunds", headers, body).await).status
    };
    assert_eq!(status(&[json], b"{").await, 400);
    assert_eq!(status(&[json], b"\xff").await, 400);
    assert_eq!(status(&[("Content-Type", "text/plain")], b"hello").await, 415);
    assert_eq!(status(&[json, ("Idempotency-Key", "a"), ("Idempotency-Key", "b")], b"{}").await, 400);
    assert_eq!(status(&[json, ("Idempotency-Key", &"k".repeat(256))], b"{}").await, 400);
    assert_eq!(status(&[json, ("Origin", "https://evil.example")], b"{}").await, 403);
    assert_eq!(status(&[json, ("Origin", "http://localhost:3000")], b"{}").await, 400);
    assert_eq!(status(&[json], &vec![b' '; 1024 * 1024 + 1]).await, 413);
    let rebound =
        it.raw(b"GET /_sandbox/health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
    assert_eq!(common::parse(&rebound).status, 403);
    assert_eq!(it.effects("").await["total"], 1);
}

#[tokio::test]
async fn key_replays_first_answers_and_refuses_mismatches() {
    let it = Stand::new().await;
    let first = it.post("/v1/refunds", Some("k1"), refund("pay_demo", 10)).await;
    let again = it.post("/v1/refunds", Some("k1"), json!({"amount": 10, "payment": "pay_demo"})).await;
    assert_eq!(first.body, again.body);
    assert!(!first.replayed() && again.replayed());
    let other = it.post("/v1/refunds", Some("k1"), refund("pay_demo", 11)).await;
    assert_eq!((other.status, &other.json()["error"]["type"]), (400, &json!("idempotency_error")));
    let other = it.post("/v1/payments", Some("k1"), json!({"amount": 1, "currency": "eur"})).await;
    assert_eq!(other.status, 400);
    // An error after execution began is kept; one of validation is not.
    let declined = it.post("/v1/payments", Some("k2"), json!({"amount": 40200, "currency": "eur"})).await;
    let again = it.post("/v1/payments", Some("k2"), json!({"amount": 40200, "currency": "eur"})).await;
    assert_eq!((declined.status, again.status, again.replayed()), (402, 402, true));
    assert_eq!(it.post("/v1/refunds", Some("k3"), json!({"amount": 1})).await.status, 400);
    assert_eq!(it.post("/v1/refunds", Some("k3"), refund("pay_demo", 1)).await.status, 200);

    let listed = it.get("/v1/refunds?idempotency_key=k1").await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&listed["data"][0]["id"], &listed["data"][0]["idempotency_key"]),
        (&json!(first.id()), &json!("k1"))
    );
    let page = it.get("/v1/refunds?payment=pay_demo&limit=1").await.json();
    assert_eq!((page["data"].as_array().unwrap().len(), &page["has_more"]), (1, &json!(true)));
    let effects = it.effects("").await;
    assert_eq!((&effects["total"], &effects["byKey"]), (&json!(2), &json!({"k1": 1, "k3": 1})));
}

#[tokio::test]
async fn keys_are_forgotten_after_the_retention_but_not_by_increase() {
    let it = Stand::tuned(Tuning { retention: Duration::from_millis(150), ..Tuning::default() }).await;
    let transfer = json!({"amount": 5});
    it.post("/v1/refunds", Some("k"), refund("pay_demo", 1)).await;
    let kept = it.post("/increase/v1/transfers", Some("k"), transfer.clone()).await;
    assert!(it.post("/v1/refunds", Some("k"), refund("pay_demo", 1)).await.replayed());
    nap(200).await;
    let late = it.post("/v1/refunds", Some("k"), refund("pay_demo", 1)).await;
    assert!(late.status == 200 && !late.replayed());
    assert_eq!(it.count("pay_demo").await, 2);
    assert_eq!(it.post("/increase/v1/transfers", Some("k"), transfer).await.id(), kept.id());
}

#[tokio::test]
async fn one_key_at_once_makes_one_effect() {
    let it = Stand::tuned(Tuning { in_flight: Duration::from_millis(100), ..Tuning::default() }).await;
    let many = |path: &'static str, body: Value| {
        let it = &it;
        async move {
            let each = (0..8).map(|_| it.post(path, Some("same"), body.clone()));
            futures_util::future::join_all(each).await
        }
    };
    let replies = many("/v1/refunds", refund("pay_demo1", 1)).await;
    assert_eq!(replies.iter().filter(|r| r.status == 200).count(), 1);
    for busy in replies.iter().filter(|r| r.status != 200) {
        assert_eq!((busy.status, busy.code().as_str()), (409, "idempotency_key_in_use"));
    }
    assert!(it.post("/v1/refunds", Some("same"), refund("pay_demo1", 1)).await.replayed());

    let replies = many("/modern_treasury/v1/refunds", refund("pay_demo2", 1)).await;
    assert_eq!(replies.iter().filter(|r| r.status == 409).count(), 7);
    let replies = many("/resend/v1/emails", json!({"to": "x", "subject": "s"})).await;
    let busy = replies.iter().find(|r| r.status != 200).unwrap().json();
    assert_eq!((&busy["statusCode"], &busy["name"]), (&json!(409), &json!("concurrent_idempotent_requests")));
    let replies = many("/increase/v1/refunds", refund("pay_demo3", 1)).await;
    assert!(replies.iter().all(|r| r.id() == replies[0].id()));
    assert_eq!(replies.iter().filter(|r| !r.replayed()).count(), 1);
    assert_eq!(
        it.effects("").await["byObject"],
        json!({"pay_demo1": 1, "pay_demo2": 1, "pay_demo3": 1, "x": 1})
    );
}

#[tokio::test]
async fn unique_refuses_a_second_reference() {
    let it = Stand::new().await;
    let body = json!({"payment": "pay_demo", "amount": 1, "reference": "r1"});
    let first = it.post("/unique/v1/refunds", Some("k"), body.clone()).await.id();
    let second = it.post("/unique/v1/refunds", Some("k"), body.clone()).await;
    assert_eq!((second.status, second.code().as_str()), (409, "already_exists"));
    assert_eq!(second.json()["error"]["resource_id"], json!(first));
    assert_eq!(it.get(&format!("/unique/v1/refunds/{first}")).await.json()["reference"], "r1");
    let each = (0..8)
        .map(|_| it.post("/unique/v1/refunds", None, json!({"payment": "pay_demo9", "reference": "r2"})));
    let replies = futures_util::future::join_all(each).await;
    assert_eq!(replies.iter().filter(|r| r.status == 200).count(), 1);
    assert_eq!((it.count("pay_demo").await, it.count("pay_demo9").await), (1, 1));
}

#[tokio::test]
async fn lookup_ignores_keys_and_shows_late() {
    let it = Stand::tuned(Tuning { visibility_lag: Duration::from_millis(200), ..Tuning::default() }).await;
    let body = json!({"payment": "pay_demo", "amount": 1, "metadata": {"marker": "m"}, "reference": "r"});
    let first = it.post("/lookup/v1/refunds", Some("k"), body.clone()).await;
    assert_eq!(first.json()["idempotency_key"], Value::Null);
    let found = async |query: &str| {
        it.get(&format!("/lookup/v1/refunds?{query}")).await.json()["data"].as_array().unwrap().len()
    };
    assert_eq!(found("marker=m").await, 0);
    assert_eq!(it.get(&format!("/lookup/v1/refunds/{}", first.id())).await.status, 404);
    assert_eq!(it.count("pay_demo").await, 1);
    nap(250).await;
    assert_eq!((found("marker=m").await, found("reference=r").await, found("marker=n").await), (1, 1, 0));
    it.post("/lookup/v1/refunds", Some("k"), body).await;
    nap(250).await;
    assert_eq!((found("marker=m").await, it.count("pay_demo").await), (2, 2));
    assert_eq!(it.effects("").await["byKey"], json!({"k": 2}));
}

#[tokio::test]
async fn natural_repeats_change_nothing() {
    let it = Stand::new().await;
    let put =
        async |name: &str, body| it.send("PUT", &format!("/natural/v1/refunds/{name}"), None, body).await;
    let first = put("a%20b", refund("pay_demo", 10)).await;
    let again = put("a%20b", refund("pay_demo", 10)).await;
    assert_eq!((first.body.clone(), &first.json()["reference"]), (again.body, &json!("a b")));
    let effects = it.effects("").await;
    assert_eq!((&effects["total"], &effects["applications"]["total"]), (&json!(1), &json!(2)));
    let changed = put("a%20b", refund("pay_demo", 4)).await;
    assert_eq!((changed.id(), &changed.json()["amount"]), (first.id(), &json!(4)));
    assert_eq!(it.count("pay_demo").await, 2);
    assert_eq!(it.get("/natural/v1/payments/pay_demo").await.json()["refunded"], 4);
    assert_eq!(it.get("/natural/v1/refunds/a%20b").await.json()["amount"], 4);
    assert_eq!(put("a%20b", refund("pay_demo2", 4)).await.status, 400);
    // All that remains, twice, is the same state.
    let all = put("all", json!({"payment": "pay_demo"})).await;
    assert_eq!(all.json()["amount"], 999_996);
    assert_eq!(put("all", json!({"payment": "pay_demo"})).await.body, all.body);
    assert_eq!(it.effects("").await["total"], 3);
}

#[tokio::test]
async fn none_applies_each() {
    let it = Stand::new().await;
    for _ in 0..3 {
        assert_eq!(it.post("/none/v1/refunds", Some("k"), refund("pay_demo", 1)).await.status, 200);
    }
    assert_eq!(it.effects("key=k&class=none").await["total"], 3);
}

#[tokio::test]
async fn vendors_keep_successes_only_in_their_own_way() {
    let it = Stand::new().await;
    let mail = json!({"from": "a", "to": ["b"], "subject": "s", "html": "h"});
    let first = it.post("/resend/v1/emails", Some("k"), mail.clone()).await;
    assert_eq!(first.json(), json!({"id": first.id()}));
    let again = it.post("/resend/v1/emails", Some("k"), mail).await;
    assert_eq!((&again.body, again.replayed()), (&first.body, false));
    let other = it.post("/resend/v1/emails", Some("k"), json!({"to": "c", "subject": "s"})).await;
    assert_eq!((other.status, &other.json()["name"]), (409, &json!("invalid_idempotent_request")));
    assert_eq!(it.get(&format!("/resend/v1/emails/{}", first.id())).await.json()["subject"], "s");

    let first = it.post("/increase/v1/transfers", Some("k"), json!({"amount": 1, "account_id": "acc"})).await;
    let again = it.post("/increase/v1/transfers", Some("k"), json!({"amount": 1, "account_id": "acc"})).await;
    assert_eq!((first.body.clone(), again.replayed()), (again.body.clone(), true));
    let other =
        it.post("/increase/v1/transfers", Some("k"), json!({"amount": 2, "account_id": "acc"})).await.json();
    assert_eq!(other["type"], "idempotency_key_already_used_error");
    assert_eq!((&other["resource_id"], &other["status"]), (&json!(first.id()), &json!(409)));
    let listed = it.get("/increase/v1/transfers?idempotency_key=k").await.json();
    assert_eq!(listed["data"][0]["id"], json!(first.id()));

    // Neither the route nor the body is compared, and a refusal is not kept.
    let refused = it.post("/modern_treasury/v1/refunds", Some("k"), refund("pay_nope", 1)).await;
    assert_eq!((refused.status, &refused.json()["errors"]["code"]), (404, &json!("resource_missing")));
    let first = it.post("/modern_treasury/api/payment_orders", Some("k"), json!({"amount": 7})).await;
    let again = it.post("/modern_treasury/v1/refunds", Some("k"), refund("pay_demo", 1)).await;
    assert_eq!((first.id(), again.status), (again.id(), 200));
    assert_eq!(it.count("pay_demo").await, 0);
}
