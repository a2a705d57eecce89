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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A stream opened (or is open, told again).
pub(crate) const OPENED: &str = "stream.opened";
/// A stream closed.
pub(crate) const CLOSED: &str = "stream.closed";
/// Tell of your open streams again.
pub(crate) const TELL: &str = "stream.tell";

/// Streams that one note tells of: well below the longest body.
const A_NOTE: usize = 200;
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
    /// Whether the session may have streams at other replicas too: what is told of is.
    #[serde(skip)]
    shared: bool,
}

impl Told {
    fn is(&self, other: &Told) -> bool {
        (self.epoch, self.number) == (other.epoch, other.number)
    }

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
    /// Numbers given to streams so far: none is given twice, since what is told of one may be heard late.
    given: AtomicU64,
}

#[derive(Default)]
struct Fed {
    /// Its open streams here, the newest last.
    here: Vec<Told>,
    /// Those at other replicas.
    elsewhere: Vec<Told>,
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
        Feeds { store, bus, all: Mutex::default(), given: AtomicU64::new(0) }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Arc<str>, Fed>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of these; while all are locked, so that nobody hears of the end of one before its beginning.
    fn tell(&self, topic: &str, streams: &[Told]) {
        for some in streams.chunks(A_NOTE) {
            if let Ok(body) = serde_json::to_string(some) {
                self.bus.tell(Note { topic: topic.into(), body });
            }
        }
    }

    /// A stream of this session begins. `shared`: the session may have streams at other replicas too.
    pub fn enter(feeds: &Arc<Feeds>, session: Arc<str>, shared: bool) -> Feed {
        let mut all = feeds.all();
        let number = feeds.given.fetch_add(1, Ordering::Relaxed) + 1;
        let stream = Told {
            session: session.clone(),
            epoch: feeds.store.epoch().0,
            number,
            opened: feeds.store.now().0,
            shared,
        };
        if shared {
            feeds.tell(OPENED, std::slice::from_ref(&stream));
        }
        all.entry(session.clone()).or_default().here.push(stream);
        drop(all);
        Feed { feeds: feeds.clone(), session, number }
    }

    /// What this session follows may have changed.
    pub fn changed(&self, session: &str) {
        if let Some(fed) = self.all().get_mut(session) {
            fed.changes += 1;
        }
    }

    /// Another replica told of streams.
    pub fn heard(&self, topic: &str, body: &str) {
        let Ok(streams) = serde_json::from_str::<Vec<Told>>(body) else { return };
        let mut all = self.all();
        for stream in streams {
            if topic == OPENED && (all.len() < MAX_SESSIONS || all.contains_key(&stream.session)) {
                let fed = all.entry(stream.session.clone()).or_default();
                fed.elsewhere.retain(|s| !s.is(&stream));
                if fed.elsewhere.len() < MAX_ELSEWHERE {
                    fed.elsewhere.push(stream);
                }
            } else if let Some(fed) = all.get_mut(&stream.session) {
                fed.elsewhere.retain(|s| !s.is(&stream));
                if fed.is_empty() {
                    all.remove(&stream.session);
                }
            }
        }
    }

    /// Tells of all streams that are open here, as those of this boot: a replica whose lease lapsed has a new one.
    pub fn tell_all(&self) {
        let epoch = self.store.epoch().0;
        let mut all = self.all();
        let mut open = Vec::new();
        for stream in all.values_mut().flat_map(|fed| &mut fed.here).filter(|s| s.shared) {
            stream.epoch = epoch;
            open.push(stream.clone());
        }
        self.tell(OPENED, &open);
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
        if let Some(gone) = gone.filter(|s| s.shared) {
            self.feeds.tell(CLOSED, &[gone]);
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
        let [mut newer]: [Told; 1] = serde_json::from_str(&opened.body).unwrap();
        newer.number += 10;
        newer.opened += 5;
        let body = serde_json::to_string(&[&newer]).unwrap();
        feeds.heard(OPENED, &body);
        feeds.heard(OPENED, &body);
        assert!(!mine.is_newest());
        feeds.heard(CLOSED, &body);
        assert!(mine.is_newest());
        // One whose replica is no longer alive does not count, and is forgotten.
        newer.epoch += 7;
        feeds.heard(OPENED, &serde_json::to_string(&[&newer]).unwrap());
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

    /// What is told and not heard yet.
    fn notes(told: &mut broadcast::Receiver<Heard>) -> Vec<Arc<Note>> {
        let mut notes = Vec::new();
        while let Ok(heard) = told.try_recv() {
            let Heard::Note(note) = heard else { panic!("{heard:?}") };
            notes.push(note);
        }
        notes
    }

    #[test]
    fn connections_over_lines_are_this_replicas_own() {
        let bus = Arc::new(Kept(broadcast::Sender::new(16)));
        let mut told = bus.listen();
        let feeds = feeds(bus.clone());
        let line = Feeds::enter(&feeds, "a".into(), false);
        feeds.tell_all();
        drop(line);
        assert_eq!(notes(&mut told), []);
    }

    #[test]
    fn many_streams_are_told_of_in_few_notes_each_under_its_own_number() {
        let bus = Arc::new(Kept(broadcast::Sender::new(64 << 10)));
        let mut told = bus.listen();
        let (here, there) = (feeds(bus.clone()), feeds(Arc::new(Alone::default())));
        let id = |n: usize| -> Arc<str> { format!("{n:064x}").into() };
        let open: Vec<Feed> = (0..10_000).map(|n| Feeds::enter(&here, id(n), true)).collect();
        notes(&mut told);
        here.tell_all();
        let all = notes(&mut told);
        // So few that no bus has to drop any of them: who hears of a gap asks for them all again.
        assert!(all.len() <= 50 && all.iter().all(|n| n.body.len() < ledger::bus::MAX_BODY), "{}", all.len());
        all.iter().for_each(|n| there.heard(&n.topic, &n.body));
        assert_eq!(there.all().len(), open.len());
        drop(open);
        let ends = notes(&mut told);
        // One that begins after the only one ended is another, in whatever order that is heard.
        let again = Feeds::enter(&here, id(0), true);
        notes(&mut told).iter().for_each(|n| there.heard(&n.topic, &n.body));
        ends.iter().for_each(|n| there.heard(&n.topic, &n.body));
        assert_eq!(there.all().len(), 1);
        drop(again);
        notes(&mut told).iter().for_each(|n| there.heard(&n.topic, &n.body));
        assert!(there.all().is_empty());
    }
}
