//! Handles: state of a tool that lives longer than a call, under a name that only its owner can use.
//!
//! The name is a secret text of 128 random-looking bits; the ledger keeps its hash. It proves nothing by itself: a
//! handle is found only for the principal that made it. Changes belong to the operation that made them and are written
//! together with its record, so a call that is repeated does not make them twice.

use crate::store::StoreError;
use crate::words::{Millis, Time, digest};
use std::sync::Arc;

/// The longest value of a handle, in bytes.
pub const MAX_HANDLE_VALUE: usize = 64 << 10;
/// The longest kind of a handle, in bytes.
pub const MAX_HANDLE_KIND: usize = 128;
/// The most handles that a principal has at a time.
pub const MAX_HANDLES: usize = 1024;
/// The longest that a handle may live, or lie unused: a hundred years.
pub const MAX_HANDLE_LIFE: Millis = Millis::secs(100 * 365 * 86_400);
/// For how long after its end a handle is known to its owner as one that has expired. It is kept for that time.
pub const EXPIRED_FOR: Millis = Millis::secs(86_400);
/// The most changes of handles in one write.
pub const MAX_HANDLE_CHANGES: usize = 16;

/// A handle as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Identifies it: [`id_hash`] of its text.
    pub id_hash: [u8; 32],
    /// Whose it is.
    pub principal: Arc<str>,
    /// What it is for: tells the handles of several tools apart.
    pub kind: String,
    /// The tool's bytes.
    pub value: Vec<u8>,
    /// Counts the changes of its value, from 1 on.
    pub version: u64,
    /// When it was made.
    pub created_at: Time,
    /// When it was last used.
    pub used_at: Time,
    /// How long it may lie unused.
    pub idle: Millis,
    /// How long it may live at all.
    pub absolute: Millis,
}

impl Handle {
    /// From when on it is gone.
    #[must_use]
    pub fn expires_at(&self) -> Time {
        self.used_at.plus(self.idle).min(self.created_at.plus(self.absolute))
    }
}

/// What there is under a name, for one principal. One question of the store tells it, the same one in each case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandleFound {
    /// It is there.
    There(Handle),
    /// It was this principal's, and ended no longer than [`EXPIRED_FOR`] ago.
    Expired {
        /// What it was for.
        kind: String,
    },
    /// It never was, ended longer ago, was destroyed, or is another's. Nobody is told which.
    Unknown,
}

impl HandleFound {
    /// What a store's answer means, that was asked for what was there [`EXPIRED_FOR`] before `now`.
    pub(crate) fn of(found: Option<Handle>, now: Time) -> HandleFound {
        match found {
            Some(h) if now < h.expires_at() => HandleFound::There(h),
            Some(h) => HandleFound::Expired { kind: h.kind },
            None => HandleFound::Unknown,
        }
    }

    /// The handle, if it is there.
    #[must_use]
    pub fn there(self) -> Option<Handle> {
        match self {
            HandleFound::There(h) => Some(h),
            HandleFound::Expired { .. } | HandleFound::Unknown => None,
        }
    }
}

/// The time to ask a store for, so that what ended lately is found too.
pub(crate) fn lately(now: Time) -> Time {
    now.plus(Millis(-EXPIRED_FOR.0))
}

/// A change of a handle. `at` is the ledger's time of the change; an attempt sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandleChange {
    /// A new one, with version 1.
    Create(Handle),
    /// Another value, if the handle is there and its version is `expected`; it counts as a use.
    Update {
        /// Which.
        id_hash: [u8; 32],
        /// Whose.
        principal: Arc<str>,
        /// The version that is replaced.
        expected: u64,
        /// The new value.
        value: Vec<u8>,
        /// When.
        at: Time,
    },
    /// Away with it, if it is there and (where that is given) its version is `expected`.
    Destroy {
        /// Which.
        id_hash: [u8; 32],
        /// Whose.
        principal: Arc<str>,
        /// The version that is known.
        expected: Option<u64>,
        /// When.
        at: Time,
    },
}

impl HandleChange {
    /// Which handle.
    #[must_use]
    pub fn id_hash(&self) -> &[u8; 32] {
        match self {
            HandleChange::Create(h) => &h.id_hash,
            HandleChange::Update { id_hash, .. } | HandleChange::Destroy { id_hash, .. } => id_hash,
        }
    }
    /// Whose.
    #[must_use]
    pub fn principal(&self) -> &Arc<str> {
        match self {
            HandleChange::Create(h) => &h.principal,
            HandleChange::Update { principal, .. } | HandleChange::Destroy { principal, .. } => principal,
        }
    }
    /// When.
    #[must_use]
    pub fn at(&self) -> Time {
        match self {
            HandleChange::Create(h) => h.created_at,
            HandleChange::Update { at, .. } | HandleChange::Destroy { at, .. } => *at,
        }
    }
    /// The same, made at this moment.
    #[must_use]
    pub fn made_at(mut self, now: Time) -> HandleChange {
        match &mut self {
            HandleChange::Create(h) => (h.created_at, h.used_at, h.version) = (now, now, 1),
            HandleChange::Update { at, .. } | HandleChange::Destroy { at, .. } => *at = now,
        }
        self
    }
}

/// Whether these changes may be made in one write. Every store asks first.
///
/// # Errors
/// [`StoreError::Unavailable`]: they are too many or too large, or two are about one handle, or one would live for no time
/// or too long.
pub fn bounded(changes: &[HandleChange]) -> Result<(), StoreError> {
    let no = |why: &str| Err(StoreError::Unavailable(why.into()));
    if changes.len() > MAX_HANDLE_CHANGES {
        return no("too many handles are changed in one write; change fewer");
    }
    for (n, c) in changes.iter().enumerate() {
        if changes[..n].iter().any(|o| o.id_hash() == c.id_hash()) {
            return no("a handle is changed twice in one write; change it once");
        }
        let (kind, value) = match c {
            HandleChange::Create(h) => (h.kind.len(), h.value.len()),
            HandleChange::Update { value, .. } => (0, value.len()),
            HandleChange::Destroy { .. } => (0, 0),
        };
        if let HandleChange::Create(h) = c
            && ![h.idle, h.absolute].iter().all(|d| (Millis(1)..=MAX_HANDLE_LIFE).contains(d))
        {
            return no("a handle lives at most a hundred years, and longer than no time");
        }
        if value > MAX_HANDLE_VALUE || kind > MAX_HANDLE_KIND {
            return no("the value or the kind of a handle is too large; make it smaller");
        }
    }
    Ok(())
}

/// What stands for the text of a handle in the ledger.
#[must_use]
pub fn id_hash(text: &str) -> [u8; 32] {
    digest("counterfoil/handle/1", &[text.as_bytes()])
}

/// Why a change of a handle was not made. Nothing is recorded of it: the tool decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleConflict {
    /// Somebody changed it first: it has this version now.
    #[error("the handle was changed meanwhile")]
    Moved {
        /// The version it has.
        version: u64,
    },
    /// It was the principal's, and its time is over.
    #[error("the handle has expired")]
    Expired,
    /// It isn't there: unknown, destroyed, another's, or expired long ago.
    #[error("there is no such handle")]
    Gone,
    /// One of this name is there already.
    #[error("there is a handle of this name already")]
    Taken,
    /// The principal has as many handles as it may have.
    #[error("a principal has at most {MAX_HANDLES} handles")]
    Full,
}
