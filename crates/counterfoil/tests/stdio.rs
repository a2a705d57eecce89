//! `serve --stdio` as hosts start it: one ledger for several processes, of which any may end at any time.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{Dir, arm, effects};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A host's view of its server.
struct Front {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    log: std::path::PathBuf,
}

impl Front {
    fn start(dir: &Dir, name: &str, args: &[&str], env: &[(&str, &str)]) -> Front {
        let log = dir.path().join(format!("{name}.log"));
        let mut all = vec!["serve", "--stdio"];
        all.extend(args);
        let mut command = dir.command(&all);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(std::fs::File::create(&log).unwrap()).envs(env.iter().copied());
        let mut child = command.spawn().unwrap();
        let (tell, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || out.lines().map_while(Result::ok).all(|line| tell.send(line).is_ok()));
        let stdin = child.stdin.take();
        Front { child, stdin, lines, log }
    }
    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }
    fn get(&mut self) -> Value {
        let line = self.lines.recv_timeout(Duration::from_secs(20));
        let line = line.unwrap_or_else(|e| panic!("{e}: {}", self.log()));
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }
    /// The answer to a request; notifications before it are thrown away.
    fn ask(&mut self, message: &Value) -> Value {
        self.send(message);
        self.answer(&message["id"])
    }
    fn answer(&mut self, id: &Value) -> Value {
        loop {
            let got = self.get();
            if got.get("method").is_none() {
                assert_eq!(&got["id"], id, "{got}");
                return got;
            }
        }
    }
    fn initialize(&mut self, version: &str) -> Value {
        let answer = self.ask(&json!({
            "jsonrpc": "2.0", "id": "init", "method": "initialize",
            "params": { "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "h", "version": "1" } }
        }));
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer
    }
    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
    fn logged(&self, text: &str) {
        let begun = Instant::now();
        while !self.log().contains(text) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{text:?} was never logged: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }
    fn ended(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "it runs on: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    /// Ends it as hosts do: by the end of its input. What it said last, and how long it took.
    fn close(mut self) -> (Vec<String>, Duration) {
        let begun = Instant::now();
        self.stdin = None;
        assert_eq!(self.ended(), 0, "{}", self.log());
        let took = begun.elapsed();
        (self.lines.iter().collect(), took)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A provider that runs by itself, as a real one does.
struct Provider {
    child: Child,
    at: String,
    _dir: Dir,
}

impl Provider {
    fn start() -> Provider {
        let dir = Dir::new();
        let mut command = dir.command(&["sandbox", "--json", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let at = ready["sandbox"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        Provider { child, at, _dir: dir }
    }
    fn args(&self) -> [&str; 2] {
        ["--sandbox-listen", &self.at]
    }
    fn wait_for(&self, order: &str) {
        let begun = Instant::now();
        while effects(&self.at, order) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "nothing reached the provider");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const FREE: [&str; 2] = ["--sandbox-listen", "127.0.0.1:0"];

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn modern(id: impl Into<Value>, method: &str, mut params: Value) -> Value {
    params["_meta"] = meta();
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

fn legacy(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

fn refund(order: &str, key: Option<&str>) -> Value {
    let mut params = json!({
        "name": "payments_refunds_create",
        "arguments": { "payment": "pay_demo", "amount": 5, "order_id": order },
    });
    if let Some(key) = key {
        params["idempotencyKey"] = json!(key);
    }
    params
}

fn operation(answer: &Value) -> &Value {
    let about = &answer["result"]["_meta"]["dev.counterfoil/operation"];
    assert!(about["id"].is_string() && answer["result"]["isError"] != true, "{answer}");
    about
}

#[test]
fn a_legacy_host_lists_and_calls() {
    let d = Dir::new();
    let p = Provider::start();
    let mut host = Front::start(&d, "host", &p.args(), &[]);
    let welcome = host.initialize("2025-11-25");
    assert_eq!(welcome["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(host.ask(&legacy(1, "ping", json!({})))["result"], json!({}));
    let tools = host.ask(&legacy(2, "tools/list", json!({})));
    let tools = tools["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|t| t["name"] == "payments_refunds_create"), "{tools:?}");
    let done = host.ask(&legacy(3, "tools/call", refund("legacy", Some("k"))));
    assert_eq!(operation(&done)["replayed"], false);
    assert!(done["result"].get("resultType").is_none(), "{done}");
    assert_eq!(effects(&p.at, "legacy"), 1);
    assert_eq!(host.ask(&legacy(4, "nothing", json!({})))["error"]["code"], -32601);
    let socket = d.path().join(".counterfoil/mcp.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let (rest, took) = host.close();
    assert!(rest.is_empty(), "{rest:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(!socket.exists());
    // Nothing was listening on HTTP, and the ledger is free again.
    d.run(&["ops", "list", "--json"]).expect(0);
}

#[test]
fn a_modern_host_discovers_and_calls_and_a_pipe_gets_its_answers() {
    let d = Dir::new();
    let p = Provider::start();
    let mut host = Front::start(&d, "host", &p.args(), &[]);
    let found = host.ask(&modern(1, "server/discover", json!({})));
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
    let done = host.ask(&modern("a", "tools/call", refund("modern", None)));
    assert!(operation(&done)["id"].is_string());
    assert_eq!(done["result"]["resultType"], "complete");
    assert_eq!(host.ask(&legacy(2, "tools/list", json!({})))["error"]["code"], -32600);
    // A line that is none, a line that is too long, an id that is taken.
    writeln!(host.stdin.as_mut().unwrap(), "nonsense").unwrap();
    assert_eq!(host.get()["error"]["code"], -32700);
    host.send(&json!("x".repeat(5 << 20)));
    assert_eq!(host.get()["error"]["code"], -32600);
    host.signal(Signal::TERM);
    assert_eq!(host.ended(), 0, "{}", host.log());
    // Lines from a pipe that ends at once are answered before it ends.
    let mut host = Front::start(&d, "pipe", &p.args(), &[]);
    host.logged("holds the ledger");
    host.send(&modern(1, "server/discover", json!({})));
    host.send(&modern(2, "tools/list", json!({})));
    let (said, _) = host.close();
    assert_eq!(said.len(), 2, "{said:?}");
}

#[test]
fn two_hosts_share_a_ledger() {
    let d = Dir::new();
    let p = Provider::start();
    let mut first = Front::start(&d, "first", &p.args(), &[]);
    first.initialize("2025-06-18");
    let mut second = Front::start(&d, "second", &p.args(), &[]);
    second.initialize("2025-11-25");
    second.logged("forwarded");
    let one = first.ask(&legacy(1, "tools/call", refund("both", Some("k"))));
    let two = second.ask(&legacy(1, "tools/call", refund("both", Some("k"))));
    assert_eq!(operation(&one)["id"], operation(&two)["id"]);
    assert_eq!(operation(&two)["replayed"], true);
    assert_eq!(effects(&p.at, "both"), 1);
    // Commands use the holder too.
    let ops = d.run(&["ops", "list", "--json"]).expect(0).json();
    assert_eq!(ops["operations"].as_array().unwrap().len(), 1);
    // The second goes on by itself when the first closes.
    first.close();
    second.logged("this process holds the ledger");
    let again = second.ask(&legacy(2, "tools/call", refund("both", Some("k"))));
    assert_eq!(operation(&again)["replayed"], true);
    assert_eq!(effects(&p.at, "both"), 1);
    second.close();
}

#[test]
fn a_call_survives_the_holder_with_a_key_without_one_and_where_every_call_is_new() {
    let d = Dir::new();
    let p = Provider::start();
    let config = |unkeyed: &str| {
        format!(
            "[sandbox]\nlisten = {:?}\n[server]\nlisten = \"127.0.0.1:0\"\n[tools.\"payments.refunds.create\"]\nunkeyed = {unkeyed:?}\n",
            p.at
        )
    };
    for (n, (unkeyed, key)) in
        [("guard", Some("k-1")), ("guard", None), ("new", None)].into_iter().enumerate()
    {
        d.write("counterfoil.toml", &config(unkeyed));
        let mut holder = Front::start(&d, &format!("holder-{n}"), &[], &[]);
        holder.ask(&modern(1, "server/discover", json!({})));
        let mut host = Front::start(&d, &format!("host-{n}"), &[], &[]);
        host.initialize("2025-11-25");
        host.logged("forwarded");
        let order = format!("killed-{n}");
        arm(&p.at, r#"{"on":"POST /v1/refunds","do":"apply_then_hang"}"#);
        host.send(&legacy(7, "tools/call", refund(&order, key)));
        p.wait_for(&order);
        holder.signal(Signal::KILL);
        let done = host.answer(&json!(7));
        assert!(operation(&done)["attempt"].as_u64().unwrap() >= 1, "{done}");
        assert_eq!(effects(&p.at, &order), 1, "{unkeyed} {key:?}");
        // The session is there as before.
        assert!(host.ask(&legacy(8, "tools/list", json!({})))["result"].is_object());
        if unkeyed == "new" {
            let more = host.ask(&legacy(9, "tools/call", refund(&order, key)));
            assert_ne!(operation(&more)["id"], operation(&done)["id"]);
            assert_eq!(effects(&p.at, &order), 2, "another call is another one");
        }
        let (rest, _) = host.close();
        assert!(rest.is_empty(), "no answer comes twice: {rest:?}");
    }
}

/// A front that sleeps until the next holder has carried its call out, and the guard window is over.
#[test]
fn a_front_that_comes_late_gets_its_own_call_answered_whatever_the_guard_makes_of_it() {
    let d = Dir::new();
    let p = Provider::start();
    d.write(
        "counterfoil.toml",
        &format!(
            "[sandbox]\nlisten = {:?}\n[server]\nlisten = \"127.0.0.1:0\"\n[defaults]\nguard_window = \"0s\"\n",
            p.at
        ),
    );
    let mut holder = Front::start(&d, "holder", &[], &[]);
    holder.ask(&modern(1, "server/discover", json!({})));
    let mut host = Front::start(&d, "host", &[], &[]);
    host.ask(&modern(1, "server/discover", json!({})));
    host.logged("forwarded");
    let mut next = Front::start(&d, "next", &[], &[]);
    next.ask(&modern(1, "server/discover", json!({})));
    next.logged("forwarded");
    arm(&p.at, r#"{"on":"POST /v1/refunds","do":"apply_then_hang"}"#);
    host.send(&modern(7, "tools/call", refund("late", None)));
    p.wait_for("late");
    host.signal(Signal::STOP);
    holder.signal(Signal::KILL);
    next.logged("this process holds the ledger");
    let begun = Instant::now();
    loop {
        let ops = d.run(&["ops", "list", "--json"]).expect(0).json();
        if ops["operations"][0]["state"] == "completed" {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{ops}");
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(50));
    host.signal(Signal::CONT);
    let done = host.answer(&json!(7));
    assert_eq!(operation(&done)["replayed"], true, "{done}");
    assert_eq!(operation(&done)["joinedBy"], "key", "{done}");
    assert_eq!(effects(&p.at, "late"), 1, "its client asked once");
    // Whoever else asks for the same asks for another one: the window is over.
    let more = next.ask(&modern(2, "tools/call", refund("late", None)));
    assert_ne!(operation(&more)["id"], operation(&done)["id"]);
    assert_eq!(effects(&p.at, "late"), 2);
    host.close();
    next.close();
}

#[test]
fn two_calls_on_purpose_are_twins_through_a_front_as_anywhere() {
    let d = Dir::new();
    let p = Provider::start();
    let mut host = Front::start(&d, "host", &p.args(), &[]);
    let one = host.ask(&modern(1, "tools/call", refund("twice", None)));
    let two = host.ask(&modern(2, "tools/call", refund("twice", None)));
    let told = &two["result"]["_meta"]["dev.counterfoil/error"];
    assert_eq!(told["kind"], "twin", "{two}");
    assert_eq!(told["retryKey"], operation(&one)["id"], "{two}");
    assert_eq!(effects(&p.at, "twice"), 1);
    // A client that names its calls itself gains nothing by it.
    let mut named = refund("named", None);
    named["_meta"] = json!({ "dev.counterfoil/call": "mine" });
    let mut call = |id: u64| {
        let mut request = modern(id, "tools/call", named.clone());
        request["params"]["_meta"]["dev.counterfoil/call"] = json!("mine");
        host.ask(&request)
    };
    operation(&call(3));
    let again = call(4);
    assert_eq!(again["result"]["_meta"]["dev.counterfoil/error"]["kind"], "twin", "{again}");
    assert_eq!(effects(&p.at, "named"), 1);
    host.close();
}

#[test]
fn what_comes_before_there_is_a_backend_is_answered() {
    let d = Dir::new();
    let p = Provider::start();
    // All at once, with the end of input behind it.
    let mut host = Front::start(&d, "host", &p.args(), &[]);
    let opening = legacy(
        1,
        "initialize",
        json!({
            "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": { "name": "h", "version": "1" }
        }),
    );
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let batch = json!([legacy(2, "tools/list", json!({})), legacy(3, "ping", json!({}))]);
    let stdin = host.stdin.as_mut().unwrap();
    write!(
        stdin,
        "hello\n{{\"jsonrpc\":\"1.0\",\"id\":9,\"method\":\"ping\"}}\n{opening}\n{initialized}\n{batch}\n"
    )
    .unwrap();
    let (said, _) = host.close();
    let said: Vec<Value> = said.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let code = |code: i64| said.iter().filter(|m| m["error"]["code"] == code).count();
    assert_eq!((said.len(), code(-32700), code(-32600)), (4, 1, 1), "{said:?}");
    let answered = said.iter().find_map(Value::as_array).unwrap();
    assert_eq!(answered.len(), 2, "{said:?}");
    // The same, where it comes from a pipe that stays open.
    let mut host = Front::start(&d, "again", &p.args(), &[]);
    writeln!(host.stdin.as_mut().unwrap(), "hello").unwrap();
    assert_eq!(host.get()["error"]["code"], -32700);
    host.close();
}

#[test]
fn processes_that_would_answer_differently_share_no_ledger() {
    let d = Dir::new();
    let p = Provider::start();
    let write = |server: &str, rest: &str| {
        d.write(
            "counterfoil.toml",
            &format!("[sandbox]\nlisten = {:?}\n[server]\nlisten = \"127.0.0.1:0\"\n{server}{rest}", p.at),
        );
    };
    write("", "");
    let mut holder = Front::start(&d, "holder", &[], &[]);
    holder.ask(&modern(1, "server/discover", json!({})));
    let made = d.run(&["api-keys", "create", "--principal", "ann", "--json"]).expect(0).json();
    let key = made["key"].as_str().unwrap().to_owned();
    for (n, (server, rest, env, told)) in [
        ("", "[auth]\nmode = \"api-key\"\n", vec![("COUNTERFOIL_API_KEY", key.as_str())], "[auth] mode"),
        ("name = \"other\"\n", "", vec![], "[server] name = \"counterfoil\", and this one \"other\""),
    ]
    .into_iter()
    .enumerate()
    {
        write(server, rest);
        let mut other = Front::start(&d, &format!("other-{n}"), &[], &env);
        // Its client is told, too.
        let refused = other.ask(&modern(1, "server/discover", json!({})));
        assert_eq!(refused["error"]["data"]["kind"], "unavailable", "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("nothing was carried out"));
        assert_eq!(other.ended(), 2, "{}", other.log());
        assert!(other.log().contains(told), "{}", other.log());
    }
    write("", "");
    let mut same = Front::start(&d, "same", &[], &[]);
    same.ask(&modern(1, "server/discover", json!({})));
    same.close();
    holder.close();
}

#[test]
fn a_holder_that_stops_in_order_leaves_nobody_waiting() {
    let d = Dir::new();
    let p = Provider::start();
    let mut holder = Front::start(&d, "holder", &p.args(), &[]);
    holder.ask(&modern(1, "server/discover", json!({})));
    let mut host = Front::start(&d, "host", &p.args(), &[]);
    host.ask(&modern(1, "server/discover", json!({})));
    host.logged("forwarded");
    arm(&p.at, r#"{"on":"POST /v1/refunds","do":"apply_then_hang"}"#);
    host.send(&modern(7, "tools/call", refund("stopped", None)));
    p.wait_for("stopped");
    let (_, took) = holder.close();
    assert!(took < Duration::from_secs(8), "{took:?}");
    operation(&host.answer(&json!(7)));
    assert_eq!(effects(&p.at, "stopped"), 1);
    host.close();
}

#[test]
fn subscriptions_and_sessions_outlive_the_holder() {
    let d = Dir::new();
    let p = Provider::start();
    let good = format!("[sandbox]\nlisten = {:?}\n[server]\nlisten = \"127.0.0.1:0\"\n", p.at);
    d.write("counterfoil.toml", &good);
    let mut holder = Front::start(&d, "holder", &[], &[]);
    holder.ask(&modern(1, "server/discover", json!({})));
    let mut host = Front::start(&d, "host", &[], &[]);
    host.initialize("2025-11-25");
    host.logged("forwarded");
    let listen =
        modern("l", "subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    host.send(&listen);
    let opened = host.get();
    assert_eq!(opened["method"], "notifications/subscriptions/acknowledged");
    // An id is used once, also where the front alone can know.
    assert_eq!(host.ask(&listen)["error"]["code"], -32600);
    holder.signal(Signal::KILL);
    host.logged("this process holds the ledger");
    assert!(host.ask(&legacy(2, "tools/list", json!({})))["result"].is_object());
    d.write("counterfoil.toml", &format!("{good}[tools.\"payments.refunds.create\"]\nname = \"refund\"\n"));
    host.signal(Signal::HUP);
    let mut news = [host.get(), host.get()];
    news.sort_by_key(|n| n["params"].is_object());
    for one in &news {
        assert_eq!(one["method"], "notifications/tools/list_changed", "{news:?}");
    }
    assert!(news[0].get("params").is_none(), "the session's: {news:?}");
    assert_eq!(news[1]["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "l");
    // Cancelled, it says nothing more.
    host.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "l" } }),
    );
    host.ask(&legacy(3, "tools/list", json!({})));
    d.write("counterfoil.toml", &good);
    host.signal(Signal::HUP);
    assert!(host.get().get("params").is_none());
    let (rest, _) = host.close();
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn the_next_holders_own_provider_is_the_same_at_another_port() {
    let d = Dir::new();
    let s = d.serve(&["--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0"]);
    let mut host = Front::start(&d, "host", &FREE, &[]);
    host.ask(&modern(1, "server/discover", json!({})));
    host.logged("forwarded");
    arm(s.sandbox(), r#"{"on":"POST /v1/refunds","do":"apply_then_hang"}"#);
    host.send(&modern(7, "tools/call", refund("moved", None)));
    let begun = Instant::now();
    while effects(s.sandbox(), "moved") == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing reached the provider");
        std::thread::sleep(Duration::from_millis(10));
    }
    s.signal(Signal::KILL);
    let done = host.answer(&json!(7));
    assert!(operation(&done)["attempt"].as_u64().unwrap() >= 1, "{done}");
    assert_ne!(done["result"]["isError"], true, "{done}");
    host.close();
}

#[test]
fn stdio_forwards_to_a_server_over_http() {
    let d = Dir::new();
    let p = Provider::start();
    let mut args = vec!["--listen", "127.0.0.1:0"];
    args.extend(p.args());
    let s = d.serve(&args);
    let mut host = Front::start(&d, "host", &["--listen", "127.0.0.1:0"], &[]);
    let done = host.ask(&modern(1, "tools/call", refund("http", Some("k"))));
    host.logged("--listen has no effect");
    let over = d
        .run(&[
            "call",
            s.endpoint(),
            "payments_refunds_create",
            "--json",
            "--key",
            "k",
            "--arg",
            "payment=pay_demo",
            "--arg",
            "amount=5",
            "--arg",
            "order_id=http",
        ])
        .expect(0)
        .json();
    assert_eq!(over["operation"]["id"], operation(&done)["id"]);
    assert_eq!(effects(&p.at, "http"), 1);
    assert_eq!(s.stop(), 0);
    // Its successor takes over, and another server finds it.
    host.logged("this process holds the ledger");
    let again = host.ask(&modern(2, "tools/call", refund("http", Some("k"))));
    assert_eq!(operation(&again)["id"], operation(&done)["id"]);
    host.close();
}

#[test]
fn an_api_key_says_who_is_asking() {
    let d = Dir::new();
    let p = Provider::start();
    d.write(
        "counterfoil.toml",
        &format!(
            "[sandbox]\nlisten = {:?}\n[server]\nlisten = \"127.0.0.1:0\"\n[auth]\nmode = \"api-key\"\n",
            p.at
        ),
    );
    let key = |name: &str| {
        let made = d.run(&["api-keys", "create", "--principal", name, "--json"]).expect(0).json();
        (made["key"].as_str().unwrap().to_owned(), made["id"].as_str().unwrap().to_owned())
    };
    let ((ann, ann_id), (bob, _)) = (key("ann"), key("bob"));
    let refused = d.run(&["serve", "--stdio"]).expect(2);
    assert!(refused.stderr.contains("COUNTERFOIL_API_KEY") && refused.stdout.is_empty(), "{refused:?}");
    let mut wrong = Front::start(&d, "wrong", &[], &[("COUNTERFOIL_API_KEY", "cfk_wrong")]);
    assert_eq!(wrong.ended(), 2, "{}", wrong.log());
    let mut first = Front::start(&d, "ann", &[], &[("COUNTERFOIL_API_KEY", &ann)]);
    let one = first.ask(&modern(1, "tools/call", refund("a", Some("k"))));
    let mut second = Front::start(&d, "bob", &[], &[("COUNTERFOIL_API_KEY", &bob)]);
    let two = second.ask(&modern(1, "tools/call", refund("a", Some("k"))));
    second.logged("forwarded");
    assert_ne!(operation(&one)["id"], operation(&two)["id"], "each has keys of its own");
    let mut wrong = Front::start(&d, "wrong", &[], &[("COUNTERFOIL_API_KEY", "cfk_wrong")]);
    assert_eq!(wrong.ended(), 2, "{}", wrong.log());
    assert!(wrong.log().contains("COUNTERFOIL_API_KEY"), "{}", wrong.log());
    // A revoked key is refused on a connection that is open already.
    d.run(&["api-keys", "revoke", &ann_id]).expect(0);
    assert_eq!(first.ask(&modern(2, "tools/list", json!({})))["error"]["code"], -32600);
    assert!(second.ask(&modern(2, "tools/list", json!({})))["result"].is_object());
    second.close();
    first.close();
}

#[test]
fn a_ledger_held_by_something_else_is_waited_for_and_named() {
    let d = Dir::new();
    std::fs::create_dir(d.path().join(".counterfoil")).unwrap();
    let hold = || {
        let mut lock = std::fs::File::create(d.path().join(".counterfoil/ledger.lock")).unwrap();
        lock.lock().unwrap();
        writeln!(lock, "4242").unwrap();
        lock
    };
    let lock = hold();
    let mut patient = Front::start(&d, "patient", &FREE, &[]);
    patient.send(&modern(1, "server/discover", json!({})));
    std::thread::sleep(Duration::from_secs(1));
    drop(lock);
    assert!(patient.answer(&json!(1))["result"].is_object());
    patient.close();
    let lock = hold();
    let mut refused = Front::start(&d, "refused", &FREE, &[]);
    refused.send(&modern(1, "server/discover", json!({})));
    // Who asked is told, whatever the process's end says.
    let told = refused.answer(&json!(1));
    assert_eq!(told["error"]["data"]["kind"], "unavailable", "{told}");
    assert_eq!(refused.ended(), 5, "{}", refused.log());
    assert!(refused.log().contains("process 4242"), "{}", refused.log());
    drop(lock);
}

#[test]
fn flags_that_make_no_sense_together_are_refused() {
    let d = Dir::new();
    for other in ["--json", "--restored"] {
        let refused = d.run(&["serve", "--stdio", other]).expect(2);
        assert!(refused.stderr.contains("cannot be used with"), "{refused:?}");
    }
    let (d, p) = (Dir::new(), Provider::start());
    let mut args = vec!["--listen", "127.0.0.1:0"];
    args.extend(p.args());
    let mut host = Front::start(&d, "host", &args, &[]);
    host.ask(&modern(1, "server/discover", json!({})));
    let log = host.log();
    let at = log
        .split("listening=")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap()
        .trim_matches('"');
    assert_eq!(common::http(at, "GET", "/healthz", "").0, 200);
    host.close();
}

#[test]
fn the_socket_takes_its_own_kind_only_also_under_a_long_path() {
    let d = Dir::new();
    let p = Provider::start();
    let long = "x".repeat(120);
    let mut args = vec!["--data", long.as_str()];
    args.extend(p.args());
    let mut holder = Front::start(&d, "holder", &args, &[]);
    holder.ask(&modern(1, "server/discover", json!({})));
    let mut second = Front::start(&d, "second", &args, &[]);
    second.ask(&modern(1, "server/discover", json!({})));
    second.logged("forwarded");
    // The system's limit is for paths: this one is reached by another name of its directory.
    let near = d.path().join("near");
    std::os::unix::fs::symlink(d.path().join(&long), &near).unwrap();
    let say = |text: &str| {
        let stream = std::os::unix::net::UnixStream::connect(near.join("mcp.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (&stream).write_all(text.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream);
        let mut answer = String::new();
        lines.read_line(&mut answer).unwrap();
        (serde_json::from_str::<Value>(&answer).unwrap(), lines)
    };
    let discover = modern(1, "server/discover", json!({}));
    for first in [
        "nonsense\n".to_owned(),
        format!("{discover}\n"),
        "{\"counterfoil\":9}\n".into(),
        "{\"counterfoil\":1}\n".into(),
        "x".repeat(5000),
    ] {
        let (answer, mut lines) = say(&first);
        assert!(answer["error"].is_string() && answer["ok"] != true, "{answer}");
        let mut rest = String::new();
        // A peer that is still writing sees a reset instead of an end.
        assert_eq!(lines.read_line(&mut rest).unwrap_or(0), 0, "{rest}");
    }
    let terms = json!({ "counterfoil": 1, "auth": "none", "mode": "sandbox", "name": "counterfoil" });
    let (answer, mut lines) = say(&format!("{terms}\n{discover}\n"));
    assert_eq!(answer["ok"], true);
    let mut found = String::new();
    lines.read_line(&mut found).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&found).unwrap()["result"]["resultType"], "complete");
    second.close();
    holder.close();
}
