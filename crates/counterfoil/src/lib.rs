//! Counterfoil: every tool call that changes the world, once.
//!
//! The library assembles a gateway from a configuration and runs it; the binary is a command line on it.
//!
//! - [`config`]: `counterfoil.toml`, read once into types that can't be wrong;
//! - [`native`]: tools, resources and prompts written in Rust, to build a server of one's own;
//! - [`run`]: the gateway, its ledger, its sandbox provider and its control socket;
//! - `cli` (feature `cli`, on by default): the commands.
//!
//! ```no_run
//! # async fn example() -> Result<(), counterfoil::Error> {
//! use counterfoil::{config::Config, run::Server};
//! let running = Server::start(Config::sandbox(".counterfoil".as_ref())).await?;
//! println!("{}", running.endpoint());
//! running.shutdown().await
//! # }
//! ```

#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
mod error;
pub mod native;
pub mod run;
mod stdio;

pub use error::Error;
