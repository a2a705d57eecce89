//! Building an MCP server: tools, resources, templates and prompts written in Rust, with typed arguments and derived
//! schemas, served beside the methods of configured integrations.
//!
//! What it promises: a tool that reads gets no attempt, so it can't cause an effect; one that changes the world gets
//! nothing but its [`Attempt`], and everything that it does through it is under a recorded intent. A panic,
//! arguments that don't fit and a reading that takes too long are answers, and the server goes on.
//!
//! ```no_run
//! use counterfoil::config::Config;
//! use counterfoil::native::{Context, Native, Tool, ToolError};
//! use counterfoil::run::Server;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Add {
//!     /// The first number.
//!     a: i64,
//!     /// The second number.
//!     b: i64,
//! }
//!
//! # async fn example() -> Result<(), counterfoil::Error> {
//! let native = Native::new().tool(Tool::reading("sums.add", "Adds two numbers", |_: Context, sum: Add| async move {
//!     sum.a.checked_add(sum.b).map(|n| n.to_string()).ok_or_else(|| ToolError::bad("the sum is too large"))
//! }));
//! let running = Server::start_with(Config::native("sums", ".sums".as_ref()), native).await?;
//! println!("{}", running.endpoint());
//! # running.shutdown().await
//! # }
//! ```

mod attempt;
mod changing;
mod config;
mod content;
mod guard;
mod handles;
pub mod input;
mod methods;
mod prompt;
mod reading;
mod reply;
mod resource;
mod schema;
mod step;
mod texts;
mod tool;

pub use attempt::{Attempt, EffectName};
pub use content::{Answer, CallResult, Content, Structured};
pub use gateway::resource::{Asked, Completion, Contents, Data, Failure};
pub use gateway::{Change, Changes, Context, HandleError, Held, Icon, ReadHandles};
pub use handles::Handles;
pub use ledger::Unkeyed;
pub use mcp::Eras;
pub use mcp::json::Raw;
pub use mcp::meta::LogLevel;
pub use methods::Methods;
pub(crate) use methods::{Bound, Registry};
pub use prompt::{Messages, Prompt};
pub use reply::Reply;
pub use resource::{IntoContents, Resource, Template};
pub use schema::NoArguments;
pub use step::{Step, StepError};
pub(crate) use tool::Chosen;
pub use tool::{Tool, ToolError};

use std::sync::Arc;

/// What a server offers besides its integrations, in the order in which it is listed. A clone is the same offer, with the
/// same handles: for a server that is started again, not for two that run at once.
#[derive(Clone, Default)]
pub struct Native {
    pub(crate) tools: Vec<Arc<Tool>>,
    pub(crate) resources: Vec<Arc<Resource>>,
    pub(crate) templates: Vec<Arc<Template>>,
    pub(crate) prompts: Vec<Arc<Prompt>>,
    changes: Changes,
    methods: Methods,
}

impl Native {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Native {
        Native::default()
    }

    /// Adds a tool. Native tools are listed before the methods of integrations.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Native {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds a resource.
    #[must_use]
    pub fn resource(mut self, resource: Resource) -> Native {
        self.resources.push(Arc::new(resource));
        self
    }

    /// Adds a template of resources. Templates are tried in their order.
    #[must_use]
    pub fn template(mut self, template: Template) -> Native {
        self.templates.push(Arc::new(template));
        self
    }

    /// Adds a prompt.
    #[must_use]
    pub fn prompt(mut self, prompt: Prompt) -> Native {
        self.prompts.push(Arc::new(prompt));
        self
    }

    /// A handle that tells clients of changes, from anywhere and at any time. Handlers have it as [`Context::changes`].
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.changes.clone()
    }

    /// A handle on the configured methods that only read, for reading tools, resources and prompts. It is empty until
    /// the server has started, and follows each reload.
    #[must_use]
    pub fn methods(&self) -> Methods {
        self.methods.clone()
    }
}

/// The page of the book on this, so that its code is compiled with it.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/library.md")]
struct Page;
