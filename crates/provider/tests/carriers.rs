//! Where a key travels, seen on the wire; and that no model sees it or fills it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{KEY, body, integration, key, parse, request};
use counterfoil_provider::{ConfigCredentials, HttpExecutor, Integration, KeyScope};
use ledger::{Executor, Intent, Millis, Sent};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The bytes of one send of method `m`, as a server received them.
async fn wire(head: &str, method: &str, args: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let i =
        parse(&format!("name = \"p\"\nbase_url = \"http://{at}\"\n{head}\n[methods.m]\n{method}")).unwrap();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = String::new();
        loop {
            let mut some = [0; 4096];
            let n = stream.read(&mut some).await.unwrap();
            seen.push_str(std::str::from_utf8(&some[..n]).unwrap());
            let Some((head, body)) = seen.split_once("\r\n\r\n") else { continue };
            let length = head
                .lines()
                .find_map(|l| l.strip_prefix("content-length: "))
                .map_or(0, |n| n.parse().unwrap());
            if body.len() >= length {
                break;
            }
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
            .await
            .unwrap();
        seen
    };
    let executor = HttpExecutor::new(Arc::new(ConfigCredentials::load(std::slice::from_ref(&i)).unwrap()));
    let intent = intent(&i, args);
    let key = key();
    let (seen, sent) = tokio::join!(server, executor.send(&intent, &key, false, Millis(5000)));
    assert!(matches!(sent, Sent::Applied(_)), "{sent:?}");
    seen
}

fn intent(i: &Integration, args: &str) -> Intent {
    let m = i.method("m").unwrap();
    m.intent(args, &m.recovery(None).unwrap()).unwrap()
}

#[tokio::test]
async fn each_carrier_on_the_wire() {
    let post = "http = \"POST /payments\"";
    let own = "http = \"POST /payments\"\nidempotency = { mode = \"dynamic\" }";
    let quoted = "http = \"POST /payments\"\nidempotency = { quote = true }";
    let renamed = "http = \"POST /payments\"\nidempotency = { name = \"clientToken\" }";
    let form = "http = \"POST /payments\"\nbody = \"form\"";
    let amz = "http = \"POST /payments\"\nheaders = { \"X-Amz-Target\" = \"CloudApiService.CreateResource\" }\ncontent_type = \"application/x-amz-json-1.0\"";
    let bare = |name: &str| format!("\r\n{name}: {KEY}\r\n");
    for (preset, method, has) in [
        ("square", post, format!("\r\n\r\n{{\"a\":1.50,\"idempotency_key\":\"{KEY}\"}}")),
        ("paypal", own, bare("paypal-request-id")),
        ("adyen", post, bare("idempotency-key")),
        // A string of RFC 8941, as the IETF draft has it.
        ("adyen", quoted, format!("\r\nidempotency-key: \"{KEY}\"\r\n")),
        ("checkout", post, bare("cko-idempotency-key")),
        ("checkout", quoted, format!("\r\ncko-idempotency-key: \"{KEY}\"\r\n")),
        ("stripe", post, bare("idempotency-key")),
        ("aws", form, format!("\r\n\r\na=1.50&ClientToken={KEY}")),
        ("aws", post, format!("\r\n\r\n{{\"a\":1.50,\"ClientToken\":\"{KEY}\"}}")),
        ("aws", renamed, format!("\r\n\r\n{{\"a\":1.50,\"clientToken\":\"{KEY}\"}}")),
        ("aws", amz, "\r\ncontent-type: application/x-amz-json-1.0\r\n".to_owned()),
    ] {
        let head = format!("preset = \"{preset}\"\nexecution_policy.idempotency.mode = \"dynamic\"");
        let seen = wire(&head, method, r#"{"a":1.50}"#).await;
        assert!(seen.contains(&has), "{preset} {method}: {seen}");
        assert_eq!(seen.matches(KEY).count(), 1, "{preset} {method}: {seen}");
    }
}

#[test]
fn no_model_sees_the_field_that_carries_the_key() {
    let schema = |head: &str, method: &str| {
        integration(head, &format!("[methods.m]\nhttp = \"POST /a\"\n{method}"))
            .method("m")
            .unwrap()
            .input_schema()
            .clone()
    };
    let square = "preset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"";
    // As copied from the provider's own description.
    let declared = "input = { type = \"object\", required = [\"idempotency_key\", \"amount\"], properties = { idempotency_key = { type = \"string\" }, amount = { type = \"integer\" } } }";
    assert_eq!(
        schema(square, declared),
        json!({"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}}})
    );
    assert!(!schema(square, "").to_string().contains("idempotency_key"));
    for method in [
        "http = \"POST /a\"\nparams = { idempotency_key = \"query\" }",
        "http = \"POST /a/{idempotency_key}\"",
    ] {
        let e = parse(&format!(
            "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n{square}\n[methods.m]\n{method}"
        ));
        assert!(e.unwrap_err().message.contains("another name"), "{method}");
    }
    let deep =
        "[execution_policy.idempotency]\nmode = \"dynamic\"\ncarrier = \"body\"\nname = \"input.token\"";
    let declared = "input = { type = \"object\", properties = { input = { type = \"object\", required = [\"token\"], properties = { token = {}, x = {} } } } }";
    assert_eq!(
        schema(deep, declared)["properties"]["input"],
        json!({"type": "object", "required": [], "properties": {"x": {}}})
    );
    // Without a key the field is an ordinary one.
    let off = "input = { type = \"object\", properties = { idempotency_key = {} } }\nidempotency = { mode = \"none\" }";
    assert!(schema(square, off).to_string().contains("idempotency_key"));
}

#[test]
fn no_caller_fills_it() {
    for (head, method, args) in [
        (
            "preset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"",
            "",
            r#"{"idempotency_key":"mine"}"#,
        ),
        (
            "preset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"",
            "body = \"form\"",
            r#"{"idempotency_key":"mine"}"#,
        ),
        (
            "preset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"",
            "",
            r#"{"idempotency_key":null}"#,
        ),
        (
            "preset = \"aws\"\nexecution_policy.idempotency.mode = \"dynamic\"",
            "body = \"form\"",
            r#"{"ClientToken":"mine"}"#,
        ),
        (
            "[execution_policy.idempotency]\nmode = \"dynamic\"\ncarrier = \"body\"\nname = \"input.token\"",
            "",
            r#"{"input":{"token":"mine"}}"#,
        ),
    ] {
        let i = integration(head, &format!("[methods.m]\nhttp = \"POST /a\"\n{method}"));
        let e = request(&i, "m", args).unwrap_err();
        assert!(e.contains("filled by the gateway"), "{head} {args}: {e}");
    }
    let e = parse("name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\npreset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"\n[methods.m]\nhttp = \"POST /a\"\nparams = { k = \"body:idempotency_key\" }").unwrap_err();
    assert!(e.message.contains("carries the effect key") && e.line == Some(7), "{e}");
}

#[test]
fn a_key_only_where_the_provider_is_known_to_honour_it() {
    let key_of = |preset: &str, path: &str, extra: &str| {
        let i = integration(
            &format!("preset = \"{preset}\""),
            &format!("[methods.m]\nhttp = \"{path}\"\n{extra}"),
        );
        i.method("m").unwrap().key_carrier()
    };
    let header = |name: &str| Some(format!("header {name}"));
    assert_eq!(key_of("paypal", "POST /v2/checkout/orders", ""), header("PayPal-Request-Id"));
    assert_eq!(key_of("paypal", "POST /v2/checkout/orders/{id}/capture", ""), header("PayPal-Request-Id"));
    assert_eq!(key_of("checkout", "POST /payments/{id}/refunds", ""), header("Cko-Idempotency-Key"));
    for (preset, path) in [
        ("paypal", "POST /v1/payments/payouts"),
        ("paypal", "POST /v2/checkout/orders/{id}"),
        ("paypal", "POST /v2/checkout/orders/{id}/capture/x"),
        ("paypal", "GET /v2/checkout/orders"),
        ("checkout", "POST /payments/{id}/captures/{again}"),
        ("checkout", "POST /customers"),
    ] {
        assert_eq!(key_of(preset, path, ""), None, "{preset} {path}");
    }
    // What is honoured on some endpoints that are not known here is sent where a method says so.
    for preset in ["square", "aws", "truelayer"] {
        assert_eq!(key_of(preset, "POST /v2/payments", ""), None, "{preset}");
        assert!(
            key_of(preset, "POST /v2/payments", "idempotency = { mode = \"dynamic\" }").is_some(),
            "{preset}"
        );
        // Or says how long it is remembered there, or where it goes.
        for own in ["retention = \"36h\"", "name = \"token\""] {
            let said = format!("idempotency = {{ {own} }}");
            assert!(key_of(preset, "POST /v2/payments", &said).is_some(), "{preset} {own}");
        }
        let none = "idempotency = { mode = \"declared\", retention = \"36h\" }";
        assert_eq!(key_of(preset, "POST /v2/payments", none), None, "{preset}");
    }
    assert_eq!(
        key_of("paypal", "POST /v1/payments/payouts", "idempotency = { mode = \"dynamic\" }"),
        header("PayPal-Request-Id")
    );
    let e = parse("name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\npreset = \"checkout\"\n[methods.m]\nhttp = \"POST /customers\"\nrecovery = \"key\"").unwrap_err();
    assert!(e.message.contains("/payments/{}/captures") && e.message.contains("mode = \"dynamic\""), "{e}");
}

#[test]
fn the_scope_of_a_key_is_told_and_recorded() {
    for (preset, want) in [
        ("adyen", Some(KeyScope::Region)),
        ("aws", Some(KeyScope::Region)),
        ("modern_treasury", Some(KeyScope::ApiKey)),
        ("square", None),
    ] {
        let i = integration(
            &format!(
                "preset = \"{preset}\"\naccount = \"acme\"\nexecution_policy.idempotency.mode = \"dynamic\""
            ),
            "[methods.m]\nhttp = \"POST /a\"",
        );
        let m = i.method("m").unwrap();
        assert_eq!(m.key_scope(), want, "{preset}");
        let recorded: Value = serde_json::from_slice(&intent(&i, "{}").body).unwrap();
        assert_eq!(recorded.get("scope").and_then(Value::as_str), want.map(KeyScope::word), "{preset}");
        assert_eq!(recorded["account"], "acme");
        assert_eq!(recorded["base"], "http://127.0.0.1:1/base");
    }
    let i = integration(
        "preset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"",
        "[methods.m]\nhttp = \"POST /a\"\nidempotency = { scope = \"account\" }",
    );
    assert_eq!(i.method("m").unwrap().key_scope(), Some(KeyScope::Account));
}

#[test]
fn what_a_method_says_of_keys_is_checked() {
    let e = |method: &str| {
        parse(&format!(
            "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\npreset = \"adyen\"\n[methods.m]\n{method}"
        ))
        .unwrap_err()
        .message
    };
    assert!(e("http = \"GET /a\"\nidempotency = { retention = \"1h\" }").contains("only reads"));
    assert!(
        e("http = \"POST /a\"\nidempotency = { retention = \"1h\", margin = \"1h\" }")
            .contains("leaves nothing")
    );
    assert!(e("http = \"POST /a\"\nidempotency = { endpoints = [\"a\"] }").contains("begin with a slash"));
    assert!(e("http = \"POST /a\"\nidempotency = { scope = \"regoin\" }").contains("did you mean `region`"));
    assert!(e("http = \"POST /a\"\nbody = \"none\"\ncontent_type = \"text/plain\"").contains("no body"));
    assert!(e("http = \"POST /a\"\ncontent_type = \"text/\\nplain\"").contains("not a content type"));
    // A method's form without a body can't carry a key in one.
    let e = parse("name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\npreset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"\n[methods.m]\nhttp = \"POST /a\"\nbody = \"none\"").unwrap_err();
    assert!(e.message.contains("no body"), "{e}");
    let i = integration(
        "preset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"",
        "[methods.m]\nhttp = \"POST /a\"",
    );
    assert_eq!(body(&request(&i, "m", "{}").unwrap()), format!("{{\"idempotency_key\":\"{KEY}\"}}"));
}

#[test]
fn what_is_said_of_answers_is_checked() {
    let e = |lines: &str| {
        parse(&format!(
            "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n[execution_policy.idempotency]\nmode = \"dynamic\"\n{lines}\n[methods.m]\nhttp = \"POST /a\""
        ))
        .expect_err(lines)
        .message
    };
    for (lines, why) in [
        ("compares_body = false\nmismatch = [{ status = 409 }]", "leave `mismatch` out"),
        ("compares_body = 1", "true, false, or the name"),
        ("compares_body = \"a..b\"", "is not a field"),
        ("conflict = [{ status = 409 }]", "replay = \"conflict_no_replay\""),
        ("replay = \"conflict_no_replay\"", "needs `conflict`"),
        ("replay = \"conflict_no_reply\"", "did you mean `conflict_no_replay`"),
        ("mismatch = [{ status = 200 }]", "known by its code only"),
        ("ignored_marker = { header = \"a b\", value = \"x\" }", "not a header's name"),
        ("ignored_marker = { header = \"X\" }", "value"),
        (
            "replay_marker = { header = \"X\", value = \"y\" }\nignored_marker = { header = \"X\", value = \"y\" }",
            "opposite things",
        ),
        ("definite_codes = [\"A\"]\nnot_applied_codes = [\"B\", \"A\"]", "\"A\" can't be"),
        ("errors_at = \"data\"", "not a JSON pointer"),
        ("lookup_by_key = { query = \"k\" }", "either `query` and `match`"),
        ("lookup_by_key = { path = \"/r/{key}\", status = \"/s\" }", "either `query` and `match`"),
        (
            "lookup_by_key = { path = \"/r/{key}\", status = \"/s\", answer = \"/a\", query = \"k\" }",
            "either `query` and `match`",
        ),
        ("lookup_by_key = { path = \"/r\", status = \"/s\", answer = \"/a\" }", "name {key}"),
        ("lookup_by_key = { path = \"r/{key}\", status = \"/s\", answer = \"/a\" }", "begin with a slash"),
        (
            "lookup_by_key = { path = \"/r/{key}/{args.id}\", status = \"/s\", answer = \"/a\" }",
            "no argument",
        ),
        ("lookup_by_key = { path = \"/r/{key}\", status = \"s\", answer = \"/a\" }", "not a JSON pointer"),
        ("lookup_by_key = { path = \"/r/{kee}\", status = \"/s\", answer = \"/a\" }", "is unknown here"),
    ] {
        assert!(e(lines).contains(why), "{lines}\n-> {}", e(lines));
    }
    let e = parse("name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n[execution_policy.idempotency]\nmode = \"declard\"\n[methods.m]\nhttp = \"POST /a\"").unwrap_err();
    assert!(e.message.contains("did you mean `declared`"), "{e}");
}

#[test]
fn how_much_is_compared_is_told() {
    let of = |preset: &str, path: &str| {
        let i =
            integration(&format!("preset = \"{preset}\""), &format!("[methods.m]\nhttp = \"POST {path}\""));
        i.method("m").unwrap().key_compares()
    };
    assert_eq!(of("qonto", "/v2/internal_transfers").as_deref(), Some("nothing"));
    assert_eq!(of("rapyd", "/v1/payments").as_deref(), Some("`amount` only"));
    assert_eq!(of("ppro", "/v1/payment-charges").as_deref(), Some("the whole request"));
    assert_eq!(of("svix", "/api/v1/app"), None);
    assert_eq!(of("rapyd", "/v1/refunds"), None, "no key is carried there");
}
