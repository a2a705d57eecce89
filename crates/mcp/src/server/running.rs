//! The running calls that a client may cancel by the id of their request (`notifications/cancelled`).
//!
//! Promises: a cancellation reaches only a call of the same caller and session; if two calls could be meant, as with
//! two clients of one principal that both count from 1 without a session, neither is cancelled.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::channel::Channel;
use crate::message::Id;

/// Whose call: the caller, its session if it named one, and the request's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub identity: Arc<str>,
    pub session: Option<Arc<str>>,
    pub id: Id,
}

/// The running calls of an endpoint that their clients may cancel by name. Cheap to clone: clones share.
#[derive(Clone, Default)]
pub struct Running(Arc<Mutex<HashMap<Key, Vec<Arc<Channel>>>>>);

impl Running {
    /// Keeps a call findable until the entry is dropped.
    pub(super) fn insert(&self, key: Key, channel: Arc<Channel>) -> Entry {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(key.clone()).or_default().push(channel.clone());
        drop(all);
        Entry { running: self.clone(), key, channel }
    }

    /// Cancels the call that this caller made in this session under this id, if it runs here: for a cancellation that
    /// arrived at another replica, see [`super::Service::cancelled_elsewhere`].
    pub fn cancel_call(&self, identity: Arc<str>, session: Arc<str>, id: Id) -> bool {
        self.cancel(&Key { identity, session: Some(session), id })
    }

    /// Cancels the one call that fits; says whether there was exactly one.
    pub(super) fn cancel(&self, key: &Key) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that was cancelled already and hasn't ended yet can't be meant again.
        let mut fitting = all.get(key).into_iter().flatten().filter(|channel| !channel.gone.is_cancelled());
        let found = match (fitting.next(), fitting.next()) {
            (Some(one), None) => Some(one.clone()),
            _ => None,
        };
        drop(all);
        found.inspect(|channel| channel.cancel()).is_some()
    }
}

/// One call's place among the running ones; dropped when it is answered.
pub(super) struct Entry {
    running: Running,
    key: Key,
    channel: Arc<Channel>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut all = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = all.get_mut(&self.key) {
            same.retain(|channel| !Arc::ptr_eq(channel, &self.channel));
            if same.is_empty() {
                all.remove(&self.key);
            }
        }
    }
}
