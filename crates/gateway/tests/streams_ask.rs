//! What readers ask, in rounds of the modern era; and what anybody asks a legacy client on its stream, answered on
//! whichever replica.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::replicas::*;
use common::*;

use async_trait::async_trait;
use counterfoil_gateway as gateway;
use gateway::prompt::{Made, Prompt};
use gateway::resource::{Asked, Completion, Contents, Data, Failure, Resource};
use gateway::{BadArguments, Body, Context, Offer, ReadTool};
use ledger::{Millis, ToolResult};
use mcp::input::{Field, InputRequest, Sampling};
use mcp::json::RawObject;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Asks for a name and a number, then why, and tells what it heard.
#[derive(Default)]
struct Curious(AtomicUsize);

impl Curious {
    async fn heard(&self, context: &Context, short: bool) -> Result<String, gateway::Unanswered> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let mut all = context.ask(&[form("who", Field::text()), form("n", Field::number())]).await?;
        if !short {
            all.extend(context.ask(&[form("why", Field::text())]).await?);
        }
        Ok(all.iter().map(|a| a.to_raw().as_str().to_owned()).collect::<Vec<_>>().join(" "))
    }
}

#[async_trait]
impl ReadTool for Curious {
    async fn read(&self, context: Context, arguments: RawObject) -> Result<ToolResult, BadArguments> {
        if arguments.get("sampling").is_some() {
            let request = InputRequest::sampling("model", Sampling::text("Say it.", 10).unwrap()).unwrap();
            let said = context.ask(&[request]).await?;
            let body = json!({ "content": [{ "type": "text", "text": said[0].to_raw().as_str() }] });
            return Ok(ToolResult { result: body.to_string().into_bytes(), is_error: false });
        }
        let text = self.heard(&context, arguments.get("short").is_some()).await?;
        let body = json!({ "content": [{ "type": "text", "text": text }] });
        Ok(ToolResult { result: body.to_string().into_bytes(), is_error: false })
    }
}

#[async_trait]
impl Resource for Curious {
    async fn read(
        &self,
        context: Context,
        uri: &str,
        _: BTreeMap<String, String>,
    ) -> Result<Vec<Contents>, Failure> {
        let text = self.heard(&context, true).await.map_err(|e| Failure::Failed(e.to_string()))?;
        Ok(vec![Contents { uri: uri.into(), mime_type: None, data: Data::Text(text) }])
    }
    async fn complete(&self, _: Context, _: Asked) -> Result<Completion, Failure> {
        Ok(Completion { values: Vec::new(), total: None })
    }
    fn tells_changes(&self) -> bool {
        false
    }
}

#[async_trait]
impl Prompt for Curious {
    async fn get(&self, context: Context, _: BTreeMap<String, String>) -> Result<Made, Failure> {
        let text = self.heard(&context, true).await.map_err(|e| Failure::Failed(e.to_string()))?;
        let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
        Ok(Made { description: None, messages: vec![raw(&message)] })
    }
    async fn complete(&self, _: Context, _: Asked) -> Result<Completion, Failure> {
        Ok(Completion { values: Vec::new(), total: None })
    }
}

struct All {
    p: Pair,
    reader: Arc<Curious>,
    tool: Arc<Works>,
}

async fn all(ttl: Millis) -> All {
    let reader = Arc::new(Curious::default());
    let tool = Arc::new(Works::default());
    let offer = || {
        let mut resource = resource("test://curious", false);
        resource.1 = reader.clone();
        let mut prompt = prompt("greet");
        prompt.1 = reader.clone();
        Offer {
            tools: vec![
                common::tool("curious", None, Body::Read(reader.clone())),
                common::tool("other", None, Body::Read(reader.clone())),
                works("works", &tool, |_| {}),
            ],
            resources: vec![resource],
            prompts: vec![prompt],
            ..Offer::default()
        }
    };
    All { p: pair_for(offer, true, ttl).await, reader, tool }
}

async fn ann(w: &World, method: &str, params: Value) -> Reply {
    w.modern_with(method, params, asked(), &[("Authorization", &bearer("ann"))]).await
}

async fn read(w: &World, name: &str, arguments: Value, state: Option<&str>, told: Option<Value>) -> Reply {
    ann(w, "tools/call", call(name, arguments, state, told)).await
}

fn both(who: &str) -> Value {
    json!({ "who": accept(json!({ "who": who })), "n": accept(json!({ "n": 1 })) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_asks_in_rounds() {
    let All { p, reader, .. } = all(STATE_TTL).await;
    let first = read(&p.a, "curious", json!({}), None, None).await;
    assert_eq!(questions(&first), ["n", "who"]);
    // One of two: the other is asked again.
    let told =
        json!({ "who": accept(json!({ "who": "me", "more": 1 })), "never": accept(json!({ "x": "y" })) });
    let second = read(&p.b, "curious", json!({}), Some(&state(&first)), Some(told)).await;
    assert_eq!(questions(&second), ["n"]);
    // Every digit counts, through all rounds. What was answered stays.
    let text =
        r#"{"n":{"action":"accept","content":{"n":12345678901234567890123.10}},"who":{"action":"decline"}}"#;
    let told: Box<serde_json::value::RawValue> = serde_json::from_str(text).unwrap();
    let params = json!({ "name": "curious", "arguments": {}, "requestState": state(&second) });
    let mut body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": modern_params(params, asked()) }).to_string();
    body = body.replacen(r#""requestState":"#, &format!(r#""inputResponses":{told},"requestState":"#), 1);
    let auth = bearer("ann");
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "curious"),
        ("Authorization", auth.as_str()),
    ];
    let third = p.a.http("POST", &headers, &body).await;
    assert_eq!(questions(&third), ["why"]);
    let told = json!({ "why": { "action": "cancel" } });
    let done = read(&p.b, "curious", json!({}), Some(&state(&third)), Some(told)).await;
    let text = said(&done);
    assert!(text.contains(r#"{"who":"me"}"#), "{text}");
    assert!(text.contains("12345678901234567890123.10"), "{text}");
    assert!(text.ends_with(r#"{"action":"cancel"}"#), "{text}");
    assert_eq!(reader.0.load(Ordering::SeqCst), 4);
    assert_eq!(p.operations().await, 0, "reads leave no trace");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_asked_for_does_not_travel() {
    let All { p, .. } = all(STATE_TTL).await;
    let size = async |told: Value| {
        let reply = read(&p.a, "curious", json!({}), None, Some(told)).await;
        assert_eq!(questions(&reply), ["why"]);
        state(&reply).len()
    };
    let plain = size(both("me")).await;
    let mut more = both("me");
    for i in 0..40 {
        more[format!("never-{i}")] = accept(json!({ "x": "y".repeat(100) }));
    }
    more["who"]["content"]["more"] = json!("z".repeat(1000));
    assert_eq!(size(more).await, plain);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answers_stay_here() {
    let All { p, .. } = all(STATE_TTL).await;
    let large = "x".repeat(100_000);
    let first = read(&p.a, "curious", json!({}), None, Some(both(&large))).await;
    let token = state(&first);
    assert!(token.len() < 2000, "{}", token.len());
    let why = || Some(json!({ "why": accept(json!({ "why": "so" })) }));
    for w in [&p.b, &p.a] {
        let done = read(w, "curious", json!({}), Some(&token), why()).await;
        assert!(said(&done).contains(&large) && said(&done).contains("so"));
    }
    let foreign = call("curious", json!({}), Some(&token), why());
    let auth = bearer("ben");
    let reply = p.b.modern_with("tools/call", foreign, asked(), &[("Authorization", &auth)]).await;
    assert_eq!(reply.code(), -32602);
    p.clock.forward(STATE_TTL.duration() + Duration::from_secs(1));
    assert_eq!(read(&p.b, "curious", json!({}), Some(&token), why()).await.code(), -32602);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_a_state_are_taken_if_they_fit() {
    let All { p, .. } = all(STATE_TTL).await;
    let short = json!({ "short": 1 });
    assert!(said(&read(&p.a, "curious", short.clone(), None, Some(both("me"))).await).contains("me"));
    let n = accept(json!({ "n": 1 }));
    for bad in [
        json!(null),
        json!([]),
        json!("x"),
        json!({ "who": null, "n": n }),
        json!({ "who": 1, "n": n }),
        json!({ "who": accept(json!({ "who": 7 })), "n": n }),
        json!({ "who": { "action": "accept", "content": [] }, "n": n }),
        json!({ "who": accept(json!({})), "n": n }),
        json!({ "who": {}, "n": n }),
    ] {
        let reply = read(&p.a, "curious", short.clone(), None, Some(bad.clone())).await;
        assert_eq!(reply.code(), -32602, "{bad}");
    }
    for bad in [json!(null), json!(7), json!({}), json!([])] {
        let mut params = call("curious", short.clone(), None, Some(both("me")));
        params["requestState"] = bad.clone();
        assert_eq!(ann(&p.a, "tools/call", params).await.code(), -32602, "{bad}");
    }
    let auth = bearer("ann");
    let params = call("curious", json!({ "sampling": 1 }), None, None);
    let reply = p.a.modern_with("tools/call", params, asked(), &[("Authorization", &auth)]).await;
    assert_eq!(reply.code(), -32021);
    assert_eq!(reply.last()["error"]["data"]["requiredCapabilities"], json!({ "sampling": {} }));
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_and_prompts_ask_as_well() {
    let All { p, .. } = all(STATE_TTL).await;
    let tool = read(&p.a, "curious", json!({}), None, None).await;
    for (method, params) in [
        ("resources/read", json!({ "uri": "test://curious" })),
        ("prompts/get", json!({ "name": "greet", "arguments": { "name": "x" } })),
    ] {
        let with = |token: &str| {
            let mut params = params.clone();
            params["requestState"] = json!(token);
            params["inputResponses"] = both("me");
            params
        };
        let first = ann(&p.a, method, params.clone()).await;
        assert_eq!(questions(&first), ["n", "who"], "{method}");
        let done = ann(&p.b, method, with(&state(&first))).await;
        assert_eq!(result(&done)["resultType"], "complete");
        assert!(result(&done).to_string().contains(r#"\"who\":\"me\""#), "{method}: {}", result(&done));
        // Nobody else's state opens here.
        assert_eq!(ann(&p.b, method, with(&state(&tool))).await.code(), -32602, "{method}");
        assert_eq!(read(&p.b, "curious", json!({}), Some(&state(&first)), None).await.code(), -32602);
    }
    assert_eq!(read(&p.b, "other", json!({}), Some(&state(&tool)), None).await.code(), -32602);
    assert_eq!(read(&p.b, "curious", json!({ "x": 1 }), Some(&state(&tool)), None).await.code(), -32602);
}

// The legacy era.

struct Legacy {
    session: String,
    auth: String,
}

impl Legacy {
    async fn open(w: &World, who: &str) -> Legacy {
        let auth = bearer(who);
        let (_, session) = w.initialize(json!({ "elicitation": {} }), &[("Authorization", &auth)]).await;
        Legacy { session: session.unwrap(), auth }
    }

    fn headers(&self) -> [(&str, &str); 3] {
        [
            ("MCP-Protocol-Version", "2025-11-25"),
            ("Mcp-Session-Id", &self.session),
            ("Authorization", &self.auth),
        ]
    }

    /// Calls; what comes is read as it comes.
    async fn call(&self, w: &World, name: &str, arguments: Value) -> Stream {
        let params = json!({ "name": name, "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        w.stream("POST", &self.headers(), &body.to_string()).await
    }

    async fn respond(&self, w: &World, id: &Value, said: Value) -> u16 {
        let mut body = json!({ "jsonrpc": "2.0", "id": id });
        for (name, value) in said.as_object().unwrap() {
            body[name] = value.clone();
        }
        w.http("POST", &self.headers(), &body.to_string()).await.status
    }

    async fn answer(&self, w: &World, id: &Value, content: Value) -> u16 {
        self.respond(w, id, json!({ "result": accept(content) })).await
    }
}

/// The question that comes next, and its id.
async fn question(stream: &mut Stream, message: &str) -> Value {
    let asked = stream.within(Duration::from_secs(8)).await.expect("a question");
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    assert_eq!(asked["params"]["message"], message);
    assert!(asked["id"].is_string());
    asked["id"].clone()
}

/// The response of the call.
async fn response(stream: &mut Stream) -> Value {
    let last = stream.within(Duration::from_secs(8)).await.expect("a response");
    assert_eq!(last["id"], 7, "{last}");
    last
}

fn text(response: &Value) -> &str {
    response["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_client_is_asked_on_its_stream_and_answers_elsewhere() {
    let All { p, tool, .. } = all(STATE_TTL).await;
    let l = Legacy::open(&p.a, "ann").await;
    let ben = Legacy::open(&p.b, "ben").await;
    let mut s = l.call(&p.a, "works", json!({ "ask": [["who", "n1"]], "send": "key" })).await;
    let mut ids = BTreeMap::new();
    for _ in 0..2 {
        let asked = s.within(Duration::from_secs(8)).await.expect("a question");
        ids.insert(asked["params"]["message"].as_str().unwrap().to_owned(), asked["id"].clone());
    }
    let (who, n) = (&ids["What is who?"], &ids["What is n1?"]);
    // What nobody asked, and what another caller says, is taken and counts for nothing.
    assert_eq!(l.answer(&p.b, &json!("nobody-asked"), json!({ "who": "x" })).await, 202);
    assert_eq!(ben.answer(&p.b, who, json!({ "who": "ben" })).await, 202);
    assert_eq!(ben.answer(&p.a, who, json!({ "who": "ben" })).await, 202);
    assert_eq!(s.within(Duration::from_millis(300)).await, None);
    // One of two: the other is not asked a second time.
    assert_eq!(l.answer(&p.b, who, json!({ "who": "me" })).await, 202);
    assert_eq!(s.within(Duration::from_millis(700)).await, None);
    assert_eq!(tool.sent(), 0);
    // The first answer counts.
    assert_eq!(l.answer(&p.b, who, json!({ "who": "you" })).await, 202);
    assert_eq!(l.answer(&p.b, n, json!({ "n1": 7 })).await, 202);
    let done = response(&mut s).await;
    assert!(
        text(&done).contains("me") && text(&done).contains('7') && text(&done).ends_with("done"),
        "{done}"
    );
    assert_eq!(tool.sent(), 1);
    // Long after, it changes nothing.
    assert_eq!(l.answer(&p.a, n, json!({ "n1": 8 })).await, 202);
    assert_eq!((tool.ran(), tool.sent(), p.operations().await), (2, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_reader_waits_for_answers_from_anywhere() {
    let All { p, reader, .. } = all(STATE_TTL).await;
    let l = Legacy::open(&p.a, "ann").await;
    let ben = Legacy::open(&p.b, "ben").await;
    let mut s = l.call(&p.a, "curious", json!({})).await;
    let who = question(&mut s, "What is who?").await;
    let n = question(&mut s, "What is n?").await;
    assert_eq!(ben.answer(&p.b, &who, json!({ "who": "ben" })).await, 202);
    assert_eq!(ben.answer(&p.a, &who, json!({ "who": "ben" })).await, 202);
    // Here and elsewhere; twice, of which the first counts.
    assert_eq!(l.answer(&p.a, &who, json!({ "who": "me" })).await, 202);
    assert_eq!(l.answer(&p.a, &who, json!({ "who": "you" })).await, 202);
    assert_eq!(s.within(Duration::from_millis(200)).await, None);
    assert_eq!(l.answer(&p.b, &n, json!({ "n": 5 })).await, 202);
    assert_eq!(l.answer(&p.b, &n, json!({ "n": 6 })).await, 202);
    let why = question(&mut s, "What is why?").await;
    // An error is a no.
    let error = json!({ "error": { "code": -1, "message": "not now" } });
    assert_eq!(l.respond(&p.b, &why, error).await, 202);
    let done = response(&mut s).await;
    let told = text(&done);
    assert!(told.contains(r#"{"who":"me"}"#) && told.contains(r#"{"n":5}"#), "{told}");
    assert!(told.ends_with(r#"{"action":"decline"}"#), "{told}");
    assert_eq!(reader.0.load(Ordering::SeqCst), 1, "it is not begun anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_a_legacy_client_is_a_no() {
    let All { p, tool, .. } = all(STATE_TTL).await;
    let l = Legacy::open(&p.a, "ann").await;
    let mut s = l.call(&p.a, "works", json!({ "ask": [["who"]], "send": "key" })).await;
    let who = question(&mut s, "What is who?").await;
    let error = json!({ "error": { "code": -1, "message": "not now" } });
    assert_eq!(l.respond(&p.b, &who, error).await, 202);
    let done = response(&mut s).await;
    assert!(text(&done).starts_with(r#"{"action":"decline"}"#), "{done}");
    assert_eq!(tool.ran(), 2);
    // An approval that can't be shown is neither a yes nor a no; a decline is a no.
    let mut s = l.call(&p.a, "works", json!({ "approval": true, "send": "key" })).await;
    let id = question(&mut s, "What is approve?").await;
    let error = json!({ "error": { "code": -1, "message": "what?" } });
    assert_eq!(l.respond(&p.b, &id, error).await, 202);
    assert_eq!(s.within(Duration::from_millis(300)).await, None);
    assert_eq!(l.respond(&p.b, &id, json!({ "result": { "action": "decline" } })).await, 202);
    let denied = response(&mut s).await;
    assert_eq!(denied["result"]["_meta"]["dev.counterfoil/error"]["kind"], "denied", "{denied}");
    assert_eq!(tool.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_stream_loses_no_question() {
    let All { p, tool, .. } = all(STATE_TTL).await;
    let l = Legacy::open(&p.a, "ann").await;
    let arguments = json!({ "ask": [["who"]], "send": "key" });
    let mut s = l.call(&p.a, "works", arguments.clone()).await;
    let first = question(&mut s, "What is who?").await;
    drop(s);
    tokio::time::sleep(Duration::from_millis(200)).await;
    // The call again, at the other: the same operation, asked again.
    let mut s = l.call(&p.b, "works", arguments).await;
    let second = question(&mut s, "What is who?").await;
    assert_ne!(first, second);
    assert_eq!(p.operations().await, 1);
    // The answer to the first one is one to the question.
    assert_eq!(l.answer(&p.a, &first, json!({ "who": "me" })).await, 202);
    let done = response(&mut s).await;
    assert!(text(&done).contains("me") && text(&done).ends_with("done"), "{done}");
    assert_eq!((tool.sent(), p.operations().await), (1, 1));
    // A reader whose client is gone ends.
    let mut s = l.call(&p.a, "curious", json!({})).await;
    let who = question(&mut s, "What is who?").await;
    drop(s);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(l.answer(&p.b, &who, json!({ "who": "me" })).await, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_waits_only_so_long() {
    let All { p, tool, .. } = all(Millis(1500)).await;
    let l = Legacy::open(&p.a, "ann").await;
    let (mut s, mut r) = (
        l.call(&p.a, "works", json!({ "ask": [["who"]], "send": "key" })).await,
        l.call(&p.b, "curious", json!({ "short": 1 })).await,
    );
    question(&mut s, "What is who?").await;
    question(&mut r, "What is who?").await;
    question(&mut r, "What is n?").await;
    // The client is told that it is too late, and the request ends.
    for (stream, asked) in [(&mut s, 1), (&mut r, 2)] {
        for _ in 0..asked {
            let moot = stream.within(Duration::from_secs(6)).await.expect("an end");
            assert_eq!(moot["method"], "notifications/cancelled", "{moot}");
        }
    }
    let end = response(&mut s).await;
    assert_eq!(end["result"]["isError"], true, "{end}");
    let end = response(&mut r).await;
    assert_eq!(end["error"]["code"], -32602, "{end}");
    assert_eq!(tool.sent(), 0);
}
