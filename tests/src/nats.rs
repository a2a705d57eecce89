//! The message server of replicas that talk by NATS: the machine's, or the one that was installed for the tests.

use crate::process::{Process, build_dir, free_address};
use anyhow::{Result, ensure};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may take to listen.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// A server that stays at its address, and ends with its owner.
pub struct Nats {
    process: Process,
    at: SocketAddr,
    folder: TempDir,
}

fn launch(at: SocketAddr, folder: &TempDir) -> Result<Process> {
    let installed = build_dir()?.join("nats/usr/sbin/nats-server");
    let mut command = Command::new(if installed.is_file() { installed } else { "nats-server".into() });
    command.args(["--addr", "127.0.0.1", "--port", &at.port().to_string()]);
    let mut process = Process::start(&mut command, &folder.path().join("nats.log"))?;
    let until = Instant::now() + READY_WITHIN;
    while TcpStream::connect(at).is_err() {
        ensure!(process.ended().is_none() && Instant::now() < until, "{}", process.said());
        thread::sleep(Duration::from_millis(10));
    }
    Ok(process)
}

impl Nats {
    /// Starts one.
    ///
    /// # Errors
    /// It does not start.
    pub fn start() -> Result<Nats> {
        let (at, folder) = (free_address()?, TempDir::with_prefix("counterfoil-nats-")?);
        Ok(Nats { process: launch(at, &folder)?, at, folder })
    }

    /// What goes into `[bus] url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://{}", self.at)
    }

    /// It is gone until [`Nats::revive`].
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again where it was.
    ///
    /// # Errors
    /// It does not start.
    pub fn revive(&mut self) -> Result<()> {
        self.process = launch(self.at, &self.folder)?;
        Ok(())
    }
}
