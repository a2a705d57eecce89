//! The examples as servers: what a client gets of them, again after a restart, and what becomes of handles.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code)]
#[path = "../examples/basket.rs"]
mod basket;
#[allow(dead_code)]
#[path = "../examples/deployment.rs"]
mod deployment;
#[allow(dead_code)]
#[path = "../examples/refund.rs"]
mod refund;

use counterfoil::config::Config;
use counterfoil::native::{Context, Failure, Native, NoArguments, Raw, Template, Tool, Unkeyed};
use counterfoil::run::{Running, Server};
use mcp::client::{CallOptions, ClientConfig, McpClient};
use mcp::json::{Limits, RawObject};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn config(name: &str, dir: &Path) -> Config {
    let mut config = Config::native(name, &dir.join("data"));
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config
}

fn raw(v: Value) -> Raw {
    Raw::parse(v.to_string(), &Limits::default()).unwrap()
}

fn client(running: &Running, capabilities: Value) -> McpClient {
    let mut config = ClientConfig::new(running.endpoint(), "test", "1");
    config.capabilities = raw(capabilities);
    McpClient::new(config).unwrap()
}

/// Calls a tool, under a key if one is named; each question is answered by the value of its key.
async fn answering(
    mcp: &McpClient,
    tool: &str,
    arguments: Value,
    key: Option<&str>,
    answers: Value,
) -> Value {
    let arguments = RawObject::parse(arguments.to_string(), &Limits::default()).unwrap();
    let params = key.map(|k| ("idempotencyKey".to_owned(), Raw::string(k))).into_iter().collect();
    let options = CallOptions { params, ..CallOptions::default() };
    let answer = |q: mcp::client::Question| {
        let given = answers.get(&q.key).map(|content| raw(json!({ "action": "accept", "content": content })));
        async move { given }
    };
    let reply = mcp.call_tool_answering(tool, Some(&arguments), options, answer).await.unwrap();
    reply.result.raw().read().unwrap()
}

async fn call(mcp: &McpClient, tool: &str, arguments: Value) -> Value {
    answering(mcp, tool, arguments, None, json!({})).await
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

fn kind(result: &Value) -> &str {
    result["_meta"]["dev.counterfoil/error"]["kind"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_a_refund_happen_once() {
    let dir = tempfile::tempdir().unwrap();
    let office = Arc::new(refund::Office::open(&dir.path().join("office")).unwrap());
    let asked = json!({ "order": "o-1", "amount": 250, "customer": "ada@example.com" });
    let mut first = None;
    for boot in 0..2 {
        let running =
            Server::start_with(config("refund", dir.path()), refund::native(office.clone())).await.unwrap();
        let mcp = client(&running, json!({}));
        for _ in 0..2 {
            let result = answering(&mcp, "orders_refund", asked.clone(), Some("again"), json!({})).await;
            assert_eq!(result["structuredContent"], json!({ "booked": 250, "letter": 1 }), "{result}");
            let id = result["_meta"]["dev.counterfoil/operation"]["id"].clone();
            assert_eq!(*first.get_or_insert(id.clone()), id, "boot {boot}");
        }
        assert_eq!(text(&call(&mcp, "orders_books", json!({})).await), "o-1: 250 refunded");
        running.shutdown().await.unwrap();
    }
    let sent = std::fs::read_to_string(dir.path().join("office/letters/sent")).unwrap();
    assert_eq!(sent.lines().count(), 1, "{sent}");
    let booked = std::fs::read_dir(dir.path().join("office/bank")).unwrap();
    assert_eq!(booked.filter(|e| e.as_ref().unwrap().path().extension().unwrap() == "json").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_waits_for_a_yes_and_becomes_a_task() {
    let dir = tempfile::tempdir().unwrap();
    let mut fleet = deployment::Fleet::open(&dir.path().join("fleet")).unwrap();
    fleet.takes = Duration::from_millis(900);
    let fleet = Arc::new(fleet);
    let running = Server::start_with(config("deployment", dir.path()), deployment::native(fleet.clone()))
        .await
        .unwrap();
    let nothing = fleet.releases();
    let release = |r: &str| json!({ "release": r });

    // Nobody can be asked through this client, so nothing is done yet.
    let deaf = client(&running, json!({}));
    let waits = call(&deaf, "deployment_start", release("1.0")).await;
    assert_eq!(kind(&waits), "approval_required", "{waits}");
    assert_eq!(fleet.releases(), nothing);

    // Who knows no tasks waits for the result, and hears how far it is.
    let asks = client(&running, json!({ "elicitation": {} }));
    let yes = json!({ "approval": { "approve": true } });
    let done = answering(&asks, "deployment_start", release("1.0"), None, yes.clone()).await;
    assert_eq!(done["structuredContent"]["machines"], json!(["north", "south", "west"]), "{done}");
    assert!(fleet.releases().iter().all(|(_, r)| r == "1.0"));

    // Who knows them gets one, since it takes longer than two seconds.
    let tasks = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let mcp = client(&running, tasks);
    let task = answering(&mcp, "deployment_start", release("2.0"), None, yes).await;
    assert_eq!(task["resultType"], "task", "{task}");
    let id = task["taskId"].as_str().unwrap();
    for _ in 0..400 {
        let now = mcp.get_task(id, CallOptions::default()).await.unwrap();
        if now.result.string("status").as_deref() == Some("completed") {
            let now: Value = now.result.raw().read().unwrap();
            assert_eq!(now["result"]["structuredContent"]["release"], "2.0", "{now}");
            assert!(text(&call(&asks, "deployment_show", json!({})).await).contains("south: 2.0"));
            running.shutdown().await.unwrap();
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the task did not end");
}

async fn shop(dir: &Path) -> (sandbox::Running, Running) {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let provider = sandbox::Sandbox::start(sandbox::Config::new(listen, dir.join("provider"))).await.unwrap();
    let mut config = config("basket", dir);
    config.sandbox = Some(provider.addr());
    let running = Server::start_with(config, basket::add_to(Native::new())).await.unwrap();
    (provider, running)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_basket_is_filled_read_and_paid_once() {
    let dir = tempfile::tempdir().unwrap();
    let (provider, running) = shop(dir.path()).await;
    let mcp = client(&running, json!({}));
    let tools = mcp.list_tools().await.unwrap();
    let create = tools.iter().find(|t| t.name == "basket_create").unwrap();
    assert_eq!(
        create.definition.string("description").unwrap(),
        "Makes an empty basket\n\nA basket handle ends when it was not used for 2h, and 7d (1h for callers without a name) \
         after it was made; then begin a new one."
    );

    let made = call(&mcp, "basket_create", json!({})).await;
    let basket = made["structuredContent"]["basket"].as_str().unwrap().to_owned();
    let add = async |item: &str, version: u64| {
        call(&mcp, "basket_add", json!({ "basket": basket, "item": item, "version": version })).await
    };
    assert_eq!(add("tea", 1).await["structuredContent"]["version"], 2);
    assert_eq!(add("cake", 2).await["structuredContent"]["items"], json!(["tea", "cake"]));
    // Who saw an older one is told, and can go on.
    let late = add("coffee", 2).await;
    assert_eq!(late["isError"], true);
    assert_eq!(late["_meta"]["com.example/basket"]["version"], 3, "{late}");
    assert!(text(&late).contains("nothing was done. It holds tea, cake now, at version 3"), "{late}");
    assert_eq!(add("coffee", 3).await["structuredContent"]["total"], 450 + 380 + 600);
    let shown = call(&mcp, "basket_show", json!({ "basket": basket })).await;
    assert_eq!(shown["structuredContent"]["items"], json!(["tea", "cake", "coffee"]));
    let listed = call(&mcp, "basket_list", json!({})).await;
    assert_eq!(listed["structuredContent"]["baskets"].as_array().unwrap().len(), 1);

    let pay = json!({ "basket": basket, "version": 4, "order": "o-1" });
    let paid = call(&mcp, "basket_checkout", pay.clone()).await;
    assert_eq!(paid["structuredContent"]["paid"], 1430, "{paid}");
    let again = answering(&mcp, "basket_checkout", pay, Some("other"), json!({})).await;
    assert_eq!(kind(&again), "handle_unknown", "{again}");
    let gone = call(&mcp, "basket_show", json!({ "basket": basket })).await;
    assert_eq!(kind(&gone), "handle_unknown", "{gone}");
    assert_eq!(
        text(&gone),
        "There is no such basket handle for this caller, so nothing was done. Check that it was passed on as it is; if it \
         was, begin a new one and go on with that."
    );
    running.shutdown().await.unwrap();
    provider.shutdown().await;
}

/// Notes that end almost at once, and every way to look at one.
fn notes(seen: Arc<Mutex<Vec<String>>>) -> Native {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Which {
        note: String,
    }
    let reads = move |context: Context, asked: Which| {
        let seen = seen.clone();
        async move {
            let held = context.handles().get::<String>("note", &asked.note).await;
            seen.lock().unwrap().push(format!("{held:?}"));
            Ok(held?.value)
        }
    };
    let idle = Duration::from_millis(600);
    Native::new()
        .tool(
            Tool::changing("notes.make", "Makes one", [""; 0], |attempt, _: NoArguments| async move {
                Ok(attempt.handles().create("make", "note", &"hello").await?)
            })
            .handles("note", idle, idle)
            .unkeyed(Unkeyed::New),
        )
        .tool(Tool::reading("notes.read", "Reads one", reads))
        .tool(
            Tool::changing("notes.end", "Ends one", [""; 0], |attempt, asked: Which| async move {
                attempt.handles().destroy("end", "note", &asked.note).await?;
                Ok("ended".to_owned())
            })
            .unkeyed(Unkeyed::New),
        )
        .template(Template::new("note://{note}", "note", |context: Context, asked: Which| async move {
            Ok::<String, Failure>(context.handles().get::<String>("note", &asked.note).await?.value)
        }))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_of_an_expired_handle_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::default();
    let running = Server::start_with(config("notes", dir.path()), notes(Arc::clone(&seen))).await.unwrap();
    let mcp = client(&running, json!({}));
    let note = text(&call(&mcp, "notes_make", json!({})).await).to_owned();
    let of = |note: &str| json!({ "note": note });
    assert_eq!(text(&call(&mcp, "notes_read", of(&note)).await), "hello");
    tokio::time::sleep(Duration::from_millis(700)).await;
    for tool in ["notes_read", "notes_end"] {
        let expired = call(&mcp, tool, of(&note)).await;
        assert_eq!((kind(&expired), &expired["isError"]), ("handle_expired", &json!(true)), "{expired}");
        assert_eq!(
            text(&expired),
            "This note handle has expired, so nothing was done. Begin a new one and go on with that; what it held is gone."
        );
        assert_eq!(expired["structuredContent"]["error"]["kind"], "handle_expired");
        let unknown = call(&mcp, tool, of("hd_01K8Z5T7QH4N0V8W2X6Y9ABCDE")).await;
        assert_eq!(kind(&unknown), "handle_unknown", "{unknown}");
    }
    assert!(seen.lock().unwrap()[1].contains("Expired(\"note\")"));
    // A resource says the same in its own words.
    for (note, said) in [(note.as_str(), "handle_expired"), ("hd_other", "no such resource")] {
        let uri = Raw::string(&format!("note://{note}"));
        let refused =
            mcp.request("resources/read", &[("uri", uri)], CallOptions::default()).await.unwrap_err();
        assert!(format!("{refused:?}").contains(said), "{refused:?}");
    }
    running.shutdown().await.unwrap();
}
