//! Prompts: what they are, and who makes them (spec: server/prompts).

use crate::context::Context;
use crate::icon::Icon;
use crate::resource::{Asked, Completion, Failure};
use async_trait::async_trait;
use mcp::json::Raw;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a prompt is known and described.
#[derive(Clone, Debug)]
pub struct PromptSpec {
    /// Its name, unique among prompts.
    pub name: String,
    /// A short name for people.
    pub title: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What it takes.
    pub arguments: Vec<PromptArgument>,
    /// Images.
    pub icons: Vec<Icon>,
}

/// An argument of a prompt; its value is text.
#[derive(Clone, Debug)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// A short name for people.
    pub title: Option<String>,
    /// What it means.
    pub description: Option<String>,
    /// Whether the prompt can't be made without it.
    pub required: bool,
}

/// A prompt that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// What this one is about.
    pub description: Option<String>,
    /// `PromptMessage` objects: `{"role": "user" | "assistant", "content": ContentBlock}`.
    pub messages: Vec<Raw>,
}

/// Makes a prompt. Making one changes nothing.
#[async_trait]
pub trait Prompt: Send + Sync + 'static {
    /// Makes it; required arguments are there, unknown ones were refused.
    ///
    /// # Errors
    /// [`Failure`].
    async fn get(&self, context: Context, arguments: BTreeMap<String, String>) -> Result<Made, Failure>;

    /// Completes an argument.
    ///
    /// # Errors
    /// [`Failure`].
    async fn complete(&self, _context: Context, _asked: Asked) -> Result<Completion, Failure> {
        Ok(Completion::default())
    }
}

/// A prompt with who makes it.
pub type PromptEntry = (PromptSpec, Arc<dyn Prompt>);
