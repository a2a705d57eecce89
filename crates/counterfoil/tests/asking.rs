//! Tools that change the world and ask on their way, with steps of their own and with handles: what is done before a
//! question is not done again when the function runs again with its answer.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use counterfoil::config::Config;
use counterfoil::native::input::{self, Answer};
use counterfoil::native::{
    Attempt, CallResult, HandleError, Native, NoArguments, Raw, Step, StepError, Tool, ToolError, Unkeyed,
};
use counterfoil::run::{Running, Server};
use mcp::client::{CallOptions, ClientConfig, McpClient};
use mcp::json::{Limits, RawObject};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn config(dir: &Path) -> Config {
    let mut config = Config::native("asking", &dir.join("data"));
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config
}

fn client(running: &Running, capabilities: Value) -> McpClient {
    let mut config = ClientConfig::new(running.endpoint(), "test", "1");
    config.capabilities = raw(capabilities);
    McpClient::new(config).unwrap()
}

fn raw(v: Value) -> Raw {
    Raw::parse(v.to_string(), &Limits::default()).unwrap()
}

/// Calls a tool; each question is answered by the value of its key.
async fn call(mcp: &McpClient, tool: &str, arguments: Value, answers: Value) -> Value {
    let arguments = RawObject::parse(arguments.to_string(), &Limits::default()).unwrap();
    let answer = |q: mcp::client::Question| {
        let given = answers.get(&q.key).map(|content| raw(json!({ "action": "accept", "content": content })));
        async move { given }
    };
    let reply =
        mcp.call_tool_answering(tool, Some(&arguments), CallOptions::default(), answer).await.unwrap();
    reply.result.raw().read().unwrap()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

fn changing<A, F, W>(id: &str, function: F) -> Tool
where
    A: serde::de::DeserializeOwned + schemars::JsonSchema + Send + 'static,
    F: Fn(Attempt, A) -> W + Send + Sync + 'static,
    W: Future<Output = Result<CallResult, ToolError>> + Send + 'static,
{
    Tool::changing(id, "Changes something", Vec::<String>::new(), function)
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Named {
    name: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sure {
    sure: bool,
}

fn first<T: serde::de::DeserializeOwned>(answers: &[Answer]) -> Result<Option<T>, ToolError> {
    answers.first().map(input::filled).transpose().map(Option::flatten)
}

/// How often the function began, and its step ran, under which keys.
#[derive(Clone, Default)]
struct Seen {
    began: Arc<AtomicUsize>,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Seen {
    fn began(&self) -> usize {
        self.began.load(Ordering::SeqCst)
    }
    fn keys(&self) -> Vec<String> {
        self.keys.lock().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_before_two_rounds_of_questions_runs_once() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Seen::default();
    let told = seen.clone();
    let native = Native::new().tool(changing("seats.book", move |attempt, _: NoArguments| {
        let seen = told.clone();
        async move {
            seen.began.fetch_add(1, Ordering::SeqCst);
            let keys = seen.keys.clone();
            let seat: u32 = attempt
                .effect("hold", Step::none(), &json!({ "row": 7 }), move |key| {
                    keys.lock().unwrap().push(key);
                    async { Ok::<u32, StepError>(12) }
                })
                .await?;
            let named: Option<Named> =
                first(&attempt.ask(&[input::form::<Named>("name", "Whose?")?]).await?)?;
            let sure: Option<Sure> = first(&attempt.ask(&[input::form::<Sure>("sure", "Sure?")?]).await?)?;
            let (Some(named), Some(Sure { sure: true })) = (named, sure) else {
                return Ok(CallResult::text("not booked"));
            };
            Ok(CallResult::text(format!("seat {seat} is {}'s", named.name)))
        }
    }));
    let running = Server::start_with(config(dir.path()), native).await.unwrap();
    let mcp = client(&running, json!({ "elicitation": {} }));
    let answers = json!({ "name": { "name": "Ada" }, "sure": { "sure": true } });
    let result = call(&mcp, "seats_book", json!({}), answers).await;
    assert_eq!(text(&result), "seat 12 is Ada's");
    assert_eq!(seen.began(), 3, "once more for each round");
    assert_eq!(seen.keys().len(), 1, "the step is not run again");
    let id = result["_meta"]["dev.counterfoil/operation"]["id"].as_str().unwrap();
    let (_, shown) = running.operator().get(&format!("/v1/ops/{id}")).await.unwrap();
    assert_eq!(shown["effects"][0]["receipt"]["value"], 12, "{shown}");
    running.shutdown().await.unwrap();
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Plan {
    /// `none` or `key`.
    step: String,
    /// How the first run ends.
    first: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_came_to_nothing_known_goes_on_as_its_author_said() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Seen::default();
    let told = seen.clone();
    let native = Native::new().tool(changing("steps.run", move |attempt, plan: Plan| {
        let keys = told.keys.clone();
        async move {
            let step = match plan.step.as_str() {
                "key" => Step::key(Duration::from_secs(3600)),
                _ => Step::none(),
            };
            let given = json!([plan.step, plan.first]);
            let done: String = attempt
                .effect(("step", plan.first.clone()), step, &given, move |key| {
                    let again = keys.lock().unwrap().contains(&key);
                    keys.lock().unwrap().push(key);
                    let first = plan.first.clone();
                    async move {
                        match first.as_str() {
                            _ if again => Ok("done at last".to_owned()),
                            "unknown" => Err(StepError::Unknown("the line went dead".into())),
                            "refused" => Err(StepError::Refused("no seat is left".into())),
                            "panic" => panic!("on purpose"),
                            _ => Err(StepError::NotSent("the door is shut".into())),
                        }
                    }
                })
                .await?;
            Ok(CallResult::text(done))
        }
    }));
    let running = Server::start_with(config(dir.path()), native).await.unwrap();
    let mcp = client(&running, json!({}));
    let run = async |step: &str, first: &str| {
        seen.keys.lock().unwrap().clear();
        let result = call(&mcp, "steps_run", json!({ "step": step, "first": first }), json!({})).await;
        (result, seen.keys())
    };
    // With a key it runs again, under the same one; nothing left is nothing lost, whatever the step.
    for (step, how) in [("key", "unknown"), ("key", "panic"), ("key", "not_sent"), ("none", "not_sent")] {
        let (result, keys) = run(step, how).await;
        assert_eq!(text(&result), "done at last", "{step} {how}: {result}");
        assert_eq!((keys.len(), &keys[0]), (2, &keys[1]), "{step} {how}");
    }
    // Without one it never does, and nobody is told that it is done.
    for how in ["unknown", "panic"] {
        let (result, keys) = run("none", how).await;
        assert_eq!(result["_meta"]["dev.counterfoil/error"]["kind"], "in_doubt", "{result}");
        assert_eq!(keys.len(), 1, "{how}");
    }
    let (result, keys) = run("key", "refused").await;
    assert!(text(&result).contains("no seat is left"), "{result}");
    assert_eq!((result["isError"].as_bool(), keys.len()), (Some(true), 1));
    running.shutdown().await.unwrap();
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Item {
    basket: String,
    item: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Which {
    basket: String,
}

type Items = Vec<String>;

fn baskets() -> Native {
    let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
    Native::new()
        .tool(
            changing("basket.open", |attempt, _: NoArguments| async move {
                let basket = attempt.handles().create("open", "basket", &Items::new()).await?;
                // What was made stays what it is when the function runs again.
                attempt.ask(&[input::form::<Sure>("sure", "Sure?")?]).await?;
                Ok(CallResult::text(basket))
            })
            .handles("basket", 30 * minute, day),
        )
        .tool(
            changing("basket.add", |attempt, asked: Item| async move {
                let handles = attempt.handles();
                let mut basket = handles.get::<Items>("basket", &asked.basket).await?;
                let stale = basket.clone();
                basket.value.push(asked.item);
                let now = handles.update("add", &basket).await?;
                if attempt.number() == 1 {
                    // What was read is not what is there any more, and a conflict is nothing recorded.
                    let moved = handles.update("late", &stale).await;
                    assert_eq!(moved, Err(HandleError::Moved));
                    assert!(matches!(
                        handles.get::<Items>("other", &asked.basket).await,
                        Err(HandleError::Unknown(_))
                    ));
                }
                attempt.ask(&[input::form::<Sure>("sure", "Sure?")?]).await?;
                Ok(CallResult::text(now.value.join(" ")))
            })
            .unkeyed(Unkeyed::New),
        )
        .tool(changing("basket.pay", |attempt, asked: Which| async move {
            let handles = attempt.handles();
            let basket = handles.fixed::<Items>("read", "basket", &asked.basket).await?;
            let count = basket.value.len();
            let paid: usize =
                attempt.effect("pay", Step::none(), &count, move |_| async move { Ok(count) }).await?;
            handles.destroy("end", "basket", &asked.basket).await?;
            attempt.ask(&[input::form::<Sure>("sure", "A receipt?")?]).await?;
            Ok(CallResult::text(format!("paid {paid}")))
        }))
        .tool(
            changing("basket.count", |attempt, _: NoArguments| async move {
                let all = attempt.handles().list::<Items>("basket").await?;
                Ok(CallResult::text(all.len().to_string()))
            })
            .unkeyed(Unkeyed::New),
        )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_is_changed_once_however_often_the_function_runs() {
    let dir = tempfile::tempdir().unwrap();
    let running = Server::start_with(config(dir.path()), baskets()).await.unwrap();
    let mcp = client(&running, json!({ "elicitation": {} }));
    let tools = mcp.list_tools().await.unwrap();
    let open = tools.iter().find(|t| t.name == "basket_open").unwrap();
    let described = open.definition.string("description").unwrap().into_owned();
    assert!(
        described.starts_with("Changes something\n\nA basket handle ends when it was not used for 30m"),
        "{described}"
    );

    let sure = json!({ "sure": { "sure": true } });
    let opened = call(&mcp, "basket_open", json!({}), sure.clone()).await;
    let basket = text(&opened).to_owned();
    let add = async |item: &str| {
        let arguments = json!({ "basket": basket, "item": item });
        text(&call(&mcp, "basket_add", arguments, sure.clone()).await).to_owned()
    };
    assert_eq!(add("apple").await, "apple");
    assert_eq!(add("pear").await, "apple pear");
    assert_eq!(add("pear").await, "apple pear pear");
    let count = async || text(&call(&mcp, "basket_count", json!({}), json!({})).await).to_owned();
    assert_eq!(count().await, "1");
    // Read, paid and ended; the function then runs again, and goes on all the same.
    let paid = call(&mcp, "basket_pay", json!({ "basket": basket }), sure.clone()).await;
    assert_eq!(text(&paid), "paid 3");
    assert_eq!(count().await, "0");
    for gone in [basket.as_str(), "hdl_unknown"] {
        let error = call(&mcp, "basket_add", json!({ "basket": gone, "item": "fig" }), sure.clone()).await;
        assert_eq!(error["isError"], true, "{error}");
        assert!(text(&error).starts_with("There is no such basket handle for this caller"), "{error}");
        assert_eq!(error["_meta"]["dev.counterfoil/error"]["kind"], "handle_unknown", "{error}");
    }
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_yes_to_the_call_is_nobody_elses() {
    let dir = tempfile::tempdir().unwrap();
    let native = Native::new().tool(changing("jobs.ask", |attempt, _: NoArguments| async move {
        attempt.ask(&[input::form::<Sure>("approval", "Sure?")?]).await?;
        Ok(CallResult::text("asked"))
    }));
    let running = Server::start_with(config(dir.path()), native).await.unwrap();
    let mcp = client(&running, json!({ "elicitation": {} }));
    let refused = call(&mcp, "jobs_ask", json!({}), json!({ "approval": { "sure": true } })).await;
    assert_eq!(refused["isError"], true, "{refused}");
    let why =
        "Nothing was asked: the key \"approval\" is that of a person's yes to the call; choose another.";
    assert!(text(&refused).contains(why), "{refused}");
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_a_task_needs_a_client_that_knows_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Seen::default();
    let told = seen.clone();
    let native = Native::new().tool(
        changing("jobs.run", move |attempt, _: NoArguments| {
            let seen = told.clone();
            async move {
                seen.began.fetch_add(1, Ordering::SeqCst);
                let named: Option<Named> =
                    first(&attempt.ask(&[input::form::<Named>("name", "Whose?")?]).await?)?;
                Ok(CallResult::text(named.map_or_else(|| "nobody's".into(), |n| n.name)))
            }
        })
        .as_task_once_answered(),
    );
    let running = Server::start_with(config(dir.path()), native).await.unwrap();
    let refused = client(&running, json!({ "elicitation": {} }));
    let refused = refused.call_tool("jobs_run", None, CallOptions::default()).await.unwrap_err();
    assert!(
        refused.to_string().contains("-32021") || format!("{refused:?}").contains("-32021"),
        "{refused:?}"
    );
    assert_eq!(seen.began(), 0);

    let tasks = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let mcp = client(&running, tasks);
    let task = call(&mcp, "jobs_run", json!({}), json!({ "name": { "name": "Ada" } })).await;
    assert_eq!(task["resultType"], "task", "{task}");
    let id = task["taskId"].as_str().unwrap();
    for _ in 0..200 {
        let now = mcp.get_task(id, CallOptions::default()).await.unwrap();
        if now.result.string("status").as_deref() == Some("completed") {
            let now: Value = now.result.raw().read().unwrap();
            assert_eq!(text(&now["result"]), "Ada");
            running.shutdown().await.unwrap();
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the task did not end");
}
