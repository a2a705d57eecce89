//! The requests of one connection that have no answer yet, found by their id.
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::message::Id;
use crate::server::channel::Channel;

const LIVE: u8 = 0;
/// The client is gone: what was handed to the writer may still leave.
const LEFT: u8 = 1;
/// The client cancelled: nothing more is sent.
const CANCELLED: u8 = 2;

/// One request.
pub(super) struct Call {
    pub id: Id,
    pub listens: bool,
    state: AtomicU8,
    channel: OnceLock<Arc<Channel>>,
}

impl Call {
    /// Ties the request to the channel of its running call.
    pub fn attach(&self, channel: Arc<Channel>) {
        let channel = self.channel.get_or_init(|| channel);
        if self.state.load(Ordering::SeqCst) != LIVE {
            channel.cancel();
        }
    }

    pub fn channel(&self) -> Option<&Arc<Channel>> {
        self.channel.get()
    }

    /// Whether nothing is to be done for it any more.
    pub fn is_over(&self) -> bool {
        self.state.load(Ordering::SeqCst) != LIVE
    }

    /// Its client is gone.
    pub fn leave(&self) {
        self.to(LEFT);
    }

    fn to(&self, state: u8) {
        self.state.fetch_max(state, Ordering::SeqCst);
        if let Some(channel) = self.channel.get() {
            channel.cancel();
        }
    }
}

#[derive(Default)]
pub(super) struct Calls(Mutex<HashMap<Id, Arc<Call>>>);

impl Calls {
    fn all(&self) -> MutexGuard<'_, HashMap<Id, Arc<Call>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a request; `None` if one of this id has no answer yet.
    pub fn begin(&self, id: &Id, listens: bool) -> Option<Arc<Call>> {
        match self.all().entry(id.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                let call = Arc::new(Call {
                    id: id.clone(),
                    listens,
                    state: AtomicU8::new(LIVE),
                    channel: OnceLock::new(),
                });
                place.insert(call.clone());
                Some(call)
            }
        }
    }

    /// Open listen streams.
    pub fn listening(&self) -> usize {
        self.all().values().filter(|call| call.listens).count()
    }

    pub fn contains(&self, id: &Id) -> bool {
        self.all().contains_key(id)
    }

    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// The client cancelled a request. One that isn't there (any more) is nothing to act on.
    pub fn cancel(&self, id: &Id) {
        let mut all = self.all();
        let found = all.remove(id);
        if let Some(call) = &found {
            call.state.store(CANCELLED, Ordering::SeqCst);
        }
        drop(all);
        if let Some(call) = found {
            call.to(CANCELLED);
        }
    }

    /// The client is gone.
    pub fn leave(&self) {
        let all: Vec<_> = self.all().values().cloned().collect();
        all.iter().for_each(|call| call.leave());
    }

    pub fn each(&self) -> Vec<Arc<Call>> {
        self.all().values().cloned().collect()
    }

    /// Whether a message of this request may leave now; with `last` the request is over, and its id may be used again:
    /// the client can't have seen the answer before.
    pub fn claim(&self, call: &Arc<Call>, last: bool) -> bool {
        let mut all = self.all();
        if call.state.load(Ordering::SeqCst) == CANCELLED {
            return false;
        }
        if last {
            Self::remove(&mut all, call);
        }
        true
    }

    /// The request ended without an answer.
    pub fn end(&self, call: &Arc<Call>) {
        Self::remove(&mut self.all(), call);
    }

    fn remove(all: &mut HashMap<Id, Arc<Call>>, call: &Arc<Call>) {
        if let Entry::Occupied(place) = all.entry(call.id.clone())
            && Arc::ptr_eq(place.get(), call)
        {
            place.remove();
        }
    }
}
