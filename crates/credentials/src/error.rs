//! What can go wrong, and what to do. None of it holds a secret.

use std::path::PathBuf;

/// Why credentials can't be read, kept or renewed. What is kept was not changed, unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no place for them.
    #[error(
        "there is no place for credentials: neither HOME nor XDG_DATA_HOME names a folder; set COUNTERFOIL_CREDENTIALS to one of yours"
    )]
    NoPlace,
    /// A file or folder that must not be used as it is.
    #[error("{} {why}", .path.display())]
    Unfit {
        /// Which.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The file can't be understood.
    #[error(
        "the credential store {} is damaged ({what}). It was left as it is. Restore it from a backup, or move it away and connect each account again",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which part.
        what: &'static str,
    },
    /// A newer program wrote the file.
    #[error(
        "the credential store {} is of form {form}, which a newer version of this program wrote. It was left as it is. Use that version",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its form.
        form: u32,
    },
    /// The key is not to be had.
    #[error(
        "the key {id} of the credential store {} is not to be had: {why}. The store was left as it is. Put the key back, or move the store away and connect each account again",
        .path.display()
    )]
    NoKey {
        /// The store's file.
        path: PathBuf,
        /// The key's name.
        id: String,
        /// Why.
        why: String,
    },
    /// An entry does not open.
    #[error(
        "the credential of account {account:?} for {mode} does not open: it was changed or belongs to another store; connect it again with `counterfoil auth connect`"
    )]
    Forged {
        /// Its account.
        account: String,
        /// Its mode.
        mode: String,
    },
    /// More than is kept.
    #[error("{0}")]
    TooMuch(String),
    /// Another process does not let go.
    #[error("another process is changing the credential store and does not end; try again")]
    Busy,
    /// The keyring refused.
    #[error("{0}")]
    Keyring(String),
    /// No random numbers.
    #[error("the operating system gives no random numbers; nothing was made")]
    Random,
    /// A question to an authorization server was not answered as it must be.
    #[error("{0}")]
    Server(String),
    /// It refused for good.
    #[error("the authorization server refused: {0}")]
    Refused(String),
}

impl Error {
    /// Whether somebody must do something first, as opposed to trying again.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        !matches!(self, Error::Busy | Error::Random | Error::Server(_))
    }

    /// The word by which a refresh token itself is over (RFC 6749, section 5.2), if that was said.
    #[must_use]
    pub fn ended(&self) -> Option<&str> {
        match self {
            Error::Refused(word) if word == "invalid_grant" => Some(word),
            _ => None,
        }
    }
}
