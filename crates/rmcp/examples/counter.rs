//! A counter made with the official SDK, safe to retry: the one line is in `main`.
//!
//! ```text
//! cargo run -p counterfoil-rmcp --example counter                      # over stdio
//! cargo run -p counterfoil-rmcp --example counter -- 127.0.0.1:8601    # over streamable HTTP, at /mcp
//! ```
//!
//! Its ledger is in `.counter`. The counter itself is in memory: what the ledger keeps are the calls and their results.

use counterfoil_rmcp::Durable;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock, Implementation, ServerCapabilities, ServerConfig};
use rmcp::transport::stdio;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, ServiceExt, schemars, tool, tool_handler, tool_router};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// By how much.
#[derive(serde::Deserialize, schemars::JsonSchema)]
pub struct By {
    /// How much is added; one, if it is left out.
    #[serde(default = "one")]
    by: i64,
}

fn one() -> i64 {
    1
}

/// A counter, as one would write it without a ledger.
pub struct Counter {
    value: AtomicI64,
    tools: ToolRouter<Self>,
}

#[tool_router]
impl Counter {
    /// A counter that stands at nought.
    pub fn new() -> Counter {
        Counter { value: AtomicI64::new(0), tools: Self::tool_router() }
    }

    #[tool(description = "Adds to the counter and says where it stands")]
    async fn increment(&self, Parameters(By { by }): Parameters<By>) -> CallToolResult {
        let stands = self.value.fetch_add(by, Ordering::SeqCst) + by;
        CallToolResult::success(vec![ContentBlock::text(stands.to_string())])
    }

    #[tool(description = "Says where the counter stands")]
    async fn get_value(&self) -> String {
        self.value.load(Ordering::SeqCst).to_string()
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Counter {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("counter", env!("CARGO_PKG_VERSION")))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();

    let counter = Durable::sqlite(Counter::new(), ".counter")?.read_only(["get_value"]).start();

    match std::env::args().nth(1) {
        None => {
            counter.serve(stdio()).await?.waiting().await?;
        }
        Some(address) => {
            let counter = Arc::new(counter);
            let service = StreamableHttpService::new(
                move || Ok(counter.clone()),
                Arc::new(LocalSessionManager::default()),
                StreamableHttpServerConfig::default(),
            );
            let listener = tokio::net::TcpListener::bind(address).await?;
            axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
        }
    }
    Ok(())
}
