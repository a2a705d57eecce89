//! Commands that need no server: help, version, completions, `init`, wrong usage, `demo`, `doctor`, `methods`,
//! `info`, and `exec` with the ledger opened by the command itself.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::Dir;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn help_version_completions() {
    let d = Dir::new();
    let help = d.run(&["--help"]).expect(0);
    for command in [
        "serve",
        "sandbox",
        "init",
        "demo",
        "exec",
        "call",
        "methods",
        "info",
        "ops",
        "api-keys",
        "doctor",
        "completions",
    ] {
        assert!(help.stdout.contains(command), "{command}");
        d.run(&[command, "--help"]).expect(0);
    }
    assert!(help.stdout.contains("Exit codes: 0 done"));
    assert_eq!(
        d.run(&["--version"]).expect(0).stdout,
        format!("counterfoil {}\n", env!("CARGO_PKG_VERSION"))
    );
    for shell in ["bash", "zsh", "fish"] {
        assert!(d.run(&["completions", shell]).expect(0).stdout.contains("api-keys"));
    }
    assert!(std::fs::read_dir(d.path()).unwrap().next().is_none(), "nothing was made");
}

#[test]
fn wrong_usage_is_code_2() {
    let d = Dir::new();
    for args in [
        &["nonsense"][..],
        &["exec"],
        &["serve", "--listen", "x"],
        &["ops", "resolve", "op_1", "--by", "x"],
        &[],
    ] {
        let ran = d.run(args).expect(2);
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{ran:?}");
    }
    d.run(&["exec", "payments.refunds.create", "--param", "x"]).expect(2);
    d.run(&["call", "ftp://x", "t"]).expect(2);
    d.run(&["call", "http://mcp.example.com/mcp", "t"]).expect(2);
    let exposed = d.run(&["serve", "--listen", "0.0.0.0:0"]).expect(2);
    assert!(exposed.stderr.contains("can be reached from other machines"), "{exposed:?}");
    assert!(!d.path().join(".counterfoil").exists());
}

#[test]
fn a_bad_configuration_is_code_2_with_its_line() {
    let d = Dir::new();
    d.write("counterfoil.toml", "[server]\nname = \"x\"\nlistn = \"127.0.0.1:0\"\n");
    for args in [&["serve"][..], &["methods"], &["ops", "list"], &["exec", "a.b"]] {
        let ran = d.run(args).expect(2);
        assert!(
            ran.stderr.contains(
                "counterfoil.toml:3:1: unknown key \"listn\" in [server]; did you mean \"listen\"?"
            ),
            "{ran:?}"
        );
    }
    let json = d.run(&["methods", "--json"]).expect(2).json();
    assert_eq!(json["error"]["kind"], "configuration");
    assert_eq!(json["exitCode"], 2);
    d.run(&["methods", "--config", "missing.toml"]).expect(2);
    // A tool that no integration has is found too, though the file alone can't tell.
    let config = d.write("tool.toml", "[sandbox]\n[tools.\"payments.refund.create\"]\nunkeyed = \"new\"\n");
    let ran = d.run(&["methods", "--config", config.to_str().unwrap()]).expect(2);
    assert!(
        ran.stderr.contains("tool.toml:2:8: there is no method")
            && ran.stderr.contains("did you mean \"payments.refunds.create\"?"),
        "{ran:?}"
    );
    // So is a manifest, with its own line.
    d.write("i/a.toml", "name = \"a\"\nbase_url = \"http://127.0.0.1:1\"\n[methods.\"x.y\"]\nhttp = \"POST /x\"\nefect = \"read\"\n");
    let config = d.write("manifest.toml", "[[integration]]\nname = \"a\"\nmanifest = \"i/a.toml\"\n");
    let ran = d.run(&["methods", "--config", config.to_str().unwrap()]).expect(2);
    assert!(ran.stderr.contains("a.toml:") && ran.stderr.contains("efect"), "{ran:?}");
}

#[test]
fn init_writes_what_works_and_never_overwrites() {
    let d = Dir::new();
    for mode in ["sandbox", "production"] {
        let made = d.run(&["init", "--mode", mode, "--dir", mode, "--json"]).expect(0).json();
        assert_eq!(made["written"].as_array().unwrap().len(), 3);
        let config = format!("{mode}/counterfoil.toml");
        let methods = d.run(&["methods", "--config", &config, "--json"]).expect(0).json();
        assert!(!methods["methods"].as_array().unwrap().is_empty());
        // The manifest that is only an example works as it is, too.
        let mut text = std::fs::read_to_string(d.path().join(&config)).unwrap();
        text.push_str("\n[[integration]]\nname = \"example\"\nmanifest = \"integrations/example.toml\"\n");
        d.write(&format!("{mode}/with.toml"), &text);
        let methods = d
            .run(&["methods", "example", "--config", &format!("{mode}/with.toml"), "--json"])
            .expect(0)
            .json();
        assert_eq!(methods["methods"].as_array().unwrap().len(), 2, "{methods}");
    }
    d.write("sandbox/counterfoil.toml", "# mine\n");
    std::fs::remove_file(d.path().join("sandbox/.gitignore")).unwrap();
    let again = d.run(&["init", "--dir", "sandbox", "--json"]).expect(0).json();
    assert_eq!(again["written"], serde_json::json!([".gitignore"]));
    assert_eq!(std::fs::read_to_string(d.path().join("sandbox/counterfoil.toml")).unwrap(), "# mine\n");
}

#[test]
fn demo_counts_one_and_two() {
    let d = Dir::new();
    let begun = std::time::Instant::now();
    let told = d.run(&["demo"]).expect(0);
    assert!(begun.elapsed().as_secs() < 15);
    assert!(
        told.stdout.contains("kill -9") && told.stdout.contains("  1  refund through Counterfoil"),
        "{}",
        told.stdout
    );
    let json = d.run(&["demo", "--json"]).expect(0).json();
    assert_eq!((&json["counterfoil"], &json["naive"]), (&Value::from(1), &Value::from(2)));
    assert!(std::fs::read_dir(d.path()).unwrap().next().is_none(), "nothing was left here");
}

#[test]
fn methods_and_info_open_nothing() {
    let d = Dir::new();
    let found = d.run(&["methods", "refund", "--json"]).expect(0).json();
    let ids: Vec<&str> =
        found["methods"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"payments.refunds.create") && !ids.contains(&"mail.messages.send"), "{ids:?}");
    let config = d.write(
        "c.toml",
        "[sandbox]\n[defaults]\nguard_window = \"2m\"\n[tools.\"payments.refunds.create\"]\nrecovery = \"lookup\"\nretention = \"30d\"\nname = \"refund\"\n",
    );
    let config = config.to_str().unwrap();
    // By canonical id and by the name on the wire.
    for id in ["payments.refunds.create", "refund"] {
        let info = d.run(&["info", id, "--config", config, "--json"]).expect(0).json();
        assert_eq!(info["safety"]["recovery"]["value"], "lookup");
        assert_eq!(info["settings"]["guardWindowMs"], 120_000);
        assert!(info["origins"]["recovery"].as_str().unwrap().ends_with("c.toml:5"), "{}", info["origins"]);
        assert!(info["origins"]["guardWindow"].as_str().unwrap().starts_with("[defaults]"));
    }
    let text = d.run(&["info", "refund", "--config", config]).expect(0).stdout;
    assert!(text.contains("retry     safe after asking") && text.contains("c.toml:6"), "{text}");
    d.run(&["info", "payments.nothing"]).expect(2);
    d.run(&["ops", "list"]).expect(2);
    assert!(!d.path().join(".counterfoil").exists());
}

#[test]
fn exec_twice_with_one_key_is_one_effect() {
    let d = Dir::new();
    let exec = |extra: &[&str]| {
        let mut args = vec![
            "exec",
            "payments.refunds.create",
            "--json",
            "--sandbox-listen",
            "127.0.0.1:0",
            "--param",
            "payment=pay_demo",
        ];
        args.extend(extra);
        d.run(&args)
    };
    let dry = exec(&["--param", "amount=700", "--dry-run"]).expect(0).json();
    assert_eq!(dry["outcome"], "dry_run");
    assert!(!d.path().join(".counterfoil").exists(), "a dry run makes nothing");
    let one = exec(&["--param", "amount=700", "--key", "k1"]).expect(0).json();
    let two = exec(&["--param", "amount=700", "--key", "k1"]).expect(0).json();
    assert_eq!(one["operation"]["replayed"], false, "its own result is nobody else's");
    assert_eq!(one["result"], two["result"]);
    assert_eq!(one["operation"]["id"], two["operation"]["id"]);
    assert_eq!(two["operation"]["replayed"], true);
    // The same key with other arguments: nothing runs.
    let other = exec(&["--param", "amount=701", "--key", "k1"]).expect(4).json();
    assert_eq!(other["error"]["kind"], "key_conflict");
    exec(&["--param", "amount=0"]).expect(2);
    exec(&["--param", "amount=40200"]).expect(1);
    let data = d.path().join(".counterfoil");
    assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::read_to_string(data.join(".gitignore")).unwrap(), "*\n");
    let ops = d.run(&["ops", "list", "--json"]).expect(0).json();
    assert_eq!(ops["operations"].as_array().unwrap().len(), 2);
}

#[test]
fn doctor_says_what_is_wrong_and_exits_with_2() {
    let d = Dir::new();
    let fine = d.run(&["doctor", "--json"]).expect(0).json();
    assert_eq!(fine["errors"], 0);
    d.write(
        "i/a.toml",
        "name = \"a\"\nbase_url = \"http://127.0.0.1:1\"\n[auth]\nkind = \"bearer\"\nsecret = \"${env:NO_SUCH_SECRET_HERE}\"\n[methods.\"x.create\"]\nhttp = \"POST /x\"\n",
    );
    d.write(
        "counterfoil.toml",
        "[ledger]\nretention = \"1h\"\n[[integration]]\nname = \"a\"\nmanifest = \"i/a.toml\"\n",
    );
    let bad = d.run(&["doctor", "--json"]).expect(2).json();
    let all: Vec<String> = bad["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| format!("{} {}: {}", f["level"], f["about"], f["what"]))
        .collect();
    let has = |parts: &[&str]| {
        assert!(all.iter().any(|l| parts.iter().all(|p| l.contains(p))), "{parts:?} {all:#?}")
    };
    has(&["error", "secrets", "NO_SUCH_SECRET_HERE"]);
    has(&["error", "a.x.create", "forgets after 1h", "1d"]);
    has(&["warning", "a.x.create", "in doubt at once"]);
    d.write("counterfoil.toml", "[ledger]\nretentoin = \"1h\"\n");
    let bad = d.run(&["doctor"]).expect(2);
    assert!(bad.stdout.contains("counterfoil.toml:2:1: unknown key \"retentoin\""), "{bad:?}");
    // A directory that others can enter.
    std::fs::remove_file(d.path().join("counterfoil.toml")).unwrap();
    d.run(&["api-keys", "list"]).expect(2);
    d.run(&["api-keys", "create", "--principal", "p"]).expect(0);
    std::fs::set_permissions(d.path().join(".counterfoil"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let open = d.run(&["doctor"]).expect(0);
    assert!(open.stdout.contains("other users can enter"), "{open:?}");
}
