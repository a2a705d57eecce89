#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::{Value, json};
use std::time::Duration;

const META: &str = "io.modelcontextprotocol/protocolVersion";

fn table() -> Table {
    Table::new("front".into(), 64, 1 << 20)
}

fn line(value: &Value) -> Bytes {
    value.to_string().into()
}

fn request(id: impl Into<Value>, method: &str, params: Value) -> Bytes {
    line(&json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params }))
}

fn answer(id: impl Into<Value>, result: Value) -> Bytes {
    line(&json!({ "jsonrpc": "2.0", "id": id.into(), "result": result }))
}

fn note(method: &str, params: Value) -> Bytes {
    line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

/// What goes to the backend.
fn ask(table: &mut Table, line: Bytes) -> Bytes {
    match table.asked(line, Instant::now()) {
        Verdict::Forward(line) | Verdict::Pass(line) | Verdict::Now(line) => line,
        Verdict::Answer(answer) => panic!("{answer:?}"),
    }
}

fn read(line: &Bytes) -> Value {
    serde_json::from_slice(line).unwrap()
}

fn open(table: &mut Table, version: &str) {
    ask(table, request("i", "initialize", json!({ "protocolVersion": version, "capabilities": {} })));
    assert!(table.said(&answer("i", json!({ "protocolVersion": version }))));
    ask(table, note("notifications/initialized", json!({})));
}

#[test]
fn what_has_no_answer_is_sent_again_in_order_and_what_has_is_not() {
    let mut t = table();
    let listen = json!({ "_meta": { META: "2026-07-28" }, "notifications": {} });
    ask(&mut t, request(1, "tools/list", json!({})));
    let named = ask(&mut t, request(2, "tools/call", json!({ "name": "x", "arguments": { "n": 1 } })));
    ask(&mut t, request(3, "subscriptions/listen", listen));
    ask(&mut t, request("4", "tools/list", json!({})));
    ask(&mut t, request(5, "tools/list", json!({})));
    assert!(t.said(&answer(1, json!({}))));
    ask(&mut t, note("notifications/cancelled", json!({ "requestId": 5 })));
    assert!(!t.said(&answer(5, json!({}))), "a late answer to a cancelled request");
    assert!(t.said(&line(&json!({ "jsonrpc": "2.0", "id": 6, "error": { "code": -32602, "message": "" } }))));
    let acknowledged = note(
        "notifications/subscriptions/acknowledged",
        json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": 3 }, "notifications": {} }),
    );
    assert!(t.said(&acknowledged));
    let again = t.resume();
    assert_eq!(
        again.iter().map(|l| read(l)["id"].clone()).collect::<Vec<_>>(),
        [json!(2), json!(3), json!("4")]
    );
    assert_eq!(again[0], named, "the call keeps its name");
    assert!(!t.said(&acknowledged), "the second acknowledgement");
    assert!(t.is_owed());
    for id in [json!(2), json!("4")] {
        assert!(t.said(&answer(id, json!({}))));
    }
    assert!(!t.is_owed(), "a listen stream has its answer when it ends");
    assert!(t.said(&answer(3, json!({}))));
    assert!(t.resume().is_empty() && t.size == 0);
}

#[test]
fn calls_are_named_each_by_itself_and_nothing_else_changes() {
    let mut t = table();
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x", "arguments":{"n":1.0e0},"_meta":{"a":"b"}},"x":[]}"#;
    let named = ask(&mut t, Bytes::from_static(text.as_bytes()));
    let name = read(&named)["params"]["_meta"][META_CALL].as_str().unwrap().to_owned();
    assert!(name.starts_with("front-"), "{name}");
    let with = format!(r#""_meta":{{"a":"b","{META_CALL}":"{name}"}}"#);
    assert_eq!(std::str::from_utf8(&named).unwrap(), text.replace(r#""_meta":{"a":"b"}"#, &with));
    let other = ask(&mut t, request(2, "tools/call", json!({ "name": "x" })));
    assert_ne!(read(&other)["params"]["_meta"][META_CALL], name);
    // Two calls of a client are never one, whatever it calls them.
    let own = json!({ "name": "x", "_meta": { META_CALL: "own" } });
    let names = [3, 4].map(|id| {
        let named = read(&ask(&mut t, request(id, "tools/call", own.clone())));
        named["params"]["_meta"][META_CALL].as_str().unwrap().to_owned()
    });
    assert!(names[0] != names[1] && names.iter().all(|n| n.starts_with("front-")), "{names:?}");
    // What can't be named goes as it is: it is the backend's to refuse.
    let line = request(5, "tools/call", json!({ "name": "x", "_meta": 7 }));
    assert_eq!(ask(&mut t, line.clone()), line);
}

#[test]
fn an_id_is_used_once_at_a_time() {
    let mut t = table();
    ask(&mut t, request(1, "tools/list", json!({})));
    let Verdict::Answer(refused) = t.asked(request(1, "tools/list", json!({})), Instant::now()) else {
        panic!("forwarded");
    };
    assert_eq!((&read(&refused)["id"], &read(&refused)["error"]["code"]), (&json!(1), &json!(-32600)));
    assert_eq!(t.resume().len(), 1);
    ask(&mut t, request("1", "tools/list", json!({})));
}

#[test]
fn a_session_is_opened_again_as_it_was() {
    let mut t = table();
    open(&mut t, "2025-11-25");
    let state = [
        ("logging/setLevel", json!({ "level": "error" })),
        ("resources/subscribe", json!({ "uri": "a" })),
        ("resources/subscribe", json!({ "uri": "b" })),
        ("resources/subscribe", json!({ "uri": "refused" })),
        ("resources/unsubscribe", json!({ "uri": "a" })),
        ("logging/setLevel", json!({ "level": "debug" })),
    ];
    for (n, (method, params)) in state.into_iter().enumerate() {
        ask(&mut t, request(n, method, params.clone()));
        let refused = json!({ "jsonrpc": "2.0", "id": n, "error": { "code": -32602, "message": "" } });
        let said = if params["uri"] == "refused" { line(&refused) } else { answer(n, json!({})) };
        assert!(t.said(&said));
    }
    ask(&mut t, request(9, "tools/list", json!({})));
    for _ in 0..2 {
        let again: Vec<Value> = t.resume().iter().map(read).collect();
        let methods: Vec<_> = again.iter().map(|m| m["method"].as_str().unwrap()).collect();
        assert_eq!(
            methods,
            [
                "initialize",
                "notifications/initialized",
                "logging/setLevel",
                "resources/subscribe",
                "tools/list"
            ]
        );
        assert_eq!(again[2]["params"]["level"], "debug");
        assert_eq!(again[3]["params"]["uri"], "b");
        // Those answers are nobody's; whatever they are.
        assert!(!t.said(&answer(again[0]["id"].clone(), json!({}))));
        assert!(!t.said(&answer(again[2]["id"].clone(), json!({}))));
        let refused =
            json!({ "jsonrpc": "2.0", "id": again[3]["id"], "error": { "code": 1, "message": "" } });
        assert!(!t.said(&line(&refused)));
    }
    assert!(t.said(&answer(9, json!({}))));
}

#[test]
fn an_initialize_without_an_answer_is_the_clients_own() {
    let mut t = table();
    ask(&mut t, request("i", "initialize", json!({ "protocolVersion": "2025-11-25" })));
    // It can't be cancelled.
    ask(&mut t, note("notifications/cancelled", json!({ "requestId": "i" })));
    let again = t.resume();
    assert_eq!(read(&again[0])["id"], "i");
    assert_eq!(again.len(), 1);
    assert!(t.said(&answer("i", json!({ "protocolVersion": "2025-11-25" }))));
}

#[test]
fn progress_never_goes_back() {
    let mut t = table();
    ask(&mut t, request(1, "tools/call", json!({ "name": "x", "_meta": { "progressToken": "p" } })));
    let progress = |n: f64| note("notifications/progress", json!({ "progressToken": "p", "progress": n }));
    assert!(t.said(&progress(1.0)) && t.said(&progress(2.0)));
    t.resume();
    assert!(!t.said(&progress(1.0)) && !t.said(&progress(2.0)) && t.said(&progress(3.0)));
    let foreign = note("notifications/progress", json!({ "progressToken": 9, "progress": 1 }));
    assert!(t.said(&foreign) && t.said(&note("notifications/tools/list_changed", json!({}))));
}

#[test]
fn a_batch_is_one_until_it_is_answered() {
    let one = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
    let batch = line(&json!([one(1), { "jsonrpc": "2.0", "method": "notifications/x" }, one(2)]));
    let mut t = table();
    open(&mut t, "2025-11-25");
    ask(&mut t, batch.clone());
    assert_eq!(t.resume().len(), 2, "it will be refused");
    let mut t = table();
    open(&mut t, "2025-03-26");
    ask(&mut t, batch.clone());
    let Verdict::Answer(_) = t.asked(line(&json!([one(2)])), Instant::now()) else { panic!("forwarded") };
    assert_eq!(t.resume().last(), Some(&line(&json!([one(1), one(2)]))), "notifications are not sent again");
    ask(&mut t, note("notifications/cancelled", json!({ "requestId": 2 })));
    assert_eq!(t.resume().last(), Some(&line(&json!([one(1)]))), "nor what was cancelled");
    assert!(t.said(&line(&json!([{ "jsonrpc": "2.0", "id": 1, "result": {} }]))));
    assert_eq!(t.resume().len(), 2);
    let call =
        |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "x" } });
    let named = read(&ask(&mut t, line(&json!([call(3), call(4)]))));
    let names = [0, 1].map(|n| named[n]["params"]["_meta"][META_CALL].as_str().unwrap().to_owned());
    assert_ne!(names[0], names[1]);
    assert!(t.said(&line(&json!([3, 4].map(|id| json!({ "jsonrpc": "2.0", "id": id, "result": {} }))))));
    for refused in [json!([]), json!((0..40).map(one).collect::<Vec<_>>()), json!(7)] {
        ask(&mut t, line(&refused));
        assert!(!t.is_owed(), "{refused}");
    }
}

#[test]
fn what_waits_too_long_is_answered() {
    let mut t = table();
    let limit = Duration::from_secs(30);
    let start = Instant::now();
    let later = |seconds| start + Duration::from_secs(seconds);
    t.asked(request(1, "tools/list", json!({})), start);
    t.asked(request(2, "tools/list", json!({})), later(20));
    // Lost ten seconds after the first was sent.
    assert!(t.expire(later(10), later(39), limit).is_empty());
    let told = t.expire(later(10), later(40), limit);
    assert_eq!(told.len(), 1);
    let told = read(&told[0]);
    assert_eq!((&told["id"], &told["error"]["data"]["kind"]), (&json!(1), &json!("unavailable")));
    // Only a key makes sure that it is the same call: without one a twin may be history, or every call new.
    let safe = |told: &Value| {
        let text = told["error"]["message"].as_str().unwrap();
        assert!(text.contains("may or may not have been carried out. "), "{text}");
        assert!(text.contains("Look before") && text.contains("idempotency key"), "{text}");
        assert!(!text.contains("same arguments"), "{text}");
    };
    safe(&told);
    assert_eq!(t.resume().len(), 1);
    let failed = t.fail_all();
    assert_eq!(failed.len(), 1);
    safe(&read(&failed[0]));
    assert!(t.resume().is_empty() && t.has_room());
}

#[test]
fn room_is_bounded_in_requests_and_bytes() {
    let mut t = table();
    for id in 0..MAX_PENDING {
        assert!(t.has_room());
        ask(&mut t, request(id, "tools/list", json!({})));
    }
    assert!(!t.has_room());
    t.said(&answer(0, json!({})));
    assert!(t.has_room());
    let mut t = table();
    ask(&mut t, request(1, "tools/list", json!({ "x": "x".repeat(1 << 20) })));
    assert!(!t.has_room());
    t.said(&answer(1, json!({})));
    assert!(t.has_room());
}

#[test]
fn what_waits_for_a_backend_is_told_once_and_in_its_place() {
    let mut t = table();
    let now = Instant::now();
    let keep = |t: &mut Table, line: Bytes| match t.asked(line, now) {
        Verdict::Pass(line) => t.hold(line, now),
        Verdict::Forward(_) | Verdict::Now(_) => {}
        Verdict::Answer(answer) => panic!("{answer:?}"),
    };
    let broken = Bytes::from_static(b"broken");
    let opening = request("i", "initialize", json!({ "protocolVersion": "2025-03-26" }));
    let initialized = note("notifications/initialized", json!({}));
    let changed = note("notifications/roots/list_changed", json!({}));
    let batch = line(&json!([{ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }]));
    keep(&mut t, broken.clone());
    keep(&mut t, opening.clone());
    keep(&mut t, initialized.clone());
    keep(&mut t, batch.clone());
    keep(&mut t, changed.clone());
    // They are for a backend that is gone.
    keep(&mut t, answer(9, json!({})));
    keep(&mut t, note("notifications/cancelled", json!({ "requestId": 7 })));
    assert!(t.is_owed());
    let expected = [broken, opening, initialized.clone(), batch.clone(), changed];
    assert_eq!(t.resume(), expected);
    assert_eq!(t.resume(), expected[1..4]);
    assert!(t.said(&answer("i", json!({ "protocolVersion": "2025-03-26" }))));
    let again = t.resume();
    assert_eq!((again.len(), &again[1], &again[2]), (3, &initialized, &batch));
    assert!(t.said(&line(&json!([{ "jsonrpc": "2.0", "id": 2, "result": {} }]))));
    assert!(!t.is_owed() && t.size == 0);
}

#[test]
fn a_batch_of_a_session_that_has_none_is_the_backends_to_refuse() {
    for said in [
        answer("i", json!({ "protocolVersion": "2025-06-18" })),
        line(&json!({ "jsonrpc": "2.0", "id": "i", "error": { "code": -32602, "message": "" } })),
    ] {
        let mut t = table();
        ask(&mut t, request("i", "initialize", json!({ "protocolVersion": "2025-03-26" })));
        ask(&mut t, line(&json!([{ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }])));
        assert!(t.said(&said));
        assert!(!t.is_owed() && t.size == 0);
    }
}

#[test]
fn lines_that_are_no_requests_take_room_too() {
    let mut t = table();
    for _ in 0..MAX_PENDING {
        assert!(t.has_room());
        t.hold(Bytes::from_static(b"x"), Instant::now());
    }
    assert!(!t.has_room());
    assert_eq!(t.resume().len(), MAX_PENDING);
    assert!(t.has_room());
}

#[test]
fn a_start_that_fails_says_that_nothing_happened() {
    let mut t = table();
    ask(&mut t, request(1, "tools/call", json!({ "name": "x" })));
    let told = t.fail_start();
    let told = read(&told[0]);
    assert_eq!((&told["id"], &told["error"]["data"]["kind"]), (&json!(1), &json!("unavailable")));
    assert!(told["error"]["message"].as_str().unwrap().contains("nothing was carried out"), "{told}");
    assert!(t.fail_start().is_empty());
}
