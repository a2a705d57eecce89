//! The page on presets tells of each what it does; the page on GraphQL has a manifest that works.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::parse;
use counterfoil_provider::{Overrides, Preset};
use ledger::Strategy;
use std::path::Path;

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)).unwrap()
}

/// A length of time as the page writes it.
fn shown(millis: i64) -> String {
    match millis {
        m if m % 86_400_000 == 0 && m >= 3 * 86_400_000 => format!("{} d", m / 86_400_000),
        m if m % 3_600_000 == 0 => format!("{} h", m / 3_600_000),
        m => format!("{} min", m / 60_000),
    }
}

#[test]
fn each_preset_has_its_rows_with_its_carrier_and_window() {
    let page = page("presets.md");
    for name in Preset::names().filter(|name| *name != "none") {
        let method = match name {
            "shopify" => "graphql = 'mutation M { m @idempotent(key: \"{$key}\") { id } }'",
            "braintree" => "graphql = 'mutation M($input: I!) { m(input: $input) { id } }'",
            _ => "idempotency = { mode = \"dynamic\" }",
        };
        let i = parse(&format!(
            "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\npreset = \"{name}\"\n[methods.m]\nhttp = \"POST /x\"\n{method}"
        ))
        .unwrap();
        let m = i.method("m").unwrap();
        let rows: Vec<&str> = page.lines().filter(|l| l.starts_with(&format!("| `{name}` |"))).collect();
        assert_eq!(rows.len(), 2, "{name}: {rows:?}");
        let window = m.resolve(&Overrides::default()).unwrap().recovery.replay_for;
        let window = window.map_or_else(|| "**unlimited**".to_owned(), |w| format!("**{}**", shown(w.0)));
        assert!(rows[0].ends_with(&format!("| {window} |")), "{name}: {window} in {}", rows[0]);
        let carrier = m.key_carrier().unwrap().replace("body field variables.", "variable ");
        let carrier = carrier.replace("GraphQL directive", "directive");
        let (kind, place) = carrier
            .rsplit_once(" ")
            .filter(|_| name != "shopify")
            .unwrap_or(("directive", "@idempotent(key: …)"));
        assert!(rows[0].contains(&format!("{kind} `{place}`")), "{name}: {carrier} in {}", rows[0]);
        let preset = Preset::named(name).unwrap();
        assert!(rows[0].contains(&preset.title), "{name}");
    }
}

#[test]
fn the_manifest_on_the_page_about_graphql_works() {
    let page = page("graphql.md");
    let text = page.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let i = parse(text).unwrap();
    let m = i.method("refunds.create").unwrap();
    assert_eq!(m.recovery(None).unwrap().strategy, Strategy::Key);
    assert_eq!(m.key_carrier().unwrap(), "GraphQL directive @idempotent(key: …)");
}
