//! The control server (`crates/sim`), as a process of its own so that it can die.

use crate::process::{Process, free_address};
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One that runs.
pub struct Control {
    /// Its process.
    pub process: Process,
    /// Its address.
    pub addr: SocketAddr,
}

impl Control {
    /// Starts it with its records in a folder, at an address or a free one, armed with a failpoint if one is named.
    ///
    /// # Errors
    /// It is not built, or does not start.
    pub fn start(
        provider: SocketAddr,
        listen: Option<SocketAddr>,
        failpoint: Option<&str>,
        folder: &Path,
        log: &Path,
    ) -> Result<Control> {
        let listen = match listen {
            Some(listen) => listen,
            None => free_address()?,
        };
        let mut command = Command::new(program()?);
        command
            .args(["--listen", &listen.to_string(), "--provider", &provider.to_string(), "--file"])
            .arg(folder.join("control.db"))
            .env_remove("COUNTERFOIL_FAILPOINT");
        if let Some(name) = failpoint {
            command.env("COUNTERFOIL_FAILPOINT", name);
        }
        let mut process = Process::start(&mut command, log)?;
        let addr = process.ready()?["listen"].as_str().context("the control's address")?.parse()?;
        Ok(Control { process, addr })
    }
}

/// The program, from `COUNTERFOIL_CONTROL`.
fn program() -> Result<PathBuf> {
    let path = std::env::var_os("COUNTERFOIL_CONTROL")
        .context("COUNTERFOIL_CONTROL is not set: `cargo xtask torture --table` builds it and sets this")?;
    PathBuf::from(path).canonicalize().context("COUNTERFOIL_CONTROL names a program that is not there")
}
