//! Credentials from the command line: what is forgotten and what is not, what is closed and wants none, and a folder's mode.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::ask::{ask, at, exec};
use common::{Dir, Ran, ran};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Stdio;

const CRM: &str = "name = \"crm\"\naccount = \"acme\"\nbase_url = \"http://127.0.0.1:9\"\n[auth]\nkind = \"bearer\"\n[methods.list]\nhttp = \"GET /x\"\n";
const SHOP: &str = "name = \"shop\"\nbase_url = \"http://127.0.0.1:9\"\n[methods.list]\nhttp = \"GET /y\"\n";
const BROKEN: &str = "name = \"shop\"\nbase_ur = 1\n";

fn project(manifests: &[(&str, &str)]) -> Dir {
    let d = Dir::new();
    let mut config = "[server]\nname = \"desk\"\nmode = \"sandbox\"\nlisten = \"127.0.0.1:0\"\n".to_owned();
    for (name, text) in manifests {
        d.write(&format!("{name}.toml"), text);
        config.push_str(&format!("[[integration]]\nname = \"{name}\"\nmanifest = \"{name}.toml\"\n"));
    }
    d.write("counterfoil.toml", &config);
    d
}

fn command(d: &Dir, args: &[&str]) -> std::process::Command {
    let mut command = d.command(args);
    command.env("COUNTERFOIL_CREDENTIALS", d.path().join("credentials"));
    command
}

fn run(d: &Dir, args: &[&str]) -> Ran {
    ran(&mut command(d, args))
}

fn connect_to(d: &Dir, name: &str) {
    let mut child = command(d, &["auth", "connect", name, "--stdin"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"sk-one").unwrap();
    assert!(child.wait().unwrap().success());
}

fn connect(d: &Dir) {
    connect_to(d, "crm");
}

fn kept(d: &Dir) -> usize {
    run(d, &["auth", "status", "--json"]).json()["connected"].as_array().unwrap().len()
}

#[test]
fn what_is_forgotten_is_gone_and_what_is_not_is_said() {
    let d = project(&[("crm", CRM), ("shop", SHOP)]);
    let forget = |name: &str| run(&d, &["auth", "forget", name, "--json"]);
    connect(&d);
    // Another integration's manifest is nothing to it.
    d.write("shop.toml", BROKEN);
    let gone = forget("crm").expect(0).json();
    assert_eq!((&gone["account"], &gone["forgotten"]), (&json!("acme"), &json!(true)));
    let none = forget("crm").expect(0).json();
    assert_eq!(none["forgotten"], false);
    d.write("shop.toml", SHOP);
    assert_eq!(kept(&d), 0);

    connect(&d);
    // Its own is broken: whose the credential is can't be known, and it is not called gone.
    d.write("crm.toml", &CRM.replace("base_url", "base_ur"));
    let unknown = forget("crm").expect(2);
    for part in
        ["nothing was forgotten of \"crm\"", "can't be read", "acme for sandbox", "http://127.0.0.1:9"]
    {
        assert!(unknown.stderr.contains(part), "{part}: {unknown:?}");
    }
    assert!(forget("cmr").expect(2).stderr.contains("not all manifests can be read"));
    // What is kept is told all the same, and that nobody knows what is missing.
    let status = run(&d, &["auth", "status", "--json"]).expect(2);
    assert_eq!(
        (status.json()["connected"].as_array().unwrap().len(), &status.json()["missing"]),
        (1, &Value::Null)
    );
    assert!(status.stderr.contains("what manifests want can't be told"), "{status:?}");
    d.write("crm.toml", CRM);
    // A name that nobody has.
    let typo = forget("cmr").expect(2);
    assert!(typo.stderr.contains("has that name") && typo.stderr.contains("acme for sandbox"), "{typo:?}");
    // Of the other mode.
    let other = run(&d, &["auth", "forget", "crm", "--mode", "production"]).expect(0);
    assert!(other.stdout.contains("one for sandbox is kept (--mode sandbox)"), "{other:?}");
    assert_eq!(kept(&d), 1);
    d.write("crm.toml", "broken");
    assert_eq!(forget("acme").expect(0).json()["forgotten"], true);
    d.write("crm.toml", CRM);
    assert_eq!(kept(&d), 0);
    assert_eq!(forget("acme").expect(0).json()["forgotten"], false);
}

#[test]
fn that_of_a_principal_is_forgotten_by_either_name() {
    let own = CRM.replace("kind = \"bearer\"", "kind = \"bearer\"\nper = \"principal\"");
    let d = project(&[("crm", &own), ("shop", SHOP)]);
    for name in ["crm", "acme"] {
        let gone = run(&d, &["auth", "forget", name, "--principal", "ada", "--json"]).expect(0).json();
        assert_eq!(gone, json!({ "account": "acme", "principal": "ada", "forgotten": false }));
    }
    let unknown = run(&d, &["auth", "forget", "shop", "--principal", "ada"]).expect(2);
    assert!(unknown.stderr.contains("no integration and no account \"shop\""), "{unknown:?}");
}

#[test]
fn what_can_be_anothers_is_not_forgotten_by_a_guess() {
    let of = |name: &str, account: &str| {
        CRM.replace("\"crm\"", &format!("{name:?}")).replace("\"acme\"", &format!("{account:?}"))
    };
    // What is kept under the name `crm` is the shop's.
    let d = project(&[("shop", &of("shop", "crm")), ("crm", CRM)]);
    connect_to(&d, "shop");
    d.write("crm.toml", &CRM.replace("base_url", "base_ur"));
    let refused = run(&d, &["auth", "forget", "crm"]).expect(2);
    for part in ["its manifest can't be read", "account \"crm\" is another integration's", "crm for sandbox"]
    {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    assert_eq!(kept(&d), 1);
    // It can be nobody else's, but another's is not known either.
    d.write("shop.toml", BROKEN);
    assert!(run(&d, &["auth", "forget", "crm"]).expect(2).stderr.contains("not all others can"));
    // Only its own is left of it, and that is said.
    d.write("shop.toml", SHOP);
    let gone = run(&d, &["auth", "forget", "crm"]).expect(0);
    assert!(gone.stdout.contains("forgotten") && gone.stdout.contains("account \"crm\""), "{gone:?}");
    assert_eq!(kept(&d), 0);
    // Which of two is its own is not known.
    d.write("crm.toml", &of("crm", "crm"));
    d.write("shop.toml", &of("shop", "else"));
    connect_to(&d, "crm");
    connect_to(&d, "shop");
    d.write("crm.toml", "broken");
    d.write("shop.toml", &of("shop", "third"));
    assert!(run(&d, &["auth", "forget", "crm"]).expect(2).stderr.contains("can be another's"));
    assert_eq!(kept(&d), 2);
}

/// The name of an integration can be the account of another one: whose credential goes is said, or none goes.
#[test]
fn a_name_that_is_two_accounts_takes_neither() {
    let of = |name: &str, account: &str, per: &str| {
        let named = CRM.replace("\"crm\"", &format!("{name:?}")).replace("\"acme\"", &format!("{account:?}"));
        named.replace("kind = \"bearer\"", &format!("kind = \"bearer\"\n{per}"))
    };
    // The last two have each other's name: only --account can say which.
    let pairs = [("crm", "shared"), ("shared", "other"), ("left", "right"), ("right", "left")];
    let project = |per: &str| {
        let manifests: Vec<_> = pairs.iter().map(|(name, account)| (*name, of(name, account, per))).collect();
        project(&manifests.iter().map(|(name, text)| (*name, text.as_str())).collect::<Vec<_>>())
    };
    let by_user = project("");
    for (name, _) in pairs {
        connect_to(&by_user, name);
    }
    let by_principal = project("per = \"principal\"");
    let served = by_principal.serve(&[]);
    for (name, _) in pairs {
        give(&at(&served), &format!("{name}.list"));
    }
    assert_eq!(served.stop(), 0);

    // Without the flag, and with it; `None`: refused.
    let rows = [
        ("crm", Some("shared"), None),
        ("shared", None, Some("shared")),
        ("other", Some("other"), Some("other")),
        ("left", None, Some("left")),
        ("right", None, Some("right")),
    ];
    let ways =
        [(&by_user, "connected", &[][..]), (&by_principal, "credentials", &["--principal", "anonymous"])];
    for (d, list, more) in ways {
        let mut left: BTreeSet<String> = pairs.iter().map(|(_, account)| (*account).to_owned()).collect();
        for (flag, index) in [(&[][..], 0), (&["--account"], 1)] {
            for (name, plain, exact) in rows {
                let ran = run(d, &[&["auth", "forget", name, "--json"], more, flag].concat());
                match [plain, exact][index] {
                    Some(account) => {
                        let gone = ran.expect(0).json();
                        assert_eq!(gone["account"], account, "{name} {flag:?}: {gone}");
                        assert_eq!(gone["forgotten"], left.remove(account), "{name} {flag:?}: {gone}");
                    }
                    None if index == 0 => {
                        let refused = ran.expect(2);
                        let (_, other) = pairs.iter().find(|(integration, _)| *integration == name).unwrap();
                        for part in
                            [&format!("{name:?} or {other:?} with --account"), "nothing was forgotten"]
                        {
                            assert!(refused.stderr.contains(part), "{part}: {refused:?}");
                        }
                    }
                    None => {
                        ran.expect(2);
                    }
                }
                let status = run(d, &["auth", "status", "--json"]).json();
                let all = status[list].as_array().unwrap();
                let accounts: BTreeSet<String> =
                    all.iter().map(|one| one["account"].as_str().unwrap().to_owned()).collect();
                assert_eq!(accounts, left, "{name} {flag:?}: {status}");
            }
        }
        assert!(left.is_empty(), "{left:?}");
        // What is said names the account, also where it is not the name.
        let none = run(d, &[&["auth", "forget", "crm"], more].concat()).expect(0);
        assert!(none.stdout.contains("account \"shared\""), "{none:?}");
    }

    // One that an integration had before it got another account is kept, and is not passed over.
    connect_to(&by_user, "left");
    by_user.write("left.toml", &of("left", "new", ""));
    by_user.write("right.toml", &of("right", "elsewhere", ""));
    run(&by_user, &["auth", "forget", "right"]).expect(2);
    assert_eq!(
        run(&by_user, &["auth", "forget", "right", "--account", "--json"]).expect(0).json()["forgotten"],
        true
    );
    run(&by_user, &["auth", "forget", "right"]).expect(0);
}

/// Gives the credential that a method of one per principal asks for, as `anonymous`.
fn give(at: &str, id: &str) {
    let asked = exec(at, &json!({ "id": id })).body;
    let path = asked.split("/connect/").nth(1).unwrap();
    let path = path.split(|c: char| c.is_whitespace() || "\"\\".contains(c)).next().unwrap();
    let given = ask(
        at,
        "POST",
        &format!("/connect/{}", path.trim_end_matches('.')),
        &[
            ("content-type", "application/x-www-form-urlencoded"),
            ("origin", "null"),
            ("sec-fetch-site", "same-origin"),
        ],
        "key=&secret=sk-one",
    );
    assert_eq!(given.status, 200, "{}", given.body);
}

/// What a principal gave, and whose integration was closed after, is still there to be seen and taken away.
#[test]
fn what_was_given_before_it_was_closed_can_be_withdrawn() {
    let of = |base: &str| {
        format!(
            "name = \"crm\"\naccount = \"acme\"\nbase_url = {base}\n[auth]\nkind = \"bearer\"\nper = \"principal\"\n{METHODS}"
        )
    };
    let both = of("{ sandbox = \"https://api.example\", production = \"https://api.example\" }");
    let d = project(&[("crm", &both)]);
    let served = d.serve(&[]);
    give(&at(&served), "crm.list");
    assert_eq!(served.stop(), 0);

    d.write("crm.toml", &of("\"https://api.example\""));
    let status = run(&d, &["auth", "status", "--json"]).expect(0).json();
    let one = &status["credentials"][0];
    assert_eq!(
        (&one["account"], &one["principal"], &one["origin"], &one["state"]),
        (&json!("acme"), &json!("anonymous"), &json!("https://api.example"), &json!("valid")),
        "{status}"
    );
    let forget = |name: &str| {
        run(&d, &["auth", "forget", name, "--principal", "anonymous", "--json"]).expect(0).json()
    };
    assert_eq!(forget("crm")["forgotten"], true);
    assert_eq!(forget("acme")["forgotten"], false);
    assert_eq!(run(&d, &["auth", "status", "--json"]).expect(0).json()["credentials"], json!([]));
}

const FAR: &str = "base_url = \"https://api.example\"";
const METHODS: &str = "[methods.list]\nhttp = \"GET /x\"\n[methods.make]\nhttp = \"POST /x\"\n";

#[test]
fn what_is_closed_wants_no_credential() {
    let d = project(&[
        (
            "named",
            &format!(
                "name = \"named\"\n{FAR}\n[auth]\nkind = \"bearer\"\nsecret = \"${{env:NO_SUCH_TOKEN}}\"\n{METHODS}"
            ),
        ),
        ("stored", &format!("name = \"stored\"\n{FAR}\n[auth]\nkind = \"bearer\"\n{METHODS}")),
        (
            "plain",
            &format!(
                "name = \"plain\"\nbase_url = \"http://127.0.0.1:9\"\nheaders = {{ \"DD-APPLICATION-KEY\" = \"abc\" }}\n{METHODS}"
            ),
        ),
    ]);
    let report = run(&d, &["doctor", "--json"]).expect(0).json();
    let told = report.to_string();
    assert_eq!(report["errors"], 0, "{told}");
    assert!(!told.contains("NO_SUCH_TOKEN") && !told.contains("auth connect"), "{told}");
    for name in ["named", "stored"] {
        let of = |f: &&Value| f["about"] == name && f["level"] == "warning";
        let found = report["findings"].as_array().unwrap().iter().find(of).unwrap();
        assert!(found["what"].as_str().unwrap().contains("refuses in this mode"), "{found}");
    }
    assert!(
        told.contains("the header DD-APPLICATION-KEY looks like a credential") && !told.contains("abc"),
        "{told}"
    );
    let status = run(&d, &["auth", "status", "--json"]).expect(0).json();
    assert_eq!(status["missing"], json!([]), "{status}");
    let refused = run(&d, &["auth", "connect", "stored"]).expect(2);
    assert!(refused.stderr.contains("sandbox mode"), "{refused:?}");
}

#[test]
fn what_is_closed_asks_nobody_for_a_credential_of_its_own() {
    let own = |name: &str, base: &str, auth: &str| {
        format!("name = \"{name}\"\n{base}\n[auth]\n{auth}\nper = \"principal\"\n{METHODS}")
    };
    let oauth = "kind = \"oauth\"\nissuer = \"https://login.example\"\nclient_id = \"c\"";
    let near = "base_url = \"http://127.0.0.1:9\"";
    let d = project(&[
        ("key", &own("key", FAR, "kind = \"bearer\"")),
        ("oauth", &own("oauth", FAR, oauth)),
        // The provider has a sandbox, and the authorization server has none.
        ("login", &own("login", near, oauth)),
        ("open", &own("open", near, "kind = \"bearer\"")),
    ]);
    let served = d.serve(&[]);
    let at = at(&served);
    for name in ["key", "oauth", "login"] {
        for method in ["list", "make"] {
            let answer = exec(&at, &json!({ "id": format!("{name}.{method}"), "key": "k" }));
            assert_eq!(answer.word(), "bad_arguments", "{name}.{method}: {}", answer.body);
            let tool = format!("{name}_{method}");
            let called = d.run(&["call", served.endpoint(), &tool, "--json"]);
            for said in [&answer.body, &called.stdout] {
                assert!(said.contains("sandbox mode") && said.contains("nothing was sent"), "{tool}: {said}");
                assert!(!said.contains("/connect/"), "{tool}: {said}");
            }
        }
    }
    // One that is open asks, as ever.
    let asked = exec(&at, &json!({ "id": "open.list" }));
    assert_eq!(asked.word(), "credential_required", "{}", asked.body);
    assert!(asked.body.contains("/connect/"), "{}", asked.body);
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_dry_run_shows_each_secret_masked_in_its_place() {
    let two = format!(
        "name = \"two\"\nbase_url = \"http://127.0.0.1:9\"\n[auth]\nkind = \"query\"\nquery = \"api_key\"\nsecret = \"${{env:ONE_KEY}}\"\nalso = [{{ header = \"X-App\", secret = \"${{env:TWO_KEY}}\" }}]\n{METHODS}"
    );
    let d = project(&[("two", &two)]);
    let dry = |more: &[&str]| {
        let args = [&["exec", "two.make", "--dry-run"], more].concat();
        ran(command(&d, &args).env("ONE_KEY", "CANARY-1").env("TWO_KEY", "CANARY-2")).expect(0)
    };
    let shown = dry(&[]).stdout;
    assert!(
        shown.contains("POST http://127.0.0.1:9/x?api_key=****\n") && shown.contains("x-app: ****"),
        "{shown}"
    );
    let told = dry(&["--json"]).json();
    assert_eq!(told["wouldSend"]["credential"], json!({ "query": "api_key", "value": "****" }), "{told}");
    assert_eq!(told["wouldSend"]["also"], json!([{ "header": "x-app", "value": "****" }]), "{told}");
    assert!(!shown.contains("CANARY") && !told.to_string().contains("CANARY"));
}

#[test]
fn a_folder_keeps_its_mode_and_a_broken_one_is_not_called_fine() {
    let d = Dir::new();
    d.run(&["init", "--mode", "production"]).expect(0);
    // Without a mode it is the folder's own that is spoken of.
    let again = d.run(&["init"]).expect(0);
    assert!(
        again.stdout.contains("api-keys create") && !again.stdout.contains("counterfoil serve"),
        "{again:?}"
    );
    let other = d.run(&["init", "--mode", "sandbox"]).expect(2);
    assert!(other.stderr.contains("in production mode"), "{other:?}");
    let d = Dir::new();
    d.write("counterfoil.toml", "[server]\nmode = \"sandbox\"\nnmae = \"x\"\n");
    for args in [&["init", "--mode", "production"][..], &["init", "--mode", "sandbox"], &["init"]] {
        let refused = d.run(args).expect(2);
        for part in ["nothing was written", "counterfoil.toml", "nmae"] {
            assert!(refused.stderr.contains(part), "{args:?} {part}: {refused:?}");
        }
        assert!(!refused.stdout.contains("Next:") && !d.path().join("integrations").exists(), "{refused:?}");
    }
}
