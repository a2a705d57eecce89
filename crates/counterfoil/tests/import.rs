//! `import openapi`: from a description to methods that the gateway lists, and on to the request of a call.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::Dir;

const SHOP: &str = include_str!("../../openapi/tests/samples/shop.yaml");
const CONFIG: &str = "[[integration]]\nname = \"shop\"\nmanifest = \"integrations/shop.toml\"\n";

fn shop() -> Dir {
    let d = Dir::new();
    d.write("shop.yaml", SHOP);
    d
}

#[test]
fn what_is_imported_is_listed_and_called() {
    let d = shop();
    let told = d.run(&["import", "openapi", "shop.yaml"]).expect(0).stdout;
    assert!(
        told.contains("POST /mixed: its body is multipart/mixed") && told.contains("[[integration]]"),
        "{told}"
    );
    d.write("counterfoil.toml", CONFIG);
    let methods = d.run(&["methods", "--json"]).expect(0).json();
    let methods = methods["methods"].as_array().unwrap();
    let create = methods.iter().find(|m| m["id"] == "shop.orders.create").unwrap();
    assert_eq!((&create["tool"], &create["effect"]), (&"shop_orders_create".into(), &"mutating".into()));
    let imported = methods.iter().filter(|m| m["id"].as_str().is_some_and(|id| id.starts_with("shop.")));
    assert_eq!(imported.count(), 12);
    let info = d.run(&["info", "shop.orders.create"]).expect(0).stdout;
    for part in ["(mutating, from description)", "header Idempotency-Key", "recovery", "description"] {
        assert!(info.contains(part), "{part}: {info}");
    }
    let order = r#"{"total": 5, "payment": {"kind": "card"}}"#;
    let dry = d.run(&["exec", "shop.orders.create", "--body", order, "--dry-run"]).expect(0).stdout;
    // Sandbox mode goes to the sandbox server of the description.
    assert!(
        dry.contains("https://sandbox.shop.example/v1/orders") && dry.contains("Idempotency-Key"),
        "{dry}"
    );
}

#[test]
fn importing_again_shows_what_changed_and_keeps_what_was_decided() {
    let d = shop();
    d.run(&["import", "openapi", "shop.yaml", "--tag", "orders"]).expect(0);
    let manifest = d.path().join("integrations/shop.toml");
    let first = std::fs::read_to_string(&manifest).unwrap();
    let again = d.run(&["import", "openapi", "shop.yaml", "--json"]).expect(0).json();
    assert_eq!(again["imported"][0]["report"]["methods"], 6);
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), first);
    std::fs::write(
        &manifest,
        first.replace("[methods.\"orders.create\"]\n", "[methods.\"orders.create\"]\nrecovery = \"none\"\n"),
    )
    .unwrap();
    d.write("shop.yaml", &SHOP.replace("summary: Create an order", "summary: Create one order"));
    let dry = d.run(&["import", "openapi", "shop.yaml", "--dry-run"]).expect(0).stdout;
    assert!(dry.contains("changed (1)") && dry.contains("orders.create: title, description"), "{dry}");
    assert!(!std::fs::read_to_string(&manifest).unwrap().contains("one order"));
    d.run(&["import", "openapi", "shop.yaml"]).expect(0);
    let now = std::fs::read_to_string(&manifest).unwrap();
    assert!(now.contains("one order") && now.contains("recovery = \"none\""), "{now}");
    assert_eq!(
        std::fs::read_dir(d.path().join("integrations")).unwrap().count(),
        1,
        "nothing is left beside it"
    );
}

#[test]
fn what_can_not_be_imported_is_code_2_and_leaves_all_as_it_was() {
    let d = shop();
    d.write("swagger.yaml", "swagger: '2.0'\n");
    d.write("deep.yaml", &format!("openapi: 3.0.0\npaths: {}", "[".repeat(5000)));
    for args in [
        &["import", "openapi"][..],
        &["import", "openapi", "nothing.yaml"],
        &["import", "openapi", "swagger.yaml"],
        &["import", "openapi", "deep.yaml"],
        &["import", "openapi", "shop.yaml", "--tag", "ordres"],
        &["import", "openapi", "shop.yaml", "--preset", "strype"],
        &["import", "openapi", "shop.yaml", "--name", "../up"],
        &["import", "openapi", "shop.yaml", "swagger.yaml", "--name", "x"],
        &["import", "openapi", "shop.yaml", "--all", "--tag", "orders"],
        &["import", "openapi", "shop.yaml", "--choose", "--tag", "orders"],
        &["import", "openapi", "shop.yaml", "--operation", "GET /nowhere"],
    ] {
        d.run(args).expect(2);
    }
    assert!(!d.path().join("integrations").exists());
    d.run(&["import", "openapi", "shop.yaml"]).expect(0);
    let manifest = d.path().join("integrations/shop.toml");
    std::fs::write(&manifest, "not a manifest =").unwrap();
    let refused = d.run(&["import", "openapi", "shop.yaml"]).expect(2);
    assert!(refused.stderr.contains("is left as it is"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), "not a manifest =");
}

/// The command at a terminal of its own, with these answers.
fn at_a_terminal(d: &Dir, args: &[&str], answers: &str) -> common::Ran {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let command = format!("{} {}", env!("CARGO_BIN_EXE_counterfoil"), args.join(" "));
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &command, "/dev/null"]).current_dir(d.path());
    terminal.env("NO_COLOR", "1").env_remove("RUST_LOG");
    for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("COUNTERFOIL")) {
        terminal.env_remove(name);
    }
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    common::Ran {
        code: out.status.code().unwrap(),
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::new(),
    }
}

#[test]
fn a_choice_at_the_terminal_is_remembered_like_flags() {
    let d = shop();
    let piped = d.run(&["import", "openapi", "shop.yaml", "--choose"]).expect(2);
    assert!(piped.stderr.contains("asks at a terminal") && piped.stderr.contains("--tag"), "{piped:?}");
    let left = at_a_terminal(&d, &["import", "openapi", "shop.yaml", "--choose"], "q\n").expect(0);
    assert!(left.stdout.contains("nothing is written"), "{left:?}");
    assert!(!d.path().join("integrations").exists());
    // The first tag, then its first and third operation.
    let chosen = at_a_terminal(&d, &["import", "openapi", "shop.yaml", "--choose"], "9\n1\n1,3\n").expect(0);
    for part in ["1  orders (6)", "is no number from 1 to", "GET /orders  orders/list", "2 methods"] {
        assert!(chosen.stdout.contains(part), "{part}: {chosen:?}");
    }
    let again = d.run(&["import", "openapi", "shop.yaml", "--json"]).expect(0).json();
    assert_eq!(again["imported"][0]["report"]["methods"], 2);
    let more = d.run(&["import", "openapi", "shop.yaml", "--operation", "'POST /batch'"]);
    assert_eq!(more.code, 2);
    let more = ["import", "openapi", "shop.yaml", "--operation", "POST /batch", "--json"];
    assert_eq!(d.run(&more).expect(0).json()["imported"][0]["report"]["methods"], 3);
}
