//! Integration manifests: from TOML or JSON to types that can't be wrong.
//!
//! Unknown keys, wrong types and combinations that can't work are refused with the file, the line where it is
//! known, and a suggestion.

mod auth;
mod build;
mod closed;
mod credential;
mod document;
mod filling;
mod looking;
mod multipart;
mod oauth;
mod parts;

pub use closed::Closed;
pub use multipart::takes_part_header;
pub use parts::{is_header, sets_header};

use crate::credentials::{Also, Auth, SecretRef};
use crate::error::ConfigError;
use crate::method::{Home, Method};
use crate::own::OwnAccount;
use crate::parse;
use crate::preset::Preset;
use crate::raw::RawManifest;
use crate::stored::StoredAccount;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Which of a provider's worlds is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// No real money.
    Sandbox,
    /// The real world.
    Production,
}

impl Mode {
    /// The word in scopes and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Sandbox => "sandbox",
            Mode::Production => "production",
        }
    }
}
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
impl FromStr for Mode {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "sandbox" => Ok(Mode::Sandbox),
            "production" => Ok(Mode::Production),
            _ => Err(format!("{s:?} is not a mode; it is \"sandbox\" or \"production\"")),
        }
    }
}

/// How a manifest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

impl Format {
    /// By the file's name: `.json` is JSON, all else TOML.
    #[must_use]
    pub fn of(file: &str) -> Format {
        if file.to_ascii_lowercase().ends_with(".json") { Format::Json } else { Format::Toml }
    }
}

/// An HTTP API, bound to a mode.
#[derive(Clone, Debug)]
pub struct Integration {
    name: String,
    title: Option<String>,
    description: Option<String>,
    preset: Preset,
    home: Arc<Home>,
    /// Where requests go in the other mode, if anywhere.
    elsewhere: Option<String>,
    pub(crate) auth: Auth,
    /// What goes along with the credential.
    pub(crate) also: Vec<Also>,
    /// The credential is replaced by others of the same account.
    pub(crate) rotates: bool,
    /// See [`Integration::at_any_port`].
    pub(crate) any_port: bool,
    methods: Vec<Method>,
}

impl Integration {
    /// Reads a manifest. `file` is only used to name it in errors.
    ///
    /// # Errors
    /// What is wrong, where, and what to do.
    pub fn parse(file: &str, text: &str, format: Format, mode: Mode) -> Result<Integration, ConfigError> {
        let raw: RawManifest = match format {
            Format::Toml => parse::toml(file, text)?,
            Format::Json => parse::json(file, text)?,
        };
        build::integration(file, text, raw, mode)
    }

    /// The same at another address.
    ///
    /// # Errors
    /// Not a base URL.
    pub fn with_base_url(mut self, url: &str) -> Result<Integration, ConfigError> {
        let base = parts::base_url(url).map_err(|e| ConfigError::new(&self.name, e))?;
        self.home = Arc::new(Home { base, closed: None, withheld: None, ..(*self.home).clone() });
        for m in &mut self.methods {
            m.home = self.home.clone();
        }
        Ok(self)
    }

    /// The same, at a port that is chosen anew at each start: what was recorded for another port of that address is meant
    /// for this one. Only for a provider that nobody else can be mistaken for.
    #[must_use]
    pub fn at_any_port(mut self) -> Integration {
        self.any_port = true;
        self
    }

    /// Its name, the first part of its methods' canonical ids.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// A title for people.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }
    /// What it is, for people.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }
    /// How its provider treats keys.
    #[must_use]
    pub fn preset(&self) -> &Preset {
        &self.preset
    }
    /// The mode it is bound to.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.home.mode
    }
    /// Scheme, host, port and path prefix of its requests.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.home.base
    }
    /// Where requests go in a mode: scheme, host, port and path prefix. `None`: nothing is sent in it.
    #[must_use]
    pub fn sends_to(&self, mode: Mode) -> Option<&str> {
        if mode == self.home.mode {
            return self.home.closed.is_none().then_some(self.home.base.as_str());
        }
        self.elsewhere.as_deref()
    }
    /// The account whose credential its requests carry.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.home.account
    }
    /// Whether requests carry a credential at all.
    #[must_use]
    pub fn authenticates(&self) -> bool {
        self.auth != Auth::None
    }
    /// The environment variable that their credential is read from, if it is.
    #[must_use]
    pub fn secret_variable(&self) -> Option<&str> {
        match &self.auth {
            Auth::Shared(_, SecretRef::Env(name)) => Some(name),
            _ => None,
        }
    }
    /// The account that is connected by `counterfoil auth connect`, if it is one.
    #[must_use]
    pub fn stored(&self) -> Option<StoredAccount> {
        StoredAccount::of(self)
    }
    /// Why none of its methods can be called in this mode, if so.
    #[must_use]
    pub fn closed(&self) -> Option<&Closed> {
        self.home.closed.as_ref()
    }
    /// Whether each principal has a credential of its own for it.
    #[must_use]
    pub fn is_per_principal(&self) -> bool {
        self.home.own.is_some()
    }
    /// Where each caller's own credential goes, if each has its own.
    #[must_use]
    pub fn own_account(&self) -> Option<OwnAccount> {
        self.home.own_account()
    }
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }
    /// Its methods, in the manifest's order.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }
    /// A method by its name without the integration's: `refunds.create`.
    #[must_use]
    pub fn method(&self, name: &str) -> Option<&Method> {
        self.methods.iter().find(|m| self.canonical_id(name) == m.canonical_id())
    }
    /// The canonical id of a method's name.
    #[must_use]
    pub fn canonical_id(&self, method: &str) -> String {
        format!("{}.{method}", self.name)
    }
}
