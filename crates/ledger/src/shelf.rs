//! The shelf: small things that the replicas of a ledger share, each under a name.

use crate::store::StoreError;
use crate::words::Time;

/// The longest name on the shelf, in bytes.
pub const MAX_SHELF_NAME: usize = 255;
/// The most bytes under one name on the shelf.
pub const MAX_SHELVED: usize = 1 << 20;

/// Something small that the replicas share: a key ring, a state that is too large for its token, the mark of something
/// that may be used once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shelved {
    /// Counts its changes, from 1 on.
    pub version: u64,
    /// What is kept.
    pub data: Vec<u8>,
    /// From when on it is gone; `None`: never.
    pub until: Option<Time>,
}

/// Whether this may be put on the shelf. Every store asks first.
///
/// # Errors
/// [`StoreError::Unavailable`]: the name or the data is too large, or the name is none.
pub fn shelf_bounded(name: &str, data: &[u8]) -> Result<(), StoreError> {
    let no = |why: String| Err(StoreError::Unavailable(why));
    if name.is_empty() || name.len() > MAX_SHELF_NAME || name.contains('\0') {
        return no(format!("a name on the shelf has 1 to {MAX_SHELF_NAME} bytes, none of them zero"));
    }
    if data.len() > MAX_SHELVED {
        return no(format!("at most {MAX_SHELVED} bytes are kept under one name on the shelf"));
    }
    Ok(())
}
