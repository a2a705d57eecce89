//! What a tool is. A tool that reads gets no attempt, so it can't cause an effect; one that changes the world
//! gets nothing but its attempt, so it can't cause one behind the ledger's back.

use crate::approval::Approval;
use crate::asks::Unanswered;
use crate::context::Context;
use crate::icon::Icon;
use crate::limits::Limits;
use crate::safety;
use async_trait::async_trait;
use ledger::{Attempt, Intent, Millis, OperationPolicy, RunError, ToolResult, Unkeyed};
use mcp::json::{Raw, RawObject};
use std::sync::Arc;

/// Arguments that don't fit, in words that a model can act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadArguments(pub String);

impl From<Unanswered> for BadArguments {
    fn from(e: Unanswered) -> BadArguments {
        BadArguments(e.to_string())
    }
}

/// How a tool is known and described.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// The canonical id: configuration, commands and records use it; it survives renames.
    pub canonical: Arc<str>,
    /// The name on the wire: at most 64 of `A-Za-z0-9_-`.
    pub name: String,
    /// A short name for people.
    pub title: Option<String>,
    /// What it does, for models.
    pub description: String,
    /// JSON Schema (2020-12) of its arguments, as its owner wrote it.
    pub input_schema: Raw,
    /// JSON Schema of its structured result, if it promises one.
    pub output_schema: Option<Raw>,
    /// Images.
    pub icons: Vec<Icon>,
    /// Client capabilities without which it can't work, in the shape of `ClientCapabilities`, such as
    /// `{"sampling":{}}`: a call without them is refused with -32021 before anything runs.
    pub requires: Option<Raw>,
    /// How its author wants its calls answered, unless the operator decides otherwise.
    pub mode: Option<Mode>,
    /// `ToolAnnotations`, a JSON object: its members are listed instead of, or beside, what follows from the kind of
    /// tool (`readOnlyHint`, `openWorldHint`).
    pub annotations: Option<Raw>,
}

/// Whether a call is answered with its result or with a task (SEP-2663).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Never as a task.
    Inline,
    /// As a task where the client knows tasks and the result takes longer than the inline limit.
    #[default]
    Auto,
    /// Always as a task; a client that doesn't know tasks is refused with -32021 before anything runs.
    Task,
    /// As [`Mode::Task`], but what the tool asks at first is asked by the call itself; it becomes a task with the answers.
    TaskOnceAnswered,
}

impl Mode {
    /// Its word in the configuration.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Mode::Inline => "inline",
            Mode::Auto => "auto",
            Mode::Task | Mode::TaskOnceAnswered => "task",
        }
    }

    /// Whether only clients that know tasks can call it.
    #[must_use]
    pub fn needs_tasks(self) -> bool {
        matches!(self, Mode::Task | Mode::TaskOnceAnswered)
    }
}

/// What the operator decided about a tool, every default resolved.
#[derive(Clone, Debug)]
pub struct ToolSettings {
    /// What happens to a call without a key.
    pub unkeyed: Unkeyed,
    /// The arguments that name the intent; a key is derived from them.
    pub key_from: Vec<String>,
    /// Whether the `idempotency_key` argument is added to the input schema.
    pub inject_key: bool,
    /// How long a call waits for its result before it is told that it goes on, or to come back: a leg.
    pub wait: Millis,
    /// Whether it is answered with tasks.
    pub mode: Mode,
    /// How long a client that knows tasks waits for the result before it gets a task instead, in [`Mode::Auto`].
    pub inline_limit: Millis,
    /// Which calls wait for a person's yes.
    pub approval: Approval,
    /// Limits that its operations open with.
    pub policy: OperationPolicy,
    /// How much it may be used.
    pub limits: Arc<Limits>,
}

impl Default for ToolSettings {
    fn default() -> Self {
        ToolSettings {
            unkeyed: Unkeyed::Guard,
            key_from: Vec::new(),
            inject_key: true,
            wait: Millis::secs(45),
            mode: Mode::Auto,
            inline_limit: Millis::secs(20),
            approval: Approval::Never,
            policy: OperationPolicy::default(),
            limits: Arc::default(),
        }
    }
}

/// A tool that changes the world.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// The intent of its one effect, where it has exactly one: made without I/O, and durable before the tool
    /// runs. `None`: its effects show while it runs.
    ///
    /// # Errors
    /// [`BadArguments`]: nothing is opened.
    fn plan(&self, arguments: &RawObject) -> Result<Option<Intent>, BadArguments>;
    /// Runs it, or resumes it from its recorded effects.
    ///
    /// # Errors
    /// [`RunError`]: what the ledger said, or the tool's own failure.
    async fn run(&self, attempt: &Attempt) -> Result<ToolResult, RunError>;
    /// The account that it acts on under a credential of the caller's own, if it is one of those.
    fn own_account(&self) -> Option<provider::OwnAccount> {
        None
    }
    /// The one under which callers may have given their own, also where nothing is sent under it now.
    fn kept_account(&self) -> Option<provider::OwnAccount> {
        self.own_account()
    }
    /// What will authenticate its one request, each secret masked; empty where nothing does, or there is no one request.
    fn masked_credentials(&self) -> &[provider::Masked] {
        &[]
    }
    /// How a retry of it is safe, for operators.
    fn safety(&self) -> serde_json::Value;
}

/// A tool that only reads: it runs without the ledger, as often as it is called.
#[async_trait]
pub trait ReadTool: Send + Sync + 'static {
    /// Reads. `arguments` fit the input schema.
    async fn read(&self, context: Context, arguments: RawObject) -> Result<ToolResult, BadArguments>;
    /// The account that it reads under a credential of the caller's own, if it is one of those.
    fn own_account(&self) -> Option<provider::OwnAccount> {
        None
    }
    /// The one under which callers may have given their own, also where nothing is sent under it now.
    fn kept_account(&self) -> Option<provider::OwnAccount> {
        self.own_account()
    }
    /// What will authenticate its one request, each secret masked; empty where nothing does, or there is no one request.
    fn masked_credentials(&self) -> &[provider::Masked] {
        &[]
    }
    /// What it would ask, without asking: `summary` and `request`, where that is known beforehand.
    ///
    /// # Errors
    /// [`BadArguments`]: nothing could be asked with them.
    fn plan(&self, arguments: &RawObject) -> Result<Option<serde_json::Value>, BadArguments> {
        let _ = arguments;
        Ok(None)
    }
    /// How it is called, for operators.
    fn safety(&self) -> serde_json::Value {
        serde_json::json!({ "effect": "read", "retry": "safe: it changes nothing", "repeat": safety::reading() })
    }
}

/// Either kind.
#[derive(Clone)]
pub enum Body {
    /// Only reads.
    Read(Arc<dyn ReadTool>),
    /// Changes the world.
    Mutating(Arc<dyn Tool>),
}

impl Body {
    /// The account that it acts on under a credential of the caller's own, if it is one of those.
    #[must_use]
    pub fn own_account(&self) -> Option<provider::OwnAccount> {
        match self {
            Body::Read(t) => t.own_account(),
            Body::Mutating(t) => t.own_account(),
        }
    }

    /// The one under which callers may have given their own, also where nothing is sent under it now.
    #[must_use]
    pub fn kept_account(&self) -> Option<provider::OwnAccount> {
        match self {
            Body::Read(t) => t.kept_account(),
            Body::Mutating(t) => t.kept_account(),
        }
    }

    /// What will authenticate its one request, each secret masked.
    #[must_use]
    pub fn masked_credentials(&self) -> &[provider::Masked] {
        match self {
            Body::Read(t) => t.masked_credentials(),
            Body::Mutating(t) => t.masked_credentials(),
        }
    }

    /// How a retry of it is safe, for operators.
    #[must_use]
    pub fn safety(&self) -> serde_json::Value {
        match self {
            Body::Read(t) => t.safety(),
            Body::Mutating(t) => t.safety(),
        }
    }
}
