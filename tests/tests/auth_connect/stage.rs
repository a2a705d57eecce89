//! A project whose integration is connected, and the user's folder of credentials, outside it.

use super::authority::{Authority, Sent};
use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::process::Process;
use counterfoil_tests::stand::Project;
use counterfoil_tests::wire::{self, Call, Said};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const SECONDS: Duration = Duration::from_secs(20);
pub const TOOL: &str = "things_create";

pub struct Stage {
    pub authority: Authority,
    pub project: Project,
    /// The user's own place.
    pub home: TempDir,
}

/// A manifest for the played provider.
pub fn manifest(base: &str, auth: &str) -> String {
    format!(
        "name = \"things\"\naccount = \"acme\"\nbase_url = {base}\npreset = \"stripe\"\n\n[auth]\n{auth}\n\n[execution_policy.retries]\ninitial_backoff = \"50ms\"\nmax_backoff = \"200ms\"\n\n[methods.create]\nhttp = \"POST /v1/things\"\nparams = {{ order = \"body\" }}\n\n[methods.list]\nhttp = \"GET /v1/things\"\n"
    )
}

impl Stage {
    pub fn new(auth: impl FnOnce(&Authority) -> String) -> Result<Stage> {
        let authority = Authority::start()?;
        let auth = auth(&authority);
        Stage::beside(authority, TempDir::with_prefix("counterfoil-home-")?, &auth)
    }

    pub fn beside(authority: Authority, home: TempDir, auth: &str) -> Result<Stage> {
        let project = project(&authority, home.path(), auth, "")?;
        Ok(Stage { authority, project, home })
    }

    /// By code, from an issuer that tells of itself.
    pub fn by_code() -> Result<Stage> {
        Stage::new(|authority| by_code(authority, ""))
    }

    pub fn folder(&self) -> PathBuf {
        self.home.path().join("credentials")
    }

    /// Begins to connect; the page that a person is sent to.
    pub fn begin(&self, more: &[&str]) -> Result<(Process, String)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let log = self.home.path().join(format!("connect-{}.log", NEXT.fetch_add(1, Ordering::Relaxed)));
        let args = [&["auth", "connect", "things", "--json"], more].concat();
        let process = Process::start(&mut self.project.command(&args)?, &log)?;
        let until = Instant::now() + SECONDS;
        loop {
            let said = process.said();
            if let Some(url) = said.lines().find(|l| l.starts_with("http") && l.contains("/authorize?")) {
                return Ok((process, url.to_owned()));
            }
            if Instant::now() > until {
                bail!("no page was shown: {said}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A person is sent away and comes back, as this says; how the command ended, and what it said.
    pub fn connected_by(
        &self,
        more: &[&str],
        back: impl FnOnce(&Sent) -> Result<()>,
    ) -> Result<(i32, String, Option<Value>)> {
        let (mut process, page) = self.begin(more)?;
        let sent = self.authority.consent(&page)?;
        back(&sent)?;
        let document = process.json_line(SECONDS).ok();
        let code = process.wait(SECONDS).and_then(|s| s.code()).context("it did not end")?;
        Ok((code, process.said(), document))
    }

    /// As it should be.
    pub fn connect(&self, more: &[&str]) -> Result<Value> {
        let issuer = self.authority.issuer();
        let (code, said, document) = self.connected_by(more, |sent| {
            let page = sent.back(&sent.right(&issuer))?;
            ensure!(page.status == 200, "{}", page.text());
            Ok(())
        })?;
        ensure!(code == 0, "{code}: {said}");
        document.context("no document")
    }

    /// Gives a secret on standard input.
    pub fn give(&self, secret: &str) -> Result<(i32, String)> {
        give(&self.project, secret)
    }

    pub fn status(&self) -> Result<Value> {
        let (code, status) = self.project.ask(&["auth", "status"])?;
        ensure!(code == 0, "{status}");
        Ok(status)
    }

    /// One effect of this key, whatever was sent.
    pub fn effects(&self) -> usize {
        self.authority.state().effects.values().sum()
    }
}

pub fn by_code(authority: &Authority, more: &str) -> String {
    format!(
        "kind = \"oauth\"\nissuer = \"{}\"\nclient_id = \"the-client\"\nscopes = [\"things.read\", \"things.write\"]\nresource = \"https://things.example/\"\n{more}",
        authority.issuer()
    )
}

/// A project of the same user.
pub fn project(authority: &Authority, home: &Path, auth: &str, more: &str) -> Result<Project> {
    let mut project = Project::empty()?;
    project.environment = vec![
        ("COUNTERFOIL_CREDENTIALS".into(), home.join("credentials").display().to_string()),
        ("HOME".into(), home.display().to_string()),
    ];
    std::fs::create_dir(project.path().join("integrations"))?;
    let config = format!(
        "[server]\nname = \"desk\"\nlisten = \"127.0.0.1:0\"\n{more}\n[ledger]\nlease = \"500ms\"\n\n[defaults]\nsend_timeout = \"3s\"\ntimeout = \"8s\"\nleg = \"2s\"\n\n[[integration]]\nname = \"things\"\nmanifest = \"integrations/things.toml\"\n"
    );
    std::fs::write(project.path().join("counterfoil.toml"), config)?;
    let base = format!("\"{}\"", authority.issuer());
    std::fs::write(project.path().join("integrations/things.toml"), manifest(&base, auth))?;
    Ok(project)
}

/// Gives a secret on standard input; exit code and what was said.
pub fn give(project: &Project, secret: &str) -> Result<(i32, String)> {
    let mut command = project.command(&["auth", "connect", "things", "--stdin"])?;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no standard input")?.write_all(secret.as_bytes())?;
    let out = child.wait_with_output()?;
    let said = [out.stdout, out.stderr].concat();
    Ok((out.status.code().context("it was killed")?, String::from_utf8_lossy(&said).into_owned()))
}

/// A call, and again as long as it is told to come back.
pub fn create(at: SocketAddr, key: &str) -> Said {
    let until = Instant::now() + SECONDS;
    loop {
        let said = once(at, key);
        let waits = matches!(&said, Said::Result { value, .. } if value.get("requestState").is_some());
        if !waits || Instant::now() > until {
            return said;
        }
    }
}

/// One call of it, which may be told to come back.
pub fn once(at: SocketAddr, key: &str) -> Said {
    wire::call(at, SECONDS, &Call::new(TOOL, json!({ "order": key })).keyed(key))
}

pub fn done(said: &Said) -> Result<()> {
    match said {
        Said::Result { is_error: false, .. } => Ok(()),
        other => bail!("{}: {other:?}", other.brief()),
    }
}
