//! What the suite runs against: the fixture server, alone or as replicas that share a ledger, and nginx in front.

use super::Way;
use crate::nginx::{Nginx, Passed};
use crate::process::{self, Process};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use temp_postgres::{Options, TempPostgres};
use tempfile::TempDir;

/// The variable that replicas take the database's address from.
const LEDGER: &str = "COUNTERFOIL_LEDGER";
/// The variable that holds the master key of all replicas, and the key.
const MASTER: (&str, &str) = ("COUNTERFOIL_MASTER", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");

/// What replicas are configured by: all that differs from the fixture server alone.
const SHARED: &str = "[server]\nname = \"fixture\"\nshutdown_delay = \"0s\"\n\n\
                      [ledger]\nurl = \"${env:COUNTERFOIL_LEDGER}\"\n\n\
                      [seal]\nmaster = \"${env:COUNTERFOIL_MASTER}\"\n";

/// The servers, and what stands in front of them.
pub(super) struct Stand {
    /// Where the suite goes.
    pub url: String,
    servers: Vec<Process>,
    proxy: Option<Nginx>,
    /// Outlives the servers.
    _shared: Option<Shared>,
}

/// What replicas share: the database with their ledger.
struct Shared {
    ledger: String,
    /// With the configuration and each one's own files.
    folder: TempDir,
    _postgres: TempPostgres,
}

impl Shared {
    fn start() -> Result<Shared> {
        let folder = TempDir::with_prefix("counterfoil-conformance-")?;
        std::fs::write(folder.path().join("counterfoil.toml"), SHARED)?;
        let postgres = TempPostgres::start(Options::default());
        let ledger = postgres.url(&postgres.database());
        Ok(Shared { ledger, folder, _postgres: postgres })
    }

    fn tell(&self, command: &mut Command, number: usize) {
        command.arg("--config").arg(self.folder.path().join("counterfoil.toml"));
        command.arg("--data").arg(self.folder.path().join(number.to_string()));
        command.env(LEDGER, &self.ledger).env(MASTER.0, MASTER.1);
    }
}

impl Stand {
    /// Starts all of it; `replicas` counts on that way only. What the servers log goes into files in `folder`.
    pub fn start(way: Way, replicas: u8, folder: &Path) -> Result<Stand> {
        let binary = std::env::var_os("COUNTERFOIL_FIXTURE").map(PathBuf::from);
        let binary = binary.context("COUNTERFOIL_FIXTURE is not set: run `cargo xtask conformance`")?;
        let log = folder.join(format!("{}-server.log", way.as_str()));
        std::fs::write(&log, "")?;
        if way == Way::Direct {
            let mut server = Process::start(&mut Command::new(binary), &log)?;
            let url = endpoint(&mut server)?;
            return Ok(Stand { url, servers: vec![server], proxy: None, _shared: None });
        }
        let (count, shared) = match way {
            Way::Replicas => (replicas, Some(Shared::start()?)),
            _ => (1, None),
        };
        // The proxy sends Host on as it came. A server takes it if it names loopback and the server's own port, so all
        // listen on the same port, of different loopback addresses.
        let listen = process::free_address()?;
        let mut servers = Vec::new();
        for number in 0..count {
            let mut command = Command::new(&binary);
            command.args(["--listen", &format!("127.0.0.{}:{}", 2 + number, listen.port())]);
            if let Some(shared) = &shared {
                shared.tell(&mut command, number.into());
            }
            servers.push(Process::start(&mut command, &log)?);
        }
        let (mut upstreams, mut path) = (Vec::new(), String::new());
        for server in &mut servers {
            let url = endpoint(server)?;
            let (address, at) = parts(&url).with_context(|| format!("the fixture server's url {url}"))?;
            upstreams.push(address);
            at.clone_into(&mut path);
        }
        let proxy = Nginx::start(listen, &upstreams)?;
        Ok(Stand { url: format!("http://{listen}{path}"), servers, proxy: Some(proxy), _shared: shared })
    }

    /// Ends all of it; the servers must end as those that were told to. Says what came through the proxy.
    pub fn stop(&mut self) -> Result<Option<Passed>> {
        let mut passed = None;
        if let Some(proxy) = self.proxy.take() {
            passed = Some(proxy.passed()?);
            proxy.stop()?;
        }
        for server in &mut self.servers {
            let status = server.terminate()?;
            ensure!(status.success(), "the fixture server ended with {status} on SIGTERM\n{}", server.said());
        }
        Ok(passed)
    }

    /// What is wrong with how the requests came through the proxy, if anything is. `all`: a whole set was run.
    pub fn complaint(&self, passed: &Passed, all: bool) -> Option<String> {
        complaint(passed, self.servers.len(), all)
    }
}

fn complaint(passed: &Passed, servers: usize, all: bool) -> Option<String> {
    if passed.requests == 0 || (passed.streams == 0 && all) {
        return Some("they did not come through nginx".into());
    }
    if passed.buffered > 0 {
        return Some(format!("of these streams {} came without X-Accel-Buffering: no", passed.buffered));
    }
    // Round robin gives each the same; some streams are still open when they are counted.
    let each = passed.requests / (2 * servers);
    let even = passed.by.len() == servers && passed.by.values().all(|n| *n > each);
    (all && !even).then(|| format!("they were not spread over the {servers} servers: {:?}", passed.by))
}

fn endpoint(server: &mut Process) -> Result<String> {
    let ready = server.ready().context("the fixture server")?;
    match ready.get("url").and_then(Value::as_str) {
        Some(url) => Ok(url.to_owned()),
        None => bail!("the fixture server says no url"),
    }
}

/// `http://127.0.0.1:8080/mcp`
fn parts(url: &str) -> Result<(SocketAddr, &str)> {
    let rest = url.strip_prefix("http://").context("it is not http")?;
    let at = rest.find('/').unwrap_or(rest.len());
    Ok((rest[..at].parse()?, &rest[at..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
    use super::*;

    #[test]
    fn requests_that_miss_the_proxy_or_a_replica_are_seen() {
        let passed = |shares: &[usize]| Passed {
            requests: shares.iter().sum(),
            streams: 1,
            buffered: 0,
            by: shares.iter().enumerate().map(|(n, share)| (n.to_string(), *share)).collect(),
        };
        assert_eq!(complaint(&passed(&[9, 10, 9]), 3, true), None);
        assert_eq!(complaint(&passed(&[1, 0]), 3, false), None);
        for wrong in [vec![], vec![14, 14], vec![13, 13, 2]] {
            assert!(complaint(&passed(&wrong), 3, true).is_some(), "{wrong:?}");
        }
        assert!(complaint(&Passed { buffered: 1, ..passed(&[1]) }, 1, false).is_some());
    }

    #[test]
    fn the_address_and_the_path_of_a_url() {
        let (address, path) = parts("http://127.0.0.2:8080/mcp").unwrap();
        assert_eq!((address.to_string().as_str(), path), ("127.0.0.2:8080", "/mcp"));
        assert!(parts("https://127.0.0.1:8080/mcp").is_err());
    }
}
