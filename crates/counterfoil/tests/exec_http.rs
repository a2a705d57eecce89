//! `POST /api/v1/exec` as a handler in any language asks it: what it means, and whose executions are whose.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::ask::{JSON, REFUND, ask, at, exec, refund, serve};
use common::{Dir, arm, effects};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn a_handler_that_runs_again_repeats_nothing() {
    let dir = Dir::new();
    let served = serve(&dir);
    let (at, sandbox) = (at(&served), served.sandbox().to_owned());
    // The reply of the provider is lost on the way.
    arm(&sandbox, r#"{"on":"POST /v1/refunds","do":"apply_then_cut","times":1}"#);
    let run = json!({ "id": REFUND, "arguments": refund("a"), "operation": "job-1" });
    let first = exec(&at, &run);
    assert_eq!((first.status, &first.json()["outcome"]), (200, &json!("result")), "{}", first.body);
    assert_eq!(first.json()["operation"]["replayed"], false);
    assert_eq!(first.header("content-type"), Some("application/json"));
    assert_eq!(first.header("cache-control"), Some("no-store"));
    let again = exec(&at, &run).json();
    assert_eq!(again["operation"]["id"], first.json()["operation"]["id"]);
    assert_eq!((&again["operation"]["replayed"], &again["result"]), (&json!(true), &first.json()["result"]));
    // By the name on the wire, with its members in another order and its numbers written otherwise: the same step.
    let raw = r#"{"operation":"job-1","arguments":{"order_id":"a","amount":2.0e2,"payment":"pay_demo_a"},"id":"payments_refunds_create"}"#;
    let same = ask(&at, "POST", "/api/v1/exec", &[JSON], raw).json();
    assert_eq!(same["operation"]["id"], again["operation"]["id"], "{same}");
    assert_eq!(effects(&sandbox, "a"), 1);
    // Another run, other arguments, a name: each is one more.
    for (n, more) in [
        (2, json!({ "id": REFUND, "arguments": refund("a"), "operation": "job-2" })),
        (3, json!({ "id": REFUND, "arguments": refund("a"), "operation": "job-1", "step": "x" })),
        (4, json!({ "id": REFUND, "arguments": refund("a"), "operation": "job-1", "step": "y" })),
    ] {
        for _ in 0..2 {
            assert_eq!(exec(&at, &more).status, 200);
            assert_eq!(effects(&sandbox, "a"), n);
        }
    }
    // Under a name, other arguments are no other step: nothing runs.
    let mut other = refund("a");
    other["amount"] = json!(201);
    let conflict = exec(&at, &json!({ "id": REFUND, "arguments": other, "operation": "job-1", "step": "x" }));
    assert_eq!((conflict.status, conflict.word().as_str()), (422, "key_conflict"));
    assert_eq!(effects(&sandbox, "a"), 4);
    assert_eq!(served.stop(), 0);
}

#[test]
fn keys_mean_the_same_whichever_way_they_come() {
    let dir = Dir::new();
    let served = serve(&dir);
    let (at, sandbox) = (at(&served), served.sandbox().to_owned());
    let args = ["payment=pay_demo_k", "amount=200", "order_id=k"];
    let mut call = vec!["call", served.endpoint(), "payments_refunds_create", "--json", "--key", "k-1"];
    call.extend(args.iter().flat_map(|a| ["--arg", a]));
    let called = dir.run(&call).expect(0).json();
    let done = exec(&at, &json!({ "id": REFUND, "arguments": refund("k"), "key": "k-1" })).json();
    assert_eq!(done["operation"]["id"], called["operation"]["id"]);
    let body = json!({ "id": REFUND, "arguments": refund("k") }).to_string();
    let by_header = ask(&at, "POST", "/api/v1/exec", &[JSON, ("idempotency-key", "\"k-1\"")], &body);
    assert_eq!(by_header.json()["operation"]["id"], called["operation"]["id"]);
    let id = called["operation"]["id"].as_str().unwrap();
    let by_id = exec(&at, &json!({ "id": REFUND, "arguments": refund("k"), "key": id })).json();
    assert_eq!(by_id["operation"]["replayed"], true);
    assert_eq!(effects(&sandbox, "k"), 1);
    // Without any key the tool's own policy holds: the same again at once is a twin, and nothing ran.
    let bare = json!({ "id": REFUND, "arguments": refund("t") });
    assert_eq!(exec(&at, &bare).status, 200);
    let twin = exec(&at, &bare);
    assert_eq!((twin.status, twin.word().as_str()), (409, "twin"), "{}", twin.body);
    assert_eq!(effects(&sandbox, "t"), 1);
    // The operator's own shell has a scope of its own.
    let shell = dir
        .run(&["exec", REFUND, "--json", "--key", "k-1", "--body", &refund("k").to_string()])
        .expect(0)
        .json();
    assert_ne!(shell["operation"]["id"], called["operation"]["id"]);
    assert_eq!(served.stop(), 0);
}

#[test]
fn it_is_shown_what_would_be_sent_and_nothing_is() {
    let dir = Dir::new();
    let served = serve(&dir);
    let (at, sandbox) = (at(&served), served.sandbox().to_owned());
    let dry =
        exec(&at, &json!({ "id": REFUND, "arguments": refund("dry"), "operation": "o", "dryRun": true }));
    assert_eq!((dry.status, &dry.json()["outcome"]), (200, &json!("dry_run")), "{}", dry.body);
    assert!(dry.json()["wouldSend"]["summary"].as_str().unwrap().starts_with("POST "));
    // How the account is marked and how it recovers is for operators alone.
    let members = |answer: &Value| -> Vec<String> {
        answer["wouldSend"]["request"].as_object().unwrap().keys().cloned().collect()
    };
    let hidden = ["credential", "policy", "lookup", "conflict", "account"];
    let shown = members(&dry.json());
    assert!(shown.contains(&"url".into()) && shown.contains(&"body".into()), "{shown:?}");
    assert!(!shown.iter().any(|m| hidden.contains(&m.as_str())), "{shown:?}");
    let shell = dir
        .run(&["exec", REFUND, "--dry-run", "--json", "--body", &refund("dry").to_string()])
        .expect(0)
        .json();
    assert!(members(&shell).contains(&"policy".into()), "{shell}");
    // A method that reads asks nobody either.
    let read = exec(
        &at,
        &json!({ "id": "payments.payments.get", "arguments": { "id": "pay_demo" }, "dryRun": true }),
    );
    assert!(
        read.json()["wouldSend"]["summary"].as_str().unwrap().ends_with("/v1/payments/pay_demo"),
        "{}",
        read.body
    );
    let (_, counted) = common::http(&sandbox, "GET", "/_sandbox/effects", "");
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!((&counted["total"], &counted["received"]), (&json!(0), &json!(0)), "{counted}");
    let asked = exec(&at, &json!({ "id": "payments.payments.get", "arguments": { "id": "pay_demo" } }));
    assert_eq!(asked.json()["isError"], false, "{}", asked.body);
    let described = ask(&at, "GET", "/api/openapi.json", &[], "").json();
    assert_eq!(described["openapi"], "3.1.0");
    assert!(described["paths"]["/api/v1/exec"]["post"].is_object());
    assert_eq!(ask(&at, "GET", "/api/openapi.json", &[("host", "evil.example.com")], "").status, 403);
    assert_eq!(served.stop(), 0);
}

#[test]
fn with_api_keys_an_execution_is_its_owners() {
    let dir = Dir::new();
    dir.write("counterfoil.toml", "[auth]\nmode = \"api-key\"\n[sandbox]\nlisten = \"127.0.0.1:0\"\n[server]\nlisten = \"127.0.0.1:0\"\n");
    let key_of = |principal: &str| {
        let made = dir.run(&["api-keys", "create", "--principal", principal, "--json"]).expect(0).json();
        (made["key"].as_str().unwrap().to_owned(), made["id"].as_str().unwrap().to_owned())
    };
    let (ann, _) = key_of("ann");
    let (bob, bobs) = key_of("bob");
    let served = dir.serve(&[]);
    let (at, sandbox) = (at(&served), served.sandbox().to_owned());
    let body = json!({ "id": REFUND, "arguments": refund("own"), "operation": "job" }).to_string();
    let as_whom = |key: &str| {
        let bearer = format!("Bearer {key}");
        ask(&at, "POST", "/api/v1/exec", &[JSON, ("authorization", &bearer)], &body)
    };
    for headers in [
        vec![JSON],
        vec![JSON, ("authorization", "Bearer cfk_wrong")],
        vec![JSON, ("authorization", "Basic eDp5")],
    ] {
        let refused = ask(&at, "POST", "/api/v1/exec", &headers, &body);
        assert_eq!((refused.status, refused.word().as_str()), (401, "unauthorized"), "{}", refused.body);
        assert!(refused.header("www-authenticate").is_some() && refused.body.contains("Nothing ran"));
    }
    assert_eq!(effects(&sandbox, "own"), 0);
    let anns = as_whom(&ann).json();
    assert_eq!(as_whom(&ann).json()["operation"]["id"], anns["operation"]["id"]);
    assert_eq!(effects(&sandbox, "own"), 1);
    // The same run's name is another run for somebody else.
    let other = as_whom(&bob).json();
    assert_ne!(other["operation"]["id"], anns["operation"]["id"]);
    assert_eq!(effects(&sandbox, "own"), 2);
    // Another's operation is as unknown as none of that age: the same words, but for the id.
    let bearer = format!("Bearer {bob}");
    let by_id = |id: &str| {
        let body = json!({ "id": REFUND, "arguments": refund("own"), "key": id }).to_string();
        let asked = ask(&at, "POST", "/api/v1/exec", &[JSON, ("authorization", &bearer)], &body);
        (asked.status, asked.header("retry-after").map(str::to_owned), asked.body.replace(id, "ID"))
    };
    let theirs = anns["operation"]["id"].as_str().unwrap();
    let (same_age, end) = theirs.split_at(theirs.len() - 4);
    let nobodys = format!("{same_age}{}", if end == "0000" { "1111" } else { "0000" });
    let foreign = by_id(theirs);
    assert_eq!(foreign, by_id(&nobodys));
    assert_eq!(foreign.0, 503, "{foreign:?}");
    dir.run(&["api-keys", "revoke", &bobs]).expect(0);
    assert_eq!(as_whom(&bob).status, 401);
    assert_eq!(served.stop(), 0);
}

#[test]
fn outcomes_have_their_statuses() {
    let dir = Dir::new();
    dir.write(
        "counterfoil.toml",
        "[sandbox]\nlisten = \"127.0.0.1:0\"\n[server]\nlisten = \"127.0.0.1:0\"\n[defaults]\ninline_limit = \"1s\"\nleg = \"1s\"\n[tools.\"payments.refunds.create\"]\nrecovery = \"none\"\nsend_timeout = \"500ms\"\n[tools.\"mail.messages.send\"]\nunkeyed = \"reject\"\n[tools.\"payments.payments.create\"]\napproval = \"always\"\n",
    );
    let served = dir.serve(&[]);
    let (at, sandbox) = (at(&served), served.sandbox().to_owned());
    // Nothing is known of the provider, and its reply is lost.
    arm(&sandbox, r#"{"on":"POST /v1/refunds","do":"apply_then_cut","times":1}"#);
    let doubt = exec(&at, &json!({ "id": REFUND, "arguments": refund("doubt"), "operation": "o" }));
    assert_eq!((doubt.status, doubt.word().as_str()), (409, "in_doubt"), "{}", doubt.body);
    assert_eq!(doubt.header("retry-after"), None);
    let again = exec(&at, &json!({ "id": REFUND, "arguments": refund("doubt"), "operation": "o" }));
    assert_eq!(again.word(), "in_doubt");
    assert_eq!(effects(&sandbox, "doubt"), 1);
    let mail = json!({ "to": "a@example.com", "subject": "s", "body": "t" });
    let bare = exec(&at, &json!({ "id": "mail.messages.send", "arguments": mail }));
    assert_eq!((bare.status, bare.word().as_str()), (400, "key_required"), "{}", bare.body);
    let waits = exec(
        &at,
        &json!({ "id": "payments.payments.create", "arguments": { "amount": 1, "currency": "EUR" }, "operation": "o" }),
    );
    assert_eq!((waits.status, waits.word().as_str()), (409, "approval_required"), "{}", waits.body);
    let gone = exec(
        &at,
        &json!({ "id": REFUND, "arguments": refund("gone"), "key": "op_01JDZZZZZZZZZZZZZZZZZZZZZZ" }),
    );
    assert_eq!((gone.status, gone.word().as_str()), (410, "key_expired"), "{}", gone.body);
    // What takes longer than a leg goes on, and the same again gets its result.
    arm(&sandbox, r#"{"on":"POST /v1/messages","do":"delay","delay_ms":2500,"times":1}"#);
    let slow = json!({ "id": "mail.messages.send", "arguments": mail, "operation": "slow" });
    let runs = exec(&at, &slow);
    if runs.status != 200 {
        assert_eq!((runs.status, runs.word().as_str()), (409, "still_running"), "{}", runs.body);
        assert!(runs.header("retry-after").is_some_and(|s| s.parse::<u64>().unwrap() >= 1));
    }
    let mut last = runs;
    for _ in 0..20 {
        if last.status == 200 {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
        last = exec(&at, &slow);
    }
    assert_eq!(last.json()["isError"], false, "{}", last.body);
    assert_eq!(served.stop(), 0);
}

#[test]
fn whoever_leaves_is_answered_when_it_comes_again() {
    let dir = Dir::new();
    let served = serve(&dir);
    let (at, sandbox) = (at(&served), served.sandbox().to_owned());
    arm(&sandbox, r#"{"on":"POST /v1/refunds","do":"delay","delay_ms":700,"times":1}"#);
    let body = json!({ "id": REFUND, "arguments": refund("left"), "operation": "o" }).to_string();
    let mut s = TcpStream::connect(&at).unwrap();
    write!(s, "POST /api/v1/exec HTTP/1.1\r\nhost: {at}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(s);
    std::thread::sleep(Duration::from_millis(1500));
    let ops = dir.run(&["ops", "list", "--json"]).expect(0).json();
    let op = &ops["operations"][0];
    assert_eq!((&op["state"], &op["delivery"]), (&json!("completed"), &json!("undelivered")), "{op}");
    let again = ask(&at, "POST", "/api/v1/exec", &[JSON], &body).json();
    assert_eq!(again["operation"]["id"], op["id"]);
    // Deliveries are written behind.
    let begun = std::time::Instant::now();
    loop {
        let op = dir.run(&["ops", "list", "--json"]).expect(0).json()["operations"][0].clone();
        if op["delivery"] == "written" {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{op}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(effects(&sandbox, "left"), 1);
    assert_eq!(served.stop(), 0);
}
