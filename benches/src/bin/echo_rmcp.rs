//! The same tool with the official Rust SDK, stateless and answering JSON. Prints `{"url": …}` when it listens; ends
//! when its standard input does.

use anyhow::Result;
use axum::Router;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ServerCapabilities, ServerConfig};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, tool, tool_handler, tool_router};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, stdin};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Echo {
    /// What to give back.
    text: String,
}

#[derive(Clone)]
struct Server {
    tools: Arc<ToolRouter<Self>>,
}

#[tool_router]
impl Server {
    #[tool(description = "Gives back what it was given", annotations(read_only_hint = true))]
    async fn echo(&self, Parameters(asked): Parameters<Echo>) -> String {
        asked.text
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    // Made once: a service for each request is a clone.
    let server = Server { tools: Arc::new(Server::tool_router()) };
    let config =
        StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", serde_json::json!({ "url": format!("http://{}/mcp", listener.local_addr()?) }));
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream: &mut tokio::net::TcpStream| {
        let _ = stream.set_nodelay(true);
    });
    let serving = axum::serve(listener, Router::new().nest_service("/mcp", service));
    tokio::select! {
        done = serving => done?,
        _ = async { stdin().read(&mut [0]).await } => {}
    }
    Ok(())
}
