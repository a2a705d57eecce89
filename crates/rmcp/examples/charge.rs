//! A tool that charges a card at a payment provider which honours idempotency keys. The server may be killed at any moment:
//! with its recovery named, the charge is taken up again under its first key and happens once; without, it is in doubt.
//!
//! ```text
//! cargo run -p counterfoil-rmcp --example charge -- FOLDER [--no-recovery] [--answer-after MILLISECONDS]
//! ```
//!
//! The provider is played by files in FOLDER: `till/` has one for every charge that really happened, `asked.txt` a line
//! for every request that reached it.

use counterfoil_rmcp::{Durable, Ledgered, Recovery};
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::tool::Extension;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ServerCapabilities, ServerConfig};
use rmcp::transport::stdio;
use rmcp::{ServerHandler, ServiceExt, schemars, tool, tool_handler, tool_router};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The provider: it knows its keys, and may take its time to answer.
struct Provider {
    till: PathBuf,
    asked: PathBuf,
    answer_after: Duration,
}

impl Provider {
    /// Charges once for a key, however often it is asked to.
    async fn charge(&self, key: &str, amount: u64) -> std::io::Result<String> {
        let mut asked = std::fs::File::options().append(true).create(true).open(&self.asked)?;
        writeln!(asked, "{key}")?;
        let at = self.till.join(key);
        match std::fs::File::create_new(&at) {
            Ok(mut charge) => write!(charge, "ch_{key} {amount}")?,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
        tokio::time::sleep(self.answer_after).await;
        std::fs::read_to_string(at)
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Charge {
    /// In minor units.
    amount: u64,
}

struct Shop {
    provider: Provider,
    tools: ToolRouter<Self>,
}

#[tool_router]
impl Shop {
    #[tool(description = "Charges the customer's card")]
    async fn charge(
        &self,
        Parameters(Charge { amount }): Parameters<Charge>,
        Extension(call): Extension<Ledgered>,
    ) -> Result<String, String> {
        // The same key in every repetition of this call.
        self.provider.charge(call.effect_key.as_str(), amount).await.map_err(|e| e.to_string())
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Shop {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// Serves until its client leaves.
#[tokio::main]
pub async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or_else(|| anyhow::anyhow!("say in which folder"))?;
    let (mut recovery, mut answer_after) = (Recovery::Key { retained_for: None }, Duration::ZERO);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--no-recovery" => recovery = Recovery::None,
            "--answer-after" => {
                let millis =
                    arguments.next().ok_or_else(|| anyhow::anyhow!("say after how many milliseconds"))?;
                answer_after = Duration::from_millis(millis.parse()?);
            }
            other => anyhow::bail!("{other} is not an option"),
        }
    }
    let folder = Path::new(&folder);
    let till = folder.join("till");
    std::fs::create_dir_all(&till)?;
    let shop = Shop {
        provider: Provider { till, asked: folder.join("asked.txt"), answer_after },
        tools: Shop::tool_router(),
    };
    let shop = Durable::sqlite(shop, folder.join("ledger"))?.recovery("charge", recovery).start();
    shop.serve(stdio()).await?.waiting().await?;
    Ok(())
}
