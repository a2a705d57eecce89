//! Forms in parts, files and cookies: what is recorded, what is sent, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{KEY, integration, key, parse, request};
use counterfoil_provider::HttpIntent;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A part as a server reads it: name, file name, type, bytes.
type Part = (String, Option<String>, Option<String>, Vec<u8>);

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|w| w == needle)
}

/// Reads a form in parts by RFC 7578 and RFC 2046, strictly.
fn read(r: &http::Request<bytes::Bytes>) -> Vec<Part> {
    let kind = r.headers()["content-type"].to_str().unwrap();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    assert!(boundary.len() <= 70 && boundary.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'));
    let line = format!("\r\n--{boundary}");
    // The first boundary has no line before it.
    let mut rest: Vec<u8> = [b"\r\n", r.body().as_ref()].concat();
    let mut parts = Vec::new();
    assert_eq!(find(&rest, line.as_bytes()), Some(0));
    rest.drain(..line.len());
    while !rest.starts_with(b"--") {
        assert!(rest.starts_with(b"\r\n"));
        let end = find(&rest, line.as_bytes()).unwrap();
        let part = &rest[2..end];
        let blank = find(part, b"\r\n\r\n").unwrap();
        let (mut name, mut file, mut kind) = (None, None, None);
        for header in std::str::from_utf8(&part[..blank]).unwrap().split("\r\n") {
            let (field, value) = header.split_once(": ").unwrap();
            match field {
                "Content-Disposition" => {
                    let mut quoted = value.strip_prefix("form-data; ").unwrap().split('"');
                    assert_eq!(quoted.next(), Some("name="));
                    name = quoted.next().map(unquoted);
                    if quoted.next() == Some("; filename=") {
                        file = quoted.next().map(unquoted);
                    }
                }
                "Content-Type" => kind = Some(value.to_owned()),
                other => panic!("{other}"),
            }
        }
        parts.push((name.unwrap(), file, kind, part[blank + 4..].to_vec()));
        rest.drain(..end + line.len());
    }
    assert_eq!(rest, b"--\r\n");
    parts
}

fn unquoted(text: &str) -> String {
    text.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n")
}

fn form(extra: &str) -> counterfoil_provider::Integration {
    integration(
        "preset = \"none\"",
        &format!("[methods.m]\nhttp = \"POST /a\"\nbody = \"multipart\"\nrecovery = \"none\"\n{extra}"),
    )
}

/// A part's name, file name, type and bytes.
type Shown<'a> = (&'a str, Option<&'a str>, Option<&'a str>, &'a [u8]);

#[test]
fn texts_json_lists_and_files() {
    let i = form(
        "params = { picture = \"body:/image\" }\nstyles = { picture = \"file\", more = \"file\", raw = \"json\", counted = \"index\" }\npart_types = { image = \"image/png\", meta = \"application/vnd.x+json\" }",
    );
    let args = json!({
        "title": "a\r\nb", "n": 12.50, "none": null, "many": ["x", { "y": 1 }], "meta": { "k": 1.50 }, "raw": "x", "counted": ["p", "q"],
        "picture": { "base64": STANDARD.encode([0, 255, 13, 10]), "name": "Ü \"1\".png", "type": "text/html" },
        "more": [STANDARD.encode("a"), { "text": "b", "name": "b.txt", "type": "text/plain" }],
    });
    let r = request(&i, "m", &args.to_string()).unwrap();
    let parts = read(&r);
    let shown: Vec<Shown> =
        parts.iter().map(|(n, f, k, d)| (n.as_str(), f.as_deref(), k.as_deref(), d.as_slice())).collect();
    assert_eq!(
        shown,
        [
            ("title", None, None, &b"a\r\nb"[..]),
            ("n", None, None, b"12.5"),
            ("many", None, None, b"x"),
            ("many", None, Some("application/json"), b"{\"y\":1}"),
            ("meta", None, Some("application/vnd.x+json"), b"{\"k\":1.5}"),
            ("raw", None, Some("application/json"), b"\"x\""),
            ("counted[0]", None, None, b"p"),
            ("counted[1]", None, None, b"q"),
            // What the manifest says of a part is not the caller's to change.
            ("image", Some("Ü \"1\".png"), Some("image/png"), &[0, 255, 13, 10]),
            ("more", Some("more"), Some("application/octet-stream"), b"a"),
            ("more", Some("b.txt"), Some("text/plain"), b"b"),
        ]
    );
}

#[test]
fn a_replay_has_the_same_bytes_and_another_effect_another_boundary() {
    let i = form("styles = { f = \"file\" }");
    let m = i.method("m").unwrap();
    let intent = |args: &str| m.intent(args, &m.recovery(None).unwrap()).unwrap();
    let args = json!({ "f": STANDARD.encode([1, 2, 3]), "t": "x" }).to_string();
    let sent = |args: &str| {
        let r = HttpIntent::decode(&intent(args).body).unwrap().to_http(Some(&key())).unwrap();
        (r.headers()["content-type"].to_str().unwrap().to_owned(), r.body().clone())
    };
    assert_eq!(sent(&args), sent(&args));
    assert_ne!(sent(&args).0, sent(&args.replace("\"x\"", "\"y\"")).0);
    // A body in parts is of a version of its own: who knows only texts must not send the request without it.
    let record: Value = serde_json::from_slice(&intent(&args).body).unwrap();
    assert_eq!((&record["v"], record.get("body")), (&json!(2), None));
    let other: ledger::EffectKey = serde_json::from_value(json!(KEY.replace("0f1e", "1f1e"))).unwrap();
    let under = HttpIntent::decode(&intent(&args).body).unwrap().to_http(Some(&other)).unwrap();
    assert_ne!(under.headers()["content-type"].to_str().unwrap(), sent(&args).0);
    // Nobody can put the boundary into a part: it follows from every byte.
    let again = json!({ "f": STANDARD.encode([1, 2, 3]), "t": sent(&args).0 }).to_string();
    assert_ne!(sent(&again).0, sent(&args).0);
}

#[test]
fn the_key_is_a_part_where_the_provider_wants_it() {
    let i = integration(
        "[execution_policy.idempotency]\nmode = \"dynamic\"\ncarrier = \"body\"\nname = \"key\"",
        "[methods.m]\nhttp = \"POST /a\"\nbody = \"multipart\"\nmarker = { field = \"meta.marker\" }",
    );
    let parts = read(&request(&i, "m", r#"{"meta":{"a":1}}"#).unwrap());
    assert_eq!(parts[0].3, format!("{{\"a\":1,\"marker\":\"{KEY}\"}}").into_bytes());
    assert_eq!((parts[1].0.as_str(), parts[1].3.as_slice()), ("key", KEY.as_bytes()));
    assert!(request(&i, "m", r#"{"key":"mine"}"#).unwrap_err().contains("filled by the gateway"));
}

#[test]
fn parts_have_the_headers_that_are_said() {
    let i = form(
        "styles = { f = \"file\", n = \"index\" }\npart_types = { t = \"text/csv\" }\npart_headers = { t = { X-Kind = \"a: b\", X-Ver = \"2\" }, f = { X-Of = \"f\" }, n = { X-Of = \"n\" }, never = { X-Of = \"x\" } }",
    );
    let args = r#"{"t":"1,2","f":["YQ=="],"n":["x","y"],"other":"o"}"#;
    let sent = request(&i, "m", args).unwrap();
    let body = String::from_utf8(sent.body().to_vec()).unwrap();
    let heads: Vec<&str> = body
        .split("--counterfoil-")
        .filter_map(|part| part.split_once("\r\n")?.1.split_once("\r\n\r\n"))
        .map(|(head, _)| head.strip_prefix("Content-Disposition: form-data; name=").unwrap())
        .collect();
    assert_eq!(
        heads,
        [
            "\"t\"\r\nContent-Type: text/csv\r\nX-Kind: a: b\r\nX-Ver: 2",
            "\"f\"; filename=\"f\"\r\nContent-Type: application/octet-stream\r\nX-Of: f",
            "\"n[0]\"\r\nX-Of: n",
            "\"n[1]\"\r\nX-Of: n",
            "\"other\"",
        ]
    );
    // An earlier program would send it without them, under the same key: it must not read it.
    let m = i.method("m").unwrap();
    let version = |args: &str| -> Value {
        let intent = m.intent(args, &m.recovery(None).unwrap()).unwrap();
        assert!(HttpIntent::decode(&intent.body).is_ok());
        serde_json::from_slice::<Value>(&intent.body).unwrap()["v"].clone()
    };
    assert_eq!((version(args), version(r#"{"other":"o"}"#)), (json!(3), json!(2)));
    for (said, why) in [
        ("t = { Content-Type = \"a/b\" }", "can't stand there"),
        ("t = { content-disposition = \"form-data\" }", "can't stand there"),
        ("t = { \"X Y\" = \"z\" }", "can't stand there"),
        ("t = { X = \"a\\r\\nY: b\" }", "can't stand there"),
        ("t = { X = \"ä\" }", "can't stand there"),
        ("t = { X = \" a\" }", "can't stand there"),
        ("t = { X = \"${env:K}\" }", "can't stand there"),
    ] {
        let text = format!(
            "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n[methods.m]\nhttp = \"POST /a\"\nbody = \"multipart\"\npart_headers = {{ {said} }}\n"
        );
        let e = parse(&text).unwrap_err().to_string();
        assert!(e.contains(why), "{said}: {e}");
    }
    let json = "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n[methods.m]\nhttp = \"POST /a\"\npart_headers = { t = { X = \"a\" } }\n";
    assert!(parse(json).unwrap_err().to_string().contains("only a form of parts"));
}

#[test]
fn one_file_as_the_body() {
    let with = |extra: &str| {
        integration(
            "preset = \"none\"",
            &format!(
                "[methods.m]\nhttp = \"PUT /a\"\nbody = \"binary\"\nparams = {{ file = \"document\" }}\n{extra}"
            ),
        )
    };
    let bytes = [0u8, 159, 146, 150, b'{'];
    let plain = json!({ "file": STANDARD.encode(bytes) }).to_string();
    let told = json!({ "file": { "base64": STANDARD.encode(bytes), "type": "image/gif" } }).to_string();
    for (extra, args, kind) in [
        ("", &plain, "application/octet-stream"),
        ("", &told, "image/gif"),
        ("content_type = \"image/png\"", &told, "image/png"),
    ] {
        let r = request(&with(extra), "m", args).unwrap();
        assert_eq!((r.headers()["content-type"].to_str().unwrap(), r.body().as_ref()), (kind, &bytes[..]));
    }
    let text = request(&with(""), "m", r#"{"file":{"text":"{}"}}"#).unwrap();
    assert_eq!(text.headers()["content-type"], "application/octet-stream");
    let none = request(&with(""), "m", "{}").unwrap();
    assert!(none.body().is_empty() && none.headers().get("content-type").is_none());
    // The padding may be left out; the request is the same.
    let bare = plain.replace('=', "");
    assert_eq!(
        request(&with(""), "m", &bare).unwrap().body(),
        request(&with(""), "m", &plain).unwrap().body()
    );
}

#[test]
fn what_is_no_file_is_refused_and_not_repeated() {
    let i = form("styles = { f = \"file\" }");
    for file in [
        json!("CANARY!"),
        json!(1),
        json!(true),
        json!([[1]]),
        json!({}),
        json!({ "base64": "CANARY!" }),
        json!({ "base64": "YQ==", "text": "CANARY" }),
        json!({ "base64": "YQ==", "other": "CANARY" }),
        json!({ "base64": "YQ==", "name": "../CANARY" }),
        json!({ "base64": "YQ==", "name": "CANARY\n" }),
        json!({ "base64": "YQ==", "name": "" }),
        json!({ "base64": "YQ==", "name": "x".repeat(300) }),
        json!({ "base64": "YQ==", "type": "CANARY" }),
        json!({ "base64": "YQ==", "type": "a/b\r\nX-CANARY: 1" }),
        json!({ "base64": ["YQ=="] }),
    ] {
        let refused = request(&i, "m", &json!({ "f": file }).to_string()).unwrap_err();
        assert!(
            refused.contains("argument `f` is a file") && !refused.contains("CANARY"),
            "{file}: {refused}"
        );
    }
    let large = json!({ "f": [STANDARD.encode(vec![0; 9 << 20]), STANDARD.encode(vec![0; 9 << 20])] });
    assert!(request(&i, "m", &large.to_string()).unwrap_err().contains("16 MiB together"));
    let many = json!({ "t": vec!["x"; 1001] });
    assert!(request(&i, "m", &many.to_string()).unwrap_err().contains("1000 parts"));
    assert!(
        request(&i, "m", &json!({ "a\u{0}": "x" }).to_string()).unwrap_err().contains("control character")
    );
    // A name of an argument can't end its quotation marks.
    let r = request(&i, "m", &json!({ "a\"; filename=\"x": "y" }).to_string()).unwrap();
    assert_eq!(read(&r), [("a\"; filename=\"x".to_owned(), None, None, b"y".to_vec())]);
}

#[test]
fn cookies_and_a_fixed_query() {
    let i = integration(
        "preset = \"none\"",
        "[methods.m]\nhttp = \"GET /a\"\nquery = { action = \"list all\", empty = \"\" }\nparams = { s = \"cookie:SID\", t = \"cookie\", l = \"cookie\", j = \"cookie\" }\nstyles = { l = \"comma\", j = \"json\" }",
    );
    let r = request(&i, "m", r#"{"s":"a; b=c","t":1,"l":["x","y"],"j":{"k":1},"q":"z"}"#).unwrap();
    assert_eq!(r.headers()["cookie"], "SID=a%3B%20b%3Dc; t=1; l=x,y; j=%7B%22k%22%3A1%7D");
    assert_eq!(r.uri().query().unwrap(), "action=list%20all&empty=&q=z");
    assert!(request(&i, "m", r#"{"action":"mine"}"#).unwrap_err().contains("filled by the gateway"));
    assert!(request(&i, "m", r#"{"t":["x"]}"#).unwrap_err().contains("cookie"));
    assert!(request(&i, "m", r#"{"t":null}"#).unwrap().headers().get("cookie").is_none());
}

#[test]
fn what_can_not_work_is_refused_at_load() {
    for (method, part) in [
        ("http = \"POST /a\"\nstyles = { x = \"file\" }", "this body"),
        ("http = \"POST /a\"\nbody = \"multipart\"\nstyles = { x = \"comma\" }", "a form of parts"),
        ("http = \"POST /a\"\nbody = \"multipart\"\nparams = { x = \"body:/a/b\" }", "parts have no fields"),
        ("http = \"POST /a\"\nbody = \"multipart\"\ncontent_type = \"multipart/mixed\"", "says its own type"),
        ("http = \"POST /a\"\nbody = \"multipart\"\npart_types = { x = \"png\" }", "is not a media type"),
        ("http = \"POST /a\"\npart_types = { x = \"image/png\" }", "only a form of parts"),
        ("http = \"POST /a\"\nbody = \"binary\"", "needs an argument that is the body"),
        ("http = \"POST /a\"\nbody = \"multipart\"\nparams = { x = \"document\" }", "is the whole body"),
        ("http = \"GET /a\"\nparams = { x = \"cookie:a b\" }", "is not a cookie's name"),
        ("http = \"GET /a\"\nparams = { x = \"cookie:\" }", "a cookie needs a name"),
        ("http = \"GET /a\"\nparams = { x = \"cookie\" }\nstyles = { x = \"repeat\" }", "a cookie"),
        ("http = \"GET /a\"\nparams = { x = \"query:q\" }\nquery = { q = \"1\" }", "as the argument `x`"),
        ("http = \"GET /a\"\nquery = { q = \"${env:SECRET}\" }", "names a secret"),
        (
            "http = \"POST /a\"\nquery = { k = \"1\" }\nidempotency = { mode = \"dynamic\", carrier = \"query\", name = \"k\" }",
            "carries the effect key",
        ),
    ] {
        let text = format!(
            "name = \"p\"\nbase_url = {{ sandbox = \"https://a.example\", production = \"https://a.example\" }}\n[methods.m]\n{method}\n"
        );
        let message = parse(&text).unwrap_err().message;
        assert!(message.contains(part), "{method}: {message}");
    }
}

proptest! {
    /// What goes into a form in parts comes out of it, whatever its bytes are.
    #[test]
    fn parts_come_back(
        fields in prop::collection::btree_map("[^\u{0}-\u{1f}\u{7f}-\u{9f}%\"]{1,12}", ".{0,40}", 0..5),
        files in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), "[^\u{0}-\u{1f}\u{7f}-\u{9f}%/\\\\]{1,12}"), 0..4),
    ) {
        prop_assume!(!fields.contains_key("f"));
        let i = form("styles = { f = \"file\" }");
        let mut args: serde_json::Map<String, Value> = fields.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
        let given = files.iter().map(|(bytes, name)| json!({ "base64": STANDARD.encode(bytes), "name": name }));
        args.insert("f".into(), Value::Array(given.collect()));
        let r = request(&i, "m", &Value::Object(args).to_string()).unwrap();
        let (mut texts, mut back) = (std::collections::BTreeMap::new(), Vec::new());
        for (name, file, _, data) in read(&r) {
            match file {
                Some(file) => back.push((data, file)),
                None => drop(texts.insert(name, String::from_utf8(data).unwrap())),
            }
        }
        prop_assert_eq!(texts, fields);
        prop_assert_eq!(back, files);
    }
    /// A whole body is what was given: bytes, a text, any JSON.
    #[test]
    fn whole_bodies_come_back(bytes in prop::collection::vec(any::<u8>(), 0..300), text in ".{0,60}", n in any::<i64>()) {
        let with = |kind: &str| {
            integration(
                "preset = \"none\"",
                &format!("[methods.m]\nhttp = \"POST /a\"\nbody = \"{kind}\"\nparams = {{ b = \"document\" }}\nrecovery = \"none\""),
            )
        };
        let sent = |kind: &str, body: Value| request(&with(kind), "m", &json!({ "b": body }).to_string()).unwrap();
        prop_assert_eq!(sent("binary", json!(STANDARD.encode(&bytes))).body().to_vec(), bytes);
        prop_assert_eq!(sent("binary", json!({ "text": text })).body().to_vec(), text.as_bytes());
        prop_assert_eq!(sent("text", json!(text)).body().to_vec(), text.as_bytes());
        let any = json!([text, { "n": n, "": null }]);
        prop_assert_eq!(serde_json::from_slice::<Value>(sent("json", any.clone()).body()).unwrap(), any);
    }
}
