//! The record of what happened to the files of one directory, and the faults that are planned for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file's name inside the directory.
pub type Name = Arc<str>;

/// Files and what is in them.
pub type Files = BTreeMap<Name, Vec<u8>>;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A file was made.
    Create(Name),
    /// Bytes were written.
    Write {
        /// Where.
        file: Name,
        /// From which byte on.
        at: u64,
        /// What.
        data: Vec<u8>,
    },
    /// A file was cut off, or extended by zeros.
    Resize {
        /// Which.
        file: Name,
        /// To how many bytes.
        len: u64,
    },
    /// A barrier.
    Sync {
        /// Of which file.
        file: Name,
        /// It succeeded.
        ok: bool,
    },
    /// The directory was synced.
    SyncDir,
    /// A file was deleted.
    Delete {
        /// Which.
        file: Name,
        /// The directory was synced then.
        durable: bool,
    },
    /// The files beside the database are these from here on.
    Beside(Files),
    /// Whoever uses the database says something.
    Mark(u64),
}

/// How an access to the disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A sync reports an I/O error.
    Sync,
    /// A write finds no room, and writes nothing.
    Full,
    /// A write finds no room after its first half.
    FullHalf,
    /// A write reports an I/O error, and writes nothing.
    Write,
}

impl Failure {
    fn of_sync(self) -> bool {
        self == Failure::Sync
    }
}

/// Which accesses fail.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The first: the so-manieth sync or write from now on, as the failure is of syncs or of writes; 1 is the next.
    pub first: u64,
    /// How many fail, that one included.
    pub many: u64,
    /// How.
    pub how: Failure,
}

#[derive(Default)]
struct Inner {
    log: Vec<Event>,
    beside: Files,
    plan: Option<Plan>,
    failed: u64,
}

/// Writes down what happens in a directory.
pub struct Recorder {
    dir: PathBuf,
    watched: Vec<Name>,
    inner: Mutex<Inner>,
}

impl Recorder {
    /// For `dir`. The files named in `beside` are not SQLite's, and are looked at with every event.
    #[must_use]
    pub fn new(dir: &Path, beside: &[&str]) -> Recorder {
        Recorder {
            dir: dir.to_owned(),
            watched: beside.iter().map(|n| Name::from(*n)).collect(),
            inner: Mutex::default(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name under which a path is written down; `None` for files elsewhere.
    pub(crate) fn name(&self, path: &Path) -> Option<Name> {
        // The directory may be reached by another name than it was given by (a symbolic link).
        let (dir, name) = (path.parent()?, path.file_name()?.to_str()?);
        (dir == self.dir || dir.canonicalize().ok()? == self.dir.canonicalize().ok()?).then(|| name.into())
    }

    fn look(&self, inner: &mut Inner) {
        let mut now = Files::new();
        for name in &self.watched {
            if let Ok(bytes) = std::fs::read(self.dir.join(&**name)) {
                now.insert(name.clone(), bytes);
            }
        }
        if now != inner.beside {
            inner.log.push(Event::Beside(now.clone()));
            inner.beside = now;
        }
    }

    pub(crate) fn push(&self, event: Event) {
        let mut inner = self.inner();
        self.look(&mut inner);
        inner.log.push(event);
    }

    /// Writes down that the user of the database knows something now.
    pub fn mark(&self, what: u64) {
        self.push(Event::Mark(what));
    }

    /// Everything so far.
    #[must_use]
    pub fn log(&self) -> Vec<Event> {
        let mut inner = self.inner();
        self.look(&mut inner);
        inner.log.clone()
    }

    /// How much happened so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner().log.len()
    }

    /// Whether something of that kind happened since there were `from` events.
    pub fn since(&self, from: usize, what: impl FnMut(&Event) -> bool) -> bool {
        self.inner().log.iter().skip(from).any(what)
    }

    /// Whether nothing happened so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes accesses fail from now on; `None`: none any more.
    pub fn plan(&self, plan: Option<Plan>) {
        self.inner().plan = plan;
    }

    /// How many accesses were made to fail.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.inner().failed
    }

    /// Whether this sync (or write) fails, and how.
    pub(crate) fn fails(&self, sync: bool) -> Option<Failure> {
        let mut inner = self.inner();
        let plan = inner.plan.as_mut().filter(|p| p.how.of_sync() == sync)?;
        if plan.first > 1 {
            plan.first -= 1;
            return None;
        }
        if plan.many == 0 {
            return None;
        }
        plan.many -= 1;
        let how = plan.how;
        inner.failed += 1;
        Some(how)
    }
}
