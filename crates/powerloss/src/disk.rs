//! What may be on the disk after a power cut.

use crate::{Event, Files, Name};
use std::collections::BTreeMap;

/// What becomes of changes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All are lost.
    All,
    /// None is.
    Nothing,
    /// All but the last are kept; of the last only every second sector.
    LastTorn,
    /// All lengths are kept, but what was written beyond the synced ends is zeros.
    Zeros,
    /// By lot, from this seed: each change is lost, kept, or kept in part, sector by sector.
    Some(u64),
}

#[derive(Clone, Debug)]
enum Change {
    Create,
    Write { at: u64, data: Vec<u8> },
    Resize(u64),
    Delete,
}

impl Change {
    /// Synced with the directory, not with the file.
    fn is_of_directory(&self) -> bool {
        matches!(self, Change::Create | Change::Delete)
    }
}

#[derive(Clone, Debug)]
struct Pending {
    change: Change,
    /// A later sync made it durable, but an earlier change is still open, because its own sync failed.
    sure: bool,
    /// Its sync failed: no other makes it durable.
    stuck: bool,
}

#[derive(Clone, Debug, Default)]
struct File {
    synced: Option<Vec<u8>>,
    pending: Vec<Pending>,
}

/// The state of the disk, event by event.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    files: BTreeMap<Name, File>,
    beside: Files,
}

/// A small generator of numbers (SplitMix64): lots that can be drawn again.
struct Lots(u64);

impl Lots {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn resize(file: &mut Option<Vec<u8>>, len: u64) {
    if let Some(bytes) = file {
        bytes.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
    }
}

fn write(file: &mut Option<Vec<u8>>, at: u64, data: &[u8]) {
    let Some(bytes) = file else { return };
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let end = at.saturating_add(data.len());
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(data);
}

fn apply(file: &mut Option<Vec<u8>>, change: &Change) {
    match change {
        Change::Create => {
            file.get_or_insert_with(Vec::new);
        }
        Change::Write { at, data } => write(file, *at, data),
        Change::Resize(len) => resize(file, *len),
        Change::Delete => *file = None,
    }
}

/// Writes those sectors of `data` that `keep` says.
fn write_sectors(
    file: &mut Option<Vec<u8>>,
    at: u64,
    data: &[u8],
    sector: u64,
    mut keep: impl FnMut() -> bool,
) {
    let mut from = 0;
    while from < data.len() {
        let here = at + from as u64;
        let room = usize::try_from(sector - here % sector).unwrap_or(usize::MAX);
        let to = data.len().min(from + room);
        if keep() {
            write(file, here, &data[from..to]);
        }
        from = to;
    }
}

impl Disk {
    /// A disk on which `files` are durable.
    #[must_use]
    pub fn new(files: &Files) -> Disk {
        let file = |bytes: &Vec<u8>| File { synced: Some(bytes.clone()), pending: Vec::new() };
        Disk { files: files.iter().map(|(n, b)| (n.clone(), file(b))).collect(), beside: Files::new() }
    }

    fn file(&mut self, name: &Name) -> &mut File {
        self.files.entry(name.clone()).or_default()
    }

    fn change(&mut self, name: &Name, change: Change) {
        self.file(name).pending.push(Pending { change, sure: false, stuck: false });
    }

    /// Goes one event further.
    pub fn step(&mut self, event: &Event) {
        match event {
            Event::Create(file) => self.change(file, Change::Create),
            Event::Write { file, at, data } => {
                self.change(file, Change::Write { at: *at, data: data.clone() })
            }
            Event::Resize { file, len } => self.change(file, Change::Resize(*len)),
            Event::Delete { file, durable } => {
                if *durable {
                    *self.file(file) = File::default();
                } else {
                    self.change(file, Change::Delete);
                }
            }
            Event::Sync { file, ok: true } => self.file(file).sync(),
            Event::Sync { file, ok: false } => {
                self.file(file).pending.iter_mut().filter(|p| !p.sure).for_each(|p| p.stuck = true);
            }
            Event::SyncDir => self.files.values_mut().for_each(File::sync_entry),
            Event::Beside(files) => self.beside.clone_from(files),
            Event::Mark(_) => {}
        }
    }

    /// Whether a cut now could lose anything.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.files.values().all(|f| f.pending.iter().all(|p| p.sure))
    }

    /// The files after a cut now.
    #[must_use]
    pub fn after(&self, loss: Loss) -> Files {
        let mut left = self.beside.clone();
        for (name, file) in &self.files {
            if let Some(bytes) = file.after(name, loss) {
                left.insert(name.clone(), bytes);
            }
        }
        left
    }
}

impl File {
    fn sync(&mut self) {
        for p in self.pending.iter_mut().filter(|p| !p.change.is_of_directory()) {
            p.sure |= !p.stuck;
        }
        self.settle();
    }

    fn sync_entry(&mut self) {
        self.pending.iter_mut().filter(|p| p.change.is_of_directory()).for_each(|p| p.sure = true);
        self.settle();
    }

    fn settle(&mut self) {
        // What lies behind an open change has to stay in its order.
        let open = self.pending.iter().position(|p| !p.sure).unwrap_or(self.pending.len());
        for p in self.pending.drain(..open) {
            apply(&mut self.synced, &p.change);
        }
    }

    fn after(&self, name: &Name, loss: Loss) -> Option<Vec<u8>> {
        let mut file = self.synced.clone();
        let end = file.as_ref().map_or(0, |b| b.len() as u64);
        let last = self.pending.iter().rposition(|p| !p.sure);
        let mut lots = Lots(match loss {
            // Each file has lots of its own.
            Loss::Some(seed) => name.bytes().fold(seed, |s, b| s.wrapping_mul(31).wrapping_add(b.into())),
            _ => 0,
        });
        let sector = if lots.draw().is_multiple_of(2) { 512 } else { 4096 };
        for (n, p) in self.pending.iter().enumerate() {
            if p.sure {
                apply(&mut file, &p.change);
                continue;
            }
            match (loss, &p.change) {
                (Loss::All, _) => {}
                (Loss::LastTorn, Change::Write { at, data }) if Some(n) == last => {
                    let mut keep = false;
                    let every_second = || {
                        keep = !keep;
                        keep
                    };
                    write_sectors(&mut file, *at, data, 512, every_second);
                }
                (Loss::Nothing | Loss::LastTorn, change) => apply(&mut file, change),
                (Loss::Zeros, Change::Write { at, data }) => {
                    let beyond =
                        usize::try_from(end.saturating_sub(*at)).unwrap_or(usize::MAX).min(data.len());
                    let mut data = data.clone();
                    data[beyond..].fill(0);
                    write(&mut file, *at, &data);
                }
                (Loss::Zeros, change) => apply(&mut file, change),
                (Loss::Some(_), change) => match (lots.draw() % 3, change) {
                    (0, _) => {}
                    (1, Change::Write { at, data }) => {
                        write_sectors(&mut file, *at, data, sector, || lots.draw().is_multiple_of(2));
                    }
                    (_, change) => apply(&mut file, change),
                },
            }
        }
        file
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn wrote(at: u64, byte: u8, len: usize) -> Event {
        Event::Write { file: "f".into(), at, data: vec![byte; len] }
    }

    fn disk(events: &[Event]) -> Disk {
        let mut d = Disk::default();
        events.iter().for_each(|e| d.step(e));
        d
    }

    fn content(d: &Disk, loss: Loss) -> Option<Vec<u8>> {
        d.after(loss).remove("f")
    }

    const OK: fn() -> Event = || Event::Sync { file: "f".into(), ok: true };
    const FAILED: fn() -> Event = || Event::Sync { file: "f".into(), ok: false };

    #[test]
    fn what_is_synced_stays() {
        let d = disk(&[Event::Create("f".into()), wrote(0, 1, 4), OK(), Event::SyncDir, wrote(2, 2, 4)]);
        assert_eq!(content(&d, Loss::All).unwrap(), [1, 1, 1, 1]);
        assert_eq!(content(&d, Loss::Nothing).unwrap(), [1, 1, 2, 2, 2, 2]);
        assert_eq!(content(&d, Loss::Zeros).unwrap(), [1, 1, 2, 2, 0, 0]);
        assert!(!d.is_settled());
        let unentered = disk(&[Event::Create("f".into()), wrote(0, 1, 4), OK()]);
        assert_eq!(content(&unentered, Loss::All), None);
        assert_eq!(content(&unentered, Loss::Nothing).unwrap(), [1, 1, 1, 1]);
    }

    #[test]
    fn sectors_are_torn_apart() {
        let d =
            disk(&[Event::Create("f".into()), wrote(0, 1, 2048), OK(), Event::SyncDir, wrote(256, 2, 1024)]);
        let torn = content(&d, Loss::LastTorn).unwrap();
        // Sectors of the write: 256..512, 512..1024, 1024..1280.
        let (a, b, c) = (torn[256], torn[600], torn[1100]);
        assert!(a != b || b != c, "{a} {b} {c}");
        assert_eq!((torn[255], torn[1280], torn.len()), (1, 1, 2048));
        let seen: std::collections::BTreeSet<_> =
            (0..64).map(|seed| content(&d, Loss::Some(seed)).unwrap()).collect();
        assert!(seen.len() > 4, "{}", seen.len());
    }

    #[test]
    fn a_failed_sync_is_not_made_good_by_the_next() {
        let d = disk(&[
            Event::Create("f".into()),
            Event::SyncDir,
            wrote(0, 1, 4),
            OK(),
            wrote(0, 2, 2),
            FAILED(),
            wrote(2, 3, 2),
            OK(),
        ]);
        assert_eq!(content(&d, Loss::All).unwrap(), [1, 1, 3, 3]);
        assert_eq!(content(&d, Loss::Nothing).unwrap(), [2, 2, 3, 3]);
        let gone = disk(&[
            Event::Create("f".into()),
            OK(),
            Event::SyncDir,
            Event::Delete { file: "f".into(), durable: false },
        ]);
        assert_eq!((content(&gone, Loss::All), content(&gone, Loss::Nothing)), (Some(vec![]), None));
        let gone = disk(&[
            Event::Create("f".into()),
            OK(),
            Event::SyncDir,
            Event::Delete { file: "f".into(), durable: true },
        ]);
        assert_eq!(content(&gone, Loss::All), None);
    }
}
