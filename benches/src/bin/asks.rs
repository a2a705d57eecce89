//! A server made with the library whose tools ask: `echo` and `two_rounds` read, `kept` and `kept_two_rounds` go through
//! the ledger, each without questions and with two, one after the other; `waits` is a task that goes on, `done` one that
//! is over. Prints `{"url": …}` when it listens; ends when its standard input does.

use anyhow::{Context as _, Result};
use counterfoil::config::Config;
use counterfoil::native::input::{self, Answer};
use counterfoil::native::{Attempt, CallResult, Context, Native, Tool, ToolError, Unkeyed};
use counterfoil::run::Server;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, stdin};

/// Longer than any measurement.
const LONG: Duration = Duration::from_secs(600);

#[derive(Deserialize, JsonSchema)]
struct Echo {
    /// What to give back.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Who {
    /// The first answer.
    who: String,
}

#[derive(Deserialize, JsonSchema)]
struct Why {
    /// The second answer.
    why: String,
}

fn ask_who(text: &str) -> Result<input::InputRequest, ToolError> {
    Ok(input::form::<Who>("who", &format!("Who is to have {text}?"))?)
}

fn who(answers: &[Answer]) -> Result<String, ToolError> {
    let filled = answers.first().map(input::filled::<Who>).transpose()?.flatten();
    filled.map(|f| f.who).ok_or_else(|| ToolError::failed("nobody"))
}

fn ask_why(who: &str) -> Result<input::InputRequest, ToolError> {
    Ok(input::form::<Why>("why", &format!("Why is {who} to have it?"))?)
}

fn why(answers: &[Answer]) -> Result<String, ToolError> {
    let filled = answers.first().map(input::filled::<Why>).transpose()?.flatten();
    filled.map(|f| f.why).ok_or_else(|| ToolError::failed("no reason"))
}

async fn two_rounds(context: Context, asked: Echo) -> Result<String, ToolError> {
    let who = who(&context.ask(&[ask_who(&asked.text)?]).await?)?;
    let why = why(&context.ask(&[ask_why(&who)?]).await?)?;
    Ok(format!("{} {who} {why}", asked.text))
}

async fn kept_two_rounds(attempt: Attempt, asked: Echo) -> Result<CallResult, ToolError> {
    let who = who(&attempt.ask(&[ask_who(&asked.text)?]).await?)?;
    let why = why(&attempt.ask(&[ask_why(&who)?]).await?)?;
    Ok(CallResult::text(format!("{} {who} {why}", asked.text)))
}

async fn kept(_: Attempt, asked: Echo) -> Result<CallResult, ToolError> {
    Ok(CallResult::text(asked.text))
}

async fn waits(_: Attempt, asked: Echo) -> Result<CallResult, ToolError> {
    tokio::time::sleep(LONG).await;
    Ok(CallResult::text(asked.text))
}

fn changing<F, W>(name: &str, function: F) -> Tool
where
    F: Fn(Attempt, Echo) -> W + Send + Sync + 'static,
    W: Future<Output = Result<CallResult, ToolError>> + Send + 'static,
{
    Tool::changing(name, "Gives back what it was given", Vec::<String>::new(), function)
        .unkeyed(Unkeyed::New)
        .timeout(LONG + LONG)
}

#[tokio::main]
async fn main() -> Result<()> {
    let data = std::env::args_os().nth(1).map(PathBuf::from).context("usage: asks DATA")?;
    let mut config = Config::native("asks", &data);
    config.set_listen(([127, 0, 0, 1], 0).into())?;
    let native = Native::new()
        .tool(Tool::reading("echo", "Gives back what it was given", |_: Context, asked: Echo| async move {
            Ok(asked.text)
        }))
        .tool(Tool::reading("two_rounds", "Gives back what it was given, after two rounds", two_rounds))
        .tool(changing("kept", kept))
        .tool(changing("kept_two_rounds", kept_two_rounds))
        .tool(changing("waits", waits).as_task())
        .tool(changing("done", kept).as_task());
    let running = Server::start_with(config, native).await?;
    println!("{}", serde_json::json!({ "url": running.endpoint() }));
    let _ = stdin().read(&mut [0]).await;
    running.shutdown().await?;
    Ok(())
}
