//! A tool that reads, run once per call: bounded in time, its panics and errors made answers.

use super::content::CallResult;
use super::guard::guarded;
use super::tool::{ToolError, Worked};
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use gateway::{BadArguments, Context, ReadTool};
use ledger::ToolResult;
use mcp::json::RawObject;
use std::sync::Arc;

pub(super) type Handler =
    Arc<dyn Fn(Context, &RawObject) -> Result<BoxFuture<'static, Worked>, BadArguments> + Send + Sync>;

pub(super) struct Reading {
    pub handler: Handler,
    /// It has an `outputSchema`.
    pub promises: bool,
}

#[async_trait]
impl ReadTool for Reading {
    async fn read(&self, context: Context, arguments: RawObject) -> Result<ToolResult, BadArguments> {
        let limit = context.timeout;
        let work = (self.handler)(context, &arguments)?;
        match guarded(limit, work).await {
            Ok(Ok(result)) => Ok(result.finish()),
            Ok(Err(ToolError::Bad(why))) => Err(BadArguments(why)),
            Ok(Err(ToolError::Handle(e))) => {
                Ok(e.ends_tool(self.promises).unwrap_or_else(|| CallResult::error(e.to_string()).finish()))
            }
            Ok(Err(ToolError::Failed(why))) => Ok(CallResult::error(why).finish()),
            Err(broke) => {
                let sentence = broke.sentence("The tool");
                Ok(CallResult::error(format!("{sentence}. Nothing was changed; calling again is safe."))
                    .finish())
            }
        }
    }
}
