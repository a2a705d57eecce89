//! A PostgreSQL server for tests, from the programs that the system has: its own data directory, a free port on
//! 127.0.0.1 and a socket in a temporary folder. Never shipped.
//!
//! Promises: nothing of it outlives the test program, even if that is killed (a watcher ends the server when the
//! program's end of a pipe closes); only processes that it started are signalled, each by its id. PostgreSQL refuses
//! to run as root, so root runs it as the user `postgres`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are cut off, what is committed is written out (`-m fast`).
    Fast,
    /// Everything is cut off, as after a crash of the server (`-m immediate`): the next start replays the log.
    Immediate,
    /// SIGKILL for the postmaster; its children notice and end.
    Kill,
}

/// What a server is started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether it waits for the disk. Off is for tests about answers; a killed server loses nothing either way, only a
    /// power cut would tell.
    pub fsync: bool,
    /// Further settings: name and value.
    pub settings: Vec<(String, String)>,
}

/// A server.
pub struct TempPostgres {
    bin: PathBuf,
    dir: tempfile::TempDir,
    port: u16,
    options: Options,
    server: Mutex<Option<Child>>,
    watcher: Mutex<Option<Child>>,
    names: AtomicU32,
}

/// The folder with the newest server programs: `COUNTERFOIL_PG_BIN`, or where Debian puts them, or beside `pg_config`.
fn programs() -> PathBuf {
    if let Some(set) = std::env::var_os("COUNTERFOIL_PG_BIN") {
        return set.into();
    }
    let version = |p: &Path| p.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse::<u32>().ok());
    let mut all: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|d| d.filter_map(|e| e.ok().map(|e| e.path())).collect())
        .unwrap_or_default();
    all.retain(|p| p.join("bin/postgres").is_file());
    all.sort_by_key(|p| version(p));
    if let Some(newest) = all.pop() {
        return newest.join("bin");
    }
    let asked = Command::new("pg_config").arg("--bindir").output();
    let said = asked.ok().map(|o| PathBuf::from(String::from_utf8_lossy(&o.stdout).trim()));
    said.filter(|p| p.join("postgres").is_file()).expect(
        "these tests need a PostgreSQL server's programs: install postgresql, or set COUNTERFOIL_PG_BIN to their folder",
    )
}

/// The user and group that root runs the server as.
fn postgres_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd can be read");
    let line = users.lines().find(|l| l.starts_with("postgres:"));
    let fields: Vec<&str> =
        line.expect("PostgreSQL can't run as root, and there is no user postgres").split(':').collect();
    Some((fields[2].parse().expect("a user id"), fields[3].parse().expect("a group id")))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("its address").port()
}

impl TempPostgres {
    /// Makes a data directory and starts a server on it.
    ///
    /// # Panics
    /// There are no server programs, or they don't start. (A test can't go on without.)
    #[must_use]
    pub fn start(options: Options) -> TempPostgres {
        let (bin, dir) = (programs(), tempfile::Builder::new().prefix("cf-pg").tempdir().expect("a folder"));
        if let Some((uid, gid)) = postgres_user() {
            std::os::unix::fs::chown(dir.path(), Some(uid), Some(gid))
                .expect("the folder's owner can be set");
        }
        let made = TempPostgres {
            bin,
            dir,
            port: free_port(),
            options,
            server: Mutex::default(),
            watcher: Mutex::default(),
            names: AtomicU32::new(0),
        };
        let mut init = made.command("initdb");
        init.args(["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D"])
            .arg(made.data());
        let done = init.output().expect("initdb runs");
        assert!(done.status.success(), "initdb: {}", String::from_utf8_lossy(&done.stderr));
        made.watch();
        made.run();
        made
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        if let Some((uid, gid)) = postgres_user() {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The server's log.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server when this program ends, however that comes.
    fn watch(&self) {
        let script = r#"cat >/dev/null; for s in QUIT KILL; do
            pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) || break
            kill -s $s "$pid" 2>/dev/null || break
            for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" 2>/dev/null || break 2; sleep 0.2; done
          done; rm -rf "$1""#;
        let mut watcher = Command::new("sh");
        watcher.args(["-c", script, "watch"]).arg(self.dir.path());
        watcher.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own: an interrupt for the tests must not end it before its work is done.
        watcher.process_group(0);
        *self.watcher.lock().unwrap() = Some(watcher.spawn().expect("sh runs"));
    }

    /// Starts the server again, on the same data and port, and waits until it answers.
    ///
    /// # Panics
    /// It runs already, or doesn't start.
    pub fn run(&self) {
        let begun = Instant::now();
        let mut server = self.server.lock().unwrap();
        assert!(server.is_none(), "the server runs already");
        loop {
            let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.path().join("log"));
            let log = log.expect("a log file");
            let mut command = self.command("postgres");
            command.arg("-D").arg(self.data()).arg("-k").arg(self.dir.path()).args(["-h", "127.0.0.1"]);
            command.args(["-p", &self.port.to_string()]);
            for (name, value) in
                [("max_connections", "200"), ("fsync", if self.options.fsync { "on" } else { "off" })]
            {
                command.args(["-c", &format!("{name}={value}")]);
            }
            for (name, value) in &self.options.settings {
                command.args(["-c", &format!("{name}={value}")]);
            }
            command.stdout(Stdio::null()).stderr(log).process_group(0);
            let mut child = command.spawn().expect("postgres runs");
            if self.wait_ready(&mut child, begun + Duration::from_secs(60)) {
                *server = Some(child);
                return;
            }
            // The shared memory of one that was killed goes with its last child.
            assert!(begun.elapsed() < Duration::from_secs(60), "postgres does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_ready(&self, child: &mut Child, until: Instant) -> bool {
        while Instant::now() < until {
            if child.try_wait().expect("a child can be waited for").is_some() {
                return false;
            }
            let mut ask = self.command("pg_isready");
            ask.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            if ask.status().expect("pg_isready runs").success() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
        false
    }

    /// Stops the server and waits for its end.
    ///
    /// # Panics
    /// It doesn't run.
    pub fn stop(&self, how: Stop) {
        let mut child = self.server.lock().unwrap().take().expect("the server runs");
        let pid = Pid::from_child(&child);
        let signal = match how {
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
            Stop::Kill => Signal::KILL,
        };
        let _ = kill_process(pid, signal);
        let _ = child.wait();
    }

    /// Stops it and starts it again.
    pub fn restart(&self, how: Stop) {
        self.stop(how);
        self.run();
    }

    /// Runs SQL in a database and gives what it answers, a row a line.
    ///
    /// # Panics
    /// The SQL fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = self.command("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", "127.0.0.1"]);
        psql.args(["-p", &self.port.to_string(), "-d", database, "-c", sql]);
        let done = psql.output().expect("psql runs");
        assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    /// Makes an empty database with a name of its own.
    #[must_use]
    pub fn database(&self) -> String {
        let name = format!("t{}", self.names.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// The address of a database, over TCP.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// A program of the server's installation, run as its user: `pgbench`, `pg_dump`.
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        self.command(name)
    }
}

impl Drop for TempPostgres {
    fn drop(&mut self) {
        if self.server.lock().is_ok_and(|s| s.is_some()) {
            self.stop(Stop::Immediate);
        }
        if let Some(mut watcher) = self.watcher.lock().ok().and_then(|mut w| w.take()) {
            drop(watcher.stdin.take());
            let _ = watcher.wait();
        }
    }
}
