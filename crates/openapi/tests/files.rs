//! Files, cookies, odd paths, alternatives, kinds and pages: from the description to what is sent.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use openapi::{Description, Imported, Options};
use provider::{Format, Integration, Method, MethodEffect, Mode};
use serde_json::{Value, json};

const FILES: &str = include_str!("samples/files.yaml");
const KEY: &str = "0f1e2d3c-4b5a-8978-8695-a4b3c2d1e0f0";

fn imported() -> Imported {
    Description::read(FILES).unwrap().import(&Options::default(), None).unwrap()
}

fn files() -> Integration {
    Integration::parse("m.toml", &imported().manifest, Format::Toml, Mode::Production).unwrap()
}

fn sent(method: &Method, args: &Value) -> http::Request<bytes::Bytes> {
    let valid = jsonschema::validator_for(method.input_schema()).unwrap();
    let wrong: Vec<String> = valid.iter_errors(args).map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{}: {args}: {wrong:?}", method.canonical_id());
    let args = args.to_string();
    let record = match method.effect() {
        MethodEffect::Read => method.read_request(&args).unwrap(),
        MethodEffect::Mutating => {
            let intent = method.intent(&args, &method.recovery(None).unwrap()).unwrap();
            provider::HttpIntent::decode(&intent.body).unwrap()
        }
    };
    record.to_http(Some(&serde_json::from_value(json!(KEY)).unwrap())).unwrap()
}

fn schema(integration: &Integration, method: &str) -> Value {
    integration.method(method).unwrap().input_schema().clone()
}

#[test]
fn a_form_in_parts() {
    let i = files();
    let m = i.method("upload").unwrap();
    assert_eq!(m.key_carrier().as_deref(), Some("body field idempotency_key"));
    let args = json!({
        "SID": "s 1", "prefs": ["a", "b"], "title": "t", "picture": { "base64": "iVBORw==", "name": "p.png" },
        "attachments": ["JVBERg==", { "text": "x", "type": "image/gif" }], "meta": { "a": 1 }, "rows": "1,2",
        "many": ["x", "y"], "listed": ["x", "y"], "coded": "YQ==",
    });
    let r = sent(m, &args);
    assert_eq!(r.headers()["cookie"], "SID=s%201; prefs=a,b");
    let kind = r.headers()["content-type"].to_str().unwrap();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let body = String::from_utf8_lossy(r.body()).replace(boundary, "B");
    let part =
        |head: &str, data: &str| format!("--B\r\nContent-Disposition: form-data; {head}\r\n\r\n{data}\r\n");
    let pdf = "\r\nContent-Type: application/octet-stream";
    assert_eq!(
        body,
        [
            part("name=\"title\"", "t"),
            part("name=\"picture\"; filename=\"p.png\"\r\nContent-Type: image/png", "\u{fffd}PNG"),
            part(&format!("name=\"attachments\"; filename=\"attachments\"{pdf}"), "%PDF"),
            part("name=\"attachments\"; filename=\"attachments\"\r\nContent-Type: image/gif", "x"),
            part("name=\"meta\"\r\nContent-Type: application/json", "{\"a\":1}"),
            part("name=\"rows\"\r\nContent-Type: text/csv\r\nX-Kind: table\r\nX-Ver: 2", "1,2"),
            part("name=\"many\"", "x"),
            part("name=\"many\"", "y"),
            part("name=\"listed\"\r\nContent-Type: application/json", "[\"x\",\"y\"]"),
            // What is described as base64 is sent as that text.
            part("name=\"coded\"", "YQ=="),
            part("name=\"idempotency_key\"", KEY),
            "--B--\r\n".to_owned(),
        ]
        .concat()
    );
    let notes: Vec<String> = imported().report.notes.into_iter().map(|n| n.note).collect();
    for part in [
        "the header `X-Rows` of the part `rows`",
        "the header `Content-Disposition` of the part `rows`",
        "no name of a cookie",
        "is sent as `file`",
        "nowhere in the path",
    ] {
        assert!(notes.iter().any(|n| n.contains(part)), "{part}: {notes:?}");
    }
    let input = schema(&i, "upload");
    assert_eq!(input["required"], json!(["SID", "title", "picture"]));
    let about = input["properties"]["picture"]["description"].as_str().unwrap();
    assert!(about.starts_with("What it looks like. A file: its bytes in base64"), "{about}");
}

#[test]
fn whole_files() {
    let i = files();
    for (method, args, kind, body) in [
        ("picture", json!({ "body": "iVBORw==" }), "image/png", &b"\x89PNG"[..]),
        ("anything", json!({ "body": { "text": "hi", "type": "text/css" } }), "text/css", b"hi"),
        ("lines", json!({ "body": "{}\n{}\n" }), "application/x-ndjson", b"{}\n{}\n"),
    ] {
        let r = sent(i.method(method).unwrap(), &args);
        assert_eq!(
            (r.headers()["content-type"].to_str().unwrap(), r.body().as_ref()),
            (kind, body),
            "{method}"
        );
    }
    let nameless = sent(i.method("nameless").unwrap(), &json!({ "file": "YQ==" }));
    let body = String::from_utf8(nameless.body().to_vec()).unwrap();
    assert!(body.contains("name=\"file\"; filename=\"file\""), "{body}");
}

#[test]
fn a_form_with_alternatives_takes_the_fields_of_all() {
    let i = files();
    let input = schema(&i, "either");
    assert_eq!(input["required"], json!(["amount", "to"]));
    let r = sent(i.method("either").unwrap(), &json!({ "amount": 1, "to": "x", "iban": "y" }));
    assert_eq!(r.body().as_ref(), b"amount=1&to=x&iban=y");
    sent(i.method("either").unwrap(), &json!({ "amount": 1, "to": 7, "card": "y" }));
}

#[test]
fn what_stands_behind_a_path() {
    let i = files();
    let url = |method: &str, args: Value| {
        let r = sent(i.method(method).unwrap(), &args);
        r.uri().to_string().trim_start_matches("https://files.example/v1").to_owned()
    };
    assert_eq!(
        url("rpc", json!({ "of": ["a", "b"], "limit": 5, "more": "x" })),
        "/rpc?action=list%20all&of=a,b&limit=5&more=x"
    );
    assert_eq!(schema(&i, "rpc")["required"], json!(["of", "limit"]));
    assert_eq!(url("start", json!({ "Version": "1" })), "/?Action=Start&Version=1");
    assert_eq!(url("acl", json!({ "bucket": "b" })), "/b?acl=true");
    let put = sent(i.method("put").unwrap(), &json!({ "k": "v" }));
    assert_eq!((put.headers()["x-target"].to_str().unwrap(), put.uri().path()), ("Db.Put", "/v1/"));
    // A PUT to a part of an object may be an action.
    assert_eq!(i.method("acl").unwrap().recovery(None).unwrap().strategy.word(), "none");
    let skipped: Vec<(String, &str)> =
        imported().report.skipped.iter().map(|s| (s.operation.clone(), s.reason.word())).collect();
    assert_eq!(
        skipped,
        [("POST /mixed".to_owned(), "media_type"), ("GET /rpc?text=a{b}".to_owned(), "path")]
    );
}

#[test]
fn pages_are_told_where_the_description_tells_of_them() {
    let i = files();
    let about = |method: &str| i.method(method).unwrap().description().to_owned();
    assert_eq!(
        about("events"),
        "List events. Results come in pages: for the next one give `cursor` what is at `/meta/next_cursor` of the result; \
         `limit` is how many a page has; `/has_more` says whether there are more."
    );
    assert!(
        about("users").contains("`/@odata.nextLink` of the result leads to the next; `top` is how many"),
        "{}",
        about("users")
    );
    assert!(about("pages").contains("`page` says which; `per_page` is how many"), "{}", about("pages"));
    assert!(about("said").contains("give `after` what is at `/meta/next`"), "{}", about("said"));
    assert!(!about("not-paged").contains("pages"), "{}", about("not-paged"));
}

#[test]
fn alternatives_and_kinds() {
    let i = files();
    // Side by side, the fields of all kinds.
    sent(i.method("animals").unwrap(), &json!({ "kind": "dog", "name": "x", "bark": "y" }));
    sent(i.method("animals").unwrap(), &json!({ "kind": "cat", "lives": 9 }));
    let valid = jsonschema::validator_for(&schema(&i, "gist")).unwrap();
    assert!(valid.is_valid(&json!({ "body": { "a": "x" } })) && !valid.is_valid(&json!({ "body": {} })));
    // Inside, one of the kinds.
    let zoo = schema(&i, "zoo");
    let valid = jsonschema::validator_for(&zoo).unwrap();
    let kinds = zoo["properties"]["first"]["anyOf"].as_array().unwrap();
    assert_eq!(kinds[0]["properties"]["kind"]["enum"], json!(["cat"]));
    assert_eq!(kinds[1]["properties"]["bark"]["type"], json!("string"));
    assert!(valid.is_valid(&json!({ "first": { "kind": "dog", "bark": "y" } })));
    assert!(
        valid.is_valid(&json!({ "first": { "kind": "fish", "name": "y" } })),
        "a kind that is not mapped"
    );
    assert!(!valid.is_valid(&json!({ "first": { "name": "y" } })));
}
