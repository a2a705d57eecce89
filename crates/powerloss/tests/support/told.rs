//! What was asked of the store and what it answered, and whether a directory keeps to it.
//!
//! Everything the store keeps is a *cell* (an operation with its payloads, an API key, a session) that goes through
//! states, one write after another. A write that was begun may be there after a cut; one that was answered `Done`
//! must be. So a cell is in the state of its newest acknowledged write or a later one that was begun, and in
//! nothing else: that is also what *nothing half* means.

use super::{config, directory, lay, open};
use counterfoil_powerloss::{Event, Files, Recorder};
use ledger::store::{BlobKind, Found, Query, Store, key_hash_of, slot_hash_of};
use ledger::words::{Epoch, OperationId};
use ledger::{Blob, Operation};
use ledger_sqlite::{Clock, Config};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What a cell is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    Operation(OperationId),
    ApiKey(String),
    Session(String),
    /// The boot: its states are epochs.
    Boot,
}

/// The marks in the record: one for each beginning and each answer.
#[derive(Clone, Debug)]
enum Mark {
    Begun(Cell, usize),
    Done(Cell, usize),
    Refused(Cell, usize),
}

#[derive(Default)]
struct Inner {
    /// The states of each cell, in order; the first is `absent`.
    states: BTreeMap<Cell, Vec<String>>,
    marks: Vec<Mark>,
}

/// Keeps account of a workload.
pub struct Told {
    recorder: Arc<Recorder>,
    inner: Mutex<Inner>,
}

const ABSENT: &str = "absent";

impl Told {
    pub fn new(recorder: Arc<Recorder>) -> Arc<Told> {
        Arc::new(Told { recorder, inner: Mutex::default() })
    }

    fn mark(&self, mark: Mark) {
        let n = {
            let mut inner = self.inner.lock().unwrap();
            inner.marks.push(mark);
            inner.marks.len() - 1
        };
        self.recorder.mark(n as u64);
    }

    /// A write that brings `cell` into `state` is about to be asked for. Returns the state's number.
    pub fn begun(&self, cell: &Cell, state: String) -> usize {
        let n = {
            let mut inner = self.inner.lock().unwrap();
            let states = inner.states.entry(cell.clone()).or_insert_with(|| vec![ABSENT.to_owned()]);
            states.push(state);
            states.len() - 1
        };
        self.mark(Mark::Begun(cell.clone(), n));
        n
    }

    /// It was answered `Done`.
    pub fn done(&self, cell: &Cell, n: usize) {
        self.mark(Mark::Done(cell.clone(), n));
    }

    /// It was refused, with the word that nothing was written.
    pub fn refused(&self, cell: &Cell, n: usize) {
        self.mark(Mark::Refused(cell.clone(), n));
    }

    /// What is known after the first `log` events.
    pub fn at(&self, log: &[Event]) -> Known {
        let inner = self.inner.lock().unwrap();
        let mut known = Known { cells: BTreeMap::new() };
        for event in log {
            let Event::Mark(n) = event else { continue };
            match &inner.marks[usize::try_from(*n).unwrap()] {
                Mark::Begun(cell, n) => known.cells.entry(cell.clone()).or_insert((0, 0)).1 = *n,
                Mark::Done(cell, n) => known.cells.entry(cell.clone()).or_insert((0, 0)).0 = *n,
                // A cell's writes follow each other: what counts is the one before.
                Mark::Refused(cell, n) => known.cells.entry(cell.clone()).or_insert((0, 0)).1 = n - 1,
            }
        }
        known
    }
}

/// For each cell the newest state that was acknowledged and the newest that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    cells: BTreeMap<Cell, (usize, usize)>,
}

/// An operation's state: the record and its payloads.
pub fn state_of(op: &Operation, blobs: &[Blob]) -> String {
    let mut blobs: Vec<_> = blobs.iter().map(|b| (b.kind, b.data.len(), sum(&b.data))).collect();
    blobs.sort();
    format!("v{} {op:?} {blobs:?}", op.version)
}

/// A pruned one's.
pub const PRUNED: &str = "pruned";

fn sum(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |s, b| (s ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

const KINDS: [BlobKind; 5] =
    [BlobKind::Arguments, BlobKind::Intent(0), BlobKind::Receipt(0), BlobKind::Receipt(1), BlobKind::Result];

async fn read(s: &dyn Store, cell: &Cell) -> Result<String, String> {
    let failed = |e: ledger::StoreError| format!("{cell:?} can't be read: {e}");
    match cell {
        Cell::Operation(id) => match s.by_id(*id).await.map_err(failed)? {
            None => Ok(ABSENT.into()),
            Some(Found::Tombstone(_)) => Ok(PRUNED.into()),
            Some(Found::Operation(op)) => {
                let mut blobs = Vec::new();
                for kind in KINDS {
                    if let Some(data) = s.blob(*id, kind).await.map_err(failed)? {
                        blobs.push(Blob { kind, data });
                    }
                }
                if let Some(k) = key_hash_of(&op) {
                    let by_key = s.by_key(&k).await.map_err(failed)?;
                    if !matches!(&by_key, Some(Found::Operation(o)) if o == &op) {
                        return Err(format!("{id} is not found by its key: {by_key:?}"));
                    }
                }
                if s.by_slot(&slot_hash_of(&op)).await.map_err(failed)?.is_none() {
                    return Err(format!("the slot of {id} is empty"));
                }
                Ok(state_of(&op, &blobs))
            }
        },
        Cell::ApiKey(id) => {
            let keys = s.api_keys().await.map_err(failed)?;
            Ok(keys.iter().find(|k| k.id == *id).map_or(ABSENT.into(), |k| format!("{k:?}")))
        }
        Cell::Session(id) => {
            let session = s.session(id).await.map_err(failed)?;
            Ok(session.map_or(ABSENT.into(), |s| format!("{s:?}")))
        }
        Cell::Boot => Ok(format!("{:?}", s.epoch())),
    }
}

impl Known {
    /// How many acknowledged writes it stands on.
    pub fn acknowledged(&self) -> usize {
        self.cells.values().map(|(done, _)| done).sum()
    }

    /// With one more start begun.
    pub fn and_a_start(mut self) -> Known {
        self.cells.entry(Cell::Boot).or_insert((0, 0)).1 += 1;
        self
    }

    /// Whether the files are what they may be after a cut at that moment: opens them with the ordinary store.
    pub fn check(&self, told: &Told, files: &Files) -> Result<(), String> {
        let dir = directory();
        lay(dir.path(), files);
        // A wall clock that was reset: the ledger's time goes on from what is recorded.
        let config = Config { clock: Some(Arc::new(Reset)), ..config(dir.path()) };
        let (store, _) = open(config).map_err(|e| format!("it can't be opened: {e}"))?;
        let checked = super::block_on(self.kept(told, &*store));
        let closed = super::block_on(store.close());
        drop(store);
        checked?;
        closed.map_err(|e| format!("it can't be closed: {e}"))?;
        sound(&dir.path().join("ledger.db"))
    }

    async fn kept(&self, told: &Told, s: &dyn Store) -> Result<(), String> {
        let mut found = BTreeMap::new();
        for cell in self.cells.keys() {
            found.insert(cell.clone(), read(s, cell).await?);
        }
        for (cell, (done, begun)) in &self.cells {
            let found = &found[cell];
            let states = told.inner.lock().unwrap().states[cell].clone();
            if *cell == Cell::Boot {
                // This start is one more than the newest that was durable.
                let least = Epoch(*done as u64 + 1);
                let most = Epoch(*begun as u64 + 1);
                if s.epoch() < least || s.epoch() > most {
                    return Err(format!("{:?} begins where {least:?} to {most:?} may", s.epoch()));
                }
                continue;
            }
            if !states[*done..=*begun].contains(found) {
                let at = states.iter().position(|s| s == found);
                return Err(format!(
                    "{cell:?}: state {done} was acknowledged and {begun} begun, but {} is there: {found:.300}",
                    at.map_or("none of its states".into(), |n| format!("state {n}"))
                ));
            }
        }
        let list = s
            .list(&Query { limit: usize::MAX, ..Query::default() })
            .await
            .map_err(|e| format!("no list: {e}"))?;
        if let Some(op) = list.iter().find(|op| !self.cells.contains_key(&Cell::Operation(op.id))) {
            return Err(format!("{} was never opened", op.id));
        }
        let counts = s.counts().await.map_err(|e| format!("no counts: {e}"))?;
        let mut recount = ledger::store::Counts::default();
        for op in &list {
            *recount.execution.entry(op.execution.word().into()).or_default() += 1;
            *recount.delivery.entry(op.delivery.state.word().into()).or_default() += 1;
        }
        if counts != recount {
            return Err(format!("{counts:?} are counted, {recount:?} are there"));
        }
        if s.is_held() {
            return Err("it takes itself for a restored one".into());
        }
        if list.iter().any(|op| op.delivery.at > s.now() || op.created_at > s.now()) {
            return Err("its time begins before a recorded moment".into());
        }
        Ok(())
    }
}

struct Reset;

impl Clock for Reset {
    fn wall(&self) -> i64 {
        0
    }
    fn elapsed(&self) -> i64 {
        0
    }
}

/// SQLite's own check of every page, index and row.
pub fn sound(path: &std::path::Path) -> Result<(), String> {
    let db = rusqlite::Connection::open(path).map_err(|e| e.to_string())?;
    let said: String = db
        .query_row("PRAGMA integrity_check", [], |r| r.get(0))
        .map_err(|e| format!("no integrity check: {e}"))?;
    if said == "ok" { Ok(()) } else { Err(format!("the database is damaged: {said}")) }
}
