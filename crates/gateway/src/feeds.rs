//! Sessions of legacy clients that have open streams: which stream is fed, and whether what the session follows may have
//! changed.
//!
//! Promises: of a session's streams only the newest is fed, at whichever replica it is open, so that no message comes
//! twice (spec 2025-11-25: Streamable HTTP, "Multiple Connections"); when it ends, or its replica does, the next older one
//! is; nothing is kept of a session without a stream. Replicas tell each other of their streams; for a moment after one
//! opened two may be fed, and none after one closed.

use ledger::bus::{Bus, Note};
use ledger::{Epoch, Store};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A stream opened (or is open, told again).
pub(crate) const OPENED: &str = "stream.opened";
/// A stream closed.
pub(crate) const CLOSED: &str = "stream.closed";
/// Tell of your open streams again.
pub(crate) const TELL: &str = "stream.tell";

/// Streams of other replicas that are remembered of one session.
const MAX_ELSEWHERE: usize = 64;
/// Sessions with streams at other replicas that are remembered.
const MAX_SESSIONS: usize = 100_000;

/// One open stream, as replicas tell each other of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    session: Arc<str>,
    /// The boot of the replica that has it.
    epoch: u64,
    number: u64,
    opened: i64,
}

impl Told {
    /// The later ones are newer.
    fn age(&self) -> (i64, u64, u64) {
        (self.opened, self.epoch, self.number)
    }
}

/// See the module.
pub(crate) struct Feeds {
    store: Arc<dyn Store>,
    bus: Arc<dyn Bus>,
    all: Mutex<HashMap<Arc<str>, Fed>>,
}

#[derive(Default)]
struct Fed {
    /// Its open streams here, the newest last.
    here: Vec<Told>,
    /// Those at other replicas.
    elsewhere: Vec<Told>,
    /// Numbers given to streams so far.
    given: u64,
    /// Changes of what it follows that are known of here.
    changes: u64,
}

impl Fed {
    fn is_empty(&self) -> bool {
        self.here.is_empty() && self.elsewhere.is_empty()
    }
}

impl Feeds {
    pub fn new(store: Arc<dyn Store>, bus: Arc<dyn Bus>) -> Feeds {
        Feeds { store, bus, all: Mutex::default() }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Arc<str>, Fed>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, topic: &str, stream: &Told) {
        if let Ok(body) = serde_json::to_string(stream) {
            self.bus.tell(Note { topic: topic.into(), body });
        }
    }

    /// A stream of this session begins. `shared`: the session may have streams at other replicas too.
    pub fn enter(feeds: &Arc<Feeds>, session: Arc<str>, shared: bool) -> Feed {
        let mut all = feeds.all();
        let fed = all.entry(session.clone()).or_default();
        fed.given += 1;
        let number = fed.given;
        let stream = Told {
            session: session.clone(),
            epoch: feeds.store.epoch().0,
            number,
            opened: feeds.store.now().0,
        };
        fed.here.push(stream.clone());
        drop(all);
        if shared {
            feeds.tell(OPENED, &stream);
        }
        Feed { feeds: feeds.clone(), session, number, shared }
    }

    /// What this session follows may have changed.
    pub fn changed(&self, session: &str) {
        if let Some(fed) = self.all().get_mut(session) {
            fed.changes += 1;
        }
    }

    /// Another replica told of a stream.
    pub fn heard(&self, topic: &str, body: &str) {
        let Ok(stream) = serde_json::from_str::<Told>(body) else { return };
        let mut all = self.all();
        if topic == OPENED && (all.len() < MAX_SESSIONS || all.contains_key(&stream.session)) {
            let fed = all.entry(stream.session.clone()).or_default();
            fed.elsewhere.retain(|s| (s.epoch, s.number) != (stream.epoch, stream.number));
            if fed.elsewhere.len() < MAX_ELSEWHERE {
                fed.elsewhere.push(stream);
            }
        } else if let Some(fed) = all.get_mut(&stream.session) {
            fed.elsewhere.retain(|s| (s.epoch, s.number) != (stream.epoch, stream.number));
            if fed.is_empty() {
                all.remove(&stream.session);
            }
        }
    }

    /// Tells of all streams that are open here, as those of this boot: a replica whose lease lapsed has a new one.
    pub fn tell_all(&self) {
        let epoch = self.store.epoch().0;
        let mut open = Vec::new();
        for stream in self.all().values_mut().flat_map(|fed| &mut fed.here) {
            stream.epoch = epoch;
            open.push(stream.clone());
        }
        for stream in open {
            self.tell(OPENED, &stream);
        }
    }

    /// Something may have been missed: what is known of other replicas is asked for again, and anything may have changed.
    pub fn missed(&self) {
        let mut all = self.all();
        for fed in all.values_mut() {
            fed.elsewhere.clear();
            fed.changes += 1;
        }
        all.retain(|_, fed| !fed.is_empty());
        drop(all);
        self.bus.tell(Note { topic: TELL.into(), body: String::new() });
    }

    /// Forgets streams of replicas that are no longer alive.
    pub fn forget_the_dead(&self) {
        let mut all = self.all();
        for fed in all.values_mut() {
            fed.elsewhere.retain(|s| self.store.is_live(Epoch(s.epoch)));
        }
        all.retain(|_, fed| !fed.is_empty());
    }
}

/// One open stream of a session.
pub(crate) struct Feed {
    feeds: Arc<Feeds>,
    session: Arc<str>,
    number: u64,
    shared: bool,
}

impl Feed {
    /// Whether this is the stream that is fed.
    pub fn is_newest(&self) -> bool {
        let all = self.feeds.all();
        let Some(fed) = all.get(&self.session) else { return false };
        let newer = |s: &Told, than: &Told| s.age() > than.age() && self.feeds.store.is_live(Epoch(s.epoch));
        fed.here
            .last()
            .is_some_and(|mine| mine.number == self.number && !fed.elsewhere.iter().any(|s| newer(s, mine)))
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
        let at = fed.here.iter().position(|s| s.number == self.number);
        let gone = at.map(|at| fed.here.remove(at));
        if fed.is_empty() {
            all.remove(&self.session);
        }
        drop(all);
        if let Some(gone) = gone.filter(|_| self.shared) {
            self.feeds.tell(CLOSED, &gone);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ledger::bus::{Alone, Heard};
    use ledger::memory::MemoryStore;
    use ledger::store::Attention;
    use ledger::{SystemEnv, Time};
    use tokio::sync::broadcast;

    fn feeds(bus: Arc<dyn Bus>) -> Arc<Feeds> {
        let store = MemoryStore::new(Arc::new(SystemEnv), Time(1_000_000), Attention::default());
        Arc::new(Feeds::new(Arc::new(store), bus))
    }

    #[test]
    fn the_newest_is_fed_and_nothing_is_kept() {
        let feeds = feeds(Arc::new(Alone::default()));
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let enter = |session: &Arc<str>| Feeds::enter(&feeds, session.clone(), true);
        let (first, other) = (enter(&a), enter(&b));
        let (second, third) = (enter(&a), enter(&a));
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

    /// Keeps what is told.
    struct Kept(broadcast::Sender<Heard>);

    impl Bus for Kept {
        fn moved(&self, _: ledger::OperationId) {}
        fn tell(&self, note: Note) {
            let _ = self.0.send(Heard::Note(Arc::new(note)));
        }
        fn listen(&self) -> broadcast::Receiver<Heard> {
            self.0.subscribe()
        }
    }

    #[test]
    fn a_newer_stream_at_another_replica_is_fed_instead_until_it_or_its_replica_ends() {
        let bus = Arc::new(Kept(broadcast::Sender::new(16)));
        let mut told = bus.listen();
        let feeds = feeds(bus.clone());
        let mine = Feeds::enter(&feeds, "a".into(), true);
        let Ok(Heard::Note(opened)) = told.try_recv() else { panic!("it is told") };
        assert_eq!(opened.topic, OPENED);
        let mut newer: Told = serde_json::from_str(&opened.body).unwrap();
        newer.number += 10;
        newer.opened += 5;
        let body = serde_json::to_string(&newer).unwrap();
        feeds.heard(OPENED, &body);
        feeds.heard(OPENED, &body);
        assert!(!mine.is_newest());
        feeds.heard(CLOSED, &body);
        assert!(mine.is_newest());
        // One whose replica is no longer alive does not count, and is forgotten.
        newer.epoch += 7;
        feeds.heard(OPENED, &serde_json::to_string(&newer).unwrap());
        assert!(mine.is_newest());
        feeds.forget_the_dead();
        assert!(feeds.all()["a"].elsewhere.is_empty());
        // After a gap all are asked again.
        feeds.heard(OPENED, &body);
        feeds.missed();
        assert!(mine.is_newest());
        let Ok(Heard::Note(asked)) = told.try_recv() else { panic!("it is asked") };
        assert_eq!(asked.topic, TELL);
        feeds.tell_all();
        assert!(matches!(told.try_recv(), Ok(Heard::Note(n)) if n.topic == OPENED));
        drop(mine);
        assert!(matches!(told.try_recv(), Ok(Heard::Note(n)) if n.topic == CLOSED));
        assert!(feeds.all().is_empty());
    }
}
