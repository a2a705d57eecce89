//! The server beside Counterfoil in the demo: it does what most tool servers do, calls the provider and, when no
//! answer comes, calls it again.

use super::http::ask;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// Runs until it is dropped.
pub(super) struct Naive {
    pub at: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Naive {
    pub async fn start(provider: SocketAddr) -> std::io::Result<Naive> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let at = listener.local_addr()?;
        let router = Router::new().route("/refund", post(refund)).with_state(provider);
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Naive { at, _task: AbortOnDropHandle::new(task) })
    }
}

async fn refund(State(provider): State<SocketAddr>, Json(body): Json<Value>) -> (StatusCode, Json<Value>) {
    let mut lost = Vec::new();
    for _ in 0..3 {
        match ask(provider, Method::POST, "/v1/refunds", &[], Some(&body)).await {
            Ok((status, answer)) => return (status, Json(json!({ "answer": answer, "lost": lost }))),
            Err(why) => lost.push(why),
        }
    }
    (StatusCode::BAD_GATEWAY, Json(json!({ "lost": lost })))
}
