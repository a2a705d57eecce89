//! `counterfoil.toml`, read once into types that can't be wrong.
//!
//! What it promises: unknown keys, wrong types and impossible combinations are refused, all at once, each with
//! file, line, column and what to do; settings that this version has no use for are refused too, so that nothing
//! that is written is silently without effect; nothing reads the environment later. Defaults are those of the
//! reference. `COUNTERFOIL__SECTION__KEY` in the environment overrides a key of `[server]`, `[ledger]`, `[bus]`, `[seal]`,
//! `[auth]`, `[lists]`, `[defaults]`, `[alerts]` or `[sandbox]`. A secret is named, `${env:NAME}` or `${file:PATH}`, never written.

mod environment;
mod eras;
mod error;
mod limits;
mod node;
mod place;
mod seal;
mod sections;
mod tools;
mod values;
mod views;

pub use error::{At, ConfigError, Problem};
pub use gateway::LegacySessions;
pub(crate) use limits::hint;
pub use limits::{Budget, LimitsConfig};
pub use place::{BusConfig, LedgerConfig, LedgerPlace, Postgres, SecretUrl};
pub(crate) use provider::nearest;
pub use seal::SealConfig;
#[cfg(feature = "cli")]
pub(crate) use seal::named_master;
pub use tools::{Defaults, Set, ToolConfig};
pub use values::{Webhook, parse_size, show_duration, show_size};
pub use views::ViewConfig;
pub(crate) use views::fits;

use ledger::Millis;
use mcp::Eras;
use provider::Mode;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The default address of the MCP endpoint.
pub const LISTEN: &str = "127.0.0.1:8600";
/// The default address of the sandbox provider.
pub const SANDBOX_LISTEN: &str = "127.0.0.1:8690";
/// The default data directory, relative to the configuration or the working directory.
pub const DATA: &str = ".counterfoil";
/// The configuration that is looked for when none is named.
pub const FILE: &str = "counterfoil.toml";
/// The largest configuration that is read, in bytes.
pub const MAX_FILE: usize = 4 << 20;

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file it came from; none in sandbox mode without a file.
    pub file: Option<PathBuf>,
    /// Which of a manifest's base URLs and credentials are used.
    pub mode: Mode,
    /// `[server]`.
    pub server: Server,
    /// `[ledger]`.
    pub ledger: LedgerConfig,
    /// `[bus]`.
    pub bus: BusConfig,
    /// `[seal]`.
    pub seal: SealConfig,
    /// `[auth]`.
    pub auth: Auth,
    /// `[lists] ttl`: how long clients may keep a list.
    pub lists_ttl: Millis,
    /// `[defaults]`.
    pub defaults: Defaults,
    /// `[[integration]]`, in their order.
    pub integrations: Vec<IntegrationRef>,
    /// `[tools."id"]`, in their order.
    pub tools: Vec<ToolConfig>,
    /// `[limits."name"]`, in their order.
    pub limits: Vec<LimitsConfig>,
    /// `[[view]]`, in their order.
    pub views: Vec<ViewConfig>,
    /// `[alerts] webhook`: where alerts are posted.
    pub webhook: Option<Webhook>,
    /// `[sandbox]`: the bundled provider is mounted; its address.
    pub sandbox: Option<SocketAddr>,
}

/// `[server]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// The name a new ledger gets: part of every effect key.
    pub name: String,
    /// The address of the MCP endpoint; port 0 picks a free one.
    pub listen: SocketAddr,
    /// The path of the MCP endpoint.
    pub path: String,
    /// How clients reach it from outside.
    pub public_url: Option<url::Url>,
    /// `Host` names beyond loopback.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values beyond the endpoint's own.
    pub allowed_origins: Vec<String>,
    /// The largest request body, in bytes.
    pub max_body: usize,
    /// Which eras of the protocol are served.
    pub eras: Eras,
    /// Which eras are served under certain `Host` names (lower case, without port) instead of `eras`.
    pub eras_by_host: Vec<(String, Eras)>,
    /// Which eras certain principals are served instead, over HTTP and under any name.
    pub eras_by_principal: Vec<(String, Eras)>,
    /// When a legacy client gets a session.
    pub legacy_sessions: LegacySessions,
    /// How long a session may go unused until it ends.
    pub legacy_session_idle: Millis,
    /// How long a server that stops goes on accepting calls, while `/readyz` already says that it stops.
    pub shutdown_delay: Millis,
    /// How long calls in flight may take to end after that.
    pub shutdown_limit: Millis,
}

impl Server {
    /// Whether a legacy client is served under any name.
    #[must_use]
    pub fn serves_legacy(&self) -> bool {
        let some = self.eras_by_host.iter().chain(&self.eras_by_principal);
        self.eras.legacy() || some.into_iter().any(|(_, eras)| eras.legacy())
    }
}

/// `[auth] mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Nobody is asked; loopback only.
    None,
    /// A key in `Authorization: Bearer`.
    ApiKey,
}

impl Auth {
    /// The word in the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Auth::None => "none",
            Auth::ApiKey => "api-key",
        }
    }
}

/// `[[integration]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntegrationRef {
    /// Its name, which the manifest's must equal.
    pub name: String,
    /// The manifest, resolved against the configuration's directory.
    pub manifest: PathBuf,
    /// Where it is named.
    pub at: At,
}

impl Config {
    /// Sandbox mode without a file: the defaults, the bundled provider mounted, data in `data`.
    #[must_use]
    pub fn sandbox(data: &Path) -> Config {
        Config {
            file: None,
            mode: Mode::Sandbox,
            server: Server {
                name: "counterfoil".into(),
                listen: SocketAddr::from(([127, 0, 0, 1], 8600)),
                path: "/mcp".into(),
                public_url: None,
                allowed_hosts: Vec::new(),
                allowed_origins: Vec::new(),
                max_body: 4 << 20,
                eras: Eras::Both,
                eras_by_host: Vec::new(),
                eras_by_principal: Vec::new(),
                legacy_sessions: LegacySessions::Auto,
                legacy_session_idle: gateway::sessions::SESSION_IDLE,
                shutdown_delay: Millis(0),
                shutdown_limit: sections::SHUTDOWN_LIMIT,
            },
            ledger: LedgerConfig {
                place: LedgerPlace::Sqlite(data.join("ledger.db")),
                lease: Millis::secs(15),
                retention: Millis::secs(7 * 86_400),
                restored: false,
            },
            bus: BusConfig::Auto,
            seal: SealConfig::default(),
            auth: Auth::None,
            lists_ttl: Millis::secs(300),
            defaults: Defaults::default(),
            integrations: Vec::new(),
            tools: Vec::new(),
            limits: Vec::new(),
            views: Vec::new(),
            webhook: None,
            sandbox: Some(SocketAddr::from(([127, 0, 0, 1], 8690))),
        }
    }

    /// Reads a file, with the process's environment over it.
    ///
    /// # Errors
    /// [`ConfigError`]: everything that is wrong.
    pub fn load(file: &Path) -> Result<Config, ConfigError> {
        let shown = file.display().to_string();
        let text = read_file(file, MAX_FILE).map_err(|why| ConfigError::one(&shown, At::Nowhere, why))?;
        Config::parse(file, &text, std::env::vars_os())
    }

    /// Reads the text of a file. `file` names it in messages and is what relative paths start from; `environment`
    /// may hold overrides.
    ///
    /// # Errors
    /// [`ConfigError`]: everything that is wrong.
    pub fn parse<K, V>(
        file: &Path,
        text: &str,
        environment: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Config, ConfigError>
    where
        K: Into<std::ffi::OsString>,
        V: Into<std::ffi::OsString>,
    {
        let shown = file.display().to_string();
        let mut entries = node::parse(&shown, text)?;
        let faults = node::Faults::new(&shown);
        let environment = environment::Environment::new(environment);
        environment.overlay(&mut entries, &faults);
        let config = sections::read(file, &entries, &environment, &faults);
        faults.into_result()?;
        Ok(config)
    }

    /// Sandbox mode without a file, with the environment over it.
    ///
    /// # Errors
    /// [`ConfigError`]: what is wrong in the environment.
    pub fn sandbox_with_environment<K, V>(
        environment: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Config, ConfigError>
    where
        K: Into<std::ffi::OsString>,
        V: Into<std::ffi::OsString>,
    {
        let mut config = Config::parse(Path::new("(no configuration)"), "[sandbox]\n", environment)?;
        config.file = None;
        Ok(config)
    }

    /// Moves the data directory, and a ledger on SQLite with it.
    pub fn set_data(&mut self, data: &Path) {
        self.ledger.set_directory(data);
    }

    /// Moves the MCP endpoint.
    ///
    /// # Errors
    /// An address beyond loopback without authentication.
    pub fn set_listen(&mut self, listen: SocketAddr) -> Result<(), ConfigError> {
        if let Some(why) = sections::exposed(listen, self.auth) {
            return Err(ConfigError::one("--listen", At::Nowhere, why));
        }
        self.server.listen = listen;
        Ok(())
    }

    /// How the configuration is named in messages.
    #[must_use]
    pub fn shown(&self) -> String {
        self.file.as_ref().map_or_else(|| "(no configuration)".into(), |f| f.display().to_string())
    }
}

/// A text file of bounded size.
///
/// # Errors
/// What is wrong, for people.
pub(crate) fn read_file(file: &Path, most: usize) -> Result<String, String> {
    use std::io::Read as _;
    let opened = std::fs::File::open(file).map_err(|e| format!("can't be read: {e}"))?;
    let mut bytes = Vec::new();
    opened.take(most as u64 + 1).read_to_end(&mut bytes).map_err(|e| format!("can't be read: {e}"))?;
    if bytes.len() > most {
        return Err(format!("larger than {} MiB", most >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())
}
