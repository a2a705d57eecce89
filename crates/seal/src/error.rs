//! What can go wrong, and what of it is told.

use crate::master::{MasterError, MasterId};
use std::fmt;

/// Why a token was refused. To the outside all are the same: its text says nothing, [`Reject::word`] is for metrics and
/// logs only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reject {
    /// It is not spelt as a token of this kind.
    Malformed,
    /// It is longer than any that is made; it was not looked at.
    TooLong,
    /// It names a key that the ring doesn't have, or no longer.
    UnknownKey,
    /// It was not made by a holder of that key, or not for this context.
    Forged,
    /// Its time is over.
    Expired,
}

impl Reject {
    /// All of them.
    pub const ALL: [Reject; 5] =
        [Reject::Malformed, Reject::TooLong, Reject::UnknownKey, Reject::Forged, Reject::Expired];

    /// A word for metrics. Not for who sent the token.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Reject::Malformed => "malformed",
            Reject::TooLong => "too_long",
            Reject::UnknownKey => "unknown_key",
            Reject::Forged => "forged",
            Reject::Expired => "expired",
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the token is not valid here")
    }
}
impl fmt::Debug for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
impl std::error::Error for Reject {}

/// Why a token was not made. Nothing was handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The payload doesn't fit: keep it elsewhere and seal its name.
    #[error("what is to be sealed doesn't fit into a token")]
    TooLarge,
    /// The ring was not confirmed for a while, or the system gives no random numbers. A later try may succeed.
    #[error("nothing can be sealed now ({0})")]
    Unavailable(String),
}

/// Why a token was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// For good.
    #[error(transparent)]
    Rejected(#[from] Reject),
    /// It names a key that is not known here, and the ledger could not be asked for it. A later try, or another replica,
    /// may open it.
    #[error("the key of the token can't be looked up now ({0})")]
    Unavailable(String),
}

/// Why there is no ring. What is kept was not changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The master key can't be had.
    #[error(transparent)]
    Master(#[from] MasterError),
    /// The ring is wrapped under another master key.
    #[error(
        "the key ring in the ledger is sealed under the master key {}, and this process has {ours} ({place}). Nothing was changed, and operations are safe. Give every replica the same master key: restore that one, in [seal] master or as the file that it was in. If it is lost, `counterfoil keys reset` makes a new ring: calls that wait for an answer then have to be made again, and nothing else is lost",
        list(.ring)
    )]
    WrongMaster {
        /// Those that open it.
        ring: Vec<MasterId>,
        /// The one that is here.
        ours: MasterId,
        /// Where that is from.
        place: String,
    },
    /// The ring is wrapped under a master key, and there is none here.
    #[error(
        "the key ring in the ledger is sealed under the master key {}, which this process doesn't have: {place} isn't there, and a new one would open nothing. Nothing was changed, and operations are safe. Give every replica the same master key: [seal] master = \"${{file:PATH}}\" or \"${{env:NAME}}\", or copy that file from where the first one was started. If it is lost, `counterfoil keys reset` makes a new ring: calls that wait for an answer then have to be made again, and nothing else is lost",
        list(.ring)
    )]
    NoMaster {
        /// Those that open it.
        ring: Vec<MasterId>,
        /// Where it would be.
        place: String,
    },
    /// The ring was made under another server name.
    #[error(
        "the key ring in the ledger belongs to the server name {ring:?}, and this process is {ours:?}: what one of them seals, the other would refuse. Nothing was changed, and operations are safe. Give every replica [server] name = {ring:?}. If all are to be renamed, stop them and run `counterfoil keys rename` first"
    )]
    Audience {
        /// The name it belongs to.
        ring: String,
        /// The one that is configured here.
        ours: String,
    },
    /// What is kept can't be read, though the master key is right.
    #[error(
        "the key ring in the ledger is damaged ({0}). It was left as it is, and operations are safe. Restore the ledger's table of shelved values from a backup if it was changed by hand, or make a new ring with `counterfoil keys reset`: calls that wait for an answer then have to be made again, and nothing else is lost"
    )]
    Damaged(&'static str),
    /// A newer version of this program wrote it.
    #[error(
        "the key ring in the ledger is of form {0}, which a newer version of this program wrote. Nothing was changed. Start that version"
    )]
    Newer(u32),
    /// Other processes change it all the time.
    #[error("the key ring is being changed by other processes; nothing was changed here. Try again")]
    Contended,
    /// It is not there.
    #[error("there is no key ring in the ledger yet; `counterfoil serve` makes one at its first start")]
    Absent,
    /// A command asks for what can't be done.
    #[error("{0}")]
    Refused(String),
    /// The store can't be asked.
    #[error("the key ring can't be read or written now ({0}). Try again")]
    Store(String),
    /// The system gives no random numbers.
    #[error("the operating system gives no random numbers ({0}); no key was made")]
    Random(getrandom::Error),
}

impl Error {
    /// Whether a person must change something first (as opposed to trying again).
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        !matches!(self, Error::Contended | Error::Store(_) | Error::Random(_))
    }
}

impl From<getrandom::Error> for Error {
    fn from(e: getrandom::Error) -> Error {
        Error::Random(e)
    }
}

fn list(ids: &[MasterId]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(" or ")
}
