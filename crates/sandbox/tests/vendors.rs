//! Square, PayPal, Adyen, Checkout.com and AWS: where each looks for its key, and what a second request gets.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::time::Duration;

use common::{Reply, Stand, nap, parse};
use counterfoil_sandbox::Tuning;
use serde_json::{Value, json};

/// Prefix, and where the key goes: a header's name or a body field's.
const VENDORS: [(&str, &str, bool); 6] = [
    ("/square/v2", "idempotency_key", true),
    ("/paypal/v2", "PayPal-Request-Id", false),
    ("/adyen/v71", "Idempotency-Key", false),
    ("/checkout", "Cko-Idempotency-Key", false),
    ("/aws", "ClientToken", true),
    ("/aws", "clientToken", true),
];
const JSON: (&str, &str) = ("Content-Type", "application/json");

fn pay(amount: u64) -> Value {
    json!({"amount": amount, "currency": "eur", "order_id": "o"})
}

/// A payment under a key, as the vendor takes it.
async fn send(it: &Stand, (prefix, name, body): (&str, &str, bool), key: &str, mut pay: Value) -> Reply {
    let path = format!("{prefix}/payments");
    if body {
        pay[name] = json!(key);
        return parse(&it.exchange("POST", &path, &[JSON], pay.to_string().as_bytes()).await);
    }
    parse(&it.exchange("POST", &path, &[JSON, (name, key)], pay.to_string().as_bytes()).await)
}

#[tokio::test]
async fn a_repeat_is_no_second_effect_and_the_key_is_no_parameter() {
    let it = Stand::new().await;
    for vendor in VENDORS {
        it.post("/_sandbox/reset", None, json!({})).await;
        let first = send(&it, vendor, "k1", pay(5)).await;
        assert_eq!(first.json()["amount"], 5, "{vendor:?}");
        assert!(first.json().get("ClientToken").is_none() && first.json().get("clientToken").is_none());
        let again = send(&it, vendor, "k1", pay(5)).await;
        assert_eq!((again.id(), again.replayed()), (first.id(), false), "{vendor:?}");
        assert_ne!(send(&it, vendor, "k2", pay(5)).await.id(), first.id(), "{vendor:?}");
        let effects = it.effects("").await;
        assert_eq!(
            (&effects["total"], &effects["byKey"]),
            (&json!(2), &json!({"k1": 1, "k2": 1})),
            "{vendor:?}"
        );
        // Elsewhere than the vendor looks it is no key, or no parameter.
        if !vendor.2 {
            let stray = it
                .post(
                    &format!("{}/payments", vendor.0),
                    None,
                    json!({"amount": 1, "currency": "eur", "idempotency_key": "k"}),
                )
                .await;
            assert_eq!(stray.status, 400, "{vendor:?}");
        }
    }
    // A header that the vendor does not know is ignored: twice is two.
    for prefix in ["/square/v2", "/paypal/v2", "/checkout", "/aws"] {
        it.post("/_sandbox/reset", None, json!({})).await;
        for _ in 0..2 {
            it.post(&format!("{prefix}/payments"), Some("k"), pay(1)).await.id();
        }
        assert_eq!(it.effects("").await["byKey"], json!({"(none)": 2}), "{prefix}");
    }
}

#[tokio::test]
async fn another_body_under_the_key() {
    let it = Stand::new().await;
    let mut answers = Vec::new();
    for vendor in VENDORS {
        it.post("/_sandbox/reset", None, json!({})).await;
        let first = send(&it, vendor, "k", pay(5)).await;
        let other = send(&it, vendor, "k", pay(6)).await;
        if other.status == 200 {
            assert_eq!(other.id(), first.id());
        }
        answers.push((other.status, other.json()));
        assert_eq!(it.count("o").await, 1, "{vendor:?}");
    }
    let at = |n: usize, pointer: &str| (answers[n].0, answers[n].1.pointer(pointer).cloned().unwrap());
    assert_eq!(at(0, "/errors/0/code"), (400, json!("IDEMPOTENCY_KEY_REUSED")));
    assert_eq!(at(1, "/details/0/issue"), (422, json!("DUPLICATE_REQUEST_ID")));
    assert_eq!((answers[2].0, answers[3].0), (200, 200));
    assert_eq!(at(4, "/__type"), (409, json!("com.amazonaws.sandbox#ConflictException")));
    // The query protocol.
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    it.exchange("POST", "/aws/payments", &form, b"amount=1&currency=eur&ClientToken=f").await;
    let other =
        parse(&it.exchange("POST", "/aws/payments", &form, b"amount=2&currency=eur&ClientToken=f").await);
    assert_eq!(
        (other.status, &other.json()["__type"]),
        (400, &json!("com.amazonaws.sandbox#IdempotentParameterMismatch"))
    );
}

#[tokio::test]
async fn while_the_first_runs() {
    let it = Stand::tuned(Tuning { in_flight: Duration::from_millis(300), ..Tuning::default() }).await;
    let mut answers = Vec::new();
    for vendor in VENDORS {
        it.post("/_sandbox/reset", None, json!({})).await;
        let late = async {
            nap(100).await;
            send(&it, vendor, "k", pay(5)).await
        };
        let (first, second) = tokio::join!(send(&it, vendor, "k", pay(5)), late);
        assert_eq!(first.status, 200, "{vendor:?}");
        answers.push((second.status, second.json()));
        assert_eq!(it.count("o").await, 1, "{vendor:?}");
    }
    let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [409, 422, 422, 429, 409, 409]);
    assert_eq!(answers[1].1["details"][0]["issue"], "PREVIOUS_REQUEST_IN_PROGRESS");
    assert_eq!(answers[2].1["errorCode"], "704");
}

#[tokio::test]
async fn only_successes_are_kept_and_errors_have_the_vendors_shape() {
    let it = Stand::new().await;
    for vendor in VENDORS {
        it.post("/_sandbox/reset", None, json!({})).await;
        let declined = send(&it, vendor, "k", pay(40_200)).await;
        assert_eq!(declined.status, 402, "{vendor:?}");
        let code = match vendor.0 {
            "/square/v2" => declined.json()["errors"][0]["code"].clone(),
            "/paypal/v2" => declined.json()["details"][0]["issue"].clone(),
            "/adyen/v71" => declined.json()["errorCode"].clone(),
            "/checkout" => declined.json()["error_codes"][0].clone(),
            _ => declined.json()["__type"].clone(),
        };
        assert!(code.as_str().unwrap().to_lowercase().ends_with("card_declined"), "{vendor:?}: {code}");
        it.rule(json!({"on": format!("POST {}/payments", vendor.0), "do": "fail"})).await;
        assert_eq!(send(&it, vendor, "k", pay(5)).await.status, 500, "{vendor:?}");
        // The same key, carried out at last.
        assert_eq!(send(&it, vendor, "k", pay(5)).await.json()["amount"], 5, "{vendor:?}");
        assert_eq!(it.count("o").await, 1, "{vendor:?}");
    }
}

#[tokio::test]
async fn converging_answers_and_stored_ones() {
    let mut it = Stand::new().await;
    for vendor in VENDORS {
        it.post("/_sandbox/reset", None, json!({})).await;
        let first = send(&it, vendor, "k", pay(5)).await;
        it.post(&format!("{}/refunds", vendor.0), None, json!({"payment": first.id(), "amount": 2})).await;
        it.restart().await;
        let again = send(&it, vendor, "k", pay(5)).await;
        let now = ["/paypal/v2", "/aws"].contains(&vendor.0);
        assert_eq!(again.json()["refunded"], if now { 2 } else { 0 }, "{vendor:?}");
        assert_eq!(again.body == first.body, !now, "{vendor:?}");
    }
    // Adyen sends the key back, to a first request and to a repeat alike.
    for _ in 0..2 {
        assert_eq!(send(&it, VENDORS[2], "e", pay(5)).await.header("idempotency-key"), Some("e"));
    }
}

#[tokio::test]
async fn keys_that_lapse_or_do_not_fit() {
    let it = Stand::tuned(Tuning { retention: Duration::from_millis(150), ..Tuning::default() }).await;
    for vendor in VENDORS {
        it.post("/_sandbox/reset", None, json!({})).await;
        let first = send(&it, vendor, "k", pay(5)).await.id();
        nap(200).await;
        assert_ne!(send(&it, vendor, "k", pay(5)).await.id(), first, "{vendor:?}");
        it.rule(json!({"on": format!("POST {}/payments", vendor.0), "do": "forget_keys"})).await;
        send(&it, vendor, "k", pay(5)).await.id();
        assert_eq!(it.count("o").await, 3, "{vendor:?}");
    }
    for (vendor, longest) in VENDORS.into_iter().zip([45, 108, 64, 255, 64, 64]) {
        assert_eq!(send(&it, vendor, &"k".repeat(longest), pay(5)).await.status, 200, "{vendor:?}");
        assert_eq!(send(&it, vendor, &"k".repeat(longest + 1), pay(5)).await.status, 400, "{vendor:?}");
    }
    for bad in [json!(""), json!(5), json!(null), json!({})] {
        let mut body = pay(5);
        body["idempotency_key"] = bad.clone();
        assert_eq!(it.post("/square/v2/payments", None, body).await.status, 400, "{bad}");
    }
    let mut both = pay(5);
    (both["ClientToken"], both["clientToken"]) = (json!("a"), json!("b"));
    assert_eq!(it.post("/aws/payments", None, both).await.status, 400);
    // Payments of Checkout.com can be asked for by their reference.
    let mut body = pay(5);
    body["reference"] = json!("ref 1");
    it.post("/checkout/payments", None, body).await.id();
    let found = it.get("/checkout/payments?reference=ref%201").await.json();
    assert_eq!(found["data"].as_array().unwrap().len(), 1);
}
