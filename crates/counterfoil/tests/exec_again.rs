//! Whether the very same may be sent again: exit codes, statuses, `Retry-After` and words say so only where that is no second
//! effect, with a key and without one. And when, and what it takes of limits.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::ask::{REFUND, at, exec, refund};
use common::{Dir, arm, effects};
use serde_json::json;
use std::time::{Duration, Instant};

/// Every call is an operation of its own, and none waits long.
const NEW: &str = "[sandbox]\nlisten = \"127.0.0.1:0\"\n[server]\nlisten = \"127.0.0.1:0\"\n[defaults]\ninline_limit = \"1s\"\nleg = \"1s\"\n[tools.\"payments.refunds.create\"]\nunkeyed = \"new\"\nsend_timeout = \"900ms\"\ntimeout = \"1s\"\n";

/// The provider takes so long for its next refund that nobody waits for it.
fn slow(sandbox: &str) {
    arm(sandbox, r#"{"on":"POST /v1/refunds","do":"delay","delay_ms":4000,"times":1}"#);
}

/// Waits until there are so many effects, and a while longer.
fn settled(sandbox: &str, order: &str, effects_wanted: u64) {
    let begun = Instant::now();
    while effects(sandbox, order) != effects_wanted {
        assert!(begun.elapsed() < Duration::from_secs(30), "{order}: {}", effects(sandbox, order));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn from_the_shell_only_a_key_makes_what_still_runs_safe_to_repeat() {
    let dir = Dir::new();
    dir.write("counterfoil.toml", NEW);
    let served = dir.serve(&[]);
    let sandbox = served.sandbox().to_owned();
    for (order, key, code) in [("bare", None, 3), ("keyed", Some("k-1"), 5)] {
        slow(&sandbox);
        let body = refund(order).to_string();
        let mut args = vec!["exec", REFUND, "--json", "--body", &body];
        args.extend(key.iter().flat_map(|k| ["--key", k]));
        let told = dir.run(&args).expect(code).json();
        assert_eq!(told["error"]["kind"], "still_running", "{told}");
        // Without one there is a key in the answer, and with that it is the same operation.
        let again = key.unwrap_or_else(|| told["error"]["retryKey"].as_str().unwrap());
        settled(&sandbox, order, 1);
        let begun = Instant::now();
        let last = loop {
            let ran = dir.run(&["exec", REFUND, "--json", "--body", &body, "--key", again]);
            if ran.code == 0 || begun.elapsed() > Duration::from_secs(30) {
                break ran.expect(0).json();
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        assert_eq!(last["operation"]["id"], told["error"]["operationId"], "{last}");
        assert_eq!(effects(&sandbox, order), 1);
    }
    assert_eq!(served.stop(), 0);
}

#[test]
fn over_http_nobody_is_invited_to_repeat_what_has_no_key() {
    let dir = Dir::new();
    dir.write("counterfoil.toml", NEW);
    let served = dir.serve(&[]);
    let (at, sandbox) = (at(&served), served.sandbox().to_owned());
    for (order, key, comes_again) in [("bare", None, false), ("keyed", Some("k-1"), true)] {
        slow(&sandbox);
        let body = json!({ "id": REFUND, "arguments": refund(order), "key": key });
        let told = exec(&at, &body);
        assert_eq!((told.status, told.word().as_str()), (409, "still_running"), "{}", told.body);
        assert_eq!(told.header("retry-after").is_some(), comes_again, "{}", told.body);
        assert!(
            told.json()["error"]["retryKey"].is_string() && told.json()["error"]["retryAfterMs"].is_u64()
        );
        settled(&sandbox, order, 1);
    }
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_limit_says_when_there_is_room_and_a_dry_run_what_it_takes() {
    let dir = Dir::new();
    dir.write(
        "counterfoil.toml",
        "[sandbox]\nlisten = \"127.0.0.1:0\"\n[server]\nlisten = \"127.0.0.1:0\"\n[limits.\"payments.payments.get\"]\nrate = \"1/h\"\nconcurrency = 2\n[limits.\"payments.refunds.create\"]\nrate = \"1/2h\"\nbudget = { argument = \"amount\", most = 300, period = \"month\" }\n",
    );
    let served = dir.serve(&[]);
    let get = ["exec", "payments.payments.get", "--param", "id=pay_demo"];
    let body = refund("lim").to_string();
    let pay = ["exec", REFUND, "--body", &body];
    let dry = |args: &[&str]| dir.run(&[args, &["--dry-run"]].concat()).expect(0).stdout;
    let shown = dry(&get);
    for line in [
        "needs: 1 of calls of payments.payments.get: at most 1 in 1 hour\n",
        "needs: 1 of calls of payments.payments.get: at most 2 at a time\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    assert!(
        dry(&pay).contains("needs: 200 of the sum of amount of payments.refunds.create: at most 300 in a")
    );
    let over_http = exec(
        &at(&served),
        &json!({ "id": "payments.payments.get", "arguments": { "id": "pay_demo" }, "dryRun": true }),
    );
    assert_eq!(over_http.json()["needs"].as_array().unwrap().len(), 2, "{}", over_http.body);
    for (args, soonest) in [(&get[..], "again: in 60 min"), (&pay, "again: in 120 min")] {
        dir.run(args).expect(0);
        let limited = dir.run(args).expect(5).stdout;
        assert!(limited.starts_with("limited ") && limited.contains("retryAfterMs "), "{limited}");
        // A budget's end is later than that of its rate.
        assert!(limited.contains(soonest) || limited.contains(" d (retryAfterMs"), "{limited}");
    }
    // A model's hosts may show it the text alone.
    let called = dir
        .run(&["call", served.endpoint(), "payments_refunds_create", "--args", &refund("lim").to_string()])
        .expect(5);
    let ms = called.stdout.split(" retryAfterMs: ").nth(1).expect(&called.stdout);
    assert!(ms.split_whitespace().next().unwrap().parse::<u64>().unwrap() > 0, "{called:?}");
    assert!(called.stdout.contains("again: in "), "{called:?}");
    assert_eq!(served.stop(), 0);
}
