//! The documents of `--json` have no member that the page of commands leaves out.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::Dir;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The section of a command on the page of commands.
fn section(command: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let page = std::fs::read_to_string(file).unwrap();
    let (_, after) = page.split_once(&format!("\n## `{command}")).expect(command);
    after.split("\n## ").next().unwrap().to_owned()
}

/// The members of a document, but those whose names are data.
fn members(document: &Value, into: &mut BTreeSet<String>) {
    match document {
        Value::Object(object) => {
            for (name, value) in object {
                into.insert(name.clone());
                if !["recovery", "changed", "kept", "before", "after"].contains(&name.as_str()) {
                    members(value, into);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|one| members(one, into)),
        _ => {}
    }
}

#[test]
fn each_member_is_told() {
    let d = Dir::new();
    d.write("shop.yaml", include_str!("../../openapi/tests/samples/shop.yaml"));
    d.write("counterfoil.toml", "[server]\nmode = \"sandbox\"\n");
    let import = ["import", "openapi", "shop.yaml", "--add", "--preset", "stripe", "--json"];
    let first = d.run(&import).expect(0).json();
    // A change of the operator's, so that it is told of.
    let manifest = d.path().join("integrations/shop.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let decided = "[methods.\"orders.create\"]\nrecovery = \"none\"\n";
    std::fs::write(&manifest, text.replace("[methods.\"orders.create\"]\n", decided)).unwrap();
    // A path that is called otherwise, and a method that is served elsewhere and stays.
    let shop = include_str!("../../openapi/tests/samples/shop.yaml");
    let elsewhere = "operationId: orders/list\n      servers: [{ url: https://lists.shop.example }]\n";
    d.write(
        "shop.yaml",
        &shop.replace("order-id", "order").replacen("operationId: orders/list\n", elsewhere, 1),
    );
    let again = d.run(&import).expect(0).json();
    let report = &again["imported"][0]["report"];
    assert!(report["changes"]["decisive"].as_array().is_some_and(|all| !all.is_empty()), "{report}");
    assert!(report["skipped"].as_array().unwrap().iter().any(|s| s["stays"] == "orders.list"), "{report}");
    for (command, document) in [
        ("import", first),
        ("import", again),
        ("doctor", d.run(&["doctor", "--json"]).json()),
        ("skill", d.run(&["skill", "--json"]).expect(0).json()),
        ("auth", d.run(&["auth", "status", "--json"]).json()),
    ] {
        let mut all = BTreeSet::new();
        members(&document, &mut all);
        let section = section(command);
        let untold: Vec<&String> = all.iter().filter(|m| !section.contains(&format!("\"{m}\""))).collect();
        assert!(all.len() > 2 && untold.is_empty(), "{command}: {untold:?} of {document}");
    }
}
