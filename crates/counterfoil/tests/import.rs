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
    let places = "sandbox mode sends to https://sandbox.shop.example/v1; production mode sends to https://eu.shop.example/v1";
    assert!(told.contains(places), "{told}");
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

#[test]
fn it_is_named_in_the_configuration_once() {
    let d = shop();
    let config = d.path().join("counterfoil.toml");
    let import = ["import", "openapi", "shop.yaml", "--add", "--json"];
    let refused = d.run(&import).expect(2).stderr;
    assert!(refused.contains("counterfoil.toml can't be found"), "{refused}");
    assert!(!d.path().join("integrations").exists(), "nothing is written");
    d.write("counterfoil.toml", "# ours\n[server]\nname = \"x\" # no end of line");
    #[cfg(unix)]
    std::fs::set_permissions(&config, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    assert_eq!(d.run(&import).expect(0).json()["imported"][0]["configuration"], "added");
    let first = std::fs::read_to_string(&config).unwrap();
    assert_eq!(first, format!("# ours\n[server]\nname = \"x\" # no end of line\n\n{CONFIG}"));
    #[cfg(unix)]
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&config).unwrap().permissions()) & 0o777,
        0o640
    );
    assert_eq!(d.run(&import).expect(0).json()["imported"][0]["configuration"], "there");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), first);
    let methods = d.run(&["methods", "--json"]).expect(0).json();
    assert!(methods["methods"].as_array().unwrap().iter().any(|m| m["id"] == "shop.orders.create"));
    let told = d.run(&["import", "openapi", "shop.yaml"]).expect(0).stdout;
    assert!(
        told.contains("--add does it") && told.contains("SHOP_TOKEN") && told.contains("auth connect shop"),
        "{told}"
    );
    // From elsewhere, its path is as the configuration sees it.
    d.write("elsewhere/shop.yaml", SHOP);
    let elsewhere = [
        "import",
        "openapi",
        "elsewhere/shop.yaml",
        "--add",
        "--name",
        "other",
        "--out",
        "elsewhere",
        "--json",
    ];
    assert_eq!(d.run(&elsewhere).expect(0).json()["imported"][0]["configuration"], "added");
    assert!(std::fs::read_to_string(&config).unwrap().ends_with("manifest = \"elsewhere/other.toml\"\n"));
}

#[test]
fn a_configuration_that_it_would_spoil_stays_as_it_was() {
    let d = shop();
    for (text, why) in [
        ("[[integration]]\nname = \"shop\"\nmanifest = \"mine.toml\"\n", "has another manifest there"),
        ("integration = []\n", "can't be named at its end"),
        ("integration = 5\n", "can't be named at its end"),
        ("[server\n", "can't be read"),
        ("[sandbox]\n", "with this integration it would be refused"),
    ] {
        d.write("counterfoil.toml", text);
        let name = if text == "[sandbox]\n" { "payments" } else { "shop" };
        let refused = d.run(&["import", "openapi", "shop.yaml", "--add", "--name", name]).expect(2).stderr;
        assert!(refused.contains(why) && refused.contains("it is as it was"), "{text}: {refused}");
        assert_eq!(std::fs::read_to_string(d.path().join("counterfoil.toml")).unwrap(), text);
        assert!(
            refused.contains("no manifest is written") && !d.path().join("integrations").exists(),
            "{text}"
        );
    }
}

#[test]
fn a_name_is_one_descriptions() {
    let d = shop();
    d.write("other.yaml", &SHOP.replace("/orders", "/things"));
    // One name twice in a command, and one that can't be read: nothing of any is written.
    for second in ["other.yaml", "nowhere.yaml"] {
        let refused = d.run(&["import", "openapi", "shop.yaml", second]).expect(2).stderr;
        assert!(refused.contains(second), "{refused}");
        assert!(!d.path().join("integrations").exists());
    }
    // One description under two titles in a command.
    d.write("twice.yaml", &SHOP.replacen("title: Shop API", "title: Shop again", 1));
    let refused = d.run(&["import", "openapi", "shop.yaml", "twice.yaml"]).expect(2).stderr;
    assert!(refused.contains("of the same command") && refused.contains("shop.yaml"), "{refused}");
    assert!(!d.path().join("integrations").exists());
    d.run(&["import", "openapi", "shop.yaml"]).expect(0);
    let manifest = d.path().join("integrations/shop.toml");
    let first = std::fs::read_to_string(&manifest).unwrap();
    // Another description of the same title.
    let strange = "openapi: 3.0.0\ninfo: { title: Shop }\nservers: [{ url: https://strange.example }]\npaths: { /x: { get: {} } }\n";
    let title = SHOP.lines().find(|l| l.trim_start().starts_with("title:")).unwrap();
    d.write("strange.yaml", &strange.replace("{ title: Shop }", &format!("{{ {} }}", title.trim())));
    let refused = d.run(&["import", "openapi", "strange.yaml"]).expect(2).stderr;
    assert!(refused.contains("is not of this description") && refused.contains("--name"), "{refused}");
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), first);
    // The same description under another title.
    d.write("shop.yaml", &SHOP.replacen(title, "  title: Shop and more", 1));
    let refused = d.run(&["import", "openapi", "shop.yaml"]).expect(2).stderr;
    assert!(refused.contains("--name shop imports it again"), "{refused}");
    assert_eq!(std::fs::read_dir(d.path().join("integrations")).unwrap().count(), 1);
    d.run(&["import", "openapi", "shop.yaml", "--name", "shop"]).expect(0);
    d.run(&["import", "openapi", "shop.yaml", "--name", "shop-and-more"]).expect(0);
    assert_eq!(std::fs::read_dir(d.path().join("integrations")).unwrap().count(), 2);
    // Each has its own from now on.
    d.run(&["import", "openapi", "shop.yaml"]).expect(0);
}

#[test]
fn services_that_share_a_path_are_several() {
    let d = Dir::new();
    let service = |name: &str, at: &str, paths: &str| {
        let paths: String =
            paths.split(' ').map(|p| format!("  {p}: {{ get: {{ responses: {} }} }}\n", "{}")).collect();
        format!(
            "openapi: 3.0.0\ninfo: {{ title: {name} }}\nservers: [{{ url: https://{at}.example }}]\npaths:\n{paths}"
        )
    };
    d.write("a.yaml", &service("a", "a", "/users/{id}"));
    d.write("b.yaml", &service("b", "b", "/users/{userId} /more"));
    d.write("c.yaml", &service("c", "c", "/health /c"));
    d.write("d.yaml", &service("d", "d", "/health"));
    d.write("e.yaml", &service("e", "d", "/health /e"));
    d.run(&["import", "openapi", "a.yaml"]).expect(0);
    d.run(&["import", "openapi", "b.yaml"]).expect(0);
    d.run(&["import", "openapi", "c.yaml", "d.yaml"]).expect(0);
    // At one address it is the same service, in a folder as in a command.
    let refused = d.run(&["import", "openapi", "e.yaml"]).expect(2).stderr;
    assert!(refused.contains("--name d imports it again"), "{refused}");
    let refused = d.run(&["import", "openapi", "d.yaml", "e.yaml", "--out", "other"]).expect(2).stderr;
    assert!(refused.contains("of the same command"), "{refused}");
    assert!(!d.path().join("other").exists());
}

#[test]
fn what_decides_is_told_first_and_whole() {
    let d = Dir::new();
    let described = |url: &str, verb: &str| {
        let paths: String = (0..20)
            .map(|i| format!("  /things/{i}: {{ {verb}: {{ operationId: t{i}, summary: Look at it }} }}\n"))
            .collect();
        format!("openapi: 3.0.0\ninfo: {{ title: Things }}\nservers: [{{ url: \"{url}\" }}]\npaths:\n{paths}")
    };
    d.write("things.yaml", &described("https://a.example", "post"));
    d.run(&["import", "openapi", "things.yaml"]).expect(0);
    d.write("things.yaml", &described("https://b.example", "get"));
    let told = d.run(&["import", "openapi", "things.yaml", "--dry-run"]).expect(0).stdout;
    let mut lines = told.lines().skip(1);
    assert!(lines.next().unwrap().contains("with the credential, go elsewhere"), "{told}");
    let base = "all methods: base_url.production: https://a.example → https://b.example";
    assert!(lines.nth(1).unwrap().contains(base), "{told}");
    assert_eq!(told.matches("effect: mutating → read").count(), 20, "{told}");
    let document = d.run(&["import", "openapi", "things.yaml", "--json"]).expect(0).json();
    let decisive = document["imported"][0]["report"]["changes"]["decisive"].as_array().unwrap();
    assert_eq!((&decisive[0]["field"], decisive[0].get("method")), (&"base_url".into(), None));
    assert_eq!(decisive.iter().filter(|d| d["field"] == "effect" && d["after"] == "read").count(), 20);
}

#[test]
fn a_manifest_as_large_as_import_writes_them_is_read() {
    let d = shop();
    d.write("counterfoil.toml", "");
    d.run(&["import", "openapi", "shop.yaml", "--add"]).expect(0);
    let manifest = std::fs::read_to_string(d.path().join("integrations/shop.toml")).unwrap();
    let long = format!("# {}\n", "x".repeat(1 << 20)).repeat(6);
    d.write("integrations/shop.toml", &format!("{manifest}{long}"));
    let methods = d.run(&["methods", "--json"]).expect(0).json();
    assert!(methods["methods"].as_array().unwrap().iter().any(|m| m["id"] == "shop.orders.create"));
}
