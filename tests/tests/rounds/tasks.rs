//! Tasks, by the project's own client: at whichever replica, while one is killed.

use crate::legs::patient;
use crate::stage::{NOTE, Stage, order};
use anyhow::{Context, Result, ensure};
use counterfoil_tests::stand::{AMOUNT, Class};
use counterfoil_tests::wire::META_KEY;
use mcp::client::{CallOptions, ClientConfig, McpClient, Reply};
use mcp::json::{Limits, Raw, RawObject};
use serde_json::{Value, json};
use std::future::Future;
use std::time::{Duration, Instant};

/// The tool of the fixture that asks twice, as a task.
const TASK: &str = "orders_task";
const LIMIT: Duration = Duration::from_secs(30);

fn raw(value: &Value) -> Raw {
    Raw::parse(value.to_string(), &Limits::default()).unwrap()
}

fn object(value: &Value) -> RawObject {
    raw(value).object().unwrap()
}

fn read(reply: &Reply) -> Value {
    serde_json::from_str(reply.result.raw().as_str()).unwrap()
}

/// A client that knows tasks, and whose user can be asked.
fn client(stage: &Stage) -> Result<McpClient> {
    let mut config = ClientConfig::new(format!("http://{}/mcp", stage.front), "counterfoil-tests", "1.0.0");
    config.capabilities =
        raw(&json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } }));
    config.timeout = Duration::from_secs(5);
    Ok(McpClient::new(config)?)
}

fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn keyed(key: &str) -> CallOptions<'static> {
    CallOptions { meta: vec![(META_KEY.into(), Raw::string(key))], ..CallOptions::default() }
}

/// The task that a call is answered with.
async fn begin(client: &McpClient, tool: &str, arguments: &Value, key: &str) -> Result<String> {
    let reply = client.call_tool(tool, Some(&object(arguments)), keyed(key)).await?;
    ensure!(reply.result_type == "task", "{}: {:?}", reply.result_type, reply.result);
    let task = read(&reply);
    task["taskId"].as_str().map(str::to_owned).with_context(|| format!("no task in {task}"))
}

/// The task as it is told once it stands as wanted; requests that a killed replica took along are made again.
async fn until(client: &McpClient, id: &str, status: &str) -> Result<Value> {
    let end = Instant::now() + LIMIT;
    loop {
        let last = match client.get_task(id, CallOptions::default()).await {
            Ok(reply) => {
                let task = read(&reply);
                ensure!(task["taskId"] == id, "another task: {task}");
                if task["status"] == status {
                    return Ok(task);
                }
                task.to_string()
            }
            Err(e) => e.to_string(),
        };
        ensure!(Instant::now() < end, "the task is not {status}: {last}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_task_is_taken_over_and_told_by_every_replica() -> Result<()> {
    let stage = Stage::open(false, &patient("inline_limit = \"500ms\""))?;
    stage.sandbox().rule(&json!({ "on": Class::Key.on(), "do": "delay", "delay_ms": 3000 }))?;
    let (tool, arguments) = (Class::Key.tool(), Class::Key.arguments("task"));
    stage.supervised(|| {
        wait(async {
            let client = client(&stage)?;
            let id = begin(&client, &tool, &arguments, "task").await?;
            let began = stage.last_asked(&tool)?;
            // The same operation is the same task, at whichever replica.
            for _ in 0..2 {
                ensure!(begin(&client, &tool, &arguments, "task").await? == id, "another task");
            }
            until(&client, &id, "working").await?;
            stage.cluster().kill(began);
            let done = until(&client, &id, "completed").await?;
            let amount = &done["result"]["structuredContent"]["amount"];
            ensure!(amount == AMOUNT, "{done}");
            // Its end is told as often as it is asked for, and cancelling it changes nothing.
            client.cancel_task(&id, CallOptions::default()).await?;
            for _ in 0..3 {
                let again = until(&client, &id, "completed").await?;
                ensure!(
                    again["result"]["structuredContent"] == done["result"]["structuredContent"],
                    "{again}"
                );
            }
            Ok(())
        })
    })?;
    stage.once("task")
}

/// The key of what a task asks, which is one thing.
fn asked(task: &Value) -> Result<String> {
    let asked = task["inputRequests"].as_object().with_context(|| format!("nothing is asked: {task}"))?;
    ensure!(asked.len() == 1, "{task}");
    asked.keys().next().cloned().context("no key")
}

#[test]
fn a_task_asks_twice_and_can_be_cancelled_while_it_asks() -> Result<()> {
    let stage = Stage::open(true, "")?;
    let accept = |content: Value| raw(&json!({ "action": "accept", "content": content }));
    stage.supervised(|| {
        wait(async {
            let client = client(&stage)?;
            let id = begin(&client, TASK, &order("asks"), "asks").await?;
            let mut keys = Vec::new();
            for content in [json!({ "amount": AMOUNT }), json!({ "note": NOTE })] {
                let key = asked(&until(&client, &id, "input_required").await?)?;
                // Who told of the question dies before its answer.
                let told = stage.last_asked(&id)?;
                stage.cluster().kill(told);
                let answer = accept(content);
                client.update_task(&id, &[(&key, answer.clone())], CallOptions::default()).await?;
                // The same answer again changes nothing.
                client.update_task(&id, &[(&key, answer)], CallOptions::default()).await?;
                keys.push(key);
            }
            ensure!(keys[0] != keys[1], "one key for two questions");
            let done = until(&client, &id, "completed").await?;
            ensure!(done["result"].to_string().contains(NOTE), "{done}");

            let id = begin(&client, TASK, &order("cancelled"), "cancelled").await?;
            let key = asked(&until(&client, &id, "input_required").await?)?;
            client.cancel_task(&id, CallOptions::default()).await?;
            until(&client, &id, "cancelled").await?;
            // Too late.
            let late = [(key.as_str(), accept(json!({ "amount": AMOUNT })))];
            client.update_task(&id, &late, CallOptions::default()).await?;
            until(&client, &id, "cancelled").await?;
            Ok(())
        })
    })?;
    stage.once("asks")?;
    let counted = stage.sandbox().count(Class::Key, "cancelled")?;
    ensure!(counted == (0, 0), "a cancelled task had an effect: {counted:?}");
    Ok(())
}
