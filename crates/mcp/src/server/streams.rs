//! The streams of change notifications that are open at an endpoint. Each of them holds a connection (or its part of
//! one) for as long as its client likes, so they are counted, all together and for each caller: requests must find room
//! beside them, and no caller may take the room of all others.
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::RpcError;

/// Counts the open streams.
pub(super) struct Streams {
    most: usize,
    most_each: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    all: usize,
    /// Nobody is kept here without an open stream.
    each: HashMap<Arc<str>, usize>,
}

impl Streams {
    pub fn new(most: usize, most_each: usize) -> Arc<Streams> {
        Arc::new(Streams { most, most_each, open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more stream of this caller, if there is one.
    pub fn enter(self: &Arc<Streams>, identity: Arc<str>) -> Option<Place> {
        let mut open = self.open();
        if open.all >= self.most || open.each.get(&identity).copied().unwrap_or(0) >= self.most_each {
            return None;
        }
        open.all += 1;
        *open.each.entry(identity.clone()).or_default() += 1;
        drop(open);
        Some(Place { streams: self.clone(), identity })
    }
}

/// A stream's place, given back when it is dropped.
pub(super) struct Place {
    streams: Arc<Streams>,
    identity: Arc<str>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        open.all = open.all.saturating_sub(1);
        if let Entry::Occupied(mut own) = open.each.entry(self.identity.clone()) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// The refusal of one listen stream too many.
pub(super) fn too_many() -> RpcError {
    RpcError::unavailable(
        "Too many streams are open at the moment, so this one was not opened. Requests are served as always; close \
         a stream, or try again a little later.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_and_nobody_is_kept() {
        let streams = Streams::new(3, 2);
        let enter = |who: &str| streams.enter(who.into());
        let (first, second) = (enter("ann"), enter("ann"));
        assert!(first.is_some() && second.is_some());
        assert!(enter("ann").is_none(), "a caller has no more than its share");
        let third = enter("bob");
        assert!(third.is_some() && enter("cid").is_none(), "nor have all together");
        drop(first);
        assert!(enter("cid").is_some(), "given back at once");
        drop((second, third));
        let open = streams.open();
        assert_eq!((open.all, open.each.len()), (0, 0));
    }
}
