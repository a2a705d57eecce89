//! A project folder of its own, the sandbox provider and the gateway in it: real processes, real files.

use crate::clock::Clock;
use crate::http;
use crate::process::{Process, binary, free_address, run, tail};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;

/// How a provider treats a second request, and so how effects recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// It honours an idempotency key.
    Key,
    /// It refuses a second of the same reference.
    Unique,
    /// It can be asked by a marker.
    Lookup,
    /// Repeating changes nothing.
    Natural,
    /// Nothing is known of it.
    None,
    /// Nothing is known of it, and a person says what happened.
    Confirm,
    /// Each request is an effect, and its manifest says that repeating changes nothing: no class of a provider, but
    /// a mistake of whoever wrote the manifest. Here so that the counting can be seen to count.
    Liar,
}

impl Class {
    /// All that are.
    pub const ALL: [Class; 6] =
        [Class::Key, Class::Unique, Class::Lookup, Class::Natural, Class::None, Class::Confirm];

    /// Its name, which is also the integration's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Key => "key",
            Class::Unique => "unique",
            Class::Lookup => "lookup",
            Class::Natural => "natural",
            Class::None => "none",
            Class::Confirm => "confirm",
            Class::Liar => "liar",
        }
    }

    /// The sandbox's path prefix of the class.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Class::Key => "/v1",
            Class::Unique => "/unique/v1",
            Class::Lookup => "/lookup/v1",
            Class::Natural => "/natural/v1",
            Class::None | Class::Confirm | Class::Liar => "/none/v1",
        }
    }

    /// The request that makes its effect, as fault rules name it.
    #[must_use]
    pub fn on(self) -> String {
        match self {
            Class::Natural => format!("PUT {}/refunds/*", self.prefix()),
            _ => format!("POST {}/refunds", self.prefix()),
        }
    }

    /// The tool on the wire.
    #[must_use]
    pub fn tool(self) -> String {
        self.tool_of("create")
    }

    /// Another of its tools on the wire.
    #[must_use]
    pub fn tool_of(self, method: &str) -> String {
        format!("{}_refunds_{method}", self.name())
    }

    /// The arguments of a refund: its payment and its business object are its own.
    #[must_use]
    pub fn arguments(self, order: &str) -> Value {
        let mut arguments = json!({ "payment": payment(order), "amount": AMOUNT, "order_id": order });
        if self == Class::Natural {
            arguments["reference"] = json!(format!("ref_{order}"));
        }
        arguments
    }

    /// Whether exactly one effect is promised after any crash.
    #[must_use]
    pub fn is_exact(self) -> bool {
        !matches!(self, Class::None | Class::Confirm)
    }

    /// Its manifest, with the one method `refunds.create`.
    #[must_use]
    pub fn manifest(self, sandbox: SocketAddr) -> String {
        self.manifest_of(sandbox, &["create"])
    }

    /// Its manifest, with methods that are the same but for their names.
    #[must_use]
    pub fn manifest_of(self, sandbox: SocketAddr, methods: &[&str]) -> String {
        let (name, prefix) = (self.name(), self.prefix());
        let preset = if self == Class::Key { "stripe" } else { "none" };
        let idempotency = match self {
            Class::Unique => "code_at = [\"/error/code\"]",
            _ => "",
        };
        let http = match self {
            Class::Natural => format!("PUT {prefix}/refunds/{{reference}}"),
            _ => format!("POST {prefix}/refunds"),
        };
        let how = match self {
            Class::Key => {
                "recovery = \"key\"\nlookup = { query = { idempotency_key = \"{key}\" }, items = \"/data\", match = { \"/idempotency_key\" = \"{key}\" }, more = \"/has_more\", visibility_lag = \"100ms\", processing_bound = \"200ms\" }"
            }
            Class::Unique => {
                "recovery = \"unique\"\nunique = { field = \"reference\", conflict_status = 409, conflict_code = \"already_exists\", resource_id = \"/error/resource_id\" }"
            }
            Class::Lookup => {
                "recovery = \"lookup\"\nmarker = { field = \"metadata.marker\" }\nlookup = { query = { marker = \"{key}\" }, items = \"/data\", match = { \"/metadata/marker\" = \"{key}\" }, more = \"/has_more\", visibility_lag = \"100ms\", processing_bound = \"200ms\" }"
            }
            Class::Natural => "recovery = \"natural\"\nnatural = { replay_horizon = \"1h\" }",
            Class::None => "recovery = \"none\"",
            Class::Confirm => "recovery = \"confirm\"",
            Class::Liar => "recovery = \"natural\"\nnatural = { replay_horizon = \"1h\" }",
        };
        let mut properties = json!({
            "payment": { "type": "string" },
            "amount": { "type": "integer", "minimum": 1 },
            "order_id": { "type": "string" },
        });
        let mut required = vec!["payment", "amount"];
        if self == Class::Natural {
            properties["reference"] = json!({ "type": "string" });
            required.push("reference");
        }
        let input = json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
        let mut manifest = format!(
            r#"name = "{name}"
base_url = "http://{sandbox}"
preset = "{preset}"

[execution_policy.idempotency]
{idempotency}

[execution_policy.retries]
max_sends = 5
initial_backoff = "20ms"
max_backoff = "200ms"

[execution_policy.timeouts]
send = "500ms"
read = "1s"
"#
        );
        for method in methods {
            manifest.push_str(&format!(
                r#"
[methods."refunds.{method}"]
http = "{http}"
description = "Refund a payment."
effect = "mutating"
{how}
input = '''{input}'''
"#
            ));
        }
        manifest
    }
}

/// What every refund of a test is for.
pub const AMOUNT: u64 = 700;

/// The payment of a business object: those of this name stand ready in the sandbox, with 1,000,000 each.
#[must_use]
pub fn payment(order: &str) -> String {
    format!("pay_demo_{order}")
}

/// A sandbox provider that runs.
pub struct Sandbox {
    /// Its process.
    pub process: Process,
    /// Its address.
    pub addr: SocketAddr,
}

impl Sandbox {
    /// Starts the shipped provider on a directory; port 0 picks a free one.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(data: &Path, log: &Path, listen: &str) -> Result<Sandbox> {
        let mut command = Command::new(binary()?);
        command.args(["sandbox", "--json", "--listen", listen, "--data"]).arg(data);
        let mut process = Process::start(&mut command, log)?;
        let ready = process.ready().context("the sandbox provider")?;
        let addr = address(&ready["sandbox"]).context("the sandbox provider's address")?;
        Ok(Sandbox { process, addr })
    }

    /// Arms a fault.
    ///
    /// # Errors
    /// It is refused.
    pub fn rule(&self, rule: &Value) -> Result<()> {
        let reply = http::json(self.addr, "POST", "/_sandbox/rules", Some(rule))?;
        if reply.status == 200 {
            Ok(())
        } else {
            bail!("the sandbox refused the rule {rule}: {}", reply.text())
        }
    }

    /// Disarms all faults.
    ///
    /// # Errors
    /// It does not answer.
    pub fn disarm(&self) -> Result<()> {
        http::json(self.addr, "DELETE", "/_sandbox/rules", None)?;
        Ok(())
    }

    /// How often the armed faults have happened, all together.
    ///
    /// # Errors
    /// It does not answer.
    pub fn fired(&self) -> Result<u64> {
        let rules = http::json(self.addr, "GET", "/_sandbox/rules", None)?.json();
        let rules = rules["rules"].as_array().context("the sandbox's rules")?;
        Ok(rules.iter().filter_map(|rule| rule["fired"].as_u64()).sum())
    }

    /// What really happened.
    ///
    /// # Errors
    /// It does not answer.
    pub fn effects(&self, query: &str) -> Result<Value> {
        Ok(http::json(self.addr, "GET", &format!("/_sandbox/effects?{query}"), None)?.json())
    }

    /// How many effects a business object has had, and how much of its payment is refunded: two counts that must
    /// agree, made from different books.
    ///
    /// # Errors
    /// It does not answer.
    pub fn count(&self, class: Class, order: &str) -> Result<(u64, u64)> {
        let effects =
            self.effects(&format!("object={order}"))?["total"].as_u64().context("the sandbox's count")?;
        let path = format!("{}/payments/{}", class.prefix(), payment(order));
        let refunded = http::json(self.addr, "GET", &path, None)?.json()["refunded"]
            .as_u64()
            .context("the sandbox's payment")?;
        Ok((effects, refunded))
    }
}

/// An address from a ready line: `host:port`, or a URL.
pub(crate) fn address(value: &Value) -> Option<SocketAddr> {
    let text = value.as_str()?;
    let text = text.strip_prefix("http://").unwrap_or(text);
    text.split('/').next()?.parse().ok()
}

/// A project folder.
pub struct Project {
    dir: TempDir,
    /// Where the gateway listens once it has been started: a restart is at the same place.
    listen: Option<SocketAddr>,
    /// Arguments of `serve` beyond the usual.
    pub serve: Vec<String>,
    /// The wall clock of a gateway that is started from now on, if it is not the machine's.
    pub clock: Option<Clock>,
    /// What the environment of every command says besides.
    pub environment: Vec<(String, String)>,
}

impl Project {
    /// An empty folder: `serve` in it is sandbox mode.
    ///
    /// # Errors
    /// What the system says.
    pub fn empty() -> Result<Project> {
        let dir = TempDir::with_prefix("counterfoil-test-")?;
        Ok(Project { dir, listen: None, serve: Vec::new(), clock: None, environment: Vec::new() })
    }

    /// A folder with a configuration that mounts every provider class, with short limits.
    ///
    /// # Errors
    /// What the system says.
    pub fn with_classes(sandbox: SocketAddr) -> Result<Project> {
        Project::with_classes_and(sandbox, "")
    }

    /// The same with more configuration at its end.
    ///
    /// # Errors
    /// What the system says.
    pub fn with_classes_and(sandbox: SocketAddr, more: &str) -> Result<Project> {
        Project::with_methods(sandbox, &["create"], more)
    }

    /// The same with several methods of each class.
    ///
    /// # Errors
    /// What the system says.
    pub fn with_methods(sandbox: SocketAddr, methods: &[&str], more: &str) -> Result<Project> {
        let project = Project::empty()?;
        std::fs::create_dir(project.path().join("integrations"))?;
        let mut config = String::from(
            "[server]\nname = \"torture\"\nlisten = \"127.0.0.1:0\"\n\n[ledger]\nlease = \"500ms\"\n\n[defaults]\nsend_timeout = \"500ms\"\ntimeout = \"3s\"\n",
        );
        for class in Class::ALL.into_iter().chain([Class::Liar]) {
            let file = format!("integrations/{}.toml", class.name());
            std::fs::write(project.path().join(&file), class.manifest_of(sandbox, methods))?;
            config.push_str(&format!(
                "\n[[integration]]\nname = \"{}\"\nmanifest = \"{file}\"\n",
                class.name()
            ));
        }
        config.push_str(more);
        std::fs::write(project.path().join("counterfoil.toml"), config)?;
        Ok(project)
    }

    /// Sets a key of `[server]` in the configuration.
    ///
    /// # Errors
    /// What the system says.
    pub fn server(&self, key: &str, value: &str) -> Result<()> {
        self.edit(|text| text.replacen("[server]\n", &format!("[server]\n{key} = {value}\n"), 1))
    }

    /// Changes the configuration's text.
    ///
    /// # Errors
    /// What the system says.
    pub fn edit(&self, change: impl FnOnce(&str) -> String) -> Result<()> {
        let file = self.path().join("counterfoil.toml");
        let text = std::fs::read_to_string(&file)?;
        // In one go: a gateway may read it at this moment.
        let new = self.path().join("counterfoil.toml.new");
        std::fs::write(&new, change(&text))?;
        Ok(std::fs::rename(new, file)?)
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The data directory of gateway and ledger.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.path().join(".counterfoil")
    }

    /// A command of the binary in this folder, with an environment that says nothing else.
    ///
    /// # Errors
    /// The binary is not known.
    pub fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(binary()?);
        command
            .args(args)
            .current_dir(self.path())
            .env("NO_COLOR", "1")
            .env_remove("COUNTERFOIL_FAILPOINT")
            .env_remove("COUNTERFOIL_FAILPOINTS_IN")
            .env_remove("RUST_LOG")
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Runs a command of the binary to its end.
    ///
    /// # Errors
    /// It does not end within 30 seconds.
    pub fn run(&self, args: &[&str]) -> Result<Output> {
        run(&mut self.command(args)?, Duration::from_secs(30))
    }

    /// Runs a command with `--json` and returns its exit code and the object on the last line.
    ///
    /// # Errors
    /// It does not end, or says nothing that is JSON.
    pub fn ask(&self, args: &[&str]) -> Result<(i32, Value)> {
        let out = self.run(&[args, &["--json"]].concat())?;
        let code = out.status.code().context("it was killed")?;
        let text = String::from_utf8_lossy(&out.stdout);
        let last = text.lines().rfind(|l| !l.trim().is_empty()).unwrap_or_default();
        let value = serde_json::from_str(last).with_context(|| {
            format!(
                "`counterfoil {} --json` (exit {code}) printed no JSON: {text}\n{}",
                args.join(" "),
                String::from_utf8_lossy(&out.stderr)
            )
        })?;
        Ok((code, value))
    }

    /// Starts the gateway, armed with a failpoint if one is named. It listens where it listened before.
    ///
    /// # Errors
    /// It does not start (a failpoint may be passed before it is ready).
    pub fn gateway(&mut self, failpoint: Option<&str>) -> Result<Gateway> {
        let listen = match self.listen {
            Some(listen) => listen,
            None => free_address()?,
        };
        let listen = listen.to_string();
        let mut args = vec!["serve", "--json", "--listen", &listen];
        args.extend(self.serve.iter().map(String::as_str));
        let mut command = self.command(&args)?;
        if let Some(name) = failpoint {
            command.env("COUNTERFOIL_FAILPOINT", name);
        }
        if let Some(clock) = &self.clock {
            clock.over(&mut command);
        }
        let log = self.gateway_log();
        let mut process = Process::start(&mut command, &log)?;
        if self.clock.is_some() {
            let pid = process.pid();
            process.leaves(Clock::left_by(pid));
        }
        let ready = process.ready().context("the gateway")?;
        let url = ready["endpoint"]
            .as_str()
            .with_context(|| format!("the gateway's endpoint, in {ready}"))?
            .to_owned();
        let addr = address(&ready["endpoint"]).context("the gateway's address")?;
        self.listen = Some(addr);
        Ok(Gateway { process, addr, url, sandbox: address(&ready["sandbox"]) })
    }

    /// What the gateways of this folder said on standard error.
    #[must_use]
    pub fn gateway_log(&self) -> PathBuf {
        self.path().join("gateway.log")
    }

    /// The end of it.
    #[must_use]
    pub fn gateway_said(&self) -> String {
        tail(&self.gateway_log(), 4000)
    }
}

/// A gateway that runs.
pub struct Gateway {
    /// Its process.
    pub process: Process,
    /// Its address.
    pub addr: SocketAddr,
    /// Its MCP endpoint.
    pub url: String,
    /// The sandbox provider that it mounted, in sandbox mode.
    pub sandbox: Option<SocketAddr>,
}
