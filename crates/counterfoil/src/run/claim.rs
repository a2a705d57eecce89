//! The data directory of a replica whose ledger is elsewhere: one process at a time, as sockets can only have one owner.

use crate::Error;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The lock's file; it stays when the process ends, and is free then.
const NAME: &str = "replica.lock";

/// The directory is this process's until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    _lock: File,
}

impl Claim {
    /// Takes the directory, which is there.
    ///
    /// # Errors
    /// [`Error::Directory`]: another process has it; [`Error::File`]: it can't be used.
    pub fn take(dir: &Path) -> Result<Claim, Error> {
        let fail = |source| Error::File { what: "the lock of the data directory", source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(dir.join(NAME)).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let read = (&mut file).take(32).read_to_string(&mut text);
                let holder = read.ok().and_then(|_| text.trim().parse().ok());
                return Err(Error::Directory { directory: dir.to_owned(), holder });
            }
            Err(TryLockError::Error(e)) => return Err(fail(e)),
        }
        let said = file.set_len(0).and_then(|()| file.rewind());
        said.and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
        Ok(Claim { _lock: file })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Claim::take(dir.path()).unwrap();
        let refused = Claim::take(dir.path()).unwrap_err().to_string();
        let own = std::process::id();
        assert!(
            refused.contains(&format!("in use by process {own};")) && refused.contains("--data"),
            "{refused}"
        );
        drop(first);
        Claim::take(dir.path()).unwrap();
    }
}
