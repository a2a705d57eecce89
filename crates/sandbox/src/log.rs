//! The log on disk, `effects.jsonl`: one line per request that changed something, appended in the order in which
//! memory changed.
//!
//! One thread writes. It takes whatever has queued up, writes it at once, syncs once, and then publishes how far
//! the disk has come; answers wait for that. Where nothing is synced there is nothing to wait for: whoever changes
//! memory writes the line itself. A failed write or sync ends the log for good: nothing is retried, because after a
//! failed fsync nobody knows what the disk holds.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    sync::mpsc,
    thread::JoinHandle,
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{Error, state::Entry};

const FILE: &str = "effects.jsonl";
const LOCK: &str = "lock";
/// How often, and after what pauses, a taken lock is tried again.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
const FORMAT: u32 = 1;

/// The first line of a log.
#[derive(Serialize, Deserialize)]
struct Head {
    log: String,
    format: u32,
    /// Sequence number after which this log begins.
    after: u64,
}

impl Head {
    fn line(after: u64) -> Vec<u8> {
        let mut line =
            serde_json::json!({"log": "counterfoil-sandbox", "format": FORMAT, "after": after}).to_string();
        line.push('\n');
        line.into_bytes()
    }
}

/// How far the disk has come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Durable {
    /// Everything up to this sequence number is on disk.
    pub upto: u64,
    /// Nothing more will be.
    pub failed: bool,
}

#[derive(Debug)]
pub(crate) enum Job {
    Append(u64, Vec<u8>),
    Truncate(u64),
}

/// The sending side; its order is the order of the log.
#[derive(Debug)]
pub(crate) enum Log {
    /// A thread writes and syncs.
    Queue { jobs: mpsc::Sender<Job>, writer: JoinHandle<()> },
    /// Written where it is given, not synced. Nothing is there any more once a write has failed.
    Here(Option<Writer>),
}

/// The log could not take an entry: its writer is gone.
#[derive(Debug)]
pub(crate) struct Gone;

impl Log {
    /// Takes an entry.
    pub(crate) fn append(&mut self, entry: &Entry) -> Result<(), Gone> {
        let mut line = serde_json::to_vec(entry).map_err(|_| Gone)?;
        line.push(b'\n');
        self.take(Job::Append(entry.seq, line))
    }

    /// Removes everything before it.
    pub(crate) fn truncate(&mut self, seq: u64) -> Result<(), Gone> {
        self.take(Job::Truncate(seq))
    }

    fn take(&mut self, job: Job) -> Result<(), Gone> {
        match self {
            Log::Queue { jobs, .. } => jobs.send(job).map_err(|_| Gone),
            Log::Here(writer) => {
                let written = writer.as_mut().is_some_and(|writer| writer.write(std::iter::once(job)));
                if written {
                    return Ok(());
                }
                *writer = None;
                Err(Gone)
            }
        }
    }

    /// Writes what is queued, then lets go of the directory.
    pub(crate) fn close(self) {
        if let Log::Queue { jobs, writer } = self {
            drop(jobs);
            let _ = writer.join();
        }
    }
}

/// What opening the log found.
pub(crate) struct Opened {
    pub log: Log,
    pub durable: watch::Receiver<Durable>,
    pub after: u64,
    pub entries: Vec<Entry>,
}

/// Locks the directory, reads the log, mends a torn last line and starts the writer.
pub(crate) fn open(dir: &Path, fsync: bool) -> Result<Opened, Error> {
    let data = |path: &Path| {
        let path = path.to_path_buf();
        move |source| Error::Data { path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(data(dir))?;
    let open = |path: &Path| {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
    };
    let lock_path = dir.join(LOCK);
    let lock = open(&lock_path).map_err(data(&lock_path))?;
    // A process that is just being started holds copies of this one's files until it runs, and so the lock of a
    // provider that has ended.
    let mut locked = lock.try_lock();
    for _ in 0..LOCK_TRIES {
        if !matches!(locked, Err(std::fs::TryLockError::WouldBlock)) {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
        locked = lock.try_lock();
    }
    match locked {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => return Err(Error::Locked(dir.to_path_buf())),
        Err(std::fs::TryLockError::Error(source)) => return Err(Error::Data { path: lock_path, source }),
    }

    let path = dir.join(FILE);
    let mut file = open(&path).map_err(data(&path))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(data(&path))?;
    let (head, entries, good) = parse(&bytes, &path)?;
    let mend = |file: &mut File| -> std::io::Result<()> {
        if (good as u64) < bytes.len() as u64 {
            tracing::warn!(bytes = bytes.len() - good, "dropped a torn last line, which was never answered");
            file.set_len(good as u64)?;
        }
        file.seek(SeekFrom::End(0))?;
        if head.is_none() {
            file.write_all(&Head::line(0))?;
        }
        file.sync_all()?;
        File::open(dir)?.sync_all()
    };
    mend(&mut file).map_err(data(&path))?;

    let after = head.map_or(0, |head| head.after);
    let upto = entries.last().map_or(after, |entry| entry.seq);
    let (log, durable) = start(file, lock, fsync, upto).map_err(data(dir))?;
    Ok(Opened { log, durable, after, entries })
}

/// Starts writing to an open file, everything up to `upto` being on disk.
fn start(file: File, lock: File, fsync: bool, upto: u64) -> std::io::Result<(Log, watch::Receiver<Durable>)> {
    let (publish, durable) = watch::channel(Durable { upto, failed: false });
    let mut writer = Writer { file, _lock: lock, fsync, publish };
    if !fsync {
        return Ok((Log::Here(Some(writer)), durable));
    }
    let (jobs, queue) = mpsc::channel();
    let writer = std::thread::Builder::new().name("sandbox-log".into()).spawn(move || writer.run(&queue))?;
    Ok((Log::Queue { jobs, writer }, durable))
}

/// A log on a device that is always full.
#[cfg(test)]
pub(crate) fn full(fsync: bool) -> std::io::Result<(Log, watch::Receiver<Durable>)> {
    let device = || OpenOptions::new().write(true).open("/dev/full");
    start(device()?, device()?, fsync, 0)
}

/// The head, the entries, and the length of the good part.
fn parse(bytes: &[u8], path: &Path) -> Result<(Option<Head>, Vec<Entry>, usize), Error> {
    let (mut head, mut entries, mut good) = (None::<Head>, Vec::<Entry>::new(), 0);
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let corrupt = |reason: String| Error::Corrupt { path: path.to_path_buf(), line: number + 1, reason };
        let whole = line.ends_with(b"\n");
        let last = good + line.len() == bytes.len();
        if !whole {
            // Written without its end: the process died in the write, before anything was answered.
            break;
        }
        if head.is_none() {
            let read: Head = serde_json::from_slice(line).map_err(|error| corrupt(error.to_string()))?;
            if read.log != "counterfoil-sandbox" || read.format != FORMAT {
                return Err(corrupt(format!(
                    "format {} of {:?}, this program reads {FORMAT}",
                    read.format, read.log
                )));
            }
            head = Some(read);
        } else {
            let expected =
                entries.last().map(|entry| entry.seq).or(head.as_ref().map(|h| h.after)).unwrap_or(0) + 1;
            match serde_json::from_slice::<Entry>(line) {
                Ok(entry) if entry.seq == expected => entries.push(entry),
                Ok(entry) => return Err(corrupt(format!("number {} where {expected} belongs", entry.seq))),
                Err(_) if last => break,
                Err(error) => return Err(corrupt(error.to_string())),
            }
        }
        good += line.len();
    }
    Ok((head, entries, good))
}

#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    /// Held as long as the writer lives.
    _lock: File,
    fsync: bool,
    publish: watch::Sender<Durable>,
}

impl Writer {
    fn run(&mut self, queue: &mpsc::Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            if !self.write(std::iter::once(first).chain(queue.try_iter())) {
                return;
            }
        }
    }

    /// Writes a batch and publishes how far that went. Whether it could be written.
    fn write(&mut self, jobs: impl Iterator<Item = Job>) -> bool {
        match self.batch(jobs) {
            Ok(upto) => {
                self.publish.send_modify(|durable| durable.upto = upto);
                true
            }
            Err(error) => {
                tracing::error!(%error, "the log could not be written; nothing more is answered");
                self.publish.send_modify(|durable| durable.failed = true);
                false
            }
        }
    }

    fn batch(&mut self, jobs: impl Iterator<Item = Job>) -> std::io::Result<u64> {
        let mut buffer = Vec::new();
        let mut upto = 0;
        for job in jobs {
            match job {
                Job::Append(seq, line) if buffer.is_empty() => (buffer, upto) = (line, seq),
                Job::Append(seq, line) => {
                    buffer.extend_from_slice(&line);
                    upto = seq;
                }
                Job::Truncate(seq) => {
                    buffer = Head::line(seq);
                    upto = seq;
                    self.file.set_len(0)?;
                    self.file.seek(SeekFrom::Start(0))?;
                }
            }
        }
        self.file.write_all(&buffer)?;
        if self.fsync {
            self.file.sync_data()?;
        }
        Ok(upto)
    }
}
