//! Which configuration and ledger a command is about, and how the ledger is reached: through the process that
//! holds it, or by opening it here.

use super::fail::Fail;
use crate::Error;
use crate::config::{Config, ConfigError, FILE};
use crate::run::{Core, Operator, Use};
use clap::Args;
use http::StatusCode;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a process that is starting may take until it answers on its control socket.
const STARTING: Duration = Duration::from_secs(3);

/// Where things are.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Place {
    /// The configuration [default: counterfoil.toml if there is one, else sandbox mode]
    #[arg(long, value_name = "FILE", env = "COUNTERFOIL_CONFIG")]
    pub config: Option<PathBuf>,
    /// The directory of the ledger, or of the sockets where it is in PostgreSQL [default: the configuration's, else
    /// .counterfoil]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The address of the sandbox provider, where it is mounted [default: 127.0.0.1:8690]
    #[arg(long, value_name = "ADDR")]
    pub sandbox_listen: Option<SocketAddr>,
}

impl Place {
    /// The file to read, if there is one.
    pub fn file(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| Path::new(FILE).exists().then(|| FILE.into()))
    }

    /// Reads the configuration and applies the command line to it.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let mut config = match self.file() {
            Some(file) => Config::load(&file)?,
            None => Config::sandbox_with_environment(std::env::vars_os())?,
        };
        if let Some(data) = &self.data {
            config.set_data(data);
        }
        if let Some(listen) = self.sandbox_listen {
            if config.sandbox.is_none() {
                return Err(ConfigError::one(
                    "--sandbox-listen",
                    crate::config::At::Nowhere,
                    "the configuration mounts no sandbox provider; add [sandbox] to it, or leave this out",
                ));
            }
            if !listen.ip().is_loopback() {
                return Err(ConfigError::one(
                    "--sandbox-listen",
                    crate::config::At::Nowhere,
                    format!("{listen} is not on loopback; the sandbox provider has no authentication"),
                ));
            }
            config.sandbox = Some(listen);
        }
        Ok(config)
    }

    /// Reaches the ledger.
    pub async fn open(&self, purpose: Use) -> Result<Session, Fail> {
        let config = self.load()?;
        let directory = config.ledger.directory().to_owned();
        if let Some(operator) = Operator::find(&directory).await {
            return Ok(Session { operator, core: None });
        }
        if purpose == Use::Read
            && let Some(file) = config.ledger.file().filter(|f| !f.exists())
        {
            return Err(Fail::usage(format!(
                "there is no ledger at {} yet; `counterfoil serve` or `counterfoil exec` makes one, or name another with --config or --data",
                file.display()
            )));
        }
        let begun = std::time::Instant::now();
        loop {
            match Core::open(config.clone(), purpose).await {
                Ok(mut core) => {
                    if purpose == Use::Work {
                        core.recover().await;
                    }
                    return Ok(Session { operator: core.operator(), core: Some(core) });
                }
                // Somebody else opened it first and does not answer yet, or is just ending.
                Err(Error::Open(ledger_sqlite::OpenError::Locked { .. })) if begun.elapsed() < STARTING => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    if let Some(operator) = Operator::find(&directory).await {
                        return Ok(Session { operator, core: None });
                    }
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// A reached ledger. Close it, or what was written last may be recovered at the next start only.
pub(super) struct Session {
    pub operator: Operator,
    core: Option<Core>,
}

impl Session {
    /// `GET`; what is refused is a failure of the command.
    pub async fn get(&self, path: &str) -> Result<Value, Fail> {
        Session::granted(self.operator.get(path).await?)
    }

    /// `POST`; what is refused is a failure of the command.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Fail> {
        Session::granted(self.operator.post(path, body).await?)
    }

    fn granted((status, body): (StatusCode, Value)) -> Result<Value, Fail> {
        if status.is_success() { Ok(body) } else { Err(Fail::operator(status, &body)) }
    }

    /// Lets what was set going here end (a minute at most), then lets the ledger go.
    pub async fn close(self) -> Result<(), Fail> {
        if let Some(core) = self.core {
            core.settle(Duration::from_secs(60)).await;
            core.close().await?;
        }
        Ok(())
    }
}

/// A word as a part of a path or query.
pub(super) fn encode(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}
