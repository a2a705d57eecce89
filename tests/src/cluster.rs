//! Replicas as an operator has them: real gateways on one PostgreSQL, each with a cable of its own to it, behind nginx with
//! the book's recipe. What breaks one of them breaks it alone.

use crate::cable::Cable;
use crate::http;
use crate::nginx::Nginx;
use crate::process::{Process, free_address, tail};
use crate::stand::{Project, address};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use temp_postgres::{Options, Stop, TempPostgres};

/// How long a silent replica counts as alive.
pub const LEASE: Duration = Duration::from_secs(1);

/// How long a replica that is ending goes on accepting.
const SHUTDOWN_DELAY: &str = "300ms";

/// The variable that the configuration takes the database's address from.
const LEDGER: &str = "COUNTERFOIL_LEDGER";
/// The variable that holds the master key of all replicas, and the key.
const MASTER: &str = "COUNTERFOIL_MASTER";
const MASTER_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// One replica.
pub struct Replica {
    number: usize,
    /// Where it listens.
    pub addr: SocketAddr,
    /// Between it and the database.
    pub cable: Cable,
    process: Option<Process>,
    /// Its end is part of the play.
    may_end: bool,
}

/// See the module.
pub struct Cluster {
    /// The database server.
    pub postgres: TempPostgres,
    database: String,
    folder: PathBuf,
    /// The replicas.
    pub replicas: Vec<Replica>,
    nginx: Nginx,
    /// Where calls go.
    pub front: SocketAddr,
    binary: Option<PathBuf>,
    next: usize,
}

/// Puts a project's ledger into PostgreSQL, for replicas behind a balancer.
///
/// # Errors
/// What the system says.
pub fn configure(project: &Project) -> Result<()> {
    project.edit(|text| {
        let url =
            format!("[seal]\nmaster = \"${{env:{MASTER}}}\"\n\n[ledger]\nurl = \"${{env:{LEDGER}}}\"\n");
        let lease = format!("lease = \"{}ms\"\n", LEASE.as_millis());
        let delay =
            format!("[server]\nshutdown_delay = \"{SHUTDOWN_DELAY}\"\nlegacy_sessions = \"always\"\n");
        text.replacen("[ledger]\n", &url, 1).replacen("lease = \"500ms\"\n", &lease, 1).replacen(
            "[server]\n",
            &delay,
            1,
        )
    })
}

impl Cluster {
    /// Starts a database server, so many replicas of a project, and nginx before them. `Project`'s own commands reach the
    /// database too.
    ///
    /// # Errors
    /// Something does not start.
    pub fn start(project: &mut Project, count: usize) -> Result<Cluster> {
        Cluster::start_with(project, count, None)
    }

    /// The same of another program that serves a project's configuration (`--config`, `--listen`, `--data`, and what the
    /// project says for `serve`).
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_with(project: &mut Project, count: usize, binary: Option<PathBuf>) -> Result<Cluster> {
        let postgres = TempPostgres::start(Options::default());
        let database = postgres.database();
        project.environment.push((LEDGER.into(), postgres.url(&database)));
        project.environment.push((MASTER.into(), MASTER_KEY.into()));
        let folder = project.path().join("replicas");
        fs::create_dir_all(folder.join("points"))?;
        let far = SocketAddr::from(([127, 0, 0, 1], postgres.port()));
        let mut replicas = Vec::new();
        for number in 0..count {
            let (addr, cable) = (free_address()?, Cable::to(far)?);
            replicas.push(Replica { number, addr, cable, process: None, may_end: false });
        }
        let addresses: Vec<SocketAddr> = replicas.iter().map(|r| r.addr).collect();
        let front = free_address()?;
        project.server("public_url", &format!("\"http://{front}/mcp\""))?;
        let nginx = Nginx::recipe(front, &addresses)?;
        let mut all = Cluster { postgres, database, folder, replicas, nginx, front, binary, next: 0 };
        all.mend(project)?;
        Ok(all)
    }

    /// Everything runs, nothing is armed, every cable is whole.
    ///
    /// # Errors
    /// A replica does not start.
    pub fn mend(&mut self, project: &Project) -> Result<()> {
        self.disarm()?;
        let mut starting = Vec::new();
        for n in 0..self.replicas.len() {
            self.replicas[n].cable.mend();
            if let Some(process) = &mut self.replicas[n].process
                && process.ended().is_none()
            {
                if process.is_stopped() {
                    process.go_on()?;
                }
                self.replicas[n].may_end = false;
                continue;
            }
            self.launch(project, n)?;
            starting.push(n);
        }
        starting.into_iter().try_for_each(|n| self.await_ready(n))
    }

    /// Starts one that is not there.
    ///
    /// # Errors
    /// It does not start.
    pub fn revive(&mut self, project: &Project, n: usize) -> Result<()> {
        self.launch(project, n)?;
        self.await_ready(n)
    }

    fn launch(&mut self, project: &Project, n: usize) -> Result<()> {
        let replica = &mut self.replicas[n];
        let (listen, data) = (replica.addr.to_string(), self.folder.join(n.to_string()));
        let mut command = project.command(&["serve", "--json", "--listen", &listen])?;
        if let Some(binary) = &self.binary {
            let mut other = std::process::Command::new(binary);
            other.current_dir(project.path()).args(["--config", "counterfoil.toml", "--listen", &listen]);
            other.args(&project.serve).envs(project.environment.iter().map(|(n, v)| (n, v)));
            command = other;
        }
        let direct = self.postgres.url(&self.database);
        let cabled = direct
            .replace(&format!(":{}/", self.postgres.port()), &format!(":{}/", replica.cable.addr.port()));
        command.arg("--data").arg(&data);
        command.env(LEDGER, cabled).env("COUNTERFOIL_FAILPOINTS_IN", self.folder.join("points"));
        replica.process = Some(Process::start(&mut command, &log(&self.folder, n))?);
        replica.may_end = false;
        Ok(())
    }

    fn await_ready(&mut self, n: usize) -> Result<()> {
        let replica = &mut self.replicas[n];
        let ready = replica.process.as_mut().context("no process")?.ready();
        let ready = ready.with_context(|| format!("replica {n}"))?;
        let at = address(&ready["endpoint"]).or_else(|| address(&ready["url"]));
        ensure!(at == Some(replica.addr), "replica {n} listens elsewhere: {ready}");
        Ok(())
    }

    /// The process of one.
    ///
    /// # Errors
    /// There is none.
    pub fn process(&mut self, n: usize) -> Result<&mut Process> {
        self.replicas.get_mut(n).and_then(|r| r.process.as_mut()).with_context(|| format!("no replica {n}"))
    }

    fn is_there(&mut self, n: usize) -> bool {
        self.process(n).is_ok_and(|p| p.ended().is_none())
    }

    /// Whether one ended that had no reason to.
    pub fn lost_one(&mut self) -> bool {
        (0..self.replicas.len()).any(|n| !self.replicas[n].may_end && !self.is_there(n))
    }

    /// Those that run and don't stand still.
    pub fn at_work(&mut self) -> Vec<usize> {
        (0..self.replicas.len())
            .filter(|n| self.is_there(*n) && self.process(*n).is_ok_and(|p| !p.is_stopped()))
            .collect()
    }

    /// One that stands still.
    pub fn still(&mut self) -> Option<usize> {
        (0..self.replicas.len()).find(|n| self.process(*n).is_ok_and(|p| p.is_stopped()))
    }

    /// One whose process ended.
    pub fn dead(&mut self) -> Option<usize> {
        (0..self.replicas.len()).find(|n| !self.is_there(*n))
    }

    /// The next one in turn.
    pub fn turn(&mut self) -> usize {
        self.next += 1;
        self.next % self.replicas.len()
    }

    /// SIGKILL to one.
    pub fn kill(&mut self, n: usize) {
        self.replicas[n].may_end = true;
        if let Ok(p) = self.process(n) {
            p.kill();
        }
    }

    /// SIGTERM to one, and waits for its end.
    ///
    /// # Errors
    /// It does not end.
    pub fn terminate(&mut self, n: usize) -> Result<()> {
        self.replicas[n].may_end = true;
        let status = self.process(n)?.terminate()?;
        ensure!(status.success(), "replica {n} ended with {status} on SIGTERM\n{}", self.process(n)?.said());
        Ok(())
    }

    /// Whichever comes to this failpoint first breaks there: `name`, `name@2`, `name@3`, `name:stop`.
    ///
    /// # Errors
    /// What the system says.
    pub fn arm(&mut self, point: &str) -> Result<()> {
        self.replicas.iter_mut().for_each(|r| r.may_end = true);
        Ok(fs::write(self.folder.join("points").join(point), "")?)
    }

    /// Nothing breaks any more by itself.
    ///
    /// # Errors
    /// What the system says.
    pub fn disarm(&mut self) -> Result<()> {
        for entry in fs::read_dir(self.folder.join("points"))? {
            // Whoever removed it first came there.
            let _ = fs::remove_file(entry?.path());
        }
        Ok(())
    }

    /// The data directory of one that can be asked: it runs, and reaches the database.
    ///
    /// # Errors
    /// There is none.
    pub fn to_ask(&mut self) -> Result<PathBuf> {
        let at_work = self.at_work();
        for n in &at_work {
            let addr = self.replicas[*n].addr;
            if http::json(addr, "GET", "/healthz", None).is_ok_and(|r| r.status == 200) {
                return Ok(self.folder.join(n.to_string()));
            }
        }
        bail!("no replica can be asked (of {at_work:?})")
    }

    /// Stops the database server and starts it again.
    pub fn restart_database(&self, how: Stop, away: Duration) {
        self.postgres.stop(how);
        thread::sleep(away);
        self.postgres.run();
    }

    /// Until every replica says that it is ready, whatever the database did.
    ///
    /// # Errors
    /// One does not.
    pub fn all_ready(&mut self, within: Duration) -> Result<()> {
        let until = Instant::now() + within;
        for n in 0..self.replicas.len() {
            let addr = self.replicas[n].addr;
            loop {
                match http::json(addr, "GET", "/readyz", None) {
                    Ok(r) if r.status == 200 => break,
                    other if Instant::now() > until => {
                        let said =
                            other.map_or_else(|e| e.to_string(), |r| format!("{}: {}", r.status, r.text()));
                        bail!("replica {n} is not ready: {said}\n{}", tail(&log(&self.folder, n), 2000));
                    }
                    _ => thread::sleep(Duration::from_millis(20)),
                }
            }
        }
        Ok(())
    }

    /// The lines of nginx's log.
    ///
    /// # Errors
    /// It can't be read.
    pub fn requests(&self) -> Result<Vec<String>> {
        Ok(self.nginx.log()?.lines().map(str::to_owned).collect())
    }

    /// The files that the replicas wrote on standard error.
    #[must_use]
    pub fn logs(&self) -> Vec<PathBuf> {
        self.replicas.iter().map(|r| log(&self.folder, r.number)).collect()
    }

    /// Rows of the ledger, by SQL.
    #[must_use]
    pub fn sql(&self, sql: &str) -> String {
        self.postgres.sql(&self.database, sql)
    }
}

fn log(folder: &Path, n: usize) -> PathBuf {
    folder.join(format!("{n}.log"))
}
