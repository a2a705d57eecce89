//! What can go wrong, and what to do about it. No message holds a secret or an argument's value.

use std::fmt;

/// Something wrong with a manifest or preset, or a combination that can't work. Found at start, before anything ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as it was named by the caller.
    pub file: String,
    /// The line, from 1, where known.
    pub line: Option<usize>,
    /// What is wrong and what to do.
    pub message: String,
}

impl ConfigError {
    /// An error without a known line.
    pub(crate) fn new(file: &str, message: impl Into<String>) -> ConfigError {
        ConfigError { file: file.to_owned(), line: None, message: message.into() }
    }
    /// The same, at a line.
    pub(crate) fn at(mut self, line: Option<usize>) -> ConfigError {
        self.line = line;
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}
impl std::error::Error for ConfigError {}

/// Arguments from which no request can be built. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadArguments(pub(crate) String);

impl BadArguments {
    pub(crate) fn new(message: impl Into<String>) -> BadArguments {
        BadArguments(message.into())
    }
}

/// A credential that is missing or unusable. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the credential of account {account:?} for {mode} can't be used: {what}; nothing was sent. {}", mend(*.is_kept)
)]
pub struct CredentialError {
    /// The account.
    pub account: String,
    /// `sandbox` or `production`.
    pub mode: String,
    /// What is wrong with it; never its value.
    pub what: String,
    /// It is what is kept by `counterfoil auth connect` that is wrong, which is looked at with each use: `what` says what to
    /// run. Others are read at start.
    pub is_kept: bool,
}

fn mend(is_kept: bool) -> &'static str {
    if is_kept { "Nothing has to be reloaded after that" } else { "Set it and reload" }
}

/// Everything this crate can refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A manifest, preset or override; mend the file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A call's arguments; the caller may correct them.
    #[error(transparent)]
    Arguments(#[from] BadArguments),
    /// A credential; it says what to do.
    #[error(transparent)]
    Credential(#[from] CredentialError),
}
