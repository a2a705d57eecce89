//! The credentials of the user who runs this process: in a folder of their own, outside any project.

use credentials::{Error, Live, Store, directory};

/// Where they are, by the environment of this process.
///
/// # Errors
/// There is no place for them.
pub(crate) fn store() -> Result<Store, Error> {
    directory(|name| std::env::var_os(name)).map(Store::at)
}

/// The same, for requests: one in this process, so that a reload loses no token that is not on the disk yet.
pub(crate) fn live() -> Live {
    Live::shared(store())
}
