//! The front door: one POST to the endpoint as it is served, with headers and a body of anybody's. Which era it is of,
//! who gets to see it, and what is answered.

use crate::input::{headers, parts};
use crate::tree::{self, Tree};
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use mcp::Revision;
use mcp::json::Limits;
use mcp::server::{Exchange, HttpConfig, Outcome, Responder, Service, WireResult, router};
use mcp::{RawObject, RpcError};
use std::sync::{Arc, Mutex};
use tower::ServiceExt;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const INFO: &str = "io.modelcontextprotocol/clientInfo";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Answers everything from memory, and notes what it was asked in which revision.
#[derive(Default)]
struct Notes(Mutex<Vec<(String, Revision)>>);

/// Has what each method's result must have, so that what is sent here fits the schemas, too.
const RESULT: &str = r#"{"tools":[],"content":[],"prompts":[],"messages":[],"resources":[],"resourceTemplates":[],"contents":[],"completion":{"values":[]},"supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/subscriptionId":0}}"#;

impl Service for Notes {
    fn ready(&self, exchange: &Exchange) -> Option<Outcome> {
        let revision = exchange.caller.revision;
        self.0.lock().expect("one thread").push((exchange.request.method.clone(), revision));
        let made = if revision.is_legacy() { WireResult::legacy } else { WireResult::complete };
        let result = RawObject::parse(RESULT.to_owned(), &Limits::default()).expect("an object");
        Some(made(&result.raw(), &[]).expect("an object").into())
    }

    async fn call(self: Arc<Self>, _: Exchange, responder: Responder) {
        drop(responder.finish(RpcError::internal("never reached")));
    }
}

/// What must become of one message.
#[derive(Debug, PartialEq)]
enum Fate {
    /// Refused with this code.
    Error(i64),
    /// The service sees it, in this revision.
    Served(String, Revision),
    /// The wire answers it itself, as a legacy one.
    Own,
    /// Taken, and no answer.
    Silent,
}

/// The revision by the header alone; `None` is the modern era. Absent: 2025-03-26.
fn by_header(headers: &HeaderMap) -> Option<Revision> {
    let all: Vec<&[u8]> =
        headers.get_all("mcp-protocol-version").iter().map(http::HeaderValue::as_bytes).collect();
    match all[..] {
        [] | [b"2025-03-26"] => Some(Revision::V2025_03_26),
        [b"2025-06-18"] => Some(Revision::V2025_06_18),
        [b"2025-11-25"] => Some(Revision::V2025_11_25),
        _ => None,
    }
}

/// The id that an answer must have: none where it can't be read, and none to what looks like a response.
fn echo(tree: Option<&Tree>) -> Option<&Tree> {
    let tree = tree?;
    let response = tree.get("jsonrpc").and_then(Tree::text) == Some("2.0")
        && tree.get("method").is_none()
        && (tree.get("result").is_some() || tree.get("error").is_some());
    tree.get("id").filter(|id| id.is_id() && !response)
}

fn fate(tree: Option<&Tree>, headers: &HeaderMap, batched: bool) -> Fate {
    let Some(tree) = tree else { return Fate::Error(-32700) };
    let named = tree.get("id");
    let id = named.filter(|id| id.is_id());
    if !tree.is_object()
        || tree.get("jsonrpc").and_then(Tree::text) != Some("2.0")
        || named.is_some() && id.is_none()
    {
        return Fate::Error(-32600);
    }
    let meta = tree.get("params").and_then(|p| p.get("_meta")).filter(|m| m.is_object());
    let declared = meta.is_some_and(|m| m.get(VERSION).is_some());
    let method = match tree.get("method").map(Tree::text) {
        Some(Some(method)) if !method.is_empty() => method,
        None if id.is_some() && tree.get("result").is_some() != tree.get("error").is_some() => {
            return if by_header(headers).is_some() { Fate::Silent } else { Fate::Error(-32600) };
        }
        _ => return Fate::Error(-32600),
    };
    if tree.get("params").is_some_and(|p| !p.is_object()) {
        return Fate::Error(-32602);
    }
    if id.is_none() {
        return Fate::Silent;
    }
    if batched && (declared || method == "initialize") {
        return Fate::Error(-32600);
    }
    match by_header(headers).filter(|_| !declared) {
        Some(revision) => legacy(tree, method, revision),
        None => modern(tree, method, meta, headers),
    }
}

fn legacy(tree: &Tree, method: &str, revision: Revision) -> Fate {
    let params = tree.get("params");
    if method == "initialize" {
        let asked = params.and_then(|p| p.get("protocolVersion")).and_then(Tree::text);
        let able = params.and_then(|p| p.get("capabilities")).is_none_or(Tree::is_object);
        // This service opens no sessions.
        return Fate::Error(if asked.is_some() && able { -32601 } else { -32602 });
    }
    if method == "ping" {
        return Fate::Own;
    }
    let meta = params.and_then(|p| p.get("_meta"));
    let token = meta.and_then(|m| m.get("progressToken"));
    match meta.is_none_or(|m| m.is_object() || *m == Tree::Null) && token.is_none_or(Tree::is_id) {
        true => Fate::Served(method.to_owned(), revision),
        false => Fate::Error(-32602),
    }
}

fn modern(tree: &Tree, method: &str, meta: Option<&Tree>, headers: &HeaderMap) -> Fate {
    let version = meta.and_then(|m| m.get(VERSION));
    if method == "initialize" && version.is_none() {
        return Fate::Error(-32022);
    }
    let (Some(meta), Some(version)) = (meta, version.and_then(Tree::text)) else {
        return Fate::Error(-32602);
    };
    let fits = meta.get(CAPABILITIES).is_some_and(Tree::is_object)
        && meta.get(INFO).is_none_or(Tree::is_object)
        && meta.get("progressToken").is_none_or(Tree::is_id)
        && meta.get(LEVEL).is_none_or(|l| l.text().is_some_and(|l| LEVELS.contains(&l)));
    if !fits {
        return Fate::Error(-32602);
    }
    let equals = |name: &str, value: &str, wrapped: bool| {
        let mut all = headers.get_all(name).iter();
        let (Some(one), None) = (all.next(), all.next()) else { return false };
        match mcp::headers::decode(one) {
            Some(decoded) if wrapped => decoded == value,
            _ => one.as_bytes() == value.as_bytes(),
        }
    };
    if !equals("mcp-protocol-version", version, false) {
        return Fate::Error(-32020);
    }
    if version != "2026-07-28" {
        return Fate::Error(-32022);
    }
    if !equals("mcp-method", method, false) {
        return Fate::Error(-32020);
    }
    let source = match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    };
    if let Some(source) = source {
        match tree.get("params").and_then(|p| p.get(source)).and_then(Tree::text) {
            None => return Fate::Error(-32602),
            Some(name) if !equals("mcp-name", name, true) => return Fate::Error(-32020),
            Some(_) => {}
        }
    }
    Fate::Served(method.to_owned(), Revision::V2026_07_28)
}

/// One POST: its era is chosen by its own words, everybody gets the answer that is theirs under their own id, and the
/// service sees what it must and nothing else.
///
/// # Panics
/// A promise is broken.
pub fn front(data: &[u8]) {
    let [head, body] = parts(data);
    let sent = headers(head, |name| name.starts_with("mcp-"));
    let Some((status, answer, seen)) = post(&sent, body) else { return };
    let answer = if answer.is_empty() {
        None
    } else {
        Some(tree::read(&answer, 128, true).unwrap_or_else(|| panic!("the answer is not JSON: {answer:?}")))
    };
    let mut served = Vec::new();
    let session_fits = {
        let all: Vec<_> = sent.get_all("mcp-session-id").iter().collect();
        all.len() < 2
            && all.iter().all(|v| !v.is_empty() && v.len() < 256 && !v.as_bytes().contains(&b' '))
            && all.iter().all(|v| v.as_bytes().iter().all(|b| (0x21..=0x7e).contains(b)))
    };
    let batch =
        body.trim_ascii_start().first() == Some(&b'[') && by_header(&sent) == Some(Revision::V2025_03_26);
    if batch {
        let whole = tree::read(body, 65, true);
        let items = match &whole {
            Some(Tree::Array(items)) if (1..=32).contains(&items.len()) && session_fits => items,
            whole => {
                let code = if whole.is_some() { -32600 } else { -32700 };
                return refused(status, answer.as_ref(), code, None, &seen);
            }
        };
        let mut wanted = Vec::new();
        for item in items {
            let fate = fate(Some(item), &sent, true);
            if fate != Fate::Silent {
                wanted.push((fate, echo(Some(item))));
            }
        }
        let answers = match answer {
            None => Vec::new(),
            Some(Tree::Array(all)) => all,
            Some(other) => panic!("a batch is answered by {other:?}"),
        };
        assert_eq!(answers.len(), wanted.len(), "of {} answers", wanted.len());
        assert_eq!(status == StatusCode::ACCEPTED, wanted.is_empty());
        let mut answers: Vec<Option<Tree>> = answers.into_iter().map(Some).collect();
        for (fate, id) in wanted {
            let fits = |a: &Tree| id.is_none_or(|id| a.get("id") == Some(id)) && answered(a, &fate);
            let place = answers.iter().position(|a| a.as_ref().is_some_and(fits));
            answers[place.unwrap_or_else(|| panic!("no answer to {id:?}: {fate:?}"))] = None;
            if let Fate::Served(method, revision) = fate {
                served.push((method, revision));
            }
        }
        assert_eq!(seen, served);
        return;
    }
    let tree = tree::read(body, 64, true);
    let id = echo(tree.as_ref());
    let fate = fate(tree.as_ref(), &sent, false);
    let method = tree.as_ref().and_then(|t| t.get("method")).and_then(Tree::text);
    let declared = tree.as_ref().and_then(|t| t.get("params")).and_then(|p| p.get("_meta"));
    let is_legacy = by_header(&sent).is_some() && declared.is_none_or(|m| m.get(VERSION).is_none());
    let in_session = is_legacy && method != Some("initialize");
    let well_formed = match &fate {
        Fate::Error(code) => {
            in_session
                && *code == -32602
                && tree.as_ref().is_some_and(|t| t.get("params").is_some_and(Tree::is_object))
        }
        _ => true,
    };
    if in_session && well_formed && !session_fits {
        return refused(status, answer.as_ref(), -32600, id, &seen);
    }
    match (&fate, answer) {
        (Fate::Silent, None) => assert_eq!(status, StatusCode::ACCEPTED),
        (Fate::Silent, Some(answer)) => panic!("{answer:?} answers what wants no answer"),
        (_, None) => panic!("{status} and no answer, where {fate:?} was due"),
        (Fate::Error(code), answer) => return refused(status, answer.as_ref(), *code, id, &seen),
        (_, Some(answer)) => {
            assert_eq!(status, StatusCode::OK);
            assert_eq!(answer.get("id"), id, "another id than it was asked with");
            assert!(answered(&answer, &fate), "{answer:?} where {fate:?} was due");
        }
    }
    served.extend(match fate {
        Fate::Served(method, revision) => Some((method, revision)),
        _ => None,
    });
    assert_eq!(seen, served);
}

fn answered(answer: &Tree, fate: &Fate) -> bool {
    let code = match answer.get("error").and_then(|e| e.get("code")) {
        Some(Tree::Number(code)) => code.parse::<i64>().ok(),
        _ => None,
    };
    let complete = answer.get("result").and_then(|r| r.get("resultType")).is_some();
    match fate {
        Fate::Error(wanted) => code == Some(*wanted) && answer.get("result").is_none(),
        Fate::Served(_, revision) => code.is_none() && complete != revision.is_legacy(),
        Fate::Own => answer.get("result") == Some(&Tree::Object(Vec::new())),
        Fate::Silent => false,
    }
}

fn refused(
    status: StatusCode,
    answer: Option<&Tree>,
    code: i64,
    id: Option<&Tree>,
    seen: &[(String, Revision)],
) {
    let answer = answer.unwrap_or_else(|| panic!("{status} without an answer, where {code} was due"));
    assert!(answered(answer, &Fate::Error(code)), "{answer:?} where {code} was due");
    assert!(status.is_client_error() || status == StatusCode::OK, "{status}");
    let echoed = answer.get("id").filter(|id| **id != Tree::Null);
    assert_eq!(echoed, id, "another id than it was asked with");
    assert!(seen.is_empty(), "the service saw what was refused: {seen:?}");
}

type Answer = (StatusCode, Vec<u8>, Vec<(String, Revision)>);

/// Sends it. `None` if it can't be a request.
fn post(headers: &HeaderMap, body: &[u8]) -> Option<Answer> {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    }
    let notes = Arc::new(Notes::default());
    let door = router(HttpConfig::default(), notes.clone()).expect("a good configuration");
    let mut request = Request::post("/mcp")
        .header("host", "127.0.0.1:1")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(Body::from(body.to_vec()))
        .ok()?;
    for (name, value) in headers {
        request.headers_mut().append(name, value.clone());
    }
    let (status, answer) = RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let response = door.oneshot(request).await.expect("the door never fails");
            let status = response.status();
            let kind = response.headers().get("content-type").cloned();
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            if !body.is_empty() {
                assert_eq!(kind.as_ref().map(http::HeaderValue::as_bytes), Some(&b"application/json"[..]));
            }
            (status, body.to_vec())
        })
    });
    let seen = notes.0.lock().expect("one thread").clone();
    Some((status, answer, seen))
}
