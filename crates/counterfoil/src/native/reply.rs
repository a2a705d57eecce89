//! What a provider answered to a call of one of its methods.

use super::content::CallResult;
use super::tool::ToolError;
use mcp::json::{Limits, Raw};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a provider answered.
#[derive(Clone, Debug)]
pub struct Reply {
    applied: bool,
    receipt: ledger::Receipt,
    /// Absent where the receipt is an operator's word.
    answer: Option<provider::Receipt>,
}

impl Reply {
    pub(super) fn new(applied: bool, receipt: ledger::Receipt) -> Reply {
        let answer = serde_json::from_slice(&receipt.0).ok();
        Reply { applied, receipt, answer }
    }

    /// It happened; of a reading: it was answered. Otherwise it was definitely refused.
    #[must_use]
    pub fn applied(&self) -> bool {
        self.applied
    }

    /// The HTTP status; `None` where an operator's word settled it.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.answer.as_ref().map(|a| a.status)
    }

    /// The body; `Null` if it isn't JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let text = self.answer.as_ref().and_then(|a| a.json.as_ref());
        text.and_then(|t| serde_json::from_str(t.get()).ok()).unwrap_or(Value::Null)
    }

    /// The body, read into a type.
    ///
    /// # Errors
    /// [`ToolError::Failed`]: it is not of that type, which an operator's word never is.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        let text = self.answer.as_ref().and_then(|a| a.json.as_ref());
        text.and_then(|t| serde_json::from_str(t.get()).ok()).ok_or_else(|| {
            ToolError::failed("The provider's answer is not of the form that this tool reads.")
        })
    }

    /// The answer as a result, as if the method were the tool: an error if it was refused.
    #[must_use]
    pub fn into_result(self) -> CallResult {
        let rendered = provider::render(&self.receipt.0);
        let text = String::from_utf8_lossy(&rendered.result).into_owned();
        // A body may be nested as deep as it was taken.
        let limits = Limits { depth: 512, unique_members: false };
        match Raw::parse(text, &limits) {
            Ok(raw) => CallResult::raw(raw),
            Err(_) => CallResult::error("The provider's answer can't be shown."),
        }
    }
}
