//! Importing again, where an operator has said where requests go, or where a manifest of an earlier version does: neither is
//! taken for a move of the provider's, nor does it let one pass.

#![allow(clippy::unwrap_used)]

use openapi::{Description, Imported, Options};
use serde_json::{Value, json};

const API: &str = "https://api.x.example";
const MOVED: &str = "https://api.y.example";
const DEV: &str = "https://dev.x.example";

/// Two operations at servers, each a URL with its description.
fn described(servers: &[(&str, &str)]) -> Value {
    let servers: Vec<Value> =
        servers.iter().map(|(url, about)| json!({ "url": url, "description": about })).collect();
    json!({ "openapi": "3.0.3", "info": { "title": "Acme" }, "servers": servers, "paths": {
        "/a": { "post": { "operationId": "a", "responses": {} } },
        "/b": { "post": { "operationId": "b", "responses": {} } },
    } })
}

fn import(description: &Value, options: &Options, existing: Option<&str>) -> Imported {
    Description::read(&description.to_string()).unwrap().import(options, existing).unwrap()
}

/// A manifest with a method of the operator's own.
fn with_own(manifest: &str) -> String {
    let own = "[methods.own]\nhttp = \"POST /own\"\neffect = \"mutating\"\n\n[imported]\n";
    let with = manifest.replacen("[imported]\n", own, 1);
    assert_ne!(with, manifest);
    with
}

/// As an earlier version wrote it, which took other servers for other modes.
fn earlier(manifest: &str, production: &str, sandbox: Option<&str>) -> String {
    let mut document: toml_edit::DocumentMut = manifest.parse().unwrap();
    let mut urls = toml_edit::InlineTable::new();
    if let Some(sandbox) = sandbox {
        urls.insert("sandbox", sandbox.into());
    }
    urls.insert("production", production.into());
    // Its digest is that of this value: an import that is told of both writes it.
    let given = Options {
        base_url: Some(production.into()),
        sandbox_url: sandbox.map(str::to_owned),
        ..Options::default()
    };
    let written = import(&described(&[(API, "")]), &given, None).manifest;
    let written: toml_edit::DocumentMut = written.parse().unwrap();
    document["base_url"] = toml_edit::value(urls);
    let imported = document["imported"].as_table_mut().unwrap();
    imported["digests"]["base_url"] = written["imported"]["digests"]["base_url"].clone();
    imported.remove("server");
    document.to_string()
}

fn urls(imported: &Imported) -> Value {
    let manifest: toml_edit::DocumentMut = imported.manifest.parse().unwrap();
    let urls = manifest["base_url"].as_inline_table().unwrap();
    Value::Object(urls.iter().map(|(mode, url)| (mode.to_owned(), json!(url.as_str().unwrap()))).collect())
}

fn stay(imported: &Imported) -> usize {
    imported.report.skipped.iter().filter(|s| s.stays.is_some()).count()
}

fn notes(imported: &Imported) -> String {
    imported.report.notes.iter().map(|n| n.note.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn where_an_address_is_given_nothing_moves() {
    let given = |production: Option<&str>, sandbox: Option<&str>| Options {
        base_url: production.map(str::to_owned),
        sandbox_url: sandbox.map(str::to_owned),
        ..Options::default()
    };
    let trial = ("https://sandbox.x.example", "Sandbox");
    let proxy = given(Some("https://proxy.example"), None);
    for (what, first, options, next) in [
        ("the provider moves", vec![(API, "")], proxy.clone(), vec![(MOVED, "")]),
        ("it names an address", vec![("/", "")], given(Some(API), None), vec![(API, "")]),
        (
            "it has a sandbox now",
            vec![(API, "")],
            given(None, Some("http://localhost:9")),
            vec![(API, ""), trial],
        ),
    ] {
        let manifest = with_own(&import(&described(&first), &options, None).manifest);
        let before = urls(&import(&described(&first), &Options::default(), Some(&manifest)));
        for said in [&Options::default(), &options] {
            let again = import(&described(&next), said, Some(&manifest));
            assert_eq!((urls(&again), stay(&again)), (before.clone(), 0), "{what}: {}", notes(&again));
            // And so it stays.
            let once_more = import(&described(&next), &Options::default(), Some(&again.manifest));
            assert_eq!(once_more.manifest, again.manifest, "{what}");
        }
    }
}

#[test]
fn what_is_said_of_one_mode_moves_no_other() {
    let variable =
        json!([{ "url": "https://{region}.x.example", "variables": { "region": { "default": "api" } } }]);
    let local = Options { sandbox_url: Some("http://localhost:9".into()), ..Options::default() };
    let region = Options { variables: [("region".to_owned(), "us".to_owned())].into(), ..Options::default() };
    let manifest = with_own(&import(&described(&[(API, "")]), &Options::default(), None).manifest);
    let mut by_variable = described(&[]);
    by_variable["servers"] = variable;
    for (next, options) in [(described(&[(MOVED, "")]), local), (by_variable, region)] {
        let again = import(&next, &options, Some(&manifest));
        assert_eq!((&urls(&again)["production"], stay(&again)), (&json!(API), 2), "{options:?}");
        assert!(notes(&again).contains("own are not in the description"), "{}", notes(&again));
    }
}

#[test]
fn what_an_earlier_version_wrote_has_not_moved_while_it_is_listed() {
    let both = described(&[(API, "Production"), (DEV, "Development server")]);
    let manifest = earlier(&import(&both, &Options::default(), None).manifest, API, Some(DEV));
    for manifest in [with_own(&manifest), manifest.clone()] {
        let again = import(&both, &Options::default(), Some(&manifest));
        assert_eq!(urls(&again), json!({ "sandbox": DEV, "production": API }), "{}", notes(&again));
        assert_eq!((stay(&again), again.report.changes.decisive.len()), (0, 0));
        let once_more = import(&both, &Options::default(), Some(&again.manifest));
        assert_eq!(once_more.manifest, again.manifest);
    }
    // Once it is listed no more, it is said what keeps it; and it does.
    let manifest = with_own(&manifest);
    let gone = described(&[(API, "Production")]);
    let stays = import(&gone, &Options::default(), Some(&manifest));
    assert!(stay(&stays) == 2 && notes(&stays).contains(&format!("--sandbox-url {DEV} keeps the sandbox")));
    let said = Options { sandbox_url: Some(DEV.into()), ..Options::default() };
    let kept = import(&gone, &said, Some(&manifest));
    assert_eq!((urls(&kept), stay(&kept)), (json!({ "sandbox": DEV, "production": API }), 0));
}

#[test]
fn production_stays_while_its_address_is_listed() {
    let first = import(&described(&[(API, "")]), &Options::default(), None).manifest;
    for next in [
        vec![(MOVED, "Production"), (API, "")],
        vec![(MOVED, ""), (API, "Deprecated")],
        vec![(MOVED, "Production"), (API, "Sandbox")],
        vec![(DEV, "Development server"), (API, "")],
    ] {
        for manifest in [first.clone(), earlier(&first, API, None), with_own(&first)] {
            let again = import(&described(&next), &Options::default(), Some(&manifest));
            assert_eq!((&urls(&again)["production"], stay(&again)), (&json!(API), 0), "{next:?}");
            // It is not told that nothing is sent there.
            assert!(!notes(&again).contains(&format!("name one: {API}")), "{}", notes(&again));
        }
    }
    let moved = import(&described(&[(MOVED, "")]), &Options::default(), Some(&first));
    assert_eq!(urls(&moved), json!({ "production": MOVED }));
}
