//! Replicas behind nginx with the book's recipe: any of them answers the same, what one tells all tell, and what a client
//! keeps open at one it has at all.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use anyhow::{Context, Result, ensure};
use counterfoil_tests::cluster::{self, Cluster};
use counterfoil_tests::http::{self, Connection};
use counterfoil_tests::nats::Nats;
use counterfoil_tests::process::fixture;
use counterfoil_tests::session::{Session, TOOLS_CHANGED, listen, told};
use counterfoil_tests::stand::{Class, Project, Sandbox};
use counterfoil_tests::stream::Stream;
use counterfoil_tests::wire::{self, Call, Said};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);
/// Whoever comes to a bus tells that something may have been missed, and then more is told than happened; after this no more.
const SETTLED: Duration = Duration::from_millis(1500);
const WATCHED: &str = "test://watched-resource";
const UPDATED: &str = "notifications/resources/updated";

/// Three gateways with every class of provider.
struct Stage {
    cluster: Cluster,
    project: Project,
    sandbox: Sandbox,
    _home: Project,
}

fn stage() -> Result<Stage> {
    stage_and("")
}

/// With more configuration.
fn stage_and(more: &str) -> Result<Stage> {
    let home = Project::empty()?;
    let sandbox =
        Sandbox::start(&home.path().join("provider"), &home.path().join("provider.log"), "127.0.0.1:0")?;
    let mut project = Project::with_classes_and(sandbox.addr, more)?;
    cluster::configure(&project)?;
    let cluster = Cluster::start(&mut project, 3)?;
    Ok(Stage { cluster, project, sandbox, _home: home })
}

/// Three fixture servers, whose tools tell of changes.
fn fixtures(bus: Option<&str>) -> Result<(Cluster, Project)> {
    let mut project = Project::empty()?;
    let bus = bus.map(|url| format!("\n[bus]\nurl = \"{url}\"\n")).unwrap_or_default();
    let config = format!("[server]\nname = \"fixture\"\n\n[ledger]\nlease = \"500ms\"\n{bus}");
    std::fs::write(project.path().join("counterfoil.toml"), config)?;
    cluster::configure(&project)?;
    let cluster = Cluster::start_with(&mut project, 3, Some(fixture()?))?;
    Ok((cluster, project))
}

fn addresses(cluster: &Cluster) -> [SocketAddr; 3] {
    [0, 1, 2].map(|n| cluster.replicas[n].addr)
}

fn refund(order: &str) -> Call {
    Call::new(&Class::Key.tool(), Class::Key.arguments(order)).keyed(order)
}

/// A call of a reading tool of the fixture.
fn use_tool(at: SocketAddr, tool: &str) -> Result<()> {
    let answer = wire::ask(at, "tools/call", Some(tool), json!({ "name": tool, "arguments": {} }))?;
    ensure!(answer["result"]["isError"] != json!(true) && answer["result"].is_object(), "{tool}: {answer}");
    Ok(())
}

/// Reads on until a stream told something so often, and a little further.
fn is_told(stream: &mut Stream, method: &str, times: usize) -> Result<()> {
    stream.until(LIMIT, |s| told(s, method) >= times).with_context(|| format!("{method}, {times} times"))?;
    let _ = stream.until(Duration::from_millis(150), |_| false);
    ensure!(told(stream, method) == times, "{method} came {} times, not {times}", told(stream, method));
    Ok(())
}

#[test]
fn every_replica_answers_with_the_same_bytes() -> Result<()> {
    let mut stage = stage()?;
    let at = addresses(&stage.cluster);
    let session = Session::open(at[0])?;
    let mut seen: BTreeSet<Vec<u8>> = BTreeSet::new();
    for at in at {
        seen.insert(session.ask(at, "tools/list", json!({}))?.body);
    }
    assert_eq!(seen.len(), 1, "the legacy era's lists differ: {seen:?}");
    let params = json!({ "_meta": wire::meta(&json!({})) });
    for method in ["tools/list", "server/discover", "prompts/list", "resources/list"] {
        let mut seen: BTreeSet<Vec<u8>> = BTreeSet::new();
        for at in at {
            // One Host for all, as behind a balancer.
            let bytes = wire::post(stage.cluster.front, "1", method, None, &params, "application/json", &[]);
            seen.insert(Connection::open(at, LIMIT)?.exchange(&bytes)?.body);
        }
        assert_eq!(seen.len(), 1, "{method} differs: {seen:?}");
    }
    // A result, from whichever replica it is asked for.
    let Said::Result { stored, operation, .. } = wire::call(at[0], LIMIT, &refund("same")) else {
        anyhow::bail!("no result")
    };
    for at in [at[1], at[2], stage.cluster.front] {
        match wire::call(at, LIMIT, &refund("same")) {
            Said::Result { stored: again, operation: op, .. } => {
                assert_eq!((again, &op["id"]), (stored.clone(), &operation["id"]));
            }
            said => anyhow::bail!("{}", said.brief()),
        }
    }
    assert_eq!(stage.sandbox.count(Class::Key, "same")?, (1, 700));
    // What a command finds out does not depend on where it asks.
    let data = stage.cluster.to_ask()?.display().to_string();
    let (code, list) = stage.project.ask(&["ops", "list", "--data", &data])?;
    assert_eq!((code, list["operations"].as_array().map(Vec::len)), (0, Some(1)), "{list}");
    Ok(())
}

/// Sessions, their streams and modern streams, on the bus that is configured.
fn news_and_sessions(bus: Option<&str>) -> Result<()> {
    let (mut cluster, project) = fixtures(bus)?;
    let [a, b, c] = addresses(&cluster);
    thread::sleep(SETTLED);
    let filter = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": [WATCHED],
    });
    let front = cluster.front;
    let mut streams = [a, b, c, front].map(|at| listen(at, &filter).unwrap());
    for (n, at) in [a, b, c].into_iter().enumerate() {
        use_tool(at, "test_trigger_tool_change")?;
        use_tool(at, "test_trigger_prompt_change")?;
        use_tool(at, "test_trigger_resource_change")?;
        for stream in &mut streams {
            is_told(stream, TOOLS_CHANGED, n + 1)?;
            is_told(stream, "notifications/prompts/list_changed", n + 1)?;
            is_told(stream, UPDATED, n + 1)?;
        }
    }
    // Who asked for one thing is told of nothing else.
    let mut only = listen(a, &json!({ "promptsListChanged": true }))?;
    use_tool(c, "test_trigger_tool_change")?;
    use_tool(c, "test_trigger_prompt_change")?;
    is_told(&mut only, "notifications/prompts/list_changed", 1)?;
    assert_eq!((told(&only, TOOLS_CHANGED), told(&only, UPDATED)), (0, 0));

    // A session opened at one is served by the others; what it follows is kept.
    let session = Session::open(a)?;
    let reply = session.ask(b, "resources/subscribe", json!({ "uri": WATCHED }))?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let mut old = session.stream(c)?;
    use_tool(a, "test_trigger_resource_change")?;
    is_told(&mut old, UPDATED, 1)?;
    // Of two streams the newer is fed, and when that ends, the older again.
    let mut new = session.stream(a)?;
    thread::sleep(Duration::from_millis(400));
    use_tool(b, "test_trigger_resource_change")?;
    is_told(&mut new, UPDATED, 1)?;
    is_told(&mut old, UPDATED, 1)?;
    drop(new);
    thread::sleep(Duration::from_millis(600));
    use_tool(b, "test_trigger_resource_change")?;
    is_told(&mut old, UPDATED, 2)?;
    let reply = session.ask(c, "resources/unsubscribe", json!({ "uri": WATCHED }))?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    thread::sleep(Duration::from_millis(400));
    use_tool(a, "test_trigger_resource_change")?;
    let _ = old.until(Duration::from_millis(300), |_| false);
    assert_eq!(told(&old, UPDATED), 2, "nothing is followed any more");
    // A rolling restart ends no session.
    for n in 0..3 {
        cluster.terminate(n)?;
        cluster.revive(&project, n)?;
        cluster.all_ready(LIMIT)?;
        let reply = session.ask(cluster.replicas[n].addr, "ping", json!({}))?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    // Its end at one replica ends it, and its streams, at all.
    let mut streams = [session.stream(a)?, session.stream(b)?];
    assert!(session.end(c)?.status < 300);
    for at in [a, b, c, front] {
        assert_eq!(session.ask(at, "ping", json!({}))?.status, 404);
    }
    for stream in &mut streams {
        stream.whole(LIMIT).context("the stream of a session that ended")?;
    }
    assert!(!cluster.lost_one());
    Ok(())
}

#[test]
fn news_and_sessions_know_no_replica_by_postgresql() -> Result<()> {
    news_and_sessions(None)
}

#[test]
fn news_and_sessions_know_no_replica_by_nats() -> Result<()> {
    let nats = Nats::start()?;
    news_and_sessions(Some(&nats.url()))
}

#[test]
fn a_bus_that_was_away_leaves_no_stream_without_news() -> Result<()> {
    let mut nats = Nats::start()?;
    let (mut cluster, _project) = fixtures(Some(&nats.url()))?;
    let [a, b, c] = addresses(&cluster);
    let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": [WATCHED] });
    thread::sleep(SETTLED);
    let mut streams = [a, c].map(|at| listen(at, &filter).unwrap());
    use_tool(b, "test_trigger_tool_change")?;
    for stream in &mut streams {
        is_told(stream, TOOLS_CHANGED, 1)?;
    }
    nats.kill();
    use_tool(b, "test_trigger_tool_change")?;
    use_tool(b, "test_trigger_resource_change")?;
    for stream in &mut streams {
        let _ = stream.until(Duration::from_millis(300), |_| false);
        ensure!((told(stream, TOOLS_CHANGED), told(stream, UPDATED)) == (1, 0), "who told it?");
    }
    // Who can't be told by others is told by its own replica all the same.
    use_tool(a, "test_trigger_resource_change")?;
    is_told(&mut streams[0], UPDATED, 1)?;
    // Nothing keeps what was told meanwhile: whoever may have missed something is told to look.
    nats.revive()?;
    for (stream, had) in streams.iter_mut().zip([1, 0]) {
        let looks = |s: &Stream| told(s, TOOLS_CHANGED) > 1 && told(s, UPDATED) > had;
        stream.until(LIMIT, looks).context("what was missed while the bus was away")?;
    }
    thread::sleep(SETTLED);
    for stream in &mut streams {
        let _ = stream.until(Duration::from_millis(150), |_| false);
    }
    let before = streams.each_ref().map(|s| told(s, UPDATED));
    use_tool(b, "test_trigger_resource_change")?;
    for (stream, before) in streams.iter_mut().zip(before) {
        is_told(stream, UPDATED, before + 1)?;
    }
    assert!(!cluster.lost_one());
    Ok(())
}

/// A call at one replica, and the same at another a little later. Their answers are one, at one time: the second would
/// look by itself only every half second, and not within the 400 ms after the provider's answer.
fn joins_elsewhere(bus: Option<&str>) -> Result<()> {
    const PROVIDER: Duration = Duration::from_millis(1200);
    let more = "\n[tools.\"key.refunds.create\"]\nsend_timeout = \"10s\"\ntimeout = \"20s\"\n";
    let bus = bus.map(|url| format!("\n[bus]\nurl = \"{url}\"\n")).unwrap_or_default();
    let stage = stage_and(&format!("{more}{bus}"))?;
    let [a, b, _] = addresses(&stage.cluster);
    thread::sleep(SETTLED);
    stage.sandbox.rule(
        &json!({ "on": Class::Key.on(), "do": "delay", "delay_ms": PROVIDER.as_millis(), "times": 3 }),
    )?;
    let mut late = Vec::new();
    for n in 0..3 {
        let call = refund(&format!("elsewhere{n}"));
        let ask = |at: SocketAddr| match wire::call(at, LIMIT, &call) {
            Said::Result { stored, .. } => Ok((stored, Instant::now())),
            said => Err(anyhow::anyhow!("{}", said.brief())),
        };
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| ask(a));
            thread::sleep(Duration::from_millis(100));
            let second = ask(b);
            (first.join().unwrap(), second)
        });
        let (first, second) = (first?, second?);
        ensure!(first.0 == second.0, "two results of one operation");
        late.push(second.1.saturating_duration_since(first.1));
    }
    late.sort_unstable();
    assert!(late[1] < Duration::from_millis(200), "answered {late:?} after the first");
    for n in 0..3 {
        assert_eq!(stage.sandbox.count(Class::Key, &format!("elsewhere{n}"))?, (1, 700));
    }
    Ok(())
}

#[test]
fn a_call_that_joins_elsewhere_is_answered_at_once_by_postgresql() -> Result<()> {
    joins_elsewhere(None)
}

#[test]
fn a_call_that_joins_elsewhere_is_answered_at_once_by_nats() -> Result<()> {
    let nats = Nats::start()?;
    joins_elsewhere(Some(&nats.url()))
}

#[test]
fn a_replica_that_is_gone_is_passed_over_and_its_calls_are_taken_over() -> Result<()> {
    let mut stage = stage()?;
    let front = stage.cluster.front;
    // It dies with a request out.
    stage.cluster.arm("send.after")?;
    let lost = wire::call(front, LIMIT, &refund("gone"));
    let until = Instant::now() + LIMIT;
    let dead = loop {
        match stage.cluster.dead() {
            Some(dead) => break dead,
            None if Instant::now() > until => anyhow::bail!("nobody died: {}", lost.brief()),
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    assert!(matches!(lost, Said::Lost(_)), "{}", lost.brief());
    let begun = Instant::now();
    // No call after that fails: nginx passes the dead one over.
    for n in 0..9 {
        let said = wire::call(front, LIMIT, &refund(&format!("after{n}")));
        ensure!(matches!(said, Said::Result { .. }), "call {n}: {}", said.brief());
    }
    let said = wire::call(front, LIMIT, &refund("gone"));
    ensure!(matches!(said, Said::Result { .. }), "{}", said.brief());
    let took = begun.elapsed();
    assert!(took < cluster::LEASE * 5, "taken over after {took:?}");
    assert_eq!(stage.sandbox.count(Class::Key, "gone")?, (1, 700));
    stage.cluster.revive(&stage.project, dead)?;
    stage.cluster.all_ready(LIMIT)
}

/// Requests that nginx answered so.
fn answered(front: SocketAddr, count: usize, bytes: &[u8], status: u16) -> Result<usize> {
    let mut seen = 0;
    for _ in 0..count {
        seen += usize::from(http::once(front, LIMIT, bytes)?.status == status);
    }
    Ok(seen)
}

#[test]
fn nginx_limits_and_logs_by_method_and_name() -> Result<()> {
    let stage = stage()?;
    let front = stage.cluster.front;
    let auth = [("Authorization", "Bearer cfk_somebody")];
    let call = |tool: &str| {
        let params = json!({ "name": tool, "arguments": {}, "_meta": wire::meta(&json!({})) });
        wire::post(front, "1", "tools/call", Some(tool), &params, "application/json", &auth)
    };
    // Tools that move money: 10 a second, and 20 at once.
    let limited = answered(front, 45, &call("stripe_refunds_create"), 429)?;
    assert!(limited >= 5, "{limited} of 45 were refused");
    // So is whoever doesn't say what it calls: the limit would be none.
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let host = front.to_string();
    let legacy = [
        ("Host", host.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        auth[0],
    ];
    let limited = answered(front, 45, &http::request("POST", "/mcp", &legacy, body), 429)?;
    assert!(limited >= 5, "{limited} of 45 were refused");
    // What reads isn't.
    let params = json!({ "_meta": wire::meta(&json!({})) });
    let list = wire::post(front, "1", "tools/list", None, &params, "application/json", &auth);
    assert_eq!(answered(front, 45, &list, 200)?, 45);
    // A header that says what the body doesn't gets nowhere.
    let params = json!({ "name": "stripe_refunds_create", "arguments": {}, "_meta": wire::meta(&json!({})) });
    let lie =
        wire::post(front, "1", "tools/call", Some("operation_status"), &params, "application/json", &auth);
    let reply = http::once(front, LIMIT, &lie)?;
    let said: Value = reply.json();
    assert_eq!((reply.status, &said["error"]["code"]), (400, &json!(-32020)), "{said}");
    // Only what looks like a name is logged.
    let odd = [("Mcp-Name", "a\"b c"), ("Mcp-Method", "tools/\"steal"), ("Host", host.as_str())];
    http::once(front, LIMIT, &http::request("POST", "/mcp", &odd, b"{}"))?;
    // The last line is written after its answer.
    let until = Instant::now() + LIMIT;
    while stage.cluster.requests()?.len() < 137 && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    let lines = stage.cluster.requests()?;
    let has = |part: &str| lines.iter().filter(|l| l.contains(part)).count();
    assert_eq!(has("\"tools/call\" \"stripe_refunds_create\""), 45);
    assert_eq!(has("\"tools/list\" \"-\""), 45);
    assert_eq!(has("\"legacy\" \"-\""), 45);
    assert_eq!(has("\"tools/call\" \"operation_status\""), 1);
    assert_eq!((has("\"other\" \"-\""), has("steal")), (1, 0));
    // All replicas took part.
    for at in addresses(&stage.cluster) {
        assert!(lines.iter().any(|l| l.ends_with(&at.to_string())), "{at} answered nothing");
    }
    Ok(())
}
