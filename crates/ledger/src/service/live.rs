//! Who waits for what in this process. Nothing here is a fact: it can be lost at any time, and the ledger
//! is read again.

use crate::env::Abort;
use crate::operation::Operation;
use crate::words::{Epoch, Millis, OperationId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// How far an attempt is, for the caller's progress notifications.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Grows.
    pub done: f64,
    /// The end, if known.
    pub total: Option<f64>,
    /// What is going on.
    pub message: String,
}

/// What changes while one waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct News {
    /// Counts rings: the record changed.
    pub rings: u64,
    /// How far the attempt is.
    pub progress: Progress,
    /// The final record and result, if they came to be in this process.
    pub outcome: Option<(Arc<Operation>, Arc<[u8]>)>,
}

struct Entry {
    callers: usize,
    watchers: usize,
    /// How many of them hear how far it is.
    hearers: usize,
    attempts: usize,
    /// Until when a caller between two legs counts as here, by the monotonic clock; somebody looks after that.
    lingers: Option<i64>,
    /// Its number, the epoch that it runs under, and how to stop it.
    abort: Option<(u32, Epoch, Abort)>,
    news: watch::Sender<News>,
}

impl Default for Entry {
    fn default() -> Self {
        Entry {
            callers: 0,
            watchers: 0,
            hearers: 0,
            attempts: 0,
            lingers: None,
            abort: None,
            news: watch::Sender::new(News::default()),
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Live {
    entries: Arc<Mutex<BTreeMap<OperationId, Entry>>>,
    /// Attempts running here.
    running: Arc<AtomicUsize>,
}

/// In the order of their ids, so that who is rung first is the same each time.
type Entries = Arc<Mutex<BTreeMap<OperationId, Entry>>>;

fn lock(e: &Entries) -> MutexGuard<'_, BTreeMap<OperationId, Entry>> {
    e.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held while somebody watches an operation; the entry goes with its last holder.
pub(crate) struct Watch {
    entries: Entries,
    id: OperationId,
    caller: bool,
    hears: bool,
    pub news: watch::Receiver<News>,
    /// The rings of which its holder knows.
    pub seen: u64,
}

impl Watch {
    /// It is rung for progress too, from now on. Else progress is only there to be read: it is no reason to wake anybody.
    pub fn hear_progress(&mut self) {
        if !std::mem::replace(&mut self.hears, true)
            && let Some(e) = lock(&self.entries).get_mut(&self.id)
        {
            e.hearers += 1;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut entries = lock(&self.entries);
        if let Some(e) = entries.get_mut(&self.id) {
            e.watchers -= 1;
            e.callers -= usize::from(self.caller);
            e.hearers -= usize::from(self.hears);
            if e.watchers == 0 && e.attempts == 0 {
                entries.remove(&self.id);
            }
        }
    }
}

/// Rings whenever the record of an operation changes, here or (as far as the bus tells) at another replica. What changed
/// is to be read; nothing is lost between two rings, and without a bus one looks again from time to time.
pub struct Changes(pub(super) Watch);

impl Changes {
    /// Resolves when the record may have changed since the last time. May be dropped and called again.
    pub async fn changed(&mut self) {
        let seen = self.0.news.borrow_and_update().rings;
        if std::mem::replace(&mut self.0.seen, seen) != seen {
            return;
        }
        loop {
            if self.0.news.changed().await.is_err() {
                // The sender lives as long as this watch does.
                return std::future::pending().await;
            }
            let rings = self.0.news.borrow_and_update().rings;
            if rings != self.0.seen {
                self.0.seen = rings;
                return;
            }
        }
    }
    /// How far the attempt is, if it runs here.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.0.news.borrow().progress.clone()
    }
}

/// Held while an attempt runs here.
pub(crate) struct Running {
    entries: Entries,
    running: Arc<AtomicUsize>,
    id: OperationId,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        let mut entries = lock(&self.entries);
        if let Some(e) = entries.get_mut(&self.id) {
            e.attempts -= 1;
            if e.watchers == 0 && e.attempts == 0 {
                entries.remove(&self.id);
            }
        }
    }
}

impl Live {
    /// Begins to watch; `caller`: as somebody who waits for the answer.
    pub fn watch(&self, id: OperationId, caller: bool) -> Watch {
        let mut entries = lock(&self.entries);
        let e = entries.entry(id).or_default();
        e.watchers += 1;
        e.callers += usize::from(caller);
        let news = e.news.subscribe();
        let seen = news.borrow().rings;
        Watch { entries: self.entries.clone(), id, caller, hears: false, news, seen }
    }

    /// An attempt begins.
    pub fn start(&self, id: OperationId) -> Running {
        lock(&self.entries).entry(id).or_default().attempts += 1;
        self.running.fetch_add(1, Ordering::Relaxed);
        Running { entries: self.entries.clone(), running: self.running.clone(), id }
    }

    /// How to stop the attempt. Of two, the older one is fenced off and stopped at once.
    pub fn abort_with(&self, id: OperationId, attempt: u32, epoch: Epoch, abort: Abort) {
        if let Some(e) = lock(&self.entries).get_mut(&id) {
            match &e.abort {
                Some((newer, ..)) if *newer > attempt => abort.abort(),
                _ => {
                    if let Some((.., older)) = e.abort.replace((attempt, epoch, abort)) {
                        older.abort();
                    }
                }
            }
        }
    }

    /// Stops attempts up to this number: their fence is gone.
    pub fn stop(&self, id: OperationId, up_to: u32) {
        if let Some(e) = lock(&self.entries).get_mut(&id)
            && let Some((.., a)) = e.abort.take_if(|(n, ..)| *n <= up_to)
        {
            a.abort();
        }
    }

    /// Stops what began under another epoch: its fence is gone. Who waits for it looks at the record. How many it were.
    pub fn stop_all_but(&self, epoch: Epoch) -> usize {
        let mut stopped = 0;
        for e in lock(&self.entries).values_mut() {
            if let Some((.., a)) = e.abort.take_if(|(_, of, _)| *of != epoch) {
                a.abort();
                stopped += 1;
                e.news.send_modify(|n| n.rings += 1);
            }
        }
        stopped
    }

    /// Between two legs a caller counts as here until then. Says whether somebody has to look after that: one does for
    /// all legs of an operation.
    pub fn linger(&self, id: OperationId, until: i64) -> bool {
        let mut entries = lock(&self.entries);
        let Some(e) = entries.get_mut(&id) else { return true };
        let first = e.lingers.is_none();
        e.lingers = e.lingers.max(Some(until));
        first
    }

    /// How long it still does; `None`: not any more, and whoever looked after that is done.
    pub fn lingers(&self, id: OperationId, now: i64) -> Option<Millis> {
        let mut entries = lock(&self.entries);
        let e = entries.get_mut(&id)?;
        let left = e.lingers? - now;
        if left <= 0 {
            e.lingers = None;
            return None;
        }
        Some(Millis(left))
    }

    pub fn has_callers(&self, id: OperationId) -> bool {
        lock(&self.entries).get(&id).is_some_and(|e| e.callers > 0)
    }

    pub fn has_attempt(&self, id: OperationId) -> bool {
        lock(&self.entries).get(&id).is_some_and(|e| e.attempts > 0)
    }

    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// The record changed.
    pub fn ring(&self, id: OperationId) {
        if let Some(e) = lock(&self.entries).get(&id) {
            e.news.send_modify(|n| n.rings += 1);
        }
    }

    /// Any record may have changed.
    pub fn ring_all(&self) {
        for e in lock(&self.entries).values() {
            e.news.send_modify(|n| n.rings += 1);
        }
    }

    pub fn progress(&self, id: OperationId, p: Progress) {
        if let Some(e) = lock(&self.entries).get(&id) {
            e.news.send_if_modified(|n| {
                if p.done >= n.progress.done {
                    n.progress = p;
                }
                e.hearers > 0
            });
        }
    }

    /// The attempt came to a result.
    pub fn outcome(&self, operation: Arc<Operation>, result: Arc<[u8]>) {
        if let Some(e) = lock(&self.entries).get(&operation.id) {
            e.news.send_modify(|n| {
                n.outcome = Some((operation, result));
                n.rings += 1;
            });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn told(done: f64) -> Progress {
        Progress { done, total: None, message: "sent".into() }
    }

    #[test]
    fn progress_wakes_those_who_hear_it_and_is_there_for_all() {
        let (live, id) = (Live::default(), OperationId(1));
        let quiet = live.watch(id, true);
        live.progress(id, told(1.0));
        assert!(!quiet.news.has_changed().unwrap());
        assert_eq!(quiet.news.borrow().progress, told(1.0));

        let mut hears = live.watch(id, true);
        hears.hear_progress();
        hears.hear_progress();
        live.progress(id, told(2.0));
        assert!(hears.news.has_changed().unwrap());

        drop(hears);
        let quiet = live.watch(id, true);
        live.progress(id, told(3.0));
        assert!(!quiet.news.has_changed().unwrap(), "whoever heard it has gone");
        assert_eq!(quiet.news.borrow().progress, told(3.0));
    }
}
