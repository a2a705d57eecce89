//! What a server asks of its client: legacy, on the stream of a request or of a session; modern, in rounds. And what a
//! client does with it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
extern crate counterfoil_mcp as mcp;

mod common;
use std::sync::Mutex;
use std::time::Duration;

use common::{ASK, EVENTS, Seen, Server, call, cancel, legacy_call, message, raw};
use mcp::client::{CallOptions, ClientConfig, LegacyClient, McpClient, Question, Round};
use mcp::constants::method;
use mcp::input::InputRequest;
use mcp::server::{ServeLimits, SessionStreams, Unsent};
use mcp::{Error, Raw, RawObject, Revision};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ANN: (&str, &str) = ("X-Who", "ann");

/// A connection that is read as messages come.
struct Open {
    stream: TcpStream,
    text: String,
}

impl Open {
    async fn of(server: &Server, request: &[u8]) -> Open {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(request).await.unwrap();
        Open { stream, text: String::new() }
    }

    /// The next message of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((at, rest)) = self.text.split_once("data: ").map(|(_, rest)| rest).and_then(|rest| {
                let end = rest.find('\n')?;
                Some((rest[..end].to_owned(), rest[end..].to_owned()))
            }) {
                self.text = rest;
                return Some(serde_json::from_str(&at).unwrap());
            }
            let mut bytes = [0; 4096];
            let reading = tokio::time::timeout(Duration::from_secs(5), self.stream.read(&mut bytes));
            match reading.await.expect("nothing came").unwrap() {
                0 => return None,
                n => self.text.push_str(&String::from_utf8_lossy(&bytes[..n])),
            }
        }
    }
}

fn answer(id: &str, rest: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#)
}

async fn asking(server: &Server, more: &[(&str, &str)]) -> Open {
    let mut all = vec![("MCP-Protocol-Version", "2025-11-25")];
    all.extend(more);
    Open::of(server, &server.legacy_request(&legacy_call("1", "ask", "{}"), &all)).await
}

#[tokio::test]
async fn a_question_travels_on_its_requests_stream() {
    let server = Server::start().await;
    for (rest, outcome) in [
        (r#""result":{"action":"accept","content":{}}"#, json!({"action": "accept", "content": {}})),
        (r#""error":{"code":-1,"message":"No\nway."}"#, json!([-1, "No way."])),
        (r#""error":{"code":"x","message":7}"#, json!([0, ""])),
        (r#""error":"odd""#, json!([0, ""])),
    ] {
        let mut open = asking(&server, &[ANN]).await;
        assert_eq!(
            open.next().await.unwrap(),
            json!({"jsonrpc": "2.0", "method": "elicitation/create", "id": "q-1", "params": {
                "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}})
        );
        // Others, and what can't be meant, change nothing.
        for other in ["\"q-2\"", "1", "\"\"", &format!("\"{}\"", "q".repeat(256))] {
            assert_eq!(server.legacy(&answer(other, rest), &[ANN]).await.status, 202);
        }
        let taken = server.legacy(&answer("\"q-1\"", rest), &[ANN]).await;
        assert_eq!((taken.status, taken.body.as_str()), (202, ""));
        let last = open.next().await.unwrap();
        assert_eq!((&last["id"], &last["result"]["outcome"]), (&json!(1), &outcome));
        assert_eq!(open.next().await, None, "nothing was withdrawn");
    }
    let words = "é".repeat(500);
    let mut open = asking(&server, &[ANN]).await;
    open.next().await.unwrap();
    let long = answer("\"q-1\"", &format!(r#""error":{{"code":1,"message":"{words}"}}"#));
    server.legacy(&long, &[ANN]).await;
    let kept = open.next().await.unwrap()["result"]["outcome"][1].as_str().unwrap().chars().count();
    assert_eq!(kept, 200, "a client's words are kept short");
}

#[tokio::test]
async fn an_answer_that_can_not_be_taken_is_told() {
    let server = Server::start().await;
    let result = answer("\"q-1\"", r#""result":{}"#);
    let refused = server.legacy(&result, &[("X-Refuse", "response")]).await;
    assert_eq!(refused.refusal(), (503, -32603, None));
    assert!(refused.head.contains("retry-after: 1"));
    let panicked = server.legacy(&result, &[("X-Panic", "response")]).await;
    assert_eq!(panicked.refusal(), (500, -32603, None));
    let batch = format!("[{result}]");
    assert_eq!(server.legacy(&batch, &[]).await.status, 202);
    assert_eq!(server.legacy(&batch, &[("X-Refuse", "response")]).await.refusal(), (503, -32603, None));
    let foreign = server.legacy(&result, &[("Mcp-Session-Id", "no-such")]).await;
    assert_eq!(foreign.refusal(), (404, -32600, None));
    assert_eq!(server.post(&result, &[]).await.refusal(), (400, -32600, None), "the modern era has none");
}

#[tokio::test]
async fn a_batch_may_hold_answers() {
    let server = Server::start().await;
    let mut open = asking(&server, &[ANN]).await;
    open.next().await.unwrap();
    let batch = format!(
        "[{},{}]",
        answer("\"q-1\"", r#""result":{"action":"cancel"}"#),
        legacy_call("2", "echo", "{}")
    );
    assert_eq!(server.legacy(&batch, &[ANN]).await.json().as_array().unwrap().len(), 1);
    assert_eq!(open.next().await.unwrap()["result"]["outcome"], json!({"action": "cancel"}));
}

#[tokio::test]
async fn a_question_that_is_moot_is_withdrawn() {
    let server = Server::start().await;
    let withdrawn =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q-1"}});
    // The server doesn't want to know any more.
    let mut open = asking(&server, &[ANN]).await;
    open.next().await.unwrap();
    server.moods.release.notify_one();
    assert_eq!(open.next().await.unwrap(), withdrawn);
    assert_eq!(open.next().await.unwrap()["result"]["moot"], true);
    assert_eq!(open.next().await, None);
    // The client has cancelled the request.
    let mut open = asking(&server, &[ANN]).await;
    open.next().await.unwrap();
    assert_eq!(server.legacy(&cancel("1"), &[ANN]).await.status, 202);
    let mut rest = vec![open.next().await.unwrap()];
    rest.extend(open.next().await);
    let codes: Vec<_> =
        rest.iter().filter(|m| **m != withdrawn).map(|m| m["error"]["code"].clone()).collect();
    assert_eq!(codes, [json!(-32800)], "{rest:?}");
}

#[tokio::test]
async fn where_no_stream_is_nothing_is_asked() {
    let mut server = Server::start().await;
    let json_only = server.legacy(&legacy_call("1", "ask", "{}"), &[("Accept", "application/json")]).await;
    assert_eq!(json_only.json()["error"]["message"], "NoStream");
    let batch = server.legacy(&format!("[{}]", legacy_call("1", "ask", "{}")), &[]).await;
    assert_eq!(batch.json()[0]["error"]["message"], "NoStream");
    let mut open = asking(&server, &[ANN]).await;
    open.next().await.unwrap();
    drop(open);
    assert_eq!(server.next().await, Seen::Cut, "who asked learns that nobody may have seen it");
}

#[tokio::test]
async fn a_session_is_asked_on_its_newest_stream() {
    let streams = SessionStreams::default();
    let kept = streams.clone();
    let mut server = Server::with(|c| c.session_streams = kept, ServeLimits::default()).await;
    let ask = |id: &str| streams.request("s-1", id.to_owned(), method::ROOTS_LIST, None);
    assert_eq!(ask("q-1").unwrap_err(), Unsent::Gone);
    server.legacy(ASK, &[ANN, ("X-Open", "s-1")]).await;
    let session = [ANN, EVENTS, ("Mcp-Session-Id", "s-1"), ("MCP-Protocol-Version", "2025-11-25")];
    let mut first = Open::of(&server, &server.bare("GET", &session)).await;
    while !streams.has("s-1") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    ask("q-1").unwrap().answered();
    let question = |id: &str| json!({"jsonrpc": "2.0", "method": "roots/list", "id": id});
    assert_eq!(first.next().await.unwrap(), question("q-1"));
    let mut second = Open::of(&server, &server.bare("GET", &session)).await;
    while server.moods.streams.lock().await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(ask("q-2").unwrap());
    assert_eq!(second.next().await.unwrap(), question("q-2"));
    assert_eq!(second.next().await.unwrap()["params"]["requestId"], "q-2", "withdrawn");
    let kept = server.moods.answer_to("q-3");
    let asked = ask("q-3").unwrap();
    second.next().await.unwrap();
    let result = answer("\"q-3\"", r#""result":{"roots":[]}"#);
    assert_eq!(server.legacy(&result, &session[..1]).await.status, 202);
    assert_eq!(kept.await.unwrap().unwrap().as_str(), r#"{"roots":[]}"#);
    asked.answered();
    // The newer one ends; the older one is asked.
    let asked = ask("q-4").unwrap();
    drop(second);
    tokio::time::timeout(Duration::from_secs(5), asked.cut()).await.unwrap();
    asked.answered();
    assert_eq!(server.next().await, Seen::Ended);
    ask("q-5").unwrap().answered();
    assert_eq!(first.next().await.unwrap(), question("q-5"));
    let subscription = server.moods.streams.lock().await[0].clone();
    subscription.request("q-6".into(), method::ROOTS_LIST, Some(&raw("{}"))).unwrap().answered();
    assert_eq!(first.next().await.unwrap()["params"], json!({}));
    drop(first);
    assert_eq!(server.next().await, Seen::Ended);
    while streams.has("s-1") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(ask("q-7").unwrap_err(), Unsent::Gone);
}

#[tokio::test]
async fn a_modern_client_is_asked_in_rounds_and_never_by_a_request() {
    let server = Server::start().await;
    let first = server.post(&call("ask", "{}"), &[]).await.json();
    assert_eq!(
        first["result"],
        json!({"resultType": "input_required", "inputRequests": {"r0": {"method": "roots/list"}}, "requestState": "1"})
    );
    let again = message(
        "2",
        "tools/call",
        r#""name":"ask","inputResponses":{"r0":{"roots":[]}},"requestState":"1","arguments":{}"#,
    );
    assert_eq!(server.post(&again, &[]).await.json()["result"]["given"], json!([["r0", {"roots": []}]]));
    for (wrong, words) in [
        (r#""inputResponses":null"#, "params.inputResponses must be an object of objects"),
        (r#""inputResponses":{"a":null}"#, "params.inputResponses must be an object of objects"),
        (r#""requestState":7"#, "params.requestState must be a string"),
    ] {
        let answer = server.post(&message("3", "tools/call", &format!(r#""name":"ask",{wrong}"#)), &[]).await;
        assert_eq!(answer.refusal(), (400, -32602, Some(json!(3))));
        assert_eq!(answer.json()["error"]["message"], format!("Invalid params: {words}. Nothing ran."));
    }
}

#[tokio::test]
async fn a_tasks_id_is_mirrored() {
    let server = Server::start().await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let asked = message("1", method, r#""taskId":"task_1","inputResponses":{}"#);
        let code = |answer: common::Answer| answer.refusal().1;
        assert_eq!(code(server.post(&asked, &[]).await), -32020, "{method} needs Mcp-Name");
        assert_eq!(code(server.post(&asked, &[("Mcp-Name", Some("task_2"))]).await), -32020);
        assert_eq!(code(server.post(&asked, &[("Mcp-Name", Some("task_1"))]).await), -32601, "admitted");
        let unnamed = message("1", method, "");
        assert_eq!(code(server.post(&unnamed, &[("Mcp-Name", Some("task_1"))]).await), -32602);
    }
    let client = McpClient::new(ClientConfig::new(server.url(), "c", "1")).unwrap();
    let id = "task_é";
    for asked in [
        client.get_task(id, CallOptions::default()).await,
        client.update_task(id, &[("a", raw("{}"))], CallOptions::default()).await,
        client.cancel_task(id, CallOptions::default()).await,
    ] {
        assert!(matches!(asked, Err(Error::Rpc { code: -32601, .. })), "admitted: {asked:?}");
    }
}

fn modern(server: &Server) -> McpClient {
    McpClient::new(ClientConfig::new(server.url(), "c", "1")).unwrap()
}

fn rounds(n: u32) -> RawObject {
    raw(&format!(r#"{{"rounds":{n}}}"#)).object().unwrap()
}

#[tokio::test]
async fn our_client_answers_each_round_under_a_new_id() {
    let server = Server::start().await;
    let client = modern(&server);
    let asked = Mutex::new(Vec::new());
    let roots = async |question: Question| {
        assert_eq!(question.request().unwrap(), InputRequest::roots(&question.key).unwrap());
        asked.lock().unwrap().push(question.key);
        Some(raw(r#"{"roots":[ ]}"#))
    };
    let options =
        CallOptions { params: vec![("requestState".into(), raw("\"0\""))], ..CallOptions::default() };
    let reply = client.call_tool_answering("ask", Some(&rounds(10)), options, roots).await.unwrap();
    assert_eq!(reply.result_type, "complete");
    assert_eq!(reply.result.get("given").unwrap().as_str(), r#"[["r9",{"roots":[ ]}]]"#);
    assert_eq!(reply.result.get("id").unwrap().as_str(), "11");
    assert_eq!(asked.lock().unwrap().len(), 10);
    let reply =
        client.call_tool_answering("ask", Some(&rounds(11)), CallOptions::default(), roots).await.unwrap();
    assert_eq!(reply.result_type, "input_required", "ten rounds and no more");
    assert_eq!(reply.result.get("requestState").unwrap().as_str(), "\"11\"");
    let silent = async |_: Question| None;
    let reply =
        client.call_tool_answering("ask", Some(&rounds(1)), CallOptions::default(), silent).await.unwrap();
    assert_eq!(reply.result_type, "input_required", "what isn't answered isn't sent");
}

#[tokio::test]
async fn a_state_goes_back_as_it_came_and_odd_questions_are_refused() {
    let reply = |text: &str| mcp::client::Reply {
        result: raw(text).object().unwrap(),
        result_type: "input_required".into(),
    };
    let odd = r#"{"requestState":"a\u00e9\/\"","inputRequests":{}}"#;
    let params = Round::of(&reply(odd)).unwrap().unwrap().params();
    assert_eq!(params.len(), 1, "nothing was asked, so nothing is answered");
    assert_eq!((params[0].0.as_str(), params[0].1.as_str()), ("requestState", r#""a\u00e9\/\"""#));
    let mut round = Round::of(&reply(r#"{"inputRequests":{"a":{"method":"roots/list"}}}"#)).unwrap().unwrap();
    round.answer("a", raw("{}"));
    round.answer("a", raw(r#"{"roots":[]}"#));
    let params = round.params();
    assert_eq!(
        (params.len(), params[0].1.as_str()),
        (1, r#"{"a":{"roots":[]}}"#),
        "no state, so none is sent"
    );
    for broken in [
        "{}",
        r#"{"inputRequests":{}}"#,
        r#"{"requestState":null}"#,
        r#"{"inputRequests":[]}"#,
        r#"{"inputRequests":{"a":7}}"#,
        r#"{"inputRequests":{"a":{"method":"roots/list","params":[]}}}"#,
    ] {
        assert!(matches!(Round::of(&reply(broken)), Err(Error::Protocol(_))), "{broken}");
    }
    let page = InputRequest::page("p", "m", "https://a.b").unwrap();
    let params = page.legacy_params(Revision::V2025_11_25, "q-1").unwrap().unwrap();
    let (key, method) = ("\"q-1\"".to_owned(), page.method().to_owned());
    let question = Question { key, method, params: params.object() };
    assert_eq!(question.request().unwrap().ask(), page.ask(), "a legacy page is read like a modern one");
    let done = mcp::client::Reply { result_type: "complete".into(), ..reply("{}") };
    assert!(Round::of(&done).unwrap().is_none());
}

async fn legacy_client(server: &Server, revision: Revision) -> LegacyClient {
    let config =
        ClientConfig { timeout: Duration::from_secs(5), ..ClientConfig::new(server.url(), "c", "1") };
    LegacyClient::connect(config, revision).await.unwrap()
}

#[tokio::test]
async fn our_legacy_client_answers_on_the_way() {
    let mut server = Server::start().await;
    for revision in Revision::LEGACY {
        let client = legacy_client(&server, *revision).await;
        assert_eq!(server.next().await, Seen::Notified("notifications/initialized".into()));
        assert_eq!((client.revision(), client.session()), (*revision, None));
        assert!(client.welcome().has("serverInfo"));
        let oldest = *revision == Revision::V2025_03_26;
        let yes = async |question: Question| {
            let method = if oldest { "roots/list" } else { "elicitation/create" };
            assert_eq!((question.key.as_str(), question.method.as_str()), ("\"q-1\"", method));
            assert!(question.request().is_ok());
            Some(raw(if oldest { r#"{"roots":[]}"# } else { r#"{"action":"accept"}"# }))
        };
        let outcome = |reply: mcp::client::Reply| reply.result.get("outcome").unwrap().to_string();
        let reply = client.call_tool("ask", None, CallOptions::default(), yes).await.unwrap();
        // What it says is the service's matter; it came back as it was given.
        assert_eq!(outcome(reply), if oldest { r#"{"roots":[]}"# } else { r#"{"action":"accept"}"# });
        let no = async |_: Question| None;
        let reply = client.call_tool("ask", None, CallOptions::default(), no).await.unwrap();
        assert_eq!(outcome(reply), r#"[-1,"The request was declined."]"#);
        let mut seen = Vec::new();
        let options =
            CallOptions { on_progress: Some(Box::new(|p| seen.push(p.progress))), ..CallOptions::default() };
        client.call_tool("progress", None, options, no).await.unwrap();
        assert_eq!(seen, [1.0, 2.0, 2.5]);
        // One that is withdrawn while it is thought about isn't answered.
        let release = async |_: Question| {
            server.moods.release.notify_one();
            std::future::pending::<Option<Raw>>().await
        };
        let reply = client.call_tool("ask", None, CallOptions::default(), release).await.unwrap();
        assert_eq!(reply.result.get("moot").unwrap().as_str(), "true");
        client.end().await.unwrap();
    }
}

#[tokio::test]
async fn our_legacy_client_is_asked_on_its_sessions_stream() {
    let streams = SessionStreams::default();
    let kept = streams.clone();
    let server = Server::with(|c| c.session_streams = kept, ServeLimits::default()).await;
    // The service opens a session for those who say which; the client says nothing, so it is opened for it here.
    server.moods.sessions.lock().unwrap().insert("s-1".into(), String::new());
    let opened = server.legacy(ASK, &[("X-Open", "s-1")]).await;
    assert_eq!(opened.status, 200);
    let client =
        LegacyClient::resume(ClientConfig::new(server.url(), "c", "1"), Revision::V2025_11_25, "s-1")
            .unwrap();
    let answering = client.stream(async |question: Question| {
        assert_eq!(question.method, "roots/list");
        Some(raw(r#"{"roots":[]}"#))
    });
    let asking = async {
        while !streams.has("s-1") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let answer = server.moods.answer_to("q-1");
        let asked = streams.request("s-1", "q-1".into(), method::ROOTS_LIST, None).unwrap();
        assert_eq!(answer.await.unwrap().unwrap().as_str(), r#"{"roots":[]}"#);
        asked.answered();
    };
    tokio::select! {
        ended = answering => panic!("{ended:?}"),
        () = asking => {}
    }
    client.end().await.unwrap();
    let gone = LegacyClient::resume(ClientConfig::new(server.url(), "c", "1"), Revision::V2025_11_25, "s-1");
    let gone = gone.unwrap().stream(async |_: Question| None).await.unwrap_err();
    assert!(matches!(gone, Error::Rpc { status, code: -32600, .. } if status == 404), "{gone}");
}
