//! A provider that is known by its address: its preset is taken by itself, and stays what the operator makes of it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use openapi::{Description, Imported, Options, Selection};
use provider::{Format, Integration, Mode, Overrides};
use serde_json::{Value, json};

/// A description of two mutating methods at an address.
fn described(url: &str, paths: [&str; 2]) -> Value {
    let post = |id: &str| json!({ "post": { "operationId": id, "responses": {} } });
    json!({
        "openapi": "3.0.3", "info": { "title": "Pay", "version": "1" }, "servers": [{ "url": url }],
        "paths": {
            paths[0]: post("one"),
            paths[1]: post("two"),
            "/elsewhere/status": { "get": { "operationId": "status", "responses": {} } },
        },
    })
}

fn import(description: &Value, options: &Options, existing: Option<&str>) -> Imported {
    Description::read(&description.to_string()).unwrap().import(options, existing).unwrap()
}

fn strategies(imported: &Imported) -> [String; 2] {
    let loaded = Integration::parse("m.toml", &imported.manifest, Format::Toml, Mode::Production).unwrap();
    ["one", "two"].map(|m| loaded.method(m).unwrap().recovery(None).unwrap().strategy.word().to_owned())
}

#[test]
fn its_preset_is_taken_and_told() {
    let stripe = described("https://api.stripe.com/", ["/v1/refunds", "/v1/charges"]);
    let first = import(&stripe, &Options::default(), None);
    assert_eq!(first.report.preset.as_deref(), Some("stripe"));
    assert_eq!((first.report.methods, first.report.reading, first.report.recovery["key"]), (3, 1, 2));
    assert_eq!(strategies(&first), ["key", "key"]);
    let again = import(&stripe, &Options::default(), Some(&first.manifest));
    assert!(again.report.changes.is_empty() && again.manifest == first.manifest);
}

#[test]
fn the_operator_decides() {
    let stripe = described("https://api.stripe.com", ["/v1/refunds", "/v1/charges"]);
    let none = Options { preset: Some("none".into()), ..Options::default() };
    let first = import(&stripe, &none, None);
    assert_eq!((first.report.preset.as_deref(), strategies(&first)), (None, ["none".into(), "none".into()]));
    let again = import(&stripe, &Options::default(), Some(&first.manifest));
    assert!(again.manifest == first.manifest, "it is remembered");
    // What was taken by itself and then taken out, or replaced, stays so.
    let taken = import(&stripe, &Options::default(), None).manifest;
    for other in ["", "preset = \"none\"\n"] {
        let edited = taken.replace("preset = \"stripe\"\n", other);
        assert_ne!(edited, taken);
        let again = import(&stripe, &Options::default(), Some(&edited));
        assert_eq!(strategies(&again), ["none", "none"], "{other:?}: {:?}", again.report.changes);
    }
}

#[test]
fn what_is_there_is_not_decided_anew() {
    let paths = ["/v1/refunds", "/v1/charges"];
    let stripe = described("https://api.stripe.com", paths);
    let before = import(&described("https://pay.example.com", paths), &Options::default(), None).manifest;
    let proxied = before.replace("https://pay.example.com", "https://proxy.example.com");
    for manifest in [&before, &proxied] {
        let again = import(&stripe, &Options::default(), Some(manifest));
        assert_eq!(
            (again.report.preset.as_deref(), strategies(&again)),
            (None, ["none".into(), "none".into()])
        );
        assert!(again.report.notes.iter().any(|n| n.note.contains("--preset stripe takes it")));
        assert!(again.manifest.contains("https://proxy.example.com") == (manifest == &proxied));
    }
    let named = Options { preset: Some("stripe".into()), ..Options::default() };
    assert_eq!(strategies(&import(&stripe, &named, Some(&before))), ["key", "key"]);
}

#[test]
fn a_key_that_only_the_description_knows_is_trusted_for_an_hour() {
    let carrier = json!([{ "name": "X-Idempotency-Key", "in": "header", "schema": { "type": "string" } }]);
    let mut moov = described("https://api.moov.io", ["/accounts/{a}/transfers", "/brand/new"]);
    for path in ["/accounts/{a}/transfers", "/brand/new"] {
        moov["paths"][path]["post"]["parameters"] = carrier.clone();
    }
    let account = json!({ "name": "a", "in": "path", "required": true, "schema": { "type": "string" } });
    moov["paths"]["/accounts/{a}/transfers"]["post"]["parameters"].as_array_mut().unwrap().push(account);
    let imported = import(&moov, &Options::default(), None);
    assert_eq!(
        (imported.report.preset.as_deref(), strategies(&imported)),
        (Some("moov"), ["key".into(), "key".into()])
    );
    let loaded = Integration::parse("m.toml", &imported.manifest, Format::Toml, Mode::Production).unwrap();
    let window =
        |m: &str| loaded.method(m).unwrap().resolve(&Overrides::default()).unwrap().recovery.replay_for;
    assert_eq!(window("one"), None, "for ever, as the provider publishes of this endpoint");
    assert!(window("two").unwrap().0 <= 3_600_000);
}

#[test]
fn only_where_one_provider_serves_all_that_change_something() {
    for (url, paths) in [
        ("https://api.stripe.com", ["/v1/refunds", "/v2/core/accounts"]),
        ("https://pay.example.com/api.stripe.com/v1", ["/refunds", "/charges"]),
        ("https://connect.squareup.com", ["/v2/payments", "/v2/orders/search"]),
    ] {
        let imported = import(&described(url, paths), &Options::default(), None);
        assert_eq!(imported.report.preset, None, "{url}");
        assert_eq!(strategies(&imported), ["none", "none"], "{url}");
    }
    // Where a proxy of the operator's stands, it isn't known what comes out behind it.
    let proxied = Options { base_url: Some("https://proxy.example.com".into()), ..Options::default() };
    let stripe = described("https://api.stripe.com", ["/v1/refunds", "/v1/charges"]);
    assert_eq!(import(&stripe, &proxied, None).report.preset, None);
}

#[test]
fn what_the_preset_does_not_list_has_no_key() {
    let resend = described("https://api.resend.com", ["/emails", "/domains"]);
    let imported = import(&resend, &Options::default(), None);
    assert_eq!(
        (imported.report.preset.as_deref(), strategies(&imported)),
        (Some("resend"), ["key".into(), "none".into()])
    );
}

#[test]
fn where_more_than_one_fits_none_is_taken_and_all_are_told() {
    let stripe = described("https://api.stripe.com", ["/v1/refunds", "/v2/core/accounts"]);
    let both = import(&stripe, &Options::default(), None);
    assert_eq!(both.report.preset, None);
    let notes: Vec<&str> = both.report.notes.iter().map(|n| n.note.as_str()).collect();
    for preset in ["stripe ", "stripe_v2 "] {
        assert!(
            notes.iter().any(|n| n.starts_with(&format!("by their address the preset {preset}fits 1 of"))),
            "{notes:?}"
        );
    }
}

#[test]
fn a_preset_stays_with_those_that_are_there_and_newcomers_from_elsewhere_get_no_key_by_it() {
    let carrier = json!([{ "name": "Idempotency-Key", "in": "header", "schema": { "type": "string" } }]);
    let mut stripe = described("https://api.stripe.com", ["/v1/refunds", "/v2/core/accounts"]);
    let only = |path: &str| Options {
        selection: Selection { paths: vec![path.into()], ..Selection::default() },
        ..Options::default()
    };
    let first = import(&stripe, &only("/v1/**"), None);
    assert_eq!(first.report.preset.as_deref(), Some("stripe"));
    let wider = import(&stripe, &only("/v2/**"), Some(&first.manifest));
    assert!(wider.report.changes.changed.is_empty(), "{:?}", wider.report.changes);
    assert_eq!(
        (wider.report.preset.as_deref(), strategies(&wider)),
        (Some("stripe"), ["key".into(), "none".into()])
    );
    let told =
        |n: &&openapi::report::Note| n.method.as_deref() == Some("two") && n.note.contains("sent elsewhere");
    assert!(wider.report.notes.iter().any(|n| told(&n)), "{:?}", wider.report.notes);
    let again = import(&stripe, &Options::default(), Some(&wider.manifest));
    assert_eq!(again.manifest, wider.manifest, "{:?}", again.report.changes);
    // A key of its own is not trusted for what the preset knows of another API's.
    stripe["paths"]["/v2/core/accounts"]["post"]["parameters"] = carrier;
    let keyed = import(&stripe, &Options::default(), Some(&wider.manifest));
    let loaded = Integration::parse("m.toml", &keyed.manifest, Format::Toml, Mode::Production).unwrap();
    let window = |m: &str| {
        let resolved = loaded.method(m).unwrap().resolve(&Overrides::default()).unwrap();
        resolved.recovery.replay_for.unwrap().0 / 60_000
    };
    assert_eq!((window("one"), window("two")), (23 * 60, 60));
    // Whatever only reads changes nothing of it either.
    let reads = Options {
        selection: Selection { operations: vec!["status".into()], ..Selection::default() },
        ..Options::default()
    };
    let reads = import(&stripe, &reads, Some(&first.manifest));
    assert_eq!((reads.report.preset.as_deref(), reads.report.methods), (Some("stripe"), 2));
}
