//! Servers made with the library: the example with its two effects, what a retry, a fault and a restart make of them,
//! and what wrong arguments, slow functions and panics become.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code)]
#[path = "../examples/orders.rs"]
mod orders;

use counterfoil::config::Config;
use counterfoil::native::{
    Attempt, CallResult, Change, Context, Failure, Native, NoArguments, Raw, Resource, Structured, Tool,
    ToolError,
};
use counterfoil::run::{Running, Server};
use mcp::client::{CallOptions, ClientConfig, McpClient};
use mcp::json::{Limits, RawObject};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

#[path = "common/mod.rs"]
mod common;
use common::{arm, effects};

/// The provider, apart from any server, so that servers may come and go.
async fn provider(dir: &Path) -> (sandbox::Running, String) {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let running = sandbox::Sandbox::start(sandbox::Config::new(listen, dir.join("provider"))).await.unwrap();
    let at = running.addr().to_string();
    (running, at)
}

fn config(dir: &Path, provider: &str) -> Config {
    let mut config = orders::config(&dir.join("data"));
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.sandbox = Some(provider.parse().unwrap());
    config
}

fn alone(dir: &Path) -> Config {
    let mut config = Config::native("alone", &dir.join("data"));
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config
}

fn client(running: &Running) -> McpClient {
    McpClient::new(ClientConfig::new(running.endpoint(), "test", "1")).unwrap()
}

async fn call(mcp: &McpClient, tool: &str, arguments: Value, key: Option<&str>) -> Value {
    let arguments = RawObject::parse(arguments.to_string(), &Limits::default()).unwrap();
    let params = key.map(|k| ("idempotencyKey".to_owned(), Raw::string(k))).into_iter().collect();
    let options = CallOptions { params, ..CallOptions::default() };
    let reply = mcp.call_tool(tool, Some(&arguments), options).await.unwrap();
    reply.result.raw().read().unwrap()
}

fn operation(result: &Value) -> &Value {
    &result["_meta"]["dev.counterfoil/operation"]
}

/// The provider's counts are asked for by a blocking client.
async fn counted(provider: &str, order: &str, customer: &str) -> (u64, u64) {
    let (at, order, customer) = (provider.to_owned(), order.to_owned(), customer.to_owned());
    tokio::task::spawn_blocking(move || (effects(&at, &order), effects(&at, &customer))).await.unwrap()
}

async fn armed(provider: &str, rule: Value) {
    let at = provider.to_owned();
    tokio::task::spawn_blocking(move || arm(&at, &rule.to_string())).await.unwrap();
}

const REFUND: &str = r#"{"id":"o-1","reason":"It came broken."}"#;

fn refund() -> Value {
    serde_json::from_str(REFUND).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_gets_the_stored_result_and_each_effect_is_there_once() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, at) = provider(dir.path()).await;
    let running = Server::start_with(config(dir.path(), &at), orders::native()).await.unwrap();
    let mcp = client(&running);
    let names: Vec<String> = mcp.list_tools().await.unwrap().into_iter().map(|t| t.name).collect();
    assert_eq!(names[..3], ["orders_get", "orders_refund", "orders_count"], "native tools come first");
    assert_eq!(names.last().unwrap(), "operation_status");

    let mut told = Vec::new();
    let arguments = RawObject::parse(REFUND, &Limits::default()).unwrap();
    let options = CallOptions {
        params: vec![("idempotencyKey".into(), Raw::string("again"))],
        on_progress: Some(Box::new(|p| told.push((p.progress, p.message.unwrap_or_default())))),
        ..CallOptions::default()
    };
    // Slow enough for a client to hear of it.
    armed(&at, json!({ "on": "POST /v1/messages", "do": "delay", "delay_ms": 400 })).await;
    let reply = mcp.call_tool("orders_refund", Some(&arguments), options).await.unwrap();
    let first: Value = reply.result.raw().read().unwrap();
    assert!(told.iter().any(|(_, m)| m == "refunded"), "{told:?}");
    assert_eq!(first["structuredContent"]["mailed"], true, "{first}");
    assert_eq!(first["structuredContent"]["amount"], 2500);
    let second = call(&mcp, "orders_refund", refund(), Some("again")).await;
    assert_eq!(second["structuredContent"], first["structuredContent"]);
    assert_eq!(operation(&second)["replayed"], true, "{second}");
    assert_eq!(operation(&second)["id"], operation(&first)["id"]);
    assert_eq!(counted(&at, "o-1", "ada@example.com").await, (1, 1));

    // Its records name the effects as the author did.
    let id = operation(&first)["id"].as_str().unwrap().to_owned();
    let (_, shown) = running.operator().get(&format!("/v1/ops/{id}")).await.unwrap();
    let effects: Vec<_> = shown["effects"].as_array().unwrap().iter().map(|e| e["name"].clone()).collect();
    assert_eq!(effects, [json!("refund"), json!("mail")], "{shown}");
    let (_, method) = running.operator().get("/v1/methods/orders.refund").await.unwrap();
    assert_eq!(method["safety"]["recovery"]["value"], "key", "{method}");
    assert_eq!(method["safety"]["calls"].as_array().unwrap().len(), 2);
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_on_the_second_effect_does_not_repeat_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, at) = provider(dir.path()).await;
    let running = Server::start_with(config(dir.path(), &at), orders::native()).await.unwrap();
    let mcp = client(&running);
    armed(&at, json!({ "on": "POST /v1/messages", "do": "apply_then_cut", "times": 1 })).await;
    let result = call(&mcp, "orders_refund", refund(), Some("cut")).await;
    assert_eq!(result["structuredContent"]["mailed"], true, "{result}");
    assert_eq!(operation(&result)["attempt"], 1);
    assert_eq!(counted(&at, "o-1", "ada@example.com").await, (1, 1));
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_function_runs_again_and_what_happened_is_not_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, at) = provider(dir.path()).await;
    let running = Server::start_with(config(dir.path(), &at), orders::native()).await.unwrap();
    let mcp = client(&running);
    // More than one attempt may send.
    armed(&at, json!({ "on": "POST /v1/messages", "do": "cut", "times": 6 })).await;
    let result = call(&mcp, "orders_refund", refund(), Some("worn")).await;
    assert_eq!(result["structuredContent"]["mailed"], true, "{result}");
    assert!(operation(&result)["attempt"].as_u64().unwrap() >= 2, "{result}");
    assert_eq!(counted(&at, "o-1", "ada@example.com").await, (1, 1));
    running.shutdown().await.unwrap();
}

/// A configuration with the provider's manifests as files of its own, which may say more.
fn from_manifests(dir: &Path, provider: &str, more: &str) -> Config {
    let mut text = "[server]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    for (file, manifest) in provider::builtin::sandbox_manifests() {
        let here = manifest.replace("http://127.0.0.1:8690", &format!("http://{provider}"));
        std::fs::write(dir.join(file), format!("{more}\n{here}")).unwrap();
        let name = file.trim_end_matches(".toml");
        text.push_str(&format!("[[integration]]\nname = \"{name}\"\nmanifest = \"{file}\"\n"));
    }
    Config::parse(&dir.join("counterfoil.toml"), &text, Vec::<(String, String)>::new()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_between_the_effects_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, at) = provider(dir.path()).await;
    let running = Server::start_with(from_manifests(dir.path(), &at, ""), orders::native()).await.unwrap();
    armed(&at, json!({ "on": "POST /v1/messages", "do": "apply_then_hang", "times": 1 })).await;
    let mcp = client(&running);
    let lost = tokio::spawn(async move { call(&mcp, "orders_refund", refund(), Some("restart")).await });
    let begun = Instant::now();
    while counted(&at, "o-1", "ada@example.com").await != (1, 1) {
        assert!(begun.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    lost.abort();
    // Not ended in order: it stops where it stands. Meanwhile the manifests change, so that requests made today are
    // other ones; what was asked for is the same, so what was recorded counts.
    drop(running);
    let running = loop {
        let config = from_manifests(dir.path(), &at, "headers = { X-Of-Today = \"1\" }");
        match Server::start_with(config, orders::native()).await {
            Ok(running) => break running,
            Err(e) => assert!(begun.elapsed() < Duration::from_secs(20), "{e}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let result = call(&client(&running), "orders_refund", refund(), Some("restart")).await;
    assert_eq!(result["structuredContent"]["mailed"], true, "{result}");
    assert_eq!(counted(&at, "o-1", "ada@example.com").await, (1, 1));
    let id = operation(&result)["id"].as_str().unwrap();
    let (_, shown) = running.operator().get(&format!("/v1/ops/{id}")).await.unwrap();
    assert!(!shown.to_string().to_lowercase().contains("x-of-today"), "{shown}");
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_an_answer_and_nothing_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, at) = provider(dir.path()).await;
    let running = Server::start_with(config(dir.path(), &at), orders::native()).await.unwrap();
    let mcp = client(&running);
    armed(&at, json!({ "on": "POST /v1/refunds", "do": "refuse", "times": 1 })).await;
    let result = call(&mcp, "orders_refund", refund(), Some("no")).await;
    assert_eq!(result["isError"], true, "{result}");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("refused"), "{result}");
    assert_eq!(counted(&at, "o-1", "ada@example.com").await, (0, 0));
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_settles_a_doubt_and_the_function_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, at) = provider(dir.path()).await;
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[sandbox]\nlisten = \"{at}\"\n[tools.\"mail.messages.send\"]\nrecovery = \"none\"\n"
    );
    let config =
        Config::parse(&dir.path().join("counterfoil.toml"), &text, Vec::<(String, String)>::new()).unwrap();
    let running = Server::start_with(config, orders::native()).await.unwrap();
    let mcp = client(&running);
    let (_, method) = running.operator().get("/v1/methods/orders.refund").await.unwrap();
    assert_eq!(method["safety"]["recovery"]["value"], "none", "the weakest of its methods: {method}");
    armed(&at, json!({ "on": "POST /v1/messages", "do": "apply_then_cut", "times": 1 })).await;
    let doubt = call(&mcp, "orders_refund", refund(), Some("doubt")).await;
    let error = &doubt["_meta"]["dev.counterfoil/error"];
    assert_eq!(error["kind"], "in_doubt", "{doubt}");
    let id = error["operationId"].as_str().unwrap();
    let verdict = json!({ "by": "ada", "verdict": "applied" });
    let (status, told) = running.operator().post(&format!("/v1/ops/{id}/resolve"), &verdict).await.unwrap();
    assert!(status.is_success(), "{told}");
    let result = call(&mcp, "orders_refund", refund(), Some("doubt")).await;
    assert_eq!(result["structuredContent"]["mailed"], true, "{result}");
    assert_eq!(counted(&at, "o-1", "ada@example.com").await, (1, 1));
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn several_effects_of_one_kind_and_readings() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, at) = provider(dir.path()).await;
    let native = Native::new().tool(Tool::changing(
        "news.send",
        "Mails everybody",
        ["mail.messages.send"],
        |attempt: Attempt, _: NoArguments| async move {
            let mail = |to: &'static str| {
                attempt.call(
                    ("mail", to),
                    "mail.messages.send",
                    json!({ "to": to, "subject": "News", "body": "None." }),
                )
            };
            // Asked for at once; sent one after another.
            let (a, b) = tokio::join!(mail("a@example.com"), mail("b@example.com"));
            let payment = attempt.read("payments.payments.get", json!({ "id": "pay_demo" })).await?;
            let refused = attempt.read("payments.payments.get", json!({ "id": "pay_none" })).await?;
            let unknown = attempt.read("mail.messages.send", json!({})).await.is_err();
            CallResult::structured(&json!({
                "sent": [a?.applied(), b?.applied()],
                "read": [payment.json()["id"], refused.status(), unknown],
            }))
        },
    ));
    let methods = native.methods();
    let native =
        native.tool(Tool::reading("pays.get", "A payment", move |_: Context, _: NoArguments| {
            let methods = methods.clone();
            async move {
                Ok(methods.read("payments.payments.get", json!({ "id": "pay_demo" })).await?.into_result())
            }
        }));
    let running = Server::start_with(config(dir.path(), &at), native).await.unwrap();
    let mcp = client(&running);
    let result = call(&mcp, "news_send", json!({}), None).await;
    let expected = json!({ "sent": [true, true], "read": ["pay_demo", 404, true] });
    assert_eq!(result["structuredContent"], expected, "{result}");
    assert_eq!(counted(&at, "a@example.com", "b@example.com").await, (1, 1));
    let result = call(&mcp, "pays_get", json!({}), None).await;
    assert_eq!(result["structuredContent"]["id"], "pay_demo", "{result}");
    running.shutdown().await.unwrap();
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Pay {
    amount: u64,
}

/// A tool that breaks the rules.
fn changing<W>(calls: &[&str], function: fn(Attempt, Pay) -> W) -> Native
where
    W: Future<Output = Result<CallResult, ToolError>> + Send + 'static,
{
    Native::new().tool(Tool::changing(
        "bad.pay",
        "Pays badly",
        calls.iter().map(|c| (*c).to_owned()),
        function,
    ))
}

fn payment(amount: u64, order: &str) -> Value {
    json!({ "amount": amount, "currency": "eur", "order_id": order })
}

#[tokio::test(flavor = "multi_thread")]
async fn another_request_under_the_same_name_is_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, at) = provider(dir.path()).await;
    let native = changing(&["payments.payments.create"], |attempt, pay| async move {
        // The amount depends on the attempt: just what a function may not do.
        let paid = attempt
            .call("pay", "payments.payments.create", payment(pay.amount + u64::from(attempt.number()), "o-9"))
            .await?;
        Ok(paid.into_result())
    });
    let running = Server::start_with(config(dir.path(), &at), native).await.unwrap();
    let mcp = client(&running);
    armed(&at, json!({ "on": "POST /v1/payments", "do": "cut", "times": 5 })).await;
    let result = call(&mcp, "bad_pay", json!({ "amount": 5 }), Some("k")).await;
    let error = &result["_meta"]["dev.counterfoil/error"];
    assert_eq!(error["kind"], "in_doubt", "{result}");
    let id = error["operationId"].as_str().unwrap().to_owned();
    let (_, shown) = running.operator().get(&format!("/v1/ops/{id}")).await.unwrap();
    assert!(shown.to_string().contains("intent_mismatch"), "{shown}");
    assert_eq!(counted(&at, "o-9", "-").await, (0, 0));
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_function_may_not_ask_is_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, at) = provider(dir.path()).await;
    let native = changing(&["payments.payments.create"], |attempt, pay| async move {
        let pays =
            |name: &'static str| attempt.call(name, "payments.payments.create", payment(pay.amount, "o-8"));
        match pay.amount {
            1 => attempt.call("mail", "mail.messages.send", json!({})).await,
            2 => pays("request").await,
            3 => {
                pays("pay").await?;
                pays("pay").await
            }
            4 => attempt.call("pay", "payments.payments.create", json!([])).await,
            _ => {
                // Dropped at once: what was asked for is done all the same, or never begun.
                let _ = tokio::time::timeout(Duration::from_millis(1), pays("pay")).await;
                panic!("a secret")
            }
        }
        .map(|reply| reply.into_result())
    });
    let running = Server::start_with(config(dir.path(), &at), native).await.unwrap();
    let mcp = client(&running);
    for (amount, says) in [
        (1, "does not name mail.messages.send"),
        (2, "is the name of another effect"),
        (3, "Two effects of this tool are called"),
        (4, "can't be asked this"),
    ] {
        let result = call(&mcp, "bad_pay", json!({ "amount": amount }), None).await;
        assert!(result.to_string().contains(says), "{amount}: {result}");
    }
    // The first of the two was paid, and the account says so.
    assert_eq!(counted(&at, "o-8", "-").await, (1, 0));
    let result = call(&mcp, "bad_pay", json!({ "amount": 5 }), None).await;
    assert!(!result.to_string().contains("a secret"), "{result}");
    assert!(result.to_string().contains("unexpectedly"), "{result}");
    running.shutdown().await.unwrap();
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Wait {
    /// How long, in milliseconds.
    ms: u64,
    /// A time of day, read by hand.
    #[serde(default, deserialize_with = "hour")]
    #[allow(dead_code)]
    hour: u8,
}

fn hour<'de, D: serde::Deserializer<'de>>(d: D) -> Result<u8, D::Error> {
    let h = <u8 as serde::Deserialize>::deserialize(d)?;
    if h < 24 { Ok(h) } else { Err(serde::de::Error::custom("a day has 24 hours")) }
}

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Sum {
    n: i32,
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_tools_answer_whatever_happens() {
    let dir = tempfile::tempdir().unwrap();
    let native = Native::new()
        .tool(
            Tool::reading("slow", "Waits", |_: Context, wait: Wait| async move {
                tokio::time::sleep(Duration::from_millis(wait.ms)).await;
                Ok("done")
            })
            .timeout(Duration::from_millis(200)),
        )
        .tool(Tool::reading("panics", "Panics", |_: Context, _: NoArguments| async move {
            if true {
                panic!("a secret");
            }
            Ok("done")
        }))
        .tool(Tool::reading("fails", "Fails", |_: Context, _: NoArguments| async {
            Err::<CallResult, _>(ToolError::failed("The moon is in the way."))
        }))
        .tool(Tool::reading("sum", "A sum", |_: Context, _: NoArguments| async {
            Ok(Structured(Sum { n: 3 }))
        }))
        .tool(
            Tool::reading("either", "One or the other", |_: Context, given: Value| async move {
                Ok(given.to_string())
            })
            .input_schema(
                json!({ "type": "object", "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] }),
            ),
        );
    let running = Server::start_with(alone(dir.path()), native).await.unwrap();
    assert!(running.sandbox().is_none());
    let mcp = client(&running);
    let text = |r: &Value| r["content"][0]["text"].as_str().unwrap().to_owned();

    let r = call(&mcp, "slow", json!({ "ms": 1 }), None).await;
    assert_eq!((text(&r).as_str(), &r["isError"]), ("done", &json!(false)));
    let r = call(&mcp, "slow", json!({ "ms": 5000 }), None).await;
    assert_eq!(r["isError"], true);
    assert!(text(&r).contains("longer than its limit of 200ms"), "{r}");
    let r = call(&mcp, "slow", json!({ "ms": 1, "hour": 25 }), None).await;
    assert_eq!(r["_meta"]["dev.counterfoil/error"]["kind"], "bad_arguments", "{r}");
    assert!(text(&r).contains("argument `hour`: a day has 24 hours"), "{r}");
    let r = call(&mcp, "slow", json!({ "ms": "soon" }), None).await;
    assert!(text(&r).contains("/ms"), "{r}");
    let r = call(&mcp, "panics", json!({}), None).await;
    assert_eq!(r["isError"], true);
    assert!(text(&r).contains("failed unexpectedly") && !r.to_string().contains("a secret"), "{r}");
    let r = call(&mcp, "fails", json!({}), None).await;
    assert_eq!((text(&r).as_str(), &r["isError"]), ("The moon is in the way.", &json!(true)));
    let r = call(&mcp, "sum", json!({}), None).await;
    assert_eq!(r["structuredContent"], json!({ "n": 3 }));
    let r = call(&mcp, "either", json!({ "b": 1 }), None).await;
    assert_eq!(text(&r), r#"{"b":1}"#);
    let r = call(&mcp, "either", json!({ "a": 1, "b": 1 }), None).await;
    assert_eq!(r["_meta"]["dev.counterfoil/error"]["kind"], "bad_arguments", "{r}");

    let tools = mcp.list_tools().await.unwrap();
    let of = |name: &str| -> Value {
        tools.iter().find(|t| t.name == name).unwrap().definition.raw().read().unwrap()
    };
    assert_eq!(of("sum")["outputSchema"]["properties"]["n"]["type"], "integer");
    assert_eq!(of("slow")["inputSchema"]["properties"]["ms"]["description"], "How long, in milliseconds.");
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_settles_native_tools_too() {
    let dir = tempfile::tempdir().unwrap();
    let native = || {
        Native::new()
            .tool(Tool::reading("a.read", "Reads", |_: Context, _: NoArguments| async { Ok("a") }))
            .tool(Tool::changing(
                "a.pay",
                "Pays",
                ["payments.payments.create"],
                |attempt: Attempt, pay: Pay| async move {
                    Ok(attempt
                        .call("pay", "payments.payments.create", payment(pay.amount, "o-7"))
                        .await?
                        .into_result())
                },
            ))
    };
    let file = |tools: &str| {
        let text =
            format!("[server]\nlisten = \"127.0.0.1:0\"\n[sandbox]\nlisten = \"127.0.0.1:0\"\n{tools}");
        Config::parse(&dir.path().join("counterfoil.toml"), &text, Vec::<(String, String)>::new()).unwrap()
    };
    for (tools, says) in [
        ("[tools.\"a.read\"]\nunkeyed = \"new\"\n", "a.read only reads"),
        ("[tools.\"a.pay\"]\nrecovery = \"none\"\n", "set this on them"),
        ("[tools.\"a.pai\"]\nunkeyed = \"new\"\n", "did you mean \"a.pay\"?"),
    ] {
        let refused = Server::start_with(file(tools), native()).await.err().expect("refused").to_string();
        assert!(refused.contains(says), "{refused}");
    }
    // Without the provider, the method that it calls isn't there.
    let refused = Server::start_with(alone(dir.path()), native()).await.err().expect("refused").to_string();
    assert!(refused.contains("the tool a.pay calls the method \"payments.payments.create\""), "{refused}");

    let running =
        Server::start_with(file("[tools.\"a.pay\"]\nname = \"pay\"\nunkeyed = \"reject\"\n"), native())
            .await
            .unwrap();
    let mcp = client(&running);
    let names = |tools: Vec<mcp::client::Tool>| tools.into_iter().map(|t| t.name).collect::<Vec<_>>();
    assert_eq!(names(mcp.list_tools().await.unwrap())[..2], ["a_read", "pay"]);
    let r = call(&mcp, "pay", json!({ "amount": 5 }), None).await;
    assert_eq!(r["_meta"]["dev.counterfoil/error"]["kind"], "key_required", "{r}");
    // A reload keeps them, under what is said now.
    running.reload(&file("[tools.\"a.pay\"]\nunkeyed = \"new\"\n")).unwrap();
    assert_eq!(names(mcp.list_tools().await.unwrap())[..2], ["a_read", "a_pay"]);
    let r = call(&mcp, "a_pay", json!({ "amount": 5 }), None).await;
    assert_eq!(r["isError"], false, "{r}");
    running.shutdown().await.unwrap();
}

async fn ask(mcp: &McpClient, method: &str, params: &[(&str, Value)]) -> Value {
    let params: Vec<_> = params.iter().map(|(n, v)| (*n, Raw::of(v).unwrap())).collect();
    let reply = mcp
        .request(method, &params, CallOptions::default())
        .await
        .unwrap_or_else(|e| panic!("{method}: {e}"));
    reply.result.raw().read().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_templates_prompts_and_completions() {
    let dir = tempfile::tempdir().unwrap();
    let (_provider, at) = provider(dir.path()).await;
    let running = Server::start_with(config(dir.path(), &at), orders::native()).await.unwrap();
    let mcp = client(&running);
    let listed = ask(&mcp, "resources/list", &[]).await;
    assert_eq!(listed["resources"][0]["uri"], "orders://list", "{listed}");
    let read = ask(&mcp, "resources/read", &[("uri", json!("orders://list"))]).await;
    assert_eq!(read["contents"][0]["mimeType"], "application/json", "{read}");
    let read = ask(&mcp, "resources/read", &[("uri", json!("orders://order/o-2"))]).await;
    assert!(read["contents"][0]["text"].as_str().unwrap().contains("grace@example.com"), "{read}");
    let none = mcp
        .request("resources/read", &[("uri", Raw::string("orders://order/o-7"))], CallOptions::default())
        .await;
    assert!(none.is_err());
    let template = json!({ "type": "ref/resource", "uri": "orders://order/{id}" });
    let asked = [("ref", template), ("argument", json!({ "name": "id", "value": "o-" }))];
    let completed = ask(&mcp, "completion/complete", &asked).await;
    assert_eq!(completed["completion"]["values"], json!(["o-1", "o-2", "o-3"]), "{completed}");
    let prompts = ask(&mcp, "prompts/list", &[]).await;
    assert_eq!(
        prompts["prompts"][0]["arguments"][0],
        json!({ "name": "order", "description": "The order's number.", "required": true }),
        "{prompts}"
    );
    let made =
        ask(&mcp, "prompts/get", &[("name", json!("apology")), ("arguments", json!({ "order": "o-1" }))])
            .await;
    assert!(made["messages"][0]["content"]["text"].as_str().unwrap().contains("friendly"), "{made}");
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_resources_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let native = Native::new()
        .resource(Resource::reading("a://panics", "panics", |_: Context| async {
            if true {
                panic!("a secret");
            }
            Ok(String::new())
        }))
        .resource(Resource::reading("a://fails", "fails", |_: Context| async {
            Err::<String, _>(Failure::Failed("the moon is in the way".into()))
        }));
    let changes = native.changes();
    let running = Server::start_with(alone(dir.path()), native).await.unwrap();
    changes.tell(Change::Resources);
    let mcp = client(&running);
    for (uri, says) in [("a://panics", "failed unexpectedly"), ("a://fails", "the moon is in the way")] {
        let refused =
            mcp.request("resources/read", &[("uri", Raw::string(uri))], CallOptions::default()).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(says) && !refused.contains("a secret"), "{refused}");
    }
    running.shutdown().await.unwrap();
}
