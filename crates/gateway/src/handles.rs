//! Handles as native code sees them: a value as it was read, why one can't be used, and a view for what only reads.
//!
//! A view has no way to write: what changes a handle is an attempt's.

use crate::answer;
use crate::resource::Failure;
use ledger::handle::{HandleFound, MAX_HANDLES};
use ledger::{CallError, Handle, Kind, Ledger, ToolResult};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::sync::Arc;

/// The most handles that one reading lists.
pub const MAX_LIST: usize = 100;

/// Why a handle can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// There is none of this name and kind for this caller: it never was, or was destroyed, or is another caller's, or
    /// has expired long ago. Nobody is told which.
    #[error("handle_unknown: there is no such {0} handle for this caller. Begin a new one.")]
    Unknown(String),
    /// It was the caller's, and its time is over.
    #[error("handle_expired: this {0} handle has expired. Begin a new one.")]
    Expired(String),
    /// Somebody changed it since it was read.
    #[error(
        "handle_moved: it was changed meanwhile by another call. Call again to work on what is there now."
    )]
    Moved,
    /// The caller has as many as it may have.
    #[error(
        "handle_full: this caller has {MAX_HANDLES} handles, which is the most. End some that are not needed, then call again."
    )]
    Full,
    /// The tool's mistake (an undeclared kind, a value that is too large, a name that was used before), or a ledger that
    /// can't be read.
    #[error("{0}")]
    Wrong(String),
}

impl HandleError {
    /// The answer of a call that did nothing because of it, where no call with this handle will ever do anything. Who
    /// calls is told what, and goes on with another one.
    #[must_use]
    pub fn ends_call(&self) -> Option<CallError> {
        Some(match self {
            HandleError::Unknown(kind) => CallError::plain(
                Kind::HandleUnknown,
                format!("There is no such {kind} handle for this caller, so nothing was done."),
                "Check that it was passed on as it is; if it was, begin a new one and go on with that.",
            ),
            HandleError::Expired(kind) => CallError::plain(
                Kind::HandleExpired,
                format!("This {kind} handle has expired, so nothing was done."),
                "Begin a new one and go on with that; what it held is gone.",
            ),
            HandleError::Moved | HandleError::Full | HandleError::Wrong(_) => return None,
        })
    }

    /// The same as the result of a tool, as other errors that a model can act on; `promises`: the tool has an
    /// `outputSchema`.
    #[must_use]
    pub fn ends_tool(&self, promises: bool) -> Option<ToolResult> {
        let (body, object) = answer::result(&self.ends_call()?, promises);
        let body = body.object()?.with_meta(&[(answer::META_ERROR, object.as_str())], &[]);
        Some(ToolResult { result: body.as_str().as_bytes().to_vec(), is_error: true })
    }
}

impl From<HandleError> for Failure {
    fn from(e: HandleError) -> Failure {
        match e {
            HandleError::Unknown(_) => Failure::NotFound,
            HandleError::Expired(_) => Failure::Bad(e.to_string()),
            HandleError::Moved | HandleError::Full | HandleError::Wrong(_) => Failure::Failed(e.to_string()),
        }
    }
}

/// A handle's value as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<T> {
    /// The value. Change it here, and pass it to what updates.
    pub value: T,
    kind: String,
    version: u64,
    id_hash: [u8; 32],
}

impl<T> Held<T> {
    /// With another value, of whatever type.
    #[must_use]
    pub fn with<U>(&self, value: U) -> Held<U> {
        Held { value, kind: self.kind.clone(), version: self.version, id_hash: self.id_hash }
    }

    /// One as an attempt keeps it.
    #[must_use]
    pub fn new(value: T, kind: String, version: u64, id_hash: [u8; 32]) -> Held<T> {
        Held { value, kind, version, id_hash }
    }

    /// What it is for.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Counts the changes of its value, from 1 on.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What the ledger knows it by.
    #[must_use]
    pub fn id_hash(&self) -> [u8; 32] {
        self.id_hash
    }
}

impl Held<Box<RawValue>> {
    /// What is kept; `None` if that is no JSON.
    #[must_use]
    pub fn of(h: Handle) -> Option<Held<Box<RawValue>>> {
        let value = serde_json::from_slice(&h.value).ok()?;
        Some(Held { value, kind: h.kind, version: h.version, id_hash: h.id_hash })
    }

    /// What was found, if it is of this kind.
    ///
    /// # Errors
    /// [`HandleError::Unknown`], [`HandleError::Expired`].
    pub fn found(found: HandleFound, kind: &str) -> Result<Held<Box<RawValue>>, HandleError> {
        let unknown = || HandleError::Unknown(kind.to_owned());
        match found {
            HandleFound::There(h) if h.kind == kind => Held::of(h).ok_or_else(unknown),
            HandleFound::Expired { kind: k } if k == kind => Err(HandleError::Expired(k)),
            HandleFound::There(_) | HandleFound::Expired { .. } | HandleFound::Unknown => Err(unknown()),
        }
    }

    /// Its value as a type.
    ///
    /// # Errors
    /// [`HandleError::Wrong`]: it is not of that type.
    pub fn typed<T: DeserializeOwned>(self) -> Result<Held<T>, HandleError> {
        let value = serde_json::from_str(self.value.get()).map_err(|_| {
            let kind = &self.kind;
            HandleError::Wrong(format!(
                "The value of this {kind} handle is not of the form that this tool reads."
            ))
        })?;
        Ok(self.with(value))
    }
}

/// The caller's handles, for what only reads: tools, resources, prompts. What it reads may be another at the next look.
#[derive(Clone)]
pub struct ReadHandles {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) principal: Arc<str>,
}

impl ReadHandles {
    /// One as it is now; being read is a use of it.
    ///
    /// # Errors
    /// [`HandleError::Unknown`], [`HandleError::Expired`]; [`HandleError::Wrong`] if it is not of this type, or the
    /// ledger can't be read.
    pub async fn get<T: DeserializeOwned>(&self, kind: &str, handle: &str) -> Result<Held<T>, HandleError> {
        let found = self.ledger.handle(&self.principal, handle).await.map_err(|_| unreadable())?;
        Held::found(found, kind)?.typed()
    }

    /// The caller's handles of a kind, 100 at most, in no order that says anything. Their texts are known to the caller
    /// alone.
    ///
    /// # Errors
    /// [`HandleError::Wrong`]: one is not of this type, or the ledger can't be read.
    pub async fn list<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<Held<T>>, HandleError> {
        let store = self.ledger.store();
        let all = store.handles(&self.principal, Some(kind), None, MAX_LIST, store.now()).await;
        let all = all.map_err(|_| unreadable())?;
        all.into_iter().filter_map(Held::of).map(Held::typed).collect()
    }
}

fn unreadable() -> HandleError {
    HandleError::Wrong(
        "The ledger can't be read at the moment, so nothing was done. Calling again a little later is safe."
            .into(),
    )
}
