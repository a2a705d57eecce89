//! `POST /api/v1/exec` and the socket's `exec`: results as they were stored, and what is known of a method that is not shown
//! any more.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use async_trait::async_trait;
use common::{Count, Echo, PATH, Served, World, catalog, serve_catalog, settings, tool, watched, world};
use counterfoil_gateway::{BadArguments, Body, Catalog, Context, Offer, ReadTool, Tool, View, ViewBy};
use ledger::memory::MemoryStore;
use ledger::store::Attention;
use ledger::{Attempt, Intent, Millis, RunError, SystemEnv, Time, ToolResult};
use mcp::json::RawObject;
use mcp::server::HttpConfig;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const BEN: (&str, &str) = ("Authorization", "Bearer cfk_ben");

/// Answers with these very bytes.
struct Says(String);

#[async_trait]
impl Tool for Says {
    fn plan(&self, _arguments: &RawObject) -> Result<Option<Intent>, BadArguments> {
        Ok(None)
    }

    async fn run(&self, _attempt: &Attempt) -> Result<ToolResult, RunError> {
        Ok(ToolResult { result: self.0.clone().into_bytes(), is_error: false })
    }

    fn safety(&self) -> Value {
        json!({ "effect": "mutating" })
    }
}

#[tokio::test]
async fn a_result_keeps_every_digit_and_any_depth() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let stored = format!(
        r#"{{"content":[],"structuredContent":{{"n":12345678901234567890123,"big":1e400,"deep":{deep}}}}}"#
    );
    let mut o = watched();
    o.tools = vec![tool("say", None, Body::Mutating(Arc::new(Says(stored.clone()))))];
    let w = world(o, settings(), false).await;
    let body = json!({ "id": "native.say", "key": "k" }).to_string();
    for replayed in [false, true] {
        let text = w.text("POST", &[(PATH, "/api/v1/exec")], &body).await;
        let expected = format!(r#"{{"outcome":"result","isError":false,"result":{stored},"operation":{{"#);
        assert!(text.contains(&expected) && text.contains(&format!(r#""replayed":{replayed}"#)), "{text}");
    }
    let text = w.operator_text("POST", "/v1/exec", &body).await;
    assert!(text.contains(&format!(r#""result":{stored},"operation""#)), "{text}");
    assert!(text.contains("content-type: application/json"), "{text}");
}

fn of_ben(tools: &[&str], count: &Arc<Count>, served: &[&str]) -> Catalog {
    let mut o: Offer = watched();
    o.tools = vec![tool("echo", None, Body::Read(Arc::new(Echo)))];
    o.tools.extend(served.iter().map(|t| tool(t, None, Body::Mutating(count.clone()))));
    let tools = tools.iter().map(|t| format!("native.{t}").into()).collect();
    let by = ViewBy::Principals(vec!["ben".into()]);
    catalog(o).with_views(vec![View { name: "ben's".into(), by, tools }])
}

async fn stage(catalog: Catalog) -> World {
    let env = Arc::new(SystemEnv);
    let store = Arc::new(MemoryStore::new(env.clone(), Time(1_700_000_000_000), Attention::default()));
    let served = Served {
        store: store.clone(),
        env,
        paths: Vec::new(),
        catalog,
        settings: settings(),
        auth: true,
        keeper: None,
        poll: Millis(500),
    };
    serve_catalog(store, served).await
}

/// What Ben is answered, and the status.
async fn exec(w: &World, body: &Value, more: &[(&str, &str)]) -> (u16, Value) {
    let headers = [&[(PATH, "/api/v1/exec"), BEN], more].concat();
    let reply = w.http("POST", &headers, &body.to_string()).await;
    (reply.status, reply.last().clone())
}

#[tokio::test]
async fn what_is_known_is_answered_where_the_method_is_not_shown_any_more() {
    let count = Arc::new(Count::default());
    let w = stage(of_ben(&["pay", "echo"], &count, &["pay", "refund"])).await;
    let body = json!({ "id": "native.pay", "key": "k-1" });
    let step = json!({ "id": "native.pay", "operation": "job-1" });
    let (status, first) = exec(&w, &body, &[]).await;
    assert_eq!((status, &first["operation"]["replayed"]), (200, &json!(false)), "{first}");
    let (_, second) = exec(&w, &step, &[]).await;
    // Out of Ben's view; then out of the configuration.
    for (served, name) in [(&["pay", "refund"][..], "pay"), (&["refund"], "native_pay")] {
        w.gateway.reload(of_ben(&["echo"], &count, served));
        for id in ["native.pay", name] {
            let again = |body: &Value| {
                let mut body = body.clone();
                body["id"] = json!(id);
                body
            };
            for (body, was) in [(again(&body), &first), (again(&step), &second)] {
                let (status, known) = exec(&w, &body, &[]).await;
                assert_eq!(status, 200, "{known}");
                assert_eq!(known["result"], was["result"]);
                assert_eq!(known["operation"]["id"], was["operation"]["id"]);
                assert_eq!(known["operation"]["replayed"], true);
            }
            // All else is answered word for word as for a method that never was.
            for (more, headers) in [
                (json!({}), vec![]),
                (json!({ "key": "k-2" }), vec![]),
                (json!({ "key": "k-1", "dryRun": true }), vec![]),
                (json!({ "operation": "job-2" }), vec![]),
                (json!({ "key": "k-1", "operation": "job-1" }), vec![]),
                (json!({}), vec![("Idempotency-Key", "\"torn")]),
                (json!({ "key": "k-1" }), vec![("Idempotency-Key", "k-2")]),
                (json!({ "key": "op_01JDZZZZZZZZZZZZZZZZZZZZZZ" }), vec![]),
            ] {
                let of = |id: &str| {
                    let mut body = more.clone();
                    body["id"] = json!(id);
                    body
                };
                let (status, hidden) = exec(&w, &of(id), &headers).await;
                let (_, missing) = exec(&w, &of("zebra"), &headers).await;
                let said = |answer: &Value, id: &str| {
                    let mut answer = answer.clone();
                    // Made anew each time.
                    if let Some(key) = answer.pointer_mut("/error/newKey") {
                        *key = json!("a key");
                    }
                    answer.to_string().replace(id, "X")
                };
                assert_eq!(said(&hidden, id), said(&missing, "zebra"), "{more}");
                if !more["key"].as_str().is_some_and(|k| k.starts_with("op_")) {
                    assert_eq!(
                        (status, &hidden["error"]["code"]),
                        (404, &json!("unknown_method")),
                        "{hidden}"
                    );
                }
            }
        }
    }
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
    // Neither is another's: it stays unknown.
    let anns = [(PATH, "/api/v1/exec"), ("Authorization", "Bearer cfk_ann")];
    assert_eq!(w.http("POST", &anns, &body.to_string()).await.status, 404);
}

#[tokio::test]
async fn the_socket_answers_what_is_known_of_a_method_that_is_gone() {
    let count = Arc::new(Count::default());
    let w = stage(of_ben(&["echo"], &count, &["pay"])).await;
    let body = json!({ "id": "native.pay", "key": "k-1" });
    let first = w.operator_post("/v1/exec", &body).await;
    w.gateway.reload(of_ben(&["echo"], &count, &[]));
    for id in ["native.pay", "native_pay"] {
        let known = w.operator_post("/v1/exec", &json!({ "id": id, "key": "k-1" })).await;
        assert_eq!(known["operation"]["id"], first["operation"]["id"], "{known}");
        assert_eq!(known["operation"]["replayed"], true);
    }
    for more in [json!({ "id": "native.pay" }), json!({ "id": "native.pay", "key": "k-2" })] {
        assert_eq!(w.operator_post("/v1/exec", &more).await["error"]["code"], "unknown_method");
    }
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_panic_leaves_nothing_in_flight() {
    let w = stage(of_ben(&["echo"], &Arc::new(Count::default()), &[])).await;
    let (status, failed) = exec(&w, &json!({ "id": "native.echo", "arguments": { "panic": 1 } }), &[]).await;
    assert_eq!((status, &failed["error"]["code"]), (500, &json!("internal")), "{failed}");
    let metrics = w.metrics().await;
    let line = metrics.lines().find(|l| l.contains("calls_in_flight") && !l.starts_with('#')).unwrap();
    assert!(line.ends_with(" 0"), "{line}");
}

/// Never answers.
struct Silent;

#[async_trait]
impl Tool for Silent {
    fn plan(&self, _arguments: &RawObject) -> Result<Option<Intent>, BadArguments> {
        Ok(None)
    }

    async fn run(&self, _attempt: &Attempt) -> Result<ToolResult, RunError> {
        std::future::pending().await
    }

    fn safety(&self) -> Value {
        json!({ "effect": "mutating" })
    }
}

#[async_trait]
impl ReadTool for Silent {
    async fn read(&self, _: Context, _: RawObject) -> Result<ToolResult, BadArguments> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_gateway_that_stops_says_of_whom_the_same_again_is_safe() {
    let mut o = watched();
    o.tools = vec![
        tool("look", None, Body::Read(Arc::new(Silent))),
        tool("change", None, Body::Mutating(Arc::new(Silent))),
    ];
    let mut w = world(o, settings(), false).await;
    // The same on another address, where nobody is waited for.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    w.addr = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let port = Some(w.addr.port());
    let http =
        HttpConfig { port, shutdown: stop.clone(), drain: Duration::from_millis(50), ..Default::default() };
    let app = w.gateway.app(http).unwrap();
    tokio::spawn(mcp::server::serve(listener, app, CancellationToken::new(), Default::default()));
    let asked = [
        (json!({ "id": "native.look" }), 503, true),
        (json!({ "id": "native.change" }), 409, false),
        (json!({ "id": "native.change", "key": "k-1" }), 503, true),
    ];
    let answers = asked.map(|(body, status, again)| {
        let w = &w;
        async move {
            let reply = w.http("POST", &[(PATH, "/api/v1/exec")], &body.to_string()).await;
            let told = reply.last();
            assert_eq!(told["error"]["kind"], "admission_unknown", "{told}");
            assert_eq!(
                (reply.status, reply.header("retry-after").is_some()),
                (status, again),
                "{body}: {told}"
            );
        }
    });
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop.cancel();
    };
    tokio::join!(futures_util::future::join_all(answers), stopping);
}
