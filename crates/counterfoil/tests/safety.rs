//! Safety at a glance: `methods --safety`, `info`, what `doctor` and `serve` say of methods that nobody decided about, dry
//! runs whose credentials are masked, the guide for agents, and the mode that `init` writes once.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::Dir;
use serde_json::{Value, json};

/// An integration whose methods have their safety from everywhere.
const MANIFEST: &str = r#"
name = "shop"
base_url = { sandbox = "http://127.0.0.1:9", production = "http://127.0.0.1:9" }
preset = "none"

[methods."items.list"]
http = "GET /items"

[methods."items.create"]
http = "POST /items"

[methods."items.put"]
http = "PUT /items/{id}"
natural = {}

[methods."items.keyed"]
http = "POST /keyed"
idempotency = { mode = "dynamic", header_name = "X-Key", retention = "2d" }

[methods."items.asked"]
http = "POST /asked"
recovery = "confirm"

[methods."items.decided"]
http = "POST /decided"

[methods."items.search"]
http = "POST /search"
effect = "read"

[methods."items.imported"]
http = "POST /imported"
effect = "mutating"
idempotency = { mode = "dynamic" }
imported = { operation = "imported", effect = "mutating", recovery = "key" }
"#;

/// A folder with it, in a mode.
fn shop(mode: &str, more: &str) -> Dir {
    let d = Dir::new();
    d.write("shop.toml", MANIFEST);
    d.write(
        "counterfoil.toml",
        &format!(
            "[server]\nmode = \"{mode}\"\nlisten = \"127.0.0.1:0\"\n[auth]\nmode = \"api-key\"\n[[integration]]\nname = \"shop\"\nmanifest = \"shop.toml\"\n[tools.\"shop.items.decided\"]\nrecovery = \"none\"\n{more}"
        ),
    );
    d
}

fn one<'a>(methods: &'a Value, id: &str) -> &'a Value {
    methods["methods"]
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["id"] == id)
        .unwrap_or_else(|| panic!("{id}: {methods}"))
}

#[test]
fn methods_say_what_is_safe_to_repeat_and_who_says_so() {
    let d = shop("production", "");
    let all = d.run(&["methods", "--safety", "--json"]).expect(0).json();
    for (id, effect, recovery, carrier, window, safe) in [
        ("items.list", json!(["read", "default"]), json!(null), json!(null), json!(null), "yes"),
        ("items.search", json!(["read", "manifest"]), json!(null), json!(null), json!(null), "yes"),
        (
            "items.create",
            json!(["mutating", "default"]),
            json!(["none", "default"]),
            json!(null),
            json!(null),
            "no",
        ),
        (
            "items.put",
            json!(["mutating", "default"]),
            json!(["natural", "manifest"]),
            json!(null),
            json!([3_600_000, "default"]),
            "yes",
        ),
        // An hour is taken off what was promised.
        (
            "items.keyed",
            json!(["mutating", "default"]),
            json!(["key", "manifest"]),
            json!(["header X-Key", "manifest"]),
            json!([169_200_000, "manifest"]),
            "yes",
        ),
        (
            "items.asked",
            json!(["mutating", "default"]),
            json!(["confirm", "manifest"]),
            json!(null),
            json!(null),
            "asks",
        ),
        (
            "items.decided",
            json!(["mutating", "default"]),
            json!(["none", "tools"]),
            json!(null),
            json!(null),
            "no",
        ),
        (
            "items.imported",
            json!(["mutating", "description"]),
            json!(["key", "description"]),
            json!(["header Idempotency-Key", "description"]),
            json!([3_240_000, "manifest"]),
            "yes",
        ),
    ] {
        let m = one(&all, &format!("shop.{id}"));
        let pair = |v: &Value| if v.is_null() { Value::Null } else { json!([v["value"], v["from"]]) };
        assert_eq!(pair(&m["effect"]), effect, "{m}");
        assert_eq!(pair(&m["recovery"]), recovery, "{m}");
        assert_eq!(pair(&m["keyCarrier"]), carrier, "{m}");
        assert_eq!(pair(&m["replayForMs"]), window, "{m}");
        assert_eq!(m["repeat"]["safe"], safe, "{m}");
        assert!(m["repeat"]["why"].as_str().unwrap().len() > 5, "{m}");
        assert_eq!(m["undecided"], id == "items.create", "{m}");
    }
    let table = d.run(&["methods", "--safety", "keyed"]).expect(0).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(lines[0].starts_with("METHOD") && lines[0].ends_with("SAFE TO REPEAT"), "{table}");
    for word in
        ["key (manifest)", "header X-Key (manifest)", "47h (manifest)", "yes: the provider acts once per key"]
    {
        assert!(lines[1].contains(word), "{word}: {table}");
    }
    assert!(d.run(&["methods", "--safety", "nonsense"]).expect(0).stdout.contains("nothing has that word"));
    // Without it, the list is what it was.
    let plain = d.run(&["methods", "--json"]).expect(0).json();
    assert_eq!(one(&plain, "shop.items.keyed")["effect"], "mutating");
    let info = d.run(&["info", "shop.items.create"]).expect(0).stdout;
    assert!(info.contains("undecided"), "{info}");
    let info = d.run(&["info", "shop.items.keyed"]).expect(0).stdout;
    assert!(info.contains("header X-Key (from manifest)"), "{info}");
}

fn findings(d: &Dir, code: i32) -> Vec<(String, String, String)> {
    let told = d.run(&["doctor", "--json"]).expect(code).json();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let all = told["findings"].as_array().unwrap().iter();
    all.map(|f| {
        (text(&f["level"]), text(&f["about"]), format!("{} | {}", text(&f["what"]), text(&f["mend"])))
    })
    .collect()
}

#[test]
fn what_nobody_decided_is_an_error_where_it_is_real() {
    let of = |found: &[(String, String, String)], id: &str| -> Vec<String> {
        let its = found.iter().filter(|(_, about, _)| about == id);
        its.map(|(level, _, what)| format!("{level}: {what}")).collect()
    };
    let d = shop("production", "");
    let found = findings(&d, 2);
    let told = of(&found, "shop.items.create");
    assert!(told.len() == 1 && told[0].starts_with("error: undecided"), "{told:?}");
    assert!(
        told[0].contains("[tools.\"shop.items.create\"]") && told[0].contains("is a decision, too"),
        "{told:?}"
    );
    let errors: Vec<_> = found.iter().filter(|f| f.0 == "error").map(|f| f.1.as_str()).collect();
    assert_eq!(errors, ["shop.items.create"]);
    let decided = of(&found, "shop.items.decided");
    assert!(decided.len() == 1 && decided[0].starts_with("ok: none, as decided"), "{decided:?}");
    // It is served all the same, and said once.
    let mut served = d.serve(&[]);
    let log = served.logged("nobody decided how these recover");
    assert_eq!(log.matches("nobody decided").count(), 1, "{log}");
    assert!(log.contains("shop.items.create") && !log.contains("shop.items.decided"), "{log}");
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    // Each way to decide is one.
    for how in ["none", "confirm"] {
        let d = shop("production", &format!("[tools.\"shop.items.create\"]\nrecovery = \"{how}\"\n"));
        let found = findings(&d, 0);
        assert!(!found.iter().any(|f| f.2.contains("undecided")), "{found:?}");
    }
    // Where nothing is real it is a warning, and nothing is logged.
    let d = shop("sandbox", "");
    let told = of(&findings(&d, 0), "shop.items.create");
    assert!(told.len() == 1 && told[0].starts_with("warning: undecided"), "{told:?}");
    let served = d.serve(&[]);
    let log = std::fs::read_to_string(&served.log).unwrap();
    assert!(!log.contains("nobody decided"), "{log}");
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_dry_run_masks_every_kind_of_credential() {
    let d = Dir::new();
    let kinds = [
        ("bearer", "kind = \"bearer\"\nsecret = \"${env:CANARY}\"", Some(("Authorization", "Bearer ****"))),
        (
            "basic",
            "kind = \"basic\"\nusername = \"user-canary\"\nsecret = \"${env:CANARY}\"",
            Some(("Authorization", "Basic ****")),
        ),
        (
            "header",
            "kind = \"header\"\nheader = \"X-Api-Key\"\nsecret = \"${env:CANARY}\"",
            Some(("x-api-key", "****")),
        ),
        ("principal", "kind = \"bearer\"\nper = \"principal\"", Some(("Authorization", "Bearer ****"))),
        ("stored", "kind = \"bearer\"\nsecret = \"store\"", Some(("Authorization", "Bearer ****"))),
        (
            "oauth",
            "kind = \"oauth\"\nauthorize_url = \"http://127.0.0.1:9/a\"\ntoken_url = \"http://127.0.0.1:9/t\"\nclient_id = \"c\"\nclient_secret = \"${env:CANARY}\"",
            Some(("Authorization", "Bearer ****")),
        ),
        ("none", "kind = \"none\"", None),
    ];
    let mut config = "[server]\nmode = \"sandbox\"\n".to_owned();
    for (name, auth, _) in &kinds {
        let manifest = format!(
            "name = \"{name}\"\nbase_url = {{ sandbox = \"http://127.0.0.1:9\" }}\n[auth]\n{auth}\n[methods.make]\nhttp = \"POST /x\"\n[methods.look]\nhttp = \"GET /x\"\n"
        );
        d.write(&format!("{name}.toml"), &manifest);
        config.push_str(&format!("[[integration]]\nname = \"{name}\"\nmanifest = \"{name}.toml\"\n"));
    }
    d.write("counterfoil.toml", &config);
    let run = |args: &[&str]| {
        let mut c = d.command(args);
        c.env("CANARY", "canary-4242").env("COUNTERFOIL_CREDENTIALS", d.path().join("kept"));
        common::ran(&mut c).expect(0)
    };
    for (name, _, shown) in &kinds {
        for method in ["make", "look"] {
            let id = format!("{name}.{method}");
            let dry = run(&["exec", &id, "--dry-run", "--json"]);
            let credential = &dry.json()["wouldSend"]["credential"];
            match shown {
                None => assert!(credential.is_null(), "{dry:?}"),
                Some((header, value)) => {
                    assert_eq!(*credential, json!({ "header": header, "value": value }), "{id}");
                    let told = run(&["exec", &id, "--dry-run"]);
                    assert!(told.stdout.contains(&format!("{header}: {value}")), "{told:?}");
                    assert!(!format!("{told:?}").contains("canary"), "{told:?}");
                }
            }
            assert!(!format!("{dry:?}").contains("canary"), "{dry:?}");
        }
    }
}

#[test]
fn the_guide_is_printed() {
    let d = Dir::new();
    let guide = d.run(&["skill"]).expect(0).stdout;
    assert!(
        guide.starts_with("---\nname: counterfoil\ndescription: ") && guide.len() < 8192,
        "{}",
        guide.len()
    );
    let document = d.run(&["skill", "--json"]).expect(0).json();
    assert_eq!(document["text"].as_str().unwrap().trim_end(), guide.trim_end());
    assert!(std::fs::read_dir(d.path()).unwrap().next().is_none(), "nothing was made");
}

#[test]
fn a_mode_is_written_once() {
    let d = Dir::new();
    d.run(&["init"]).expect(0);
    let config = || std::fs::read_to_string(d.path().join("counterfoil.toml")).unwrap();
    let (before, _) = (config(), std::fs::remove_file(d.path().join(".gitignore")));
    let refused = d.run(&["init", "--mode=production"]).expect(2);
    assert!(
        refused.stderr.contains("in sandbox mode") && refused.stderr.contains("written once"),
        "{refused:?}"
    );
    assert_eq!(config(), before);
    assert!(!d.path().join(".gitignore").exists(), "something was written all the same");
    // The same mode, or none named, writes what is missing.
    d.run(&["init", "--mode=sandbox"]).expect(0);
    assert!(d.path().join(".gitignore").exists());
    d.run(&["init", "--mode=production", "--dir", "real"]).expect(0);
    d.run(&["init", "--dir", "real"]).expect(0);
    let real = std::fs::read_to_string(d.path().join("real/counterfoil.toml")).unwrap();
    assert!(real.contains("mode = \"production\""));
    d.run(&["init", "--mode=sandbox", "--dir", "real"]).expect(2);
}

#[test]
fn doctor_warns_of_a_principal_of_a_view_that_nobody_is() {
    let d = Dir::new();
    d.write(
        "counterfoil.toml",
        "[auth]\nmode = \"api-key\"\n[sandbox]\nlisten = \"127.0.0.1:0\"\n[server]\nlisten = \"127.0.0.1:0\"\n[[view]]\nname = \"reading\"\nprincipals = [\"ann\", \"bot\"]\ntools = [\"*.get\"]\n",
    );
    let key = d.run(&["api-keys", "create", "--principal", "ann", "--json"]).expect(0).json();
    d.run(&["api-keys", "create", "--principal", "bott", "--json"]).expect(0);
    let warned = || -> Vec<String> {
        let said = d.run(&["doctor", "--json"]).json();
        let of_views = said["findings"].as_array().unwrap().iter().filter(|f| f["about"] == "views");
        of_views
            .map(|f| format!("{}: {}", f["level"].as_str().unwrap(), f["what"].as_str().unwrap()))
            .collect()
    };
    let expected = |who: &str| format!("warning: {who:?}, of the view reading, owns no API key that is good");
    assert_eq!(warned(), [expected("bot")]);
    // The same where a gateway holds the ledger; a key that is revoked is none.
    let served = d.serve(&[]);
    d.run(&["api-keys", "revoke", key["id"].as_str().unwrap()]).expect(0);
    assert_eq!(warned(), [expected("ann"), expected("bot")]);
    assert_eq!(served.stop(), 0);
}
