//! Several processes on one ledger in PostgreSQL: the same answers from each, commands beside them, what is told when
//! they drift apart, and a replica that ends while a call of it is out.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Dir, Ran, Served, arm, effects, http, ran};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use temp_postgres::{Options, TempPostgres};

/// The master key of all.
const MASTER: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A database, a provider, and a configuration on both.
struct Stage {
    dir: Dir,
    server: TempPostgres,
    provider: Child,
    at: String,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.provider.kill();
        let _ = self.provider.wait();
    }
}

impl Stage {
    fn new(more: &str) -> Stage {
        let server = TempPostgres::start(Options::default());
        let url = server.url(&server.database());
        let dir = Dir::new();
        let mut command = dir.command(&["sandbox", "--json", "--listen", "127.0.0.1:0"]);
        let mut provider = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(provider.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let at = ready["sandbox"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        dir.write(
            "counterfoil.toml",
            &format!(
                "[server]\nname = \"shop\"\nshutdown_delay = \"100ms\"\nshutdown_limit = \"1s\"\n\
                 [seal]\nmaster = \"${{file:master}}\"\n\
                 [ledger]\nurl = \"{url}\"\n{more}\n[sandbox]\nlisten = \"{at}\"\n"
            ),
        );
        dir.write("master", MASTER);
        Stage { dir, server, provider, at }
    }

    fn serve(&self, data: &str) -> Served {
        self.dir.serve(&["--listen", "127.0.0.1:0", "--data", data])
    }

    /// A command that no process answers for.
    fn run(&self, args: &[&str]) -> Ran {
        self.dir.run(&[args, &["--data", "alone"]].concat())
    }

    fn call(&self, served: &Served, order: &str) -> Ran {
        self.call_with(served, order, "8")
    }

    fn call_with(&self, served: &Served, order: &str, retries: &str) -> Ran {
        let order_id = format!("order_id={order}");
        let key = format!("k-{order}");
        self.dir.run(&[
            "call",
            served.endpoint(),
            "payments_refunds_create",
            "--json",
            "--retries",
            retries,
            "--key",
            &key,
            "--arg",
            "payment=pay_demo",
            "--arg",
            "amount=5",
            "--arg",
            &order_id,
        ])
    }
}

fn host(s: &Served) -> &str {
    s.endpoint().strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap()
}

/// The body of a list, as each era writes it.
fn list(s: &Served, method: &str, modern: bool) -> String {
    let meta = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    let params = if modern { meta } else { json!({}) };
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let head = if modern {
        format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n")
    } else {
        String::new()
    };
    let at = host(s);
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{head}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_replica_answers_the_same_and_commands_work_beside_them() {
    let stage = Stage::new("lease = \"2s\"");
    // What only looks makes nothing.
    let none = stage.run(&["ops", "list"]).expect(2);
    assert!(none.stderr.contains("there is no ledger"), "{none:?}");
    let doctor = stage.run(&["doctor"]).expect(0);
    assert!(doctor.stdout.contains("not there yet; `serve` makes it"), "{doctor:?}");
    let (a, b) = (stage.serve("a"), stage.serve("b"));
    assert_eq!(a.ready["ledger"], b.ready["ledger"]);
    assert!(a.ready["ledger"].as_str().unwrap().starts_with("postgres://127.0.0.1:"), "{}", a.ready);
    for (method, modern) in [("tools/list", true), ("tools/list", false), ("server/discover", true)] {
        let (one, two) = (list(&a, method, modern), list(&b, method, modern));
        assert!(one == two && one.len() > 100, "{method} {modern}\n{one}\n{two}");
    }

    // A directory has one process.
    let third = stage.dir.run(&["serve", "--listen", "127.0.0.1:0", "--data", "a"]).expect(5);
    let said = format!("is in use by process {}", a.child.id());
    assert!(third.stderr.contains(&said) && third.stderr.contains("--data"), "{third:?}");

    // What one began is known to all, and to commands that ask nobody.
    let first = stage.call(&a, "o1").expect(0).json();
    let again = stage.call(&b, "o1").expect(0).json();
    assert_eq!(again["operation"]["replayed"], true);
    assert_eq!(again["result"]["structuredContent"], first["result"]["structuredContent"]);
    assert_eq!(effects(&stage.at, "o1"), 1);
    let id = first["operation"]["id"].as_str().unwrap();
    let shown = stage.run(&["ops", "show", id, "--json"]).expect(0).json();
    assert_eq!(shown["state"], "completed");
    let listed = stage.run(&["ops", "list", "--json"]).expect(0).json();
    assert_eq!(listed["operations"].as_array().unwrap().len(), 1);
    let exec = ["exec", "payments.refunds.create", "--json", "--key", "k-e", "--param", "payment=pay_demo"];
    let exec = [&exec[..], &["--param", "amount=5", "--param", "order_id=e1"]].concat();
    stage.run(&exec).expect(0);
    assert_eq!(stage.run(&exec).expect(0).json()["operation"]["replayed"], true);
    assert_eq!(effects(&stage.at, "e1"), 1);
    let made = stage.run(&["api-keys", "create", "--principal", "ann", "--json"]).expect(0).json();
    assert!(made["key"].as_str().is_some(), "{made}");

    // Over lines, beside a process that has the same directory.
    let mut lines = stage.dir.command(&["serve", "--stdio", "--data", "a"]);
    let mut child = lines.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let mut stdin = child.stdin.take().unwrap();
    for (id, method, params) in [(1, "initialize", hello), (2, "tools/list", json!({}))] {
        writeln!(stdin, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .unwrap();
    }
    let answers: Vec<String> =
        BufReader::new(child.stdout.take().unwrap()).lines().take(2).map(Result::unwrap).collect();
    assert!(answers[1].contains("payments_refunds_create"), "{answers:?}");
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));

    // They agree, and doctor says so; nothing of it is a secret.
    assert_eq!(http(host(&a), "GET", "/readyz", ""), (200, "ready\n".into()));
    let doctor = stage.run(&["doctor"]);
    assert!(doctor.stdout.contains("all say and serve the same"), "{doctor:?}");
    assert!(doctor.stdout.contains(host(&a)) && doctor.stdout.contains("fsync = off"), "{doctor:?}");

    // PostgreSQL makes its own backups: what it needs is checked, and this test's server doesn't wait for its disk.
    let how = stage.run(&["backup"]).expect(2);
    assert!(how.stdout.contains("pg_dump --format=custom --schema=counterfoil"), "{how:?}");
    let refused = stage.run(&["backup", "copy.db"]).expect(2);
    assert!(refused.stderr.contains("nothing was copied") && !stage.dir.path().join("copy.db").exists());

    // One that is configured differently is told of by all.
    assert_eq!(b.stop(), 0);
    let mut other = stage.dir.command(&["serve", "--json", "--listen", "127.0.0.1:0", "--data", "b"]);
    other.env("COUNTERFOIL__LEDGER__RETENTION", "1d").env("COUNTERFOIL__SERVER__NAME", "shop");
    let mut child = other.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let warned = "ready\nwarning: replicas are configured differently\n";
    until("nobody warns", || http(host(&a), "GET", "/readyz", "") == (200, warned.into()));
    let doctor = stage.run(&["doctor"]);
    assert!(doctor.stdout.contains("replicas are configured differently ("), "{doctor:?}");
    a.logged("replicas are configured differently");
    let _ = child.kill();
    let _ = child.wait();
    until("it never agrees again", || http(host(&a), "GET", "/readyz", "").1 == "ready\n");
    assert_eq!(a.stop(), 0);
    assert_eq!(stage.server.sql("postgres", "SELECT 1"), "1");
}

/// What one replica seals the others open, or it does not start.
#[test]
fn replicas_have_one_key_ring_or_do_not_start() {
    let stage = Stage::new("lease = \"2s\"");
    let start = |name: &str, value: &str| {
        let mut command =
            stage.dir.command(&["serve", "--json", "--listen", "127.0.0.1:0", "--data", "other"]);
        ran(command.env(name, value)).expect(2)
    };
    // None at all is refused before anything is made.
    let text = std::fs::read_to_string(stage.dir.path().join("counterfoil.toml")).unwrap();
    stage.dir.write("none.toml", &text.replace("[seal]\nmaster = \"${file:master}\"\n", ""));
    let none =
        stage.dir.run(&["serve", "--config", "none.toml", "--listen", "127.0.0.1:0", "--data", "other"]);
    assert!(none.expect(2).stderr.contains("[seal] master"));
    let none = stage.run(&["keys", "list", "--config", "none.toml"]).expect(2);
    assert!(none.stderr.contains("[seal] master") || none.stderr.contains("no ledger"), "{none:?}");

    let a = stage.serve("a");
    let listed = stage.run(&["keys", "list", "--json"]).expect(0).json();
    let master = listed["master"].as_str().unwrap().to_owned();
    assert_eq!(
        (listed["serverName"].as_str(), listed["masters"][0].as_str()),
        (Some("shop"), Some(&*master))
    );
    assert_eq!(listed["keys"].as_array().unwrap().len(), 1);
    let other = "/".repeat(42) + "8=";
    let refused = start("COUNTERFOIL__SEAL__MASTER", &other);
    assert!(
        refused.stderr.contains(&master) && refused.stderr.contains("Nothing was changed"),
        "{refused:?}"
    );
    assert!(!refused.stderr.contains(&MASTER[..43]) && !refused.stderr.contains(&other[..43]), "{refused:?}");
    let renamed = start("COUNTERFOIL__SERVER__NAME", "store");
    assert!(renamed.stderr.contains("\"shop\"") && renamed.stderr.contains("\"store\""), "{renamed:?}");
    let mut doctor = stage.dir.command(&["doctor", "--data", "alone"]);
    let doctor = ran(doctor.env("COUNTERFOIL__SERVER__NAME", "store")).expect(2);
    assert!(doctor.stdout.contains("belongs to the server name \"shop\""), "{doctor:?}");
    let mut rename = stage.dir.command(&["keys", "rename", "--data", "alone"]);
    let in_use = ran(rename.env("COUNTERFOIL__SERVER__NAME", "store")).expect(1);
    assert!(in_use.stderr.contains("1 replicas serve"), "{in_use:?}");

    // The same master key and name: they share the ring, and any of them is asked to turn it.
    let b = stage.serve("b");
    let turned = stage.dir.run(&["keys", "rotate", "--json", "--data", "b"]).expect(0).json();
    let stages = |v: &Value| -> Vec<String> {
        v["keys"].as_array().unwrap().iter().map(|k| k["stage"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(stages(&turned), ["active", "standby"]);
    assert_eq!(
        stages(&stage.dir.run(&["keys", "list", "--json", "--data", "a"]).expect(0).json()),
        stages(&turned)
    );
    let again = stage.run(&["keys", "rotate"]).expect(1);
    assert!(again.stderr.contains("on its way already"), "{again:?}");
    assert!(stage.run(&["doctor"]).stdout.contains("1 standby"));

    // Another master key is allowed, gone over to, and the old one forbidden.
    let mut allow = stage.dir.command(&["keys", "allow", "${env:NEXT}", "--json", "--data", "alone"]);
    let allowed = ran(allow.env("NEXT", &other)).expect(0).json();
    assert_eq!(allowed["masters"].as_array().unwrap().len(), 2);
    assert!(stage.run(&["keys", "allow", &other]).expect(2).stderr.contains("command lines"));
    assert_eq!((a.stop(), b.stop()), (0, 0));
    stage.dir.write("master", &other);
    let c = stage.serve("a");
    let forbidden = stage.dir.run(&["keys", "forbid", &master, "--json", "--data", "a"]).expect(0).json();
    assert_eq!(forbidden["masters"].as_array().unwrap().len(), 1);
    assert_eq!(stages(&forbidden), ["active", "standby"]);
    let old = start("COUNTERFOIL__SEAL__MASTER", MASTER);
    assert!(old.stderr.contains("sealed under the master key"), "{old:?}");
    assert_eq!(c.stop(), 0);
}

#[test]
fn a_call_that_outlasts_a_shutdown_is_taken_over_at_once() {
    // Nobody could wait for this lease.
    let stage = Stage::new("lease = \"10m\"\n[defaults]\nsend_timeout = \"3s\"");
    let (a, b) = (stage.serve("a"), stage.serve("b"));
    arm(&stage.at, r#"{"on":"POST /v1/refunds","do":"apply_then_hang"}"#);
    std::thread::scope(|scope| {
        let lost = scope.spawn(|| stage.call_with(&a, "o7", "0"));
        until("the call never left", || effects(&stage.at, "o7") == 1);
        a.signal(rustix::process::Signal::TERM);
        let begun = Instant::now();
        // Its caller goes on elsewhere, and has the result long before the lease of the one that ended.
        let answer = stage.call(&b, "o7").expect(0).json();
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert_eq!(answer["operation"]["state"].as_str().unwrap_or("completed"), "completed", "{answer}");
        assert_eq!(effects(&stage.at, "o7"), 1);
        // The first caller was cut off, or had the same answer.
        let _ = lost.join().unwrap();
    });
    assert_eq!(a.stop(), 0);
    assert_eq!(b.stop(), 0);
}

#[test]
fn what_can_not_work_says_what_to_do() {
    let dir = Dir::new();
    let with = |url: &str, more: &str| {
        dir.write("counterfoil.toml", &format!("[ledger]\nurl = \"{url}\"\n{more}"));
        let mut command = dir.command(&["serve", "--listen", "127.0.0.1:0"]);
        ran(command.env("PG_SECRET", "hunter2").env("COUNTERFOIL__SEAL__MASTER", MASTER))
    };
    let password = "password = \"${env:PG_SECRET}\"\n";
    let away = with("postgres://cf@127.0.0.1:9/cf", password).expect(5);
    assert!(away.stderr.contains("can't be reached"), "{away:?}");
    let tls = with("postgres://cf@127.0.0.1:9/cf?sslmode=allow", password).expect(2);
    assert!(tls.stderr.contains("sslmode is one of"), "{tls:?}");
    for said in [away, tls] {
        assert!(!said.stderr.contains("hunter2") && !said.stdout.contains("hunter2"), "{said:?}");
    }
    let doctor = ran(dir.command(&["doctor"]).env("PG_SECRET", "hunter2"));
    assert!(!doctor.stdout.contains("hunter2") && doctor.code == 2, "{doctor:?}");

    // SQLite: one process, and how there can be more.
    let dir = Dir::new();
    let one = dir.serve(&["--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0"]);
    let two = dir.run(&["serve", "--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0"]).expect(5);
    assert!(two.stderr.contains("in use by process") && two.stderr.contains("postgres://"), "{two:?}");
    assert_eq!(one.stop(), 0);
}
