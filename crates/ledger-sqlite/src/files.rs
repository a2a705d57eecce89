//! The data directory: who may see it, who has it, and how much room there is.

use crate::OpenError;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

fn file_error(what: &'static str) -> impl Fn(std::io::Error) -> OpenError {
    move |error| OpenError::File { what, error }
}

/// The directory of the database file.
pub(crate) fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(d) if !d.as_os_str().is_empty() => d.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Makes the directory for this user only and checks that its file system keeps locks.
pub(crate) fn prepare(dir: &Path) -> Result<(), OpenError> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(file_error("directory"))?;
    let meta = std::fs::metadata(dir).map_err(file_error("directory"))?;
    if meta.permissions().mode() & 0o077 != 0 {
        tracing::warn!("the ledger's directory can be entered by other users; `chmod 700` it");
    }
    #[cfg(target_os = "linux")]
    {
        let fs = rustix::fs::statfs(dir).map_err(|e| file_error("directory")(e.into()))?;
        // Magic numbers: statfs(2).
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::unnecessary_cast)]
        match fs.f_type as u32 {
            0x6969 => return Err(OpenError::NetworkFileSystem("NFS")),
            0x517b | 0xfe53_4d42 => return Err(OpenError::NetworkFileSystem("SMB")),
            0xff53_4d42 => return Err(OpenError::NetworkFileSystem("CIFS")),
            0x5346_414f | 0x6b41_4653 => return Err(OpenError::NetworkFileSystem("AFS")),
            0x7375_7245 => return Err(OpenError::NetworkFileSystem("Coda")),
            0x6573_5546 | 0x0102_1997 => {
                tracing::warn!(
                    "the ledger's directory is on a FUSE or 9P file system: make sure that it keeps locks and syncs to a local disk"
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// Takes the directory for this process, until the returned file is dropped. The lock is the operating
/// system's and goes with the process; the file stays, for unlinking it would let two processes in.
pub(crate) fn lock(dir: &Path) -> Result<File, OpenError> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(dir.join("ledger.lock"))
        .map_err(file_error("lock"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => {
            let mut text = String::new();
            let holder =
                (&mut file).take(32).read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(OpenError::Locked { holder });
        }
        Err(std::fs::TryLockError::Error(e)) => return Err(file_error("lock")(e)),
    }
    let said =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    match said {
        // Who has it is for people; on a full disk it is had all the same.
        Err(e) if e.kind() != std::io::ErrorKind::StorageFull => Err(file_error("lock")(e)),
        _ => Ok(file),
    }
}

/// Makes the database file, so that it (and the log, which inherits its mode) is this user's only.
pub(crate) fn claim_database(path: &Path, dir: &Path) -> Result<(), OpenError> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(_) => {
            // A file is only as durable as its directory's entry of it.
            File::open(dir).and_then(|d| d.sync_all()).map_err(file_error("directory"))
        }
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let meta = std::fs::metadata(path).map_err(file_error("database"))?;
            if !meta.is_file() {
                return Err(OpenError::NotALedger);
            }
            Ok(())
        }
        Err(e) => Err(file_error("database")(e)),
    }
}

const EPOCH: &str = "ledger.epoch";
const HELD: &str = "ledger.held";

/// The newest epoch that was begun in this directory, kept beside the database: a database that is behind it
/// was put back from a backup.
pub(crate) fn known_epoch(dir: &Path) -> Option<u64> {
    std::fs::read_to_string(dir.join(EPOCH)).ok()?.trim().parse().ok()
}

/// Keeps the epoch that begins. Its loss only costs the detection.
pub(crate) fn keep_epoch(dir: &Path, epoch: u64) -> Result<(), OpenError> {
    write_whole(dir, EPOCH, &format!("{epoch}\n"))
}

/// Whether new operations wait for somebody to look at a restored ledger.
pub(crate) fn is_held(dir: &Path) -> bool {
    dir.join(HELD).exists()
}

/// Makes new operations wait, over restarts too.
pub(crate) fn hold(dir: &Path) -> Result<(), OpenError> {
    write_whole(dir, HELD, "restored from a backup; `counterfoil ops release` lets new operations in again\n")
}

/// Ends the wait.
pub(crate) fn release(dir: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(dir.join(HELD)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => File::open(dir)?.sync_all(),
    }
}

fn write_whole(dir: &Path, name: &'static str, text: &str) -> Result<(), OpenError> {
    let write = || -> std::io::Result<()> {
        let fresh = dir.join(format!("{name}.new"));
        let mut f = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        f.write_all(text.as_bytes())?;
        f.sync_all()?;
        std::fs::rename(&fresh, dir.join(name))?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|e| {
        // What there is of it takes room, and is of no use.
        let _ = std::fs::remove_file(dir.join(format!("{name}.new")));
        file_error(name)(e)
    })
}

/// Takes away what other users may do with the database (it holds the ledger's secret).
pub(crate) fn tighten(path: &Path) -> Result<(), OpenError> {
    let mode = std::fs::metadata(path).map_err(file_error("database"))?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .map_err(file_error("database"))?;
    }
    Ok(())
}

/// Room on the disk: what is free, and the ballast.
pub(crate) struct Disk {
    dir: PathBuf,
    min_free: u64,
    ballast: u64,
    ballast_held: AtomicBool,
    free: AtomicU64,
    looked: Mutex<Option<Instant>>,
    #[cfg(feature = "faults")]
    pub pretended: Mutex<Option<u64>>,
}

impl Disk {
    pub fn new(dir: PathBuf, min_free: u64, ballast: u64) -> Disk {
        let held = std::fs::metadata(dir.join(BALLAST)).is_ok_and(|m| m.len() == ballast);
        Disk {
            dir,
            min_free,
            ballast,
            ballast_held: AtomicBool::new(held),
            free: AtomicU64::new(u64::MAX),
            looked: Mutex::new(None),
            #[cfg(feature = "faults")]
            pretended: Mutex::new(None),
        }
    }

    /// Bytes free for this user, looked up at most once a second.
    pub fn free(&self) -> u64 {
        #[cfg(feature = "faults")]
        if let Some(free) = *self.pretended.lock().unwrap_or_else(PoisonError::into_inner) {
            return free;
        }
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.is_none_or(|t| t.elapsed() >= Duration::from_secs(1)) {
            *looked = Some(Instant::now());
            // What can't be measured must not stop the ledger: a full disk still answers for itself.
            let free =
                rustix::fs::statvfs(&self.dir).map_or(u64::MAX, |v| v.f_bavail.saturating_mul(v.f_frsize));
            self.free.store(free, Ordering::Relaxed);
        }
        self.free.load(Ordering::Relaxed)
    }

    /// Too full for new operations. Room that came from the ballast is not theirs.
    pub fn is_low(&self) -> bool {
        let owed = if self.ballast_held.load(Ordering::Relaxed) { 0 } else { self.ballast };
        self.free() < self.min_free.saturating_add(owed)
    }

    /// Gives the ballast up. Whether there was any.
    pub fn release_ballast(&self) -> bool {
        self.ballast_held.store(false, Ordering::Relaxed);
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = None;
        std::fs::remove_file(self.dir.join(BALLAST)).is_ok()
    }

    /// Keeps something beside the database that can be done without. On a full disk the ballast is given up for it; if
    /// that is not enough, it is not kept.
    pub fn keep(&self, keep: impl Fn() -> Result<(), OpenError>) -> Result<(), OpenError> {
        let full = |e: &OpenError| matches!(e, OpenError::File { error, .. } if error.kind() == std::io::ErrorKind::StorageFull);
        let mut kept = keep();
        if kept.as_ref().is_err_and(full) && self.release_ballast() {
            kept = keep();
        }
        match kept {
            Err(e) if full(&e) => {
                tracing::warn!(
                    "the disk is full: that this start began is not kept beside the database, so an older database put in its place might not be noticed"
                );
                Ok(())
            }
            other => other,
        }
    }

    /// Takes the ballast (again) once there is room for it and as much again.
    pub fn restore_ballast(&self) {
        if self.ballast == 0 || self.ballast_held.load(Ordering::Relaxed) {
            return;
        }
        if self.free() < self.min_free.saturating_add(self.ballast.saturating_mul(2)) {
            return;
        }
        let path = self.dir.join(BALLAST);
        match fill(&path, self.ballast) {
            Ok(()) => self.ballast_held.store(true, Ordering::Relaxed),
            Err(e) => {
                let _ = std::fs::remove_file(&path);
                tracing::warn!("no room could be set aside for a full disk ({e}); trying again later");
            }
        }
    }
}

const BALLAST: &str = "ledger.ballast";

/// Makes a file whose blocks are really taken: a sparse one would give nothing back.
fn fill(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    #[cfg(target_os = "linux")]
    if rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).is_ok() {
        return Ok(());
    }
    let zeros = [0; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(zeros.len());
        file.write_all(&zeros[..n])?;
        left -= n as u64;
    }
    file.sync_all()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::ErrorKind;

    /// What becomes of something to be kept while the disk fails so often with this error; and how often it was tried.
    fn kept(ballast: bool, kind: ErrorKind, failures: u32) -> (bool, u32, bool) {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(dir.path().to_owned(), 0, 4096);
        if ballast {
            disk.restore_ballast();
        }
        let tries = Cell::new(0);
        let done = disk.keep(|| {
            tries.set(tries.get() + 1);
            if tries.get() <= failures { Err(file_error("test")(kind.into())) } else { Ok(()) }
        });
        (done.is_ok(), tries.get(), dir.path().join(BALLAST).exists())
    }

    #[test]
    fn what_can_be_done_without_keeps_no_start_back_on_a_full_disk() {
        assert_eq!(kept(true, ErrorKind::StorageFull, 0), (true, 1, true));
        assert_eq!(kept(true, ErrorKind::StorageFull, 1), (true, 2, false), "in the room of the ballast");
        assert_eq!(kept(true, ErrorKind::StorageFull, 9), (true, 2, false), "not at all");
        assert_eq!(kept(false, ErrorKind::StorageFull, 9), (true, 1, false));
        assert_eq!(kept(true, ErrorKind::PermissionDenied, 9), (false, 1, true));
    }
}
