//! Manifests: what is read, what is refused, and how it is said; how strategies are resolved.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
use common::{integration, parse};
use counterfoil_provider::{Format, Integration, Method, MethodEffect, Mode, Origin, Overrides, builtin};
use ledger::{Millis, Strategy};

#[test]
fn the_bundled_manifests() {
    let all: Vec<Integration> = builtin::sandbox_manifests()
        .iter()
        .map(|(file, text)| Integration::parse(file, text, Format::of(file), Mode::Sandbox).unwrap())
        .collect();
    let ids: Vec<&str> = all.iter().flat_map(|i| i.methods().iter().map(Method::canonical_id)).collect();
    assert_eq!(
        ids,
        [
            "payments.payments.create",
            "payments.payments.get",
            "payments.refunds.create",
            "payments.refunds.list",
            "mail.messages.send"
        ]
    );
    let refund = all[0].method("refunds.create").unwrap();
    assert_eq!(
        (refund.wire_name().as_str(), refund.effect()),
        ("payments_refunds_create", MethodEffect::Mutating)
    );
    let r = refund.resolve(&Overrides::default()).unwrap();
    assert_eq!(r.recovery.strategy, Strategy::Key);
    assert_eq!(r.recovery.replay_for, Some(Millis::secs(23 * 3600)));
    assert!(r.recovery.replays_first_answer && r.recovery.can_look_up && r.retention_published);
    assert_eq!(
        (r.origins.strategy, r.origins.replay_for, r.origins.max_sends),
        (Origin::Preset, Origin::Preset, Origin::Manifest)
    );
    assert_eq!(refund.key_carrier().unwrap(), "header Idempotency-Key");
    assert_eq!(all[0].method("payments.get").unwrap().effect(), MethodEffect::Read);
    let moved = all[0].clone().with_base_url("http://127.0.0.1:9/x/").unwrap();
    assert_eq!(moved.method("refunds.create").unwrap().http(), "POST http://127.0.0.1:9/x/v1/refunds");
    assert!(
        Integration::parse(
            "payments.toml",
            builtin::sandbox_manifests()[0].1,
            Format::Toml,
            Mode::Production
        )
        .unwrap_err()
        .message
        .contains("no base_url for production")
    );
}

#[test]
fn toml_and_json_say_the_same() {
    let toml = r#"
name = "p"
base_url = { sandbox = "http://localhost:1", production = "https://api.example.com/" }
preset = "stripe"
account = "acct"
headers = { "X-Version" = "7" }
[auth]
kind = "basic"
username = "me"
secret = { sandbox = "${env:A}", production = "${file:/b}" }
[execution_policy.idempotency]
header_name = "X-Key"
retention = "48h"
[execution_policy.timeouts]
send = "3s"
[methods."a.b"]
http = "PUT /a/{id}"
recovery = "natural"
natural = { replay_horizon = "5m" }
params = { id = "path", q = "query:qq", h = "header:X-H", n = "body:/x/y" }
input = { type = "object", properties = { id = { type = "string" }, q = {}, h = {}, n = { type = "integer" } } }
"#;
    let json = r#"{
"name": "p", "base_url": {"sandbox": "http://localhost:1", "production": "https://api.example.com/"},
"preset": "stripe", "account": "acct", "headers": {"X-Version": "7"},
"auth": {"kind": "basic", "username": "me", "secret": {"sandbox": "${env:A}", "production": "${file:/b}"}},
"execution_policy": {"idempotency": {"header_name": "X-Key", "retention": "48h"}, "timeouts": {"send": "3s"}},
"methods": {"a.b": {"http": "PUT /a/{id}", "recovery": "natural", "natural": {"replay_horizon": "5m"},
  "params": {"id": "path", "q": "query:qq", "h": "header:X-H", "n": "body:/x/y"},
  "input": {"type": "object", "properties": {"id": {"type": "string"}, "q": {}, "h": {}, "n": {"type": "integer"}}}}}
}"#;
    for mode in [Mode::Sandbox, Mode::Production] {
        let a = Integration::parse("a.toml", toml, Format::Toml, mode).unwrap();
        let b = Integration::parse("b.json", json, Format::of("b.json"), mode).unwrap();
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        assert_eq!(a.method("a.b").unwrap().recovery(None).unwrap().send_timeout, Millis::secs(3));
    }
}

/// (manifest, line, what the message must say)
#[test]
fn mistakes_are_named_with_their_line() {
    let head = "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n";
    let m = "[methods.\"a.b\"]\nhttp = \"POST /a\"\n";
    let cases: Vec<(String, usize, &str)> = vec![
        (format!("{head}presett = \"stripe\"\n{m}"), 3, "did you mean `preset`"),
        (format!("{head}preset = \"strype\"\n{m}"), 3, "did you mean \"stripe\""),
        (format!("{head}[execution_policy.retires]\n{m}"), 3, "did you mean `retries`"),
        (
            format!("{head}[execution_policy.idempotency]\nmode = \"dynamc\"\n{m}"),
            4,
            "did you mean `dynamic`",
        ),
        (format!("{head}[execution_policy.timeouts]\nsend = \"3 s\"\n{m}"), 4, "not a length of time"),
        (format!("{head}[execution_policy.retries]\nmax_sends = \"3\"\n{m}"), 4, "u32"),
        (format!("{head}[execution_policy.retries]\nmax_sends = 0\n{m}"), 4, "1 to 100"),
        (format!("{head}{m}effct = \"read\"\n"), 5, "did you mean `effect`"),
        (format!("{head}{m}recovery = \"keys\"\n"), 5, "did you mean `key`"),
        (format!("{head}{m}recovery = \"key\"\n"), 5, "no idempotency key is carried"),
        (format!("{head}{m}recovery = \"local\"\n"), 5, "native tools"),
        (format!("{head}{m}recovery = \"natural\"\n"), 5, "declare `natural"),
        (format!("{head}{m}body = \"none\"\nmarker = {{ field = \"m\" }}\n"), 6, "no body"),
        (format!("{head}{m}precheck = true\n"), 5, "no `lookup`"),
        (
            format!("{head}{m}lookup = {{ items = \"/data\", match = {{ \"/x\" = \"{{args.y}}\" }} }}\n"),
            5,
            "{key} or {marker}",
        ),
        (format!("{head}{m}lookup = {{ match = {{ \"x\" = \"{{key}}\" }} }}\n"), 5, "JSON pointer"),
        (format!("{head}{m}params = {{ h = \"header:Authorization\" }}\n"), 5, "set by the gateway"),
        (format!("{head}{m}params = {{ h = \"crumb\" }}\n"), 5, "write \"path\""),
        (format!("{head}{m}max_response = \"11MiB\"\n"), 5, "10MiB"),
        (format!("{head}{m}name = \"a.b\"\n"), 5, "A-Z"),
        (format!("{head}{m}input = {{ type = \"array\" }}\n"), 5, "type = \"object\""),
        (format!("{head}[methods.\"a.b\"]\nhttp = \"PSOT /a\"\n"), 4, "did you mean POST"),
        (format!("{head}[methods.\"a.b\"]\nhttp = \"POST a\"\n"), 4, "begin with a slash"),
        (format!("{head}[methods.\"a.b\"]\nhttp = \"POST /a/../b\"\n"), 4, "segment"),
        (format!("{head}[methods.\"a.b\"]\nhttp = \"POST /a/%2E%2e/b\"\n"), 4, "encoded dot"),
        (format!("{head}[methods.\"a.b\"]\nhttp = \"POST /a/%{{id}}\"\n"), 4, "no escape"),
        (format!("{head}[methods.\"a.b\"]\nhttp = \"POST /a?b=1\"\n"), 4, "before any"),
        (
            format!(
                "{head}{m}lookup = {{ http = \"GET /a/{{args.x}}/%2e%2e\", match = {{ \"/x\" = \"{{key}}\" }} }}\n"
            ),
            5,
            "encoded dot",
        ),
        (format!("{head}[methods.\"a.b\"]\nhttp = \"GET /a\"\nrecovery = \"none\"\n"), 5, "only reads"),
        (
            format!(
                "{head}[methods.\"a.b\"]\nhttp = \"POST /a/{{id}}\"\ninput = {{ type = \"object\", properties = {{ idd = {{}} }} }}\n"
            ),
            5,
            "did you mean `idd`",
        ),
        (format!("name = \"p\"\nbase_url = \"http://api.example.com\"\n{m}"), 2, "https"),
        (format!("name = \"p\"\nbase_url = \"https://u:p@example.com\"\n{m}"), 2, "credential"),
        (format!("{head}headers = {{ \"X-Key\" = \"${{env:K}}\" }}\n{m}"), 3, "use [auth]"),
        (
            format!("{head}[execution_policy.idempotency]\nmode = \"dynamic\"\nmax_len = 32\n{m}"),
            3,
            "36 characters",
        ),
        (
            format!("{head}[execution_policy.idempotency]\nmode = \"dynamic\"\ncarrier = \"body\"\n{m}"),
            3,
            "`name`",
        ),
    ];
    for (text, line, says) in cases {
        let e = parse(&text).expect_err(&text);
        assert!(e.message.contains(says), "{text}\n-> {e}");
        assert_eq!(e.line, Some(line), "{text}\n-> {e}");
        assert!(e.to_string().starts_with(&format!("p.toml:{line}: ")));
    }
    let e =
        Integration::parse("p.json", "{\n\"name\": \"p\",\n\"base_ulr\": \"\"}", Format::Json, Mode::Sandbox)
            .unwrap_err();
    assert_eq!((e.line, e.message.contains("did you mean `base_url`")), (Some(3), true), "{e}");
    let twice = r#"{"name":"p","base_url":"http://[::1]:1","methods":{"a":{"http":"POST /a"},"a":{"http":"POST /b"}}}"#;
    assert!(
        Integration::parse("p.json", twice, Format::Json, Mode::Sandbox)
            .unwrap_err()
            .message
            .contains("twice")
    );
}

#[test]
fn a_secret_written_into_a_manifest_is_refused_without_repeating_it() {
    for secret in ["sk_live_CANARY", "${env:}", "${CANARY}"] {
        let e = parse(&format!("name = \"p\"\nbase_url = \"https://x.example\"\n[auth]\nkind = \"bearer\"\nsecret = \"{secret}\"\n[methods.a]\nhttp = \"GET /\"\n")).unwrap_err();
        assert!(
            e.message.contains("never written here") && !format!("{e} {e:?}").contains("CANARY"),
            "{e:?}"
        );
    }
}

#[test]
fn two_methods_under_one_wire_name_are_refused() {
    let two = "[methods.\"a.b\"]\nhttp = \"POST /a\"\n[methods.a_b]\nhttp = \"POST /b\"\n";
    let text = format!("name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n{two}");
    assert!(parse(&text).unwrap_err().message.contains("p_a_b"));
    assert!(parse(&format!("{text}name = \"other\"\n")).is_ok());
}

const DYNAMIC: &str = "[execution_policy.idempotency]\nmode = \"dynamic\"";
const UNIQUE: &str = "unique = { field = \"/reference\", resource_id = \"/error/resource_id\" }";
const LOOKUP: &str = "lookup = { items = \"/data\", match = { \"/metadata/marker\" = \"{marker}\" } }\nmarker = { field = \"metadata.marker\" }";

/// Head, http, extra, override, strategy and where from (`None`: refused).
type Row = (&'static str, &'static str, &'static str, Option<Strategy>, Option<(Strategy, Origin)>);

#[test]
fn the_resolution_table() {
    use Origin::{Default, Manifest, Preset, Tools};
    use Strategy::{Confirm, Key, Local, Lookup, Natural, Unique};
    let none = Strategy::None;
    let stripe = "preset = \"stripe\"";
    let off = "preset = \"stripe\"\n[execution_policy.idempotency]\nmode = \"none\"";
    let table: Vec<Row> = vec![
        ("", "POST /a", "", None, Some((none, Default))),
        ("", "PUT /a", "", None, Some((none, Default))),
        (stripe, "POST /a", "", None, Some((Key, Preset))),
        (stripe, "DELETE /a", "", None, Some((none, Default))),
        (off, "POST /a", "", None, Some((none, Default))),
        (off, "POST /a", UNIQUE, None, Some((Unique, Manifest))),
        (off, "POST /a", LOOKUP, None, Some((Lookup, Manifest))),
        (DYNAMIC, "POST /a", "", None, Some((Key, Manifest))),
        ("", "POST /a", "natural = {}", None, Some((Natural, Manifest))),
        ("", "PUT /a", "recovery = \"natural\"", None, Some((Natural, Manifest))),
        (stripe, "POST /a", "recovery = \"confirm\"", None, Some((Confirm, Manifest))),
        (stripe, "POST /a", "recovery = \"confirm\"", Some(Key), Some((Key, Tools))),
        (stripe, "POST /a", "", Some(none), Some((none, Tools))),
        (stripe, "POST /a", LOOKUP, Some(Lookup), Some((Lookup, Tools))),
        ("preset = \"increase\"", "POST /a", "", Some(Lookup), Some((Lookup, Tools))),
        ("", "DELETE /a", "", Some(Natural), Some((Natural, Tools))),
        ("", "POST /a", "", Some(Confirm), Some((Confirm, Tools))),
        ("", "POST /a", "", Some(Key), None),
        (off, "POST /a", "", Some(Key), None),
        (stripe, "DELETE /a", "", Some(Key), None),
        (stripe, "POST /a", "", Some(Unique), None),
        (stripe, "POST /a", "", Some(Lookup), None),
        (stripe, "POST /a", "", Some(Natural), None),
        (stripe, "POST /a", "", Some(Local), None),
        (
            off,
            "POST /a",
            "lookup = { match = { \"/k\" = \"{key}\" } }\nrecovery = \"none\"",
            Some(Lookup),
            None,
        ),
    ];
    for (head, http, extra, over, want) in table {
        let i = integration(head, &format!("[methods.m]\nhttp = \"{http}\"\n{extra}"));
        let got = i.method("m").unwrap().resolve(&Overrides { strategy: over, ..Overrides::default() });
        match (want, got) {
            (Some(want), Ok(r)) => {
                assert_eq!((r.recovery.strategy, r.origins.strategy), want, "{head} {http} {extra} {over:?}")
            }
            (None, Err(e)) => assert!(e.message.contains("can't work"), "{e}"),
            (want, got) => panic!("{head} {http} {extra} {over:?}: wanted {want:?}, got {got:?}"),
        }
    }
    let read = integration("", "[methods.m]\nhttp = \"GET /\"");
    assert!(read.method("m").unwrap().recovery(None).is_err());
}

#[test]
fn windows_and_time_outs() {
    let get = |head: &str, over: &Overrides| {
        integration(head, "[methods.m]\nhttp = \"POST /a\"").method("m").unwrap().resolve(over)
    };
    let r = get(DYNAMIC, &Overrides::default()).unwrap();
    assert!(!r.retention_published && r.recovery.replay_for.unwrap() < Millis::secs(3600));
    assert!(!r.recovery.replays_first_answer && !r.recovery.can_look_up);
    let r = get("preset = \"increase\"", &Overrides::default()).unwrap();
    assert_eq!((r.recovery.replay_for, r.recovery.can_look_up), (None, true));
    let defaults = Overrides { default_send_timeout: Some(Millis::secs(7)), ..Overrides::default() };
    let r = get("", &defaults).unwrap();
    assert_eq!((r.recovery.send_timeout, r.origins.send_timeout), (Millis::secs(7), Origin::Tools));
    let own = "[execution_policy.timeouts]\nsend = \"2s\"";
    assert_eq!(get(own, &defaults).unwrap().recovery.send_timeout, Millis::secs(2));
    let tools = Overrides { send_timeout: Some(Millis::secs(1)), ..defaults };
    assert_eq!(get(own, &tools).unwrap().recovery.send_timeout, Millis::secs(1));
    let short = "preset = \"stripe\"\n[execution_policy.idempotency]\nretention = \"20s\"\nmargin = \"15s\"\n[execution_policy.timeouts]\nsend = \"4s\"";
    assert!(get(short, &defaults).is_ok());
    assert!(
        get(short, &Overrides { send_timeout: Some(Millis::secs(6)), ..defaults })
            .unwrap_err()
            .message
            .contains("5s")
    );
}
