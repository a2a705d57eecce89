//! What servers of the protocol fall into, each against real processes: the fixture server, or the gateway with the
//! sandbox provider. Wherever both eras can fall into it, both are tried.
//!
//! Every stream here is read by `Stream::events`, which takes no line of an event id.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use counterfoil_tests::http;
use counterfoil_tests::native::Fixture;
use counterfoil_tests::stand::{AMOUNT, Class, Project, Sandbox};
use counterfoil_tests::stdio::{End, talk};
use counterfoil_tests::stream::Stream;
use counterfoil_tests::traps::{
    BOTH, ERAS, OLD, Provider, TIMEOUT, any, call, canned, line, listen, listen_old, member, old, opening,
    request, send, set_server, terminate,
};
use counterfoil_tests::wire::{self, Call, Era, LEGACY, META_ERROR, META_OPERATION, Said};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A folder whose configuration agrees with the fixture's, so that a process there shares its ledger.
fn beside_the_fixture() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("counterfoil.toml"), "[server]\nname = \"fixture\"\n").unwrap();
    folder
}

#[test]
fn a_tool_that_panics_answers_and_takes_nobody_along() {
    let fixture = Fixture::start().unwrap();
    let failed = |result: &Value| {
        assert_eq!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, "The tool failed unexpectedly. Nothing was changed; calling again is safe.");
    };
    for era in ERAS {
        for _ in 0..3 {
            let reply = call(fixture.addr, era, "trap_panic", json!({})).unwrap();
            assert_eq!(reply.status, 200, "{era:?}");
            failed(&reply.json()["result"]);
        }
        let reply = call(fixture.addr, era, "test_simple_text", json!({})).unwrap();
        assert_eq!(
            reply.json()["result"]["content"][0]["text"],
            "This is a simple text response.",
            "{era:?}"
        );
    }
    let folder = beside_the_fixture();
    let lines = [
        opening(),
        line(OLD, 1, "trap_panic", &json!({})),
        line(Era::Modern, 2, "trap_panic", &json!({})),
        line(OLD, 3, "test_simple_text", &json!({})),
    ];
    let said = talk(folder.path(), &fixture.data(), &lines, End::After(Duration::ZERO)).unwrap();
    let of = |id: u64| said.iter().find(|v| v["id"] == json!(id)).unwrap_or_else(|| panic!("{id}: {said:?}"));
    failed(&of(1)["result"]);
    failed(&of(2)["result"]);
    assert_eq!(of(3)["result"]["content"][0]["text"], "This is a simple text response.");
}

#[test]
fn a_server_over_stdio_ends_at_a_signal_while_its_input_stays_open() {
    let folder = tempfile::tempdir().unwrap();
    for signal in ["-TERM", "-INT"] {
        let mut command = std::process::Command::new(counterfoil_tests::process::fixture().unwrap());
        command.args(["--stdio", "--data"]).arg(folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{}", opening()).unwrap();
        let mut answer = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
        assert!(answer.contains("\"result\""), "{answer}");
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let begun = Instant::now();
        let ended = loop {
            match child.try_wait().unwrap() {
                Some(ended) => break Some(ended),
                None if begun.elapsed() > Duration::from_secs(10) => break None,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let _ = child.kill();
        let _ = child.wait();
        assert!(ended.is_some_and(|e| e.success()), "{signal}: {ended:?}");
        drop(input);
    }
}

#[test]
fn bad_params_are_32602() {
    let fixture = Fixture::start().unwrap();
    let bad = [
        ("tools/call", json!({})),
        ("tools/call", json!({ "name": 7 })),
        ("tools/call", json!({ "name": "nope" })),
        ("tools/call", json!({ "name": "trap_slow", "arguments": [] })),
        ("tools/list", json!({ "cursor": 7 })),
        ("tools/list", json!({ "cursor": "nope" })),
        ("resources/read", json!({})),
        ("prompts/get", json!({ "name": "nope" })),
        ("prompts/get", json!({ "name": "test_prompt_with_arguments", "arguments": {} })),
        ("completion/complete", json!({})),
    ];
    for era in ERAS {
        for (method, params) in &bad {
            let reply = send(fixture.addr, &request(fixture.addr, era, method, params)).unwrap();
            let error = &reply.json()["error"];
            assert_eq!(error["code"], -32602, "{era:?} {method} {params}: {}", reply.text());
            assert!(error["message"].as_str().unwrap().starts_with("Invalid params: "), "{error}");
            assert_eq!(reply.json()["id"], 1);
        }
    }
}

#[test]
fn bad_json_is_32700_with_a_body() {
    let fixture = Fixture::start().unwrap();
    let mut bodies: Vec<Vec<u8>> = ["", "{", "nonsense", "{'a':1}", "[1,]", "{} {}"].map(Into::into).into();
    bodies.push(b"{\"a\":\"\xff\"}".to_vec());
    for version in [wire::VERSION, LEGACY, "2025-03-26"] {
        for body in &bodies {
            let head =
                any(fixture.addr, "POST", &" ".repeat(body.len()), &[("MCP-Protocol-Version", version)]);
            let bytes = [&head[..head.len() - body.len()], body].concat();
            let reply = send(fixture.addr, &bytes).unwrap();
            let shown = String::from_utf8_lossy(body);
            assert_eq!(reply.status, 400, "{version} {shown:?}");
            assert_eq!(reply.header("content-type"), Some("application/json"), "{version} {shown:?}");
            let value = reply.json();
            assert_eq!(value["jsonrpc"], "2.0", "{version} {shown:?}");
            assert_eq!(value["error"]["code"], -32700, "{version} {shown:?}: {value}");
            assert!(value["error"]["message"].as_str().unwrap().starts_with("Parse error: "), "{value}");
            assert!(value.get("id").is_none(), "{value}");
        }
    }
    let folder = beside_the_fixture();
    let lines = ["nonsense".into(), opening(), "{".into(), line(OLD, 1, "test_simple_text", &json!({}))];
    let said = talk(folder.path(), &fixture.data(), &lines, End::Answered(1)).unwrap();
    let refused = said.iter().filter(|v| v["error"]["code"] == -32700).count();
    assert_eq!(refused, 2, "{said:?}");
}

#[test]
fn the_origin_is_checked_without_any_setting() {
    let mut project = Project::empty().unwrap();
    project.serve = vec!["--sandbox-listen".into(), "127.0.0.1:0".into()];
    let gateway = project.gateway(None).unwrap();
    let addr = gateway.addr;
    let own = format!("http://{addr}");
    for foreign in
        ["https://evil.example", "http://127.0.0.1.evil.example", "null", "file://", "http://localhost.evil"]
    {
        let origin = [("Origin", foreign)];
        let modern = wire::post(
            addr,
            "1",
            "tools/list",
            None,
            &json!({ "_meta": wire::meta(&json!({})) }),
            BOTH,
            &origin,
        );
        let handshake = old(addr, &opening(), &origin);
        let stream = any(addr, "GET", "", &[("MCP-Protocol-Version", LEGACY), ("Origin", foreign)]);
        let asked =
            any(addr, "OPTIONS", "", &[("Access-Control-Request-Method", "POST"), ("Origin", foreign)]);
        for bytes in [modern, handshake, stream, asked] {
            let reply = send(addr, &bytes).unwrap();
            assert_eq!(reply.status, 403, "{foreign}: {}", reply.text());
            assert!(reply.header("access-control-allow-origin").is_none(), "{foreign}");
        }
    }
    // A page that this machine serves on that very address is let through.
    let reply = send(addr, &old(addr, &opening(), &[("Origin", &own)])).unwrap();
    assert_eq!((reply.status, &reply.json()["result"]["protocolVersion"]), (200, &json!(LEGACY)));
}

#[test]
fn nothing_is_asked_of_a_client_that_did_not_say_it_can_be_asked() {
    let fixture = Fixture::start().unwrap();
    let addr = fixture.addr;
    let mut beside = listen_old(addr).unwrap();
    let mut changes = listen(addr).unwrap();
    for era in ERAS {
        let reply = call(addr, era, "test_missing_capability", json!({})).unwrap();
        let error = &reply.json()["error"];
        assert_eq!(error["code"], -32021, "{}", reply.text());
        assert_eq!(error["data"]["requiredCapabilities"], json!({ "sampling": {} }));
        assert_eq!(reply.status, if era == Era::Modern { 400 } else { 200 });
        assert_eq!(reply.header("content-type"), Some("application/json"));
        // Tools that tell something on their way, or might be tempted to ask.
        for tool in ["test_streaming_elicitation", "test_tool_with_logging", "test_tool_with_progress"] {
            let mut asking = Call::new(tool, json!({})).of(era);
            asking.meta = json!({ "progressToken": "t", "io.modelcontextprotocol/logLevel": "debug" });
            let mut stream = Stream::open(addr, &asking.bytes(addr)).unwrap();
            stream.whole(TIMEOUT).unwrap();
            let messages = match stream.header("content-type").as_deref() {
                Some("text/event-stream") => stream.events().unwrap(),
                _ => vec![serde_json::from_str(&stream.body()).unwrap()],
            };
            let requests = messages.iter().filter(|m| m.get("method").is_some() && m.get("id").is_some());
            assert_eq!(requests.count(), 0, "{era:?} {tool}: {messages:?}");
            // One that can't work without asking says so, and that nothing ran.
            let ends = |m: &&Value| m.get("result").is_some() || m["error"]["code"] == -32021;
            assert_eq!(messages.iter().filter(ends).count(), 1, "{tool}: {messages:?}");
        }
    }
    // A change, so that something did arrive on the streams that stay open: it comes behind whatever came before.
    call(addr, Era::Modern, "test_trigger_tool_change", json!({})).unwrap();
    for stream in [&mut beside, &mut changes] {
        let changed = |e: &Value| e["method"] == "notifications/tools/list_changed";
        stream.until(TIMEOUT, |s| s.events().is_ok_and(|all| all.iter().any(changed))).unwrap();
        assert!(stream.events().unwrap().iter().all(|e| e.get("id").is_none()), "{}", stream.body());
    }
}

#[test]
fn bytes_leave_before_a_slow_result() {
    let fixture = Fixture::start().unwrap();
    let addr = fixture.addr;
    let slow = |era| {
        let bytes = Call::new("trap_slow", json!({ "ms": 4000 })).of(era).bytes(addr);
        let mut stream = Stream::open(addr, &bytes).unwrap();
        let first = stream.until(TIMEOUT, |s| s.body().starts_with(":\n\n")).unwrap();
        assert_eq!(stream.header("content-type").as_deref(), Some("text/event-stream"), "{era:?}");
        let last = stream.whole(TIMEOUT).unwrap();
        assert!(first < Duration::from_millis(2800), "{era:?}: the first bytes came after {first:?}");
        assert!(last >= Duration::from_secs(4), "{era:?}: the result came after {last:?}");
        let events = stream.events().unwrap();
        assert_eq!(events.len(), 1, "{era:?}");
        assert_eq!(events[0]["result"]["content"][0]["text"], "slept 4000 ms", "{era:?}");
    };
    std::thread::scope(|scope| {
        for era in ERAS {
            scope.spawn(move || slow(era));
        }
    });
    // A client that takes no stream gets none, and its result all the same.
    let mut json_only = Call::new("trap_slow", json!({ "ms": 2500 }));
    json_only.accept = "application/json";
    let reply = send(addr, &json_only.bytes(addr)).unwrap();
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.json()["result"]["content"][0]["text"], "slept 2500 ms");
}

#[test]
fn streams_that_listen_end_in_order_on_sigterm() {
    let mut fixture = Fixture::start().unwrap();
    let (mut changes, mut beside) = (listen(fixture.addr).unwrap(), listen_old(fixture.addr).unwrap());
    let began = Instant::now();
    terminate(fixture.process.pid()).unwrap();
    changes.whole(TIMEOUT).unwrap();
    beside.whole(TIMEOUT).unwrap();
    let events = changes.events().unwrap();
    assert_eq!(events.len(), 2, "{events:?}");
    let last = &events[1];
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(1), &json!("complete")), "{last}");
    assert_eq!(last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1, "{last}");
    assert_eq!(beside.events().unwrap(), Vec::<Value>::new());
    let status = fixture.process.wait(TIMEOUT).expect("it ends");
    assert!(status.success(), "{status}\n{}", fixture.process.said());
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
}

/// How the provider answers the call that is in flight when the server is told to end.
const FAULTS: [(&str, &str); 2] = [("slow", "delay"), ("hang", "apply_then_hang")];

fn arm(sandbox: &Sandbox, fault: &str, delay_ms: u64) {
    let mut rule = json!({ "on": Class::Key.on(), "do": fault, "times": 1 });
    if fault == "delay" {
        rule["delay_ms"] = json!(delay_ms);
    }
    sandbox.rule(&rule).unwrap();
}

/// Waits until a call is being worked on, and its provider has had the time to be asked.
fn in_flight(addr: SocketAddr) {
    let until = Instant::now() + TIMEOUT;
    loop {
        let metrics = http::json(addr, "GET", "/metrics", None).unwrap().text();
        let running = metrics.lines().any(|l| l == "counterfoil_calls_in_flight 1");
        if running {
            // From here it is a matter of the first write and a connection on loopback.
            std::thread::sleep(Duration::from_millis(100));
            return;
        }
        assert!(Instant::now() < until, "no call is in flight:\n{metrics}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_call_in_flight_at_sigterm_is_answered_or_remembered() {
    let provider = Provider::start().unwrap();
    let sandbox = &provider.sandbox;
    let mut project = Project::with_classes(sandbox.addr).unwrap();
    for era in ERAS {
        for (name, fault) in FAULTS {
            let order = format!("term{name}{}", if era == Era::Modern { "new" } else { "old" });
            let asking = Call::new(&Class::Key.tool(), Class::Key.arguments(&order)).of(era);
            arm(sandbox, fault, 800);
            let mut gateway = project.gateway(None).unwrap();
            let mut stream = Stream::open(gateway.addr, &asking.bytes(gateway.addr)).unwrap();
            in_flight(gateway.addr);
            terminate(gateway.process.pid()).unwrap();
            let answered = stream.whole(Duration::from_secs(40)).is_ok();
            let status = gateway.process.wait(Duration::from_secs(40)).expect("it ends");
            assert!(status.success(), "{order}: {status}\n{}", project.gateway_said());
            // A provider that answers within the time that calls have to end is waited for.
            assert!(answered || fault != "delay", "{order}: no answer, and the provider gave one");
            let again = project.gateway(None).unwrap();
            let mut keyed = asking.clone();
            let first = if answered {
                let body = match stream.header("content-type").as_deref() {
                    Some("text/event-stream") => stream.events().unwrap().last().unwrap().to_string(),
                    _ => stream.body(),
                };
                let value: Value = serde_json::from_str(&body).unwrap();
                assert_ne!(value["result"]["isError"], true, "{order}: {value}");
                let id = value["result"]["_meta"][META_OPERATION]["id"].as_str().unwrap().to_owned();
                keyed.params_key = Some(id.clone());
                Some(id)
            } else {
                None
            };
            let said = wire::call(again.addr, TIMEOUT, &keyed);
            let Said::Result { operation, is_error: false, .. } = &said else {
                panic!("{order}: {}", said.brief())
            };
            assert_eq!(operation["replayed"], true, "{order}: {operation}");
            assert!(first.is_none_or(|id| operation["id"] == json!(id)), "{order}: {operation}");
            assert_eq!(sandbox.count(Class::Key, &order).unwrap(), (1, AMOUNT), "{order}");
            sandbox.disarm().unwrap();
            terminate(again.process.pid()).unwrap();
        }
    }
}

#[test]
fn a_call_in_flight_at_the_end_of_input_is_answered_or_remembered() {
    let provider = Provider::start().unwrap();
    let sandbox = &provider.sandbox;
    let project = Project::with_classes(sandbox.addr).unwrap();
    for era in ERAS {
        for (name, fault) in FAULTS {
            let order = format!("eof{name}{}", if era == Era::Modern { "new" } else { "old" });
            let say = |id: u64, arguments: &Value, end: End| {
                let lines = [opening(), line(era, id, &Class::Key.tool(), arguments)];
                let all = talk(project.path(), &project.data(), &lines, end).unwrap();
                all.into_iter().find(|v| v["id"] == id)
            };
            let again = |arguments: &Value| {
                say(2, arguments, End::Answered(2)).unwrap_or_else(|| panic!("{order}: no answer"))
            };
            arm(sandbox, fault, 300);
            let mut arguments = Class::Key.arguments(&order);
            let first = say(1, &arguments, End::After(Duration::ZERO));
            sandbox.disarm().unwrap();
            let mut second = again(&arguments);
            let told = second["result"]["_meta"][META_ERROR].clone();
            if let Some(first) = &first {
                // It was written, so the same call is the twin of one that was delivered.
                assert_ne!(first["result"]["isError"], true, "{order}: {first}");
                assert_eq!(told["kind"], "twin", "{order}: {second}");
            }
            if told["kind"] == "twin" {
                arguments["idempotency_key"] = told["retryKey"].clone();
                second = again(&arguments);
            }
            assert_ne!(second["result"]["isError"], true, "{order}: {second}");
            assert_eq!(second["result"]["_meta"][META_OPERATION]["replayed"], true, "{order}: {second}");
            if let Some(first) = &first {
                assert_eq!(first["result"]["content"], second["result"]["content"], "{order}");
            }
            assert_eq!(sandbox.count(Class::Key, &order).unwrap(), (1, AMOUNT), "{order}");
        }
    }
}

#[test]
fn a_session_that_was_ended_is_gone_for_good_and_nobody_elses_ever_was() {
    let provider = Provider::start().unwrap();
    let mut project =
        Project::with_classes_and(provider.sandbox.addr, "\n[auth]\nmode = \"api-key\"\n").unwrap();
    set_server(&project, "legacy_sessions = \"always\"\n").unwrap();
    let gateway = project.gateway(None).unwrap();
    let key = |principal: &str| {
        let (code, made) = project.ask(&["api-keys", "create", "--principal", principal]).unwrap();
        assert_eq!(code, 0, "{made}");
        format!("Bearer {}", made["key"].as_str().unwrap())
    };
    let (alice, bob) = (key("alice"), key("bob"));
    let addr = gateway.addr;
    let open = |who: &str| {
        let reply = send(addr, &old(addr, &opening(), &[("Authorization", who)])).unwrap();
        reply.header("mcp-session-id").expect("a session").to_owned()
    };
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let status = |who: &str, session: &str, verb: &str| {
        let more = [("Authorization", who), ("Mcp-Session-Id", session), ("MCP-Protocol-Version", LEGACY)];
        let reply = send(addr, &any(addr, verb, if verb == "POST" { &list } else { "" }, &more)).unwrap();
        (reply.status, reply.text())
    };
    let (ended, kept) = (open(&alice), open(&alice));
    let never = "0".repeat(64);
    assert_eq!(status(&alice, &ended, "POST").0, 200);
    assert_eq!(status(&alice, &ended, "DELETE"), (204, String::new()));
    let check = || {
        let gone = status(&alice, &never, "POST");
        assert_eq!(gone.0, 404);
        for (who, session) in [(&alice, &ended), (&bob, &ended), (&bob, &kept), (&bob, &never)] {
            // To the byte as one that never was.
            assert_eq!(status(who, session, "POST"), gone);
            assert_eq!(status(who, session, "GET").0, 404);
            assert_eq!(status(who, session, "DELETE").0, 404);
        }
        assert_eq!(status(&alice, &kept, "POST").0, 200);
    };
    check();
    drop(gateway);
    let _again = project.gateway(None).unwrap();
    check();
}

/// What nobody knows, with numbers that a parser would write differently.
const ODD: &str = r#"{"id":"re_1","object":"hologram","amount":1.50e1,"serial":9007199254740993,"zero":-0.0,"tiny":1E-7,"text":"\u00e9\/","later":[ null ,{"a":1.0}]}"#;

#[test]
fn what_nobody_knows_passes_byte_for_byte() {
    let (addr, asked) = canned(ODD).unwrap();
    let mut project = Project::with_classes(addr).unwrap();
    let gateway = project.gateway(None).unwrap();
    for (n, era) in ERAS.into_iter().enumerate() {
        let reply =
            call(gateway.addr, era, &Class::Key.tool(), Class::Key.arguments(&format!("odd{n}"))).unwrap();
        assert_eq!(member(&reply, "structuredContent").unwrap(), ODD, "{era:?}");
        // The stored result, in the other era.
        let other = ERAS[1 - n];
        let mut again = Call::new(&Class::Key.tool(), Class::Key.arguments(&format!("odd{n}"))).of(other);
        again.params_key = reply.json()["result"]["_meta"][META_OPERATION]["id"].as_str().map(str::to_owned);
        let again = send(gateway.addr, &again.bytes(gateway.addr)).unwrap();
        assert_eq!(member(&again, "structuredContent").unwrap(), ODD, "{era:?}, then {other:?}");
        assert_eq!(asked.try_iter().count(), 1, "{era:?}");
    }

    let fixture = Fixture::beyond_the_schemas().unwrap();
    let content = r#"[{"type":"hologram","data":{"depth": 1.50e1 , "z":9007199254740993}},{"type":"text","text":"t\u00e9xt"}]"#;
    for era in ERAS {
        let reply = call(fixture.addr, era, "trap_unknown_fields", json!({})).unwrap();
        assert_eq!(member(&reply, "content").unwrap(), content, "{era:?}");
        assert_eq!(member(&reply, "x-later").unwrap(), r#"[ null, {"a":1.0} ]"#, "{era:?}");
        let own = format!(r#"{{"content":[],"odd":{ODD},"_meta":{{"example.org/x": 1.50}}}}"#);
        let reply = call(fixture.addr, era, "trap_unknown_fields", json!({ "json": own })).unwrap();
        assert_eq!(member(&reply, "odd").unwrap(), ODD, "{era:?}");
        assert!(member(&reply, "_meta").unwrap().contains(r#""example.org/x":"#), "{}", reply.text());
        assert!(member(&reply, "_meta").unwrap().contains("1.50"), "{}", reply.text());
    }
}

#[test]
fn a_large_result_is_one_body() {
    let fixture = Fixture::start().unwrap();
    let bytes = (1 << 20) + (1 << 19);
    for era in ERAS {
        let reply = call(fixture.addr, era, "trap_large", json!({ "bytes": bytes })).unwrap();
        assert_eq!(reply.header("content-type"), Some("application/json"), "{era:?}");
        assert_eq!(
            reply.json()["result"]["content"][0]["text"].as_str().map(str::len),
            Some(bytes),
            "{era:?}"
        );
    }
}

#[test]
fn what_is_answered_from_memory_does_not_wait_for_slow_calls() {
    let fixture = Fixture::start().unwrap();
    let addr = fixture.addr;
    let slow = |n: usize| Call::new("trap_slow", json!({ "ms": 6000 })).of(ERAS[n % 2]).bytes(addr);
    let mut calls: Vec<Stream> = (0..200).map(|n| Stream::open(addr, &slow(n)).unwrap()).collect();
    // Every one of them has begun: its stream is open.
    for stream in &mut calls {
        stream.until(TIMEOUT, |s| s.head().is_some()).unwrap();
    }
    let mut took = Vec::new();
    for method in ["server/discover", "tools/list", "resources/list", "prompts/list", "ping", "tools/list"] {
        let era = if method == "ping" { OLD } else { Era::Modern };
        for _ in 0..5 {
            let began = Instant::now();
            let reply = send(addr, &request(addr, era, method, &json!({}))).unwrap();
            took.push(began.elapsed());
            assert!(reply.json()["result"].is_object(), "{method}: {}", reply.text());
        }
    }
    assert!(calls.iter().all(|s| !s.is_whole()), "the calls were over before they could be in the way");
    took.sort();
    // One in ten may fall to a machine that does something else.
    let most = took[took.len() * 9 / 10 - 1];
    assert!(most < Duration::from_millis(100), "it took {took:?}");
    for stream in &mut calls {
        stream.whole(TIMEOUT).unwrap();
        let events = stream.events().unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["result"]["content"][0]["text"], "slept 6000 ms");
    }
}
