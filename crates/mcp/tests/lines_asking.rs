//! Questions over lines: on the connection itself, answered by a line, and silent after a cancellation.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
extern crate counterfoil_mcp as mcp;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mcp::constants::method;
use mcp::error::RpcError;
use mcp::json::{Limits, Raw};
use mcp::server::{
    Caller, ClientError, Exchange, LinesConfig, Opened, Opening, Responder, Service, WireResult, serve_lines,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, duplex, split};
use tokio::sync::oneshot;

type Answer = Result<Raw, ClientError>;

#[derive(Default)]
struct Asker {
    waiting: Mutex<HashMap<String, oneshot::Sender<Answer>>>,
}

fn raw(text: &str) -> Raw {
    Raw::parse(text.to_owned(), &Limits::default()).unwrap()
}

impl Service for Asker {
    async fn call(self: Arc<Self>, exchange: Exchange, responder: Responder) {
        let id = format!("q-{}", exchange.request.id.as_str());
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id.clone(), sender);
        let asked = match responder.request(id, method::ROOTS_LIST, None) {
            Ok(asked) => asked,
            Err(why) => {
                return drop(responder.finish(RpcError::application(7003, "unsent", format!("{why:?}"))));
            }
        };
        let given = tokio::select! {
            given = answer => given.unwrap(),
            () = responder.gone() => return,
        };
        asked.answered();
        let given = given.map_or_else(|error| error.message, |raw| raw.to_string());
        let result = json!({"content": [], "given": given}).to_string();
        responder.finish(WireResult::legacy(&raw(&result), &[]).unwrap());
    }

    async fn initialize(self: Arc<Self>, _: Caller, _: Opening) -> Result<Opened, RpcError> {
        let result = raw(r#"{"capabilities":{},"serverInfo":{"name":"t","version":"1"}}"#);
        Ok(Opened { result, session: Some("s-1".into()) })
    }

    async fn end_session(&self, _: &Caller) -> Result<(), mcp::server::SessionRefusal> {
        Ok(())
    }

    async fn response(self: Arc<Self>, caller: Caller, id: String, outcome: Answer) -> Result<(), RpcError> {
        assert_eq!(caller.session.as_deref(), Some("s-1"));
        assert!(id != "panic", "on purpose");
        match self.waiting.lock().unwrap().remove(&id) {
            Some(waiting) => drop(waiting.send(outcome)),
            None => return Err(RpcError::unavailable("nobody waits")),
        }
        Ok(())
    }
}

struct Connection {
    lines: Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
    writer: tokio::io::WriteHalf<DuplexStream>,
}

impl Connection {
    fn open() -> Connection {
        let (ours, theirs) = duplex(1 << 16);
        let (reader, writer) = split(theirs);
        let config = LinesConfig { drain: Duration::from_millis(100), ..LinesConfig::default() };
        tokio::spawn(serve_lines(reader, writer, config, Arc::new(Asker::default())));
        let (reader, writer) = split(ours);
        Connection { lines: BufReader::new(reader).lines(), writer }
    }

    async fn say(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(5), self.lines.next_line()).await;
        serde_json::from_str(&line.expect("nothing was said").unwrap().unwrap()).unwrap()
    }

    async fn initialize(&mut self, revision: &str) {
        self.say(&format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{revision}"}}}}"#
        ))
        .await;
        assert_eq!(self.hear().await["result"]["protocolVersion"], revision);
    }

    async fn call(&mut self, id: u32) {
        self.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"x"}}}}"#))
            .await;
        let question = json!({"jsonrpc": "2.0", "method": "roots/list", "id": format!("q-{id}")});
        assert_eq!(self.hear().await, question);
    }

    async fn ping(&mut self) {
        self.say(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).await;
        assert_eq!(self.hear().await, json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
    }
}

#[tokio::test]
async fn a_line_answers_what_a_line_asked() {
    let mut connection = Connection::open();
    // Before a session there is nobody who could have been asked.
    connection.say(r#"{"jsonrpc":"2.0","id":"panic","result":{}}"#).await;
    connection.initialize("2025-11-25").await;
    connection.call(1).await;
    connection.call(2).await;
    for odd in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"q-9","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"panic","result":{}}"#,
    ] {
        connection.say(odd).await;
    }
    connection.ping().await;
    connection.say(r#"{"jsonrpc":"2.0","id":"q-2","error":{"code":-32601,"message":"What?"}}"#).await;
    let second = connection.hear().await;
    assert_eq!((&second["id"], &second["result"]["given"]), (&json!(2), &json!("What?")));
    connection.say(r#"{"jsonrpc":"2.0","id":"q-1","result":{"roots":[]}}"#).await;
    let first = connection.hear().await;
    assert_eq!((&first["id"], &first["result"]["given"]), (&json!(1), &json!(r#"{"roots":[]}"#)));
}

#[tokio::test]
async fn nothing_is_said_of_a_cancelled_request_and_its_question() {
    let mut connection = Connection::open();
    connection.initialize("2025-06-18").await;
    connection.call(1).await;
    connection.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    connection.say(r#"{"jsonrpc":"2.0","id":"q-1","result":{"roots":[]}}"#).await;
    connection.ping().await;
}

#[tokio::test]
async fn a_batch_may_hold_answers_and_its_requests_may_ask() {
    let mut connection = Connection::open();
    connection.initialize("2025-03-26").await;
    connection.call(1).await;
    let batch = r#"[{"jsonrpc":"2.0","id":"q-1","result":{"roots":[]}},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}]"#;
    connection.say(batch).await;
    let mut heard = [connection.hear().await, connection.hear().await];
    heard.sort_by_key(|message| message["method"].is_string());
    assert_eq!(heard[0]["result"]["given"], r#"{"roots":[]}"#);
    assert_eq!(heard[1]["id"], "q-2");
    connection.say(r#"[{"jsonrpc":"2.0","id":"q-2","result":{"roots":[ ]}}]"#).await;
    assert_eq!(connection.hear().await[0]["result"]["given"], r#"{"roots":[ ]}"#);
}

#[tokio::test]
async fn a_modern_request_beside_a_session_is_never_asked() {
    let mut connection = Connection::open();
    connection.initialize("2025-11-25").await;
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    connection
        .say(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{meta},"name":"x"}}}}"#))
        .await;
    assert_eq!(connection.hear().await["error"]["message"], "NoStream");
}
