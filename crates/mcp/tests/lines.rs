//! One message a line: both eras on one connection, what is refused, what is cancelled, and how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

extern crate counterfoil_mcp as mcp;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mcp::constants::method;
use mcp::error::RpcError;
use mcp::json::{Limits, Raw};
use mcp::message::Notification;
use mcp::server::{
    Caller, Client, Delivery, Exchange, Line, LineReader, LinesConfig, Opened, Opening, Outcome, Responder,
    Service, SessionRefusal, Subscription, Transport, WireResult, serve_lines,
};
use mcp::{Eras, Revision};
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What the service saw.
#[derive(Debug, PartialEq)]
enum Seen {
    Began(String),
    Gone,
    Fate(Delivery),
    Notified(String),
    EndedSession(Option<String>),
}

struct Moods {
    seen: mpsc::UnboundedSender<Seen>,
    release: Notify,
    running: AtomicUsize,
    most: AtomicUsize,
    listens: Mutex<Vec<Subscription>>,
    streams: Mutex<Vec<Subscription>>,
}

fn raw(text: &str) -> Raw {
    Raw::parse(text.to_owned(), &Limits::default()).unwrap()
}

fn result(exchange: &Exchange, text: &str) -> WireResult {
    if exchange.caller.revision.is_legacy() {
        WireResult::legacy(&raw(text), &[]).unwrap()
    } else {
        WireResult::complete(&raw(text), &[]).unwrap()
    }
}

impl Service for Moods {
    fn ready(&self, exchange: &Exchange) -> Option<Outcome> {
        match exchange.request.method.as_str() {
            method::TOOLS_LIST => Some(result(exchange, r#"{"tools":[],"ttlMs":0,"cacheScope":"public"}"#).into()),
            method::DISCOVER if !exchange.caller.revision.is_legacy() => {
                Some(result(exchange, r#"{"supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"public"}"#).into())
            }
            "test/panic" => panic!("on purpose"),
            _ => None,
        }
    }

    async fn call(self: Arc<Self>, exchange: Exchange, responder: Responder) {
        assert_eq!(exchange.caller.transport, Transport::Lines);
        if exchange.request.method == method::LISTEN {
            let wanted = exchange.request.params.as_ref().unwrap().get("notifications").unwrap();
            let subscription = responder.listen(&wanted, &[]);
            self.listens.lock().await.push(subscription);
            return;
        }
        if exchange.request.method != method::TOOLS_CALL {
            responder.finish(RpcError::method_not_found(&exchange.request.method));
            return;
        }
        let name = exchange.request.params.as_ref().unwrap().get("name").unwrap();
        let name = name.as_string().unwrap().into_owned();
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.seen.send(Seen::Began(name.clone())).unwrap();
        match name.as_str() {
            "echo" => {
                let about = format!(
                    "{{\"content\":[],\"revision\":\"{}\",\n \"session\":{}}}",
                    exchange.caller.revision,
                    json!(exchange.caller.session)
                );
                responder.finish(result(&exchange, &about));
            }
            "hold" => {
                let notifier = responder.notifier();
                tokio::select! {
                    () = notifier.gone() => self.seen.send(Seen::Gone).unwrap(),
                    () = self.release.notified() => {}
                }
                let fate = responder.finish(result(&exchange, r#"{"content":[]}"#)).await;
                let _ = self.seen.send(Seen::Fate(fate));
            }
            "steps" => {
                for step in 1..=3 {
                    responder.progress(f64::from(step), Some(3.0), None);
                }
                responder.finish(result(&exchange, r#"{"content":[],"steps":3}"#));
            }
            "big" => {
                let text = format!(r#"{{"content":[],"big":"{}"}}"#, "x".repeat(200_000));
                let fate = responder.finish(result(&exchange, &text)).await;
                let _ = self.seen.send(Seen::Fate(fate));
            }
            "panic" => panic!("on purpose"),
            _ => {}
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    async fn initialize(self: Arc<Self>, _: Caller, opening: Opening) -> Result<Opened, RpcError> {
        assert!(opening.capabilities.is_object());
        let result = raw(r#"{"capabilities":{"tools":{}},"serverInfo":{"name":"t","version":"1"}}"#);
        Ok(Opened { result, session: Some("s-1".into()) })
    }

    async fn client(&self, _: &Caller) -> Result<Client, SessionRefusal> {
        Ok(Client::default())
    }

    async fn end_session(&self, caller: &Caller) -> Result<(), SessionRefusal> {
        let _ = self.seen.send(Seen::EndedSession(caller.session.as_deref().map(Into::into)));
        Ok(())
    }

    async fn stream(self: Arc<Self>, _: Caller, stream: Subscription) {
        assert!(stream.notify("notifications/tools/list_changed", None));
        self.streams.lock().await.push(stream);
    }

    async fn notified(self: Arc<Self>, _: Caller, notification: Notification) {
        self.seen.send(Seen::Notified(notification.method)).unwrap();
    }
}

struct Rig {
    reader: LineReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
    service: Arc<Moods>,
    seen: mpsc::UnboundedReceiver<Seen>,
    shutdown: CancellationToken,
    served: JoinHandle<()>,
}

fn rig_with(config: LinesConfig, buffer: usize) -> Rig {
    let (near, far) = duplex(buffer);
    let (seen, heard) = mpsc::unbounded_channel();
    let service = Arc::new(Moods {
        seen,
        release: Notify::new(),
        running: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        listens: Mutex::default(),
        streams: Mutex::default(),
    });
    let shutdown = config.shutdown.clone();
    let (far_reader, far_writer) = split(far);
    let served = tokio::spawn(serve_lines(far_reader, far_writer, config, service.clone()));
    let (reader, writer) = split(near);
    Rig { reader: LineReader::new(reader, 1 << 20), writer, service, seen: heard, shutdown, served }
}

fn rig() -> Rig {
    rig_with(LinesConfig::default(), 1 << 16)
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn modern(id: impl Into<Value>, method: &str, more: &str) -> String {
    let id = id.into();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{more}{META}}}}}"#)
}

fn call(id: impl Into<Value>, tool: &str) -> String {
    modern(id, "tools/call", &format!(r#""name":"{tool}","#))
}

fn legacy(id: impl Into<Value>, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params }).to_string()
}

fn cancel(id: impl Into<Value>) -> String {
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id.into() } })
        .to_string()
}

impl Rig {
    async fn send(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn get(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(5), self.reader.next()).await;
        match line.expect("a line within 5 s").unwrap().expect("a line before the end") {
            Line::Whole(line) => serde_json::from_slice(&line).unwrap(),
            Line::TooLong => panic!("a line over 1 MiB"),
        }
    }

    async fn ask(&mut self, line: &str) -> Value {
        self.send(line).await;
        self.get().await
    }

    async fn saw(&mut self) -> Seen {
        tokio::time::timeout(Duration::from_secs(5), self.seen.recv()).await.expect("within 5 s").unwrap()
    }

    /// Nothing was sent before the answer to this.
    async fn quiet(&mut self) {
        let list = modern("quiet", "tools/list", "");
        assert_eq!(self.ask(&list).await["id"], "quiet");
    }

    async fn initialize(&mut self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "c", "version": "1" }
        });
        let answer = self.ask(&legacy("init", "initialize", &params)).await;
        // The service's stream speaks as soon as there is a session, and never before.
        let news = self.get().await;
        assert_eq!(news, json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        assert_eq!(self.saw().await, Seen::Notified("notifications/initialized".into()));
        answer
    }

    async fn end(mut self) -> Vec<Value> {
        self.writer.shutdown().await.unwrap();
        let mut rest = Vec::new();
        while let Some(Line::Whole(line)) = self.reader.next().await.unwrap() {
            rest.push(serde_json::from_slice(&line).unwrap());
        }
        tokio::time::timeout(Duration::from_secs(5), self.served).await.expect("served to the end").unwrap();
        rest
    }
}

#[tokio::test]
async fn both_eras_share_a_connection() {
    let mut rig = rig();
    let found = rig.ask(&modern(1, "server/discover", "")).await;
    assert_eq!(found["result"]["resultType"], "complete");
    let answer = rig.initialize("2025-06-18").await;
    assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!("init"), &json!("2025-06-18")));
    let old = rig.ask(&legacy(1, "tools/call", &json!({ "name": "echo" }))).await;
    assert_eq!(old["result"], json!({ "content": [], "revision": "2025-06-18", "session": "s-1" }));
    let new = rig.ask(&call(2, "echo")).await;
    assert_eq!(
        new["result"],
        json!({ "content": [], "revision": "2026-07-28", "session": null, "resultType": "complete" })
    );
    assert_eq!(rig.ask(&legacy(3, "ping", &json!({}))).await["result"], json!({}));
    // A client's answer to nothing is passed over; a second session is refused.
    rig.send(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#).await;
    let again = rig.ask(&legacy(4, "initialize", &json!({ "protocolVersion": "2025-06-18" }))).await;
    assert_eq!(again["error"]["code"], -32600);
    // Modern metadata makes it a method that doesn't exist.
    assert_eq!(rig.ask(&modern(5, "initialize", "")).await["error"]["code"], -32601);
    assert_eq!(rig.end().await, Vec::<Value>::new());
}

#[tokio::test]
async fn before_initialize_only_ping_is_answered() {
    let mut rig = rig();
    assert_eq!(rig.ask(&legacy(1, "ping", &json!({}))).await["result"], json!({}));
    for method in ["tools/list", "tools/call", "server/discover", "nothing"] {
        let refused = rig.ask(&legacy(2, method, &json!({ "name": "echo" }))).await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(2), &json!(-32600)), "{refused}");
        let why = refused["error"]["message"].as_str().unwrap();
        assert!(why.contains("initialize") && why.contains("_meta"), "{why}");
    }
    // Broken metadata is the modern era's to judge.
    let old = META.replace("2026-07-28", "2031-01-01");
    let line = format!(r#"{{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{{{old}}}}}"#);
    let refused = rig.ask(&line).await;
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"]["supported"], json!(["2026-07-28"]));
    let line = modern(4, "tools/call", "");
    assert_eq!(rig.ask(&line).await["error"]["code"], -32602, "no name");
    rig.end().await;
}

#[tokio::test]
async fn eras_that_are_not_served_are_refused() {
    let mut rig = rig_with(LinesConfig { eras: Eras::Modern, ..LinesConfig::default() }, 1 << 16);
    let refused = rig.ask(&legacy(1, "initialize", &json!({ "protocolVersion": "2025-11-25" }))).await;
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(rig.ask(&legacy(2, "tools/list", &json!({}))).await["error"]["code"], -32602);
    assert!(rig.ask(&modern(3, "tools/list", "")).await["result"].is_object());
    rig.end().await;
    let mut rig = rig_with(LinesConfig { eras: Eras::Legacy, ..LinesConfig::default() }, 1 << 16);
    let refused = rig.ask(&modern(1, "server/discover", "")).await;
    assert_eq!(refused["error"]["code"], -32600);
    assert!(refused["error"]["message"].as_str().unwrap().contains(Revision::V2025_11_25.as_str()));
    rig.initialize("1999-01-01").await;
    assert!(rig.ask(&legacy(2, "tools/list", &json!({}))).await["result"].is_object());
    rig.end().await;
}

#[tokio::test]
async fn bad_lines_cost_an_error_and_nothing_else() {
    let config = LinesConfig { max_line: 1000, max_depth: 10, ..LinesConfig::default() };
    let mut rig = rig_with(config, 1 << 16);
    for (line, code) in [
        ("{".to_owned(), -32700),
        ("\u{1}".to_owned(), -32700),
        (r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}"#.to_owned(), -32700),
        (format!("{}{}", "[".repeat(20), "]".repeat(20)), -32600),
        (format!(r#"{{"a":{}{}}}"#, "[".repeat(20), "]".repeat(20)), -32700),
        ("7".to_owned(), -32600),
        (format!(r#"{{"a":"{}"}}"#, "x".repeat(5000)), -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#.to_owned(), -32600),
    ] {
        let refused = rig.ask(&line).await;
        assert_eq!(refused["error"]["code"], code, "{line}");
        assert!(refused.get("id").is_none(), "{refused}");
    }
    let refused = rig.ask(r#"{"jsonrpc":"1.0","id":"x","method":"ping"}"#).await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("x"), &json!(-32600)));
    // Exactly the limit, with the line end of another system, and blank lines around it.
    let mut line = modern(1, "tools/list", "");
    line.push_str(&" ".repeat(1000 - line.len()));
    assert_eq!(rig.ask(&format!("\r\n  \n{line}\r")).await["id"], 1);
    line.push(' ');
    assert!(rig.ask(&line).await.get("id").is_none(), "one more");
    rig.quiet().await;
    // What was cut off before its line feed is not carried out.
    rig.writer.write_all(call(7, "echo").as_bytes()).await.unwrap();
    assert_eq!(rig.end().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_cancelled_request_gets_nothing_more_in_either_era() {
    let mut rig = rig();
    rig.send(&call("m", "hold")).await;
    assert_eq!(rig.saw().await, Seen::Began("hold".into()));
    // Another's id, and one that never was, are nothing to act on.
    rig.send(&cancel("other")).await;
    rig.send(&cancel("m")).await;
    assert_eq!(rig.saw().await, Seen::Gone);
    assert_eq!(rig.saw().await, Seen::Fate(Delivery::Undelivered));
    rig.quiet().await;
    rig.initialize("2025-11-25").await;
    rig.send(&legacy("l", "tools/call", &json!({ "name": "hold" }))).await;
    assert_eq!(rig.saw().await, Seen::Began("hold".into()));
    rig.send(&cancel("l")).await;
    assert_eq!(rig.saw().await, Seen::Gone);
    assert_eq!(rig.saw().await, Seen::Fate(Delivery::Undelivered));
    rig.quiet().await;
    // The id is free again.
    assert_eq!(rig.ask(&call("m", "echo")).await["id"], "m");
    rig.end().await;
}

#[tokio::test]
async fn an_id_is_used_once_at_a_time() {
    let mut rig = rig();
    rig.send(&call(1, "hold")).await;
    assert_eq!(rig.saw().await, Seen::Began("hold".into()));
    let refused = rig.ask(&call(1, "echo")).await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32600)));
    // A string is another id than the number.
    assert_eq!(rig.ask(&call("1", "echo")).await["id"], "1");
    assert_eq!(rig.saw().await, Seen::Began("echo".into()));
    rig.service.release.notify_one();
    assert!(rig.get().await["result"].is_object());
    assert_eq!(rig.saw().await, Seen::Fate(Delivery::Written));
    assert!(rig.ask(&call(1, "echo")).await["result"].is_object());
    rig.end().await;
}

#[tokio::test]
async fn answers_come_as_they_are_ready_with_progress_before_them() {
    let mut rig = rig();
    rig.send(&call("slow", "hold")).await;
    let meta = META.replace("\"_meta\":{", r#""_meta":{"progressToken":"t","#);
    let line =
        format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"steps",{meta}}}}}"#);
    rig.send(&line).await;
    for step in 1..=3 {
        let news = rig.get().await;
        assert_eq!(news["method"], "notifications/progress");
        assert_eq!(
            (&news["params"]["progressToken"], &news["params"]["progress"]),
            (&json!("t"), &json!(step))
        );
    }
    assert_eq!(rig.get().await["result"]["steps"], 3);
    // A panic answers, wherever it happens.
    assert_eq!(rig.ask(&call(3, "panic")).await["error"]["code"], -32603);
    assert_eq!(rig.ask(&modern(4, "test/panic", "")).await["error"]["code"], -32603);
    assert_eq!(rig.ask(&call(5, "forgets")).await["error"]["code"], -32603);
    rig.service.release.notify_one();
    assert_eq!(rig.get().await["id"], "slow");
    rig.end().await;
}

#[tokio::test]
async fn listen_streams_are_tagged_and_ended() {
    let mut rig = rig_with(LinesConfig { max_listens: 2, ..LinesConfig::default() }, 1 << 16);
    let listen =
        |id: Value| modern(id, "subscriptions/listen", r#""notifications":{"toolsListChanged":true},"#);
    for id in [json!(1), json!("two")] {
        let opened = rig.ask(&listen(id.clone())).await;
        assert_eq!(opened["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(opened["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    }
    assert_eq!(rig.ask(&listen(json!(3))).await["error"]["code"], -32600, "too many");
    let tell = async |rig: &mut Rig| {
        let mut told = Vec::new();
        for subscription in rig.service.clone().listens.lock().await.iter() {
            told.push(subscription.notify("notifications/tools/list_changed", None));
        }
        told
    };
    assert_eq!(tell(&mut rig).await, [true, true]);
    let mut tags = Vec::new();
    for _ in 0..2 {
        let news = rig.get().await;
        assert_eq!(news["method"], "notifications/tools/list_changed");
        tags.push(news["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone());
    }
    assert!(tags.contains(&json!(1)) && tags.contains(&json!("two")), "{tags:?}");
    // Cancelled by the client: nothing more.
    rig.send(&cancel(1)).await;
    rig.quiet().await;
    assert_eq!(tell(&mut rig).await, [false, true]);
    assert_eq!(rig.get().await["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "two");
    // Ended by the server: its final result, then its name.
    rig.shutdown.cancel();
    let last = rig.get().await;
    assert_eq!(last["id"], "two");
    assert_eq!(last["result"]["resultType"], "complete");
    assert_eq!(last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "two");
    let named = rig.get().await;
    assert_eq!(named["method"], "notifications/cancelled");
    assert_eq!(named["params"], json!({ "requestId": "two" }));
    assert!(rig.reader.next().await.unwrap().is_none(), "the connection ends");
    rig.served.await.unwrap();
}

#[tokio::test]
async fn a_shutdown_lets_calls_end_and_refuses_new_ones() {
    let mut rig = rig();
    rig.send(&call(1, "hold")).await;
    assert_eq!(rig.saw().await, Seen::Began("hold".into()));
    rig.shutdown.cancel();
    // Not read before the shutdown was seen.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let refused = rig.ask(&call(2, "echo")).await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(2), &json!(-32600)));
    rig.service.release.notify_one();
    assert!(rig.get().await["result"].is_object());
    assert_eq!(rig.saw().await, Seen::Fate(Delivery::Written));
    assert!(rig.reader.next().await.unwrap().is_none());
    rig.served.await.unwrap();
}

#[tokio::test]
async fn what_outlasts_a_shutdown_is_told_or_left() {
    for farewell in [true, false] {
        let drain = Duration::from_millis(50);
        let mut rig = rig_with(LinesConfig { farewell, drain, ..LinesConfig::default() }, 1 << 16);
        rig.send(&call(1, "hold")).await;
        assert_eq!(rig.saw().await, Seen::Began("hold".into()));
        rig.shutdown.cancel();
        if farewell {
            let told = rig.get().await;
            assert_eq!((&told["id"], &told["error"]["code"]), (&json!(1), &json!(-32603)));
        }
        assert!(rig.reader.next().await.unwrap().is_none());
        (&mut rig.served).await.unwrap();
        // Whoever was told to ask later isn't gone; whoever was left has to be taken as gone.
        if farewell {
            rig.service.release.notify_one();
        } else {
            assert_eq!(rig.saw().await, Seen::Gone);
        }
        assert_eq!(rig.saw().await, Seen::Fate(Delivery::Undelivered));
    }
}

#[tokio::test]
async fn calls_wait_for_their_turn_and_cancellations_do_not() {
    let config = LinesConfig { max_calls: 2, max_waiting: 4, ..LinesConfig::default() };
    let mut rig = rig_with(config, 1 << 16);
    for id in 0..6 {
        rig.send(&call(id, "hold")).await;
    }
    for _ in 0..2 {
        assert_eq!(rig.saw().await, Seen::Began("hold".into()));
    }
    // The queue is full: what comes now isn't read, however much of it.
    let begun = async {
        for id in 100..5000 {
            rig.writer.write_all(format!("{}\n", call(id, "echo")).as_bytes()).await.unwrap();
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_millis(200), begun).await.is_err(),
        "the writer is held back"
    );
    drop(rig);

    let config = LinesConfig { max_calls: 2, max_waiting: 100, ..LinesConfig::default() };
    let mut rig = rig_with(config, 1 << 16);
    for id in 0..6 {
        rig.send(&call(id, "hold")).await;
    }
    for _ in 0..2 {
        assert_eq!(rig.saw().await, Seen::Began("hold".into()));
    }
    // One that waits, and one that runs, whose turn goes to the next.
    rig.send(&cancel(3)).await;
    rig.send(&cancel(0)).await;
    assert_eq!(rig.saw().await, Seen::Gone);
    assert_eq!(rig.saw().await, Seen::Fate(Delivery::Undelivered));
    assert_eq!(rig.saw().await, Seen::Began("hold".into()));
    let mut answered = Vec::new();
    for _ in 0..4 {
        rig.service.release.notify_one();
        answered.push(rig.get().await["id"].as_u64().unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, [1, 2, 4, 5]);
    assert_eq!(rig.service.most.load(Ordering::SeqCst), 2);
    rig.end().await;
}

#[tokio::test]
async fn the_end_of_the_input_reaches_running_calls() {
    let mut rig = rig();
    rig.initialize("2025-11-25").await;
    rig.send(&call(1, "hold")).await;
    rig.send(&legacy(2, "tools/call", &json!({ "name": "hold" }))).await;
    for _ in 0..2 {
        assert_eq!(rig.saw().await, Seen::Began("hold".into()));
    }
    let Rig { mut writer, mut reader, mut seen, served, service, .. } = rig;
    writer.shutdown().await.unwrap();
    assert!(reader.next().await.unwrap().is_none());
    served.await.unwrap();
    let mut all = Vec::new();
    while let Ok(one) = seen.try_recv() {
        all.push(one);
    }
    assert_eq!(all.iter().filter(|s| **s == Seen::Gone).count(), 2);
    assert_eq!(all.iter().filter(|s| **s == Seen::Fate(Delivery::Undelivered)).count(), 2);
    assert_eq!(all.last(), Some(&Seen::EndedSession(Some("s-1".into()))));
    assert!(service.streams.lock().await.iter().all(Subscription::is_ended));
}

#[tokio::test]
async fn an_answer_is_written_when_its_reader_took_it() {
    // A pipe that holds less than one answer.
    let mut rig = rig_with(LinesConfig::default(), 4096);
    rig.send(&call(1, "big")).await;
    assert_eq!(rig.saw().await, Seen::Began("big".into()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(rig.seen.try_recv().is_err(), "nobody read it yet");
    assert_eq!(rig.get().await["result"]["big"].as_str().unwrap().len(), 200_000);
    assert_eq!(rig.saw().await, Seen::Fate(Delivery::Written));
    rig.send(&call(2, "big")).await;
    assert_eq!(rig.saw().await, Seen::Began("big".into()));
    let Rig { reader, writer, mut seen, served, .. } = rig;
    drop((reader, writer));
    assert_eq!(seen.recv().await, Some(Seen::Fate(Delivery::Undelivered)));
    served.await.unwrap();
}

#[tokio::test]
async fn batches_belong_to_the_oldest_revision() {
    let mut rig = rig();
    rig.initialize("2025-03-26").await;
    let one = |id: Value, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let batch = json!([
        one(json!(1), "ping", json!({})),
        { "jsonrpc": "2.0", "method": "notifications/roots/list_changed" },
        one(json!(2), "tools/call", json!({ "name": "hold" })),
        one(json!(3), "initialize", json!({ "protocolVersion": "2025-03-26" })),
        one(json!(4), "tools/call", json!({ "name": "hold" })),
        { "jsonrpc": "2.0", "id": null, "method": "ping" },
        7,
        one(json!(5), "tools/list", json!({})),
    ]);
    rig.send(&batch.to_string()).await;
    assert_eq!(rig.saw().await, Seen::Notified("notifications/roots/list_changed".into()));
    for _ in 0..2 {
        assert_eq!(rig.saw().await, Seen::Began("hold".into()));
    }
    // The others go on meanwhile; what is cancelled is missing.
    rig.quiet().await;
    rig.send(&cancel(4)).await;
    assert_eq!(rig.saw().await, Seen::Gone);
    rig.service.release.notify_one();
    let answers = rig.get().await;
    let answers = answers.as_array().unwrap();
    let of = |id: Value| answers.iter().find(|a| a["id"] == id).unwrap_or(&Value::Null);
    assert_eq!(answers.len(), 6, "{answers:?}");
    assert_eq!(of(json!(1))["result"], json!({}));
    assert_eq!(of(json!(2))["result"], json!({ "content": [] }));
    assert_eq!(of(json!(3))["error"]["code"], -32600);
    assert_eq!(of(json!(5))["result"], json!({ "tools": [], "ttlMs": 0, "cacheScope": "public" }));
    assert_eq!(answers.iter().filter(|a| a.get("id").is_none()).count(), 2);
    // Notifications alone get no answer; an empty batch and too large a one get one error.
    rig.send(r#"[{"jsonrpc":"2.0","method":"notifications/a"}]"#).await;
    rig.quiet().await;
    assert_eq!(rig.ask("[]").await["error"]["code"], -32600);
    let many: Vec<_> = (0..33).map(|n| one(json!(n), "ping", json!({}))).collect();
    assert_eq!(rig.ask(&json!(many).to_string()).await["error"]["code"], -32600);
    rig.end().await;
}
