//! How lists, objects and whole bodies are written, and what is refused.

#![allow(clippy::unwrap_used)]

use counterfoil_provider::{self as provider, Format, Integration, Mode};
use proptest::prelude::*;
use serde_json::{Value, json};

const API: &str = r#"
name = "api"
base_url = { sandbox = "https://api.example", production = "https://api.example" }
[execution_policy.idempotency]
mode = "dynamic"
carrier = "query"
name = "key"
methods = ["POST", "DELETE"]
[methods.query]
http = "GET /q"
effect = "read"
params = { a = "query", b = "query", c = "query", d = "query", e = "query", f = "query", g = "query" }
styles = { a = "comma", b = "space", c = "pipe", d = "members", e = "repeat", f = "index", g = "json" }
[methods.path]
http = "GET /p/{list}/x{pairs}"
styles = { list = "comma", pairs = "pairs" }
[methods.form]
http = "POST /f"
body = "form"
styles = { a = "comma", b = "space", c = "pipe", d = "repeat", e = "index", f = "json" }
[methods.anything]
http = "POST /j"
params = { value = "document" }
[methods.text]
http = "POST /t"
body = "text"
content_type = "application/xml"
params = { xml = "document" }
[methods.filter]
http = "DELETE /q"
params = { filter = "query" }
styles = { filter = "members" }
"#;

fn api() -> Integration {
    Integration::parse("api.toml", API, Format::Toml, Mode::Production).unwrap()
}

fn record(method: &str, args: &Value) -> Result<Value, String> {
    let api = api();
    let method = api.method(method).unwrap();
    let args = args.to_string();
    if method.effect() == provider::MethodEffect::Read {
        let read = method.read_request(&args).map_err(|e| e.to_string())?;
        return Ok(serde_json::to_value(read).unwrap());
    }
    let intent = method.intent(&args, &method.recovery(None).unwrap()).map_err(|e| e.to_string())?;
    Ok(serde_json::from_slice(&intent.body).unwrap())
}

fn text(pieces: &Value) -> String {
    pieces.as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect::<Vec<_>>().join("{key}")
}

#[test]
fn each_style_in_each_place() {
    let list = json!(["x y", "1,2"]);
    let args = json!({ "a": list, "b": list, "c": list, "d": { "m": 1, "n": ["o"] }, "e": list, "f": list, "g": { "k": 1.50 } });
    assert_eq!(
        text(&record("query", &args).unwrap()["url"]),
        "https://api.example/q?a=x%20y,1%2C2&b=x%20y%201%2C2&c=x%20y%7C1%2C2&m=1&n=o&e=x%20y&e=1%2C2&f%5B0%5D=x%20y&f%5B1%5D=1%2C2&g=%7B%22k%22%3A1.5%7D"
    );
    let path = record("path", &json!({ "list": ["a", "b,c"], "pairs": { "k": "v=w" } })).unwrap();
    assert_eq!(text(&path["url"]), "https://api.example/p/a,b%2Cc/xk=v%3Dw");
    let form = json!({ "a": list, "b": ["p", "q"], "c": ["p", "q"], "d": ["p", "q"], "e": ["p", "q"], "f": ["p"], "g": ["p"] });
    assert_eq!(
        text(&record("form", &form).unwrap()["body"]),
        "a=x%20y,1%2C2&b=p%20q&c=p%7Cq&d=p&d=q&e%5B0%5D=p&e%5B1%5D=q&f=%5B%22p%22%5D&g%5B0%5D=p"
    );
}

#[test]
fn one_argument_as_the_body() {
    let array = record("anything", &json!({ "value": [1, { "a": 2 }] })).unwrap();
    assert_eq!(
        (text(&array["body"]), array["content_type"].as_str()),
        ("[1,{\"a\":2}]".into(), Some("application/json"))
    );
    let xml = record("text", &json!({ "xml": "<a b=\"{key}\"/>" })).unwrap();
    assert_eq!(
        (text(&xml["body"]), xml["content_type"].as_str()),
        ("<a b=\"{key}\"/>".into(), Some("application/xml"))
    );
    assert_eq!(xml["body"].as_array().unwrap().len(), 1, "no text of a caller is a place for the key");
    assert!(record("text", &json!({ "xml": { "a": 1 } })).is_err());
    assert!(
        record("anything", &json!({ "value": 1, "other": 2 })).is_err(),
        "nothing goes beside a whole body"
    );
}

#[test]
fn a_member_can_not_take_the_keys_place() {
    assert!(
        record("filter", &json!({ "filter": { "key": "mine" } }))
            .unwrap_err()
            .contains("filled by the gateway")
    );
    assert!(record("filter", &json!({ "filter": { "other": "fine" } })).is_ok());
}

#[test]
fn what_can_not_work_is_refused() {
    let refused = |method: &str| {
        let text = format!(
            "name = \"a\"\nbase_url = {{ sandbox = \"https://a.example\", production = \"https://a.example\" }}\n[methods.m]\n{method}\n"
        );
        Integration::parse("a.toml", &text, Format::Toml, Mode::Production).unwrap_err().message
    };
    for (method, part) in [
        ("http = \"POST /a\"\nstyles = { x = \"comma\" }", "this body"),
        ("http = \"GET /a\"\nstyles = { x = \"pairs\" }", "the query"),
        ("http = \"GET /{x}\"\nstyles = { x = \"repeat\" }", "the path"),
        ("http = \"POST /a\"\nbody = \"text\"", "needs an argument that is the body"),
        ("http = \"POST /a\"\nbody = \"form\"\nparams = { x = \"document\" }", "is the whole body"),
        ("http = \"POST /a\"\nparams = { x = \"document\", y = \"body\" }", "nothing else can go into it"),
        (
            "http = \"POST /a\"\nparams = { x = \"document\" }\nmarker = { field = \"m\" }",
            "is the whole body",
        ),
        (
            "http = \"POST /a\"\nparams = { x = \"document\" }\nidempotency = { mode = \"dynamic\", carrier = \"body\", name = \"k\" }",
            "is the whole body",
        ),
    ] {
        let message = refused(method);
        assert!(message.contains(part), "{method}: {message}");
    }
}

proptest! {
    /// What is written in a query is read back as the same texts by any parser of forms.
    #[test]
    fn lists_come_back(items in prop::collection::vec("[^\u{0}]{1,12}", 1..6)) {
        let url = text(&record("query", &json!({ "a": items, "e": items, "f": items })).unwrap()["url"]);
        let url = url::Url::parse(&url).unwrap();
        let raw = url.query().unwrap();
        let commas = raw.split('&').find_map(|p| p.strip_prefix("a=")).unwrap();
        let back: Vec<String> = commas
            .split(',')
            .map(|p| percent_encoding::percent_decode_str(p).decode_utf8().unwrap().into_owned())
            .collect();
        prop_assert_eq!(&back, &items);
        let repeated: Vec<String> = url.query_pairs().filter(|(n, _)| n == "e").map(|(_, v)| v.into_owned()).collect();
        prop_assert_eq!(&repeated, &items);
        for (i, item) in items.iter().enumerate() {
            let name = format!("f[{i}]");
            prop_assert!(url.query_pairs().any(|(n, v)| n == name && v == item.as_str()));
        }
    }
}
