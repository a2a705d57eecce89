//! The gateway: a call becomes an operation.
//!
//! `HTTP → era and headers → principal → policy → tool → fingerprint and key → ledger → provider → ledger → deliver`
//!
//! - [`tool`]: what a tool is, wherever it comes from; effects are caused only through an attempt;
//! - [`resource`], [`prompt`]: what resources and prompts are; [`context`]: what a request brings to them;
//! - [`handles`]: state of tools that outlives a call, to be read;
//! - [`changes`]: news of changes to whoever listens;
//! - [`catalog`]: what is served, its schemas and its lists, ready made for both eras;
//! - [`safety`]: whether the same may be sent again, in words;
//! - [`http_tool`]: methods of HTTP APIs as tools; [`status`]: the built-in question "did it land?";
//! - `keys`: the carriers of an idempotency key; `arguments`: what a call's arguments must be;
//! - `call`: from a `tools/call` to its answer; `answer`: errors that a model can act on;
//! - [`limits`]: how much a tool may be used;
//! - [`approval`]: which calls wait for a person's yes; `preview`: what that person is shown;
//! - [`connect`]: credentials that callers have of their own, and the page where they are given;
//! - [`exec`]: executions outside of MCP, from the shell and over HTTP;
//! - `requires`: what a tool needs of its client; `result`: results as each era writes them;
//! - [`service`]: the methods of the protocol; `methods`: those that native code answers; `listen`: change notifications;
//! - `feeds`: which of a session's streams is fed;
//! - [`views`]: fewer tools for some;
//! - [`capabilities`]: what the server says of itself; [`sessions`]: those of legacy clients;
//! - [`principal`]: who is calling; [`usage`]: who uses which revision and what is deprecated;
//! - [`alerts`]: a webhook for what somebody must look at;
//! - [`operator`]: what operators see and decide; [`metrics`]: what machines watch.

pub mod alerts;
mod answer;
mod answers;
pub mod approval;
mod arguments;
mod asks;
mod bounds;
mod bridge;
mod call;
pub mod capabilities;
pub mod catalog;
pub mod changes;
pub mod connect;
pub mod context;
pub mod exec;
mod feeds;
mod followed;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod handles;
mod health;
pub mod http_tool;
pub mod icon;
mod keys;
mod ledgered;
pub mod limits;
mod listen;
mod methods;
pub mod metrics;
pub mod operator;
mod preview;
pub mod principal;
pub mod prompt;
mod requires;
pub mod resource;
mod result;
mod rounds;
mod runner;
pub mod safety;
pub mod service;
pub mod sessions;
pub mod status;
pub mod tool;
pub mod turns;
pub mod usage;
pub mod view;
pub mod views;

pub use alerts::Alerting;
pub use approval::Approval;
pub use asks::Unanswered;
pub use catalog::{Catalog, CatalogError, Offer};
pub use changes::{Change, Changes};
pub use connect::{Connections, redirect};
pub use context::Context;
pub use handles::{HandleError, Held, ReadHandles};
pub use icon::Icon;
pub use keys::{META_CALL, NamesCalls};
pub use metrics::Metrics;
pub use preview::KEY as APPROVAL_KEY;
pub use principal::{ApiKeys, AuthMode};
pub use prompt::PromptEntry;
pub use resource::{ResourceEntry, TemplateEntry};
pub use service::{Gateway, GatewayParts, GatewaySettings, ToolList};
pub use sessions::LegacySessions;
pub use tool::{BadArguments, Body, ReadTool, Tool, ToolSettings, ToolSpec};
pub use views::{View, ViewBy};
