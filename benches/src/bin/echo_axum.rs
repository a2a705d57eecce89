//! What the same answer costs at least: a bare axum handler that parses the request into a `serde_json::Value`, looks at
//! its method, and answers the bytes of the file that it was given. Prints `{"url": …}` when it listens; ends when its
//! standard input does.

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use serde_json::Value;
use tokio::io::{AsyncReadExt, stdin};

async fn answer(State(bytes): State<Bytes>, body: Bytes) -> Response {
    match serde_json::from_slice::<Value>(&body) {
        Ok(request) if request["method"] == "tools/call" => {
            ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
        }
        _ => StatusCode::BAD_REQUEST.into_response(),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let file = std::env::args_os().nth(1).context("usage: echo_axum FILE")?;
    let bytes = Bytes::from(std::fs::read(file)?);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", serde_json::json!({ "url": format!("http://{}/mcp", listener.local_addr()?) }));
    // As every HTTP server that answers small bodies does.
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream: &mut tokio::net::TcpStream| {
        let _ = stream.set_nodelay(true);
    });
    let serving = axum::serve(listener, Router::new().route("/mcp", post(answer)).with_state(bytes));
    tokio::select! {
        done = serving => done?,
        _ = async { stdin().read(&mut [0]).await } => {}
    }
    Ok(())
}
