//! A server made with the library: `echo` gives back the text that it was given, and reads nothing else. Prints
//! `{"url": …}` when it listens; ends when its standard input does.

use anyhow::{Context, Result};
use counterfoil::config::Config;
use counterfoil::native::{self, Native, Tool};
use counterfoil::run::Server;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, stdin};

#[derive(Deserialize, JsonSchema)]
struct Echo {
    /// What to give back.
    text: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let data = std::env::args_os().nth(1).map(PathBuf::from).context("usage: echo DATA")?;
    let mut config = Config::native("echo", &data);
    config.set_listen(([127, 0, 0, 1], 0).into())?;
    let native = Native::new().tool(Tool::reading(
        "echo",
        "Gives back what it was given",
        |_: native::Context, asked: Echo| async move { Ok(asked.text) },
    ));
    let running = Server::start_with(config, native).await?;
    println!("{}", serde_json::json!({ "url": running.endpoint() }));
    let _ = stdin().read(&mut [0]).await;
    running.shutdown().await?;
    Ok(())
}
