//! A gateway that runs, and commands beside it: a lost reply, one in doubt, API keys, reload, two processes and one
//! ledger.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Dir, arm, effects, http};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;

const FREE: [&str; 4] = ["--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0"];

#[test]
fn a_lost_reply_is_asked_for_again_and_paid_once() {
    let d = Dir::new();
    let s = d.serve(&FREE);
    assert_eq!(s.ready["pid"], s.child.id());
    arm(s.sandbox(), r#"{"on":"POST /v1/refunds","do":"apply_then_cut"}"#);
    let args = [
        "call",
        s.endpoint(),
        "payments_refunds_create",
        "--json",
        "--key",
        "k-1",
        "--arg",
        "payment=pay_demo",
        "--arg",
        "amount=500",
        "--arg",
        "order_id=o1",
    ];
    let one = d.run(&args).expect(0).json();
    assert_eq!(effects(s.sandbox(), "o1"), 1);
    let two = d.run(&args).expect(0).json();
    assert_eq!(one["result"]["structuredContent"], two["result"]["structuredContent"]);
    assert_eq!(two["operation"]["replayed"], true);
    assert_eq!(effects(s.sandbox(), "o1"), 1);
    // The client acknowledged, and the operator sees it, over the control socket.
    let id = one["operation"]["id"].as_str().unwrap();
    let op = d.run(&["ops", "show", id, "--json"]).expect(0).json();
    assert_eq!(
        (&op["state"], &op["delivery"], &op["effects"][0]["sends"]),
        (&"completed".into(), &"acknowledged".into(), &2.into())
    );
    let shown = d.run(&["ops", "show", id]).expect(0).stdout;
    assert!(shown.contains("Idempotency-Key: ") && shown.contains("\"order_id\": \"o1\""), "{shown}");
    d.run(&["ops", "watch", id]).expect(0);
    // A tool that isn't there, arguments that don't fit, a key that names something else.
    d.run(&["call", s.endpoint(), "nothing"]).expect(2);
    d.run(&["call", s.endpoint(), "payments_refunds_create", "--arg", "amount=1"]).expect(2);
    d.run(&["call", s.endpoint(), "payments_refunds_create", "--key", "k-1", "--arg", "payment=pay_demo2"])
        .expect(4);
    assert_eq!(s.stop(), 0);
}

#[test]
fn a_killed_gateway_is_taken_up_by_the_next_one() {
    let d = Dir::new();
    let mut s = d.serve(&FREE);
    // The provider runs on by itself, as a real one does.
    drop(d.run(&["call", s.endpoint(), "payments_payments_get", "--arg", "id=pay_demo"]).expect(0));
    let provider = Dir::new();
    let mut alone = provider.command(&["sandbox", "--json", "--listen", "127.0.0.1:0"]);
    let mut child = alone.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    let at = serde_json::from_str::<Value>(&line).unwrap()["sandbox"]
        .as_str()
        .unwrap()
        .strip_prefix("http://")
        .unwrap()
        .to_owned();
    assert_eq!(s.stop(), 0);
    let with = ["--listen", "127.0.0.1:0", "--sandbox-listen", &at];
    s = d.serve(&with);
    assert_eq!(s.sandbox(), at);
    arm(&at, r#"{"on":"POST /v1/refunds","do":"apply_then_hang"}"#);
    let mut call = d
        .command(&[
            "call",
            s.endpoint(),
            "payments_refunds_create",
            "--retries",
            "0",
            "--key",
            "k-9",
            "--arg",
            "payment=pay_demo",
            "--arg",
            "order_id=o9",
            "--arg",
            "amount=9",
        ])
        .spawn()
        .unwrap();
    while effects(&at, "o9") == 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(s);
    assert_eq!(call.wait().unwrap().code(), Some(5), "lost, and safe to retry");
    let s = d.serve(&with);
    let again = d
        .run(&[
            "call",
            s.endpoint(),
            "payments_refunds_create",
            "--json",
            "--key",
            "k-9",
            "--arg",
            "payment=pay_demo",
            "--arg",
            "order_id=o9",
            "--arg",
            "amount=9",
        ])
        .expect(0)
        .json();
    assert_eq!(again["result"]["structuredContent"]["amount"], 9);
    assert_eq!(effects(&at, "o9"), 1);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn one_in_doubt_waits_for_a_word() {
    let d = Dir::new();
    d.write("counterfoil.toml", "[sandbox]\nlisten = \"127.0.0.1:0\"\n[server]\nlisten = \"127.0.0.1:0\"\n[tools.\"payments.refunds.create\"]\nrecovery = \"none\"\n");
    let s = d.serve(&[]);
    let lose = || arm(s.sandbox(), r#"{"on":"POST /v1/refunds","do":"apply_then_cut"}"#);
    let exec = |key: &str, order: &str| {
        d.run(&[
            "exec",
            "payments.refunds.create",
            "--json",
            "--key",
            key,
            "--param",
            "payment=pay_demo",
            "--param",
            "amount=5",
            "--param",
            &format!("order_id={order}"),
        ])
    };
    lose();
    let doubt = exec("a", "oa").expect(3).json();
    assert_eq!(doubt["error"]["kind"], "in_doubt");
    let id = doubt["error"]["operationId"].as_str().unwrap();
    let listed = d.run(&["ops", "list", "--state", "in_doubt", "--json"]).expect(0).json();
    assert_eq!(listed["operations"][0]["id"], id);
    assert!(d.run(&["ops", "show", id]).expect(0).stdout.contains("ops resolve"));
    d.run(&["ops", "watch", id]).expect(3);
    assert!(d.run(&["doctor"]).expect(0).stdout.contains("1 wait for somebody's decision"));
    // It happened.
    let done = d
        .run(&[
            "ops",
            "resolve",
            id,
            "--applied",
            "--receipt",
            "{\"seen\":\"re_1\"}",
            "--by",
            "ann",
            "--json",
        ])
        .expect(0)
        .json();
    assert_eq!(done["state"], "completed");
    let answer = exec("a", "oa").expect(0).json();
    assert_eq!(answer["operation"]["replayed"], true);
    let op = d.run(&["ops", "show", id, "--json"]).expect(0).json();
    assert_eq!(op["decisions"][0]["by"], "ann");
    assert_eq!(effects(s.sandbox(), "oa"), 1);
    // It did not happen: the same call may run again.
    arm(s.sandbox(), r#"{"on":"POST /v1/refunds","do":"cut"}"#);
    let doubt = exec("b", "ob").expect(3).json();
    let id = doubt["error"]["operationId"].as_str().unwrap();
    let failed = d.run(&["ops", "resolve", id, "--not-applied", "--by", "ann", "--json"]).expect(0).json();
    assert_eq!(failed["state"], "failed");
    exec("b", "ob").expect(0);
    assert_eq!(effects(s.sandbox(), "ob"), 1);
    // Decided already, unknown, and not an id.
    d.run(&["ops", "resolve", id, "--applied", "--by", "ann"]).expect(1);
    d.run(&["ops", "show", "op_01ARZ3NDEKTSV4RRFFQ69G5FAV"]).expect(2);
    d.run(&["ops", "cancel", "nonsense", "--by", "ann"]).expect(2);
    // Without the server the command opens the ledger itself, and the decision is carried out before it ends.
    lose();
    let doubt = exec("c", "oc").expect(3).json();
    let id = doubt["error"]["operationId"].as_str().unwrap().to_owned();
    assert_eq!(s.stop(), 0);
    let done = d.run(&["ops", "resolve", &id, "--applied", "--by", "ann", "--json"]).expect(0).json();
    assert_eq!(done["state"], "completed");
}

#[test]
fn an_alert_reaches_the_webhook() {
    let d = Dir::new();
    let hook = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/alerts", hook.local_addr().unwrap());
    d.write("counterfoil.toml", &format!("[sandbox]\nlisten = \"127.0.0.1:0\"\n[server]\nlisten = \"127.0.0.1:0\"\n[alerts]\nwebhook = {url:?}\n[tools.\"payments.refunds.create\"]\nrecovery = \"none\"\n"));
    let s = d.serve(&[]);
    arm(s.sandbox(), r#"{"on":"POST /v1/refunds","do":"apply_then_cut"}"#);
    d.run(&["exec", "payments.refunds.create", "--param", "payment=pay_demo"]).expect(3);
    let (mut posted, _) = hook.accept().unwrap();
    posted.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let mut text = String::new();
    while !text.contains("\r\n\r\n") || !text.ends_with('}') {
        let mut some = [0; 4096];
        let n = std::io::Read::read(&mut posted, &mut some).unwrap();
        assert!(n > 0, "{text}");
        text.push_str(std::str::from_utf8(&some[..n]).unwrap());
    }
    std::io::Write::write_all(&mut posted, b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(
        (&body["alert"], &body["operation"]["tool"]),
        (&"in_doubt".into(), &"payments.refunds.create".into())
    );
    assert_eq!(s.stop(), 0);
}

#[test]
fn api_keys_are_shown_once_and_revoked_at_once() {
    let d = Dir::new();
    d.write("counterfoil.toml", "[sandbox]\nlisten = \"127.0.0.1:0\"\n[server]\nlisten = \"127.0.0.1:0\"\n[auth]\nmode = \"api-key\"\n");
    let s = d.serve(&[]);
    let call = |key: Option<&str>| {
        let mut args = vec![
            "call",
            s.endpoint(),
            "payments_refunds_create",
            "--json",
            "--retries",
            "1",
            "--key",
            "k",
            "--arg",
            "payment=pay_demo",
            "--arg",
            "amount=5",
        ];
        let header = key.map(|k| format!("Authorization: Bearer {k}"));
        if let Some(h) = &header {
            args.extend(["--header", h.as_str()]);
        }
        d.run(&args)
    };
    call(None).expect(2);
    call(Some("cfk_wrong")).expect(2);
    let made =
        d.run(&["api-keys", "create", "--principal", "ann", "--note", "laptop", "--json"]).expect(0).json();
    let key = made["key"].as_str().unwrap();
    assert!(key.starts_with("cfk_") && key.len() == 4 + 52, "{key}");
    let one = call(Some(key)).expect(0).json();
    // Another key of the same principal sees the same operation; another principal does not.
    let second = d.run(&["api-keys", "create", "--principal", "ann", "--json"]).expect(0).json();
    let same = call(second["key"].as_str()).expect(0).json();
    assert_eq!(one["operation"]["id"], same["operation"]["id"]);
    let bob = d.run(&["api-keys", "create", "--principal", "bob", "--json"]).expect(0).json();
    assert_ne!(one["operation"]["id"], call(bob["key"].as_str()).expect(0).json()["operation"]["id"]);
    let listed = d.run(&["api-keys", "list", "--json"]).expect(0);
    assert_eq!(listed.json()["keys"].as_array().unwrap().len(), 3);
    assert!(!listed.stdout.contains(key) && !listed.stdout.contains("hash"), "{}", listed.stdout);
    d.run(&["api-keys", "revoke", made["id"].as_str().unwrap()]).expect(0);
    call(Some(key)).expect(2);
    call(second["key"].as_str()).expect(0);
    d.run(&["api-keys", "revoke", "ak-none"]).expect(2);
}

#[test]
fn a_reload_changes_tools_and_a_bad_file_changes_nothing() {
    let d = Dir::new();
    let good = "[sandbox]\nlisten = \"127.0.0.1:0\"\n[server]\nlisten = \"127.0.0.1:0\"\n";
    d.write("counterfoil.toml", good);
    let s = d.serve(&["--log-format", "json"]);
    let name = || {
        d.run(&["info", "payments.refunds.create", "--json"]).expect(0).json()["tool"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(name(), "payments_refunds_create");
    d.write("counterfoil.toml", "[server]\nlistn = 1\n");
    s.signal(Signal::HUP);
    let log = s.logged("was not reloaded");
    assert!(
        log.contains("counterfoil.toml:2:1") && log.lines().all(|l| serde_json::from_str::<Value>(l).is_ok()),
        "{log}"
    );
    d.write("counterfoil.toml", &format!("{good}[tools.\"payments.refund.create\"]\nname = \"refund\"\n"));
    s.signal(Signal::HUP);
    s.logged("there is no method");
    // The commands read the file too, so it must be right again before one can ask.
    d.write("counterfoil.toml", good);
    assert_eq!(name(), "payments_refunds_create");
    d.write("counterfoil.toml", &format!("{good}[tools.\"payments.refunds.create\"]\nname = \"refund\"\n"));
    s.signal(Signal::HUP);
    s.logged("configuration reloaded");
    assert_eq!(name(), "refund");
    d.run(&["call", s.endpoint(), "refund", "--arg", "payment=pay_demo", "--arg", "amount=1"]).expect(0);
    d.write("counterfoil.toml", &good.replace("[server]\n", "[server]\nmax_body = \"1MiB\"\n"));
    s.signal(Signal::HUP);
    s.logged("[server] max_body");
    assert_eq!(s.stop(), 0);
}

#[test]
fn one_ledger_has_one_process_and_a_private_socket() {
    let d = Dir::new();
    let s = d.serve(&FREE);
    let second = d.run(&["serve", "--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0"]).expect(5);
    assert!(second.stderr.contains(&format!("in use by process {}", s.child.id())), "{second:?}");
    let socket = d.path().join(".counterfoil/control.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let at = s.endpoint().strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
    assert_eq!(http(at, "GET", "/healthz", "").0, 200);
    assert_eq!(http(at, "GET", "/readyz", "").0, 200);
    let (status, metrics) = http(at, "GET", "/metrics", "");
    assert!(status == 200 && metrics.contains("counterfoil_operations{state=\"in_doubt\"} 0"), "{metrics}");
    // Operators' routes are on the socket only.
    assert_eq!(http(at, "GET", "/v1/ops", "").0, 404);
    assert_eq!(s.stop(), 0);
    assert!(!socket.exists());
    // A port that is taken.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let refused = d.run(&["serve", "--listen", &addr, "--sandbox-listen", "127.0.0.1:0"]).expect(5);
    assert!(refused.stderr.contains(&format!("can't listen on {addr}")), "{refused:?}");
}

#[test]
fn a_directory_with_a_long_path_has_a_socket_too() {
    let d = Dir::new();
    let long = format!("{}/data", "x".repeat(120));
    std::fs::create_dir(d.path().join("x".repeat(120))).unwrap();
    let mut args = FREE.to_vec();
    args.extend(["--data", &long]);
    let s = d.serve(&args);
    let ops = d.run(&["ops", "list", "--json", "--data", &long]).expect(0).json();
    assert_eq!(ops["operations"], serde_json::json!([]));
    assert_eq!(s.stop(), 0);
}
