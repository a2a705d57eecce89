//! Look-ups, markers, mail and refusals inside a 200: what a manifest may say of them, and what it is told otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{KEY, body, integration, parse, request};
use counterfoil_provider::judge::{Answer, Judged, Observation, judge};
use counterfoil_provider::{HttpIntent, Integration};
use ledger::Sent;

const HEAD: &str = "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n";
const INPUT: &str =
    "input = { type = \"object\", properties = { title = {}, body = {}, from = {}, to = {} } }\n";

fn refusal(method: &str) -> String {
    match parse(&format!("{HEAD}[methods.m]\nhttp = \"POST /m\"\n{method}\n")) {
        Err(e) => e.to_string(),
        Ok(_) => panic!("taken: {method}"),
    }
}

fn taken(method: &str) -> Integration {
    integration("", &format!("[methods.m]\nhttp = \"POST /m\"\n{method}\n"))
}

#[test]
fn a_look_up_that_cant_work_is_refused() {
    let list = |more: &str| {
        format!(
            "marker = {{ field = \"x\" }}\nlookup = {{ items = \"/d\", match = {{ \"/x\" = \"{{marker}}\" }}, {more} }}"
        )
    };
    let matching =
        |m: &str| format!("marker = {{ field = \"x\" }}\nlookup = {{ items = \"/d\", match = {m} }}");
    for (method, words) in [
        (list("pages = 3"), "`pages` needs `next`"),
        (list("next = { link = \"next\" }, pages = 0"), "must be 1 to 20"),
        (list("next = { link = \"next\" }, pages = 21"), "must be 1 to 20"),
        (list("next = { link = \"next\" }, pages = 300"), "u8"),
        (list("next = { link = \"\" }"), "{ link = \"next\" }"),
        (list("next = { at = \"/n\" }"), "{ at = \"/next\", query = \"cursor\" }"),
        (list("next = { at = \"/n\", query = \"c\", link = \"next\" }"), "{ link = \"next\" }"),
        (list("next = { linked = \"next\" }"), "did you mean `link`?"),
        (list("next = { link = \"next\" }, more = \"/more\""), "leave `more` out"),
        (list("not_found = \"retry\""), "is not a value of this"),
        (list("since_margin = \"5m\""), "`since_margin` needs a query parameter"),
        (list("since_margin = \"1s\", query = { s = \"{since}\" }"), "must be 1m to 7d"),
        (list("since_margin = \"8d\", query = { s = \"{since}\" }"), "must be 1m to 7d"),
        (list("query = { s = \"{since}\", t = \"{since.unix}\" }"), "only one query parameter"),
        (list("query = { s = \"after:{since}\" }"), "stand by themselves"),
        (list("query = { s = \"{since.iso}\" }"), "stand by themselves"),
        (list("empty = { n = \"0\" }"), "is not a JSON pointer"),
        (list("fetch = { http = \"GET /m/x\", at = \"/id\" }"), "{item}"),
        (list("fetch = { http = \"POST /m/{item}\", at = \"/id\" }"), "must be like"),
        (list("fetch = { http = \"GET /m/x{item}\", at = \"/id\" }"), "a whole segment"),
        (list("fetch = { http = \"GET /m/{item}.json\", at = \"/id\" }"), "a whole segment"),
        (list("fetch = { http = \"GET /m/{item}\", at = \"id\" }"), "is not a JSON pointer"),
        (list("fetch = { http = \"GET /m/{item}\" }"), "missing field"),
        (matching("{ \"/x\" = { contains = \"\" } }"), "every text contains the empty one"),
        (matching("{ \"/x\" = { contain = \"{marker}\" } }"), "did you mean `contains`?"),
        (matching("{ \"/x\" = {} }"), "missing field `contains`"),
        (matching("{ \"/x\" = 5 }"), "a text, or { contains"),
        (matching("{ \"/x\" = { contains = \"{args.body}\" } }"), "`match` must compare something with {key}"),
        (matching("{ \"/x\" = { contains = \"{marker} {args.body}\" } }"), "not both"),
        ("marker = { field = \"x\" }\nlookup = { http = \"GET /m/{key}\", match = { \"/x\" = \"{key}\" }, pages = 2 }".into(), "there is no `items`"),
        ("marker = { field = \"x\" }\nlookup = { http = \"GET /m/{key}\", match = { \"/x\" = \"{key}\" }, empty = { \"/n\" = \"0\" } }".into(), "there is no `items`"),
    ] {
        let said = refusal(&method);
        assert!(said.contains(words), "{method}\n{said}\nwanted: {words}");
        assert!(said.starts_with("p.toml:"), "{said}");
    }
}

#[test]
fn a_marker_that_cant_work_is_refused() {
    for (method, words) in [
        ("marker = { field = \"body\", text = \"{args.body}\" }", "needs {marker}"),
        ("marker = { field = \"body\", text = \"{body} {marker}\" }", "is unknown here"),
        ("marker = { text = \"{marker}\" }", "either `field`"),
        ("marker = { query = \"q\", text = \"{marker}\" }", "either `field`"),
        ("marker = { message_id = \"mail.example.com\" }", "for body = \"mail\""),
        ("marker = { field = \"title\", text = \"{args.body} {marker}\" }", "take it out of `input`"),
        ("body = \"mail\"\nmarker = { message_id = \"localhost\" }", "a domain of yours"),
        ("body = \"mail\"\nmarker = { message_id = \"a b.c\" }", "a domain of yours"),
        ("body = \"mail\"\nmarker = { field = \"x\" }", "has no fields"),
    ] {
        let said = refusal(&format!("{method}\n{INPUT}"));
        assert!(said.contains(words), "{method}\n{said}\nwanted: {words}");
    }
}

#[test]
fn a_mail_that_cant_be_written_is_refused() {
    let input =
        |names: &str| format!("body = \"mail\"\ninput = {{ type = \"object\", properties = {{ {names} }} }}");
    for (method, words) in [
        (input("from = {}, to = {}, subjekt = {}"), "did you mean `subject`?"),
        (input("to = {}, subject = {}"), "a mail needs the argument `from`"),
        (
            format!("{}\nparams = {{ to = \"body:recipient\" }}", input("from = {}, to = {}")),
            "can't be placed in a mail",
        ),
        (format!("{}\nfields = {{ x = 1 }}", input("from = {}, to = {}")), "this body has no fields"),
        (
            format!("{}\nunique = {{ field = \"x\", resource_id = \"/id\" }}", input("from = {}, to = {}")),
            "a mail has no fields",
        ),
    ] {
        let said = refusal(&method);
        assert!(said.contains(words), "{method}\n{said}\nwanted: {words}");
    }
    let i = taken(&format!(
        "{}\nparams = {{ box = \"query\" }}",
        input("from = {}, to = {}, text = {}, box = {}")
    ));
    let args = r#"{"from":"a@b.c","to":"d@e.f","text":"t","box":"x"}"#;
    let r = request(&i, "m", args).unwrap();
    assert_eq!(r.uri().to_string(), "http://127.0.0.1:1/base/m?box=x");
    assert_eq!(r.headers()["content-type"], "message/rfc822");
    assert!(!body(&r).contains("Message-ID"), "without a marker there is none");
    assert!(request(&i, "m", r#"{"from":"a@b.c","to":"d@e.f","extra":1}"#).is_err());
}

#[test]
fn fields_that_stand_fast() {
    for (method, words) in [
        ("fields = { \"a.b\" = \"${env:X}\" }", "names a secret"),
        ("fields = { title = \"x\" }\n", "is given here, and as an argument"),
        ("fields = { x = \"y\" }\nparams = { title = \"body:x\" }", "is given here, and as an argument"),
        ("fields = { x = 2026-11-30 }", "put quotes around it"),
        ("fields = { x = \"y\" }\nmarker = { field = \"x\" }", "is filled with the effect key"),
        ("fields = { \"\" = \"y\" }", "is not a field"),
        ("body = \"none\"\nfields = { x = \"y\" }", "this body has no fields"),
    ] {
        let said = refusal(&format!("{method}\n{INPUT}"));
        assert!(said.contains(words), "{method}\n{said}\nwanted: {words}");
    }
    let i =
        taken("fields = { \"meta.kind\" = \"k\", n = [1, { a = true }] }\nmarker = { field = \"meta.key\" }");
    let r = request(&i, "m", r#"{"x":1}"#).unwrap();
    assert_eq!(body(&r), format!(r#"{{"meta":{{"kind":"k","key":"{KEY}"}},"n":[1,{{"a":true}}],"x":1}}"#));
    // What is given there is not a caller's to give.
    assert!(request(&i, "m", r#"{"n":2}"#).is_err());
    let form = taken("body = \"form\"\nfields = { \"meta.kind\" = \"k\" }");
    assert_eq!(body(&request(&form, "m", r#"{"x":1}"#).unwrap()), "meta%5Bkind%5D=k&x=1");
}

#[test]
fn a_markers_text_is_written_as_its_body_wants_it() {
    let marker = "marker = { field = \"note\", text = \"{args.note}\\n<{marker}>\" }\ninput = { type = \"object\", properties = { note = {}, x = {} } }";
    let i = taken(marker);
    let text = body(&request(&i, "m", r#"{"note":"a\"\\\u0001b","x":1}"#).unwrap());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["note"], format!("a\"\\\u{1}b\n<{KEY}>"));
    let form = taken(&format!("body = \"form\"\n{marker}"));
    let text = body(&request(&form, "m", r#"{"note":"a&b=c"}"#).unwrap());
    assert_eq!(text, format!("note=a%26b%3Dc%0A%3C{KEY}%3E"));
    // A caller's text is never taken for the place of the key.
    let text = body(&request(&i, "m", r#"{"note":"{marker} {key}"}"#).unwrap());
    assert!(text.contains("{marker} {key}"), "{text}");
    assert!(request(&i, "m", r#"{"note":{"a":1}}"#).is_err());
}

#[test]
fn an_earlier_program_does_not_ask_what_it_would_misread() {
    let version = |how: &str| {
        let i = taken(how);
        let m = i.method("m").unwrap();
        let intent = m.intent(r#"{"title":"t"}"#, &m.recovery(None).unwrap()).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&intent.body).unwrap();
        assert!(HttpIntent::decode(&intent.body).is_ok());
        json["v"].as_u64().unwrap()
    };
    let with = |more: &str| {
        format!(
            "marker = {{ field = \"x\" }}\nlookup = {{ items = \"/d\", match = {{ \"/x\" = \"{{marker}}\" }}{more} }}"
        )
    };
    assert_eq!(version(&with("")), 1);
    assert_eq!(version(&with(", next = { at = \"/n\", query = \"c\" }, more = \"/m\"")), 1);
    for new in [
        ", next = { link = \"next\" }",
        ", next = { at = \"/n\", query = \"c\" }, pages = 3",
        ", not_found = \"in_doubt\"",
        ", query = { s = \"{since}\" }",
        ", empty = { \"/n\" = \"0\" }",
        ", fetch = { http = \"GET /m/{item}\", at = \"/id\" }",
    ] {
        assert_eq!(version(&with(new)), 2, "{new}");
    }
    assert_eq!(
        version(
            "marker = { field = \"x\" }\nlookup = { items = \"/d\", match = { \"/x\" = { contains = \"{marker}\" } } }"
        ),
        2
    );
}

fn policy(ok: &str) -> counterfoil_provider::judge::Policy {
    let head = format!("{HEAD}[execution_policy.idempotency]\n{ok}\n[methods.m]\nhttp = \"POST /m\"\n");
    let i = parse(&head).unwrap();
    let m = i.method("m").unwrap();
    let intent = m.intent("{}", &m.recovery(None).unwrap()).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&intent.body).unwrap();
    serde_json::from_value(json["policy"].clone()).unwrap()
}

#[test]
fn a_200_may_say_no() {
    let p = policy(
        "ok = { at = \"/ok\", unclear = [\"oops\"], not_applied = [\"later\"] }\ncode_at = \"/error\"",
    );
    let judged = |replay: bool, status: u16, text: &str| {
        let answer = Answer { status, headers: http::HeaderMap::new(), body: text.to_owned().into() };
        match judge(&p, replay, &Observation::Answer(answer)) {
            Judged::Sent(Sent::Applied(_)) => "applied",
            Judged::Sent(Sent::Refused(_)) => "refused",
            Judged::Sent(Sent::NotApplied { .. }) => "not applied",
            Judged::Sent(Sent::Unknown { stored: false, .. }) => "unknown",
            _ => "other",
        }
    };
    for (text, first, again) in [
        (r#"{"ok":true}"#, "applied", "applied"),
        (r#"{"ok":false,"error":"no"}"#, "refused", "unknown"),
        (r#"{"ok":false,"error":"later"}"#, "not applied", "not applied"),
        (r#"{"ok":false,"error":"oops"}"#, "unknown", "unknown"),
        (r#"{"ok":false}"#, "unknown", "unknown"),
        (r#"{"ok":"true"}"#, "unknown", "unknown"),
        (r#"{"ok":1}"#, "unknown", "unknown"),
        (r"{}", "unknown", "unknown"),
        (r"[]", "unknown", "unknown"),
        ("", "unknown", "unknown"),
    ] {
        assert_eq!((judged(false, 200, text), judged(true, 200, text)), (first, again), "{text}");
    }
    assert_eq!(judged(false, 500, r#"{"ok":true}"#), "unknown");
    assert_eq!(judged(false, 400, r#"{"ok":true}"#), "refused");
    for (ok, words) in [
        ("ok = { at = \"ok\" }", "is not a JSON pointer"),
        ("ok = { at = \"/ok\", unclear = [\"a\"] }", "say where they stand with `code_at`"),
        ("ok = { at = \"/ok\", unclear = [\"a\"], not_applied = [\"a\"] }\ncode_at = \"/e\"", "at once"),
        ("ok = { at = \"/ok\", sure = [\"a\"] }", "is not known here"),
        ("ok = {}", "missing field `at`"),
    ] {
        let text = format!("{HEAD}[execution_policy.idempotency]\n{ok}\n[methods.m]\nhttp = \"POST /m\"\n");
        let said = parse(&text).unwrap_err().to_string();
        assert!(said.contains(words), "{ok}\n{said}");
    }
}

#[test]
fn a_403_waits_only_where_it_says_so() {
    let p = policy("not_applied = [403]\ndefinite = [403]");
    let judged = |wait: bool| {
        let mut headers = http::HeaderMap::new();
        if wait {
            headers.insert("retry-after", "7".parse().unwrap());
        }
        judge(&p, false, &Observation::Answer(Answer { status: 403, headers, body: "{}".into() }))
    };
    assert!(matches!(judged(true), Judged::Sent(Sent::NotApplied { .. })));
    assert!(matches!(judged(false), Judged::Sent(Sent::Refused(_))));
}
