//! Every way to ask `POST /api/v1/exec` wrongly: each is told what is wrong, and nothing runs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::ask::{JSON, REFUND, ask, at, refund, serve};
use common::{Dir, effects};
use serde_json::{Value, json};

/// What is wrong, the method, the headers, the body; the status, the word and a part of the text of the answer.
type Row<'a> = (&'a str, &'a str, Vec<(&'a str, &'a str)>, String, u16, &'a str, &'a str);

#[test]
fn every_wrong_request_is_told_what_is_wrong_and_nothing_runs() {
    let dir = Dir::new();
    let served = serve(&dir);
    let (at, sandbox) = (at(&served), served.sandbox().to_owned());
    let good = json!({ "id": REFUND, "arguments": refund("bad"), "key": "k" }).to_string();
    let with = |members: Value| {
        let mut body = json!({ "id": REFUND, "arguments": refund("bad") });
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        body.to_string()
    };
    let long = "x".repeat(256);
    let deep = format!(r#"{{"id":"{REFUND}","arguments":{}1{}}}"#, r#"{"a":"#.repeat(70), "}".repeat(70));
    let large = format!(r#"{{"id":"{REFUND}","key":"{}"}}"#, "x".repeat(5 << 20));
    let rows: Vec<Row<'_>> = vec![
        ("another method", "GET", vec![], String::new(), 405, "method_not_allowed", "POST only"),
        ("no content type", "POST", vec![], good.clone(), 415, "unsupported_media_type", "application/json"),
        (
            "a form",
            "POST",
            vec![("content-type", "application/x-www-form-urlencoded")],
            good.clone(),
            415,
            "unsupported_media_type",
            "application/json",
        ),
        (
            "no JSON wanted",
            "POST",
            vec![JSON, ("accept", "text/html")],
            good.clone(),
            406,
            "not_acceptable",
            "Accept",
        ),
        (
            "a foreign host",
            "POST",
            vec![JSON, ("host", "evil.example.com")],
            good.clone(),
            403,
            "forbidden",
            "Host",
        ),
        (
            "a foreign page",
            "POST",
            vec![JSON, ("origin", "https://evil.example.com")],
            good.clone(),
            403,
            "forbidden",
            "Origin",
        ),
        (
            "a page without origin",
            "POST",
            vec![JSON, ("origin", "null")],
            good.clone(),
            403,
            "forbidden",
            "Origin",
        ),
        ("empty", "POST", vec![JSON], String::new(), 400, "usage", "not a JSON object"),
        ("torn JSON", "POST", vec![JSON], good[..20].to_owned(), 400, "usage", "not a JSON object"),
        ("a list", "POST", vec![JSON], "[]".into(), 400, "usage", "not a JSON object"),
        (
            "two members of one name",
            "POST",
            vec![JSON],
            r#"{"id":"a","id":"b"}"#.into(),
            400,
            "usage",
            "two members",
        ),
        ("too deep", "POST", vec![JSON], deep, 400, "usage", "nested deeper"),
        ("too large", "POST", vec![JSON], large, 413, "too_large", "larger than"),
        ("no id", "POST", vec![JSON], "{}".into(), 400, "usage", "id is missing"),
        (
            "an unknown id",
            "POST",
            vec![JSON],
            r#"{"id":"no.such"}"#.into(),
            404,
            "unknown_method",
            "there is no method",
        ),
        (
            "an unknown member",
            "POST",
            vec![JSON],
            with(json!({ "argument": {} })),
            400,
            "usage",
            "there is no member",
        ),
        (
            "another principal",
            "POST",
            vec![JSON],
            with(json!({ "principal": "operator" })),
            400,
            "usage",
            "caller's own",
        ),
        (
            "arguments of a wrong type",
            "POST",
            vec![JSON],
            with(json!({ "arguments": [1] })),
            400,
            "usage",
            "must be an object",
        ),
        (
            "arguments that don't fit",
            "POST",
            vec![JSON],
            with(json!({ "arguments": { "payment": 1 } })),
            400,
            "bad_arguments",
            "don't fit",
        ),
        (
            "a key of a wrong type",
            "POST",
            vec![JSON],
            with(json!({ "key": 1 })),
            400,
            "usage",
            "key: must be a string",
        ),
        ("an empty key", "POST", vec![JSON], with(json!({ "key": "" })), 400, "usage", "is empty"),
        ("a key too long", "POST", vec![JSON], with(json!({ "key": long })), 400, "usage", "at most 255"),
        (
            "a key with blanks",
            "POST",
            vec![JSON],
            with(json!({ "key": "a b" })),
            400,
            "usage",
            "visible ASCII",
        ),
        (
            "no operation's id",
            "POST",
            vec![JSON],
            with(json!({ "key": "op_x" })),
            400,
            "usage",
            "operation ids",
        ),
        (
            "a bad key header",
            "POST",
            vec![JSON, ("idempotency-key", "\"a")],
            good.clone(),
            400,
            "usage",
            "RFC 8941",
        ),
        ("two keys", "POST", vec![JSON, ("idempotency-key", "k2")], good.clone(), 400, "usage", "disagree"),
        (
            "key and operation",
            "POST",
            vec![JSON],
            with(json!({ "key": "k", "operation": "o" })),
            400,
            "usage",
            "one of the two",
        ),
        (
            "key header and operation",
            "POST",
            vec![JSON, ("idempotency-key", "k")],
            with(json!({ "operation": "o" })),
            400,
            "usage",
            "one of the two",
        ),
        (
            "an operation too long",
            "POST",
            vec![JSON],
            with(json!({ "operation": long })),
            400,
            "usage",
            "at most 255",
        ),
        (
            "a step without operation",
            "POST",
            vec![JSON],
            with(json!({ "step": "s" })),
            400,
            "usage",
            "belongs to an `operation`",
        ),
        (
            "a step too long",
            "POST",
            vec![JSON],
            with(json!({ "operation": "o", "step": long })),
            400,
            "usage",
            "at most 255",
        ),
        (
            "a dry run that is no flag",
            "POST",
            vec![JSON],
            with(json!({ "dryRun": 1 })),
            400,
            "usage",
            "true or false",
        ),
    ];
    for (what, method, headers, body, status, word, text) in rows {
        let answer = ask(&at, method, "/api/v1/exec", &headers, &body);
        assert_eq!((answer.status, answer.word().as_str()), (status, word), "{what}: {}", answer.body);
        assert!(answer.body.contains(text), "{what}: {}", answer.body);
        assert!(answer.body.contains("othing ran"), "{what}: {}", answer.body);
        assert!(answer.body.len() < 2000, "{what}");
    }
    assert_eq!(ask(&at, "GET", "/api/v1/exec", &[], "").header("allow"), Some("POST"));
    assert_eq!(effects(&sandbox, "bad"), 0);
    // All else of the operators' API stays on its socket.
    for path in ["/api/v1/ops", "/api/v1/api-keys", "/v1/exec", "/v1/ops"] {
        assert_eq!(ask(&at, "GET", path, &[], "").status, 404, "{path}");
    }
    assert_eq!(served.stop(), 0);
}
