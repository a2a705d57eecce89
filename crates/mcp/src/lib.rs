//! The Model Context Protocol wire, thin and over raw JSON: the modern era (2026-07-28) and the legacy one (2025-11-25,
//! 2025-06-18, 2025-03-26), over Streamable HTTP and over lines (stdio, Unix sockets).
//!
//! Only what this crate interprets is typed; everything else keeps its bytes. It knows no policy and no ledger: it
//! admits requests, carries answers, and says truthfully what it knows about either, such as whether an answer was
//! written ([`server::Delivery`]) or a request was sent ([`client::Sent`]).
//!
//! - [`json`], [`message`], [`meta`]: a body, checked once, as an envelope with raw parts.
//! - [`modern`], [`headers`], [`origin`]: what a request must satisfy, and in which order.
//! - [`revision`]: the revisions and their eras.
//! - [`input`]: what a server may ask of a client during a request, and whether an answer fits.
//! - [`error`]: every status and code by cause.
//! - [`server`]: an axum router around a [`server::Service`]. [`client`]: a transport and a client on it.
//! - [`sse`], [`paging`], [`constants`]: event streams, cursors, names.
pub mod client;
pub mod constants;
pub mod error;
pub mod headers;
pub mod input;
pub mod json;
pub mod message;
pub mod meta;
pub mod modern;
pub mod origin;
pub mod paging;
pub mod revision;
pub mod server;
pub mod sse;
#[cfg(feature = "wire-log")]
mod wire_log;

pub use error::{Error, RpcError};
pub use json::{Raw, RawObject};
pub use message::Id;
pub use revision::{Eras, Revision};
