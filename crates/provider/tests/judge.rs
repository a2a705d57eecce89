//! The judgement of outcomes: a table of cases by name, and rules that hold for every status of every preset.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
use common::integration;
use counterfoil_provider::judge::{Answer, Judged, Observation, judge};
use counterfoil_provider::{HttpIntent, Integration, Preset};
use http::{HeaderMap, HeaderName, HeaderValue};
use ledger::{Millis, Recovery, Sent, Strategy};
use serde_json::{Value, json};

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Observation {
    let mut map = HeaderMap::new();
    for (n, v) in headers {
        map.insert(HeaderName::try_from(*n).unwrap(), HeaderValue::from_str(v).unwrap());
    }
    Observation::Answer(Answer { status, headers: map, body: body.to_owned().into() })
}

/// The policy that an intent of this preset pins, seen through the intent itself.
fn policy_of(i: &Integration, strategy: Strategy) -> counterfoil_provider::judge::Policy {
    let intent = i.method("m").unwrap().intent("{}", &Recovery::new(strategy)).unwrap();
    let raw: Value = serde_json::from_slice(&intent.body).unwrap();
    HttpIntent::decode(&intent.body).unwrap();
    serde_json::from_value(raw["policy"].clone()).unwrap()
}
fn of(preset: &str) -> counterfoil_provider::judge::Policy {
    policy_of(
        &integration(&format!("preset = \"{preset}\""), "[methods.m]\nhttp = \"POST /a\""),
        Strategy::Key,
    )
}

/// One word for a judgement.
fn word(j: &Judged) -> &'static str {
    match j {
        Judged::Existing { .. } => "existing",
        Judged::Sent(Sent::NotSent { .. }) => "not sent",
        Judged::Sent(Sent::Applied(_)) => "applied",
        Judged::Sent(Sent::Refused(_)) => "refused",
        Judged::Sent(Sent::NotApplied { .. }) => "not applied",
        Judged::Sent(Sent::Withheld { .. }) => "withheld",
        Judged::Sent(Sent::Unknown { stored: true, .. }) => "unknown, stored",
        Judged::Sent(Sent::Unknown { .. }) => "unknown",
    }
}

#[test]
fn the_table() {
    let replayed = [("idempotent-replayed", "true")];
    let wait = [("retry-after", "2")];
    let declined = r#"{"error":{"type":"card_error","code":"card_declined"}}"#;
    let in_use = r#"{"error":{"code":"idempotency_key_in_use"}}"#;
    let mismatch = r#"{"error":{"type":"idempotency_error"}}"#;
    // preset, answer, first send, replay
    let table: Vec<(&str, Observation, &str, &str)> = vec![
        ("stripe", Observation::NotSent("refused".into()), "not sent", "not sent"),
        ("stripe", Observation::ConnectionLost("reset".into()), "unknown", "unknown"),
        ("stripe", Observation::Timeout, "unknown", "unknown"),
        ("stripe", Observation::Torn("eof".into()), "unknown", "unknown"),
        ("stripe", Observation::TooLarge(1), "unknown", "unknown"),
        ("stripe", answer(200, &[], "{}"), "applied", "applied"),
        ("stripe", answer(200, &replayed, "{}"), "applied", "applied"),
        ("stripe", answer(201, &[], " [1] \n"), "applied", "applied"),
        ("stripe", answer(204, &[], ""), "applied", "applied"),
        ("stripe", answer(200, &[], "<html>welcome</html>"), "unknown", "unknown"),
        ("stripe", answer(200, &[], "{\"a\":1"), "unknown", "unknown"),
        ("stripe", answer(302, &[("location", "/x")], ""), "unknown", "unknown"),
        ("stripe", answer(402, &[], declined), "refused", "refused"),
        ("stripe", answer(402, &replayed, declined), "refused", "refused"),
        ("stripe", answer(400, &[], "{}"), "refused", "unknown, stored"),
        ("stripe", answer(400, &replayed, "{}"), "refused", "refused"),
        ("stripe", answer(400, &[], mismatch), "refused", "unknown, stored"),
        ("stripe", answer(401, &[], "{}"), "refused", "unknown"),
        ("stripe", answer(403, &[], "{}"), "refused", "unknown"),
        ("stripe", answer(404, &[], "{}"), "refused", "unknown, stored"),
        ("stripe", answer(409, &[], in_use), "unknown", "unknown"),
        ("stripe", answer(409, &[], "{}"), "unknown", "unknown"),
        ("stripe", answer(409, &replayed, "{}"), "unknown, stored", "unknown, stored"),
        ("stripe", answer(424, &[], "{}"), "unknown", "unknown"),
        ("stripe", answer(429, &[], "{}"), "not applied", "not applied"),
        ("stripe", answer(429, &wait, "{}"), "not applied", "not applied"),
        ("stripe", answer(500, &[], "{}"), "unknown", "unknown"),
        ("stripe", answer(500, &replayed, "{}"), "unknown, stored", "unknown, stored"),
        ("stripe", answer(502, &[], "<html>"), "unknown", "unknown"),
        ("stripe", answer(503, &wait, ""), "unknown", "unknown"),
        ("resend", answer(409, &[], r#"{"name":"concurrent_idempotent_requests"}"#), "unknown", "unknown"),
        (
            "resend",
            answer(409, &[], r#"{"name":"invalid_idempotent_request"}"#),
            "refused",
            "unknown, stored",
        ),
        ("resend", answer(422, &[], "{}"), "refused", "unknown, stored"),
        ("resend", answer(429, &wait, "{}"), "unknown", "unknown"),
        ("resend", answer(500, &replayed, "{}"), "unknown", "unknown"),
        (
            "increase",
            answer(409, &[], r#"{"type":"idempotency_key_already_used_error","resource_id":"t_1"}"#),
            "existing",
            "existing",
        ),
        (
            "increase",
            answer(409, &[], r#"{"type":"idempotency_key_already_used_error"}"#),
            "unknown, stored",
            "unknown, stored",
        ),
        ("increase", answer(409, &[], r#"{"type":"invalid_operation_error"}"#), "unknown", "unknown"),
        ("modern_treasury", answer(409, &[], "{}"), "unknown", "unknown"),
        ("modern_treasury", answer(422, &[], "{}"), "refused", "unknown, stored"),
        (
            "square",
            answer(400, &[], r#"{"errors":[{"code":"IDEMPOTENCY_KEY_REUSED"}]}"#),
            "refused",
            "unknown, stored",
        ),
        ("square", answer(409, &[], r#"{"errors":[{"code":"CONFLICT"}]}"#), "unknown", "unknown"),
        ("square", answer(402, &[], "{}"), "refused", "unknown, stored"),
        ("square", answer(429, &wait, "{}"), "unknown", "unknown"),
        (
            "paypal",
            answer(422, &[], r#"{"details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}"#),
            "unknown",
            "unknown",
        ),
        (
            "paypal",
            answer(422, &[], r#"{"details":[{"issue":"DUPLICATE_REQUEST_ID"}]}"#),
            "refused",
            "unknown, stored",
        ),
        ("paypal", answer(201, &[], r#"{"status":"COMPLETED"}"#), "applied", "applied"),
        ("adyen", answer(422, &[], r#"{"errorCode":"704"}"#), "unknown", "unknown"),
        (
            "adyen",
            answer(422, &[("idempotency-key", "k")], r#"{"errorCode":"14_006"}"#),
            "refused",
            "unknown, stored",
        ),
        ("checkout", answer(429, &[], "{}"), "unknown", "unknown"),
        ("checkout", answer(422, &[], "{}"), "refused", "unknown, stored"),
        ("checkout", answer(503, &wait, "{}"), "unknown", "unknown"),
        ("aws", answer(400, &[], "<Code>IdempotentParameterMismatch</Code>"), "refused", "unknown, stored"),
        ("aws", answer(409, &[], r#"{"__type":"ConflictException"}"#), "refused", "unknown, stored"),
        (
            "aws",
            answer(409, &[], r#"{"__type":"com.amazonaws.a#ConflictException"}"#),
            "refused",
            "unknown, stored",
        ),
        ("aws", answer(409, &[], r#"{"__type":"com.amazonaws.a#OtherException"}"#), "unknown", "unknown"),
        ("none", answer(402, &[], "{}"), "refused", "unknown, stored"),
        ("none", answer(409, &[], "{}"), "unknown", "unknown"),
        ("none", answer(429, &wait, "{}"), "unknown", "unknown"),
        ("none", answer(408, &[], ""), "unknown", "unknown"),
    ];
    for (preset, seen, first, again) in table {
        let p = of(preset);
        assert_eq!(word(&judge(&p, false, &seen)), first, "{preset}, first send: {seen:?}");
        assert_eq!(word(&judge(&p, true, &seen)), again, "{preset}, replay: {seen:?}");
    }
}

#[test]
fn what_holds_for_every_status_of_every_preset() {
    for preset in Preset::names() {
        let p = of(preset);
        for status in 100..=599u16 {
            for replay in [false, true] {
                for marked in [false, true] {
                    for wait in [false, true] {
                        let mut headers = vec![];
                        if marked {
                            headers.push(("idempotent-replayed", "true"));
                        }
                        if wait {
                            headers.push(("retry-after", "1"));
                        }
                        let got = word(&judge(&p, replay, &answer(status, &headers, "{}")));
                        let case =
                            format!("{preset} {status} replay={replay} marked={marked} wait={wait}: {got}");
                        match status {
                            200..300 => assert_eq!(got, "applied", "{case}"),
                            500.. => assert!(got.starts_with("unknown"), "{case}"),
                            100..200 | 300..400 | 408 | 409 | 425 => {
                                assert!(got.starts_with("unknown"), "{case}")
                            }
                            _ => assert_ne!(got, "applied", "{case}"),
                        }
                        // A refusal of a replay settles only where the answer is the first one, or can be no other.
                        if replay && got == "refused" {
                            assert!(
                                marked && p.replay_marker.is_some() || p.replay_definite.contains(&status),
                                "{case}"
                            );
                        }
                        // Only a provider that stores failures, and says that it replays one, makes replays useless.
                        if got == "unknown, stored" && status >= 500 {
                            assert!(marked && p.caches_all, "{case}");
                        }
                        if got == "not applied" {
                            assert!(p.not_applied.contains(&status), "{case}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_503_is_only_not_applied_with_retry_after() {
    let i = integration(
        "[execution_policy.idempotency]\nnot_applied = [429, 503]",
        "[methods.m]\nhttp = \"POST /a\"",
    );
    let p = policy_of(&i, Strategy::None);
    assert_eq!(word(&judge(&p, false, &answer(503, &[], ""))), "unknown");
    assert_eq!(word(&judge(&p, false, &answer(503, &[("retry-after", "5")], ""))), "not applied");
}

#[test]
fn retry_after_is_read_from_the_answer_alone() {
    let wait = |headers: &[(&str, &str)]| match judge(&of("stripe"), false, &answer(429, headers, "")) {
        Judged::Sent(Sent::NotApplied { retry_after, .. }) => retry_after,
        other => panic!("{other:?}"),
    };
    assert_eq!(wait(&[("retry-after", "2")]), Some(Millis::secs(2)));
    assert_eq!(
        wait(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), ("date", "Sun, 06 Nov 1994 08:49:07 GMT")]),
        Some(Millis::secs(30))
    );
    assert_eq!(
        wait(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), ("date", "Sun, 06 Nov 1994 08:50:07 GMT")]),
        Some(Millis(0))
    );
    assert_eq!(wait(&[("retry-after", "4000000000")]), Some(Millis::secs(86_400)));
    for bad in ["", "-1", "soon", "1.5", "Sun, 06 Nov 1994 08:49:37 GMT"] {
        assert_eq!(wait(&[("retry-after", bad)]), None, "{bad}");
    }
    match judge(&of("stripe"), true, &answer(503, &[("retry-after", "3")], "")) {
        Judged::Sent(Sent::Unknown { retry_after, .. }) => assert_eq!(retry_after, Some(Millis::secs(3))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_repeated_delete_that_finds_nothing_has_done_its_work() {
    let i = integration("", "[methods.m]\nhttp = \"DELETE /a\"\nrecovery = \"natural\"");
    let gone = answer(404, &[], "{}");
    assert_eq!(word(&judge(&policy_of(&i, Strategy::Natural), true, &gone)), "applied");
    assert_eq!(word(&judge(&policy_of(&i, Strategy::Natural), false, &gone)), "refused");
    assert_ne!(word(&judge(&policy_of(&i, Strategy::None), true, &gone)), "applied");
}

#[test]
fn an_api_that_answers_something_else_than_json() {
    let i = integration("", "[methods.m]\nhttp = \"POST /a\"\nanswers = \"any\"");
    assert_eq!(word(&judge(&policy_of(&i, Strategy::None), false, &answer(200, &[], "<ok/>"))), "applied");
}

#[test]
fn receipts_keep_the_answer() {
    let Judged::Sent(Sent::Applied(r)) =
        judge(&of("stripe"), false, &answer(200, &[("content-type", "application/json")], "{\"a\": 1.0}\n"))
    else {
        panic!("not applied")
    };
    let kept: Value = serde_json::from_slice(&r.0).unwrap();
    assert_eq!(kept, json!({"status": 200, "content_type": "application/json", "json": {"a": 1.0}}));
    assert!(String::from_utf8(r.0).unwrap().contains("{\"a\": 1.0}"));
}
