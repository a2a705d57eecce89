//! Building requests: every place and style, and values that try to leave their place.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
use common::{KEY, body, integration, request};
use ledger::{Recovery, Strategy as How};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

#[test]
fn arguments_go_where_they_belong() {
    let i = integration(
        "preset = \"stripe\"\nheaders = { \"X-Version\" = \"7\" }",
        "[methods.m]\nhttp = \"POST /v1/{id}/x\"\nparams = { q = \"query\", r = \"query:rr\", h = \"header:X-H\", deep = \"body:/a/b\" }\nheaders = { \"X-Own\" = \"o\" }",
    );
    let args = r#"{"id":"pay 1/é","q":["a","b c"]}"#;
    assert!(request(&i, "m", args).is_err());
    let r = request(
        &i,
        "m",
        r#"{"id":"pay 1é?#","q":["a","b&c"],"r":{"x":[1,2]},"h":12,"deep":true,"amount":500,"n":null}"#,
    )
    .unwrap();
    assert_eq!(
        r.uri().to_string(),
        "http://127.0.0.1:1/base/v1/pay%201%C3%A9%3F%23/x?q=a&q=b%26c&rr%5Bx%5D=1&rr%5Bx%5D=2"
    );
    assert_eq!(body(&r), r#"{"a":{"b":true},"amount":500,"n":null}"#);
    let h = |n: &str| r.headers().get(n).unwrap().to_str().unwrap().to_owned();
    assert_eq!(
        (h("x-h"), h("x-version"), h("x-own"), h("idempotency-key")),
        ("12".into(), "7".into(), "o".into(), KEY.into())
    );
    assert_eq!((h("content-type"), h("accept-encoding")), ("application/json".into(), "identity".into()));
}

#[test]
fn numbers_keep_every_digit() {
    let i = integration(
        "",
        "[methods.j]\nhttp = \"POST /a\"\n[methods.f]\nhttp = \"POST /a\"\nbody = \"form\"\n[methods.g]\nhttp = \"GET /a\"",
    );
    let args =
        r#"{"a":9007199254740993,"b":10.00,"c":1E4,"d":-0.0,"e":{"f":123456789012345678901234567890}}"#;
    assert_eq!(body(&request(&i, "j", args).unwrap()), args);
    let pairs = "a=9007199254740993&b=10.00&c=10000&d=-0.0&e%5Bf%5D=123456789012345678901234567890";
    assert_eq!(body(&request(&i, "f", args).unwrap()), pairs);
    assert_eq!(request(&i, "g", args).unwrap().uri().query().unwrap(), pairs);
}

#[test]
fn forms_nest_by_brackets() {
    let i = integration(
        "",
        "[methods.m]\nhttp = \"POST /a\"\nbody = \"form\"\nmarker = { field = \"metadata.marker\" }",
    );
    let r = request(
        &i,
        "m",
        r#"{"items":[{"price":"p","q":[1]},"x"],"metadata":{"a b":"c&d=e"},"n":null,"l":[],"t":true}"#,
    )
    .unwrap();
    assert_eq!(
        body(&r),
        format!(
            "items%5B0%5D%5Bprice%5D=p&items%5B0%5D%5Bq%5D%5B0%5D=1&items%5B1%5D=x&metadata%5Ba%20b%5D=c%26d%3De&metadata%5Bmarker%5D={KEY}&n=&l=&t=true"
        )
    );
    assert_eq!(r.headers()["content-type"], "application/x-www-form-urlencoded");
}

#[test]
fn the_key_goes_where_the_provider_wants_it() {
    let with = |idem: &str, extra: &str, args: &str| {
        let i = integration(
            &format!("[execution_policy.idempotency]\nmode = \"dynamic\"\n{idem}"),
            &format!("[methods.m]\nhttp = \"POST /a\"\n{extra}"),
        );
        request(&i, "m", args)
    };
    let r = with("header_name = \"X-Key\"\nquote = true", "", "{}").unwrap();
    assert_eq!(r.headers()["x-key"], format!("\"{KEY}\""));
    let r = with("carrier = \"query\"\nname = \"requestId\"", "", r#"{"a":1}"#).unwrap();
    assert_eq!(r.uri().query().unwrap(), format!("requestId={KEY}"));
    let r = with("carrier = \"body\"\nname = \"input.key\"", "", r#"{"input":{"x":1.50}}"#).unwrap();
    assert_eq!(body(&r), format!(r#"{{"input":{{"x":1.50,"key":"{KEY}"}}}}"#));
    let r = with(
        "carrier = \"body\"\nname = \"k\"",
        "marker = { query = \"ref\" }\nunique = { field = \"reference\", resource_id = \"/id\" }",
        "{}",
    )
    .unwrap();
    assert_eq!(
        (r.uri().query().unwrap(), body(&r)),
        (&*format!("ref={KEY}"), format!(r#"{{"k":"{KEY}","reference":"{KEY}"}}"#))
    );
    // A caller can't fill what the gateway fills, nor put something else in its way.
    for args in [r#"{"k":"mine"}"#, r#"{"reference":"mine"}"#] {
        assert!(
            with(
                "carrier = \"body\"\nname = \"k\"",
                "unique = { field = \"reference\", resource_id = \"/id\" }",
                args
            )
            .unwrap_err()
            .contains("filled by the gateway")
        );
    }
    assert!(
        with("carrier = \"body\"\nname = \"input.key\"", "", r#"{"input":"x"}"#)
            .unwrap_err()
            .contains("must be an object")
    );
    let i = integration("", "[methods.m]\nhttp = \"PUT /a/{$key}\"\nbody = \"none\"\nrecovery = \"natural\"");
    assert_eq!(request(&i, "m", "{}").unwrap().uri().path(), format!("/base/a/{KEY}"));
}

#[test]
fn hostile_arguments_are_refused_or_stay_inside() {
    let i = integration(
        "preset = \"stripe\"",
        "[methods.m]\nhttp = \"POST /v1/{id}\"\nparams = { h = \"header:X-H\", q = \"query\" }\n[methods.two]\nhttp = \"POST /v1/{a}{b}\"\n[methods.f]\nhttp = \"POST /a\"\nbody = \"form\"\n[methods.none]\nhttp = \"POST /a\"\nbody = \"none\"",
    );
    for id in ["", ".", "..", "a/b", "..\\x", "a\nb", "a\u{0}", "a\u{7f}"] {
        assert!(request(&i, "m", &json!({"id": id}).to_string()).is_err(), "{id:?}");
    }
    for bad in [
        r#"{}"#,
        r#"{"id":null}"#,
        r#"{"id":{}}"#,
        r#"{"id":["a"]}"#,
        "[]",
        "1",
        "",
        r#"{"id":"a","id":"b"}"#,
        "{\"id\":\"a\"} x",
    ] {
        assert!(request(&i, "m", bad).is_err(), "{bad}");
    }
    assert!(request(&i, "two", r#"{"a":".","b":"."}"#).is_err());
    for (id, path) in [
        ("%2e%2e", "/base/v1/%252e%252e"),
        ("a?b#c", "/base/v1/a%3Fb%23c"),
        ("a;b&c", "/base/v1/a%3Bb%26c"),
        ("...", "/base/v1/..."),
        ("{key}", "/base/v1/%7Bkey%7D"),
    ] {
        assert_eq!(request(&i, "m", &json!({"id": id}).to_string()).unwrap().uri().path(), path);
    }
    for h in ["a\r\nX-Evil: 1", "a\n", "a\u{0}", "é"] {
        assert!(
            request(&i, "m", &json!({"id": "x", "h": h}).to_string()).unwrap_err().contains("header"),
            "{h:?}"
        );
    }
    let r = request(&i, "m", &json!({"id": "x", "q": "1&admin=true#\r\n"}).to_string()).unwrap();
    assert_eq!(r.uri().query().unwrap(), "q=1%26admin%3Dtrue%23%0D%0A");
    for args in [json!({"a[b]": 1}), json!({"a": {"]": 1}}), json!({"": 1})] {
        assert!(request(&i, "f", &args.to_string()).unwrap_err().contains("bracket"), "{args}");
    }
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(40), "]".repeat(40));
    assert!(request(&i, "f", &deep).unwrap_err().contains("deeper"));
    assert!(request(&i, "none", r#"{"x":1}"#).unwrap_err().contains("no argument `x`"));
    assert!(
        request(&i, "m", &json!({"id": "x", "q": "a".repeat(20_000)}).to_string())
            .unwrap_err()
            .contains("16 KiB")
    );
    // No value is repeated in a message.
    let e = request(&i, "m", &json!({"id": "x", "h": "CANARY\n"}).to_string()).unwrap_err();
    assert!(!e.contains("CANARY"));
}

#[test]
fn a_text_that_looks_like_a_place_for_the_key_is_only_text() {
    let i = integration("preset = \"stripe\"", "[methods.m]\nhttp = \"POST /a\"\nparams = { q = \"query\" }");
    let r = request(&i, "m", r#"{"q":"{key}","b":"{key}{marker}{$key}"}"#).unwrap();
    assert_eq!(
        (r.uri().query().unwrap(), body(&r)),
        ("q=%7Bkey%7D", r#"{"b":"{key}{marker}{$key}"}"#.to_owned())
    );
}

#[test]
fn an_intent_pins_the_request_and_tells_people_no_query() {
    let i = integration(
        "preset = \"stripe\"",
        "[methods.m]\nhttp = \"POST /a/{id}\"\nparams = { token = \"query\" }",
    );
    let m = i.method("m").unwrap();
    let args = r#"{"id":"x","token":"CANARY","amount":5}"#;
    let a = m.intent(args, &Recovery::new(How::Key)).unwrap();
    assert_eq!(a.summary, "POST http://127.0.0.1:1/base/a/x");
    assert_eq!((a.name.as_str(), a.discriminator.as_str()), ("request", ""));
    assert_eq!(a.digest(), m.intent(args, &Recovery::new(How::Key)).unwrap().digest());
    assert_ne!(
        a.digest(),
        m.intent(r#"{"id":"x","token":"CANARY","amount":6}"#, &Recovery::new(How::Key)).unwrap().digest()
    );
    assert!(!String::from_utf8(a.body.clone()).unwrap().contains(KEY));
    assert!(counterfoil_provider::HttpIntent::decode(b"{}").is_err());
    assert!(
        counterfoil_provider::HttpIntent::decode(
            &String::from_utf8(a.body).unwrap().replace("{\"v\":1", "{\"v\":4").into_bytes()
        )
        .unwrap_err()
        .contains("newer")
    );
    assert!(m.read_request(args).unwrap_err().to_string().contains("ledger"));
}

/// Undoes a form: an independent reading of the bracket style.
fn decode(form: &str) -> Value {
    fn place(slot: &mut Value, path: &[String], text: String) {
        let Some((part, rest)) = path.split_first() else {
            *slot = Value::String(text);
            return;
        };
        let map = match slot {
            Value::Object(map) => map,
            _ => {
                *slot = Value::Object(Map::new());
                slot.as_object_mut().unwrap()
            }
        };
        place(map.entry(part.clone()).or_insert(Value::Null), rest, text);
    }
    let mut root = Value::Object(Map::new());
    for (name, value) in url::form_urlencoded::parse(form.as_bytes()) {
        let mut parts = name.split('[');
        let mut path = vec![parts.next().unwrap().to_owned()];
        path.extend(parts.map(|p| p.strip_suffix(']').unwrap().to_owned()));
        place(&mut root, &path, value.into_owned());
    }
    root
}

/// What a form can tell of a value: texts, lists as numbered entries, nothing as an empty text.
fn flattened(v: &Value) -> Value {
    match v {
        Value::Null => json!(""),
        Value::Bool(b) => json!(b.to_string()),
        Value::Number(n) => json!(n.to_string()),
        Value::String(s) => json!(s),
        Value::Array(a) if a.is_empty() => json!(""),
        Value::Object(o) if o.is_empty() => json!(""),
        Value::Array(a) => {
            Value::Object(a.iter().enumerate().map(|(i, v)| (i.to_string(), flattened(v))).collect())
        }
        Value::Object(o) => Value::Object(o.iter().map(|(n, v)| (n.clone(), flattened(v))).collect()),
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[^\\[\\]\\x00]{1,6}", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_form_can_be_read_back(fields in prop::collection::btree_map("[^\\[\\]\\x00]{1,6}", any_json(), 0..5)) {
        let args = Value::Object(fields.into_iter().collect());
        let i = integration("", "[methods.m]\nhttp = \"POST /a\"\nbody = \"form\"");
        let sent = body(&request(&i, "m", &args.to_string()).unwrap());
        let want = match flattened(&args) { Value::Object(o) => Value::Object(o), _ => json!({}) };
        prop_assert_eq!(decode(&sent), want);
    }

    #[test]
    fn a_path_argument_stays_one_segment(id in "\\PC{1,20}") {
        let i = integration("", "[methods.m]\nhttp = \"GET /v1/{id}/tail\"");
        match request(&i, "m", &json!({"id": id}).to_string()) {
            Ok(r) => {
                let parts: Vec<&str> = r.uri().path().split('/').collect();
                prop_assert_eq!(parts.len(), 5);
                let back = percent_encoding::percent_decode_str(parts[3]).decode_utf8().unwrap();
                prop_assert_eq!(back, id);
                prop_assert!(r.uri().query().is_none());
            }
            Err(_) => prop_assert!(id == "." || id == ".." || id.contains(['/', '\\']) || id.chars().any(char::is_control)),
        }
    }

    #[test]
    fn a_json_body_keeps_its_values(fields in prop::collection::btree_map("\\PC{1,6}", any_json(), 0..5)) {
        let args = Value::Object(fields.into_iter().collect()).to_string();
        let i = integration("", "[methods.m]\nhttp = \"POST /a\"");
        prop_assert_eq!(body(&request(&i, "m", &args).unwrap()), args);
    }
}
