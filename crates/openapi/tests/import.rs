//! Descriptions into manifests, with the gateway's own reader on the other side.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use openapi::{Description, Error, Imported, Options, Selection};
use provider::{Format, Integration, MethodEffect, Mode, Origin, Overrides};
use serde_json::{Value, json};

const SHOP: &str = include_str!("samples/shop.yaml");

fn import(text: &str, options: &Options, existing: Option<&str>) -> Imported {
    Description::read(text).unwrap().import(options, existing).unwrap()
}

fn load(imported: &Imported) -> Integration {
    Integration::parse("m.toml", &imported.manifest, Format::Toml, Mode::Production).unwrap()
}

/// The request of a call, as verb with URL, and as the whole record.
fn sent(integration: &Integration, method: &str, args: &Value) -> (String, Value) {
    let method = integration.method(method).unwrap_or_else(|| panic!("no {method}"));
    let args = args.to_string();
    let record = match method.effect() {
        MethodEffect::Read => serde_json::to_value(method.read_request(&args).unwrap()).unwrap(),
        MethodEffect::Mutating => {
            let intent = method.intent(&args, &method.recovery(None).unwrap()).unwrap();
            serde_json::from_slice(&intent.body).unwrap()
        }
    };
    let url: Vec<&str> = record["url"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    (format!("{} {}", record["method"].as_str().unwrap(), url.join("{key}")), record)
}

fn body(record: &Value) -> String {
    record["body"].as_array().unwrap().iter().filter_map(Value::as_str).collect::<Vec<_>>().join("{key}")
}

#[test]
fn every_place_and_style_of_a_parameter() {
    let shop = load(&import(SHOP, &Options::default(), None));
    assert_eq!(shop.base_url(), "https://eu.shop.example/v1");
    let all = json!({
        "filter_state": "a b", "ids": ["1", "2,3"], "spaced": ["x", "y"], "piped": ["p", "q"], "tag": ["s", "t"],
        "range": { "from": 1, "to": 2 }, "page": { "size": 5, "after": "z" }, "X-Groups": ["g", "h"], "X-Trace": "t1",
    });
    let (url, record) = sent(&shop, "orders.list", &all);
    assert_eq!(
        url,
        "GET https://eu.shop.example/v1/orders?filter%5Bstate%5D=a%20b&ids=1,2%2C3&spaced=x%20y&piped=p%7Cq&tag=s&tag=t&range%5Bfrom%5D=1&range%5Bto%5D=2&size=5&after=z"
    );
    let headers = record["headers"].to_string();
    assert!(
        headers.contains(r#"["X-Groups",["g,h"]]"#) && headers.contains(r#"["X-Trace",["t1"]]"#),
        "{headers}"
    );
    let (url, _) =
        sent(&shop, "notes.list", &json!({ "order-id": "o-1", "colours": ["red", "b,c"], "shade": "x" }));
    assert_eq!(url, "GET https://eu.shop.example/v1/orders/o-1/notes/red,b%2Cc;shade=x");
    let climbing = shop.method("notes.list").unwrap();
    for colours in [json!(["a/b"]), json!([]), json!({ "a": [1] })] {
        let args = json!({ "order-id": "1", "colours": colours, "shade": "x" }).to_string();
        assert!(climbing.read_request(&args).is_err(), "{args}");
    }
}

#[test]
fn every_kind_of_body() {
    let shop = load(&import(SHOP, &Options::default(), None));
    let form = json!({ "name": "n", "many": ["a", "b"], "deep": { "a": 1 }, "joined": ["x", "y"], "meta": { "k": 1 } });
    let (_, record) = sent(&shop, "form", &form);
    assert_eq!(body(&record), "name=n&many=a&many=b&deep%5Ba%5D=1&joined=x,y&meta=%7B%22k%22%3A1%7D");
    let (_, record) = sent(&shop, "text", &json!({ "body": "{not json}" }));
    assert_eq!(
        (body(&record), record["content_type"].as_str()),
        ("{not json}".into(), Some("text/plain; charset=utf-8"))
    );
    let (_, record) = sent(&shop, "batch", &json!({ "body": [{ "total": 1 }], "X-Correlation-Id": "c" }));
    assert_eq!(
        (body(&record), record["content_type"].as_str()),
        ("[{\"total\":1}]".into(), Some("application/json"))
    );
    assert!(record["headers"].to_string().contains(r#"["X-Request-Id",["",""]]"#), "{record}");
    let (_, record) = sent(&shop, "orders.create", &json!({ "total": 5, "payment": { "kind": "card" } }));
    assert_eq!(body(&record), r#"{"total":5,"payment":{"kind":"card"}}"#);
    // Recorded as it is sent: what stands in a manifest without these fields sends what it always did.
    assert!(record.get("content_type").is_none());
}

#[test]
fn safety_comes_from_the_description() {
    let imported = import(SHOP, &Options::default(), None);
    let shop = load(&imported);
    let of = |name: &str| {
        let method = shop.method(name).unwrap();
        let resolved = method.resolve(&Overrides::default()).unwrap();
        (
            resolved.recovery.strategy.word(),
            resolved.origins.strategy,
            method.key_carrier().unwrap_or_default(),
        )
    };
    assert_eq!(of("orders.create"), ("key", Origin::Description, "header Idempotency-Key".into()));
    assert_eq!(of("batch"), ("key", Origin::Description, "header X-Request-Id".into()));
    assert_eq!(of("orders.replace").0, "natural");
    assert_eq!(of("orders.delete"), ("natural", Origin::Description, String::new()));
    assert_eq!(of("form"), ("none", Origin::Default, String::new()));
    assert_eq!(shop.method("searchOrders").unwrap().effect(), MethodEffect::Read);
    assert_eq!(shop.method("searchOrders").unwrap().effect_origin(), Origin::Description);
    let hidden = shop.method("orders.create").unwrap().input_schema()["properties"].clone();
    assert!(hidden.get("Idempotency-Key").is_none() && hidden.get("total").is_some(), "{hidden}");
    // A correlation id is no key: nothing says that it is one.
    assert!(shop.method("batch").unwrap().input_schema()["properties"].get("X-Correlation-Id").is_some());
}

#[test]
fn schemas_are_plain_and_take_what_the_description_takes() {
    let shop = load(&import(SHOP, &Options::default(), None));
    let input = shop.method("orders.create").unwrap().input_schema().clone();
    let text = input.to_string();
    assert!(
        !text.contains("$ref")
            && !text.contains("nullable")
            && !text.contains("example")
            && !text.contains("\"pattern\""),
        "{text}"
    );
    assert_eq!(input["properties"]["total"], json!({ "type": "integer", "exclusiveMinimum": 0 }));
    assert_eq!(input["properties"]["note"]["type"], json!(["string", "null"]));
    assert!(input["properties"].get("id").is_none(), "what only the provider writes is no argument");
    assert_eq!(input["required"], json!(["total", "payment"]));
    let validator = jsonschema::validator_for(&input).unwrap();
    for (args, fits) in [
        (json!({ "total": 1, "payment": { "kind": "card", "number": "4" } }), true),
        (
            json!({ "total": 1, "payment": { "kind": "Transfer" }, "parent": { "total": 2, "payment": { "kind": "card" } } }),
            true,
        ),
        (json!({ "total": 0, "payment": { "kind": "card" } }), false),
        (json!({ "total": 1, "payment": { "kind": "cash" } }), false),
        (json!({ "total": 1 }), false),
        (json!({ "total": 1, "payment": { "kind": "card" }, "typo": 1 }), false),
    ] {
        assert_eq!(validator.is_valid(&args), fits, "{args}");
    }
}

#[test]
fn what_is_not_imported_is_listed_with_its_reason() {
    let report = import(SHOP, &Options::default(), None).report;
    let mut skipped: Vec<(&str, &str)> =
        report.skipped.iter().map(|s| (s.operation.as_str(), s.reason.word())).collect();
    skipped.sort_unstable();
    assert_eq!(
        skipped,
        [
            ("GET /elsewhere", "server"),
            ("GET /probe", "get_with_body"),
            ("OPTIONS /probe", "verb"),
            ("POST /mixed", "media_type"),
            ("POST /remote", "reference"),
        ]
    );
    let notes: Vec<String> = report.notes.iter().map(|n| n.note.clone()).collect();
    for part in ["pattern can't be checked", "holds itself"] {
        assert!(notes.iter().any(|n| n.contains(part)), "{part}: {notes:?}");
    }
    assert_eq!(report.methods + report.skipped.len(), Description::read(SHOP).unwrap().operations().len());
}

#[test]
fn a_choice_by_tag_path_and_id() {
    let choose =
        |selection: Selection| import(SHOP, &Options { selection, ..Options::default() }, None).report;
    let tags = choose(Selection { tags: vec!["orders".into()], ..Selection::default() });
    assert_eq!((tags.methods, tags.skipped.len()), (6, 0));
    let paths = choose(Selection { paths: vec!["/orders/*".into()], ..Selection::default() });
    assert_eq!(paths.methods, 4);
    let both = Selection {
        tags: vec!["orders".into()],
        operations: vec!["orders/get".into()],
        ..Selection::default()
    };
    assert_eq!(choose(both).changes.added, ["orders.get"]);
    let wrong = Selection { tags: vec!["order".into()], ..Selection::default() };
    let refused =
        Description::read(SHOP).unwrap().import(&Options { selection: wrong, ..Options::default() }, None);
    assert!(matches!(refused, Err(Error::Nothing(why)) if why.contains("did you mean \"orders\"")));
}

#[test]
fn what_the_operator_changed_stays() {
    let first = import(SHOP, &Options::default(), None);
    assert!(first.report.changes.changed.is_empty() && first.report.changes.kept.is_empty());
    let again = import(SHOP, &Options::default(), Some(&first.manifest));
    assert!(
        again.report.changes.is_empty() && again.manifest == first.manifest,
        "{:?}",
        again.report.changes
    );
    // An operator's hand: a description, a strategy, a comment, a method taken out, a look-up of their own.
    let edited = first
        .manifest
        .replace("description = \"Create an order\"", "description = \"Order things\" # ours")
        .replace("[methods.\"orders.delete\"]\n", "[methods.\"orders.delete\"]\nrecovery = \"none\"\n");
    let cut = edited.find("[methods.form]").unwrap();
    let end = edited[cut + 1..].find("\n[").unwrap() + cut + 1;
    let edited = format!("{}{}", &edited[..cut], &edited[end + 1..]);
    // The provider's: a description, a new operation, one that is gone, one that moved.
    let changed = SHOP
        .replace("summary: Create an order", "summary: Create one order")
        .replace("summary: List orders", "summary: List all orders")
        .replace("  /text:\n", "  /plain:\n")
        .replace("operationId: batch", "operationId: newBatch")
        .replace(
            "  /orders/search:\n",
            "  /things:\n    get: { operationId: things, responses: {} }\n  /orders/find:\n",
        )
        .replace("operationId: searchOrders", "operationId: findOrders");
    let second = import(&changed, &Options::default(), Some(&edited));
    let changes = &second.report.changes;
    assert_eq!(changes.added, ["things", "findOrders"]);
    assert_eq!(changes.removed, ["searchOrders"]);
    assert_eq!(changes.left_out, ["POST /form"]);
    assert_eq!(changes.changed["orders.list"], ["title", "description"]);
    assert_eq!(changes.changed["text"], ["http", "description"], "who keeps an id keeps the name");
    assert_eq!(changes.changed["orders.create"], ["title"]);
    assert_eq!(changes.kept["orders.create"], ["description"]);
    let shop = load(&second);
    assert_eq!(shop.method("orders.create").unwrap().description(), "Order things");
    assert_eq!(shop.method("orders.delete").unwrap().recovery(None).unwrap().strategy.word(), "none");
    assert!(second.manifest.contains("# ours"), "comments stay");
    assert!(
        shop.method("form").is_none() && shop.method("batch").is_some(),
        "who stays at its place keeps the name"
    );
    // Named by its id, what was taken out comes back.
    let back = Selection { operations: vec!["form".into()], ..Selection::default() };
    let third = import(&changed, &Options { selection: back, ..Options::default() }, Some(&second.manifest));
    assert_eq!(third.report.changes.added, ["form"]);
}

#[test]
fn a_choice_is_remembered() {
    let selection = Selection { operations: vec!["orders/get".into()], ..Selection::default() };
    let first = import(SHOP, &Options { selection, ..Options::default() }, None);
    let again = import(SHOP, &Options::default(), Some(&first.manifest));
    assert_eq!(again.report.methods, 1);
    let more = Selection { operations: vec!["batch".into()], ..Selection::default() };
    let more = import(SHOP, &Options { selection: more, ..Options::default() }, Some(&first.manifest));
    assert_eq!((more.report.methods, more.report.changes.added.clone()), (2, vec!["batch".to_owned()]));
    let said = Options {
        preset: Some("square".into()),
        sandbox_url: Some("http://127.0.0.1:9/x".into()),
        variables: [("region".to_owned(), "us".to_owned())].into(),
        ..Options::default()
    };
    let told = import(SHOP, &said, Some(&more.manifest));
    let kept = import(SHOP, &Options::default(), Some(&told.manifest));
    assert!(kept.report.changes.is_empty() && kept.manifest == told.manifest, "{:?}", kept.report.changes);
    assert_eq!(
        (load(&kept).base_url(), load(&kept).preset().name.as_str()),
        ("https://us.shop.example/v1", "square")
    );
    assert!(kept.manifest.contains("http://127.0.0.1:9/x"));
    let all = import(SHOP, &Options { all: true, ..Options::default() }, Some(&more.manifest));
    assert_eq!(all.report.methods, 12);
}

#[test]
fn other_documents_are_refused() {
    for (text, part) in [
        ("swagger: '2.0'", "Swagger 2.0"),
        ("openapi: 4.0.0", "version is 4.0.0"),
        ("[]", "no `openapi`"),
        ("", "nothing in it"),
    ] {
        let e = Description::read(text).unwrap_err().to_string();
        assert!(e.contains(part), "{e}");
    }
    let bare = "openapi: 3.1.0\npaths: { /a: { get: { responses: {} } } }";
    let refused = Description::read(bare).unwrap().import(&Options::default(), None);
    assert!(matches!(refused, Err(Error::NoServer)));
    let given = Options { base_url: Some("http://127.0.0.1:9".into()), ..Options::default() };
    assert_eq!(import(bare, &given, None).report.changes.added, ["a.get"]);
    let plain = Options { base_url: Some("http://api.example".into()), ..Options::default() };
    assert!(matches!(Description::read(bare).unwrap().import(&plain, None), Err(Error::Option(_))));
}
