//! Where an effect key goes by a description and a preset together: never where nothing says that it is honoured, and never
//! where a model could fill it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use openapi::{Description, Imported, Options};
use provider::{Format, Integration, Method, Mode};
use serde_json::{Value, json};

fn import(description: &Value, options: &Options, existing: Option<&str>) -> (Imported, Integration) {
    let imported = Description::read(&description.to_string()).unwrap().import(options, existing).unwrap();
    let loaded = Integration::parse("m.toml", &imported.manifest, Format::Toml, Mode::Production);
    let loaded = loaded.unwrap_or_else(|e| panic!("{e}\n{}", imported.manifest));
    (imported, loaded)
}

/// One POST at an address.
fn post(url: &str, path: &str, operation: Value) -> Value {
    let mut operation = operation;
    operation["operationId"] = json!("act");
    operation["responses"] = json!({});
    json!({
        "openapi": "3.0.3", "info": { "title": "Pay", "version": "1" }, "servers": [{ "url": url }],
        "paths": { path: { "post": operation } },
    })
}

fn header(name: &str, about: &str) -> Value {
    json!({ "name": name, "in": "header", "required": true, "description": about, "schema": { "type": "string" } })
}

fn strategy(method: &Method) -> &'static str {
    method.recovery(None).unwrap().strategy.word()
}

fn arguments(method: &Method) -> Vec<String> {
    method.input_schema()["properties"].as_object().unwrap().keys().cloned().collect()
}

fn named(preset: &str) -> Options {
    Options { preset: Some(preset.into()), ..Options::default() }
}

#[test]
fn words_that_deny_a_key_make_none() {
    let long = format!("An id. {} It is not used for idempotency.", "It is shown in logs. ".repeat(30));
    for (name, about, strategy_of) in [
        ("X-Request-Id", "For tracing only, not used for idempotency", "none"),
        ("X-Request-Id", long.as_str(), "none"),
        ("X-Request-Id", "Makes the request idempotent", "key"),
        ("Idempotency-Key", "Not supported on this endpoint", "none"),
        ("Idempotency-Key", "", "key"),
        ("X-GCS-Idempotence-Key", "", "key"),
        ("X-idempotence-uuid", "A UUID", "key"),
        ("PayPal-Request-Id", "The server stores keys for 6 hours.", "key"),
    ] {
        let (imported, loaded) = import(
            &post("https://pay.example.com", "/act", json!({ "parameters": [header(name, about)] })),
            &Options::default(),
            None,
        );
        let method = loaded.method("act").unwrap();
        assert_eq!(strategy(method), strategy_of, "{name}: {about}");
        let shown = arguments(method);
        assert_eq!(shown.is_empty(), strategy_of == "key", "{name}: {shown:?}");
        let noted = imported.report.notes.iter().any(|n| n.note.contains("may not make repeating safe"));
        assert_eq!(noted, strategy_of == "none", "{name}: {:?}", imported.report.notes);
    }
}

#[test]
fn a_key_that_is_out_of_use_is_none() {
    let strategy_of = |parameter: Value| {
        let operation = json!({ "parameters": [parameter] });
        let (_, loaded) =
            import(&post("https://pay.example.com", "/act", operation), &Options::default(), None);
        strategy(loaded.method("act").unwrap())
    };
    for (about, is) in [("A key", "none"), ("", "none"), ("Makes the request idempotent", "key")] {
        let mut parameter = header("Idempotency-Key", about);
        assert_eq!(strategy_of(parameter.clone()), "key");
        parameter["deprecated"] = json!(true);
        assert_eq!(strategy_of(parameter.clone()), is, "{about}");
        parameter.as_object_mut().unwrap().remove("deprecated");
        parameter["schema"]["deprecated"] = json!(true);
        assert_eq!(strategy_of(parameter), is, "{about}");
    }
    for about in ["Deprecated. No longer used.", "Unused.", "This header is currently ignored."] {
        assert_eq!(strategy_of(header("Idempotency-Key", about)), "none", "{about}");
    }
    // A word in the schema's own description counts for the parameter, too.
    let mut parameter = header("X-Request-Id", "Makes the request idempotent");
    assert_eq!(strategy_of(parameter.clone()), "key");
    parameter["schema"]["description"] = json!("Not used any more");
    assert_eq!(strategy_of(parameter), "none");
}

#[test]
fn a_preset_by_address_takes_its_methods_in() {
    // As published: nothing says "idempotent".
    let about =
        "The server stores keys for 6 hours. The API callers can request the times to up to 72 hours.";
    for path in
        ["/v2/checkout/orders", "/v2/checkout/orders/{id}/capture", "/v2/payments/captures/{id}/refund"]
    {
        let id = json!({ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } });
        let mut parameters = vec![header("PayPal-Request-Id", about), header("Prefer", "")];
        parameters.extend(path.contains('{').then_some(id));
        let operation = json!({ "parameters": parameters });
        let (imported, loaded) =
            import(&post("https://api-m.paypal.com", path, operation), &Options::default(), None);
        assert_eq!(imported.report.preset.as_deref(), Some("paypal"));
        assert!(imported.report.skipped.is_empty(), "{:?}", imported.report.skipped);
        let method = loaded.method("act").unwrap();
        assert_eq!(
            (strategy(method), method.key_carrier().as_deref()),
            ("key", Some("header PayPal-Request-Id"))
        );
        assert!(!imported.manifest.contains("header:PayPal-Request-Id"), "{}", imported.manifest);
    }
}

#[test]
fn what_a_preset_fills_is_no_argument() {
    // The description doesn't say what these are; the provider's pages do.
    let text = json!({ "type": "string" });
    let short = json!({ "name": "Cko-Idempotency-Key", "in": "header", "schema": { "type": "string", "maxLength": 20 } });
    let fields = json!({ "customerTransactionId": text, "amount": { "type": "integer" } });
    let body = json!({ "content": { "application/json": { "schema": {
        "type": "object", "required": ["customerTransactionId"], "properties": fields,
    } } } });
    for (url, path, operation, carrier) in [
        (
            "https://api.checkout.com",
            "/payments",
            json!({ "parameters": [short] }),
            "header Cko-Idempotency-Key",
        ),
        (
            "https://api.wise.com",
            "/v1/transfers",
            json!({ "requestBody": body }),
            "body field customerTransactionId",
        ),
    ] {
        let (imported, loaded) = import(&post(url, path, operation), &Options::default(), None);
        assert!(imported.report.skipped.is_empty(), "{:?}", imported.report.skipped);
        let method = loaded.method("act").unwrap();
        assert_eq!((strategy(method), method.key_carrier().as_deref()), ("key", Some(carrier)), "{path}");
        let again = import(
            &post(url, path, json!({ "requestBody": body })),
            &Options::default(),
            Some(&imported.manifest),
        );
        assert!(again.0.report.skipped.is_empty());
    }
}

#[test]
fn where_a_body_has_no_room_for_the_key_there_is_none() {
    let either = json!({ "content": { "application/json": { "schema": {
        "oneOf": [{ "type": "object", "properties": { "a": {} } }, { "type": "object", "properties": { "b": {} } }],
    } } } });
    for operation in [json!({}), json!({ "requestBody": either })] {
        let plaid = post("https://sandbox.plaid.com", "/bank_transfer/create", operation);
        let (imported, loaded) = import(
            &plaid,
            &Options { base_url: Some("https://production.plaid.com".into()), ..Options::default() },
            None,
        );
        assert!(imported.report.skipped.is_empty(), "{:?}", imported.report.skipped);
        assert_eq!(imported.report.preset.as_deref(), Some("plaid"));
        assert_eq!(strategy(loaded.method("act").unwrap()), "none");
        let notes = &imported.report.notes;
        assert!(
            notes.iter().any(|n| n.note.contains("carries") && n.note.contains("/idempotency_key")),
            "{notes:?}"
        );
    }
}

#[test]
fn a_preset_of_some_endpoints_sends_a_key_where_the_description_knows_of_one() {
    let text = json!({ "type": "string" });
    let body = |field: &str, about: &str| {
        let mut fields = json!({ "a": text });
        fields[field] = json!({ "type": "string", "description": about });
        json!({ "requestBody": { "content": { "application/json": { "schema": { "type": "object", "properties": fields } } } } })
    };
    for (preset, operation, strategy_of) in [
        ("aws", body("clientToken", "Ensures that the operation is idempotent"), "key"),
        ("aws", body("Entries", "Events"), "none"),
        ("square", body("idempotency_key", "A unique text"), "key"),
        ("square", body("note", "A note"), "none"),
        ("square", json!({}), "none"),
        ("truelayer", json!({ "parameters": [header("Idempotency-Key", "")] }), "key"),
        ("truelayer", json!({}), "none"),
    ] {
        let (imported, loaded) =
            import(&post("https://x.example.com", "/act", operation), &named(preset), None);
        assert!(imported.report.skipped.is_empty(), "{preset}: {:?}", imported.report.skipped);
        assert_eq!(strategy(loaded.method("act").unwrap()), strategy_of, "{preset} {}", imported.manifest);
    }
}

#[test]
fn an_endpoint_whose_description_denies_the_key_has_none_by_the_preset_either() {
    let operation = json!({ "parameters": [header("Idempotency-Key", "Idempotency is not supported here")] });
    let (imported, loaded) =
        import(&post("https://api.stripe.com", "/v1/act", operation), &Options::default(), None);
    assert_eq!(imported.report.preset.as_deref(), Some("stripe"));
    let method = loaded.method("act").unwrap();
    assert_eq!((strategy(method), arguments(method)), ("none", vec!["Idempotency-Key".to_owned()]));
}

#[test]
fn an_operators_preset_counts_at_the_next_import_too() {
    let operation = json!({ "parameters": [header("Cko-Idempotency-Key", "Not longer than a line")] });
    let plain = post("https://pay.example.com", "/payments", json!({}));
    let first = import(&plain, &Options::default(), None).0.manifest;
    let own = first.replacen("base_url", "preset = \"checkout\"\nbase_url", 1);
    let (imported, loaded) =
        import(&post("https://pay.example.com", "/payments", operation), &Options::default(), Some(&own));
    let method = loaded.method("act").unwrap();
    assert_eq!(
        (loaded.preset().name.as_str(), strategy(method)),
        ("checkout", "key"),
        "{}",
        imported.manifest
    );
    assert!(arguments(method).is_empty());
}

#[test]
fn what_is_beside_the_operations_is_told() {
    let mut description = post(
        "https://eu.example.com",
        "/act",
        json!({
            "callbacks": { "onPaid": { "{$request.body#/url}": {} } },
            "parameters": [header("X-Old-Key", "")],
            "security": [{ "token": [] }],
        }),
    );
    description["servers"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "url": "https://us.example.com", "description": "US" }));
    description["webhooks"] = json!({ "paid": { "post": {} } });
    description["components"] = json!({ "securitySchemes": {
        "token": { "type": "http", "scheme": "bearer" },
        "old": { "type": "apiKey", "in": "header", "name": "X-Old-Key" },
    } });
    let (imported, loaded) = import(&description, &Options::default(), None);
    assert!(arguments(loaded.method("act").unwrap()).is_empty());
    let notes: Vec<&str> = imported.report.notes.iter().map(|n| n.note.as_str()).collect();
    for part in [
        "https://us.example.com (US)",
        "webhooks are requests of the provider's to you, and are not imported: paid",
        "callbacks are requests of the provider's to you, and are not imported: onPaid",
        "no operation asks for the security scheme old (a key in the header `X-Old-Key`)",
    ] {
        assert!(notes.iter().any(|n| n.contains(part)), "{part}: {notes:?}");
    }
}

#[test]
fn a_production_api_is_not_taken_for_a_sandbox() {
    let dev = |url: &str, about: &str| {
        let mut description = post(url, "/articles", json!({}));
        description["servers"][0]["description"] = json!(about);
        import(&description, &Options::default(), None).0.report.addresses
    };
    let production = dev("https://dev.to/api", "Production server");
    assert_eq!(production.into_iter().collect::<Vec<_>>(), [("production", "https://dev.to/api".to_owned())]);
    let description = json!({
        "openapi": "3.0.3", "info": { "title": "Pay", "version": "1" },
        "servers": [{ "url": "https://api.example.com" }, { "url": "https://api.sandbox.example.com" }],
        "paths": { "/a": { "post": { "operationId": "act", "responses": {} } } },
    });
    let both = import(&description, &Options::default(), None).0.report.addresses;
    assert_eq!(
        (both["sandbox"].as_str(), both["production"].as_str()),
        ("https://api.sandbox.example.com", "https://api.example.com")
    );
}

#[test]
fn keys_in_the_query_and_keys_that_go_together_are_credentials() {
    let with = |security: Value| {
        let mut description = post("https://api.example.com", "/act", json!({ "security": security }));
        description["components"] = json!({ "securitySchemes": {
            "app": { "type": "apiKey", "in": "header", "name": "DD-APPLICATION-KEY" },
            "api": { "type": "apiKey", "in": "header", "name": "DD-API-KEY" },
            "key": { "type": "apiKey", "in": "query", "name": "key" },
        } });
        description
    };
    let (imported, _) = import(&with(json!([{ "key": [] }])), &Options::default(), None);
    for line in ["kind = \"query\"", "query = \"key\"", "${env:PAY_TOKEN}"] {
        assert!(imported.manifest.contains(line), "{line}: {}", imported.manifest);
    }
    let two = with(json!([{ "api": [], "app": [] }]));
    let (imported, loaded) = import(&two, &Options::default(), None);
    for line in
        ["header = \"DD-API-KEY\"", "header = \"DD-APPLICATION-KEY\"", "${env:PAY_DD_APPLICATION_KEY}"]
    {
        assert!(imported.manifest.contains(line), "{line}: {}", imported.manifest);
    }
    assert!(loaded.authenticates());
    let again = import(&two, &Options::default(), Some(&imported.manifest)).0;
    assert_eq!(again.manifest, imported.manifest);
    // Where the second goes along only sometimes, it is a note.
    let (imported, _) =
        import(&with(json!([{ "api": [], "app": [] }, { "api": [] }])), &Options::default(), None);
    assert!(!imported.manifest.contains("also"), "{}", imported.manifest);
    let told = |imported: &Imported, said: &str| {
        let notes = &imported.report.notes;
        assert!(
            notes.iter().any(|n| n.note.contains("security scheme app") && n.note.contains(said)),
            "{notes:?}"
        );
    };
    told(&imported, "its `also` can hold it");
    let later = import(&two, &Options::default(), Some(&imported.manifest)).0;
    assert!(!later.manifest.contains("also"), "{}", later.manifest);
    told(&later, "its `also` can hold it (a manifest that is there gets none by itself)");
    // Of two that are alike in [auth] it is the same one at the next import.
    let mut alike = post("https://api.example.com", "/act", json!({ "security": [{ "plain": [] }] }));
    alike["paths"]["/more"] =
        json!({ "post": { "operationId": "more", "responses": {}, "security": [{ "oauth": [] }] } });
    alike["paths"]["/most"] =
        json!({ "post": { "operationId": "most", "responses": {}, "security": [{ "oauth": [] }] } });
    alike["components"] = json!({ "securitySchemes": {
        "plain": { "type": "http", "scheme": "bearer" },
        "oauth": { "type": "oauth2", "flows": {} },
    } });
    let (imported, _) = import(&alike, &Options::default(), None);
    assert!(imported.manifest.contains("rotates = true"), "{}", imported.manifest);
    let again = import(&alike, &Options::default(), Some(&imported.manifest)).0;
    assert_eq!(again.manifest, imported.manifest);
}
