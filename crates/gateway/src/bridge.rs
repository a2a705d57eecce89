//! What replicas tell each other by the bus, and what this one does about what it hears.
//!
//! Promises: a change, the end of a session or a new subscription at one replica counts at all others as soon as they hear
//! of it; where something may have been missed, everything that could have been told is looked at again. However many
//! replicas miss something at once, and ask and tell each other of everything, each does so a few times a second at most.

use crate::changes::{Change, TOPIC as CHANGE};
use crate::feeds;
use crate::service::Shared;
use ledger::bus::{Heard, Note};
use mcp::json::{Limits, Raw};
use mcp::message::Id;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// A session ended.
pub(crate) const SESSION_ENDED: &str = "session.ended";
/// What a session follows changed.
pub(crate) const SESSION_CHANGED: &str = "session.changed";
/// A client cancelled one of its requests by name.
const CANCELLED: &str = "cancelled";

/// How often it is looked whether replicas are still alive.
const LOOK: Duration = Duration::from_secs(5);
/// The shortest pause between two times that everything is looked at, or told, again.
const PAUSE: Duration = Duration::from_millis(250);

/// Something that is done at once when it is wanted, and not again within a pause: then at its end.
#[derive(Default)]
struct Paced {
    done: Option<Instant>,
    due: Option<Instant>,
}

impl Paced {
    /// It is wanted: whether it is to be done now.
    fn wanted(&mut self, now: Instant) -> bool {
        match self.done {
            Some(done) if now < done + PAUSE => {
                self.due = Some(done + PAUSE);
                false
            }
            _ => {
                *self = Paced { done: Some(now), due: None };
                true
            }
        }
    }

    /// Whether it was wanted and is to be done now.
    fn is_due(&mut self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now) && self.wanted(now)
    }
}

/// A request that its client cancelled at a replica that doesn't work on it.
#[derive(Serialize, Deserialize)]
struct Cancelled {
    identity: Arc<str>,
    session: Arc<str>,
    /// As on the wire: `1` and `"1"` differ.
    id: String,
}

/// Passes a cancellation on.
pub(crate) fn cancelled(shared: &Shared, identity: Arc<str>, session: Arc<str>, id: &Id) {
    let cancelled = Cancelled { identity, session, id: id.as_str().to_owned() };
    if let Ok(body) = serde_json::to_string(&cancelled) {
        shared.ledger.bus().tell(Note { topic: CANCELLED.into(), body });
    }
}

/// Hears other replicas for as long as the process lives.
pub(crate) async fn heed(shared: Arc<Shared>) {
    let mut heard = shared.ledger.bus().listen();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut epoch = shared.ledger.store().epoch();
    let (mut look_again, mut tell_again) = (Paced::default(), Paced::default());
    // Streams that were open elsewhere before this replica was there.
    shared.sessions.feeds().missed();
    loop {
        let due = [look_again.due, tell_again.due].into_iter().flatten().min();
        tokio::select! {
            news = heard.recv() => match news {
                Ok(Heard::Note(note)) => {
                    shared.metrics.bus_heard.inc();
                    if note.topic != feeds::TELL {
                        act(&shared, &note);
                    } else if tell_again.wanted(Instant::now()) {
                        shared.sessions.feeds().tell_all();
                    }
                }
                Ok(Heard::Moved(id)) => shared.ledger.heard(id),
                Ok(Heard::Gap) | Err(RecvError::Lagged(_)) => {
                    shared.metrics.bus_gaps.inc();
                    if look_again.wanted(Instant::now()) {
                        missed(&shared);
                    }
                }
                Err(RecvError::Closed) => return,
            },
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let now = Instant::now();
                if look_again.is_due(now) {
                    missed(&shared);
                }
                if tell_again.is_due(now) {
                    shared.sessions.feeds().tell_all();
                }
            }
            _ = look.tick() => {
                shared.sessions.feeds().forget_the_dead();
                let now = shared.ledger.store().epoch();
                if now != epoch {
                    epoch = now;
                    shared.sessions.feeds().tell_all();
                }
            }
        }
    }
}

fn missed(shared: &Shared) {
    shared.ledger.missed();
    shared.changes.tell_here(Change::Any);
    shared.sessions.feeds().missed();
    shared.sessions.heard_end(None);
}

fn act(shared: &Shared, note: &Note) {
    match note.topic.as_str() {
        CHANGE => shared.changes.tell_here(Change::read(&note.body)),
        SESSION_ENDED => shared.sessions.heard_end(Some(note.body.as_str().into())),
        SESSION_CHANGED => shared.sessions.feeds().changed(&note.body),
        topic @ (feeds::OPENED | feeds::CLOSED) => shared.sessions.feeds().heard(topic, &note.body),
        CANCELLED => {
            let Ok(c) = serde_json::from_str::<Cancelled>(&note.body) else { return };
            let id = Raw::parse(c.id, &Limits::default()).ok().and_then(Id::new);
            if let (Some(id), Some(running)) = (id, shared.running.get()) {
                running.cancel_call(c.identity, c.session, id);
            }
        }
        // A later version's.
        _ => {
            shared.metrics.bus_unknown.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_often_is_done_now_and_then_and_never_forgotten() {
        let start = Instant::now();
        let mut paced = Paced::default();
        assert!(!paced.is_due(start));
        assert!(paced.wanted(start), "at once");
        assert!(!paced.is_due(start + PAUSE), "it was not wanted since");
        // For ten pauses it is wanted all the time.
        let done = (1..=1000_u32).filter(|n| {
            let now = start + PAUSE * *n / 100;
            let due = paced.is_due(now);
            let wanted = paced.wanted(now);
            due || wanted
        });
        assert_eq!(done.count(), 10);
        // The last time it was wanted counts, too.
        let last = start + PAUSE * 10;
        assert!(paced.due.is_some_and(|due| due == last + PAUSE));
        assert!(paced.is_due(last + PAUSE) && paced.due.is_none());
    }
}
