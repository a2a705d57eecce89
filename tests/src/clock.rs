//! A wall clock that can be set: programs are started under Debian's libfaketime, which reads from a file how far their
//! clock is off, at every look. The clocks that only go forward stay true, as they do when a real clock is set.

use crate::process::build_dir;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// The build for programs with several threads.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The clock of some programs.
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// A clock that is right, for now. Its file is in `folder`.
    ///
    /// # Errors
    /// The library is not installed.
    pub fn new(folder: &Path) -> Result<Clock> {
        let own = build_dir()?.join("faketime/usr/lib");
        let library = [own, "/usr/lib".into()].iter().find_map(|lib| installed(lib));
        let library = library.context("libfaketime is not installed: run `cargo xtask install`")?;
        let clock = Clock { library, file: folder.join("clock") };
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets it, also under programs that run: so many seconds ahead of the true time.
    ///
    /// # Errors
    /// What the system says.
    pub fn set(&self, ahead: i64) -> Result<()> {
        // Whoever reads it sees the one time or the other, never half of it.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{ahead:+}\n"))?;
        Ok(std::fs::rename(&new, &self.file)?)
    }

    /// Has a command see this clock.
    pub fn over(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1");
    }

    /// How many seconds ahead a program sees it: asked of one that has no part in what is tested.
    ///
    /// # Errors
    /// `date` does not run.
    pub fn seen(&self) -> Result<i64> {
        let mut date = Command::new("date");
        self.over(date.arg("+%s").stdout(Stdio::piped()));
        let date = date.spawn()?;
        let left = Clock::left_by(date.id());
        let out = date.wait_with_output()?;
        left.iter().for_each(|file| drop(std::fs::remove_file(file)));
        let there: i64 = String::from_utf8_lossy(&out.stdout).trim().parse().context("what `date` said")?;
        let here = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Ok(there - i64::try_from(here)?)
    }

    /// What the library leaves in shared memory when its process ends, killed or not.
    #[must_use]
    pub fn left_by(pid: u32) -> [PathBuf; 2] {
        ["sem.faketime_sem", "faketime_shm"].map(|name| PathBuf::from(format!("/dev/shm/{name}_{pid}")))
    }
}

/// The library below a folder with one folder for each architecture.
fn installed(lib: &Path) -> Option<PathBuf> {
    std::fs::read_dir(lib).ok()?.flatten().map(|entry| entry.path().join(LIBRARY)).find(|path| path.is_file())
}
