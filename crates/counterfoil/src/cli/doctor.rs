//! `doctor`: configuration, store, clock, disk, permissions, secrets, whether the retentions agree, and what clients
//! still use of the protocol: what is wrong and how to mend it. Nothing is changed.

use super::fail::{Done, USAGE};
use super::out::Out;
use super::place::Place;
use super::{
    doctor_credentials, doctor_eras, doctor_keys, doctor_lists, doctor_providers, doctor_replicas,
    doctor_tools,
};
use crate::Error;
use crate::config::{Auth, Config, show_size};
use crate::run::{Core, Loaded, Operator, Use, load};
use ledger::Millis;
use provider::MethodEffect;
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// How long your callers may retry: the ledger must remember longer
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = provider::parse_duration)]
    retry_horizon: Millis,
    /// Ask the providers for objects that bear effect keys which the ledger doesn't know: after a restore. Only reads
    #[arg(long)]
    providers: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Good,
    Warning,
    Error,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Good => "ok",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

struct Finding {
    level: Level,
    about: String,
    what: String,
    mend: Option<String>,
}

/// What was found, in order.
#[derive(Default)]
pub(super) struct Report(Vec<Finding>);

impl Report {
    pub(super) fn good(&mut self, about: &str, what: impl Into<String>) {
        self.0.push(Finding { level: Level::Good, about: about.into(), what: what.into(), mend: None });
    }
    pub(super) fn warn(&mut self, about: &str, what: impl Into<String>, mend: &str) {
        self.0.push(Finding {
            level: Level::Warning,
            about: about.into(),
            what: what.into(),
            mend: Some(mend.into()),
        });
    }
    pub(super) fn error(&mut self, about: &str, what: impl Into<String>, mend: &str) {
        self.0.push(Finding {
            level: Level::Error,
            about: about.into(),
            what: what.into(),
            mend: Some(mend.into()),
        });
    }
}

#[cfg(test)]
impl Report {
    /// Level, what, and how to mend it, one line a finding.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |f: &Finding| {
            format!("{} {}: {} | {}", f.level.word(), f.about, f.what, f.mend.as_deref().unwrap_or("-"))
        };
        self.0.iter().map(line).collect()
    }
}

pub(super) async fn run(args: Args, out: &Out) -> Done {
    let mut report = Report::default();
    match args.place.load() {
        Err(e) => {
            for p in &e.problems {
                report.error(
                    "configuration",
                    p.to_string(),
                    "mend the file; `counterfoil init` writes a commented one elsewhere to compare with",
                );
            }
        }
        Ok(config) => {
            report.good(
                "configuration",
                if config.file.is_some() { config.shown() } else { "none: sandbox mode".into() },
            );
            check(&config, args.retry_horizon, &mut report).await;
            if args.providers {
                doctor_providers::strays(&args.place, &config, &mut report).await;
            }
        }
    }
    let errors = report.0.iter().filter(|f| f.level == Level::Error).count();
    let warnings = report.0.iter().filter(|f| f.level == Level::Warning).count();
    let findings: Vec<Value> = report
        .0
        .iter()
        .map(|f| json!({ "level": f.level.word(), "about": f.about, "what": f.what, "mend": f.mend }))
        .collect();
    out.document(&json!({ "findings": findings, "errors": errors, "warnings": warnings }));
    let width = report.0.iter().map(|f| f.about.len()).max().unwrap_or(0);
    for f in &report.0 {
        let word = match f.level {
            Level::Good => out.good("ok     "),
            Level::Warning => out.bold("warning"),
            Level::Error => out.bad("error  "),
        };
        out.say(format!("{word}  {:<width$}  {}", f.about, f.what));
        if let Some(mend) = &f.mend {
            out.say(format!("{:<1$}{2}", "", width + 11, out.dim(mend)));
        }
    }
    out.say("");
    out.say(format!("{errors} error{}, {warnings} warning{}", plural(errors), plural(warnings)));
    Ok(if errors > 0 { USAGE } else { 0 })
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

async fn check(config: &Config, horizon: Millis, report: &mut Report) {
    match load(config, config.sandbox) {
        Err(e) => {
            for p in &e.problems {
                report.error("integrations", p.to_string(), "mend the manifest");
            }
        }
        Ok(loaded) => integrations(config, &loaded, horizon, report).await,
    }
    server(config, report);
    doctor_eras::served(&config.server, report);
    directory(config, report);
    store(config, report).await;
    doctor_eras::usage(config.ledger.directory(), report).await;
    if let Some(at) = config.sandbox {
        if crate::run::sandbox_answers(at).await {
            report.good("sandbox", format!("a sandbox provider answers at {at}"));
        } else {
            report.good("sandbox", format!("no sandbox provider answers at {at} now; `serve` starts one"));
        }
    }
}

async fn integrations(config: &Config, loaded: &Loaded, horizon: Millis, report: &mut Report) {
    let methods: usize = loaded.integrations.iter().map(|i| i.methods().len()).sum();
    report.good("integrations", format!("{} with {methods} methods", loaded.integrations.len()));
    if methods == 0 {
        report.warn(
            "integrations",
            "nothing can be called",
            "name a manifest in [[integration]], or add [sandbox]",
        );
    }
    for e in &loaded.missing {
        let mend = if e.is_kept {
            "do so; calls of this account fail before they send"
        } else {
            "set it where the manifest says; calls of this account fail before they send"
        };
        report.error("secrets", e.to_string(), mend);
    }
    if loaded.missing.is_empty() {
        report.good("secrets", "all resolve");
    }
    doctor_credentials::told(config, loaded, report);
    // Every setting decided, as `serve` would: what can't work shows here.
    let core = match Core::open(config.clone(), Use::Catalog).await {
        Ok(core) => core,
        Err(e) => {
            for line in e.to_string().lines() {
                report.error("tools", line, "mend [tools] or the manifest");
            }
            return;
        }
    };
    let catalog = core.gateway.catalog();
    let asking = catalog.entries().filter(|e| e.spec.requires.is_some());
    let asking: Vec<&str> = asking.map(|e| &*e.spec.canonical).collect();
    doctor_eras::sessions(&config.server, &asking, report);
    doctor_tools::approvals(&catalog, report);
    doctor_lists::told(&core.gateway.tool_lists(), report);
    for integration in &loaded.integrations {
        for m in integration.methods().iter().filter(|m| m.effect() == MethodEffect::Mutating) {
            let Some(entry) = catalog.find(m.canonical_id()) else { continue };
            let safety = entry.body.safety();
            doctor_tools::undecided(config.mode, m.canonical_id(), &safety, report);
            doctor_tools::retentions(m.canonical_id(), &safety, &entry.settings.policy, horizon, report);
        }
    }
}

fn server(config: &Config, report: &mut Report) {
    let listen = config.server.listen;
    match config.auth {
        Auth::None => report.good("server", format!("{listen}, nobody is asked (loopback only)")),
        Auth::ApiKey => report.good("server", format!("{listen}, API keys")),
    }
    if let (Auth::None, Some(url)) = (config.auth, &config.server.public_url)
        && url.scheme() == "https"
    {
        report.error(
            "server",
            format!("{url} is public and nobody is asked who they are"),
            "set mode = \"api-key\" in [auth], or take public_url out",
        );
    }
    if config.auth == Auth::ApiKey
        && !listen.ip().is_loopback()
        && config.server.allowed_hosts.is_empty()
        && config.server.public_url.is_none()
    {
        report.warn(
            "server",
            "no Host but this machine's loopback is allowed, so callers from outside are refused",
            "name them in allowed_hosts",
        );
    }
}

fn directory(config: &Config, report: &mut Report) {
    let dir = config.ledger.directory();
    let Ok(meta) = std::fs::metadata(dir) else {
        report.good("directory", format!("{} is not there yet; `serve` makes it", dir.display()));
        return;
    };
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        report.warn(
            "directory",
            format!("other users can enter {} (mode {mode:03o})", dir.display()),
            "chmod 700 it: the ledger holds what was asked and answered",
        );
    } else {
        report.good("directory", format!("{} (mode {mode:03o})", dir.display()));
    }
    if let Ok(own) = std::fs::metadata("/proc/self")
        && own.uid() != meta.uid()
        && own.uid() != 0
    {
        report.error(
            "directory",
            format!("{} belongs to another user", dir.display()),
            "run as that user, or chown it",
        );
    }
    if let Some(Ok(db)) = config.ledger.file().map(std::fs::metadata)
        && db.permissions().mode() & 0o077 != 0
    {
        report.error(
            "ledger",
            "other users can read the database, which holds the ledger's secret",
            "chmod 600 it",
        );
    }
}

async fn store(config: &Config, report: &mut Report) {
    if let Some(operator) = Operator::find(config.ledger.directory()).await {
        match operator.get("/v1/status").await {
            Ok((status, body)) if status.is_success() => {
                report.good(
                    "ledger",
                    format!(
                        "in use by process {} (version {})",
                        body["pid"],
                        body["version"].as_str().unwrap_or("?")
                    ),
                );
                if body["version"] != env!("CARGO_PKG_VERSION") {
                    report.warn(
                        "ledger",
                        "the running process is of another version than this program",
                        "restart it",
                    );
                }
                figures(&body, report);
                doctor_replicas::told(&operator, report).await;
                doctor_keys::told(&operator, report).await;
                doctor_lists::owners(&operator, &config.views, report).await;
            }
            Ok((status, body)) => {
                report.error("ledger", format!("the running process answered {status}: {body}"), "restart it")
            }
            Err(e) => report.error("ledger", e.to_string(), "restart the process"),
        }
        return;
    }
    if config.ledger.file().is_some_and(|f| !f.exists()) {
        report.good("ledger", "not there yet; `serve` makes it");
        return;
    }
    match Core::open(config.clone(), Use::Read).await {
        Err(Error::OpenPostgres(ledger_postgres::OpenError::Missing)) => {
            report.good("ledger", "not there yet; `serve` makes it");
        }
        Err(e) => report.error("ledger", e.to_string(), "see the message"),
        Ok(core) => {
            match core.operator().get("/v1/status").await {
                Ok((status, body)) if status.is_success() => {
                    match config.ledger.postgres() {
                        None => report.good("ledger", "opens, and no process holds it"),
                        Some(place) => report.good("ledger", format!("opens, in {}", place.url.shown())),
                    }
                    let kept = core.gateway.ledger().store().identity().name.clone();
                    if kept != config.server.name {
                        report.warn(
                            "ledger",
                            format!(
                                "it was made as {kept:?} and keeps that name; the configuration says {:?}",
                                config.server.name
                            ),
                            "effect keys depend on the ledger's own name: set name back",
                        );
                    }
                    figures(&body, report);
                    doctor_replicas::told(&core.operator(), report).await;
                    doctor_keys::told(&core.operator(), report).await;
                    doctor_lists::owners(&core.operator(), &config.views, report).await;
                }
                Ok((_, body)) => {
                    report.error("ledger", format!("it can't be read: {body}"), "see the message")
                }
                Err(e) => report.error("ledger", e.to_string(), "see the message"),
            }
            if let Err(e) = core.close().await {
                report.error("ledger", e.to_string(), "look at the disk");
            }
        }
    }
}

fn figures(status: &Value, report: &mut Report) {
    let store = &status["store"];
    let free = store["free_bytes"].as_u64().unwrap_or(0);
    let size = show_size(store["bytes"].as_u64().unwrap_or(0));
    if store["disk_low"] == true {
        report.error(
            "disk",
            format!("{} free: new operations are refused", show_size(free)),
            "free some space",
        );
    } else if free == 0 || free == u64::MAX {
        // A database on another machine: its disk is not seen from here.
        report.good("ledger", format!("it takes {size}; schema {}", store["schema"]));
    } else {
        report.good(
            "disk",
            format!("{} free, the ledger takes {size}; schema {}", show_size(free), store["schema"]),
        );
    }
    if status["held"] == true {
        report.warn(
            "restored",
            "the ledger was restored from a backup; no new operation is opened".to_owned(),
            "ask the providers what it doesn't know (`counterfoil doctor --providers`), see to every open operation (`counterfoil ops list`), then `counterfoil ops release --by NAME`",
        );
    }
    if let Some(step) = status["clockStep"].as_str() {
        report.warn(
            "clock",
            format!(
                "the wall clock was set, or the machine paused; replays of effects older than {step} are over"
            ),
            "keep the clock synchronised; replays of older intents have ended",
        );
    } else {
        report.good("clock", "never set");
    }
    let commits = store["commits"].as_u64().unwrap_or(0);
    let mean = store["commit_us"].as_u64().unwrap_or(0).checked_div(commits);
    if let Some(mean) = mean.filter(|us| *us > 100_000) {
        report.warn(
            "disk",
            format!("a commit takes {} ms on average", mean / 1000),
            "put the ledger on a faster disk",
        );
    }
    let count = |group: &str, word: &str| status[group][word].as_u64().unwrap_or(0);
    let waiting = count("operations", "in_doubt");
    if waiting > 0 {
        report.warn(
            "operations",
            format!("{waiting} wait for somebody's decision"),
            "`counterfoil ops list --state in_doubt`, then `ops show` and `ops resolve`",
        );
    }
    let asking = count("operations", "input_required");
    if asking > 0 {
        report.warn(
            "operations",
            format!("{asking} wait for somebody's answer"),
            "`counterfoil ops list --state input_required`, then `ops show`, which says how to answer",
        );
    }
    let undelivered = count("deliveries", "undelivered");
    if undelivered > 0 {
        report
            .good("operations", format!("{undelivered} results that nobody fetched yet; a retry gets them"));
    }
}
