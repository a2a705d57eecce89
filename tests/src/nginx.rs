//! A reverse proxy as an operator has one: nginx, in front of a server on loopback.
//!
//! It is an instance of its own, by path, with its configuration and files in a folder of its own; it needs no root,
//! knows nothing of an nginx that the machine may run, and ends with its owner.

use crate::process::{self, Process};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The configuration; docs/conformance.md shows the part that an operator needs.
const TEMPLATE: &str = include_str!("../conformance/nginx.conf");

/// What the book gives an operator of several replicas.
const RECIPE: &str = include_str!("../../deploy/nginx.conf");

/// What lets it run by itself, without root. The names between @ are filled in.
const ALONE: &str = "daemon off;\nmaster_process off;\npid @FOLDER@/nginx.pid;\nerror_log stderr warn;\n";

/// The same, of its part about HTTP.
const ALONE_HTTP: &str = "http {
    client_body_temp_path @FOLDER@/body;
    proxy_temp_path @FOLDER@/proxy;
    fastcgi_temp_path @FOLDER@/fastcgi;
    scgi_temp_path @FOLDER@/scgi;
    uwsgi_temp_path @FOLDER@/uwsgi;
";

/// How long it may take to listen.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// A running nginx.
pub struct Nginx {
    process: Process,
    folder: TempDir,
}

/// Requests that were answered through the proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passed {
    /// All.
    pub requests: usize,
    /// Those that were answered with a stream.
    pub streams: usize,
    /// Streams that did not ask to be passed on at once, by `X-Accel-Buffering: no`.
    pub buffered: usize,
    /// How many requests each server behind it answered, by its address.
    pub by: BTreeMap<String, usize>,
}

impl Passed {
    fn of(log: &str) -> Passed {
        let mut passed = Passed::default();
        for line in log.lines() {
            let mut quoted = line.split('"').skip(1).step_by(2);
            let by = line.rsplit(' ').next().unwrap_or_default();
            // What nginx answers by itself says "-" there.
            if by.contains(':') {
                *passed.by.entry(by.to_owned()).or_default() += 1;
            }
            let kind = quoted.next().unwrap_or_default();
            let stream = kind.starts_with("text/event-stream");
            passed.requests += 1;
            passed.streams += usize::from(stream);
            passed.buffered += usize::from(stream && quoted.next() != Some("no"));
        }
        passed
    }
}

impl Nginx {
    /// Starts it on `listen`, in front of `upstreams`: plain round robin, where there are several.
    ///
    /// # Errors
    /// It is not installed, refuses the configuration, or does not listen; holds what it said.
    pub fn start(listen: SocketAddr, upstreams: &[SocketAddr]) -> Result<Nginx> {
        // Each one's turn comes whatever happened the last time: one that fails must be seen to.
        let each = |addr: &SocketAddr| format!("        server {addr} max_fails=0;");
        let servers: Vec<String> = upstreams.iter().map(each).collect();
        let text = TEMPLATE
            .replace("@LISTEN@", &listen.to_string())
            .replace("        @SERVERS@", &servers.join("\n"));
        Nginx::of(&text, listen)
    }

    /// Starts it on `listen`, in front of several replicas, with the recipe of the book: only its addresses are others.
    ///
    /// # Errors
    /// As [`Nginx::start`]; or the recipe has none of the lines that are filled in.
    pub fn recipe(listen: SocketAddr, replicas: &[SocketAddr]) -> Result<Nginx> {
        let mut text = format!("{ALONE}{RECIPE}");
        let server = "        server counterfoil:8600 ";
        let line = RECIPE.lines().find(|l| l.starts_with(server));
        let line = line.context("deploy/nginx.conf has no line `server counterfoil:8600 …`")?;
        let each = |addr: &SocketAddr| line.replace("counterfoil:8600", &addr.to_string());
        let servers: Vec<String> = replicas.iter().map(each).collect();
        for (from, to) in [
            (line, servers.join("\n")),
            ("listen 8080;", format!("listen {listen};")),
            ("/dev/stdout", "@FOLDER@/access.log".to_owned()),
            ("\nhttp {\n", format!("\n{ALONE_HTTP}")),
        ] {
            ensure!(text.matches(from).count() == 1, "deploy/nginx.conf has not one {from:?}");
            text = text.replacen(from, &to, 1);
        }
        Nginx::of(&text, listen)
    }

    fn of(text: &str, listen: SocketAddr) -> Result<Nginx> {
        let folder = TempDir::with_prefix("counterfoil-nginx-")?;
        let configuration = folder.path().join("nginx.conf");
        std::fs::write(&configuration, text.replace("@FOLDER@", &folder.path().display().to_string()))?;
        let mut command = Command::new(binary()?);
        command.arg("-p").arg(folder.path()).arg("-e").arg("stderr").arg("-c").arg(&configuration);
        let process = Process::start(&mut command, &folder.path().join("log"))?;
        let mut nginx = Nginx { process, folder };
        let until = Instant::now() + READY_WITHIN;
        while TcpStream::connect(listen).is_err() {
            if let Some(status) = nginx.process.ended() {
                bail!("nginx ended ({status})\n{}", nginx.process.said());
            }
            if Instant::now() > until {
                bail!("nginx does not listen on {listen}\n{}", nginx.process.said());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(nginx)
    }

    /// Its log of requests.
    ///
    /// # Errors
    /// It can't be read.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("access.log"))?)
    }

    /// What it has passed on so far.
    ///
    /// # Errors
    /// Its log can't be read.
    pub fn passed(&self) -> Result<Passed> {
        Ok(Passed::of(&self.log()?))
    }

    /// Ends it, and waits for that.
    ///
    /// # Errors
    /// It did not end.
    pub fn stop(mut self) -> Result<()> {
        self.process.terminate().map(|_| ())
    }
}

/// From `COUNTERFOIL_NGINX`, or the one in the build folder, or the machine's.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("COUNTERFOIL_NGINX") {
        return Ok(path.into());
    }
    let unpacked = process::build_dir()?.join("nginx/usr/sbin/nginx");
    Ok(if unpacked.is_file() { unpacked } else { "nginx".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_may_be_held_back_are_seen() {
        let log = "POST 200 \"application/json\" \"-\" a:1\nPOST 200 \"text/event-stream\" \"no\" b:1\n\
                   GET 200 \"text/event-stream; charset=utf-8\" \"-\" a:1\n";
        let by = [("a:1".to_owned(), 2), ("b:1".to_owned(), 1)].into();
        assert_eq!(Passed::of(log), Passed { requests: 3, streams: 2, buffered: 1, by });
    }
}
