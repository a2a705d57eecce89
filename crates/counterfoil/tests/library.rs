//! The library: a gateway in this process, asked over MCP and by its operator.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use counterfoil::config::Config;
use counterfoil::run::{Core, Server, Use};
use serde_json::json;

fn config(dir: &std::path::Path) -> Config {
    let mut config = Config::sandbox(&dir.join("data"));
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.sandbox = Some("127.0.0.1:0".parse().unwrap());
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_in_process() {
    let dir = tempfile::tempdir().unwrap();
    let running = Server::start(config(dir.path())).await.unwrap();
    let mcp =
        mcp::client::McpClient::new(mcp::client::ClientConfig::new(running.endpoint(), "test", "1")).unwrap();
    assert_eq!(mcp.list_tools().await.unwrap().len(), 6);
    let exec = json!({ "id": "payments.refunds.create", "key": "k", "arguments": { "payment": "pay_demo", "amount": 7, "order_id": "o" } });
    let (status, one) = running.operator().post("/v1/exec", &exec).await.unwrap();
    assert!(status.is_success(), "{one}");
    let (_, two) = running.operator().post("/v1/exec", &exec).await.unwrap();
    assert_eq!(one["result"], two["result"]);
    assert_eq!(two["operation"]["replayed"], true);
    let (_, ops) = running.operator().get("/v1/ops").await.unwrap();
    assert_eq!(ops["operations"].as_array().unwrap().len(), 1);
    // Other processes would come over the socket; a second opening of the ledger is refused.
    let refused = Core::open(config(dir.path()), Use::Work).await.err().expect("locked").to_string();
    assert!(refused.contains("in use"), "{refused}");
    running.shutdown().await.unwrap();
    // And it can be opened again.
    let core = Core::open(config(dir.path()), Use::Read).await.unwrap();
    let (_, ops) = core.operator().get("/v1/ops").await.unwrap();
    assert_eq!(ops["operations"][0]["state"], "completed");
    core.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_server_lets_everything_go() {
    let dir = tempfile::tempdir().unwrap();
    let running = Server::start(config(dir.path())).await.unwrap();
    drop(running);
    let begun = std::time::Instant::now();
    loop {
        match Server::start(config(dir.path())).await {
            Ok(running) => break running.shutdown().await.unwrap(),
            Err(e) => assert!(begun.elapsed().as_secs() < 10, "{e}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
