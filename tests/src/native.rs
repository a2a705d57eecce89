//! The fixture server as a process: what native code offers, and the tools that break servers that aren't careful.

use crate::process::{Process, fixture};
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A fixture server that runs, with a ledger of its own.
pub struct Fixture {
    /// Its process.
    pub process: Process,
    /// Its address.
    pub addr: SocketAddr,
    dir: TempDir,
}

impl Fixture {
    /// Starts it with its traps.
    ///
    /// # Errors
    /// It is not there or does not start.
    pub fn start() -> Result<Fixture> {
        Self::with(|_| {})
    }

    /// The same, and what it sends is not held against the schemas: it is asked for what no revision knows.
    ///
    /// # Errors
    /// It is not there or does not start.
    pub fn beyond_the_schemas() -> Result<Fixture> {
        Self::with(|command| {
            command.env_remove("COUNTERFOIL_WIRE_LOG");
        })
    }

    fn with(change: impl FnOnce(&mut Command)) -> Result<Fixture> {
        let dir = TempDir::with_prefix("counterfoil-test-")?;
        let mut command = Command::new(fixture()?);
        command.arg("--traps").arg("--data").arg(dir.path().join("data"));
        change(&mut command);
        let mut process = Process::start(&mut command, &dir.path().join("log"))?;
        let ready = process.ready().context("the fixture server")?;
        let url = ready["url"].as_str().context("its url")?;
        let addr = url.trim_start_matches("http://").split('/').next().unwrap_or_default().parse()?;
        Ok(Fixture { process, addr, dir })
    }

    /// Where its ledger is, and the socket beside it.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}
