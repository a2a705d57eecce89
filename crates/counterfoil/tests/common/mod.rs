//! The binary, run as people run it: in a directory of its own, with nothing of this machine's settings.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

pub mod ask;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The one JSON document on stdout.
    pub fn json(&self) -> Value {
        assert_eq!(self.stdout.trim_end().lines().count(), 1, "one line: {self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
    pub fn expect(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

/// A directory in which commands run.
pub struct Dir(pub tempfile::TempDir);

impl Dir {
    pub fn new() -> Dir {
        Dir(tempfile::tempdir().unwrap())
    }
    pub fn path(&self) -> &Path {
        self.0.path()
    }
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
    pub fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        c.current_dir(self.path())
            .args(args)
            .stdin(Stdio::null())
            .env("NO_COLOR", "1")
            .env_remove("RUST_LOG");
        for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("COUNTERFOIL")) {
            c.env_remove(name);
        }
        c
    }
    pub fn run(&self, args: &[&str]) -> Ran {
        ran(&mut self.command(args))
    }
    /// Starts `serve` with the given arguments and waits until it is ready.
    pub fn serve(&self, args: &[&str]) -> Served {
        let mut all = vec!["serve", "--json"];
        all.extend(args);
        let log = self.path().join("serve.log");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut child = self.command(&all).stdout(Stdio::piped()).stderr(file).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line)
            .unwrap_or_else(|e| panic!("{e}: {line:?} {}", std::fs::read_to_string(&log).unwrap()));
        Served { child, ready, log }
    }
}

pub fn ran(command: &mut Command) -> Ran {
    let out = command.output().unwrap();
    Ran {
        code: out.status.code().unwrap_or(-1),
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
    }
}

/// A gateway that runs; killed when dropped.
pub struct Served {
    pub child: Child,
    pub ready: Value,
    pub log: PathBuf,
}

impl Served {
    pub fn endpoint(&self) -> &str {
        self.ready["endpoint"].as_str().unwrap()
    }
    /// Host and port of the sandbox provider.
    pub fn sandbox(&self) -> &str {
        self.ready["sandbox"].as_str().unwrap().strip_prefix("http://").unwrap()
    }
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
    /// Waits until the log has this text.
    pub fn logged(&self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            let log = std::fs::read_to_string(&self.log).unwrap();
            if log.contains(text) {
                return log;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{text:?} was never logged: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    /// Ends it in order; its exit code.
    pub fn stop(mut self) -> i32 {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One plain HTTP request; status and body.
pub fn http(at: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut s = TcpStream::connect(at).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(
        s,
        "{method} {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    s.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// Arms a fault at the sandbox provider.
pub fn arm(sandbox: &str, rule: &str) {
    let (status, body) = http(sandbox, "POST", "/_sandbox/rules", rule);
    assert_eq!(status, 200, "{body}");
}

/// What really happened to an order.
pub fn effects(sandbox: &str, order: &str) -> u64 {
    let (_, body) = http(sandbox, "GET", &format!("/_sandbox/effects?object={order}"), "");
    let value: Value = serde_json::from_str(&body).unwrap();
    value["total"].as_u64().unwrap()
}
