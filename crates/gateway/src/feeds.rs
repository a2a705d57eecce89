//! Sessions of legacy clients that have open streams in this process: which stream is fed, and whether what the session
//! follows may have changed.
//!
//! Promises: of a session's streams only the newest is fed, so that no message comes twice (spec 2025-11-25: Streamable
//! HTTP, "Multiple Connections"); when it ends, the next older one is; nothing is kept of a session without a stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Default)]
pub(crate) struct Feeds(Mutex<HashMap<Arc<str>, Fed>>);

#[derive(Default)]
struct Fed {
    /// Its open streams, the newest last.
    streams: Vec<u64>,
    /// Numbers given to streams so far.
    given: u64,
    /// Changes of what it follows, made by this process.
    changes: u64,
}

impl Feeds {
    fn all(&self) -> MutexGuard<'_, HashMap<Arc<str>, Fed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream of this session begins.
    pub fn enter(feeds: &Arc<Feeds>, session: Arc<str>) -> Feed {
        let mut all = feeds.all();
        let fed = all.entry(session.clone()).or_default();
        fed.given += 1;
        let number = fed.given;
        fed.streams.push(number);
        drop(all);
        Feed { feeds: feeds.clone(), session, number }
    }

    /// What this session follows may have changed.
    pub fn changed(&self, session: &Arc<str>) {
        if let Some(fed) = self.all().get_mut(session) {
            fed.changes += 1;
        }
    }
}

/// One open stream of a session.
pub(crate) struct Feed {
    feeds: Arc<Feeds>,
    session: Arc<str>,
    number: u64,
}

impl Feed {
    /// Whether this is the stream that is fed.
    pub fn is_newest(&self) -> bool {
        self.feeds.all().get(&self.session).and_then(|fed| fed.streams.last()) == Some(&self.number)
    }

    /// Goes up with every change of what the session follows.
    pub fn changes(&self) -> u64 {
        self.feeds.all().get(&self.session).map_or(0, |fed| fed.changes)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut all = self.feeds.all();
        let Some(fed) = all.get_mut(&self.session) else { return };
        fed.streams.retain(|number| *number != self.number);
        if fed.streams.is_empty() {
            all.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_fed_and_nothing_is_kept() {
        let feeds = Arc::new(Feeds::default());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let (first, other) = (Feeds::enter(&feeds, a.clone()), Feeds::enter(&feeds, b.clone()));
        let (second, third) = (Feeds::enter(&feeds, a.clone()), Feeds::enter(&feeds, a.clone()));
        let fed = [&first, &second, &third, &other].map(Feed::is_newest);
        assert_eq!(fed, [false, false, true, true]);
        feeds.changed(&a);
        assert_eq!((first.changes(), third.changes(), other.changes()), (1, 1, 0));
        drop(second);
        assert!(third.is_newest());
        drop(third);
        assert!(first.is_newest(), "the older one takes over");
        drop((first, other));
        feeds.changed(&a);
        assert!(feeds.all().is_empty());
    }
}
