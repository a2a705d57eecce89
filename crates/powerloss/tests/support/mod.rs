//! A workload on the real store over the recording VFS, what was answered to it, and what therefore has to be on
//! the disk.

#![allow(dead_code)]

pub mod load;
pub mod told;

use counterfoil_powerloss::{Files, Recorder, register};
use ledger::SystemEnv;
use ledger::words::Millis;
use ledger_sqlite::planted::Planted;
use ledger_sqlite::{Config, OpenError, SqliteStore};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// What the store keeps beside its database.
pub const BESIDE: [&str; 2] = ["ledger.epoch", "ledger.held"];

/// A directory in memory, where there is such a thing: the disk is ours here.
pub fn directory() -> TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap()
}

/// A directory whose every change is written down.
pub struct Watched {
    pub dir: TempDir,
    pub recorder: Arc<Recorder>,
    vfs: String,
}

impl Watched {
    pub fn new(files: &Files) -> Watched {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let dir = directory();
        lay(dir.path(), files);
        let recorder = Arc::new(Recorder::new(dir.path(), &BESIDE));
        let vfs = format!("watched-{}", NAMES.fetch_add(1, Ordering::Relaxed));
        register(&vfs, recorder.clone()).unwrap();
        Watched { dir, recorder, vfs }
    }

    pub fn config(&self, planted: Planted) -> Config {
        Config { vfs: Some(self.vfs.clone()), planted, ..config(self.dir.path()) }
    }
}

pub fn config(dir: &Path) -> Config {
    Config {
        ballast: 0,
        min_free: 0,
        // So few that the log is copied beside the commits again and again.
        log_pages: 24,
        unindexed_rows: 3,
        clock_margin: Millis::secs(3600),
        ..Config::new(dir.join("ledger.db"), "test")
    }
}

/// Puts files into a directory.
pub fn lay(dir: &Path, files: &Files) {
    for (name, bytes) in files {
        std::fs::write(dir.join(&**name), bytes).unwrap();
    }
}

/// What the store said about its end.
pub type Said = Arc<Mutex<Vec<String>>>;

pub fn open(config: Config) -> Result<(Arc<SqliteStore>, Said), OpenError> {
    let said = Said::default();
    let ear = said.clone();
    let on_fatal = Arc::new(move |why| ear.lock().unwrap().push(why));
    Ok((SqliteStore::open(config, Arc::new(SystemEnv), on_fatal)?, said))
}

pub fn block_on<F: Future>(work: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
