//! The two indexes at random places: by key and by slot.
//!
//! The entries of a new row stay in memory for some time, and go to their tables many at once and in order, so that those
//! whose places are on one page are written with it. One by one, in a large ledger, each would have a page of its own to
//! be written, into the log and from there into the database.
//!
//! The rows say themselves which of them are not in the tables yet: those that come after `meta.indexed`. A start reads
//! them again, so nothing in memory has to outlive the process, and no step has to happen at a certain time. A row
//! is pruned only once its entries are in the tables.

use rusqlite::{Connection, OptionalExtension as _, Result, params};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Rows after which their entries go to the tables.
pub(crate) const ROWS: usize = 32_768;
/// Entries that go there for each creation, so that those of [`ROWS`] rows are there after half as many more.
const A_CREATION: usize = 4;

type Hash = [u8; 16];

/// What leads from a hash to its row.
#[derive(Clone, Copy)]
pub(crate) enum By {
    Key,
    Slot,
}

impl By {
    /// The row, as its table knows it.
    const fn row(self) -> &'static str {
        match self {
            By::Key => "SELECT op_seq FROM op_by_key WHERE key_hash = ?1",
            By::Slot => "SELECT op_seq FROM slot WHERE slot_hash = ?1",
        }
    }
    /// A key is its row's for good; a slot is its newest row's.
    const fn enter(self) -> &'static str {
        match self {
            By::Key => {
                "INSERT INTO op_by_key (key_hash, op_seq) VALUES (?1, ?2) ON CONFLICT (key_hash) DO NOTHING"
            }
            By::Slot => {
                "INSERT INTO slot (slot_hash, op_seq) VALUES (?1, ?2) ON CONFLICT (slot_hash) DO UPDATE SET op_seq = excluded.op_seq"
            }
        }
    }
}

/// Entries of rows one after the other; of a slot its newest.
#[derive(Default)]
struct Young {
    keys: HashMap<Hash, i64>,
    slots: HashMap<Hash, i64>,
    rows: usize,
    /// The last of the rows.
    last: i64,
}

impl Young {
    fn add(&mut self, seq: i64, key: Option<Hash>, slot: Hash) {
        self.keys.extend(key.map(|k| (k, seq)));
        self.slots.insert(slot, seq);
        self.rows += 1;
        self.last = seq;
    }
    fn append(&mut self, next: Young) {
        self.keys.extend(next.keys);
        self.slots.extend(next.slots);
        self.rows += next.rows;
        self.last = self.last.max(next.last);
    }
    fn row(&self, by: By, hash: &Hash) -> Option<i64> {
        match by {
            By::Key => self.keys.get(hash).copied(),
            By::Slot => self.slots.get(hash).copied(),
        }
    }
}

/// Entries on their way to the tables, in the order of their places.
struct Leaving {
    rows: Arc<Young>,
    keys: Vec<(Hash, i64)>,
    slots: Vec<(Hash, i64)>,
}

impl Leaving {
    fn of(rows: Arc<Young>) -> Leaving {
        let sorted = |entries: &HashMap<Hash, i64>| {
            let mut sorted: Vec<_> = entries.iter().map(|(hash, seq)| (*hash, *seq)).collect();
            sorted.sort_unstable();
            sorted
        };
        Leaving { keys: sorted(&rows.keys), slots: sorted(&rows.slots), rows }
    }
    fn len(&self) -> usize {
        self.keys.len() + self.slots.len()
    }
    /// The `n`th entry: first the keys, then the slots.
    fn entry(&self, n: usize) -> Option<(By, &(Hash, i64))> {
        let slot = || Some((By::Slot, self.slots.get(n.checked_sub(self.keys.len())?)?));
        self.keys.get(n).map(|e| (By::Key, e)).or_else(slot)
    }
}

#[derive(Default)]
struct Parts {
    young: Young,
    leaving: Option<Arc<Young>>,
}

/// What is committed and not in the tables yet. Whoever finds nothing here asks the tables, after that: entries are there
/// before they go from here. Whoever finds a row here looks whether it is still that row.
#[derive(Default)]
pub(crate) struct Unindexed(RwLock<Parts>);

impl Unindexed {
    pub fn row(&self, by: By, hash: &Hash) -> Option<i64> {
        let parts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        parts.young.row(by, hash).or_else(|| parts.leaving.as_ref()?.row(by, hash))
    }

    /// One row, whose key and slot have the same hash.
    #[cfg(test)]
    pub fn of(seq: i64, hash: Hash) -> Unindexed {
        let unindexed = Unindexed::default();
        unindexed.change(|parts| parts.young.add(seq, Some(hash), hash));
        unindexed
    }

    fn change(&self, change: impl FnOnce(&mut Parts)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// How far the entries have got, and up to which row all are in the tables.
#[derive(Clone, Copy, PartialEq)]
struct Reached {
    entries: usize,
    indexed: i64,
}

/// The indexes as the writer's transaction sees and changes them.
pub(crate) struct Index {
    unindexed: Arc<Unindexed>,
    /// Rows after which entries leave for the tables.
    worth: usize,
    /// Those that do.
    leaving: Option<Leaving>,
    /// Of the transaction.
    fresh: Young,
    reached: Reached,
    /// After the last commit.
    committed: Reached,
}

impl Index {
    /// Reads what a former process left to be entered.
    pub fn load(db: &Connection, worth: usize) -> Result<Index> {
        let indexed = db.query_row("SELECT indexed FROM meta", [], |r| r.get(0))?;
        let mut young = Young::default();
        let mut rows = db.prepare("SELECT seq, key_hash, slot_hash FROM op WHERE seq > ?1 ORDER BY seq")?;
        let mut rows = rows.query([indexed])?;
        while let Some(r) = rows.next()? {
            young.add(r.get(0)?, r.get(1)?, r.get(2)?);
        }
        let reached = Reached { entries: 0, indexed };
        let unindexed = Arc::new(Unindexed(RwLock::new(Parts { young, leaving: None })));
        Ok(Index { unindexed, worth, leaving: None, fresh: Young::default(), reached, committed: reached })
    }

    pub fn unindexed(&self) -> Arc<Unindexed> {
        self.unindexed.clone()
    }

    /// The row of a key, or of a slot its newest.
    pub fn row(&self, db: &Connection, by: By, hash: &Hash) -> Result<Option<i64>> {
        let young = || {
            let parts = self.unindexed.0.read().unwrap_or_else(PoisonError::into_inner);
            parts.young.row(by, hash)
        };
        // Once all of them are in the tables their rows may be pruned, in this very transaction.
        let leaving = || self.leaving.as_ref().filter(|l| self.reached.entries < l.len())?.rows.row(by, hash);
        match self.fresh.row(by, hash).or_else(young).or_else(leaving) {
            Some(seq) => Ok(Some(seq)),
            None => db.prepare_cached(by.row())?.query_row([hash], |r| r.get(0)).optional(),
        }
    }

    /// A row was made.
    pub fn add(&mut self, seq: i64, key: Option<Hash>, slot: Hash) {
        self.fresh.add(seq, key, slot);
    }

    /// Whether the entries of a row are in the tables, so that it may be pruned.
    pub fn has(&self, seq: i64) -> bool {
        seq <= self.reached.indexed
    }

    /// A part of what leaves goes to the tables, in proportion to what the transaction created.
    pub fn move_on(&mut self, db: &Connection) -> Result<()> {
        self.enter(db, self.fresh.rows.saturating_mul(A_CREATION)).map(|_| ())
    }

    /// Rows are to be pruned that the tables don't have yet: a part of what is in memory goes there, whether it is worth it
    /// or not. Whether the next transaction has more to do.
    pub fn hurry(&mut self, db: &Connection, entries: usize) -> Result<bool> {
        if self.leaving.is_none() {
            self.leave();
        }
        Ok(self.enter(db, entries)? > 0 || self.reached != self.committed || self.fresh.rows > 0)
    }

    fn enter(&mut self, db: &Connection, most: usize) -> Result<usize> {
        let Some(leaving) = &self.leaving else { return Ok(0) };
        let from = self.reached.entries;
        if from == leaving.len() {
            return Ok(0);
        }
        while self.reached.entries - from < most
            && let Some((by, (hash, seq))) = leaving.entry(self.reached.entries)
        {
            db.prepare_cached(by.enter())?.execute(params![hash, seq])?;
            self.reached.entries += 1;
        }
        if self.reached.entries == leaving.len() {
            self.reached.indexed = leaving.rows.last;
            self.save(db)?;
        }
        Ok(self.reached.entries - from)
    }

    fn save(&self, db: &Connection) -> Result<()> {
        db.prepare_cached("UPDATE meta SET indexed = ?1")?.execute([self.reached.indexed]).map(|_| ())
    }

    /// Rows were removed. A row to come may have the number of the last one that was, and is not in the tables then.
    pub fn removed(&mut self, db: &Connection) -> Result<()> {
        let last: i64 =
            db.prepare_cached("SELECT coalesce(max(seq), 0) FROM op")?.query_row([], |r| r.get(0))?;
        if last < self.reached.indexed {
            self.reached.indexed = last;
            self.save(db)?;
        }
        Ok(())
    }

    /// What the transaction did is durable: others may see it. Before anybody is told of it.
    pub fn committed(&mut self) {
        let fresh = std::mem::take(&mut self.fresh);
        let arrived = self.leaving.take_if(|l| self.reached.entries == l.len()).is_some();
        if arrived {
            self.reached.entries = 0;
        }
        self.committed = self.reached;
        let mut rows = 0;
        self.unindexed.change(|parts| {
            parts.young.append(fresh);
            if arrived {
                parts.leaving = None;
            }
            rows = parts.young.rows;
        });
        if self.leaving.is_none() && rows >= self.worth {
            self.leave();
        }
    }

    /// The transaction changed nothing.
    pub fn rolled_back(&mut self) {
        self.fresh = Young::default();
        self.reached = self.committed;
    }

    /// What is committed leaves for the tables.
    fn leave(&mut self) {
        let mut rows = Arc::default();
        self.unindexed.change(|parts| {
            rows = Arc::new(std::mem::take(&mut parts.young));
            parts.leaving = Some(rows.clone());
        });
        self.leaving = Some(Leaving::of(rows));
    }
}
