//! Files that nobody else may read, in a folder that nobody else may enter.
//!
//! Whatever is looser than that, a link, or another user's is refused with what to do. A write is whole or not there.

use crate::error::Error;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// How often a lock is tried.
const PAUSE: Duration = Duration::from_millis(10);

fn unfit(path: &Path, why: impl Into<String>) -> Error {
    Error::Unfit { path: path.to_owned(), why: why.into() }
}

fn io(path: &Path, e: &std::io::Error) -> Error {
    unfit(path, format!("can't be used: {e}; check that it is yours and that the disk is not full"))
}

/// Which file this is, as far as can be told without reading it: another one after every replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    size: u64,
    at: (i64, i64),
}

/// The stamp of a file; `None`: there is none, or it can't be looked at.
pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    let about = std::fs::symlink_metadata(path).ok()?;
    // The time of change, which a change of the mode moves too.
    Some(Stamp { inode: about.ino(), size: about.len(), at: (about.ctime(), about.ctime_nsec()) })
}

/// Whether the folder is there and fit.
pub(crate) fn check_folder(dir: &Path) -> Result<bool, Error> {
    let about = match std::fs::symlink_metadata(dir) {
        Ok(about) => about,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(io(dir, &e)),
    };
    if !about.is_dir() {
        return Err(unfit(
            dir,
            "is not a folder (a link is not followed); move it away, or set COUNTERFOIL_CREDENTIALS to another place",
        ));
    }
    private(dir, &about, "700")?;
    Ok(true)
}

/// Makes the folder, for this user only.
pub(crate) fn make_folder(dir: &Path) -> Result<(), Error> {
    if check_folder(dir)? {
        return Ok(());
    }
    if let Some(above) = dir.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(above).map_err(|e| io(above, &e))?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => check_folder(dir).map(|_| ()),
        Err(e) => Err(io(dir, &e)),
    }
}

fn private(path: &Path, about: &std::fs::Metadata, mode: &str) -> Result<(), Error> {
    if about.uid() != rustix::process::geteuid().as_raw() {
        return Err(unfit(path, "belongs to another user; move it away, or run as that user"));
    }
    if about.mode() & 0o077 != 0 {
        return Err(unfit(
            path,
            format!(
                "is open to others (its mode is {:04o}), so nothing is read from it; `chmod {mode}` it, and replace the credentials in it if others can log in here",
                about.mode() & 0o7777
            ),
        ));
    }
    Ok(())
}

/// A file's bytes; `None`: there is none.
pub(crate) fn read(path: &Path, longest: u64) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK).bits());
    let file = OpenOptions::new().read(true).custom_flags(no_follow.unwrap_or(0)).open(path);
    let file = match file {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(unfit(path, "is a link, which is not followed; put the file itself there"));
        }
        Err(e) => return Err(io(path, &e)),
    };
    let about = file.metadata().map_err(|e| io(path, &e))?;
    if !about.is_file() {
        return Err(unfit(path, "is not a file; move it away"));
    }
    private(path, &about, "600")?;
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(longest + 1).read_to_end(&mut bytes).map_err(|e| io(path, &e))?;
    if bytes.len() as u64 > longest {
        return Err(unfit(
            path,
            format!("is larger than {longest} bytes, which none of ours is; move it away"),
        ));
    }
    Ok(Some(bytes))
}

/// Puts a file in the place of the one that is there, whole and on the disk.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let dir = path.parent().unwrap_or(Path::new("."));
    // Whatever stands there must be a file of ours: a link would be replaced, and what it led to kept unseen.
    if let Ok(about) = std::fs::symlink_metadata(path)
        && !about.is_file()
    {
        return Err(unfit(path, "is not a file (a link is not followed); move it away"));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let half = dir.join(format!(".{name}.{}.half", std::process::id()));
    let written = || -> std::io::Result<()> {
        // Left by one that was killed; whoever writes holds the lock.
        match std::fs::remove_file(&half) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&half, path)?;
        File::open(dir)?.sync_all()
    };
    written().map_err(|e| {
        let _ = std::fs::remove_file(&half);
        io(path, &e)
    })
}

/// A lock that other processes see, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Takes the lock of this name, waiting for others. Blocks the thread.
pub(crate) fn lock(path: PathBuf, patience: Duration) -> Result<Lock, Error> {
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(no_follow);
    let file = how.open(&path).map_err(|e| io(&path, &e))?;
    let until = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => return Err(Error::Busy),
            Err(TryLockError::Error(e)) => return Err(io(&path, &e)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_may_read_or_lead_elsewhere_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("a/b");
        assert!(!check_folder(&dir).unwrap());
        make_folder(&dir).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        make_folder(&dir).unwrap();
        let file = dir.join("f");
        assert_eq!(read(&file, 8).unwrap(), None);
        replace(&file, b"12345678").unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(**read(&file, 8).unwrap().unwrap(), *b"12345678");
        assert!(read(&file, 7).unwrap_err().to_string().contains("larger than 7 bytes"));
        let before = stamp(&file).unwrap();
        replace(&file, b"12345679").unwrap();
        assert_ne!(stamp(&file).unwrap(), before);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "nothing else is left");

        for open in [0o640, 0o604, 0o660] {
            mode(&file, open);
            let told = read(&file, 8).unwrap_err().to_string();
            assert!(told.contains("chmod 600") && told.contains(&format!("{open:04o}")), "{told}");
        }
        mode(&file, 0o600);
        symlink(&file, dir.join("link")).unwrap();
        assert!(read(&dir.join("link"), 8).unwrap_err().to_string().contains("is a link"));
        assert!(replace(&dir.join("link"), b"x").unwrap_err().to_string().contains("not a file"));
        assert!(lock(dir.join("link"), Duration::ZERO).is_err());
        assert!(read(&dir, 8).unwrap_err().to_string().contains("not a file"));

        mode(&dir, 0o750);
        assert!(check_folder(&dir).unwrap_err().to_string().contains("chmod 700"));
        mode(&dir, 0o700);
        symlink(&dir, home.path().join("link")).unwrap();
        assert!(check_folder(&home.path().join("link")).unwrap_err().to_string().contains("not a folder"));
        assert!(check_folder(&file).unwrap_err().to_string().contains("not a folder"));
    }

    #[test]
    fn one_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lock");
        let held = lock(path.clone(), Duration::ZERO).unwrap();
        assert_eq!(lock(path.clone(), Duration::from_millis(30)).unwrap_err(), Error::Busy);
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || lock(path, Duration::from_secs(10)).map(|_| ())
        });
        drop(held);
        waiting.join().unwrap().unwrap();
    }
}
